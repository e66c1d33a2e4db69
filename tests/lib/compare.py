# SPDX-License-Identifier: Apache-2.0
"""A directory of a mount against what the checkpoint should hold."""

import concurrent.futures
import errno
import json
import math
import os
import pathlib
import random
import subprocess

import ml_dtypes  # noqa: F401
import numpy as np

from lib import expect, names

PREFIX = 'user.pytree.'
# Stored files that the tree shows besides its leaves.
SHOWN_IN_ITEM = {'_METADATA', '_CHECKPOINT_METADATA'}
PLAIN = 'biufc'


def xattr(path, name):
    """The JSON value of one of our attributes, or None when it is absent."""
    try:
        return json.loads(os.getxattr(path, PREFIX + name, follow_symlinks=False))
    except OSError as e:
        if e.errno == errno.ENODATA:
            return None
        raise


def xattrs(path):
    return {n[len(PREFIX):]: xattr(path, n[len(PREFIX):])
            for n in os.listxattr(path, follow_symlinks=False) if n.startswith(PREFIX)}


def expected_names(tree, ours=names.OURS):
    """{directory: names in it}, both relative to the item."""
    out = {'': set()}

    def add(rel):
        parent, _, name = rel.rpartition('/')
        out.setdefault(parent, set()).add(name)

    for path, value in tree.leaves.items():
        rel = names.path_of(path, value, ours)
        if not rel:
            continue
        parts = rel.split('/')
        for n in range(1, len(parts)):
            add('/'.join(parts[:n]))
            out.setdefault('/'.join(parts[:n]), set())
        add(rel)
        if isinstance(value, expect.Empty):
            out.setdefault(rel, set())
    return out


def listed_names(root):
    """The same of what is there; also through scandir, whose d_type must agree."""
    out = {}
    for where, dirs, files in os.walk(root, onerror=_raise):
        rel = os.path.relpath(where, root)
        out['' if rel == '.' else rel] = set(dirs) | set(files)
    return out


def _raise(e):
    raise e


def compare_names(root, tree, also=()):
    want, got = expected_names(tree, names.ours_at(root)), listed_names(root)
    also = set(also)
    for where in sorted(set(want) | set(got)):
        extra = got.get(where, set()) - want.get(where, set())
        if where == '':
            extra -= SHOWN_IN_ITEM
        extra = {n for n in extra if os.path.join(where, n) not in also}
        missing = want.get(where, set()) - got.get(where, set())
        missing = {n for n in missing if os.path.join(where, n) not in also}
        if where in got and where not in want and where not in also:
            yield f'{where or "."}/: a directory that should not be there'
        if extra or missing:
            yield f'{where or "."}/: missing {sorted(missing)}, not expected {sorted(extra)}'


def read_all(path):
    with open(path, 'rb') as f:
        return f.read()


def contents(root):
    """{path: bytes} of all files below a directory."""
    return {os.path.relpath(os.path.join(where, name), root): read_all(os.path.join(where, name))
            for where, _, names in os.walk(root) for name in names}


def npy_array(path, dtype, mmap_mode=None):
    """np.load, with the type that numpy's header cannot name put back."""
    a = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
    if dtype.kind not in PLAIN or dtype.name.startswith('float8'):
        if a.dtype.kind != 'V' or a.dtype.itemsize != dtype.itemsize:
            raise AssertionError(f'descr of a {dtype.name} array loads as {a.dtype}')
        return a.view(dtype)
    return a


def check_array(path, want):
    """np.load and a memory map give the array; the header is one that numpy's reader takes."""
    for mode in (None, 'r'):
        got = npy_array(path, want.dtype, mode)
        if not expect.same_bits(np.asarray(got), want):
            yield f'{path.name}: np.load(mmap_mode={mode}) gives {got.dtype}{got.shape}, ' \
                  f'want {want.dtype}{want.shape}; {_first_difference(np.asarray(got), want)}'
    raw = read_all(path)
    if raw[:6] != b'\x93NUMPY':
        yield f'{path.name}: no NPY magic'
    size = want.nbytes
    if (len(raw) - size) % 64:
        yield f'{path.name}: data begin at {len(raw) - size}, which is not a multiple of 64'
    if expect.canonical_bytes(want) != raw[len(raw) - size:]:
        yield f'{path.name}: read() gives other bytes than np.load'


def _first_difference(got, want):
    if got.shape != want.shape or got.dtype != want.dtype:
        return 'other type or shape'
    a, b = expect.canonical_bytes(got), expect.canonical_bytes(want)
    at = next((i for i in range(len(b)) if a[i:i + 1] != b[i:i + 1]), -1)
    return f'first difference at data byte {at}: {a[at:at + 16].hex()}, want {b[at:at + 16].hex()}'


def scalar_of(text):
    """The number that a .json leaf says: also the strings for what JSON has no number for."""
    def part(x):
        return float(x) if isinstance(x, str) else x

    value = json.loads(text)
    return complex(part(value[0]), part(value[1])) if isinstance(value, list) else part(value)


def check_scalar(path, want):
    text = read_all(path).decode()
    got = scalar_of(text)
    kind = want.dtype.kind
    with np.errstate(all='ignore'):
        a, b = np.asarray(got).astype(want.dtype), want.array()
    same = (np.array_equal(a, b, equal_nan=True) if kind in 'fc' else a == b)
    if not same or np.signbit(a.real) != np.signbit(b.real) and not np.isnan(b.real):
        yield f'{path.name}: {text!r}, want {want.value!r}'
    if kind == 'b' and text.strip() not in ('true', 'false'):
        yield f'{path.name}: {text!r} is not a boolean'
    if kind == 'f' and math.isfinite(b) and not set(text) & set('.eE'):
        yield f'{path.name}: {text!r} does not show that it is a float'
    if kind in 'iu' and set(text) & set('.eE"'):
        yield f'{path.name}: {text!r} is not a plain integer'
    if kind == 'f' and want.dtype.itemsize == 8 and math.isfinite(b) and digits(text) > digits(repr(float(b))):
        yield f'{path.name}: {text!r} is longer than {float(b)!r}'


def digits(text):
    """How many significant digits a decimal number shows."""
    mantissa = text.strip().lower().split('e')[0].lstrip('-').replace('.', '')
    return len(mantissa.strip('0')) or 1


def check_leaf(path, value):
    """Faults of one leaf: kind by kind, and that stat told the size before anything was read."""
    st = os.stat(path)
    if isinstance(value, expect.Empty):
        if os.listdir(path):
            yield f'{path}: not empty'
        return
    if isinstance(value, (np.ndarray, expect.Key)):
        yield from check_array(path, value.data if isinstance(value, expect.Key) else value)
    elif isinstance(value, expect.Scalar):
        yield from check_scalar(path, value)
    elif isinstance(value, str):
        if read_all(path) != value.encode():
            yield f'{path.name}: {read_all(path)[:200]!r}, want {value.encode()[:200]!r}'
    elif read_all(path).strip() not in (b'', b'null'):
        yield f'{path.name}: {read_all(path)[:100]!r} for None'
    n = len(read_all(path))
    if n != st.st_size:
        yield f'{path.name}: st_size {st.st_size}, read() gave {n} bytes'


def leaf_paths(root, tree, broken=()):
    """(path in the mount, value, key path) of every leaf that should read."""
    ours = names.ours_at(root)
    for key, value in tree.leaves.items():
        rel = names.path_of(key, value, ours)
        if rel not in broken:
            yield pathlib.Path(root) / rel, value, key


def compare(root, tree, broken=(), also=()):
    """Every fault of an item: names, bytes, sizes. broken: leaves that must fail with EIO instead."""
    faults = list(compare_names(root, tree, set(also) | set(broken)))
    for path, value, key in leaf_paths(root, tree, broken):
        try:
            faults += [f'{"/".join(key)}: {f}' for f in check_leaf(path, value)]
        except (OSError, ValueError, AssertionError) as e:
            faults.append(f'{"/".join(key)}: {type(e).__name__}: {e}')
    for rel in broken:
        faults += is_eio(os.path.join(root, rel))
    return faults


def compare_case(root, case):
    """Every fault of a whole mount: its steps, its trees, its other files, what is hidden."""
    faults = []
    if case.steps is not None and set(os.listdir(root)) != set(case.steps):
        faults.append(f'steps {sorted(os.listdir(root))}, want {sorted(case.steps)}')
    for where, tree in case.trees.items():
        broken = [b[len(where):].lstrip('/') for b in case.notes.get('broken', []) if b.startswith(where)]
        also = case.notes.get('opaque', [])
        also = set(also) | {f'{o}/{n}' for o in also if os.path.isdir(os.path.join(root, where, o))
                            for n in os.listdir(os.path.join(root, where, o))}
        at = os.path.join(root, where) if where else root
        faults += [f'{where or "."}: {f}' for f in compare(at, tree, broken, also)]
        faults += [f'{where or "."}: {f}' for f in compare_xattrs(at, tree)]
    for where, content in case.files.items():
        if read_all(os.path.join(root, where)) != content:
            faults.append(f'{where}: not as stored')
    for where in case.hidden:
        if os.path.lexists(os.path.join(root, where)):
            faults.append(f'{where}: is there, and should be hidden')
    for where, wants in case.xattrs.items():
        for name, want in wants.items():
            got = xattr(os.path.join(root, where) if where else root, name)
            if got != want:
                faults.append(f'{where or "."}: xattr {name} is {got!r}, want {want!r}')
    return faults


def is_eio(path):
    """A leaf that is damaged: reading it is EIO, nothing else."""
    try:
        if os.path.isdir(path):
            os.listdir(path)
        else:
            read_all(path)
    except OSError as e:
        return [] if e.errno == errno.EIO else [f'{path}: {os.strerror(e.errno)} instead of EIO']
    return [f'{path}: reads, though it is damaged']


def compare_xattrs(root, tree):
    """dtype, shape, key, typestr and kind of everything in the item."""
    out = []
    for path, value, key in leaf_paths(root, tree):
        try:
            out += [f'{"/".join(key)}: {f}' for f in leaf_xattrs(path, value, key, tree.recorded)]
        except (OSError, ValueError) as e:
            out.append(f'{"/".join(key)}: {type(e).__name__}: {e}')
    for key, kind in tree.kinds.items():
        try:
            out += container_xattrs(pathlib.Path(root) / names.container_path(key, names.ours_at(root)), key, kind, tree.recorded)
        except (OSError, ValueError) as e:
            out.append(f'{"/".join(key) or "."}: {type(e).__name__}: {e}')
    return out


def container_xattrs(where, key, kind, recorded):
    out = []
    got, name = xattr(where, 'kind'), '/'.join(key) or '.'
    if recorded and kind != 'any' and got != kind:
        out.append(f'{name}: kind {got!r}, want {kind!r}')
    if xattr(where, 'key') is not None and [str(k) for k in xattr(where, 'key')] != list(key):
        out.append(f'{name}: key {xattr(where, "key")!r}')
    return out


def leaf_xattrs(path, value, key, recorded):
    got = xattrs(path)
    if [str(k) for k in got.get('key') or []] != list(key):
        yield f'key {got.get("key")!r}'
    if isinstance(value, expect.Empty):
        if recorded and got.get('kind') != value.kind:
            yield f'kind {got.get("kind")!r}, want {value.kind!r}'
        return
    data = value.data if isinstance(value, expect.Key) else value
    if isinstance(data, (np.ndarray, expect.Scalar)):
        if got.get('dtype') != data.dtype.name:
            yield f'dtype {got.get("dtype")!r}, want {data.dtype.name!r}'
    if isinstance(data, np.ndarray) and got.get('shape') != list(data.shape):
        yield f'shape {got.get("shape")!r}, want {list(data.shape)}'
    if recorded and 'typestr' in got:
        wants = {np.ndarray: ('np.ndarray', 'jax.Array'), expect.Scalar: ('scalar',), str: ('string',)}
        want = wants.get(type(data))
        if want and got['typestr'] not in want:
            yield f'typestr {got["typestr"]!r}, want one of {want}'
    if recorded and 'typestr' not in got and isinstance(data, (np.ndarray, expect.Scalar, str)):
        yield 'no typestr'


# ---- ways of reading ----

def through_cat(root, tree):
    """cat(1) of the arrays gives the same bytes as read()."""
    paths = [path for path, value, _ in leaf_paths(root, tree) if isinstance(value, np.ndarray)]
    for some in (paths[i:i + 50] for i in range(0, len(paths), 50)):
        out = subprocess.run(['cat', *some], capture_output=True)
        if out.returncode or out.stdout != b''.join(map(read_all, some)):
            yield f'{some[0].name} to {some[-1].name}: cat gives {len(out.stdout)} bytes, {out.stderr.decode()}'


def through_pread(root, tree, seed=1, reads=20):
    """Reads of any length at any offset, also across the end."""
    rng = random.Random(seed)
    for path, value, _ in leaf_paths(root, tree):
        if isinstance(value, expect.Empty):
            continue
        try:
            yield from _preads(path, rng, reads)
        except OSError as e:
            yield f'{path.name}: {e}'


def _preads(path, rng, reads):
    whole = read_all(path)
    with open(path, 'rb', buffering=0) as f:
        for _ in range(reads):
            off = rng.randrange(len(whole) + 2)
            n = rng.choice((1, 7, 64, 4096, 100000, len(whole) + 5))
            if os.pread(f.fileno(), n, off) != whole[off:off + n]:
                yield f'{path.name}: pread({n}, {off}) is wrong'
        if os.pread(f.fileno(), 10, len(whole)) != b'':
            yield f'{path.name}: bytes beyond the end'


def by_threads(root, tree, threads=8):
    """Many readers at once, of one leaf and of different ones, by map and by read."""
    leaves = [(p, v) for p, v, _ in leaf_paths(root, tree) if isinstance(v, np.ndarray)]

    def one(seed):
        out = []
        order = random.Random(seed).sample(leaves, len(leaves))
        for path, want in order:
            got = npy_array(path, want.dtype, (None, 'r')[seed % 2])
            if not expect.same_bits(np.asarray(got), want):
                out.append(f'{path.name}: wrong in thread {seed}')
        return out

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for faults in pool.map(one, range(threads)):
            yield from faults
