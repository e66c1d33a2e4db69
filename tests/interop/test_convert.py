# SPDX-License-Identifier: Apache-2.0
"""convert, export, save and merge: round trips through every format, read by the real libraries on both sides."""

import collections
import itertools
import json
import os
import pathlib
import shutil
import subprocess

import jax
import ml_dtypes
import numcodecs
import numpy as np
import orbax.checkpoint as ocp0
import pytest
import safetensors.numpy
import tensorstore as ts
import zarr
from orbax.checkpoint import v1 as ocp1
from orbax.checkpoint._src.metadata import pytree_metadata_options

from lib import expect, restoring, selftest
from lib.pairs import LONG, pairs

SAMPLE = pathlib.Path(__file__).resolve().parents[1] / 'data/sample'
MATRIX = 'matrix-ocdbt-zarr2-zstd-v0'
# Name of the output, options of the export.
FORMATS = {'safetensors': ('m.safetensors', []), 'shards': ('m', ['--format', 'safetensors', '--max-shard-size', '2K']),
           'npz': ('m.npz', []), 'npy': ('m', []), 'zarr2': ('m.zarr', ['-o', 'zarr=2']),
           'zarr3': ('m.zarr', ['-o', 'zarr=3']), 'zarr-raw': ('m.zarr', ['-o', 'compression=none,chunk_byte_size=64'])}
CASES = [MATRIX, 'matrix-perleaf-zarr3-none-v1']


def restored(path):
    return ocp0.PyTreeCheckpointer().restore(path)


def item_of(case):
    """The directory of a case's only tree."""
    (where,) = case.trees
    return case.path / where


@pytest.mark.parametrize('form, name', pairs(list(FORMATS), list(CASES)))
@pytest.mark.feature('F5')
@pytest.mark.feature('B4')
def test_there_and_back(run, cases, tmp_path, name, form):
    """Orbax -> another format -> Orbax: every bit, every dtype, every kind of container and leaf."""
    case = cases(name)
    tree, out = case.tree(), tmp_path / FORMATS[form][0]
    run('export', *FORMATS[form][1], item_of(case), out)
    run('convert', out, tmp_path / 'back')
    assert not restoring.faults(tree, restored(tmp_path / 'back'))
    assert not list(selftest.by_tensorstore(tmp_path / 'back', tree))
    assert run('diff', item_of(case), tmp_path / 'back', ok=False).returncode == 0


@pytest.mark.parametrize('form', ['npz', 'npy', 'zarr2', 'zarr3'])
def test_every_dtype_there_and_back(run, cases, tmp_path, form):
    """Every element type with every bit pattern, those included that .npy has no name for."""
    case = cases('dtypes-ocdbt-zarr2')
    out = tmp_path / FORMATS[form][0]
    run('export', *FORMATS[form][1], item_of(case), out)
    run('convert', out, tmp_path / 'back')
    assert not list(selftest.by_tensorstore(tmp_path / 'back', case.tree()))
    assert run('diff', item_of(case), tmp_path / 'back', ok=False).returncode == 0


@pytest.mark.parametrize('form', FORMATS)
@pytest.mark.feature('A18')
def test_keys_stay_keys(run, cases, tmp_path, form):
    """Of the implementation that they had."""
    case = cases('prng-keys')
    out = tmp_path / FORMATS[form][0]
    run('export', *FORMATS[form][1], item_of(case), out)
    run('convert', out, tmp_path / 'back')
    assert not restoring.faults(case.tree(), restored(tmp_path / 'back'))


def test_a_key_in_a_file_of_its_own_stays_one(run, cases, tmp_path):
    case = cases('bare-key')
    run('export', item_of(case), tmp_path / 'k.npy')
    run('convert', tmp_path / 'k.npy', tmp_path / 'back')
    assert not restoring.faults(case.tree(), restored(tmp_path / 'back'))


def test_safetensors_refuses_what_it_cannot_name(run, cases, tmp_path):
    r = run('export', item_of(cases('dtypes-ocdbt-zarr2')), tmp_path / 'm.safetensors', ok=False)
    assert r.returncode == 1 and 'no name' in r.stderr and not list(tmp_path.iterdir()), r.stderr


@pytest.mark.parametrize('options, name', pairs(
    ['zarr=3', 'zarr=2', 'ocdbt=off', 'ocdbt=off,zarr=3', 'compression=none', 'compression=zstd:9', 'chunk_byte_size=100', 'zarr=3,compression=none'],
    list(CASES)))
@pytest.mark.feature('B4')
def test_orbax_to_orbax(run, cases, mount, tmp_path, name, options):
    """The same tree in every other way of storing, restored by real Orbax, opened by TensorStore; it stays as it is where no option says."""
    case = cases(name)
    before = json.loads((item_of(case) / '_METADATA').read_text())
    out = tmp_path / 'out'
    run('convert', '-o', options, item_of(case), out)
    doc = json.loads((out / '_METADATA').read_text())
    assert doc['use_zarr3'] == ('zarr=3' in options if 'zarr=' in options else before['use_zarr3'])
    assert doc['use_ocdbt'] == ('ocdbt=off' not in options and before['use_ocdbt'])
    assert not restoring.faults(case.tree(), restored(out))
    assert not list(selftest.by_tensorstore(out, case.tree()))
    assert json.loads(run('verify', '--json', out).stdout)['leaves'] == json.loads(run('info', '--json', out).stdout)['leaf_count']


@pytest.mark.feature('B4')
def test_v0_to_v1_and_back(run, cases, tmp_path):
    """A tree at the top of its directory becomes an item, as v1 has it, and one again."""
    case = cases(MATRIX)
    run('convert', '--layout', 'v1', '--item', 'state', item_of(case), tmp_path / 'v1')
    got = ocp1.load(tmp_path / 'v1')
    assert not restoring.faults(case.tree(), got)
    assert list(json.loads((tmp_path / 'v1/_CHECKPOINT_METADATA').read_text())['item_handlers']) == ['state']
    run('convert', '--layout', 'v0', tmp_path / 'v1/state', tmp_path / 'v0')
    assert not restoring.faults(case.tree(), restored(tmp_path / 'v0'))
    r = run('convert', '--layout', 'v0', tmp_path / 'v1', tmp_path / 'no', ok=False)
    assert r.returncode == 1 and 'items' in r.stderr and not (tmp_path / 'no').exists()


def types(path):
    doc = json.loads((path / '_METADATA').read_text())
    return {k: v['value_metadata']['value_type'] for k, v in doc['tree_metadata'].items()}


@pytest.mark.parametrize('form, name', pairs(list(FORMATS), [MATRIX, 'prng-keys', 'bare-key']))
def test_arrays_are_recorded_as_before_through_other_formats(run, cases, tmp_path, name, form):
    """Those of JAX and those of numpy, side by side; the user may say otherwise."""
    case = cases(name)
    out = tmp_path / FORMATS[form][0]
    run('export', *FORMATS[form][1], item_of(case), out)
    run('convert', out, tmp_path / 'back')
    assert types(tmp_path / 'back') == types(item_of(case)) and 'jax.Array' in types(item_of(case)).values()
    run('convert', '-o', 'leaf_type=np.ndarray', out, tmp_path / 'numpy')
    assert name != MATRIX or 'jax.Array' not in [v for k, v in types(tmp_path / 'numpy').items() if 'key' not in k]


def test_what_arrays_are_recorded_as(run, cases, tmp_path):
    """As in the input, unless the user says otherwise: np.ndarray restores where there is no such device."""
    case = cases(MATRIX)
    run('convert', item_of(case), tmp_path / 'same')
    assert types(tmp_path / 'same') == types(item_of(case)) and 'jax.Array' in types(item_of(case)).values()
    run('convert', '-o', 'leaf_type=np.ndarray', item_of(case), tmp_path / 'numpy')
    assert 'jax.Array' not in [v for k, v in types(tmp_path / 'numpy').items() if 'key' not in k]


def test_chunks_that_fit_are_not_decoded(run, cases, tmp_path):
    """A copy in the same form moves stored bytes of arrays, as they are. Numbers are text on their way: they are
    encoded again, in frames that have the checksum of their content, which Orbax's have not."""
    case = cases(MATRIX)
    run('convert', item_of(case), tmp_path / 'out')

    def stored(path):
        kv = ts.KvStore.open({'driver': 'ocdbt', 'base': f'file://{path}/'}).result()
        return {k.decode(): bytes(kv.read(k).result().value) for k in kv.list().result()}
    got, want = stored(tmp_path / 'out'), stored(item_of(case))
    assert set(got) == set(want)
    shape = {k.rsplit('/', 1)[0]: json.loads(v)['shape'] for k, v in want.items() if k.endswith('/.zarray')}
    moved = {'number': 0, 'array': 0}
    for key in want:
        name, last = key.rsplit('/', 1)
        if last == '.zarray':
            continue
        if got[key] == want[key]:
            moved['array'] += 1
            continue
        moved['number'] += 1
        assert shape[name] == [], key
        assert not want[key][4] & 4 and got[key][4] & 4, key
        assert bytes(numcodecs.Zstd().decode(got[key])) == bytes(numcodecs.Zstd().decode(want[key])), key
    assert moved['array'] >= sum(s != [] for s in shape.values()) > 0 and moved['number'] > 0, moved


@pytest.mark.feature('F3')
@pytest.mark.feature('E2')
def test_a_root_of_steps(run, tmp_path, cases):
    """Every step with all its items: trees, JSON, metrics, custom metadata."""
    source = SAMPLE
    run('convert', '-o', 'zarr=3', source, tmp_path / 'out')
    for step in ('1000', '1500'):
        assert run('diff', source / step, tmp_path / 'out' / step).returncode == 0
        for file in ('config/metadata', 'metrics/metrics'):
            assert (tmp_path / 'out' / step / file).read_bytes() == (source / step / file).read_bytes()
        ours, theirs = (json.loads((d / step / '_CHECKPOINT_METADATA').read_text())
                        for d in (tmp_path / 'out', source))
        assert ours['custom_metadata'] == theirs['custom_metadata']
        assert ours['item_handlers'] == theirs['item_handlers']
    m = ocp0.CheckpointManager(tmp_path / 'out')
    assert m.all_steps() == [1000, 1500] and m.latest_step() == 1500


# ---- what the other libraries make of an export ----

def arrays_of(tree, separator):
    out = {}
    for path, v in tree.leaves.items():
        v = v.array() if isinstance(v, expect.Scalar) else v.data if isinstance(v, expect.Key) else v
        if isinstance(v, np.ndarray):
            out[separator.join(path)] = v
    return out


def same(got, want):
    assert set(got) == set(want)
    for key, value in want.items():
        assert expect.same_bits(value, np.asarray(got[key])), key


@pytest.mark.feature('F5')
def test_safetensors_reads_it(run, cases, tmp_path):
    case = cases(MATRIX)
    run('export', item_of(case), tmp_path / 'm.safetensors')
    same(safetensors.numpy.load_file(tmp_path / 'm.safetensors'), arrays_of(case.tree(), '.'))


@pytest.mark.feature('F5')
def test_shards_and_their_index(run, cases, tmp_path):
    """Names and index as Hugging Face's libraries have them; no shard above the limit but of one tensor."""
    case = cases(MATRIX)
    run('export', '--format', 'safetensors', '--max-shard-size', '2K', item_of(case), tmp_path / 'm')
    index = json.loads((tmp_path / 'm/model.safetensors.index.json').read_text())
    files = sorted(set(index['weight_map'].values()))
    want = arrays_of(case.tree(), '.')
    assert index['metadata']['total_size'] == sum(v.nbytes for v in want.values())
    assert len(files) > 1
    assert files == [f'model-{i + 1:05}-of-{len(files):05}.safetensors' for i in range(len(files))]
    got = {}
    for f in files:
        part = safetensors.numpy.load_file(tmp_path / 'm' / f)
        assert all(index['weight_map'][k] == f for k in part)
        assert len(part) == 1 or sum(v.nbytes for v in part.values()) <= 2048
        got |= part
    same(got, want)


def test_numpy_reads_the_npz(run, cases, tmp_path):
    case = cases(MATRIX)
    run('export', item_of(case), tmp_path / 'm.npz')
    with np.load(tmp_path / 'm.npz') as z:
        got = {k: z[k] for k in z.files}
    texts = {'/'.join(p): v for p, v in case.tree().leaves.items() if isinstance(v, str)}
    assert {k: str(got.pop(k)) for k in texts} == texts
    want = arrays_of(case.tree(), '/')
    same({k: v.view(want[k].dtype) if v.dtype.kind == 'V' else v for k, v in got.items()}, want)


@pytest.mark.parametrize('version', [2, 3])
def test_zarr_reads_the_group(run, cases, tmp_path, version):
    case = cases(MATRIX)
    run('export', '-o', f'zarr={version}', item_of(case), tmp_path / 'm.zarr')
    group = zarr.open_group(tmp_path / 'm.zarr', mode='r')
    for key, want in arrays_of(case.tree(), '/').items():
        if want.dtype.kind == 'V' or want.dtype.name in ('bfloat16',) or 'float8' in want.dtype.name:
            spec = {'driver': 'zarr3' if version == 3 else 'zarr',
                    'kvstore': f'file://{tmp_path}/m.zarr/{key}/'}
            got = ts.open(spec, open=True).result().read().result()
        else:
            got = group[key][...]
        assert expect.same_bits(want, np.asarray(got)), key


def test_cast_on_the_way(run, tmp_path):
    tree = {'w': np.linspace(-3, 3, 700, dtype=np.float32).reshape(7, 100), 'n': np.arange(5)}
    ocp0.PyTreeCheckpointer().save(tmp_path / 'ck', tree)
    run('export', '--cast', 'bfloat16', tmp_path / 'ck', tmp_path / 'm.safetensors')
    got = safetensors.numpy.load_file(tmp_path / 'm.safetensors')
    assert expect.same_bits(tree['w'].astype(ml_dtypes.bfloat16), got['w'])
    assert expect.same_bits(tree['n'], got['n'])
    run('convert', '-o', 'dtype=float16', tmp_path / 'ck', tmp_path / 'half')
    assert expect.same_bits(tree['w'].astype(np.float16), np.asarray(restored(tmp_path / 'half')['w']))


# ---- files of other programs ----

def foreign():
    rng = np.random.default_rng(3)
    return {'params': {'w': rng.standard_normal((30, 20)).astype(np.float32), 'b': np.arange(7, dtype=np.int16)},
            'x': rng.standard_normal((2, 3, 4))}


def flat(tree, separator, prefix=''):
    for k, v in tree.items():
        if isinstance(v, dict):
            yield from flat(v, separator, prefix + k + separator)
        else:
            yield prefix + k, v


def write_zarr(path, version):
    g = zarr.open_group(path, mode='w', zarr_format=version)
    for k, v in flat(foreign(), '/'):
        g.create_array(k, shape=v.shape, dtype=v.dtype, chunks=tuple(max(1, n // 2) for n in v.shape))[...] = v


MAKERS = {
    'a.safetensors': lambda p: safetensors.numpy.save_file(dict(flat(foreign(), '.')), p),
    'a.npz': lambda p: np.savez(p, **dict(flat(foreign(), '/'))),
    'packed.npz': lambda p: np.savez_compressed(p, **dict(flat(foreign(), '/'))),
    'a2.zarr': lambda p: write_zarr(p, 2),
    'a3.zarr': lambda p: write_zarr(p, 3),
}


@pytest.mark.parametrize('name', MAKERS)
@pytest.mark.feature('F5')
def test_files_of_other_programs(run, tmp_path, name):
    """save makes a step of them that CheckpointManager restores as the bare tree."""
    MAKERS[name](tmp_path / name)
    run('save', tmp_path / name, tmp_path / 'root/3')
    tree = expect.flatten(foreign())
    assert not restoring.faults(tree, ocp0.CheckpointManager(tmp_path / 'root').restore(3))
    assert not restoring.faults(tree, ocp1.load(tmp_path / 'root/3'))


@pytest.mark.parametrize('version', [2, 3])
def test_a_zarr_group_of_another_program_is_converted_whole(run, tmp_path, version):
    """Empty groups are empty dicts, for Orbax too; files beside its arrays come along, and diff sees all of it."""
    top = zarr.open_group(tmp_path / 'g.zarr', mode='w', zarr_format=version)
    for name in ('empty', 'a/none', 'deep/deeper/no'):
        top.create_group(name)
    top.create_array('a/w', data=np.arange(3))
    (tmp_path / 'g.zarr/config.json').write_text('{"layers": 2}')
    safetensors.numpy.save_file({'x': np.arange(2)}, tmp_path / 'g.zarr/model.safetensors')
    want = {'a': {'none': {}, 'w': np.arange(3)}, 'deep': {'deeper': {'no': {}}}, 'empty': {}}
    for command, out, options in (('convert', 'plain', []), ('convert', 'other', ['-o', 'ocdbt=off,zarr=3']), ('save', '7', [])):
        run(command, *options, tmp_path / 'g.zarr', tmp_path / 'root' / out if command == 'save' else tmp_path / out)
        item = tmp_path / 'root/7/default' if command == 'save' else tmp_path / out
        got = restored(item)
        assert jax.tree.structure(got) == jax.tree.structure(want) and np.array_equal(got['a']['w'], want['a']['w'])
        assert (item / 'config.json').read_text() == '{"layers": 2}' and (item / 'model.safetensors').exists()
        assert run('diff', tmp_path / 'g.zarr', item).returncode == 0
    (tmp_path / 'g.zarr/a/notes.txt').write_text('x')
    for command, *out in (('tree',), ('convert', tmp_path / 'said')):
        assert "/a/notes.txt' is not shown, and no copy has it: only the top" in run(command, tmp_path / 'g.zarr', *out).stderr


def test_a_directory_of_files(run, tmp_path):
    d = tmp_path / 'in'
    (d / 'params').mkdir(parents=True)
    np.save(d / 'params/w.npy', foreign()['params']['w'])
    (d / 'step.json').write_text('12')
    (d / 'name.txt').write_text('run 7')
    (d / 'ema.null').touch()
    run('save', d, tmp_path / 'root/1')
    got = ocp0.CheckpointManager(tmp_path / 'root').restore(1)
    assert got['step'] == 12 and got['name'] == 'run 7' and got['ema'] is None
    assert expect.same_bits(foreign()['params']['w'], got['params']['w'])


def test_a_copy_out_of_a_mount_is_saved_again(run, mount, tmp_path):
    """cp -r of a whole step, and save: all items, the same values."""
    m = mount(SAMPLE)
    shutil.copytree(m / '1000', tmp_path / 'copy', copy_function=shutil.copyfile)
    run('save', tmp_path / 'copy', tmp_path / 'root/1000')
    got, want = (restored(d / '1000/state') for d in (tmp_path / 'root', SAMPLE))
    assert expect.same_bits(np.asarray(want['params']['embed']['table']), np.asarray(got['params']['embed']['table']))
    assert got['step'] == want['step'] and got['run_name'] == want['run_name']


def test_only_some_leaves(run, cases, tmp_path):
    case = cases(MATRIX)
    run('convert', '--only', 'params/**', item_of(case), tmp_path / 'out')
    assert set(restored(tmp_path / 'out')) == {'params'}
    run('export', '--only', 'params/dense/kernel', item_of(case), tmp_path / 'm.npz')
    assert list(np.load(tmp_path / 'm.npz')) == ['params/dense/kernel']
    r = run('export', '--only', 'nosuch', item_of(case), tmp_path / 'no.npz', ok=False)
    assert r.returncode == 1 and 'nosuch' in r.stderr and not (tmp_path / 'no.npz').exists()


RULES = {'rules': [{'key': r'(.*)dense/weight', 'original_key': r'\1dense/kernel', 'value_fn': 'transpose(1, 0)'}]}


@pytest.mark.parametrize('form, option', pairs(
    ['safetensors', 'shards', 'npz', 'npy', 'zarr2', 'zarr3', 'other.safetensors', 'other.npz', 'other.zarr', 'step.safetensors', 'step.npy', 'array.npy'],
    ['transforms', 'restore_dtype']))
def test_options_of_reading_apply_to_every_input(run, tmp_path, form, option):
    """convert and save of any format give what they give for a checkpoint with the same leaves."""
    rng = np.random.default_rng(1)
    tree = {'dense': {'kernel': rng.random((4, 6), np.float32), 'bias': rng.random(6, np.float32)}, 'layers': [np.ones(2), {}]}
    source, out = tmp_path / 'plain', tmp_path / f'in.{form.split(".")[-1]}'
    if form.startswith('other'):
        flat = {f'dense/{k}': v for k, v in tree['dense'].items()}
        if form == 'other.npz':
            np.savez(out, **flat)
        elif form == 'other.zarr':
            group = zarr.open_group(out, mode='w')
            for name, value in flat.items():
                group.create_array(name, data=value)
        else:
            safetensors.numpy.save_file({k.replace('/', '.'): v for k, v in flat.items()}, out, {'format': 'pt', 'who': 'me'})
    elif form == 'array.npy':
        np.save(out, tree['dense']['kernel'])
    else:
        with ocp0.CheckpointManager(tmp_path / 'root') as manager:
            manager.save(1, args=ocp0.args.Composite(state=ocp0.args.PyTreeSave(tree, custom_metadata={'c': 1})))
        step = form.startswith('step')
        out = tmp_path / ('in.safetensors' if form == 'step.safetensors' else 'in' if step else FORMATS[form][0])
        run('export', *([] if step else FORMATS[form][1]), tmp_path / 'root/1' / ('' if step else 'state'), out)
    rules = tmp_path / 'rules.json'
    rules.write_text(json.dumps(RULES if form != 'array.npy' else {'rules': [{'key': 'w', 'original_key': ''}]}))
    (tmp_path / 'spill').mkdir()
    given = ['-o', (f'transforms={rules}' if option == 'transforms' else 'restore_dtype=bfloat16') + f',spill={tmp_path}/spill']
    run('convert', out, source)
    run('convert', *given, source, tmp_path / 'want')
    run('convert', *given, out, tmp_path / 'got')
    assert run('diff', tmp_path / 'want', tmp_path / 'got').returncode == 0
    info = [json.loads(run('info', '--json', tmp_path / d).stdout).get('custom_metadata') for d in ('want', 'got')]
    assert info[0] == info[1]
    run('save', *given, out, tmp_path / 'saved/7')
    got = restored(next(p.parent for p in (tmp_path / 'saved/7').rglob('_METADATA')))
    if form == 'array.npy':
        assert expect.same_bits(got['w'], tree['dense']['kernel']) if option == 'transforms' else got.dtype == ml_dtypes.bfloat16
    elif option == 'transforms':
        assert expect.same_bits(got['dense']['weight'], np.ascontiguousarray(tree['dense']['kernel'].T))
        assert sorted(got['dense']) == ['bias', 'weight'] and isinstance(got.get('layers', []), list)
    else:
        assert expect.same_bits(np.asarray(got['dense']['kernel']), tree['dense']['kernel'].astype(ml_dtypes.bfloat16))
    assert not os.listdir(tmp_path / 'spill')


@pytest.mark.parametrize('form', ['npz', 'npy', 'zarr2', 'zarr3', 'safetensors'])
def test_restore_dtype_applies_to_an_export(run, mount, cases, tmp_path, form):
    """An export, and a converted checkpoint, hold exactly the files that a mount with the option shows."""
    case = cases(MATRIX)
    out = tmp_path / FORMATS[form][0]
    run('export', *FORMATS[form][1], '-o', 'restore_dtype=float64', item_of(case), out)
    run('convert', out, tmp_path / 'back')
    run('convert', '-o', 'restore_dtype=float64', item_of(case), tmp_path / 'direct')
    m = mount(item_of(case), 'restore_dtype=float64')
    run('convert', '-o', 'restore_dtype=float64', m.path, tmp_path / 'mounted')
    assert run('diff', tmp_path / 'direct', tmp_path / 'back').returncode == 0
    assert run('diff', tmp_path / 'mounted', tmp_path / 'back').returncode == 0
    shown = {str(p.relative_to(m.path)): p.read_bytes() for p in sorted(m.path.rglob('*.npy'))}
    again = mount(tmp_path / 'back')
    assert shown == {str(p.relative_to(again.path)): p.read_bytes() for p in sorted(again.path.rglob('*.npy'))}


@pytest.fixture(scope='session')
def step_of_items(tmp_path_factory):
    """A step that CheckpointManager wrote: trees with lists, a JSON item, a random key, metadata of a step and of a tree."""
    root = tmp_path_factory.mktemp('items')
    ones = np.ones((2, 3), np.float32)
    tree = {'params': {'w': ones, 'layers': [{'k': ones * i} for i in range(3)], 'pair': (ones, ones * 9)}, 'count': 7}
    with ocp0.CheckpointManager(root) as manager:
        manager.save(1, custom_metadata={'run': 5}, args=ocp0.args.Composite(
            state=ocp0.args.PyTreeSave(tree, custom_metadata={'scan': True}), opt=ocp0.args.PyTreeSave({'mu': [ones]}),
            metrics=ocp0.args.JsonSave({'loss': 1.5}), rng=ocp0.args.JaxRandomKeySave(jax.random.key(3))))
    return root / '1'


def items_of(step):
    return sorted(p.name for p in step.iterdir() if p.is_dir())


@pytest.mark.parametrize('how', ['step', 'cp -r', 'cp -a', 'npy', 'npz', 'safetensors', 'zarr2'])
def test_only_chooses_leaves_of_trees(run, mount, tmp_path, step_of_items, how):
    """Items that are not trees come along, and containers that were chosen as a whole keep their kinds, from any input."""
    source, files = step_of_items, how in ('step', 'cp -r', 'cp -a')
    if how.startswith('cp'):
        subprocess.run([*how.split(), str(mount(source.parent) / '1'), str(tmp_path / 'copy')], check=True)
        source = tmp_path / 'copy'
    elif not files:
        source = tmp_path / FORMATS[how][0]
        run('export', *FORMATS[how][1], step_of_items, source)
    (tmp_path / 'ck').mkdir()
    run('convert', '--only', 'params/', source, tmp_path / 'ck/1')
    got = ocp0.PyTreeCheckpointer().restore(tmp_path / 'ck/1/state')
    want = ocp0.PyTreeCheckpointer().restore(step_of_items / 'state')['params']
    assert list(got) == ['params'] and not restoring.faults(expect.flatten(want), got['params'])
    assert json.loads((tmp_path / 'ck/1/state/_METADATA').read_text())['custom_metadata'] == {'scan': True}
    assert not (tmp_path / 'ck/1/opt').exists()
    assert (tmp_path / 'ck/1/metrics').exists() == files
    if files:
        with ocp0.CheckpointManager(tmp_path / 'ck') as manager:
            got = manager.restore(1, args=ocp0.args.Composite(metrics=ocp0.args.JsonRestore(),
                                                              rng=ocp0.args.JaxRandomKeyRestore()))
            assert got['metrics'] == {'loss': 1.5} and manager.metadata(1).custom_metadata == {'run': 5}
        assert (jax.random.key_data(got['rng']) == jax.random.key_data(jax.random.key(3))).all()
    run('save', '--only', 'params/layers/1/*', '--no-items', source, tmp_path / 'root/1')
    assert items_of(tmp_path / 'root/1') == ['state']
    got = ocp0.PyTreeCheckpointer().restore(tmp_path / 'root/1/state')['params']
    assert list(got) == ['layers'] and list(got['layers']) == ['1'], 'a list without its first element is a dict'


def test_only_in_place_keeps_the_items(run, tmp_path, step_of_items):
    shutil.copytree(step_of_items, tmp_path / '1')
    run('convert', '--force', '--only', 'state/params/', tmp_path / '1', tmp_path / '1')
    assert (tmp_path / '1/metrics/metrics').read_bytes() == (step_of_items / 'metrics/metrics').read_bytes()
    assert items_of(tmp_path / '1') == ['metrics', 'rng', 'state']
    run('convert', '--force', '--no-items', tmp_path / '1', tmp_path / '1')
    assert items_of(tmp_path / '1') == ['state']


# ---- diff ----

Pair = collections.namedtuple('Pair', 'x y')
Nothing = collections.namedtuple('Nothing', '')
W = np.ones(2, np.float32)
CONTAINERS = {'list': [W, W], 'tuple': (W, W), 'dict': {'0': W, '1': W}, 'named': Pair(W, W), 'names': {'x': W, 'y': W},
              'no list': [], 'no tuple': (), 'no dict': {}, 'no named': Nothing(), 'none': None}
# Alike in a tree without rich types, which has no others than these.
ALIKE = [{'list', 'tuple'}, {'named', 'names'}]


def test_diff_tells_containers_apart(run, tmp_path):
    """Each pair of containers, with rich types on no side, one side, both sides, and through safetensors."""
    (files := tmp_path / 'files').mkdir()
    for rich in (False, True):
        options = pytree_metadata_options.PyTreeMetadataOptions(support_rich_types=rich)
        for name, value in CONTAINERS.items():
            handler = ocp0.PyTreeCheckpointHandler(pytree_metadata_options=options)
            with ocp0.Checkpointer(handler) as checkpointer:
                checkpointer.save(tmp_path / f'{name} {rich}', args=ocp0.args.PyTreeSave({'t': value, 'w': W}))
            run('export', tmp_path / f'{name} {rich}', files / f'{name}.safetensors', '--force')
    for a, b in itertools.product(CONTAINERS, repeat=2) if LONG else itertools.combinations_with_replacement(CONTAINERS, 2):
        for ra, rb in (('False', 'False'), ('False', 'True'), ('True', 'True'), ('False', '')):
            # Of a tree of dicts, a safetensors file has only names.
            if not rb and b in ('dict', 'names'):
                continue
            # An empty named tuple is stored as None.
            alike = a == b or {a, b} == {'no named', 'none'} or ({a, b} in ALIKE and ra == 'False')
            r = run('diff', tmp_path / f'{a} {ra}', tmp_path / f'{b} {rb}' if rb else files / f'{b}.safetensors', ok=False)
            assert r.returncode == (0 if alike else 1) and not r.stderr, (a, ra, b, rb, r.stdout)


# ---- merge ----

@pytest.mark.feature('A16')
def test_merge_makes_it_whole(run, cases, copy):
    """Orbax cannot read the item before the merge and restores it afterwards; TensorStore opens every array."""
    case = cases('unmerged')
    item = copy(case)
    with pytest.raises(Exception):
        restored(item)
    run('merge', item)
    assert (item / 'manifest.ocdbt').stat().st_mode & 0o444, 'nobody but root may read it'
    assert not restoring.faults(case.tree(), restored(item))
    assert not list(selftest.by_tensorstore(item, case.tree()))
    before = sorted(p.name for p in item.rglob('*'))
    run('merge', item)          # nothing to do
    assert sorted(p.name for p in item.rglob('*')) == before


@pytest.mark.feature('A16')
def test_merge_that_fails_leaves_the_item_as_it_was(run, cases, copy):
    """Whichever change fails, the sync of the manifest's name too: the next merge has everything."""
    item = copy(cases('unmerged'))
    before = sorted(p.name for p in item.rglob('*') if p.is_file())
    n = 1
    while (r := run('merge', item, '-o', f'io=fault(change:eio:{n}):sync', ok=False)).returncode:
        assert 'Input/output error' in r.stderr and sorted(p.name for p in item.rglob('*') if p.is_file()) == before, (n, r.stderr)
        n += 1
    assert n > 5 and not restoring.faults(cases('unmerged').tree(), restored(item))


@pytest.mark.feature('A16')
def test_merge_of_two_processes_equals_tensorstores(run, cases, copy):
    case = cases('unmerged-two-processes')
    item = copy(case)
    run('merge', item)

    def values(path):
        kv = ts.KvStore.open({'driver': 'ocdbt', 'base': f'file://{path}/'}).result()
        return {k: bytes(kv.read(k).result().value) for k in kv.list().result()}
    assert values(item) == values(cases('merged-two-processes').path)


@pytest.mark.feature('A16')
def test_merge_finds_a_missing_part(run, cases, copy):
    case = cases('unmerged-part-missing')
    item = copy(case)
    r = run('merge', item, ok=False)
    assert r.returncode == 1 and "'c'" in r.stderr and not (item / 'manifest.ocdbt').exists()
    r = run('merge', '--force', '--json', item, ok=False)
    assert r.returncode == 1 and json.loads(r.stdout)['missing'] == 1
    assert run('cat', item / 'a.npy', text=False).stdout[:6] == b'\x93NUMPY'


@pytest.mark.parametrize('lost, said', [(0, 'not stored: it is absent from ocdbt.process_1,'), (1, '(absent from ocdbt.process_0) is not stored')])
def test_a_part_that_is_lost(run, cases, copy, mount, lost, said):
    """Each message says which parts there are."""
    item, found = copy(cases('unmerged-two-processes')), f'ocdbt.process_{1 - lost}'
    whole = run('tree', item).stderr
    assert whole.endswith('the union of its parts, ocdbt.process_0, ocdbt.process_1\n'), whole
    shutil.rmtree(item / f'ocdbt.process_{lost}')
    assert said in run('cat', item / 'big.npy', ok=False).stderr
    assert f'its parts were never merged ({found}): ' in run('verify', item, ok=False).stdout
    assert f'3 leaves are not whole in {found}; nothing was merged' in run('merge', item, ok=False).stderr
    m = mount(item, allow_errors=True)
    with pytest.raises(OSError):
        (m / 'big.npy').read_bytes()
    assert any(f'absent from {found}' in line for line in m.log_lines())
