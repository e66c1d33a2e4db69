# SPDX-License-Identifier: Apache-2.0
"""Checksums of values come along: what ranks of a job wrote, merged, copied, backed up and converted is covered, and
a flipped bit in the copy is found."""

import errno
import json
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

from lib.collective import DRAFT, W, fill, top

STORES = {'database': ('compression=none',), 'directories': ('compression=none', 'ocdbt=off'),
          'zarr3': ('compression=none', 'ocdbt=off', 'zarr=3')}
ROWS = np.arange(60_000, dtype=np.float32).reshape(300, 200)
stores = pytest.mark.parametrize('options', STORES.values(), ids=STORES)


def values(step):
    """Files with values of an item; in a database values share one."""
    return [p for p in sorted((step / 'default').rglob('*')) if p.is_file() and '.crc32c' not in p.parts and
            ('d' in p.parts or p.name[0].isdigit())]


def covered(run, step, text=0):
    """All arrays are, and any flipped byte of a value is found."""
    doc = json.loads(run('verify', '--json', step).stdout)
    assert doc['without_checksum'] == {'leaves': text, 'raw_bytes': 0, 'compressed_bytes': 0}
    files = values(step)
    assert files
    for path in files:
        good = path.read_bytes()
        at = next((i for i in range(len(good) // 2, len(good)) if good[i]), len(good) // 2)     # zeros may be padding
        path.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1:])
        r = run('verify', '--json', step, ok=False)
        found = json.loads(r.stdout)['findings']
        path.write_bytes(good)
        assert r.returncode == 1, path
        # An offset: what has none is a finding that the same bytes cause elsewhere.
        assert any(f['file'].endswith(str(path.relative_to(step))) and f.get('offset') is not None for f in found), found
    run('verify', step)


@pytest.fixture
def saved(run, tmp_path):
    """saved(*options): root/1, of two leaves, one of many chunks."""
    def make(*options):
        (tmp_path / 'files/in').mkdir(parents=True)
        np.save(tmp_path / 'files/rows.npy', ROWS)
        np.save(tmp_path / 'files/in/small.npy', ROWS[:3])
        run('save', '-o', ','.join((*options, 'chunk_byte_size=40000')), tmp_path / 'files', tmp_path / 'root/1')
        return tmp_path / 'root/1'
    return make


@stores
def test_of_a_job(job, run, options):
    """Each rank has a table, or databases, of its own; those of a leaf are about chunks of that rank."""
    j = job(3, 'commit_timeout=60', *options)
    fill(j)
    assert set(j.rename(DRAFT, '1').values()) == {0}
    j.end()
    covered(run, j.source / '1', text=1)
    tables = list((j.source / '1/default').glob('.crc32c/*'))
    assert len(tables) == (3 if 'ocdbt=off' in options else 0)


def test_of_an_attempt_that_failed_nothing_stays(job, run):
    """A table of old values would make the new ones errors."""
    j = job(2, 'commit_timeout=60', 'compression=none', 'ocdbt=off')
    fill(j)
    (j.source / '1').mkdir()
    assert set(j.rename(DRAFT, '1').values()) == {errno.EEXIST}
    assert list(j.source.glob('.*/default/.crc32c/*')), 'nothing was written, so nothing is tried'
    (j.source / '1').rmdir()
    for r in range(2):
        np.save(top(j, r) / 'rep.npy', W * 3)
    assert set(j.rename(DRAFT, '1').values()) == {0}
    assert np.array_equal(np.load(j[1] / '1/default/params/rep.npy'), W * 3)
    j.end()
    covered(run, j.source / '1', text=1)


def test_of_merging(job, run):
    """By reference: the values stay where they are, and what follows them."""
    j = job(3, 'commit_timeout=60', 'compression=none')
    fill(j)
    assert set(j.rename(DRAFT, '1').values()) == {0}
    j.end()
    item = j.source / '1/default'
    before = {p: p.read_bytes() for p in item.glob('ocdbt.process_*/d/*')}
    assert len(before) >= 3
    (item / 'manifest.ocdbt').unlink()
    shutil.rmtree(item / 'd')
    run('merge', item)
    assert before == {p: p.read_bytes() for p in item.glob('ocdbt.process_*/d/*')}
    doc = json.loads(run('verify', '--json', j.source / '1').stdout)
    assert doc['without_checksum'] == {'leaves': 1, 'raw_bytes': 0, 'compressed_bytes': 0}
    assert run('verify', j.source / '1').returncode == 0


@stores
@pytest.mark.parametrize('how', ['rsync -a FROM/ TO', 'cp -r FROM TO', 'mkdir TO && tar -C FROM -c . | tar -C TO -x'],
                         ids=['rsync', 'cp', 'tar'])
def test_of_a_backup(mount, run, saved, tmp_path, options, how):
    """.pytreefs/stored has tables and trailers; the tree in the mount has none of them."""
    step = saved(*options)
    m = mount(step.parent)
    assert sorted(p.name for p in (m / '1/default').rglob('*')) == ['_METADATA', 'in', 'rows.npy', 'small.npy']
    (tmp_path / 'backup').mkdir()
    subprocess.run(how.replace('FROM', f'{m.path}/.pytreefs/stored/1').replace('TO', f'{tmp_path}/backup/1'), shell=True,
                   check=True)
    covered(run, tmp_path / 'backup/1')


@stores
@pytest.mark.parametrize('to', STORES)
def test_of_convert(run, saved, tmp_path, options, to):
    """A step in each layout from one in each: what is copied as it is and what is encoded again."""
    step = saved(*options)
    (tmp_path / 'out').mkdir()
    run('convert', '-o', ','.join((*STORES[to], 'ocdbt=on' if to == 'database' else 'ocdbt=off')), step, tmp_path / 'out/1')
    covered(run, tmp_path / 'out/1')


@stores
def test_of_a_copy_within_a_mount(mount, run, saved, options):
    """A leaf that moved, and one that was renamed in the draft: tables know it by its last name."""
    step = saved(*options)
    m = mount(step.parent, *options[1:])
    r = subprocess.run(f'cd {m.path} && mkdir -p 2.tmp && cp -r 1/default 2.tmp/ && cd 2.tmp/default && mv rows.npy other.npy '
                       '&& cp in/small.npy rows.npy && cd ../.. && mv 2.tmp 2', shell=True, capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    assert np.array_equal(np.load(m / '2/default/other.npy'), ROWS)
    assert np.array_equal(np.load(m / '2/default/rows.npy'), ROWS[:3])
    m.unmount()
    covered(run, pathlib.Path(step.parent) / '2')


def test_a_flip_is_found_before_it_is_copied(run, saved, tmp_path):
    """As of a database: what is damaged does not get a new checksum."""
    step = saved('compression=none', 'ocdbt=off')
    path = step / 'default/rows/1.0'
    path = path if path.exists() else values(step)[-1]
    good = path.read_bytes()
    path.write_bytes(bytes([good[0] ^ 1]) + good[1:])
    (tmp_path / 'out').mkdir()
    r = run('convert', step, tmp_path / 'out/1', ok=False)
    assert r.returncode == 1 and 'crc32c' in r.stderr and not (tmp_path / 'out/1').exists()
