# SPDX-License-Identifier: Apache-2.0
"""Items that are not trees, as save() writes them: Orbax reads them, and metrics decide which step is the best."""

import os

import numpy as np
import orbax.checkpoint as ocp
import pytest

import pytreefs

CONFIG = {'width': 64, 'names': ['a', None], 'big': 2**100}
FILES = {'vocab.txt': 'a b', 'sub/odd %.npy': b'\0\1', 'a.json': b'{', 'empty': b''}


def test_orbax_finds_the_best_step_and_the_items(tmp_path):
    for step, loss in ((1, 0.5), (2, np.float32(0.25)), (3, np.array(0.75))):
        pytreefs.save(tmp_path / str(step), {'w': np.full(3, step)}, metrics={'loss': loss}, json_items={'config': CONFIG})
    options = ocp.CheckpointManagerOptions(best_fn=lambda metrics: metrics['loss'], best_mode='min')
    with ocp.CheckpointManager(tmp_path, item_names=('default', 'config'), options=options) as manager:
        assert manager.best_step() == 2 and manager.metrics(3) == {'loss': 0.75}
        found = manager.restore(2, args=ocp.args.Composite(default=ocp.args.StandardRestore(), config=ocp.args.JsonRestore()))
    assert found.config == CONFIG and found.default['w'].tolist() == [2, 2, 2]
    assert pytreefs.load(tmp_path / '2') ['w'].tolist() == [2, 2, 2] and pytreefs.open(tmp_path / '2').json('config') == CONFIG


@pytest.mark.parametrize('items', [False, True])
def test_files_are_stored_as_they_are(tmp_path, items):
    """Of a dict, and of a directory; beside a tree, and beside items."""
    tree = {'model': {'w': np.ones(2)}} if items else {'w': np.ones(2)}
    pytreefs.save(tmp_path / '1', tree, items=items, opaque={'tokenizer': FILES, 'nothing': {}})
    pytreefs.save(tmp_path / '2', tree, items=items, opaque={'tokenizer': tmp_path / '1' / 'tokenizer'})
    for step in ('1', '2'):
        top = tmp_path / step / 'tokenizer'
        found = {str(p.relative_to(top)): p.read_bytes() for p in top.rglob('*') if p.is_file() and p.name != 'commit_success.txt'}
        assert found == {name: data.encode() if isinstance(data, str) else data for name, data in FILES.items()}
        with pytreefs.open(tmp_path / step) as ck:
            assert ck['tokenizer'].kind == 'opaque' and ck['tokenizer/vocab.txt'].read() == b'a b'
    pytreefs.save(tmp_path / '3', pytreefs.open(tmp_path / '1'))
    assert (tmp_path / '3/tokenizer/sub/odd %.npy').read_bytes() == b'\0\1'


@pytest.mark.parametrize('how, why', [
    ({'opaque': {'default': {'a': b''}}}, "'default' would be two items"), ({'json_items': {'default': 1}}, "'default' would be two items"),
    ({'metrics': {}, 'json_items': {'metrics': 1}}, "'metrics' would be two items"), ({'metrics': {'a': 1}, 'item': None}, 'files are items of steps'),
    ({'opaque': {'t': {'../a': b''}}}, "'..' is not a name"), ({'opaque': {'t': {'a//b': b''}}}, "'' is not a name"), ({'opaque': {'t': {'a\0b': b''}}}, 'not a name'),
    ({'opaque': {'../t': {'a': b''}}}, 'not a name'), ({'json_items': {'a/b': 1}}, 'not a name'), ({'json_items': {'': 1}}, "item ''|name"),
    ({'json_items': {'c': object()}}, "'c' cannot be saved as JSON: a object"), ({'metrics': [1]}, 'metrics is a dict, as'),
    ({'opaque': {'t': {'a': 3}}}, 'bytes-like'), ({'opaque': {'t': '/nonexistent'}}, 'No such file'),
])
def test_what_is_refused_leaves_nothing(tmp_path, how, why):
    with pytest.raises((pytreefs.Error, TypeError, OSError), match=why):
        pytreefs.save(tmp_path / 'run/checkpoints/1', {'w': np.ones(2)}, **how)
    assert os.listdir(tmp_path) == []


def test_a_directory_that_is_not_there(tmp_path):
    with pytest.raises(pytreefs.NotFoundError) as e:
        pytreefs.save(tmp_path / '1', {}, opaque={'tokenizer': tmp_path / 'none'})
    assert e.value.filename == str(tmp_path / 'none')
    pytreefs.save(tmp_path / 'run/checkpoints/1', {'n': 1})
    assert pytreefs.load(tmp_path / 'run/checkpoints/1') == {'n': 1}


def test_a_link_to_a_directory_is_not_left_out_without_a_word(tmp_path):
    (tmp_path / 'files').mkdir()
    (tmp_path / 'files' / 'link').symlink_to(tmp_path)
    with pytest.raises(pytreefs.Error, match='link to a directory'):
        pytreefs.save(tmp_path / '1', {'w': np.ones(2)}, opaque={'tokenizer': tmp_path / 'files'})
    assert os.listdir(tmp_path) == ['files']


def test_progress_counts_the_files_too(tmp_path):
    seen = []
    pytreefs.save(tmp_path / '1', {'w': np.ones(2)}, opaque={'t': {'a': b'12345'}}, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (21, 21) and {total for _, total in seen} == {21}


def test_a_handle_has_its_own_items(tmp_path):
    pytreefs.save(tmp_path / '1', {'w': np.ones(2)}, metrics={'loss': 1})
    with pytreefs.open(tmp_path / '1') as ck, pytest.raises(ValueError, match='not for a handle'):
        pytreefs.save(tmp_path / '2', ck, metrics={'loss': 2})
