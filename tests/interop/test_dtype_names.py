# SPDX-License-Identifier: Apache-2.0
"""Names of types: the short names that people use, and numpy's header for types that it does not know."""

import io
import json
import os
import re

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
import safetensors.numpy

RAW = ['float8_e4m3fn', 'float8_e5m2fnuz', 'float8_e3m4', 'int4', 'bfloat16']


@pytest.fixture
def root(tmp_path):
    path = tmp_path / 'ckpts'
    path.mkdir()
    return path


def save(m, arrays, step=1):
    d = m / f'{step}.tmp/default'
    d.mkdir(parents=True)
    for name, a in arrays.items():
        np.save(d / f'{name}.npy', a)
    return d


W = np.arange(-4, 4, 0.5, dtype=np.float32).reshape(4, 4)


@pytest.mark.parametrize('short,name', [('bf16', 'bfloat16'), ('f16', 'float16'), ('f64', 'float64'), ('i8', 'int8'),
                                        ('f8_e4m3fn', 'float8_e4m3fn'), ('c64', 'complex64')])
def test_short_names(mount, run, root, tmp_path, short, name):
    m = mount(root)
    save(m, {'w': W}).parent.rename(m / '1')
    wanted = (m / f'1/default/w@{name}.npy').read_bytes()
    assert (m / f'1/default/w@{short}.npy').read_bytes() == wanted
    if short != 'c64':
        assert (m / f'1/default@{short}.safetensors').read_bytes() == (m / f'1/default@{name}.safetensors').read_bytes()
    shown = mount(root, f'restore_dtype={short}')
    assert (shown / '1/default/w.npy').read_bytes() == wanted
    run('convert', '-o', f'dtype={short}', root / '1', tmp_path / 'out')
    assert f'{name}[4,4]' in run('ls', '-l', tmp_path / 'out/default').stdout
    run('convert', '-o', f'rule=w:dtype={short}', root / '1', tmp_path / 'ruled')
    assert f'{name}[4,4]' in run('ls', '-l', tmp_path / 'ruled/default').stdout
    if short != 'c64':
        run('export', '--cast', short, root / '1/default', tmp_path / 'x.safetensors')
        run('export', '--cast', name, root / '1/default', tmp_path / 'y.safetensors')
        assert (tmp_path / 'x.safetensors').read_bytes() == (tmp_path / 'y.safetensors').read_bytes()


@pytest.mark.parametrize('short,name', [('f32', 'float32'), ('BF16', 'bfloat16'), ('f8_e5m2', 'float8_e5m2'), ('i16', 'int16')])
def test_short_names_in_attributes_and_transforms(mount, root, tmp_path, short, name):
    m = mount(root)
    d = save(m, {'w': W})
    (d / 'n.json').write_text('1.5' if name[0] in 'bf' else '3')
    os.setxattr(d / 'n.json', 'user.pytree.dtype', short.encode())
    os.setxattr(d / 'w.npy', 'user.pytree.save.dtype', short.encode())
    d.parent.rename(m / '1')
    for leaf in ('n.json', 'w.npy'):
        assert os.getxattr(m / '1/default' / leaf, 'user.pytree.dtype') == f'"{name}"'.encode(), leaf
    (tmp_path / 'rules.json').write_text(json.dumps({'rules': [{'key': 'w', 'value_fn': f'cast({short})'}]}))
    d = save(m, {'w': W}, 2)
    d.parent.rename(m / '2')
    shown = mount(root, f'transforms={tmp_path}/rules.json')
    assert (shown / '2/default/w.npy').read_bytes() == (m / f'2/default/w@{name}.npy').read_bytes()


@pytest.mark.parametrize('wrong', ['i4', 'f4', 'f128', 'bf', 'e4m3'])
def test_names_that_mean_something_else_are_none(mount, run, root, wrong):
    m = mount(root)
    save(m, {'w': W}).parent.rename(m / '1')
    assert not (m / f'1/default/w@{wrong}.npy').exists()
    assert run('ls', '-o', f'dtype={wrong}', root, ok=False).returncode == 2


@pytest.mark.parametrize('name', RAW)
def test_the_header_of_what_numpy_does_not_know_is_numpys(mount, root, name):
    """'<V1' for one byte: the same bytes as np.save writes, and they come back as they were."""
    a = W.astype(getattr(ml_dtypes, name))
    given = io.BytesIO()
    np.save(given, a)
    m = mount(root)
    d = save(m, {'w': a})
    os.setxattr(d / 'w.npy', 'user.pytree.dtype', name.encode())
    d.parent.rename(m / '1')
    assert (m / '1/default/w.npy').read_bytes() == given.getvalue()
    assert (b"'<V2'" if name == 'bfloat16' else b"'<V1'") in given.getvalue()[:128]


@pytest.mark.parametrize('name', ['int4', 'int2', 'float4_e2m1fn'])
def test_the_way_to_safetensors_that_the_message_names(run, tmp_path, name):
    """Small types are named in every other format, and become a wider one in a checkpoint."""
    a = np.array([[0, 1], [1, 0]]).astype(getattr(ml_dtypes, name))
    ocp.PyTreeCheckpointer().save(tmp_path / 'ck', {'q': a, 'f': np.float32(0.1)})
    r = run('export', tmp_path / 'ck', tmp_path / 'm.safetensors', ok=False)
    option = re.search(rf"no name for {name}: npy, npz and zarr files hold it, and 'pytreefs convert -o rule=GLOB:(dtype=\w+)'", r.stderr)[1]
    run('convert', '-o', f'rule=q:{option}', tmp_path / 'ck', tmp_path / 'wider')
    run('export', tmp_path / 'wider', tmp_path / 'm.safetensors')
    got = safetensors.numpy.load_file(tmp_path / 'm.safetensors')
    assert np.array_equal(got['q'].astype(a.dtype), a) and got['f'] == np.float32(0.1)
    for form in ('m.npz', 'm', 'm.zarr'):
        run('export', tmp_path / 'ck', tmp_path / form)
        run('convert', tmp_path / form, tmp_path / f'from-{form[2:]}')
        got = ocp.PyTreeCheckpointer().restore(tmp_path / f'from-{form[2:]}')['q']
        assert got.dtype == a.dtype and np.array_equal(got, a)
