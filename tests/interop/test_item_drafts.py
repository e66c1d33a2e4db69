# SPDX-License-Identifier: Apache-2.0
"""Drafts of single items, in a step that is mounted by itself."""

import errno
import json
import os

import numpy as np
import orbax.checkpoint as ocp0
import pytest

from lib import expect, programs, restoring, writing
from lib.drafts import refused
from lib.gen_matrix import values
from test_writing import leaves


@pytest.fixture
def step(tmp_path):
    """A step with one item, as a manager leaves it."""
    with ocp0.CheckpointManager(tmp_path / 'root', item_names=('state',)) as manager:
        manager.save(7, args=ocp0.args.Composite(state=ocp0.args.PyTreeSave({'w': values((4,), np.float32, 1)})))
        manager.wait_until_finished()
    return tmp_path / 'root' / '7'


@pytest.mark.parametrize('options', [(), ('zarr=3',), ('ocdbt=off',), ('ocdbt=off', 'zarr=3', 'compression=none')])
def test_an_item_is_added(mount, step, options):
    """ITEM.tmp beside the items of a step becomes one; it restores alone and with its step."""
    m = mount(step, *options)
    tree = leaves()
    (m / 'extra.tmp').mkdir()
    assert 'extra.tmp' in os.listdir(m.path)
    programs.np_save(tree, m / 'extra.tmp')
    assert json.loads((m / 'extra.tmp/_METADATA').read_text())['tree_metadata']
    assert sorted(p.name for p in step.iterdir() if 'extra' in p.name) == ['.extra.pytreefs-draft']
    (m / 'extra.tmp').rename(m / 'extra')
    assert 'extra.tmp' not in os.listdir(m.path) and 'extra' in os.listdir(m.path)
    root, ocdbt, zarr3 = step.parent, 'ocdbt=off' not in options, 'zarr=3' in options
    assert not restoring.by_orbax(root, 7, tree, ('v0', 'v0-target', 'standard', 'v1', 'v1-target'), 'extra')
    assert not list(restoring.by_tensorstore(step / 'extra', tree, ocdbt, zarr3))
    assert not [p for p in step.rglob('.pytreefs*')], 'nothing of the draft stays'
    with ocp0.CheckpointManager(root, item_names=('state', 'extra')) as manager:
        assert manager.all_steps() == [7]
        got = manager.restore(7, args=ocp0.args.Composite(state=ocp0.args.PyTreeRestore(), extra=ocp0.args.PyTreeRestore()))
    assert not restoring.faults(tree, got['extra'])
    assert expect.same_bits(got['state']['w'], values((4,), np.float32, 1))
    got = restoring.ocp1.load_checkpointables(step)
    assert sorted(got) == ['extra', 'state'] and not restoring.faults(tree, got['extra'])


@pytest.mark.parametrize('name', ['bare', 'strings', 'twice'])
@pytest.mark.parametrize('ocdbt', ['on', 'off'])
def test_odd_items(mount, step, name, ocdbt):
    """A bare leaf, an item without arrays, leaves that are written again and removed."""
    m = mount(step, f'ocdbt={ocdbt}')
    tree = expect.flatten({'bare': values((5, 4), np.float32, 1), 'strings': {'a': 'text', 'b': None, 'c': {}},
                           'twice': {'w': values((300,), np.float32, 2)}}[name])
    (m / 'extra.tmp').mkdir()
    if name == 'twice':
        for i in range(3):
            np.save(m / 'extra.tmp/w.npy', np.arange(300.) + i)
        np.save(m / 'extra.tmp/gone.npy', np.arange(300.))
        os.unlink(m / 'extra.tmp/gone.npy')
    programs.np_save(tree, m / 'extra.tmp')
    (m / 'extra.tmp').rename(m / 'extra')
    assert not restoring.by_orbax(step.parent, 7, tree, ('v0', 'v1'), 'extra')
    stored = {p.name for p in (step / 'extra').iterdir()}
    assert stored <= {'_METADATA', '_CHECKPOINT_METADATA', 'commit_success.txt', '.crc32c', 'manifest.ocdbt', 'd', '_strings.json',
                      'w', '0.0', '.zarray'}, stored


def test_refusals(mount, step):
    m = mount(step, allow_errors=True)
    refused(errno.EPERM, lambda: (m / 'extra').mkdir())
    refused(errno.EINVAL, lambda: (m / '_CHECKPOINT_METADATA.tmp').mkdir())
    refused(errno.EINVAL, lambda: (m / 'AUTO.tmp').mkdir())
    refused(errno.EPERM, lambda: (m / 'file').touch())
    refused(errno.EROFS, lambda: (m / 'state').rename(m / 'other'))
    refused(errno.EROFS, lambda: (m / 'state').rmdir())
    refused(errno.EROFS, lambda: (m / 'state/new').mkdir())
    (m / 'extra.tmp').mkdir()
    refused(errno.EEXIST, lambda: (m / 'extra.tmp').mkdir())
    refused(errno.ECANCELED, lambda: (m / 'extra.tmp').rename(m / 'extra'))        # empty
    np.save(m / 'extra.tmp/w.npy', np.arange(4))
    refused(errno.EEXIST, lambda: (m / 'extra.tmp').rename(m / 'state'))
    refused(errno.EPERM, lambda: (m / 'extra.tmp').rename(m / 'other.tmp'))
    refused(errno.EPERM, lambda: (m / 'extra.tmp').rename(m / '.hidden'))
    (m / 'extra.tmp').rename(m / 'renamed')
    assert np.load(m / 'renamed/w.npy').tolist() == [0, 1, 2, 3]
    (m / 'gone.tmp').mkdir()
    np.save(m / 'gone.tmp/w.npy', np.arange(4))
    os.unlink(m / 'gone.tmp/w.npy')
    (m / 'gone.tmp').rmdir()
    assert sorted(os.listdir(m.path)) == ['_CHECKPOINT_METADATA', 'renamed', 'state']
    assert set(os.listdir(step)) - {'commit_success.txt'} == set(os.listdir(m.path))


def test_rules_mean_the_same(mount, step):
    """A pattern begins at the item, whether its step is mounted or the root."""
    m = mount(step, 'rule=extra/a*:dtype=float16')
    (m / 'extra.tmp').mkdir()
    np.save(m / 'extra.tmp/a1.npy', values((4,), np.float32, 1))
    np.save(m / 'extra.tmp/b1.npy', values((4,), np.float32, 1))
    (m / 'extra.tmp').rename(m / 'extra')
    assert [np.load(m / f'extra/{n}.npy').dtype.name for n in ('a1', 'b1')] == ['float16', 'float32']


def test_an_opaque_item(mount, step, tmp_path):
    """Files of another program's item go in and out byte for byte."""
    m = mount(step)
    (m / 'blob.tmp').mkdir()
    writing.set_xattrs(m / 'blob.tmp', {'kind': 'opaque'})
    (m / 'blob.tmp/in').mkdir()
    (m / 'blob.tmp/in/data.bin').write_bytes(bytes(range(256)) * 100)
    (m / 'blob.tmp/readme').write_text('x')
    (m / 'blob.tmp').rename(m / 'blob')
    for where in (m / 'blob', step / 'blob'):
        assert (where / 'in/data.bin').read_bytes() == bytes(range(256)) * 100
        assert (where / 'readme').read_text() == 'x'
