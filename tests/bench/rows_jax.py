# SPDX-License-Identifier: Apache-2.0
"""Restores on eight simulated devices: Orbax against itself with pytreefs.orbax, and against load(like=)."""

import contextlib

from bench.bench import bench
from bench.worker import Worker

READ_BUDGET = 256


def restores(b, kind, mib):
    path = b.scratch() / 'saved'
    with contextlib.closing(Worker()) as w:
        w.call('peers_jax:make', path, kind, mib)
    b.warm(path)
    for name, function in (('pytreefs.orbax', 'ours'), ('pytreefs.load', 'load'), ('Orbax', 'orbax')):
        b.contender(name, b.python(f'peers_jax:{function}', path, kind, mib))
    where = f'restore on 8 devices, {kind}, {mib} MiB'
    # Besides the arrays and the budget, what Python, jax and Orbax have themselves.
    peak = (mib + READ_BUDGET + 256 + 512) << 20
    b.row(f'{where}, by the handler', 'pytreefs.orbax', 'Orbax', rate=1.5, peak=peak)
    b.row(f'{where}, by load(like=)', 'pytreefs.load', 'Orbax', rate=1.5, peak=peak)


@bench
def jax_sharded(b):
    """512 MiB in leaves of 16 MiB, each cut in 8 parts and restored so."""
    restores(b, 'sharded', 512)


@bench
def jax_replicated(b):
    """The same with every leaf on each of 8 devices."""
    restores(b, 'replicated', 512)


@bench
def jax_sharded_large(b):
    """2 GiB of the first."""
    b.most_rounds = 3
    restores(b, 'sharded', 2048)


@bench
def jax_replicated_large(b):
    """2 GiB of the second."""
    b.most_rounds = 3
    restores(b, 'replicated', 2048)
