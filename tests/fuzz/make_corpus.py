#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seeds of the fuzz targets that are written in Python, below tests/data/fuzz: the keys of SEEDS."""

import hashlib
import io
import json
import pathlib
import struct
import zipfile

import checkpoint_seeds

TOP = pathlib.Path(__file__).resolve().parent.parent / 'data' / 'fuzz'


def npy(header, version=1):
    text = header.encode() + b' ' * (-(len(header) + 11) % 64) + b'\n'
    size = struct.pack('<H', len(text)) if version == 1 else struct.pack('<I', len(text))
    return b'\x93NUMPY' + bytes([version, 0]) + size + text


def head(descr, shape, fortran=False):
    return f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}"


def safetensors(entries):
    text = json.dumps(entries).encode()
    return struct.pack('<Q', len(text)) + text


def safetensors_item(entries, manifest=None, separator='.', index=None, data=b'', **texts):
    """A file whose __metadata__ has a manifest, after the length of an index, a separator and the index."""
    listed = json.dumps({'weight_map': index}).encode() if index is not None else b''
    metadata = texts | ({'pytreefs': json.dumps(manifest)} if manifest is not None else {})
    head = ({'__metadata__': metadata} if metadata else {}) | entries
    return struct.pack('<H', len(listed)) + (separator or '\0').encode() + listed + safetensors(head) + data


def tensors(*names):
    """Numbers of four bytes, one after the other, and their data."""
    return {n: {'dtype': 'F32', 'shape': [], 'data_offsets': [4 * i, 4 * i + 4]} for i, n in enumerate(names)}


def index(entries, form, length):
    n = sum(1 for _ in entries)
    order = '>' if form & 64 else '<'
    body = b''.join(struct.pack(order + '2Q', off, size) for off, size in entries)
    return bytes([form | (n - 1)]) + struct.pack('<H', length) + body


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def lines(*texts):
    return '\n'.join(texts).encode()


def sums(*names):
    return ''.join(f'{hashlib.sha256(n.encode()).hexdigest()}  {n}\n' for n in names).encode()


def summed(value, magic=0x9d63726333326370, crc=None):
    """A value and the trailer that follows it."""
    head = struct.pack('<QI', magic, crc32c(value) if crc is None else crc)
    return value + head + struct.pack('<I', crc32c(head))


def table(entries, n=None, magic=0x316c624163726370):
    """A table of checksums, of (hash, crc)."""
    text = struct.pack('<QQ', magic, len(entries) if n is None else n)
    text += b''.join(struct.pack('<QI', *e) for e in entries)
    return text + struct.pack('<I', crc32c(text))


def archive(members, method=zipfile.ZIP_STORED, comment=b''):
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w') as z:
        for name, data in members.items():
            z.writestr(zipfile.ZipInfo(name), data, method)
        z.comment = comment
    return out.getvalue()


def zip64_end(data, n):
    """The archive of n members with the records that count beyond 32 bits."""
    end = data[-22:]
    size, at = struct.unpack('<2I', end[12:20])
    big = struct.pack('<IQ2H2I4Q', 0x06064b50, 44, 45, 45, 0, 0, n, n, size, at)
    where = struct.pack('<IIQI', 0x07064b50, 0, at + size, 1)
    return data[:-22] + big + where + end[:8] + b'\xff' * 12 + end[20:]


def text(s):
    """A text of a share: its length and one, or 0 for none."""
    return struct.pack('<I', 0) if s is None else struct.pack('<I', len(s) + 1) + s.encode()


def desc(number, dtype=0, shape=(), impl=None, value=None, flags=0):
    """A leaf of the type with that number, by its description."""
    rank = len(shape)
    return (struct.pack(f'<2B2I{rank}Q', number, 1, dtype, rank, *shape) + text(None) + text(impl) + text(value) +
            struct.pack('<B', flags))


def boxes(shape, parts):
    """An array leaf in boxes (start, extent)."""
    rank = len(shape)
    out = desc(0, 3, shape, 'impl', flags=1) + struct.pack('<I', len(parts))
    for start, extent in parts:
        out += struct.pack(f'<{2 * rank}QB3I{rank}Q', *start, *extent, 1, 2, 1, 3, *extent)
    return out


def node(kind, key, leaf, children, fields=None):
    """Of a tree; with fields a dict that is a namedtuple."""
    out = struct.pack('<2B', 2 if fields else 0, kind) + text(key)
    if fields:
        out += text('m.x') + text('State') + struct.pack('<I', len(fields)) + b''.join(map(text, fields))
    return out + struct.pack('<2I', leaf, children)


def share(leaves, nodes, files=()):
    item = text('default') + text('handler') + struct.pack('<2BI', 0, 1 | 8, len(files))
    item += b''.join(struct.pack('<B', name.endswith('/')) + text(name.rstrip('/')) for name in files) + text(None)
    item += struct.pack('<I', len(leaves)) + b''.join(leaves) + struct.pack('<I', len(nodes)) + b''.join(nodes)
    return text('101') + text('{}') + struct.pack('<I', 1) + item


NONE = (1 << 64) - 1
def page(*parts):
    return ('<?xml version="1.0"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">' + ''.join(parts)
            + '</ListBucketResult>').encode()


def entry(key, size=1, more=''):
    return f'<Contents><Key>{key}</Key><Size>{size}</Size>{more}</Contents>'


SEEDS = {
    'checkpoint': checkpoint_seeds.SEEDS,
    'aws_profile': {
        'credentials': lines('[default]', 'aws_access_key_id = A', 'aws_secret_access_key=b/+=', '', '[other]', 'region = x'),
        'config': lines('# of a tool', '[profile "default"]', '[default]\r', 'region = eu-west-1', 's3 =', '  endpoint_url = no',
                        'endpoint_url = https://host', 'sso_session = s'),
        'identity': lines('[profile x]', '[default]', 'role_arn=arn:aws:iam::1:role/r', 'web_identity_token_file = /a b',
                          'aws_session_token = t', 'aws_session_token ='),
        'control': lines('[default]', 'aws_session_token = a\x01b'),
    },
    'gcs_page': {
        'page': b'{"kind": "storage#objects", "nextPageToken": "Cg9h+/=", "prefixes": ["a/c/"], "items": [{"name": "a/b", "size": "7", '
                b'"generation": "1360887697105000", "updated": "2024-05-06T07:08:09.123Z", "metadata": {"k": [1, null]}}]}',
        'escaped': b'{"items": [{"name": "\\u00e9\\ud83d\\ude00\\n", "size": 7}]}',
        'empty': b'{}',
        'object': b'{"name": "a/b", "size": "7", "generation": "12", "updated": "2024-05-06T07:08:09Z"}',
        'error': b'{"error": {"code": 403, "message": "no", "errors": [{"domain": "global", "reason": "forbidden"}]}}',
        'oauth': b'{"error": "invalid_grant", "error_description": "Invalid JWT Signature."}',
        'deep': b'{"items": ' + b'[' * 1100,
    },
    'google_account': {
        'service': b'{"type": "service_account", "client_email": "a@b", "private_key": "-----BEGIN\\n", "private_key_id": "7"}',
        'user': b'{"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "1//r", "token_uri": "https://h"}',
        'other': b'{"type": "external_account", "audience": "//iam"}',
        'token': b'{"access_token": "ya29.a", "expires_in": 3599, "token_type": "Bearer", "scope": "s"}',
        'token_zero': b'{"access_token": "a b", "expires_in": -1}',
    },
    's3_page': {
        'page': page('<IsTruncated>true</IsTruncated><NextContinuationToken>a/+=</NextContinuationToken>',
                     entry('a/b', 7, '<ETag>&quot;x&quot;</ETag><LastModified>2024-05-06T07:08:09.000Z</LastModified>'),
                     '<CommonPrefixes><Prefix>a/c/</Prefix></CommonPrefixes>'),
        'escaped': page(entry('a%01%2B+'), '<EncodingType>url</EncodingType>'),
        'bad_escape': page(entry('a%0'), '<EncodingType>url</EncodingType>'),
        'doctype': b'<!DOCTYPE a [<!ENTITY b "c">]><ListBucketResult>&b;</ListBucketResult>',
        'deep': b'<a>' * 40,
        'error': b'<Error><Code>PermanentRedirect</Code><Region>eu-west-1</Region><ServerTime>2026-01-02T03:04:05Z</ServerTime></Error>',
    },
    'npy': {
        'float32': npy(head('<f4', '(3, 4)')),
        'big_endian': npy(head('>i8', '(7,)')),
        'fortran': npy(head('<c16', '(2, 3, 5)', True)),
        'scalar': npy(head('|b1', '()')),
        'void': npy(head('|V1', '(0, 9)')),
        'version_2': npy(head('<u2', '(1,)'), 2),
        'version_3': npy(head('<f2', '(1000000,)'), 3),
    },
    'safetensors': {
        'empty': safetensors({}),
        'packed': safetensors({'w': {'dtype': 'F4', 'shape': [2, 4], 'data_offsets': [0, 4]}, 'v': {'dtype': 'F6_E2M3', 'shape': [4], 'data_offsets': [4, 7]}}),
        'two': safetensors({'a': {'dtype': 'F32', 'shape': [2, 3], 'data_offsets': [0, 24]},
                            'b': {'dtype': 'BF16', 'shape': [], 'data_offsets': [24, 26]}}),
        'metadata': safetensors({'__metadata__': {'format': 'pt'},
                                 'w': {'dtype': 'U8', 'shape': [0, 5], 'data_offsets': [0, 0]}}),
    },
    'item_safetensors': {
        'names': safetensors_item(tensors('a.b', 'a', 'c.d.e'), data=bytes(12)),
        'slashes': safetensors_item(tensors('a/b', 'c.d'), separator='/', data=bytes(8)),
        'unsplit': safetensors_item(tensors('a.b'), separator=None, data=bytes(4)),
        'bare': safetensors_item(tensors(''), data=bytes(4)),
        'manifest': safetensors_item(
            tensors('l.0', 'l.10', 'n', 'x.y'),
            {'kinds': {'l': 'list', 'l/1': 'tuple', 'l/2': 'namedtuple', 'e': 'dict'},
             'leaves': {'n': 'n.json', 'x.y': 'x.y.npy', 'l.10': 'l/3.npy', 'none': 'none.null', 't': 't.txt'},
             'marks': {'n.json': {'typestr': 'jax.Array'}}, 'custom': {'': {'a': 1}}}, data=bytes(16), t='a text'),
        'manifest_bare': safetensors_item(tensors(''), {}, data=bytes(4)),
        'manifest_no_list': safetensors_item(tensors('l.0', 'l.2'), {'kinds': {'l': 'list'}}, data=bytes(8)),
        'manifest_twice': safetensors_item(tensors('a', 'b'), {'leaves': {'a': 'b.npy'}}, data=bytes(8)),
        'manifest_inside': safetensors_item(tensors('a', 'b'), {'leaves': {'a': 'b.npy/c.npy'}, 'kinds': {'b': 'list'}}, data=bytes(8)),
        'manifest_hashed': safetensors_item(tensors('a'), {'leaves': {'a': 'a~0123456789abcdef.npy'},
                                                           'marks': {'a~0123456789abcdef.npy': {'key': ['k']}}}, data=bytes(4)),
        'manifest_names': safetensors_item(tensors('a'), {'leaves': {'a': '../%FF.npy'}}, data=bytes(4)),
        'manifest_escaped': safetensors_item(tensors('a'), {'leaves': {'a': '%FF.npy'}}, data=bytes(4)),
        'manifest_other': safetensors_item(tensors('a'), {'kinds': [], 'leaves': {'a': 1}}, data=bytes(4)),
        'shards': safetensors_item(tensors('a', 'b'), index={'a': 'm.safetensors', 'b': 'm.safetensors'}, data=bytes(8)),
        'shards_elsewhere': safetensors_item(tensors('a'), index={'a': 'x.safetensors'}, data=bytes(4)),
        'cut': safetensors_item(tensors('a'), data=bytes(3)),
        'short': b'\0\0./',
    },
    'contribution': {
        'assignment': struct.pack('<3B2Q', 1, 1, 2, 3, 4),
        'tree': share([boxes((8, 4), [((0, 0), (4, 4)), ((4, 0), (4, 4))]), desc(2, value='a text'), desc(3),
                       desc(1, 7)],
                      [node(1, '', 0, 4), node(6, 'w', 1, 0), node(6, 't', 2, 0), node(6, 'n', 3, 0),
                       node(6, 'i', 4, 0)], ('notes.md', 'assets/void/')),
        'namedtuple': share([desc(2, value='a text'), desc(3)],
                            [node(1, '', 0, 1), node(1, 'opt', 0, 2, ('nu', 'mu')), node(6, 'mu', 1, 0), node(6, 'nu', 2, 0)]),
        'no_items': text('5') + text(None) + struct.pack('<I', 0),
    },
    'tree_manifest': {
        'all': json.dumps({'step': True, 'kinds': {'opt/0': 'tuple', 'e': 'dict'}, 'leaves': {'K': 'opt/0/n.json',
                           'x.y': 'x/y.npy', 'none': 'none.null', 't': 't.txt'}, 'dtypes': {'opt/0/n.json': 'int32'},
                           'texts': {'t': 'text \u00e9'}, 'marks': {'p/q.npy': {'key': [1, 'a'], 'prng_impl': 'rbg'}},
                           'custom': {'': {'a': [1, None, 1.5]}}}).encode(),
        'empty': b'{}',
    },
    'transform': {
        'rename': json.dumps({'rules': [{'key': r'(\w+)_(\d+)', 'original_key': r'l\2/\1'},
                                        {'key': r'x/(?P<n>.*)', 'original_key': r'b/\g<n>'},
                                        {'key': 'z', 'original_key': ['a', 'b/c'], 'value_fn': 'concat(0)'}]}).encode(),
        'target': json.dumps({'default_to_original': False, 'item': 'state', 'target': ['a', 'n', 'k'],
                              'rules': [{'key': 'n', 'use_fallback': 1.5}, {'key': 'k', 'use_fallback': None},
                                        {'key': '.*', 'original_key': 'a', 'value_fn': 'slice(0:2, 3)'}]}).encode(),
        'indexes': json.dumps({'rules': [{'key': 'x{i}/{k}', 'original_key': 'a', 'for': {'i': 2, 'k': 3},
                                          'value_fn': ['unstack({k}, 3)', 'pad(4, -1)', 'add(1.5)']}]}).encode(),
        # More groups for a careless counter than there may be.
        'lookbehind': json.dumps({'rules': [{'key': '(?<=>a)' * 34 + '(x)', 'original_key': r'\1'}]}).encode(),
        'quoted': json.dumps({'rules': [{'key': r'(\Q' + '()' * 31 + r'\E)(x)', 'original_key': r'\1\2'}]}).encode(),
    },
    'zip': {
        'stored': archive({'a.npy': npy(head('<f4', '(1,)')) + b'\0' * 4, 'b/c.npy': b'xyz'}, comment=b'{"step": true}'),
        'packed': archive({'a': b'a' * 300, 'b': bytes(range(40))}, zipfile.ZIP_DEFLATED),
        'empty': archive({}),
        'zip64': zip64_end(archive({'a': b'data'}), 1),
    },
    'digests': {
        'two': sums('params/w.bin', 'in/b.bin'),
        'escaped': b'\\' + sums('a\\nb\\rc\\\\d.bin'),
        'empty': b'',
        'twice': sums('w.bin', 'w.bin'),
        'cut_off': sums('w.bin')[:-1],
        'escape': b'\\' + sums('a\\tb'),
    },
    'namespace': {
        'views': lines('l1/default/p/w.npy', 'l1/default/p/w[0:2,::-1]@float64.npy', 'l1/default/p/w@4x3.bin', 'llatest/default.safetensors',
                       'l1/default/p@bfloat16.safetensors', 'l1/default.json', 'l1.html', 'l1/default/n.npy', 'l1/default/s.bin',
                       'l1/default/_METADATA', 'l.pytreefs/stats', 'l.pytreefs/stored/1/default/manifest.ocdbt', 'l1/default/../../1'),
        'draft': lines('m2.tmp', 'm2.tmp/default', 'n2.tmp/default/w.npy', 'w2.tmp/default/n.json\t7', 'x2.tmp/default\tkind=list',
                       'x2.tmp/default/w.npy\tsave.compression=blosc', 'l2.tmp/default/_METADATA', 'r2.tmp\t2', 'l2/default/w.npy', 'd2'),
        'parts': lines('m3.tmp', 'm3.tmp/d', 'n3.tmp/d/w[0:3,0:4]@6x4.npy', 'n3.tmp/d/w[3:6,0:4]@6x4.npy', 'r3.tmp\t3', 'l3/d/w[5].npy'),
        'nothing': b'',
        'refused': lines('m4', 'n4.tmp/w.npy', 'm4.tmp', 'm4.tmp/a%2Fb', 'w4.tmp/a%2Fb/x.npy\tno array', 'r4.tmp\t4', 'r4.tmp/a%2Fb\t4.tmp/c',
                         'u4.tmp/c/x.npy', 'd4.tmp/c', 'd4.tmp', 'u1/default/p/w.npy', 'r1/default/s.txt\t1/default/t.txt'),
    },
    'options': {
        'saving': lines('zarr=3', 'compression=blosc:lz4:5:bit', 'crc32c', 'shard_axes=0:1', 'manifest=on', 'dtype=bfloat16', 'default/params/w'),
        'rules': lines('rule=**/w:dtype=float16', 'rule=state:zarr=3', 'rule=params/*:chunk_byte_size=64K', 'aggregate=*bias', 'priority=opt/**'),
        'sizes': lines('cache=auto', 'read_budget=1G', 'write_budget=64M', 'threads=3', 'mode=750', 'max_read=1M', 'poll=50', 'cach=1'),
        'words': lines('missing=zero', 'shape=step', 'atomicity=commit_file', 'direct_io=off', 'sandbox=require', 'busy_poll=awake', 'pathways=1'),
        'job': lines('active=0-3:6', 'mesh=2x4', 'broadcast_memory_scaling=0.5', 'primary=1', 'io=fault(read:eio:1%):sync', 'trace=fs:io'),
    },
    'kv_sum': {
        'right': summed(b'elements of a chunk'),
        'empty_value': summed(b''),
        'wrong': summed(b'elements of a chunk', crc=7),
        'damaged_magic': summed(b'elements of a chunk')[:-16] + summed(b'', 0x9d63726333326371),
        'damaged_crc': summed(b'elements')[:-5] + b'?' + summed(b'elements')[-4:],
        'foreign': b'elements of a chunk, and whatever follows it',
        'short': b'\x70c23crc',
    },
    'kv_table': {
        'two': table([(5, 7), (9, 7)]),
        'none': table([]),
        'many': table([(i << 40, i) for i in range(100)]),
        'damaged': table([(5, 7)])[:-1] + b'?',
        'out_of_order': table([(9, 7), (5, 7)]),
        'twice': table([(5, 7), (5, 8)]),
        'cut_off': table([(5, 7)], n=2),
        'huge': table([(5, 7)], n=2**63),
        'other': table([(5, 7)], magic=1),
        'short': b'pcrcAbl1',
    },
    'shard': {
        'little': index([(0, 5), (5, 9), (NONE, NONE), (14, 1)], 0, 100),
        'big': index([(0, 5), (NONE, NONE)], 64, 60),
    },
}


def main():
    for target, seeds in SEEDS.items():
        (TOP / target).mkdir(parents=True, exist_ok=True)
        for name, data in seeds.items():
            (TOP / target / name).write_bytes(data)


if __name__ == '__main__':
    main()
