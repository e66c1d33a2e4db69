# SPDX-License-Identifier: Apache-2.0
"""System calls that a network or FUSE file system interrupts in its own work are made again, those of commands too.
A command that a signal interrupts ends soon, and leaves nothing."""

import os
import pathlib
import signal
import subprocess
import tempfile

import numpy as np
import pytest

from lib import mounts, preload

TOP = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = TOP / 'tests/data/sample/1500/state'


@pytest.fixture(scope='module')
def library(tmp_path_factory):
    """tests/lib/interrupting.c, which interrupts every other call that changes a disk."""
    return preload.make(tmp_path_factory, 'interrupting')


@pytest.fixture(scope='module')
def untyped(tmp_path_factory):
    return preload.make(tmp_path_factory, 'untyped')


@pytest.mark.parametrize('after', [False, True], ids=['before', 'after'])
@pytest.mark.parametrize('words', [['export', 'm.npz'], ['export', 'leaves'], ['export', 'm.zarr'], ['convert', 'tree'],
                                   ['convert', '-o', 'ocdbt=off', 'tree']], ids=' '.join)
def test_a_replacement_survives_an_interrupted_rename(run, program, library, tmp_path, words, after):
    """An exchange of names that was done, and is done again, would bring back what was replaced."""
    out = tmp_path / words[-1]
    run(*words[:-1], '--quiet', SAMPLE / 'params', out)
    env = dict(os.environ, LD_PRELOAD=str(library), **({'INTERRUPT_AFTER': '1'} if after else {}))
    r = subprocess.run([program, *words[:-1], '--quiet', '--force', SAMPLE, out], env=env, capture_output=True, text=True, timeout=240)
    assert r.returncode == 0 and 'interrupted: renameat2' in r.stderr, r.stderr
    assert os.listdir(tmp_path) == [out.name]
    if words[0] == 'export':
        run('convert', '--quiet', out, tmp_path / 'again')
        out = tmp_path / 'again'
    assert '78 the same, 0 differences' in run('diff', SAMPLE, out).stdout


def test_listings_without_types(run, program, untyped, tmp_path):
    """Directories are found where a file system does not say what an entry is."""
    env = dict(os.environ, LD_PRELOAD=str(untyped))

    def untyped_run(*words):
        return subprocess.run([program, *map(str, words)], env=env, capture_output=True, text=True, timeout=240, check=True).stdout

    for name in ('leaves', 'm.zarr', 'm.safetensors'):
        untyped_run('export', '--quiet', SAMPLE, tmp_path / name)
        untyped_run('convert', '--quiet', '-o', 'ocdbt=off,zarr=3', tmp_path / name, tmp_path / f'{name}.again')
        assert '78 the same, 0 differences' in untyped_run('diff', SAMPLE, tmp_path / f'{name}.again')
        untyped_run('verify', '--quiet', tmp_path / f'{name}.again')
    assert untyped_run('ls', SAMPLE.parents[1]) == run('ls', SAMPLE.parents[1]).stdout


@pytest.mark.parametrize('words,calls', [
    (['export', SAMPLE, 'm.safetensors'], {'fsync', 'ftruncate', 'renameat2'}),
    (['export', '--max-shard-size', '100K', '--format', 'safetensors', SAMPLE, 'shards'], {'fsync', 'ftruncate', 'mkdirat', 'renameat2'}),
    (['export', SAMPLE, 'leaves'], {'fsync', 'mkdirat', 'renameat2'}),
    (['export', SAMPLE, 'm.npz'], {'fsync', 'renameat2'}),
    (['convert', SAMPLE, 'tree'], {'flock'}),
    (['convert', '-o', 'ocdbt=off', SAMPLE, 'tree'], {'flock'}),
    (['save', SAMPLE, 'ck/5'], {'flock'})], ids=lambda w: ' '.join(map(str, w[:1])) if isinstance(w, list) else '')
def test_commands_make_interrupted_calls_again(run, program, library, tmp_path, words, calls):
    env = dict(os.environ, LD_PRELOAD=str(library))
    r = subprocess.run([program, words[0], '--quiet', *map(str, words[1:])], cwd=tmp_path, env=env, capture_output=True,
                       text=True, timeout=240)
    assert r.returncode == 0, r.stderr
    met = {line.removeprefix('interrupted: ') for line in r.stderr.splitlines()}
    assert {call.removesuffix('64') for call in met} >= calls, met
    out = tmp_path / words[-1]
    if out.name in ('leaves', 'm.npz'):
        run('convert', '--quiet', out, tmp_path / 'again')
        out = tmp_path / 'again'
    assert '78 the same, 0 differences' in run('diff', SAMPLE, out / 'default' if words[0] == 'save' else out).stdout


@pytest.mark.skipif(os.getuid() != 0, reason='only root may become somebody else')
def test_the_draft_of_another_user_is_theirs(run, program, library):
    """A mount of root gives the directory of a draft to who makes it (chown)."""
    # The daemon may end a moment after its mount.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as d:
        top = pathlib.Path(d)
        for name in ('.', 'ckpts', 'm'):
            (top / name).mkdir(exist_ok=True)
            (top / name).chmod(0o777)
        env = dict(os.environ, LD_PRELOAD=str(library))
        r = subprocess.run([program, 'mount', '-o', f'shape=root,allow_other,log={top}/log', top / 'ckpts', top / 'm'], env=env,
                           capture_output=True, text=True, timeout=240)
        assert r.returncode == 0, r.stderr
        try:
            script = 'mkdir 7.tmp 7.tmp/default && echo 5 >7.tmp/default/n.json && mv 7.tmp 7'
            r = subprocess.run(['sh', '-c', script], cwd=top / 'm', user=65534, group=65534, extra_groups=[], capture_output=True,
                               text=True, timeout=240)
            assert r.returncode == 0, r.stderr + (top / 'log').read_text()
            assert (top / 'ckpts/7').stat().st_uid == 65534
        finally:
            subprocess.run(['umount', '-l', top / 'm'], check=True)


@pytest.fixture(scope='module')
def large(program, tmp_path_factory):
    """512 MiB: with zstd:22 minutes of work, on any machine."""
    d = tmp_path_factory.mktemp('large')
    (d / 'leaves').mkdir()
    np.save(d / 'leaves/w.npy', np.random.default_rng(0).integers(0, 1 << 20, 1 << 27, dtype=np.int32))
    subprocess.run([program, 'convert', '-o', 'compression=none', d / 'leaves', d / '1'], check=True)
    yield d
    for f in (d / 'leaves/w.npy', d / '1'):
        subprocess.run(['rm', '-rf', f], check=True)


@pytest.mark.parametrize('words', [
    ['convert', '-o', 'compression=zstd:22', 'leaves'], ['convert', '-o', 'compression=zstd:22', '1'],
    ['convert', '-o', 'compression=zstd:22,chunk_byte_size=512M,write_budget=16M', '1'], ['save', '-o', 'compression=zstd:22', 'leaves'],
    ['export', '--format', 'zarr', '-o', 'compression=zstd:22', '1']], ids=' '.join)
def test_a_signal_ends_a_slow_encoder(program, large, tmp_path, words):
    p = subprocess.Popen([program, *words[:-1], '--quiet', large / words[-1], tmp_path / '7'], stderr=subprocess.PIPE, text=True)
    try:
        mounts.wait_for(lambda: os.listdir(tmp_path) or p.poll() is not None)
        p.send_signal(signal.SIGINT)
        _, err = p.communicate(timeout=60)
    finally:
        p.kill()
        p.wait()
    assert p.returncode == 1 and 'interrupted; nothing is left behind' in err, err
    assert os.listdir(tmp_path) == []
