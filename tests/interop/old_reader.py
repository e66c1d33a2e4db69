# SPDX-License-Identifier: Apache-2.0
"""Restores a root with an older Orbax, and prints every difference from the saved values. Run by with_old_orbax.

usage: old_reader.py ROOT EXPECTED.json

EXPECTED.json has one tree per step (lib/expect.py). It runs in the older release's environment.
"""

import importlib.metadata
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from lib import expect, restoring  # noqa: E402


def main(root, expected):
    trees = expect.load(expected)
    faults = 0
    for step, tree in trees.items():
        keys = any(isinstance(v, expect.Key) for v in tree.leaves.values())
        for way in restoring.WAYS:
            if keys and way == 'v1-target':
                continue        # see with_old_orbax
            found = restoring.by_orbax(root, step, tree, [way])
            print(f'step {step}, {way}: {"; ".join(f[:300] for f in found[:3]) or "equal"}')
            faults += len(found)
        ocdbt, zarr3 = (root / step / 'default/manifest.ocdbt').exists(), step.startswith('3')
        found = list(restoring.by_tensorstore(root / step / 'default', tree, ocdbt, zarr3))
        print(f'step {step}, TensorStore: {"; ".join(f[:300] for f in found[:3]) or "equal"}')
        faults += len(found)
    versions = ', '.join(f'{p} {importlib.metadata.version(p)}' for p in ('orbax-checkpoint', 'jax', 'tensorstore'))
    print(f'{versions}: {len(trees)} steps, {faults} faults')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2]))
