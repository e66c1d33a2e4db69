# SPDX-License-Identifier: Apache-2.0
"""Trees of every kind, each through everything that writes one: kinds, order and values as they were, or a message says what is not.

jax and Orbax are the judges: the names and types of a tree that save() writes are those that Orbax writes, and each restores
what the other wrote. flax, optax and jax bring the classes; of libraries that are not here (equinox, chex, numpyro), classes are
registered as theirs are.
"""

import collections
import dataclasses
import itertools
import json
import os
import shutil
import subprocess

import numpy as np
import pytest

import pytreefs
from lib import jaxenv  # noqa: F401: before jax
from lib.pairs import pairs

import flax
import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp
import torch
from flax import nnx
from flax.training.train_state import TrainState
from jax.example_libraries import optimizers
from jax.experimental import sparse

pytestmark = pytest.mark.filterwarnings('ignore:keys of .* are integers, which checkpoints store as texts')

Pair = collections.namedtuple('Pair', 'second first')
W = np.arange(6, dtype=np.float32).reshape(2, 3)


@flax.struct.dataclass
class Struct:
    """Its fields are not sorted; one is not a child."""

    w: jax.Array
    b: jax.Array
    name: str = flax.struct.field(pytree_node=False, default='x')


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Data:
    """As equinox modules and chex dataclasses are registered; with what makes an array of other objects."""

    z: jax.Array
    a: tuple

    shape = (2, 3)
    dtype = np.dtype(np.float32)

    def __array__(self, *_, **__):
        return np.zeros(3)


class Numbered(collections.namedtuple('Numbered', 'state rng')):
    """A named tuple that is registered with other children, as numpyro's SVIState and jax's OptimizerState."""


class Named(collections.namedtuple('Named', 'w b')):
    """The same with names."""


class Stack(list):
    pass


class Row(tuple):
    pass


class Config(dict):
    """Registered without keys."""


jax.tree_util.register_pytree_node(Numbered, lambda x: ((x.state, x.rng), None), lambda _, c: Numbered(*c))
jax.tree_util.register_pytree_with_keys(Named, lambda x: ([(jax.tree_util.GetAttrKey('only'), x.w)], x.b), lambda b, c: Named(c[0], b))
jax.tree_util.register_pytree_node(Stack, lambda x: (tuple(x), None), lambda _, c: Stack(c))
jax.tree_util.register_pytree_node(Row, lambda x: (tuple(x), None), lambda _, c: Row(c))
jax.tree_util.register_pytree_node(Config, lambda x: (tuple(x.values()), tuple(x)), lambda k, c: Config(zip(k, c)))


class Model(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(4, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.layers = nnx.List([nnx.Linear(3, 3, rngs=rngs) for _ in range(2)])


def nnx_optimizer():
    model = Model(nnx.Rngs(0))
    return nnx.state(nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param))


def torch_optimizer():
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return optimizer.state_dict()


def train_state():
    params = {'w': jnp.asarray(W), 'b': jnp.ones(3, jnp.bfloat16)}
    return TrainState.create(apply_fn=None, params=params, tx=optax.chain(optax.clip(1.0), optax.adamw(1e-3)))


# name -> a function that makes the tree
TREES = {
    'tuples': lambda: {'t': (1, (W, 'x'), [W, (2.5,)]), 'one': (W,)},
    'named tuples': lambda: {'p': Pair(W, Pair(1, 'two')), 'l': [Pair(2, W)]},
    'named tuple at the top': lambda: Pair(W, 3),
    'tuple at the top': lambda: (W, 3),
    'lists of 12': lambda: {'l': [np.full(2, i) for i in range(12)], 't': tuple(range(12)), 'd': [{'w': W + i} for i in range(12)]},
    'integer keys': lambda: {'layers': {i: W + i for i in range(12)}, 'neg': {-1: W, 3: W, 20: W}, 'deep': {7: {10: 1, 9: 2}}},
    'None': lambda: {'n': None, 'l': [None, W, None], 't': (None,)},
    'empty containers': lambda: {'d': {}, 'l': [], 't': (), 'e': optax.EmptyState(), 'in': [{}, [], ()], 'w': W},
    'named tuple of another program': lambda: {'p': collections.namedtuple('Gone', 'z a')(W, (1, W + 1))},
    'keys with dots': lambda: {'a.b': W, 'w.npy': W + 2, 'x': {'.': 1, '..': 2, '%': W, '': W, 'ä b': 'text'}, 'UP': 1, 'up': 2},
    'an empty key alone': lambda: {'': W},
    'keys with slashes': lambda: {'a/b': W, 'layers': [{'self/attention/w': W + 1}, {'self/attention/w': W + 2}], 'd/': {'e': (W,)}},
    'keys': lambda: {'one': jax.random.key(3), 'many': (jax.random.split(jax.random.key(4, impl='rbg'), 3),), 'old': jax.random.PRNGKey(1)},
    'numbers and texts': lambda: {'i': 7, 'f': 0.1, 'b': True, 's': 'süß\n', 'np': np.float32(2.5), 'big': 1 << 63},
    'ordered': lambda: collections.OrderedDict(z=W, a=collections.OrderedDict([('b', 1), ('a', 2)])),
    'defaultdict': lambda: {'d': collections.defaultdict(list, z=W, a=1)},
    'frozen': lambda: flax.core.freeze({'z': W, 'a': {'b': W}}),
    'struct': lambda: {'s': Struct(jnp.asarray(W), jnp.ones(2))},
    'dataclass': lambda: {'s': Data(jnp.asarray(W), (jnp.ones(2),))},
    'registered named tuples': lambda: {'n': Numbered(jnp.asarray(W), jnp.ones(2)), 'm': Named(jnp.asarray(W), 'aux')},
    'registered list, tuple, dict': lambda: {'l': Stack([W, W + 1]), 't': Row((W, W + 1)), 'd': Config(z=W, a=W + 1), 'e': [Stack(), Row(), Config()]},
    'jax optimizer': lambda: optimizers.adam(1e-3)[0]({'w': jnp.asarray(W), 'b': [jnp.ones(2)]}),
    'sparse': lambda: {'s': sparse.BCOO.fromdense(jnp.eye(3))},
    'optax': lambda: {'opt': optax.chain(optax.clip(1.0), optax.adamw(1e-3), optax.ema(0.9)).init({'w': jnp.asarray(W), 'b': jnp.ones(2)})},
    'TrainState': train_state,
    'Partitioned': lambda: {'p': nn.Partitioned(jnp.asarray(W), ('x', None))},
    'nnx state': lambda: nnx.state(Model(nnx.Rngs(0))),
    'nnx optimizer': nnx_optimizer,
    'nnx module': lambda: nnx.Linear(2, 3, rngs=nnx.Rngs(0)),
    'nnx variable': lambda: {'v': nnx.Param(jnp.asarray(W))},
    'nnx pure dict': lambda: nnx.to_pure_dict(nnx.state(Model(nnx.Rngs(1)))),
    'torch optimizer': torch_optimizer,
    'torch module': lambda: torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).state_dict(),
}


def leaf(x):
    """A leaf as load() gives it."""
    if isinstance(x, torch.Tensor):
        return x.numpy()
    if isinstance(x, jax.Array):
        return np.asarray(jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
    return x.item() if isinstance(x, np.generic) else x


def children(x):
    """(key of jax, child) of a node; None: a leaf."""
    flat, _ = jax.tree_util.tree_flatten_with_path(x, is_leaf=lambda y: y is not x)
    return None if len(flat) == 1 and not flat[0][0] else [(path[0], child) for path, child in flat]


def plain(x):
    """The tree as load() gives it: dicts, lists, tuples and named tuples; other nodes are dicts, or lists of positions."""
    nodes = None if x is None or isinstance(x, (np.ndarray, str)) else children(x)
    if nodes is None:
        return leaf(x)
    is_named = isinstance(x, tuple) and hasattr(x, '_fields')
    if not nodes:
        kinds = (dict, list, tuple) if not is_named else ()
        return next((kind() for kind in kinds if isinstance(x, kind) or kind is dict and isinstance(x, collections.abc.Mapping)), None)
    values = [plain(child) for _, child in nodes]
    if all(isinstance(key, (jax.tree_util.SequenceKey, jax.tree_util.FlattenedIndexKey)) for key, _ in nodes):
        return tuple(values) if isinstance(x, tuple) else values
    names = [str(getattr(key, 'name', getattr(key, 'key', None))) for key, _ in nodes]
    return type(x)(*values) if is_named and tuple(names) == x._fields else dict(zip(names, values))


def without_rich_types(x):
    """The tree for a reader that does not know of tuples, as Orbax with its defaults."""
    if isinstance(x, tuple) and hasattr(x, '_fields'):
        return {key: without_rich_types(value) for key, value in zip(x._fields, x)}
    if isinstance(x, (list, tuple)) and x:
        return [without_rich_types(value) for value in x]
    return {key: without_rich_types(value) for key, value in x.items()} if isinstance(x, dict) else x


def class_of(x):
    """A named tuple of a class that the program does not have is of one that load() makes."""
    return (type(x).__name__, x._fields) if isinstance(x, tuple) and hasattr(x, '_fields') else type(x)


def faults(want, got, path=''):
    """Differences of two plain trees: types of containers, the order of keys, values to the bit."""
    if isinstance(want, (dict, list, tuple)):
        if class_of(got) != class_of(want):
            return [f'{path}: {type(got).__name__} instead of {type(want).__name__}']
        pairs = want.items() if isinstance(want, dict) else enumerate(want)
        if len(got) != len(want) or isinstance(want, dict) and list(got) != list(want):
            return [f'{path}: {list(got)} instead of {list(want)}'] if isinstance(want, dict) else [f'{path}: {len(got)} instead of {len(want)}']
        return [fault for key, value in pairs for fault in faults(value, got[key], f'{path}/{key}')]
    if isinstance(want, np.ndarray):
        same = isinstance(got, np.ndarray) and got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes()
    else:
        same = type(got) is type(want) and got == want
    return [] if same else [f'{path}: {got!r} instead of {want!r}']


def entries(item):
    """The keys and the type of each leaf in `_METADATA`."""
    tree = json.loads((item / '_METADATA').read_text())['tree_metadata']
    return [(*((k['key'], k['key_type']) for k in entry['key_metadata']), entry['value_metadata']['value_type']) for entry in tree.values()]


def without_torch(tree):
    return jax.tree.map(lambda x: x.numpy() if isinstance(x, torch.Tensor) else x, tree)


class Orbax:
    """By StandardSave and StandardRestore, or by the interface for trees with texts."""

    def __init__(self, tree):
        self.tree = tree
        has_text = any(isinstance(x, str) for x in jax.tree.leaves(tree))
        self.checkpointer = ocp.PyTreeCheckpointer() if has_text else ocp.StandardCheckpointer()
        self.options = {'restore_args': jax.tree.map(self._arguments, tree)} if has_text else {}

    @staticmethod
    def _arguments(x):
        return ocp.RestoreArgs() if isinstance(x, (str, np.generic)) else ocp.checkpoint_utils.construct_restore_args(x)

    def save(self, path):
        with self.checkpointer as checkpointer:
            checkpointer.save(path, self.tree)

    def restore(self, path):
        return self.checkpointer.restore(path, self.tree, **self.options)


@pytest.fixture(params=TREES)
def name(request):
    return request.param


def test_save_and_load(tmp_path, name):
    """Alone, with like=, and as the other program does: names and types are Orbax's, and each restores what the other wrote."""
    tree = TREES[name]()
    pytreefs.save(tmp_path / '1', tree)
    got = pytreefs.load(tmp_path / '1')
    assert not faults(plain(tree), got)
    assert not faults(plain(tree), plain(pytreefs.load(tmp_path / '1', like=tree)))
    assert jax.tree.structure(pytreefs.load(tmp_path / '1', like=tree)) == jax.tree.structure(tree)
    tree = without_torch(tree)
    by_orbax = Orbax(tree)
    by_orbax.save(tmp_path / 'orbax')
    assert entries(tmp_path / '1/default') == entries(tmp_path / 'orbax')
    for restored in (by_orbax.restore(tmp_path / '1/default'), pytreefs.load(tmp_path / 'orbax', like=tree)):
        assert jax.tree.structure(restored) == jax.tree.structure(tree)
        assert not faults(plain(tree), plain(restored))
    assert not faults(without_rich_types(plain(tree)), pytreefs.load(tmp_path / 'orbax'))


def test_positions_beside_names(tmp_path, mount):
    """A whole module of flax with an nnx.List, of which Orbax writes positions and names under one parent and then cannot restore it: the
    positions are names."""
    tree = Model(nnx.Rngs(0))
    Orbax(tree).save(tmp_path / 'orbax/1')
    pytreefs.save(tmp_path / 'ours/1', tree)
    assert {'0', '1'} == {keys[1][0] for *keys, _ in entries(tmp_path / 'orbax/1') if keys[0][0] == 'layers' and keys[1][1] == 1}
    for where in tmp_path / 'orbax/1', tmp_path / 'ours/1':
        got = pytreefs.load(where)
        assert list(got['layers']) == ['0', '1', '_pytree__state'] and got['layers']['_pytree__state'] is None
        for i, layer in enumerate(tree.layers):
            assert np.array_equal(got['layers'][str(i)]['kernel']['value'], layer.kernel[...])
        assert not faults(plain(tree), plain(pytreefs.load(where, like=Model(nnx.Rngs(1)))))
    assert np.array_equal(np.load(mount(tmp_path / 'orbax/1') / 'layers/1/kernel/value.npy'), tree.layers[1].kernel[...])


def copied_in_a_mount(tmp_path, mount, run):
    m = mount(tmp_path / 'root')
    for step, how in ((2, '-r'), (3, '-a')):
        (m / f'{step}.tmp').mkdir()
        subprocess.run(['cp', how, f'{m / "1"}/.', m / f'{step}.tmp/'], check=True)
        os.rename(m / f'{step}.tmp', m / str(step))
        yield f'cp {how}', tmp_path / f'root/{step}'
    (m / '10.tmp').mkdir()
    shutil.copyfile(m / '1/default.safetensors', m / '10.tmp/default.safetensors')
    os.rename(m / '10.tmp', m / '10')
    yield 'cp of the view', tmp_path / 'root/10'


def converted(tmp_path, mount, run):
    rules = tmp_path / 'same.json'
    rules.write_text('{"default_to_original": true, "rules": []}')
    run('convert', tmp_path / 'root/1', tmp_path / 'root/4')
    yield 'convert', tmp_path / 'root/4'
    run('convert', '-o', f'transforms={rules}', tmp_path / 'root/1', tmp_path / 'root/5')
    yield 'convert with transforms', tmp_path / 'root/5'
    run('convert', '-o', 'ocdbt=off,zarr=3', tmp_path / 'root/1/default', tmp_path / 'item')
    yield 'convert of the item', tmp_path / 'item'


def exported(tmp_path, mount, run):
    for step, out in enumerate(('files', 'm.safetensors', 'm.npz', 'm.zarr'), 6):
        run('export', '--format', out.rpartition('.')[2].replace('files', 'npy'), tmp_path / 'root/1/default', tmp_path / out)
        run('save', tmp_path / out, tmp_path / f'root/{step}')
        yield f'export {out}', tmp_path / f'root/{step}'


@pytest.mark.parametrize('name, how', pairs([*TREES], [*itertools.product([copied_in_a_mount, converted, exported], ['pytreefs', 'orbax'])]))
def test_copies(tmp_path, mount, run, name, how):
    """Each copy loads as the original does, and Orbax restores it."""
    way, by = how
    tree = TREES[name]()
    (tmp_path / 'root').mkdir()
    if by == 'pytreefs':
        pytreefs.save(tmp_path / 'root/1', tree)
    else:
        with ocp.CheckpointManager(tmp_path / 'root') as manager:
            manager.save(1, args=ocp.args.PyTreeSave(without_torch(tree)))
    want = pytreefs.load(tmp_path / 'root/1')
    out = []
    for title, path in way(tmp_path, mount, run):
        out += [f'{title}: {fault}' for fault in faults(want, pytreefs.load(path))]
        restored = Orbax(without_torch(tree)).restore(path if path.name == 'item' else path / 'default')
        out += [f'{title}, by Orbax: {fault}' for fault in faults(plain(without_torch(tree)), plain(restored))]
    assert not out, '\n'.join(out)


def test_rules_do_not_mix_leaves(tmp_path):
    """Keys of rules are joined by slashes. A leaf that no rule names keeps its keys, and two of one name are refused."""
    rules = tmp_path / 'rules.json'
    rules.write_text('{"default_to_original": true, "rules": [{"key": "y", "original_key": "x"}]}')
    pytreefs.save(tmp_path / '1', {'a/b': W, 'x': 1})
    for given in (rules, json.loads(rules.read_text())):
        assert not faults({'a/b': W, 'y': 1}, pytreefs.load(tmp_path / '1', transforms=given))
    given = {'default_to_original': True, 'rules': [{'key': '\\,y, \\\\', 'original_key': 'x'}]}      # through -o, where commas are escaped
    assert not faults({',y, \\': 1, 'a/b': W}, pytreefs.load(tmp_path / '1', transforms=given))
    with pytest.raises(pytreefs.Error, match="transforms='.*rules"):
        pytreefs.load(tmp_path / '1', transforms={'rules': 1})
    pytreefs.save(tmp_path / '2', {'a/b': W, 'a': {'b': W + 1}, 'x': 1})
    with pytest.raises(pytreefs.Error, match="two leaves apart that are called 'a/b'"):
        pytreefs.load(tmp_path / '2', transforms=rules)


def test_two_keys_of_one_text(tmp_path):
    with pytest.raises(pytreefs.Error, match="'default/d' cannot be saved: two of its keys are '1'"):
        pytreefs.save(tmp_path / '1', {'d': {1: {'a': W}, '1': {'b': W}}})
    pytreefs.save(tmp_path / '1', {'d': {1: W}})
    with pytest.raises(pytreefs.Error, match="d: two of its keys are '1'"):
        pytreefs.load(tmp_path / '1', like={'d': {1: W, '1': W}})


def test_the_order_of_a_dict_in_a_mount(tmp_path, mount):
    """It is an attribute, and new keys come last; a class with it makes a named tuple."""
    (tmp_path / 'root').mkdir()
    m = mount(tmp_path / 'root')
    (m / '1.tmp/default/s').mkdir(parents=True)
    for name in 'abcd':
        (m / f'1.tmp/default/s/{name}.json').write_text('1')
    os.setxattr(m / '1.tmp/default/s', 'user.pytree.namedtuple', b'{"fields": ["d", "gone", "b", "d"]}')
    os.rename(m / '1.tmp', m / '1')
    assert list(pytreefs.load(tmp_path / 'root/1')['s']) == ['d', 'b', 'a', 'c']
    assert json.loads(os.getxattr(m / '1/default/s', 'user.pytree.namedtuple')) == {'fields': ['d', 'b', 'a', 'c']}
    assert 'user.pytree.namedtuple' not in os.listxattr(m / '1/default')
    (m / '2.tmp').mkdir()
    subprocess.run(['cp', '-r', f'{m / "1"}/.', m / '2.tmp/'], check=True)
    (m / '2.tmp/default/s/0.json').write_text('1')
    (m / '2.tmp/default/s/b.json').unlink()
    os.rename(m / '2.tmp', m / '2')
    assert list(pytreefs.load(tmp_path / 'root/2')['s']) == ['d', 'a', 'c', '0']
