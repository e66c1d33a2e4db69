# SPDX-License-Identifier: Apache-2.0
"""mount(): a checkpoint as files while a block runs."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ._context import Path, options_text
from ._program import is_missing, run
from ._pytreefs import Error, NotFoundError


def _is_mounted(where: str) -> bool:
    """Also when its daemon is dead, where stat() fails."""
    text = where.replace('\\', '\\134').replace(' ', '\\040').replace('\t', '\\011').replace('\n', '\\012')
    with open('/proc/self/mountinfo', encoding='utf-8', errors='surrogateescape') as f:
        return any(line.split(' ')[4] == text for line in f)


def _helper() -> str | None:
    import shutil
    return shutil.which('fusermount3') or shutil.which('fusermount3', path='/bin:/usr/bin:/sbin:/usr/sbin')


def _unmount(where: str) -> None:
    """Unmount, in whatever state the mount is. Error when it is still mounted afterwards."""
    import subprocess
    first = run('umount', where)
    if not _is_mounted(where):
        return
    run('umount', '--lazy', where)
    if _is_mounted(where) and (helper := _helper()):
        subprocess.run([helper, '-u', '-z', where], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False)
    if _is_mounted(where):
        raise Error(errno.EBUSY, first.stderr.strip() or 'cannot be unmounted', where)


# Options of mount(8) and FUSE, which have no value: `accepted` of tools/commands/cmd_mount.c, with which a test compares them.
_WORDS = frozenset((
    'allow_other', 'allow_root', 'default_permissions', 'ro', 'rw', 'suid', 'nosuid', 'dev', 'nodev', 'exec', 'noexec', 'atime', 'noatime',
    'sync', 'async', 'dirsync', 'auto_unmount'))


def _mount_options(options: dict[str, Any]) -> str:
    words = [name for name, value in options.items() if name in _WORDS and value not in (None, False)]
    rest = options_text({name: value for name, value in options.items() if name not in _WORDS})
    return ','.join([*words, *([rest] if rest else [])])


@contextmanager
def mount(source: Path, mountpoint: Path | None = None, **options: Any) -> Iterator[str]:
    """A checkpoint as files: a context manager that gives the path where they are.

    mountpoint: an empty directory, which is made when it is not there; None: a temporary one. What was made is removed
    at the end. The end unmounts whatever happened in the block, also when the daemon is dead; files that are still open
    then go on reading until they are closed. options are those of `-o` (`pytreefs help options`); also ro=True, allow_other=True and
    other words of mount(8).

    >>> with mount('ckpts') as path:        # doctest: +SKIP
    ...     np.load(path + '/latest/state/params/embed/table.npy').shape
    (128, 32)

    Raises Error when it cannot be mounted, with the reason, and the package that is missing when that is it.
    """
    import tempfile
    if not os.path.exists('/dev/fuse'):
        raise Error(errno.ENODEV, 'there is no /dev/fuse: the kernel module fuse is not loaded, or a container hides it',
                    os.fspath(source))
    if _helper() is None and os.geteuid() != 0:
        raise NotFoundError(errno.ENOENT, 'fusermount3 is missing: install the package fuse3 (Debian, Fedora) of your system',
                    'fusermount3')
    made = None
    if mountpoint is None:
        where = made = os.path.realpath(tempfile.mkdtemp(prefix='pytreefs-'))
    else:
        where = os.path.realpath(os.fspath(mountpoint))
        if not os.path.lexists(where):
            os.makedirs(where)
            made = where
    try:
        text = _mount_options(options)
        words = ['-o', text] if text else []
        r = run('mount', *words, '--', os.fspath(source), where)
        if r.returncode:
            text = r.stderr.strip().removeprefix('pytreefs: ')
            if _helper() is None:
                text += ' (fusermount3 is missing: install the package fuse3)'
            if is_missing(os.fspath(source)):
                raise NotFoundError(errno.ENOENT, text, os.fspath(source))
            raise Error(errno.EIO, text or 'cannot be mounted', os.fspath(source))
        try:
            yield where
        finally:
            _unmount(where)
    finally:
        if made is not None:
            try:
                os.rmdir(made)
            except OSError:
                pass
