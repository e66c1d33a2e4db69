# SPDX-License-Identifier: Apache-2.0
"""Everything that a program finds in a source, without a mount, to compare two sources."""

from pytreefs import _pytreefs as native
from pytreefs._context import Context, join

STORED = '.pytreefs/stored'
# Those that a tree does not have.
ATTRIBUTES = 'codecs', 'write_shape', 'sharding', 'custom_metadata', 'leaf_count', 'logical_bytes'
# Entries of a directory of stored files that are looked into: the rest are arrays and chunks, which are compared as leaves.
MOST_STORED = 10


class Sight:
    """found: {(name, fact): value}; the value of a failure is its errno, its message and its file name."""

    def __init__(self, source, **options):
        self.source, self.found = str(source).rstrip('/'), {}
        try:
            self.context = Context(self.source, options)
        except native.Error as e:
            self.context, self.found['', 'open'] = None, self._failure(e)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.context:
            self.context.handle.close()

    def _failure(self, e):
        """As it is of any other source."""
        return e.errno, *((text or '').replace(self.source, 'SOURCE') for text in (e.strerror, e.filename))

    def _note(self, name, fact, ask):
        """ask(handle, name) gives the value."""
        if not self.context:
            return None
        try:
            value = ask(self.context.handle, name)
        except KeyError:
            value = 'does not exist'
        except native.Error as e:
            value = self._failure(e)
        self.found[name, fact] = value
        return value

    def _attributes(self, name, attributes):
        for attribute in attributes:
            self._note(name, attribute, lambda handle, n: handle.attribute(n, attribute))   # noqa: B023

    def _file(self, name):
        self._note(name, 'size', lambda handle, n: handle.stat(n)[0])
        self._note(name, 'bytes', lambda _, n: self.context.bytes_of(n))

    def directory(self, name='', attributes=ATTRIBUTES, most=None):
        """Everything below it; of each directory all names, and `most` entries."""
        entries = self._note(name, 'names', lambda handle, n: sorted(e[:2] for e in handle.list(n)))
        self._attributes(name, attributes)
        for entry, is_directory in entries[:most] if isinstance(entries, list) else ():
            if is_directory:
                self.directory(join(name, entry), attributes, most)
            else:
                self._file(join(name, entry))
                self._attributes(join(name, entry), attributes)

    def stored(self):
        self.directory(STORED, (), MOST_STORED)

    def tree(self, flags=native.TREE_VALUES | native.TREE_STORED):
        """Types, shapes, values and stored sizes, as load() gets them."""
        # As text: NaN is not equal to itself.
        self._note('', 'tree', lambda _, n: [tuple(map(repr, node._replace(version=0))) for node in self.context.tree(n, flags)])


def differences(want, got):
    """Between what was found in two sources, as text."""
    for name, fact in sorted({*want, *got}):
        a, b = (found.get((name, fact), 'was not found') for found in (want, got))
        if a != b:
            yield f'{fact} of {name!r}: {b!r:.400}\n    in place of {a!r:.400}'
