# SPDX-License-Identifier: Apache-2.0
"""Libraries for LD_PRELOAD that are made of the C files of this directory."""

import pathlib
import shutil
import subprocess


def make(tmp_path_factory, name):
    """The path of a library made of tests/lib/NAME.c."""
    to = tmp_path_factory.mktemp(name) / f'{name}.so'
    source = pathlib.Path(__file__).with_name(f'{name}.c')
    subprocess.run([shutil.which('cc') or 'gcc', '-shared', '-fPIC', '-o', to, source, '-ldl'], check=True)
    return to
