# SPDX-License-Identifier: Apache-2.0
"""Of a writer on another machine and a gc that takes it for dead, at any moment of a commit one succeeds: no step is torn, and none that is whole is removed."""

import contextlib
import pathlib
import signal
import subprocess
import threading
import time

import pytest

from lib import buckets, dying_upload, mounts
from lib.buckets import unfinished

BUCKET = 'claimed'  # for the fixture
SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data/sample'
MARKER, CLAIM = dying_upload.MARKER, dying_upload.CLAIM
GC = ('gc', '--all', '--older-than', '0s')

pytestmark = pytest.mark.skipif(subprocess.run(['unshare', '--uts', 'true'], capture_output=True).returncode != 0,
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
def saving(program, proxy, root, is_it):
    """A save on another machine, held at a request; and the result of it, when it has gone on."""
    held = Held(proxy, is_it)
    p = elsewhere(program, 'convert', SAMPLE / '1500', f'{root}/5')
    try:
        assert held.arrived.wait(120), p.communicate(timeout=120)
        proxy.fault = None
        yield held, lambda: (held.release(), p.communicate(timeout=120)[1], p.returncode)[1:]
    finally:
        held.release()
        if p.poll() is None:
            p.kill()
        p.communicate()


def is_marker(bucket):
    return buckets.is_put('/5/' + MARKER if bucket.scheme == 's3' else '5%2F' + MARKER)


def assert_gone(run, bucket, proxy, root):
    assert bucket.keys() == [] and not unfinished(bucket, proxy)
    run('convert', SAMPLE / '1500', f'{root}/5')
    assert '0 errors, 0 warnings' in run('verify', root).stdout


def test_gc_before_the_writer_renews_its_claim(run, program, bucket, proxy, root):
    with saving(program, proxy, root, buckets.is_replacing_put(CLAIM)) as (_, goes_on):
        assert 'removed' in run(*GC, root).stdout
        assert bucket.keys() == []
        text, status = goes_on()
    assert status == 1 and 'was taken away from its writer' in text, text
    assert_gone(run, bucket, proxy, root)


def test_gc_between_the_renewal_and_the_marker(run, program, bucket, proxy, root):
    """As of a machine that was suspended for longer than the age, just there. The marker that comes late goes away again."""
    with saving(program, proxy, root, is_marker(bucket)) as (_, goes_on):
        assert 'removed' in run(*GC, root).stdout
        text, status = goes_on()
    assert status == 1 and 'was taken away from its writer' in text, text
    assert_gone(run, bucket, proxy, root)


def test_gc_after_the_marker(run, program, bucket, proxy, root):
    """gc finds a step, of which it removes the claim; the writer has committed it."""
    with saving(program, proxy, root, lambda h: h.command == 'GET' and bucket_has(bucket, f'run/5/{MARKER}')) as (_, goes_on):
        run(*GC, root)
        assert f'run/5/{CLAIM}' not in bucket.keys()
        text, status = goes_on()
    assert status == 0, text
    assert '0 errors, 0 warnings' in run('verify', root).stdout


def bucket_has(bucket, key):
    return key in bucket.keys()


def test_a_commit_while_gc_looks_at_the_claim(run, program, bucket, proxy, root):
    """gc has judged the claim that it read, and the writer has renewed it since."""
    with saving(program, proxy, root, buckets.is_put('_CHECKPOINT_METADATA')) as (_, goes_on):
        held = Held(proxy, buckets.is_replacing_put(CLAIM))
        gc = subprocess.Popen([program, *GC, root], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert held.arrived.wait(120), gc.communicate(timeout=120)
            text, status = goes_on()
            assert status == 0, text
            held.release()
            out, text = gc.communicate(timeout=120)
        finally:
            held.release()
            gc.kill()
            gc.wait()
        assert gc.returncode == 0 and '0 removed' in out, out + text
    assert '0 errors, 0 warnings' in run('verify', root).stdout
    assert not any(CLAIM in key for key in bucket.keys())


def test_a_gc_that_is_killed_is_repeated(run, program, bucket, proxy, root):
    with saving(program, proxy, root, is_marker(bucket)) as (_, goes_on):
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


def test_two_of_gc_at_once(run, program, bucket, proxy, root):
    with saving(program, proxy, root, is_marker(bucket)) as (_, goes_on):
        both = [subprocess.Popen([program, *GC, root], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        results = [p.communicate(timeout=120) for p in both]
        assert [p.returncode for p in both] == [0, 0], results
        assert bucket.keys() == [], results
        goes_on()
    assert_gone(run, bucket, proxy, root)


# ---- renewals ----


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
        bucket.put(key, b'pytreefs draft 1\nid=1\nhost=other\nboot=b\nnames=n\npid=1\nstarted=1\n')
        taken = bucket.get(key)
        time.sleep(0.5)
        assert bucket.get(key) == taken
        bucket.put('run/5/of another', b'1')
    finally:
        out, text = p.communicate(timeout=120)
    assert 'was taken away from its writer' in text and p.returncode == 0, text
    assert bucket.keys() == [key, 'run/5/of another']
