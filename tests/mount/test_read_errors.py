# SPDX-License-Identifier: Apache-2.0
"""A disk that cannot give part of a file: every way to read it ends with an error, never with a shorter file."""

import errno
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from lib import baddisk, mounts
from lib.pairs import pairs

ARRAY = np.random.default_rng(3).integers(0, 1 << 30, (1024, 1024), dtype=np.int32)
SMALL = np.arange(6, dtype=np.int32)
BAD_AT = 2457600

READ_MAP = '''import mmap, sys
f = open(sys.argv[1], 'rb')
m = mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
sum(m[::4096])
'''
LOAD = 'import sys; from safetensors.numpy import load_file; load_file(sys.argv[1])'

# Programs that read a file, and the path of the copy. {f}: the file, {x}: the copy
PROGRAMS = {
    'cp': ['cp', '{f}', '{x}'],
    'cat': ['sh', '-c', 'cat {f} > {x}'],
    'dd': ['dd', 'if={f}', 'of={x}', 'bs=1M'],
    'dd in small pieces': ['dd', 'if={f}', 'of={x}', 'bs=4k'],
    'rsync': ['rsync', '{f}', '{x}'],
    'tar': ['tar', '-cf', '{x}.tar', '{f}'],
    'mmap': [sys.executable, '-c', READ_MAP, '{f}'],
}


@pytest.fixture
def disk(tmp_path):
    """A disk whose step 1 has a leaf with a bad block in its middle; step 0 can be read."""
    if why := baddisk.missing():
        pytest.skip(why)
    d = baddisk.BadDisk(tmp_path / 'bad')
    yield d
    d.close()


@pytest.fixture
def step(disk, run, tmp_path):
    """The path of the data file with the bad block."""
    for name, array in ('0', SMALL), ('1', ARRAY):
        os.makedirs(tmp_path / name)
        np.save(tmp_path / name / 'w.npy', array)
        run('save', '-o', 'compression=none', tmp_path / name, disk.path / name)
    found = [p for p in (disk.path / '1').rglob('*') if p.is_file() and p.stat().st_size >= ARRAY.nbytes]
    assert len(found) == 1
    return found[0]


def copy_of(path, whole, x):
    """An incomplete copy is the beginning of the file."""
    if x.exists():
        part = x.read_bytes()
        assert whole.startswith(part), f'the copy of {path} has other bytes'
        return len(part)
    return 0


def every_program(path, tmp_path, whole):
    """Each program on a file with a bad block: what was wrong."""
    wrong, size = [], os.stat(path).st_size
    for n, (name, words) in enumerate(PROGRAMS.items()):
        x = tmp_path / f'copy{n}'
        r = subprocess.run([w.format(f=path, x=x) for w in words], capture_output=True, text=True, timeout=240)
        got = copy_of(path, whole, x)
        if r.returncode == 0:
            wrong.append(f'{name} {path}: status 0, {got} of {size} bytes')
        if name == 'mmap' and r.returncode != -signal.SIGBUS:
            wrong.append(f'{name} {path}: status {r.returncode}, not SIGBUS')
        if name in ('cp', 'cat', 'dd') and 'Input/output error' not in r.stderr:
            wrong.append(f'{name} {path}: {r.stderr}')
        if os.stat(path).st_size != size:
            wrong.append(f'{name} {path}: the file has {os.stat(path).st_size} bytes now, not {size}')
        x.unlink(missing_ok=True)
    return wrong


@pytest.mark.parametrize('engine,direct', pairs(['io=auto', 'io=sync'], ['', 'direct_io']))
def test_a_bad_block_is_an_error_for_every_program(disk, step, mount, tmp_path, engine, direct):
    whole = mount(disk.path)
    item = 'default'
    contents = {name: (whole / '1' / name).read_bytes()
                for name in (f'{item}/w.npy', f'{item}/w.bin', f'{item}/w@float32.bin', f'{item}.safetensors')}
    stored = f'.pytreefs/stored/{step.relative_to(disk.path)}'
    contents = {f'1/{name}': text for name, text in contents.items()}
    contents[stored] = step.read_bytes()
    assert not whole.unmount()
    disk.spoil(step, BAD_AT)
    m = mount(disk.path, 'passthrough=off', *filter(None, [engine, direct]), allow_errors=True)
    wrong = [line for name, text in contents.items() for line in every_program(m / name, tmp_path, text)]
    r = subprocess.run([sys.executable, '-c', LOAD, m / '1/default.safetensors'], capture_output=True)
    if r.returncode == 0:
        wrong.append('safetensors took the file')
    assert not wrong, '\n'.join(wrong)
    # Each file is named with what was not read of it, and where.
    for name in contents:
        lines = [line for line in m.log_lines() if f"cannot read '{name}'" in line]
        assert any(f"{step.name}' at offset" in line and 'Input/output error' in line for line in lines), (name, lines)
    # The neighbours are as they were.
    assert np.array_equal(np.load(m / '0/default/w.npy'), SMALL)
    assert np.array_equal(np.load(m / '1/default/w[0:4].npy'), ARRAY[:4])


def test_a_bad_block_of_a_file_that_the_kernel_reads(disk, step, mount, tmp_path):
    """A stored file that is passed through: the error is the disk's own, and the mount's log does not have it."""
    whole = step.read_bytes()
    disk.spoil(step, BAD_AT)
    m = mount(disk.path, allow_errors=True)
    assert not every_program(m / '.pytreefs/stored' / step.relative_to(disk.path), tmp_path, whole)
    disk.mend()
    assert np.array_equal(np.load(m / '1/default/w.npy'), ARRAY)


def test_commands_say_that_a_block_is_bad(disk, step, run, tmp_path):
    disk.spoil(step, BAD_AT)
    for words in (['cat', disk.path / '1/default/w.npy'], ['verify', disk.path / '1'], ['stats', disk.path / '1'],
                  ['export', '--format', 'npz', disk.path / '1', tmp_path / 'x.npz'],
                  ['convert', disk.path / '1', tmp_path / 'y']):
        r = run(*words, ok=False, text=False)
        assert r.returncode == (2 if words[0] == 'stats' else 1), words
        assert b'Input/output error' in r.stdout + r.stderr, words
    assert not (tmp_path / 'x.npz').exists() and not (tmp_path / 'y').exists()


@pytest.mark.parametrize('engine,direct', pairs(['auto', 'sync'], ['', 'direct_io']))
def test_a_request_that_fails_halfway_is_not_a_short_answer(run, mount, tmp_path, engine, direct):
    """The disk gives half of the nth request: for each n, all bytes or an error."""
    os.makedirs(tmp_path / 'in')
    np.save(tmp_path / 'in/w.npy', ARRAY)
    run('save', '-o', 'compression=none', tmp_path / 'in', tmp_path / 'source/1')
    failed = 0
    for n in range(2, 40, 5):
        try:
            m = mount(tmp_path / 'source', f'io=fault(read:torn:{n}):{engine}', *filter(None, [direct]),
                      allow_errors=True)
        except mounts.MountError as e:
            assert 'Input/output error' in e.text
            continue
        try:
            got = (m / '1/default/w.bin').read_bytes()
            assert got == ARRAY.tobytes(), f'read {n} was torn: {len(got)} bytes'
        except OSError as e:
            assert 'Input/output error' in str(e), e
            failed += 1
        m.unmount()
    assert failed


COPIES = {'by copy_file_range': ['cp', '{f}', '{x}'], 'by reading': ['sh', '-c', 'cat {f} > {x}']}


@pytest.mark.parametrize('how,fault,option', pairs(list(COPIES), ['eio', 'torn'], ['ocdbt=on', 'ocdbt=off', 'compression=zstd:3']))
def test_a_copy_into_a_draft_is_whole_or_fails(run, mount, tmp_path, how, fault, option):
    """Also by the stored chunks that a copy within the mount moves: the nth read fails, or gives half."""
    os.makedirs(tmp_path / 'in')
    np.save(tmp_path / 'in/w.npy', ARRAY)
    run('save', '-o', 'compression=none,chunk_byte_size=1M', tmp_path / 'in', tmp_path / 'source/1')
    failed = 0
    for n in range(2, 30, 3):
        try:
            m = mount(tmp_path / 'source', f'io=fault(read:{fault}:{n}):sync', option, allow_errors=True)
        except mounts.MountError as e:
            assert 'Input/output error' in e.text
            continue
        x = m / f'{n}.tmp/default/w.npy'
        x.parent.mkdir(parents=True)
        ends = subprocess.run([w.format(f=m / '1/default/w.npy', x=x) for w in COPIES[how]], capture_output=True).returncode
        if not ends:
            try:
                (m / f'{n}.tmp').rename(m / str(n))
                assert np.array_equal(np.load(m / f'{n}/default/w.npy'), ARRAY), f'read {n} failed'
            except OSError as e:
                assert e.errno == errno.EIO
                ends = 1
        failed += bool(ends)
        assert not ends or any('Input/output error' in line for line in m.log_lines()), n
        m.unmount()
        run('gc', tmp_path / 'source')
        if (tmp_path / f'source/{n}').exists():
            run('verify', tmp_path / f'source/{n}')
    assert failed
