# SPDX-License-Identifier: Apache-2.0
"""Cases that take long to make or much room: made when a test asks for them."""

from lib import jaxenv  # noqa: F401  before jax

import numpy as np
import orbax.checkpoint as ocp0

from lib import bigdata, expect
from lib.case import Case, case
from lib.gen_matrix import save_v0, values


@case(heavy=True)
def leaves_20000(d):
    """20,000 small leaves in one step."""
    tree = {f'layer{i:03d}': {f'w{j:02d}': np.full((4,), i * 100 + j, np.float32) for j in range(100)}
            for i in range(200)}
    save_v0(d / 'ckpt', tree)
    return Case(notes={'layers': 200, 'leaves': 100})


@case(heavy=True)
def leaves_20000_perleaf(d):
    tree = {f'layer{i:03d}': {f'w{j:02d}': np.full((4,), i * 100 + j, np.float32) for j in range(100)}
            for i in range(200)}
    save_v0(d / 'ckpt', tree, ocdbt=False)
    return Case(notes={'layers': 200, 'leaves': 100})


def one_chunk(zarr3, mib):
    """One leaf that Orbax stores as one chunk, hence one zstd frame."""
    def make(d):
        save_v0(d / 'ckpt', {'w': bigdata.array(mib), 'n': 1}, zarr3=zarr3)
        return Case(notes={'mib': mib, 'sha256': bigdata.digest(mib)})
    return make


# More than the cache and what may be taken besides, with the sizes of the default.
case('one-large-chunk', heavy=True)(one_chunk(False, 400))
case('one-large-chunk-zarr3', heavy=True)(one_chunk(True, 400))


@case(heavy=True)
def medium_root(d):
    """Two steps of some 60 MiB, many leaves of many sizes: for tar, rsync and du."""
    root = d / 'ckpt'
    made = Case(steps=['1', '2'])
    with ocp0.CheckpointManager(root.resolve()) as manager:
        for step in (1, 2):
            tree = {f'layer{i}': {'w': values((256, 512), np.float32, step * 100 + i),
                                  'b': np.arange(512, dtype=np.int32), 'scale': 0.5 * i,
                                  'zeros': np.zeros((512, 512), np.float32)} for i in range(16)}
            tree['name'] = f'step {step}'
            tree['opt'] = [None, {}, (3, [])]
            manager.save(step, args=ocp0.args.Composite(
                state=ocp0.args.PyTreeSave(tree), config=ocp0.args.JsonSave({'step': step})))
            manager.wait_until_finished()
            made.notes[f'logical {step}'] = sum(v.nbytes for v in expect.flatten(tree).leaves.values()
                                                if isinstance(v, np.ndarray))
    return made
