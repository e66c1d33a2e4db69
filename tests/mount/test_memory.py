# SPDX-License-Identifier: Apache-2.0
"""A leaf of 400 MiB that is one zstd frame: bounded memory, right bytes, and jumps that are served."""

import os
import pathlib
import random
import subprocess
import zlib
from concurrent import futures

import numpy as np
import pytest

from lib import bigdata, mounts
from lib.pairs import pairs

pytestmark = pytest.mark.timeout(900)

MIB = 1 << 20
SMALL = 64 * MIB        # the constant beside cache and budgets that the design allows
SIZE = 400              # MiB of the leaf
LARGE = ['one-large-chunk', 'one-large-chunk-zarr3']


def data_of(m):
    """The leaf and where its data begin."""
    path = m / 'w.npy'
    return path, os.stat(path).st_size - SIZE * MIB


def dd(path):
    """Whole leaf by dd bs=1M."""
    r = subprocess.run(['dd', f'if={path}', 'of=/dev/null', 'bs=1M'], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    assert str(os.stat(path).st_size) in r.stderr


def random_reads(path, head, n, seed):
    """n reads of 1 MiB anywhere, compared."""
    rng = random.Random(seed)
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    try:
        for _ in range(n):
            off = rng.randrange((SIZE - 1) * MIB)
            assert os.pread(fd, MIB, head + off) == bigdata.at(off, MIB), f'wrong bytes at {off}'
    finally:
        os.close(fd)


def drop_caches(path):
    """The kernel's pages of the leaf go, so that the daemon is asked again."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


@pytest.mark.parametrize('name,cache', pairs(LARGE, [64, 256]))
def test_sequential_read_stays_in_the_cache(mount, cases, name, cache):
    m = mount(cases(name).path, *([f'cache={cache}M'] if cache != 256 else []))
    path, _ = data_of(m)
    dd(path)
    assert m.memory('VmHWM') <= cache * MIB + SMALL, f'{m.memory("VmHWM") >> 20} MiB'


def test_every_byte_is_right(mount, cases):
    case = cases('one-large-chunk')
    m = mount(case.path, 'cache=64M')
    path, head = data_of(m)
    with open(path, 'rb', buffering=0) as f:
        f.seek(head)
        for i in range(case.notes['mib']):
            got = b''
            while len(got) < MIB:
                got += f.read(MIB - len(got))
            assert got == bigdata.block(i), f'MiB {i} differs'
        assert f.read(10) == b''


@pytest.mark.parametrize('name,first', pairs(LARGE, ['begins in order', 'jumps']))
def test_jumping_about_is_served_from_the_spill_file(mount, cases, name, first):
    """100 random reads: the first may cost a pass over the frame, the others no decode."""
    m = mount(cases(name).path, 'cache=64M')
    path, head = data_of(m)
    if first != 'jumps':
        with open(path, 'rb', buffering=0) as f:
            f.seek(head)
            f.read(MIB)
            os.pread(f.fileno(), 10, head + (SIZE - 50) * MIB)        # further than half: without a file it would go on
    random_reads(path, head, 100, 1)
    assert m.memory('VmHWM') <= 64 * MIB + SMALL
    stats = m.stats()
    assert stats['chunk_bytes_decoded'] <= (SIZE + 64) * MIB and stats['stream_restarts'] <= 1, stats
    assert stats['spill_reads'] >= 90, stats


def test_without_a_spill_file_it_is_slow_and_right(mount, cases):
    m = mount(cases('one-large-chunk').path, 'cache=64M', 'spill=off')
    path, head = data_of(m)
    random_reads(path, head, 8, 2)
    assert m.memory('VmHWM') <= 64 * MIB + SMALL


def test_the_spill_file_leaves_nothing_behind(mount, cases, tmp_path):
    spill = tmp_path / 'spill'
    spill.mkdir()
    m = mount(cases('one-large-chunk').path, 'cache=64M', f'spill={spill}')
    path, head = data_of(m)
    random_reads(path, head, 20, 3)
    assert os.listdir(spill) == []
    m.unmount()
    assert os.listdir(spill) == []


def test_two_readers_of_one_frame(mount, cases):
    """Both get right bytes; memory stays where it was."""
    m = mount(cases('one-large-chunk').path, 'cache=64M')
    path, _ = data_of(m)

    def checksum(_):
        value = 0
        with open(path, 'rb', buffering=0) as f:
            while block := f.read(MIB):
                value = zlib.crc32(block, value)
        return value
    with futures.ThreadPoolExecutor(2) as pool:
        assert len(set(pool.map(checksum, range(2)))) == 1
    assert m.memory('VmHWM') <= 64 * MIB + SMALL


def test_many_small_leaves_stay_in_the_cache(mount, cases):
    """Walking 20,000 leaves and reading them all."""
    m = mount(cases('leaves-20000').path, 'cache=64M')
    n = sum(len(files) for _, _, files in os.walk(m.path))
    assert n >= 20000
    subprocess.run(['tar', '-C', m.path, '-cf', '/dev/null', '--ignore-failed-read', '.'], check=True)
    assert m.memory('VmHWM') <= 64 * MIB + SMALL, f'{m.memory("VmHWM") >> 20} MiB'


def test_a_blosc_chunk_is_decoded_in_memory_that_is_there(program, run, mount, tmp_path):
    """libblosc takes two of its blocks for each call. The kernel would have to clear half a MiB for every MiB that is
    read, had they been given back each time."""
    if mounts.is_sanitized(program):
        pytest.skip('sanitizers have an allocator of their own')
    rng = np.random.default_rng(15)
    (tmp_path / 'in').mkdir()
    a = np.repeat(rng.integers(0, 1 << 16, 1 << 20, np.uint32), 32)
    np.save(tmp_path / 'in/w.npy', a)
    run('save', '-o', 'compression=blosc,chunk_byte_size=128M,write_budget=512M', tmp_path / 'in', tmp_path / 'root/1')
    m = mount(tmp_path / 'root')

    def faults():
        return int(pathlib.Path(f'/proc/{m.pid}/stat').read_text().rpartition(')')[2].split()[7])

    before = faults()
    assert np.array_equal(np.load(m / '1/default/w.npy'), a)
    # Where the kernel has no huge pages, one for each page that stays.
    fields = dict(line.split()[:2] for line in pathlib.Path(f'/proc/{m.pid}/smaps_rollup').read_text().splitlines()[1:])
    small = (int(fields['Anonymous:']) - int(fields['AnonHugePages:'])) // 4
    assert faults() - before < 6000 + small, small
