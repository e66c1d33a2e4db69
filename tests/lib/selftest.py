#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what the generators promise against Orbax and TensorStore themselves, without pytreefs.

usage: selftest.py [PREFIX]     cases whose name begins with PREFIX; golden ones are called old-...

A wrong expectation would make a right program fail; this finds it. Trees with `_METADATA` are
restored with Orbax; arrays of the others are opened one by one with TensorStore.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from lib import jaxenv  # noqa: E402,F401

import logging  # noqa: E402

import jax  # noqa: E402
import numpy as np  # noqa: E402
import orbax.checkpoint as ocp  # noqa: E402
import tensorstore as ts  # noqa: E402

from lib import checkpoints, expect, old  # noqa: E402

# Cases that Orbax 0.12.8 itself cannot restore, and why; their arrays are checked by TensorStore.
NOT_BY_ORBAX = {
    'unmerged': 'Orbax cannot read what was never merged',
    'unmerged-part-missing': 'the same', 'unmerged-two-processes': 'the same',
    'custom-handler': 'its handler is not registered here',
    'zero-chunks-not-stored': 'needs nothing but zeros: checked by TensorStore',
    'shared-parameter-names': 'Orbax gives one of the two for both',
    'array-item': 'a directory called `checkpoint` is taken for the aggregate file',
    'chunk-gone': 'it is damaged', 'broken-step-among-good-ones': 'it is damaged',
    'leaf-called-checkpoint': 'Orbax takes the directory for the aggregate file',
}


def restored(item):
    """The tree as Orbax gives it, every array as numpy, key paths as text."""
    handler = ocp.PyTreeCheckpointHandler()
    with ocp.Checkpointer(handler) as checkpointer:
        meta = checkpointer.metadata(item)
        meta = getattr(meta, 'item_metadata', meta)
        args = jax.tree.map(
            lambda m: ocp.RestoreArgs(restore_type=np.ndarray) if 'Array' in type(m).__name__ else
            ocp.RestoreArgs(), getattr(meta, 'tree', meta))
        return checkpointer.restore(item, args=ocp.args.PyTreeRestore(restore_args=args))


def flat(node, path=()):
    if isinstance(node, dict) and node:
        for k, v in node.items():
            yield from flat(v, path + (str(k),))
    elif isinstance(node, (list, tuple)) and node and not hasattr(node, '_fields'):
        for i, v in enumerate(node):
            yield from flat(v, path + (str(i),))
    elif hasattr(node, '_fields') and node:
        for k, v in zip(node._fields, node):
            yield from flat(v, path + (k,))
    else:
        yield path, node


def agrees(want, got):
    if isinstance(want, expect.Key):
        want = want.data
    if isinstance(want, expect.Empty):
        return got in ({}, [], ()) or got is None or hasattr(got, '_fields')
    if want is expect.PLACEHOLDER:
        return got is ...
    if want is None or isinstance(want, str):
        return want == got
    if hasattr(got, 'dtype') and str(got.dtype).startswith('key<'):
        got = jax.random.key_data(got)
    if isinstance(want, expect.Scalar):
        want = want.array()
        if not hasattr(got, 'dtype'):
            got = np.asarray(got, want.dtype)
    return expect.same_bits(want, np.asarray(got))


def by_orbax(item, tree):
    got = dict(flat(restored(item)))
    for path in set(got) | set(tree.leaves):
        if path not in got or path not in tree.leaves:
            yield f'{path}: only in {"the checkpoint" if path in got else "the expectation"}'
        elif not agrees(tree.leaves[path], got[path]):
            yield f'{path}: want {tree.leaves[path]!r:.200}, got {got[path]!r:.200}'


def kvstore(item, name):
    """Where an array of that name lies: a database of the whole, a part of it, or its own directory."""
    prefix = name + '/' if name else ''
    if any(item.glob('manifest*')):
        yield {'driver': 'ocdbt', 'base': f'file://{item}/', 'path': prefix}
    yield {'driver': 'file', 'path': f'{item}/{prefix}'}
    for part in sorted(item.glob('ocdbt.process_*')):
        yield {'driver': 'ocdbt', 'base': f'file://{part}/', 'path': prefix}


def read_array(item, name):
    for kv in kvstore(item, name):
        for driver in ('zarr', 'zarr3'):
            try:
                return ts.open({'driver': driver, 'kvstore': kv}, open=True).result().read().result()
            except ValueError:
                continue
    return None


def by_tensorstore(item, tree):
    for path, want in tree.leaves.items():
        if isinstance(want, (expect.Scalar, expect.Key)):
            want = want.array() if isinstance(want, expect.Scalar) else want.data
        if not isinstance(want, np.ndarray):
            continue
        got = read_array(item, '.'.join(path))
        if got is None:
            yield f'{path}: no array'
        elif not expect.same_bits(want, np.asarray(got)):
            yield f'{path}: want {want!r:.200}, got {got!r:.200}'


def check_tree(name, item, tree):
    if 'unmerged' in name and 'two' in name or name == 'shared-parameter-names':
        return []       # one process's chunks, or one entry's name: neither library reads it so
    if item.is_file() or (item / 'checkpoint').is_file():
        # Values inside the aggregate file were compared by the release that wrote them.
        return [f for f in by_tensorstore(item, tree) if not f.endswith('no array')]
    if (item / '_METADATA').exists() and name not in NOT_BY_ORBAX:
        return list(by_orbax(item, tree))
    return list(by_tensorstore(item, tree))


def check(name, made):
    faults = []
    for where, tree in made.trees.items():
        faults += [f'{where}: {f}' for f in check_tree(name, made.path.resolve() / where, tree)]
    for where, content in made.files.items():
        on_disk = made.path / where
        if on_disk.exists() and on_disk.read_bytes() != content:
            faults.append(f'{where}: differs from the file as stored')
    if made.steps is not None:
        missing = [s for s in made.steps if not (made.path / s).exists()]
        faults += [f'no step {s} on disk' for s in missing]
    return faults


def main(prefix=''):
    logging.disable(logging.WARNING)
    cases = [(n, lambda n=n: checkpoints.get(n)) for n in checkpoints.names()]
    cases += [(f'old-{r}-{n}', lambda r=r, n=n: old.get(r, n)) for r, n in old.names()]
    bad = 0
    for name, get in cases:
        if not name.startswith(prefix):
            continue
        try:
            faults = check(name, get())
        except Exception as e:
            faults = [f'{type(e).__name__}: {e}']
        bad += bool(faults)
        print(f'{"FAIL" if faults else "ok  "} {name}')
        for fault in faults[:8]:
            print(f'     {fault:.600}')
    print(f'{bad} cases failed')
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
