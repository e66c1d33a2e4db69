# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that older releases of Orbax (and flax) wrote, read to the last bit: tests/data/old."""

import pytest

from lib import compare, old


@pytest.mark.feature('F4')
@pytest.mark.parametrize('release,name', old.names())
def test_release(mount, release, name):
    case = old.get(release, name)
    m = mount(case.path)
    faults = compare.compare_case(m.path, case)
    for where, tree in case.trees.items():
        faults += list(compare.through_pread(m / where, tree, reads=5))
    assert not faults, '\n'.join(faults)


def test_enough_releases_are_there():
    releases = old.releases()
    assert len(releases) >= 6 and releases[0] == '0.2.7' and releases[-1] == '0.12.4', releases
