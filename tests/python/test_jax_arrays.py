# SPDX-License-Identifier: Apache-2.0
"""Arrays of jax: trees of optax, typed PRNG keys and shardings, there and back, and as Orbax restores them."""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import pytreefs
from lib import forks, jaxenv, tour  # noqa: F401: before jax

import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

@pytest.mark.parametrize('by', ['pytreefs', 'orbax'])
def test_a_namedtuple_without_fields_matches(tmp_path, by):
    """It is stored as None."""
    params = {'w': jnp.arange(4.0), 'b': jnp.ones(2, jnp.bfloat16)}
    tree = {'opt': optax.chain(optax.clip(1.0), optax.adamw(1e-3)).init(params), 'params': params}
    assert any(not x and isinstance(x, tuple) for x in tree['opt'])
    if by == 'pytreefs':
        pytreefs.save(tmp_path / '1', tree)
    else:
        with ocp.CheckpointManager(tmp_path) as m:
            m.save(1, args=ocp.args.StandardSave(tree))
    got = pytreefs.load(tmp_path / '1', like=tree)
    assert jax.tree.structure(got) == jax.tree.structure(tree)
    assert all(map(np.array_equal, jax.tree.leaves(got), jax.tree.leaves(tree)))
    with pytest.raises(pytreefs.Error, match='params: a None here, a container in the checkpoint'):
        pytreefs.load(tmp_path / '1', like={**tree, 'params': None})


@pytest.mark.parametrize('impl', ['threefry2x32', 'rbg'])
@pytest.mark.parametrize('spec', [False, True], ids=['keys', 'ShapeDtypeStruct'])
def test_typed_keys_match(tmp_path, impl, spec):
    keys = {'one': jax.random.key(3, impl=impl), 'many': jax.random.split(jax.random.key(4, impl=impl), 5)}
    pytreefs.save(tmp_path / '1', keys)
    like = jax.tree.map(lambda k: jax.ShapeDtypeStruct(k.shape, k.dtype), keys) if spec else keys
    got = pytreefs.load(tmp_path / '1', like=like)
    for name, key in keys.items():
        assert got[name].dtype == key.dtype and np.array_equal(jax.random.key_data(got[name]), jax.random.key_data(key))
    leaf = pytreefs.open(tmp_path / '1')['default/one']
    assert leaf.prng_impl == impl and leaf.shape == jax.random.key_data(keys['one']).shape
    for wrong, why in ((jax.random.split(keys['one']), 'one: keys of .* integers here, .* in the checkpoint'),
                       (np.zeros(leaf.shape, np.uint16), None)):
        if why is None:
            assert pytreefs.load(tmp_path / '1', like={**keys, 'one': wrong})['one'].dtype == np.uint16
            continue
        with pytest.raises(pytreefs.Error, match=why):
            pytreefs.load(tmp_path / '1', like={**keys, 'one': wrong})
    pytreefs.save(tmp_path / '2', {'one': np.zeros(2, np.uint32)})
    with pytest.raises(pytreefs.Error, match='one: a PRNG key here'):
        pytreefs.load(tmp_path / '2', like={'one': keys['one']})
    with pytest.raises(pytreefs.Error, match='a PRNG key is not filled in place'):
        pytreefs.load(tmp_path / '1', out=keys)


SHARDED = '''
import os, sys
os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=8'
import jax, jax.numpy as jnp, numpy as np, orbax.checkpoint as ocp, pytreefs
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
root = sys.argv[1]
mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ('data', 'model'))
def put(a, *spec):
    return jax.device_put(a, NamedSharding(mesh, P(*spec)))
tree = {'w': put(jnp.arange(64.0).reshape(8, 8), 'data', 'model'), 'b': put(jnp.arange(8.0), ('data', 'model')), 'r': put(jnp.ones(3)),
        'one': jax.device_put(jnp.ones(2), jax.devices()[5]), 'keys': put(jax.random.split(jax.random.key(1), 8), 'data')}
pytreefs.save(root + '/1', tree)
with ocp.CheckpointManager(root) as m:
    got = m.restore(1)
for name, a in tree.items():
    assert got[name].sharding == a.sharding, (name, got[name].sharding)
    raw = jax.random.key_data if name == 'keys' else (lambda x: x)
    assert np.array_equal(raw(got[name]), raw(a)), name
with pytreefs.mount(root) as where:
    import subprocess, numpy as np
    subprocess.run(f'mkdir {where}/2.tmp && cp -r {where}/1/. {where}/2.tmp/', shell=True, check=True)
    np.save(f'{where}/2.tmp/default/w.npy', np.zeros((8, 8), np.float32))       # of the same shape
    np.save(f'{where}/2.tmp/default/b.npy', np.zeros(5, np.float32))            # of another, which 8 devices cannot share
    os.rename(f'{where}/2.tmp', f'{where}/2')
with ocp.CheckpointManager(root) as m:
    got = m.restore(2, args=ocp.args.StandardRestore(fallback_sharding=jax.sharding.SingleDeviceSharding(jax.devices()[0])))
for name, a in tree.items():
    assert isinstance(got[name], jax.Array), (name, type(got[name]))
    assert name == 'b' or got[name].sharding == a.sharding, (name, got[name].sharding)
assert not got['w'].any() and got['b'].shape == (5,)
print('same')
'''


def test_orbax_restores_arrays_where_they_were(tmp_path):
    """Of a tree that save() wrote; and of a copy of it by a mount without xattrs, in which leaves were written anew."""
    assert forks.run(forks.script, SHARDED, tmp_path).endswith('same\n')


def test_options_of_the_types_decide(tmp_path):
    tree = {'w': jnp.ones(3)}
    for options, kind, has_file in (({}, 'jax.Array', True), ({'leaf_type': 'np.ndarray'}, 'np.ndarray', False),
                                    ({'leaf_type': 'jax.Array'}, 'jax.Array', True), ({'sharding_file': False}, 'jax.Array', False)):
        pytreefs.save(tmp_path / '1', tree, overwrite=True, **options)
        assert pytreefs.open(tmp_path / '1')['default/w'].recorded_type == kind, options
        assert (tmp_path / '1/default/_sharding').exists() == has_file, options
    mesh = Mesh(np.array(jax.devices()[:1]), ('x',))
    pytreefs.save(tmp_path / '2', {'w': jax.device_put(jnp.ones(4), NamedSharding(mesh, P('x')))})
    found = json.loads((tmp_path / '2/default/_sharding').read_text())
    assert json.loads(found['dw=='])['partition_spec'] == ['x']


PAGE = pathlib.Path(__file__).resolve().parents[2] / 'docs/jax.md'


def test_the_page_about_jax(build, tmp_path):
    """Its Python in one process; then its commands, which print what it says."""
    code = '\n'.join(re.findall(r'```python\n(.*?)```', PAGE.read_text(), re.S))
    forks.run(forks.script, f'import os\nos.chdir({str(tmp_path)!r})\n{code}')
    env = dict(os.environ, PATH=f'{build}:{os.path.dirname(sys.executable)}:{os.environ["PATH"]}')
    try:
        for part in ('While a run trains', 'Another step with some leaves changed'):
            faults = tour.faults(PAGE, part, tmp_path, env)
            assert not faults, faults
    finally:
        subprocess.run(['umount', '-l', tmp_path / 'mnt'], capture_output=True)
    with ocp.CheckpointManager(tmp_path / 'run') as m:
        got = m.restore(101)
    assert isinstance(got['params']['dense']['kernel'], jax.Array) and not got['params']['dense']['kernel'].any()


def test_mappings_come_back_as_they_are_in_like(tmp_path):
    """Classes that are registered with jax, as those of flax, and ordered dicts: the result has the structure of the tree that was given."""
    @jax.tree_util.register_pytree_with_keys_class
    class Frozen(dict):
        def tree_flatten_with_keys(self):
            return [(jax.tree_util.DictKey(k), self[k]) for k in sorted(self)], tuple(sorted(self))

        @classmethod
        def tree_unflatten(cls, keys, values):
            return cls(zip(keys, values))
    tree = {'f': Frozen(a=jnp.ones(2), b=Frozen(c=jnp.zeros(1))), 'o': collections.OrderedDict(z=np.ones(1), a=np.zeros(2))}
    pytreefs.save(tmp_path / '1', tree)
    got = pytreefs.load(tmp_path / '1', like=tree)
    assert type(got['f']) is Frozen and type(got['f']['b']) is Frozen and type(got['o']) is collections.OrderedDict
    assert jax.tree.structure({'f': got['f']}) == jax.tree.structure({'f': tree['f']})


def test_parts_of_a_leaf_that_fail_are_one_leaf(tmp_path):
    """The text of an error counts leaves, of which devices ask for several parts."""
    a = np.random.default_rng(0).standard_normal((512, 256)).astype('f4')
    pytreefs.save(tmp_path / '1', {'w': a, 'v': a})
    for f in (tmp_path / '1/default/d').iterdir():
        if f.stat().st_size > a.nbytes // 2:      # chunks; indices are in other files
            f.unlink()
    sharding = NamedSharding(Mesh(np.array(jax.devices()), ('x',)), P('x'))
    like = dict.fromkeys('wv', jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding))
    for n, text in ((1, 'is absent'), (2, r'is absent \(and 1 more leaf\)')):
        with pytest.raises(pytreefs.Error, match=text + ':'):
            pytreefs.load(tmp_path / '1', like=like, only=['w', 'v'][:n])


def test_an_item_that_is_one_array(tmp_path):
    """It has no place for a sharding, and needs none. A typed key is not one array, but integers and a name."""
    pytreefs.save(tmp_path / '1', jnp.arange(3.0))
    assert pytreefs.load(tmp_path / '1').tolist() == pytreefs.load(tmp_path / '1', like=jnp.zeros(3)).tolist() == [0, 1, 2]
    with ocp.CheckpointManager(tmp_path) as m:
        assert m.restore(1, args=ocp.args.PyTreeRestore()).tolist() == [0, 1, 2]
    pytreefs.save(tmp_path / '2', {'k': jax.random.key(3), 'w': jnp.arange(3.0)})
    pytreefs.save(tmp_path / '3', pytreefs.open(tmp_path / '2')['default/w'])
    assert pytreefs.load(tmp_path / '3').tolist() == [0, 1, 2]
    with pytest.raises(pytreefs.Error, match='a dict that holds it'):
        pytreefs.save(tmp_path / '4', jax.random.key(3))


def test_abstract_meshes(tmp_path):
    """jax.eval_shape() within jax.set_mesh() gives shardings of a mesh without devices."""
    from flax import nnx
    pytreefs.save(tmp_path / '1', {'w': np.arange(64, dtype='f4').reshape(8, 8)})
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ('x', 'y'), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    with jax.set_mesh(mesh):
        like = jax.eval_shape(lambda: {'w': jax.sharding.reshard(jnp.zeros((8, 8)), P('x', 'y'))})
        got = pytreefs.load(tmp_path / '1', like=like)['w']
        assert got.sharding == NamedSharding(mesh, P('x', 'y')) and np.array_equal(got, np.arange(64).reshape(8, 8))
        net = nnx.Linear(4, 4, rngs=nnx.Rngs(0))
        pytreefs.save(tmp_path / '2', nnx.state(net))
        state = pytreefs.load(tmp_path / '2', like=nnx.state(nnx.eval_shape(lambda: nnx.Linear(4, 4, rngs=nnx.Rngs(0)))))
        assert np.array_equal(state['kernel'][...], net.kernel[...])
    with pytest.raises(pytreefs.Error, match='has no devices: jax.set_mesh'):
        pytreefs.load(tmp_path / '1', like=like)
    with jax.set_mesh(Mesh(np.array(jax.devices()).reshape(2, 4), ('x', 'y'))), pytest.raises(pytreefs.Error, match='has no devices'):
        pytreefs.load(tmp_path / '1', like=like)
