# SPDX-License-Identifier: Apache-2.0
"""docs/posix.md: each cell of its tables is tried on a mount, so that page and program cannot differ.

A row's first cell is the name of an operation below, in code quotes; the cells after it are what each place answers.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import pathlib
import re
import shutil
import stat
import types

import numpy as np
import pytest

from lib import mounts

TOP = pathlib.Path(__file__).resolve().parents[2]
PAGE = TOP / 'docs/posix.md'
LIBC = ctypes.CDLL(None, use_errno=True)
RENAME_NOREPLACE, RENAME_EXCHANGE, AT_FDCWD = 1, 2, -100
PUNCH_HOLE = 3      # and FALLOC_FL_KEEP_SIZE, without which no file system takes it
SAVE = 'user.pytree.save.compression'


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def rename2(old, new, flags):
    checked(LIBC.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags))


def fallocate(fd, mode, offset, size):
    checked(LIBC.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(size)))


# ---- operations on a file ----

def opened(flags, then=lambda fd: None):
    def operation(place):
        fd = os.open(place.file, flags)
        try:
            then(fd)
        finally:
            os.close(fd)
    return operation


def maps(access):
    def operation(fd):
        with mmap.mmap(fd, 0, flags=mmap.MAP_SHARED, prot=access) as m:
            m[0]
    return operation


def write_where_it_is(fd):
    os.pwrite(fd, os.pread(fd, 4, 0), 0)


def locks(fd):
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)


FILE = {
    'stat': lambda p: os.stat(p.file),
    'access(R_OK)': lambda p: os.access(p.file, os.R_OK) or refused(p.file, os.R_OK),
    'access(W_OK)': lambda p: os.access(p.file, os.W_OK) or refused(p.file, os.W_OK),
    'access(X_OK)': lambda p: os.access(p.file, os.X_OK) or refused(p.file, os.X_OK),
    'open(O_RDONLY)': opened(os.O_RDONLY),
    'read': opened(os.O_RDONLY, lambda fd: os.pread(fd, 64, 0)),
    'read at the end': opened(os.O_RDONLY, lambda fd: os.pread(fd, 64, os.fstat(fd).st_size)),
    'open(O_RDONLY\\|O_DIRECT)': opened(os.O_RDONLY | os.O_DIRECT),
    'open(O_RDONLY\\|O_TRUNC)': opened(os.O_RDONLY | os.O_TRUNC),
    'open(O_WRONLY)': opened(os.O_WRONLY),
    'open(O_RDWR)': opened(os.O_RDWR),
    'open(O_WRONLY\\|O_TRUNC)': opened(os.O_WRONLY | os.O_TRUNC),
    'open(O_WRONLY\\|O_APPEND)': opened(os.O_WRONLY | os.O_APPEND),
    'open(O_DIRECTORY)': opened(os.O_RDONLY | os.O_DIRECTORY),
    'pwrite': opened(os.O_RDWR, write_where_it_is),
    'lseek(SEEK_DATA)': opened(os.O_RDONLY, lambda fd: os.lseek(fd, 0, os.SEEK_DATA)),
    'lseek(SEEK_HOLE)': opened(os.O_RDONLY, lambda fd: os.lseek(fd, 0, os.SEEK_HOLE)),
    'mmap(PROT_READ, MAP_SHARED)': opened(os.O_RDONLY, maps(mmap.PROT_READ)),
    'mmap(PROT_WRITE, MAP_SHARED)': opened(os.O_RDWR, maps(mmap.PROT_READ | mmap.PROT_WRITE)),
    'fsync': opened(os.O_RDONLY, os.fsync),
    'truncate': lambda p: os.truncate(p.file, 10),
    'ftruncate': opened(os.O_RDWR, lambda fd: os.ftruncate(fd, 10)),
    'fallocate': opened(os.O_RDWR, lambda fd: fallocate(fd, 0, 0, 4096)),
    'fallocate(PUNCH_HOLE)': opened(os.O_RDWR, lambda fd: fallocate(fd, PUNCH_HOLE, 0, 64)),
    'flock, fcntl(F_SETLK)': opened(os.O_RDONLY, locks),
    'ioctl': opened(os.O_RDONLY, lambda fd: fcntl.ioctl(fd, 0x5401)),
    'chmod': lambda p: os.chmod(p.file, 0o600),
    'chown': lambda p: os.chown(p.file, 1000, 1000),
    'utimensat': lambda p: os.utime(p.file, (1, 2)),
    'unlink': lambda p: os.unlink(p.file),
    'rmdir of a file': lambda p: os.rmdir(p.file),
    'readlink': lambda p: os.readlink(p.file),
    'execve': lambda p: os.execve(p.file, ['x'], {}),
    'link': lambda p: os.link(p.file, p.dir / 'hard.json'),
    'rename of a file': lambda p: os.rename(p.file, p.dir / 'moved.npy'),
    'rename over a file': lambda p: os.rename(p.file, p.other),
    'rename(RENAME_NOREPLACE) over a file': lambda p: rename2(p.file, p.other, RENAME_NOREPLACE),
    'rename(RENAME_EXCHANGE)': lambda p: rename2(p.file, p.other, RENAME_EXCHANGE),
    'rename to another file system': lambda p: os.rename(p.file, p.elsewhere),
    'listxattr': lambda p: os.listxattr(p.file),
    'getxattr(user.pytree.dtype)': lambda p: os.getxattr(p.file, 'user.pytree.dtype'),
    'getxattr(user.other)': lambda p: os.getxattr(p.file, 'user.other'),
    'getxattr(security.capability)': lambda p: os.getxattr(p.file, 'security.capability'),
    'setxattr(user.pytree.save.OPTION)': lambda p: os.setxattr(p.file, SAVE, b'none'),
    'setxattr(user.pytree.OTHER)': lambda p: os.setxattr(p.file, 'user.pytree.stored_bytes', b'1'),
    'setxattr(user.other)': lambda p: os.setxattr(p.file, 'user.other', b'1'),
    'setxattr(trusted.other)': lambda p: os.setxattr(p.file, 'trusted.other', b'1'),
    'removexattr': lambda p: os.removexattr(p.file, 'user.other'),
    'copy_file_range into it': lambda p: copy_into(p),
}


def refused(path, mode):
    checked(LIBC.access(os.fsencode(path), mode))


def copy_into(place):
    with open(place.source, 'rb') as source, open(place.file, 'r+b', buffering=0) as target:
        os.copy_file_range(source.fileno(), target.fileno(), 1 << 20)


# ---- operations on a directory ----

def opened_dir(flags, then=lambda fd: None):
    def operation(place):
        fd = os.open(place.dir, flags)
        try:
            then(fd)
        finally:
            os.close(fd)
    return operation


def made(name, flags=0):
    return lambda p: os.close(os.open(p.dir / name, os.O_CREAT | os.O_WRONLY | flags, 0o644))


DIRECTORY = {
    'readdir': lambda p: os.listdir(p.dir),
    'open(O_WRONLY) of a directory': opened_dir(os.O_WRONLY),
    'fsync of a directory': opened_dir(os.O_RDONLY, os.fsync),
    'statfs': lambda p: os.statvfs(p.dir),
    'look up a name that is not there': lambda p: os.stat(p.dir / 'absent.npy'),
    'look up a name of 256 bytes': lambda p: os.stat(p.dir / ('x' * 256)),
    'open(O_CREAT)': made('new.json'),
    'open(O_CREAT\\|O_EXCL) of a file that is there': lambda p: made(p.there, os.O_EXCL)(p),
    'open(O_CREAT) of a name that no key has': made('a%zz.json'),
    'open(O_TMPFILE)': opened_dir(os.O_TMPFILE | os.O_RDWR),
    'mkdir': lambda p: os.mkdir(p.dir / 'new'),
    'mkdir of a directory that is there': lambda p: os.mkdir(p.sub),
    'rmdir of an empty directory': lambda p: os.rmdir(p.empty),
    'rmdir of a directory with files': lambda p: os.rmdir(p.sub),
    'unlink of a directory': lambda p: os.unlink(p.sub),
    'unlink of a name that is not there': lambda p: os.unlink(p.dir / 'absent.npy'),
    'rename of a directory': lambda p: os.rename(p.sub, p.dir / 'moved'),
    'rename over a directory with files': lambda p: os.rename(p.empty, p.sub),
    'rename of a directory into itself': lambda p: os.rename(p.sub, p.sub / 'in'),
    'rename into a committed step': lambda p: os.rename(p.sub, p.step / 'moved'),
    'rename into a draft': lambda p: os.rename(p.sub, p.draft / 'moved'),
    'rename into the root': lambda p: os.rename(p.sub, p.m / 'moved'),
    'symlink': lambda p: os.symlink('x', p.dir / 'soft.json'),
    'mknod of a regular file': lambda p: os.mknod(p.dir / 'node.json', stat.S_IFREG | 0o644),
    'mknod of a device, pipe or socket': lambda p: os.mkfifo(p.dir / 'pipe'),
    'chmod of a directory': lambda p: os.chmod(p.dir, 0o700),
    'chown of a directory': lambda p: os.chown(p.dir, 1000, 1000),
    'utimensat of a directory': lambda p: os.utime(p.dir, (1, 2)),
    'setxattr(user.pytree.save.OPTION) of a directory': lambda p: os.setxattr(p.dir, SAVE, b'none'),
    'setxattr(user.pytree.kind) of a directory': lambda p: os.setxattr(p.dir, 'user.pytree.kind', b'list'),
    'setxattr(user.other) of a directory': lambda p: os.setxattr(p.dir, 'user.other', b'1'),
}


# ---- names in the root ----

ROOT = {
    'mkdir 7.tmp': lambda p: os.mkdir(p.m / '7.tmp'),
    'mkdir 7': lambda p: os.mkdir(p.m / '7'),
    'mkdir 1.tmp, where step 1 is': lambda p: os.mkdir(p.m / '1.tmp'),
    'mkdir 2.tmp, where the draft is': lambda p: os.mkdir(p.m / '2.tmp'),
    'rename 2.tmp 2': lambda p: os.rename(p.m / '2.tmp', p.m / '2'),
    'rename 2.tmp 3.tmp': lambda p: os.rename(p.m / '2.tmp', p.m / '3.tmp'),
    'rename 2.tmp 1, where step 1 is': lambda p: os.rename(p.m / '2.tmp', p.m / '1'),
    'rename 2.tmp name': lambda p: os.rename(p.m / '2.tmp', p.m / 'name'),
    'rename 2.tmp 2, a leaf is open for writing': lambda p: rename_while_open(p),
    'rename 2.tmp 2, a file is not a leaf': lambda p: rename_with(p, 'notes.md'),
    'rename 2.tmp 2, an array is not whole': lambda p: rename_with(p, 'half.npy'),
    'rename 2.tmp 2, there is nothing in it': lambda p: rename_empty(p),
    'rename 1 3': lambda p: os.rename(p.m / '1', p.m / '3'),
    'rename 1 3.tmp': lambda p: os.rename(p.m / '1', p.m / '3.tmp'),
    'rename 2.tmp 2.tmp/default/x': lambda p: os.rename(p.m / '2.tmp', p.m / '2.tmp/default/x'),
    'rmdir 2.tmp': lambda p: os.rmdir(p.m / '2.tmp'),
    'rmdir 2.tmp, when it is empty': lambda p: (shutil.rmtree(p.m / '2.tmp/default'), os.rmdir(p.m / '2.tmp')),
    'rmdir 1': lambda p: os.rmdir(p.m / '1'),
    'unlink latest': lambda p: os.unlink(p.m / 'latest'),
    'readlink latest': lambda p: os.readlink(p.m / 'latest'),
    'rmdir .pytreefs': lambda p: os.rmdir(p.m / '.pytreefs'),
    'mkdir .pytreefs': lambda p: os.mkdir(p.m / '.pytreefs'),
}


def rename_while_open(place):
    with open(place.m / '2.tmp/default/w.npy', 'r+b'):
        os.rename(place.m / '2.tmp', place.m / '2')


def rename_with(place, name):
    (place.m / '2.tmp/default' / name).write_bytes((place.m / '2.tmp/default/w.npy').read_bytes()[:-1])
    os.rename(place.m / '2.tmp', place.m / '2')


def rename_empty(place):
    shutil.rmtree(place.m / '2.tmp/default')
    os.rename(place.m / '2.tmp', place.m / '2')


def answer(operation, place):
    """'ok', or the name of the errno."""
    try:
        operation(place)
    except OSError as e:
        return 'EOPNOTSUPP' if e.errno == errno.EOPNOTSUPP else errno.errorcode[e.errno]
    return 'ok'


def place(m, d, outside, file='w.npy', sub='d', empty='empty', other='v.npy'):
    """Where an operation finds its names: in the directory d of a mount."""
    step = m / '1/default'
    return types.SimpleNamespace(m=m.path, dir=d, file=d / file, other=d / other, sub=d / sub, empty=d / empty, there=file,
                                 step=step, draft=m / '2.tmp/default', elsewhere=outside / 'elsewhere', source=step / 'd/u.npy')


# The columns of the page.
COLUMNS = {
    'a draft': lambda m, out: place(m, m / '2.tmp/default', out),
    'a committed step': lambda m, out: place(m, m / '1/default', out),
    'the root': lambda m, out: place(m, m.path, out, file='latest', sub='1', empty='1'),
    'a view': lambda m, out: place(m, m / '1/default', out, file='w[0:2].npy'),
    '`D.safetensors`': lambda m, out: place(m, m / '1/default', out, file='d.safetensors'),
    '`_METADATA` of a draft': lambda m, out: place(m, m / '2.tmp/default', out, file='_METADATA'),
    '`.pytreefs`': lambda m, out: place(m, m / '.pytreefs', out, file='stats', sub='stored', empty='stored', other='config'),
    'answer': lambda m, out: place(m, m.path, out),
}


def fill(d):
    """An item of a draft: three arrays, a directory with one of them, and an empty one."""
    (d / 'd').mkdir(parents=True)
    (d / 'empty').mkdir()
    for name in ('w', 'v', 'd/u'):
        np.save(d / f'{name}.npy', np.arange(64, dtype=np.float32).reshape(8, 8))


def begin_again(m, source):
    """Step 1 and draft 2.tmp, and nothing else."""
    for name in os.listdir(m.path):
        if name.endswith('.tmp'):
            shutil.rmtree(m / name)
        elif name != '1':
            shutil.rmtree(source / name)
            mounts.wait_for(lambda: not (m / name).exists())
    if not (m / '1').exists():
        fill(m / '1.tmp/default')
        os.rename(m / '1.tmp', m / '1')
    fill(m / '2.tmp/default')


def tables():
    """{heading: (names of columns, {operation: [what each place answers]})} of the page."""
    found, heading = {}, None
    for line in PAGE.read_text().splitlines():
        if line.startswith('## '):
            heading = line[3:]
        elif line.startswith('|') and heading:
            # A bar within a name has a backslash before it.
            cells = [cell.strip() for cell in re.split(r'(?<!\\)\|', line)[1:-1]]
            if heading not in found:
                found[heading] = cells[1:], {}
            elif set(cells[0]) != {'-'}:
                found[heading][1][cells[0].strip('`')] = cells[1:]
    return found


@pytest.mark.parametrize('heading,operations', [('Files', FILE), ('Directories', DIRECTORY), ('Names in the root', ROOT)])
def test_every_cell_of_the_page_is_what_a_mount_answers(mount, tmp_path, heading, operations):
    columns, rows = tables()[heading]
    assert list(rows) == list(operations), 'each operation has a row, in the order of this file'
    source = tmp_path / 'source'
    source.mkdir()
    m = mount(source, 'shape=root', allow_errors=True)
    wrong, fresh = [], False
    for name, cells in rows.items():
        for column, said in zip(columns, cells, strict=True):
            if not fresh:
                begin_again(m, source)
            found = answer(operations[name], COLUMNS[column](m, tmp_path))
            # A refused call has changed nothing, except drafts that a row of the root prepares.
            fresh = found != 'ok' and heading != 'Names in the root'
            if found != said:
                wrong.append(f'{name} in {column}: {found}, the page says {said}')
    assert not wrong, '\n'.join(wrong)
