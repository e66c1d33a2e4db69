# SPDX-License-Identifier: Apache-2.0
"""The steps of a root, and the latest: those that Orbax and flax find with the prefix of that root, whatever else is in it."""

import json
import os
import pathlib
import shutil

from lib import jaxenv  # noqa: F401  before jax

import flax.training.checkpoints
import numpy as np
import orbax.checkpoint as ocp
import pytest

from lib import package

pytreefs = package.imported()

# Names of other programs' directories: with a number, without, and of what they keep themselves.
FOREIGN = 'tb_logs_20251101', 'wandb', 'run-20251101_101010-abc123', 'version_7', 'profile_3', 'plots', 'events_99'


@pytest.fixture(scope='module')
def step(tmp_path_factory):
    directory = tmp_path_factory.mktemp('step') / '1'
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
        checkpointer.save(directory, ocp.args.Composite(state=ocp.args.PyTreeSave({'w': np.arange(3.0)})))
    return directory


def made(root, step, names):
    for name in names:
        shutil.copytree(step, root / name)
    for name in FOREIGN:
        (root / name).mkdir()
        (root / name / 'x').write_text('x')
    (root / 'empty_88').mkdir()
    return root


@pytest.mark.parametrize('prefix, own, others', [
    (None, ('1', '500', '1500'), ()),
    (None, ('1500',), ('best_7', 'best_9000', 'best_9001')),
    ('step', ('step_1', 'step_20', 'step_100'), ('best_7', 'last_100000')),
    ('a_b', ('a_b_7', 'a_b_30'), ('a_99',)),
    ('_', ('__7', '__30'), ()),
    (None, ('1', '2', '10'), ('0011', '12.0', '12.5')),
    (8, ('00000001', '00000002', '00000010'), ('20', '0000000020', '000020', '00000020.5')),
    (3, ('007', '012', '1500'), ('9', '00020')),
], ids=str)
def test_steps_are_those_of_the_prefix(run, mount, tmp_path, step, prefix, own, others):
    """And of the length, where prefix is one."""
    form = {'step_format_fixed_length': prefix} if isinstance(prefix, int) else {'step_prefix': prefix}
    (tmp_path / 'root').mkdir()
    root = made(tmp_path / 'root', step, (*own, *others))
    with ocp.CheckpointManager(root, options=ocp.CheckpointManagerOptions(read_only=True, **form)) as manager:
        want, latest = sorted(manager.all_steps()), manager.latest_step()
    assert len(want) == len(own) and latest == want[-1]
    listed = run('ls', '--json', root)
    assert [e['name'] for e in json.loads(listed.stdout)] == [name for name in own]
    # Another checkpoint is not a step, and that is said.
    assert bool(others) == ('is not listed with the steps' in listed.stderr)
    assert json.loads(run('info', '--json', root).stdout)['latest'] == own[-1]
    assert pytreefs.steps(root) == want
    with pytreefs.open(root) as ck:
        assert ck.latest.name == own[-1] and [*ck] == [*own]
    m = mount(root)
    assert sorted(os.listdir(m.path)) == sorted(own) and os.readlink(m / 'latest') == own[-1]
    for name in others:
        assert np.load(m / name / 'state/w.npy')[2] == 2 and run('ls', root / name).stdout
    found = run('verify', root)
    assert bool(others) == ('not checked: the steps are called like' in found.stdout)
    run('convert', root, tmp_path / 'out')
    assert sorted(os.listdir(tmp_path / 'out')) == sorted(own)


def test_nothing_of_other_programs_is_the_latest(run, mount, tmp_path):
    """Where there is no step, they may be listed."""
    for name in FOREIGN:
        (tmp_path / 'root' / name).mkdir(parents=True)
    m = mount(tmp_path / 'root', 'shape=root')
    assert not os.path.lexists(m / 'latest')
    assert 'latest' not in json.loads(run('info', '--json', '-o', 'shape=root', tmp_path / 'root').stdout)


def test_an_empty_directory_among_steps_of_its_prefix_is_one(mount, tmp_path, step):
    """Orbax takes it for the latest, too."""
    root = tmp_path / 'root'
    for name in ('step_1', 'step_2'):
        shutil.copytree(step, root / name)
    (root / 'step_5').mkdir()
    with ocp.CheckpointManager(root, options=ocp.CheckpointManagerOptions(step_prefix='step', read_only=True)) as manager:
        assert manager.latest_step() == 5
    m = mount(root, allow_errors=True)
    assert sorted(os.listdir(m.path)) == ['step_1', 'step_2', 'step_5'] and os.readlink(m / 'latest') == 'step_5'


@pytest.mark.parametrize('numbers', [(0.85, 0.9, 10), (1, 1.5, 2.25), (9.75, 10.5, 10.25, 100),
                                     (1e-05, 2e-05, 0.0001, 1.5e-07, 0), (5, 1e+16, 1.25e+20, 3e+16, 9999.5)], ids=str)
def test_numbers_with_a_fraction_or_power(run, mount, tmp_path, numbers):
    for number in sorted(numbers):
        flax.training.checkpoints.save_checkpoint(tmp_path / 'root', {'w': np.full(2, float(number))}, number, keep=9, overwrite=True)
    want = [f'checkpoint_{number}' for number in sorted(numbers)]
    latest = pathlib.Path(flax.training.checkpoints.latest_checkpoint(tmp_path / 'root')).name
    assert latest == want[-1]
    assert [e['name'] for e in json.loads(run('ls', '--json', tmp_path / 'root').stdout)] == want
    assert pytreefs.steps(tmp_path / 'root') == sorted(numbers)
    assert os.readlink(mount(tmp_path / 'root') / 'latest') == latest
    assert pytreefs.load(tmp_path / 'root/latest')['w'][0] == max(numbers)
    with pytreefs.open(tmp_path / 'root') as ck:
        assert ck.latest.name == latest and ck[numbers[0]]['w'].read()[0] == numbers[0]


def test_files_of_flax_that_hold_one_value(run, mount, tmp_path):
    """An array, a scalar and an empty dict; a directory of a tree beside them is not an item of the root."""
    root = tmp_path / 'root'
    trees = {1: np.arange(6.0).reshape(2, 3), 2: np.float32(2.5), 3: {}}
    with flax.config.temp_flip_flag('use_orbax_checkpointing', False):
        for number, tree in trees.items():
            flax.training.checkpoints.save_checkpoint(root, tree, number, keep=9)
    names = [f'checkpoint_{number}' for number in trees]
    for beside in (False, True):
        if beside:
            with ocp.PyTreeCheckpointer() as checkpointer:
                checkpointer.save(root / 'params', {'w': np.arange(3.0)})
        listed = [e['name'] for e in json.loads(run('ls', '--json', root).stdout)]
        assert [name for name in listed if name != 'params'] == names
        m = mount(root)
        assert np.array_equal(np.load(m / 'checkpoint_1/%.npy'), trees[1])
        assert (m / 'checkpoint_2/%.json').read_text().strip() == '2.5'
        assert os.listdir(m / 'checkpoint_3') == []
        assert os.readlink(m / 'latest') == 'checkpoint_3'


def test_new_steps_beside_those_of_another_prefix(run, mount, tmp_path, step):
    """The prefix that the steps of a root have (Levanter's "step-") is one for new steps of it, and only there."""
    root = tmp_path / 'root'
    shutil.copytree(step, root / 'step-10')
    m = mount(root, 'allow_delete', allow_errors=True)
    with pytest.raises(OSError):
        (m / 'other-11.tmp').mkdir()
    (m / 'step-11.tmp').mkdir()
    shutil.copytree(m / 'step-10/state', m / 'step-11.tmp/state')
    (m / 'step-11.tmp').rename(m / 'step-11')
    assert sorted(os.listdir(m.path)) == ['step-10', 'step-11'] and os.readlink(m / 'latest') == 'step-11'
    assert np.array_equal(np.load(m / 'step-11/state/w.npy'), np.arange(3.0))
    (m / 'step-11').rmdir()
    assert not (root / 'step-11').exists()
    (tmp_path / 'in').mkdir()
    np.save(tmp_path / 'in/w.npy', np.ones(2))
    said = run('save', tmp_path / 'in', root / '12', ok=False)
    assert said.returncode == 1 and "name it 'step-12'" in said.stderr
    run('save', tmp_path / 'in', root / 'step-12')
    for other in (root / 'other-13', tmp_path / 'new/step-13'):
        assert "must end in '_'" in run('save', tmp_path / 'in', other, ok=False).stderr
    assert pytreefs.steps(root) == [10, 12]
