# SPDX-License-Identifier: Apache-2.0
"""stat(2) is exact before anything is read: size, blocks, times, inodes, modes; and nothing can be changed."""

import ctypes
import errno
import json
import os
import re
import stat
import subprocess

import numpy as np
import pytest

from lib import compare


def walk(root):
    for where, dirs, files in os.walk(root):
        for name in dirs + files:
            yield os.path.join(where, name)


def test_size_is_known_without_reading(mount, cases):
    """The first stat of a fresh mount already has the exact size, and no byte of a chunk was read for it."""
    case = cases('chunked-perleaf-zarr2-v0')
    m = mount(case.path)
    sizes = {p: os.stat(p).st_size for p in walk(m.path) if p.endswith('.npy')}
    assert len(sizes) == 4
    for p, size in sizes.items():
        assert len(compare.read_all(p)) == size


def test_inodes_are_stable_and_unique(mount, cases):
    case = cases('matrix-ocdbt-zarr2-zstd-v0')
    first = mount(case.path)
    inodes = {os.path.relpath(p, first.path): os.lstat(p).st_ino for p in walk(first.path)}
    assert len(set(inodes.values())) == len(inodes)
    second = mount(case.path)
    again = {os.path.relpath(p, second.path): os.lstat(p).st_ino for p in sorted(walk(second.path), reverse=True)}
    assert again == inodes


def test_names_that_were_listed_are_not_requested_again(mount, cases):
    """Below an item, whose directories never change: the kernel has them."""
    m = mount(cases('matrix-ocdbt-zarr2-zstd-v0').path, 'trace=fs')

    def listed():
        begun = len(m.log_lines())
        names = subprocess.run(['find', m.path], check=True, stdout=subprocess.PIPE).stdout
        return names, re.findall(r"readdir(?:plus)? '(.*?)'", '\n'.join(m.log_lines()[begun:]))

    names, first = listed()
    again, second = listed()
    assert again == names and {'', 'opt'} <= set(first), first
    assert 'opt' not in second, second


def test_readdir_tells_type_and_inode(mount, cases):
    m = mount(cases('manager-root').path)
    for where, _, _ in os.walk(m.path):
        for e in os.scandir(where):
            st = os.lstat(e.path)
            assert e.inode() == st.st_ino and e.is_dir(follow_symlinks=False) == stat.S_ISDIR(st.st_mode)


def test_mtime_is_the_commit_time(mount, cases):
    case = cases('step-of-two-times')
    m = mount(case.path)
    for where, want in case.notes['mtime'].items():
        assert os.stat(m / where).st_mtime_ns == want, where


def test_mtime_of_every_leaf_is_that_of_its_step(mount, cases):
    case = cases('manager-root')
    m = mount(case.path)
    for step in case.steps:
        doc = json.loads((case.path / step / '_CHECKPOINT_METADATA').read_text())
        leaves = [p for p, _, _ in compare.leaf_paths(m / step / 'state', case.trees[f'{step}/state'])]
        for p in [m / step, m / step / 'state', *leaves]:
            assert os.stat(p).st_mtime_ns == doc['commit_timestamp_nsecs'], p


def test_blocks_are_the_stored_bytes(mount, cases):
    """ls -l shows the logical size, du the compressed one."""
    case = cases('chunked-ocdbt-zarr2-v0')
    m = mount(case.path)
    for path, value, _ in compare.leaf_paths(m.path, case.tree()):
        stored = compare.xattr(path, 'stored_bytes')
        assert isinstance(stored, int) and stored >= 0
        assert os.stat(path).st_blocks == (stored + 511) // 512, path


def test_stored_bytes_of_uncompressed_chunks(mount, cases):
    """Without compression the chunks of an array hold its bytes and the overhang of its edge chunks."""
    case = cases('sparse')
    m = mount(case.path)
    assert compare.xattr(m / 'raw.npy', 'stored_bytes') == 2 << 20
    assert compare.xattr(m / 'empty.npy', 'stored_bytes') == 0
    assert 0 < compare.xattr(m / 'zstd.npy', 'stored_bytes') < 3 << 20


@pytest.mark.feature('B14')
def test_attributes_of_directories(mount, cases):
    case = cases('manager-root')
    m = mount(case.path)
    for where in ('10', '10/state'):
        got = compare.xattrs(m / where)
        assert got['leaf_count'] >= 3 and got['logical_bytes'] >= 48, (where, got)
        assert got['stored_bytes'] > 0
    assert compare.xattrs(m / '10/state')['leaf_count'] == 3


def test_absent_attributes_are_enodata(mount, cases):
    m = mount(cases('matrix-ocdbt-zarr2-zstd-v0').path)
    for name in ('user.pytree.nosuch', 'user.other', 'user.pytree.shape'):
        with pytest.raises(OSError) as e:
            os.getxattr(m / 'name.txt', name)
        assert e.value.errno == errno.ENODATA


def test_getfattr_lists_them(mount, cases):
    m = mount(cases('matrix-ocdbt-zarr3-zstd-v0').path)
    out = subprocess.run(['getfattr', '-d', '-m', '.', m / 'params/dense/kernel.npy'], capture_output=True, text=True)
    for name in ('dtype', 'shape', 'chunks', 'codecs', 'typestr', 'stored_bytes', 'key'):
        assert f'user.pytree.{name}=' in out.stdout, out.stdout + out.stderr
    assert json.loads(os.getxattr(m / 'params/dense/kernel.npy', 'user.pytree.chunks')) == [24, 16]
    codecs = os.getxattr(m / 'params/dense/kernel.npy', 'user.pytree.codecs')
    assert b'zstd' in codecs and json.loads(codecs)


def test_modes_are_those_of_something_read_only(mount, cases):
    m = mount(cases('matrix-ocdbt-zarr2-zstd-v0').path)
    for p in walk(m.path):
        st = os.lstat(p)
        assert not st.st_mode & 0o222 or stat.S_ISDIR(st.st_mode), p
        assert st.st_mode & 0o400 and st.st_nlink >= 1 and st.st_uid == os.getuid()


@pytest.mark.parametrize('options', [(), ('allow_delete',)], ids=['read-only', 'allow_delete'])
def test_modes_of_control_files_are_those_of_something_read_only(mount, root, options):
    """Also where steps can be deleted, so that other directories can be written. The log is for those who may write."""
    root.chmod(0o775)
    top = mount(root, *options) / '.pytreefs'
    assert {name: oct((top / name).stat().st_mode & 0o777) for name in ('.', 'config', 'log', 'stats', 'version')} == {
        '.': '0o555', 'config': '0o444', 'log': '0o440', 'stats': '0o444', 'version': '0o444'}


@pytest.mark.parametrize('change', [
    lambda p: os.open(p / 'name.txt', os.O_WRONLY),
    lambda p: os.open(p / 'name.txt', os.O_RDWR),
    lambda p: os.open(p / 'new.npy', os.O_WRONLY | os.O_CREAT),
    lambda p: os.unlink(p / 'name.txt'),
    lambda p: os.mkdir(p / 'new'),
    lambda p: os.rmdir(p / 'params'),
    lambda p: os.rename(p / 'name.txt', p / 'other.txt'),
    lambda p: os.truncate(p / 'name.txt', 0),
    lambda p: os.symlink('x', p / 'link'),
    lambda p: os.link(p / 'name.txt', p / 'hard'),
    lambda p: os.chmod(p / 'name.txt', 0o600),
    lambda p: os.utime(p / 'name.txt'),
    lambda p: os.setxattr(p / 'name.txt', 'user.pytree.kind', b'"list"'),
    lambda p: os.mknod(p / 'node'),
], ids=['write', 'read-write', 'create', 'unlink', 'mkdir', 'rmdir', 'rename', 'truncate', 'symlink', 'link',
        'chmod', 'utime', 'setxattr', 'mknod'])
def test_a_committed_item_cannot_be_changed(mount, cases, change):
    case = cases('matrix-ocdbt-zarr2-zstd-v0')
    m = mount(case.path, allow_errors=True)
    with pytest.raises(OSError) as e:
        change(m.path)
    allowed = {errno.EROFS, errno.EPERM} if change.__code__.co_names[1] in ('link', 'mknod') else {errno.EROFS}
    assert e.value.errno in allowed, e.value
    assert not compare.compare(m.path, case.tree())


def test_statfs(mount, cases):
    m = mount(cases('manager-root').path)
    assert os.statvfs(m.path).f_namemax >= 255
    out = subprocess.run(['df', '-T', m.path], capture_output=True, text=True)
    assert out.returncode == 0 and 'pytreefs' in out.stdout


def test_opening_to_truncate_is_refused_and_touches_nothing(mount, cases):
    """The kernel forgets a file's pages once such an open succeeded, and whoever has mapped it dies of that."""
    m = mount(cases('matrix-ocdbt-zarr2-zstd-v0').path, allow_errors=True)
    leaf = next(p for p in m.path.rglob('*.npy') if p.stat().st_size > 128)
    for path in (leaf, leaf.with_name(leaf.stem + '.bin'), m / '_METADATA', m / '.pytreefs/stats'):
        with pytest.raises(OSError) as e:
            os.close(os.open(path, os.O_RDONLY | os.O_TRUNC))
        assert e.value.errno in (errno.EROFS, errno.EACCES), path
        assert path.stat().st_size > 0 or path.name == 'stats'


def test_access_says_what_modes_say(mount, cases):
    m = mount(cases('matrix-ocdbt-zarr2-zstd-v0').path)
    path = next(m.path.rglob('*.npy'))
    assert os.access(path, os.R_OK) and os.access(path.parent, os.R_OK | os.X_OK)
    assert not os.access(path, os.W_OK) and not os.access(path, os.X_OK)


def test_names_longer_than_any_are_refused(mount, cases):
    m = mount(cases('manager-root').path)
    limit = os.statvfs(m.path).f_namemax
    for call in (os.stat, os.listdir, os.mkdir):
        for where in ('', '10', '10/state'):
            with pytest.raises(OSError) as e:
                call(m / where / ('3' * (limit + 1)))
            assert e.value.errno == errno.ENAMETOOLONG, (call, where)
    log = '\n'.join(m.log_lines())
    for where in ('', '10/', '10/state/'):
        assert re.search(rf"no '{where}3{{{limit + 1}}}': a name of {limit + 1} bytes, the limit is {limit}", log), log


def test_rewinding_a_directory_shows_what_is_there_now(mount, tmp_path):
    (tmp_path / 'root').mkdir()
    m = mount(tmp_path / 'root')
    libc = ctypes.CDLL(None, use_errno=True)
    libc.opendir.restype = libc.fdopendir.restype = libc.readdir.restype = ctypes.c_void_p
    for name in ('rewinddir', 'readdir', 'closedir'):
        getattr(libc, name).argtypes = [ctypes.c_void_p]

    def names():
        while p := libc.readdir(d):
            yield ctypes.string_at(p + 19).decode()         # of struct dirent
    d = libc.opendir(os.fsencode(m.path))
    assert '7.tmp' not in set(names())
    (m / '7.tmp').mkdir()
    libc.rewinddir(d)
    assert '7.tmp' in set(names())
    libc.closedir(d)


def test_attributes_that_the_kernel_does_not_carry_are_not_named(mount, tmp_path):
    """`cp -a` and rsync ask for the value of each that is listed, and give up when one has no value."""
    (tmp_path / 'root').mkdir()
    m = mount(tmp_path / 'root', allow_errors=True)
    for step, n in ((1, 100), (2, 80000)):
        (m / f'{step}.tmp/default').mkdir(parents=True)
        np.save(m / f'{step}.tmp/default/w.npy', np.arange(3))
        (m / f'{step}.tmp').rename(m / str(step))
        meta = tmp_path / f'root/{step}/_CHECKPOINT_METADATA'
        meta.write_text(json.dumps({**json.loads(meta.read_text()), 'custom_metadata': {'x': 'y' * n}}))
    m = mount(tmp_path / 'root')
    assert 'user.pytree.custom_metadata' in os.listxattr(m / '1')
    assert 'user.pytree.custom_metadata' not in os.listxattr(m / '2')
    assert all(os.getxattr(m / '2', name) is not None for name in os.listxattr(m / '2'))
