# SPDX-License-Identifier: Apache-2.0
"""cache_dir=: what was fetched is not fetched again, and whatever happens to the directory, a read has the right bytes."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import threading

import numpy as np
import pytest

from lib import compare, mounts, servers

LEAVES = {f'layer{i}/w': 700 * 1024 + i for i in range(6)}
MIB = 1 << 20


def make(run, directory, seed):
    """An item of some MiB that nothing compresses; the names and sizes of its files do not depend on the seed."""
    rng = np.random.default_rng(seed)
    for name, n in LEAVES.items():
        path = directory / 'npy' / f'{name}.npy'
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, rng.integers(0, 255, n).astype(np.uint8))
    run('convert', '-o', 'compression=none,chunk_byte_size=4M,ocdbt=off', directory / 'npy', directory / 'item')
    return directory / 'item'


@pytest.fixture
def item(run, tmp_path):
    return make(run, tmp_path / 'made', 1)


class Counting:
    """Serves what root is now; counts requests for ranges and their bytes."""

    def __init__(self):
        self.ranges, self.changed, self.at = 0, threading.Condition(), None

    def __call__(self, path, offset):
        with self.changed:
            self.ranges += 1
            self.changed.notify_all()
        if self.at:
            self.at(self.ranges)


@pytest.fixture
def served(item):
    """(url, counter) of the item."""
    counter = Counting()
    with servers.faulty(item, counter) as url:
        yield url, counter


@pytest.fixture
def cache(tmp_path):
    return tmp_path / 'cache'


def pieces(cache):
    return sorted(p for p in cache.rglob('*') if p.is_file() and len(p.name) == 62)


def stats(m):
    return {k.removeprefix('cache_dir_'): v for k, v in json.loads((m / '.pytreefs/stats').read_text()).items()
            if k.startswith('cache_dir_')}


def whole(m):
    return compare.contents(m.path)


@pytest.mark.option('cache_dir')
def test_the_second_mount_fetches_nothing(mount, item, served, cache):
    url, counter = served
    want = whole(mount(item))
    first = mount(url, f'cache_dir={cache}', 'sandbox=require')
    assert whole(first) == want
    fetched, before = counter.ranges, stats(first)
    # Two threads may fetch one piece.
    assert fetched and before['misses'] == before['stored'] >= len(pieces(cache)) > 20 and not before['evicted'] + before['damaged']
    assert before['fetched_bytes'] >= sum(LEAVES.values())
    # While the first one is mounted, and with another kernel's page cache and cache of chunks.
    second = mount(url, f'cache_dir={cache}', 'sandbox=require')
    assert whole(second) == want
    assert counter.ranges == fetched
    now = stats(second)
    assert now['hits'] and now['hit_bytes'] and not now['misses'] + now['fetched_bytes'] + now['damaged']
    config = json.loads((second / '.pytreefs/config').read_text())
    assert config['options']['cache_dir']['value'] == str(cache)
    # Without it everything is fetched.
    assert whole(mount(url)) == want and counter.ranges > fetched
    assert (cache.stat().st_mode & 0o777, pieces(cache)[0].stat().st_mode & 0o777) == (0o700, 0o600)


def test_commands_and_mounts_share_it(mount, run, item, served, cache):
    url, counter = served
    leaf = 'layer3/w.npy'
    want = run('cat', f'{item}/{leaf}', text=False).stdout
    assert run('cat', '-o', f'cache_dir={cache}', f'{url}/{leaf}', text=False).stdout == want
    fetched = counter.ranges
    assert fetched
    assert run('cat', '-o', f'cache_dir={cache},sandbox=require', f'{url}/{leaf}', text=False).stdout == want
    assert counter.ranges == fetched
    m = mount(url, f'cache_dir={cache}')
    assert (m / leaf).read_bytes() == want
    # A mount fetches the next leaves ahead, until it ends.
    assert not m.unmount()
    # By a path from where the command runs, and by the variable.
    env = dict(os.environ, PYTREEFS_OPTIONS='cache_dir=cache')
    before = counter.ranges
    assert run('cat', f'{url}/{leaf}', text=False, cwd=cache.parent, env=env).stdout == want
    assert counter.ranges == before
    # A source in a file system has none.
    assert run('cat', '-o', f'cache_dir={cache}/none', f'{item}/{leaf}', text=False).stdout == want
    assert not (cache / 'none').exists()


def test_damage_is_fetched_again(mount, item, served, cache):
    """A flipped byte, a file that ends too early, one of zeros, one of another piece, one that is not a piece's at all."""
    url, counter = served
    want = whole(mount(item))
    assert whole(mount(url, f'cache_dir={cache}')) == want
    stored = {p: (p.stat().st_ino, p.read_bytes()) for p in pieces(cache)}
    large = [p for p in stored if len(stored[p][1]) > 256 << 10]
    with open(large[0], 'r+b') as f:
        f.seek(100_000)
        byte = f.read(1)[0]
        f.seek(100_000)
        f.write(bytes([byte ^ 1]))
    os.truncate(large[1], 1000)
    large[2].write_bytes(bytes(large[2].stat().st_size))
    shutil.copy(large[4], large[3])
    for name in ('notes.txt', '0' * 62, 'new-0123456789abcdef-1'):
        (large[0].parent / name).write_text('not a piece')
    m = mount(url, f'cache_dir={cache}')
    assert whole(m) == want
    # Two threads may read one piece, and fetch it.
    assert 4 <= stats(m)['damaged'] <= stats(m)['stored'] <= 8, stats(m)
    for p, (inode, content) in stored.items():
        assert p.read_bytes() == content and (p in large[:4] or p.stat().st_ino == inode), p
    before = counter.ranges
    assert whole(mount(url, f'cache_dir={cache}')) == want
    assert counter.ranges == before
    assert (large[0].parent / 'notes.txt').read_text() == 'not a piece'


def test_an_object_that_is_replaced(mount, run, item, tmp_path, cache):
    """Under the same names, with the same sizes and times: never an old byte in a mount that is made then."""
    other = make(run, tmp_path / 'other', 2)
    made = []
    with servers.faulty(item, Counting(), made) as url:
        for now in (item, other, item):
            made[0].root = now
            for new, old in zip(sorted(other.rglob('*')), sorted(item.rglob('*')), strict=True):
                os.utime(new, (1, 1))
                os.utime(old, (1, 1))
            assert whole(mount(url, f'cache_dir={cache}')) == whole(mount(now))


@pytest.mark.option('cache_dir_limit')
def test_the_limit(mount, item, served, cache):
    url, _ = served
    want = whole(mount(item))
    # Leaves are read ahead at the same time. The mounts read one after the other: it is one process's limit that is strict.
    limited = [mount(url, f'cache_dir={cache}', 'cache_dir_limit=2M', 'cache=0') for _ in range(2)]
    for m in limited:
        assert whole(m) == want
        mounts.wait_for(lambda: 0 < sum(p.stat().st_size for p in pieces(cache)) <= 2 * MIB)
    assert all(stats(m)['evicted'] for m in limited)
    free = mount(url, f'cache_dir={cache}', 'cache_dir_limit=0')
    assert whole(free) == want and not stats(free)['evicted']
    assert sum(p.stat().st_size for p in pieces(cache)) > 4 * MIB


@contextlib.contextmanager
def small_disk(at, size):
    at.mkdir()
    if subprocess.run(['mount', '-t', 'tmpfs', '-o', f'size={size},mode=700', 'none', at], check=False,
                      stderr=subprocess.DEVNULL).returncode:
        pytest.skip('no tmpfs can be mounted here')
    try:
        yield
    finally:
        subprocess.run(['umount', '-l', at], check=True)


@pytest.mark.skipif(os.getuid() != 0, reason='only root may mount a tmpfs')
def test_a_full_disk(mount, item, served, cache):
    url, counter = served
    want = whole(mount(item))
    with small_disk(cache, '2m'):
        m = mount(url, f'cache_dir={cache}', allow_errors=True)
        assert whole(m) == want
        said = [line for line in m.log_lines() if 'gets nothing more' in line]
        assert len(said) == 1 and str(cache) in said[0] and 'No space left on device' in said[0], m.log_lines()
        first, stored = counter.ranges, len(pieces(cache))
        assert 0 < stored and not list(cache.rglob('new-*'))
        # Existing pieces are used.
        again = mount(url, f'cache_dir={cache}', allow_errors=True)
        assert whole(again) == want and counter.ranges < 2 * first and stats(again)['hits']
        for each in (m, again):
            each.unmount()


def test_killed_while_it_fills(program, mount, item, served, cache):
    """kill -9 when the n-th file appears there, whole or being written: what others read afterwards is right."""
    url, counter = served
    want = whole(mount(item))
    for n in (1, 2, 3, 5, 8, 11, 14):
        shutil.rmtree(cache, ignore_errors=True)
        # Slow writes, so that files are found half written, and not only between two.
        p = subprocess.Popen([program, 'verify', '-o', f'cache_dir={cache},io=fault(write:delay=10;rename:delay=10):sync', url],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            # One that has ended by then has filled it: what is read afterwards has to be right in any case.
            mounts.wait_for(lambda: p.poll() is not None or sum(q.is_file() for q in cache.rglob('*')) > n)
        finally:
            p.kill()
            p.wait()
        m = mount(url, f'cache_dir={cache}')
        assert whole(m) == want and not stats(m)['damaged'], n
        m.unmount()
    before = counter.ranges
    assert whole(mount(url, f'cache_dir={cache}')) == want and counter.ranges == before


def test_refusals(mount, run, item, served, cache):
    url, _ = served
    cache.mkdir()
    cache.chmod(0o777)
    r = run('ls', '-o', f'cache_dir={cache}', url, ok=False)
    assert r.returncode == 1 and f"cache_dir='{cache}' may be written by others (mode 0777)" in r.stderr, r.stderr
    r = run('ls', '-o', f'cache_dir={cache}/a/b', url, ok=False)
    assert r.returncode == 1 and f"cannot make the directory of cache_dir= '{cache}/a/b'" in r.stderr, r.stderr
    (cache.parent / 'file').write_text('')
    r = run('ls', '-o', f'cache_dir={cache.parent}/file', url, ok=False)
    assert r.returncode == 1 and 'Not a directory' in r.stderr, r.stderr
    point = cache.parent / 'point'
    point.mkdir()
    r = run('mount', '-o', f'cache_dir={point}/in', url, point, ok=False)
    assert r.returncode != 0 and 'the mount would use its own files' in r.stderr, r.stderr
    if os.getuid() == 0:
        cache.chmod(0o755)
        os.chown(cache, 12345, -1)
        r = run('ls', '-o', f'cache_dir={cache}', url, ok=False)
        assert r.returncode == 1 and 'belongs to user 12345' in r.stderr, r.stderr
