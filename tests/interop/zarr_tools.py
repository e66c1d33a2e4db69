# SPDX-License-Identifier: Apache-2.0
"""Shared by the interop tests of codecs, casts and zarr metadata: the tools as filters, and
TensorStore over a store in memory.

Our tools are those of the build directory that is tested (tests/conftest.py says which).
"""

import json
import os
import subprocess


class Refused(Exception):
    """An answer "error": the negative errno and our note."""

    def __init__(self, code, text):
        super().__init__(code, text)
        self.code = code
        self.text = text


class Filter:
    """One of our filters: a request is a line and its bytes, an answer too."""

    def __init__(self, name):
        path = os.path.join(os.environ["PYTREEFS_BUILD"], "tests", "unit", name)
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, line, *blobs):
        self.process.stdin.write((line + "\n").encode())
        for blob in blobs:
            self.process.stdin.write(blob)
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if answer and answer[0] == b"ok":
            return self.process.stdout.read(int(answer[1]))
        assert answer and answer[0] == b"error", f"{line!r} ended the tool: {answer}"
        raise Refused(int(answer[1]), self.process.stdout.read(int(answer[2])).decode())

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(120) == 0


class CastTool(Filter):
    def __init__(self):
        super().__init__("cast_tool")

    def cast(self, source, target, data):
        return self.ask(f"cast {source} {target} {len(data)}", data)

    def texts(self, dtype, data):
        return self.ask(f"print {dtype} - {len(data)}", data).decode().splitlines()

    def parse(self, dtype, text):
        return self.ask(f"parse {dtype} - {len(text.encode())}", text.encode())

    def fill(self, version, dtype, value):
        text = json.dumps(value).encode()
        return self.ask(f"fill {version} {dtype} {len(text)}", text)

    def unfill(self, version, dtype, data):
        return self.ask(f"unfill {version} {dtype} {len(data)}", data).decode()


class ZarrTool(Filter):
    def __init__(self):
        super().__init__("zarr_tool")

    def run(self, command, document, blob=b""):
        text = document_bytes(document)
        return self.ask(f"{command} {len(text)} {len(blob)}", text, blob)


def document_bytes(document):
    if isinstance(document, bytes):
        return document
    if isinstance(document, str):
        return document.encode()
    return json.dumps(document).encode()


def ts_store(document, objects=None, version=3):
    """An array of TensorStore in memory: (array, kvstore). Raises what TensorStore raises."""
    import tensorstore as ts

    context = ts.Context()
    kv = ts.KvStore.open("memory://", context=context).result()
    kv.write(".zarray" if version == 2 else "zarr.json", document_bytes(document)).result()
    for key, value in (objects or {}).items():
        kv.write(key, value).result()
    spec = {"driver": "zarr" if version == 2 else "zarr3", "kvstore": "memory://",
            "store_data_equal_to_fill_value": True}
    return ts.open(spec, open=True, context=context).result(), kv


def v2_document(**members):
    document = {
        "chunks": [16], "compressor": None, "dtype": "|u1", "fill_value": None, "filters": None,
        "order": "C", "shape": [16], "zarr_format": 2,
    }
    document.update(members)
    return document


BYTES = {"name": "bytes", "configuration": {"endian": "little"}}


def v3_document(behind, **members):
    """behind: the codecs after BYTES."""
    document = {
        "zarr_format": 3, "node_type": "array", "shape": [16], "data_type": "uint8",
        "chunk_grid": grid(16), "chunk_key_encoding": {"name": "default"}, "fill_value": 0,
        "codecs": [BYTES] + behind,
    }
    document.update(members)
    return document


def grid(*shape):
    return {"name": "regular", "configuration": {"chunk_shape": list(shape)}}


def codec(name, **configuration):
    return {"name": name, "configuration": configuration}
