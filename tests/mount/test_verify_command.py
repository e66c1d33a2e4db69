# SPDX-License-Identifier: Apache-2.0
"""`pytreefs verify` as a command: levels, drafts, what it cannot know, its output. That it finds what can be
found is interop/test_verify.py's."""

import json
import pathlib
import re
import shutil

import numpy as np
import pytest

from lib import package

pytreefs = package.imported()
SAMPLE = pathlib.Path(__file__).resolve().parents[1] / 'data' / 'sample'


@pytest.fixture
def item(cases, tmp_path):
    """item(name): a private copy of a checkpoint."""
    def make(name):
        shutil.copytree(cases(name).path, tmp_path / name)
        return tmp_path / name
    return make


def verify(run, *words):
    r = run('verify', '--json', *words, ok=False)
    doc = json.loads(r.stdout)
    assert r.returncode == (1 if doc['errors'] else 0), r.stderr
    return doc


def levels_that_see(run, path):
    return [level for level in (1, 2, 3) if verify(run, '--level', level, path)['errors']]


def test_a_record_is_seen_by_every_level(run, item):
    path = item('matrix-ocdbt-zarr2-zstd-v0')
    manifest = path / 'manifest.ocdbt'
    data = bytearray(manifest.read_bytes())
    data[20] ^= 4
    manifest.write_bytes(data)
    assert levels_that_see(run, path) == [1, 2, 3]


def test_what_does_not_agree_is_seen_from_the_second_on(run, item):
    path = item('matrix-perleaf-zarr2-zstd-v0')
    metadata = path / '_METADATA'
    doc = json.loads(metadata.read_text())
    del doc['tree_metadata'][next(k for k, v in doc['tree_metadata'].items()
                                  if v['value_metadata']['value_type'] == 'np.ndarray')]
    metadata.write_text(json.dumps(doc))
    assert levels_that_see(run, path) == [2, 3]


@pytest.mark.parametrize('part, axis', [(0, 0), (0, 1), (9, 1)])
def test_a_write_shape_that_no_device_wrote(run, tmp_path, part, axis):
    root = tmp_path / '1'
    pytreefs.save(root, {'none': np.ones((0, 4)), 'w': np.ones((3, 4))}, leaf_type='jax.Array')
    file = root / 'default/array_metadatas/process_0'
    doc = json.loads(file.read_text())
    shape = next(e['array_metadata'] for e in doc['array_metadatas'] if e['array_metadata']['param_name'] == 'w')['write_shape']
    assert shape == [3, 4] and not verify(run, root)['findings']
    shape[axis] = part
    file.write_text(json.dumps(doc))
    found, = verify(run, root)['findings']
    assert found['leaf'] == 'default/w.npy' and f'write_shape with {part} on axis {axis}, where its array has {3 + axis}' in found['text']


def test_a_chunk_is_seen_by_the_third(run, item):
    path = item('matrix-perleaf-zarr2-zstd-v0')
    chunk = next(p for p in sorted(path.rglob('*')) if re.fullmatch(r'[0-9.]+', p.name) and p.stat().st_size > 100)
    data = bytearray(chunk.read_bytes())
    data[:4] = b'none'
    chunk.write_bytes(data)
    assert levels_that_see(run, path) == [3]
    found = verify(run, path)['findings']
    assert len(found) == 1
    assert found[0]['file'] == str(chunk.relative_to(path)) and found[0]['leaf'].endswith('.npy')
    assert (found[0]['offset'], found[0]['length'], found[0]['level']) == (0, len(data), 3)
    line = run('verify', path, ok=False).stdout.splitlines()[0]
    assert line.startswith(f'error: {found[0]["leaf"]}: {found[0]["file"]}:0:{len(data)}: ')


def test_a_flipped_bit_in_a_raw_chunk_is_not_a_finding_and_it_says_so(run, item):
    path = item('matrix-perleaf-zarr2-none-v0')
    chunk = next(p for p in sorted(path.rglob('*')) if re.fullmatch(r'[0-9.]+', p.name) and p.stat().st_size > 100)
    data = bytearray(chunk.read_bytes())
    data[50] ^= 1
    chunk.write_bytes(data)
    doc = verify(run, path)
    assert doc['findings'] == [] and doc['without_checksum']['raw_bytes'] >= len(data)
    assert 'raw chunks without a checksum' in run('verify', path).stdout


def test_drafts_are_listed_and_no_fault(run, tmp_path):
    root = tmp_path / 'root'
    shutil.copytree(SAMPLE, root)
    shutil.copytree(root / '1000', root / '2000.orbax-checkpoint-tmp-17')
    (root / '2000.orbax-checkpoint-tmp-17' / 'state' / '_METADATA').write_text('{')
    doc = verify(run, root)
    assert doc['drafts'] == ['2000.orbax-checkpoint-tmp-17'] and doc['findings'] == []
    assert 'not looked at: 2000.orbax-checkpoint-tmp-17' in run('verify', root).stdout


def test_a_broken_step_does_not_hide_the_others(run, tmp_path):
    root = tmp_path / 'root'
    shutil.copytree(SAMPLE, root)
    (root / '1000' / 'state' / '_METADATA').write_text('{')
    (root / '1500' / '_CHECKPOINT_METADATA').write_text('[]')
    files = {f['file'] for f in verify(run, root)['findings']}
    assert {'1000/state/_METADATA', '1500/_CHECKPOINT_METADATA'} <= files


@pytest.mark.parametrize('where', ['', '1500', '1500/state', 'latest', 'latest/state'])
def test_a_source_a_step_an_item(run, where):
    doc = verify(run, SAMPLE / where)
    assert not doc['findings'] and doc['leaves'] >= 76


@pytest.mark.parametrize('pattern', ['1500/state/params/embed', '1500/state/params/**/table.npy',
                                     'state/params/*/table', '**/params/embed', 'params/embed/table'])
def test_leaves_are_chosen_by_every_path_that_they_have(run, pattern):
    """As it is printed, in its step, in its item: the same for each command that goes through leaves."""
    where = SAMPLE if pattern.startswith('1500') else SAMPLE / '1500'
    assert verify(run, where, '--only', pattern)['leaves'] == 1
    assert len(json.loads(run('stats', '--json', '--only', pattern, where).stdout)) == 1
    assert json.loads(run('diff', '--json', '--only', pattern, where, where).stdout)['compared'] == 1


def test_only_some_leaves(run):
    doc = verify(run, SAMPLE / '1500', '--only', '**/embed/**')
    assert 0 < doc['leaves'] < 10 and doc['chunks'] == doc['leaves']
    assert run('verify', SAMPLE / '1500', '--only', 'nosuch/**', ok=False).returncode == 2


def test_wrong_usage(run, tmp_path):
    assert run('verify', '--level', '4', SAMPLE, ok=False).returncode == 2
    assert run('verify', ok=False).returncode == 2
    for path in (tmp_path / 'nothing', SAMPLE / '1500/state/params/embed/table.npy'):
        r = run('verify', path, ok=False)
        assert r.returncode == 2 and r.stderr.startswith('pytreefs: '), r.stderr


@pytest.mark.parametrize('made,said', [([], 'has no steps'), (['metadata'], 'has no steps'),
                                       (['2000.orbax-checkpoint-tmp-1'], 'drafts are not looked at')])
def test_nothing_to_check_is_a_failure(run, tmp_path, made, said):
    """An empty directory, a root without steps, a root with a draft alone."""
    for name in made:
        (tmp_path / name).mkdir()
    for words in ([], ['-q']):
        r = run('verify', *words, tmp_path, ok=False)
        assert r.returncode == 2 and 'nothing was checked' in r.stderr and said in r.stderr and str(tmp_path) in r.stderr, r.stderr
    r = run('verify', '--json', tmp_path, ok=False)
    doc = json.loads(r.stdout)
    assert r.returncode == 2 and said in doc['error'] and doc['findings'] == [] and doc['items'] == 0


def test_a_failure_is_in_the_document(run, tmp_path):
    for words, said in (([tmp_path / 'nothing'], "'nothing'"), ([SAMPLE, '--only', 'nosuch'], "no leaf matches 'nosuch'")):
        r = run('verify', '--json', *words, ok=False)
        assert r.returncode == 2 and said in json.loads(r.stdout)['error'] and said in r.stderr
    assert 'error' not in verify(run, SAMPLE)


def test_a_node_that_many_leaves_need_is_reported_once(run, tmp_path):
    shutil.copytree(SAMPLE, tmp_path / 'ck')
    node, = (tmp_path / 'ck/1500/state/d').iterdir()
    data = bytearray(node.read_bytes())
    data[len(data) // 2] ^= 1
    node.write_bytes(data)
    doc = verify(run, tmp_path / 'ck')
    assert doc['errors'] == len(doc['findings']) == 1 and doc['unopened_leaves'] > 70
    where = {'file': str(node.relative_to(tmp_path / 'ck')), 'offset': 0, 'length': len(data)}
    assert doc['shared'] == [where | {'leaves': doc['unopened_leaves']}]
    out = run('verify', tmp_path / 'ck', ok=False).stdout
    assert out.count('error: ') == 1 and f"{doc['unopened_leaves']} leaves are affected by the finding at {where['file']}:0:" in out


@pytest.mark.parametrize('trace', ['parts', 'use_ocdbt', 'data files', None])
def test_manifests_that_are_all_missing_are_one_finding(trace, run, mount, tmp_path):
    """A hub has dropped them. Told by any trace of a database; without one, each leaf is missing by itself."""
    item = tmp_path / 'ck/1500/state'
    shutil.copytree(SAMPLE, tmp_path / 'ck')
    for path in item.rglob('manifest.ocdbt'):
        path.unlink()
    doc = json.loads((item / '_METADATA').read_text())
    if trace != 'use_ocdbt':
        doc.pop('use_ocdbt', None)
    (item / '_METADATA').write_text(json.dumps(doc))
    if trace != 'parts':
        shutil.rmtree(item / 'ocdbt.process_0')
    if trace != 'data files':
        shutil.rmtree(item / 'd')
    why = 'no manifest.ocdbt, which says where the arrays of the item are' if trace else "'rng' is in the tree, and its array is not stored"
    doc = verify(run, tmp_path / 'ck')
    assert doc['unopened_leaves'] == 75 and any(why in f['text'] for f in doc['findings'])
    if trace:
        where = {'file': '1500/state/manifest.ocdbt'}
        assert doc['findings'] == [where | {'severity': 'error', 'level': 1, 'leaf': None, 'text': why}]
        assert doc['shared'] == [where | {'leaves': 75}]
        assert '75 leaves are affected by the finding at 1500/state/manifest.ocdbt\n' in run('verify', tmp_path / 'ck', ok=False).stdout
    else:
        assert len(doc['findings']) == 75 and not doc['shared']
    for words in ('stats', item / 'rng.npy'), ('cat', item / 'rng.npy'), ('export', item, tmp_path / 'x.npz', '--only', 'rng'):
        r = run(*words, ok=False)
        assert r.returncode and why in r.stderr, r
    m = mount(tmp_path / 'ck', allow_errors=True)
    with pytest.raises(OSError):
        (m.path / '1500/state/rng.npy').read_bytes()
    assert why in (m.path / '.pytreefs/log').read_text()
    with pytest.raises(pytreefs.Error, match=re.escape(why)):
        pytreefs.load(item, only='rng')


def test_quiet_says_nothing_of_what_is_sound(run):
    assert run('verify', '-q', SAMPLE).stdout == ''


@pytest.mark.parametrize('name', ['g(y)', 'a, b', "it's", 'x:1:2'])
def test_the_file_of_a_finding_is_named_whole(run, tmp_path, name):
    """Keys hold what ends a place in a sentence."""
    (tmp_path / 'in').mkdir()
    np.save(tmp_path / 'in' / f'{name}.npy', np.ones((6, 5), 'f4'))
    run('convert', '--layout', 'v0', '-o', 'ocdbt=off', tmp_path / 'in', tmp_path / 'item')
    (tmp_path / 'item' / name / '.zarray').write_text('{"x')
    found, = verify(run, tmp_path / 'item')['findings']
    assert (found['file'], found['offset'], found['length']) == (f'{name}/.zarray', 0, 3)


POINTER = b'version https://git-lfs.github.com/spec/v1\noid sha256:%b\nsize 12345\n' % (b'ab' * 32)


def test_a_pointer_of_git_lfs_is_named_in_place_of_any_file(run, tmp_path):
    """A clone without its large files; other files, and those of opaque items, may be pointers."""
    one = tmp_path / '1'
    run('convert', SAMPLE / '1000', one)
    run('convert', '-o', 'ocdbt=off,zarr=3', SAMPLE / '1000', tmp_path / '2')
    (tmp_path / '3').mkdir()
    run('export', SAMPLE / '1000/state', '--only', 'params/', tmp_path / '3/model.safetensors')
    (tmp_path / '4').mkdir()
    np.save(tmp_path / '4/x.npy', np.ones(3))
    silent, seen = [], set()
    for path in sorted(p for top in '1234' for p in (tmp_path / top).rglob('*') if p.is_file()):
        kind = 'chunk' if path.name.isdigit() or path.parent.name == 'd' else path.name
        if (path.parts[-2] if kind == 'zarr.json' else '', kind) in seen or kind in ('commit_success.txt', '_CHECKPOINT_METADATA'):
            continue
        seen.add(('', kind))
        good = path.read_bytes()
        path.write_bytes(POINTER)
        top = path.relative_to(tmp_path).parts[0]
        how = ('convert', tmp_path / top, tmp_path / 'out') if top == '4' else ('verify', tmp_path / top)
        r = run(*how, ok=False)
        if r.returncode == 0 or not re.search(rf"{re.escape(path.name)}'?: a Git LFS pointer",  r.stdout + r.stderr):
            silent.append((path.relative_to(tmp_path).as_posix(), r.stdout + r.stderr))
        path.write_bytes(good)
    assert not silent and len(seen) > 5, silent
