# SPDX-License-Identifier: Apache-2.0
"""What only buckets of Google Cloud Storage have: names that are escaped, generations, its JSON. The rest is in test_buckets.py."""

import os
import pathlib

import pytest

from lib import compare, gcs as gcs_server

SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data/sample'
LEAF = 'state/params/embed/table.npy'


@pytest.fixture(scope='module')
def bucket(gcs):
    """A bucket whose run/ is the sample; tests write elsewhere in it."""
    b = gcs_server.Bucket(gcs, 'checkpoints')
    b.upload(SAMPLE, 'run')
    return b


@pytest.fixture
def gs(bucket, gs):
    return gs


def test_names_that_are_escaped(run, mount, bucket, gs):
    """In the path, where '/' is escaped, and in the prefix of a listing; with directories that are objects of their own."""
    prefix = 'läufe/a b+c?#&%2F"~(1)/ü'
    bucket.put(f'{prefix}/', b'')
    bucket.put(f'{prefix}/1500/', b'')
    bucket.upload(SAMPLE / '1500', f'{prefix}/1500')
    url = f'gs://checkpoints/{prefix}'
    assert run('ls', url).stdout == '1500/\n'
    assert run('cat', f'{url}/1500/{LEAF}', text=False).stdout == run('cat', SAMPLE / '1500' / LEAF, text=False).stdout
    assert compare.contents(mount(url).path) == {k: v for k, v in compare.contents(mount(SAMPLE).path).items() if k.startswith('1500')}


def test_what_is_asked(run, gs):
    """Each range of an object has the generation of the listing as a condition."""
    run('cat', f'gs://checkpoints/run/1500/{LEAF}', text=False)
    reads = [path for method, path, part in gs.requests if part]
    assert reads and all('?alt=media&ifGenerationMatch=1' in path for path in reads), gs.requests
    assert all(method == 'GET' for method, _, _ in gs.requests)


@pytest.mark.parametrize('status, reason, why', [
    (401, 'required', 'status 401 (required): it may not be read without credentials'),
    (403, 'forbidden', 'status 403 (forbidden): it may not be read without credentials'),
    (404, 'notFound', 'status 404 (notFound): the bucket does not exist'),
    (400, 'required', 'status 400 (required): its readers pay for requests'),
    (429, 'rateLimitExceeded', 'status 429 (rateLimitExceeded), after 6 tries'),
    (503, 'backendError', 'status 503 (backendError), after 6 tries'),
])
def test_refusals(run, gs, status, reason, why):
    gs.fault = lambda h: h.refuse(status, reason, Retry_After='0') or True
    r = run('ls', 'gs://checkpoints/run', ok=False)
    assert r.returncode == 1 and f"cannot read 'gs://checkpoints/run': {why}" in r.stderr, r.stderr


@pytest.mark.parametrize('url, why', [
    ('gs://other-one/run', "cannot read 'gs://other-one/run': status 404 (notFound): the bucket does not exist"),
    ('gs://checkpoints/run/1500/none', "'gs://checkpoints/run/1500' has no 'none'"),
    ('gs://checkpoints/run/../run', "has '..' as a part of its path"),
    ('gs:///run', "'gs:///run' has no name of a bucket: gs://BUCKET/PREFIX"),
])
def test_sources_that_do_not_exist(run, gs, url, why):
    r = run('ls', url, ok=False)
    assert r.returncode == 1 and why in r.stderr, r.stderr


@pytest.mark.parametrize('answer, why', [
    (b'', "the listing of 'gs://checkpoints/run': its JSON: line 1, column 1: the document is truncated"),
    (b'<html>Sign in</html>', "the listing of 'gs://checkpoints/run': its JSON: line 1, column 1: not JSON"),
    (b'{"items": [{"name": "run/a"}]}', 'an object without a name and a size'),
    (b'{"items": [{"name": "run/a", "size": "-1"}]}', 'a size that is not a number'),
    (b'{"items": [{"name": "run/a", "size": "1", "generation": "1&x=y"}]}', 'a generation that is not a number'),
    (b'{"items": [{"name": "elsewhere", "size": "1"}]}', "a key that does not begin with the prefix 'run/'"),
    (b'{"prefixes": ["run/a/b/"]}', "it has keys of directories below 'run/'"),
    (b'{"nextPageToken": ""}', 'a token of a page that is not one'),
    (b'[' * 2000, 'its JSON: '),
])
def test_a_listing_that_is_malformed(run, gs, answer, why):
    gs.fault = lambda h: h.answer(200, [], answer) or True
    r = run('ls', 'gs://checkpoints/run', ok=False)
    assert r.returncode == 1 and why in r.stderr, r.stderr


def test_where_requests_go(run, gs):
    """Options, then STORAGE_EMULATOR_HOST, with or without a scheme, then TENSORSTORE_GCS_HTTP_URL."""
    url = 'gs://checkpoints/run/1500'
    want = run('ls', url).stdout
    bare = {k: v for k, v in os.environ.items() if k != 'STORAGE_EMULATOR_HOST'}
    nowhere = 'http://127.0.0.1:1'
    for env, options in (({'STORAGE_EMULATOR_HOST': gs.url.removeprefix('http://'), 'TENSORSTORE_GCS_HTTP_URL': nowhere}, ()),
                         ({'TENSORSTORE_GCS_HTTP_URL': f'{gs.url}/'}, ('-o', 'anonymous')),
                         ({'STORAGE_EMULATOR_HOST': nowhere}, ('-o', f'anonymous,endpoint={gs.url}'))):
        gs.requests.clear()
        assert run('ls', *options, url, env=dict(bare, **env)).stdout == want
        assert gs.requests
    for bad, why in (('https://u:secret@host', 'an endpoint with a user'), ('ftp://host', "the endpoint 'ftp://host' is not a URL")):
        r = run('ls', '-o', f'endpoint={bad}', url, ok=False)
        assert r.returncode == 1 and why in r.stderr and 'secret@' not in r.stderr, r.stderr
