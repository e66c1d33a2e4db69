"""Copies within a mount: cp and mv alone make the next checkpoint, and stored chunks stay as they are."""

import json
import os
import subprocess

import numpy as np
import pytest

from lib import compare, expect, programs, restoring
from lib.gen_matrix import bits, dtype_of, save_v0, state, values
from test_writing import commit, leaves, without, write

ARRAYS = {f'a{i}': bits((40, 30 + i), dtype_of(t), i) for i, t in enumerate(
    ['float32', 'bfloat16', 'int8', 'complex64', 'float64', 'float8_e5m2', 'bool'])}


@pytest.fixture
def root(tmp_path):
    path = tmp_path / 'root'
    path.mkdir()
    return path


def shell(command, m):
    return subprocess.run(command.replace('MNT', str(m.path)), shell=True, capture_output=True, text=True, timeout=120)


def counted(m, do):
    before = m.stats()
    do()
    after = m.stats()
    return {k: after[k] - before[k] for k in ('chunks_decoded', 'chunks_encoded', 'chunks_copied')}


def copy(m, name='101', source='100/default'):
    r = shell(f'mkdir MNT/{name}.tmp && cp -r MNT/{source} MNT/{name}.tmp/ && mv MNT/{name}.tmp MNT/{name}', m)
    assert r.returncode == 0 and not r.stderr, r.stderr
    return m / name


@pytest.mark.parametrize('options', [(), ('zarr=3',), ('ocdbt=off',), ('ocdbt=off', 'zarr=3', 'compression=none'),
                                     ('chunk_byte_size=500',), ('compression=zstd:7',)])
def test_nothing_is_decoded(mount, root, options):
    """The counters show it, for every layout; the copy restores equal."""
    m = mount(root, *options)
    tree = expect.flatten(ARRAYS)
    write(m, '100', tree)
    commit(m, '100')
    moved = counted(m, lambda: copy(m))
    assert moved['chunks_decoded'] == moved['chunks_encoded'] == 0 and moved['chunks_copied'] >= len(ARRAYS)
    assert not restoring.by_orbax(root, 101, tree, ('v0', 'v1'))
    assert not list(restoring.by_tensorstore(root / '101/default', tree, 'ocdbt=off' not in options, 'zarr=3' in options))


@pytest.mark.parametrize('first,then', [((), ('compression=none',)), ((), ('dtype=float16',)),
                                        ((), ('chunk_byte_size=500',)), (('compression=none',), ()),
                                        (('compression=zstd:7',), ('compression=zstd:2',)), ((), ('zarr=3', 'compression=none'))])
def test_other_options_encode_again(mount, root, first, then):
    """What is asked for counts: chunks are only kept when they are what the draft would write."""
    tree = expect.flatten({k: v for k, v in ARRAYS.items() if v.dtype == np.float32})
    m = mount(root, *first)
    write(m, '100', tree)
    commit(m, '100')
    m.unmount()
    m = mount(root, *then)
    moved = counted(m, lambda: copy(m))
    assert moved['chunks_copied'] == 0 and moved['chunks_encoded'] > 0, moved
    want = {k: v.astype(np.float16) if 'dtype=float16' in then else v for k, v in tree.leaves.items()}
    assert not restoring.by_orbax(root, 101, expect.Tree(want, tree.kinds), ('v0',))


@pytest.mark.parametrize('first,then', [(2, 3), (3, 2)])
def test_the_other_version_of_zarr(mount, root, first, then):
    """The chunk of one version may do for the other; the documents are the draft's."""
    tree = expect.flatten(ARRAYS)
    m = mount(root, f'zarr={first}')
    write(m, '100', tree)
    commit(m, '100')
    m.unmount()
    copy(mount(root, f'zarr={then}'))
    assert not restoring.by_orbax(root, 101, tree, ('v0', 'v1'))
    assert not list(restoring.by_tensorstore(root / '101/default', tree, True, then == 3))


def test_chunks_of_orbax_are_kept(mount, root):
    """Arrays that Orbax wrote are copied with its chunks."""
    tree = {'w': values((64, 64), np.float32, 1), 'b': values((64,), np.float64, 2)}
    (root / '100').mkdir()
    save_v0(root / '100/default', tree)
    m = mount(root)
    moved = counted(m, lambda: copy(m))
    assert moved == {'chunks_decoded': 0, 'chunks_encoded': 0, 'chunks_copied': 2}
    assert not restoring.by_orbax(root, 101, expect.flatten(tree), ('v0', 'standard', 'manager', 'v1'))


def test_a_step_that_shares_most_leaves(mount, root):
    """The next checkpoint costs what its new leaves cost."""
    m = mount(root)
    write(m, '100', expect.flatten(ARRAYS))
    commit(m, '100')

    def next_step():
        assert not shell('mkdir MNT/101.tmp && cp -r MNT/100/default MNT/101.tmp/', m).stderr
        np.save(m / '101.tmp/default/a0.npy', ARRAYS['a0'] + 1)
        np.save(m / '101.tmp/default/new.npy', ARRAYS['a0'])
        os.rename(m / '101.tmp', m / '101')
    moved = counted(m, next_step)
    assert moved == {'chunks_decoded': 0, 'chunks_encoded': 2, 'chunks_copied': len(ARRAYS)}
    tree = expect.flatten({**ARRAYS, 'a0': ARRAYS['a0'] + 1, 'new': ARRAYS['a0']})
    assert not restoring.by_orbax(root, 101, tree, ('v0',))


def test_a_copy_can_be_written_over(mount, root):
    """A copied leaf is a leaf like any other: changed in place, truncated, renamed."""
    m = mount(root)
    w = values((300, 50), np.float32, 1)
    write(m, '100', expect.flatten({'w': w, 'v': w}))
    commit(m, '100')
    assert not shell('mkdir MNT/101.tmp && cp -r MNT/100/default MNT/101.tmp/', m).stderr
    changed = w.copy()
    changed[7, 3] = 42
    with open(m / '101.tmp/default/w.npy', 'r+b') as f:
        f.seek(128 + (7 * 50 + 3) * 4)
        f.write(np.float32(42).tobytes())
    os.rename(m / '101.tmp/default/v.npy', m / '101.tmp/default/u.npy')
    os.rename(m / '101.tmp', m / '101')
    assert not restoring.by_orbax(root, 101, expect.flatten({'w': changed, 'u': w}), ('v0', 'v1'))
    assert not restoring.by_orbax(root, 100, expect.flatten({'w': w, 'v': w}), ('v0',))
