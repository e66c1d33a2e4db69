# SPDX-License-Identifier: Apache-2.0
"""The table of results: docs/benchmarks.md, and the same on the terminal."""

import os
import pathlib
import platform
import re
import subprocess

from bench.measure import seconds_text

DOC = pathlib.Path(__file__).resolve().parent.parent.parent / 'docs' / 'benchmarks.md'
BEGIN, END = '<!-- measured: begin -->', '<!-- measured: end -->'


def mib(n):
    return f'{n / (1 << 20):.0f}' if n else ''


def line(r):
    ratio = r['ratio']
    return [r['row'], f'{r["ours_name"]}: {seconds_text(r["ours"]["median"])}',
            f'{r["peer_name"]}: {seconds_text(r["peer"]["median"])}' if r['peer'] else r['peer_name'] or '',
            f'{ratio["median"]:.2f} [{ratio["min"]:.2f} {ratio["max"]:.2f}]' if ratio else
            f'[{seconds_text(r["ours"]["min"])} {seconds_text(r["ours"]["max"])}]',
            r['target'], {True: 'yes', False: 'no', None: ''}[r['met']],
            ' / '.join(filter(None, [mib(r['ours_peak']), mib(r['peer_peak'])]))]


HEAD = ['Row', 'Ours', 'Peer', 'Ratio: median [min max]', 'Target', 'Met', 'Peak MiB, ours / peer']


def markdown(results):
    rows = [HEAD, ['---'] * len(HEAD), *map(line, results)]
    return ''.join('| ' + ' | '.join(cells) + ' |\n' for cells in rows)


def text(results):
    rows = [HEAD, *map(line, results)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    return ''.join('  '.join(c.ljust(w) for c, w in zip(row, widths)).rstrip() + '\n' for row in rows)


def machine():
    """Facts that a ratio depends on; nothing that names the machine."""
    cpu = re.search(r'^model name\s*:\s*(.*)$', pathlib.Path('/proc/cpuinfo').read_text(), re.M)
    memory = int(re.search(r'MemTotal:\s*(\d+)', pathlib.Path('/proc/meminfo').read_text())[1])
    kernel = '.'.join(re.match(r'(\d+)\.(\d+)', platform.release()).groups())
    zstd = subprocess.run(['pkg-config', '--modversion', 'libzstd'], capture_output=True, text=True).stdout.strip()
    versions = {}
    for package in ('orbax-checkpoint', 'tensorstore', 'jax', 'numpy', 'safetensors'):
        import importlib.metadata
        versions[package] = importlib.metadata.version(package)
    return [f'{os.cpu_count()} cores ({cpu[1] if cpu else platform.machine()}), virtual machine'
            if 'hypervisor' in pathlib.Path('/proc/cpuinfo').read_text() else
            f'{os.cpu_count()} cores ({cpu[1] if cpu else platform.machine()})',
            f'{memory / (1 << 20):.0f} GiB of memory, Linux {kernel}',
            f'Python {platform.python_version()}, ' + ', '.join(f'{k} {v}' for k, v in versions.items()) +
            f', libzstd {zstd}']


def write(results, notes, load, pictures):
    """Everything between the two marks is replaced; the text around it stays."""
    body = [BEGIN, '', *(f'* {fact}' for fact in machine()),
            f'* {min(r["rounds"] for r in results)} to {max(r["rounds"] for r in results)} rounds; load average before a bench: at most {load:.1f}', '',
            markdown(results), *(line for shown in pictures for line in (shown, '')), *(f'* `{name}`: {note}' for name, note in notes), '', END]
    doc = DOC.read_text()
    before, rest = doc.split(BEGIN)
    DOC.write_text(before + '\n'.join(body) + rest.split(END)[1])
