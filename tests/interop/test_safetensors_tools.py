# SPDX-License-Identifier: Apache-2.0
"""A safetensors file, or a directory of shards, in place of a checkpoint: what the tools say of it, against the official library."""

import json
import pathlib
import re
import shutil
import struct

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

DTYPES = ['bool', 'int8', 'int16', 'int32', 'int64', 'uint8', 'uint16', 'uint32', 'uint64', 'float16', 'float32', 'float64',
          'complex64', 'bfloat16', 'float8_e4m3fn', 'float8_e4m3fnuz', 'float8_e5m2', 'float8_e5m2fnuz', 'float8_e8m0fnu']
TREE = {
    'model.layers.0.kernel': np.arange(600, dtype=np.float32).reshape(20, 30),
    'model.layers.0.bias': np.arange(30).astype(ml_dtypes.bfloat16),
    'model.layers.1.kernel': np.full((3, 2, 4), 7, ml_dtypes.float8_e4m3fn),
    'count': np.array(5, np.int32),
    'empty': np.zeros((0, 4), np.float32),
    'a/b': np.ones(3, np.int8),
}


def write(path, tensors, **how):
    path.parent.mkdir(parents=True, exist_ok=True)
    safetensors.numpy.save_file(tensors, path, **how)
    return path


def failed(run, code, *words):
    r = run(*words, ok=False)
    assert r.returncode == code, r
    return r


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / 'model.safetensors', TREE, metadata={'format': 'pt'})


@pytest.fixture
def sharded(tmp_path):
    """As large models are published: shards, and an index that says where each tensor is."""
    where, names, index = tmp_path / 'hf', sorted(TREE), {}
    for i, part in enumerate([names[:2], names[2:]]):
        shard = f'model-0000{i + 1}-of-00002.safetensors'
        write(where / shard, {n: TREE[n] for n in part})
        index |= dict.fromkeys(part, shard)
    (where / 'model.safetensors.index.json').write_text(json.dumps({'metadata': {}, 'weight_map': index}))
    return where


@pytest.fixture
def checkpoint(run, file, tmp_path):
    run('save', file, tmp_path / 'ck/1')
    return tmp_path / 'ck/1'


@pytest.mark.parametrize('dtype', DTYPES)
def test_values_of_each_type(run, tmp_path, dtype):
    array = (np.arange(24) * (10 if 'float' in dtype else 1)).reshape(4, 6).astype(dtype)
    found = run('cat', write(tmp_path / 'm.safetensors', {'a.w': array}) / 'a/w.npy', text=False).stdout
    assert found[-array.nbytes:] == array.tobytes()
    [leaf] = json.loads(run('stats', '--json', tmp_path / 'm.safetensors').stdout)
    assert (leaf['path'], leaf['dtype'], leaf['shape']) == ('a/w.npy', dtype, [4, 6])
    if 'float' in dtype:
        finite = array.astype('f8')[np.isfinite(array.astype('f8'))]
        assert (leaf['min'], leaf['max']) == (finite.min(), finite.max())     # 240, and not the 2e2 that reads back as it


@pytest.mark.parametrize('kind', ['file', 'sharded'])
def test_the_checkpoint_that_save_makes_of_it_is_the_same(run, request, checkpoint, kind):
    path = request.getfixturevalue(kind)
    for pair in [(checkpoint / 'default', path), (path, checkpoint / 'default'), (path, path)]:
        out = run('diff', *pair).stdout
        assert out == '6 leaves compared, 6 the same\n' or ', 0 differences' in out, out


def test_one_value_that_differs(run, file, checkpoint, tmp_path):
    other = dict(TREE, **{'model.layers.0.bias': TREE['model.layers.0.bias'] + 1})
    r = failed(run, 1, 'diff', checkpoint / 'default', write(tmp_path / 'o.safetensors', other))
    assert 'model/layers/0/bias.npy: values: 30 of 30 elements differ' in r.stdout
    assert '6 leaves compared, 5 the same' in r.stdout
    del other['count']
    r = failed(run, 1, 'diff', checkpoint / 'default', write(tmp_path / 'o.safetensors', other))
    assert 'count.npy: only in A' in r.stdout


@pytest.mark.parametrize('kind', ['file', 'sharded'])
def test_looking_at_it(run, request, kind):
    path = request.getfixturevalue(kind)
    assert run('ls', path).stdout.split() == ['a%2Fb.npy', 'count.npy', 'empty.npy', 'model/']
    assert run('ls', path / 'model/layers').stdout.split() == ['0/', '1/']
    assert 'kernel.npy  float32[20,30]' in run('tree', path).stdout
    info = json.loads(run('info', '--json', path).stdout)
    assert (info['leaves'], info['store']) == (6, 'safetensors')
    stats = {s['path']: s for s in json.loads(run('stats', '--json', '--only', 'model/**', path).stdout)}
    assert sorted(stats) == ['model/layers/0/bias.npy', 'model/layers/0/kernel.npy', 'model/layers/1/kernel.npy']
    assert (stats['model/layers/0/kernel.npy']['min'], stats['model/layers/0/kernel.npy']['max']) == (0, 599)
    assert 'has no checksums' in failed(run, 2, 'verify', path).stderr


def test_a_checkpoint_comes_first(run, checkpoint, monkeypatch):
    """D.safetensors below a checkpoint is the view that the mount has; one that stands beside steps is a file."""
    view = run('cat', checkpoint / 'default/model.safetensors', text=False).stdout
    assert set(json.loads(view[8:8 + int.from_bytes(view[:8], 'little')])) - {'__metadata__'} == {'layers.0.kernel', 'layers.0.bias', 'layers.1.kernel'}
    (checkpoint.parent / 'x.safetensors').write_bytes(view)
    monkeypatch.chdir(checkpoint.parent)
    assert run('ls', 'x.safetensors').stdout == 'layers/\n'


def header(doc, data=b''):
    text = doc if isinstance(doc, bytes) else json.dumps(doc).encode()
    return struct.pack('<Q', len(text)) + text + data


def tensor(**how):
    return {'w': {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 8]} | how}


HOSTILE = {
    'empty': (b'', 'it has 0 bytes'),
    'cut': (header(tensor(), b'1234'), 'it has '),
    'header': (struct.pack('<Q', 1 << 60) + b'{}', 'a header of 1152921504606846976 bytes in a file of 10'),
    'json': (header(b'{"w": '), 'safetensors header'),
    'dtype': (header(tensor(dtype='Q7'), b'12345678'), "dtype 'Q7'"),
    'shape': (header(tensor(shape=[1 << 40, 1 << 40]), b'12345678'), 'the shape overflows'),
    'offsets': (header(tensor(data_offsets=[8, 16]), b'12345678'), 'begins at byte 8'),
}


@pytest.mark.parametrize('kind', HOSTILE)
@pytest.mark.parametrize('command', ['ls', 'tree', 'stats', 'info'])
def test_damaged_files_are_refused(run, tmp_path, command, kind):
    data, why = HOSTILE[kind]
    (tmp_path / 'm.safetensors').write_bytes(data)
    r = failed(run, 2 if command == 'stats' else 1, command, tmp_path / 'm.safetensors')
    assert 'm.safetensors' in r.stderr and why in r.stderr, r.stderr


def test_an_index_that_lies(run, sharded):
    """It must name files that have the tensors; no tensor is in two."""
    index = sharded / 'model.safetensors.index.json'
    right = json.loads(index.read_text())['weight_map']
    files = sorted(set(right.values()))
    other = files[right['count'] == files[0]]
    for change, why in [({'gone': 'x.safetensors'}, "'x.safetensors' is not there"), ({'gone': other}, "'gone' is in no file"), ({'count': 5}, "'count' has no file"),
                        ({'count': other}, f"'count' is in '{right['count']}'")]:
        index.write_text(json.dumps({'weight_map': right | change}))
        assert why in failed(run, 1, 'ls', sharded).stderr
    index.write_text('{}')
    assert 'has no weight_map' in failed(run, 1, 'ls', sharded).stderr
    index.unlink()
    write(sharded / 'more.safetensors', {'count': TREE['count']})
    assert "tensor 'count' is in '" in failed(run, 1, 'ls', sharded).stderr


def test_an_index_that_lies_below_what_looks_like_a_step(run, sharded):
    """A stray item beside the model makes its parent directory look like a step. The model's error is still reported."""
    shutil.copytree(SAMPLE, sharded.parent / 'item')
    assert 'count.npy' in run('ls', sharded).stdout.splitlines()
    (sharded / 'model.safetensors.index.json').write_text('{}')
    assert 'has no weight_map' in failed(run, 1, 'ls', sharded).stderr
    # Without an index the files need not be one model, but only a step that is marked may hold other files.
    (sharded / 'model.safetensors.index.json').unlink()
    write(sharded / 'more.safetensors', {'count': TREE['count']})
    assert "tensor 'count' is in '" in failed(run, 1, 'ls', sharded).stderr
    shutil.copy(SAMPLE.parent / '_CHECKPOINT_METADATA', sharded.parent)
    assert 'more.safetensors' in run('ls', sharded).stdout.splitlines()


# ---- our own files, and other separators ----

SAMPLE = pathlib.Path(__file__).resolve().parents[1] / 'data/sample/1500/state'


def lines(run, *words):
    """The leaves of `tree` with types, without sizes on disk and without what is not a leaf."""
    found = [re.sub(r'  \d+ files?, .*', '', line) for line in run('tree', *words).stdout.splitlines()[1:]]
    return [line for line in found if '_METADATA' not in line and ' directories, ' not in line]


@pytest.mark.parametrize('how', [[], ['--max-shard-size', '100K']], ids=['file', 'shards'])
def test_a_file_of_ours_is_the_tree_that_it_was_made_of(run, tmp_path, how):
    """Lists, None, texts and numbers are in the manifest of an export; tree, diff and stats read it as convert does."""
    file = tmp_path / ('shards' if how else 'm.safetensors')
    run('export', '--quiet', *how, SAMPLE, file, *(['--format', 'safetensors'] if how else []))
    assert lines(run, file) == lines(run, SAMPLE)
    assert '78 leaves compared, 78 the same, 0 differences' in run('diff', SAMPLE, file).stdout
    assert run('cat', file / 'run_name.txt').stdout == 'sample-transformer'
    assert run('cat', file / 'history/1.json').stdout == run('cat', SAMPLE / 'history/1.json').stdout
    run('convert', '--quiet', file, tmp_path / 'again')
    assert '78 the same, 0 differences' in run('diff', file, tmp_path / 'again').stdout


def test_a_manifest_that_does_not_fit_is_refused(run, tmp_path):
    """It says that two tensors are one leaf; the message names the leaf."""
    file = write(tmp_path / 'm.safetensors', {'a': np.zeros(2), 'b': np.zeros(2)},
                 metadata={'pytreefs': json.dumps({'leaves': {'a': 'b.npy'}})})
    assert "two leaves are called 'b.npy'" in failed(run, 1, 'tree', file).stderr


@pytest.mark.parametrize('separator,names', [
    ('.', ['a%2Fb%2Fw/0.npy', 'c.npy']), ('/', ['a/b/w.0.npy', 'c.npy']), ('', ['a%2Fb%2Fw.0.npy', 'c.npy'])])
def test_names_are_split_as_the_option_says(run, tmp_path, separator, names):
    """By every command that takes such a file, and by convert and save, whose result is the same tree."""
    file = write(tmp_path / 'm.safetensors', {'a/b/w.0': np.arange(4.0), 'c': np.ones(2)})
    option = ['-o', f'safetensors_separator={separator}']
    assert [leaf['path'] for leaf in json.loads(run('stats', '--json', *option, file).stdout)] == names
    assert run('cat', *option, file / names[0].replace('.npy', '.bin'), text=False).stdout == np.arange(4.0).tobytes()
    run('convert', '--quiet', *option, file, tmp_path / 'tree')
    run('save', '--quiet', *option, file, tmp_path / 'ck/1')
    for made in (tmp_path / 'tree', tmp_path / 'ck/1/default'):
        assert '2 the same, 0 differences' in run('diff', *option, file, made).stdout


def test_a_file_that_a_step_stores_is_a_tree(run, tmp_path):
    """A directory that is called like a step may hold a published model; `cat` still gives the file itself."""
    plain = write(tmp_path / 'plain.safetensors', TREE)
    run('save', '--quiet', plain, tmp_path / 'models/5')
    file = write(tmp_path / 'models/5/hf/model.safetensors', TREE)
    assert run('cat', file, text=False).stdout == file.read_bytes()
    assert run('ls', file).stdout.split() == ['a%2Fb.npy', 'count.npy', 'empty.npy', 'model/']
    assert len(json.loads(run('stats', '--json', file).stdout)) == len(TREE)
    assert json.loads(run('info', '--json', file).stdout)['store'] == 'safetensors'
    assert run('ls', file.parent).stdout == run('ls', file).stdout, 'a directory of such files, too'
    for path in (file, file.parent):
        assert '6 leaves compared, 6 the same, 0 differences' in run('diff', path, plain).stdout
    file.write_bytes(file.read_bytes()[:-1])
    assert 'its header says' in failed(run, 1, 'ls', file).stderr
