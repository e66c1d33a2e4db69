# SPDX-License-Identifier: Apache-2.0
"""Two leaves of a tree that Orbax stores under one name: only one value is there, and neither is shown as if it were its own."""

from lib import jaxenv  # noqa: F401  before jax

import errno
import json
import re

import numpy as np
import orbax.checkpoint as ocp
import pytest

import pytreefs

TREES = {'arrays': {'a': {'b': np.ones(3)}, 'a.b': np.zeros(3), 'z': np.arange(2)},
         'texts': {'a': {'b': 'x'}, 'a.b': 'y', 'z': np.arange(2)},
         'slash': {'a': np.ones(3), 'a/': np.zeros(3), 'z': np.arange(2)},
         'three': {'a': {'b.c': np.full(2, 1), 'b': {'c': np.full(2, 2)}}, 'a.b': {'c': np.full(2, 3)}, 'z': np.arange(2)}}


def shared(tree, above=()):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from shared(value, (*above, key))
        elif key != 'z':
            yield (*above, key)


def as_json(keys):
    return re.escape(json.dumps(keys, separators=(',', ':')))


@pytest.fixture(params=[(name, ocdbt) for name in TREES for ocdbt in (True, False)], ids=lambda p: f'{p[0]}-{"ocdbt" if p[1] else "directories"}')
def saved(request, tmp_path):
    name, ocdbt = request.param
    try:
        ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt)).save(tmp_path / 'item', args=ocp.args.PyTreeSave(TREES[name]))
    except ValueError:
        pytest.skip('Orbax does not write it')  # two writers of one array
    return tmp_path / 'item', list(shared(TREES[name]))


@pytest.mark.filterwarnings('ignore')
def test_each_leaf_that_shares_its_name_says_so_everywhere(saved, run, mount, tmp_path):
    path, leaves = saved
    assert list(pytreefs.load(path, only='z*')['z']) == [0, 1]
    for keys in leaves:
        # It names all of them, itself first.
        said = 'leaves ' + ''.join(f'(?=.*{as_json(other)})' for other in leaves) + as_json(keys)
        with pytest.raises((OSError, ValueError), match=said):
            leaf = pytreefs.open(path)
            for key in keys:
                leaf = leaf[key]
            np.asarray(leaf) if not hasattr(leaf, 'read') else leaf.read()
    with pytest.raises((OSError, ValueError), match='is the stored name of the leaves'):
        pytreefs.load(path)
    doc = json.loads(run('verify', '--json', path, ok=False).stdout)
    assert doc['errors'] and doc['unopened_leaves'] == len(leaves)
    assert run('tree', path, ok=False).stdout.count('is the stored name of the leaves') == len(leaves)
    for command in (['convert', path, tmp_path / 'out'], ['export', path, tmp_path / 'out.npz'], ['diff', path, path], ['stats', path]):
        r = run(*command, ok=False)
        assert r.returncode and 'is the stored name of the leaves' in r.stderr, command
    m = mount(path, allow_errors=True)
    for file in m.path.rglob('*.*'):
        if file.suffix in ('.npy', '.txt') and not file.name.startswith('z.'):
            with pytest.raises(OSError) as e:
                file.read_bytes()
            assert e.value.errno == errno.EIO
