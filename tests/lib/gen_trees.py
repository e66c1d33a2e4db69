# SPDX-License-Identifier: Apache-2.0
"""Cases: shapes of trees and kinds of leaves."""

import collections
import dataclasses
import hashlib
import json
import typing

from lib import jaxenv  # noqa: F401  before jax

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp0
from orbax.checkpoint import v1 as ocp1

from lib import expect
from lib.case import Case, case
from lib.gen_matrix import save, save_v0, state, values

Point = collections.namedtuple('Point', 'x y')
Nothing = collections.namedtuple('Nothing', '')


class Adam(typing.NamedTuple):
    count: typing.Any
    mu: typing.Any
    nu: typing.Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    kernel: typing.Any
    bias: typing.Any


def nested():
    w = values((3, 2), np.float32, 1)
    return {
        'dict': {'b': w, 'a': {'deep': {'deeper': {'deepest': w + 1}}}},
        'list': [w, [w + 2, {'in': w + 3}], 5],
        'tuple': (w + 4, (w + 5, 'text')),
        'point': Point(x=w + 6, y=Point(x=1, y=2.5)),
        'adam': Adam(count=jnp.asarray(np.int32(3)), mu={'k': w + 7}, nu={'k': w + 8}),
        'layer': Layer(kernel=w + 9, bias=[w + 10]),
        'empties': {'dict': {}, 'list': [], 'tuple': (), 'none': None, 'namedtuple': Nothing(),
                    'inlist': [{}, [], (), None]},
        3: w + 11, -1: w + 12, 10: w + 13, True: w + 14,
        'long list': [np.int64(i) for i in range(12)],
    }


def _plain(tree):
    """Keys of one kind: JAX cannot sort mixed ones."""
    return {k: v for k, v in tree.items() if isinstance(k, str)}


@case()
def nested_containers(d):
    return save('v0', d, _plain(nested()))


@case()
def nested_containers_v1(d):
    tree = _plain(nested())
    tree['long list'] = list(range(12))
    return save('v1', d, tree)


@case()
def number_keys(d):
    return save('v0', d, {'ints': {k: v for k, v in nested().items() if isinstance(k, int)},
                          'floats': {1.5: values((2,), np.float32, 1), -0.25: 3},
                          'tuples': {(1, 2): 4, (0, 'x'): 5}})


@case()
def rich_types(d):
    """value_metadata_tree: tuples and named tuples keep their kind."""
    tree = _plain(nested())
    handler = ocp0.PyTreeCheckpointHandler(
        pytree_metadata_options=ocp0.options.PyTreeMetadataOptions(support_rich_types=True)
        if hasattr(ocp0.options, 'PyTreeMetadataOptions') else _rich_options())
    with ocp0.Checkpointer(handler) as checkpointer:
        checkpointer.save((d / 'ckpt').resolve(), args=ocp0.args.PyTreeSave(tree))
    return Case(trees={'': expect.flatten(tree, rich=True)})


def _rich_options():
    from orbax.checkpoint._src.metadata import pytree_metadata_options
    return pytree_metadata_options.PyTreeMetadataOptions(support_rich_types=True)


@case()
def strings(d):
    return save('v0', d, {
        'ascii': 'hello', 'empty': '', 'newline': 'a\nb\n', 'nul': 'a\0b', 'quote': '"\\/\b\f\t\r',
        'unicode': '\u00fc \u6f22\u5b57 \U0001f600', 'control': ''.join(map(chr, range(1, 32))),
        'long': 'line %d\n' * 1 + 'x' * 1000000, 'number': '7', 'true': 'true', 'null': 'null',
        'numpy': np.str_('text'), 'nested': {'list': ['a', 'b', {'c': 'd'}]}})


@case()
def only_strings_and_empties(d):
    """No array at all: `use_ocdbt` is true and there is no manifest."""
    return save('v0', d, {'a': 'text', 'b': None, 'c': {}, 'd': [[], ()]})


@case()
def placeholders(d):
    return save('v0', d, {'a': values((4,), np.float32, 1), 'skipped': ..., 'in': {'also': ..., 'b': 3}})


def _keys():
    return {
        'threefry': jax.random.key(7),
        'batch': jax.random.split(jax.random.key(8), (2, 3)),
        'rbg': jax.random.key(9, impl='rbg'),
        'unsafe_rbg': jax.random.key(10, impl='unsafe_rbg'),
        'raw': jax.random.PRNGKey(11),
        'w': values((3,), np.float32, 1),
    }


@case()
def prng_keys(d):
    return save('v0', d, _keys())


@case()
def prng_keys_v1(d):
    return save('v1', d, _keys(), ocdbt=False)


def _bare(value, api='v0', **options):
    def make(d):
        return save(api, d, value, **options)
    return make


case('bare-array')(_bare(values((5, 4), np.float32, 1)))
case('bare-array-zarr3')(_bare(values((5, 4), np.float32, 1), zarr3=True))
case('bare-array-perleaf')(_bare(values((5, 4), ml_dtypes.bfloat16, 1), ocdbt=False))
case('bare-array-perleaf-zarr3')(_bare(values((5, 4), np.float32, 1), ocdbt=False, zarr3=True))
case('bare-array-v1')(_bare(values((5, 4), np.float64, 1), 'v1'))
case('bare-scalar')(_bare(41))
case('bare-string')(_bare('only this'))
case('bare-key')(lambda d: save('v0', d, jax.random.key(3)))

ODD_NAMES = ['', '.', '..', 'a/b', '/lead', 'trail/', '%', '%41', '[', ']', '@', 'w@bfloat16', 'w[0]', ' ',
             'a b', '\u00fc', '\u6f22' * 90, 'x' * 255, 'y' * 250, 'z' * 251, 'n' * 300, '%' * 90,
             'w.npy', 'w.json', 'a.b', 'a.b.c', 'new\nline', 'tab\t', 'back\\slash', "it's", '"', '"\'',
             '_METADATA', '_CHECKPOINT_METADATA', '.pytreefs', 'latest', 'zarr.json', '.zarray',
             'manifest.ocdbt', 'ocdbt.process_9', 'd', 'checkpoint', 'commit_success.txt', '_sharding',
             '_strings.json', 'array_metadatas', '-rf', '~', '0', '00', '1e5', 'None', 'nul\0byte', '\x01',
             '\x7f', 'a' * 199 + '\u6f22' * 40, 'p' * 198 + '%' * 30, 'CASE', 'case', 'q.npy.npy', '.hidden']


def odd_names(names):
    """Each name as a leaf's key, as a container's key, and as a string's key where Orbax can save it."""
    tree = {'leaf': {}, 'container': {}, 'top': 1}
    for i, name in enumerate(names):
        tree['leaf'][name] = values((i % 5 + 1,), np.float32, i)
        tree['container'][name] = {'w': values((2,), np.float32, 100 + i), 'n': i}
    return tree


@case()
def names_ocdbt(d):
    return save('v0', d, _no_twins(odd_names(ODD_NAMES)))


@case()
def names_zarr3(d):
    return save('v0', d, _no_twins(odd_names(ODD_NAMES)), zarr3=True)


@case()
def names_top(d):
    """The same as the first key of the path, where names of ours are in the way."""
    tree = {n: {'w': values((2,), np.float32, i)} for i, n in enumerate(ODD_NAMES)}
    return save('v0', d, _no_twins(tree))


@case()
def names_perleaf(d):
    """Names that the per-leaf form can store: no component "." or "..", no NUL, no backslash, no long names."""
    good = [n for n in ODD_NAMES if n and len(n) < 120 and not set(n) & {'\0', '\\', '/'}
            and n not in ('.', '..') and len(n.encode()) < 120]
    return save('v0', d, _no_twins(odd_names(good)), ocdbt=False)


@case()
def names_strings(d):
    """Keys of string leaves go through a JSON pointer: '/' nests, '~0' and '~1' are escapes."""
    names = ['plain', 'a.b', 'a/b', '/lead', 'x~0y', 'x~1y', '%', '[', '@', '\u00fc', ' ', 'w.txt', '"', '.']
    return save('v0', d, {'s': {n: f'value {i}' for i, n in enumerate(names)}})


def _no_twins(tree):
    """Leave out what Orbax itself mixes up: two leaves with the same keys joined by '.'."""
    seen, out = {}, {}
    flat = expect.flatten(tree)
    for path in flat.leaves:
        seen.setdefault('.'.join(path), []).append(path)
    twins = {p for paths in seen.values() for p in paths[1:]}

    def walk(path, node):
        if not isinstance(node, dict):
            return node
        kept = {k: walk(path + (k,), v) for k, v in node.items() if path + (k,) not in twins}
        return {k: v for k, v in kept.items() if v != {} or node[k] == {}} \
            if any(isinstance(v, dict) for v in kept.values()) else kept

    out = walk((), tree)
    return out


@case()
def shared_parameter_names(d):
    """('a', 'b.c') and ('a', 'b', 'c') are stored under one name: neither has a value of its own."""
    w = values((3,), np.float32, 1)
    save_v0(d / 'ckpt', {'a': {'b': {'c': w}}, 'z': w + 1})
    path = d / 'ckpt' / '_METADATA'
    doc = json.loads(path.read_text())
    entry = dict(doc['tree_metadata']["('a', 'b', 'c')"])
    entry['key_metadata'] = [{'key': 'a', 'key_type': 2}, {'key': 'b.c', 'key_type': 2}]
    doc['tree_metadata']["('a', 'b.c')"] = entry
    path.write_text(json.dumps(doc))
    return Case(trees={'': expect.flatten({'a': {'b': {'c': w}, 'b.c': w}, 'z': w + 1})})


@case()
def names_collide(d):
    """A key that is spelled like the short form of another: two leaves all the same."""
    long = 'n' * 300
    twin = 'n' * 200 + '~' + hashlib.sha256(long.encode()).hexdigest()[:16]
    w = values((3,), np.float32, 1)
    return save('v0', d, {'t': {long: w, twin: w + 1}, 'other': 1})


@case()
def metadata_missing(d):
    """No `_METADATA`: the tree follows from the names of the arrays."""
    made = save('v0', d, state())
    (d / 'ckpt' / '_METADATA').unlink()
    (d / 'ckpt' / '_CHECKPOINT_METADATA').unlink()
    return _untyped(made)


@case()
def metadata_missing_zarr3(d):
    made = save('v0', d, state(), zarr3=True)
    (d / 'ckpt' / '_METADATA').unlink()
    (d / 'ckpt' / '_CHECKPOINT_METADATA').unlink()
    return _untyped(made)


@case()
def metadata_missing_perleaf(d):
    made = save('v0', d, state(), ocdbt=False)
    (d / 'ckpt' / '_METADATA').unlink()
    (d / 'ckpt' / '_CHECKPOINT_METADATA').unlink()
    return _untyped(made)


def _untyped(made):
    """Strings are kept in `_strings.json` under their names, so they stay; kinds are gone."""
    made.trees[''] = made.trees[''].without_structure()
    return made


@case()
def metadata_without_flags(d):
    """`use_ocdbt`, `use_zarr3` and the rest are optional; unknown members are ignored."""
    made = save('v0', d, state())
    path = d / 'ckpt' / '_METADATA'
    doc = json.loads(path.read_text())
    doc = {'tree_metadata': doc['tree_metadata'], 'from_the_future': {'x': [1, 2]}, 'use_ocdbt': None}
    for i, entry in enumerate(doc['tree_metadata'].values()):
        entry['future'] = i
        entry['value_metadata']['future'] = None
    path.write_text(json.dumps(doc, indent=3))
    return made


@case()
def entry_names_are_labels(d):
    """The names of entries say nothing; only key_metadata counts, in any order."""
    made = save('v0', d, state())
    path = d / 'ckpt' / '_METADATA'
    doc = json.loads(path.read_text())
    entries = list(doc['tree_metadata'].values())[::-1]
    doc['tree_metadata'] = {f'entry {i}': e for i, e in enumerate(entries)}
    path.write_text(json.dumps(doc))
    return made


@case()
def custom_metadata(d):
    made = save('v0', d, state(), custom_metadata={'note': 'caf\u00e9', 'n': [1, 2.5, None], 'deep': {'a': True}})
    made.xattrs = {'': {'custom_metadata': {'note': 'caf\u00e9', 'n': [1, 2.5, None], 'deep': {'a': True}}}}
    return made


@case()
def custom_handler(d):
    """A user's leaf type (the npz handler of Orbax's guide): its files, as stored, in the tree."""
    class MyState:
        def __init__(self, a, b):
            self.a, self.b = a, b

    class Handler(ocp0.type_handlers.TypeHandler):
        def typestr(self):
            return 'MyState'

        async def serialize(self, values, infos, args=None):
            for v, info in zip(values, infos):
                info.path.mkdir(exist_ok=True)
                np.savez(info.path / 'my_state.npz', a=v.a, b=v.b)
            return []

        async def deserialize(self, infos, args=None):
            raise NotImplementedError

        async def metadata(self, infos):
            raise NotImplementedError

    ocp0.type_handlers.register_type_handler(MyState, Handler(), override=True)
    tree = {'my_state': MyState(np.arange(3), np.ones(2)), 'n': {'k': MyState(np.zeros(1), np.arange(4))},
            'w': values((3, 3), np.float32, 1), 'name': 'x'}
    save_v0(d / 'ckpt', tree)
    stored = {k: (('my_state.npz', (d / 'ckpt' / k / 'my_state.npz').read_bytes()),)
              for k in ('my_state', 'n.k')}
    out = expect.flatten(dict(tree, my_state=None, n={'k': None}))
    del out.leaves['my_state',], out.leaves['n', 'k']
    made = Case(trees={'': out})
    made.files = {'my_state/my_state.npz': stored['my_state'][0][1], 'n/k/my_state.npz': stored['n.k'][0][1]}
    made.notes['opaque'] = ['my_state', 'n', 'n/k']
    return made


@case()
def wide_and_deep(d):
    """100 levels, and 1,000 siblings, without a byte of data to speak of."""
    deep = {'leaf': 1}
    for i in range(100):
        deep = {f'level{i}': deep}
    return save('v0', d, {'deep': deep, 'wide': {f'k{i:05d}': i for i in range(1000)}})


@case()
def unusual_step(d):
    """A step whose metadata is damaged or strange still has its items."""
    ocp1.save((d / 'ckpt').resolve(), {'w': values((3,), np.float32, 1)})
    (d / 'ckpt' / '_CHECKPOINT_METADATA').write_text('{"item_handlers": 7, "future": NaN}')
    (d / 'ckpt' / 'unknown file').write_text('ignored')
    return Case(trees={'state': expect.flatten({'w': values((3,), np.float32, 1)})})
