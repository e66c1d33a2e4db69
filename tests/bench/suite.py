# SPDX-License-Identifier: Apache-2.0
"""python -m bench.suite [ROW...]: what tests/bench/run starts once everything is built."""

import argparse
import contextlib
import importlib
import inspect
import json
import os
import pathlib
import signal
import sys
import time
import traceback

from bench import measure, plot, readme, table
from bench.bench import BENCHES, Bench

HERE = pathlib.Path(__file__).resolve().parent
# The order of the table; other files follow in the order of their names.
FIRST = ['rows_read', 'rows_list', 'rows_write']


def load_rows():
    found = sorted(p.stem for p in HERE.glob('rows_*.py'))
    for name in sorted(found, key=lambda n: (FIRST.index(n) if n in FIRST else len(FIRST), n)):
        importlib.import_module('bench.' + name)


def note_of(function):
    return ' '.join((inspect.getdoc(function) or '').split())


def run(name, args, build):
    with contextlib.ExitStack() as stack:
        b = Bench(name, str(build / 'pytreefs'), build, stack)
        BENCHES[name](b)
        return measure.run_bench(b, args.rounds)


def main():
    parser = argparse.ArgumentParser(prog='tests/bench/run', description=(
        'Measures pytreefs and its peers side by side. What was measured last of each row is kept beside the build; with all rows, or '
        '--write, it goes to docs/benchmarks.md and its main rows to README.md.'))
    parser.add_argument('rows', nargs='*', metavar='ROW', help='names of benches (--list), or parts of them')
    parser.add_argument('--list', action='store_true', help='the names, and what each compares')
    parser.add_argument('--rounds', type=int, default=5, help='how often each contender runs, what takes long less often (default: 5)')
    parser.add_argument('--write', action='store_true', help='write the documents after a part of the rows, too')
    args = parser.parse_args()
    # Both leave no mount behind; a shell ignores the first for what it runs in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    load_rows()
    if args.list:
        for name, function in BENCHES.items():
            print(f'{name:20} {note_of(function)}')
        return 0
    wanted = [n for n in BENCHES if not args.rows or n in args.rows or
              any(part in n for part in args.rows if part not in BENCHES)]
    if not wanted:
        parser.error('no such row: see --list')
    build = pathlib.Path(os.environ['PYTREEFS_BUILD']).resolve()
    kept = build / 'bench'
    kept.mkdir(exist_ok=True)
    begin, results, broken = time.monotonic(), [], []
    for name in wanted:
        load = os.getloadavg()[0]
        try:
            got = run(name, args, build)
        except Exception:
            broken.append(name)
            print(f'\n{name} failed:\n{traceback.format_exc()}', file=sys.stderr)
            continue
        print(table.text(got), flush=True)
        (kept / f'{name}.json').write_text(json.dumps({'load': load, 'results': got}))
        results += got
    missed = [r['row'] for r in results if r['met'] is False]
    print(f'{len(results)} rows, {len(missed)} below their target, {len(broken)} benches failed, '
          f'{time.monotonic() - begin:.0f} s')
    if not args.rows or args.write:
        write({name: json.loads((kept / f'{name}.json').read_text()) for name in BENCHES if (kept / f'{name}.json').exists()})
    return 1 if broken else 0


def write(measured):
    results = [r for each in measured.values() for r in each['results']]
    pictures = plot.write(results, lambda name: BENCHES[name].__module__.rpartition('.')[2])
    table.write(results, [(name, note_of(BENCHES[name])) for name in measured], max(each['load'] for each in measured.values()), pictures)
    if len(measured) == len(BENCHES):
        readme.write()
    else:
        print(f'README.md stays: {len(BENCHES) - len(measured)} benches were not measured here')


if __name__ == '__main__':
    sys.exit(main())
