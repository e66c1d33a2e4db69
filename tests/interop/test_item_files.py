# SPDX-License-Identifier: Apache-2.0
"""`_strings.json`, `_sharding` and `array_metadatas/` against real Orbax, TensorStore and JAX: what
they write is read and printed back byte for byte, and boxes are those of jax arrays."""
import itertools
import json
import os
import subprocess

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import numpy as np
import pytest

jax = pytest.importorskip("jax")
ocp = pytest.importorskip("orbax.checkpoint")
import tensorstore as ts
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

BUILD = os.environ["PYTREEFS_BUILD"]
TOOL = os.path.join(BUILD, "tests", "unit", "meta_tool")


def run(*args, data=None):
    return subprocess.run([TOOL, *map(str, args)], input=data, capture_output=True)


def tool(*args, data=None):
    done = run(*args, data=data)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def save(path, tree):
    ocp.PyTreeCheckpointer().save(path, tree)
    return path


# ---- strings ----

STRINGS = {
    "tag": "run-A", "a.b": "dots", "é": "ünïcode 日本 😀", "": "empty name", "with space": "", "quote\"'": "\"\\/",
    "nl\n": "a\nb\tc\x00d\x7f\x1f\u2028", "0": "zero", "-": "dash", "a~0b": "tilde", "a~1b": "slash", "[x]": "1",
    "nested": {"list": ["one", "two"], "deep": {"er": "x" * 100000}},
    "meta/author": "me", "meta/date": "now", "meta/x/y": "z", "up/": "trailing", "UPPER": "B", "b": "b",
}


def names(tree, path=()):
    if isinstance(tree, dict):
        for k, v in tree.items():
            yield from names(v, path + (k,))
    elif isinstance(tree, list):
        for i, v in enumerate(tree):
            yield from names(v, path + (str(i),))
    else:
        yield ".".join(path), tree


def test_texts_are_what_was_saved(tmp_path):
    file = save(tmp_path / "c", STRINGS) / "_strings.json"
    for name, text in names(STRINGS):
        assert tool("string", file, name).decode() == text, name


def test_strings_are_written_as_orbax_writes_them(tmp_path):
    file = save(tmp_path / "c", STRINGS) / "_strings.json"
    pairs = [(n, t) for n, t in names(STRINGS) if "\0" not in t]
    written = tool("strings", "-", data="".join(f"{n}\0{t}\0" for n, t in pairs).encode())
    stored = json.loads(file.read_bytes())
    del stored["nl\n"]
    assert json.loads(written) == stored
    # Byte for byte, but for the one text that the tool cannot be given.
    (tmp_path / "d").mkdir()
    theirs = save(tmp_path / "e", {n: t for n, t in pairs}) / "_strings.json"
    assert written == theirs.read_bytes()


@pytest.mark.feature('A13')
def test_what_we_write_orbax_restores(tmp_path):
    path = save(tmp_path / "c", {"a": "x", "b/c": "y", "b/d": {"e~1f": "z"}})
    texts = {"a": "new é", "b/c": "", "b/d.e~1f": "\"\\"}
    (path / "_strings.json").write_bytes(
        tool("strings", "-", data="".join(f"{n}\0{t}\0" for n, t in texts.items()).encode()))
    assert ocp.PyTreeCheckpointer().restore(path) == {"a": "new é", "b/c": "", "b/d": {"e~1f": "\"\\"}}


def read_ts(path, pointer):
    try:
        spec = {"driver": "json", "kvstore": f"file://{path}", "json_pointer": pointer}
        return str(ts.open(spec).result().read().result())
    except ValueError:
        return None


@pytest.mark.parametrize("value", [
    "5", "-0", "1.5", "1e22", "1e-7", "0.1", "100000.0", "1e16", "1E5", "123456789012345678901234",
    "18446744073709551615", "-9223372036854775808", "true", "false", "null", "-0.0", "5e-324",
    "1.7976931348623157e308", '"x"', '"\\u00e9\\ud83d\\ude00"'])
def test_other_values_have_pythons_text(tmp_path, value):
    file = tmp_path / "f.json"
    file.write_text('{"k": %s, "l": [[%s]]}' % (value, value))
    want = read_ts(file, "/k")
    assert want is not None
    assert tool("string", file, "k").decode() == want
    assert tool("string", file, "l/0/0").decode() == want


def test_pointers_are_tensorstores(tmp_path):
    file = tmp_path / "f.json"
    file.write_text(json.dumps({
        "a": ["x", "y"], "a~b": "1", "a/b": "2", "a~1b": "3", "": {"": "4"}, "n": {"": "5", "a": {"b": "6"}}}))
    found = 0
    for parts in itertools.product(["a", "a~b", "a~0b", "a~1b", "a~01b", "", "n", "0", "1", "00", "-", "2", "b", "~"],
                                   repeat=2):
        for name in (parts[0], "/".join(parts), "/".join(parts) + "/b"):
            want = read_ts(file, "/" + name)
            if want is not None and want.startswith(("[", "{")):
                continue
            done = run("string", file, name)
            assert (done.stdout.decode() if done.returncode == 0 else None) == want, name
            found += want is not None
    assert found > 20


# ---- shardings ----


def mesh(shape, axes, order=None, types=None):
    devices = np.array(jax.devices()[:int(np.prod(shape))])
    devices = devices[order] if order is not None else devices
    return Mesh(devices.reshape(shape), axes, axis_types=types)


MESHES = [
    mesh((8,), ("x",)),
    mesh((4, 2), ("x", "y")),
    mesh((2, 4), ("x", "y"), order=[7, 1, 5, 3, 2, 6, 0, 4]),
    mesh((2, 2, 2), ("x", "y", "z"), types=(AxisType.Auto, AxisType.Explicit, AxisType.Auto)),
    mesh((2, 1, 3), ("x", "y", "z")),
    mesh((1,), ("é\"",)),
]


def specs(axes, rank):
    """Every way to give mesh axes to array axes, a few of them to one."""
    parts = [None, ()] + list(axes) + list(itertools.permutations(axes, 2)) + (
        [tuple(axes)] if len(axes) == 3 else [])
    for n in range(rank + 1):
        for spec in itertools.product(parts, repeat=n):
            used = [a for p in spec if p is not None for a in (p if isinstance(p, tuple) else (p,))]
            if len(used) == len(set(used)):
                yield P(*spec)


def as_box(index, shape):
    return tuple(s.indices(n)[:2] for s, n in zip(index, shape))


def parse_boxes(text):
    rows = [line.split() for line in text.decode().splitlines()]
    return {(int(r[0]), int(r[1]), tuple(tuple(map(int, b.split(":"))) for b in r[2:])) for r in rows}


@pytest.mark.feature('A7')
@pytest.mark.parametrize("mesh", MESHES, ids=lambda m: "x".join(map(str, m.devices.shape)))
def test_boxes_are_those_of_jax(tmp_path, mesh):
    from orbax.checkpoint._src.metadata import sharding as sharding_lib

    tried = 0
    rng = np.random.default_rng(0)
    for shape in [(), (24,), (24, 12), (4, 6, 12), (0, 24), (24, 1)]:
        cases = list(specs(mesh.axis_names, len(shape)))
        for i in sorted(rng.permutation(len(cases))[:25]):
            sharding = NamedSharding(mesh, cases[i])
            try:
                array = jax.device_put(np.zeros(shape, np.int8), sharding)
            except ValueError:
                array = None
            text = sharding_lib.from_jax_sharding(sharding).to_serialized_string()
            file = tmp_path / "_sharding"
            file.write_text(json.dumps({"dw==": text}))  # "w"
            done = run("boxes", file, "w", "x".join(map(str, shape)) or "-")
            if array is None:
                # JAX refuses uneven cuts, and so do we.
                assert done.returncode == 1 and b"equal parts" in done.stderr
                continue
            want = {(s.device.id, s.replica_id, as_box(s.index, shape)) for s in array.addressable_shards}
            assert parse_boxes(done.stdout) == want, (shape, cases[i])
            tried += 1
    assert tried > 5


def test_a_spec_longer_than_the_array_is_refused(tmp_path):
    file = tmp_path / "_sharding"
    file.write_text(json.dumps({"dw==": json.dumps({
        "sharding_type": "NamedSharding", "shape": [1], "axis_names": ["x"], "partition_spec": [None]})}))
    assert run("boxes", file, "w", "-").returncode == 1
    with pytest.raises(ValueError):
        jax.device_put(np.zeros(()), NamedSharding(mesh((1,), ("x",)), P(None)))


def sharded_tree():
    tree = {"one": jax.numpy.ones((8,)), "host": np.ones(3), "é/\n\"": jax.numpy.ones((4,))}
    for i, m in enumerate(MESHES):
        for k, spec in enumerate([P(), P(m.axis_names[0]), P(None, m.axis_names), P(m.axis_names[::-1])]):
            tree[f"m{i}.{k}"] = jax.device_put(np.zeros((24, 24), np.float32), NamedSharding(m, spec))
    return tree


@pytest.mark.feature('A11')
def test_the_sharding_file_is_printed_back(tmp_path):
    tree = sharded_tree()
    file = save(tmp_path / "c", tree) / "_sharding"
    assert tool("sharding", file) == file.read_bytes()
    for name, a in tree.items():
        if isinstance(a, jax.Array):
            want = {(s.device.id, s.replica_id, as_box(s.index, a.shape)) for s in a.addressable_shards}
            got = parse_boxes(tool("boxes", file, name, "x".join(map(str, a.shape))))
            assert got == want, name


def test_a_bare_array_has_the_empty_name(tmp_path):
    file = save(tmp_path / "c", jax.numpy.ones((8,))) / "_sharding"
    assert tool("sharding", file) == file.read_bytes()
    assert tool("boxes", file, "", "8") == b"0 0 0:8\n"


# ---- array metadata ----


@pytest.mark.feature('A11')
def test_array_metadatas_are_printed_back(tmp_path):
    tree = sharded_tree()
    tree["keys"] = [jax.random.key(i, impl=impl) for i, impl in enumerate(["threefry2x32", "rbg", "unsafe_rbg"])]
    tree["batch"] = jax.random.split(jax.random.key(0), 3)
    file = save(tmp_path / "c", tree) / "array_metadatas" / "process_0"
    assert tool("arrays", file) == file.read_bytes()
    for name, impl in [("keys.0", "threefry2x32"), ("keys.1", "rbg"), ("keys.2", "unsafe_rbg"),
                       ("batch", "threefry2x32")]:
        assert tool("key", file, name).decode() == impl + " " + json.dumps({"random_key_impl": impl})
    assert run("key", file, "one").returncode == 1
    assert run("key", file, "nothing").returncode == 1
