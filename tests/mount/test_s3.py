# SPDX-License-Identifier: Apache-2.0
"""A source in a bucket of S3: byte for byte what the disk has, by requests whose signatures are checked."""

import datetime
import errno
import os
import pathlib
import subprocess
import threading
import time

import pytest

from lib import buckets, compare, servers

SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data/sample'
LEAF = 'state/params/embed/table.npy'
MARKER = 'commit_success.txt'


@pytest.fixture(scope='module')
def bucket(moto):
    """A bucket whose run/ is the sample, which everybody may read; tests write elsewhere in it."""
    b = buckets.Bucket(moto, 'checkpoints', **buckets.PUBLIC)
    b.upload(SAMPLE, 'run', **buckets.PUBLIC)
    return b


@pytest.fixture
def s3(bucket, s3):
    return s3


@pytest.mark.parametrize('page', [None, 3])
def test_a_root_is_the_same_as_on_disk(mount, s3, page):
    """Also with pages of three names, so that look-ups cannot be answered by one page."""
    s3.page = page
    m = mount('s3://checkpoints/run', 'sandbox=require')
    assert compare.contents(m.path) == compare.contents(mount(SAMPLE).path)
    subprocess.run(['ls', '-lR', m.path], check=True, stdout=subprocess.DEVNULL)
    assert any('continuation-token' in q for _, q, _ in s3.requests) == bool(page)
    assert any(method == 'HEAD' for method, _, _ in s3.requests) == bool(page)
    assert compare.read_all(m / '.pytreefs/stored/1500/state/_METADATA') == \
        compare.read_all(SAMPLE / '1500/state/_METADATA')


@pytest.mark.parametrize('name', ['matrix-ocdbt-zarr2-zstd-v0', 'matrix-perleaf-zarr3-none-v1', 'aggregate-by-hand',
                                  'unmerged-two-processes'])
def test_layouts(mount, cases, bucket, s3, name):
    case = cases(name)
    bucket.upload(case.path, name)
    # Steps that were copied have no marker.
    assert not compare.compare_case(mount(f's3://checkpoints/{name}', 'atomicity=rename').path, case)


def test_commands(run, s3, tmp_path):
    step = 's3://checkpoints/run/1500'
    for leaf in (LEAF, 'state/params/embed/table[0:2,3].npy'):
        assert run('cat', f'{step}/{leaf}', text=False).stdout == run('cat', SAMPLE / '1500' / leaf, text=False).stdout
    assert run('ls', f'{step}/state').stdout == run('ls', SAMPLE / '1500/state').stdout
    assert '0 errors, 0 warnings' in run('verify', 's3://checkpoints/run').stdout
    assert run('diff', step, SAMPLE / '1500').returncode == 0
    assert run('diff', step, 's3://checkpoints/run/1000', ok=False).returncode == 1
    run('export', f'{step}/state', tmp_path / 'bucket.safetensors')
    run('export', SAMPLE / '1500/state', tmp_path / 'disk.safetensors')
    assert (tmp_path / 'bucket.safetensors').read_bytes() == (tmp_path / 'disk.safetensors').read_bytes()
    run('convert', step, tmp_path / 'copy')
    assert run('diff', SAMPLE / '1500', tmp_path / 'copy').returncode == 0
    for name in ('config/metadata', 'metrics/metrics'):
        assert compare.read_all(tmp_path / 'copy' / name) == compare.read_all(SAMPLE / '1500' / name)


def test_few_requests_one_after_the_other(run, s3):
    """For each part of the path at once, for the checkpoint, and for what it needs."""
    run('cat', f's3://checkpoints/run/1500/{LEAF}', text=False)
    parts = [q for _, q, _ in s3.requests if 'max-keys=1' in q]
    assert len(parts) == 6 and len(s3.requests) - len(parts) <= 7, s3.requests
    # Where a policy refuses the listing of what is above, the rest answers.
    s3.fault = lambda h: 'prefix=&' in f'{h.path}&' and (h.refuse(403, 'AccessDenied') or True)
    assert run('cat', f's3://checkpoints/run/1500/{LEAF}', text=False).stdout
    r = run('cat', 's3://checkpoints/run/1500/state/params/none/table.npy', ok=False)
    assert r.returncode == 1 and "'s3://checkpoints/run/1500/state' has no 'params/none/table.npy'" in r.stderr, r.stderr


def test_a_new_step_appears_with_its_marker(mount, bucket, s3):
    files = {p.relative_to(SAMPLE).as_posix(): p.read_bytes() for p in (SAMPLE / '1000').rglob('*') if p.is_file()}
    for name, content in files.items():
        bucket.put(f'grows/{name}', content)
    m = mount('s3://checkpoints/grows', 'poll=300')
    assert os.listdir(m.path) == ['1000']
    for name, content in files.items():
        if MARKER not in name:
            bucket.put(f'grows/{name.replace("1000", "2000", 1)}', content)
    # The step is there, and not complete.
    wait_until(lambda: any('prefix=grows/2000/' in q for _, q, _ in s3.requests), m)
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


def test_markers_of_many_steps_are_looked_for_at_once(run, bucket, s3):
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
                assert changed.wait_for(lambda: under_way >= set(steps[2:]), 30)
        return False
    s3.fault = together
    assert run('ls', 's3://checkpoints/many').stdout.split() == [f'{step}/' for step in steps]
    assert under_way == set(steps[2:])


def test_steps_without_markers(run, bucket, s3):
    """As `aws s3 cp` may leave them: the message says how to see them."""
    bucket.upload(SAMPLE / '1000/state', 'copied/1000/state')
    r = run('ls', 's3://checkpoints/copied')
    assert r.stdout == '' and 'no step of \'s3://checkpoints/copied\' has commit_success.txt, 1 are without it' in r.stderr, r
    r = run('ls', '-o', 'atomicity=rename', 's3://checkpoints/copied')
    assert r.stdout == '1000/\n' and not r.stderr
    assert run('ls', 's3://checkpoints/copied/1000').stdout == 'state/\n'


# ---- credentials ----


def test_no_secret_is_in_any_output(program, mount, s3, tmp_path, monkeypatch):
    token = 'FwoGZXIvYXdzEBYaDTokenOfTheTests'
    s3.keys[buckets.KEY_ID] = buckets.SECRET, token
    said = []

    def ask(*words, **env):
        r = subprocess.run([program, *words], capture_output=True, env=dict(os.environ, **env), stdin=subprocess.DEVNULL)
        said.append(r.stdout + r.stderr)
        return r
    monkeypatch.setenv('AWS_SESSION_TOKEN', token)
    leaf = f's3://checkpoints/run/1500/{LEAF}'
    assert ask('cat', '-o', 'trace=all', leaf).returncode == 0
    assert ask('info', '-o', 'trace=all', leaf).returncode == 0
    for wrong in ({'AWS_SECRET_ACCESS_KEY': buckets.SECRET[:-1]}, {'AWS_SESSION_TOKEN': token[:-1]},
                  {'AWS_SESSION_TOKEN': f'{token}\n'}):
        assert ask('ls', '-o', 'trace=all', 's3://checkpoints/run', **wrong).returncode == 1
    m = mount('s3://checkpoints/run', 'trace=all')
    compare.read_all(m / f'1500/{LEAF}')
    said += [pathlib.Path(m.log).read_bytes(), compare.read_all(m / '.pytreefs/config'),
             pathlib.Path(f'/proc/{m.pid}/cmdline').read_bytes()]
    everything = b''.join(said)
    assert b'http GET' in everything
    for secret in (buckets.SECRET[:-1], token[:-1], 'Signature='):
        assert secret.encode() not in everything


@pytest.mark.parametrize('env, options, why', [
    ({'AWS_SECRET_ACCESS_KEY': 'x' * 40}, '', "cannot read 's3://checkpoints/run': status 403 (SignatureDoesNotMatch)"),
    ({'AWS_ACCESS_KEY_ID': 'AKIDOTHER'}, '', '(InvalidAccessKeyId): the server does not know the id of the access key'),
    ({'AWS_ACCESS_KEY_ID': ''}, '', 'AWS_SECRET_ACCESS_KEY is set, and AWS_ACCESS_KEY_ID is not'),
    ({'AWS_ACCESS_KEY_ID': '', 'AWS_SECRET_ACCESS_KEY': ''}, '', 'no credentials'),
    ({'AWS_PROFILE': 'none'}, '', "the profile 'none' (AWS_PROFILE) is neither in '"),
    ({}, 'region=eu-west-1', f"the bucket is in the region '{buckets.REGION}', and 'eu-west-1' was asked"),
    ({}, 'region=../x', "'../x' is not the name of a region"),
    ({}, 'endpoint=https://u:secret@host', 'an endpoint with a user'),
    ({}, 'endpoint=host', "the endpoint 'host' is not a URL"),
    ({}, 'anonymous', '(AccessDenied): it may not be read without credentials'),
])
def test_refusals(run, s3, env, options, why):
    r = run('ls', *(['-o', options] if options else []), 's3://checkpoints/run', ok=False, env=dict(os.environ, **env))
    assert r.returncode == 1 and why in r.stderr, r.stderr
    assert 'secret@' not in r.stderr


@pytest.mark.parametrize('url, why', [
    ('s3://other/run', "cannot read 's3://other/run': status 404 (NoSuchBucket): the bucket does not exist"),
    ('s3://checkpoints/run/1500/none', "'s3://checkpoints/run/1500' has no 'none'"),
    ('s3://checkpoints/run/../run', "has '..' as a part of its path"),
    ('s3://key:secret@checkpoints/run', 'a bucket has letters'),
])
def test_sources_that_do_not_exist(run, s3, url, why):
    r = run('ls', url, ok=False)
    assert r.returncode == 1 and why in r.stderr and 'secret@' not in r.stderr, r.stderr


def test_clocks_that_differ(run, s3):
    s3.skew = datetime.timedelta(hours=1)
    r = run('ls', 's3://checkpoints/run', ok=False)
    assert r.returncode == 1 and '(RequestTimeTooSkewed): the clock of this machine says 20' in r.stderr, r.stderr


def test_expired_credentials_are_read_again(mount, s3, tmp_path, monkeypatch):
    """Of a mount that has given up its rights to open other files."""
    file = tmp_path / 'aws-credentials'

    def write(key_id, secret, token):
        s3.keys[key_id] = secret, token
        file.write_text(f'[default]\naws_access_key_id = nobody\n\n[train]\naws_access_key_id={key_id}\n'
                        f'aws_secret_access_key = {secret}\naws_session_token = {token}\n')
    for name in ('AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY'):
        monkeypatch.delenv(name)
    monkeypatch.setenv('AWS_PROFILE', 'train')
    monkeypatch.setenv('AWS_SHARED_CREDENTIALS_FILE', str(file))
    write('ASIAFIRST', 'first/secret', 'first-token')
    m = mount('s3://checkpoints/run/1500', 'cache=0', 'sandbox=require', allow_errors=True)
    want = compare.read_all(m / 'state/params/embed/table[0:1].npy')
    s3.expired.add('ASIAFIRST')
    with pytest.raises(OSError) as e:
        compare.read_all(m / LEAF)
    assert e.value.errno == errno.EACCES
    assert any('(ExpiredToken): the credentials have expired' in line for line in m.log_lines())
    write('ASIASECOND', 'second/secret', 'second-token')
    assert compare.read_all(m / 'state/params/embed/table[0:1].npy') == want
    # Again, while it is mounted: the request that is refused is made again with the new ones.
    write('ASIATHIRD', 'third/secret', 'third-token')
    s3.expired.add('ASIASECOND')
    assert compare.read_all(m / LEAF) == compare.read_all(mount(SAMPLE / '1500') / LEAF)


@pytest.mark.parametrize('kind', ['container', 'instance', 'identity'])
def test_credentials_that_a_server_gives(mount, run, s3, tmp_path, monkeypatch, kind):
    """They are asked for again before they expire, by a mount that has given up its rights; the rest of the chain is empty."""
    for name in ('AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY'):
        monkeypatch.delenv(name)
    (tmp_path / 'vendor').mkdir()
    with buckets.Vendor(s3, lifetime=3) as vendor:
        for name, value in vendor.environment(kind, tmp_path / 'vendor').items():
            monkeypatch.setenv(name, value)
        # No proxy is asked for what only this machine or its host may give.
        monkeypatch.setenv('http_proxy', 'http://127.0.0.1:1')
        monkeypatch.setenv('no_proxy', '127.0.0.1')
        m = mount('s3://checkpoints/run/1500', 'cache=0', 'sandbox=require', 'trace=all')
        want = compare.read_all(m / 'state/params/embed/table[0:1].npy')
        end = time.monotonic() + 60
        while len(s3.seen) < 3:
            assert compare.read_all(m / 'state/params/embed/table[0:1].npy') == want
            os.listdir(m / '.pytreefs/stored')
            assert time.monotonic() < end, (s3.seen, vendor.given)
            time.sleep(0.1)
        log = pathlib.Path(m.log).read_text()
        assert not any(f'{what}-of-{key}' in log for what in ('secret', 'token') for key in vendor.given)
        assert 'of-the-' not in log and 'of/the+' not in log and 'of%2F' not in log
        monkeypatch.setenv('AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE', '/dev/null')
        monkeypatch.setenv('AWS_ROLE_ARN', 'other')
        monkeypatch.setenv('AWS_EC2_METADATA_SERVICE_ENDPOINT', s3.url)
        r = run('ls', 's3://checkpoints/run', ok=False)
        assert r.returncode == 1 and 'no credentials: ' in r.stderr, r.stderr


@pytest.mark.option('anonymous')
def test_anonymous(run, s3):
    s3.anonymous = True
    assert run('ls', '-o', 'anonymous', 's3://checkpoints/run').stdout == run('ls', 's3://checkpoints/run').stdout
    env = {k: v for k, v in os.environ.items() if 'KEY' not in k}
    assert run('ls', 's3://checkpoints/run', ok=False, env=env).returncode == 1
    assert run('ls', '-o', 'anonymous', 's3://checkpoints/run', env=env).returncode == 0


@pytest.mark.option('endpoint', 'region', 'addressing')
def test_where_requests_go(run, s3, tmp_path):
    """Options, then the environment, then the profile; the bucket in the path or in the host's name."""
    url = 's3://checkpoints/run/1500'
    want = run('ls', url).stdout
    bare = {k: v for k, v in os.environ.items() if k not in ('AWS_ENDPOINT_URL', 'AWS_REGION')}
    assert run('ls', '-o', f'endpoint={s3.url},region={buckets.REGION}', url, env=bare).stdout == want
    other = dict(os.environ, AWS_ENDPOINT_URL='http://127.0.0.1:1', AWS_REGION='us-east-1')
    assert run('ls', '-o', f'endpoint={s3.url},region={buckets.REGION}', url, env=other).stdout == want
    config = tmp_path / 'aws-config'
    config.write_text(f'[profile a]\nregion = x\n[profile train]\nregion = {buckets.REGION}\nendpoint_url = {s3.url}/\n')
    assert run('ls', url, env=dict(bare, AWS_PROFILE='train', AWS_CONFIG_FILE=str(config))).stdout == want
    assert not any(host.startswith('checkpoints.') for host in s3.hosts)
    local = s3.url.replace('127.0.0.1', 'localhost')
    assert run('ls', '-o', f'endpoint={local},addressing=virtual', url).stdout == want
    assert s3.hosts[-1].startswith('checkpoints.localhost:')
    assert run('ls', '-o', f'endpoint={local},addressing=path', url).stdout == want
    assert s3.hosts[-1].startswith('localhost:')


def test_the_commands_of_the_page(program, moto, s3, tmp_path):
    """Those of docs/buckets.md that name a bucket, as they stand there."""
    buckets.Bucket(moto, 'models').upload(SAMPLE, 'run7')
    page = (SAMPLE.parent.parent.parent / 'docs/buckets.md').read_text()
    commands = [line for line in page.split('```')[1].splitlines() if 's3://' in line]
    assert len(commands) >= 5
    (tmp_path / 'mnt').mkdir()
    env = dict(os.environ, PATH=f'{pathlib.Path(program).parent}:{os.environ["PATH"]}')
    try:
        for line in commands:
            subprocess.run(line, shell=True, check=True, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL)
        assert compare.contents(tmp_path / 'mnt/1500/state/params').keys() and (tmp_path / 'table.npy').read_bytes()
    finally:
        if os.path.ismount(tmp_path / 'mnt'):
            subprocess.run(['umount', tmp_path / 'mnt'], check=True)


def test_certificates(run, moto, s3, tmp_path):
    """A mount of a bucket is not more trusting than one of a web server; nothing is asked before the certificate is checked."""
    cert = servers.certificate(tmp_path)
    with buckets.Proxy(moto, cert) as secure:
        env = dict(os.environ, AWS_ENDPOINT_URL=secure.url)
        r = run('ls', 's3://checkpoints/run', ok=False, env=env)
        assert r.returncode == 1 and 'certificate' in r.stderr and not secure.requests, r.stderr
        assert run('ls', 's3://checkpoints/run', env=dict(env, SSL_CERT_FILE=str(cert[0]))).stdout == '1000/\n1500/\n'


def test_no_redirect_is_followed(run, moto, s3):
    """Credentials are not carried to another host."""
    with buckets.Proxy(moto) as other:
        s3.fault = lambda h: h.refuse(307, 'TemporaryRedirect', Location=other.url + h.path) or True
        r = run('ls', 's3://checkpoints/run', ok=False)
        assert r.returncode == 1 and 'status 307 (TemporaryRedirect)' in r.stderr and not other.requests, r.stderr


# ---- faults ----


def test_an_object_that_is_replaced(mount, bucket, s3):
    """Between two reads of a file that is open: an error that names it, and never some of both."""
    bucket.upload(SAMPLE / '1500', 'replaced')
    m = mount('s3://checkpoints/replaced', 'cache=0', allow_errors=True)
    os.stat(m / LEAF)
    compare.read_all(m / 'state/params/embed/table[0:1].npy')
    for p in (SAMPLE / '1500').rglob('d/*'):
        bucket.put(f'replaced/{p.relative_to(SAMPLE / "1500").as_posix()}', bytes(b ^ 1 for b in p.read_bytes()))
    with pytest.raises(OSError):
        compare.read_all(m / LEAF)
    assert any('was replaced' in line and 's3://checkpoints/replaced/' in line and '/d/' in line
               for line in m.log_lines()), m.log_lines()


@pytest.mark.parametrize('answer, why', [
    (b'<ListBucketResult>', "the listing of 's3://checkpoints/run': line 1: no element found"),
    (b'<html>Sign in</html>', "the listing of 's3://checkpoints/run': it is not a listing"),
    (b'<!DOCTYPE a [<!ENTITY b "c">]><ListBucketResult/>', 'it has a document type'),
    (b'<ListBucketResult><Contents><Key>elsewhere</Key><Size>1</Size></Contents></ListBucketResult>',
     "a key that does not begin with the prefix 'run/'"),
    (b'<ListBucketResult><Contents><Key>run/a/b</Key><Size>1</Size></Contents></ListBucketResult>',
     "it has keys of directories below 'run/'"),
])
def test_a_listing_that_is_malformed(run, s3, answer, why):
    s3.fault = lambda h: h.answer(200, [], answer) or True
    r = run('ls', 's3://checkpoints/run', ok=False)
    assert r.returncode == 1 and why in r.stderr, r.stderr


def test_a_server_that_is_busy(run, s3):
    """Two of each three requests are refused at first."""
    seen = []

    def slow_down(h):
        seen.append(h.path)
        return len(seen) % 3 and (h.refuse(503, 'SlowDown', Retry_After='0') or True)
    s3.fault = slow_down
    assert run('cat', f's3://checkpoints/run/1500/{LEAF}', text=False).stdout == \
        run('cat', SAMPLE / '1500' / LEAF, text=False).stdout
