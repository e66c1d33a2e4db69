# SPDX-License-Identifier: Apache-2.0
"""Objects of buckets that are written: whole or not there, whatever happens to the requests. A proxy checks signatures and hashes."""

import contextlib
import hashlib
import pathlib
import re
import subprocess
import threading

import pytest

from lib import buckets, gcs as gcs_server

BUCKET = 'objects'  # for the fixture
MIB = 1 << 20
SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data/sample'
BUDGET = 64 * MIB
# Three parts of 8 MiB, and a piece.
LARGE = b''.join(hashlib.sha256(i.to_bytes(4, 'big')).digest() for i in range((25 * MIB) // 32)) + b'the end'


@pytest.fixture
def tool(build, bucket, proxy, tmp_path):
    """tool('put', 'key', content, ...): what it printed, or its message when it failed."""
    def run(command, key, content=None, *more, fails=None):
        file = tmp_path / 'content'
        if content is not None:
            file.write_bytes(content)
            more = (file, *more)
        r = subprocess.run([build / 'tests/unit/store_tool', command, f'{bucket.scheme}://objects/run', key, *map(str, more)],
                           capture_output=True, text=True, timeout=240)
        assert not any(secret in r.stdout + r.stderr for secret in secrets(proxy)), r.stderr
        assert (r.returncode == 0) == (fails is None), r.stderr
        if fails is not None:
            assert re.search(fails, r.stderr), r.stderr
        return r.stdout if fails is None else r.stderr
    return run


def secrets(proxy):
    if isinstance(proxy, buckets.Proxy):
        return [buckets.SECRET]
    return [*proxy.vendor.secrets(), *proxy.sessions]


def unfinished(bucket, proxy):
    return bucket.uploads() if bucket.scheme == 's3' else [s for s in proxy.sessions.values() if not s.about]


def upload(tool, content=LARGE, piece=MIB + 1, budget=BUDGET, **more):
    return tool('upload', 'a b/ü&+', content, piece, budget, **more)


def is_part(h):
    """Whether a request has a part of an upload."""
    return h.command == 'PUT' and ('partNumber=' in h.path or re.match(r'bytes \d', h.headers.get('Content-Range', '')))


def after(n, is_it, what):
    """The n-th of such requests, and no other, gets it."""
    lock, seen = threading.Lock(), []

    def fault(h):
        with lock:
            if not is_it(h):
                return False
            seen.append(h.path)
            mine = len(seen) == n
        return mine and what(h)
    fault.seen = seen
    return fault


def unavailable(h):
    h.answer(503, [('Connection', 'close')], b'')
    h.close_connection = True
    return True


def takes_some(h):
    """The connection is lost within the bytes that are sent."""
    h.rfile.read(int(h.headers['Content-Length']) // 2)
    return h.reset()


def loses_answer(h):
    """The request is carried out, and the reply is lost."""
    assert h.forward(*h.path.partition('?')[::2])
    return h.reset()


@pytest.mark.parametrize('content', [b'', b'x', bytes(range(256)) * 700, bytes(300 << 10)], ids=len)
def test_put(bucket, tool, content):
    tool('put', 'a b/ü&+', content)
    assert bucket.get('run/a b/ü&+') == content
    tool('put', 'a b/ü&+', content + b'more')
    assert bucket.get('run/a b/ü&+') == content + b'more'
    tool('put-new', 'a b/ü&+', content, fails='is there already')
    assert bucket.get('run/a b/ü&+') == content + b'more'
    tool('put-new', 'other', content)
    assert bucket.get('run/other') == content
    tool('remove', 'other', None, 'not there', 'a b/ü&+')
    assert bucket.keys() == []


def test_what_was_put_and_not_answered_is_ours(bucket, proxy, tool):
    proxy.fault = after(1, lambda h: h.command in ('PUT', 'POST'), loses_answer)
    tool('put-new', 'mine', b'of this one')
    assert bucket.get('run/mine') == b'of this one' and len(proxy.fault.seen) == 2
    proxy.fault = after(1, lambda h: h.command in ('PUT', 'POST'), unavailable)
    tool('put-new', 'mine', b'of that one', fails="cannot write '.*/run/mine': it is there already")
    assert bucket.get('run/mine') == b'of this one'


def test_one_of_many_puts_what_is_new(bucket, tool, build, tmp_path):
    processes = []
    for i in range(4):
        (tmp_path / str(i)).write_text(f'of {i}')
        processes.append(subprocess.Popen([build / 'tests/unit/store_tool', 'put-new', f'{bucket.scheme}://objects/run', 'one', tmp_path / str(i)],
                                          stderr=subprocess.DEVNULL))
    status = [p.wait(120) for p in processes]
    assert sorted(status) == [0, 1, 1, 1] and bucket.get('run/one') == f'of {status.index(0)}'.encode()


@pytest.mark.parametrize('size', [0, 1, 300 << 10, 8 * MIB, 16 * MIB, 16 * MIB + 1, len(LARGE)])
def test_upload(bucket, proxy, tool, size):
    peak = int(upload(tool, LARGE[:size]))
    assert bucket.get('run/a b/ü&+') == LARGE[:size]
    assert peak <= BUDGET and not unfinished(bucket, proxy)


def test_little_memory(bucket, tool):
    assert int(upload(tool, budget=8 * MIB)) == 8 * MIB
    assert bucket.get('run/a b/ü&+') == LARGE
    upload(tool, budget=MIB, fails='write_budget')


@pytest.mark.parametrize('fault', [unavailable, takes_some, 'answer'])
@pytest.mark.parametrize('n', [1, 2, 4])
def test_a_part_is_interrupted(bucket, proxy, tool, n, fault):
    if fault == 'answer':
        proxy.fault = hit = after(n, is_part, loses_answer)
    else:
        proxy.early = hit = after(n, is_part, fault)
    upload(tool)
    assert bucket.get('run/a b/ü&+') == LARGE and len(hit.seen) >= n and not unfinished(bucket, proxy)


def test_the_answer_to_the_end_is_lost(bucket, proxy, tool):
    def is_end(h):
        return h.command == 'POST' and 'uploadId=' in h.path if bucket.scheme == 's3' else is_part(h) and not h.headers['Content-Range'].endswith('*')
    proxy.fault = hit = after(1, is_end, loses_answer)
    upload(tool)
    assert bucket.get('run/a b/ü&+') == LARGE and hit.seen


def test_the_rest_of_a_chunk_is_sent(gs_bucket, gs, build, tmp_path):
    """After an interruption, when the server says how much it has; and when it takes less than it was sent."""
    gs.keeps = 3 * gcs_server.CHUNK
    (tmp_path / 'content').write_bytes(LARGE)
    subprocess.run([build / 'tests/unit/store_tool', 'upload', 'gs://objects/rest', 'x', tmp_path / 'content', str(MIB), str(BUDGET)], check=True)
    assert gs_bucket.get('rest/x') == LARGE
    ranges = [r for method, _, r in gs.requests if method == 'PUT']
    assert ranges[:2] == [f'bytes 0-{8 * MIB - 1}/*', f'bytes {3 * gcs_server.CHUNK}-{8 * MIB - 1}/*'], ranges
    gs.requests.clear()

    def keeps_some(h):
        gs.keeps = 5 * gcs_server.CHUNK
        assert h.forward(*h.path.partition('?')[::2])
        return unavailable(h)
    gs.fault = after(2, is_part, keeps_some)
    subprocess.run([build / 'tests/unit/store_tool', 'upload', 'gs://objects/rest', 'y', tmp_path / 'content', str(MIB), str(BUDGET)], check=True)
    assert gs_bucket.get('rest/y') == LARGE
    ranges = [r for method, _, r in gs.requests if method == 'PUT']
    assert ranges[2:4] == ['bytes */*', f'bytes {8 * MIB + 5 * gcs_server.CHUNK}-{16 * MIB - 1}/*'], ranges


def test_what_fails_for_good_leaves_nothing(bucket, proxy, tool):
    proxy.fault = after(4, is_part, lambda h: h.refuse(403, 'AccessDenied') or True)
    upload(tool, fails='cannot write .*a b/ü&.*status 403')
    proxy.fault = None
    assert bucket.keys() == [] and not unfinished(bucket, proxy)


def test_damage_on_the_way_is_refused(bucket, proxy, tool):
    def damage(h):
        h.body = h.body[:-40] + b'?' + h.body[-39:]
        return False
    proxy.spoil = hit = after(2, is_part, damage)
    # A part of a resumable upload has no sum of its own, and all of it has one.
    if bucket.scheme == 's3':
        upload(tool)
        assert bucket.get('run/a b/ü&+') == LARGE and len(hit.seen) == 5
    else:
        upload(tool, fails='the server has .* bytes with CRC-32C')
        assert bucket.keys() == []


def test_a_killed_upload_is_found_and_removed(bucket, proxy, tool):
    tool('upload', 'left/x', LARGE, MIB, BUDGET, 'leave')
    assert bucket.keys() == []
    if bucket.scheme == 's3':
        assert bucket.uploads() == ['run/left/x']
        tool('remove-uploads', 'lef')
        assert bucket.uploads() == ['run/left/x']
        tool('remove-uploads', 'left')
        assert bucket.uploads() == []


def test_keys_expire_in_the_middle(s3_bucket, s3, build, tmp_path, monkeypatch):
    with buckets.Vendor(s3) as vendor:
        for name, value in vendor.environment('container', tmp_path).items():
            monkeypatch.setenv(name, value)

        def expire(_):
            s3.expired.add(vendor.given[-1])
            return False
        s3.early = after(2, is_part, expire)
        (tmp_path / 'content').write_bytes(LARGE)
        subprocess.run([build / 'tests/unit/store_tool', 'upload', 's3://objects/keys', 'x', tmp_path / 'content', str(MIB), str(BUDGET)], check=True)
        assert s3_bucket.get('keys/x') == LARGE and len(vendor.given) == 2 and not s3_bucket.uploads()


def test_a_token_expires_in_the_middle(gs_bucket, gs, build, tmp_path):
    def expire(h):
        gs.tokens.clear()
        return False
    gs.early = after(1, lambda h: h.command == 'POST', expire)
    (tmp_path / 'content').write_bytes(LARGE)
    subprocess.run([build / 'tests/unit/store_tool', 'upload', 'gs://objects/keys', 'x', tmp_path / 'content', str(MIB), str(BUDGET)], check=True)
    assert gs_bucket.get('keys/x') == LARGE and len(gs.vendor.given) == 2


def expires_at(n, vendor, proxy):
    """Credentials that are taken back when the n-th request comes."""
    def expire(_):
        proxy.expired.add(vendor.given[-1]) if isinstance(proxy, buckets.Proxy) else proxy.tokens.clear()
        return False
    return after(n, lambda h: h.command == 'GET' and 'objects' in h.path, expire)


@pytest.mark.parametrize('what', ['cat', 'ls'])
def test_credentials_expire_while_a_reader_reads(bucket, proxy, program, tmp_path, monkeypatch, what):
    """At any of its requests: others are found, and what was refused is asked for again."""
    leaf = 'run/1500/state/params/embed/table.npy'
    bucket.upload(SAMPLE, 'run')
    path = leaf if what == 'cat' else 'run/1500/state'
    want = subprocess.run([program, what, SAMPLE / path.removeprefix('run/')], check=True, capture_output=True).stdout
    with buckets.Vendor(proxy) if bucket.scheme == 's3' else contextlib.nullcontext(proxy.vendor) as vendor:
        if bucket.scheme == 's3':
            for name, value in vendor.environment('container', tmp_path).items():
                monkeypatch.setenv(name, value)
        for n in range(1, 12):
            before = len(vendor.given)
            proxy.early = expires_at(n, vendor, proxy)
            r = subprocess.run([program, what, f'{bucket.scheme}://objects/{path}'], capture_output=True)
            assert r.returncode == 0 and r.stdout == want, (n, r.stderr)
            if n <= 4:
                assert len(vendor.given) - before == 2, n
