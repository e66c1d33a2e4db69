# SPDX-License-Identifier: Apache-2.0
"""Random trees on eight devices of jax: what load(like=) and our handlers of Orbax save and restore, against what Orbax does.

    python -m lib.placing DIRECTORY FIRST COUNT

prints a line for each case that differs, and `N cases` at the end. A process of its own, since the number of devices is chosen once."""

import json
import os
import pathlib
import shutil
import sys
import warnings

os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=8'
os.environ['JAX_PLATFORMS'] = 'cpu'

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import tensorstore as ts
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

import pytreefs
import pytreefs.orbax

MESHES = (((8,), ('a',)), ((4, 2), ('a', 'b')), ((2, 4), ('a', 'b')), ((2, 2, 2), ('a', 'b', 'c')), ((1, 2), ('a', 'b')))
DTYPES = (jnp.float32, jnp.bfloat16, jnp.float16, jnp.int32, jnp.uint8, jnp.int8, jnp.bool_, jnp.float8_e4m3fn, jnp.complex64, jnp.uint32)
FLOATS = (jnp.float32, jnp.bfloat16, jnp.float16)


def sharding(rng, shape):
    """Any that the shape can have."""
    if rng.random() < 0.15:
        return SingleDeviceSharding(jax.devices()[rng.integers(8)])
    sizes, names = MESHES[rng.integers(len(MESHES))]
    n = int(np.prod(sizes))
    mesh = Mesh(rng.permutation(jax.devices())[:n].reshape(sizes), names)
    spec, left = [], list(zip(names, sizes))
    for length in shape:
        fits = [name for name, size in left if length and length % size == 0]
        if not fits or rng.random() < 0.4:
            spec.append(None)
            continue
        chosen = fits[rng.integers(len(fits))]
        left = [pair for pair in left if pair[0] != chosen]
        spec.append(chosen)
    return NamedSharding(mesh, P(*spec))


def leaf(rng):
    shape = tuple(int(n) for n in rng.choice([1, 2, 3, 4, 8, 12, 16, 24], rng.integers(0, 4)))
    dtype = DTYPES[rng.integers(len(DTYPES))]
    a = jnp.asarray(rng.integers(0, 100, shape) if dtype != jnp.bool_ else rng.random(shape) < 0.5).astype(dtype)
    if rng.random() < 0.1:
        keys = jax.random.split(jax.random.key(int(rng.integers(100))), 8)
        return jax.device_put(keys, sharding(rng, keys.shape))
    return jax.device_put(a, sharding(rng, shape))


def tree_of(rng):
    flat = {f'l{i}': leaf(rng) for i in range(rng.integers(1, 6))}
    return {'a': flat, 'b': [leaf(rng), {'c.d': leaf(rng)}], 'n': np.arange(rng.integers(1, 9)), 'step': int(rng.integers(99))}


def wanted(rng, x, is_strict):
    """The leaf of `like`."""
    if not isinstance(x, jax.Array):
        return x
    dtype = FLOATS[rng.integers(3)] if x.dtype in FLOATS and rng.random() < 0.3 else x.dtype
    shape = x.shape if is_strict or is_key(x) else tuple(max(1, n + int(rng.integers(-2, 3))) for n in x.shape)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding(rng, shape))


def is_key(x):
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def shards(x):
    """All that may differ between two leaves: of an array of jax each device's part."""
    if not isinstance(x, jax.Array):
        return [type(x), np.asarray(x).tobytes()]
    raw = jax.random.key_data(x) if is_key(x) else x
    return [x.shape, x.dtype, x.sharding, *sorted((s.device.id, np.asarray(s.data).tobytes()) for s in raw.addressable_shards)]


def differences(left, right):
    if jax.tree.structure(left) != jax.tree.structure(right):
        return ['structure']
    pairs = zip(jax.tree_util.tree_leaves_with_path(left), jax.tree.leaves(right))
    return [jax.tree_util.keystr(path) for (path, x), y in pairs if shards(x) != shards(y)]


def save_args(rng, x):
    """Of a leaf: stored as another type, or in smaller chunks."""
    dtype = jnp.dtype(FLOATS[rng.integers(3)]) if getattr(x, 'dtype', None) in FLOATS and rng.random() < 0.3 else None
    axes = tuple(i for i in range(getattr(x, 'ndim', 0)) if rng.random() < 0.2) if isinstance(x, jax.Array) and not is_key(x) else ()
    return ocp.SaveArgs(dtype=dtype, chunk_byte_size=int(rng.choice([32, 100, 4096])) if rng.random() < 0.4 else None, shard_axes=axes)


def stored(where):
    """Documents of the arrays of an item, without their compression, the keys of its chunks, and its other documents."""
    found = {path.name: json.loads(path.read_bytes()) for path in where.rglob('*') if path.name in ('_METADATA', '_sharding', 'process_0')}
    if not (where / 'manifest.ocdbt').exists():
        return found
    kv = ts.KvStore.open({'driver': 'ocdbt', 'base': f'file://{where}/'}).result()
    for key in kv.list().result():
        found[key] = json.loads(kv.read(key).result().value) if key.endswith((b'.zarray', b'zarr.json')) else True
        for document in (found[key], *(codec['configuration'] for codec in found[key].get('codecs', ()))) if isinstance(found[key], dict) else ():
            document.pop('compressor', None)
            if 'index_codecs' in document:
                document['codecs'] = document['codecs'][:1]
    return found


def saved_alike(rng, tree, where, layout):
    """The differences between a checkpoint of ours and one of Orbax's."""
    compression = str(rng.choice(['auto', 'zstd', 'blosc', 'none']))
    args = ocp.args.PyTreeSave(tree, save_args=jax.tree.map(lambda x: save_args(rng, x), tree))
    got = []
    for at, writer in ((where, ocp.PyTreeCheckpointHandler(**layout)),
                       (where.with_name(f'{where.name}-ours'), pytreefs.orbax.PyTreeCheckpointHandler(**layout, compression=compression))):
        with ocp.Checkpointer(writer) as c:
            c.save(at, args=args)
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as c:
            got.append((stored(at), c.restore(at)))
        if layout['use_ocdbt']:
            assert len(list(at.glob('ocdbt.process_0?*'))) == (0 if at == where else 2)
        shutil.rmtree(at)
    (theirs, left), (ours, right) = got
    return [f'{name} by {compression}' for name in differences(left, right)] + [
        f'{key} by {compression}: {theirs.get(key)}, {ours.get(key)}' for key in sorted(set(theirs) | set(ours), key=str) if theirs.get(key) != ours.get(key)]


def case(where, seed):
    """Names of what differs."""
    rng = np.random.default_rng(seed)
    tree, is_strict = tree_of(rng), bool(rng.random() < 0.7)
    layout = dict(use_ocdbt=bool(rng.random() < 0.7), use_zarr3=bool(rng.random() < 0.4))
    writer = (pytreefs.orbax.PyTreeCheckpointHandler if rng.random() < 0.5 else ocp.PyTreeCheckpointHandler)(**layout)
    alike = saved_alike(rng, tree, where.with_name(f'{seed}-alike'), layout)
    with ocp.Checkpointer(writer) as c:
        c.save(where, args=ocp.args.PyTreeSave(tree))
    like = jax.tree.map(lambda x: wanted(rng, x, is_strict), tree)
    results = []
    for handler in (ocp.StandardCheckpointHandler(), pytreefs.orbax.StandardCheckpointHandler()):
        with ocp.Checkpointer(handler) as c:
            results.append(c.restore(where, args=ocp.args.StandardRestore(like, strict=is_strict)))
    results.append(pytreefs.load(where, like=like, strict=is_strict))
    saved = [] if not is_strict else [f'saved {name}' for name in differences(tree, jax.tree.map(
        lambda x, y: jax.device_put(x, y.sharding) if isinstance(x, jax.Array) else x, pytreefs.load(where, like=tree), tree))]
    return alike + saved + [f'{name} of {by}' for by, got in zip(('the handler', 'load'), results[1:]) for name in differences(results[0], got)]


def main(where, first, count):
    warnings.simplefilter('ignore')
    for seed in range(int(first), int(first) + int(count)):
        at = pathlib.Path(where) / str(seed)
        for text in case(at, seed):
            print(f'case {seed}: {text}')
        shutil.rmtree(at)
    print(f'{count} cases')


if __name__ == '__main__':
    main(*sys.argv[1:])
