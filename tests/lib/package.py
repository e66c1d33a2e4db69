# SPDX-License-Identifier: Apache-2.0
"""The environment of processes that use the Python package of the build, as it is there, without a wheel."""

import os
import pathlib


def environment(program, *paths):
    """program: whose build it is. paths: to look for modules in before it."""
    package = pathlib.Path(program).resolve().parent / 'tools/python'
    return {**os.environ, 'PYTHONPATH': os.pathsep.join(map(str, [*paths, package])), 'PYTREEFS_PROGRAM': str(program)}
