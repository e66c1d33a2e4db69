# SPDX-License-Identifier: Apache-2.0
"""Files that name arrays in directories beside them: flax with arrays of many hosts (written and restored by flax), and T5X."""

import json
import os
import shutil

import numpy as np
import pytest
import safetensors.numpy

from lib import compare, gda, servers
from lib.case import Case


@pytest.fixture(params=['flax', 'file', 'gfile', 'gcs', 'old path'])
def case(request, tmp_path):
    root, kind = tmp_path / 'root', request.param
    made = Case(source='root', directory=tmp_path)
    if kind == 'flax':
        gda.flax_multihost(root, 1)
        gda.flax_multihost(root, 10)
        made.steps = ['checkpoint_1', 'checkpoint_10']
    else:
        made.steps = ['checkpoint_10']
        gda.t5x(root / 'checkpoint_10', driver='file' if kind == 'old path' else kind, old_path=kind == 'old path')
    made.trees = {step: gda.expected() if kind == 'flax' else gda.expected_t5x() for step in made.steps}
    return made


def prefix_of(case):
    return '' if len(case.steps) == 2 else 'optimizer.target.'


def test_each_way_reads_the_arrays(run, mount, case, tmp_path):
    leaves = sum(len(t.leaves) for t in case.trees.values())
    m = mount(case.path)
    assert not compare.compare_case(m.path, case)
    assert sorted(p.name for p in m.path.iterdir() if p.name.startswith('checkpoint')) == case.steps
    verified = run('verify', case.path).stdout
    assert f'with {leaves} leaves' in verified and '0 errors, 0 warnings' in verified
    step = case.path / 'checkpoint_10'
    run('convert', step, tmp_path / 'copy')
    same = run('diff', step, tmp_path / 'copy').stdout
    assert f'{len(case.trees["checkpoint_10"].leaves)} the same, 0 differences' in same
    run('export', step, tmp_path / 'out.safetensors', '--only', '*.npy')
    want = gda.tree()['params']
    for name in want:
        leaf = step / (f'params/{name}.npy' if len(case.steps) == 2 else f'optimizer/target/{name}.npy')
        assert run('cat', leaf, text=False).stdout == (m.path / leaf.relative_to(case.path)).read_bytes()
    got = safetensors.numpy.load_file(tmp_path / 'out.safetensors')
    for name, array in want.items():
        (found,) = [v for k, v in got.items() if k.rpartition('.')[2] == name]
        assert found.tobytes() == array.tobytes(), name


def test_flax_restores_the_same(tmp_path):
    import jax
    from flax.training import checkpoints
    from jax.experimental.array_serialization import serialization
    from unittest import mock
    gda.flax_multihost(tmp_path / 'root', 1)
    target = jax.tree.map(lambda x: jax.numpy.zeros_like(x) if isinstance(x, np.ndarray) and x.ndim else x, gda.tree())
    with mock.patch.object(checkpoints, '_is_multiprocess_array', lambda value: isinstance(value, jax.Array)):
        got = checkpoints.restore_checkpoint(str(tmp_path / 'root'), target, gda_manager=serialization.GlobalAsyncCheckpointManager())
    for name, want in gda.tree()['params'].items():
        assert np.asarray(got['params'][name]).tobytes() == want.tobytes(), name


def test_arrays_at_the_top(run, tmp_path):
    """The directory with the arrays is not taken for an item."""
    flat = {'params': {'w': np.arange(6, dtype=np.float32)}}
    gda.flax_multihost(tmp_path / 'root', 1, lambda: dict(flat))
    shutil.move(tmp_path / 'root/checkpoint_1_gda/params/w', tmp_path / 'root/checkpoint_1_gda/w')
    assert run('ls', tmp_path / 'root').stdout.split() == ['checkpoint_1/']
    r = run('verify', tmp_path / 'root', ok=False)
    assert r.returncode == 1 and "'params/w' is in the tree, and its array is not stored" in r.stdout, r.stdout


def test_a_server_that_cannot_list(mount, tmp_path):
    gda.t5x(tmp_path / 'checkpoint_10')
    case = Case(source='checkpoint_10', directory=tmp_path, trees={'': gda.expected_t5x()})
    with servers.nginx(tmp_path / 'server', case.path) as url:
        assert not compare.compare_case(mount(url).path, case)


@pytest.mark.parametrize('changes,reason', [
    ({'driver': 'n5'}, "its driver is neither 'zarr' nor 'zarr3'"),
    ({'kvstore': {'driver': 'memory', 'path': 'target.w'}}, 'its kvstore is not of files'),
    ({'kvstore': {'driver': 'file', 'path': '/etc/target.w'}}, 'its path does not begin in the checkpoint'),
    ({'kvstore': {'driver': 'file', 'path': '../target.w'}}, 'its array is not stored'),
    ({'kvstore': {'driver': 'file', 'path': 'target.none'}}, 'its array is not stored'),
    ({'transform': {'input_inclusive_min': [1]}}, 'it has a transform'),
    ({'dtype': 'int8'}, 'and its spec says int8'),
    ({'metadata': {'shape': [7, 7]}}, 'and its spec says [7, 7]'),
])
def test_a_spec_that_cannot_be_followed_is_an_error_of_its_leaf(run, tmp_path, changes, reason):
    gda.t5x(tmp_path / 'checkpoint_10', changes=changes)
    r = run('verify', tmp_path / 'checkpoint_10', ok=False)
    assert r.returncode == 1 and '3 leaves cannot be opened' in r.stdout and reason in r.stdout, r.stdout
    assert run('cat', tmp_path / 'checkpoint_10/version.json').stdout.strip() == '3'
    assert run('cat', tmp_path / 'checkpoint_10/optimizer/target/w.npy', ok=False).returncode == 1
    assert run('convert', tmp_path / 'checkpoint_10', tmp_path / 'copy', ok=False).returncode == 1


def test_access_is_that_of_the_arrays(mount, tmp_path):
    gda.flax_multihost(tmp_path / 'root', 1)
    os.chmod(tmp_path / 'root/checkpoint_1_gda/params/w', 0o700)
    os.chmod(tmp_path / 'root/checkpoint_1', 0o644)
    m = mount(tmp_path / 'root')
    assert (m.path / 'checkpoint_1/params/b.npy').stat().st_mode & 0o777 == 0o444
    assert (m.path / 'checkpoint_1/params/w.npy').stat().st_mode & 0o077 == 0


def test_the_spec_of_tensorstore(run, tmp_path):
    import tensorstore as ts
    gda.flax_multihost(tmp_path / 'root', 1)
    spec = json.loads(run('explain', '--spec', tmp_path / 'root/checkpoint_1/params/w.npy').stdout)
    assert np.array_equal(ts.open(spec).result().read().result(), gda.tree()['params']['w'])
