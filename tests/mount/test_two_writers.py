# SPDX-License-Identifier: Apache-2.0
"""Writers of one SOURCE that begin the same step at once (lib/step_races.py): one makes it, all others are refused. tests/soak/races does it for long."""

import pytest

from lib import step_races
from lib.pairs import LONG, on, pairs

BUCKET = 'raced'
IN_MEMORY = True  # both for the fixtures
STEPS = 40 if LONG else 15


@pytest.mark.parametrize('mode, kind', pairs(['rename', 'commit_file'], ['4 mounts', '2 mounts and 2 saves']))
def test_in_a_directory(program, tmp_path, root, mode, kind):
    faults, steps = step_races.run(program, root, tmp_path, kind, [f'atomicity={mode}'], STEPS, 1)
    assert not faults and steps == STEPS, '\n'.join(faults)


@on('gs')
def test_in_a_bucket(program, tmp_path, bucket, proxy, spill):
    faults, steps = step_races.run(program, f'{bucket.scheme}://{BUCKET}/run', tmp_path, '2 mounts and 2 saves', [], 5, 1)
    assert not faults and steps == 5, '\n'.join(faults)
