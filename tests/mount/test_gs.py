# SPDX-License-Identifier: Apache-2.0
"""Features of Google Cloud Storage buckets only: names that are escaped, generations, its JSON, the chain of Google's
credentials. The rest is in test_buckets.py."""

import json
import os
import pathlib

import pytest

from lib import compare, gcs as gcs_server, mounts

SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data/sample'
IN_MEMORY = True  # for the fixtures
LEAF = 'state/params/embed/table.npy'


@pytest.fixture(scope='module')
def bucket(gs_server):
    """A bucket whose run/ is the sample; tests write elsewhere in it."""
    b = gcs_server.Bucket(gs_server, 'checkpoints')
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
    (401, 'authError', 'status 401 (authError): the server does not take the credentials'),
    (403, 'forbidden', 'status 403 (forbidden): it may not be read with these credentials'),
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
    ('gs:///run', "'gs:///run' names no bucket or host: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX"),
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


# ---- credentials and places ----


@pytest.mark.option('anonymous')
def test_anonymous(run, gs):
    url = 'gs://checkpoints/run'
    want = run('ls', url).stdout
    r = run('ls', '-o', 'anonymous', url, ok=False)
    assert r.returncode == 1 and 'status 401 (required): it may not be read without credentials' in r.stderr, r.stderr
    gs.anonymous = True
    gs.seen.clear()
    assert run('ls', '-o', 'anonymous', url, env=dict(os.environ, GOOGLE_APPLICATION_CREDENTIALS='/none')).stdout == want
    assert not gs.seen


@pytest.mark.option('endpoint')
def test_where_requests_go(run, gs):
    """Options, then STORAGE_EMULATOR_HOST, with or without a scheme and never with a token, then TENSORSTORE_GCS_HTTP_URL."""
    url, nowhere = 'gs://checkpoints/run/1500', 'http://127.0.0.1:1'
    want = run('ls', url).stdout
    gs.anonymous = True
    for env, options, has_token in (
            ({'STORAGE_EMULATOR_HOST': gs.url.removeprefix('http://'), 'TENSORSTORE_GCS_HTTP_URL': nowhere}, (), False),
            ({'STORAGE_EMULATOR_HOST': '', 'TENSORSTORE_GCS_HTTP_URL': f'{gs.url}/'}, (), True),
            ({'STORAGE_EMULATOR_HOST': nowhere}, ('-o', f'endpoint={gs.url}'), True)):
        gs.requests.clear()
        gs.seen.clear()
        assert run('ls', *options, url, env=dict(os.environ, **env)).stdout == want
        assert gs.requests and bool(gs.seen) == has_token
    r = run('ls', '-o', 'endpoint=http://storage.example.org', url, ok=False)
    assert r.returncode == 1 and "a token would be sent to 'http://storage.example.org/" in r.stderr, r.stderr
    for bad, why in (('https://u:secret@host', 'an endpoint with a user'), ('ftp://host', "the endpoint 'ftp://host' is not a URL")):
        r = run('ls', '-o', f'endpoint={bad}', url, ok=False)
        assert r.returncode == 1 and why in r.stderr and 'secret@' not in r.stderr, r.stderr


def test_the_file_of_gcloud(run, gs, tmp_path):
    """The file of `gcloud auth application-default login` is the default; a named key of a service comes first."""
    def ask(kind, **env):
        before = len(gs.vendor.given)
        (tmp_path / '.config/gcloud').mkdir(parents=True, exist_ok=True)
        (tmp_path / '.config/gcloud/application_default_credentials.json').write_text(json.dumps(gs.vendor.account(kind)))
        r = run('ls', 'gs://checkpoints/run', env=dict(os.environ, GOOGLE_APPLICATION_CREDENTIALS='', **env))
        assert r.stdout == '1000/\n1500/\n' and len(gs.vendor.given) == before + 1
    ask('user', CLOUDSDK_CONFIG='', HOME=str(tmp_path))
    ask('service', CLOUDSDK_CONFIG=str(tmp_path / '.config/gcloud'))


@pytest.mark.parametrize('change, why', [
    ({'type': 'external_account'}, "has credentials of the type 'external_account', which are not followed here: give the key of a service"),
    ({'type': None}, 'does not say of which type its credentials are'),
    ({'refresh_token': None}, "has no 'refresh_token'"),
    ({'type': 'service_account'}, "has no 'client_email'"),
    ({'type': 'service_account', 'client_email': 'a', 'private_key': 'secret'}, 'the private key is not an RSA key in PEM'),
    ({'token_uri': 'http://example.org/token'}, 'is neither a URL of https nor one of this machine'),
    ({'client_secret': ''}, 'has a value that no file of credentials has'),
])
def test_files_that_are_refused(run, gs, tmp_path, change, why):
    file = tmp_path / 'changed.json'
    file.write_text(json.dumps(gs.vendor.account('user', **change)))
    r = run('ls', 'gs://checkpoints/run', ok=False, env=dict(os.environ, GOOGLE_APPLICATION_CREDENTIALS=str(file)))
    assert r.returncode == 1 and why in r.stderr and str(file) in r.stderr, r.stderr
    assert 'secret' not in r.stderr.replace('client_secret', '') and not gs.requests


@pytest.mark.parametrize('env, why', [
    ({'GOOGLE_APPLICATION_CREDENTIALS': '/none/such.json'}, "no credentials: cannot open '/none/such.json'"),
    ({'GOOGLE_APPLICATION_CREDENTIALS': '/etc/hostname'}, "'/etc/hostname' is not a file of credentials: it is not JSON"),
    ({'GOOGLE_APPLICATION_CREDENTIALS': ''}, "GOOGLE_APPLICATION_CREDENTIALS is not set, and '"),
    ({'GOOGLE_APPLICATION_CREDENTIALS': '', 'NO_GCE_CHECK': '', 'GCE_METADATA_HOST': '127.0.0.1:1'}, "cannot read 'the machine's metadata'"),
    ({'GOOGLE_APPLICATION_CREDENTIALS': '', 'NO_GCE_CHECK': '', 'GCE_METADATA_HOST': 'a/b?'}, 'the value of GCE_METADATA_HOST is not HOST'),
])
def test_no_credentials(run, gs, env, why):
    r = run('ls', 'gs://checkpoints/run', ok=False, env=dict(os.environ, **env))
    assert r.returncode == 1 and why in r.stderr and not gs.requests, r.stderr


@pytest.mark.parametrize('skew, why', [(7200, 'seconds behind'), (-7200, 'seconds ahead of'), (0, '')])
def test_clocks_that_differ(run, gs, tmp_path, monkeypatch, skew, why):
    """The times in the token of a service account are not taken then, and the reason is not that of a key that is not known."""
    for name, value in gs.vendor.environment('service', tmp_path).items():
        monkeypatch.setenv(name, value)
    gs.vendor.skew, gs.vendor.is_revoked = skew, True
    r = run('ls', 'gs://checkpoints/run', ok=False)
    assert r.returncode == 1 and 'status 400 (invalid_grant)' in r.stderr and not gs.requests, r.stderr
    assert why in r.stderr and ('the clock of this machine is 7' in r.stderr or not skew) and bool(skew) == ('clock' in r.stderr), r.stderr


def test_another_server_in_place_of_the_metadata(run, gs, tmp_path):
    """A server whose reply is not marked as one of metadata: its token is never sent."""
    gs.vendor.flavor = None
    r = run('ls', 'gs://checkpoints/run', ok=False, env=dict(os.environ, **gs.vendor.environment('machine', tmp_path)))
    assert r.returncode == 1 and "the answer has no header 'Metadata-Flavor: Google'" in r.stderr and not gs.requests, r.stderr


def test_a_token_that_is_not_taken_any_more(mount, gs):
    """Reads that are refused are asked for again, with another token, which is asked for once."""
    m = mount('gs://checkpoints/run/1500', 'cache=0')
    want = compare.read_all(m / 'state/params/embed/table[0:1].npy')
    mounts.wait_for_release(m)
    assert len(gs.vendor.given) == 1
    gs.tokens.clear()
    assert compare.read_all(m / LEAF) == compare.read_all(mount(SAMPLE / '1500') / LEAF)
    assert compare.read_all(m / 'state/params/embed/table[0:1].npy') == want
    assert len(gs.vendor.given) == 2
