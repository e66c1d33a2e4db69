# SPDX-License-Identifier: Apache-2.0
"""Cases: arrays that several devices or processes wrote, and databases in parts."""

import itertools
import json
import shutil

from lib import jaxenv  # noqa: F401  before jax

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp0
import tensorstore as ts
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from orbax.checkpoint import v1 as ocp1

from lib import expect, forks, jax_rank, servers
from lib.case import Case, case
from lib.gen_matrix import context, save, values


def mesh(*shape):
    names = ('x', 'y', 'z')[:len(shape)]
    return Mesh(np.array(jax.devices()[:int(np.prod(shape))]).reshape(shape), names)


def put(a, m, *spec):
    return jax.device_put(a, NamedSharding(m, P(*spec)))


def sharded_tree():
    m42, m222, m8 = mesh(4, 2), mesh(2, 2, 2), mesh(8)
    w = values((64, 48), np.float32, 1)
    bf = values((32, 16, 8), ml_dtypes.bfloat16, 2)
    return {
        'rows': put(w, m42, 'x'), 'both': put(w, m42, 'x', 'y'), 'columns': put(w, m42, None, 'y'),
        'joined': put(w, m42, ('x', 'y')), 'replicated': put(w, m42), 'eight': put(w, m8, 'x'),
        'cube': put(bf, m222, 'x', 'y', 'z'), 'cube_z': put(bf, m222, None, None, 'z'),
        'long': put(np.arange(8000, dtype=np.int32), m8, 'x'),
        'scalar': put(np.float32(1.5), m8), 'single': jnp.asarray(w[:3]), 'numpy': w[:5], 'n': 3,
    }


def _mesh_case(ocdbt, zarr3, api):
    return lambda d: save(api, d, sharded_tree(), ocdbt=ocdbt, zarr3=zarr3)


for _o, _z, _a in itertools.product((True, False), (False, True), ('v0', 'v1')):
    case(f'mesh-{"ocdbt" if _o else "perleaf"}-{"zarr3" if _z else "zarr2"}-{_a}')(_mesh_case(_o, _z, _a))


@case()
def mesh_chunked(d):
    """Shards that are split once more."""
    tree = sharded_tree()
    args = jax.tree.map(lambda _: ocp0.SaveArgs(chunk_byte_size=300), tree)
    return save('v0', d, tree, save_args=args)


@case()
def replicas_in_a_folder_of_their_own(d):
    c = context()
    c.array.saving.enable_replica_parallel_separate_folder = True
    c.array.saving.use_replica_parallel = True
    with c:
        ocp1.save((d / 'ckpt').resolve(), sharded_tree())
    return Case(trees={'state': expect.flatten(sharded_tree())})


def _two_halves():
    return ({'a': values((40, 20), np.float32, 1), 'b': {'n': 5, 'name': 'first'}},
            {'c': jnp.asarray(values((700,), ml_dtypes.bfloat16, 2)), 'd': [values((3,), np.int16, 3), 2.5]})


@case()
def partial_saving(d):
    """Two calls of v1 partial saving: databases called ocdbt.process_0<uuid>."""
    first, second = _two_halves()
    path = (d / 'ckpt').resolve()
    ocp1.partial.save(path, first)
    ocp1.partial.save(path, second)
    ocp1.partial.finalize(path)
    return Case(trees={'state': expect.flatten({**first, **second})})


def _unmerge(item):
    """Back to what is there before the merge: no database of the whole."""
    (item / 'manifest.ocdbt').unlink()
    shutil.rmtree(item / 'd')


@case()
def unmerged(d):
    made = save('v0', d, {**_two_halves()[0], **_two_halves()[1]})
    _unmerge(d / 'ckpt')
    made.xattrs = {'': {'state': 'unmerged'}}
    return made


@case()
def unmerged_part_missing(d):
    """A part that was never written: its leaves are EIO, the others read."""
    tree = {**_two_halves()[0], **_two_halves()[1]}
    made = save('v0', d, tree)
    item = d / 'ckpt'
    _unmerge(item)
    kv = _store(item / 'ocdbt.process_0')
    txn = ts.Transaction()
    for key in kv.list().result():
        if key.startswith(b'c/'):
            kv.with_transaction(txn).delete_range(ts.KvStore.KeyRange(key, key + b'\0')).result()
    txn.commit_async().result()
    del made.trees[''].leaves['c',]
    made.notes['broken'] = ['c.npy']
    made.xattrs = {'': {'state': 'unmerged'}}
    return made


def _store(path, ctx=None):
    spec = {'driver': 'ocdbt', 'base': f'file://{path}/'}
    return ts.KvStore.open(spec, context=ctx or ts.Context()).result()


@case()
def unmerged_two_processes(d):
    """Parts of two processes; only the first has the arrays' metadata."""
    made = _two_databases(d / 'ckpt')
    made.xattrs = {'': {'state': 'unmerged'}}
    return made


@case()
def merged_two_processes(d):
    """The same, merged by reference as Orbax does it."""
    made = _two_databases(d / 'ckpt')
    ctx = ts.Context()
    top = _store(d / 'ckpt', ctx)
    txn = ts.Transaction(atomic=True)
    for n in (0, 1):
        part = _store(d / 'ckpt' / f'ocdbt.process_{n}', ctx)
        part.experimental_copy_range_to(top.with_transaction(txn)).result()
    txn.commit_async().result()
    return made


def _two_databases(item):
    """An item by TensorStore as orbax.md B.8 has it: process 0 rows 0-31, process 1 rows 32-63."""
    arrays = {'big': values((64, 64), np.float32, 1), 'small': np.arange(8, dtype=np.int32),
              'rep': values((64, 16), np.float64, 2)}
    chunks = {'big': [32, 64], 'small': [4], 'rep': [32, 16]}
    item.mkdir(parents=True)
    for n in (0, 1):
        kv_of = lambda name: {'driver': 'ocdbt', 'base': f'file://{item}/ocdbt.process_{n}/', 'path': name + '/'}
        for name, a in arrays.items():
            spec = {'driver': 'zarr', 'kvstore': kv_of(name),
                    'metadata': {'shape': list(a.shape), 'chunks': chunks[name], 'dtype': a.dtype.str,
                                 'compressor': {'id': 'zstd', 'level': 1}, 'fill_value': None, 'order': 'C',
                                 'filters': None, 'zarr_format': 2, 'dimension_separator': '.'}}
            if n == 0:
                store = ts.open(spec, create=True).result()
            else:
                store = ts.open(spec, open=True, assume_metadata=True).result()
            half = a.shape[0] // 2
            box = slice(0, half) if n == 0 else slice(half, None)
            store[box].write(a[box]).result()
    entry = {'value_type': 'np.ndarray', 'skip_deserialize': False}
    doc = {'tree_metadata': {repr((k,)): {'key_metadata': [{'key': k, 'key_type': 2}], 'value_metadata': entry}
                             for k in arrays},
           'use_ocdbt': True, 'use_zarr3': False, 'store_array_data_equal_to_fill_value': True,
           'custom_metadata': None}
    (item / '_METADATA').write_text(json.dumps(doc))
    return Case(trees={'': expect.flatten(arrays)})


@case()
def children_without_manifests(d):
    """The merged database needs the data files of its parts and nothing else of them."""
    made = save('v0', d, sharded_tree())
    (d / 'ckpt' / 'ocdbt.process_0' / 'manifest.ocdbt').unlink()
    return made


def two_processes(d, zarr3):
    """A save by two processes of one JAX job on this machine."""
    with servers.port_for_grpc() as port:
        forks.together([(jax_rank.save_item, r, port, (d / 'ckpt').resolve(), '1' if zarr3 else '0') for r in (0, 1)])
    w = values((64, 64), np.float32, 1)
    return Case(trees={'': expect.flatten({'big': w, 'rows': w, 'rep': w + 1, 'np': w[:5], 'n': 7,
                                           'small': np.arange(8, dtype=np.int32), 'name': 'two'})})


case('two-processes')(lambda d: two_processes(d, False))
case('two-processes-zarr3')(lambda d: two_processes(d, True))


@case()
def many_generations(d):
    """A version tree with many generations, and a B+tree of several levels: TensorStore's own writing."""
    item = (d / 'ckpt').resolve()
    config = {'max_decoded_node_bytes': 800, 'max_inline_value_bytes': 64, 'version_tree_arity_log2': 1,
              'compression': None}
    arrays = {f'layer{i:03d}': values((3, i % 7 + 1), np.float32, i) for i in range(120)}
    for name, a in arrays.items():
        kv = {'driver': 'ocdbt', 'base': f'file://{item}/', 'path': name + '/', 'config': config}
        ts.open({'driver': 'zarr', 'kvstore': kv}, create=True, dtype=a.dtype, shape=a.shape,
                context=ts.Context()).result().write(a).result()
    tree = expect.flatten(arrays)
    return Case(trees={'': tree.without_structure()})
