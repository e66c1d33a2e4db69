# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of real Orbax 0.12.8, TensorStore and zarr-python, read through a mount to the last bit.

One test is one row: one way of storing a checkpoint.
"""

import pathlib

import numpy as np
import pytest

from lib import checkpoints, compare, expect
from lib.pairs import pairs

SAMPLE = pathlib.Path(__file__).resolve().parents[1] / 'data' / 'sample'

# Read in every way that issue 3 names: np.load, np.load(mmap_mode='r'), cat, pread, eight threads.
DEEP = ('matrix-', 'dtypes-', 'chunked-', 'mesh-', 'two-processes')
# Cases whose mount is asked about more precisely by a test of their own.
ELSEWHERE = {'broken-step-among-good-ones', 'random-key-items', 'shared-parameter-names'}
NOISY = {'unmerged', 'unmerged-two-processes', 'unmerged-part-missing', 'chunk-gone', 'root-with-debris'}

# The features that the cases of one name show, by the rows of features.py.
SHOWN = {
    'aggregate': ('A1', 'B1'), 'scalar-types': ('A10',), 'strings': ('A13',), 'prng-keys': ('A18',), 'dtypes-': ('A9',),
    'mesh-': ('A11',), 'matrix-': ('B4', 'E3', 'D5'), 'metadata-missing': ('B12',), 'chunk-gone': ('B12',),
    'custom-metadata': ('F3',), 'manager-root': ('F3',), 'rich-types': ('B6', 'D4'), 'opaque-item': ('E2',),
    'json-and-proto-items': ('E4', 'E5'), 'v1-json-item': ('E5',), 'step-prefix': ('F1',), 'step-padded': ('F1',),
    'root-with-debris': ('F2',), 'killed-before-the-last-rename': ('F2',), 'async-checkpointer': ('B13',),
    'v1-checkpointables': ('E3',), 'chunked-': ('A3',), 'cast-on-save': ('A2',), 'placeholders': ('B11',),
}


def rows(names):
    """The cases as parameters, each with the rows that it shows."""
    out = []
    for name in names:
        shown = {row for prefix, ids in SHOWN.items() if name.startswith(prefix) for row in ids}
        out.append(pytest.param(name, marks=[pytest.mark.feature(*sorted(shown))] if shown else []))
    return out


def deep(name):
    return name.startswith(DEEP)


@pytest.mark.parametrize('name', rows(n for n in checkpoints.names() if deep(n)))
def test_row(mount, cases, name):
    case = cases(name)
    m = mount(case.path)
    faults = compare.compare_case(m.path, case)
    for where, tree in case.trees.items():
        root = m / where
        faults += list(compare.through_cat(root, tree))
        faults += list(compare.through_pread(root, tree))
        faults += list(compare.by_threads(root, tree))
    assert not faults, '\n'.join(faults[:40])


@pytest.mark.parametrize('name', rows(n for n in checkpoints.names() if not deep(n) and n not in ELSEWHERE))
def test_layout(mount, cases, name):
    case = cases(name)
    m = mount(case.path, allow_errors=name in NOISY)
    faults = compare.compare_case(m.path, case)
    for where, tree in case.trees.items():
        broken = case.notes.get('broken', [])
        if not broken:
            faults += list(compare.through_pread(m / where, tree, reads=5))
    assert not faults, '\n'.join(faults[:40])


@pytest.mark.parametrize('io, name', pairs(
    ['uring', 'sync'],
    ['matrix-ocdbt-zarr2-zstd-v0', 'matrix-perleaf-zarr3-none-v1', 'zarr3-perleaf']))
def test_both_engines(mount, cases, name, io):
    case = cases(name)
    m = mount(case.path, f'io={io}')
    assert not compare.compare_case(m.path, case)


@pytest.mark.parametrize('name', ['matrix-ocdbt-zarr2-zstd-v0', 'mesh-ocdbt-zarr3-v1'])
def test_direct_io(mount, cases, name):
    """With direct_io every read comes to the daemon; reads at random places too."""
    case = cases(name)
    m = mount(case.path, 'direct_io')
    for where, tree in case.trees.items():
        assert not list(compare.through_pread(m / where, tree, reads=50))


def test_step_and_item_sources_show_the_same_tree(mount, cases):
    """The same tree from its root, its step and its item."""
    case = cases('manager-root')
    tree = case.trees['10/state']
    root, step, item = mount(case.path), mount(case.path / '10'), mount(case.path / '10' / 'state')
    assert not compare.compare(root / '10/state', tree)
    assert not compare.compare(step / 'state', tree)
    assert not compare.compare(item.path, tree)


@pytest.mark.parametrize('shape,below', [('root', ''), ('step', '10'), ('item', '10/state')])
def test_shape_can_be_said(mount, cases, shape, below):
    case = cases('manager-root')
    m = mount(case.path / below, f'shape={shape}')
    where = {'root': '10/state', 'step': 'state', 'item': ''}[shape]
    assert not compare.compare(m / where, case.trees['10/state'])


@pytest.mark.parametrize('options', [[], ['shape=step']])
def test_random_key_items_keep_their_data(mount, cases, options):
    """Whichever way the inner directories are shown, the key's bytes are to be had."""
    case = cases('random-key-items')
    m = mount(case.path, *options)
    assert not compare.compare(m / 'state', case.trees['state'])
    names = compare.listed_names(m / 'rng')
    files = [f'{where}/{n}' for where, inside in names.items() for n in inside]
    assert any('jax_random_key' in f for f in files), files
    array = [f for f in files if f.endswith('checkpoint.npy')]
    if array:
        assert np.load(m / 'rng' / array[0].lstrip('/')).tolist() == case.notes['key']
    else:
        stored = case.path / 'rng' / 'jax_random_key' / 'checkpoint' / '.zarray'
        assert (m / 'rng/jax_random_key/checkpoint/.zarray').read_bytes() == stored.read_bytes()


@pytest.mark.feature('A18')
@pytest.mark.parametrize('name', ['prng-keys', 'prng-keys-v1', 'bare-key'])
def test_prng_keys_say_their_implementation(mount, cases, name):
    """A typed key is its uint32 data; an attribute has the implementation's name."""
    case = cases(name)
    m = mount(case.path)
    (where, tree), = case.trees.items()
    for path, value, _ in compare.leaf_paths(m / where, tree):
        if isinstance(value, expect.Key):
            assert value.impl in [v for v in compare.xattrs(path).values()], compare.xattrs(path)


def test_a_broken_step_leaves_the_others_alone(mount, cases):
    """A damaged tree and an empty step directory are EIO; the step beside them reads."""
    case = cases('broken-step-among-good-ones')
    m = mount(case.path, allow_errors=True)
    assert not compare.compare_case(m.path, case)
    for where in case.notes['broken']:
        assert not compare.is_eio(m / where)
    text = '\n'.join(m.log_lines())
    assert '_METADATA' in text and '50' in text, text


def test_the_sample_equals_what_orbax_restores(mount):
    """The committed sample, against a restore of it by the real Orbax."""
    from lib import selftest        # imports JAX, which no other test here does
    m = mount(SAMPLE)
    for step in ('1000', '1500'):
        tree = expect.flatten(selftest.restored(SAMPLE / step / 'state'))
        assert len(tree.leaves) > 60
        assert not compare.compare(m / step / 'state', tree)
