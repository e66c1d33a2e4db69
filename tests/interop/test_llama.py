# SPDX-License-Identifier: Apache-2.0
"""docs/huggingface.md: a Llama-like model with scanned layers, saved by JAX, gives the same logits in torch."""

from lib import jaxenv  # noqa: F401  before jax

import json
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
import safetensors.torch
import torch

from lib import tour

PAGE = pathlib.Path(__file__).resolve().parents[2] / 'docs/huggingface.md'
LAYERS, VOCABULARY, WIDTH, HIDDEN, HEADS, KV_HEADS, HEAD = 3, 250, 32, 64, 4, 2, 8
SHAPES = {
    'token_embedder/embedding': (VOCABULARY, WIDTH),
    'layers/attention/query/kernel': (LAYERS, WIDTH, HEADS, HEAD),
    'layers/attention/key/kernel': (LAYERS, WIDTH, KV_HEADS, HEAD),
    'layers/attention/value/kernel': (LAYERS, WIDTH, KV_HEADS, HEAD),
    'layers/attention/out/kernel': (LAYERS, HEADS, HEAD, WIDTH),
    'layers/mlp/wi_0/kernel': (LAYERS, WIDTH, HIDDEN),
    'layers/mlp/wi_1/kernel': (LAYERS, WIDTH, HIDDEN),
    'layers/mlp/wo/kernel': (LAYERS, HIDDEN, WIDTH),
    'layers/pre_attention_norm/scale': (LAYERS, WIDTH),
    'layers/post_attention_norm/scale': (LAYERS, WIDTH),
    'final_norm/scale': (WIDTH,),
    'logits/kernel': (WIDTH, VOCABULARY),
}


def blocks(kind):
    return re.findall(rf'```{kind}\n(.*?)```', PAGE.read_text(), re.S)


RULES, CONFIG = (json.loads(text) for text in blocks('json'))


# ---- the model in JAX ----

def init():
    """Random parameters: norms as the distance of their scale from 1."""
    params = {}
    for key, (name, shape) in zip(jax.random.split(jax.random.key(5), len(SHAPES)), SHAPES.items()):
        at = params
        *above, last = name.split('/')
        for k in above:
            at = at.setdefault(k, {})
        at[last] = jax.random.normal(key, shape, jnp.float32) * 0.2
    return params


def norm(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + CONFIG['rms_norm_eps']) * (1 + scale)


def turned(x):
    """Rotary embeddings of [position, head, channel]: the first half of a head against the second."""
    n, half = x.shape[0], x.shape[-1] // 2
    angle = np.arange(n)[:, None] * CONFIG['rope_theta'] ** (-np.arange(half) / half)
    sin, cos = (jnp.asarray(f(angle), jnp.float32)[:, None, :] for f in (np.sin, np.cos))
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def layer(x, p):
    attention, mlp = p['attention'], p['mlp']
    y = norm(x, p['pre_attention_norm']['scale'])
    q, k, v = (jnp.einsum('td,dhc->thc', y, attention[name]['kernel']) for name in ('query', 'key', 'value'))
    k, v = (jnp.repeat(a, HEADS // KV_HEADS, 1) for a in (turned(k), v))
    score = jnp.einsum('thc,shc->hts', turned(q), k) / HEAD ** 0.5
    score = jnp.where(jnp.tril(jnp.ones(score.shape[1:], bool)), score, -jnp.inf)
    x = x + jnp.einsum('hts,shc,hcd->td', jax.nn.softmax(score, -1), v, attention['out']['kernel'])
    y = norm(x, p['post_attention_norm']['scale'])
    return x + (jax.nn.silu(y @ mlp['wi_0']['kernel']) * (y @ mlp['wi_1']['kernel'])) @ mlp['wo']['kernel'], None


def jax_logits(params, tokens):
    x = params['token_embedder']['embedding'][tokens]
    x, _ = jax.lax.scan(layer, x, params['layers'])
    return norm(x, params['final_norm']['scale']) @ params['logits']['kernel']


# ---- the model in torch, under the names of transformers ----

class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(WIDTH))

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + CONFIG['rms_norm_eps']) * self.weight


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        linear = lambda n, m: torch.nn.Linear(n, m, bias=False)  # noqa: E731
        self.q_proj, self.o_proj = linear(WIDTH, HEADS * HEAD), linear(HEADS * HEAD, WIDTH)
        self.k_proj, self.v_proj = linear(WIDTH, KV_HEADS * HEAD), linear(WIDTH, KV_HEADS * HEAD)

    def forward(self, x):
        n = len(x)
        angle = torch.arange(n)[:, None] * CONFIG['rope_theta'] ** (-torch.arange(HEAD // 2).double() / (HEAD // 2))
        angle = torch.cat([angle, angle], -1)

        def turned(a):
            half = torch.cat([-a[..., HEAD // 2:], a[..., :HEAD // 2]], -1)
            return a * angle.cos().float() + half * angle.sin().float()

        heads = [w(x).view(n, -1, HEAD).transpose(0, 1) for w in (self.q_proj, self.k_proj, self.v_proj)]
        q, k, v = turned(heads[0]), *(a.repeat_interleave(HEADS // KV_HEADS, 0) for a in (turned(heads[1]), heads[2]))
        y = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
        return self.o_proj(y.transpose(0, 1).reshape(n, -1))


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = (torch.nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.down_proj = torch.nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        return self.down_proj(torch.nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn, self.mlp = Attention(), Mlp()
        self.input_layernorm, self.post_attention_layernorm = Norm(), Norm()

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Module()
        self.model.embed_tokens = torch.nn.Embedding(CONFIG['vocab_size'], WIDTH)
        self.model.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
        self.model.norm = Norm()
        self.lm_head = torch.nn.Linear(WIDTH, CONFIG['vocab_size'], bias=False)

    def forward(self, tokens):
        x = self.model.embed_tokens(tokens)
        for one in self.model.layers:
            x = one(x)
        return self.lm_head(self.model.norm(x))


# ---- the page ----

@pytest.fixture(scope='module')
def page(build, tmp_path_factory):
    """The directory in which the commands of the page were run, the faults that were found, and the parameters."""
    where, params = tmp_path_factory.mktemp('llama'), init()
    with ocp.CheckpointManager(where / 'ckpts') as manager:
        manager.save(7, args=ocp.args.StandardSave({'params': params, 'step': 7}))
        manager.wait_until_finished()
    for name, text in zip(('hf.json', 'config.json'), blocks('json'), strict=True):
        (where / name).write_text(text)
    env = dict(os.environ, PATH=f'{build}:{os.path.dirname(sys.executable)}:{os.environ["PATH"]}')
    found = tour.faults(PAGE, 'The directory', where, env)
    subprocess.run(['umount', '-l', where / 'mnt'], capture_output=True)
    return where, found, params


TOKENS = np.array([3, 141, 59, 26, 5, 35, 249, 0])


def same_logits(got, params):
    want = np.asarray(jax_logits(params, jnp.asarray(TOKENS)))
    assert got.shape == (len(TOKENS), CONFIG['vocab_size'])
    np.testing.assert_allclose(got[:, :VOCABULARY], want, rtol=1e-4, atol=1e-4)
    assert not got[:, VOCABULARY:].any(), 'what was appended are zeros'


def test_the_commands_of_the_page(page):
    assert not page[1]


def test_the_same_logits_in_jax_and_in_torch(page):
    where, _, params = page
    model = Llama()
    model.load_state_dict(safetensors.torch.load_file(where / 'llama/model.safetensors'))      # strict: each name once
    with torch.no_grad():
        same_logits(model(torch.from_numpy(TOKENS)).numpy(), params)


def test_transformers_loads_the_directory(page, monkeypatch):
    """The program of the page, where transformers is installed: it is large, and no test asks for it."""
    transformers = pytest.importorskip('transformers', reason='transformers is not installed')
    where, _, params = page
    monkeypatch.chdir(where)
    given = {}
    exec(blocks('python')[0], given)
    assert isinstance(given['model'], transformers.LlamaForCausalLM)
    with torch.no_grad():
        same_logits(given['model'].float()(torch.from_numpy(TOKENS)[None]).logits[0].numpy(), params)


def test_rules_for_another_depth_are_an_error(page, run, tmp_path):
    """Not a shorter model: the array and both numbers are named."""
    where, _, _ = page
    (tmp_path / 'hf.json').write_text((where / 'hf.json').read_text().replace('{"i": 3}', '{"i": 2}').replace('{i}, 3)', '{i}, 2)'))
    r = run('export', '--format', 'safetensors', '-o', f'transforms={tmp_path}/hf.json', where / 'ckpts/7/default', tmp_path / 'out.safetensors',
            ok=False)
    assert r.returncode == 1 and 'axis 0 has 3 positions, not 2' in r.stderr, r.stderr
    assert not (tmp_path / 'out.safetensors').exists()
