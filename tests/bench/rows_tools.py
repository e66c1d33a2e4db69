# SPDX-License-Identifier: Apache-2.0
"""Commands that go through a whole checkpoint of 2 GiB in 128 leaves, against the same with Orbax and numpy."""

from bench.bench import bench
from bench.measure import command

MIB = 1 << 20


def found(b, *words):
    """A command whose status 1 says what it found, as `diff` and its like do."""
    def run():
        seconds, run.peak = command(words, b.build, ok=(0, 1))
        return seconds
    return run


@bench
def verify(b):
    """Every record and chunk; against one thread that decodes the frames, and an Orbax restore."""
    b.most_rounds = 3
    source = b.case('two-gib')
    frames = b.frames(source, '')
    b.warm(source)
    b.contender('verify', found(b, b.program, 'verify', '-q', source))
    b.contender('zstd', b.peer('decode', frames), before=lambda: b.warm(frames))
    b.contender('Orbax restore', b.python('peers_tools:verify', source))
    b.row('verify, 2 GiB, one-thread zstd', 'verify', 'zstd', rate=1.3, peak=512 * MIB)
    b.row('verify, 2 GiB, Orbax restore', 'verify', 'Orbax restore', rate=1.0, peak=512 * MIB)


@bench
def stats(b):
    """Extremes, mean, spread, NaN and Inf of every leaf."""
    b.most_rounds = 3
    source = b.case('two-gib')
    b.warm(source)
    b.contender('stats', found(b, b.program, 'stats', '-q', source))
    b.contender('Orbax, numpy', b.python('peers_tools:stats', source))
    b.row('stats, 2 GiB', 'stats', 'Orbax, numpy', rate=1.0, peak=512 * MIB)


@bench
def diff(b):
    """Two checkpoints of 2 GiB that differ in one element."""
    b.most_rounds = 3
    one, other = b.case('two-gib'), b.case('two-gib-changed')
    b.warm(one)
    b.warm(other)
    b.contender('diff', found(b, b.program, 'diff', '-q', one, other))
    b.contender('Orbax, numpy', b.python('peers_tools:diff', one, other))
    b.row('diff, 2 GiB', 'diff', 'Orbax, numpy', rate=1.0, peak=512 * MIB)
