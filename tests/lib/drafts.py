# SPDX-License-Identifier: Apache-2.0
"""A draft of a mount, for tests of what is refused and of what stays when a commit fails."""

import errno

import numpy as np
import pytest

from lib.writing import npy

F4, F8 = np.float32, np.float64
W = npy(np.arange(12, dtype=np.float32).reshape(3, 4))


def refused(why, do):
    """The call fails with this errno."""
    with pytest.raises(OSError) as e:
        do()
    assert e.value.errno == why, f'{errno.errorcode[e.value.errno]}, want {errno.errorcode[why]}'


def begin_empty(m, name='7', item='default'):
    """A draft; returns the directory of its item."""
    where = m / f'{name}.tmp' / item
    where.mkdir(parents=True)
    return where


def begin(m, name='7', item='default'):
    """The same with one good leaf."""
    where = begin_empty(m, name, item)
    (where / 'good.npy').write_bytes(W)
    return where


def contents(where):
    """{path: bytes} of what was written; the files of metadata follow from the rest."""
    return {str(p.relative_to(where)): p.read_bytes() for p in sorted(where.rglob('*')) if p.is_file()
            and p.name not in ('_METADATA', '_CHECKPOINT_METADATA')}


def said(m):
    """The last failure that the log tells of."""
    return [line for line in m.log_lines() if 'cannot' in line or 'failed' in line][-1]


def part(name, array):
    """A file that holds a part of an array, which its name says."""
    return {name: npy(array)}
