# SPDX-License-Identifier: Apache-2.0
"""One process of a JAX job on this machine, over gloo, with two devices, as lib/forks.py runs it.

main(RANK, SIZE, PORT, WHAT, PATH, [ZARR3, [OURS]]), where WHAT is
save      writes the tree of tree() with a CheckpointManager, as step 1
restore   restores step 1 of a manager at PATH with the shardings of tree(), and compares
OURS: with pytreefs.orbax in place of Orbax's handlers, and restore reads the step by pytreefs.load() as well.
"""

import os
import pathlib


def expected(np):
    w = np.arange(64 * 32, dtype=np.float32).reshape(64, 32) / 7
    return {'big': w, 'rows': w + 1, 'rep': w * 2, 'small': np.arange(16, dtype=np.int32)}


SPECS = {'big': ('x', 'y'), 'rows': ('x',), 'rep': (), 'small': ('x',)}
OTHERS = {'n': 7, 'name': 'a text'}


def begin(rank, size, port):
    """Join the job; return the module jax, a mesh of all devices, and a function that makes an array on it."""
    os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=2'
    import jax
    jax.config.update('jax_cpu_collectives_implementation', 'gloo')
    jax.distributed.initialize(f'127.0.0.1:{port}', int(size), int(rank))
    return on_mesh(jax, size)


def begin_alone():
    """The same of a process alone, which has as many devices as two of a job."""
    os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=4'
    import jax
    return on_mesh(jax, 2)


def on_mesh(jax, size):
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    mesh = Mesh(np.array(jax.devices()).reshape(int(size), 2), ('x', 'y'))
    return jax, mesh, lambda a, *spec: jax.make_array_from_callback(a.shape, NamedSharding(mesh, P(*spec)), lambda i: a[i])


def save_item(rank, port, path, zarr3):
    """An item of two processes (lib/gen_sharded.py)."""
    jax, _, put = begin(rank, 2, port)
    import numpy as np
    import orbax.checkpoint as ocp
    from lib.gen_matrix import values

    w = values((64, 64), np.float32, 1)
    tree = {'big': put(w, 'x', 'y'), 'rows': put(w, 'x'), 'rep': put(w + 1), 'small': put(np.arange(8, dtype=np.int32), 'x'),
            'np': w[:5], 'n': 7, 'name': 'two'}
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_zarr3=zarr3 == '1')) as checkpointer:
        checkpointer.save(pathlib.Path(path), args=ocp.args.PyTreeSave(tree))
    jax.distributed.shutdown()


def main(rank, size, port, what, path, zarr3='0', ours=''):
    jax, mesh, put = begin(rank, size, port)
    import numpy as np
    import orbax.checkpoint as ocp
    from jax.sharding import NamedSharding, PartitionSpec as P

    values = expected(np)
    shardings = {k: NamedSharding(mesh, P(*SPECS[k])) for k in values}
    if ours:
        import pytreefs.orbax
        pytreefs.orbax.install()
    handler = ocp.PyTreeCheckpointHandler(use_zarr3=zarr3 == '1')
    with ocp.CheckpointManager(path, item_handlers=handler) as manager:
        if what == 'save':
            manager.save(1, args=ocp.args.PyTreeSave({**{k: put(v, *SPECS[k]) for k, v in values.items()}, **OTHERS}))
            manager.wait_until_finished()
        else:
            args = {k: ocp.ArrayRestoreArgs(sharding=s) for k, s in shardings.items()}
            item = {**{k: jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=shardings[k]) for k, v in values.items()},
                    **OTHERS}
            got = manager.restore(1, args=ocp.args.PyTreeRestore(
                item=item, restore_args={**args, **{k: ocp.RestoreArgs() for k in OTHERS}}))
            for tree in (got, pytreefs.load(f'{path}/1', like=item)) if ours else (got,):
                for k, v in values.items():
                    assert len(tree[k].addressable_shards) == 2
                    for shard in tree[k].addressable_shards:
                        assert np.array_equal(np.asarray(shard.data), v[shard.index]), (k, shard.index)
            assert {k: got[k] for k in OTHERS} == OTHERS, got
    # The first rank answers the others' last barriers.
    jax.distributed.shutdown()
    print('rank', rank, 'is done')
