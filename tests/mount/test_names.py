"""Key paths as file names: every odd key has one name, and every name that is no key's does not exist."""

import os

import numpy as np
import pytest

from lib import compare, names


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
