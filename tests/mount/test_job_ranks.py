# SPDX-License-Identifier: Apache-2.0
"""Ranks of an MPI job that come late, stop, die, leave or have no part, and what a job is."""

import contextlib
import errno
import os
import pathlib
import shutil
import signal
import subprocess
import threading

import numpy as np
import pytest

from lib import jobs, mounts
from lib.collective import DRAFT, HOUR, W, box, check, commit, databases, expire, fill, killed_at, outcome, steps, top
from lib.pairs import pairs


@pytest.fixture
def patient(job, clock):
    """patient(n): a job whose ranks wait for each other for an hour of `clock`."""
    return lambda n: job(n, f'commit_timeout={HOUR}', 'trace=step', more=clock.environment)


def test_a_missing_rank_is_waited_for_and_a_late_one_is_notified(patient, clock):
    j = patient(3)
    fill(j)
    assert expire(j, clock, [0, 1]) == {0: errno.ETIMEDOUT, 1: errno.ETIMEDOUT}
    assert steps(j.source) == []
    assert j.rename(DRAFT, '1', ranks=[2]) == {2: errno.ETIMEDOUT}
    assert 'rank 2 did not respond' in (j[0] / '.pytreefs' / 'log').read_text()
    commit(j)
    check(j)


def test_a_primary_that_does_not_come_is_given_up(patient, clock):
    j = patient(3)
    fill(j)
    assert expire(j, clock, [1, 2]) == {1: errno.ETIMEDOUT, 2: errno.ETIMEDOUT}
    assert j.rename(DRAFT, '1', ranks=[0]) == {0: errno.ETIMEDOUT}
    assert steps(j.source) == []
    commit(j)
    check(j)
    assert os.listdir(j.source) == ['1']


@pytest.mark.parametrize('n, alone', [(2, [[0]]), (2, [[1]]), (3, [[0, 2], [1], [0]]), (3, [[1], [1], [2], [0]])])
def test_ranks_that_call_together_commit_by_the_second_try(patient, clock, n, alone):
    """Ranks may have called without the others before, any number of times."""
    j = patient(n)
    fill(j)
    for ranks in alone:
        assert set(expire(j, clock, ranks).values()) == {errno.ETIMEDOUT}

    def meanwhile(results):
        if results:                             # one that was notified: the others wait for it
            clock.advance(HOUR)
    if set(j.rename(DRAFT, '1', meanwhile=meanwhile).values()) == {errno.ETIMEDOUT}:
        commit(j)
    check(j)
    assert steps(j.source) == ['1'] == sorted(os.listdir(j.source))


@pytest.mark.parametrize('victim', [0, 1])
def test_a_rank_that_stops_answering_holds_up_nobody_for_longer_than_the_timeout(patient, clock, victim):
    j = patient(3)
    fill(j)
    others = [r for r in range(3) if r != victim]
    mounts.stop(j.pids[victim])
    assert expire(j, clock, others) == dict.fromkeys(others, errno.ETIMEDOUT)
    assert steps(j.source) == []
    j.signal(victim, signal.SIGCONT)
    assert j.rename(DRAFT, '1', ranks=[victim]) == {victim: errno.ETIMEDOUT}
    assert steps(j.source) == []
    commit(j)
    check(j)


@pytest.mark.parametrize('how, victim', pairs(['signal', 'force'], [0, 1]))
def test_a_rank_that_is_ended_while_it_waits_for_others_gives_up_at_once(job, victim, how):
    """The timeout is far longer than a test may take. The third rank has not come."""
    j = job(3, 'commit_timeout=3600', 'trace=step')
    fill(j)
    before = (j.source / '.1.pytreefs-draft').stat().st_ino
    result = {}

    def one(rank):
        try:
            os.rename(j[rank] / DRAFT, j[rank] / '1')
            result[rank] = 0
        except OSError as e:
            result[rank] = e.errno
    ranks = [threading.Thread(target=one, args=(r,), daemon=True) for r in (0, 1, 2)]
    for r in (0, 1):
        ranks[r].start()
        # Not by a look into the mount, whose root is locked while it renames.
        mounts.wait_for(lambda: j.text().count("'1.tmp' is to become '1'") > r)
    assert not result
    if how == 'signal':
        j.signal(victim, signal.SIGTERM)
    else:
        jobs.force_unmount(j[victim])
    ranks[victim].join(60)
    assert result.get(victim) == errno.ECANCELED if how == 'signal' else result[victim] in (errno.ECONNABORTED, errno.ENOTCONN)
    mounts.wait_for(lambda: not j.mounted(victim))
    if victim == 1:                             # the primary still waits for the third
        assert 0 not in result
        ranks[2].start()
        ranks[2].join(60)
        assert result.get(2) == errno.ECANCELED
    ranks[0].join(60)
    ranks[1].join(60)
    assert result[1 - victim] == errno.ECANCELED
    assert steps(j.source) == []
    draft, = j.source.iterdir()
    assert draft.stat().st_ino == before, 'the draft is another one'
    assert np.array_equal(np.load(top(j, 2) / 'rep.npy'), W * 2)
    line, = [t for t in (j[2] / '.pytreefs' / 'log').read_text().splitlines() if 'not committed' in t] if victim else ['']
    assert not victim or 'the mount of rank 1 is being ended' in line


@pytest.mark.parametrize('victim, delay', pairs([1, 0], [0.0, 0.01, 0.02]))
def test_a_rank_that_is_killed_while_they_commit(job, victim, delay):
    j = job(3, 'commit_timeout=2')
    fill(j)
    outcome(j, victim, killed_at(j, victim, delay))


def test_a_primary_that_dies_after_its_rename_has_committed(patient, clock):
    j = patient(3)
    fill(j)

    def one(rank):
        if rank != 'killer':
            os.rename(j[rank] / DRAFT, j[rank] / '1')
            return 0
        # The moment that the step is there: the others have not been told, or just so.
        while not (j.source / '1').exists():
            pass
        j.kill(0)
        return 0
    out = j.each(one, [0, 1, 2, 'killer'], meanwhile=lambda out: 'killer' in out and clock.advance(HOUR))
    assert out[1] == out[2] == 0, out
    check(j, 1)


def test_the_draft_of_a_dead_primary_is_not_a_step_and_is_begun_afresh(patient, clock, mount):
    j = patient(2)
    fill(j)
    j.kill(0)
    assert expire(j, clock, [1]) == {1: errno.ETIMEDOUT}
    j.end()
    m = mount(j.source)
    assert list(m.path.iterdir()) == []
    (m / DRAFT).mkdir()
    (m / DRAFT / 'default').mkdir()
    np.save(m / DRAFT / 'default' / 'a.npy', W)
    os.rename(m / DRAFT, m / '1')
    assert np.array_equal(np.load(m / '1' / 'default' / 'a.npy'), W)


# ---- drafts, ranks and jobs ----

def test_a_draft_is_shared_within_the_job_and_busy_for_others(job, mount):
    j = job(2)
    fill(j)
    m = mount(j.source, allow_errors=True)
    with pytest.raises(OSError) as e:
        (m / DRAFT).mkdir()
    assert e.value.errno == errno.EBUSY
    assert sorted(p.name for p in top(j, 0).iterdir()) == sorted(['rep.npy', box('w', 0, 12)]), 'a rank lists its own'
    assert np.array_equal(np.load(top(j, 1) / box('w', 12, 24)), W[12:])
    shutil.rmtree(j[0] / DRAFT)
    assert [p for p in j.source.iterdir()], 'one rank has taken away what the other has'
    assert np.array_equal(np.load(top(j, 1) / 'rep.npy'), W * 2)
    shutil.rmtree(j[1] / DRAFT)
    mounts.wait_for(lambda: os.listdir(j.source) == [])


def test_a_rank_without_leaves_comes_too(job):
    j = job(3, 'commit_timeout=60')
    fill(j, ranks=[0, 1])
    (j[2] / DRAFT).mkdir()
    assert set(j.rename(DRAFT, '1').values()) == {0}
    check(j, 2, ranks=[0, 1])
    assert databases(j.source) == ['ocdbt.process_0', 'ocdbt.process_1']


@pytest.mark.feature('B5', 'D2')
def test_active_ranks_write_and_the_others_read(job, tmp_path):
    leader = tmp_path / 'leader'
    j = job(4, 'commit_timeout=60', 'active=1-2', 'primary=2', 'job=training',
            f'on_commit=echo $OMPI_COMM_WORLD_RANK >> {leader};:')
    with pytest.raises(OSError) as e:
        (j[0] / DRAFT).mkdir()
    assert e.value.errno == errno.EROFS
    fill(j, ranks=[1, 2])
    assert j.rename(DRAFT, '1', ranks=[1, 2]) == {1: 0, 2: 0}
    check(j, 0, ranks=[1, 2])
    check(j, 3, ranks=[1, 2])
    assert databases(j.source) == ['ocdbt.process_1', 'ocdbt.process_2']
    mounts.wait_for(lambda: leader.exists() and leader.read_text())
    assert leader.read_text() == '2\n', 'the primary, and it alone, runs the command after the commit'
    assert all(f"rank {r} of 4 of job 'training'" in (j[r] / '.pytreefs' / 'log').read_text() for r in range(4))


@pytest.mark.parametrize('options, why', [(['active=0-5'], 'the job has ranks 0 to 1'), (['primary=7'], 'not an active rank'),
                                          (['active=x'], "option 'active' does not accept 'x'"),
                                          (['atomicity=commit_file'], 'share drafts by renaming')])
def test_options_that_no_job_can_have_fail_all_ranks(job, options, why):
    with pytest.raises(mounts.MountError) as e:
        job(2, *options)
    assert e.value.text.count(why) == 2, 'each rank says why'


def test_a_rank_that_cannot_mount_fails_the_whole_job(program, tmp_path, job):
    job(1)                                      # whether jobs can be had at all
    (tmp_path / 'r0').mkdir()
    # With --enable-recovery mpirun ends with status 0 whatever becomes of the ranks.
    r = subprocess.run(['mpirun', '-n', '2', program, 'mount', '--mpi', str(tmp_path / 'source'), str(tmp_path / 'r%r')],
                       env=jobs.environment(), capture_output=True, text=True, timeout=240)
    assert r.returncode == 1
    assert "cannot mount on" in r.stderr and 'rank 1' in r.stderr, r.stderr
    assert not os.path.ismount(tmp_path / 'r0')


def test_a_program_without_mpi_says_so(program, tmp_path):
    alone = tmp_path / 'pytreefs'
    shutil.copy(program, alone)
    r = subprocess.run([alone, 'mount', '--mpi', tmp_path, tmp_path], capture_output=True, text=True, timeout=240)
    assert r.returncode == 1 and 'built without MPI' in r.stderr


def test_a_mount_without_mpi_has_no_mpi_in_it(mount, tmp_path):
    (tmp_path / 'source').mkdir()
    m = mount(tmp_path / 'source', 'shape=root')
    maps = pathlib.Path(f'/proc/{m.pid}/maps').read_text()
    assert 'libmpi' not in maps


def test_every_thread_of_an_idle_job_sleeps(job):
    """A thread that spins is never found asleep, one that waits nearly always, however busy the machine is."""
    j = job(2)
    for rank in range(2):
        mounts.wait_for(lambda: j.is_asleep(rank))


def test_ranks_may_unmount_at_different_times(job):
    j = job(3, 'commit_timeout=60')
    fill(j)
    assert set(j.rename(DRAFT, '1').values()) == {0}
    assert not j.unmount(1)
    check(j, 0)
    with contextlib.suppress(OSError):
        assert not j.unmount(0)
    check(j, 2)
