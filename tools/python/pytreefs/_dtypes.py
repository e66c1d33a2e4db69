# SPDX-License-Identifier: Apache-2.0
"""Element types: names as pytreefs spells them, and what numpy and torch call them."""

from __future__ import annotations

import contextlib
import functools
import math
import re
import sys
from typing import Any, Literal, TypeAlias

import numpy as np

Framework: TypeAlias = Literal['numpy', 'torch', 'pt', 'jax']

PLAIN = frozenset((
    'bool', 'int8', 'int16', 'int32', 'int64', 'uint8', 'uint16', 'uint32', 'uint64', 'float16', 'float32', 'float64',
    'complex64', 'complex128'))


# Those of ml_dtypes.
EXTENDED = frozenset((
    'bfloat16', 'int2', 'int4', 'float4_e2m1fn', 'float8_e3m4', 'float8_e4m3fn', 'float8_e4m3fnuz', 'float8_e4m3b11fnuz', 'float8_e5m2',
    'float8_e5m2fnuz', 'float8_e8m0fnu'))

_NO_NAN, _MOST = 'float4_e2m1fn', 6     # has neither NaN, which becomes -0, nor infinities, for which it has its largest number
_POSITIVE = 'float8_e8m0fnu'            # powers of two: 0 and negative numbers become NaN

# Bits of the significand, and the exponent below which numbers have fewer.
_PRECISION = {'bfloat16': (8, -126), 'float4_e2m1fn': (2, 0), 'float8_e3m4': (5, -2), 'float8_e4m3fn': (4, -6), 'float8_e4m3fnuz': (4, -7),
              'float8_e4m3b11fnuz': (4, -10), 'float8_e5m2': (3, -14), 'float8_e5m2fnuz': (3, -15), 'float8_e8m0fnu': (1, -127)}

# The short names of views, of types of a byte and more.
_SHORT = re.compile(r'(bf|fp?|u|i|c)([1-9]\d*(?:_\w+)?)')
_KINDS = {'bf': 'bfloat', 'f': 'float', 'fp': 'float', 'u': 'uint', 'i': 'int', 'c': 'complex'}


@functools.cache
def dtype_of(name: str) -> np.dtype[Any]:
    """The dtype of a name; without ml_dtypes what numpy loads for it: <V2, |V1."""
    if name in PLAIN:
        return np.dtype(name)
    try:
        import ml_dtypes
        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found
    except (ImportError, AttributeError):
        return np.dtype('<V2' if name == 'bfloat16' else '|V1')


def rounded(name: str, value: Any) -> Any:
    """The number of a small type that the shortest digits of it stand for, with ml_dtypes or without."""
    if name not in _PRECISION or not math.isfinite(value) or value == 0:
        return value
    bits, least = _PRECISION[name]
    quantum = 2.0 ** (max(math.frexp(value)[1] - 1, least) - (bits - 1))
    return round(value / quantum) * quantum


def name_of(dtype: Any) -> str:
    """The name of a dtype that a user gave: of numpy, ml_dtypes, jax.numpy or torch, or a name, also a short one of views. ValueError
    for a name of none, and for one that is another type in numpy than in views."""
    if isinstance(dtype, str):
        return _of_text(dtype)
    if type(dtype).__module__ == 'torch':
        return str(dtype).removeprefix('torch.')
    found: np.dtype[Any] = np.dtype(dtype)
    return found.name


def _of_text(text: str) -> str:
    name = text.lower()
    if name in PLAIN or name in EXTENDED:
        return name
    found = set()
    if (short := _SHORT.fullmatch(name)) and short[2] not in ('2', '4'):      # 'i4' has four bytes in numpy
        found.add(_KINDS[short[1]] + short[2])
    with contextlib.suppress(TypeError):
        found.add(np.dtype(name).name)
    found &= PLAIN | EXTENDED
    if len(found) != 1:
        why = f"is {' for numpy and '.join(sorted(found, key=len, reverse=True))} in names of views" if found else 'is not a dtype of checkpoints'
        raise ValueError(f'{text!r} {why}')
    return found.pop()


def is_floating(name: str) -> bool:
    return name.startswith(('float', 'bfloat'))


def _limits(name: str) -> tuple[int, int] | None:
    """The smallest and the largest number of an integer type; None for another type."""
    found = re.fullmatch(r'(u?)int(\d+)', name)
    if found is None:
        return (0, 1) if name == 'bool' else None
    bits = int(found[2])
    return (0, (1 << bits) - 1) if found[1] else (-1 << bits - 1, (1 << bits - 1) - 1)


def may_change(stored: str, name: str) -> bool:
    """Whether a cast can make another number of one: an integer that wraps, a fraction or an imaginary part that is lost. Numbers
    that only become less precise are what a cast to a floating type is for, but there are two that lack more than precision."""
    to, of = _limits(name), _limits(stored)
    if stored.startswith('complex'):
        return not name.startswith('complex')
    if name in (_NO_NAN, _POSITIVE):
        return stored != name
    return to is not None and (of is None or of[0] < to[0] or of[1] > to[1])


def exact(name: str) -> str:
    """A type of numpy that has all numbers of a type."""
    return name if name in PLAIN else 'float64' if is_floating(name) else 'int64'


def changed(a: np.ndarray[Any, Any], name: str) -> Any:
    """A number of an array that a cast to that type would change; None if it would change none."""
    real, limits = a.real, _limits(name)
    odd = a[a.imag != 0] if a.dtype.kind == 'c' else a[:0] if a.ndim else a[None][:0]
    if not odd.size and name == _NO_NAN:
        odd = real[~(abs(real) <= _MOST)]
    if not odd.size and name == _POSITIVE:
        odd = real[real <= 0]
    if not odd.size and limits and a.size:
        if real.dtype.kind == 'f':
            odd = real[real != np.trunc(real)]
        if not odd.size:
            odd = np.array([x for x in (real.min(), real.max()) if not limits[0] <= x.item() <= limits[1]])
    return odd[0].item() if odd.size else None


def raw(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same elements as integers, which every buffer can name; complex128 stays."""
    return a.view(f'u{a.itemsize}') if a.itemsize <= 8 else a


HUGE = 2 << 20          # a large page
ALIGNED = 8 << 20       # bytes of an array from which on it is worth one
LINE = 64               # jax copies what does not begin at a multiple of it


def empty(shape: tuple[int, ...], name: str, leaf: str, for_jax: bool = False) -> np.ndarray[Any, Any]:
    """An array that a leaf is going to fill. for_jax: its arrays on the CPU may be this memory, for which it begins at a line of the cache. A large one begins at a large page: for the rest of an array that does not, the
    kernel takes a fault for each page of 4 KiB, which adds up to a tenth of a load."""
    dtype = dtype_of(name)
    n = math.prod(shape) * dtype.itemsize
    if n < ALIGNED and not for_jax:
        return np.empty(shape, dtype)
    boundary = HUGE if n >= ALIGNED else LINE
    try:
        room = np.empty(n + boundary, np.uint8)
    except (MemoryError, ValueError):       # the latter for a number that is not an address
        raise MemoryError(f"'{leaf}' needs {n / 2**30:,.1f} GiB of memory, as {name}{list(shape)}: load(only=...) loads other "
                          f'leaves, and an index of the leaf reads a part of it') from None
    first = -room.__array_interface__['data'][0] % boundary
    return room[first:first + n].view(dtype).reshape(shape)


def checked(framework: str) -> Framework:
    """The name of a framework: 'numpy', 'torch' or 'jax'."""
    found: dict[str, Framework] = {'numpy': 'numpy', 'torch': 'torch', 'pt': 'torch', 'jax': 'jax'}
    if framework not in found:
        raise ValueError(f"framework is 'numpy', 'torch' or 'jax', not {framework!r}")
    return found[framework]


def is_torch(x: object) -> bool:
    torch = sys.modules.get('torch')
    return torch is not None and isinstance(x, torch.Tensor)


def fillable(x: Any) -> tuple[np.ndarray[Any, Any], str]:
    """(array to fill, dtype name) over the memory of an array or a tensor that a caller gives; ValueError for what does not get
    the values that are put into that memory."""
    if is_torch(x):
        if x.device.type != 'cpu':
            raise ValueError(f'must be on the CPU, it is on {x.device}')
        if x.layout != sys.modules['torch'].strided or x.is_conj() or x.is_neg():
            raise ValueError('must be a dense tensor, not a conjugate or negative view')
        a, name = from_torch(x)
    else:
        a, name = x, ''
    if not isinstance(a, np.ndarray) or isinstance(a, np.ma.MaskedArray) or not a.flags.writeable:
        raise ValueError('must be a writable array or tensor')
    if not a.dtype.isnative:
        raise ValueError(f'must be of native byte order, its dtype is {a.dtype.str}')
    if a.size and any(step == 0 and n > 1 for step, n in zip(a.strides, a.shape)):
        raise ValueError('has elements that share memory')
    return a, name or name_of(a.dtype)


def to_torch(a: np.ndarray[Any, Any], name: str) -> Any:
    """A tensor over the memory of an array; TypeError where torch has no such type."""
    import torch
    if name in PLAIN:
        return torch.from_numpy(a)
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or dtype.itemsize != a.itemsize:
        raise TypeError(f'torch has no type {name}')
    return torch.from_numpy(raw(a).view(f'i{a.itemsize}')).view(dtype)


def from_torch(t: Any) -> tuple[np.ndarray[Any, Any], str]:
    """(array of integers or plain numbers, name of the type) over the memory of a tensor on the CPU."""
    import torch
    t = t.detach().cpu().resolve_conj().resolve_neg()
    name = str(t.dtype).removeprefix('torch.')
    if name in PLAIN:
        return t.numpy(), name
    integers = {1: torch.int8, 2: torch.int16}.get(t.dtype.itemsize)
    if integers is None or name.startswith('q'):
        raise TypeError(f'{name} is not a type of checkpoints')
    return t.view(integers).numpy(), name
