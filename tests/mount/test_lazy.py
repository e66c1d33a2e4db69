"""Nothing is read that nobody asked for: big roots and wide trees are cheap to mount and to list."""

import os
import time

import pytest

from lib import compare

pytestmark = pytest.mark.serial


def test_a_thousand_steps_are_mounted_without_reading_one(mount, cases):
    case = cases('thousand-steps')
    m = mount(case.path)
    opened = m.stats()
    assert sorted(os.listdir(m.path)) == sorted(case.steps)
    assert os.readlink(m / 'latest') == case.notes['latest']
    assert total(m.stats(), 'read_bytes') - total(opened, 'read_bytes') < 100_000
    assert total(opened, 'read_bytes') < 1_000_000
    assert not compare.compare(m / '777/state', case.trees['777/state'])


def test_mounting_a_big_root_is_quick(mount, cases):
    case = cases('thousand-steps')
    start = time.monotonic()
    m = mount(case.path)
    os.listdir(m.path)
    assert time.monotonic() - start < 1.0


@pytest.mark.parametrize('name', ['leaves-20000', 'leaves-20000-perleaf'])
def test_twenty_thousand_leaves_are_listed_quickly(mount, cases, name):
    case = cases(name)
    start = time.monotonic()
    m = mount(case.path)
    n = 0
    for where, _, files in os.walk(m.path):
        for name in files:
            n += 1
            os.lstat(os.path.join(where, name))
    seconds = time.monotonic() - start
    assert n == case.notes['layers'] * case.notes['leaves'] + 2       # and the two metadata files
    assert seconds < (10.0 if 'perleaf' in name else 5.0), seconds      # there each leaf is files of its own


def test_twenty_thousand_leaves_read_right(mount, cases):
    import numpy as np
    case = cases('leaves-20000')
    m = mount(case.path)
    for i in range(0, 200, 7):
        for j in range(0, 100, 9):
            a = np.load(m / f'layer{i:03d}' / f'w{j:02d}.npy')
            assert a.tolist() == [i * 100 + j] * 4


def test_a_thousand_steps_are_read_with_few_open_files(mount, cases):
    """Walking a long run's root must not use up the descriptors that a daemon is given."""
    case = cases('thousand-steps')
    m = mount(case.path, under=['prlimit', '--nofile=1024:1024'])
    for step in case.steps:
        assert compare.read_all(m / step / 'state/name.txt') == b'step 0'
        compare.read_all(m / step / 'state/w.npy')
    assert m.open_files() < 1000


def total(doc, word):
    """The largest counter whose name contains the word, wherever it is in the document."""
    out = []

    def go(node, at):
        for k, v in node.items():
            if isinstance(v, dict):
                go(v, f'{at}{k}.')
            elif isinstance(v, int) and word in at + k:
                out.append(v)

    go(doc, '')
    assert out, f'no counter called {word} in {doc}'
    return max(out)
