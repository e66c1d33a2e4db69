# SPDX-License-Identifier: Apache-2.0
"""Restores a root with an older Orbax, and prints every difference from the saved values. Run by with_old_orbax.

usage: old_reader.py ROOT EXPECTED.json

EXPECTED.json has one tree per step (lib/expect.py). It runs in the older release's environment. alike.json beside it may name for a step one
that Orbax saved: what the older release says of that one it may say of the other, too (jax 0.10 has other names of devices).
"""

import importlib.metadata
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from lib import expect, restoring  # noqa: E402


def main(root, expected):
    trees = expect.load(expected)
    others = expected.with_name('alike.json')
    alike, said, faults = json.loads(others.read_text()) if others.exists() else {}, {}, 0
    for step, tree in trees.items():
        keys = any(isinstance(v, expect.Key) for v in tree.leaves.values())
        for way in restoring.WAYS:
            if keys and way == 'v1-target':
                continue        # see with_old_orbax
            said[step, way] = restoring.by_orbax(root, step, tree, [way])
        ocdbt, zarr3 = (root / step / 'default/manifest.ocdbt').exists(), step.startswith('3')
        said[step, 'TensorStore'] = list(restoring.by_tensorstore(root / step / 'default', tree, ocdbt, zarr3))
    for (step, way), found in said.items():
        is_alike = step in alike and found == said[alike[step], way]
        if step not in alike.values():
            print(f'step {step}, {way}: {"; ".join(f[:300] for f in found[:3]) or "equal"}{" (as of Orbax)" if found and is_alike else ""}')
            faults += 0 if is_alike else len(found)
    versions = ', '.join(f'{p} {importlib.metadata.version(p)}' for p in ('orbax-checkpoint', 'jax', 'tensorstore'))
    print(f'{versions}: {len(trees)} steps, {faults} faults')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
