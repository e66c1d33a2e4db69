# SPDX-License-Identifier: Apache-2.0
"""stats, diff, report and verify of chunks that are decoded in pieces: every way in which they can lie in an array."""

import json
import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest
import tensorstore as ts

MIB = 1 << 20

# name: (shape, chunk, dtype, order). A chunk of more than 4 MiB is decoded piece by piece.
ARRAYS = {
    'one': ((1100, 2048), (1100, 2048), 'float32', 'C'),
    'last_rows_missing': ((1500, 2048), (1024, 2048), 'float32', 'C'),
    'columns_clipped': ((1024, 3000), (1024, 2048), 'float32', 'C'),
    'two_by_two': ((2048, 2048), (1024, 1024), 'float64', 'C'),
    'cube': ((6, 700, 900), (2, 700, 900), 'float32', 'C'),
    'planes_in_pieces': ((3, 1500, 1024), (3, 1500, 1024), 'int16', 'C'),
    'fortran': ((1100, 2048), (1100, 2048), 'float32', 'F'),
    'half': ((4096, 1024), (4096, 1024), 'bfloat16', 'C'),
    'big_endian': ((1100, 2048), (1100, 2048), '>f4', 'C'),
    'small': ((100, 100), (30, 40), 'float32', 'C'),
    'line': ((3 * MIB,), (2 * MIB,), 'float32', 'C'),
    'longer_than_the_array': ((700, 2048), (1024, 2048), 'float32', 'C'),
}


def values(name):
    shape, _, dtype, _ = ARRAYS[name]
    rng = np.random.default_rng(len(name))
    block = rng.integers(-100, 100, 4099).astype(np.float32)
    flat = np.resize(block, int(np.prod(shape)))
    flat[::4099] = np.arange(len(flat[::4099])) % 120
    kind = getattr(ml_dtypes, dtype, None) or dtype
    return flat.reshape(shape).astype(np.dtype(kind))


def write(directory, name, a):
    shape, chunk, dtype, order = ARRAYS[name]
    code = {'float32': '<f4', 'float64': '<f8', 'int16': '<i2', 'bfloat16': 'bfloat16', '>f4': '>f4'}[dtype]
    z = ts.open({'driver': 'zarr', 'kvstore': f'file://{directory}/{name}/', 'metadata': {
        'shape': shape, 'chunks': chunk, 'dtype': code, 'order': order, 'compressor': {'id': 'zstd', 'level': 1},
        'fill_value': None, 'filters': None}}, create=True).result()
    z.write(a.astype(a.dtype.newbyteorder('='))).result()


@pytest.fixture(scope='module')
def pair(tmp_path_factory):
    """Two items; in the second one element of every array is another."""
    top = tmp_path_factory.mktemp('large')
    for name in ARRAYS:
        a = values(name)
        write(top / 'a', name, a)
        b = a.copy()
        b[changed(name)] += 1
        write(top / 'b', name, b)
    return top / 'a', top / 'b'


def changed(name):
    """A place far from the beginning."""
    return tuple(n * 7 // 9 for n in ARRAYS[name][0])


def test_stats_are_numpys(run, pair):
    got = {e['path']: e for e in json.loads(run('stats', '--json', pair[0]).stdout)}
    assert set(got) == {f'{name}.npy' for name in ARRAYS}
    for name in ARRAYS:
        a, e = values(name).astype(np.float64), got[f'{name}.npy']
        assert (e['min'], e['max'], e['count'], e['zeros']) == (a.min(), a.max(), a.size, (a == 0).sum()), name
        assert e['mean'] == pytest.approx(a.mean(), rel=1e-9) and e['std'] == pytest.approx(a.std(), rel=1e-9), name


def test_one_element_of_each_is_found(run, program, pair):
    r = subprocess.run([program, 'diff', '--json', *map(str, pair)], capture_output=True, text=True, timeout=120)
    assert r.returncode == 1, r.stderr
    doc = json.loads(r.stdout)
    found = {d['path']: d for d in doc['differences']}
    assert set(found) == {f'{name}.npy' for name in ARRAYS}
    for name in ARRAYS:
        d = found[f'{name}.npy']
        assert d['differing'] == 1 and tuple(d['first']) == changed(name), (name, d)
    assert run('diff', pair[0], pair[0]).returncode == 0


def test_verify_has_no_fault(run, pair):
    doc = json.loads(run('verify', '--json', pair[0]).stdout)
    assert doc['findings'] == [] and doc['leaves'] == len(ARRAYS)


def test_report_counts_every_element(run, pair):
    doc = json.loads(run('report', '--json', pair[0]).stdout)
    for e in doc['entries']:
        shape = ARRAYS[e['name'].partition('.')[0]][0]
        assert sum(e['histogram']['counts']) == np.prod(shape), e['name']


def test_a_damaged_piece_is_named(run, pair, tmp_path):
    """After pieces that were read right, in stats as in verify."""
    copy = tmp_path / 'copy'
    shutil.copytree(pair[0], copy)
    path = copy / 'one' / '0.0'
    path.write_bytes(path.read_bytes()[:-3000])
    r = run('stats', copy, ok=False)
    assert r.returncode == 2 and "'one.npy'" in r.stderr and 'line.npy' in r.stdout
    r = run('verify', copy, ok=False)
    assert r.returncode == 1 and 'one.npy: one/0.0:0:' in r.stdout and r.stdout.count('error:') == 1
