# SPDX-License-Identifier: Apache-2.0
"""One opened checkpoint: its handle, and the calls of the library that its nodes share."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, TypeAlias, TypeVar

from . import _pytreefs as lib
from ._node import CONTAINERS, Node

P = ParamSpec('P')
R = TypeVar('R')
Path: TypeAlias = str | os.PathLike[str]

# The errno of a mount for codes of the library that its callers do not know.
_ERRNO = {errno.EUCLEAN: errno.EIO, errno.EBADMSG: errno.EIO}


def options_text(options: Mapping[str, Any]) -> str:
    """Keyword arguments as `-o` has them: True and False are on and off, sequences are joined by colons, a mapping is JSON."""
    def value(name: str, x: Any) -> str:
        if isinstance(x, bool):
            return 'on' if x else 'off'
        if isinstance(x, Mapping) and name != 'transforms':     # without its contents, which may be a secret
            raise TypeError(f'{name}= is {"the name of a file of headers" if name == "http_headers" else "text"}, not a {type(x).__name__}')
        if isinstance(x, (list, tuple)):
            return ':'.join(map(str, x))
        return json.dumps(x) if isinstance(x, Mapping) else str(x)

    return ','.join(f'{name}={value(name, x)}'.replace(',', '\\,') for name, x in options.items() if x is not None)


def warn(text: str) -> None:
    """The warning is at the caller of the package: Python shows one per line."""
    frame, level = sys._getframe(), 1
    while frame.f_back and os.path.dirname(frame.f_code.co_filename) == os.path.dirname(__file__):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def names_its_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Its other keywords are options: an argument that is mistyped is said to be one."""
    @functools.wraps(function)
    def call(*args: P.args, **how: P.kwargs) -> R:
        try:
            return function(*args, **how)
        except lib.Error as e:
            import difflib
            import inspect
            wrong = re.match("unknown option '(.*?)'", e.strerror or '')
            near = difflib.get_close_matches(wrong[1], inspect.signature(function).parameters, 1) if wrong else []
            if not near:
                raise
            raise lib.error(e.errno or errno.EINVAL, f'{e.strerror}; did you mean the argument {near[0]}=?', e.filename) from None
    return call


# The end of the error of a leaf that cannot be mapped.
COPY_TO_MAP = ('load() without mmap reads it, and `pytreefs convert -o compression=none,chunk_byte_size=1T,target_data_file_size=0` makes a '
               'checkpoint that can be mapped')


class Context:
    """State shared by the nodes of one opened checkpoint."""

    __slots__ = ('_handle', '_process', 'absolute', 'casts', 'options', 'path')

    def __init__(self, path: Path, options: Mapping[str, Any]):
        self.path = os.fspath(path)
        self.options = dict(options)
        self._handle, self._process = lib.Checkpoint(self.path, options_text(options)), os.getpid()
        # The program, or a process that gets a handle, may have another current directory later.
        self.absolute = self.path if '://' in self.path or os.path.isabs(self.path) else os.path.join(os.getcwd(), self.path)
        self.casts = 'restore_dtype' in options or 'restore_dtype' in os.environ.get('PYTREEFS_OPTIONS', '')

    @property
    def handle(self) -> lib.Checkpoint:
        """The library's. After fork() a child has one of its own, since no thread of the library is in it."""
        if self._process not in (0, os.getpid()):
            self._handle, self._process = lib.Checkpoint(self.absolute, options_text(self.options)), os.getpid()
        return self._handle

    @property
    def read_budget(self) -> int:
        """Bytes of the option of this name, whoever has set it."""
        return int(json.loads(self.bytes_of('.pytreefs/stats'))['read_budget_bytes'])

    def close(self) -> None:
        self._handle.close()
        self._process = 0

    def tree(self, name: str, flags: int = 0, is_described: bool = True) -> list[Node]:
        """Whether leaves are opened (is_described); otherwise each is an ARRAY without a dtype, or None or a placeholder where the tree
        records that."""
        return self._nodes(name, lambda: self.handle.tree(name, flags, is_described))

    def whole(self, flags: int = 0, is_described: bool = True) -> list[Node]:
        """The nodes of an item, or of a part of one, that was opened; a view is a leaf of its own."""
        name = self.path.rpartition('/')[2]
        if '@' in name or '[' in name:
            node = self.describe('')
            if node.kind == lib.ARRAY:
                return [node]
        return self.tree('', flags, is_described)

    def leaves(self, name: str, indices: list[int], flags: int = 0) -> list[Node]:
        """Some leaves of a tree, by their increasing indices in it; others are not opened."""
        return self._nodes(name, lambda: self.handle.leaves(name, flags, indices))

    def warn_of_names(self, name: str) -> None:
        """A tree that is made of the names of arrays may be another one than was saved."""
        for text in json.loads(self.attribute(name, 'remarks') or '[]'):
            warn(f'{self.path}: {text}')

    def _nodes(self, name: str, ask: Callable[[], Sequence[lib.Node]]) -> list[Node]:
        try:
            nodes = [Node._make(node) for node in self.known(name, ask)]
        except lib.Error as e:
            if e.filename:
                raise
            raise self.fail(-(e.errno or errno.EIO), e.strerror or '', name) from None
        return [self._as_shown(name, node) for node in nodes] if self.casts else nodes

    def _as_shown(self, name: str, node: Node) -> Node:
        """A tree says what is stored; a mount with restore_dtype shows arrays cast to it."""
        if node.kind != lib.ARRAY or node.dtype is None:
            return node
        shown = self.describe(join(name, node.path))
        return node._replace(dtype=shown.dtype, typestr=shown.typestr, nbytes=shown.nbytes)

    def known(self, name: str, ask: Callable[[], Any]) -> Any:
        """The result of ask() about a name that was looked up before."""
        try:
            return ask()
        except KeyError:
            raise self.fail(-errno.ESTALE, 'was removed since it was looked up: look it up again', name) from None

    def listing(self, name: str) -> Any:
        return self.known(name, lambda: self.handle.list(name))

    def attribute(self, name: str, attribute: str) -> str | None:
        text: str | None = self.known(name, lambda: self.handle.attribute(name, attribute))
        return text

    def describe(self, name: str) -> Node:
        return Node._make(self.handle.describe(name)[0])

    def fail(self, code: int, text: str, name: str) -> lib.Error:
        return lib.error(_ERRNO.get(-code, -code), text, os.path.join(self.path, name) if name else self.path)

    def read(self, requests: Sequence[lib.Request], progress: lib.Progress | None = None) -> None:
        """The first request that fails is the Error; its text says how many others did."""
        failed = self.handle.read_many(requests if isinstance(requests, list) else list(requests), progress)
        self._check([(requests[i][0], code, text) for i, code, text in failed])

    def _check(self, failed: Sequence[tuple[str, int, str]]) -> None:
        if failed:
            name, code, text = failed[0]
            if code == -errno.ENOENT:
                self.known(name, lambda: self.describe(name))
            n_more = len({name for name, _, _ in failed}) - 1       # several boxes may be of one leaf
            if n_more:
                text += f' (and {n_more} more leaves)' if n_more > 1 else ' (and 1 more leaf)'
            raise self.fail(code, text, name)

    def map(self, leaves: Sequence[tuple[str, int]], is_writable: bool) -> list[tuple[lib.Map, tuple[int, ...]] | None]:
        """The memory of leaves, by name and version, and the bytes between neighbours on each axis; None for one that is to be read."""
        out: list[tuple[lib.Map, tuple[int, ...]] | None] = []
        failed: list[tuple[str, int, str]] = []
        for (name, _), found in zip(leaves, self.handle.map(list(leaves), is_writable)):
            if found is not None and isinstance(found[0], int):
                failed.append((name, found[0], f'{found[1]}; {COPY_TO_MAP}' if found[0] == -errno.EOPNOTSUPP else str(found[1])))
            else:
                out.append(found)
        self._check(failed)
        return out

    def place(self, name: str, version: int) -> str:
        """The path of a name, of which the version is known (else 0): `latest` in the path that was opened may be another step by now."""
        found = join(self.absolute, name)
        version = version or self.describe(name).version
        for place in self._places(found.split('/')):
            with contextlib.suppress(lib.Error):
                if Node._make(lib.Checkpoint(place, options_text(self.options)).describe('')[0]).version == version:
                    return place
        raise self.replaced(name)

    def _places(self, parts: list[str]) -> Iterator[str]:
        """A path, and those with the steps that `latest` in it may have been, the newest first."""
        yield '/'.join(parts)
        for at in (i for i in reversed(range(len(parts))) if parts[i] == 'latest'):
            with contextlib.suppress(lib.Error):        # a key, or a directory above
                steps = lib.Checkpoint('/'.join(parts[:at]) or '/', options_text(self.options)).steps()
                yield from ('/'.join([*parts[:at], step, *parts[at + 1:]]) for step, _, _ in reversed(steps))

    def replaced(self, name: str) -> lib.Error:
        return self.fail(-errno.ESTALE, 'was replaced or removed since it was opened: open it again', name)

    def prng_impl(self, name: str) -> str | None:
        """The implementation of typed PRNG keys whose integers a leaf has; None: it is none."""
        text = self.attribute(name, 'prng_impl')
        if text:
            return str(json.loads(text))
        item, _, leaf = name.rpartition('/')
        jax = sys.modules.get('jax')
        if jax is None or leaf != 'checkpoint.npy' or item.rpartition('/')[2] != 'jax_random_key':
            return None
        # An item of JaxRandomKeySave. Of which implementation it is was not recorded: Orbax restores the default one.
        return str(jax.config.jax_default_prng_impl) if self.random_key(item).get('typed') is True else None

    def random_key(self, item: str) -> dict[str, Any]:
        """The JSON beside the tree of a random key that Orbax's handler saved."""
        name = item + '_metadata/metadata'
        try:
            self.describe(name)
        except KeyError:
            return {}
        try:
            found = json.loads(self.bytes_of(name))
        except ValueError as e:
            raise self.fail(-errno.EIO, f'is not JSON: {e}', name) from None
        return found if isinstance(found, dict) else {}

    def others(self, name: str, kind: int, of_tree: set[str]) -> dict[str, Node]:
        """Files and directories beside the items of a step, or beside the arrays of an item; of_tree: the names of the tree there."""
        if kind != lib.STEP and kind not in CONTAINERS:
            return {}
        names = [found for found, is_directory, _ in self.listing(name)
                 if found not in of_tree and (kind != lib.STEP or not is_directory or found.startswith('.'))]
        return {found: self.describe(join(name, found)) for found in names if found not in ('_METADATA', '_CHECKPOINT_METADATA')}

    def bytes_of(self, name: str) -> bytes:
        """A whole file, as a mount shows it."""
        f = self.known(name, lambda: self.handle.file(name))
        try:
            out = bytearray(f.size())
            n = f.readinto(out, 0)
        finally:
            f.close()
        return bytes(out[:n])


def join(base: str, name: str) -> str:
    return f'{base}/{name}' if base and name else base or name
