"""Peak memory of the daemon: the sum of the options and a small constant, for any number of programs."""

import concurrent.futures
import os

import numpy as np
import pytest

MIB = 1 << 20
OPTIONS = {'cache': 32, 'read_budget': 32, 'write_budget': 32}
LIMIT = (sum(OPTIONS.values()) + 64) * MIB


def array(i):
    """Three MiB that compress a little."""
    return np.random.default_rng(i).integers(0, 1 << 20, (768, 1024), dtype=np.int32)


def together(n, do, items):
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        list(pool.map(do, items))


@pytest.mark.serial
@pytest.mark.feature('B2', 'D11')
@pytest.mark.parametrize('n', [1, 8, 64])
@pytest.mark.parametrize('how', ['stream', 'backwards'])
def test_writers_and_readers_stay_within_the_options(mount, tmp_path, n, how):
    root = tmp_path / 'root'
    root.mkdir()
    options = [f'{k}={v}M' for k, v in OPTIONS.items()]
    m = mount(root, *options)
    d = m / '1.tmp/default'
    d.mkdir(parents=True)

    def write(i):
        path = d / f'a{i}.npy'
        if how == 'stream':
            np.save(path, array(i))
            return
        np.save(path, array(i)[:1])
        os.truncate(path, 0)
        data = np.lib.format.open_memmap(tmp_path / f'{i}.npy', 'w+', np.int32, (768, 1024))
        data[:] = array(i)
        data.flush()
        raw = (tmp_path / f'{i}.npy').read_bytes()
        with open(path, 'r+b') as f:
            for at in reversed(range(0, len(raw), MIB)):
                f.seek(at)
                f.write(raw[at:at + MIB])
        (tmp_path / f'{i}.npy').unlink()

    count = max(n, 16)
    together(n, write, range(count))
    os.rename(m / '1.tmp', m / '1')
    assert m.memory() <= LIMIT, m.memory() / MIB
    assert m.stats()['write_budget_peak_bytes'] <= OPTIONS['write_budget'] * MIB
    m.unmount()
    m = mount(root, *options)

    def read(i):
        assert np.array_equal(np.load(m / f'1/default/a{i}.npy'), array(i))
    together(n, read, range(count))
    assert m.memory() <= LIMIT, m.memory() / MIB
    assert m.stats()['cache_peak_bytes'] <= OPTIONS['cache'] * MIB
