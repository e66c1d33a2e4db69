# SPDX-License-Identifier: Apache-2.0
"""ls, tree and stats: --only, totals, and an exit status for what is not a number."""

import json
import pathlib
import re
import shutil

import numpy as np
import pytest

SAMPLE = pathlib.Path(__file__).resolve().parents[1] / 'data' / 'sample'


@pytest.fixture
def faulty(run, tmp_path):
    arrays = {'a/clean': np.ones((3, 2), np.float32), 'a/nan': np.array([1, np.nan, np.nan]), 'b/inf': np.array([np.inf, 2]),
              'b/n': np.arange(5)}
    for path, a in arrays.items():
        (tmp_path / 'in' / path).parent.mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / 'in' / f'{path}.npy', a)
    run('save', tmp_path / 'in', tmp_path / 'ckpts/1')
    return tmp_path / 'ckpts'


def leaves(entries, at=''):
    for e in entries:
        if 'entries' in e:
            yield from leaves(e['entries'], f'{at}{e["name"]}/')
        elif e['type'] == 'file':
            yield at + e['name'], e


def test_tree_and_ls_show_what_only_chooses(run, faulty):
    for only, wanted in (('inf', ['b/inf.npy']), ('a/', ['a/clean.npy', 'a/nan.npy']), ('**/n*', ['a/nan.npy', 'b/n.npy'])):
        doc = json.loads(run('tree', '--json', '--only', only, faulty / '1/default').stdout)
        assert [path for path, _ in leaves(doc)] == wanted
        lines = run('tree', '--only', only, faulty).stdout
        assert [name for name in re.findall(r'(\w+\.npy)', lines)] == [w.rpartition('/')[2] for w in wanted]
        assert '`-- 1/' in lines and '`-- default/' in lines and '_METADATA' not in lines
        rows = json.loads(run('ls', '--json', '--only', only, faulty / '1/default').stdout)
        assert [row['name'] for row in rows] == sorted({w.partition('/')[0] for w in wanted})
        assert run('ls', '--only', only, faulty).stdout == '1/\n'
    for command in ('ls', 'tree'):
        r = run(command, '--only', 'nosuch', faulty, ok=False)
        assert r.returncode == 1 and "no leaf matches 'nosuch'" in r.stderr and not r.stdout


def test_trees_have_totals(run, faulty):
    lines = run('tree', faulty / '1/default').stdout.splitlines()
    row = next(line for line in lines if line.startswith('|-- a/'))
    assert re.fullmatch(r'\|-- a/  2 files, 9 elements, 304 B, \d+ B stored', row)
    assert re.fullmatch(r'2 directories, 5 files, 16 elements, .* stored', lines[-1])
    # Totals count what is below the depth that is printed.
    for depth in (1, 2, 9):
        cut = run('tree', '-d', str(depth), faulty).stdout.splitlines()
        assert cut[-1] == run('tree', faulty).stdout.splitlines()[-1] and any('a/  2 files' in line for line in cut) == (depth > 2)
        assert re.fullmatch(r'`-- 1/  6 files, 16 elements, .* stored', cut[1]) and (len(cut) == 4) == (depth == 1), cut
    (cut,) = json.loads(run('tree', '-d', '1', '--json', faulty).stdout)
    assert 'entries' not in cut and (cut['files'], cut['elements']) == (6, 16)
    doc = json.loads(run('tree', '--json', SAMPLE / '1000').stdout)

    def check(entries):
        for e in entries:
            if 'entries' in e:
                below = [leaf for _, leaf in leaves(e['entries'])]
                assert (e['files'], e['total_bytes'], e['total_stored_bytes']) == (
                    len(below), sum(leaf['bytes'] for leaf in below), sum(leaf['stored_bytes'] for leaf in below))
                assert e['elements'] == sum(int(np.prod(leaf['shape'])) for leaf in below if 'shape' in leaf)
                check(e['entries'])
    check(doc)
    assert any('entries' in e for e in doc)


def test_statistics_of_nothing_say_so(run, tmp_path):
    """A step of JSON only has no leaf: no output and status 0 alone would pass for a tree without faults."""
    config = tmp_path / 'root/1/config'
    config.mkdir(parents=True)
    (config / 'metadata').write_text('{"a": 1}')
    (tmp_path / 'root/1/commit_success.txt').touch()
    (tmp_path / 'root/1/_CHECKPOINT_METADATA').write_text('{"item_handlers": {"config": "orbax.checkpoint.JsonCheckpointHandler"}}')
    for source in tmp_path / 'root', tmp_path / 'root/1':
        r = run('stats', source)
        assert r.stdout == '' and r.stderr == f"pytreefs: '{source}' has no leaves\n"


@pytest.mark.parametrize('words,status,said', [
    ([], 0, None), (['--fail-on', 'nan'], 1, "2 NaN and 0 Inf in 1 leaf, the first is '1/default/a/nan.npy'"),
    (['--fail-on', 'inf'], 1, "0 NaN and 1 Inf in 1 leaf, the first is '1/default/b/inf.npy'"),
    (['--fail-on', 'nan,inf'], 1, '2 NaN and 1 Inf in 2 leaves'), (['--fail-on', 'Inf,NaN'], 1, 'in 2 leaves'),
    (['--fail-on', 'nan', '--only', 'b/**'], 0, None), (['--fail-on', 'nan,inf', '--only', 'clean'], 0, None),
    (['--fail-on', 'zero'], 2, "not 'zero'"), (['--fail-on', ''], 2, '--fail-on takes'), (['--fail-on', 'nan,'], 1, '2 NaN')])
def test_what_is_not_a_number_fails(run, faulty, words, status, said):
    r = run('stats', *words, faulty, ok=False)
    assert r.returncode == status and (said in r.stderr if said else not r.stderr)
    if status < 2:
        shown = json.loads(run('stats', '--json', *words, faulty, ok=False).stdout)
        assert len(shown) == (4 if '--only' not in words else 2 if 'b/**' in words else 1)


def test_a_tree_with_a_name_beside_steps(run, mount, tmp_path):
    """It does not make a step of the directory; only steps are shown. In a step that no file marks it is an item, as before."""
    shutil.copytree(SAMPLE, tmp_path / 'ck')
    run('convert', '--layout', 'v0', SAMPLE / '1500/state', tmp_path / 'ck/best')
    assert run('ls', tmp_path / 'ck').stdout == '1000/\n1500/\n'
    assert np.load(mount(tmp_path / 'ck') / 'latest/state/params/embed/table[0:1]@float32.npy').shape == (1, 32)
    assert ' 0 differences' in run('diff', tmp_path / 'ck/best', SAMPLE / '1500/state').stdout
    shutil.rmtree(tmp_path / 'ck/1000')
    for name in ('_CHECKPOINT_METADATA', 'commit_success.txt'):
        (tmp_path / 'ck/1500' / name).unlink(missing_ok=True)
    assert 'best/' in run('ls', tmp_path / 'ck').stdout
