# SPDX-License-Identifier: Apache-2.0
"""Custom metadata of steps and of items: Orbax finds in a copy what it wrote into the original, or what the copy was given."""

from lib import jaxenv  # noqa: F401  before jax

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import orbax.checkpoint as ocp
import pytest

OF_STEP = {'scan_layers': True, 'lora': {'rank': 4}, 'note': 'café'}
OF_ITEM = {'dataset': [1, 2.5, None]}
GIVEN = {'scan_layers': False}
TREE = {'w': np.arange(6.0).reshape(2, 3), 'l': [1, 'x']}
FORMATS = 'npy', 'npz', 'safetensors', 'zarr'


@pytest.fixture(scope='module')
def base(tmp_path_factory):
    """A root with the step 1, which has custom metadata of its own and of its item."""
    path = tmp_path_factory.mktemp('custom') / 'base'
    with ocp.CheckpointManager(path) as manager:
        args = ocp.args.Composite(items=ocp.args.PyTreeSave(TREE, custom_metadata=OF_ITEM), metrics=ocp.args.JsonSave({'loss': 1}))
        manager.save(1, args=args, custom_metadata=OF_STEP)
    return path


def of_step(step):
    with ocp.CheckpointManager(step.parent) as manager:
        return manager.metadata(int(step.name)).custom_metadata


def of_item(path):
    return ocp.PyTreeCheckpointHandler().metadata(path).custom_metadata


def by_format(form):
    def copy(run, base, step):
        file = step.parent / ('files' if form == 'npy' else f'file.{form}')
        run('export', '--format', form, base / '1', file)
        run('save', file, step)
    return copy


def by_python(build, *lines):
    def copy(run, base, step):
        code = '\n'.join(('import sys, pytreefs', 'old, new = sys.argv[1:]', 'ck = pytreefs.open(old)', *lines))
        subprocess.run([sys.executable, '-c', code, base / '1', step], env=dict(os.environ, PYTHONPATH=str(build / 'tools/python')), check=True)
    return copy


WAYS = {
    'convert': lambda run, base, step: run('convert', base / '1', step),
    'convert of a root': lambda run, base, step: run('convert', base, step.parent),
    'save': lambda run, base, step: run('save', base / '1', step),
    **{f'export to {form} and save': by_format(form) for form in FORMATS},
}


@pytest.mark.parametrize('way', WAYS)
def test_a_copy_of_a_step_has_both(run, base, tmp_path, way):
    step = tmp_path / 'copy' / '1'
    step.parent.mkdir()
    WAYS[way](run, base, step)
    assert of_step(step) == OF_STEP and of_item(step / 'items') == OF_ITEM


@pytest.mark.parametrize('command', [['cp', '-r'], ['cp', '-a']], ids=' '.join)
def test_a_copy_out_of_a_mount_has_both(run, mount, base, tmp_path, command):
    subprocess.run([*command, mount(base).path / '1', tmp_path / 'files'], check=True)
    step = tmp_path / 'copy' / '1'
    run('save', tmp_path / 'files', step)
    assert of_step(step) == OF_STEP and of_item(step / 'items') == OF_ITEM


@pytest.fixture(scope='module')
def large(base, tmp_path_factory):
    """The step, with custom metadata of 40 MiB of its item."""
    root = tmp_path_factory.mktemp('large') / 'root'
    shutil.copytree(base, root)
    path = root / '1/items/_METADATA'
    path.write_text(json.dumps(json.loads(path.read_text()) | {'custom_metadata': {'notes': 'x' * (40 << 20)}}))
    return root


def test_a_copy_in_a_mount_has_large_ones(run, mount, large):
    """And the list, of which only the same file tells without xattrs."""
    m = mount(large)
    subprocess.run(['cp', '-r', m.path / '1', m.path / '2.tmp'], check=True)
    os.rename(m / '2.tmp', m / '2')
    assert len(of_item(large / '2/items')['notes']) == 40 << 20
    assert ' 0 differences' in run('diff', large / '1', large / '2').stdout
    subprocess.run(['cp', '-r', m.path / '1', large.parent / 'files'], check=True)
    run('save', large.parent / 'files', large / '3')
    assert ' 0 differences' in run('diff', large / '1', large / '3').stdout


def test_what_does_not_fit_in_memory_is_not_left_out(mount, large, tmp_path):
    subprocess.run(['cp', '-r', mount(large).path / '1', tmp_path / 'files'], check=True)
    (tmp_path / 'small').mkdir()
    m = mount(tmp_path / 'small', 'cache=1M', allow_errors=True)
    subprocess.run(['cp', '-r', tmp_path / 'files', m.path / '2.tmp'], check=True)
    with pytest.raises(OSError):
        os.rename(m / '2.tmp', m / '2')
    assert any("item 'items': the '_METADATA' that was copied does not fit in memory" in line for line in m.log_lines()), m.log_lines()
    assert os.listdir(tmp_path / 'small') == ['.2.pytreefs-draft']


def test_python(run, base, tmp_path, build):
    step = tmp_path / 'copy' / '1'
    by_python(build, 'pytreefs.save(new, pytreefs.load(old + "/items"), item="items", metadata=ck.metadata,',
              '              item_metadata={"items": ck["items"].metadata})')(run, base, step)
    assert of_step(step) == OF_STEP and of_item(step / 'items') == OF_ITEM


@pytest.mark.parametrize('command', ['convert', 'save'])
@pytest.mark.parametrize('given', [GIVEN, {}])
def test_they_can_be_set(run, base, tmp_path, command, given):
    """A step has what was given in place of its own; an item keeps what it has, also where it becomes a step of its own."""
    for source, step in ((base / '1', tmp_path / 'copy/1'), (base / '1/items', tmp_path / 'copy/2')):
        more = [] if source.name == '1' else ['--item', 'items', *(['--layout', 'v1'] if command == 'convert' else [])]
        step.parent.mkdir(exist_ok=True)
        run(command, '--custom-metadata', json.dumps(given), *more, source, step)
        assert of_step(step) == given and of_item(step / 'items') == OF_ITEM


def test_those_of_a_tree_without_items_can_be_set(run, base, tmp_path):
    run('convert', '--custom-metadata', json.dumps(GIVEN), base / '1/items', tmp_path / 'tree')
    assert of_item(tmp_path / 'tree') == GIVEN


def test_those_of_all_steps_of_a_root_can_be_set(run, base, tmp_path):
    run('convert', '--custom-metadata', json.dumps(GIVEN), base, tmp_path / 'copy')
    assert of_step(tmp_path / 'copy/1') == GIVEN


def test_rules_leave_them_and_say_so(run, base, tmp_path):
    """Rules may change what the metadata describe."""
    (tmp_path / 'rules.json').write_text('{"rules": [{"key": "v", "original_key": "w"}]}')
    options = '-o', f'transforms={tmp_path}/rules.json'
    said = run('convert', *options, base / '1', tmp_path / '1').stderr
    assert f"the custom metadata of '{base}/1' are kept (--custom-metadata sets others): " in said and '"scan_layers": true' in said
    assert of_step(tmp_path / '1') == OF_STEP
    assert not run('convert', *options, '--custom-metadata', json.dumps(GIVEN), base / '1', tmp_path / '2').stderr
    assert of_step(tmp_path / '2') == GIVEN


@pytest.mark.parametrize('text,says', [('[1]', "--custom-metadata is a JSON object, not '[1]'"), ('{', '--custom-metadata: line 1, column 1: not JSON')])
def test_what_is_not_an_object_is_refused_first(run, base, tmp_path, text, says):
    r = run('convert', '--custom-metadata', text, base / '1', tmp_path / '1', ok=False)
    assert r.returncode == 2 and says in r.stderr and not (tmp_path / '1').exists()


def test_a_file_has_no_place_for_them(run, base, tmp_path):
    r = run('convert', '--custom-metadata', '{}', base / '1', tmp_path / 'x.npz', ok=False)
    assert r.returncode == 2 and '--custom-metadata is for an OUT that is a checkpoint' in r.stderr


def test_a_damaged_file_of_a_step_is_said(run, base, tmp_path):
    run('convert', base / '1', tmp_path / '1')
    (tmp_path / '1/_CHECKPOINT_METADATA').write_text('{"custom_metadata": []}')
    said = run('convert', tmp_path / '1', tmp_path / '2').stderr
    assert f"'{tmp_path}/1' is read without the custom metadata of the step: '_CHECKPOINT_METADATA': " in said, said


def test_a_handler_with_a_nul_is_not_cut_off(run, base, tmp_path):
    shutil.copytree(base / '1', tmp_path / '1')
    file = tmp_path / '1/_CHECKPOINT_METADATA'
    text = json.loads(file.read_text())
    text['item_handlers']['items'] += '\0more'
    file.write_text(json.dumps(text))
    r = run('convert', tmp_path / '1', tmp_path / '2', ok=False)
    assert r.returncode == 1 and "has a NUL in the handler of 'items'" in r.stderr and not (tmp_path / '2').exists(), r.stderr
