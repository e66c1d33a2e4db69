# SPDX-License-Identifier: Apache-2.0
"""The input of benchmarks: a gigabyte of weights, in every layout with a different cost."""

from lib import jaxenv  # noqa: F401  before jax

import jax
import numpy as np
import orbax.checkpoint as ocp0

from lib.case import Case, case

SIDE = 16384            # SIDE * SIDE float32: 1 GiB
LEAVES = 64


def weights():
    """float32 with the precision of bfloat16, as mixed-precision training leaves it: zstd halves it."""
    x = np.random.default_rng(0).standard_normal(SIDE * SIDE // 16, dtype=np.float32)
    x = (x.view(np.uint32) & 0xffff0000).view(np.float32)
    x = np.tile(x, 16).reshape(SIDE, SIDE)
    x[:, 0] = np.arange(SIDE)           # no two rows are equal
    return x


def rows(x, leaves=LEAVES):
    """The same bytes as many leaves."""
    step = SIDE // leaves
    return {f'layer{i:02d}': {'w': x[i * step:(i + 1) * step].copy()} for i in range(leaves)}


def _save(d, tree, chunk=None, **how):
    args = None
    if chunk:
        args = jax.tree.map(lambda _: ocp0.SaveArgs(chunk_byte_size=chunk), tree)
    handler = ocp0.PyTreeCheckpointHandler(use_ocdbt=True, use_zarr3=False, **how)
    with ocp0.Checkpointer(handler) as checkpointer:
        checkpointer.save((d / 'ckpt').resolve(), args=ocp0.args.PyTreeSave(tree, save_args=args))
    return Case(notes={'logical': sum(v.nbytes for v in jax.tree.leaves(tree))})


@case('bench-one-zstd', heavy=True)
def one_zstd(d):
    """One leaf, one chunk, one frame: what Orbax does by default."""
    return _save(d, {'w': weights()})


@case('bench-one-raw', heavy=True)
def one_raw(d):
    return _save(d, {'w': weights()}, use_compression=False)


@case('bench-many-zstd', heavy=True)
def many_zstd(d):
    """One leaf in chunks of 4 MiB."""
    return _save(d, {'w': weights()}, chunk=4 << 20)


@case('bench-many-raw', heavy=True)
def many_raw(d):
    return _save(d, {'w': weights()}, chunk=4 << 20, use_compression=False)


@case('bench-leaves-zstd', heavy=True)
def leaves_zstd(d):
    """64 leaves of one chunk each."""
    return _save(d, rows(weights()))


@case('bench-large-leaves-zstd', heavy=True)
def large_leaves_zstd(d):
    """16 leaves of one chunk each: 64 MiB, as the larger arrays of a language model."""
    return _save(d, rows(weights(), 16))


@case('bench-small', heavy=True)
def small(d):
    """Leaves of 1 MiB: what a tool reads one of."""
    x = weights()
    return _save(d, {f'w{i}': x[i * 16:(i + 1) * 16].copy() for i in range(16)})


@case('bench-steps-200', heavy=True)
def steps_200(d):
    """A root of 200 steps; they need not differ."""
    root = d / 'root'
    with ocp0.CheckpointManager(root.resolve()) as manager:
        for step in range(200):
            manager.save(step, args=ocp0.args.StandardSave({'w': np.full((16,), step, np.float32)}))
        manager.wait_until_finished()
    return Case(source='root')
