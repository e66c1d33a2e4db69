# SPDX-License-Identifier: Apache-2.0
"""What TensorStore's s3 driver writes into a bucket, and reads from it."""

import io

import numpy as np
import pytest
import tensorstore as ts

from lib import buckets

VALUE = np.arange(35, dtype='f4').reshape(7, 5)
ZARR2 = {'driver': 'zarr', 'metadata': {'shape': [7, 5], 'chunks': [4, 3], 'dtype': '<f4',
                                        'compressor': {'id': 'zstd', 'level': 1}}}
ZARR3 = {'driver': 'zarr3', 'metadata': {'shape': [7, 5], 'data_type': 'float32'}}


def kvstore(address, path):
    return {'driver': 's3', 'bucket': 'tensorstore', 'endpoint': f'http://{address}', 'aws_region': buckets.REGION, 'path': path}


@pytest.fixture(scope='module')
def bucket(moto):
    return buckets.Bucket(moto, 'tensorstore')


@pytest.mark.parametrize('zarr, in_database', [(ZARR2, False), (ZARR2, True), (ZARR3, False), (ZARR3, True)])
def test_an_array_that_tensorstore_wrote(run, moto, bucket, s3, zarr, in_database):
    where = f'{zarr["driver"]}-{"database" if in_database else "files"}'

    def spec(address):
        """The same item by moto's address, or by the proxy's, which checks signatures."""
        if in_database:
            return {**zarr, 'kvstore': {'driver': 'ocdbt', 'base': kvstore(address, f'{where}/'), 'path': 'a/'}}
        return {**zarr, 'kvstore': kvstore(address, f'{where}/a/')}
    ts.open(spec(moto), create=True).result().write(VALUE).result()
    assert run('ls', f's3://tensorstore/{where}').stdout.split() == ['a.npy']
    got = np.load(io.BytesIO(run('cat', f's3://tensorstore/{where}/a.npy', text=False).stdout))
    assert got.dtype == VALUE.dtype and np.array_equal(got, VALUE)
    # The proxy takes the signatures of another program, too.
    s3.requests.clear()
    assert np.array_equal(ts.open(spec(s3.url.removeprefix('http://')), open=True, create=False).result().read().result(), VALUE)
    assert s3.requests
