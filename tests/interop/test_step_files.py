# SPDX-License-Identifier: Apache-2.0
"""Names and small files of steps against real Orbax: the same names are listed, the same files are
taken and refused, and what both take is written the same."""
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

ocp = pytest.importorskip("orbax.checkpoint")
from orbax.checkpoint import v1 as ocp1
from orbax.checkpoint._src.metadata import checkpoint as checkpoint_lib
from orbax.checkpoint._src.metadata import root_metadata_serialization as root_lib
from orbax.checkpoint._src.metadata import step_metadata_serialization as step_lib
from orbax.checkpoint._src.path import step as path_lib
from orbax.checkpoint.experimental.v1._src.deletion import metadata as deletion_lib

BUILD = os.environ["PYTREEFS_BUILD"]
TOOL = os.path.join(BUILD, "tests", "unit", "step_tool")


def run(*args, data=None):
    return subprocess.run([TOOL, *map(str, args)], input=data, capture_output=True)


def tool(*args, data=None):
    done = run(*args, data=data)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


# ---- _CHECKPOINT_METADATA ----


@pytest.mark.feature('F3')
def test_files_of_every_way_to_save(tmp_path):
    state = {"w": np.ones(3)}
    ocp.PyTreeCheckpointer().save(tmp_path / "direct", state)
    with ocp.CheckpointManager(tmp_path / "root", metadata={"experiment": "é7", "n": [1, 2.5]}) as manager:
        manager.save(1, args=ocp.args.StandardSave(state), custom_metadata={"a": 1e22, "b": None})
    with ocp.CheckpointManager(tmp_path / "items") as manager:
        manager.save(2, args=ocp.args.Composite(state=ocp.args.PyTreeSave(state), cfg=ocp.args.JsonSave({"x": 1})))
        manager.wait_until_finished()
    ocp1.save(tmp_path / "v1", state)
    ocp1.save_checkpointables(tmp_path / "v1b", {"a": state, "b": state}, custom_metadata={"é": "ü"})
    files = sorted(tmp_path.glob("**/_CHECKPOINT_METADATA"))
    assert len(files) == 5
    for file in files:
        assert tool("meta", file) == file.read_text()
    root = tmp_path / "root" / "metadata" / "_ROOT_METADATA"
    assert tool("root", root) == root.read_text()


DOCUMENTS = [
    {}, [], 5, None, "x",
    {"item_handlers": None}, {"item_handlers": {}}, {"item_handlers": "h"}, {"item_handlers": {"a": "h", "b": "g"}},
    {"item_handlers": ["a"]}, {"item_handlers": 5}, {"item_handlers": True},
    {"metrics": None}, {"metrics": {"loss": 0.5}}, {"metrics": [1]}, {"metrics": []}, {"metrics": ""},
    {"metrics": "x"}, {"metrics": 0}, {"metrics": 1}, {"metrics": {"nan": float("nan")}},
    {"performance_metrics": None}, {"performance_metrics": {}}, {"performance_metrics": []},
    {"performance_metrics": {"get_old_steps_start_time": 1.5, "step": 3}},
    {"init_timestamp_nsecs": None}, {"init_timestamp_nsecs": 5}, {"init_timestamp_nsecs": 5.0},
    {"init_timestamp_nsecs": "5"}, {"init_timestamp_nsecs": -1}, {"commit_timestamp_nsecs": 2**62},
    {"commit_timestamp_nsecs": [1]}, {"commit_timestamp_nsecs": 1e300},
    {"custom_metadata": None}, {"custom_metadata": {}}, {"custom_metadata": {"a": {"b": [1, None, 10**30]}}},
    {"custom_metadata": []}, {"custom_metadata": "x"}, {"custom_metadata": 0},
    {"unknown": 1}, {"unknown": 1, "more": [2]}, {"unknown": 1, "custom_metadata": {}},
    {"unknown": 1, "custom_metadata": None}, {"unknown": 1, "custom_metadata": {"a": 1}}, {"custom": {"a": 1}},
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=json.dumps)
def test_steps_are_taken_as_by_orbax(tmp_path, document):
    file = tmp_path / "_CHECKPOINT_METADATA"
    file.write_text(json.dumps(document))
    try:
        internal = step_lib.InternalCheckpointMetadata.deserialize(json.loads(file.read_text()))
        # Statistics have defaults that are not part of the file.
        want = internal.serialize()
        want["performance_metrics"] = {k: v for k, v in (document.get("performance_metrics") or {}).items()
                                       if isinstance(v, float)}
        want = json.dumps(want)
    except ValueError:
        want = None
    done = run("meta", file)
    assert (done.stdout.decode() if done.returncode == 0 else None) == want


@pytest.mark.parametrize("content", [b"", b" ", b"{", b'{"a": 1,}', b"\xff", b"nonsense", b"{} x"])
def test_files_that_orbax_takes_for_absent(tmp_path, content):
    file = tmp_path / "_CHECKPOINT_METADATA"
    file.write_bytes(content)
    assert checkpoint_lib.metadata_store(enable_write=False).read(file) is None
    assert tool("meta", file) == "absent"


@pytest.mark.parametrize("document", [
    {}, {"internal_metadata": {}, "custom_metadata": {"a": 1}}, {"experiment": "r7"}, {"a": 1, "b": [2]},
    {"custom_metadata": {"a": 1}, "b": 2}, {"internal_metadata": [1]}, {"custom_metadata": 5},
    {"internal_metadata": {"x": 1}, "y": 2}], ids=json.dumps)
def test_root_files_are_taken_as_by_orbax(tmp_path, document):
    file = tmp_path / "_ROOT_METADATA"
    file.write_text(json.dumps(document))
    try:
        want = json.dumps(root_lib.InternalRootMetadata.deserialize(json.loads(file.read_text())).serialize())
    except ValueError:
        want = None
    done = run("root", file)
    assert (done.stdout.decode() if done.returncode == 0 else None) == want


# ---- _CHECKPOINT_DELETION ----


def test_deletion_records(tmp_path):
    import asyncio

    path = tmp_path / "c"
    ocp1.save_checkpointables(path, {"a": {"x": np.ones(2)}, "c": {"y": np.ones(2)}}, custom_metadata={"é": 1.5})
    metadata = path / "_CHECKPOINT_METADATA"
    original = json.loads(metadata.read_text())
    for destination in (None, "/trash/é"):
        record = deletion_lib.DeletionRecord(
            operation_id="0123456789abcdef" * 2, checkpointable_name="c", destination=destination,
            original_metadata=original, updated_metadata=deletion_lib.updated_metadata(original, "c"))
        file = path / "_CHECKPOINT_DELETION"
        asyncio.run(deletion_lib.write_json(pathlib.Path(file), record.to_json()))
        assert tool("deletion", file, metadata) == file.read_text() + " 1"
    # After the metadata was rewritten, the record still fits; for another step it does not.
    after = tmp_path / "after"
    asyncio.run(deletion_lib.write_json(pathlib.Path(after), record.updated_metadata))
    assert tool("deletion", path / "_CHECKPOINT_DELETION", after).endswith(" 1")
    after.write_text(json.dumps(dict(original, init_timestamp_nsecs=1)))
    assert tool("deletion", path / "_CHECKPOINT_DELETION", after).endswith(" 0")


# ---- names ----

NAMES = ["0", "1", "5", "7", "23", "007", "05", "000023", "0000000", "123456", "1000000", "01", "-1", "+3", "1.5", "12a",
         "23.tmp", "ckpt_5", "ckpt_000023", "ckpt_", "ckpt5", "ckpt-5", "ckpt_05", "ckpt_1234567", "_5", "step_5",
         "5.orbax-checkpoint-tmp", "ckpt_5.orbax-checkpoint-tmp-0", "metadata", "\u0663", "00", "99999", "099999"]


@pytest.mark.feature('F1')
def test_names_are_listed_that_some_format_lists(tmp_path):
    for name in NAMES:
        (tmp_path / name).mkdir()
    want = set()
    for prefix in (None, "ckpt", "", "step"):
        for width in (None, 1, 2, 3, 4, 5, 6, 7):
            style = path_lib.standard_name_format(step_prefix=prefix, step_format_fixed_length=width)
            want |= {f"{m.path.name} {m.step}" for m in style.find_all(tmp_path)}
    assert set(tool("lists", data="\0".join(NAMES).encode()).splitlines()) == want
