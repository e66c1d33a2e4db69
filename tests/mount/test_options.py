"""Every option of a mount changes something: what it does, with it and without it."""

import errno
import json
import os
import pathlib
import re
import stat
import subprocess

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from lib import compare, mounts

TESTS = pathlib.Path(__file__).resolve().parents[1]
SHOWN = set()


def shows(*names):
    """The options that a test shows."""
    SHOWN.update(names)
    return lambda test: test


@pytest.fixture
def root(tmp_path):
    (tmp_path / 'root').mkdir()
    return tmp_path / 'root'


ARRAY = np.arange(64 * 48, dtype=np.float32).reshape(64, 48) / 7


def save(m, step=1, files=None, xattrs=(), item='default'):
    """A step with these leaves, through the mount."""
    d = m / f'{step}.tmp' / item
    d.mkdir(parents=True)
    for name, value in (files or {'w.npy': ARRAY}).items():
        path = d / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(value, np.ndarray):
            np.save(path, value)
        else:
            path.write_bytes(value)
    for name, attr, value in xattrs:
        os.setxattr(d / name, attr, value.encode())
    os.rename(m / f'{step}.tmp', m / str(step))


def saved(mount, root, *options, step=1, **how):
    """The stored item of a step that was saved with these options."""
    m = mount(root, *options)
    save(m, step, **how)
    m.unmount()
    return root / str(step) / how.get('item', 'default')


def array_json(item, leaf='w'):
    path = item / leaf
    return json.loads((path / '.zarray').read_text() if (path / '.zarray').exists() else (path / 'zarr.json').read_text())


def metadata(item):
    return json.loads((item / '_METADATA').read_text())


def entry(item, *keys):
    return metadata(item)['tree_metadata'][str(tuple(keys))]['value_metadata']


def restored(path):
    return ocp.PyTreeCheckpointer().restore(path)


def config(m):
    return json.loads((m / '.pytreefs/config').read_text())['options']


# ---- saving ----

@shows('dtype', 'rule')
@pytest.mark.feature('A2', 'D6', 'B9')
def test_dtype_for_the_mount_by_rule_and_by_xattr(mount, root):
    files = {'w.npy': ARRAY, 'deep/v.npy': ARRAY, 'x.npy': ARRAY, 'n.npy': np.arange(300, dtype=np.int32)}
    plain = restored(saved(mount, root, files=files))
    assert plain['w'].dtype == plain['x'].dtype == np.float32 and np.array_equal(plain['w'], ARRAY)
    cast = restored(saved(mount, root, 'dtype=bfloat16', 'rule=default/deep/**:dtype=float16', step=2, files=files,
                          xattrs=[('x.npy', 'user.pytree.save.dtype', 'float64')]))
    assert cast['w'].dtype == ml_dtypes.bfloat16 and np.array_equal(cast['w'], ARRAY.astype(ml_dtypes.bfloat16))
    assert cast['deep']['v'].dtype == np.float16 and np.array_equal(cast['deep']['v'], ARRAY.astype(np.float16))
    assert cast['x'].dtype == np.float64
    assert np.array_equal(cast['n'], np.arange(300, dtype=np.int32).astype(ml_dtypes.bfloat16))


@shows('chunk_byte_size', 'shard_axes', 'ocdbt')
@pytest.mark.feature('A3', 'A4', 'D6')
def test_chunks(mount, root):
    assert array_json(saved(mount, root, 'ocdbt=off'))['chunks'] == [64, 48]
    assert array_json(saved(mount, root, 'ocdbt=off', 'chunk_byte_size=4096', step=2))['chunks'] != [64, 48]
    axes = array_json(saved(mount, root, 'ocdbt=off', 'chunk_byte_size=4096', 'shard_axes=1', step=3))['chunks']
    assert axes[0] == 64 and axes[1] < 48
    assert not (root / '3/default/manifest.ocdbt').exists()
    assert (saved(mount, root, step=4) / 'manifest.ocdbt').exists()


@shows('compression', 'zarr')
@pytest.mark.feature('B4', 'D5')
def test_compression_and_format(mount, root):
    assert array_json(saved(mount, root, 'ocdbt=off'))['compressor']['id'] == 'zstd'
    assert array_json(saved(mount, root, 'ocdbt=off', 'compression=none', step=2))['compressor'] is None
    assert array_json(saved(mount, root, 'ocdbt=off', 'compression=zstd:7', step=3))['compressor']['level'] == 7
    assert array_json(saved(mount, root, 'ocdbt=off', 'zarr=3', step=4))['zarr_format'] == 3
    for step in (1, 2, 3, 4):
        assert np.array_equal(restored(root / str(step) / 'default')['w'], ARRAY)


@shows('leaf_type', 'sharding_file', 'array_metadata')
@pytest.mark.feature('A11', 'D5')
def test_jax_arrays_and_their_files(mount, root):
    plain = saved(mount, root)
    assert entry(plain, 'w')['value_type'] == 'np.ndarray' and not (plain / '_sharding').exists()
    jax = saved(mount, root, 'leaf_type=jax.Array', step=2)
    assert entry(jax, 'w')['value_type'] == 'jax.Array'
    assert (jax / '_sharding').exists() and (jax / 'array_metadatas').exists()
    bare = saved(mount, root, 'leaf_type=jax.Array', 'sharding_file=off', 'array_metadata=off', step=3)
    assert not (bare / '_sharding').exists() and not (bare / 'array_metadatas').exists()


@shows('target_data_file_size')
@pytest.mark.feature('B9', 'D5')
def test_data_files_end_at_their_size(mount, root):
    files = {f'w{i}.npy': np.random.default_rng(i).integers(0, 255, 500000, dtype=np.uint8) for i in range(12)}
    one = saved(mount, root, files=files)
    many = saved(mount, root, 'target_data_file_size=200K', step=2, files=files)
    count = lambda item: sum(1 for p in item.rglob('d/*') if p.is_file())  # noqa: E731
    assert count(many) > count(one)


@shows('rich_types')
@pytest.mark.feature('B6', 'D4')
def test_rich_types(mount, root):
    files = {'t/0.json': b'1', 't/1.json': b'2'}
    tuples = [('t', 'user.pytree.kind', '"tuple"')]
    assert metadata(saved(mount, root, files=files, xattrs=tuples)).get('value_metadata_tree') is None
    rich = saved(mount, root, 'rich_types=on', step=2, files=files, xattrs=tuples)
    assert metadata(rich)['value_metadata_tree'] is not None
    assert restored(rich)['t'] in ((1, 2), [1, 2])


@shows('store_fill_value')
@pytest.mark.feature('D5')
def test_chunks_of_zeros(mount, root):
    files = {'w.npy': np.zeros((10, 10), np.float32)}
    assert (saved(mount, root, 'ocdbt=off', files=files) / 'w/0.0').exists()
    assert not (saved(mount, root, 'ocdbt=off', 'store_fill_value=off', step=2, files=files) / 'w/0.0').exists()


LEGACY = {'w.npy': ARRAY, 'n/b.npy': np.arange(5, dtype=np.int64), 's.json': b'3', 'f.json': b'2.5', 't.txt': b'text'}


@shows('aggregate', 'aggregate_filename')
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


def test_the_legacy_file_has_a_name(mount, root):
    item = saved(mount, root, 'aggregate=all', 'aggregate_filename=old', files=LEGACY)
    assert (item / 'old').is_file() and not (item / 'checkpoint').exists()
    assert np.array_equal(np.load(mount(root, 'aggregate_filename=old') / '1/default/w.npy'), ARRAY)
    with pytest.raises(OSError):
        np.load(mount(root, allow_errors=True) / '1/default/w.npy')


# ---- commits ----

@shows('on_commit')
@pytest.mark.feature('D1')
def test_on_commit_runs_and_its_failure_undoes_nothing(mount, root, tmp_path):
    script = tmp_path / 'script'
    script.write_text(f'#!/bin/sh\necho "$1" >>{tmp_path}/told\nexit 3\n')
    script.chmod(0o755)
    m = mount(root, f'on_commit={script}', allow_errors=True)
    save(m)
    assert (m / '1/default/w.npy').exists()
    m.unmount()
    assert (tmp_path / 'told').read_text().split() == [str(root / '1')]


@shows('mode')
@pytest.mark.feature('D3')
def test_mode_of_new_directories(mount, root):
    usual = stat.S_IMODE(saved(mount, root).stat().st_mode)
    assert stat.S_IMODE(saved(mount, root, 'mode=0700', step=2).stat().st_mode) == 0o700 != usual


@shows('atomicity')
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


@shows('allow_delete', 'todelete')
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


@shows('json_filename', 'proto_filename')
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


@shows('verify_commit')
@pytest.mark.feature('B6')
def test_verify_commit_looks_at_what_was_written(mount, root):
    reads = []
    for step, option in ((1, 'verify_commit=on'), (2, 'verify_commit=off')):
        m = mount(root, option)
        save(m, step)
        reads.append(m.stats()['source_opens'])
        m.unmount()
    assert reads[0] > reads[1]


@shows('priority')
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


# ---- what is shown ----

@shows('restore_dtype')
@pytest.mark.feature('A5', 'D7')
def test_restore_dtype(mount, root):
    files = {'w.npy': ARRAY, 'n.npy': np.arange(9, dtype=np.int32), 's.json': b'3', 'h.npy': ARRAY.astype(np.float16)}
    saved(mount, root, files=files)
    assert np.load(mount(root) / '1/default/w.npy').dtype == np.float32
    m = mount(root, 'restore_dtype=float16')
    for name in ('w.npy', 'n.npy', 'h.npy'):
        found, wanted = np.load(m / '1/default' / name), files[name].astype(np.float16)
        assert found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()
        assert (m / '1/default' / name).stat().st_size == 128 + wanted.nbytes
    assert np.load(m / '1/default/w@float64.npy').dtype == np.float64
    assert (m / '1/default/s.json').read_text() == '3\n'
    from safetensors.numpy import load_file
    assert load_file(m / '1/default.safetensors')['w'].dtype == np.float16


@shows('pad_truncate')
@pytest.mark.feature('A6', 'D7')
def test_boxes_beyond_the_bounds(mount, root):
    saved(mount, root)
    strict = mount(root)
    for name in ('w[60:70].npy', 'w[60:70,40:50].npy'):
        assert not (strict / '1/default' / name).exists()
    m = mount(root, 'pad_truncate')
    padded = np.zeros((70, 50), np.float32)
    padded[:64, :48] = ARRAY
    assert np.array_equal(np.load(m / '1/default/w[60:70].npy'), padded[60:70, :48])
    assert np.array_equal(np.load(m / '1/default/w[60:70,40:50].npy'), padded[60:70, 40:50])
    assert np.array_equal(np.load(m / '1/default/w[0:3].npy'), ARRAY[:3])


@pytest.mark.feature('A6', 'D7')
def test_padding_and_truncation_equal_orbaxs(mount, tmp_path):
    import jax
    saved_at = tmp_path / 'item'
    ocp.PyTreeCheckpointer().save(saved_at, {'w': jax.numpy.asarray(ARRAY)})
    m = mount(saved_at)
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    for shape in ((64, 48), (80, 48), (10, 100), (3, 2), (100, 100)):
        args = ocp.ArrayRestoreArgs(restore_type=jax.Array, global_shape=shape, sharding=sharding, strict=False)
        theirs = ocp.PyTreeCheckpointer().restore(saved_at, restore_args={'w': args})['w']
        ours = np.load(m / f'w@{shape[0]}x{shape[1]}.npy')
        assert np.array_equal(ours, np.asarray(theirs)), shape


@shows('missing')
@pytest.mark.feature('D7', 'B12')
def test_missing_chunks(mount, root):
    item = saved(mount, root, 'ocdbt=off', 'chunk_byte_size=4096')
    (item / 'w/0.0').unlink()
    with pytest.raises(OSError):
        (mount(root, 'missing=error', allow_errors=True) / '1/default/w.npy').read_bytes()
    found = np.load(mount(root, 'missing=zero') / '1/default/w.npy')
    assert not found[0, 0] and np.array_equal(found[-1], ARRAY[-1])


@shows('shape', 'show_tmp')
def test_shape_and_temporary_directories(mount, root):
    saved(mount, root)
    (root / '9.orbax-checkpoint-tmp').mkdir()
    assert sorted(os.listdir(mount(root).path)) == ['1']
    assert len(os.listdir(mount(root, 'show_tmp').path)) == 2
    assert 'default' in os.listdir(mount(root / '1').path)
    assert 'default' in os.listdir(mount(root / '1', 'shape=step').path)


@shows('safetensors_separator')
def test_separator_of_names(mount, root):
    saved(mount, root, files={'a/b.npy': ARRAY})
    from safetensors.numpy import load_file
    assert list(load_file(mount(root) / '1/default.safetensors')) == ['a.b']
    assert list(load_file(mount(root, 'safetensors_separator=/') / '1/default.safetensors')) == ['a/b']


@pytest.mark.feature('A15')
def test_databases_are_told_from_directories(mount, root, run):
    for step, option in ((1, 'ocdbt=on'), (2, 'ocdbt=off')):
        item = saved(mount, root, option, step=step)
        told = json.loads(run('info', '--json', item).stdout)
        theirs = ocp.type_handlers.is_ocdbt_checkpoint(item)
        assert (told['store'] == 'ocdbt') == theirs == (step == 1)


# ---- memory and I/O ----

@shows('cache', 'read_budget', 'write_budget')
@pytest.mark.feature('B2', 'D11')
def test_sizes(mount, root):
    usual, small = mount(root).stats(), mount(root, 'cache=8M', 'read_budget=10M', 'write_budget=12M').stats()
    assert (small['cache_limit_bytes'], small['read_budget_bytes'], small['write_budget_bytes']) == (8 << 20, 10 << 20,
                                                                                                   12 << 20)
    assert usual['cache_limit_bytes'] == usual['read_budget_bytes'] == usual['write_budget_bytes'] == 256 << 20


def available():
    for line in pathlib.Path('/proc/meminfo').read_text().splitlines():
        if line.startswith('MemAvailable:'):
            return int(line.split()[1]) << 10


@pytest.mark.feature('B3')
@pytest.mark.serial
def test_auto_follows_the_memory_that_is_free(mount, root):
    m = mount(root, 'write_budget=auto')
    before, free = m.stats()['write_budget_bytes'], available()
    limit = pathlib.Path('/sys/fs/cgroup/memory.max')
    if limit.exists() and limit.read_text().strip() != 'max':
        free = min(free, int(limit.read_text()))
    assert free / 4 / 1.5 < before < free / 4 * 1.5
    hog = np.ones(min(1 << 30, free // 4), np.uint8)         # a quarter of it, touched
    (m / '1.tmp').mkdir()                                   # it asks again when a draft begins
    after = m.stats()['write_budget_bytes']
    assert after < before or free / 4 < 64 << 20 or limit.exists() and limit.read_text().strip() != 'max'
    assert config(m)['write_budget']['value'] == 'auto'
    del hog


@shows('threads')
def test_threads(mount, root):
    count = lambda m: len(os.listdir(f'/proc/{m.pid}/task'))  # noqa: E731
    assert count(mount(root, 'threads=9')) >= count(mount(root, 'threads=1')) + 8


@shows('io')
def test_engine(mount, root):
    assert json.loads((mount(root, 'io=sync') / '.pytreefs/config').read_text())['engine'] == 'sync'


@shows('spill', 'spill_limit', 'max_read', 'poll', 'direct_io')
@pytest.mark.parametrize('option', ['spill=off', 'spill_limit=1M', 'max_read=64K', 'poll=50', 'direct_io=on'])
def test_in_force(mount, root, option):
    """What these do is measured elsewhere (test_memory, test_matrix, test_watch); here, that they arrive."""
    name, value = option.split('=')
    usual, now = config(mount(root))[name], config(mount(root, option))[name]
    assert usual['from'] == 'default' and now['from'] == 'mount' and usual['value'] != now['value']


@shows('log', 'trace')
def test_log_and_trace(mount, root):
    m = mount(root, 'trace=fs')
    os.listdir(m.path)
    assert any('readdir' in line or 'opendir' in line for line in m.log_lines())
    quiet = mount(root)
    os.listdir(quiet.path)
    assert not any('readdir' in line for line in quiet.log_lines())


@shows('pinned_host_transfer')
@pytest.mark.feature('B7')
def test_pinned_memory_is_accepted_and_said_once(mount, root):
    m = mount(root, 'pinned_host_transfer=on')
    save(m)
    assert sum('pinned_host_transfer has no effect' in line for line in m.log_lines()) == 1
    assert not any('pinned' in line for line in mount(root).log_lines())


@shows('pathways')
@pytest.mark.feature('D9')
def test_pathways_is_refused_with_the_reason(program, root, tmp_path):
    with pytest.raises(mounts.MountError, match='Pathways runtime'):
        mounts.Mount(program, root, tmp_path / 'm', tmp_path / 'log', ['pathways=on'])


# ---- the table ----

@pytest.mark.feature('D12')
def test_config_shows_value_and_origin(mount, root, monkeypatch):
    monkeypatch.setenv('PYTREEFS_OPTIONS', 'cache=32M,threads=3')
    found = config(mount(root, 'threads=2', 'rule=**/b:dtype=float16', 'aggregate=a/*'))
    assert found['cache'] == {'value': str(32 << 20), 'from': 'environment'}
    assert found['threads'] == {'value': '2', 'from': 'mount'}
    assert found['poll']['from'] == 'default'
    assert found['rule']['value'] == '**/b:dtype=float16 a/*:aggregate=all' and found['rule']['from'] == 'mount'


def test_the_environment_is_checked_too(program, root, tmp_path, monkeypatch):
    monkeypatch.setenv('PYTREEFS_OPTIONS', 'cashe=32M')
    r = subprocess.run([program, 'ls', root], capture_output=True, text=True)
    assert r.returncode == 2 and 'PYTREEFS_OPTIONS' in r.stderr and "'cache'" in r.stderr


@pytest.mark.parametrize('wrong,nearest', [('cach=1M', 'cache'), ('compresion=none', 'compression'),
                                           ('zar=3', 'zarr'), ('restore_dtyp=int8', 'restore_dtype')])
def test_unknown_options_name_the_nearest(run, cases, wrong, nearest):
    r = run('ls', '-o', wrong, cases('bare-scalar').path, ok=False)
    assert r.returncode == 2 and f"did you mean '{nearest}'" in r.stderr


@pytest.mark.parametrize('wrong', ['zarr=4', 'ocdbt=maybe', 'dtype=float99', 'compression=lzma', 'mode=999', 'cache=',
                                   'leaf_type=list', 'shard_axes=a', 'rule=nothing', 'rule=*:nosuch=1', 'missing=maybe',
                                   'atomicity=never', 'spill_limit=auto', 'rule=*:aggregate=x/y'])
def test_wrong_values_name_the_option_and_what_it_takes(run, cases, wrong):
    r = run('ls', '-o', wrong, cases('bare-scalar').path, ok=False)
    assert r.returncode == 2 and wrong.split('=')[0].split(':')[0] in r.stderr, r.stderr


def table(run):
    return re.findall(r'^  (\w+)=', run('help', 'options').stdout, re.M)


def test_docs_are_what_the_table_says(run):
    docs = TESTS.parent / 'docs/options.md'
    assert docs.read_text() == run('help', 'options', '--markdown').stdout, \
        'pytreefs help options --markdown >docs/options.md'
    man = run('help', '--man').stdout
    assert all(f'.B {name}'.replace('-', '\\-') in man for name in table(run))


def test_every_option_has_a_test(run):
    texts = {p: p.read_text() for p in TESTS.rglob('test_*.py')}

    def elsewhere(name):
        word = re.compile(rf'[\'",\s]{name}=|[\'"]{name}[\'"]')
        return any(word.search(text) for p, text in texts.items() if p != pathlib.Path(__file__))
    assert not [name for name in table(run) if name not in SHOWN and not elsewhere(name)]


def test_xattrs_are_shown_on_leaves(mount, root):
    saved(mount, root, 'dtype=bfloat16')
    assert compare.xattrs(mount(root) / '1/default/w.npy')['dtype'] == 'bfloat16'
