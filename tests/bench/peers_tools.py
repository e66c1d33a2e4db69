# SPDX-License-Identifier: Apache-2.0
"""Scripts that people write today instead of `pytreefs verify`, `stats` and `diff`: restore with Orbax, then numpy."""

import numpy as np

from bench.peers import _orbax, prepared


def _arrays(source):
    import jax
    import orbax.checkpoint as ocp
    with ocp.PyTreeCheckpointer() as c:
        return jax.tree_util.tree_flatten_with_path(c.restore(source))[0]


@prepared(_orbax)
def verify(source):
    """Check that it restores; there is no better check."""
    _arrays(source)


@prepared(_orbax)
def stats(source):
    """Compute the columns of `stats` for each leaf."""
    for _, a in _arrays(source):
        wide = a.astype(np.float64)
        ok = np.isfinite(wide)
        wide = wide[ok]
        _ = (np.isnan(a).sum(), np.isinf(a).sum(), wide.min(), wide.max(), wide.mean(), wide.std(), (wide == 0).sum())


@prepared(_orbax)
def diff(a, b):
    """Compute the columns of `diff` for each different leaf; there must be exactly one."""
    other = dict((str(k), v) for k, v in _arrays(b))
    n = 0
    for key, x in _arrays(a):
        y = other[str(key)]
        if x.dtype != y.dtype or x.shape != y.shape or not np.array_equal(x, y, equal_nan=True):
            n += 1
            d = np.abs(x.astype(np.float64) - y.astype(np.float64))
            _ = (np.count_nonzero(d), d.max())
    assert n == 1, n
