# SPDX-License-Identifier: Apache-2.0
"""File systems below a mount (docs/filesystems.md): steps are read, written, refused and survive on each."""

import contextlib
import errno
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

from lib import compare, mounts
from lib.pairs import pairs

SAMPLE = pathlib.Path(__file__).resolve().parents[1] / 'data/sample'
W = np.arange(70_000, dtype=np.float32).reshape(700, 100)

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason='only root may mount file systems')


def can(*command, **how):
    return subprocess.run(command, capture_output=True, text=True, **how)


def on_image(kind, size, *mkfs):
    def make(tmp, at):
        if not shutil.which(mkfs[0]):
            pytest.skip(f'no {mkfs[0]} is installed')
        image = tmp / 'image'
        with open(image, 'wb') as f:
            f.truncate(size)
        subprocess.run([*mkfs, image], check=True, capture_output=True)
        r = can('mount', '-t', kind, '-o', 'loop', image, at)
        if r.returncode:
            pytest.skip(f'{kind} cannot be mounted here: {r.stderr.strip()}')
    return make


def on_tmpfs(tmp, at):
    if can('mount', '-t', 'tmpfs', '-o', 'size=64m', 'none', at).returncode:
        pytest.skip('no tmpfs can be mounted here')


def on_overlay(tmp, at):
    """Lower and upper lie on a tmpfs, since an overlay does not take another overlay."""
    below = tmp / 'below'
    below.mkdir()
    on_tmpfs(tmp, below)
    for name in ('lower', 'upper', 'work'):
        (below / name).mkdir()
    shutil.copytree(SAMPLE, below / 'lower/ckpts')
    r = can('mount', '-t', 'overlay', '-o', f'lowerdir={below}/lower,upperdir={below}/upper,workdir={below}/work', 'none', at)
    if r.returncode:
        pytest.skip(f'no overlay can be mounted here: {r.stderr.strip()}')


def on_fuse(tmp, at):
    if not shutil.which('bindfs'):
        pytest.skip('no bindfs is installed')
    (tmp / 'below').mkdir()
    subprocess.run(['bindfs', tmp / 'below', at], check=True, capture_output=True)


KINDS = {
    'ext4': on_image('ext4', 64 << 20, 'mkfs.ext4', '-q'),
    'xfs': on_image('xfs', 320 << 20, 'mkfs.xfs', '-q'),
    'btrfs': on_image('btrfs', 256 << 20, 'mkfs.btrfs', '-q'),
    'tmpfs': on_tmpfs,
    'overlay': on_overlay,
    'fuse': on_fuse,
}


def is_overlay(at):
    return subprocess.run(['stat', '-f', '-c', '%T', at], capture_output=True, text=True).stdout.strip() == 'overlayfs'


@pytest.fixture
def disk(tmp_path, request):
    """A file system of that kind, with the sample in ckpts/; unmounted whatever happens."""
    at = tmp_path / 'disk'
    at.mkdir()
    try:
        KINDS[request.param](tmp_path, at)
        if not (at / 'ckpts').exists():
            shutil.copytree(SAMPLE, at / 'ckpts')
        yield at
    finally:
        for place in (at, tmp_path / 'below'):
            if os.path.ismount(place):
                assert not mounts.unmount_with('umount', place)


@pytest.mark.parametrize('io,disk', pairs(['sync', 'uring'], list(KINDS)), indirect=['disk'])
def test_steps_are_read_and_written(disk, mount, run, io):
    """Steps read as from any other file system; a commit, a copy, a refusal and a deletion work."""
    m, plain = mount(disk / 'ckpts', f'io={io}', 'allow_delete', allow_errors=True), mount(SAMPLE)
    for file in plain.path.rglob('*'):
        if file.is_file():
            assert compare.read_all(m / file.relative_to(plain.path)) == file.read_bytes(), file
    d = m / '2000.tmp/default'
    d.mkdir(parents=True)
    np.save(d / 'w.npy', W)
    (d / 'bad.npy').write_bytes(b'x')
    with pytest.raises(OSError):
        (m / '2000.tmp').rename(m / '2000')
    (d / 'bad.npy').unlink()
    (m / '2000.tmp').rename(m / '2000')
    assert np.array_equal(np.load(m / '2000/default/w.npy'), W)
    (m / '2001.tmp').mkdir()
    subprocess.run(['cp', '-r', m / '1500/state', m / '2001.tmp/state'], check=True)
    (m / '2001.tmp').rename(m / '2001')
    if not is_overlay(disk):
        (m / '1000').rmdir()
    else:
        # An overlay does not rename directories of its lower layers; one that was written above them goes.
        with pytest.raises(OSError) as e:
            (m / '1000').rmdir()
        assert e.value.errno == errno.EXDEV and (m / '1000/state/step.json').exists()
        shutil.rmtree(disk / 'ckpts/1000')
    assert not m.unmount()
    # FUSE file systems keep files that are open under another name, so that a rest of a deleted step may stay for gc. They
    # hear some time after the mount has ended that none is open any more.
    mounts.wait_for(lambda: not any('.fuse_hidden' in name for _, _, files in os.walk(disk / 'ckpts') for name in files))
    run('gc', disk / 'ckpts')
    run('verify', disk / 'ckpts/2000')
    run('verify', disk / 'ckpts/2001')
    assert run('diff', disk / 'ckpts/1500/state', disk / 'ckpts/2001/state').returncode == 0
    assert sorted(p.name for p in (disk / 'ckpts').iterdir() if not p.name.startswith('.')) == \
        ['1500', '2000', '2001', 'metadata']
    assert not [p for p in (disk / 'ckpts').iterdir() if p.name.startswith('.')], 'a leftover'


@pytest.mark.parametrize('disk', ['ext4', 'tmpfs'], indirect=True)
def test_a_source_that_can_only_be_read(disk, mount):
    """Steps are shown; a draft is refused at its mkdir, with the file system's own error."""
    r = can('mount', '-o', 'remount,ro', disk)
    if r.returncode:
        pytest.skip(f'it cannot be remounted: {r.stderr.strip()}')
    m = mount(disk / 'ckpts', allow_errors=True)
    assert (m / '1500/state/step.json').read_text() == '1500\n'
    with pytest.raises(OSError) as e:
        (m / '3.tmp').mkdir()
    assert e.value.errno == errno.EROFS, e.value


def test_a_full_file_system(mount, tmp_path):
    """ENOSPC at a write or at the commit; the draft stays, and commits when there is room."""
    at = tmp_path / 'disk'
    at.mkdir()
    on_tmpfs(tmp_path, at)
    try:
        (at / 'ckpts').mkdir()
        (at / 'filler').write_bytes(bytes(60 << 20))
        m = mount(at / 'ckpts', 'shape=root', 'compression=none', allow_errors=True)
        (m / '1.tmp/default').mkdir(parents=True)
        big = np.arange(3 << 20, dtype=np.float32)      # 12 MiB
        with pytest.raises(OSError) as e:
            np.save(m / '1.tmp/default/w.npy', big)
            (m / '1.tmp').rename(m / '1')
        # numpy makes an error of its own of a short write.
        assert e.value.errno in (errno.ENOSPC, None), e.value
        assert not (at / 'ckpts/1').exists()
        (at / 'filler').unlink()
        # An error of the bytes that were still being encoded is not one of what replaces them.
        np.save(m / '1.tmp/default/w.npy', big)
        (m / '1.tmp').rename(m / '1')
        assert np.array_equal(np.load(m / '1/default/w.npy'), big)
        assert not m.unmount()
    finally:
        subprocess.run(['umount', '--lazy', at], check=True)


@pytest.mark.parametrize('how', ['open', 'truncate'])
def test_what_is_written_anew_has_no_error_of_the_old_bytes(mount, tmp_path, how):
    """It was told to nobody, because the program had closed the file; the bytes are gone, and so is their error."""
    at = tmp_path / 'disk'
    at.mkdir()
    on_tmpfs(tmp_path, at)
    try:
        (at / 'ckpts').mkdir()
        m = mount(at / 'ckpts', 'shape=root', 'compression=none', allow_errors=True)
        (m / '1.tmp/default').mkdir(parents=True)
        path, big = m / '1.tmp/default/w.npy', np.arange(3 << 20, dtype=np.float32)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT)
        with open(at / 'filler', 'wb', buffering=0) as f, contextlib.suppress(OSError):
            while f.write(bytes(1 << 20)):
                pass
        with contextlib.suppress(OSError):
            np.lib.format.write_array(os.fdopen(fd, 'wb', closefd=False), big)
        os.close(fd)
        mounts.wait_for(lambda: any("'w.npy' is not encoded yet" in line for line in m.log_lines()))
        (at / 'filler').unlink()
        if how == 'truncate':
            os.truncate(path, 0)
        with open(path, 'wb' if how == 'open' else 'r+b', buffering=0) as f:
            np.lib.format.write_array(f, big)
        (m / '1.tmp').rename(m / '1')
        assert np.array_equal(np.load(m / '1/default/w.npy'), big)
        assert not m.unmount()
    finally:
        subprocess.run(['umount', '--lazy', at], check=True)
