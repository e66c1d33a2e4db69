# SPDX-License-Identifier: Apache-2.0
"""leaf[...] against numpy, and the other ways to read a leaf."""

import random

import numpy as np
import pytest

import pytreefs
from lib import expect

SEED = 16


def random_index(r, shape):
    """A basic index of numpy for an array of that shape, not always a tuple, sometimes empty."""
    out = []
    for n in shape:
        kind = r.random()
        if kind < 0.25 and n:
            out.append(r.randrange(-n, n))
        elif kind < 0.35:
            out.append(slice(None))
        else:
            def bound():
                return r.choice([None, r.randrange(-n - 2, n + 3)])
            out.append(slice(bound(), bound(), r.choice([None, 1, 2, 3, -1, -2, n + 1])))
    if r.random() < 0.3:
        cut = r.randrange(len(out) + 1)
        out = out[:cut] + [...] + out[r.randrange(cut, len(out) + 1):]
    if r.random() < 0.2:
        out.insert(r.randrange(len(out) + 1), None)
    return out[0] if len(out) == 1 and r.random() < 0.5 else tuple(out)


def same(got, want):
    assert type(got) is type(want), (type(got), type(want))
    return expect.same_bits(np.asarray(want), np.asarray(got))


@pytest.mark.parametrize('name', ['chunked-ocdbt-zarr2-v0', 'chunked-perleaf-zarr3-v1', 'dtypes-ocdbt-zarr3',
                                  'matrix-ocdbt-zarr2-zstd-v0', 'matrix-perleaf-zarr3-none-v1'])
def test_random_boxes(cases, name):
    """400 each, of leaves at random."""
    case, r, n = cases(name), random.Random(SEED), 0
    for where, tree in case.trees.items():
        with pytreefs.open(case.path / where) as ck:
            arrays = {p: (ck['/'.join(p)], v) for p, v in tree.leaves.items() if isinstance(v, np.ndarray)}
            for _ in range(400):
                path = r.choice(sorted(arrays))
                leaf, want = arrays[path]
                index = random_index(r, want.shape)
                try:
                    expected = want[index]
                except IndexError:
                    with pytest.raises(IndexError):
                        leaf[index]
                    continue
                assert same(leaf[index], expected), (path, index)
                n += 1
    assert n > 300


@pytest.fixture
def leaf(cases):
    case = cases('matrix-ocdbt-zarr2-zstd-v0')
    tree = case.tree()
    path = max((p for p, v in tree.leaves.items() if isinstance(v, np.ndarray) and v.dtype == np.float32), key=len)
    with pytreefs.open(case.path / next(iter(case.trees))) as ck:
        yield ck['/'.join(path)], tree.leaves[path]


@pytest.mark.parametrize('index', [True, [0], np.array([0]), 'w', 1.0, (..., ...), np.True_])
def test_other_indices_are_refused(leaf, index):
    with pytest.raises(IndexError):
        leaf[0][index]


def test_out_of_bounds_is_what_numpy_says(leaf):
    a = np.asarray(leaf[0])
    for index in (a.shape[0], -a.shape[0] - 1, (0,) * (a.ndim + 1)):
        with pytest.raises(IndexError) as want:
            a[index]
        with pytest.raises(IndexError) as got:
            leaf[0][index]
        assert str(got.value) == str(want.value)


def test_casts_and_memory_of_the_caller(leaf):
    leaf, want = leaf
    assert expect.same_bits(leaf.read(dtype='float16'), want.astype(np.float16))
    assert leaf.read(dtype='bfloat16').dtype.name == 'bfloat16'
    out = np.zeros(want.shape, np.float64)
    assert leaf.read(out=out) is out and np.array_equal(out, want.astype(np.float64))
    assert np.asarray(leaf, dtype=np.float64).dtype == np.float64
    assert np.array_equal(np.from_dlpack(leaf), want)
    with pytest.raises(ValueError, match='not in memory'):
        np.array(leaf, copy=False)
    with pytest.raises(ValueError, match='shape'):
        leaf.read(out=np.zeros((1, *want.shape), np.float32))


def bytes_read():
    """By this process, from whatever cache."""
    with open('/proc/self/io') as f:
        return int(f.readline().split()[1])


def test_a_box_reads_only_the_chunks_under_it(cases):
    case = cases('chunked-ocdbt-zarr2-v0')
    where, tree = next(iter(case.trees.items()))
    path = max((p for p, v in tree.leaves.items() if isinstance(v, np.ndarray)), key=lambda p: tree.leaves[p].nbytes)
    with pytreefs.open(case.path / where, io='sync') as ck:
        leaf = ck['/'.join(path)]
        assert leaf.chunks != leaf.shape and len(leaf.chunks) == leaf.ndim
        corner = tuple(slice(0, 1) for _ in leaf.shape)
        leaf[corner]        # the index of the database
        taken = []
        for index in (tuple(slice(n - 1, n) for n in leaf.shape), ...):
            before = bytes_read()
            assert same(leaf[index], tree.leaves[path][index])
            taken.append(bytes_read() - before)
        assert taken[0] < taken[1] / 2, taken


def test_names_of_a_mount_are_found(cases):
    """Views, files, and the text of a subtree."""
    with pytreefs.open(cases('manager-root').path) as ck:
        step = ck.latest
        item = step['state']
        leaf = next(x for x in item.leaves() if x.kind == 'array' and x.ndim)
        name = leaf.name[:-len('.npy')]
        assert ck[name + '[0].npy'].shape == leaf.shape[1:]
        assert ck[name + '@float64.npy'].dtype == np.float64
        assert np.array_equal(ck[name + '[0]@float64.npy'][...], np.asarray(leaf)[0].astype(np.float64))
        assert ck[leaf.key[0]].kind == 'step'
        assert ck[step.name + '/state.safetensors'].read()[:8] != b''
        for missing in ('nope', 'state/nope', name + '[999999].npy', '', 'nope/x'):
            with pytest.raises(KeyError):
                ck[missing]
            assert missing not in ck
