# SPDX-License-Identifier: Apache-2.0
"""Random calls on the files of a draft have the same effects as on ordinary files (lib/draft_model.py; more: tests/soak/drafts)."""

import os

import pytest

from lib import draft_model
from lib.pairs import LONG

SEED = int(os.environ.get('PYTREEFS_DRAFT_SEED', '1'))
COUNT = int(os.environ.get('PYTREEFS_DRAFT_COUNT', '4'))
STEPS = int(os.environ.get('PYTREEFS_DRAFT_STEPS', '80' if LONG else '40'))

OPTIONS = [(), ('compression=none', 'zarr=3'), ('ocdbt=off', 'chunk_byte_size=30000'), ('write_budget=1M', 'io=sync')]


@pytest.mark.parametrize('seed', range(SEED, SEED + COUNT))
def test_random_histories(mount, tmp_path, seed):
    """The calls reach every place that contents can be in: memory, stream, staged, stored. At the end the draft commits."""
    root = tmp_path / 'root'
    root.mkdir()
    m = mount(root, *OPTIONS[seed % len(OPTIONS)], allow_errors=True)
    draft_model.run_history(m.path, tmp_path / 'ordinary', seed, STEPS)
    assert not [line for line in m.log_lines() if 'not encoded yet' in line]
