# SPDX-License-Identifier: Apache-2.0
"""Orbax and TensorStore read what has checksums of ours as what has none."""

import os

import numpy as np
import pytest
import tensorstore as ts

from lib import expect, restoring

LAYOUTS = [('compression=none',), ('ocdbt=off',), ('ocdbt=off', 'compression=none'), ('ocdbt=off', 'compression=none', 'zarr=3')]


@pytest.mark.parametrize('options', LAYOUTS, ids=','.join)
def test_orbax_and_tensorstore_do_not_see_them(run, tmp_path, options):
    tree = expect.flatten({'w': np.arange(5000, dtype=np.float32).reshape(100, 50), 'in': {'b': np.arange(7, dtype=np.int64)}})
    (tmp_path / 'files/in').mkdir(parents=True)
    np.save(tmp_path / 'files/w.npy', tree.leaves['w',])
    np.save(tmp_path / 'files/in/b.npy', tree.leaves['in', 'b'])
    run('save', '-o', ','.join(options), tmp_path / 'files', tmp_path / 'root/1')
    item = tmp_path / 'root/1/default'
    assert ('.crc32c' in os.listdir(item)) == ('ocdbt=off' in options)
    assert not restoring.by_orbax(tmp_path / 'root', 1, tree)
    assert not list(restoring.by_tensorstore(item, tree, 'ocdbt=off' not in options, 'zarr=3' in options))


def frames(item, zarr3):
    """The files of an item in directory layout that are chunks."""
    names = [p for p in sorted(item.rglob('*')) if p.is_file() and p.name[0].isdigit() and '.crc32c' not in p.parts]
    assert names and all('c' in p.parts for p in names) == zarr3
    return names


WRITERS = {'save': lambda run, files, out, options: run('save', '-o', options, files, out / '1'),
           'convert': lambda run, files, out, options: run('convert', '-o', options, files, out / '1/default')}


@pytest.mark.parametrize('writer', WRITERS)
@pytest.mark.parametrize('zarr', [2, 3])
@pytest.mark.parametrize('level', [1, 9])
def test_every_frame_of_zstd_has_the_checksum_that_tensorstore_checks(run, tmp_path, writer, zarr, level):
    """Chunks that are encoded whole, and one that is encoded as a stream: without it TensorStore takes most damage for numbers."""
    rng = np.random.default_rng(4)
    tree = {'small': np.arange(300, dtype=np.int16), 'noise': rng.standard_normal((64, 64)),
            'stream': rng.integers(0, 9, 3 << 20).astype(np.float32)}
    (tmp_path / 'files').mkdir()
    for name, array in tree.items():
        np.save(tmp_path / 'files' / f'{name}.npy', array)
    (tmp_path / 'root/1').mkdir(parents=True) if writer == 'convert' else (tmp_path / 'root').mkdir()
    WRITERS[writer](run, tmp_path / 'files', tmp_path / 'root', f'ocdbt=off,zarr={zarr},compression=zstd:{level},chunk_byte_size=64M')
    item = tmp_path / 'root/1/default'
    driver = {2: 'zarr', 3: 'zarr3'}[zarr]

    def read(name):
        return ts.open({'driver': driver, 'kvstore': f'file://{item}/{name}/'}).result().read().result()
    found = frames(item, zarr == 3)
    assert len(found) == len(tree)
    for path in found:
        name, data = path.relative_to(item).parts[0], path.read_bytes()
        assert data[:4] == b'\x28\xb5\x2f\xfd' and data[4] & 4, path
        assert np.array_equal(read(name), tree[name])
        # The last byte is one of the checksum.
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(ValueError):
            read(name)
