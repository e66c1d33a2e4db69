# SPDX-License-Identifier: Apache-2.0
"""Items of random keys, as Orbax's JaxRandomKeySave and NumpyRandomKeySave write them: a tree, and JSON beside it that says of which kind it is."""

from __future__ import annotations

from . import _pytreefs as lib
from ._context import Context, join
from ._node import CONTAINERS, Node

_NAMES = ('jax_random_key', 'np_random_key')


def merge(context: Context, base: str, nodes: list[Node]) -> int:
    """Make each of these items of a step one value, its integers or its state, in place. Returns the number of the top: that value
    if such an item was opened itself, else 0."""
    numbers = {node.path: i for i, node in enumerate(nodes) if node.parent == 0}
    top = 0
    for path, i in numbers.items():
        item, _, name = path.rpartition('/')
        other = numbers.get(path + '_metadata')
        if name not in _NAMES or other is None or nodes[other].kind != lib.OPAQUE or nodes[i].kind not in CONTAINERS:
            continue
        value = i
        if name == _NAMES[0]:
            below = [k for k, node in enumerate(nodes) if node.parent == i]
            if [nodes[k].key for k in below] != ['checkpoint']:
                continue
            value = below[0]
        elif context.random_key(join(base, path)).get('legacy') is True:
            nodes[i] = nodes[i]._replace(kind=lib.TUPLE)
        nodes[i], nodes[other] = nodes[i]._replace(parent=-1), nodes[other]._replace(parent=-1, kind=lib.DICT)
        nodes[value] = nodes[value]._replace(key=item, is_index=False, parent=0 if item else -1)
        top = top if item else value
    return top
