# SPDX-License-Identifier: Apache-2.0
"""load(only={name: index}): parts of leaves, all read as one job."""

import random

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import pytreefs
from lib import expect
from python.test_leaf_index import random_index, same

STORED = [{}, {'zarr': 3}, {'ocdbt': 'off'}, {'zarr': 3, 'ocdbt': 'off', 'compression': 'zstd'}, {'compression': 'zstd', 'chunk_byte_size': 4000},
          {'compression': 'none'}, {'compression': 'none', 'zarr': 3, 'chunk_byte_size': 4000}]


def tree():
    r = np.random.default_rng(43)
    return {'p': {'w': r.normal(size=(40, 33)).astype(np.float32), 'h': r.normal(size=(7, 5, 6)).astype(ml_dtypes.bfloat16)},
            'z': r.normal(size=(9, 4)) * (1 + 2j), 'i': np.arange(1000), 'b': np.arange(12) % 3 == 0}


ARRAYS = {'p/w': lambda t: t['p']['w'], 'p/h': lambda t: t['p']['h'], 'z': lambda t: t['z'], 'i': lambda t: t['i'], 'b': lambda t: t['b']}


@pytest.fixture(scope='module')
def item(tmp_path_factory):
    path = tmp_path_factory.mktemp('parts') / '1'
    pytreefs.save(path, {**tree(), 'step': 7, 'name': 'x', 'none': None}, item=None)
    return path


def indices(r, shape, n):
    """Some that numpy takes."""
    found = []
    while len(found) < n:
        index = random_index(r, shape)
        try:
            np.empty(shape, bool)[index]
        except IndexError:
            continue
        found.append(index)
    return found


def check(path, source, seed):
    """Some boxes of each leaf in one call, nested and flat, against numpy."""
    r = random.Random(seed)
    for _ in range(4):
        plan = {name: indices(r, of(source).shape, r.randrange(1, 12)) for name, of in ARRAYS.items()}
        nested, flat = pytreefs.load(path, only=plan), pytreefs.load_flat(path, separator='/', only=plan)
        for name, of in ARRAYS.items():
            for got in (of(nested), flat[name]):
                assert len(got) == len(plan[name])
                for a, index in zip(got, plan[name]):
                    assert same(a, of(source)[index]), (name, index)


@pytest.mark.parametrize('options', STORED, ids=str)
def test_random_boxes(tmp_path, options):
    source = tree()
    pytreefs.save(tmp_path / '1', source, item=None, **options)
    check(tmp_path / '1', source, str(options))


def test_of_a_safetensors_file(tmp_path):
    source = tree()
    flat = {'p.w': source['p']['w'], 'p.h': source['p']['h'], 'i': source['i'], 'b': source['b']}
    safetensors.numpy.save_file(flat, tmp_path / 'model.safetensors')
    plan = {name.replace('.', '/'): indices(random.Random(1), a.shape, 9) for name, a in flat.items()}
    got = pytreefs.load_flat(tmp_path / 'model.safetensors', only=plan)
    for (name, a), chosen in zip(flat.items(), plan.values()):
        assert all(same(x, a[index]) for x, index in zip(got[name], chosen, strict=True)), name


def test_boxes_share_chunks_that_end_anywhere(tmp_path):
    """Chunks of 3 MiB, of which pieces are decoded, up to the last element that any box has."""
    r = np.random.default_rng(5)
    w = np.repeat(r.integers(0, 99, (1536, 256), np.int16), 4, axis=1)
    pytreefs.save(tmp_path / '1', {'w': w}, compression='zstd:1')
    boxes = [np.s_[:n, 3:900] for n in range(1, 1536, 60)]
    assert all(np.array_equal(got, w[box]) for got, box in zip(pytreefs.load(tmp_path / '1', only={'w': boxes})['w'], boxes, strict=True))
    for box in boxes:
        assert np.array_equal(pytreefs.load(tmp_path / '1', only={'w': box})['w'], w[box])


def test_one_index_a_whole_leaf_and_patterns(item):
    """A single index gives its part alone; `...` is the leaf as load() has it; a pattern is for all leaves that match."""
    source = tree()
    got = pytreefs.load(item, only={'p/': np.s_[1:3], 'i': 5, 'step': ..., 'name': ..., 'none': ...})
    assert set(got) == {'p', 'i', 'step', 'name', 'none'} and (got['step'], got['name'], got['none']) == (7, 'x', None)
    assert same(got['p']['w'], source['p']['w'][1:3]) and same(got['p']['h'], source['p']['h'][1:3]) and same(got['i'], source['i'][5])
    assert same(pytreefs.load_flat(item, only={'step': [(), np.s_[...]]})['step'][0], np.asarray(7)[()])
    with pytreefs.open(item) as ck:
        assert same(ck['p'].load(only={'w': np.s_[::-1]})['w'], source['p']['w'][::-1])


def test_dtype(item):
    source = tree()
    got = pytreefs.load_flat(item, only={'p/h': [np.s_[::2, 1], np.s_[3]], 'i': np.s_[:4]}, dtype='float32')
    assert same(got['p.h'][0], source['p']['h'][::2, 1].astype(np.float32)) and same(got['p.h'][1], source['p']['h'][3].astype(np.float32))
    assert same(got['i'], source['i'][:4])


def test_torch(item):
    torch = pytest.importorskip('torch')
    source = tree()
    got = pytreefs.load_flat(item, only={'p/h': [np.s_[::-2, 1], np.s_[0, 0, 0]], 'i': np.s_[None, 2:4]}, framework='torch')
    assert got['p.h'][0].dtype == torch.bfloat16 and got['p.h'][1].shape == ()
    assert expect.same_bits(source['p']['h'][::-2, 1].astype(np.float32), got['p.h'][0].float().numpy())
    assert got['i'].tolist() == [[2, 3]]


def test_jax(item):
    jax = pytest.importorskip('jax')
    source = tree()
    got = pytreefs.load_flat(item, only={'p/w': [np.s_[::-1, 4], np.s_[2:2]]}, framework='jax')['p.w']
    assert all(isinstance(a, jax.Array) for a in got)
    assert expect.same_bits(source['p']['w'][::-1, 4], np.asarray(got[0])) and got[1].shape == (0, 33)


def test_mapped(tmp_path):
    torch = pytest.importorskip('torch')
    source = tree()
    pytreefs.save(tmp_path / '1', source, item=None, compression='none')
    plan = {'p/w': [np.s_[3:30:2, ::-1], np.s_[4, 5]], 'i': np.s_[10:]}
    got = pytreefs.load_flat(tmp_path / '1', only=plan, mmap=True)
    assert same(got['p.w'][0], source['p']['w'][3:30:2, ::-1]) and got['p.w'][1] == source['p']['w'][4, 5] and same(got['i'], source['i'][10:])
    assert not got['p.w'][0].flags.writeable and not got['p.w'][0].flags.owndata
    plan['p/w'] = np.s_[3:30:2]
    tensors = pytreefs.load_flat(tmp_path / '1', only=plan, mmap=True, framework='torch')
    assert isinstance(tensors['p.w'], torch.Tensor) and expect.same_bits(source['p']['w'][3:30:2], tensors['p.w'].numpy())
    with pytest.raises(pytreefs.Error, match='no negative steps'):
        pytreefs.load_flat(tmp_path / '1', only={'i': np.s_[::-1]}, mmap=True, framework='torch')


@pytest.mark.parametrize('plan, error, text', [
    ({'nothing': np.s_[0]}, pytreefs.Error, "'nothing' matches no leaf"),
    ({'p/w': np.s_[0, 0, 0]}, IndexError, r'p/w\.npy: too many indices'),
    ({'p/w': [np.s_[0], 40]}, IndexError, 'index 40 is out of bounds for axis 0 with size 40'),
    ({'p/w': np.s_[[[1, 2]]]}, IndexError, 'index the array for more'),
    ({'name': np.s_[0]}, pytreefs.Error, "has no parts, since its kind is 'string'"),
    ({'none': np.s_[0]}, pytreefs.Error, "since its kind is 'none'"),
    ({'p/w': np.s_[0], 'w': np.s_[1]}, pytreefs.Error, "two names of only= choose it, 'p/w' and 'w'"),
])
def test_what_is_refused(item, plan, error, text):
    with pytest.raises(error, match=text):
        pytreefs.load(item, only=plan)


def test_no_trees_to_match(item):
    with pytest.raises(ValueError, match='like and out are of whole leaves'):
        pytreefs.load(item, like=tree(), only={'i': np.s_[0]})


def test_an_empty_plan_reads_nothing(item):
    assert pytreefs.load_flat(item, only={}) == {} and pytreefs.load(item, only={'i': []}) == {'i': []}


def test_progress_counts_the_parts(item):
    seen = []
    pytreefs.load(item, only={'p/w': [np.s_[:10], np.s_[5:15]]}, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (2 * 10 * 33 * 4,) * 2 and all(a <= b for a, b in seen)
