# SPDX-License-Identifier: Apache-2.0
"""The input for the tools: a checkpoint of 2 GiB, and one that differs from it in one leaf."""

from lib import jaxenv  # noqa: F401  before jax

import numpy as np

from lib import gen_bench
from lib.case import case

SHIFTS = {'mu': 0.0, 'params': 1.0}


def tree(changed=None):
    """128 leaves of 16 MiB."""
    x = gen_bench.weights()
    out = {}
    for name, shift in SHIFTS.items():
        for key, leaf in gen_bench.rows(x).items():
            leaf['w'][:, 1] += np.float32(shift)
            out.setdefault(key, {})[name] = leaf['w']
    if changed:
        layer, name = changed
        out[layer][name][7, 11] += 1
    return out


def make(changed=None):
    def write(d):
        return gen_bench._save(d, tree(changed))
    return write


case('two-gib', heavy=True)(make())
case('two-gib-changed', heavy=True)(make(('layer31', 'params')))
