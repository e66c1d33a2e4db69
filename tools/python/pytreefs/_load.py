# SPDX-License-Identifier: Apache-2.0
"""load(): whole trees, or parts of them, in one batch of all processors."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from . import _dtypes, _jax, _random_key
from . import _pytreefs as lib
from ._checkpoint import Checkpoint
from ._context import Context, Path, join, names_its_arguments, warn
from ._dtypes import Framework
from ._index import Plan, has_dots, plan
from ._leaf import Leaf
from ._node import CONTAINERS, KINDS, SEQUENCES, Node, children_of, is_bytes, make, number, stored_kind
from ._patterns import Patterns

Source: TypeAlias = Path | Checkpoint | Leaf
Only: TypeAlias = str | Sequence[str] | Mapping[str, Any] | Callable[[str], object] | None

ABSENT = object()       # of a node that was not asked for
CHECKED = 8 << 20       # elements of a cast that are checked at a time,
CHECKED_PARTS = 16      # or a part of the array: a large chunk is decoded once for each


def _parts(box: _jax.Box, most: int, chunks: tuple[int, ...]) -> Iterator[_jax.Box]:
    """Parts of a box of at most that many elements, which begin where chunks do if these are smaller."""
    if math.prod(end - first for first, end in box) <= most:
        yield box
        return
    axis = next(axis for axis, (first, end) in enumerate(box) if end - first > 1)
    first, end = box[axis]
    middle = (first + end) // 2
    if chunks and middle - middle % chunks[axis] > first:
        middle -= middle % chunks[axis]
    for cut in ((first, middle), (middle, end)):
        yield from _parts((*box[:axis], cut, *box[axis + 1:]), most, chunks)


class Loading:
    """One load: what is read, and the value of each node."""

    def __init__(self, path: Source, only: Only, dtype: Any, framework: Framework, options: dict[str, Any], is_mapped: bool = False):
        self.framework = _dtypes.checked(framework)
        if is_mapped and self.framework == 'jax':
            raise ValueError('mmap=True gives arrays of numpy and torch: jax has memory of its own')
        if isinstance(path, (Checkpoint, Leaf)):
            options = {**path.context.options, **options}
            path = path.place()
        self.context = context_of_leaf(path, options)
        self.dtype = None if dtype is None else _dtypes.name_of(dtype)
        self.parts: dict[int, Any] = {}     # of leaves of which a part is asked for: an index, or a list of them
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
        self.is_mapped = is_mapped
        self.maps: list[tuple[int, str]] = []       # arrays that are mapped, not read, and their types
        self.read_only: list[np.ndarray[Any, Any]] = []     # those that are read after all
        # Arrays that become tensors once they are read.
        self.arrays: list[tuple[int, np.ndarray[Any, Any], str]] = []
        # Boxes of arrays that are cast to a type that may not have their numbers.
        self.checks: list[tuple[int, _jax.Box, str]] = []
        # How many requests come before a function that puts an array of jax on devices.
        self.placings: list[tuple[int, Callable[[], Any]]] = []
        self.lazy: list[tuple[int, Callable[[], Any]]] = []
        self.is_in_memory = True        # all of these devices

    def __enter__(self) -> Loading:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def _read_tree(self, is_described: bool) -> tuple[str, list[Node]]:
        """The nodes, and the name of the top of them: of a step that has the item `default`, that item."""
        handle = self.context.handle
        kind = handle.kind()
        if kind == lib.ROOT:
            hint = 'name one, as in ' + join(self.context.path, 'latest') if handle.list('') else 'it has none yet'
            raise lib.Error(errno.EISDIR, 'is a directory of steps: ' + hint, self.context.path)
        if kind in (lib.OPAQUE, lib.FILE):
            return '', [self.context.describe('')]
        if kind != lib.STEP:
            return '', self.context.whole(lib.TREE_VALUES, is_described)
        items = [name for name, is_directory, _ in self.context.listing('') if is_directory]
        if 'default' in items:
            nodes = self.context.tree('default', lib.TREE_VALUES, is_described)
            if nodes[0].kind != lib.OPAQUE:
                return 'default', nodes
        nodes = self.context.tree('', lib.TREE_VALUES, is_described)
        if len(nodes) == 1:
            raise self.context.fail(-errno.ENOENT, 'is a step without items, as one that is being removed', '')
        # It has come back since it was not listed.
        if any(node.parent == 0 and node.key == 'default' and node.kind != lib.OPAQUE for node in nodes):
            raise self.context.replaced('')
        return '', nodes

    def _warn_of_rules(self) -> None:
        """A rule that was forgotten would be a leaf that is missing without a word."""
        text = self.context.attribute(self.base, 'left_out')
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

    def map_array(self, i: int, name: str) -> None:
        """run() sets the value of an array that is mapped; name: its dtype."""
        node = self.nodes[i]
        if name != (node.dtype or 'uint8'):
            raise self.fail(f'is stored as {node.dtype}: as {name} it would be a copy; mmap=True gives it as it is stored', join(self.base, node.path))
        self.maps.append((i, name))

    def _map(self) -> None:
        """Arrays that have too few bytes to be mapped are read."""
        found = self.context.map([(join(self.base, self.nodes[i].path), self.nodes[i].version) for i, _ in self.maps], self.framework == 'torch')
        for (i, name), place in zip(self.maps, found, strict=True):
            shape = self.nodes[i].shape or ()
            if place is None:
                self.values[i] = a = self.read_array(i)
                self.read_only.append(a)
            else:
                self.values[i] = a = np.ndarray(shape, _dtypes.dtype_of(name), cast(Any, place[0]), strides=place[1][:len(shape)])
            if self.framework == 'torch':
                self.arrays.append((i, a, name))

    def read_checked(self, i: int, name: str, into: np.ndarray[Any, Any] | None = None, box: _jax.Box | None = None) -> np.ndarray[Any, Any]:
        """read_array(), or read_box(), and run() fails for a number that the dtype cannot have."""
        node = self.nodes[i]
        if _dtypes.may_change(node.dtype or 'uint8', name):
            self.checks.append((i, tuple((0, n) for n in node.shape or ()) if box is None else box, name))
        return self.read_array(i, name, into) if box is None else self.read_box(i, box, name)

    def read_box(self, i: int, box: _jax.Box, name: str) -> np.ndarray[Any, Any]:
        """A box of an array, which the batch will fill; zeros where it has no elements."""
        node = self.nodes[i]
        stored, shape = node.dtype or 'uint8', node.shape or ()
        leaf = join(self.base, node.path)
        a = _dtypes.empty(tuple(end - first for first, end in box), name, leaf, for_jax=True)
        found = tuple((first, max(first, min(end, n))) for (first, end), n in zip(box, shape))
        if found != box:
            a[...] = np.zeros((), a.dtype)
        within: Any = (..., *(slice(0, end - first) for first, end in found))       # with `...` it is a view, never a scalar
        part = a[within]
        if part.size:
            is_whole = all((first, end) == (0, n) for (first, end), n in zip(found, shape))
            sent = None if is_whole else tuple((first, 1, end - first, False) for first, end in found)
            self.requests.append((leaf, sent, None if name == stored else name, _dtypes.raw(part), node.version))
        return a

    def read_part(self, i: int, name: str, wanted: Plan, for_jax: bool = False) -> np.ndarray[Any, Any]:
        """The elements of an array that an index chooses, which the batch will fill."""
        node, leaf = self.nodes[i], join(self.base, self.nodes[i].path)
        a = _dtypes.empty(wanted.read_shape, name, leaf, for_jax)
        if a.size:
            to: Any = (..., *wanted.flips)      # with `...` it is a view, never a scalar
            self.requests.append((leaf, wanted.box, None if name == node.dtype else name, _dtypes.raw(a[to]), node.version))
        return a.reshape(wanted.shape)

    def _ask_parts(self, i: int, name: str) -> None:
        """The parts that `only` chooses of a leaf, as leaf[index] has them."""
        node, leaf, chosen = self.nodes[i], join(self.base, self.nodes[i].path), self.parts[i]
        if node.dtype is None:
            raise self.fail(f'has no parts, since its kind is {KINDS[node.kind]!r}: `...` chooses the whole', leaf)
        if self.framework == 'jax' and name.startswith('uint') and self.context.prng_impl(leaf) is not None:
            raise self.fail('has no parts, since it is a PRNG key: `...` chooses the whole', leaf)
        try:
            values = [self._ask_part(i, name, index, plan(index, node.shape or ()))
                      for index in (chosen if isinstance(chosen, list) else [chosen])]
        except IndexError as e:
            raise IndexError(f'{os.path.join(self.context.path, leaf)}: {e}') from None
        if self.is_mapped:
            self.map_array(i, name)
        self.lazy.append((i, lambda: [value() for value in values] if isinstance(chosen, list) else values[0]()))

    def _ask_part(self, i: int, name: str, index: Any, wanted: Plan) -> Callable[[], Any]:
        if self.framework == 'jax':
            return self.place(i, name, wanted.shape, _jax.default_sharding(), read=lambda _: self.read_part(i, name, wanted, for_jax=True))
        if self.is_mapped:
            if self.framework == 'torch' and any(flip.step for flip in wanted.flips):
                raise self.fail('a tensor over mapped memory has no negative steps: load() without mmap reads them', join(self.base, self.nodes[i].path))
            return lambda: self.values[i][index]
        a = self.read_part(i, name, wanted)
        if self.framework == 'torch':
            return lambda: self._tensor(i, a, name)
        return lambda: a if wanted.shape or has_dots(index) else a[()]

    def place(self, i: int, name: str, shape: tuple[int, ...], sharding: Any, is_checked: bool = True,
              read: Callable[[_jax.Box], Any] | None = None) -> Callable[[], Any]:
        """An array of jax, of a shape that may be another one than is stored: a function that returns it once everything is read.
        is_checked: a cast that changes numbers fails. read: reads a box of it, in place of that box of the leaf."""
        node = self.nodes[i]
        if self.is_mapped:
            raise self.fail('is asked for as an array of jax, which has memory of its own: mmap=True gives arrays of numpy and torch',
                            join(self.base, node.path))
        if not _jax.holds(_dtypes.dtype_of(name)):
            raise self.fail(f'is {name}, of which jax makes 32 bits: set jax_enable_x64, or give like= with another dtype', join(self.base, node.path))
        if read is None:
            def read(box: _jax.Box) -> Any:
                return self.read_checked(i, name, box=box) if is_checked else self.read_box(i, box, name)
        try:
            sharding = _jax.on_devices(sharding)
            boxes = _jax.boxes_of(sharding, shape)
        except ValueError as e:
            raise self.fail(f'cannot be placed: {e}', join(self.base, node.path)) from None
        values: dict[_jax.Box, Any] = {box: read(box) for box in boxes}
        made: list[Any] = []

        def put() -> Any:
            made.append(_jax.array_of(shape, sharding, _dtypes.dtype_of(name), values))
            values.clear()
            return made[0]
        self.placings.append((len(self.requests), put))
        self.is_in_memory &= _jax.is_memory(sharding)
        return lambda: made[0]

    def ask_jax(self, i: int, name: str) -> Callable[[], Any]:
        """An array that is recorded, where it was if this process has the devices; a typed PRNG key as one."""
        node, leaf = self.nodes[i], join(self.base, self.nodes[i].path)
        sharding = _jax.sharding_from(self.context.attribute(leaf, 'sharding'), node.shape or ()) or _jax.default_sharding()
        value_of = self.place(i, name, node.shape or (), sharding)
        impl = self.context.prng_impl(leaf) if name.startswith('uint') else None
        return value_of if impl is None else lambda: _jax.wrap_key(value_of(), impl)

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
        if is_bytes(node) and i not in self.parts:
            self.values[i] = self.context.bytes_of(join(self.base, node.path))
        elif node.kind == lib.ARRAY or i in self.parts:
            self.ask_array(i)
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

    def ask_array(self, i: int) -> None:
        name = self.cast_of(self.nodes[i])
        if i in self.parts:
            self._ask_parts(i, name)
            return
        if self.framework == 'jax':
            self.lazy.append((i, self.ask_jax(i, name)))
            return
        if self.is_mapped:
            self.map_array(i, name)
            return
        self.values[i] = a = self.read_array(i, name)
        if self.framework == 'torch':
            self.arrays.append((i, a, name))

    def files(self, i: int) -> Any:
        """An item that is not a tree, or a file of it: what a JSON object or list says, else bytes."""
        node, name = self.nodes[i], join(self.base, self.nodes[i].path)
        found = Leaf(self.context, name, (), node) if node.kind == lib.FILE else Checkpoint(self.context, name, (), node.kind)
        try:
            value = found.json()
        except (ValueError, lib.Error):
            value = None
        return value if isinstance(value, (dict, list)) else _bytes_of(found)

    def _batches(self) -> list[tuple[int, list[Callable[[], Any]]]]:
        """(number of requests that are read at once, the arrays that are put on devices then). In the memory of the process arrays are what
        was read, so one batch does; other devices get half of `read_budget` while the other half is read."""
        out: list[tuple[int, list[Callable[[], Any]]]] = []
        puts: list[Callable[[], Any]] = []
        first, n_bytes, counted = 0, 0, 0
        for end, put in self.placings:
            puts.append(put)
            n_bytes += _size_of(self.requests[counted:end])
            counted = end
            if not self.is_in_memory and n_bytes >= self.context.read_budget // 2:
                out.append((end - first, puts))
                first, puts, n_bytes = end, [], 0
        return [*out, (len(self.requests) - first, puts)]

    def run(self, progress: lib.Progress | None) -> None:
        if self.maps:
            self._map()
        total, done = _size_of(self.requests), 0
        placed: list[Any] = []
        batches = self._batches()
        for n, puts in batches:
            # Nothing else has the memory of a batch that is on the devices.
            requests = self.requests[:n]
            del self.requests[:n]
            self.context.read(requests, _part_of(progress, done, total) if progress and len(batches) > 1 else progress)
            done += _size_of(requests)
            requests.clear()
            for a in placed:
                a.block_until_ready()
            placed = [put() for put in puts]
        for a in self.read_only:
            a.flags.writeable = self.framework == 'torch'
        for i, box, name in self.checks:
            self._check_cast(i, box, name)
        for i, a, name in self.arrays:
            self.values[i] = self._tensor(i, a, name)
        for i, value_of in self.lazy:
            self.values[i] = value_of()

    def _check_cast(self, i: int, box: _jax.Box, name: str) -> None:
        """The numbers as they are stored, in parts: a second copy of an array would not be within the memory of a load."""
        exact = _dtypes.exact(self.nodes[i].dtype or 'uint8')
        most = max(CHECKED, math.prod(end - first for first, end in box) // CHECKED_PARTS)
        for part in _parts(box, most, self.nodes[i].chunks or ()):
            a = self.read_box(i, part, exact)
            self.context.read(self.requests, None)
            self.requests.clear()
            if (odd := _dtypes.changed(a, name)) is not None:
                raise self.unfit(i, odd, name)

    def _tensor(self, i: int, a: np.ndarray[Any, Any], name: str) -> Any:
        try:
            return _dtypes.to_torch(a, name)
        except TypeError as e:
            raise self.fail(str(e), join(self.base, self.nodes[i].path)) from None

    def unfit(self, i: int, x: Any, name: str) -> lib.Error:
        node = self.nodes[i]
        return self.fail(f'has {x!r}, which {name} cannot hold: {name} here, {stored_kind(node)} in the checkpoint', join(self.base, node.path))

    # ---- trees ----

    def _choose(self, only: Only) -> list[int]:
        """The leaves that are asked for, in the order of the tree."""
        leaves = [i for i in range(len(self.nodes)) if self.is_leaf(i)]
        if only is None:
            return leaves
        if callable(only):
            return [i for i in leaves if only('/'.join(self.keys(i)))]
        patterns = Patterns([only] if isinstance(only, str) else list(only))
        if self.nodes[0].kind == lib.STEP:
            # An item that is one value, a random key, has a name of its own.
            found = {i: patterns.choose(*reversed(self.nodes[i].path.split('/', 1))) or
                     (patterns.choose(self.nodes[i].key) if self.nodes[i].parent == 0 else []) for i in leaves}
        else:
            item = self.base or self.context.path.rstrip('/').rpartition('/')[2]
            found = {i: patterns.choose(self.nodes[i].path, item) for i in leaves}
        chosen = [i for i in leaves if found[i]]
        if isinstance(only, Mapping):
            for i in chosen:
                if len(found[i]) > 1:
                    raise self.fail(f'two names of only= choose it, {found[i][0]!r} and {found[i][1]!r}', join(self.base, self.nodes[i].path))
                if only[found[i][0]] is not ...:
                    self.parts[i] = only[found[i][0]]
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


def _size_of(requests: list[lib.Request]) -> int:
    return sum(request[3].nbytes for request in requests)


def _part_of(progress: lib.Progress, done: int, total: int) -> lib.Progress:
    return lambda n, _: progress(done + n, total)


def _bytes_of(found: Leaf | Checkpoint) -> Any:
    return found.read() if isinstance(found, Leaf) else {key: _bytes_of(value) for key, value in found.items()}


def context_of_leaf(path: Path, options: dict[str, Any]) -> Context:
    """A leaf may be named without its extension, as its key is."""
    try:
        return Context(path, options)
    except lib.NotFoundError as e:
        for ext in ('.npy', '.json', '.txt'):
            try:
                found = Context(os.fspath(path) + ext, options)
            except lib.NotFoundError:
                continue
            if found.handle.kind() != lib.FILE:
                return found
            found.close()       # the page of a step or a container, which is there again
        raise e from None


@names_its_arguments
def load(path: Source, only: Only = None, dtype: Any = None, like: Any = None, out: Any = None, framework: Framework = 'numpy',
         progress: lib.Progress | None = None, strict: bool = True, mmap: bool = False, **options: Any) -> Any:
    """A whole tree as it was saved: dicts, lists, tuples where recorded, None, numbers, strings, arrays.

    path is an item, a directory of it, a leaf (with its extension or without), a view of one ('w[0:4]@float32.npy'), what open()
    gave, or a step: of a step, its item `default` when it has one, as Orbax's CheckpointManager.restore() does, else a dict of its
    items; an item of JSON is what it says, one of a random key its integers or its state, another one that is not a tree a dict of the
    bytes of its files.

    only       a pattern or several (`pytreefs help patterns`), or a function of the path 'params/dense/kernel'. Dicts
               have only what was chosen, positions of sequences that were not hold `...`. Or a dict of patterns and what is read of
               the leaves: an index as of numpy (`np.s_[0:512, ::2]`), a list of indices, of which a list of arrays comes, or `...` for the
               whole. All parts of all leaves are read as one job of all processors, and a chunk that several need is decoded once
    dtype      floating arrays are cast to it
    like       a tree to match, of arrays, anything with shape and dtype (jax.ShapeDtypeStruct), numbers, strings, None:
               its containers and its dtypes are the result's, `...` in it is not read. A typed PRNG key of jax comes as one. Where it has
               an array of jax, or a ShapeDtypeStruct with a sharding, the result has an array of jax with this sharding: only what
               devices of this process hold is read, each box once
    strict     False: an array of `like` may have another length than the stored one on an axis: the rest is zeros, or left out
               Items and files that are not trees are compared by what load() gives for them. A cast that would make another number of one
               (300 to int8, 2.7 to int) is refused. Error tells each difference
    out        a tree of arrays or tensors that are filled in place, and returned; matched as `like` is
    framework  'torch' (or 'pt'): arrays come as tensors, over the memory that they were read into. 'jax': as arrays of jax, with
               the sharding that is recorded where this process has the devices, else on the default device, typed PRNG keys as such
    mmap       arrays are not read: they are the memory of the files that have them, which all processes share; read-only, and of torch
               private to this one when they are written. Error for a leaf that is not stored so (`save(..., compression='none')`
               stores them so)
    progress   called with bytes done and bytes in all, some 20 times a second, at last with all of them; an exception of it ends the load
    options    those of `-o` (`pytreefs help options`). With transforms=, a warning has the number of stored leaves that the
               rules leave out, and of rules that make nothing

    >>> tree = load('ckpts/latest/state')
    >>> tree['params']['embed']['table'].shape, tree['step']
    ((128, 32), 1500)
    >>> list(load('ckpts/latest/state', only='params/embed/')['params'])
    ['embed']
    >>> a, b = load('ckpts/latest/state', only={'params/embed/table': [np.s_[0:4], np.s_[::2, -1]]})['params']['embed']['table']
    >>> a.shape, b.shape
    ((4, 32), (64,))

    Raises Error when something cannot be read, with the leaf as filename, and IndexError as numpy for an index that does not fit.
    """
    if isinstance(only, Mapping) and (like is not None or out is not None):
        raise ValueError('like and out are of whole leaves: only= chooses them by their names, without parts')
    if like is not None and out is not None:
        raise ValueError('like and out are two trees to match: give one of them')
    if not strict and like is None:
        raise ValueError('strict is for the shapes of like')
    if mmap and (out is not None or not strict):
        raise ValueError('mmap=True gives arrays as they are stored: neither with out nor with strict=False')
    with Loading(path, only, dtype, framework, options, mmap) as loading:
        target = like if out is None else out
        if target is None:
            for i in loading.chosen:
                loading.ask(i)
            loading.run(progress)
            return loading.build(only is None)
        from ._match import Matching        # not by `import pytreefs`, which it makes slower
        matching = Matching(loading, out is not None, strict, None if only is None else set(loading.chosen))
        made = matching.match(target, loading.top, '')
        if matching.differences:
            more = len(matching.differences) - 10
            raise loading.fail('is another tree: ' + '; '.join(matching.differences[:10]) +
                               (f'; and {more} more differences' if more > 0 else ''))
        loading.run(progress)
        return made()


@names_its_arguments
def load_flat(path: Source, separator: str = '.', only: Only = None, dtype: Any = None, framework: Framework = 'numpy',
              progress: lib.Progress | None = None, mmap: bool = False, **options: Any) -> dict[str, Any]:
    """The leaves as one dict, for load_state_dict: keys joined by the separator, numbers as arrays of rank 0, strings;
    None and placeholders are left out. Otherwise as load().

    >>> load_flat('ckpts/latest/state/params', only='embed/')['embed.table'].shape
    (128, 32)

    Raises Error, also when two leaves get the same name.
    """
    with Loading(path, only, dtype, framework, options, mmap) as loading:
        if loading.nodes[0].kind in (lib.OPAQUE, lib.FILE):
            raise loading.fail('is not a tree: load() gives what it says')
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
                loading.ask_array(i)
            else:
                loading.ask(i)
        loading.run(progress)
        return {name: loading.values[i] for name, i in names.items()}
