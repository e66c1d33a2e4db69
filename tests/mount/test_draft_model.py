# SPDX-License-Identifier: Apache-2.0
"""Leaves of a draft beside ordinary files: whatever is done to both, both read alike at every moment."""

import os

import numpy as np
import pytest

from lib import draft_model

SEED = int(os.environ.get('PYTREEFS_DRAFT_SEED', '1'))
COUNT = int(os.environ.get('PYTREEFS_DRAFT_COUNT', '4'))
STEPS = int(os.environ.get('PYTREEFS_DRAFT_STEPS', '80'))

OPTIONS = [(), ('compression=none', 'zarr=3'), ('ocdbt=off', 'chunk_byte_size=30000'), ('write_budget=1M', 'io=sync')]


@pytest.mark.parametrize('seed', range(SEED, SEED + COUNT))
def test_random_histories(mount, tmp_path, seed):
    """Every place that contents can be in: memory, stream, staged, stored. In the end it commits."""
    root, ordinary = tmp_path / 'root', tmp_path / 'ordinary'
    root.mkdir()
    m = mount(root, *OPTIONS[seed % len(OPTIONS)], allow_errors=True)
    (m / '7.tmp/default').mkdir(parents=True)
    model = draft_model.Model(m / '7.tmp/default', ordinary, seed)
    for _ in range(STEPS):
        model.step()
        model.compare()
    leaves = model.mend()
    model.compare()
    if not leaves:
        np.save(m / '7.tmp/default/d0/last.npy', np.arange(3))
        leaves['d0', 'last'] = np.arange(3)
    (m / '7.tmp').rename(m / '7')
    for (d, name), want in leaves.items():
        got = np.load(m / f'7/default/{d}/{name}.npy')
        got = got.view(want.dtype) if got.dtype.kind == 'V' else got
        assert got.shape == want.shape and got.dtype == want.dtype, (name, got.dtype, want.dtype)
        assert got.tobytes() == np.ascontiguousarray(want).tobytes(), name
    assert not [line for line in m.log_lines() if 'not encoded yet' in line]
