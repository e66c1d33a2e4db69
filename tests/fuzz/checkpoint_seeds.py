# SPDX-License-Identifier: Apache-2.0
"""Seeds of fuzz_checkpoint.c: small checkpoints in pieces (pieces.h), of every layout; for make_corpus.py.

`checkpoint_seeds.py DIRECTORY >FILE` makes an input of a checkpoint that is there: its files, with the records of a
database as bodies whose checksums the target computes. What other libraries wrote can be searched from that way.
"""

import json
import pathlib
import struct
import sys

DIGITS = '0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'
ROOT, STEP, ITEM, ZERO, PADS, TMP, SPILL, CAST, AGAIN = 1, 2, 3, 4, 8, 16, 32, 64, 128
UUID = '000102030405060708090a0b0c0d0e0f'
FILE = 'd/00112233445566778899aabbccddeeff'
HANDLER = 'orbax.checkpoint._src.handlers.'


def piece(kind, name, data=b''):
    data = data.encode() if isinstance(data, str) else data
    return kind.encode() + struct.pack('<BH', len(name), len(data)) + name.encode() + data


def checkpoint(flags, *pieces):
    return bytes([flags]) + b''.join(pieces)


def doc(name, content):
    return piece('b', name, json.dumps(content, separators=(',', ':')))


def floats(n, first=0):
    return struct.pack(f'<{n}f', *range(first, first + n))


def encoded(name, spec, data):
    return piece('e', name, json.dumps(spec).encode() + b'\0' + data)


# ---- documents ----

def entry(keys, value_type='np.ndarray', skip=False, **more):
    """keys: texts of a dict, numbers of a list."""
    path = [{'key': str(k), 'key_type': 1 if isinstance(k, int) else 2} for k in keys]
    return str(tuple(keys)), {'key_metadata': path, 'value_metadata': {'value_type': value_type, 'skip_deserialize': skip, **more}}


def tree(*entries, zarr3=False, ocdbt=False, **more):
    return {'tree_metadata': dict(entries), 'use_ocdbt': ocdbt, 'use_zarr3': zarr3,
            'store_array_data_equal_to_fill_value': True, 'custom_metadata': None, **more}


def zarray(shape, chunks, dtype='<f4', compressor=None, order='C', fill=None):
    return {'chunks': chunks, 'compressor': compressor, 'dimension_separator': '.', 'dtype': dtype, 'fill_value': fill,
            'filters': None, 'order': order, 'shape': shape, 'zarr_format': 2}


def zarr3(shape, chunks, codecs, data_type='float32', fill=0):
    return {'chunk_grid': {'configuration': {'chunk_shape': chunks}, 'name': 'regular'}, 'chunk_key_encoding': {'name': 'default'},
            'codecs': codecs, 'data_type': data_type, 'fill_value': fill, 'node_type': 'array', 'shape': shape, 'zarr_format': 3}


LITTLE = {'name': 'bytes', 'configuration': {'endian': 'little'}}
CRC = {'name': 'crc32c'}


def sharding(chunks, codecs, location='end'):
    return {'name': 'sharding_indexed', 'configuration': {'chunk_shape': chunks, 'codecs': codecs, 'index_codecs': [LITTLE, CRC],
                                                          'index_location': location}}


def step_meta(**items):
    return {'item_handlers': items, 'metrics': {}, 'performance_metrics': {}, 'init_timestamp_nsecs': 1700000000000000000,
            'commit_timestamp_nsecs': 1700000001000000000, 'custom_metadata': {'a': 1}}


PYTREE = HANDLER + 'pytree_checkpoint_handler.PyTreeCheckpointHandler'
JSON = HANDLER + 'json_checkpoint_handler.JsonCheckpointHandler'


# ---- records ----

def manifest(*lines, arity=4, kind=0):
    return '\n'.join(['manifest', 'compression none', f'uuid {UUID}', f'manifest_kind {kind}', 'max_inline_value_bytes 100',
                      'max_decoded_node_bytes 1000', f'version_tree_arity_log2 {arity}', 'config_compression none', *lines, ''])


def version(generation, piece, height=0, file=FILE, keys=2):
    return (f'version {generation} height {height} root "" "{file}" ${DIGITS[piece]} keys {keys} tree_bytes 200 value_bytes 24 '
            f'time 17000000000000000{generation:02}')


def vnode(generation, height, piece, generations, file=FILE):
    return (f'versionnode {generation} height {height} node "" "{file}" ${DIGITS[piece]} generations {generations} '
            f'time 1700000000000000001')


def node(height, *lines, compression='none'):
    return '\n'.join(['btreenode', f'compression {compression}', f'height {height}', *lines, ''])


def quoted(text):
    return ''.join(c if ' ' < c < '\x7f' and c not in '"%' else f'%{ord(c):02X}' for c in text)


def inline(key, value):
    value = json.dumps(value, separators=(',', ':')) if isinstance(value, dict) else value
    return f'entry "{key}" inline "{quoted(value)}"'


def stored(key, piece, base='', file=FILE):
    return f'entry "{key}" file "{base}" "{file}" ${DIGITS[piece]}'


def child(key, cut, piece, base='', file=FILE, keys=2):
    return f'child "{key}" cut {cut} node "{base}" "{file}" ${DIGITS[piece]} keys {keys} tree_bytes 100 value_bytes 24'


def database(prefix='', meta=None, compression='none'):
    """An array w of two chunks and a scalar n, in two leaves below one root: the first pieces of an input."""
    d = prefix + FILE
    return [piece('b', d, floats(4)), piece('s', ''), piece('b', '', floats(4, 4)), piece('s', ''), piece('b', '', floats(1)),
            piece('t', '', node(0, inline('n/.zarray', zarray([], [])), stored('n/0', 4), compression=compression)),
            piece('t', '', node(0, inline('.zarray', meta or zarray([4, 2], [2, 2])), stored('0.0', 0), stored('1.0', 2))),
            piece('t', '', node(1, child('n/.zarray', 0, 5), child('w/.zarray', 2, 6, keys=3))),
            piece('t', prefix + 'manifest.ocdbt', manifest(version(1, 7, height=1, keys=5)))]


# ---- msgpack ----

def packed(value):
    if value is None or isinstance(value, bool):
        return {None: b'\xc0', True: b'\xc3', False: b'\xc2'}[value]
    if isinstance(value, int):
        return b'\xd3' + struct.pack('>q', value)
    if isinstance(value, float):
        return b'\xcb' + struct.pack('>d', value)
    if isinstance(value, str):
        return b'\xd9' + bytes([len(value)]) + value.encode()
    if isinstance(value, bytes):
        return b'\xc4' + bytes([len(value)]) + value
    if isinstance(value, list):
        return bytes([0x90 | len(value)]) + b''.join(map(packed, value))
    if isinstance(value, tuple):        # (type, content) of an ext
        content = packed(value[1])
        return b'\xc7' + bytes([len(content), value[0]]) + content
    return bytes([0x80 | len(value)]) + b''.join(packed(k) + packed(v) for k, v in value.items())


def array(shape, dtype, data, code=1):
    return (code, [shape, dtype, data])


LEGACY = {'w': array([2, 3], 'float32', floats(6)), 'b': array([], 'int32', b'\7\0\0\0', 3), 'c': (2, [1.5, -2.0]), 'i': -7, 'f': 0.25,
          's': 'text', 'y': True, 'n': None, 'l': [1, {'in': 3}], 't': (4, [5, 'six']), 'e': {},
          'k': {'__msgpack_chunked_array__': True, 'shape': {'0': 4}, 'chunks': {'0': array([2], 'int16', b'\1\0\2\0'),
                                                                                 '1': array([2], 'int16', b'\3\0\4\0')}}}


# ---- the seeds ----

ENTRIES = [entry(['w']), entry(['n'], 'scalar'), entry(['s'], 'string'), entry(['e'], 'Dict', True), entry(['z'], 'None', True),
           entry(['l', 0], 'scalar'), entry(['l', 1])]
SHARDINGS = {'dw==': json.dumps({'sharding_type': 'NamedSharding', 'shape': [2, 1], 'axis_names': ['x', 'y'],
                                 'axis_types': ['AxisType.Auto'] * 2, 'partition_spec': ['x', None],
                                 'device_mesh': {'mesh': [[{'id': 0}], [{'id': 1}]]}})}
RICH = json.dumps({'w': {'category': 'custom', 'clazz': 'ValueMetadataEntry', 'data': {'value_type': 'jax.Array', 'skip_deserialize': False}},
                   'o': {'category': 'namedtuple', 'module': 'm', 'clazz': 'State', 'entries': [
                       {'key': 'a', 'value': {'category': 'custom', 'clazz': 'ValueMetadataEntry',
                                              'data': {'value_type': 'scalar', 'skip_deserialize': False}}}]}})
RULES = {'rules': [{'key': r'x/(\w+)', 'original_key': r'\1', 'value_fn': 'cast(float16)'},
                   {'key': 'both', 'original_key': ['w', 'l/1'], 'value_fn': 'concat(0)'},
                   {'key': 'row{i}', 'original_key': 'w', 'for': {'i': 2}, 'value_fn': ['unstack({i}, 4)', 'pad(4, -1)', 'add(1.5)']}]}

DIRECTORY = [
    doc('_METADATA', tree(*ENTRIES) | {'store_array_data_equal_to_fill_value': False}), doc('w/.zarray', zarray([4, 2], [2, 2])), piece('b', 'w/0.0', floats(4)),
    piece('b', 'w/1.0', floats(4, 4)), doc('n/.zarray', zarray([], [], '<i8')), piece('b', 'n/0', struct.pack('<q', 7)),
    doc('l.0/.zarray', zarray([], [], '|b1')), piece('b', 'l.0/0', b'\1'),
    doc('l.1/.zarray', zarray([3, 2], [2, 2], order='F', fill=2.5)), piece('b', 'l.1/0.0', floats(4)),
    doc('_strings.json', {'s': 'text \u00e9'}),
]


def compressed(kind, **more):
    spec = {'id': kind, **more}
    return [doc(f'{kind}/.zarray', zarray([8, 8], [8, 8], compressor=spec)), encoded(f'{kind}/0.0', spec, floats(64))]


SEEDS = {
    'directory': checkpoint(ITEM, *DIRECTORY),
    'covered': checkpoint(ITEM, *DIRECTORY, piece('T', '.crc32c/0123456789abcdef'), piece('D', '.sha256sums', b'w.bin\0' + floats(8)),
                          piece('D', '', b's.bin\0' + 'text \u00e9'.encode())),
    'codecs': checkpoint(ITEM | SPILL | AGAIN, *compressed('zstd', level=1), *compressed('zlib', level=1), *compressed('gzip', level=1),
                         *compressed('bz2', level=1), *compressed('blosc', cname='lz4', clevel=5, shuffle=1, blocksize=0)),
    'zarr3': checkpoint(ITEM | CAST, doc('_METADATA', tree(entry(['w']), entry(['g']), zarr3=True)),
                        doc('w/zarr.json', zarr3([4, 2], [2, 2], [LITTLE, CRC])), piece('b', 'w/c/0/0', floats(4)), piece('c', ''),
                        piece('b', 'w/c/1/0', floats(4, 4)), piece('c', ''),
                        doc('g/zarr.json', zarr3([2, 4], [2, 4], [{'name': 'transpose', 'configuration': {'order': [1, 0]}}, LITTLE,
                                                                  {'name': 'gzip', 'configuration': {'level': 1}}], 'int32')),
                        encoded('g/c/0/0', {'id': 'gzip', 'level': 1}, bytes(32))),
    'shards': checkpoint(ITEM | PADS | AGAIN, doc('w/zarr.json', zarr3([4, 2], [4, 2], [sharding([2, 2], [LITTLE, CRC])])),
                         piece('b', 'w/c/0/0', floats(4)), piece('c', ''), piece('b', '', floats(4, 4)), piece('c', ''),
                         # Each chunk with its checksum is one range, so the index is by hand.
                         piece('b', '', struct.pack('<4Q', 0, 20, 20, 20)), piece('c', ''),
                         doc('v/zarr.json', zarr3([6], [4], [sharding([2], [LITTLE], 'start')])),
                         piece('b', 'v/c/0', struct.pack('<4Q', 36, 8, 2**64 - 1, 2**64 - 1)), piece('c', ''), piece('b', '', floats(2)),
                         doc('u/zarr.json', zarr3([4], [4], [sharding([4], [sharding([2], [LITTLE])])])),
                         piece('b', 'u/c/0', floats(2)), piece('b', '', floats(2, 2)), piece('i', '', 'cd'), piece('c', ''),
                         piece('b', '', struct.pack('<2Q', 0, 52)), piece('c', '')),
    'database': checkpoint(ITEM, *database(), doc('_METADATA', tree(entry(['w']), entry(['n'], 'scalar'), ocdbt=True))),
    'unmerged': checkpoint(ITEM | ZERO | AGAIN, *database('ocdbt.process_0/'),
                           piece('b', 'ocdbt.process_1/' + FILE, floats(2)),
                           piece('t', '', node(0, inline('x/.zarray', zarray([2], [2])), stored('x/0', 9))),
                           piece('t', 'ocdbt.process_1/manifest.ocdbt', manifest(version(1, 10)))),
    'versions': checkpoint(ITEM, piece('t', FILE, node(0, inline('w/.zarray', zarray([2], [2])), inline('w/0', 'abcdefgh'))),
                           piece('t', '', '\n'.join(['versionnode', 'compression zstd', 'version_tree_arity_log2 1', 'height 0',
                                                     version(1, 0), version(2, 0), ''])),
                           piece('t', '', '\n'.join(['versionnode', 'compression none', 'version_tree_arity_log2 1', 'height 1',
                                                     vnode(2, 0, 1, 2), ''])),
                           piece('t', 'manifest.ocdbt', manifest(vnode(2, 1, 2, 2), version(3, 0), arity=1))),
    'numbered': checkpoint(ITEM, piece('t', FILE, node(0, inline('w/.zarray', zarray([2], [2])), inline('w/0', 'abcdefgh'),
                                                       compression='zstd')),
                           piece('t', 'manifest.ocdbt', manifest(kind=1)),
                           piece('t', 'manifest.0000000000000002', manifest(version(1, 0), version(2, 0)))),
    'step': checkpoint(STEP, *database('state/'), doc('_CHECKPOINT_METADATA', step_meta(state=PYTREE, metrics=JSON)),
                       piece('b', 'commit_success.txt'), doc('metrics/metrics', {'loss': 1.5}), piece('b', 'config/proto.pbtxt', 'a: 1\n'),
                       piece('l', 'state/link', '../../outside'), piece('f', 'state/fifo'), piece('d', 'state/empty')),
    'root': checkpoint(TMP, doc('1/_CHECKPOINT_METADATA', step_meta(default=PYTREE)), doc('1/default/_METADATA', tree(entry(['w']))),
                       doc('1/default/w/.zarray', zarray([2], [2])), piece('b', '1/default/w/0', floats(2)),
                       doc('step_00000002/_METADATA', tree(entry(['w']))), doc('step_00000002/w/.zarray', zarray([2], [1])),
                       piece('l', 'step_00000002/w/0', '../../1/default/w/0'), piece('l', 'step_00000002/w/1', '../../../outside'),
                       piece('d', '3.orbax-checkpoint-tmp-7'), piece('b', '1/_CHECKPOINT_DELETION', '{}'), doc('metadata/x', {})),
    'legacy': checkpoint(ITEM, piece('b', 'checkpoint', packed(LEGACY))),
    'rich': checkpoint(ITEM, doc('_METADATA', tree(entry(['w'], 'jax.Array', write_shape=[2, 2]), entry(['o', 'a'], 'scalar'),
                                                   custom_metadata={'a': 1}, value_metadata_tree=RICH)),
                       doc('w/.zarray', zarray([4, 2], [2, 2], 'bfloat16')), piece('b', 'w/0.0', bytes(8)), piece('b', 'w/1.0', b'\x80\x3f' * 4), doc('_sharding', SHARDINGS),
                       doc('array_metadatas/process_0', {'array_metadatas': [{'array_metadata': {
                           'param_name': 'w', 'write_shape': [2, 2], 'chunk_shape': [2, 2], 'ext_metadata': {'random_key_impl': 'rbg'}}}]}),
                       doc('o.a/.zarray', zarray([], [])), piece('b', 'o.a/0', floats(1))),
    'rules': checkpoint(ITEM, *DIRECTORY, piece('x', '', json.dumps(RULES))),
    'nothing': b'',
}


# ---- of a checkpoint that is there ----

KINDS = {b'\x0c\xdb\x3a\x2a': 'm', b'\x0c\xdb\x20\xde': 'n', b'\x0c\xdb\x12\x34': 'v'}


def records(data):
    """(offset, length, kind) of the records that are not compressed, in order."""
    at = 0
    while at + 18 <= len(data):
        kind, n = KINDS.get(data[at:at + 4]), struct.unpack_from('<Q', data, at + 4)[0]
        if kind and 18 <= n <= len(data) - at and data[at + 12:at + 14] == b'\0\0':
            yield at, n, kind
            at += n
        else:
            at += 1


def pieces_of(name, data):
    at, first = 0, name
    for start, n, kind in [*records(data), (len(data), 0, '')]:
        if start > at or (not data and first):
            yield piece('b', first, data[at:start])
            first = ''
        if kind:
            yield piece(kind, first, data[start + 14:start + n - 4])
            first = ''
        at = start + n


def main():
    top = pathlib.Path(sys.argv[1])
    files = sorted(p for p in top.rglob('*') if p.is_file() and not p.is_symlink())
    sys.stdout.buffer.write(checkpoint(0, *(p for f in files for p in pieces_of(f.relative_to(top).as_posix(), f.read_bytes()))))


if __name__ == '__main__':
    main()
