# SPDX-License-Identifier: Apache-2.0
"""Leaf views against numpy: any box x cast x shape, by a mount and by `pytreefs cat`, sizes included."""

import io
import json
import os
import random
import subprocess
import warnings

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from lib import compare, expect
from lib.pairs import LONG

CASES = ('views-ocdbt-zarr2', 'views-ocdbt-zarr3', 'views-perleaf-zarr2')
VIEWS = 2000 if LONG else 600     # over all cases
PLAIN = 'biufc'
CASTS = ['bool', 'int2', 'int4', 'int8', 'int16', 'int32', 'int64', 'uint8', 'uint16', 'uint32', 'uint64',
         'float4_e2m1fn', 'float8_e3m4', 'float8_e4m3fn', 'float8_e4m3fnuz', 'float8_e4m3b11fnuz',
         'float8_e5m2', 'float8_e5m2fnuz', 'float8_e8m0fnu', 'bfloat16', 'float16', 'float32', 'float64',
         'complex64', 'complex128']


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def reshaped(a, shape):
    """Truncated or padded with zeros, axis by axis."""
    out = np.zeros(shape, a.dtype)
    common = tuple(slice(0, min(n, m)) for n, m in zip(a.shape, shape))
    out[common] = a[common]
    return out


def random_slice(rng, n):
    """(text, index) of one axis that has n positions; nothing leaves the bounds."""
    if n and rng.random() < 0.2:
        i = rng.randrange(-n, n)
        return str(i), i

    def end():
        if rng.random() < 0.3:
            return '', None
        i = rng.randrange(-n, n + 1) if n else 0
        return str(i), i

    (a, start), (b, stop) = end(), end()
    step = rng.choice((None, None, 1, 2, 3, 7))
    text = f'{a}:{b}' + ('' if step is None else f':{step}')
    return text, slice(start, stop, step)


def random_box(rng, shape):
    """(text, index): some axes may be left to an ellipsis, or to nothing after the last."""
    n = rng.randrange(1, len(shape) + 1) if shape else 0
    dots = rng.random() < 0.3 or n == 0
    front = rng.randrange(n + 1) if dots else n
    axes = list(range(front)) + list(range(len(shape) - (n - front), len(shape)))
    parts = [random_slice(rng, shape[i]) for i in axes]
    if dots:
        parts.insert(front, ('...', Ellipsis))
    return '[' + ','.join(t for t, _ in parts) + ']', tuple(i for _, i in parts)


def random_view(rng, a):
    """(name's middle, the array that numpy makes of it), or None where numpy has no such cast."""
    box = cast = shape = ''
    out = a
    if a.ndim and rng.random() < 0.35:
        # All axes longer or all shorter: a shape that mixes them is refused.
        longer = rng.random() < 0.5
        extents = tuple(rng.choice((n, rng.randrange(n, 2 * n + 3) if longer else rng.randrange(0, n + 1)))
                        for n in a.shape)
        shape = '@' + 'x'.join(map(str, extents))
        out = reshaped(out, extents)
    if rng.random() < 0.75:
        box, index = random_box(rng, out.shape)
        out = out[index]
    if rng.random() < 0.5:
        name = rng.choice(CASTS)
        # Zero is not a number of float8_e8m0fnu, so what padding casts to is a matter of taste.
        if shape and 'e8m0' in name + a.dtype.name:
            return None
        cast = '@' + name
        try:
            out = np.asarray(out).astype(dtype_of(name))
        except (TypeError, ValueError):
            return None
    return ''.join(rng.sample([box, cast, shape], 3)), np.asarray(out)


def draw(seed, leaves, n):
    rng = random.Random(seed)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        while n:
            key, a = rng.choice(leaves)
            view = random_view(rng, a)
            if view:
                n -= 1
                yield '/'.join(key) + view[0], view[1], rng.choice(('.npy', '.npy', '.bin'))


def array_of(raw, want):
    """Load a file with np.load, and restore the type that its header cannot name."""
    got = np.load(io.BytesIO(raw))
    return got.view(want.dtype) if got.dtype.kind == 'V' else got


def fault_of(name, ext, raw, want):
    if ext == '.bin':
        return None if raw == expect.canonical_bytes(want) else f'{name}: other bytes'
    got = array_of(raw, want)
    if not expect.same_bits(got, want):
        return f'{name}: {got.dtype}{got.shape}, want {want.dtype}{want.shape}: {got.ravel()[:6]} {want.ravel()[:6]}'
    return None


@pytest.mark.feature('A5', 'A6')
@pytest.mark.parametrize('part', range(len(CASES)))
def test_random_views(mount, program, cases, part):
    case = cases(CASES[part])
    leaves = list(case.tree().leaves.items())
    m = mount(case.path)
    count = VIEWS // len(CASES) + (part < VIEWS % len(CASES))
    views = list(draw(part, leaves, count))
    faults, by_mount = [], []
    for name, want, ext in views:
        path = m / (name + ext)
        raw = compare.read_all(path)
        by_mount.append(raw)
        if os.stat(path).st_size != len(raw):
            faults.append(f'{name}: st_size {os.stat(path).st_size}, {len(raw)} bytes are read')
        faults.append(fault_of(name, ext, raw, want))
    faults = [f for f in faults if f]
    assert not faults, '\n'.join(faults[:20])
    # The same bytes without a mount, many views at a time: their sizes say where one ends.
    for i in range(0, len(views), 40):
        paths = [str(case.path / (name + ext)) for name, _, ext in views[i:i + 40]]
        r = subprocess.run([program, 'cat', *paths], capture_output=True)
        assert r.returncode == 0, r.stderr.decode()
        assert r.stdout == b''.join(by_mount[i:i + 40])


def test_maps_and_seeks_of_views(mount, cases):
    """np.load(mmap_mode='r') and pread at any offset of a view."""
    case = cases('views-ocdbt-zarr2')
    m = mount(case.path)
    rng = random.Random(5)
    for name, want, ext in draw(99, list(case.tree().leaves.items()), 150):
        path = m / (name + ext)
        if ext == '.npy' and want.size:
            assert expect.same_bits(np.asarray(compare.npy_array(path, want.dtype, 'r')), want), name
        raw = compare.read_all(path)
        with open(path, 'rb', buffering=0) as f:
            for _ in range(4):
                off, n = rng.randrange(len(raw) + 1), rng.randrange(1, 5000)
                assert os.pread(f.fileno(), n, off) == raw[off:off + n], name


def as_json(a):
    """The nested lists that a .json view holds: numbers, and strings for what is not a number."""
    def one(x):
        if isinstance(x, complex):
            return [one(x.real), one(x.imag)]
        if isinstance(x, float) and not np.isfinite(x):
            return 'NaN' if np.isnan(x) else 'Infinity' if x > 0 else '-Infinity'
        return x

    def walk(x):
        return [walk(y) for y in x] if isinstance(x, list) else one(x)

    wide = a if a.dtype.kind in 'biuc' else a.astype(np.float64)
    if a.dtype.name in ('int2', 'int4'):
        wide = a.astype(np.int8)
    return walk(wide.tolist())


def test_json_of_small_arrays(mount, cases):
    """Nested lists whose numbers are the elements: equal when rounded to the type again."""
    case = cases('views-perleaf-zarr2')
    m = mount(case.path)
    for (dtype, shape), a in case.tree().leaves.items():
        got = json.loads(compare.read_all(m / dtype / (shape + '.json')))
        want = as_json(np.asarray(a))
        if a.dtype.kind in 'biu' or a.dtype.name in ('int2', 'int4'):
            assert got == want, (dtype, shape)
            continue
        back = np.asarray(got, np.float64)
        if a.dtype.kind == 'c':
            back = (back[..., 0] + 1j * back[..., 1])
        assert expect.same_bits(back.astype(a.dtype).reshape(a.shape), a), (dtype, shape)


def test_json_of_bfloat16_has_the_digits_that_its_page_says(run, tmp_path):
    value = np.array([0x3dcd], np.uint16).view(ml_dtypes.bfloat16)
    safetensors.numpy.save_file({'w': value}, tmp_path / 'a.safetensors')
    assert run('cat', tmp_path / 'a.safetensors/w.json').stdout == '[0.1]\n' and ml_dtypes.bfloat16(0.1) == value[0]
    assert run('cat', tmp_path / 'a.safetensors/w@float64.json').stdout == f'[{float(value[0])!r}]\n'


def test_every_leaf_answers_to_every_extension_that_can_carry_it(mount, cases):
    case = cases('matrix-ocdbt-zarr2-zstd-v0')
    m = mount(case.path)
    assert np.load(m / 'step.npy').item() == 100 and np.load(m / 'step.npy').shape == ()
    assert np.frombuffer(compare.read_all(m / 'step.bin'), '<i8').tolist() == [100]
    assert json.loads(compare.read_all(m / 'name.json')) == case.tree().leaves['name',]
    assert compare.read_all(m / 'name.bin').decode() == case.tree().leaves['name',]
    assert json.loads(compare.read_all(m / 'none.json')) is None
    assert json.loads(compare.read_all(m / 'rank0.json')) == 2.5
    assert np.load(m / 'step@float32.npy').dtype == np.float32
    for wrong in ('step.txt', 'name.npy', 'none.npy', 'none.bin', 'rank0.null', 'step.null', 'none.txt'):
        assert not os.path.exists(m / wrong), wrong


WRONG = ['[0:41].npy', '[41:].npy', '[0:1,0:13].npy', '[0,0,0].npy', '[40].npy', '[-41].npy', '[0:1:0].npy',
         '[1:2:-1].npy', '@nosuch.npy', '@8.npy', '@8x8x8.npy', '[0:1', '[a].npy', '@.npy', '[0:1]', '[00:1].npy',
         '@8x8@4x4.npy', '@int8@int8.npy', '[0:1]@8x8[0:1].npy', '@20x20.npy', '@60x6.npy', '[...,...].npy', '[+1].npy', '@float32.txt', '[0].null', '@9000000x0.json']


def test_names_that_make_no_sense(mount, cases):
    """ENOENT, nothing clipped, and the log says why for those whose extension is ours."""
    case = cases('matrix-ocdbt-zarr2-zstd-v0')
    m = mount(case.path, allow_errors=True)
    for name in WRONG:
        with pytest.raises(FileNotFoundError):
            os.stat(m / 'params' / ('embed' + name))
    log = '\n'.join(m.log_lines())
    for name in WRONG:
        if '.' in name.rpartition(']')[2]:
            assert f"'params/embed{name}'" in log, name
    assert 'axis 0, which has 40 positions' in log
    assert 'truncates axis 0 (40 to 20) and pads axis 1 (12 to 20): this is not a reshape' in log
    assert 'the shape has 1 axis, the array has 2: a shape pads and truncates, it does not reshape' in log


def test_views_are_never_listed(mount, cases):
    case = cases('matrix-ocdbt-zarr2-zstd-v0')
    m = mount(case.path)
    before = sorted(os.listdir(m / 'params'))
    for name in ('embed[0:3].npy', 'embed.bin', 'embed@float32.npy', 'embed.json'):
        assert os.path.exists(m / 'params' / name)
    assert sorted(os.listdir(m / 'params')) == before
