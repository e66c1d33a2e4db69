# SPDX-License-Identifier: Apache-2.0
"""The directory of a draft beside Orbax: never a step, never a leftover to be cleaned up."""

import errno
import os

import numpy as np
import orbax.checkpoint as ocp0
import pytest

from lib import expect, programs, restoring, writing
from lib.gen_matrix import values
from test_writing import commit, write

W = values((20, 30), np.float32, 1)
DRAFT = '.7.pytreefs-draft'


def save(manager, step, value):
    assert manager.save(step, args=ocp0.args.StandardSave({'w': value}), force=True)
    manager.wait_until_finished()


def test_orbax_neither_lists_nor_removes_a_draft(mount, root):
    """A manager that cleans up, and that saves the same step, while the draft is being written."""
    m = mount(root, allow_errors=True)
    write(m, '7', expect.flatten({'w': W}))
    (root / '6.orbax-checkpoint-tmp').mkdir()
    with ocp0.CheckpointManager(root, options=ocp0.CheckpointManagerOptions(cleanup_tmp_directories=True)) as manager:
        assert manager.all_steps() == [] and manager.latest_step() is None
        save(manager, 5, W + 1)
        assert sorted(os.listdir(root)) == [DRAFT, '5'], 'the cleaning up did take place, and left the draft'
        save(manager, 7, W + 2)
        assert sorted(manager.all_steps()) == [5, 7] and (root / DRAFT).is_dir()
    with pytest.raises(OSError) as e:
        (m / '7.tmp').rename(m / '7')
    assert e.value.errno == errno.EEXIST
    (m / '7.tmp').rename(m / '8')
    assert sorted(os.listdir(root)) == ['5', '7', '8']
    assert not restoring.by_orbax(root, 8, expect.flatten({'w': W}))
    with ocp0.CheckpointManager(root) as manager:
        assert np.array_equal(manager.restore(7, args=ocp0.args.StandardRestore())['w'], W + 2)


@pytest.mark.parametrize('options', [{'step_prefix': 'ckpt'}, {'step_format_fixed_length': 6},
                                     {'step_prefix': 'ckpt', 'step_format_fixed_length': 3}, {'max_to_keep': 1}])
def test_every_format_of_names(mount, root, options):
    """Names of drafts, of what is removed and of what is deleted: of no format is any of them a step's."""
    final = ocp0.path.step.build_step_path(root, ocp0.path.step.standard_name_format(
        step_prefix=options.get('step_prefix'), step_format_fixed_length=options.get('step_format_fixed_length')), 7).name
    m = mount(root)
    write(m, final, expect.flatten({'w': W}))
    assert os.listdir(root) == [f'.{final}.pytreefs-draft']
    for rest in ('-begun-12-345', '-removed-17', '-deleted-17', '-2', '-old'):
        (root / f'.{final}.pytreefs-draft{rest}').mkdir()
    manager_options = ocp0.CheckpointManagerOptions(cleanup_tmp_directories=True, **options)
    before = sorted(os.listdir(root))
    with ocp0.CheckpointManager(root, options=manager_options) as manager:
        assert manager.all_steps() == []
        manager.wait_until_finished()
        assert sorted(os.listdir(root)) == before
    # The helpers of the releases since 0.4, which are still there; what those releases list, and what they remove.
    assert ocp0.utils.checkpoint_steps(root) == []
    for name in before:
        assert not (name.isdigit() or name.split('_')[-1].isdigit()), name
        assert '.orbax-checkpoint-tmp' not in name, name
    commit(m, final)
    assert ocp0.utils.checkpoint_steps(root) == [7]


def test_a_draft_of_an_item_is_not_an_item(mount, tmp_path):
    """
    In a mount of a step: items that are named restore meanwhile, by v0 and v1. (Asked for all that a step has, Orbax
    takes every directory in it for an item, its own temporary ones too.)
    """
    with ocp0.CheckpointManager(tmp_path / 'root', item_names=('state',)) as manager:
        manager.save(7, args=ocp0.args.Composite(state=ocp0.args.PyTreeSave({'w': W})))
        manager.wait_until_finished()
    step = tmp_path / 'root' / '7'
    m = mount(step)
    (m / 'extra.tmp').mkdir()
    programs.np_save(expect.flatten({'v': W}), m / 'extra.tmp')
    assert (step / '.extra.pytreefs-draft').is_dir()
    with ocp0.CheckpointManager(tmp_path / 'root', options=ocp0.CheckpointManagerOptions(
            cleanup_tmp_directories=True)) as manager:
        got = manager.restore(7, args=ocp0.args.Composite(state=ocp0.args.PyTreeRestore()))
        assert sorted(got) == ['state'] and expect.same_bits(got['state']['w'], W)
    assert expect.same_bits(restoring.ocp1.load(step, checkpointable_name='state')['w'], W)
    assert (step / '.extra.pytreefs-draft').is_dir()
    (m / 'extra.tmp').rename(m / 'extra')
    assert sorted(restoring.ocp1.load_checkpointables(step)) == ['extra', 'state']
