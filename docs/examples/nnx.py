# SPDX-License-Identifier: Apache-2.0
"""Train a small flax NNX model with Orbax's CheckpointManager over pytreefs, be killed, resume on another mesh.

    python nnx.py DIRECTORY STEPS [DATAxMODEL]      # a mesh of devices, such as 4x2

Prints a line for each step. Run again, it goes on after the last step that was committed.
"""

import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

import pytreefs.orbax

pytreefs.orbax.install()        # the one line


class Net(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(16, 64, rngs=rngs)
        self.second = nnx.Linear(64, 1, rngs=rngs)

    def __call__(self, x):
        return self.second(nnx.relu(self.first(x)))


def sharded(state, mesh):
    """Kernels are cut along their inputs over the axis `model`; everything else is on every device."""
    def where(path, x):
        spec = P('model') if jax.tree_util.keystr(path).endswith("kernel'].value") and x.ndim == 2 else P()
        return NamedSharding(mesh, spec)
    return jax.tree_util.tree_map_with_path(where, state)


def main(directory, steps, shape='1x1'):
    sizes = tuple(map(int, shape.split('x')))
    mesh = Mesh(np.array(jax.devices()[:int(np.prod(sizes))]).reshape(sizes), ('data', 'model'))
    net = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(net, optax.adam(1e-2), wrt=nnx.Param)
    x = jax.random.normal(jax.random.key(1), (256, 16))
    y = jnp.sum(x[:, :3], axis=1, keepdims=True)

    @nnx.jit
    def train(net, optimizer):
        loss, grads = nnx.value_and_grad(lambda net: jnp.mean((net(x) - y) ** 2))(net)
        optimizer.update(net, grads)
        return loss

    state = nnx.state((net, optimizer))
    state = jax.device_put(state, sharded(state, mesh))
    with ocp.CheckpointManager(pathlib.Path(directory).resolve(), options=ocp.CheckpointManagerOptions(max_to_keep=3)) as manager:
        begin = manager.latest_step() or 0
        if begin:
            state = manager.restore(begin, args=ocp.args.StandardRestore(state))
        nnx.update((net, optimizer), state)
        for step in range(begin + 1, int(steps) + 1):
            loss = train(net, optimizer)
            manager.save(step, args=ocp.args.StandardSave(nnx.state((net, optimizer))))
            print(f'step {step}: loss {loss:.6f}', flush=True)


if __name__ == '__main__':
    main(*sys.argv[1:])
