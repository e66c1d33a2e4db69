# SPDX-License-Identifier: Apache-2.0
"""Options of MPI jobs: what differs with each of them, told by who reads, who stores, and what is held."""

import errno
import hashlib
import json
import os
import subprocess

import numpy as np
import pytest

from lib import mounts
from lib.collective import DRAFT, W, begin, fill, top

MIB = 1 << 20
LEAVES = {f'leaf{i}': np.random.default_rng(i).standard_normal((64, 128)).astype(np.float32) for i in range(16)}


def written(j, leaves, ranks=None):
    """The step that all ranks write alike."""
    ranks = range(j.n) if ranks is None else ranks
    begin(j, ranks)
    for r in ranks:
        for name, a in leaves.items():
            np.save(top(j, r) / f'{name}.npy', a)
    assert set(j.rename(DRAFT, '1', ranks).values()) == {0}


@pytest.fixture(scope='module')
def source(program, tmp_path_factory):
    """Many chunks, so that each rank that reads gets some."""
    top = tmp_path_factory.mktemp('source')
    (top / 'npy').mkdir()
    for name, a in LEAVES.items():
        np.save(top / f'npy/{name}.npy', a)
    subprocess.run([program, 'save', '-o', 'chunk_byte_size=4K', top / 'npy', top / 'root/1'], check=True)
    return top / 'root'


@pytest.mark.option('load_and_broadcast', 'mesh', 'replica_axis_index', 'primary_replica_id')
@pytest.mark.feature('A12', 'D7')
@pytest.mark.parametrize('options,readers', [
    ([], {0, 1, 2, 3}),                         # each reads for itself
    (['load_and_broadcast'], {0}),
    (['load_and_broadcast', 'primary_replica_id=3'], {3}),
    (['load_and_broadcast', 'mesh=2x2'], {0, 1}),
    (['load_and_broadcast', 'mesh=2x2', 'primary_replica_id=1'], {2, 3}),
    (['load_and_broadcast', 'mesh=2x2', 'replica_axis_index=1'], {0, 2}),
    (['load_and_broadcast', 'mesh=2x2', 'replica_axis_index=1', 'primary_replica_id=1'], {1, 3}),
])
def test_who_reads(job, source, options, readers):
    j = job(4, *options, source=source)

    def look(rank):
        return all(np.array_equal(np.load(j[rank] / f'1/default/{name}.npy'), a) for name, a in LEAVES.items())
    assert j.each(look) == dict.fromkeys(range(4), True)
    assert {r for r in range(4) if j.stats(r)['chunks_decoded']} == readers
    got = {r for r in range(4) if j.stats(r)['broadcast_received_pieces']}
    assert got == (set(range(4)) if len(readers) == 2 else set(range(4)) - readers)


@pytest.mark.option('broadcast_memory_limit', 'broadcast_memory_scaling')
@pytest.mark.feature('A12', 'D7')
@pytest.mark.parametrize('options,held', [
    ([], 192 * MIB), (['broadcast_memory_limit=64M'], 48 * MIB), (['broadcast_memory_scaling=0.5'], 128 * MIB),
    (['broadcast_memory_limit=64M', 'broadcast_memory_scaling=0.25'], 16 * MIB)])
def test_how_much_of_others_a_rank_holds(job, source, options, held):
    j = job(2, 'load_and_broadcast', *options, source=source)
    assert {j.stats(r)['cache_limit_bytes'] for r in range(2)} == {held * 3 // 4}        # the rest is for reads under way


@pytest.mark.option('replica_parallel', 'replica_parallel_min_bytes', 'replica_parallel_max')
@pytest.mark.feature('A11', 'D5')
@pytest.mark.parametrize('options,writers', [
    ([], [0]), (['replica_parallel=on'], [0, 1, 2]), (['replica_parallel=on', 'replica_parallel_max=2'], [0, 1]),
    (['replica_parallel=on', f'replica_parallel_min_bytes={W.nbytes // 3}'], [0, 1, 2]),
    (['replica_parallel=on', f'replica_parallel_min_bytes={W.nbytes // 3 + 1}'], [0]),
])
def test_who_stores_what_all_have(job, options, writers):
    j = job(3, 'commit_timeout=60', *options)
    written(j, {'a': W})
    item = j.source / '1/default'
    assert sorted(p.name for p in item.glob('ocdbt.process_*')) == [f'ocdbt.process_{r}' for r in writers]
    for r in range(3):
        assert np.array_equal(np.load(j[r] / '1/default/params/a.npy'), W)


@pytest.mark.option('replica_parallel_separate')
@pytest.mark.feature('A11', 'D5')
@pytest.mark.parametrize('options,kind', [([], ''), (['replica_parallel_separate=on'], 'replica_')])
def test_where_slices_of_replicas_are(job, options, kind):
    j = job(2, 'commit_timeout=60', 'replica_parallel=on', *options)
    written(j, {'a': W})
    item = j.source / '1/default'
    slices = {f'ocdbt.process_{kind}{r}' for r in range(2)}
    assert slices <= {p.name for p in item.glob('ocdbt.process_*')}
    assert bool(list(item.glob('ocdbt.process_replica_*'))) == bool(kind)
    assert np.array_equal(np.load(j[1] / '1/default/params/a.npy'), W)


@pytest.mark.option('active', 'primary')
@pytest.mark.feature('B5', 'D2')
@pytest.mark.parametrize('options,active,primary', [([], [0, 1, 2], 0), (['primary=2'], [0, 1, 2], 2),
                                                    (['active=1-2', 'primary=1'], [1, 2], 1)])
def test_who_writes_and_who_commits(job, tmp_path, options, active, primary):
    leader = tmp_path / 'leader'
    j = job(3, 'commit_timeout=60', f'on_commit=echo $OMPI_COMM_WORLD_RANK >>{leader};:', *options)
    for r in set(range(3)) - set(active):
        with pytest.raises(OSError) as e:
            (j[r] / DRAFT).mkdir()
        assert e.value.errno == errno.EROFS
    written(j, {'a': W}, active)
    mounts.wait_for(leader.exists)
    mounts.wait_for(lambda: leader.read_text() == f'{primary}\n')


@pytest.mark.option('job')
@pytest.mark.feature('D2')
def test_the_name_of_a_job_is_in_its_messages(job, source):
    for options, said in (([], False), (['job=training'], True)):
        j = job(2, *options, source=source)
        for r in range(2):
            assert (f"rank {r} of 2 of job 'training'" in (j[r] / '.pytreefs/log').read_text()) == said
            assert json.loads((j[r] / '.pytreefs/config').read_text())['options']['job']['value'] == 'training' * said


@pytest.mark.parametrize('options', [(), ('ocdbt=off',), ('replica_parallel=on',), ('zarr=3', 'crc32c=on')], ids=','.join)
def test_digests_of_what_all_ranks_wrote(job, run, options):
    """manifest=on: parts of one array, replicas, and leaves that one rank has are all in the file, and verify compares them."""
    j = job(3, 'manifest=on', 'commit_timeout=60', *options)
    fill(j)
    assert set(j.rename(DRAFT, '1').values()) == {0}
    lines = (j.source / '1/default/.sha256sums').read_text().splitlines()
    found = {name: digest for digest, name in (line.split('  ', 1) for line in lines)}
    values = {'params/w.bin': W.tobytes(), 'params/rep.bin': (W * 2).tobytes(), 'name.bin': b'a text',
              **{f'own{r}.bin': np.int64(r).tobytes() for r in range(3)}}
    assert found == {name: hashlib.sha256(value).hexdigest() for name, value in values.items()}
    for r in range(3):
        for name, value in values.items():
            assert (j[r] / '1/default' / name).read_bytes() == value
    doc = json.loads(run('verify', '--json', j.source / '1').stdout)
    assert doc['errors'] == 0 and doc['sha256']['leaves'] == len(values), doc
    # A digest that is not that of the value.
    sums = j.source / '1/default/.sha256sums'
    sums.write_text(sums.read_text().replace(found['params/w.bin'], found['params/rep.bin']))
    assert 'params/w' in run('verify', j.source / '1', ok=False).stdout
