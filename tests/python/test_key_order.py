# SPDX-License-Identifier: Apache-2.0
"""Integer keys in the order of their values, whatever made the tree: a stack over .values() has its layers in their places."""

import json
import os
from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import safetensors
import safetensors.torch

import pytreefs

pytestmark = pytest.mark.filterwarnings('ignore:.*(has lost its _METADATA|are integers, which checkpoints store as texts)')

Point = namedtuple('Point', 'y b a')
LAYERS = {i: {'w': np.full(2, i, np.float32)} for i in range(12)}
OFFSETS = {i: np.full(1, i, np.float32) for i in (-10, -2, 0, 3, 10)}
MIXED = ['!', '0', '00', '2', '10', 'a']        # texts where they are, and integers among each other
TREE = {'layers': LAYERS, 'offsets': OFFSETS, 'mixed': {key: np.ones(1, np.float32) for key in sorted(MIXED)}}


def texts(tree):
    return {str(key): texts(value) if isinstance(value, dict) else value for key, value in tree.items()}


def by_orbax(path, tree):
    import orbax.checkpoint as ocp
    ocp.PyTreeCheckpointer().save(path, tree)


def saved(path, **options):
    pytreefs.save(path, TREE, item=None, **options)


def without_metadata(path, **options):
    saved(path, **options)
    os.unlink(path / '_METADATA')


def by_flax(path):
    import flax.serialization
    path.mkdir()
    (path / 'checkpoint').write_bytes(flax.serialization.msgpack_serialize(texts(TREE)))


def in_reverse(path):
    def turned(tree):
        return {key: turned(value) if isinstance(value, dict) else value for key, value in reversed(tree.items())}
    pytreefs.save(path, turned(TREE), item=None)


MAKERS = {
    'save': saved, 'directories': lambda p: saved(p, ocdbt=False), 'zarr3': lambda p: saved(p, zarr=3),
    'rich types': lambda p: saved(p, rich_types=True), 'reversed': in_reverse,
    'no metadata': without_metadata, 'directories without metadata': lambda p: without_metadata(p, ocdbt=False),
    'orbax, integers': lambda p: by_orbax(p, {'layers': LAYERS, 'offsets': OFFSETS, 'mixed': TREE['mixed']}),
    'orbax, texts': lambda p: by_orbax(p, texts(TREE)), 'flax': by_flax,
}


def check(path):
    got = pytreefs.load(path)
    assert np.stack([layer['w'] for layer in got['layers'].values()])[:, 0].tolist() == list(range(12))
    assert np.stack(list(got['offsets'].values()))[:, 0].tolist() == [-10, -2, 0, 3, 10]
    assert list(got['mixed']) == MIXED
    with pytreefs.open(path) as ck:
        assert list(ck['layers']) == list(got['layers']) and list(ck['offsets']) == list(got['offsets'])
        assert [leaf[0] for leaf in ck.leaves() if leaf.key[0] == 'layers'] == list(range(12))
    flat = pytreefs.load_flat(path)
    assert [name for name in flat if name.startswith('layers.')] == [f'layers.{i}.w' for i in range(12)]


@pytest.mark.parametrize('maker', MAKERS)
def test_trees_of_every_maker(tmp_path, maker):
    MAKERS[maker](tmp_path / 'item')
    check(tmp_path / 'item')


@pytest.mark.parametrize('way', ['safetensors', 'shards', 'npz', 'npy', 'zarr', 'msgpack'])
def test_exports_and_what_they_become(tmp_path, run, way):
    """The order of a safetensors file is what other libraries read it in."""
    saved(tmp_path / 'item')
    out = tmp_path / {'safetensors': 'm.safetensors', 'npz': 'm.npz', 'msgpack': 'm.msgpack'}.get(way, 'm')
    if way == 'shards':
        run('export', '--format', 'safetensors', '--max-shard-size', '40', tmp_path / 'item', out)
        names = json.loads((out / 'model.safetensors.index.json').read_text())['weight_map']
        assert [n for n in names if n.startswith('layers.')] == [f'layers.{i}.w' for i in range(12)]
    elif way == 'msgpack':
        run('convert', '-o', 'aggregate=all', tmp_path / 'item', out)
    else:
        run('export', '--format', way, tmp_path / 'item', out)
    if way == 'safetensors':
        with safetensors.safe_open(out, 'np') as f:
            assert [n for n in f.offset_keys() if n.startswith('layers.')] == [f'layers.{i}.w' for i in range(12)]
        loaded = safetensors.torch.load_file(out)
        assert [x[0].item() for n, x in loaded.items() if n.startswith('layers.')] == list(range(12))
    if way == 'npz':
        assert [n for n in np.load(out) if n.startswith('layers/')] == [f'layers/{i}/w' for i in range(12)]
    run('convert', out, tmp_path / 'again')
    check(tmp_path / 'again')


def test_rules_that_make_layers(tmp_path):
    pytreefs.save(tmp_path / 'item', {'w': np.arange(12, dtype=np.float32)}, item=None)
    (tmp_path / 'rules.json').write_text(json.dumps({'default_to_original': False, 'rules': [
        {'key': 'layers/{i}', 'original_key': 'w', 'for': {'i': 12}, 'value_fn': 'unstack({i}, 12)'}]}))
    got = pytreefs.load(tmp_path / 'item', transforms=tmp_path / 'rules.json')
    assert np.stack(list(got['layers'].values())).tolist() == list(range(12))


def test_a_tree_to_match_has_the_same_order(tmp_path):
    saved(tmp_path / 'item')
    for like in (TREE, texts(TREE)):
        got = pytreefs.load(tmp_path / 'item', like=like)
        assert np.stack([layer['w'] for layer in got['layers'].values()])[:, 0].tolist() == list(range(12))
        assert {type(key) for key in got['layers']} == {type(key) for key in like['layers']}


@pytest.mark.parametrize('out', ['2', 'e.safetensors', 'e.npz', 'e', 'e.zarr'])
def test_a_part_keeps_the_order_of_dicts_and_whole_lists(run, tmp_path, out):
    """--only: an ordered dict of which something is chosen; a list without all of its members, empty ones too, is a dict."""
    w = np.ones(2)
    (tmp_path / 's').mkdir()
    pytreefs.save(tmp_path / 's/1', {'z': OrderedDict(y=w, no=w, b=OrderedDict(d=1, c=w), a=w), 'l': [w, [], {}], 't': (w, None), 'n': w},
                  item_metadata={'default': {'a': 1}})
    only = [word for name in ('z/[!n]', 'z/b/', 'l/', 't/') for word in ('--only', name)]
    if out == '2':
        run('convert', *only, tmp_path / 's/1', tmp_path / 's/2')
    else:
        run('export', *only, tmp_path / 's/1', tmp_path / out)
        run('save', tmp_path / out, tmp_path / 's/2')
    if out in ('e.safetensors', 'e.zarr'):           # the ones that are read as they are
        direct = pytreefs.load(tmp_path / out)['default']
        assert list(direct['z']) == ['y', 'b', 'a'] and list(direct['z']['b']) == ['d', 'c'] and direct.keys() == {'l', 't', 'z'}, direct
    found = pytreefs.load(tmp_path / 's/2')
    assert list(found['z']) == ['y', 'b', 'a'] and list(found['z']['b']) == ['d', 'c'], found
    assert found.keys() == {'l', 't', 'z'} and found['l'].keys() == {'0'} and isinstance(found['t'], tuple) and found['t'][1] is None, found
    assert pytreefs.open(tmp_path / 's/2')['default'].metadata == {'a': 1}


@pytest.mark.parametrize('out', ['e.safetensors', 'e.zarr'])
def test_an_export_is_read_as_the_tree_that_it_was(run, tmp_path, out):
    """Its manifest also has the classes of namedtuples and the order of dicts."""
    w = np.ones(2)
    tree = {'n': Point(w, 2, w), 'o': OrderedDict(z=w, a=Point(w, w, w))}
    pytreefs.save(tmp_path / 's', tree, item=None)
    run('export', tmp_path / 's', tmp_path / out)
    found = pytreefs.load(tmp_path / out)
    assert repr(found) == repr(pytreefs.load(tmp_path / 's')) and list(found['o']) == ['z', 'a']
    assert isinstance(pytreefs.load(tmp_path / out, like=tree)['n'], Point)
    assert run('diff', tmp_path / 's', tmp_path / out).stdout.endswith(' 0 differences\n')
    run('convert', tmp_path / out, tmp_path / 'back')
    assert repr(pytreefs.load(tmp_path / 'back')) == repr(found)
