# SPDX-License-Identifier: Apache-2.0
"""A case: one checkpoint on disk, and what a mount of it must show.

Cases are written by the functions of the gen_*.py modules, registered with @case, each into a
directory of its own. They run in a process of their own (lib/generate.py) that pretends to have
eight devices, and their results are kept in tests/.cache under a hash of what made them.
"""

import base64
import dataclasses
import json
import os
import pathlib

from lib import expect

GENERATORS = {}         # name -> (module, function, heavy)


def case(name=None, heavy=False):
    """Register a generator: a function of a directory that returns a Case. heavy: made on demand."""
    def register(function):
        key = name or function.__name__.replace('_', '-')
        if key in GENERATORS:
            raise ValueError(f'two cases are called {key}')
        GENERATORS[key] = (function.__module__, function, heavy)
        return function
    return register


@dataclasses.dataclass
class Case:
    source: str = 'ckpt'                        # what is mounted, below the case's directory
    trees: dict = dataclasses.field(default_factory=dict)       # path in the mount -> expect.Tree
    files: dict = dataclasses.field(default_factory=dict)       # path in the mount -> bytes, exactly
    hidden: list = dataclasses.field(default_factory=list)      # paths that must not exist there
    steps: list = None                          # for a root: the names listed, in any order
    xattrs: dict = dataclasses.field(default_factory=dict)      # path -> {name: JSON value}
    notes: dict = dataclasses.field(default_factory=dict)       # anything else that a test wants
    directory: pathlib.Path = None              # where it was found; not stored

    @property
    def path(self):
        return self.directory / self.source

    def tree(self):
        """The tree of a case that has one."""
        (tree,) = self.trees.values()
        return tree

    def save(self, directory):
        doc = dataclasses.asdict(dataclasses.replace(self, trees={}, files={}, directory=None))
        doc.pop('directory')
        doc['trees'] = {k: expect.to_json(t) for k, t in self.trees.items()}
        doc['files'] = {k: base64.b64encode(v).decode() for k, v in self.files.items()}
        with open(os.path.join(directory, 'case.json'), 'w') as f:
            json.dump(doc, f)

    @classmethod
    def load(cls, directory):
        with open(os.path.join(directory, 'case.json')) as f:
            doc = json.load(f)
        doc['trees'] = {k: expect.from_json(t) for k, t in doc['trees'].items()}
        doc['files'] = {k: base64.b64decode(v) for k, v in doc['files'].items()}
        return cls(directory=pathlib.Path(directory), **doc)


def stored_files(directory, below=''):
    """Every regular file below a directory as {relative path: bytes}: what `as stored` means."""
    root = pathlib.Path(directory)
    return {os.path.join(below, p.relative_to(root).as_posix()): p.read_bytes()
            for p in sorted(root.rglob('*')) if p.is_file()}
