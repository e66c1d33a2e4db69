# SPDX-License-Identifier: Apache-2.0
"""Rights that a mount's process gives up: tried from inside, by a plugin in the role of an exploited parser."""

import errno
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest

from lib import mounts, servers

TOP = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = TOP / 'tests/data/sample'
FORBIDDEN_FILES = ['read-passwd', 'read-environ', 'list-root', 'read-outside', 'write-outside', 'make-outside']
FORBIDDEN_CALLS = ['fork', 'execve', 'ptrace', 'process_vm_readv', 'kill', 'setuid', 'unshare', 'bpf', 'socket-inet',
                   'socket-unix', 'io_uring', 'mount', 'umount', 'chroot', 'executable']
CAPABILITIES = {'chown', 'dac_override', 'dac_read_search', 'fowner', 'fsetid', 'setgid', 'setuid'}


def in_force(m):
    return json.loads((m / '.pytreefs/config').read_text())['sandbox']


@pytest.fixture
def confined(program):
    """Skips where the kernel or the build has not all layers."""
    if mounts.is_sanitized(program):
        pytest.skip('sanitizers need what the sandbox forbids')
    r = subprocess.run([program, 'info', '-o', 'sandbox=require', SAMPLE], capture_output=True, text=True)
    if 'sandbox=require' in r.stderr:
        pytest.skip(f'no whole sandbox here: {r.stderr.strip()}')


@pytest.fixture(scope='module')
def intruder(tmp_path_factory):
    so = tmp_path_factory.mktemp('intruder') / 'intruder.so'
    subprocess.run(['cc', '-shared', '-fPIC', '-D_GNU_SOURCE', f'-I{TOP}', '-o', so, TOP / 'tests/plugins/intruder.c'], check=True)
    return f'plugin={so}'


def attempts(m, root, outside):
    """Return the errno of each attempt, or 0 if it succeeded."""
    (outside / 'secret').write_text('secret')
    (root / 'known').write_text('known')
    (m / '1.tmp/default').mkdir(parents=True)
    (m / '1.tmp/default/l.intruder').write_text(f'{outside}\n{root}\n')
    os.rename(m / '1.tmp', m / '1')
    lines = (root / '1/default/l/data').read_text().splitlines()
    return {name: int(number) for name, number in (line.split() for line in lines)}


@pytest.fixture
def places(tmp_path):
    for name in ('root', 'outside'):
        (tmp_path / name).mkdir()
    return tmp_path / 'root', tmp_path / 'outside'


@pytest.mark.option('sandbox')
def test_an_intruder_can_do_what_the_mount_does_and_nothing_else(mount, confined, intruder, places, tmp_path):
    root, outside = places
    m = mount(root, intruder, f'spill={root}', allow_errors=True)
    found = attempts(m, root, outside)
    assert {name: found[name] for name in FORBIDDEN_FILES} == dict.fromkeys(FORBIDDEN_FILES, errno.EACCES)
    assert found['link-outside'] in (errno.EACCES, errno.EXDEV)
    assert {name: found[name] for name in FORBIDDEN_CALLS} == dict.fromkeys(FORBIDDEN_CALLS, errno.ENOSYS)
    # Operations that serving needs still work.
    assert {name: found[name] for name in ('read-source', 'make-source', 'thread')} == {'read-source': 0, 'make-source': 0, 'thread': 0}
    assert not (outside / 'made').exists() and (outside / 'secret').read_text() == 'secret'
    # Each refused call is in the log, by its name, once.
    mounts.wait_for(lambda: all(any(f'system call {name} ' in line for line in m.log_lines()) for name in ('socket', 'execve', 'ptrace')))
    assert sum('system call socket ' in line for line in m.log_lines()) == 1
    (m / '2.tmp').mkdir()
    (m / '2.tmp').rmdir()


def test_without_it_the_intruder_succeeds(mount, intruder, places):
    """The same attempts, so that it is the sandbox that they fail by."""
    root, outside = places
    m = mount(root, intruder, 'sandbox=off', allow_errors=True)
    found = attempts(m, root, outside)
    assert {found[name] for name in ['read-passwd', 'list-root', 'read-outside', 'write-outside', 'make-outside']} == {0}
    assert {found[name] for name in ['fork', 'socket-inet', 'socket-unix', 'executable', 'unshare']} == {0}
    assert found['execve'] == errno.ENOENT
    assert in_force(m) == dict(in_force(m), mode='off', no_new_privs=False, landlock=0, seccomp=False)


def test_config_says_what_is_in_force(mount, confined):
    m = mount(SAMPLE, 'sandbox=require')
    now = in_force(m)
    assert now['mode'] == 'require' and now['no_new_privs'] and now['seccomp'] and now['landlock'] >= 2
    assert 'missing' not in now and set(now['capabilities']) <= CAPABILITIES
    status = dict(line.split(':\t', 1) for line in pathlib.Path(f'/proc/{m.pid}/status').read_text().splitlines() if ':\t' in line)
    assert status['NoNewPrivs'] == '1' and status['Seccomp'] == '2'
    assert bin(int(status['CapEff'], 16)).count('1') == len(now['capabilities'])
    # Every thread of it.
    for thread, status in mounts.threads(m.pid).items():
        assert re.search(r'^Seccomp:\t2$', status, re.M), thread


# ---- layers that the kernel does not have ----

WITHOUT = {
    'landlock': ['landlock is not in force: the kernel does not have it, or only its first version'],
    'seccomp': ['seccomp is not in force: the kernel does not have it'],
    'landlock,seccomp': ['landlock is not in force: the kernel does not have it, or only its first version',
                         'seccomp is not in force: the kernel does not have it'],
}


@pytest.fixture(params=WITHOUT)
def old_kernel(request, confined):
    """(a command that makes the kernel look like one without these layers, their names, what is said of them)"""
    return ([sys.executable, str(TOP / 'tests/lib/old_kernel.py'), request.param], request.param.split(','),
            '; '.join(WITHOUT[request.param]))


def test_auto_says_which_layers_are_missing(mount, old_kernel, tmp_path):
    """The others are in force, and the mount reads, writes and commits as with all of them."""
    under, missing, said = old_kernel
    source = tmp_path / 'source'
    shutil.copytree(SAMPLE, source)
    m = mount(source, under=under)
    now = in_force(m)
    assert now['missing'] == said and now['no_new_privs'] and set(now['capabilities']) <= CAPABILITIES
    assert (now['landlock'] == 0) == ('landlock' in missing) and now['seccomp'] == ('seccomp' not in missing)
    assert any(f'the sandbox is not whole: {said}' in line for line in m.log_lines())
    (m / '1501.tmp').mkdir()
    shutil.copytree(m / '1500/state', m / '1501.tmp/state')
    os.rename(m / '1501.tmp', m / '1501')
    assert (m / '1501/state/step.json').read_text() == '1500\n'


def test_require_refuses_without_a_layer(mount, program, old_kernel):
    """And names each that is missing, with its reason: a mount and a command."""
    under, _, said = old_kernel
    with pytest.raises(mounts.MountError) as refused:
        mount(SAMPLE, 'sandbox=require', under=under)
    assert f'sandbox=require: {said}' in refused.value.text
    r = subprocess.run([*under, program, 'cat', '-o', 'sandbox=require', SAMPLE / '1500/state/step.json'], capture_output=True, text=True)
    assert r.returncode == 1 and f'sandbox=require: {said}' in r.stderr and r.stdout == ''
    r = subprocess.run([*under, program, 'cat', SAMPLE / '1500/state/step.json'], capture_output=True, text=True)
    assert (r.returncode, r.stdout) == (0, '1500\n'), r.stderr


def test_a_mount_that_only_reads_keeps_less(mount, confined, places, intruder):
    m = mount(SAMPLE, 'ro')
    assert set(in_force(m)['capabilities']) <= {'dac_read_search'}
    assert (m / 'latest/state/step.json').read_text() == '1500\n'


def test_a_signal_unmounts(mount, confined):
    """The process may not unmount any more: its broker does, in the background and in front."""
    for front in (False, True):
        m = mount(SAMPLE, foreground=front)
        os.kill(m.pid, signal.SIGTERM)
        mounts.wait_for(lambda: not m.mounted())


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_signal_to_the_process_group_unmounts(program, confined, tmp_path, number):
    """As a terminal, timeout(1) and batch systems send it: the broker, which unmounts, gets it too."""
    (tmp_path / 'm').mkdir()
    p = subprocess.Popen([program, 'mount', '-f', SAMPLE, tmp_path / 'm'], start_new_session=True,
                         preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
    try:
        mounts.wait_for(lambda: os.path.ismount(tmp_path / 'm') and children(p.pid))
        os.killpg(p.pid, number)
        assert p.wait(60) == 0
        assert os.listdir(tmp_path / 'm') == []
    finally:
        p.kill()
        subprocess.run(['umount', '-l', tmp_path / 'm'], capture_output=True)


def test_the_broker_ends_with_the_mount(mount, confined):
    """Whichever way that ends; its name is in ps(1), so that nobody wonders."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        m = mount(SAMPLE)
        brokers = children(m.pid)
        assert [name for _, name in brokers] == ['pytreefs-broker']
        os.kill(m.pid, how)
        mounts.wait_for(lambda: all(mounts.has_ended(pid) for pid, _ in brokers))
        if how == signal.SIGKILL:
            subprocess.run(['umount', '-l', m.path], check=True)


def sockets_of(pid):
    return [link for fd in pathlib.Path(f'/proc/{pid}/fd').iterdir() if (link := os.readlink(fd)).startswith('socket:')]


def test_connections_are_the_mounts_alone(mount, confined, tmp_path):
    """Of a source with a URL: neither the broker nor a program that another thread starts has them."""
    with servers.faulty(SAMPLE) as url:
        m = mount(f'{url}/1500', f'log={tmp_path}/log')
        assert (m / 'state/step.json').read_text() == '1500\n'
        (broker, _), = children(m.pid)
        assert len(sockets_of(broker)) == 1
        flags = [next(int(line.split()[1], 8) for line in info.read_text().splitlines() if line.startswith('flags:'))
                 for info in pathlib.Path(f'/proc/{m.pid}/fdinfo').iterdir()
                 if os.readlink(info.parent.parent / 'fd' / info.name) in inet_sockets(m.pid)]
        assert flags and all(f & os.O_CLOEXEC for f in flags)


def inet_sockets(pid):
    """As their descriptors are called."""
    return {f'socket:[{line.split()[9]}]' for line in pathlib.Path(f'/proc/{pid}/net/tcp').read_text().splitlines()[1:]}


def children(pid):
    found = subprocess.run(['ps', '-o', 'pid=,args=', '--ppid', str(pid)], capture_output=True, text=True).stdout
    return [(int(line.split()[0]), line.split()[1]) for line in found.splitlines()]


def test_a_mount_outlives_its_broker(mount, confined):
    """The broker's tasks fail, with a line in the log; everything else works."""
    m = mount(SAMPLE)
    os.kill(children(m.pid)[0][0], signal.SIGKILL)
    assert (m / 'latest/state/step.json').read_text() == '1500\n'


@pytest.mark.parametrize('front', [False, True], ids=['background', 'foreground'])
def test_a_mount_that_its_broker_cannot_unmount_says_what_does(mount, run, confined, front):
    """Nobody else may: the process ends, with an error, and leaves the mount point."""
    m = mount(SAMPLE, foreground=front, allow_errors=True)
    pid = m.pid
    os.kill(children(pid)[0][0], signal.SIGKILL)
    os.kill(pid, signal.SIGTERM)
    mounts.wait_for(lambda: mounts.has_ended(pid))
    *_, why, end = pathlib.Path(m.log).read_text().splitlines()
    assert why.endswith(f" cannot unmount '{m.path}': its process 'pytreefs-broker' was killed; `pytreefs umount {m.path}` does it")
    assert f" '{m.path}' is left without a process by SIGTERM after " in end
    assert not front or m.process.wait() == 1
    run('umount', m.path)
    assert not m.mounted()
    m.process = m._pid = None


def test_the_broker_says_that_the_mount_was_killed(mount, run, confined):
    """The mount itself cannot. One that ended in another way was not."""
    m = mount(SAMPLE)
    (broker, _), = children(m.pid)
    os.kill(m.pid, signal.SIGKILL)
    mounts.wait_for(lambda: mounts.has_ended(broker))
    assert (f"the process that served '{m.path}' was killed: `pytreefs umount {m.path}` takes the dead mount away, and so does mounting there again\n"
            in pathlib.Path(m.log).read_text())
    m._pid = None
    run('umount', m.path)
    for end in 'umount', 'signal':
        m = mount(SAMPLE)
        (broker, _), = children(m.pid)
        run('umount', m.path) if end == 'umount' else os.kill(m.pid, signal.SIGTERM)
        mounts.wait_for(lambda: mounts.has_ended(broker))
        assert 'was killed' not in pathlib.Path(m.log).read_text()


def test_on_commit_has_the_rights_of_who_mounted(mount, confined, places):
    """It runs outside of the sandbox, with the command that was given at the start."""
    root, outside = places
    m = mount(root, f'on_commit=grep -E "NoNewPrivs|Seccomp:" /proc/self/status >{outside}/status; :')
    (m / '1.tmp/default').mkdir(parents=True)
    (m / '1.tmp/default/a.json').write_text('1')
    os.rename(m / '1.tmp', m / '1')
    mounts.wait_for(lambda: (outside / 'status').exists() and len((outside / 'status').read_text().split()) == 4)
    assert (outside / 'status').read_text().split() == ['NoNewPrivs:', '0', 'Seccomp:', '0']


# ---- commands ----

def test_a_command_that_reads_is_confined(run, confined):
    now = json.loads(run('info', '--json', '-o', 'sandbox=require', SAMPLE / '1500/state').stdout)['sandbox']
    assert now['no_new_privs'] and now['seccomp'] and now['landlock'] >= 2 and set(now['capabilities']) <= {'dac_read_search'}
    assert json.loads(run('info', '--json', '-o', 'sandbox=off', SAMPLE / '1500/state').stdout)['sandbox']['landlock'] == 0


def test_an_intruder_in_a_command_changes_nothing(run, confined, intruder, mount, places):
    """A value that the plugin decodes: it may read what the user may, and write nothing."""
    root, outside = places
    m = mount(root, intruder, 'sandbox=off', allow_errors=True)
    attempts(m, root, outside)
    m.unmount()
    (root / '1/default/l/data').write_text(f'{outside}\n{root}\n')
    (outside / 'made').unlink()
    (root / 'made').unlink()
    r = run('cat', '-o', f'{intruder},spill=off', root / '1/default/l.intruder')
    found = {name: int(number) for name, number in (line.split() for line in r.stdout.splitlines())}
    writes = ['write-outside', 'make-outside', 'make-source']
    assert {name: found[name] for name in writes} == dict.fromkeys(writes, errno.EACCES)
    calls = [name for name in FORBIDDEN_CALLS if name != 'io_uring']
    assert {name: found[name] for name in calls} == dict.fromkeys(calls, errno.ENOSYS)
    assert not (outside / 'made').exists() and not (root / 'made').exists()
    assert 'the sandbox refuses system call socket' in r.stderr
