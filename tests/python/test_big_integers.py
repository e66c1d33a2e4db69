# SPDX-License-Identifier: Apache-2.0
"""Integers beyond 64 bits in JSON, as NumPy's random state has: the same number wherever the document goes."""

from lib import jaxenv  # noqa: F401  before jax

import json
import os
import pathlib
import shutil

import numpy as np
import orbax.checkpoint as ocp
import pytest

import pytreefs

BIG = 274677849271939719027416029173916928173
DOCUMENT = {'state': {'state': BIG, 'inc': -BIG, 'has_uint32': 0}, 'list': [BIG, 2**64, 2**64 - 1, -2**63, -2**63 - 1], 'x': 0.1}
pytestmark = pytest.mark.filterwarnings('ignore')


def write(root, big=BIG):
    document = json.loads(json.dumps(DOCUMENT).replace(str(BIG), str(big)))
    with ocp.CheckpointManager(root, item_names=('params', 'state')) as m:
        m.save(1, args=ocp.args.Composite(params=ocp.args.PyTreeSave({'w': np.arange(4)}, custom_metadata=document),
                                          state=ocp.args.JsonSave(document)), custom_metadata=document)


def documents(step):
    """All three, as Python reads what is stored."""
    step = pathlib.Path(step)
    return [json.loads((step / '_CHECKPOINT_METADATA').read_text())['custom_metadata'],
            json.loads((step / 'params/_METADATA').read_text())['custom_metadata'],
            json.loads(next(p for p in (step / 'state').iterdir() if 'metadata' in p.name and p.is_file()).read_text())]


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    path = tmp_path_factory.mktemp('big') / 'root'
    write(path)
    assert documents(path / '1') == [DOCUMENT] * 3
    return path


def test_every_way_of_copying_a_step_keeps_them(root, run, mount, tmp_path):
    run('convert', root / '1', tmp_path / 'converted')
    assert documents(tmp_path / 'converted') == [DOCUMENT] * 3
    (tmp_path / 'new').mkdir()
    run('convert', root / '1', tmp_path / 'new/1')
    run('convert', '-o', 'compression=zstd', '--force', root / '1', tmp_path / 'new/1')
    assert documents(tmp_path / 'new/1') == [DOCUMENT] * 3
    m = mount(tmp_path / 'new')
    assert documents(m / '1') == [DOCUMENT] * 3
    shutil.copytree(m / '1', m / '2.tmp')
    for item in ('', '/params'):
        text = os.getxattr(f'{m / "1"}{item}', 'user.pytree.custom_metadata')
        assert json.loads(text) == DOCUMENT
        os.setxattr(f'{m / "2.tmp"}{item}', 'user.pytree.custom_metadata', text)
    os.rename(m / '2.tmp', m / '2')
    assert documents(m / '2') == [DOCUMENT] * 3 == documents(tmp_path / 'new/2')
    for kind in ('npz', 'zarr', 'safetensors'):
        run('export', '--format', kind, root / '1/params', tmp_path / f'out.{kind}')
        run('convert', tmp_path / f'out.{kind}', tmp_path / f'{kind}-back')
        assert json.loads(next((tmp_path / f'{kind}-back').rglob('_METADATA')).read_text())['custom_metadata'] == DOCUMENT, kind


def test_every_description_has_them(root, run):
    for words in (['info', '--json', root / '1'], ['info', '--json', root / '1/params'], ['cat', root / '1/params.json'],
                  ['dump', root / '1/params/_METADATA']):
        r = run(*words, ok=False)
        if r.returncode == 0:
            assert str(BIG) in r.stdout and '2.7467' not in r.stdout, words
    assert str(BIG) in run('cat', root / '1/state/metadata').stdout


def test_the_package_has_them(root, tmp_path):
    loaded = pytreefs.load(root / '1')
    assert loaded['state'] == DOCUMENT
    pytreefs.save(tmp_path / 'root/1', {'w': np.arange(2)}, metadata=DOCUMENT, item_metadata={'default': DOCUMENT})
    for name in ('_CHECKPOINT_METADATA', 'default/_METADATA'):
        assert json.loads((tmp_path / 'root/1' / name).read_text())['custom_metadata'] == DOCUMENT


def test_diff_tells_numbers_apart_that_are_one_double(root, run, tmp_path):
    write(tmp_path / 'other', BIG + 1)
    assert float(BIG) == float(BIG + 1)
    r = run('diff', root / '1', tmp_path / 'other/1', ok=False)
    assert r.returncode == 1 and 'state' in r.stdout, r.stdout
    assert run('diff', root / '1', root / '1').returncode == 0


@pytest.mark.parametrize('n', [2**64, -2**63 - 1, BIG])
def test_as_a_leaf(tmp_path, n):
    """A number of a tree has 64 bits, as an array does."""
    with pytest.raises(pytreefs.Error, match="'default/n' cannot be saved: an integer has 64 bits"):
        pytreefs.save(tmp_path / '1', {'n': n})
    pytreefs.save(tmp_path / '1', {'n': 2**64 - 1, 'm': -2**63})
    assert pytreefs.load(tmp_path / '1') == {'n': 2**64 - 1, 'm': -2**63}
