# SPDX-License-Identifier: Apache-2.0
"""Chunk shapes and casts of whole drafts, against Orbax's and numpy's: what reaches the disk."""

import json
import math
import os
import random

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts
from orbax.checkpoint._src.arrays import subchunking

from lib import compare, mounts, writing
from lib.pairs import LONG
from test_casts import NAMES, dtype_of, inputs, numpy_cast

pytestmark = pytest.mark.filterwarnings('ignore')


def combinations(n):
    """(shape, dtype, chunk_byte_size, shard_axes) that Orbax takes."""
    rng = random.Random(11)
    sizes = [1, 2, 3, 5, 6, 7, 8, 12, 16, 24, 30, 36, 49, 60, 64, 97, 100, 128, 210, 256]
    while n:
        shape = tuple(rng.choice(sizes) for _ in range(rng.randrange(1, 5)))
        dtype = np.dtype(rng.choice(['int8', 'bfloat16', 'float16', 'float32', 'float64', 'complex128']))
        size = math.prod(shape) * dtype.itemsize
        limit = max(dtype.itemsize, int(size * rng.choice([2, 1, 0.99, 0.5, 0.3, 0.1])))
        axes = tuple(rng.sample(range(len(shape)), rng.choice([0, 0, 1, min(2, len(shape))])))
        if size > 1 << 20:
            continue
        try:
            chunk = subchunking.choose_chunk_shape(shape, shape, dtype, limit, shard_axes=axes)
        except ValueError:
            continue
        if math.prod(-(-s // c) for s, c in zip(shape, chunk)) < 300:
            n -= 1
            yield shape, dtype, limit, axes, chunk


@pytest.mark.feature('A2', 'A9')
def test_the_types_of_these_tests_are_those_that_orbax_saves(tmp_path):
    """Every type of numpy and of ml_dtypes is tried."""
    every = {np.dtype(code).name for code in np.typecodes['All']} | {'V3'}
    every |= {np.dtype(t).name for t in vars(ml_dtypes).values() if isinstance(t, type) and issubclass(t, np.generic)}
    taken = set()
    for name in every:
        try:
            ocp.PyTreeCheckpointer().save(tmp_path / name, {'a': np.zeros(4, name)})
        except ValueError:
            continue
        assert ocp.PyTreeCheckpointer().restore(tmp_path / name)['a'].dtype == np.dtype(name)
        taken.add(name)
    print(f'{len(taken)} of {len(every)} types, {len(taken) ** 2} pairs')
    assert taken == set(NAMES)


@pytest.mark.feature('A3', 'A4', 'D6')
@pytest.mark.parametrize('how', ['xattr', 'rule'])
def test_chunks_of_drafts_are_those_of_orbax(mount, tmp_path, how):
    """Many leaves, each with its own limit and axes."""
    root = tmp_path / 'root'
    root.mkdir()
    n = 240 if how == 'xattr' and LONG else 40
    cases = list(combinations(n))
    assert len(set(cases)) > n * 0.8
    print(f'{len(set(cases))} combinations of {len({c[0] for c in cases})} shapes and {len({c[1] for c in cases})} dtypes')
    rules = [f'rule=default/a{i}:chunk_byte_size={limit}' for i, (_, _, limit, _, _) in enumerate(cases)]
    rules += [f'rule=default/a{i}:shard_axes={":".join(map(str, axes))}' for i, (*_, axes, _) in enumerate(cases) if axes]
    m = mount(root, 'ocdbt=off', *(rules if how == 'rule' else []))
    d = m / '1.tmp/default'
    d.mkdir(parents=True)
    for i, (shape, dtype, limit, axes, _) in enumerate(cases):
        with open(d / f'a{i}.npy', 'wb') as f:
            if how == 'xattr':
                os.setxattr(f.fileno(), 'user.pytree.save.chunk_byte_size', str(limit).encode())
                if axes:
                    os.setxattr(f.fileno(), 'user.pytree.save.shard_axes', json.dumps(axes).encode())
            np.save(f, np.ones(shape, dtype))
    os.rename(m / '1.tmp', m / '1')
    wrong = []
    for i, (shape, dtype, limit, axes, chunk) in enumerate(cases):
        found = json.loads((root / f'1/default/a{i}/.zarray').read_text())['chunks']
        if found != list(chunk):
            wrong.append((shape, dtype, limit, axes, chunk, found))
    assert not wrong, wrong[:5]


def sample(name):
    """A hundred or so elements of a type, odd ones among them; the rest is test_casts' affair."""
    a = inputs(name)
    a = a[:: max(1, len(a) // 128)][:128]
    # As in test_casts: the last elements, which fill no vector, numpy casts in another way.
    return np.concatenate([a, np.zeros(64 + -len(a) % 64, a.dtype)])


def fill(d):
    """One leaf of each type, as programs write them."""
    for name in NAMES:
        a = sample(name)
        (d / f'{name}.npy').write_bytes(writing.npy(a))
        os.setxattr(d / f'{name}.npy', 'user.pytree.dtype', json.dumps(name).encode())


def differing(path, name, target):
    """Where a leaf's file is not numpy's cast of its sample."""
    with np.errstate(all='ignore'):
        wanted = numpy_cast(sample(name), name, target)
    found = path.read_bytes()[-wanted.nbytes:]
    return [] if found == wanted.tobytes() else [(name, target)]


@pytest.mark.feature('A2', 'A5', 'A9')
def test_every_pair_of_types_reading_and_writing(mount, program, tmp_path):
    """Views of a mount, restore_dtype, and save dtype: the same bits as numpy's."""
    root = tmp_path / 'root'
    root.mkdir()
    m = mount(root)
    (m / '1.tmp/default').mkdir(parents=True)
    fill(m / '1.tmp/default')
    os.rename(m / '1.tmp', m / '1')
    wrong = []
    for name in NAMES:
        wrong += differing(m / f'1/default/{name}.npy', name, name)
        for target in NAMES:
            wrong += differing(m / f'1/default/{name}@{target}.npy', name, target)
    assert not wrong, wrong[:10]
    for step, target in enumerate(NAMES, 2):
        d = m / f'{step}.tmp/default'
        d.mkdir(parents=True)
        os.setxattr(d, 'user.pytree.save.dtype', json.dumps(target).encode())
        fill(d)
        os.rename(m / f'{step}.tmp', m / str(step))
        for name in NAMES:
            assert compare.xattrs(m / f'{step}/default/{name}.npy')['dtype'] == target
            wrong += differing(m / f'{step}/default/{name}.npy', name, target)
    assert not wrong, wrong[:10]
    for target in ('bfloat16', 'float8_e4m3fn', 'int32'):
        cast = mounts.Mount(program, root, tmp_path / f'as-{target}', tmp_path / f'log-{target}', [f'restore_dtype={target}'])
        try:
            for name in NAMES:
                wrong += differing(cast / f'1/default/{name}.npy', name, target)
        finally:
            cast.unmount()
    assert not wrong, wrong[:10]
    assert all(dtype_of(n) for n in NAMES)


@pytest.mark.feature('A3')
@pytest.mark.parametrize('limit', [200, 4096, 100_000, 1 << 20])
def test_the_size_of_data_files_limits_chunks_as_orbax_does(run, tmp_path, limit):
    """target_data_file_size alone: the chunks of arrays that exceed it are those that Orbax gives them."""
    rng = random.Random(limit)
    shapes = {(limit // 4 + 1,), (64, 64), (256, 210), (97, 128), (7, 30, 49), (1000,), (3, 1 << 18), (16, 1)}
    shapes |= {tuple(rng.choice([2, 3, 12, 36, 60, 100, 256]) for _ in range(rng.randrange(1, 4))) for _ in range(20)}
    tree = {f'a{i}': np.zeros(shape, np.float32) for i, shape in enumerate(sorted(shapes))}
    files = tmp_path / 'files'
    files.mkdir()
    for name, array in tree.items():
        np.save(files / f'{name}.npy', array)
    (tmp_path / 'ours').mkdir()
    run('save', '-o', f'target_data_file_size={limit}', files, tmp_path / 'ours/1')
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=True)).save(
        tmp_path / 'theirs', args=ocp.args.PyTreeSave(tree, ocdbt_target_data_file_size=limit))
    spec = {}
    for name in tree:
        for path in (tmp_path / 'ours/1/default', tmp_path / 'theirs'):
            store = {'driver': 'ocdbt', 'base': f'file://{path}/', 'path': f'{name}/'}
            z = ts.open({'driver': 'zarr', 'kvstore': store}).result()
            spec.setdefault(name, []).append(tuple(z.chunk_layout.read_chunk.shape))
    assert sum(a.nbytes > limit for a in tree.values()) >= 2
    assert {n: c[0] for n, c in spec.items()} == {n: c[1] for n, c in spec.items()}
