# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that jax.experimental.array_serialization writes: an array at each path, and for each directory of paths one
database (or with ocdbt=False a directory for each array)."""

import os

import ml_dtypes
import numpy as np

from lib import expect


def arrays():
    rng = np.random.default_rng(26)
    return {'step': np.int32(7),
            'params/kernel': rng.standard_normal((20, 30)).astype(np.float32),
            'params/bias': rng.standard_normal(3).astype(ml_dtypes.bfloat16),
            'opt/mu/dense/kernel': rng.standard_normal((3, 4)).astype(np.float32),
            'opt/mu/dense/bias': np.arange(4, dtype=np.int32)}


def tree_of(named):
    """The tree that a mount shows of them; a name may be a tuple of keys."""
    tree = {}
    for name, array in named.items():
        *path, last = name.split('/') if isinstance(name, str) else name
        node = tree
        for key in path:
            node = node.setdefault(key, {})
        node[last] = np.asarray(array)
    return expect.flatten(tree).untyped()


def specs(directory, names, driver, ocdbt=True):
    from jax.experimental.array_serialization import tensorstore_impl
    return [tensorstore_impl.get_tensorstore_spec(os.path.join(directory, name), ocdbt=ocdbt, driver=driver) for name in names]


def save(directory, named, driver='zarr3', ocdbt=True):
    import jax
    from jax.experimental.array_serialization import serialization
    manager = serialization.GlobalAsyncCheckpointManager()
    manager.serialize([jax.numpy.asarray(a) for a in named.values()], specs(directory, named, driver, ocdbt),
                      on_commit_callback=lambda: None)
    manager.wait_until_finished()


def load(directory, names, driver='zarr3', ocdbt=True):
    """As JAX reads them: name -> array."""
    import jax
    from jax.experimental.array_serialization import serialization
    manager = serialization.GlobalAsyncCheckpointManager()
    one = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    got = manager.deserialize([one] * len(names), specs(directory, names, driver, ocdbt))
    return dict(zip(names, map(np.asarray, got)))
