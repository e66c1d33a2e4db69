# SPDX-License-Identifier: Apache-2.0
"""More sources for interop/test_sources.py: those of sources.py, as snapshots in a cache of the Hugging Face hub."""

from lib import hub
from lib.sources import ITEM, NOT_ROOT, ROOT, STEP, flat, source, tree


def in_hub(name, leaves, what, below='', refused=None):
    def make(d, base):
        return hub.snapshot(what(base), d / 'cache') / below
    make.__name__ = f'{name}_in_the_hub'
    source(leaves, refused)(make)


in_hub('root', ROOT, lambda base: base.root, refused=NOT_ROOT)
in_hub('step_per_leaf', STEP, lambda base: base.perleaf / '1')
in_hub('tree', flat(tree()), lambda base: base.direct)
in_hub('item_far_down', ITEM, lambda base: base.root.parent, 'root/1/state')
