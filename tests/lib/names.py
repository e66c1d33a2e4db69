# SPDX-License-Identifier: Apache-2.0
"""Key paths -> names in the mount, by the rules of the design, written apart from the program."""

import hashlib
import os
import re

import numpy as np

from lib import expect

EXTENSIONS = ('.npy', '.bin', '.json', '.txt', '.null', '.safetensors', '.html')
# The name of ours that stands at the top of every tree, of a draft's too. A tree that is a whole step has
# `_CHECKPOINT_METADATA` there, too, and one that is mounted by itself `.pytreefs`. `latest` never stands beside keys.
OURS = ('_METADATA',)
ESCAPED = b'/\0%[]@'
NAME_MAX = 255
KEEP = 200
HASHED = re.compile(rb'~[0-9a-f]{16}\Z')


def _escape_byte(b):
    return b'%%%02X' % b


def escape(key, container, reserved=()):
    """One key, without extension; reserved: names of ours in the same place."""
    raw = key.encode('utf-8', 'surrogateescape')
    if not raw:
        return b'%'
    if raw in (b'.', b'..'):
        return raw.replace(b'.', b'%2E')
    out = b''.join(_escape_byte(b) if b in ESCAPED else bytes([b]) for b in raw)
    if HASHED.search(raw):  # spelled like the short form of another key: the mapping stays one-to-one
        return out[:-17] + b'%7E' + out[-16:]
    if container:
        for ext in EXTENSIONS:
            if raw.endswith(ext.encode()):
                out = out[:-len(ext)] + b'%2E' + ext[1:].encode()
        if key in reserved:
            out = _escape_byte(raw[0]) + out[1:]
    return out


def _cut(name):
    """At most KEEP bytes, never inside a UTF-8 character or an escape."""
    n = KEEP
    while n and name[n:n + 1] and 0x80 <= name[n] < 0xC0:
        n -= 1
    for back in (1, 2):
        if name[n - back:n - back + 1] == b'%' and _is_escape(name[n - back:n - back + 3]):
            n -= back
            break
    return name[:n]


def _is_escape(three):
    return len(three) == 3 and all(c in b'0123456789ABCDEF' for c in three[1:])


def file_name(key, ext='', reserved=()):
    """The name of a leaf (ext given) or a container (ext empty), as text for os functions."""
    stem = escape(key, container=not ext, reserved=reserved)
    if len(stem) + len(ext) > NAME_MAX:
        digest = hashlib.sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()[:16]
        stem = _cut(stem) + b'~' + digest.encode()
    return (stem + ext.encode()).decode('utf-8', 'surrogateescape')


def extension(value):
    if isinstance(value, (np.ndarray, expect.Key)):
        return '.npy'
    if isinstance(value, expect.Scalar):
        return '.json'
    if isinstance(value, str):
        return '.txt'
    if value is None or value is expect.PLACEHOLDER:
        return '.null'
    return ''


def ours_at(item):
    """The names of ours that stand at the top of an item in a mount."""
    stands = {'_METADATA': True, '_CHECKPOINT_METADATA': os.path.isfile(os.path.join(item, '_CHECKPOINT_METADATA')),
              '.pytreefs': os.path.ismount(item)}
    return tuple(name for name, there in stands.items() if there)


def path_of(path, value, ours=OURS):
    """The path below the item of one leaf; an empty container is a directory."""
    if not path:
        return '%' + extension(value) if extension(value) else ''
    parts = []
    for depth, key in enumerate(path):
        last = depth == len(path) - 1
        reserved = ours if depth == 0 else ()
        parts.append(file_name(key, extension(value) if last else '', reserved))
    return '/'.join(parts)


def container_path(path, ours=OURS):
    """The path below the item of a container."""
    return '/'.join(file_name(k, '', ours if n == 0 else ()) for n, k in enumerate(path))
