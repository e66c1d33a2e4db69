# SPDX-License-Identifier: Apache-2.0
"""Codecs against TensorStore, zarr-python and numcodecs: the same verdict on every damaged object, and
what we encode is read by all."""

import bz2
import errno
import gzip
import json
import random
import shutil
import struct
import zlib

import numpy as np
import pytest

pytest.importorskip("tensorstore")
numcodecs = pytest.importorskip("numcodecs")
crc32c = pytest.importorskip("google_crc32c")

from zarr_tools import BYTES, Refused, ZarrTool, codec, grid, ts_store, v2_document, v3_document  # noqa: E402
from lib import package  # noqa: E402
from lib.pairs import in_one, pairs

pytreefs = package.imported()

RAW = bytes(range(16))
ZSTD = codec("zstd", level=1, checksum=False)
GZIP = codec("gzip", level=1)
CRC = {"name": "crc32c"}
BLOSC = codec("blosc", cname="lz4", clevel=5, shuffle="noshuffle", blocksize=0)


def unnamed(value):
    """Bytes and documents make poor names for cases; numbers are in order."""
    return value if isinstance(value, str) else ""


@pytest.fixture(scope="module")
def tool():
    tool = ZarrTool()
    yield tool
    tool.close()


def with_crc(data):
    return data + struct.pack("<I", crc32c.value(data))


def zstd(data, checksum=False):
    return bytes(numcodecs.Zstd(level=1, checksum=checksum).encode(data))


def stored(data):
    return bytes(numcodecs.Blosc(clevel=0).encode(data))


def flipped(data, at, bits=1):
    data = bytearray(data)
    data[at] ^= bits
    return bytes(data)


def gz(data):
    return gzip.compress(data, 1, mtime=0)


FRAME = bytes.fromhex("28b52ffd2010810000") + RAW
NO_SIZE = bytes.fromhex("28b52ffd0058810000") + RAW
OPEN_END = bytes.fromhex("28b52ffd0058800000") + RAW
SKIPPABLE = bytes.fromhex("502a4d18") + struct.pack("<I", 4) + b"abcd"

ZSTD_OBJECTS = [
    FRAME, NO_SIZE, SKIPPABLE + FRAME, FRAME + SKIPPABLE, FRAME + b"x", FRAME + FRAME, b"", FRAME[:-1], FRAME[4:],
    bytes.fromhex("28b52ffd0058010000") + FRAME, bytes.fromhex("28b52ffd2011890000") + RAW + b"z",
    bytes.fromhex("28b52ffd200f790000") + RAW[:15], bytes.fromhex("28b52ffd0058890000") + RAW + b"z",
    OPEN_END, OPEN_END + bytes.fromhex("010000"), OPEN_END + bytes.fromhex("0100"),
    OPEN_END + bytes.fromhex("ffffff"), OPEN_END + bytes.fromhex("090000") + b"z",
    bytes.fromhex("28b52ffd2410810000") + RAW + bytes(4), bytes.fromhex("28b52ffd2410810000") + RAW,
    zstd(RAW, True), zstd(RAW, True)[:-2], bytes.fromhex("28b52ffd2011810000") + RAW,
    bytes.fromhex("28b52ffd200f810000") + RAW, bytes.fromhex("28b52ffd210510810000") + RAW,
    bytes.fromhex("28b52ffd210010810000") + RAW, bytes.fromhex("28b52ffd2810810000") + RAW,
    bytes.fromhex("28b52ffd3010810000") + RAW, bytes.fromhex("27b52ffd") + FRAME[4:],
] + [bytes.fromhex("28b52ffd00%02x810000" % descriptor) + RAW for descriptor in (0x88, 0x90, 0xa8, 0xa9, 0xb0, 0xf8)]


def gzip_objects(container):
    good, n = (zlib.compress(RAW, 1), 4) if container == "zlib" else (gz(RAW), 8)
    make = (lambda b: zlib.compress(b, 1)) if container == "zlib" else gz
    other = gz(RAW) if container == "zlib" else zlib.compress(RAW, 1)
    return [good, other, good[2:-4], good[10:], b"", good + b"x", good + good, good + bytes(2), flipped(good, -n),
            flipped(good, -1), make(RAW + b"z"), make(RAW[:-1]), make(b"") + good, make(RAW[:8]) + make(RAW[8:]),
            flipped(good, 3, 0x80), good[:-n - 3]]


BZ2 = bz2.compress(RAW, 1)
BZ2_OBJECTS = [BZ2, bz2.compress(RAW, 9), BZ2 + b"x", BZ2 + BZ2, b"", bz2.compress(b""), bz2.compress(b"") + BZ2,
               BZ2 + bz2.compress(b""), bz2.compress(RAW[:8]) + bz2.compress(RAW[8:]), flipped(BZ2, 10),
               flipped(BZ2, -2), bz2.compress(RAW + b"z"), bz2.compress(RAW[:-1]), flipped(BZ2, 3, 0x40)]

BIG = np.arange(4096, dtype="<u4").tobytes()
SOME = bytes(numcodecs.Blosc("lz4", 5, 1, 0).encode(np.frombuffer(BIG, "<u4")))
STORED = stored(BIG)


def with_header(data, at, value):
    data = bytearray(data)
    form = "<I" if at >= 4 else "<B"
    struct.pack_into(form, data, at, value & (0xffffffff if at >= 4 else 0xff))
    return bytes(data)


BLOSC_OBJECTS = [SOME, STORED, SOME + b"x", STORED[:-1], SOME[:16], SOME[:15], b""] + [
    with_header(SOME, at, value) for at, values in {
        0: (0, 1, 3, 255), 1: (0, 2), 2: (0x29, 0x41, 0x61, 0x81, 0xa1, 0xe1, 0x31, 0x20, 0x25, 0x23),
        3: (0, 1, 2, 8, 255), 4: (0, 1, 16383, 16385, 0x7fffffff, 0xffffffff),
        8: (0, 1, 4095, 16384, 16385, 0x7fffffff, 0xffffffff, 0x80000000), 12: (0, 16, len(SOME) + 1, 0xffffffff),
        16: (0, 1, 16, 19, len(SOME) - 4, len(SOME), 0xffffffff), 20: (0, 0x7fffffff, 0xffffffff),
    }.items() for value in values
] + [with_header(STORED, at, value) for at, value in ((2, 0xe2), (2, 0x0a), (3, 0), (4, 100), (8, 0), (8, 0x7fffffff))]

CRC_OBJECTS = [with_crc(RAW), with_crc(RAW) + b"xx", flipped(with_crc(RAW), -1), flipped(with_crc(RAW), 3),
               with_crc(RAW)[:-1], b"", with_crc(RAW + b"z"), with_crc(RAW[:-1])]

# Each: dialect, codec or chain, objects.
VERDICTS = [
    (2, {"id": "zstd"}, ZSTD_OBJECTS), (3, [ZSTD], ZSTD_OBJECTS),
    (2, {"id": "zlib"}, gzip_objects("zlib")), (2, {"id": "gzip"}, gzip_objects("gzip")),
    (3, [GZIP], gzip_objects("gzip") + [gz(RAW)[:-1], gz(RAW)[:-8]]),
    (2, {"id": "bz2"}, BZ2_OBJECTS), (3, [CRC], CRC_OBJECTS),
    (2, None, [RAW, RAW + b"x", RAW[:-1], b""]), (3, [], [RAW, RAW + b"x", RAW[:-1], b""]),
    (3, [ZSTD, CRC], [with_crc(FRAME), with_crc(FRAME) + b"x", with_crc(FRAME + b"junk"), FRAME + bytes(4), b"abc",
                      with_crc(b"")]),
    (3, [CRC, ZSTD], [zstd(with_crc(RAW)), zstd(RAW + bytes(4)), zstd(with_crc(RAW) + b"x"), zstd(RAW),
                      zstd(with_crc(RAW)) + b"x"]),
    (3, [ZSTD, GZIP], [gz(FRAME), flipped(gz(FRAME), -8), gz(FRAME)[:-8], gz(FRAME + b"junk"),
                       gz(FRAME + b"junk" * 100000), gz(FRAME) + b"x", gz(FRAME[:-1]), gz(b"")]),
    (3, [GZIP, ZSTD], [zstd(gz(RAW)), zstd(gz(RAW) + b"junk"), zstd(gz(RAW), True), flipped(zstd(gz(RAW), True), -1),
                       zstd(gz(RAW), True)[:-4], zstd(gz(RAW))[:-1], zstd(gz(RAW)[:-1]), zstd(gz(RAW)) + b"x",
                       zstd(gz(RAW) + bytes(200000), True)]),
    (3, [BLOSC], [stored(RAW), stored(RAW) + b"x", stored(RAW)[:-1]]),
    (3, [BLOSC, ZSTD], [zstd(stored(RAW)), zstd(stored(RAW) + b"x"), zstd(stored(RAW)) + b"x"]),
    (3, [ZSTD, BLOSC], [stored(FRAME), stored(FRAME + b"junk"), stored(FRAME) + b"x"]),
    (3, [CRC, CRC], [with_crc(with_crc(RAW)), with_crc(with_crc(RAW)) + b"x", with_crc(flipped(with_crc(RAW), -1))]),
]


def theirs(document, data, version):
    rank = len(document["shape"])
    key = ".".join(["0"] * rank) or "0" if version == 2 else "/".join(["c"] + ["0"] * rank)
    array, _ = ts_store(document, {key: data}, version)
    try:
        return array.read().result().tobytes()
    except ValueError:
        return None


def ours(tool, document, data):
    try:
        return tool.run("decode", document, data)
    except Refused as e:
        assert e.code in (-errno.EUCLEAN, -errno.EBADMSG, -errno.EFBIG), e
        return None


@in_one("version,codecs,data", [(version, codecs, data) for version, codecs, objects in VERDICTS for data in objects])
def test_verdicts_are_tensorstores(tool, version, codecs, data):
    document = v2_document(compressor=codecs) if version == 2 else v3_document(codecs)
    assert ours(tool, document, data) == theirs(document, data, version)


@in_one("data", BLOSC_OBJECTS)
def test_verdicts_on_blosc_headers_are_tensorstores(tool, data):
    document = v3_document([BLOSC], shape=[4096], chunk_grid=grid(4096), data_type="uint32")
    assert ours(tool, document, data) == theirs(document, data, 3)


@pytest.mark.parametrize("container,cut", [
    ("zlib", 1), ("zlib", 4), ("zlib", 5), ("gzip", 1), ("gzip", 8), ("gzip", 9), ("bz2", 1)])
def test_a_missing_trailer_is_damage_though_tensorstore_lets_it_pass_in_v2(tool, container, cut):
    """The one known difference: we always check the checksums that a format has."""
    data = {"zlib": zlib.compress(RAW, 1), "gzip": gz(RAW), "bz2": BZ2}[container][:-cut]
    document = v2_document(compressor={"id": container})
    assert theirs(document, data, 2) == RAW
    with pytest.raises(Refused) as e:
        tool.run("decode", document, data)
    assert e.value.code == -errno.EUCLEAN


V3_CHAINS = [
    [], [ZSTD], [codec("zstd", level=-7, checksum=True)], [codec("zstd", level=22, checksum=False)], [GZIP],
    [codec("gzip", level=9)], [CRC], [ZSTD, CRC], [CRC, ZSTD], [GZIP, ZSTD, CRC],
] + [[codec("blosc", cname=cname, clevel=5, shuffle=shuffle, typesize=4, blocksize=0)]
     for cname in ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd") for shuffle in ("noshuffle", "shuffle", "bitshuffle")]
V2_COMPRESSORS = [None, {"id": "zstd", "level": 3}, {"id": "zlib", "level": 6}, {"id": "gzip", "level": 9},
                  {"id": "bz2", "level": 9}] + [
    {"id": "blosc", "cname": cname, "clevel": 9, "shuffle": shuffle, "blocksize": 0}
    for cname in ("lz4", "zstd", "zlib") for shuffle in (-1, 0, 1, 2)]


def some_data(n):
    rng = np.random.default_rng(n)
    return (np.cumsum(rng.integers(-3, 4, n)) * 1000).astype("<i4")


@in_one("n, command, form", pairs(
    [1, 3, 1000, 300000], ["encode", "encode-pieces"], [(2, c) for c in V2_COMPRESSORS] + [(3, c) for c in V3_CHAINS]))
def test_what_we_encode_is_read_by_tensorstore(tool, n, command, form):
    data, (version, codecs) = some_data(n), form
    if version == 2:
        document = v2_document(compressor=codecs, shape=[n], chunks=[n], dtype="<i4")
    else:
        document = v3_document(codecs, shape=[n], chunk_grid=grid(n), data_type="int32")
    try:
        encoded = tool.run(command, document, data.tobytes())
    except Refused as e:
        assert command == "encode-pieces" and e.code == -errno.EOPNOTSUPP
        assert "blosc" in str(codecs) or codecs[:2] == [GZIP, ZSTD]
        return
    assert theirs(document, encoded, version) == data.tobytes()
    assert ours(tool, document, encoded) == data.tobytes()


def zarr_python(tmp_path, document, key, encoded, version):
    zarr = pytest.importorskip("zarr")
    import json

    (tmp_path / (".zarray" if version == 2 else "zarr.json")).write_text(json.dumps(document))
    (tmp_path / key).parent.mkdir(exist_ok=True)
    (tmp_path / key).write_bytes(encoded)
    return zarr.open_array(str(tmp_path), mode="r")[:]


@pytest.mark.parametrize("version,codecs", [(2, c) for c in V2_COMPRESSORS] + [
    (3, c) for c in V3_CHAINS if "snappy" not in str(c)], ids=unnamed)
def test_what_we_encode_is_read_by_zarr_python(tool, tmp_path, version, codecs):
    data = some_data(5000)
    if version == 2:
        codecs = {**codecs, "shuffle": 1} if codecs and codecs.get("shuffle") == -1 else codecs
        document = v2_document(compressor=codecs, shape=[5000], chunks=[5000], dtype="<i4")
    else:
        document = v3_document(codecs, shape=[5000], chunk_grid=grid(5000), data_type="int32")
    encoded = tool.run("encode", document, data.tobytes())
    read = zarr_python(tmp_path, document, "0" if version == 2 else "c/0", encoded, version)
    assert (read == data).all()


@in_one("seed", range(40))
def test_blosc_of_many_threads_and_blocks_decodes(tool, seed):
    """numcodecs writes with several threads: blocks in the order in which they were done."""
    rng = random.Random(seed)
    n = rng.choice([1, 100, 5000, 300000, 1000003])
    typesize = rng.choice([1, 2, 3, 4, 8, 16, 17])
    data = bytes(some_data(n // 4 + 1).tobytes()[:n])
    cname = rng.choice(["lz4", "lz4hc", "blosclz", "zlib", "zstd"])
    form = numcodecs.Blosc(cname, rng.choice([1, 5]), rng.choice([0, 1, 2]), rng.choice([0, 256, 4096, 65536]))
    whole = np.frombuffer(data[:n // typesize * typesize], f"V{typesize}") if n >= typesize else data
    encoded = bytes(form.encode(whole))
    plain = whole.tobytes() if hasattr(whole, "tobytes") else whole
    document = v3_document([BLOSC], shape=[len(plain)], chunk_grid=grid(len(plain)))
    assert tool.run("decode", document, encoded) == plain
    # After another codec it is decoded block by block.
    document = v3_document([BLOSC, GZIP], shape=[len(plain)], chunk_grid=grid(len(plain)))
    assert tool.run("decode", document, gz(encoded)) == plain


def test_bytes_of_v3_need_no_configuration_for_one_byte():
    """A guard for the documents above: TensorStore itself takes BYTES for uint8."""
    assert theirs(v3_document([], codecs=[BYTES]), RAW, 3) == RAW


def test_the_member_checksum_of_numcodecs_can_be_removed(run, tmp_path):
    """TensorStore refuses it as we do, and reads the same chunks without it."""
    import tensorstore as ts
    spec = {'driver': 'zarr', 'kvstore': {'driver': 'file', 'path': str(tmp_path / 'ck/w')}}
    want = np.arange(40_000, dtype='<i4')
    for checksum in (False, True):
        shutil.rmtree(tmp_path / 'ck', ignore_errors=True)
        (tmp_path / 'ck/w').mkdir(parents=True)
        encoder = numcodecs.Zstd(level=1, checksum=checksum)
        doc = {'zarr_format': 2, 'shape': [40_000], 'chunks': [40_000], 'dtype': '<i4', 'order': 'C', 'fill_value': 0, 'filters': None,
               'compressor': encoder.get_config()}
        (tmp_path / 'ck/w/0').write_bytes(encoder.encode(want))
        (tmp_path / 'ck/w/.zarray').write_text(json.dumps(doc))
        r = run('cat', tmp_path / 'ck/w.bin', ok=False)
        assert r.returncode == 1 and "remove it from the compressor in .zarray" in r.stderr
        with pytest.raises(ValueError, match='checksum'):
            ts.open(spec).result()
        del doc['compressor']['checksum']
        (tmp_path / 'ck/w/.zarray').write_text(json.dumps(doc))
        assert run('cat', tmp_path / 'ck/w.bin', text=False).stdout == want.tobytes()
        assert np.array_equal(ts.open(spec).result().read().result(), want)


def test_texts_of_a_fixed_length_are_refused(run, tmp_path):
    """TensorStore opens them with one more axis, and returns no byte of them."""
    import tensorstore as ts
    (tmp_path / 'ck/w').mkdir(parents=True)
    doc = {'zarr_format': 2, 'shape': [2], 'chunks': [2], 'dtype': '|S3', 'order': 'C', 'fill_value': None, 'filters': None, 'compressor': None}
    (tmp_path / 'ck/w/.zarray').write_text(json.dumps(doc))
    (tmp_path / 'ck/w/0').write_bytes(b'abcdef')
    t = ts.open({'driver': 'zarr', 'kvstore': {'driver': 'file', 'path': str(tmp_path / 'ck/w')}}).result()
    assert t.shape == (2, 3) and t.read().result().nbytes == 0
    r = run('cat', tmp_path / 'ck/w.npy', ok=False)
    assert r.returncode == 1 and 'store them as uint8 with one more axis' in r.stderr


def array_of(path, document, chunk):
    """A directory with the array `w` of one chunk."""
    (path / 'w').mkdir(parents=True, exist_ok=True)
    (path / 'w/.zarray').write_text(json.dumps(document))
    (path / 'w/0').write_bytes(chunk)
    return path


def refused_by_all(run, path, *why):
    """cat, verify, convert and load refuse it, and say why; so does TensorStore."""
    import tensorstore as ts
    with pytest.raises(ValueError):
        ts.open({'driver': 'zarr', 'kvstore': {'driver': 'file', 'path': f'{path}/w/'}}).result().read().result()
    for words in (('cat', path / 'w.npy'), ('cat', path / 'w[0:1].npy'), ('verify', path), ('convert', path, path / 'out.npz'), ('stats', path)):
        r = run(*words, ok=False)
        assert r.returncode in (1, 2) and any(w in r.stdout + r.stderr for w in why), (words, r)
    for only in (None, {'w': np.s_[0:1]}):
        with pytest.raises(pytreefs.Error) as e:
            pytreefs.load(str(path), only=only)
        assert any(w in str(e.value) for w in why), e.value


@pytest.mark.parametrize('size', [7, 48])
@pytest.mark.parametrize('form', ['raw', 'raw, large', 'big-endian', 'zstd', 'zstd without a size', 'blosc', 'gzip'])
def test_chunks_of_another_size_are_refused_where_a_part_is_read(run, tmp_path, form, size):
    """The array is smaller than its chunk, and what it needs could be decoded: of another array, as it were."""
    elements = 3 << 20 if form == 'raw, large' else 16
    data = bytes(range(1, size + 1))
    encode = {'zstd': zstd, 'gzip': gz, 'blosc': lambda d: bytes(numcodecs.Blosc('lz4', 5, 1, 0).encode(d)),
              'zstd without a size': lambda d: bytes.fromhex('28b52ffd0058') + struct.pack('<I', len(d) << 3 | 1)[:3] + d}.get(form, bytes)
    compressor = {'zstd': {'id': 'zstd', 'level': 1}, 'gzip': {'id': 'gzip', 'level': 1},
                  'blosc': {'id': 'blosc', 'cname': 'lz4', 'clevel': 5, 'shuffle': 1}}.get(form.split()[0])
    document = v2_document(shape=[3], chunks=[elements], dtype='>u2' if form == 'big-endian' else '<u2', compressor=compressor)
    refused_by_all(run, array_of(tmp_path / 'ck', document, encode(data)),
                   f'is stored in {size}', 'early', 'more bytes', 'declares', 'bytes follow', 'expected')


@pytest.mark.parametrize('elements', [4, 5 << 20])
@pytest.mark.parametrize('form', [None, {'id': 'zstd', 'level': 1}])
def test_bools_are_0_or_1(run, tmp_path, form, elements):
    data = bytes([2, 1, 0, 255]) + bytes(elements - 4)
    document = v2_document(shape=[elements], chunks=[elements], dtype='|b1', compressor=form)
    path = array_of(tmp_path / 'ck', document, zstd(data) if form else data)
    refused_by_all(run, path, 'a bool has the value 2, not 0 or 1')
    array_of(path, document, zstd(data[1:3] * (elements // 2)) if form else data[1:3] * (elements // 2))
    assert pytreefs.load(str(path))['w'].tolist() == [True, False] * (elements // 2)
    if not form:
        with pytest.raises(pytreefs.Error, match='a bool is neither 0 nor 1'):
            pytreefs.save(tmp_path / 'saved/1', {'w': np.frombuffer(data, bool)}, compression='zstd:1' if elements > 4 else 'none')
        mapped = pytreefs.load(str(path), mmap=True)['w']
        assert mapped.sum() == elements // 2 and not mapped.flags.owndata
