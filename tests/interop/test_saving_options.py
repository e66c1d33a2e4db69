# SPDX-License-Identifier: Apache-2.0
"""Options of saving: what is stored is what Orbax stores when it is asked for the same."""

import json
import os
import pathlib
import shutil
import tempfile

from lib import jaxenv  # noqa: F401  before jax

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp0
import pytest
import tensorstore as ts
from orbax.checkpoint import type_handlers
from orbax.checkpoint._src.metadata import array_metadata_store

from lib import expect, gen_matrix, programs, restoring, writing
from lib.gen_matrix import values
from lib.pairs import LONG, pairs
from test_writing import commit, leaves, write


@pytest.fixture
def root(tmp_path):
    """In memory where there is enough: thousands of small files are synced here, and nothing is said about that."""
    memory = pathlib.Path('/dev/shm')
    enough = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 1 << 30
    path = pathlib.Path(tempfile.mkdtemp(prefix='root-', dir=memory if enough else tmp_path))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.feature('B4')
@pytest.mark.feature('D5')
@pytest.mark.parametrize('ocdbt, zarr, compression, limit', pairs(['on', 'off'], [2, 3], ['zstd', 'none'], [None, 300]))
def test_every_combination_restores(mount, root, ocdbt, zarr, compression, limit):
    """B4, D5: database or directories x version of zarr x compression x grid."""
    options = [f'ocdbt={ocdbt}', f'zarr={zarr}', f'compression={compression}']
    m = mount(root, *options, *([f'chunk_byte_size={limit}'] if limit else []))
    tree = leaves()
    write(m, '7', tree)
    commit(m, '7')
    assert (root / '7/default/manifest.ocdbt').exists() == (ocdbt == 'on')
    assert not restoring.by_orbax(root, 7, tree, rich=False)
    assert not list(restoring.by_tensorstore(root / '7/default', tree, ocdbt == 'on', zarr == 3))
    # A reader that is not Orbax finds the chunks that were asked for.
    shape = restoring.chunk_shape(root / '7/default', 'params.cube', ocdbt == 'on', zarr == 3)
    assert (int(np.prod(shape)) * 8 <= limit) if limit else shape == [7, 5, 3]


# ---- side by side with Orbax ----

def stored(item, ocdbt):
    """{key: bytes} of everything that describes an item's arrays."""
    spec = {'driver': 'ocdbt', 'base': f'file://{item}/'} if ocdbt else {'driver': 'file', 'path': f'{item}/'}
    kv = ts.KvStore.open(spec).result()
    keys = [k for k in kv.list().result() if k.rsplit(b'/', 1)[-1] in (b'.zarray', b'zarr.json')]
    return {k.decode(): json.loads(kv.read(k).result().value) for k in keys}


def chunk_keys(item, ocdbt):
    """Keys of all chunks."""
    if ocdbt:
        listed = ts.KvStore.open({'driver': 'ocdbt', 'base': f'file://{item}/'}).result().list().result()
        keys = [k.decode() for k in listed]
    else:
        keys = [str(p.relative_to(item)) for p in item.rglob('*') if p.is_file() and p.parent.name != '.crc32c']
    own = ('.zarray', 'zarr.json', '_METADATA', 'commit_success.txt', 'process_0', '_sharding', '_CHECKPOINT_METADATA')
    return sorted(k for k in keys if k.rsplit('/')[-1] not in own)


def document(path):
    return json.loads(pathlib.Path(path).read_text())


def written_and_saved(mount, root, tree, options, save_args, handler, xattrs=None):
    """The same tree by the mount (step 1) and by Orbax (step 2). xattrs: of directories."""
    m = mount(root, 'compression=zstd', *options)
    where = m / '1.tmp/default'
    where.mkdir(parents=True)
    for name, value in (xattrs or {}).items():
        (where / name).mkdir()
        writing.set_xattrs(where / name, value)
    programs.np_save(expect.flatten(tree), where)
    commit(m, '1')
    checkpointer = ocp0.Checkpointer(handler)
    checkpointer.save(root.resolve() / '2/default', ocp0.args.PyTreeSave(tree, save_args=save_args))
    checkpointer.close()
    return root / '1/default', root / '2/default'


# Few positions, as with some limits each is a chunk.
SHAPES = [(10,), (100,), (32, 48), (30, 7, 11), (250, 3), (3, 250), (17, 19), (2, 2, 2, 2, 2), (32, 32), (1, 50), (), (12, 5, 8), (7000,)]


LIMITS = [(64, ()), (500, ()), (4096, ()), (100000, ()), (2048, (0,)), (2048, (1,)), (2048, (1, 0))]
# Each in turn if not LONG; what limits make of all shapes and types is compared without a file in test_layout.py.
CHUNKED = [np.dtype(t) for t in (np.float32, np.uint8, np.complex128)]


@pytest.mark.feature('A3')
@pytest.mark.feature('A4')
@pytest.mark.feature('D6')
@pytest.mark.parametrize('zarr,ocdbt', [(2, True), (3, True), (2, False), (3, False)])
def test_chunk_shapes(mount, root, zarr, ocdbt):
    """A3, A4, D6: chunks are those that Orbax chooses for the same limit and axes, its metadata document too."""
    tree, args, xattrs = {}, {}, {}
    for i, (limit, axes) in enumerate(LIMITS if ocdbt else LIMITS[2:]):     # a file per chunk, each synced
        tree[str(i)] = {f'a{n}_{t.name}': np.ones(s, t) for n, s in enumerate(SHAPES) if len(s) > max(axes, default=-1)
                        for k, t in enumerate(CHUNKED) if LONG or (i + n) % 3 == k}
        args[str(i)] = jax.tree.map(lambda _: ocp0.SaveArgs(chunk_byte_size=limit, shard_axes=axes), tree[str(i)])
        xattrs[str(i)] = {'save.chunk_byte_size': limit, **({'save.shard_axes': ':'.join(map(str, axes))} if axes else {})}
    handler = ocp0.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr == 3)
    options = [f'zarr={zarr}', f'ocdbt={"on" if ocdbt else "off"}']
    ours, theirs = written_and_saved(mount, root, tree, options, args, handler, xattrs)
    want = stored(theirs, ocdbt)
    assert len(want) == sum(map(len, tree.values())) > 50
    assert stored(ours, ocdbt) == want
    assert chunk_keys(ours, ocdbt) == chunk_keys(theirs, ocdbt)


@pytest.mark.feature('A3')
@pytest.mark.parametrize('zarr, prime, longer', [(2, 127, 997), (3, 127, 997), (2, 7919, 104729), (3, 7919, 104729)])
def test_chunk_shapes_of_prime_axes(mount, root, zarr, prime, longer):
    """A3: axes that nothing or little divides are cut into single positions, or not at all, as Orbax does it."""
    shapes = [(prime,), (prime, 1), (1, prime), (prime, 6), (6, prime), (3, longer), (longer, 1, 1), (2, 2 * prime)]
    tree, args, xattrs = {}, {}, {}
    for limit in (prime * 4, prime * 4 - 1, longer * 4):
        tree[str(limit)] = {f'a{n}': values(s, np.float32, n) for n, s in enumerate(shapes) if max(s) < longer or limit >= longer * 4}
        args[str(limit)] = jax.tree.map(lambda _: ocp0.SaveArgs(chunk_byte_size=limit), tree[str(limit)])
        xattrs[str(limit)] = {'save.chunk_byte_size': limit}
    handler = ocp0.PyTreeCheckpointHandler(use_zarr3=zarr == 3)
    ours, theirs = written_and_saved(mount, root, tree, [f'zarr={zarr}'], args, handler, xattrs)
    want = stored(theirs, True)
    assert stored(ours, True) == want
    assert len(chunk_keys(ours, True)) > 4 * prime
    assert chunk_keys(ours, True) == chunk_keys(theirs, True)


TYPES = ['float32', 'bfloat16', 'float16', 'float64', 'int8', 'uint32', 'int64', 'complex64', 'bool', 'float8_e4m3fn']


TARGETS = ['float16', 'bfloat16', 'float32', 'int32', 'float64', 'uint8', 'complex64', 'bool']


@pytest.mark.feature('A2')
@pytest.mark.parametrize('how', ['xattr', 'rule'])
def test_dtypes(mount, root, how):
    """A2: arrays are cast as Orbax casts them."""
    def numbers(name, seed):
        return (values((40,), np.float32, seed) * 3).astype(gen_matrix.dtype_of(name))

    tree = {to: {t: numbers(t, i) for i, t in enumerate(TYPES)} for to in TARGETS}
    for to in TARGETS:      # what a negative or too large number gives as an integer is nobody's promise
        if gen_matrix.dtype_of(to).kind in 'iu':
            tree[to] = {k: np.abs(v) if v.dtype.kind not in 'cb' else v for k, v in tree[to].items() if k != 'uint32'}
    del tree['bool']['complex64']       # TensorStore has no such cast
    args = {to: jax.tree.map(lambda _: ocp0.SaveArgs(dtype=gen_matrix.dtype_of(to)), leaves)
            for to, leaves in tree.items()}
    options = [f'rule=default/{to}/*:dtype={to}' for to in TARGETS] if how == 'rule' else []
    xattrs = {to: {'save.dtype': to} for to in TARGETS} if how == 'xattr' else {}
    ours, theirs = written_and_saved(mount, root, tree, options, args, ocp0.PyTreeCheckpointHandler(), xattrs)
    got, want = (ocp0.PyTreeCheckpointer().restore(p) for p in (ours, theirs))
    for to, leaves in tree.items():
        for name in leaves:
            a, b = got[to][name], want[to][name]
            assert a.dtype == gen_matrix.dtype_of(to)
            assert expect.same_bits(a, b), f'{name} -> {to}: {a!r:.100}, Orbax has {b!r:.100}'


@pytest.mark.feature('A2')
def test_dtype_of_the_mount(mount, root):
    m = mount(root, 'dtype=float16')
    tree = expect.flatten({'a': values((40,), np.float32, 1), 'i': np.arange(5), 'n': 7, 'x': 0.5})
    write(m, '1', tree)
    commit(m, '1')
    got = ocp0.PyTreeCheckpointer().restore(root / '1/default')
    assert expect.same_bits(got['a'], tree.leaves[('a',)].astype(np.float16))
    # Orbax is asked leaf by leaf; what a whole mount is asked is for floating leaves.
    assert expect.same_bits(got['i'], np.arange(5)) and got['n'] == 7
    assert np.asarray(got['x']) == np.float16(0.5)


def test_the_narrowest_option_wins(mount, root):
    """Leaf over directory, the nearer directory over the farther, those over rules, later rules over earlier."""
    m = mount(root, 'dtype=float16', 'rule=default/a/*:dtype=float32', 'rule=default/a/late:dtype=float64')
    tree = expect.flatten({'top': values((4,), np.float32, 1), 'a': {
        'rule': values((4,), np.float16, 2), 'late': values((4,), np.float32, 3), 'dir': {
            'dir': values((4,), np.float32, 4), 'leaf': values((4,), np.float32, 5),
            'in': {'near': values((4,), np.float32, 6)}}}})
    where = write(m, '1', tree)
    writing.set_xattrs(where / 'a/dir', {'save.dtype': 'int32'})
    writing.set_xattrs(where / 'a/dir/in', {'save.dtype': 'int8'})
    writing.set_xattrs(where / 'a/dir/leaf.npy', {'save.dtype': 'uint16'})
    commit(m, '1')
    got = ocp0.PyTreeCheckpointer().restore(root / '1/default')
    assert {'/'.join(p): np.asarray(restored(got, p)).dtype.name for p in tree.leaves} == {
        'top': 'float16', 'a/rule': 'float32', 'a/late': 'float64', 'a/dir/dir': 'int32', 'a/dir/leaf': 'uint16',
        'a/dir/in/near': 'int8'}


def restored(tree, path):
    for key in path:
        tree = tree[key]
    return tree


@pytest.mark.feature('A11')
@pytest.mark.parametrize('zarr,ocdbt,sharding,metadata', [
    (2, True, 'on', 'on'), (3, True, 'on', 'on'), (2, False, 'on', 'on'), (2, True, 'off', 'on'), (2, True, 'on', 'off')])
def test_jax_arrays(mount, root, zarr, ocdbt, sharding, metadata):
    """A11: arrays recorded as jax.Array have the files that Orbax's ArrayHandler writes, or not, as asked."""
    host = {'w': values((8, 4), np.float32, 1), 'in': {'b': values((6,), ml_dtypes.bfloat16, 2), 'n': np.arange(5)}}
    tree = jax.tree.map(jnp.asarray, host)
    options = [f'zarr={zarr}', f'ocdbt={"on" if ocdbt else "off"}', 'compression=zstd', 'leaf_type=jax.Array',
               f'sharding_file={sharding}', f'array_metadata={metadata}']
    m = mount(root, *options)
    where = write(m, '1', expect.flatten(host))
    for path in ('w.npy', 'in/b.npy', 'in/n.npy'):
        writing.set_xattrs(where / path, {'sharding': SINGLE})
    commit(m, '1')
    handler = type_handlers.ArrayHandler(enable_write_sharding_file=sharding == 'on',
                                         array_metadata_store=array_metadata_store.Store() if metadata == 'on' else None)
    registry = type_handlers.create_type_handler_registry((jax.Array, handler))
    checkpointer = ocp0.Checkpointer(ocp0.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr == 3,
                                                                  type_handler_registry=registry))
    checkpointer.save(root.resolve() / '2/default', tree)
    checkpointer.close()
    ours, theirs = root / '1/default', root / '2/default'
    assert document(ours / '_METADATA') == document(theirs / '_METADATA')
    assert stored(ours, ocdbt) == stored(theirs, ocdbt)
    for name in ('_sharding', 'array_metadatas/process_0'):
        assert (ours / name).exists() == (theirs / name).exists(), name
        if (theirs / name).exists():
            assert same_document(document(ours / name), document(theirs / name)), name
    if sharding == 'on':    # v0 restores no jax.Array without one and without a target, its own neither
        assert not restoring.by_orbax(root, 1, expect.flatten(host))


SINGLE = {'sharding_type': 'SingleDeviceSharding', 'device_str': 'cpu:0'}


def same_document(a, b):
    """_sharding holds JSON texts inside JSON; lists of arrays have no order."""
    def canonical(x):
        if isinstance(x, dict):
            return {k: canonical(v) for k, v in x.items()}
        if isinstance(x, list):
            return sorted((canonical(v) for v in x), key=lambda v: json.dumps(v, sort_keys=True)) \
                if all(isinstance(v, dict) for v in x) else x
        if isinstance(x, str) and x[:1] == '{':
            return canonical(json.loads(x))
        return x
    return canonical(a) == canonical(b)
