# SPDX-License-Identifier: Apache-2.0
""".pytreefs: the stored form for backups, counters, options, version, log."""

import errno
import json
import os
import shutil
import subprocess
import time

import pytest

from lib import compare


def regular_files(root):
    """{relative path: bytes}, symlinks not followed."""
    out = {}
    for where, _, files in os.walk(root):
        for name in files:
            path = os.path.join(where, name)
            out[os.path.relpath(path, root)] = os.readlink(path).encode() if os.path.islink(path) \
                else compare.read_all(path)
    return out


@pytest.mark.parametrize('name', ['manager-root', 'root-of-direct-checkpoints', 'opaque-item'])
def test_committed_steps_exactly_as_stored(mount, cases, name):
    case = cases(name)
    m = mount(case.path)
    stored = m / '.pytreefs/stored'
    # User metadata of the whole root is part of a backup too.
    also = {'metadata'} & set(os.listdir(case.path))
    assert set(os.listdir(stored)) == set(case.steps) | also
    for step in [*case.steps, *also]:
        assert regular_files(stored / step) == regular_files(case.path / step)


@pytest.mark.parametrize('name', ['matrix-ocdbt-zarr2-zstd-v0', 'matrix-perleaf-zarr3-none-v1', 'aggregate-by-hand'])
def test_of_a_step_or_an_item_it_is_the_source(mount, cases, name):
    case = cases(name)
    m = mount(case.path)
    assert regular_files(m / '.pytreefs/stored') == regular_files(case.path)


def test_no_half_written_step(mount, cases):
    case = cases('root-with-debris')
    m = mount(case.path)
    assert set(os.listdir(m / '.pytreefs/stored')) == set(case.steps) | {'metadata'}
    for name in ('3.orbax-checkpoint-tmp', '5', 'notes.txt'):
        assert not os.path.lexists(m / '.pytreefs/stored' / name)


def test_a_backup_of_the_stored_form_is_the_checkpoint(mount, cases, tmp_path):
    """rsync out of it, mount the copy: the same tree."""
    case = cases('manager-root')
    m = mount(case.path)
    r = subprocess.run(['rsync', '-a', f'{m.path}/.pytreefs/stored/', tmp_path / 'backup'], capture_output=True)
    assert r.returncode == 0, r.stderr
    again = mount(tmp_path / 'backup')
    assert not compare.compare_case(again.path, case)


@pytest.mark.parametrize('copying', ['rsync -a {stored}/ {to}', 'mkdir {to} && tar -C {stored} -c . | tar -C {to} -xp'], ids=['rsync', 'tar'])
def test_a_backup_keeps_the_modes(mount, copy, cases, tmp_path, copying):
    """Of files and directories, with every permission, in a read-only mount, too; a job can then write into the copy."""
    root = copy(cases('manager-root'), 'root')

    def modes(top):
        return {os.path.relpath(path, top): oct(os.stat(path).st_mode)
                for where, dirs, files in os.walk(top) for path in [where, *(os.path.join(where, name) for name in files)]}
    files = sorted(path for path in root.rglob('*') if path.is_file())
    for mode, path in zip((0o600, 0o640, 0o664, 0o755, 0o444), files):
        path.chmod(mode)
    for mode, step in zip((0o700, 0o2775, 0o1750), sorted(path for path in root.iterdir() if path.is_dir())):
        step.chmod(mode)
    root.chmod(0o770)
    m = mount(root, 'ro')
    to = tmp_path / 'backup'
    command = copying.format(stored=m / '.pytreefs/stored', to=to)
    subprocess.run(command, shell=True, check=True)
    assert modes(to) == modes(root)
    assert len(set(modes(to).values())) >= 8


def test_a_mode_with_write_permission_permits_no_write(mount, copy, cases):
    """Root passes any mode, and an owner may change it: the file system refuses both."""
    root = copy(cases('manager-root'), 'root')
    for path in root.rglob('*'):
        path.chmod(0o777)
    for options in ([], ['allow_delete=on'], ['allow_other', 'allow_delete=on'], ['ro']):
        m = mount(root, *options, allow_errors=True)
        step = m / '.pytreefs/stored/10'
        file = step / '_CHECKPOINT_METADATA'
        assert file.stat().st_mode & 0o777 == step.stat().st_mode & 0o777 == 0o777
        attempts = [lambda: open(file, 'r+'), lambda: open(file, 'a'), lambda: os.truncate(file, 0), lambda: file.chmod(0o700),
                    lambda: os.utime(file, (0, 0)), lambda: file.unlink(), lambda: file.rename(step / 'x'), lambda: step.rename(step.parent / '11'),
                    lambda: (step / 'x').mkdir(), lambda: (step / 'state').rmdir(), lambda: open(step / 'x', 'x'), lambda: step.chmod(0o700),
                    lambda: os.chown(file, 1, 1), lambda: os.link(file, step / 'x'), lambda: os.symlink('x', step / 'x')]
        for i, attempt in enumerate(attempts):
            with pytest.raises(OSError) as e:
                attempt()
            assert e.value.errno == errno.EROFS, (options, i)
        if 'allow_other' not in options:                # the kernel answers by the mode then
            assert not os.access(file, os.W_OK)
        m.unmount()
    assert (root / '10/_CHECKPOINT_METADATA').stat().st_size


def test_it_cannot_be_written(mount, cases):
    m = mount(cases('manager-root').path, allow_errors=True)
    for path in ('.pytreefs/stored/10/x', '.pytreefs/x', '.pytreefs/stored/x'):
        with pytest.raises(OSError):
            os.open(m / path, os.O_WRONLY | os.O_CREAT)
    with pytest.raises(OSError):
        os.unlink(m / '.pytreefs/stored/10/_CHECKPOINT_METADATA')


def test_symlinks_that_leave_the_source_are_eio_there_too(mount, copy, cases, tmp_path):
    (tmp_path / 'secret').write_text('outside')
    root = copy(cases('manager-root'), 'root')
    os.symlink(tmp_path / 'secret', root / '10/state/out')
    os.symlink('../../../secret', root / '10/state/up')
    m = mount(root, allow_errors=True)
    for name in ('out', 'up'):
        path = m / '.pytreefs/stored/10/state' / name
        assert not compare.is_eio(path)


@pytest.mark.parametrize('name', ['stats', 'config', 'version'])
def test_documents_are_json(mount, cases, name):
    m = mount(cases('manager-root').path, 'cache=96M')
    doc = json.loads(compare.read_all(m / '.pytreefs' / name))
    assert isinstance(doc, dict) and doc
    if name == 'config':
        assert '96M' in json.dumps(doc) or str(96 << 20) in json.dumps(doc)


def test_stats_count(mount, cases):
    """The counters move when something is read, and never before."""
    m = mount(cases('chunked-perleaf-zarr2-v0').path)
    before = numbers(m.stats())
    compare.read_all(m / 'two.npy')
    after = numbers(m.stats())
    assert set(before) == set(after)
    assert sum(after[k] > before[k] for k in before) >= 2


def numbers(doc, at=''):
    out = {}
    for k, v in doc.items():
        if isinstance(v, dict):
            out.update(numbers(v, f'{at}{k}.'))
        elif isinstance(v, (int, float)) and not isinstance(v, bool):
            out[at + k] = v
    return out


def test_the_log_is_there_too(mount, copy, cases):
    """A damaged leaf leaves a line with file and reason, in the file and in .pytreefs/log."""
    item = copy(cases('matrix-perleaf-zarr2-zstd-v0'), 'item')
    chunk = item / 'params.embed' / '0.0'
    chunk.write_bytes(b'garbage')
    m = mount(item, allow_errors=True)
    assert not compare.is_eio(m / 'params/embed.npy')
    for text in ('\n'.join(m.log_lines()), compare.read_all(m / '.pytreefs/log').decode()):
        assert 'params.embed' in text or 'params/embed' in text, text
        assert '0.0' in text, text


@pytest.mark.feature('B14')
def test_metadata_is_as_stored(mount, cases):
    case = cases('manager-root')
    m = mount(case.path)
    for name in ('10/_CHECKPOINT_METADATA', '10/state/_METADATA'):
        assert compare.read_all(m / name) == (case.path / name).read_bytes()
        assert name.rsplit('/')[-1] in os.listdir(os.path.dirname(m / name))


def test_a_removed_source_is_an_error_and_no_hang(mount, copy, cases):
    root = copy(cases('manager-root'), 'root')
    m = mount(root, allow_errors=True)
    compare.read_all(m / '10/state/w.npy')
    shutil.rmtree(root)
    end = time.monotonic() + 60
    with pytest.raises(OSError):
        while time.monotonic() < end:
            compare.read_all(m / '5/state/w.npy')
            os.listdir(m / '0/state')
