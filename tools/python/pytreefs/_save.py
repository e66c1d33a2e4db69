# SPDX-License-Identifier: Apache-2.0
"""save(): a tree of Python objects becomes a checkpoint."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from . import _dtypes, _jax
from . import _pytreefs as lib
from ._checkpoint import Checkpoint
from ._context import Path, names_its_arguments, options_text, warn
from ._leaf import Leaf
from ._node import SEQUENCES, Parts, in_order, parts_of
from ._program import convert

Keys: TypeAlias = tuple[str | int, ...]

_NUMBERS = ((bool, 'bool'), (int, 'int64'), (float, 'float64'), (complex, 'complex128'))


def _array(x: Any) -> tuple[np.ndarray[Any, Any], str] | None:
    """(elements, dtype name) of whatever holds an array, without a copy where it is on the CPU; None: not an array."""
    if _dtypes.is_torch(x):
        return _dtypes.from_torch(x)
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError('a masked array has no values where it is masked: filled() gives it some')
    if isinstance(x, (np.ndarray, np.generic, Leaf)) or hasattr(x, '__array__'):
        a = np.asarray(x)
    elif hasattr(x, '__dlpack__'):
        a = np.from_dlpack(x)
    else:
        return None
    if not a.dtype.isnative:
        a = a.astype(a.dtype.newbyteorder('='))
    name = a.dtype.name
    if a.dtype.kind == 'V' and a.dtype.names is None and a.dtype.itemsize == 2 and name == 'void16':
        name = 'bfloat16'       # as an .npy file has it
    if name not in _dtypes.PLAIN and name != 'bfloat16' and not name.startswith(('float', 'int', 'uint')) or a.dtype.kind == 'M':
        raise TypeError(f'{a.dtype} is not a type of checkpoints')
    return a, name


def _leaf(x: Any) -> tuple[int, str | None, Any]:
    """(kind, dtype name, buffer) of a leaf."""
    if x is None:
        return lib.NONE, None, None
    if isinstance(x, (str, np.str_)):
        return lib.STRING, None, str(x).encode()
    if isinstance(x, Leaf) and (x.dtype_name is None or x.recorded_type == 'bytes'):
        return _leaf(x.read())
    if isinstance(x, (bytes, bytearray)):
        raise TypeError('Orbax stores no bytes: np.frombuffer(x, np.uint8) is an array of them')
    if not isinstance(x, np.generic):
        for cls, name in _NUMBERS:
            if isinstance(x, cls):
                if name == 'int64' and not -1 << 63 <= int(x.real) < 1 << 63:
                    name = 'uint64'
                    if not 0 < int(x.real) < 1 << 64:
                        raise TypeError('an integer has 64 bits in checkpoints: a string, or JSON of an item or of metadata, has more')
                return lib.SCALAR, name, _dtypes.raw(np.asarray(x, name))
    found = _array(x)
    if found is None:
        raise TypeError(f'a {type(x).__module__}.{type(x).__qualname__} is not a leaf of checkpoints')
    a, name = found
    kind = lib.SCALAR if isinstance(x, np.generic) or isinstance(x, Leaf) and x.kind == 'scalar' else lib.ARRAY
    return kind, name, _dtypes.raw(a)


class Recorded:
    """Attributes of leaves that are arrays of jax: Orbax restores them as such, and where they were."""

    def __init__(self, options: Mapping[str, Any]):
        self.type = None if 'leaf_type' in options else 'jax.Array'
        self.sharding = options.get('sharding_file') not in (False, 'off')
        self.attributes: list[tuple[Keys, str, str]] = []

    def take(self, keys: Keys, x: Any, is_alone: bool) -> Any:
        """x, or the integers of a typed PRNG key. is_alone: the item is this value, and has no place for where it was."""
        if isinstance(x, Leaf):
            return self.take_stored(keys, x, is_alone)
        if is_alone and _jax.is_key(x):
            raise TypeError('a typed PRNG key is a leaf of a tree: a dict that holds it can be')
        if _jax.is_key(x):
            x, impl = _jax.key_data(x)
            self.attributes.append((keys, 'prng_impl', impl))
        elif not _jax.is_array(x):
            return x
        elif self.type is not None:
            self.attributes.append((keys, 'save.leaf_type', self.type))
        if self.sharding and not is_alone and (text := _jax.sharding_text(x)) is not None:
            self.attributes.append((keys, 'sharding', text))
        return x

    def take_stored(self, keys: Keys, x: Leaf, is_alone: bool) -> Leaf:
        """x, with the attributes that its checkpoint records."""
        impl = None if is_alone else x.prng_impl
        if impl is not None:
            self.attributes.append((keys, 'prng_impl', impl))
        elif self.type is not None and x.recorded_type == self.type:
            self.attributes.append((keys, 'save.leaf_type', self.type))
        if self.sharding and not is_alone and (text := x.recorded_sharding) is not None:
            self.attributes.append((keys, 'sharding', text))
        return x


def _parts(x: Any) -> tuple[Parts | None, bytes | None]:
    """The children of a container, and JSON with the class of a namedtuple, or the order of the keys of a dict that is not sorted."""
    text = None
    parts: Parts | None
    if isinstance(x, Checkpoint):
        kind, text = x.recorded_parts()
        children = [(str(key), child) for key, child in x.items()]
        parts = Parts(kind if kind in (*SEQUENCES, lib.NAMEDTUPLE) else lib.DICT, children, list)
    else:
        parts = parts_of(x)
        if parts is not None and parts.kind == lib.NAMEDTUPLE:
            text = json.dumps({'module': type(x).__module__, 'clazz': type(x).__qualname__,
                               'fields': [key for key, _ in parts.children]}).encode()
    if parts is not None and parts.kind == lib.DICT and (names := [key for key, _ in parts.children]) != in_order(names):
        text = json.dumps({'fields': names}).encode()
    return parts, text


def _flatten(tree: Any, first: Keys, path: str, recorded: Recorded) -> list[lib.Value]:
    """The values of a tree, containers that say their kind before what they hold."""
    out: list[lib.Value] = []
    stack: list[tuple[Keys, Any]] = [(first, tree)]
    is_told = False
    while stack:
        keys, x = stack.pop()
        if len(keys) > lib.DEPTH:
            raise lib.Error(errno.EINVAL, f'{"/".join(map(str, keys[:4]))}/... has more than {lib.DEPTH} levels, or is in itself', path)
        try:
            parts, text = _parts(x)
            kind, dtype, data = _leaf(recorded.take(keys, x, keys == first)) if parts is None else (parts.kind, None, None)
        except Exception as e:      # of an object of somebody else's
            name = '/'.join(map(str, keys))
            raise lib.Error(errno.EINVAL, f'{name!r} cannot be saved: {e}', os.path.join(path, name)) from None
        if parts is None or kind == lib.NONE:
            out.append((keys, kind, dtype, data))
            continue
        out.append((keys, parts.kind, None, text))
        if not is_told and isinstance(x, dict) and any(type(key) is int for key in x):
            is_told = True
            warn(f'keys of {"/".join(map(str, keys))!r} are integers, which checkpoints store as texts: load(like=) has integers again')
        is_sequence = parts.kind in SEQUENCES
        for key, child in reversed(parts.children):
            stack.append(((*keys, int(key) if is_sequence else key), child))
    return out


def _nested(flat: Mapping[str, Any], separator: str, path: str) -> dict[str, Any]:
    """The tree of a flat dict, whose names are keys that are joined by the separator."""
    tree: dict[str, Any] = {}
    directories: dict[tuple[str, ...], dict[str, Any]] = {(): tree}     # by the keys to them; a dict that is a value is not one of them
    for name, value in flat.items():
        keys = tuple(name.split(separator))
        for n in range(1, len(keys)):
            if keys[:n] not in directories:
                if keys[n - 1] in directories[keys[:n - 1]]:
                    raise lib.Error(errno.EINVAL, f'{name!r} is below a name that has a value itself', path)
                directories[keys[:n]] = directories[keys[:n - 1]][keys[n - 1]] = {}
        if keys[-1] in directories[keys[:-1]]:
            raise lib.Error(errno.EINVAL, f'{name!r} is a name that others are below', path)
        directories[keys[:-1]][keys[-1]] = value
    return tree


@names_its_arguments
def save(path: Path, tree: Any, *, item: str | None = 'default', items: bool = False, separator: str | None = None,
         metadata: Mapping[str, Any] | None = None, item_metadata: Mapping[str, Mapping[str, Any]] | None = None,
         metrics: Mapping[str, Any] | None = None, json_items: Mapping[str, Any] | None = None, opaque: Mapping[str, Any] | None = None,
         overwrite: bool = False, progress: lib.Progress | None = None, **options: Any) -> None:
    """Write a checkpoint: atomic, and durable when it returns. What fails leaves nothing behind.

    path is a step, and the tree becomes its item `default`, which is what Orbax restores when it is asked for a step.
    Directories above it are made when they do not exist.

    tree       dicts, lists, tuples, and what else is registered as a pytree by jax when jax is loaded, of arrays of
               numpy, jax or torch (those on the CPU are not copied), Python and numpy numbers, strings, None; typed PRNG keys of
               jax, which Orbax restores as such and load() as their integers. Of arrays of jax it is recorded that they are, and
               their sharding, for Orbax
               Or a handle of open(): a step with all of its items, an item, or a part of one. It is copied by `pytreefs convert`:
               what is stored alike is not decoded, nothing is held in memory, and what the checkpoint records stays (kinds of
               containers, PRNG keys, shardings, custom metadata). Handles inside of a tree are read as its other values
    item       the item's name; None: path is an item itself, a single tree
    items      True: the tree is a dict of items
    separator  the tree is a flat dict, such as a state_dict(), whose names are split at it: the counterpart of load_flat()
    metadata   custom metadata of the step (of the item when item is None): what JSON can say. load() returns none: those of
               a checkpoint are open(PATH).metadata
    item_metadata  custom metadata of items of a step, by the items' names: open(PATH)[ITEM].metadata
    metrics    the item of metrics by which Orbax's CheckpointManager finds the best step: {'loss': 0.5}
    json_items items of a step that are JSON, by their names: {'config': {'width': 64}}
    opaque     items of a step that are files, by their names: a directory whose files are copied, or {'vocab.txt': b'...'}, with slashes for
               what lies deeper
    overwrite  replace the checkpoint that is there: it is the old one or the new one at every moment and after a crash, except on NFS
    progress   called with bytes done and bytes in all, at last with all of them; not called where there are none. An
               exception of it ends the save, and nothing is written; once the step is visible, it is raised after the save.
               While a handle is copied, with no bytes done
    options    those of `-o` (`pytreefs help options`): compression='zstd:3', zarr=3, ocdbt=False, rich_types=True

    >>> save('ckpts/7', {'params': {'w': np.ones((4, 2), np.float32)}, 'step': 7})
    >>> load('ckpts/7')['step']
    7

    Raises Error with the leaf that cannot be saved as filename.
    """
    where = os.fspath(path)
    others = _Others(where, metrics, json_items, opaque)
    if isinstance(tree, Checkpoint) and (not items or tree.kind == 'step'):
        if separator is not None or item_metadata is not None or others.files or others.items:
            raise ValueError('separator, item_metadata, metrics, json_items and opaque are not for a handle, which is copied with what it has: '
                             'save what its load() returns with them')
        _Copying(tree, where, item, metadata, overwrite).run(progress, options)
        return
    if separator is not None:
        tree = _nested(tree, separator, where)
    flags = (lib.DRAFT_REPLACE if overwrite else 0) | (lib.DRAFT_ITEM if item is None and not items else 0)
    values: list[lib.Value] = []
    recorded = Recorded(options)
    for name, custom in (item_metadata or {}).items():
        recorded.attributes.append(((name,), 'custom_metadata', json.dumps(dict(custom))))
    if metadata is not None:
        recorded.attributes.append(((), 'custom_metadata', json.dumps(dict(metadata))))
    if items:
        for name, part in tree.items():
            values += _flatten(part, (str(name),), where, recorded)
    else:
        values = _flatten(tree, () if item is None else (item,), where, recorded)
    taken = {keys[0] for keys, *_ in values if keys}
    if twice := next((name for name in others.names if name in taken or others.names.count(name) > 1), None):
        raise lib.Error(errno.EINVAL, f'{twice!r} would be two items', where)
    _write(where, values, recorded, progress, options_text(options), flags, others)


class _Others:
    """Items of a step that are not trees."""

    def __init__(self, where: str, metrics: Mapping[str, Any] | None, json_items: Mapping[str, Any] | None, opaque: Mapping[str, Any] | None):
        for name, given, example in (('metrics', metrics, "{'loss': 0.5}"), ('json_items', json_items, "{'config': {'width': 64}}"),
                                     ('opaque', opaque, "{'tokenizer': 'tokenizer/'}")):
            if given is not None and not isinstance(given, Mapping):
                raise TypeError(f'{name} is a dict, as {example}, not a {type(given).__name__}')
        self.names: list[str] = []
        self.items: list[lib.Value] = []        # directories that are going to be opaque
        self.files: list[lib.Value] = []
        for name, value in [*((('metrics', metrics),) if metrics is not None else ()), *(json_items or {}).items()]:
            try:
                text = json.dumps(value, default=_number_of).encode()
            except (TypeError, ValueError) as e:
                raise lib.Error(errno.EINVAL, f'{name!r} cannot be saved as JSON: {e}', os.path.join(where, name)) from None
            self.names.append(name)
            self.files.append(((name + '.json',), lib.FILE, None, text))
        for name, files in (opaque or {}).items():
            self.names.append(name)
            self.items.append(((name,), lib.DICT, None, None))
            for path, data in (files if isinstance(files, Mapping) else _files_of(files)).items():
                self.files.append(((name, *path.split('/')), lib.FILE, None, _content(data, f'opaque[{name!r}][{path!r}]')))


def _content(data: Any, what: str) -> Any:
    """The bytes of a file that is given by a text, its bytes, or the path of another."""
    if isinstance(data, os.PathLike):
        with open(data, 'rb') as f:
            return f.read()
    if isinstance(data, Mapping):
        raise TypeError(f'{what} is a dict: deeper files have slashes in their names, as {{"a/b.txt": ...}}')
    return data.encode() if isinstance(data, str) else data


def _number_of(x: Any) -> Any:
    """For JSON: the number that a scalar of numpy, jax or torch, or a leaf, is."""
    if isinstance(x, Leaf):
        return x.value
    if getattr(x, 'shape', None) == () and hasattr(x, 'item'):
        return x.item()
    raise TypeError(f'a {type(x).__name__} is not JSON')


def _files_of(directory: Any) -> dict[str, bytes]:
    """The files of a directory, by their paths in it."""
    found, top = {}, os.fspath(directory)

    def stop(error: OSError) -> None:
        raise lib.error(error.errno or errno.EIO, error.strerror or '', error.filename)
    for at, directories, names in os.walk(top, onerror=stop):
        if link := next((name for name in directories if os.path.islink(os.path.join(at, name))), None):
            raise lib.Error(errno.EINVAL, 'is a link to a directory, which is not followed', os.path.join(at, link))
        for name in names:
            path = os.path.join(at, name)
            with open(path, 'rb') as f:
                found[os.path.relpath(path, top).replace(os.sep, '/')] = f.read()
    return found


class _Copying:
    """A handle that becomes a checkpoint."""

    def __init__(self, tree: Checkpoint, where: str, item: str | None, metadata: Mapping[str, Any] | None, overwrite: bool):
        self.tree, self.where, self.source = tree, where, tree.place()
        if tree.kind in ('root', 'opaque'):
            what = 'a directory of steps: save one of them' if tree.kind == 'root' else 'an item that is not a tree: save its step'
            raise lib.Error(errno.EINVAL, f'{self.source!r} is {what}', where)
        if not overwrite and '://' not in where and os.path.lexists(where):
            raise lib.error(errno.EEXIST, 'is there already, and is not to be replaced', where)
        self.words = ['--force'] if overwrite else []
        if tree.kind == 'step':         # with the names of its items
            self.words += ['--layout', 'v1' if item is not None else 'v0']
        else:
            self.words += ['--layout', 'v0'] if item is None else ['--layout', 'v1', '--item', item]
        if metadata is not None:
            self.words += ['--custom-metadata', json.dumps(dict(metadata))]

    def run(self, progress: lib.Progress | None, options: Mapping[str, Any]) -> None:
        self.tree.context.warn_of_names(self.tree.name)
        total = sum(leaf.nbytes for leaf in self.tree.leaves() if leaf.dtype_name) if progress else 0
        report = progress if progress and total else lambda done, total: None
        convert(self.source, self.where, self.words, {**self.tree.context.options, **options}, lambda: report(0, total))
        report(total, total)


def _write(where: str, values: list[lib.Value], recorded: Recorded, progress: lib.Progress | None, options: str,
           flags: int, others: _Others) -> None:
    draft = lib.Draft(where, options, flags)
    try:
        if remark := draft.remark():
            warn(remark)
        draft.put(others.items, None)
        for keys, *_ in others.items:
            draft.attribute(keys, 'kind', 'opaque')
        draft.put(values + others.files, progress)
        for keys, name, text in recorded.attributes:
            draft.attribute(keys, name, text)
        draft.commit(progress)
    finally:
        # Nothing after a commit; and an exception must not wait for the collector to remove what was written.
        draft.abort()
