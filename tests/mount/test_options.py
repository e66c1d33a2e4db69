# SPDX-License-Identifier: Apache-2.0
"""Every option of a mount changes something: those of what is shown, of memory and of I/O; and their table."""

import ast
import json
import os
import pathlib
import re
import subprocess

import numpy as np
import orbax.checkpoint as ocp
import pytest

from lib import compare, mounts
from lib.saving import ARRAY, config, save, saved

TESTS = pathlib.Path(__file__).resolve().parents[1]


# ---- what is shown ----

@pytest.mark.option('restore_dtype')
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


@pytest.mark.option('pad_truncate')
@pytest.mark.feature('A6', 'D7')
def test_boxes_beyond_the_bounds(mount, root):
    saved(mount, root)
    strict = mount(root)
    for name in ('w[60:70].npy', 'w[60:70,40:50].npy', 'w@48x64.npy', 'w@65x1.npy', 'w[0:4,0:4]@65x1.npy'):
        assert not (strict / '1/default' / name).exists()
    m = mount(root, 'pad_truncate')
    padded = np.zeros((70, 50), np.float32)
    padded[:64, :48] = ARRAY
    assert np.array_equal(np.load(m / '1/default/w[60:70].npy'), padded[60:70, :48])
    assert np.array_equal(np.load(m / '1/default/w[60:70,40:50].npy'), padded[60:70, 40:50])
    assert np.array_equal(np.load(m / '1/default/w[0:3].npy'), ARRAY[:3])
    both = np.zeros((65, 4), np.float32)
    both[:64] = ARRAY[:, :4]
    assert np.array_equal(np.load(m / '1/default/w@65x4.npy'), both)
    assert np.array_equal(np.load(m / '1/default/w@65x4[60:65].npy'), both[60:65])


@pytest.mark.feature('A6', 'D7')
def test_padding_and_truncation_equal_orbaxs(mount, tmp_path):
    import jax
    saved_at = tmp_path / 'item'
    ocp.PyTreeCheckpointer().save(saved_at, {'w': jax.numpy.asarray(ARRAY)})
    m = mount(saved_at, 'pad_truncate')     # (10, 100) is shorter and longer
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    for shape in ((64, 48), (80, 48), (10, 100), (3, 2), (100, 100)):
        args = ocp.ArrayRestoreArgs(restore_type=jax.Array, global_shape=shape, sharding=sharding, strict=False)
        theirs = ocp.PyTreeCheckpointer().restore(saved_at, restore_args={'w': args})['w']
        ours = np.load(m / f'w@{shape[0]}x{shape[1]}.npy')
        assert np.array_equal(ours, np.asarray(theirs)), shape


@pytest.mark.option('missing')
@pytest.mark.feature('D7', 'B12')
def test_missing_chunks(mount, root):
    item = saved(mount, root, 'ocdbt=off', 'chunk_byte_size=4096')
    (item / 'w/0.0').unlink()
    with pytest.raises(OSError):
        (mount(root, 'missing=error', allow_errors=True) / '1/default/w.npy').read_bytes()
    found = np.load(mount(root, 'missing=zero') / '1/default/w.npy')
    assert not found[0, 0] and np.array_equal(found[-1], ARRAY[-1])


@pytest.mark.option('show_tmp')
def test_temporary_directories(mount, root):
    saved(mount, root)
    (root / '9.orbax-checkpoint-tmp').mkdir()
    assert sorted(os.listdir(mount(root).path)) == ['1']
    assert len(os.listdir(mount(root, 'show_tmp').path)) == 2


@pytest.mark.option('shape')
def test_shape_says_what_is_not_recognised(mount, root, program, tmp_path):
    """A root whose first step is still to come, and has a file of somebody's."""
    (root / 'notes').write_text('the first step is still to come')
    with pytest.raises(mounts.MountError, match='not a checkpoint'):
        mounts.Mount(program, root, tmp_path / 'm', tmp_path / 'log')
    m = mount(root, 'shape=root')
    save(m)
    assert np.array_equal(np.load(m / '1/default/w.npy'), ARRAY)


@pytest.mark.option('safetensors_separator')
def test_separator_of_names(mount, root):
    saved(mount, root, files={'a/b.npy': ARRAY})
    from safetensors.numpy import load_file
    assert list(load_file(mount(root) / '1/default.safetensors')) == ['a.b']
    assert list(load_file(mount(root, 'safetensors_separator=/') / '1/default.safetensors')) == ['a/b']


@pytest.mark.feature('A15')
def test_databases_are_distinguished_from_directories(mount, root, run):
    for step, option in ((1, 'ocdbt=on'), (2, 'ocdbt=off')):
        item = saved(mount, root, option, step=step)
        told = json.loads(run('info', '--json', item).stdout)
        theirs = ocp.type_handlers.is_ocdbt_checkpoint(item)
        assert (told['store'] == 'ocdbt') == theirs == (step == 1)


# ---- memory and I/O ----

MIB = 1 << 20


@pytest.mark.feature('B2', 'D11')
def test_sizes(mount, root):
    usual, small = mount(root).stats(), mount(root, 'cache=8M', 'read_budget=10M', 'write_budget=12M').stats()
    assert (small['cache_limit_bytes'], small['read_budget_bytes'], small['write_budget_bytes']) == (8 << 20, 10 << 20,
                                                                                                   12 << 20)
    assert usual['cache_limit_bytes'] == usual['read_budget_bytes'] == usual['write_budget_bytes'] == 256 << 20


@pytest.mark.option('cache', 'write_budget')
@pytest.mark.feature('B2', 'D11')
def test_what_is_held_depends_on_the_sizes(mount, root):
    """64 MiB in chunks of 4: written once, as rows that all chunks have a part of, and read twice, chunk after chunk."""
    line = np.arange(16 * MIB, dtype=np.float32)
    usual, small = (), ('cache=16M', 'write_budget=16M')
    for step, options in ((1, usual), (2, small)):
        m = mount(root, *options, 'chunk_byte_size=4M')
        save(m, step, files={'w.npy': line.reshape(16, MIB), 'line.npy': line})
        peak = m.stats()['write_budget_peak_bytes']
        assert peak <= 16 * MIB if options else peak > 16 * MIB, peak
        m.unmount()
    for options in (usual, small):
        m = mount(root, *options, 'direct_io')
        for _ in range(2):
            with open(m / '1/default/line.npy', 'rb', buffering=0) as f:
                while f.read(MIB):
                    pass
        stats = m.stats()
        assert stats['chunks_decoded'] > 16 if options else stats['chunks_decoded'] == 16, stats
        # Data that is being read and decoded ahead at the moment exceeds the limit.
        assert stats['cache_peak_bytes'] < 48 * MIB if options else stats['cache_peak_bytes'] >= 64 * MIB, stats
        m.unmount()


@pytest.mark.option('read_budget')
@pytest.mark.feature('B2', 'D11')
def test_half_of_the_read_budget_is_for_decoders(mount, root):
    """Twelve chunks that are decoded piece by piece, in turns; the smallest is one of 9 MiB and what is beside it."""
    leaves = {f'{i}.npy': np.arange(2 * MIB, dtype=np.float32) * i for i in range(12)}
    saved(mount, root, 'chunk_byte_size=64M', 'compression=zstd', files=leaves)
    seen = []
    for options in ((), ('read_budget=1M',)):
        m = mount(root, 'cache=16M', 'spill=off', *options)
        files = {name: os.open(m / '1/default' / name, os.O_RDONLY) for name in leaves}
        for fd in files.values():
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        for at in range(0, 8 * MIB, MIB):
            for name, fd in files.items():
                assert os.pread(fd, 4096, 128 + at) == leaves[name][at // 4:at // 4 + 1024].tobytes(), (name, at)
        for fd in files.values():
            os.close(fd)
        seen.append(m.stats()['decoder_peak_bytes'])
    usual, small = seen
    assert 0 < small <= 17 * MIB < usual, seen


def available():
    for line in pathlib.Path('/proc/meminfo').read_text().splitlines():
        if line.startswith('MemAvailable:'):
            return int(line.split()[1]) << 10


def group_limit():
    """The smallest limit of any control group that may be above this process; t_memory.c tests which ones are."""
    top = pathlib.Path('/sys/fs/cgroup')
    limits = [1 << 62]
    for number, controllers, path in (line.split(':', 2) for line in pathlib.Path('/proc/self/cgroup').read_text().splitlines()):
        if controllers and 'memory' not in controllers.split(','):
            continue
        base, files = (top / 'memory', ['memory.limit_in_bytes']) if controllers else (top, ['memory.max', 'memory.high'])
        group = base / path.strip('/')
        for at in (group, *group.parents):
            if at == base or base in at.parents:
                limits += [int(text) for file in files if (at / file).exists() and (text := (at / file).read_text().strip()) != 'max']
    return min(limits)


@pytest.mark.feature('B3')
@pytest.mark.serial
def test_auto_follows_the_memory_that_is_free(mount, root):
    limit = group_limit()

    def is_a_quarter(size):
        """Other programs take and give memory between two looks."""
        wanted = max(64 << 20, min(limit, available()) / 4)
        return wanted / 1.5 < size < wanted * 1.5

    m = mount(root, 'write_budget=auto')
    before = m.stats()['write_budget_bytes']
    assert is_a_quarter(before)
    hog = np.ones(min(1 << 30, available() // 4), np.uint8)         # touched
    (m / '1.tmp').mkdir()                                   # it asks again when a draft begins
    after = m.stats()['write_budget_bytes']
    assert is_a_quarter(after) and (after != before or limit < 1 << 62)
    assert config(m)['write_budget']['value'] == 'auto'
    del hog


@pytest.mark.option('threads')
def test_threads(mount, root):
    for n in (9, 1):
        pid = mount(root, f'threads={n}').pid
        workers = {f'worker-{i}\n' for i in range(n)}
        mounts.wait_for(lambda pid=pid, workers=workers: workers <= set(mounts.threads(pid, 'comm').values()))
        assert f'worker-{n}\n' not in mounts.threads(pid, 'comm').values()


@pytest.mark.option('io')
def test_engine(mount, root, program, tmp_path):
    saved(mount, root)
    seen = {}
    for io in ('auto', 'sync', 'trace:sync'):
        m = mount(root, f'io={io}', 'trace=io')
        assert np.array_equal(np.load(m / '1/default/w.npy'), ARRAY)
        engine = json.loads((m / '.pytreefs/config').read_text())['engine']
        seen[io] = engine, any('manifest.ocdbt' in line for line in m.log_lines())
    assert seen['auto'] in (('uring', False), ('sync', False))
    assert seen['sync'] == ('sync', False) and seen['trace:sync'] == ('sync', True)
    with pytest.raises(mounts.MountError, match='Input/output error'):
        mounts.Mount(program, root, tmp_path / 'm', tmp_path / 'log', ['io=fault(read:eio:always):sync'])


@pytest.mark.serial
@pytest.mark.option('busy_poll')
@pytest.mark.skipif(os.cpu_count() < 2, reason='a thread that polls would keep the only processor')
def test_busy_poll(mount, root):
    """Thousands of small requests in a row: one thread finds them while it polls. Only busy_poll=awake holds the processors."""
    def requests(m, rounds, until_held=False):
        held = False
        for _ in range(rounds):
            for i in range(200):
                # A name that nobody remembers, so that each look-up is a request.
                assert not os.path.exists(m / f'{i}.npy')
            held |= '/dev/cpu_dma_latency' in m.open_files()
            stats = m.stats()
            # On a busy machine requests arrive with pauses, so a burst needs several attempts.
            if stats['requests_polled'] > 100 and held >= until_held:
                break
        assert stats['requests'] >= 200
        return stats['requests_polled'], held
    polled, held = requests(mount(root), 1000)
    assert polled > 100 and not held
    can_hold = os.access('/dev/cpu_dma_latency', os.W_OK)
    # Where the file cannot be written, the log says so, and the mount polls without it.
    polled, held = requests(mount(root, 'busy_poll=awake', allow_errors=not can_hold), 1000, until_held=can_hold)
    assert polled > 100 and held == can_hold
    assert requests(mount(root, 'busy_poll=off'), 20) == (0, False)


@pytest.mark.option('log', 'trace')
def test_log_and_trace(mount, root):
    m = mount(root, 'trace=fs')
    os.listdir(m.path)
    assert any('readdir' in line or 'opendir' in line for line in m.log_lines())
    quiet = mount(root)
    os.listdir(quiet.path)
    assert not any('readdir' in line for line in quiet.log_lines())


@pytest.mark.option('pinned_host_transfer')
@pytest.mark.feature('B7')
def test_pinned_memory_is_accepted_and_said_once(mount, root):
    m = mount(root, 'pinned_host_transfer=on')
    save(m)
    assert sum('pinned_host_transfer has no effect' in line for line in m.log_lines()) == 1
    assert not any('pinned_host_transfer' in line for line in mount(root).log_lines())


@pytest.mark.option('pathways')
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


@pytest.mark.parametrize('wrong', ['uid=0', 'gid=0', 'nix', 'umask=22', 'xyzzy=1'])
def test_unknown_options_that_are_near_to_nothing(run, cases, wrong):
    r = run('ls', '-o', wrong, cases('bare-scalar').path, ok=False)
    assert r.returncode == 2 and 'did you mean' not in r.stderr and '`pytreefs help options` lists them' in r.stderr


@pytest.mark.parametrize('given', ['pathways', 'pathways=on'])
def test_a_refused_option_says_why(run, cases, given):
    r = run('ls', '-o', given, cases('bare-scalar').path, ok=False)
    assert r.returncode == 2 and 'refused: it applies only to a Pathways runtime' in r.stderr


def test_flags_of_fstab(mount, root):
    """Options that mount(8) passes on and that have no meaning here do not prevent the mount."""
    m = mount(root, 'relatime', 'norelatime', 'nodiratime', 'lazytime', 'strictatime', 'owner', 'group', 'noatime', 'user',
              '_netdev', 'nofail', 'x-systemd.automount')
    assert m.mounted()


@pytest.mark.parametrize('wrong', ['zarr=4', 'ocdbt=maybe', 'dtype=float99', 'compression=lzma', 'mode=999', 'cache=',
                                   'leaf_type=list', 'shard_axes=a', 'rule=nothing', 'rule=*:nosuch=1', 'missing=maybe',
                                   'atomicity=never', 'spill_limit=auto', 'rule=*:aggregate=x/y'])
def test_wrong_values_name_the_option_and_what_it_takes(run, cases, wrong):
    r = run('ls', '-o', wrong, cases('bare-scalar').path, ok=False)
    assert r.returncode == 2 and wrong.split('=')[0].split(':')[0] in r.stderr, r.stderr


@pytest.mark.parametrize('wrong,said', [
    ('mesh=2y4', 'mesh'), ('mesh=', 'mesh'), ('mesh=0x2', 'mesh'), ('mesh=-1', 'mesh'), ('mesh=2x', 'mesh'),
    ('mesh=99999999x99999999', 'mesh'), ('mesh=1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1', 'mesh'),
    ('active=', 'active'), ('active=3-1', 'active'), ('active=a', 'active'), ('active=-1', 'active'), ('active=0:', 'active'),
    ('active=0-', 'active'), ('broadcast_memory_scaling=2', 'scaling'), ('broadcast_memory_scaling=x', 'scaling'),
    ('broadcast_memory_scaling=0', 'scaling'), ('primary=x', 'primary'), ('replica_axis_index=-1', 'replica_axis_index')])
def test_options_of_jobs_are_checked_without_one(program, run, cases, tmp_path, wrong, said):
    r = run('ls', '-o', wrong, cases('bare-scalar').path, ok=False)
    assert r.returncode == 2 and said in r.stderr and wrong.partition('=')[2] in r.stderr
    with pytest.raises(mounts.MountError, match=said):
        mounts.Mount(program, cases('bare-scalar').path, tmp_path / 'm', tmp_path / 'log', [wrong])


@pytest.mark.parametrize('wrong,said', [
    ('mesh=2x4,replica_axis_index=2', 'mesh=2x4 has 2 axes'), ('mesh=2x4,primary_replica_id=2', 'mesh=2x4 has 2 positions'),
    ('mesh=2x4,replica_axis_index=1,primary_replica_id=4', 'has 4 positions'), ('replica_axis_index=1', 'has 1 axis'),
    ('active=1-2,primary=3', 'primary=3 is not an active rank'), ('primary=4294967296', 'no job')])
def test_options_of_jobs_that_do_not_fit_each_other(program, run, cases, tmp_path, wrong, said):
    r = run('ls', '-o', wrong, cases('bare-scalar').path, ok=False)
    assert r.returncode == 1 and said in r.stderr
    with pytest.raises(mounts.MountError, match=said):
        mounts.Mount(program, cases('bare-scalar').path, tmp_path / 'm', tmp_path / 'log', wrong.split(','))


def test_options_of_jobs_that_fit(run, cases):
    for good in ('mesh=2x4,replica_axis_index=1,primary_replica_id=3', 'mesh=1', 'active=0-3:6,primary=6', 'active=1-2',
                 'primary=7', 'primary_replica_id=3'):
        run('ls', '-o', good, cases('bare-scalar').path)


def table(run):
    return re.findall(r'^  (\w+)=', run('help', 'options').stdout, re.M)


def test_docs_are_what_the_table_says(run):
    docs = TESTS.parent / 'docs/options.md'
    assert docs.read_text() == run('help', 'options', '--markdown').stdout, \
        'pytreefs help options --markdown >docs/options.md'
    man = run('help', '--man').stdout
    assert all(f'.B {name}'.replace('-', '\\-') in man for name in table(run))


def options_shown():
    """{option: the tests that are marked with it}."""
    found = {}
    for path in sorted(TESTS.rglob('test_*.py')):
        for f in ast.walk(ast.parse(path.read_text())):
            for mark in f.decorator_list if isinstance(f, ast.FunctionDef) and f.name.startswith('test_') else []:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == 'pytest.mark.option':
                    for name in mark.args:
                        found.setdefault(name.value, []).append(f'{path.stem}::{f.name}')
    return found


def test_every_option_has_a_test(run):
    """One in which the result differs with and without it: marked with its name, next to what it does."""
    options, shown = re.findall(r'^\| `(\w+)` \|', run('help', 'options', '--markdown').stdout, re.M), options_shown()
    for name in options:
        print(f"{name:<28}{', '.join(shown.get(name, ['no test']))}")
    assert len(options) == len(set(options)) and set(options) >= set(table(run))
    assert not [name for name in options if name not in shown], 'options that no test is marked with'
    assert not [name for name in shown if name not in options], 'marks of options that there are not'


def test_xattrs_are_shown_on_leaves(mount, root):
    saved(mount, root, 'dtype=bfloat16')
    assert compare.xattrs(mount(root) / '1/default/w.npy')['dtype'] == 'bfloat16'
