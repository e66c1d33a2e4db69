# SPDX-License-Identifier: Apache-2.0
"""Files and directories of a draft, as programs use those of any file system."""

import errno
import json
import mmap
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent import futures

import numpy as np
import pytest
import safetensors.numpy

from lib.drafts import begin_empty
from lib.pairs import pairs


def meanwhile(do):
    """do() again and again in a thread; what is returned ends it, and raises what it raised."""
    stop, failed = threading.Event(), []

    def run():
        try:
            while not stop.is_set():
                do()
        except BaseException as e:
            failed.append(e)

    def end():
        stop.set()
        thread.join()
        if failed:
            raise failed[0]
    thread = threading.Thread(target=run)
    thread.start()
    return end


def test_metadata_while_a_safetensors_file_is_written(mount, root):
    """A reader sees none of its tensors meanwhile, or all."""
    m = mount(root)
    where = begin_empty(m)
    data = safetensors.numpy.save({f'block.{i}.w': np.full(10, i, np.float32) for i in range(300)})
    end = meanwhile(lambda: (where / 'model.safetensors').write_bytes(data))
    try:
        for _ in range(150):
            tree = json.loads((where / '_METADATA').read_text())['tree_metadata']
            assert len(tree) in (1, 300)        # one: an empty dict
    finally:
        end()
    (m / '7.tmp').rename(m / '7')
    assert np.load(m / '7/default/model/block/299/w.npy').tolist() == [299] * 10


def test_what_stat_tells_of_names(mount, root):
    """A file that was removed has no link, as protocols with lock files need it; listings and stat name one inode."""
    m = mount(root)
    where = begin_empty(m)
    (where / 'sub').mkdir()
    for name in ('w.txt', 'other.txt'):
        (where / name).write_text('x')
    for directory in (m.path, where.parent, where):
        for entry in os.scandir(directory):
            assert entry.inode() == os.stat(entry.path).st_ino, entry.path
    with open(where / 'w.txt', 'r+') as gone, open(where / 'other.txt') as replaced:
        assert os.fstat(gone.fileno()).st_nlink == 1
        (where / 'w.txt').unlink()
        assert os.fstat(gone.fileno()).st_nlink == 0
        (where / 'w.txt').write_text('new')
        (where / 'w.txt').rename(where / 'other.txt')
        assert os.fstat(replaced.fileno()).st_nlink == 0
        assert (os.fstat(gone.fileno()).st_nlink, (where / 'other.txt').stat().st_nlink) == (0, 1)
    directory = os.open(where / 'sub', os.O_RDONLY)
    (where / 'sub').rmdir()
    assert os.fstat(directory).st_nlink == 0
    os.close(directory)


@pytest.mark.parametrize('elements', [3, 100_000], ids=['small', 'large'])
def test_times_tell_of_changes(mount, root, elements):
    """make, rsync -u, cp -u and editors ask whether a file is newer than it was; readers' pages follow it, too."""
    m = mount(root)
    where = begin_empty(m)
    path = where / 'w.npy'
    np.save(path, np.arange(elements))
    np.save(where / 'other.npy', np.zeros(elements))
    (m / '7.tmp').rename(m / '7')
    where = begin_empty(m, '8')
    path = where / 'w.npy'

    def changes(do):
        before = path.stat().st_mtime_ns
        time.sleep(0.002)
        do()
        return path.stat().st_mtime_ns > before

    def overwrite():
        with open(path, 'r+b') as f:
            f.seek(128)
            f.write(b'12345678')

    def assign():
        np.load(path, mmap_mode='r+')[1] = 5
    shutil.copyfile(m / '7/default/w.npy', path)
    assert path.stat().st_mtime_ns > (m / '7/default/w.npy').stat().st_mtime_ns
    assert changes(lambda: np.save(path, np.ones(elements)))
    assert changes(overwrite)
    assert changes(assign)
    assert changes(lambda: os.truncate(path, 130))
    assert changes(lambda: os.truncate(path, 0))
    assert changes(lambda: shutil.copyfile(m / '7/default/w.npy', path))
    assert not changes(lambda: path.read_bytes())
    assert not changes(lambda: os.rename(where / 'w.npy', where / 'v.npy') or os.rename(where / 'v.npy', where / 'w.npy'))
    assert changes(lambda: os.utime(path))


@pytest.mark.parametrize('synced', [False, True], ids=['unmapped', 'synced'])
def test_what_a_map_loses_is_not_committed(mount, root, synced):
    """The disk is full while the kernel writes pages back: without msync no program hears of it, so the commit tells."""
    w, told = np.arange(1, 300_001), 0

    def assign(path):
        mapped = np.load(path, mmap_mode='r+')
        mapped[:] = w
        if synced:
            mapped.flush()
        del mapped
    # The first one is of the draft itself. The kernel chooses in how many pieces it writes back.
    for n in range(2, 40):
        if told >= 2:
            break
        m = mount(root, f'io=fault(write:enospc:{n}):sync', allow_errors=True)
        where = begin_empty(m, str(n))
        try:
            np.lib.format.open_memmap(where / 'w.npy', 'w+', w.dtype, w.shape).flush()
        except OSError:
            m.unmount()
            continue
        try:
            assign(where / 'w.npy')
        except OSError as e:        # msync reported the error, and succeeds now
            assert synced and e.errno == errno.ENOSPC
            assign(where / 'w.npy')
            told += 1
        try:
            (m / f'{n}.tmp').rename(m / str(n))
        except OSError as e:
            assert e.errno == errno.ENOSPC
            if 'through a map' in m.log_lines()[-1]:
                assert not synced and 'w.npy' in m.log_lines()[-1]
                with pytest.raises(OSError):
                    (m / f'{n}.tmp').rename(m / str(n))
                np.save(where / 'w.npy', w)
                told += 1
            (m / f'{n}.tmp').rename(m / str(n))
        assert np.array_equal(np.load(m / f'{n}/default/w.npy'), w)
        m.unmount()
    assert told >= 2


def source_step(m, step='1'):
    """A committed step with leaves of every kind, in directories."""
    where = begin_empty(m, step)
    for i, name in enumerate(('w.npy', 'a/w.npy', 'a/b/w.npy', 'z.npy')):
        (where / name).parent.mkdir(exist_ok=True, parents=True)
        np.save(where / name, np.arange(1000 + i, dtype=np.float32))
    (where / 'step.json').write_text('7')
    (where / 'name.txt').write_text('hello')
    (where / 'l').mkdir()
    np.save(where / 'l/0.npy', np.ones(3))
    (m / f'{step}.tmp').rename(m / step)


def sent(*words):
    return [line for line in subprocess.run(['rsync', '-a', '--itemize-changes', *map(str, words)], check=True, text=True,
                                            capture_output=True).stdout.splitlines() if line.startswith(('>', '<', 'c'))]


@pytest.mark.parametrize('inplace', [(), ('--inplace',)], ids=['renamed', 'in place'])
def test_a_repeated_rsync_sends_nothing(mount, root, inplace):
    m = mount(root)
    source_step(m)
    time.sleep(0.01)
    (m / '2.tmp').mkdir()
    assert sent(*inplace, f'{m.path}/1/', m / '2.tmp')
    assert not sent(*inplace, f'{m.path}/1/', m / '2.tmp')
    os.utime(m / '2.tmp/default/a/w.npy', (10**9, 10**9))
    assert len(sent(*inplace, f'{m.path}/1/', m / '2.tmp')) == 1
    assert not sent(*inplace, f'{m.path}/1/', m / '2.tmp')
    (m / '2.tmp').rename(m / '2')
    assert np.array_equal(np.load(m / '2/default/a/w.npy'), np.arange(1001, dtype=np.float32))


def test_times_are_remembered_until_the_commit(mount, root):
    m = mount(root)
    where = begin_empty(m)
    np.save(where / 'w.npy', np.ones(3))
    (where / 'd').mkdir()
    for name in ('w.npy', 'd', '', '_METADATA'):
        os.utime(where / name, ns=(10**18, 10**18 + 123456789))
        if name != '_METADATA':
            assert os.stat(where / name).st_mtime_ns == 10**18 + 123456789
    os.utime(where / 'w.npy')
    assert abs(os.stat(where / 'w.npy').st_mtime - time.time()) < 3600
    os.utime(where / 'w.npy', ns=(10**18, 10**18))
    os.chmod(where / 'w.npy', 0o600)
    assert os.stat(where / 'w.npy').st_mtime_ns == 10**18
    with open(where / 'w.npy', 'r+b') as f:
        f.write(b'\x93')
    assert os.stat(where / 'w.npy').st_mtime_ns > 10**18
    np.save(where / 'd/w.npy', np.ones(3))
    (m / '7.tmp').rename(m / '7')
    assert os.stat(m / '7/default/w.npy').st_mtime_ns == os.stat(m / '7').st_mtime_ns > 10**18


@pytest.mark.parametrize('how', ['in place', 'renamed'])
@pytest.mark.parametrize('name', ['default/_METADATA', '_CHECKPOINT_METADATA'])
def test_a_generated_file_shows_what_was_written_until_the_next_change(mount, root, name, how):
    """rclone looks at size and hash when it has written; then it is generated again, unless it says what is there."""
    m = mount(root)
    source_step(m)
    where = begin_empty(m).parent
    np.save(where / 'default/other.npy', np.ones(3))
    generated = (where / name).read_bytes()
    for text in (b'no JSON, and longer than one write ' * 9000, (m / '1' / name).read_bytes().replace(b'default', b'another')):
        at = where / name if how == 'in place' else (where / name).with_name('_X.1a2b.partial')
        with open(at, 'wb', buffering=0) as f:
            half = len(text) // 2
            f.write(text[:half])
            if how == 'in place':
                assert (where / name).read_bytes() == text[:half] and (where / name).stat().st_size == half
            f.write(text[half:])
        if how == 'renamed':
            at.rename(where / name)
        assert (where / name).read_bytes() == text and (where / name).stat().st_size == len(text)
        os.utime(where / name, ns=(10**18, 10**18))
        assert (where / name).stat().st_mtime_ns == 10**18
        np.save(where / 'default/other.npy', np.ones(4))     # which the text does not name, or not in such an item
        assert json.loads((where / name).read_text()).keys() == json.loads(generated).keys()
        assert (where / name).read_bytes() != text
    (where.parent / '7.tmp').rename(m / '7')
    assert os.listdir(m / '7/default') != os.listdir(m / '1/default')


def test_what_mknod_made_is_open_to_nobody(mount, root):
    """A commit may follow at once."""
    m = mount(root)
    for step in range(20):
        where = begin_empty(m, str(step))
        np.save(where / 'w.npy', np.ones(3))
        os.mknod(where / 'note.txt')
        (m / f'{step}.tmp').rename(m / str(step))


def test_a_document_that_was_closed_is_generated_again_after_a_change(mount, root):
    """Whenever the kernel lets go of it, which a second descriptor puts off here."""
    where = begin_empty(mount(root))
    np.save(where / 'w.npy', np.ones(3))
    fd = os.open(where / '_METADATA', os.O_RDWR)
    try:
        os.write(fd, b'no JSON')
        os.close(os.dup(fd))
        assert (where / '_METADATA').read_bytes() == os.pread(fd, 100, 0) == b'no JSON'
        np.save(where / 'other.npy', np.ones(3))
        generated = (where / '_METADATA').read_bytes()
        assert json.loads(generated)['tree_metadata'].keys() == {"('w',)", "('other',)"}
        os.pwrite(fd, b'once more', 0)
        assert (where / '_METADATA').read_bytes() == b'once more'
        np.save(where / 'third.npy', np.ones(3))            # nobody has closed it since
        assert (where / '_METADATA').read_bytes() == b'once more'
    finally:
        os.close(fd)
    np.save(where / 'third.npy', np.ones(4))
    assert len(json.loads((where / '_METADATA').read_text())['tree_metadata']) == 3


def test_a_copied_document_is_shown_while_it_says_what_is_there(mount, root):
    """A copy on its way: its document comes first, leaves later; what is taken away ends it."""
    m = mount(root)
    source_step(m)
    where = begin_empty(m)
    text = (m / '1/default/_METADATA').read_bytes()
    (where / '_METADATA').write_bytes(text)
    np.save(where / 'w.npy', np.ones(3))
    (where / 'a').mkdir()
    np.save(where / 'a/w.npy', np.ones(3))
    assert (where / '_METADATA').read_bytes() == text
    (where / 'w.npy').unlink()
    leaves = json.loads((where / '_METADATA').read_text())['tree_metadata']
    assert list(leaves) == ["('a', 'w')"]
    (where / 'other.txt').write_text('x')
    assert "('other',)" in json.loads((where / '_METADATA').read_text())['tree_metadata']


def lines(m, words):
    return [line for line in m.log_lines() if words in line]


def test_a_safetensors_file_says_what_it_does_not_carry(mount, root):
    """Leaving a tree by the view: None, strings, lists, empty ones, keys with dots. Its manifest brings them back; without one they are said at
    the commit."""
    m = mount(root)
    where = begin_empty(m)
    for name in ('w.npy', 'a.b.npy', 'layers/0.npy', 'layers/1.npy'):
        (where / name).parent.mkdir(exist_ok=True)
        np.save(where / name, np.ones(3))
    os.setxattr(where / 'layers', 'user.pytree.kind', b'"list"')
    (where / 'run.txt').write_text('x')
    for i in range(5):
        (where / f'none{i}.null').write_bytes(b'')
    (where / 'empty').mkdir()
    (m / '7.tmp').rename(m / '7')
    data = (m / '7/default.safetensors').read_bytes()
    said, = lines(m, 'does not hold all of the tree')
    for part in ("5 None ('none0.null', 'none1.null', 'none2.null', ...) left out", "1 empty container ('empty') left out",
                 "1 string ('run.txt') in __metadata__", "1 list, tuple or similar container ('layers') as",
                 "1 key ('a.b.npy') containing the separator"):
        assert part in said, said
    (m / '9.tmp').mkdir()
    (m / '9.tmp/default.safetensors').write_bytes(data)
    (m / '9.tmp').rename(m / '9')
    assert (m / '9/default.json').read_bytes() == (m / '7/default.json').read_bytes() and not lines(m, 'a tree of dicts')
    (m / '8.tmp').mkdir()
    tensors = safetensors.numpy.load(data)
    (m / '8.tmp/default.safetensors').write_bytes(safetensors.numpy.save(tensors, {'format': 'pt', 'run': 'x'}))
    assert not lines(m, 'a tree of dicts')
    (m / '8.tmp').rename(m / '8')
    said, = lines(m, 'a tree of dicts')
    assert "1 text ('run') of __metadata__ became custom metadata" in said, said
    assert "1 container ('layers') with the keys 0, 1, ... became dicts" in said, said
    assert "3 names ('a.b', 'layers.0', 'layers.1') with the separator" in said, said


def test_a_safetensors_file_that_carries_all_says_nothing(mount, root):
    m = mount(root)
    (m / '7.tmp').mkdir()
    (m / '7.tmp/default.safetensors').write_bytes(safetensors.numpy.save({'a': np.ones(3), 'b': np.zeros(2)}, {'format': 'pt'}))
    (m / '7.tmp').rename(m / '7')
    assert safetensors.numpy.load((m / '7/default.safetensors').read_bytes()).keys() == {'a', 'b'}
    assert not lines(m, 'default.safetensors')


FIRST = ['from the front', 'begun before']


@pytest.mark.races
@pytest.mark.parametrize('options,first', pairs(['ocdbt=on', 'ocdbt=off,zarr=3', 'dtype=float16,compression=none'], FIRST))
def test_a_reader_reads_on_after_the_commit(mount, root, options, first):
    """Until it is closed: by read, and by a map whose pages nobody has touched yet."""
    m = mount(root, options)
    where = begin_empty(m)
    large = np.arange(2_000_000, dtype=np.float32)
    for name, value in (('large.npy', large), ('small.npy', np.arange(5.)), ('staged.npy', large), ('f.npy', np.asfortranarray(
            large.reshape(1000, -1)))):
        np.save(where / name, value)
    with open(where / 'staged.npy', 'r+b') as f:
        f.seek(4000)
        f.write(b'abcd')
    (where / 't.txt').write_text('text')
    (where / 'n.json').write_text('5')
    names = sorted(os.listdir(where))
    want = {name: (where / name).read_bytes() for name in names}
    files = {name: open(where / name, 'rb', buffering=0) for name in names}
    maps = {name: mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) for name, f in files.items() if name != '_METADATA'}
    try:
        if first == 'begun before':
            assert all(f.read(100) == want[name][:100] for name, f in files.items())
        (m / '7.tmp').rename(m / '7')
        for name, f in files.items():
            assert os.fstat(f.fileno()).st_size == len(want[name])
            f.seek(0)
            got = b''.join(iter(lambda f=f: f.read(1 << 20), b''))
            assert got == want[name], name
        # A fault would end a process, and not this one.
        script = 'import sys, mmap, os\nfor a in sys.argv[1:]:\n m = mmap.mmap(int(a), 0, prot=mmap.PROT_READ)\n m[:]\n'
        fds = [files[name].fileno() for name in maps]
        subprocess.run([sys.executable, '-c', script, *map(str, fds)], pass_fds=fds, check=True)
        assert all(mapped[:] == want[name] for name, mapped in maps.items())
        assert not (m / '7.tmp').exists()
    finally:
        for opened in (*maps.values(), *files.values()):
            opened.close()


@pytest.mark.parametrize('option,cut,first', pairs(['ocdbt=on', 'ocdbt=off'], [1000, 300], FIRST))
def test_the_reader_of_a_part_reads_on_after_the_commit(mount, root, option, cut, first):
    """Its chunks are the whole's then (1000), or were encoded anew; its own bytes are there until it is closed, also for a map."""
    m = mount(root, option)
    where = begin_empty(m)
    whole = np.arange(2_000_000, dtype=np.float32).reshape(2000, 1000)
    names = [f'p[0:{cut},0:1000]@2000x1000.npy', f'p[{cut}:2000,0:1000]@2000x1000.npy']
    for name, part in zip(names, (whole[:cut], whole[cut:])):
        np.save(where / name, part)
    want = {name: (where / name).read_bytes() for name in names}
    files = {name: open(where / name, 'rb', buffering=0) for name in names}
    try:
        check_readers(files, want, lambda: (m / '7.tmp').rename(m / '7'), first)
    finally:
        for f in files.values():
            f.close()
    # A chunk is not decoded once more for each row that is joined.
    assert m.stats()['chunk_bytes_decoded'] < 20 * whole.nbytes
    assert np.array_equal(np.load(m / '7/default/p.npy'), whole)


def open_while_it_is_committed(m, step, names):
    """Files of a draft that are opened when its commit has begun; those of them that were there in time."""
    where, files = m / f'{step}.tmp/default', {}
    with futures.ThreadPoolExecutor(1) as pool:
        done = pool.submit((m / f'{step}.tmp').rename, m / str(step))
        try:
            while not files and not done.done():
                try:
                    os.setxattr(where, 'user.pytree.kind', b'dict')     # an open file would refuse the commit
                except OSError as e:
                    if e.errno != errno.EBUSY:
                        raise
                    for name in names:
                        files[name] = open(where / name, 'rb', buffering=0)
        except OSError as e:                    # the commit was quicker
            assert e.errno in (errno.ENOENT, errno.ESTALE, errno.EROFS), e
        done.result()
    return files


@pytest.mark.parametrize('options', [(), ('ocdbt=off',)])
def test_whoever_opens_a_part_during_the_commit_reads_on(mount, root, options):
    m = mount(root, 'io=fault(sync:delay=100:always):auto', *options, allow_errors=True)
    whole = np.arange(200_000, dtype=np.float32).reshape(200, 1000)
    names = ['p[0:70,0:1000]@200x1000.npy', 'p[70:200,0:1000]@200x1000.npy']
    for step in range(7, 27):
        where = begin_empty(m, str(step))
        for name, part in zip(names, (whole[:70], whole[70:])):
            np.save(where / name, part)
        want = {name: (where / name).read_bytes() for name in names}
        files = open_while_it_is_committed(m, step, names)
        try:
            if len(files) == len(names):
                check_readers(files, want, lambda: None, 'from the front')
        finally:
            for f in files.values():
                f.close()
        assert np.array_equal(np.load(m / f'{step}/default/p.npy'), whole)
        if len(files) == len(names):
            return
    pytest.fail('each commit ended before both were opened')


def check_readers(files, want, commit, first):
    """Every byte of open files after the commit, by read and by a map, with nothing of them in the page cache."""
    maps = {name: mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) for name, f in files.items()}
    if first == 'begun before':
        assert all(f.read(100) == want[name][:100] for name, f in files.items())
    commit()
    for name, f in files.items():
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert os.fstat(f.fileno()).st_size == len(want[name])
        f.seek(0)
        assert b''.join(iter(lambda f=f: f.read(1 << 20), b'')) == want[name], name
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    # A fault would end a process, and not this one.
    script = 'import sys, mmap, os\nfor a in sys.argv[1:]:\n m = mmap.mmap(int(a), 0, prot=mmap.PROT_READ)\n m[:]\n'
    fds = [f.fileno() for f in files.values()]
    subprocess.run([sys.executable, '-c', script, *map(str, fds)], pass_fds=fds, check=True)
    assert all(maps[name][:] == want[name] for name in maps)
    for mapped in maps.values():
        mapped.close()


@pytest.mark.parametrize('first', FIRST)
def test_the_reader_of_an_array_in_the_legacy_file_reads_on(mount, root, first):
    """No chunks of it are in the step: `aggregate=*` puts its values into one file."""
    m = mount(root, 'aggregate=**')
    where = begin_empty(m)
    want, files = {}, {}
    for name, n in (('large.npy', 2_000_000), ('small.npy', 5)):
        np.save(where / name, np.arange(n, dtype=np.float32))
        want[name] = (where / name).read_bytes()
        files[name] = open(where / name, 'rb', buffering=0)
    try:
        check_readers(files, want, lambda: (m / '7.tmp').rename(m / '7'), first)
    finally:
        for f in files.values():
            f.close()
    assert (m / '7/default/large.npy').read_bytes() == want['large.npy']


def test_a_failed_commit_keeps_nothing_for_readers(mount, root):
    """Contents written after it are read back, and the next commit stores them."""
    m = mount(root, allow_errors=True)
    where = begin_empty(m)
    whole = np.arange(200_000, dtype=np.float32).reshape(200, 1000)
    names = ['p[0:100,0:1000]@200x1000.npy', 'p[100:200,0:1000]@200x1000.npy']
    for name, part in zip(names, (whole[:100], whole[100:])):
        np.save(where / name, part)
    (where / 'bad.npy').write_bytes(b'no array')
    with open(where / names[0], 'rb', buffering=0) as f:
        with pytest.raises(OSError):
            (m / '7.tmp').rename(m / '7')
        whole[:100] += 1
        np.save(where / names[0], whole[:100])
        (where / 'bad.npy').unlink()
        want = (where / names[0]).read_bytes()
        (m / '7.tmp').rename(m / '7')
        assert f.read() == want
    assert np.array_equal(np.load(m / '7/default/p.npy'), whole)
