# SPDX-License-Identifier: Apache-2.0
"""Orbax with the arrays read and written by pytreefs: handlers of its own interfaces, and install() to make them the default of a process.

    import pytreefs.orbax
    pytreefs.orbax.install()

What is on the disk is what Orbax reads and writes. Names, trees, metadata, transforms, barriers and merges are Orbax's own code, which
calls these handlers for the values of arrays. What they do not do (other processes' devices that only Pathways reaches, layouts of
devices, sources that are not directories) goes to Orbax's own handler, with one line in the log.

`compression` of what is saved: 'auto' chooses for each array (blosc, zstd or none), 'zstd' is as Orbax compresses, and others are those of
the option (`pytreefs help options`). Where Orbax is told not to compress, nothing is compressed.

PYTREEFS_ORBAX=off in the environment makes all of them Orbax's own; PYTREEFS_OPTIONS has options (`pytreefs help options`).
"""
# mypy: ignore-errors
# Orbax has no types.

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging
from orbax.checkpoint import type_handlers
from orbax.checkpoint._src.serialization import jax_array_handlers, limits, type_handler_registry
from orbax.checkpoint._src.serialization import types as orbax_types
from orbax.checkpoint.experimental.v1._src.handlers import pytree_handler
from orbax.checkpoint.experimental.v1._src.handlers import types as handler_types
from orbax.checkpoint.experimental.v1._src.serialization import array_leaf_handler, numpy_leaf_handler, scalar_leaf_handler
from orbax.checkpoint.experimental.v1._src.serialization import registration as v1_registration
from orbax.checkpoint.experimental.v1._src.serialization import registry as leaf_handlers

from . import _dtypes, _jax, _orbax_save
from . import _pytreefs as lib
from ._load import Loading
from ._orbax_save import Unknown as _Unknown

__all__ = ['ArrayHandler', 'NumpyHandler', 'PyTreeCheckpointHandler', 'PyTreeHandler', 'StandardCheckpointHandler', 'install', 'leaf_registry',
           'registry', 'uninstall']


DEFAULT_BUDGET = 256 << 20      # of the option read_budget


def _is_off() -> bool:
    return os.environ.get('PYTREEFS_ORBAX') == 'off'


class _Reading(Loading):
    """The arrays of an item, by the names that Orbax gives them."""

    def __init__(self, infos: Sequence[Any]):
        first = infos[0]
        where = os.fspath(first.parent_dir)
        if '://' in where:
            raise _Unknown('it is not a directory')
        if any(name in os.environ.get('PYTREEFS_OPTIONS', '') for name in ('transforms', 'restore_dtype')):
            raise _Unknown('PYTREEFS_OPTIONS shows another tree than Orbax stores')
        options: dict[str, Any] = {'missing': 'error' if first.raise_array_data_missing_error else 'zero'}
        # Orbax allows 96 GB by default; the default here suffices.
        if isinstance(first.byte_limiter, limits.LimitInFlightBytes) and first.byte_limiter.max_bytes < DEFAULT_BUDGET:
            options['read_budget'] = max(first.byte_limiter.max_bytes, 1 << 20)
        super().__init__(where, lambda _: False, None, 'numpy', options)
        self.of_name: dict[str, int] = {}
        for i in range(len(self.nodes)):
            if self.is_leaf(i) and self.of_name.setdefault('.'.join(self.keys(i)), i) != i:
                self.of_name['.'.join(self.keys(i))] = -1       # two keys that Orbax calls the same
        found = [self.of_name.get(info.name, -1) for info in infos]
        if -1 in found:
            raise _Unknown(f'{infos[found.index(-1)].name!r} is not a name in its tree')
        self._describe(sorted(set(found)))
        if odd := next((self.nodes[i] for i in found if self.nodes[i].dtype is None), None):
            raise _Unknown(f'{odd.path} is not an array')

    def take_array(self, info: Any, arg: Any, sharding: Any) -> Any:
        """The plan of an array of jax, as jax_array_handlers._deserialize_arrays() makes one."""
        node = self.nodes[self.of_name[info.name]]
        if not isinstance(sharding, jax.sharding.Sharding):
            raise _Unknown(f'of a {type(sharding).__name__}')
        shape, dtype, sharding = jax_array_handlers._physical_read_spec(arg, sharding)
        stored = node.shape or ()
        shape = stored if shape is None else tuple(shape)
        if len(shape) != len(stored) or shape != stored and getattr(arg, 'strict', True):
            raise _Unknown(f'{info.name} has another shape')
        name = node.dtype or ''
        if dtype is not None and not jax_array_handlers._has_prng_key_dtype(arg):
            name = jax.numpy.dtype(dtype).name
        return self.place(self.of_name[info.name], jax.dtypes.canonicalize_dtype(_dtypes.dtype_of(name)).name, shape, sharding, is_checked=False)

    def take_numpy(self, info: Any, arg: Any) -> np.ndarray[Any, Any]:
        i = self.of_name[info.name]
        return self.read_array(i, self.nodes[i].dtype if arg.dtype is None else jax.numpy.dtype(arg.dtype).name)


def _tried(read: Any, infos: Sequence[Any], *more: Any) -> Any:
    """The result of read(), or None where Orbax has to do it. In this thread, since jax_enable_x64 may be of this thread."""
    if _is_off():
        return None
    try:
        return read(infos, *more)
    except _Unknown as e:
        logging.info('pytreefs: Orbax restores %s by itself: %s', infos[0].parent_dir, e)
    return None


def _read_arrays(infos: Sequence[Any], args: Sequence[Any], shardings: Sequence[Any]) -> list[Any]:
    with _opened(infos) as reading:
        made = [reading.take_array(*one) for one in zip(infos, args, shardings)]
        reading.run(None)
        return [value_of() for value_of in made]


def _read_numpy(infos: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    with _opened(infos) as reading:
        made = [reading.take_numpy(*one) for one in zip(infos, args)]
        reading.run(None)
        return made


def _opened(infos: Sequence[Any]) -> _Reading:
    try:
        return _Reading(infos)
    except lib.Error as e:
        raise _Unknown(str(e)) from None


def _saves(where: Any, *checks: Any) -> bool:
    """Whether we save, or Orbax has to do it: a check of _orbax_save.py with its arguments says so."""
    if _is_off():
        return False
    try:
        for check, *args in checks:
            check(*args)
    except _Unknown as e:
        logging.info('pytreefs: Orbax saves to %s by itself: %s', where, e)
        return False
    return True


class ArrayHandler(type_handlers.ArrayHandler):
    """Orbax's handler of arrays of jax, with its arguments."""

    compression = 'auto'

    def __init__(self, *args: Any, compression: str = 'auto', **how: Any):
        super().__init__(*args, **how)
        self.compression = _orbax_save.check_compression(compression)

    async def serialize(self, values: Sequence[Any], infos: Sequence[Any], args: Sequence[Any] | None = None) -> Sequence[Any]:
        args = args or [type_handlers.SaveArgs()] * len(values)
        orbax_types.check_input_arguments(values, infos, args)
        if _saves(infos[0].parent_dir, (_orbax_save.check_handler, self), (_orbax_save.check, infos), (_orbax_save.check_dtypes, values, args)):
            return await _orbax_save.save_arrays(self, values, infos, args)
        return await super().serialize(values, infos, args)

    async def deserialize(self, infos: Sequence[Any], args: Sequence[Any] | None = None) -> Sequence[Any]:
        if args is None or self.has_dispatcher():
            return await super().deserialize(infos, args)
        orbax_types.check_input_arguments(infos, args)
        await asyncio.gather(*(info.await_path_creation() for info in infos))
        where = infos[0].parent_dir
        shardings = await jax_array_handlers._deserialize_shardings(infos, args, (where / '_sharding').exists())
        made = _tried(_read_arrays, infos, args, shardings)
        if made is None:
            return await super().deserialize(infos, args)
        if self._array_metadata_store is not None and (found := await self._array_metadata_store.read(checkpoint_dir=where)):
            return jax_array_handlers._wrap_random_key_data(found, infos, made)
        return made


class NumpyHandler(type_handlers.NumpyHandler):
    """Orbax's handler of arrays of numpy, with its arguments."""

    compression = 'auto'

    def __init__(self, *args: Any, compression: str = 'auto', **how: Any):
        super().__init__(*args, **how)
        self.compression = _orbax_save.check_compression(compression)

    async def _background_serialize(self, values: Sequence[Any], infos: Sequence[Any], args: Sequence[Any]) -> None:
        if _saves(infos[0].parent_dir, (_orbax_save.check_numpy, self), (_orbax_save.check, infos), (_orbax_save.check_dtypes, values, args)):
            await _orbax_save.save_numpy(self, values, infos, args)
        else:
            await super()._background_serialize(values, infos, args)

    async def deserialize(self, infos: Sequence[Any], args: Sequence[Any] | None = None) -> Sequence[Any]:
        args = args or [type_handlers.RestoreArgs()] * len(infos)
        orbax_types.check_input_arguments(infos, args)
        await asyncio.gather(*(info.await_path_creation() for info in infos))
        made = _tried(_read_numpy, infos, args)
        return await super().deserialize(infos, args) if made is None else made


class _ScalarHandler(type_handlers.ScalarHandler):
    """Orbax's, but for names that are those of arrays."""

    async def _background_serialize(self, values: Sequence[Any], infos: Sequence[Any], args: Sequence[Any]) -> None:
        if not _is_off():
            _orbax_save.check_names(infos)
        await super()._background_serialize(values, infos, args)


_OURS: dict[type[Any], type[Any]] = {type_handlers.ArrayHandler: ArrayHandler, type_handlers.NumpyHandler: NumpyHandler,
                                     type_handlers.ScalarHandler: _ScalarHandler}
_ORBAX = {ours: orbax for orbax, ours in _OURS.items()}
_MAKERS = {name: getattr(v1_registration, name) for name in ('get_array_handler', 'get_numpy_handler', 'get_scalar_handler')}


def _as(cls: type[Any] | None, handler: Any, **settings: Any) -> Any:
    """A handler with the same settings, and these, of another class; None: the handler itself."""
    if cls is None:
        return handler
    made = cls.__new__(cls)
    made.__dict__.update(handler.__dict__, **settings)
    return made


def _ours(handler: Any, compression: str) -> Any:
    """Of a handler of Orbax one of ours; another handler is itself."""
    return _as(_OURS.get(type(handler)), handler, compression=compression)


def _orbax(handler: Any) -> Any:
    return _as(_ORBAX.get(type(handler)), handler)


def registry(base: Any = None, *, compression: str = 'auto') -> Any:
    """A copy of a registry of type handlers (by default the global one) in which ours are in the places of Orbax's."""
    _orbax_save.check_compression(compression)
    base = base or type_handler_registry.GLOBAL_TYPE_HANDLER_REGISTRY
    made = type_handler_registry.create_type_handler_registry()
    made._type_registry = [(matches, _ours(handler, compression)) for matches, handler in base._type_registry]
    made._typestr_registry = {name: _ours(handler, compression) for name, handler in base._typestr_registry.items()}
    return made


class PyTreeCheckpointHandler(ocp.PyTreeCheckpointHandler):
    """Makes one of Orbax's, which takes PyTreeSave and PyTreeRestore and records its own name, with its arguments."""

    def __new__(cls, *args: Any, type_handler_registry: Any = None, compression: str = 'auto', **how: Any) -> Any:
        return ocp.PyTreeCheckpointHandler(*args, type_handler_registry=registry(type_handler_registry, compression=compression), **how)


class StandardCheckpointHandler(ocp.StandardCheckpointHandler):
    """Makes one of Orbax's, which takes StandardSave and StandardRestore and records its own name, with its arguments."""

    def __new__(cls, *, compression: str = 'auto', **how: Any) -> Any:
        made = ocp.StandardCheckpointHandler(**how)
        made._impl = PyTreeCheckpointHandler(compression=compression, **how)
        return made


def _leaf_handler(base: type[Any], compression: str) -> type[Any]:
    """A leaf handler of Orbax's that has one of our handlers."""
    class Made(base):
        def __init__(self, *, context: Any = None):
            super().__init__(context=context)
            self._handler_impl = _ours(self._handler_impl, compression)
    return Made


def leaf_registry(*, compression: str = 'auto') -> Any:
    """Orbax's standard registry of leaf handlers, with ours in it: for `PyTreeOptions(leaf_handler_registry=...)` of a Context."""
    _orbax_save.check_compression(compression)
    made = leaf_handlers.StandardLeafHandlerRegistry()
    for entry in made._entries:
        if entry.handler_type in (array_leaf_handler.ArrayLeafHandler, numpy_leaf_handler.NumpyLeafHandler, scalar_leaf_handler.ScalarLeafHandler):
            entry.handler_type = _leaf_handler(entry.handler_type, compression)
    return made


class PyTreeHandler(handler_types.CheckpointableHandler):
    """Makes one of Orbax's v1 handlers of trees, with its arguments: for the registry of `CheckpointablesOptions`."""

    def __new__(cls, *, leaf_handler_registry: Any = None, compression: str = 'auto', **how: Any) -> Any:
        return pytree_handler.PyTreeHandler(leaf_handler_registry=leaf_handler_registry or leaf_registry(compression=compression), **how)


def install(*, compression: str = 'auto') -> None:
    """Make ours the handlers of arrays of this process, in Orbax's v0 and v1, and what it saves durable. Handlers of others stay."""
    known = type_handler_registry.GLOBAL_TYPE_HANDLER_REGISTRY
    ours = registry(known, compression=compression)
    _orbax_save.make_durable(True)
    known._type_registry, known._typestr_registry = ours._type_registry, ours._typestr_registry
    for name, make in _MAKERS.items():
        setattr(v1_registration, name, functools.wraps(make)(lambda *args, _make=make, **how: _ours(_make(*args, **how), compression)))


def uninstall() -> None:
    """Undo install()."""
    _orbax_save.make_durable(False)
    known = type_handler_registry.GLOBAL_TYPE_HANDLER_REGISTRY
    known._type_registry = [(matches, _orbax(handler)) for matches, handler in known._type_registry]
    known._typestr_registry = {name: _orbax(handler) for name, handler in known._typestr_registry.items()}
    for name, make in _MAKERS.items():
        setattr(v1_registration, name, make)
