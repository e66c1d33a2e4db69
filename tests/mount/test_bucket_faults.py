# SPDX-License-Identifier: Apache-2.0
"""Faults of a bucket while it is read and written: the right bytes, or an error that names the object; a step that is whole, or none; and no
secret in any output, nor with another host."""

import contextlib
import errno
import itertools
import os
import pathlib
import subprocess
import sys
import threading
import time
import types
import urllib.parse

import numpy as np
import pytest
import safetensors.numpy

from lib import buckets, dying_upload, gcs as gcs_server, mounts, package, servers
from lib.pairs import pairs

BUCKET = 'faults'
IN_MEMORY = True  # both for the fixtures
SCHEMES = 's3', 'gs'
TOP = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = TOP / 'tests/data/sample'
TABLE = 'state/params/embed/table'
MARKER = dying_upload.MARKER
LIBRARY = 'import sys, pytreefs; {}'


@pytest.fixture
def root(bucket, proxy, spill):
    return f'{bucket.scheme}://{BUCKET}/run'


@pytest.fixture
def step(bucket, root):
    """The URL of the sample's step."""
    bucket.upload(SAMPLE / '1500', 'run/1500')
    return f'{root}/1500'


def library(code, *words, **env):
    """A program of Python that uses the library."""
    program = pathlib.Path(os.environ['PYTREEFS_BUILD']).resolve() / 'pytreefs'
    return subprocess.run([sys.executable, '-c', LIBRARY.format(code), *map(str, words)], capture_output=True, text=True, timeout=240,
                          env=package.environment(program) | env)


def is_data(h):
    """Whether a request reads data files."""
    return h.command == 'GET' and h.headers.get('Range') and '/d/' in urllib.parse.unquote(h.path)


def file_of(path):
    return urllib.parse.unquote(path).partition('?')[0].rpartition('/')[2]


# ---- reading ----


def test_pauses_that_a_server_asks_for(run, proxy, step):
    """429 and 503 of a range, with and without Retry-After, which is honoured."""
    answers = [(503, {}), (429, {}), (429, {'Retry_After': '1'})]
    lock = threading.Lock()

    def fault(h):
        with lock:
            if not answers or not is_data(h):
                return False
            status, headers = answers.pop(0)
        h.refuse(status, 'SlowDown', **headers)
        return True
    proxy.fault = fault
    began = time.monotonic()
    assert run('cat', f'{step}/{TABLE}.npy', text=False).stdout == run('cat', SAMPLE / f'1500/{TABLE}.npy', text=False).stdout
    assert not answers and time.monotonic() - began >= 1


def test_an_object_that_is_deleted(mount, bucket, proxy, step):
    """Between two ranges of a file that is open: an error that names it and the range; what is elsewhere is read."""
    m = mount(step, 'cache=0', allow_errors=True)
    assert (m / f'{TABLE}[0:1].npy').read_bytes()
    mounts.wait_for_release(m)
    deleted = {file_of(path) for method, path, part in proxy.requests if part and '/d/' in path}
    for key in bucket.keys():
        if file_of(key) in deleted:
            bucket.delete(key)
    with pytest.raises(OSError) as e:
        (m / f'{TABLE}.npy').read_bytes()
    assert e.value.errno in (errno.EIO, errno.ESTALE)
    said = [line for line in m.log_lines() if any(name in line for name in deleted)]
    assert any(f'{step}/' in line and ' bytes' in line and 'offset' in line for line in said), m.log_lines()
    for name in ('config/metadata', 'metrics/metrics'):
        assert (m / name).read_bytes() == (SAMPLE / '1500' / name).read_bytes()


def test_a_server_that_fails_is_not_asked_without_end(mount, proxy, step):
    """Each of many reads is tried again at first; when too many fail, only once. When the server is well again, so is the mount."""
    m = mount(step, 'cache=0', allow_errors=True)
    assert (m / 'state/opt_state/0/count.npy').read_bytes()
    mounts.wait_for_release(m)
    asked = []

    def fault(h):
        if not is_data(h):
            return False
        asked.append(h.path)
        h.refuse(503, 'SlowDown', Retry_After='0')
        return True
    before = m.stats()
    proxy.fault = fault
    for i in range(40):
        with pytest.raises(OSError) as e:
            (m / f'{TABLE}[{i}:{i + 1},1:].npy').read_bytes()
        assert e.value.errno == errno.EIO
    stats = m.stats()
    requests, retries = (stats[f'url_{name}'] - before[f'url_{name}'] for name in ('requests', 'retries'))
    # The kernel may ask a second time for what failed. Six times as many would be asked without a bound.
    assert requests >= 40 and 20 < retries <= 80 and len(asked) <= requests + 80, (requests, retries, len(asked))
    assert any('too many requests fail for more' in line for line in m.log_lines())
    proxy.fault = None
    assert (m / f'{TABLE}.npy').read_bytes() == (mount(SAMPLE / '1500') / f'{TABLE}.npy').read_bytes()


# ---- a load of large chunks, of which each request fails once ----


@pytest.fixture(scope='module')
def loads(build, tmp_path_factory):
    """Reads a checkpoint by the library: loads(URL, its environment, more options) returns the CompletedProcess."""
    program, library = tmp_path_factory.mktemp('loads') / 'loads', build / 'tools/lib'
    # With a library that is built with a sanitizer the program has it, too: it must be loaded first.
    code = (build / 'pytreefs').read_bytes()
    kinds = [f'-fsanitize={kind}' for kind in ('address', 'thread') if f'__{kind[0]}san_init'.encode() in code]
    subprocess.run(['cc', *kinds, f'-I{TOP}', TOP / 'tests/lib/loads.c', '-o', program, f'-L{library}', f'-Wl,-rpath,{library}',
                    '-lpytreefs'], check=True)

    def do(url, env, options):
        # With so little memory each array, which is a chunk, is read by many requests.
        return subprocess.run([program, url, f'threads=2,read_budget=2M{options}'], env=env, capture_output=True, text=True, timeout=240)
    return do


@pytest.fixture(scope='module')
def large(program, tmp_path_factory):
    """A checkpoint of two large chunks and a small one."""
    where, values = tmp_path_factory.mktemp('large'), np.random.default_rng(5).integers(0, 256, (2, 3 << 20), np.uint8)
    safetensors.numpy.save_file({'a': values[0].view('f4'), 'b': values[1].view('u2').reshape(3, -1), 'c': np.arange(10)}, where / 'x.safetensors')
    subprocess.run([program, 'convert', '-o', 'compression=zstd', where / 'x.safetensors', where / 'item'], check=True)
    return where / 'item'


class _Web(buckets.Handler):
    """A web server that takes everybody, before another one."""

    def refuse(self, status, code, **headers):
        self.answer(status, [(k.replace('_', '-'), v) for k, v in headers.items()], b'')

    def is_allowed(self, path, query):
        return True

    def forward(self, path, query):
        return self.ask(self.server.address, path)


@contextlib.contextmanager
def served(request, scheme, large, tmp_path):
    """The checkpoint at a URL: the proxy, the vendor of credentials or None, the URL, and the environment of its readers."""
    if scheme == 'https':
        cert = servers.certificate(tmp_path)
        with servers.nginx(tmp_path / 'nginx', large) as url, buckets.AnyProxy(_Web, url.partition('://')[2], cert) as web:
            yield web, None, web.url, os.environ | {'SSL_CERT_FILE': str(cert[0])}
        return
    proxy = request.getfixturevalue(scheme)
    request.getfixturevalue(f'{scheme}_bucket').upload(large, 'large')
    with buckets.Vendor(proxy) if scheme == 's3' else contextlib.nullcontext(proxy.vendor) as vendor:
        more = vendor.environment('container', tmp_path) if scheme == 's3' else {}
        yield proxy, vendor, f'{scheme}://{BUCKET}/large', os.environ | more


def loses(proxy, vendor, h):
    """The connection is lost; another one is not."""
    return h.reset()


def is_down(proxy, vendor, h):
    """From now on there is no server."""
    proxy.early = lambda h: h.refuse(503, 'SlowDown', Retry_After='0') or True
    return proxy.early(h)


def ends_credentials(proxy, vendor, h):
    """Those that were given are good no more, and there are no others."""
    vendor.is_revoked = True
    proxy.expired.update(proxy.keys) if hasattr(proxy, 'keys') else proxy.tokens.clear()
    return False


@pytest.mark.parametrize('scheme, has_cache', pairs(['s3', 'gs', 'https'], [False, True]))
def test_each_request_of_a_load_fails_once(request, large, loads, tmp_path, scheme, has_cache):
    """Values are right, and errors say why. Without TEST_EVERY_FAULT a part of the requests."""
    caches = itertools.count()

    def load(fault=None, n=0):
        requests, lock = itertools.count(1), threading.Lock()

        def early(h):
            with lock:
                mine = next(requests)
            return mine == n and fault(proxy, vendor, h)
        proxy.early = early
        r = loads(url, env, f',cache_dir={tmp_path}/cache{next(caches)}' if has_cache else '')
        proxy.early = None
        if vendor:
            vendor.is_revoked = False
            getattr(proxy, 'expired', set()).clear()
        return r, next(requests) - 1

    with served(request, scheme, large, tmp_path) as (proxy, vendor, url, env):
        good, n = load()
        assert good.returncode == 0 and good.stderr == '' and good.stdout.count('\n') == 3 and n > 10, good
        faults = [loses, is_down, *([ends_credentials] if vendor else [])]
        every = 'TEST_EVERY_FAULT' in os.environ
        chosen = [(f, i) for i in range(1, n + 1) for f in faults] if every else [(faults[i % len(faults)], i) for i in range(2, n + 1, 5)]
        for fault, i in chosen:
            r, _ = load(fault, i)
            what = fault.__name__, i, r
            assert set(r.stdout.splitlines()) <= set(good.stdout.splitlines()), what
            if fault is loses or r.returncode == 0:
                assert r.returncode == 0 and r.stdout == good.stdout and r.stderr == '', what
                continue
            assert r.returncode == 1 and r.stderr, what
            why = 'status 503' if fault is is_down else 'status 403' if scheme == 's3' else 'invalid_grant'
            assert all(why in line for line in r.stderr.splitlines()), what


# ---- credentials that expire during a save ----


@pytest.fixture
def expiring(bucket, proxy, tmp_path, monkeypatch):
    """Credentials that a server gives: `expire()` takes the last ones back, `given` has all."""
    with buckets.Vendor(proxy) if bucket.scheme == 's3' else contextlib.nullcontext(proxy.vendor) as vendor:
        if bucket.scheme == 's3':
            for name, value in vendor.environment('container', tmp_path).items():
                monkeypatch.setenv(name, value)

        def expire():
            if vendor.given:
                proxy.expired.add(vendor.given[-1]) if bucket.scheme == 's3' else proxy.tokens.clear()
        yield types.SimpleNamespace(given=vendor.given, expire=expire)


def saved_by_convert(run, mount, root):
    r = run('convert', SAMPLE / '1500', f'{root}/5', ok=False)
    return r.returncode == 0, r.stderr


def saved_by_library(run, mount, root):
    r = library('pytreefs.save(sys.argv[2], pytreefs.load(sys.argv[1]))', SAMPLE / '1500/state', f'{root}/5')
    return r.returncode == 0, r.stderr


def saved_by_draft(run, mount, root):
    m = mount(root, 'shape=root', allow_errors=True)
    try:
        (m / '5.tmp/state').mkdir(parents=True)
        np.save(m / '5.tmp/state/w.npy', np.arange(300_000, dtype=np.float32))
        (m / '5.tmp/state/n.json').write_text('7')
        (m / '5.tmp').rename(m / '5')
    except OSError:
        return False, '\n'.join(m.log_lines())
    finally:
        m.unmount()
    return True, ''


@pytest.mark.parametrize('bucket, at', pairs(SCHEMES, [(saved_by_convert, 4), (saved_by_convert, 12), (saved_by_library, 4), (saved_by_draft, 12)]),
                         indirect=['bucket'])
def test_credentials_expire_during_a_save(mount, run, bucket, proxy, root, expiring, at):
    """At the n-th request: others are found, and the step is whole."""
    save, n = at
    requests, lock = itertools.count(1), threading.Lock()

    def early(_):
        with lock:
            if next(requests) == n:
                expiring.expire()
        return False
    proxy.early = early
    ok, text = save(run, mount, root)
    proxy.early = None
    assert ok and len(expiring.given) >= 2, (text, expiring.given)
    assert run('ls', root).stdout == '5/\n' and '0 errors, 0 warnings' in run('verify', root).stdout
    assert not [key for key in bucket.keys() if '.pytreefs' in key]


@pytest.mark.parametrize('bucket, at', pairs(SCHEMES, [(saved_by_convert, 'manifest.ocdbt'), (saved_by_library, MARKER), (saved_by_draft, MARKER)]),
                         indirect=['bucket'])
def test_credentials_expire_for_good_during_a_save(mount, run, bucket, proxy, root, at):
    """Nothing is committed; with others gc removes what is left, and the step can be saved."""
    save, key = at

    def early(h):
        if buckets.is_put(key)(h) and (key != MARKER or 'state' not in h.path and 'default' not in h.path):
            if bucket.scheme == 's3':
                proxy.expired.add(buckets.KEY_ID)
            else:
                proxy.vendor.is_revoked = True
                proxy.tokens.clear()
        return False
    proxy.early = early
    ok, text = save(run, mount, root)
    proxy.early = None
    assert not ok and ('ExpiredToken' if bucket.scheme == 's3' else 'invalid_grant') in text and f'{root}/5' in text, text
    assert f'run/5/{MARKER}' not in bucket.keys()
    if bucket.scheme == 's3':
        proxy.expired.clear()
    else:
        proxy.vendor.is_revoked = False
    assert run('ls', '-o', 'shape=root', root).stdout == ''
    dying_upload.collect(run, bucket, root, 5)
    assert bucket.keys() == []


# ---- certificates, redirects, secrets ----


@pytest.mark.parametrize('bucket, fault', pairs(SCHEMES, ['unknown', 'other host', 'expired']), indirect=['bucket'])
def test_certificates_that_are_refused(run, bucket, proxy, step, tmp_path, fault):
    """By commands and by the library, before anything is asked."""
    why = {'unknown': 'certificate', 'other host': '127.0.0.1', 'expired': 'expired'}[fault]
    cert = servers.certificate(tmp_path, name='192.0.2.1' if fault == 'other host' else '127.0.0.1', is_expired=fault == 'expired')
    with type(proxy)(bucket.address, cert) as secure:
        if bucket.scheme == 'gs':
            secure.tokens = proxy.tokens
        env = {} if fault == 'unknown' else {'SSL_CERT_FILE': str(cert[0])}
        r = run('ls', '-o', f'endpoint={secure.url}', step, ok=False, env=os.environ | env)
        by_library = library('pytreefs.load(sys.argv[1], endpoint=sys.argv[2])', f'{step}/state', secure.url, **env)
        assert not secure.requests
    assert r.returncode == 1 and by_library.returncode == 1
    for said in (r.stderr, by_library.stderr.splitlines()[-1]):
        assert 'certificate' in said and why in said and step in said, said


def test_no_redirect_of_data_is_followed(run, bucket, proxy, step, root):
    """Neither of a range that is read, nor of an object that is put: neither data nor credentials go to another host."""
    with type(proxy)(bucket.address) as other:
        def fault(h):
            if h.command == 'GET' and not is_data(h):
                return False
            return h.refuse(307, 'TemporaryRedirect', Location=other.url + h.path) or True
        proxy.fault = fault
        for words in (('cat', f'{step}/{TABLE}.npy'), ('convert', SAMPLE / '1000', f'{root}/1000')):
            r = run(*words, ok=False)
            assert r.returncode == 1 and 'status 307' in r.stderr, r.stderr
        assert not other.requests


@pytest.mark.parametrize('kind', ['container', 'instance', 'identity', 'service', 'user', 'machine'])
def test_no_redirect_of_a_server_of_credentials_is_followed(request, run, tmp_path, monkeypatch, kind):
    """The request for credentials has a secret itself."""
    is_s3 = kind in buckets.Vendor.KINDS
    proxy = request.getfixturevalue('s3' if is_s3 else 'gs')
    with (buckets.Vendor if is_s3 else gcs_server.Vendor)(proxy) as other, (buckets.Vendor if is_s3 else gcs_server.Vendor)(proxy) as vendor:
        asked = []

        class Redirecting(vendor.RequestHandlerClass):
            def redirect(self):
                asked.append(self.path)
                self.rfile.read(int(self.headers.get('Content-Length') or 0))
                self.send_response(307)
                self.send_header('Location', other.url + self.path)
                self.send_header('Content-Length', '0')
                self.end_headers()
            do_GET = do_PUT = do_POST = redirect
        vendor.RequestHandlerClass = Redirecting
        for name, value in vendor.environment(kind, tmp_path).items():
            monkeypatch.setenv(name, value)
        r = run('ls', f'{"s3" if is_s3 else "gs"}://{BUCKET}/run', ok=False)
        assert r.returncode == 1 and asked and not other.given and not proxy.requests, r.stderr
        assert 'status 307' in r.stderr or kind == 'machine', r.stderr


def secrets_of(bucket, proxy, monkeypatch):
    if bucket.scheme == 'gs':
        return lambda: [*proxy.vendor.secrets(), *proxy.sessions]
    token = 'session+token/of=the+tests'
    proxy.keys[buckets.KEY_ID] = buckets.SECRET, token
    monkeypatch.setenv('AWS_SESSION_TOKEN', token)
    return lambda: [buckets.SECRET, token]


def assert_no_secret(text, secrets):
    for secret in [*secrets(), 'Signature=', 'Bearer ']:
        assert secret not in text and urllib.parse.quote(secret, safe='') not in text, secret


def test_no_secret_in_what_a_mount_shows(mount, bucket, proxy, step, monkeypatch):
    """Of files of .pytreefs, and the log with every trace, of a mount that reads, fails and writes an item."""
    secrets = secrets_of(bucket, proxy, monkeypatch)
    m = mount(step, 'trace=all', allow_errors=True)
    assert (m / f'{TABLE}.npy').read_bytes()
    (m / 'more.tmp').mkdir()
    np.save(m / 'more.tmp/x.npy', np.arange(10))
    (m / 'more.tmp').rename(m / 'more')
    proxy.fault = lambda h: h.refuse(403, 'AccessDenied') or True
    with pytest.raises(OSError):
        (m / 'other.tmp').mkdir()
    proxy.fault = None
    said = pathlib.Path(m.log).read_text(errors='replace')
    assert 'http GET' in said and 'status 403' in said
    for text in (said, *((m / '.pytreefs' / name).read_text() for name in ('config', 'stats', 'version'))):
        assert_no_secret(text, secrets)


def test_no_secret_in_what_the_library_says(bucket, proxy, step, root, monkeypatch):
    secrets = secrets_of(bucket, proxy, monkeypatch)
    save = 'pytreefs.save(sys.argv[2], pytreefs.load(sys.argv[1], trace="all"), trace="all")'
    r = library(save, f'{step}/state', f'{root}/7')
    assert r.returncode == 0, r.stderr
    assert_no_secret(r.stdout + r.stderr, secrets)
    for method in ('GET', 'POST' if bucket.scheme == 'gs' else 'PUT'):
        proxy.fault = lambda h, method=method: h.command == method and (h.refuse(403, 'AccessDenied') or True)
        r = library(save, f'{step}/state', f'{root}/8')
        assert r.returncode == 1 and 'status 403' in r.stderr, r.stderr
        assert_no_secret(r.stdout + r.stderr, secrets)


def test_no_secret_in_the_output_of_a_job(job, mpi, bucket, proxy, root, monkeypatch):
    """Two ranks that write a step, and one that is refused."""
    secrets = secrets_of(bucket, proxy, monkeypatch)
    j = job(2, 'shape=root', 'trace=all', source=root)
    for step, fault in (('1', None), ('2', lambda h: buckets.is_put('manifest.ocdbt')(h) and (h.refuse(403, 'AccessDenied') or True))):
        for r in range(2):
            (j[r] / f'{step}.tmp/default').mkdir(parents=True, exist_ok=True)
        np.save(j[0] / f'{step}.tmp/default/w.npy', np.arange(10.))
        proxy.fault = fault
        assert all(bool(e) == bool(fault) for e in j.rename(f'{step}.tmp', step).values()), j.text()
    proxy.fault = None
    assert np.array_equal(np.load(j[1] / '1/default/w.npy'), np.arange(10.))
    said = j.text()
    assert 'http GET' in said and 'status 403' in said
    assert_no_secret(said, secrets)
