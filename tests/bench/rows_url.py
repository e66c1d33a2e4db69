# SPDX-License-Identifier: Apache-2.0
"""Checkpoints on a server at the end of a long line: 20 ms for a question and its answer, 200 MB/s for all connections
together in each direction (slow_line.c before nginx, or before moto's server for S3). Connections are made anew for each run."""

import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np

from bench.bench import bench
from lib import buckets, servers

ROUND_TRIP = 0.02
RATE = 200e6
PIECE = 8 << 20
CONNECTIONS = 32


def web(b, root):
    """The URL of a directory on this machine."""
    return b.stack.enter_context(servers.nginx(b.scratch() / 'nginx', root))


def serve(b, root):
    """The URL of a directory at the end of the line."""
    return line_to(b, web(b, root))


def line_to(b, url):
    return begin_line(b, url)[0]


def begin_line(b, url):
    """The URL of a server at the end of the line, and a function by which one of its connections will stall in the middle of an answer."""
    subprocess.run(['ninja', '-C', str(b.build), 'tests/bench/slow_line'], check=True, stdout=subprocess.DEVNULL)
    line = subprocess.Popen([b.build / 'tests/bench/slow_line', url.rpartition(':')[2], str(int(ROUND_TRIP / 2 * 1e6)), str(RATE)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    b.stack.callback(line.wait)
    b.stack.callback(line.stdin.close)

    def stall():
        line.stdin.write('s')
        line.stdin.flush()
    return f'http://127.0.0.1:{int(line.stdout.readline())}', stall


def curl(source, url, directory):
    """The files of a checkpoint by curl in ranges of 8 MiB, over as many connections: what the line gives."""
    lines = []
    for path in sorted(p for p in source.rglob('*') if p.is_file()):
        size = path.stat().st_size
        for at in range(0, size, PIECE):
            lines += [f'url = "{url}/{path.relative_to(source)}"', f'range = "{at}-{min(size, at + PIECE) - 1}"', 'output = "/dev/null"', 'silent', 'fail', 'next']
    (directory / 'config').write_text('\n'.join(lines[:-1]) + '\n')
    return ['curl', '--parallel', '--parallel-immediate', '--parallel-max', str(CONNECTIONS), '-K', directory / 'config']


def readers_of(b, source):
    """Readers of a whole tree at the end of the line: np.load in a loop over a mount, the package, and TensorStore's http driver. Returns
    the URL."""
    b.warm(source)
    url = serve(b, source)
    m = b.mount(url)
    b.contender('loop', b.python('load_tree', m.path), before=m.fresh, memory=m.memory)
    b.contender('pytreefs.load', b.python('peers_python:load', url))
    b.contender('TensorStore', b.python('peers_python:tensorstore_tree', url))
    return url


@bench
def url_tree(b):
    """1 GiB in 64 leaves of one zstd frame (OCDBT), by np.load in a loop over a mount, by the package, by TensorStore's http driver, and
    the stored bytes by curl with 32 connections."""
    source = b.case('bench-leaves-zstd')
    url = readers_of(b, source)
    b.contender('curl', curl(source, url, b.scratch()))
    b.row('from a web server, np.load in a loop', 'loop', 'TensorStore', rate=1.0)
    b.row('from a web server, pytreefs.load', 'pytreefs.load', 'TensorStore', rate=1.2)
    b.row('from a web server, pytreefs.load', 'pytreefs.load', 'curl', rate=0.8)


@bench
def url_tree_raw(b):
    """The same tree without compression, which the line bounds: np.load in a loop over a mount, and the package, against TensorStore."""
    readers_of(b, b.converted('bench-leaves-zstd', 'compression=none'))
    b.row('raw tree from a web server, np.load in a loop', 'loop', 'TensorStore', rate=1.0)
    b.row('raw tree from a web server, pytreefs.load', 'pytreefs.load', 'TensorStore', rate=1.0)


@bench
def url_stall(b):
    """The zstd tree by np.load in a loop over a fresh mount, while one connection stalls for good after 64 MiB, and without that. A
    reader may wait for 10 s, the deadline for progress; the loop itself takes 4 s at most."""
    source = b.case('bench-leaves-zstd')
    b.warm(source)
    url, stall = begin_line(b, web(b, source))
    m = b.mount(url)

    def fresh():
        m.fresh()
        stall()
    b.contender('stall', b.python('load_tree', m.path), before=fresh, memory=m.memory)
    b.contender('no stall', b.python('load_tree', m.path), before=m.fresh, memory=m.memory)
    b.row('from a web server, one connection stalls', 'stall', within=10 + 4)
    b.row('the same, no connection stalls', 'no stall')


@bench
def url_one(b):
    """One leaf of 1 GiB in one zstd frame: `cat` of a fresh mount, against TensorStore's http driver."""
    source = b.case('bench-one-zstd')
    b.warm(source)
    url = serve(b, source)
    m = b.mount(url)
    b.contender('cat', ['sh', '-c', 'cat "$0" >/dev/null', m / 'w.npy'], before=m.fresh, memory=m.memory)
    b.contender('TensorStore', b.python('peers_python:tensorstore_tree', url))
    b.row('one leaf from a web server, cat', 'cat', 'TensorStore', rate=1.0)


@bench
def url_cache(b):
    """The same tree in a second mount, from the cache on disk that the first one filled (cache_dir), against a mount of the local files."""
    source = b.case('bench-leaves-zstd')
    b.warm(source)
    again = b.mount(serve(b, source), f'cache_dir={b.scratch() / "cache"}')
    local = b.mount(source)
    subprocess.run(['cp', '-r', again.path, b.scratch() / 'copy'], check=True)
    b.contender('cache_dir', b.python('load_tree', again.path), before=again.fresh, memory=again.memory)
    b.contender('local', b.python('load_tree', local.path), before=local.fresh, memory=local.memory)
    b.row('from a web server, second mount with cache_dir', 'cache_dir', 'local', rate=0.7)


def bucket(b, name):
    """A bucket of S3 at the end of the line, and the words that programs need to ask it. moto closes each connection after its
    answer, which no vendor does: an nginx before it keeps them."""
    address = b.stack.enter_context(buckets.moto())
    url = line_to(b, b.stack.enter_context(servers.nginx_before(b.scratch() / 'nginx', address)))
    return buckets.Bucket(address, name), words_for(url), url


@bench
def s3_leaf(b):
    """One leaf of 1 MiB by its URL, the whole process: six round trips and 50 ms. Without the line moto takes 5 ms for an answer."""
    objects, words, _ = bucket(b, 'leaf')
    objects.upload(b.case('bench-small'), 'small')
    b.contender('pytreefs cat', [*words, b.program, 'cat', 's3://leaf/small/w0.npy'])
    b.row('from S3, pytreefs cat of a 1 MiB leaf', 'pytreefs cat', within=6 * ROUND_TRIP + 0.05)


def sink(b):
    """A server for S3 at the end of the line that keeps nothing (s3_sink.py). Returns a function that empties it, the
    words before a command that uses it, and its URL."""
    server = subprocess.Popen([sys.executable, pathlib.Path(__file__).with_name('s3_sink.py')], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    b.stack.callback(server.wait)
    b.stack.callback(server.stdin.close)
    address = f'127.0.0.1:{int(server.stdout.readline())}'
    url = line_to(b, f'http://{address}')
    return lambda: buckets.ask(address, 'DELETE', '/save/run/'), words_for(url), url


def words_for(url):
    return ['env', f'AWS_ACCESS_KEY_ID={buckets.KEY_ID}', f'AWS_SECRET_ACCESS_KEY={buckets.SECRET}', f'AWS_ENDPOINT_URL={url}', f'AWS_REGION={buckets.REGION}']


def put_by_curl(b, url, size):
    """Puts `size` bytes by curl in pieces of 8 MiB over 16 connections, which is what the line carries."""
    pieces, lines = b.scratch(), []
    content = np.random.default_rng(5).bytes(PIECE)
    for at in range(0, size, PIECE):
        piece = pieces / f'{at // PIECE:03d}'
        piece.write_bytes(content[:min(PIECE, size - at)])
        lines += [f'upload-file = "{piece}"', f'url = "{url}/save/pieces/{piece.name}"', 'output = "/dev/null"', 'silent', 'fail', 'next']
    (pieces / 'config').write_text('\n'.join(lines[:-1]) + '\n')
    return ['curl', '--parallel', '--parallel-immediate', '--parallel-max', '16', '-K', pieces / 'config']


def raw_leaves(b):
    """512 MiB of random bytes in 64 leaves."""
    files = b.scratch() / 'files'
    files.mkdir()
    rng = np.random.default_rng(4)
    for i in range(64):
        np.save(files / f'w{i:02d}.npy', rng.integers(0, 1 << 63, PIECE // 8))
    return files


@bench
def s3_save(b):
    """512 MiB of random bytes, not compressed, by `pytreefs save` to a server that discards what it receives; the same
    bytes put by curl in pieces of 8 MiB over 16 connections."""
    empty, words, url = sink(b)
    b.contender('pytreefs save', [*words, b.program, 'save', '-o', 'compression=none', raw_leaves(b), 's3://save/run/1'], before=empty)
    b.contender('curl', put_by_curl(b, url, 64 * PIECE))
    b.row('to S3, pytreefs save, not compressed', 'pytreefs save', 'curl', rate=0.8)


@bench
def s3_save_zstd(b):
    """The tree of 1 GiB in 64 leaves, compressed by zstd:1, in the same way; curl puts as many bytes as are stored of it."""
    empty, words, url = sink(b)
    files, local = b.scratch() / 'files', b.scratch() / '1'
    subprocess.run([b.program, 'export', '--format', 'npy', b.case('bench-leaves-zstd'), files], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    save = [b.program, 'save', '-o', 'compression=zstd:1']
    subprocess.run([*save, files, local], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stored = sum(p.stat().st_size for p in local.rglob('*') if p.is_file())
    shutil.rmtree(local)
    b.warm(files)
    b.contender('pytreefs save', [*words, *save, files, 's3://save/run/1'], before=empty)
    b.contender('curl', put_by_curl(b, url, stored))
    b.row('to S3, pytreefs save of a tree, zstd:1', 'pytreefs save', 'curl', rate=0.8)


@bench
def s3_save_moto(b):
    """The same 512 MiB to moto's server. It hashes and copies in Python what it receives, and joins the parts of an upload
    when it ends, which takes as long as the line."""
    objects, words, url = bucket(b, 'save')

    def empty():
        for key in objects.keys():
            objects.delete(key)
    b.contender('pytreefs save', [*words, b.program, 'save', '-o', 'compression=none', raw_leaves(b), 's3://save/run/1'], before=empty)
    b.contender('curl', put_by_curl(b, url, 64 * PIECE), before=empty)
    b.row('to moto, pytreefs save, not compressed', 'pytreefs save', 'curl')


@bench
def url_leaf(b):
    """One leaf of 1 MiB by its URL, the whole process: six round trips and 50 ms."""
    url = serve(b, b.case('bench-small'))
    b.contender('pytreefs cat', [b.program, 'cat', f'{url}/w0.npy'])
    b.row('from a web server, pytreefs cat of a 1 MiB leaf', 'pytreefs cat', within=6 * ROUND_TRIP + 0.05)


@bench
def url_list(b):
    """`ls -lR` of 2,000 leaves of a fresh mount: six round trips and 100 ms."""
    files, saved = b.scratch() / 'files', b.scratch() / 'saved'
    for i in range(2000):
        path = files / f'layer{i // 20}' / f'w{i % 20}.npy'
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.full((4, 64), i, np.float32))
    subprocess.run([b.program, 'convert', '--layout', 'v0', files, saved], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    m = b.mount(serve(b, saved))
    names = sum(len(found) for _, _, found in os.walk(m.path / 'layer0'))
    if names != 20:
        raise RuntimeError(f'{names} leaves where 20 were saved')
    b.contender('ls', ['sh', '-c', 'ls -lR "$0" >/dev/null', m.path], before=m.fresh, memory=m.memory)
    b.row('from a web server, ls -lR of 2,000 leaves, cold', 'ls', within=6 * ROUND_TRIP + 0.1)
