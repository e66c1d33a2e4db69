# SPDX-License-Identifier: Apache-2.0
"""Peak memory of the daemon: the sum of the options and a small constant, for any number of programs."""

import concurrent.futures
import functools
import os
import threading

import numpy as np
import pytest

from lib import writing
from lib.pairs import pairs

MIB = 1 << 20
OPTIONS = {'cache': 16, 'read_budget': 16, 'write_budget': 16}
LIMIT = (sum(OPTIONS.values()) + 64) * MIB
TOTAL = 3 * LIMIT // 2               # of all leaves: what is held beyond its use is seen


@functools.cache
def base():
    return np.random.default_rng(1).integers(0, 1 << 20, (TOTAL // 8 // 4096, 1024), dtype=np.int32)


def array(i, count):
    """A share of the total that compresses a little."""
    return base()[:TOTAL // count // 4096] + np.int32(i)


def together(n, do, items):
    """do(item, start) by n threads, each of which says start() when it has what it needs: the first n go at once."""
    first, left = threading.Barrier(n, timeout=240), iter(range(n))

    def start():
        if next(left, None) is not None:
            first.wait()
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        list(pool.map(lambda item: do(item, start), items))


def stream(path, a):
    np.save(path, a)


def backwards(path, a):
    """From the end to the front, which no encoder can follow."""
    raw = memoryview(writing.npy(a))
    with open(path, 'wb', buffering=0) as f:
        for at in reversed(range(0, len(raw), MIB)):
            f.seek(at)
            f.write(raw[at:at + MIB])


@pytest.mark.timeout(900)
@pytest.mark.feature('B2', 'D11')
@pytest.mark.parametrize('n,how', pairs([1, 8, 64], [stream, backwards]))
def test_writers_and_readers_stay_within_the_options(mount, tmp_path, n, how):
    """n writers; then n readers; then both at once. All n are there at the same time, in every part."""
    root, count = tmp_path / 'root', max(n, 8)
    root.mkdir()

    def write(m, step, n):
        d = m / f'{step}.tmp/default'
        d.mkdir(parents=True)

        def one(i, start):
            a = array(i, count)
            start()
            how(d / f'a{i}.npy', a)
        together(n, one, range(count))
        os.rename(m / f'{step}.tmp', m / str(step))

    def read(m, step, n):
        def one(i, start):
            with open(m / f'{step}/default/a{i}.npy', 'rb') as f:
                start()
                assert np.array_equal(np.load(f), array(i, count))
        together(n, one, range(count))

    def measured(*parts):
        m = mount(root, *[f'{name}={value}M' for name, value in OPTIONS.items()])
        with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
            for done in [pool.submit(do, m, step, n) for do, step in parts]:
                done.result()
        stats, peak = m.stats(), m.memory()
        m.unmount()
        print(f'{n} {" and ".join(do.__name__ for do, _ in parts)} {how.__name__}: peak {peak / MIB:.0f} of '
              f'{LIMIT // MIB} MiB, write budget {stats["write_budget_peak_bytes"] / MIB:.0f}, '
              f'cache {stats["cache_peak_bytes"] / MIB:.0f} of 16')
        assert peak <= LIMIT
        assert stats['write_budget_peak_bytes'] <= OPTIONS['write_budget'] * MIB
        assert stats['read_budget_peak_bytes'] <= OPTIONS['read_budget'] * MIB
    measured((write, 1))
    measured((read, 1))
    measured((write, 2), (read, 1))
