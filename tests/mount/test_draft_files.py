"""Files and directories of a draft, as programs use those of any file system."""

import errno
import json
import os
import shutil
import threading
import time

import numpy as np
import pytest
import safetensors.numpy


@pytest.fixture
def root(tmp_path):
    path = tmp_path / 'root'
    path.mkdir()
    return path


def begin(m, name='7', item='default'):
    where = m / f'{name}.tmp' / item
    where.mkdir(parents=True)
    return where


def meanwhile(do):
    """do() again and again in a thread; what is returned ends it, and raises what it raised."""
    stop, failed = threading.Event(), []

    def run():
        try:
            while not stop.is_set():
                do()
        except BaseException as e:
            failed.append(e)

    def end():
        stop.set()
        thread.join()
        if failed:
            raise failed[0]
    thread = threading.Thread(target=run)
    thread.start()
    return end


def test_metadata_while_a_safetensors_file_is_written(mount, root):
    """Whoever looks meanwhile sees none of its tensors, or all."""
    m = mount(root)
    where = begin(m)
    data = safetensors.numpy.save({f'block.{i}.w': np.full(10, i, np.float32) for i in range(300)})
    end = meanwhile(lambda: (where / 'model.safetensors').write_bytes(data))
    try:
        for _ in range(600):
            tree = json.loads((where / '_METADATA').read_text())['tree_metadata']
            assert len(tree) in (1, 300)        # one: an empty dict
    finally:
        end()
    (m / '7.tmp').rename(m / '7')
    assert np.load(m / '7/default/model/block/299/w.npy').tolist() == [299] * 10


def test_what_stat_tells_of_names(mount, root):
    """A file that was removed has no link, as protocols with lock files need it; listings and stat name one inode."""
    m = mount(root)
    where = begin(m)
    (where / 'sub').mkdir()
    for name in ('w.txt', 'other.txt'):
        (where / name).write_text('x')
    for directory in (m.path, where.parent, where):
        for entry in os.scandir(directory):
            assert entry.inode() == os.stat(entry.path).st_ino, entry.path
    with open(where / 'w.txt', 'r+') as gone, open(where / 'other.txt') as replaced:
        assert os.fstat(gone.fileno()).st_nlink == 1
        (where / 'w.txt').unlink()
        assert os.fstat(gone.fileno()).st_nlink == 0
        (where / 'w.txt').write_text('new')
        (where / 'w.txt').rename(where / 'other.txt')
        assert os.fstat(replaced.fileno()).st_nlink == 0
        assert (os.fstat(gone.fileno()).st_nlink, (where / 'other.txt').stat().st_nlink) == (0, 1)
    directory = os.open(where / 'sub', os.O_RDONLY)
    (where / 'sub').rmdir()
    assert os.fstat(directory).st_nlink == 0
    os.close(directory)


@pytest.mark.parametrize('elements', [3, 100_000], ids=['small', 'large'])
def test_times_tell_of_changes(mount, root, elements):
    """make, rsync -u, cp -u and editors ask whether a file is newer than it was; readers' pages follow it, too."""
    m = mount(root)
    where = begin(m)
    path = where / 'w.npy'
    np.save(path, np.arange(elements))
    np.save(where / 'other.npy', np.zeros(elements))
    (m / '7.tmp').rename(m / '7')
    where = begin(m, '8')
    path = where / 'w.npy'

    def changes(do):
        before = path.stat().st_mtime_ns
        time.sleep(0.002)
        do()
        return path.stat().st_mtime_ns > before

    def overwrite():
        with open(path, 'r+b') as f:
            f.seek(128)
            f.write(b'12345678')

    def assign():
        np.load(path, mmap_mode='r+')[1] = 5
    shutil.copyfile(m / '7/default/w.npy', path)
    assert path.stat().st_mtime_ns > (m / '7/default/w.npy').stat().st_mtime_ns
    assert changes(lambda: np.save(path, np.ones(elements)))
    assert changes(overwrite)
    assert changes(assign)
    assert changes(lambda: os.truncate(path, 130))
    assert changes(lambda: os.truncate(path, 0))
    assert changes(lambda: shutil.copyfile(m / '7/default/w.npy', path))
    assert not changes(lambda: path.read_bytes())
    assert not changes(lambda: os.rename(where / 'w.npy', where / 'v.npy') or os.rename(where / 'v.npy', where / 'w.npy'))
    assert not changes(lambda: os.utime(path))


@pytest.mark.parametrize('synced', [False, True], ids=['unmapped', 'synced'])
def test_what_a_map_loses_is_not_committed(mount, root, synced):
    """The disk is full while the kernel writes pages back: without msync no program hears of it, so the commit tells."""
    w, told = np.arange(1, 300_001), 0

    def assign(path):
        mapped = np.load(path, mmap_mode='r+')
        mapped[:] = w
        if synced:
            mapped.flush()
        del mapped
    for n in range(2, 9):       # the first one is of the draft itself
        m = mount(root, f'io=fault(write:enospc:{n}):sync', allow_errors=True)
        where = begin(m, str(n))
        try:
            np.lib.format.open_memmap(where / 'w.npy', 'w+', w.dtype, w.shape).flush()
        except OSError:
            m.unmount()
            continue
        try:
            assign(where / 'w.npy')
        except OSError as e:        # msync told, and is told that it goes well now
            assert synced and e.errno == errno.ENOSPC
            assign(where / 'w.npy')
            told += 1
        try:
            (m / f'{n}.tmp').rename(m / str(n))
        except OSError as e:
            assert e.errno == errno.ENOSPC
            if 'through a map' in m.log_lines()[-1]:
                assert not synced and 'w.npy' in m.log_lines()[-1]
                with pytest.raises(OSError):
                    (m / f'{n}.tmp').rename(m / str(n))
                np.save(where / 'w.npy', w)
                told += 1
            (m / f'{n}.tmp').rename(m / str(n))
        assert np.array_equal(np.load(m / f'{n}/default/w.npy'), w)
        m.unmount()
    assert told >= 2
