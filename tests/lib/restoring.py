# SPDX-License-Identifier: Apache-2.0
"""Restores a step with real Orbax and TensorStore, in every possible way; imports JAX.

Each way gives a Python tree; faults() says where it differs from what was saved, tree types included.
"""

from lib import jaxenv  # noqa: F401  before jax

import logging
import pathlib

import jax
import numpy as np
import orbax.checkpoint as ocp0
import tensorstore as ts
from orbax.checkpoint import v1 as ocp1

from lib import expect
from lib.pairs import LONG

logging.getLogger('absl').setLevel(logging.ERROR)


# ---- trees ----

def python_tree(tree, leaf):
    """The Python tree of an expect.Tree, each leaf as leaf(path, value) gives it."""
    if () in tree.leaves:
        return leaf((), tree.leaves[()])
    nodes = {(): {}}
    for path in sorted([*tree.kinds, *tree.leaves], key=len):
        if not path:
            continue
        node = nodes[path] = {} if path in tree.kinds else leaf(path, tree.leaves[path])
        nodes[path[:-1]][path[-1]] = node
    made = {}
    for path in sorted(tree.kinds, key=len, reverse=True):
        children = {k: made.get(path + (k,), v) for k, v in nodes[path].items()}
        kind = tree.kinds[path]
        if kind in ('list', 'tuple'):
            children = [children[str(i)] for i in range(len(children))]
            made[path] = tuple(children) if kind == 'tuple' else children
        else:
            made[path] = children
    return made[()]


def plain(value):
    """A leaf as a program would have it before saving."""
    if isinstance(value, expect.Key):
        return jax.random.wrap_key_data(value.data, impl=value.impl)
    if isinstance(value, expect.Scalar):
        return value.value
    if isinstance(value, expect.Empty):
        return {'dict': {}, 'list': [], 'tuple': ()}[value.kind]
    return value


def target(tree):
    """A target that says the structure, with other values than what was saved."""
    def leaf(_, value):
        if isinstance(value, np.ndarray):
            return np.zeros(value.shape, value.dtype)
        if isinstance(value, expect.Scalar):
            return type(value.value)(0) if isinstance(value.value, (bool, int, float)) else value.value
        return '' if isinstance(value, str) else plain(value)
    return python_tree(tree, leaf)


def agrees(want, got):
    """Equal to the bit, and of the same Python kind."""
    if isinstance(want, expect.Key):
        if not str(getattr(got, 'dtype', '')).startswith('key<'):
            return False
        return str(jax.random.key_impl(got)) == want.impl and agrees(want.data, jax.random.key_data(got))
    if isinstance(want, expect.Empty):
        return got == {'dict': {}, 'list': [], 'tuple': ()}[want.kind] and type(got).__name__ == want.kind
    if want is None or isinstance(want, str):
        return type(got) is type(want) and want == got
    if isinstance(want, expect.Scalar):
        got = got if hasattr(got, 'dtype') else np.asarray(got, want.dtype)
        return expect.same_bits(want.array(), np.asarray(got))
    return hasattr(got, 'dtype') and expect.same_bits(want, np.asarray(got))


def faults(tree, got, rich=False, skip=()):
    """Every difference of a restored tree. rich: tuples are distinguished from lists. skip: key paths not compared."""
    out = []

    def walk(path, node):
        if path in skip:
            return
        if path in tree.kinds:
            kind = tree.kinds[path]
            wanted = {'tuple': tuple if rich else list, 'list': list, 'dict': dict}[kind]
            if type(node) is not wanted:
                out.append(f'{path}: {type(node).__name__} where {kind} was saved')
                return
            children = dict(enumerate(node)) if isinstance(node, (list, tuple)) else node
            for key, child in children.items():
                walk(path + (str(key),), child)
            missing = {p[len(path)] for p in (*tree.leaves, *tree.kinds)
                       if len(p) == len(path) + 1 and p[:len(path)] == path} - {str(k) for k in children}
            out.extend(f'{path}: {k!r} is missing' for k in sorted(missing) if path + (k,) not in skip)
        elif path not in tree.leaves:
            out.append(f'{path}: nobody saved {node!r:.100}')
        elif not agrees(tree.leaves[path], node):
            out.append(f'{path}: saved {tree.leaves[path]!r:.200}, restored {node!r:.200}')

    walk((), got)
    return out


# ---- ways of restoring a step of a root ----

def v0_pytree(root, step, tree, item='default'):
    return ocp0.PyTreeCheckpointer().restore(pathlib.Path(root) / step / item)


def v0_pytree_with_target(root, step, tree, item='default'):
    want = target(tree)
    args = jax.tree.map(lambda x: ocp0.RestoreArgs(restore_type=np.ndarray) if isinstance(x, np.ndarray)
                        else ocp0.RestoreArgs(), want)
    return ocp0.PyTreeCheckpointer().restore(pathlib.Path(root) / step / item, item=want, restore_args=args)


def v0_standard(root, step, tree, item='default'):
    with ocp0.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(pathlib.Path(root).resolve() / step / item)


def v0_manager(root, step, tree, item='default'):
    with ocp0.CheckpointManager(pathlib.Path(root).resolve()) as manager:
        assert manager.latest_step() == max(manager.all_steps())
        got = manager.restore(int(step))
        manager.item_metadata(int(step))
        return got if item == 'default' else got[item]


def v1_load(root, step, tree, item='default'):
    return ocp1.load_pytree(pathlib.Path(root).resolve() / step, checkpointable_name=item)


def v1_load_with_target(root, step, tree, item='default'):
    return ocp1.load_pytree(pathlib.Path(root).resolve() / step, target(tree), checkpointable_name=item)


def v1_checkpointables(root, step, tree, item='default'):
    return ocp1.load_checkpointables(pathlib.Path(root).resolve() / step)[item]


# name -> (function, whether a target told it about tuples)
WAYS = {
    'v0': (v0_pytree, False), 'v0-target': (v0_pytree_with_target, True), 'standard': (v0_standard, False),
    'manager': (v0_manager, False), 'v1': (v1_load, False), 'v1-target': (v1_load_with_target, True),
    'checkpointables': (v1_checkpointables, False),
}


# For tests that are about something else. Trees of every kind go by every way in interop/test_writing.py.
SOME_WAYS = tuple(WAYS) if LONG else ('v0-target', 'manager', 'v1')


def by_orbax(root, step, tree, ways=SOME_WAYS, item='default', rich=False, skip=()):
    """Faults of a step by each way."""
    out = []
    for name in ways:
        restore, has_target = WAYS[name]
        try:
            got = restore(root, str(step), tree, item)
        except Exception as e:
            out.append(f'{name}: {type(e).__name__}: {e!s:.600}')
            continue
        out += [f'{name}: {f}' for f in faults(tree, got, has_target or rich, skip)]
    return out


# ---- TensorStore alone ----

def array_spec(item, name, ocdbt=True, zarr3=False):
    prefix = name + '/' if name else ''
    kv = {'driver': 'ocdbt', 'base': f'file://{item}/', 'path': prefix} if ocdbt else \
        {'driver': 'file', 'path': f'{item}/{prefix}'}
    return {'driver': 'zarr3' if zarr3 else 'zarr', 'kvstore': kv}


def by_tensorstore(item, tree, ocdbt=True, zarr3=False):
    """Each array, opened by itself."""
    item = pathlib.Path(item).resolve()
    arrays = {p: v.array() if isinstance(v, expect.Scalar) else v.data if isinstance(v, expect.Key) else v
              for p, v in tree.leaves.items() if isinstance(v, (np.ndarray, expect.Scalar, expect.Key))}
    context = ts.Context()
    opened = {p: ts.open(array_spec(item, '.'.join(p), ocdbt, zarr3), open=True, context=context) for p in arrays}
    reads = {}
    for path, future in opened.items():
        try:
            reads[path] = future.result().read()
        except Exception as e:
            yield f'{path}: {e!s:.300}'
    for path, future in reads.items():
        got = np.asarray(future.result())
        if not expect.same_bits(arrays[path], got):
            yield f'{path}: saved {arrays[path]!r:.200}, TensorStore reads {got!r:.200}'


def chunk_shape(item, name, ocdbt=True, zarr3=False):
    """The shape of one stored chunk."""
    t = ts.open(array_spec(pathlib.Path(item).resolve(), name, ocdbt, zarr3), open=True).result()
    return list(t.chunk_layout.write_chunk.shape)
