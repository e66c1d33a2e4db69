# SPDX-License-Identifier: Apache-2.0
"""Damaged checkpoints in one mount, 1,000 with tests/run --all: no crash, no hang, no growth, nothing from outside.

PYTREEFS_HOSTILE_SEED and PYTREEFS_HOSTILE_COUNT choose other ones; a failure names the number of the
damaged step and what was done to it.
"""

import errno
import json
import os
import pathlib
import random
import shutil
import stat
import subprocess
import sys

import numpy as np
import pytest

from lib import compare, mounts, mutate
from lib.pairs import LONG

pytestmark = pytest.mark.timeout(1500)

SEED = int(os.environ.get('PYTREEFS_HOSTILE_SEED', '1'))
COUNT = int(os.environ.get('PYTREEFS_HOSTILE_COUNT', '1000' if LONG else '31'))
TESTS = pathlib.Path(__file__).resolve().parents[1]
MIB = 1 << 20
# The cases that are damaged: small ones of every layout, and in each fourth round one of 240 files.
BASES = ['matrix-ocdbt-zarr2-zstd-v0', 'matrix-ocdbt-zarr3-none-v0', 'matrix-perleaf-zarr2-zstd-v0',
         'matrix-perleaf-zarr3-zstd-v0', 'chunked-ocdbt-zarr3-v0', 'mesh-perleaf-zarr3-v0',
         'aggregate-by-hand', 'rich-types', 'merged-two-processes', 'zarr-python', 'unmerged',
         'numbered-manifests', 'raw-nodes', 'only-strings-and-empties', 'sparse-small'] * 4 + ['many-generations']
STEP = {'item_handlers': {'state': 'orbax.checkpoint._src.handlers.pytree_checkpoint_handler.'
                                   'PyTreeCheckpointHandler'},
        'metrics': {}, 'performance_metrics': {}, 'init_timestamp_nsecs': 1700000000000000000,
        'commit_timestamp_nsecs': 1700000001000000000, 'custom_metadata': {}}


def make_root(root, cases, count, seed):
    """count damaged steps, each with one item `state`, and the good step 999999, in root; {number: what was done}."""
    done = {}
    sources = [cases(name).path for name in BASES]
    (root.parent / mutate.CANARY_NAME).write_bytes(mutate.CANARY * 40000)
    for i in range(count):
        rng = random.Random(seed * 1000003 + i)
        step = root / str(i)
        shutil.copytree(sources[i % len(sources)], step / 'state', symlinks=True)
        (step / '_CHECKPOINT_METADATA').write_text(json.dumps(STEP))
        where = step if rng.random() < 0.1 else step / 'state'
        done[i] = f'{BASES[i % len(BASES)]}: {mutate.mutate(rng, where)}'
    good = root / '999999'
    shutil.copytree(cases(BASES[0]).path, good / 'state')
    (good / '_CHECKPOINT_METADATA').write_text(json.dumps(STEP))
    return done


def walk(m):
    r = subprocess.run([sys.executable, '-m', 'lib.walker', str(m.path), str(m / '.pytreefs/stored')], cwd=TESTS,
                       capture_output=True, text=True, timeout=1200)
    assert r.returncode == 0, r.stderr[-3000:]
    return json.loads(r.stdout)


def blame(done, lines):
    """The lines with what was done to their step."""
    out = []
    for line in lines[:20]:
        numbers = [w for w in line.replace('stored/', '').split('/') if w.isdigit()]
        out.append(f'{line}   <- {done.get(int(numbers[0])) if numbers else ""}')
    return '\n'.join(out)


def test_damaged_checkpoints(mount, cases, root):
    def open_below():
        """Each thread has descriptors, too, and how many threads there are depends on the load."""
        return sum(name.startswith(f'{root}/') for name in m.open_files())

    done = make_root(root, cases, COUNT, SEED)
    m = mount(root, 'cache=64M', 'spill_limit=256M', allow_errors=True)
    pid = m.pid
    first = walk(m)
    assert not mounts.has_ended(pid), 'the daemon died'
    assert not first['hangs'], blame(done, first['hangs'])
    assert not first['canary'], blame(done, first['canary'])
    assert not first['odd'], blame(done, first['odd'])
    assert first['files'] > 5 * COUNT and first['errors'].get('EIO', 0) > COUNT // 4, first
    peak, files = m.memory('VmHWM'), open_below()
    assert files
    anonymous = m.memory('RssAnon') + m.memory('VmSwap')
    second = walk(m)
    assert second['files'] == first['files'] and not second['hangs'] and not second['canary']
    # How many items are open at a moment depends on what the kernel holds; a file lost with each error is far more.
    mounts.wait_for(lambda: open_below() <= files + COUNT // 4)
    later = m.memory('RssAnon') + m.memory('VmSwap')
    assert later <= anonymous + 24 * MIB, f'{anonymous >> 20} -> {later >> 20} MiB'
    assert peak <= (64 + 64 + 64) * MIB, f'peak {peak >> 20} MiB'
    assert not compare.compare(m / '999999/state', cases(BASES[0]).tree())


def test_the_tools_survive_them_too(program, cases, root):
    """`tree` of some more of them: an answer or an error, never a crash."""
    done = make_root(root, cases, 40, SEED + 1)
    for i in done:
        r = subprocess.run([program, 'tree', str(root / str(i))], capture_output=True, timeout=240)
        assert r.returncode in (0, 1), (i, done[i], r.returncode, r.stderr[-500:])


@pytest.mark.parametrize('target', ['/etc/hostname', '/dev/zero', '../../outside', '/proc/self/environ'])
def test_symlinks_out_of_the_source(mount, copy, cases, tmp_path, target):
    """A chunk, a data file or a metadata file that is a symlink leaving the source: EIO, and it stays unread."""
    (tmp_path / 'outside').write_bytes(mutate.CANARY * 1000)
    item = copy(cases('matrix-perleaf-zarr2-none-v0'), 'root/item')
    chunk = item / 'params.numpy' / '0.0.0'
    chunk.unlink()
    os.symlink(target, chunk)
    m = mount(item, allow_errors=True)
    assert not compare.is_eio(m / 'params/numpy.npy')
    tree = cases('matrix-perleaf-zarr2-none-v0').tree()
    del tree.leaves['params', 'numpy']
    assert not compare.compare(m.path, tree, also=['params/numpy.npy'])


def test_symlinked_directories_out_of_the_source(mount, copy, cases, tmp_path):
    item = copy(cases('matrix-ocdbt-zarr2-none-v0'), 'root/item')
    shutil.move(item / 'ocdbt.process_0', tmp_path / 'elsewhere')
    os.symlink(tmp_path / 'elsewhere', item / 'ocdbt.process_0')
    m = mount(item, allow_errors=True)
    assert not compare.is_eio(m / 'params/dense/kernel.npy')


def test_symlinks_that_stay_inside_are_followed(mount, copy, cases):
    case = cases('matrix-perleaf-zarr2-none-v0')
    item = copy(case, 'item')
    shutil.move(item / 'params.numpy' / '0.0.0', item / 'moved')
    os.symlink('../moved', item / 'params.numpy' / '0.0.0')
    m = mount(item)
    tree = case.tree()
    assert not [f for f in compare.compare(m.path, tree) if 'numpy' in f]


@pytest.mark.feature('B12')
def test_a_missing_data_file_is_eio(mount, copy, cases):
    """TensorStore gives empty values there; we give an error that names the file."""
    item = copy(cases('matrix-ocdbt-zarr2-none-v0'), 'item')
    files = sorted((item / 'ocdbt.process_0' / 'd').iterdir())
    assert files
    for f in files:
        f.unlink()
    m = mount(item, allow_errors=True)
    assert not compare.is_eio(m / 'params/dense/kernel.npy')
    assert compare.read_all(m / 'name.txt')
    text = '\n'.join(m.log_lines())
    assert any(f.name in text for f in files), text


def test_a_short_data_file_is_eio(mount, copy, cases):
    item = copy(cases('many-data-files'), 'item')
    for f in (item / 'ocdbt.process_0' / 'd').iterdir():
        os.truncate(f, f.stat().st_size // 2)
    m = mount(item, allow_errors=True)
    good = bad = 0
    for i in range(12):
        try:
            compare.read_all(m / f'w{i}.npy')
            good += 1
        except OSError:
            bad += 1
    assert bad > 0


def test_a_flipped_bit_behind_a_checksum_is_eio(mount, copy, cases):
    """A damaged crc32c suffix, a damaged shard index: each is an error for that leaf alone."""
    case = cases('zarr3-perleaf')
    item = copy(case, 'item')
    tree = case.tree()
    damaged = []
    for name in ('chain_crc32c', 'chain_zstd_crc32c', 'chain_shard', 'chain_nested', 'chain_zstd_checksum'):
        chunk = sorted(p for p in (item / name / 'c').rglob('*') if p.is_file())[0]
        data = bytearray(chunk.read_bytes())
        data[-3] ^= 0x10
        chunk.write_bytes(data)
        damaged.append(name)
        del tree.leaves[name,]
    m = mount(item, allow_errors=True)
    for name in damaged:
        assert not compare.is_eio(m / f'{name}.npy'), name
    assert not compare.compare(m.path, tree, also=[f'{n}.npy' for n in damaged])


KINDS_OF_FILES = {'a FIFO': stat.S_IFIFO, 'a character device': stat.S_IFCHR, 'a block device': stat.S_IFBLK, 'a socket': stat.S_IFSOCK}


@pytest.mark.parametrize('kind', KINDS_OF_FILES)
def test_what_is_not_a_file_is_not_opened(program, mount, tmp_path, kind):
    """Opening it may do something, or wait. No driver has the number of the devices, so an open of them would say so."""
    def replace(path):
        path.unlink(missing_ok=True)
        try:
            os.mknod(path, KINDS_OF_FILES[kind] | 0o600, os.makedev(511, 77))
        except PermissionError:
            pytest.skip('no device can be made here')
    (tmp_path / 'in').mkdir()
    np.save(tmp_path / 'in/w.npy', np.arange(3))
    places = {'1': 'default/_METADATA', '2': 'default/w/.zarray', '3': 'default/w/0', '4': '_CHECKPOINT_METADATA'}
    for step, place in places.items():
        subprocess.run([program, 'save', '-q', '-o', 'ocdbt=off', tmp_path / 'in', tmp_path / 'root' / step], check=True)
        replace(tmp_path / 'root' / step / place)
    m = mount(tmp_path / 'root', allow_errors=True)
    for step, place in places.items():
        try:
            (m / step / 'default/w.npy').read_bytes()
        except OSError as e:
            assert e.errno == errno.EIO
        said = [line for line in m.log_lines() if place.rpartition('/')[2] in line and f'is not a regular file, it is {kind}' in line]
        assert said or step == '4', m.log_lines()
    (tmp_path / 'shards').mkdir()
    replace(tmp_path / 'shards/a.safetensors')
    for command, name in ((['convert', tmp_path / 'shards', tmp_path / 'out'], 'a.safetensors'), (['ls', tmp_path / 'root/1/default'], '_METADATA'),
                          (['dump', 'tree', tmp_path / 'shards/a.safetensors'], 'a.safetensors')):
        r = subprocess.run([program, *command], capture_output=True, text=True, timeout=240)
        assert r.returncode == 1 and f'{name}\' is not a regular file, it is {kind}' in r.stderr, r.stderr


@pytest.mark.parametrize('content', [b'', b'{', b'[]', b'{"tree_metadata": {}}', b'\xff\xfe', b'[' * 100000,
                                     b'{"tree_metadata": {"x": {"key_metadata": [], "value_metadata": 3}}}'],
                         ids=['empty', 'open', 'list', 'no-entries', 'no-utf8', 'deep', 'wrong'])
def test_broken_tree_metadata(program, mount, copy, cases, content):
    """The item is an error that names the file, whether it is mounted or in a step."""
    root = copy(cases('manager-root'), 'root')
    (root / '10/state/_METADATA').write_bytes(content)
    m = mount(root, allow_errors=True)
    assert not compare.is_eio(m / '10/state')
    assert compare.read_all(m / '5/state/name.txt') == b'step 5'
    assert '_METADATA' in '\n'.join(m.log_lines())
    r = subprocess.run([program, 'ls', str(root / '10/state')], capture_output=True, text=True)
    assert r.returncode in (1, 2) and '_METADATA' in r.stderr, (r.returncode, r.stderr)
