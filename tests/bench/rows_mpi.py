# SPDX-License-Identifier: Apache-2.0
"""Jobs of ranks: reading what one of them broadcasts against each reading all, from a source that they share
and that gives so many bytes a second to all of them together."""

import os
import subprocess

import numpy as np

from bench.bench import bench
from lib import jobs, mounts

MIB = 1 << 20
RATE = 50 * MIB                 # of the source, for all ranks together
RANKS = 4
LEAF = (64, MIB // 4)           # 64 MiB of float32, in chunks of 1 MiB


def make_source(b):
    """A step of 128 MiB that does not compress, written through a mount."""
    top = b.scratch(memory=True)
    (top / 'source').mkdir()
    m = mounts.Mount(b.program, top / 'source', top / 'mnt', top / 'log',
                     ('shape=root', 'compression=none', 'chunk_byte_size=1M'))
    try:
        (m / '1.tmp').mkdir()
        (m / '1.tmp' / 'default').mkdir()
        rng = np.random.default_rng(3)
        for i in range(2):
            np.save(m / '1.tmp' / 'default' / f'w{i}.npy', rng.integers(0, 1 << 30, LEAF).astype(np.float32))
        os.rename(m / '1.tmp', m / '1')
    finally:
        m.unmount()
    return top


class SlowJob:
    """A job over the slow source, begun anew before each run."""

    def __init__(self, b, top, name, *options):
        self.b, self.top, self.name, self.options, self.job, self.n = b, top, name, options, None, 0
        b.stack.callback(self.end)

    def end(self):
        if self.job and (why := self.job.end()):
            raise RuntimeError(why)
        self.job = None

    def begin(self):
        self.end()
        bucket = self.top / f'bucket-{self.name}'
        bucket.write_bytes(bytes(8))
        slow = {'LD_PRELOAD': str(self.b.build / 'tests/bench/slow_source.so'), 'SLOW_BUCKET': str(bucket),
                'SLOW_RATE': str(RATE)}
        self.n += 1
        self.job = jobs.Job(self.b.program, self.top / 'source', self.top / f'{self.name}{self.n}', RANKS,
                            ('io=sync', *self.options), slow)

    def read(self):
        readers = [subprocess.Popen(['dd', f'if={self.job[r] / "1" / "default" / f"w{i}.npy"}', 'of=/dev/null', 'bs=1M',
                                     'status=none']) for r in range(RANKS) for i in range(2)]
        if any(p.wait() for p in readers):
            raise RuntimeError('a rank could not read')

    def memory(self):
        return max(self.job.memory(r) for r in range(RANKS))


@bench
def broadcast(b):
    """Four ranks read the same 128 MiB at once, from a source of 50 MiB/s for all of them: each for itself, and with
    load_and_broadcast, where one rank reads; a fresh job before each run."""
    if why := jobs.missing(b.program):
        raise RuntimeError(why)
    subprocess.run(['ninja', '-C', str(b.build), 'tests/bench/slow_source.so'], check=True, stdout=subprocess.DEVNULL)
    top = make_source(b)
    alone = SlowJob(b, top, 'alone', 'cache=256M')
    shared = SlowJob(b, top, 'shared', 'load_and_broadcast', 'cache=1G', 'broadcast_memory_limit=1G')
    b.contender('each for itself', alone.read, before=alone.begin, memory=alone.memory)
    b.contender('broadcast', shared.read, before=shared.begin, memory=shared.memory)
    b.row('4 ranks, 128 MiB, shared source of 50 MiB/s', 'broadcast', 'each for itself')
