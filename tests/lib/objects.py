# SPDX-License-Identifier: Apache-2.0
"""Servers of buckets in this process, which a proxy (buckets.Proxy, gcs.Proxy) may have in place of moto or the emulator: they show directories,
to which nothing has to be uploaded first, or keep in memory what is written. tests/mount/test_bucket_servers.py compares the answers."""

import base64
import bisect
import dataclasses
import datetime
import email.utils
import functools
import hashlib
import html
import itertools
import json
import os
import pathlib
import re
import threading
import time
import urllib.parse

import google_crc32c


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


class File:
    """An object that is a file."""
    modified = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    def __init__(self, path):
        self.path, st = path, path.stat()
        self.size, self.number, self.tag = st.st_size, st.st_mtime_ns, f'"{st.st_mtime_ns:x}"'

    def read(self, start, end):
        with open(self.path, 'rb', buffering=0) as f:
            f.seek(start)
            return f.read(end - start)


@dataclasses.dataclass
class Content:
    """An object in memory. upload: the id of the upload that made it of parts; tags: of the parts."""
    content: bytes
    number: int
    upload: str = ''
    tags: tuple = ()

    def __post_init__(self):
        self.size, self.modified = len(self.content), datetime.datetime.now(datetime.UTC)

    def read(self, start, end):
        return self.content[start:end]

    @functools.cached_property
    def tag(self):
        of = b''.join(bytes.fromhex(t.strip('"')) for t in self.tags) or self.content
        return f'"{hashlib.md5(of, usedforsecurity=False).hexdigest()}{f"-{len(self.tags)}" if self.tags else ""}"'

    @functools.cached_property
    def crc32c(self):
        return base64.b64encode(google_crc32c.Checksum(self.content).digest()).decode()


class Directories:
    """Those of a dict, each below its name, in any bucket."""

    def __init__(self, directories):
        self.directories = directories

    def has(self, bucket):
        return True

    def find(self, bucket, key):
        name, _, rest = key.partition('/')
        path = files(self.directories[name]).get(rest) if name in self.directories else None
        return path and File(path)

    def list(self, bucket, prefix, after='', is_flat=False):
        """(name, object or None for a common prefix) of a listing."""
        name, slash, rest = prefix.partition('/')
        if not slash:
            return [(f'{n}/', None) for n in sorted(self.directories) if n.startswith(name) and f'{n}/' > after]
        if name not in self.directories:
            return []
        found = files(self.directories[name])
        return [(f'{name}/{n}', File(found[n]) if n in found else None) for n in select(list(found), rest, after[len(name) + 1:])]


class Memory:
    """Buckets that are written. Each change has a greater number."""

    def __init__(self):
        self.buckets, self.lock = {}, threading.Lock()
        self.numbers = itertools.count(time.time_ns() // 1000)

    def has(self, bucket):
        return bucket in self.buckets

    def find(self, bucket, key):
        return self.buckets[bucket].get(key)

    def list(self, bucket, prefix, after='', is_flat=False):
        found = dict(self.buckets[bucket])
        keys = sorted(found)
        names = [k for k in keys if k.startswith(prefix) and k > after] if is_flat else select(keys, prefix, after)
        # An object may be called as a prefix that names have in common.
        return [(n, found.get(n) if is_flat or n == prefix or not n.endswith('/') else None) for n in names]

    def put(self, bucket, key, content, **more):
        self.buckets[bucket][key] = made = Content(bytes(content), next(self.numbers), **more)
        return made


class Server:
    """Of one vendor, as a function: (status, headers, body) of a request that the proxy has allowed."""

    def __init__(self, directories=None):
        self.objects = Memory() if directories is None else Directories(directories)

    @staticmethod
    def part(entry, headers, tagged):
        """The answer to a request for an object's bytes, or for a range of them."""
        if 'Range' not in headers:
            return 200, tagged, entry.read(0, entry.size)
        first, last = map(int, re.fullmatch(r'bytes=(\d+)-(\d+)', headers['Range']).groups())
        if first >= entry.size:
            return 416, [('Content-Range', f'bytes */{entry.size}')], b'<Error><Code>InvalidRange</Code></Error>'
        part = entry.read(first, last + 1)
        return 206, [*tagged, ('Content-Range', f'bytes {first}-{first + len(part) - 1}/{entry.size}')], part


class S3(Server):
    XML = [('Content-Type', 'application/xml')]

    def __init__(self, directories=None):
        super().__init__(directories)
        # {id: (bucket, key, {number: bytes})}
        self.uploads = {}

    def __call__(self, method, path, headers, body=b''):
        path, _, query = path.partition('?')
        bucket, _, key = urllib.parse.unquote(path).lstrip('/').partition('/')
        asked = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        if method in ('GET', 'HEAD'):
            if not self.objects.has(bucket):
                return self._refuse(404, 'NoSuchBucket')
            return self._page(bucket, asked) if not key and method == 'GET' else self._read(method, self.objects.find(bucket, key), headers)
        with self.objects.lock:
            if not key:
                self.objects.buckets.setdefault(bucket, {})
                return 200, [], b''
            if 'uploads' in asked or 'uploadId' in asked:
                return self._upload(method, bucket, key, asked, body)
            if method == 'DELETE':
                self.objects.buckets[bucket].pop(key, None)
                return 204, [], b''
            return self._put(bucket, key, headers, body)

    @staticmethod
    def _refuse(status, code):
        return status, [], f'<Error><Code>{code}</Code><Message>no</Message></Error>'.encode()

    def _read(self, method, entry, headers):
        if not entry:
            return (404, [], b'') if method == 'HEAD' else self._refuse(404, 'NoSuchKey')
        tagged = [('ETag', entry.tag), ('Last-Modified', email.utils.format_datetime(entry.modified, usegmt=True)), ('Accept-Ranges', 'bytes')]
        if headers.get('If-Match', entry.tag) != entry.tag:
            return self._refuse(412, 'PreconditionFailed')
        if method == 'HEAD':
            return 200, [*tagged, ('Content-Length', str(entry.size))], b''
        return self.part(entry, headers, tagged)

    def _put(self, bucket, key, headers, body):
        was, tag = self.objects.find(bucket, key), headers.get('If-Match')
        if tag and not was:
            return self._refuse(404, 'NoSuchKey')
        if (tag and tag != was.tag) or (was and headers.get('If-None-Match') == '*'):
            return self._refuse(412, 'PreconditionFailed')
        return 200, [('ETag', self.objects.put(bucket, key, body or b'').tag)], b''

    def _upload(self, method, bucket, key, asked, body):
        """A request about an upload in parts, or its begin."""
        if 'uploads' in asked:
            number = f'{next(self.objects.numbers)}'
            self.uploads[number] = bucket, key, {}
            return 200, self.XML, f'<InitiateMultipartUploadResult><UploadId>{number}</UploadId></InitiateMultipartUploadResult>'.encode()
        number, was = asked['uploadId'], self.objects.find(bucket, key)
        if method == 'POST' and was and was.upload == number:
            return self._completed(was)
        if number not in self.uploads:
            return self._refuse(404, 'NoSuchUpload')
        if method == 'DELETE':
            del self.uploads[number]
            return 204, [], b''
        parts = self.uploads[number][2]
        if method == 'PUT':
            parts[int(asked['partNumber'])] = part = Content(body, int(asked['partNumber']))
            return 200, [('ETag', part.tag)], b''
        tags = re.findall(r'<Part><PartNumber>(\d+)</PartNumber><ETag>(.*?)</ETag></Part>', body.decode())
        named = [parts.get(int(n)) for n, _ in tags]
        if not all(part and part.tag == html.unescape(tag) for part, (_, tag) in zip(named, tags, strict=True)):
            return self._refuse(400, 'InvalidPart')
        if any(part.size < 5 << 20 for part in named[:-1]):
            return self._refuse(400, 'EntityTooSmall')
        del self.uploads[number]
        return self._completed(self.objects.put(bucket, key, b''.join(part.content for part in named), upload=number, tags=tuple(p.tag for p in named)))

    def _completed(self, entry):
        return 200, self.XML, f'<CompleteMultipartUploadResult><ETag>{html.escape(entry.tag)}</ETag></CompleteMultipartUploadResult>'.encode()

    def _page(self, bucket, asked):
        prefix = asked.get('prefix', '')
        if 'uploads' in asked:
            return 200, self.XML, ('<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>' + ''.join(
                f'<Upload><Key>{html.escape(key)}</Key><UploadId>{number}</UploadId></Upload>'
                for number, (where, key, _) in list(self.uploads.items()) if where == bucket and key.startswith(prefix)) +
                '</ListMultipartUploadsResult>').encode()
        assert asked['list-type'] == '2' and asked.get('delimiter', '/') == '/' and asked.get('encoding-type', 'url') == 'url', asked
        names = self.objects.list(bucket, prefix, asked.get('continuation-token', ''), 'delimiter' not in asked)
        most, out = int(asked.get('max-keys', 1000)), []
        for name, entry in names[:most]:
            escaped = html.escape(urllib.parse.quote(name) if 'encoding-type' in asked else name)
            out.append(f'<Contents><Key>{escaped}</Key><LastModified>{stamp(entry)}</LastModified><ETag>{html.escape(entry.tag)}</ETag>'
                       f'<Size>{entry.size}</Size></Contents>' if entry else f'<CommonPrefixes><Prefix>{escaped}</Prefix></CommonPrefixes>')
        more = len(names) > most
        token = f'<NextContinuationToken>{html.escape(names[most - 1][0])}</NextContinuationToken>' if more else ''
        kind = '<EncodingType>url</EncodingType>' if 'encoding-type' in asked else ''
        return 200, self.XML, (f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>{kind}<IsTruncated>{str(more).lower()}</IsTruncated>{token}'
                               f'{"".join(out)}</ListBucketResult>').encode()


def stamp(entry):
    return entry.modified.strftime('%Y-%m-%dT%H:%M:%S.%f')[:-3] + 'Z'


class GCS(Server):
    """As the emulator: the proxy makes pages, and checks conditions."""
    JSON = [('Content-Type', 'application/json')]

    def _about(self, name, entry):
        crc32c = {'crc32c': entry.crc32c} if isinstance(entry, Content) else {}
        return {'name': name, 'size': str(entry.size), 'generation': str(entry.number), 'updated': stamp(entry), **crc32c}

    def __call__(self, method, path, headers, body=b''):
        path, _, query = path.partition('?')
        asked = dict(urllib.parse.parse_qsl(query))
        bucket, key = re.fullmatch(r'(?:/upload)?/storage/v1/b(?:/([^/]*)/o/?(.*))?', path).groups()
        if not bucket:
            self.objects.buckets.setdefault(json.loads(body)['name'], {})
            return 200, self.JSON, b'{}'
        if not self.objects.has(bucket):
            return 404, [], b''
        if method == 'POST':
            with self.objects.lock:
                return 200, self.JSON, json.dumps(self._about(asked['name'], self.objects.put(bucket, asked['name'], body or b''))).encode()
        if not key:
            names = self.objects.list(bucket, asked.get('prefix', ''), is_flat='delimiter' not in asked)
            return 200, self.JSON, json.dumps({'items': [self._about(n, e) for n, e in names if e],
                                               'prefixes': [n for n, e in names if not e]}).encode()
        key = urllib.parse.unquote(key)
        entry = self.objects.find(bucket, key)
        if not entry:
            return 404, [], b''
        if method == 'DELETE':
            self.objects.buckets[bucket].pop(key, None)
            return 204, [], b''
        return self.part(entry, headers, []) if asked.get('alt') == 'media' else (200, self.JSON, json.dumps(self._about(key, entry)).encode())
