# SPDX-License-Identifier: Apache-2.0
"""Drafts of a job of ranks: a tree in parts, whether the step has it, and ranks that are killed meanwhile."""

import errno
import os
import tempfile
import threading
import time

import numpy as np

from lib import mounts

W = np.arange(24 * 10, dtype=np.float32).reshape(24, 10)
DRAFT = '1.tmp'
HOUR = 3600


def bounds(n, rank, length=24):
    return length * rank // n, length * (rank + 1) // n


def box(name, start, stop, a=W):
    rest = ''.join(f',0:{k}' for k in a.shape[1:])
    return f'{name}[{start}:{stop}{rest}]@{"x".join(map(str, a.shape))}.npy'


def save_part(top, name, start, stop, a=W):
    np.save(top / box(name, start, stop, a), a[start:stop])


def begin(job, ranks=None, draft=DRAFT):
    """Every rank in the draft, with a directory for leaves."""
    for r in range(job.n) if ranks is None else ranks:
        (job[r] / draft).mkdir()
        (job[r] / draft / 'default' / 'params').mkdir(parents=True)


def top(job, rank, draft=DRAFT):
    return job[rank] / draft / 'default' / 'params'


def fill(job, ranks=None, draft=DRAFT):
    """A tree with parts, replicas, and leaves that one rank has."""
    begin(job, ranks, draft)
    ranks = list(range(job.n) if ranks is None else ranks)
    for i, r in enumerate(ranks):
        save_part(top(job, r, draft), 'w', *bounds(len(ranks), i))
        np.save(top(job, r, draft) / 'rep.npy', W * 2)
        (job[r] / draft / 'default' / f'own{r}.json').write_text(str(r))
    (job[ranks[0]] / draft / 'default' / 'name.txt').write_text('a text')


# By rank; both have a notes.md, of which the lower rank's counts.
FILES = {
    0: {'default/notes.md': b'0', 'default/assets/sub/a.txt': b'a' * 5000, 'default/.hidden': b'h', 'README': b'r', '.hf/sub/x': b'x', 'metadata.json': b'{}',
        'tok/vocab.txt': b'v', 'tok/sub/w.npy': b'no array'},
    1: {'default/notes.md': b'1', 'default/more.bin': b'', 'default/assets/sub/b': b'b', 'LICENSE': b'l', '.hf/y': b'y', 'tok/merges.txt': b'm', 'tok/sub/_METADATA': b'{}'},
}
ALL_FILES = {**FILES[1], **FILES[0]}


def mark(path):
    os.setxattr(path, 'user.pytree.kind', b'opaque')


def write_files(draft, files):
    """Each below a name that is marked: at the top of an item that is a tree, or of the step."""
    for name, data in files.items():
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        (draft / name).write_bytes(data)
        parts = name.split('/')
        mark(draft / '/'.join(parts[:2] if parts[0] == 'default' else parts[:1]))


class Pauses:
    """
    The longest time for which this process was not run though it wanted to, because the machine stood still or was too busy,
    and the longest that a file of the directory took to reach the disk.
    """

    def __init__(self, directory):
        self.longest, self.disk, self.over, self.directory = 0, 0, threading.Event(), directory
        self.threads = [threading.Thread(target=watch, daemon=True) for watch in (self._watch, self._watch_disk)]

    def _watch_disk(self):
        with tempfile.TemporaryFile(dir=self.directory) as f:
            while not self.over.wait(0.05):
                begin = time.monotonic()
                f.write(b'x')
                f.flush()
                os.fsync(f.fileno())
                self.disk = max(self.disk, time.monotonic() - begin)

    def _watch(self):
        last = time.monotonic()
        while not self.over.wait(0.01):
            now = time.monotonic()
            self.longest, last = max(self.longest, now - last), now
        self.longest = max(self.longest, time.monotonic() - last)

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for t in self.threads:
            t.join()


def commit(job, step='1', draft=DRAFT, calls=1):
    """
    All ranks rename the draft until the step is there: each time all of them succeed, or all time out. It takes so many calls
    at most, besides those in which the machine stood still for a part of a short commit_timeout, or its disk for each of some ten syncs.
    """
    counted = paused = 0
    while True:
        with Pauses(job.under) as pauses:
            result = set(job.rename(draft, step).values())
        if result == {0}:
            return
        assert result == {errno.ETIMEDOUT}, result
        counted, paused = (counted, paused + 1) if pauses.longest > 0.3 or pauses.disk > 0.15 else (counted + 1, paused)
        assert counted < calls and paused < 10, (counted, paused, pauses.longest, pauses.disk)


def expire(job, clock, ranks, seconds=HOUR):
    """The results of renames by these ranks, which wait in vain, after so long. The job has trace=step, and the environment of the clock."""
    begun, quiet = job.text().count("'1.tmp' is to become '1'"), 0

    def meanwhile(results):
        nonlocal quiet
        # A rank that has been waited for before gets the result at once. Others have sent their votes when they sleep for a while, not
        # only for a disk.
        waits = job.text().count("'1.tmp' is to become '1'") - begun == len(ranks) and all(job.is_asleep(r) for r in ranks)
        quiet = quiet + 1 if waits else 0
        if quiet >= 10:
            clock.advance(seconds)
    return job.rename(DRAFT, '1', ranks, meanwhile)


def check(job, rank=0, step='1', ranks=None):
    """The step is whole, read through a rank's mount."""
    item = job[rank] / step / 'default'
    mounts.wait_for(item.exists)
    assert np.array_equal(np.load(item / 'params' / 'w.npy'), W)
    assert np.array_equal(np.load(item / 'params' / 'rep.npy'), W * 2)
    assert (item / 'name.txt').read_text() == 'a text'
    for r in range(job.n) if ranks is None else ranks:
        assert (item / f'own{r}.json').read_text().strip() == str(r)


def steps(source):
    return sorted(p.name for p in source.iterdir() if '.pytreefs-draft' not in p.name)


def databases(source, step='1'):
    """The databases in which ranks stored their parts of a step, by name."""
    return sorted(p.name for p in (source / step / 'default').iterdir() if p.name.startswith('ocdbt.process_'))


def outcome(j, victim, result):
    """Nothing half-committed: a whole step and nobody has an error, or none, and all of them have."""
    survivors = {r: e for r, e in result.items() if r != victim}
    committed = (j.source / '1').exists()
    assert set(survivors.values()) == ({0} if committed else {errno.ETIMEDOUT}), (committed, result)
    if committed:
        check(j, next(iter(survivors)))
    else:
        assert steps(j.source) == []
        assert [p for p in j.source.iterdir() if '.pytreefs-draft' in p.name], 'the draft is gone'
    return committed


def killed_at(j, victim, delay):
    """All rename; the victim is killed that much later. {rank: errno}"""
    def one(rank):
        if rank == 'killer':
            time.sleep(delay)
            j.kill(victim)
            return 0
        os.rename(j[rank] / DRAFT, j[rank] / '1')
        return 0
    out = j.each(one, [*range(j.n), 'killer'])
    return {r: e.errno if isinstance(e, OSError) else e for r, e in out.items() if r != 'killer'}
