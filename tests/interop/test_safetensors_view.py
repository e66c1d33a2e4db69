# SPDX-License-Identifier: Apache-2.0
"""D.safetensors against the official library: bytes of the whole file, lazy loading, names, refusals."""

import errno
import json
import os
import random
import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch

from lib import checkpoints, compare, expect
from lib.pairs import pairs

# Dtypes that the library's numpy side can write, and those that only torch has.
NUMPY = ['bool', 'int8', 'int16', 'int32', 'int64', 'uint8', 'uint16', 'uint32', 'uint64', 'float16', 'float32',
         'float64', 'complex64', 'bfloat16', 'float8_e4m3fn', 'float8_e4m3fnuz', 'float8_e5m2',
         'float8_e5m2fnuz', 'float8_e8m0fnu']
NAMELESS = ['complex128', 'int2', 'int4', 'float4_e2m1fn', 'float8_e3m4', 'float8_e4m3b11fnuz']


def header(path):
    raw = compare.read_all(path)
    n = int.from_bytes(raw[:8], 'little')
    return json.loads(raw[8:8 + n])


def tensors(path):
    return {k: v for k, v in header(path).items() if k != '__metadata__'}


def same_file(path, arrays):
    """Whether the file is the one that the library writes of these arrays, byte for byte, with the texts that it has: its format and a manifest."""
    texts = header(path)['__metadata__']
    assert texts.keys() <= {'format', 'pytreefs'} and texts['format'] == 'pt'

    def parts(raw):
        """The texts stand in any order there."""
        end = 8 + int.from_bytes(raw[:8], 'little')
        head = json.loads(raw[8:end])
        return head.pop('__metadata__'), list(head.items()), end, raw[end:]
    return parts(compare.read_all(path)) == parts(safetensors.numpy.save(arrays, texts))


def arrays_of(tree, below, separator='.'):
    """{name in the file: array} of the arrays and numbers below a key path."""
    out = {}
    for key, value in tree.leaves.items():
        if key[:len(below)] != below:
            continue
        if isinstance(value, expect.Scalar):
            value = value.array()
        if isinstance(value, np.ndarray):
            out[separator.join(key[len(below):])] = value
    return out


@pytest.mark.parametrize('dtype, name', pairs(list(NUMPY), ['dtypes-ocdbt-zarr2', 'dtypes-perleaf-zarr3']))
def test_bytes_of_one_type(mount, cases, name, dtype):
    """The file is the one that the library writes, byte for byte."""
    case = cases(name)
    m = mount(case.path)
    assert same_file(m / (dtype + '.safetensors'), arrays_of(case.tree(), (dtype,)))
    assert os.stat(m / (dtype + '.safetensors')).st_size == len(compare.read_all(m / (dtype + '.safetensors')))


@pytest.mark.feature('F5')
def test_bytes_of_many_types(mount, cases, program, tmp_path):
    """Types in the library's order, widest first, names of a dict in byte order; also inside, and through cat."""
    case = cases('matrix-ocdbt-zarr2-zstd-v0')
    m = mount(case.path)
    for below in ('params', 'opt'):
        want = arrays_of(case.tree(), (below,))
        assert same_file(m / (below + '.safetensors'), want) and same_file(m / below / '.safetensors', want)
    raw = compare.read_all(m / '.safetensors')
    names = list(tensors(m / '.safetensors'))
    assert sorted(names) == sorted(arrays_of(case.tree(), ()))
    r = subprocess.run([program, 'cat', case.path / '.safetensors'], capture_output=True, check=True)
    assert r.stdout == raw


def test_strings_are_metadata_and_none_is_left_out(mount, cases):
    case = cases('matrix-ocdbt-zarr2-zstd-v0')
    m = mount(case.path)
    doc = header(m / '.safetensors')
    manifest = json.loads(doc['__metadata__'].pop('pytreefs'))
    assert doc['__metadata__'] == {'format': 'pt', 'name': case.tree().leaves['name',], 'text': ''}
    assert manifest['leaves']['name'] == 'name.txt' and manifest['kinds']['empty'] == 'dict'
    assert not {'none', 'empty', 'void', 'nothing'} & set(doc)
    assert doc['step'] == {'dtype': 'I64', 'shape': [], 'data_offsets': doc['step']['data_offsets']}


def test_numpy_loads_it(mount, cases):
    case = cases('matrix-perleaf-zarr3-none-v0')
    m = mount(case.path)
    got = safetensors.numpy.load_file(m / 'params.safetensors')
    want = arrays_of(case.tree(), ('params',))
    assert set(got) == set(want)
    assert all(expect.same_bits(got[k], want[k]) for k in want)


def as_torch(a):
    kinds = {'bfloat16': torch.bfloat16, 'float8_e4m3fn': torch.float8_e4m3fn, 'float8_e5m2': torch.float8_e5m2,
             'float8_e4m3fnuz': torch.float8_e4m3fnuz, 'float8_e5m2fnuz': torch.float8_e5m2fnuz}
    a = np.ascontiguousarray(a)
    if a.dtype.name in kinds:
        raw = a.view(np.int16 if a.dtype.itemsize == 2 else np.uint8)
        return torch.from_numpy(raw.copy()).view(kinds[a.dtype.name])
    return torch.from_numpy(a.copy())


def same_tensor(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and \
        a.contiguous().reshape(-1).view(torch.uint8).tolist() == b.contiguous().reshape(-1).view(torch.uint8).tolist()


@pytest.mark.parametrize('name', ['matrix-ocdbt-zarr3-zstd-v0', 'matrix-ocdbt-zarr2-zstd-v1'])
def test_torch_loads_it_without_pickle(mount, cases, name):
    case = cases(name)
    m = mount(case.path)
    (where, tree), = case.trees.items()
    got = safetensors.torch.load_file(m / where / 'params.safetensors')
    want = arrays_of(tree, ('params',))
    assert set(got) == set(want)
    assert all(same_tensor(got[k], as_torch(want[k])) for k in want)


def test_lazy_slices(mount, cases):
    """mount/test_lazy.py counts the cost."""
    case = cases('chunked-perleaf-zarr2-v0')
    m = mount(case.path)
    tree = case.tree()
    with safetensors.safe_open(m / '.safetensors', 'pt') as f:
        assert set(f.keys()) == {k[0] for k in tree.leaves}
        assert f.get_slice('two').get_shape() == [64, 96]
        want = as_torch(tree.leaves['two',])
        assert same_tensor(f.get_slice('two')[3:17, 5:50], want[3:17, 5:50])
        assert same_tensor(f.get_tensor('bf'), as_torch(tree.leaves['bf',]))
    with safetensors.safe_open(m / '.safetensors', 'np') as f:
        assert np.array_equal(f.get_slice('odd')[3:9, 1:2], tree.leaves['odd',][3:9, 1:2])


def test_cast_of_floating_leaves(mount, cases):
    case = cases('matrix-ocdbt-zarr2-zstd-v0')
    m = mount(case.path)
    want = {k: a.astype(ml_dtypes.bfloat16) if a.dtype.kind in 'f' or a.dtype.name == 'bfloat16' else a
            for k, a in arrays_of(case.tree(), ('params',)).items()}
    assert same_file(m / 'params@bfloat16.safetensors', want) and same_file(m / 'params' / '@bfloat16.safetensors', want)
    kinds = {v['dtype'] for v in tensors(m / '@float16.safetensors').values()}
    assert kinds == {'F16', 'I64', 'I32', 'U8', 'BOOL'}


@pytest.mark.parametrize('dtype', NAMELESS)
def test_a_type_without_a_name_is_refused_with_the_reason(mount, cases, dtype):
    m = mount(cases('dtypes-ocdbt-zarr2').path, allow_errors=True)
    with pytest.raises(OSError) as e:
        os.stat(m / (dtype + '.safetensors'))
    assert e.value.errno == errno.EOPNOTSUPP
    log = '\n'.join(m.log_lines())
    assert f'safetensors has no name for {dtype}' in log and '.npy' in log


def test_a_cast_gives_small_floats_a_name(mount, cases):
    case = cases('dtypes-ocdbt-zarr2')
    m = mount(case.path)
    want = {k: a.astype(np.float32) for k, a in arrays_of(case.tree(), ('float8_e3m4',)).items()}
    got = safetensors.numpy.load_file(m / 'float8_e3m4@float32.safetensors')
    assert all(np.array_equal(got[k], want[k], equal_nan=True) for k in want)


WRONG = ['params@nosuch.safetensors', 'params[0:1].safetensors', 'params@8.safetensors', 'params@float32.json',
         'params@float32.html', 'params.npy', 'nosuch.safetensors', 'params@int8@int8.safetensors',
         'params.txt', '[0].safetensors', '@.safetensors']


def test_names_that_make_no_sense(mount, cases):
    m = mount(cases('matrix-ocdbt-zarr2-zstd-v0').path)
    for name in WRONG:
        with pytest.raises(FileNotFoundError):
            os.stat(m / name)
    log = '\n'.join(m.log_lines())
    for name in WRONG[:5]:
        assert name in log, name


def test_a_leaf_alone(mount, cases):
    case = cases('matrix-ocdbt-zarr2-zstd-v0')
    m = mount(case.path)
    embed = case.tree().leaves['params', 'embed']
    assert same_file(m / 'params/embed.safetensors', {'embed': embed})


def test_a_bare_leaf(mount, cases):
    """A tree that is one leaf has no key; its item's name stands for it in the step."""
    for name in checkpoints.names('bare'):
        case = cases(name)
        value = list(case.trees.values())[0].leaves[()]
        if not isinstance(value, np.ndarray):
            continue
        m = mount(case.path)
        (where, _), = case.trees.items()
        got = safetensors.numpy.load_file(m / where / '.safetensors')
        assert expect.same_bits(got[''], value)
        if where:
            assert list(tensors(m / '.safetensors')) == [where]
        break
    else:
        pytest.fail('no case of a bare array')


def test_a_step_has_its_items_names_in_front(mount, cases):
    case = cases('v1-checkpointables')
    m = mount(case.path)
    names = set(tensors(m / '.safetensors'))
    want = {f'{where}.{k}' for where, tree in case.trees.items() for k in arrays_of(tree, ())}
    assert names == want
    got = safetensors.numpy.load_file(m / '.safetensors')
    assert np.array_equal(got['data.table'], case.trees['data'].leaves['table',])


def test_a_step_of_a_root(mount, cases):
    """Beside the step, beside `latest`, and inside of both."""
    case = cases('manager-root')
    m = mount(case.path)
    latest = os.readlink(m / 'latest')
    raw = compare.read_all(m / (latest + '.safetensors'))
    assert raw == compare.read_all(m / 'latest.safetensors') == compare.read_all(m / latest / '.safetensors')
    assert all(k.startswith('state.') for k in tensors(m / 'latest.safetensors'))
    assert not os.path.exists(m / '.safetensors'), 'a root is not a tree'


def test_separator(mount, cases):
    case = cases('matrix-ocdbt-zarr2-zstd-v0')
    m = mount(case.path, 'safetensors_separator=/')
    assert set(tensors(m / '.safetensors')) == set(arrays_of(case.tree(), (), '/'))


def test_equal_names_are_refused_with_both(run, mount, tmp_path):
    """('a', 'b') and ('a_b',): one name when joined by '_', two with another separator."""
    (tmp_path / 'leaves/a').mkdir(parents=True)
    np.save(tmp_path / 'leaves/a/b.npy', np.arange(3))
    np.save(tmp_path / 'leaves/a_b.npy', np.arange(4))
    run('convert', tmp_path / 'leaves', tmp_path / 'item')
    m = mount(tmp_path / 'item', 'safetensors_separator=_', allow_errors=True)
    with pytest.raises(OSError):
        os.stat(m / '.safetensors')
    log = '\n'.join(m.log_lines())
    assert "'a/b.npy'" in log and "'a_b.npy'" in log, log
    other = mount(tmp_path / 'item')
    assert set(tensors(other / '.safetensors')) == {'a.b', 'a_b'}


def test_leaves_under_one_stored_name_have_no_view(mount, cases):
    """('a', 'b.c') and ('a', 'b', 'c') of Orbax: whose value it is cannot be told, whatever the separator."""
    for options in ('', 'safetensors_separator=/'):
        m = mount(cases('shared-parameter-names').path, options, allow_errors=True)
        with pytest.raises(OSError):
            os.stat(m / '.safetensors')
        assert 'is the stored name of the leaves ["a' in '\n'.join(m.log_lines())


def test_a_leaf_of_an_unknown_type_is_refused(mount, cases):
    m = mount(cases('custom-handler').path, allow_errors=True)
    with pytest.raises(OSError) as e:
        os.stat(m / '.safetensors')
    assert e.value.errno == errno.EOPNOTSUPP
    assert "'my_state'" in '\n'.join(m.log_lines())


def test_zero_sizes_and_nothing_at_all(mount, cases):
    case = cases('matrix-ocdbt-zarr2-zstd-v0')
    m = mount(case.path)
    assert header(m / 'empty.safetensors') == {'__metadata__': {'format': 'pt', 'pytreefs': '{"kinds": {"": "dict"}}'}}
    assert safetensors.numpy.load_file(m / 'empty.safetensors') == {}


def test_read_at_any_offset(mount, cases):
    case = cases('matrix-ocdbt-zarr3-none-v0')
    m = mount(case.path)
    raw = compare.read_all(m / '.safetensors')
    rng = random.Random(3)
    with open(m / '.safetensors', 'rb', buffering=0) as f:
        for _ in range(300):
            off, n = rng.randrange(len(raw) + 3), rng.choice((1, 9, 300, 5000, 100000))
            assert os.pread(f.fileno(), n, off) == raw[off:off + n]


def test_holes_are_holes(mount, cases):
    """Chunks that are not stored can be skipped by a copy."""
    case = cases('sparse')
    m = mount(case.path)
    path = m / '.safetensors'
    head = os.stat(path).st_size - max(v['data_offsets'][1] for v in tensors(path).values())
    data = [(0, head)]
    for name, entry in tensors(path).items():
        at = head + entry['data_offsets'][0]
        for start, end in case.notes['holes'][name] + [[4 << 20, 4 << 20]]:
            data.append((at, head + entry['data_offsets'][0] + start))
            at = head + entry['data_offsets'][0] + end
    want = []
    for start, end in data:
        if want and want[-1][1] == start:
            want[-1] = (want[-1][0], end)
        elif start < end:
            want.append((start, end))
    assert extents(path) == want


def extents(path):
    """[(start, end) of data] by SEEK_DATA and SEEK_HOLE."""
    out, at = [], 0
    with open(path, 'rb') as f:
        while True:
            try:
                start = os.lseek(f.fileno(), at, os.SEEK_DATA)
            except OSError:
                return out
            at = os.lseek(f.fileno(), start, os.SEEK_HOLE)
            out.append((start, at))


def test_never_listed(mount, cases):
    m = mount(cases('matrix-ocdbt-zarr2-zstd-v0').path)
    assert os.path.exists(m / 'params.safetensors')
    names = [n for _, dirs, files in os.walk(m.path) for n in dirs + files]
    assert not [n for n in names if n.endswith(('.safetensors', '.html'))]


@pytest.mark.parametrize('how, source', pairs(
    [([], None), (['safetensors_separator=/'], None), ([], 'bfloat16'), (['restore_dtype=float32'], None)],
    [('matrix-ocdbt-zarr2-zstd-v0', ''), ('matrix-ocdbt-zarr2-zstd-v0', 'params'), ('matrix-perleaf-zarr3-none-v1', '')]))
def test_it_is_the_file_that_export_writes(mount, run, cases, tmp_path, source, how):
    """Byte for byte, manifest included: a tree with lists, numbers, texts and None comes back from either."""
    (name, below), (options, cast) = source, how
    case = cases(name)
    where, = case.trees
    view = mount(case.path, *options) / where / below / f'{"@" + cast if cast else ""}.safetensors'
    run('export', *(['--cast', cast] if cast else []), *(['-o', *options] if options else []), case.path / where / below, tmp_path / 'x.safetensors')
    assert compare.read_all(view) == (tmp_path / 'x.safetensors').read_bytes()
    if not cast and not options and not below:
        shutil.copy(view, tmp_path / 'copy.safetensors')
        run('convert', tmp_path / 'copy.safetensors', tmp_path / 'back')
        assert '0 differences' in run('diff', case.path / where, tmp_path / 'back').stdout
