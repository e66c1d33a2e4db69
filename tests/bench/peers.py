# SPDX-License-Identifier: Apache-2.0
"""Contenders that are Python: what people run today, and numpy on a mount.

A function's `prepare` is called once before the first timed run: imports belong there.
"""

import concurrent.futures
import functools
import json
import os
import pathlib
import random
import time

import numpy as np


def prepared(how):
    def mark(function):
        function.prepare = how
        return function
    return mark


def _orbax():
    import orbax.checkpoint  # noqa: F401


def _tensorstore():
    import tensorstore  # noqa: F401


def base(source):
    """A directory of this machine, or below a URL of http."""
    return {'driver': 'http', 'base_url': f'{source}/'} if str(source).startswith('http:') else f'file://{source}/'


@functools.lru_cache
def driver(source):
    """TensorStore's name of the format of the arrays."""
    metadata = pathlib.Path(source, '_METADATA')
    return 'zarr3' if metadata.is_file() and json.loads(metadata.read_text()).get('use_zarr3') else 'zarr'


def _spec(source, leaf):
    return {'driver': driver(source), 'kvstore': {'driver': 'ocdbt', 'base': base(source), 'path': f'{leaf}/'}}


# ---- numpy on files ----

def load(path):
    """One .npy file into memory."""
    np.load(path)


def load_tree(directory):
    """Every .npy file below a directory, all kept."""
    kept = [np.load(p) for p in sorted(pathlib.Path(directory).rglob('*.npy'))]
    return None if kept else 1 / 0


def leaves_below(directory, first):
    """The first so many .npy files below a directory; None: all."""
    return sorted(pathlib.Path(directory).rglob('*.npy'))[:first]


def load_in_threads(directory, threads):
    """The same by threads, each of which takes the next file."""
    with concurrent.futures.ThreadPoolExecutor(threads) as ex:
        kept = list(ex.map(np.load, leaves_below(directory, None)))
    return None if kept else 1 / 0


def load_first(directory, first):
    """The first leaves in a loop, all kept."""
    kept = [np.load(p) for p in leaves_below(directory, first)]
    return None if kept else 1 / 0


def _places():
    """The corners of 30 boxes of 256 x 256 in an array of 16384 x 16384."""
    r = random.Random(15)
    return [(r.randrange(16384 - 256), r.randrange(16384 - 256)) for _ in range(30)]


def boxes(leaf):
    """Views of a leaf, by their names."""
    for i, k in _places():
        np.load(f'{leaf}[{i}:{i + 256},{k}:{k + 256}].npy')


def plain_write(directory, target, first):
    """The first leaves as plain .npy files."""
    for p in leaves_below(directory, first):
        to = pathlib.Path(target) / p.relative_to(directory)
        to.parent.mkdir(parents=True, exist_ok=True)
        np.save(to, np.load(p))


def together(processes, function, *args):
    """So many processes that do the same at the same time; seconds until the last has ended."""
    from bench.worker import Worker
    key = ('together', function)
    if key not in _HELD:
        _HELD[key] = [Worker() for _ in range(processes)]
        for w in _HELD[key]:
            w.ask({'import': function})
    begin = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(processes) as ex:
        list(ex.map(lambda w: w.call(function, *args), _HELD[key]))
    return time.perf_counter() - begin


def save_tree(source, draft, final):
    """np.save of every array below `source`, as files of a draft, and its commit."""
    arrays = _arrays(source)
    begin = time.perf_counter()
    for directory in dict.fromkeys(os.path.dirname(name) for name in arrays):
        os.makedirs(os.path.join(draft, directory), exist_ok=True)
    for name, a in arrays.items():
        np.save(os.path.join(draft, name), a)
    os.rename(os.path.dirname(draft), final)
    return time.perf_counter() - begin


_HELD = {}


def _arrays(source):
    """The arrays below a directory of .npy files: read once, outside of the clock."""
    if source not in _HELD:
        _HELD[source] = {p.relative_to(source).as_posix(): np.load(p)
                         for p in sorted(pathlib.Path(source).rglob('*.npy'))}
    return _HELD[source]


# ---- TensorStore and Orbax ----

@prepared(_tensorstore)
def tensorstore_read(source, leaf='w'):
    """One leaf into memory; opening it counts, as it does for a file."""
    import tensorstore as ts
    ts.open(_spec(source, leaf), open=True).result().read().result()


@prepared(_tensorstore)
def tensorstore_tree(source, leaves):
    """Leaves into memory, all of them at once."""
    import tensorstore as ts
    context = ts.Context()
    opened = [ts.open(_spec(source, leaf), open=True, context=context) for leaf in leaves]
    reads = [x.result().read() for x in opened]
    kept = [r.result() for r in reads]
    return None if kept else 1 / 0


@prepared(_tensorstore)
def tensorstore_boxes(source, leaf='w'):
    """The same boxes."""
    import tensorstore as ts
    context = ts.Context({'cache_pool': {'total_bytes_limit': 256 << 20}})
    t = ts.open(_spec(source, leaf), open=True, context=context).result()
    for i, k in _places():
        t[i:i + 256, k:k + 256].read().result()


@prepared(_tensorstore)
def frames(source, path, leaf='w'):
    """The stored chunks of a leaf, end to end. Of all leaves when it is ''."""
    import tensorstore as ts
    kv = ts.KvStore.open({'driver': 'ocdbt', 'base': f'file://{source}/'}).result()
    keys = [k for k in kv.list().result() if not k.split(b'/')[-1].startswith(b'.z')]
    if leaf:
        keys = [k for k in keys if k.startswith(leaf.encode() + b'/')]
    with open(path, 'wb') as f:
        for k in sorted(keys):
            f.write(kv.read(k).result().value)


@prepared(_orbax)
def orbax_restore(source):
    """The whole tree to numpy, as `restore` without a target gives it."""
    import orbax.checkpoint as ocp
    with ocp.PyTreeCheckpointer() as c:
        c.restore(source)


@prepared(_orbax)
def orbax_save(source, target, compression=True):
    """The whole tree, synchronously, from jax.Array leaves, which is what Orbax saves; then what it does not
    do itself: every file and directory synced."""
    import orbax.checkpoint as ocp
    tree = _jax_tree(source)
    begin = time.perf_counter()
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=True, use_zarr3=False, use_compression=compression)
    with ocp.Checkpointer(handler) as c:
        c.save(target, args=ocp.args.PyTreeSave(tree))
    sync_tree(target)
    return time.perf_counter() - begin


def _jax_tree(source):
    """Nested dictionaries of the same arrays on the device; made once, outside of the clock."""
    import jax
    key = ('jax', source)
    if key not in _HELD:
        tree = {}
        for name, a in _arrays(source).items():
            *path, last = name.removesuffix('.npy').split('/')
            d = tree
            for part in path:
                d = d.setdefault(part, {})
            d[last] = jax.device_put(a)
        _HELD[key] = jax.block_until_ready(tree)
    return _HELD[key]


@prepared(_orbax)
def orbax_metadata(source):
    import orbax.checkpoint as ocp
    with ocp.PyTreeCheckpointer() as c:
        c.metadata(source)


def sync_tree(top):
    """fsync of every file and directory below top, and of the directory that holds it."""
    paths = [top, os.path.dirname(top)]
    for directory, _, files in os.walk(top):
        paths += [directory, *(os.path.join(directory, f) for f in files)]
    for path in dict.fromkeys(paths):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


@prepared(lambda: __import__('safetensors.numpy'))
def safetensors_load(path):
    from safetensors.numpy import load_file
    load_file(path)


def safetensors_write(directory, path):
    """Every .npy file below a directory as one safetensors file."""
    from safetensors.numpy import save_file
    save_file({str(p.relative_to(directory)): np.load(p) for p in pathlib.Path(directory).rglob('*.npy')}, path)


# ---- blosc ----

def _blosc():
    from numcodecs import blosc
    blosc.set_nthreads(1)
    blosc.use_threads = False


def bfloat16_leaves(directory):
    """40 arrays of weights."""
    import ml_dtypes
    rng = np.random.default_rng(0)
    for i in range(40):
        w = (rng.standard_normal((3072, 2048), dtype=np.float32) * 0.02).astype(ml_dtypes.bfloat16)
        np.save(pathlib.Path(directory) / f'w{i:02d}.npy', w)


@prepared(_blosc)
def blosc_decode(path):
    """One object, by one thread, into memory that is there: what costs besides is not counted."""
    from numcodecs import blosc
    if path not in _HELD:
        data = pathlib.Path(path).read_bytes()
        _HELD[path] = data, np.zeros(int.from_bytes(data[4:8], 'little'), np.uint8)
    data, out = _HELD[path]
    begin = time.perf_counter()
    blosc.decompress(data, out)
    return time.perf_counter() - begin
