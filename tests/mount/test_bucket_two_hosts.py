# SPDX-License-Identifier: Apache-2.0
"""Two hosts write one step of a bucket: one of them succeeds, the other gets EBUSY or EEXIST, and no object of the first is harmed."""

import errno
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from lib import buckets, dying_upload, package
from lib.pairs import on_buckets, pairs

BUCKET = 'hosts'
IN_MEMORY = True  # both for the fixtures
MARKER, CLAIM = dying_upload.MARKER, dying_upload.CLAIM
VALUES = {'a': np.arange(12.), 'b': np.arange(5.)}
SAVE = '''
import sys, numpy, pytreefs
try:
    pytreefs.save(sys.argv[1], {'state': {'w': numpy.arange(float(sys.argv[2]))}}, items=True)
except pytreefs.Error as e:
    sys.exit(e.errno)
'''


@pytest.fixture
def root(bucket, proxy, spill):
    return f'{bucket.scheme}://hosts/run'


class Mount:
    """Steps by drafts of a mount of its own."""

    def __init__(self, mount, program, root):
        self.top = mount(root, 'shape=root', allow_errors=True).path

    def write(self, name):
        """Write step 5 with the values of that name; returns 0 or the error."""
        try:
            (self.top / '5.tmp/state').mkdir(parents=True)
            np.save(self.top / '5.tmp/state/w.npy', VALUES[name])
            os.rename(self.top / '5.tmp', self.top / '5')
        except OSError as e:
            return e.errno
        assert os.listdir(self.top) == ['5']
        return 0


class Library:
    """Steps by processes with the Python package."""

    def __init__(self, mount, program, root):
        self.root, self.environment = root, package.environment(program)

    def write(self, name):
        return subprocess.run([sys.executable, '-c', SAVE, f'{self.root}/5', str(len(VALUES[name]))], env=self.environment, timeout=240).returncode


def start(host, name, statuses):
    def do():
        statuses[name] = host.write(name)
    thread = threading.Thread(target=do)
    thread.start()
    return thread


def assert_step(run, root, tmp_path, name):
    assert run('ls', root).stdout.split() == ['5/']
    assert '0 errors, 0 warnings' in run('verify', root).stdout
    (tmp_path / 'w.npy').write_bytes(run('cat', f'{root}/5/state/w.npy', text=False).stdout)
    assert np.array_equal(np.load(tmp_path / 'w.npy'), VALUES[name])


@pytest.mark.parametrize('bucket, kind', on_buckets(Mount, Library), indirect=['bucket'])
def test_both_begin_at_once(mount, program, run, bucket, proxy, root, tmp_path, kind):
    """Neither is answered before both have asked for the place."""
    both, hosts, statuses = threading.Barrier(2), [kind(mount, program, root) for _ in range(2)], {}

    def together(h):
        if buckets.is_first_put(CLAIM)(h):
            both.wait(120)
        return False
    proxy.fault = together
    threads = [start(host, name, statuses) for host, name in zip(hosts, VALUES, strict=True)]
    for t in threads:
        t.join()
    # EEXIST: it asked again when the other one had committed the step.
    assert sorted(statuses.values()) in ([0, errno.EBUSY], [0, errno.EEXIST]), statuses
    assert_step(run, root, tmp_path, min(statuses, key=statuses.get))
    assert not any(CLAIM in key for key in bucket.keys())


@pytest.mark.parametrize('bucket, kind, place', on_buckets(*pairs([Mount, Library], ['renewal', 'marker'])), indirect=['bucket'])
def test_one_is_late(mount, program, run, bucket, proxy, root, tmp_path, kind, place):
    """It was suspended in its commit for so long that gc on another host has taken it for dead, and another writer has committed the step."""
    late, other, statuses = kind(mount, program, root), kind(mount, program, root), {}
    marker = buckets.is_put('/5/' + MARKER if bucket.scheme == 's3' else '5%2F' + MARKER)
    is_it, arrived, go = marker if place == 'marker' else buckets.is_replacing_put(CLAIM), threading.Event(), threading.Event()

    def hold(h):
        if is_it(h) and not arrived.is_set():
            arrived.set()
            assert go.wait(120)
        return False
    proxy.fault = hold
    thread = start(late, 'a', statuses)
    try:
        assert arrived.wait(120), statuses
        # As gc does after ten minutes.
        for key in bucket.keys():
            bucket.delete(key)
        assert other.write('b') == 0
        objects = {key: bucket.get(key) for key in bucket.keys()}
    finally:
        go.set()
        thread.join()
    assert statuses == {'a': errno.EEXIST}
    assert {key: bucket.get(key) for key in bucket.keys()} == objects
    assert_step(run, root, tmp_path, 'b')


@pytest.mark.parametrize('bucket, kind', on_buckets(Mount, Library), indirect=['bucket'])
def test_it_ends_when_a_listing_shows_the_step(mount, program, run, bucket, proxy, root, tmp_path, kind):
    """A server whose listings lag: the first three after the marker do not show the step."""
    seen = []

    def lag(h):
        if h.command != 'GET' or 'prefix=run/5/' not in h.path.replace('%2F', '/') or f'run/5/{MARKER}' not in bucket.keys():
            return False
        seen.append(h.path)
        if len(seen) > 3:
            return False
        h.path = h.path.replace('run%2F5%2F', 'run%2Fnone%2F')
        h.answer(*h.forward(*h.path.partition('?')[::2]))
        return True
    proxy.fault = lag
    assert kind(mount, program, root).write('a') == 0
    assert len(seen) > 3, seen
    assert_step(run, root, tmp_path, 'a')
