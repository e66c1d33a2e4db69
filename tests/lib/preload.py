# SPDX-License-Identifier: Apache-2.0
"""Libraries for LD_PRELOAD that are made of the C files of this directory."""

import pathlib
import shutil
import subprocess
import sys


def make(tmp_path_factory, name):
    """The path of a library made of tests/lib/NAME.c."""
    to = tmp_path_factory.mktemp(name) / f'{name}.so'
    source = pathlib.Path(__file__).with_name(f'{name}.c')
    subprocess.run([shutil.which('cc') or 'gcc', '-shared', '-fPIC', '-o', to, source, '-ldl'], check=True)
    return to


class Clock:
    """The clock of programs with the library `clock`: advance() lets time pass for them."""

    def __init__(self, library, file):
        self.file, self.seconds = file, 0
        self.environment = {'LD_PRELOAD': str(library), 'TEST_CLOCK': str(file)}
        file.write_bytes(bytes(8))

    def advance(self, seconds):
        self.seconds += seconds
        with open(self.file, 'r+b') as f:
            f.write((self.seconds * 10**9).to_bytes(8, sys.byteorder))
