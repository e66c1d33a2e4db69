# SPDX-License-Identifier: Apache-2.0
"""Key paths as file names: every odd key has one name, and every name that is not a key's does not exist."""

import errno
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

from lib import compare, expect, names, writing


@pytest.mark.parametrize('name', ['names-ocdbt', 'names-zarr3', 'names-top', 'names-perleaf', 'names-strings'])
def test_odd_keys(mount, cases, name):
    """Keys with '/', NUL, '%', dots, brackets, our own extensions and names, and of any length."""
    case = cases(name)
    m = mount(case.path)
    tree = case.tree()
    assert not compare.compare(m.path, tree)
    assert not list(compare.compare_xattrs(m.path, tree))


@pytest.mark.parametrize('wrong', [
    '%2f.npy',          # lower-case hex is not how we spell it
    '%41.npy',          # an escape that is not needed
    '%4.npy', '%zz.npy', '%%.npy', 'x%.npy',
    'a/b.npy',
    'plain', 'plain.txt', 'plain.null',
    'w[0.npy', 'w].npy', 'w@.npy', 'w@nosuchtype.npy',
    '%2E%2E', '..%2F', 'nothing.npy', 'w.npy.npy.npy', '\udcff.npy', 'n' * 255,
])
def test_names_of_no_key(mount, cases, wrong):
    """A malformed escape, a name spelled otherwise, an absent key: ENOENT."""
    case = cases('names-ocdbt')
    m = mount(case.path)
    with pytest.raises(FileNotFoundError):
        os.stat(m / 'leaf' / wrong)


def test_the_log_says_which_view_is_absent_and_why(mount):
    """With the whole path: many leaves have the same last name."""
    m = mount(pathlib.Path(__file__).resolve().parents[1] / 'data/sample')
    assert not os.path.exists(m / '1000/state/params/embed/table@float31.npy')
    assert any(line.endswith(" no '1000/state/params/embed/table@float31.npy': 'float31' is not a dtype")
               for line in m.log_lines()), m.log_lines()


def test_the_log_says_how_a_key_is_written(mount, tmp_path):
    (tmp_path / 'source').mkdir()
    m = mount(tmp_path / 'source', 'shape=root', allow_errors=True)
    (m / '1.tmp/default').mkdir(parents=True)
    with pytest.raises(OSError) as e:
        np.save(m / '1.tmp/default/a@b.npy', np.ones(2))
    assert e.value.errno == errno.EINVAL and "'@' are written %5B, %5D and %40" in m.log_lines()[-1]
    np.save(m / '1.tmp/default/a%40b.npy', np.ones(2))
    os.rename(m / '1.tmp', m / '1')
    assert os.path.exists(m / '1/default/a%40b.npy')


def test_a_name_longer_than_any_file_system_takes(mount, cases):
    m = mount(cases('names-ocdbt').path)
    with pytest.raises(OSError):
        os.stat(m / 'leaf' / ('x' * 300))


def test_long_keys_keep_their_whole_text_in_an_attribute(mount, cases):
    case = cases('names-ocdbt')
    m = mount(case.path)
    for key in ('n' * 300, '\u6f22' * 90, 'a' * 199 + '\u6f22' * 40):
        name = names.file_name(key, '.npy')
        assert len(os.fsencode(name)) <= 255 and '~' in name
        assert compare.xattr(m / 'leaf' / name, 'key') == ['leaf', key]


def test_a_key_spelled_like_a_short_form_is_another_leaf(mount, cases):
    case = cases('names-collide')
    m = mount(case.path)
    got = {tuple(compare.xattr(m / 't' / n, 'key')): np.load(m / 't' / n) for n in os.listdir(m / 't')}
    want = {k: v for k, v in case.tree().leaves.items() if k[0] == 't'}
    assert set(got) == set(want) and len(want) == 2
    assert all(np.array_equal(got[k], want[k]) for k in want)


def test_listing_and_lookup_agree(mount, cases):
    """Every name that readdir gives can be opened by that name."""
    case = cases('names-ocdbt')
    m = mount(case.path)
    for where, inside in compare.listed_names(m.path).items():
        for name in inside:
            os.lstat(m / where / name)


def test_nothing_of_ours_is_listed(mount, cases):
    """.pytreefs and latest are reachable by name only."""
    m = mount(cases('manager-root').path)
    listed = os.listdir(m.path)
    assert '.pytreefs' not in listed and 'latest' not in listed
    assert os.path.isdir(m / '.pytreefs') and os.path.islink(m / 'latest')


# Keys that are names of ours somewhere, that look like a short form, and ordinary ones: as leaves and containers.
TRAVELLERS = ['_METADATA', '_CHECKPOINT_METADATA', '.pytreefs', 'latest', 'x~0123456789abcdef', '%5FMETADATA', 'w.npy', 'w', '']
PLACES = {'root': ('', '1/default'), 'step': ('1', 'default'), 'item': ('1/default', '.'), 'checkpoint': ('2', '.'),
          'checkpoint in a root': ('', '2')}


def travellers():
    """Each key at the top of the tree and below, as a container's and as a leaf's."""
    def level(n):
        return {key: {'w': np.full(2, n + i, np.float32)} for i, key in enumerate(TRAVELLERS)}
    return expect.flatten({**level(0), 'below': {**level(20), 'leaves': {k: np.full(3, i, np.int32) for i, k in
                                                                      enumerate(TRAVELLERS)}}})


@pytest.fixture
def places(mount, run, tmp_path):
    """A root with the same tree as the item of step 1 and as the whole of step 2."""
    root = tmp_path / 'root'
    root.mkdir()
    m = mount(root)
    writing.save(m / '1.tmp/default', travellers())
    (m / '1.tmp').rename(m / '1')
    m.unmount()
    run('convert', root / '1/default', root / '2')
    if not (root / '2/_CHECKPOINT_METADATA').exists():      # as Orbax's own direct checkpoints have one
        shutil.copy(root / '1/_CHECKPOINT_METADATA', root / '2')
    return root


@pytest.mark.parametrize('place', PLACES)
def test_a_name_is_ours_only_where_ours_stands(mount, places, place):
    """Names by place, as lib/names.py spells them; every one of them can be copied into a draft, and comes back."""
    tree = travellers()
    source, item = PLACES[place]
    m = mount(places / source)
    at = m.path / item
    shown = names.ours_at(at)
    assert ('.pytreefs' in shown) == (item == '.') and ('_CHECKPOINT_METADATA' in shown) == place.startswith('checkpoint')
    assert not compare.compare(at, tree)
    assert not compare.compare_xattrs(at, tree)
    target = places.parent / 'target'
    target.mkdir()
    other = mount(target)
    for step, below in ((5, 'default'), (6, 'default/deeper')):
        (other / f'{step}.tmp' / below).mkdir(parents=True)
        subprocess.run(['cp', '-r', '--preserve=xattr', f'{at}/.', other / f'{step}.tmp' / below], check=True)
        (other / f'{step}.tmp').rename(other / str(step))
    assert not compare.compare(other / '5/default', tree)
    for path, value in tree.leaves.items():
        got = np.load(other / '6/default' / names.path_of(('deeper', *path), value))
        assert np.array_equal(got, value), path


def test_two_spellings_of_one_key_are_refused(mount, tmp_path):
    """A copy may bring the spelling of another place, but not beside the key's own."""
    root = tmp_path / 'root'
    root.mkdir()
    m = mount(root, allow_errors=True)
    for i, name in enumerate(('.pytreefs', '%2Epytreefs')):
        (m / '7.tmp/default' / name).mkdir(parents=True)
        np.save(m / '7.tmp/default' / name / 'w.npy', np.full(2, i))
    with pytest.raises(OSError):
        (m / '7.tmp').rename(m / '7')
    assert "second leaf of key '.pytreefs'" in '\n'.join(m.log_lines())
    shutil.rmtree(m / '7.tmp/default/%2Epytreefs')
    (m / '7.tmp').rename(m / '7')
    assert np.load(m / '7/default/.pytreefs/w.npy')[0] == 0


def test_no_directory_is_left_out_of_a_commit(mount, tmp_path):
    """Files of metadata that a copy brings are ignored at any depth; a key that is called so is not."""
    root = tmp_path / 'root'
    root.mkdir()
    m = mount(root)
    for name in ('_METADATA', '_CHECKPOINT_METADATA'):
        (m / '7.tmp/default/d' / name).mkdir(parents=True)
        np.save(m / '7.tmp/default/d' / name / 'w.npy', np.ones(2))
        (m / '7.tmp/default/e').mkdir(exist_ok=True)
        (m / '7.tmp/default/e' / name).write_text('{}')
    np.save(m / '7.tmp/default/e/w.npy', np.ones(2))
    (m / '7.tmp').rename(m / '7')
    assert sorted(os.listdir(m / '7/default/d')) == ['_CHECKPOINT_METADATA', '_METADATA']
    assert os.listdir(m / '7/default/e') == ['w.npy']
