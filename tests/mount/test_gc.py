# SPDX-License-Identifier: Apache-2.0
"""pytreefs gc: what dead writers left goes, what the living hold stays."""

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest


def gc(program, source, *args):
    r = subprocess.run([program, 'gc', '--json', *args, str(source)], capture_output=True, text=True)
    return r, json.loads(r.stdout) if r.stdout else None


def kinds(doc):
    return {f['path']: f['kind'] for f in doc['found']}


def removed(doc):
    return {f['path'] for f in doc['found'] if f['removed']}


def put(m, draft):
    (m / draft / 'default').mkdir(parents=True)
    np.save(m / draft / 'default' / 'w.npy', np.arange(100000))


@pytest.fixture
def source(tmp_path):
    path = tmp_path / 'source'
    path.mkdir()
    return path


def test_an_abandoned_draft_is_removed_and_a_live_one_is_not(program, mount, source):
    m = mount(source, foreground=True, allow_errors=True)
    put(m, '1.tmp')
    m.process.send_signal(signal.SIGKILL)
    m.process.wait()
    subprocess.run(['fusermount3', '-u', '-z', str(m.path)], check=True)
    m.process = m._pid = None
    live = mount(source)
    put(live, '2.tmp')
    before = sorted(os.listdir(source))
    r, doc = gc(program, source, '--dry-run')
    assert r.returncode == 0 and removed(doc) == set() and doc['removed'] == 0
    assert [f['path'] for f in doc['found'] if f['would_remove']] == ['.1.pytreefs-draft']
    assert sorted(os.listdir(source)) == before
    r, doc = gc(program, source)
    assert r.returncode == 0
    assert kinds(doc) == {'.1.pytreefs-draft': 'abandoned draft', '.2.pytreefs-draft': 'held by a living writer'}
    assert removed(doc) == {'.1.pytreefs-draft'}
    assert doc['bytes'] > 0 and doc['removed'] == 1
    assert os.listdir(source) == ['.2.pytreefs-draft']
    os.rename(live / '2.tmp', live / '2')
    assert np.load(live / '2' / 'default' / 'w.npy').sum() == np.arange(100000).sum()
    r, doc = gc(program, source)
    assert doc['found'] == []


def test_other_programs_directories_need_two_options(program, source):
    young, old = source / '3.orbax-checkpoint-tmp-1700000000', source / '4.orbax-checkpoint-tmp'
    for d in (young, old):
        (d / 'default').mkdir(parents=True)
        (d / 'default' / 'file').write_bytes(b'x' * 10000)
    for path in (old / 'default' / 'file', old / 'default', old):
        os.utime(path, (1e9, 1e9))
    r, doc = gc(program, source)
    assert set(kinds(doc).values()) == {'temporary directory of another program, such as Orbax; `gc --all --older-than 1d` removes it once it has not changed for a day'}
    assert removed(doc) == set()
    r, _ = gc(program, source, '--all')
    assert r.returncode == 2
    r, _ = gc(program, source, '--all', '--older-than', '7 weeks')
    assert r.returncode == 2
    r, doc = gc(program, source, '--all', '--older-than', '7d')
    assert removed(doc) == {'4.orbax-checkpoint-tmp'} and os.listdir(source) == [young.name]
    # One that changes deep inside is in use, however old its top is.
    os.utime(young, (1e9, 1e9))
    r, doc = gc(program, source, '--all', '--older-than', '1h')
    assert removed(doc) == set()
    # A time in the future is as far away as it says.
    os.utime(young, (4e9, 4e9))
    assert removed(gc(program, source, '--all', '--older-than', '36500d')[1]) == set()
    said = subprocess.run([program, 'gc', '--all', '--older-than', '1h', source], capture_output=True, text=True).stdout
    assert said.startswith('removed ') and ', last changed in the future: 2096-10-02T07:06:40Z)\n1 removed, ' in said
    young.mkdir()
    r, doc = gc(program, source, '--all', '--older-than', '0s')
    assert removed(doc) == {young.name}


# How drafts are called on the disk: now, and before that, which gc still finds.
NAMINGS = ['.{}.pytreefs-draft', '{}.orbax-checkpoint-tmp']


@pytest.mark.parametrize('naming', NAMINGS, ids=['now', 'before'])
def test_what_an_interrupted_deletion_left_is_removed(program, source, naming):
    """The time in a name is hexadecimal; in names of deleted steps it was decimal."""
    deleted, before, old, young, soon, late = (source / (naming.format(n) + rest) for n, rest in (
        (5, '-deleted-18a5f3c21b7d0e4a'), (4, '-deleted-1776243812345678901'), (6, '-begun-1-2'), (7, '-begun-1-2'), (8, '-begun-1-2'),
        (9, '-begun-1-2')))
    (deleted / 'default').mkdir(parents=True)
    (before / 'default').mkdir(parents=True)
    old.mkdir()
    os.utime(old, (1e9, 1e9))
    young.mkdir()
    # Of a clock that was wrong: by itself no sign of life.
    for path, when in (soon, time.time() + 30), (late, 4e9):
        path.mkdir()
        os.utime(path, (when, when))
    r, doc = gc(program, source)
    assert removed(doc) == {deleted.name, before.name, old.name, late.name} and set(os.listdir(source)) == {young.name, soon.name}
    assert [f['path'] for f in doc['found'] if 'changed_in_the_future' in f] == [soon.name, late.name]


@pytest.mark.parametrize('naming', NAMINGS, ids=['now', 'before'])
def test_an_abandoned_draft_of_either_naming(program, mount, source, naming):
    """gc removes it, and mkdir of the same draft begins afresh; while it is locked neither happens."""
    draft = source / naming.format(3)
    m = mount(source, allow_errors=True)
    for ends in ('by gc', 'by mkdir'):
        (draft / '.pytreefs-item-0').mkdir(parents=True)
        lock = open(draft / '.pytreefs-draft', 'w')
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert kinds(gc(program, source)[1]) == {draft.name: 'held by a living writer'}
        with pytest.raises(OSError) as e:
            (m / '3.tmp').mkdir()
        assert e.value.errno == errno.EBUSY
        assert os.listdir(m.path) == [] and not (m / '.pytreefs/stored' / draft.name).exists()
        lock.close()
        if ends == 'by gc':
            assert removed(gc(program, source)[1]) == {draft.name} and os.listdir(source) == []
        else:
            put(m, '3.tmp')
            assert sorted(os.listdir(source)) == ['.3.pytreefs-draft']
            assert not (source / '.3.pytreefs-draft/.pytreefs-item-1').exists()
    os.rename(m / '3.tmp', m / '3')


def test_links_are_not_followed(program, source, tmp_path):
    precious = tmp_path / 'precious'
    precious.mkdir()
    (precious / 'file').write_text('mine')
    tmp = source / '5.orbax-checkpoint-tmp-deleted-1'
    tmp.mkdir()
    (tmp / 'link').symlink_to(precious)
    (source / '8.orbax-checkpoint-tmp-deleted-1').symlink_to(precious)
    gc(program, source)
    assert (precious / 'file').read_text() == 'mine'
    assert not tmp.exists()


def test_a_mount_is_refused(run, mount, source):
    """It shows no draft of others, and no database that was never merged: nothing would be found."""
    m = mount(source)
    for command in ('gc', 'merge'):
        r = run(command, m.path, ok=False)
        assert r.returncode == 1 and f"'{m.path}' is in a mount" in r.stderr and 'the source' in r.stderr


def test_text_says_what_and_how_much(program, source):
    (source / '5.orbax-checkpoint-tmp-deleted-1').mkdir()
    (source / '5.orbax-checkpoint-tmp-deleted-1' / 'file').write_bytes(bytes(1 << 20))
    r = subprocess.run([program, 'gc', str(source)], capture_output=True, text=True)
    assert r.returncode == 0
    first, last = r.stdout.splitlines()
    assert first.startswith('removed') and '5.orbax-checkpoint-tmp-deleted-1' in first
    assert 'rest of a deleted step' in first and 'MiB' in first
    assert last.startswith('1 removed, 1.0 MiB')


@pytest.mark.parametrize('theirs', [True, False], ids=['replaced', 'removed'])
def test_a_draft_that_another_program_removed(mount, tmp_path, theirs):
    """Somebody's own clean-up, and perhaps another draft made in its place."""
    root = tmp_path / 'root'
    root.mkdir()
    m = mount(root, allow_errors=True)
    d = m / '7.tmp' / 'default'
    d.mkdir(parents=True)
    np.save(d / 'w.npy', np.arange(10))
    own, = [p for p in root.iterdir() if p.name.startswith('.7.')]
    while own.exists():                         # the daemon may still be encoding into it
        shutil.rmtree(own, ignore_errors=True)
    if theirs:
        (own / 'default').mkdir(parents=True)
        (own / 'default' / 'data').write_text('live')
    with pytest.raises(OSError) as e:
        os.rename(m / '7.tmp', m / '7')
    assert e.value.errno == errno.EIO
    assert any("draft '7'" in line and 'removed by another program' in line for line in m.log_lines())
    shutil.rmtree(m / '7.tmp')
    assert not (m / '7.tmp').exists() and '7.tmp' not in os.listdir(m.path)
    if theirs:
        assert (own / 'default' / 'data').read_text() == 'live'
        with pytest.raises(OSError) as e:
            (m / '7.tmp').mkdir()
        # Not EEXIST, since the mount shows nothing of that name.
        assert e.value.errno == errno.EBUSY
        shutil.rmtree(own)
    d.mkdir(parents=True)
    np.save(d / 'w.npy', np.arange(20))
    os.rename(m / '7.tmp', m / '7')
    assert np.array_equal(np.load(m / '7/default/w.npy'), np.arange(20))


def test_what_an_interrupted_replacement_left(program, run, source):
    """The checkpoint that was renamed is the only one until something has its name; a lock file in it does not change that."""
    np.save(source / 'w.npy', np.arange(100))
    run('save', source / 'w.npy', source / '5')
    os.remove(source / 'w.npy')
    old = source / '.5.pytreefs-draft-old-18a2'
    (source / '5').rename(old)
    (old / '.pytreefs-draft').write_text('{}')
    for args in ((), ('--all', '--older-than', '0s')):
        r, doc = gc(program, source, *args)
        assert r.returncode == 0 and removed(doc) == set() and old.exists()
        assert kinds(doc) == {old.name: 'checkpoint whose replacement was interrupted; rename it to the name of its step to use it'}
    shutil.copytree(old, source / '5')
    os.remove(source / '5/.pytreefs-draft')
    r, doc = gc(program, source)
    assert r.returncode == 0 and removed(doc) == {old.name} and os.listdir(source) == ['5']
    run('verify', source)
