# SPDX-License-Identifier: Apache-2.0
"""Checkpoints whose file names arrays that lie in directories beside it: those of flax with arrays of many hosts, written by flax
itself, and those of T5X, written by the recipe of its version 3 with flax and TensorStore."""

import os
import pathlib
from unittest import mock

import ml_dtypes
import numpy as np
import tensorstore as ts

from lib import expect


def tree():
    rng = np.random.default_rng(5)
    return {'params': {'w': rng.standard_normal((6, 4)).astype(np.float32), 'b': rng.standard_normal(4).astype(ml_dtypes.bfloat16),
                       'table': rng.integers(0, 99, (3, 2)).astype(np.int32)},
            'step': np.int32(3), 'name': 'run 7'}


def expected(stored=tree):
    return expect.flatten(stored())


def flax_multihost(directory, step=1, stored=tree):
    """As flax.training.checkpoints saves on many hosts: the arrays below "params" in checkpoint_<step>_gda."""
    import jax
    from flax.training import checkpoints
    from jax.experimental.array_serialization import serialization
    saved = stored()
    saved['params'] = jax.tree.map(jax.numpy.asarray, saved['params'])
    # On one host every array is addressable; here all of JAX's count as those of many.
    manager = serialization.GlobalAsyncCheckpointManager()
    with mock.patch.object(checkpoints, '_is_multiprocess_array', lambda value: isinstance(value, jax.Array)), \
            checkpoints.config.temp_flip_flag('use_orbax_checkpointing', False):
        checkpoints.save_checkpoint_multiprocess(str(directory), saved, step, keep=9, gda_manager=manager)
        manager.wait_until_finished()


def t5x(directory, stored=tree, driver='file', old_path=False, changes=None):
    """As t5x.checkpoints.Checkpointer writes a step: TensorStore specs in the msgpack file, and an array of zarr, compressed with
    gzip, in a directory for each. old_path: as TensorStore before 0.1.14 spelled them. changes: other members of each spec."""
    from flax import serialization
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True)

    def put(name, array):
        metadata = {'shape': list(array.shape), 'chunks': [max(n // 2, 1) for n in array.shape],
                    'compressor': {'id': 'gzip', 'level': 1}}
        spec = {'driver': 'zarr', 'dtype': array.dtype.name, 'metadata': metadata}
        store = ts.open(spec | {'kvstore': {'driver': 'file', 'path': str(directory / name)}}, create=True, open=True).result()
        store.write(array).result()
        kvstore = {'driver': driver} | ({'bucket': 't5x-dummy-bucket'} if driver == 'gcs' else {})
        if old_path:
            spec |= {'kvstore': kvstore, 'path': name}
        else:
            spec = ts.Spec(spec | {'kvstore': {'driver': 'file', 'path': name}}).to_json()
            spec['kvstore'] |= kvstore
        return spec | (changes or {})

    def walk(node, path):
        if isinstance(node, dict):
            return {k: walk(v, path + [k]) for k, v in node.items()}
        return put('.'.join(['target'] + path), node) if isinstance(node, np.ndarray) and node.ndim else node

    document = {'version': 3, 'optimizer': {'target': walk(stored()['params'], []), 'state': {'step': stored()['step']}}}
    with open(os.path.join(directory, 'checkpoint'), 'wb') as f:
        f.write(serialization.msgpack_serialize(document))


def expected_t5x(stored=tree):
    return expect.flatten({'version': 3, 'optimizer': {'target': stored()['params'], 'state': {'step': stored()['step']}}})
