# SPDX-License-Identifier: Apache-2.0
"""From a JAX model's checkpoint to a torch module that computes the same: no pickle, no conversion, no copy on disk."""

from lib import jaxenv  # noqa: F401  before jax

import os
import pathlib
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
import safetensors
import safetensors.torch
import torch

from lib import tour

WIDTHS = (16, 64, 32, 10)


def init(seed):
    """A perceptron as JAX users write it: {'layers': {'0': {'kernel', 'bias'}, ...}}."""
    keys = jax.random.split(jax.random.key(seed), 2 * len(WIDTHS))
    return {'layers': {str(i): {'kernel': jax.random.normal(keys[2 * i], (n, m), jnp.float32) / np.float32(n ** 0.5),
                                'bias': jax.random.normal(keys[2 * i + 1], (m,), jnp.float32)}
                       for i, (n, m) in enumerate(zip(WIDTHS, WIDTHS[1:]))}}


def logits(params, x):
    layers = [params['layers'][k] for k in sorted(params['layers'])]
    for layer in layers[:-1]:
        x = jax.nn.gelu(x @ layer['kernel'] + layer['bias'], approximate=False)
    return x @ layers[-1]['kernel'] + layers[-1]['bias']


class Dense(torch.nn.Module):
    """With the kernel the way that JAX lays it out, so that its name and shape are the checkpoint's."""

    def __init__(self, n, m):
        super().__init__()
        self.kernel = torch.nn.Parameter(torch.empty(n, m))
        self.bias = torch.nn.Parameter(torch.empty(m))

    def forward(self, x):
        return x @ self.kernel + self.bias


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Dense(n, m) for n, m in zip(WIDTHS, WIDTHS[1:]))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.nn.functional.gelu(layer(x))
        return self.layers[-1](x)


@pytest.fixture(scope='module')
def checkpoint(tmp_path_factory):
    root = tmp_path_factory.mktemp('torch') / 'run'
    params = init(3)
    with ocp.CheckpointManager(root) as manager:
        manager.save(7, args=ocp.args.StandardSave({'params': params, 'step': 7}))
        manager.wait_until_finished()
    return root, params


def test_a_state_dict_loads_into_a_module(mount, checkpoint):
    root, params = checkpoint
    m = mount(root)
    model = Model()
    model.load_state_dict(safetensors.torch.load_file(m / 'latest/default/params.safetensors'))
    x = np.random.default_rng(1).standard_normal((8, WIDTHS[0]), np.float32)
    want = np.asarray(logits(params, jnp.asarray(x)))
    with torch.no_grad():
        got = model(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    for name, value in model.state_dict().items():
        at = params
        for key in name.split('.'):
            at = at[key]
        assert np.array_equal(value.numpy(), np.asarray(at)), name


def test_half_the_memory_by_a_cast_in_the_name(mount, checkpoint):
    root, params = checkpoint
    m = mount(root)
    model = Model().to(torch.bfloat16)
    model.load_state_dict(safetensors.torch.load_file(m / '7/default/params@bfloat16.safetensors'))
    kernel = np.asarray(params['layers']['0']['kernel'].astype(jnp.bfloat16)).view(np.uint16)
    assert np.array_equal(model.layers[0].kernel.detach().view(torch.uint16).numpy(), kernel)


def test_one_layer_of_many_by_a_lazy_slice(mount, checkpoint):
    root, params = checkpoint
    m = mount(root)
    with safetensors.safe_open(m / '7/default/params.safetensors', 'pt') as f:
        part = f.get_slice('layers.1.kernel')[10:20, :]
    assert np.array_equal(part.numpy(), np.asarray(params['layers']['1']['kernel'])[10:20])


# ---- the example of docs/pytorch.md ----

PAGE = pathlib.Path(__file__).resolve().parents[2] / 'docs/pytorch.md'


def block(kind):
    """The one block of that language on the page that is about linear layers."""
    found = [text for text in re.findall(rf'```{kind}\n(.*?)```', PAGE.read_text(), re.S)
             if 'kernel' in text or 'nn.Linear' in text]
    assert len(found) == 1
    return found[0]


def code(first):
    """The one block of Python on the page that begins with these words."""
    found = [text for text in re.findall(r'```python\n(.*?)```', PAGE.read_text(), re.S) if text.startswith(first)]
    assert len(found) == 1
    return found[0]


def test_one_tensor_of_many(mount, checkpoint, tmp_path, monkeypatch):
    root, params = checkpoint
    (tmp_path / 'mnt').symlink_to(mount(root).path)
    monkeypatch.chdir(tmp_path)
    given = {}
    exec(code('from safetensors import safe_open'), given)
    assert np.array_equal(given['rows'].numpy(), np.asarray(params['layers']['0']['bias'])[:4])


def test_the_state_of_an_optimizer(build, tmp_path):
    """In a process without JAX; its keys are integers again, in the order of the parameters."""
    head = 'import pytreefs, torch\nmodel = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(6)])\n'
    check = """
want, lost = optimizer.state_dict(), torch.optim.AdamW(model.parameters())
for got in (new.state_dict(), pytreefs.load('ckpts/11', like=want, framework='torch')):
    assert list(got['state']) == list(range(12)) and got['param_groups'] == want['param_groups'], got['param_groups']
    for i, one in want['state'].items():
        assert set(got['state'][i]) == set(one) and all(torch.equal(got['state'][i][name], one[name]) for name in one)
lost.load_state_dict(pytreefs.load('ckpts/11', framework='torch'))
assert not any(lost.state[p] for p in model.parameters())       # as the page says
"""
    r = subprocess.run([sys.executable, '-c', head + code('optimizer = ') + check], cwd=tmp_path, capture_output=True, text=True,
                       env=dict(os.environ, PYTHONPATH=f'{build}/tools/python'))
    assert r.returncode == 0, r.stderr


def test_a_state_dict_becomes_steps(build, tmp_path, monkeypatch):
    """By the command, by a draft and by the package: Orbax restores the same tree from each of the three."""
    torch.manual_seed(4)
    model = torch.nn.Module()
    model.layers = torch.nn.ModuleList(torch.nn.Linear(n, m) for n, m in zip(WIDTHS, WIDTHS[1:]))
    (tmp_path / 'ckpts').mkdir()
    (tmp_path / 'mnt').mkdir()
    monkeypatch.chdir(tmp_path)
    exec(code('from safetensors.torch import save_file'), {'model': model})
    try:
        faults = tour.faults(PAGE, 'From PyTorch to Orbax', tmp_path, dict(os.environ, PATH=f'{build}:{os.environ["PATH"]}'))
        assert not faults, faults
    finally:
        subprocess.run(['umount', '-l', tmp_path / 'mnt'], capture_output=True)
    monkeypatch.syspath_prepend(f'{build}/tools/python')
    exec(code('import pytreefs'), {'model': model})
    want = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    for step in (8, 9, 10):
        tree = ocp.StandardCheckpointer().restore(tmp_path / f'ckpts/{step}/default')
        got = {f'layers.{i}.{name}': a for i, layer in tree['layers'].items() for name, a in layer.items()}
        assert got.keys() == want.keys()
        for name, a in got.items():
            assert np.array_equal(np.asarray(a), want[name]), (step, name)


def test_linear_layers_by_a_rules_file(mount, checkpoint, tmp_path, monkeypatch):
    """The page's rules file and program, as they stand there: kernels become transposed weights of nn.Linear."""
    root, params = checkpoint
    rules = block('json')
    assert len(rules.splitlines()) <= 8
    (tmp_path / 'torch.json').write_text(rules)
    m = mount(root, f'transforms={tmp_path}/torch.json')
    (tmp_path / 'mnt').symlink_to(m.path)
    monkeypatch.chdir(tmp_path)
    given = {}
    exec(block('python'), given)
    model = given['model']
    assert [type(layer) for layer in model.layers] == [torch.nn.Linear] * 3
    x = np.random.default_rng(2).standard_normal((8, WIDTHS[0]), np.float32)
    with torch.no_grad():
        got = model(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(got, np.asarray(logits(params, jnp.asarray(x))), rtol=1e-5, atol=1e-5)
