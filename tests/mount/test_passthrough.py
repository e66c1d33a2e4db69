# SPDX-License-Identifier: Apache-2.0
"""passthrough: the kernel reads large stored files by itself, with the same bytes, and needs no request for them."""

import mmap
import os
import shutil
import subprocess

import numpy as np
import pytest

from lib.mounts import wait_for
from lib.saving import saved

MIB = 1 << 20
ARRAY = np.random.default_rng(7).integers(0, 255, 4 * MIB, np.uint8)


@pytest.fixture
def stored(mount, tmp_path):
    """The root, and the path below it of the data file with the array's bytes."""
    root = tmp_path / 'root'
    root.mkdir()
    saved(mount, root, 'compression=none', files={'w.npy': ARRAY, 'small.npy': ARRAY[:100]})
    return root, next(p for p in root.rglob('d/*') if p.stat().st_size > MIB).relative_to(root)


def passed(m):
    return m.stats()['files_passed_through']


@pytest.fixture
def works(mount, stored):
    """Skips where the kernel, the container or the source's file system does not allow it."""
    root, name = stored
    m = mount(root)
    (m / '.pytreefs/stored' / name).read_bytes()
    if not passed(m):
        pytest.skip('stored files cannot be passed through here')
    assert not m.unmount()


def opened(m, name):
    return open(m / '.pytreefs/stored' / name, 'rb', buffering=0)


@pytest.mark.option('passthrough')
def test_the_kernel_reads_large_stored_files(mount, stored, works):
    root, name = stored
    want = (root / name).read_bytes()
    for option, files in ('passthrough=on', 1), ('passthrough=off', 0):
        m = mount(root, option)
        with opened(m, name) as f:
            before = m.stats()['source_read_bytes']
            assert f.read() == want
            assert os.pread(f.fileno(), 1000, 12345) == want[12345:13345]
            assert os.pread(f.fileno(), 10, len(want)) == b''
            with mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as whole:
                assert whole[:] == want
            # The kernel's reads are not the mount's.
            assert (m.stats()['source_read_bytes'] - before >= len(want)) == (not files)
        assert passed(m) == files
        assert os.stat(m / '.pytreefs/stored' / name).st_size == len(want)
        # Small files and leaves are read by requests.
        np.testing.assert_array_equal(np.load(m / '1/default/w.npy'), ARRAY)
        (m / '.pytreefs/stored/1/_CHECKPOINT_METADATA').read_bytes()
        assert passed(m) == files


def test_one_file_open_many_times(mount, stored, works):
    """Files of one inode share a backing file while any of them is open, and a later one gets it anew."""
    root, name = stored
    want = (root / name).read_bytes()
    m = mount(root)
    for _ in range(3):
        files = [opened(m, name) for _ in range(20)]
        files.pop(0).close()
        files.append(opened(m, name))
        assert all(os.pread(f.fileno(), 5000, 777) == want[777:5777] for f in files)
        for f in files:
            f.close()
    assert passed(m) == 63
    r = subprocess.run(['cmp', root / name, m / '.pytreefs/stored' / name])
    assert r.returncode == 0


def test_copies_of_all_kinds(mount, stored, works, tmp_path):
    root, name = stored
    m = mount(root)
    for command in (['cp'], ['rsync'], ['cp', '--reflink=never', '--sparse=always']):
        subprocess.run([*command, m / '.pytreefs/stored' / name, tmp_path / 'copy'], check=True)
        assert (tmp_path / 'copy').read_bytes() == (root / name).read_bytes()
    shutil.copyfile(m / '.pytreefs/stored' / name, tmp_path / 'sent')       # sendfile
    assert (tmp_path / 'sent').read_bytes() == (root / name).read_bytes()
    assert passed(m) >= 3


def test_an_engine_that_is_to_see_every_read_sees_them(mount, stored, works):
    root, name = stored
    m = mount(root, 'io=trace:auto', 'trace=io')
    with opened(m, name) as f:
        assert len(f.read()) == (root / name).stat().st_size
    assert passed(m) == 0


def test_a_step_that_is_removed_meanwhile(mount, stored, works):
    """A program that has the file open can read on; the file cannot be opened again."""
    root, name = stored
    want = (root / name).read_bytes()
    m = mount(root, allow_errors=True)
    with opened(m, name) as f:
        shutil.rmtree(root / '1')
        assert f.read() == want
        wait_for(lambda: not (m / '1').exists())
        with pytest.raises(FileNotFoundError):
            opened(m, name)


def test_an_unmount_while_it_is_open(mount, stored, works):
    root, name = stored
    m = mount(root)
    with opened(m, name) as f:
        subprocess.run(['umount', '-l', m.path], check=True)
        want = (root / name).read_bytes()
        # The kernel reads it without the mount, as long as it is open.
        assert f.read(1000) == want[:1000]


def test_without_a_broker_files_are_read_by_requests(mount, stored, works):
    root, name = stored
    m = mount(root, allow_errors=True)
    broker = subprocess.run(['pgrep', '-P', str(m.pid), '-f', 'pytreefs-broker'], capture_output=True, text=True).stdout
    os.kill(int(broker.split()[0]), 9)
    with opened(m, name) as f:
        assert f.read() == (root / name).read_bytes()
    assert passed(m) == 0
