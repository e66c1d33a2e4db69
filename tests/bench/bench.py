# SPDX-License-Identifier: Apache-2.0
"""The parts of a benchmark: contenders, which are timed, and rows, which compare two of them.

A file rows_*.py holds functions marked @bench; each declares contenders and rows:

    @bench
    def cat(b):                                     # `tests/bench/run cat` runs it alone
        '''One leaf to a pipe, against the same bytes in memory.'''         # a line below the table
        m = b.mount(b.case('bench-one-raw'))        # unmounted at the end
        b.contender('cat', ['cat', m / 'w.npy'], before=m.fresh, memory=m.memory)
        b.contender('tmpfs', ['cat', b.tmpfs(m / 'w.npy')])
        b.row('raw chunks, cold, cat', 'cat', 'tmpfs', rate=0.28)

The frame runs all contenders of a bench in turn, round after round, so that what the machine does
besides hits all of them. A row's ratio is computed within each round; shown are the median, least and
greatest. A contender is:

    run     a command (list of words), a callable, or b.python('function', ...): a function of peers.py,
            called in a process of its own that has its imports done before the clock starts
    before  called before each timed run, not timed: fresh mounts, directories to write to, warm caches
            None, if it is not installed: it does not run, and rows against it say so
    after   called after each timed run, not timed: what a run wrote goes away
    memory  called after each timed run: peak bytes, for what works in another process (a mount)
    A callable that returns a number is taken by it (seconds), else by the clock.

A target is one of
    rate=R      ours is at least R times as fast as the peer: peer's seconds / our seconds >= R
    latency=R   ours takes at most R times as long: our seconds / peer's seconds <= R
    within=S    ours takes at most S seconds; no peer
and peak=BYTES besides, what `memory` of ours may reach at most.
"""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile

from bench.worker import Worker
from lib import checkpoints, mounts, venvs

BENCHES = {}            # name -> function, in the order of declaration


def bench(function):
    if function.__name__ in BENCHES:
        raise ValueError(f'two benches are called {function.__name__}')
    BENCHES[function.__name__] = function
    return function


@dataclasses.dataclass
class Contender:
    name: str
    run: object
    before: object = None
    after: object = None
    memory: object = None
    seconds: list = dataclasses.field(default_factory=list)
    peaks: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Row:
    text: str
    ours: str
    peer: str = None
    rate: float = None
    latency: float = None
    within: float = None
    peak: int = None


class Mounted:
    """A mount that can be made anew, with nothing cached by the kernel or the daemon."""

    def __init__(self, b, source, options):
        self.b, self.source, self.options = b, source, options
        self.path = b.scratch() / 'mnt'
        self.log = self.path.parent / 'log'
        self.mount = None
        self.open()

    def __truediv__(self, name):
        return self.path / name

    def fresh(self):
        self.close()
        self.open()

    def open(self):
        self.mount = mounts.Mount(self.b.program, self.source, self.path, self.log, self.options)

    def memory(self):
        return self.mount.memory('VmHWM')

    def stats(self):
        return self.mount.stats()

    def close(self):
        if self.mount:
            why = self.mount.unmount()
            if why:
                raise RuntimeError(f'{self.path}: {why}')
        self.mount = None


class Bench:
    def __init__(self, name, program, build, stack):
        self.name, self.program, self.build, self.stack = name, program, build, stack
        self.contenders, self.rows = {}, []
        self.most_rounds = None         # of what takes long; None: as many as the command line says

    # ---- what is compared ----

    def contender(self, name, run, **how):
        if name in self.contenders:
            raise ValueError(f'{self.name}: two contenders are called {name}')
        self.contenders[name] = Contender(name, run, **how)

    def row(self, text, ours, peer=None, **target):
        for name in (ours, peer):
            if name is not None and name not in self.contenders:
                raise ValueError(f'{self.name}: no contender is called {name}')
        self.rows.append(Row(text, ours, peer, **target))

    # ---- what contenders work on ----

    def case(self, name):
        """A checkpoint of tests/lib/gen_*.py, made when it is not there. A path stays as it is."""
        return checkpoints.get(name).path if isinstance(name, str) else name

    def converted(self, name, options):
        """A checkpoint converted with these options of -o; removed at the end."""
        out = self.scratch() / 'converted'
        subprocess.run([self.program, 'convert', '-q', '--layout', 'v0', '-o', options, self.case(name), out], check=True, stdout=subprocess.DEVNULL)
        return out

    def mount(self, source, *options):
        m = Mounted(self, source, options)
        self.stack.callback(m.close)
        return m

    def scratch(self, memory=False):
        """A directory of its own on the disk, or in memory (tmpfs); removed at the end."""
        where = '/dev/shm' if memory else os.environ.get('PYTREEFS_BENCH_DIR', '/var/tmp')
        path = pathlib.Path(tempfile.mkdtemp(prefix='pytreefs-bench-', dir=where))
        self.stack.callback(shutil.rmtree, path, ignore_errors=True)
        return path

    def tmpfs(self, path):
        """The same bytes as a file or directory in memory."""
        path, target = pathlib.Path(path), self.scratch(memory=True)
        subprocess.run(['cp', '-r', path, target], check=True)
        return target / path.name

    def frames(self, source, leaf='w'):
        """The stored chunks of one leaf, end to end in a file: what a bare decoder gets."""
        path = self.scratch() / 'frames'
        with contextlib.closing(Worker()) as w:
            w.call('frames', source, path, leaf)
        return path

    def python(self, function, *args, **kwargs):
        """A callable that runs a function of peers.py (or 'module:function' of tests/bench) in its own process."""
        w = Worker()
        self.stack.callback(w.close)
        return w.timed(function, *args, **kwargs)

    def newest(self, function, *args, **kwargs):
        """The same in an environment with newest.txt above the packages of .venv; None, with the reason on stderr, where it cannot be made."""
        try:
            python = venvs.environment(checkpoints.cache_root() / 'venvs', pathlib.Path(__file__).with_name('newest.txt'), lambda: sys.executable,
                                       sysconfig.get_path('purelib'))
        except (OSError, subprocess.CalledProcessError) as e:
            print(f'{self.name}: {function}: not installed: {e}', file=sys.stderr)
            return None
        w = Worker(python)
        self.stack.callback(w.close)
        return w.timed(function, *args, **kwargs)

    def peer(self, *words):
        """A command of peer.c."""
        return [self.build / 'tests/bench/bench_peer', *words]

    @staticmethod
    def _files(source):
        """The open files of a source, one after the other."""
        source = pathlib.Path(source)
        for path in [source] if source.is_file() else source.rglob('*'):
            if path.is_file():
                with open(path, 'rb', buffering=0) as f:
                    yield f

    def warm(self, source):
        """Files of a source are in the page cache: what is measured is us, not the disk."""
        for f in self._files(source):
            while f.read(1 << 22):
                pass

    def evict(self, source):
        """Files of a source are on the disk only."""
        for f in self._files(source):
            os.fsync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
