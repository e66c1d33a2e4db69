# SPDX-License-Identifier: Apache-2.0
"""Casts, fill values and values as text against numpy, ml_dtypes and TensorStore.

Every input of the types up to 16 bits, and about a hundred thousand of each wider one: random bits,
random magnitudes, and the neighbours of every number half-way between two numbers of a small type.
"""

import functools
import json
import math

import numpy as np
import pytest

ml_dtypes = pytest.importorskip("ml_dtypes")

from zarr_tools import CastTool, Refused, codec, grid, ts_store, v2_document, v3_document  # noqa: E402
from lib.pairs import LONG, in_one

pytestmark = pytest.mark.filterwarnings("ignore")

NAMES = [
    "bool", "int2", "int4", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float4_e2m1fn", "float8_e3m4", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2",
    "float8_e5m2fnuz", "float8_e8m0fnu", "bfloat16", "float16", "float32", "float64", "complex64", "complex128",
]
SMALL_FLOATS = [n for n in NAMES if n.startswith(("float4", "float8"))]
SUB_BYTE = {"int2": 0x03, "int4": 0x0f, "float4_e2m1fn": 0x0f}
# Of what Python looks at one by one tests/run takes some.
STEP = 1 if LONG else 7
V2_NAMES = {"bool": "|b1", "int8": "|i1", "uint8": "|u1", "int16": "<i2", "int32": "<i4", "int64": "<i8",
            "uint16": "<u2", "uint32": "<u4", "uint64": "<u8", "float16": "<f2", "float32": "<f4",
            "float64": "<f8", "complex64": "<c8", "complex128": "<c16"}


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


@pytest.fixture(scope="module")
def tool():
    tool = CastTool()
    yield tool
    tool.close()


# ---- inputs ----

def half_way():
    """Numbers of all small float types, and those half-way between two."""
    rng = np.random.default_rng(1)
    found = []
    for name in SMALL_FLOATS + ["bfloat16", "float16"]:
        v = np.unique(inputs(name).astype(np.float64))
        v = v[np.isfinite(v)]
        for numbers in (v, (v[1:] + v[:-1]) / 2):
            found.append(numbers if len(numbers) < 4000 else rng.choice(numbers, 4000))
    return np.concatenate(found)


def integers(dtype):
    rng = np.random.default_rng(2)
    n, bits = 50000, dtype.itemsize * 8
    random = np.frombuffer(rng.bytes(n * dtype.itemsize), dtype)
    powers = np.array([1 << i for i in range(bits - 1)], np.int64)
    near = np.concatenate([powers + d for d in (-1, 0, 1, 2)] + [-powers + d for d in (-1, 0, 1)]).astype(dtype)
    return np.concatenate([random, random >> rng.integers(0, bits, n).astype(dtype), near, ~near])


def floats(dtype):
    rng = np.random.default_rng(3)
    n = 30000
    bits = np.uint32 if dtype.itemsize == 4 else np.uint64
    mantissa = (1 << (23 if bits is np.uint32 else 52)) - 1
    near = half_way().astype(dtype)
    parts = [np.frombuffer(rng.bytes(n * dtype.itemsize), dtype),
             (rng.standard_normal(n) * 10.0 ** rng.uniform(-45, 40, n)).astype(dtype),
             (rng.standard_normal(n) * 2.0 ** rng.uniform(-30, 70, n)).astype(dtype),
             near, np.nextafter(near, dtype.type(np.inf)), np.nextafter(near, dtype.type(-np.inf))]
    if dtype.itemsize == 8:
        # Values that float32 cannot distinguish from half-way.
        parts += [near * (1 + 2.0**-30), near * (1 - 2.0**-30), near * (1 + 2.0**-26)]
    edges = np.array([s * (2.0**e + d) for e in range(66) for d in (-1, -.5, 0, .5, 1) for s in (1, -1)])
    parts.append(np.concatenate([edges, [0.0, -0.0, np.inf, -np.inf, 2147483647.5, -2147483648.5]]).astype(dtype))
    payloads = rng.integers(1, mantissa, 2000, dtype=np.int64).astype(bits)
    nans = payloads | bits(((1 << (dtype.itemsize * 8 - 1)) - 1) & ~mantissa)
    nans[::2] |= bits(1 << (dtype.itemsize * 8 - 1))
    return np.concatenate(parts + [nans.view(dtype)])


@functools.cache
def inputs(name):
    dtype = dtype_of(name)
    if dtype.itemsize == 1:
        codes = {"bool": 2}.get(name, SUB_BYTE.get(name, 0xff) + 1)
        return np.tile(np.arange(codes, dtype=np.uint8), 4096 // codes).view(dtype)
    if dtype.itemsize == 2:
        return np.arange(65536, dtype=np.uint16).view(dtype)
    if dtype.kind == "c":
        part = floats(np.dtype(np.float32 if name == "complex64" else np.float64))
        z = np.empty(len(part), dtype)
        z.real, z.imag = part, np.random.default_rng(4).permutation(part)
        z = np.concatenate([z, np.array([0, 1j, 1, complex(0, np.nan), complex(-0.0, -0.0)], dtype)])
    elif dtype.kind in "iu":
        z = integers(dtype)
    else:
        z = floats(dtype)
    # The last elements, which fill no vector, are plain ones: there numpy has other uint32 values.
    return np.concatenate([z, np.zeros(64 + -len(z) % 64, dtype)])


def numpy_cast(a, source, target):
    try:
        return a.astype(dtype_of(target))
    except TypeError:
        assert "float8_e8m0fnu" in (source, target) or (source, target) == ("int4", "int2")
        return a.astype(np.int8 if source == "int4" and target == "int2" else np.float32).astype(dtype_of(target))


def differing(ours, theirs, size):
    ours, theirs = (np.frombuffer(b, np.uint8).reshape(-1, size) for b in (ours, theirs))
    assert ours.shape == theirs.shape
    return np.nonzero((ours != theirs).any(1))[0]


@pytest.mark.feature('A5')
@pytest.mark.parametrize("source", NAMES)
@in_one("target", NAMES)
def test_casts_equal_numpy_and_ml_dtypes_bit_by_bit(tool, source, target):
    a = inputs(source)
    with np.errstate(all="ignore"):
        theirs = numpy_cast(a, source, target)
    ours = tool.cast(source, target, a.tobytes())
    bad = differing(ours, theirs.tobytes(), theirs.itemsize)
    size = theirs.itemsize
    assert not len(bad), [(a[i:i + 1].tobytes().hex(), theirs[i:i + 1].tobytes().hex(),
                           ours[i * size:(i + 1) * size].hex()) for i in bad[:5]]


@pytest.mark.parametrize("source", sorted(SUB_BYTE))
def test_bits_above_a_small_type_mean_nothing(tool, source):
    every = bytes(range(256))
    low = bytes(b & SUB_BYTE[source] for b in every)
    for target in NAMES:
        assert tool.cast(source, target, every) == tool.cast(source, target, low), target


# ---- TensorStore ----

ROUNDED_ONCE = {(s, t) for s in ("float64", "complex128") for t in SMALL_FLOATS}
ROUNDED_TWICE = {(s, "float16") for s in ("float64", "complex128")}
RANGE = ({(s, "uint32") for s in ("bfloat16", "complex64", "complex128")} |
         {(s, t) for s in ("float64", "complex128") for t in ("int2", "int4")})


@pytest.mark.parametrize("source", NAMES)
@in_one("target", NAMES)
def test_where_tensorstores_casts_differ_is_known(tool, source, target):
    """The list in cast.h. NaNs may differ in sign and payload anywhere."""
    ts = pytest.importorskip("tensorstore")
    if source == target:
        return
    a = inputs(source)
    a = a if len(a) <= 65536 else np.concatenate([a[::3], a[-64:]])
    try:
        theirs = np.ascontiguousarray(ts.cast(ts.array(a), ts.dtype(target)).read().result())
    except ValueError:
        assert source.startswith("complex") and target == "bool"
        return
    theirs = theirs.tobytes()
    if target in SUB_BYTE:
        theirs = bytes(np.frombuffer(theirs, np.uint8) & SUB_BYTE[target])
    bad = differing(tool.cast(source, target, a.tobytes()), theirs, dtype_of(target).itemsize)
    if "float8_e8m0fnu" in (source, target):
        assert len(bad), "TensorStore has mended float8_e8m0fnu: update cast.h and dtype_fill.c"
        return
    if dtype_of(source).kind not in "iub" and source not in SUB_BYTE:
        with np.errstate(all="ignore"):
            real = a.real if source.startswith("complex") else a
            bad = bad[~np.isnan(real[bad].astype(np.float64))]
    known = (source, target) in ROUNDED_ONCE | ROUNDED_TWICE | RANGE
    assert known or not len(bad), a[bad[:5]]
    if (source, target) in ROUNDED_ONCE | ROUNDED_TWICE:
        assert len(bad) and len(bad) < len(a) / 20


# ---- fill values ----

FILLS = [
    True, False, 0, 1, -1, 1.0, 1.5, -0.0, 0.1, 1e-5, 1e10, 7, 8, -8, -9, 127, 128, -128, -129, 255, 256, 32767,
    -32768, 65535, 65536, 2**31 - 1, 2**31, -2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, -2**63, -2**63 - 1,
    2**64 - 1, 2**64, 1e19, 1e30, 1e300, 5e-324, 1e-45, 6e-8, 65504, 65519, 65520, 448, 464, 465, 57344, 61440,
    61441, 240, 248, 15.5, 15.75, 2.0**-62, 1.4 * 2.0**-63, 2.0**-63, 3.0, 2.0**191, 1.5 * 2.0**191, 3.5e38,
    1 + 2.0**-4 + 2.0**-40, 1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-24 + 2.0**-50,
    "NaN", "Infinity", "-Infinity", "nan", "inf", "1.0", " 1 ", "+1", "1e400", "0x1", "0x", "0X1", "0x1p3", "0xfe",
    "0x7f", "0xFF", "0x7e00", "0x7fc0", "0x7fc00001", "0xff800001", "0x7ff8000000000000", "0x7ff0000000000001",
    "0xffffffffffffffff", "0x00", "0x8", "0xg", "abc", "", [1, 2], [1.5, "NaN"], ["Infinity", -0.0], [1], [1, 2, 3],
    ["0x1", "0x7fc00001"], ["1", "2"], [1, None], {}, "AQ==", "Ag", "A g = =", "Ag=", "Ag===", "_w==", "+w==",
    "AAAAAAAAAAA=", "AACAPwAAAEA=", "AAAAAAAA8D8AAAAAAAAAQA==",
]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_fill_values_are_tensorstores(tool, name, version):
    pytest.importorskip("tensorstore")
    rng = np.random.default_rng(5)
    size = dtype_of(name).itemsize
    hexes = ["0x%0*x" % (2 * size, v) for v in (range(0, 256, STEP) if size == 1 else [
        int.from_bytes(rng.bytes(min(size, 8)), "little") for _ in range(20)])]
    for value in FILLS + hexes:
        if version == 2:
            document = v2_document(shape=[1], chunks=[1], dtype=V2_NAMES.get(name, name), fill_value=value)
        else:
            document = v3_document([], shape=[1], chunk_grid=grid(1), data_type=name, fill_value=value)
        try:
            array, kv = ts_store(document, version=version)
            theirs = array.read().result().tobytes()
        except ValueError:
            theirs = None
        try:
            ours = tool.fill(version, name, value)
        except Refused:
            ours = None
        if theirs and name in SUB_BYTE:
            theirs = bytes([theirs[0] & SUB_BYTE[name]])
        assert ours == theirs, value
        if theirs is None:
            continue
        # Resizing makes TensorStore write the document, and so the value, anew.
        array.resize(exclusive_max=[2], resize_metadata_only=True).result()
        text = kv.read(".zarray" if version == 2 else "zarr.json").result().value
        if name not in SUB_BYTE or array.read().result().tobytes()[:1] == ours:
            # Compared as values with type and sign: of two texts that are equally short and equally
            # near TensorStore takes the other one.
            assert repr(json.loads(tool.unfill(version, name, ours))) == repr(json.loads(text)["fill_value"]), value


# ---- values as text ----

def python_value(x, name):
    if name == "bool":
        return bool(x)
    return int(x) if dtype_of(name).kind in "iu" or name in ("int2", "int4") else float(x)


def fewer_digits(text):
    """The number rounded to one significant digit less; None when it has but one."""
    digits = text.lstrip("-").split("e")[0].replace(".", "").strip("0")
    return "%.*e" % (len(digits) - 2, float(text)) if len(digits) > 1 else None


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith("complex")])
def test_values_are_printed_shortest_and_read_back(tool, name):
    dtype = dtype_of(name)
    a = inputs(name)
    a = np.unique(a.view(f"u{dtype.itemsize}")).view(dtype)
    a = a[::STEP if len(a) > 256 else 1] if len(a) <= 65536 else np.random.default_rng(6).choice(a, 20000 // STEP)
    if name == "float64":
        a = np.concatenate([a, [2.0**e for e in range(-1074, 1024)]])
    for x, text in zip(a, tool.texts(name, a.tobytes()), strict=True):
        value = python_value(x, name)
        if isinstance(value, float) and not math.isfinite(value):
            assert text == ('"NaN"' if value != value else '"Infinity"' if value > 0 else '"-Infinity"')
            continue
        if name == "bool" or isinstance(value, int):
            assert text == json.dumps(value)
            continue
        assert "." in text or "e" in text
        if name == "float64":
            assert text == json.dumps(value)
            continue
        if name in ("float16", "float32"):
            assert float(text) == float(str(x))
        assert np.array([float(text)]).astype(dtype).tobytes() == x.tobytes()
        fewer = fewer_digits(text)
        assert fewer is None or np.array([float(fewer)]).astype(dtype).tobytes() != x.tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_printed_values_parse_to_themselves(tool, name):
    dtype = dtype_of(name)
    a = inputs(name)
    a = a[np.random.default_rng(7).permutation(len(a))[:300]]
    for x, text in zip(a, tool.texts(name, a.tobytes()), strict=True):
        again = tool.parse(name, text)
        if "NaN" in text:
            assert np.isnan(np.frombuffer(again, dtype)[0].astype(np.complex64))
        else:
            assert again == x.tobytes(), text


def test_json_of_python_parses_as_numpy_converts(tool):
    assert np.frombuffer(tool.parse("float32", "0.1"), np.float32)[0] == np.float32(0.1)
    assert np.frombuffer(tool.parse("float64", "1e400"), np.float64)[0] == np.inf
    assert np.isnan(np.frombuffer(tool.parse("float32", "NaN"), np.float32)[0])
    for name, text in (("float32", "1e39"), ("float16", "65520"), ("float8_e4m3fn", "465"), ("int8", "128"),
                       ("uint8", "-1"), ("int32", "1.5"), ("bool", "1"), ("float4_e2m1fn", "7"),
                       ("float8_e4m3fn", '"Infinity"'), ("float8_e8m0fnu", "0"), ("complex64", "1.0"),
                       ("int4", "8"), ("uint64", "-0.5"), ("float32", '"1"')):
        with pytest.raises(Refused):
            tool.parse(name, text)


def test_codec_of_the_documents_above_is_plain():
    """A guard: the documents of fill values really are read without a codec."""
    assert v3_document([])["codecs"] == [codec("bytes", endian="little")]
