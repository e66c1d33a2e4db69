# SPDX-License-Identifier: Apache-2.0
"""Trees: what the library lists, and Python trees of containers."""

from __future__ import annotations

import json
import re
import sys
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from . import _pytreefs as lib
from ._dtypes import dtype_of

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


def children_of(nodes: Sequence[Node]) -> list[list[int]]:
    """The numbers of the children of each node."""
    out: list[list[int]] = [[] for _ in nodes]
    for i, node in enumerate(nodes):
        if node.parent >= 0:
            out[node.parent].append(i)
    return out


def number(text: bytes, dtype: str) -> Any:
    """The Python number that a scalar's JSON says."""
    def part(x: Any) -> Any:
        return float(x) if isinstance(x, str) else x

    x = json.loads(text)
    value = complex(part(x[0]), part(x[1])) if isinstance(x, list) else part(x)
    made = dtype_of(dtype)
    return made.type(value).item() if made.kind in 'biufc' else value


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

    kind: int
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
    """The children of a container in a Python tree; None for a leaf."""
    if isinstance(x, Mapping) and type(x) is not dict and not isinstance(x, OrderedDict) and (own := _registered(x)) is not None:
        return own          # of flax and others, with its own way to be made
    if isinstance(x, Mapping):
        made_of: Any = OrderedDict if isinstance(x, OrderedDict) else dict
        keys = list(x) if isinstance(x, OrderedDict) else in_order(x)      # as jax orders them
        return Parts(lib.DICT, [(str(k), x[k]) for k in keys], lambda values: made_of(zip(keys, values)))
    if isinstance(x, tuple) and hasattr(x, '_fields'):
        cls: Any = type(x)
        return Parts(lib.NAMEDTUPLE, list(zip(x._fields, x)), lambda values: cls(*values))
    if isinstance(x, (list, tuple)):
        made: Any = tuple if isinstance(x, tuple) else list
        return Parts(lib.TUPLE if made is tuple else lib.LIST, [(str(i), v) for i, v in enumerate(x)], made)
    return _registered(x)


def _registered(x: Any) -> Parts | None:
    """The class that jax registers as a pytree, when jax is loaded."""
    jax = sys.modules.get('jax')
    if jax is None or x is None or x is ... or hasattr(x, 'shape') and hasattr(x, 'dtype'):
        return None
    flat, structure = jax.tree_util.tree_flatten_with_path(x, is_leaf=lambda y: y is not x)
    if len(flat) == 1 and not flat[0][0]:
        return None
    children = [(_jax_key(path[0]), child) for path, child in flat]
    return Parts(lib.DICT, children, structure.unflatten)


def _jax_key(key: Any) -> str:
    for name in ('key', 'name', 'idx'):
        if hasattr(key, name):
            return str(getattr(key, name))
    return str(key)
