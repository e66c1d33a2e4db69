# SPDX-License-Identifier: Apache-2.0
"""Buckets of Google Cloud Storage on this machine: gcp-storage-emulator, and a proxy before it that checks and does what the
emulator does not.

The emulator takes any token, or none; it gives all names in one page, knows no `fields`, sends no generation with an object's
bytes, and has no conditions.
"""

import contextlib
import json
import subprocess
import sys
import urllib.parse

from lib import buckets

TOKEN = 'ya29.tokenOfTheTests'
SERVER = '''
import sys
from gcp_storage_emulator.server import create_server
server = create_server('127.0.0.1', 0, in_memory=True)
server.start()
print(server._api._httpd.server_address[1], flush=True)
sys.stdin.read()
'''
OBJECT = {'name', 'size', 'generation', 'updated'}
PAGE_FIELDS = 'nextPageToken,prefixes,items(name,size,generation,updated)'


@contextlib.contextmanager
def emulator():
    """The emulator in a process of its own; gives its address."""
    process = subprocess.Popen([sys.executable, '-c', SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
    try:
        line = process.stdout.readline()
        assert line, f'the emulator did not start: status {process.wait(30)}'
        yield f'127.0.0.1:{int(line)}'
    finally:
        process.kill()
        process.wait(30)
        process.stdin.close()
        process.stdout.close()


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
        # An empty body is one that was not sent.
        kind = 'application/octet-stream' if content else 'multipart/related; boundary=b'
        if not content:
            content = (b'--b\r\nContent-Type: application/json\r\n\r\n{}\r\n--b\r\nContent-Type: application/octet-stream\r\n\r\n\r\n--b--\r\n')
            query = query.replace('uploadType=media', 'uploadType=multipart')
        self.ask('POST', f'/upload/storage/v1/b/{self.name}/o?{query}', content, **{'Content-Type': kind})

    def get(self, key):
        return self.ask('GET', f'{self._object(key)}?alt=media')

    def delete(self, key):
        self.ask('DELETE', self._object(key))


class _Handler(buckets.Handler):
    def refuse(self, status, reason, **headers):
        body = {'error': {'code': status, 'message': 'no', 'errors': [{'message': 'no', 'domain': 'global', 'reason': reason}]}}
        self.answer(status, [(k.replace('_', '-'), v) for k, v in headers.items()], json.dumps(body).encode())

    def is_allowed(self, path, query):
        p, given = self.server, self.headers['Authorization']
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

    def forward(self, path, query):
        p, asked = self.server, dict(urllib.parse.parse_qsl(query))
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
        if asked.get('alt') != 'media':
            assert set(asked['fields'].split(',')) == OBJECT, query
            return status, headers, json.dumps({k: v for k, v in about.items() if k in OBJECT}).encode()
        status, headers, body = self.ask(p.address, self.path)
        return status, [*headers, ('x-goog-generation', about['generation']), ('ETag', f'C{about["generation"]}')], body


class Proxy(buckets.AnyProxy):
    """Before the emulator. tokens: those that may ask; allows: whether they may read."""

    def __init__(self, address, tls=None):
        super().__init__(_Handler, address, tls)
        self.tokens, self.seen, self.allows = {TOKEN}, set(), True

    @staticmethod
    def kind_of(method, path):
        if '/o?' not in path:
            return 'read' if 'alt=media' in path else 'about'
        return 'next' if 'pageToken=' in path else 'any' if 'maxResults=1' in path else 'page'

    def environment(self, directory):
        """What a process needs to ask the proxy, as an emulator: without credentials."""
        return {'STORAGE_EMULATOR_HOST': self.url}
