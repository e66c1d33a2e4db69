# SPDX-License-Identifier: Apache-2.0
"""A file of flax's to_bytes() by its own name, as models are published: a SOURCE of each command, of mounts, of Python and of URLs."""

import os
import subprocess

import flax.serialization
import ml_dtypes
import msgpack
import numpy as np
import pytest
import safetensors.numpy

from lib import objects

from lib import package

pytreefs = package.imported()

IN_MEMORY = True
TREE = {'bert': {'kernel': np.arange(12, dtype=np.float32).reshape(3, 4), 'bias': np.ones(4, ml_dtypes.bfloat16)}, 'layers': {0: {'w': np.arange(3)}}}
NAMES = ['bert/bias.npy', 'bert/kernel.npy', 'layers/0/w.npy']


@pytest.fixture
def hub(tmp_path):
    """A directory as of a hub: the model beside other files."""
    path = tmp_path / 'hub'
    path.mkdir()
    (path / 'config.json').write_text('{"model_type": "bert"}')
    (path / 'flax_model.msgpack').write_bytes(flax.serialization.msgpack_serialize(TREE))
    return path


@pytest.fixture(params=['disk', 's3'])
def model(request, hub):
    if request.param == 'disk':
        return hub / 'flax_model.msgpack'
    request.getfixturevalue('s3').address = objects.S3({'hub': hub})
    return 's3://bucket/hub/flax_model.msgpack'


def test_commands(run, model, tmp_path):
    assert run('ls', model).stdout.split() == ['bert/', 'layers/']
    assert run('cat', f'{model}/layers/0/w.json').stdout == '[0, 1, 2]\n'
    assert run('cat', f'{model}/bert/kernel', text=False).stdout[128:] == TREE['bert']['kernel'].tobytes()
    assert '1 item with 3 leaves' in run('verify', model).stdout
    assert 'bert/kernel.npy' in run('stats', model).stdout
    run('convert', model, tmp_path / 'out/7')
    assert '3 the same, 0 differences' in run('diff', model, tmp_path / 'out/7').stdout
    # A step as CheckpointManager restores it, as of every other file.
    assert (tmp_path / 'out/7/default/_METADATA').is_file()
    run('export', model, tmp_path / 'm.safetensors')
    assert '3 the same, 0 differences' in run('diff', model, tmp_path / 'm.safetensors').stdout


def test_a_mount(mount, model, hub):
    m = mount(model, allow_errors=True)     # of the draft below
    assert sorted(str(p.relative_to(m.path)) for p in m.path.rglob('*.npy')) == NAMES
    assert np.array_equal(np.load(m / 'bert/kernel.npy'), TREE['bert']['kernel'])
    # Neither the stored form nor anything else shows what lies beside the file.
    assert os.listdir(m / '.pytreefs/stored') == ['flax_model.msgpack']
    assert (m / '.pytreefs/stored/flax_model.msgpack').read_bytes() == (hub / 'flax_model.msgpack').read_bytes()
    with pytest.raises(OSError, match='Read-only'):
        os.mkdir(m / '7.tmp')


def test_the_directory_names_the_file(run, hub, program, tmp_path):
    said = f"'{hub}' is not a checkpoint, but '{hub}/flax_model.msgpack' is read by its name"
    (tmp_path / 'mnt').mkdir()
    for words in (['ls', hub], ['verify', hub], ['stats', hub], ['info', hub], ['convert', hub, tmp_path / 'out'], ['save', hub, tmp_path / 'out/7']):
        r = run(*words, ok=False)
        assert r.returncode and said in r.stderr, r.stderr
    r = subprocess.run([program, 'mount', hub, tmp_path / 'mnt'], capture_output=True, text=True, check=False)
    assert r.returncode == 1 and said in r.stderr, r.stderr


@pytest.mark.parametrize('data, message', [
    (b'', 'truncated'), (b'hello', 'something follows'), (flax.serialization.msgpack_serialize(TREE)[:-1], 'truncated'),
    (b'version https://git-lfs.github.com/spec/v1\noid sha256:' + b'0' * 64 + b'\nsize 1234\n', 'a Git LFS pointer')], ids=['empty', 'text', 'short', 'lfs'])
def test_a_file_that_is_none(run, program, tmp_path, data, message):
    (tmp_path / 'm.msgpack').write_bytes(data)
    for words in (['ls'], ['verify'], ['stats'], ['convert', tmp_path / 'out']):
        r = run(words[0], tmp_path / 'm.msgpack', *words[1:], ok=False)
        assert r.returncode and message in r.stderr and 'm.msgpack' in r.stderr, r.stderr
    (tmp_path / 'mnt').mkdir()
    r = subprocess.run([program, 'mount', tmp_path / 'm.msgpack', tmp_path / 'mnt'], capture_output=True, text=True, check=False)
    assert r.returncode == 1 and message in r.stderr, r.stderr


@pytest.mark.filterwarnings('ignore:.* is one of 2 shards')
def test_shards_become_one_step(run, tmp_path):
    """As docs/huggingface.md has it."""
    flat = {}
    for i, (name, tree) in enumerate(TREE.items()):
        (tmp_path / f'flax_model-0000{i + 1}-of-00002.msgpack').write_bytes(flax.serialization.msgpack_serialize({name: tree}))
    for shard in sorted(tmp_path.glob('flax_model-*.msgpack')):
        flat |= pytreefs.load_flat(shard, separator='/')
    pytreefs.save(tmp_path / 'ckpts/1', flat, separator='/')
    (tmp_path / 'whole.msgpack').write_bytes(flax.serialization.msgpack_serialize(TREE))
    assert '3 the same, 0 differences' in run('diff', tmp_path / 'whole.msgpack', tmp_path / 'ckpts/1').stdout


def test_a_shard_says_that_it_is_one(run, program, tmp_path):
    """By its name, of flax and of safetensors: on stderr, at the mount and in its log, and as a warning. Their directory names no single one."""
    fsh, st = tmp_path / 'fsh', tmp_path / 'st'
    fsh.mkdir()
    st.mkdir()
    for i, (name, tree) in enumerate(TREE.items()):
        (fsh / f'flax_model-0000{i + 1}-of-00002.msgpack').write_bytes(flax.serialization.msgpack_serialize({name: tree}))
        safetensors.numpy.save_file({name: np.arange(3)}, st / f'model-0000{i + 1}-of-00002.safetensors')
    (fsh / 'flax_model.msgpack.index.json').write_text('{"weight_map": {}}')
    (tmp_path / 'mnt').mkdir()
    for shard in (fsh / 'flax_model-00001-of-00002.msgpack', st / 'model-00001-of-00002.safetensors'):
        said = f"'{shard.name}' is one of 2 shards"
        for words in (['ls', shard], ['stats', shard], ['convert', shard, tmp_path / f'out{shard.suffix}/1']):
            assert said in run(*words).stderr, words
        r = subprocess.run([program, 'mount', shard, tmp_path / 'mnt'], capture_output=True, text=True, check=True)
        log = (tmp_path / 'mnt/.pytreefs/log').read_text()
        subprocess.run([program, 'umount', tmp_path / 'mnt'], check=True)
        assert said in r.stderr and said in log
        with pytest.warns(UserWarning, match='is one of 2 shards'):
            pytreefs.load(shard)
    assert 'shards' not in run('ls', st).stderr
    r = run('ls', fsh, ok=False)
    assert r.returncode and 'the 2 shards' in r.stderr and 'flax_model.msgpack.index.json' in r.stderr and 'docs/huggingface.md' in r.stderr


@pytest.mark.parametrize('name', ['bfloat16', 'float8_e4m3fn', 'float8_e5m2', 'float8_e8m0fnu', 'float4_e2m1fn', 'float16', 'float32'])
def test_scalars_have_all_digits(tmp_path, name):
    """The files of the mount have the shortest ones that read back to the type; a number of Python is of no such type."""
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    elements = np.concatenate([np.arange(256, dtype=np.uint8)] * dtype.itemsize).view(dtype)[:16 if name.startswith('float4') else None]
    tree = {f'{i:04}': e for i, e in enumerate(elements)}
    (tmp_path / 'checkpoint_1').write_bytes(msgpack.packb({k: msgpack.ExtType(3, msgpack.packb(((), name, e.tobytes()))) for k, e in tree.items()}))
    want = {k: float(v) for k, v in flax.serialization.msgpack_restore((tmp_path / 'checkpoint_1').read_bytes()).items()}
    got = pytreefs.load(str(tmp_path / 'checkpoint_1'))
    assert list(got) == list(want) and [repr(x) for x in got.values()] == [repr(x) for x in want.values()]
