# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the daemon at random moments of a save, and what is found afterwards.

tests/mount/test_kill.py does a few rounds; tests/soak/kill as many as it is asked for.
"""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import threading
import time

import numpy as np

from lib import mounts

OPTIONS = [[], ['zarr=3', 'compression=none'], ['ocdbt=off'], ['ocdbt=off', 'zarr=3'], ['chunk_byte_size=100K'],
           ['atomicity=commit_file']]


def arrays(seed):
    """Return the arrays of a step: name -> array."""
    rng = np.random.default_rng(seed)
    out = {f'layer{i}/w': rng.standard_normal((300, 400)).astype(np.float32) for i in range(8)}
    out |= {f'layer{i}/b': rng.integers(-99, 99, 7 + i) for i in range(8)}
    out['whole'] = rng.integers(0, 255, 3_000_000).astype(np.uint8)
    return out


def save(mnt, step, content):
    """As a program does it: None, or the error that ended it."""
    try:
        top = mnt / f'{step}.tmp'
        os.mkdir(top)
        for name, a in content.items():
            path = top / 'default' / f'{name}.npy'
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, a)
        (top / 'default' / 'note.txt').write_text('a string')
        (top / 'metrics.json').write_text('{"loss": 1}')
        os.rename(top, mnt / str(step))
    except OSError as e:
        return e
    return None


def same(mnt, step, content):
    for name, a in content.items():
        got = np.load(mnt / str(step) / 'default' / f'{name}.npy')
        assert got.dtype == a.dtype and np.array_equal(got, a), f'{step}: {name} differs'
    assert (mnt / str(step) / 'default' / 'note.txt').read_text() == 'a string'
    assert json.loads((mnt / str(step) / 'metrics' / 'metrics').read_text()) == {'loss': 1}


class Killer:
    def __init__(self, program, directory, seed):
        self.program, self.directory = program, pathlib.Path(directory)
        self.source = self.directory / 'source'
        self.source.mkdir(parents=True)
        self.random = random.Random(seed)
        self.old, self.new = arrays(1), arrays(2)
        self.n = self.absent = self.whole = self.collected = 0
        m = self.mount([])
        try:
            assert save(m.path, 100, self.old) is None
            # The quickest of some: what else the machine does now makes a save longer, and kills come too late then.
            self.seconds = min(self.time_save(m, step) for step in (101, 102, 103))
        finally:
            m.unmount()
        for step in (101, 102, 103):
            shutil.rmtree(self.source / str(step))

    def time_save(self, m, step):
        start = time.monotonic()
        assert save(m.path, step, self.new) is None
        return time.monotonic() - start

    def mount(self, options):
        return mounts.Mount(self.program, self.source, self.directory / f'mnt{self.n % 50}',
                            self.directory / 'log', options, foreground=True)

    def round(self):
        """One save that is killed at some moment; raises AssertionError when less than whole is found."""
        self.n += 1
        options = self.random.choice(OPTIONS)
        # Half of them about the commit, which is at the end.
        delay = self.seconds * self.random.uniform(*self.random.choice([(0, 1.3), (0.7, 1.5)]))
        m = self.mount(options)
        result = []
        writer = threading.Thread(target=lambda: result.append(save(m.path, 101, self.new)))
        writer.start()
        time.sleep(delay)
        m.process.send_signal(signal.SIGKILL)
        m.process.wait()
        writer.join()
        subprocess.run(['fusermount3', '-u', '-z', str(m.path)], check=True, capture_output=True)
        try:
            self.look(options, result[0])
        except AssertionError as e:
            raise AssertionError(f'round {self.n}, {options}, after {delay:.3f} s, the save said {result[0]}: {e}') from e

    def look(self, options, said):
        m = self.mount(options)
        try:
            steps = sorted(p.name for p in m.path.iterdir())
            assert steps in (['100'], ['100', '101']), steps
            assert said is not None or '101' in steps, 'rename returned 0'
            same(m.path, 100, self.old)
            if '101' in steps:
                same(m.path, 101, self.new)
                self.whole += 1
            else:
                self.absent += 1
        finally:
            why = m.unmount()
        assert not why, why

        def gc_removes_the_rest():
            r = subprocess.run([self.program, 'gc', '--json', str(self.source)], capture_output=True, text=True)
            assert r.returncode == 0, r.stderr
            self.collected += json.loads(r.stdout)['removed']
            return not [n for n in os.listdir(self.source) if n not in steps and '-begun-' not in n]
        # The kernel may still complete a request of the killed process that holds the draft's lock.
        mounts.wait_for(gc_removes_the_rest)
        assert not list(self.source.glob('10?/.pytreefs-*')), 'gc left a lock file'
        for name in os.listdir(self.source):
            if name != '100':
                shutil.rmtree(self.source / name)
