# SPDX-License-Identifier: Apache-2.0
"""docs/recipes.md: a state of Flax NNX and the variables of a Keras model, saved and loaded by the lines of the page."""

import os
import pathlib
import re

import numpy as np
import orbax.checkpoint as ocp
import pytest

from lib import forks, tour

TOP = pathlib.Path(__file__).resolve().parents[2]
PAGE = TOP / 'docs/recipes.md'
NNX = '''
import numpy as np
from flax import nnx


class Model(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Linear(4, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.layers = nnx.List([nnx.Linear(8, 8, rngs=rngs) for _ in range(2)])
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x):
        x = self.norm(self.embed(x))
        for layer in self.layers:
            x = nnx.relu(layer(x))
        return self.dropout(x)


def made(seed):
    model = Model(nnx.Rngs(seed))
    model.eval()
    return model
'''
KERAS = '''
import keras
import numpy as np


def made(seed):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.layers.Dense(8, activation='relu', name='dense'), keras.layers.BatchNormalization(name='norm'),
                              keras.layers.Dense(3, name='logits')], name='classifier')
    model.build((None, 4))
    return model
'''
X = 'x = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)\n'


def blocks(section):
    return re.findall(r'```python\n(.*?)```', '\n'.join(tour.section(PAGE, section)), re.S)


@pytest.fixture
def run_python(build, tmp_path):
    """Runs a program in a process of its own, with the package, beside an empty directory of steps."""
    (tmp_path / 'ckpts').mkdir()

    def run(text):
        env = dict(os.environ, PYTHONPATH=str(build / 'tools/python'), PATH=f'{build}:{os.environ["PATH"]}', JAX_PLATFORMS='cpu',
                   KERAS_BACKEND='jax', KERAS_HOME=str(tmp_path / 'keras'))
        return forks.run(forks.script, f'import os\nos.chdir({str(tmp_path)!r})\n{text}', environment=env)
    return run


def test_flax_nnx(run_python, tmp_path):
    """Another model of the same structure gives the same result once it has the state; Orbax restores what was saved."""
    code, = blocks('Flax NNX')
    save, load = code.split('nnx.replace_by_pure_dict', 1)
    assert run_python(f'''{NNX}{X}model = made(0)
want = model(x)
{save}
model = made(1)
assert not np.allclose(model(x), want)
graph, state = nnx.split(model)
nnx.replace_by_pure_dict{load}
assert np.array_equal(model(x), want)
np.save('kernel', model.embed.kernel[...])
print('done')
''') .endswith('done\n')
    restored = ocp.PyTreeCheckpointer().restore(tmp_path / 'ckpts/1700/default')
    assert np.array_equal(restored['params']['embed']['kernel'], np.load(tmp_path / 'kernel.npy'))


def test_keras(run_python, tmp_path):
    save, load = blocks('Keras')
    assert run_python(f'''{KERAS}{X}model = made(0)
want = model.predict(x, verbose=0)
{save}
model = made(1)
assert not np.allclose(model.predict(x, verbose=0), want)
{load}
assert np.array_equal(model.predict(x, verbose=0), want)
np.save('kernel', model.get_layer('dense').kernel)
print('done')
''') .endswith('done\n')
    restored = ocp.PyTreeCheckpointer().restore(tmp_path / 'ckpts/1800/default')
    assert np.array_equal(restored['classifier']['dense']['kernel'], np.load(tmp_path / 'kernel.npy'))
