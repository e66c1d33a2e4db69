# SPDX-License-Identifier: Apache-2.0
"""convert and export of many leaves and of large ones: descriptors, memory, progress."""

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest

from lib import mounts

# ---- many ----

@pytest.fixture(scope='module')
def many(tmp_path_factory):
    """A list of 3,000 leaves of each kind that a directory of files can hold."""
    d = tmp_path_factory.mktemp('many') / 'in'
    (d / 'all').mkdir(parents=True)
    for i in range(0, 3000, 4):
        np.save(d / f'all/k{i:04}.npy', np.arange(i, i + 3))
        (d / f'all/k{i + 1:04}.json').write_text(str(i))
        (d / f'all/k{i + 2:04}.txt').write_text(f'text {i}')
        (d / f'all/k{i + 3:04}.null').touch()
    return d


@pytest.fixture(scope='module')
def few(program):
    """few('convert', ...): with few descriptors."""
    def do(*words):
        r = subprocess.run(['sh', '-c', 'ulimit -n 48; exec "$@"', 'sh', program, *map(str, words)],
                           capture_output=True, text=True, timeout=240)
        assert r.returncode == 0 and r.stderr == '', r.stderr
    return do


@pytest.fixture(scope='module')
def checkpoint_of_many(few, many):
    few('convert', many, many.parent / 'first')
    return many.parent / 'first'


@pytest.mark.parametrize('form', ['ck', 'npy', 'm.npz', 'm.safetensors', 'm.zarr'])
def test_many_leaves_there_and_back_with_few_descriptors(run, few, checkpoint_of_many, tmp_path, form):
    """No file is open but while it is read, and what arrays cannot say is kept however much it is."""
    few('convert' if form == 'ck' else 'export', checkpoint_of_many, tmp_path / form)
    few('convert', tmp_path / form, tmp_path / 'back')
    assert run('diff', checkpoint_of_many, tmp_path / 'back').returncode == 0
    assert run('cat', tmp_path / 'back/all/k0702.txt').stdout == 'text 700'
    if form == 'm.npz':
        with np.load(tmp_path / form) as z:
            assert len(z.files) == 2250 and z['all/k0700'].tolist() == [700, 701, 702]
        with zipfile.ZipFile(tmp_path / form) as z:
            assert z.testzip() is None


def test_a_structure_that_is_not_where_the_comment_says(run, checkpoint_of_many, tmp_path):
    run('export', checkpoint_of_many, tmp_path / 'm.npz')
    raw = (tmp_path / 'm.npz').read_bytes()
    comment = json.loads(raw[raw.rindex(b'{"at"'):])
    for at, n in ((len(raw), 1), (1, len(raw)), (-1, 5), (0, -5), (comment['at'] + 1, comment['bytes']), (2 ** 62, 2 ** 62)):
        with zipfile.ZipFile(tmp_path / 'm.npz', 'a') as z:
            z.comment = json.dumps({'at': at, 'bytes': n}).encode()
        r = run('convert', tmp_path / 'm.npz', tmp_path / 'no', ok=False)
        assert r.returncode == 1 and 'm.npz' in r.stderr and not (tmp_path / 'no').exists(), (at, n, r.stderr)


# ---- large ones ----

# A child begins with the peak of the process that starts it: this one is small.
STARTER = """import os, sys
pid = os.fork()
if not pid:
    os.execv(sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024)"""


def peak(words, ends=0):
    """Bytes of memory that a command took at most, which ends with that status."""
    r = subprocess.run([sys.executable, '-S', '-c', STARTER, *map(str, words)], capture_output=True, text=True,
                       check=True, timeout=240)
    status, used = map(int, r.stdout.split())
    assert status == ends, r.stderr
    return used


@pytest.fixture(scope='module')
def large(program, tmp_path_factory):
    """A leaf of 240 MiB in one chunk, as Orbax writes it, beside small ones."""
    d = tmp_path_factory.mktemp('large')
    (d / 'in').mkdir()
    a = np.lib.format.open_memmap(d / 'in/w.npy', mode='w+', dtype=np.float32, shape=(240, 1 << 18))
    a[:] = np.arange(1 << 18, dtype=np.float32)
    a[:, 0] = np.arange(240)
    del a
    np.save(d / 'in/b.npy', np.arange(10))
    subprocess.run([program, 'convert', '-o', 'chunk_byte_size=1G', d / 'in', d / 'ck'], check=True)
    return d


@pytest.mark.parametrize('words', [['convert', 'ck', 'same'], ['convert', '-o', 'compression=none', 'ck', 'raw'],
                                   ['convert', '-o', 'zarr=3,chunk_byte_size=1G', 'ck', 'one'],
                                   ['export', 'ck', 'm.zarr'], ['export', 'ck', 'm.safetensors'],
                                   ['convert', '-o', 'chunk_byte_size=1G', 'in', 'big']])
def test_memory_is_bounded_whatever_the_chunk(program, large, tmp_path, words):
    """Chunks larger than all memory that we take: streamed, never held."""
    command, *options, source, out = words
    budgets = ['-o', 'cache=32M,read_budget=32M,write_budget=32M']
    assert peak([program, command, '-q', *budgets, *options, large / source, tmp_path / out]) <= 192 << 20


def test_a_text_that_is_long_with_its_escapes_is_charged(run, tmp_path):
    """Nine million NULs are six times as many bytes of JSON, which are written as a whole."""
    (tmp_path / 'ck').mkdir()
    (tmp_path / 'ck/checkpoint').write_bytes(b'\x81\xa1w\xdb' + (9_000_000).to_bytes(4, 'big') + bytes(9_000_000))
    r = run('convert', '-q', '-o', 'cache=16M', tmp_path / 'ck', tmp_path / 'small', ok=False)
    assert r.returncode == 1 and 'option cache' in r.stderr and not (tmp_path / 'small').exists(), r.stderr
    run('convert', '-q', '-o', 'cache=512M', tmp_path / 'ck', tmp_path / 'large')
    assert (tmp_path / 'large/_strings.json').stat().st_size > 54_000_000


@pytest.mark.parametrize(('form', 'options'), [('npz', []), ('zarr', []), ('zarr', ['-o', 'zarr=3'])])
def test_a_long_text_is_never_held_in_the_form_of_its_export(program, run, tmp_path, form, options):
    """UTF-32 takes twice as much as this text, JSON with escapes 2.5 times: both are made while they are written."""
    text = 'x\u00e9\u20ac\U0001f388\n' * 1_800_000
    raw = text.encode()
    (tmp_path / 'ck').mkdir()
    (tmp_path / 'ck/checkpoint').write_bytes(b'\x81\xa1w\xdb' + len(raw).to_bytes(4, 'big') + raw)
    out = tmp_path / f'm.{form}'
    budgets = ['-o', 'cache=16M,read_budget=16M,write_budget=16M']
    # Pages of the program and of the file, which is mapped, count here, too.
    used = peak([program, 'export', '-q', *budgets, *options, tmp_path / 'ck', out])
    assert mounts.is_sanitized(program) or used <= (3 * 16 + 64) << 20, f'{used >> 20} MiB'
    if form == 'npz':
        with np.load(out) as z:
            assert str(z['w']) == text
    run('convert', '-q', '-o', 'cache=512M', out, tmp_path / 'back')
    assert json.loads((tmp_path / 'back/_strings.json').read_bytes()) == {'w': text}


def many_tensors(path, n):
    tensors = ','.join(f'"t{i}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' for i in range(n))
    header = f'{{{tensors}}}'.encode()
    path.write_bytes(len(header).to_bytes(8, 'little') + header)
    return path


def test_a_tensor_takes_little_memory_and_too_many_are_refused(program, run, tmp_path):
    """The memory of a leaf in a draft is charged when the leaf is listed, before anything is written."""
    exact = not mounts.is_sanitized(program)
    few, many = many_tensors(tmp_path / 'few.safetensors', 30_000), many_tensors(tmp_path / 'many.safetensors', 200_000)
    used = peak([program, 'convert', '-q', few, tmp_path / 'ck'])
    assert not exact or used <= 170 << 20, f'{used >> 20} MiB'
    for options, source, most in ([], many, 400), (['-o', 'cache=16M,read_budget=16M,write_budget=16M'], few, 112):
        words = ['convert', '-q', *options, source, tmp_path / 'no']
        r = run(*words, ok=False)
        assert r.returncode == 1 and 'option cache' in r.stderr and not (tmp_path / 'no').exists(), r.stderr
        used = peak([program, *words], ends=1)
        assert not exact or used <= most << 20, f'{used >> 20} MiB'


def test_a_progress_bar_on_a_terminal_only(program, large, tmp_path):
    """Rate and time left after a second; nothing when piped (above)."""
    main, sub = pty.openpty()
    # It takes far longer than anybody waits here, and is interrupted.
    p = subprocess.Popen([program, 'convert', '-o', 'compression=zstd:19', large / 'in', tmp_path / 'ck'], stderr=sub,
                         stdout=sub, stdin=subprocess.DEVNULL)
    os.close(sub)
    seen, until = b'', time.monotonic() + 120
    # The end of a terminal that nobody has any more is EIO.
    with contextlib.suppress(OSError):
        while b'left' not in seen and time.monotonic() < until:
            if select.select([main], [], [], 1)[0]:
                seen += os.read(main, 4096)
    p.send_signal(signal.SIGINT)
    p.wait(timeout=240)
    os.close(main)
    assert b'convert' in seen and b'%' in seen and b'/s' in seen and b'left' in seen, seen
    assert not os.listdir(tmp_path)
