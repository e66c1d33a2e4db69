# SPDX-License-Identifier: Apache-2.0
"""Typed PRNG keys of jax, and where its arrays are. jax is imported by the program, or when its arrays are asked for."""

from __future__ import annotations

import json
import sys
from typing import Any, TypeAlias

import numpy as np

Box: TypeAlias = tuple[tuple[int, int], ...]       # (first, end) on each axis


def _loaded() -> Any:
    """jax, which is loaded when there are values of it."""
    return sys.modules['jax']


def is_key(x: Any) -> bool:
    """Whether x is a typed PRNG key, or an array of them, or says that of what is wanted (jax.ShapeDtypeStruct)."""
    return str(getattr(x, 'dtype', '')).startswith('key<')


def key_data_shape(x: Any) -> tuple[int, ...]:
    """The shape of the integers of keys."""
    jax = _loaded()
    return tuple(jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(x.shape, x.dtype)).shape)


def wrap_key(a: Any, impl: str) -> Any:
    jax = _loaded()
    return jax.random.wrap_key_data(jax.numpy.asarray(a), impl=impl)


def key_data(x: Any) -> tuple[Any, str]:
    """(integers, name of the implementation) of keys."""
    jax = _loaded()
    return jax.random.key_data(x), str(jax.random.key_impl(x))


def is_array(x: Any) -> bool:
    jax = sys.modules.get('jax')
    return jax is not None and isinstance(x, jax.Array)


def _mesh_ids(devices: Any) -> Any:
    return [_mesh_ids(d) for d in devices] if hasattr(devices, '__len__') else {'id': int(devices.id)}


def sharding_text(x: Any) -> str | None:
    """Where an array is, as Orbax records it; None: it has no form for it."""
    sharding, s = _loaded().sharding, x.sharding
    if isinstance(s, sharding.SingleDeviceSharding):
        return json.dumps({'sharding_type': 'SingleDeviceSharding', 'device_str': str(next(iter(s.device_set)))})
    if not isinstance(s, sharding.NamedSharding) or not hasattr(s.mesh, 'devices'):
        return None
    spec = [list(axis) if isinstance(axis, tuple) else axis for axis in s.spec]
    if any(not (axis is None or isinstance(axis, (str, list))) for axis in spec):
        return None
    found = {'sharding_type': 'NamedSharding', 'shape': list(s.mesh.devices.shape), 'axis_names': list(s.mesh.axis_names)}
    types = getattr(s.mesh, 'axis_types', None)
    if isinstance(types, tuple):
        found['axis_types'] = [f'AxisType.{t.name}' for t in types]
    return json.dumps({**found, 'partition_spec': spec, 'device_mesh': {'mesh': _mesh_ids(s.mesh.devices)}})


def sharding_of(x: Any) -> Any:
    """Where an array of jax is, or where what says so (jax.ShapeDtypeStruct) wants it; None for others."""
    jax = sys.modules.get('jax')
    if jax is None or not isinstance(x, (jax.Array, jax.ShapeDtypeStruct)):
        return None
    return x.sharding


def default_sharding() -> Any:
    import jax
    return jax.sharding.SingleDeviceSharding(jax.local_devices()[0])


def sharding_from(text: str | None, shape: tuple[int, ...]) -> Any:
    """The sharding that is recorded, on devices of this process; None: it does not have them, the shape does not fit, or none is recorded."""
    import jax
    placed: Any = jax.sharding
    try:
        found = json.loads(text or '{}')
        if found['sharding_type'] == 'SingleDeviceSharding':
            name = found['device_str'].replace('TFRT_CPU_', 'cpu:')
            return placed.SingleDeviceSharding({str(d).replace('TFRT_CPU_', 'cpu:'): d for d in jax.local_devices()}[name])
        if found['sharding_type'] != 'NamedSharding':
            return None
        devices = {d.id: d for d in jax.devices()}
        ids = (found.get('device_mesh') or {}).get('mesh')
        flat = sorted(devices)[:int(np.prod(found['shape']))] if ids is None else [d['id'] for d in _flat(ids)]
        mesh = np.array([devices[i] for i in flat], object).reshape(found['shape'])
        spec = [tuple(axis) if isinstance(axis, list) else axis for axis in found['partition_spec']]
        made = placed.NamedSharding(placed.Mesh(mesh, found['axis_names']), placed.PartitionSpec(*spec))
        made.shard_shape(shape)
        return made if made.addressable_devices_indices_map(shape) else None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None


def _flat(nested: Any) -> list[Any]:
    return [x for part in nested for x in _flat(part)] if isinstance(nested, list) else [nested]


def on_devices(sharding: Any) -> Any:
    """A sharding of a mesh without devices, as jax.eval_shape() gives, on those of the mesh that jax.set_mesh() has set."""
    placed: Any = _loaded().sharding
    mesh = getattr(sharding, 'mesh', None)
    is_abstract: bool = isinstance(mesh, getattr(placed, 'AbstractMesh', ()))
    if mesh is None or not is_abstract:
        return sharding
    found = placed.get_mesh() if hasattr(placed, 'get_mesh') else None
    if found is None or found.shape != mesh.shape:
        raise ValueError(f'its mesh {dict(mesh.shape)} has no devices: jax.set_mesh() of one that has gives it some')
    return placed.NamedSharding(found, sharding.spec)


def boxes_of(sharding: Any, shape: tuple[int, ...]) -> list[Box]:
    """The boxes that devices of this process have, each once."""
    return list(dict.fromkeys(_box(index, shape) for index in sharding.addressable_devices_indices_map(shape).values()))


def _box(index: tuple[slice, ...] | None, shape: tuple[int, ...]) -> Box:
    return tuple(s.indices(n)[:2] for s, n in zip(index or [slice(None)] * len(shape), shape))


def array_of(shape: tuple[int, ...], sharding: Any, dtype: Any, values: dict[Box, Any]) -> Any:
    """An array on devices, from its boxes. On the CPU it is the memory of values."""
    jax = _loaded()
    return jax.make_array_from_callback(shape, sharding, lambda index: values[_box(index, shape)], dtype=dtype)


def holds(dtype: Any) -> bool:
    """Whether jax has arrays of a type in this process, and does not make others of them."""
    return bool(_loaded().dtypes.canonicalize_dtype(dtype) == dtype)


def is_memory(sharding: Any) -> bool:
    """Whether its arrays are in the memory of the process."""
    return all(device.platform == 'cpu' for device in sharding.addressable_devices)
