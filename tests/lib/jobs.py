# SPDX-License-Identifier: Apache-2.0
"""Several mounts of one source as an MPI job, for one test: always ended, nothing of it left behind."""

import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from lib import mounts

# A container is one machine, often of few processors, often root's, and often forbids what is fastest.
_SETTINGS = {
    'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1',
    'OMPI_MCA_rmaps_base_oversubscribe': '1', 'OMPI_MCA_pml': 'ob1', 'OMPI_MCA_btl': 'self,vader',
    'OMPI_MCA_btl_vader_single_copy_mechanism': 'none', 'OMPI_MCA_btl_base_warn_component_unused': '0',
    'OMPI_MCA_oob_tcp_if_include': 'lo', 'OMPI_MCA_hwloc_base_binding_policy': 'none',
    'OMPI_MCA_plm_rsh_agent': '/bin/false',
    # A fifth of what a start takes is for devices, which no rank uses.
    'HWLOC_COMPONENTS': '-pci,-linuxio',
}
# Two mpirun that begin at once both make the folder of the machine's sessions, and the later one fails with "File
# exists", so each has a place of its own; of a short name, for sockets. conftest.py removes it in the end. What ranks share is there,
# too, since /dev/shm of a container is small: it holds a dozen ranks, and less when others use it.
_sessions = tempfile.TemporaryDirectory(prefix='pt', dir='/tmp', ignore_cleanup_errors=True)


def remove_sessions():
    _sessions.cleanup()


def environment(more=None):
    """The environment of one mpirun of a test; more: {name: value} on top of it."""
    place = tempfile.mkdtemp(dir=_sessions.name)
    return {**os.environ, **_SETTINGS, 'OMPI_MCA_orte_tmpdir_base': place, 'OMPI_MCA_btl_vader_backing_directory': place,
            **(more or {})}


def missing(program):
    """Why jobs cannot be run here, or ''."""
    if not pathlib.Path(program).with_name('pytreefs-mpi').exists():
        return 'built without MPI'
    return '' if shutil.which('mpirun') else 'there is no mpirun'


class Job:
    """`mpirun -n N pytreefs mount --mpi`; the mount of rank r is job[r]. more: what environment() adds.
    recovery: without it mpirun itself ends every rank when one dies."""

    def __init__(self, program, source, under, n, options=(), more=None, recovery=True):
        self.n, self.source, self.under = n, pathlib.Path(source), pathlib.Path(under)
        self.expect = 0                         # status of mpirun; None: a rank was killed
        self.log = self.under / 'log'
        self.under.mkdir()
        for r in range(n):
            self[r].mkdir()
        command = ['mpirun', *['--enable-recovery'] * recovery, '-n', str(n), program, 'mount', '--mpi', str(source),
                   str(self.under / 'r%r')]
        if options:
            command += ['-o', ','.join(options)]
        with open(self.log, 'wb') as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=environment(more), start_new_session=True)
        self.pids = {}
        try:
            self._wait()
        except BaseException:
            self.end()
            raise

    def __getitem__(self, rank):
        return self.under / f'r{rank}'

    def text(self):
        return self.log.read_text(errors='replace')

    def _wait(self):
        end = time.monotonic() + 180
        while not all(self.mounted(r) for r in range(self.n)):
            if self.process.poll() is not None or time.monotonic() > end:
                raise mounts.MountError(self.process.poll(), self.text())
            time.sleep(0.02)
        for r in range(self.n):
            (self[r] / '.pytreefs' / 'version').read_text()         # answered once all are mounted
        for pid in mounts.serving(self.under / 'r%r'):
            env = mounts.of_process(pid, 'environ').split(b'\0')
            rank = [int(e.partition(b'=')[2]) for e in env if e.startswith(b'OMPI_COMM_WORLD_RANK=')]
            self.pids[rank[0]] = pid
        assert len(self.pids) == self.n, self.pids

    def mounted(self, rank):
        with open('/proc/self/mountinfo') as f:
            return any(mounts.unescape(line.split()[4]) == str(self[rank]) for line in f)

    def each(self, call, ranks=None, timeout=300, meanwhile=None):
        """call(rank) in a thread each: {rank: what it returned, or the exception}. meanwhile: called with the results so far until all have come."""
        out = {}

        def one(rank):
            try:
                out[rank] = call(rank)
            except Exception as e:              # noqa: BLE001: the test looks at it
                out[rank] = e
        threads = [threading.Thread(target=one, args=(r,), daemon=True)
                   for r in (range(self.n) if ranks is None else ranks)]
        for t in threads:
            t.start()
        end = time.monotonic() + timeout
        while meanwhile and any(t.is_alive() for t in threads) and time.monotonic() < end:
            meanwhile(out)
            time.sleep(0.02)
        for t in threads:
            t.join(max(0, end - time.monotonic()))
        assert not any(t.is_alive() for t in threads), 'a rank did not come back'
        return out

    def rename(self, draft, step, ranks=None, meanwhile=None):
        """The errno of every rank's rename, 0 where it succeeded."""
        def one(rank):
            os.rename(self[rank] / draft, self[rank] / step)
            return 0
        return {r: e.errno if isinstance(e, OSError) else e for r, e in self.each(one, ranks, meanwhile=meanwhile).items()}

    def signal(self, rank, number):
        os.kill(self.pids[rank], number)
        if number == signal.SIGKILL:
            self.expect = None

    def kill(self, rank):
        self.signal(rank, signal.SIGKILL)
        while not mounts.has_ended(self.pids[rank]):
            time.sleep(0.005)

    def is_asleep(self, rank):
        """Every thread of a rank, at the moment."""
        return all(stat.rpartition(')')[2].split()[0] == 'S' for stat in mounts.threads(self.pids[rank], 'stat').values())

    def memory(self, rank, field='VmHWM'):
        return mounts.memory(self.pids[rank], field)

    def stats(self, rank):
        return json.loads((self[rank] / '.pytreefs' / 'stats').read_text())

    def unmount(self, rank):
        return mounts.unmount_with('umount', self[rank])

    def end(self):
        """Unmount all; what was not as it should be, or ''."""
        faults = []
        if self.expect is None:                 # the others need not wait until the dead one is given up
            for pid in self.pids.values():
                _signal(pid, signal.SIGCONT)
        for r in range(self.n):
            if self.expect is None and r in self.pids and mounts.has_ended(self.pids[r]):
                force_unmount(self[r])          # umount(8) would look at it first
            if self.mounted(r) and (why := self.unmount(r)):
                faults += [why] if self.expect == 0 else []
                force_unmount(self[r])
        try:
            status = self.process.wait(180 if self.expect == 0 else 0.5)
            if self.expect is not None and status != self.expect:
                faults.append(f'mpirun ended with {status}: {self.text()[-2000:]}')
        except subprocess.TimeoutExpired:
            if self.expect == 0:
                faults.append(f'the job did not end: {self.text()[-2000:]}')
        for pid in self.pids.values():
            _signal(pid, signal.SIGKILL)
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        # Until then they have what they have locked.
        for rank, pid in self.pids.items():
            try:
                mounts.wait_for(lambda pid=pid: mounts.has_ended(pid))
            except AssertionError:
                faults.append(f'rank {rank} did not end')
        faults += [f'rank {r} is still mounted' for r in range(self.n) if self.mounted(r)]
        faults += [line for line in self.text().splitlines() if mounts.NEVER.search(line)]
        return '\n'.join(faults)


def force_unmount(path):
    """At once, whoever serves it."""
    ctypes.CDLL(None).umount2(os.fsencode(path), 1 | 2)


def _signal(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
