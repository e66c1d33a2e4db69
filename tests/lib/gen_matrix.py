# SPDX-License-Identifier: Apache-2.0
"""Cases: every way of storing arrays x both interfaces, every element type, chunk shapes."""

import itertools

from lib import jaxenv  # noqa: F401  before jax

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp0
from orbax.checkpoint import v1 as ocp1

from lib import expect
from lib.case import Case, case

STANDARD = ['bool', 'int8', 'int16', 'int32', 'int64', 'uint8', 'uint16', 'uint32', 'uint64',
            'float16', 'float32', 'float64', 'complex64', 'complex128']
SMALL = ['bfloat16', 'float8_e3m4', 'float8_e4m3fn', 'float8_e4m3fnuz', 'float8_e4m3b11fnuz',
         'float8_e5m2', 'float8_e5m2fnuz', 'float8_e8m0fnu', 'float4_e2m1fn', 'int2', 'int4']
DTYPES = STANDARD + SMALL


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name)) if name in SMALL else np.dtype(name)


def bits(shape, dtype, seed):
    """Every bit pattern that the type can hold, NaNs, infinities and subnormals included."""
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    n = int(np.prod(shape))
    if dtype == bool:
        return rng.integers(0, 2, n).astype(bool).reshape(shape)
    raw = rng.integers(0, 256, n * dtype.itemsize, np.uint8)
    width = {'int2': 2, 'int4': 4, 'float4_e2m1fn': 4}.get(dtype.name)
    if width:
        raw &= (1 << width) - 1
    return raw.view(dtype).reshape(shape)


def values(shape, dtype, seed):
    """Ordinary numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def state():
    """The tree of most cases: every kind of leaf that both interfaces can save."""
    return {
        'params': {
            'dense': {'kernel': jnp.asarray(values((24, 16), np.float32, 1)),
                      'bias': jnp.asarray(values((16,), ml_dtypes.bfloat16, 2))},
            'embed': jnp.asarray(values((40, 12), np.float16, 3)),
            'numpy': values((7, 5, 3), np.float64, 4),
            'zeros': jnp.zeros((6, 8), jnp.float32),
        },
        'opt': [{'mu': jnp.asarray(values((24, 16), np.float32, 5)), 'count': 12},
                (jnp.asarray(np.arange(10, dtype=np.int32)), np.arange(6, dtype=np.uint8).reshape(2, 3))],
        'rank0': jnp.asarray(np.float32(2.5)),
        'mask': np.array([[True, False], [False, True]]),
        'step': 100, 'rate': 0.1, 'big': 2 ** 62, 'negative': -7, 'flag': True, 'unset': False,
        'tiny': 5e-324, 'whole': 3.0, 'nan': float('nan'), 'inf': float('-inf'),
        'name': 'run \u00e9 \u65e5\u672c', 'text': '',
        'none': None, 'empty': {}, 'void': [], 'nothing': (),
    }


def context(ocdbt=True, zarr3=True, compression=True):
    c = ocp1.Context()
    c.array.saving.use_ocdbt = ocdbt
    c.array.saving.use_zarr3 = zarr3
    c.array.saving.use_compression = compression
    return c


def save_v0(path, tree, ocdbt=True, zarr3=False, compression=True, **args):
    handler = ocp0.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr3, use_compression=compression)
    with ocp0.Checkpointer(handler) as checkpointer:
        checkpointer.save(path.resolve(), args=ocp0.args.PyTreeSave(tree, **args))


def save_v1(path, tree, **options):
    with context(**options):
        ocp1.save(path.resolve(), tree)


def save(api, path, tree, **options):
    """Either interface; returns the Case of the result."""
    (save_v0 if api == 'v0' else save_v1)(path / 'ckpt', tree, **options)
    return Case(trees={'' if api == 'v0' else 'state': expect.flatten(tree, numpy_scalars=api == 'v0')})


def _matrix():
    for ocdbt, zarr3, compression, api in itertools.product((True, False), (False, True), (True, False),
                                                            ('v0', 'v1')):
        name = '-'.join(['matrix', 'ocdbt' if ocdbt else 'perleaf', 'zarr3' if zarr3 else 'zarr2',
                         'zstd' if compression else 'none', api])
        options = dict(ocdbt=ocdbt, zarr3=zarr3, compression=compression)
        case(name)(lambda d, api=api, options=options: save(api, d, state(), **options))


def _dtypes():
    """Every element type as jax array and numpy array, of ranks 0 to 3, with every bit pattern."""
    def tree():
        out = {}
        for i, name in enumerate(DTYPES):
            t = dtype_of(name)
            out[name] = {'np': bits((5, 7), t, i), 'jax': jnp.asarray(bits((3, 4, 2), t, 100 + i)),
                         'rank0': bits((), t, 200 + i), 'long': bits((3000,), t, 300 + i)}
        return out

    for zarr3, ocdbt in itertools.product((False, True), (True, False)):
        name = f'dtypes-{"ocdbt" if ocdbt else "perleaf"}-{"zarr3" if zarr3 else "zarr2"}'
        case(name)(lambda d, o=ocdbt, z=zarr3: save('v0', d, tree(), ocdbt=o, zarr3=z))


_matrix()
_dtypes()


@case()
def scalar_types(d):
    """Every number that v0 takes as a scalar leaf: limits, special values, numpy's types."""
    tree = {'zero': 0, 'one': 1, 'minus': -1, 'max64': 2 ** 63 - 1, 'min64': -2 ** 63,
            'unsigned': 2 ** 64 - 1, 'past53': 2 ** 53 + 1,
            'true': True, 'false': False,
            'f0': 0.0, 'fminus0': -0.0, 'third': 1 / 3, 'big': 1.7976931348623157e308, 'small': 5e-324,
            'e16': 1e16, 'e15': 1e15, 'e22': 1e22, 'e-5': 1e-05, 'whole': 42.0,
            'nan': float('nan'), 'inf': float('inf'), 'minf': float('-inf')}
    for name in STANDARD:
        if name not in ('bool',):
            tree['np_' + name] = np.dtype(name).type(3)
    tree['np_float32_third'] = np.float32(1 / 3)
    tree['np_float16_third'] = np.float16(1 / 3)
    tree['np_complex64_x'] = np.complex64(1.5 - 2j)
    tree['np_complex128_nan'] = np.complex128(complex(float('nan'), float('inf')))
    return save('v0', d, tree)


@case()
def big_endian_and_fortran(d):
    """Arrays that numpy holds in other ways are stored little-endian, in C order."""
    a = np.arange(24, dtype='>i4').reshape(4, 6)
    f = np.asfortranarray(values((5, 6), np.float32, 1))
    strided = values((8, 9), np.float64, 2)[::2, ::3]
    made = save('v0', d, {'big': a, 'fortran': f, 'strided': strided})
    made.trees[''].leaves[('big',)] = a.astype('<i4')
    return made


@case()
def cast_on_save(d):
    """SaveArgs.dtype: the stored type is the target's."""
    tree = {'a': values((6, 5), np.float32, 1), 'b': jnp.asarray(values((8,), np.float32, 2)),
            'i': np.arange(5, dtype=np.int64)}
    args = {'a': ocp0.SaveArgs(dtype=np.dtype(np.float16)), 'b': ocp0.SaveArgs(dtype=jnp.dtype('bfloat16')),
            'i': ocp0.SaveArgs(dtype=np.dtype(np.int8))}
    made = save('v0', d, tree, save_args=args)
    leaves = made.trees[''].leaves
    leaves['a',] = tree['a'].astype(np.float16)
    leaves['b',] = np.asarray(tree['b']).astype(ml_dtypes.bfloat16)
    leaves['i',] = tree['i'].astype(np.int8)
    return made


def _chunked(zarr3, ocdbt, api):
    tree = {'two': jnp.asarray(values((64, 96), np.float32, 1)),
            'odd': values((30, 7, 11), np.float64, 2),
            'bf': jnp.asarray(values((1000,), ml_dtypes.bfloat16, 3)),
            'raw': np.arange(4096, dtype=np.uint8).reshape(64, 64)}

    def make(d):
        if api == 'v0':
            args = jax.tree.map(lambda _: ocp0.SaveArgs(chunk_byte_size=1024), tree)
            return save('v0', d, tree, zarr3=zarr3, ocdbt=ocdbt, save_args=args)
        c = context(ocdbt=ocdbt, zarr3=zarr3)
        c.array.saving.storage_options.chunk_byte_size = 512
        c.array.saving.storage_options.shard_axes = (0,)
        with c:
            ocp1.save((d / 'ckpt').resolve(), tree)
        return Case(trees={'state': expect.flatten(tree)})
    return make


for _z, _o, _a in itertools.product((False, True), (True, False), ('v0', 'v1')):
    case(f'chunked-{"ocdbt" if _o else "perleaf"}-{"zarr3" if _z else "zarr2"}-{_a}')(_chunked(_z, _o, _a))


@case()
def many_data_files(d):
    """ocdbt_target_data_file_size splits the database over several data files."""
    tree = {f'w{i}': values((64, 64), np.float32, i) for i in range(12)}
    return save('v0', d, tree, ocdbt_target_data_file_size=40000)


@case()
def standard_checkpointer(d):
    tree = {'a': values((3, 4), np.float32, 1), 'b': [jnp.asarray(values((5,), np.float32, 2)), 7, 0.5],
            'c': np.float32(1.5), 'empty': {}, 'none': None}
    with ocp0.StandardCheckpointer() as checkpointer:
        checkpointer.save((d / 'ckpt').resolve(), tree)
    return Case(trees={'': expect.flatten(tree, numpy_scalars=False)})


@case()
def async_checkpointer(d):
    with ocp0.AsyncCheckpointer(ocp0.PyTreeCheckpointHandler()) as checkpointer:
        checkpointer.save((d / 'ckpt').resolve(), args=ocp0.args.PyTreeSave(state()))
        checkpointer.wait_until_finished()
    return Case(trees={'': expect.flatten(state())})


@case()
def v1_save_pytree(d):
    ocp1.save_pytree((d / 'ckpt').resolve(), state())
    return Case(trees={'state': expect.flatten(state(), numpy_scalars=False)})


@case()
def v1_checkpointables(d):
    """Several trees in one step."""
    other = {'seed': 5, 'table': np.arange(30, dtype=np.int16).reshape(5, 6)}
    ocp1.save_checkpointables((d / 'ckpt').resolve(), {'model': state(), 'data': other})
    return Case(trees={'model': expect.flatten(state(), numpy_scalars=False), 'data': expect.flatten(other)})
