# SPDX-License-Identifier: Apache-2.0
"""A pytreefs mount for one test: made with options, always unmounted, its log read afterwards."""

import contextlib
import functools
import gc
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

# Lines that no run may say, and lines that only a test that provokes them may cause.
NEVER = re.compile(r'assert|sanitizer|runtime error:|leak|segmentation|corrupted|double free', re.I)
ERROR = re.compile(r'\b(cannot|failed|failure|error|refused)\b', re.I)
# A kernel that lacks something is not an error, and neither is an object that was looked for.
NOTICE = re.compile(r'io_uring|passthrough|read_ahead|trace io: http (HEAD|GET) .* failed: status 404')
LIFE = re.compile(r"Z pytreefs \S+ serves '|Z '.*' is unmounted(?: by SIG[A-Z]+)? after \d+ s: ")
NO_RACES = pathlib.Path(__file__).resolve().parent.parent / 'thread.suppressions'


class Mount:
    def __init__(self, program, source, mnt, log, options=(), foreground=False,
                 under=()):
        self.program, self.source, self.path, self.log = program, source, pathlib.Path(mnt), log
        self.path.mkdir(parents=True, exist_ok=True)
        self.process = None
        # A build with sanitizers tells there; other builds do not look.
        report = f'log_path={log}.sanitizer'
        env = dict(os.environ, ASAN_OPTIONS=report, UBSAN_OPTIONS=f'{report}:print_stacktrace=1',
                   TSAN_OPTIONS=f'{report}:suppressions={NO_RACES}')
        command = [*under, program, 'mount', str(source), str(mnt), '-o', ','.join([f'log={log}', *options])]
        self._command = 0       # of one in the foreground, all processes are later
        if foreground:
            self.process = subprocess.Popen(command + ['-f'], stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
            self._wait_until_ready()
        else:
            with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as p:
                try:
                    said = p.communicate(timeout=120)[1]
                except subprocess.TimeoutExpired:
                    p.kill()
                    raise
            if p.returncode:
                raise MountError(p.returncode, said)
            self._command = p.pid
        self._pid = self.process.pid if self.process else None

    def _wait_until_ready(self):
        end = time.monotonic() + 120
        while not self.mounted():
            if self.process.poll() is not None or time.monotonic() > end:
                raise MountError(self.process.poll(), 'the mount in the foreground did not become ready')
            time.sleep(0.01)

    def __truediv__(self, name):
        return self.path / name

    def mounted(self):
        with open('/proc/self/mountinfo') as f:
            return any(unescape(line.split()[4]) == str(self.path) for line in f)

    @property
    def pid(self):
        """The daemon, found by its command line: first among the processes with numbers after the command's."""
        if self._pid is None:
            self._pid = (serving(self.path, self._command) or [None])[-1]
        return self._pid

    def memory(self, field='VmHWM'):
        """Bytes of the daemon's memory: the peak (VmHWM) or now (VmRSS). 0 under a sanitizer: it is not ours."""
        return memory(self.pid, field)

    def reset_peak(self):
        """Begin a new VmHWM."""
        pathlib.Path(f'/proc/{self.pid}/clear_refs').write_text('5')

    def open_files(self):
        """Return the files to which its descriptors refer."""
        found, where = [], f'/proc/{self.pid}/fd'
        for fd in os.listdir(where):
            try:
                found.append(os.readlink(f'{where}/{fd}'))
            except FileNotFoundError:
                pass
        return found

    def stats(self):
        return json.loads((self.path / '.pytreefs' / 'stats').read_text())

    def log_lines(self):
        """All but the first and the last: they have paths, and so the names of tests, in which a test may find what it looks for."""
        try:
            lines = pathlib.Path(self.log).read_text(errors='replace').splitlines()
        except FileNotFoundError:
            return []
        return [line for line in lines if not LIFE.search(line)]

    def faults(self, allow_errors):
        """Return the lines that should not be in the log."""
        out = [line for line in self.log_lines() if NEVER.search(line)]
        for report in pathlib.Path(self.log).parent.glob(f'{pathlib.Path(self.log).name}.sanitizer.*'):
            out.append(report.read_text(errors='replace')[:20000])
        if not allow_errors:
            out += [line for line in self.log_lines() if ERROR.search(line) and not NOTICE.search(line)]
        return out

    def unmount(self):
        """Leave nothing behind; what went wrong, or '' when the ordinary way worked and the daemon is gone."""
        pid, why = self.pid, ''
        if self.mounted():
            why = unmount_with('fusermount3', '-u', self.path)
        if self.mounted():
            subprocess.run(['umount', '-l', str(self.path)], capture_output=True)
        return why or self._ended(pid)

    def _ended(self, pid):
        end = time.monotonic() + 180
        while pid and time.monotonic() < end:
            if self.process:
                if self.process.poll() is not None:
                    return f'the daemon ended with {self.process.returncode}' if self.process.returncode else ''
            elif has_ended(pid):
                return ''
            time.sleep(0.01)
        if not pid:
            return ''
        os.kill(pid, 9)
        return 'the daemon did not end within 180 s of the unmount'


def unmount_with(*command):
    """Run a command that unmounts, again while a read-ahead under way keeps the mount busy; '' or its error."""
    end = time.monotonic() + 120
    while True:
        r = subprocess.run([*map(str, command)], capture_output=True, text=True)
        why = r.stderr.strip() if r.returncode else ''
        if 'busy' not in why or time.monotonic() > end:
            return why
        # A map that a test has left in a cycle of references is in use until the cycle is found.
        gc.collect()
        time.sleep(0.02)


def serving(path, after=0):
    """Ids of the processes of pytreefs that have this word, without those that such a one has just forked. Those with numbers after that one, if
    there are any: numbers begin again."""
    word, every = os.fsencode(path), [int(name) for name in os.listdir('/proc') if name.isdigit()]
    for some in ([n for n in every if n > after], [n for n in every if n <= after]):
        found = [n for n in some if word in (words := of_process(n, 'cmdline').split(b'\0')) and b'pytreefs' in words[0]]
        parents = {n: of_process(n, 'stat').rpartition(b')')[2].split()[1:2] for n in found}
        if first := [n for n in found if parents[n] and int(parents[n][0]) not in found]:
            return first
    return []


def of_process(pid, name):
    """A file of /proc; empty if the process has ended. Read whole by one call: there are many."""
    with contextlib.suppress(OSError), open(f'/proc/{pid}/{name}', 'rb', buffering=0) as f:
        return f.read(1 << 20)
    return b''


def memory(pid, field='VmHWM'):
    """Bytes of a process's memory: the peak (VmHWM) or now (VmRSS). 0 under a sanitizer: it is not ours."""
    if is_sanitized(f'/proc/{pid}/exe'):
        return 0
    for line in pathlib.Path(f'/proc/{pid}/status').read_text().splitlines():
        if line.startswith(field + ':'):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def wait_for(holds, seconds=120):
    """Until holds() is true. How long that takes is the machine's affair, too: this ends a test that hangs."""
    end, pause = time.monotonic() + seconds, 0.002
    while not holds():
        assert time.monotonic() < end, f'not so within {seconds} s'
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def wait_for_release(m):
    """Of what was read: the kernel releases a file after close(2) has returned, and until then its last chunk stays with cache=0, too."""
    wait_for(lambda: not m.stats()['cache_pinned_bytes'])


def threads(pid, file='status'):
    """{id: text of that file of /proc} of a process's threads; not of those that end meanwhile."""
    found = {}
    for task in pathlib.Path(f'/proc/{pid}/task').iterdir():
        with contextlib.suppress(OSError):
            found[int(task.name)] = (task / file).read_text()
    return found


def stop(pid):
    """SIGSTOP. It has returned when no thread runs any more: on a busy machine some go on for a while."""
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: all(text.rpartition(') ')[2][0] in 'TZ' for text in threads(pid, 'stat').values()))


def is_sanitized(program):
    """A build with sanitizers, of addresses or of threads, whose memory is not ours to judge. program: its file, or
    that of a process."""
    st = os.stat(program)
    return _names_a_sanitizer(program, (st.st_dev, st.st_ino, st.st_mtime_ns))


@functools.cache
def _names_a_sanitizer(program, _which):
    code = pathlib.Path(program).read_bytes()
    return b'__asan_init' in code or b'__tsan_init' in code


def has_ended(pid):
    """Gone, or a zombie that init has not collected yet, and none of its threads holds its files any more."""
    try:
        stat = pathlib.Path(f'/proc/{pid}/stat').read_text()
        threads = len(os.listdir(f'/proc/{pid}/task'))
    except OSError:
        return True
    return stat.rpartition(')')[2].split()[0] in 'ZX' and threads <= 1


class MountError(Exception):
    def __init__(self, status, text):
        super().__init__(f'mount ended with status {status}: {text}')
        self.status, self.text = status, text


def unescape(text):
    return re.sub(r'\\(\d{3})', lambda m: chr(int(m[1], 8)), text)


# For own_mounts(): a /dev that has only these.
OWN_DEVICES = 'mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && '
OWN_FUSE = OWN_DEVICES + 'mknod -m 666 /dev/fuse c 10 229 && '


def own_mounts(script, *arguments, **how):
    """Run a shell script whose mounts nobody else sees; "$0" is the first argument, "$@" are the others.

    Skips the test where that cannot be done: in a container that forbids it, in a chroot whose root is not a mount point,
    and where the script ends with 77.
    """
    r = subprocess.run(['unshare', '--mount', 'sh', '-c', script, *map(str, arguments)], capture_output=True, text=True, timeout=240, **how)
    if r.returncode == 77 or r.stderr.startswith('unshare:'):
        pytest.skip('no mount namespace can be made here')
    return r
