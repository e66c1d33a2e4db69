# SPDX-License-Identifier: Apache-2.0
"""Programs that were written for Orbax, with our handlers in them: what each restores is what it saved, by our code.

    python -m lib.orbax_programs DIRECTORY

prints the name of each program that has run. A process of its own, since the number of devices is chosen once."""

import errno
import itertools
import os
import pathlib
import sys
import types
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
from pytreefs import _pytreefs as lib
from lib.placing import differences

MESH = Mesh(np.array(jax.devices()).reshape(4, 2), ('a', 'b'))
READ = []       # how many arrays were read in each of our calls
WRITTEN = []    # names of the arrays that we wrote


def put(x, *spec):
    return jax.device_put(x, NamedSharding(MESH, P(*spec)))


TREE = {'w': put(jnp.arange(64.0).reshape(8, 8), 'a', 'b'), 'half': put(jnp.ones((8, 4), jnp.bfloat16), None, 'b'), 'r': put(jnp.arange(3)),
        'one': jax.device_put(jnp.ones(2), jax.devices()[5]), 'n': np.arange(5), 'keys': put(jax.random.split(jax.random.key(1), 8), 'a'),
        'step': 5, 's': jnp.float32(3), 'text': 'a'}
PLAIN = {name: x for name, x in TREE.items() if name != 'text'}
ABSTRACT = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) if isinstance(x, jax.Array) else x, TREE)


def counted(name):
    read = getattr(pytreefs.orbax, name)

    def call(infos, *more):
        made = read(infos, *more)
        READ.append(len(made))
        return made
    setattr(pytreefs.orbax, name, call)


def same(tree, got, is_ours=True):
    assert not differences(tree, got), differences(tree, got)
    n = sum(isinstance(x, (jax.Array, np.ndarray)) for x in jax.tree.leaves(tree)) if is_ours else 0
    assert sum(READ) == n, (READ, n)
    READ.clear()


def counted_writes():
    write = pytreefs._orbax_save.lib.write_database

    def call(path, options, arrays, progress):
        write(path, options, arrays, progress)
        WRITTEN.extend(name for name, *_ in arrays)
    pytreefs._orbax_save.lib = types.SimpleNamespace(**{**vars(lib), 'write_database': call})


def wrote(*trees):
    """We wrote the arrays of these trees since the last time."""
    n = sum(isinstance(x, (jax.Array, np.ndarray)) for tree in trees for x in jax.tree.leaves(tree))
    assert len(WRITTEN) == n, (WRITTEN, n)
    WRITTEN.clear()


def manager(at):
    """v0: asynchronous, with metrics and the best steps kept."""
    options = ocp.CheckpointManagerOptions(best_fn=lambda metrics: metrics['loss'], best_mode='min', max_to_keep=2, enable_async_checkpointing=True)
    with ocp.CheckpointManager(at, options=options, item_handlers=pytreefs.orbax.StandardCheckpointHandler()) as m:
        for step, loss in ((1, 0.5), (2, 0.1), (3, 0.9), (4, 0.3)):
            m.save(step, args=ocp.args.StandardSave({**PLAIN, 'step': step}), metrics={'loss': loss})
        m.wait_until_finished()
        wrote(*[PLAIN] * 4)
        assert m.best_step() == 2 and sorted(m.all_steps()) == [2, 4], m.all_steps()
        same({**PLAIN, 'step': 2}, m.restore(2, args=ocp.args.StandardRestore(PLAIN)))
        same({**PLAIN, 'step': 4}, m.restore(4))
    with ocp.CheckpointManager(at, item_handlers={'default': ocp.StandardCheckpointHandler()}) as m:
        same({**PLAIN, 'step': 4}, m.restore(4, args=ocp.args.Composite(default=ocp.args.StandardRestore(PLAIN)))['default'], False)


def composite(at):
    """v0: items of other kinds beside one of ours, by a registry."""
    known = ocp.handlers.DefaultCheckpointHandlerRegistry()
    for args in (ocp.args.PyTreeSave, ocp.args.PyTreeRestore):
        known.add('state', args, pytreefs.orbax.PyTreeCheckpointHandler)
    with ocp.CheckpointManager(at, handler_registry=known) as m:
        m.save(1, args=ocp.args.Composite(state=ocp.args.PyTreeSave(TREE), config=ocp.args.JsonSave({'a': 1})))
        m.wait_until_finished()
        wrote(TREE)
        args = ocp.checkpoint_utils.construct_restore_args(TREE)
        got = m.restore(1, args=ocp.args.Composite(state=ocp.args.PyTreeRestore(TREE, restore_args=args), config=ocp.args.JsonRestore()))
        same(TREE, got['state'])
        assert got['config'] == {'a': 1}
        part = ocp.args.PyTreeRestore({'w': TREE['w']}, restore_args={'w': args['w']}, partial_restore=True)
        same({'w': TREE['w']}, m.restore(1, args=ocp.args.Composite(state=part))['state'])
        moved = ocp.args.PyTreeRestore({'v': TREE['w']}, restore_args={'v': args['w']}, transforms={'v': ocp.Transform(original_key='w')})
        same({'v': TREE['w']}, m.restore(1, args=ocp.args.Composite(state=moved))['state'])


def of_v1(at):
    """v1: a handler by the name of what it saves, with options of the Context."""
    known = v1.handlers.local_registry(include_global_registry=False)
    for name in ('state', 'model'):
        known.add(pytreefs.orbax.PyTreeHandler, checkpointable_name=name)
    context = v1.Context()
    context.checkpointables.registry = known
    context.array.saving.use_zarr3 = True
    with context:
        v1.save_checkpointables(at, {'model': TREE, 'state': {'x': TREE['w']}})
        wrote(TREE, {'x': TREE['w']})
        got = v1.load_checkpointables(at, {'model': ABSTRACT, 'state': {'x': ABSTRACT['w']}})
        assert not differences({'x': TREE['w']}, got['state'])
        assert READ.pop(0 if READ[0] == 1 else READ.index(1)) == 1
        same(TREE, got['model'])
    same(TREE, v1.load_checkpointables(at)['model'], False)


def installed(at):
    """Each program as it is, after one line. What cannot be is said by that line, not by the first save."""
    ours = pytreefs.orbax
    for make in (ours.install, ours.registry, ours.leaf_registry, ours.ArrayHandler, ours.NumpyHandler, ours.PyTreeHandler,
                 ours.StandardCheckpointHandler, ours.PyTreeCheckpointHandler):
        try:
            make(compression='lz4')
        except pytreefs.Error as e:
            assert "does not accept 'lz4'" in str(e)
        else:
            raise AssertionError(make)
    pytreefs.orbax.install()
    pytreefs.orbax.install()        # a second time does nothing
    with ocp.CheckpointManager(at / 'v0') as m:
        m.save(1, args=ocp.args.StandardSave(PLAIN))
        m.wait_until_finished()
        wrote(PLAIN)
        same(PLAIN, m.restore(1, args=ocp.args.StandardRestore(PLAIN)))
    with ocp.StandardCheckpointer() as c:
        c.save(at / 'one', PLAIN)
        c.wait_until_finished()
        wrote(PLAIN)
        same(PLAIN, c.restore(at / 'one', PLAIN))
    v1.save(at / 'v1', TREE)
    wrote(TREE)
    v1.save_async(at / 'async', TREE).result()
    wrote(TREE)
    same(TREE, v1.load(at / 'async', ABSTRACT))
    same(TREE, v1.load(at / 'v1', ABSTRACT))
    with v1.training.Checkpointer(at / 'steps') as c:
        c.save(1, TREE)
        wrote(TREE)
        same(TREE, c.load(1, ABSTRACT))
    os.environ['PYTREEFS_ORBAX'] = 'off'
    v1.save(at / 'off', TREE)
    wrote()
    same(TREE, v1.load(at / 'v1', ABSTRACT), False)
    del os.environ['PYTREEFS_ORBAX']
    for name in ('transforms=/nothing', 'restore_dtype=float16'):       # for mounts; what Orbax restores is as it was saved
        os.environ['PYTREEFS_OPTIONS'] = name
        same(TREE, v1.load(at / 'v1', ABSTRACT), False)
    del os.environ['PYTREEFS_OPTIONS']
    pytreefs.orbax.uninstall()
    v1.save(at / 'theirs', TREE)
    wrote()
    same(TREE, v1.load(at / 'v1', ABSTRACT), False)
    with ocp.StandardCheckpointer() as c:
        same(PLAIN, c.restore(at / 'one', PLAIN), False)


def durable(at):
    """After install() all files of a step are synced before the rename that makes it visible, and the name after it."""
    pytreefs.orbax.install()
    seen, fsync, rename = [], os.fsync, os.rename

    def synced(fd):
        fsync(fd)
        seen.append(('sync', os.readlink(f'/proc/self/fd/{fd}')))

    def renamed(source, target):
        files = {os.path.realpath(os.path.join(top, name)) for top, _, names in os.walk(source) for name in (*names, '.')}
        seen.append(('rename', os.fspath(target), {path for path in files if '/ocdbt.process_' not in path}))
        rename(source, target)
    for save in (lambda m: m.save(1, args=ocp.args.StandardSave(PLAIN)), lambda m: v1.save(at / '2', TREE)):
        with ocp.CheckpointManager(at) as m:
            os.fsync, os.rename, seen[:] = synced, renamed, []
            save(m)
            m.wait_until_finished()
            os.fsync, os.rename = fsync, rename
        _, name, files = [entry for entry in seen if entry[0] == 'rename'][-1]
        last = seen.index(('rename', name, files))
        assert len(files) > 8 and files <= {path for what, path, *_ in seen[:last] if what == 'sync'}, seen
        assert ('sync', str(at)) in seen[last:], seen
    pytreefs.orbax.uninstall()
    WRITTEN.clear()


def with_arrays(**how):
    """A registry of type handlers in which that of arrays has settings."""
    return ocp.type_handlers.create_type_handler_registry((jax.Array, ocp.type_handlers.ArrayHandler(**how)))


def one_name(at):
    """Two leaves that Orbax stores under one name, of whatever types: it loses one of them, or says that their shapes differ."""
    values = (lambda: np.ones(2, np.float32), lambda: jnp.zeros(2), lambda: 3)
    for i, (a, b) in enumerate(itertools.product(values, values)):
        tree = {'a.b': a(), 'a': {'b': b()}}
        for name, save in (('handler', lambda path: ocp.Checkpointer(pytreefs.orbax.PyTreeCheckpointHandler()).save(path, args=ocp.args.PyTreeSave(tree))),
                           ('v0', lambda path: ocp.PyTreeCheckpointer().save(path, tree)), ('v1', lambda path: v1.save_pytree(path, tree))):
            pytreefs.orbax.install()
            try:
                save(at / f'{name}{i}')
            except ValueError as e:
                assert "two leaves are stored under one name, 'a.b'" in str(e), e
            else:
                raise AssertionError((name, tree))
            assert not (at / f'{name}{i}').exists()
            pytreefs.orbax.uninstall()
    for i, tree in enumerate(({'a.b': jnp.ones(2), 'n': 1}, {'a': {'b': jnp.ones(2)}, 'n.m': np.ones(1)})):
        with ocp.CheckpointManager(at / f'm{i}', item_handlers=pytreefs.orbax.StandardCheckpointHandler()) as m:
            for step in (1, 2):
                m.save(step, args=ocp.args.StandardSave(tree))
            m.wait_until_finished()
            same(tree, m.restore(2, args=ocp.args.StandardRestore(tree)))


def fails(at):
    """A save that fails leaves no step, and says so where Orbax does; the next one is as ever."""
    with ocp.CheckpointManager(at, item_handlers=pytreefs.orbax.StandardCheckpointHandler()) as m:
        for fault in ('write:enospc:1', 'sync:eio:2', 'syncdir:eio:1', 'mkdir:eacces:1'):
            os.environ['PYTREEFS_OPTIONS'] = f'io=fault({fault}):auto'
            m.save(1, args=ocp.args.StandardSave(PLAIN))
            try:
                m.wait_until_finished()
            except OSError as e:
                assert e.errno == getattr(errno, fault.split(':')[1].upper()), e
            else:
                raise AssertionError(fault)
            del os.environ['PYTREEFS_OPTIONS']
            assert not list(at.rglob('manifest.ocdbt')) or not (at / '1').exists()
    with ocp.CheckpointManager(at, item_handlers=pytreefs.orbax.StandardCheckpointHandler()) as m:
        assert not m.all_steps()
        m.save(1, args=ocp.args.StandardSave(PLAIN))
        m.wait_until_finished()
        same(PLAIN, m.restore(1, args=ocp.args.StandardRestore(PLAIN)))
    WRITTEN.clear()


def falls_back(at):
    """Orbax does the rest, errors included."""
    with ocp.Checkpointer(pytreefs.orbax.StandardCheckpointHandler()) as c:
        c.save(at, args=ocp.args.StandardSave(PLAIN))
        other = {**PLAIN, 'w': jax.ShapeDtypeStruct((9, 8), jnp.float32, sharding=TREE['r'].sharding)}
        try:
            c.restore(at, args=ocp.args.StandardRestore(other))
        except ValueError as e:
            assert 'not compatible with the stored shape' in str(e), e
        else:
            raise AssertionError('a shape that is not the stored one')
        READ.clear()
    WRITTEN.clear()
    for how in (dict(use_ocdbt=False), dict(type_handler_registry=with_arrays(enable_replica_parallel_separate_folder=True))):
        with ocp.Checkpointer(pytreefs.orbax.PyTreeCheckpointHandler(**how)) as c:
            c.save(at / 'other', args=ocp.args.PyTreeSave({'w': TREE['w']}), force=True)
        wrote()
    with ocp.Checkpointer(ocp.ArrayCheckpointHandler()) as c:
        pytreefs.orbax.install()
        c.save(at / 'array', args=ocp.args.ArraySave(TREE['w']))
        got = c.restore(at / 'array', args=ocp.args.ArrayRestore(restore_args=ocp.checkpoint_utils.construct_restore_args(TREE['w'])))
        pytreefs.orbax.uninstall()
        assert not differences(TREE['w'], got)
        READ.clear()


def main(where):
    warnings.simplefilter('ignore')
    for name in ('_read_arrays', '_read_numpy'):
        counted(name)
    counted_writes()
    for program in (manager, composite, of_v1, installed, durable, one_name, fails, falls_back):
        program(pathlib.Path(where) / program.__name__)
        print(program.__name__)


if __name__ == '__main__':
    main(*sys.argv[1:])
