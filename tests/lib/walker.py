# SPDX-License-Identifier: Apache-2.0
"""Reads everything that a mount shows, as a hostile-input test needs it: python -m lib.walker MNT

Prints one JSON document: how much was read, which errors came, what hung, what must never come. Each
operation has its own time limit. Files are not read whole: a broken shape may claim exabytes.
"""

import collections
import errno
import json
import os
import signal
import stat
import sys

from lib.mutate import CANARY

LIMIT = 60              # seconds that one operation may take
PIECE = 1 << 20
ALLOWED = {errno.EIO, errno.EOPNOTSUPP, errno.ENOENT, errno.ENODATA, errno.EINVAL, errno.ENOTSUP,
           errno.ENXIO}         # SEEK_HOLE in an empty file


class Hang(Exception):
    pass


def _alarm(*_):
    raise Hang


class Walk:
    def __init__(self):
        self.errors = collections.Counter()
        self.out = {'files': 0, 'directories': 0, 'bytes': 0, 'hangs': [], 'odd': [], 'canary': []}

    def attempt(self, what, path, f):
        """f() under the time limit; None when it failed."""
        signal.setitimer(signal.ITIMER_REAL, LIMIT)
        try:
            return f()
        except Hang:
            self.out['hangs'].append(f'{what} {path}')
        except OSError as e:
            self.errors[errno.errorcode.get(e.errno, str(e.errno))] += 1
            if e.errno not in ALLOWED:
                self.out['odd'].append(f'{what} {path}: {os.strerror(e.errno)}')
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return None

    def saw(self, path, data):
        self.out['bytes'] += len(data)
        if CANARY[:16] in data or b'root:x:0:0' in data:
            self.out['canary'].append(path)

    def file(self, path, size):
        self.out['files'] += 1
        fd = self.attempt('open', path, lambda: os.open(path, os.O_RDONLY))
        if fd is None:
            return
        try:
            for off in sorted({0, max(0, size // 2 - 100), max(0, size - 4096)}):
                data = self.attempt(f'read at {off} of', path, lambda off=off: os.pread(fd, PIECE, off))
                if data:
                    self.saw(path, data)
            self.attempt('seek in', path, lambda: os.lseek(fd, 0, os.SEEK_HOLE))
        finally:
            os.close(fd)

    def attributes(self, path):
        for name in self.attempt('listxattr', path, lambda: os.listxattr(path)) or []:
            value = self.attempt('getxattr', path, lambda name=name: os.getxattr(path, name))
            if value:
                self.saw(path, value)

    def visit(self, path, depth=0):
        st = self.attempt('stat', path, lambda: os.lstat(path))
        if st is None or depth > 300:
            return
        self.attributes(path)
        if stat.S_ISDIR(st.st_mode):
            self.out['directories'] += 1
            for name in sorted(self.attempt('list', path, lambda: os.listdir(path)) or []):
                self.visit(os.path.join(path, name), depth + 1)
        elif stat.S_ISREG(st.st_mode):
            self.file(path, st.st_size)
        elif stat.S_ISLNK(st.st_mode):
            data = self.attempt('follow', path, lambda: open(path, 'rb').read(PIECE))
            if data:
                self.saw(path, data)
        else:
            self.out['odd'].append(f'{path}: mode {st.st_mode:o}')


def main(mnt, *also):
    signal.signal(signal.SIGALRM, _alarm)
    walk = Walk()
    for path in (mnt, *also):
        walk.visit(path)
    walk.out['errors'] = dict(walk.errors)
    json.dump(walk.out, sys.stdout)


if __name__ == '__main__':
    sys.setrecursionlimit(5000)
    main(*sys.argv[1:])
