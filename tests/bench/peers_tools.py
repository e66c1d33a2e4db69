# SPDX-License-Identifier: Apache-2.0
"""What people write today where there is `pytreefs verify`, `stats` and `diff`: restore with Orbax, then numpy."""

import numpy as np

from bench.peers import _orbax, prepared


def _arrays(source):
    import jax
    import orbax.checkpoint as ocp
    with ocp.PyTreeCheckpointer() as c:
        return jax.tree_util.tree_flatten_with_path(c.restore(source))[0]


@prepared(_orbax)
def verify(source):
    """That it restores is all that can be asked for."""
    _arrays(source)


@prepared(_orbax)
def stats(source):
    """What `stats` prints of each leaf."""
    for _, a in _arrays(source):
        wide = a.astype(np.float64)
        ok = np.isfinite(wide)
        wide = wide[ok]
        _ = (np.isnan(a).sum(), np.isinf(a).sum(), wide.min(), wide.max(), wide.mean(), wide.std(), (wide == 0).sum())


@prepared(_orbax)
def diff(a, b):
    """What `diff` prints of each leaf that differs; exactly one must."""
    other = dict((str(k), v) for k, v in _arrays(b))
    n = 0
    for key, x in _arrays(a):
        y = other[str(key)]
        if x.dtype != y.dtype or x.shape != y.shape or not np.array_equal(x, y, equal_nan=True):
            n += 1
            d = np.abs(x.astype(np.float64) - y.astype(np.float64))
            _ = (np.count_nonzero(d), d.max())
    assert n == 1, n
