# SPDX-License-Identifier: Apache-2.0
"""Writing: leaves as files into a draft, and the commit. All contenders write to the same disk, and all
end durable; what a peer does not sync itself is synced inside its clock (peers.py, sync_tree)."""

import os
import shutil
import subprocess
import time

import numpy as np

from bench.bench import bench

GIB = 1 << 30


class Root:
    """A mounted empty root: drafts are written into it, committed, and removed."""

    def __init__(self, b, *options):
        self.directory = b.scratch() / 'root'
        self.directory.mkdir()
        self.mount = b.mount(self.directory, *options)

    def fresh(self):
        self.mount.close()
        shutil.rmtree(self.directory)
        self.directory.mkdir()
        os.sync()
        self.mount.open()
        (self.mount / '1.tmp' / 'default').mkdir(parents=True)

    def commit(self):
        os.rename(self.mount / '1.tmp', self.mount / '1')


def sources(b, case):
    """The arrays of a checkpoint as .npy files in memory, and a directory that a run may fill."""
    m = b.mount(b.case(case))
    directory = b.tmpfs(m.path)
    m.close()
    return directory


def empty(path):
    def do():
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        os.sync()
    return do


def whole_tree(b, compression, target, text):
    """np.save of every leaf and the rename, against Orbax's synchronous save of the same arrays as jax.Array."""
    arrays = sources(b, 'bench-leaves-zstd')
    root = Root(b, f'compression={compression}')
    out = b.scratch() / 'orbax'
    b.contender('np.save + rename', b.python('save_tree', arrays, root.mount / '1.tmp/default', root.mount / '1'),
                before=root.fresh, memory=root.mount.memory)
    b.contender('Orbax save', b.python('orbax_save', arrays, out / 'ckpt', compression != 'none'),
                before=empty(out))
    b.row(text, 'np.save + rename', 'Orbax save', rate=target)


@bench
def save_zstd(b):
    """1 GiB in 64 leaves, zstd level 1 on both sides."""
    whole_tree(b, 'zstd:1', 1.2, 'whole tree, zstd:1, durable')


@bench
def save_auto(b):
    """The same with compression=auto, against Orbax's zstd."""
    whole_tree(b, 'auto', 1.0, 'whole tree, auto, durable')


@bench
def save_raw(b):
    """The same without compression."""
    whole_tree(b, 'none', 1.3, 'whole tree, uncompressed, durable')


def stream(b, compression):
    """One leaf of 1 GiB copied into a draft, committed."""
    source = b.scratch(memory=True) / 'w.npy'
    weights = b.mount(b.case('bench-one-raw'))
    subprocess.run(['cp', weights / 'w.npy', source], check=True)
    weights.close()
    root = Root(b, f'compression={compression}')

    def write():
        begin = time.perf_counter()
        subprocess.run(['dd', f'if={source}', f'of={root.mount.path}/1.tmp/default/w.npy', 'bs=1M',
                        'status=none'], check=True)
        root.commit()
        return time.perf_counter() - begin
    b.contender('dd + rename', write, before=root.fresh, memory=root.mount.memory)
    return source


@bench
def stream_zstd(b):
    """1 GiB in one stream, zstd level 1, committed; against one thread of `zstd -1`, its result synced."""
    source = stream(b, 'zstd:1')
    out = b.scratch() / 'out.zst'

    def bare():
        begin = time.perf_counter()
        subprocess.run(['zstd', '-1', '-q', '-f', '-T1', '--single-thread', source, '-o', out], check=True)
        sync(out)
        return time.perf_counter() - begin
    b.contender('zstd -1', bare, before=lambda: out.unlink(missing_ok=True) or os.sync())
    b.row('one stream, zstd:1, committed', 'dd + rename', 'zstd -1', rate=1.3)


@bench
def stream_raw(b):
    """1 GiB in one stream, uncompressed, committed; against dd conv=fsync."""
    source = stream(b, 'none')
    out = b.scratch() / 'out'
    b.contender('dd conv=fsync', ['dd', f'if={source}', f'of={out}', 'bs=1M', 'conv=fsync', 'status=none'],
                before=lambda: out.unlink(missing_ok=True) or os.sync())
    b.row('one stream, uncompressed, committed', 'dd + rename', 'dd conv=fsync', rate=0.5)


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


@bench
def small_leaves(b):
    """2,000 leaves of 1 KiB and a commit, against Orbax's synchronous save of as many jax.Arrays; also while processors are kept awake."""
    arrays = b.scratch(memory=True)
    for i in range(20):
        (arrays / f'layer{i:02d}').mkdir()
        for j in range(100):
            np.save(arrays / f'layer{i:02d}/w{j:02d}.npy', np.full((256,), i * 100 + j, np.float32))
    out = b.scratch() / 'orbax'
    b.contender('Orbax save', b.python('orbax_save', arrays, out / 'ckpt'), before=empty(out))
    for name, root in (('np.save + rename', Root(b)), ('busy_poll=awake', Root(b, 'busy_poll=awake'))):
        b.contender(name, b.python('save_tree', arrays, root.mount / '1.tmp/default', root.mount / '1'),
                    before=root.fresh, memory=root.mount.memory)
        b.row('2,000 leaves of 1 KiB, durable', name, 'Orbax save', rate=8)


@bench
def commit_time(b):
    """The rename alone, after the streamed data have reached the disk (`sync` before it): 1 GiB against 16 MiB."""
    root = Root(b, 'compression=none')
    block = np.random.default_rng(1).integers(0, 255, 16 << 20, np.uint8)

    def commit(mib):
        def run():
            root.fresh()
            # Not as one array: commands that are started later inherit the peak of this process.
            with open(root.mount / '1.tmp/default/w.npy', 'wb') as f:
                shape = (mib << 20,)
                np.lib.format.write_array_header_1_0(f, {'descr': '|u1', 'fortran_order': False, 'shape': shape})
                for _ in range(mib // 16):
                    f.write(block)
            os.sync()
            # A disk's own cache has more of what has just been written than of what was long ago.
            time.sleep(1)
            begin = time.perf_counter()
            root.commit()
            return time.perf_counter() - begin
        return run
    b.contender('of 1 GiB', commit(1024))
    b.contender('of 16 MiB', commit(16))
    b.row('commit alone, 1 GiB streamed before', 'of 1 GiB', 'of 16 MiB', latency=2)
