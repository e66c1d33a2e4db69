# SPDX-License-Identifier: Apache-2.0
"""Options of a mount for what is saved, committed and deleted: what each does, with it and without it."""

import errno
import json
import os
import pathlib
import re
import signal
import stat
import subprocess

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from lib import mounts
from lib.saving import ARRAY, save, saved

DOCS = pathlib.Path(__file__).resolve().parents[2] / 'docs'


def array_json(item, leaf='w'):
    path = item / leaf
    return json.loads((path / '.zarray').read_text() if (path / '.zarray').exists() else (path / 'zarr.json').read_text())


def metadata(item):
    return json.loads((item / '_METADATA').read_text())


def entry(item, *keys):
    return metadata(item)['tree_metadata'][str(tuple(keys))]['value_metadata']


def restored(path):
    return ocp.PyTreeCheckpointer().restore(path)


# ---- saving ----

@pytest.mark.option('dtype', 'rule')
@pytest.mark.feature('A2', 'D6', 'B9')
def test_dtype_for_the_mount_by_rule_and_by_xattr(mount, root):
    numbers = np.arange(300, dtype=np.int32)
    files = {'w.npy': ARRAY, 'deep/v.npy': ARRAY, 'x.npy': ARRAY, 'n.npy': numbers, 'by_rule.npy': numbers, 'by_xattr.npy': numbers,
             'mask.npy': numbers > 3, 'c.npy': ARRAY.astype(np.complex64), 'step.json': b'70001', 'rate.json': b'0.1',
             'asked.json': b'70001'}
    plain = restored(saved(mount, root, files=files))
    assert plain['w'].dtype == plain['x'].dtype == np.float32 and np.array_equal(plain['w'], ARRAY)
    cast = restored(saved(mount, root, 'dtype=bfloat16', 'rule=default/deep/**:dtype=float16',
                          'rule=default/by_rule:dtype=bfloat16', step=2, files=files,
                          xattrs=[('x.npy', 'user.pytree.save.dtype', 'float64'),
                                  ('by_xattr.npy', 'user.pytree.save.dtype', 'bfloat16'),
                                  ('asked.json', 'user.pytree.save.dtype', 'bfloat16')]))
    assert cast['w'].dtype == ml_dtypes.bfloat16 and np.array_equal(cast['w'], ARRAY.astype(ml_dtypes.bfloat16))
    assert cast['deep']['v'].dtype == np.float16 and np.array_equal(cast['deep']['v'], ARRAY.astype(np.float16))
    assert cast['x'].dtype == np.float64
    # Of the whole mount for floating leaves; what names a leaf casts anything, as Orbax does.
    assert cast['n'].dtype == np.int32 and np.array_equal(cast['n'], numbers)
    assert cast['mask'].dtype == bool and cast['c'].dtype == np.complex64
    assert cast['step'] == 70001 and cast['asked'] == 70144
    assert np.asarray(cast['rate']).astype(np.float32) == np.float32(ml_dtypes.bfloat16(0.1))
    for name in ('by_rule', 'by_xattr'):
        assert cast[name].dtype == ml_dtypes.bfloat16 and np.array_equal(cast[name], numbers.astype(ml_dtypes.bfloat16))


def kept(item):
    """The values of FLOATS_AND_NUMBERS after dtype=bfloat16 of a whole mount or command."""
    got = restored(item)
    assert got['w'].dtype == ml_dtypes.bfloat16 and np.array_equal(got['w'], ARRAY.astype(ml_dtypes.bfloat16))
    assert got['n'].dtype == np.int32 and np.array_equal(got['n'], NUMBERS) and got['mask'].dtype == bool
    return got


NUMBERS = np.arange(70_001, 70_101, dtype=np.int32)
FLOATS_AND_NUMBERS = {'w.npy': ARRAY, 'n.npy': NUMBERS, 'mask.npy': NUMBERS > 70_050, 'step.json': b'70001'}


@pytest.mark.option('dtype')
def test_dtype_is_for_floating_leaves_whatever_brings_them(mount, run, root, tmp_path):
    """save and convert of items, steps and roots; copies, safetensors files and parts of arrays in drafts."""
    item = saved(mount, root, files=FLOATS_AND_NUMBERS)
    for source, out, below in ((item, 'item', ''), (root / '1', 'step', 'default'), (root, 'other', '1/default')):
        run('convert', '-o', 'dtype=bfloat16', source, tmp_path / out)
        assert kept(tmp_path / out / below)['step'] == 70001
    run('export', '--format', 'npy', item, tmp_path / 'files')
    run('save', '-o', 'dtype=bfloat16', tmp_path / 'files', tmp_path / 'saved/1')
    assert kept(tmp_path / 'saved/1/default')['step'] == 70001
    m = mount(root, 'dtype=bfloat16')
    for step in '2345':
        (m / f'{step}.tmp').mkdir()
    subprocess.run(['cp', '-r', m / '1/default', m / '2.tmp/'], check=True)
    subprocess.run(['cp', '-a', m / '1/default', m / '3.tmp/'], check=True)
    (m / '4.tmp/default.safetensors').write_bytes((m / '1/default.safetensors').read_bytes())
    (m / '5.tmp/default').mkdir()
    for name, array in (('w', ARRAY), ('n', NUMBERS), ('mask', FLOATS_AND_NUMBERS['mask.npy'])):
        rest, cut = ''.join(f',0:{n}' for n in array.shape[1:]), len(array) // 3
        for a, b in ((0, cut), (cut, len(array))):
            np.save(m / f'5.tmp/default/{name}[{a}:{b}{rest}]@{"x".join(map(str, array.shape))}.npy', array[a:b])
    for step in '2345':
        os.rename(m / f'{step}.tmp', m / step)
        assert kept(root / step / 'default').get('step', 70001) == 70001


def test_an_integer_dtype_of_the_mount_is_for_all(mount, root):
    """Nobody asks for that without meaning it."""
    got = restored(saved(mount, root, 'dtype=int16', files={'w.npy': ARRAY, 'n.npy': np.arange(9), 's.json': b'7'}))
    assert got['w'].dtype == got['n'].dtype == np.int16
    half = restored(saved(mount, root, 'dtype=float16', 'rule=default/n:dtype=', step=2,
                          files={'w.npy': ARRAY, 'n.npy': ARRAY}))
    assert half['w'].dtype == np.float16 and half['n'].dtype == np.float32


@pytest.mark.option('chunk_byte_size', 'shard_axes', 'ocdbt')
@pytest.mark.feature('A3', 'A4', 'D6')
def test_chunks(mount, root):
    assert array_json(saved(mount, root, 'ocdbt=off'))['chunks'] == [64, 48]
    greedy = array_json(saved(mount, root, 'ocdbt=off', 'chunk_byte_size=4096', step=2))['chunks']
    assert greedy[0] < 64 and greedy[0] * greedy[1] * 4 <= 4096
    axes = array_json(saved(mount, root, 'ocdbt=off', 'chunk_byte_size=4096', 'shard_axes=1', step=3))['chunks']
    assert axes[0] == 64 and axes[1] < 48 and axes[1] < greedy[1]
    assert not (root / '3/default/manifest.ocdbt').exists()
    assert (saved(mount, root, step=4) / 'manifest.ocdbt').exists()


OF_ITEMS = ['ocdbt=off', 'zarr=3', 'target_data_file_size=1M', 'rich_types=on', 'sharding_file=off', 'array_metadata=off',
            'store_fill_value=off']


@pytest.mark.parametrize('option', OF_ITEMS)
def test_options_of_items_are_not_for_leaves(mount, root, option):
    """Options of whole items: a rule for leaves is refused, or, when its pattern could mean an item, logged."""
    name = option.split('=')[0]
    assert re.search(rf'`{name}`.*applies to a whole item', (DOCS / 'options.md').read_text())
    for glob in ('default/w', '**/deep/*', 'state/**/w'):
        with pytest.raises(mounts.MountError, match=f"{name} applies to a whole item, and '{re.escape(glob)}'"):
            mount(root, f'rule={glob}:{option}')
    for step, glob in enumerate(['**/w', 'w', '**', 'default', 'default/**', '*'], 1):
        m = mount(root, f'rule={glob}:{option}', 'leaf_type=jax.Array')
        save(m, step)
        told = [line for line in m.log_lines() if 'has no effect' in line]
        assert (len(told) == 1 and f"'{glob}:{option}'" in told[0] and 'default/w' in told[0]) if 'w' in glob else not told
        m.unmount()
    if name == 'zarr':
        assert [metadata(root / str(s) / 'default')['use_zarr3'] for s in range(1, 7)] == [False] * 2 + [True] * 4


@pytest.mark.option('compression', 'zarr')
@pytest.mark.feature('B4', 'D5')
def test_compression_and_format(mount, root):
    assert array_json(saved(mount, root, 'ocdbt=off'))['compressor']['id'] == 'blosc'     # auto
    assert array_json(saved(mount, root, 'ocdbt=off', 'compression=none', step=2))['compressor'] is None
    assert array_json(saved(mount, root, 'ocdbt=off', 'compression=zstd:7', step=3))['compressor']['level'] == 7
    assert array_json(saved(mount, root, 'ocdbt=off', 'zarr=3', step=4))['zarr_format'] == 3
    for step in (1, 2, 3, 4):
        assert np.array_equal(restored(root / str(step) / 'default')['w'], ARRAY)


@pytest.mark.option('leaf_type', 'sharding_file', 'array_metadata')
@pytest.mark.feature('A11', 'D5')
def test_jax_arrays_and_their_files(mount, root):
    plain = saved(mount, root)
    assert entry(plain, 'w')['value_type'] == 'np.ndarray' and not (plain / '_sharding').exists()
    jax = saved(mount, root, 'leaf_type=jax.Array', step=2)
    assert entry(jax, 'w')['value_type'] == 'jax.Array'
    assert (jax / '_sharding').exists() and (jax / 'array_metadatas').exists()
    bare = saved(mount, root, 'leaf_type=jax.Array', 'sharding_file=off', 'array_metadata=off', step=3)
    assert not (bare / '_sharding').exists() and not (bare / 'array_metadatas').exists()


@pytest.mark.option('target_data_file_size')
@pytest.mark.feature('B9', 'D5')
def test_data_files_end_at_their_size(mount, root):
    files = {f'w{i}.npy': np.random.default_rng(i).integers(0, 255, 500000, dtype=np.uint8) for i in range(12)}
    one = saved(mount, root, files=files)
    many = saved(mount, root, 'target_data_file_size=200K', step=2, files=files)
    count = lambda item: sum(1 for p in item.rglob('d/*') if p.is_file())  # noqa: E731
    assert count(many) > count(one)


@pytest.mark.option('rich_types')
@pytest.mark.feature('B6', 'D4')
def test_rich_types(mount, root):
    files = {'t/0.json': b'1', 't/1.json': b'2'}
    tuples = [('t', 'user.pytree.kind', '"tuple"')]
    assert metadata(saved(mount, root, files=files)).get('value_metadata_tree') is None
    assert metadata(saved(mount, root, 'rich_types=on', step=2, files=files)).get('value_metadata_tree') is not None
    assert metadata(saved(mount, root, 'rich_types=off', step=3, files=files, xattrs=tuples)).get('value_metadata_tree') is None
    for step, options in ((4, ['rich_types=on']), (5, [])):     # a tuple is recorded as one without being asked
        rich = saved(mount, root, *options, step=step, files=files, xattrs=tuples)
        assert metadata(rich)['value_metadata_tree'] is not None
        assert restored(rich)['t'] in ((1, 2), [1, 2])


@pytest.mark.option('store_fill_value')
@pytest.mark.feature('D5')
def test_chunks_of_zeros(mount, root):
    files = {'w.npy': np.zeros((10, 10), np.float32)}
    assert (saved(mount, root, 'ocdbt=off', files=files) / 'w/0.0').exists()
    assert not (saved(mount, root, 'ocdbt=off', 'store_fill_value=off', step=2, files=files) / 'w/0.0').exists()


LEGACY = {'w.npy': ARRAY, 'n/b.npy': np.arange(5, dtype=np.int64), 's.json': b'3', 'f.json': b'2.5', 't.txt': b'text'}


@pytest.mark.option('aggregate')
@pytest.mark.feature('A1', 'B1')
@pytest.mark.parametrize('what', ['all', 'default/n/**', 's'])
@pytest.mark.parametrize('ocdbt', ['on', 'off'])
def test_the_legacy_file(mount, root, what, ocdbt):
    assert not (saved(mount, root, f'ocdbt={ocdbt}', files=LEGACY) / 'checkpoint').exists()
    item = saved(mount, root, f'ocdbt={ocdbt}', f'aggregate={what}', step=2, files=LEGACY)
    assert (item / 'checkpoint').is_file()
    back = ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt == 'on')).restore(item)
    assert np.array_equal(back['w'], ARRAY) and np.array_equal(back['n']['b'], np.arange(5))
    assert (back['s'], back['f'], back['t']) == (3, 2.5, 'text')
    m = mount(root)
    assert np.array_equal(np.load(m / '2/default/w.npy'), ARRAY)
    assert (m / '2/default/s.json').read_text() == '3\n' and (m / '2/default/t.txt').read_text() == 'text'


@pytest.mark.option('aggregate_filename')
def test_the_legacy_file_has_a_name(mount, root):
    item = saved(mount, root, 'aggregate=all', 'aggregate_filename=old', files=LEGACY)
    assert (item / 'old').is_file() and not (item / 'checkpoint').exists()
    assert np.array_equal(np.load(mount(root, 'aggregate_filename=old') / '1/default/w.npy'), ARRAY)
    with pytest.raises(OSError):
        np.load(mount(root, allow_errors=True) / '1/default/w.npy')


# ---- commits ----

@pytest.mark.option('on_commit')
@pytest.mark.feature('D1')
def test_on_commit_runs_and_its_failure_undoes_nothing(mount, root, tmp_path):
    script = tmp_path / 'script'
    script.write_text(f'#!/bin/sh\necho "$1" >>{tmp_path}/told\nexit 3\n')
    script.chmod(0o755)
    saved(mount, root, step=2)
    assert not (tmp_path / 'told').exists()
    m = mount(root, f'on_commit={script}', allow_errors=True)
    save(m)
    assert (m / '1/default/w.npy').exists()
    # The command runs beside the mount, which does not wait for it.
    mounts.wait_for(lambda: (tmp_path / 'told').exists() and (tmp_path / 'told').read_text().endswith('\n'))
    m.unmount()
    assert (tmp_path / 'told').read_text().split() == [str(root / '1')]


@pytest.mark.option('on_commit')
def test_on_commit_can_be_ended_by_signals(mount, root, tmp_path):
    """The mount's threads block signals; a command that inherited this could not be ended."""
    script = tmp_path / 'script'
    script.write_text(f'#!/bin/sh\ngrep -E "^Sig(Blk|Ign)" /proc/self/status >{tmp_path}/told\n')
    script.chmod(0o755)
    m = mount(root, f'on_commit={script}')
    save(m)
    mounts.wait_for(lambda: (tmp_path / 'told').exists() and (tmp_path / 'told').read_text().count('\n') == 2)
    masks = dict(line.split() for line in (tmp_path / 'told').read_text().splitlines())
    assert int(masks['SigBlk:'], 16) == 0 and not int(masks['SigIgn:'], 16) & 1 << signal.SIGPIPE - 1, masks


@pytest.mark.option('mode')
@pytest.mark.feature('D3')
def test_mode_of_new_directories(mount, root):
    usual = stat.S_IMODE(saved(mount, root).stat().st_mode)
    assert stat.S_IMODE(saved(mount, root, 'mode=0700', step=2).stat().st_mode) == 0o700 != usual


@pytest.mark.option('atomicity')
@pytest.mark.feature('D3', 'F2')
def test_atomicity_by_a_marker(mount, root):
    saved(mount, root)
    (root / '1/commit_success.txt').unlink(missing_ok=True)
    assert sorted(os.listdir(mount(root, 'atomicity=rename').path)) == ['1']
    m = mount(root, 'atomicity=commit_file')
    (m / '2.tmp').mkdir()
    assert '2' in os.listdir(root)                     # in place, under its final name, without a marker
    (m / '2.tmp/default').mkdir()
    np.save(m / '2.tmp/default/w.npy', ARRAY)
    os.rename(m / '2.tmp', m / '2')
    assert (root / '2/commit_success.txt').exists()
    assert sorted(os.listdir(m.path)) == ['2']        # no step without its marker


@pytest.mark.option('allow_delete', 'todelete')
@pytest.mark.feature('D10')
def test_deleting_steps(mount, root):
    m = mount(root, allow_errors=True)
    for step in (1, 2):
        save(m, step)
    with pytest.raises(OSError):
        os.rmdir(m / '1')
    m.unmount()
    m = mount(root, 'allow_delete')
    os.rmdir(m / '1')
    assert not (root / '1').exists()
    m.unmount()
    m = mount(root, 'allow_delete', 'todelete=trash')
    os.rmdir(m / '2')
    assert not (root / '2').exists() and (root / 'trash').exists()


@pytest.mark.option('allow_delete')
@pytest.mark.parametrize('option', ['allow_delete', 'allow_delete=off'])
def test_a_part_of_a_step_is_not_removed(mount, root, option):
    """Each attempt fails at once, and the log says what does delete the step; nothing is hidden meanwhile."""
    m = mount(root, option, allow_errors=True)
    (m / '1.tmp/default/layer').mkdir(parents=True)
    for name in ('w', 'layer/b'):
        np.save(m / f'1.tmp/default/{name}.npy', ARRAY)
    (m / '1.tmp/blob').mkdir()
    os.setxattr(m / '1.tmp/blob', 'user.pytree.kind', b'opaque')
    (m / '1.tmp/blob/x').write_text('x')
    os.rename(m / '1.tmp', m / '1')
    names = sorted(m.path.rglob('*'))
    attempts = [(os.unlink if name.is_file() else os.rmdir, name) for name in names if name != m / '1']
    assert len(attempts) > 6
    for remove, name in attempts:
        with pytest.raises(OSError) as e:
            remove(name)
        assert e.value.errno == errno.EROFS, name
        line = m.log_lines()[-1]
        assert f"'{name.relative_to(m.path)}' cannot be removed" in line and "rmdir '1'" in line, line
        assert ('only with -o allow_delete' in line) == (option != 'allow_delete'), line
    for what in ('1/default/layer', '1'):
        r = subprocess.run(['rm', '-r', m / what], capture_output=True, text=True, env=dict(os.environ, LC_ALL='C'))
        assert r.returncode and 'Read-only file system' in r.stderr, (what, r)
    assert sorted(m.path.rglob('*')) == names and np.array_equal(np.load(m / '1/default/layer/b.npy'), ARRAY)
    if option == 'allow_delete':
        (m / '1').rmdir()
        assert os.listdir(m.path) == [] and os.listdir(root) == []


@pytest.mark.option('todelete')
@pytest.mark.parametrize('outside', ['/', '/var/trash', '../trash', 'in/../../trash'])
def test_deleted_steps_stay_within_the_source(program, root, tmp_path, outside):
    """A place that no step can be renamed to is refused by the mount, and not by the first rmdir."""
    with pytest.raises(mounts.MountError, match=f"todelete='{re.escape(outside)}'.*within SOURCE"):
        mounts.Mount(program, root, tmp_path / 'm', tmp_path / 'log', ['shape=root', 'allow_delete', f'todelete={outside}'])


@pytest.mark.option('todelete')
@pytest.mark.parametrize('name', ['1', '1/default', 'ckpt_000007', 'latest', '.7.pytreefs-draft', '7.orbax-checkpoint-tmp-12/x'])
def test_deleted_steps_do_not_go_into_a_step(program, root, tmp_path, name):
    """Nor of a draft, which `gc` would remove together with them."""
    with pytest.raises(mounts.MountError, match=f"todelete='{re.escape(name)}'.*steps or of their drafts"):
        mounts.Mount(program, root, tmp_path / 'm', tmp_path / 'log', ['shape=root', 'allow_delete', f'todelete={name}'])


@pytest.mark.option('todelete')
def test_a_file_where_deleted_steps_should_go(mount, root):
    """The step stays, whole."""
    (root / 'trash').write_text('a file')
    m = mount(root, 'shape=root', 'allow_delete', 'todelete=trash', allow_errors=True)
    save(m)
    with pytest.raises(OSError):
        os.rmdir(m / '1')
    assert (root / 'trash').read_text() == 'a file'
    assert any("step '1'" in line and 'trash' in line and 'Not a directory' in line for line in m.log_lines())
    assert np.array_equal(np.load(m / '1/default/w.npy'), ARRAY)


@pytest.mark.option('json_filename', 'proto_filename')
@pytest.mark.feature('E4', 'E5', 'F3')
def test_names_of_item_files(mount, root):
    def items(m, step):
        d = m / f'{step}.tmp'
        d.mkdir()
        (d / 'config.json').write_text('{"a": 1}')
        (d / 'text.pbtxt').write_text('name: "x"\n')
        (d / 'metrics.json').write_text('{"loss": 0.5}')
        os.rename(d, m / str(step))
    items(mount(root), 1)
    assert json.loads((root / '1/config/metadata').read_text()) == {'a': 1} and (root / '1/text/proto.pbtxt').exists()
    assert json.loads((root / '1/metrics/metrics').read_text()) == {'loss': 0.5}
    assert ocp.Checkpointer(ocp.JsonCheckpointHandler()).restore(root / '1/config') == {'a': 1}
    items(mount(root, 'json_filename=data.json', 'proto_filename=p.txt'), 2)
    assert (root / '2/config/data.json').exists() and (root / '2/text/p.txt').exists()


@pytest.mark.option('verify_commit')
@pytest.mark.feature('B6')
def test_verify_commit_looks_at_what_was_written(mount, root):
    reads = []
    for step, option in ((1, 'verify_commit=on'), (2, 'verify_commit=off')):
        m = mount(root, option)
        save(m, step)
        reads.append(m.stats()['source_opens'])
        m.unmount()
    assert reads[0] > reads[1]


@pytest.mark.option('priority')
@pytest.mark.feature('B8', 'D11')
def test_priority_goes_first(mount, root):
    files = {f'{c}.npy': ARRAY for c in 'abcz'}
    firsts = []
    for step, option in ((1, 'trace=leaf'), (2, 'trace=leaf,priority=default/z')):
        m = mount(root, *option.split(','))
        save(m, step, files=files)
        sealed = [line.split("'")[1] for line in m.log_lines() if 'seal ' in line]
        firsts.append(sealed[0])
        m.unmount()
    assert firsts == ['a.npy', 'z.npy']
    m = mount(root, 'trace=leaf', 'priority=default/z')
    (m / '1/default/a.npy').read_bytes()
    lines = [line for line in m.log_lines() if 'prefetch' in line]
    assert lines and "'z'" in lines[0]


@pytest.mark.option('priority')
@pytest.mark.feature('B8', 'D11')
def test_save_writes_priority_first(run, tmp_path):
    """The trace tells in which order arrays are opened for encoding: one thread takes them in turns."""
    files = tmp_path / 'files'
    (files / 'deep').mkdir(parents=True)
    for name in ('a', 'b', 'deep/y', 'z'):
        np.save(files / f'{name}.npy', ARRAY)

    def order(step, *options):
        r = run('save', '-o', ','.join(('trace=leaf', 'threads=1', *options)), files, tmp_path / f'root/{step}')
        return re.findall(r"write '(\S+?)\.npy'", r.stderr)
    (tmp_path / 'root').mkdir()
    assert order(1) == ['default/a', 'default/b', 'default/deep/y', 'default/z']
    assert order(2, 'priority=default/z') == ['default/z', 'default/a', 'default/b', 'default/deep/y']
    assert order(3, 'priority=default/deep/*') == ['default/deep/y', 'default/a', 'default/b', 'default/z']


def order_in_data(step, arrays):
    """The names of arrays of one chunk each, as their bytes follow each other in the data file of a step."""
    at = {}
    for p in (step / 'default').rglob('d/*'):
        data = p.read_bytes()
        at.update({name: (p, data.find(a.tobytes())) for name, a in arrays.items() if a.tobytes() in data})
    assert len({p for p, _ in at.values()}) == 1 and set(at) == set(arrays), at
    return sorted(at, key=lambda name: at[name][1])


@pytest.mark.option('priority')
@pytest.mark.feature('B8', 'D11')
def test_bytes_of_priority_come_first(mount, run, root, tmp_path):
    """Of save, and of a commit what it encodes anew because other options are in force since it was written."""
    rng = np.random.default_rng(3)
    arrays = {name: rng.integers(0, 1 << 20, (64, 64)).astype(np.int32) for name in ('a', 'b', 'deep/y', 'z')}
    plain = ('compression=none', 'threads=1')
    files = tmp_path / 'files'
    (files / 'deep').mkdir(parents=True)
    for name, a in arrays.items():
        np.save(files / f'{name}.npy', a)
    for step, options, want in ((1, (), ['a', 'b', 'deep/y', 'z']), (2, ('priority=z',), ['z', 'a', 'b', 'deep/y']),
                                (3, ('priority=deep/*',), ['deep/y', 'a', 'b', 'z'])):
        run('save', '-o', ','.join((*plain, *options)), files, root / f'{step}')
        assert order_in_data(root / f'{step}', arrays) == want, options
    m = mount(root, 'threads=1', 'priority=z', 'compression=zstd')
    item = m / '4.tmp/default'
    (item / 'deep').mkdir(parents=True)
    for name, a in arrays.items():
        np.save(item / f'{name}.npy', a)
    # The kernel releases a file some time after close(2); if it was encoded then, it would follow the attribute already.
    mounts.wait_for(lambda: m.stats()['chunks_encoded'] == len(arrays))
    os.setxattr(item, 'user.pytree.save.compression', b'none')
    os.rename(m / '4.tmp', m / '4')
    m.unmount()
    assert order_in_data(root / '4', arrays) == ['z', 'a', 'b', 'deep/y']
