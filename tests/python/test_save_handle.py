# SPDX-License-Identifier: Apache-2.0
"""save(PATH, handle of open()): what the checkpoint said is stored, by the copy that `convert` makes; inside of a tree, too."""

import collections
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pytreefs
from pytreefs import _pytreefs as native

pytestmark = pytest.mark.filterwarnings('ignore:keys of .* are integers, which checkpoints store as texts')

State = collections.namedtuple('State', 'mu count')


def made_tree():
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:1]), ('d',))
    placed = jax.device_put(jnp.arange(8.0), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('d')))
    return {'params': {'w': placed, 'half': jnp.ones((4, 2), jnp.bfloat16)}, 'opt': (State(np.ones(3, np.float32), 2), [np.int32(1)]),
            'key': jax.random.key(7), 'name': 'text', 'nothing': None, 'empty': {}, 'none': [], 'layers': {i: np.full(2, i) for i in range(12)}}


def by_orbax(root):
    import orbax.checkpoint as ocp
    with ocp.CheckpointManager(root) as m:
        m.save(1, args=ocp.args.Composite(
            default=ocp.args.PyTreeSave(made_tree()), metrics=ocp.args.JsonSave({'loss': 0.5})), custom_metadata={'by': 'me'})


def by_save(root):
    pytreefs.save(root / '1', made_tree(), metadata={'by': 'me'}, compression='none', chunk_byte_size=16)


MAKERS = pytest.mark.parametrize('maker', [by_orbax, by_save])


def described(path):
    """All that a tree says of its nodes, and each leaf's attributes. Orbax has the fields of a namedtuple that it records as a dict in
    their own order, and a copy sorted."""
    handle = native.Checkpoint(str(path), '')
    nodes = handle.tree('', native.TREE_VALUES, True)
    names = ('sharding', 'prng_impl', 'codecs')     # a number is written anew

    def attributes(node):
        return [handle.attribute(node[0], a) for a in (names if node[3] == native.ARRAY else names[:2]) if node[5]]
    return sorted(((n[0], *n[2:4], *n[5:9], n[11], n[13], *attributes(n)) for n in nodes), key=lambda node: node[0])


def document(path):
    text = json.loads((path / '_METADATA').read_text())
    return {name: text.get(name) for name in ('tree_metadata', 'custom_metadata')}


def restored(path):
    import orbax.checkpoint as ocp
    return jax.tree.map(lambda x: jax.random.key_data(x) if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x,
                        ocp.PyTreeCheckpointer().restore(path))


def check_item(copy, source):
    assert described(copy) == described(source)
    assert document(copy) == document(source)
    got, want = restored(copy), restored(source)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want)))


@MAKERS
@pytest.mark.parametrize('place', ['1', 'latest'])
def test_a_step(tmp_path, maker, place):
    maker(tmp_path / 'root')
    with pytreefs.open(tmp_path / 'root' / place) as ck:
        # Another one that is the latest by now is not what was opened.
        pytreefs.save(tmp_path / 'root' / '2', {'other': 1})
        pytreefs.save(tmp_path / 'copy' / '5', ck)
        check_item(tmp_path / 'copy' / '5' / 'default', tmp_path / 'root' / '1' / 'default')
        with pytreefs.open(tmp_path / 'copy') as copy:
            assert copy.steps == [5] and list(copy[5]) == list(ck) and copy[5].metadata == ck.metadata == {'by': 'me'}
            if maker is by_orbax:
                assert copy[5].json('metrics') == {'loss': 0.5}


@MAKERS
def test_an_item_and_parts_of_it(tmp_path, maker):
    maker(tmp_path / 'root')
    with pytreefs.open(tmp_path / 'root') as root:
        item = root[1]['default']
        pytreefs.save(tmp_path / 'a' / '1', item)
        check_item(tmp_path / 'a' / '1' / 'default', tmp_path / 'root' / '1' / 'default')
        pytreefs.save(tmp_path / 'a' / '2', item, item='state')
        check_item(tmp_path / 'a' / '2' / 'state', tmp_path / 'root' / '1' / 'default')
        pytreefs.save(tmp_path / 'alone', item, item=None)
        check_item(tmp_path / 'alone', tmp_path / 'root' / '1' / 'default')
        for part in ('params', 'opt', 'layers', 'opt/0'):
            pytreefs.save(tmp_path / 'part', item[part], item=None, overwrite=True)
            assert described(tmp_path / 'part') == described(tmp_path / 'root' / '1' / 'default' / part)


@MAKERS
def test_handles_inside_of_a_tree(tmp_path, maker):
    """They are values like others, with the kinds, PRNG keys and shardings that are recorded."""
    maker(tmp_path / 'root')
    with pytreefs.open(tmp_path / 'root' / '1' / 'default') as item:
        pytreefs.save(tmp_path / 'new', {'old': item, 'w': item['params/w'], 'step': 3}, item=None)
    with pytreefs.open(tmp_path / 'new') as new, pytreefs.open(tmp_path / 'root' / '1' / 'default') as item:
        news, olds = ({leaf.name[skip:]: leaf for leaf in ck.leaves()} for ck, skip in ((new['old'], 4), (item, 0)))
        assert sorted(news) == sorted(olds)
        for got, want in ((news[name], olds[name]) for name in olds):
            assert (got.kind, got.key[1:], got.dtype_name) == (want.kind, want.key, want.dtype_name)
            assert (got.prng_impl, got.recorded_sharding) == (want.prng_impl, want.recorded_sharding)
            assert got.recorded_type == want.recorded_type
        assert new['w'].recorded_sharding == item['params/w'].recorded_sharding is not None
        assert [new['old'][k].kind for k in ('opt', 'none', 'empty')] == [item[k].kind for k in ('opt', 'none', 'empty')]
        assert new['old/opt/0'].kind == item['opt/0'].kind
        assert new['step'].read() == 3
    assert np.array_equal(restored(tmp_path / 'new')['old']['key'], restored(tmp_path / 'root' / '1' / 'default')['key'])


def test_options_overwrite_and_metadata(tmp_path):
    by_save(tmp_path / 'root')
    with pytreefs.open(tmp_path / 'root', restore_dtype='float32') as root:
        pytreefs.save(tmp_path / 'copy', root[1]['default'], item=None, zarr=3, compression='zstd', metadata={'new': 1})
        with pytreefs.open(tmp_path / 'copy') as copy:
            assert copy['params/half'].dtype_name == 'float32' and copy.metadata == {'new': 1}
        assert json.loads((tmp_path / 'copy' / '_METADATA').read_text())['use_zarr3']
        with pytest.raises(pytreefs.ExistsError):
            pytreefs.save(tmp_path / 'copy', root[1]['default'], item=None)
        pytreefs.save(tmp_path / 'copy', root[1]['default/opt'], item=None, overwrite=True)
        assert pytreefs.load(tmp_path / 'copy')[1] == [1]
        # In place, too.
        pytreefs.save(tmp_path / 'root' / '1', root[1], overwrite=True, compression='zstd')
        assert root[1]['default/name'].read() == 'text'


def test_progress_and_its_exceptions(tmp_path):
    by_save(tmp_path / 'root')
    with pytreefs.open(tmp_path / 'root') as root:
        calls = []
        pytreefs.save(tmp_path / 'a' / '1', root[1], progress=lambda *call: calls.append(call))
        assert calls[-1][0] == calls[-1][1] > 0 and calls[0] == (0, calls[-1][1])

        def stop(done, total):
            raise KeyboardInterrupt
        with pytest.raises(KeyboardInterrupt):
            pytreefs.save(tmp_path / 'b' / '1', root[1], progress=stop)
        assert not (tmp_path / 'b').exists()


def test_what_cannot_be_copied_says_why(tmp_path):
    by_orbax(tmp_path / 'root')
    out = tmp_path / 'out' / '1'
    with pytreefs.open(tmp_path / 'root') as root:
        for handle, why, how in ((root, 'is a directory of steps: save one of them', {}),
                                 (root[1]['metrics'], 'is an item that is not a tree: save its step', {}),
                                 (root[1], 'has items', {'item': None}), (root[1], 'no_such', {'no_such': 1})):
            with pytest.raises(pytreefs.Error, match=why) as e:
                pytreefs.save(out, handle, **how)
            assert e.value.filename == str(out) and '\n' not in e.value.strerror
        with pytest.raises(ValueError, match='not for a handle'):
            pytreefs.save(out, root[1], separator='.')
        old = root[1]
        pytreefs.save(tmp_path / 'root' / '1', {'x': 1}, overwrite=True)
        with pytest.raises(pytreefs.Error, match='replaced'):
            pytreefs.save(out, old)
        assert not out.parent.exists()


def test_other_files(tmp_path):
    """Beside items, beside arrays: `files` has them, and a copy of the handle. load() is of trees."""
    source, copy, item = tmp_path / '1', tmp_path / '2', tmp_path / 'item'
    pytreefs.save(source, {'w': np.arange(3.0), 'sub': {'b': 1}})
    others = {'metadata.json': b'{"step": 3}', '.git/config': b'c', 'default/LICENSE': b'free', 'default/assets/v.txt': b'v'}
    for name, data in others.items():
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_bytes(data)
    with pytreefs.open(source) as ck:
        assert list(ck) == ['default'] and sorted(ck.files) == ['.git', 'metadata.json'] and ck.files['metadata.json'].json() == {'step': 3}
        assert ck.files['.git']['config'].read() == b'c'
        assert sorted(ck['default'].files) == ['LICENSE', 'assets'] and list(ck['default']) == ['sub', 'w'] and not ck['default/sub'].files
        assert bytes(ck['default'].files['assets']['v.txt'].read()) == b'v'
        pytreefs.save(copy, ck)
        pytreefs.save(item, ck['default'], item=None)
        pytreefs.save(tmp_path / '3', pytreefs.load(source))
    assert {name: (copy / name).read_bytes() for name in others} == others
    assert (item / 'LICENSE').read_bytes() == b'free' and not (item / 'metadata.json').exists()
    assert pytreefs.open(tmp_path / '3').files == pytreefs.open(tmp_path / '3')['default'].files == {}
