# SPDX-License-Identifier: Apache-2.0
"""Drafts that the ranks of an MPI job write and commit together: parts, replicas, and what does not fit together."""

import errno
import json
import os
import shutil

import numpy as np
import pytest

from lib import mounts
from lib.collective import DRAFT, W, begin, bounds, box, check, databases, fill, save_part, steps, top
from lib.pairs import pairs

LAYOUTS = {'database': (), 'database-zarr3': ('zarr=3',), 'directories': ('ocdbt=off',),
           'directories-zarr3': ('ocdbt=off', 'zarr=3')}


@pytest.mark.feature('D2', 'A16')
@pytest.mark.parametrize('n, layout', [(1, 'database'), (2, 'database-zarr3'), (4, 'database'), (7, 'database'),
                                       (4, 'directories'), (2, 'directories-zarr3')])
def test_what_ranks_write_becomes_one_step(job, run, n, layout):
    j = job(n, 'commit_timeout=60', *LAYOUTS[layout])
    fill(j)
    assert set(j.rename(DRAFT, '1').values()) == {0}
    for r in range(n):
        check(j, r)
    assert steps(j.source) == ['1'] == sorted(os.listdir(j.source)), 'something was left beside the step'
    assert not [p for p in (j.source / '1').rglob('.pytreefs*')], 'something of the draft is in the step'
    run('verify', j.source)


def test_values_stay_where_the_ranks_put_them(job):
    j = job(2, 'commit_timeout=60')
    big = np.random.default_rng(1).integers(0, 2**31, (1024, 512)).astype(np.int32)
    begin(j)
    for r in range(2):
        save_part(top(j, r), 'big', r * 512, r * 512 + 512, big)
    assert set(j.rename(DRAFT, '1').values()) == {0}
    item = j.source / '1' / 'default'
    assert databases(j.source) == ['ocdbt.process_0', 'ocdbt.process_1']
    merged = sum(p.stat().st_size for p in (item / 'd').iterdir())
    parts = [sum(p.stat().st_size for p in (item / f'ocdbt.process_{r}' / 'd').iterdir()) for r in range(2)]
    assert merged < 4096 and all(p > 700_000 for p in parts), (merged, parts)
    assert np.array_equal(np.load(j[1] / '1' / 'default' / 'params' / 'big.npy'), big)


@pytest.mark.parametrize('layout', ['database', 'directories'])
def test_parts_that_fit_no_grid_are_put_together(job, run, layout):
    j = job(3, 'commit_timeout=60', *LAYOUTS[layout])
    begin(j)
    for r, (start, stop) in enumerate([(0, 5), (5, 16), (16, 24)]):
        save_part(top(j, r), 'w', start, stop)
    assert set(j.rename(DRAFT, '1').values()) == {0}
    assert np.array_equal(np.load(j[0] / '1' / 'default' / 'params' / 'w.npy'), W)
    assert os.listdir(j.source) == ['1'] and not list(j.source.rglob('*pytreefs*'))
    run('verify', j.source)


@pytest.mark.parametrize('layout', ['database', 'directories'])
def test_readers_read_on_after_the_commit(job, layout):
    """Of a part, a replica and an array of one rank, whose files are renamed, put together or encoded anew meanwhile."""
    j = job(2, 'commit_timeout=60', *LAYOUTS[layout])
    fill(j)
    big = np.random.default_rng(2).integers(0, 2**31, (1024, 512)).astype(np.int32)
    for r in range(2):
        save_part(top(j, r), 'big', r * 512, r * 512 + 512, big)
        np.save(top(j, r) / f'own{r}.npy', big)
    names = [(r, name) for r in range(2) for name in sorted(os.listdir(top(j, r)))]
    want = {at: (top(j, at[0]) / at[1]).read_bytes() for at in names}
    files = {at: open(top(j, at[0]) / at[1], 'rb', buffering=0) for at in names}
    try:
        assert len(files) == 8
        assert set(j.rename(DRAFT, '1').values()) == {0}
        for at, f in files.items():
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            assert b''.join(iter(lambda f=f: f.read(1 << 20), b'')) == want[at], at
    finally:
        for f in files.values():
            f.close()
    assert np.array_equal(np.load(j[1] / '1/default/params/big.npy'), big)


@pytest.mark.parametrize('layout, cuts', pairs(['database', 'directories'], [(0, 8, 16, 24), (0, 5, 16, 24)]))
def test_a_tree_that_is_one_array(job, run, layout, cuts):
    j = job(3, 'commit_timeout=60', *LAYOUTS[layout])
    for r in range(3):
        (j[r] / DRAFT / 'default').mkdir(parents=True)
        np.save(j[r] / DRAFT / 'default' / f'%[{cuts[r]}:{cuts[r + 1]},0:10]@24x10.npy', W[cuts[r]:cuts[r + 1]])
    assert set(j.rename(DRAFT, '1').values()) == {0}
    assert np.array_equal(np.load(j[0] / '1' / 'default' / '%.npy'), W)
    run('verify', j.source)


def test_boxes_in_two_axes_tile(job):
    j = job(4, 'commit_timeout=60')
    begin(j)
    for r in range(4):
        y, x = 12 * (r // 2), 5 * (r % 2)
        np.save(top(j, r) / f'w[{y}:{y + 12},{x}:{x + 5}]@24x10.npy', W[y:y + 12, x:x + 5])
    assert set(j.rename(DRAFT, '1').values()) == {0}
    assert np.array_equal(np.load(j[3] / '1' / 'default' / 'params' / 'w.npy'), W)


def test_equal_boxes_are_replicas_and_the_lowest_rank_counts(job):
    j = job(3, 'commit_timeout=60')
    begin(j)
    for r in range(3):
        half = r // 2
        np.save(top(j, r) / box('w', 12 * half, 12 * half + 12), W[12 * half:12 * half + 12] + (r == 1))
        (j[r] / DRAFT / 'default' / 'n.json').write_text(str(r))
    assert set(j.rename(DRAFT, '1').values()) == {0}
    assert np.array_equal(np.load(j[0] / '1' / 'default' / 'params' / 'w.npy'), W)
    assert (j[0] / '1' / 'default' / 'n.json').read_text().strip() == '0'
    assert databases(j.source) == ['ocdbt.process_0', 'ocdbt.process_2'], 'a replica is in the step'


@pytest.mark.feature('A11', 'D5')
def test_replica_parallel_splits_the_work(job, run):
    j = job(2, 'commit_timeout=60', 'replica_parallel=on', 'replica_parallel_min_bytes=1000', 'leaf_type=jax.Array')
    begin(j)
    a = np.random.default_rng(2).random((1000, 64))
    for r in range(2):
        np.save(top(j, r) / 'a.npy', a)
        np.save(top(j, r) / 'small.npy', W[:2])
    assert set(j.rename(DRAFT, '1').values()) == {0}
    assert np.array_equal(np.load(j[0] / '1' / 'default' / 'params' / 'a.npy'), a)
    where = run('explain', j.source / '1' / 'default' / 'params' / 'a.npy').stdout
    assert 'ocdbt.process_0' in where and 'ocdbt.process_1' in where, where
    assert databases(j.source) == ['ocdbt.process_0', 'ocdbt.process_1']
    meta = (j.source / '1' / 'default' / '_METADATA').read_text()
    assert '"write_shape": [500, 64]' in meta or '"write_shape":[500,64]' in meta.replace(' ', ''), meta[:300]


def test_replicas_are_split_among_so_many_ranks_at_most(job):
    j = job(3, 'commit_timeout=60', 'replica_parallel=on', 'replica_parallel_max=2')
    begin(j)
    for r in range(3):
        np.save(top(j, r) / 'a.npy', W)
    assert set(j.rename(DRAFT, '1').values()) == {0}
    assert np.array_equal(np.load(j[2] / '1' / 'default' / 'params' / 'a.npy'), W)
    assert databases(j.source) == ['ocdbt.process_0', 'ocdbt.process_1']


REPLICA = np.random.default_rng(4).integers(0, 2**32, (2048, 1024), dtype=np.uint32)


def data_bytes(path):
    return sum(p.stat().st_size for p in path.rglob('*') if p.is_file())


@pytest.mark.feature('A11', 'D5')
@pytest.mark.parametrize('n, options', pairs([2, 4], [('compression=none',), ('ocdbt=off', 'zarr=3')]))
def test_each_replica_writes_its_slice_alone(job, run, n, options):
    j = job(n, 'commit_timeout=60', 'replica_parallel=on', *options)
    begin(j)
    for r in range(n):
        np.save(top(j, r) / 'a.npy', REPLICA)
        assert np.array_equal(np.load(top(j, r) / 'a.npy'), REPLICA), 'the draft does not read back what was written'
    draft, = [p for p in j.source.iterdir() if p.name.endswith('.pytreefs-draft')]

    def written(rank):
        stats = j.stats(rank)
        return stats['chunk_bytes_stored'] - stats['chunk_bytes_aside']
    for r in range(n):
        # The end of a file is encoded when the kernel lets go of it, which is some time after close(2).
        mounts.wait_for(lambda r=r: written(r) >= REPLICA.nbytes / n)
        assert written(r) < REPLICA.nbytes / n * 1.02, (r, written(r))
    assert data_bytes(draft) < REPLICA.nbytes * 1.02, 'a rank has written more than its slice'
    assert set(j.rename(DRAFT, '1').values()) == {0}
    assert np.array_equal(np.load(j[n - 1] / '1' / 'default' / 'params' / 'a.npy'), REPLICA)
    assert data_bytes(j.source) < REPLICA.nbytes * 1.02
    if options == ('compression=none',):
        for p in (j.source / '1' / 'default').glob('ocdbt.process_*'):
            assert data_bytes(p) < REPLICA.nbytes / n * 1.02
        assert len(databases(j.source)) == n
    run('verify', j.source)


@pytest.mark.feature('A11', 'D5')
def test_slices_of_replicas_go_to_databases_of_their_own(job, run):
    j = job(3, 'commit_timeout=60', 'replica_parallel=on', 'replica_parallel_separate=on', 'replica_parallel_min_bytes=1000',
            'replica_parallel_max=2')
    begin(j)
    for r in range(3):
        np.save(top(j, r) / 'a.npy', REPLICA)
        np.save(top(j, r) / 'small.npy', W[:2])
        save_part(top(j, r), 'w', *bounds(3, r))
    np.save(top(j, 2) / 'one.npy', REPLICA[:100])       # as if all had it, and only one has
    assert set(j.rename(DRAFT, '1').values()) == {0}
    params = j[1] / '1' / 'default' / 'params'
    for name, wanted in {'a': REPLICA, 'small': W[:2], 'w': W, 'one': REPLICA[:100]}.items():
        assert np.array_equal(np.load(params / f'{name}.npy'), wanted), name
    assert databases(j.source) == [f'ocdbt.process_{r}' for r in range(3)] + [f'ocdbt.process_replica_{r}' for r in range(3)]
    where = {name: run('explain', j.source / '1' / 'default' / 'params' / f'{name}.npy').stdout for name in ('a', 'w', 'one')}
    assert 'process_replica_0' in where['a'] and 'process_replica_1' in where['a'] and 'replica_2' not in where['a']
    assert 'process_replica_2' in where['one'] and 'replica' not in where['w']
    run('verify', j.source)
    # Unmerged databases are read, too.
    for p in (j.source / '1' / 'default').iterdir():
        if p.name == 'd':
            shutil.rmtree(p)
        elif p.name == 'manifest.ocdbt':
            p.unlink()
    run('merge', j.source / '1' / 'default')
    assert run('cat', j.source / '1' / 'default' / 'params' / 'a.bin', text=False).stdout == REPLICA.tobytes()


def test_separate_slices_need_a_database(job):
    j = job(2, 'commit_timeout=60', 'replica_parallel=on', 'replica_parallel_separate=on', 'ocdbt=off')
    begin(j)
    for r in range(2):
        np.save(top(j, r) / 'a.npy', REPLICA)
    assert set(j.rename(DRAFT, '1').values()) == {0}
    assert np.array_equal(np.load(j[0] / '1' / 'default' / 'params' / 'a.npy'), REPLICA)
    assert not databases(j.source)


def test_slices_of_chunks_that_are_streamed(job):
    j = job(2, 'commit_timeout=60', 'replica_parallel=on', 'chunk_byte_size=1G')
    begin(j)
    a = np.random.default_rng(6).integers(0, 50, (2, 1 << 19))
    for r in range(2):
        np.save(top(j, r) / 'a.npy', a)
        np.save(top(j, r) / 'b.npy', a) if r else None
        assert np.array_equal(np.load(top(j, r) / 'a.npy'), a)
    mounts.wait_for(lambda: all(j.stats(r)['chunk_bytes_aside'] for r in range(2)))
    assert set(j.rename(DRAFT, '1').values()) == {0}
    for name in 'ab':
        assert np.array_equal(np.load(j[0] / '1' / 'default' / 'params' / f'{name}.npy'), a), name


def test_replicas_that_do_not_come_alike_are_whole_nevertheless(job, run):
    j = job(3, 'commit_timeout=60', 'replica_parallel=on', 'compression=none')
    begin(j)
    a, b = REPLICA[:999], REPLICA[1:1000]
    for r in (0, 1):                            # not on the third
        np.save(top(j, r) / 'two.npy', a)
    np.save(top(j, 2) / 'one.npy', b)
    for r in range(3):                          # written again, by parts and backwards
        m = np.lib.format.open_memmap(top(j, r) / 'again.npy', 'w+', np.uint32, (999, 1024))
        m[500:], m[:500] = a[500:], a[:500]
        del m
    assert set(j.rename(DRAFT, '1').values()) == {0}
    got = {name: np.load(j[1] / '1' / 'default' / 'params' / f'{name}.npy') for name in ('two', 'one', 'again')}
    assert np.array_equal(got['two'], a) and np.array_equal(got['one'], b) and np.array_equal(got['again'], a)
    run('verify', j.source)


def test_a_second_attempt_gives_what_the_first_did_not(job):
    j = job(2, 'commit_timeout=60', 'replica_parallel=on')
    begin(j)
    for r in range(2):
        np.save(top(j, r) / 'a.npy', REPLICA)
    np.save(top(j, 0) / 'b.npy', REPLICA[:3])
    np.save(top(j, 1) / 'b.npy', REPLICA[:3].astype(np.float64))
    assert set(j.rename(DRAFT, '1').values()) == {errno.ECANCELED}
    for r in range(2):
        (top(j, r) / 'b.npy').unlink()
    (top(j, 1) / 'a.npy').unlink()              # all of it is rank 0's now
    assert set(j.rename(DRAFT, '1').values()) == {0}
    assert np.array_equal(np.load(j[1] / '1' / 'default' / 'params' / 'a.npy'), REPLICA)


# ---- what does not fit together ----

def write_hole(j):
    save_part(top(j, 0), 'w', 0, 12)
    save_part(top(j, 1), 'w', 14, 24)


def write_overlap(j):
    save_part(top(j, 0), 'w', 0, 14)
    save_part(top(j, 1), 'w', 12, 24)


def write_two_dtypes(j):
    save_part(top(j, 0), 'w', 0, 12)
    save_part(top(j, 1), 'w', 12, 24, W.astype(np.float64))


def write_whole_and_part(j):
    np.save(top(j, 0) / 'w.npy', W)
    save_part(top(j, 1), 'w', 12, 24)


def write_two_shapes(j):
    np.save(top(j, 0) / 'w.npy', W)
    np.save(top(j, 1) / 'w.npy', W[:5])


def write_two_kinds(j):
    np.save(top(j, 0) / 'w.npy', W)
    (top(j, 1) / 'w.txt').write_text('text')


def write_leaf_and_container(j):
    np.save(top(j, 0) / 'w.npy', W)
    (top(j, 1) / 'w').mkdir()


def write_part_of_another_shape(j):
    save_part(top(j, 0), 'w', 0, 12)
    np.save(top(j, 1) / 'w[12:25,0:10]@25x10.npy', np.zeros((13, 10), np.float32))


def write_two_namedtuples(j):
    for r, clazz in enumerate(('State', 'Pair')):
        (top(j, r) / 'w').mkdir()
        np.save(top(j, r) / 'w/nu.npy', W)
        os.setxattr(top(j, r) / 'w', 'user.pytree.namedtuple', json.dumps({'module': 'm', 'clazz': clazz, 'fields': ['nu']}).encode())


REFUSALS = {
    'hole': (write_hole, ['params.w', '220 of 240 elements', 'nobody has [12,0]']),
    'overlap': (write_overlap, ['params.w', '[0:14,0:10] of rank 0', '[12:24,0:10] of rank 1', 'overlap']),
    'two dtypes': (write_two_dtypes, ['params.w', 'float32 on rank 0', 'float64 on rank 1']),
    'whole and part': (write_whole_and_part, ['params.w', 'an array on rank 0', 'a part of an array on rank 1']),
    'two shapes': (write_two_shapes, ['params.w', 'shape on rank 0', 'rank 1']),
    'two kinds': (write_two_kinds, ['params.w', 'an array on rank 0', 'a text on rank 1']),
    'leaf and container': (write_leaf_and_container, ["'w'", 'a leaf on one rank', 'on rank 1']),
    'two namedtuples': (write_two_namedtuples, ["'w'", 'namedtuple m.State on rank 0 and m.Pair on rank 1']),
    'parts of two shapes': (write_part_of_another_shape, ['params.w', 'shape on rank 0', 'rank 1']),
}


def test_what_does_not_fit_together_is_refused_on_all_ranks_and_may_be_mended(job):
    j = job(2, 'commit_timeout=60')
    for i, (what, (write, words)) in enumerate(REFUSALS.items()):
        begin(j, draft=DRAFT)
        write(j)
        assert j.rename(DRAFT, '1') == {0: errno.ECANCELED, 1: errno.ECANCELED}, what
        for r in range(2):
            line = [t for t in (j[r] / '.pytreefs' / 'log').read_text().splitlines() if 'not committed' in t][-1]
            assert all(w in line for w in words), (what, line)
        assert steps(j.source) == []
        for r in range(2):
            shutil.rmtree(top(j, r) / 'w', ignore_errors=True)
            for p in top(j, r).iterdir():
                p.unlink()
            save_part(top(j, r), 'w', *bounds(2, r))
        assert j.rename(DRAFT, f'{i + 1}') == {0: 0, 1: 0}, what
        assert np.array_equal(np.load(j[0] / f'{i + 1}' / 'default' / 'params' / 'w.npy'), W), what
        (committed,) = steps(j.source)
        shutil.rmtree(j.source / committed)


def test_namedtuples_of_a_job(job, run):
    """Their types and the order of their fields, of which each rank has some, when one rank or all name the type."""
    j = job(2, 'commit_timeout=60')
    types = {name: {'module': 'm', 'clazz': name.capitalize(), 'fields': ['nu', 'count', 'mu']} for name in ('all', 'one', 'less')}
    begin(j)
    for name, ranks in (('all', (0, 1)), ('one', (1,)), ('less', (0, 1))):
        for r in range(2):
            (top(j, r) / name).mkdir()
            save_part(top(j, r) / name, 'mu', *bounds(2, r))
        np.save(top(j, 0) / name / 'nu.npy', W)
        if name != 'less':
            (top(j, 1) / name / 'count.json').write_text('5')
        for r in ranks:
            os.setxattr(top(j, r) / name, 'user.pytree.namedtuple', json.dumps(types[name]).encode())
    assert set(j.rename(DRAFT, '1').values()) == {0}
    params = j[1] / '1/default/params'
    for name in ('all', 'one'):
        assert os.getxattr(params / name, 'user.pytree.kind') == b'"namedtuple"', name
        assert json.loads(os.getxattr(params / name, 'user.pytree.namedtuple')) == types[name], name
        assert np.array_equal(np.load(params / name / 'mu.npy'), W), name
    assert os.getxattr(params / 'less', 'user.pytree.kind') == b'"dict"'
    log = (j[0] / '.pytreefs/log').read_text()
    assert "namedtuple 'params/less' of rank 0 becomes a dict: its names are not the fields" in log
    run('verify', j.source)


def test_a_fault_of_one_rank_is_the_result_of_all(job):
    j = job(3, 'commit_timeout=60')
    fill(j)
    (top(j, 1) / 'broken.npy').write_bytes(b'no array')
    assert set(j.rename(DRAFT, '1').values()) == {errno.ECANCELED}
    for r in range(3):
        assert 'broken' in (j[r] / '.pytreefs' / 'log').read_text(), r
    (top(j, 1) / 'broken.npy').unlink()
    (j.source / '1').mkdir()
    assert set(j.rename(DRAFT, '1').values()) == {errno.EEXIST}
    (j.source / '1').rmdir()
    assert set(j.rename(DRAFT, '1').values()) == {0}
    check(j, 2)


def test_different_targets_are_refused(job):
    j = job(2, 'commit_timeout=60')
    fill(j)

    def one(rank):
        os.rename(j[rank] / DRAFT, j[rank] / str(rank + 1))
    assert {e.errno for e in j.each(one).values()} == {errno.ECANCELED}
    assert steps(j.source) == []
    assert set(j.rename(DRAFT, '2').values()) == {0}
    check(j, step='2')
