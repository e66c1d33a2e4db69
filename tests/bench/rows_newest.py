# SPDX-License-Identifier: Apache-2.0
"""The Python package against the newest loaders, on the same bytes, in the page cache and on the disk. `prefetch` of safetensors 0.9 loads to CUDA
devices alone; its `pread` backend is what it has for the CPU."""

from bench.bench import bench
from bench.rows_python import exported

SAFETENSORS, STREAMER, ZARRS = 'safetensors 0.9, pread', 'runai-model-streamer', 'zarrs'
SLICES = 'safetensors 0.9, get_slice'      # mapped: with `pread` it reads the whole tensor for each slice


def loaders(b, before, where):
    """before: of each timed run, a function of the path that it reads."""
    tree = b.case('bench-leaves-zstd')
    file = exported(b, tree)
    b.contender('pytreefs.load', b.python('peers_python:torch_load', file), before=lambda: before(file))
    b.contender('pytreefs.load, zstd', b.python('peers_python:torch_load', tree), before=lambda: before(tree))
    b.contender(SAFETENSORS, b.newest('peers_newest:load_file', file, 'pread'), before=lambda: before(file))
    b.contender(STREAMER, b.newest('peers_newest:streamer', file), before=lambda: before(file))
    for peer in (SAFETENSORS, STREAMER):
        b.row(f'a safetensors file of 1 GiB as tensors, {where}', 'pytreefs.load', peer, rate=1.0)
        b.row(f'the same weights in zstd, {where}', 'pytreefs.load, zstd', peer)


@bench
def python_newest(b):
    """The same safetensors file, in the page cache, as tensors; and the same weights in zstd frames. A byte of each page is read."""
    loaders(b, b.warm, 'warm')


@bench
def python_newest_cold(b):
    """The same from the disk."""
    loaders(b, b.evict, 'from the disk')


def zarr_trees(b, before, where):
    tree = b.converted('bench-leaves-zstd', 'zarr=3,ocdbt=off,compression=zstd')
    b.contender('pytreefs.load', b.python('peers_python:load', tree), before=lambda: before(tree))
    b.contender(ZARRS, b.newest('peers_newest:zarrs_tree', tree), before=lambda: before(tree))
    b.row(f'a tree of zarr v3 without OCDBT, {where}', 'pytreefs.load', ZARRS, rate=1.0)


@bench
def python_newest_zarr(b):
    """1 GiB in 64 arrays of one zstd frame, in directories, by zarr-python with the codec pipeline of zarrs."""
    zarr_trees(b, b.warm, 'warm')


@bench
def python_newest_zarr_cold(b):
    """The same from the disk."""
    zarr_trees(b, b.evict, 'from the disk')


def boxes(b, before, where):
    source = b.converted('bench-many-zstd', 'zarr=3,ocdbt=off,compression=zstd')
    raw = exported(b, b.case('bench-many-zstd'))
    b.contender('load(only=)', b.python('peers_python:boxes_at_once', source), before=lambda: before(source))
    b.contender('load(only=), safetensors', b.python('peers_python:boxes_at_once', raw), before=lambda: before(raw))
    b.contender(ZARRS, b.newest('peers_newest:zarrs_boxes', source, 'w'), before=lambda: before(source))
    b.contender(SLICES, b.newest('peers_newest:slices', raw, 'w', 'mmap'), before=lambda: before(raw))
    b.row(f'30 random boxes of a zarr v3 array in one call, {where}', 'load(only=)', ZARRS, rate=1.0)
    b.row(f'30 random boxes of a safetensors file in one call, {where}', 'load(only=), safetensors', SLICES, rate=1.0)


@bench
def python_newest_boxes(b):
    """30 boxes at random in one call, against a loop of zarr-python with zarrs (one chunk in 4 MiB, zstd), and of get_slice (not compressed)."""
    boxes(b, b.warm, 'warm')


@bench
def python_newest_boxes_cold(b):
    """The same from the disk."""
    boxes(b, b.evict, 'from the disk')
