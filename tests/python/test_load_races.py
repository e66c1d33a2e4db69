# SPDX-License-Identifier: Apache-2.0
"""load() of a step or an item that is removed, or comes back, while load() looks it up: the tree or an Error, nothing else."""

import errno
import shutil

import numpy as np
import pytest

import pytreefs
from pytreefs import _context, _load


@pytest.fixture
def step(tmp_path):
    pytreefs.save(tmp_path / '1', {'w': np.ones(3), 's': 1})
    return tmp_path / '1'


@pytest.mark.parametrize('name', ['1', 'latest', '1/default'])
def test_what_comes_back_is_not_its_page(step, monkeypatch, name):
    """A leaf may be named without its extension; the page of a step or an item has one as well."""
    class Late(_context.Context):
        def __init__(self, path, options):
            if str(path).endswith(name):
                raise pytreefs.NotFoundError(errno.ENOENT, 'is not there yet', str(path))
            super().__init__(path, options)

    monkeypatch.setattr(_load, 'Context', Late)
    with pytest.raises(pytreefs.NotFoundError, match='is not there yet'):
        pytreefs.load(step.parent / name)
    monkeypatch.undo()
    assert pytreefs.load(step.parent / name)['s'] == pytreefs.load(step / 'default' / 's') == 1


def test_a_step_without_items(step):
    """So it is for a moment when Orbax removes it."""
    shutil.rmtree(step / 'default')
    with pytest.raises(pytreefs.NotFoundError, match='is a step without items') as e:
        pytreefs.load(step)
    assert e.value.filename == str(step)


def test_an_item_that_comes_back(step, monkeypatch):
    """The item `default` that is listed is the tree; that it was not listed does not make it one of several items."""
    pytreefs.save(step.parent / '2', {'default': {'w': np.ones(3)}, 'other': {'x': 1}}, items=True)
    listing = _context.Context.listing
    monkeypatch.setattr(_context.Context, 'listing', lambda self, name: [of for of in listing(self, name) if of[0] != 'default'])
    with pytest.raises(pytreefs.Error, match='was replaced or removed') as e:
        pytreefs.load(step.parent / '2')
    assert e.value.errno == errno.ESTALE


def test_an_item_that_goes_after_it_was_read(step, monkeypatch):
    warn = _context.Context.warn_of_names

    def late(self, name):
        (step / 'default').rename(step / 'x.orbax-checkpoint-tmp')
        warn(self, name)
    monkeypatch.setattr(_context.Context, 'warn_of_names', late)
    with pytest.raises(pytreefs.Error) as e:
        pytreefs.load(step)
    assert e.value.errno == errno.ESTALE
