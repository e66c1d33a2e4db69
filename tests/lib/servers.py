# SPDX-License-Identifier: Apache-2.0
"""Servers of files on this machine: nginx, and one that answers as a test tells it to."""

import contextlib
import datetime
import email.utils
import http.server
import ipaddress
import os
import pathlib
import re
import select
import socket
import ssl
import struct
import subprocess
import threading
import time

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def port_for_grpc():
    """A port that nobody else gets before the process that is told of it listens there, as a server of gRPC does."""
    with socket.socket() as s:
        # Such a server shares its port with whoever has asked for that, too; what does not listen gets no connection.
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        s.bind(('127.0.0.1', 0))
        yield s.getsockname()[1]


def certificate(directory, host='127.0.0.1', name=None, names=(), is_expired=False):
    """A certificate of our own and its key: the paths of both. name: the address that it is for, when that is another one. names: of other hosts
    for which it is good."""
    paths = cert, key = directory / f'{host}.pem', directory / f'{host}.key'
    private = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name or host)])
    hosts = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(name or host)), *map(x509.DNSName, names)])
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=-1 if is_expired else 2)
    made = (x509.CertificateBuilder(subject, subject, private.public_key(), x509.random_serial_number(), end - datetime.timedelta(days=9), end)
            .add_extension(hosts, False).add_extension(x509.BasicConstraints(True, None), True).sign(private, hashes.SHA256()))
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return paths


def _start_nginx(directory, what, tls):
    """(the process, its port), or (None, why) when it has ended: somebody else may have taken the port meanwhile."""
    port = free_port()
    secure = f'ssl_certificate {tls[0]}; ssl_certificate_key {tls[1]};' if tls else ''
    temporary = ' '.join(f'{name}_temp_path {directory};' for name in ('client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'))
    (directory / 'nginx.conf').write_text(f'''
        worker_processes 1; daemon off; pid {directory}/pid; error_log {directory}/errors;
        {'user root;' if os.getuid() == 0 else ''}
        events {{ worker_connections 512; }}
        http {{ access_log {directory}/access; {temporary} keepalive_requests 10000;
            server {{ listen 127.0.0.1:{port}{' ssl' if tls else ''}; {what} {secure} }} }}
    ''')
    program = '/usr/sbin/nginx' if os.path.exists('/usr/sbin/nginx') else 'nginx'
    process = subprocess.Popen([program, '-c', directory / 'nginx.conf', '-e', directory / 'errors'],
                               stdin=subprocess.DEVNULL)
    end = time.monotonic() + 60
    # It writes its number when it listens.
    while process.poll() is None and not (directory / 'pid').exists():
        assert time.monotonic() < end, 'nginx does not begin'
        time.sleep(0.02)
    return (process, port) if process.poll() is None else (None, (directory / 'errors').read_text())


@contextlib.contextmanager
def _nginx(directory, what, tls=None):
    directory.mkdir()
    for _ in range(5):
        process, port = _start_nginx(directory, what, tls)
        if process:
            break
    assert process, port
    try:
        yield f'http{"s" if tls else ""}://127.0.0.1:{port}'
    finally:
        process.terminate()
        process.wait(120)


def nginx(directory, root, tls=None):
    """An nginx that serves root; gives its URL. tls: certificate and key."""
    return _nginx(directory, f'root {root};', tls)


def nginx_before(directory, address):
    """An nginx that hands everything on to the server at address, and keeps its clients' connections open; gives its URL."""
    return _nginx(directory, f'client_max_body_size 0; location / {{ proxy_pass http://{address}; proxy_set_header Host $http_host; '
                             'proxy_buffering off; proxy_request_buffering off; }')


def _is_open(connection):
    """Whether the other end has it open. One that it has closed may have a thread here that has yet to find out."""
    try:
        # The method of the plain socket, since that of a TLS connection takes no flags.
        return socket.socket.recv(connection, 1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b''
    except BlockingIOError:
        return True
    except OSError:
        return False


def tag_of(path):
    """An entity tag. The time of the last change of a file cannot be set."""
    st = path.stat()
    return f'"{st.st_ino:x}-{st.st_ctime_ns:x}"'


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def setup(self):
        with self.server.lock:
            self.server.connections.add(self.request)
            self.server.most_connections = max(self.server.most_connections,
                                               sum(map(_is_open, self.server.connections)))
        super().setup()

    def finish(self):
        super().finish()
        with self.server.lock:
            self.server.connections.discard(self.request)

    def log_message(self, *_):
        pass

    def date_time_string(self, timestamp=None):
        return super().date_time_string(time.time() + self.server.ahead if timestamp is None else timestamp)

    def do_HEAD(self):
        self._answer(False)

    def do_GET(self):
        self._answer(True)

    def _head(self, status, length, **headers):
        self.send_response(status)
        self.send_header('Content-Length', str(length))
        for name, value in headers.items():
            self.send_header(name.replace('_', '-'), value)
        self.end_headers()

    def reset(self):
        """End the connection as one that is lost does."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        self.close_connection = True
        self.connection.close()

    def _answer(self, with_body):
        with self.server.gate(self) if self.server.gate else contextlib.nullcontext():
            self._answer_now(with_body)

    def _answer_now(self, with_body):
        if self.server.guard and self.server.guard(self):
            return None
        path = pathlib.Path(self.server.root) / self.path.lstrip('/')
        if not path.is_file():
            return self._head(404, 0)
        size, tag = path.stat().st_size, tag_of(path)
        said = re.fullmatch(r'bytes=(\d+)-(\d+)', self.headers.get('Range', ''))
        start, end = (int(said[1]), min(int(said[2]) + 1, size)) if said else (0, size)
        if said and start >= end:
            return self._head(416, 0, Content_Range=f'bytes */{size}')
        fault = self.server.fault(self.path, start) if said else None
        if fault and fault(self, path.read_bytes(), start, end):
            return None
        if self.headers.get('If-Match', tag) != tag:
            return self._head(412, 0)
        headers = {'ETag': tag, 'Last-Modified': email.utils.formatdate(path.stat().st_mtime, usegmt=True)}
        if said:
            headers['Content_Range'] = f'bytes {start}-{end - 1}/{size}'
        self._head(206 if said else 200, end - start, **headers)
        if with_body:
            with open(path, 'rb', buffering=0) as f:
                f.seek(start)
                self.wfile.write(f.read(end - start))
        return None


class Server(http.server.ThreadingHTTPServer):
    """An HTTP server on a port of its own, in threads of this process, which is served within `with`."""
    daemon_threads = True
    # A connection that finds no place in the queue tries again after a second, then after longer and longer.
    request_queue_size = 128

    def __init__(self, handler, tls=None):
        """tls: certificate and key."""
        super().__init__(('127.0.0.1', 0), handler)
        self.lock = threading.Lock()
        self.url = f'http{"s" if tls else ""}://127.0.0.1:{self.server_address[1]}'
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            # Each connection's own thread shakes hands.
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.thread = threading.Thread(target=self.serve_forever, args=(0.05,), name='accepts')

    def handle_error(self, *_):
        pass                    # connections that a test ends

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.thread.join()
        self.server_close()


class _Tunnel(http.server.BaseHTTPRequestHandler):
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_CONNECT(self):
        host = self.path.rpartition(':')[0].lower()
        with self.server.lock:
            self.server.asked.append(host)
        # A bucket may be the first part of a host's name.
        port = self.server.ports.get(host) or self.server.ports.get(host.partition('.')[2])
        if not port:
            self.send_error(502)
            return
        with socket.create_connection(('127.0.0.1', port)) as there:
            there.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
            self.connection.sendall(b'HTTP/1.1 200 Connected\r\n\r\n')
            self._join(there)

    def _join(self, there):
        """Pass bytes in both directions until either end is closed."""
        other = {self.connection: there, there: self.connection}
        while True:
            for end in select.select([*other], [], [])[0]:
                data = end.recv(1 << 16)
                if not data:
                    return
                other[end].sendall(data)


class Tunnel(Server):
    """The proxy for https_proxy: leads to servers on this machine instead of the hosts that are asked for, and to no other host.
    ports: by the host's name; asked: the names so far."""

    def __init__(self, ports):
        super().__init__(_Tunnel)
        self.ports, self.asked = {name.lower(): port for name, port in ports.items()}, []


@contextlib.contextmanager
def faulty(root, fault=None, made=None, tls=None, guard=None):
    """Serves root, with ranges and tags. made: a list that gets the server, which counts connections and may have a gate (lib.rounds).
    fault(path, offset), for each range: None, or a function of handler, bytes of the object, start and end, which answers and returns True, or returns False.
    guard(handler), before each answer: True when it has answered."""
    server = Server(_Handler, tls)
    server.guard = guard
    server.connections, server.most_connections, server.gate = set(), 0, None
    if made is not None:
        made.append(server)
    server.ahead = 0            # seconds by which its clock is ahead
    server.root, server.fault = root, fault or (lambda path, offset: None)
    with server:
        yield server.url
