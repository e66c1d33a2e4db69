# SPDX-License-Identifier: Apache-2.0
"""Steps that others commit or delete while the root is mounted appear and disappear by themselves."""

import contextlib
import ctypes
import errno
import os
import shutil
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from lib import compare
from lib.mounts import wait_for


@pytest.fixture
def root(copy, cases):
    return copy(cases('manager-root'), 'root')


def commit(root, source, step):
    """As Orbax does: a temporary directory, then a rename."""
    tmp = root / f'{step}.orbax-checkpoint-tmp'
    shutil.copytree(source, tmp)
    os.rename(tmp, root / str(step))


def test_a_new_step_appears(mount, root, cases):
    m = mount(root)
    assert '300' not in os.listdir(m.path)
    with pytest.raises(FileNotFoundError):
        os.stat(m / '300')
    commit(root, root / '200', 300)
    wait_for(lambda: '300' in os.listdir(m.path))
    assert not compare.compare(m / '300/state', cases('manager-root').trees['200/state'])
    assert os.readlink(m / 'latest') == '300'


def test_a_looked_up_absent_step_appears_by_name(mount, root):
    """A negative entry in the kernel's cache must not hide it."""
    m = mount(root)
    assert not os.path.exists(m / '300')
    commit(root, root / '200', 300)
    wait_for(lambda: os.path.exists(m / '300/state/w.npy'))


def test_a_half_written_step_is_never_shown(mount, root):
    m = mount(root)
    tmp = root / '300.orbax-checkpoint-tmp'
    seen = set()
    for source in sorted((root / '200').rglob('*')):
        target = tmp / source.relative_to(root / '200')
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
        seen |= set(os.listdir(m.path))
    assert seen == {'0', '5', '10', '200'}
    os.rename(tmp, root / '300')
    wait_for(lambda: '300' in os.listdir(m.path))


def test_a_deleted_step_disappears(mount, root):
    m = mount(root, allow_errors=True)
    assert np_bytes(m / '5/state/w.npy')
    shutil.rmtree(root / '5')
    wait_for(lambda: '5' not in os.listdir(m.path))
    wait_for(lambda: not os.path.exists(m / '5'))
    assert not os.path.exists(m / '5/state/w.npy')
    assert os.path.exists(m / '10/state/w.npy')


def test_a_root_that_was_removed_is_not_shown_as_an_empty_one(mount, run, root):
    """Another directory under its name is not the one that was mounted."""
    def is_refused(look):
        with contextlib.suppress(OSError):
            look()
            return False
        return True

    m = mount(root, allow_errors=True)
    assert '5' in os.listdir(m.path)
    shutil.rmtree(root)
    wait_for(lambda: is_refused(lambda: os.listdir(m.path)))
    root.mkdir()
    assert is_refused(lambda: os.listdir(m.path)) and is_refused(lambda: os.readlink(m / 'latest'))
    assert REMOVED in (m / '.pytreefs/log').read_text()


REMOVED = 'was removed since it was opened: open or mount it again'


def is_stale(call, *args):
    try:
        call(*args)
    except OSError as e:
        return e.errno == errno.ESTALE
    return False


@pytest.mark.parametrize('part', ['', '200', '200/state'], ids=['root', 'step', 'item'])
def test_nothing_is_looked_up_or_made_in_a_source_that_was_removed(mount, root, part):
    """The name is not merely absent; the log says it also when nobody looks."""
    m = mount(root / part, 'poll=50', allow_errors=True)
    assert os.listdir(m.path) and os.listdir(m / '.pytreefs/stored')
    shutil.copytree(root, root.parent / 'kept')
    shutil.rmtree(root)
    shutil.copytree(root.parent / 'kept', root)
    if not part:
        wait_for(lambda: f"Z '{root}' {REMOVED}\n" in (m / '.pytreefs/log').read_text())
    wait_for(lambda: is_stale(os.lstat, m / 'absent'))
    assert is_stale(os.listdir, m / '.pytreefs/stored')
    if part != '200/state':       # its tree was read before
        assert is_stale(os.listdir, m.path) and is_stale(os.mkdir, m / ('new.tmp' if part else '7.tmp'))
    assert REMOVED in (m / '.pytreefs/log').read_text()


def test_a_source_that_was_moved_is_still_shown(mount, root):
    """The log says which of the two directories the mount shows; it writes to that one."""
    m = mount(root)
    moved = root.rename(root.parent / 'moved')
    root.mkdir()
    wait_for(lambda: f"Z '{root}' was moved: the mount still shows it, and nothing that has its name now; mount again for that\n"
         in (m / '.pytreefs/log').read_text())
    (m / '300.tmp/state').mkdir(parents=True)
    (m / '300.tmp/state/n.json').write_text('1')
    (m / '300.tmp').rename(m / '300')
    assert '200' in os.listdir(m.path) and '300' in os.listdir(moved) and os.listdir(root) == []


def test_an_open_file_of_a_deleted_step_fails_cleanly(mount, root):
    m = mount(root, allow_errors=True)
    with open(m / '5/state/w.npy', 'rb') as f:
        shutil.rmtree(root / '5')
        wait_for(lambda: '5' not in os.listdir(m.path))
        try:
            assert f.read()[:6] in (b'\x93NUMPY', b'')
        except OSError as e:
            assert e.errno in (errno.EIO, errno.ESTALE, errno.ENOENT), e
    assert os.listdir(m.path)


@pytest.mark.feature('F1')
def test_latest_follows(mount, root):
    m = mount(root)
    assert os.readlink(m / 'latest') == '200'
    commit(root, root / '10', 1000)
    wait_for(lambda: os.readlink(m / 'latest') == '1000')
    shutil.rmtree(root / '1000')
    wait_for(lambda: os.readlink(m / 'latest') == '200')
    assert compare.read_all(m / 'latest/state/step.json').strip() == b'200'


def test_a_step_that_is_replaced_shows_the_new_one(mount, root):
    """Deleted and written again under the same number: never a mixture of both."""
    m = mount(root, allow_errors=True)
    assert compare.read_all(m / '5/state/name.txt') == b'step 5'
    shutil.rmtree(root / '5')
    wait_for(lambda: not os.path.exists(m / '5'))
    commit(root, root / '10', 5)
    wait_for(lambda: os.path.exists(m / '5/state/name.txt'))
    assert compare.read_all(m / '5/state/name.txt') == b'step 10'


def test_names_below_a_step_that_is_replaced_are_the_new_ones(run, mount, tmp_path):
    """The kernel keeps the names of committed directories, and the new step has other ones."""
    root = tmp_path / 'root'
    for name in ('old', 'new'):
        (tmp_path / name / 'layer').mkdir(parents=True)
        np.save(tmp_path / name / 'layer' / f'{name}.npy', np.arange(3))
        np.save(tmp_path / name / 'layer/same.npy', np.arange(3))
    run('save', tmp_path / 'old', root / '5')
    m = mount(root, allow_errors=True)
    layer = m / '5/default/layer'

    def listed():
        return subprocess.run(['ls', layer], check=True, capture_output=True, text=True).stdout.split()

    assert listed() == listed() == ['old.npy', 'same.npy']
    run('save', tmp_path / 'new', root / '6')
    shutil.rmtree(root / '5')
    wait_for(lambda: not os.path.exists(layer))
    os.rename(root / '6', root / '5')
    wait_for(lambda: os.path.exists(layer))
    assert listed() == listed() == ['new.npy', 'same.npy']


def test_the_first_step_of_an_empty_root(mount, cases, tmp_path):
    root = tmp_path / 'empty'
    root.mkdir()
    m = mount(root)
    assert os.listdir(m.path) == [] and not os.path.lexists(m / 'latest')
    commit(root, cases('manager-root').path / '10', 10)
    wait_for(lambda: os.listdir(m.path) == ['10'])


@pytest.mark.parametrize('parts_first', [False, True])
def test_a_step_that_is_copied_file_by_file_is_whole_in_the_end(mount, root, cases, parts_first):
    """cp -r under its final name, and somebody looks at each moment: what was seen first does not stay."""
    files = sorted((p for p in (root / '200').rglob('*') if p.is_file()),
                   key=lambda p: (parts_first != ('ocdbt.process_0' in p.parts), p))
    m = mount(root, allow_errors=True)
    for file in files:
        target = root / '300' / file.relative_to(root / '200')
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        # Long enough that only the item itself is younger than what the kernel remembers.
        time.sleep(0.2)
        subprocess.run(['find', m / '300', m / '300.json', '-ls'], capture_output=True)
    wait_for(lambda: not compare.compare(m / '300/state', cases('manager-root').trees['200/state']))
    wait_for(lambda: b'"w"' in content(m / '300.json'))
    wait_for(lambda: content(m / '300/state.safetensors') == compare.read_all(m / '200/state.safetensors'))


def test_show_tmp_shows_temporary_directories(mount, root):
    shutil.copytree(root / '200', root / '300.orbax-checkpoint-tmp')
    m = mount(root, 'show_tmp')
    assert '300.orbax-checkpoint-tmp' in os.listdir(m.path)
    assert os.readlink(m / 'latest') == '200'


TRAIN = r'''
import os, sys, pathlib
os.environ['JAX_PLATFORMS'] = 'cpu'
import numpy as np, orbax.checkpoint as ocp
options = ocp.CheckpointManagerOptions(max_to_keep=2)
with ocp.CheckpointManager(pathlib.Path(sys.argv[1]), options=options) as manager:
    for step in range(1, 5):
        manager.save(step, args=ocp.args.PyTreeSave({'w': np.full((50, 50), step, np.float32)}))
        manager.wait_until_finished()
        print(step, flush=True)
        sys.stdin.readline()
'''


def test_a_training_job_on_the_same_directory(mount, tmp_path):
    """Real Orbax saves and deletes steps (max_to_keep) under the mount."""
    import numpy as np
    root = tmp_path / 'run'
    root.mkdir()
    m = mount(root, allow_errors=True)
    job = subprocess.Popen([sys.executable, '-c', TRAIN, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True)
    try:
        for step in range(1, 5):
            assert job.stdout.readline().strip() == str(step)
            kept = {str(s) for s in range(max(1, step - 1), step + 1)}
            wait_for(lambda: set(os.listdir(m.path)) == kept)
            assert np.load(m / f'{step}/default/w.npy').min() == step
            job.stdin.write('\n')
            job.stdin.flush()
        assert job.wait(240) == 0
    finally:
        job.kill()


def content(path):
    """Return the contents of a file, or the error that is still in its place."""
    try:
        return compare.read_all(path)
    except OSError as e:
        return str(e).encode()


def np_bytes(path):
    return compare.read_all(path)[:6] == b'\x93NUMPY'


@pytest.mark.parametrize('how', ['deleted', 'moved away'])
def test_the_space_of_a_deleted_step_is_free(mount, root, how, tmp_path):
    """Orbax deletes old steps to make room: no file of theirs stays open once nobody reads it."""
    m = mount(root)
    for step in ('5', '10', '200'):
        compare.read_all(m / step / 'state/w.npy')
    assert any('/10/' in path for path in m.open_files())
    if how == 'deleted':
        shutil.rmtree(root / '10')
    else:
        os.rename(root / '10', tmp_path / 'elsewhere')
    wait_for(lambda: not any('(deleted)' in path or 'elsewhere' in path for path in m.open_files()))
    assert compare.read_all(m / '200/state/w.npy')


@pytest.mark.parametrize('how', ['a file', 'a directory'])
def test_the_space_of_a_step_that_was_deleted_while_in_use_is_free(mount, root, how):
    """The kernel keeps names below it that nobody can reach any more: their data files are closed all the same."""
    m = mount(root, 'poll=100', allow_errors=True)
    for step in ('5', '10'):
        compare.read_all(m / step / 'state/w.npy')
    used = os.open(m / '10/state' / ('w.npy' if how == 'a file' else ''), os.O_RDONLY)
    try:
        shutil.rmtree(root / '10')
        wait_for(lambda: '10' not in os.listdir(m.path))
        if how == 'a file':
            assert os.pread(used, 6, 0) == b'\x93NUMPY'
            time.sleep(1)               # ten looks of the watcher
            assert any('/d/' in path and '(deleted)' in path for path in m.open_files())
    finally:
        os.close(used)
    wait_for(lambda: not any('/d/' in path and '(deleted)' in path for path in m.open_files()))
    assert compare.read_all(m / '5/state/w.npy')


def test_steps_that_are_read_and_deleted_one_after_the_other_keep_nothing_open(mount, tmp_path):
    """Also between two looks at the root: here, the next one is in ten minutes."""
    (tmp_path / 'root').mkdir()
    m = mount(tmp_path / 'root', 'allow_delete', 'poll=60000', 'compression=none')
    before = len(m.open_files())
    for i in range(40):
        (m / f'{i}.tmp/default').mkdir(parents=True)
        np.save(m / f'{i}.tmp/default/w.npy', np.full(10, i))
        os.rename(m / f'{i}.tmp', m / str(i))
        assert np.load(m / f'{i}/default/w.npy')[0] == i
        os.rmdir(m / str(i))
    # Connections of the session's threads to the kernel come with the work, and stay.
    wait_for(lambda: len(m.open_files()) < before + 40)


def test_that_space_is_free_while_names_come_and_go(mount, root):
    """The watcher hears of something all the time, and looks after what it has to, all the same."""
    m = mount(root, 'poll=100', allow_errors=True)
    over = threading.Event()

    def come_and_go():
        while not over.wait(0.02):
            (root / 'other').mkdir()
            (root / 'other').rmdir()
    others = threading.Thread(target=come_and_go)
    others.start()
    try:
        compare.read_all(m / '10/state/w.npy')
        with open(m / '10/state/w.npy', 'rb'):
            shutil.rmtree(root / '10')
            wait_for(lambda: '10' not in os.listdir(m.path))
        wait_for(lambda: not any('/d/' in path and '(deleted)' in path for path in m.open_files()))
    finally:
        over.set()
        others.join()


@pytest.mark.parametrize('view', ['10.safetensors', '10@float16.safetensors', '10.json', 'latest.safetensors'])
def test_a_file_of_a_whole_step_keeps_no_space(mount, root, view):
    """Its name is beside the step's, and nobody asks for it again."""
    shutil.rmtree(root / '200')
    m = mount(root)
    compare.read_all(m / view)
    shutil.rmtree(root / '10')
    wait_for(lambda: not any('(deleted)' in path for path in m.open_files()))


def test_the_space_of_a_deleted_step_is_free_where_the_kernel_cannot_tell(mount, root):
    """As on a network: the source is a mount itself, and its root is looked at now and then."""
    stored = mount(root, allow_errors=True)
    m = mount(stored / '.pytreefs/stored', 'poll=100', allow_errors=True)
    for name in ('5/state/w.npy', '10/state/w.npy', '10.json'):
        compare.read_all(m / name)
    assert any('/5/' in path for path in m.open_files()) and any('/10/' in path for path in m.open_files())
    shutil.rmtree(root / '10')
    shutil.rmtree(root / '5')
    wait_for(lambda: not any('/5/' in path or '/10/' in path for path in m.open_files()))


def test_a_step_that_is_being_removed_is_gone(mount, root):
    """rmtree empties the directory before it removes it: no error of the step, and nothing in the log."""
    m = mount(root)
    step = next(name for name in os.listdir(m.path) if name.isdigit())
    seen = os.open(m / step, os.O_RDONLY)      # its name may be looked up afresh after a second
    for name in os.listdir(root / step):
        path = root / step / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    try:
        with pytest.raises(FileNotFoundError):
            os.listdir(f'/proc/self/fd/{seen}')
    finally:
        os.close(seen)
    (root / step).rmdir()
    wait_for(lambda: step not in os.listdir(m.path))


def test_metadata_that_is_not_a_file_is_not_there(mount, root):
    step = '5'
    (root / step / '_CHECKPOINT_METADATA').unlink()
    os.mkfifo(root / step / '_CHECKPOINT_METADATA')
    m = mount(root)
    assert set(os.listdir(m / step)) == {'config', 'metrics', 'state'}
    assert int(os.getxattr(m / step, 'user.pytree.leaf_count')) > 0


class Inotify:
    """The events of a directory that change names in it."""
    NAMES = {0x40: 'moved from', 0x80: 'moved to', 0x100: 'created', 0x200: 'deleted'}

    def __init__(self, path):
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_NONBLOCK)
        assert libc.inotify_add_watch(self.fd, os.fsencode(path), sum(self.NAMES)) >= 0

    def events(self):
        found, data = [], b''
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.fd, 1 << 16)
        while data:
            _, mask, _, n = struct.unpack_from('iIII', data)
            found.append((self.NAMES[mask & 0x3c0], data[16:16 + n].rstrip(b'\0').decode()))
            data = data[16 + n:]
        return found


def test_inotify(mount, root):
    """As docs/posix.md says: what goes through the mount has events, what another program does in SOURCE has them there alone."""
    m = mount(root, 'allow_delete')
    here, there = Inotify(m.path), Inotify(root)
    commit(root, root / '200', 300)
    wait_for(lambda: '300' in os.listdir(m.path))
    shutil.rmtree(root / '300')
    wait_for(lambda: '300' not in os.listdir(m.path))
    assert here.events() == [] and ('moved to', '300') in there.events()
    (m / '400.tmp/default').mkdir(parents=True)
    (m / '400.tmp/default/n.json').write_text('3')
    os.rename(m / '400.tmp', m / '400')
    os.rmdir(m / '400')
    assert here.events() == [('created', '400.tmp'), ('moved from', '400.tmp'), ('moved to', '400'), ('deleted', '400')]
    for n in (here, there):
        os.close(n.fd)
