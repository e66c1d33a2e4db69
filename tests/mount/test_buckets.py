# SPDX-License-Identifier: Apache-2.0
"""A source in a bucket, of each vendor: byte for byte what the disk has, by requests of which a proxy checks who asks."""

import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from lib import buckets, compare, gcs, mounts, objects, package, rounds, saving, servers
from lib.pairs import on, on_buckets, pairs

SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data/sample'
LEAF = 'state/params/embed/table.npy'
MARKER = 'commit_success.txt'
IN_MEMORY = True  # for the fixtures
pytreefs = package.imported()
# By scheme, which is also the fixture of the proxy: who gives credentials.
VENDORS = {'s3': buckets.Vendor, 'gs': gcs.Vendor}


def filled(b):
    """A bucket whose run/ is the sample; tests write elsewhere in it."""
    b.upload(SAMPLE, 'run')
    return b


# The names of these two are the scheme's, and "_bucket".
@pytest.fixture(scope='module')
def s3_bucket(s3_server):
    return filled(buckets.Bucket(s3_server, 'shared'))


@pytest.fixture(scope='module')
def gs_bucket(gs_server):
    return filled(gcs.Bucket(gs_server, 'shared'))


@pytest.fixture(params=VENDORS)
def bucket(request):
    return request.getfixturevalue(f'{request.param}_bucket')


@pytest.fixture
def url(bucket):
    return f'{bucket.scheme}://shared'


@pytest.fixture
def show(bucket, proxy):
    """show(name, directory): the bucket has this directory below that name, and nothing else."""
    def do(name, directory):
        proxy.address = {'s3': objects.S3, 'gs': objects.GCS}[bucket.scheme]({name: directory})
    return do


@pytest.mark.parametrize('bucket, page', pairs([*VENDORS], [None, 3]), indirect=['bucket'])
def test_a_root_is_the_same_as_on_disk(mount, url, proxy, page):
    """Also with pages of three names, so that look-ups cannot be answered by one page."""
    proxy.page = page
    m = mount(f'{url}/run', 'sandbox=require')
    assert compare.contents(m.path) == compare.contents(mount(SAMPLE).path)
    subprocess.run(['ls', '-lR', m.path], check=True, stdout=subprocess.DEVNULL)
    assert bool(proxy.count('next')) == bool(proxy.count('about')) == bool(page)
    assert compare.read_all(m / '.pytreefs/stored/1500/state/_METADATA') == \
        compare.read_all(SAMPLE / '1500/state/_METADATA')


def test_a_page_that_names_itself_as_the_next(run, url, proxy):
    """The same page would come for ever."""
    first = {}

    def always(h):
        if proxy.kind_of(h.command, h.path) not in ('page', 'next'):
            return False
        asked = re.sub('(continuation-token|pageToken)=[^&]*&?', '', h.path).rstrip('&')
        if asked not in first:
            status, headers, body = h.forward(*asked.split('?', 1))
            text = re.sub('<NextContinuationToken>.*?<', '<NextContinuationToken>again<', body.decode())
            first[asked] = status, headers, re.sub('("nextPageToken": *)"[^"]*"', r'\1"again"', text).encode()
        h.answer(*first[asked])
        return True
    proxy.page, proxy.fault = 3, always
    r = run('ls', f'{url}/run/1500', ok=False)
    assert r.returncode == 1 and 'a page names itself as the one that follows' in r.stderr, r.stderr


@pytest.mark.parametrize('bucket, name', pairs([*VENDORS], ['matrix-ocdbt-zarr2-zstd-v0', 'matrix-perleaf-zarr3-none-v1', 'aggregate-by-hand',
                                                              'unmerged-two-processes']), indirect=['bucket'])
def test_layouts(mount, cases, url, show, name):
    case = cases(name)
    show(name, case.path)
    # Steps that were copied have no marker.
    assert not compare.compare_case(mount(f'{url}/{name}', 'atomicity=rename').path, case)


@on('gs')
def test_commands(run, url, proxy, tmp_path):
    step = f'{url}/run/1500'
    for leaf in (LEAF, 'state/params/embed/table[0:2,3].npy'):
        assert run('cat', f'{step}/{leaf}', text=False).stdout == run('cat', SAMPLE / '1500' / leaf, text=False).stdout
    assert run('ls', f'{step}/state').stdout == run('ls', SAMPLE / '1500/state').stdout
    assert '0 errors, 0 warnings' in run('verify', f'{url}/run').stdout
    assert run('diff', step, SAMPLE / '1500').returncode == 0
    assert run('diff', step, f'{url}/run/1000', ok=False).returncode == 1
    run('export', f'{step}/state', tmp_path / 'bucket.safetensors')
    run('export', SAMPLE / '1500/state', tmp_path / 'disk.safetensors')
    assert (tmp_path / 'bucket.safetensors').read_bytes() == (tmp_path / 'disk.safetensors').read_bytes()
    run('convert', step, tmp_path / 'copy')
    assert run('diff', SAMPLE / '1500', tmp_path / 'copy').returncode == 0
    for name in ('config/metadata', 'metrics/metrics'):
        assert compare.read_all(tmp_path / 'copy' / name) == compare.read_all(SAMPLE / '1500' / name)


def test_explain_spec_escapes_a_key(run, url, show, tmp_path):
    """The key of the SOURCE, too: TensorStore decodes a URL."""
    import tensorstore as ts
    shutil.copytree(SAMPLE / '1500', tmp_path / 'step')
    show('r%41?n', tmp_path / 'step')
    spec = json.loads(run('explain', '--spec', '-o', 'atomicity=rename', f'{url}/r%41?n/{LEAF}').stdout)
    assert ts.KvStore.Spec(spec['kvstore']['base']).path == 'r%41?n/state/'


@pytest.mark.option('cache_dir')
def test_a_cache_on_disk(mount, run, bucket, url, proxy, tmp_path):
    """By tags of the vendor's; the same object by another SOURCE; no secret is in a name there, or in what is stored."""
    cache = tmp_path / 'cache'
    ranges = lambda: sum(r is not None for _, _, r in proxy.requests)  # noqa: E731
    want = compare.contents(mount(SAMPLE).path)
    assert compare.contents(mount(f'{url}/run', f'cache_dir={cache}', 'sandbox=require').path) == want
    fetched = ranges()
    assert fetched
    assert compare.contents(mount(f'{url}/run', f'cache_dir={cache}', 'sandbox=require').path) == want
    assert run('cat', '-o', f'cache_dir={cache}', f'{url}/run/1500/{LEAF}', text=False).stdout == \
        run('cat', SAMPLE / '1500' / LEAF, text=False).stdout
    assert ranges() == fetched
    names = {p.relative_to(cache).as_posix() for p in cache.rglob('*')} - {'v1', 'v1/CACHEDIR.TAG'}
    assert names and all(set(name) <= set('v1/0123456789abcdef') for name in names)


@on('s3')
def test_round_trips_of_a_leaf_by_a_short_path(run, url, proxy, show):
    """Requests for: the target of the path, with the documents there; the node of the database; the chunk."""
    show('short', SAMPLE / '1500/state')
    with rounds.Rounds(proxy) as trips:
        run('cat', f'{url}/short/step.npy', text=False)
    assert len(trips) <= 3, str(trips)
    assert len(set(q for asked in trips.rounds for q in asked)) == sum(map(len, trips.rounds)), str(trips)


@on('s3')
def test_a_path_with_many_slashes(run, url, proxy):
    """A part without a name is a part: only for a short path the documents of each are requested along."""
    assert run('cat', f'{url}/run{"/" * 20}1500/{LEAF}', text=False).stdout == run('cat', SAMPLE / '1500' / LEAF, text=False).stdout
    assert run('cat', f'{url}/run{"/" * 20}x.npy', ok=False).returncode == 1


@on('s3')
def test_attempts_to_open_a_path_close_the_cache(url, proxy, tmp_path):
    """Directories on the path that are not checkpoints are opened by the same store."""
    cache = tmp_path / 'cache'
    with pytest.raises(pytreefs.Error, match='w.npy'):
        pytreefs.load(f'{url}/run/1500/state/ocdbt.process_0/d/w.npy', cache_dir=str(cache))
    assert (cache / 'v1').is_dir()
    opened = [os.path.realpath(fd) for fd in pathlib.Path('/proc/self/fd').iterdir()]
    assert not [path for path in opened if path.startswith(str(cache))]


@on('gs')
def test_round_trips_of_a_leaf(run, url, proxy):
    """Requests for: the target of the path; the documents and the listings of data files; the node of the database; the chunk."""
    with rounds.Rounds(proxy) as trips:
        run('cat', f'{url}/run/1500/{LEAF}', text=False)
    assert len(trips) <= 4, str(trips)
    # For each part of the path at once.
    assert trips.count('any') == 6, str(trips)


@on('s3')
def test_verify_reads_each_chunk_once(run, url, proxy):
    """With its first bytes and the checksum that follows it, in one request."""
    begun = len(proxy.requests)
    assert '0 errors' in run('verify', f'{url}/run/1500').stdout
    asked = collections.defaultdict(set)
    for _, path, range_ in proxy.requests[begun:]:
        if range_ and '/d/' in path.replace('%2F', '/'):
            first, last = range_.partition('=')[2].split('-')
            asked[path].add((int(first), int(last)))
    assert sum(map(len, asked.values())) >= 10, asked
    # A node may be read by the reader of the database and by verify itself. After a chunk of Orbax, 16 bytes of the next one are read in vain.
    for path, ranges in asked.items():
        ranges = sorted(ranges)
        assert all(a[0] < b[0] and a[1] < b[0] + 16 for a, b in zip(ranges, ranges[1:])), (path, ranges)


# most: a few more than it takes. If leaves were read one after the other, each of the `leaves` would take a round trip of its own.
# ls lists one directory, which has 12 of them.
@pytest.mark.parametrize('bucket, asked', pairs([*VENDORS], [(['ls', '-l'], 6, 12), (['info'], 6, 21), (['stats', '-q'], 6, 21), (['load'], 8, 21),
                                                               (['mount'], 12, 21)]), indirect=['bucket'], ids=str)
def test_round_trips_of_leaves_in_directories(program, mount, run, cases, url, proxy, show, asked):
    """Without OCDBT: the metadata of leaves are read at once, and only once, as are the values of scalars."""
    words, most, leaves = asked
    show('directories', cases('matrix-perleaf-zarr2-zstd-v0').path)
    source = f'{url}/directories'
    with rounds.Rounds(proxy) as trips:
        if words == ['mount']:
            m = mount(source)
            trips.watch(m.pid)
            subprocess.run(['ls', '-lR', m.path], check=True, stdout=subprocess.DEVNULL)
        elif words == ['load']:
            subprocess.run([sys.executable, '-c', f'import pytreefs; pytreefs.load({source!r})'], check=True, env=package.environment(program))
        else:
            run(*words, source)
    assert len(trips) <= most, str(trips)
    asked = [q for asked in trips.rounds for q in asked if '.zarray' in q]
    assert len(set(asked)) == len(asked) == leaves, str(trips)


def test_round_trips_of_a_listing(mount, cases, url, proxy, show, tmp_path):
    """The root; the step; what is in it and its items; their documents and data files; the nodes of the database."""
    shutil.copytree(cases('leaves-20000').path, tmp_path / 'leaves/1')
    (tmp_path / 'leaves/1' / MARKER).touch()
    show('leaves', tmp_path / 'leaves')
    with rounds.Rounds(proxy) as trips:
        m = mount(f'{url}/leaves')
        trips.watch(m.pid)
        said = subprocess.run(['ls', '-lR', m.path], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert said.count('.npy') > 1000 and len(trips) <= 6, str(trips)


def noise(n, elements):
    rng = np.random.default_rng(17)
    return {f'w{i:02}.npy': rng.standard_normal(elements, np.float32) for i in range(n)}


def asked_bytes(trips):
    """Of data files."""
    ranges = [q.rpartition('bytes=')[2].split('-') for asked in trips.rounds for q in asked if 'bytes=' in q and '/d' in q.replace('%2F', '/')]
    return sum(int(end) + 1 - int(start) for start, end in ranges)


@pytest.mark.option('threads')
@pytest.mark.parametrize('bucket, compression', pairs([*VENDORS], ['zstd:1', 'none']), indirect=['bucket'])
def test_leaves_that_are_read_in_order_are_fetched_ahead(mount, url, proxy, show, tmp_path, compression):
    """As many at once as there are connections, and no more; by one thread, one beside the reader's two, the last of which is the end of a leaf."""
    (tmp_path / 'root').mkdir()
    leaves = noise(16, 1 << 18)
    show('ordered', saving.saved(mount, tmp_path / 'root', f'compression={compression}', files=leaves))
    for options, least, most in ((['connections=8'], 6, 8), (['connections=8', 'threads=1'], 1, 3)):
        m = mount(f'{url}/ordered', 'cache=256M', 'read_budget=256M', *options)
        with rounds.Rounds(proxy, m.pid) as trips:
            for name, value in list(leaves.items())[:None if least > 1 else 6]:
                assert compare.read_all(m / name).endswith(value.tobytes())
        at_once = max(sum('bytes=' in q for q in asked) for asked in trips.rounds)
        assert least <= at_once <= most, str(trips)


@pytest.mark.parametrize('bucket, compression', pairs([*VENDORS], ['zstd:1', 'none']), indirect=['bucket'])
def test_a_leaf_of_one_chunk_is_fetched_over_all_connections(mount, url, proxy, show, tmp_path, compression):
    """Only the bytes of the first read are requested twice."""
    (tmp_path / 'root').mkdir()
    leaves = noise(1, 8 << 20)
    show('large', saving.saved(mount, tmp_path / 'root', f'compression={compression}', files=leaves))
    m = mount(f'{url}/large', 'cache=256M', 'read_budget=256M', 'connections=8')
    with rounds.Rounds(proxy, m.pid) as trips:
        assert compare.read_all(m / 'w00.npy').endswith(leaves['w00.npy'].tobytes())
    assert 6 <= max(map(len, trips.rounds)) <= 8, str(trips)
    assert asked_bytes(trips) < (32 << 20) + (4 << 20), str(trips)


def test_pages_of_a_raw_leaf_are_read_by_themselves(mount, url, proxy, show, tmp_path):
    (tmp_path / 'root').mkdir()
    leaves = noise(1, 8 << 20)
    show('pages', saving.saved(mount, tmp_path / 'root', 'compression=none', files=leaves))
    m = mount(f'{url}/pages', 'cache=32M', 'read_budget=32M', 'direct_io=on')
    with rounds.Rounds(proxy, m.pid) as trips:
        f = os.open(m / 'w00.npy', os.O_RDONLY)
        for at in (20000000, 5000000, 30000000, 1000000):
            assert os.pread(f, 4096, at) == leaves['w00.npy'].tobytes()[at - 128:at - 128 + 4096]
        os.close(f)
    # The first request also looks the file up.
    assert asked_bytes(trips) < 256 << 10, str(trips)


def test_a_reader_that_jumps_from_leaf_to_leaf_gets_little_ahead(mount, url, proxy, show, tmp_path):
    """A part of the window is fetched after the first leaf, and nothing more after that guess was wrong."""
    (tmp_path / 'root').mkdir()
    leaves = noise(16, 1 << 18)
    show('jumps', saving.saved(mount, tmp_path / 'root', 'compression=none', files=leaves))
    m = mount(f'{url}/jumps', 'cache=64M', 'read_budget=128M')
    order = (3, 14, 8, 1, 12, 5, 10)
    with rounds.Rounds(proxy, m.pid) as trips:
        for i in order:
            assert compare.read_all(m / f'w{i:02}.npy').endswith(leaves[f'w{i:02}.npy'].tobytes())
    assert asked_bytes(trips) < (len(order) << 20) + (5 << 20), str(trips)


def test_a_part_of_a_path_that_may_not_be_listed(run, url, proxy):
    """Where a policy refuses the listing of what is above, the rest answers."""
    proxy.fault = lambda h: 'prefix=&' in f'{h.path}&' and (h.refuse(403, 'AccessDenied') or True)
    assert run('cat', f'{url}/run/1500/{LEAF}', text=False).stdout
    r = run('cat', f'{url}/run/1500/state/params/none/table.npy', ok=False)
    assert r.returncode == 1 and f"'{url}/run/1500/state' has no 'params/none/table.npy'" in r.stderr, r.stderr


def test_a_new_step_appears_with_its_marker(mount, bucket, url, proxy):
    files = {p.relative_to(SAMPLE).as_posix(): p.read_bytes() for p in (SAMPLE / '1000').rglob('*') if p.is_file()}
    for name, content in files.items():
        bucket.put(f'grows/{name}', content)
    m = mount(f'{url}/grows', 'poll=300')
    assert os.listdir(m.path) == ['1000']
    for name, content in files.items():
        if MARKER not in name:
            bucket.put(f'grows/{name.replace("1000", "2000", 1)}', content)
    # The step is there, and not complete.
    wait_until(lambda: any('prefix=grows/2000/' in q for _, q, _ in proxy.requests), m)
    assert '2000' not in os.listdir(m.path)
    bucket.put(f'grows/2000/{MARKER}', b'')
    wait_until(lambda: '2000' in os.listdir(m.path), m)
    assert compare.contents(m / '2000') == compare.contents(m / '1000')


def wait_until(what, m):
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        os.listdir(m.path)
        time.sleep(0.1)


@on('gs')
def test_markers_of_many_steps_are_looked_for_at_once(run, bucket, url, proxy):
    """The second look into a directory of steps takes those that follow along: four wait here until all four have come."""
    steps = [str(100 + i) for i in range(6)]
    for step in steps:
        bucket.put(f'many/{step}/{MARKER}', b'')
        bucket.put(f'many/{step}/_CHECKPOINT_METADATA', b'{"item_handlers": {"state": "x"}}')
    under_way, changed = set(), threading.Condition()

    def together(h):
        step = h.path.partition('prefix=many%2F')[2].removesuffix('%2F')
        if step in steps[2:]:
            with changed:
                under_way.add(step)
                changed.notify_all()
                assert changed.wait_for(lambda: under_way >= set(steps[2:]), 120)
        return False
    proxy.fault = together
    assert run('ls', f'{url}/many').stdout.split() == [f'{step}/' for step in steps]
    assert under_way == set(steps[2:])


@pytest.mark.parametrize('bucket, more', on_buckets('', '/', '//'), indirect=['bucket'])
def test_a_url_without_a_bucket(run, bucket, proxy, more):
    r = run('ls', f'{bucket.scheme}://{more}', ok=False)
    assert r.returncode == 1 and 'names no bucket or host: s3://BUCKET/PREFIX' in r.stderr and not proxy.requests, r.stderr


@on('s3')
def test_steps_without_markers(run, bucket, url, proxy):
    """As `aws s3 cp` may leave them: the message says how to see them."""
    bucket.upload(SAMPLE / '1000/state', 'copied/1000/state')
    r = run('ls', f'{url}/copied')
    assert r.stdout == '' and f'no step of \'{url}/copied\' has commit_success.txt, 1 is without it' in r.stderr, r
    r = run('ls', '-o', 'atomicity=rename', f'{url}/copied')
    assert r.stdout == '1000/\n' and not r.stderr
    assert run('ls', f'{url}/copied/1000').stdout == 'state/\n'


@on('s3')
def test_certificates(run, bucket, url, proxy, tmp_path):
    """A mount of a bucket is not more trusting than one of a web server; nothing is asked before the certificate is checked."""
    cert = servers.certificate(tmp_path)
    with type(proxy)(bucket.address, cert) as secure:
        if bucket.scheme == 'gs':
            secure.tokens = proxy.tokens
        options = '-o', f'endpoint={secure.url}'
        r = run('ls', *options, f'{url}/run', ok=False)
        assert r.returncode == 1 and 'certificate' in r.stderr and not secure.requests, r.stderr
        assert run('ls', *options, f'{url}/run', env=dict(os.environ, SSL_CERT_FILE=str(cert[0]))).stdout == '1000/\n1500/\n'


def test_no_redirect_is_followed(run, bucket, url, proxy):
    """Credentials are not carried to another host."""
    with type(proxy)(bucket.address) as other:
        proxy.fault = lambda h: h.refuse(307, 'TemporaryRedirect', Location=other.url + h.path) or True
        r = run('ls', f'{url}/run', ok=False)
        assert r.returncode == 1 and 'status 307 (TemporaryRedirect)' in r.stderr and not other.requests, r.stderr


# ---- credentials ----


@pytest.mark.parametrize('bucket, kind', [(scheme, kind) for scheme, vendor in VENDORS.items() for kind in vendor.KINDS],
                         indirect=['bucket'])
def test_credentials_that_a_server_gives(mount, run, bucket, url, proxy, tmp_path, monkeypatch, kind):
    """They are asked for again before they expire, by a mount that has given up its rights; the rest of the chain is empty."""
    (tmp_path / 'vendor').mkdir()
    with VENDORS[bucket.scheme](proxy, lifetime=1) as vendor:
        for name, value in vendor.environment(kind, tmp_path / 'vendor').items():
            monkeypatch.setenv(name, value)
        # No proxy is asked for what only this machine or its host may give.
        monkeypatch.setenv('http_proxy', 'http://127.0.0.1:1')
        monkeypatch.setenv('no_proxy', '127.0.0.1')
        m = mount(f'{url}/run/1500', 'cache=0', 'sandbox=require', 'trace=all')
        want = compare.read_all(SAMPLE / '1500/state/_METADATA')
        end = time.monotonic() + 60
        # Of rows that were not read before, each of which takes a request.
        rows = (f'state/params/embed/table[{i}:{i + 1},{k}:].npy' for k in range(32) for i in range(128))
        while len(proxy.seen) < 3:
            assert len(compare.read_all(m / next(rows))) > 128
            assert compare.read_all(m / '.pytreefs/stored/state/_METADATA') == want
            assert time.monotonic() < end, (proxy.seen, vendor.given)
            time.sleep(0.1)
        said = (pathlib.Path(m.log).read_bytes() + compare.read_all(m / '.pytreefs/config')
                + pathlib.Path(f'/proc/{m.pid}/cmdline').read_bytes())
        assert b'http GET' in said and not any(secret.encode() in said for secret in vendor.secrets())
        for name, value in vendor.wrong_environment(tmp_path).items():
            monkeypatch.setenv(name, value)
        r = run('ls', '-o', 'trace=all', f'{url}/run', ok=False)
        assert r.returncode == 1 and 'no credentials: ' in r.stderr, r.stderr
        assert not any(secret in r.stderr for secret in vendor.secrets())


# ---- faults ----


def test_an_object_that_is_replaced(mount, bucket, url, proxy):
    """Between two reads of a file that is open: an error that names it, and never some of both."""
    bucket.upload(SAMPLE / '1500', 'replaced')
    m = mount(f'{url}/replaced', 'cache=0', allow_errors=True)
    os.stat(m / LEAF)
    compare.read_all(m / 'state/params/embed/table[0:1].npy')
    mounts.wait_for_release(m)
    for p in (SAMPLE / '1500').rglob('d/*'):
        bucket.put(f'replaced/{p.relative_to(SAMPLE / "1500").as_posix()}', bytes(b ^ 1 for b in p.read_bytes()))
    with pytest.raises(OSError):
        compare.read_all(m / LEAF)
    assert any('was replaced' in line and f'{url}/replaced/' in line and '/d/' in line
               for line in m.log_lines()), m.log_lines()


@on('gs')
def test_a_server_that_is_busy(run, url, proxy):
    """Two of each three requests are refused at first."""
    seen = []

    def slow_down(h):
        seen.append(h.path)
        return len(seen) % 3 and (h.refuse(503, 'SlowDown', Retry_After='0') or True)
    proxy.fault = slow_down
    assert run('cat', f'{url}/run/1500/{LEAF}', text=False).stdout == \
        run('cat', SAMPLE / '1500' / LEAF, text=False).stdout
