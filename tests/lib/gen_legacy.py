# SPDX-License-Identifier: Apache-2.0
"""Cases: forms that no release writes any more, made by hand from the format's text.

What releases themselves wrote is under tests/data/old.
"""

import json
import shutil

from lib import jaxenv  # noqa: F401  before jax

import ml_dtypes
import msgpack
import numpy as np

from lib import expect
from lib.case import Case, case
from lib.gen_matrix import save, state, values


def ext_array(a, code=1):
    data = np.ascontiguousarray(a).tobytes()
    return msgpack.ExtType(code, msgpack.packb([list(a.shape), a.dtype.name, data], use_bin_type=True))


def chunked(a, pieces):
    flat = a.reshape(-1)
    parts = np.array_split(flat, pieces)
    return {'__msgpack_chunked_array__': True,
            'shape': {str(i): n for i, n in enumerate(a.shape)},
            'chunks': {str(i): ext_array(p) for i, p in enumerate(parts)}}


@case()
def aggregate_by_hand(d):
    """One msgpack file, every form of value in it, and nothing else."""
    w = values((5, 3), np.float32, 1)
    doc = {
        'array': ext_array(w), 'bf': ext_array(values((4,), ml_dtypes.bfloat16, 2)),
        'f16': ext_array(values((2, 2), np.float16, 3)), 'bool': ext_array(np.array([True, False])),
        'rank0': ext_array(np.asarray(np.int32(9))), 'long': ext_array(np.arange(5000, dtype=np.int16)),
        'c64': ext_array(np.array([1 + 2j], np.complex64)),
        'complex': msgpack.ExtType(2, msgpack.packb([1.5, -2.0])),
        'npscalar': ext_array(np.asarray(np.float32(2.5)), 3),
        'chunked': chunked(np.arange(1000, dtype=np.int32).reshape(10, 100), 12),
        'int': 7, 'neg': -8, 'uint': 2 ** 64 - 1, 'float': 0.25, 'yes': True, 'no': False,
        'nil': None, 'text': 'caf\u00e9', 'empty text': '',
        'list': [1, [2, ext_array(w + 1)], {'in': 3}], 'dict': {'a': {'b': ext_array(w + 2)}},
        'tuple': msgpack.ExtType(4, msgpack.packb([5, 'six', ext_array(w + 3)], use_bin_type=True)),
        'no items': {}, 'no elements': [],
    }
    (d / 'ckpt').mkdir()
    (d / 'ckpt' / 'checkpoint').write_bytes(msgpack.packb(doc, use_bin_type=True))
    tree = expect.flatten({
        'array': w, 'bf': values((4,), ml_dtypes.bfloat16, 2), 'f16': values((2, 2), np.float16, 3),
        'bool': np.array([True, False]), 'rank0': np.asarray(np.int32(9)),
        'long': np.arange(5000, dtype=np.int16), 'c64': np.array([1 + 2j], np.complex64),
        'complex': 1.5 - 2j, 'npscalar': np.float32(2.5),
        'chunked': np.arange(1000, dtype=np.int32).reshape(10, 100),
        'int': 7, 'neg': -8, 'uint': 2 ** 64 - 1, 'float': 0.25, 'yes': True, 'no': False,
        'nil': None, 'text': 'caf\u00e9', 'empty text': '',
        'list': [1, [2, w + 1], {'in': 3}], 'dict': {'a': {'b': w + 2}}, 'tuple': [5, 'six', w + 3],
        'no items': {}, 'no elements': []})
    tree.kinds['tuple',] = 'any'
    tree.recorded = False
    return Case(trees={'': tree})


def _placeholders(prefix, tree):
    flat = expect.flatten(tree)

    def walk(path, node):
        if isinstance(node, dict):
            return {k: walk(path + (k,), v) for k, v in node.items()}
        if isinstance(node, (list, tuple)):
            return [walk(path + (str(i),), v) for i, v in enumerate(node)]
        return None if node is None else prefix + '.'.join(path)

    return walk((), tree), flat


def _aggregated(d, prefix, **options):
    tree = {k: v for k, v in state().items() if k not in ('name', 'text', 'empty', 'void', 'nothing')}
    doc, flat = _placeholders(prefix, tree)
    save('v0', d, tree, **options)
    item = d / 'ckpt'
    for name in ('_METADATA', '_CHECKPOINT_METADATA', '_sharding', 'commit_success.txt'):
        (item / name).unlink(missing_ok=True)
    shutil.rmtree(item / 'array_metadatas', ignore_errors=True)
    (item / 'checkpoint').write_bytes(msgpack.packb(doc, use_bin_type=True))
    return Case(trees={'': flat.untyped()})


case('aggregate-placeholders')(lambda d: _aggregated(d, 'PLACEHOLDER://'))
case('aggregate-placeholders-perleaf')(lambda d: _aggregated(d, 'PLACEHOLDER://', ocdbt=False))
case('aggregate-older-prefix')(lambda d: _aggregated(d, 'AGGREGATED://', ocdbt=False))


@case()
def empty_directories_are_noise(d):
    """0.3.x to 0.4.3 made one per parameter beside an OCDBT database, 0.5.x one per empty node."""
    made = save('v0', d, state())
    for path in list(made.trees[''].leaves)[::2]:
        (d / 'ckpt' / '.'.join(path)).mkdir()
    return made


@case()
def strings_per_leaf(d):
    """0.3.x: each string has a file of its own, with Python's spacing."""
    a = values((3, 3), np.float32, 1)
    save('v0', d, {'w': a, 'deep': {'b': a + 1}}, ocdbt=False)
    item = d / 'ckpt'
    for name in ('_METADATA', '_CHECKPOINT_METADATA'):
        (item / name).unlink()
    for name, text in (('name', 'run \u00e9'), ('deep.text', '')):
        (item / name).mkdir()
        (item / name / '_strings.json').write_text(json.dumps({name: text}, indent=1))
    tree = expect.flatten({'w': a, 'deep': {'b': a + 1, 'text': ''}, 'name': 'run \u00e9'})
    return Case(trees={'': tree.untyped()})


@case()
def leaf_called_checkpoint(d):
    """A directory called `checkpoint` is a leaf, no aggregate file."""
    return save('v0', d, {'checkpoint': values((4, 2), np.float32, 1), 'w': 3}, ocdbt=False)


@case()
def zero_chunks_not_stored(d):
    """Before 0.10 all-zero chunks of zarr v3 were left out, and nothing says that all were stored."""
    tree = {'zeros': np.zeros((8, 8), np.float32), 'w': values((4, 4), np.float32, 1)}
    made = save('v0', d, tree, ocdbt=False, zarr3=True)
    (d / 'ckpt' / 'zeros' / 'c' / '0' / '0').unlink()
    path = d / 'ckpt' / '_METADATA'
    doc = json.loads(path.read_text())
    del doc['store_array_data_equal_to_fill_value']
    path.write_text(json.dumps(doc))
    return made


@case()
def chunk_gone(d):
    """The same hole where the metadata says that every chunk was stored: that leaf is EIO."""
    tree = {'zeros': np.zeros((8, 8), np.float32), 'w': values((4, 4), np.float32, 1)}
    made = save('v0', d, tree, ocdbt=False, zarr3=True)
    (d / 'ckpt' / 'zeros' / 'c' / '0' / '0').unlink()
    del made.trees[''].leaves['zeros',]
    made.notes['broken'] = ['zeros.npy']
    return made
