# SPDX-License-Identifier: Apache-2.0
"""core/step/layout.c against Orbax's own functions: chunk shapes and replica slices of many arrays,
and the chunk shapes that end up on disk."""
import json
import math
import os
import random
import subprocess

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import numpy as np
import pytest

jax = pytest.importorskip("jax")
ocp = pytest.importorskip("orbax.checkpoint")
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from orbax.checkpoint._src.arrays import subchunking
from orbax.checkpoint._src.serialization import replica_slices
from orbax.checkpoint._src.serialization import tensorstore_utils as ts_utils

BUILD = os.environ["PYTREEFS_BUILD"]
TOOL = os.path.join(BUILD, "tests", "unit", "layout_tool")
DTYPES = [np.dtype(t) for t in ("int8", "float16", "float32", "float64", "complex128")]


def tool(lines):
    done = subprocess.run([TOOL], input="".join(line + "\n" for line in lines).encode(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


def text(values):
    return ",".join(map(str, values)) or "-"


def number(value):
    return "-" if value is None else str(value)


def theirs(shape, write_shape, dtype, chunk_bytes, file_size, ocdbt, axes):
    """As ArrayWriteSpec does it."""
    try:
        target = chunk_bytes
        if ocdbt:
            target = ts_utils.calculate_chunk_byte_size(
                write_shape, dtype, chunk_byte_size=chunk_bytes, ocdbt_target_data_file_size=file_size)
        return text(subchunking.choose_chunk_shape(shape, write_shape, dtype, target, shard_axes=axes))
    except ValueError:
        return "-22"


def random_cases(n):
    rng = random.Random(7)
    sizes = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 30, 31, 36, 48, 49, 60, 64, 96, 97, 100, 128, 210, 256, 1000, 1024, 4096]
    for _ in range(n):
        rank = rng.randrange(0, 5)
        write = tuple(rng.choice(sizes) for _ in range(rank))
        if rng.random() < 0.05 and rank:
            write = write[:-1] + (0,)
        shape = tuple(w * rng.choice([1, 1, 1, 2, 4]) for w in write)
        dtype = rng.choice(DTYPES)
        nbytes = max(1, math.prod(write) * dtype.itemsize)
        chunk_bytes = None if rng.random() < 0.35 else max(1, int(nbytes * rng.choice([2, 1, 0.99, 0.5, 0.3, 0.1, 0.01])))
        ocdbt = rng.random() < 0.7
        file_size = rng.choice([0, 2**31, max(1, int(nbytes * rng.choice([1, 0.7, 0.4, 0.05])))])
        axes = tuple(rng.randrange(0, rank + (rng.random() < 0.1))
                     for _ in range(rng.choice([0, 0, 0, 1, 2]))) if rank else ()
        yield shape, write, dtype, chunk_bytes, file_size, ocdbt, axes


def both(cases):
    """The chunk shapes of Orbax and ours, as text."""
    lines = (f"chunk {item.itemsize} {number(limit)} {file_size if ocdbt else '-'} {text(axes)} {text(shape)} {text(write)}"
             for shape, write, item, limit, file_size, ocdbt, axes in cases)
    return [theirs(*c) for c in cases], tool(lines)


@pytest.mark.feature('A3', 'A4', 'D6')
def test_chunk_shapes_are_those_of_orbax():
    cases = list(random_cases(3000))
    want, got = both(cases)
    assert got == want
    cut = sum(w != text(max(1, n) for n in c[1]) for c, w in zip(cases, want))
    assert cut > 1000 and want.count("-22") > 20


PRIMES = [1, 1, 2, 7, 127, 997, 7919, 65537, 104729, 1299709, 2**31 - 1]
SIZES = [*PRIMES, 2 * 7919, 7919**2, 1009 * 1013, 104729 * 6, 2**20, 30030]


def prime_cases(n):
    """Axes that divide by few numbers or none, and limits beside their sizes."""
    rng = random.Random(18)
    while n:
        write = tuple(rng.choice(SIZES) for _ in range(rng.randrange(1, 5)))
        shape = tuple(w * rng.choice([1, 1, 1, 2, 7919]) for w in write)
        dtype = rng.choice(DTYPES)
        if math.prod(shape) * dtype.itemsize >= 2**62:
            continue
        nbytes = math.prod(write) * dtype.itemsize
        limits = [nbytes, nbytes - 1, *(nbytes // p for p in PRIMES[2:]), *(p * dtype.itemsize for p in PRIMES),
                  7919 * dtype.itemsize - 1, 4096, 2**20, 2**26]
        chunk_bytes = rng.choice([None, *(limit for limit in limits if limit > 0)])
        file_size = rng.choice([0, 2**31, max(1, nbytes // 3), max(1, nbytes // 7919)])
        axes = tuple(rng.randrange(len(write)) for _ in range(rng.choice([0, 0, 0, 1, 2])))
        yield shape, write, dtype, chunk_bytes, file_size, rng.random() < 0.7, axes
        n -= 1


@pytest.mark.feature('A3', 'A4', 'D6')
def test_chunk_shapes_of_long_prime_axes_are_those_of_orbax():
    cases = list(prime_cases(5000))
    want, got = both(cases)
    assert [x for x in zip(cases, want, got) if x[1] != x[2]] == []
    assert sum(w != text(c[1]) for c, w in zip(cases, want)) > 3000 and 20 < want.count("-22") < 1000


def test_large_arrays_are_cut_by_the_file_size():
    shape = (50000, 30000)
    lines = [f"chunk 4 - {2**31} - {text(shape)} {text(shape)}"]
    assert tool(lines) == [theirs(shape, shape, np.dtype("float32"), None, None, True, ())]


def test_replica_slices_are_those_of_orbax():
    devices = np.array(jax.devices())
    meshes = [Mesh(devices.reshape(s), n) for s, n in
              [((8,), ("x",)), ((4, 2), ("x", "y")), ((2, 2, 2), ("x", "y", "z"))]]
    rng = random.Random(3)
    lines, want = [], []
    for _ in range(600):
        mesh = rng.choice(meshes)
        rank = rng.randrange(0, 4)
        shape = tuple(rng.choice([0, 1, 2, 3, 4, 6, 8, 12, 24, 48]) for _ in range(rank))
        names = rng.sample(mesh.axis_names, rng.randrange(0, min(rank, len(mesh.axis_names)) + 1))
        spec = names + [None] * (rank - len(names))
        rng.shuffle(spec)
        try:
            array = jax.device_put(np.zeros(shape, rng.choice([np.int8, np.float32])), NamedSharding(mesh, P(*spec)))
        except ValueError:
            continue
        block = array.addressable_shards[0].data.shape
        limit = rng.choice([None, None, 1, 2, 3, 5])
        min_bytes = rng.choice([None, None, 1, 16, 100])
        count = replica_slices._sharding_num_replicas(array.sharding, array.shape)
        slices = replica_slices.get_replica_slices(array, 0, True, min_bytes, limit)
        axis, local, used = replica_slices.calculate_replica_parallel_axis_and_local_shape(array, limit)
        if slices.local_shape == block and (axis is None or slices.replica_slices[0].slice_args is None):
            want.append("-")
        else:
            assert slices.local_shape == local
            want.append(f"{axis} {used} {text(local)}")
        lines.append(f"replicas {array.dtype.itemsize} {count} {limit or 0} {min_bytes or 0} {text(block)}")
    assert tool(lines) == want
    assert sum(w != "-" for w in want) > 50


@pytest.mark.feature('A3')
@pytest.mark.parametrize("use_ocdbt", [True, False])
def test_chunks_on_disk(tmp_path, use_ocdbt):
    """Saved by Orbax with limits per leaf: what array_metadatas says is what we compute."""
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
    tree, args = {}, {}
    for i, (shape, spec, limit, axes) in enumerate([
            ((64, 48), P("x"), None, ()), ((64, 48), P("x", "y"), 100, ()), ((64, 48), P(), 1000, (1,)),
            ((240,), P("y"), 64, ()), ((8, 6, 10), P(None, "y"), 200, (2, 0))]):
        tree[f"a{i}"] = jax.device_put(np.ones(shape, np.float32), NamedSharding(mesh, spec))
        args[f"a{i}"] = ocp.SaveArgs(chunk_byte_size=limit, shard_axes=axes)
    ckptr = ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=use_ocdbt))
    ckptr.save(tmp_path / "c", args=ocp.args.PyTreeSave(tree, save_args=args))
    stored = json.loads((tmp_path / "c" / "array_metadatas" / "process_0").read_text())["array_metadatas"]
    for entry in stored:
        m = entry["array_metadata"]
        name, array, arg = m["param_name"], tree[m["param_name"]], args[m["param_name"]]
        count = replica_slices._sharding_num_replicas(array.sharding, array.shape)
        block = array.addressable_shards[0].data.shape
        sliced = tool([f"replicas 4 {count} 0 0 {text(block)}"])[0].split()[-1]
        write = text(block) if sliced == "-" else sliced
        assert write == text(m["write_shape"]), name
        file_size = 2**31 if use_ocdbt else "-"
        got = tool([f"chunk 4 {number(arg.chunk_byte_size)} {file_size} {text(arg.shard_axes)} {text(array.shape)} {write}"])
        assert got == [text(m["chunk_shape"])], name
