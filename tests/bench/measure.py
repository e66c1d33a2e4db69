"""Rounds: every contender once per round, in turn, each after a gigabyte was touched and freed.

Fresh memory of a virtual machine costs several times its price the first time; what the gigabyte touched
is handed to the contender by the kernel, so that none of them pays for the machine.
"""

import os
import statistics
import subprocess
import sys
import time

GIB = 1 << 30


def touch_memory(build):
    """In a process of its own: a child inherits the peak of the process that starts it."""
    subprocess.run([build / 'tests/bench/bench_peer', 'touch', str(GIB)], check=True)


def command(words):
    """Seconds of one command, and its peak of memory in bytes."""
    words = [os.fspath(w) for w in words]
    begin = time.perf_counter()
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as p:
        # Output is small (dd's and ours) or goes nowhere; a command that lists writes to /dev/null itself.
        out, err = p.stdout.read(), p.stderr.read()
        _, status, usage = os.wait4(p.pid, 0)
        seconds = time.perf_counter() - begin
        p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode:
        raise RuntimeError(f'{words}: status {p.returncode}: {err.decode(errors="replace")}')
    text = out.decode(errors='replace').strip()
    # peer.c prints seconds where the clock of the whole process would say something else.
    return (float(text.split()[1]) if text.startswith('seconds ') else seconds), usage.ru_maxrss * 1024


def run_once(contender, build):
    if contender.before:
        contender.before()
    touch_memory(build)
    peak = None
    if isinstance(contender.run, (list, tuple)):
        seconds, peak = command(contender.run)
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


def run_bench(b, rounds):
    contenders = list(b.contenders.values())
    for i in range(b.rounds or rounds):
        # Every other round backwards: nobody always follows the same neighbour.
        for c in contenders if i % 2 == 0 else reversed(contenders):
            print(f'\r{b.name}: round {i + 1}, {c.name}\033[K', end='', file=sys.stderr, flush=True)
            run_once(c, b.build)
    print('\r\033[K', end='', file=sys.stderr, flush=True)
    return [result(b, row) for row in b.rows]


def spread(values):
    return {'median': statistics.median(values), 'min': min(values), 'max': max(values)}


def result(b, row):
    """One row of the table as a dictionary."""
    ours = b.contenders[row.ours]
    peer = b.contenders[row.peer] if row.peer else None
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
