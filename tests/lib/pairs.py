# SPDX-License-Identifier: Apache-2.0
"""Fewer combinations of parameters than all, for tests whose parameters have little to do with each other."""

import functools
import inspect
import itertools
import os

import pytest

LONG = 'TEST_LONG' in os.environ        # tests/run --all


def pairs(*values):
    """
    Combinations of the values of parameters, one list for each: all if LONG. Else some that have every pair of values of any two
    parameters; of two parameters, each value of both.
    """
    every = list(itertools.product(*map(range, map(len, values))))
    if LONG:
        chosen = every
    else:
        sizes = min(len(values) - 1, 2)
        chosen, left = [], {seen for row in every for seen in parts(row, sizes)}
        while left:
            # Among those that are as good, the one with the most different values: two parameters do not change together.
            row = max(every, key=lambda row: (len(left & parts(row, sizes)), len(set(row))))
            left -= parts(row, sizes)
            chosen.append(row)
    return [tuple(v[i] for v, i in zip(values, row)) for row in sorted(chosen)]


def on_buckets(*rows):
    """For parametrize('bucket, ...', indirect=['bucket']): each row with both vendors if LONG, else with one, by turns."""
    rows = [row if isinstance(row, tuple) else (row,) for row in rows]
    return [(scheme, *row) for i, row in enumerate(rows) for k, scheme in enumerate(['s3', 'gs']) if LONG or (i + k) % 2 == 0]


def on(scheme):
    """The mark of a test of what the vendors have in common: with both if LONG, else with that one."""
    return pytest.mark.parametrize('bucket', ['s3', 'gs'] if LONG else [scheme], indirect=True)


def in_one(names, values):
    """As parametrize(), but one test of all rows, which fails with what each wrong row says: where a row takes less time than a test."""
    names = names.replace(' ', '').split(',')

    def wrap(check):
        @functools.wraps(check)
        def test(**fixtures):
            wrong = []
            for row in values:
                try:
                    check(**fixtures, **dict(zip(names, row if len(names) > 1 else [row], strict=True)))
                except Exception as e:
                    wrong.append(f'{row!r:.300}: {type(e).__name__}: {e}')
            assert not wrong, '\n'.join([f'{len(wrong)} of {len(values)}', *wrong[:20]])
        signature = inspect.signature(check)
        test.__signature__ = signature.replace(parameters=[p for name, p in signature.parameters.items() if name not in names])
        return test
    return wrap


def parts(row, size):
    return set(itertools.combinations(enumerate(row), size))
