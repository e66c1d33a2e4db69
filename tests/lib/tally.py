# SPDX-License-Identifier: Apache-2.0
"""Reports of test programs: JUnit XML of pytest, or testlog.json of meson.

tally.py REPORT prints "PASSED FAILED SKIPPED"; tally.py --slowest REPORT the five tests that took longest, on one line;
tally.py --failures REPORT... prints what failed and how, and the command that repeats it, for the end of a run's output:
who reads only that must not have to look for it.
"""

import json
import pathlib
import re
import shlex
import sys
import xml.etree.ElementTree as xml

MOST_LINES = 60    # of one failure
SLOWEST = 5
SKIPS = pathlib.Path(__file__).resolve().parent.parent / 'skips.txt'


def allowed_skips():
    """The regular expressions of skips.txt."""
    lines = SKIPS.read_text().splitlines()
    return [re.compile(line.partition('  # ')[0]) for line in lines if line and not line.startswith('#')]


def of_skips(reasons):
    """('skipped', '') when each reason is on the list, else ('failed', text)."""
    unknown = [why for why in reasons if not any(a.fullmatch(why) for a in allowed_skips())]
    return ('failed', f'skipped for a reason that is not in tests/{SKIPS.name}: {unknown[0]}') if unknown else ('skipped', '')


def results_of_junit(path):
    """(name, 'passed', 'failed' or 'skipped', text) of each test of a JUnit report."""
    for case in xml.parse(path).getroot().iter('testcase'):
        name = f'{case.get("classname")}::{case.get("name")}'
        faults = case.findall('failure') + case.findall('error')
        skips = case.findall('skipped')
        if faults:
            yield name, 'failed', '\n'.join(f.text or f.get('message', '') for f in faults)
        elif skips:
            yield name, *of_skips([s.get('message', '') for s in skips])
        else:
            yield name, 'passed', ''


def results_of_meson(path):
    """The same of testlog.json. One test of a program is skipped without a reason: "unit test NAME" is it."""
    with open(path) as f:
        for line in f:
            test = json.loads(line)
            text = test.get('stdout', '') + test.get('stderr', '')
            skips = ['unit test ' + name for name in re.findall(r'^\[  SKIPPED \] (\w+)$', text, re.M)]
            if test['result'] == 'SKIP':
                yield test['name'], *of_skips(skips or [test['name']])
            elif test['result'] not in ('OK', 'EXPECTEDFAIL'):
                yield test['name'], 'failed', f'{test["result"]}, status {test.get("returncode")}\n{text}'
            else:
                what, why = of_skips(skips)
                yield test['name'], what if what == 'failed' else 'passed', why


def results(path):
    return list((results_of_junit if path.endswith('.xml') else results_of_meson)(path))


def times(path):
    """(seconds, name) of each test."""
    if path.endswith('.xml'):
        return [(float(case.get('time')), case.get('name')) for case in xml.parse(path).getroot().iter('testcase')]
    with open(path) as f:
        return [(test['duration'], test['name']) for test in map(json.loads, f)]


def print_slowest(path):
    slowest = sorted(times(path), reverse=True)[:SLOWEST]
    print('; slowest:', ', '.join(f'{name} {seconds:.0f}' for seconds, name in slowest) or 'none')


def command(name):
    """The command that repeats a test: "mount.test_stat::test_times[root]" of pytest, or the name of a program of meson."""
    module, _, test = name.partition('::')
    if not test:
        return f'tests/run unit -k {shlex.quote(name)}'
    return f"tests/run {shlex.quote(module.replace('.', '/') + '.py::' + test)}"


def print_failures(paths):
    for path in paths:
        try:
            failures = [(name, text) for name, what, text in results(path) if what == 'failed']
        except (OSError, ValueError, xml.ParseError) as e:
            failures = [(path, f'no report: {e}')]
        for name, text in failures:
            lines = text.strip().splitlines()
            if len(lines) > MOST_LINES:
                lines[MOST_LINES // 2:-MOST_LINES // 2] = [f'... {len(lines) - MOST_LINES} lines ...']
            print(f'FAILED {name}', *lines, f'again: {command(name)}', sep='\n    ')


if __name__ == '__main__':
    if sys.argv[1] == '--failures':
        print_failures(sys.argv[2:])
    elif sys.argv[1] == '--slowest':
        print_slowest(sys.argv[2])
    else:
        found = [what for _, what, _ in results(sys.argv[1])]
        print(*(found.count(what) for what in ('passed', 'failed', 'skipped')))
