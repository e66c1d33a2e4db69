# SPDX-License-Identifier: Apache-2.0
"""A source in a bucket is one as any other."""

import pathlib

import numpy as np
import pytest

import pytreefs
from lib import buckets

SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data/sample'


BUCKET = 'of-python'
IN_MEMORY = True  # both for the fixtures


@pytest.fixture(scope='module')
def s3_bucket(s3_bucket):
    s3_bucket.upload(SAMPLE, 'run')
    return s3_bucket


@pytest.fixture(scope='module')
def gs_bucket(gs_bucket):
    gs_bucket.upload(SAMPLE, 'run')
    return gs_bucket


@pytest.mark.parametrize('scheme, options', [('s3', {'region': buckets.REGION}), ('gs', {})])
def test_load(request, scheme, options):
    request.getfixturevalue(f'{scheme}_bucket')
    proxy = request.getfixturevalue(scheme)
    root, want = f'{scheme}://of-python/run', pytreefs.load_flat(SAMPLE / '1500/state')
    for source in (f'{root}/1500/state', f'{root}/latest/state'):
        got = pytreefs.load_flat(source)
        assert got.keys() == want.keys()
        assert all(np.array_equal(got[k], v) if isinstance(v, np.ndarray) else got[k] == v for k, v in want.items())
    with pytreefs.open(root, endpoint=proxy.url, **options) as ck:
        assert sorted(ck) == sorted(p.name for p in SAMPLE.iterdir() if p.name != 'metadata')


def test_fsspec_takes_a_url(s3_bucket, s3):
    """pytreefs://s3://BUCKET/PREFIX: names are those of a mount, and the latest step is the one of now."""
    import fsspec
    from pytreefs._fsspec import FileSystem
    fsspec.register_implementation('pytreefs', FileSystem, clobber=True)
    root = 'pytreefs://s3://of-python/run'
    fs = fsspec.filesystem('pytreefs', skip_instance_cache=True)
    want = np.asarray(pytreefs.load(SAMPLE / '1500/state/params/embed/table.npy', dtype='float32'))
    for step in ('1500', 'latest'):
        with fs.open(f'{root}/{step}/state/params/embed/table@float32.npy') as f:
            assert np.array_equal(np.load(f), want)
    with fsspec.open(f'{root}/1500/state/step.json', 'rt', skip_instance_cache=True) as f:
        assert f.read() == '1500\n'
    assert fs.ls(f'{root}/1500/state/params/embed', detail=False) == ['s3://of-python/run/1500/state/params/embed/table.npy']
    assert fs.info(f'{root}/1500/state')['type'] == 'directory' and not fs.exists(f'{root}/1500/nope')
    got = fs.cat_ranges([f'{root}/1500/state/step.json'] * 2, [0, 2], [2, 4])
    assert got == [b'15', b'00']
    with pytest.raises(FileNotFoundError):
        fs.info('pytreefs://s3://of-python/nothing/here')


def test_a_cache_on_disk(s3_bucket, s3, tmp_path):
    where = 's3://of-python/run/1500/state'
    want = pytreefs.load_flat(where, cache_dir=str(tmp_path / 'cache'))
    fetched = sum(r is not None for _, _, r in s3.requests)
    got = pytreefs.load_flat(where, cache_dir=str(tmp_path / 'cache'), cache_dir_limit='1G')
    assert sum(r is not None for _, _, r in s3.requests) == fetched > 0
    assert got.keys() == want.keys() and all(np.array_equal(got[k], v) for k, v in want.items())


@pytest.mark.parametrize('scheme', ['s3', 'gs'])
def test_save(request, scheme):
    bucket = request.getfixturevalue(f'{scheme}_bucket')
    request.getfixturevalue(scheme)
    tree = {'w': np.arange(6, dtype='f4').reshape(2, 3), 'step': 7}
    pytreefs.save(f'{scheme}://of-python/saved/7', tree)
    got = pytreefs.load(f'{scheme}://of-python/saved/7')
    assert np.array_equal(got['w'], tree['w']) and got['step'] == 7
    with pytest.raises(FileExistsError, match='is there already'):
        pytreefs.save(f'{scheme}://of-python/saved/7', tree)
    assert not any('.pytreefs' in key for key in bucket.keys())


def test_refused(s3_bucket, s3):
    with pytest.raises(pytreefs.Error, match='AuthorizationHeaderMalformed') as e:
        pytreefs.load('s3://of-python/run/1500', region='us-east-1')
    assert buckets.SECRET not in str(e.value)
