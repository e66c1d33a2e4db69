# SPDX-License-Identifier: Apache-2.0
"""Writing a tree through a mount, or into an ordinary directory that programs copy into one.

The bytes of each leaf and the xattrs that names cannot say follow from an expect.Tree; how the bytes
get into the file is the caller's `put`.
"""

import io
import json
import os
import pathlib

import numpy as np

from lib import expect, names

PREFIX = 'user.pytree.'


def npy(array):
    """Return the bytes that np.save writes."""
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def number(value):
    """A number as the text of a .json leaf."""
    def real(x):
        if isinstance(x, (bool, int)):
            return x
        x = float(x)
        return x if np.isfinite(x) else 'NaN' if np.isnan(x) else 'Infinity' if x > 0 else '-Infinity'
    v = value.value
    if isinstance(v, complex) or value.dtype.kind == 'c':
        v = complex(v)
        return json.dumps([real(v.real), real(v.imag)])
    if value.dtype.kind not in 'biufc' or isinstance(v, np.generic):
        v = v.item() if hasattr(v, 'item') else float(v)
    return json.dumps(real(v))


def contents(value):
    """The bytes of a leaf's file."""
    if isinstance(value, expect.Key):
        return npy(value.data)
    if isinstance(value, np.ndarray):
        return npy(value)
    if isinstance(value, expect.Scalar):
        return number(value).encode()
    if isinstance(value, str):
        return value.encode()
    return b''


def natural(value):
    """The dtype that a .json leaf has when nothing else is said."""
    v = value.value
    if isinstance(v, bool):
        return np.dtype(bool)
    if isinstance(v, int):
        return np.dtype(np.int64 if v < 1 << 63 else np.uint64)
    return np.dtype(np.complex128 if isinstance(v, complex) else np.float64)


def leaf_xattrs(path, value):
    """Return the properties that the file's name and bytes do not have: {name: JSON value}."""
    out = {}
    name = names.path_of(path, value).rpartition('/')[2]
    if path and '~' in name and len(names.escape(path[-1], False) + names.extension(value).encode()) > names.NAME_MAX:
        out['key'] = list(path)
    if isinstance(value, np.ndarray) and names_no_dtype(value.dtype):
        out['dtype'] = value.dtype.name
    if isinstance(value, expect.Scalar) and value.dtype != natural(value):
        out['dtype'] = value.dtype.name
    if isinstance(value, expect.Key):
        out['prng_impl'] = value.impl
    return out


def names_no_dtype(dtype):
    """Types of one byte that numpy's header calls |V1."""
    return dtype.itemsize == 1 and dtype.kind == 'V' and not dtype.names


def container_xattrs(path, kind):
    out = {}
    if kind in ('list', 'tuple'):
        out['kind'] = kind
    if path and len(names.escape(path[-1], True)) > names.NAME_MAX:
        out['key'] = list(path)
    return out


def set_xattrs(path, values):
    for name, value in values.items():
        os.setxattr(path, PREFIX + name, json.dumps(value).encode())


def put_bytes(path, data):
    with open(path, 'wb') as f:
        f.write(data)


def directories(root, tree, xattrs=True):
    """All directories of a tree, with their kinds."""
    root = pathlib.Path(root)
    root.mkdir(parents=True, exist_ok=True)
    empty = {p: v.kind for p, v in tree.leaves.items() if isinstance(v, expect.Empty)}
    for path, kind in sorted({**tree.kinds, **empty}.items()):
        where = root / names.container_path(path)
        where.mkdir(exist_ok=True)
        if xattrs:
            set_xattrs(where, container_xattrs(path, kind))


def files(root, tree):
    """(path, key path, value) of every leaf that is a file."""
    for path, value in tree.leaves.items():
        if not isinstance(value, expect.Empty):
            yield pathlib.Path(root) / names.path_of(path, value), path, value


def all_xattrs(root, tree):
    """Everything that a copy without xattrs has lost."""
    directories(root, tree)
    for where, path, value in files(root, tree):
        set_xattrs(where, leaf_xattrs(path, value))


def save(root, tree, put=put_bytes, xattrs=True):
    """The whole tree below root."""
    directories(root, tree, xattrs)
    for where, path, value in files(root, tree):
        put(where, contents(value))
        if xattrs:
            set_xattrs(where, leaf_xattrs(path, value))
