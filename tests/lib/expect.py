# SPDX-License-Identifier: Apache-2.0
"""The contents of a checkpoint, in a form that does not need Orbax: the expected side of every comparison.

A `Tree` is a flat mapping of key paths (tuples of text) to values, with the kind of each container.
A value is one of

    numpy.ndarray        an array leaf, dtype exact (ml_dtypes types included)
    Scalar               a number leaf and the dtype that is stored
    str                  a string leaf
    None                 a None leaf
    Key                  a typed PRNG key: its data and the implementation's name
    PLACEHOLDER          a leaf saved as `...`
    Empty                an empty container
    Opaque               a user's handler: its files as stored

Only numpy and ml_dtypes are needed, so that the writers of old releases can use it too.
"""

import base64
import dataclasses
import json
import zlib

import ml_dtypes  # noqa: F401  registers bfloat16 and friends with numpy
import numpy as np


@dataclasses.dataclass(frozen=True)
class Scalar:
    """A number leaf; dtype is what is stored, value a Python bool, int, float or complex."""

    value: object
    dtype: np.dtype

    def array(self):
        return np.asarray(self.value, dtype=self.dtype)


@dataclasses.dataclass(frozen=True)
class Key:
    data: np.ndarray
    impl: str


@dataclasses.dataclass(frozen=True)
class Empty:
    """kind: dict, list, tuple."""

    kind: str


@dataclasses.dataclass(frozen=True)
class Opaque:
    files: tuple  # of (relative path, bytes)


class _Placeholder:
    def __repr__(self):
        return 'PLACEHOLDER'


PLACEHOLDER = _Placeholder()


@dataclasses.dataclass
class Tree:
    leaves: dict = dataclasses.field(default_factory=dict)
    kinds: dict = dataclasses.field(default_factory=dict)  # of non-empty containers
    recorded: bool = True  # False: no `_METADATA`, so that scalars show as arrays of rank 0

    def untyped(self):
        """The same tree when its structure is known and its types are not: scalars are arrays of rank 0."""
        leaves = {p: v.array() if isinstance(v, Scalar) else v.data if isinstance(v, Key) else v
                  for p, v in self.leaves.items()}
        return Tree(leaves, dict(self.kinds), recorded=False)

    def without_structure(self):
        """The same tree when only the names of its arrays and strings are known, split at dots."""
        leaves = {}
        for path, value in self.untyped().leaves.items():
            if isinstance(value, (np.ndarray, str)):
                leaves[tuple('.'.join(path).split('.'))] = value
        return Tree(leaves, {path: 'dict' for path in containers_of(leaves)}, recorded=False)


def containers_of(leaves):
    """The paths of all containers above the leaves, the root included when it is one."""
    out = {}
    for path in leaves:
        for n in range(len(path)):
            out[path[:n]] = True
    return list(out)


def scalar(value):
    """The Scalar that Orbax makes of a Python or numpy number."""
    a = np.asarray(value)
    item = value.item() if isinstance(value, np.generic) else value
    return Scalar(item, a.dtype)


def _is_namedtuple(node):
    return isinstance(node, tuple) and hasattr(node, '_fields')


def _children(node):
    """(key, child) of a container in the order of JAX, or None for a leaf."""
    if isinstance(node, dict):
        return [(str(k), node[k]) for k in sorted(node, key=_dict_order)]
    if _is_namedtuple(node):
        return list(zip(node._fields, node))
    if isinstance(node, (list, tuple)):
        return [(str(i), v) for i, v in enumerate(node)]
    if dataclasses.is_dataclass(node) and not isinstance(node, (Scalar, Key, Empty, Opaque)):
        return [(f.name, getattr(node, f.name)) for f in dataclasses.fields(node)]
    return None


def _dict_order(key):
    return (str(type(key)), key) if not isinstance(key, str) else ('str', key)


def _kind(node, rich):
    if _is_namedtuple(node):
        return 'namedtuple' if rich else 'dict'
    if isinstance(node, tuple):
        return 'tuple' if rich else 'list'
    return 'list' if isinstance(node, list) else 'dict'


def leaf_value(node, numpy_scalars=True):
    """One leaf of a Python tree -> a value. numpy_scalars: False turns them into rank-0 arrays."""
    if node is None or node is PLACEHOLDER or isinstance(node, (str, Scalar, Key, Opaque, Empty)):
        return str(node) if isinstance(node, str) else node
    if node is Ellipsis:
        return PLACEHOLDER
    if isinstance(node, (bool, int, float, complex)) and not isinstance(node, np.generic):
        return scalar(node)
    if isinstance(node, np.generic):
        return scalar(node) if numpy_scalars or isinstance(node, np.float64) else np.asarray(node)
    if hasattr(node, 'dtype') and str(node.dtype).startswith('key<'):
        import jax
        return Key(np.asarray(jax.random.key_data(node)), str(jax.random.key_impl(node)))
    return np.asarray(node)


def flatten(tree, rich=False, numpy_scalars=True):
    """A Python tree as given to Orbax -> Tree as the checkpoint should hold it."""
    out = Tree()

    def walk(path, node):
        children = _children(node)
        if children is None:
            out.leaves[path] = leaf_value(node, numpy_scalars)
            return
        if not children:
            # An empty namedtuple, and any other node without children, is stored as None.
            names = {dict: 'dict', list: 'list', tuple: 'tuple'}
            out.leaves[path] = Empty(names[type(node)]) if type(node) in names else None
            return
        out.kinds[path] = _kind(node, rich)
        for key, child in children:
            walk(path + (key,), child)

    walk((), tree)
    return out


# ---- as JSON, for committed golden data ----

def _pack_array(a):
    raw = np.ascontiguousarray(a).tobytes()
    return {'dtype': a.dtype.name, 'shape': list(a.shape),
            'data': base64.b64encode(zlib.compress(raw, 9)).decode()}


def _unpack_array(d):
    raw = zlib.decompress(base64.b64decode(d['data']))
    return np.frombuffer(raw, dtype=np.dtype(d['dtype'])).reshape(d['shape'])


def _pack_value(v):
    if isinstance(v, np.ndarray):
        return {'array': _pack_array(v)}
    if isinstance(v, Scalar):
        return {'scalar': _pack_array(v.array())}
    if isinstance(v, Key):
        return {'key': _pack_array(v.data), 'impl': v.impl}
    if isinstance(v, str):
        return {'string': v}
    if isinstance(v, Empty):
        return {'empty': v.kind}
    if v is PLACEHOLDER:
        return {'placeholder': True}
    if v is None:
        return {'none': True}
    raise TypeError(f'no JSON form for {v!r}')


def _unpack_value(d):
    if 'array' in d:
        return _unpack_array(d['array'])
    if 'scalar' in d:
        a = _unpack_array(d['scalar'])
        return Scalar(a.item() if a.dtype.kind in 'biufc' else a[()], a.dtype)
    if 'key' in d:
        return Key(_unpack_array(d['key']), d['impl'])
    if 'string' in d:
        return d['string']
    if 'empty' in d:
        return Empty(d['empty'])
    return PLACEHOLDER if 'placeholder' in d else None


def to_json(tree):
    return {'leaves': [[list(p), _pack_value(v)] for p, v in tree.leaves.items()],
            'kinds': [[list(p), k] for p, k in tree.kinds.items()], 'recorded': tree.recorded}


def from_json(doc):
    return Tree({tuple(p): _unpack_value(v) for p, v in doc['leaves']},
                {tuple(p): k for p, k in doc['kinds']}, doc['recorded'])


def dump(trees, path):
    """trees: name -> Tree."""
    with open(path, 'w') as f:
        json.dump({name: to_json(t) for name, t in trees.items()}, f, indent=None,
                  separators=(',', ':'))
        f.write('\n')


def load(path):
    with open(path) as f:
        return {name: from_json(doc) for name, doc in json.load(f).items()}


def same_bits(a, b):
    """Equal dtype, shape and every bit; sub-byte types by their value, high bits ignored."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return canonical_bytes(a) == canonical_bytes(b)


def canonical_bytes(a):
    """C order, little-endian; int2, int4 and float4 with zero high bits, as ml_dtypes holds them."""
    a = np.ascontiguousarray(a)
    if a.dtype.byteorder == '>':
        a = a.astype(a.dtype.newbyteorder('<'))
    bits = {'int2': 2, 'int4': 4, 'float4_e2m1fn': 4}.get(a.dtype.name)
    if bits:
        return (a.view(np.uint8) & ((1 << bits) - 1)).astype(np.uint8).tobytes()
    return a.tobytes()
