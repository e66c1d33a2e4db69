"""Print "PASSED FAILED SKIPPED" of one report: JUnit XML of pytest, or testlog.json of meson."""

import json
import sys
import xml.etree.ElementTree as xml


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


if __name__ == '__main__':
    print(*(of_junit if sys.argv[1].endswith('.xml') else of_meson)(sys.argv[1]))
