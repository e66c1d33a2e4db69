# SPDX-License-Identifier: Apache-2.0
"""Files beside the arrays: items that are not trees, files in the directory of one that is, and files beside the items of a step. Each way
of copying a step brings all of them."""

import json
import os
import re
import shutil
import subprocess

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from safetensors.numpy import save_file

from lib.saving import ARRAY

# Names that Orbax or pytreefs use elsewhere, names of leaves, and any others.
FILES = {
    '.hidden': b'h', '.dir/x': b'x', '_sharding': b'{}', '_strings.json': b'{}', 'plain': b'p' * 300,
    'vocab.txt': b'a\nb\n', 'w.npy': b'no array', 'config.json': b'{"a": [1, 2]}', 'number.json': b'5', 'none.null': b'',
    'sub/manifest.ocdbt': b'm', 'sub/commit_success.txt': b'c', 'sub/_METADATA': b'{}', 'sub/_CHECKPOINT_METADATA': b'{}',
    'sub/ocdbt.process_0/d/x': b'x', 'sub/deep/array_metadatas/process_0': b'{}', 'sub/orbax.checkpoint': b'{}',
    'sub/.pytreefs-draft': b'', 'sub/7.orbax-checkpoint-tmp-1/y': b'y', 'sub/empty': b'', 'sub/tensor.safetensors': b'none',
}


def fill(directory, files):
    for name, data in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)


def contents(directory):
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob('*') if p.is_file()}


@pytest.fixture
def root(run, tmp_path):
    """A step with a tree, and an item that is none, with two links in it."""
    (tmp_path / 'in').mkdir()
    np.save(tmp_path / 'in/w.npy', ARRAY)
    (tmp_path / 'root').mkdir()
    run('save', tmp_path / 'in', tmp_path / 'root/1')
    fill(tmp_path / 'root/1/tok', FILES)
    (tmp_path / 'root/1/tok/link').symlink_to('plain')
    (tmp_path / 'root/1/tok/linked').symlink_to('sub/deep')
    (tmp_path / 'root/1/tok/void').mkdir()
    return tmp_path / 'root'


OPAQUE = {**FILES, 'link': FILES['plain'], 'linked/array_metadatas/process_0': b'{}'}


@pytest.mark.feature('E2')
@pytest.mark.parametrize('command', ['cp -r 1 2.tmp', 'cp -r 1/. 2.tmp/', 'cp -rL 1 2.tmp', 'cp -a 1 2.tmp', 'rsync -aX 1/ 2.tmp',
                                     'mkdir 2.tmp && tar --xattrs --xattrs-include=user.* -c -C 1 . | tar --xattrs --xattrs-include=user.* -x -C 2.tmp'])
def test_an_item_that_is_not_a_tree_is_copied_whole(mount, root, command):
    """By every program that carries attributes, and by cp without them, whatever its files are called."""
    m = mount(root)
    assert contents(m / '1/tok') == OPAQUE
    subprocess.run(command if '2.tmp/' not in command else f'mkdir 2.tmp && {command}', shell=True, cwd=m.path, check=True,
                   capture_output=True)
    os.rename(m / '2.tmp', m / '2')
    assert contents(root / '2/tok') == contents(m / '2/tok') == OPAQUE
    assert (root / '2/tok/void').is_dir() or command.startswith('cp -r')
    assert np.array_equal(np.load(m / '2/default/w.npy'), ARRAY)


@pytest.mark.feature('E2')
def test_an_item_that_is_not_a_tree_is_converted_whole(run, root, tmp_path):
    for where, options in (('2', []), ('3', ['-o', 'ocdbt=off,zarr=3'])):
        run('convert', *options, root / '1', root / where)
        assert contents(root / where / 'tok') == OPAQUE
    run('convert', root, tmp_path / 'other')
    assert contents(tmp_path / 'other/1/tok') == OPAQUE
    (root / '1/tok/lost').symlink_to('/nowhere')
    r = run('convert', root / '1', root / '4', ok=False)
    assert r.returncode and 'tok/lost' in r.stderr and not (root / '4').exists(), r.stderr


@pytest.mark.feature('E2')
@pytest.mark.parametrize('name,data', [('config.json', b'{"a": 1}'), ('merges.foo', b'x'), ('sub/config.json', b'[]')])
def test_a_refusal_names_the_mark(mount, root, name, data):
    """An item that some program brings from elsewhere is refused with the command that says what it is."""
    m = mount(root, allow_errors=True)
    fill(m / '2.tmp/tok', {name: data, 'vocab.txt': b'a'})
    with pytest.raises(OSError):
        os.rename(m / '2.tmp', m / '2')
    mark = re.search(r"setfattr -n user.pytree.kind -v opaque '2.tmp/tok'", m.log_lines()[-1])
    assert mark and name.split('/')[-1] in m.log_lines()[-1] and 'when cp -a copies it' in m.log_lines()[-1], m.log_lines()[-1]
    subprocess.run(mark[0], shell=True, cwd=m.path, check=True)
    os.rename(m / '2.tmp', m / '2')
    assert contents(root / '2/tok') == {name: data, 'vocab.txt': b'a'}


@pytest.mark.feature('E2')
@pytest.mark.parametrize('kind', ['opaque', 'dict'])
def test_a_copy_with_more_in_it_asks_what_it_is(mount, root, kind):
    """A file of an item that is not a tree beside one that is not: either is possible, and neither is guessed."""
    m = mount(root, allow_errors=True)
    (m / '2.tmp/tok').mkdir(parents=True)
    subprocess.run(['cp', m / '1/tok/vocab.txt', m / '2.tmp/tok'], check=True)
    (m / '2.tmp/tok/more.txt').write_bytes(b'more')
    with pytest.raises(OSError):
        os.rename(m / '2.tmp', m / '2')
    assert "'vocab.txt'" in m.log_lines()[-1] and "'more.txt'" in m.log_lines()[-1], m.log_lines()[-1]
    os.setxattr(m / '2.tmp/tok', 'user.pytree.kind', kind.encode())
    os.rename(m / '2.tmp', m / '2')
    assert contents(m / '2/tok')['vocab.txt'] == FILES['vocab.txt'] and (root / '2/tok/_METADATA').exists() == (kind == 'dict')


# ---- files beside the arrays of a tree ----

BESIDE = {
    'ppo_network_config.json': b'{"policy": [32, 32]}', 'metadata.json': b'{"step": 3}', 'pytreedef.json': b'[1, 2]', 'notes.txt': b'n',
    'README': b'r' * 5000, '.hidden': b'h', 'params.json': b'7', 'data.npy': b'no array', 'empty': b'',
    'assets/vocab.txt': b'v', 'assets/sub/x.npy': b'x', 'assets/commit_success.txt': b'', 'assets/manifest.ocdbt': b'm',
    '50%.txt': b'%', 'a[1].bin': b'a', 'assets/w@2.npy': b'w',
}
TREE = {'params': {'w': ARRAY, 'b': np.arange(3)}, 'step': 5}


def beside(item):
    """Files of an item that are not of its tree."""
    return {name: data for name, data in contents(item).items() if name in BESIDE}


def orbax(item):
    return ocp.PyTreeCheckpointer().restore(item)


def same(a, b):
    return jax.tree.structure(a) == jax.tree.structure(b) and all(
        np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)))


@pytest.fixture(params=['database', 'directories'])
def shelf(request, tmp_path):
    """A root with a step of Orbax, with files beside the arrays of its item, as Brax and Levanter put them there."""
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=request.param == 'database')
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler(default=handler)) as checkpointer:
        checkpointer.save(tmp_path / 'root/1', ocp.args.Composite(default=ocp.args.PyTreeSave(TREE)))
    fill(tmp_path / 'root/1/default', BESIDE)
    return tmp_path / 'root'


@pytest.mark.parametrize('command', ['cp -r 1 2.tmp', 'cp -a 1 2.tmp', 'rsync -aX 1/ 2.tmp', 'mkdir 2.tmp && cp -r 1/default 2.tmp/'])
def test_files_beside_the_arrays_are_copied(mount, shelf, command):
    m = mount(shelf)
    assert beside(m / '1/default') == BESIDE and (m / '1/default.json').read_text().count('"files"') == len(os.listdir(m / '1/default')) - 3
    subprocess.run(command, shell=True, cwd=m.path, check=True, capture_output=True)
    os.rename(m / '2.tmp', m / '2')
    assert beside(m / '2/default') == beside(shelf / '2/default') == BESIDE
    assert same(orbax(shelf / '2/default'), orbax(shelf / '1/default'))
    assert same(orbax(shelf / '2/default'), TREE)


def test_files_beside_the_arrays_are_converted(run, shelf, tmp_path):
    for options in ([], ['-o', 'ocdbt=off,zarr=3'], ['-o', 'ocdbt=on'], ['--only', 'params/*']):
        out = tmp_path / f'out{len(os.listdir(tmp_path))}'
        run('convert', *options, shelf / '1', out)
        assert beside(out / 'default') == BESIDE, options
        got = orbax(out / 'default')
        assert same(got['params'], TREE['params']) and ('step' in got) == ('--only' not in options)
        r = run('verify', out)
        assert '0 errors, 0 warnings' in r.stdout, r.stdout
    run('convert', shelf / '1/default', tmp_path / 'item')
    assert beside(tmp_path / 'item') == BESIDE and same(orbax(tmp_path / 'item'), TREE)


def test_files_beside_the_arrays_are_shown(run, shelf, tmp_path):
    """By each command that lists, and an export says which ones it leaves out."""
    top = {name.split('/')[0] for name in BESIDE}
    listed = run('ls', shelf / '1/default').stdout.split()
    assert top <= {name.rstrip('/') for name in listed}, listed
    tree = run('tree', shelf / '1').stdout
    assert all(name in tree for name in top)
    for name, data in BESIDE.items():
        if 'assets' in name:                    # has a manifest, so it is a source of its own
            continue
        assert run('cat', shelf / '1/default' / name, text=False).stdout == data, name
    for out in ('a.npz', 'a.safetensors', 'npy'):
        r = run('export', shelf / '1', tmp_path / out)
        assert all(f"'default/{name}' is not a leaf and is left out" in r.stderr for name in top), r.stderr
    assert '0 errors, 0 warnings' in run('verify', shelf / '1').stdout


def test_marks_of_files_beside_the_arrays(mount, root):
    """Without the mark, what cannot be a leaf is refused, and named; with it, even a name of a leaf is a file."""
    m = mount(root, allow_errors=True)
    (m / '2.tmp/default').mkdir(parents=True)
    np.save(m / '2.tmp/default/w.npy', ARRAY)
    (m / '2.tmp/default/config.json').write_text('{"a": 1}')
    (m / '2.tmp/default/n.json').write_text('5')
    (m / '2.tmp/default/more').mkdir()
    (m / '2.tmp/default/more/LICENSE').write_text('free')
    for name in ('config.json', 'more'):
        with pytest.raises(OSError):
            os.rename(m / '2.tmp', m / '2')
        mark = re.search(r"setfattr -n user.pytree.kind -v opaque '2.tmp/default/[a-z.]*'", m.log_lines()[-1])
        assert mark and mark[0].endswith(f"/{name}'"), m.log_lines()[-1]
        subprocess.run(mark[0], shell=True, cwd=m.path, check=True)
    os.setxattr(m / '2.tmp/default/n.json', 'user.pytree.kind', b'opaque')
    os.rename(m / '2.tmp', m / '2')
    assert sorted(orbax(root / '2/default')) == ['w'] and (root / '2/default/n.json').read_text() == '5'
    assert sorted(os.listdir(m / '2/default')) == ['_METADATA', 'config.json', 'more', 'n.json', 'w.npy']
    for name in ('_sharding', 'manifest.ocdbt', 'd'):
        (m / '3.tmp/default').mkdir(parents=True)
        np.save(m / '3.tmp/default/w.npy', ARRAY)
        (m / '3.tmp/default' / name).write_text('x')
        os.setxattr(m / '3.tmp/default' / name, 'user.pytree.kind', b'opaque')
        with pytest.raises(OSError):
            os.rename(m / '3.tmp', m / '3')
        assert f"'{name}' is a name of stored trees" in m.log_lines()[-1]
        subprocess.run(['rm', '-r', m / '3.tmp'], check=True)


def test_a_file_with_the_name_of_a_leaf_is_told(mount, shelf):
    """The leaf is shown, and the log has the name of the file."""
    (shelf / '1/default/step.json').write_text('{}')
    m = mount(shelf)
    assert (m / '1/default/step.json').read_text() == '5\n'
    assert 'step.json' in os.listdir(m / '1/default')
    assert any("'1/default/step.json' is not shown" in line for line in m.log_lines())


def test_each_file_with_the_name_of_a_leaf_is_told(run, shelf, tmp_path):
    """Files and directories, by each command that would bring them along."""
    (shelf / '1/default/step.json').write_text('{}')
    (shelf / '1/default/params').mkdir(exist_ok=True)
    (shelf / '1/default/params/x.txt').write_text('')
    for words in (('convert', shelf / '1', tmp_path / 'out'), ('verify', shelf / '1'), ('export', shelf / '1', tmp_path / 'out.npz')):
        said = run(*words, ok=words[0] != 'verify').stderr       # which warns of a directory of no leaf
        assert "default/step.json' is not shown, and no copy has it" in said and "default/params' is not shown" in said, said


# ---- files beside the items of a step ----

STEP = {
    'metadata.json': b'{"step": 3}', 'pytreedef.json': b'[1, 2]', 'default.json': b'no item', 'README': b'r' * 5000, 'empty': b'', 'notes.txt': b'n',
    'manifest.json': b'{}', '.hidden': b'h', '.git/config': b'c', '.git/sub/commit_success.txt': b'', 'w.npy': b'no array', 'x.pbtxt': b'no proto', '50%.txt': b'%', 'a[1].bin': b'a',
}


def beside_items(step):
    """All files of a step that are in no item and not its own."""
    return {name: data for name, data in contents(step).items() if not name.startswith(('default/', 'tok/')) and name not in ('_CHECKPOINT_METADATA', 'commit_success.txt')}


@pytest.fixture
def step(root):
    """A root whose step also has files beside its items, one of them a model, and one with the name of an item."""
    fill(root / '1', STEP)
    save_file({'w': ARRAY}, root / '1/model.safetensors')
    return root


def step_files(root):
    return {**STEP, 'model.safetensors': (root / '1/model.safetensors').read_bytes()}


@pytest.mark.feature('E2')
@pytest.mark.parametrize('command', ['cp -r 1 2.tmp', 'cp -r 1/. 2.tmp/', 'cp -a 1 2.tmp', 'rsync -aX 1/ 2.tmp'])
def test_files_beside_items_are_copied(mount, step, run, command):
    m = mount(step)
    assert beside_items(m / '1') == step_files(step)
    subprocess.run(command if '2.tmp/' not in command else f'mkdir 2.tmp && {command}', shell=True, cwd=m.path, check=True, capture_output=True)
    items = set(json.loads((m / '2.tmp/_CHECKPOINT_METADATA').read_text())['item_handlers'])
    os.rename(m / '2.tmp', m / '2')
    assert beside_items(m / '2') == beside_items(step / '2') == step_files(step)
    assert contents(m / '2/tok') == OPAQUE and np.array_equal(np.load(m / '2/default/w.npy'), ARRAY)
    assert set(json.loads((step / '2/_CHECKPOINT_METADATA').read_text())['item_handlers']) == items - {'tok'} == {'default'}
    assert '0 errors, 0 warnings' in run('verify', step / '2').stdout


@pytest.mark.feature('E2')
def test_files_beside_items_are_converted(run, step, tmp_path):
    for options in ([], ['-o', 'ocdbt=off,zarr=3'], ['--only', 'w']):
        out = tmp_path / f'out{len(os.listdir(tmp_path))}'
        run('convert', *options, step / '1', out)
        assert beside_items(out) == step_files(step), options
        assert contents(out / 'tok') == OPAQUE and same(orbax(out / 'default'), {'w': ARRAY})
    run('convert', step, tmp_path / 'root2')
    assert beside_items(tmp_path / 'root2/1') == step_files(step)
    run('convert', '--no-items', step / '1', tmp_path / 'bare')
    assert sorted(os.listdir(tmp_path / 'bare')) == ['_CHECKPOINT_METADATA', 'commit_success.txt', 'default']


@pytest.mark.feature('E2')
def test_files_beside_items_are_shown(run, step, tmp_path):
    """By each command that lists, and an export says which ones it leaves out."""
    top = {name.split('/')[0] for name in step_files(step)}
    assert top <= {name.rstrip('/') for name in run('ls', step / '1').stdout.split()}
    tree, table = run('tree', step / '1').stdout, run('tree', '--json', step / '1').stdout
    for name in top:
        assert name in tree and f'"{name}"' in table
    for name, data in STEP.items():
        assert run('cat', step / '1' / name, text=False).stdout == data, name
    for out in ('a.npz', 'a.safetensors', 'npy'):
        r = run('export', step / '1', tmp_path / out)
        assert all(f"'{name}' is not a leaf and is left out" in r.stderr for name in top), r.stderr


@pytest.mark.feature('E2')
def test_files_beside_items_and_arrays_are_compared(run, step):
    """By diff: their bytes, and those that only one side has; two single trees also if their items have other names. verify counts them."""
    fill(step / '1/default', {'LICENSE': b'free', 'assets/v.txt': b'v'})
    shutil.copytree(step / '1', step / '2')
    assert run('diff', step / '1', step / '2').stdout.endswith(' 0 differences\n')
    counts = json.loads(run('verify', '--json', step / '1').stdout)
    assert counts['other_files'] == 2 + len({name.split('/')[0] for name in step_files(step)}), counts
    fill(step / '2', {'README': b'R' * 5000, '.git/config': b'd', 'new': b'n', 'default/assets/v.txt': b'w', 'default/more': b'm'})
    (step / '2/notes.txt').unlink()
    (step / '2/empty').unlink()
    (step / '2/empty').mkdir()                  # an item
    want = ['.git/config: content', 'README: content', 'default/assets/v.txt: content', 'default/more: only in B', 'empty: only in A', 'empty: only in B',
            'new: only in B', 'notes.txt: only in A']
    r = run('diff', step / '1', step / '2', ok=False)
    assert r.returncode == 1 and sorted(r.stdout.splitlines()[:-1]) == want, r.stdout
    assert run('diff', '--only', '*', step / '1', step / '2').stdout.endswith(' 0 differences\n')
    (step / '2/default').rename(step / '2/other')
    for item in (step / '2/other', step / '2'):
        if item.name == '2':
            for name in os.listdir(item):
                if name != 'other':
                    shutil.rmtree(item / name) if (item / name).is_dir() else (item / name).unlink()
        r = run('diff', step / '1/default', item, ok=False)
        assert r.returncode == 1 and sorted(r.stdout.splitlines()[:-1]) == ['assets/v.txt: content', 'more: only in B' if item.name != '2' else 'other/more: only in B'], r.stdout


@pytest.mark.feature('E2')
def test_marks_of_files_beside_items(mount, root):
    """Without the mark, what is not an item is refused, and named; names of steps and of items are refused."""
    m = mount(root, allow_errors=True)
    (m / '2.tmp/default').mkdir(parents=True)
    np.save(m / '2.tmp/default/w.npy', ARRAY)
    (m / '2.tmp/LICENSE').write_text('free')
    with pytest.raises(OSError):
        os.rename(m / '2.tmp', m / '2')
    mark = re.search(r"setfattr -n user.pytree.kind -v opaque '2.tmp/LICENSE'", m.log_lines()[-1])
    assert mark, m.log_lines()[-1]
    subprocess.run(mark[0], shell=True, cwd=m.path, check=True)
    (m / '2.tmp/metrics.json').write_text('{}')
    for name, why in (('_strings.json', 'is a name of steps'), ('metrics', "has the name of an item, which is 'metrics.json'")):
        (m / '2.tmp' / name).write_text('x')
        os.setxattr(m / '2.tmp' / name, 'user.pytree.kind', b'opaque')
        with pytest.raises(OSError):
            os.rename(m / '2.tmp', m / '2')
        assert why in m.log_lines()[-1], m.log_lines()[-1]
        (m / '2.tmp' / name).unlink()
    os.rename(m / '2.tmp', m / '2')
    assert beside_items(root / '2') == {'LICENSE': b'free', 'metrics/metrics': b'{}', 'metrics/commit_success.txt': (root / '2/metrics/commit_success.txt').read_bytes()}


@pytest.mark.feature('E2')
@pytest.mark.parametrize('command', ['cp -r 1 2.tmp', 'cp -r 1/. 2.tmp/', 'cp -a 1 2.tmp', 'rsync -aX 1/ 2.tmp', None])
def test_empty_files_and_directories_stay_what_they_are(mount, run, root, command):
    """cp says nothing of their contents: they are what lies under that name where other files were copied from. What the user adds is the tree's."""
    files = {'zero.txt': b'', 'zero.json': b'', 'logs/DONE.txt': b'', 'default/zero.txt': b'', 'default/pkg/__init__.txt': b''}
    fill(root / '1', files)
    for name in ('tb', 'default/void', 'default/deep/void'):
        (root / '1' / name).mkdir(parents=True)
    if command:
        m = mount(root)
        subprocess.run(command if '2.tmp/' not in command else f'mkdir 2.tmp && {command}', shell=True, cwd=m.path, check=True, capture_output=True)
        (m / '2.tmp/default/added').mkdir()
        (m / '2.tmp/default/more.txt').write_text('')
        os.rename(m / '2.tmp', m / '2')
    else:
        run('convert', root / '1', root / '2')
    assert sorted(orbax(root / '2/default')) == (['added', 'more', 'w'] if command else ['w'])
    assert {name: (root / '2' / name).read_bytes() for name in files} == files
    assert all((root / '2' / name).is_dir() for name in ('tb', 'default/void', 'default/deep/void'))
    assert not (root / '2/logs/_METADATA').exists()


@pytest.mark.feature('E2')
def test_what_lies_beside_the_steps_is_named_when_it_is_left_out(run, root, tmp_path):
    """A root is copied step by step; what is a step, of a step or in no copy by design is not named."""
    r = run('convert', root, tmp_path / 'out1')
    assert not r.stderr
    beside = {'README.md': b'r', 'config.json': b'{}', 'logs/events.out': b'e', 'metadata/own.json': b'{}'}
    fill(root, {**beside, '2.orbax-checkpoint-tmp-1/x': b'x', '.3.pytreefs-draft/.pytreefs-draft': b'', 'metadata/_ROOT_METADATA': b'{"custom_metadata": {}}'})
    r = run('convert', root, tmp_path / 'out2')
    assert re.fullmatch(r"pytreefs: '.*root' has other files and directories beside its steps, which are left out: ([^,]+, ){3}[^,]+\n", r.stderr)
    assert set(re.findall("'([^']*)'", r.stderr)[1:]) == {'README.md', 'config.json', 'logs', 'metadata/own.json'}
    assert sorted(os.listdir(tmp_path / 'out2')) == ['1', 'metadata'] and os.listdir(tmp_path / 'out2/metadata') == ['_ROOT_METADATA']
    fill(root, {f'more{i}': b'' for i in range(9)})
    r = run('convert', root, tmp_path / 'out3')
    assert r.stderr.count(',') == 6 and r.stderr.endswith(', ...\n')


def test_a_file_that_its_program_changes(mount, step):
    """Beside items and in an item that is not a tree: with its own time, and without the bytes that were read before."""
    m, changed = mount(step), ('1/metadata.json', '1/tok/plain')
    for name in changed:
        old = (m / name).read_bytes()
        (step / name).write_bytes(old[::-1])
        os.utime(step / name, (1, 1))
        assert (m / name).read_bytes() == old[::-1]
    m.unmount()
    m = mount(step)
    assert [(m / name).stat().st_mtime for name in changed] == [1, 1]
