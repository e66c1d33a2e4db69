# SPDX-License-Identifier: Apache-2.0
"""Orbax and TensorStore read what has checksums of ours as what has none."""

import os

import numpy as np
import pytest

from lib import expect, restoring

LAYOUTS = [('compression=none',), ('ocdbt=off',), ('ocdbt=off', 'compression=none'), ('ocdbt=off', 'compression=none', 'zarr=3')]


@pytest.mark.parametrize('options', LAYOUTS, ids=','.join)
def test_orbax_and_tensorstore_do_not_see_them(run, tmp_path, options):
    tree = expect.flatten({'w': np.arange(5000, dtype=np.float32).reshape(100, 50), 'in': {'b': np.arange(7, dtype=np.int64)}})
    (tmp_path / 'files/in').mkdir(parents=True)
    np.save(tmp_path / 'files/w.npy', tree.leaves['w',])
    np.save(tmp_path / 'files/in/b.npy', tree.leaves['in', 'b'])
    run('save', '-o', ','.join(options), tmp_path / 'files', tmp_path / 'root/1')
    item = tmp_path / 'root/1/default'
    assert ('.crc32c' in os.listdir(item)) == ('ocdbt=off' in options)
    assert not restoring.by_orbax(tmp_path / 'root', 1, tree)
    assert not list(restoring.by_tensorstore(item, tree, 'ocdbt=off' not in options, 'zarr=3' in options))
