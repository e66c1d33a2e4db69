# SPDX-License-Identifier: Apache-2.0
"""Contenders on eight simulated devices of jax: Orbax, Orbax with our handlers, and load(like=). Each is a process of its own."""

import ctypes
import os

from bench import peers_python  # noqa: F401: the package as it was built

os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=8'

_LIKE = {}


def _imports():
    import orbax.checkpoint  # noqa: F401
    import pytreefs.orbax  # noqa: F401


def _trim():
    """Give freed arrays back: they stay with each contender otherwise, 5 GiB of replicated ones."""
    ctypes.CDLL(None).malloc_trim(0)


def _tree(kind, mib):
    """Shapes on the devices; 'sharded' or 'replicated'. Leaves of 16 MiB."""
    if (kind, mib) not in _LIKE:
        import jax
        import numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        where = NamedSharding(Mesh(np.array(jax.devices()).reshape(4, 2), ('a', 'b')), P('a', 'b') if kind == 'sharded' else P())
        _LIKE[kind, mib] = {f'w{i}': jax.ShapeDtypeStruct((2048, 2048), np.float32, sharding=where) for i in range(mib // 16)}
    return _LIKE[kind, mib]


def _saved_tree(kind, mib):
    """Values on the devices. Each run makes them: what all contenders keep would not fit into the memory."""
    import jax
    import numpy as np
    rng = np.random.default_rng(0)
    tree = {name: jax.device_put(rng.standard_normal(x.shape, np.float32), x.sharding) for name, x in _tree(kind, mib).items()}
    return jax.block_until_ready(tree)


def make(path, kind, mib):
    """Saved by Orbax from these devices."""
    import orbax.checkpoint as ocp
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as c:
        c.save(path, args=ocp.args.StandardSave(_saved_tree(kind, mib)))


def _sync(top):
    """Neither Orbax nor its checkpointers sync all files, directories and names."""
    for at, _, names in os.walk(top):
        for name in (*names, '.'):
            fd = os.open(os.path.join(at, name), os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)


def _save(handler, path, kind, mib, is_blocking):
    """Seconds of an asynchronous save until it is durable, or until the caller goes on."""
    import shutil
    import time
    import orbax.checkpoint as ocp
    tree = _saved_tree(kind, mib)
    with ocp.AsyncCheckpointer(handler) as c:
        begin = time.perf_counter()
        c.save(os.path.join(path, 'step'), args=ocp.args.StandardSave(tree))
        blocked = time.perf_counter() - begin
        c.wait_until_finished()
        _sync(path)
        seconds = time.perf_counter() - begin
    shutil.rmtree(os.path.join(path, 'step'))
    return blocked if is_blocking else seconds


def save_orbax(path, kind, mib, is_blocking):
    import orbax.checkpoint as ocp
    return _save(ocp.StandardCheckpointHandler(), path, kind, mib, is_blocking)


def save_ours(path, kind, mib, is_blocking, compression='auto'):
    import pytreefs.orbax
    return _save(pytreefs.orbax.StandardCheckpointHandler(compression=compression), path, kind, mib, is_blocking)


def _restore(handler, path, kind, mib):
    import jax
    import orbax.checkpoint as ocp
    with ocp.Checkpointer(handler) as c:
        jax.block_until_ready(c.restore(path, args=ocp.args.StandardRestore(_tree(kind, mib))))


def orbax(path, kind, mib):
    import orbax.checkpoint as ocp
    _restore(ocp.StandardCheckpointHandler(), path, kind, mib)


def ours(path, kind, mib):
    import pytreefs.orbax
    _restore(pytreefs.orbax.StandardCheckpointHandler(), path, kind, mib)


def load(path, kind, mib):
    import jax
    import pytreefs
    jax.block_until_ready(pytreefs.load(path, like=_tree(kind, mib)))


def to_mesh(path, out, mib):
    """A copy whose chunks are the parts of a mesh of 8 in one axis: restored on it, and saved from it."""
    import jax
    import numpy as np
    import orbax.checkpoint as ocp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    where = NamedSharding(Mesh(np.array(jax.devices()), ('fsdp',)), P('fsdp'))
    target = {name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where) for name, x in _tree('sharded', mib).items()}
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as c:
        c.save(out, args=ocp.args.StandardSave(c.restore(path, args=ocp.args.StandardRestore(target))))
    _sync(out)


for function in (make, orbax, ours, load, save_orbax, save_ours, to_mesh):
    function.prepare, function.after = _imports, _trim
