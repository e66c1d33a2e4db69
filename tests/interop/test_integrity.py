# SPDX-License-Identifier: Apache-2.0
"""`manifest=on` and `crc32c=on`: real Orbax and TensorStore restore what has them, sha256sum computes the same from the files
of a mount, `verify` compares, and copies keep them."""

import hashlib
import json
import os
import shutil
import subprocess

import numpy as np
import pytest
import tensorstore as ts

from lib import expect, restoring
from test_writing import commit, leaves, write

SUMS = '.sha256sums'


def sums(item):
    """{name: digest} of an item."""
    lines = (item / SUMS).read_text().splitlines()
    return {name: digest for digest, name in (line.split('  ', 1) for line in lines)}


def compared_by_sha256sum(mounted, item):
    """All lines, by the program that everybody has."""
    subprocess.run(['sha256sum', '--check', '--strict', '--quiet', item / SUMS], cwd=mounted, check=True)
    return len(sums(item))


def sh(m, script):
    subprocess.run(['sh', '-c', script], cwd=m.path, check=True)


def verified(run, path, ok=True):
    r = run('verify', '--json', path, ok=False)
    assert r.returncode == (0 if ok else 1), r.stdout + r.stderr
    return json.loads(r.stdout)


LAYOUTS = [('ocdbt=on', 'zarr=2'), ('ocdbt=off', 'zarr=2'), ('ocdbt=on', 'zarr=3'), ('ocdbt=off', 'zarr=3', 'crc32c=on')]


@pytest.mark.option('manifest')
@pytest.mark.parametrize('options', LAYOUTS, ids=','.join)
def test_every_leaf_has_the_digest_of_its_bytes(mount, run, root, options):
    tree = leaves()
    m = mount(root, 'manifest=on', *options)
    write(m, '7', tree)
    commit(m, '7')
    item = root / '7/default'
    assert compared_by_sha256sum(m / '7/default', item) == len([v for v in tree.leaves.values()
                                                                if v is not None and not isinstance(v, expect.Empty)])
    digests = sums(item)
    want = {'/'.join(path) + '.bin': value for path, value in tree.leaves.items() if isinstance(value, np.ndarray)}
    assert want
    for name, value in want.items():
        little = np.ascontiguousarray(value).astype(value.dtype.newbyteorder('<'), copy=False) if value.dtype.itemsize > 1 else value
        assert digests[name] == hashlib.sha256(little.tobytes()).hexdigest(), name
    doc = verified(run, root)
    assert doc['sha256']['leaves'] == len(digests) and doc['sha256']['bytes'] > 0
    # Without it there is no such file, and Orbax sees the same step.
    write(plain := mount(root, *options), '8', tree)
    commit(plain, '8')
    assert not (root / '8/default' / SUMS).exists()
    for step in (7, 8):
        assert not restoring.by_orbax(root, step, tree, rich=False)
        assert not list(restoring.by_tensorstore(root / str(step) / 'default', tree, 'ocdbt=on' in options, 'zarr=3' in options))


@pytest.fixture
def saved(run, tmp_path):
    """saved(*options): root/1 of arrays, a number and a text."""
    def make(*options):
        (tmp_path / 'files/in').mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / 'files/rows.npy', np.arange(60_000, dtype=np.float32).reshape(300, 200))
        np.save(tmp_path / 'files/in/small.npy', np.arange(7, dtype=np.int16))
        (tmp_path / 'files/step.json').write_text('3')
        (tmp_path / 'files/name.txt').write_text('a name')
        run('save', '-o', ','.join(('chunk_byte_size=40000', *options)), tmp_path / 'files', tmp_path / 'root/1')
        return tmp_path / 'root/1'
    (tmp_path / 'root').mkdir()
    return make


def test_verify_names_the_leaf_and_both_values(run, saved):
    step = saved('manifest=on')
    good = (step / 'default' / SUMS).read_text()
    digest = sums(step / 'default')['in/small.bin']
    other = hashlib.sha256(b'other').hexdigest()
    (step / 'default' / SUMS).write_text(good.replace(digest, other))
    [found] = verified(run, step, ok=False)['findings']
    assert (found['leaf'], found['file'], found['severity']) == ('default/in/small.npy', f'default/{SUMS}', 'error')
    assert digest in found['text'] and other in found['text']
    assert 'have a SHA-256' in run('verify', step, ok=False).stdout


@pytest.mark.parametrize('change,text', [
    (lambda s: s[:-5], 'truncated'), (lambda s: 'x' + s[1:], 'line 1'), (lambda s: s + s.splitlines()[0] + '\n', 'comes twice'),
    (lambda s: s.replace('in/small', 'in/other'), 'is not a leaf'), (lambda s: s.split('\n', 1)[1], 'no SHA-256')])
def test_a_manifest_that_is_not_of_the_item_is_an_error(run, saved, change, text):
    step = saved('manifest=on')
    path = step / 'default' / SUMS
    path.write_text(change(path.read_text()))
    findings = verified(run, step, ok=False)['findings']
    assert findings and any(text in f['text'] and f['file'] == f'default/{SUMS}' for f in findings), findings
    # It is not needed to read.
    assert np.array_equal(np.frombuffer(run('cat', step / 'default/in/small.bin', text=False).stdout, np.int16), np.arange(7))


def test_values_that_have_changed_are_found_where_no_checksum_is(run, saved):
    """A chunk of TensorStore's in place of ours: a valid one, of other values."""
    step = saved('manifest=on', 'ocdbt=off')
    item = step / 'default'
    shutil.rmtree(item / '.crc32c')
    store = ts.open({'driver': 'zarr', 'kvstore': f'file://{item}/rows/'}).result()
    store[7, 3].write(-1.0).result()
    [found] = verified(run, step, ok=False)['findings']
    assert found['leaf'] == 'default/rows.npy' and 'SHA-256' in found['text']


def test_copies_keep_it(mount, run, saved, tmp_path):
    step = saved('manifest=on')
    before = sums(step / 'default')
    m = mount(tmp_path / 'root')
    sh(m, 'mkdir 2.tmp && cp -r 1/default 2.tmp/ && mv 2.tmp 2')
    assert sums(tmp_path / 'root/2/default') == before
    # New leaves are in it, too; a leaf that was copied and then changed has the digest of its present value.
    sh(m, 'mkdir 3.tmp && cp -r 1/default 3.tmp/')
    np.save(m / '3.tmp/default/in/small.npy', np.arange(9, dtype=np.int32))
    np.save(m / '3.tmp/default/new.npy', np.arange(4, dtype=np.uint8))
    sh(m, 'mv 3.tmp 3')
    after = sums(tmp_path / 'root/3/default')
    assert after['in/small.bin'] == hashlib.sha256(np.arange(9, dtype=np.int32).tobytes()).hexdigest()
    assert after['new.bin'] == hashlib.sha256(bytes(range(4))).hexdigest() and after['rows.bin'] == before['rows.bin']
    assert json.loads(os.getxattr(m / '1/default/rows.npy', 'user.pytree.sha256')) == before['rows.bin']
    # A view of a leaf has other bytes than the leaf; a copy of it is not of its digest.
    sh(m, "mkdir 4.tmp 4.tmp/default && cp 1/default/rows.npy 4.tmp/default/a.npy && cp '1/default/rows[0:9].npy' 4.tmp/default/a.npy"
         ' && mv 4.tmp 4')
    r = run('convert', step, tmp_path / 'root/5')
    assert sums(tmp_path / 'root/5/default') == before, r.stderr
    run('convert', '-o', 'manifest=off', step, tmp_path / 'root/6')
    assert not (tmp_path / 'root/6/default' / SUMS).exists()
    run('convert', '-o', 'manifest=on,compression=none,dtype=float64', step, tmp_path / 'root/7')
    assert sums(tmp_path / 'root/7/default')['rows.bin'] != before['rows.bin']
    run('verify', tmp_path / 'root')


def test_a_copy_takes_the_digest_over_without_reading(run, saved, tmp_path):
    """Damage that happened before the copy is found after it, too: nothing was hashed anew."""
    step = saved('manifest=on')
    path = step / 'default' / SUMS
    digest = sums(step / 'default')['rows.bin']
    path.write_text(path.read_text().replace(digest, hashlib.sha256(b'what was saved').hexdigest()))
    run('convert', step, tmp_path / 'root/2')
    [found] = verified(run, tmp_path / 'root/2', ok=False)['findings']
    assert found['leaf'] == 'default/rows.npy' and digest in found['text']


# ---- crc32c ----

def document(item, name):
    return json.loads((item / name / 'zarr.json').read_text())


def inner_codecs(item, name):
    return [c['name'] for c in document(item, name)['codecs'][0]['configuration']['codecs']]


COMPRESSIONS = {'zstd': ['bytes', 'zstd', 'crc32c'], 'none': ['bytes', 'crc32c'], 'blosc': ['bytes', 'blosc', 'crc32c'],
                'auto': None, 'zstd:9': ['bytes', 'zstd', 'crc32c']}


@pytest.mark.option('crc32c')
@pytest.mark.parametrize('compression', COMPRESSIONS)
def test_crc32c_after_each_chunk(mount, run, root, compression):
    tree = leaves()
    options = ('zarr=3', 'ocdbt=off', f'compression={compression}', 'chunk_byte_size=300')
    m = mount(root, 'crc32c=on', *options)
    write(m, '7', tree)
    commit(m, '7')
    item = root / '7/default'
    codecs = inner_codecs(item, 'params.cube')
    assert codecs[-1] == 'crc32c' and codecs == (COMPRESSIONS[compression] or codecs)
    assert not restoring.by_orbax(root, 7, tree, rich=False)
    assert not list(restoring.by_tensorstore(item, tree, False, True))
    run('verify', root)
    write(plain := mount(root, *options), '8', tree)
    commit(plain, '8')
    assert 'crc32c' not in inner_codecs(root / '8/default', 'params.cube')
    # Our table of checksums is not needed to find a flipped bit.
    shutil.rmtree(item / '.crc32c')
    chunk = max((p for p in (item / 'params.cube/c').rglob('*') if p.is_file()), key=lambda p: p.stat().st_size)
    good = chunk.read_bytes()
    for at in (0, 5, 20):
        chunk.write_bytes(good[:at] + bytes([good[at] ^ 16]) + good[at + 1:])
        assert any(f['leaf'] == 'default/params/cube.npy' for f in verified(run, root / '7', ok=False)['findings']), at
    with pytest.raises(ValueError):
        ts.open({'driver': 'zarr3', 'kvstore': f'file://{item}/params.cube/'}).result().read().result()


def test_crc32c_of_large_chunks_and_of_copies(mount, run, saved, tmp_path):
    """Chunks that are encoded as a stream; a copy keeps the codec unless it is asked for, and zarr v2 has none."""
    big = np.random.default_rng(3).integers(0, 5, 3 << 20).astype(np.float32)
    (tmp_path / 'bigs').mkdir()
    np.save(tmp_path / 'bigs/big.npy', big)
    saved()
    names = {}
    for n, compression in enumerate(('zstd', 'none', 'blosc'), 2):
        run('save', '-o', f'zarr=3,crc32c=on,ocdbt=off,compression={compression},chunk_byte_size=64M,write_budget=8M',
            tmp_path / 'bigs', tmp_path / f'root/{n}')
        names[n] = inner_codecs(tmp_path / f'root/{n}/default', 'big')
        assert names[n][-1] == 'crc32c'
        got = ts.open({'driver': 'zarr3', 'kvstore': f'file://{tmp_path}/root/{n}/default/big/'}).result().read().result()
        assert np.array_equal(got, big)
    m = mount(tmp_path / 'root', 'zarr=3', 'ocdbt=off')
    sh(m, 'mkdir 7.tmp && cp -r 2/default 7.tmp/ && mv 7.tmp 7')
    assert inner_codecs(tmp_path / 'root/7/default', 'big') == names[2]
    assert json.loads((m / '.pytreefs/stats').read_text())['chunks_copied'] == 1
    for step, options in ((8, 'zarr=3,crc32c=off'), (9, 'zarr=2,crc32c=on')):
        run('convert', '-o', f'ocdbt=off,{options}', tmp_path / 'root/2', tmp_path / f'root/{step}')
    assert 'crc32c' not in inner_codecs(tmp_path / 'root/8/default', 'big')
    assert (tmp_path / 'root/9/default/big/.zarray').exists()
    run('convert', '-o', 'zarr=3,crc32c=on,ocdbt=off', tmp_path / 'root/8', tmp_path / 'root/10')
    assert inner_codecs(tmp_path / 'root/10/default', 'big')[-1] == 'crc32c'
    run('verify', tmp_path / 'root')
