# SPDX-License-Identifier: Apache-2.0
"""Rounds: every contender once per round, in turn, each after more memory was touched and freed than it will use.

Fresh memory of a virtual machine costs several times its price the first time, twenty times in large pages; what was
touched is handed to the contender by the kernel, so that none of them pays for the machine.
"""

import os
import statistics
import subprocess
import sys
import time

TOUCHED = 4 << 30  # bytes; a restore of 1 GiB peaks at 3 GiB


def touch_memory(build):
    """In a process of its own: a child inherits the peak of the process that starts it."""
    subprocess.run([build / 'tests/bench/bench_peer', 'touch', str(TOUCHED)], check=True)


def command(words, build, ok=(0,)):
    """Seconds of one command, and its peak of memory in bytes."""
    got, told = os.pipe()
    try:
        r = subprocess.run([build / 'tests/bench/bench_peer', 'measure', str(told), *map(os.fspath, words)], pass_fds=[told],
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, errors='replace')
        os.close(told)
        said = os.read(got, 100).split()
    finally:
        os.close(got)
    if r.returncode not in ok:
        raise RuntimeError(f'{words}: status {r.returncode}: {r.stderr}')
    # peer.c prints seconds where the clock of the whole process would say something else.
    own = r.stdout.split()
    return float(own[1] if own[:1] == ['seconds'] else said[0]), int(said[1]) * 1024


def run_once(contender, build):
    if contender.before:
        contender.before()
    touch_memory(build)
    peak = None
    if isinstance(contender.run, (list, tuple)):
        seconds, peak = command(contender.run, build)
    else:
        begin = time.perf_counter()
        seconds = contender.run()
        if not isinstance(seconds, float):
            seconds = time.perf_counter() - begin
        peak = getattr(contender.run, 'peak', None)
    if contender.memory:
        peak = contender.memory()
    if contender.after:
        contender.after()
    contender.seconds.append(seconds)
    if peak:
        contender.peaks.append(peak)


def say(text, last=False):
    """Show the present activity: one line that changes on a terminal, else a line each time."""
    if sys.stderr.isatty():
        print(f'\r{text}\033[K' if not last else '\r\033[K', end='', file=sys.stderr, flush=True)
    elif not last:
        print(text, file=sys.stderr, flush=True)


def run_bench(b, rounds):
    contenders = [c for c in b.contenders.values() if c.run is not None]
    rounds = min(rounds, b.most_rounds or rounds)
    for i in range(rounds):
        # Every other round backwards: nobody always follows the same neighbour.
        for c in contenders if i % 2 == 0 else reversed(contenders):
            say(f'{b.name}: round {i + 1} of {rounds}, {c.name}')
            run_once(c, b.build)
            say(f'{b.name}: round {i + 1} of {rounds}, {c.name}: {seconds_text(c.seconds[-1])}')
    say('', last=True)
    return [result(b, row) for row in b.rows]


def spread(values):
    return {'median': statistics.median(values), 'min': min(values), 'max': max(values)}


def result(b, row):
    """One row of the table as a dictionary."""
    ours = b.contenders[row.ours]
    peer = b.contenders[row.peer] if row.peer else None
    if peer and peer.run is None:
        return {'bench': b.name, 'row': row.text, 'ours_name': row.ours, 'peer_name': f'{row.peer}: not installed', 'ours': spread(ours.seconds),
                'peer': None, 'ours_peak': max(ours.peaks, default=None), 'peer_peak': None, 'rounds': len(ours.seconds), 'ratio': None,
                'target': '', 'met': None}
    out = {'bench': b.name, 'row': row.text, 'ours_name': row.ours, 'peer_name': row.peer,
           'ours': spread(ours.seconds), 'peer': peer and spread(peer.seconds),
           'ours_peak': max(ours.peaks, default=None), 'peer_peak': peer and max(peer.peaks, default=None),
           'rounds': len(ours.seconds)}
    if row.rate is not None:
        ratio = spread([p / o for o, p in zip(ours.seconds, peer.seconds)])
        target, met = f'≥ {row.rate:g}', ratio['median'] >= row.rate
    elif row.latency is not None:
        ratio = spread([o / p for o, p in zip(ours.seconds, peer.seconds)])
        target, met = f'≤ {row.latency:g}', ratio['median'] <= row.latency
    elif row.within is not None:
        ratio = None
        target, met = f'≤ {seconds_text(row.within)}', statistics.median(ours.seconds) <= row.within
    else:
        ratio = spread([p / o for o, p in zip(ours.seconds, peer.seconds)]) if peer else None
        target, met = '', None
    if row.peak is not None:
        target += f', ≤ {row.peak >> 20} MiB'
        met = met is not False and max(ours.peaks) <= row.peak
    return out | {'ratio': ratio, 'target': target, 'met': met}


def seconds_text(s):
    if s < 1e-3:
        return f'{s * 1e6:.3g} µs'
    if s < 1:
        return f'{s * 1e3:.3g} ms'
    return f'{s:.3g} s'
