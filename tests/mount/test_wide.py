# SPDX-License-Identifier: Apache-2.0
"""Arrays with many chunks side by side, whose band of chunks does not fit into the cache: rows are read in C order, so each
request needs a little of every chunk of the band."""

import concurrent.futures
import errno
import itertools
import json
import shutil
import subprocess
import zlib

import numpy as np
import pytest

from lib.pairs import pairs

MIB = 1 << 20
SHAPE = (256, 32768)        # 128 x 128 elements in a chunk: a band is 16 MiB, four times the cache


@pytest.fixture(scope='module')
def wide(program, tmp_path_factory):
    d = tmp_path_factory.mktemp('wide')
    x = (np.arange(np.prod(SHAPE), dtype=np.float32) % 9973).reshape(SHAPE)
    (d / 'in').mkdir()
    np.save(d / 'in/w.npy', x)
    subprocess.run([program, 'save', '-o', 'chunk_byte_size=64K,ocdbt=off', d / 'in', d / 'root/1'], check=True)
    return d / 'root', x


def passes(m, x):
    """How many times as much was decoded as the array has."""
    return m.stats()['chunk_bytes_decoded'] / x.nbytes


@pytest.mark.parametrize('options', [[], ['direct_io=on'], ['threads=1']], ids=' '.join)
def test_a_band_is_decoded_a_few_times_not_for_each_request(mount, wide, options):
    root, x = wide
    m = mount(root, 'cache=4M', *options)
    got = np.load(m / '1/default/w.npy')
    assert np.array_equal(got, x)
    # A slab is a quarter of the cache, so there are 16 of them in a band. Some are evicted before their last row.
    assert passes(m, x) <= 24, m.stats()


def test_a_band_that_fits_is_decoded_once(mount, wide):
    root, x = wide
    m = mount(root, 'cache=64M')
    assert np.array_equal(np.load(m / '1/default/w.npy'), x)
    assert passes(m, x) <= 1


def test_two_readers_do_not_take_their_slabs_from_each_other(mount, wide):
    root, x = wide
    m = mount(root, 'cache=4M', 'direct_io=on')
    with concurrent.futures.ThreadPoolExecutor(2) as ex:
        for got in ex.map(lambda _: np.load(m / '1/default/w.npy'), range(2)):
            assert np.array_equal(got, x)
    # They may be at the same place, or not. Without slabs it is about 100.
    assert passes(m, x) <= 2 * 24, m.stats()


def test_any_range_has_its_bytes(mount, wide):
    root, x = wide
    m = mount(root, 'cache=4M')
    want = x.tobytes()
    rng = np.random.default_rng(5)
    with open(m / '1/default/w.bin', 'rb', buffering=0) as f:
        for _ in range(25):
            at = int(rng.integers(0, len(want)))
            n = int(rng.integers(1, 3 * MIB))
            f.seek(at)
            got = f.read(n)
            assert got == want[at:at + len(got)] and len(got) == min(n, len(want) - at), (at, n)


def reader_of(path, size):
    """All bytes of a file, in reads of this size."""
    with open(path, 'rb', buffering=0) as f:
        return b''.join(iter(lambda: f.read(size), b''))


@pytest.mark.parametrize('max_read', ['4K', '64K', '1M'])
def test_requests_of_any_size_have_their_bytes(mount, wide, max_read):
    """A request of 4 KiB needs a part of eight of the 256 chunks of a band: these are read as usual."""
    root, x = wide
    m = mount(root, 'cache=4M', f'max_read={max_read}')
    with open(m / '1/default/w.bin', 'rb', buffering=0) as f:
        for first in (0, 127, 200, SHAPE[0] - 5):
            f.seek(first * SHAPE[1] * 4)
            assert f.read(5 * SHAPE[1] * 4) == x[first:first + 5].tobytes()
    if max_read != '4K':
        assert reader_of(m / '1/default/w.bin', MIB) == x.tobytes()
        assert passes(m, x) <= 24, m.stats()


@pytest.mark.parametrize('name,cut', [('w@float64', np.s_[:]), ('w@float16', np.s_[:]), ('w[64:192]', np.s_[64:192]),
                                      ('w[100:,:32000]', np.s_[100:, :32000]),
                                      ('w[:,300:32767]@float64', np.s_[:, 300:32767])])
def test_casts_and_boxes_of_most_columns_use_slabs(mount, wide, name, cut):
    root, x = wide
    m = mount(root, 'cache=4M')
    got = np.load(m / f'1/default/{name}.npy')
    assert np.array_equal(got, x[cut].astype(got.dtype)) and str(got.dtype) == (name.split('@') + ['float32'])[1]
    # Without slabs: 130, 34, 34, 60 and 130.
    assert passes(m, x) <= 24, m.stats()


# Edges on every axis, a band on the second axis, and chunks larger than the array.
LAYOUTS = {'rank2': ((150, 24001), (64, 100)), 'rank3': ((130, 61, 499), (48, 7, 50)), 'second': ((2, 75, 40, 1001), (1, 40, 6, 30)),
           'larger': ((50, 30001), (64, 128))}


@pytest.fixture(scope='module')
def edges(program, tmp_path_factory):
    """An array for each layout, a third of whose chunks are not stored."""
    d = tmp_path_factory.mktemp('edges')
    (d / 'in').mkdir()
    for name in LAYOUTS:
        np.save(d / f'in/{name}.npy', np.zeros(1, np.float32))
    subprocess.run([program, 'save', '-o', 'ocdbt=off', d / 'in', d / 'root/1'], check=True)
    item = d / 'root/1/default'
    shutil.rmtree(item / '.crc32c')
    (item / '_METADATA').unlink()
    arrays = {}
    for name, (shape, chunk) in LAYOUTS.items():
        shutil.rmtree(item / name)
        (item / name).mkdir()
        (item / name / '.zarray').write_text(json.dumps({
            'zarr_format': 2, 'shape': shape, 'chunks': chunk, 'dtype': '<f4', 'fill_value': 2.5, 'order': 'C', 'filters': None,
            'compressor': {'id': 'zlib', 'level': 1}, 'dimension_separator': '.'}))
        x = (np.arange(np.prod(shape)) % 9973).astype(np.float32).reshape(shape)
        for n, at in enumerate(itertools.product(*(range(-(-s // c)) for s, c in zip(shape, chunk)))):
            box = tuple(slice(i * c, (i + 1) * c) for i, c in zip(at, chunk))
            if n % 3 == 1:
                x[box] = 2.5
                continue
            whole = np.full(chunk, 2.5, np.float32)
            whole[tuple(slice(0, k) for k in x[box].shape)] = x[box]
            (item / name / '.'.join(map(str, at))).write_bytes(zlib.compress(whole.tobytes(), 1))
        arrays[name] = x
    return d / 'root', arrays


@pytest.mark.parametrize('name,options', pairs(list(LAYOUTS), ['max_read=512K', 'max_read=128K,direct_io=on', 'read_budget=1M']))
def test_edges_and_chunks_that_are_not_stored(mount, edges, name, options):
    root, arrays = edges
    x = arrays[name]
    m = mount(root, 'cache=2M,missing=zero', options)
    assert reader_of(m / f'1/default/{name}.bin', 300_000) == x.tobytes()
    cut = tuple(slice(1, n) if n > 2 else slice(None) for n in x.shape)
    box = ','.join(f'{c.start or ""}:' for c in cut)
    assert np.array_equal(np.load(m / f'1/default/{name}[{box}]@float64.npy'), x[cut].astype(np.float64))
    # Each slab, a quarter of the cache, decodes its band: about 10 for each of the two reads, more where one is evicted
    # early. Without slabs it is 45 and more.
    assert passes(m, x) <= 36, m.stats()


def test_the_memory_of_slabs_is_within_the_cache(mount, wide):
    root, x = wide
    m = mount(root, 'cache=20M,read_budget=4M')
    before = m.memory('VmRSS')
    with concurrent.futures.ThreadPoolExecutor(3) as ex:
        for name, got in ex.map(lambda name: (name, reader_of(m / f'1/default/{name}.bin', MIB)), ('w', 'w@float64', 'w')):
            assert got == (x if name == 'w' else x.astype(np.float64)).tobytes()
    # Besides, answers and freed blocks for the next slab.
    assert m.memory('VmHWM') - before <= (20 + 4 + 24) * MIB, f'{m.memory("VmHWM") >> 20} MiB'
    assert m.stats()['cache_peak_bytes'] <= 20 * MIB + MIB


def test_a_damaged_band_is_decoded_a_few_times(mount, wide, tmp_path):
    """Each of its rows fails, and none of them decodes the other chunks again."""
    root, x = wide
    root = shutil.copytree(root, tmp_path / 'damaged')
    victim = root / '1/default/w/1.7'
    good = victim.read_bytes()
    victim.write_bytes(good[:-20])
    m = mount(root, 'cache=4M,direct_io=on', allow_errors=True)
    row, left = SHAPE[1] * 4, 8 * 128 * 4
    with open(m / '1/default/w.bin', 'rb', buffering=0) as f:
        for i in range(128, 256):
            f.seek(i * row)
            with pytest.raises(OSError) as e:
                f.read(row)
            assert e.value.errno == errno.EIO
            f.seek(i * row + left)
            assert f.read(row - left) == x[i].tobytes()[left:]
        # 16 slabs, each of half of the array, and what was opened together with the damaged chunk.
        assert passes(m, x) <= 12, m.stats()
        victim.write_bytes(good)
        f.seek(200 * row)
        assert f.read(row) == x[200].tobytes()
    assert any("'w/1.7'" in line for line in m.log_lines())


def test_a_damaged_chunk_spoils_its_own_rows_and_columns_only(mount, wide, tmp_path):
    root, x = wide
    root = shutil.copytree(root, tmp_path / 'damaged')
    victim = root / '1/default/w/1.5'
    victim.write_bytes(victim.read_bytes()[:-20])
    m = mount(root, 'cache=4M', allow_errors=True)
    with open(m / '1/default/w.bin', 'rb', buffering=0) as f:
        row = SHAPE[1] * 4
        assert f.read(128 * row) == x[:128].tobytes()
        f.seek(128 * row)
        with pytest.raises(OSError) as e:
            f.read(row)
        assert e.value.errno == errno.EIO
    assert np.array_equal(np.load(m / '1/default/w[128:256,0:640].npy'), x[128:256, :640])
    assert any("'w/1.5'" in line for line in m.log_lines())


@pytest.mark.parametrize('options', ['cache=4M,read_budget=2M', 'cache=4M,read_budget=4M,direct_io=on', 'cache=4M,read_budget=3M,threads=1'])
def test_a_small_budget_stops_no_reader(mount, wide, options):
    """Slabs need chunks, and these wait for the read budget: a slab that held some of it could wait for ever."""
    root, x = wide
    m = mount(root, options)
    with concurrent.futures.ThreadPoolExecutor(6) as ex:
        for got in ex.map(lambda _: np.load(m / '1/default/w.npy'), range(6)):
            assert np.array_equal(got, x)
