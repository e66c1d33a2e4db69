# SPDX-License-Identifier: Apache-2.0
"""Objects of buckets that are written: whole or not there, whatever happens to the requests. A proxy checks signatures and hashes."""

import contextlib
import pathlib
import random
import re
import subprocess
import threading

import pytest

from lib import buckets, gcs as gcs_server
from lib.buckets import unfinished
from lib.pairs import pairs

BUCKET = 'objects'
IN_MEMORY = True  # both for the fixtures
SCHEMES = 's3', 'gs'
MIB = 1 << 20
SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data/sample'
BUDGET = 64 * MIB
# Three parts of 8 MiB, and a piece.
LARGE = random.Random(1).randbytes(25 * MIB) + b'the end'


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


@pytest.fixture
def upload(tool, tmp_path):
    """upload(content, budget=bytes): sends a file of this machine, or what the words say of one that grows (tests/filters/store_tool.c)."""
    def run(content=LARGE, *words, budget=BUDGET, key='a b/ü&+', **more):
        file = tmp_path / 'files' / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        return tool('upload', key, None, tmp_path / 'files', budget, *(words or ('add', 'wait')), **more)
    return run


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


@pytest.mark.parametrize('bucket, size', pairs(SCHEMES, [0, 1, 175 << 10, 300 << 10]), indirect=['bucket'])
def test_put(bucket, tool, size):
    content = LARGE[:size]
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


def test_an_object_is_replaced_if_it_is_the_one_that_was_read(bucket, tool, tmp_path):
    (tmp_path / 'second').write_bytes(b'2')
    tool('replace', 'x', b'1', fails='status 404|Not Found|not exist|no such', )
    bucket.put('run/x', b'0')
    tool('replace', 'x', b'1')
    assert bucket.get('run/x') == b'1'
    tool('replace', 'x', b'3', tmp_path / 'second', fails='is there already')
    assert bucket.get('run/x') == b'3'


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


@pytest.mark.parametrize('bucket, size', pairs(SCHEMES, [0, 1, 300 << 10, 8 * MIB, 16 * MIB, 16 * MIB + 1, len(LARGE)]), indirect=['bucket'])
def test_upload(bucket, proxy, upload, size):
    peak = int(upload(LARGE[:size]))
    assert bucket.get('run/a b/ü&+') == LARGE[:size]
    assert peak <= BUDGET and not unfinished(bucket, proxy)


def test_little_memory(bucket, upload):
    assert int(upload(budget=8 * MIB)) == 8 * MIB
    assert bucket.get('run/a b/ü&+') == LARGE
    upload(budget=MIB, fails='write_budget')


def parts(proxy):
    """The requests that brought a part, or all, of the object."""
    return [path for method, path, _ in proxy.requests if method in ('PUT', 'POST') and is_part_of(path)]


def is_part_of(path):
    return 'partNumber=' in path or 'upload_id=' in path


def test_a_file_is_sent_while_it_grows(bucket, proxy, upload):
    """Nothing is sent twice, and nothing of the object is there before it is whole."""
    sent = []

    def look(h):
        if is_part(h):
            sent.append(bucket.keys())
        return False
    proxy.fault = look
    upload(LARGE, f'grew:{8 * MIB}', 'wait', f'grew:{8 * MIB + 1}', 'wait', f'grew:{24 * MIB}', 'wait', 'add', 'wait')
    assert bucket.get('run/a b/ü&+') == LARGE and not unfinished(bucket, proxy)
    assert sent == [[]] * 4


def test_a_file_that_is_whole_is_an_object_at_once(bucket, proxy, upload):
    upload(LARGE, f'grew:{len(LARGE)}', 'closed', 'wait')
    assert bucket.get('run/a b/ü&+') == LARGE
    before = len(parts(proxy))
    upload(LARGE, f'grew:{len(LARGE)}', 'closed', 'wait', 'add', 'wait', 'drop')
    assert bucket.get('run/a b/ü&+') == LARGE and len(parts(proxy)) == 2 * before


@pytest.mark.parametrize('what, end', pairs(['grows', 'is whole'], ['dropped', 'ended']))
def test_what_nobody_wants_goes_away(bucket, proxy, upload, what, end):
    upload(LARGE, *([f'grew:{20 * MIB}', 'wait'] if what == 'grows' else [f'grew:{len(LARGE)}', 'closed', 'wait']), *['drop'] * (end == 'dropped'))
    assert not unfinished(bucket, proxy)
    # Objects that were complete before the sender ended are removed with the rest of the step, by its writer.
    assert bucket.keys() == (['run/a b/ü&+'] if (what, end) == ('is whole', 'ended') else [])


@pytest.mark.parametrize('bucket, to', pairs(SCHEMES, [5 * MIB, 8 * MIB, 18 * MIB]), indirect=['bucket'])
def test_bytes_that_were_sent_are_taken_back(bucket, proxy, upload, to):
    """The object has what the file has at the end, whatever was sent before."""
    content = LARGE[:to] + LARGE[::-1][to:]
    grown = 20 * MIB
    upload(content, f'grew:{grown}', 'wait', f'cut:{to}', 'wait', f'grew:{len(content)}', 'wait', 'add', 'wait')
    assert bucket.get('run/a b/ü&+') == content and not unfinished(bucket, proxy)
    # Bytes that were not sent yet can be dropped without a new upload.
    assert len(parts(proxy)) == (4 if to == 18 * MIB else 6), parts(proxy)


def test_bytes_are_taken_back_again_and_again(bucket, proxy, upload):
    upload(LARGE, *[f'grew:{20 * MIB}', 'wait', f'cut:{7 * MIB}', 'wait'] * 6, f'grew:{24 * MIB}', 'wait', 'add', 'wait')
    assert bucket.get('run/a b/ü&+') == LARGE and not unfinished(bucket, proxy)
    # After some times it is not sent before it is whole.
    assert len(parts(proxy)) == 4 * 2 + 4, parts(proxy)


def test_it_ends_where_a_part_did(bucket, proxy, upload):
    """A file of which all parts but an empty last one were sent."""
    content = LARGE[:16 * MIB]
    upload(content, f'grew:{16 * MIB + 1}', 'wait', f'cut:{16 * MIB}', 'add', 'wait')
    assert bucket.get('run/a b/ü&+') == content and not unfinished(bucket, proxy)


@pytest.mark.parametrize('bucket, n', pairs(SCHEMES, [1, 2]), indirect=['bucket'])
def test_the_server_refuses_while_a_file_grows(bucket, proxy, upload, n):
    """A growing file that cannot be sent is not an error: the file is sent again when it is added."""
    proxy.fault = hit = after(n, is_part, lambda h: h.refuse(403, 'AccessDenied') or True)
    upload(LARGE, f'grew:{20 * MIB}', 'wait', f'grew:{len(LARGE)}', 'wait', 'add', 'wait')
    assert bucket.get('run/a b/ü&+') == LARGE and len(hit.seen) >= 4 + n and not unfinished(bucket, proxy)


@pytest.mark.parametrize('fault, n', pairs([unavailable, takes_some, 'answer'], [1, 2, 4]))
def test_a_part_is_interrupted(bucket, proxy, upload, n, fault):
    if fault == 'answer':
        proxy.fault = hit = after(n, is_part, loses_answer)
    else:
        proxy.early = hit = after(n, is_part, fault)
    upload()
    assert bucket.get('run/a b/ü&+') == LARGE and len(hit.seen) >= n and not unfinished(bucket, proxy)


def test_the_answer_to_the_end_is_lost(bucket, proxy, upload):
    def is_end(h):
        return h.command == 'POST' and 'uploadId=' in h.path if bucket.scheme == 's3' else is_part(h) and not h.headers['Content-Range'].endswith('*')
    proxy.fault = hit = after(1, is_end, loses_answer)
    upload()
    assert bucket.get('run/a b/ü&+') == LARGE and hit.seen


def put_large(build, tmp_path, url, key):
    (tmp_path / key).write_bytes(LARGE)
    subprocess.run([build / 'tests/unit/store_tool', 'upload', url, key, tmp_path, str(BUDGET), 'add', 'wait'], check=True)


def test_the_rest_of_a_chunk_is_sent(gs_bucket, gs, build, tmp_path):
    """After an interruption, when the server says how much it has; and when it takes less than it was sent."""
    gs.keeps = 3 * gcs_server.CHUNK
    put_large(build, tmp_path, 'gs://objects/rest', 'x')
    assert gs_bucket.get('rest/x') == LARGE
    ranges = [r for method, _, r in gs.requests if method == 'PUT']
    assert ranges[:2] == [f'bytes 0-{8 * MIB - 1}/*', f'bytes {3 * gcs_server.CHUNK}-{8 * MIB - 1}/*'], ranges
    gs.requests.clear()

    def keeps_some(h):
        gs.keeps = 5 * gcs_server.CHUNK
        assert h.forward(*h.path.partition('?')[::2])
        return unavailable(h)
    gs.fault = after(2, is_part, keeps_some)
    put_large(build, tmp_path, 'gs://objects/rest', 'y')
    assert gs_bucket.get('rest/y') == LARGE
    ranges = [r for method, _, r in gs.requests if method == 'PUT']
    assert ranges[2:4] == ['bytes */*', f'bytes {8 * MIB + 5 * gcs_server.CHUNK}-{16 * MIB - 1}/*'], ranges


def test_what_fails_for_good_leaves_nothing(bucket, proxy, upload):
    proxy.fault = after(4, is_part, lambda h: h.refuse(403, 'AccessDenied') or True)
    upload(fails='cannot write .*a b/ü&.*status 403')
    proxy.fault = None
    assert bucket.keys() == [] and not unfinished(bucket, proxy)


def test_damage_on_the_way_is_refused(bucket, proxy, upload):
    def damage(h):
        h.body = h.body[:-40] + b'?' + h.body[-39:]
        return False
    proxy.spoil = hit = after(2, is_part, damage)
    # A part of a resumable upload has no sum of its own, and all of it has one.
    if bucket.scheme == 's3':
        upload()
        assert bucket.get('run/a b/ü&+') == LARGE and len(hit.seen) == 5
    else:
        upload(fails='the server has .* bytes with CRC-32C')
        assert bucket.keys() == []


def test_a_killed_upload_is_found_and_removed(bucket, proxy, tool):
    tool('leave', 'left/x', LARGE)
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
        put_large(build, tmp_path, 's3://objects/keys', 'x')
        assert s3_bucket.get('keys/x') == LARGE and len(vendor.given) == 2 and not s3_bucket.uploads()


def test_a_token_expires_in_the_middle(gs_bucket, gs, build, tmp_path):
    def expire(h):
        gs.tokens.clear()
        return False
    gs.early = after(1, lambda h: h.command == 'POST', expire)
    put_large(build, tmp_path, 'gs://objects/keys', 'x')
    assert gs_bucket.get('keys/x') == LARGE and len(gs.vendor.given) == 2


def expires_at(n, vendor, proxy):
    """Credentials that are taken back when the n-th request comes."""
    def expire(_):
        proxy.expired.add(vendor.given[-1]) if isinstance(proxy, buckets.Proxy) else proxy.tokens.clear()
        return False
    return after(n, lambda h: h.command == 'GET' and 'objects' in h.path, expire)


@pytest.mark.parametrize('bucket, what', pairs(SCHEMES, ['cat', 'ls']), indirect=['bucket'])
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


def test_an_empty_bucket_is_reported_as_that(run, bucket, proxy):
    r = run('ls', f'{bucket.scheme}://objects', ok=False)
    assert r.returncode == 1 and f"'{bucket.scheme}://objects' is an empty bucket" in r.stderr, r.stderr
    assert run('ls', '-o', 'shape=root', f'{bucket.scheme}://objects').stdout == ''
