# SPDX-License-Identifier: Apache-2.0
"""Data files of a step are uploaded to a bucket while they are written; the uploads follow later changes of the draft."""

import io
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import urllib.parse

import numpy as np
import pytest

from lib import buckets, dying_upload, mounts
from lib.buckets import unfinished
from lib.pairs import on, on_buckets
from lib.writing import npy

BUCKET = 'streamed'
IN_MEMORY = True  # both for the fixtures
MARKER, CLAIM = dying_upload.MARKER, dying_upload.CLAIM
MIB = 1 << 20
PART = 8 * MIB
# Several parts and a piece.
LARGE = np.random.default_rng(1).standard_normal((17 * MIB) // 8)
OTHER = np.random.default_rng(2).standard_normal((18 * MIB) // 8)


@pytest.fixture
def root(bucket, proxy):
    return f'{bucket.scheme}://streamed/run'


@pytest.fixture
def opened(mount, root, spill):
    # A leaf is one chunk, so that all of it is in one data file. Of several chunks, each thread that encodes adds to a file of its own.
    return lambda *options, **how: mount(root, 'shape=root', 'compression=none', 'threads=1', *(options or ['chunk_byte_size=64M']), **how)


def parts(proxy):
    """The requests that brought parts, by the path of their object and their place in it."""
    seen = []
    for method, path, content_range in list(proxy.requests):
        where = urllib.parse.parse_qs(path.partition('?')[2])
        if method == 'PUT' and 'partNumber' in where:
            seen.append((path.partition('?')[0], where['partNumber'][0]))
        elif method == 'PUT' and 'upload_id' in where and re.match(r'bytes \d', content_range or ''):
            seen.append((where['name'][0], content_range.partition('-')[0]))
    return seen


def begin(m, proxy, content=LARGE, step=5):
    """A draft of which all full parts have been sent."""
    d = m.path / f'{step}.tmp'
    (d / 'state').mkdir(parents=True)
    save(d / 'state/w.npy', proxy, content)
    (d / 'state/n.json').write_text('7')
    return d


def save(path, proxy, content=LARGE):
    before = len(parts(proxy))
    np.save(path, content)
    mounts.wait_for(lambda: len(parts(proxy)) >= before + content.nbytes // PART)


def loaded(path):
    """As np.load(), which holds Python's lock while it reads: the proxy that it waits for is in this process."""
    return np.load(io.BytesIO(path.read_bytes()))


def commit(d, run, root, content=LARGE):
    step = d.with_suffix('')
    d.rename(step)
    assert np.array_equal(loaded(step / 'state/w.npy'), content)
    assert '0 errors' in run('verify', root).stdout


def test_data_is_sent_while_it_is_written(opened, run, bucket, proxy, root):
    """All but the last bytes; nothing of it twice, and nothing of the step is there before the commit."""
    d = begin(opened(), proxy)
    assert bucket.keys() == [f'run/5/{CLAIM}'] and len(unfinished(bucket, proxy)) == 1
    before = len(parts(proxy))
    commit(d, run, root)
    assert len(parts(proxy)) <= before + 2 and len(set(parts(proxy))) == len(parts(proxy))
    assert not unfinished(bucket, proxy)


@on('gs')
def test_a_command_sends_while_it_writes(run, proxy, root, spill, tmp_path):
    """A part arrives before the commit begins: the second leaf cannot be read until then."""
    source = tmp_path / 'in'
    source.mkdir()
    for name in 'ab':
        np.save(source / f'{name}.npy', LARGE[:(12 * MIB) // 8])
    run('save', '-o', 'ocdbt=off,compression=none', source, f'{root}-in/1')
    proxy.requests.clear()
    sent, held = threading.Event(), []

    def hold(h):
        path = urllib.parse.unquote(h.path)
        if h.command == 'PUT' and 'run/1/default/d/' in path:
            h.answer(*h.forward(*h.path.partition('?')[::2]))
            sent.set()
            return True
        if h.command == 'GET' and 'run-in/1/default/b/0' in path:
            held.append(path)
            assert sent.wait(60)
        return False
    proxy.fault = hold
    said = run('convert', '-o', 'ocdbt,compression=none,threads=1,trace=step:io', f'{root}-in/1', f'{root}/1').stderr.splitlines()
    first = next(i for i, line in enumerate(said) if 'http P' in line and '/d/' in line)
    assert held and first < next(i for i, line in enumerate(said) if 'trace step: commit' in line)
    assert len(set(parts(proxy))) == len(parts(proxy)) >= 3
    assert run('cat', f'{root}/1/default/a.npy', text=False).stdout == (source / 'a.npy').read_bytes()


@on('s3')
def test_full_data_files_are_objects_at_once(opened, run, bucket, proxy, root):
    """And no reader takes them for a step."""
    m = opened('target_data_file_size=4M', 'chunk_byte_size=1M')
    d = m.path / '5.tmp'
    (d / 'state').mkdir(parents=True)
    np.save(d / 'state/w.npy', LARGE)
    mounts.wait_for(lambda: len(bucket.keys()) > 1)
    there = bucket.keys()
    assert all('/5/state/d/' in k for k in there if CLAIM not in k)
    assert run('ls', '-o', 'shape=root', root).stdout == ''
    commit(d, run, root)
    assert set(there) - {f'run/5/{CLAIM}'} < set(bucket.keys())


@on('gs')
def test_an_item_gets_another_name(opened, run, bucket, proxy, root):
    """The data files are sent again under the new name, and nothing stays under the old one, not even objects that were complete."""
    for step, options in ((5, ()), (6, ('target_data_file_size=4M', 'chunk_byte_size=1M'))):
        m = opened(*options)
        d = m.path / f'{step}.tmp'
        (d / 'old').mkdir(parents=True)
        np.save(d / 'old/w.npy', LARGE)
        mounts.wait_for(lambda: any('/old/d/' in path for _, path, _ in proxy.requests))
        (d / 'old').rename(d / 'state')
        commit(d, run, root)
        assert not [k for k in bucket.keys() if '/old/' in k] and not unfinished(bucket, proxy)
        m.unmount()


@pytest.mark.parametrize('bucket, how', on_buckets('again', 'in place', 'removed'), indirect=['bucket'])
def test_a_leaf_is_written_again(opened, run, bucket, proxy, root, how):
    m = opened()
    d = begin(m, proxy)
    if how == 'again':
        np.save(d / 'state/w.npy', OTHER)
    elif how == 'in place':
        with open(d / 'state/w.npy', 'r+b') as f:
            f.seek(128)
            f.write(OTHER.tobytes()[:LARGE.nbytes])
    else:
        (d / 'state/w.npy').unlink()
        np.save(d / 'state/w.npy', OTHER)
    commit(d, run, root, OTHER[:LARGE.size] if how == 'in place' else OTHER)
    assert not unfinished(bucket, proxy)


@on('s3')
def test_a_program_goes_back_to_the_front(opened, run, bucket, proxy, root):
    """In the middle of a leaf of many chunks: those that were sent are not in the step."""
    d = opened('chunk_byte_size=1M').path / '5.tmp'
    (d / 'state').mkdir(parents=True)
    large = np.random.default_rng(3).standard_normal((25 * MIB) // 8)
    content = npy(large)
    with open(d / 'state/w.npy', 'wb', buffering=0) as f:
        for what in (content[:24 * MIB], content[::-1][:3 * MIB], content):
            f.seek(0)
            for at in range(0, len(what), MIB):
                f.write(what[at:at + MIB])
            mounts.wait_for(lambda: parts(proxy))
    commit(d, run, root, large)
    assert not unfinished(bucket, proxy)


def test_the_server_refuses_parts_for_a_while(opened, run, bucket, proxy, root):
    """The writer does not notice it: the parts are sent at the commit."""
    m = opened(allow_errors=True)
    refused = []

    def refuse(h):
        if h.command != 'PUT' or 'upload' not in h.path.partition('?')[2]:
            return False
        refused.append(h.path)
        h.refuse(403, 'AccessDenied')
        return True
    proxy.fault = refuse
    d = m.path / '5.tmp'
    (d / 'state').mkdir(parents=True)
    np.save(d / 'state/w.npy', LARGE)
    mounts.wait_for(lambda: refused)
    mounts.wait_for(lambda: any('will be repeated at the commit' in line for line in m.log_lines()))
    assert np.array_equal(loaded(d / 'state/w.npy'), LARGE)
    proxy.fault = None
    commit(d, run, root)
    assert not unfinished(bucket, proxy)


def test_a_failed_commit_is_tried_again(opened, run, bucket, proxy, root):
    m = opened(allow_errors=True)
    d = begin(m, proxy)
    proxy.fault = lambda h: buckets.is_put('manifest.ocdbt')(h) and (h.refuse(403, 'AccessDenied') or True)
    with pytest.raises(OSError):
        d.rename(m.path / '5')
    proxy.fault = None
    assert bucket.keys() == [] and not unfinished(bucket, proxy)
    np.save(d / 'state/more.npy', OTHER)
    commit(d, run, root)
    assert np.array_equal(loaded(m.path / '5/state/more.npy'), OTHER)


@on('gs')
def test_a_refused_commit_keeps_what_was_sent(opened, run, bucket, proxy, root):
    """A leaf that is not whole: the draft stays, and what has been sent of the others is not sent again."""
    m = opened(allow_errors=True)
    d = begin(m, proxy)
    (d / 'state/short.npy').write_bytes((d / 'state/w.npy').read_bytes()[:4096])
    with pytest.raises(OSError):
        d.rename(m.path / '5')
    (d / 'state/short.npy').unlink()
    commit(d, run, root)
    assert len(set(parts(proxy))) == len(parts(proxy))


def test_an_abandoned_draft_leaves_nothing(opened, bucket, proxy, spill):
    m = opened()
    shutil.rmtree(begin(m, proxy))
    assert bucket.keys() == [] and not unfinished(bucket, proxy)
    begin(m, proxy)
    assert not m.unmount()
    assert bucket.keys() == [] and not unfinished(bucket, proxy) and os.listdir(spill) == []


def test_a_killed_writer_leaves_what_gc_removes(opened, run, bucket, proxy, root):
    m = opened(allow_errors=True)
    begin(m, proxy)
    os.kill(m.pid, signal.SIGKILL)
    subprocess.run(['umount', '-l', m.path], capture_output=True)
    proxy.wait_idle()
    assert run('ls', '-o', 'shape=root', root).stdout == ''
    run('gc', root)
    # An upload of Google's that nobody ends is not an object.
    assert bucket.keys() == [] and (bucket.scheme == 'gs' or not bucket.uploads())


@on('s3')
def test_two_drafts_at_once(opened, run, bucket, proxy, root):
    m = opened('write_budget=32M', 'chunk_byte_size=64M')
    a, b = begin(m, proxy), begin(m, proxy, OTHER, step=6)
    commit(b, run, root, OTHER)
    commit(a, run, root)
    assert len(set(parts(proxy))) == len(parts(proxy))


@on('gs')
def test_nothing_is_synced_on_this_machine(opened, proxy):
    """A crash would lose only the draft, which does not survive a crash anyway."""
    m = opened('chunk_byte_size=64M', 'trace=io', 'io=trace:auto')
    d = begin(m, proxy)
    d.rename(m.path / '5')
    assert not [line for line in m.log_lines() if re.search(r'io: (sync|sync-dir) ', line)]
