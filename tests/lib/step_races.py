# SPDX-License-Identifier: Apache-2.0
"""Writers of one SOURCE that begin the same step at once: mounts of it, and processes that save to it.

Each round is one step. Of its writers one is told that the step is committed, and all others get an error; afterwards the step has the
values of that one, also when the others have given up their drafts, and a `gc` has run beside them.
"""

import contextlib
import errno
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import threading

import numpy as np

from lib import mounts, package

KINDS = {'2 mounts': (2, 0), '4 mounts': (4, 0), '2 saves': (0, 2), '4 saves': (0, 4), 'a mount and a save': (1, 1), '2 mounts and 2 saves': (2, 2)}
# The errors of writers that do not get the step: another one holds it, or has committed it.
LOST = {errno.EBUSY, errno.EEXIST}
# A process that saves or loads once for each line.
WORKER = '''
import json, sys
import numpy, pytreefs
for line in sys.stdin:
    what, path, value, options = json.loads(line)
    try:
        if what == 'save':
            pytreefs.save(path, {'state': {'w': numpy.full(40, value)}}, items=True, **options)
            answer = 0
        else:
            w = pytreefs.load(path, **options)['state']['w']
            answer = float(w[0]) if w.shape == (40,) and (w == w[0]).all() else 'torn'
    except pytreefs.Error as e:
        answer = [e.errno, str(e)]
    print(json.dumps(answer), flush=True)
'''


class Worker:
    def __init__(self, program, source, options, spill):
        self.source, self.options = source, options
        self.process = subprocess.Popen([sys.executable, '-c', WORKER], env={**package.environment(program), 'TMPDIR': str(spill)},
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, what, step, value=0.):
        print(json.dumps([what, f'{self.source}/{step}', value, self.options]), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def write(self, step, value):
        answer = self.ask('save', step, value)
        return answer if answer == 0 else answer[0]

    def end(self):
        self.process.stdin.close()
        self.process.wait(120)
        self.process.stdout.close()


class Mount:
    def __init__(self, program, source, options, spill, name):
        with_spill = [f'spill={spill}', 'poll=200'] if '://' in str(source) else []
        self.mount = mounts.Mount(program, source, spill / f'mnt-{name}', spill / f'log-{name}', ('shape=root', *options, *with_spill))

    def write(self, step, value):
        draft = self.mount / f'{step}.tmp'
        try:
            os.mkdir(draft)
            os.makedirs(draft / 'state', exist_ok=True)
            np.save(draft / 'state/w.npy', np.full(40, value))
            os.rename(draft, self.mount / str(step))
        except OSError as e:
            # As programs do that clean up after an error.
            shutil.rmtree(draft, ignore_errors=True)
            return e.errno
        return 0

    def end(self):
        why = self.mount.unmount()
        assert not why, why
        assert not self.mount.faults(True), self.mount.faults(True)


class Race:
    """options: of mounts and saves, as text: 'atomicity=commit_file'."""

    def __init__(self, program, source, tmp, kind, options=(), seed=0):
        self.program, self.source, self.random = program, source, random.Random(seed)
        n_mounts, n_saves = KINDS[kind]
        words = dict(o.split('=') for o in options)
        self.writers = [Mount(program, source, options, tmp, i) for i in range(n_mounts)]
        self.writers += [Worker(program, source, words, tmp) for _ in range(n_saves)]
        self.reader = Worker(program, source, words, tmp)
        self.gc = None
        self.faults, self.winner = [], {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for w in [*self.writers, self.reader]:
            w.end()

    def round(self, step):
        barrier, told = threading.Barrier(len(self.writers)), [None] * len(self.writers)
        wait = [self.random.choice((0, 0, self.random.random() * 0.004)) for _ in self.writers]

        def run(i):
            barrier.wait()
            threading.Event().wait(wait[i])
            told[i] = self.writers[i].write(step, 1. + i)
        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(self.writers))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        won = [i for i, r in enumerate(told) if r == 0]
        names = [errno.errorcode.get(r, r) for r in told]
        if len(won) != 1:
            self.faults.append(f'step {step}: {len(won)} writers were told that it is committed: {names}')
        elif not {r for r in told if r} <= LOST:
            self.faults.append(f'step {step}: writers were told {names}')
        if won:
            self.winner[step] = 1. + won[-1]
            self.check(step)

    def check(self, step):
        got = self.reader.ask('load', step)
        if got != self.winner[step]:
            self.faults.append(f'step {step}: it has {got} in place of the values of writer {self.winner[step]}')

    @contextlib.contextmanager
    def gc_beside(self):
        """`gc` again and again, as long as this lasts."""
        ends = threading.Event()

        def run():
            while not ends.is_set():
                r = subprocess.run([self.program, 'gc', str(self.source)], capture_output=True, text=True)
                # A bucket without an object below the URL.
                if r.returncode and 'does not exist' not in r.stderr:
                    self.faults.append(f'gc: {r.stdout}{r.stderr}')
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()

    def check_all(self, in_source=True):
        """All steps once more: nothing that came later has removed one. Every mount shows the same."""
        for step in self.winner:
            self.check(step)
        want = sorted(map(str, self.winner))
        for m in (w.mount for w in self.writers if isinstance(w, Mount)):
            mounts.wait_for(lambda m=m: sorted(os.listdir(m.path)) == want)
        if isinstance(self.source, pathlib.Path):
            left = sorted(p.name for p in self.source.iterdir() if p.name not in want)
            if left:
                self.faults.append(f'SOURCE has {left} besides')


def run(program, source, tmp, kind, options, rounds, seed, with_gc=True):
    """Returns the faults, in sentences, and the number of steps."""
    with Race(program, source, tmp, kind, options, seed) as race:
        with race.gc_beside() if with_gc else contextlib.nullcontext():
            for step in range(1, rounds + 1):
                race.round(step)
        race.check_all()
        return race.faults, len(race.winner)
