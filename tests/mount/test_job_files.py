# SPDX-License-Identifier: Apache-2.0
"""Files that are stored as they are, in a draft that the ranks of a job share: of items that are not trees, beside arrays, beside items."""

import errno
import os
import subprocess

import numpy as np
import pytest

from lib import jobs
from lib.collective import ALL_FILES as ALL, DRAFT, FILES, begin, mark, steps, top, write_files as write


def others(step):
    """Files of a step that are neither arrays nor documents of a tree."""
    found = {str(p.relative_to(step)): p.read_bytes() for p in step.rglob('*') if p.is_file()}
    own = ('d/', 'ocdbt.process_', 'manifest.ocdbt', 'params', '_METADATA', 'commit_success.txt', '.crc32c', 'array_metadatas', '_sharding')
    return {name: data for name, data in found.items()
            if not name.startswith(tuple(f'default/{x}' for x in own)) and name not in ('_CHECKPOINT_METADATA', 'commit_success.txt')}


def fill(j, draft):
    begin(j, draft=draft)
    for r in range(2):
        np.save(top(j, r, draft) / f'w{r}.npy', np.arange(3))
    return draft


def started(job, *options):
    j = job(2, 'commit_timeout=60', *options)
    fill(j, DRAFT)
    return j


@pytest.mark.parametrize('layout', ['ocdbt=on', 'ocdbt=off'])
def test_files_of_all_ranks_enter_the_step(job, run, layout):
    j = started(job, layout)
    for r, files in FILES.items():
        write(j[r] / DRAFT, files)
    (j[1] / DRAFT / 'tok/void').mkdir()
    assert set(j.rename(DRAFT, '1').values()) == {0}, j.text()
    assert others(j.source / '1') == others(j[0] / '1') == others(j[1] / '1') == ALL
    assert (j.source / '1/tok/void').is_dir() and not list((j.source / '1').rglob('.pytreefs*')) and os.listdir(j.source) == ['1']
    assert all(np.load(j[0] / f'1/default/params/w{r}.npy').tolist() == [0, 1, 2] for r in range(2))
    assert '0 errors, 0 warnings' in run('verify', j.source / '1').stdout
    # One rank copies a step, by names alone.
    (j[1] / DRAFT.replace('1', '2')).mkdir()
    subprocess.run('cp -r 1 2.tmp', shell=True, cwd=j[0], check=True)
    assert set(j.rename('2.tmp', '2').values()) == {0}, j.text()
    assert others(j.source / '2') == ALL


@pytest.mark.parametrize('layout', ['ocdbt=on', 'ocdbt=off'])
def test_nothing_of_a_failed_commit_stays(job, layout):
    """Of files that were removed after it."""
    j = started(job, layout)
    for r, files in FILES.items():
        write(j[r] / DRAFT, files)
    (j.source / '1').mkdir()
    (j.source / '1/something').write_text('x')
    assert set(j.rename(DRAFT, '1').values()) == {errno.EEXIST}, j.text()
    (j.source / '1/something').unlink()
    (j.source / '1').rmdir()
    removed = [(0, 'README'), (0, '.hf/sub/x'), (0, 'tok/vocab.txt'), (0, 'default/.hidden'), (0, 'default/assets/sub/a.txt'), (1, 'LICENSE'), (1, 'tok/merges.txt'),
               (1, 'default/more.bin')]
    for r, name in removed:
        (j[r] / DRAFT / name).unlink()
    assert set(j.rename(DRAFT, '1').values()) == {0}, j.text()
    assert others(j.source / '1') == {name: data for name, data in ALL.items() if name not in [name for _, name in removed]}


MISFITS = [
    (({'default/x': b'0'}, {'default/x/y': b'1'}), "item 'default': 'x' is a directory on rank 1 and a file on rank 0"),
    (({'tok/x/y': b'0'}, {'tok/x': b'1'}), "item 'tok': 'x' is a directory on rank 0 and a file on rank 1"),
    (({'default/step.json': b'no number'}, {}), "item 'default': 'step.json' is a file beside the tree on rank 0 and a part of it on another"),
    (({}, {'default/opt/x': b'1'}), "item 'default': 'opt' is a file beside the tree on rank 1 and a part of it on another"),
    (({'.x': b'0', 'metrics': b'0'}, {}), "'metrics' is a file beside the items on rank 0 and an item on rank 1"),
    (({'_CHECKPOINT_DELETION': b'0'}, {}), "rank 0: '_CHECKPOINT_DELETION' is a name of steps"),
    (({}, {'default/_sharding': b'0'}), "rank 1: item 'default': '_sharding' is a name of stored trees"),
]


def test_names_that_do_not_fit_together_are_refused(job):
    j = job(2, 'commit_timeout=60')
    for i, (files, why) in enumerate(MISFITS, 1):
        draft = fill(j, f'{i}.tmp')
        (j[0] / draft / 'default/opt').mkdir()
        np.save(j[0] / draft / 'default/opt/m.npy', np.arange(3))
        (j[1] / draft / 'default/step.json').write_text('3')
        (j[1] / draft / 'metrics.json').write_text('{}')
        for r in range(2):
            write(j[r] / draft, files[r])
        assert set(j.rename(draft, str(i)).values()) == {errno.ECANCELED}, j.text()
        assert why in j.text() and not steps(j.source), (why, j.text())


def test_a_draft_that_is_an_item_has_files_of_its_ranks(job, run, tmp_path):
    (tmp_path / 'in').mkdir()
    np.save(tmp_path / 'in/w.npy', np.arange(3))
    run('save', '--item', 'a', tmp_path / 'in', tmp_path / 'root/1')
    j = job(2, 'commit_timeout=60', source=tmp_path / 'root/1')
    for r in range(2):
        (j[r] / 'b.tmp/assets').mkdir(parents=True)
        np.save(j[r] / f'b.tmp/w{r}.npy', np.arange(3))
        mark(j[r] / 'b.tmp/assets')
        (j[r] / f'b.tmp/assets/{r}').write_text(str(r))
        (j[r] / f'b.tmp/.{r}').write_text(str(r))
        mark(j[r] / f'b.tmp/.{r}')
    assert set(j.rename('b.tmp', 'b').values()) == {0}, j.text()
    item = tmp_path / 'root/1/b'
    assert [(item / name).read_text() for name in ('assets/0', 'assets/1', '.0', '.1')] == ['0', '1', '0', '1']
    assert np.load(j[1] / 'b/w0.npy').tolist() == [0, 1, 2] and not list(item.rglob('.pytreefs*'))


@pytest.mark.parametrize('command', ['cp -r 1/. 2.tmp', 'cp -r 1/a 1/b.npy 2.tmp'])
def test_a_copy_of_a_step_that_is_a_tree_is_refused(job, run, tmp_path, command):
    """Its first level does not become items."""
    (tmp_path / 'in/a').mkdir(parents=True)
    (tmp_path / 'root').mkdir()
    for name in ('a/w.npy', 'b.npy'):
        np.save(tmp_path / 'in' / name, np.arange(3))
    run('convert', tmp_path / 'in', tmp_path / 'tree')
    (tmp_path / 'tree').rename(tmp_path / 'root/1')
    j = job(2, 'commit_timeout=60', source=tmp_path / 'root')
    for r in range(2):
        (j[r] / '2.tmp').mkdir()
    subprocess.run(command, shell=True, cwd=j[1], check=True)
    assert set(j.rename('2.tmp', '2').values()) == {errno.ECANCELED}, j.text()
    assert 'rank 1: it is a copy of a step that is one tree, which the ranks of a job do not write' in j.text()


def test_ranks_convert_all_files(program, mpi, run, tmp_path):
    j = tmp_path / 'in'
    j.mkdir()
    np.save(j / 'w.npy', np.arange(3))
    run('save', '--item', 'default', j, tmp_path / 'root/1')
    for name, data in ALL.items():
        (tmp_path / 'root/1' / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / 'root/1' / name).write_bytes(data)
    for source, out, step in ((tmp_path / 'root/1', tmp_path / 'out', '.'), (tmp_path / 'root', tmp_path / 'all', '1')):
        r = subprocess.run(['mpirun', '-n', '2', program, 'convert', '-o', 'zarr=3', source, out], env=jobs.environment(), capture_output=True, text=True)
        assert r.returncode == 0, r.stderr
        got = others(out / step)
        assert {name: data for name, data in got.items() if not name.startswith('default/w')} == ALL
