# SPDX-License-Identifier: Apache-2.0
"""Readers, writers, commits, deletions and an unmount at the same time.

`tests/run races` runs these, and other tests marked "races", with a program that was built with the thread sanitizer:
what it reports then fails the test. Everything goes through the mount, by threads of this process.
"""

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import threading

import numpy as np
import pytest
import safetensors.numpy

from lib import mounts

ROUNDS = 8                                      # commits of each writer
KEPT = 3                                        # steps that nobody deletes
# Errors that a reader of a step may get while it is deleted. EIO: its metadata is known, and the file of a chunk is gone.
GONE = {errno.ENOENT, errno.ESTALE, errno.EIO}
ENDED = GONE | {errno.ENOTCONN, errno.ECONNABORTED, errno.EBADF, errno.EINTR}

pytestmark = pytest.mark.races


def leaves(step):
    """The contents of a step follow from its number."""
    w = (np.arange(64 * 48, dtype=np.float32) + step).reshape(64, 48)
    return {'params/w.npy': w, 'params/b.npy': w[0].astype(np.int16), 'params/half.npy': w[:3].astype(np.float16)}


def save(m, step, draft):
    """A draft of that step, read while it is written; the caller commits it."""
    top = m / draft / 'default'
    (top / 'params').mkdir(parents=True)
    for path, a in leaves(step).items():
        np.save(top / path, a)
        assert np.array_equal(np.load(top / path), a)
    (top / 'step.json').write_text(str(step))
    (top / 'name.txt').write_text(f'step {step}')
    os.setxattr(top / 'params', 'user.pytree.kind', b'dict')
    whole = leaves(step)['params/w.npy']
    for start in (0, 32):                       # an array in two parts
        np.save(top / 'params' / f'cut[{start}:{start + 32},0:48]@64x48.npy', whole[start:start + 32])
    write_by_two_threads(top / 'params' / 'shared.npy', top / 'params' / 'w.npy')
    assert (top / '_METADATA').read_bytes()
    assert sorted(os.listdir(top)) == ['_METADATA', 'name.txt', 'params', 'step.json']


def write_by_two_threads(path, like):
    """One descriptor, of which each thread writes a half, and closes copies meanwhile."""
    data = like.read_bytes()
    fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)

    def half(start, stop):
        for at in range(start, stop, 1024):
            os.pwrite(fd, data[at:min(at + 1024, stop)], at)
            os.close(os.dup(fd))
    threads = Threads()
    try:
        for part in (0, len(data) // 2):
            threads.start(half, part, part + (len(data) + 1) // 2)
        threads.end()
    finally:
        os.close(fd)


def read(m, step):
    """Everything of a step, in every form."""
    top = m / str(step) / 'default'
    for path, a in leaves(step).items():
        assert np.array_equal(np.load(top / path), a), (step, path)
    whole = leaves(step)['params/w.npy']
    for name in ('cut', 'shared'):
        assert np.array_equal(np.load(top / 'params' / f'{name}.npy'), whole), (step, name)
    assert np.array_equal(np.load(top / 'params' / 'w[8:20,0:5]@float64.npy'), whole[8:20, :5].astype(np.float64))
    assert (top / 'step.json').read_text().strip() == str(step)
    assert (top / 'name.txt').read_text() == f'step {step}'
    assert os.getxattr(top / 'params' / 'w.npy', 'user.pytree.dtype') == b'"float32"'
    tensors = safetensors.numpy.load((m / str(step) / 'default.safetensors').read_bytes())
    assert np.array_equal(tensors['params.w'], whole)
    for where, _, files in os.walk(m / str(step)):
        for name in files:
            os.stat(os.path.join(where, name))


def numbers(m):
    return sorted(int(name) for name in os.listdir(m.path) if name.isdigit())


class Threads:
    """Functions that run at once; what one of them raises is raised by end()."""

    def __init__(self):
        self.stop, self.failed, self.threads, self.read = threading.Event(), [], [], 0

    def start(self, function, *args):
        def run():
            try:
                function(*args)
            except BaseException as e:          # noqa: BLE001: the test's own thread raises it
                self.failed.append(e)
                self.stop.set()
        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()
        return self.threads[-1]

    def end(self):
        self.stop.set()
        for t in self.threads:
            t.join(120)
            assert not t.is_alive(), 'a thread waits for the mount'
        if self.failed:
            raise self.failed[0]


def write_steps(m, first):
    for step in range(first, first + ROUNDS):
        save(m, step, f'{step}.tmp')
        os.rename(m / f'{step}.tmp', m / str(step))


def abort_drafts(m, threads):
    n = 9000
    while not threads.stop.is_set():
        save(m, n, f'{n}.tmp')
        shutil.rmtree(m / f'{n}.tmp')
        n += 1


def read_steps(m, threads):
    while not threads.stop.is_set():
        try:
            steps = numbers(m)
            # The oldest, which may be deleted at any moment, and the newest.
            for step in steps[:1] + steps[-1:]:
                read(m, step)
                threads.read += 1
            for name in ('stats', 'log', 'version'):
                (m / '.pytreefs' / name).read_text()
            os.statvfs(m.path)
        except OSError as e:
            if e.errno not in GONE:
                raise


def delete_steps(m, threads):
    while not threads.stop.is_set():
        for step in numbers(m)[:-KEPT]:
            os.rmdir(m / str(step))


@pytest.mark.parametrize('options', [(), ('ocdbt=off', 'zarr=3', 'cache=1M', 'poll=20'), ('io=sync', 'on_commit=true')],
                         ids=['database', 'directories', 'sync'])
def test_readers_writers_commits_and_deletions_at_once(mount, root, options):
    m = mount(root, 'allow_delete', 'threads=4', *options, allow_errors=True)
    threads = Threads()
    threads.start(read_steps, m, threads)
    threads.start(read_steps, m, threads)
    threads.start(delete_steps, m, threads)
    threads.start(abort_drafts, m, threads)
    for t in [threads.start(write_steps, m, first) for first in (1, 1001)]:
        t.join()
    # Steps stay that nobody deletes: sooner or later a reader comes through one.
    mounts.wait_for(lambda: threads.read or threads.failed, 120)
    threads.end()
    left = numbers(m)
    assert left[-1] == 1000 + ROUNDS and len(left) >= KEPT
    for step in left:
        read(m, step)


@pytest.mark.parametrize('how', ['signal', 'lazily'])
def test_an_unmount_while_all_is_in_use(mount, root, how):
    m = mount(root, 'allow_delete', 'threads=4', allow_errors=True)
    write_steps(m, 1)
    m.pid                                       # found while the mount is there
    threads = Threads()

    def write():
        # The last draft may fail because of the unmount, also in numpy; no draft before it may fail.
        with contextlib.suppress(OSError, EOFError, ValueError):
            for step in range(100, 200):
                save(m, step, f'{step}.tmp')
                os.rename(m / f'{step}.tmp', m / str(step))
                if threads.stop.is_set():
                    break

    def until_it_ends():
        while not threads.stop.is_set() and m.mounted():
            read_steps_once(m)
    for _ in range(3):
        threads.start(until_it_ends)
    threads.start(write)
    mounts.wait_for(lambda: (m / '101').exists() or threads.failed, 60)
    if how == 'signal':
        os.kill(m.pid, signal.SIGTERM)
    else:
        subprocess.run(['fusermount3', '-u', '-z', str(m.path)], check=True)
    threads.end()
    mounts.wait_for(lambda: not m.mounted(), 60)


def read_steps_once(m):
    try:
        for step in numbers(m)[:2]:
            read(m, step)
    except OSError as e:
        if e.errno not in ENDED:
            raise
    except EOFError:                            # of numpy: the file ended
        pass
    except ValueError as e:                     # of numpy, too: it reads by fread(3), and does not look at errno
        if 'Failed to read all data' not in str(e):
            raise
