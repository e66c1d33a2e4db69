# SPDX-License-Identifier: Apache-2.0
"""tests/lib/tally.py: what a report counts as, and which skips fail a run."""

import json
import pathlib
import subprocess
import sys

import pytest

TALLY = pathlib.Path(__file__).resolve().parents[1] / 'lib/tally.py'
CASE = '<testsuite><testcase classname="mount.test_a" name="test_b[c d]" time="2.6">{}</testcase></testsuite>'


def tally(*words):
    return subprocess.run([sys.executable, TALLY, *words], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize('inside, counts', [
    ('', '1 0 0'),
    ('<failure message="x">trace</failure>', '0 1 0'),
    ('<skipped message="no user namespaces here"/>', '0 0 1'),
    ('<skipped message="I had no mind to"/>', '0 1 0'),
])
def test_a_pytest_report(tmp_path, inside, counts):
    report = tmp_path / 'r.xml'
    report.write_text(CASE.format(inside))
    assert tally(report) == counts
    failures = tally('--failures', report)
    assert ('FAILED mount.test_a::test_b[c d]' in failures) == (counts == '0 1 0')
    assert ("again: tests/run 'mount/test_a.py::test_b[c d]'" in failures) == (counts == '0 1 0')
    assert tally('--slowest', report) == '; slowest: test_b[c d] 3'
    assert ('tests/skips.txt: I had no mind to' in failures) == ('mind' in inside)


@pytest.mark.parametrize('result, stdout, counts', [
    ('OK', '[       OK ] x\n', '1 0 0'),
    ('FAIL', '', '0 1 0'),
    ('SKIP', '', '0 1 0'),
    ('OK', '[  SKIPPED ] a_block_serves_one_of_about_its_size\n', '1 0 0'),
    ('OK', '[  SKIPPED ] the_hard_one\n', '0 1 0'),
])
def test_a_meson_report(tmp_path, result, stdout, counts):
    """A program that skips one of its tests without being on the list fails, although meson calls it OK."""
    report = tmp_path / 'r.json'
    report.write_text(json.dumps({'name': 't', 'result': result, 'returncode': 0, 'stdout': stdout, 'duration': 1.2}) + '\n')
    assert tally(report) == counts
    assert ('unit test the_hard_one' in tally('--failures', report)) == ('hard' in stdout)
    assert ('again: tests/run unit -k t' in tally('--failures', report)) == (counts == '0 1 0')
    assert tally('--slowest', report) == '; slowest: t 1'
