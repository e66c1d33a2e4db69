# SPDX-License-Identifier: Apache-2.0
"""Cases: arrays of every type and several ranks, in chunks and whole, whose values every cast can take."""

from lib import jaxenv  # noqa: F401  before jax

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp0

from lib import bigdata
from lib.case import Case, case
from lib.gen_matrix import DTYPES, dtype_of, save, save_v0

SHAPES = {'r0': (), 'r1': (301,), 'r2': (37, 53), 'r3': (11, 8, 13), 'r5': (3, 4, 2, 5, 6)}


def moderate(shape, name, seed):
    """Numbers that fit every type as well as it can hold them: what a cast makes of them is defined."""
    return np.asarray(numbers(shape, name, seed), dtype_of(name))


def numbers(shape, name, seed):
    rng = np.random.default_rng(seed)
    if name == 'bool':
        return rng.integers(0, 2, shape)
    if name == 'int2':
        return np.asarray(rng.integers(-2, 2, shape), np.int8)
    if name.startswith('uint'):
        return rng.integers(0, 8, shape)
    if name.startswith('int'):
        return np.asarray(rng.integers(-8, 8, shape), np.int8)
    if name.startswith('complex'):
        return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    if name == 'float8_e8m0fnu':
        return np.asarray(2.0 ** rng.integers(-3, 4, shape), np.float32)
    return np.asarray(rng.uniform(-1.9, 1.9, shape), np.float32)


def tree():
    out = {}
    for i, name in enumerate(DTYPES):
        out[name] = {k: moderate(s, name, 100 * i + n) for n, (k, s) in enumerate(SHAPES.items())}
        out[name]['r2'] = jnp.asarray(out[name]['r2'])
    return out


def make(zarr3, ocdbt, chunk_bytes):
    def write(d):
        t = tree()
        args = jax.tree.map(lambda _: ocp0.SaveArgs(chunk_byte_size=chunk_bytes), t)
        return save('v0', d, t, zarr3=zarr3, ocdbt=ocdbt, save_args=args)
    return write


case('views-ocdbt-zarr2')(make(False, True, 256))
case('views-ocdbt-zarr3')(make(True, True, 100))
case('views-perleaf-zarr2')(make(False, False, None))


@case(heavy=True)
def one_gib_chunked(d):
    """One leaf of 1 GiB in chunks of 1 MiB, and a small one after it."""
    w = bigdata.array(1024).reshape(16384, 16384)
    t = {'w': w, 'z': np.arange(5, dtype=np.float32)}
    save_v0(d / 'ckpt', t, save_args=jax.tree.map(lambda _: ocp0.SaveArgs(chunk_byte_size=1 << 20), t))
    return Case()
