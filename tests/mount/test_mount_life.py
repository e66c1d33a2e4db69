# SPDX-License-Identifier: Apache-2.0
"""The mount point of a mount, its messages, and what is left when it ends."""

import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from lib import mounts

UNMOUNTS = int(os.environ.get('PYTREEFS_UNMOUNTS', '30'))
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


def test_a_mount_does_not_hold_itself_busy(mount, root):
    """A program that has made or thrown away a step may unmount at once."""
    for i in range(UNMOUNTS):
        m = mount(root)
        (m / f'{i}.tmp/default').mkdir(parents=True)
        (m / f'{i}.tmp/default/n.json').write_text('1')
        if i % 2:
            shutil.rmtree(m / f'{i}.tmp')
        else:
            (m / f'{i}.tmp').rename(m / f'{i}')
        r = subprocess.run(['fusermount3', '-u', m.path], capture_output=True, text=True)
        assert r.returncode == 0, f'{i}: {r.stderr}'


def test_umount_says_who_holds_the_mount(mount, program):
    """While another mount namespace has it, its process goes on; umount waits for that."""
    m = mount(SAMPLE)
    pid = m.pid
    # It has its own namespace when it has said something.
    other = subprocess.Popen(['unshare', '--mount', '--propagation', 'unchanged', 'sh', '-c', 'echo; exec sleep 600'], stdout=subprocess.PIPE)
    try:
        other.stdout.readline()
        with subprocess.Popen([program, 'umount', m.path], stderr=subprocess.PIPE, text=True) as umount:
            said = [umount.stderr.readline(), umount.stderr.readline()]
            other.kill()
            assert umount.wait(60) == 0 and umount.stderr.read() == ''
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    place = f"pytreefs: '{m.path}' is unmounted"
    assert said[0].startswith(f"{place}, and still mounted on '{m.path}' for process {other.pid} (s"), said
    assert said[1] == f'{place}; waiting up to 30 s for process {pid}, which serves it\n', said
    mounts.wait_for(lambda: mounts.has_ended(pid))


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


def test_a_volume_of_a_container(run, tmp_path):
    """It is mounted from the host, and empty."""
    volume = tmp_path / 'volume'
    volume.mkdir()
    subprocess.run(['mount', '--bind', volume, volume], check=True)
    try:
        run('mount', SAMPLE, volume)
        try:
            assert '1000' in os.listdir(volume)
        finally:
            run('umount', volume)
        assert os.listdir(volume) == []
    finally:
        subprocess.run(['umount', volume], check=True)


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


def test_a_service_mounts_again_right_after_the_kill(mount, run):
    """The kernel still has the attributes of the root then, and the process may not have ended yet."""
    m = mount(SAMPLE)
    for _ in range(3):
        os.stat(m.path)
        os.kill(m.pid, signal.SIGKILL)
        m._pid = None
        assert 'a process that is gone' in run('mount', SAMPLE, m.path).stderr
        assert '1000' in os.listdir(m.path)


def test_a_dead_mount_is_unmounted(mount, run):
    """`umount` needs no answer of a process that is gone."""
    m = mount(SAMPLE)
    os.kill(m.pid, signal.SIGKILL)
    mounts.wait_for(lambda: mounts.has_ended(m.pid))
    assert m.mounted()
    run('umount', m.path)
    assert not m.mounted() and os.listdir(m.path) == []
    m._pid = None

# ---- places that a mount may not have ----

@pytest.fixture
def there(tmp_path):
    """A SOURCE, a mount point, and a link to either."""
    shutil.copytree(SAMPLE, tmp_path / 'ckpts')
    (tmp_path / 'm').mkdir()
    (tmp_path / 'to-ckpts').symlink_to('ckpts')
    (tmp_path / 'to-m').symlink_to('m')
    yield tmp_path
    for mnt in (tmp_path / 'm', tmp_path / 'ckpts/m', tmp_path / 'ckpts'):
        while subprocess.run(['umount', '-l', mnt], capture_output=True).returncode == 0:
            pass


@pytest.mark.parametrize('at', ['ckpts/m', 'ckpts/1000/state/m', 'to-ckpts/m'])
def test_a_mount_point_inside_its_source_is_refused(run, there, at):
    """A directory of SOURCE that is the mount itself would be looked at by the daemon, which waits for itself."""
    (there / at).mkdir()
    r = run('mount', 'ckpts', at, ok=False, cwd=there)
    assert r.returncode == 1 and f"inside SOURCE '{there}/ckpts'" in r.stderr, r.stderr
    assert not os.path.ismount(there / at)


@pytest.mark.parametrize('option,at', [('log', 'm/log'), ('log', 'to-m/log'), ('log', 'm/sub/../log'), ('spill', 'm'), ('spill', 'm/sub'),
                                       ('spill', 'to-m/sub')])
def test_log_and_spill_inside_the_mount_are_refused(run, there, option, at):
    (there / 'm/sub').mkdir()
    r = run('mount', '-o', f'nonempty,{option}={at}', 'ckpts', 'm', ok=False, cwd=there)
    assert r.returncode == 1 and f'{option}=' in r.stderr and f"inside the mount point '{there}/m'" in r.stderr, r.stderr
    assert not os.path.ismount(there / 'm')


def test_a_spill_directory_that_is_chosen_is_outside_of_the_mount(run, there):
    """`spill=auto` is $TMPDIR: a mount over that names the option which helps."""
    (there / 'm/tmp').mkdir()
    env = dict(os.environ, TMPDIR=str(there / 'm/tmp'))
    r = run('mount', '-o', 'nonempty', 'ckpts', 'm', ok=False, cwd=there, env=env)
    assert r.returncode == 1 and f"'{there}/m/tmp' is inside the mount point" in r.stderr and 'spill=' in r.stderr, r.stderr
    run('mount', '-o', 'nonempty,spill=off', 'ckpts', 'm', cwd=there, env=env)
    assert (there / 'm/latest/state/step.json').read_text() == '1500\n'


def test_a_log_in_source_is_not_a_step(run, there):
    """It may stand there, and is not shown; under the name of a step it would be in the way of one."""
    for name in ('1600', 'checkpoint_7'):
        r = run('mount', '-o', f'log=ckpts/{name}', 'ckpts', 'm', ok=False, cwd=there)
        assert r.returncode == 1 and f"is called like a step of SOURCE '{there}/ckpts'" in r.stderr, r.stderr
    run('mount', '-o', 'log=to-ckpts/my.log', 'ckpts', 'm', cwd=there)
    with pytest.raises(OSError):
        (there / 'm/no step').mkdir()
    assert sorted(os.listdir(there / 'm')) == ['1000', '1500'] and 'no step' in (there / 'ckpts/my.log').read_text()


def test_a_mount_over_its_source_writes_below_it(run, there):
    """The daemon reaches SOURCE by what it opened before: steps are saved to the directory that the mount hides."""
    run('mount', '-o', 'nonempty', 'ckpts', 'ckpts', cwd=there)
    shutil.copytree(there / 'ckpts/1500', there / 'ckpts/1600.tmp')
    (there / 'ckpts/1600.tmp').rename(there / 'ckpts/1600')
    run('umount', 'ckpts', cwd=there)
    assert '78 the same, 0 differences' in run('diff', there / 'ckpts/1500/state', there / 'ckpts/1600/state').stdout


@pytest.mark.skipif(os.getuid() != 0, reason='only root may mount a tmpfs')
def test_source_is_free_when_umount_returns(program, tmp_path):
    """A script that unmounts what lies below next must not find it in use."""
    source, mnt = tmp_path / 'source', tmp_path / 'mnt'
    for path in (source, mnt):
        path.mkdir()
    for _ in range(5):
        subprocess.run(['mount', '-t', 'tmpfs', 'none', source], check=True)
        try:
            shutil.copytree(SAMPLE / '1000', source / '1000')
            subprocess.run([program, 'mount', source, mnt], check=True, timeout=240)
            (mnt / '1000/state/learning_rate.json').read_bytes()
            subprocess.run([program, 'umount', mnt], check=True, timeout=240)
        finally:
            r = subprocess.run(['umount', source], capture_output=True, text=True)
            subprocess.run(['umount', '-l', mnt], capture_output=True)
        assert r.returncode == 0, r.stderr


NOTHING_FOUND = "nothing was found in '{}': no step and no item; if steps will be saved there, -o shape=root avoids this warning"


@pytest.mark.parametrize('options,made,warns', [
    ([], None, True), (['-o', 'shape=auto'], None, True), (['-o', 'shape=root'], None, False), ([], '7', False), (['-o', 'ro'], None, True)])
def test_a_source_without_checkpoints_is_reported(program, tmp_path, options, made, warns):
    """It may be the directory on which a disk was to be mounted."""
    source, mnt = tmp_path / 'source', tmp_path / 'mnt'
    source.mkdir()
    mnt.mkdir()
    if made:
        shutil.copytree(SAMPLE / '1000', source / made)
    r = subprocess.run([program, 'mount', *options, source, mnt], capture_output=True, text=True, timeout=240)
    try:
        assert r.returncode == 0, r.stderr
        assert r.stderr == (f'pytreefs: {NOTHING_FOUND.format(source)}\n' if warns else '')
        assert (NOTHING_FOUND.format(source) in (mnt / '.pytreefs/log').read_text()) == warns
    finally:
        subprocess.run([program, 'umount', mnt], check=True, timeout=240)


def test_remount_says_what_to_do_instead(program, tmp_path):
    r = subprocess.run([program, 'mount', '-o', 'remount,ro', SAMPLE, tmp_path], capture_output=True, text=True)
    assert r.returncode != 0 and not os.path.ismount(tmp_path)
    assert 'cannot be changed (remount): end it with `pytreefs umount MOUNTPOINT`' in r.stderr


@pytest.mark.skipif(os.getuid() != 0, reason='only root may hide /dev/log')
def test_a_machine_without_syslog_is_nothing_to_report(program, tmp_path):
    """Containers have none: the log of a mount that did nothing has only its start."""
    mnt = tmp_path / 'mnt'
    mnt.mkdir()
    look = f'set -e; "$0" mount {SAMPLE} {mnt}; ls {mnt}/none 2>&1 || true; cat {mnt}/.pytreefs/log; "$0" umount {mnt}'
    r = mounts.own_mounts(mounts.OWN_FUSE + look, program)
    assert r.returncode == 0, r.stderr
    missing, start = r.stdout.splitlines()
    assert 'No such file' in missing and ' serves ' in start


@pytest.mark.skipif(os.getuid() != 0, reason='only root may set it')
def test_the_kernel_reads_far_ahead_in_this_mount_alone(mount, tmp_path):
    """The limit is that of the mount's own device, found before anybody serves a request."""
    def limit(path):
        device = os.stat(path).st_dev
        bdi = pathlib.Path(f'/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb')
        return int(bdi.read_text()) if os.access(bdi, os.W_OK) else None
    before = limit(tmp_path)
    m = mount(SAMPLE)
    assert limit(m.path) in (8192, None) and limit(tmp_path) == before
