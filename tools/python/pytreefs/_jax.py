# SPDX-License-Identifier: Apache-2.0
"""Typed PRNG keys of jax, and where its arrays are. jax is imported by the program or not at all."""

from __future__ import annotations

import json
import sys
from typing import Any


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
