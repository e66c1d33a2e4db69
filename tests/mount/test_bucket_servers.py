# SPDX-License-Identifier: Apache-2.0
"""The servers of lib/objects.py, which stand in for moto and the emulator, answer as these do, as far as the program reads an answer."""

import base64
import contextlib
import json
import re

import google_crc32c
import pytest

from lib import buckets, checkpoints, gcs as gcs_server, objects

BUCKET = 'served'
SIGNED = {'Authorization': f'AWS4-HMAC-SHA256 Credential=test/20200101/{buckets.REGION}/s3/aws4_request'}
S3_LIST = '/served?delimiter=/&encoding-type=url&list-type=2'
GCS_LIST = '/storage/v1/b/served/o?delimiter=%2F&fields=' + gcs_server.PAGE_FIELDS.replace(',', '%2C')
GCS_OBJECT = '/storage/v1/b/served/o/it%2F'
GCS_UPLOAD = '/upload/storage/v1/b/served/o?uploadType='
FIELDS = '?fields=name%2Csize%2Cgeneration%2Cupdated'
PREFIXES = ['it/', 'it', 'it/big/', 'it/big', 'it/none/', 'it/_METADATA']
RANGES = [{}, {'Range': 'bytes=3-9'}, {'Range': 'bytes=3-999999'}, {'Range': 'bytes=999999-1999999'}]
READS = {
    's3': [*(('GET', f'{S3_LIST}{more}&prefix={p}', {}) for p in PREFIXES for more in ('', '&max-keys=1', '&max-keys=2')),
           *((method, f'/served/it/{n}', {}) for n in ('_METADATA', 'none', 'big') for method in ('HEAD', 'GET')),
           *(('GET', '/served/it/_METADATA', r) for r in RANGES), ('GET', '/served/it/_METADATA', {'If-Match': '"other"'})],
    'gs': [*(('GET', f'{GCS_LIST}{more}&prefix={p.replace("/", "%2F")}', {}) for p in PREFIXES for more in ('', '&maxResults=1')),
           *(('GET', f'{GCS_OBJECT}{n}{FIELDS}', {}) for n in ('_METADATA', 'none')),
           # The emulator gives an empty range after the end of an object.
           *(('GET', f'{GCS_OBJECT}_METADATA?alt=media', r) for r in RANGES[:-1]), ('GET', f'{GCS_OBJECT}_METADATA?alt=media&ifGenerationMatch=7', {})],
}


def told(status, headers, body):
    """The parts of an answer that the program reads, without times, tokens and names of uploads, which are those of the server."""
    if status >= 400:
        return {'status': status, 'code': re.findall(b'<Code>(.*?)</Code>', body)}
    text, headers = body.decode(errors='replace'), {n.lower(): v for n, v in headers}
    if text.lstrip().startswith('<'):
        body = [re.findall(pattern, text, re.DOTALL) for pattern in (
            r'<Contents>\s*<Key>(.*?)</Key>.*?<Size>(.*?)</Size>', r'<CommonPrefixes>\s*<Prefix>(.*?)</', '<IsTruncated>(.*?)</', '<EncodingType>(.*?)</',
            r'<Upload>.*?<Key>(.*?)</Key>')]
    elif text.startswith('{'):
        known = {k: v for k, v in json.loads(text).items() if k in gcs_server.OBJECT | {'items', 'prefixes', 'nextPageToken'}}
        body = re.sub('"(generation|updated|nextPageToken)": "[^"]*"', r'"\\1"', json.dumps(known, sort_keys=True))
    return {'status': status, 'tag': headers.get('etag'), 'body': body} | {n: headers[n] for n in ('content-range', 'range') if n in headers}


@pytest.fixture
def servers(bucket):
    """({name: what is asked in its place}, a bucket of the real one, a bucket in memory): of one vendor."""
    case = checkpoints.get('matrix-perleaf-zarr3-none-v0')
    proxy, server = {'s3': (buckets.Proxy, objects.S3), 'gs': (gcs_server.Proxy, objects.GCS)}[bucket.scheme]
    addresses = {'real': bucket.address, 'memory': server(), 'directories': server({'it': case.path})}
    for b in (bucket, type(bucket)(addresses['memory'], BUCKET)):
        b.upload(case.path, 'it')
    with contextlib.ExitStack() as stack:
        if bucket.scheme == 'gs':
            for name, address in addresses.items():
                before = stack.enter_context(proxy(address))
                before.anonymous = True
                addresses[name] = before.url.partition('://')[2]
        yield bucket.scheme, addresses


def test_they_read(servers):
    scheme, addresses = servers
    for method, path, headers in READS[scheme]:
        # moto refuses requests without a signature, and takes any.
        got = {name: told(*buckets.ask(address, method, path, None, headers | SIGNED if scheme == 's3' else headers)) for name, address in addresses.items()}
        for of in got.values():
            # Files have tags of their own, and the proxy makes those of GCS.
            of['tag'] = None
        assert got['memory'] == got['real'] == got['directories'], (method, path, headers)


class Client:
    """Keeps what a server told."""

    def __init__(self, address, signed):
        self.address, self.signed, self.told = address, signed, []

    def __call__(self, method, path, body=b'', **headers):
        answer = buckets.ask(self.address, method, path, body, {n.replace('_', '-'): v for n, v in headers.items()} | self.signed)
        self.told.append((method, path, told(*answer)))
        return answer

    def header(self, name, *request, **headers):
        return next(v for n, v in self(*request, **headers)[1] if n.lower() == name)


def write_to_s3(ask):
    new, large = '/served/new/a%20%26b', '/served/new/large'
    ask('PUT', new, b'one')
    ask('PUT', new, b'two', If_None_Match='*')
    tag = ask.header('etag', 'HEAD', new)
    ask('PUT', new, b'three', If_Match=tag)
    ask('PUT', new, b'four', If_Match=tag)
    ask('PUT', '/served/new/none', b'five', If_Match=tag)
    ask('PUT', '/served/new/none', b'', If_None_Match='*')
    ask('GET', new)
    ask('GET', f'{S3_LIST}&prefix=new/')
    ask('GET', '/served?list-type=2&prefix=n')
    for name in ('marked/', 'marked/x'):
        ask('PUT', f'/served/new/{name}', b'')
    for bucket, prefix in (('served', 'new/'), ('served', 'new/marked/'), ('absent', '')):
        ask('GET', f'{S3_LIST}&prefix={prefix}'.replace('served', bucket))

    def begin():
        return re.search(b'<UploadId>(.*?)</UploadId>', ask('POST', f'{large}?uploads=')[2])[1].decode()

    def end(upload, *tags):
        parts = ''.join(f'<Part><PartNumber>{i}</PartNumber><ETag>{tag}</ETag></Part>' for i, tag in enumerate(tags, 1))
        ask('POST', f'{large}?uploadId={upload}', f'<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>'.encode())
    upload, other = begin(), begin()
    ask('GET', '/served?prefix=new/&uploads=')
    ask('GET', '/served?prefix=it/&uploads=')
    first, small = (ask.header('etag', 'PUT', f'{large}?partNumber=1&uploadId={upload}', part) for part in (b'x' * (5 << 20), b'small'))
    last = ask.header('etag', 'PUT', f'{large}?partNumber=2&uploadId={upload}', b'y' * 1000)
    end(upload, first, last)
    end(upload, small, last)
    ask('PUT', f'{large}?partNumber=1&uploadId={upload}', b'x' * (5 << 20))
    ask('HEAD', large)
    end(upload, first, last)
    end(upload, first, last)
    ask('HEAD', large)
    ask('GET', large, Range=f'bytes={(5 << 20) - 3}-{(5 << 20) + 3}')
    for number in (upload, other, other):
        ask('DELETE', f'{large}?uploadId={number}')
        ask('GET', '/served?prefix=new/&uploads=')
    for name in (new, new, large):
        ask('DELETE', name)
    ask('GET', new)
    ask('GET', f'{S3_LIST}&prefix=new/')


def write_to_gcs(ask):
    def put(name, content, more=''):
        crc = base64.b64encode(google_crc32c.Checksum(content).digest()).decode()
        return ask('POST', f'{GCS_UPLOAD}multipart&name=it%2F{name}{more}', b'--b\r\nContent-Type: application/json\r\n\r\n' + json.dumps({'crc32c': crc}).encode() +
                   b'\r\n--b\r\nContent-Type: application/octet-stream\r\n\r\n' + content + b'\r\n--b--\r\n', Content_Type='multipart/related; boundary=b')
    put('a%20%26b', b'one', '&ifGenerationMatch=0')
    put('a%20%26b', b'two', '&ifGenerationMatch=0')
    about = json.loads(ask('GET', f'{GCS_OBJECT}a%20%26b{FIELDS}')[2])
    put('a%20%26b', b'three', f'&ifGenerationMatch={about["generation"]}')
    put('a%20%26b', b'four', f'&ifGenerationMatch={about["generation"]}')
    for name in ('empty', 'marked%2F', 'marked%2Fx'):
        put(name, b'')
    for bucket, prefix in (('served', 'it%2Fmarked%2F'), ('absent', '')):
        ask('GET', f'{GCS_LIST}&prefix={prefix}'.replace('served', bucket))
    ask('GET', f'{GCS_OBJECT}a%20%26b?alt=media')
    ask('GET', f'{GCS_LIST}&prefix=it%2F')
    upload = ask.header('location', 'POST', f'{GCS_UPLOAD}resumable&name=it%2Flarge&ifGenerationMatch=0').partition('/upload')[2]
    ask('PUT', f'/upload{upload}', b'x' * gcs_server.CHUNK, Content_Range=f'bytes 0-{gcs_server.CHUNK - 1}/*')
    ask('PUT', f'/upload{upload}', Content_Range='bytes */*')
    ask('GET', f'{GCS_OBJECT}large{FIELDS}')
    ask('PUT', f'/upload{upload}', b'y' * 100, Content_Range=f'bytes {gcs_server.CHUNK}-{gcs_server.CHUNK + 99}/{gcs_server.CHUNK + 100}')
    ask('GET', f'{GCS_OBJECT}large?alt=media', Range=f'bytes={gcs_server.CHUNK - 3}-{gcs_server.CHUNK + 3}')
    for name in ('a%20%26b', 'a%20%26b', 'large'):
        ask('DELETE', f'{GCS_OBJECT}{name}')
    ask('GET', f'{GCS_OBJECT}a%20%26b{FIELDS}')
    ask('GET', f'{GCS_LIST}&prefix=it%2F')


def test_they_are_written(servers):
    scheme, addresses = servers
    clients = [Client(addresses[name], SIGNED if scheme == 's3' else {}) for name in ('real', 'memory')]
    for client in clients:
        (write_to_s3 if scheme == 's3' else write_to_gcs)(client)
    for (method, path, want), (_, _, got) in zip(*(c.told for c in clients), strict=True):
        if scheme == 'gs':
            want['tag'] = got['tag'] = None
        assert got == want, (method, path)
