# SPDX-License-Identifier: Apache-2.0
"""zarr metadata against TensorStore: which documents open, what the levels of a chunk mean, what we
write, chunk keys."""

import copy
import errno
import json
import random

import numpy as np
import pytest

pytest.importorskip("tensorstore")
ml_dtypes = pytest.importorskip("ml_dtypes")

from zarr_tools import (BYTES, Refused, ZarrTool, codec, document_bytes, grid, ts_store,  # noqa: E402
                        v2_document, v3_document)
from lib.pairs import in_one  # noqa: E402

EUCLEAN, EOPNOTSUPP, EFBIG = -errno.EUCLEAN, -errno.EOPNOTSUPP, -errno.EFBIG
ZSTD = codec("zstd", level=1)
CRC = {"name": "crc32c"}
INDEX = [BYTES, CRC]


def unnamed(value):
    """Documents make poor names for cases; numbers are in order."""
    return value if isinstance(value, str) else ""


@pytest.fixture(scope="module")
def tool():
    tool = ZarrTool()
    yield tool
    tool.close()


def base(version):
    if version == 2:
        return v2_document(compressor={"id": "zstd", "level": 1}, shape=[10, 11], chunks=[5, 11], dtype="<f4")
    return v3_document([ZSTD], shape=[10, 11], chunk_grid=grid(5, 11), data_type="float32", fill_value=0.0)


def shard(chunk_shape, codecs, index_codecs=INDEX, **more):
    return codec("sharding_indexed", chunk_shape=list(chunk_shape), codecs=codecs, index_codecs=index_codecs,
                 **more)


# (version, result of ours, members that replace those of the base; ... removes one).
# 0: accepted. EUCLEAN: refused by both. EOPNOTSUPP, EFBIG: refused by us; TensorStore may take it.
CASES = []


def case(version, result, **members):
    CASES.append((version, result, members))


def v2(result, **members):
    case(2, result, **members)


def v3(result, **members):
    case(3, result, **members)


for name in ("chunks", "compressor", "dtype", "fill_value", "filters", "order", "shape", "zarr_format"):
    v2(EUCLEAN, **{name: ...})
for name in ("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value",
             "codecs"):
    v3(EUCLEAN, **{name: ...})

v2(0)
v2(0, anything={"goes": [1, None]}, dimension_names=5)
v2(0, dimension_separator="/")
v2(EUCLEAN, dimension_separator=None)
v2(EUCLEAN, dimension_separator="x")
v2(0, filters=[])
v2(EOPNOTSUPP, filters=[{"id": "delta"}])
v2(EUCLEAN, filters={})
v2(0, order="F")
v2(EUCLEAN, order="A")
v2(EUCLEAN, order=None)
v2(0, zarr_format=2.0)
v2(EUCLEAN, zarr_format="2")
v2(EUCLEAN, zarr_format=1)
v2(0, shape=[10.0, 11])
v2(EUCLEAN, shape=[1.5, 11])
v2(EUCLEAN, shape=["10", 11])
v2(EUCLEAN, shape=[-1, 11])
v2(EUCLEAN, shape=[2**63 - 1, 11])
v2(0, shape=[0, 2**62])
v2(EFBIG, shape=[2**40, 2**40])
v2(EUCLEAN, shape=[10])
v2(EUCLEAN, shape={})
v2(0, shape=[], chunks=[])
v2(0, shape=[1] * 32, chunks=[1] * 32)
v2(EUCLEAN, shape=[1] * 33, chunks=[1] * 33)
v2(EUCLEAN, chunks=[0, 11])
v2(0, chunks=[100, 100])
v2(0, chunks=[2**31, 2**30 - 1])
v2(EUCLEAN, chunks=[2**31, 2**30])
v2(EUCLEAN, chunks=[2**62, 2**62])
for dtype in ("|b1", "<b1", ">b1", "|i1", ">u1", "<i2", ">i8", "<f2", ">f8", "<c8", ">c16", "bfloat16", "int4",
              "int2", "float4_e2m1fn", "float8_e3m4", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz",
              "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"):
    v2(0, dtype=dtype)
for dtype in ("|S5", "|V3", "<U4", "<M8[ns]", "|O", "i2", "=i4", "|i2", "|b2", "<f1", "<f16", "uint4", "uint2",
              "int1", "float8_e4m3", "float6_e2m3fn", "<bfloat16", "BFLOAT16", "float32", "",
              [["a", "<i2"]], [["a", "<i2"], ["b", "<f4", [2]]]):
    v2(EOPNOTSUPP, dtype=dtype)
for dtype in ([], [["a"]], [["", "<i2"]], [["a", [["b", "<i2"]]]], ["a", "<i2"], None, 5, {}):
    v2(EUCLEAN, dtype=dtype)
for compressor in ({"id": "zstd", "level": 22}, {"id": "zlib"}, {"id": "gzip", "level": 0}, {"id": "bz2"},
                   {"id": "blosc", "shuffle": 2}, None):
    v2(0, compressor=compressor)
for compressor in ({"id": "zstd", "level": 23}, {"id": "zstd", "level": 1, "checksum": False}, {"level": 1},
                   {"id": "bz2", "level": 0}, {"id": "blosc", "typesize": 4}, [], "zstd"):
    v2(EUCLEAN, compressor=compressor)
v2(EOPNOTSUPP, compressor={"id": "lz4"})
for value in (1, 1.5, "NaN", "-Infinity", "0x10", " 2 "):
    v2(0, fill_value=value)
for value in ("nan", True, [1], "AAAAAA==", {}):
    v2(EUCLEAN, fill_value=value)

v3(0)
v3(0, zarr_format=3.0)
v3(EUCLEAN, zarr_format=4)
v3(EUCLEAN, node_type="group")
v3(EUCLEAN, fill_value=None)
v3(0, fill_value="0x7fc00001")
v3(EUCLEAN, fill_value="1.0")
v3(EOPNOTSUPP, foo=1)
v3(EOPNOTSUPP, foo={})
v3(0, foo={"must_understand": False})
v3(EOPNOTSUPP, foo={"must_understand": 0})
v3(EOPNOTSUPP, consolidated_metadata=None)
v3(0, attributes={"a": [1, {"b": None}]})
v3(EUCLEAN, attributes=None)
v3(0, attributes={"dimension_units": ["4 nm", None]})
v3(EUCLEAN, attributes={"dimension_units": ["nm"]})
v3(EUCLEAN, attributes={"dimension_units": ["nm", 4]})
v3(EUCLEAN, attributes={"dimension_units": None})
v3(0, dimension_names=["x", None])
v3(0, dimension_names=["", ""])
v3(EUCLEAN, dimension_names=["x", "x"])
v3(EUCLEAN, dimension_names=["x"])
v3(EUCLEAN, dimension_names=None)
v3(0, storage_transformers=[])
v3(EOPNOTSUPP, storage_transformers=[{}])
v3(EUCLEAN, storage_transformers=None)
v3(EUCLEAN, chunk_grid={"name": "regular"})
v3(EUCLEAN, chunk_grid={"name": "regular", "configuration": {"chunk_shape": [5, 11], "x": 1}})
v3(EUCLEAN, chunk_grid=dict(grid(5, 11), x=1))
v3(EOPNOTSUPP, chunk_grid={"name": "rectilinear", "configuration": {"chunk_shape": [5, 11]}})
v3(EUCLEAN, chunk_grid="regular")
v3(EUCLEAN, chunk_grid=grid(5))
v3(EUCLEAN, chunk_grid=grid(0, 11))
v3(0, chunk_grid=grid(5.0, 11))
v3(EUCLEAN, chunk_grid=grid(2**31, 2**30))
v3(0, chunk_grid=grid(2**31, 2**30 - 1))
v3(0, shape=[1] * 32, chunk_grid=grid(*[1] * 32))
v3(EUCLEAN, shape=[1] * 33, chunk_grid=grid(*[1] * 33))
v3(0, chunk_key_encoding={"name": "v2", "configuration": {"separator": "/"}})
v3(0, chunk_key_encoding={"name": "default", "configuration": {}})
v3(EUCLEAN, chunk_key_encoding={"name": "default", "configuration": {"separator": "-"}})
v3(EUCLEAN, chunk_key_encoding={"name": "default", "configuration": None})
v3(EUCLEAN, chunk_key_encoding={"name": "default", "x": 1})
v3(EOPNOTSUPP, chunk_key_encoding={"name": "fanout"})
v3(EUCLEAN, chunk_key_encoding="default")
for data_type in ("bfloat16", {"name": "float32", "configuration": {}},
                  {"name": "float32", "configuration": None, "more": 1}):
    v3(0, data_type=data_type)
for data_type in ("r8", "string", "uint4", "float8_e4m3", "Float32", [["a", "int8"]],
                  {"name": "raw_bytes", "configuration": {"length_bytes": 3}}):
    v3(EOPNOTSUPP, data_type=data_type)
for data_type in ({"name": "float32"}, None, 5, []):
    v3(EUCLEAN, data_type=data_type)


def codecs(result, *names, **members):
    v3(result, codecs=list(names), **members)


codecs(EUCLEAN)
codecs(EUCLEAN, ZSTD)
codecs(0, BYTES)
codecs(EUCLEAN, {"name": "bytes"})
codecs(0, {"name": "bytes"}, data_type="int8", fill_value=0)
codecs(0, codec("bytes"), data_type="bool", fill_value=False)
codecs(EUCLEAN, codec("bytes", endian="middle"), data_type="int8", fill_value=0)
codecs(EUCLEAN, codec("bytes", endian=None), data_type="int8", fill_value=0)
codecs(EUCLEAN, codec("bytes", endian="little", x=1))
codecs(EUCLEAN, dict(BYTES, must_understand=False))
codecs(EUCLEAN, "bytes")
codecs(EUCLEAN, BYTES, BYTES)
codecs(EUCLEAN, BYTES, codec("transpose", order=[1, 0]))
codecs(EUCLEAN, ZSTD, BYTES)
codecs(EUCLEAN, BYTES, "crc32c")
codecs(0, BYTES, CRC, ZSTD, CRC)
codecs(EOPNOTSUPP, BYTES, codec("pcodec"))
codecs(EOPNOTSUPP, codec("packbits"))
codecs(EUCLEAN, BYTES, codec("gzip"))
codecs(EUCLEAN, BYTES, codec("zstd", level=1, checksum=1))
codecs(0, codec("transpose", order=[1, 0]), BYTES)
codecs(0, codec("transpose", order=[1.0, 0]), codec("transpose", order="F"), BYTES)
codecs(0, codec("transpose", order="C"), BYTES)
codecs(EUCLEAN, codec("transpose", order="f"), BYTES)
codecs(EUCLEAN, codec("transpose", order=[0]), BYTES)
codecs(EUCLEAN, codec("transpose", order=[0, 0]), BYTES)
codecs(EUCLEAN, codec("transpose", order=[1, 2]), BYTES)
codecs(EUCLEAN, codec("transpose", order=[-1, 0]), BYTES)
codecs(EUCLEAN, codec("transpose"), BYTES)
codecs(EUCLEAN, codec("transpose", order=[1, 0], x=1), BYTES)
codecs(0, shard([5, 11], [BYTES, ZSTD]))
codecs(0, shard([1, 11], [BYTES]))
codecs(0, shard([1, 11], [BYTES], index_location="start"))
codecs(0, shard([1, 11], [BYTES], index_location="end"))
codecs(EUCLEAN, shard([1, 11], [BYTES], index_location="middle"))
codecs(EUCLEAN, shard([1, 11], [BYTES], index_location=None))
codecs(EUCLEAN, shard([2, 11], [BYTES]))
codecs(EUCLEAN, shard([10, 11], [BYTES]))
codecs(EUCLEAN, shard([11], [BYTES]))
codecs(EUCLEAN, shard([0, 11], [BYTES]))
codecs(EUCLEAN, shard([5, 11], []))
codecs(EUCLEAN, shard([5, 11], [BYTES]), ZSTD)
codecs(EUCLEAN, shard([5, 11], [BYTES], x=1))
codecs(EUCLEAN, codec("sharding_indexed", chunk_shape=[5, 11], codecs=[BYTES]))
codecs(EUCLEAN, codec("sharding_indexed", codecs=[BYTES], index_codecs=INDEX))
codecs(0, shard([5, 11], [BYTES], [codec("bytes", endian="big")]))
codecs(EUCLEAN, shard([5, 11], [BYTES], [{"name": "bytes"}, CRC]))
codecs(EUCLEAN, shard([5, 11], [BYTES], []))
codecs(EUCLEAN, shard([5, 11], [BYTES], [CRC]))
codecs(EUCLEAN, shard([5, 11], [BYTES], [BYTES, ZSTD]))
codecs(EUCLEAN, shard([5, 11], [BYTES], [BYTES, codec("gzip", level=1)]))
codecs(EOPNOTSUPP, shard([5, 11], [BYTES], [BYTES, CRC, CRC]))
codecs(EOPNOTSUPP, shard([5, 11], [BYTES], [codec("transpose", order=[2, 1, 0]), BYTES]))
codecs(0, codec("transpose", order=[1, 0]), shard([11, 1], [codec("transpose", order=[1, 0]), BYTES]))
codecs(EUCLEAN, codec("transpose", order=[1, 0]), shard([1, 11], [BYTES]))
codecs(0, shard([5, 11], [shard([1, 11], [BYTES, ZSTD])]))
codecs(EUCLEAN, shard([5, 11], [shard([2, 11], [BYTES])]))
codecs(EFBIG, *[shard([5, 11], [shard([5, 11], [shard([5, 11], [shard([5, 11], [shard(
    [5, 11], [BYTES])])])])])])
v3(0, shape=[2], chunk_grid=grid(2**24), codecs=[shard([1], [BYTES])])
v3(EFBIG, shape=[2], chunk_grid=grid(2**24 + 1), codecs=[shard([1], [BYTES])])
v3(0, shape=[1] * 31, chunk_grid=grid(*[1] * 31), codecs=[shard([1] * 31, [BYTES])])
v3(EUCLEAN, shape=[1] * 32, chunk_grid=grid(*[1] * 32), codecs=[shard([1] * 32, [BYTES])])


def document_of(version, members):
    document = copy.deepcopy(base(version))
    for name, value in members.items():
        if value is ...:
            del document[name]
        else:
            document[name] = value
    if "dtype" in members and "fill_value" not in members:
        document["fill_value"] = None
    return document


@in_one("version,result,members", CASES)
def test_documents_open_where_tensorstore_opens_them(tool, version, result, members):
    document = document_of(version, members)
    try:
        ts_store(document, version=version)
        refusal = None
    except ValueError as e:
        refusal = e
    try:
        tool.run("text", document)
        ours, note = 0, ""
    except Refused as e:
        ours, note = e.code, e.text
    assert ours == result, f"{members}: {note or 'it opens'}; TensorStore: {refusal or 'it opens'}"
    if result in (0, EUCLEAN):
        assert (refusal is None) == (result == 0), refusal


@pytest.mark.parametrize("text,good", [
    (b"\xef\xbb\xbf%s \n", True), (b"%s x", False), (b"%s,", False), (b"[%s]", False), (b"", False),
    (b'{"attributes":{"a":NaN},%s', False), (b'{"attributes":{"a":1e400},%s', False),
    (b'{"attributes":{"a":1e300},%s', True), (b'{"zarr_format":2,%s', True), (b"// x\n%s", False),
], ids=unnamed)
def test_json_is_as_strict_as_tensorstores(tool, text, good):
    plain = document_bytes(base(3))
    document = text % plain if text.startswith((b"\xef", b"%", b"[", b"/")) else (
        text % plain[1:] if b"%s" in text else text)
    try:
        ts_store(document)
        assert good
    except ValueError:
        assert not good
    if good:
        tool.run("text", document)
    else:
        with pytest.raises(Refused) as e:
            tool.run("text", document)
        assert e.value.code == EUCLEAN


# ---- levels ----

DTYPES = ["uint8", "int16", "float32", "float64", "complex64", "complex128", "bool", "bfloat16"]


def numpy_dtype(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def random_chain(rng, shape, depth):
    """A codec list for an array of this shape."""
    rank = len(shape)
    chain = []
    shape = list(shape)
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        order = list(range(rank))
        rng.shuffle(order)
        chain.append(codec("transpose", order=rng.choice([order, order, "F"])))
        order = order if chain[-1]["configuration"]["order"] != "F" else list(range(rank))[::-1]
        shape = [shape[i] for i in order]
    if depth and rng.random() < 0.7:
        inner = [rng.choice([d for d in range(1, n + 1) if n % d == 0]) for n in shape]
        index = [codec("bytes", endian=rng.choice(["little", "big"]))] + rng.choice([[], [CRC]])
        chain.append(shard(inner, random_chain(rng, inner, depth - 1), index,
                           index_location=rng.choice(["start", "end"])))
    else:
        chain.append(codec("bytes", endian=rng.choice(["little", "big"])))
        for _ in range(rng.choice([0, 1, 2])):
            chain.append(rng.choice([
                CRC, ZSTD, codec("zstd", level=-3, checksum=True), codec("gzip", level=5),
                codec("blosc", cname="lz4", clevel=5, shuffle="shuffle", typesize=4, blocksize=0),
            ]))
    return chain


def random_array(rng, dtype, shape):
    data = np.frombuffer(rng.randbytes(int(np.prod(shape)) * dtype.itemsize), np.uint8)
    if dtype == np.bool_:
        data = data & 1
    return data.view(dtype).reshape(shape)


@in_one("seed", range(300))
def test_chunks_of_any_chain_decode_to_what_tensorstore_wrote(tool, seed):
    rng = random.Random(seed)
    rank = rng.choice([0, 1, 2, 3, 3, 4, 4])
    chunk = [rng.choice([1, 2, 3, 4, 6]) for _ in range(rank)]
    name = rng.choice(DTYPES)
    dtype = numpy_dtype(name)
    zero = False if name == "bool" else [0.0, 0.0] if "complex" in name else 0
    document = v3_document([], shape=chunk, data_type=name, chunk_grid=grid(*chunk), fill_value=zero,
                           codecs=random_chain(rng, chunk, 2))
    array, kv = ts_store(document)
    data = random_array(rng, dtype, chunk)
    array.write(data).result()
    key = "/".join(["c"] + ["0"] * rank)
    assert tool.run("decode", document, kv.read(key).result().value) == data.tobytes()


@in_one("seed", range(60))
def test_chunks_of_v2_decode_to_what_tensorstore_wrote(tool, seed):
    rng = random.Random(seed)
    rank = rng.choice([0, 1, 2, 3, 4])
    chunk = [rng.choice([1, 2, 3, 5]) for _ in range(rank)]
    dtype = rng.choice(["|u1", "<i2", ">i2", "<f4", ">f8", ">c8", "<c16", "|b1", "bfloat16"])
    compressor = rng.choice([None, {"id": "zstd"}, {"id": "zlib"}, {"id": "gzip"}, {"id": "bz2"}, {"id": "blosc"}])
    document = v2_document(shape=chunk, chunks=chunk, dtype=dtype, order=rng.choice("CF"), compressor=compressor,
                           dimension_separator="/")
    array, kv = ts_store(document, version=2)
    data = random_array(rng, np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype).newbyteorder("<"), chunk)
    array.write(data).result()
    key = "/".join(["0"] * rank) or "0"
    assert tool.run("decode", document, kv.read(key).result().value) == data.tobytes()


def test_inner_chunks_that_are_missing_are_the_fill_value(tool):
    document = v3_document([], shape=[4, 6], data_type="uint16", chunk_grid=grid(4, 6), fill_value=7, codecs=[
        codec("transpose", order=[1, 0]), shard([2, 2], [BYTES])])
    array, kv = ts_store(document)
    array[:2, 1:3].write(np.array([[1, 2], [3, 4]], np.uint16)).result()
    want = np.full((4, 6), 7, np.uint16)
    want[:2, 1:3] = [[1, 2], [3, 4]]
    assert tool.run("decode", document, kv.read("c/0/0").result().value) == want.tobytes()


# ---- what we write ----

@in_one("name", [
    "bool", "int2", "int4", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float4_e2m1fn", "float8_e3m4", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2",
    "float8_e5m2fnuz", "float8_e8m0fnu", "bfloat16", "float16", "float32", "float64", "complex64", "complex128"])
@in_one("shape,chunk", [([10, 11], [5, 11]), ([], []), ([7], [7]), ([4, 1, 3], [2, 1, 3])])
def test_documents_are_byte_for_byte_tensorstores(tool, name, shape, chunk):
    import tensorstore as ts

    def created(driver, metadata):
        context = ts.Context()
        ts.open({"driver": driver, "kvstore": "memory://", "dtype": name, "create": True,
                 "metadata": metadata}, context=context).result()
        kv = ts.KvStore.open("memory://", context=context).result()
        return kv.read(".zarray" if driver == "zarr" else "zarr.json").result().value

    sizes = ",".join(map(str, shape)) or "-"
    chunks = ",".join(map(str, chunk)) or "-"
    ours = tool.run("create", f"2 {name} 1 plain {sizes} {chunks}")
    assert ours == created("zarr", {"shape": shape, "chunks": chunk, "compressor": {"id": "zstd"}})
    ours = tool.run("create", f"2 {name} none plain {sizes} {chunks}")
    assert ours == created("zarr", {"shape": shape, "chunks": chunk, "compressor": None})
    for level in (3, None):
        inner = [{"name": "bytes"}] + ([{"name": "zstd"}] if level else [])
        level = level or "none"
        ours = tool.run("create", f"3 {name} {level} sharded {sizes} {chunks}")
        assert ours == created("zarr3", {
            "shape": shape, "chunk_grid": grid(*chunk), "codecs": [{"name": "sharding_indexed", "configuration": {
                "chunk_shape": chunk, "codecs": inner,
                "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, CRC]}}]})
        ours = tool.run("create", f"3 {name} {level} plain {sizes} {chunks}")
        assert ours == created("zarr3", {"shape": shape, "chunk_grid": grid(*chunk), "codecs": inner})
        tool.run("text", ours)


@pytest.mark.parametrize("version,keys,keyed", [
    (2, {}, True), (2, {"dimension_separator": "/"}, True),
    (3, {"chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}}}, True),
    (3, {"chunk_key_encoding": {"name": "default"}}, True),
    (3, {"chunk_key_encoding": {"name": "v2"}}, True),
    (3, {"chunk_key_encoding": {"name": "v2", "configuration": {"separator": "/"}}}, True)], ids=unnamed)
@pytest.mark.parametrize("shape,chunk", [([25, 4], [2, 3]), ([], []), ([3], [1])], ids=unnamed)
def test_chunk_keys_are_tensorstores(tool, version, keys, keyed, shape, chunk):
    if version == 2:
        document = v2_document(shape=shape, chunks=chunk, **keys)
    else:
        document = v3_document([], shape=shape, chunk_grid=grid(*chunk), **keys)
    array, kv = ts_store(document, version=version)
    array.write(np.ones(shape, np.uint8)).result()
    theirs = {k.decode() for k in kv.list().result()} - {".zarray", "zarr.json"}
    assert set(tool.run("keys", document).decode().split()) == theirs


def test_the_text_names_everything(tool):
    document = v3_document([], shape=[4, 6, 8], data_type="int32", chunk_grid=grid(4, 6, 8), fill_value=-1, codecs=[
        codec("transpose", order=[2, 0, 1]),
        shard([4, 2, 3], [codec("transpose", order=[1, 2, 0]), BYTES, ZSTD], index_location="start")])
    assert tool.run("text", document).decode().splitlines() == [
        "zarr 3", "dtype int32", "shape [4, 6, 8]", "chunk [4, 6, 8]", "grid [1, 1, 1]", "keys default '/'",
        "fill -1", "elements 192", "bytes 768",
        "shard shape [8, 4, 6] axes [2, 0, 1] grid [2, 2, 2]",
        "  index 132 bytes at start, little-endian, crc32c",
        "  elements shape [2, 3, 4] axes [0, 1, 2] little-endian 96 bytes",
        '    codec {"configuration":{"checksum":false,"level":1},"name":"zstd"}',
    ]


def test_json_of_orbax_is_accepted_as_it_is(tool):
    for text in (
            '{"chunks":[64,64],"compressor":{"id":"zstd","level":1},"dimension_separator":".","dtype":"<f4",'
            '"fill_value":null,"filters":null,"order":"C","shape":[128,64],"zarr_format":2}',
            '{"chunk_grid":{"configuration":{"chunk_shape":[64,64]},"name":"regular"},"chunk_key_encoding":'
            '{"name":"default"},"codecs":[{"configuration":{"chunk_shape":[64,64],"codecs":[{"configuration":'
            '{"endian":"little"},"name":"bytes"},{"configuration":{"checksum":false,"level":3},"name":"zstd"}],'
            '"index_codecs":[{"configuration":{"endian":"little"},"name":"bytes"},{"name":"crc32c"}]},'
            '"name":"sharding_indexed"}],"data_type":"float32","fill_value":0.0,"node_type":"array",'
            '"shape":[128,64],"zarr_format":3}'):
        form = "2 float32 1 plain" if '"zarr_format":2' in text else "3 float32 3 sharded"
        assert tool.run("create", f"{form} 128,64 64,64").decode() == text
        assert json.loads(text)
        tool.run("text", text)
