# SPDX-License-Identifier: Apache-2.0
"""The golden checkpoints of older releases, tests/data/old, as Cases."""

import json
import pathlib

from lib import expect
from lib.case import Case

OLD = pathlib.Path(__file__).resolve().parent.parent / 'data' / 'old'


def releases():
    """Oldest first."""
    return sorted((p.name for p in OLD.iterdir() if (p / 'cases.json').exists()),
                  key=lambda v: [int(x) for x in v.split('.')])


def names():
    """(release, case) pairs."""
    return [(r, name) for r in releases() for name in sorted(json.loads((OLD / r / 'cases.json').read_text()))]


def _as_recorded(item, tree):
    """Without `_METADATA`, an aggregate file still tells the structure, but no types."""
    if item.is_file() or (item / '_METADATA').exists():
        return tree
    return tree.untyped()


def get(release, name):
    directory = OLD / release
    entry = json.loads((directory / 'cases.json').read_text())[name]
    tree = expect.load(directory / 'expected.json')[entry['tree']]
    made = Case(source=name, directory=directory)
    if entry['source'] == 'item':
        made.trees[''] = _as_recorded(directory / name, tree)
        return made
    made.steps = sorted(p.name for p in (directory / name).iterdir())
    for step in made.steps:
        item = directory / name / step / entry['item']
        made.trees['/'.join(filter(None, (step, entry['item'])))] = _as_recorded(item, tree)
        config = directory / name / step / 'config' / 'metadata'
        if config.exists():
            made.files[f'{step}/config/metadata'] = config.read_bytes()
    return made
