# SPDX-License-Identifier: Apache-2.0
"""Holes are holes: chunks that are not stored cost nothing and SEEK_HOLE reports them."""

import os
import subprocess

import pytest

from lib import compare

HEADER = 128            # of a small .npy


def extents(path):
    """[(start, end)] of the data as lseek tells it."""
    out = []
    with open(path, 'rb') as f:
        size = os.fstat(f.fileno()).st_size
        at = 0
        while at < size:
            try:
                start = os.lseek(f.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(f.fileno(), start, os.SEEK_HOLE)
            assert start < end <= size
            out.append((start, end))
            at = end
    return out


@pytest.mark.parametrize('name', ['raw', 'zstd', 'v3', 'empty', 'filled'])
def test_seek_hole_and_data(mount, cases, name):
    """Missing chunks of value zero are holes; of any other value, or stored, they are data."""
    case = cases('sparse')
    m = mount(case.path)
    path = m / f'{name}.npy'
    size = os.stat(path).st_size
    head = size - (4 << 20)
    assert head == HEADER
    holes = [(a + head, b + head) for a, b in case.notes['holes'][name]]
    want, at = [], 0
    for a, b in holes:
        if at < a:
            want.append((at, a))
        at = b
    if at < size:
        want.append((at, size))
    assert extents(path) == want


def test_seek_beyond_the_end(mount, cases):
    m = mount(cases('sparse').path)
    with open(m / 'raw.npy', 'rb') as f:
        size = os.fstat(f.fileno()).st_size
        for whence in (os.SEEK_DATA, os.SEEK_HOLE):
            with pytest.raises(OSError):
                os.lseek(f.fileno(), size, whence)
        assert os.lseek(f.fileno(), size - 1, os.SEEK_HOLE) == size


def test_a_file_without_holes(mount, cases):
    case = cases('chunked-perleaf-zarr2-v0')
    m = mount(case.path)
    for path, _, _ in compare.leaf_paths(m.path, case.tree()):
        assert extents(path) == [(0, os.stat(path).st_size)]


@pytest.mark.parametrize('name', ['raw', 'zstd', 'v3', 'empty', 'filled'])
def test_a_sparse_archive_has_every_byte(mount, cases, name):
    """GNU tar does not read a file that has no blocks, so a leaf of which nothing is stored has one: its header is not zeros."""
    m = mount(cases('sparse').path)
    archive = subprocess.run(['tar', '-S', '-C', m.path, '-cf', '-', f'{name}.npy'], check=True, stdout=subprocess.PIPE).stdout
    got = subprocess.run(['tar', '-xOf', '-'], input=archive, check=True, stdout=subprocess.PIPE).stdout
    assert got == compare.read_all(m / f'{name}.npy')


def test_sparse_copies_stay_sparse(mount, cases, tmp_path):
    m = mount(cases('sparse').path)
    subprocess.run(['cp', '--sparse=auto', m / 'zstd.npy', tmp_path / 'copy'], check=True)
    assert os.stat(tmp_path / 'copy').st_blocks * 512 < 3 << 20
    assert compare.read_all(tmp_path / 'copy') == compare.read_all(m / 'zstd.npy')
    subprocess.run(['tar', '-C', m.path, '-cSf', tmp_path / 'a.tar', 'empty.npy'], check=True)
    assert os.stat(tmp_path / 'a.tar').st_size < 100000


def test_holes_cost_no_io(mount, cases):
    """Reading an array without chunks reads nothing from the source."""
    m = mount(cases('sparse').path)
    os.stat(m / 'empty.npy')
    before = m.stats()
    assert compare.read_all(m / 'empty.npy').count(0) >= 4 << 20
    after = m.stats()
    assert read_bytes(after) - read_bytes(before) < 65536


def read_bytes(doc):
    """The counter of bytes read from the source, wherever in the document it is."""
    found = [v for k, v in flat(doc) if 'read' in k and 'bytes' in k]
    assert found, doc
    return max(found)


def flat(doc, at=''):
    for k, v in doc.items():
        if isinstance(v, dict):
            yield from flat(v, f'{at}{k}.')
        elif isinstance(v, int):
            yield at + k, v
