# SPDX-License-Identifier: Apache-2.0
"""compression=blosc and auto: what Orbax and TensorStore read of it, what is chosen, what is moved, and blocks that are read alone."""

import json
import os
import struct
import time

from lib import jaxenv  # noqa: F401  before jax

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts

from lib import expect, mounts, restoring
from lib.pairs import pairs
from test_copying import counted
from test_writing import commit, write

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(15)
WEIGHTS = RNG.normal(0, 0.02, (3, 1000, 1001))

ARRAYS = {
    'bf16': WEIGHTS.astype(BF16),
    'f32': WEIGHTS[0].astype(np.float32),
    'f64': WEIGHTS[1, :30].astype(np.float64),
    'ids': RNG.integers(0, 50000, (300, 512)),
    'mask': RNG.integers(0, 2, (200, 300)).astype(bool),
    'noise': RNG.integers(0, 256, (300, 1000), np.uint8),
    'text': np.frombuffer(b'the same words again and again, ' * 2000, np.uint8),
    'int4': RNG.integers(-8, 8, (64, 64)).astype(ml_dtypes.int4),
    'complex': WEIGHTS[2, :20].astype(np.complex64),
    'empty': np.zeros((0, 4), np.float32),
    'scalar': np.asarray(2.5, np.float32),
    'zeros': np.zeros((700, 900), np.float32),
}
CHOICE = {'bf16': 'blosc', 'f32': 'blosc', 'mask': 'zstd', 'noise': None, 'text': 'zstd', 'scalar': None, 'zeros': 'zstd'}


def save(run, tmp_path, arrays, options, step=1, big=()):
    files = tmp_path / f'files-{step}'
    files.mkdir()
    for name, array in arrays.items():
        np.save(files / f'{name}.npy', array.view(np.uint8) if array.dtype == ml_dtypes.int4 else array)
        if array.dtype == ml_dtypes.int4:
            os.setxattr(files / f'{name}.npy', 'user.pytree.dtype', b'int4')
    run('save', '-o', options, files, tmp_path / f'root/{step}')
    return tmp_path / f'root/{step}/default'


def document(item, name, zarr3):
    return (item / name / ('zarr.json' if zarr3 else '.zarray')).read_bytes()


def compressor(item, name, ocdbt, zarr3):
    """The member of the metadata that says it, or None."""
    kv = ts.KvStore.open({'driver': 'ocdbt', 'base': f'file://{item}/'} if ocdbt else f'file://{item}/').result()
    doc = json.loads(kv.read(f'{name}/' + ('zarr.json' if zarr3 else '.zarray')).result().value)
    if not zarr3:
        return doc['compressor']
    codecs = doc['codecs'][0]['configuration']['codecs']
    return {**codecs[1]['configuration'], 'id': codecs[1]['name']} if len(codecs) > 1 else None


@pytest.mark.parametrize('compression, zarr, ocdbt', pairs(['blosc', 'auto'], [2, 3], ['on', 'off']))
def test_orbax_and_tensorstore_restore_it(run, tmp_path, root, ocdbt, zarr, compression):
    tree = expect.flatten({k: v for k, v in ARRAYS.items() if k not in ('empty', 'int4')})
    item = save(run, tmp_path, {k: v for (k,), v in tree.leaves.items()}, f'ocdbt={ocdbt},zarr={zarr},compression={compression}')
    assert not restoring.by_orbax(root, 1, tree)
    assert not list(restoring.by_tensorstore(item, tree, ocdbt == 'on', zarr == 3))
    got = {k: (compressor(item, k, ocdbt == 'on', zarr == 3) or {}).get('id') for (k,) in tree.leaves}
    assert got == ({k: CHOICE.get(k, got[k]) for k in got} if compression == 'auto' else dict.fromkeys(got, 'blosc'))
    assert run('verify', item).returncode == 0


@pytest.mark.parametrize('reader, zarr', [*((way, 2) for way in restoring.WAYS), ('tensorstore', 2), ('zarr', 2), ('zarr', 3), ('v0', 3), ('v1', 3)])
def test_programs_read_the_default(run, tmp_path, root, reader, zarr):
    """Without an option compression is chosen for each leaf: blosc, zstd and none are all in it. zarr-python has no databases."""
    arrays = {k: ARRAYS[k] for k in ('f32', 'f64', 'mask', 'noise', 'text', 'scalar')}
    tree = expect.flatten(arrays)
    item = save(run, tmp_path, arrays, f'zarr={zarr}' + (',ocdbt=off' if reader == 'zarr' else ''))
    chosen = {k: (compressor(item, k, reader != 'zarr', zarr == 3) or {}).get('id') for k in ('f32', 'text', 'noise')}
    assert chosen == {'f32': 'blosc', 'text': 'zstd', 'noise': None}
    if reader == 'zarr':
        import zarr as zarr_python
        assert not [k for k, a in arrays.items() if not np.array_equal(zarr_python.open_array(item / k, mode='r')[...], a)]
    elif reader == 'tensorstore':
        assert not list(restoring.by_tensorstore(item, tree))
    else:
        assert not restoring.by_orbax(root, 1, tree, ways=[reader])


def test_zstd_is_what_orbax_writes(run, tmp_path):
    """The documents of arrays with compression=zstd are equal to Orbax's."""
    ours = save(run, tmp_path, {k: ARRAYS[k] for k in ('f32', 'mask')}, 'compression=zstd,ocdbt=off')
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False)) as c:
        c.save(tmp_path / 'theirs', args=ocp.args.PyTreeSave({k: ARRAYS[k] for k in ('f32', 'mask')}))
    for k in ('f32', 'mask'):
        assert compressor(ours, k, False, False) == compressor(tmp_path / 'theirs', k, False, False) == {'id': 'zstd', 'level': 1}


@pytest.mark.parametrize('zarr, ocdbt', pairs([2, 3], ['on', 'off']))
def test_arrays_of_many_devices_restore(run, tmp_path, ocdbt, zarr):
    """Saved by Orbax from one mesh, converted, and restored by Orbax onto another mesh."""
    values = {'matrix': WEIGHTS[0, :960, :1000].astype(BF16), 'rows': WEIGHTS[1, :800].astype(np.float32), 'everywhere': np.arange(12.)}
    saved_as = {'matrix': P('x', 'y'), 'rows': P(('x', 'y')), 'everywhere': P()}
    restored_as = {'matrix': P('y'), 'rows': P('x', None), 'everywhere': P()}

    def placed(shape, specs):
        mesh = Mesh(np.array(jax.devices()).reshape(shape), ('x', 'y'))
        return {k: NamedSharding(mesh, spec) for k, spec in specs.items()}

    tree = jax.tree.map(jax.device_put, values, placed((4, 2), saved_as))
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / 'theirs', tree)
    run('convert', '-o', f'compression=auto,ocdbt={ocdbt},zarr={zarr}', tmp_path / 'theirs', tmp_path / 'ours')
    item = tmp_path / 'ours'
    assert {k: (compressor(item, k, ocdbt == 'on', zarr == 3) or {}).get('id') for k in ('matrix', 'rows')} == {'matrix': 'blosc', 'rows': 'blosc'}
    wanted = jax.tree.map(lambda v, to: jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=to), values, placed((2, 4), restored_as))
    with ocp.StandardCheckpointer() as checkpointer:
        got = checkpointer.restore(item, wanted)
    for k, v in values.items():
        assert got[k].sharding == wanted[k].sharding and np.asarray(got[k]).tobytes() == v.tobytes(), k


SPECS = {'blosc': ('zstd', 1, 1), 'blosc:zstd': ('zstd', 1, 1), 'blosc:lz4': ('lz4', 5, 1), 'blosc:lz4hc:9': ('lz4hc', 9, 1),
         'blosc:zlib:2:bit': ('zlib', 2, 2), 'blosc:blosclz:0:none': ('blosclz', 0, 0)}


@pytest.mark.parametrize('zarr, text', pairs([2, 3], list(SPECS)))
def test_the_document_is_tensorstores_to_the_byte(run, tmp_path, root, text, zarr):
    """And every codec's chunks are read back by TensorStore."""
    tree = expect.flatten({k: ARRAYS[k] for k in ('f32', 'ids', 'mask', 'complex')})
    item = save(run, tmp_path, {k: v for (k,), v in tree.leaves.items()}, f'ocdbt=off,zarr={zarr},compression={text}')
    assert not list(restoring.by_tensorstore(item, tree, False, zarr == 3))
    cname, level, shuffle = SPECS[text]
    for (name,), array in tree.leaves.items():
        ours = document(item, name, zarr == 3)
        members = compressor(item, name, False, zarr == 3)
        assert (members['cname'], members['clevel'], members['blocksize']) == (cname, level, 1 << 19)
        assert members['shuffle'] == (shuffle if zarr == 2 else ['noshuffle', 'shuffle', 'bitshuffle'][shuffle])
        made = tmp_path / f'made-{name}'
        driver = {2: 'zarr', 3: 'zarr3'}[zarr]
        ts.open({'driver': driver, 'kvstore': f'file://{made}/', 'metadata': json.loads(ours), 'create': True}).result()
        assert (made / {2: '.zarray', 3: 'zarr.json'}[zarr]).read_bytes() == ours


def test_words_that_are_not_a_compression_are_refused(run, tmp_path, root):
    for text in ('blosc:brotli', 'blosc:zstd:10', 'blosc:zstd:1:nibble', 'blosc:', 'blosc:zstd:1:byte:1', 'auto:1', 'none:1', 'zstd:'):
        r = run('save', '-o', f'compression={text}', tmp_path, root / '1', ok=False)
        assert r.returncode == 2 and 'blosc' in r.stderr, (text, r.stderr)


def test_weights_take_nine_tenths_of_zstd(run, tmp_path, root):
    sizes = {}
    for step, how in enumerate(('zstd', 'auto'), 1):
        item = save(run, tmp_path, {'w': ARRAYS['bf16']}, f'compression={how}', step)
        sizes[how] = sum(p.stat().st_size for p in item.rglob('*') if p.is_file())
    assert sizes['auto'] <= 0.9 * sizes['zstd'], sizes


@pytest.mark.parametrize('zarr', [2, 3])
def test_a_draft_chooses_as_save_does(mount, run, tmp_path, root, zarr):
    """Leaves that stream choose by their first chunk; the choice is in `info`."""
    tree = expect.flatten({k: v for k, v in ARRAYS.items() if k not in ('int4',)})
    m = mount(root, 'compression=auto', f'zarr={zarr}')
    write(m, '7', tree)
    commit(m, '7')
    assert not restoring.by_orbax(root, 7, expect.flatten({k: v for k, v in ARRAYS.items() if k not in ('int4', 'empty')}), ('v0', 'v1'),
                                  skip=[('empty',)])
    for name, want in CHOICE.items():
        assert (compressor(root / '7/default', name, True, zarr == 3) or {}).get('id') == want, name
    assert 'blosc' in run('info', root / '7/default/bf16.npy').stdout


def test_a_rule_and_an_xattr(mount, root):
    m = mount(root, 'rule=**/f32:compression=blosc:lz4:5:bit')
    os.makedirs(m / '7.tmp/default')
    np.save(m / '7.tmp/default/f32.npy', ARRAYS['f32'])
    np.save(m / '7.tmp/default/ids.npy', ARRAYS['ids'])
    os.setxattr(m / '7.tmp/default/ids.npy', 'user.pytree.save.compression', b'blosc')
    os.rename(m / '7.tmp', m / '7')
    item = root / '7/default'
    assert compressor(item, 'f32', True, False)['cname'] == 'lz4' and compressor(item, 'ids', True, False)['cname'] == 'zstd'
    assert not list(restoring.by_tensorstore(item, expect.flatten({k: ARRAYS[k] for k in ('f32', 'ids')})))


@pytest.mark.parametrize('then', ['compression=blosc', 'compression=auto', ''])
def test_chunks_that_are_so_already_move(mount, root, then):
    tree = expect.flatten({k: ARRAYS[k] for k in ('bf16', 'f32')})
    m = mount(root, 'compression=blosc')
    write(m, '1', tree)
    commit(m, '1')
    m.unmount()
    m = mount(root, *[then] if then else [])

    def copy():
        os.mkdir(m / '2.tmp')
        assert os.system(f'cp -r {m / "1/default"} {m / "2.tmp"}/') == 0
        os.rename(m / '2.tmp', m / '2')
    moved = counted(m, copy)
    assert moved['chunks_encoded'] == 0 and moved['chunks_copied'] > len(tree.leaves), moved
    assert not restoring.by_orbax(root, 2, tree, ('v0',))


@pytest.mark.parametrize('how', ['blosc', 'auto', 'none'])
def test_convert_encodes_again_and_back(run, tmp_path, root, how):
    tree = expect.flatten({k: ARRAYS[k] for k in ('bf16', 'noise', 'text')})
    item = save(run, tmp_path, {k: v for (k,), v in tree.leaves.items()}, 'compression=zstd')
    r = run('convert', '--json', '-o', f'compression={how},ocdbt=off', item, tmp_path / 'out')
    assert json.loads(r.stdout).get('auto') == ({'blosc': 1, 'zstd': 1, 'none': 1} if how == 'auto' else None)
    want = {'blosc': ['blosc'] * 3, 'auto': ['blosc', None, 'zstd'], 'none': [None] * 3}[how]
    assert [(compressor(tmp_path / 'out', k, False, False) or {}).get('id') for k in ('bf16', 'noise', 'text')] == want
    assert not list(restoring.by_tensorstore(tmp_path / 'out', tree, False))
    run('convert', '-o', 'compression=zstd:2,ocdbt', tmp_path / 'out', tmp_path / 'back')
    assert not list(restoring.by_tensorstore(tmp_path / 'back', tree))


def test_damage_to_a_chunk_is_found(run, tmp_path, root):
    """A flipped bit that the codec does not see: the checksum that follows the chunk does."""
    item = save(run, tmp_path, {'w': ARRAYS['f32']}, 'compression=blosc')
    data = max((p for p in item.rglob('*') if p.is_file()), key=lambda p: p.stat().st_size)
    raw = bytearray(data.read_bytes())
    raw[raw.index(struct.pack('<I', 1 << 19)) + 300000] ^= 4
    data.write_bytes(raw)
    r = run('verify', item, ok=False)
    assert r.returncode == 1 and 'crc32c' in r.stdout and "'w/0" in r.stdout + r.stderr, r.stdout + r.stderr


@pytest.mark.parametrize('where', [20, 1000, 0.3, 0.99])
def test_damage_to_a_block_of_a_large_chunk_is_found(mount, run, tmp_path, root, big, where):
    """Its blocks are decoded each alone: the checksum is compared when all of them were."""
    item = save(run, tmp_path, {'w': big}, 'ocdbt=off,compression=blosc,chunk_byte_size=64M')
    chunk = item / 'w/0'
    raw = bytearray(chunk.read_bytes())
    raw[where if isinstance(where, int) else int(where * len(raw))] ^= 1
    chunk.write_bytes(raw)
    r = run('verify', item, ok=False)
    assert r.returncode == 1 and 'w/0' in r.stdout, r.stdout
    m = mount(root, allow_errors=True)
    with pytest.raises(OSError):
        (m / '1/default/w.bin').read_bytes()
    assert any('w/0' in line for line in m.log_lines())


def test_a_chunk_that_was_found_damaged_stays_so(mount, run, tmp_path, root, big):
    """The mismatch may be found ahead of a reader that comes late: no piece, decoded before or after, is given to it."""
    item = save(run, tmp_path, {'w': big}, 'ocdbt=off,compression=blosc,chunk_byte_size=64M')
    chunk = item / 'w/0'
    raw = bytearray(chunk.read_bytes())
    raw[300000] ^= 1
    chunk.write_bytes(raw)
    m = mount(root, 'direct_io=on', allow_errors=True)
    with open(m / '1/default/w.bin', 'rb', buffering=0) as f:
        def is_refused(at):
            try:
                os.pread(f.fileno(), 4096, at)
            except OSError:
                return True
            return False
        pieces = range(0, big.nbytes, 1 << 20)
        assert any([is_refused(at) for at in pieces])
        for _ in range(2):
            time.sleep(1.2)   # what failed is tried again after a second
            assert all([is_refused(at) for at in pieces])
        raw[300000] ^= 1
        chunk.write_bytes(raw)
        mounts.wait_for(lambda: not any([is_refused(at) for at in pieces]))
        data = big.tobytes()
        assert all([os.pread(f.fileno(), 1 << 20, at) == data[at:at + (1 << 20)] for at in pieces])


def test_a_chunk_that_blosc_cannot_take_is_zstds(run, tmp_path, root):
    """A blosc object is made in memory: not where write_budget does not hold its chunk twice."""
    tree = expect.flatten({'w': ARRAYS['f64'], 'big': np.zeros((40 << 20) // 4, np.float32)})
    item = save(run, tmp_path, {k: v for (k,), v in tree.leaves.items()}, 'compression=blosc,chunk_byte_size=1G,write_budget=64M')
    assert compressor(item, 'big', True, False)['id'] == 'zstd' and compressor(item, 'w', True, False)['id'] == 'blosc'
    assert not list(restoring.by_tensorstore(item, tree))


@pytest.fixture
def big():
    """24 MiB."""
    return RNG.normal(0, 0.02, 3 << 21).astype(np.float32)


@pytest.mark.parametrize('blosc, zarr', pairs([('lz4', 0), ('zstd', 0), ('zstd', 1 << 19), ('zlib', 100000), ('blosclz', 1 << 22)], [2, 3]))
def test_blocks_of_others_are_read_alone_too(mount, run, tmp_path, root, big, blosc, zarr):
    """A chunk that is larger than any piece: from front to back, in pieces from the back, and by small reads anywhere."""
    cname, block = blosc
    item = save(run, tmp_path, {'w': big[:10]}, f'ocdbt=off,zarr={zarr},compression=none')
    for path in (item / 'w').rglob('*'):
        path.unlink() if path.is_file() else None
    for path in item.glob('.crc32c/*'):
        path.unlink()
    codec = {'cname': cname, 'clevel': 5, 'blocksize': block}
    meta = {2: {'shape': list(big.shape), 'chunks': list(big.shape), 'dtype': '<f4', 'compressor': {'id': 'blosc', 'shuffle': 1, **codec}},
            3: {'shape': list(big.shape), 'data_type': 'float32',
                'chunk_grid': {'name': 'regular', 'configuration': {'chunk_shape': list(big.shape)}},
                'codecs': ['bytes', {'name': 'blosc', 'configuration': {'shuffle': 'shuffle', **codec}}]}}[zarr]
    spec = {'driver': {2: 'zarr', 3: 'zarr3'}[zarr], 'kvstore': f'file://{item}/w/', 'metadata': meta, 'create': True}
    ts.open(spec).result().write(big).result()
    (item / '.crc32c').exists() and (item / '.crc32c').rmdir()
    m = mount(root)
    data = big.tobytes()
    with open(m / '1/default/w.bin', 'rb') as f:
        for off in (17 << 20, 5, (23 << 20) + 77, 1 << 20):
            assert os.pread(f.fileno(), 4096, off) == data[off:off + 4096]
    # A few pieces at most, whatever the kernel reads ahead; but a block of 4 MiB belongs to a stream.
    assert block == 1 << 22 or m.stats()['chunk_bytes_decoded'] < len(data), m.stats()
    assert (m / '1/default/w.bin').read_bytes() == data
    assert np.array_equal(np.load(m / '1/default/w[5000000:].npy'), big[5000000:])
