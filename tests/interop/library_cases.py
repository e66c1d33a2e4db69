#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of other libraries; with_libraries makes the environment in which this runs, and copies of what is written here.

usage: library_cases.py write NAME ROOT           a checkpoint, in a directory of ROOT: a step
       library_cases.py compare NAME FIRST COPY...    each is ROOT/STEP: what the library restores from the copies, and from the first one

A case is a class with the name of the step, write(step) and restore(step), which gives a tree of arrays and numbers.
"""

import json
import os
import pathlib
import sys
import traceback

os.environ.update(JAX_PLATFORMS='cpu', KERAS_BACKEND='jax', TF_CPP_MIN_LOG_LEVEL='3', CUDA_VISIBLE_DEVICES='')

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import orbax.checkpoint as ocp  # noqa: E402

CASES = {}


def case(cls):
    CASES[cls.__name__.lower().replace('_', '-')] = cls
    return cls


def template(tree):
    """The argument of a restore of the same structure."""
    return jax.tree.map(lambda x: ocp.utils.to_shape_dtype_struct(x) if isinstance(x, jax.Array) else x, tree)


class Managed:
    """A tree that a CheckpointManager saves in the item `default`."""

    step = '3'

    @classmethod
    def write(cls, step):
        with ocp.CheckpointManager(step.parent) as manager:
            manager.save(int(step.name), args=ocp.args.StandardSave(cls.tree()), custom_metadata={'library': cls.__name__})

    @classmethod
    def restore(cls, step):
        with ocp.CheckpointManager(step.parent) as manager:
            restored = manager.restore(int(step.name), args=ocp.args.StandardRestore(template(cls.tree())))
            return restored, manager.metadata(int(step.name)).custom_metadata


@case
class Brax:
    step = '000000000010'

    @staticmethod
    def made():
        from brax.training.acme import running_statistics, specs
        from brax.training.agents.ppo import networks
        factory = networks.make_ppo_networks
        made = factory(5, 2)
        policy, value = (net.init(jax.random.key(i)) for i, net in enumerate((made.policy_network, made.value_network)))
        return running_statistics.init_state(specs.Array((5,), jnp.dtype('float32'))), policy, value, factory

    @classmethod
    def write(cls, step):
        from brax.training import checkpoint
        *params, factory = cls.made()
        config = checkpoint.network_config(5, 2, True, factory)
        # load_config() has no place for an initializer that is None, as two are by default.
        for name in [name for name, value in config.network_factory_kwargs.items() if value is None]:
            del config.network_factory_kwargs[name]
        checkpoint.save(step.parent, int(step.name), tuple(params), config, 'ppo_network_config.json')

    @staticmethod
    def restore(step):
        from brax.training import checkpoint
        if beside(step, 'ppo_network_config.json') is None:
            return checkpoint.load(step), None
        config = checkpoint.load_config(step / 'ppo_network_config.json')
        return checkpoint.load(step), repr(sorted(config.to_dict().items(), key=str)).split(' at 0x')[0]


@case
class Keras:
    step = '0'

    @staticmethod
    def write(step):
        import keras
        keras.utils.set_random_seed(1)
        # Functional: of a Sequential without a name, load_model() of 3.15 silently leaves the weights as they are made.
        first = keras.Input((4,))
        hidden = keras.layers.BatchNormalization()(keras.layers.Dense(8, activation='relu')(first))
        model = keras.Model(first, keras.layers.Dense(3)(hidden))
        model.compile('adam', 'mse')
        x = np.linspace(-1, 1, 40, dtype=np.float32).reshape(10, 4)
        save = keras.callbacks.OrbaxCheckpoint(str(step.parent), save_on_background=False)
        model.fit(x, x[:, :3], epochs=1, verbose=0, callbacks=[save])

    @staticmethod
    def restore(step):
        """keras loads the latest one of a directory."""
        import keras
        model = keras.saving.load_model(str(step.parent))
        return model.get_state_tree(), model.to_json()


@case
class Gemma:
    step = '7'

    @staticmethod
    def write(step):
        from gemma import gm
        params = {f'layer_{i}': {'attn': {'q_einsum': {'w': jax.random.normal(jax.random.key(i), (2, 8, 4), jnp.bfloat16)}},
                                 'pre_attention_norm': {'scale': jnp.full(8, i, jnp.bfloat16)}} for i in range(12)}
        params = {**params, 'embedder': {'input_embedding': jnp.ones((16, 8), jnp.bfloat16)}, 'final_norm': {'scale': jnp.zeros(8)}}
        gm.ckpts.save_params(params, step, wait_until_finished=True)

    @staticmethod
    def restore(step):
        from gemma import gm
        return gm.ckpts.load_params(step)


@case
class Kauldron:
    step = 'ckpt_4'

    @staticmethod
    def made():
        import optax
        from kauldron import kd
        params = {'dense': {'kernel': jnp.arange(12.0).reshape(3, 4), 'bias': jnp.ones(4)}}
        return kd.train.TrainState(step=jnp.asarray(4), params=params, collections={'stats': {'mean': jnp.zeros(4)}},
                                   opt_state=optax.adam(1e-3).init(params))

    @staticmethod
    def checkpointer(step):
        from kauldron import kd
        return kd.ckpts.Checkpointer(workdir=step.parent.parent, save_interval_steps=1, fast=False)

    @classmethod
    def write(cls, step):
        checkpointer = cls.checkpointer(step)
        checkpointer.save(cls.made(), step=4, force=True)
        checkpointer.wait_until_finished()

    @classmethod
    def restore(cls, step):
        return cls.checkpointer(step).restore(cls.made(), step=int(step.name.partition('_')[2]), donate=False)


@case
class Equinox(Managed):
    @staticmethod
    def tree():
        import equinox as eqx
        return eqx.filter(eqx.nn.MLP(3, 2, 4, 2, key=jax.random.key(0)), eqx.is_array)


@case
class Optax(Managed):
    @staticmethod
    def tree():
        import optax
        params = {'w': jnp.arange(6.0).reshape(2, 3), 'layers': [{'b': jnp.ones(2, jnp.bfloat16)} for _ in range(11)]}
        optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.inject_hyperparams(optax.adamw)(learning_rate=1e-3))
        masked = optax.masked(optax.sgd(1e-2, momentum=0.9), {'w': True, 'layers': False})
        return {'params': params, 'opt': optimizer.init(params), 'masked': masked.init(params), 'key': jax.random.key(3), 'step': 5}


@case
class Numpyro(Managed):
    @staticmethod
    def tree():
        import numpyro
        import numpyro.distributions as dist
        from numpyro.infer import SVI, Trace_ELBO, autoguide

        def model(x):
            w = numpyro.sample('w', dist.Normal(0, 1).expand([3]).to_event(1))
            numpyro.sample('y', dist.Normal(x @ w, 1), obs=jnp.ones(4))
        svi = SVI(model, autoguide.AutoNormal(model), numpyro.optim.Adam(1e-2), Trace_ELBO())
        x = jnp.arange(12.0).reshape(4, 3)
        return svi.update(svi.init(jax.random.key(1), x), x)[0]


@case
class Grain:
    step = '3'

    @staticmethod
    def data():
        import grain
        return iter(grain.MapDataset.range(100).shuffle(seed=2).batch(4).to_iter_dataset())

    @classmethod
    def write(cls, step):
        import grain
        data = cls.data()
        for _ in range(5):
            next(data)
        with ocp.CheckpointManager(step.parent) as manager:
            manager.save(int(step.name), args=ocp.args.Composite(
                state=ocp.args.StandardSave({'w': jnp.arange(3.0)}), data=grain.checkpoint.CheckpointSave(data)))

    @classmethod
    def restore(cls, step):
        import grain
        data = {} if cls.without(step) else {'data': grain.checkpoint.CheckpointRestore(cls.data())}
        with ocp.CheckpointManager(step.parent) as manager:
            got = manager.restore(int(step.name), args=ocp.args.Composite(state=ocp.args.StandardRestore(template({'w': jnp.arange(3.0)})), **data))
        return got['state'], [np.asarray(next(got['data'])) for _ in range(3)] if data else None

    @staticmethod
    def without(step):
        """load() returns the content of a JSON item, of which save() makes a tree: not the file of grain."""
        return 'load_and_save' in step.parts and not list(step.glob('data/process_*.json'))


# ---- layouts that are not Orbax's: what pytreefs makes of them is, and Orbax restores it ----

def by_name(tree):
    """{name: array}: Orbax gives lists where another library has names of numbers."""
    def key(entry):
        return str(next(getattr(entry, a) for a in ('key', 'idx', 'name') if hasattr(entry, a)))
    return {'/'.join(map(key, path)): np.asarray(value) for path, value in jax.tree_util.tree_flatten_with_path(tree)[0]}


def of_orbax(step):
    """A step with items, or a tree, as Orbax restores it; None where it finds neither."""
    if (step / '_METADATA').exists():
        return ocp.PyTreeCheckpointer().restore(step)
    items = sorted(item.parent.name for item in step.glob('*/_METADATA'))
    return {name: ocp.PyTreeCheckpointer().restore(step / name) for name in items} if items else None


def in_place(step, names):
    """by_name() of what was copied, which may have become the item `default`."""
    found = of_orbax(step)
    if found is None:
        return None
    found = by_name(found)
    return {name.removeprefix('default/'): value for name, value in found.items()}


def beside(step, name):
    """A file that lies beside the arrays; load() returns none, so save() of its result has none."""
    return None if 'load_and_save' in step.parts and not (step / name).exists() else (step / name).read_text()


@case
class Levanter:
    """A directory for each array, as its tensorstore_serialization.py makes them with jax's manager, and metadata.json."""

    step = 'step-10'
    tree = {'model': {'embeddings': {'token_embeddings': np.arange(40, dtype=np.float32).reshape(10, 4)},
                      'transformer': {'layers': {'stacked': {'w': np.ones((2, 4, 4), np.float32)}}}},
            'optimizer': {'mu': {'w': np.full((2, 4, 4), 0.5, np.float32)}, 'count': np.asarray(7, np.int32)}}

    @classmethod
    def write(cls, step):
        from jax.experimental.array_serialization import serialization
        arrays = by_name(cls.tree)
        manager = serialization.GlobalAsyncCheckpointManager()
        specs = [{'driver': 'zarr', 'kvstore': {'driver': 'file', 'path': str(step / name)}} for name in arrays]
        manager.serialize([jnp.asarray(a) for a in arrays.values()], specs, on_commit_callback=lambda: None)
        manager.wait_until_finished()
        (step / 'metadata.json').write_text(json.dumps({'step': 10, 'timestamp': '2026-01-01T00:00:00', 'is_temporary': False}))

    @classmethod
    def restore(cls, step):
        import tensorstore as ts
        names = by_name(cls.tree)
        got = in_place(step, names)
        if got is None:
            specs = {name: {'driver': 'zarr', 'kvstore': {'driver': 'file', 'path': str(step / name)}} for name in names}
            got = {name: ts.open(spec, open=True).result().read().result() for name, spec in specs.items()}
        return {name: got[name] for name in sorted(names)}, beside(step, 'metadata.json')


@case
class Jax_Paths:
    """jax.experimental.array_serialization, one database for each directory."""

    step = '5'
    tree = {'step': np.asarray(9, np.int32), 'params': {'w': np.arange(6, dtype=np.float32).reshape(2, 3), 'b': np.ones(3, np.float32)},
            'opt': {'mu': {'dense': {'kernel': np.zeros((2, 3), np.float32)}}}}

    @staticmethod
    def manager():
        from jax.experimental.array_serialization import serialization
        return serialization.GlobalAsyncCheckpointManager()

    @classmethod
    def write(cls, step):
        arrays = by_name(cls.tree)
        manager = cls.manager()
        manager.serialize_with_paths([jnp.asarray(a) for a in arrays.values()], [str(step / name) for name in arrays],
                                     on_commit_callback=lambda: None)
        manager.wait_until_finished()

    @classmethod
    def restore(cls, step):
        names = by_name(cls.tree)
        got = in_place(step, names)
        if got is None:
            sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
            read = cls.manager().deserialize_with_paths([sharding] * len(names), [str(step / name) for name in names])
            got = dict(zip(names, map(np.asarray, read)))
        return {name: got[name] for name in sorted(names)}


@case
class Jax_Pytree:
    """jax.experimental.array_serialization.pytree_serialization: arrays by number, and pytreedef.json."""

    step = '6'
    tree = {'w': np.arange(6, dtype=np.float32).reshape(2, 3), 'layers': [np.full(2, i, np.float32) for i in range(12)]}

    @classmethod
    def write(cls, step):
        from jax.experimental.array_serialization import pytree_serialization
        pytree_serialization.save(jax.tree.map(jnp.asarray, cls.tree), step)

    @classmethod
    def restore(cls, step):
        from jax.experimental.array_serialization import pytree_serialization
        got = of_orbax(step)
        if got is None:
            sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
            read = pytree_serialization.load(step, jax.tree.map(lambda _: sharding, pytree_serialization.load_pytreedef(step)))
            arrays = jax.tree.leaves(read)
        else:
            arrays = [got['array_store'][str(i)] for i in range(len(got['array_store']))]
        return list(map(np.asarray, arrays)), beside(step, 'pytreedef.json')


# ---- comparing ----

def leaves(tree, plain_keys=False):
    """[(path, type of the leaf, bytes)]: what must be equal. load() returns the integers of keys, which are plain arrays then."""
    out = []
    for path, x in jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: x is None)[0]:
        if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            kind, x = f'key {x.dtype}', jax.random.key_data(x)
            kind = type(x).__name__ if plain_keys else kind
        else:
            kind = type(x).__name__
        a = np.asarray(x)
        out.append((jax.tree_util.keystr(path), kind, str(a.dtype), a.shape, a.tobytes() if a.dtype != object else repr(x)))
    return out


def differences(first, copy, by_load=False):
    """By load(), files that belong to no tree stay behind: None stands for them."""
    if by_load and isinstance(copy, tuple) and len(copy) == 2 and copy[1] is None:
        first, copy = first[0], copy[0]
    if jax.tree.structure(first) != jax.tree.structure(copy):
        yield f'{jax.tree.structure(first)}\n  is\n  {jax.tree.structure(copy)}'
    one, other = leaves(first, by_load), leaves(copy, by_load)
    if len(one) != len(other):
        yield f'{len(one)} leaves are {len(other)}'
    for a, b in zip(one, other):
        if a != b:
            yield f'{a[:4]} is {b[:4]}' if a[:4] != b[:4] else f'{a[0]}: other values'


def compare(name, first, copies):
    restore = CASES[name].restore
    want, failed = restore(pathlib.Path(first)), 0
    print(f'{name}: {len(leaves(want))} leaves')
    for copy in map(pathlib.Path, copies):
        try:
            found = list(differences(want, restore(copy), 'load_and_save' in copy.parts))
        except Exception as e:
            found = [''.join(traceback.format_exception(e)[-3:])]
        print(f'{name}: {copy}: {"same" if not found else "DIFFERS"}', *found[:5], sep='\n  ')
        failed += bool(found)
    return failed


if __name__ == '__main__':
    if sys.argv[1] == 'list':
        print(*CASES)
    elif sys.argv[1] == 'write':
        cls = CASES[sys.argv[2]]
        cls.write(pathlib.Path(sys.argv[3]) / cls.step)
        print(cls.step)
    else:
        sys.exit(bool(compare(sys.argv[2], sys.argv[3], sys.argv[4:])))
