# SPDX-License-Identifier: Apache-2.0
"""Files that are read directly, through the page cache, or mapped: the right bytes in every mode, and the choice of direct_io=auto."""

import errno
import mmap
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from lib.saving import save, saved

MIB = 1 << 20
PLAIN = np.arange(3 * MIB, dtype=np.float32).reshape(3, MIB)
PACKED = (np.arange(6 * MIB, dtype=np.int32) // 7).reshape(6, MIB)      # one chunk, decoded piece by piece
SMALL = np.arange(1000, dtype=np.float32)
MODES = {'auto': (), 'on': ('direct_io',), 'off': ('direct_io=off',), 'older kernel': ('direct_mmap=off',),
         'older kernel, on': ('direct_io=on', 'direct_mmap=off')}


@pytest.fixture(scope='module')
def step(program, tmp_path_factory):
    files, where = tmp_path_factory.mktemp('files'), tmp_path_factory.mktemp('root') / '1'
    for name, array in (('plain', PLAIN), ('packed', PACKED), ('small', SMALL)):
        np.save(files / f'{name}.npy', array)
    subprocess.run([program, 'save', '-q', '-o', 'rule=plain*:compression=none,chunk_byte_size=64M', files, where], check=True)
    return where


@pytest.fixture
def root(step, tmp_path):
    shutil.copytree(step, tmp_path / 'root/1', copy_function=os.link)
    return tmp_path / 'root'


def opened(m, name):
    """How each open of a file was served, by the trace."""
    what = re.compile(rf"open '{re.escape(name)}' (directly|by the page cache)")
    return [found[1] for line in m.log_lines() if (found := what.search(line))]


def requests(m, name):
    return sum(f"trace fs: read '{name}'" in line for line in m.log_lines())


def kept_by_kernel(m, name, asked, one_pass):
    """Since asked requests, less than half a pass was asked for again: the kernel may take single pages away at any time."""
    return requests(m, name) - asked < one_pass / 2


def read_in(path, n):
    with open(path, 'rb', buffering=0) as f:
        while f.read(n):
            pass


@pytest.fixture(params=MODES)
def mode(request):
    return request.param


@pytest.mark.option('direct_io', 'direct_mmap')
def test_maps_and_reads_have_the_same_bytes(mount, root, mode):
    """numpy's maps, private and shared maps beside reads of the same open file, and of another one."""
    m = mount(root, *MODES[mode])
    shared = mode != 'older kernel, on'
    for name, a in (('plain', PLAIN), ('packed', PACKED), ('small', SMALL)):
        path = m / f'1/default/{name}.npy'
        text = path.read_bytes()
        for _ in range(2):
            if shared:
                assert np.array_equal(np.load(path, mmap_mode='r'), a)
                assert np.array_equal(np.lib.format.open_memmap(path, mode='r'), a)
            own = np.load(path, mmap_mode='c')
            own[0] = 7                                                  # of this map only
            assert np.array_equal(own[1:], a[1:]) and np.array_equal(np.load(path), a)
        fds = [os.open(path, os.O_RDONLY) for _ in range(2)]
        for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
            if flags == mmap.MAP_SHARED and not shared:
                with pytest.raises(OSError) as e:
                    mmap.mmap(fds[0], 0, flags, mmap.PROT_READ)
                assert e.value.errno == errno.ENODEV
                continue
            with mmap.mmap(fds[0], 0, flags, mmap.PROT_READ) as mapped:
                for at in range(0, len(text), len(text) // 5 + 1):
                    want = text[at:at + 70000]
                    assert mapped[at:at + 70000] == os.pread(fds[1], 70000, at) == os.pread(fds[0], 70000, at) == want
        for fd in fds:
            os.close(fd)


READER = r'''
import hashlib, mmap, os, sys
path, how = sys.argv[1:]
fd = os.open(path, os.O_RDONLY)
if how == 'map':
    data = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)
    print(hashlib.sha256(data).hexdigest())
else:
    h = hashlib.sha256()
    while piece := os.read(fd, 300000):
        h.update(piece)
    print(h.hexdigest())
'''


def test_one_process_maps_and_others_read(mount, root, mode):
    m = mount(root, *MODES[mode])
    how = ['read', 'read'] if mode == 'older kernel, on' else ['map', 'read', 'map', 'read']
    for name in ('1/default/packed.npy', '1/default.safetensors'):
        readers = [subprocess.Popen([sys.executable, '-c', READER, m / name, h], stdout=subprocess.PIPE, text=True) for h in how]
        sums = {r.communicate()[0] for r in readers}
        assert len(sums) == 1 and sums.pop().strip(), name
        assert not any(r.returncode for r in readers)


def test_fio_finds_what_it_wrote(mount, tmp_path, mode):
    """Blocks with a checksum in each, written by fio and read by it through a map and by pread."""
    image, source = tmp_path / 'image', tmp_path / 'source'
    source.mkdir()
    job = ['fio', '--name=x', '--bs=4k', '--size=8m', '--verify=crc32c', '--verify_state_save=0', '--output-format=terse']
    subprocess.run([*job, '--rw=write', '--do_verify=0', f'--filename={image}'], check=True, stdout=subprocess.DEVNULL)
    saved(mount, source, files={'w.npy': np.fromfile(image, np.uint8)})
    m = mount(source, *MODES[mode])
    for engine in ['psync'] if mode == 'older kernel, on' else ['mmap', 'psync', 'mmap']:
        r = subprocess.run([*job, '--readonly', '--rw=read', f'--ioengine={engine}', f'--filename={m / "1/default/w.bin"}'],
                           capture_output=True, text=True)
        assert r.returncode == 0, r.stdout + r.stderr


def test_a_file_is_direct_until_it_is_read_again(mount, root):
    m = mount(root, 'trace=fs')
    path = m / '1/default/packed.npy'
    read_in(path, MIB)
    one_pass = requests(m, 'packed.npy')
    for _ in range(2):
        read_in(path, MIB)
    assert opened(m, 'packed.npy') == ['directly', 'by the page cache', 'by the page cache']
    asked = requests(m, 'packed.npy')
    read_in(path, MIB)
    assert kept_by_kernel(m, 'packed.npy', asked, one_pass)
    for _ in range(2):                                                  # SOURCE's page cache has what is stored as it is
        read_in(m / '1/default/plain.npy', MIB)
    assert opened(m, 'plain.npy') == ['directly'] * 2
    read_in(m / '1/default/small.npy', MIB)
    assert opened(m, 'small.npy') == ['by the page cache']              # one request either way


def test_a_look_at_the_header_is_not_a_pass(mount, root):
    m = mount(root, 'trace=fs')
    for _ in range(2):
        with open(m / '1/default/packed.npy', 'rb', buffering=0) as f:
            assert f.read(128)[1:6] == b'NUMPY'
    read_in(m / '1/default/packed.npy', MIB)
    assert opened(m, 'packed.npy') == ['directly'] * 3


def test_a_reader_of_small_pieces_gets_the_page_cache(mount, root):
    """Its next file is read ahead by the kernel; that of one who reads in large pieces is not."""
    m = mount(root, 'trace=fs')
    # Still open: the kernel tells later that a file was closed.
    with open(m / '1/default/packed.npy', 'rb', buffering=0) as f:
        while f.read(8192):
            pass
        read_in(m / '1/default/plain.npy', 8192)
    assert opened(m, 'packed.npy') == ['directly'] and opened(m, 'plain.npy') == ['by the page cache']
    # Another program is another reader.
    subprocess.run(['dd', f'if={m / "1/default/plain.bin"}', 'of=/dev/null', 'bs=1M', 'status=none'], check=True)
    assert opened(m, 'plain.bin') == ['directly']


def test_a_map_of_a_file_stays_in_memory(mount, root):
    """Maps of a file that was read before: none of them throws away what the others have."""
    m = mount(root, 'trace=fs')
    path = m / '1/default/packed.npy'
    assert np.array_equal(np.load(path, mmap_mode='r'), PACKED)
    one_pass = requests(m, 'packed.npy')
    assert np.array_equal(np.load(path, mmap_mode='r'), PACKED)
    asked = requests(m, 'packed.npy')
    for _ in range(3):
        assert np.array_equal(np.load(path, mmap_mode='r'), PACKED)
    assert kept_by_kernel(m, 'packed.npy', asked, one_pass)


def test_an_older_kernel_has_the_page_cache(mount, root):
    m = mount(root, 'direct_mmap=off', 'trace=fs')
    read_in(m / '1/default/packed.npy', MIB)
    asked = requests(m, 'packed.npy')
    read_in(m / '1/default/packed.npy', MIB)
    assert kept_by_kernel(m, 'packed.npy', asked, asked) and not opened(m, 'packed.npy')


def test_drafts_are_chosen_for_as_before(mount, root):
    """With direct_io=auto, a file that may change is never read directly; once it is committed, it may be."""
    m = mount(root, 'trace=fs')
    (m / '2.tmp/default').mkdir(parents=True)
    np.save(m / '2.tmp/default/fresh.npy', PACKED)
    assert np.array_equal(np.load(m / '2.tmp/default/fresh.npy', mmap_mode='r'), PACKED)
    assert not opened(m, 'fresh.npy')
    (m / '2.tmp').rename(m / '2')
    assert np.array_equal(np.load(m / '2/default/fresh.npy'), PACKED)
    assert opened(m, 'fresh.npy') == ['directly']
    save(m, 3)
