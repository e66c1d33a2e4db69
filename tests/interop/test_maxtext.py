# SPDX-License-Identifier: Apache-2.0
"""docs/maxtext.md, run on the checkpoint that MaxText's trainer wrote into tests/data/maxtext (maxtext_tool.py; with_libraries tries all models)."""

from lib import jaxenv  # noqa: F401  before jax

import json
import os
import pathlib
import re
import shutil
import subprocess

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
import safetensors.numpy

from lib import tour

TOP = pathlib.Path(__file__).resolve().parents[2]
PAGE = TOP / 'docs/maxtext.md'
DATA = TOP / 'tests/data/maxtext'
NAMES = 'llama', 'llama-unscanned', 'qwen3-moe', 'gpt-oss', 'unscan', 'scan'


@pytest.fixture(scope='module')
def page(build, tmp_path_factory):
    """The directory in which the commands of the page were run, and the faults that were found."""
    where = tmp_path_factory.mktemp('maxtext')
    shutil.copytree(DATA / '1', where / 'ckpts/1')
    blocks = re.findall(r'```json\n(.*?)```', PAGE.read_text(), re.S)
    for name, text in zip(NAMES, blocks, strict=True):
        json.loads(text)
        (where / f'{name}.json').write_text(text)
    env = dict(os.environ, PATH=f'{build}:{os.environ["PATH"]}')
    found = [fault for title in ('Llama', 'Scanned and single layers') for fault in tour.faults(PAGE, title, where, env)]
    subprocess.run(['umount', '-l', where / 'mnt'], capture_output=True)
    return where, found


def test_the_commands_of_the_page(page):
    assert not page[1], '\n'.join(page[1])


def test_the_tensors_are_those_of_the_converter_of_maxtext(page):
    want = safetensors.numpy.load_file(DATA / 'model.safetensors')
    got = safetensors.numpy.load_file(page[0] / 'llama/model.safetensors')
    assert sorted(got) == sorted(want) and len(want) == 21
    assert [name for name in want if got[name].shape != want[name].shape or got[name].tobytes() != want[name].tobytes()] == []


def test_rules_without_the_scale_and_the_order_are_not_right(page, run, tmp_path):
    """Without what the page says of queries, keys and norms, tensors differ."""
    want = safetensors.numpy.load_file(DATA / 'model.safetensors')
    text = (page[0] / 'llama.json').read_text()
    changes = {'q_proj': lambda s: s.replace('"scale(2.8284271247461903)", ', ''), 'k_proj': lambda s: s.replace('"transpose(0, 1, 3, 2)", ', ''),
               'norm': lambda s: s.replace('decoder_norm/scale"}', 'decoder_norm/scale", "value_fn": "add(1.0)"}')}
    for name, change in changes.items():
        assert change(text) != text
        (tmp_path / 'rules.json').write_text(change(text))
        run('export', '--force', '-o', f'transforms={tmp_path}/rules.json', page[0] / 'ckpts/1/items', tmp_path / 'wrong.safetensors')
        got = safetensors.numpy.load_file(tmp_path / 'wrong.safetensors')
        assert any(name in n for n in want if got[n].tobytes() != want[n].tobytes()), name


def test_single_layers_are_a_checkpoint_of_maxtext(page):
    """Orbax restores each layer, also of the optimizer, and finds the flag."""
    where = page[0]
    with ocp.CheckpointManager(where / 'single') as manager:
        assert manager.metadata(1).custom_metadata == {'scan_layers': False}
    scanned, single = (ocp.PyTreeCheckpointer().restore(where / step / '1/items') for step in ('ckpts', 'single'))
    for at in (lambda t: t['params']['params']['decoder'], lambda t: t['opt_state'][0]['mu']['params']['decoder'],
               lambda t: t['opt_state'][0]['nu']['params']['decoder']):
        for i in range(2):
            want = jax.tree.map(lambda a: np.take(np.asarray(a), i, 1), at(scanned)['layers'])
            assert jax.tree.all(jax.tree.map(lambda a, b: np.asarray(b).tobytes() == a.tobytes(), want, at(single)[f'layers_{i}']))
