# SPDX-License-Identifier: Apache-2.0
"""Damage for checkpoints: what a bad disk, a bad copy or an enemy could leave behind.

Each mutation changes a private copy of an item in place. All are chosen by a seeded generator, so a
failing number can be made again.
"""

import functools
import json
import os
import pathlib
import shutil
import struct
import zlib

import google_crc32c

# The bytes of a file outside the source: if a mount ever returns them, it left its source.
CANARY = b'CANARY-OUTSIDE-THE-SOURCE '
CANARY_NAME = 'canary.io'
MAGICS = (b'\x0c\xdb\x3a\x2a', b'\x0c\xdb\x20\xde', b'\x0c\xdb\x12\x34')

NASTY_JSON = [None, True, -1, 0, 1, 2 ** 31, 2 ** 32 + 1, 2 ** 63 - 1, 2 ** 64, -2 ** 63, 10 ** 30, 1e308, 0.5,
              '', '..', '/etc/passwd', '../../../' + CANARY_NAME, 'a\0b', 'x' * 5000, '\ud800', [], {},
              [[[[[]]]]], [0] * 1000, {'a': {'a': {'a': 1}}}, float('nan'), float('inf')]


def files_of(item):
    return sorted(p for p in pathlib.Path(item).rglob('*') if p.is_file() and not p.is_symlink())


# ---- bytes ----

def flip_bits(rng, path):
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def set_bytes(rng, path):
    data = bytearray(path.read_bytes())
    if data:
        at, n = rng.randrange(len(data)), rng.choice((1, 2, 4, 8, 100))
        data[at:at + n] = bytes([rng.choice((0, 0xff, 0x7f, 0x80, rng.randrange(256)))]) * min(n, len(data) - at)
    path.write_bytes(data)


def truncate(rng, path):
    data = path.read_bytes()
    path.write_bytes(data[:rng.choice((0, 1, len(data) // 2, max(len(data) - 1, 0), rng.randrange(len(data) + 1)))])


def extend(rng, path):
    data = path.read_bytes()
    path.write_bytes(data + rng.choice((b'\0', data, bytes(5000), rng.randbytes(40))))


def shuffle_ranges(rng, path):
    data = bytearray(path.read_bytes())
    if len(data) > 8:
        n = rng.randrange(1, len(data) // 2)
        a, b = rng.randrange(len(data) - n), rng.randrange(len(data) - n)
        data[a:a + n] = bytes(data[b:b + n])
    path.write_bytes(data)


def randomise(rng, path):
    path.write_bytes(rng.randbytes(path.stat().st_size))


def grow_numbers(rng, path):
    """Digits -> nines: sizes, offsets and counts in any text, embedded JSON included."""
    data = bytearray(path.read_bytes())
    digits = [i for i, c in enumerate(data) if 0x30 <= c <= 0x39]
    for i in rng.sample(digits, min(len(digits), rng.choice((1, 2, 5)))):
        data[i] = rng.choice(b'0189')
    path.write_bytes(data)


# ---- names ----

def remove(rng, path):
    path.unlink()


def into_directory(rng, path):
    path.unlink()
    path.mkdir()


def into_fifo(rng, path):
    path.unlink()
    os.mkfifo(path)


def into_symlink_out(rng, path):
    """Out of the source: absolute, or by way of '..'."""
    root = path
    while not (root / CANARY_NAME).exists():
        root = root.parent
    path.unlink()
    target = root / CANARY_NAME
    os.symlink(rng.choice((str(target), os.path.relpath(target, path.parent), '/etc/passwd', '/dev/zero')), path)


def into_symlink_loop(rng, path):
    path.unlink()
    os.symlink(path.name, path)


def directory_into_symlink_out(rng, path):
    parent = path.parent
    if parent.name in ('state', ''):
        return remove(rng, path)
    shutil.rmtree(parent)
    os.symlink('/etc', parent)


def swap(rng, path):
    """The content of another file of the same item."""
    other = rng.choice(files_of(path.parent) or [path])
    path.write_bytes(other.read_bytes())


# ---- JSON ----

def _paths(doc, at=()):
    yield at
    if isinstance(doc, dict):
        for k, v in doc.items():
            yield from _paths(v, at + (k,))
    elif isinstance(doc, list):
        for i, v in enumerate(doc):
            yield from _paths(v, at + (i,))


def change_json(rng, path):
    try:
        doc = json.loads(path.read_bytes())
    except (ValueError, RecursionError):        # what another change made of it
        return flip_bits(rng, path)
    for _ in range(rng.choice((1, 1, 3))):
        where = rng.choice(list(_paths(doc)))
        if not where:
            continue
        node = doc
        for step in where[:-1]:
            node = node[step]
        kind = rng.randrange(4)
        if kind == 0:
            del node[where[-1]]
            break
        if kind == 1 and isinstance(node, dict):
            node[str(rng.choice(('', '..', 'x' * 300, 'a/b', '0')))] = node.pop(where[-1])
            break
        node[where[-1]] = rng.choice(NASTY_JSON)
    path.write_text(json.dumps(doc), errors='surrogatepass')


def deepen_json(rng, path):
    n = rng.choice((300, 5000, 200000))
    path.write_bytes(rng.choice((b'[' * n, b'{"a":' * n, b'[' * n + b']' * n, b'{"x":"' + b'y' * n)))


# ---- OCDBT records: damage under a right checksum ----

def records(data):
    """(offset, length) of every record of the envelope in a file."""
    at = 0
    while True:
        hits = [i for i in (data.find(m, at) for m in MAGICS) if i >= 0]
        if not hits:
            return
        at = min(hits)
        if at + 12 <= len(data):
            n = struct.unpack_from('<Q', data, at + 4)[0]
            if 18 <= n <= len(data) - at:
                crc = struct.unpack_from('<I', data, at + n - 4)[0]
                if google_crc32c.value(bytes(data[at:at + n - 4])) == crc:
                    yield at, n
        at += 1


def _seal(data, at, n):
    struct.pack_into('<I', data, at + n - 4, google_crc32c.value(bytes(data[at:at + n - 4])))


def change_record(rng, path):
    data = bytearray(path.read_bytes())
    found = list(records(data))
    if not found:
        return flip_bits(rng, path)
    at, n = rng.choice(found)
    for _ in range(rng.choice((1, 1, 2, 6))):
        i = at + rng.randrange(12, n - 4)
        data[i] = rng.choice((0, 1, 0x7f, 0x80, 0xff, rng.randrange(256), data[i] ^ 1, (data[i] + 1) & 255))
    if rng.random() < 0.1:
        struct.pack_into('<Q', data, at + 4, rng.choice((0, 18, n - 1, n + 1, 2 ** 63, 2 ** 64 - 1)))
    _seal(data, at, n)
    path.write_bytes(data)


def escape_record(rng, path):
    """Names of data files in uncompressed records -> a path of the same length out of the source."""
    data = bytearray(path.read_bytes())
    for at, n in records(data):
        i = at
        while True:
            i = data.find(b'd/', i, at + n)
            if i < 0 or i + 34 > at + n:
                break
            climb = b'../' * 3
            data[i:i + 34] = climb + b'./' * ((34 - len(climb) - len(CANARY_NAME)) // 2) + CANARY_NAME.encode()
            i += 34
        _seal(data, at, n)
    path.write_bytes(data)


# ---- bombs ----

def bomb(rng, path):
    """A small stream that decodes to gigabytes."""
    path.write_bytes(rng.choice((_zstd_bomb(), _zstd_bomb(known_size=True), _gzip_bomb(), _blosc_bomb())))


@functools.lru_cache
def _zstd_bomb(known_size=False):
    """RLE blocks: 3 GiB of zeros in 100 KB; the header says so, or says nothing."""
    blocks, size = 24576, 131072
    rle = struct.pack('<I', (size << 3) | 2)[:3] + b'\0'
    last = struct.pack('<I', (size << 3) | 3)[:3] + b'\0'
    header = b'\x28\xb5\x2f\xfd' + (b'\xc0\x58' + struct.pack('<Q', blocks * size) if known_size
                                    else b'\x00\x58')
    return header + rle * (blocks - 1) + last


@functools.lru_cache
def _gzip_bomb():
    c = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b''.join([c.compress(bytes(1 << 20)) for _ in range(64)]) + c.flush()


def _blosc_bomb():
    n = 2 ** 31 - 17
    return struct.pack('<BBBBIII', 2, 1, 0x21, 4, n, n, 64) + struct.pack('<I', 20) + bytes(44)


ANY_FILE = [flip_bits] * 4 + [set_bytes] * 4 + [truncate] * 3 + [extend] * 2 + [shuffle_ranges, randomise] + \
    [grow_numbers] * 4 + [remove] * 2 + [into_directory, into_fifo, into_symlink_loop, directory_into_symlink_out] + \
    [into_symlink_out] * 2 + [swap] * 2 + [bomb] * 2
JSON_FILE = [change_json] * 20 + [deepen_json] * 3
RECORD_FILE = [change_record] * 24 + [escape_record] * 6


def is_json(path):
    return path.name in ('_METADATA', '_CHECKPOINT_METADATA', '_sharding', '_strings.json', '.zarray', 'zarr.json') \
        or path.parent.name == 'array_metadatas'


def has_records(path):
    return path.name.startswith('manifest') or path.parent.name == 'd'


def mutate(rng, item):
    """Damage one item (or step); returns what was done, for messages."""
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        files = files_of(item)
        if not files:
            break
        path = rng.choice(files)
        choices = ANY_FILE + (JSON_FILE if is_json(path) else []) + (RECORD_FILE if has_records(path) else [])
        how = rng.choice(choices)
        done.append(f'{how.__name__} {path.relative_to(item)}')
        how(rng, path)
    return '; '.join(done)
