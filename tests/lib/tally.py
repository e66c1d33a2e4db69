"""Reports of test programs: JUnit XML of pytest, or testlog.json of meson.

tally.py REPORT prints "PASSED FAILED SKIPPED"; tally.py --failures REPORT... prints what failed and
how, for the end of a run's output: who reads only that must not have to look for it.
"""

import json
import sys
import xml.etree.ElementTree as xml

MOST_LINES = 60    # of one failure


def of_junit(path):
    passed = failed = skipped = 0
    for case in xml.parse(path).getroot().iter('testcase'):
        if case.find('failure') is not None or case.find('error') is not None:
            failed += 1
        elif case.find('skipped') is not None:
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def of_meson(path):
    passed = failed = skipped = 0
    with open(path) as f:
        for line in f:
            result = json.loads(line)['result']
            if result in ('OK', 'EXPECTEDFAIL'):
                passed += 1
            elif result == 'SKIP':
                skipped += 1
            else:
                failed += 1
    return passed, failed, skipped


def failures_of_junit(path):
    """(name, text) of each test of a JUnit report that failed."""
    for case in xml.parse(path).getroot().iter('testcase'):
        for kind in ('failure', 'error'):
            for fault in case.findall(kind):
                yield f'{case.get("classname")}::{case.get("name")}', fault.text or fault.get('message', '')


def failures_of_meson(path):
    with open(path) as f:
        for line in f:
            test = json.loads(line)
            if test['result'] not in ('OK', 'EXPECTEDFAIL', 'SKIP'):
                told = test.get('stdout', '') + test.get('stderr', '')
                yield test['name'], f'{test["result"]}, status {test.get("returncode")}\n{told}'


def print_failures(paths):
    for path in paths:
        try:
            failures = list((failures_of_junit if path.endswith('.xml') else failures_of_meson)(path))
        except (OSError, ValueError, xml.ParseError) as e:
            failures = [(path, f'no report: {e}')]
        for name, told in failures:
            lines = told.strip().splitlines()
            if len(lines) > MOST_LINES:
                lines[MOST_LINES // 2:-MOST_LINES // 2] = [f'... {len(lines) - MOST_LINES} lines ...']
            print(f'FAILED {name}', *lines, sep='\n    ')


if __name__ == '__main__':
    if sys.argv[1] == '--failures':
        print_failures(sys.argv[2:])
    else:
        print(*(of_junit if sys.argv[1].endswith('.xml') else of_meson)(sys.argv[1]))
