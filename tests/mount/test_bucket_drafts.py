# SPDX-License-Identifier: Apache-2.0
"""Drafts in a mount of a bucket: a step is copied into one, and renamed; it is there and whole, or not there for any reader."""

import errno
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading

import numpy as np
import pytest

from lib import buckets, compare, dying_upload, mounts
from lib.pairs import on, on_buckets

BUCKET = 'drafts'
IN_MEMORY = True  # both for the fixtures
SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data/sample'
MARKER, CLAIM = dying_upload.MARKER, dying_upload.CLAIM
W = np.arange(300_000, dtype=np.float32)


@pytest.fixture
def root(bucket, proxy):
    return f'{bucket.scheme}://drafts/run'


@pytest.fixture
def opened(mount, root, spill):
    """opened('option=value', ...): a mount of the root, whose steps have to be made."""
    return lambda *options, **how: mount(root, 'shape=root', *options, **how)


def begin(m, step=5):
    """A draft with two leaves."""
    d = m.path / f'{step}.tmp'
    (d / 'state').mkdir(parents=True)
    np.save(d / 'state/w.npy', W)
    (d / 'state/n.json').write_text('7')
    return d


def text(m):
    return '\n'.join(m.log_lines())


def gone(m):
    """Its process has ended."""
    pid = m.pid
    subprocess.run(['umount', '-l', m.path], capture_output=True)
    mounts.wait_for(lambda: mounts.has_ended(pid))


def leaves(step):
    return {k: v for k, v in compare.contents(step).items() if not k.endswith('_METADATA')}


def files_of(spill):
    return [p for p in spill.rglob('*') if p.is_file() and p.name != '.lock']


@pytest.mark.parametrize('bucket, option', on_buckets('ocdbt=on', 'ocdbt=off', 'zarr=3', 'manifest=on'), indirect=['bucket'])
def test_a_copied_step(opened, run, mount, bucket, root, spill, option):
    """cp -r of a step of one mount into a draft of another, and mv."""
    m = opened(option, 'sandbox=require')
    assert os.listdir(m.path) == []
    subprocess.run(['cp', '-r', mount(SAMPLE).path / '1500', m.path / '1500.tmp'], check=True)
    assert files_of(spill) and bucket.keys() == [f'run/1500/{CLAIM}']
    subprocess.run(['mv', m.path / '1500.tmp', m.path / '1500'], check=True)
    assert os.listdir(m.path) == ['1500'] and not files_of(spill)
    assert f'run/1500/{MARKER}' in bucket.keys() and not any(CLAIM in k for k in bucket.keys())
    assert leaves(m.path / '1500') == leaves(mount(SAMPLE).path / '1500')
    # Between two mounts, only copies with attributes carry what random keys are (docs/writing.md).
    said = run('diff', SAMPLE / '1500', f'{root}/1500', ok=False).stdout.splitlines()
    assert said[0] == 'state/rng.npy: dtype: key<threefry2x32>, and uint32' and said[1].endswith(' 1 difference'), said
    assert '0 errors, 0 warnings' in run('verify', root).stdout


@pytest.mark.parametrize('bucket, option', on_buckets('ocdbt=on', 'ocdbt=off'), indirect=['bucket'])
def test_a_copied_step_that_is_a_tree(opened, run, mount, bucket, root, tmp_path, option):
    """Its first level looks like items while it is copied, and what was uploaded for them does not stay. Files beside it come along."""
    d = tmp_path / 'in'
    (d / 'params').mkdir(parents=True)
    (tmp_path / 'steps').mkdir()
    np.save(d / 'params/w.npy', W)
    np.save(d / 'v.npy', W[:5])
    run('convert', d, tmp_path / 'steps/7')
    (tmp_path / 'steps/7').rename(tmp_path / 'step')
    run('convert', tmp_path / 'step/default', tmp_path / 'steps/7')
    (tmp_path / 'steps/7/config.json').write_text('{"a": 1}')
    assert (tmp_path / 'steps/7/_METADATA').exists()
    m = opened(option, 'target_data_file_size=64K')
    subprocess.run(['cp', '-a', mount(tmp_path / 'steps').path / '7', m.path / '7.tmp'], check=True)
    subprocess.run(['mv', m.path / '7.tmp', m.path / '7'], check=True)
    keys = [k.removeprefix('run/7/') for k in bucket.keys()]
    assert not [k for k in keys if k.startswith('params/') or 'pytreefs' in k], keys
    assert {'config.json', '_METADATA', MARKER} <= set(keys) and bucket.get('run/7/config.json') == b'{"a": 1}'
    assert run('diff', tmp_path / 'steps/7', f'{root}/7').returncode == 0
    assert '0 errors, 0 warnings' in run('verify', root).stdout


@pytest.mark.parametrize('bucket, option', on_buckets('ocdbt=on', 'ocdbt=off'), indirect=['bucket'])
def test_other_files(opened, run, mount, bucket, root, spill, tmp_path, option):
    """Files beside arrays and items: put there by a copy in a mount and by convert, listed there, and copied from there."""
    shutil.copytree(SAMPLE / '1500', tmp_path / 'steps/1500')
    others = {'metadata.json': b'{"step": 3}', 'config.json': b'[]', '.git/config': b'c', 'empty': b'', 'state/LICENSE': b'free', 'state/assets/v.txt': b'v'}
    for name, data in others.items():
        (tmp_path / 'steps/1500' / name).parent.mkdir(exist_ok=True)
        (tmp_path / 'steps/1500' / name).write_bytes(data)
    run('convert', '-o', option, tmp_path / 'steps/1500', f'{root}/1')
    m = opened(option)
    for step, command in ((2, ['cp', '-r', m.path / '1']), (3, ['cp', '-a', mount(tmp_path / 'steps').path / '1500'])):
        subprocess.run([*command, m.path / f'{step}.tmp'], check=True)
        subprocess.run(['mv', m.path / f'{step}.tmp', m.path / str(step)], check=True)
    run('convert', f'{root}/2', tmp_path / 'back')
    for step in (1, 2, 3):
        assert {name: bucket.get(f'run/{step}/{name}') for name in others} == others
        assert {name: (m.path / str(step) / name).read_bytes() for name in others} == others
        assert {'metadata.json', '.git', 'empty'} <= set(os.listdir(m.path / str(step)))
        assert run('diff', tmp_path / 'steps/1500', f'{root}/{step}').returncode == 0
    assert {name: (tmp_path / 'back' / name).read_bytes() for name in others} == others


@on('gs')
def test_it_restores(opened, bucket, proxy, root, tmp_path):
    """By TensorStore, from the files of the bucket as they are."""
    import tensorstore as ts
    d = begin(opened())
    d.rename(d.with_suffix(''))
    for key in bucket.keys():
        path = tmp_path / 'files' / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bucket.get(key))
    kv = {'driver': 'ocdbt', 'base': f'file://{tmp_path}/files/run/5/state'}
    assert np.array_equal(ts.open({'driver': 'zarr', 'kvstore': {**kv, 'path': 'w/'}}).result().read().result(), W)
    where = (tmp_path / 'files/run/5/state' / MARKER).read_text()
    assert where == f'Checkpoint commit was successful to {root}/5/state'


@on('s3')
def test_a_new_root_has_to_be_asked_for(program, opened, root, tmp_path):
    (tmp_path / 'mnt').mkdir()
    r = subprocess.run([program, 'mount', root, tmp_path / 'mnt'], capture_output=True, text=True)
    assert r.returncode == 1 and 'shape=root' in r.stderr, r.stderr
    assert os.listdir(opened().path) == []


@on('gs')
def test_other_mounts_see_it_when_it_is_whole(opened, bucket, root):
    a, b = opened(), opened('poll=200')
    d = begin(a)
    assert os.listdir(b.path) == []
    d.rename(a.path / '5')
    mounts.wait_for(lambda: os.listdir(b.path) == ['5'])
    assert np.array_equal(np.load(b.path / '5/state/w.npy'), W)


@on('s3')
def test_its_place_is_taken(opened, bucket, root, run):
    """By a draft of another mount, by a step, and by a command; each refusal says by whom."""
    a, b = opened(allow_errors=True), opened(allow_errors=True)
    d = begin(a)
    # Not EEXIST, which os.makedirs() takes for a directory that is there.
    with pytest.raises(OSError) as e:
        os.makedirs(b.path / '5.tmp/state', exist_ok=True)
    assert e.value.errno == errno.EBUSY and f"'{root}/5' is being written by process " in text(b)
    r = run('convert', SAMPLE / '1500', f'{root}/5', ok=False)
    assert 'is being written by' in r.stderr
    d.rename(a.path / '5')
    with pytest.raises(FileExistsError):
        (a.path / '5.tmp').mkdir()
    assert '0 errors, 0 warnings' in run('verify', root).stdout


def test_its_claim_is_lost(opened, bucket):
    """The mv says who has the place now; when nobody has it, the next one takes it again."""
    m = opened(allow_errors=True)
    other = b'pytreefs draft 1\nid=1\nhost=other\nboot=b\nnames=n\npid=1\nstarted=1\n'
    for step, held, who in (5, other, "process 1 of 'other' has it now"), (6, None, 'nobody has it now'):
        d, claim = begin(m, step), f'run/{step}/{CLAIM}'
        bucket.delete(claim)
        if held:
            bucket.put(claim, held)
        with pytest.raises(OSError) as e:
            d.rename(m.path / str(step))
        assert e.value.errno == errno.EBUSY and f"/{step}' was taken away from its writer" in text(m) and who in text(m)
        if held:
            with pytest.raises(OSError) as e:
                d.rename(m.path / str(step))
            assert e.value.errno == errno.EBUSY and bucket.get(claim) == held
            bucket.delete(claim)
        d.rename(m.path / str(step))
        assert np.array_equal(np.load(m.path / str(step) / 'state/w.npy'), W)


@on('gs')
def test_a_draft_has_one_name(opened, bucket):
    m = opened(allow_errors=True)
    d = begin(m)
    with pytest.raises(PermissionError):
        d.rename(m.path / '6')
    d.rename(m.path / '5')
    assert np.array_equal(np.load(m.path / '5/state/w.npy'), W)


@on('s3')
def test_an_abandoned_draft_leaves_nothing(opened, bucket, spill):
    m = opened()
    d = begin(m)
    shutil.rmtree(d)
    assert bucket.keys() == [] and not files_of(spill)
    begin(m)
    assert not m.unmount()
    assert bucket.keys() == [] and os.listdir(spill) == []
    assert 'was not committed, and was removed' in text(m)


@pytest.mark.parametrize('bucket, key', on_buckets('manifest.ocdbt', '_METADATA', '/5/' + MARKER), indirect=['bucket'])
def test_a_failed_commit_leaves_the_draft(opened, run, bucket, proxy, root, key):
    m = opened(allow_errors=True)
    d = begin(m)
    (d / 'state/gone.npy').write_bytes((d / 'state/w.npy').read_bytes())
    name = key if bucket.scheme == 's3' else key.replace('/', '%2F')
    proxy.fault = lambda h: buckets.is_put(name)(h) and (h.refuse(403, 'AccessDenied') or True)
    with pytest.raises(OSError):
        d.rename(m.path / '5')
    proxy.fault = None
    assert bucket.keys() == []
    assert key.strip('/').split('/')[-1] in text(m)
    assert np.array_equal(np.load(d / 'state/w.npy'), W)
    # It may be changed, and committed again: what it had at first is not in the step.
    (d / 'state/gone.npy').unlink()
    (d / 'state/more.json').write_text('8')
    d.rename(m.path / '5')
    assert sorted(os.listdir(m.path / '5/state')) == ['_METADATA', 'more.json', 'n.json', 'w.npy']
    assert '0 errors, 0 warnings' in run('verify', root).stdout


@on('gs')
def test_who_reads_the_draft_reads_on(opened, bucket):
    for step, option in enumerate(['ocdbt=on', 'ocdbt=off'], 5):
        m = opened(option)
        d = begin(m, step)
        whole = (d / 'state/w.npy').read_bytes()
        with open(d / 'state/w.npy', 'rb', buffering=0) as f:
            assert f.read(1000) == whole[:1000]
            d.rename(m.path / str(step))
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            assert f.readall() == whole[1000:]


@on('s3')
def test_a_bucket_that_may_not_be_written(opened, bucket, proxy):
    """It is said when the draft begins, and not after a terabyte."""
    m = opened(allow_errors=True)
    proxy.fault = lambda h: h.command in ('PUT', 'POST') and (h.refuse(403, 'AccessDenied') or True)
    with pytest.raises(PermissionError):
        (m.path / '5.tmp').mkdir()
    assert os.listdir(m.path) == []


@on('gs')
@pytest.mark.skipif(os.getuid() != 0, reason='only root may become somebody else')
def test_only_its_own_user_writes(bucket, proxy, root, program):
    """The credentials are that user's; the others read."""
    with tempfile.TemporaryDirectory(prefix='pytreefs-bucket-') as top:
        os.chmod(top, 0o755)
        m = mounts.Mount(program, root, pathlib.Path(top) / 'mnt', pathlib.Path(top) / 'log', ('shape=root', 'allow_other'))
        try:
            d = begin(m)
            d.rename(m.path / '5')
            keys = bucket.keys()
            for user in (65534, 1):
                r = subprocess.run(['mkdir', m.path / '6.tmp'], user=user, group=user, extra_groups=[], capture_output=True, text=True, cwd='/')
                assert r.returncode == 1 and 'Permission denied' in r.stderr, r
            assert bucket.keys() == keys
            r = subprocess.run(['cat', m.path / '5/state/n.json'], user=65534, group=65534, extra_groups=[], capture_output=True, cwd='/')
            assert r.stdout.strip() == b'7', r.stderr
        finally:
            assert not m.unmount()


@on('s3')
def test_spill_is_off(opened, bucket):
    m = opened('spill=off', allow_errors=True)
    with pytest.raises(OSError) as e:
        (m.path / '5.tmp').mkdir()
    assert e.value.errno == errno.EOPNOTSUPP and 'spill=off' in text(m) and bucket.keys() == []


@on('gs')
def test_an_item_of_a_step(opened, mount, run, bucket, root, spill):
    m = opened()
    d = begin(m)
    d.rename(m.path / '5')
    of_step = mount(f'{root}/5')
    more = of_step.path / 'more.tmp'
    more.mkdir()
    np.save(more / 'x.npy', W[:10])
    more.rename(of_step.path / 'more')
    assert np.array_equal(np.load(of_step.path / 'more/x.npy'), W[:10])
    assert not any(CLAIM in k for k in bucket.keys())


@on('s3')
def test_the_mount_ends_in_a_commit(opened, bucket, proxy, spill):
    """SIGTERM: the commit fails, and nothing stays."""
    m = opened(allow_errors=True)
    d = begin(m)
    begun, go, codes = threading.Event(), threading.Event(), []

    def hold(h):
        if buckets.is_put('_METADATA')(h):
            begun.set()
            assert go.wait(120)
        return False
    proxy.fault = hold

    def commit():
        try:
            d.rename(m.path / '5')
        except OSError as e:
            codes.append(e.errno)
    t = threading.Thread(target=commit)
    t.start()
    assert begun.wait(120)
    os.kill(m.pid, signal.SIGTERM)
    mounts.wait_for(lambda: any('SIGTERM: ending' in line for line in m.log_lines()))
    go.set()
    t.join(120)
    assert codes and codes[0] in (errno.ECANCELED, errno.ENOTCONN, errno.ECONNABORTED), codes
    gone(m)
    assert bucket.keys() == [] and os.listdir(spill) == []


@pytest.mark.parametrize('bucket, key', on_buckets(CLAIM, 'manifest.ocdbt', MARKER), indirect=['bucket'])
def test_the_mount_is_killed(opened, run, bucket, proxy, root, spill, key):
    """At a request of the commit: the step is there as a whole, or not at all; gc leaves nothing of it, and the next mount nothing on this machine."""
    m = opened(allow_errors=True)
    killed = []

    def kill(h):
        if buckets.is_put(key)(h) and 'state' not in h.path.rpartition(CLAIM)[0] and not killed:
            killed.append(h.path)
            os.kill(m.pid, signal.SIGKILL)
            return h.reset()
        return False
    proxy.fault = kill
    with pytest.raises(OSError):
        d = begin(m)
        d.rename(m.path / '5')
    proxy.fault = None
    assert killed
    gone(m)
    assert run('ls', '-o', 'shape=root', root).stdout == ''
    if bucket.keys():
        run('gc', root)
    assert bucket.keys() == []
    again = opened()
    d = begin(again)
    d.rename(again.path / '5')
    assert '0 errors, 0 warnings' in run('verify', root).stdout
    assert len(os.listdir(spill)) == 1


@on('s3')
def test_df(opened):
    """Programs do not write where nothing is free: a bucket has as much as goofys says. Of one that is only read nothing is free."""
    space = os.statvfs(opened().path)
    assert space.f_blocks * space.f_frsize == space.f_bavail * space.f_frsize == 1 << 50
    assert space.f_files == space.f_ffree == 10 ** 9
    m = opened('ro')
    assert os.statvfs(m.path).f_bavail == os.statvfs(m.path).f_ffree == 0
    said = subprocess.run(['df', '-h', m.path], capture_output=True, text=True, check=True).stdout
    assert '1.0P' not in said


@pytest.mark.parametrize('bucket, arrives, changes', on_buckets((True, False), (False, True), (True, True)), indirect=['bucket'])
def test_a_marker_that_nobody_answers(opened, clock, monkeypatch, run, bucket, proxy, root, spill, arrives, changes):
    """The draft stays, and knows later what has become of the step: it is that, or is committed as it is then. One that has changed is not lost."""
    for name, value in clock.environment.items():
        monkeypatch.setenv(name, value)
    m = opened(allow_errors=True)
    d = begin(m)
    first = []

    def fault(h):
        if f'5/{MARKER}' not in h.path.replace('%2F', '/') or h.command not in ('PUT', 'POST'):
            return False
        first.append(h.path)
        if arrives and len(first) == 6:
            h.forward(*h.path.partition('?')[::2])
        return h.reset() or True
    proxy.fault = lambda h: fault(h) or (bool(first) and h.command == 'GET' and MARKER in h.path and (h.refuse(403, 'AccessDenied') or True))
    with pytest.raises(OSError) as e:
        d.rename(m.path / '5')
    assert e.value.errno == errno.EIO and 'is committed is not known' in text(m), text(m)
    proxy.fault = None
    keys = bucket.keys()
    if not arrives:
        with pytest.raises(OSError):
            d.rename(m.path / '5')
        assert bucket.keys() == keys and 'may arrive for another' in text(m)
        clock.advance(600)
    if changes:
        (d / 'state/n.json').write_text('8')
    for _ in range(2 * (changes and arrives)):
        with pytest.raises(FileExistsError):
            d.rename(m.path / '5')
        assert 'the draft has changed since' in text(m) and (d / 'state/n.json').read_text().strip() == '8'
    if changes and arrives:
        shutil.rmtree(d)
    else:
        d.rename(m.path / '5')
    assert (m.path / '5/state/n.json').read_text().strip() == ('7' if arrives else '8')
    assert '0 errors, 0 warnings' in run('verify', root).stdout
    assert not any(CLAIM in k for k in bucket.keys()) and not files_of(spill)


@on('s3')
def test_a_draft_is_given_up_after_a_marker_that_nobody_answers(opened, run, bucket, proxy, root):
    """Its mount lives, and gc removes what is left nevertheless, after ten minutes."""
    m = opened(allow_errors=True)
    d = begin(m)
    proxy.fault = lambda h: f'5/{MARKER}' in h.path and h.command == 'PUT' and h.reset()
    with pytest.raises(OSError):
        d.rename(m.path / '5')
    proxy.fault = None
    shutil.rmtree(d)
    dying_upload.collect(run, bucket, root, 5)
    assert bucket.keys() == []
    begin(m).rename(m.path / '5')


@on('gs')
def test_a_later_marker_that_nobody_answers(opened, clock, monkeypatch, bucket, proxy, root):
    """The draft has changed since an attempt that failed, and not since the one that made the step."""
    for name, value in clock.environment.items():
        monkeypatch.setenv(name, value)
    m = opened(allow_errors=True)
    d = begin(m)
    for arrives in (False, True):
        tries = []

        def fault(h, arrives=arrives, tries=tries):
            if f'5/{MARKER}' not in h.path.replace('%2F', '/'):
                return False
            if h.command == 'GET':
                return h.refuse(403, 'AccessDenied') or True
            tries.append(h.path)
            if arrives and len(tries) == 6:
                h.forward(*h.path.partition('?')[::2])
            return h.reset() or True
        (d / 'state/n.json').write_text('8' if arrives else '7')
        # It can be found out that the first attempt has failed, and what has become of the second only later.
        proxy.fault = lambda h, fault=fault, tries=tries: (h.command != 'GET' or bool(tries)) and fault(h)
        with pytest.raises(OSError) as e:
            d.rename(m.path / '5')
        assert e.value.errno == errno.EIO and len(tries) == 6, text(m)
        proxy.fault = None
        clock.advance(600)
    d.rename(m.path / '5')
    assert (m.path / '5/state/n.json').read_text().strip() == '8'
