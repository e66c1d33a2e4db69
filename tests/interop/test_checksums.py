# SPDX-License-Identifier: Apache-2.0
"""Orbax and TensorStore read what has checksums of ours as what has none."""

import errno
import os
import shutil
import struct

import google_crc32c
import numpy as np
import pytest
import tensorstore as ts

from lib import expect, restoring
from lib.pairs import pairs

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


@pytest.mark.parametrize('writer, zarr, level', pairs(list(WRITERS), [2, 3], [1, 9]))
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


def test_a_shard_that_is_replaced_by_a_shorter_one(mount, run, tmp_path):
    """Its index is in the cache: the ranges there are beyond the end of the other file, whose checksum is right."""
    (tmp_path / 'files').mkdir()
    rows = np.random.default_rng(3).integers(256, size=(64, 4096), dtype=np.uint8)
    np.save(tmp_path / 'files/w.npy', rows)
    run('save', '-o', 'zarr=3,ocdbt=off', tmp_path / 'files', tmp_path / 'root/1')
    item = tmp_path / 'root/1/default'
    shard, document, short = item / 'w/c/0/0', item / 'w/zarr.json', bytes(4140)
    before = shard.read_bytes(), document.read_bytes()
    # Of 64 chunks, in place of one.
    shutil.rmtree(item / 'w')
    inner = {'chunk_shape': [1, 4096], 'codecs': ['bytes', {'name': 'zstd', 'configuration': {'level': 1}}]}
    ts.open({'driver': 'zarr3', 'kvstore': f'file://{item}/w/', 'create': True, 'metadata': {
        'shape': [64, 4096], 'data_type': 'uint8', 'chunk_grid': {'name': 'regular', 'configuration': {'chunk_shape': [64, 4096]}},
        'codecs': [{'name': 'sharding_indexed', 'configuration': inner}]}}).result().write(rows).result()
    table, = (item / '.crc32c').iterdir()
    packed = table.read_bytes()[:-4]
    for was, now in zip(before, (short, document.read_bytes())):
        packed = packed.replace(*(struct.pack('<I', google_crc32c.value(x)) for x in (was, now)))
    table.write_bytes(packed + struct.pack('<I', google_crc32c.value(packed)))
    m = mount(tmp_path / 'root', allow_errors=True)
    assert (m / '1/default/w[0:1].npy').read_bytes().endswith(rows[0].tobytes())
    (tmp_path / 'short').write_bytes(short)
    os.rename(tmp_path / 'short', shard)
    for row in (1, 40, 63):
        with pytest.raises(OSError) as e:
            (m / f'1/default/w[{row}:{row + 1}].npy').read_bytes()
        assert e.value.errno == errno.EIO
    assert 'beyond its 4140 bytes' in '\n'.join(m.log_lines())
    assert run('verify', tmp_path / 'root/1', ok=False).returncode == 1
