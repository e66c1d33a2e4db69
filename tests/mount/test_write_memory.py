# SPDX-License-Identifier: Apache-2.0
"""Memory while leaves are written that are many times the write budget: 4 GiB with tests/soak/memory."""

import pytest

from lib import bigwrite

pytestmark = pytest.mark.timeout(900)

MIB = 1 << 20


@pytest.mark.parametrize('way,mib,options,writers', [
    ('in order', 160, ['compression=none'], 1),
    ('in order', 80, [], 2),
    ('out of order', 160, [], 1),
    ('column-major', 96, ['zarr=3'], 1),
    ('in order', 160, ['ocdbt=off', 'chunk_byte_size=64M'], 1),   # no chunk fits the budget
    ('in order', 192, ['ocdbt=off', 'shard_axes=0'], 1),          # a chunk for each of 49,152 rows
], ids=['raw', 'zstd-two-writers', 'staged', 'column-major', 'long-chunks', 'short-chunks'])
def test_peak_is_budget_cache_and_a_constant(program, tmp_path, way, mib, options, writers):
    peak, later = bigwrite.run(program, tmp_path, way, mib, 16, options, writers)
    limit = (16 + 64) * MIB + bigwrite.SMALL
    assert peak <= limit, f'{peak >> 20} MiB while it was written'
    assert later <= limit, f'{later >> 20} MiB while it was read'
