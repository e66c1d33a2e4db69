# SPDX-License-Identifier: Apache-2.0
"""One rule for patterns: rule=, aggregate=, priority= and --only choose the same leaves, in a mount and in every command."""

import json
import pathlib
import re

import numpy as np
import pytest

from lib.pairs import LONG

TOP = pathlib.Path(__file__).resolve().parents[2]
PLAIN = ['params/dense/kernel', 'params/dense/bias', 'params/scale', 'opt/params/dense/kernel', 'opt/dense/kernel', 'step',
         'kernel/w']
# The leaves that each pattern selects in an item 'state'.
CHOOSES = {
    'kernel': ['params/dense/kernel', 'opt/params/dense/kernel', 'opt/dense/kernel'],
    'kernel.npy': ['params/dense/kernel', 'opt/params/dense/kernel', 'opt/dense/kernel'],
    'params/dense/kernel': ['params/dense/kernel'],
    'params/dense/kernel.npy': ['params/dense/kernel'],
    'state/params/dense/kernel': ['params/dense/kernel'],
    'params/dense': ['params/dense/kernel', 'params/dense/bias'],
    'params/**': ['params/dense/kernel', 'params/dense/bias', 'params/scale'],
    'params/': ['params/dense/kernel', 'params/dense/bias', 'params/scale'],
    'params/*': ['params/scale'],
    '**/dense/*': ['params/dense/kernel', 'params/dense/bias', 'opt/params/dense/kernel', 'opt/dense/kernel'],
    '**/kernel': ['params/dense/kernel', 'opt/params/dense/kernel', 'opt/dense/kernel', 'kernel/w'],
    's*': ['params/scale', 'step'],
    '/step': ['step'],
    'opt/**/kernel': ['opt/params/dense/kernel', 'opt/dense/kernel'],
    '**': PLAIN,
    'state/**': PLAIN,
    '[!a-r]*': ['params/scale', 'step', 'kernel/w'],
    '?': ['kernel/w'],
}


@pytest.fixture(scope='module')
def source(tmp_path_factory, program):
    """A step whose item 'state' has those leaves."""
    import subprocess
    top = tmp_path_factory.mktemp('patterns')
    for i, path in enumerate(PLAIN):
        (top / 'in' / path).parent.mkdir(parents=True, exist_ok=True)
        np.save(top / 'in' / f'{path}.npy', np.full((4,), i, np.float32))
    subprocess.run([program, 'save', '--item', 'state', top / 'in', top / 'ckpts/1'], check=True)
    return top


def with_dtype(run, path, dtype):
    """The leaves of an item that have a dtype, by the paths that `stats` prints."""
    out = json.loads(run('stats', '--json', path).stdout)
    return sorted(leaf['path'].removesuffix('.npy') for leaf in out if leaf['dtype'] == dtype)


@pytest.mark.parametrize('pattern', CHOOSES)
def test_only(run, source, tmp_path, pattern):
    item, wanted = source / 'ckpts/1/state', sorted(CHOOSES[pattern])
    chosen = [leaf['path'].removesuffix('.npy') for leaf in json.loads(run('stats', '--json', '--only', pattern, item).stdout)]
    assert sorted(chosen) == wanted
    run('convert', '--only', pattern, item, tmp_path / 'ck')
    assert with_dtype(run, tmp_path / 'ck', 'float32') == wanted
    run('export', '--only', pattern, item, tmp_path / 'x.npz')
    assert sorted(name.removesuffix('.npy') for name in np.load(tmp_path / 'x.npz').files) == wanted
    assert json.loads(run('verify', '--json', '--only', pattern, item).stdout)['leaves'] == len(wanted)
    assert json.loads(run('diff', '--json', '--only', pattern, item, item).stdout)['compared'] == len(wanted)
    if not pattern.startswith('state/'):
        run('save', '--only', pattern, source / 'in', tmp_path / 'saved/1')
        assert with_dtype(run, tmp_path / 'saved/1/default', 'float32') == wanted


# Rules know keys, not names of files. In the shorter run each is tried with rule=, and with one of the others.
KEYS = [p for p in CHOOSES if not p.endswith('.npy')]


@pytest.mark.parametrize('pattern', KEYS)
@pytest.mark.option('rule')
def test_rules_mean_the_same_in_a_mount_and_in_convert(run, mount, source, tmp_path, pattern):
    wanted = sorted(CHOOSES[pattern])
    run('convert', '-o', f'rule={pattern}:dtype=float16', source / 'ckpts/1/state', tmp_path / 'item')
    assert with_dtype(run, tmp_path / 'item', 'float16') == wanted
    run('convert', '-o', f'rule={pattern}:dtype=float16', source / 'ckpts/1', tmp_path / 'step')
    assert with_dtype(run, tmp_path / 'step/state', 'float16') == wanted
    (tmp_path / 'root').mkdir()
    m = mount(tmp_path / 'root', f'rule={pattern}:dtype=float16')
    fill(m)
    assert with_dtype(run, tmp_path / 'root/1/state', 'float16') == wanted
    assert not [line for line in m.log_lines() if 'matches no' in line]


def fill(m, step='1'):
    for i, path in enumerate(PLAIN):
        (m / f'{step}.tmp/state' / path).parent.mkdir(parents=True, exist_ok=True)
        np.save(m / f'{step}.tmp/state' / f'{path}.npy', np.full((4,), i, np.float32))
    (m / f'{step}.tmp').rename(m / step)


def in_legacy_file(item):
    """The leaves of an item in directory layout that have no directory: the legacy file holds them."""
    chosen = [path for path in PLAIN if not (item / path.replace('/', '.') / '.zarray').exists()]
    assert (item / 'checkpoint').exists() == bool(chosen)
    return sorted(chosen)


@pytest.mark.parametrize('pattern', KEYS if LONG else KEYS[::2])
@pytest.mark.option('aggregate')
def test_aggregate_means_the_same_in_a_mount_and_in_convert(run, mount, source, tmp_path, pattern):
    wanted = sorted(CHOOSES[pattern])
    for n, path in enumerate(('ckpts/1/state', 'ckpts/1')):
        run('convert', '-o', f'ocdbt=off,aggregate={pattern}', source / path, tmp_path / f'out{n}')
    (tmp_path / 'root').mkdir()
    fill(mount(tmp_path / 'root', 'ocdbt=off', f'aggregate={pattern}'))
    for item in ('out0', 'out1/state', 'root/1/state'):
        assert in_legacy_file(tmp_path / item) == wanted, item


@pytest.mark.parametrize('pattern', KEYS if LONG else KEYS[1::2])
@pytest.mark.option('priority')
def test_priority_means_the_same_in_a_mount_and_in_convert(run, mount, source, tmp_path, pattern):
    """The trace tells in which order one thread takes the leaves: what is chosen comes before all others."""
    options, wanted = ('trace=leaf', 'threads=1', f'priority={pattern}'), CHOOSES[pattern]
    for n, path in enumerate(('ckpts/1/state', 'ckpts/1')):
        said = run('convert', '-o', ','.join((*options, 'zarr=3')), source / path, tmp_path / f'out{n}').stderr
        order = list(dict.fromkeys(re.findall(r"write '(?:state/)?(\S+?)\.npy'", said)))
        assert sorted(order) == sorted(PLAIN) and set(order[:len(wanted)]) == set(wanted), order
    (tmp_path / 'root').mkdir()
    m = mount(tmp_path / 'root', *options)
    fill(m)
    # Here the trace has last names only, and a leaf that was chosen has its turn once more.
    order = [name for line in m.log_lines() for name in re.findall(r"seal '(\w+)\.npy'", line)]
    chosen, every = ([path.rpartition('/')[2] for path in paths] for paths in (wanted, PLAIN))
    assert sorted(order) == sorted(chosen + every) and sorted(order[:len(wanted)]) == sorted(chosen), order


def test_a_part_of_an_item_is_matched_from_the_item_too(run, source, tmp_path):
    part = source / 'ckpts/1/state/params'
    for n, pattern in enumerate(['state/params/dense/*', 'params/dense/*', 'dense/*']):
        run('convert', '-o', f'rule={pattern}:dtype=float16', part, tmp_path / f'{n}')
        assert with_dtype(run, tmp_path / f'{n}', 'float16') == ['dense/bias', 'dense/kernel']
        out = json.loads(run('stats', '--json', '--only', pattern, part).stdout)
        assert [leaf['path'] for leaf in out] == ['dense/bias.npy', 'dense/kernel.npy']


# ---- a pattern that chooses nothing ----

@pytest.mark.parametrize('option,told', [
    ('rule=nosuch/**:dtype=float16', "rule 'nosuch/**:dtype=float16' matches no leaf of '1'"),
    ('rule=nosuch:zarr=3', "rule 'nosuch:zarr=3' matches no item of '1'"),
    ('aggregate=nosuch', "rule 'nosuch:aggregate=all' matches no leaf of '1'"),
    ('priority=nosuch/*', "priority='nosuch/*' matches no leaf of '1'")], ids=lambda w: w.split('=')[0])
def test_options_that_choose_nothing_say_so(run, mount, source, tmp_path, option, told):
    (tmp_path / 'root').mkdir()
    m = mount(tmp_path / 'root', option)
    (m / '1.tmp/state').mkdir(parents=True)
    np.save(m / '1.tmp/state/w.npy', np.zeros(4, np.float32))
    (m / '1.tmp').rename(m / '1')
    assert len([line for line in m.log_lines() if told in line]) == 1
    r = run('convert', '-o', option, source / 'ckpts/1', tmp_path / 'out')
    assert told.replace("'1'", "'out'") in r.stderr
    good = option.replace('nosuch', 'state' if 'zarr' in option else 'params')
    r = run('convert', '-o', good if good != 'aggregate=params' else 'aggregate=kernel', source / 'ckpts/1', tmp_path / 'good')
    assert r.stderr == ''


@pytest.mark.parametrize('command', ['stats', 'verify', 'report', 'convert', 'export', 'save', 'diff'])
def test_only_that_chooses_nothing_is_an_error(run, source, tmp_path, command):
    """Also where another pattern chooses something; what would be written is not."""
    item, out = source / 'ckpts/1/state', tmp_path / 'out/1'
    out.parent.mkdir()
    words = {'save': [source / 'in', out], 'diff': [item, item], 'stats': [item], 'verify': [item]}.get(command, [item, out])
    for only in (['nosuch/*'], ['step', 'nosuch/*']):
        r = run(command, *[word for pattern in only for word in ('--only', pattern)], *words, ok=False)
        assert r.returncode == (2 if command in ('diff', 'stats', 'verify') else 1) and "no leaf matches 'nosuch/*'" in r.stderr
        assert not list(out.parent.iterdir())
    r = run(command, '--only', 'dense', *words, ok=False)
    assert r.returncode == (2 if command in ('diff', 'stats', 'verify') else 1) and "no leaf is called 'dense', a directory is: --only '**/dense/'" in r.stderr


def test_the_help(run):
    text, page = run('help', 'patterns').stdout, (TOP / 'docs/options.md').read_text()
    rows = re.findall(r'^  (\S+) +(.+)$', text, re.M)
    assert len(rows) >= 10 and all(f'* `{pattern}`: ' in page for pattern, _ in rows)
    assert 'help patterns' in run('--help').stdout
