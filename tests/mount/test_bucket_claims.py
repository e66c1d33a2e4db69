# SPDX-License-Identifier: Apache-2.0
"""Of a writer on another machine and a gc that takes it for dead, at any moment of a commit one succeeds: no step is torn, and none that is whole is removed."""

import contextlib
import pathlib
import re
import signal
import subprocess
import threading
import urllib.parse

import numpy as np
import pytest

from lib import buckets, dying_upload, mounts
from lib.buckets import unfinished
from lib.pairs import on

BUCKET = 'claimed'
IN_MEMORY = True  # both for the fixtures
SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data/sample'
MARKER, CLAIM = dying_upload.MARKER, dying_upload.CLAIM
OTHER = b'pytreefs draft 1\nid=1\nhost=other\nboot=b\nnames=n\npid=1\nstarted=1\n'
GC = ('gc', '--all', '--older-than', '0s')

needs_host_name = pytest.mark.skipif(subprocess.run(['unshare', '--uts', 'true'], capture_output=True).returncode != 0,
                                     reason='only root can have another host name')


@pytest.fixture
def root(bucket, proxy, spill):
    return f'{bucket.scheme}://claimed/run'


class Held:
    """Requests of a process are held at the first one that `is_it`, until `release`."""

    def __init__(self, proxy, is_it):
        self.arrived, self.go, self.lock = threading.Event(), threading.Event(), threading.Lock()
        self.is_it, self.proxy = is_it, proxy
        proxy.fault = self

    def __call__(self, h):
        with self.lock:
            holds = not self.arrived.is_set() and self.is_it(h)
            if holds:
                self.arrived.set()
        if holds:
            assert self.go.wait(120)
        return False

    def release(self):
        self.go.set()


def elsewhere(program, *words):
    """The program on a machine with another name."""
    return subprocess.Popen(['unshare', '--uts', 'sh', '-c', 'hostname elsewhere && exec "$0" "$@"', program, *map(str, words)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)


@contextlib.contextmanager
def holding(proxy, is_it, start):
    """A process that is held at a request; and its output, messages and status, when it has gone on."""
    held = Held(proxy, is_it)
    p = start()
    try:
        assert held.arrived.wait(120), p.communicate(timeout=120)
        proxy.fault = None
        yield held, lambda: (held.release(), *p.communicate(timeout=120), p.returncode)[1:]
    finally:
        held.release()
        if p.poll() is None:
            p.kill()
        p.communicate()


@contextlib.contextmanager
def saving(program, proxy, root, is_it):
    """A save on another machine, held at a request; and the result of it, when it has gone on."""
    with holding(proxy, is_it, lambda: elsewhere(program, 'convert', SAMPLE / '1500', f'{root}/5')) as (held, goes_on):
        yield held, lambda: goes_on()[1:]


def collecting(program, proxy, root, is_it, words=('gc',)):
    """A gc that is held at a request."""
    return holding(proxy, is_it, lambda: subprocess.Popen([program, *words, root], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                                          text=True))


def is_marker(bucket):
    return buckets.is_put('/5/' + MARKER if bucket.scheme == 's3' else '5%2F' + MARKER)


def assert_gone(run, bucket, proxy, root):
    assert bucket.keys() == [] and not unfinished(bucket, proxy)
    run('convert', SAMPLE / '1500', f'{root}/5')
    assert '0 errors, 0 warnings' in run('verify', root).stdout


@on('s3')
@needs_host_name
def test_gc_before_the_writer_renews_its_claim(run, program, bucket, proxy, root):
    with saving(program, proxy, root, buckets.is_replacing_put(CLAIM)) as (_, goes_on):
        assert 'removed' in run(*GC, root).stdout
        assert bucket.keys() == []
        text, status = goes_on()
    assert status == 1 and 'was taken away from its writer by `pytreefs gc`, or by hand: nobody has it now' in text, text
    assert_gone(run, bucket, proxy, root)


@needs_host_name
def test_gc_between_the_renewal_and_the_marker(run, program, bucket, proxy, root):
    """The claim says that its writer commits: gc leaves it for as long as a request may take, whatever the age."""
    with saving(program, proxy, root, is_marker(bucket)) as (_, goes_on):
        keys = bucket.keys()
        assert '0 removed' in run(*GC, root).stdout and bucket.keys() == keys
        text, status = goes_on()
    assert status == 0, text
    assert '0 errors, 0 warnings' in run('verify', root).stdout


@on('gs')
@needs_host_name
def test_gc_after_the_marker(run, program, bucket, proxy, root):
    with saving(program, proxy, root, lambda h: h.command == 'GET' and f'run/5/{MARKER}' in bucket.keys()) as (_, goes_on):
        run(*GC, root)
        text, status = goes_on()
    assert status == 0, text
    assert '0 errors, 0 warnings' in run('verify', root).stdout
    assert not any(CLAIM in key for key in bucket.keys())


@on('s3')
def test_the_claim_of_a_step_is_left(run, bucket, proxy, root):
    """Its writer died after the marker: only the claim goes."""
    run('convert', SAMPLE / '1500', f'{root}/5')
    keys = bucket.keys()
    bucket.put(f'run/5/{CLAIM}', OTHER)
    assert '1 removed' in run(*GC, root).stdout
    assert bucket.keys() == keys


def test_a_claim_of_the_future(run, bucket, proxy, root):
    """The claim of a writer that cannot be seen, by a server whose clock is wrong."""
    bucket.put(f'run/5/{CLAIM}', OTHER)

    def ahead(h):
        if h.server.kind_of(h.command, urllib.parse.unquote(h.path)) not in ('page', 'next', 'any'):
            return False
        status, headers, body = h.forward(*h.path.partition('?')[::2])
        h.answer(status, headers, re.sub(rb'(LastModified>|(?:updated|timeCreated)": ?")\d{4}', rb'\g<1>2096', body))
        return True
    proxy.fault = ahead
    assert '0 removed' in run('gc', '--all', '--older-than', '36500d', root).stdout
    out = run('gc', '--all', '--older-than', '1d', root).stdout
    assert '1 removed' in out and 'last changed in the future: 2096-' in out and bucket.keys() == []


@on('gs')
@needs_host_name
def test_a_commit_while_gc_looks_at_the_claim(run, program, bucket, proxy, root):
    """gc has judged the claim that it read, and the writer has renewed it since."""
    with saving(program, proxy, root, buckets.is_put('_CHECKPOINT_METADATA')) as (_, goes_on):
        with collecting(program, proxy, root, buckets.is_replacing_put(CLAIM), GC) as (_, gc_goes_on):
            text, status = goes_on()
            assert status == 0, text
            out, text, status = gc_goes_on()
        assert status == 0 and '0 removed' in out, out + text
    assert '0 errors, 0 warnings' in run('verify', root).stdout
    assert not any(CLAIM in key for key in bucket.keys())


@on('s3')
@needs_host_name
def test_a_gc_that_is_killed_is_repeated(run, program, bucket, proxy, root):
    with saving(program, proxy, root, buckets.is_put('_CHECKPOINT_METADATA')) as (_, goes_on):
        held = Held(proxy, lambda h: h.command == 'DELETE')
        gc = subprocess.Popen([program, *GC, root], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert held.arrived.wait(120)
        gc.send_signal(signal.SIGKILL)
        gc.wait()
        held.release()
        proxy.fault = None
        assert f'run/5/{CLAIM}' in bucket.keys()
        # Its claim is that of a process of this machine, which is dead: no age is needed.
        assert 'removed' in run('gc', root).stdout
        assert bucket.keys() == []
        text, status = goes_on()
    assert status == 1, text
    assert_gone(run, bucket, proxy, root)


@on('gs')
@needs_host_name
def test_two_of_gc_at_once(run, program, bucket, proxy, root):
    with saving(program, proxy, root, buckets.is_put('_CHECKPOINT_METADATA')) as (_, goes_on):
        both = [subprocess.Popen([program, *GC, root], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        results = [p.communicate(timeout=120) for p in both]
        # One that comes when the other has removed the last key finds no root.
        assert all(p.returncode == 0 or 'does not exist' in said for p, (_, said) in zip(both, results, strict=True)), results
        assert bucket.keys() == [], results
        goes_on()
    assert_gone(run, bucket, proxy, root)


@pytest.fixture
def left(program, bucket, proxy, root):
    """Objects of a writer of this machine that was killed."""
    held = Held(proxy, buckets.is_put('_CHECKPOINT_METADATA'))
    p = subprocess.Popen([program, 'convert', SAMPLE / '1500', f'{root}/5'], stderr=subprocess.DEVNULL)
    assert held.arrived.wait(120)
    p.kill()
    p.wait()
    proxy.fault = None
    held.release()
    proxy.wait_idle()


@on('s3')
def test_a_gc_that_is_suspended_holds_the_place(left, run, program, bucket, proxy, root):
    """Else it would remove, when it goes on, what another writer has put after another gc."""
    with collecting(program, proxy, root, lambda h: h.command == 'DELETE') as (_, goes_on):
        assert '0 removed' in run('gc', root).stdout
        r = run('convert', SAMPLE / '1500', f'{root}/5', ok=False)
        assert r.returncode == 1 and 'is being written by process' in r.stderr, r.stderr
        out, text, status = goes_on()
    assert status == 0 and '1 removed' in out, out + text
    assert_gone(run, bucket, proxy, root)


@on('gs')
def test_a_gc_that_is_suspended_while_it_judges(left, run, program, bucket, proxy, root):
    """Another one has removed everything since, and a writer has committed the step."""
    with collecting(program, proxy, root, lambda h: h.command != 'GET') as (_, goes_on):
        for key in bucket.keys():
            bucket.delete(key)
        run('convert', SAMPLE / '1500', f'{root}/5')
        keys = bucket.keys()
        out, text, status = goes_on()
    assert status == 0 and '0 removed' in out, out + text
    assert bucket.keys() == keys
    assert '0 errors, 0 warnings' in run('verify', root).stdout


# ---- requests that arrive late ----


def kill(p):
    p.kill()
    p.communicate()


def test_a_marker_of_a_killed_writer_arrives_late(run, program, bucket, proxy, root):
    """gc knows that its writer is dead, and not whether the marker will come: it waits for that as long as a request may take."""
    held = Held(proxy, is_marker(bucket))
    p = subprocess.Popen([program, 'convert', SAMPLE / '1500', f'{root}/5'], stderr=subprocess.DEVNULL)
    assert held.arrived.wait(120)
    kill(p)
    proxy.fault = None
    keys = bucket.keys()
    said = run('gc', root).stdout
    assert '0 removed' in said and 'its writer ended while it committed' in said and bucket.keys() == keys, said
    held.release()
    proxy.wait_idle()
    assert f'run/5/{MARKER}' in bucket.keys()
    assert '0 errors, 0 warnings' in run('verify', root).stdout
    assert '1 removed' in run('gc', root).stdout and f'run/5/{CLAIM}' not in bucket.keys()
    assert run('diff', SAMPLE / '1500', f'{root}/5').returncode == 0


@pytest.mark.parametrize('arrives', [True, False])
def test_a_marker_that_nobody_answers(run, program, bucket, proxy, root, arrives):
    """Nothing is removed, since it may arrive after the writer has ended."""
    is_it, first = is_marker(bucket), []
    held = Held(proxy, is_it)

    def fault(h):
        if first and is_it(h):
            return h.reset()
        if is_it(h):
            first.append(h)
            held(h)
            return not arrives and h.reset()
        return False
    proxy.fault = fault
    # The first of its tries waits for ten seconds.
    r = run('convert', SAMPLE / '1500', f'{root}/5', ok=False)
    assert r.returncode == 1 and f"whether '{root}/5' is committed is not known" in r.stderr, r.stderr
    proxy.fault = None
    keys = bucket.keys()
    assert '0 removed' in run('gc', root).stdout and bucket.keys() == keys
    held.release()
    proxy.wait_idle()
    assert (f'run/5/{MARKER}' in bucket.keys()) == arrives
    r = dying_upload.collect(run, bucket, root, 5)
    assert '1 removed' in r.stdout
    assert '0 errors, 0 warnings' in run('verify', root).stdout if arrives else bucket.keys() == []


@pytest.mark.parametrize('bucket, how', [('s3', how) for how in ('200 then reset', '503 of a gateway', 'credentials expire')], indirect=['bucket'])
def test_a_marker_that_is_refused_after_it_was_put(run, bucket, proxy, root, how):
    """By a later try. It is found, or may arrive after all: its files stay."""
    tries, late = [], []

    def fault(h):
        if not is_marker(bucket)(h):
            return False
        tries.append(h.path)
        if len(tries) == 2 and how == 'credentials expire':
            return h.refuse(400, 'ExpiredToken') or True
        if len(tries) > 1:
            return h.refuse(403, 'AccessDenied') or True
        if how == 'credentials expire':
            late.append(lambda: h.forward(*h.path.partition('?')[::2]))
            return h.reset()
        h.forward(*h.path.partition('?')[::2])
        if how == '200 then reset':
            h.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab')
            return h.reset()
        h.answer(503, [], b'upstream connect error or disconnect/reset before headers')
        return True
    proxy.fault = fault
    r = run('convert', SAMPLE / '1500', f'{root}/5', ok=False)
    proxy.fault = None
    assert r.returncode == 0 if not late else 'is committed is not known' in r.stderr, r.stderr
    for arrive in late:
        arrive()
    assert f'run/5/{MARKER}' in bucket.keys() and '0 errors, 0 warnings' in run('verify', root).stdout


@on('s3')
@needs_host_name
def test_a_claim_that_cannot_be_renewed_to_commit(run, program, bucket, proxy, root):
    """gc would not see that its writer commits: it does not."""
    refuse = buckets.is_replacing_put(CLAIM)
    proxy.fault = lambda h: refuse(h) and (h.refuse(403, 'AccessDenied') or True)
    r = run('convert', SAMPLE / '1500', f'{root}/5', ok=False)
    assert r.returncode == 1 and 'AccessDenied' in r.stderr and f'run/5/{MARKER}' not in bucket.keys(), r.stderr


@pytest.mark.parametrize('key', ['manifest.ocdbt', 'state/_METADATA'])
def test_a_file_of_a_killed_writer_arrives_late(run, program, bucket, proxy, root, tmp_path, key):
    """Another writer has committed the step since, with a file of that name."""
    held = Held(proxy, buckets.is_put(key.replace('/', '%2F') if bucket.scheme == 'gs' else key))
    p = subprocess.Popen([program, 'convert', SAMPLE / '1500', f'{root}/5'], stderr=subprocess.DEVNULL)
    assert held.arrived.wait(120)
    kill(p)
    proxy.fault = None
    assert '1 removed' in run('gc', root).stdout and bucket.keys() == []
    (tmp_path / 'in').mkdir()
    np.save(tmp_path / 'in/w.npy', np.arange(9))
    run('save', '--item=state', tmp_path / 'in', f'{root}/5')
    keys = {k: bucket.get(k) for k in bucket.keys()}
    held.release()
    proxy.wait_idle()
    assert {k: bucket.get(k) for k in bucket.keys()} == keys
    assert '0 errors, 0 warnings' in run('verify', root).stdout


@needs_host_name
def test_a_writer_that_is_suspended_while_it_removes(run, program, bucket, proxy, root):
    """gc has taken the place from it, and another writer has claimed it: that claim is not removed."""
    renewals = []

    def is_last_renewal(h):
        if buckets.is_replacing_put(CLAIM)(h):
            renewals.append(h.path)
        # To remove the objects; to remove the claim.
        return len(renewals) == 2
    refuse = buckets.is_put('_CHECKPOINT_METADATA')
    held = Held(proxy, is_last_renewal)
    proxy.fault = lambda h: (refuse(h) and (h.refuse(403, 'AccessDenied') or True)) or held(h)
    p = elsewhere(program, 'convert', SAMPLE / '1500', f'{root}/5')
    try:
        assert held.arrived.wait(120), p.communicate(timeout=120)
        proxy.fault = None
        run(*GC, root)
        assert bucket.keys() == []
        with saving(program, proxy, root, buckets.is_put('_CHECKPOINT_METADATA')) as (_, goes_on):
            held.release()
            text = p.communicate(timeout=120)[1]
            assert p.returncode == 1 and 'AccessDenied' in text, text
            assert f'run/5/{CLAIM}' in bucket.keys()
            text, status = goes_on()
        assert status == 0, text
    finally:
        held.release()
        kill(p)
    assert '0 errors, 0 warnings' in run('verify', root).stdout


# ---- renewals ----


@pytest.mark.parametrize('what', ['renewal', 'marker'])
def test_an_answer_that_is_lost(run, program, bucket, proxy, root, what):
    """Over a connection that was used before libcurl sends the request again by itself; the condition does not hold any more."""
    lost = []

    def lose(h):
        if lost or not (is_marker(bucket) if what == 'marker' else buckets.is_replacing_put(CLAIM))(h):
            return False
        lost.append(h.path)
        assert h.forward(*h.path.partition('?')[::2])
        return h.reset()
    proxy.fault = lose
    run('convert', SAMPLE / '1500', f'{root}/5')
    assert lost and '0 errors, 0 warnings' in run('verify', root).stdout
    assert not any(CLAIM in key for key in bucket.keys())


@on('s3')
def test_a_marker_whose_answer_has_an_error(run, bucket, proxy, root):
    """The status 200 and a document of an error: the marker is not there, and the step is not called committed."""
    refused = []

    def fault(h):
        if not is_marker(bucket)(h):
            return False
        refused.append(h.path)
        h.refuse(200, 'InternalError')
        return True
    proxy.fault = fault
    r = run('convert', SAMPLE / '1500', f'{root}/5', ok=False)
    assert r.returncode == 1 and 'is committed is not known' in r.stderr and 'an error (InternalError)' in r.stderr, r.stderr
    assert refused and not any(key.endswith('run/5/commit_success.txt') for key in bucket.keys()), bucket.keys()


@on('s3')
def test_a_full_bucket_is_cleaned_up(run, bucket, proxy, root):
    """Objects can be read and removed, and nothing can be put."""
    full = threading.Event()

    def fault(h):
        if buckets.is_put('_CHECKPOINT_METADATA')(h):
            full.set()
        return full.is_set() and h.command in ('PUT', 'POST') and (h.refuse(403, 'QuotaExceeded') or True)
    proxy.fault = fault
    r = run('convert', SAMPLE / '1500', f'{root}/5', ok=False)
    assert r.returncode == 1 and 'QuotaExceeded' in r.stderr, r.stderr
    assert bucket.keys() == []


@on('gs')
def test_gc_cleans_a_full_bucket(left, run, proxy, root):
    """Of a step whose writer, a process of this machine, was killed."""
    proxy.fault = lambda h: h.command in ('PUT', 'POST') and (h.refuse(403, 'QuotaExceeded') or True)
    assert '1 removed' in run('gc', root).stdout


def test_a_server_without_tags(run, bucket, proxy, root):
    """A save needs none; the claim is only looked at then."""
    def strip(h):
        if h.command != 'GET' or CLAIM not in h.path:
            return False
        status, headers, body = h.forward(*h.path.partition('?')[::2])
        h.answer(status, [(k, v) for k, v in headers if k.lower() not in ('etag', 'x-goog-generation')], body)
        return True
    proxy.fault = strip
    run('convert', SAMPLE / '1500', f'{root}/5')
    assert '0 errors, 0 warnings' in run('verify', root).stdout
    bucket.put(f'run/6/{CLAIM}', OTHER)
    r = run(*GC, root, ok=False)
    assert r.returncode and 'no strong ETag' in r.stdout + r.stderr and f'run/6/{CLAIM}' in bucket.keys(), r.stdout + r.stderr


def test_a_claim_is_renewed(build, run, bucket, proxy, root):
    """It stays young while nothing else is sent; and one that was taken over is left alone."""
    key = f'run/5/{CLAIM}'
    p = subprocess.Popen([build / 'tests/unit/store_tool', 'hold', root, '5', '100'], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    try:
        assert p.stdout.readline() == 'held\n'
        first = bucket.get(key)
        mounts.wait_for(lambda: b'renewed=3' in bucket.get(key))
        assert bucket.get(key).startswith(first.partition(b'renewed=')[0])
        # Not between the condition of a renewal and its bytes, which the servers of the tests do not make one.
        with proxy.writing:
            bucket.put(key, OTHER)
        before = len(proxy.requests)
        mounts.wait_for(lambda: len(proxy.requests) > before)
        bucket.put('run/5/of another', b'1')
    finally:
        out, text = p.communicate(timeout=120)
    assert 'was taken away from its writer' in text and p.returncode == 0, text
    assert bucket.get(key) == OTHER
    assert bucket.keys() == [key, 'run/5/of another']
