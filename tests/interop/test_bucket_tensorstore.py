# SPDX-License-Identifier: Apache-2.0
"""TensorStore's s3 and gcs drivers write into a bucket, and read from it."""

import io

import numpy as np
import pytest
import tensorstore as ts

from lib import bucket_writers, buckets
from lib.pairs import pairs

BUCKET = 'tensorstore'
IN_MEMORY = True  # both for the fixtures
VALUE = np.arange(35, dtype='f4').reshape(7, 5)
ZARR2 = {'driver': 'zarr', 'metadata': {'shape': [7, 5], 'chunks': [4, 3], 'dtype': '<f4',
                                        'compressor': {'id': 'zstd', 'level': 1}}}
ZARR3 = {'driver': 'zarr3', 'metadata': {'shape': [7, 5], 'data_type': 'float32'}}
# Its driver has one for the process: the first that it finds.
TOKEN = 'ya29.of-tensorstore'


@pytest.fixture
def kvstore(bucket, proxy, monkeypatch):
    """kvstore(path): at the proxy, which takes another program for what it is, and checks who asks."""
    address = proxy.url.removeprefix('http://')

    def of_s3(path):
        return {'driver': 's3', 'bucket': 'tensorstore', 'endpoint': f'http://{address}', 'aws_region': buckets.REGION, 'path': path}

    def of_gs(path):
        monkeypatch.setenv('TENSORSTORE_GCS_HTTP_URL', f'http://{address}')
        return {'driver': 'gcs', 'bucket': 'tensorstore', 'path': path}
    if bucket.scheme == 'gs':
        monkeypatch.setenv('GOOGLE_AUTH_TOKEN_FOR_TESTING', TOKEN)
        proxy.tokens.add(TOKEN)
    return of_s3 if bucket.scheme == 's3' else of_gs


@pytest.mark.parametrize('bucket, zarr, in_database', pairs(['s3', 'gs'], [ZARR2, ZARR3], [False, True]), indirect=['bucket'])
def test_an_array_that_tensorstore_wrote(run, bucket, proxy, kvstore, zarr, in_database):
    where = f'{zarr["driver"]}-{"database" if in_database else "files"}'
    source = f'{bucket.scheme}://tensorstore/{where}'

    store = {'driver': 'ocdbt', 'base': kvstore(f'{where}/'), 'path': 'a/'} if in_database else kvstore(f'{where}/a/')
    ts.open({**zarr, 'kvstore': store}, create=True).result().write(VALUE).result()
    options = '-o', f'endpoint={proxy.url}'
    assert run('ls', *options, source).stdout.split() == ['a.npy']
    got = np.load(io.BytesIO(run('cat', *options, f'{source}/a.npy', text=False).stdout))
    assert got.dtype == VALUE.dtype and np.array_equal(got, VALUE)
    proxy.requests.clear()
    assert np.array_equal(ts.open({**zarr, 'kvstore': store}, open=True, create=False).result().read().result(), VALUE)
    assert proxy.requests


@pytest.mark.parametrize('bucket, option', pairs(['s3', 'gs'], ['zarr=2', 'zarr=2,ocdbt=off', 'zarr=3', 'zarr=3,ocdbt=off']), indirect=['bucket'])
def test_a_step_that_was_saved_there(run, bucket, proxy, kvstore, tmp_path, option):
    """TensorStore restores it, equal to the bit: what one request has put, and what came in parts."""
    zarr = 'zarr3' if 'zarr=3' in option else 'zarr'
    where = f'saved-{option.replace(",", "-")}'
    step = f'{bucket.scheme}://tensorstore/{where}/3'
    values = {'small': VALUE, 'large': np.random.default_rng(3).standard_normal((3000, 700))}
    (tmp_path / 'in').mkdir()
    for name, value in values.items():
        np.save(tmp_path / f'in/{name}.npy', value)
    run('save', '-o', f'endpoint={proxy.url},compression=none,chunk_byte_size=16M,write_budget=16M,{option}', tmp_path / 'in', step)
    for name, value in values.items():
        if 'ocdbt=off' in option:
            store = kvstore(f'{where}/3/default/{name}/')
        else:
            store = {'driver': 'ocdbt', 'base': kvstore(f'{where}/3/default/'), 'path': f'{name}/'}
        got = ts.open({'driver': zarr, 'kvstore': store}, open=True, create=False).result().read().result()
        assert got.dtype == value.dtype and np.array_equal(got, value)
        ours = np.load(io.BytesIO(run('cat', '-o', f'endpoint={proxy.url}', f'{step}/default/{name}.npy', text=False).stdout))
        assert np.array_equal(ours, value)


@pytest.mark.parametrize('bucket, write', pairs(['s3', 'gs'], [bucket_writers.copy_into_a_draft, bucket_writers.save_by_the_library,
                                                               bucket_writers.convert, bucket_writers.convert_by_ranks]), indirect=['bucket'])
def test_each_writer(mount, run, program, bucket, proxy, kvstore, tmp_path, write):
    """TensorStore restores from the bucket what a mount, the library, convert and ranks of a job wrote there. The data file has several parts."""
    values = {'small': VALUE, 'large': np.random.default_rng(3).standard_normal((3000, 700))}
    (tmp_path / 'in').mkdir()
    for name, value in values.items():
        np.save(tmp_path / f'in/{name}.npy', value)
    run('save', '-o', 'compression=none', tmp_path / 'in', tmp_path / 'steps/3')
    where = f'by-{write.__name__}'
    write(mount, program, tmp_path / 'steps', f'{bucket.scheme}://tensorstore/{where}')
    for name, value in values.items():
        store = {'driver': 'ocdbt', 'base': kvstore(f'{where}/3/default/'), 'path': f'{name}/'}
        got = ts.open({'driver': 'zarr', 'kvstore': store}, open=True, create=False).result().read().result()
        assert got.dtype == value.dtype and np.array_equal(got, value)
