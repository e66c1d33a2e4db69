# SPDX-License-Identifier: Apache-2.0
"""Run inside the environment of one Orbax release: writes the small tree in the ways it can.

usage: old_writer.py RELEASE OUT

make_old.py calls it. OUT gets one directory per case and expected.json, which names the tree of each.
"""

import collections
import json
import os
import pathlib
import socket
import sys
import traceback

os.environ.setdefault('JAX_PLATFORMS', 'cpu')
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
import orbax.checkpoint as ocp  # noqa: E402

from lib import expect  # noqa: E402

Moments = collections.namedtuple('Moments', 'mu nu')


def version_of(text):
    return tuple(int(x) for x in text.split('.'))


def noise(shape, dtype, seed):
    """Arbitrary bits that are not a NaN; enough of them not to fit inside a B+tree node (1 KiB)."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def tree_with_slashes():
    """Keys of modules as Haiku has them. Names with '~' are of host arrays: 0.4.0 fails for those of JAX."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ('data',))
    named = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('data'))
    return {
        'transformer/layer_0': {'w': jax.device_put(noise((20, 18), np.float32, 11), named),
                                'b': jnp.asarray(noise((18,), ml_dtypes.bfloat16, 12))},
        'transformer/layer_0/norm': {'scale': jnp.asarray(noise((3,), np.float32, 13))},
        'enc/~/linear': {'w': noise((4, 3), np.float64, 14)},
        'a': {'b/c': jnp.asarray(np.arange(4, dtype=np.int32))},
        'dense': {'k': jnp.asarray(noise((5,), np.float32, 15))},
        'count': 7,
    }


def small_tree(strings, empties):
    tree = {
        'params': {
            'dense': {'kernel': jnp.asarray(noise((4, 6), np.float32, 1)),
                      'bias': jnp.asarray(noise((6,), ml_dtypes.bfloat16, 2))},
            'embed': noise((20, 18), np.float32, 3),
            'zeros': jnp.zeros((3, 4), jnp.float32),
        },
        'opt': [Moments(mu=jnp.asarray(noise((2, 3), np.float32, 4)),
                        nu=noise((2, 3), np.float64, 5)),
                jnp.asarray(np.arange(6, dtype=np.int32).reshape(3, 2))],
        'pair': (noise((5,), np.float16, 6), np.arange(4, dtype=np.uint8)),
        'mask': np.array([True, False, True]),
        'count': 7,
        'rate': 0.1,
    }
    if strings:
        tree['name'] = 'run \u00e9 7'
    if empties:
        tree.update(none=None, empty={}, void=[])
    return tree


class Writer:
    def __init__(self, release, out):
        self.v = version_of(release)
        self.out = pathlib.Path(out)
        self.trees = {}
        self.cases = {}
        self.tree = small_tree(strings=self.v >= (0, 3), empties=self.v >= (0, 3))
        self.trees['tree'] = expect.flatten(self.tree)

    def case(self, name, tree='tree', source='item', item=''):
        """A case directory; item is the path of the tree below it."""
        self.cases[name] = {'tree': tree, 'source': source, 'item': item}
        return self.out / name

    def handler(self, **options):
        return ocp.PyTreeCheckpointHandler(**options)

    def save(self, path, tree, handler, **args):
        checkpointer = ocp.Checkpointer(handler)
        checkpointer.save(path.resolve(), tree, **args)

    def pytree(self):
        """Save as PyTreeCheckpointer of that release does by default."""
        ocp.PyTreeCheckpointer().save(self.case('pytree').resolve(), self.tree)

    def per_leaf(self):
        self.save(self.case('perleaf'), self.tree, self.handler(use_ocdbt=False))

    def zarr3(self):
        self.save(self.case('zarr3'), self.tree, self.handler(use_zarr3=True))

    def zarr3_per_leaf(self):
        self.save(self.case('zarr3_perleaf'), self.tree, self.handler(use_zarr3=True, use_ocdbt=False))

    def ocdbt(self):
        """0.1.7 to 0.3.x: one database at the top, served by a coordinator."""
        from orbax.checkpoint import type_handlers
        if self.v >= (0, 3):
            type_handlers.start_coordinator_server_and_create_context()
        else:
            jax.distributed.initialize('127.0.0.1:%d' % free_port(), 1, 0)
            context, self.coordinator = type_handlers.create_coordinator_server_and_context()
            type_handlers.register_standard_handlers_with_options(use_ocdbt=True, ts_context=context)
        tree = small_tree(strings=False, empties=self.v >= (0, 3))  # strings have no place there yet
        self.trees['nostring'] = expect.flatten(tree)
        self.save(self.case('ocdbt', 'nostring'), tree, self.handler(use_ocdbt=True))

    def slashes(self):
        """0.3.5 to 0.4.1: one database for each directory in names."""
        from orbax.checkpoint import type_handlers
        if hasattr(type_handlers, 'start_coordinator_server_and_create_context'):
            type_handlers.start_coordinator_server_and_create_context()
        tree = tree_with_slashes()
        self.trees['slashes'] = expect.flatten(tree)
        self.save(self.case('slashes', 'slashes'), tree, self.handler(use_ocdbt=True))

    def standard(self):
        """The same with a handler that wrote `_METADATA` before PyTreeCheckpointHandler did."""
        tree = tree_with_slashes()
        self.trees['slashes'] = expect.flatten(tree)
        self.save(self.case('standard', 'slashes'), tree, ocp.StandardCheckpointHandler())

    def aggregate(self):
        """Values inside the msgpack file."""
        save_args = jax.tree_util.tree_map(lambda _: ocp.SaveArgs(aggregate=True), self.tree)
        save_args['params']['embed'] = ocp.SaveArgs()
        self.save(self.case('aggregate'), self.tree, self.handler(), save_args=save_args)

    def subchunks(self):
        """zarr v3 shards of several inner chunks, 0.4.5 to 0.6.3."""
        tree = {'w': jnp.asarray(noise((40, 8), np.float32, 7))}
        args = {'w': ocp.SaveArgs(write_chunk_shape=(20, 8), read_chunk_shape=(10, 4))}
        self.trees['sharded'] = expect.flatten(tree)
        self.save(self.case('subchunks', 'sharded'), tree, self.handler(use_zarr3=True), save_args=args)

    def manager(self):
        """A root with two steps, with a JSON item beside the tree where the release has items."""
        tree = {k: self.tree[k] for k in ('count', 'rate', 'opt')}
        self.trees['manager'] = expect.flatten(tree)
        root = self.case('manager', 'manager', source='root', item='state')
        if self.v >= (0, 5, 3):
            with ocp.CheckpointManager(root.resolve(), item_names=('state', 'config')) as manager:
                for step in (1, 2):
                    manager.save(step, args=ocp.args.Composite(
                        state=ocp.args.PyTreeSave(tree),
                        config=ocp.args.JsonSave({'layers': 2, 'step': step})))
                manager.wait_until_finished()
            return
        manager = ocp.CheckpointManager(root.resolve(), {
            'state': ocp.Checkpointer(self.handler()),
            'config': ocp.Checkpointer(ocp.JsonCheckpointHandler())})
        for step in (1, 2):
            manager.save(step, {'state': tree, 'config': {'layers': 2, 'step': step}})

    def flax(self):
        """flax.training.checkpoints: its own file per step, and the same call through Orbax."""
        from flax import config as flax_config
        from flax.training import checkpoints
        tree = {'params': {'w': noise((3, 5), np.float32, 8), 'b': noise((5,), ml_dtypes.bfloat16, 9)},
                'opt': [np.arange(3, dtype=np.int32), noise((2,), np.float64, 10)],
                'pair': (np.arange(2, dtype=np.uint8), np.float32(2.5)),
                'z': np.array([1 + 2j, 3 - 1j], np.complex64),
                'count': 3, 'rate': 0.5}
        stringly = dict(tree, opt=dict(enumerate(tree['opt'])), pair=dict(enumerate(tree['pair'])))
        self.trees['flax'] = expect.flatten(stringly)
        flax_config.update('flax_use_orbax_checkpointing', False)
        path = self.case('flax', 'flax', 'root', '')
        for step in (3, 12):
            checkpoints.save_checkpoint(str(path.resolve()), tree, step, keep=9)
        flax_config.update('flax_use_orbax_checkpointing', True)
        self.trees['flax_orbax'] = expect.flatten(tree)
        path = self.case('flax_orbax', 'flax_orbax', 'root', '')
        checkpoints.save_checkpoint(str(path.resolve()), tree, 3, keep=9,
                                    orbax_checkpointer=ocp.PyTreeCheckpointer())

    def run(self, names):
        self.out.mkdir(parents=True)
        for name in names:
            try:
                getattr(self, name)()
            except Exception:
                traceback.print_exc()
                sys.exit(f'{name}: cannot be written by this release')
        expect.dump(self.trees, self.out / 'expected.json')
        with open(self.out / 'cases.json', 'w') as f:
            json.dump(self.cases, f, indent=1, sort_keys=True)
            f.write('\n')


if __name__ == '__main__':
    Writer(sys.argv[1], sys.argv[2]).run(sys.argv[3:])
