# SPDX-License-Identifier: Apache-2.0
"""What a mount is put on, what is left when it ends, and what it says meanwhile."""

import os
import pathlib
import signal
import subprocess

import pytest

from lib import mounts

SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data' / 'sample'


def test_tail_follows_the_log(mount, tmp_path):
    source = tmp_path / 'source'
    source.mkdir()
    m = mount(source, allow_errors=True)
    tail = subprocess.Popen(['tail', '-n', '+1', '-s', '0.1', '-f', m / '.pytreefs/log'], stdout=subprocess.PIPE, text=True)
    try:
        for name in ('one', 'two'):
            with pytest.raises(OSError):
                (m / name).mkdir()
            while f"'{name}'" not in (line := tail.stdout.readline()):
                assert line, 'tail has ended'
            assert line[:2] == '20' and line[10] == 'T' and line[19:21] == 'Z ', line
    finally:
        tail.kill()
        tail.wait()
        tail.stdout.close()


def test_umount_names_open_drafts(mount, run, tmp_path):
    source = tmp_path / 'source'
    source.mkdir()
    m = mount(source, allow_errors=True)
    (m / '7.tmp').mkdir()
    assert "draft '7.tmp' is not committed" in run('umount', m.path).stderr
    mounts.wait_for(lambda: mounts.has_ended(m.pid))
    assert any("draft '7.tmp' was not committed" in line for line in m.log_lines())


@pytest.mark.option('nonempty')
def test_nothing_is_mounted_over_something(mount, run, program, tmp_path):
    m = mount(SAMPLE)
    r = run('mount', SAMPLE, m.path, ok=False)
    assert r.returncode == 1 and str(m.path) in r.stderr and 'mounted there' in r.stderr and 'nonempty' in r.stderr
    full = tmp_path / 'full'
    full.mkdir()
    (full / 'notes.txt').write_text('')
    r = run('mount', SAMPLE, full, ok=False)
    assert r.returncode == 1 and "'notes.txt'" in r.stderr and 'nonempty' in r.stderr
    over = mounts.Mount(program, SAMPLE, full, tmp_path / 'log-full', ['nonempty'])
    try:
        assert '1000' in os.listdir(full)
    finally:
        assert not over.unmount()
    assert os.listdir(full) == ['notes.txt']


def test_a_dead_mount_is_taken_away(mount, run, tmp_path):
    m = mount(SAMPLE)
    os.kill(m.pid, signal.SIGKILL)
    mounts.wait_for(lambda: mounts.has_ended(m.pid))
    assert m.mounted()
    with pytest.raises(OSError):
        os.listdir(m.path)
    r = run('mount', SAMPLE, m.path)
    assert 'a process that is gone' in r.stderr
    assert '1000' in os.listdir(m.path)
    with open('/proc/self/mountinfo') as f:
        assert sum(mounts.unescape(line.split()[4]) == str(m.path) for line in f) == 1
    m._pid = None


def test_a_dead_mount_is_unmounted(mount, run):
    """`umount` needs no answer of a process that is gone."""
    m = mount(SAMPLE)
    os.kill(m.pid, signal.SIGKILL)
    mounts.wait_for(lambda: mounts.has_ended(m.pid))
    assert m.mounted()
    run('umount', m.path)
    assert not m.mounted() and os.listdir(m.path) == []
    m._pid = None
