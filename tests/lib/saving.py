# SPDX-License-Identifier: Apache-2.0
"""Small steps that a test saves through a mount with options, and what is in force there."""

import json
import os

import numpy as np

ARRAY = np.arange(64 * 48, dtype=np.float32).reshape(64, 48) / 7


def save(m, step=1, files=None, xattrs=(), item='default'):
    """A step with these leaves, through the mount."""
    d = m / f'{step}.tmp' / item
    d.mkdir(parents=True)
    for name, value in (files or {'w.npy': ARRAY}).items():
        path = d / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(value, np.ndarray):
            np.save(path, value)
        else:
            path.write_bytes(value)
    for name, attr, value in xattrs:
        os.setxattr(d / name, attr, value.encode())
    os.rename(m / f'{step}.tmp', m / str(step))


def saved(mount, root, *options, step=1, **how):
    """The stored item of a step that was saved with these options."""
    m = mount(root, *options)
    save(m, step, **how)
    m.unmount()
    return root / str(step) / how.get('item', 'default')


def config(m):
    return json.loads((m / '.pytreefs/config').read_text())['options']
