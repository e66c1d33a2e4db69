# SPDX-License-Identifier: Apache-2.0
"""Orbax (JAX) checkpoints as numpy arrays, or torch tensors, without a mount and without JAX.

    steps(SOURCE)       the committed steps of a directory of checkpoints
    open(PATH)          a lazy mapping, nested as the tree is
    load(PATH)          the whole tree, or a part of it, in memory
    load_flat(PATH)     the same as one dict, for load_state_dict
    save(PATH, TREE)    a new checkpoint, atomic and durable
    mount(SOURCE)       the same as files, while a block runs
    verify, diff, stats what the commands of these names print with --json

PATH is what the program `pytreefs` takes: a directory of steps, a step, an item of it, or a path into one
("ckpts/latest/state/params"). Names, views and options are those of the program, which `python -m pytreefs` is.

A failure is an `Error`: an OSError with the file or leaf that it is about as `filename`. `NotFoundError`, `ExistsError` and
`AccessError` are FileNotFoundError, FileExistsError and PermissionError, too. A name that is not in a checkpoint is a KeyError.
"""

# First, since it refuses sub-interpreters, which numpy loads in with a warning, and may not come out of.
from ._pytreefs import AccessError, Error, ExistsError, NotFoundError, version
from ._checkpoint import Checkpoint, open, steps
from ._leaf import Leaf
from ._load import load, load_flat
from ._mount import mount
from ._program import diff, stats, verify
from ._save import save

__version__ = version()

__all__ = ['AccessError', 'Checkpoint', 'Error', 'ExistsError', 'Leaf', 'NotFoundError', 'diff', 'load', 'load_flat', 'mount', 'open', 'save', 'stats', 'steps', 'verify']
