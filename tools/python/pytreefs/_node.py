# SPDX-License-Identifier: Apache-2.0
"""Trees: what the library lists, and Python trees of containers."""

from __future__ import annotations

import json
import re
import sys
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _pytreefs as lib
from ._dtypes import dtype_of, rounded

CONTAINERS = frozenset((lib.DICT, lib.LIST, lib.TUPLE, lib.NAMEDTUPLE, lib.CUSTOM, lib.CONTAINER))
SEQUENCES = frozenset((lib.LIST, lib.TUPLE))
KINDS = {
    lib.UNKNOWN: 'unknown', lib.ARRAY: 'array', lib.SCALAR: 'scalar', lib.STRING: 'string', lib.NONE: 'none',
    lib.PLACEHOLDER: 'placeholder', lib.PLUGIN: 'plugin', lib.DICT: 'dict', lib.LIST: 'list', lib.TUPLE: 'tuple',
    lib.NAMEDTUPLE: 'namedtuple', lib.CUSTOM: 'custom', lib.CONTAINER: 'container', lib.ROOT: 'root', lib.STEP: 'step',
    lib.OPAQUE: 'opaque', lib.FILE: 'file',
}

_INTEGER = re.compile('0|-?[1-9][0-9]*')


class Node(NamedTuple):
    """One node of a tree as the library describes it (py_read.c)."""

    path: str               # in a mount, from what the tree was asked of
    key: str
    is_index: bool          # key is a position in a sequence
    kind: int
    parent: int             # number of the parent; -1: the top
    dtype: str | None       # of arrays and scalars
    typestr: str | None
    shape: tuple[int, ...] | None
    chunks: tuple[int, ...] | None
    nbytes: int
    stored: int
    text: bytes | None
    error: int
    recorded: str | None
    version: int            # of the item or step that it was described from


def children_of(nodes: Sequence[Node]) -> list[list[int]]:
    """The numbers of the children of each node."""
    out: list[list[int]] = [[] for _ in nodes]
    for i, node in enumerate(nodes):
        if node.parent >= 0:
            out[node.parent].append(i)
    return out


def is_bytes(node: Node) -> bool:
    """Whether a leaf is Python's bytes, as flax stores them: the library describes them as uint8[n]."""
    return node.kind == lib.ARRAY and node.recorded == 'bytes'


def stored_kind(node: Node) -> str:
    """The kind of a leaf, as messages say it."""
    if is_bytes(node):
        return 'bytes'
    if node.dtype:
        return f'{node.dtype}{list(node.shape or ())}'
    return {lib.NONE: 'None', lib.STRING: 'string', lib.PLACEHOLDER: 'placeholder'}.get(node.kind, 'leaf')


def number(text: bytes, dtype: str) -> Any:
    """The Python number that a scalar's JSON says."""
    def part(x: Any) -> Any:
        return float(x) if isinstance(x, str) else x

    x = json.loads(text)
    value = complex(part(x[0]), part(x[1])) if isinstance(x, list) else part(x)
    made = dtype_of(dtype)
    return made.type(value).item() if made.kind in 'biufc' else rounded(dtype, value)


def _namedtuple(text: bytes | None, children: list[tuple[str, Any]]) -> Any:
    """Its own class when the program has imported it and its fields are these, else one made like it."""
    fields = [key for key, _ in children]
    recorded: dict[str, Any] = json.loads(text) if text else {}
    name = str(recorded.get('clazz', 'namedtuple'))
    found: Any = sys.modules.get(str(recorded.get('module', '')))
    for part in name.split('.'):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, tuple) and sorted(getattr(found, '_fields', ())) == sorted(fields)):
        try:
            order = [f if isinstance(f, str) else f['key'] for f in recorded.get('fields', [])]
        except (TypeError, KeyError):
            order = []
        names = order if sorted(order) == sorted(fields) else fields
        made = namedtuple(name.rpartition('.')[2], names)       # type: ignore[misc]
        return made(**dict(children))
    return found(**dict(children))


def make(kind: int, text: bytes | None, children: list[tuple[str, Any]]) -> Any:
    """A container as it was saved. Positions of a sequence that are absent hold `...`."""
    if kind in SEQUENCES:
        out: list[Any] = [...] * (1 + max((int(key) for key, _ in children), default=-1))
        for key, value in children:
            out[int(key)] = value
        return out if kind == lib.LIST else tuple(out)
    if kind == lib.NAMEDTUPLE and text is not None:
        return _namedtuple(text, children)
    return dict(children)


class Parts(NamedTuple):
    """A Python container, one level of it."""

    kind: int               # NONE: a node without children that is not a dict, list or tuple
    children: list[tuple[str, Any]]
    remake: Callable[[list[Any]], Any]


def in_order(keys: Iterable[Any]) -> list[Any]:
    """Keys of a dict as a tree has them: by their texts, integers among each other by value."""
    def is_integer(key: Any) -> bool:
        return _INTEGER.fullmatch(str(key)) is not None

    found = sorted(keys, key=str)
    integers = iter(sorted(filter(is_integer, found), key=int))
    return [next(integers) if is_integer(key) else key for key in found]


def parts_of(x: Any) -> Parts | None:
    """The children of a container in a Python tree; None for a leaf. ValueError: two keys are the same text."""
    if type(x) in PLAIN_LEAVES or x is ...:
        return None
    parts = _plain(x) if type(x) in PLAIN else _registered(x) or _plain(x)
    if parts is not None and len(parts.children) > len({key for key, _ in parts.children}):
        keys = [key for key, _ in parts.children]
        raise ValueError(f'two of its keys are {next(key for key in keys if keys.count(key) > 1)!r}')
    return parts


PLAIN_LEAVES: set[type] = {np.ndarray, bool, int, float, complex, str, type(None)}
PLAIN = frozenset((dict, list, tuple))


def _plain(x: Any) -> Parts | None:
    """Of Python's own containers, and of classes that are like them."""
    if isinstance(x, Mapping):
        keys = list(x) if isinstance(x, OrderedDict) else in_order(x.keys())      # as jax orders them
        return Parts(lib.DICT, [(str(k), x[k]) for k in keys], lambda values: _mapping_like(x, zip(keys, values)))
    if isinstance(x, tuple) and hasattr(x, '_fields'):
        cls: Any = type(x)
        return Parts(lib.NAMEDTUPLE if x else lib.NONE, list(zip(x._fields, x)), lambda values: cls(*values))
    kind = getattr(x, 'kind', None) if isinstance(x, Sequence) else None      # of a handle
    if isinstance(x, (list, tuple)) or kind in ('list', 'tuple'):
        made: Any = tuple if isinstance(x, tuple) or kind == 'tuple' else list
        return Parts(lib.TUPLE if made is tuple else lib.LIST, [(str(i), v) for i, v in enumerate(x)], made)
    return None


def _mapping_like(x: Any, pairs: Iterable[tuple[Any, Any]]) -> Any:
    """A mapping of the class of x with other values, which are those of all of its keys."""
    if not isinstance(x, dict):
        return dict(pairs)
    import copy
    made = copy.copy(x)     # with what else it has, as the factory of a defaultdict
    for key, value in pairs:        # update() of a Counter counts
        made[key] = value
    return made


def _registered(x: Any) -> Parts | None:
    """A node that jax has registered, when jax is loaded: its names and kind are those by which Orbax stores it."""
    jax = sys.modules.get('jax')
    if jax is None:
        return None
    flat, structure = jax.tree_util.tree_flatten_with_path(x, is_leaf=lambda y: y is not x)
    if len(flat) == 1 and not flat[0][0]:
        return None
    keys = [_jax_key(path[0]) for path, _ in flat]
    children = [(str(key), child) for key, (_, child) in zip(keys, flat)]
    return Parts(_kind_of_node(x, keys), children, structure.unflatten)


def _kind_of_node(x: Any, keys: list[str | int]) -> int:
    is_named = isinstance(x, tuple) and hasattr(x, '_fields')
    sequence = lib.TUPLE if isinstance(x, tuple) else lib.LIST
    if not keys:
        return lib.DICT if isinstance(x, Mapping) else sequence if isinstance(x, (list, tuple)) and not is_named else lib.NONE
    if is_named and keys == list(x._fields):
        return lib.NAMEDTUPLE
    return sequence if keys == list(range(len(keys))) else lib.DICT


def _jax_key(key: Any) -> str | int:
    """A name, or the position in a sequence."""
    if hasattr(key, 'idx'):
        return int(key.idx)
    if type(key).__name__ == 'FlattenedIndexKey':
        return int(key.key)
    for name in ('key', 'name'):
        if hasattr(key, name):
            return str(getattr(key, name))
    return str(key)
