# SPDX-License-Identifier: Apache-2.0
"""Hierarchies of zarr groups, as zarr-python and `pytreefs export` write them: the same leaves from every command, and no damage that
`verify` does not see."""

import json
import os
import shutil
import subprocess

import numpy as np
import pytest
import zarr

import pytreefs
from lib import servers

# Arrays by path: the names of groups are keys, and a dot in one is part of the key. One has no chunk at all.
ARRAYS = {'x': np.arange(6, dtype='f4').reshape(2, 3), 'a/v.1': np.arange(3, dtype='i8'), 'a/b/w': np.arange(8, dtype='i4'),
          'labels/cells/0': np.zeros((4, 4), 'u2'), 'labels/cells/1': np.ones((4, 4), 'u2'), 'labels/cells/10': np.full(3, 7, 'u1'),
          'deep/er/and/deeper/w': np.arange(4.)}
KINDS = ['v2', 'v2-consolidated', 'v3', 'v3-consolidated', 'v2-deep', 'v3-deep', 'export-v2', 'export-v3']
pytestmark = pytest.mark.filterwarnings('ignore:Consolidated metadata is currently not part')


def write(path, kind):
    """Write a hierarchy; returns its arrays by path."""
    arrays = {p: a for p, a in ARRAYS.items() if not kind.endswith('deep') or p.startswith('deep')}
    if kind.startswith('export'):
        pytreefs.save(path.with_name('step'), nested(arrays))
        subprocess.run([os.environ['PYTREEFS'], 'export', '--format', 'zarr', '-o', f'zarr={kind[-1]}', path.with_name('step'), path],
                       check=True, timeout=60)
        return {f'default/{p}': a for p, a in arrays.items()}
    top = zarr.open_group(path, mode='w', zarr_format=int(kind[1]), attributes={'multiscales': [{'version': '0.4', 'axes': ['y', 'x']}]})
    for name, a in arrays.items():
        group, _, key = name.rpartition('/')
        (top.require_group(group) if group else top).create_array(key, data=a, chunks=tuple(-(-n // 2) for n in a.shape))
    top.create_group('nothing')
    if kind.endswith('consolidated'):
        zarr.consolidate_metadata(path)
    return arrays


def nested(arrays):
    tree = {}
    for path, a in arrays.items():
        at, keys = tree, path.split('/')
        for key in keys[:-1]:
            at = at.setdefault(key, {})
        at[keys[-1]] = a
    return tree


def flat(tree, above=''):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, f'{above}{key}/')
        else:
            yield above + key, value


@pytest.fixture(params=KINDS)
def hierarchy(request, tmp_path, program, monkeypatch):
    monkeypatch.setenv('PYTREEFS', str(program))
    return tmp_path / 'h', write(tmp_path / 'h', request.param)


def verify(run, path):
    r = run('verify', '--json', path, ok=False)
    return r.returncode, json.loads(r.stdout)


def test_every_array_of_a_hierarchy_is_a_leaf_in_directories_of_its_groups(hierarchy, run, mount, tmp_path):
    path, arrays = hierarchy
    want = sorted(f'{p}.npy' for p in arrays)
    code, doc = verify(run, path)
    assert (code, doc['findings'], doc['leaves']) == (0, [], len(arrays))
    stats = json.loads(run('stats', '--json', path).stdout)
    assert len(stats) == len(arrays)
    loaded = dict(flat(pytreefs.load(path)))
    assert sorted(loaded) == sorted(arrays)
    assert all(np.array_equal(loaded[p], a) and loaded[p].dtype == a.dtype for p, a in arrays.items())
    mnt = mount(path).path
    assert sorted(f.relative_to(mnt).as_posix() for f in mnt.rglob('*.npy')) == want
    assert all(np.array_equal(np.load(mnt / f'{p}.npy'), a) for p, a in arrays.items())
    run('convert', path, tmp_path / 'out')
    converted = dict(flat(pytreefs.load(tmp_path / 'out')))
    assert {p.removeprefix('default/') for p in converted} == {p.removeprefix('default/') for p in arrays}


@pytest.mark.parametrize('hierarchy', ['v2', 'v3-consolidated', 'export-v3'], indirect=True)
def test_every_file_of_a_hierarchy_that_is_lost_or_damaged_is_found(hierarchy, run):
    path, arrays = hierarchy
    unseen = []
    for file in sorted(p for p in path.rglob('*') if p.is_file()):
        name = file.relative_to(path).as_posix()
        whole, others = file.read_bytes(), len(list(file.parent.iterdir())) > 1
        file.write_bytes(b'{"zarr_fo')
        if verify(run, path)[0] != 1:
            unseen.append(f'damaged {name}')
        file.unlink()
        # A chunk that is not stored is the fill value, attributes are optional, and an array without a group is one, too.
        if file.name in ('.zarray', 'zarr.json') and file.parent.relative_to(path).as_posix() in arrays and others and verify(run, path)[0] != 1:
            unseen.append(f'lost {name}')
        file.write_bytes(whole)
    assert not unseen, unseen


@pytest.mark.parametrize('kind', ['v2-consolidated', 'v3-consolidated'])
@pytest.mark.parametrize('lost', ['a/b/w', 'a/b'])
def test_an_array_that_only_the_consolidated_metadata_name_is_lost(kind, lost, run, mount, tmp_path, program):
    """It is an error wherever it would be read, and its neighbours are read."""
    write(path := tmp_path / 'h', kind)
    shutil.rmtree(path / lost)
    said = "array 'a/b/w' is named, and is not there"
    assert zarr.open_group(path, mode='r')['a/b/w'].shape == (8,)
    code, doc = verify(run, path)
    assert code == 1 and f"leaf 'a/b/w': {said}" in [f['text'] for f in doc['findings'] if f['level'] == 1]
    for words in (['tree'], ['info'], ['stats'], ['diff', path], ['convert', tmp_path / 'out'], ['report', tmp_path / 'r.html']):
        r = run(words[0], path, *words[1:], ok=False)
        assert r.returncode and said in r.stdout + r.stderr, words
    with pytest.raises(pytreefs.Error, match=said):
        pytreefs.load(path)
    mnt = mount(path, allow_errors=True).path
    assert np.array_equal(np.load(mnt / 'x.npy'), ARRAYS['x']) and os.listdir(mnt / 'a/b') == ['w.npy']
    with pytest.raises(OSError):
        np.load(mnt / 'a/b/w.npy')


@pytest.mark.parametrize('kind', ['v2-consolidated', 'v3-consolidated'])
def test_consolidated_metadata_that_are_not_those_of_arrays_and_groups_are_found(kind, run, tmp_path, program):
    """Also in those of a group below the top, and zarr-python reads by them."""
    write(path := tmp_path / 'h', kind)
    zarr.consolidate_metadata(path, path='a')
    file = path / ('a/b/w/.zarray' if kind[1] == '2' else 'a/b/w/zarr.json')
    file.write_text(json.dumps(json.loads(file.read_text()) | {'shape': [6]}))
    shutil.rmtree(path / 'nothing')
    code, doc = verify(run, path)
    said = "'shape' of 'a/b/w' is [8] here, and [6] in its own metadata"
    assert code == 1 and sorted(f['text'] for f in doc['findings']) == [said, said, "group 'nothing' is named, and is not there"]
    assert list(pytreefs.load(path)['a']['b']['w']) == list(range(6)) and pytreefs.load(path)['nothing'] == {}


def test_a_damaged_copy_hides_no_array(run, tmp_path):
    write(path := tmp_path / 'h', 'v2-consolidated')
    zarr.consolidate_metadata(path, path='a')
    for group in ('.', 'a'):
        (path / group / '.zmetadata').write_bytes(b'{"zarr_fo')
        assert np.array_equal(pytreefs.load(path)['a']['b']['w'], ARRAYS['a/b/w'])
    assert "consolidated metadata of the group 'a': '.zmetadata'" in run('tree', path).stderr


def test_texts_none_and_lists_of_an_exported_step_are_shown(run, tmp_path, program, monkeypatch):
    tree = {'a': {'b.c': np.arange(4, dtype='f4'), 'text': 'blue', 'none': None, 'n': 3}, 'l': [np.ones(2), np.zeros(3, 'i4')],
            's/x': np.arange(3)}
    pytreefs.save(tmp_path / 'step', tree)
    for z in '23':
        run('export', '--format', 'zarr', '-o', f'zarr={z}', tmp_path / 'step/default', tmp_path / z)
        assert run('diff', tmp_path / z, tmp_path / 'step/default').returncode == 0
        got = pytreefs.load(tmp_path / z)
        assert got['a']['text'] == 'blue' and got['a']['none'] is None and got['a']['n'] == 3 and isinstance(got['l'], list)
        assert list(got['s/x']) == [0, 1, 2]


def test_an_item_of_a_step_may_be_a_hierarchy(run, tmp_path):
    step = tmp_path / 'step'
    pytreefs.save(step, {'n': 1})
    write(step / 'image', 'v3-deep')
    assert 'w.npy' in run('tree', step / 'image').stdout
    code, doc = verify(run, step)
    assert doc['items'] == 2 and not doc['errors'], doc['findings']


@pytest.mark.parametrize('name', ['.zgroup', 'zarr.json'])
def test_the_metadata_of_a_group_beside_items_and_steps_do_not_make_them_a_hierarchy(name, run, tmp_path):
    root, step = tmp_path / 'root', tmp_path / 'root/7'
    root.mkdir()
    pytreefs.save(step, {'n': 1})
    seen = {path: json.loads(run('info', '--json', path).stdout)['source_shape'] for path in (root, step)}
    for path in (step, root):
        (path / name).write_text('{"zarr_format": 2}' if name == '.zgroup' else '{"zarr_format": 3, "node_type": "group", "attributes": {}}')
        assert {p: json.loads(run('info', '--json', p).stdout)['source_shape'] for p in seen} == seen


def test_a_web_server_has_what_consolidated_metadata_name(hierarchy, run, request):
    """Nothing can be listed there: a hierarchy without them is refused in one sentence, and never shown as empty."""
    path, arrays = hierarchy
    with servers.faulty(path.parent) as server:
        url = f'{server}/{path.name}'
        if 'consolidated' not in request.node.callspec.id:
            for words in (['ls', url], ['tree', url], ['verify', url], ['info', url], ['export', url, path.with_name('out.npz')]):
                r = run(*words, ok=False)
                assert r.returncode and 'zarr group without consolidated metadata' in r.stderr + r.stdout, words
            with pytest.raises(OSError, match='zarr group without consolidated metadata'):
                pytreefs.load(url)
            return
        loaded = dict(flat(pytreefs.load(url)))
        assert all(np.array_equal(loaded[p], a) for p, a in arrays.items()) and loaded.keys() == arrays.keys()
        assert run('ls', url).stdout == run('ls', path).stdout
        code, doc = verify(run, url)
        assert (code, doc['findings'], doc['leaves']) == (0, [], len(arrays))
        assert run('cat', f'{url}/x.json').stdout == run('cat', path / 'x.json').stdout
        # A part of it is damaged: an array that is named and not there.
        next(p for p in ((path / 'a/b/w').glob('*.json'), (path / 'a/b/w').glob('.zarray')) for p in p).unlink()
        code, doc = verify(run, url)
        assert code and doc['errors']
        with pytest.raises(OSError, match='a/b/w'):
            pytreefs.load(url)


@pytest.mark.filterwarnings('ignore:.* its server cannot list')
def test_a_database_names_what_is_in_its_groups(run, tmp_path):
    """Of a database nothing has to be listed: its groups are read from a web server without consolidated metadata, too."""
    import tensorstore as ts
    database = {'driver': 'ocdbt', 'base': f'file://{tmp_path}/db/'}
    for path, a in ARRAYS.items():
        ts.open({'driver': 'zarr', 'kvstore': {**database, 'path': path + '/'}}, create=True, dtype=a.dtype, shape=a.shape).result().write(a).result()
    store = ts.KvStore.open(database).result()
    for group in {path.rpartition('/')[0] for path in ARRAYS}:
        store.write(f'{group}/.zgroup' if group else '.zgroup', '{"zarr_format": 2}').result()
    with servers.faulty(tmp_path) as server:
        for source in (tmp_path / 'db', f'{server}/db'):
            loaded = dict(flat(pytreefs.load(source)))
            assert loaded.keys() == ARRAYS.keys() and all(np.array_equal(loaded[p], a) for p, a in ARRAYS.items())
            assert run('ls', f'{source}/labels/cells').stdout.split() == ['0.npy', '1.npy', '10.npy']
