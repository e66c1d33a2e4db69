# SPDX-License-Identifier: Apache-2.0
"""The Python package of the build, as it is there, without a wheel."""

import os
import pathlib
import sys

import pytest

from lib import mounts


def environment(program, *paths):
    """Of processes that use it. program: whose build it is. paths: to look for modules in before it."""
    package = pathlib.Path(program).resolve().parent / 'tools/python'
    return {**os.environ, 'PYTHONPATH': os.pathsep.join(map(str, [*paths, package])), 'PYTREEFS_PROGRAM': str(program)}


class _Absent:
    def __getattr__(self, name):
        # pytest looks for marks of its own in what a module has.
        if name.startswith(('_', 'pytest')):
            raise AttributeError(name)
        pytest.skip('a module with the address sanitizer cannot be loaded into this process')


def imported():
    """The module in this process. In a build with a sanitizer, which has to be the first library of a process, a test that uses it is skipped."""
    build = pathlib.Path(os.environ['PYTREEFS_BUILD'])
    if mounts.is_sanitized(build / 'pytreefs') and 'LD_PRELOAD' not in os.environ:
        return _Absent()
    sys.path.insert(0, str(build / 'tools/python'))
    import pytreefs
    return pytreefs
