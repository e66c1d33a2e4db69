# SPDX-License-Identifier: Apache-2.0
"""save, export, convert, merge, commit and abort as commands: options, names, formats, exit status, paths in a mount."""

import io
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import time
import zipfile

import numpy as np
import pytest

from lib import mounts, names

SAMPLE = pathlib.Path(__file__).resolve().parents[1] / 'data' / 'sample'


@pytest.mark.parametrize('words', [['save'], ['save', 'x'], ['export', 'x'], ['convert', 'a', 'b', 'c'], ['merge'],
                                   ['commit'], ['abort', 'a', 'b'], ['convert', '--nosuch', 'a', 'b']])
def test_wrong_usage_is_status_2(run, words):
    r = run(*words, ok=False)
    assert r.returncode == 2 and r.stderr and not r.stdout


@pytest.mark.parametrize('options', [['--layout', 'v2'], ['--cast', 'float31'], ['--max-shard-size', 'x'],
                                     ['--max-shard-size', '5G']])
def test_options_that_make_no_sense(run, tmp_path, options):
    out = tmp_path / ('m.npz' if options[0] != '--layout' else 'ck')
    r = run('convert', *options, SAMPLE / '1000/state', out, ok=False)
    assert r.returncode == 2 and options[0] in r.stderr and not os.listdir(tmp_path)


@pytest.mark.parametrize('words,why', [
    (['convert', '--cast', 'bfloat16', 'ck'], '-o dtype='),
    (['convert', '--max-shard-size', '1K', 'ck'], 'safetensors'),
    (['convert', '--layout', 'v0', '--item', 'foo', 'ck'], '--item'), (['convert', '--item', 'foo', 'm.npz'], '--item'),
    (['convert', '--layout', 'v1', 'm.zarr'], '--layout'), (['convert', '-o', 'dtype=float16', 'm.npz'], '--cast'),
    (['export', '-o', 'zarr=3', 'm.npz'], '-o zarr='), (['export', '-o', 'compression=none', 'npy'], '-o compression='),
    (['export', '-o', 'ocdbt=off', 'm.zarr'], '-o ocdbt='), (['export', '-o', 'rule=**:zarr=3', 'm.zarr'], '-o rule=')],
    ids=lambda w: ' '.join(w) if isinstance(w, list) else '')
def test_an_option_that_would_change_nothing_is_status_2(run, tmp_path, words, why):
    r = run(*words[:-1], SAMPLE / '1000/state', tmp_path / words[-1], ok=False)
    assert r.returncode == 2 and why in r.stderr and not os.listdir(tmp_path), r.stderr


@pytest.mark.parametrize('command', ['ls', 'tree', 'info', 'cat', 'stats', 'verify', 'diff', 'report', 'explain', 'dump item',
                                     'transform --check x', 'merge', 'gc'])
@pytest.mark.parametrize('option', ['dtype=bfloat16', 'rule=**:zarr=3', 'restore_dtype=bfloat16', 'transforms=RULES'])
def test_an_option_that_a_command_ignores_is_status_2(run, tmp_path, command, option):
    """Options of saving where nothing is saved, and what is shown otherwise where it is read as it is stored."""
    (tmp_path / 'rules').write_text('{"rules": []}')
    shown = {'restore_dtype': ('ls', 'tree', 'info', 'cat', 'explain', 'transform'),
             'transforms': ('ls', 'tree', 'info', 'cat', 'stats', 'diff', 'report', 'explain', 'transform')}
    words, name = command.split(), option.split('=')[0]
    source = SAMPLE / '1000/state/step.json' if words[0] in ('cat', 'explain') else SAMPLE / '1000/state'
    more = {'diff': [SAMPLE / '1500/state'], 'report': [tmp_path / 'r.html']}.get(words[0], [])
    r = run(*words, '-o', option.replace('RULES', str(tmp_path / 'rules')), source, *more, ok=False)
    idle = words[0] not in shown.get(name, ())
    assert (r.returncode == 2 and f'-o {name}=' in r.stderr) == idle, r.stderr
    assert r.stdout == '' if idle else '-o' not in r.stderr


def test_options_of_the_environment_are_for_all_formats(run, tmp_path):
    env = dict(os.environ, PYTREEFS_OPTIONS='zarr=3,ocdbt=off')
    run('export', SAMPLE / '1000/state', tmp_path / 'm.npz', env=env)
    run('export', '-o', 'chunk_byte_size=1K,store_fill_value=off', SAMPLE / '1000/state', tmp_path / 'm.zarr',
        env=env)


@pytest.mark.parametrize('item', ['', '/', 'a/b', 'a/'])
@pytest.mark.parametrize('words', [['convert', 'ck'], ['convert', '--layout', 'v1', 'ck'], ['save', '1']],
                         ids=lambda w: ' '.join(w[:-1]))
def test_an_item_has_one_name(run, tmp_path, words, item):
    r = run(*words[:-1], '--item', item, SAMPLE / '1000/state', tmp_path / words[-1], ok=False)
    assert r.returncode == 2 and f"not '{item}'" in r.stderr and not os.listdir(tmp_path), r.stderr


def test_json_and_silence(run, tmp_path):
    """One JSON document with --json; nothing at all without it."""
    for words in (['convert', SAMPLE / '1000/state', tmp_path / 'a'], ['export', SAMPLE / '1000/state', tmp_path / 'b.npz'],
                  ['save', SAMPLE / '1000/state', tmp_path / 'root/1']):
        doc = json.loads(run(words[0], '--json', *words[1:]).stdout)
        assert doc['leaves'] == 77 and doc['bytes'] > 200000 and doc['out'] == str(words[-1])
        quiet = run(words[0], *words[1:-1], str(words[-1]).replace('/b.', '/c.').replace('/a', '/d').replace('/1', '/2'))
        assert quiet.stdout == '' and quiet.stderr == ''


@pytest.mark.parametrize('form', ['npy', 'npz', 'safetensors', 'zarr'])
def test_part_of_a_step_comes_back_as_a_step(run, tmp_path, form):
    """Through every format: the item keeps its name, and there is no item around it."""
    out = tmp_path / ('m' if form == 'npy' else f'm.{form}')
    run('export', '--format', form, '--only', 'params/embed/**', SAMPLE / '1000', out)
    run('convert', out, tmp_path / 'step')
    run('save', out, tmp_path / 'root/1')
    for step in (tmp_path / 'step', tmp_path / 'root/1'):
        assert 'state/\n' in run('ls', step).stdout
        assert run('ls', step / 'state/params/embed').stdout == 'table.npy\n'
        # Lists of which nothing was chosen are not there, neither as empty ones.
        assert run('ls', step / 'state').stdout == '_METADATA\nparams/\n'
        assert run('ls', step / 'state/params').stdout == 'embed/\n'


def test_one_array_is_one_npy_file(run, tmp_path):
    table = SAMPLE / '1000/state/params/embed/table.npy'
    run('export', '--cast', 'float32', table, tmp_path / 'a.npy')
    assert np.load(tmp_path / 'a.npy').shape == (128, 32) and (tmp_path / 'a.npy').is_file()
    run('export', table, tmp_path / 'b.npy')
    assert (tmp_path / 'b.npy').read_bytes() == run('cat', table, text=False).stdout
    for what, why in ((SAMPLE / '1000/state', 'more'), (SAMPLE / '1000/state/run_name.txt', 'none')):
        r = run('export', what, tmp_path / 'c.npy', ok=False)
        assert r.returncode == 1 and f'is {why}: name a directory' in r.stderr
    assert sorted(os.listdir(tmp_path)) == ['a.npy', 'b.npy']


@pytest.mark.parametrize('options', [[], ['--only', '**/q*']], ids=['all', 'only'])
@pytest.mark.parametrize('form', ['npy', 'npz', 'safetensors', 'zarr'])
def test_shortened_names_keep_their_keys(run, tmp_path, form, options):
    """Of leaves and of directories, at any depth."""
    for keys in (['u' * 300], ['a', 'p' * 300, 'b', 'q' * 300], ['r' * 300, 'w']):
        at = tmp_path / 'in'
        for i, key in enumerate(keys):
            at.mkdir(exist_ok=True)
            at /= names.file_name(key, '.npy' if i == len(keys) - 1 else '')
            np.save(at, np.arange(3)) if i == len(keys) - 1 else at.mkdir()
            if len(key) == 300:
                os.setxattr(at, 'user.pytree.key', json.dumps(keys[:i + 1]).encode())
    run('convert', tmp_path / 'in', tmp_path / 'ck')
    out = tmp_path / ('m' if form == 'npy' else f'm.{form}')
    run('export', *options, tmp_path / 'ck', out)
    run('convert', out, tmp_path / 'back')
    run('convert', *options, tmp_path / 'ck', tmp_path / 'same')
    assert run('diff', tmp_path / 'same', tmp_path / 'back').returncode == 0
    text = (tmp_path / 'back/_METADATA').read_text()
    assert all((k * 300 in text) == (k in 'pq' or not options) for k in 'pqur')


def hidden(path):
    """Leaves and a directory whose names begin with dots."""
    for name in ('v', '.hidden', '.d/w', 'a/.d/.w'):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(path / f'{name}.npy', np.arange(3))
    return path


@pytest.mark.parametrize('form', ['npy', 'npz', 'safetensors', 'zarr'])
def test_names_that_begin_with_a_dot_are_leaves(run, tmp_path, form):
    run('convert', hidden(tmp_path / 'in'), tmp_path / 'ck')
    assert json.loads(run('info', '--json', tmp_path / 'ck').stdout)['leaf_count'] == 4
    out = tmp_path / ('m' if form == 'npy' else f'm.{form}')
    run('export', tmp_path / 'ck', out)
    # Remains of a killed command are not part of it.
    if out.is_dir():
        shutil.copytree(out, out / '.x.pytreefs-12')
    run('convert', out, tmp_path / 'back')
    assert run('diff', tmp_path / 'ck', tmp_path / 'back').returncode == 0


def test_the_deepest_tree_is_exported_as_directories(run, tmp_path):
    """And replaced: below the directories of its 200 keys there are those of the key of a chunk."""
    np.savez(tmp_path / 'a.npz', **{'/'.join(['a'] * 200): np.zeros((1,) * 31)})
    run('convert', tmp_path / 'a.npz', tmp_path / 'ck')
    for _ in range(2):
        run('export', '-o', 'zarr=3', '--force', tmp_path / 'ck', tmp_path / 'm.zarr')
        assert sorted(os.listdir(tmp_path)) == ['a.npz', 'ck', 'm.zarr']


@pytest.mark.parametrize('version', [2, 3])
def test_a_zarr_group_has_only_what_was_exported(run, tmp_path, version):
    """Chunks that cannot be copied are begun twice; what earlier versions left of that is not part of the tree."""
    out = tmp_path / 'm.zarr'
    run('convert', '-o', 'ocdbt=off,zarr=3,compression=none', SAMPLE / '1000/state', tmp_path / 'ck')
    run('export', '-o', f'zarr={version}', tmp_path / 'ck', out)
    assert not [name for name in os.listdir(out) if name.startswith('.') and name not in ('.zgroup', '.zattrs')]
    shutil.copytree(out / 'params/embed/table', out / '.pytreefs-leaf-0')
    run('convert', out, tmp_path / 'back')
    assert run('diff', tmp_path / 'ck', tmp_path / 'back').returncode == 0


@pytest.mark.parametrize('name', ['README.md', '.env', '.git/HEAD'])
def test_a_hidden_file_that_is_not_a_leaf_is_refused(run, tmp_path, name):
    (hidden(tmp_path / 'in') / name).parent.mkdir(exist_ok=True)
    (tmp_path / 'in' / name).touch()
    r = run('convert', tmp_path / 'in', tmp_path / 'ck', ok=False)
    assert r.returncode == 1 and all(f"'{part}'" in r.stderr for part in name.split('/')), r.stderr
    assert os.listdir(tmp_path) == ['in']


def test_litter_is_left_out_with_a_warning(run, tmp_path):
    for name in ('.DS_Store', '.gitignore', 'a/.DS_Store', '.m.npz.pytreefs-7'):
        (hidden(tmp_path / 'in') / name).touch()
    r = run('convert', tmp_path / 'in', tmp_path / 'ck')
    assert r.stderr.count('left out') == 4 and 'in/a/.DS_Store' in r.stderr
    assert json.loads(run('info', '--json', tmp_path / 'ck').stdout)['leaf_count'] == 4


@pytest.mark.parametrize('form', ['npy', 'npz', 'safetensors', 'zarr'])
def test_what_was_cast_comes_back_as_that(run, tmp_path, form):
    """Also from and to types that an .npy header has no name for."""
    head = json.dumps({'f8': {'dtype': 'F8_E4M3', 'shape': [4], 'data_offsets': [0, 4]},
                       'f4': {'dtype': 'F32', 'shape': [1], 'data_offsets': [4, 8]}}).encode()
    (tmp_path / 'in.safetensors').write_bytes(len(head).to_bytes(8, 'little') + head + b'\x38\x40\x44\x48' + bytes(4))
    run('convert', tmp_path / 'in.safetensors', tmp_path / 'in')
    out = tmp_path / ('m' if form == 'npy' else f'm.{form}')
    run('export', '--cast', 'bfloat16', '--format', form, tmp_path / 'in', out)
    run('convert', out, tmp_path / 'out')
    found = {leaf['name']: leaf['dtype'] for leaf in json.loads(run('ls', '--json', tmp_path / 'out').stdout)
             if 'dtype' in leaf}
    assert found == {'f8.npy': 'bfloat16', 'f4.npy': 'bfloat16'}


@pytest.mark.parametrize('form', ['npz', 'safetensors', 'zarr'])
def test_arrays_of_numpy_need_no_words(run, tmp_path, form):
    """A file of a plain dict of them is as another program writes it; one of JAX's says so."""
    np.savez(tmp_path / 'in.npz', **{'a/b': np.arange(3), 'a/c': np.arange(2)})
    for kind in ('np.ndarray', 'jax.Array'):
        run('convert', '-o', f'leaf_type={kind}', tmp_path / 'in.npz', tmp_path / kind)
        out = tmp_path / f'{kind}.{form}'
        run('export', tmp_path / kind, out)
        raw = b''.join(p.read_bytes() for p in ([out] if out.is_file() else out.rglob('.zattrs')))
        assert (b'typestr' in raw) == (kind == 'jax.Array')
        assert form != 'safetensors' or (b'pytreefs' in raw) == (kind == 'jax.Array')
        run('convert', out, tmp_path / f'{kind}-back')
        assert kind in run('info', tmp_path / f'{kind}-back/a/b.npy').stdout


@pytest.mark.parametrize('name', ['_ROOT_METADATA', 'metadata'])
def test_what_a_root_says_of_all_steps_goes_along(run, tmp_path, name):
    root, out = tmp_path / 'root', tmp_path / 'out'
    shutil.copytree(SAMPLE, root)
    (root / 'metadata/_ROOT_METADATA').unlink()
    text = '{"internal_metadata": {}, "custom_metadata": {"root": 1}}' if name[0] == '_' else '{"root": 1}'
    (root / 'metadata' / name).write_text(text)
    run('convert', root, out)
    assert (out / 'metadata' / name).read_text() == text
    assert os.listdir(out / 'metadata') == [name]
    run('verify', out)
    # Orbax writes it once.
    (root / 'metadata' / name).write_text('{}')
    for step in ('1000', '1500'):
        shutil.rmtree(out / step)
    run('convert', root, out)
    assert (out / 'metadata' / name).read_text() == text
    run('convert', '--force', root, out)
    assert (out / 'metadata' / name).read_text() == '{}'


def test_items_that_are_not_trees_are_said_to_be_left_out(run, tmp_path):
    r = run('export', SAMPLE / '1000', tmp_path / 'm.npz')
    assert "'config'" in r.stderr and "'metrics'" in r.stderr
    assert run('export', '-q', SAMPLE / '1000', tmp_path / 'n.npz').stderr == ''
    with np.load(tmp_path / 'm.npz') as z:
        assert all(k.startswith('state/') for k in z.files)
    run('convert', tmp_path / 'm.npz', tmp_path / '1000')
    assert run('diff', SAMPLE / '1000/state', tmp_path / '1000/state').returncode == 0


# ---- commit and abort ----

def test_commit_is_the_rename(run, mount, tmp_path):
    root = tmp_path / 'root'
    root.mkdir()
    m = mount(root)
    (m / '5.tmp/default').mkdir(parents=True)
    np.save(m / '5.tmp/default/w.npy', np.arange(5))
    run('commit', m / '5.tmp')
    assert os.listdir(m.path) == ['5'] and (root / '5/_CHECKPOINT_METADATA').exists()
    (m / '6.tmp/default').mkdir(parents=True)
    np.save(m / '6.tmp/default/w.npy', np.arange(5))
    run('commit', m / '6.tmp', m / '7')
    assert sorted(os.listdir(m.path)) == ['5', '7']


def test_a_refused_commit_says_why(run, mount, tmp_path):
    """The reason is in the log of the mount: the leaf, and its error. The draft remains."""
    root = tmp_path / 'root'
    root.mkdir()
    m = mount(root, allow_errors=True)
    (m / '4.tmp/default').mkdir(parents=True)
    np.save(m / '4.tmp/default/w.npy', np.arange(5))
    run('commit', m / '4.tmp', '4')
    (m / '5.tmp/default').mkdir(parents=True)
    (m / '5.tmp/default/w.npy').write_bytes(b'\x93NUMPY no array')
    with pytest.raises(OSError):
        os.rename(m / '5.tmp', m / '5')
    for _ in range(20):         # the log counts what it said before
        r = run('commit', m / '5.tmp', ok=False)
        assert r.returncode == 1 and (m / '5.tmp/default/w.npy').exists()
        assert r.stderr.startswith('pytreefs: cannot rename') and "'w.npy': npy version" in r.stderr
    r = run('commit', m / '5.tmp', m / 'no-step', ok=False)
    assert r.returncode == 1 and "'no-step'" in r.stderr
    # The kernel refuses these without asking, and the log has only what was wrong before.
    for to, why in ((m / '4', 'File exists'), (tmp_path / '5', 'cross-device')):
        r = run('commit', m / '5.tmp', to, ok=False)
        assert r.returncode == 1 and why in r.stderr and 'w.npy' not in r.stderr
    run('abort', m / '5.tmp')
    assert os.listdir(m.path) == ['4'] and os.listdir(root) == ['4']


def test_abort_leaves_others_alone(run, mount, tmp_path):
    root = tmp_path / 'root'
    root.mkdir()
    m = mount(root)
    (m / '5.tmp/default').mkdir(parents=True)
    np.save(m / '5.tmp/default/w.npy', np.arange(5))
    (held,) = root.iterdir()
    (root / '6.orbax-checkpoint-tmp').mkdir()
    for path, why in ((held, 'live'), (root / '6.orbax-checkpoint-tmp', 'another program'), (root, 'not a draft')):
        r = run('abort', path, ok=False)
        assert r.returncode == 1 and why in r.stderr, r.stderr
    run('commit', m / '5.tmp')
    r = run('abort', m / '5', ok=False)
    assert r.returncode == 1 and (m / '5/default/w.npy').exists()
    r = run('commit', root / '5', ok=False)
    assert r.returncode == 1


def test_abort_of_what_a_dead_mount_left(run, program, tmp_path):
    """A command that was killed: its draft is known as ours, and goes."""
    (tmp_path / 'in').mkdir()
    np.save(tmp_path / 'in/w.npy', np.random.default_rng(1).integers(0, 256, 64 << 20, np.uint8))
    (tmp_path / 'root').mkdir()
    draft = tmp_path / 'root/.5.pytreefs-draft'
    # On a busy machine it may have ended before it is killed.
    while not draft.exists():
        shutil.rmtree(tmp_path / 'root/5', ignore_errors=True)
        p = subprocess.Popen([program, 'save', '-o', 'compression=zstd:19', tmp_path / 'in', tmp_path / 'root/5'])
        while p.poll() is None and not draft.exists():
            time.sleep(0.0005)
        p.kill()
        p.wait()
    # The kernel ends the ring of a killed process in the background, and the lock with it.
    mounts.wait_for(lambda: run('abort', draft, ok=False).returncode == 0)
    assert os.listdir(tmp_path / 'root') == []


def test_through_a_mount_what_is_stored_is_taken(run, mount, tmp_path):
    """export and convert take a path in a mount for the checkpoint that is shown there, not for files of leaves."""
    shutil.copytree(SAMPLE, tmp_path / 'root')
    m = mount(tmp_path / 'root')
    for path in ('1000', '1000/state', 'latest/state/params', '1000/state/params/embed/table.npy'):
        for name, where in (('a.npz', m.path), ('b.npz', tmp_path / 'root')):
            run('export', '--quiet', where / path, tmp_path / name)
        assert run('diff', tmp_path / 'root' / path, m / path).returncode == 0
        a, b = (zipfile.ZipFile(tmp_path / name) for name in ('a.npz', 'b.npz'))
        assert [(i.filename, i.CRC) for i in a.infolist()] == [(i.filename, i.CRC) for i in b.infolist()]
        for name in ('a.npz', 'b.npz'):
            os.remove(tmp_path / name)
    run('convert', '--quiet', m / '1000', tmp_path / 'c.safetensors')
    # A step of files would have lost the items that are not trees, and chunks would be cut anew.
    run('convert', m / '1000', tmp_path / 'step')
    assert (tmp_path / 'step/config').is_dir() and (tmp_path / 'step/metrics').is_dir()
    run('convert', m.path, tmp_path / 'all')
    assert sorted(n for n in os.listdir(tmp_path / 'all') if n.isdigit()) == ['1000', '1500']
    # Names that are only files, and drafts, are what they look like.
    run('convert', m / '1000/state/params/embed/table[0:3].npy', tmp_path / 'part')
    os.mkdir(m / '9.tmp')
    os.mkdir(m / '9.tmp/state')
    np.save(m / '9.tmp/state/w.npy', np.ones(3, 'f4'))
    run('convert', m / '9.tmp/state', tmp_path / 'draft')
    r = run('export', m / '9.tmp/state', tmp_path / 'draft.npz', ok=False)
    assert r.returncode == 1 and 'is not a checkpoint: make one of it first' in r.stderr
    run('abort', m / '9.tmp')


def test_dump_reads_what_is_stored_behind_a_mount(run, mount, tmp_path):
    shutil.copytree(SAMPLE, tmp_path / 'root')
    m = mount(tmp_path / 'root')
    for kind in ('manifest', 'tree'):
        assert run('dump', kind, m / '1000/state').stdout == run('dump', kind, SAMPLE / '1000/state').stdout


def test_nothing_is_written_inside_of_a_checkpoint(run, tmp_path):
    """It would no longer be what was saved; a step may get an item, a root a step."""
    run('convert', SAMPLE / '1000/state/params', tmp_path / 'one')
    run('save', SAMPLE / '1000', tmp_path / 'root/1')
    listed = sorted(tmp_path.rglob('*'))
    for command, out, checkpoint in (
            ('convert', 'one/sub', 'one'), ('convert', 'one/sub/deep', 'one'), ('convert', 'one/d/9', 'one'),
            ('save', 'one/7', 'one'), ('save', 'one/all/7', 'one'), ('save', 'root/1/7', 'root/1'),
            ('export', 'one/x.npz', 'one'), ('export', 'one/x', 'one'), ('convert', 'one/x.zarr', 'one'),
            ('export', 'root/1/x.safetensors', 'root/1'), ('convert', 'root/1/state/x', 'root/1/state')):
        r = run(command, 'one', out, ok=False, cwd=tmp_path)
        assert r.returncode == 1 and f"'{out}' is inside of the checkpoint '{checkpoint}'" in r.stderr, r.stderr
    r = run('convert', 'root', 'one/all', ok=False, cwd=tmp_path)
    assert r.returncode == 1 and "inside of the checkpoint 'one'" in r.stderr
    r = run('convert', '.', 'sub', ok=False, cwd=tmp_path / 'one')
    assert r.returncode == 1 and "'sub' is inside of the checkpoint '.'" in r.stderr
    r = run('convert', '..', 'sub', ok=False, cwd=tmp_path / 'one/d')
    assert r.returncode == 1 and f"inside of the checkpoint '{tmp_path}/one'" in r.stderr
    assert sorted(tmp_path.rglob('*')) == listed
    run('convert', 'one', 'root/1/more', cwd=tmp_path)
    run('convert', '--item', 'params', 'one', 'root/2', cwd=tmp_path)
    run('convert', 'one', 'two', cwd=tmp_path)
    # A directory of leaves is not a checkpoint, though a copy out of a mount has `_METADATA`.
    run('export', '--format', 'npy', 'one', 'leaves', cwd=tmp_path)
    (tmp_path / 'leaves/_METADATA').write_text('{}')
    run('export', 'one', 'leaves/x.npz', cwd=tmp_path)
    for path in ('one', 'two', 'root'):
        run('verify', path, cwd=tmp_path)


def test_a_step_in_a_mount_is_refused_with_the_way_out(run, mount, tmp_path):
    (tmp_path / 'root').mkdir()
    m = mount(tmp_path / 'root')
    for command in ('save', 'convert'):
        r = run(command, SAMPLE / '1000/state', m / '9', ok=False)
        assert r.returncode == 1 and f"is a mount of pytreefs: write to its source '{tmp_path}/root'" in r.stderr
        assert f'{m.path}/9.tmp' in r.stderr and not os.listdir(tmp_path / 'root')


def test_a_zarr_group_makes_no_checkpoint_of_its_directory(run, tmp_path):
    """Only arrays do; and a directory of leaves without one is read beside those, too."""
    np.save(tmp_path / 'w.npy', np.ones((6, 5), 'f4'))
    (tmp_path / 'c').mkdir()
    run('convert', tmp_path / 'w.npy', tmp_path / 'c/one')
    (tmp_path / 'd/t').mkdir(parents=True)
    (tmp_path / 'd/t/i.json').write_text('3')
    run('export', '-o', 'zarr=3', tmp_path / 'c/one', tmp_path / 'd/a.zarr')
    r = run('info', '.', ok=False, cwd=tmp_path / 'd')
    assert r.returncode == 1 and 'is not a checkpoint' in r.stderr
    run('convert', tmp_path / 'd/t', tmp_path / 'c/u1')
    # The same beside what is an array.
    (tmp_path / 'd/x').mkdir()
    shutil.copy(next((tmp_path / 'd/a.zarr').glob('*/zarr.json')), tmp_path / 'd/x')
    run('convert', tmp_path / 'd/t', tmp_path / 'c/u2')
    assert run('cat', tmp_path / 'c/u1/i.json').stdout == run('cat', tmp_path / 'c/u2/i.json').stdout == '3\n'


def test_two_keys_of_one_stored_name_are_said_of_the_checkpoint(run, tmp_path):
    (tmp_path / 'in/a/b').mkdir(parents=True)
    np.save(tmp_path / 'in/a/b.c.npy', np.ones(3))
    np.save(tmp_path / 'in/a/b/c.npy', np.ones(3))
    r = run('convert', '--layout', 'v0', tmp_path / 'in', tmp_path / 'out', ok=False)
    assert r.returncode == 1 and "'out' is not committed: two leaves are stored under one name" in r.stderr


@pytest.mark.parametrize('zarr', ['2', '3'])
def test_a_key_that_is_a_file_of_zarr(run, tmp_path, zarr):
    path = 'a/zarr.json.npy'
    (tmp_path / 'in/a').mkdir(parents=True)
    np.save(tmp_path / 'in' / path, np.ones(3))
    run('convert', tmp_path / 'in', tmp_path / 'ck')
    r = run('export', '-o', f'zarr={zarr}', tmp_path / 'ck', tmp_path / 'out.zarr', ok=False)
    assert r.returncode == 1 and f"'{path}': zarr has no place for this key" in r.stderr
    assert not (tmp_path / 'out.zarr').exists()


@pytest.mark.parametrize('name', ['x.foo', 'x.h5', 'model.v2.pt', 'x.tar.gz', 'x.NPZ', 'x.safetensor'])
def test_an_ending_that_no_format_has(run, tmp_path, name):
    r = run('export', SAMPLE / '1000/state/params', tmp_path / name, ok=False)
    assert r.returncode == 2 and not list(tmp_path.iterdir())
    assert all(word in r.stderr for word in (f"'.{name.split('.')[-1]}'", '.npz', '.safetensors', '.zarr', '--format'))


@pytest.mark.parametrize('name,options', [('x', []), ('x.foo/', []), ('run-1.5', []), ('.x', []), ('x.', []), ('x.d/leaves', []),
                                          ('x.foo', ['--format', 'npy'])])
def test_a_directory_of_leaves_says_that_it_is_one(run, tmp_path, name, options):
    (tmp_path / 'x.d').mkdir()
    run('export', *options, SAMPLE / '1000/state/params', f'{tmp_path}/{name}')
    assert (tmp_path / name / 'embed/table.npy').is_file()


def test_one_array_by_export_and_by_convert(run, tmp_path):
    for command in ('export', 'convert'):
        run(command, SAMPLE / '1000/state/params/embed/table.npy', tmp_path / f'{command}.npy')
        assert np.load(tmp_path / f'{command}.npy').shape == (128, 32)


def test_a_copy_of_what_a_mount_shows(run, mount, tmp_path):
    """Without xattrs its _METADATA is the only record of lists and tuples. It is not a checkpoint, and is told from a damaged one."""
    m = mount(SAMPLE)
    subprocess.run(['rsync', '-a', f'{m.path}/1500/', tmp_path / 'step'], check=True)
    subprocess.run(['rsync', '-a', f'{m.path}/1500/state/', tmp_path / 'item'], check=True)
    for copy, saved in (('step', '1'), ('item', '2/default')):
        run('save', tmp_path / copy, tmp_path / 'ck' / saved[0])
        want = SAMPLE / '1500' / ('' if copy == 'step' else 'state')
        found = run('diff', tmp_path / 'ck' / saved, want, ok=False).stdout.splitlines()
        # Which integers are a random key is in an xattr alone.
        assert [line.split('/')[-1] for line in found[:-1]] == ['rng.npy: dtype: uint32, and key<threefry2x32>'] and ' 1 difference' in found[-1]
    why = 'it is a copy of files that a mount shows, not a checkpoint: `pytreefs save` makes a checkpoint of it'
    r = run('verify', tmp_path / 'step', ok=False)
    assert r.returncode == 1 and r.stdout.splitlines()[0] == f"error: state: item 'state': {why}"
    assert r.stdout.count('error: ') == 1
    for words in (('ls', 'item'), ('diff', 'item', 'item'), ('cat', 'step/state/params/embed/table.npy')):
        r = run(words[0], *(tmp_path / w for w in words[1:]), ok=False)
        assert r.returncode and why in r.stderr and r.stderr.count('\n') == 1, r.stderr
    # One that is torn, or of another tree, has no effect.
    for text in ('{', '{"tree_metadata": {}}'):
        (tmp_path / 'item/_METADATA').write_text(text)
        run('save', '--force', tmp_path / 'item', tmp_path / 'ck/2')
        assert ' 0 differences' not in run('diff', tmp_path / 'ck/2/default', SAMPLE / '1500/state', ok=False).stdout


def test_a_copy_whose_leaves_are_all_texts(run, mount, tmp_path):
    """Of numbers and strings, as a step and as an item; there is no .npy file to know it by."""
    (tmp_path / 'in/sub').mkdir(parents=True)
    for name, text in (('lr.json', '0.5'), ('name.txt', 'run'), ('sub/n.json', '3')):
        (tmp_path / 'in' / name).write_text(text)
    run('save', tmp_path / 'in', tmp_path / 'ck/1')
    m = mount(tmp_path / 'ck')
    shutil.copytree(m.path / '1', tmp_path / 'step')
    subprocess.run(['rsync', '-a', f'{m.path}/1/default/', tmp_path / 'item'], check=True)
    for copy, saved in (('step', '2'), ('item', '3')):
        run('save', tmp_path / copy, tmp_path / 'out' / saved)
        assert ' 0 differences' in run('diff', tmp_path / 'ck/1', tmp_path / 'out' / saved).stdout


def test_a_step_whose_other_items_have_npy_files(run, tmp_path):
    """An item that is stored as it is may have any files; the step is a checkpoint."""
    shutil.copytree(SAMPLE / '1500', tmp_path / 'root/1500')
    (tmp_path / 'root/1500/stats').mkdir()
    np.save(tmp_path / 'root/1500/stats/mean.npy', np.ones(3))
    for source, made in (('root/1500', 'c'), ('root', 'b')):
        run('convert', tmp_path / source, tmp_path / made)
        step = tmp_path / (made if made != 'b' else 'b/1500')
        assert ' 0 differences' in run('diff', tmp_path / 'root/1500/state', step / 'state').stdout
        assert np.load(step / 'stats/mean.npy').sum() == 3


def test_metadata_of_every_directory(run, tmp_path):
    """They have one bound in all, so a small hostile input takes no memory; and none is left out without a word."""
    for i in range(40):
        item = tmp_path / f'step/item{i}'
        item.mkdir(parents=True)
        np.save(item / 'w.npy', np.ones(2))
        with open(item / '_METADATA', 'wb') as f:
            f.truncate(30 << 20)
    (tmp_path / 'step/_CHECKPOINT_METADATA').write_text('{}')
    words = ['save', tmp_path / 'step', tmp_path / 'ck/1']
    limit = {'preexec_fn': lambda: resource.setrlimit(resource.RLIMIT_DATA, (900 << 20,) * 2)}
    run(*words, **limit)
    assert '40 items' in run('verify', tmp_path / 'ck/1').stdout
    for i in range(40):
        with open(tmp_path / f'step/item{i}/_METADATA', 'r+b') as f:
            f.write(b'{')
    r = run(*words, '--force', ok=False, **limit)
    assert r.returncode == 1 and re.search("_METADATA'.*(may have 1024 MiB in all|does not fit in memory)", r.stderr), r.stderr


@pytest.mark.parametrize('names', [('w', 'w.npy'), ('a', 'a.b')], ids=str)
def test_a_tensor_with_the_name_of_another_and_more(run, tmp_path, names):
    """Dots split names; docs/huggingface.md has the option that leaves them whole."""
    from safetensors.numpy import save_file
    save_file({name: np.full(2 + i, i, np.float32) for i, name in enumerate(names)}, tmp_path / 'm.safetensors')
    r = run('convert', tmp_path / 'm.safetensors', tmp_path / 'out', ok=False)
    assert r.returncode == 1 and f"is the second leaf of key '{names[0]}'" in r.stderr and not (tmp_path / 'out').exists()
    run('convert', '-o', 'safetensors_separator=/', tmp_path / 'm.safetensors', tmp_path / 'out')
    for i, name in enumerate(names):
        assert np.load(io.BytesIO(run('cat', tmp_path / f'out/{name}.npy', text=False).stdout)).tolist() == [i] * (2 + i)


@pytest.mark.parametrize('form', ['zarr', 'safetensors'])
def test_random_keys_of_an_export_stay_keys(run, tmp_path, form):
    (tmp_path / 'in').mkdir()
    np.save(tmp_path / 'in/rng.npy', np.array([[1, 2], [3, 4000000001]], np.uint32))
    np.save(tmp_path / 'in/w.npy', np.ones(3))
    os.setxattr(tmp_path / 'in/rng.npy', 'user.pytree.prng_impl', b'"threefry2x32"')
    run('save', tmp_path / 'in', tmp_path / 'ck/1')
    rules = tmp_path / 'rules.json'
    rules.write_text(json.dumps({'default_to_original': True, 'rules': [{'key': 'k/rng', 'original_key': 'rng'}]}))
    out = tmp_path / f'out.{form}'
    run('export', '--format', form, tmp_path / 'ck/1/default', out)
    assert 'threefry2x32' in run('info', out / 'rng.npy').stdout
    for i, (name, options) in enumerate([('rng', []), ('rng', ['-o', 'restore_dtype=float32']),
                                         ('k/rng', ['-o', f'transforms={rules},restore_dtype=float32'])], 2):
        run('convert', *options, out, tmp_path / f'ck/{i}')
        info = run('info', tmp_path / f'ck/{i}/default/{name}.npy').stdout
        assert '"uint32"' in info and 'threefry2x32' in info
        bits = np.load(io.BytesIO(run('cat', tmp_path / f'ck/{i}/default/{name}.npy', text=False).stdout))
        assert bits.tolist() == [[1, 2], [3, 4000000001]]


def test_a_step_with_the_export_of_a_step_as_an_item(run, tmp_path):
    """Its items are containers of that item."""
    shutil.copytree(SAMPLE / '1000', tmp_path / 'ck/1')
    run('export', '--format', 'zarr', SAMPLE / '1000', tmp_path / 'g')
    shutil.move(tmp_path / 'g', tmp_path / 'ck/1')
    run('convert', tmp_path / 'ck/1', tmp_path / 'ck/2')
    run('diff', SAMPLE / '1000/state', tmp_path / 'ck/2/g/state')
