# SPDX-License-Identifier: Apache-2.0
"""Steps that are small on disk and large in memory: sparse files, compressed records, long texts.

Each kind turns a copy of a healthy step, as `pytreefs save` makes it, into one that would take a reader
hundreds of megabytes. Long texts that are not sparse are made once and linked into every step.
"""

import base64
import functools
import json
import os
import shutil
import struct

import google_crc32c

MIB = 1 << 20
MANIFEST, NODE, VERSIONS = 0x0cdb3a2a, 0x0cdb20de, 0x0cdb1234
DATA = 'd/' + '0b' * 16


# ---- records of a database ----

def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n])


def zeros_frame(n, head=b''):
    """One zstd frame of head and n zeros: run-length blocks of 128 KiB, four bytes each."""
    out = bytearray(struct.pack('<IBB', 0xfd2fb528, 0, (17 - 10) << 3))     # a window of 128 KiB, no size
    if head:
        out += struct.pack('<I', len(head) << 3)[:3] + head
    while n > 0:
        size = min(n, 128 << 10)
        n -= size
        out += struct.pack('<I', size << 3 | 1 << 1 | (n == 0))[:3] + b'\0'
    return bytes(out)


def record(magic, body, compressed):
    out = struct.pack('>I', magic) + struct.pack('<Q', 12 + 2 + len(body) + 4) + bytes([0, compressed]) + body
    return out + struct.pack('<I', google_crc32c.value(out))


def manifest_of(root_bytes, older=0):
    """A manifest whose only version has its root at the start of DATA; after that the node of older versions."""
    path = DATA.encode()
    body = bytes(16) + b'\0' + varint(100) + varint(100_000_000) + b'\4' + b'\0'
    body += varint(1) + varint(len(path)) + varint(0) + path
    body += varint(1) + varint(17 if older else 1) + b'\0' + varint(0) + varint(0) + varint(root_bytes)
    body += varint(1) + varint(root_bytes) + varint(0) + struct.pack('<Q', 1700000000)
    if older:
        # The generations 1 to 16, as a node of height 1 that ends with the last.
        body += varint(1) + varint(16) + varint(0) + varint(root_bytes) + varint(older) + varint(16)
        body += struct.pack('<Q', 1600000000) + b'\1'
    return record(MANIFEST, body if older else body + varint(0), 0)


def one_key(key, value):
    """A leaf with an inline value."""
    body = b'\0' + varint(0) + varint(1) + varint(len(key)) + key + varint(len(value)) + b'\0' + value
    return record(NODE, body, 0)


def long_keys(n):
    """A leaf of n keys of 65,535 bytes, of which each has two of its own."""
    keys = [struct.pack('>H', i) for i in range(n)]
    shared = varint(65533)
    body = b'\0' + varint(0) + varint(n) + shared * (n - 1) + varint(65535) + varint(2) * (n - 1)
    body += b'k' * 65533 + b''.join(keys) + varint(0) * n + b'\0' * n
    return record(NODE, body, 0)


def put_root(item, node, older=b''):
    for part in item.glob('ocdbt.process_*'):
        shutil.rmtree(part)
    (item / DATA).parent.mkdir(exist_ok=True)
    (item / DATA).write_bytes(node + older)
    (item / 'manifest.ocdbt').write_bytes(manifest_of(len(node), len(older)))


# ---- the kinds: each gets the step and its item ----

def sparse(path, size, head=b''):
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        path.unlink()
    with path.open('wb') as f:
        f.write(head)
        f.truncate(size)


def text(path, key, make):
    """Content that is not sparse: made once for all steps beside them, and linked."""
    first = path.parent
    while not (first / 'texts').is_dir():
        first = first.parent
    first = first / 'texts' / key
    if not first.exists():
        with first.open('wb') as f:
            for piece in make():
                f.write(piece)
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        path.unlink()
    os.link(first, path)


def node_gib(step, item):
    put_root(item, record(NODE, zeros_frame(1024 * MIB), 1))


def node_100(step, item):
    """Within the limit: it is decoded to be found malformed."""
    put_root(item, record(NODE, zeros_frame(100 * MIB), 1))


def node_keys(step, item):
    put_root(item, long_keys(500))


def node_sparse(step, item):
    """Not compressed, and a hole."""
    put_root(item, b'')
    sparse(item / DATA, 120 * MIB, struct.pack('>IQ', NODE, 0))
    (item / 'manifest.ocdbt').write_bytes(manifest_of(120 * MIB))


ARRAY_OF_NOTHING = (b'{"zarr_format": 2, "shape": [0], "chunks": [1], "dtype": "<f4", "compressor": null, '
                    b'"fill_value": null, "order": "C", "filters": null}')


def older_versions(mib, step, item):
    put_root(item, one_key(b'w/.zarray', ARRAY_OF_NOTHING), record(VERSIONS, zeros_frame(mib * MIB), 1))


def older_versions_sparse(step, item):
    """Not compressed, and a hole."""
    older_versions(1, step, item)
    root = one_key(b'w/.zarray', ARRAY_OF_NOTHING)
    sparse(item / DATA, len(root) + 200 * MIB, root + struct.pack('>IQ', VERSIONS, 0))
    (item / 'manifest.ocdbt').write_bytes(manifest_of(len(root), 200 * MIB))


def manifest_decoded(step, item):
    (item / 'manifest.ocdbt').write_bytes(record(MANIFEST, zeros_frame(255 * MIB), 1))


def manifest_sparse(step, item):
    sparse(item / 'manifest.ocdbt', 255 * MIB)


def aggregate(size, step, item):
    """A legacy file of one text."""
    shutil.rmtree(item)
    sparse(item / 'checkpoint', size + 8, b'\x81\xa1w\xdb' + struct.pack('>I', size))


def aggregate_key(size, step, item):
    """A legacy file whose only key is a hole."""
    shutil.rmtree(item)
    sparse(item / 'checkpoint', size + 7, b'\x81\xdb' + struct.pack('>I', size))


def aggregate_many(n, step, item):
    """A legacy file of a list of zeros, each a byte."""
    shutil.rmtree(item)
    sparse(item / 'checkpoint', n + 8, b'\x81\xa1w\xdd' + struct.pack('>I', n))


def metadata_sparse(step, item):
    sparse(item / '_METADATA', 1024 * MIB, b'{"tree_metadata": {')


def step_metadata_sparse(step, item):
    sparse(step / '_CHECKPOINT_METADATA', 63 * MIB)


def strings_sparse(step, item):
    with_a_string(item)
    sparse(item / '_strings.json', 900 * MIB, b'{"s": "')


def strings_text(mib, step, item, begin=b'', what=b'x'):
    with_a_string(item)
    text(item / '_strings.json', f'string-{mib}-{len(begin)}',
         lambda: [b'{"s": "' + begin, *[what * (MIB // len(what))] * mib, b'"}'])


def strings_name(mib, step, item):
    with_a_string(item)
    text(item / '_strings.json', f'strings-name-{mib}', lambda: [b'{"', *[b'x' * MIB] * mib, b'": "x"}'])


def strings_number(mib, step, item):
    with_a_string(item)
    text(item / '_strings.json', f'strings-number-{mib}', lambda: [b'{"s": 1', *[b'1' * MIB] * mib, b'}'])


def with_a_string(item):
    document = json.loads((item / '_METADATA').read_text())
    document['tree_metadata']["('s',)"] = {'key_metadata': [{'key': 's', 'key_type': 2}],
                                           'value_metadata': {'value_type': 'string', 'skip_deserialize': False}}
    (item / '_METADATA').write_text(json.dumps(document))


def sharding_sparse(step, item):
    sparse(item / '_sharding', 63 * MIB)


def zarray_sparse(step, item):
    sparse(item / 'w/.zarray', 1024 * MIB)


def json_item(step, item):
    sparse(step / 'json/metadata', 1024 * MIB)


def json_text(mib, step, item):
    text(step / 'json/metadata', f'json-text-{mib}', lambda: [b'{"s": "', *[b'x' * MIB] * mib, b'"}'])


def proto_text(mib, step, item):
    text(step / 'proto/proto.pbtxt', f'proto-text-{mib}', lambda: [b's: "', *[b'x' * MIB] * mib, b'"\n'])


def entry(keys, value='jax.Array'):
    """A leaf as `_METADATA` has it, but for its name."""
    keys = ', '.join(f'{{"key": "{k}", "key_type": 2}}' for k in keys)
    return f'{{"key_metadata": [{keys}], "value_metadata": {{"value_type": "{value}", "skip_deserialize": false}}}}'


def metadata(key, make, step, item):
    """make(): what follows in `_METADATA`'s tree, and in the document."""
    first = f'"w": {entry(["w"])}'
    document = json.loads((item / '_METADATA').read_text())
    del document['tree_metadata']
    flags = json.dumps(document)[1:-1]
    text(item / '_METADATA', key, lambda: [f'{{{flags}, "tree_metadata": {{{first}'.encode(), *make(), b'}'])


def one_text(mib):
    return [f', "t": {entry("t", "x|")}'.encode().replace(b'|', b'y' * MIB * mib), b'}']


def rich_text(mib):
    return [b'}, "value_metadata_tree": "', b'y' * MIB * mib, b'"']


def custom_text(mib):
    return [b'}, "custom_metadata": {"a": "', b'y' * MIB * mib, b'"}']


def one_key_of(mib):
    """A leaf whose key is that long."""
    return [b', "t": {"key_metadata": [{"key": "', *[b'y' * MIB] * mib,
            b'", "key_type": 2}], "value_metadata": {"value_type": "None", "skip_deserialize": false}}}']


def one_key_path(mib, what=b'y'):
    """A leaf whose name, which nobody needs to read, is that long."""
    return [b', "(\'', *[what * (MIB // len(what))] * mib, f'\',)": {entry("t", "None")}}}'.encode()]


def many_leaves(n):
    return [f', "{i}": {entry([f"a{i // 1000}", i % 1000])}'.encode() for i in range(n)] + [b'}']


def long_names(n):
    return [f', "{i}": {entry(["k" * MIB + str(i)])}'.encode() for i in range(n)] + [b'}']


def sharding_text(mib, step, item):
    name = base64.urlsafe_b64encode(b'w').decode()
    text(item / '_sharding', f'sharding-{mib}', lambda: [f'{{"{name}": "'.encode(), b'x' * MIB * mib, b'"}'])


def sharding_names(mib, step, item):
    text(item / '_sharding', f'sharding-names-{mib}', lambda: [b'{"', b'eHh4' * (MIB // 4) * mib, b'": "x"}'])


def sharding_many(n, step, item):
    names = (base64.urlsafe_b64encode(b'%d' % i).decode() for i in range(n))
    text(item / '_sharding', f'sharding-many-{n}',
         lambda: [b'{', ', '.join(f'"{k}": "x"' for k in names).encode(), b'}'])


def array_metadatas(n, step, item):
    one = '{"array_metadata": {"param_name": "|", "write_shape": [], "chunk_shape": [], "ext_metadata": null}}'
    text(item / 'array_metadatas/process_0', f'array-metadatas-{n}',
         lambda: [b'{"array_metadatas": [', ', '.join(one.replace('|', str(i)) for i in range(n)).encode(), b']}'])


def array_metadatas_text(mib, step, item):
    one = b'{"array_metadata": {"param_name": "w", "write_shape": [], "chunk_shape": [], "ext_metadata": "'
    text(item / 'array_metadatas/process_0', f'array-metadatas-{mib}',
         lambda: [b'{"array_metadatas": [', one, b'x' * MIB * mib, b'"}}]}'])


def zarray(key, value, step, item):
    """Its attribute `more` is that text, which nobody needs to read."""
    shutil.rmtree(item / '.crc32c')     # of the healthy step's values: a reader would get no further
    old = json.dumps(json.loads((item / 'w/.zarray').read_text()))
    text(item / 'w/.zarray', key, lambda: [old[:-1].encode(), b', "more": ', value(), b'}'])


def digests(n, step, item):
    """`.sha256sums` of that many leaves."""
    text(item / '.sha256sums', f'digests-{n}', lambda: [b'%064x  a%d\n' % (i, i) for i in range(n)])


def string_leaf(step, item):
    """As releases 0.3.x stored strings: a hole in it."""
    with_a_string(item)
    sparse(item / 's/_strings.json', 380 * MIB, b'{"": "')


KINDS = {
    'node of 1 GiB': node_gib,
    'node of 100 MiB': node_100,
    'node of long keys': node_keys,
    'node that is a hole': node_sparse,
    'manifest of 255 MiB': manifest_decoded,
    'manifest that is a hole': manifest_sparse,
    'aggregate file of 1 GB': functools.partial(aggregate, 1_000_000_000),
    'aggregate file of 300 MB': functools.partial(aggregate, 300_000_000),
    'aggregate file of 20 MB': functools.partial(aggregate, 20_000_000),
    '_METADATA that is a hole': metadata_sparse,
    '_CHECKPOINT_METADATA that is a hole': step_metadata_sparse,
    '_strings.json that is a hole': strings_sparse,
    '_strings.json of 20 MB': functools.partial(strings_text, 20),
    '_sharding that is a hole': sharding_sparse,
    '.zarray that is a hole': zarray_sparse,
    'JSON item that is a hole': json_item,
    '_METADATA of one text': functools.partial(metadata, 'one-text', lambda: one_text(40)),
    '_METADATA of one rich text': functools.partial(metadata, 'rich-text', lambda: rich_text(40)),
    '_METADATA of one custom text': functools.partial(metadata, 'custom-text', lambda: custom_text(40)),
    '_METADATA of 200,000 leaves': functools.partial(metadata, 'many-leaves', lambda: many_leaves(200_000)),
    '_METADATA of names of 1 MiB': functools.partial(metadata, 'long-names', lambda: long_names(30)),
    '_sharding of one text': functools.partial(sharding_text, 60),
    '_sharding of one name': functools.partial(sharding_names, 60),
    '_sharding of many leaves': functools.partial(sharding_many, 300_000),
    'array_metadatas of many leaves': functools.partial(array_metadatas, 300_000),
    'array_metadatas of one text': functools.partial(array_metadatas_text, 60),
    '.zarray of a long list': functools.partial(zarray, 'list', lambda: b'[' + b'0,' * 900_000 + b'0]'),
    '.zarray of deep lists': functools.partial(
        zarray, 'deep', lambda: b'[' + (b'[' * 200 + b']' * 200 + b',') * 4000 + b'0]'),
    '.zarray of one text': functools.partial(zarray, 'text', lambda: b'"' + b'x' * 15 * MIB + b'"'),
    '.sha256sums of many leaves': functools.partial(digests, 200_000),
    'string leaf that is a hole': string_leaf,
    'older versions of 200 MiB': functools.partial(older_versions, 200),
    'older versions of 15 MiB': functools.partial(older_versions, 15),
    'older versions that are a hole': older_versions_sparse,
    'aggregate file of one key': functools.partial(aggregate_key, 200_000_000),
    'aggregate file of 200,000,000 numbers': functools.partial(aggregate_many, 200_000_000),
    '_strings.json of one text of 200 MiB': functools.partial(strings_text, 200),
    '_strings.json of one escaped text': functools.partial(strings_text, 60, begin=b'\\n'),
    '_strings.json of escapes': functools.partial(strings_text, 60, begin=b'\\n\\n', what=b'\\n'),
    '_strings.json of one name': functools.partial(strings_name, 60),
    '_strings.json of one number': functools.partial(strings_number, 60),
    '_METADATA of one text of 200 MiB': functools.partial(metadata, 'one-text-200', lambda: one_text(200)),
    '_METADATA of one key of 200 MiB': functools.partial(metadata, 'one-key', lambda: one_key_of(200)),
    '_METADATA of one key path of 200 MiB': functools.partial(metadata, 'key-path', lambda: one_key_path(200)),
    '_METADATA of one escaped key path': functools.partial(
        metadata, 'escaped-key-path', lambda: one_key_path(60, b'\\n')),
    'JSON item of one text': functools.partial(json_text, 60),
    'pbtxt item of one text': functools.partial(proto_text, 60),
}
# Those that fit the default budgets, or are long to read: all of that takes long there, and shows nothing more.
LONG = ('aggregate file of one key', 'aggregate file of 200,000,000 numbers', '_strings.json of one text of 200 MiB',
        '_strings.json of one escaped text', '_strings.json of escapes', '_strings.json of one name',
        '_strings.json of one number', '_METADATA of one text of 200 MiB', '_METADATA of one key of 200 MiB',
        '_METADATA of one key path of 200 MiB', '_METADATA of one escaped key path', 'JSON item of one text',
        'pbtxt item of one text',
        'aggregate file of 20 MB', '_strings.json of 20 MB', '_METADATA of one text', '_METADATA of one rich text',
        '_METADATA of one custom text', '_METADATA of 200,000 leaves', '_METADATA of names of 1 MiB',
        '_sharding of one text', '_sharding of one name', '_sharding of many leaves', 'array_metadatas of many leaves',
        '.zarray of one text', '.zarray of a long list', '.zarray of deep lists')
# Those whose arrays are directories.
BY_DIRECTORY = ('.zarray', 'string leaf')


def make_root(root, kind, healthy, count=12):
    """Steps 1 to count of that kind, and the healthy step 100. healthy(kind): the directory of one."""
    (root.parent / 'texts').mkdir(exist_ok=True)
    for i in range(1, count + 1):
        shutil.copytree(healthy(kind), root / str(i))
        KINDS[kind](root / str(i), root / str(i) / 'default')
    shutil.copytree(healthy(''), root / '100')
    return root
