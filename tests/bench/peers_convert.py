# SPDX-License-Identifier: Apache-2.0
"""The same conversions in Python: Orbax reads or writes the checkpoint, the format's own library the file.

Everything ends durable: what a library does not sync itself is synced inside the clock.
"""

import os

import numpy as np

from bench.peers import prepared, sync_tree

SIDE = 16384            # SIDE * SIDE float32: 1 GiB
GIBS = 2


def _libraries():
    import orbax.checkpoint  # noqa: F401
    import safetensors.numpy  # noqa: F401


def sync_file(path):
    for p in (path, os.path.dirname(path)):
        fd = os.open(p, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def weights(seed):
    """float32 with the precision of bfloat16, as mixed-precision training leaves it: zstd halves it."""
    x = np.random.default_rng(seed).standard_normal(SIDE * SIDE // 16, dtype=np.float32)
    x = (x.view(np.uint32) & 0xffff0000).view(np.float32)
    x = np.tile(x, 16).reshape(SIDE, SIDE)
    x[:, 0] = np.arange(SIDE)           # no two rows are equal
    return x


@prepared(_libraries)
def make(source):
    """2 GiB: 64 leaves of 16 MiB, eight of 64 MiB, one of 512 MiB, each one chunk as Orbax does by default."""
    import orbax.checkpoint as ocp
    x, y = (weights(seed) for seed in range(GIBS))
    tree = {'layers': {f'l{i:02d}': x[i * 256:(i + 1) * 256] for i in range(64)},
            'wide': {f'w{i}': y[i * 1024:(i + 1) * 1024] for i in range(8)}, 'table': y[8192:]}
    with ocp.PyTreeCheckpointer() as c:
        c.save(source, tree)


def flat(tree, prefix=''):
    for k, v in tree.items():
        if isinstance(v, dict):
            yield from flat(v, f'{prefix}{k}.')
        else:
            yield prefix + k, v


def restore(source):
    import orbax.checkpoint as ocp
    with ocp.PyTreeCheckpointer() as c:
        return c.restore(source)


def save(target, tree, chunk=None, **how):
    import jax
    import orbax.checkpoint as ocp
    args = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=chunk), tree) if chunk else None
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**how)) as c:
        c.save(target, args=ocp.args.PyTreeSave(tree, save_args=args))
    sync_tree(target)


@prepared(_libraries)
def to_safetensors(source, target):
    from safetensors.numpy import save_file
    save_file(dict(flat(restore(source))), target)
    sync_file(target)


@prepared(_libraries)
def to_npz(source, target):
    np.savez(target, **dict(flat(restore(source))))
    sync_file(target)


@prepared(_libraries)
def to_zarr3(source, target):
    save(target, restore(source), use_ocdbt=True, use_zarr3=True)


@prepared(_libraries)
def rechunk(source, target, chunk):
    save(target, restore(source), chunk=chunk, use_ocdbt=True, use_zarr3=False)


@prepared(_libraries)
def from_safetensors(source, target):
    from safetensors.numpy import load_file
    tree = {}
    for key, value in load_file(source).items():
        *path, last = key.split('.')
        d = tree
        for part in path:
            d = d.setdefault(part, {})
        d[last] = value
    save(target, tree, use_ocdbt=True, use_zarr3=False)
