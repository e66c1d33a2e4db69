# SPDX-License-Identifier: Apache-2.0
"""Items whose arrays are in several databases, through the library: interop/test_databases_below.py has the other ways."""

import numpy as np
import pytest

import pytreefs
from lib import array_serialization, old


@pytest.mark.parametrize('driver', ['zarr', 'zarr3'])
def test_jax(tmp_path, driver):
    named = array_serialization.arrays()
    array_serialization.save(tmp_path / 'jax', named, driver)
    loaded = pytreefs.load(tmp_path / 'jax')
    for name, want in named.items():
        node = loaded
        for key in name.split('/'):
            node = node[key]
        assert np.asarray(node).tobytes() == np.asarray(want).tobytes(), name


@pytest.mark.parametrize('release', ['0.3.5', '0.4.0', '0.4.1'])
def test_old_releases(release):
    case = old.get(release, 'slashes')
    with pytreefs.open(case.path) as ck:
        for path, want in case.tree().leaves.items():
            node = ck
            for key in path:
                node = node[key]
            assert np.asarray(node).tobytes() == np.asarray(want).tobytes(), path
