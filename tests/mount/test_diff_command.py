# SPDX-License-Identifier: Apache-2.0
"""`diff` of two checkpoints: nodes on one side only, nodes of different kinds, tolerances and types of values."""

import json
import pathlib
import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

SAMPLE = pathlib.Path(__file__).resolve().parents[1] / 'data/sample'


@pytest.fixture
def two(tmp_path):
    """Two copies of the sample."""
    return [shutil.copytree(SAMPLE, tmp_path / name) for name in 'ab']


def lines(run, a, b, *options):
    r = run('diff', *options, a, b, ok=False)
    # As diff(1): 1 is for what differs alone.
    assert r.stderr == '' and r.returncode == (0 if r.stdout.endswith(' 0 differences\n') else 1)
    return r.stdout.splitlines()


def test_stored_files_that_only_one_has(run, two):
    """In both directions, in directories, and also where names are alike."""
    for path, name in zip(two, ('of-a', 'of-b')):
        (path / '1500/config' / name).write_text('text')
        (path / '1500/config/below').mkdir()
        (path / '1500/config/below' / name).write_text('text')
        (path / '1500/config/both').write_text(name)
    (two[0] / '1500/config/kind').write_text('a file')
    (two[1] / '1500/config/kind').mkdir()
    found = lines(run, two[0] / '1500', two[1] / '1500')
    assert sorted(found[:-1]) == ['config/below/of-a: only in A', 'config/below/of-b: only in B', 'config/both: content',
                                  'config/kind: kind', 'config/of-a: only in A', 'config/of-b: only in B']
    assert found[-1].endswith(' 6 differences')


def test_steps_that_only_one_has(run, two):
    shutil.rmtree(two[1] / '1000')
    for order, side in ((two, 'A'), (two[::-1], 'B')):
        found = lines(run, *order)
        assert found[0] == f'1000: only in {side}' and found[-1].endswith(' 1 difference'), found
    r = run('diff', two[0], two[1] / '1500', ok=False)
    assert r.returncode == 2 and 'is a directory of steps' in r.stderr and 'name one of its steps' in r.stderr


def test_a_leaf_in_the_place_of_a_directory(run, tmp_path):
    for name, file in (('a', 'x.json'), ('b', 'x/y.json')):
        (tmp_path / name / file).parent.mkdir(parents=True)
        (tmp_path / name / file).write_text('1')
        run('save', tmp_path / name, tmp_path / 'ckpts' / str(len(name + file)))
    a, b = sorted((tmp_path / 'ckpts').glob('[0-9]*'))
    assert lines(run, a, b)[0] == 'default/x.json: kind: leaf, and dict'
    said = json.loads(run('diff', '--json', a, b, ok=False).stdout)
    assert said['differences'][0] == {'path': 'default/x.json', 'what': 'kind', 'a': 'leaf', 'b': 'dict'}, said
    assert not any('kind' in line for line in lines(run, a, b, '--only', 'default/x'))


BIG = 274677849271939719027416029173916928173
CUSTOM = {'state': {'inc': BIG, 'names': ['a', 'b']}, 'rate': 0.1}


def set_custom(root, file, custom):
    path = root / file
    path.parent.mkdir(exist_ok=True)
    document = json.loads(path.read_text()) if path.exists() else {'internal_metadata': {}}
    path.write_text(json.dumps(document | {'custom_metadata': custom}))


@pytest.mark.parametrize('file, place', [('metadata/_ROOT_METADATA', ''), ('1500/_CHECKPOINT_METADATA', '1500'),
                                         ('1500/state/_METADATA', '1500/state')], ids=('root', 'step', 'item'))
def test_custom_metadata(run, two, file, place):
    """Members in another order are the same, and integers that are one double are not."""
    a, b = two
    set_custom(a, file, CUSTOM)
    set_custom(b, file, dict(reversed(CUSTOM.items())))
    assert run('diff', a, b).stdout.endswith(' 0 differences\n')
    for custom, said in (
            (CUSTOM | {'state': {'inc': BIG + 1, 'names': ['a', 'b']}}, f'["state"]["inc"]: {BIG}, and {BIG + 1}'),
            (CUSTOM | {'rate': '0.1'}, '["rate"]: 0.1, and "0.1"'),
            (CUSTOM | {'more': None}, '["more"]: absent, and null'),
            (CUSTOM | {'state': {'inc': BIG, 'names': ['b', 'a']}}, '["state"]["names"]: ["a", "b"], and ["b", "a"]'),
            ({}, f'{json.dumps(CUSTOM)}, and absent')):
        set_custom(b, file, custom)
        for at in {'', '/'.join(place.split('/')[:1]), place}:
            below = place[len(at):].strip('/') or '.'
            assert lines(run, a / at, b / at)[0] == f'{below}: custom metadata: {said}', (at, custom)
        found = json.loads(run('diff', '--json', a, b, ok=False).stdout)['differences']
        assert found == [{'path': place, 'what': 'custom metadata', 'a': CUSTOM, 'b': custom or None}]
        assert run('diff', '--only', '**', a, b).stdout.endswith(' 0 differences\n')
    (b / file).write_text('{' if place != '1500' else '{"custom_metadata": 1}')
    r = run('diff', a, b, ok=False)
    assert r.returncode == 2 and 'some could not be read' in r.stdout and 'METADATA' in r.stderr, r


def test_verbose_names_what_is_the_same(run, two):
    found = lines(run, two[0] / '1500/state', two[1] / '1500/state', '--verbose')
    assert 'step.json: same' in found and found[-1].endswith(' 0 differences')


def test_what_cannot_be_compared_has_another_status_than_what_differs(run, program, two):
    """2, as of diff(1): also where a part that can be read differs, and where the answer cannot be written."""
    def status(*words):
        r = run('diff', *words, ok=False)
        assert bool(r.stderr) == (r.returncode == 2), r
        return r.returncode
    a, b = two
    assert status(a, b) == 0
    for words in ((a, b / 'nosuch'), (a / 'nosuch', b), (a, b.parent), (a, b / '1500'), ('--only', 'nosuch', a, b), (a,),
                  ('--frobnicate', a, b), ('-o', 'io=nosuch', a, b), ('-t', '-1', a, b)):
        assert status(*words) == 2, words
    with open('/dev/full', 'wb') as full:
        r = subprocess.run([program, 'diff', a, b], stdout=full, stderr=subprocess.PIPE, text=True)
    assert r.returncode == 2 and 'cannot write the output' in r.stderr
    (b / '1500/config/more').write_text('text')
    assert status(a, b) == 1
    (b / '1500/state/_METADATA').write_text('{')
    r = run('diff', a, b, ok=False)
    assert r.returncode == 2 and '1500/config/more: only in B' in r.stdout and 'some could not be read' in r.stdout


VALUES = np.array([0, -0.0, 1, 1.0001, -3.75, 1e-3, 255.9, 6e4, 1e30, np.inf, -np.inf, np.nan], np.float32)


def differing(run, tmp_path, a, b, *options):
    """The number of elements that differ between two arrays."""
    files = [tmp_path / 'a.safetensors', tmp_path / 'b.safetensors']
    for file, array in zip(files, (a, b), strict=True):
        safetensors.numpy.save_file({'w': array}, file)
    r = run('diff', '--json', *options, *files, ok=False)
    found = json.loads(r.stdout)['differences']
    assert r.returncode == bool(found) and not [f for f in found if f['what'] != 'values'], r
    return sum(f['differing'] for f in found)


@pytest.mark.parametrize('atol, rtol', [(0.5, 0), (0, 0.01), (1e-3, 1e-3), (0, 10)])
def test_tolerances_are_those_of_numpy(run, tmp_path, atol, rtol):
    for b in (VALUES[::-1].copy(), VALUES * np.float32(1.001), np.nextafter(VALUES, np.float32(0))):
        with np.errstate(invalid='ignore'):
            want = (~np.isclose(VALUES.astype(np.float64), b.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True)).sum()
        assert differing(run, tmp_path, VALUES, b, '--atol', atol, '--rtol', rtol) == want


def test_relative_is_that_of_the_elements_beyond_the_tolerance(run, tmp_path):
    a, b = np.ones(4), np.array([1.05, 1.05, 1.05, 3])
    assert differing(run, tmp_path, a, b, '--atol', 0.1) == 1
    f, = json.loads(run('diff', '--json', '--atol', '0.1', tmp_path / 'a.safetensors', tmp_path / 'b.safetensors', ok=False).stdout)['differences']
    assert f['relative'] == 2 and np.isclose(f['rms'], np.sqrt(np.mean((b - a)**2)), rtol=1e-12)


@pytest.mark.parametrize('dtype', [ml_dtypes.bfloat16, np.float16, np.float64, np.int32])
def test_ignored_types(run, tmp_path, dtype):
    """Floats are compared in the narrower type; others by their values, so that no integer wraps."""
    a = VALUES if np.dtype(dtype).kind != 'i' else np.array([0, 1, -7, 2.5, 2.0**32 + 1, 1 << 20], np.float64)
    with np.errstate(all='ignore'):
        b = a.astype(dtype)
        # A NaN is equal to any other.
        want = (a != b.astype(np.float64)).sum() if np.dtype(dtype).kind == 'i' else 0
    for pair in ((a, b), (b, a)):
        assert differing(run, tmp_path, *pair, '--ignore-dtype') == want
    b[2] += 1
    assert differing(run, tmp_path, a, b, '--ignore-dtype') == want + 1
    assert json.loads(run('diff', '--json', *tmp_path.glob('*.safetensors'), ok=False).stdout)['differences'][0]['what'] == 'dtype'


def test_rms_relative_change_and_their_order(run, tmp_path):
    rng = np.random.default_rng(44)
    a = {'large': rng.standard_normal(2000) * 100, 'small': rng.standard_normal((40, 50)).astype(ml_dtypes.bfloat16), 'same': np.ones(3),
         'count': np.arange(9), 'phase': rng.standard_normal(7) * (1 + 2j), 'zeros': np.zeros(5, 'f4'), 'few': rng.standard_normal(2000),
         'far': np.array([1e200, 2, 3]), 'inf': np.array([1., 2]), 'nan': np.arange(4.)}
    b = {k: (v.astype(v.dtype.type(0).dtype) * 1.5).astype(v.dtype) if k != 'zeros' else v + 1 for k, v in a.items() if k != 'same'}
    b |= {'same': a['same'], 'large': a['large'] + 1e-3, 'few': np.where(np.arange(2000) == 77, a['few'] * 3, a['few']), 'far': -a['far'],
          'inf': np.array([np.inf, 2]), 'nan': np.array([0, np.nan, 2, np.inf])}
    files = [tmp_path / f'{name}.safetensors' for name in 'ab']
    for file, tensors in zip(files, (a, b), strict=True):
        safetensors.numpy.save_file({k: v for k, v in tensors.items() if k != 'phase'} | {'phase': tensors['phase'].astype('c8')}, file)
    a, b = (safetensors.numpy.load_file(file) for file in files)
    found = {f['path'].removesuffix('.npy'): f for f in json.loads(run('diff', '--json', *files, ok=False).stdout)['differences']}
    assert found.keys() == a.keys() - {'same'}
    for name, f in found.items():
        wide = np.complex128 if name == 'phase' else np.float64
        x, y = (v[name].astype(wide).ravel() for v in (a, b))
        with np.errstate(all='ignore'):
            far = np.where(np.isfinite(y - x), y - x, 0)
            rms, relative = np.sqrt(np.mean(abs(far)**2)), np.linalg.norm(far) / np.linalg.norm(x[far != 0])
        if name in ('far', 'inf', 'nan'):       # infinite: the squares of the first overflow
            assert f['rms'] is None and f['relative'] is None
            continue
        assert np.isclose(f['rms'], rms, rtol=1e-12), name
        assert f['relative'] is None if name == 'zeros' else np.isclose(f['relative'], relative, rtol=1e-12), name
    # Without a number, and where NaN is on one side, first; among equals in the order of the tree.
    odd = {'max_abs': ['inf', 'nan'], 'max_ulp': ['nan'], 'rms': ['far', 'inf', 'nan'], 'relative': ['far', 'inf', 'nan', 'zeros']}
    for key, first in odd.items():
        rows = [f['path'].removesuffix('.npy') for f in json.loads(run('diff', '--json', '--sort', key, *files, ok=False).stdout)['differences']]
        assert rows[:len(first)] == first and set(rows) == found.keys(), key
        values = [found[name].get(key, 0) for name in rows[len(first):]]
        assert values == sorted(values, reverse=True), key
    top = run('diff', '--top', '4', *files, ok=False)
    assert [line.partition('.npy')[0] for line in top.stdout.splitlines()[:-1]] == ['far', 'inf', 'nan', 'zeros']
    assert top.returncode == 1 and top.stdout.endswith('10 leaves compared, 1 the same, 9 differences, the largest printed\n'), top.stdout
    assert '1 element is NaN on one side only' in top.stdout
    assert json.loads(run('diff', '--json', '--top', '3', *files, ok=False).stdout)['omitted'] == 6
    for wrong in (['--sort', 'size'], ['--top', '0'], ['--top', '-1'], ['--top', '3x']):
        assert run('diff', *wrong, *files, ok=False).returncode == 2
