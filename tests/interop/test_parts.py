# SPDX-License-Identifier: Apache-2.0
"""One array that several files hold, each its box."""

import concurrent.futures
import itertools

import ml_dtypes
import numpy as np
import pytest

from lib import expect, restoring
from lib.gen_matrix import values
from lib.pairs import pairs
from test_writing import commit

GRIDS = {       # the cuts of each axis
    'regular': ((64, 48), ([0, 16, 32, 48, 64], [0, 24, 48])),
    'uneven': ((50, 31), ([0, 7, 20, 50], [0, 30, 31])),
    'rows': ((1000,), ([0, 1, 999, 1000],)),
    'cube': ((6, 8, 10), ([0, 2, 4, 6], [0, 4, 8], [0, 5, 10])),
    'one': ((5, 5), ([0, 5], [0, 5])),
}


def boxes(shape, cuts):
    for box in itertools.product(*([(a, b) for a, b in itertools.pairwise(c)] for c in cuts)):
        name = ','.join(f'{a}:{b}' for a, b in box)
        yield f'w[{name}]@{"x".join(map(str, shape))}.npy', tuple(slice(a, b) for a, b in box)


@pytest.mark.parametrize('options, grid', pairs(
    [(), ('zarr=3',), ('ocdbt=off',), ('ocdbt=off', 'zarr=3'), ('chunk_byte_size=300',), ('dtype=float16',)],
    list(GRIDS)))
def test_parts_make_the_array(mount, tmp_path, grid, options):
    """Boxes in any order, by several writers at once; cut alike or not."""
    root = tmp_path / 'root'
    root.mkdir()
    m = mount(root, *options)
    shape, cuts = GRIDS[grid]
    tree = {'w': values(shape, np.float32, 1), 'in': {'w': values(shape, ml_dtypes.bfloat16, 2)}}
    (m / '7.tmp/default/in').mkdir(parents=True)
    jobs = [(m / '7.tmp/default' / name, tree['w'][box]) for name, box in boxes(shape, cuts)] + \
           [(m / '7.tmp/default/in' / name, tree['in']['w'][box]) for name, box in boxes(shape, cuts)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda job: np.save(*job), reversed(jobs)))
    for path, part in jobs:
        assert np.load(path).tobytes() == part.tobytes()
    commit(m, '7')
    if 'dtype=float16' in options:
        tree = {'w': tree['w'].astype(np.float16), 'in': {'w': tree['in']['w'].astype(np.float16)}}
    want = expect.flatten(tree)
    assert not restoring.by_orbax(root, 7, want, ('v0', 'v1'))
    assert not list(restoring.by_tensorstore(root / '7/default', want, 'ocdbt=off' not in options, 'zarr=3' in options))
    assert sorted(p.name for p in (m / '7/default').iterdir()) == ['_METADATA', 'in', 'w.npy']


@pytest.mark.parametrize('cuts, options', pairs(
    [([0, 16, 32, 64], [0, 24, 48]), ([0, 7, 20, 64], [0, 31, 48])],
    [(), ('zarr=3',), ('ocdbt=off',), ('ocdbt=off', 'zarr=3')]))
def test_a_tree_that_is_one_array_in_parts(mount, tmp_path, cuts, options):
    root = tmp_path / 'root'
    root.mkdir()
    m = mount(root, *options)
    whole = values((64, 48), np.float32, 1)
    (m / '7.tmp/default').mkdir(parents=True)
    for name, box in boxes(whole.shape, cuts):
        np.save(m / '7.tmp/default' / f'%{name[1:]}', whole[box])
    commit(m, '7')
    want = expect.flatten(whole)
    assert not restoring.by_orbax(root, 7, want, ('v0', 'v1'))
    assert np.load(m / '7/default/%.npy').tobytes() == whole.tobytes()
