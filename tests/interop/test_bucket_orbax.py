# SPDX-License-Identifier: Apache-2.0
"""Real Orbax reads and writes gs://: the arrays by TensorStore, all other files by gcsfs.

Orbax refuses s3:// ("Checkpoint path should be absolute"); test_bucket_tensorstore.py reads from there.
"""

import pathlib

import ml_dtypes
import numpy as np
import pytest

from lib import bucket_writers, forks, package
from lib.pairs import LONG

BUCKET = 'orbax'  # for the fixture
TESTS = pathlib.Path(__file__).resolve().parent.parent
TOKEN = 'ya29.of-orbax'
# test_bucket_tensorstore.py has all of them.
WRITERS = [bucket_writers.copy_into_a_draft, bucket_writers.save_by_the_library, bucket_writers.convert][:3 if LONG else 1]
# The large array has several parts.
TREE = {'params': {'small': np.arange(35, dtype='f4').reshape(7, 5), 'half': np.linspace(-3, 3, 12).astype(ml_dtypes.bfloat16),
                   'large': np.random.default_rng(3).standard_normal((3000, 700))}, 'step': 7, 'name': 'run7'}
COMMON = '''
from lib import jaxenv
import sys
import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint import v1
from interop.test_bucket_orbax import TREE, assert_same
'''
RESTORE = COMMON + '''
for root in map(epath.Path, sys.argv[1:]):
    assert [p.name for p in root.iterdir()] == ['3'], root
    with ocp.CheckpointManager(root, item_handlers=ocp.StandardCheckpointHandler()) as manager:
        assert manager.all_steps() == [3] and manager.latest_step() == 3
        shapes = {k: v.shape for k, v in manager.item_metadata(3)['params'].items()}
        assert shapes == {k: v.shape for k, v in TREE['params'].items()}, shapes
        assert_same(manager.restore(3))
    assert_same(v1.load_pytree(root / '3', checkpointable_name='default'))
'''
SAVE = COMMON + '''
root = epath.Path(sys.argv[1])
with ocp.CheckpointManager(root) as manager:
    assert manager.save(4, args=ocp.args.PyTreeSave(TREE))
    manager.wait_until_finished()
    assert manager.all_steps() == [4]
v1.save_pytree(root / '5', TREE)
'''


def assert_same(got):
    assert got.keys() == TREE.keys() and got['params'].keys() == TREE['params'].keys(), got
    assert got['step'] == 7 and got['name'] == 'run7', got
    for name, value in TREE['params'].items():
        array = np.asarray(got['params'][name])
        assert array.dtype == value.dtype and array.tobytes() == value.tobytes(), name


@pytest.fixture
def python(gs, gs_bucket, program):
    """python(script, word, ..., STORAGE_EMULATOR_HOST=...): a process with Orbax and our package, and these variables."""
    def do(script, *words, **env):
        forks.run(forks.script, script, *words, environment=package.environment(program, TESTS) | env)
    return do


@pytest.fixture
def orbax(gs, python):
    """orbax(URL of TensorStore's server, script, word, ...). gcsfs lists with fields of its own choice, so it asks the emulator itself."""
    gs.tokens.add(TOKEN)
    return lambda arrays, script, *words: python(
        script, *words, TENSORSTORE_GCS_HTTP_URL=arrays, GOOGLE_AUTH_TOKEN_FOR_TESTING=TOKEN,
        # gcsfs would send the secrets of a test to Google.
        STORAGE_EMULATOR_HOST=f'http://{gs.address}', FSSPEC_GCS_TOKEN='anon', GOOGLE_APPLICATION_CREDENTIALS='', GOOGLE_CLOUD_PROJECT='tests',
        # Else it asks, by an API that the emulator lacks, whether the bucket has real directories.
        GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT='false')


def test_it_restores_what_each_writer_wrote(mount, program, gs, spill, python, orbax, tmp_path):
    """A copy into a draft of a mount, a save of the library, convert: through both interfaces of Orbax, to the bit."""
    python('import sys, pytreefs\nfrom interop.test_bucket_orbax import TREE\npytreefs.save(sys.argv[1], TREE, compression="none")',
           tmp_path / 'steps/3')
    roots = [f'gs://orbax/by-{write.__name__}' for write in WRITERS]
    for write, root in zip(WRITERS, roots, strict=True):
        write(mount, program, tmp_path / 'steps', root)
    # With the generations that TensorStore asks for, and the emulator does not give.
    gs.requests.clear()
    orbax(gs.url, RESTORE, *roots)
    for write in WRITERS:
        assert any('alt=media' in path and f'by-{write.__name__}/3/default/d/' in path for _, path, _ in gs.requests), write


def test_what_it_writes_is_read(mount, run, gs, gs_bucket, spill, python, orbax, tmp_path):
    """A step of its manager, and one of its newer interface: by the library, the commands and a mount."""
    orbax(gs.url, SAVE, 'gs://orbax/its')
    assert run('ls', 'gs://orbax/its').stdout.split() == ['4/', '5/']
    assert '0 errors, 0 warnings' in run('verify', 'gs://orbax/its').stdout
    python('import sys, pytreefs\nfrom interop.test_bucket_orbax import assert_same\n'
           'for tree in sys.argv[1:]: assert_same(pytreefs.load(tree))', 'gs://orbax/its/4/default', 'gs://orbax/its/5/state')
    m = mount('gs://orbax/its')
    for tree in ('4/default', '5/state'):
        assert np.array_equal(np.load(m.path / tree / 'params/large.npy'), TREE['params']['large'])
        assert (m.path / tree / 'step.json').read_text().strip() == '7'
