# SPDX-License-Identifier: Apache-2.0
"""load(mmap=True): arrays are the memory of the files that have them, or the Error says why they cannot be."""

import json
import os
import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest

import pytreefs
from lib import expect, restoring

LAYOUTS = pytest.mark.parametrize('options', [{}, {'zarr': 3}, {'ocdbt': False}, {'zarr': 3, 'ocdbt': False}], ids=str)


def tree():
    """Odd sizes between large leaves, so that nothing is aligned by chance; what is in the index, and what has no bytes."""
    r = np.random.default_rng(43)
    return {'big': r.normal(size=(1100, 1000)), 'odd': r.integers(0, 255, 1027, np.uint8), 'half': r.normal(size=(300, 130)).astype(ml_dtypes.bfloat16),
            'odd2': r.integers(0, 255, 5001, np.uint8), 'z': r.normal(size=700) * (1 + 2j), 'page': r.normal(size=40000).astype(np.float32),
            'small': np.arange(3), 'empty': np.zeros((0, 4)), 'step': 7, 'name': 'x', 'none': None}


def maps(path):
    """How often this process has mapped a file below a directory."""
    with open('/proc/self/maps', encoding='utf-8') as f:
        return sum(str(path) in line for line in f)


def same(got, source):
    return all(np.array_equal(got[key], value) for key, value in source.items())


@LAYOUTS
def test_arrays_are_the_memory_of_the_files(tmp_path, options):
    source = tree()
    # One thread: in which of two data files an array comes decides whether its padding is less than a hundredth of it.
    pytreefs.save(tmp_path / '1', source, compression='none', threads=1, **options)
    got = pytreefs.load(tmp_path / '1', mmap=True)
    assert same(got, source) and got['half'].dtype == ml_dtypes.bfloat16
    for key in ('big', 'odd', 'half', 'odd2', 'z', 'page', 'small', 'empty'):
        assert not got[key].flags.writeable and got[key].flags.aligned, key
    assert got['big'].ctypes.data % 4096 == 0 and got['page'].ctypes.data % 4096 == 0
    assert maps(tmp_path) == (1 if options.get('ocdbt', True) else 7)
    # A map lives as long as an array of it, whatever becomes of the checkpoint.
    kept = got['big'][7:9]
    del got
    shutil.rmtree(tmp_path / '1')
    assert maps(tmp_path) == 1 and np.array_equal(kept, source['big'][7:9])
    del kept
    assert maps(tmp_path) == 0


def test_padding_is_at_most_a_hundredth_and_others_read_it(tmp_path):
    """Orbax and TensorStore restore values that stand apart."""
    source = {key: value for key, value in tree().items() if key not in ('z', 'empty')}
    pytreefs.save(tmp_path / '7', source, compression='none')
    stored = sum((tmp_path / '7/default/d' / name).stat().st_size for name in os.listdir(tmp_path / '7/default/d'))
    n_bytes = sum(value.nbytes for value in source.values() if hasattr(value, 'nbytes'))
    assert n_bytes < stored < 1.01 * n_bytes + 4096     # nodes and checksums of values
    wanted = expect.flatten(source)
    faults = restoring.by_orbax(tmp_path, 7, wanted) + list(restoring.by_tensorstore(tmp_path / '7/default', wanted))
    assert not faults, '\n'.join(faults)


def test_tensors_are_private(tmp_path):
    """A tensor that is written changes neither the file nor another load."""
    import torch
    source = tree()
    del source['z']
    pytreefs.save(tmp_path / '1', source, compression='none')
    got = pytreefs.load_flat(tmp_path / '1', mmap=True, framework='torch')
    assert maps(tmp_path) > 0 and got['half'].dtype == torch.bfloat16 and got['step'].item() == 7
    got['big'][0] = 5
    got['small'] += 1
    again = pytreefs.load_flat(tmp_path / '1', mmap=True, framework='torch')
    assert (got['big'][0] == 5).all() and np.array_equal(again['big'].numpy(), source['big']) and again['small'].tolist() == [0, 1, 2]
    assert same(pytreefs.load(tmp_path / '1'), source)


def test_parts_views_and_trees_to_match(tmp_path):
    source = tree()
    pytreefs.save(tmp_path / '1', source, compression='none')
    for view, index in (('big[3:9,::2]', np.s_[3:9, ::2]), ('big[5]', np.s_[5]), ('half[-2:]', np.s_[-2:])):
        got = pytreefs.load(tmp_path / f'1/default/{view}.npy', mmap=True)
        assert np.array_equal(got, source[view.partition('[')[0]][index]) and maps(tmp_path) == 1
    del got
    keys = list(pytreefs.load(tmp_path / '1', only='page', mmap=True))
    assert keys == ['page'] and maps(tmp_path) == 0
    like = {key: value for key, value in source.items() if key in ('big', 'step')}
    assert same(pytreefs.load(tmp_path / '1', like=like, only=['big', 'step'], mmap=True), like)
    with pytreefs.open(tmp_path / '1') as ck:
        assert np.array_equal(ck['default/page'].load(mmap=True), source['page'])
    for how, text in (({'out': {}}, 'neither with out'), ({'like': {}, 'strict': False}, 'neither with out'), ({'framework': 'jax'}, 'jax has memory')):
        with pytest.raises(ValueError, match=text):
            pytreefs.load(tmp_path / '1', mmap=True, **how)


def unaligned(path):
    """safetensors without padding after the header, whose length is odd."""
    header = json.dumps({'w': {'dtype': 'F64', 'shape': [5000], 'data_offsets': [0, 40000]}}).encode()
    header += b' ' * (1 - len(header) % 2)
    path.write_bytes(len(header).to_bytes(8, 'little') + header + np.arange(5000.0).tobytes())
    return len(header) + 8


@pytest.mark.parametrize('how, view, reason', [
    ({}, 'w', r'it is compressed \(blosc:zstd:1:byte\)'),
    ({'compression': 'blosc'}, 'w', 'it is compressed .blosc:zstd'),
    ({'compression': 'none', 'chunk_byte_size': 1 << 14}, 'w', 'it is stored in 4 chunks'),
    ({'compression': 'none'}, 'w@float32', 'it is stored as float64, not as float32'),
    ({'compression': 'none'}, 'w@6000', 'it is padded to another shape'),
    ({'compression': 'none', 'restore_dtype': 'float32'}, 'w', 'it is stored as float64, not as float32'),
    ({'compression': 'none', 'store_fill_value': False}, 'zeros', 'it is not stored: all elements have the fill value'),
], ids=lambda x: x if isinstance(x, str) and ' ' not in x else '')
def test_why_not(tmp_path, how, view, reason):
    options = {'restore_dtype': how.pop('restore_dtype')} if 'restore_dtype' in how else {}
    pytreefs.save(tmp_path / '1', {'w': np.arange(5000.0), 'zeros': np.zeros(5000)}, item=None, **how)
    name = str(tmp_path / f'1/{view}.npy')
    with pytest.raises(pytreefs.Error, match=f'cannot be mapped: {reason}.*convert -o compression=none') as e:
        pytreefs.load(name, mmap=True, **options)
    assert e.value.filename == name
    assert pytreefs.load(name, **options).size >= 5000


def test_the_error_names_the_leaf_and_the_way_out_is_one(tmp_path):
    at = unaligned(tmp_path / '1.safetensors')
    with pytest.raises(pytreefs.Error, match=f"begins at byte {at} of '1.safetensors', which is not a multiple of 8") as e:
        pytreefs.load(tmp_path / '1.safetensors', mmap=True)
    assert e.value.filename == str(tmp_path / '1.safetensors/w.npy')
    pytreefs.save(tmp_path / '2', {'a': np.arange(9000), 'b': np.arange(9000.0)}, chunk_byte_size=1 << 14)
    for name in ('1.safetensors', '2'):
        with pytest.raises(pytreefs.Error) as e:
            pytreefs.load(tmp_path / name, mmap=True)
        assert name != '2' or '(and 1 more leaf)' in str(e.value)
        way = str(e.value).partition('`pytreefs ')[2].partition('`')[0].split()
        subprocess.run([os.environ['PYTREEFS_PROGRAM'], *way, '-q', tmp_path / name, tmp_path / f'{name}.raw'], check=True, capture_output=True)
        assert same(pytreefs.load(tmp_path / f'{name}.raw', mmap=True), pytreefs.load(tmp_path / name)), name


def test_a_cast_is_refused(tmp_path):
    pytreefs.save(tmp_path / '1', {'w': np.ones(5000), 'n': np.arange(5000)}, compression='none')
    assert same(pytreefs.load(tmp_path / '1', mmap=True, dtype='float64'), {'w': np.ones(5000)})
    for how in ({'dtype': 'bfloat16'}, {'like': {'w': np.ones(5000, np.float32), 'n': np.arange(5000)}}):
        with pytest.raises(pytreefs.Error, match='is stored as float64: as .* would be a copy') as e:
            pytreefs.load(tmp_path / '1', mmap=True, **how)
        assert e.value.filename.endswith('default/w.npy')


def test_other_files(tmp_path):
    """safetensors; a file in the other order of bytes; one that lost its end."""
    from safetensors.numpy import save_file
    source = {'a': np.arange(5000.0), 'b': np.ones((3, 4), np.float32)}
    save_file(source, tmp_path / 'x.safetensors')
    assert same(pytreefs.load(tmp_path / 'x.safetensors', mmap=True), source)
    import zarr
    zarr.create_array(tmp_path / 'item/w', shape=5000, dtype='>f4', chunks=5000, compressors=None, zarr_format=2)[:] = 1
    with pytest.raises(pytreefs.Error, match='its elements are stored in the other order of bytes'):
        pytreefs.load(tmp_path / 'item', mmap=True)
    pytreefs.save(tmp_path / '1', source, compression='none', item=None)
    largest = max((tmp_path / '1/d').iterdir(), key=lambda p: p.stat().st_size)
    os.truncate(largest, 8192)
    with pytest.raises(pytreefs.Error, match=largest.name):
        pytreefs.load(tmp_path / '1', mmap=True)
