# SPDX-License-Identifier: Apache-2.0
"""Daemons that get SIGTERM and then SIGKILL at random moments, with callers at work, alone and as ranks of a job."""

import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

from lib import jobs, collective, mounts

STATES = ('idle', 'reading', 'writing', 'committing')
KINDS = ('alone', 'recovery', 'no recovery')

# A caller is a process: one that hangs must not take the test along. It says when it is at work, and ends when
# the mount answers with an error, whose number it says.
CALLER = r'''
import os, sys
sys.path.insert(0, sys.argv[3])
import numpy as np
from lib import collective
mnt, what = sys.argv[1], sys.argv[2]

def read(n):
    for top, dirs, files in os.walk(mnt, onerror=fail):
        dirs[:] = [d for d in dirs if d != '77']
        for name in files:
            with open(os.path.join(top, name), 'rb') as f:
                f.read()

def fail(e):
    raise e

def write(n):
    os.makedirs(f'{mnt}/{n}.tmp/default')
    np.save(f'{mnt}/{n}.tmp/default/a.npy', A)
    os.rename(f'{mnt}/{n}.tmp/default/a.npy', f'{mnt}/{n}.tmp/default/b.npy')

def commit(n):
    os.makedirs(f'{mnt}/{n}.tmp/default')
    np.save(f'{mnt}/{n}.tmp/default/a.npy', A[:64])
    os.rename(f'{mnt}/{n}.tmp', f'{mnt}/{n}')

def rename(n):
    os.rename(f'{mnt}/{collective.DRAFT}', f'{mnt}/1')
    raise OSError(0, 'committed')

A = np.random.default_rng(1).random((2048, 512))
call = {'reading': read, 'writing': write, 'committing': commit, 'rename': rename}[what]
n, device = 1000, os.stat(mnt).st_dev
try:
    if what != 'rename':
        call(n)
    print('at work', flush=True)
    while os.stat(mnt).st_dev == device:
        n += 1
        call(n)
    print('unmounted', flush=True)
except OSError as e:
    print('ended with', e.errno, flush=True)
'''


class Fault(AssertionError):
    """Something that should not be left after a daemon's end."""


class Callers:
    """Processes that use mounts: begin() each, then end() when their daemons are dead."""

    def __init__(self):
        self.all = []

    def begin(self, mnt, what):
        tests = pathlib.Path(__file__).resolve().parent.parent
        p = subprocess.Popen([sys.executable, '-c', CALLER, str(mnt), what, str(tests)], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, text=True)
        self.all.append(p)
        line = p.stdout.readline().strip()
        assert line == 'at work', f'{what} did not begin: {line}'

    def answered(self, seconds):
        """All of them have an answer within so many seconds."""
        end = time.monotonic() + seconds
        for p in self.all:
            try:
                p.wait(max(0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise Fault(f'a caller ({" ".join(p.args[3:5])}) has no answer after {seconds} s: '
                            f'{waits(p.pid)}') from None

    def kill(self):
        for p in self.all:
            p.kill()
            p.wait(120)
            p.stdout.close()
        self.all = []


def waits(pid):
    """Where the threads of a process wait."""
    out = []
    for task in pathlib.Path(f'/proc/{pid}/task').glob('*'):
        try:
            state = (task / 'stat').read_text().rpartition(')')[2].split()[0]
            out.append(f'{(task / "comm").read_text().strip()} {state}: '
                       f'{" < ".join((task / "stack").read_text().split()[1::2])}')
        except OSError:
            pass
    return '; '.join(out)


def ended(pids, seconds):
    """Each of the processes is gone, with all its threads."""
    end = time.monotonic() + seconds
    for pid in pids:
        while not mounts.has_ended(pid):
            if time.monotonic() > end:
                raise Fault(f'process {pid} is there {seconds} s after its end was asked for: {waits(pid)}')
            time.sleep(0.002)


def is_mounted(path):
    with open('/proc/self/mountinfo') as f:
        return any(mounts.unescape(line.split()[4]) == str(path) for line in f)


def let_go(path):
    """A dead mount says ENOTCONN at once, and can be unmounted; what a TERM ended is unmounted already."""
    if not is_mounted(path):
        return
    # A request that is under way when the connection ends is ECONNABORTED.
    for _ in range(2):
        r = subprocess.run(['ls', str(path)], capture_output=True, text=True, timeout=120,
                           env={**os.environ, 'LC_ALL': 'C'})
        if 'connection abort' not in r.stderr:
            break
    # The broker of a mount that got both signals may unmount it meanwhile.
    if 'endpoint is not connected' not in r.stderr and is_mounted(path):
        raise Fault(f'the dead mount says {r.stdout}{r.stderr}')
    r = subprocess.run(['fusermount3', '-u', str(path)], capture_output=True, text=True, timeout=120)
    if is_mounted(path):
        raise Fault(f'the dead mount stays: {r.stderr}')


class Churn:
    """Somebody who commits and deletes steps in the source meanwhile, so that there are names to forget."""

    def __init__(self, source, step):
        script = """if True:
            import os, shutil, sys
            source, step = sys.argv[1:]
            while True:
                shutil.copytree(step, f'{source}/77.tmp')
                os.rename(f'{source}/77.tmp', f'{source}/77')
                shutil.rmtree(f'{source}/77')
            """
        self.process = subprocess.Popen([sys.executable, '-c', script, str(source), str(step)],
                                        stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def end(self):
        self.process.kill()
        self.process.wait()


class Ender:
    """round() after round(), each in a place of its own below top. seconds: what callers and daemons may take."""

    def __init__(self, program, top, step, seed, seconds=1.0):
        self.program, self.top, self.step = program, pathlib.Path(top), pathlib.Path(step)
        self.rng, self.seconds, self.n = random.Random(seed), seconds, 0
        self.by_term = self.by_kill = 0

    def _term_then_kill(self, pid):
        time.sleep(self.rng.random() * 0.05)
        os.kill(pid, signal.SIGTERM)
        time.sleep(self.rng.random() ** 2 * 0.03)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def round(self, kind, state):
        self.n += 1
        top = self.top / str(self.n)
        source = top / 'source'
        source.mkdir(parents=True)
        shutil.copytree(self.step, source / '1' if kind == 'alone' else source / '2')
        churn, callers = Churn(source, self.step), Callers()
        try:
            if kind == 'alone':
                self._alone(top, source, state, callers)
            else:
                self._job(top, source, state, callers, kind == 'recovery')
        finally:
            churn.end()
            callers.kill()
        shutil.rmtree(top)

    def _alone(self, top, source, state, callers):
        m = mounts.Mount(self.program, source, top / 'mnt', top / 'log')
        try:
            pid = m.pid
            if state != 'idle':
                callers.begin(m.path, state)
            self._term_then_kill(pid)
            ended([pid], self.seconds)
            callers.answered(self.seconds)
            self.by_kill += is_mounted(m.path)
            self.by_term += not is_mounted(m.path)
            let_go(m.path)
        finally:
            rescue([m.pid], [m.path])

    def _job(self, top, source, state, callers, recovery):
        """One rank ends; without recovery mpirun ends the others, in its own time."""
        j = jobs.Job(self.program, source, top / 'job', 2, ('commit_timeout=2',), recovery=recovery)
        try:
            j.expect = None
            pids, victim = dict(j.pids), self.rng.randrange(2)
            if state == 'committing':
                collective.fill(j)
            for r in range(2):
                if state == 'reading' or (state == 'writing' and r == victim):
                    callers.begin(j[r], state)
                elif state == 'committing':
                    callers.begin(j[r], 'rename')
            self._term_then_kill(pids[victim])
            ended([pids[victim]], self.seconds)
            if recovery:
                os.kill(pids[1 - victim], signal.SIGTERM)
            else:
                j.process.wait(120)
            # A commit with a rank that is gone ends after commit_timeout.
            ended(pids.values(), self.seconds if not recovery else self.seconds + 4)
            callers.answered(self.seconds)
            self.by_kill += is_mounted(j[victim])
            self.by_term += not is_mounted(j[victim])
            for r in range(2):
                let_go(j[r])
        finally:
            j.end()
            rescue(j.pids.values(), [j[r] for r in range(2)])


def rescue(pids, paths):
    """Nothing stays, whatever was found."""
    for pid in pids:
        if pid and not mounts.has_ended(pid):
            os.kill(pid, signal.SIGKILL)
    for path in paths:
        if is_mounted(path):
            jobs.force_unmount(path)
