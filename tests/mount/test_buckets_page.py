# SPDX-License-Identifier: Apache-2.0
"""The commands and settings of docs/buckets.md, at the hosts that the page names: a tunnel leads to the test servers instead."""

import contextlib
import os
import pathlib
import re
import subprocess

import numpy as np
import pytest

from lib import buckets, compare, servers
from lib import gcs as gcs_server

BUCKET = 'models'
IN_MEMORY = True  # both for the fixtures
SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data/sample'
PAGE = (SAMPLE.parent.parent.parent / 'docs/buckets.md').read_text()
KEYS = 'AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY'
# By the end of the host's name: the region that a service takes.
S3 = {f's3.{buckets.REGION}.amazonaws.com': buckets.REGION, 'ACCOUNT.r2.cloudflarestorage.com': 'auto', 'cwobject.com': 'us-east-04a'}


def sections():
    """The blocks of commands, by the heading that they stand below."""
    found = {}
    for section in re.split('^# |^## ', PAGE, flags=re.M)[1:]:
        blocks = section.split('```')[1::2]
        if blocks:
            found[section.partition('\n')[0]] = blocks
    return found


@pytest.fixture
def internet(s3_server, gs_server, s3, gs, s3_bucket, gs_bucket, tmp_path):
    """The hosts of the page: of each service, with a bucket `models`, and of a web server. Gives the tunnel."""
    for bucket in s3_bucket, gs_bucket:
        for key in bucket.keys():
            if not re.match('run7/1[05]00/', key):
                bucket.delete(key)
        if not bucket.keys():
            bucket.upload(SAMPLE, 'run7')
    (tmp_path / 'www').mkdir()
    (tmp_path / 'www/run7').symlink_to(SAMPLE)
    names = ['models.example.org', 'storage.googleapis.com', *S3, *(f'models.{host}' for host in S3)]
    cert = servers.certificate(tmp_path, names=names)
    with contextlib.ExitStack() as stack:
        ports = {host: stack.enter_context(buckets.Proxy(s3_server, cert, region, host)).server_address[1] for host, region in S3.items()}
        google = stack.enter_context(gcs_proxy(gs_server, cert, gs))
        web = stack.enter_context(servers.nginx(tmp_path / 'nginx', tmp_path / 'www', cert))
        tunnel = stack.enter_context(servers.Tunnel({**ports, 'storage.googleapis.com': google.server_address[1],
                                                     'models.example.org': int(web.rpartition(':')[2])}))
        tunnel.certificate = cert[0]
        yield tunnel


def gcs_proxy(address, cert, gs):
    proxy = gcs_server.Proxy(address, cert)
    proxy.tokens = gs.tokens
    return proxy


@pytest.fixture
def environment(internet, program):
    """Of a user with credentials, and without settings of where requests go."""
    env = {name: value for name, value in os.environ.items() if name not in ('AWS_ENDPOINT_URL', 'TENSORSTORE_GCS_HTTP_URL')}
    return {**env, 'PATH': f'{pathlib.Path(program).parent}:{os.environ["PATH"]}', 'https_proxy': internet.url,
            'no_proxy': '127.0.0.1', 'TOKEN': 'secret', 'SSL_CERT_FILE': str(internet.certificate)}


@pytest.fixture
def here(tmp_path):
    """The user's directory."""
    directory = tmp_path / 'here'
    (directory / 'mnt').mkdir(parents=True)
    (directory / 'ckpts').symlink_to(SAMPLE)
    (directory / 'params').mkdir()
    np.save(directory / 'params/w.npy', np.arange(6.))
    yield directory
    if os.path.ismount(directory / 'mnt'):
        subprocess.run(['umount', directory / 'mnt'], check=True)


def sh(script, directory, env):
    r = subprocess.run(['sh', '-ec', script], cwd=directory, env=env, capture_output=True, text=True, timeout=240)
    assert r.returncode == 0, f'{script}: {r.stderr}'
    return r.stdout


# The hosts that each section reaches.
HOSTS = {'Checkpoints in a bucket, or on a web server': {f'models.s3.{buckets.REGION}.amazonaws.com', 'models.example.org'},
         'S3 and compatible services': {'account.r2.cloudflarestorage.com'}, 'Google Cloud Storage': {'storage.googleapis.com'},
         'A web server': {'models.example.org'}, 'A cache on disk': {f'models.s3.{buckets.REGION}.amazonaws.com'}}


@pytest.mark.parametrize('section', HOSTS)
def test_commands(mount, internet, environment, here, spill, section):
    """All blocks of a section, as they stand there, except the keys."""
    for block in sections()[section]:
        if KEYS[0] in block:
            for name, value in zip(KEYS, (buckets.KEY_ID, buckets.SECRET), strict=True):
                assert f'{name}=...' in block
                block = block.replace(f'{name}=...', f'{name}={value}')
                del environment[name]
        sh(block, here, environment)
    assert set(internet.asked) == HOSTS[section]
    text = '\n'.join(sections()[section])
    if 'mnt' in text:
        assert compare.contents(here / 'mnt/1500') == compare.contents(mount(SAMPLE).path / '1500')
    if 'pytreefs convert' in text:
        sh('pytreefs diff ckpts/1500 copy', here, environment)
        assert np.load(here / 'table.npy').shape == (128, 32)
    written = re.findall(r'pytreefs (?:convert|save) .*(s3://\S+)$', text, flags=re.M)
    assert bool(written) == ('pytreefs save' in text)
    for step in [*written, *(['s3://models/run7/1700'] if 'mv mnt/1700.tmp mnt/1700' in text else [])]:
        assert '0 errors, 0 warnings' in sh(f'pytreefs verify {step}', here, environment)


def test_no_command_is_left_out():
    assert sections().keys() == HOSTS.keys()


def rows():
    """The table of services: what it says to set."""
    table = PAGE.partition('| Service | Set |\n|---|---|\n')[2].partition('\n\n')[0]
    return dict(line.strip('| ').split(' | ') for line in table.splitlines())


def test_services(internet, environment, here, s3):
    """Each row of the table, and the two services without one, by `ls`."""
    region = {'Amazon S3': buckets.REGION, 'CoreWeave AI Object Storage': S3['cwobject.com']}
    host = {'Amazon S3': f'models.s3.{buckets.REGION}.amazonaws.com', 'Cloudflare R2': 'account.r2.cloudflarestorage.com',
            'CoreWeave AI Object Storage': 'models.cwobject.com', 'MinIO, Ceph': None}
    assert rows().keys() == host.keys()
    del environment['AWS_REGION']
    for service, text in rows().items():
        options = [o.replace('HOST:9000', s3.url.partition('://')[2]) for o in re.findall('`([a-z]+=[^`]*)`', text)]
        options = [o + region[service] if o == 'region=' else o for o in options]
        # This server takes its own region only; those that are meant take any.
        options += [] if host[service] else [f'region={buckets.REGION}']
        internet.asked.clear()
        assert sh(f'pytreefs ls -o {",".join(options)} s3://models/run7', here, environment) == '1000/\n1500/\n', service
        assert set(internet.asked) == ({host[service]} if host[service] else set()), service
