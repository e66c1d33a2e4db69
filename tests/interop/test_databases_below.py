# SPDX-License-Identifier: Apache-2.0
"""Items whose arrays are in several databases, each for the names below its directory: those of JAX's own array serialization,
and of Orbax 0.3.5 to 0.4.1 for names with slashes (tests/data/old). The judges are JAX, TensorStore, and what these releases
had been given."""

import json
import re
import shutil

import numpy as np
import orbax.checkpoint as ocp
import pytest
import safetensors.numpy
import tensorstore as ts
import zarr

from lib import array_serialization, compare, old, servers
from lib.case import Case

from lib import package

pytreefs = package.imported()

OLD = [('0.3.5', 'slashes'), ('0.4.0', 'slashes'), ('0.4.1', 'slashes'), ('0.4.1', 'standard')]
BELOW = 'params/manifest.ocdbt'
BUCKET = 'below'
IN_MEMORY = True  # both for the fixtures


@pytest.fixture(params=['zarr', 'zarr3'])
def jax_case(request, tmp_path):
    named = array_serialization.arrays()
    array_serialization.save(tmp_path / 'jax', named, request.param)
    got = array_serialization.load(tmp_path / 'jax', list(named), request.param)
    assert all(np.asarray(a).tobytes() == got[name].tobytes() for name, a in named.items())
    return Case(source='jax', directory=tmp_path, trees={'': array_serialization.tree_of(named)})


@pytest.fixture
def item(jax_case):
    return jax_case.path


def tensors(run, source, out):
    run('export', source, out)
    return safetensors.numpy.load_file(out) if out.is_file() else \
        {k: v for f in out.glob('*.safetensors') for k, v in safetensors.numpy.load_file(f).items()}


def commands_agree(run, mount, case, tmp_path):
    """Each command on one source: the same leaves with the same values."""
    verified = run('verify', case.path, ok=False).stdout
    assert '0 errors, ' in verified and f'{len(case.tree().leaves)} leaves' in verified, verified
    run('convert', case.path, tmp_path / 'copy')
    assert f'{len(case.tree().leaves)} the same, 0 differences' in run('diff', case.path, tmp_path / 'copy').stdout
    m = mount(case.path)
    assert not compare.compare_case(m.path, case)
    shown = {str(p.relative_to(m.path)) for p in m.path.rglob('*.npy') if '.pytreefs' not in p.parts}
    listed = re.findall(r'(\S+\.npy)  ', run('tree', case.path).stdout)
    assert sorted(listed) == sorted(p.rpartition('/')[2] for p in shown)
    assert json.loads(run('info', '--json', case.path).stdout)['leaves'] == len(case.tree().leaves)
    for name in shown:
        assert run('cat', case.path / name, text=False).stdout == (m.path / name).read_bytes(), name
    return m


def test_jax(run, mount, jax_case, tmp_path):
    m = commands_agree(run, mount, jax_case, tmp_path)
    shutil.copytree(m.path / 'opt', tmp_path / 'opt')
    want = {k.replace('/', '.'): np.asarray(v) for k, v in array_serialization.arrays().items()}
    got = tensors(run, jax_case.path, tmp_path / 'out.safetensors')
    assert {k: v.tobytes() for k, v in got.items()} == {k: v.tobytes() for k, v in want.items()}
    restored = ocp.PyTreeCheckpointer().restore(tmp_path / 'copy')
    assert np.array_equal(restored['opt']['mu']['dense']['kernel'], want['opt.mu.dense.kernel'])


# Keys that other programs join with slashes, which are directories whatever else is in a key. What is below an array is one key.
KEYS = {('top',): np.arange(2.), ('a', 'b', 'w'): np.arange(6, dtype='f4').reshape(2, 3), ('a', 'b.c', 'w'): np.arange(3),
        ('a', 'b.c', 'v.0'): np.arange(4), ('d', 'v.1'): np.arange(5),
        ('a', 'x%2Fy.z', 'v'): np.ones(2)}
ODD = {('both',): np.arange(4), ('both/a', 'below'): np.full(3, 7, 'u1')}
NO_FILES = {('a', '..', '', 'v.0'): np.full(5, 2, 'i2')}


@pytest.mark.parametrize('driver', ['zarr', 'zarr3'])
@pytest.mark.parametrize('store', ['ocdbt', 'file'])
def test_paths_that_tensorstore_wrote(run, mount, tmp_path, driver, store):
    keys = KEYS | ODD | (NO_FILES if store == 'ocdbt' else {})
    for key, value in keys.items():
        kv = {'driver': 'file', 'path': f'{tmp_path}/s/'}
        kv = {'driver': 'ocdbt', 'base': kv} if store == 'ocdbt' else kv
        array = ts.open({'driver': driver, 'kvstore': kv, 'path': '/'.join(key)}, create=True, dtype=value.dtype, shape=value.shape).result()
        array.write(value).result()
    case = Case(source='s', directory=tmp_path, trees={'': array_serialization.tree_of(keys)})
    m = commands_agree(run, mount, case, tmp_path)
    spec = json.loads(run('explain', '--spec', m.path / 'a/b.c/w.npy').stdout)
    assert np.array_equal(ts.open(spec).result().read().result(), KEYS['a', 'b.c', 'w'])
    loaded = pytreefs.load(tmp_path / 's')
    assert np.array_equal(loaded['both/a']['below'], ODD['both/a', 'below']) and np.array_equal(loaded['both'], ODD['both',])


@pytest.mark.parametrize('version', [2, 3])
def test_groups_in_a_database(run, mount, tmp_path, version):
    """No document of a group is a leaf."""
    top = zarr.open_group(tmp_path / 'zarr', mode='w', zarr_format=version, attributes={'x': 1})
    for (*groups, key), value in KEYS.items():
        (top.require_group('/'.join(groups)) if groups else top).create_array(key, data=value)
    kv = ts.KvStore.open({'driver': 'ocdbt', 'base': f'file://{tmp_path}/s/'}).result()
    for f in (tmp_path / 'zarr').rglob('*'):
        if f.is_file():
            kv.write(f.relative_to(tmp_path / 'zarr').as_posix(), f.read_bytes()).result()
    case = Case(source='s', directory=tmp_path, trees={'': array_serialization.tree_of(KEYS)})
    commands_agree(run, mount, case, tmp_path)
    assert f'{len(KEYS)} the same, 0 differences' in run('diff', tmp_path / 's', tmp_path / 'zarr').stdout


@pytest.mark.filterwarnings('ignore:.*has lost its _METADATA')
@pytest.mark.parametrize('use_ocdbt', [True, False])
def test_names_of_orbax_keep_their_slashes(tmp_path, use_ocdbt):
    """A directory of its processes says so, or a dot after the last slash."""
    tree = {'mlp/~/linear': {'w': np.ones(2)}} | ({'a/b': np.ones(3)} if use_ocdbt else {})
    ocp.PyTreeCheckpointer(use_ocdbt=use_ocdbt).save(tmp_path / 'x', tree)
    for name in ['_METADATA', '_CHECKPOINT_METADATA', 'commit_success.txt']:
        (tmp_path / 'x' / name).unlink(missing_ok=True)
    assert sorted(pytreefs.load(tmp_path / 'x')) == sorted(tree)


@pytest.mark.parametrize('release,name', OLD)
def test_old_releases(run, mount, tmp_path, release, name):
    commands_agree(run, mount, old.get(release, name), tmp_path)


def test_the_spec_names_the_database(run, item, tmp_path):
    (tmp_path / 'root').mkdir()
    item.rename(tmp_path / 'root/5')
    spec = json.loads(run('explain', '--spec', tmp_path / 'root/5/opt/mu/dense/kernel.npy').stdout)
    spec2 = json.loads(run('explain', '--spec', tmp_path / 'root/5/step.npy').stdout)
    assert spec['kvstore']['base']['path'].rstrip('/').endswith('root/5/opt/mu/dense')
    want = array_serialization.arrays()
    assert np.array_equal(ts.open(spec).result().read().result(), want['opt/mu/dense/kernel'])
    assert ts.open(spec2).result().read().result() == want['step']


@pytest.mark.parametrize('release,name', OLD)
def test_a_server_that_cannot_list(mount, run, tmp_path, release, name):
    """The tree of an Orbax item says where the databases are."""
    case = old.get(release, name)
    with servers.nginx(tmp_path / 'server', case.path) as url:
        assert not compare.compare_case(mount(url).path, case)
        assert '0 errors, ' in run('verify', url, ok=False).stdout


def test_a_server_that_cannot_list_says_what_is_not_shown(run, item, tmp_path):
    with servers.nginx(tmp_path / 'server', item) as url:
        listed = run('ls', url)
        assert listed.stdout.split() == ['step.npy'] and 'cannot list' in listed.stderr
        verified = run('verify', url, ok=False)
        assert verified.returncode == 2 and 'cannot list what is below' in verified.stdout


def test_a_bucket(mount, run, item, jax_case, s3, s3_bucket):
    s3_bucket.upload(item, item.parent.name)
    url = f's3://{BUCKET}/{item.parent.name}'
    assert not compare.compare_case(mount(url).path, jax_case)
    assert '0 errors, 0 warnings' in run('verify', url).stdout


def test_damage_is_found_where_it_is(run, item):
    data = max((item / 'params/d').iterdir(), key=lambda p: p.stat().st_size)
    text = bytearray(data.read_bytes())
    text[-4:] = b'\x55' * 4
    data.write_bytes(text)
    r = run('verify', item, ok=False)
    assert r.returncode == 1 and re.search("params['/]", r.stdout), r.stdout
    (item / BELOW).write_bytes((item / BELOW).read_bytes()[:-1])
    r = run('ls', item, ok=False)
    assert r.returncode == 1 and BELOW in r.stderr, r.stderr


def test_damage_of_one_database_leaves_the_others(run, copy):
    item = copy(old.get('0.4.1', 'slashes'))
    (item / 'enc/~/manifest.ocdbt').write_bytes(b'x')
    r = run('verify', item, ok=False)
    assert r.returncode == 1 and ': 1 error,' in r.stdout and "'enc/~'" in r.stdout, r.stdout
    assert run('cat', item / 'transformer%2Flayer_0/w.npy', text=False).stdout


def test_a_name_that_two_databases_have(run, item):
    """Either could be meant."""
    assert run('tree', item).stdout.count('.npy') == 5
    kv = ts.KvStore.open({'driver': 'ocdbt', 'base': f'file://{item}/opt/'}).result()
    kv.write('mu/dense/kernel/zarr.json', b'{}').result()
    r = run('ls', item, ok=False)
    assert r.returncode == 1 and "'opt/mu/dense/kernel' is in 'opt" in r.stderr, r.stderr


def test_databases_of_processes(run, item, tmp_path):
    """JAX leaves those of its processes beside the merged one; one that was never merged is the union of its parts."""
    shutil.copytree(item / 'params', item / 'process_0')
    (item / 'manifest.ocdbt').unlink()
    shutil.rmtree(item / 'd')
    shutil.copytree(item / 'process_0', tmp_path / 'x')
    for name in ('manifest.ocdbt', 'd'):
        (tmp_path / 'x' / name).rename(item / name)
    assert run('ls', item).stdout.split() == ['bias.npy', 'kernel.npy', 'opt/', 'params/']
    (item / 'params/ocdbt.process_0').mkdir()
    for name in ('manifest.ocdbt', 'd'):
        (item / 'params' / name).rename(item / 'params/ocdbt.process_0' / name)
    assert run('ls', item / 'params').stdout.split() == ['bias.npy', 'kernel.npy']
    assert run('tree', item).stdout.count('.npy') == 6
    r = run('verify', item, ok=False)
    assert '0 errors, 1 warning' in r.stdout and 'params/manifest.ocdbt: its parts were never merged' in r.stdout, r.stdout


def test_a_key_of_something_else_is_left_out_of_an_export(run, tmp_path):
    """Arrays whose names end in a slash are arrays, though. The others are written, and the status is 1."""
    base = {'driver': 'ocdbt', 'base': f'file://{tmp_path}/db/'}
    values = {name: np.arange(i + 2, dtype='<f4') for i, name in enumerate(['a', 'a/', 'b/c', 'd//'])}
    for name, value in values.items():
        spec = {'driver': 'zarr', 'kvstore': base | {'path': name + '/'}, 'metadata': {'shape': list(value.shape), 'chunks': [2], 'dtype': '<f4'}}
        ts.open(spec, create=True).result().write(value).result()
    want = sorted(value.tolist() for value in values.values())
    assert sorted(a.tolist() for a in pytreefs.load_flat(tmp_path / 'db', separator='|').values()) == want
    run('export', tmp_path / 'db', tmp_path / 'whole.safetensors')
    assert ' 4 the same, 0 differences' in run('diff', tmp_path / 'db', tmp_path / 'whole.safetensors').stdout
    ts.KvStore.open(base).result().write('d/.zarray', b'{"x": 1}').result()
    for out in ('part.npz', 'part.safetensors', 'part.zarr', 'part'):
        r = run('export', tmp_path / 'db', tmp_path / out, ok=False)
        assert r.returncode == 1 and re.search(r"'d.npy' is left out: .*'zarr_format' is missing", r.stderr), r.stderr
    with np.load(tmp_path / 'part.npz') as z:
        assert sorted(a.tolist() for a in z.values() if a.dtype == '<f4') == want
    assert sorted(a.tolist() for a in safetensors.numpy.load_file(tmp_path / 'part.safetensors').values()) == want
    assert sorted(np.load(path).tolist() for path in (tmp_path / 'part').rglob('*.npy')) == want
    assert sorted(a.tolist() for _, a in ((name, a[...]) for name, a in zarr.open_group(tmp_path / 'part.zarr', mode='r').members(max_depth=None) if isinstance(a, zarr.Array))) == want


def test_a_key_that_is_left_out_changes_no_other_item(run, tmp_path):
    """Empty containers of another item are exported as they are, and a list with an empty member stays a list."""
    pytreefs.save(tmp_path / 's/1', {'l': [np.arange(3.), []], 'e': {}}, item='a')
    base = {'driver': 'ocdbt', 'base': f'file://{tmp_path}/s/1/b/'}
    spec = {'driver': 'zarr', 'kvstore': base | {'path': 'x/'}, 'metadata': {'shape': [3], 'chunks': [3], 'dtype': '<f4'}}
    ts.open(spec, create=True).result().write(np.ones(3, '<f4')).result()
    ts.KvStore.open(base).result().write('d/.zarray', b'{"x": 1}').result()
    for out in ('part.npz', 'part.safetensors', 'part'):
        assert "'b/d.npy' is left out" in run('export', tmp_path / 's/1', tmp_path / out, ok=False).stderr
        run('save', tmp_path / out, tmp_path / f'from-{out}/1')
        got = pytreefs.load(tmp_path / f'from-{out}/1')
        assert got['a']['e'] == {} and got['a']['l'][0].tolist() == [0, 1, 2] and got['a']['l'][1:] == [[]] and list(got['b']) == ['x'], out
