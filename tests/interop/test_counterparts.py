# SPDX-License-Identifier: Apache-2.0
"""TensorStore's command line, Orbax's functions and the tools of this project agree about a checkpoint."""

import io
import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorstore as ts

from lib import checkpoints, mutate

SAMPLE = pathlib.Path(__file__).resolve().parents[1] / 'data' / 'sample'
STATE = SAMPLE / '1500' / 'state'


def database(path):
    return ts.KvStore.open({'driver': 'ocdbt', 'base': f'file://{path}/'}).result()


def files(entries, at=''):
    for e in entries:
        if e['type'] == 'directory':
            yield from files(e['entries'], f'{at}{e["name"]}/')
        else:
            yield at + e['name'], e


@pytest.fixture(scope='module')
def arrays():
    """{name of the array in the database: bytes of its chunks}, as TensorStore lists them."""
    kv, out = database(STATE), {}
    keys = kv.list().result()
    for key in keys:
        name, _, chunk = key.decode().rpartition('/')
        out.setdefault(name, 0)
        if chunk != '.zarray':
            out[name] += len(kv.read(key).result().value)
    return out


@pytest.mark.feature('F6')
def test_list_and_search(run, arrays):
    """`tscli list` and `search`: every array, by its name."""
    tree = json.loads(run('tree', '--json', STATE).stdout)
    ours = {path.rpartition('.')[0].replace('/', '.') for path, e in files(tree) if 'dtype' in e}
    assert ours == set(arrays)


@pytest.mark.feature('F6')
def test_print_stats(run, arrays):
    """`tscli print_stats`: what is stored of an array."""
    tree = json.loads(run('tree', '--json', STATE).stdout)
    for path, e in files(tree):
        if 'dtype' in e:
            info = json.loads(run('info', '--json', STATE / path).stdout)
            assert info['stored_bytes'] == arrays[path.rpartition('.')[0].replace('/', '.')], path
            if len(e['shape']) == 2 and 'embed' in path:
                break
    else:
        pytest.fail('no array was looked at')


@pytest.mark.feature('F6', 'A17')
def test_print_spec_and_copy(run):
    """`tscli print_spec` and `copy`: the spec opens the same array, and its bytes come out."""
    for path in ('params/embed/table.npy', 'opt_state/0/mu/embed/table.npy', 'rng.npy'):
        spec = json.loads(run('explain', '--spec', STATE / path).stdout)
        want = ts.open(spec).result()
        got = np.load(io.BytesIO(run('cat', STATE / path, text=False).stdout))
        value = want.read().result()
        assert got.shape == want.shape and got.tobytes() == np.ascontiguousarray(value).tobytes(), path


@pytest.mark.feature('F6')
def test_ocdbt_dump(run):
    """`tscli ocdbt_dump`: the same records, field by field."""
    theirs = ts.ocdbt.dump(ts.KvStore.open(f'file://{STATE}/').result()).result()
    lines = run('dump', 'manifest', STATE).stdout.splitlines()
    ours = dict(line.split(' ', 1) for line in lines if ' ' in line)
    config = theirs['config']
    assert ours['uuid'] == config['uuid']
    for name in ('max_inline_value_bytes', 'max_decoded_node_bytes', 'version_tree_arity_log2'):
        assert int(ours[name]) == config[name]
    (version,) = theirs['versions']
    words = ours['version'].split()
    statistics = version['root']['statistics']
    assert int(words[0]) == version['generation_number'] and int(words[words.index('time') + 1]) == version['commit_time']
    assert int(words[words.index('keys') + 1]) == statistics['num_keys']
    assert int(words[words.index('value_bytes') + 1]) == statistics['num_indirect_value_bytes']


@pytest.mark.feature('F6')
def test_ocdbt_check(run, tmp_path):
    """`tscli ocdbt_check`: nothing on what is sound, a finding on what TensorStore cannot read."""
    assert run('verify', STATE).returncode == 0
    copy = tmp_path / 'state'
    shutil.copytree(STATE, copy)
    kv = database(copy)
    del kv
    manifest = copy / 'manifest.ocdbt'
    data = bytearray(manifest.read_bytes())
    (at, n), = mutate.records(bytes(data))
    data[at + n // 2] ^= 1
    manifest.write_bytes(data)
    with pytest.raises(ValueError):
        database(copy).list().result()
    r = run('verify', copy, ok=False)
    assert r.returncode == 1 and 'manifest.ocdbt' in r.stdout


@pytest.mark.feature('A15')
def test_a_database_is_distinguished_from_directories(run):
    """`info` says what Orbax's is_ocdbt_checkpoint says, for everything that is one item."""
    from etils import epath
    from orbax.checkpoint import type_handlers

    seen = set()
    for name in checkpoints.names():
        if not name.startswith(('matrix', 'chunked', 'mesh', 'zarr2', 'zarr3', 'merged')):
            continue
        case = checkpoints.get(name)
        path = case.path / 'state' if (case.path / 'state').is_dir() else case.path
        store = json.loads(run('info', '--json', path).stdout)['store']
        seen.add(store)
        assert (store == 'ocdbt') == type_handlers.is_ocdbt_checkpoint(epath.Path(path)), name
    assert {'ocdbt', 'directories'} <= seen


@pytest.mark.feature('B6')
def test_array_metadata_is_compared_with_the_arrays(run, tmp_path, cases):
    copy = tmp_path / 'copy'
    shutil.copytree(cases('matrix-ocdbt-zarr2-zstd-v0').path, copy)
    file = copy / 'array_metadatas' / 'process_0'
    doc = json.loads(file.read_text())
    entry = next(e['array_metadata'] for e in doc['array_metadatas'] if e['array_metadata']['chunk_shape'])
    entry['chunk_shape'][0] += 1
    file.write_text(json.dumps(doc))
    r = run('verify', copy, ok=False)
    assert r.returncode == 1 and 'other chunks than its array has' in r.stdout
    assert entry['param_name'].replace('.', '/') in r.stdout
