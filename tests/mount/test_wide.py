# SPDX-License-Identifier: Apache-2.0
"""Arrays with many chunks side by side, whose band of chunks does not fit into the cache: rows are read in C order, so each
request needs a little of every chunk of the band."""

import concurrent.futures
import errno
import shutil
import subprocess

import numpy as np
import pytest

MIB = 1 << 20
SHAPE = (512, 32768)        # 128 x 128 elements in a chunk: a band is 16 MiB, four times the cache


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


@pytest.mark.parametrize('options', [[], ['direct_io=on'], ['direct_io=off'], ['threads=1']], ids=' '.join)
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
        for _ in range(60):
            at = int(rng.integers(0, len(want)))
            n = int(rng.integers(1, 3 * MIB))
            f.seek(at)
            got = f.read(n)
            assert got == want[at:at + len(got)] and len(got) == min(n, len(want) - at), (at, n)


def test_a_damaged_chunk_spoils_its_own_rows_and_columns_only(mount, wide, tmp_path):
    root, x = wide
    root = shutil.copytree(root, tmp_path / 'damaged')
    victim = root / '1/default/w/2.5'
    victim.write_bytes(victim.read_bytes()[:-20])
    m = mount(root, 'cache=4M', allow_errors=True)
    with open(m / '1/default/w.bin', 'rb', buffering=0) as f:
        row = SHAPE[1] * 4
        for first in (0, 3 * 128):
            f.seek(first * row)
            assert f.read(128 * row) == x[first:first + 128].tobytes()
        f.seek(2 * 128 * row)
        with pytest.raises(OSError) as e:
            f.read(row)
        assert e.value.errno == errno.EIO
    assert np.array_equal(np.load(m / '1/default/w[256:384,0:640].npy'), x[256:384, :640])
    assert any("'w/2.5'" in line for line in m.log_lines())


@pytest.mark.parametrize('options', ['cache=4M,read_budget=2M', 'cache=4M,read_budget=4M,direct_io=on', 'cache=4M,read_budget=3M,threads=1'])
def test_a_small_budget_stops_no_reader(mount, wide, options):
    """Slabs need chunks, and these wait for the read budget: a slab that held some of it could wait for ever."""
    root, x = wide
    m = mount(root, options)
    with concurrent.futures.ThreadPoolExecutor(6) as ex:
        for got in ex.map(lambda _: np.load(m / '1/default/w.npy'), range(6)):
            assert np.array_equal(got, x)
