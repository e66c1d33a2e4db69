# SPDX-License-Identifier: Apache-2.0
"""pytreefs.orbax: handlers of Orbax's interfaces, in the programs that were written for Orbax, and load(like=) on devices."""

import os
import pathlib
import re

import pytest

from lib import forks, jax_rank, killed_saves, servers

TESTS = str(pathlib.Path(__file__).resolve().parents[1])


def run(module, *args):
    """The lines that a module of tests/lib prints, in a process of its own: the number of jax's devices is chosen once."""
    return forks.run(forks.script, f'import sys\nsys.path.insert(0, {TESTS!r})\nfrom lib import {module}\n{module}.main(*sys.argv[1:])', *args).splitlines()


@pytest.mark.feature('H1', 'H2')
@pytest.mark.parametrize('first', range(0, 300, 12))
def test_random_trees_are_placed_as_orbax_places_them(tmp_path, first):
    """Trees, meshes, shardings, dtypes and layouts: each device's part, of load(like=) and of each handler's restore."""
    count = 12 if first else 4      # of which each takes seconds: four are in the shorter run
    found = [line for line in run('placing', tmp_path, first, count) if re.match(r'case \d|\d+ cases', line)]
    assert found == [f'{count} cases']


@pytest.mark.feature('H2', 'H3', 'H4')
def test_programs_of_orbax_with_our_handlers(tmp_path):
    """v0 and v1, synchronous and not; install() and uninstall(); what we do not do is done by Orbax."""
    names = ['manager', 'composite', 'of_v1', 'installed', 'durable', 'one_name', 'fails', 'falls_back']
    assert [line for line in run('orbax_programs', tmp_path) if line in names] == names


@pytest.mark.feature('H3', 'H4')
def test_guides_of_orbax(tmp_path):
    """Each section with the result that it has without us; docs/jax.md has the table."""
    rows = [line for line in run('orbax_guides', tmp_path) if line.startswith('| v')]
    page = (pathlib.Path(TESTS).parent / 'docs' / 'jax.md').read_text(encoding='utf-8').splitlines()
    assert rows and rows == [line for line in page if line.startswith(('| v0 ', '| v1 '))]


@pytest.mark.feature('H1', 'H5')
@pytest.mark.parametrize('n, writer, reader', [(2, 'ours', 'ours'), (2, 'ours', ''), (2, '', 'ours'), (4, 'ours', 'ours')])
def test_several_processes(tmp_path, n, writer, reader):
    """Each reads its own boxes; Orbax's barriers order what each writes, and its merge makes one database of it."""
    for what, who in (('save', writer), ('restore', reader)):
        with servers.port_for_grpc() as port:
            out = forks.together([(jax_rank.main, r, n, port, what, tmp_path / 'root', '0', who) for r in range(n)])
            assert all('is done' in text for text in out)


@pytest.mark.feature('H5')
@pytest.mark.parametrize('n, moments', [(1, 5), (4, 2), (1, 100), (4, 100)])
def test_kills_at_random_moments_of_saves(tmp_path, n, moments):
    """Each begins with what the one before has left. All steps that Orbax lists are whole, and none is lost that was there."""
    seed, steps = os.urandom(4).hex(), []
    print('seed', seed)
    for i in range(moments):
        found = killed_saves.kill_at_random(tmp_path / 'root', n, f'{seed}-{i}')
        assert not steps or found and found[-1] >= steps[-1], (i, steps, found)
        steps = found
    assert steps
