# SPDX-License-Identifier: Apache-2.0
"""Steps that are written to buckets: there and whole, or not there for any reader; and what is left of those that were not finished."""

import fcntl
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time
import urllib.parse

import numpy as np
import pytest

from lib import buckets, dying_upload
from lib.buckets import unfinished
from lib.pairs import LONG, on, on_buckets

BUCKET = 'written'
IN_MEMORY = True  # both for the fixtures
SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data/sample'
MARKER, CLAIM = dying_upload.MARKER, dying_upload.CLAIM


@pytest.fixture
def root(bucket, proxy):
    return f'{bucket.scheme}://written/run'


@pytest.fixture(autouse=True)
def empty_spill(spill):
    """Nothing is left where steps are made first."""
    yield
    assert not list(spill.iterdir())


def nothing_is_left(bucket, proxy):
    assert bucket.keys() == []
    assert not unfinished(bucket, proxy)


@pytest.mark.parametrize('bucket, option', on_buckets('ocdbt=on', 'ocdbt=off,zarr=3'), indirect=['bucket'])
def test_convert(run, bucket, proxy, root, tmp_path, option):
    run('convert', '-o', f'{option},sandbox=require', SAMPLE / '1500', f'{root}/1500')
    keys = bucket.keys()
    assert f'run/1500/{MARKER}' in keys and not any(CLAIM in k for k in keys)
    assert run('ls', root).stdout.split() == ['1500/']
    assert '0 errors, 0 warnings' in run('verify', root).stdout
    assert run('diff', SAMPLE / '1500', f'{root}/1500').returncode == 0
    run('convert', f'{root}/1500', tmp_path / 'back')
    assert run('diff', SAMPLE / '1500', tmp_path / 'back').returncode == 0
    r = run('convert', SAMPLE / '1500', f'{root}/1500', ok=False)
    assert r.returncode == 1 and f"'{root}/1500' is there already" in r.stderr
    assert bucket.keys() == keys


@on('s3')
def test_save_and_items(run, bucket, root, tmp_path):
    (tmp_path / 'in').mkdir()
    np.save(tmp_path / 'in/w.npy', np.arange(12.).reshape(3, 4))
    run('save', tmp_path / 'in', f'{root}/7')
    assert run('ls', f'{root}/7/default').stdout.split() == ['_METADATA', 'w.npy']
    run('convert', '--layout', 'v0', tmp_path / 'in', f'{root}-v0/x')
    assert 'w.npy' in run('ls', f'{root}-v0/x').stdout.split()
    assert f'run-v0/x/{MARKER}' in bucket.keys()


@on('gs')
def test_large_leaves_stream(run, bucket, root, tmp_path, measured=48 << 20):
    (tmp_path / 'in').mkdir()
    np.save(tmp_path / 'in/w.npy', np.random.default_rng(1).standard_normal(measured // 8))
    run('save', '-o', 'compression=none,write_budget=24M', tmp_path / 'in', f'{root}/1')
    assert run('cat', f'{root}/1/default/w.npy', text=False).stdout == (tmp_path / 'in/w.npy').read_bytes()


@on('s3')
def test_what_cannot_be(run, root, tmp_path):
    for args, why in ((('convert', SAMPLE, root), 'one step is written at a time'),
                      (('convert', '--force', SAMPLE / '1500', f'{root}/1'), 'is not replaced'),
                      (('convert', SAMPLE / '1500', f'{root}/x.safetensors'), 'only checkpoints are written to a bucket'),
                      (('convert', '-o', 'spill=off', SAMPLE / '1500', f'{root}/1'), 'spill=off'),
                      (('convert', SAMPLE / '1500', 'http://127.0.0.1:9/a/1'), 'cannot be written: only s3:// and gs:// can')):
        r = run(*args, ok=False)
        assert r.returncode == 1 and why in r.stderr, (args, r.stderr)


@on('s3')
def test_two_hosts_commit_one_step(run, bucket, proxy, root):
    """Both begin at the same time: one gets the step, and the other leaves it alone."""
    seen, both = [], threading.Barrier(2)

    def together(h):
        if buckets.is_first_put(CLAIM)(h):
            seen.append(h.path)
            both.wait(120)
        return False
    proxy.fault = together
    results = []
    threads = [threading.Thread(target=lambda s=s: results.append(run('convert', SAMPLE / s, f'{root}/5', ok=False))) for s in ('1000', '1500')]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(r.returncode for r in results) == [0, 1], [r.stderr for r in results]
    loser = next(r for r in results if r.returncode)
    assert re.search("5' is (there already|being written by process)", loser.stderr), loser.stderr
    assert len(seen) == 2 and '0 errors, 0 warnings' in run('verify', root).stdout
    assert not any(CLAIM in k for k in bucket.keys())


@pytest.mark.parametrize('bucket, key', on_buckets('manifest.ocdbt', '_METADATA', '_CHECKPOINT_METADATA', '/5/' + MARKER), indirect=['bucket'])
def test_a_failure_leaves_nothing(run, bucket, proxy, root, key):
    name = key if bucket.scheme == 's3' else key.replace('/', '%2F')
    proxy.fault = lambda h: buckets.is_put(name)(h) and (h.refuse(403, 'AccessDenied') or True)
    r = run('convert', SAMPLE / '1500', f'{root}/5', ok=False)
    assert r.returncode == 1 and 'cannot write' in r.stderr and key.strip('/').split('/')[-1] in r.stderr, r.stderr
    proxy.fault = None
    nothing_is_left(bucket, proxy)


@on('gs')
def test_an_interrupt_leaves_nothing(program, bucket, proxy, root):
    begun, go = threading.Event(), threading.Event()

    def hold(h):
        if buckets.is_put('_METADATA')(h):
            begun.set()
            assert go.wait(120)
        return False
    proxy.fault = hold
    p = subprocess.Popen([program, 'convert', SAMPLE / '1500', f'{root}/5'], stderr=subprocess.PIPE, text=True)
    assert begun.wait(120)
    p.send_signal(signal.SIGINT)
    go.set()
    assert p.wait(120) == 1
    p.stderr.close()
    nothing_is_left(bucket, proxy)


# Leaves in parts, at the commit and while they are written; small ones by each writer.
KILLED = {'at-the-commit': (dying_upload.Save, dying_upload.OPTIONS, dying_upload.LARGE, 7),
          'while-written': (dying_upload.Save, dying_upload.STREAMED, dying_upload.LARGE, 7),
          'convert': (dying_upload.Convert, dying_upload.STREAMED, 96, 9),
          'library': (dying_upload.Library, dying_upload.STREAMED, 96, 9),
          'draft': (dying_upload.Draft, dying_upload.STREAMED, 96, 9)}


@pytest.mark.parametrize('bucket, name', on_buckets(*KILLED), indirect=['bucket'])
def test_killed_anywhere(run, program, bucket, proxy, root, spill, tmp_path, name):
    """82 kills in the ten runs of --all, before and after requests; tests/soak/upload tries all. The step is whole, or absent, and gc leaves nothing of it."""
    writer, options, large, count = KILLED[name]
    count -= 0 if LONG else 2
    killer = dying_upload.Killer(program, bucket, proxy, root, tmp_path, options=options, writer=writer, large=large)
    places = killer.places()
    # The last requests are those of the marker and after it.
    chosen = [places[i * (len(places) - 4) // (count - 4)] for i in range(count - 4)] + places[-4:]
    assert len(set(map(str, chosen))) == count, killer.requests
    for i, place in enumerate(chosen):
        killer.try_place(place, 100 + i)
    assert killer.absent and killer.whole
    # The next save removes the local directories of the killed ones.
    run('convert', SAMPLE / '1500', f'{root}/9')


@on('gs')
def test_gc_leaves_the_living(run, program, bucket, proxy, root):
    begun, go = threading.Event(), threading.Event()

    def hold(h):
        if buckets.is_put('_METADATA')(h):
            begun.set()
            assert go.wait(120)
        return False
    proxy.fault = hold
    p = subprocess.Popen([program, 'convert', SAMPLE / '1500', f'{root}/5'], stderr=subprocess.PIPE, text=True)
    assert begun.wait(120)
    assert 'kept' in run('gc', root).stdout
    r = run('convert', SAMPLE / '1500', f'{root}/5', ok=False)
    assert f"'{root}/5' is being written by process {p.pid} of '{os.uname().nodename}'" in r.stderr, r.stderr
    go.set()
    assert p.wait(120) == 0, p.stderr.read()
    p.stderr.close()
    assert '0 errors, 0 warnings' in run('verify', root).stdout


def test_no_secret_in_a_trace(run, program, bucket, proxy, root, tmp_path, monkeypatch):
    """Of a save that is killed in an upload, of gc after it, of a save of which a part is sent again, of a convert, and of one that is refused."""
    if bucket.scheme == 's3':
        token = 'session+token/of=the+tests'
        proxy.keys[buckets.KEY_ID] = buckets.SECRET, token
        monkeypatch.setenv('AWS_SESSION_TOKEN', token)
    (tmp_path / 'in').mkdir()
    np.save(tmp_path / 'in/w.npy', np.random.default_rng(1).standard_normal(20 << 17))
    process, sent, uploads = [], [], set()
    lock, started = threading.Lock(), threading.Event()

    def upload(h):
        """The writer of step 1 is killed at its first part; the first part of step 2 is refused once."""
        path = urllib.parse.unquote(h.path)
        if h.command != 'PUT' or not ('partNumber=' in path or 'upload_id=' in path):
            return False
        if 'run/1/' in path:
            assert started.wait(120)
            process[0].kill()
            return h.reset()
        with lock:
            uploads.update(getattr(proxy, 'sessions', ()))
            sent.append(path)
            if len(sent) > 1:
                return False
        h.answer(503, [('Connection', 'close')], b'')
        h.close_connection = True
        return True
    proxy.fault = upload
    options = '-o', 'trace=all,threads=1'
    save = 'save', *options, '-o', 'compression=none', tmp_path / 'in'
    process.append(subprocess.Popen([program, *save, f'{root}/1'], stderr=subprocess.PIPE, text=True))
    started.set()
    said = {'killed': process[0].communicate(timeout=120)[1]}
    assert process[0].returncode == -signal.SIGKILL
    uploads.update(getattr(proxy, 'sessions', ()))
    said['gc'] = run('gc', *options, root).stderr
    said['save'] = run(*save, f'{root}/2').stderr
    said['convert'] = run('convert', *options, SAMPLE / '1500', f'{root}/3').stderr
    proxy.fault = lambda h: h.command in ('PUT', 'POST') and (h.refuse(403, 'AccessDenied') or True)
    r = run('convert', *options, SAMPLE / '1500', f'{root}/4', ok=False)
    assert r.returncode == 1
    said['refused'] = r.stderr
    assert 'status 503' in said['save'] and 'status 403' in said['refused'], said
    secrets = [buckets.KEY_ID, buckets.SECRET, token] if bucket.scheme == 's3' else [*proxy.vendor.secrets(), *uploads]
    for what, text in said.items():
        done = [line.split()[3] for line in text.splitlines() if line.startswith('trace io: http ')]
        assert ('DELETE' if what == 'gc' else 'PUT' if bucket.scheme == 's3' else 'POST') in done, (what, text)
        for secret in [*secrets, 'Signature=', 'Bearer ']:
            # As it is, and as it stands in a URL.
            assert secret not in text and urllib.parse.quote(secret, safe='') not in text, (what, secret)


@on('s3')
def test_local_directories_of_others(run, bucket, proxy, root, spill):
    """One whose writer is dead goes; one that is being made stays for a minute, since it is not locked yet."""
    for name, age in (('begun-1-1', 0), ('begun-1-2', 100), ('upload-1-3', 0), ('upload-1-4', 100)):
        directory = spill / f'pytreefs-{name}'
        directory.mkdir()
        os.utime(directory, (time.time() - age,) * 2)
    locked = spill / 'pytreefs-upload-1-5'
    locked.mkdir()
    with open(locked / '.lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run('save', SAMPLE / '1500', f'{root}/7')
    assert sorted(os.listdir(spill)) == ['pytreefs-begun-1-1', 'pytreefs-upload-1-3', 'pytreefs-upload-1-5']
    for directory in spill.iterdir():
        shutil.rmtree(directory)
