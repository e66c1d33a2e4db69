# SPDX-License-Identifier: Apache-2.0
"""A daemon that ends, whatever it does at that moment: callers have an answer, and nothing of it stays."""

import contextlib
import itertools
import os
import pathlib
import shutil
import signal
import time

import pytest

from lib import ending, jobs, mounts, preload
from lib.pairs import LONG, pairs

SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data' / 'sample' / '1000'


@pytest.mark.parametrize('kind,state', [*itertools.product(ending.KINDS[:1], ending.STATES), *pairs(ending.KINDS[1:], ending.STATES)])
def test_term_and_then_kill(program, tmp_path, kind, state):
    """A few of the moments that tests/soak/ends tries."""
    if kind != 'alone' and (why := jobs.missing(program)):
        pytest.skip(why)
    e = ending.Ender(program, tmp_path, SAMPLE, f'{kind} {state}', seconds=60)
    for _ in range(1 if kind != 'alone' else 4 if LONG else 1):
        e.round(kind, state)


@pytest.mark.parametrize('dead', [0, 1])
def test_a_job_ends_without_its_dead_rank(job, dead):
    """Not after the time that a rank has which does not answer: this one's process is known to have ended."""
    j = job(2)
    j.kill(dead)
    jobs.force_unmount(j[dead])
    assert not j.unmount(1 - dead)
    mounts.wait_for(lambda: mounts.has_ended(j.pids[1 - dead]))
    if dead:                                    # mpirun hands it on, in its own time
        mounts.wait_for(lambda: 'rank 1 has ended: the job ends without it' in j.text())
    assert 'does not answer' not in j.text()


@pytest.mark.parametrize('dead', [0, 1])
def test_a_job_ends_when_a_rank_dies_in_its_last_call(job, tmp_path_factory, dead):
    """MPI_Finalize waits for all ranks, and this one has said before it died that it is done."""
    j = job(2, more={'LD_PRELOAD': str(preload.make(tmp_path_factory, 'dying')), 'DYING_RANK': str(dead)})
    j.expect = None
    for rank in range(2):
        os.kill(j.pids[rank], signal.SIGTERM)
    for rank in (dead, 1 - dead):
        mounts.wait_for(lambda rank=rank: mounts.has_ended(j.pids[rank]))
    assert not any(j.mounted(rank) for rank in range(2))
    mounts.wait_for(lambda: f'rank {dead} has ended: this rank ends without MPI_Finalize' in j.text())


@pytest.mark.parametrize('changes', [False, True])
def test_killed_in_a_commit_after_a_term(mount, tmp_path, changes):
    """While a rename holds the root's lock and its workers have ended, no thread may ask anything of the mount."""
    source = tmp_path / 'source'
    shutil.copytree(SAMPLE, source / '5')
    m = mount(source, 'io=fault(rename:delay=1500:always):sync', allow_errors=True)
    assert (m / '5/state').is_dir()
    callers, pid = ending.Callers(), m.pid
    try:
        (m / '1.tmp/default').mkdir(parents=True)
        (m / '1.tmp/default/n.json').write_text('1')
        callers.begin(m.path, 'rename')
        time.sleep(0.3)
        if changes:
            shutil.rmtree(source / '5')
            time.sleep(0.3)
        os.kill(pid, signal.SIGTERM)
        time.sleep(0.3)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        ending.ended([pid], 60)
        callers.answered(60)
        ending.let_go(m.path)
    finally:
        ending.rescue([pid], [m.path])
        callers.kill()
