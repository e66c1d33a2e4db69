# SPDX-License-Identifier: Apache-2.0
"""`pytreefs explain --sharding`: each device's box, and a view that holds just what that device held."""

from lib import jaxenv  # noqa: F401  before jax

import itertools
import json

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

MESHES = {'8': ('x',), '4x2': ('x', 'y'), '2x2x2': ('x', 'y', 'z')}


def mesh_of(text):
    shape = tuple(map(int, text.split('x')))
    return Mesh(np.array(jax.devices()[:8]).reshape(shape), MESHES[text])


def specs(axes):
    """Every way to give each axis of the mesh to one axis of a matrix, or to none."""
    for places in itertools.product((None, 0, 1), repeat=len(axes)):
        parts = [tuple(a for a, p in zip(axes, places) if p == k) for k in (0, 1)]
        yield P(*[p or None for p in parts])


@pytest.mark.feature('A7')
@pytest.mark.parametrize('shape', MESHES)
def test_boxes_are_the_addressable_shards(run, mount, tmp_path, shape):
    """Every NamedSharding of an eight-device mesh: device, replica, box, and the bytes in the view."""
    mesh, x = mesh_of(shape), np.arange(16 * 24, dtype=np.float32).reshape(16, 24)
    arrays = {f'w{i}': jax.device_put(x, NamedSharding(mesh, spec)) for i, spec in enumerate(specs(mesh.axis_names))}
    with ocp.PyTreeCheckpointer() as c:
        c.save(tmp_path / 'ckpt', arrays)
    m = mount(tmp_path / 'ckpt')
    for name, array in arrays.items():
        got = json.loads(run('explain', '--sharding', '--json', tmp_path / 'ckpt' / f'{name}.npy').stdout)
        want = {s.device.id: s for s in array.addressable_shards}
        assert sorted(e['device'] for e in got) == sorted(want), name
        for e in got:
            shard = want[e['device']]
            assert e['replica'] == shard.replica_id
            assert [slice(*b).indices(n) for b, n in zip(e['box'], x.shape)] == \
                [s.indices(n) for s, n in zip(shard.index, x.shape)]
        # One view of each different box is enough.
        for e in {json.dumps(e['box']): e for e in got}.values():
            assert np.array_equal(np.load(m / e['view']), np.asarray(want[e['device']].data)), e


def test_as_text_and_where_there_is_none(run, cases):
    case = cases('mesh-ocdbt-zarr2-v0')
    out = run('explain', '--sharding', case.path / 'both.npy').stdout
    assert 'replica 0: both[0:16,0:24].npy' in out and out.count('\n') == 8
    for view in ('both[0:4]', 'both@float16', 'both[0:4]@8x8'):
        assert run('explain', '--sharding', case.path / f'{view}.npy').stdout == out
    r = run('explain', '--sharding', case.path / 'numpy.npy', ok=False)
    assert r.returncode == 1 and 'no recorded sharding' in r.stderr
