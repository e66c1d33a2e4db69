# SPDX-License-Identifier: Apache-2.0
"""load(): whole trees, or parts of them, in one batch of all processors."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from . import _dtypes, _jax, _random_key
from . import _pytreefs as lib
from ._checkpoint import Checkpoint
from ._context import Context, Path, join, names_its_arguments, warn
from ._dtypes import Framework
from ._leaf import Leaf
from ._node import CONTAINERS, SEQUENCES, Node, children_of, is_bytes, make, number, parts_of
from ._patterns import Patterns

Source: TypeAlias = Path | Checkpoint | Leaf
Only: TypeAlias = str | Sequence[str] | Callable[[str], object] | None

ABSENT = object()       # of a node that was not asked for


class Loading:
    """One load: what is read, and the value of each node."""

    def __init__(self, path: Source, only: Only, dtype: Any, framework: Framework, options: dict[str, Any]):
        self.is_torch = _dtypes.is_torch_framework(framework)
        if isinstance(path, (Checkpoint, Leaf)):
            options = {**path.context.options, **options}
            path = path.place()
        self.context = context_of_leaf(path, options)
        self.dtype = None if dtype is None else _dtypes.name_of(dtype)
        try:
            self.base, self.nodes = self._read_tree(only is None)
            self.top = _random_key.merge(self.context, self.base, self.nodes) if self.nodes[0].kind == lib.STEP else 0
            self.chosen = self._choose(only)
            self.context.warn_of_names(self.base)
            if 'transforms' in options or 'transforms' in os.environ.get('PYTREEFS_OPTIONS', ''):
                self._warn_of_rules()
            self._describe([i for i in self.chosen if self.nodes[i].kind == lib.ARRAY and self.nodes[i].dtype is None])
        except BaseException:
            self.context.close()
            raise
        self.children = children_of(self.nodes)
        self.values: list[Any] = [ABSENT] * len(self.nodes)
        self.requests: list[lib.Request] = []
        # Arrays that become tensors once they are read.
        self.arrays: list[tuple[int, np.ndarray[Any, Any], str]] = []
        # Numbers as they are stored, of arrays that are cast to a type that may not have them.
        self.checks: list[tuple[int, np.ndarray[Any, Any], str]] = []

    def __enter__(self) -> Loading:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def _read_tree(self, is_described: bool) -> tuple[str, list[Node]]:
        """The nodes, and the name of the top of them: of a step that has the item `default`, that item."""
        handle = self.context.handle
        kind = handle.kind()
        if kind == lib.ROOT:
            raise lib.Error(errno.EISDIR, 'is a directory of steps: name one, as in ' + join(self.context.path, 'latest'),
                            self.context.path)
        if kind in (lib.OPAQUE, lib.FILE):
            return '', [self.context.describe('')]
        if kind != lib.STEP:
            return '', self.context.whole(lib.TREE_VALUES, is_described)
        items = [name for name, is_directory, _ in handle.list('') if is_directory]
        if 'default' in items:
            nodes = self.context.tree('default', lib.TREE_VALUES, is_described)
            if nodes[0].kind != lib.OPAQUE:
                return 'default', nodes
        return '', self.context.tree('', lib.TREE_VALUES, is_described)

    def _warn_of_rules(self) -> None:
        """A rule that was forgotten would be a leaf that is missing without a word."""
        text = self.context.handle.attribute(self.base, 'left_out')
        if text:
            warn(f'{self.context.path}: transforms: {json.loads(text)["text"]}')

    def _describe(self, leaves: list[int]) -> None:
        """Open leaves of which only the names were read. An item of a step may have been replaced since then."""
        if not leaves:
            return
        try:
            found = self.context.leaves(self.base, leaves, lib.TREE_VALUES)
        except IndexError:
            found = []
        if [(node.path, node.version) for node in found] != [(self.nodes[i].path, self.nodes[i].version) for i in leaves]:
            raise self.context.fail(-errno.ESTALE, 'was replaced while it was read', self.base)
        for i, node in zip(leaves, found, strict=True):
            was = self.nodes[i]
            self.nodes[i] = node._replace(key=was.key, is_index=was.is_index, parent=was.parent)

    def fail(self, text: str, name: str = '') -> lib.Error:
        return self.context.fail(-errno.EINVAL, text, name)

    # ---- leaves ----

    def keys(self, i: int) -> tuple[str, ...]:
        out: list[str] = []
        while self.nodes[i].parent >= 0:
            out.append(self.nodes[i].key)
            i = self.nodes[i].parent
        return tuple(reversed(out))

    def is_leaf(self, i: int) -> bool:
        return self.nodes[i].kind not in CONTAINERS and self.nodes[i].kind not in (lib.STEP, lib.OPAQUE, lib.FILE)

    def read_array(self, i: int, name: str | None = None, into: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """The array that the batch will fill; name: the dtype it is cast to."""
        node = self.nodes[i]
        stored = node.dtype or 'uint8'
        name = name or stored
        a = _dtypes.empty(node.shape or (), name, join(self.base, node.path)) if into is None else into
        if a.size:
            self.requests.append((join(self.base, node.path), None, None if name == stored else name, _dtypes.raw(a), node.version))
        return a

    def read_checked(self, i: int, name: str, into: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """read_array(), and run() fails for a number that the dtype cannot have."""
        stored = self.nodes[i].dtype or 'uint8'
        if _dtypes.may_change(stored, name):
            self.checks.append((i, self.read_array(i, _dtypes.exact(stored)), name))
        return self.read_array(i, name, into)

    def cast_of(self, node: Node) -> str:
        """The dtype that an array is loaded as: casts are for floating types."""
        stored = node.dtype or 'uint8'
        return self.dtype if self.dtype and _dtypes.is_floating(stored) else stored

    def ask(self, i: int) -> None:
        """A leaf as it was saved."""
        node = self.nodes[i]
        if node.kind == lib.UNKNOWN:
            raise self.context.fail(node.error or -errno.EIO, (node.text or b'').decode(errors='replace'),
                                    join(self.base, node.path))
        if is_bytes(node):
            self.values[i] = self.context.bytes_of(join(self.base, node.path))
        elif node.kind == lib.ARRAY:
            name = self.cast_of(node)
            a = self.read_array(i, name)
            self.values[i] = a
            if self.is_torch:
                self.arrays.append((i, a, name))
        elif node.kind == lib.SCALAR:
            self.values[i] = number(node.text or b'null', node.dtype or 'float64')
        elif node.kind == lib.STRING:
            self.values[i] = (node.text or b'').decode()
        elif node.kind == lib.NONE:
            self.values[i] = None
        elif node.kind == lib.PLACEHOLDER:
            self.values[i] = ...
        else:
            self.values[i] = node.text if node.text is not None else self.context.bytes_of(join(self.base, node.path))

    def files(self, i: int) -> Any:
        """An item that is not a tree, or a file of it: what a JSON object or list says, else bytes."""
        node, name = self.nodes[i], join(self.base, self.nodes[i].path)
        found = Leaf(self.context, name, (), node) if node.kind == lib.FILE else Checkpoint(self.context, name, (), node.kind)
        try:
            value = found.json()
        except (ValueError, lib.Error):
            value = None
        return value if isinstance(value, (dict, list)) else _bytes_of(found)

    def run(self, progress: lib.Progress | None) -> None:
        self.context.read(self.requests, progress)
        for i, a, name in self.checks:
            if (odd := _dtypes.changed(a, name)) is not None:
                raise self.unfit(i, odd, name)
        for i, a, name in self.arrays:
            try:
                self.values[i] = _dtypes.to_torch(a, name)
            except TypeError as e:
                raise self.fail(str(e), join(self.base, self.nodes[i].path)) from None

    def unfit(self, i: int, x: Any, name: str) -> lib.Error:
        node = self.nodes[i]
        return self.fail(f'has {x!r}, which {name} cannot hold: {name} here, {_stored_kind(node)} in the checkpoint', join(self.base, node.path))

    # ---- trees ----

    def _choose(self, only: Only) -> list[int]:
        """The leaves that are asked for, in the order of the tree."""
        leaves = [i for i in range(len(self.nodes)) if self.is_leaf(i)]
        if only is None:
            return leaves
        if callable(only):
            return [i for i in leaves if only('/'.join(self.keys(i)))]
        patterns = Patterns([only] if isinstance(only, str) else only)
        if self.nodes[0].kind == lib.STEP:
            # An item that is one value, a random key, has a name of its own.
            chosen = [i for i in leaves if patterns.choose(*reversed(self.nodes[i].path.split('/', 1))) or
                      self.nodes[i].parent == 0 and patterns.choose(self.nodes[i].key)]
        else:
            item = self.base or self.context.path.rstrip('/').rpartition('/')[2]
            chosen = [i for i in leaves if patterns.choose(self.nodes[i].path, item)]
        if unused := patterns.unused():
            below = unused[0].strip('/')
            hint = f'; {below + "/"!r} matches the leaves below' if any(
                node.kind in CONTAINERS and node.path == below for node in self.nodes) else ''
            raise self.fail(f'{unused[0]!r} matches no leaf{hint}')
        return chosen

    def build(self, is_whole: bool) -> Any:
        """The tree of the values. is_whole: also containers in which nothing was asked for."""
        values = self.values
        for i in range(len(self.nodes) - 1, -1, -1):
            node = self.nodes[i]
            if self.is_leaf(i):
                continue
            if node.kind in (lib.OPAQUE, lib.FILE):
                if is_whole:
                    values[i] = self.files(i)
                continue
            below = [(self.nodes[c].key, values[c]) for c in self.children[i] if values[c] is not ABSENT]
            if not below and not is_whole and i:
                continue
            if len(below) < len(self.children[i]) and node.kind == lib.NAMEDTUPLE:
                below = [(self.nodes[c].key, ... if values[c] is ABSENT else values[c]) for c in self.children[i]]
            if node.kind in SEQUENCES and len(below) < len(self.children[i]):
                below = [(self.nodes[c].key, ... if values[c] is ABSENT else values[c]) for c in self.children[i]]
            values[i] = make(node.kind, node.text, below)
        return values[self.top]


def _bytes_of(found: Leaf | Checkpoint) -> Any:
    return found.read() if isinstance(found, Leaf) else {key: _bytes_of(value) for key, value in found.items()}


class Matching:
    """A tree that a user has, against what is stored: a plan of what is read, and where the two differ."""

    def __init__(self, loading: Loading, in_place: bool, only: set[int] | None):
        self.loading = loading
        self.in_place = in_place
        self.only = only
        self.differences: list[str] = []
        self.made: list[tuple[int, Any]] = []

    def match(self, x: Any, i: int, path: str) -> Callable[[], Any]:
        """A function that returns the value once everything is read."""
        node = self.loading.nodes[i]
        if x is ... or self.only is not None and self.loading.is_leaf(i) and i not in self.only:
            return lambda: x
        if node.kind in (lib.OPAQUE, lib.FILE):
            return self._value(x, self.loading.files(i), path)
        parts = self._parts(x, path)
        if parts is not None and not parts.children and node.kind == lib.NONE:
            return lambda: x        # Orbax saves a namedtuple without fields, as of optax, as None
        if parts is not None:
            return self._container(x, parts, i, path)
        if node.kind in CONTAINERS or node.kind == lib.STEP:
            self.differences.append(f'{path or "the top"}: a {_kind(x)} here, a container in the checkpoint')
            return lambda: x
        return self._leaf(x, i, path)

    def _parts(self, x: Any, path: str) -> Any:
        try:
            return parts_of(x)
        except ValueError as e:
            self.differences.append(f'{path or "the top"}: {e}')
            return None

    def _value(self, x: Any, value: Any, path: str) -> Callable[[], Any]:
        """The parsed value of JSON, or bytes of files: not a tree."""
        parts = None if x is ... else self._parts(x, path)
        if x is ...:
            pass
        elif self.in_place:
            self.differences.append(f'{path or "the top"}: is not an array, which out= could fill')
        elif parts is not None and isinstance(value, (dict, list)):
            stored = dict(value) if isinstance(value, dict) else {str(i): v for i, v in enumerate(value)}
            made = []
            for key, child in parts.children:
                where = f'{path}/{key}' if path else key
                if key in stored:
                    made.append(self._value(child, stored.pop(key), where))
                else:
                    self.differences.append(f'{where}: is not in the checkpoint')
            self.differences += [f'{path + "/" if path else ""}{key}: is in the checkpoint alone' for key in stored]
            return lambda: parts.remake([m() for m in made])
        elif parts is not None or _class(x) != _class(value):
            self.differences.append(f'{path or "the top"}: a {_kind(x)} here, a {_kind(value)} in the checkpoint')
        else:
            return lambda: self._number(x, value, path, _kind(value))
        return lambda: x

    def _number(self, x: Any, value: Any, path: str, stored: str) -> Any:
        """A number of the type that was asked for; another value as it is."""
        if not _is_number(x):
            return value
        if isinstance(value, complex) and not isinstance(x, complex) and not value.imag:
            value = value.real
        try:
            made = type(x)(value)
            if made == value or isinstance(made, (float, complex)):
                return made
        except (TypeError, ValueError, OverflowError):
            pass
        raise self.loading.fail(f'has {value!r}, which {_kind(x)} cannot hold: {_kind(x)} here, {stored} in the checkpoint', path)

    def _container(self, x: Any, parts: Any, i: int, path: str) -> Callable[[], Any]:
        nodes, children = self.loading.nodes, self.loading.children
        if self.loading.is_leaf(i):
            self.differences.append(f'{path or "the top"}: a container here, a leaf in the checkpoint')
            return lambda: x
        stored = {nodes[c].key: c for c in children[i]}
        made: list[Callable[[], Any]] = []
        for key, child in parts.children:
            where = f'{path}/{key}' if path else key
            if key in stored:
                made.append(self.match(child, stored.pop(key), where))
            elif child is not ...:
                self.differences.append(f'{where}: is not in the checkpoint')
            else:
                made.append(lambda: ...)
        for key, c in stored.items():
            if nodes[c].kind in (lib.OPAQUE, lib.FILE):
                continue        # what is not a tree needs no place
            if self.only is None or c in self.only:
                self.differences.append(f'{path + "/" if path else ""}{key}: is in the checkpoint alone')
        return (lambda: self._keep(x, made)) if self.in_place else lambda: parts.remake([m() for m in made])

    @staticmethod
    def _keep(x: Any, made: list[Callable[[], Any]]) -> Any:
        for m in made:
            m()
        return x

    def _leaf(self, x: Any, i: int, path: str) -> Callable[[], Any]:
        loading, node = self.loading, self.loading.nodes[i]
        is_array = hasattr(x, 'shape') and hasattr(x, 'dtype')
        if node.kind == lib.UNKNOWN or not (is_array or _is_number(x)):
            loading.ask(i)
        if not is_array:
            value_of = self._plain(x, i)
            if value_of is None or self.in_place and x is not None:
                here = f'a {_kind(x)} here' if value_of is None else f'a {_kind(x)}, which out= cannot fill'
                self.differences.append(f'{path or "the top"}: {here}, a {_stored_kind(node)} in the checkpoint')
            return value_of or (lambda: x)
        if node.dtype is None:
            self.differences.append(f'{path or "the top"}: a {_kind(x)} here, a {_stored_kind(node)} in the checkpoint')
            return lambda: x
        if _jax.is_key(x):
            return self._key(x, i, path)
        shape, stored = tuple(x.shape), node.shape or ()
        if shape != stored:
            self.differences.append(f'{path or "the top"}: shape {list(shape)} here, {list(stored)} in the checkpoint')
            return lambda: x
        if self.in_place:
            return self._into(x, i, path)
        name = loading.dtype if loading.dtype and _dtypes.is_floating(node.dtype) else _dtypes.name_of(x.dtype)
        a = loading.read_checked(i, name)
        if loading.is_torch:
            loading.arrays.append((i, a, name))
            return lambda: loading.values[i]
        return lambda: a[()] if isinstance(x, np.generic) else a

    def _plain(self, x: Any, i: int) -> Callable[[], Any] | None:
        """The value for a leaf that is not an array; None: another kind is stored."""
        loading, node = self.loading, self.loading.nodes[i]
        name = join(loading.base, node.path)
        if _is_number(x):
            if node.dtype is None or node.shape:
                return None
            if node.kind == lib.ARRAY:
                a = loading.read_array(i, _dtypes.exact(node.dtype))
                return lambda: self._number(x, a.item(), name, _stored_kind(node))
            loading.ask(i)
            return lambda: self._number(x, loading.values[i], name, _stored_kind(node))
        same = (x is None) == (node.kind == lib.NONE) and isinstance(x, str) == (node.kind == lib.STRING)
        return (lambda: loading.values[i]) if same and (not isinstance(x, bytes) or isinstance(loading.values[i], bytes)) else None

    def _key(self, x: Any, i: int, path: str) -> Callable[[], Any]:
        """A typed PRNG key of jax: its integers are stored, and of which implementation they are."""
        loading, node = self.loading, self.loading.nodes[i]
        name = join(loading.base, node.path)
        impl = loading.context.prng_impl(name)
        shape, stored = _jax.key_data_shape(x), node.shape or ()
        if self.in_place:
            raise loading.fail('a PRNG key is not filled in place: like= makes a new one', name)
        if impl is None:
            self.differences.append(f'{path or "the top"}: a PRNG key here, {_stored_kind(node)} in the checkpoint')
        elif shape != stored:
            self.differences.append(f'{path or "the top"}: keys of {list(shape)} integers here, {list(stored)} in the checkpoint')
        else:
            a = loading.read_array(i)
            return lambda: _jax.wrap_key(a, impl)
        return lambda: x

    def _into(self, x: Any, i: int, path: str) -> Callable[[], Any]:
        try:
            a, name = _dtypes.fillable(x)
        except ValueError as e:
            raise self.loading.fail(f'what is read into {e}', path) from None
        self.loading.read_checked(i, name, a)
        return lambda: x


def _kind(x: Any) -> str:
    return 'None' if x is None else type(x).__name__


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float, complex)) and not isinstance(x, np.generic)


def _class(x: Any) -> Any:
    """Values of JSON, and bytes, differ in kind when this differs."""
    return complex if _is_number(x) else next((cls for cls in (str, bytes, dict, list) if isinstance(x, cls)), type(x))


def _stored_kind(node: Node) -> str:
    if is_bytes(node):
        return 'bytes'
    if node.dtype:
        return f'{node.dtype}{list(node.shape or ())}'
    return {lib.NONE: 'None', lib.STRING: 'string', lib.PLACEHOLDER: 'placeholder'}.get(node.kind, 'leaf')


def context_of_leaf(path: Path, options: dict[str, Any]) -> Context:
    """A leaf may be named without its extension, as its key is."""
    try:
        return Context(path, options)
    except lib.NotFoundError as e:
        for ext in ('.npy', '.json', '.txt'):
            try:
                return Context(os.fspath(path) + ext, options)
            except lib.NotFoundError:
                pass
        raise e from None


@names_its_arguments
def load(path: Source, only: Only = None, dtype: Any = None, like: Any = None, out: Any = None,
         framework: Framework = 'numpy', progress: lib.Progress | None = None, **options: Any) -> Any:
    """A whole tree as it was saved: dicts, lists, tuples where recorded, None, numbers, strings, arrays.

    path is an item, a directory of it, a leaf (with its extension or without), a view of one ('w[0:4]@float32.npy'), what open()
    gave, or a step: of a step, its item `default` when it has one, as Orbax's CheckpointManager.restore() does, else a dict of its
    items; an item of JSON is what it says, one of a random key its integers or its state, another one that is not a tree a dict of the
    bytes of its files.

    only       a pattern or several (`pytreefs help patterns`), or a function of the path 'params/dense/kernel'. Dicts
               have only what was chosen, positions of sequences that were not hold `...`
    dtype      floating arrays are cast to it
    like       a tree to match, of arrays, anything with shape and dtype (jax.ShapeDtypeStruct), numbers, strings, None:
               its containers and its dtypes are the result's, `...` in it is not read. A typed PRNG key of jax comes as one.
               Items and files that are not trees are compared by what load() gives for them. A cast that would make another number of one
               (300 to int8, 2.7 to int) is refused. Error tells each difference
    out        a tree of arrays or tensors that are filled in place, and returned; matched as `like` is
    framework  'torch' (or 'pt'): arrays come as tensors, over the memory that they were read into
    progress   called with bytes done and bytes in all, some 20 times a second, at last with all of them; an exception of it ends the load
    options    those of `-o` (`pytreefs help options`). With transforms=, a warning has the number of stored leaves that the
               rules leave out, and of rules that make nothing

    >>> tree = load('ckpts/latest/state')
    >>> tree['params']['embed']['table'].shape, tree['step']
    ((128, 32), 1500)
    >>> list(load('ckpts/latest/state', only='params/embed/')['params'])
    ['embed']

    Raises Error when something cannot be read, with the leaf as filename.
    """
    if like is not None and out is not None:
        raise ValueError('like and out are two trees to match: give one of them')
    with Loading(path, only, dtype, framework, options) as loading:
        target = like if out is None else out
        if target is None:
            for i in loading.chosen:
                loading.ask(i)
            loading.run(progress)
            return loading.build(only is None)
        matching = Matching(loading, out is not None, None if only is None else set(loading.chosen))
        made = matching.match(target, loading.top, '')
        if matching.differences:
            more = len(matching.differences) - 10
            raise loading.fail('is another tree: ' + '; '.join(matching.differences[:10]) +
                               (f'; and {more} more differences' if more > 0 else ''))
        loading.run(progress)
        return made()


@names_its_arguments
def load_flat(path: Source, separator: str = '.', only: Only = None, dtype: Any = None, framework: Framework = 'numpy',
              progress: lib.Progress | None = None, **options: Any) -> dict[str, Any]:
    """The leaves as one dict, for load_state_dict: keys joined by the separator, numbers as arrays of rank 0, strings;
    None and placeholders are left out. Otherwise as load().

    >>> load_flat('ckpts/latest/state/params', only='embed/')['embed.table'].shape
    (128, 32)

    Raises Error, also when two leaves get the same name.
    """
    with Loading(path, only, dtype, framework, options) as loading:
        names: dict[str, int] = {}
        for i in loading.chosen:
            node = loading.nodes[i]
            if node.kind in (lib.NONE, lib.PLACEHOLDER):
                continue
            name = separator.join(loading.keys(i))
            if name in names:
                raise loading.fail(f'two leaves are called {name!r}: another separator may help', join(loading.base, node.path))
            names[name] = i
            if node.kind == lib.SCALAR:
                a = loading.read_array(i, cast := loading.cast_of(node))
                loading.values[i] = a
                if loading.is_torch:
                    loading.arrays.append((i, a, cast))
            else:
                loading.ask(i)
        loading.run(progress)
        return {name: loading.values[i] for name, i in names.items()}
