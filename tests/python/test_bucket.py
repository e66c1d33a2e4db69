# SPDX-License-Identifier: Apache-2.0
"""A source in a bucket is one as any other."""

import pathlib

import numpy as np
import pytest

import pytreefs
from lib import buckets

SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data/sample'


@pytest.fixture(scope='module')
def bucket(moto):
    b = buckets.Bucket(moto, 'of-python')
    b.upload(SAMPLE, 'run')
    return b


def test_load(bucket, s3):
    want = pytreefs.load_flat(SAMPLE / '1500/state')
    for source in ('s3://of-python/run/1500/state', 's3://of-python/run/latest/state'):
        got = pytreefs.load_flat(source)
        assert got.keys() == want.keys()
        assert all(np.array_equal(got[k], v) if isinstance(v, np.ndarray) else got[k] == v for k, v in want.items())
    with pytreefs.open('s3://of-python/run', region=buckets.REGION) as ck:
        assert sorted(ck) == sorted(p.name for p in SAMPLE.iterdir() if p.name != 'metadata')


def test_refused(bucket, s3):
    with pytest.raises(pytreefs.Error, match='AuthorizationHeaderMalformed') as e:
        pytreefs.load('s3://of-python/run/1500', region='us-east-1')
    assert buckets.SECRET not in str(e.value)
