"""Each of tscli's commands has one of ours that says the same of the same checkpoint."""

import json

import numpy as np
import pytest
import tensorstore as ts

pytestmark = pytest.mark.feature('F6')


@pytest.fixture
def item(cases):
    case = cases('matrix-ocdbt-zarr2-zstd-v0')
    (where, tree), = case.trees.items()
    arrays = {'.'.join(k): v for k, v in tree.leaves.items() if isinstance(v, np.ndarray)}
    return case.path / where, arrays


def keys(path):
    store = ts.KvStore.open({'driver': 'ocdbt', 'base': f'file://{path}/'}).result()
    return [k.decode() for k in store.list().result()]


def leaves(run, path):
    out = []

    def walk(node):
        for child in node.get('children', []):
            walk(child)
        if 'children' not in node:
            out.append(node)
    walk(json.loads(run('tree', '--json', path).stdout))
    return out


def test_list_and_search(run, item):
    """tscli list shows keys, search the arrays below a place: ls and tree show leaves."""
    path, arrays = item
    stored = {k.rpartition('/')[0] for k in keys(path) if k.endswith('/.zarray')}
    text = run('tree', path).stdout
    assert set(arrays) <= stored
    for name in arrays:
        assert f"{name.split('.')[-1]}." in text
    top = run('ls', path).stdout.split()
    assert {name.split('.')[0] for name in arrays} <= {t.rstrip('/').split('.')[0] for t in top}


def test_print_spec(run, item):
    path, arrays = item
    name, value = next((k, v) for k, v in arrays.items() if v.dtype == np.float32 and v.size)
    spec = json.loads(run('explain', '--spec', path / f"{name.replace('.', '/')}.npy").stdout)
    assert np.array_equal(ts.open(spec).result().read().result(), value)


def test_print_stats(run, item):
    """Bytes of the chunks that are stored."""
    path, arrays = item
    store = ts.KvStore.open({'driver': 'ocdbt', 'base': f'file://{path}/'}).result()
    name = next(k for k, v in arrays.items() if v.size > 10)
    stored = sum(len(store.read(k).result().value) for k in keys(path)
                 if k.startswith(f'{name}/') and not k.endswith('.zarray'))
    told = json.loads(run('info', '--json', path / f"{name.replace('.', '/')}.npy").stdout)
    assert told['stored_bytes'] == stored


def test_copy(run, item, tmp_path):
    path, arrays = item
    run('export', '--format', 'npy', path, tmp_path / 'out')
    name, value = next((k, v) for k, v in arrays.items() if v.dtype == np.float32 and v.size)
    assert np.array_equal(np.load(tmp_path / 'out' / f"{name.replace('.', '/')}.npy"), value)


def test_ocdbt_dump(run, item):
    path, _ = item
    ours = run('dump', 'manifest', path / 'manifest.ocdbt').stdout
    theirs = ts.ocdbt.dump(ts.KvStore.open(f'file://{path}/').result()).result()
    uuid = theirs['config']['uuid']
    assert (uuid if isinstance(uuid, str) else uuid.hex()) in ours.replace('-', '')


def test_ocdbt_check(run, item, tmp_path):
    import shutil
    path, _ = item
    run('verify', path)
    shutil.copytree(path, tmp_path / 'copy')
    data = max((p for p in (tmp_path / 'copy').rglob('d/*') if p.is_file()), key=lambda p: p.stat().st_size)
    data.write_bytes(data.read_bytes()[:-20])
    assert run('verify', tmp_path / 'copy', ok=False).returncode == 1
