# SPDX-License-Identifier: Apache-2.0
"""A small ext4 disk with a place that cannot be read: a real error of a block device, for tests.

The disk is an image under a loop device. Where the kernel has device-mapper a block of it becomes bad (target
`error`); elsewhere the image is truncated at that place, which ext4 sees as the same EIO.
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import time

BYTES = 64 << 20
BLOCK = 4096
SECTOR = 512
ENV = dict(os.environ, PATH=os.environ.get('PATH', '') + ':/usr/sbin:/sbin', LC_ALL='C')


def run(*words, check=True, stdin=None):
    r = subprocess.run([*map(str, words)], capture_output=True, text=True, env=ENV, input=stdin, timeout=60)
    if check and r.returncode:
        raise OSError(f'{words}: {r.stderr.strip()}')
    return r.stdout.strip()


def missing():
    """Why there can be no such disk here; '' when there can."""
    if os.geteuid():
        return 'loop devices are root\'s'
    if not os.path.exists('/dev/loop-control'):
        return 'the kernel or the container has no loop devices'
    for tool in ('losetup', 'mkfs.ext4', 'filefrag'):
        if not shutil.which(tool, path=ENV['PATH']):
            return f'{tool} is not installed'
    return ''


class BadDisk:
    """Mounted at .path when made; nothing is left after close()."""

    def __init__(self, where):
        self.path, self.image = pathlib.Path(where) / 'disk', pathlib.Path(where) / 'image'
        self.name = f'pytreefs-test-{os.getpid()}-{time.monotonic_ns()}'
        self.loop = self.mapped = self.tail = None
        self.path.mkdir(parents=True)
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self):
        with self.image.open('wb') as f:
            f.truncate(BYTES)
        self.loop = run('losetup', '--show', '--find', self.image)
        device = self._map() or self.loop
        run('mkfs.ext4', '-q', '-b', BLOCK, '-O', '^has_journal', device)
        run('mount', '-t', 'ext4', device, self.path)

    def _table(self, bad=None):
        """The whole loop device, but for the block at the byte `bad`."""
        n, per_block = BYTES // SECTOR, BLOCK // SECTOR
        if bad is None:
            return f'0 {n} linear {self.loop} 0\n'
        at = bad // SECTOR
        return (f'0 {at} linear {self.loop} 0\n{at} {per_block} error\n'
                f'{at + per_block} {n - at - per_block} linear {self.loop} {at + per_block}\n')

    def _map(self):
        """The device above the loop device; None where there is no device-mapper."""
        try:
            run('dmsetup', 'create', self.name, '--noudevsync', stdin=self._table())
            self.mapped = f'/dev/mapper/{self.name}'
            run('dmsetup', 'mknodes', self.name)
            if os.path.exists(self.mapped):
                return self.mapped
        except OSError:
            pass
        run('dmsetup', 'remove', self.name, check=False) if shutil.which('dmsetup', path=ENV['PATH']) else None
        self.mapped = None
        return None

    def _place(self, file, off):
        """Where a byte of a file is on the disk."""
        for line in run('filefrag', '-v', '-b4096', file).splitlines():
            m = re.match(r'\s*\d+:\s+(\d+)\.\.\s*(\d+):\s+(\d+)\.\.', line)
            if m and int(m[1]) <= off // BLOCK <= int(m[2]):
                return (int(m[3]) + off // BLOCK - int(m[1])) * BLOCK
        raise OSError(f'{file} has no block at {off}')

    def _reload(self, table):
        run('dmsetup', 'suspend', '--noudevsync', self.name)
        try:
            run('dmsetup', 'load', self.name, stdin=table)
        finally:
            run('dmsetup', 'resume', '--noudevsync', self.name)

    def spoil(self, file, off):
        """
        The block of the file with this byte cannot be read from now on; nothing of the file is in memory. Nothing may be
        written to the disk until mend(): a write after the place where the image was cut makes the place a hole.
        """
        os.sync()
        bad = self._place(file, off)
        if self.mapped:
            self._reload(self._table(bad))
        else:
            with self.image.open('r+b') as f:
                f.seek(bad)
                self.tail = (bad, f.read())
                f.truncate(bad)
        self.forget(file)

    def mend(self):
        """Everything can be read again."""
        if self.mapped:
            self._reload(self._table())
        else:
            with self.image.open('r+b') as f:
                f.seek(self.tail[0])
                f.write(self.tail[1])

    @staticmethod
    def forget(file):
        """Leave nothing of a file in the page cache."""
        fd = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)

    def close(self):
        """Unmounted, also while somebody still uses it; the devices go with the last user."""
        if os.path.ismount(self.path):
            for how in ([], [], ['-l']):
                run('umount', *how, self.path, check=False)
                if not os.path.ismount(self.path):
                    break
                time.sleep(0.2)
        with contextlib.suppress(OSError):
            if self.mapped:
                run('dmsetup', 'remove', '--retry', '--noudevsync', self.name, check=False)
        if self.loop:
            run('losetup', '-d', self.loop, check=False)
