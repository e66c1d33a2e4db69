# SPDX-License-Identifier: Apache-2.0
"""Fixtures for all tests of tests/mount and tests/interop."""

import ast
import functools
import gc
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import threading

import pytest

# Of what modules of tests import nothing becomes garbage: to look for it took a third of the time in which they are read.
gc.disable()

TESTS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(TESTS))
# Here alone, and before any test is imported: every other place reads it.
os.environ.setdefault('PYTREEFS_BUILD', str(TESTS.parent / 'build'))

# Variables that a user may have set for other checkpoints and servers.
os.environ.pop('PYTREEFS_OPTIONS', None)
os.environ['no_proxy'] = os.environ['NO_PROXY'] = ','.join(
    filter(None, ['127.0.0.1,localhost', os.environ.get('no_proxy') or os.environ.get('NO_PROXY')]))

# Tests compile each function once for a few numbers: half of the time that JAX takes in them is for optimizing it.
os.environ.setdefault('JAX_DISABLE_MOST_OPTIMIZATIONS', '1')

import features  # noqa: E402
from lib import buckets, checkpoints, gcs as gcs_server, jobs, mounts, objects, preload  # noqa: E402


# A shell that starts tests in the background ignores these signals, and all programs inherit that, but some tests end programs with them.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)


def _one_at_a_time(function):
    lock = threading.Lock()

    @functools.wraps(function)
    def call(*args):
        with lock:
            return function(*args)
    return call


# numpy reads headers with it, and in CPython 3.11 two threads that do can fail with "AST constructor
# recursion depth mismatch", although nothing is wrong with what they read.
ast.literal_eval = _one_at_a_time(ast.literal_eval)


def pytest_configure(config):
    config.addinivalue_line('markers', 'serial: measures time or memory, or needs much; runs alone')
    config.addinivalue_line('markers', 'long: is in tests/long.txt, whose tests only tests/run --all runs')
    config.addinivalue_line('markers', 'races: runs with the thread sanitizer, too (tests/run races)')
    config.addinivalue_line('markers', 'option(NAME, ...): the options whose effect this test compares with and without')
    config.addinivalue_line('markers', 'feature(ID, ...): the rows of features.py that this test shows')


def long_tests():
    """The names of tests/long.txt, and the beginnings of names that it stands for."""
    names = [line.split('  # ')[0] for line in (TESTS / 'long.txt').read_text().splitlines() if line and not line.startswith('#')]
    ends = [(name[:-1],) if name.endswith('*') else (name + '::', name + '[', name + '/') for name in names]
    return tuple(name for name in names if not name.endswith('*')), tuple(start for starts in ends for start in starts)


def shuffle(items, seed):
    """Another order of the modules, and of the tests in each: what a module shares is made once."""
    modules = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    chance = random.Random(seed)
    order = chance.sample(list(modules), len(modules))
    items[:] = [item for path in order for item in chance.sample(modules[path], len(modules[path]))]


def pytest_report_teststatus(report, config):
    """A file has no use for a dot for each test that passed, nor for a letter for each that was skipped."""
    if (report.passed or report.skipped) and not hasattr(report, 'wasxfail') and config.getini('console_output_style') == 'classic':
        return ('' if report.passed and report.when != 'call' else report.outcome), '', ''
    return None


def pytest_collection_modifyitems(items):
    """The rows that a test shows go into the report, for features.py; TEST_ORDER is a number of tests/steady."""
    long, starts = long_tests()
    if seed := os.environ.get('TEST_ORDER'):
        shuffle(items, seed)
    for item in items:
        name = item.nodeid.removeprefix('tests/')
        if name in long or name.startswith(starts):
            item.add_marker('long')
        for row in sorted({row for mark in item.iter_markers('feature') for row in mark.args}):
            if row not in features.ROWS:
                raise pytest.UsageError(f'{item.nodeid} names a row {row!r}, which features.py does not have')
            item.user_properties.append(('feature', row))


def pytest_unconfigure():
    # A worker of pytest-xdist ends at once, without what Python does at its end.
    jobs.remove_sessions()


def pytest_collection_finish():
    """From here on there is garbage, but not among the modules. Each search calls JAX, too, so there are fewer than by default."""
    gc.freeze()
    gc.set_threshold(5000)
    gc.enable()


@pytest.fixture(scope='session')
def build():
    """The build directory; ninja has run."""
    path = pathlib.Path(os.environ['PYTREEFS_BUILD'])
    if not (path / 'pytreefs').exists():
        pytest.exit(f"'{path}/pytreefs' does not exist: build first with `ninja -C {path}`, or use tests/run", 1)
    return path.resolve()


@pytest.fixture(scope='session')
def program(build):
    return str(build / 'pytreefs')


@pytest.fixture(scope='session')
def mpi(program):
    """Skips what needs several processes where there can be none."""
    if why := jobs.missing(program):
        pytest.skip(why)


@pytest.fixture
def cases():
    """cases(name): a checkpoint and what it holds (lib/checkpoints.py); read-only, shared by tests."""
    return checkpoints.get


@pytest.fixture
def root(tmp_path):
    """An empty directory to mount."""
    path = tmp_path / 'root'
    path.mkdir()
    return path


@pytest.fixture
def copy(tmp_path):
    """copy(case): a private copy of a checkpoint that the test may change; returns its source path."""
    def make(case, name='copy'):
        target = tmp_path / name
        shutil.copytree(case.path, target, symlinks=True)
        return target
    return make


@pytest.fixture
def mount(program, tmp_path):
    """mount(source, 'option=value', ...): a mount.Mount, unmounted and its log scanned afterwards.

    allow_errors=True: the test provokes failures that the log rightly reports. foreground=True: with -f.
    under=[...]: a command to run it under. mnt: the mount point.
    """
    made = []

    def do(source, *options, allow_errors=False, **how):
        n = len(made)
        m = mounts.Mount(program, source, how.pop('mnt', tmp_path / f'mnt{n}'), tmp_path / f'log{n}', options, **how)
        made.append((m, allow_errors))
        return m

    yield do
    faults = []
    for m, allow_errors in reversed(made):
        why = m.unmount()
        if why:
            faults.append(f'{m.path}: {why}')
        faults += [f'{m.path}: the log says: {line}' for line in m.faults(allow_errors)]
    assert not faults, '\n'.join(faults)


@pytest.fixture
def job(program, mpi, tmp_path):
    """job(n, 'option=value', source=None, more=None): mounts of one source as an MPI job of n ranks, ended afterwards.

    source: an empty directory when none is given; more: what their environment has besides. A test that kills a rank
    says so by job.kill().
    """
    made = []

    def do(n, *options, source=None, more=None):
        if source is None:
            source = tmp_path / 'source'
            source.mkdir(exist_ok=True)
        made.append(jobs.Job(program, source, tmp_path / f'job{len(made)}', n, options, more))
        return made[-1]

    yield do
    faults = [why for j in reversed(made) if (why := j.end())]
    assert not faults, '\n'.join(faults)


@pytest.fixture(scope='session')
def clock_library(tmp_path_factory):
    return preload.make(tmp_path_factory, 'clock')


@pytest.fixture
def clock(clock_library, tmp_path):
    """The clock of a job that has clock.environment."""
    return preload.Clock(clock_library, tmp_path / 'clock')


@pytest.fixture(scope='session')
def moto():
    """The address of moto's server of S3."""
    with buckets.moto() as address:
        yield address


@pytest.fixture(scope='session')
def gcs():
    """The address of the emulator of Google Cloud Storage."""
    with gcs_server.emulator() as address:
        yield address


def _server(request, in_memory, real):
    """The server after a proxy: one of lib/objects.py in a module with IN_MEMORY = True, unless TEST_SERVERS=real is in the environment."""
    if getattr(request.module, 'IN_MEMORY', False) and os.environ.get('TEST_SERVERS') != 'real':
        return in_memory()
    return request.getfixturevalue(real)


@pytest.fixture(scope='module')
def s3_server(request):
    return _server(request, objects.S3, 'moto')


@pytest.fixture(scope='module')
def gs_server(request):
    return _server(request, objects.GCS, 'gcs')


@pytest.fixture
def gs(gs_server, tmp_path, monkeypatch):
    """The proxy before the server of GCS (lib/gcs.py); the environment of this test and of what it starts has the endpoint, and credentials for
    which a vendor gives tokens."""
    for name in [n for n in os.environ if n.startswith(('GOOGLE_', 'CLOUDSDK_', 'GCE_', 'STORAGE_EMULATOR', 'TENSORSTORE_GCS'))]:
        monkeypatch.delenv(name)
    monkeypatch.delenv('NO_GCE_CHECK', raising=False)
    with gcs_server.Proxy(gs_server) as proxy, gcs_server.Vendor(proxy) as vendor:
        for name, value in gcs_server.environment(proxy, vendor, tmp_path).items():
            monkeypatch.setenv(name, value)
        proxy.vendor = vendor
        yield proxy


@pytest.fixture
def s3(s3_server, tmp_path, monkeypatch):
    """The proxy before the server of S3 (lib/buckets.py); the environment of this test and of what it starts has keys and the endpoint."""
    for name in [n for n in os.environ if n.startswith('AWS_')]:
        monkeypatch.delenv(name)
    with buckets.Proxy(s3_server) as proxy:
        for name, value in proxy.environment(tmp_path).items():
            monkeypatch.setenv(name, value)
        yield proxy


@pytest.fixture(scope='module')
def s3_bucket(request, s3_server):
    """A bucket, without the proxy, that is called BUCKET in the module of the test."""
    return buckets.Bucket(s3_server, request.module.BUCKET)


@pytest.fixture(scope='module')
def gs_bucket(request, gs_server):
    """The same of GCS."""
    return gcs_server.Bucket(gs_server, request.module.BUCKET)


@pytest.fixture(params=['s3', 'gs'])
def bucket(request):
    """Both, one after the other, empty."""
    b = request.getfixturevalue(f'{request.param}_bucket')
    for key in b.keys():
        b.delete(key)
    return b


@pytest.fixture
def proxy(request, bucket):
    """The proxy before the server of `bucket`: the fixture s3 or gs."""
    return request.getfixturevalue(bucket.scheme)


@pytest.fixture
def spill(tmp_path, monkeypatch):
    """The directory in which programs of the test make the steps that they upload ($TMPDIR)."""
    directory = tmp_path / 'spill'
    directory.mkdir()
    monkeypatch.setenv('TMPDIR', str(directory))
    return directory


@pytest.fixture
def group(request):
    """A control group of so many MiB, as a prefix of commands, and the number of processes that were killed in it."""
    for top, limit, events in (('memory', 'memory.limit_in_bytes', 'memory.oom_control'), ('', 'memory.max', 'memory.events')):
        at = pathlib.Path('/sys/fs/cgroup', top, f'pytreefs-test-{os.getpid()}')
        if (at.parent / 'cgroup.procs').exists() and os.access(at.parent, os.W_OK):
            at.mkdir()
            if (at / limit).exists():
                break
            at.rmdir()
    else:
        pytest.skip('no control group with a limit of memory can be made here')
    (at / limit).write_text(str(request.param << 20))
    yield (['sh', '-c', f'echo $$ >{at}/cgroup.procs && exec "$@"', 'sh'],
           lambda: int(dict(line.split() for line in (at / events).read_text().splitlines())['oom_kill']))
    mounts.wait_for(lambda: not (at / 'cgroup.procs').read_text())
    at.rmdir()


@pytest.fixture
def run(program):
    """run('ls', path, ...): the program's subcommand; returns the CompletedProcess with text output."""
    def do(*words, ok=True, text=True, timeout=240, **options):
        r = subprocess.run([program, *map(str, words)], capture_output=True, text=text, timeout=timeout,
                           stdin=subprocess.DEVNULL, **options)
        if ok:
            assert r.returncode == 0, f'{words}: status {r.returncode}\n{r.stderr}'
        return r
    return do
