# SPDX-License-Identifier: Apache-2.0
"""A server of S3 that takes objects as fast as they come: it checks no signature, and of what is larger than 64 KiB it keeps the size.

For what a line carries: moto, in Python as this is, hashes and copies what it is sent, and joins the parts of an upload byte by byte, which
takes longer than the line. `python s3_sink.py` prints its port, and ends with its input.
"""

import html
import http.server
import socketserver
import sys
import threading
import urllib.parse

SMALL = 64 << 10
PIECE = 1 << 20
OBJECTS = {}  # key -> bytes, or a size
UPLOADS = {}  # id -> [key, size]
LOCK = threading.Lock()


def listing(query):
    prefix, delimiter = (query.get(n, [''])[0] for n in ('prefix', 'delimiter'))
    keys, directories = [], set()
    for key in sorted(k for k in OBJECTS if k.startswith(prefix)):
        name, slash, _ = key.removeprefix(prefix).partition(delimiter or '\0')
        if slash:
            directories.add(prefix + name + slash)
        else:
            keys.append(key)
    size = {k: OBJECTS[k] if isinstance(OBJECTS[k], int) else len(OBJECTS[k]) for k in keys}
    return ('<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><IsTruncated>false</IsTruncated>'
            + ''.join(f'<Contents><Key>{html.escape(k)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>"1"</ETag>'
                      f'<Size>{size[k]}</Size></Contents>' for k in keys)
            + ''.join(f'<CommonPrefixes><Prefix>{html.escape(d)}</Prefix></CommonPrefixes>' for d in sorted(directories)) + '</ListBucketResult>')


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def take(self):
        """The body: its bytes when they are few, else how many."""
        n = int(self.headers.get('Content-Length') or 0)
        if n <= SMALL:
            return self.rfile.read(n)
        room = memoryview(bytearray(PIECE))
        for at in range(0, n, PIECE):
            self.rfile.readinto(room[:min(PIECE, n - at)])
        return n

    def say(self, status, text='', **headers):
        body = text if isinstance(text, bytes) else text.encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(body)

    def parts(self):
        path, _, query = self.path.partition('?')
        return urllib.parse.unquote(path).lstrip('/').partition('/')[2], urllib.parse.parse_qs(query, keep_blank_values=True)

    def do_GET(self):
        key, query = self.parts()
        with LOCK:
            if 'uploads' in query:
                text = '<?xml version="1.0"?><ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>'
                return self.say(200, text)
            if 'list-type' in query:
                return self.say(200, listing(query))
            content = OBJECTS.get(key)
        if content is None:
            return self.say(404, '<Error><Code>NoSuchKey</Code></Error>')
        return self.say(200, content if isinstance(content, bytes) else bytes(content), ETag='"1"')

    do_HEAD = do_GET

    def do_PUT(self):
        content = self.take()
        key, query = self.parts()
        with LOCK:
            if 'partNumber' in query:
                UPLOADS[query['uploadId'][0]][1] += content if isinstance(content, int) else len(content)
            elif self.headers.get('If-None-Match') and key in OBJECTS:
                return self.say(412, '<Error><Code>PreconditionFailed</Code></Error>')
            else:
                OBJECTS[key] = content
        return self.say(200, ETag='"1"')

    def do_POST(self):
        self.take()
        key, query = self.parts()
        with LOCK:
            if 'uploads' in query:
                upload = str(len(UPLOADS))
                UPLOADS[upload] = [key, 0]
                return self.say(200, f'<?xml version="1.0"?><InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>')
            OBJECTS.__setitem__(*UPLOADS[query['uploadId'][0]])
        return self.say(200, '<?xml version="1.0"?><CompleteMultipartUploadResult></CompleteMultipartUploadResult>')

    def do_DELETE(self):
        key, _ = self.parts()
        with LOCK:
            # Of a prefix all goes.
            for k in [k for k in OBJECTS if k == key or (key.endswith('/') and k.startswith(key))]:
                del OBJECTS[k]
        self.say(204)


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128


if __name__ == '__main__':
    server = Server(('127.0.0.1', 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
