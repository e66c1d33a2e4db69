# SPDX-License-Identifier: Apache-2.0
"""The guides of Orbax's documentation as programs: each runs with Orbax alone and after pytreefs.orbax.install(), with the same result.

    python -m lib.orbax_guides DIRECTORY

prints a line for each section of a guide, as docs/jax.md has it: which arrays were written and read by us. A process of its own, since
the number of devices is chosen once."""

import os
import pathlib
import shutil
import sys
import warnings

os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=8'
os.environ['JAX_PLATFORMS'] = 'cpu'

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from orbax.checkpoint.experimental import v1

import pytreefs.orbax
from lib.placing import differences

MESH = Mesh(np.array(jax.devices()), ('model',))
SHARDED, REPLICATED = NamedSharding(MESH, P('model')), NamedSharding(MESH, P())
STATE = {'a': jax.device_put(jnp.arange(16, dtype=jnp.int32), SHARDED), 'b': jax.device_put(jnp.ones(16), SHARDED)}
HOST = {'layer0': {'kernel': np.ones((8, 8), np.float32), 'bias': np.ones(8, np.float32)}}
PARTS = {'params': {'layer1': {'kernel': np.arange(8), 'bias': np.arange(8) + 1}, 'layer2': {'kernel': np.arange(8) + 2, 'bias': np.arange(8) + 3}},
         'opt_state': [np.arange(8) + 4, np.arange(8) + 5], 'step': 101}
SECTIONS = []       # guide, section, function


def section(guide, title):
    def add(function):
        SECTIONS.append((guide, title, function))
        return function
    return add


def abstract(tree, **how):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(how.get('shape', x.shape), how.get('dtype', x.dtype), sharding=how.get('sharding', x.sharding)), tree)


def refusal(call, *args):
    """The text of what a call raises."""
    try:
        call(*args)
    except Exception as e:
        return str(e).split(':')[0]
    raise AssertionError('it was not refused')


def saved(at, tree, **how):
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**how)) as c:
        c.save(at, args=ocp.args.PyTreeSave(tree))
    return at


def restored(at, *args, **how):
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as c:
        return c.restore(at, args=ocp.args.PyTreeRestore(*args, **how))


# ---- v0 ----

@section('v0 PyTrees', 'save, restore by an abstract and by a concrete tree')
def v0_basic(at):
    with ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler()) as c:
        c.save(at / '1', args=ocp.args.StandardSave(STATE))
        c.wait_until_finished()
        return [c.restore(at / '1', args=ocp.args.StandardRestore(tree)) for tree in (abstract(STATE), STATE)] + [c.restore(at / '1')]


@section('v0 PyTrees', 'dtype, sharding, padding and truncation')
def v0_properties(at):
    with ocp.StandardCheckpointer() as c:
        c.save(at / '1', STATE)
        c.wait_until_finished()
        other = abstract(STATE, shape=(24,))
        return [c.restore(at / '1', abstract(STATE, dtype=np.dtype(np.int16))), c.restore(at / '1', abstract(STATE, sharding=REPLICATED)),
                c.restore(at / '1', other, strict=False), refusal(c.restore, at / '1', other)]


@section('v0 PyTrees', 'partial restore: placeholders and omission')
def v0_partial(at):
    saved(at / '1', PARTS)
    wanted = {'params': {'layer1': {'kernel': ..., 'bias': ...}, 'layer2': PARTS['params']['layer2']}, 'opt_state': [..., ...], 'step': 101}
    less = {'params': {'layer2': PARTS['params']['layer2']}, 'step': 101}
    return [restored(at / '1', item=wanted), refusal(lambda: restored(at / '1', item=less)), restored(at / '1', item=less, partial_restore=True)]


@section('v0 PyTrees', 'dtype and chunks of leaves when saving, types of leaves when restoring')
def v0_save_args(at):
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as c:
        c.save(at / '2', args=ocp.args.PyTreeSave(STATE, save_args={'a': ocp.SaveArgs(dtype=np.dtype(np.int16)), 'b': ocp.SaveArgs(chunk_byte_size=4)}))
    return [restored(at / '2'), restored(at / '2', restore_args={
        'a': ocp.RestoreArgs(restore_type=np.ndarray), 'b': ocp.ArrayRestoreArgs(dtype=np.dtype(np.int16), sharding=SHARDED)})]


@section('v0 PyTrees', 'transforms: names, new leaves, functions of values')
def v0_transforms(at):
    saved(at / '1', STATE)
    args = {'c': ocp.RestoreArgs(restore_type=np.ndarray)}
    return [restored(at / '1', item={'c': ..., 'd': np.arange(8)}, restore_args=args, transforms={'c': ocp.Transform(original_key='a')}),
            restored(at / '1', item={'c': np.zeros(16)}, restore_args=args, transforms={'c': ocp.Transform(original_key='b', value_fn=lambda x: x * 3)}),
            restored(at / '1', item={'b': np.zeros(16), 'e': np.ones(3)}, restore_args={'b': ocp.RestoreArgs(restore_type=np.ndarray)},
                     transforms={'e': ocp.Transform(use_fallback=True)})]


@section('v0 PyTrees', 'zarr v3, without compression, data files of a size')
def v0_formats(at):
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_zarr3=True, use_compression=False)) as c:
        c.save(at / '3', args=ocp.args.PyTreeSave(STATE, ocdbt_target_data_file_size=1 << 10))
    return [restored(at / '3')]


@section('v0 PyTrees', 'a directory for each array (`use_ocdbt=False`)')
def v0_directories(at):
    return [restored(saved(at / '1', STATE, use_ocdbt=False))]


@section('v0 asynchronous', '`AsyncCheckpointer`, and a `CheckpointManager` with and without')
def v0_async(at):
    with ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler()) as c:
        c.save(at / 'one', args=ocp.args.StandardSave(HOST))
    got = [ocp.StandardCheckpointer().restore(at / 'one')]
    for is_async in (True, False):
        with ocp.CheckpointManager(at / str(is_async), options=ocp.CheckpointManagerOptions(enable_async_checkpointing=is_async)) as m:
            for step in range(5):
                m.save(step, args=ocp.args.StandardSave({**HOST, **STATE, 'step': np.array(step)}))
            m.wait_until_finished()
            got += [m.all_steps(), m.restore(3, args=ocp.args.StandardRestore({**HOST, **STATE, 'step': np.array(0)}))]
    return got


# ---- v1 ----

@section('v1 PyTrees', 'save, load by an abstract and by a concrete tree, and by metadata')
def v1_basic(at):
    v1.save(at, STATE)
    return [v1.load(at), v1.load(at, abstract(STATE)), v1.load(at, STATE), v1.load(at, v1.pytree_metadata(at).metadata)]


@section('v1 PyTrees', 'dtype, sharding, types of leaves')
def v1_properties(at):
    v1.save(at / '1', STATE)
    v1.save(at / '2', {'a': np.asarray(12), 'b': 13.5, 'c': STATE['a']})
    return [v1.load(at / '1', abstract(STATE, dtype=np.dtype(np.int16))), v1.load(at / '1', abstract(STATE, sharding=REPLICATED)),
            v1.load(at / '2', {'a': float, 'b': int, 'c': np.empty(16, np.int32)})]


@section('v1 PyTrees', 'padding and truncation')
def v1_padding(at):
    v1.save(at, STATE)
    other, context = abstract(STATE, shape=(24,)), v1.Context()
    context.array.loading.enable_padding_and_truncation = True
    got = [refusal(v1.load, at, other)]
    with context:
        return [*got, v1.load(at, other)]


@section('v1 PyTrees', 'storage of leaves: dtypes, chunks, zarr v3, compression')
def v1_storage(at):
    options = v1.options.ArrayOptions.Saving.StorageOptions
    got = []
    for i, (name, value) in enumerate((('scoped_storage_options_creator', lambda path, x: options(dtype=np.dtype(np.int16)) if 'a' in str(path) else None),
                                       ('storage_options', options(dtype=np.dtype(np.float16), chunk_byte_size=8)), ('use_zarr3', False), ('use_compression', False))):
        context = v1.Context()
        setattr(context.array.saving, name, value)
        with context:
            v1.save(at / str(i), STATE)
        got.append(v1.load(at / str(i)))
    return got


@section('v1 PyTrees', 'a directory for each array (`use_ocdbt=False`)')
def v1_directories(at):
    context = v1.Context()
    context.array.saving.use_ocdbt = False
    with context:
        v1.save(at, STATE)
    return [v1.load(at)]


@section('v1 asynchronous', '`save_async`')
def v1_async(at):
    v1.save_async(at, {**HOST, **STATE}).result()
    return [v1.load(at)]


@section('v1 partial', 'load: placeholders and omission')
def v1_partial_load(at):
    v1.save(at, PARTS)
    wanted = {'params': {'layer1': {'kernel': ..., 'bias': ...}, 'layer2': PARTS['params']['layer2']}, 'opt_state': [..., ...], 'step': 101}
    less, context = {'params': {'layer2': PARTS['params']['layer2']}, 'step': 101}, v1.Context()
    context.pytree.loading.partial_load = True
    got = [v1.load(at, wanted), refusal(v1.load, at, less)]
    with context:
        return [*got, v1.load(at, less)]


@section('v1 partial', 'save: several calls make one checkpoint')
def v1_partial_save(at):
    v1.partial.save(at, {'params': {'layer0': np.arange(8), 'w': STATE['a']}, 'step': 10000})
    v1.partial.save(at, {'params': {'layer1': np.ones(4), 'v': STATE['b']}})
    got = [refusal(v1.load, at)]
    v1.partial.finalize(at)
    return [*got, v1.load(at)]


@section('v1 checkpointables', 'several in one checkpoint, loaded together and alone')
def v1_checkpointables(at):
    v1.save_checkpointables(at, {'state': STATE, 'other': {'x': STATE['a']}, 'dataset': {'index': 2}})
    return [v1.load_checkpointables(at), v1.load_checkpointables(at, {'other': None}), v1.load(at)]


@section('v1 training', '`Checkpointer`: policies, metrics, the best and the latest step')
def v1_training(at):
    policy = v1.training.preservation_policies.BestN(get_metric_fn=lambda metrics: metrics['loss'], n=2, reverse=True)
    with v1.training.Checkpointer(at, preservation_policy=policy) as c:
        for step, loss in enumerate((0.5, 0.1, 0.9, 0.3)):
            c.save_async(step, {**STATE, 'step': np.array(step)}, metrics={'loss': loss})
    with v1.training.Checkpointer(at) as c:
        return [sorted(x.step for x in c.checkpoints), c.latest.step, c.load(c.latest.step)]


# ---- both ways ----

COUNT = {'written': 0, 'read': 0}


def count():
    """Count the arrays that we write and read."""
    saving, lib = pytreefs._orbax_save, pytreefs._orbax_save.lib
    write = lib.write_database

    class Counted:
        def __getattr__(self, name):
            return getattr(lib, name)

        def write_database(self, path, options, arrays, progress):
            write(path, options, arrays, progress)
            COUNT['written'] += len(arrays)
    saving.lib = Counted()
    for name in ('_read_arrays', '_read_numpy'):
        def call(infos, *more, _read=getattr(pytreefs.orbax, name)):
            made = _read(infos, *more)
            COUNT['read'] += len(made)
            return made
        setattr(pytreefs.orbax, name, call)


def main(where):
    warnings.simplefilter('ignore')
    count()
    for guide, title, function in SECTIONS:
        at = pathlib.Path(where) / function.__name__
        want = function(at / 'it')
        assert COUNT == {'written': 0, 'read': 0}
        shutil.rmtree(at)
        pytreefs.orbax.install()
        got = function(at / 'it')
        pytreefs.orbax.uninstall()
        assert not differences(want, got), (guide, title, differences(want, got))
        who = [by for by, n in (('saved', COUNT['written']), ('restored', COUNT['read'])) if n]
        print(f'| {guide} | {title} | {" and ".join(who) if who else "by Orbax"} |', flush=True)
        COUNT.update(written=0, read=0)
        shutil.rmtree(at)


if __name__ == '__main__':
    main(*sys.argv[1:])
