# SPDX-License-Identifier: Apache-2.0
"""Restores and saves on eight simulated devices: Orbax against itself with pytreefs.orbax, and against load(like=)."""

import contextlib
import json

from bench.bench import bench
from bench.rows_convert import gone
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


def saves(b, kind, mib):
    path = b.scratch()
    for blocking in (False, True):
        what = ' (blocked)' if blocking else ''
        b.contender('Orbax' + what, b.python('peers_jax:save_orbax', path, kind, mib, blocking))
        for name, compression in (('zstd', 'zstd'), ('default', 'auto')):
            b.contender(f'pytreefs.orbax, {name}{what}', b.python('peers_jax:save_ours', path, kind, mib, blocking, compression))
    where = f'save on 8 devices, {kind}, {mib} MiB'
    # The arrays of all devices, chunks of which parts are encoded, and what Python, jax and Orbax have themselves.
    peak = (mib * (8 if kind == 'replicated' else 1) + 256 + 256 + 512) << 20
    b.row(f'{where}, durable, zstd', 'pytreefs.orbax, zstd', 'Orbax', rate=1.1, peak=peak)
    b.row(f'{where}, durable, default compression', 'pytreefs.orbax, default', 'Orbax', rate=1.8, peak=peak)
    b.row(f'{where}, time that the caller waits', 'pytreefs.orbax, default (blocked)', 'Orbax (blocked)', latency=1)


@bench
def jax_save_sharded(b):
    """512 MiB in leaves of 16 MiB, each cut in 8 parts; a save of AsyncCheckpointer, and a sync of all that it has made."""
    saves(b, 'sharded', 512)


@bench
def jax_save_replicated(b):
    """The same with every leaf on each of 8 devices, each of which saves an eighth."""
    saves(b, 'replicated', 512)


@bench
def jax_save_sharded_large(b):
    """2 GiB of the first."""
    b.most_rounds = 3
    saves(b, 'sharded', 2048)


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
    """2 GiB of the second. Orbax has a copy for each device: 18 GiB."""
    b.most_rounds = 3
    restores(b, 'replicated', 2048)


@bench
def jax_to_mesh(b):
    """2 GiB in leaves of 16 MiB, saved from a mesh of 4 x 2, for one of 8 in one axis: `convert --mesh`, and a script that restores on 8 devices and saves."""
    b.most_rounds = 3
    path, rules, out = b.scratch() / 'saved', b.scratch() / 'rules.json', b.scratch()
    rules.write_text(json.dumps({'.*': ['fsdp']}))
    with contextlib.closing(Worker()) as w:
        w.call('peers_jax:make', path, 'sharded', 2048)
    b.warm(path)
    words = [b.program, 'convert', '-q', '--mesh', 'fsdp=8', '--spec', rules, path]
    for name, run in (('zstd', [*words, '-o', 'compression=zstd', out / 'zstd']), ('default', [*words, '-o', 'compression=auto', out / 'default']),
                      ('Orbax', b.python('peers_jax:to_mesh', path, out / 'Orbax', 2048))):
        b.contender(name, run, before=gone(out / name), after=gone(out / name))
    for name in ('zstd', 'default'):
        b.row(f'convert for another mesh, 2 GiB, {name}', name, 'Orbax', rate=1.5, peak=(256 + 256 + 64) << 20)
