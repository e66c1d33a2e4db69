# SPDX-License-Identifier: Apache-2.0
"""Processes of JAX that save one step after the other with pytreefs.orbax, until they are killed, and a look at what they leave.

save(RANK, SIZE, PORT, ROOT, READY)     saves steps after the newest one, asynchronously, for ever; makes the file READY when the first is committed
check(ROOT)                             prints the steps that Orbax lists, after it has restored each by itself and compared it
"""

import itertools
import pathlib
import random
import shutil
import time

import numpy as np

from lib import forks, jax_rank, servers

SPECS = {'w': ('x', 'y'), 'rows': ('x',), 'rep': (), 'b': (None, 'y')}


def values(step):
    rng = np.random.default_rng(step)
    return {'w': rng.standard_normal((512, 1024), np.float32), 'rows': rng.integers(0, 9, (64, 512)).astype(np.int32),
            'rep': rng.standard_normal((256, 256), np.float32), 'b': np.full((8, 64), step, np.float32)}


def save(rank, size, port, root, ready):
    jax, mesh, put = jax_rank.begin(rank, size, port) if int(size) > 1 else jax_rank.begin_alone()
    import orbax.checkpoint as ocp
    import pytreefs.orbax

    pytreefs.orbax.install()
    # A step that Orbax was deleting when it was killed is listed, and not whole: old ones are moved.
    options = ocp.CheckpointManagerOptions(max_to_keep=3, enable_async_checkpointing=True, todelete_subdir='old')
    with ocp.CheckpointManager(root, options=options) as manager:
        first = (manager.latest_step() or 0) + 1
        for step in itertools.count(first):
            tree = {name: put(x, *SPECS[name]) for name, x in values(step).items()}
            manager.save(step, args=ocp.args.StandardSave({**tree, 'n': values(step)['b'] * 2, 'step': step}))
            if step > first:        # a save waits for the one before
                pathlib.Path(ready).touch()


def check(root):
    import orbax.checkpoint as ocp

    handler = ocp.PyTreeCheckpointHandler()
    steps = ocp.CheckpointManager(root).all_steps()
    for step in steps:
        want = {**values(step), 'n': values(step)['b'] * 2, 'step': step}
        at = pathlib.Path(root, str(step), 'default')
        args = {name: ocp.RestoreArgs(restore_type=int if name == 'step' else np.ndarray) for name in want}
        got = handler.restore(at, args=ocp.args.PyTreeRestore(restore_args=args))
        assert got.keys() == want.keys(), (step, got.keys())
        assert list(at.glob('ocdbt.process_0?*')), 'it is not ours'
        for name, x in want.items():
            assert np.array_equal(got[name], x), (step, name)
    print('steps', *sorted(steps))


def kill_at_random(root, size, seed):
    """Let `size` processes save, and kill them at a random moment: one of them first, or all at once. Return the steps that are there."""
    rng, ready = random.Random(f'{seed}'), root.with_name(f'{root.name}-ready')
    ready.unlink(missing_ok=True)
    with servers.port_for_grpc() as port, forks.begun([(save, r, size, port, root, ready) for r in range(size)]) as processes:
        deadline = time.monotonic() + 120
        while not ready.exists():
            assert time.monotonic() < deadline and all(p.is_alive() for p in processes), 'a process ended before its second save'
            time.sleep(0.01)
        time.sleep(rng.random() * 0.8)      # the moment: the processes are in the middle of a save
        for p in rng.sample(processes, size):
            p.kill()        # it may have ended, when it lost another
            time.sleep(rng.choice((0, 0.05)))
    shutil.rmtree(root / 'old', ignore_errors=True)
    return [int(n) for n in forks.run(check, root).split('steps', 1)[1].split()]
