# SPDX-License-Identifier: Apache-2.0
"""Options of temporary files and of what the kernel asks: what differs with each, by counters and by /proc."""

import concurrent.futures
import ctypes
import errno
import json
import mmap
import os
import pathlib
import re

import numpy as np
import pytest

from lib import mounts
from lib.saving import ARRAY, save, saved

MIB = 1 << 20
LARGE = np.arange(6 * MIB, dtype=np.float32).reshape(6, MIB)        # one chunk, decoded piece by piece


@pytest.fixture
def temporary(tmp_path):
    (tmp_path / 'temporary').mkdir()
    return tmp_path / 'temporary'


def step_of(mount, root, *options, **files):
    saved(mount, root, *options, files={f'{name}.npy': a for name, a in files.items()})


def files_in(m, where):
    """How many files below `where` the daemon has open."""
    return sum(name.startswith(f'{where}/') for name in m.open_files())


def jump_back(path, a):
    """Reads that go from the end to the front, so that a decoder would begin again for each."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        head = os.fstat(fd).st_size - a.nbytes
        for at in reversed(range(0, a.nbytes, MIB)):
            assert os.pread(fd, 4096, head + at) == a.tobytes()[at:at + 4096], at
    finally:
        os.close(fd)


# ---- the page cache ----

def resident(path):
    """The part of a file that the page cache holds."""
    size = path.stat().st_size
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    with open(path, 'rb') as f, mmap.mmap(f.fileno(), size, access=mmap.ACCESS_COPY) as m:
        libc = ctypes.CDLL(None, use_errno=True)
        where = ctypes.c_char.from_buffer(m)
        assert libc.mincore(ctypes.c_void_p(ctypes.addressof(where)), ctypes.c_size_t(size), pages) == 0, ctypes.get_errno()
        del where
    return sum(p & 1 for p in pages) / len(pages)


@pytest.mark.option('keep_written')
@pytest.mark.parametrize('options', [(), ('ocdbt=off',), ('io=sync',)], ids=['ocdbt', 'directory', 'sync'])
def test_what_is_saved_leaves_the_page_cache(mount, root, options):
    # Values that do not compress, so that the data file is as large as they are.
    a = np.random.default_rng(0).integers(0, 256, (24, MIB), np.uint8)
    kept = {}
    for step, keep in enumerate(('on', 'off'), 1):
        item = saved(mount, root, f'keep_written={keep}', 'chunk_byte_size=4M', *options, step=step, files={'w.npy': a})
        files = [p for p in item.rglob('*') if p.is_file() and p.stat().st_size > MIB]
        assert sum(p.stat().st_size for p in files) >= a.nbytes
        kept[keep] = sum(resident(p) * p.stat().st_size for p in files) / sum(p.stat().st_size for p in files)
    # The kernel may take pages away at any time.
    assert kept['on'] > 0.5, kept
    assert kept['off'] < 0.3, kept
    m = mount(root)
    assert np.array_equal(np.load(m / '2/default/w.npy'), a)


# ---- temporary files ----

@pytest.mark.option('spill')
def test_spill_says_where_pieces_of_large_chunks_go(mount, root, temporary):
    step_of(mount, root, 'compression=zstd', 'chunk_byte_size=64M', w=LARGE)
    seen = {}
    for option in ('spill=auto', f'spill={temporary}', 'spill=off'):
        m = mount(root, option, 'cache=2M')
        jump_back(m / '1/default/w.npy', LARGE)
        seen[option] = m.stats()
        assert files_in(m, temporary) == (option == f'spill={temporary}')
        assert os.listdir(temporary) == []
    for option, stats in seen.items():
        kept = option != 'spill=off'
        assert stats['spill_bytes'] == (LARGE.nbytes if kept else 0), option
        assert (stats['spill_reads'] > 10) == kept, option
        assert (stats['stream_restarts'] > 10) == (not kept), option


@pytest.mark.option('spill_limit')
def test_spill_limit_bounds_the_pieces_of_large_chunks(mount, root):
    step_of(mount, root, 'compression=zstd', 'chunk_byte_size=64M', w=LARGE)
    usual, little = mount(root, 'cache=2M'), mount(root, 'cache=2M', 'spill_limit=23M')
    for m in (usual, little):
        jump_back(m / '1/default/w.npy', LARGE)
    assert usual.stats()['spill_bytes'] == LARGE.nbytes and usual.stats()['spill_reads'] > 10
    assert little.stats()['spill_bytes'] == little.stats()['spill_reads'] == 0


def rules(tmp_path, *keys):
    path = tmp_path / 'rules.json'
    path.write_text(json.dumps({'rules': [{'key': key, 'value_fn': 'cast(float64)'} for key in keys]}))
    return f'transforms={path}'


@pytest.mark.option('spill', 'spill_limit')
@pytest.mark.feature('B10')
def test_a_computed_leaf_is_counted_and_refused_beyond_the_limit(mount, root, temporary, tmp_path):
    step_of(mount, root, w=LARGE, small=ARRAY)
    computed = [rules(tmp_path, 'w', 'small'), f'spill={temporary}']
    m = mount(root, *computed)
    assert m.stats()['spill_bytes'] == 0
    assert np.array_equal(np.load(m / '1/default/w.npy'), LARGE.astype(np.float64))
    assert m.stats()['spill_bytes'] == 2 * LARGE.nbytes and files_in(m, temporary) == 1
    m = mount(root, *computed, 'spill_limit=47M', allow_errors=True)
    assert (m / '1/default/w.npy').stat().st_size == 128 + 2 * LARGE.nbytes     # known without
    with pytest.raises(OSError) as e:
        (m / '1/default/w.npy').read_bytes()
    assert e.value.errno == errno.ENOSPC
    said = f'cast: a temporary file of {2 * LARGE.nbytes} bytes: spill_limit is {47 * MIB}'
    assert any(said in line and 'w.npy' in line for line in m.log_lines()), m.log_lines()
    assert m.stats()['spill_bytes'] == 0 and files_in(m, temporary) == 0
    assert np.array_equal(np.load(m / '1/default/small.npy'), ARRAY.astype(np.float64))
    assert m.stats()['spill_bytes'] == 2 * ARRAY.nbytes


@pytest.mark.option('spill_limit')
def test_computed_leaves_that_nobody_reads_make_room(mount, root, temporary, tmp_path):
    """Three leaves of 16 MiB in turns, where two have room: each is right, every time."""
    leaves = {name: np.arange(2 * MIB, dtype=np.float32) + i for i, name in enumerate('abc')}
    step_of(mount, root, **leaves)
    m = mount(root, rules(tmp_path, '[abc]'), f'spill={temporary}', 'spill_limit=35M', 'direct_io')
    for _ in range(2):
        for name, a in leaves.items():
            assert np.array_equal(np.load(m / f'1/default/{name}.npy'), a.astype(np.float64))
            assert m.stats()['spill_bytes'] <= 35 * MIB and files_in(m, temporary) <= 2
    # Open at the same time, too, and read in turns.
    files = {name: open(m / f'1/default/{name}.npy', 'rb', buffering=0) for name in leaves}
    for at in range(0, 2 * MIB, MIB):
        for name, f in files.items():
            f.seek(128 + 8 * at)
            assert f.read(8) == np.float64(leaves[name][at]).tobytes(), (name, at)
    for f in files.values():
        f.close()
    assert 16 * MIB <= m.stats()['spill_bytes'] <= 35 * MIB


def test_many_readers_of_more_computed_leaves_than_have_room(mount, root, tmp_path):
    """Each byte is right, or there was no room for the leaf at that moment; in the end each is read."""
    leaves = {f'l{i}': np.arange(MIB, dtype=np.float32) * i for i in range(8)}
    step_of(mount, root, **leaves)
    m = mount(root, rules(tmp_path, 'l[0-7]'), 'spill_limit=25M', 'direct_io', allow_errors=True)

    def read(seed):
        full = 0
        for i in np.random.default_rng(seed).integers(0, 8, 12):
            with open(m / f'1/default/l{i}.npy', 'rb', buffering=0) as f:
                f.seek(128 + 8 * 1000 * int(seed))
                try:
                    assert f.read(800) == leaves[f'l{i}'][1000 * seed:][:100].astype(np.float64).tobytes()
                except OSError as e:
                    assert e.errno == errno.ENOSPC
                    full += 1
            assert m.stats()['spill_bytes'] <= 25 * MIB
        return full
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        print(list(pool.map(read, range(16))))
    for name, a in leaves.items():
        assert np.array_equal(np.load(m / f'1/default/{name}.npy'), a.astype(np.float64))


@pytest.mark.option('spill_limit')
@pytest.mark.feature('A1')
def test_the_copy_of_a_large_legacy_file_is_counted(mount, root):
    saved(mount, root, 'aggregate=all', files={'w.npy': LARGE})
    size = (root / '1/default/checkpoint').stat().st_size
    m = mount(root)
    assert np.array_equal(np.load(m / '1/default/w.npy'), LARGE)
    assert m.stats()['spill_bytes'] == size
    m = mount(root, 'spill_limit=1M', allow_errors=True)
    with pytest.raises(OSError) as e:
        os.listdir(m / '1/default')
    assert e.value.errno == errno.ENOSPC
    assert any('spill_limit' in line and str(size) in line for line in m.log_lines()), m.log_lines()


# ---- what the kernel asks ----

def reads(m, name):
    """Bytes of each read request for a file, by the trace."""
    what = re.compile(rf"read '{name}' \d+\+(\d+)")
    return [int(found[1]) for line in m.log_lines() if (found := what.search(line))]


def mount_options(m):
    for line in pathlib.Path('/proc/self/mountinfo').read_text().splitlines():
        if mounts.unescape(line.split()[4]) == str(m.path):
            return line.split()[-1].split(',')
    raise AssertionError('not mounted')


@pytest.mark.option('max_read')
@pytest.mark.parametrize('option,most', [(None, 512 << 10), ('max_read=64K', 64 << 10), ('max_read=4K', 4 << 10),
                                         ('max_read=1M', 1 << 20)])
def test_max_read_bounds_the_requests_of_the_kernel(mount, root, option, most):
    step_of(mount, root, w=LARGE)
    m = mount(root, 'trace=fs', *[option] if option else [])
    assert f'max_read={most}' in mount_options(m)
    fd = os.open(m / '1/default/w.npy', os.O_RDONLY | os.O_DIRECT)
    try:
        # Memory of the kernel's choice, which is aligned.
        memory = mmap.mmap(-1, 4 * MIB)
        assert os.preadv(fd, [memory], 0) == 4 * MIB and memory[128:4 * MIB] == LARGE.tobytes()[:4 * MIB - 128]
    finally:
        os.close(fd)
    assert max(reads(m, 'w.npy')) == most and sum(reads(m, 'w.npy')) >= 4 * MIB


@pytest.mark.option('direct_io')
def test_direct_io_keeps_nothing_in_the_kernel(mount, root):
    step_of(mount, root, w=LARGE)
    asked = {}
    for option in ('direct_io=off', 'direct_io=on'):
        m = mount(root, option, 'trace=fs')
        asked[option] = []
        for _ in range(3):
            assert (m / '1/default/w.npy').read_bytes()[128:] == LARGE.tobytes()
            asked[option].append(sum(reads(m, 'w.npy')))
    kept, passed = asked.values()
    # The kernel answers what it has seen, but for pages that it has taken away meanwhile.
    assert LARGE.nbytes <= kept[0] and kept[2] - kept[0] < LARGE.nbytes / 2
    assert passed[0] >= LARGE.nbytes and passed[1] >= 2 * LARGE.nbytes and passed[2] >= 3 * LARGE.nbytes


@pytest.mark.option('poll')
def test_poll_says_how_often_the_root_is_looked_at(mount, root):
    """A new time of the root is not an event that the kernel reports: only looking finds it."""
    saved(mount, root)
    often, seldom = mount(root, 'poll=5', 'trace=step'), mount(root, 'poll=3600000', 'trace=step')

    def looks(m):
        return sum('root changed: (anything)' in line for line in m.log_lines())
    for i in range(3):
        before = looks(often)
        os.utime(root, ns=(0, (i + 1) * 10**9))
        mounts.wait_for(lambda before=before: looks(often) > before)
    assert looks(often) >= 3 and looks(seldom) == 0
    # Both see changes that the kernel reports.
    m = mount(root)
    save(m, 2)
    mounts.wait_for(lambda: all('2' in os.listdir(x.path) for x in (often, seldom)))
