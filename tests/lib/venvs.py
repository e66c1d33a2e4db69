# SPDX-License-Identifier: Apache-2.0
"""Environments of Python with other libraries than .venv has, made over the network when they are not there."""

import shutil
import subprocess


def environment(venvs, wanted, python, below=None):
    """The Python of an environment with everything in a file of requirements, which lists all that it needs. python: a function that finds the
    one that makes it. below: a directory of packages that it has, too, where it has none of the name itself."""
    venv = venvs / wanted.stem
    made, stamp = venv / 'bin/python', venv / wanted.name
    if not stamp.exists() or stamp.read_text() != wanted.read_text():
        shutil.rmtree(venv, ignore_errors=True)
        subprocess.run([python(), '-m', 'venv', venv], check=True)
        subprocess.run([made, '-m', 'pip', 'install', '-q', '--no-deps', '-r', wanted], check=True)
        shutil.copy(wanted, stamp)
    if below:       # of this copy of the project: others have the same cache
        packages, = venv.glob('lib/python*/site-packages')
        (packages / 'below.pth').write_text(f'{below}\n')
    return made
