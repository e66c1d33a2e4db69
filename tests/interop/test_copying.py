# SPDX-License-Identifier: Apache-2.0
"""Copies within a mount: cp and mv alone make the next checkpoint, and stored chunks stay as they are."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from lib import compare, expect, programs, restoring, writing
from lib.gen_matrix import bits, dtype_of, save_v0, state, values
from lib.pairs import pairs
from test_writing import commit, every_dtype, leaves, write

TESTS = pathlib.Path(__file__).resolve().parents[1]
ARRAYS = {f'a{i}': bits((40, 30 + i), dtype_of(t), i) for i, t in enumerate(
    ['float32', 'bfloat16', 'int8', 'complex64', 'float64', 'float8_e5m2', 'bool'])}

W = values((20, 30), np.float32, 1)


def shell(command, m):
    return subprocess.run(command.replace('MNT', str(m.path)), shell=True, executable='/bin/bash', capture_output=True, text=True,
                          timeout=120)


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


@pytest.mark.parametrize('first,then', [(('compression=zstd',), ('compression=none',)), ((), ('dtype=float16',)),
                                        ((), ('chunk_byte_size=500',)),
                                        (('compression=zstd:7',), ('compression=zstd:2',)), (('compression=zstd',), ('zarr=3', 'compression=none'))])
def test_other_options_encode_again(mount, root, first, then):
    """Options decide: chunks are only moved if the draft would write them in the same form."""
    tree = expect.flatten({k: v for k, v in ARRAYS.items() if v.dtype == np.float32})
    m = mount(root, *first)
    write(m, '100', tree)
    commit(m, '100')
    m.unmount()
    m = mount(root, *then)
    moved = counted(m, lambda: copy(m))
    assert moved['chunks_copied'] == 0 and moved['chunks_encoded'] > 0, moved
    with np.errstate(over='ignore'):
        want = {k: v.astype(np.float16) if 'dtype=float16' in then else v for k, v in tree.leaves.items()}
    assert not restoring.by_orbax(root, 101, expect.Tree(want, tree.kinds), ('v0',))


@pytest.mark.parametrize('first', [('compression=none',), ('compression=none', 'zarr=3'), ('compression=none', 'ocdbt=off')],
                         ids=','.join)
def test_chunks_without_compression_move_too(mount, root, first):
    """Where nobody asks for compression: into a draft of default compression."""
    tree = expect.flatten(ARRAYS)
    m = mount(root, *first)
    write(m, '100', tree)
    commit(m, '100')
    m.unmount()
    m = mount(root, *first[1:])
    moved = counted(m, lambda: copy(m))
    assert moved['chunks_decoded'] == moved['chunks_encoded'] == 0 and moved['chunks_copied'] >= len(ARRAYS), moved
    assert not restoring.by_orbax(root, 101, tree, ('v0', 'v1'))


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


def test_the_copy_of_the_tour(mount, tmp_path):
    """docs/tour.md is right about a copy of the sample: arrays are moved, and only numbers are decoded."""
    shutil.copytree(TESTS / 'data/sample', tmp_path / 'ckpts')
    m = mount(tmp_path / 'ckpts')

    def next_step():
        assert not shell('mkdir MNT/1001.tmp && cp -r MNT/1000/state MNT/1001.tmp/ && '
                         'echo 1001 > MNT/1001.tmp/state/step.json && mv MNT/1001.tmp MNT/1001', m).stderr
    moved = counted(m, next_step)
    said, = re.findall(r'^  "chunks_copied": (\d+),$', (TESTS.parent / 'docs/tour.md').read_text(), re.M)
    numbers = len(list((m / '1000/state').rglob('*.json')))
    assert moved['chunks_copied'] == int(said)
    # A program that opens one leaf after another may have the next ones decoded ahead; to decode for the copy would be all.
    assert numbers <= moved['chunks_decoded'] < numbers + moved['chunks_copied'] / 4


def test_a_step_that_shares_most_leaves(mount, root):
    """The next checkpoint costs what its new leaves cost."""
    m = mount(root)
    write(m, '100', expect.flatten(ARRAYS))
    commit(m, '100')
    with np.errstate(invalid='ignore'):
        changed = ARRAYS['a0'] + 1

    def next_step():
        assert not shell('mkdir MNT/101.tmp && cp -r MNT/100/default MNT/101.tmp/', m).stderr
        np.save(m / '101.tmp/default/a0.npy', changed)
        np.save(m / '101.tmp/default/new.npy', ARRAYS['a0'])
        os.rename(m / '101.tmp', m / '101')
    moved = counted(m, next_step)
    assert moved == {'chunks_decoded': 0, 'chunks_encoded': 2, 'chunks_copied': len(ARRAYS)}
    tree = expect.flatten({**ARRAYS, 'a0': changed, 'new': ARRAYS['a0']})
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


def trees():
    numbers = {'np_' + t: dtype_of(t).type(1) for t in ('int8', 'uint16', 'int32', 'float16', 'float32', 'complex64')}
    return {'leaves': leaves(), 'dtypes': every_dtype(), 'numbers': expect.flatten({**numbers, 'n': 1, 'x': 0.5})}


@pytest.mark.parametrize('name, with_what', pairs(['leaves', 'dtypes', 'numbers'], ['cp -r', 'cp -a']))
def test_a_round_trip_without_python(mount, root, name, with_what):
    """cp and mv: every leaf equal, lists and tuples too; diff -r finds the two times of the step, nothing else."""
    tree = trees()[name]
    m = mount(root)
    write(m, '100', tree)
    commit(m, '100')
    r = shell(f'mkdir MNT/101.tmp && {with_what} MNT/100/default MNT/101.tmp/ && mv MNT/101.tmp MNT/101', m)
    assert r.returncode == 0 and not r.stderr, r.stderr
    found = shell('diff -rq MNT/100 MNT/101', m).stdout.splitlines()
    assert found == [f'Files {m.path}/100/_CHECKPOINT_METADATA and {m.path}/101/_CHECKPOINT_METADATA differ']
    a, b = (json.loads((root / s / '_CHECKPOINT_METADATA').read_text()) for s in ('100', '101'))
    assert {k for k in a if a[k] != b[k]} == {'init_timestamp_nsecs', 'commit_timestamp_nsecs'}
    assert not restoring.by_orbax(root, 101, tree, ('v0', 'v0-target', 'v1'))
    assert not list(restoring.by_tensorstore(root / '101/default', tree))


def test_a_tree_of_orbax_round_trips(mount, root):
    """A tree that Orbax saved, copied with cp -r: lists, numbers and strings restore as from the original."""
    tree = {**{k: v for k, v in state().items() if k != 'params'}, 'w': values((5,), np.float32, 1)}
    (root / '100').mkdir()
    save_v0(root / '100/default', tree)
    m = mount(root)
    copy(m)
    assert not restoring.by_orbax(root, 101, expect.flatten(tree), ('v0', 'v1'))
    for tree_path, value, _ in compare.leaf_paths(m / '101/default', expect.flatten(tree)):
        assert not list(compare.check_leaf(tree_path, value))


def test_a_copied_document_decides_little(mount, root):
    """_METADATA of another tree, or none at all: names, contents and xattrs decide."""
    m = mount(root)
    write(m, '1', expect.flatten({'l': [1, 2, 3], 'd': {'0': 1, '1': 2}}))
    commit(m, '1')
    lists = (m / '1/default/_METADATA').read_bytes()
    for step, text in (('2', lists), ('3', lists[:-20]), ('4', b'no JSON'), ('5', b''), ('6', b'[' * 100000)):
        where = write(m, step, expect.flatten({'l': {'0': 1, '2': 3}, 'd': {'0': 1}, 'o': {'0': 1}}))
        (where / '_METADATA').write_bytes(text)
        (where.parent / '_CHECKPOINT_METADATA').write_bytes(text)
        (where / 'l/0.json').write_text('1')         # as it is written, but only until something changes
        assert json.loads((where / '_METADATA').read_text())['tree_metadata']
        commit(m, step)
        assert restoring.v0_pytree(root, step, None) == {'l': {'0': 1, '2': 3}, 'd': {'0': 1}, 'o': {'0': 1}}


@pytest.mark.parametrize('size, command', pairs([10, 200_000], ['cp -r', 'cp -a', 'rsync -a']))
def test_custom_metadata_of_a_step_is_copied(mount, root, command, size):
    """By the copied file where no xattr says it: without any, or when it is longer than an xattr can be."""
    custom = {'note': 'x' * size, 'n': [1, 2.5, None]}
    m = mount(root)
    writing.set_xattrs(write(m, '100', expect.flatten({'a': 1})).parent, {'custom_metadata': {'a': 1}})
    commit(m, '100')
    m.unmount()
    file = root / '100/_CHECKPOINT_METADATA'
    file.write_text(json.dumps(json.loads(file.read_text()) | {'custom_metadata': custom}))
    m = mount(root, allow_errors=True)
    shell(f'mkdir MNT/101.tmp MNT/102.tmp; {command} MNT/100/. MNT/101.tmp/; {command} MNT/100/. MNT/102.tmp/', m)
    writing.set_xattrs(m / '102.tmp', {'custom_metadata': {'other': 1}})
    for step, want in (('101', custom), ('102', {'other': 1})):
        commit(m, step)
        assert json.loads((root / step / '_CHECKPOINT_METADATA').read_text())['custom_metadata'] == want


@pytest.mark.parametrize('command', ['cp -r', 'cp -a', 'rsync -a'])
def test_shortened_names_are_copied(mount, root, command):
    """Their keys are in the copied _METADATA where no xattr has them: of leaves, and of directories above them."""
    tree = expect.flatten({'k' * 300: np.arange(3), 'l' * 300: {'m' * 300: 'text', 'n/' * 150: 5, 'o': 1}, 'p' * 300: [1, 2]})
    m = mount(root, allow_errors=True)
    write(m, '100', tree)
    commit(m, '100')
    r = shell(f'mkdir MNT/101.tmp && {command} MNT/100/default MNT/101.tmp/ && mv MNT/101.tmp MNT/101', m)
    assert r.returncode == 0 and not r.stderr, r.stderr
    assert not restoring.by_orbax(root, 101, tree, ('v0', 'v1'))


def test_a_leaf_that_is_written_over_a_copy(mount, root):
    """Properties that a copy keeps from its source end when its contents are overwritten."""
    m = mount(root)
    tree = expect.flatten({'n': np.int8(3), 'v': bits((8,), dtype_of('float8_e5m2'), 1)})
    write(m, '100', tree)
    commit(m, '100')
    where = m / '101.tmp'
    where.mkdir()
    shell('cp -r MNT/100/default MNT/101.tmp/', m)
    (where / 'default/n.json').write_text('300')
    np.save(where / 'default/v.npy', np.arange(3))
    commit(m, '101')
    got = restoring.v0_pytree(root, '101', None)
    assert got['n'] == 300 and got['v'].dtype == np.int64


@pytest.mark.parametrize('name', ['a@b', 'a[0:1]', '50%', 'a%41', 'model.npy', 'latest', 'q.safetensors'])
def test_items_keep_their_names(mount, program, root, name):
    """An item is called what its directory is called, whatever that would mean in a key; as Orbax saved it, so it is copied."""
    tree = {'w': values((8, 4), np.float32, 1), 'n': 7}
    (root / '100').mkdir()
    save_v0(root / '100/plain', tree)
    (root / '100/plain').rename(root / '100' / name)
    m = mount(root)
    r = shell('cp -a MNT/100 MNT/101.tmp && mv MNT/101.tmp MNT/101', m)
    assert r.returncode == 0 and not r.stderr, r.stderr
    assert sorted(os.listdir(m / '101')) == sorted(['_CHECKPOINT_METADATA', name])
    r = subprocess.run([program, 'convert', str(root / '101'), str(root / '102')], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    for step in ('101', '102'):
        assert not restoring.by_orbax(root, step, expect.flatten(tree), ('v0', 'v1'), item=name)


def saved_keys(root):
    """A step with random keys as Orbax's handlers of them save them: items inside items."""
    keys = {'jax': jax.random.key(5), 'raw': jax.random.PRNGKey(6), 'numpy': np.random.RandomState(3).get_state()}
    save, items = restoring.ocp0.args, {'state': restoring.ocp0.args.PyTreeSave({'w': values((4,), np.float32, 1)})}
    for name, key in keys.items():
        items[name] = save.NumpyRandomKeySave(key) if name == 'numpy' else save.JaxRandomKeySave(key)
    with restoring.ocp0.CheckpointManager(root) as manager:
        manager.save(100, args=save.Composite(**items))
    return keys


def restored_keys(root, step):
    args = restoring.ocp0.args
    with restoring.ocp0.CheckpointManager(root) as manager:
        bare = manager.restore(int(step))
        told = manager.restore(int(step), args=args.Composite(jax=args.JaxRandomKeyRestore(), raw=args.JaxRandomKeyRestore(),
                                                              numpy=args.NumpyRandomKeyRestore()))
    return [dict(told.items()), {k: v for k, v in bare.items() if k != 'state'}]


def same_key(a, b):
    if isinstance(a, tuple):
        return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b))
    return a.dtype == b.dtype and np.array_equal(jax.random.key_data(a), jax.random.key_data(b))


COPIES = {'cp -a': 'cp -a MNT/100 MNT/101.tmp', 'cp -r': 'cp -r MNT/100 MNT/101.tmp',
          'rsync': 'mkdir MNT/101.tmp && rsync -aX MNT/100/ MNT/101.tmp/'}


@pytest.mark.parametrize('how, options', pairs([*COPIES, 'convert'], [(), ('ocdbt=off', 'zarr=3')]))
def test_random_keys_are_copied(mount, program, root, how, options):
    """Items of random keys come with their step, and Orbax restores them as what they are, with and without being told."""
    keys = saved_keys(root)
    m = mount(root, *options)
    if how == 'convert':
        r = subprocess.run([program, 'convert', *(['-o', ','.join(options)] if options else []), str(root / '100'),
                            str(root / '101')], capture_output=True, text=True)
    else:
        r = shell(COPIES[how], m)
        assert sorted(json.loads((m / '101.tmp/_CHECKPOINT_METADATA').read_text())['item_handlers']) == sorted([*keys, 'state'])
        r = r if r.returncode else shell('mv MNT/101.tmp MNT/101', m)
    assert r.returncode == 0 and not r.stderr, r.stderr
    for got in restored_keys(root, '101'):
        assert got.keys() == keys.keys() and all(same_key(keys[k], got[k]) for k in keys), got
    r = subprocess.run([program, 'verify', str(root / '101')], capture_output=True, text=True)
    assert r.returncode == 0, r.stdout


def test_a_tree_with_keys_of_these_names_stays_one(mount, root):
    """The directory beside the key has leaves: this is not an item inside another."""
    tree = expect.flatten({'jax_random_key': {'w': values((4,), np.float32, 1)}, 'jax_random_key_metadata': {'n': 3}})
    m = mount(root)
    write(m, '100', tree)
    commit(m, '100')
    assert not restoring.by_orbax(root, 100, tree, ('v0', 'v1'))


@pytest.mark.parametrize('fault', ['rename:eio', 'syncdir:eio'])
def test_random_keys_after_a_failed_commit(mount, root, fault):
    """Files that the failed commit put beside the arrays of the key are not an item of the step."""
    keys = saved_keys(root)
    failed = 0
    for n in range(1, 14):
        m = mount(root, f'io=fault({fault}:{n}):sync', allow_errors=True)
        if shell(f'mkdir MNT/{n}.tmp && cp -r MNT/100/jax MNT/100/state MNT/{n}.tmp', m).returncode:
            m.unmount()     # so early was the fault
            continue
        if shell(f'mv -T MNT/{n}.tmp MNT/{n}', m).returncode:
            failed += 1
            r = shell(f'mv MNT/{n}.tmp/jax MNT/{n}.tmp/key && mv -T MNT/{n}.tmp MNT/{n}', m)
            assert r.returncode == 0, r.stderr
            assert sorted(os.listdir(m / str(n))) == ['_CHECKPOINT_METADATA', 'key', 'state']
        item = 'key' if (m / str(n) / 'key').exists() else 'jax'
        m.unmount()
        with restoring.ocp0.CheckpointManager(root) as manager:
            assert same_key(keys['jax'], manager.restore(n)[item])
    assert failed > 2


def test_a_single_array_stays_one(mount, program, root):
    """An item of ArraySave looks like a tree of one leaf: only the step's file distinguishes them, and it is copied, too."""
    array = np.arange(6.0)
    with ocp.CheckpointManager(root) as manager:
        manager.save(100, args=ocp.args.Composite(a=ocp.args.ArraySave(array),
                                                  t=ocp.args.PyTreeSave({'checkpoint': array})))
        manager.wait_until_finished()
    m = mount(root)
    r = shell('cp -r MNT/100 MNT/101.tmp && mv MNT/101.tmp MNT/101', m)
    assert r.returncode == 0 and not r.stderr, r.stderr
    subprocess.run([program, 'convert', root / '100', root / '102'], check=True)
    for step in (101, 102):
        with ocp.CheckpointManager(root) as manager:
            got = manager.restore(step)
        assert np.array_equal(got['a'], array) and np.array_equal(got['t']['checkpoint'], array)


def attrs(path):
    return {name: json.loads(os.getxattr(path, f'user.pytree.{name}')) for name in ('dtype', 'shape')}


def test_copies_of_views_with_their_attributes(mount, root):
    """dtype and shape are those of the file that is read: cp -a of a cast, a box or a shape makes a leaf of it."""
    w = values((64, 48), np.float32, 1)
    m = mount(root)
    write(m, '100', expect.flatten({'w': w.astype(dtype_of('bfloat16'))}))
    commit(m, '100')
    d = m / '100/default'
    assert attrs(d / 'w.npy') == {'dtype': 'bfloat16', 'shape': [64, 48]}
    assert attrs(d / 'w[0:2,3]@float32.npy') == {'dtype': 'float32', 'shape': [2]}
    assert attrs(d / 'w@70x50.bin') == {'dtype': 'bfloat16', 'shape': [70, 50]}
    assert attrs(d / 'w@32x40.bin') == {'dtype': 'bfloat16', 'shape': [32, 40]}
    assert not (d / 'w@32x50.bin').exists()     # cuts one axis and pads the other: only with pad_truncate
    assert json.loads(os.getxattr(d / 'w[0:2].npy', 'user.pytree.chunks')) == [64, 48]     # of what is stored
    want = w.astype(dtype_of('bfloat16'))
    r = shell('mkdir -p MNT/101.tmp/default && cd MNT/100/default && cp -a w@float32.npy MNT/101.tmp/default/a.npy && '
              'cp -a "w[0:2]@float16@8x48.npy" MNT/101.tmp/default/b.npy && mv MNT/101.tmp MNT/101', m)
    assert r.returncode == 0 and not r.stderr, r.stderr
    tree = expect.flatten({'a': want.astype(np.float32), 'b': want[:2].astype(np.float16)})
    assert not restoring.by_orbax(root, 101, tree, ('v0', 'v1'))


def test_copies_under_restore_dtype(mount, program, root):
    """Arrays that the mount shows as float16 are copied as float16, numbers and random keys of the tree unchanged; the tools agree."""
    tree = {'w': values((8, 4), np.float32, 1), 'f8': np.ones(6, dtype_of('float8_e5m2')), 'n': 7,
            'key': jax.random.key(3)}
    (root / '100').mkdir()
    save_v0(root / '100/default', tree)
    m = mount(root, 'restore_dtype=float16')
    assert attrs(m / '100/default/w.npy') == {'dtype': 'float16', 'shape': [8, 4]}
    r = shell('mkdir MNT/101.tmp && cp -a MNT/100/default MNT/101.tmp/ && mv MNT/101.tmp MNT/101', m)
    assert r.returncode == 0 and not r.stderr, r.stderr
    cast = expect.flatten({'w': tree['w'].astype(np.float16), 'f8': tree['f8'].astype(np.float16), 'n': 7, 'key': tree['key']})
    assert not restoring.by_orbax(root, 101, cast, ('v0', 'v1'))
    ls = subprocess.run([program, 'ls', '-l', str(root / '100/default/w[0:2]@int8.npy')], capture_output=True, text=True)
    assert 'int8[2,4]' in ls.stdout, ls


@pytest.mark.parametrize('how', ['-a', '-aX'])
def test_rsync_of_names_with_escapes(mount, root, how):
    """rsync puts a dot before and six letters after a name: no key is spelled so, and none is meant."""
    w = values((4, 3), np.float32, 1)
    tree = expect.flatten({k: w + i for i, k in enumerate(
        ['..', '.', '%', 'a/b', 'x[0]', '@', '.hidden', '..a', 'json.', 'ä' * 60, '/' * 70, 'w'])})
    m = mount(root)
    write(m, '100', tree)
    commit(m, '100')
    r = shell(f'mkdir MNT/101.tmp && rsync {how} MNT/100/ MNT/101.tmp/', m)
    assert r.returncode == 0 and not r.stderr, r.stderr
    # Parts of an array, too.
    for name, part in (('..[0:2,0:3]@4x3.npy', w[:2]), ('..[2:4,0:3]@4x3.npy', w[2:])):
        np.save(root.parent / name.replace('..[', '%2E%2E['), part)
    r = shell(f'mkdir -p MNT/101.tmp/parts && rsync {how} {root.parent}/*.npy MNT/101.tmp/parts/ && mv MNT/101.tmp MNT/101', m)
    assert r.returncode == 0 and not r.stderr, r.stderr
    assert not restoring.by_orbax(root, 101, tree, ('v0', 'v1'))
    assert not restoring.by_orbax(root, 101, expect.flatten({'..': w}), ('v0',), 'parts')


@pytest.mark.parametrize('options', [(), ('ocdbt=off',), ('ocdbt=off', 'zarr=3')])
def test_a_backup_of_the_stored_form_restores_whatever_leaves_are_called(mount, root, tmp_path, options):
    """Names of leaves that would be a temporary directory's beside steps, or a hidden file of a tree."""
    m = mount(root, *options)
    names = ['x.orbax-checkpoint-tmp', 'x.orbax-checkpoint-tmp-1700000000', '7.tmp', '.5.pytreefs-draft', 'latest', 'd', 'w']
    tree = expect.flatten({name: W + i for i, name in enumerate(names)} | {'in.orbax-checkpoint-tmp': {'deep': W}})
    write(m, '7', tree)
    commit(m, '7')
    (tmp_path / 'backup').mkdir()
    r = shell(f'cp -r MNT/.pytreefs/stored/7 {tmp_path}/backup/', m)
    assert r.returncode == 0 and not r.stderr, r.stderr
    assert not shell(f'diff -r {root}/7 {tmp_path}/backup/7', m).stdout
    assert not restoring.by_orbax(tmp_path / 'backup', 7, tree, ('v0', 'manager', 'v1'))


CARRIED = {'rsync': 'rsync -aX MNT/100/ MNT/101.tmp/', 'cp': 'cp -a MNT/100/. MNT/101.tmp/',
           'tar': 'tar --xattrs --xattrs-include="user.*" -C MNT/100 -cf - . | tar --xattrs --xattrs-include="user.*" -C MNT/101.tmp -xf -'}


@pytest.mark.parametrize('by, options', pairs(list(CARRIED), [(), ('ocdbt=off', 'zarr=3'), ('rich_types=on',), ('leaf_type=jax.Array',)]))
def test_every_attribute_that_is_shown_is_accepted_when_it_comes_back(mount, root, by, options):
    """By the programs that carry attributes, and each by itself on its copy."""
    m = mount(root, *options)
    tree = leaves()
    write(m, '100', tree)
    (m / '100.tmp/metrics.json').write_text('{"loss": 0.5}')
    os.setxattr(m / '100.tmp/default', 'user.pytree.custom_metadata', b'{"a": [1, "b"]}')
    commit(m, '100')
    (m / '101.tmp').mkdir()
    r = shell('set -o pipefail; ' + CARRIED[by], m)
    assert r.returncode == 0 and not r.stderr, r.stderr
    shown = 0
    for path in [m / '100', *(m / '100').rglob('*')]:
        copied = m / '101.tmp' / path.relative_to(m / '100')
        for name in os.listxattr(path):
            os.setxattr(copied, name, os.getxattr(path, name))
            shown += 1
    assert shown > 200
    commit(m, '101')
    assert not restoring.by_orbax(root, 101, tree, ('v0', 'v1'))
    for path in (m / '100').rglob('*'):
        copied = m / '101' / path.relative_to(m / '100')
        assert set(os.listxattr(path)) == set(os.listxattr(copied)), path


def recorded(item):
    """The record of every array in Orbax's documents: {key path: (value type, write shape, has metadata of an array)}."""
    document = json.loads((item / '_METADATA').read_text())['tree_metadata']
    files = [json.loads(f.read_text()) for f in (item / 'array_metadatas').glob('process_*')]
    described = {m['array_metadata']['param_name'] for f in files for m in f['array_metadatas']}
    found = {}
    for entry in document.values():
        keys = tuple(k['key'] for k in entry['key_metadata'])
        value = entry['value_metadata']
        found[keys] = value['value_type'], tuple(value.get('write_shape') or ()), '.'.join(keys) in described
    return found


@pytest.mark.parametrize('by', [*CARRIED, 'cp -r'])
def test_a_copy_of_what_orbax_wrote_keeps_what_arrays_are(mount, root, by):
    """jax.Array and np.ndarray, by the attributes, and within a mount also without them."""
    tree = {'jax': jax.numpy.asarray(W), 'numpy': W, 'n': 7, 's': 'x', 'none': None, 'list': [jax.numpy.zeros(3), np.zeros(4)],
            'scalar': jax.numpy.float32(1.5)}
    save_v0(root / '100/default', tree)
    m = mount(root)
    (m / '101.tmp').mkdir()
    r = shell('set -o pipefail; ' + CARRIED.get(by, 'cp -r MNT/100/default MNT/101.tmp/'), m)
    assert r.returncode == 0 and not r.stderr, r.stderr
    commit(m, '101')
    before = recorded(root / '100/default')
    assert {v[0] for v in before.values()} >= {'jax.Array', 'np.ndarray', 'scalar'} and any(v[2] for v in before.values())
    assert recorded(root / '101/default') == before
    assert not restoring.by_orbax(root, 101, expect.flatten(tree), ('v0', 'v1'))


def test_the_type_of_an_array_can_be_set(mount, root):
    m = mount(root, allow_errors=True)
    (m / '1.tmp/default').mkdir(parents=True)
    for name in ('a', 'b', 'c'):
        np.save(m / f'1.tmp/default/{name}.npy', W)
    os.setxattr(m / '1.tmp/default/a.npy', 'user.pytree.typestr', b'jax.Array')
    os.setxattr(m / '1.tmp/default/b.npy', 'user.pytree.typestr', b'"jax.Array"')
    os.setxattr(m / '1.tmp/default/b.npy', 'user.pytree.save.leaf_type', b'np.ndarray')
    with pytest.raises(OSError, match='Invalid argument'):
        os.setxattr(m / '1.tmp/default/c.npy', 'user.pytree.typestr', b'"scalar"')
    assert any("jax.Array or np.ndarray, not 'scalar'" in line for line in m.log_lines())
    assert os.getxattr(m / '1.tmp/default/a.npy', 'user.pytree.typestr') == b'jax.Array'
    commit(m, '1')
    assert {k[0]: v[0] for k, v in recorded(root / '1/default').items()} == {'a': 'jax.Array', 'b': 'np.ndarray', 'c': 'np.ndarray'}


COPIES_OF_A_TREE = ['cp -r 7/. 8.tmp/', 'cp -a 7/. 8.tmp/', 'rsync -aX 7/ 8.tmp/', 'tar -c -C 7 . | tar -x -C 8.tmp']


@pytest.mark.parametrize('documents, command, ocdbt', pairs(
    ['both', 'no _CHECKPOINT_METADATA', 'none'],
    list(COPIES_OF_A_TREE),
    [True, False]))
def test_a_step_that_is_a_tree_is_copied_as_one(mount, root, ocdbt, command, documents):
    """Also where files tell of it only by their contents, or, to cp, by where they come from."""
    tree = {'params': {'w': W, 'b': np.arange(3)}, 'opt': [np.ones(2), np.zeros(3)], 'x': np.arange(4)}
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt)).save(root / '7', ocp.args.PyTreeSave(tree))
    for name in {'both': [], 'none': ['_METADATA', '_CHECKPOINT_METADATA']}.get(documents, ['_CHECKPOINT_METADATA']):
        (root / '7' / name).unlink()
    m = mount(root, 'ocdbt=on' if ocdbt else 'ocdbt=off', allow_errors=True)
    (m / '8.tmp').mkdir()
    subprocess.run(command, shell=True, cwd=m.path, check=True, capture_output=True)
    if documents == 'none' and not command.startswith('cp'):
        with pytest.raises(OSError):                    # nothing says that it is not a step of items
            os.rename(m / '8.tmp', m / '8')
        return
    commit(m, '8')
    assert not [p for p in (root / '8').rglob('*') if 'pytreefs' in p.name]
    assert not (root / '8/params').exists() and not (root / '8/opt').exists()
    got = ocp.PyTreeCheckpointer().restore(root / '8')
    assert jax.tree.structure(got) == jax.tree.structure(tree if documents != 'none' else {**tree, 'opt': {'0': 0, '1': 1}})
    assert all(expect.same_bits(a, b) for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(tree)))


def test_a_checkpoint_of_files_alone_is_copied_as_one(mount, root):
    with ocp.Checkpointer(ocp.JsonCheckpointHandler()) as checkpointer:
        checkpointer.save(root / '7', args=ocp.args.JsonSave({'a': 1}))
        m = mount(root)
        subprocess.run(['cp', '-r', m / '7', m / '8.tmp'], check=True)
        commit(m, '8')
        assert checkpointer.restore(root / '8') == {'a': 1}
