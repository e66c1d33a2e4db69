# SPDX-License-Identifier: Apache-2.0
"""kill -9 of who writes a step to a bucket, at each of the requests that it makes, and what is found afterwards.

tests/mount/test_bucket_writing.py does some places, tests/soak/upload all.
"""

import dataclasses
import os
import subprocess
import sys
import threading

import numpy as np

from lib import mounts, package

MARKER, CLAIM = 'commit_success.txt', '.pytreefs-draft'
# One leaf comes in parts, in any bucket; and one file is under way at a time, so that each run makes the same requests.
OPTIONS = 'ocdbt=off,zarr=3,compression=none,chunk_byte_size=16M,threads=1,write_budget=8M'
# The data file of a database is uploaded while it is written, and grows to more than one part.
STREAMED = 'zarr=3,compression=none,chunk_byte_size=16M,threads=1,write_budget=16M'
LARGE = 9 << 20


def collect(run, bucket, root, step):
    """gc. Who was killed at the request for the marker is left for ten minutes, after which the claim counts for gc as if it did not say so."""
    r = run('gc', root)
    path = f'{root.partition("://")[2].partition("/")[2]}/{step}'
    keys, claim = bucket.keys(f'{path}/'), f'{path}/{CLAIM}'
    if claim not in keys or b'committing\n' not in bucket.get(claim):
        return r
    assert f'{path}/{MARKER}' not in keys and len(keys) > 1, keys
    bucket.put(claim, bucket.get(claim).replace(b'committing\n', b''))
    return run('gc', root)


@dataclasses.dataclass
class Place:
    """A moment of an upload: when request number `at` arrives, or when it has been done and not answered."""
    at: int
    is_done: bool

    def __str__(self):
        return f'{"after" if self.is_done else "before"} request {self.at}'


class Process:
    """Writes a step as one process. The subclasses say which."""
    # The steps that are written first; the requests of the last count.
    UNHARMED = (1,)

    def __init__(self, killer):
        self.killer = killer

    def ready(self, step):
        """Do what comes before the requests that count."""

    def start(self, step):
        self.process = self.killer.start(*self.words(step))

    def kill(self):
        self.process.kill()
        self.process.wait(120)

    def wait(self):
        """Return the status of the writer when it has ended, in whatever way."""
        return self.process.wait(240)


class Save(Process):
    """pytreefs save."""

    def words(self, step):
        k = self.killer
        return k.program, 'save', '-o', k.options, k.source, f'{k.root}/{step}'


class Convert(Process):
    """pytreefs convert, of a step on disk."""

    def words(self, step):
        k = self.killer
        return k.program, 'convert', '-o', k.options, k.first, f'{k.root}/{step}'


class Library(Process):
    """pytreefs.save() in Python."""
    CODE = 'import sys, pytreefs; pytreefs.save(sys.argv[2], pytreefs.load(sys.argv[1]), **dict(o.split("=") for o in sys.argv[3].split(",")))'

    def words(self, step):
        k = self.killer
        return sys.executable, '-c', self.CODE, k.first, f'{k.root}/{step}', k.options


class Draft(Process):
    """cp -r into a draft of a mount, and mv. The mount is killed; requests count once it serves."""
    # It asks more about a root that is empty.
    UNHARMED = (1, 2)

    def ready(self, step):
        k = self.killer
        variables = [f'{name}={value}' for name, value in k.environment.items() if os.environ.get(name) != value]
        # Listings are not repeated by the clock.
        self.mount = mounts.Mount(k.program, k.root, k.directory / 'mnt', k.directory / 'log', ('shape=root', 'poll=3600000', k.options),
                                  foreground=True, under=('env', *variables))

    def start(self, step):
        self.process = self.killer.start('sh', '-ec', 'cp -r "$0" "$1/$2.tmp"; mv -T "$1/$2.tmp" "$1/$2"', self.killer.source.parent,
                                         self.mount.path, step)

    def kill(self):
        self.mount.process.kill()
        self.mount.process.wait(120)

    def wait(self):
        status = self.process.wait(240)
        self.mount.unmount()
        return status


class Killer:
    """bucket: of lib.buckets or lib.gcs; proxy: what stands before it; root: the URL of a directory of steps in it, which belongs to the
    killer; environment: of the programs, with what they need to ask the proxy; look(step): what another reader has to say; writer: one of
    the classes above; large: the bytes of the largest leaf."""

    def __init__(self, program, bucket, proxy, root, directory, environment=None, look=None, options=OPTIONS, writer=Save, large=LARGE):
        self.program, self.bucket, self.proxy, self.root, self.directory = str(program), bucket, proxy, root, directory
        self.environment = package.environment(program) | (environment or {})
        self.options = options
        self.look = look or (lambda step: None)
        self.source, self.first = directory / 'in/default', directory / '1'
        (self.source / 'layer').mkdir(parents=True)
        rng = np.random.default_rng(5)
        np.save(self.source / 'layer/w.npy', rng.standard_normal(large // 8))
        for name in 'abcde':
            np.save(self.source / f'layer/{name}.npy', rng.standard_normal((3, 4)))
        self.whole = self.absent = 0
        r = self.run('save', '-o', self.options, self.source, self.first)
        assert r.returncode == 0, r.stderr
        self.writer = writer(self)
        for step in self.writer.UNHARMED:
            self.writer.ready(step)
            self.proxy.requests.clear()
            self.writer.start(step)
            status = self.writer.wait()
            self.requests = self.proxy.requests[:]
            assert status == 0 and self.is_whole(step), f'a step is not whole whose writer nobody killed: status {status}'

    def places(self):
        return [Place(at, is_done) for at in range(1, len(self.requests) + 1) for is_done in (False, True)]

    def run(self, *words):
        return subprocess.run([self.program, *map(str, words)], env=self.environment, capture_output=True, text=True, timeout=240,
                              stdin=subprocess.DEVNULL)

    def start(self, *words):
        return subprocess.Popen([*map(str, words)], env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)

    def keys(self, step):
        return self.bucket.keys(f'{self.root.partition("://")[2].partition("/")[2]}/{step}/')

    def is_whole(self, step):
        """Whether the step is there and whole; it may be absent; raises AssertionError when it is anything else."""
        r = self.run('ls', self.root)
        keys = self.keys(step)
        # With nothing in it the root does not exist.
        assert r.returncode == 0 or not keys, r.stderr
        is_there = f'{step}/' in r.stdout.split()
        assert is_there == any(key.endswith(f'/{step}/{MARKER}') for key in keys), (is_there, keys)
        if is_there:
            r = self.run('diff', self.first, f'{self.root}/{step}')
            assert r.returncode == 0, r.stdout + r.stderr
            r = self.run('verify', f'{self.root}/{step}')
            assert r.returncode == 0 and '0 errors, 0 warnings' in r.stdout, r.stdout + r.stderr
        return is_there

    def kill(self, place, step):
        """Writes the step, and kills who does at that place. Returns the status of the writer."""
        count, lock, begun = [0], threading.Lock(), threading.Event()

        def fault(h):
            with lock:
                count[0] += 1
                is_it = count[0] == place.at
            if not is_it:
                return False
            assert begun.wait(120)
            if place.is_done:
                h.forward(*h.path.partition('?')[::2])
            self.writer.kill()
            return h.reset()
        self.writer.ready(step)
        self.proxy.fault = fault
        try:
            self.writer.start(step)
            begun.set()
            status = self.writer.wait()
            # Earlier requests may still be in progress.
            self.proxy.wait_idle()
        finally:
            self.proxy.fault = None
        assert count[0] >= place.at, f'it made {count[0]} requests'
        return status

    def try_place(self, place, step):
        """Raises AssertionError, which names the place, when the step is torn, or gc leaves anything of one that is not there."""
        status = self.kill(place, step)
        try:
            is_there = self.is_whole(step)
            assert is_there or status != 0, 'its writer has been told that it is there'
            self.look(step)
            r = collect(self.run, self.bucket, self.root, step)
            keys = self.keys(step)
            assert r.returncode == 0 or not keys, r.stderr
            assert not any(key.endswith(CLAIM) for key in keys) and bool(keys) == is_there, keys
            assert self.bucket.scheme != 's3' or not self.bucket.uploads()
            assert not is_there or self.is_whole(step)
        except AssertionError as e:
            raise AssertionError(f'killed {place}, {self.requests[place.at - 1]}: {e}') from e
        self.whole += is_there
        self.absent += not is_there
        for key in keys:
            self.bucket.delete(key)
