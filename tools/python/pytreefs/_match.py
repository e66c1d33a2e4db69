# SPDX-License-Identifier: Apache-2.0
"""like= and out= of load(): a tree that a user has against what is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _dtypes, _jax
from . import _pytreefs as lib
from ._context import join
from ._node import CONTAINERS, parts_of, stored_kind

if TYPE_CHECKING:
    from ._load import Loading


class Matching:
    """A tree that a user has, against what is stored: a plan of what is read, and where the two differ."""

    def __init__(self, loading: Loading, in_place: bool, strict: bool, only: set[int] | None):
        self.loading = loading
        self.in_place = in_place
        self.strict = strict
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
        is_array = hasattr(x, 'shape') and hasattr(x, 'dtype') and not isinstance(x, type)
        if node.kind == lib.UNKNOWN or not (is_array or _is_number(x)):
            loading.ask(i)
        if not is_array:
            value_of = self._plain(x, i)
            if value_of is None or self.in_place and x is not None:
                here = f'a {_kind(x)} here' if value_of is None else f'a {_kind(x)}, which out= cannot fill'
                self.differences.append(f'{path or "the top"}: {here}, a {stored_kind(node)} in the checkpoint')
            return value_of or (lambda: x)
        if node.dtype is None:
            self.differences.append(f'{path or "the top"}: a {_kind(x)} here, a {stored_kind(node)} in the checkpoint')
            return lambda: x
        if _jax.is_key(x):
            return self._key(x, i, path)
        shape, stored = tuple(x.shape), node.shape or ()
        if shape != stored and (self.strict or len(shape) != len(stored)):
            self.differences.append(f'{path or "the top"}: shape {list(shape)} here, {list(stored)} in the checkpoint')
            return lambda: x
        if self.in_place:
            return self._into(x, i, path)
        name = loading.dtype if loading.dtype and _dtypes.is_floating(node.dtype) else _dtypes.name_of(x.dtype)
        if (sharding := self._sharding(x)) is not None:
            return loading.place(i, name, shape, sharding)
        if loading.is_mapped:
            loading.map_array(i, name)
            return lambda: loading.values[i][()] if isinstance(x, np.generic) else loading.values[i]
        a = loading.read_checked(i, name, box=None if shape == stored else tuple((0, n) for n in shape))
        if loading.framework == 'torch':
            loading.arrays.append((i, a, name))
            return lambda: loading.values[i]
        return lambda: a[()] if isinstance(x, np.generic) else a

    def _sharding(self, x: Any) -> Any:
        """Where an array of jax is going to be; None: it is going to be one of another framework."""
        found = _jax.sharding_of(x)
        return _jax.default_sharding() if found is None and self.loading.framework == 'jax' else found

    def _plain(self, x: Any, i: int) -> Callable[[], Any] | None:
        """The value for a leaf that is not an array; None: another kind is stored."""
        loading, node = self.loading, self.loading.nodes[i]
        name = join(loading.base, node.path)
        if _is_number(x):
            if node.dtype is None or node.shape:
                return None
            if node.kind == lib.ARRAY:
                a = loading.read_array(i, _dtypes.exact(node.dtype))
                return lambda: self._number(x, a.item(), name, stored_kind(node))
            loading.ask(i)
            return lambda: self._number(x, loading.values[i], name, stored_kind(node))
        if isinstance(x, type) and not isinstance(loading.values[i], x):
            return None
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
            self.differences.append(f'{path or "the top"}: a PRNG key here, {stored_kind(node)} in the checkpoint')
        elif shape != stored:
            self.differences.append(f'{path or "the top"}: keys of {list(shape)} integers here, {list(stored)} in the checkpoint')
        elif (sharding := self._sharding(x)) is not None:
            value_of = loading.place(i, node.dtype or '', stored, sharding)
            return lambda: _jax.wrap_key(value_of(), impl)
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
