# SPDX-License-Identifier: Apache-2.0
"""The writers of a step to a bucket: each writes step 3 of a local directory of steps below a URL."""

import subprocess
import sys

import pytest

from lib import jobs, package


def copy_into_a_draft(mount, program, files, root):
    with_draft = mount(root, 'shape=root', 'chunk_byte_size=16M')
    subprocess.run(['cp', '-r', mount(files).path / '3', with_draft.path / '3.tmp'], check=True)
    (with_draft.path / '3.tmp').rename(with_draft.path / '3')
    assert not with_draft.unmount()


def save_by_the_library(mount, program, files, root):
    code = 'import sys, pytreefs; pytreefs.save(sys.argv[2], pytreefs.load(sys.argv[1]))'
    subprocess.run([sys.executable, '-c', code, files / '3', f'{root}/3'], check=True, env=package.environment(program))


def convert(mount, program, files, root):
    subprocess.run([program, 'convert', files / '3', f'{root}/3'], check=True)


def convert_by_ranks(mount, program, files, root):
    if why := jobs.missing(program):
        pytest.skip(why)
    subprocess.run(['mpirun', '-n', '2', program, 'convert', files / '3', f'{root}/3'], check=True, env=jobs.environment())
