# SPDX-License-Identifier: Apache-2.0
"""Threads, forks, signals, interpreters, and what stays behind."""

import concurrent.futures
import gc
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import pytreefs
from lib import mounts
from lib.pairs import LONG

HERE = pathlib.Path(__file__).resolve().parent
SAMPLE = HERE.parent / 'data' / 'sample'
STATE = SAMPLE / '1500' / 'state'


def python(text, *args, status=0):
    """A program in a process of its own; what it prints."""
    r = subprocess.run([sys.executable, '-c', textwrap.dedent(text), *map(str, args)], capture_output=True, text=True, timeout=240)
    assert r.returncode == status, r.stdout + r.stderr
    return r.stdout


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[k].view(np.uint8) if a[k].ndim else a[k], b[k].view(np.uint8) if b[k].ndim else b[k])
                                        for k in a if not isinstance(a[k], str))


def test_eight_loads_at_once():
    want = pytreefs.load_flat(STATE)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for got in pool.map(lambda _: pytreefs.load_flat(STATE), range(24)):
            assert same(got, want)


def test_one_handle_for_eight_threads():
    want = pytreefs.load_flat(STATE, '/')
    with pytreefs.open(STATE) as ck:
        def work(n):
            for name in sorted(want)[n::8]:
                if not isinstance(want[name], str):
                    assert np.asarray(ck[name]).tobytes() == want[name].tobytes()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))


def test_close_waits_for_calls_that_are_under_way():
    """close() in one thread while others read: each call ends, or says that it is closed."""
    for _ in range(20):
        ck = pytreefs.open(STATE)
        leaf = ck['params/embed/table']
        want = np.asarray(leaf).tobytes()
        faults = []

        def work():
            try:
                for _ in range(50):
                    if np.asarray(leaf).tobytes() != want:
                        faults.append('other bytes')
            except ValueError as e:
                if 'is closed' not in str(e):
                    faults.append(e)
        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads:
            t.start()
        ck.close()
        for t in threads:
            t.join()
        assert not faults


def test_other_threads_run_meanwhile(tmp_path):
    """While one thread saves or loads, another one goes on computing in Python: without that it would not in any call."""
    tree = {f'w{i}': np.random.default_rng(i).normal(size=(1 << 19)) for i in range(12)}
    calls = itertools.cycle([lambda: pytreefs.save(tmp_path / '1', tree, overwrite=True), lambda: pytreefs.load(tmp_path / '1')])
    most = [0, 0]
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)
    t = threading.Thread(target=tick)
    t.start()
    try:
        # The machine may let the other thread stand still for the time of a call.
        end_of_all = time.monotonic() + 60
        for n, call in enumerate(calls):
            begin = time.monotonic()
            call()
            end = time.monotonic()
            most[n % 2] = max(most[n % 2], sum(begin < x < end for x in ticks[:]))
            if min(most) >= 5 or end > end_of_all:
                break
    finally:
        stop.set()
        t.join()
    assert min(most) >= 5, most


def test_a_child_opens_handles_again():
    """Also of a child, and by several threads of it; an open file is refused there, and a handle that was closed stays so."""
    out = python('''
        import concurrent.futures, os, sys, pytreefs
        def fork_and(function, *more):
            if not (pid := os.fork()):
                function(*more)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        ck = pytreefs.open(sys.argv[1])
        leaf, closed = ck['params/embed/table'], pytreefs.open(sys.argv[1])
        want, file = leaf[0].tolist(), ck.context.handle.file('step.json')
        closed.close()
        def child(is_last):
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                assert all(row.tolist() == want for row in pool.map(leaf.__getitem__, [0] * 20)) and ck['step'] == 1500
            try:
                file.readinto(bytearray(4), 0)
            except pytreefs.Error as e:
                print(e, flush=True)
            try:
                closed['step'].value
            except ValueError as e:
                print('closed' in str(e), flush=True)
            if not is_last:
                fork_and(child, True)
            ck.close()
            print(pytreefs.load(sys.argv[1], only='step'), flush=True)
        fork_and(child, False)
        assert leaf[0].tolist() == want
        ''', STATE)
    lines = out.splitlines()
    assert len(lines) == 6 and all('before fork()' in line for line in lines[::2][:2]), out
    assert lines[1] == lines[3] == 'True' and lines[4:] == ["{'step': 1500}"] * 2, out


def test_workers_of_multiprocessing():
    out = python('''
        import multiprocessing, sys, pytreefs
        def work(path):
            return pytreefs.load(path, only='step')['step']
        pytreefs.load(sys.argv[1])
        with multiprocessing.get_context('fork').Pool(2) as pool:
            print(pool.map(work, [sys.argv[1]] * 4))
        ''', STATE)
    assert out == '[1500, 1500, 1500, 1500]\n'


def test_a_sub_interpreter_is_refused():
    code = ('import sys; sys.path.insert(0, sys.argv[1])\n'
            'try:\n import pytreefs._pytreefs\n'
            'except ImportError as e:\n print(e, "numpy" in sys.modules)\n')
    probe = subprocess.run([sys.executable, '-c', 'import _xxsubinterpreters'], capture_output=True)
    if probe.returncode:
        pytest.skip('this Python has no sub-interpreters')
    package = next(p for p in sys.path if (pathlib.Path(p) / 'pytreefs').is_dir())
    out = python('''
        import sys, _xxsubinterpreters as interpreters
        i = interpreters.create()
        interpreters.run_string(i, sys.argv[1])
        ''', f'import sys; sys.argv = ["", {package!r}]\n' + code)
    assert 'main interpreter' in out and out.strip().endswith('False'), out


LOADING = '''
import signal, sys, time, pytreefs
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    print("ready", flush=True)
    while True:
        pytreefs.load(sys.argv[1])
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(7)
'''


def test_ctrl_c_ends_a_load(tmp_path):
    """How quickly it ends is a row of the benchmark (python_interrupt)."""
    pytreefs.save(tmp_path / '1', {f'w{i}': np.random.default_rng(i).normal(size=1 << 19) for i in range(24)})
    p = subprocess.Popen([sys.executable, '-c', LOADING, tmp_path / '1'], stdout=subprocess.PIPE, text=True)
    try:
        assert p.stdout.readline() == 'ready\n'
        time.sleep(0.15)
        p.send_signal(signal.SIGINT)
        out, _ = p.communicate(timeout=120)
    finally:
        p.kill()
        p.wait()
    assert out == 'interrupted\n' and p.returncode == 7


def test_ctrl_c_inside_of_one_chunk(tmp_path):
    """A leaf whose only chunk is 1 GiB when it is decoded: what has begun to decode it ends at once."""
    pytreefs.save(tmp_path / '1', {'w': np.broadcast_to(np.float32(1), 1 << 28)})
    assert sum(f.stat().st_size for f in (tmp_path / '1').rglob('*') if f.is_file()) < 1 << 20
    p = subprocess.Popen([sys.executable, '-c', '''
import signal, sys, time, pytreefs
signal.signal(signal.SIGINT, signal.default_int_handler)
def progress(done, total):
    if 0 < done < total:
        print("decoding", flush=True)
try:
    while True:
        pytreefs.load(sys.argv[1], progress=progress)
        print("loaded", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
''', tmp_path / '1'], stdout=subprocess.PIPE, text=True)
    try:
        assert p.stdout.readline() == 'decoding\n'
        begin = time.monotonic()
        p.send_signal(signal.SIGINT)
        out, _ = p.communicate(timeout=60)
        print(f'ended after {time.monotonic() - begin:.3f} s')
    finally:
        p.kill()
        p.wait()
    assert out.endswith('interrupted\n')


@pytest.mark.parametrize('tree,options', [('{f"w{i}": zeros[:1 << 25] for i in range(4000)}', {}), ('{"w": zeros}', {}),
                                          ('{"w": random}', {'compression': 'zstd:22'}),
                                          ('{"w": random[::-1]}', {'compression': 'zstd:22', 'dtype': 'float64'})],
                         ids=['many leaves', 'one leaf', 'slow', 'slow commit'])
def test_ctrl_c_ends_a_save_and_leaves_nothing(tmp_path, tree, options):
    """Of a terabyte of zeros, which take no memory, or with a slow codec: it is not done before the signal comes, whatever the machine does."""
    p = subprocess.Popen([sys.executable, '-c', '''
import mmap, signal, sys, numpy as np, pytreefs
signal.signal(signal.SIGINT, signal.default_int_handler)
no_reserve = 0x4000
zeros = np.frombuffer(mmap.mmap(-1, 1 << 40, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve, mmap.PROT_READ), np.float64)
random = "random" in sys.argv[2] and np.random.default_rng(0).integers(0, 1 << 12, 1 << 27, np.uint16).view(np.float32)
try:
    pytreefs.save(sys.argv[1], eval(sys.argv[2]), **eval(sys.argv[3]))
except KeyboardInterrupt:
    print("interrupted", flush=True)
''', tmp_path / '1', tree, repr(options)], stdout=subprocess.PIPE, text=True)
    try:
        mounts.wait_for(lambda: os.listdir(tmp_path) or p.poll() is not None)
        time.sleep(0.3)
        p.send_signal(signal.SIGINT)
        out, _ = p.communicate(timeout=120)
    finally:
        p.kill()
        p.wait()
    assert out == 'interrupted\n' and os.listdir(tmp_path) == []


def state_of_process():
    gc.collect()
    with open('/proc/self/statm') as f:
        pages = int(f.read().split()[1])
    return len(os.listdir('/proc/self/fd')), len(os.listdir('/proc/self/task')), pages * os.sysconf('SC_PAGESIZE')


def leaves_nothing_behind(cycle, n):
    """
    Four times n calls. A thread that has ended is listed for a moment more, so that the numbers of before are waited for. What
    is lost each time makes memory grow in each round; what an allocator keeps for a thread that comes later does so in some.
    """
    cycle(n)
    files, threads, memory = state_of_process()
    grown = []
    for _ in range(4):
        cycle(n)
        mounts.wait_for(lambda: state_of_process()[0] <= files and state_of_process()[1] <= threads)
        now = state_of_process()[2]
        grown.append(now - memory)
        memory = now
    assert min(grown) < max(n << 14, 1 << 20), grown


def opens(n):
    for _ in range(n):
        with pytreefs.open(STATE, threads=2) as ck:
            ck['params/embed/table'][0]


def loads(n):
    for _ in range(n):
        pytreefs.load(STATE)


@pytest.mark.parametrize('cycle, n', [(opens, 250 if LONG else 60), (loads, 75 if LONG else 25)])
def test_calls_leave_nothing_behind(cycle, n):
    """In a small process, in which threads begin and end quickly."""
    python(f'''
        import sys
        sys.path[:0] = sys.argv[1:]
        import test_process
        test_process.leaves_nothing_behind(test_process.{cycle.__name__}, {n})
        ''', HERE, HERE.parent)


def test_import_takes_nothing_but_numpy():
    """Modules that take time to import are imported by what needs them."""
    out = python('''
        import sys, numpy
        before = set(sys.modules)
        import pytreefs
        print(*sorted({m.partition('.')[0] for m in set(sys.modules) - before}))
        ''')
    assert set(out.split()) <= {'pytreefs', '_json', 'contextlib', 'json', 'errno', '__future__', 'typing', 'collections', 'functools'}, out


def test_the_module_can_be_imported_anew():
    python('''
        import sys, pytreefs
        for name in [m for m in sys.modules if m.startswith('pytreefs')]:
            del sys.modules[name]
        import pytreefs
        print(pytreefs.load(sys.argv[1], only='step'))
        ''', STATE)
