# SPDX-License-Identifier: Apache-2.0
"""Names as users type them: `latest`, the number of a step, a leaf without its extension; the same in each command and mount, on disk and by URL."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

from lib import objects

SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data/sample'
IN_MEMORY = True
STEP = 'step_00001500'


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    top = tmp_path_factory.mktemp('typed') / 'run'
    for name, step in (('step_00001000', '1000'), (STEP, '1500')):
        shutil.copytree(SAMPLE / step, top / name)
    return top


@pytest.fixture(params=['disk', 's3'])
def source(request, root):
    """The root, where commands find it."""
    if request.param == 'disk':
        return root
    proxy = request.getfixturevalue('s3')
    proxy.address = objects.S3({'run': root})
    return 's3://bucket/run'


# A typed path, and the one that it stands for.
TYPED = [('1500', STEP), ('01500', STEP), ('step_1500', STEP), ('latest', STEP), ('1500/state', f'{STEP}/state'),
         ('1500/state/params/embed', f'{STEP}/state/params/embed')]
LEAVES = [('latest/state/params/embed/table', f'{STEP}/state/params/embed/table.npy'), ('1500/state/learning_rate', f'{STEP}/state/learning_rate.json'),
          ('step_1500/state/params/embed/table[0:2,3]', f'{STEP}/state/params/embed/table[0:2,3].npy')]


def test_commands_find_what_was_typed(run, source):
    o = ['-o', 'atomicity=rename']
    for typed, name in TYPED:
        assert run('ls', *o, f'{source}/{typed}').stdout == run('ls', *o, f'{source}/{name}').stdout
    for typed, name in LEAVES:
        assert run('cat', *o, f'{source}/{typed}', text=False).stdout == run('cat', *o, f'{source}/{name}', text=False).stdout
    assert f'{STEP}/state/params/embed/table.npy' in run('info', *o, f'{source}/1500/state/params/embed/table').stdout
    assert run('diff', *o, f'{source}/1500/state/params/embed/table', SAMPLE / '1500/state/params/embed/table.npy').returncode == 0
    assert '0 errors' in run('verify', *o, f'{source}/1500/state').stdout


@pytest.mark.parametrize('typed, name', [TYPED[0], TYPED[3], TYPED[4]])
def test_a_mount_finds_what_was_typed(mount, source, typed, name):
    m = mount(f'{source}/{typed}', 'atomicity=rename')
    assert sorted(os.listdir(m.path)) == sorted(os.listdir(mount(f'{source}/{name}', 'atomicity=rename').path))


@pytest.mark.parametrize('typed', ['1500', 'latest', 'step_1500'])
def test_commands_that_change_a_step_find_it(run, root, typed):
    assert run('merge', root / typed / 'state').stderr == f"pytreefs: '{root / typed / 'state'}' is merged already\n"
    assert run('gc', '-n', root / typed).stdout == run('gc', '-n', root / STEP).stdout == '0 would be removed, 0 B\n'


def test_of_what_latest_lacks_the_step_is_named(run, root, tmp_path):
    assert f"'{root}' has no 'latest/nothing' (latest is '{STEP}')\n" in run('ls', root / 'latest/nothing', ok=False).stderr
    (tmp_path / 'none').mkdir()
    assert "has no 'latest': it has no steps yet\n" in run('ls', tmp_path / 'none/latest', ok=False).stderr


# A path in a checkpoint, what it is, and what has to be named where a whole one is wanted.
PARTS = [(f'{STEP}/state/params', 'a directory of leaves', f'{STEP}/state'), (f'{STEP}/state/params/embed/table.npy', 'a leaf', f'{STEP}/state'),
         ('latest/state/params/embed/table', 'a leaf', 'latest/state'), (f'{STEP}/metrics/metrics', 'a file', STEP),
         (f'{STEP}/state/_METADATA', 'a file', f'{STEP}/state')]


def test_a_part_is_told_from_what_is_not_there(run, source, tmp_path):
    commands = ['verify'] if isinstance(source, str) else ['verify', 'gc', 'merge']
    for path, kind, whole in PARTS:
        for words in (['mount', f'{source}/{path}', tmp_path], *([command, f'{source}/{path}'] for command in commands)):
            r = run(*words, '-o', 'atomicity=rename', ok=False)
            assert r.returncode and f"{source}/{path}' is {kind}: name the checkpoint that it is in, '{source}/{whole}'" in r.stderr, (words, r.stderr)
    for words in (['mount', f'{source}/{STEP}/state/nothing', tmp_path], ['verify', f'{source}/{STEP}/state/nothing']):
        r = run(*words, '-o', 'atomicity=rename', ok=False)
        assert r.returncode and "has no '" in r.stderr, r.stderr


def test_a_name_that_is_there_is_never_another(run, tmp_path):
    for name in ('7', '07', 'step_9'):
        shutil.copytree(SAMPLE / '1500', tmp_path / name)
    shutil.rmtree(tmp_path / '07/metrics')
    assert 'metrics' in run('ls', tmp_path / '7').stdout and 'metrics' not in run('ls', tmp_path / '07').stdout
    for typed in ('8', 'stop_7', 'step_7', '9'):    # step_9 is not of this root's steps
        r = run('ls', tmp_path / typed, ok=False)
        assert r.returncode == 1 and f"has no '{typed}'" in r.stderr, (typed, r)


def test_a_mount_of_no_step_says_so(program, root, tmp_path):
    for typed in ('2000', 'nothing', '1500/nothing'):
        r = subprocess.run([program, 'mount', root / typed, tmp_path], capture_output=True, text=True)
        assert r.returncode == 1 and re.search(f"cannot open '{root / typed}'|'{root}' has no '(step_0000)?{typed}'", r.stderr), r.stderr


@pytest.mark.parametrize('stored', ['d', 'manifest.ocdbt', 'ocdbt.process_0/d'])
def test_a_stored_file_of_an_item_is_called_that(run, cases, stored):
    item = next(p for p in cases('manager-root').path.rglob('manifest.ocdbt') if 'ocdbt.process' not in str(p)).parent
    r = run('ls', item / stored, ok=False)
    assert r.returncode == 1 and f"'{item / stored}' is a stored part of '" in r.stderr and 'pytreefs tree' in r.stderr, r.stderr


def test_what_lies_beside_steps_and_items_is_not_absent(run, tmp_path):
    root = tmp_path / 'root'
    shutil.copytree(SAMPLE, root)
    (root / 'README.md').write_text('x')
    for command in ('ls', 'cat', 'info', 'verify'):
        r = run(command, root / 'README.md', ok=False)
        assert r.returncode and f"'{root}/README.md' exists, but is not part of a checkpoint" in r.stderr, r.stderr
    # A file beside the items that is a model of its own shows nothing of the step.
    run('export', root / '1500/state/params', tmp_path / 'model.safetensors')
    (tmp_path / 'model.safetensors').rename(root / '1500/model.safetensors')
    assert run('ls', root / '1500/model.safetensors').stdout == run('ls', SAMPLE / '1500/state/params').stdout


@pytest.mark.parametrize('there, new, named', [
    ('step_00001000', 'step_1500', 'step_00001500'), ('step_00001000', 'run_00001500', 'step_00001500'), ('7', '0009', '9'),
    ('checkpoint_7', 'step_9', 'checkpoint_9'), ('step_1000', 'step_00001500', 'step_1500'), ('7', 'step_9', '9')])
def test_a_new_step_that_would_hide_others_is_refused(run, mount, tmp_path, there, new, named):
    """A root has names of one kind: those of most steps."""
    root = tmp_path / 'root'
    root.mkdir()
    shutil.copytree(SAMPLE / '1500', root / there)
    r = run('convert', SAMPLE / '1500', root / new, ok=False)
    assert r.returncode == 1 and f"'{new}' would hide the steps of" in r.stderr and f"name it '{named}'" in r.stderr, r.stderr
    assert os.listdir(root) == [there]
    m = mount(root, allow_errors=True)
    with pytest.raises(OSError):
        (m / f'{new}.tmp').mkdir()
        (m / f'{new}.tmp').rename(m / new)
    assert not (root / new).exists()
    run('convert', SAMPLE / '1500', root / named)
    assert sorted(run('ls', root).stdout.split()) == sorted([f'{there}/', f'{named}/'])


@pytest.mark.parametrize('there', ['model1', 'run1', 'local1', 'v2model10'])
def test_a_checkpoint_with_a_number_in_its_name_makes_no_rule(run, tmp_path, there):
    """Orbax has no such names of steps, so that others may stand beside it; a bare number would be the only step."""
    run('convert', SAMPLE / '1500/state', tmp_path / there)
    shutil.copytree(SAMPLE, tmp_path / 'run/checkpoints')
    for source, out in ((there, 'b2'), ('run/checkpoints/1000', 'step2'), (there, 'other')):
        run('convert', source, out, cwd=tmp_path)
        assert run('diff', tmp_path / source, tmp_path / out).returncode == 0
        shutil.rmtree(tmp_path / out)
    r = run('convert', there, '77', ok=False, cwd=tmp_path)
    assert r.returncode == 1 and f"name it '{there.rstrip('012')}77'" in r.stderr, r.stderr
    # Nor do names of steps hold for what `convert` makes by another name.
    run('convert', there, 'run/checkpoints/best2', cwd=tmp_path)
    assert run('ls', 'run/checkpoints', cwd=tmp_path).stdout == '1000/\n1500/\n'
    for name in ('ck2', 'best2'):
        assert "must end in '_'" in run('save', there, f'run/checkpoints/{name}', ok=False, cwd=tmp_path).stderr


def test_one_level_too_high_beside_another_model(run, tmp_path):
    """Only of what is named is said that another model is beside it."""
    run('convert', SAMPLE / '1500/state', tmp_path / 'model_1')
    run('export', SAMPLE / '1500/state/params', tmp_path / 'model.safetensors')
    shutil.copytree(SAMPLE, tmp_path / 'run/checkpoints')
    for words in (['verify', 'run'], ['gc', 'run'], ['gc', '--json', 'run'], ['ls', 'run'], ['save', 'run', 'x/1'], ['convert', 'run', 'x'], ['stats', 'run']):
        r = run(*words, ok=False, cwd=tmp_path)
        assert r.returncode and r.stderr.strip() == "pytreefs: 'run' is not a checkpoint, but 'run/checkpoints' has steps", (words, r.stderr)
    for words in (['gc', '1'], ['merge', '1'], ['gc', 'model_001']):
        assert 'another model' not in run(*words, ok=False, cwd=tmp_path).stderr
    assert "'.' is read as the root in it; another model" in run('verify', '.', cwd=tmp_path).stderr
    assert run('gc', 'run/checkpoints', cwd=tmp_path).stdout == '0 removed, 0 B\n'


def test_what_lies_further_down_is_named(run, tmp_path):
    """A directory of runs; a repository of diffusers; the snapshots of one in the cache of a hub."""
    shutil.copytree(SAMPLE, tmp_path / 'exp/run1/checkpoints')
    for part in ('unet', 'vae'):
        (tmp_path / 'pipe' / part).mkdir(parents=True)
        run('export', SAMPLE / '1500/state/params', tmp_path / 'pipe' / part / 'model.safetensors')
    (tmp_path / 'pipe/model_index.json').write_text('{}')
    shutil.copytree(tmp_path / 'pipe/unet', tmp_path / 'repo/snapshots/abc')
    (tmp_path / 'repo/blobs').mkdir()
    (tmp_path / 'docs/text').mkdir(parents=True)
    (tmp_path / 'docs/text/a.txt').write_text('x')
    for source, says in (('exp', "'exp' is not a checkpoint, but 'exp/run1/checkpoints' has steps"), ('pipe', " has .safetensors files"),
                         ('repo/snapshots', "name one of them, 'repo/snapshots/abc'"), ('docs', "'docs' is not a checkpoint: no steps")):
        for command in ('ls', 'info', 'verify', 'gc', 'stats'):
            r = run(command, source, ok=False, cwd=tmp_path)
            assert r.returncode and says in r.stderr, (command, r.stderr)
    assert run('ls', 'pipe/unet', cwd=tmp_path).stdout == run('ls', 'repo/snapshots/abc', cwd=tmp_path).stdout


@pytest.mark.parametrize('left', ['7', 'step_9', '_METADATA', '_CHECKPOINT_METADATA', 'manifest.ocdbt', 'checkpoint', 'model.safetensors'])
def test_what_a_stranger_left_above_changes_nothing(run, tmp_path, left):
    """A directory of something else ends the search above it: for what is read, and for what is written."""
    (tmp_path / 'my/dir').mkdir(parents=True)
    (tmp_path / 'my/dir/notes.txt').write_text('x')
    source = {'7': SAMPLE / '1500', 'step_9': SAMPLE / '1500', '_CHECKPOINT_METADATA': SAMPLE / '1500/_CHECKPOINT_METADATA'}.get(left, SAMPLE / '1500/state' / left)
    if source.is_dir():
        shutil.copytree(source, tmp_path / left)
    elif source.exists():
        shutil.copy(source, tmp_path / left)
    else:
        (tmp_path / left).write_bytes(b'\x81\xa1a\x01' if left == 'checkpoint' else (2).to_bytes(8, 'little') + b'{}')
    where = tmp_path / 'my/dir'
    # Beside such a document, any directory is an item of files, or lies beside arrays.
    for command in () if left in ('_METADATA', '_CHECKPOINT_METADATA', 'checkpoint') else ('ls', 'verify', 'tree', 'info'):
        for path, says in ((where, f"'{where}' is not a checkpoint"), (where / 'nothing', f"nothing' does not exist; '{where}' is not a checkpoint"),
                           (where / 'notes.txt', "notes.txt' exists, but is not part of a checkpoint")):
            r = run(command, path, ok=False)
            assert r.returncode and says in r.stderr, (command, path, r.stderr)
    run('save', SAMPLE / '1500', where / 'run/1')
    run('export', SAMPLE / '1500/state', where / 'x.npz')
    assert run('ls', where / 'run').stdout == '1/\n'
