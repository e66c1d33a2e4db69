# SPDX-License-Identifier: Apache-2.0
"""fuse_uring: requests over io_uring give the same results as through /dev/fuse, and nothing outlives the mount."""

import concurrent.futures
import errno
import fcntl
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import threading

import numpy as np
import pytest

from lib.mounts import has_ended, threads, wait_for

PARAMETER = pathlib.Path('/sys/module/fuse/parameters/enable_uring')
SAMPLE = pathlib.Path(__file__).resolve().parents[1] / 'data' / 'sample'
MIB = 1 << 20
ON = 'fuse_uring'


@pytest.fixture
def enabled():
    """The administrator allows it, while the test runs. The parameter is the whole machine's: one test at a time."""
    try:
        alone = PARAMETER.open()
        fcntl.flock(alone, fcntl.LOCK_EX)
        before = PARAMETER.read_text().strip()
        PARAMETER.write_text('Y')
    except OSError as e:
        pytest.skip(f'FUSE over io_uring cannot be enabled here: {e.strerror}')
    with alone:
        yield
        PARAMETER.write_text(before)


@pytest.fixture(scope='module')
def step(program, tmp_path_factory):
    """A raw leaf, one that is decoded piece by piece, a small one, and many names."""
    files = tmp_path_factory.mktemp('files')
    (files / 'many').mkdir()
    np.save(files / 'plain.npy', np.arange(3 * MIB, dtype=np.float32))
    np.save(files / 'packed.npy', np.arange(2 * MIB, dtype=np.int32) // 7)
    for i in range(500):
        np.save(files / f'many/leaf{i:04}.npy', np.arange(i, i + 5, dtype=np.int16))
    where = tmp_path_factory.mktemp('root') / '7'
    subprocess.run([program, 'save', '-q', '-o', 'rule=plain*:compression=none,chunk_byte_size=64M', files, where], check=True)
    return where


@pytest.fixture
def root(step, tmp_path):
    shutil.copytree(step, tmp_path / 'root/7')
    return tmp_path / 'root'


def digest(tree):
    """Names, attributes and contents of everything below it."""
    h = hashlib.sha256()
    for at, directories, files in os.walk(tree):
        directories.sort()
        for name in sorted(files):
            path = os.path.join(at, name)
            st = os.stat(path)
            h.update(f'{os.path.relpath(path, tree)} {st.st_mode} {st.st_size} {st.st_blocks} {st.st_mtime_ns}'.encode())
            h.update(b''.join(a.encode() + os.getxattr(path, a) for a in sorted(os.listxattr(path))))
            with open(path, 'rb') as f:
                h.update(f.read())
    return h.hexdigest()


@pytest.mark.option('fuse_uring')
@pytest.mark.parametrize('direct', ['direct_io=off', 'direct_io=on'])
def test_everything_reads_the_same(mount, root, enabled, direct):
    ring, device = mount(root, ON, direct), mount(root, direct)
    assert digest(ring.path) == digest(device.path)
    view = '7/default/packed[100:2000000:3]@float64.npy'
    np.testing.assert_array_equal(np.load(ring / view), np.load(device / view))
    np.testing.assert_array_equal(np.load(ring / '7/default/plain.npy', mmap_mode='r'), np.arange(3 * MIB, dtype=np.float32))
    assert ring.stats()['requests_uring'] > 1000 > device.stats()['requests_uring'] == 0


def test_a_step_is_written_and_copied(mount, root, enabled):
    """Large and small writes, attributes, copy_file_range, a commit, a refused commit and an abort."""
    m = mount(root, ON, allow_errors=True)
    draft = m / '8.tmp' / 'default'
    os.makedirs(draft)
    big = np.arange(5 * MIB, dtype=np.uint16).reshape(5, MIB)
    np.save(draft / 'big.npy', big)
    (draft / 'step.json').write_text('8')
    os.mkdir(draft / 'list')
    os.setxattr(draft / 'list', 'user.pytree.kind', b'"list"')
    (draft / 'list' / '0.json').write_text('1.5')
    shutil.copy(m / '7/default/packed.npy', draft / 'packed.npy')
    (draft / 'cut.npy').write_bytes(b'\x93NUMPY')
    assert subprocess.run(['mv', '-T', m / '8.tmp', m / '8'], capture_output=True).returncode != 0
    os.unlink(draft / 'cut.npy')
    os.rename(m / '8.tmp', m / '8')
    np.testing.assert_array_equal(np.load(m / '8/default/big.npy'), big)
    np.testing.assert_array_equal(np.load(m / '8/default/packed.npy'), np.load(m / '7/default/packed.npy'))
    assert os.getxattr(m / '8/default/list', 'user.pytree.kind') == b'"list"'
    os.makedirs(m / '9.tmp' / 'default')
    shutil.rmtree(m / '9.tmp')
    assert sorted(os.listdir(m.path)) == ['7', '8']
    assert m.stats()['requests_uring'] > 30


def test_more_requests_at_once_than_threads(mount, root, enabled):
    """Readers and writers of many leaves, twice as many as threads take requests."""
    m = mount(root, ON)
    want = np.load(m / '7/default/packed.npy')
    os.makedirs(m / '8.tmp' / 'default')

    def work(i):
        np.testing.assert_array_equal(np.load(m / f'7/default/packed[{i * 1000}:{i * 1000 + MIB}].npy'), want[i * 1000:i * 1000 + MIB])
        np.save(m / f'8.tmp/default/leaf{i}.npy', np.full(MIB // 2, i, np.int32))
        return int(np.load(m / f'8.tmp/default/leaf{i}.npy')[-1])

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        assert list(pool.map(work, range(64))) == list(range(64))
    os.rename(m / '8.tmp', m / '8')
    assert len(list((m / '8/default').glob('leaf*.npy'))) == 64


def test_one_thread_or_more_for_each_processor(mount, root, enabled):
    m = mount(root, ON)
    wait_for(lambda: sum(name.startswith('fuse_queue') for name in threads(m.pid, 'comm').values()) >= 2 * os.cpu_count())


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_it_while_files_are_open(mount, root, enabled, number):
    m = mount(root, ON)
    pid = m.pid
    with open(m / '7/default/plain.npy', 'rb', buffering=0) as f:
        assert f.read(100)
        os.kill(pid, number)
        wait_for(lambda: has_ended(pid))
        with pytest.raises(OSError):
            os.pread(f.fileno(), MIB, 4 * MIB)


def test_it_ends_while_readers_and_the_watcher_ask(mount, root, enabled):
    """A new step makes the helper that forgets names ask, too. Requests that come too late fail with one of these."""
    late = {errno.ECANCELED, errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV, errno.ENOENT}
    for n in range(5):
        m = mount(root, ON, allow_errors=True)
        pid, stop, wrong = m.pid, threading.Event(), []

        def read(m=m, stop=stop, wrong=wrong):
            while not stop.is_set() and m.mounted():
                try:
                    for name in os.listdir(m / '7/default'):
                        os.stat(m / '7/default' / name)
                    os.listdir(m.path)
                except OSError as e:
                    wrong += [] if e.errno in late else [e]

        readers = [threading.Thread(target=read) for _ in range(4)]
        for t in readers:
            t.start()
        shutil.copytree(root / '7', root / f'{70 + n}')
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda pid=pid: has_ended(pid))
        stop.set()
        for t in readers:
            t.join()
        assert not wrong


def test_a_forced_unmount_ends_it(mount, root, enabled):
    m = mount(root, ON)
    pid = m.pid
    with open(m / '7/default/plain.npy', 'rb', buffering=0):
        subprocess.run(['umount', '-l', '-f', m.path], check=True)
    wait_for(lambda: has_ended(pid))


def test_where_it_is_not_enabled_the_log_says_so(mount, root, enabled):
    PARAMETER.write_text('N')
    m = mount(root, ON, allow_errors=True)
    np.testing.assert_array_equal(np.load(m / '7/default/plain.npy'), np.arange(3 * MIB, dtype=np.float32))
    assert m.stats()['requests_uring'] == 0
    assert any('enable_uring' in line for line in m.log_lines())
