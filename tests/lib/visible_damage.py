# SPDX-License-Identifier: Apache-2.0
"""Damage that can be seen: each function changes one file of a checkpoint so that a checksum or the structure
shows it, says where, or returns None when its dice fell on something that nobody could notice.

What can be seen is judged by others than the program under test: CRC-32C of whole records, libzstd for
chunks, Python's json for text, TensorStore for databases whose records were changed under a right checksum.
"""

import ctypes
import json
import struct

import google_crc32c
import tensorstore as ts

from lib import mutate

ZSTD = b'\x28\xb5\x2f\xfd'
METADATA = ('.zarray', 'zarr.json')
JSON_NAMES = METADATA + ('_METADATA', '_CHECKPOINT_METADATA', '_sharding', '_strings.json')
# Files that may be missing: options that can be off, and markers. A part's own manifest is not needed once
# it has been merged.
OPTIONAL = ('_sharding', 'commit_success.txt', '_CHECKPOINT_METADATA', 'process_0', '_METADATA')


class Damage:
    """How, in which file, and for what is inside a data file the byte that was changed."""

    def __init__(self, how, path, at=None, needs_place=True):
        self.how, self.path, self.at = how, path, at
        # Two files that disagree: either could be the wrong one.
        self.needs_place = needs_place

    def __repr__(self):
        return f'{self.how} {self.path}' + ('' if self.at is None else f' byte {self.at}')


def files(item, wanted=lambda p: True):
    return [p for p in mutate.files_of(item) if p.stat().st_size and p.name != 'commit_success.txt' and wanted(p)]


def is_json(path):
    return path.name in JSON_NAMES or path.parent.name == 'array_metadatas'


def is_chunk(path):
    """Of an array stored as a directory."""
    return not is_json(path) and not mutate.has_records(path)


def flip(path, at, rng):
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return data


# ---- what a checksum covers ----

def record(rng, item):
    """A bit of a record of a database: manifest, node, version node."""
    path = rng.choice(files(item, mutate.has_records) or [None])
    found = path and list(mutate.records(path.read_bytes()))
    if not found:
        return None
    start, n = rng.choice(found)
    at = start + rng.randrange(n)
    flip(path, at, rng)
    return Damage('record', path, at)


def shard_index(rng, item):
    """The index at the end of a shard: 16 bytes a chunk and a CRC-32C."""
    path = rng.choice(files(item, is_chunk) or [None])
    data = path.read_bytes() if path else b''
    for n in range(1, 200):
        size = 16 * n + 4
        if size <= len(data) and google_crc32c.value(data[-size:-4]) == struct.unpack('<I', data[-4:])[0]:
            at = len(data) - 1 - rng.randrange(size)
            flip(path, at, rng)
            return Damage('shard index', path, at)
    return None


# ---- what a decoder notices ----

def frames(path):
    """(offset, end) of what begins like a zstd frame and is not inside a record."""
    data = path.read_bytes()
    inside = list(mutate.records(data)) if mutate.has_records(path) else []
    starts = []
    at = data.find(ZSTD)
    while at >= 0:
        if not any(a <= at < a + n for a, n in inside):
            starts.append(at)
        at = data.find(ZSTD, at + 4)
    ends = sorted(starts + [a for a, _ in inside] + [len(data)])
    return data, [(a, min(e for e in ends if e > a)) for a in starts]


def decoded(raw, room=1 << 20):
    """How many bytes a frame holds, or None. Releases of the library differ in what they notice: this is the
    system's, as the program has it."""
    out = ctypes.create_string_buffer(room)
    zstd = ctypes.CDLL('libzstd.so.1')
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    n = zstd.ZSTD_decompress(out, ctypes.c_size_t(room), raw, ctypes.c_size_t(len(raw)))
    return None if zstd.ZSTD_isError(ctypes.c_size_t(n)) else n


def frame(rng, item):
    """A bit of a compressed chunk, where the decoder cannot come to the right length any more."""
    found = []
    for path in files(item, lambda p: p.name != 'manifest.ocdbt' and not is_json(p)):
        data, chunks = frames(path)
        found += [(path, data, a, e) for a, e in chunks if decoded(data[a:e])]
    # The decoder does not notice most bits of values that are stored as they are.
    for _ in range(20 if found else 0):
        path, data, start, end = rng.choice(found)
        at = rng.randrange(start, end)
        changed = bytearray(data)
        changed[at] ^= 1 << rng.randrange(8)
        if decoded(bytes(changed[start:end])) != decoded(data[start:end]):
            path.write_bytes(changed)
            return Damage('frame', path, at)
    return None


def cut(rng, item):
    """Bytes are missing at the end of any file that has to be there."""
    path = rng.choice(files(item))
    data = path.read_bytes()
    # The truncated part must have been needed: JSON that still parses is complete.
    short = data[:rng.choice((len(data) - 1, rng.randrange(len(data))))]
    if is_json(path) and parses(short):
        return None
    path.write_bytes(short)
    return Damage('cut', path)


def tail(rng, item):
    """Bytes too many after a chunk that is a file of its own."""
    path = rng.choice(files(item, is_chunk) or [None])
    if not path:
        return None
    data = path.read_bytes()
    path.write_bytes(data + rng.randbytes(rng.choice((1, 4, 100))))
    return Damage('tail', path)


# ---- names ----

def gone(rng, item):
    path = rng.choice(files(item, lambda p: p.name not in OPTIONAL and not is_chunk(p)
                            and not (p.name.startswith('manifest') and p.parent != item)))
    path.unlink()
    return Damage('gone', path)


def other_kind(rng, item):
    """A directory, a pipe or a link to itself where a file should be."""
    path = rng.choice(files(item))
    how = rng.choice((mutate.into_directory, mutate.into_fifo, mutate.into_symlink_loop))
    how(rng, path)
    return Damage(how.__name__, path)


# ---- text ----

def parses(text):
    try:
        json.loads(text.decode(), parse_constant=None)
        return True
    except ValueError:
        return False


def json_byte(rng, item):
    """A byte of a JSON file, so that it is not JSON any more."""
    path = rng.choice(files(item, is_json))
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data))
    data[at] = rng.choice((0, 0xff, data[at] ^ (1 << rng.randrange(7)), ord(rng.choice('{}[]",:'))))
    if parses(bytes(data)):
        return None
    path.write_bytes(data)
    return Damage('JSON', path)


def edit(how):
    """A damage that changes the document of a file; how(rng, name, doc) says whether it did."""
    def change(rng, item):
        path = rng.choice(files(item, is_json))
        doc = json.loads(path.read_bytes())
        kind = 'array_metadatas' if path.parent.name == 'array_metadatas' else path.name
        if not how(rng, kind, doc):
            return None
        path.write_text(json.dumps(doc))
        return Damage(how.__name__, path, needs_place=False)
    change.__name__ = how.__name__
    return change


@edit
def lost_entry(rng, kind, doc):
    """A leaf that one of the files does not know any more, while its array is there."""
    if kind == '_METADATA':
        entries = doc['tree_metadata']
        stored = [k for k, v in entries.items()
                  if v['value_metadata']['value_type'] in ('jax.Array', 'np.ndarray', 'scalar')]
        del entries[rng.choice(stored)]
    elif kind == 'array_metadatas':
        doc['array_metadatas'].pop(rng.randrange(len(doc['array_metadatas'])))
    elif kind == '_strings.json':
        del doc[rng.choice(list(doc))]
    else:
        return False
    return True


@edit
def other_name(rng, kind, doc):
    """A leaf under a name that nothing else has."""
    if kind == '_METADATA':
        entry = rng.choice([v for v in doc['tree_metadata'].values()
                            if v['value_metadata']['value_type'] in ('jax.Array', 'np.ndarray')])
        entry['key_metadata'][-1]['key'] += 'X'
    elif kind == 'array_metadatas':
        rng.choice(doc['array_metadatas'])['array_metadata']['param_name'] += 'X'
    elif kind in ('_strings.json', '_sharding') and doc:
        doc['nobody'] = doc.pop(rng.choice(list(doc)))
    else:
        return False
    return True


@edit
def other_shape(rng, kind, doc):
    """Chunks or bounds that do not fit what is stored."""
    if kind == 'array_metadatas':
        m = rng.choice([e['array_metadata'] for e in doc['array_metadatas'] if e['array_metadata']['chunk_shape']])
        m['chunk_shape'][0] += 1
    elif kind == '.zarray' and doc['chunks']:
        doc['chunks'][rng.randrange(len(doc['chunks']))] += 1
    elif kind == 'zarr.json' and doc['shape']:
        c = doc['chunk_grid']['configuration']['chunk_shape']
        c[rng.randrange(len(c))] += 1
    else:
        return False
    return True


@edit
def other_type(rng, kind, doc):
    """An element of another size, or a codec that there is not."""
    if kind == '.zarray':
        if rng.random() < 0.5:
            doc['dtype'] = '<f8' if doc['dtype'][-1] != '8' else '<f2'
        else:
            doc['compressor'] = {'id': 'zztd', 'level': 1}
    elif kind == 'zarr.json':
        doc['data_type'] = 'float16' if doc['data_type'][-2:] in ('64', '32') else 'nothing'
    else:
        return False
    return True


# ---- databases under a right checksum ----

def listing(root):
    """{key: length} of the database, or None when TensorStore finds fault with it."""
    try:
        kv = ts.KvStore.open({'driver': 'ocdbt', 'base': f'file://{root}/'}).result()
        return {k: len(kv.read(k).result().value) for k in kv.list().result()}
    except ValueError:
        return None


def sealed_record(rng, item):
    """Bytes of a record of the item's own database; its checksum is made right again."""
    path = rng.choice(files(item, lambda p: mutate.has_records(p) and p.parent in (item, item / 'd')) or [None])
    before = path and listing(item)
    if not before:
        return None
    data = path.read_bytes()
    mutate.change_record(rng, path)
    if path.read_bytes() == data or listing(item) == before:
        path.write_bytes(data)
        return None
    return Damage('sealed record', path, needs_place=False)


ALL = [(record, 30), (shard_index, 12), (frame, 30), (cut, 30), (tail, 10), (gone, 12), (other_kind, 12),
       (json_byte, 22), (lost_entry, 10), (other_name, 10), (other_shape, 8), (other_type, 6), (sealed_record, 8)]


def schedule():
    """One function for each of the two hundred."""
    out = [how for how, n in ALL for _ in range(n)]
    assert len(out) == 200, len(out)
    return out

