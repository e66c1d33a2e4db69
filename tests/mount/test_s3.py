# SPDX-License-Identifier: Apache-2.0
"""Features of S3 buckets only: signatures, the chain of AWS's credentials, regions, XML. The rest is in test_buckets.py."""

import datetime
import errno
import os
import pathlib
import subprocess
import time

import pytest

from lib import buckets, compare, mounts

SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data/sample'
IN_MEMORY = True  # for the fixtures
LEAF = 'state/params/embed/table.npy'


@pytest.fixture(scope='module')
def bucket(s3_server):
    """A bucket whose run/ is the sample, which everybody may read; tests write elsewhere in it."""
    b = buckets.Bucket(s3_server, 'checkpoints', **buckets.PUBLIC)
    b.upload(SAMPLE, 'run', **buckets.PUBLIC)
    return b


@pytest.fixture
def s3(bucket, s3):
    return s3


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
    mounts.wait_for_release(m)
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
