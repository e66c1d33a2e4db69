# SPDX-License-Identifier: Apache-2.0
"""Every checkpoint that the mount is tested on, through load(): to the bit, container types too."""

import pathlib

import numpy as np
import pytest

import pytreefs
from lib import checkpoints, expect, loading, old

SAMPLE = pathlib.Path(__file__).resolve().parents[1] / 'data' / 'sample'
# A mount shows the inner directories of these items; a test of tests/interop looks at them.
ELSEWHERE = {'shared-parameter-names', 'random-key-items'}


def faults_of(case):
    """Of all trees of a case; those with broken leaves must fail and name one of them."""
    broken = case.notes.get('broken', [])
    out = []
    for where, tree in case.trees.items():
        here = [b for b in broken if not where or b == where or b.startswith(where + '/')]
        # A leaf of somebody's own type is files, which open() has.
        here += case.notes.get('opaque', [])
        try:
            got = pytreefs.load(case.path / where)
        except pytreefs.Error as e:
            if not here:
                out.append(f'{where}: {e}')
            continue
        if here:
            out.append(f'{where}: loads, although {here} cannot be read')
            continue
        out += [f'{where}{f}' for f in loading.faults(tree, got)]
    return out


@pytest.mark.filterwarnings('ignore:.* has lost its _METADATA')
@pytest.mark.parametrize('name', [n for n in checkpoints.names() if n not in ELSEWHERE])
def test_case(cases, name):
    faults = faults_of(cases(name))
    assert not faults, '\n'.join(faults[:40])


@pytest.mark.parametrize('release,name', old.names())
def test_release(release, name):
    faults = faults_of(old.get(release, name))
    assert not faults, '\n'.join(faults[:40])


def test_the_sample_equals_what_orbax_restores():
    from lib import selftest        # imports JAX
    for step in ('1000', '1500'):
        tree = expect.flatten(selftest.restored(SAMPLE / step / 'state'))
        faults = loading.faults(tree, pytreefs.load(SAMPLE / step / 'state'))
        assert len(tree.leaves) > 60 and not faults, '\n'.join(faults)


@pytest.mark.parametrize('name', ['matrix-ocdbt-zarr2-zstd-v0', 'rich-types'])
def test_lazy_leaves_are_what_load_gives(cases, name):
    """Each leaf by its keys, by the path of them, and by its name in a mount."""
    case = cases(name)
    for where, tree in case.trees.items():
        with pytreefs.open(case.path / where) as ck:
            for path, value in tree.leaves.items():
                if not path or isinstance(value, expect.Empty):
                    continue
                node = ck
                for key in path:
                    node = node[key]
                assert loading.agrees(value, node.read()), path
                assert tuple(map(str, node.key)) == path
                assert ck['/'.join(path)].name == node.name == ck[node.name].name
                if isinstance(value, np.ndarray):
                    assert node.shape == value.shape and node.dtype == value.dtype and node.nbytes == value.nbytes
                    assert expect.same_bits(np.asarray(node), value)


def test_a_leaf_of_an_unknown_type_is_its_files(cases):
    case = cases('custom-handler')
    with pytreefs.open(case.path) as ck:
        assert ck['my_state'].kind == 'opaque'
        for name, data in case.files.items():
            assert ck[name].read() == data
