# SPDX-License-Identifier: Apache-2.0
"""The mount command: what it accepts, how it fails, when it returns, how it ends."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from lib import compare, mounts

SAMPLE = pathlib.Path(__file__).resolve().parents[1] / 'data/sample'


def failing(program, *words):
    """A mount that must not succeed: its stderr."""
    r = subprocess.run([program, 'mount', *map(str, words)], capture_output=True, text=True, timeout=240,
                       stdin=subprocess.DEVNULL)
    assert r.returncode != 0, 'it mounted'
    assert r.stderr.strip(), 'no reason on stderr'
    return r.returncode, r.stderr


@pytest.fixture
def mnt(tmp_path):
    path = tmp_path / 'mnt'
    path.mkdir()
    yield path
    subprocess.run(['umount', '-l', path], capture_output=True)


def test_it_is_ready_when_it_returns(program, cases, mnt):
    case = cases('manager-root')
    subprocess.run([program, 'mount', case.path, mnt], check=True, timeout=240)
    assert sorted(os.listdir(mnt)) == sorted(case.steps)
    subprocess.run([program, 'umount', mnt], check=True, timeout=240)
    assert os.listdir(mnt) == []


def test_a_source_that_is_not_there(program, mnt, tmp_path):
    _, text = failing(program, tmp_path / 'nothing', mnt)
    assert 'nothing' in text and 'o such' in text, text


def test_a_mount_point_that_is_not_there(program, cases, tmp_path):
    _, text = failing(program, cases('manager-root').path, tmp_path / 'nowhere')
    assert 'nowhere' in text


def test_a_mount_point_that_is_a_file(program, cases, mnt):
    """The kernel takes it, and gives EIO for every access."""
    file = mnt / 'file'
    file.write_bytes(b'x')
    try:
        _, text = failing(program, cases('manager-root').path, file)
        assert f"'{file}'" in text and 'not a directory' in text
    finally:
        subprocess.run(['umount', '-l', file], capture_output=True)
    assert file.read_bytes() == b'x'


def test_a_mount_is_not_a_source(program, mount, cases, mnt):
    """Its steps would be found there, and no leaf of theirs: what is stored lies elsewhere."""
    m = mount(cases('manager-root').path)
    for where in (m.path, m / '10'):
        _, text = failing(program, where, mnt)
        assert f"'{where}' is in a mount of pytreefs" in text


def test_umount_of_something_else(program, mnt):
    """As root it would work: nobody loses another file system to a slip of the hand."""
    subprocess.run(['mount', '-t', 'tmpfs', 'none', mnt], check=True)
    try:
        (mnt / 'file').write_bytes(b'x')
        for path in (mnt, f'{mnt}/'):
            r = subprocess.run([program, 'umount', path], capture_output=True, text=True)
            assert r.returncode == 1 and 'a mount of tmpfs, and not of pytreefs' in r.stderr
        assert (mnt / 'file').read_bytes() == b'x'
    finally:
        subprocess.run(['umount', mnt], check=True)


def test_a_directory_of_something_else_is_an_error(program, mnt, tmp_path):
    """Never an empty directory: the error names the directory and what was looked for."""
    other = tmp_path / 'photos'
    (other / 'album').mkdir(parents=True)
    (other / 'album' / 'a.jpg').write_bytes(b'\xff\xd8')
    _, text = failing(program, other, mnt)
    assert 'photos' in text and ('_METADATA' in text or 'checkpoint' in text), text


def test_a_directory_of_something_else_as_root(mount, tmp_path):
    other = tmp_path / 'photos'
    (other / 'album').mkdir(parents=True)
    m = mount(other, 'shape=root')
    assert os.listdir(m.path) == []


def test_a_broken_item_is_an_error(program, mnt, copy, cases):
    item = copy(cases('matrix-ocdbt-zarr2-zstd-v0'), 'item')
    (item / '_METADATA').write_bytes(b'{')
    _, text = failing(program, item, mnt)
    assert '_METADATA' in text, text


def test_a_temporary_directory_is_refused(program, mnt, cases):
    case = cases('root-with-debris')
    _, text = failing(program, case.path / '3.orbax-checkpoint-tmp', mnt)
    assert 'orbax-checkpoint-tmp' in text


def test_a_temporary_directory_on_demand(mount, cases):
    """An uncommitted directory can be mounted by its name."""
    case = cases('root-with-debris')
    m = mount(case.path / '3.orbax-checkpoint-tmp', 'shape=step')
    assert not compare.compare(m / 'state', case.trees['2/state'])


@pytest.mark.parametrize('option', ['nosuchoption', 'cache=lots', 'cache=-1', 'io=magic', 'shape=circle',
                                    'spill_limit=x'])
def test_wrong_options_are_named(program, cases, mnt, option):
    _, text = failing(program, cases('manager-root').path, mnt, '-o', option)
    assert option.split('=')[0] in text or option.split('=')[-1] in text, text


@pytest.mark.parametrize('option, message', [
    ('spill=/nonexistent', "option spill: cannot use '/nonexistent': No such file"), ('spill=/etc/passwd', "cannot use '/etc/passwd'"),
    ('on_commit=/nonexistent now', "option on_commit: cannot run '/nonexistent': No such file"), ('cache=1', "option 'cache': '1' is a size in bytes, of at least 4096"),
    ('read_budget=4095', "'4095' is a size"), ('shape=step', 'is a directory of steps, not a step'), ('shape=item', 'is a directory of steps'),
    ('ro=off', "option 'ro' of mount takes no value; without it, it is off"), ('allow-other', "did you mean 'allow_other'?")])
def test_what_cannot_work_is_refused_at_once(program, cases, mnt, option, message):
    _, text = failing(program, cases('manager-root').path, mnt, '-o', option)
    assert message in text, text


@pytest.mark.parametrize('options, error', [('ro,rw', None), ('rw,ro', 'Read-only file system')])
def test_of_ro_and_rw_the_last_one_counts(program, mnt, tmp_path, options, error):
    (tmp_path / 'ckpts').mkdir()
    subprocess.run([program, 'mount', '-o', f'shape=root,{options}', tmp_path / 'ckpts', mnt], check=True, timeout=240)
    r = subprocess.run(['mkdir', mnt / '1.tmp'], capture_output=True, text=True)
    assert r.returncode == 0 if not error else error in r.stderr, r.stderr


def test_words_of_mount_are_for_mounts_only(run):
    assert "option 'ro' is for -o of a mount only" in run('ls', '-o', 'ro', SAMPLE, ok=False).stderr


def test_a_source_that_is_not_there(program, cases, mnt):
    root = cases('manager-root').path
    for name, message in (('lastest', "has no 'lastest'; did you mean 'latest'?"), ('latest/stat', "did you mean 'latest/state'?"),
                          ('nothing-like-it', "has no 'nothing-like-it'\n")):
        status, text = failing(program, root / name, mnt)
        assert status == 1 and message in text, text
    status, text = failing(program, root, mnt / 'nothing')
    assert status == 1 and f"'{mnt / 'nothing'}'" in text and 'did you mean' not in text, text


def test_the_help_names_the_options_of_every_mount(run):
    text = run('mount', '--help').stdout
    assert all(re.search(rf'\b{word}\b', text) for word in ('ro', 'allow_other', 'default_permissions', 'PYTREEFS_OPTIONS'))


@pytest.mark.parametrize('words', [[], ['only-one'], ['a', 'b', 'c'], ['--nosuch', 'a', 'b']])
def test_wrong_usage_is_status_2(program, words):
    status, text = failing(program, *words)
    assert status == 2 and ('usage' in text.lower() or '--help' in text), text


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_signals_unmount_cleanly(mount, cases, number):
    m = mount(cases('manager-root').path, foreground=True)
    compare.read_all(m / '10/state/w.npy')
    m.process.send_signal(number)
    assert m.process.wait(60) == 0
    assert not m.mounted()


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_signals_that_the_starter_has_blocked_arrive(mount, cases, number):
    blocked = ('import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); '
               'os.execv(sys.argv[1], sys.argv[1:])')
    m = mount(cases('manager-root').path, foreground=True, under=[sys.executable, '-c', blocked])
    m.process.send_signal(number)
    assert m.process.wait(60) == 0
    assert not m.mounted()


def test_signals_are_the_main_threads(mount, cases):
    """Another thread would do what its handler says, while the main one sleeps on."""
    m = mount(cases('manager-root').path)
    compare.read_all(m / '10/state/w.npy')
    takes = set()
    for thread, status in mounts.threads(m.pid).items():
        blocked = int(re.search(r'SigBlk:\s*(\w+)', status)[1], 16)
        if not all(blocked >> (n - 1) & 1 for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)):
            takes.add(thread)
    assert takes == {m.pid}


@pytest.mark.parametrize('delay', [0, 0.0005, 0.001, 0.002, 0.004])
def test_a_signal_is_never_too_early(mount, cases, delay):
    """From the moment at which the mount is seen, before its first request and while it starts threads."""
    for _ in range(5):
        m = mount(cases('manager-root').path, foreground=True)
        time.sleep(delay)
        m.process.send_signal(signal.SIGTERM)
        assert m.process.wait(60) == 0
        assert not m.mounted()


def test_the_daemon_ends_with_its_mount(mount, cases):
    m = mount(cases('manager-root').path)
    pid = m.pid
    assert pid and not mounts.has_ended(pid)
    assert m.unmount() == '' and mounts.has_ended(pid)


def test_the_daemon_leaves_the_terminal_and_the_directory(mount, cases):
    m = mount(cases('manager-root').path)
    assert os.readlink(f'/proc/{m.pid}/cwd') == '/'
    assert os.getsid(m.pid) != os.getsid(0)
    for fd in ('0', '1', '2'):
        assert os.readlink(f'/proc/{m.pid}/fd/{fd}') == '/dev/null'


def test_relative_paths(program, cases, tmp_path):
    case = cases('manager-root')
    (tmp_path / 'm').mkdir()
    subprocess.run([program, 'mount', os.path.relpath(case.path, tmp_path), 'm'], cwd=tmp_path, check=True)
    try:
        time.sleep(0.05)
        assert (tmp_path / 'm/10/state/name.txt').read_text() == 'step 10'
        assert 'stored' in os.listdir(tmp_path / 'm/.pytreefs')
        assert compare.read_all(tmp_path / 'm/5/state/name.txt') == b'step 5'
    finally:
        subprocess.run([program, 'umount', 'm'], cwd=tmp_path, check=True)


def test_relative_paths_in_options(program, cases, tmp_path):
    """They are of the directory that one stands in, not of the one that the daemon goes to."""
    for name in ('m', 'scratch'):
        (tmp_path / name).mkdir()
    subprocess.run([program, 'mount', cases('manager-root').path, 'm', '-o', 'log=my.log,spill=scratch'], cwd=tmp_path,
                   check=True)
    try:
        options = json.loads((tmp_path / 'm/.pytreefs/config').read_text())['options']
        with pytest.raises(OSError):
            (tmp_path / 'm/10').rmdir()
        assert 'cannot' in (tmp_path / 'my.log').read_text()
        assert [options[name]['value'] for name in ('log', 'spill')] == [str(tmp_path / x) for x in ('my.log', 'scratch')]
    finally:
        subprocess.run([program, 'umount', 'm'], cwd=tmp_path, check=True)


def test_mounted_over_its_own_source(program, copy, cases):
    """The source stays reachable for the daemon when the mount covers it."""
    root = copy(cases('manager-root'), 'root')
    subprocess.run([program, 'mount', '-o', 'nonempty', root, root], check=True, timeout=240)
    try:
        assert (root / '10/state/name.txt').read_text() == 'step 10'
    finally:
        subprocess.run(['umount', '-l', root], check=True)


def test_the_kind_of_file_system_is_ours(mount, cases):
    m = mount(cases('manager-root').path)
    with open('/proc/self/mountinfo') as f:
        (line,) = [x for x in f if mounts.unescape(x.split()[4]) == str(m.path)]
    kind, source = line.split(' - ')[1].split()[:2]
    assert kind == 'fuse.pytreefs' and source


@pytest.mark.parametrize('helper', ['mount.pytreefs', 'mount.fuse.pytreefs'])
def test_the_helper_of_mount_dash_t(program, cases, tmp_path, helper):
    """mount -t pytreefs (fuse.pytreefs) and fstab run the program by the name of a helper, options last."""
    case = cases('manager-root')
    (tmp_path / helper).symlink_to(program)
    (tmp_path / 'm').mkdir()
    r = subprocess.run([tmp_path / helper, case.path, tmp_path / 'm', '-o', 'rw,noauto,nosuid,nodev,cache=64M'],
                       capture_output=True, text=True, timeout=240)
    try:
        assert r.returncode == 0, r.stderr
        assert sorted(os.listdir(tmp_path / 'm')) == sorted(case.steps)
    finally:
        subprocess.run(['umount', '-l', tmp_path / 'm'], capture_output=True)


@pytest.mark.parametrize('words, status', [(['/nonexistent', 'm'], 32), ([SAMPLE, 'none'], 32), ([SAMPLE, 'm', '-o', 'nosuch'], 1), ([SAMPLE], 1)])
def test_the_helper_ends_as_mount_says(program, tmp_path, words, status):
    (tmp_path / 'mount.pytreefs').symlink_to(program)
    (tmp_path / 'm').mkdir()
    r = subprocess.run([tmp_path / 'mount.pytreefs', *words], capture_output=True, text=True, timeout=240, cwd=tmp_path, check=False)
    assert r.returncode == status and r.stderr.startswith('pytreefs'), r


@pytest.mark.parametrize('words', [['-f'], ['-vf', '-o', 'ro'], ['-o', 'ro', '-f']], ids=' '.join)
def test_the_helper_mounts_nothing_for_fake(program, tmp_path, words):
    """`mount -f`, with which fstab is checked."""
    (tmp_path / 'mount.pytreefs').symlink_to(program)
    (tmp_path / 'm').mkdir()
    r = subprocess.run([tmp_path / 'mount.pytreefs', SAMPLE, tmp_path / 'm', *words], capture_output=True, text=True, timeout=240)
    assert (r.returncode, r.stdout, r.stderr) == (0, '', '')
    assert not os.path.ismount(tmp_path / 'm')


def test_a_log_in_the_mount_point_is_refused_and_not_made(program, tmp_path):
    (tmp_path / 'm').mkdir()
    r = subprocess.run([program, 'mount', '-o', f'log={tmp_path}/m/log', SAMPLE, tmp_path / 'm'], capture_output=True, text=True,
                       timeout=240)
    assert r.returncode == 1 and 'the mount would write to itself' in r.stderr
    assert os.listdir(tmp_path / 'm') == []


def test_config_shows_what_is_in_force(mount, cases):
    m = mount(cases('manager-root').path, 'cache=64M', 'io=sync')
    text = json.dumps(json.loads(compare.read_all(m / '.pytreefs/config')))
    assert 'sync' in text


@pytest.mark.parametrize('io', ['sync', 'uring', 'trace:sync', 'trace:uring'])
def test_engines(mount, cases, io):
    case = cases('matrix-ocdbt-zarr2-zstd-v0')
    m = mount(case.path, f'io={io}')
    assert not compare.compare(m.path, case.tree())


def test_faults_of_the_disk_are_eio_and_pass(mount, cases):
    """Read errors of one request in five: every read is right or EIO, and the mount goes on."""
    case = cases('matrix-perleaf-zarr2-zstd-v0')
    m = mount(case.path, 'io=fault(read:eio:20%):sync', allow_errors=True)
    right = wrong = eio = 0
    for _ in range(20):
        for path, value, _ in compare.leaf_paths(m.path, case.tree()):
            try:
                right += not list(compare.check_leaf(path, value))
                wrong += bool(list(compare.check_leaf(path, value)))
            except OSError:
                eio += 1
    assert wrong == 0 and right > 0, (right, wrong, eio)
    assert m.mounted()


TOLD = ('ls', 'tree', 'info', 'cat')


def test_without_fuse_it_says_what_works(program, cases, tmp_path):
    """In a container without /dev/fuse: the reason, and the commands that need no mount."""
    case = cases('manager-root')
    (tmp_path / 'm').mkdir()
    script = mounts.OWN_DEVICES + 'exec "$0" "$@"'
    r = mounts.own_mounts(script, program, 'mount', case.path, tmp_path / 'm')
    assert r.returncode != 0 and '/dev/fuse' in r.stderr, r.stderr
    assert all(word in r.stderr for word in TOLD), r.stderr
    r = mounts.own_mounts(script, program, 'ls', case.path)
    assert r.returncode == 0 and '200' in r.stdout


def test_quickstart_is_idempotent(build, cases, tmp_path):
    """Mounts, looks around, prints what to try; the second run finds the mount."""
    top = pathlib.Path(__file__).resolve().parents[2]
    if build != (top / 'build').resolve():
        pytest.skip('quickstart uses build/, which is not the build under test')
    mnt = tmp_path / 'a b\\c'
    # Files that root installs go elsewhere.
    env = dict(os.environ, DESTDIR=str(tmp_path / 'installed'))
    try:
        first = subprocess.run([top / 'tools/quickstart', cases('manager-root').path, mnt], capture_output=True,
                               text=True, timeout=600, env=env)
        assert first.returncode == 0 and 'mounted' in first.stdout, first.stdout + first.stderr
        assert 'umount' in first.stdout and 'w.npy' in first.stdout
        assert os.getuid() or (tmp_path / 'installed/usr/local/bin/pytreefs').exists(), first.stdout
        for shown in ('.safetensors', '.html', '@float32.npy', '.tmp'):
            assert shown in first.stdout.partition('Try next')[2], (shown, first.stdout)
        second = subprocess.run([top / 'tools/quickstart', cases('manager-root').path, mnt], capture_output=True,
                                text=True, timeout=600, env=env)
        assert second.returncode == 0 and 'already mounted' in second.stdout, second.stdout + second.stderr
    finally:
        subprocess.run(['umount', '-l', mnt], capture_output=True)


@pytest.mark.parametrize('how', ['rmdir', 'todelete=trash', 'todelete=old/trash', 'todelete=.trash', 'rm', 'by another program'])
def test_a_root_whose_last_step_went_away_is_still_a_root(program, mount, cases, copy, how):
    """Also for who does not know where its deleted steps are."""
    root = copy(cases('manager-root'), 'root')
    options = ['allow_delete', how] if how.startswith('todelete') else ['allow_delete']
    if how == 'todelete=old/trash':
        (root / 'old').mkdir()
    m = mount(root, *options)
    for step in os.listdir(m.path):
        if how == 'rm':
            shutil.rmtree(root / step)
        elif how == 'by another program':               # as Orbax with todelete_subdir
            (root / 'gone').mkdir(exist_ok=True)
            (root / step).rename(root / 'gone' / step)
        else:
            (m / step).rmdir()
    m.unmount()
    again = mount(root, 'todelete=gone') if how == 'by another program' else mount(root)
    assert os.listdir(again.path) == []
    (again / '5.tmp').mkdir()
    (again / '5.tmp').rmdir()
    again.unmount()
    if how != 'by another program':
        r = subprocess.run([program, 'ls', root], capture_output=True, text=True)
        assert r.returncode == 0 and r.stdout == '', r.stderr


def test_a_directory_of_roots_is_not_a_root(program, cases, tmp_path):
    """It looks like a root whose steps all went away, and would be shown empty."""
    (tmp_path / 'runs').mkdir()
    shutil.copytree(cases('manager-root').path, tmp_path / 'runs/first')
    (tmp_path / 'mnt').mkdir()
    r = subprocess.run([program, 'mount', tmp_path / 'runs', tmp_path / 'mnt'], capture_output=True, text=True)
    assert r.returncode != 0 and f"'{tmp_path}/runs/first' has steps" in r.stderr
