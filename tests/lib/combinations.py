# SPDX-License-Identifier: Apache-2.0
"""Combinations of parameters of which the shorter run takes a part."""

import itertools

import pytest


def each_value(*axes):
    """All combinations, for parametrize. `tests/run` takes as many as have each value of each axis, `tests/run --all` the others, too."""
    axes = [list(axis) for axis in axes]
    few = {tuple(i % len(axis) for axis in axes) for i in range(max(map(len, axes)))}
    return [pytest.param(*(axis[i] for axis, i in zip(axes, at, strict=True)), marks=() if at in few else pytest.mark.long)
            for at in itertools.product(*(range(len(axis)) for axis in axes))]
