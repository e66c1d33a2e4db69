# SPDX-License-Identifier: Apache-2.0
"""`pytreefs convert --mesh --spec` and `--chunks-like`: a checkpoint whose chunks are the parts of a mesh that is not here."""

import json
import subprocess

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from lib import forks, jobs, mesh_layout, package, servers

pytreefs = package.imported()

KEY = [('params/.*/kernel', ['fsdp', 'tensor']), ('params/.*/bias', [['fsdp', 'tensor']]), ('.*/table', [None, 'tensor'])]      # a number needs none
CHUNKS = {'layer/kernel': [16, 16], 'layer/bias': [4], 'embed/table': [24, 8]}


@pytest.fixture
def step(tmp_path):
    """Of Orbax: a manager's step 1."""
    rng = np.random.default_rng(0)
    tree = {'params': {'layer': {'kernel': rng.standard_normal((64, 32), np.float32), 'bias': np.arange(32, dtype=ml_dtypes.bfloat16)},
                       'embed': {'table': rng.integers(0, 99, (24, 16), np.int32)}, 'scale': np.array(3, np.float32)}, 'n': 7}
    forks.run(save, tmp_path / 'from', json.dumps(flat(tree)))
    return tmp_path / 'from/1'


def flat(tree):
    return {key: flat(x) if isinstance(x, dict) else x if isinstance(x, int) else [x.dtype.name, x.astype(np.float64).tolist()] for key, x in tree.items()}


def save(root, text):
    import jax.numpy as jnp
    import orbax.checkpoint as ocp

    def made(x):
        return {key: made(value) for key, value in x.items()} if isinstance(x, dict) else x if isinstance(x, int) else jnp.asarray(np.array(x[1]), x[0])
    with ocp.CheckpointManager(root) as m:
        m.save(1, args=ocp.args.StandardSave(made(json.loads(text))))


def rules(tmp_path, pairs=KEY, name='rules.json'):
    (tmp_path / name).write_text(json.dumps(pairs if name.startswith('pairs') else dict(pairs)))
    return tmp_path / name


def chunks(run, item):
    return {name: json.loads(run('info', '--json', f'{item}/params/{name}.npy').stdout)['chunks'] for name in CHUNKS}


@pytest.mark.feature('G8')
@pytest.mark.parametrize('form', ['rules.json', 'pairs.json'])
@pytest.mark.parametrize('ranks', [1, 2])
def test_each_device_reads_one_chunk(run, program, tmp_path, step, form, ranks):
    """Counted by TensorStore; every part is the one that Orbax restores from the step as it was."""
    more = ('--mesh', 'fsdp=4,tensor=2', '--spec', rules(tmp_path, name=form), step, tmp_path / 'to/1')
    if ranks == 1:
        run('convert', *more)
    else:
        subprocess.run(['mpirun', '-n', str(ranks), program, 'convert', *map(str, more)], env=jobs.environment(), check=True, timeout=240)
    assert chunks(run, tmp_path / 'to/1/default') == CHUNKS
    assert run('diff', step, tmp_path / 'to/1').returncode == 0 and run('verify', tmp_path / 'to/1').returncode == 0
    found = forks.run(mesh_layout.main, step / 'default', tmp_path / 'to/1/default')
    assert '20 parts, 20 reads' in found, found
    run('convert', '--chunks-like', tmp_path / 'to/1', step, tmp_path / 'like/1')
    assert chunks(run, tmp_path / 'like/1/default') == CHUNKS
    # Ranks that convert together record the whole shape as what each of them wrote (docs/writing.md).
    for name in ('_sharding', 'array_metadatas/process_0')[:3 - ranks]:
        assert json.loads((tmp_path / 'like/1/default' / name).read_text()) == json.loads((tmp_path / 'to/1/default' / name).read_text())


@pytest.mark.feature('G8')
def test_chunks_like_a_checkpoint_with_a_url(run, tmp_path, step):
    """The confined process reads the value of an option as it reads an argument; a leaf of numpy stays one, which Orbax restores anywhere."""
    run('convert', '--mesh', 'fsdp=4,tensor=2', '--spec', rules(tmp_path), '-o', 'leaf_type=np.ndarray', step, tmp_path / 'to/1')
    with servers.nginx(tmp_path / 'nginx', tmp_path / 'to') as url:
        run('convert', '-o', 'sandbox=require', '--chunks-like', f'{url}/1', step, tmp_path / 'like/1')
    assert chunks(run, tmp_path / 'like/1/default') == CHUNKS
    assert json.loads(run('info', '--json', tmp_path / 'like/1/default/params/layer/kernel.npy').stdout)['typestr'] == 'np.ndarray'


@pytest.mark.feature('G8')
def test_explain_counts_what_devices_read(run, tmp_path, step):
    run('convert', '--mesh', 'fsdp=4,tensor=2', '--spec', rules(tmp_path), step, tmp_path / 'to/1')
    kernel = 'default/params/layer/kernel.npy'
    got = json.loads(run('explain', '--sharding', '--json', '--target', tmp_path / 'to/1' / kernel, step / kernel).stdout)
    stored = {path: json.loads(run('info', '--json', path / kernel).stdout)['stored_bytes'] for path in (step, tmp_path / 'to/1')}
    assert len(got) == 8 and all(e['chunks'] == e['target_chunks'] == 1 and e['stored_bytes'] > e['target_stored_bytes'] for e in got)
    assert sum(e['target_stored_bytes'] for e in got) <= stored[tmp_path / 'to/1']
    text = run('explain', '--sharding', tmp_path / 'to/1' / kernel).stdout
    assert 'device 7, replica 0: kernel[48:64,16:32].npy: reads' in text and 'in 1 chunk\n' in text


@pytest.mark.feature('G8')
def test_chunks_may_be_smaller_than_parts(run, tmp_path, step):
    run('convert', '-o', 'chunk_byte_size=256', '--mesh', 'fsdp=4,tensor=2', '--spec', rules(tmp_path), step, tmp_path / 'to/1')
    for name, chunk in chunks(run, tmp_path / 'to/1/default').items():
        assert all(part % n == 0 for part, n in zip(CHUNKS[name], chunk)), (name, chunk)
    assert chunks(run, tmp_path / 'to/1/default')['layer/kernel'] != CHUNKS['layer/kernel']


def test_safetensors_for_a_mesh(run, tmp_path, step):
    run('export', step / 'default/params', tmp_path / 'x.safetensors')
    run('convert', '--mesh', 'fsdp=4,tensor=2', '--spec', rules(tmp_path, [('.*kernel', ['fsdp', 'tensor']), ('.*', [])]), tmp_path / 'x.safetensors', tmp_path / 'to/1')
    assert json.loads(run('info', '--json', tmp_path / 'to/1/default/layer/kernel.npy').stdout)['chunks'] == [16, 16]


def test_64_bits_of_safetensors_are_not_restored_as_32(run, tmp_path):
    """A file of tensors records no types: of 64 bits they become arrays of numpy, others of jax; they are not cut."""
    tree = {'ids': np.array([2**40, 5] * 4), 'w': np.arange(8, dtype=np.float32)}
    safetensors.numpy.save_file(tree, tmp_path / 'x.safetensors')
    run('convert', '--mesh', 'x=4', '--spec', rules(tmp_path, [('.*', [])]), tmp_path / 'x.safetensors', tmp_path / '1')
    ck = pytreefs.open(tmp_path / '1')['default']
    assert (ck['ids'].recorded_type, ck['w'].recorded_type) == ('np.ndarray', 'jax.Array') and ck['ids'].read().tolist() == tree['ids'].tolist()
    r = run('convert', '--mesh', 'x=4', '--spec', rules(tmp_path, [('.*', ['x'])]), tmp_path / 'x.safetensors', tmp_path / '2', ok=False)
    assert r.returncode == 1 and "'ids.npy' is an array of int64: cut" in r.stderr and not (tmp_path / '2').exists()


@pytest.mark.parametrize('mesh, pairs, why', [
    ('fsdp=4', KEY, "'tensor': --mesh: "), ('fsdp=5,tensor=2', KEY, "'default/params/embed/table.npy'|'default/params/layer/bias.npy': axis 0 of 32 cannot be cut in 10 equal parts"),
    ('fsdp=4,tensor=2', KEY[:1], "no rule of --spec matches 'params/embed/table'"), ('fsdp=4,tensor', KEY, 'NAME=SIZE'), ('fsdp=0', KEY, 'NAME=SIZE'), ('fsdp=-1', KEY, 'NAME=SIZE'),
    ('fsdp=18446744073709551617', KEY, 'NAME=SIZE'), ('fsdp=4,', KEY, 'NAME=SIZE'), ('', KEY, 'NAME=SIZE'),
    ('fsdp=4,tensor=2', [('(', [])], 'rules.json'), ('fsdp=4,tensor=2', [('.*', 'fsdp')], 'has no partition spec'),
    ('fsdp=4,tensor=2', [('.*bias', ['fsdp', 'tensor']), ('.*', [])], 'the partition spec has 2 axes, the array 1')])
def test_rules_that_do_not_fit(run, tmp_path, step, mesh, pairs, why):
    r = run('convert', '--mesh', mesh, '--spec', rules(tmp_path, pairs), step, tmp_path / 'to/1', ok=False)
    assert r.returncode == 1 and any(part in r.stderr for part in why.split('|')), r.stderr
    assert not (tmp_path / 'to').exists()


def test_what_has_no_chunks_like_it(run, tmp_path, step):
    run('convert', step / 'default/params/layer', tmp_path / 'small')
    np.save(tmp_path / 'a.npy', np.ones(3))
    for like, source, why in ((tmp_path / 'small', step, "has no 'default/"), (step, tmp_path / 'a.npy', 'neither a checkpoint nor safetensors'),
                              (tmp_path / 'nothing', step, 'nothing'), (tmp_path / 'from', step, 'is not a step or an item')):
        r = run('convert', '--chunks-like', like, source, tmp_path / 'to/1', ok=False)
        assert r.returncode == 1 and why in r.stderr, r.stderr


def test_arrays_of_numpy_stay_what_they_are_unless_they_are_cut(run, tmp_path):
    """Of one of jax Orbax restores 32 bits: 64 bits are not cut in silence. LIKE's arrays are cut by their recorded shardings."""
    tree = {'a': np.array([2**40, 5] * 4), 'b': np.arange(8, dtype=np.float32), 'c': np.array([1e-300] * 8)}
    pytreefs.save(tmp_path / '1', tree)

    def recorded(out):
        return {name: pytreefs.open(tmp_path / out)['default'][name].recorded_type for name in tree}
    for out, more in (('2', ('--mesh', 'x=4', '--spec', rules(tmp_path, [('b', ['x']), ('.*', [])]))), ('3', ('--chunks-like', tmp_path / '2'))):
        r = run('convert', '-q', *more, tmp_path / '1', tmp_path / out)
        assert not r.stderr
        assert recorded(out) == {'a': 'np.ndarray', 'b': 'jax.Array', 'c': 'np.ndarray'}
    more = ('--mesh', 'x=4', '--spec', rules(tmp_path, [('c', ['x']), ('.*', [])]))
    r = run('convert', *more, tmp_path / '1', tmp_path / '4', ok=False)
    assert r.returncode == 1 and "'default/c.npy' is an array of numpy of float64" in r.stderr
    run('convert', '-o', 'leaf_type=jax.Array', *more, tmp_path / '1', tmp_path / '4')
    assert set(recorded('4').values()) == {'jax.Array'}


@pytest.mark.parametrize('ranks', [1, 2])
def test_a_rule_without_an_array_is_said(run, program, tmp_path, step, ranks):
    """A typing error would leave every array whole on each device."""
    more = ('convert', '--mesh', 'fsdp=4', '--spec', rules(tmp_path, [('kernel', ['fsdp']), ('params/n', []), ('.*', [])]), step, tmp_path / 'to/1')
    words = [program, *more] if ranks == 1 else ['mpirun', '-n', str(ranks), program, *more]
    r = subprocess.run(list(map(str, words)), env=jobs.environment(), capture_output=True, text=True, timeout=240)
    assert r.returncode == 0
    assert [line.split("'")[1] for line in r.stderr.splitlines() if '--spec: the rule' in line] == ['kernel', 'params/n']
