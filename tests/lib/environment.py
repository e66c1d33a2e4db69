# SPDX-License-Identifier: Apache-2.0
"""The virtual environment that tests/run makes, for commands that are started with any Python."""

import os
import pathlib
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent.parent


def use_it():
    """Continue this command with .venv/bin/python, unless that runs it already."""
    directory = TOP / '.venv'
    if pathlib.Path(sys.prefix).resolve() == directory.resolve():
        return
    python = directory / 'bin/python'
    if not python.exists():
        sys.exit(f'{sys.argv[0]}: no .venv in {TOP}: `tests/run interop -k nothing` makes it')
    os.execv(python, [str(python), *sys.argv])
