# SPDX-License-Identifier: Apache-2.0
"""pytreefs://PATH for fsspec: the files of a mount, without a mount; PATH may be a URL: pytreefs://s3://BUCKET/PREFIX.

What is opened is the longest part of PATH that is on the disk, or below a URL, up to a checkpoint; the rest is a name in it. fsspec finds
the class by the package's entry point.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Sequence
from typing import Any

import fsspec     # type: ignore[import-untyped]
import numpy as np

from . import _pytreefs as lib
from ._context import Context, join
from ._node import Node

_PROTOCOL = 'pytreefs'


class File(io.RawIOBase):
    """One file, read at random; nothing is kept beside what the checkpoint keeps."""

    def __init__(self, fs: FileSystem, path: str):
        super().__init__()
        context, name = fs.find_context(path)
        try:
            self._file = context.handle.file(name)
        except KeyError:
            raise FileNotFoundError(2, 'No such file', path) from None
        self.fs, self.path, self.size, self._at = fs, path, self._file.size(), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        at = offset + {0: 0, 1: self._at, 2: self.size}[whence]
        if at < 0:
            raise ValueError(f'{self.path}: {at} is before the beginning')
        self._at = at
        return at

    def readinto(self, buffer: Any) -> int:
        n = self._file.readinto(buffer, self._at)
        self._at += n
        return n

    def readall(self) -> bytes:
        return self.read(-1) or b''

    def read(self, size: int | None = -1) -> bytes:
        left = max(self.size - self._at, 0)
        out = bytearray(left if size is None or size < 0 else min(size, left))
        n = self.readinto(out) if out else 0
        return bytes(out) if n == len(out) else bytes(out[:n])

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class FileSystem(fsspec.AbstractFileSystem):      # type: ignore[misc]
    """Checkpoints as a mount shows them; read-only. options are those of `-o`."""

    protocol = _PROTOCOL
    root_marker = ''

    def __init__(self, **options: Any):
        own = {'asynchronous', 'loop', 'skip_instance_cache', 'use_listings_cache', 'listings_expiry_time', 'max_paths',
               'batch_size'}
        super().__init__(**{k: v for k, v in options.items() if k in own})
        self._options = {k: v for k, v in options.items() if k not in own}
        self._contexts: dict[str, Context] = {}
        self._covered: dict[str, set[str]] = {}     # by the path of what was opened: _foreign() has found these to be parts of it

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(p) for p in path]
        text = os.fspath(path)
        text = text.removeprefix(_PROTOCOL + '://').removeprefix(_PROTOCOL + '::')
        if '://' in text:
            return text.rstrip('/')
        return os.path.abspath(text) if text else os.getcwd()

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        return {}

    def unstrip_protocol(self, name: str) -> str:
        return name if name.startswith(_PROTOCOL + '://') else f'{_PROTOCOL}://{name}'

    def find_context(self, path: str) -> tuple[Context, str]:
        """The opened checkpoint that holds a path, and the name in it: of `latest` the step that it is now."""
        context, name = self._find_context(self._strip_protocol(path))
        first, _, rest = name.partition('/')
        if first == 'latest' and context.handle.kind() == lib.ROOT:
            steps = [step for step, _, _ in context.handle.steps()]
            if steps:
                name = join(steps[-1], rest) if rest else steps[-1]
        return context, name

    def _find_context(self, path: str) -> tuple[Context, str]:
        tried: lib.Error | None = None
        parts = path.split('/')
        for n in range(1, len(parts) + 1):
            at, name = '/'.join(parts[:n]) or '/', '/'.join(parts[n:])
            if at in self._contexts and self._is_there(at) and self._foreign(self._contexts[at], name) is None:
                return self._contexts[at], name
        is_url = '://' in path
        least = 2 if is_url else 0      # that is the host or bucket
        # `latest` is looked up anew each time, so that a root is looked for before it.
        for n in sorted(range(len(parts), least, -1), key=lambda n: is_url and 'latest' in parts[:n]):
            at = '/'.join(parts[:n]) or '/'
            if not is_url and not os.path.isdir(at):
                continue
            try:
                context, n = self._widest(parts, n, least)
            except lib.Error as e:
                tried = tried or e
                continue
            name = '/'.join(parts[n:])
            self._contexts['/'.join(parts[:n]) or '/'] = context
            if place := self._foreign(context, name):
                self._covered[context.path].add(place)    # files that are not a checkpoint of their own
            return context, name
        raise FileNotFoundError(2, f'No checkpoint{f": {tried}" if tried else ""}', path)

    def _open_at(self, at: str) -> Context:
        context = self._contexts.get(at) or Context(at, self._options)
        if context.handle.kind() < lib.DICT:
            raise lib.Error(20, 'is a leaf', at)
        return context

    def _widest(self, parts: list[str], n: int, least: int) -> tuple[Context, int]:
        """The checkpoint that shows the one whose path has n parts, an item's step or a step's root, and how many parts its own path has."""
        context = self._open_at('/'.join(parts[:n]) or '/')
        while n - 1 > least and context.handle.kind() != lib.ROOT:
            try:
                wider = self._open_at('/'.join(parts[:n - 1]) or '/')
            except lib.Error:
                break
            if self._foreign(wider, parts[n - 1]) is not None:
                break
            context, n = wider, n - 1
        return context, n

    def _foreign(self, context: Context, name: str) -> str | None:
        """The beginning of a name whose files may be a checkpoint of their own, since this one shows them as they are stored; '' for a
        name that it does not have; None: it is a part of this one. So what was opened before does not matter."""
        parts = name.split('/') if name else []
        covered = self._covered.setdefault(context.path, set())
        for n in range(1, min(2 if context.handle.kind() == lib.ROOT else 1, len(parts)) + 1):
            place = '/'.join(parts[:n])
            if place in covered or parts[0] in ('latest', '.pytreefs'):
                continue
            try:
                kind = context.describe(place).kind
            except KeyError:
                return '' if n == 1 else None
            except lib.Error:
                return None
            if kind == lib.OPAQUE:
                return place
            covered.add(place)
        return None

    def _is_there(self, at: str) -> bool:
        """Whether what was opened is what the path leads to by now; else it is opened anew."""
        try:
            self._contexts[at].handle.kind()
        except lib.Error as e:
            if e.errno != errno.ESTALE:
                raise
            del self._contexts[at]
            self._covered.pop(at, None)
            return False
        return True
    # ---- names ----

    def _entry(self, path: str, context: Context, name: str) -> dict[str, Any]:
        try:
            size, stored, mtime, is_directory = context.handle.stat(name)
        except KeyError:
            raise FileNotFoundError(2, 'No such file or directory', path) from None
        return {'name': path, 'size': 0 if is_directory else size, 'type': 'directory' if is_directory else 'file',
                'stored': stored, 'mtime': mtime}

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        return self._entry(path, *self.find_context(path))

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        context, name = self.find_context(path)
        entry = self._entry(path, context, name)
        if entry['type'] == 'file':
            return [entry] if detail else [path]
        names = [e[0] for e in context.handle.list(name)]
        if not detail:
            return [join(path, n) for n in names]
        return [self._entry(join(path, n), context, join(name, n)) for n in names]

    def glob(self, path: str, maxdepth: int | None = None, **how: Any) -> Any:
        """`w[0:2].npy` is a view where there is one, as for cat(), and else a pattern."""
        name = self._strip_protocol(path)
        if '[' in name and self.isfile(name):
            return {name: self.info(name)} if how.get('detail') else [name]
        return super().glob(path, maxdepth, **how)

    def modified(self, path: str) -> Any:
        import datetime
        return datetime.datetime.fromtimestamp(self.info(path)['mtime'], datetime.timezone.utc)

    def exists(self, path: str, **_: Any) -> bool:
        try:
            self.info(path)
        except (FileNotFoundError, lib.Error):
            return False
        return True

    # ---- contents ----

    def _open(self, path: str, mode: str = 'rb', **_: Any) -> File:
        if mode not in ('rb', 'r'):
            raise lib.Error(30, 'checkpoints are read-only here: pytreefs.save() writes', path)
        return File(self, self._strip_protocol(path))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        found = self.cat_ranges([path], [start], [end], on_error='raise')[0]
        assert isinstance(found, bytes)
        return found

    def cat_ranges(self, paths: Sequence[str], starts: Any, ends: Any, max_gap: int | None = None,
                   on_error: str = 'return', **_: Any) -> list[Any]:
        """Byte ranges of files, as one batch of all processors; ranges of arrays are read from the chunks under them."""
        n = len(paths)
        starts = list(starts) if isinstance(starts, (list, tuple)) else [starts] * n
        ends = list(ends) if isinstance(ends, (list, tuple)) else [ends] * n
        out: list[Any] = [None] * n
        batches: dict[int, tuple[Context, list[lib.Request], list[int]]] = {}
        for i, path in enumerate(paths):
            try:
                context, name = self.find_context(path)
                out[i] = self._range(context, name, starts[i], ends[i],
                                     batches.setdefault(id(context), (context, [], [])), i)
            except (KeyError, OSError) as e:
                out[i] = FileNotFoundError(2, 'No such file', path) if isinstance(e, KeyError) else e
        for context, requests, owners in batches.values():
            for at, code, text in context.handle.read_many(requests, None):
                out[owners[at]] = context.fail(code, text, requests[at][0])
        out = [bytes(x) if isinstance(x, (bytearray, memoryview)) else x for x in out]
        if on_error == 'raise':
            for x in out:
                if isinstance(x, BaseException):
                    raise x
        return out

    def _range(self, context: Context, name: str, start: int | None, end: int | None,
               batch: tuple[Context, list[lib.Request], list[int]], i: int) -> Any:
        """The bytes, or memory that the batch will fill."""
        # Of a view that is a box itself no boxes are read; in keys the bracket is escaped.
        has_boxes = name.endswith(('.npy', '.bin')) and '[' not in name.rpartition('/')[2]
        # Before its header is read: the elements must be of the same checkpoint, or a later one is noticed.
        node = Node._make(context.describe(name)) if has_boxes else None
        f = context.handle.file(name)
        try:
            size = f.size()
            first, last, _ = slice(start, end).indices(size)
            out = bytearray(max(last - first, 0))
            if not out or node is None or node.kind != lib.ARRAY or not node.shape:
                f.readinto(out, first)
                return out
            header = size - node.nbytes
            if first < header:
                f.readinto(memoryview(out)[:min(header, last) - first], first)
        finally:
            f.close()
        view = memoryview(out)
        item = node.nbytes // max(int(np.prod(node.shape, dtype=object)), 1)
        begin, finish = max(first, header) - header, last - header
        whole_begin, whole_end = -(-begin // item), finish // item
        if header + whole_begin * item > first + len(out) or whole_begin >= whole_end:
            if finish > begin:
                self._bytes(context, name, view, first, header + begin, header + finish)
            return out
        self._bytes(context, name, view, first, header + begin, header + whole_begin * item)
        self._bytes(context, name, view, first, header + whole_end * item, header + finish)
        at = header + whole_begin * item - first
        for box, count in boxes(whole_begin, whole_end, node.shape):
            batch[1].append((name, box, None, view[at:at + count * item], node.version))
            batch[2].append(i)
            at += count * item
        return out

    @staticmethod
    def _bytes(context: Context, name: str, view: memoryview, first: int, begin: int, end: int) -> None:
        """The edge of a range that cuts an element."""
        if begin < end:
            f = context.handle.file(name)
            try:
                f.readinto(view[begin - first:end - first], begin)
            finally:
                f.close()


def boxes(begin: int, end: int, shape: tuple[int, ...]) -> list[tuple[lib.Box, int]]:
    """Elements [begin, end) of an array in C order as boxes, in this order, each with its number of elements."""
    if begin >= end:
        return []
    if len(shape) == 1:
        return [(((begin, 1, end - begin, False),), end - begin)]
    row = 1
    for n in shape[1:]:
        row *= n
    out: list[tuple[lib.Box, int]] = []

    def partial(index: int, a: int, b: int) -> None:
        out.extend((((index, 1, 1, False), *box), count) for box, count in boxes(a, b, shape[1:]))

    first, last = begin // row, end // row
    if begin % row:
        partial(first, begin % row, min(row, end - first * row))
        first += 1
    if last > first:
        whole = tuple((0, 1, n, False) for n in shape[1:])
        out.append((((first, 1, last - first, False), *whole), (last - first) * row))
    if end % row and last >= first:
        partial(last, 0, end % row)
    return out
