# SPDX-License-Identifier: Apache-2.0
"""The log of a mount: opened again on SIGHUP, messages to syslog, its first and last line, and the counters of calls."""

import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from lib import mounts

SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data' / 'sample'

START = re.compile(r" pytreefs [0-9.]+ serves '(.*)' on '(.*)', (read-only|read-write), sandbox (?:off|in part|whole)$", re.M)
END = re.compile(r" '(.*)' is unmounted(?: by (SIG[A-Z]+))? after (\d+) s: (\d+) requests?, (\d+) errors?, (\d+) of (\d+) commits?$", re.M)


def counters(m):
    return json.loads((m / '.pytreefs/stats').read_text())


@pytest.mark.parametrize('sandbox', ['require', 'off'])
@pytest.mark.parametrize('foreground', [False, True])
def test_hangup_opens_the_log_again(mount, tmp_path, foreground, sandbox):
    """As logrotate asks for it after it has renamed the file; twice, and with a directory in place of the file in between."""
    m = mount(SAMPLE, f'sandbox={sandbox}', foreground=foreground, allow_errors=True)
    log, old = m.log, [tmp_path / 'log.1', tmp_path / 'log.2']
    # In the foreground, the mount can be seen before its first request has come.
    mounts.wait_for(lambda: os.path.exists(log) and START.search(open(log).read()))
    os.rename(log, old[0])
    os.kill(m.pid, signal.SIGHUP)
    mounts.wait_for(lambda: os.path.exists(log) and 'was opened again' in open(log).read())
    assert START.search(old[0].read_text()) and 'opened again' not in old[0].read_text()
    os.rename(log, old[1])
    os.mkdir(log)
    os.kill(m.pid, signal.SIGHUP)
    mounts.wait_for(lambda: f"cannot open log '{log}' again: Is a directory" in old[1].read_text())
    os.rmdir(log)
    os.kill(m.pid, signal.SIGHUP)
    mounts.wait_for(lambda: os.path.exists(log) and 'was opened again' in open(log).read())
    assert (m / 'latest/state/step.json').read_text() == '1500\n'
    assert m.unmount() == '' and END.search(open(log).read())


def test_a_log_that_is_renamed_at_once(mount, tmp_path):
    """The broker, which opens it again, may still be starting then."""
    for i in range(10):
        m = mount(SAMPLE, 'sandbox=off')
        log, old = m.log, tmp_path / f'log.{i}'
        mounts.wait_for(lambda: os.path.exists(log) and START.search(open(log).read()))
        os.rename(log, old)
        os.kill(m.pid, signal.SIGHUP)
        mounts.wait_for(lambda: os.path.exists(log) and 'was opened again' in open(log).read())
        assert m.unmount() == '' and len(old.read_text().splitlines()) == 1


def test_the_new_file_stands_for_itself(mount, tmp_path):
    """A message that the old file has, too, is there and not only counted. A starter that ignores SIGHUP, as nohup does, changes nothing."""
    ignoring = 'import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])'
    (tmp_path / 'root').mkdir()
    m = mount(tmp_path / 'root', 'shape=root', under=[sys.executable, '-c', ignoring], allow_errors=True)
    for old in ('log.1', 'log.2'):
        with pytest.raises(PermissionError):
            (m / 'twice').mkdir()
        os.rename(m.log, tmp_path / old)
        os.kill(m.pid, signal.SIGHUP)
        mounts.wait_for(lambda: os.path.exists(m.log) and 'was opened again' in open(m.log).read())
        assert "'twice' cannot be made" in (tmp_path / old).read_text()


def test_a_pipe_in_place_of_the_log_keeps_nobody_waiting(mount, tmp_path):
    m = mount(SAMPLE, allow_errors=True)
    os.rename(m.log, tmp_path / 'log.1')
    os.mkfifo(m.log)
    os.kill(m.pid, signal.SIGHUP)
    mounts.wait_for(lambda: 'again: No such device' in (tmp_path / 'log.1').read_text())
    os.remove(m.log)
    assert m.unmount() == ''


def test_hangup_without_a_log_file_changes_nothing(program, tmp_path):
    """A mount that has no terminal does not lose one."""
    (tmp_path / 'm').mkdir()
    p = subprocess.Popen([program, 'mount', '-f', SAMPLE, tmp_path / 'm'], start_new_session=True, stderr=subprocess.PIPE,
                         text=True, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
    try:
        mounts.wait_for(lambda: os.path.ismount(tmp_path / 'm'))
        p.send_signal(signal.SIGHUP)
        time.sleep(0.2)
        assert (tmp_path / 'm/latest/state/step.json').read_text() == '1500\n' and p.poll() is None
        p.terminate()
        assert END.search(p.communicate(timeout=60)[1])[2] == 'SIGTERM'
    finally:
        p.kill()
        subprocess.run(['umount', '-l', tmp_path / 'm'], capture_output=True)


def test_a_terminal_that_is_gone_unmounts(program, tmp_path):
    (tmp_path / 'm').mkdir()
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.execv(program, [program, 'mount', '-f', '-o', f'log={tmp_path / "log"}', SAMPLE, tmp_path / 'm'])
    try:
        mounts.wait_for(lambda: os.path.ismount(tmp_path / 'm'))
        os.close(terminal)
        mounts.wait_for(lambda: not os.path.ismount(tmp_path / 'm'))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert END.search((tmp_path / 'log').read_text())[2] == 'SIGHUP'
    finally:
        subprocess.run(['umount', '-l', tmp_path / 'm'], capture_output=True)


def without_devices(script, program, tmp_path):
    """The output of a script that mounts an empty root where /dev is its own."""
    for name in ('mnt', 'root'):
        (tmp_path / name).mkdir()
    r = mounts.own_mounts(mounts.OWN_FUSE + 'exec "$0" "$@"', sys.executable, '-c', script, program, tmp_path / 'root', tmp_path / 'mnt')
    assert r.returncode == 0, r.stderr
    return r.stdout


SYSLOGD = r"""
import os, select, socket, subprocess, sys
program, source, mnt = sys.argv[1:]

def daemon():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind('/dev/log')
    return s

def message(s):
    return s.recv(4096).decode() if select.select([s], [], [], 60)[0] else 'none in time'

s = daemon()
subprocess.run([program, 'mount', '-o', 'shape=root', source, mnt], check=True)
print(message(s))
for restart in range(2):
    s.close()
    os.unlink('/dev/log')
    if restart:                                     # a message while there is no daemon is lost
        os.mkdir(mnt + '/8.tmp')
        os.rmdir(mnt + '/8.tmp')
    s = daemon()
    os.mkdir(f'{mnt}/9.tmp')
    print(message(s))
    os.rmdir(f'{mnt}/9.tmp')
    print(message(s))
subprocess.run([program, 'umount', mnt], check=True)
print(message(s))
"""


@pytest.mark.skipif(os.getuid() != 0, reason='only root may hide /dev/log')
def test_syslog_is_restarted(program, tmp_path):
    """Its daemon makes a new socket, to which a confined process cannot connect."""
    lines = without_devices(SYSLOGD, program, tmp_path).splitlines()
    assert re.fullmatch(rf"<30>\w+ .\d [0-9:]+ pytreefs\[\d+\]: pytreefs .* serves '{tmp_path}/root' on .*", lines[0]), lines
    for begin, end in (lines[1:3], lines[3:5]):
        assert "draft '9.tmp' begins" in begin and "draft '9.tmp' is given up" in end, lines
    assert 'is unmounted after' in lines[5], lines


STALLED = r"""
import os, signal, socket, subprocess, sys, time
program, source, mnt = sys.argv[1:]
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind('/dev/log')                              # nobody reads from it
subprocess.run([program, 'mount', '-o', 'shape=root', source, mnt], check=True)
for i in range(300):
    os.mkdir(f'{mnt}/{i}.tmp')
    os.rmdir(f'{mnt}/{i}.tmp')
assert open(mnt + '/.pytreefs/log').read().count('begins') == 300
pid = int(open(mnt + '/.pytreefs/stats').read().split('"pid": ')[1].split(',')[0])
os.kill(pid, signal.SIGTERM)
end = time.monotonic() + 30
while os.path.ismount(mnt):
    assert time.monotonic() < end, 'still mounted'
    time.sleep(0.05)
"""


@pytest.mark.skipif(os.getuid() != 0, reason='only root may hide /dev/log')
def test_a_syslog_that_does_not_read_stops_nothing(program, tmp_path):
    """Messages are lost; the broker, which also unmounts, does not wait."""
    without_devices(STALLED, program, tmp_path)


def test_the_log_is_opened_again_where_it_was(mount, tmp_path):
    """In the same directory, whatever has its path now; and a link in its place is not followed."""
    (tmp_path / 'victim').write_text('')
    m = mount(SAMPLE, allow_errors=True)
    log = pathlib.Path(m.log)
    mounts.wait_for(lambda: START.search(log.read_text()))
    log.rename(log.with_name('log.1'))
    log.symlink_to(tmp_path / 'victim')
    os.kill(m.pid, signal.SIGHUP)
    mounts.wait_for(lambda: f"cannot open log '{log}' again: Too many levels of symbolic links" in log.with_name('log.1').read_text())
    assert (tmp_path / 'victim').read_text() == ''
    log.unlink()


def test_first_and_last_line(mount, tmp_path):
    m = mount(SAMPLE, 'ro')
    mounts.wait_for(lambda: START.search(open(m.log).read()))           # it comes after the mount is ready
    assert START.findall(open(m.log).read()) == [(str(SAMPLE), str(m.path), 'read-only')]
    os.kill(m.pid, signal.SIGTERM)
    mounts.wait_for(lambda: END.search(open(m.log).read()))
    assert END.search(open(m.log).read())[2] == 'SIGTERM'


def test_errors_commits_and_drafts_are_counted(mount, tmp_path):
    (tmp_path / 'root').mkdir()
    m = mount(tmp_path / 'root', 'shape=root', allow_errors=True)
    assert [counters(m)[name] for name in ('errors', 'drafts', 'commits', 'commits_failed')] == [0, 0, 0, 0]
    (m / '1.tmp/default').mkdir(parents=True)
    (m / '2.tmp').mkdir()
    assert counters(m)['drafts'] == 2
    np.save(m / '1.tmp/default/w.npy', np.arange(10))
    (m / '1.tmp').rename(m / '1')
    (m / '2.tmp/default').mkdir()
    (m / '2.tmp/default/w.npy').write_bytes(b'not an array')
    with pytest.raises(OSError):
        (m / '2.tmp').rename(m / '2')
    assert [counters(m)[name] for name in ('drafts', 'commits', 'commits_failed')] == [1, 1, 1]
    assert counters(m)['errors'] == 1
    assert not os.path.exists(m / 'nothing')                            # an ordinary answer
    assert counters(m)['errors'] == 1
    m.unmount()
    assert END.search(open(m.log).read()).groups()[-3:] == ('1', '1', '2')


def test_the_page_has_every_counter(mount, tmp_path):
    """docs/json.md: the table of a mount's counters, and that of a URL."""
    text = (SAMPLE.parents[2] / 'docs/json.md').read_text().partition('## Counters of a mount')[2]
    local, _, of_url = text.partition('A SOURCE with a URL')
    documented = [{name for row in re.findall(r'^\| (`.*?) \|', part, re.M) for name in re.findall(r'`(\w+)`', row)}
                  for part in (local, of_url)]
    # Named in the text of another row, or absent outside of a job.
    assert documented[0] | {'requests_polled', 'requests_uring'} == set(counters(mount(SAMPLE))) | {'in_job'}
    source = (SAMPLE.parents[2] / 'handlers/namespace/ns_info.c').read_text()
    assert documented[1] == set(re.findall(r'"((?:url|cache_dir)_\w+)"', source))


# ---- metrics ----

def test_metrics_are_those_of_stats_in_the_form_of_prometheus(mount, tmp_path):
    """Its own parser reads them: each counter of stats once, and durations and errors by operation, whose classes add up."""
    m = mount(shutil.copytree(SAMPLE, tmp_path / 'copy'), mnt=tmp_path / 'a "mount\\point"', allow_errors=True)
    (m / '1500/state/step.json').read_text()
    for _ in range(3):
        with pytest.raises(PermissionError):
            os.mkdir(m / '7')
    stats, text = counters(m), (m / '.pytreefs/metrics').read_text()
    assert text.endswith('\n') and all(line.count('mountpoint=') == 1 for line in text.splitlines() if line[0] != '#')
    families = {f.name: f for f in text_string_to_metric_families(text)}
    samples = [s for f in families.values() for s in f.samples]
    assert len({(s.name, *s.labels.items()) for s in samples}) == len(samples) and {s.labels['mountpoint'] for s in samples} == {str(m.path)}
    values = {s.name.removesuffix('_total').removeprefix('pytreefs_'): s.value for s in samples if 'operation' not in s.labels}
    assert set(values) == set(stats) and values['pid'] == stats['pid'] and values['errors'] == stats['errors'] == 3
    assert {name: families[f'pytreefs_{name}'].type for name in stats if values[name] != stats[name]}.items() <= \
        {name: 'counter' for name in stats}.items() | {(name, 'gauge') for name in ('uptime_seconds', 'nodes', 'cache_bytes', 'background_jobs')}
    errors = {s.labels['operation']: s.value for s in families['pytreefs_request_errors'].samples}
    assert errors['mkdir'] == 3 and sum(errors.values()) == stats['errors']
    took = families['pytreefs_request_duration_seconds']
    assert took.type == 'histogram' and {'lookup', 'open', 'read', 'mkdir'} <= set(errors)
    for operation in errors:
        of = [s for s in took.samples if s.labels['operation'] == operation]
        classes = [s.value for s in of if s.name.endswith('_bucket')]
        total, seconds = (next(s.value for s in of if s.name.endswith(end)) for end in ('_count', '_sum'))
        assert classes == sorted(classes) and len(classes) == 8 and classes[-1] == total > 0 and 0 < seconds < 60, operation
    assert next(s.value for s in took.samples if s.labels['operation'] == 'mkdir' and s.name.endswith('_count')) == 3

