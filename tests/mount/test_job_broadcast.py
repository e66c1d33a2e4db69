# SPDX-License-Identifier: Apache-2.0
"""load_and_broadcast: what one rank of a job reads and decodes is handed to the others."""

import itertools
import os
import signal

import numpy as np
import pytest

from lib import mounts
from lib.pairs import pairs

MIB = 1 << 20
RNG = np.random.default_rng(5)
SMALL = {f'leaf{i}': RNG.standard_normal((64, 128 + i)).astype(np.float32) for i in range(12)}


@pytest.fixture(scope='module')
def source(program, mpi, tmp_path_factory):
    """Steps of small leaves, of one chunk of 24 MiB, of raw chunks, of directories and of shards."""
    top = tmp_path_factory.mktemp('broadcast')
    (top / 'source').mkdir()
    save(program, top, 1, SMALL, 'chunk_byte_size=4K')
    save(program, top, 2, {'large': RNG.integers(0, 50, (3 * MIB,)).astype(np.float64)}, 'chunk_byte_size=64M')
    save(program, top, 3, SMALL, 'compression=none')
    save(program, top, 4, SMALL, 'ocdbt=off')
    save(program, top, 5, {'sharded': RNG.integers(0, 9, (512, 512))}, 'zarr=3', 'chunk_byte_size=64K')
    save(program, top, 6, {'long': RNG.integers(0, 50, (16 * MIB,)).astype(np.float32)}, 'chunk_byte_size=1M')
    return top / 'source'


def save(program, top, step, leaves, *options):
    m = mounts.Mount(program, top / 'source', top / 'mnt', top / f'log{step}', ('shape=root', *options))
    try:
        d = m / f'{step}.tmp'
        d.mkdir()
        (d / 'default').mkdir()
        for name, a in leaves.items():
            np.save(d / 'default' / f'{name}.npy', a)
        os.rename(d, m / str(step))
    finally:
        m.unmount()


def total(j, name):
    return sum(j.stats(r)[name] for r in range(j.n))


@pytest.mark.feature('A12', 'D7')
@pytest.mark.parametrize('step, options', pairs([1, 2, 3, 4, 5], [(), ('mesh=2x2', 'replica_axis_index=1', 'primary_replica_id=1')]))
def test_every_chunk_is_read_once_in_the_whole_job(job, mount, source, step, options):
    alone = mount(source)
    wanted = {p.name: p.read_bytes() for p in (alone / str(step) / 'default').iterdir() if p.suffix == '.npy'}
    one = alone.stats()
    j = job(4, 'load_and_broadcast', 'broadcast_memory_limit=256M', *options, source=source)

    def look(rank):
        item = j[rank] / str(step) / 'default'
        return all((item / name).read_bytes() == data for name, data in wanted.items())
    assert j.each(look) == dict.fromkeys(range(4), True)
    readers = {0} if not options else {1, 3}
    counts = {r: j.stats(r) for r in range(4)}
    what = '\n'.join([j.text(), f'alone: {one}', *(f'rank {r}: {of}' for r, of in counts.items())])

    def total(name):
        return sum(of[name] for of in counts.values())
    assert total('broadcast_fallbacks') == 0, what
    assert total('broadcast_received_bytes') > 0, what
    assert {r for r in range(4) if counts[r]['chunks_decoded']} <= readers, what
    # Raw chunks are spliced by a mount alone and not counted as decoded.
    if step == 3:
        assert total('chunk_bytes_read') == sum(a.nbytes for a in SMALL.values()), what
        assert total('raw_bytes') == 0, what
    else:
        assert total('chunks_decoded') == one['chunks_decoded'], what
        assert total('chunk_bytes_read') == one['chunk_bytes_read'], what
    source_bytes = sum(counts[r]['source_read_bytes'] for r in readers)
    assert source_bytes <= one['source_read_bytes'] * len(readers) + 1 * MIB, what


def test_views_and_holes_are_the_same(job, source):
    j = job(3, 'load_and_broadcast', 'mesh=3', 'primary_replica_id=2', 'pad_truncate', source=source)
    a = SMALL['leaf3']
    for r in range(3):
        item = j[r] / '1' / 'default'
        assert np.array_equal(np.load(item / 'leaf3[5:50:7,::3].npy'), a[5:50:7, ::3])
        assert np.array_equal(np.load(item / 'leaf3@float64.npy'), a.astype(np.float64))
        assert np.array_equal(np.load(item / 'leaf3@70x70.npy')[:64], a[:, :70])
        assert (item / 'leaf3.bin').read_bytes() == a.tobytes()
    assert [bool(j.stats(r)['chunks_decoded']) for r in range(3)] == [False, False, True]


def test_memory_stays_below_the_limit(job, source):
    limit = 32 * MIB
    j = job(3, 'load_and_broadcast', 'broadcast_memory_limit=32M', 'broadcast_memory_scaling=1.0', source=source)
    sums = j.each(lambda r: float(np.load(j[r] / '6' / 'default' / 'long.npy').sum(dtype=np.float64)))
    assert len(set(sums.values())) == 1, sums
    for r in range(3):
        assert j.memory(r) < limit + 64 * MIB + 48 * MIB, (r, j.memory(r) / MIB)


def test_ranks_that_go_side_by_side_read_once_whatever_the_limit(job, source):
    j = job(3, 'load_and_broadcast', 'broadcast_memory_limit=32M', 'broadcast_memory_scaling=1.0', source=source)
    files = [open(j[r] / '6' / 'default' / 'long.npy', 'rb', buffering=0) for r in range(3)]
    try:
        while pieces := [f.read(MIB) for f in files]:
            assert pieces[0] == pieces[1] == pieces[2]
            if not pieces[0]:
                break
    finally:
        for f in files:
            f.close()
    # On a busy machine one rank may come for a chunk when another has gone far ahead; without sharing it were 192.
    assert 64 <= total(j, 'chunks_decoded') < 128, 'chunks were decoded again, of twice as much as the memory holds'
    assert j.stats(0)['cache_evictions'], 'all of it fitted into the memory'


@pytest.mark.parametrize('at_once', [False, True])
def test_what_fits_is_read_once(job, mount, source, at_once):
    """A rank that has read all of a leaf may be asked for it by others still."""
    alone = mount(source)
    wanted = {p: p.read_bytes() for step in (2, 6) for p in (alone / str(step) / 'default').glob('*.npy')}
    j = job(3, 'load_and_broadcast', 'broadcast_memory_limit=256M', 'broadcast_memory_scaling=1.0', source=source)

    def look(rank):
        return all((j[rank] / p.relative_to(alone.path)).read_bytes() == data for p, data in wanted.items())
    assert all(j.each(look).values() if at_once else map(look, range(3)))
    counts = [j.stats(r) for r in range(3)]
    assert total(j, 'chunk_bytes_read') == alone.stats()['chunk_bytes_read'], counts
    assert not total(j, 'cache_evictions') and not total(j, 'broadcast_fallbacks'), counts


def test_a_reader_that_is_gone_is_read_around(job, source):
    j = job(3, 'load_and_broadcast', 'primary_replica_id=1', source=source)
    assert np.array_equal(np.load(j[0] / '1' / 'default' / 'leaf0.npy'), SMALL['leaf0'])
    assert not j.stats(0)['chunks_decoded']
    assert not j.unmount(1)
    # It may still answer for a moment. What was read is not asked for again.
    mounts.wait_for(lambda: j.is_asleep(1))
    for step, name in itertools.product('34', SMALL):
        assert np.array_equal(np.load(j[0] / step / 'default' / f'{name}.npy'), SMALL[name])
        if j.stats(0)['broadcast_fallbacks']:
            break
    assert np.array_equal(np.load(j[2] / '1' / 'default' / 'leaf5.npy'), SMALL['leaf5'])
    assert j.stats(2)['chunks_decoded']


def test_nobody_waits_for_a_rank_that_has_nothing_to_give(job, source):
    j = job(3, 'load_and_broadcast', source=source)
    mounts.stop(j.pids[2])
    try:
        for r in range(2):
            assert np.array_equal(np.load(j[r] / '1' / 'default' / f'leaf{r}.npy'), SMALL[f'leaf{r}'])
        assert j.stats(1)['broadcast_received_pieces'] and not j.stats(1)['broadcast_fallbacks']
    finally:
        j.signal(2, signal.SIGCONT)


@pytest.mark.parametrize('options, why', [(['mesh=2x3'], 'has 6 places'), (['mesh=x'], "option 'mesh' does not accept 'x'"),
                                          (['primary_replica_id=2'], 'no such place'),
                                          (['broadcast_memory_scaling=2'],
                                           "option 'broadcast_memory_scaling' does not accept '2'; it takes 0.0 to 1.0")])
def test_what_cannot_be_asked_for_is_refused(job, source, options, why):
    with pytest.raises(mounts.MountError) as e:
        job(2, 'load_and_broadcast', *options, source=source)
    assert e.value.text.count(why) == 2, 'each rank says why'


def test_a_step_that_ranks_commit_is_broadcast_at_once(job):
    j = job(2, 'load_and_broadcast', 'commit_timeout=60')
    for r in range(2):
        (j[r] / '1.tmp').mkdir()
        (j[r] / '1.tmp' / 'default').mkdir()
        np.save(j[r] / '1.tmp' / 'default' / f'w[{r * 32}:{r * 32 + 32},0:131]@64x131.npy', SMALL['leaf3'][r * 32:r * 32 + 32])
    assert set(j.rename('1.tmp', '1').values()) == {0}
    for r in range(2):
        assert np.array_equal(np.load(j[r] / '1' / 'default' / 'w.npy'), SMALL['leaf3'])
    assert not j.stats(1)['chunks_decoded']
