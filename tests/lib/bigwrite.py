# SPDX-License-Identifier: Apache-2.0
"""A leaf that is larger than the write budget: written by each way of writing, checked, and the daemon's peak.

tests/mount/test_write_memory.py writes 160 MiB; tests/soak/memory as much as it is asked for.
"""

import os
import subprocess
import threading

import numpy as np

from lib import mounts

MIB = 1 << 20
SMALL = 64 * MIB        # the constant beside cache and budgets that the design allows


def block(i):
    """The i-th MiB: bytes that zstd shrinks to about a half, and that take a millisecond to make."""
    return (np.frombuffer(np.random.default_rng(i).bytes(MIB), np.uint8) & 15).tobytes()


def header(mib):
    """Of an .npy with mib MiB of float32."""
    import io
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {'descr': '<f4', 'fortran_order': False, 'shape': (mib * 256, 1024)})
    return out.getvalue()


def in_order(fd, head, mib):
    os.pwrite(fd, head, 0)
    for i in range(mib):
        os.pwrite(fd, block(i), len(head) + i * MIB)


def out_of_order(fd, head, mib):
    """From the back, in odd pieces, the header last."""
    for i in reversed(range(mib)):
        data = block(i)
        os.pwrite(fd, data[300_000:], len(head) + i * MIB + 300_000)
        os.pwrite(fd, data[:300_000], len(head) + i * MIB)
    os.pwrite(fd, head, 0)


def column_major(fd, head, mib):
    """The same bytes under a header that says that the array is in column-major order."""
    head = head.replace(b"'fortran_order': False", b"'fortran_order': True ")
    in_order(fd, head, mib)


WAYS = {'in order': in_order, 'out of order': out_of_order, 'column-major': column_major}


def write(path, way, mib):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        WAYS[way](fd, header(mib), mib)
    finally:
        os.close(fd)


def same(path, mib):
    """The file holds what was written."""
    head = len(header(mib))
    with open(path, 'rb', buffering=0) as f:
        f.seek(head)
        for i in range(mib):
            got = b''
            while len(got) < MIB:
                piece = f.read(MIB - len(got))
                assert piece, f'it ends in MiB {i}'
                got += piece
            assert got == block(i), f'MiB {i} differs'
        assert f.read(1) == b''


def run(program, directory, way, mib, budget, options=(), writers=1):
    """Write (writers leaves at once), commit, read back; the daemon's peak while it wrote, and afterwards."""
    source = directory / 'source'
    source.mkdir(parents=True)
    m = mounts.Mount(program, source, directory / 'mnt', directory / 'log',
                     ['cache=64M', f'write_budget={budget}M', *options])
    try:
        top = m / '1.tmp' / 'default'
        top.mkdir(parents=True)
        jobs = [threading.Thread(target=write, args=(top / f'w{i}.npy', way, mib)) for i in range(writers)]
        for j in jobs:
            j.start()
        for j in jobs:
            j.join()
        os.rename(m / '1.tmp', m / '1')
        peak = m.memory('VmHWM')
        if way != 'column-major':
            for i in range(writers):
                same(m / '1' / 'default' / f'w{i}.npy', mib)
        stored = int(subprocess.run(['du', '-sm', source], capture_output=True, text=True, check=True).stdout.split()[0])
        assert stored <= mib * writers * 1.1 + 8, f'{stored} MiB are stored'
        return peak, m.memory('VmHWM')
    finally:
        why = m.unmount()
        assert not why, why
