# SPDX-License-Identifier: Apache-2.0
"""`pytreefs diff` of trees that Orbax wrote: the same values in other containers differ as far as both checkpoints record it."""

import collections
import itertools
import json

from lib import jaxenv  # noqa: F401  before jax

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from orbax.checkpoint._src.metadata import pytree_metadata_options

NT = collections.namedtuple('NT', 'x y')
OT = collections.namedtuple('OT', 'x y')
NTReversed = collections.namedtuple('NT', 'y x')
X, Y = np.arange(3.), np.arange(4.)
TREES = {'dict': {'x': X, 'y': Y}, 'ordered': collections.OrderedDict(x=X, y=Y), 'reversed': collections.OrderedDict(y=Y, x=X),
         'NT': NT(X, Y), 'OT': OT(X, Y), 'NT reversed': NTReversed(Y, X)}
# Classes of trees that are recorded in the same way, by whether there are rich types.
SAME = {False: [{'dict', 'ordered', 'NT', 'OT'}, {'reversed', 'NT reversed'}], True: [{'dict', 'ordered'}]}
SAID = {('NT', 'OT'): {'what': 'type', 'a': f'{__name__}.NT', 'b': f'{__name__}.OT'}, ('NT', 'NT reversed'): {'what': 'order', 'a': 'x', 'b': 'y'},
        ('ordered', 'reversed'): {'what': 'order', 'a': 'x', 'b': 'y'}, ('dict', 'NT'): {'what': 'kind', 'a': 'dict', 'b': 'namedtuple'}}


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('rich', [False, True], ids=['plain', 'rich'])
def test_containers_differ_where_their_records_do(run, tmp_path, rich):
    handler = ocp.PyTreeCheckpointHandler(pytree_metadata_options=pytree_metadata_options.PyTreeMetadataOptions(support_rich_types=rich))
    for name, tree in TREES.items():
        with ocp.Checkpointer(handler) as c:
            c.save(tmp_path / name, {'s': tree, 'z': X})
        run('convert', tmp_path / name, tmp_path / f'{name} copy')
        run('export', '--format', 'zarr', tmp_path / name, tmp_path / f'{name} zarr')
        for copy in ('copy', 'zarr'):
            assert run('diff', tmp_path / name, tmp_path / f'{name} {copy}').stdout.endswith(' 0 differences\n')
    for a, b in itertools.combinations(TREES, 2):
        for copy in ('', ' zarr'):
            found = json.loads(run('diff', '--json', tmp_path / f'{a}{copy}', tmp_path / f'{b}{copy}', ok=False).stdout)
            assert found['compared'] == found['same'] == 3
            assert bool(found['differences']) != any({a, b} <= same for same in SAME[rich]), (a, b, copy, found)
            assert {d['path'] for d in found['differences']} <= {'s'}
            if rich and (a, b) in SAID:
                assert found['differences'] == [{'path': 's'} | SAID[a, b]]


def test_how_values_are_stored_makes_none(run, tmp_path):
    """Another sharding, chunks, codec, and numpy in place of jax: the help says so."""
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    w = np.arange(64, dtype=np.float32).reshape(8, 8)
    mesh = Mesh(np.array(jax.devices()[:4]), ('x',))
    for name, a in (('one', jax.device_put(w)), ('split', jax.device_put(w, NamedSharding(mesh, PartitionSpec('x')))), ('numpy', w)):
        ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=name != 'numpy')).save(tmp_path / name, args=ocp.args.PyTreeSave({'w': a}))
    for name in ('split', 'numpy'):
        assert run('diff', tmp_path / 'one', tmp_path / name).stdout.endswith(' 0 differences\n')
    assert 'shardings' in run('diff', '--help').stdout
