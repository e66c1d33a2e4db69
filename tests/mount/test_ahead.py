# SPDX-License-Identifier: Apache-2.0
"""Decode-ahead across leaves: who reads leaf after leaf finds the next ones decoded; who jumps pays for nothing twice.

Requests go to the daemon itself (direct_io), so that its counters tell what was decoded for whom; but for maps.
"""

import collections
import concurrent.futures
import functools
import hashlib
import json
import mmap
import os
import random
import subprocess
import sys
import time

import numpy as np
import pytest

from lib import mounts
from lib.pairs import pairs

MIB = 1 << 20
LEAVES = 16
EACH = 5 * MIB
TOTAL = LEAVES * EACH
STREAMS = ['chunk_byte_size=64M']        # one chunk for each leaf, decoded as a stream of pieces
KINDS = {'streams': STREAMS, 'small chunks': ['chunk_byte_size=1M'], 'zarr3': ['zarr=3', 'ocdbt=off']}


@functools.cache
def content(i):
    """The contents of leaf i: they compress, and no two are equal."""
    return np.random.default_rng(i).integers(0, 16, EACH // 2, dtype=np.uint8).repeat(2) ^ np.uint8(i)


def name(i):
    return f'layer_{i:02d}.npy'


@pytest.fixture(scope='module')
def written():
    """In which order the leaves lie in the data file."""
    order = list(range(LEAVES))
    random.Random(3).shuffle(order)
    return order


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    """The trees so far, by their options."""
    return collections.defaultdict(lambda: tmp_path_factory.mktemp('tree'))


@pytest.fixture
def tree(mount, made, written):
    """tree(options): the source of a tree that is only read."""
    def make(*options):
        source = made[options]
        if os.listdir(source):
            return source
        m = mount(source, *(options or STREAMS))
        draft = m / '1.tmp/state'
        os.makedirs(draft)
        for i in written:
            np.save(draft / name(i), content(i))
        os.rename(m / '1.tmp', m / '1')
        assert not m.unmount()
        return source
    return make


def wait_for_guess(m):
    """Idle threads decode what is guessed, when there is one."""
    mounts.wait_for(lambda: m.stats()['ahead_started'])


def settled(m):
    """The counters when nothing more is decoded. A request posts its jobs before it is answered, and a job posts others before it ends."""
    end = time.monotonic() + 120
    while (s := m.stats())['background_jobs']:
        assert time.monotonic() < end, s
        time.sleep(0.005)
    return s


def read_all(m, order):
    """One leaf after the other, compared; then the counters."""
    for i in order:
        assert np.array_equal(np.load(m / '1/state' / name(i)), content(i)), name(i)
        settled(m)
    return settled(m)


def begin(m, i, n=300 * 1024):
    """So much of a leaf that its reader counts as one in order."""
    fd = os.open(m / '1/state' / name(i), os.O_RDONLY)
    try:
        assert len(os.pread(fd, n, 0)) == n
    finally:
        os.close(fd)


@pytest.mark.parametrize('kind', KINDS)
def test_a_loop_over_the_tree_finds_leaves_decoded(mount, tree, kind):
    m = mount(tree(*KINDS[kind]), 'direct_io', 'cache=128M')
    s = read_all(m, range(LEAVES))
    assert TOTAL <= s['chunk_bytes_decoded'] <= TOTAL + LEAVES * 4096, 'something was decoded twice'
    # The first three show that it is a loop; how many of the others come in time is the machine's business.
    assert s['ahead_used'] >= TOTAL // 2, s
    assert s['ahead_started'] == s['ahead_used'] and s['ahead_wasted'] == s['ahead_bytes'] == 0
    assert m.memory('VmHWM') <= (128 + 64) * MIB


def test_the_order_of_the_data_file_is_followed(mount, tree, written):
    # One thread, so that leaves are encoded, and come to lie, in the order in which they are written.
    source, used = tree('threads=1'), []
    for _ in range(10):
        m = mount(source, 'direct_io', 'cache=128M')
        s = read_all(m, written)
        assert s['chunk_bytes_decoded'] <= TOTAL + s['ahead_wasted'] + LEAVES * 4096
        used.append(s['ahead_used'])
        # No other order knows three of them in a row. How many come in time is the machine's business, so once is enough.
        if used[-1] >= 3 * EACH:
            return
    pytest.fail(f'{used} bytes were used')


@pytest.mark.parametrize('kind', [*KINDS, 'blosc'])
def test_later_passes_find_leaves_decoded(mount, tree, kind):
    """In the tree's order, by a cache that holds too little of the pass before."""
    m = mount(tree(*KINDS.get(kind, [*STREAMS, 'compression=blosc'])), 'direct_io', 'cache=64M')
    before = read_all(m, range(LEAVES))
    for _ in range(2):
        now = read_all(m, range(LEAVES))
        assert now['ahead_used'] - before['ahead_used'] >= TOTAL // 2, (before, now)
        assert now['chunk_bytes_decoded'] - before['chunk_bytes_decoded'] <= TOTAL + LEAVES * 4096, (before, now)
        before = now


def test_four_threads_share_the_work(mount, tree):
    m = mount(tree(), 'direct_io', 'cache=256M')
    with concurrent.futures.ThreadPoolExecutor(4) as ex:
        right = list(ex.map(lambda i: np.array_equal(np.load(m / '1/state' / name(i)), content(i)), range(LEAVES)))
    assert all(right)
    s = settled(m)
    assert s['chunk_bytes_decoded'] <= TOTAL + LEAVES * 4096, 'something was decoded twice'
    assert s['ahead_wasted'] == 0


# Without numpy, whose import would take most of the time.
READER = '''
import hashlib, os, random, sys
names = sys.argv[3:]
if sys.argv[2] != "in order":
    random.Random(sys.argv[2]).shuffle(names)
os.pread(os.open(f"{sys.argv[1]}/{names[0]}", os.O_RDONLY), 300 * 1024, 0)
print("ready", flush=True)
sys.stdin.readline()
found = []
content = bytearray(os.stat(f"{sys.argv[1]}/{names[0]}").st_size)
for name in names:
    assert open(f"{sys.argv[1]}/{name}", "rb", buffering=0).readinto(content) == len(content)
    found.append((name, hashlib.sha256(memoryview(content)[128:]).hexdigest()))
print(sorted(found))
'''


@pytest.mark.parametrize('orders, options', pairs(['one order', 'different orders'], [[], ['direct_io']]))
def test_eight_processes_cost_one_decode(mount, tree, orders, options):
    """And no second one. All of them have begun to read before one goes on; one that stays behind finds a part of it dropped."""
    m = mount(tree(), 'cache=256M', *options)
    readers = [subprocess.Popen([sys.executable, '-S', '-c', READER, m / '1/state', 'in order' if orders == 'one order' else str(k),
                                 *map(name, range(LEAVES))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
               for k in range(8)]
    try:
        assert [p.stdout.readline() for p in readers] == ['ready\n'] * 8
        for p in readers:
            p.stdin.write('\n')
            p.stdin.flush()
        outputs = [p.communicate(timeout=300)[0] for p in readers]
    finally:
        for p in readers:
            p.kill()
            p.wait()
    want = sorted((name(i), hashlib.sha256(content(i)).hexdigest()) for i in range(LEAVES))
    assert outputs == [f'{want}\n'] * 8
    s = settled(m)
    assert TOTAL <= s['chunk_bytes_decoded'] < TOTAL * 3 // 2, s


def test_random_opens_decode_again_what_a_wrong_guess_has_wasted(mount, tree):
    """No more than that: what was given up stays in the cache while there is room."""
    m = mount(tree(), 'direct_io', 'cache=256M')
    for i in range(4):
        begin(m, i)
    wait_for_guess(m)
    rng = random.Random(7)
    for _ in range(1000):
        begin(m, rng.randrange(LEAVES))
    s = settled(m)
    # How far it came before it was given up is the machine's business.
    assert s['chunk_bytes_decoded'] <= TOTAL + s['ahead_wasted'] + LEAVES * 4096, s
    assert s['stream_restarts'] == 0, s


def test_a_wrong_guess_is_bounded_and_given_up(mount, tree):
    """Three leaves in order, then one again and again: nothing more than the window is decoded for nobody."""
    m = mount(tree(), 'direct_io', 'cache=64M')
    for i in range(3):
        begin(m, i)
    for _ in range(20):
        begin(m, 14)
    s = settled(m)
    assert s['ahead_started'] <= 16 * MIB + EACH, s
    begin(m, 14)
    assert settled(m)['chunk_bytes_decoded'] == s['chunk_bytes_decoded']


def test_who_looks_at_heads_decodes_no_leaf_ahead(mount, tree):
    m = mount(tree(), 'direct_io', 'cache=256M')
    for i in range(LEAVES):
        begin(m, i, 128)
    assert settled(m)['ahead_started'] == 0


def test_little_memory_turns_it_off(mount, tree):
    source = tree()
    for options in (['cache=16M'], ['read_budget=8M']):
        m = mount(source, 'direct_io', *options)
        s = read_all(m, range(LEAVES))
        assert s['ahead_started'] == 0, options
        assert not m.unmount()


@pytest.mark.parametrize('how', ['damaged', 'deleted'])
def test_a_broken_leaf_is_told_to_who_reads_it(mount, tree, how):
    source = tree('ocdbt=off')
    chunk, = (source / '1/state/layer_05').glob('0')
    if how == 'damaged':
        b = bytearray(chunk.read_bytes())
        b[len(b) // 2:len(b) // 2 + 1000] = bytes(1000)
        chunk.write_bytes(b)
    else:
        chunk.unlink()
    m = mount(source, 'direct_io', 'cache=128M', allow_errors=True)
    for i in range(5):
        assert np.array_equal(np.load(m / '1/state' / name(i)), content(i))
    s = settled(m)
    assert s['ahead_started'] > 2 * EACH, 'the leaves after it were not looked at'
    assert not m.faults(False), 'the log tells of a leaf that nobody has read'
    with pytest.raises(OSError):
        np.load(m / '1/state' / name(5))
    assert any('layer_05' in line for line in m.log_lines())
    assert np.array_equal(np.load(m / '1/state' / name(6)), content(6))


@pytest.mark.parametrize('lead', [1, 5])
def test_a_slower_reader_finds_what_a_faster_one_decoded(mount, tree, lead):
    """The tree is larger than the cache; the kernel keeps what one of them has read."""
    m = mount(tree(), 'cache=48M')
    with concurrent.futures.ThreadPoolExecutor(1) as fast, concurrent.futures.ThreadPoolExecutor(1) as slow:
        for i in range(lead):
            fast.submit(read_all, m, [i]).result()
        for i in range(LEAVES):
            slow.submit(read_all, m, [i]).result()
            if i + lead < LEAVES:
                fast.submit(read_all, m, [i + lead]).result()
    s = settled(m)
    assert s['chunk_bytes_decoded'] <= TOTAL + 2 * EACH, s
    assert m.memory('VmHWM') <= (48 + 64) * MIB


@pytest.mark.parametrize('options', [[], ['cache=16M']], ids=['default', 'little memory'])
def test_a_map_of_the_whole_tree_that_is_touched_in_order(mount, tree, options):
    m = mount(tree(), *options)
    with open(m / '1/state.safetensors', 'rb') as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as b:
        head = 8 + int.from_bytes(b[:8], 'little')
        tensors = {k: v['data_offsets'] for k, v in json.loads(b[8:head]).items() if k != '__metadata__'}
        for i, key in enumerate(sorted(tensors, key=lambda k: tensors[k])):
            begin, end = tensors[key]
            got = np.frombuffer(b[head + begin:head + end], np.uint8)
            assert np.array_equal(got, content(int(key.removeprefix('layer_')))), key
            settled(m)
    s = settled(m)
    if options:
        # The kernel requests more at once than the cache keeps: a piece may be decoded again.
        assert s['ahead_started'] == 0
        assert s['chunk_bytes_decoded'] <= 2 * TOTAL
    else:
        assert s['ahead_used'] >= TOTAL // 4, s
        assert s['chunk_bytes_decoded'] <= TOTAL + s['ahead_wasted'] + LEAVES * 4096
    assert s['ahead_wasted'] == 0


@pytest.mark.parametrize('kind', KINDS)
def test_idle_threads_that_are_late_decode_nothing_twice(mount, tree, kind):
    """The map is touched as fast as its pages come: what idle threads are to decode has often been read when they get to it."""
    m = mount(tree(*KINDS[kind]), 'cache=128M', 'threads=2')
    with open(m / '1/state.safetensors', 'rb') as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as b:
        head = 8 + int.from_bytes(b[:8], 'little')
        tensors = {k: v['data_offsets'] for k, v in json.loads(b[8:head]).items() if k != '__metadata__'}
        np.frombuffer(b, np.uint8)[::mmap.PAGESIZE].copy()
        for key, (begin, end) in tensors.items():
            got = np.frombuffer(b[head + begin:head + end], np.uint8)
            assert np.array_equal(got, content(int(key.removeprefix('layer_')))), key
    s = settled(m)
    # Each of the two threads may be in the middle of a leaf that the reader has passed; it was up to 1.8 times the whole.
    assert TOTAL <= s['chunk_bytes_decoded'] <= TOTAL + 2 * EACH, s


def test_jumps_in_a_map_end_the_guess(mount, tree):
    m = mount(tree(), 'cache=128M')
    with open(m / '1/state.safetensors', 'rb') as f:
        for off in range(0, 5 * EACH, MIB):
            os.pread(f.fileno(), MIB, off)
        wait_for_guess(m)
        started = settled(m)['ahead_started']
        assert started <= 48 * MIB
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for i in (14, 3, 12, 5, 9):
            os.pread(f.fileno(), 4096, i * EACH)
    s = settled(m)
    assert s['ahead_started'] <= started + 2 * MIB
    assert s['chunk_bytes_decoded'] <= TOTAL + LEAVES * 4096
