# SPDX-License-Identifier: Apache-2.0
"""Basic indexing as in numpy -> a box that can be read, and where its elements go."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np


class Plan(NamedTuple):
    box: tuple[tuple[int, int, int, bool], ...]     # start, step > 0, count, whether the axis goes
    shape: tuple[int, ...]          # of the result
    read_shape: tuple[int, ...]     # of what is read: without new axes
    flips: tuple[slice, ...]        # of what is read: where the step was negative


def plan(index: Any, shape: tuple[int, ...]) -> Plan:
    """IndexError as numpy raises it; arrays and lists as an index are refused."""
    items = list(index) if isinstance(index, tuple) else [index]
    dots = [i for i, x in enumerate(items) if x is Ellipsis]
    real = sum(x is not None and x is not Ellipsis for x in items)
    if len(dots) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if real > len(shape):
        raise IndexError(f'too many indices for array: array is {len(shape)}-dimensional, but {real} were indexed')
    rest = [slice(None)] * (len(shape) - real)
    if dots:
        items[dots[0]:dots[0] + 1] = rest
    else:
        items += rest
    box: list[tuple[int, int, int, bool]] = []
    result: list[int] = []
    read: list[int] = []
    flips: list[slice] = []
    for x in items:
        if x is None:
            result.append(1)
            continue
        n = shape[len(box)]
        if isinstance(x, slice):
            r = range(n)[x]
            is_back = r.step < 0
            box.append((r[-1] if is_back and len(r) else r.start if len(r) else 0, abs(r.step), len(r), False))
            result.append(len(r))
            read.append(len(r))
            flips.append(slice(None, None, -1) if is_back else slice(None))
            continue
        box.append((_position(x, n, len(box)), 1, 1, True))
    return Plan(tuple(box), tuple(result), tuple(read), tuple(flips))


def _position(x: Any, n: int, axis: int) -> int:
    try:
        if isinstance(x, (bool, np.bool_)):
            raise TypeError
        i = operator.index(x)
    except TypeError:
        raise IndexError("integers, slices, '...' and None choose what is read; index the array for more: leaf[...][index]") from None
    if not -n <= i < n:
        raise IndexError(f'index {i} is out of bounds for axis {axis} with size {n}')
    return i % n


def has_dots(index: Any) -> bool:
    return any(x is ... for x in (index if isinstance(index, tuple) else (index,)))
