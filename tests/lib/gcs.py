# SPDX-License-Identifier: Apache-2.0
"""Buckets of Google Cloud Storage on this machine: gcp-storage-emulator, and a proxy before it that checks and does what the
emulator does not.

The emulator takes any token, or none; it gives all names in one page, knows no `fields`, sends no generation with an object's
bytes, and has no conditions. What is written is taken here, and handed on to it as a whole. With each change it writes a document
about all objects, which nobody reads: that took most of the time of a test run.
"""

import base64
import functools
import http.server
import itertools
import json
import re
import time
import types
import urllib.parse

import google_crc32c
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from lib import buckets, servers

SERVER = '''
import sys
from gcp_storage_emulator.server import create_server
from gcp_storage_emulator.storage import Storage
Storage._write_config_to_file = lambda self: None
server = create_server('127.0.0.1', 0, in_memory=True)
server.start()
print(server._api._httpd.server_address[1], flush=True)
sys.stdin.read()
'''
CHUNK = 256 << 10
OBJECT = {'name', 'size', 'generation', 'updated'}
PAGE_FIELDS = 'nextPageToken,prefixes,items(name,size,generation,updated)'


def emulator():
    """The emulator; gives its address."""
    return buckets.process_of(SERVER, 'the emulator')


class Bucket(buckets.AnyBucket):
    """One of the emulator's."""
    scheme = 'gs'

    def __init__(self, address, name):
        super().__init__(address, name)
        self.ask('POST', '/storage/v1/b', json.dumps({'name': name}), **{'Content-Type': 'application/json'})

    def _object(self, key):
        return f'/storage/v1/b/{self.name}/o/{urllib.parse.quote(key, safe="")}'

    def put(self, key, content):
        query = urllib.parse.urlencode({'uploadType': 'media', 'name': key})
        # To the emulator an empty body is one that was not sent.
        is_sent = content or callable(self.address)
        kind = 'application/octet-stream' if is_sent else 'multipart/related; boundary=b'
        if not is_sent:
            content = (b'--b\r\nContent-Type: application/json\r\n\r\n{}\r\n--b\r\nContent-Type: application/octet-stream\r\n\r\n\r\n--b--\r\n')
            query = query.replace('uploadType=media', 'uploadType=multipart')
        self.ask('POST', f'/upload/storage/v1/b/{self.name}/o?{query}', content, **{'Content-Type': kind})

    def get(self, key):
        return self.ask('GET', f'{self._object(key)}?alt=media')

    def delete(self, key):
        self.ask('DELETE', self._object(key))

    def keys(self, prefix=''):
        listing = json.loads(self.ask('GET', f'/storage/v1/b/{self.name}/o?{urllib.parse.urlencode({"prefix": prefix})}'))
        return sorted(i['name'] for i in listing.get('items', []))


class _Handler(buckets.Handler):
    def refuse(self, status, reason, **headers):
        body = {'error': {'code': status, 'message': 'no', 'errors': [{'message': 'no', 'domain': 'global', 'reason': reason}]}}
        self.answer(status, [(k.replace('_', '-'), v) for k, v in headers.items()], json.dumps(body).encode())

    def is_allowed(self, path, query):
        p, given = self.server, self.headers['Authorization']
        if 'upload_id=' in query:
            # The address is the secret, and gets no other.
            assert not given
            return True
        if not given:
            return p.anonymous or self.refuse(401, 'required')
        token = given.removeprefix('Bearer ')
        p.seen.add(token)
        if token not in p.tokens:
            return self.refuse(401, 'authError')
        return p.allows or self.refuse(403, 'forbidden')

    def _listing(self, listing, asked):
        """A page of it, as the service makes one: the names and the prefixes count."""
        start, most = int(asked.get('pageToken', 0)), int(asked.get('maxResults', 0)) or self.server.page or 1000
        names = sorted([(i['name'], i) for i in listing['items']] + [(p, None) for p in listing['prefixes']], key=lambda n: n[0])
        here = names[start:start + most]
        page = {'items': [{k: v for k, v in i.items() if k in OBJECT} for _, i in here if i], 'prefixes': [n for n, i in here if not i]}
        if start + most < len(names):
            page['nextPageToken'] = str(start + most)
        return {k: v for k, v in page.items() if v}

    def _store(self, name, content):
        """Return the service's description of the present object."""
        bucket = Bucket.__new__(Bucket)
        bucket.address, bucket.name = self.server.address, self.path.split('/b/')[1].split('/')[0]
        bucket.put(name, content)
        about = bucket.ask('GET', f'{bucket._object(name)}')
        return 200, [('Content-Type', 'application/json')], about

    def _generation(self, name):
        """The generation of an object; '0' of none."""
        bucket = self.path.split('/b/')[1].split('/')[0]
        status, _, about = buckets.ask(self.server.address, 'GET', f'/storage/v1/b/{bucket}/o/{urllib.parse.quote(name, safe="")}')
        return json.loads(about)['generation'] if status == 200 else '0'

    def _chunk(self, session):
        """A request to the address of a resumable upload, as the service answers it."""
        if self.command == 'DELETE':
            self.server.sessions = {k: v for k, v in self.server.sessions.items() if v is not session}
            return 499, [], b''
        said, size = re.fullmatch(r'bytes (\*|\d+-\d+)/(\*|\d+)', self.headers['Content-Range']).groups()
        if said != '*' and not session.about:
            start, end = (int(n) for n in said.split('-'))
            assert start <= len(session.content) and end + 1 - start == len(self.body), (said, len(session.content))
            assert size != '*' or (end + 1) % CHUNK == 0, said
            # It keeps whole multiples of a chunk's size; a test may have it keep less.
            kept = self.body[len(session.content) - start:]
            if self.server.keeps is not None and len(kept) > self.server.keeps:
                kept = kept[:self.server.keeps]
                self.server.keeps = None
            session.content += kept
        if size != '*' and len(session.content) == int(size) and not session.about:
            session.about = self._store(session.name, bytes(session.content))
        if session.about:
            return session.about
        return 308, [('Range', f'bytes=0-{len(session.content) - 1}')] if session.content else [], b''

    def _upload(self, asked):
        """A document with the object, or the begin of an upload in chunks."""
        p = self.server
        if 'upload_id' in asked:
            session = p.sessions.get(asked['upload_id'])
            return self._chunk(session) if session else self.refuse(404, 'notFound')
        with p.writing:
            if 'ifGenerationMatch' in asked and asked['ifGenerationMatch'] != self._generation(asked['name']):
                return self.refuse(412, 'conditionNotMet')
            if asked['uploadType'] == 'resumable':
                number = f'session-{next(p.numbers)}-of-{p.server_address[1]}'
                p.sessions[number] = types.SimpleNamespace(name=asked['name'], content=bytearray(), about=None)
                return 200, [('Location', f'{p.url}{self.path}&upload_id={number}')], b''
            if asked['uploadType'] == 'media':
                # As TensorStore does it: without a checksum.
                return self._store(asked['name'], self.body)
            boundary = self.headers['Content-Type'].partition('boundary=')[2].encode()
            _, about, content, _ = self.body.split(b'--' + boundary)
            content = content.partition(b'\r\n\r\n')[2].removesuffix(b'\r\n')
            crc = json.loads(about.partition(b'\r\n\r\n')[2])['crc32c']
            if base64.b64decode(crc) != google_crc32c.Checksum(content).digest():
                return self.refuse(400, 'invalid')
            return self._store(asked['name'], content)

    def forward(self, path, query):
        p, asked = self.server, dict(urllib.parse.parse_qsl(query))
        if path.startswith('/upload/'):
            return self._upload(asked)
        if self.command == 'DELETE':
            status, headers, body = self.ask(p.address, self.path)
            return self.refuse(404, 'notFound') if status == 404 else (204, [], b'')
        if path.endswith('/o') and 'tensorstore' in self.headers.get('User-Agent', ''):
            return self.ask(p.address, self.path)
        if path.endswith('/o'):
            assert asked['fields'] == PAGE_FIELDS and asked['delimiter'] == '/', query
            status, headers, body = self.ask(p.address, self.path)
            if status == 404:
                self.refuse(404, 'notFound')
                return None
            return status, headers, json.dumps(self._listing(json.loads(body), asked)).encode()
        status, headers, about = self.ask(p.address, path)
        if status == 404:
            self.refuse(404, 'notFound')
            return None
        about = json.loads(about)
        if asked.get('ifGenerationMatch', about['generation']) != about['generation']:
            self.refuse(412, 'conditionNotMet')
            return None
        if asked.get('ifGenerationNotMatch') == about['generation']:
            return 304, [], b''
        if asked.get('alt') != 'media':
            assert set(asked['fields'].split(',')) == OBJECT, query
            return status, headers, json.dumps({k: v for k, v in about.items() if k in OBJECT}).encode()
        status, headers, body = self.ask(p.address, self.path)
        return status, [*headers, ('x-goog-generation', about['generation']), ('ETag', f'C{about["generation"]}')], body


class Proxy(buckets.AnyProxy):
    """Before the emulator. tokens: those that may ask; allows: whether they may read."""

    def __init__(self, address, tls=None):
        super().__init__(_Handler, address, tls)
        self.tokens, self.seen, self.allows = set(), set(), True
        # Resumable uploads by their id; how much the next chunk is kept of.
        self.sessions, self.keeps, self.numbers = {}, None, itertools.count()

    @staticmethod
    def kind_of(method, path):
        if method not in ('GET', 'HEAD'):
            return method.lower()
        if '/o?' not in path:
            return 'read' if 'alt=media' in path else 'about'
        return 'next' if 'pageToken=' in path else 'any' if 'maxResults=1' in path else 'page'


EMAIL, SCOPE = 'train@project.iam.gserviceaccount.com', 'https://www.googleapis.com/auth/devstorage.read_only'
USER = {'client_id': 'id+of/the&tests', 'client_secret': 'GOCSPX+secret/of&the=tests', 'refresh_token': '1//refresh+of&the=tests'}
METADATA = '/computeMetadata/v1/instance/service-accounts/default/token'


@functools.cache
def service_key():
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def service_pem():
    return service_key().private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                       serialization.NoEncryption()).decode()


def _claims(assertion, audience):
    """Of a JSON Web Token, when it is one that Google takes."""
    head, claims, signature = [base64.urlsafe_b64decode(part + '=' * (-len(part) % 4)) for part in assertion.split('.')]
    service_key().public_key().verify(signature, assertion.rpartition('.')[0].encode(), padding.PKCS1v15(), hashes.SHA256())
    assert json.loads(head) == {'alg': 'RS256', 'typ': 'JWT', 'kid': 'number-7'}, head
    claims = json.loads(claims)
    assert claims.keys() == {'iss', 'scope', 'aud', 'iat', 'exp'} and claims['aud'] == audience, claims
    assert claims['scope'] in (SCOPE, SCOPE.replace('read_only', 'read_write')), claims
    assert claims['iss'] == EMAIL and abs(claims['iat'] - time.time()) < 300 and 0 < claims['exp'] - claims['iat'] <= 3600, claims
    return claims


class _Vendor(http.server.BaseHTTPRequestHandler):
    """A token endpoint, and the metadata server of a machine."""

    def log_message(self, *_):
        pass

    def date_time_string(self, timestamp=None):
        return super().date_time_string((timestamp or time.time()) + self.server.skew)

    def _answer(self, status, document, flavor=None):
        text = json.dumps(document).encode()
        self.send_response(status)
        self.send_header('Content-Length', str(len(text)))
        if flavor:
            self.send_header('Metadata-Flavor', flavor)
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        assert self.headers['Metadata-Flavor'] == 'Google'
        known = self.path == METADATA
        self._answer(200 if known else 404, self.server.token() if known else {}, self.server.flavor)

    def do_POST(self):
        form = dict(urllib.parse.parse_qsl(self.rfile.read(int(self.headers['Content-Length'])).decode(), strict_parsing=True))
        if self.server.skew or self.server.is_revoked:
            return self._answer(400, {'error': 'invalid_grant', 'error_description': 'Invalid JWT, or a token that was revoked'})
        if self.path != '/token':
            return self._answer(400, {'error': 'invalid_grant', 'error_description': f'of {form}'})
        if form['grant_type'] == 'refresh_token':
            assert form == {'grant_type': 'refresh_token', **USER}, form
        else:
            assert form.keys() == {'grant_type', 'assertion'} and form['grant_type'] == 'urn:ietf:params:oauth:grant-type:jwt-bearer'
            _claims(form['assertion'], f'{self.server.url}/token')
        return self._answer(200, self.server.token())


class Vendor(servers.Server):
    """Gives tokens that the proxy takes, each time another. skew: seconds by which its clock differs, so that it refuses all; is_revoked: whether
    it refuses all."""
    KINDS = 'service', 'user', 'machine'

    def __init__(self, proxy, lifetime=3600):
        super().__init__(_Vendor)
        self.proxy, self.given, self.lifetime, self.flavor = proxy, [], lifetime, 'Google'
        self.skew, self.is_revoked = 0, False

    def token(self):
        with self.lock:
            self.given.append(f'ya29.token-{len(self.given)}-of-{self.server_address[1]}')
            self.proxy.tokens.add(self.given[-1])
            return {'access_token': self.given[-1], 'expires_in': self.lifetime, 'token_type': 'Bearer'}

    def secrets(self):
        """Return the secrets that must not be in any output."""
        return [*self.given, *USER.values(), 'BEGIN PRIVATE KEY', service_pem().splitlines()[3], 'assertion=']

    def account(self, kind, **other):
        return {'token_uri': f'{self.url}/token',
                **({'type': 'authorized_user', **USER} if kind == 'user' else
                   {'type': 'service_account', 'client_email': EMAIL, 'private_key': service_pem(), 'private_key_id': 'number-7'}),
                **other}

    def environment(self, kind, directory):
        """Return variables that lead to the proxy. kind: one of KINDS."""
        if kind == 'machine':
            return {'GOOGLE_APPLICATION_CREDENTIALS': '', 'GCE_METADATA_HOST': f'localhost:{self.server_address[1]}', 'NO_GCE_CHECK': ''}
        file = directory / 'credentials.json'
        file.write_text(json.dumps(self.account(kind)))
        return {'GOOGLE_APPLICATION_CREDENTIALS': str(file)}

    def wrong_environment(self, directory):
        """Return variables that lead to the proxy, which gives no credentials."""
        file = directory / 'wrong.json'
        file.write_text(json.dumps(self.account('user', token_uri=f'{self.url}/other')))
        return {'GOOGLE_APPLICATION_CREDENTIALS': str(file)}


def environment(proxy, vendor, directory):
    """Return the environment of a process that uses the proxy as Google's own programs would, with a token of the vendor."""
    return {'TENSORSTORE_GCS_HTTP_URL': proxy.url, 'CLOUDSDK_CONFIG': str(directory), 'NO_GCE_CHECK': 'true',
            **vendor.environment('user', directory)}
