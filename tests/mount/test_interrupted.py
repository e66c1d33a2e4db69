# SPDX-License-Identifier: Apache-2.0
"""System calls that a network or FUSE file system interrupts in its own work are made again, those of commands too.
A command that a signal interrupts ends soon, and leaves nothing. A caller of a mount that a signal interrupts ends, whatever the mount waits for."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

import numpy as np
import pytest

from lib import buckets, mounts, preload, servers
from lib.pairs import pairs

TOP = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = TOP / 'tests/data/sample/1500/state'
IN_MEMORY = True  # for the fixtures


@pytest.fixture(scope='module')
def library(tmp_path_factory):
    """tests/lib/interrupting.c, which interrupts every other call that changes a disk."""
    return preload.make(tmp_path_factory, 'interrupting')


@pytest.fixture(scope='module')
def untyped(tmp_path_factory):
    return preload.make(tmp_path_factory, 'untyped')


@pytest.mark.parametrize('words, when', pairs(['export m.npz', 'export leaves', 'export m.zarr', 'convert tree', 'convert -o ocdbt=off tree'],
                                              ['before', 'after']))
def test_a_replacement_survives_an_interrupted_rename(run, program, library, tmp_path, words, when):
    """An exchange of names that was done, and is done again, would bring back what was replaced."""
    words = words.split()
    out = tmp_path / words[-1]
    run(*words[:-1], '--quiet', SAMPLE / 'params', out)
    env = dict(os.environ, LD_PRELOAD=str(library), **({'INTERRUPT_AFTER': '1'} if when == 'after' else {}))
    r = subprocess.run([program, *words[:-1], '--quiet', '--force', SAMPLE, out], env=env, capture_output=True, text=True, timeout=240)
    assert r.returncode == 0 and 'interrupted: renameat2' in r.stderr, r.stderr
    assert os.listdir(tmp_path) == [out.name]
    if words[0] == 'export':
        run('convert', '--quiet', out, tmp_path / 'again')
        out = tmp_path / 'again'
    assert '78 the same, 0 differences' in run('diff', SAMPLE, out).stdout


def test_listings_without_types(run, program, untyped, tmp_path):
    """Directories are found where a file system does not say what an entry is."""
    env = dict(os.environ, LD_PRELOAD=str(untyped))

    def untyped_run(*words):
        return subprocess.run([program, *map(str, words)], env=env, capture_output=True, text=True, timeout=240, check=True).stdout

    for name in ('leaves', 'm.zarr', 'm.safetensors'):
        untyped_run('export', '--quiet', SAMPLE, tmp_path / name)
        untyped_run('convert', '--quiet', '-o', 'ocdbt=off,zarr=3', tmp_path / name, tmp_path / f'{name}.again')
        assert '78 the same, 0 differences' in untyped_run('diff', SAMPLE, tmp_path / f'{name}.again')
        untyped_run('verify', '--quiet', tmp_path / f'{name}.again')
    assert untyped_run('ls', SAMPLE.parents[1]) == run('ls', SAMPLE.parents[1]).stdout


@pytest.mark.parametrize('words,calls', [
    (['export', SAMPLE, 'm.safetensors'], {'fsync', 'ftruncate', 'renameat2'}),
    (['export', '--max-shard-size', '100K', '--format', 'safetensors', SAMPLE, 'shards'], {'fsync', 'ftruncate', 'mkdirat', 'renameat2'}),
    (['export', SAMPLE, 'leaves'], {'fsync', 'mkdirat', 'renameat2'}),
    (['export', SAMPLE, 'm.npz'], {'fsync', 'renameat2'}),
    (['convert', SAMPLE, 'tree'], {'flock'}),
    (['convert', '-o', 'ocdbt=off', SAMPLE, 'tree'], {'flock'}),
    (['save', SAMPLE, 'ck/5'], {'flock'})], ids=lambda w: ' '.join(map(str, w[:1])) if isinstance(w, list) else '')
def test_commands_make_interrupted_calls_again(run, program, library, tmp_path, words, calls):
    env = dict(os.environ, LD_PRELOAD=str(library))
    r = subprocess.run([program, words[0], '--quiet', *map(str, words[1:])], cwd=tmp_path, env=env, capture_output=True,
                       text=True, timeout=240)
    assert r.returncode == 0, r.stderr
    met = {line.removeprefix('interrupted: ') for line in r.stderr.splitlines()}
    assert {call.removesuffix('64') for call in met} >= calls, met
    out = tmp_path / words[-1]
    if out.name in ('leaves', 'm.npz'):
        run('convert', '--quiet', out, tmp_path / 'again')
        out = tmp_path / 'again'
    assert '78 the same, 0 differences' in run('diff', SAMPLE, out / 'default' if words[0] == 'save' else out).stdout


@pytest.mark.skipif(os.getuid() != 0, reason='only root may become somebody else')
def test_the_draft_of_another_user_is_theirs(run, program, library):
    """A mount of root gives the directory of a draft to who makes it (chown)."""
    # The daemon may end a moment after its mount.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as d:
        top = pathlib.Path(d)
        for name in ('.', 'ckpts', 'm'):
            (top / name).mkdir(exist_ok=True)
            (top / name).chmod(0o777)
        env = dict(os.environ, LD_PRELOAD=str(library))
        r = subprocess.run([program, 'mount', '-o', f'shape=root,allow_other,log={top}/log', top / 'ckpts', top / 'm'], env=env,
                           capture_output=True, text=True, timeout=240)
        assert r.returncode == 0, r.stderr
        try:
            script = 'mkdir 7.tmp 7.tmp/default && echo 5 >7.tmp/default/n.json && mv 7.tmp 7'
            r = subprocess.run(['sh', '-c', script], cwd=top / 'm', user=65534, group=65534, extra_groups=[], capture_output=True,
                               text=True, timeout=240)
            assert r.returncode == 0, r.stderr + (top / 'log').read_text()
            assert (top / 'ckpts/7').stat().st_uid == 65534
        finally:
            subprocess.run(['umount', '-l', top / 'm'], check=True)


@pytest.fixture(scope='module')
def large(program, tmp_path_factory):
    """128 MiB: with zstd:22 two threads work for a minute."""
    d = tmp_path_factory.mktemp('large')
    (d / 'leaves').mkdir()
    np.save(d / 'leaves/w.npy', np.random.default_rng(0).integers(0, 1 << 20, 1 << 25, dtype=np.int32))
    subprocess.run([program, 'convert', '-o', 'compression=none', d / 'leaves', d / '1'], check=True)
    yield d
    for f in (d / 'leaves/w.npy', d / '1'):
        subprocess.run(['rm', '-rf', f], check=True)


@pytest.mark.parametrize('words', [
    ['convert', '-o', 'compression=zstd:22,threads=2', 'leaves'], ['convert', '-o', 'compression=zstd:22,threads=2', '1'],
    ['convert', '-o', 'compression=zstd:22,threads=2,chunk_byte_size=128M,write_budget=16M', '1'], ['save', '-o', 'compression=zstd:22,threads=2', 'leaves'],
    ['export', '--format', 'zarr', '-o', 'compression=zstd:22,threads=2', '1']], ids=' '.join)
def test_a_signal_ends_a_slow_encoder(program, large, tmp_path, words):
    p = subprocess.Popen([program, *words[:-1], '--quiet', large / words[-1], tmp_path / '7'], stderr=subprocess.PIPE, text=True)
    try:
        mounts.wait_for(lambda: os.listdir(tmp_path) or p.poll() is not None)
        p.send_signal(signal.SIGINT)
        _, err = p.communicate(timeout=60)
    finally:
        p.kill()
        p.wait()
    assert p.returncode == 1 and 'interrupted; nothing is left behind' in err, err
    assert os.listdir(tmp_path) == []


# ---- callers of a mount that waits for a server or a disk ----

# It says that it is ready, waits for a line, makes its call, and says what has become of it.
CALLER = r"""import os, signal, sys
m = sys.argv[1]
signal.signal(signal.SIGUSR1, lambda *_: None)
if 'term' in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: None)
%s
print('ready', flush=True)
sys.stdin.readline()
print('begins', flush=True)
try:
    print('result', %s, flush=True)
except OSError as e:
    print('errno', e.errno, flush=True)
"""
# By the kind of source: calls that wait for it, and what was done before.
FILE = "f = open(f'{m}/1000/metrics/metrics', 'rb', buffering=0)"
ALL = {'lookup': "os.lstat(f'{m}/1500')", 'readdir': "os.listdir(f'{m}/1500')", 'read': ('f.read()', FILE),
       'open': "os.open(f'{m}/1500/config/metadata', 0)", 'getxattr': "os.getxattr(f'{m}/1500', 'user.pytree.items')"}
CALLS = {
    's3': ALL,
    'disk': {**ALL, 'getattr': 'os.stat(m)', 'opendir': 'os.listdir(m)', 'statfs': 'os.statvfs(m)',
             'open': ("os.open('metrics', 0, dir_fd=d)", "d = os.open(f'{m}/1000/metrics', os.O_RDONLY)")},
    'https': {'lookup': "os.lstat(f'{m}/config')", 'readdir': 'os.listdir(m)', 'read': ('f.read()', FILE),
              'open': "os.open(f'{m}/config/metadata', 0)", 'getxattr': ("os.getxattr(f'{m}/state', 'user.pytree.stored_bytes')", "os.lstat(f'{m}/state')")},
}


# Calls that a mount of a URL answers without its server.
AT_ONCE = {'getattr': 'os.stat(m)', 'getattr of a file': ('os.fstat(f.fileno())', FILE), 'statfs': 'os.statvfs(m)'}


class Caller:
    def __init__(self, m, call, before='', *more):
        self.call = call
        self.process = subprocess.Popen([sys.executable, '-S', '-c', CALLER % (before, call), str(m.path), *more], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.line() == 'ready', self.process.stderr.read()

    def line(self):
        return self.process.stdout.readline().strip()

    def begin(self):
        self.process.stdin.write('\n')
        self.process.stdin.flush()
        assert self.line() == 'begins'

    def waits(self):
        where = pathlib.Path(f'/proc/{self.process.pid}/wchan').read_text()
        assert self.process.poll() is None, f'{self.call} does not wait: {self.process.communicate()}'
        return where not in ('', '0') and 'pipe' not in where

    def end(self, number):
        self.process.send_signal(number)

    def said(self, again=None):
        """Its last words. again: the signal once more, since Python notes one that comes between two system calls, and goes on."""
        for _ in range(30):
            with contextlib.suppress(subprocess.TimeoutExpired):
                out, err = self.process.communicate(timeout=2)
                return out.strip() or err
            if again:
                self.end(again)
        raise AssertionError(f'{self.call} does not end')


class Stall:
    """The gate of a server (lib.servers, lib.buckets): while it is closed, nothing is answered."""

    def __init__(self, server):
        self.is_open, self.held = threading.Event(), 0
        self.is_open.set()
        server.gate = self

    @contextlib.contextmanager
    def __call__(self, handler):
        self.held += not self.is_open.is_set()
        self.is_open.wait()
        yield

    def close(self):
        self.is_open.clear()

    def open(self):
        self.is_open.set()


class Stopped:
    """A disk that stalls: that of a mount whose process is stopped."""

    def __init__(self, m):
        self.pid = m.pid

    def close(self):
        mounts.stop(self.pid)

    def open(self):
        os.kill(self.pid, signal.SIGCONT)


@pytest.fixture(scope='module')
def sample_bucket(s3_server):
    b = buckets.Bucket(s3_server, 'interrupted')
    b.upload(SAMPLE.parents[1], 'run')
    return b


@pytest.fixture
def caller(mount):
    """caller(mount, call, before, ...): a Caller that does not outlive the test."""
    made = []

    def do(*what):
        made.append(Caller(*what))
        return made[-1]
    yield do
    for c in made:
        c.process.kill()
        c.process.communicate(timeout=60)


@pytest.fixture
def stalling(request, mount, caller):
    """stalling(kind): (a mount, what stalls its source)."""
    with contextlib.ExitStack() as stack:
        def do(kind, *options):
            if kind == 'disk':
                below = mount(SAMPLE.parents[1])
                m, stall = mount(below / '.pytreefs/stored', *options, allow_errors=True), Stopped(below)
            elif kind == 's3':
                request.getfixturevalue('sample_bucket')
                stall = Stall(request.getfixturevalue('s3'))
                m = mount('s3://interrupted/run', *options, allow_errors=True)
            else:
                made = []
                tls = servers.certificate(request.getfixturevalue('tmp_path'))
                request.getfixturevalue('monkeypatch').setenv('SSL_CERT_FILE', str(tls[0]))
                url = stack.enter_context(servers.faulty(SAMPLE.parents[1], made=made, tls=tls))
                m, stall = mount(f'{url}/1500', *options, allow_errors=True), Stall(made[0])
            stack.callback(stall.open)
            return m, stall
        yield do


def callers_of(calls, kind):
    """(call, what is done before) of each, for a mount of that kind."""
    for call in calls.values():
        call, before = call if isinstance(call, tuple) else (call, '')
        yield call, before.replace('/1000', '') if kind == 'https' else before


@pytest.mark.parametrize('kind', CALLS)
def test_a_signal_ends_a_caller_that_waits(caller, stalling, kind):
    """Each call with each signal, more callers than threads serve; the mount goes on meanwhile, and afterwards gives the same."""
    # poll=: after half a minute even the root is asked for again.
    m, stall = stalling(kind, 'direct_io=on', 'poll=600000')
    callers = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        callers += [(caller(m, *what), number) for what in callers_of(CALLS[kind], kind)]
    instant = [caller(m, *what) for what in callers_of(AT_ONCE if kind != 'disk' else {}, kind)]
    other = os.open(m / '.pytreefs/version', os.O_RDONLY)
    stall.close()
    for c, _ in callers:
        c.begin()
    for c, _ in callers:
        mounts.wait_for(c.waits)
    for c, number in callers:
        c.end(number)
    for c, number in callers:
        said = c.said(number)
        assert c.process.returncode == -number and 'KeyboardInterrupt' in said + 'KeyboardInterrupt' * (number != signal.SIGINT), (c.call, said)
    assert os.pread(other, 100, 0)
    os.close(other)
    for c in instant:
        c.begin()
        assert c.line().startswith('result os.stat'), c.call
    stall.open()
    assert '0 differences' in subprocess.run([m.program, 'diff', SAMPLE.parent, m / ('1500' if kind != 'https' else '')],
                                             capture_output=True, text=True).stdout


def draft(m, step):
    (m / f'{step}.tmp/default').mkdir(parents=True)
    np.save(m / f'{step}.tmp/default/w.npy', np.arange(step))
    return f"os.rename(f'{{m}}/{step}.tmp', f'{{m}}/{step}')"


SIGNALS = pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])


@SIGNALS
def test_a_commit_goes_on_without_its_caller(caller, stalling, spill, number):
    m, stall = stalling('s3')
    c = caller(m, draft(m, 2000 + number))
    other = os.open(m / '.pytreefs/version', os.O_RDONLY)
    stall.close()
    c.begin()
    mounts.wait_for(lambda: stall.held)
    ends_and_goes_on(m, stall, c, 2000 + number, number, other)


class Frozen:
    """A disk of which nothing is written meanwhile."""

    def __init__(self, at):
        self.at = at

    def close(self):
        subprocess.run(['fsfreeze', '--freeze', self.at], check=True)

    def open(self):
        subprocess.run(['fsfreeze', '--unfreeze', self.at], capture_output=True)


@pytest.fixture
def disk(tmp_path):
    """(a directory on a disk of its own, what stalls it)."""
    image, at = tmp_path / 'image', tmp_path / 'disk'
    at.mkdir()
    with open(image, 'wb') as f:
        f.truncate(64 << 20)
    if os.getuid() or any(subprocess.run(c, capture_output=True).returncode for c in (['mkfs.ext4', '-q', image], ['mount', '-o', 'loop', image, at])):
        pytest.skip('no disk image can be mounted here')
    stall = Frozen(at)
    try:
        yield at, stall
    finally:
        stall.open()
        why = mounts.unmount_with('umount', at)
        assert not why, why


@SIGNALS
def test_a_commit_to_a_disk_goes_on_without_its_caller(disk, caller, mount, number):
    source, stall = disk
    m = mount(source, 'shape=root')
    c = caller(m, draft(m, 7))
    other = os.open(m / '.pytreefs/version', os.O_RDONLY)
    stall.close()
    c.begin()
    mounts.wait_for(lambda: any('State:\tD' in status for status in mounts.threads(m.pid).values()))
    ends_and_goes_on(m, stall, c, 7, number, other)


def ends_and_goes_on(m, stall, c, step, number, other):
    """other: a file of `.pytreefs` that was opened before, since a look-up asks who may use SOURCE."""
    c.end(number)
    said = c.said()
    assert c.process.returncode == -number, said
    assert os.pread(other, 100, 0)
    os.close(other)
    stall.open()
    # Another change of the root waits for it.
    (m / '3.tmp').mkdir()
    np.testing.assert_array_equal(np.load(m / f'{step}/default/w.npy'), np.arange(step))
    assert f"'{step}.tmp' is '{step}' now: the program that renamed it was interrupted" in pathlib.Path(m.log).read_text()
    (m / '3.tmp').rmdir()


def test_signals_that_a_program_handles(caller, stalling, spill):
    """Those that do not ask it to end interrupt no call; SIGTERM none whose outcome a program needs that saves what it has."""
    m, stall = stalling('s3', 'direct_io=on')
    commits = caller(m, draft(m, 2100), '', 'term')
    reads, ends = caller(m, 'f.read()', FILE), caller(m, 'f.read()', FILE.replace('metrics', 'config', 1).replace('metrics', 'metadata'))
    stall.close()
    for c in (commits, reads, ends):
        c.begin()
        mounts.wait_for(c.waits)
    commits.end(signal.SIGTERM)
    reads.end(signal.SIGUSR1)
    reads.end(signal.SIGTSTP)
    ends.end(signal.SIGINT)
    assert 'KeyboardInterrupt' in ends.said()
    assert commits.waits() and reads.waits()
    stall.open()
    reads.end(signal.SIGCONT)
    assert commits.said() == 'result None' and reads.said().startswith('result b')
