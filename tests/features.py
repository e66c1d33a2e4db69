#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which parts of Orbax's interface are shown by a test that passed: features.py REPORT.xml...

One line per row: ID, verdict, what it is, a test that shows it. A test names its rows with
@pytest.mark.feature('A2', 'D6'); conftest.py writes them into the reports. A row without a test has
failed, as has one of whose tests any failed. `--totals` prints "PASSED FAILED SKIPPED" alone.
"""

import sys
import xml.etree.ElementTree as xml

ROWS = {
    # Types of leaves.
    'A1': 'values inside the legacy msgpack file, read and written',
    'A2': 'a dtype to save as',
    'A3': 'a limit for the bytes of a chunk',
    'A4': 'axes that are cut first',
    'A5': 'another type on reading: forms and casts',
    'A6': 'another shape on reading: padded or truncated',
    'A7': 'the box of each device of a sharding',
    'A8': 'what a leaf type has to implement',
    'A9': 'numpy arrays',
    'A10': 'Python and numpy numbers',
    'A11': 'JAX arrays, and the files beside them',
    'A12': 'one replica reads and hands over to the others',
    'A13': 'strings',
    'A14': 'registering leaf types of others',
    'A15': 'telling databases from directories',
    'A16': 'merging what each process wrote',
    'A17': "TensorStore's spec of a leaf",
    'A18': 'random keys',
    # The PyTree handler.
    'B1': 'the name of the legacy msgpack file',
    'B2': 'memory of reads and writes is limited',
    'B3': 'the limit follows the memory that is free',
    'B4': 'database or directories, zarr 2 or 3, compressed or not',
    'B5': 'which processes take part',
    'B6': 'tree types in the metadata; arrays are compared with theirs',
    'B7': 'pinned host memory',
    'B8': 'which leaves go first',
    'B9': 'arguments of a save',
    'B10': 'transformations of the tree',
    'B11': 'what is not asked for is not read',
    'B12': 'what lacks its metadata, and what is damaged',
    'B13': 'saving in the background, waiting for it, and its errors',
    'B14': 'metadata without data',
    # Handlers of others.
    'C1': 'a leaf type as a plugin',
    'C2': 'an item type as a plugin',
    'C3': 'a plugin that works in the background',
    # Options.
    'D1': 'time limits, a command after the commit, directories made in the background',
    'D2': 'processes: who leads, who is active, what the job is called',
    'D3': 'permissions, and how a step becomes visible',
    'D4': 'options of trees',
    'D5': 'options of saving arrays',
    'D6': 'options of storage, global and by pattern',
    'D7': 'options of loading arrays',
    'D8': 'which handler an item has',
    'D9': 'Pathways, which is refused',
    'D10': 'deleted steps are renamed before they are removed',
    'D11': 'memory in bytes',
    'D12': 'options for a scope',
    'D13': 'safetensors files and directories as a source',
    # Handlers of items.
    'E1': 'what an item handler has to implement',
    'E2': 'items that nobody knows, as stored',
    'E3': 'trees',
    'E4': 'protocol buffers as text',
    'E5': 'JSON',
    'E6': 'the order of handlers',
    # Around it.
    'F1': 'names of steps',
    'F2': 'atomic commits and the cleaning up of others',
    'F3': 'metadata of steps and items, metrics',
    'F4': 'what older releases wrote',
    'F5': 'safetensors, both directions',
    'F6': "a counterpart of each of TensorStore's commands",
    # Beyond the guides.
    'G8': 'chunks and shardings for a mesh',
    # Inside JAX.
    'H1': 'arrays on devices, by load()',
    'H2': "handlers of v0, with Orbax's arguments",
    'H3': 'a handler of v1',
    'H4': 'handlers of types',
    'H5': 'several processes',
}


def shown_by(reports):
    """{row: [(test, passed)]} of every test that ran and was not skipped."""
    found = {}
    for report in reports:
        for case in xml.parse(report).getroot().iter('testcase'):
            if case.find('skipped') is not None:
                continue
            passed = case.find('failure') is None and case.find('error') is None
            for p in case.iter('property'):
                if p.get('name') == 'feature':
                    test = f"{case.get('classname').rpartition('.')[2]}::{case.get('name').split('[')[0]}"
                    found.setdefault(p.get('value'), []).append((test, passed))
    return found


def verdict(tests):
    """(passed, the test to name): one that failed before one that passed."""
    if not tests:
        return False, 'no test'
    failed = [test for test, passed in tests if not passed]
    return not failed, (failed or [test for test, _ in tests])[0]


def main(words):
    totals = '--totals' in words
    found = shown_by([w for w in words if w != '--totals'])
    results = {row: verdict(found.get(row)) for row in ROWS}
    passed = sum(ok for ok, _ in results.values())
    if totals:
        print(passed, len(ROWS) - passed, 0)
        return 0
    for row, (ok, test) in results.items():
        print(f"{row:<4}{'passed' if ok else 'FAILED'}  {ROWS[row]}: {test}")
    return passed < len(ROWS)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
