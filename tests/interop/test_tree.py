# SPDX-License-Identifier: Apache-2.0
"""core/tree against real Orbax: `_METADATA` of every container kind is parsed, and printed back byte
for byte; texts are spelled as Python's repr() does."""
import collections
import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys
import unicodedata

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import numpy as np
import pytest
from lib.pairs import pairs

jax = pytest.importorskip("jax")
ocp = pytest.importorskip("orbax.checkpoint")
import msgpack
from jax.sharding import NamedSharding, PartitionSpec as P
from orbax.checkpoint import msgpack_utils
from orbax.checkpoint import v1 as ocp1
from orbax.checkpoint._src.metadata import pytree_metadata_options as options_lib

BUILD = os.environ["PYTREEFS_BUILD"]
TOOL = os.path.join(BUILD, "tests", "unit", "tree_tool")


def tool(*args, data=None):
    """Return the output of the tool, as bytes."""
    done = subprocess.run([TOOL, *map(str, args)], input=data, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def refused(*args, data=None):
    done = subprocess.run([TOOL, *map(str, args)], input=data, capture_output=True)
    assert done.returncode == 1
    return done.stderr.decode()


Moments = collections.namedtuple("Moments", ["zeta", "alpha"])
Empty = collections.namedtuple("Empty", [])


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class State:
    step: int
    params: dict


@jax.tree_util.register_pytree_node_class
class Opaque:
    """A custom node without key paths: JAX numbers its children."""

    def __init__(self, a, b):
        self.a, self.b = a, b

    def tree_flatten(self):
        return (self.a, self.b), None

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(*children)


def sharded(shape, spec, dtype=np.float32):
    mesh = jax.make_mesh((4, 2), ("x", "y"))
    return jax.device_put(np.zeros(shape, dtype), NamedSharding(mesh, P(*spec)))


def array(n=3):
    return np.arange(n, dtype=np.int32)


def trees():
    yield "plain", {"b": array(), "a": {"z": 1, "y": 2.5, "x": True}, "s": "text"}
    yield "sequences", {"l": [array(), [array(), {"k": array()}]], "t": (array(), (array(),)), "one": [array()]}
    yield "long list", {"l": list(range(12))}
    yield "named", {"opt": Moments(zeta=array(), alpha={"m": array()}), "more": [Moments(array(), array())]}
    yield "objects", {"state": State(step=3, params={"w": array()}), "o": Opaque(array(), [array()])}
    yield "empty", {"d": {}, "l": [], "t": (), "n": None, "e": Empty(), "x": {"y": {"z": {}}}, "v": array()}
    yield "keys that are not text", {3: array(), 10: array(), -1: array()}
    yield "odd keys", {
        k: array()
        for k in ["it's", 'say "hi"', "both ' and \"", "new\nline", "tab\t", "é", "日本", "😀", "a.b", "a/b",
                  "100%", "[0]", "@x", "", " ", "\x7f", "\x1f", "\\", "\u200b", "\u2028", "\xa0", "~", "a~1b"]
    }
    yield "bare array", array()
    yield "bare scalar", 5
    yield "jax arrays", {
        "one": jax.numpy.ones((8,)),
        "x": sharded((8, 8), ("x",)),
        "xy": sharded((8, 8), ("x", "y")),
        "rep": sharded((8, 8), ()),
        "scalar": jax.numpy.float32(3),
        "key": jax.random.key(7),
    }
    yield "deep", deep(60)


def deep(n):
    tree = array()
    for i in range(n):
        tree = {"k": tree} if i % 3 else [tree]
    return tree


CASES = dict(trees())


def save_v0(path, tree, rich, **kwargs):
    handler = ocp.PyTreeCheckpointHandler(
        pytree_metadata_options=options_lib.PyTreeMetadataOptions(support_rich_types=rich), **kwargs)
    ocp.Checkpointer(handler).save(path, tree)
    return path / "_METADATA"


def save_v1(path, tree, rich):
    context = ocp1.Context()
    context.pytree.saving.pytree_metadata_options = options_lib.PyTreeMetadataOptions(support_rich_types=rich)
    with context:
        ocp1.save(path, tree)
    return path / "state" / "_METADATA"


@pytest.mark.parametrize("rich, save, name", pairs([False, True], [save_v0, save_v1], list(CASES)))
def test_metadata_is_printed_back_byte_for_byte(tmp_path, name, save, rich):
    metadata = save(tmp_path / "c", CASES[name], rich)
    assert tool("print", metadata) == metadata.read_bytes()


@pytest.mark.feature('B4', 'D5')
@pytest.mark.parametrize("kwargs", [dict(use_ocdbt=False), dict(use_zarr3=True), dict(use_compression=False)],
                         ids=str)
def test_handler_options_are_printed_back(tmp_path, kwargs):
    metadata = save_v0(tmp_path / "c", CASES["plain"], False, **kwargs)
    assert tool("print", metadata) == metadata.read_bytes()


@pytest.mark.feature('B9')
@pytest.mark.parametrize("custom", [{"a": [1, 2.5, None, True, "é\x7f", 1e22, 10**30, float("inf")]}, [], "", 0])
def test_custom_metadata_is_printed_back(tmp_path, custom):
    handler = ocp.PyTreeCheckpointHandler()
    ocp.Checkpointer(handler).save(
        tmp_path / "c", args=ocp.args.PyTreeSave(CASES["plain"], custom_metadata=custom))
    metadata = tmp_path / "c" / "_METADATA"
    assert tool("print", metadata) == metadata.read_bytes()


def expected(tree, rich):
    """The lines of tree_text() for a tree of numpy leaves."""
    lines = []

    def is_namedtuple(x):
        return isinstance(x, tuple) and hasattr(x, "_fields")

    def children(x):
        if isinstance(x, dict):
            return "dict", "", [(repr_json(k), x[k]) for k in sorted(x)]
        if is_namedtuple(x):
            kind = "namedtuple" if rich else "dict"
            cls = type(x)
            what = f' "{cls.__module__}" "{cls.__qualname__}"' if rich else ""
            return kind, what, [(repr_json(k), getattr(x, k)) for k in x._fields]
        if isinstance(x, tuple):
            return "tuple" if rich or not x else "list", "", [(str(i), v) for i, v in enumerate(x)]
        if isinstance(x, list):
            return "list", "", [(str(i), v) for i, v in enumerate(x)]
        return None

    def walk(key, x, path, depth):
        found = children(x)
        if found and (found[2] or not is_namedtuple(x)):
            lines.append("  " * depth + f"{key} {found[0]}{found[1] if found[2] else ''}")
            for k, v in found[2]:
                walk(k, v, path + [k.strip('"')], depth + 1)
        elif x is None or is_namedtuple(x):
            what = "None" if x is None or not rich else "NamedTuple"
            lines.append("  " * depth + f'{key} leaf none "{what}" param "{".".join(path)}"')
        else:
            lines.append("  " * depth + f'{key} leaf stored "np.ndarray" param "{".".join(path)}"')

    def repr_json(k):
        return f'"{k}"'

    walk(".", tree, [], 0)
    return lines


@pytest.mark.feature('E3', 'D4')
@pytest.mark.parametrize("rich", [False, True], ids=["plain", "rich"])
@pytest.mark.parametrize("save", [save_v0, save_v1], ids=["v0", "v1"])
@pytest.mark.parametrize("name", ["sequences", "named", "deep"])
def test_the_structure_is_the_tree_that_was_saved(tmp_path, name, save, rich):
    metadata = save(tmp_path / "c", CASES[name], rich)
    lines = tool("text", metadata).decode().splitlines()
    assert lines[0].startswith("use_ocdbt true")
    assert f"rich {str(rich).lower()}" in lines[0]
    assert lines[1:] == expected(CASES[name], rich)


@pytest.mark.parametrize("rich", [False, True], ids=["plain", "rich"])
def test_empty_nodes_keep_their_kind(tmp_path, rich):
    metadata = save_v0(tmp_path / "c", CASES["empty"], rich)
    assert tool("text", metadata).decode().splitlines()[1:] == expected(CASES["empty"], rich)


def test_a_node_without_keys_is_custom_with_rich_types(tmp_path):
    tree = {"o": Opaque(array(), array())}
    assert '\n  "o" list\n    0 leaf' in tool("text", save_v0(tmp_path / "a", tree, False)).decode()
    assert '\n  "o" custom\n    0 leaf' in tool("text", save_v0(tmp_path / "b", tree, True)).decode()


def test_write_shapes_are_those_of_orbax(tmp_path):
    text = tool("text", save_v0(tmp_path / "c", CASES["jax arrays"], False)).decode()
    got = dict(re.findall(r'param "(.*)" write_shape (.*)', text))
    stored = json.loads((tmp_path / "c" / "array_metadatas" / "process_0").read_text())["array_metadatas"]
    want = [x["array_metadata"] for x in stored]
    assert got == {x["param_name"]: str(x["write_shape"]).replace(" ", "") for x in want}


def test_what_we_print_orbax_reads(tmp_path):
    """A rich tree printed by us gives namedtuples back."""
    tree = {"opt": Moments(array(), (array(),)), "l": [array()]}
    metadata = save_v0(tmp_path / "c", tree, True)
    printed = tool("print", metadata)
    metadata.write_bytes(printed)
    handler = ocp.PyTreeCheckpointHandler(
        pytree_metadata_options=options_lib.PyTreeMetadataOptions(support_rich_types=True))
    restored = ocp.Checkpointer(handler).restore(tmp_path / "c")
    assert restored["opt"]._fields == ("zeta", "alpha")
    assert isinstance(restored["opt"].alpha, tuple)


def test_repr_is_pythons():
    """Every code point: what our table does not know as printable must be new in this Python."""
    chars = [chr(c) for c in range(1, sys.maxunicode + 1) if not 0xD800 <= c < 0xE000 and chr(c) not in "\n"]
    ours = tool("repr", "-", data="\n".join(chars).encode()).decode().split("\n")[:-1]
    assert len(ours) == len(chars)
    newer = tuple(map(int, unicodedata.unidata_version.split(".")[:2])) > (14, 0)
    wrong = [c for c, text in zip(chars, ours) if text != repr(c) and not (newer and c.isprintable())]
    assert not wrong
    for text in ["it's", '"', "'\"", "\\", "", "a\tb\rc", "é'\u200b\U000e0001"]:
        assert tool("repr", "-", data=text.encode() or b"\n").decode() == repr(text) + "\n"


# ---- the aggregate file ----


def sha(a):
    return hashlib.sha256(np.asarray(a).tobytes()).hexdigest()[:32]


AGGREGATE = {
    "none": None,
    "yes": True,
    "no": False,
    "int": -7,
    "big": 2**64 - 1,
    "float": 0.1,
    "nan": float("nan"),
    "text": "é\n",
    "bytes": b"\x00\xff",
    "complex": 1.5 - 2j,
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "bf16": jax.numpy.ones((2, 2), jax.numpy.bfloat16),
    "empty array": np.zeros((0, 3), np.int8),
    "rank 0": np.array(5, np.int16),
    "npscalar": np.float64(2.5),
    "nested": {"l": [1, {"x": np.bool_(True)}], "t": (1, (2, "x"), np.int8(3)), "d": {}, "e": []},
    "stored": "PLACEHOLDER://params.w",
    "older": "AGGREGATED://params.v",
}


@pytest.mark.feature('A1')
def test_aggregate_values(tmp_path):
    file = tmp_path / "checkpoint"
    file.write_bytes(msgpack_utils.msgpack_serialize(dict(AGGREGATE), in_place=True))
    lines = tool("aggregate", file).decode().splitlines()[1:]
    want = [
        ". dict",
        '  "none" leaf none "None" param "none"',
        '  "yes" leaf aggregate "scalar" param "yes": true',
        '  "no" leaf aggregate "scalar" param "no": false',
        '  "int" leaf aggregate "scalar" param "int": int -7',
        '  "big" leaf aggregate "scalar" param "big": int 18446744073709551615',
        '  "float" leaf aggregate "scalar" param "float": float 0.1',
        '  "nan" leaf aggregate "scalar" param "nan": float NaN',
        '  "text" leaf aggregate "string" param "text": string "\\u00e9\\n"',
        '  "bytes" leaf aggregate "bytes" param "bytes": bytes 00ff',
        '  "complex" leaf aggregate "scalar" param "complex": complex 1.5 -2.0',
        f'  "w" leaf aggregate "np.ndarray" param "w": array float32 [2,3] item 4 sha256 {sha(AGGREGATE["w"])}',
        f'  "bf16" leaf aggregate "np.ndarray" param "bf16": array bfloat16 [2,2] item 2 sha256 '
        f'{sha(AGGREGATE["bf16"])}',
        f'  "empty array" leaf aggregate "np.ndarray" param "empty array": array int8 [0,3] item 0 sha256 {sha([])}',
        f'  "rank 0" leaf aggregate "np.ndarray" param "rank 0": array int16 [] item 2 sha256 '
        f'{sha(AGGREGATE["rank 0"])}',
        f'  "npscalar" leaf aggregate "scalar" param "npscalar": np-scalar float64 [] item 8 sha256 '
        f'{sha(AGGREGATE["npscalar"])}',
        '  "nested" dict',
        '    "l" list',
        '      0 leaf aggregate "scalar" param "nested.l.0": int 1',
        "      1 dict",
        f'        "x" leaf aggregate "scalar" param "nested.l.1.x": np-scalar bool [] item 1 sha256 {sha(np.True_)}',
        '    "t" tuple',
        '      0 leaf aggregate "scalar" param "nested.t.0": int 1',
        "      1 tuple",
        '        0 leaf aggregate "scalar" param "nested.t.1.0": int 2',
        '        1 leaf aggregate "string" param "nested.t.1.1": string "x"',
        f'      2 leaf aggregate "scalar" param "nested.t.2": np-scalar int8 [] item 1 sha256 {sha(np.int8(3))}',
        '    "d" dict',
        '    "e" list',
        '  "stored" leaf stored "" param "params.w"',
        '  "older" leaf stored "" param "params.v"',
    ]
    assert lines == want


def test_aggregate_is_written_as_orbax_reads_it(tmp_path):
    file = tmp_path / "checkpoint"
    file.write_bytes(msgpack_utils.msgpack_serialize(AGGREGATE))
    ours = tool("pack", file)
    theirs = msgpack_utils.msgpack_restore(ours)
    want = msgpack_utils.msgpack_restore(file.read_bytes())
    want["older"] = "PLACEHOLDER://params.v"
    assert repr(theirs) == repr(want)
    # Which is also the very spelling, but for that placeholder.
    assert ours == msgpack_utils.msgpack_serialize(dict(AGGREGATE, older="PLACEHOLDER://params.v"))


@pytest.mark.parametrize("size", [7, 8, 64])
def test_arrays_in_chunks(tmp_path, monkeypatch, size):
    monkeypatch.setattr(msgpack_utils, "MAX_CHUNK_SIZE", size)
    w = np.arange(40, dtype=np.int32).reshape(5, 8)
    data = msgpack_utils.msgpack_serialize({"a": {"w": w}})
    assert b"__msgpack_chunked_array__" in data
    text = tool("aggregate", "-", data=data).decode()
    assert f'"w" leaf aggregate "np.ndarray" param "a.w": array int32 [5,8] item 4 sha256 {sha(w)}' in text


def test_arrays_of_many_axes():
    for rank in (7, 8):
        w = np.ones((1,) * rank, np.int8)
        text = tool("aggregate", "-", data=msgpack_utils.msgpack_serialize({"w": w})).decode()
        assert f"array int8 [{','.join('1' * rank)}] item 1" in text
    w = np.ones((1,) * 9, np.int8)
    assert refused("aggregate", "-", data=msgpack_utils.msgpack_serialize({"w": w})).startswith("-95 ")


def test_other_msgpack_is_refused():
    for data, code in [
        (b"", -117), (b"\xc1", -117), (b"\x81\xa1a", -117), (b"\x81\xa1a\x01\x02", -117),
        (msgpack.packb({1.5: 2}), -117), (msgpack.packb({"a": "\ud800"}, unicode_errors="surrogatepass"), -117),
        (msgpack.packb({"a": msgpack.ExtType(9, b"x")}), -95), (b"\xc7\x00\x01", -117),
        (b"\xdd\xff\xff\xff\xff", -117), (b"\xdf\xff\xff\xff\xff", -117), (b"\xc6\xff\xff\xff\xff", -117),
        (b"\xc9\xff\xff\xff\xff\x01", -117), (b"\x91" * 201, -27), (b"\x91" * 100000, -27),
    ]:
        assert refused("aggregate", "-", data=data).startswith(f"{code} "), data[:20]


def test_tuples_are_bounded():
    def nest(n):
        data = msgpack.packb(1)
        for _ in range(n):
            data = msgpack.packb(msgpack.ExtType(4, b"\x91" + data))
        return data

    assert tool("aggregate", "-", data=nest(199)).count(b"tuple") == 199
    assert refused("aggregate", "-", data=nest(250)).startswith("-27 ")


@pytest.mark.feature('A1', 'B12')
def test_merge_follows_orbax(tmp_path):
    """A checkpoint whose aggregate file has values: restored by Orbax and merged by us."""
    ckptr = ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False))
    ckptr.save(tmp_path / "c", {"a": array(), "b": array(), "c": {"d": 1, "e": {}, "n": array()}, "f": "s"})
    (tmp_path / "c" / "checkpoint").write_bytes(msgpack_utils.msgpack_serialize(
        {"a": "PLACEHOLDER://a", "b": np.float32([7, 8]), "c": {"d": 99, "n": None}, "f": "in file"}))
    restored = ckptr.restore(tmp_path / "c")
    assert restored["c"]["d"] == 99 and restored["c"]["n"] is None and restored["f"] == "in file"
    np.testing.assert_array_equal(restored["b"], [7, 8])
    np.testing.assert_array_equal(restored["a"], array())
    lines = tool("merge", tmp_path / "c" / "_METADATA", tmp_path / "c" / "checkpoint").decode().splitlines()[1:]
    assert lines == [
        ". dict",
        '  "a" leaf stored "np.ndarray" param "a"',
        f'  "b" leaf aggregate "np.ndarray" param "b": array float32 [2] item 4 sha256 {sha(np.float32([7, 8]))}',
        '  "c" dict',
        '    "d" leaf aggregate "scalar" param "c.d": int 99',
        '    "e" dict',
        '    "n" leaf none "None" param "c.n"',
        '  "f" leaf aggregate "string" param "f": string "in file"',
    ]


def test_a_large_tree_prints_as_it_was(tmp_path):
    """20,000 leaves."""
    entries = {}
    for i in range(20000):
        keys = ("params", f"layer_{i // 20}", f"kernel_{i % 20}")
        entries[str(keys)] = {"key_metadata": [{"key": k, "key_type": 2} for k in keys],
                              "value_metadata": {"value_type": "np.ndarray", "skip_deserialize": False}}
    file = tmp_path / "_METADATA"
    file.write_text(json.dumps({"tree_metadata": entries, "use_ocdbt": True, "use_zarr3": False,
                                "store_array_data_equal_to_fill_value": True, "custom_metadata": None}))
    assert tool("print", file) == file.read_bytes()
