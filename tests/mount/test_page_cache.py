# SPDX-License-Identifier: Apache-2.0
"""Pages of leaves in the kernel: read again, mapped, replaced, and bypassed; always the right bytes."""

import mmap
import os
import pathlib
import shutil
import subprocess
import sys
import zlib

import numpy as np
import pytest

from lib.mounts import wait_for
from lib.saving import saved

MIB = 1 << 20
PLAIN = np.arange(3 * MIB, dtype=np.float32).reshape(3, MIB)
PACKED = (np.arange(6 * MIB, dtype=np.int32) // 7).reshape(6, MIB)      # one chunk, decoded piece by piece
SMALL = np.arange(1000, dtype=np.float32)
MODES = {'page cache': (), 'direct_io': ('direct_io',)}


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


@pytest.mark.option('direct_io')
def test_maps_and_reads_have_the_same_bytes(mount, root, mode):
    """numpy's maps, private and shared maps beside reads of the same open file, and of another one."""
    m = mount(root, *MODES[mode])
    for name, a in (('plain', PLAIN), ('packed', PACKED), ('small', SMALL)):
        path = m / f'1/default/{name}.npy'
        text = path.read_bytes()
        for _ in range(2):
            assert np.array_equal(np.load(path, mmap_mode='r'), a)
            assert np.array_equal(np.lib.format.open_memmap(path, mode='r'), a)
            own = np.load(path, mmap_mode='c')
            own[0] = 7                                                  # of this map only
            assert np.array_equal(own[1:], a[1:]) and np.array_equal(np.load(path), a)
        fds = [os.open(path, os.O_RDONLY) for _ in range(2)]
        for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
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
    for name in ('1/default/packed.npy', '1/default.safetensors'):
        readers = [subprocess.Popen([sys.executable, '-c', READER, m / name, h], stdout=subprocess.PIPE, text=True)
                   for h in ['map', 'read', 'map', 'read']]
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
    for engine in ['mmap', 'psync', 'mmap']:
        r = subprocess.run([*job, '--readonly', '--rw=read', f'--ioengine={engine}', f'--filename={m / "1/default/w.bin"}'],
                           capture_output=True, text=True)
        assert r.returncode == 0, r.stdout + r.stderr


@pytest.mark.parametrize('name', ['packed', 'plain', 'small'])
def test_what_was_read_is_not_asked_for_again(mount, root, name):
    """By reads of any size, in order or at random, by maps, and by other programs."""
    m = mount(root, 'trace=fs')
    path = m / f'1/default/{name}.npy'
    read_in(path, MIB)
    asked = one_pass = requests(m, path.name)
    want = path.read_bytes()
    for n in (4096, MIB, 64 * MIB):
        read_in(path, n)
    assert np.array_equal(np.load(path, mmap_mode='r').ravel().view(np.uint8), np.frombuffer(want[128:], np.uint8))
    subprocess.run(['dd', f'if={path}', 'of=/dev/null', 'bs=1M', 'status=none'], check=True)
    with open(path, 'rb', buffering=0) as f:
        for at in np.random.default_rng(1).integers(0, len(want), 200):
            assert os.pread(f.fileno(), 4096, at) == want[at:at + 4096]
    assert requests(m, path.name) == asked or kept_by_kernel(m, path.name, asked, one_pass)


def test_a_step_that_is_replaced_while_its_pages_are_in_memory(mount, root, program, tmp_path):
    """Its name gives the new values at once; who has the old file open gets the old bytes, or an error."""
    (tmp_path / 'new').mkdir()
    np.save(tmp_path / 'new/packed.npy', PACKED[::-1])
    np.save(tmp_path / 'new/plain.npy', PLAIN[::-1])
    subprocess.run([program, 'save', '-q', '-o', 'rule=plain*:compression=none', tmp_path / 'new', tmp_path / 'other/1'], check=True)
    m = mount(root, allow_errors=True)
    names = ['1/default/packed.npy', '1/default/plain.npy', 'latest/default/packed.npy', '1/default/packed[0:2].npy', '1/default.safetensors']
    old = {name: (m / name).read_bytes() for name in names}
    held = {name: open(m / name, 'rb', buffering=0) for name in names}
    maps = {name: mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) for name, f in held.items()}
    os.rename(root / '1', tmp_path / 'away')
    os.rename(tmp_path / 'other/1', root / '1')
    wait_for(lambda: (m / names[0]).read_bytes() != old[names[0]])
    for name, array in (names[0], PACKED[::-1]), (names[1], PLAIN[::-1]), (names[2], PACKED[::-1]), (names[3], PACKED[::-1][:2]):
        assert np.array_equal(np.load(m / name), array) and np.array_equal(np.load(m / name, mmap_mode='r'), array), name
    assert (m / names[4]).read_bytes() != old[names[4]]
    for name, f in held.items():
        assert maps[name][:] == old[name], name
        try:
            f.seek(0)
            assert f.read() == old[name], name
        except OSError:
            pass
        f.close()


def test_a_killed_daemon_leaves_the_right_bytes_or_an_error(mount, root):
    m = mount(root, allow_errors=True)
    path = m / '1/default/packed.npy'
    want = path.read_bytes()
    with open(path, 'rb', buffering=0) as f:
        os.kill(m.pid, 9)
        wait_for(lambda: not pathlib.Path(f'/proc/{m.pid}/maps').exists() or not pathlib.Path(f'/proc/{m.pid}/maps').read_text())
        for at in range(0, len(want), MIB):
            try:
                assert os.pread(f.fileno(), MIB, at) == want[at:at + MIB]
            except OSError:
                pass
        with pytest.raises(OSError):
            path.read_bytes()
    subprocess.run(['umount', '-l', m.path], check=True)
    assert np.array_equal(np.load(mount(root) / '1/default/packed.npy'), PACKED)


def test_a_file_of_a_draft_that_is_written_again(mount, root):
    """Read and mapped between two writes of the same size, then committed: never a page of before."""
    m = mount(root)
    (m / '2.tmp/default').mkdir(parents=True)
    path = m / '2.tmp/default/fresh.npy'
    for array in (PACKED, PACKED + 1, PACKED[::-1]):
        np.save(path, array)
        assert np.array_equal(np.load(path), array) and np.array_equal(np.load(path, mmap_mode='r'), array)
    (m / '2.tmp').rename(m / '2')
    for _ in range(2):
        assert np.array_equal(np.load(m / '2/default/fresh.npy'), PACKED[::-1])


SUMS = '''
import sys, zlib
for _ in range(2):
    for path in sys.argv[1:]:
        sum = 0
        with open(path, 'rb', buffering=0) as f:
            while piece := f.read(16 << 20):
                sum = zlib.crc32(piece, sum)
        print(sum)
'''


@pytest.mark.parametrize('group,leaves,options', [(512, 40, []), (160, 12, ['cache=32M', 'read_budget=32M'])], indirect=['group'])
def test_a_group_with_less_memory_than_the_tree(mount, tmp_path, group, leaves, options):
    """Leaves of 16 MiB that two programs read twice: the kernel gives its pages back, and nobody is killed."""
    under, killed = group
    arrays = {f'l{i:02}.npy': np.arange(4 * MIB, dtype=np.int32) // 7 * (i + 1) for i in range(leaves)}
    (tmp_path / 'root').mkdir()
    saved(mount, tmp_path / 'root', 'rule=l?5:compression=none', files=arrays)
    m = mount(tmp_path / 'root', *options, under=under)
    paths = [m / '1/default' / name for name in arrays]
    readers = [subprocess.Popen([*under, sys.executable, '-S', '-c', SUMS, *order], stdout=subprocess.PIPE, text=True) for order in (paths, paths[::-1])]
    with open(paths[0], 'rb') as f:
        head = f.read(128)
    want = [str(zlib.crc32(a, zlib.crc32(head))) for a in arrays.values()]
    assert [r.communicate()[0].split() for r in readers] == [want * 2, want[::-1] * 2]
    assert killed() == 0 and m.mounted()
    assert m.memory('VmHWM') <= (32 if options else 256) * MIB + 64 * MIB
    assert not m.unmount()
