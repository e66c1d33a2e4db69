# SPDX-License-Identifier: Apache-2.0
"""Compares the result of pytreefs.load() with the contents of a checkpoint (expect.Tree)."""

import numpy as np

from lib import expect

TYPES = {'list': list, 'tuple': tuple, 'dict': dict}


def agrees(want, got):
    """One leaf: equal to the bit, and of the Python type it was saved as."""
    if isinstance(want, expect.Key):
        want = want.data
    if isinstance(want, expect.Empty):
        return type(got) is TYPES[want.kind] and not got
    if want is expect.PLACEHOLDER:
        return got is ... or got is None
    if want is None or isinstance(want, str):
        return type(got) is type(want) and got == want
    if isinstance(want, expect.Scalar):
        if isinstance(got, (np.ndarray, np.generic)) and want.dtype.kind in 'biufc':
            return False
        return expect.same_bits(want.array(), np.asarray(got).astype(want.dtype))
    return isinstance(got, np.ndarray) and expect.same_bits(want, got)


def faults(tree, got):
    """Every difference of a loaded tree: containers, their types, and leaves."""
    out = []
    below = {}
    for path in (*tree.leaves, *tree.kinds):
        if path:
            below.setdefault(path[:-1], set()).add(path[-1])

    def walk(path, node):
        if path in tree.leaves:
            if not agrees(tree.leaves[path], node):
                out.append(f'{path}: saved {tree.leaves[path]!r:.200}, loaded {node!r:.200}')
            return
        kind = tree.kinds.get(path, 'dict')
        if kind == 'namedtuple':
            children = node._asdict() if hasattr(node, '_asdict') else None
        else:
            children = dict(enumerate(node)) if type(node) in (list, tuple) else node if type(node) is dict else None
            if kind != 'any' and type(node) is not TYPES[kind]:
                children = None
        if children is None:
            out.append(f'{path}: {type(node).__name__} where {kind} was saved')
            return
        names = {str(k) for k in children}
        if names != below.get(path, set()):
            out.append(f'{path}: has {sorted(names)}, saved {sorted(below.get(path, set()))}')
        for key, child in children.items():
            if str(key) in below.get(path, set()):
                walk((*path, str(key)), child)

    walk((), got)
    return out
