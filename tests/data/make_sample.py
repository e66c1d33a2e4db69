#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the sample checkpoint, tests/data/sample: what tools/quickstart mounts by default.

usage: make_sample.py [OUT]

Two steps of a small transformer as a training loop saves them with Orbax's CheckpointManager: weights
in bfloat16, Adam's state in float32, a few numbers and a string, the configuration as a JSON item,
and metrics. Needs what tests/requirements.txt names. The result is committed.
"""

import collections
import os
import pathlib
import shutil
import sys

os.environ.setdefault('JAX_PLATFORMS', 'cpu')

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import orbax.checkpoint as ocp  # noqa: E402

CONFIG = {'vocab': 128, 'd_model': 32, 'd_ff': 64, 'heads': 4, 'layers': 2, 'dtype': 'bfloat16',
          'optimizer': {'name': 'adam', 'b1': 0.9, 'b2': 0.999, 'learning_rate': 0.001}}

AdamState = collections.namedtuple('AdamState', 'count mu nu')
EmptyState = collections.namedtuple('EmptyState', '')


def init_params(key):
    """Weights by name, scaled as usual for their fan-in."""
    d, ff = CONFIG['d_model'], CONFIG['d_ff']
    keys = iter(jax.random.split(key, 64))

    def dense(*shape):
        w = jax.random.normal(next(keys), shape) / shape[0] ** 0.5
        return w.astype(jnp.bfloat16)

    def block():
        return {'attention': {n: {'kernel': dense(d, d)} for n in ('query', 'key', 'value', 'out')},
                'mlp': {'up': {'kernel': dense(d, ff), 'bias': jnp.zeros(ff, jnp.bfloat16)},
                        'down': {'kernel': dense(ff, d), 'bias': jnp.zeros(d, jnp.bfloat16)}},
                'norm1': {'scale': jnp.ones(d, jnp.bfloat16)}, 'norm2': {'scale': jnp.ones(d, jnp.bfloat16)}}

    return {'embed': {'table': dense(CONFIG['vocab'], d)},
            'layers': [block() for _ in range(CONFIG['layers'])],
            'norm': {'scale': jnp.ones(d, jnp.bfloat16)}}


def init_state():
    params = init_params(jax.random.key(0))
    zeros = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
    return {'params': params,
            'opt_state': (AdamState(jnp.zeros((), jnp.int32), zeros, zeros), EmptyState()),
            'rng': jax.random.key(42)}


def train(state, steps, key):
    """Adam on a made-up gradient: what matters is that the numbers look like training."""
    conf = CONFIG['optimizer']
    adam = state['opt_state'][0]
    params, mu, nu, count = state['params'], adam.mu, adam.nu, adam.count
    for _ in range(steps):
        key, sub = jax.random.split(key)
        leaves, structure = jax.tree.flatten(params)
        noise = [jax.random.normal(k, p.shape) for k, p in zip(jax.random.split(sub, len(leaves)), leaves)]
        grads = jax.tree.unflatten(structure, [0.01 * (n + p.astype(jnp.float32))
                                               for n, p in zip(noise, leaves)])
        count = count + 1
        mu = jax.tree.map(lambda m, g: conf['b1'] * m + (1 - conf['b1']) * g, mu, grads)
        nu = jax.tree.map(lambda v, g: conf['b2'] * v + (1 - conf['b2']) * g * g, nu, grads)
        params = jax.tree.map(
            lambda p, m, v: (p - conf['learning_rate'] * m / (jnp.sqrt(v) + 1e-8)).astype(p.dtype),
            params, mu, nu)
    return dict(state, params=params, opt_state=(AdamState(count, mu, nu), state['opt_state'][1]))


def checkpoint_of(state, step):
    """The tree that is saved: arrays and everything else that a run keeps."""
    return dict(state, step=step, learning_rate=CONFIG['optimizer']['learning_rate'] * 0.5 ** (step / 1000),
                frozen=False, run_name='sample-transformer', tokens_seen=step * 4096, ema=None,
                extra={}, history=[2.5, 1.75, 1.25][:step // 500])


def main(out):
    if out.exists():
        shutil.rmtree(out)
    options = ocp.CheckpointManagerOptions(best_fn=lambda m: m['loss'], best_mode='min')
    state = init_state()
    with ocp.CheckpointManager(out.resolve(), options=options, metadata={'project': 'sample'}) as manager:
        for step in (1000, 1500):
            state = train(state, 3, jax.random.key(step))
            manager.save(step, metrics={'loss': 2500.0 / step, 'accuracy': step / 4000},
                         args=ocp.args.Composite(state=ocp.args.PyTreeSave(checkpoint_of(state, step)),
                                                 config=ocp.args.JsonSave(CONFIG)))
            manager.wait_until_finished()
    files = [p for p in out.rglob('*') if p.is_file()]
    for marker in out.rglob('commit_success.txt'):  # it names the place where this ran
        text = marker.read_text()
        marker.write_text(text[:text.index('/')] + '/ckpt' + text.split(str(out.resolve()), 1)[1])
    print(f'{out}: {len(files)} files, {sum(p.stat().st_size for p in files)} bytes')


if __name__ == '__main__':
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent / 'sample')
