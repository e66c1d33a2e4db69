# SPDX-License-Identifier: Apache-2.0
"""Data of random keys are bits: no option casts them, a rule that would is refused, and Orbax restores the keys from every copy."""

from lib import jaxenv  # noqa: F401  before jax

import json
import shutil

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

import pytreefs

KEYS = {'key': jax.random.key(3), 'keys': jax.random.split(jax.random.key(5), 4), 'rbg': jax.random.key(7, impl='rbg')}
pytestmark = pytest.mark.filterwarnings('ignore')


@pytest.fixture(scope='module', params=[True, False], ids=['ocdbt', 'directories'])
def step(request, tmp_path_factory):
    path = tmp_path_factory.mktemp('keys') / '1'
    tree = {**KEYS, 'w': jax.numpy.arange(3, dtype='float32') + 70001, 'n': jax.numpy.arange(3) + 300}
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=request.param)).save(path, args=ocp.args.PyTreeSave(tree))
    return path


def restored(path):
    tree = ocp.PyTreeCheckpointer().restore(path)
    for name, key in KEYS.items():
        assert jax.random.key_impl(tree[name]) == jax.random.key_impl(key)
        assert np.array_equal(jax.random.key_data(tree[name]), jax.random.key_data(key)), name
    return tree


def is_data(got):
    return all(got[name].dtype == 'uint32' and np.array_equal(got[name], jax.random.key_data(key)) for name, key in KEYS.items())


def test_restore_dtype_shows_keys_as_they_are(step, run, mount, tmp_path):
    with pytreefs.open(step, restore_dtype='float32') as ck:
        assert is_data({name: np.asarray(ck[name]) for name in KEYS}) and np.asarray(ck['n']).dtype == 'float32'
    m = mount(step, 'restore_dtype=float32')
    assert is_data({name: np.load(m / f'{name}.npy') for name in KEYS}) and np.load(m / 'n.npy').dtype == 'float32'
    file = (m / '.safetensors').read_bytes()
    assert json.loads(file[8:8 + int.from_bytes(file[:8], 'little')])['keys']['dtype'] == 'U32'
    for kind in ('npz', 'zarr', 'npy', 'safetensors'):
        out = tmp_path / ('leaves' if kind == 'npy' else f'out.{kind}')
        run('export', '-o', 'restore_dtype=float32', '--format', kind, step, out)
        run('convert', out, tmp_path / f'{kind}-back')
        assert is_data({name: np.asarray(pytreefs.load(tmp_path / f'{kind}-back')[name]) for name in KEYS}), kind
        restored(tmp_path / f'{kind}-back')
    with np.load(tmp_path / 'out.npz') as z:
        assert z['n'].dtype == 'float32' and z['keys'].dtype == 'uint32'


@pytest.mark.parametrize('option', ['restore_dtype=bfloat16', 'dtype=bfloat16', 'dtype=int8', 'rule=w:dtype=float16'])
def test_a_converted_step_has_the_keys(option, step, run, tmp_path):
    run('convert', '-o', option, step, tmp_path / 'out')
    assert restored(tmp_path / 'out')['w'].dtype != 'float32'
    assert json.loads(run('verify', '--json', tmp_path / 'out').stdout)['findings'] == []


def test_a_copy_of_the_view_in_a_draft_has_the_keys(step, run, mount, tmp_path):
    """Its manifest says which tensors they are, and which arrays are JAX's."""
    (tmp_path / 'root').mkdir()
    m = mount(tmp_path / 'root', 'shape=root')
    (m / '2.tmp').mkdir()
    shutil.copyfile(mount(step) / '.safetensors', m / '2.tmp/default.safetensors')
    (m / '2.tmp').rename(m / '2')
    assert isinstance(restored(tmp_path / 'root/2/default')['n'], jax.Array)
    assert run('diff', step, tmp_path / 'root/2/default').stdout.endswith(' 0 differences\n')


@pytest.mark.parametrize('rule', ['rule=key:dtype=float16', 'rule=**:dtype=float16', 'rule=rbg:dtype=uint8', 'rule=keys:dtype=int64'])
def test_a_rule_that_casts_a_key_is_refused(rule, step, run, tmp_path):
    r = run('convert', '-o', rule, step, tmp_path / 'out', ok=False)
    assert r.returncode == 1 and 'holds random keys' in r.stderr and not (tmp_path / 'out').exists()


@pytest.mark.parametrize('functions', ['scale(2)', 'cast(float32)', ['transpose(1,0)', 'add(1)']], ids=str)
def test_a_function_of_the_numbers_of_a_key_is_refused(functions, step, run, tmp_path):
    rules = {'default_to_original': True, 'rules': [{'key': 'keys', 'original_key': 'keys', 'value_fn': functions}]}
    (tmp_path / 'rules.json').write_text(json.dumps(rules))
    for words in (['convert', step, tmp_path / 'out'], ['export', step, tmp_path / 'out.npz'], ['cat', step / 'keys.npy']):
        r = run(words[0], '-o', f'transforms={tmp_path}/rules.json', *words[1:], ok=False)
        assert r.returncode == 1 and "of 'keys', which holds random keys (prng_impl 'threefry2x32')" in r.stderr


def test_keys_of_another_type_are_damage(step, run, tmp_path):
    """As pytreefs wrote them before."""
    # Only there is the metadata of an array a file.
    if (step / 'manifest.ocdbt').exists():
        return
    shutil.copytree(step, tmp_path / 'bad')
    doc = json.loads((tmp_path / 'bad/key/.zarray').read_text())
    (tmp_path / 'bad/key/.zarray').write_text(json.dumps({**doc, 'dtype': '<f4'}))
    with pytest.raises(Exception):
        restored(tmp_path / 'bad')
    doc = json.loads(run('verify', '--json', tmp_path / 'bad', ok=False).stdout)
    assert 'it holds random keys' in doc['findings'][0]['text'] and doc['errors'] == 1


def test_diff_tells_keys_from_their_integers_and_of_each_other(run, tmp_path):
    """Orbax restores the one or the other: equal integers are not the same. Files that do not record it are compared by values."""
    data = np.asarray(jax.random.key_data(KEYS['rbg']))
    trees = [jax.random.wrap_key_data(data, impl='rbg'), jax.random.wrap_key_data(data, impl='unsafe_rbg'), data]
    for step, x in enumerate(trees):
        pytreefs.save(tmp_path / f'{step}', {'k': x})
    names = ['key<rbg>', 'key<unsafe_rbg>', 'uint32']
    for a in range(3):
        for b in range(3):
            want = [{'path': 'default/k.npy', 'what': 'dtype', 'a': names[a], 'b': names[b]}] if a != b else []
            r = run('diff', '--json', tmp_path / f'{a}', tmp_path / f'{b}', ok=False)
            found = json.loads(r.stdout)['differences']
            assert found == want and r.returncode == bool(want), r.stdout
    assert 'k.npy: dtype: key<rbg>, and uint32' in run('diff', tmp_path / '0', tmp_path / '2', ok=False).stdout
    run('export', tmp_path / '0/default', tmp_path / 'k.safetensors')
    run('diff', tmp_path / '0/default', tmp_path / 'k.safetensors')


@pytest.fixture(scope='module')
def of_handlers(tmp_path_factory):
    """A step with random keys as items of their own, and what Orbax restores of each."""
    root, save = tmp_path_factory.mktemp('items') / 'root', ocp.args
    with ocp.CheckpointManager(root) as manager:
        manager.save(1, args=save.Composite(
            state=save.StandardSave({'w': np.arange(3.)}), typed=save.JaxRandomKeySave(jax.random.split(jax.random.key(7), 3)),
            raw=save.JaxRandomKeySave(jax.random.PRNGKey(8)), legacy=save.NumpyRandomKeySave(np.random.RandomState(3).get_state()),
            state_dict=save.NumpyRandomKeySave(np.random.RandomState(4).get_state(legacy=False))))
        manager.wait_until_finished()
        return root / '1', manager.restore(1)


def test_an_item_of_a_random_key_is_the_key(of_handlers):
    """Not the two items that Orbax makes of it."""
    step, want = of_handlers
    got = pytreefs.load(step)
    assert got.keys() == set(want.keys())
    assert np.array_equal(got['typed'], jax.random.key_data(want['typed'])) and np.array_equal(got['raw'], want['raw'])
    for name in ('legacy', 'state_dict'):
        assert type(got[name]) is type(want[name])
        np.random.RandomState().set_state(got[name])
        assert all(map(np.array_equal, *([jax.tree.leaves(x[name]) for x in (got, want)])))
    assert np.array_equal(pytreefs.load(step / 'raw'), want['raw'])
    for only in ('raw', 'raw/', lambda name: name == 'raw'):
        assert np.array_equal(pytreefs.load(step, only=only)['raw'], want['raw'])
        assert list(pytreefs.load_flat(step, only=only)) == ['raw']


def test_an_item_of_a_typed_key_comes_as_one(of_handlers):
    step, want = of_handlers
    like = {name: ... for name in want.keys()} | {'typed': jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 3)), 'raw': jax.random.PRNGKey(0)}
    got = pytreefs.load(step, like=like)
    assert got['typed'].dtype == want['typed'].dtype and np.array_equal(jax.random.key_data(got['typed']), jax.random.key_data(want['typed']))
    assert np.array_equal(got['raw'], want['raw'])
    assert pytreefs.load(step / 'typed', like=like['typed']).dtype == want['typed'].dtype
    got = pytreefs.load(step, framework='jax', only=['typed', 'raw'])
    assert got['typed'].dtype == want['typed'].dtype and np.array_equal(jax.random.key_data(got['typed']), jax.random.key_data(want['typed']))
    assert isinstance(got['raw'], jax.Array) and np.array_equal(got['raw'], want['raw'])
    with pytest.raises(pytreefs.Error, match='raw: a PRNG key here'):
        pytreefs.load(step, like=like | {'raw': jax.random.key(0)})
    with pytreefs.open(step) as ck:
        assert ck['typed/jax_random_key/checkpoint'].prng_impl == str(jax.random.key_impl(want['typed']))
