# SPDX-License-Identifier: Apache-2.0
"""Directories as a server of buckets shows them, to read from: a proxy (buckets.Proxy, gcs.Proxy) may have one in place of moto or the
emulator, to which every file would have to be uploaded first."""

import bisect
import functools
import json
import os
import pathlib
import re
import urllib.parse
import xml.sax.saxutils

STAMP = '2026-01-01T00:00:00.000Z'


@functools.cache
def files(directory):
    """{key: path} of the files below a directory, sorted; through links, as programs that upload it follow them."""
    found = {}
    for where, _, names in os.walk(directory, followlinks=True):
        for name in names:
            path = pathlib.Path(where, name)
            if path.is_file():
                found[path.relative_to(directory).as_posix()] = path
    return dict(sorted(found.items()))


def select(keys, prefix, after=''):
    """The names of a listing with the delimiter '/', keys and common prefixes, one after the other. keys: sorted."""
    at = bisect.bisect_left(keys, prefix)
    while at < len(keys) and keys[at].startswith(prefix):
        head, slash, _ = keys[at][len(prefix):].partition('/')
        name = prefix + head + slash
        if name > after:
            yield name
        # '0' follows '/'.
        at = bisect.bisect_left(keys, prefix + head + '0') if slash else at + 1


class Objects:
    """The directories of a dict, each below its name: what a server of one vendor answers."""

    def __init__(self, directories):
        self.directories = directories

    def path(self, key):
        """The file of a key, or None."""
        name, _, rest = key.partition('/')
        return files(self.directories[name]).get(rest) if name in self.directories else None

    def list(self, prefix, after=''):
        """(name, path or None for a common prefix) of a listing."""
        name, slash, rest = prefix.partition('/')
        if not slash:
            return [(f'{n}/', None) for n in sorted(self.directories) if n.startswith(name) and f'{n}/' > after]
        if name not in self.directories:
            return []
        found = files(self.directories[name])
        return [(f'{name}/{n}', found.get(n)) for n in select(list(found), rest, after[len(name) + 1:])]

    @staticmethod
    def tag(path):
        st = path.stat()
        return st.st_mtime_ns

    def content(self, path, headers, tagged):
        """The answer to a request for an object's bytes, or for a range of them."""
        size = path.stat().st_size
        if 'Range' not in headers:
            return 200, tagged, path.read_bytes()
        first, last = map(int, re.fullmatch(r'bytes=(\d+)-(\d+)', headers['Range']).groups())
        if first >= size:
            return 416, [('Content-Range', f'bytes */{size}')], b''
        with open(path, 'rb', buffering=0) as f:
            f.seek(first)
            part = f.read(last + 1 - first)
        return 206, [*tagged, ('Content-Range', f'bytes {first}-{first + len(part) - 1}/{size}')], part


class S3(Objects):
    def __call__(self, method, path, headers):
        """(status, headers, body): of a request that the proxy has allowed."""
        path, _, query = path.partition('?')
        key = urllib.parse.unquote(path).lstrip('/').partition('/')[2]
        if 'list-type=2' in query:
            return 200, [('Content-Type', 'application/xml')], self._page(dict(urllib.parse.parse_qsl(query)))
        file = self.path(key)
        if not file:
            return 404, [], b'' if method == 'HEAD' else b'<Error><Code>NoSuchKey</Code><Message>no</Message></Error>'
        tag = f'"{self.tag(file):x}"'
        tagged = [('ETag', tag), ('Last-Modified', 'Thu, 01 Jan 2026 00:00:00 GMT'), ('Accept-Ranges', 'bytes')]
        if headers.get('If-Match', tag) != tag:
            return 412, [], b'<Error><Code>PreconditionFailed</Code><Message>no</Message></Error>'
        if method == 'HEAD':
            return 200, [*tagged, ('Content-Length', str(file.stat().st_size))], b''
        return self.content(file, headers, tagged)

    def _page(self, asked):
        assert asked['delimiter'] == '/' and asked['encoding-type'] == 'url', asked
        names, most = self.list(asked['prefix'], asked.get('continuation-token', '')), int(asked.get('max-keys', 1000))
        out = []
        for name, path in names[:most]:
            escaped = xml.sax.saxutils.escape(urllib.parse.quote(name))
            out.append(f'<Contents><Key>{escaped}</Key><LastModified>{STAMP}</LastModified><ETag>&quot;{self.tag(path):x}&quot;</ETag>'
                       f'<Size>{path.stat().st_size}</Size></Contents>' if path else f'<CommonPrefixes><Prefix>{escaped}</Prefix></CommonPrefixes>')
        more = len(names) > most
        token = f'<NextContinuationToken>{xml.sax.saxutils.escape(names[most - 1][0])}</NextContinuationToken>' if more else ''
        return (f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><EncodingType>url</EncodingType><IsTruncated>{str(more).lower()}</IsTruncated>{token}'
                f'{"".join(out)}</ListBucketResult>').encode()


class GCS(Objects):
    def _about(self, name, path):
        return {'name': name, 'size': str(path.stat().st_size), 'generation': str(self.tag(path)), 'updated': STAMP}

    def __call__(self, method, path, headers):
        """As of the emulator: the proxy makes pages, and checks conditions."""
        path, _, query = path.partition('?')
        asked, document = dict(urllib.parse.parse_qsl(query)), [('Content-Type', 'application/json')]
        key = path.partition('/o')[2].lstrip('/')
        if not key:
            names = self.list(asked.get('prefix', ''))
            return 200, document, json.dumps({'items': [self._about(n, p) for n, p in names if p],
                                              'prefixes': [n for n, p in names if not p]}).encode()
        key = urllib.parse.unquote(key)
        file = self.path(key)
        if not file:
            return 404, [], b''
        return self.content(file, headers, []) if asked.get('alt') == 'media' else (200, document, json.dumps(self._about(key, file)).encode())
