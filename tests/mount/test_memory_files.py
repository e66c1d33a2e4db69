# SPDX-License-Identifier: Apache-2.0
"""Leaves that are decoded into files in memory, which the kernel reads: the right bytes, and memory that is given back."""

import ctypes
import mmap
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from lib.mounts import wait_for
from lib.saving import saved

MIB = 1 << 20
LEAVES = {f'w{i:02}.npy': (np.arange(i, i + 300_000 + 1000 * i, dtype=np.int64) // 7).reshape(-1, 50) for i in range(12)}
LAYOUTS = {'default': '', 'zstd': 'compression=zstd', 'none': 'compression=none', 'chunks': 'compression=zstd,chunk_byte_size=300K',
           'blosc': 'compression=blosc:lz4:5:byte,chunk_byte_size=700K', 'zarr3': 'zarr=3,compression=zstd,crc32c=on', 'files': 'ocdbt=off'}


@pytest.fixture
def root(tmp_path):
    (tmp_path / 'root').mkdir()
    return tmp_path / 'root'


def load_all(m, **how):
    return {p.name: np.load(p, **how) for p in sorted((m / '1/default').glob('*.npy'))}


def equal(got, want=LEAVES):
    return list(got) == list(want) and all(np.array_equal(got[name], want[name]) for name in want)


@pytest.fixture
def works(mount, tmp_path):
    """Skips where the kernel, the container or its memory allows no such files."""
    (tmp_path / 'works').mkdir()
    saved(mount, tmp_path / 'works', files=LEAVES)
    m = mount(tmp_path / 'works')
    load_all(m)
    if not m.stats()['memory_files_filled']:
        pytest.skip('no leaf was decoded into a file in memory here')
    assert not m.unmount()


@pytest.mark.option('passthrough', 'direct_io')
@pytest.mark.parametrize('layout', LAYOUTS)
def test_the_bytes_are_those_of_requests(mount, root, works, layout):
    saved(mount, root, *filter(None, LAYOUTS[layout].split(',')), files=LEAVES)
    plain = [mount(root, option) for option in ('passthrough=off', 'direct_io=on')]
    want = [{p.name: p.read_bytes() for p in (m / '1/default').glob('w*.npy')} for m in plain]
    assert want[0] == want[1] and not any(m.stats()['memory_files_filled'] for m in plain)
    m = mount(root)
    assert equal(load_all(m))
    filled = m.stats()['memory_files_filled']
    assert filled >= len(LEAVES) - 3
    decoded = m.stats()['chunk_bytes_decoded']
    for name, text in want[0].items():
        path = m / '1/default' / name
        assert path.read_bytes() == text and path.stat().st_size == len(text)
        with open(path, 'rb', buffering=0) as f:
            at = len(text) // 3
            assert os.pread(f.fileno(), 5000, at) == text[at:at + 5000] and os.pread(f.fileno(), 10, len(text)) == b''
            assert os.pread(f.fileno(), MIB, len(text) - 7) == text[-7:]
            for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
                with mmap.mmap(f.fileno(), 0, flags, mmap.PROT_READ) as mapped:
                    assert mapped[:] == text
    copies = root.parent / 'copies'
    copies.mkdir()
    subprocess.run(['cp', '--reflink=auto', *(m / '1/default' / name for name in want[0]), copies], check=True)
    assert {p.name: p.read_bytes() for p in copies.iterdir()} == want[0]
    # They were decoded once.
    assert m.stats()['memory_files_filled'] == filled and m.stats()['chunk_bytes_decoded'] == decoded


def test_a_mount_of_one_item(mount, root, works):
    m = mount(saved(mount, root, 'compression=zstd', files=LEAVES))
    assert equal({name: np.load(m / name) for name in LEAVES}) and m.stats()['memory_files_filled'] >= len(LEAVES) - 3


def test_leaves_that_are_larger_than_the_window_of_decode_ahead(mount, root, works):
    large = {f'w{i}.npy': np.tile(np.arange(i, i + (1 << 18)), (18, 1)) for i in range(6)}
    saved(mount, root, 'compression=zstd,chunk_byte_size=5M', files=large)
    m = mount(root)
    assert equal(load_all(m), large)
    stats = m.stats()
    assert stats['memory_files_filled'] >= 3 and stats['chunk_bytes_decoded'] <= 1.1 * sum(a.nbytes for a in large.values())


def test_readers_at_once_decode_each_leaf_once(mount, root, works):
    saved(mount, root, 'compression=zstd', files=LEAVES)
    reader = 'import numpy, sys\nprint([int(numpy.load(p).sum()) for p in sys.argv[1:]])'
    # Readers that happen to begin each leaf at the same time by requests leave none for a file.
    for _ in range(20):
        m = mount(root)
        paths = [m / '1/default' / name for name in LEAVES]
        running = [subprocess.Popen([sys.executable, '-c', reader, *paths], stdout=subprocess.PIPE, text=True) for _ in range(4)]
        assert {r.communicate()[0] for r in running} == {f'{[int(a.sum()) for a in LEAVES.values()]}\n'}
        assert m.stats()['chunk_bytes_decoded'] <= 1.3 * sum(a.nbytes for a in LEAVES.values())
        if m.stats()['memory_files_filled']:
            return
        assert not m.unmount()
    pytest.fail('no leaf was decoded into a file for readers at once')


def test_programs_that_read_only_headers_decode_nothing(mount, root, works):
    # numpy reads 2 MiB for a header.
    large = {name: np.tile(a, (3, 1)) for name, a in LEAVES.items()}
    saved(mount, root, 'compression=zstd', files=large)
    m = mount(root)
    for _ in range(2):
        assert {name: a.shape for name, a in load_all(m, mmap_mode='r').items()} == {name: a.shape for name, a in large.items()}
    assert not m.stats()['memory_files_filled']


def test_a_program_that_reads_headers_after_all_was_read(mount, root, works):
    """Another program read all of it, but this one does not decode the next leaves for that."""
    large = {name: np.tile(a, (3, 1)) for name, a in LEAVES.items()}
    saved(mount, root, 'compression=zstd', files=large)
    m = mount(root)
    assert equal(load_all(m), large)
    filled = m.stats()['memory_files_filled']
    assert filled
    code = 'import numpy, sys\nfor p in sys.argv[1:]: numpy.load(p, mmap_mode="r").shape'
    subprocess.run([sys.executable, '-c', code, *(m / '1/default' / name for name in LEAVES)], check=True)
    assert m.stats()['memory_files_filled'] == filled


def test_files_that_were_opened_before_they_are_read(mount, root, works):
    """They are read by requests: a file in memory would have no reader, and each leaf is decoded once."""
    saved(mount, root, 'compression=zstd', files=LEAVES)
    m = mount(root)
    files = [open(p, 'rb', buffering=0) for p in sorted((m / '1/default').glob('*.npy'))]
    assert [int(np.load(f).sum()) for f in files] == [int(a.sum()) for a in LEAVES.values()]
    assert not m.stats()['memory_files_filled']
    assert m.stats()['chunk_bytes_decoded'] <= 1.1 * sum(a.nbytes for a in LEAVES.values())
    for f in files:
        f.close()
    assert equal(load_all(m))


def test_a_second_file_that_outlives_the_first_one(mount, root, works):
    """The first open decides that a leaf is read by requests, and that holds for the second one as long as it is open."""
    saved(mount, root, 'compression=zstd', files=LEAVES)
    m = mount(root)
    paths = sorted((m / '1/default').glob('*.npy'))
    first, second = ([open(p, 'rb', buffering=0) for p in paths] for _ in range(2))
    for f in first:
        f.close()
    assert [int(np.load(f).sum()) for f in second] == [int(a.sum()) for a in LEAVES.values()]
    assert not m.stats()['memory_files_filled'] and m.stats()['chunk_bytes_decoded'] <= 1.1 * sum(a.nbytes for a in LEAVES.values())
    for f in second:
        f.close()


def test_pages_that_the_kernel_has_dropped(mount, root, works):
    """A leaf that was read by requests is in the page cache; if it is not any more, it is one for memory as the others are."""
    saved(mount, root, 'compression=zstd', files=LEAVES)
    m = mount(root)
    for i in range(3):
        for p in sorted((m / '1/default').glob('*.npy'), reverse=not i):
            with open(p, 'rb', buffering=0) as f:
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                assert np.array_equal(np.load(f), LEAVES[p.name])
    assert m.stats()['memory_files_filled'] == len(LEAVES) - 3


MAPS = r'''
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
for path in sys.argv[1:]:
    fd = os.open(path, os.O_RDONLY)
    size = os.fstat(fd).st_size
    at = libc.mmap(None, ctypes.c_size_t(size), 1, 1, fd, ctypes.c_long(0))
    os.close(fd)
    assert at not in (None, 2**64 - 1) and ctypes.string_at(at, size)
print("mapped", flush=True)
sys.stdin.read()
'''


def test_leaves_that_a_program_maps_and_closes_count(mount, root, works):
    """Their memory is in use although no file is open, so it is none for others until the maps end."""
    saved(mount, root, 'compression=zstd', files=LEAVES)
    m = mount(root)
    assert equal(load_all(m))
    used = m.stats()['memory_file_bytes']
    paths = [m / '1/default' / name for name in LEAVES]
    maps = subprocess.Popen([sys.executable, '-S', '-c', MAPS, *paths], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert maps.stdout.readline() == 'mapped\n'
    shutil.rmtree(root / '1')
    wait_for(lambda: not m.stats()['memory_files'])
    assert m.stats()['memory_file_bytes'] > used / 2
    maps.communicate()
    wait_for(lambda: not m.stats()['memory_file_bytes'])


def test_a_damaged_leaf_is_an_error_and_its_neighbours_are_read(mount, root, works):
    item = saved(mount, root, 'compression=zstd,ocdbt=off', files=LEAVES)
    path = item / 'w07/0.0'
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    data[len(data) // 2 + 1] ^= 255
    path.write_bytes(data)
    m = mount(root, allow_errors=True)
    for _ in range(2):
        for name, a in LEAVES.items():
            if name != 'w07.npy':
                assert np.array_equal(np.load(m / '1/default' / name), a)
                continue
            with pytest.raises(OSError, match='Input/output'):
                np.load(m / '1/default' / name)
    assert any('w07' in line for line in m.log_lines()) and m.stats()['memory_files_filled'] >= len(LEAVES) - 5


def test_a_step_that_is_replaced(mount, root, works, tmp_path):
    """The new values at once; who has the old file open gets the old bytes, and their memory is freed at last."""
    saved(mount, root, 'compression=zstd', files=LEAVES)
    (tmp_path / 'other').mkdir()
    new = {name: a[::-1] + 1 for name, a in LEAVES.items()}
    saved(mount, tmp_path / 'other', 'compression=zstd', files=new)
    m = mount(root)
    assert equal(load_all(m))
    with open(m / '1/default/w06.npy', 'rb', buffering=0) as f:
        mapped = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
        old = mapped[:]
        (root / '1').rename(root.parent / 'old')
        (tmp_path / 'other/1').rename(root / '1')
        wait_for(lambda: np.array_equal(np.load(m / '1/default/w06.npy'), new['w06.npy']))
        assert equal(load_all(m), new) and equal(load_all(m), new)
        assert mapped[:] == old == os.pread(f.fileno(), len(old), 0)
        mapped.close()
    shutil.rmtree(root / '1')
    wait_for(lambda: not (m / '1').exists())
    wait_for(lambda: not m.stats()['memory_files'])
    assert not m.stats()['memory_file_bytes']


@pytest.mark.parametrize('how', ['umount -l', 'SIGKILL'])
def test_the_mount_ends_while_a_leaf_is_mapped(mount, root, works, how):
    saved(mount, root, 'compression=zstd', files=LEAVES)
    m = mount(root, allow_errors=True)
    assert equal(load_all(m))
    before, kept = m.stats()['memory_files'], np.load(m / '1/default/w07.npy', mmap_mode='r')
    assert before
    if how == 'SIGKILL':
        os.kill(m.pid, signal.SIGKILL)
    subprocess.run(['umount', '-l', m.path], check=True)
    assert np.array_equal(kept, LEAVES['w07.npy'])


@pytest.mark.parametrize('group', [512], indirect=True)
def test_memory_that_others_need_is_given_back(mount, root, works, group):
    """In a control group of 512 MiB a quarter of what is left is used, and less when another program takes most of it."""
    under, killed = group
    saved(mount, root, 'compression=zstd', files={f'x{i:02}.npy': np.arange(MIB, dtype=np.int32) // 3 + i for i in range(40)})
    m = mount(root, 'cache=64M', 'read_budget=64M', under=under)
    want = [np.arange(MIB, dtype=np.int32) // 3 + i for i in range(40)]
    for _ in range(2):
        assert all(np.array_equal(a, b) for a, b in zip(load_all(m).values(), want))
    used = m.stats()['memory_file_bytes']
    assert 16 * MIB < used < 128 * MIB and m.stats()['memory_files_refused']
    hog = subprocess.Popen([*under, sys.executable, '-S', '-c', 'x = b"1" * (300 << 20)\nprint(len(x), flush=True)\ninput()'],
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert hog.stdout.readline()
    wait_for(lambda: m.stats()['memory_file_bytes'] < 3 * used / 4)
    assert all(np.array_equal(a, b) for a, b in zip(load_all(m).values(), want))
    hog.communicate(b'\n')
    assert not killed() and m.mounted() and not m.unmount()


def test_what_else_programs_do_with_files(mount, root, works):
    """O_DIRECT, sendfile, advice, holes, locks."""
    saved(mount, root, 'compression=zstd', files=LEAVES)
    m = mount(root)
    load_all(m)
    path, text = m / '1/default/w09.npy', (m / '1/default/w09.npy').read_bytes()
    passed = m.stats()['files_passed_through']
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, 4 * MIB)
    assert os.preadv(fd, [buffer], 0) == len(text) and buffer[:len(text)] == text
    os.close(fd)
    with open(path, 'rb') as f, open(root.parent / 'sent', 'wb') as to:
        for advice in (os.POSIX_FADV_WILLNEED, os.POSIX_FADV_DONTNEED, os.POSIX_FADV_RANDOM):
            os.posix_fadvise(f.fileno(), 0, 0, advice)
        at = 0
        while at < len(text):
            at += os.sendfile(to.fileno(), f.fileno(), at, len(text))
        assert os.lseek(f.fileno(), 0, os.SEEK_HOLE) == len(text) and os.lseek(f.fileno(), 5, os.SEEK_DATA) == 5
        f.seek(0)
        assert f.read() == text
        with pytest.raises(OSError):
            os.pwrite(f.fileno(), b'x', 0)
        assert ctypes.CDLL(None).flock(f.fileno(), 1) == 0
    assert (root.parent / 'sent').read_bytes() == text and m.stats()['files_passed_through'] == passed + 2
