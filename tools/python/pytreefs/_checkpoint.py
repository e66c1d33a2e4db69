# SPDX-License-Identifier: Apache-2.0
"""open(): a checkpoint as a lazy mapping."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import operator
import re
import sys
from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from . import _pytreefs as lib
from ._context import Context, Path, join, options_text
from ._leaf import Key, Leaf, _opened, register_with_jax
from ._node import CONTAINERS, KINDS, SEQUENCES, Node, children_of

if TYPE_CHECKING:
    from types import TracebackType

_LINES = 1000   # of a tree in a notebook
_KEPT = 16      # steps of a root whose trees are kept for the next access


def _is_view(name: str) -> bool:
    """Whether it is the name of a view without an extension."""
    return re.search(r'[\[@](?!.*\.[a-z]+$)', name, re.DOTALL) is not None


class Checkpoint:
    """A lazy mapping: steps of a directory, items of a step, or children of a container.

    A list or tuple is iterated as one, by its values; its keys() are ints, and a slice of it is a list.
    `ck['state/params/w']` is `ck['state']['params']['w']`; a key that holds a slash is found as it is first. A view is found by its name in a mount: `ck['state/params/w[0:4]@float32.npy']`.
    Values are Checkpoints and `Leaf`s; KeyError for what is not there. Steps and items are those that are there now: one that
    was committed later is found. A Leaf is of the checkpoint that it was looked up in: Error when that was replaced or removed.
    """

    __slots__ = ('_children', '_context', '_keys', '_kind', '_name', '_nodes', '_owns', '_version')

    def __new__(cls, context: Context, name: str, keys: tuple[Key, ...], kind: int, *more: Any, **how: Any) -> Checkpoint:
        return super().__new__(_List if kind in SEQUENCES else _Dict)

    def __init__(self, context: Context, name: str, keys: tuple[Key, ...], kind: int,
                 nodes: tuple[list[Node], list[list[int]], int, str] | None = None, owns: bool = False, version: int = 0):
        self._context = context
        self._name = name           # in a mount, from what was opened
        self._keys = keys
        self._kind = kind
        self._nodes = nodes         # nodes, the children of each, this one's number, the name of what they are of
        self._children: dict[Key, Any] = {}     # all, once there are any; of steps and items those that were looked up last
        self._owns = owns
        self._version = version     # of a step or item

    # ---- life ----

    def close(self) -> None:
        """Free what it holds; only of what open() gave. Leaves of it read no more."""
        if self._owns:
            self._context.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # ---- what it is ----

    def _tree(self) -> tuple[list[Node], list[list[int]], int, str]:
        if self._nodes is None:
            nodes = self._context.tree(self._name)
            self._context.warn_of_names(self._name)
            self._nodes = nodes, children_of(nodes), 0, self._name
        return self._nodes

    @property
    def kind(self) -> str:
        """'root', 'step', 'opaque' (an item that is not a tree), 'dict', 'list', 'tuple', 'namedtuple', 'custom', or
        'container' (not recorded)."""
        return KINDS[self._kind]

    @property
    def name(self) -> str:
        """The name in a mount, from what was opened; '' for that itself."""
        return self._name

    @property
    def key(self) -> tuple[Key, ...]:
        return self._keys

    @property
    def context(self) -> Context:
        return self._context

    def place(self) -> str:
        """The path of what it is a handle of: `latest` in the path that was opened may be another step by now."""
        return self._context.place(self._name, self._known_version())

    def _known_version(self) -> int:
        return self._nodes[0][self._nodes[2]].version if self._nodes else self._version

    def __reduce__(self) -> Any:
        return _opened, (self._context.place('', 0), self._context.options, self._keys, self._known_version())

    def load(self, **how: Any) -> Any:
        """pytreefs.load() of it: `ck['state/params'].load(dtype='float32')`."""
        from ._load import load
        return load(self, **how)

    def recorded_parts(self) -> tuple[int, bytes | None]:
        """The kind of a container as a tree has it, and of a namedtuple what is recorded of its class."""
        nodes, _, at, _ = self._tree()
        return nodes[at].kind, nodes[at].text

    @property
    def steps(self) -> list[Any]:
        """The committed steps of a directory of checkpoints, as numbers (float if the name has a fraction or power); ValueError for anything else."""
        if self.kind != 'root':
            raise ValueError(f'{self._context.path} is not a directory of steps')
        return [number for _, number in self._numbers() if number is not None]

    def _numbers(self) -> list[tuple[str, int | float | None]]:
        """The names of steps with their numbers, by number. flax has steps with a fraction."""
        found: list[tuple[str, int | float | None]] = []
        for name, _, step in self._context.handle.steps():
            fraction = re.fullmatch(r'(?:.*_)?(\d+\.\d+(?:e[-+]\d+)?|\d+e[-+]\d+)', name, re.DOTALL) if step is None else None
            # One beyond 64 bits.
            digits = re.search(r'\d+$', name) if step is None else None
            found.append((name, float(fraction[1]) if fraction else int(digits[0]) if digits else step))
        return found

    @property
    def latest(self) -> Checkpoint:
        """The step with the highest number (a Leaf if it is a single value); KeyError without steps."""
        if self.kind != 'root':
            raise ValueError(f'{self._context.path} is not a directory of steps')
        names = [name for name, _ in self._numbers()]
        if not names:
            error = KeyError('latest')
            error.add_note(f'{self._context.path!r} has no steps')
            raise error
        found: Checkpoint = self[names[-1]]
        return found

    @property
    def metadata(self) -> dict[str, Any]:
        """The custom metadata that was saved with it; empty when there are none."""
        text = self._context.attribute(self._name, 'custom_metadata')
        found = json.loads(text) if text else None
        return found if isinstance(found, dict) else {}

    def json(self, key: Key | None = None) -> Any:
        """The parsed value of a JSON item or file in this one: Orbax's JsonSave, metrics, the iterators of data sets.

        key: as of ck[key]; None: this item itself.

        >>> open('ckpts/latest').json('metrics')['accuracy']
        0.375

        ValueError for what is not JSON by its kind (a tree, an array, an item of several files); Error when a file is damaged.
        """
        found = self if key is None else self[key]
        if isinstance(found, Leaf):
            return found.json()
        files = list(found.values()) if found.kind == 'opaque' else []
        if len(files) == 1 and isinstance(files[0], Leaf):
            return files[0].json()
        what = f'holds {len(files)} files: name one' if files else f'is a {found.kind}, not JSON'
        raise ValueError(f'{join(self._context.path, found._name)} {what}')

    @property
    def files(self) -> dict[str, Any]:
        """Other files, which programs put beside the items of a step or the arrays of an item: load() has none, save() of this copies them."""
        nodes, children, at, _ = self._tree() if self._kind in CONTAINERS else ([], [[]], 0, '')
        found = self._context.others(self._name, self._kind, {nodes[i].path.rpartition('/')[2] for i in children[at]})
        return {name: (Leaf(self._context, join(self._name, name), (*self._keys, name), node) if node.kind == lib.FILE else
                       Checkpoint(self._context, join(self._name, name), (*self._keys, name), node.kind)) for name, node in found.items()}

    def leaves(self) -> Iterator[Leaf]:
        """Every leaf below, in the order of the tree."""
        for value in self.values():
            if isinstance(value, Leaf):
                yield value
            else:
                yield from value.leaves()

    # ---- the mapping ----

    def _is_of_names(self) -> bool:
        """Whether its children are steps, items or files, which are listed anew each time, not nodes of a tree."""
        return self._kind in (lib.ROOT, lib.STEP, lib.OPAQUE) and self._nodes is None

    def _listed(self) -> Mapping[Key, Any]:
        """The children; of names only the keys."""
        if self._is_of_names():
            return dict.fromkeys(self._names())
        if not self._children:
            self._children = self._of_tree()
        return self._children

    def _names(self) -> list[str]:
        """Steps of a root; items of a step; files of what is not a tree."""
        if self._kind == lib.ROOT:
            return [name for name, _, _ in self._context.handle.steps()]
        return [name for name, is_directory, _ in self._context.listing(self._name)
                if self._kind == lib.OPAQUE or is_directory and not name.startswith('.')]

    def _named(self, name: str) -> Any:
        """The child of a name: the same object as before while it is the same step or item. None: it is not there."""
        path, keys = join(self._name, name), (*self._keys, name)
        try:
            node = self._context.describe(path)
        except KeyError:
            self._context.known(self._name, lambda: self._context.describe(self._name))
            return None
        before = self._children.pop(name, None)
        if node.kind in CONTAINERS or node.kind in (lib.STEP, lib.OPAQUE):
            if before is None or before._version != node.version:
                before = Checkpoint(self._context, path, keys, node.kind, version=node.version)
            self._children[name] = before
            if len(self._children) > _KEPT:
                del self._children[next(iter(self._children))]
            return before
        if node.kind != lib.FILE and self._kind != lib.OPAQUE:      # a tree that is one leaf
            node = self._context.tree(path)[0]
            path = join(path, node.path)
        return Leaf(self._context, path, keys, node)

    def _named_by(self, key: Any) -> Any:
        """A step, item or file by its name, or a step by its number."""
        is_root = self._kind == lib.ROOT
        if is_root and isinstance(key, (int, float, np.integer)) and not isinstance(key, bool):
            key = self._numbered(key)
        if not isinstance(key, str) or not key or '/' in key or is_root and key.startswith('.'):
            return None
        if is_root and key == 'latest':
            return self.latest if self._numbers() else None
        found = self._named(key)
        if found is None and is_root and re.fullmatch('[0-9]+', key) and (name := self._numbered(int(key))):
            found = self._named(name)
        return found

    def _numbered(self, number: Any) -> str | None:
        """The name of the step with that number."""
        return next((name for name, n in self._numbers() if n == number), None)

    def _of_tree(self) -> dict[Key, Any]:
        nodes, children, at, base = self._tree()
        context, above, prefix, is_sequence = self._context, self._keys, base + '/' if base else '', nodes[at].kind in SEQUENCES
        out: dict[Key, Any] = {}
        for i in children[at]:      # there may be a million
            node = nodes[i]
            kind = node.kind
            key: Key = int(node.key) if is_sequence and node.is_index else node.key
            name = prefix + node.path if node.path else base
            if kind in CONTAINERS:
                out[key] = Checkpoint(context, name, (*above, key), kind, (nodes, children, i, base))
            elif kind == lib.UNKNOWN and node.error == -errno.EOPNOTSUPP and self._is_files(name):
                out[key] = Checkpoint(context, name, (*above, key), lib.OPAQUE)
            else:
                out[key] = Leaf(context, name, (*above, key), node)
        return out

    def _is_files(self, name: str) -> bool:
        """Whether a leaf of somebody's own type is shown as the files that are stored for it."""
        try:
            return self._context.describe(name).kind == lib.OPAQUE
        except (KeyError, lib.Error):
            return False

    def _child(self, key: Any) -> Any:
        """The child of that very key, or None."""
        if self._is_of_names():
            return self._named_by(key)
        # Integer keys are stored as texts.
        return self._listed().get(str(key) if isinstance(key, (int, np.integer)) and not isinstance(key, bool) else key)

    def _find(self, key: Any) -> Any:
        found = self._child(key)
        if found is None and isinstance(key, str) and key:
            found = self._walk(key)
            if found is None:
                found = self._view(key)
        return found

    def __getitem__(self, key: Any) -> Any:
        found = self._find(key)
        if found is None:
            raise self._missing(key)
        if 'jax' in sys.modules and isinstance(found, Leaf):
            register_with_jax()
        return found

    def get(self, key: Any, default: Any = None) -> Any:
        found = self._find(key)
        return default if found is None else found

    def _missing(self, key: Any) -> KeyError:
        """The error for a key that is not there, with what the library says of it: the nearest name, or the fault of a view."""
        error = KeyError(key)
        if not isinstance(key, str):
            return error
        above, _, last = key.rpartition('/')
        at = self._find(above) if above else self
        if isinstance(at, Checkpoint) and at._kind == lib.OPAQUE:
            error.add_note('it is not a tree: .json() has what a JSON item says')
            return error
        name = join(at._name, last) if isinstance(at, Checkpoint) else join(self._name, key)    # a key that holds slashes has another name
        try:
            lib.Checkpoint(join(self._context.absolute, name + '.npy' if _is_view(last) else name), options_text(self._context.options)).close()
        except lib.Error as e:
            error.add_note(e.strerror or '')
        return error

    def _walk(self, path: str) -> Any:
        """A path of keys; each may hold slashes itself."""
        at = path.find('/')
        while at > 0:
            child = self._child(path[:at])
            rest = path[at + 1:]
            if isinstance(child, Checkpoint):
                found = child._child(rest) if rest else child
                if found is None:
                    found = child._walk(rest)
                if found is not None:
                    return found
            at = path.find('/', at + 1)
        return None

    def _view(self, name: str) -> Leaf | None:
        """A name of a mount that is not listed: a view, or a leaf with its extension."""
        path = join(self._name, name)
        try:
            node = self._context.describe(path)
        except KeyError:
            self._context.known(self._name, lambda: self._context.describe(self._name))
            above, _, last = name.rpartition('/')
            if _is_view(last):
                return self._view(name + '.npy')
            if not ('[' in last or '@' in last):
                return None
            # A key that holds slashes has another name.
            at = self._find(above)
            return at._view(last) if isinstance(at, Checkpoint) and at._name != join(self._name, above) else None
        return None if node.kind in (*CONTAINERS, lib.ROOT, lib.STEP, lib.OPAQUE) else Leaf(self._context, path, (*self._keys, name), node)

    def __contains__(self, key: object) -> bool:
        return self._find(key) is not None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._listed())

    def keys(self) -> KeysView[Key]:
        return self._listed().keys()

    def values(self) -> ValuesView[Any]:
        return ValuesView(self) if self._is_of_names() else self._listed().values()

    def items(self) -> ItemsView[Key, Any]:
        return ItemsView(self) if self._is_of_names() else self._listed().items()

    def __len__(self) -> int:
        return len(self._listed())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        raise TypeError(f'{join(self._context.path, self._name)!r} is a {self.kind}, not an array')

    def _repr_html_(self) -> str:
        """For notebooks: the tree."""
        import html
        lines = list(itertools.islice(self._outline(1), _LINES + 1))
        if len(lines) > _LINES:
            lines[_LINES:] = ['...']
        return f'<pre>{html.escape(chr(10).join([repr(self), *lines]))}</pre>'

    def _outline(self, depth: int) -> Iterator[str]:
        """A line for each node; of a directory of steps their names alone."""
        if self._kind == lib.ROOT:
            yield from ('  ' * depth + name for name in self._names())
            return
        try:
            keys = self.keys()
        except lib.Error as e:
            yield '  ' * depth + f'cannot be read: {e.strerror}'
            return
        for key in keys:
            try:
                value = self[key]
            except lib.Error as e:      # the others are shown
                yield '  ' * depth + f'{key}: cannot be read: {e.strerror}'
                continue
            yield '  ' * depth + f'{key}: {value.summary() if isinstance(value, Leaf) else value.kind}'
            if isinstance(value, Checkpoint):
                yield from value._outline(depth + 1)

    def __repr__(self) -> str:
        where = join(self._context.path, self._name)
        return f'<pytreefs.Checkpoint {where!r} {self.kind}>'


class _Dict(Checkpoint, Mapping[Key, Any]):
    __slots__ = ()


class _List(Checkpoint, Sequence[Any]):
    """Of a list or tuple; in one with a position that is not stored, that is an IndexError."""

    __slots__ = ()

    def _child(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._listed().get(int(key)) if key.isdecimal() else None
        if isinstance(key, bool) or not hasattr(key, '__index__'):
            return None
        at = operator.index(key)
        return self._listed().get(at + len(self) if at < 0 else at)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return [self[i] for i in range(*key.indices(len(self)))]
        if hasattr(key, '__index__') and not isinstance(key, str) and self._find(key) is None:
            raise IndexError(f'{join(self._context.path, self._name)!r} has no position {key}')
        return super().__getitem__(key)

    def __contains__(self, value: object) -> bool:
        return value in list(self)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __len__(self) -> int:
        return 1 + max(map(int, self._listed()), default=-1)

    def __eq__(self, other: object) -> bool:
        is_alike = self.kind == other.kind if isinstance(other, _List) else isinstance(other, list if self.kind == 'list' else tuple)
        return is_alike and list(self) == list(cast(Sequence[Any], other))

    __hash__ = None     # type: ignore[assignment]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError(f'{join(self._context.path, self._name)!r} is not in memory: an array of it is a copy')
        return np.asarray([x if isinstance(x, _List) else np.asarray(x) for x in self], dtype)


def open(path: Path, **options: Any) -> Checkpoint:
    """Open a checkpoint: a directory of steps, a step, an item, or a path into one. Of a single value it gives a Leaf.

    options are those of `-o` (`pytreefs help options`): cache='1G', threads=4, restore_dtype='float32'. Used as a
    context manager, or closed by close(), or when nothing refers to it.

    >>> with open('ckpts/latest') as ck:
    ...     sorted(ck)
    ...     ck['state/params/embed/table'].shape
    ['config', 'metrics', 'state']
    (128, 32)

    Raises Error when there is no checkpoint, or it cannot be read.
    """
    context = Context(path, options)
    kind = context.handle.kind()
    if kind in CONTAINERS or kind in (lib.ROOT, lib.STEP, lib.OPAQUE):
        return Checkpoint(context, '', (), kind, owns=True)
    node = context.describe('') if kind == lib.FILE else context.whole()[0]
    return cast(Checkpoint, Leaf(context, node.path, (), node))


def steps(source: Path, **options: Any) -> list[Any]:
    """The committed steps of a directory of checkpoints, as numbers, in ascending order. options as of open().

    >>> steps('ckpts')
    [1000, 1500]
    """
    with open(source, **options) as root:
        if isinstance(root, Leaf):
            raise ValueError(f'{source} is a leaf, and not a directory of steps')
        return root.steps
