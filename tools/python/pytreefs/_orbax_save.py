# SPDX-License-Identifier: Apache-2.0
"""How the handlers of orbax.py save: Orbax copies from devices, and decides on names, shapes and chunks; we encode and write.

Each call writes a database of its own beside those of other processes and of Orbax's handlers, which Orbax merges when all have ended.
"""
# mypy: ignore-errors
# Orbax has no types.

from __future__ import annotations

import asyncio
import dataclasses
import functools
import os
import threading
import types
import uuid
import weakref
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from absl import logging
from orbax.checkpoint import type_handlers
from orbax.checkpoint._src.arrays import numpy_utils
from orbax.checkpoint._src.multihost import multihost
from orbax.checkpoint._src.path import async_path, atomicity
from orbax.checkpoint._src.serialization import jax_array_handlers, limits, ocdbt_process_spec, replica_slices
from orbax.checkpoint._src.serialization import tensorstore_utils as ts_utils

from . import _dtypes
from . import _pytreefs as lib
from ._context import options_text

DATA_FILE_BYTES = ts_utils._DEFAULT_OCDBT_TARGET_DATA_FILE_SIZE


class Unknown(Exception):
    """Orbax's own handler does it."""


_NAMES: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


def check_names(infos: Sequence[Any]) -> None:
    """Refuse two leaves that Orbax stores under one name, 'a.b' and 'b' of 'a': each handler has a database of its own, and the merge keeps one.
    While values are written: v1 waits for the other handlers if one fails before."""
    for info in infos:
        if info.byte_limiter is None or info.keypath is None:
            continue
        taken = _NAMES.setdefault(info.byte_limiter, {})        # of a save, which may have several items
        if (other := taken.setdefault((info.parent_dir, info.name), info.keypath)) != info.keypath:
            raise ValueError(f'two leaves are stored under one name, {info.name!r}: '
                             f'{jax.tree_util.keystr(other)} and {jax.tree_util.keystr(info.keypath)}')


def check_compression(compression: str) -> str:
    """Raise Error here, not at the first save of a run."""
    lib.write_database('', options_text({'compression': compression}), [], None)
    return compression


def check(infos: Sequence[Any]) -> None:
    """Raise Unknown if Orbax does not store these leaves as we do."""
    first = infos[0]
    if not first.is_ocdbt_checkpoint:
        raise Unknown('it is stored without a database')
    if '://' in first.parent_dir.as_posix():
        raise Unknown('it is not a directory')
    if odd := next((info.name for info in infos if '\0' in info.name), None):
        raise Unknown(f'of the name {odd!r}')


def check_dtypes(arrays: Sequence[Any], args: Sequence[Any]) -> None:
    for dtype in {x.dtype for x in arrays} | {jax.numpy.dtype(arg.dtype) for arg in args if arg.dtype is not None}:
        if not jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key) and dtype.name not in _dtypes.PLAIN | _dtypes.EXTENDED:
            raise Unknown(f'of the dtype {dtype}')


def _spec(info: Any, arg: Any, shape: Any, part: Any, dtype: Any, ext_metadata: Any = None) -> Any:
    """The metadata that Orbax would give TensorStore for an array."""
    spec = ts_utils.build_array_write_spec(info=info, arg=arg, global_shape=shape, local_shape=part, dtype=dtype, use_ocdbt=True,
                                           process_index=multihost.process_index(), ext_metadata=ext_metadata)
    return spec.metadata


def _array(name: str, spec: Any, dtype: Any, parts: Any, flags: int = 0) -> Any:
    parts = [(start, _dtypes.raw(a if all(step >= 0 for step in a.strides) else a.copy(order='C'))) for start, a in parts]
    return name, spec.dtype.name, dtype.name, tuple(spec.shape), tuple(spec.chunk_shape), parts, flags


async def _write(compression: str, infos: Sequence[Any], arrays: Sequence[Any]) -> None:
    check_names(infos)
    first = infos[0]
    size = first.ocdbt_target_data_file_size
    options = {'compression': compression if first.use_compression else 'none', 'zarr': 3 if first.use_zarr3 else 2,
               'target_data_file_size': DATA_FILE_BYTES if size is None else size}
    if isinstance(first.byte_limiter, limits.LimitInFlightBytes) and first.byte_limiter.max_bytes < 256 << 20:
        options['write_budget'] = max(first.byte_limiter.max_bytes, 1 << 20)
    path = first.parent_dir / f'{ocdbt_process_spec.OcdbtProcessSpec(f"{multihost.process_index()}{uuid.uuid4().hex}")}'
    stop = threading.Event()

    def progress(done: int, total: int) -> None:
        if stop.is_set():
            raise asyncio.CancelledError

    call = asyncio.get_running_loop().run_in_executor(
        None, lib.write_database, path.as_posix(), options_text(options), arrays, progress)
    try:
        await asyncio.shield(call)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([call])
        raise


# ---- arrays of jax ----

def _on_host(arrays: Sequence[jax.Array], replica_id: int, is_parallel: bool, least: int | None, most: int | None) -> list[Any]:
    """The parts that this process writes of arrays on the CPU, where they are."""
    made = []
    for x in arrays:
        parts = replica_slices.get_replica_slices(x, replica_id, is_parallel, least, most)
        views = []
        for part in parts.replica_slices:
            view, cut = np.asarray(part.unsliced_data), part.slice_args
            if cut is not None:
                view = view[(slice(None),) * cut.axis + (slice(cut.start_index, cut.limit_index),)]
            views.append(dataclasses.replace(part, unsliced_data=view, slice_args=None))
        made.append(dataclasses.replace(parts, is_on_host=True, replica_slices=views))
    return made


def _transfer_arrays_to_host(arrays: Sequence[jax.Array], replica_id: int, use_replica_parallel: bool,
                             min_slice_bytes_for_replica_parallel: int | None = None, max_replicas_for_replica_parallel: int | None = None, *,
                             enable_pinned_host_transfer: bool = False) -> Sequence[Any]:
    """As Orbax's, which copies by the devices: those of the CPU have nothing to copy."""
    how = replica_id, use_replica_parallel, min_slice_bytes_for_replica_parallel, max_replicas_for_replica_parallel
    if all(device.platform == 'cpu' for x in arrays for device in x.sharding.addressable_devices):
        return _on_host(arrays, *how)
    return replica_slices.transfer_arrays_to_host(arrays, *how, enable_pinned_host_transfer=enable_pinned_host_transfer)


def _start(index: Any, shape: Any) -> tuple[int, ...]:
    return tuple(axis.start for axis in numpy_utils.resolve_slice(index, shape))


async def _write_slices(compression: str, values: Sequence[Any], infos: Sequence[Any], args: Sequence[Any], *, primary_host: int,
                        array_metadata_store: Any, ext_metadata: dict[str, Any], **_: Any) -> Sequence[Any]:
    """In place of jax_array_handlers._async_serialize_replica_slices()."""
    for info in infos:
        await info.await_path_creation()
    is_primary = multihost.process_index() == primary_host
    flags = (lib.ARRAY_SHARED if jax.process_count() > 1 else 0) | (0 if is_primary else lib.ARRAY_NO_METADATA)
    specs, arrays = [], []
    for value, info, arg in zip(values, infos, args):
        spec = _spec(info, arg, value.global_shape, value.local_shape, value.dtype, ext_metadata.get(info.name))
        specs.append(spec)
        parts = [(_start(part.index, value.global_shape), part.unsliced_data) for part in value.replica_slices]
        if parts or is_primary:
            arrays.append(_array(info.name, spec, value.dtype, parts, flags))
    writing = [_write(compression, infos, arrays)] if arrays else []
    if array_metadata_store is not None:
        writing.append(array_metadata_store.write(checkpoint_dir=infos[0].parent_dir, array_metadatas=specs,
                                                  process_index=multihost.process_index()))
    await asyncio.gather(*writing)
    return specs


def _with(function: Any, **names: Any) -> Any:
    """A copy of a function of Orbax, which finds these in place of others of its module."""
    made = types.FunctionType(function.__code__, {**function.__globals__, **names}, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


@functools.cache
def _serialize(compression: str) -> Any:
    """ArrayHandler.serialize() of Orbax, in which we write."""
    batches = _with(jax_array_handlers._serialize_arrays_batches_without_dispatcher,
                    replica_slices=types.SimpleNamespace(transfer_arrays_to_host=_transfer_arrays_to_host),
                    _async_serialize_replica_slices=functools.partial(_write_slices, compression))
    arrays = _with(jax_array_handlers._serialize_arrays, _serialize_arrays_batches_without_dispatcher=batches)
    return _with(type_handlers.ArrayHandler.serialize, _serialize_arrays=arrays)


def check_handler(handler: Any) -> None:
    """Raise Unknown if a handler has settings for something else."""
    if handler.has_dispatcher():
        raise Unknown('by a dispatcher')
    if handler._metadata_key is not None:
        raise Unknown('with metadata of another name')
    if handler._primary_host is None or handler._replica_id is None:
        raise Unknown('to local disks')
    if handler._enable_replica_parallel_separate_folder:
        raise Unknown('with a directory for replicas')


async def save_arrays(handler: Any, values: Sequence[Any], infos: Sequence[Any], args: Sequence[Any] | None) -> Sequence[Any]:
    return await _serialize(handler.compression)(handler, values, infos, args)


# ---- arrays of numpy ----

def check_numpy(handler: Any) -> None:
    if handler._metadata_key is not None or handler._override_ocdbt_process_id is not None:
        raise Unknown('with names of another kind')


async def save_numpy(handler: Any, values: Sequence[Any], infos: Sequence[Any], args: Sequence[Any]) -> None:
    """In place of NumpyHandler._background_serialize(). The first process has all."""
    for info in infos:
        await info.await_path_creation()
    if multihost.process_index() != 0:
        return
    arrays = []
    for value, info, arg in zip(values, infos, args):
        value = value if value.dtype.isnative else value.astype(value.dtype.newbyteorder('='))
        spec = _spec(info, arg, value.shape, value.shape, value.dtype)
        arrays.append(_array(info.name, spec, value.dtype, [((0,) * value.ndim, value)]))
    await _write(handler.compression, infos, arrays)


# ---- durable steps ----

def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_all(top: str) -> None:
    """Sync files and directories, but for databases of processes: each is durable when its process has ended its part."""
    def stop(error: OSError) -> None:
        raise error
    for at, directories, names in os.walk(top, onerror=stop):
        directories[:] = [name for name in directories if not name.startswith(ocdbt_process_spec.PROCESS_PREFIX)]
        for name in (*names, '.'):
            _sync(os.path.join(at, name))


async def _rename(temporary: Any, final: Any) -> None:
    """Orbax's rename of a step, which it does not make durable. An item gets its name while its step is still temporary."""
    path = os.fspath(temporary)
    is_step = '://' not in path and atomicity.TMP_DIR_SUFFIX not in os.path.dirname(path)
    if is_step:
        await asyncio.to_thread(_sync_all, path)
    await async_path.rename(temporary, final)
    if is_step:
        await asyncio.to_thread(_sync, os.path.dirname(path))


FINALIZE = atomicity.AtomicRenameTemporaryPath.finalize     # Orbax's


def make_durable(is_on: bool) -> None:
    """Let each step that this process commits be on the disk when it is visible."""
    durable = _with(FINALIZE, async_path=types.SimpleNamespace(**{**vars(async_path), 'rename': _rename}))
    atomicity.AtomicRenameTemporaryPath.finalize = durable if is_on else FINALIZE
