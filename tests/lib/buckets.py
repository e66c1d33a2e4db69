# SPDX-License-Identifier: Apache-2.0
"""Buckets of S3 on this machine: moto's server, and a proxy before it that checks what moto does not.

moto takes any signature. The proxy computes each anew with Python's hmac, as AWS describes it, and compares.
"""

import contextlib
import datetime
import hashlib
import hmac
import html
import http.client
import http.server
import json
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import urllib.parse

from lib import servers

KEY_ID, SECRET = 'AKIDPYTREEFSTESTS', 'wJalr/XUtnFEMI+K7MDENGbPxRfiCYTESTSECRET'
REGION = 'eu-west-7'
PUBLIC = {'x-amz-acl': 'public-read'}
HOP = {'connection', 'keep-alive', 'transfer-encoding', 'host', 'content-length', 'server', 'date'}
# A server outlives the test that started it, and so the directory that this test may have set.
TEMPORARY = tempfile.gettempdir()
# moto lists its own directory for each request, to find the service that is meant.
SERVER = '''
import sys, threading
from moto import backends
from moto.server import ThreadedMotoServer
services = tuple(backends.list_of_moto_modules())
backends.list_of_moto_modules = lambda: services
server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
'''


@contextlib.contextmanager
def process_of(script, what):
    """A server in a process of its own, whose first line is its port and which ends with its input; gives its address."""
    process = subprocess.Popen([sys.executable, '-c', script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True, env={**os.environ, 'TMPDIR': TEMPORARY})
    try:
        line = process.stdout.readline()
        assert line, f'{what} did not start: status {process.wait(120)}'
        yield f'127.0.0.1:{int(line)}'
    finally:
        process.kill()
        process.wait(120)
        process.stdin.close()
        process.stdout.close()


def moto():
    """moto's server; gives its address."""
    return process_of(SERVER, 'moto')


def ask(address, method, path, body=None, headers=None):
    """(status, headers, body) of an answer; path: escaped, with the query. address: of a server, or one of lib/objects.py."""
    if callable(address):
        return address(method, path, headers or {}, body)
    c = http.client.HTTPConnection(address, timeout=60)
    try:
        c.request(method, path, body, headers or {})
        answer = c.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        c.close()


class AnyBucket:
    """A bucket, asked past the proxy."""

    def __init__(self, address, name):
        self.address, self.name = address, name

    def ask(self, method, path, body=None, **headers):
        status, _, answer = ask(self.address, method, path, body, headers)
        assert status in (200, 204), (method, path, status, answer)
        return answer

    def upload(self, directory, prefix, **headers):
        for p in sorted(p for p in pathlib.Path(directory).rglob('*') if p.is_file()):
            self.put(f'{prefix}/{p.relative_to(directory).as_posix()}', p.read_bytes(), **headers)


class Bucket(AnyBucket):
    """One of moto's."""
    scheme = 's3'

    def __init__(self, address, name, **headers):
        super().__init__(address, name)
        self._ask('PUT', '', f'<CreateBucketConfiguration><LocationConstraint>{REGION}</LocationConstraint>'
                             '</CreateBucketConfiguration>', **headers)

    def _ask(self, method, key, body=None, **headers):
        # moto refuses what nobody signed.
        return self.ask(method, urllib.parse.quote(f'/{self.name}{key}'), body,
                        Authorization=f'AWS4-HMAC-SHA256 Credential=test/20200101/{REGION}/s3/aws4_request', **headers)

    def put(self, key, content, **headers):
        self._ask('PUT', f'/{key}', content, **headers)

    def get(self, key):
        return self._ask('GET', f'/{key}')

    def delete(self, key):
        self._ask('DELETE', f'/{key}')

    def _list(self, query):
        answer = self.ask('GET', f'/{self.name}?{query}', Authorization=f'AWS4-HMAC-SHA256 Credential=test/20200101/{REGION}/s3/aws4_request')
        return sorted(html.unescape(k) for k in re.findall(r'<Key>(.*?)</Key>', answer.decode()))

    def keys(self, prefix=''):
        return self._list(urllib.parse.urlencode({'list-type': 2, 'prefix': prefix}))

    def uploads(self):
        """Return the uploads in progress."""
        return self._list('uploads=')


def unfinished(bucket, proxy):
    """Uploads of either vendor that were begun, and neither completed nor aborted."""
    return bucket.uploads() if bucket.scheme == 's3' else [s for s in proxy.sessions.values() if not s.about]


def lagging(is_hidden):
    """A fault of proxies of either vendor: listings do not show the keys and prefixes (as `run/7/`) that is_hidden(name) says; all else is asked
    as it is. Its `shown_without` has the paths of the listings from which something was left out."""
    def kept(name):
        return not is_hidden(name)

    def fault(h):
        if h.server.kind_of(h.command, urllib.parse.unquote(h.path)) not in ('page', 'next', 'any'):
            return False
        answer = h.forward(*h.path.partition('?')[::2])
        if not answer:
            return True
        status, headers, body = answer
        if isinstance(h.server, Proxy):
            less = re.sub('<(Contents|CommonPrefixes)><(Key|Prefix)>(.*?)</.*?</\\1>',
                          lambda m: m[0] if kept(html.unescape(m[3])) else '', body.decode(), flags=re.S)
        else:
            page = json.loads(body)
            page['items'] = [i for i in page.get('items', []) if kept(i['name'])]
            page['prefixes'] = [p for p in page.get('prefixes', []) if kept(p)]
            less = json.dumps({k: v for k, v in page.items() if v})
        if len(less) < len(body.decode()):
            fault.shown_without.append(h.path)
        h.answer(status, headers, less.encode())
        return True
    fault.shown_without = []
    return fault


def is_put(key):
    """Of requests that reach a proxy: whether they put an object with that in its name, at once or as its last part."""
    return lambda h: h.command in ('PUT', 'POST') and key in h.path and 'upload' not in h.path.partition('?')[2].replace('uploadType', '')


def is_first_put(key):
    """As is_put(), of those with the condition that there is no such object."""
    return lambda h: is_put(key)(h) and (h.headers.get('If-None-Match') == '*' or 'ifGenerationMatch=0' in h.path)


def is_replacing_put(key):
    """As is_put(), of those with the condition that the object is a certain one."""
    return lambda h: is_put(key)(h) and bool(h.headers.get('If-Match') or re.search('ifGenerationMatch=[1-9]', h.path))


def _hmac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature(secret, method, path, query, headers, signed, stamp, scope):
    """Signature Version 4 of a request, from what was received."""
    canonical = '\n'.join([method, path, '&'.join(sorted(query.split('&'))) if query else '',
                           *(f'{name}:{" ".join(headers[name].split())}' for name in signed), '',
                           ';'.join(signed), headers['x-amz-content-sha256']])
    text = '\n'.join(['AWS4-HMAC-SHA256', stamp, '/'.join(scope), hashlib.sha256(canonical.encode()).hexdigest()])
    key = f'AWS4{secret}'.encode()
    for part in scope:
        key = _hmac(key, part)
    return _hmac(key, text).hex()


class Handler(http.server.BaseHTTPRequestHandler):
    """Of a proxy before a bucket: is_allowed() answers what it refuses; forward() gives an answer, or has answered."""
    protocol_version = 'HTTP/1.1'
    # Headers and a document are two writes: without it the second waits for the first's receipt.
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self, status, headers, body):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != 'HEAD' or not any(n.lower() == 'content-length' for n, _ in headers):
            self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(body)

    def _serve(self):
        p = self.server
        path, _, query = self.path.partition('?')
        with p.lock:
            p.hosts.append(self.headers['Host'])
            p.requests.append((self.command, urllib.parse.unquote(self.path), self.headers.get('Range') or self.headers.get('Content-Range')))
        if p.early and p.early(self):
            return
        self.body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
        if p.spoil:
            p.spoil(self)
        with p.gate(self) if p.gate else contextlib.nullcontext():
            if self.is_allowed(path, query) and not (p.fault and p.fault(self)):
                answer = self.forward(path, query)
                if answer:
                    self.answer(*answer)

    def ask(self, address, path, body=None):
        """Return the server's reply to the same request with another path."""
        if callable(address):
            return address(self.command, path, self.headers, body)
        status, headers, answer = ask(address, self.command, path, body,
                                      {k: v for k, v in self.headers.items() if k.lower() not in HOP})
        return status, [(k, v) for k, v in headers
                        if k.lower() not in HOP or (self.command == 'HEAD' and k.lower() == 'content-length')], answer

    def reset(self):
        """End the connection as one that is lost does."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        self.close_connection = True
        self.connection.close()
        return True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve


class _Handler(Handler):
    def refuse(self, status, code, more='', **headers):
        body = (f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>no</Message>{more}</Error>').encode()
        self.answer(status, [(k.replace('_', '-'), v) for k, v in headers.items()], body)

    def is_allowed(self, path, query):
        """Whether the signature is right; answers otherwise."""
        p, headers = self.server, {k.lower(): v for k, v in self.headers.items()}
        given = headers.get('authorization')
        if not given:
            return p.anonymous or self.refuse(403, 'AccessDenied')
        parts = dict(part.strip().split('=', 1) for part in given.removeprefix('AWS4-HMAC-SHA256 ').split(','))
        key_id, *scope = parts['Credential'].split('/')
        p.seen.add(key_id)
        signed, stamp = parts['SignedHeaders'].split(';'), headers['x-amz-date']
        if key_id not in p.keys:
            return self.refuse(403, 'InvalidAccessKeyId')
        secret, token = p.keys[key_id]
        if key_id in p.expired:
            return self.refuse(400, 'ExpiredToken')
        age = p.now() - datetime.datetime.strptime(stamp, '%Y%m%dT%H%M%SZ').replace(tzinfo=datetime.UTC)
        if abs(age) > datetime.timedelta(minutes=15):
            return self.refuse(403, 'RequestTimeTooSkewed', f'<ServerTime>{p.now():%Y-%m-%dT%H:%M:%SZ}</ServerTime>')
        assert scope[0] == stamp[:8] and scope[2:] == ['s3', 'aws4_request'], given
        assert {'host', *(h for h in headers if h.startswith('x-amz-'))} <= set(signed) == set(sorted(signed)), given
        if signature(secret, self.command, path, query, headers, signed, stamp, scope) != parts['Signature']:
            return self.refuse(403, 'SignatureDoesNotMatch', f'<StringToSign>{secret}</StringToSign>')
        if headers.get('x-amz-security-token') != token:
            return self.refuse(400, 'InvalidToken')
        if headers['x-amz-content-sha256'] not in (hashlib.sha256(self.body).hexdigest(), 'UNSIGNED-PAYLOAD'):
            return self.refuse(400, 'XAmzContentSHA256Mismatch')
        if scope[1] != p.region:
            return self.refuse(400, 'AuthorizationHeaderMalformed', f'<Region>{p.region}</Region>')
        return True

    def forward(self, path, query):
        p = self.server
        host = self.headers['Host'].rsplit(':', 1)[0]
        if host.endswith(f'.{p.host}'):
            path = f'/{host.removesuffix(f".{p.host}")}{path}'
        if p.page and 'list-type=2' in query and 'max-keys=' not in query:
            query += f'&max-keys={p.page}'
        path += f'?{query}' if query else ''
        if self.command in ('GET', 'HEAD'):
            return self.ask(p.address, path)
        # moto looks at what is there, and then puts it.
        with p.writing if self.headers.get('If-None-Match') or self.headers.get('If-Match') else contextlib.nullcontext():
            return self.ask(p.address, path, self.body)


class _Vendor(http.server.BaseHTTPRequestHandler):
    """Credentials of a container, of an instance (metadata, version 2), and for a web identity."""

    def log_message(self, *_):
        pass

    def _answer(self, status, text=''):
        self.send_response(status)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_PUT(self):
        ok = self.path == '/latest/api/token' and int(self.headers['X-aws-ec2-metadata-token-ttl-seconds']) > 0
        self._answer(200 if ok else 404, 'of-the-instance')

    def do_GET(self):
        role = '/latest/meta-data/iam/security-credentials/'
        if self.server.is_revoked:
            return self._answer(403)
        if self.path == '/container' and self.headers['Authorization'] == 'Basic of-the-container':
            return self._answer(200, self._json())
        if self.headers['X-aws-ec2-metadata-token'] != 'of-the-instance':
            return self._answer(401)
        return self._answer(200, {role: 'train\n', role + 'train': self._json()}.get(self.path, ''))

    def do_POST(self):
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers['Content-Length'])).decode())
        if form != {'Action': ['AssumeRoleWithWebIdentity'], 'Version': ['2011-06-15'], 'RoleArn': ['arn:aws:iam::1:role/r'],
                    'RoleSessionName': ['pytreefs'], 'WebIdentityToken': ['of/the+identity']}:
            return self._answer(400, '<ErrorResponse><Error><Code>InvalidIdentityToken</Code></Error></ErrorResponse>')
        k = self._keys()
        members = ''.join(f'<{n}>{k[m]}</{n}>' for n, m in (('AccessKeyId',) * 2, ('SecretAccessKey',) * 2,
                                                          ('SessionToken', 'Token'), ('Expiration',) * 2))
        return self._answer(200, f'<AssumeRoleWithWebIdentityResponse xmlns="x"><AssumeRoleWithWebIdentityResult><Credentials>{members}'
                                 '</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>')

    def _keys(self):
        s = self.server
        with s.lock:
            s.given.append(f'ASIAGIVEN{len(s.given)}')
            key_id = s.given[-1]
            s.proxy.keys[key_id] = f'secret-of-{key_id}', f'token-of-{key_id}'
        expires = datetime.datetime.now(datetime.UTC) + s.lifetime
        return {'Code': 'Success', 'AccessKeyId': key_id, 'SecretAccessKey': f'secret-of-{key_id}', 'Token': f'token-of-{key_id}',
                'Expiration': f'{expires:%Y-%m-%dT%H:%M:%SZ}'}

    def _json(self):
        return json.dumps(self._keys())


class Vendor(servers.Server):
    """Gives keys that the proxy knows, each time others. is_revoked: whether a container or an instance gets none."""
    KINDS = 'container', 'instance', 'identity'

    def __init__(self, proxy, lifetime=3600):
        super().__init__(_Vendor)
        self.proxy, self.given, self.lifetime, self.is_revoked = proxy, [], datetime.timedelta(seconds=lifetime), False

    def environment(self, kind, directory):
        """Return variables that lead to the proxy. kind: 'container', 'instance' or 'identity'."""
        token, here = directory / 'token', self.url.replace('127.0.0.1', 'localhost')
        none = {'AWS_ACCESS_KEY_ID': '', 'AWS_SECRET_ACCESS_KEY': ''}
        if kind == 'instance':
            return {**none, 'AWS_EC2_METADATA_DISABLED': 'false', 'AWS_EC2_METADATA_SERVICE_ENDPOINT': f'{here}/'}
        if kind == 'container':
            token.write_text('Basic of-the-container\n')
            return {**none, 'AWS_CONTAINER_CREDENTIALS_FULL_URI': f'{here}/container', 'AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE': str(token)}
        token.write_text('of/the+identity\n')
        return {**none, 'AWS_WEB_IDENTITY_TOKEN_FILE': str(token), 'AWS_ROLE_ARN': 'arn:aws:iam::1:role/r', 'AWS_ENDPOINT_URL_STS': self.url}

    def secrets(self):
        """Return the secrets that must not be in any output."""
        return [*(f'{what}-of-{key}' for what in ('secret', 'token') for key in self.given), 'of-the-', 'of/the+', 'of%2F']

    def wrong_environment(self, directory):
        """Return variables that lead to the proxy, which gives no credentials."""
        return {'AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE': '/dev/null', 'AWS_ROLE_ARN': 'other',
                'AWS_EC2_METADATA_SERVICE_ENDPOINT': self.proxy.url}


class AnyProxy(servers.Server):
    """Checks who asks, and hands on to the server of buckets at address, or to a function in its place (lib/objects.py). page: the most keys
    of a page of a listing;
    fault(handler): answers and returns True instead; early(handler): the same, before the body is read;
    spoil(handler): may change the body; gate(handler): a context within which an answer is given."""

    def __init__(self, handler, address, tls=None):
        super().__init__(handler, tls)
        self.address, self.anonymous, self.page, self.fault, self.early, self.spoil, self.gate = address, False, None, None, None, None, None
        self.writing = threading.Lock()
        self.requests, self.hosts = [], []
        self._ended, self._open = threading.Condition(), 0

    def process_request(self, request, client_address):
        with self._ended:
            self._open += 1
        super().process_request(request, client_address)

    def process_request_thread(self, request, client_address):
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._ended:
                self._open -= 1
                self._ended.notify_all()

    def wait_idle(self):
        """Until all that was asked over connections that are closed by now is done, and no other connection is open."""
        # Connections are accepted in the order in which they were made.
        ask(self.url.partition('://')[2], 'GET', '/', headers={'Connection': 'close'})
        with self._ended:
            assert self._ended.wait_for(lambda: not self._open, 120), f'{self._open} connections are open'

    def count(self, kind):
        """Of the requests, those for a 'page' (the first), a 'next' page, 'any' name, what is said 'about' an object."""
        return sum(self.kind_of(method, path) == kind for method, path, _ in self.requests)


class Proxy(AnyProxy):
    """Before moto. keys: id -> (secret, session token or None); region: the only one; host: the name that follows that of a bucket."""

    def __init__(self, address, tls=None, region=REGION, host='localhost'):
        super().__init__(_Handler, address, tls)
        self.region, self.host = region, host
        self.keys, self.expired, self.seen = {KEY_ID: (SECRET, None)}, set(), set()
        self.skew = datetime.timedelta()

    @staticmethod
    def kind_of(method, path):
        if method not in ('GET', 'HEAD'):
            return method.lower()
        if 'list-type=2' not in path:
            return 'about' if method == 'HEAD' else 'read'
        return 'next' if 'continuation-token=' in path else 'any' if 'max-keys=1' in path else 'page'

    def now(self):
        return datetime.datetime.now(datetime.UTC) + self.skew

    def environment(self, directory):
        """Return the environment of a process that uses the proxy as AWS's own tools would; no files, unless they are made in directory."""
        return {'AWS_ACCESS_KEY_ID': KEY_ID, 'AWS_SECRET_ACCESS_KEY': SECRET, 'AWS_REGION': REGION,
                'AWS_ENDPOINT_URL': self.url, 'AWS_EC2_METADATA_DISABLED': 'true',
                'AWS_CONFIG_FILE': f'{directory}/config', 'AWS_SHARED_CREDENTIALS_FILE': f'{directory}/credentials'}
