# SPDX-License-Identifier: Apache-2.0
"""Cases: arrays made by hand, with every codec, order, shard and fill value, without `_METADATA`."""

import itertools
import pathlib

from lib import jaxenv  # noqa: F401  TensorStore wants its environment too

import numpy as np
import tensorstore as ts
import zarr
import zarr.codecs as zc

from lib import expect
from lib.case import Case, case
from lib.gen_matrix import DTYPES, bits, dtype_of, values

BLOSC_V2 = ('blosclz', 'lz4', 'lz4hc', 'snappy', 'zlib', 'zstd')


class Maker:
    """Arrays side by side: one directory per leaf, or one OCDBT database of all."""

    def __init__(self, item, ocdbt=False):
        self.item = pathlib.Path(item)
        self.ocdbt = ocdbt
        self.arrays = {}
        self.item.mkdir(parents=True, exist_ok=True)

    def kvstore(self, name):
        base = {'driver': 'file', 'path': f'{self.item.resolve()}/'}
        if self.ocdbt:
            return {'driver': 'ocdbt', 'base': base, 'path': name + '/'}
        return dict(base, path=f'{self.item.resolve()}/{name}/')

    def open(self, name, driver, metadata, store_fill=True, **schema):
        return ts.open({'driver': driver, 'kvstore': self.kvstore(name), 'metadata': metadata,
                        'store_data_equal_to_fill_value': store_fill, **schema}, create=True).result()

    def write(self, name, store, a, box=Ellipsis):
        """Write the box of a; what the array then holds is read back by the caller's own arithmetic."""
        if a.size:
            store[box].write(a[box]).result()
        self.arrays[name] = a

    def case(self):
        return Case(trees={'': expect.flatten(self.arrays).without_structure()})


def v2_metadata(a, chunks, compressor, order='C', fill=None, separator='.', dtype=None):
    name = a.dtype.name
    text = dtype or (a.dtype.str if a.dtype.kind in 'biufc' and name not in ('float8_e5m2',) else name)
    return {'zarr_format': 2, 'shape': list(a.shape), 'chunks': list(chunks), 'dtype': text,
            'compressor': compressor, 'filters': None, 'order': order, 'fill_value': fill,
            'dimension_separator': separator}


def v2_arrays(m):
    w = values((13, 9), np.float32, 1)
    compressors = {'none': None, 'zlib': {'id': 'zlib', 'level': 6}, 'gzip': {'id': 'gzip', 'level': 1},
                   'bz2': {'id': 'bz2', 'level': 9}}
    for level in (-5, 1, 3, 19):
        compressors[f'zstd{level}'] = {'id': 'zstd', 'level': level}
    for cname, shuffle in itertools.product(BLOSC_V2, (-1, 0, 1, 2)):
        compressors[f'blosc_{cname}_{shuffle}'] = {'id': 'blosc', 'cname': cname, 'clevel': 5,
                                                   'shuffle': shuffle, 'blocksize': 0}
    for name, c in compressors.items():
        m.write(f'codec_{name}', m.open(f'codec_{name}', 'zarr', v2_metadata(w, (5, 4), c)), w)
    big = np.arange(30000, dtype=np.int64).reshape(100, 300)
    for blocksize in (256, 4096):
        c = {'id': 'blosc', 'cname': 'lz4', 'clevel': 9, 'shuffle': 1, 'blocksize': blocksize}
        m.write(f'blosc_blocks_{blocksize}', m.open(f'blosc_blocks_{blocksize}', 'zarr',
                                                    v2_metadata(big, (64, 128), c)), big)
    zstd = {'id': 'zstd', 'level': 1}
    for rank, order, separator in itertools.product(range(5), 'CF', './'):
        a = values((6, 5, 4, 3)[:rank], np.float32, rank)
        if rank < 2 and order == 'F':
            continue
        name = f'rank{rank}_{order}_{"dot" if separator == "." else "slash"}'
        m.write(name, m.open(name, 'zarr', v2_metadata(a, (4, 2, 3, 2)[:rank], zstd, order,
                                                       separator=separator)), a)
    for t in ('>i2', '>u4', '>i8', '>f4', '>f8', '>c8', '>c16', '>f2'):
        a = bits((7, 3), np.dtype(t[1:]), 3)
        for codec, c in (('raw', None), ('zstd', zstd)):
            name = f'big_{t[1:]}_{codec}'
            m.write(name, m.open(name, 'zarr', v2_metadata(a, (4, 2), c, dtype=t)), a)
    for t in DTYPES:
        a = bits((5, 6), dtype_of(t), 4)
        m.write(f'dtype_{t}', m.open(f'dtype_{t}', 'zarr', v2_metadata(a, (2, 4), zstd)), a)
    for shape in ((0,), (3, 0, 2), (0, 0)):
        a = np.zeros(shape, np.float32)
        name = 'zero_' + 'x'.join(map(str, shape))
        m.write(name, m.open(name, 'zarr', v2_metadata(a, [2] * len(shape), zstd)), a)
    big_chunk = values((3, 3), np.float64, 5)
    m.write('chunk_beyond', m.open('chunk_beyond', 'zarr', v2_metadata(big_chunk, (10, 7), zstd)), big_chunk)
    v2_missing(m)


def v2_missing(m):
    """Chunks that are not there read as the fill value."""
    fills = {'null': (None, 0.0), 'zero': (0.0, 0.0), 'seven': (7.5, 7.5), 'nan': ('NaN', np.nan),
             'inf': ('-Infinity', -np.inf), 'minus_zero': (-0.0, -0.0)}
    for name, (fill, value) in fills.items():
        a = np.full((12, 10), value, np.float32)
        a[4:8] = values((4, 10), np.float32, 6)
        store = m.open(f'missing_{name}', 'zarr', v2_metadata(a, (4, 5), {'id': 'zstd', 'level': 1}, fill=fill))
        m.write(f'missing_{name}', store, a, np.s_[4:8])
    nothing = np.zeros((8, 8), np.int32)
    m.open('missing_all', 'zarr', v2_metadata(nothing, (4, 4), None, fill=None))
    m.arrays['missing_all'] = nothing
    counts = np.full((6,), -3, np.int16)
    m.open('missing_int', 'zarr', v2_metadata(counts, (4,), None, fill=-3))
    m.arrays['missing_int'] = counts
    yes = np.ones((9,), bool)
    m.open('missing_bool', 'zarr', v2_metadata(yes, (4,), None, fill=True))
    m.arrays['missing_bool'] = yes
    z = np.full((3, 2), 1 - 2j, np.complex64)
    m.open('missing_complex', 'zarr', v2_metadata(z, (2, 2), None, fill=[1.0, -2.0]))
    m.arrays['missing_complex'] = z


@case()
def zarr2_perleaf(d):
    m = Maker(d / 'ckpt')
    v2_arrays(m)
    return m.case()


@case()
def zarr2_ocdbt(d):
    m = Maker(d / 'ckpt', ocdbt=True)
    v2_arrays(m)
    return m.case()


def v3_metadata(a, chunks, codecs, fill=0, encoding=None, data_type=None):
    if isinstance(fill, (int, float)) and not isinstance(fill, bool) and a.dtype.kind == 'b':
        fill = bool(fill)
    if a.dtype.kind == 'c' and not isinstance(fill, list):
        fill = [float(fill), 0.0]
    return {'zarr_format': 3, 'node_type': 'array', 'shape': list(a.shape),
            'data_type': data_type or a.dtype.name,
            'chunk_grid': {'name': 'regular', 'configuration': {'chunk_shape': list(chunks)}},
            'chunk_key_encoding': encoding or {'name': 'default'}, 'fill_value': fill, 'codecs': codecs}


def c_bytes(endian='little'):
    return {'name': 'bytes', 'configuration': {'endian': endian}}


def c_zstd(level=1, checksum=False):
    return {'name': 'zstd', 'configuration': {'level': level, 'checksum': checksum}}


def c_blosc(cname='lz4', shuffle='shuffle', typesize=4, blocksize=0):
    return {'name': 'blosc', 'configuration': {'cname': cname, 'clevel': 5, 'shuffle': shuffle,
                                               'typesize': typesize, 'blocksize': blocksize}}


C_CRC = {'name': 'crc32c'}
C_GZIP = {'name': 'gzip', 'configuration': {'level': 5}}


def c_transpose(*order):
    return {'name': 'transpose', 'configuration': {'order': list(order)}}


def c_shard(inner, codecs, location='end', index=None):
    conf = {'chunk_shape': list(inner), 'codecs': codecs,
            'index_codecs': index or [c_bytes(), C_CRC], 'index_location': location}
    return {'name': 'sharding_indexed', 'configuration': conf}


def v3_chains():
    """name -> codecs for a (12, 10, 6) array in chunks of (6, 4, 6)."""
    chains = {
        'bytes': [c_bytes()], 'big': [c_bytes('big')], 'zstd': [c_bytes(), c_zstd()],
        'zstd_checksum': [c_bytes(), c_zstd(3, True)], 'gzip': [c_bytes(), C_GZIP],
        'crc32c': [c_bytes(), C_CRC], 'zstd_crc32c': [c_bytes(), c_zstd(), C_CRC],
        'crc32c_zstd': [c_bytes(), C_CRC, c_zstd()], 'gzip_zstd': [c_bytes(), C_GZIP, c_zstd()],
        'transpose': [c_transpose(2, 0, 1), c_bytes(), c_zstd()],
        'transpose_twice': [c_transpose(2, 0, 1), c_transpose(1, 0, 2), c_bytes('big')],
        'fortran': [c_transpose(2, 1, 0), c_bytes()],
        'shard': [c_shard((3, 2, 3), [c_bytes(), c_zstd()])],
        'shard_start': [c_shard((3, 2, 3), [c_bytes(), C_GZIP], 'start')],
        'shard_raw': [c_shard((6, 4, 6), [c_bytes()])],
        'shard_index_big': [c_shard((2, 4, 2), [c_bytes('big')], index=[c_bytes('big')])],
        'shard_inner_transpose': [c_shard((3, 4, 2), [c_transpose(1, 2, 0), c_bytes(), c_zstd()])],
        'shard_crc': [c_shard((3, 4, 2), [c_bytes(), C_CRC, c_zstd()], 'start', [c_bytes(), C_CRC])],
        'nested': [c_shard((3, 4, 6), [c_shard((3, 2, 2), [c_bytes(), c_zstd()])])],
        'nested_start': [c_shard((6, 2, 6), [c_shard((2, 1, 3), [c_bytes(), C_GZIP], 'start')], 'start')],
        'transpose_shard': [c_transpose(2, 1, 0), c_shard((3, 2, 3), [c_bytes(), c_zstd()])],
    }
    for cname in ('lz4', 'lz4hc', 'blosclz', 'zstd', 'zlib', 'snappy'):
        for shuffle in ('noshuffle', 'shuffle', 'bitshuffle'):
            chains[f'blosc_{cname}_{shuffle}'] = [c_bytes(), c_blosc(cname, shuffle)]
    chains['blosc_crc'] = [c_bytes(), c_blosc(), C_CRC]
    return chains


def v3_arrays(m):
    cube = values((12, 10, 6), np.float32, 1)
    for name, codecs in v3_chains().items():
        m.write(f'chain_{name}', m.open(f'chain_{name}', 'zarr3', v3_metadata(cube, (6, 4, 6), codecs)), cube)
    for i, (name, separator) in enumerate(itertools.product(('default', 'v2'), './')):
        for rank in range(4):
            a = values((6, 5, 4)[:rank], np.float64, rank)
            leaf = f'key_{name}_{i}_rank{rank}'
            encoding = {'name': name, 'configuration': {'separator': separator}}
            m.write(leaf, m.open(leaf, 'zarr3', v3_metadata(a, (4, 2, 3)[:rank], [c_bytes(), c_zstd()],
                                                            encoding=encoding)), a)
    for t in DTYPES:
        a = bits((5, 6), dtype_of(t), 4)
        m.write(f'dtype_{t}', m.open(f'dtype_{t}', 'zarr3', v3_metadata(a, (2, 4), [c_bytes(), c_zstd()])), a)
        s = [c_shard((2, 2), [c_bytes('big')])]
        m.write(f'shard_{t}', m.open(f'shard_{t}', 'zarr3', v3_metadata(a, (4, 4), s)), a)
    for shape in ((0,), (3, 0, 2)):
        a = np.zeros(shape, np.float32)
        name = 'zero_' + 'x'.join(map(str, shape))
        m.write(name, m.open(name, 'zarr3', v3_metadata(a, [2] * len(shape), [c_bytes()])), a)
    v3_missing(m)


def v3_missing(m):
    """Missing chunks, missing inner chunks of a shard, and shards that are not there at all."""
    fills = {'zero': (0.0, 0.0), 'seven': (7.5, 7.5), 'nan': ('NaN', np.nan), 'inf': ('Infinity', np.inf),
             'hex': ('0x7fc00001', np.frombuffer(b'\x01\0\xc0\x7f', np.float32)[0]), 'minus_zero': (-0.0, -0.0)}
    chains = {'plain': [c_bytes(), c_zstd()], 'shard': [c_shard((2, 5), [c_bytes()])]}
    for (name, (fill, value)), (chain, codecs) in itertools.product(fills.items(), chains.items()):
        a = np.full((12, 10), value, np.float32)
        a[4:6] = values((2, 10), np.float32, 6)
        leaf = f'missing_{chain}_{name}'
        store = m.open(leaf, 'zarr3', v3_metadata(a, (4, 5), codecs, fill), store_fill=False)
        m.write(leaf, store, a, np.s_[4:6])
    for leaf, chain in (('missing_all', [c_bytes()]), ('missing_all_shard', [c_shard((2,), [c_bytes()])])):
        a = np.full((9,), 3, np.uint8)
        m.open(leaf, 'zarr3', v3_metadata(a, (4,), chain, 3))
        m.arrays[leaf] = a


@case()
def zarr3_perleaf(d):
    m = Maker(d / 'ckpt')
    v3_arrays(m)
    return m.case()


@case()
def zarr3_ocdbt(d):
    m = Maker(d / 'ckpt', ocdbt=True)
    v3_arrays(m)
    return m.case()


@case()
def zarr_python(d):
    """Written by zarr-python: other whitespace, `.zattrs`, Morton order inside shards."""
    item = d / 'ckpt'
    item.mkdir()
    arrays = {}

    def add(name, a, **options):
        store = zarr.create_array(store=str(item / name), shape=a.shape, dtype=a.dtype, **options)
        store[...] = a
        arrays[name] = a

    w = values((20, 30), np.float32, 1)
    i = np.arange(60, dtype=np.int64).reshape(5, 12)
    for name, a in (('w', w), ('i', i), ('scalar', np.asarray(np.float64(2.5)))):
        chunks = {0: (), 2: (7, 8)}[a.ndim]
        add(f'v2_{name}', a, zarr_format=2, chunks=chunks)
        add(f'v2_{name}_F', a, zarr_format=2, chunks=chunks, order='F', compressors=None)
        add(f'v3_{name}', a, zarr_format=3, chunks=chunks)
        add(f'v3_{name}_raw', a, zarr_format=3, chunks=chunks, compressors=None)
    add('v3_shard', w, zarr_format=3, chunks=(5, 5), shards=(10, 10))
    add('v3_shard_gzip', w, zarr_format=3, chunks=(5, 6), shards=(20, 30), compressors=[zc.GzipCodec(level=3)])
    add('v3_blosc', w, zarr_format=3, chunks=(8, 8), compressors=[zc.BloscCodec(cname='zstd', shuffle='bitshuffle')])
    add('v3_zstd_crc', w, zarr_format=3, chunks=(8, 8), compressors=[zc.ZstdCodec(level=4), zc.Crc32cCodec()])
    nan = zarr.create_array(store=str(item / 'nan_fill'), shape=(10,), dtype='f4', chunks=(4,), fill_value=np.nan)
    nan[:4] = np.arange(4)
    arrays['nan_fill'] = nan[:]
    return Case(trees={'': expect.flatten(arrays).without_structure()})


@case()
def zarr_bare(d):
    """A directory that is itself one array: a tree of one bare leaf."""
    m = Maker(d)
    a = values((6, 7), np.float64, 1)
    m.write('ckpt', m.open('ckpt', 'zarr3', v3_metadata(a, (4, 4), [c_bytes(), c_zstd()])), a)
    tree = expect.Tree({(): a}, {}, recorded=False)
    return Case(trees={'': tree})


@case()
def zarr_nested_directories(d):
    """Keys with '/' make directories in directories; each array is still one leaf."""
    m = Maker(d / 'ckpt')
    a = values((4, 4), np.float32, 1)
    m.write('plain', m.open('plain', 'zarr', v2_metadata(a, (2, 2), None)), a)
    m.write('a.b.c', m.open('a.b.c', 'zarr', v2_metadata(a + 1, (2, 2), None)), a + 1)
    return Case(trees={'': expect.Tree({('plain',): a, ('a', 'b', 'c'): a + 1},
                                       {(): 'dict', ('a',): 'dict', ('a', 'b'): 'dict'}, recorded=False)})


@case()
def sparse(d):
    """Chunks that are not stored, for SEEK_HOLE: 1 MiB each, only the second and the fourth there."""
    m = Maker(d / 'ckpt')
    a = np.zeros((1024, 1024), np.float32)
    a[256:512] = values((256, 1024), np.float32, 1)
    a[768:] = values((256, 1024), np.float32, 2)
    kinds = {'raw': ('zarr', v2_metadata(a, (256, 1024), None)),
             'zstd': ('zarr', v2_metadata(a, (256, 1024), {'id': 'zstd', 'level': 1})),
             'v3': ('zarr3', v3_metadata(a, (256, 1024), [c_bytes(), c_zstd()]))}
    for name, (driver, metadata) in kinds.items():
        store = m.open(name, driver, metadata)
        m.write(name, store, a, np.s_[256:512])
        m.write(name, store, a, np.s_[768:])
    seven = np.full((1024, 1024), 7, np.float32)
    m.open('filled', 'zarr', v2_metadata(seven, (256, 1024), None, fill=7.0))
    m.arrays['filled'] = seven
    empty = np.zeros((1024, 1024), np.float32)
    m.open('empty', 'zarr', v2_metadata(empty, (256, 1024), None))
    m.arrays['empty'] = empty
    made = m.case()
    made.notes['holes'] = {n: [[0, 1 << 20], [2 << 20, 3 << 20]] for n in kinds}
    made.notes['holes'].update(empty=[[0, 4 << 20]], filled=[])
    return made


@case()
def numbered_manifests(d):
    """The coordinator era: manifests with numbers instead of one that is replaced."""
    item = (d / 'ckpt').resolve()
    arrays = {f'w{i}': values((30, 30), np.float32, i) for i in range(4)}
    for name, a in arrays.items():
        kv = {'driver': 'ocdbt', 'base': f'file://{item}/', 'path': name + '/',
              'config': {'manifest_kind': 'numbered'}}
        ts.open({'driver': 'zarr', 'kvstore': kv}, create=True, dtype=a.dtype, shape=a.shape).result().write(a).result()
    return Case(trees={'': expect.flatten(arrays).without_structure()},
                notes={'manifests': sorted(p.name for p in item.glob('manifest*'))})


@case()
def raw_nodes(d):
    """An OCDBT database without any compression, values in data files: every byte can be damaged."""
    item = (d / 'ckpt').resolve()
    arrays = {f'w{i}': values((20, 30), np.float32, i) for i in range(6)}
    for name, a in arrays.items():
        kv = {'driver': 'ocdbt', 'base': f'file://{item}/', 'path': name + '/',
              'config': {'compression': None, 'max_inline_value_bytes': 200}}
        ts.open({'driver': 'zarr3', 'kvstore': kv,
                 'metadata': v3_metadata(a, (10, 30), [c_bytes()])}, create=True).result().write(a).result()
    return Case(trees={'': expect.flatten(arrays).without_structure()})


@case()
def sparse_small(d):
    """A few missing chunks, small."""
    m = Maker(d / 'ckpt')
    a = np.zeros((64, 64), np.float32)
    a[16:32] = values((16, 64), np.float32, 1)
    for name, (driver, metadata) in {
            'v2': ('zarr', v2_metadata(a, (16, 64), {'id': 'blosc', 'cname': 'lz4', 'clevel': 5, 'shuffle': 1,
                                                     'blocksize': 0})),
            'v3': ('zarr3', v3_metadata(a, (16, 64), [c_shard((8, 64), [c_bytes(), c_zstd()])]))}.items():
        m.write(name, m.open(name, driver, metadata), a, np.s_[16:32])
    return m.case()
