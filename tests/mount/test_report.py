# SPDX-License-Identifier: Apache-2.0
"""`pytreefs report`: the document of D.json with the numbers of each array."""

import json
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

from lib import expect

SAMPLE = pathlib.Path(__file__).resolve().parents[1] / 'data' / 'sample'


def leaves(doc, at=()):
    for e in doc['entries']:
        if 'entries' in e:
            yield from leaves(e, at + (e['name'],))
        else:
            yield at + (e['name'],), e


def known_types(name):
    """Types whose numbers float64 holds exactly."""
    return name in ('bool', 'float16', 'float32', 'float64', 'bfloat16') or name.startswith(('int', 'uint'))


def test_numbers_are_numpys(run, cases):
    case = cases('matrix-ocdbt-zarr2-zstd-v0')
    doc = json.loads(run('report', '--json', case.path).stdout)
    seen = 0
    for path, e in leaves(doc):
        key = path[:-1] + (path[-1].rpartition('.')[0],)
        value = case.tree().leaves.get(key)
        if isinstance(value, expect.Scalar):
            value = value.array()
        if not isinstance(value, np.ndarray) or not known_types(value.dtype.name):
            continue
        wide = value.astype(np.float64)
        ok = wide[np.isfinite(wide)]
        s = e['stats']
        assert (s['nan'], s['inf']) == (int(np.isnan(wide).sum()), int(np.isinf(wide).sum())), key
        if not ok.size:
            assert s['min'] is None and 'histogram' not in e, key
            continue
        seen += 1
        assert [np.float64(value.dtype.type(s[k])) for k in ('min', 'max')] == [ok.min(), ok.max()], key
        assert s['mean'] == pytest.approx(ok.mean(), rel=1e-9, abs=1e-12), key
        counts = e['histogram']['counts']
        assert sum(counts) == ok.size and len(counts) == 48, key
        if ok.max() > ok.min():
            want = np.histogram(ok, 48, (ok.min(), ok.max()))[0]
            # An element on the border of two bins may fall to either side.
            assert np.abs(np.cumsum(counts) - np.cumsum(want)).max() <= max(2, ok.size // 100), key
    assert seen >= 8


def test_it_is_written_whole_or_not_at_all(run, tmp_path):
    out = tmp_path / 'r.html'
    run('report', SAMPLE / 'latest/state', out)
    first = out.read_bytes()
    assert b'"histogram"' in first and first.startswith(b'<!doctype html>')
    r = run('report', SAMPLE / 'latest/state', out, ok=False)
    assert r.returncode == 1 and 'r.html' in r.stderr
    run('report', '--force', SAMPLE / 'latest', out)
    assert out.read_bytes() != first and [p.name for p in tmp_path.iterdir()] == ['r.html']


def test_why_it_could_not_be_written(program, tmp_path):
    r = subprocess.run(['sh', '-c', 'ulimit -f 8; exec "$@"', 'sh', program, 'report',
                        SAMPLE / 'latest/state', tmp_path / 'r.html'], capture_output=True, text=True, timeout=240)
    assert r.returncode == 1 and f"'{tmp_path}/r.html' is not written" in r.stderr
    assert 'bytes: File too large' in r.stderr
    assert not os.listdir(tmp_path)


def test_a_root_is_a_page_of_steps(run, tmp_path):
    r = np.random.default_rng(2)
    arrays = {}
    for step in (3, 20, 100):
        arrays[step] = {'w': r.standard_normal((6, 5)).astype(np.float32), 'n': np.arange(step)}
        if step == 20:
            arrays[step]['w'][1, :2] = np.nan, np.inf
        for name, a in arrays[step].items():
            (tmp_path / f'in{step}').mkdir(exist_ok=True)
            np.save(tmp_path / f'in{step}/{name}.npy', a)
        run('save', tmp_path / f'in{step}', tmp_path / f'ckpts/{step}')
    doc = json.loads(run('report', '--json', tmp_path / 'ckpts').stdout)
    assert [s['name'] for s in doc['steps']] == ['3', '20', '100'] and doc['path'] == str(tmp_path / 'ckpts')
    for s in doc['steps']:
        a = arrays[int(s['name'])]
        finite = a['w'][np.isfinite(a['w'])].astype(np.float64)
        assert s['norm'] == pytest.approx(np.sqrt((finite ** 2).sum()))        # counters are not weights
        assert (s['leaves'], s['elements'], s['bytes']) == (2, 30 + len(a['n']), 120 + a['n'].nbytes)
        assert (s['nan'], s['inf'], s['unreadable']) == ((1, 1, 0) if s['name'] == '20' else (0, 0, 0))
        assert s['time'] > 1e9 and s['stored_bytes'] > 0
    only = json.loads(run('report', '--json', '--only', 'n', tmp_path / 'ckpts').stdout)['steps']
    assert [(s['leaves'], s['norm']) for s in only] == [(1, None)] * 3
    np.save(tmp_path / 'in100/late.npy', np.ones(7, np.float32))
    run('save', tmp_path / 'in100', tmp_path / 'ckpts/200')
    only = json.loads(run('report', '--json', '--only', 'late', tmp_path / 'ckpts').stdout)['steps']
    assert [(s['leaves'], s['elements'], s['bytes']) for s in only] == [(0, 0, 0)] * 3 + [(1, 7, 28)]
    shutil.rmtree(tmp_path / 'ckpts/200')
    run('report', tmp_path / 'ckpts', tmp_path / 'steps.html')
    page = (tmp_path / 'steps.html').read_text()
    assert json.loads(page.partition('id="document">')[2].partition('</script>')[0].replace('\\u003c', '<')) == doc
    assert run('report', '--only', 'nosuch', tmp_path / 'ckpts', ok=False).returncode == 1


def test_a_step_that_cannot_be_read_is_a_row_of_its_own(run, tmp_path):
    """It has lost its items, or is a tree whose _METADATA is truncated, or has an item like that."""
    for step, damage in (('1100', 'items'), ('1200', 'tree'), ('1300', 'item')):
        shutil.copytree(SAMPLE / '1000', tmp_path / 'ck' / step)
        at = tmp_path / 'ck' / step
        if damage == 'tree':
            shutil.move(at / 'state', tmp_path / 'tree')
            shutil.rmtree(at)
            shutil.move(tmp_path / 'tree', at)
        if damage == 'items':
            shutil.rmtree(at)
            at.mkdir()
        else:
            os.truncate(at / ('_METADATA' if damage == 'tree' else 'state/_METADATA'), 100)
    shutil.copytree(SAMPLE / '1500', tmp_path / 'ck/1500')
    r = run('report', '--json', tmp_path / 'ck', ok=False)
    rows = {s['name']: s for s in json.loads(r.stdout)['steps']}
    assert r.returncode == 1 and list(rows) == ['1100', '1200', '1300', '1500'] and rows['1500']['leaves'] == 78
    assert [rows[s]['unreadable'] for s in rows] == [1, 1, 1, 0]
    assert 'holds no items' in rows['1100']['error'] and "'_METADATA': line 1" in rows['1200']['error'] and rows['1200']['time'] is None
    assert all(f"pytreefs: '{s}" in r.stderr for s in ('1100', '1200', '1300'))
    r = run('report', tmp_path / 'ck', tmp_path / 'o.html', ok=False)
    assert r.returncode == 1 and "pytreefs: '1200': " in r.stderr and '"error": "step' in (tmp_path / 'o.html').read_text().replace('":"', '": "')
    assert "'1100'" in run('stats', '--only', 'rng', tmp_path / 'ck', ok=False).stderr


def test_only_some_leaves_are_read(run):
    doc = json.loads(run('report', '--json', '--only', '**/mu/**', SAMPLE / '1000/state').stdout)
    for path, e in leaves(doc):
        assert ('histogram' in e) == ('mu' in path and 'dtype' in e), path
