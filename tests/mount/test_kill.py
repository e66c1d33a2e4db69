# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the daemon while a step is saved: the step is absent or whole, and gc removes the rest.

A longer run: tests/soak/kill.
"""

import pytest

from lib import killing
from lib.pairs import LONG


@pytest.mark.timeout(1200)
def test_a_killed_daemon_leaves_no_half_step(program, tmp_path):
    k = killing.Killer(program, tmp_path, 'seven')
    while k.n < (15 if LONG else 6) or (k.absent < 3 and k.n < 60):
        k.round()
    assert k.absent > 2, 'no save was cut short'
