# SPDX-License-Identifier: Apache-2.0
"""Directories that save and convert make for a first step: durable, and removed if nothing came into them, unless they are another's."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

from lib import preload, strace

ITEM = pathlib.Path(__file__).resolve().parents[1] / 'data/sample/1000/state'


def listing(path):
    return sorted(p.relative_to(path).as_posix() for p in pathlib.Path(path).rglob('*'))


@pytest.mark.skipif(not shutil.which('strace'), reason='no strace is installed')
@pytest.mark.parametrize('words', [['save', ITEM, 'new/1'], ['convert', ITEM.parents[1], 'new/'], ['convert', ITEM, 'new/run/1']], ids=lambda w: w[2])
def test_a_new_root_is_synced_too(program, tmp_path, words):
    strace.run('fsync,mkdirat', 'calls', [program, *words], check=True, timeout=240, cwd=tmp_path)
    calls = (tmp_path / 'calls').read_text()
    for above, name in (('.', 'new'), ('new', 'run'))[:words[2].count('/')]:
        parent = re.escape(str(tmp_path / above))
        assert re.search(rf'mkdirat\(\d+<{parent}>, "{name}".*fsync\(\d+<{parent}>\)', calls, re.DOTALL), calls[-2000:]


def test_a_root_that_got_no_step_is_not_left(run, tmp_path):
    (tmp_path / 'mine').mkdir()
    for out in ('new', 'new/run/checkpoints', 'mine'):
        run('convert', '--only', 'nosuch', ITEM.parents[1], tmp_path / out, ok=False)
        run('save', '--item', '.no', ITEM, tmp_path / out / '1', ok=False)
    assert os.listdir(tmp_path) == ['mine'] and not os.listdir(tmp_path / 'mine')


@pytest.mark.parametrize('rival, left', [('a', ['a']), ('b', ['a', 'a/b']), ('c', ['a', 'a/b', 'a/b/c']), ('none', [])])
def test_a_directory_that_another_process_made_meanwhile_stays(program, tmp_path_factory, tmp_path, rival, left):
    env = dict(os.environ, LD_PRELOAD=str(preload.make(tmp_path_factory, 'rival')), TEST_RIVAL=rival)
    for words in (['save', '--item', '.no', ITEM, 'a/b/c/1'], ['convert', '--only', 'nosuch', ITEM.parents[1], 'a/b/c']):
        r = subprocess.run([program, *words], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=240)
        assert r.returncode and ("'.no' is not a name" in r.stderr or 'nosuch' in r.stderr), r.stderr
        assert listing(tmp_path) == left
        shutil.rmtree(tmp_path / 'a', ignore_errors=True)


@pytest.mark.parametrize('words', [['save', ITEM, 'l/1'], ['convert', ITEM, 'l/a/1'], ['convert', ITEM, 'd/l/1'], ['convert', ITEM.parents[1], 'l'],
                                   ['convert', ITEM.parents[1], 'l/a'], ['convert', ITEM, 'l'], ['export', ITEM, 'l/m.npz'], ['convert', ITEM, 'l/d.zarr']], ids=str)
def test_a_link_that_leads_nowhere_is_named(run, tmp_path, words):
    (tmp_path / 'd').mkdir()
    for link in ('l', 'd/l'):
        (tmp_path / link).symlink_to('nowhere')
    r = run(*words, ok=False, cwd=tmp_path)
    link = 'd/l' if words[2][0] == 'd' else 'l'
    assert r.returncode == 1 and f"'{link}' is a symbolic link to 'nowhere', which does not exist" in r.stderr, r.stderr
    assert listing(tmp_path) == ['d', 'd/l', 'l']


def test_a_first_step_that_is_begun_in_place_makes_a_root(run, tmp_path):
    """As with atomicity=commit_file: at first it is empty, then it has the lock of its writer. Anything else does not make one."""
    step = tmp_path / 'run/1'
    step.mkdir(parents=True)
    assert run('ls', tmp_path / 'run').stdout == '1/\n' and run('gc', '-n', tmp_path / 'run').stdout.startswith('0 ')
    (step / '.pytreefs-draft').touch()
    (step / 'default').mkdir()
    assert 'abandoned draft' in run('gc', '-n', tmp_path / 'run').stdout
    (step / '.pytreefs-draft').rename(step / 'notes.txt')
    assert 'is not a checkpoint' in run('gc', '-n', tmp_path / 'run', ok=False).stderr


@pytest.mark.parametrize('words, why', [
    (['export', ITEM, 's3://bucket/x'], "'s3://bucket/x' is not written: files and directories of leaves are written to this machine only"),
    (['save', '.', 'out/1'], "'.' has no leaf and no step"), (['save', ITEM.parents[1], 'out/1'], f"'{ITEM.parents[1]}' is a directory of steps"),
    (['save', ITEM, '/proc/9'], "'/proc/9' is not written: cannot make directory"), (['convert', ITEM, '/proc/x/9'], "in '/proc': cannot make directory 'x'")])
def test_what_is_not_written_is_named(run, tmp_path, words, why):
    r = run(*words, ok=False, cwd=tmp_path)
    assert r.returncode == 1 and r.stderr.startswith('pytreefs: ' + why) and not os.listdir(tmp_path), r.stderr
