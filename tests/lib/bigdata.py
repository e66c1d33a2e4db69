# SPDX-License-Identifier: Apache-2.0
"""A gigabyte that needs no gigabyte to be compared with: any MiB of it can be made again."""

import hashlib

import numpy as np

BLOCK = 1 << 20


def block(i):
    """The i-th MiB: bytes that zstd shrinks to about a half, as weights of low precision would be."""
    return np.random.default_rng([77, i]).integers(0, 16, BLOCK, np.uint8).tobytes()


def array(mib):
    """All of it, as float32."""
    out = np.empty(mib * BLOCK, np.uint8)
    for i in range(mib):
        out[i * BLOCK:(i + 1) * BLOCK] = np.frombuffer(block(i), np.uint8)
    return out.view(np.float32)


def at(offset, n):
    """The bytes of a range."""
    first, last = offset // BLOCK, (offset + n - 1) // BLOCK
    data = b''.join(block(i) for i in range(first, last + 1))
    return data[offset - first * BLOCK:offset - first * BLOCK + n]


def digest(mib):
    h = hashlib.sha256()
    for i in range(mib):
        h.update(block(i))
    return h.hexdigest()
