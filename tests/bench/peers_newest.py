# SPDX-License-Identifier: Apache-2.0
"""Contenders of rows_newest.py: libraries of newest.txt, in an environment of their own."""

import pathlib

from bench.peers import prepared
from bench.peers_python import _index30, _touch


def _safetensors():
    import safetensors
    import safetensors.torch
    assert safetensors.__version__.startswith('0.9.'), safetensors.__version__


@prepared(_safetensors)
def load_file(path, backend):
    from safetensors.torch import load_file
    _touch(load_file(path, backend=backend).values())


@prepared(_safetensors)
def slices(path, name, backend):
    """get_slice of each box, all kept, as one call of ours has them."""
    from safetensors import safe_open
    with safe_open(path, framework='pt', backend=backend) as f:
        part = f.get_slice(name)
        _touch([part[index].contiguous() for index in _index30(part.get_shape())])


@prepared(lambda: __import__('runai_model_streamer'))
def streamer(path):
    """Each tensor is copied: its memory is the streamer's buffer, which is used again."""
    from runai_model_streamer import SafetensorsStreamer
    kept = {}
    with SafetensorsStreamer() as s:
        s.stream_file(path)
        for name, tensor in s.get_tensors():
            kept[name] = tensor.clone()
    _touch(kept.values())


def _zarrs():
    import zarr
    import zarrs  # noqa: F401
    zarr.config.set({'codec_pipeline.path': 'zarrs.ZarrsCodecPipeline'})


@prepared(_zarrs)
def zarrs_tree(source):
    import zarr
    kept = [zarr.open_array(path.parent, mode='r')[...] for path in sorted(pathlib.Path(source).rglob('zarr.json'))]
    return None if kept else 1 / 0


@prepared(_zarrs)
def zarrs_boxes(source, leaf):
    import zarr
    a = zarr.open_array(pathlib.Path(source, leaf), mode='r')
    kept = [a[index] for index in _index30(a.shape)]
    return None if kept else 1 / 0
