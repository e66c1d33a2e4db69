# SPDX-License-Identifier: Apache-2.0
"""A command that lacks memory once says so, or prints all that it prints otherwise."""

import os

import numpy as np
import pytest

import pytreefs
from lib import preload


@pytest.fixture(scope='session')
def nomem(tmp_path_factory):
    return preload.make(tmp_path_factory, 'nomem')


@pytest.mark.parametrize('words', [['ls', '--json', 'default'], ['ls', '-l', 'default'], ['tree', '--json', '.'], ['report', '--json', '.'],
                                   ['stats', '--json', '.'], ['stats', '.']])
def test_nothing_is_left_out_when_one_allocation_fails(words, run, tmp_path, nomem):
    pytreefs.save(tmp_path / 'step', {'a': np.arange(6.), 'b': {'n': 3, 't': 'x'}})
    words = [*words[:-1], tmp_path / 'step' / words[-1], '-o', 'sandbox=off,threads=1']

    def starved(n):
        return run(*words, ok=False, env=os.environ | {'LD_PRELOAD': str(nomem), 'TEST_FAIL_AT': str(n)})

    whole = starved(0).stdout
    lacking = [n for n in range(150, 600, 3) if (r := starved(n)).returncode == 0 and r.stdout != whole]
    assert not lacking
