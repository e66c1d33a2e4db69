# SPDX-License-Identifier: Apache-2.0
"""pytreefs_database_write(): arrays and parts of them in memory become a database that TensorStore reads."""

import asyncio
import errno
import itertools
import math

import ml_dtypes
import numpy as np
import pytest
import tensorstore as ts
from etils import epath
from orbax.checkpoint._src.serialization import ocdbt_utils, tensorstore_utils

from pytreefs import _dtypes
from pytreefs import _pytreefs as lib


def kvstore(path):
    return {'driver': 'ocdbt', 'base': f'file://{path}/'}


def read(path, name, zarr=2):
    store = ts.open({'driver': 'zarr' if zarr == 2 else 'zarr3', 'kvstore': kvstore(path), 'path': name}).result()
    return store.read().result(), tuple(store.chunk_layout.write_chunk.shape or ())


def cut(a, box):
    """Its boxes, as parts."""
    starts = itertools.product(*(range(0, n, step) for n, step in zip(a.shape, box)))
    return [(start, _dtypes.raw(a[tuple(slice(i, i + n) for i, n in zip(start, box))])) for start in starts]


def array(name, a, chunk, parts, dtype=None, flags=0):
    return name, dtype or a.dtype.name, a.dtype.name, a.shape, chunk, parts, flags


def values(shape, dtype):
    return (np.arange(math.prod(shape)) % 251 / 7).reshape(shape).astype(dtype)


CASES = [   # shape, chunk, box, dtype, stored as
    ((), (), (), np.float32, None),
    ((10,), (3,), (6,), np.int16, None),                           # the last chunk extends beyond the array
    ((64, 48), (16, 48), (32, 48), np.float32, None),              # runs in memory
    ((64, 48), (8, 6), (16, 12), ml_dtypes.bfloat16, None),
    ((9, 7, 5), (2, 7, 3), (4, 7, 3), np.float64, 'float16'),
    ((64, 48), (64, 48), (64, 48), np.float32, 'bfloat16'),
    ((40, 30), (7, 30), (14, 30), np.int8, 'int64'),
    ((300, 70), (100, 70), (300, 70), np.complex64, None),
    ((2, 8), (1, 8), (1, 8), ml_dtypes.float8_e4m3fn, None),
    ((2, 8), (1, 8), (1, 8), np.bool_, None),
    ((16, 16), (16, 16), (16, 16), ml_dtypes.int4, None)]


@pytest.mark.parametrize('zarr', [2, 3])
@pytest.mark.parametrize('compression', ['none', 'zstd', 'zstd:3', 'blosc', 'auto'])
def test_tensorstore_reads_what_is_written(tmp_path, zarr, compression):
    made = {f'a.{i}': (values(shape, dtype), chunk, box, stored) for i, (shape, chunk, box, dtype, stored) in enumerate(CASES)}
    made['turned'] = (values((48, 20), np.float32).T, (20, 48), (20, 48), None)
    made['repeated'] = (np.broadcast_to(np.float32(7), (12, 9)), (12, 9), (12, 9), None)
    arrays = [array(name, a, chunk, cut(a, box), stored) for name, (a, chunk, box, stored) in made.items()]
    lib.write_database(str(tmp_path / 'ocdbt.process_0'), f'compression={compression},zarr={zarr}', arrays, None)
    for name, (a, chunk, _, stored) in made.items():
        got, stored_chunk = read(tmp_path / 'ocdbt.process_0', name, zarr)
        want = a if stored is None else a.astype(np.dtype(stored))
        assert got.dtype == want.dtype and got.tobytes() == want.tobytes() and stored_chunk == chunk, name


@pytest.mark.parametrize('compression', ['none', 'zstd'])
def test_chunks_larger_than_the_budget_are_encoded_in_pieces(tmp_path, compression):
    a = np.random.default_rng(0).standard_normal((700, 1200), np.float32)
    big = np.zeros((1400, 1300), np.float32)
    big[:700, 50:1250] = a
    arrays = [array('whole', a, (700, 1200), cut(a, (700, 1200))), array('cast', a, (500, 1200), cut(a, (500, 1200)), 'bfloat16'),
              array('inner', a, (700, 1200), [((0, 0), _dtypes.raw(big[:700, 50:1250]))])]
    lib.write_database(str(tmp_path / 'x'), f'compression={compression},write_budget=1M', arrays, None)
    for name, want in (('whole', a), ('cast', a.astype(ml_dtypes.bfloat16)), ('inner', a)):
        assert read(tmp_path / 'x', name)[0].tobytes() == want.tobytes()


def test_two_processes_share_an_array(tmp_path):
    """Only one writes its document, and both compress it alike without knowing the elements of the other."""
    a = np.random.default_rng(0).standard_normal((64, 4096), np.float32)
    parts = cut(a, (32, 4096))
    paths = [tmp_path / f'ocdbt.process_{i}' for i in range(2)]
    for i, flags in enumerate((lib.ARRAY_SHARED, lib.ARRAY_SHARED | lib.ARRAY_NO_METADATA)):
        lib.write_database(str(paths[i]), 'compression=auto', [array('w', a, (32, 4096), [parts[i]], flags=flags)], None)
    assert [ts.KvStore.open(kvstore(path)).result().list().result() for path in paths] == [[b'w/.zarray', b'w/0.0'], [b'w/1.0']]
    asyncio.run(ocdbt_utils.merge_ocdbt_per_process_files(epath.Path(tmp_path), tensorstore_utils.get_ts_context(), use_zarr3=False))
    assert read(tmp_path, 'w')[0].tobytes() == a.tobytes()


A = values((64, 48), np.float32)
REFUSED = [
    (array('w', A, (16, 48), [((8, 0), _dtypes.raw(A[8:24]))]), "'w': elements 8 to 24 on axis 0 are not whole chunks of 16"),
    (array('w', A, (16, 48), [((0, 0), _dtypes.raw(A[:24]))]), "'w': elements 0 to 24 on axis 0 are not whole chunks of 16"),
    (array('w', A[:60], (16, 48), [((48, 0), _dtypes.raw(A[48:]))]), "'w': elements 48 to 64 on axis 0 of an array that has 60"),
    (array('w', A, (64, 48), [((0, 0), _dtypes.raw(A[::-1]))]), "'w': elements in reverse order on axis 0"),
    (array('w', A, (0, 48), []), "'w': an array without elements, or a chunk"),
    (array('w', A, (64, 48), [], 'float3'), "'w': 'float3' is not a dtype")]


@pytest.mark.parametrize('one, text', REFUSED)
def test_what_is_refused(tmp_path, one, text):
    with pytest.raises(lib.Error, match=text):
        lib.write_database(str(tmp_path / 'x'), '', [one], None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('fault', ['write:enospc:1', 'sync:eio:1', 'mkdir:eacces:1'])
def test_a_failure_leaves_nothing(tmp_path, fault):
    with pytest.raises(lib.Error) as e:
        lib.write_database(str(tmp_path / 'x'), f'io=fault({fault}):auto', [array('w', A, (16, 48), cut(A, (16, 48)))], None)
    assert e.value.errno == getattr(errno, fault.split(':')[1].upper()) and not (tmp_path / 'x').exists()


def test_a_database_that_is_there_stays(tmp_path):
    one = array('w', A, (64, 48), cut(A, (64, 48)))
    lib.write_database(str(tmp_path / 'x'), '', [one], None)
    with pytest.raises(lib.ExistsError):
        lib.write_database(str(tmp_path / 'x'), '', [one], None)
    assert read(tmp_path / 'x', 'w')[0].tobytes() == A.tobytes()


def test_progress_and_its_end(tmp_path):
    seen = []
    lib.write_database(str(tmp_path / 'x'), '', [array('w', A, (16, 48), cut(A, (16, 48)))], lambda done, total: seen.append((done, total)))
    assert seen[-1] == (A.nbytes, A.nbytes) and seen == sorted(seen)

    def stop(done, total):
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        lib.write_database(str(tmp_path / 'y'), '', [array('w', A, (16, 48), cut(A, (16, 48)))], stop)
    assert not (tmp_path / 'y').exists()
