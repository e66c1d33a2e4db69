# SPDX-License-Identifier: Apache-2.0
"""Trees written through a mount by ordinary programs, and what real Orbax and TensorStore make of them."""

import jax
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from lib import expect, names, programs, restoring, writing
from lib.gen_matrix import DTYPES, STANDARD, bits, dtype_of, values


def leaves():
    """Every container kind and every leaf kind."""
    tree = {
        'params': {'dense': {'kernel': values((24, 16), np.float32, 1), 'bias': values((16,), ml_dtypes.bfloat16, 2)},
                   'embed': values((40, 12), np.float16, 3), 'cube': values((7, 5, 3), np.float64, 4),
                   'zeros': np.zeros((6, 8), np.float32), 'none': np.zeros((0, 5), np.float32)},
        'opt': [{'mu': values((24, 16), np.float32, 5), 'count': 12},
                (np.arange(10, dtype=np.int32), {'deep': [np.arange(6, dtype=np.uint8).reshape(2, 3)]})],
        'rank0': np.asarray(np.float32(2.5)),
        'long': values((40000,), np.float32, 6),
        'key': jax.random.key(7), 'keys': jax.random.split(jax.random.key(8, impl='rbg'), (2, 3)),
        'step': 100, 'rate': 0.1, 'big': 2 ** 62, 'negative': -7, 'flag': True, 'unset': False,
        'tiny': 5e-324, 'whole': 3.0, 'nan': float('nan'), 'inf': float('-inf'),
        'name': 'run \u00e9 \u65e5\u672c', 'text': '', 'lines': 'a\nb\n',
        'none': None, 'empty': {}, 'void': [], 'nothing': (), 'inlist': [{}, [], (), None, 'x', 5],
    }
    return expect.flatten(tree, rich=True)


def without(tree, drop):
    """Take leaves away, and the containers that hold nothing then."""
    tree.leaves = {p: v for p, v in tree.leaves.items() if not drop(p, v)}
    above = {p[:n] for p in tree.leaves for n in range(len(p))}
    tree.kinds = {p: k for p, k in tree.kinds.items() if p in above}
    return tree


def every_dtype():
    """Every element type, with every bit pattern, of ranks 0 to 3."""
    tree = {name: {'rank0': bits((), dtype_of(name), i), 'one': bits((300,), dtype_of(name), 100 + i),
                   'three': bits((3, 4, 2), dtype_of(name), 200 + i)} for i, name in enumerate(DTYPES)}
    return expect.flatten(tree)


def commit(mount, name, item='default'):
    (mount / f'{name}.tmp').rename(mount / name)


def write(mount, name, tree, put=programs.np_save, item='default'):
    where = mount / f'{name}.tmp' / item
    where.mkdir(parents=True)
    put(tree, where)
    return where


@pytest.mark.parametrize('by', programs.PROGRAMS)
def test_programs(mount, tmp_path, by):
    """Data from any program restores to the last bit, by every way that Orbax has."""
    root = tmp_path / 'root'
    root.mkdir()
    m = mount(root)
    tree = leaves()
    write(m, '7', tree, programs.PROGRAMS[by])
    commit(m, '7')
    assert not restoring.by_orbax(root, 7, tree, restoring.WAYS if by == 'np-save' else restoring.SOME_WAYS)
    assert not list(restoring.by_tensorstore(root / '7/default', tree))


@pytest.mark.parametrize('by', ['np-save', 'open-memmap', 'dd', 'rsync'])
@pytest.mark.feature('A9')
def test_every_dtype(mount, tmp_path, by):
    """A9: every element type of numpy and ml_dtypes, every bit pattern, as its own dtype."""
    root = tmp_path / 'root'
    root.mkdir()
    m = mount(root)
    tree = every_dtype()
    write(m, '7', tree, programs.PROGRAMS[by])
    commit(m, '7')
    assert not restoring.by_orbax(root, 7, tree, restoring.WAYS if by == 'np-save' else restoring.SOME_WAYS)
    assert not list(restoring.by_tensorstore(root / '7/default', tree))


def numbers():
    """Every number that a .json leaf can be: limits, special values, numpy's types."""
    tree = {'zero': 0, 'minus': -1, 'max64': 2 ** 63 - 1, 'min64': -2 ** 63, 'unsigned': 2 ** 64 - 1,
            'past53': 2 ** 53 + 1, 'true': True, 'false': False, 'f0': 0.0, 'fminus0': -0.0, 'third': 1 / 3,
            'large': 1.7976931348623157e308, 'small': 5e-324, 'e16': 1e16, 'e22': 1e22, 'whole': 42.0,
            'nan': float('nan'), 'inf': float('inf'), 'minf': float('-inf'), 'complex': 1.5 - 2j,
            'np_third': np.float32(1 / 3), 'np_half': np.float16(1 / 3), 'np_cnan': np.complex128(
                complex(float('nan'), float('inf')))}
    for name in STANDARD:
        tree['np_' + name] = np.dtype(name).type(1)
    return expect.flatten(tree)


@pytest.mark.feature('A10')
def test_numbers(mount, tmp_path):
    """A10: .json leaves restore as the numbers that they were, Python's kind kept."""
    root = tmp_path / 'root'
    root.mkdir()
    m = mount(root)
    tree = numbers()
    write(m, '7', tree)
    commit(m, '7')
    # These two restore no complex scalar, those that Orbax saved itself neither.
    partial = ['standard', 'v1-target']
    assert not restoring.by_orbax(root, 7, tree, [w for w in restoring.WAYS if w not in partial])
    write(m, '8', real := expect.Tree({p: v for p, v in tree.leaves.items() if v.dtype.kind != 'c'}, tree.kinds))
    commit(m, '8')
    assert not restoring.by_orbax(root, 8, real, partial)
    got = restoring.v0_pytree(root, '7', tree)
    for name in ('zero', 'true', 'third', 'complex', 'nan'):
        assert type(got[name]) is type(tree.leaves[(name,)].value), name


@pytest.mark.feature('A13')
def test_strings(mount, tmp_path):
    """A13: strings of any length and content, through the shared string file."""
    root = tmp_path / 'root'
    root.mkdir()
    m = mount(root)
    tree = expect.flatten({
        'empty': '', 'lines': 'a\nb\n', 'nul': 'a\0b', 'quote': '"\\/\b\f\t\r', 'control': ''.join(map(chr, range(1, 32))),
        'unicode': '\u00fc \u6f22\u5b57 \U0001f600', 'million': 'x' * 1_000_000, 'number': '7', 'true': 'true',
        'nested': {'list': ['a', 'b', {'c': 'd'}]}, 'w': values((3,), np.float32, 1)})
    for i, put in enumerate((programs.np_save, programs.cp_a, programs.dd)):
        write(m, str(i), tree, put)
        commit(m, str(i))
        assert not restoring.by_orbax(root, i, tree, restoring.WAYS)


@pytest.mark.feature('A18')
@pytest.mark.parametrize('impl', ['threefry2x32', 'rbg', 'unsafe_rbg'])
def test_prng_keys(mount, tmp_path, impl):
    """A18: a typed key is written as its data, its implementation in an xattr."""
    root = tmp_path / 'root'
    root.mkdir()
    m = mount(root)
    tree = expect.flatten({'one': jax.random.key(3, impl=impl), 'batch': jax.random.split(jax.random.key(4, impl=impl), 6),
                           'raw': np.asarray(jax.random.PRNGKey(5)), 'n': 1})
    write(m, '7', tree)
    commit(m, '7')
    assert not restoring.by_orbax(root, 7, tree, restoring.WAYS)


@pytest.mark.parametrize('zarr', [2, 3])
def test_keys_of_slashes(mount, run, tmp_path, zarr):
    """TensorStore takes a name that is a slash for the top, and one that ends in a slash as it is: both ways."""
    root = tmp_path / 'root'
    root.mkdir()
    m = mount(root, f'zarr={zarr}')
    keys = ('/', '//', 'a/', '/a', 'a//b')
    tree = expect.flatten({key: values((i + 1, 3), np.float32, i) for i, key in enumerate(keys)} | {'in': {'/': np.ones(2)}})
    write(m, '7', tree)
    commit(m, '7')
    assert not restoring.by_orbax(root, 7, tree, restoring.WAYS)
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_zarr3=zarr == 3)) as checkpointer:
        checkpointer.save(root / '8/default', {path[0]: v for path, v in tree.leaves.items() if len(path) == 1})
    for i, key in enumerate(keys):
        got = np.load(m / '8/default' / names.path_of((key,), tree.leaves[(key,)]))
        assert np.array_equal(got, tree.leaves[(key,)]), key
    run('verify', root / '7')
    run('verify', root / '8')


@pytest.mark.parametrize('value', [values((5, 4), np.float32, 1), 41, 'only this'], ids=['array', 'number', 'text'])
def test_a_bare_leaf_is_a_tree(mount, tmp_path, value):
    root = tmp_path / 'root'
    root.mkdir()
    m = mount(root)
    tree = expect.flatten(value)
    write(m, '7', tree)
    commit(m, '7')
    assert not restoring.by_orbax(root, 7, tree, ('v0', 'v0-target', 'standard', 'manager', 'v1', 'checkpointables'))
