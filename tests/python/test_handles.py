# SPDX-License-Identifier: Apache-2.0
"""Handles: open() has all that a root holds, now and later; what was replaced or removed is an error, never another's value."""

import errno
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import pytreefs
from lib import rounds, servers
from pytreefs import _fsspec

TREE = {'w': np.arange(3.0), 'a': {'b': np.ones(2), 'c': [np.ones(1), 2]}, 'n': 5, 's': 'text', 'none': None}


def by_pytree_checkpointer(root):
    import orbax.checkpoint as ocp
    for step in (1, 2):
        ocp.PyTreeCheckpointer().save(root / str(step), TREE)


def by_manager(root):
    import orbax.checkpoint as ocp
    with ocp.CheckpointManager(root) as m:
        for step in (1, 2):
            m.save(step, args=ocp.args.Composite(
                state=ocp.args.PyTreeSave(TREE), metrics=ocp.args.JsonSave({'accuracy': 0.5}), data=ocp.args.JsonSave([1, {'at': 2}])))


def by_save(root):
    for step in (1, 2):
        pytreefs.save(root / str(step), TREE, item=None)


def bare_leaves(root):
    for step in (1, 2):
        pytreefs.save(root / str(step), np.arange(3.0), item=None)


def leaf_names(found, below):
    found = [found] if isinstance(found, pytreefs.Leaf) else found.leaves()
    return [(leaf.name.removeprefix(below), leaf.kind, leaf.read() is not None) for leaf in found]


@pytest.mark.parametrize('maker', [by_pytree_checkpointer, by_manager, by_save, bare_leaves])
def test_a_step_of_a_root_is_the_step(tmp_path, maker):
    """A step that is a tree itself has all of its leaves, also those at its top."""
    maker(tmp_path / 'root')
    with pytreefs.open(tmp_path / 'root') as root:
        for key in (1, '1', np.int64(1)):
            found = root[key]
            if maker is bare_leaves:
                assert found.read().tolist() == [0, 1, 2] and root.latest[0] == 0
                continue
            with pytreefs.open(tmp_path / 'root' / '1') as step:
                assert list(found) == list(step) and found.kind == step.kind
                assert leaf_names(found, '1/') == leaf_names(step, '')
            above = found if 'w' in found else found['state']
            assert sorted(above) == sorted(TREE) and above['w'][1] == 1 and above['a/c/1'].read() == 2
            assert root['1/a/b' if above is found else '1/state/a/b'].shape == (2,)
        assert len(list(root.leaves())) == 2 * len(list(root[1].leaves()) if maker is not bare_leaves else [0])


def test_a_step_loads_with_its_json_items(tmp_path):
    import orbax.checkpoint as ocp
    by_manager(tmp_path / 'root')
    with ocp.CheckpointManager(tmp_path / 'root') as m:
        want = m.restore(2, args=ocp.args.Composite(metrics=ocp.args.JsonRestore(), data=ocp.args.JsonRestore()))
    got = pytreefs.load(tmp_path / 'root' / 'latest')
    assert sorted(got) == ['data', 'metrics', 'state']
    assert got['metrics'] == want.metrics == {'accuracy': 0.5} and got['data'] == want.data == [1, {'at': 2}]
    assert pytreefs.load(tmp_path / 'root' / '2' / 'metrics') == want.metrics
    assert sorted(pytreefs.load(tmp_path / 'root' / '2', only='state/w')) == ['state']
    matched = pytreefs.load(tmp_path / 'root' / '2', like={'state': got['state'], 'metrics': {'accuracy': 0.0}})
    assert matched['metrics'] == want.metrics and 'data' not in matched
    # Files of other items as they are.
    (tmp_path / 'root' / '2' / 'tok' / 'sub').mkdir(parents=True)
    (tmp_path / 'root' / '2' / 'tok' / 'vocab.txt').write_bytes(b'5')
    (tmp_path / 'root' / '2' / 'tok' / 'sub' / 'b').write_bytes(b'\0')
    assert pytreefs.load(tmp_path / 'root' / '2')['tok'] == {'vocab.txt': b'5', 'sub': {'b': b'\0'}}


LAYOUTS = pytest.mark.parametrize('options', [{}, {'ocdbt': False}, {'ocdbt': False, 'zarr': 3}], ids=['ocdbt', 'zarr2', 'zarr3'])


def tree(value, shape=(4, 4), dtype=np.float32):
    return {'w': np.full(shape, value, dtype), 'u': np.full((300, 20), value, np.float32), 'n': value, 's': str(value)}


def all_of(step):
    return [step['default'][key].read() if key in 'ns' else step['default'][key][0, 0] for key in 'wuns']


@LAYOUTS
def test_a_root_shows_what_is_committed_and_removed_later(tmp_path, options):
    root = tmp_path / 'root'
    pytreefs.save(root / '1', tree(1), **options)
    with pytreefs.open(root) as ck:
        assert list(ck) == ['1'] and 2 not in ck and all_of(ck[1]) == [1, 1, 1, '1']
        pytreefs.save(root / '2', tree(2), **options)
        assert ck.steps == [1, 2] and list(ck) == ['1', '2'] and len(ck) == 2
        assert 2 in ck and '2' in ck and '2/default/w' in ck
        assert ck.latest.name == '2' and ck['2'].kind == 'step' and [v.name for v in ck.values()] == ['1', '2']
        assert all_of(ck[2]) == all_of(ck['latest']) == [2, 2, 2, '2']
        assert {leaf.name.split('/')[0] for leaf in ck.leaves()} == {'1', '2'}
        assert ck[2] is ck['2']         # its tree is read once
        pytreefs.save(root / '3', tree(3), item='other', **options)
        assert list(ck['latest']) == ['other']
        shutil.rmtree(root / '2')
        assert ck.steps == [1, 3] and 2 not in ck and ck.get('2') is None
        with pytest.raises(KeyError):
            ck['2/default/w']
        shutil.rmtree(root / '3')
        assert all_of(ck.latest) == [1, 1, 1, '1']
        shutil.rmtree(root)
        root.mkdir()
        pytreefs.save(root / '4', tree(4), **options)
        with pytest.raises(pytreefs.Error, match='was removed|replaced or removed'):
            list(ck)


@LAYOUTS
@pytest.mark.parametrize('other', [{'shape': (2, 8)}, {'dtype': np.int32}, {'shape': (5, 5)}, {}], ids=str)
def test_a_step_that_was_replaced_gives_no_value_to_leaves_of_the_old_one(tmp_path, options, other):
    """Of another shape or type with as many bytes, too. Looked up again, all is of the new one."""
    root = tmp_path / 'root'
    pytreefs.save(root / '1', tree(1), **options)
    with pytreefs.open(root) as ck:
        kept = [ck['1/default'][key] for key in 'wuns']
        assert [kept[0][0, 0], kept[1][0, 0], kept[2].read(), kept[3].read()] == [1, 1, 1, '1']
        pytreefs.save(root / '1', tree(2, **other), overwrite=True, **options)
        for leaf in kept:
            with pytest.raises(pytreefs.Error, match='replaced') as e:
                leaf.read()
            assert e.value.filename.endswith(leaf.name)
        with pytest.raises(pytreefs.Error, match='replaced'):
            _ = kept[0][1:3]
        assert all_of(ck[1]) == [2, 2, 2, '2']
        assert ck['1/default/w'].shape == other.get('shape', (4, 4))


@LAYOUTS
@pytest.mark.parametrize('part', ['root/1', 'root/1/default', 'root/latest', 'root/latest/default', 'alone'])
@pytest.mark.parametrize('how', ['replaced', 'removed'])
def test_a_handle_of_what_is_gone_says_so(tmp_path, options, part, how):
    item = None if part == 'alone' else 'default'
    target = tmp_path / ('alone' if part == 'alone' else 'root/1')
    pytreefs.save(target, tree(1), item=item, **options)
    with pytreefs.open(tmp_path / part) as ck:
        w = ck['w'] if 'w' in ck else ck['default/w']
        if how == 'replaced':
            pytreefs.save(target, tree(2), item=item, overwrite=True, **options)
        else:
            shutil.rmtree(target)
        for use in (w.read, lambda: ck['default/w.npy'], lambda: 'q' in ck, lambda: ck.metadata, lambda: list(ck.leaves())[0].read()):
            with pytest.raises(pytreefs.Error, match='replaced or removed since it was opened: open it again'):
                use()
    if how == 'replaced':
        with pytreefs.open(tmp_path / part) as ck:
            assert (ck['w'] if 'w' in ck else ck['default/w'])[0, 0] == 2


@LAYOUTS
def test_kept_parts_of_a_step_that_was_removed_say_so(tmp_path, options):
    """Step, item and leaf that a root gave; a step that was replaced has the new items, and leaves of the old one say so."""
    root = tmp_path / 'root'
    for step in (1, 2):
        pytreefs.save(root / f'{step}', tree(step), metadata={'m': step}, **options)
    with pytreefs.open(root) as ck:
        step, item, w = ck[1], ck[1]['default'], ck[1]['default/w']
        fresh = ck[2]['default']
        shutil.rmtree(root / '1')
        for use in (lambda: step['default'], lambda: step['x'], lambda: 'x' in step, lambda: list(step), lambda: step.metadata, lambda: step.files, w.read, lambda: w[0],
                    lambda: item['w@float64.npy'], lambda: item.metadata, lambda: w.prng_impl, lambda: w.stored_nbytes, item['s'].read):
            with pytest.raises(pytreefs.Error, match='removed|replaced') as e:
                use()
            assert e.value.errno == errno.ESTALE and '/root/1' in e.value.filename
        shutil.rmtree(root / '2')
        with pytest.raises(pytreefs.Error, match='removed'):        # its tree was not read before
            fresh['w']
        for key in (1, '1', '1/default', '1/default/w'):
            with pytest.raises(KeyError):
                ck[key]
        pytreefs.save(root / '1', tree(3), metadata={'m': 3}, **options)
        assert all_of(step) == [3, 3, 3, '3'] and step.metadata == {'m': 3}
        with pytest.raises(pytreefs.Error, match='replaced'):
            w.read()


def test_permissions_and_other_steps_do_not_end_a_handle(tmp_path):
    pytreefs.save(tmp_path / 'root' / '1', tree(1))
    with pytreefs.open(tmp_path / 'root') as ck, pytreefs.open(tmp_path / 'root' / 'latest') as latest:
        w, same = ck['1/default/w'], latest['default']['w']
        for path, _, files in os.walk(tmp_path / 'root'):
            os.chmod(path, 0o750)
            for name in files:
                os.chmod(os.path.join(path, name), 0o640)
        pytreefs.save(tmp_path / 'root' / '2', tree(2))
        os.rename(tmp_path / 'root', tmp_path / 'moved')
        assert w[0, 0] == same[0, 0] == 1 and ck.steps == [1, 2]


def test_round_trips_of_a_large_read(tmp_path):
    """All ranges of a raw leaf that a read needs are requested at once."""
    value, at, size = np.random.default_rng(1).integers(256, size=16 << 20, dtype=np.uint8), 5 << 20, 4 << 20
    pytreefs.save(tmp_path / 'tree', {'w': value}, item=None, compression='none')
    script = (f'import sys; from pytreefs import _fsspec; f = _fsspec.FileSystem().open(sys.argv[1] + "/w.npy"); '
              f'f.seek({at}); sys.stdout.buffer.write(f.read({size}))')
    made = []
    with servers.faulty(tmp_path / 'tree', made=made) as url, rounds.Rounds(made[0]) as trips:
        got = subprocess.run([sys.executable, '-c', script, url], check=True, capture_output=True, timeout=240).stdout
    assert got == value.tobytes()[at - 128:at - 128 + size]
    # The next pieces may be on the way already, so that there are two.
    assert sum(any('bytes=' in q and int(q.rpartition('-')[2]) >= at for q in asked) for asked in trips.rounds) <= 2, str(trips)


@pytest.mark.parametrize('below', ['root/1/default', 'alone'])
def test_fsspec_follows_the_path(tmp_path, below):
    target, item = (tmp_path / 'alone', None) if below == 'alone' else (tmp_path / 'root' / '1', 'default')
    fs = _fsspec.FileSystem(skip_instance_cache=True)
    for value in (1, 2, 3):
        pytreefs.save(target, tree(value, shape=(value, 4)), item=item, overwrite=value > 1)
        raw = fs.cat_file(f'{tmp_path}/{below}/w.npy')
        assert np.frombuffer(raw[128:], np.float32).tolist() == [value] * 4 * value
        assert fs.cat_file(f'{tmp_path}/{below}/s.txt') == str(value).encode()
    shutil.rmtree(target)
    with pytest.raises(FileNotFoundError):
        fs.cat_file(f'{tmp_path}/{below}/w.npy')


@pytest.mark.parametrize('base, item, beside', [('alone', 'item', 'runs'), ('7', 'item', 'runs'), ('7', '1500', '3'), ('alone', '3', 'runs')])
def test_fsspec_shows_the_same_whatever_was_asked_before(tmp_path, base, item, beside):
    """A directory beside an item, or beside a step, is not shown through the checkpoint that was opened for those: of a root, only its steps."""
    top = tmp_path / base
    pytreefs.save(top / item, TREE, item=None)
    pytreefs.save(top / beside / '5', TREE)
    shutil.copytree(top / beside / '5', top / beside / '6.orbax-checkpoint-tmp-1')
    (top / item / 'others').mkdir()
    (top / item / 'others/file').write_text('beside')

    def ask(fs, name):
        path = f'{top}/{name}'
        found = {'ls': lambda: fs.ls(path, detail=False), 'ls, in full': lambda: [e['name'] for e in fs.ls(path)], 'info': lambda: fs.info(path)['type'],
                 'find': lambda: fs.find(path), 'glob': lambda: fs.glob(f'{path}/*'), 'walk': lambda: list(fs.walk(path)), 'exists': lambda: fs.exists(path)}
        return {how: call() for how, call in found.items()}

    names = (item, beside, f'{beside}/5', f'{item}/a', f'{beside}/5/default', f'{item}/others')
    alone = {name: ask(_fsspec.FileSystem(skip_instance_cache=True), name) for name in names}
    steps = alone[beside]
    assert steps['ls'] == steps['ls, in full'] == steps['glob'] == [f'{top}/{beside}/5'] and '-tmp-1' not in str(steps)
    assert steps['walk'][0] == (f'{top}/{beside}', ['5'], []) and all(f.startswith(f'{top}/{beside}/5/default/') for f in steps['find'] if '/default' in f)
    for order in (names, names[::-1]):
        fs = _fsspec.FileSystem(skip_instance_cache=True)
        assert {name: ask(fs, name) for name in order} == {name: alone[name] for name in order}
        with pytest.raises(FileNotFoundError):
            fs.ls(f'{top}/{beside}/6.orbax-checkpoint-tmp-1/none')


def test_a_step_by_its_number_as_text(tmp_path):
    for name in ('step_00000007', 'step_00000018'):
        pytreefs.save(tmp_path / name, TREE, item=None)
    with pytreefs.open(tmp_path) as ck:
        for key in (7, '7', '007'):
            assert 'step_00000007' in repr(ck[key])
        assert ck['7/a/b'].shape == (2,)
        assert '8' not in ck and 8 not in ck and '²' not in ck
    assert pytreefs.load(tmp_path / '18')['n'] == pytreefs.load(tmp_path / 'latest')['n'] == 5
    assert pytreefs.open(tmp_path / '7/a/b').shape == (2,)


def test_a_view_of_a_number_is_an_array_of_rank_0(tmp_path):
    """As the file of the mount is; the number itself is one of Python."""
    pytreefs.save(tmp_path / '1', {'n': 3, 'z': np.float32(2.5), 'b': True})
    ck = pytreefs.open(tmp_path / '1')['default']
    for name, dtype, value in (('n@float32', 'float32', 3), ('z@float16', 'float16', 2.5), ('b@int8', 'int8', 1)):
        view = ck[name]
        assert view.kind == 'array' and view.shape == () and view.read().dtype == dtype == np.asarray(view).dtype
        assert view.read() == float(view) == view + 0 == pytreefs.load(tmp_path / '1/default' / name) == value
    assert ck['n'].read() == 3 and type(ck['n.npy'].read()) is int
