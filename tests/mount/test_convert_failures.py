# SPDX-License-Identifier: Apache-2.0
"""save, convert, export and merge when something goes wrong: nothing half-made under the final name, nothing
left beside it, and a message that names leaf and file."""

import fcntl
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
import zipfile

import numpy as np
import pytest

from lib import mounts, strace
from lib.pairs import pairs

SAMPLE = pathlib.Path(__file__).resolve().parents[1] / 'data' / 'sample'
ITEM = SAMPLE / '1000/state'
LAYER = ITEM / 'params/layers/0'
OUTPUTS = ['convert ck', 'export m.npz', 'export m.safetensors', 'export m.zarr', 'export npy']


def words(output, source, where):
    command, name = output.split()
    return [command, str(source), str(pathlib.Path(where) / name)]


def listing(path):
    return sorted(p.relative_to(path).as_posix() for p in pathlib.Path(path).rglob('*'))


def contents(run, path):
    """
    Return the contents of an output: the leaves of a checkpoint, whose files have random names; that a page, which has the time in
    it, is whole; all bytes of all others.
    """
    if path.name == 'ck':
        return run('tree', path).stdout.splitlines()[1:]
    if path.suffix == '.html':
        return path.read_bytes().rstrip().endswith(b'</html>')
    return {name: (path / name).read_bytes() for name in listing(path) if (path / name).is_file()} or path.read_bytes()


def faults():
    """Which change fails: each with TEST_EVERY_FAULT, else the first ones and a part of the others."""
    return range(1, 5000) if os.environ.get('TEST_EVERY_FAULT') else [*range(1, 8), *range(8, 5000, 13)]


@pytest.fixture(scope='module')
def large(tmp_path_factory):
    """64 MiB that do not compress, in leaves of 8 MiB, as a directory of files."""
    d = tmp_path_factory.mktemp('large') / 'in'
    d.mkdir()
    rng = np.random.default_rng(1)
    for i in range(8):
        np.save(d / f'w{i}.npy', rng.integers(0, 256, 8 << 20, np.uint8))
    return d


@pytest.fixture(scope='module')
def large_checkpoint(program, large):
    subprocess.run([program, 'convert', large, large.parent / 'ck'], check=True)
    return large.parent / 'ck'


# ---- one step of many ----

def test_the_steps_of_a_root_that_can_be_read_are_converted(run, tmp_path):
    root, out = tmp_path / 'root', tmp_path / 'out'
    shutil.copytree(SAMPLE, root)
    for step in ('1100', '1200'):
        shutil.copytree(SAMPLE / '1000', root / step)
    os.truncate(root / '1100/state/_METADATA', 100)
    for path in (root / '1200/state').rglob('manifest.ocdbt'):
        path.unlink()
    r = run('convert', root, out, ok=False)
    assert r.returncode == 1 and "pytreefs: step '1100': " in r.stderr and "pytreefs: step '1200': " in r.stderr
    assert 'pytreefs: 2 of 4 steps could not be converted\n' in r.stderr
    assert sorted(os.listdir(out)) == ['1000', '1500', 'metadata'] and run('verify', out).returncode == 0
    made = {p: p.stat().st_mtime_ns for p in out.rglob('*')}
    r = run('convert', root, out, ok=False)
    assert r.returncode == 1 and "'1000'" in r.stderr and '--skip-existing converts the others' in r.stderr
    shutil.copy(SAMPLE / '1000/state/_METADATA', root / '1100/state')
    r = run('convert', '--json', '--skip-existing', root, out, ok=False)
    doc = json.loads(r.stdout)
    assert r.returncode == 1 and (doc['checkpoints'], doc['skipped'], doc['failed']) == (1, 2, ['1200'])
    assert all(p.stat().st_mtime_ns == t for p, t in made.items() if p != out) and run('diff', SAMPLE / '1000', out / '1100').returncode == 0
    shutil.rmtree(root / '1200')
    assert run('convert', '--skip-existing', root, out).stderr == ''


def test_a_root_without_a_step_that_can_be_read_makes_nothing(run, tmp_path):
    shutil.copytree(SAMPLE / '1000', tmp_path / 'root/1000')
    os.truncate(tmp_path / 'root/1000/state/_METADATA', 100)
    for out in ('out', 'new/out'):
        r = run('convert', tmp_path / 'root', tmp_path / out, ok=False)
        assert r.returncode == 1 and '1 of 1 steps' in r.stderr and os.listdir(tmp_path) == ['root']


@pytest.mark.parametrize('words, why', [(['--force', SAMPLE, 'out'], 'what --force would replace'), ([SAMPLE / '1000', 'out'], 'is not a directory of steps'),
                                        ([ITEM, 'a.npz'], 'is for an OUT that is a checkpoint')])
def test_skip_existing_is_for_directories_of_steps(run, tmp_path, words, why):
    r = run('convert', '--skip-existing', *words, ok=False, cwd=tmp_path)
    assert r.returncode and why in r.stderr and not os.listdir(tmp_path)


# ---- what is there already ----

@pytest.mark.parametrize('output', OUTPUTS)
def test_what_is_there_stays(run, tmp_path, output):
    first = run(*words(output, ITEM / 'params', tmp_path))
    before = {p: p.read_bytes() for p in tmp_path.rglob('*') if p.is_file()}
    r = run(*words(output, ITEM, tmp_path), ok=False)
    assert r.returncode == 1 and '--force' in r.stderr and first.returncode == 0
    assert {p: p.read_bytes() for p in tmp_path.rglob('*') if p.is_file()} == before
    command, *rest = words(output, ITEM, tmp_path)
    run(command, '--force', *rest)
    name = output.split()[1]
    back = tmp_path / name if name == 'ck' else tmp_path / 'back'
    if name != 'ck':
        run('convert', tmp_path / name, back)
    assert run('diff', ITEM, back).returncode == 0
    assert {p.name for p in tmp_path.iterdir()} == {name, back.name}


@pytest.mark.parametrize('output', ['convert d', 'export d', 'export d.zarr'])
def test_force_replaces_no_strangers(run, tmp_path, output):
    """A directory of something else is not taken for an old result."""
    d = tmp_path / output.split()[1]
    d.mkdir()
    (d / 'thesis.tex').write_text('years of work')
    command, *rest = words(output, ITEM, tmp_path)
    r = run(command, '--force', *rest, ok=False)
    assert r.returncode == 1 and ('--force replaces only' in r.stderr or ' replaced' in r.stderr), r.stderr
    assert listing(tmp_path) == [d.name, f'{d.name}/thesis.tex']


def test_force_replaces_no_directory_that_only_has_checkpoints_in_it(run, tmp_path):
    """Steps of Flax, which are files; a project beside checkpoints without a number; an empty directory is replaced."""
    (tmp_path / 'flax').mkdir()
    for step in (1, 2):
        (tmp_path / f'flax/checkpoint_{step}').write_bytes(b'\x81\xa1a\xc0')
    (tmp_path / 'project/src').mkdir(parents=True)
    (tmp_path / 'project/src/a.c').write_text('int a;')
    for name in ('best', 'last'):
        shutil.copytree(SAMPLE / '1500/state', tmp_path / 'project' / name)
    (tmp_path / 'empty').mkdir()
    for name in ('flax', 'project'):
        before = sorted(p for p in (tmp_path / name).rglob('*'))
        r = run('convert', '--force', SAMPLE / '1500', tmp_path / name, ok=False)
        assert r.returncode == 1 and 'is not a checkpoint: only those are replaced' in r.stderr, r.stderr
        assert sorted(p for p in (tmp_path / name).rglob('*')) == before
    run('convert', '--force', SAMPLE / '1500', tmp_path / 'empty')
    run('convert', '--force', SAMPLE / '1000', tmp_path / 'empty')
    assert run('diff', SAMPLE / '1000', tmp_path / 'empty').returncode == 0


@pytest.mark.parametrize('command', ['convert', 'save'])
def test_the_directory_of_the_first_step_is_made(run, tmp_path, command):
    """And removed, if nothing comes into it. What that is in must exist."""
    run(command, ITEM, tmp_path / 'new/7')
    assert run('diff', ITEM, tmp_path / 'new/7').returncode == 0
    for step in (tmp_path / 'a/b/7', tmp_path / 'other/7'):
        r = run(command, '-o', 'transforms={"rules": [{"key": "x"\\, "original_key": "nothing"}]}', ITEM, step, ok=False)
        assert r.returncode == 1 and r.stderr, r
    assert listing(tmp_path)[0] == 'new' and not (tmp_path / 'other').exists() and not (tmp_path / 'a').exists()


@pytest.mark.parametrize('command', ['convert', 'save'])
def test_force_over_a_mount_point_is_refused_at_the_begin(run, tmp_path, command):
    """It could not be renamed, which would be noticed when everything is written. Nothing is written now, and nothing is removed."""
    (tmp_path / '5').mkdir()
    subprocess.run(['mount', '-t', 'tmpfs', 'none', tmp_path / '5'], check=True)
    try:
        for inside in ('empty', 'checkpoint'):
            if inside == 'checkpoint':
                shutil.copytree(ITEM, tmp_path / '5', dirs_exist_ok=True)
            before = listing(tmp_path)
            r = run(command, '--force', ITEM, tmp_path / '5', '--quiet', '-o', 'io=trace:sync', ok=False)
            assert r.returncode == 1 and "5' is a mount point" in r.stderr, r.stderr
            assert listing(tmp_path) == before and 'mkdir' not in r.stderr
    finally:
        subprocess.run(['umount', tmp_path / '5'], check=True)


def test_what_became_a_stranger_meanwhile_is_not_replaced(program, large, tmp_path):
    """The checkpoint that --force found is exchanged for another directory while the new one is written."""
    shutil.copytree(ITEM, tmp_path / 'ck')
    p = subprocess.Popen([program, 'convert', '--force', '-o', 'compression=zstd:15', large / 'w0.npy', tmp_path / 'ck'], stderr=subprocess.PIPE)
    while p.poll() is None and not (tmp_path / '.ck.pytreefs-draft').exists():
        time.sleep(0.0005)
    mounts.stop(p.pid)
    try:
        assert p.poll() is None
        (tmp_path / 'ck').rename(tmp_path / 'elsewhere')
        (tmp_path / 'ck').mkdir()
        (tmp_path / 'ck/thesis.tex').write_text('years of work')
    finally:
        p.send_signal(signal.SIGCONT)
    err = p.communicate(timeout=240)[1].decode()
    assert p.returncode == 1 and "'ck' is not a checkpoint: only those are replaced" in err, err
    assert listing(tmp_path / 'ck') == ['thesis.tex'] and sorted(os.listdir(tmp_path)) == ['ck', 'elsewhere']


def test_latest_is_not_a_name_for_something_new(run, tmp_path):
    """It is read as the newest step, so what has that name would be hidden by the first step beside it."""
    np.save(tmp_path / 'w.npy', np.ones(3))
    for name in ('empty', 'root', 'other'):
        (tmp_path / name).mkdir()
    run('save', tmp_path / 'w.npy', tmp_path / 'root/1')
    (tmp_path / 'other/notes.txt').write_text('x')
    before = listing(tmp_path)
    for command, source, out in [
            *(('convert', SAMPLE / '1500', f'{top}/latest{end}') for top in ('empty', 'root', 'other') for end in ('', '/', '/7', '/run/7')),
            ('convert', ITEM, 'empty/latest'), ('convert', ITEM, 'root/latest/state'), ('convert', SAMPLE, 'root/latest'),
            ('save', ITEM, 'empty/latest'), ('save', ITEM, 'root/latest/7'), ('export', ITEM, 'root/latest'),
            ('convert', ITEM, 's3://bucket/run/latest'), ('convert', ITEM, 'gs://bucket/run/latest/state')]:
        r = run(command, source, out if '://' in out else tmp_path / out, ok=False)
        assert r.returncode == 1 and re.search("latest/?' is (read as the newest step|not a name of a step)", r.stderr), (command, out, r.stderr)
    assert listing(tmp_path) == before
    run('export', ITEM, tmp_path / 'other/latest')


def test_a_step_that_is_there(run, tmp_path):
    run('save', ITEM / 'params', tmp_path / 'root/5')
    r = run('save', ITEM, tmp_path / 'root/5', ok=False)
    assert r.returncode == 1 and "5' is there already" in r.stderr
    r = run('save', ITEM, tmp_path / 'root/notastep', ok=False)
    assert r.returncode == 1 and 'notastep' in r.stderr
    assert os.listdir(tmp_path / 'root') == ['5']


def test_in_place_with_force(run, tmp_path):
    """A checkpoint is converted onto itself: read while it is written, replaced when that is whole."""
    run('convert', ITEM, tmp_path / 'ck')
    run('convert', '--force', '-o', 'zarr=3,compression=none', tmp_path / 'ck', tmp_path / 'ck')
    assert run('diff', ITEM, tmp_path / 'ck').returncode == 0
    assert os.listdir(tmp_path) == ['ck']


# ---- no room ----

def on_small_disk(program, command, size):
    """Run it with a file system of its own of that size: its output, and what is left there afterwards."""
    script = ('mount -t tmpfs -o size=%s none "$0" || exit 77; cd "$0"; "$@"; echo "status $?"; find . -mindepth 1' % size)
    with tempfile.TemporaryDirectory() as d:
        r = subprocess.run(['unshare', '-rm', 'sh', '-c', script, d, program, *command], capture_output=True, text=True,
                           timeout=240)
    if 'status' not in r.stdout:
        pytest.skip('no mount namespace can be made here')
    return r


@pytest.mark.parametrize('output', OUTPUTS)
def test_a_full_disk_leaves_nothing(program, large_checkpoint, output):
    r = on_small_disk(program, words(output, large_checkpoint, '.'), '20m')
    assert r.stdout.splitlines() == ['status 1'], r.stdout + r.stderr
    assert 'No space left' in r.stderr and "w" in r.stderr, r.stderr


def test_the_small_disk_is_not_a_fault_by_itself(program, large_checkpoint):
    """The same with room enough: so the test above tests what it says."""
    r = on_small_disk(program, words('export npy', large_checkpoint, '.'), '100m')
    assert r.stdout.splitlines()[0] == 'status 0' and './npy/w0.npy' in r.stdout


# ---- durable before it is there ----

@pytest.mark.skipif(not shutil.which('strace'), reason='no strace is installed')
@pytest.mark.parametrize('output', [*OUTPUTS, 'export m.zarr -o zarr=3'])
def test_everything_is_synced_before_it_has_its_name(program, tmp_path, output):
    """Each file and directory of the result, by the calls that were made; then its parent, which has the name."""
    command, name, *options = output.split()
    log = tmp_path / 'calls'
    where = tmp_path / 'out'
    where.mkdir()
    # Data files are synced through the ring where there is one; here every call is to be seen.
    strace.run('fsync,fdatasync,renameat2', log, [program, command, '-o', 'io=sync', *options, ITEM, where / name], check=True, timeout=240)
    synced, published = set(), False
    for line in log.read_text().splitlines():
        call = re.search(r'(fsync|fdatasync)\(\d+<([^>]*)>', line)
        rename = re.search(r'renameat2\((.*?), "([^"]*)", .*, "([^"]*)"', line)
        if call:
            synced.add(call[2])
        elif rename and rename[3] == name:
            published, before, temp = True, synced, os.path.basename(rename[2])
            synced = set()
        elif rename:
            # A leaf of a draft gets its name: what was synced below moves along.
            synced = {p.replace('/' + rename[2], '/' + rename[3]) for p in synced}
    assert published and str(where) in synced, log.read_text()[-2000:]
    result = where / name
    parts = [result, *result.rglob('*')] if result.is_dir() else [result]
    lost = [p for p in parts if str(where / temp / p.relative_to(result)).rstrip('/.') not in before]
    assert not lost, (lost, sorted(before))


# ---- each change of the disk fails once ----

@pytest.mark.parametrize('output,rule', pairs([*OUTPUTS, 'report page.html'], ['change:eio', 'write:torn']))
def test_every_failed_change_leaves_nothing_or_all(run, tmp_path, output, rule):
    """The Nth change fails, for every N: the result is not there and nothing else is, or it is whole."""
    name, failed, fine = output.split()[1], 0, 0
    run(*words(output, LAYER, tmp_path))
    expected = contents(run, tmp_path / name)
    out = tmp_path / 'out'
    for n in faults():
        out.mkdir()
        r = run(*words(output, LAYER, out), '-o', f'io=fault({rule}:{n}):sync', ok=False)
        if r.returncode:
            assert r.returncode == 1 and ('error' in r.stderr or 'No space' in r.stderr), (n, r.stderr)
            assert not os.listdir(out), (n, r.stderr)
            failed += 1
            fine = 0
        else:
            assert (out / name).exists() and contents(run, out / name) == expected, n
            fine += 1
        shutil.rmtree(out)
        if fine > 2:
            break
    assert failed and fine > 2


@pytest.mark.parametrize('output', OUTPUTS)
def test_every_failed_change_of_a_replacement_leaves_the_old(run, tmp_path, output):
    """With --force what was there stays whole until all of the new one is there."""
    name, fine, kept = output.split()[1], 0, 0
    old, new = tmp_path / 'old', tmp_path / 'new'
    for path, source in ((old, LAYER / 'mlp'), (new, LAYER)):
        path.mkdir()
        run(*words(output, source, path))
    before, after = contents(run, old / name), contents(run, new / name)
    out = tmp_path / 'out'
    for n in faults():
        shutil.copytree(old, out)
        command, *rest = words(output, LAYER, out)
        r = run(command, '--force', *rest, '-o', f'io=fault(change:eio:{n}):sync', ok=False)
        # A checkpoint is there once it has its name, also when it is not certain that the disk knows.
        allowed = [after] if r.returncode == 0 else [before, after] if name == 'ck' else [before]
        assert contents(run, out / name) in allowed, (n, r.stderr)
        kept += contents(run, out / name) == before and r.returncode != 0
        fine = 0 if r.returncode else fine + 1
        shutil.rmtree(out)
        if fine > 2:
            break
    assert kept >= 3 and fine > 2


# ---- interrupted ----

@pytest.mark.parametrize('output,sig', pairs(OUTPUTS, [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]))
def test_interrupted(program, large_checkpoint, tmp_path, output, sig):
    """Ctrl-C takes away what was made; after kill -9 there is at least nothing under the final name."""
    command, source, out = words(output, large_checkpoint, tmp_path)
    # Encoded anew, so that it takes a while.
    options = ['-o', 'compression=zstd:15'] if command == 'convert' or out.endswith('.zarr') else []
    while True:
        p = subprocess.Popen([program, command, *options, source, out], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while p.poll() is None and not os.listdir(tmp_path):
            time.sleep(0.0005)
        p.send_signal(sig)
        err = p.communicate(timeout=240)[1].decode()
        if p.returncode not in (0, -signal.SIGKILL) or not os.path.exists(out):
            break
        # It was done before the signal came; a kill may come between the rename and the end.
        subprocess.run(['rm', '-r', out], check=True)
    assert not os.path.exists(out)
    if sig != signal.SIGKILL:
        assert p.returncode == 1 and 'interrupted' in err, (p.returncode, err)
        assert not os.listdir(tmp_path)


def test_a_convert_that_was_killed_is_begun_afresh(program, run, large, tmp_path):
    """The draft that kill -9 left is in nobody's way."""
    p = subprocess.Popen([program, 'convert', '-o', 'compression=zstd:15', large, tmp_path / 'ck'])
    while p.poll() is None and not (tmp_path / '.ck.pytreefs-draft').exists():
        time.sleep(0.0005)
    p.kill()
    p.wait()
    # It is locked for a moment longer, see is_unlocked().
    mounts.wait_for(lambda: run('convert', '--force', large, tmp_path / 'ck', ok=False).returncode == 0)
    assert os.listdir(tmp_path) == ['ck']
    assert run('verify', tmp_path / 'ck').returncode == 0


def is_unlocked(path):
    """The kernel ends the ring of a killed process in the background. Until then the ring keeps a file open, and its lock."""
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


@pytest.mark.parametrize('output', OUTPUTS[1:])
def test_what_a_killed_export_left_goes_with_the_next(program, run, large_checkpoint, tmp_path, output):
    """Not what is still being written, what is of another output, or what only looks like it."""
    command, source, out = words(output, large_checkpoint, tmp_path)
    name = pathlib.Path(out).name
    options = ['-o', 'compression=zstd:19'] if name == 'm.zarr' else []
    left = [name]
    while left in ([], [name]):
        subprocess.run(['rm', '-rf', out], check=True)
        p = subprocess.Popen([program, command, *options, source, out])
        while p.poll() is None and not os.listdir(tmp_path):
            time.sleep(0.0005)
        p.kill()
        p.wait()
        left = os.listdir(tmp_path)
    assert left == [f'.{name}.pytreefs-{p.pid}']
    mounts.wait_for(lambda: is_unlocked(tmp_path / left[0]))
    others = [f'.{name}.pytreefs-{os.getpid()}', f'.{name}.pytreefs-{p.pid}x', f'.other.pytreefs-{p.pid}']
    for other in others:
        (tmp_path / other).mkdir()
    # As somebody on another host has it open, whose number says nothing here.
    with open(tmp_path / f'.{name}.pytreefs-{2 ** 22 + 1}', 'w') as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        run(command, ITEM / 'params', out)
        assert sorted(os.listdir(tmp_path)) == sorted([name, *others, pathlib.Path(held.name).name])
    run(command, '--force', ITEM / 'params', out)
    assert sorted(os.listdir(tmp_path)) == sorted([name, *others])


# ---- broken inputs ----

def broken(path, change):
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def flip_late(data):
    """In the values: near the end of the first half."""
    data[len(data) // 3] ^= 0xff


@pytest.mark.parametrize('kind', ['npz', 'packed'])
def test_a_damaged_npz_is_refused(run, tmp_path, kind):
    """Its checksums are checked; the message names the member, and the leaf that it was to be."""
    arrays = {'params/w': np.arange(100000, dtype=np.float32)}
    (np.savez if kind == 'npz' else np.savez_compressed)(tmp_path / 'a.npz', **arrays)
    broken(tmp_path / 'a.npz', flip_late)
    r = run('convert', tmp_path / 'a.npz', tmp_path / 'ck', ok=False)
    assert r.returncode == 1 and 'params/w' in r.stderr and 'a.npz' in r.stderr, r.stderr
    assert os.listdir(tmp_path) == ['a.npz']


def test_a_member_of_an_npz_has_one_name(run, tmp_path):
    """A flipped bit in the directory of the archive: the leaf would have another name. numpy refuses it, too."""
    np.savez(tmp_path / 'a.npz', weight=np.arange(3))
    data = (tmp_path / 'a.npz').read_bytes()
    at = data.rindex(b'weight')
    (tmp_path / 'a.npz').write_bytes(data[:at] + b'W' + data[at + 1:])
    with pytest.raises(zipfile.BadZipFile):
        np.load(tmp_path / 'a.npz')['Weight']
    r = run('convert', tmp_path / 'a.npz', tmp_path / 'ck', ok=False)
    assert r.returncode == 1 and "'Weight.npy' of its directory is called 'weight.npy'" in r.stderr and os.listdir(tmp_path) == ['a.npz']


def test_a_zero_before_a_number_of_an_npy(run, tmp_path):
    """Python, and so numpy, has no such number."""
    np.save(tmp_path / 'a.npy', np.arange(3))
    data = (tmp_path / 'a.npy').read_bytes()
    (tmp_path / 'a.npy').write_bytes(data.replace(b'(3,), } ', b'(03,), }'))
    with pytest.raises(ValueError):
        np.load(tmp_path / 'a.npy')
    r = run('convert', tmp_path / 'a.npy', tmp_path / 'ck', ok=False)
    assert r.returncode == 1 and 'npy header is not a dict' in r.stderr and not (tmp_path / 'ck').exists()


@pytest.mark.parametrize('value', [np.array(7, '>i8'), np.array(7, '<i4'), np.array(7, '<f8'), np.array([7])], ids=lambda v: f'{v.dtype.str}{v.shape}')
def test_a_number_of_an_npz_is_as_its_tree_says(run, tmp_path, value):
    """It is stored as its bytes are; another byte order or type would be another number."""
    run('export', ITEM, tmp_path / 'm.npz')
    with zipfile.ZipFile(tmp_path / 'm.npz') as z, zipfile.ZipFile(tmp_path / 'a.npz', 'w') as out:
        out.comment = z.comment
        for name in z.namelist():
            with out.open(name, 'w') as f:
                np.save(f, value) if name == 'step.npy' else f.write(z.read(name))
    r = run('convert', tmp_path / 'a.npz', tmp_path / 'ck', ok=False)
    assert r.returncode == 1 and "step.json': it is not a number of dtype int64" in r.stderr, r.stderr
    assert not (tmp_path / 'ck').exists()


@pytest.mark.parametrize('name', ['m.npz', 'm.safetensors'])
def test_cut_at_any_byte(run, tmp_path, name):
    """A file that lost its end is refused, wherever it was cut."""
    run('export', ITEM, tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    for n in [0, 1, 7, 8, 9, 100, len(whole) // 2, len(whole) - 65, len(whole) - 22, len(whole) - 2, len(whole) - 1]:
        (tmp_path / name).write_bytes(whole[:n])
        r = run('convert', tmp_path / name, tmp_path / 'ck', ok=False)
        assert r.returncode == 1 and name in r.stderr, (n, r.returncode, r.stderr)
        assert os.listdir(tmp_path) == [name], n


def test_a_damaged_chunk_names_its_leaf(run, tmp_path):
    """Of a checkpoint: leaf, chunk and file are named, and nothing is left."""
    run('convert', '-o', 'ocdbt=off', ITEM, tmp_path / 'ck')
    chunk = tmp_path / 'ck/params.embed.table/0.0'
    broken(chunk, lambda data: data.__setitem__(slice(0, 4), b'\0\0\0\0'))
    for output in OUTPUTS[1:]:
        r = run(*words(output, tmp_path / 'ck', tmp_path), ok=False)
        assert r.returncode == 1 and 'embed' in r.stderr, r.stderr
        assert os.listdir(tmp_path) == ['ck']
    r = run('convert', '-o', 'compression=none', tmp_path / 'ck', tmp_path / 'out', ok=False)
    assert r.returncode == 1 and 'params/embed/table.npy' in r.stderr
    assert os.listdir(tmp_path) == ['ck']


@pytest.mark.parametrize('content', ['{', '[]', '{"leaves": {"w": 5}}', '{"leaves": {"w": "../../x.npy"}}',
                                     '{"kinds": {"../x": "list"}}', '{"kinds": {"": "nonsense"}}',
                                     '{"leaves": {"w": "a\\u0000b"}}', '{"marks": {"w.npy": {"key": 5}}}',
                                     '{"custom": {"": 5}}', '{"dtypes": {"w.npy": "int99"}, "step": 3}'])
def test_a_hostile_structure(run, tmp_path, content):
    """The manifest beside the arrays is not trusted: no path leaves the draft."""
    import safetensors.numpy
    safetensors.numpy.save_file({'w': np.arange(4)}, tmp_path / 'm.safetensors', metadata={'pytreefs': content})
    (tmp_path / 'out').mkdir()
    r = run('convert', tmp_path / 'm.safetensors', tmp_path / 'out/ck', ok=False)
    assert r.returncode == 1 and r.stderr, (r.stdout, r.stderr)
    assert listing(tmp_path) == ['m.safetensors', 'out']


def test_unusable_inputs(run, tmp_path):
    (tmp_path / 'empty').mkdir()
    (tmp_path / 'text.npz').write_text('no archive')
    (tmp_path / 'other').mkdir()
    (tmp_path / 'other/readme.md').write_text('x')
    for source in ('empty', 'text.npz', 'other', 'absent'):
        r = run('save', tmp_path / source, tmp_path / 'root/1', ok=False)
        assert r.returncode == 1 and source in r.stderr, (source, r.stderr)
    assert not (tmp_path / 'root').exists() or not os.listdir(tmp_path / 'root')


def test_a_file_becomes_no_other_file(run, tmp_path):
    """The message names the accepted inputs."""
    run('export', ITEM / 'params', tmp_path / 'm.npz')
    r = run('convert', tmp_path / 'm.npz', tmp_path / 'm.safetensors', ok=False)
    assert r.returncode == 1 and 'not a checkpoint' in r.stderr and os.listdir(tmp_path) == ['m.npz']


def test_a_cut_safetensors_file_says_both_sizes(run, tmp_path):
    import safetensors.numpy
    file = tmp_path / 'm.safetensors'
    safetensors.numpy.save_file({'w': np.arange(4)}, file)
    size = file.stat().st_size
    os.truncate(file, size - 1)
    r = run('convert', file, tmp_path / 'ck', ok=False)
    assert f'has {size - 1} bytes, its header says {size}' in r.stderr, r.stderr


@pytest.mark.parametrize('name', ['m.npz', 'packed.npz', 'm.safetensors', 'm.zarr'])
def test_flipped_bytes_never_crash(run, tmp_path, name):
    """Headers, directories and structures of damaged files: refused, or something that is a checkpoint."""
    if name == 'packed.npz':
        np.savez_compressed(tmp_path / name, **{f'a/{i}': np.arange(50 + i) for i in range(5)})
    else:
        run('export', ITEM / 'opt_state/0/mu/embed', tmp_path / name)
    file = tmp_path / name / '.zattrs' if name == 'm.zarr' else tmp_path / name
    whole, rng = file.read_bytes(), random.Random(7)
    # Where the structs are: the ends of the file, and a few bytes of the rest.
    places = [*range(min(len(whole), 60)), *range(max(0, len(whole) - 60), len(whole))]
    for at in sorted({*rng.sample(places, min(30, len(places))), *rng.sample(range(len(whole)), min(len(whole), 10))}):
        data = bytearray(whole)
        data[at] ^= rng.choice([1, 0x80, 0xff])
        file.write_bytes(data)
        r = run('convert', tmp_path / name, tmp_path / 'ck', ok=False, text=False)    # names may be broken, too
        assert r.returncode in (0, 1), (at, r.returncode, r.stderr)
        assert sorted(os.listdir(tmp_path)) == sorted([name, 'ck'] if r.returncode == 0 else [name]), at
        if r.returncode == 0:
            shutil.rmtree(tmp_path / 'ck')


def test_a_chunk_that_is_much_too_long_is_not_copied(run, mount, tmp_path):
    """Stored chunks go from place to place undecoded, but not three gigabytes of them for an array of 4 KiB."""
    (tmp_path / 'in').mkdir()
    np.save(tmp_path / 'in/w.npy', np.arange(1024, dtype=np.int32))
    run('save', '-o', 'ocdbt=off', tmp_path / 'in', tmp_path / 'source/1')
    chunk, = (p for p in (tmp_path / 'source/1').rglob('w/0') if p.is_file())
    os.truncate(chunk, 3 << 30)
    for words in (['convert'], ['convert', '-o', 'ocdbt=off'], ['export', '--format', 'zarr']):
        r = run(*words, tmp_path / 'source/1', tmp_path / 'out', ok=False)
        assert r.returncode == 1 and 'is stored in 3221225472' in r.stderr and not (tmp_path / 'out').exists()
    m = mount(tmp_path / 'source', 'ocdbt=off', allow_errors=True)
    (m / '2.tmp/default').mkdir(parents=True)
    with pytest.raises(OSError):
        shutil.copyfile(m / '1/default/w.npy', m / '2.tmp/default/w.npy')
    used = sum(p.stat().st_blocks for p in (tmp_path / 'source').rglob('*')) * 512
    assert used < 10_000_000
