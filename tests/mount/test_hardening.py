# SPDX-License-Identifier: Apache-2.0
"""Measures of compiler and linker against mistakes in parsers, checked in the binaries that were built."""

import pathlib
import platform
import re
import subprocess

import pytest

from lib import mounts

BUILT = ['pytreefs', 'pytreefs-url', 'pytreefs-mpi', 'mean.so']


def readelf(what, file):
    return subprocess.run(['readelf', what, '--wide', file], capture_output=True, text=True, check=True).stdout


@pytest.fixture(params=BUILT)
def binary(request, build):
    file = build / request.param
    if not file.exists():
        pytest.skip(f'{request.param} was not built')
    return file


def test_the_linker_leaves_nothing_to_be_written(binary):
    """Its address is chosen at random, its relocations are read-only, no stack is executable, no segment both ways."""
    assert re.search(r'Type:\s+DYN ', readelf('--file-header', binary))
    dynamic, segments = readelf('--dynamic', binary), readelf('--program-headers', binary)
    assert 'BIND_NOW' in dynamic and 'TEXTREL' not in dynamic
    assert re.search(r'FLAGS_1\).*\bNOW\b', dynamic)
    assert ('PIE' in dynamic) == (binary.suffix != '.so')
    assert re.search(r'GNU_RELRO', segments)
    assert re.search(r'GNU_STACK.* RW +0x', segments)
    assert not re.search(r'LOAD.* RWE', segments)


def test_the_compiler_checks_stacks_and_copies(binary):
    if mounts.is_sanitized(binary):
        pytest.skip('a build with sanitizers, which check more')
    symbols = readelf('--dyn-syms', binary)
    assert '__stack_chk_fail' in symbols
    # A plugin this small copies nothing.
    if binary.suffix != '.so':
        for checked in ('memcpy', 'memset', 'snprintf', 'strcpy'):
            assert f'__{checked}_chk' in symbols, f'{checked} is not checked'


@pytest.mark.skipif(platform.machine() != 'x86_64', reason='other processors have other means')
def test_jumps_go_where_functions_begin(build):
    """Each object is marked so; the program is only when all objects of the C library are, too."""
    objects = [*pathlib.Path(build).glob('core/*/*.a.p/*.o'), *pathlib.Path(build).glob('fs/*.a.p/*.o')]
    assert objects
    for at in objects[::20]:
        assert re.search(r'IBT.*SHSTK', readelf('--notes', at)), at
