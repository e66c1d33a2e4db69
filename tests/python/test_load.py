# SPDX-License-Identifier: Apache-2.0
"""Arguments of load() besides the whole tree, and its errors."""

import collections
import concurrent.futures
import errno
import json
import os
import pathlib
import pickle
import resource
import shutil
import subprocess
import sys
import warnings

import flax.serialization
import msgpack
import ml_dtypes
import numpy as np
import pytest

import pytreefs
from lib import servers

SAMPLE = pathlib.Path(__file__).resolve().parents[1] / 'data' / 'sample'
STATE = SAMPLE / '1500' / 'state'


@pytest.fixture(scope='module')
def whole():
    return pytreefs.load(STATE)


def equal(a, b):
    if isinstance(a, dict):
        return type(b) is dict and a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return type(a) is type(b) and a == b


# ---- only ----

def test_only_opens_what_it_chooses(cases):
    """From a server each leaf that is opened costs a round trip."""
    asked = []
    case = cases('matrix-perleaf-zarr2-zstd-v0')
    with servers.faulty(case.path, lambda path, offset: asked.append(path)) as url:
        got = pytreefs.load(url, only='params/dense/')
    assert equal(got, {'params': {'dense': pytreefs.load(case.path)['params']['dense']}})
    opened = {path.strip('/').split('/')[0] for path in asked if path.endswith('.zarray')}
    assert opened == {'params.dense.bias', 'params.dense.kernel'}


@pytest.mark.parametrize('other', [['a0', 'a', 'b', 'c'], ['b'], ['a', 'x', 'c']])
def test_an_item_that_is_replaced_meanwhile_gives_no_other_leaf(tmp_path, other):
    """Leaves are chosen by their names, and then described by their places in the tree."""
    for step, names in ((1, ['a', 'b', 'c']), (2, other)):
        pytreefs.save(tmp_path / str(step), {name: np.full(4, ord(name[-1]), 'f4') for name in names})
    item = tmp_path / '1/default'

    def only(path):
        if path == 'a':
            shutil.rmtree(item)
            shutil.copytree(tmp_path / '2/default', item)
        return path == 'b'

    with pytest.raises(pytreefs.Error, match='was replaced while it was read') as e:
        pytreefs.load(tmp_path / '1', only=only)
    assert e.value.errno == errno.ESTALE and e.value.filename == str(item)


# Patterns, and what `pytreefs ls --only` chooses: leaves of the sample.
PATTERNS = ['table', 'tab*', 'params/embed/table', 'state/params/embed/table', 'params/embed', 'params/', 'params/**', 'params/*',
            '**/bias', '/step', 'layers/[0-1]/*', 'opt_state/0/mu/layers/?/**', 'opt_state/**/scale', '[!a-p]*', 'step.json', '*.npy']


@pytest.mark.parametrize('pattern', PATTERNS)
def test_patterns_choose_what_the_commands_choose(run, pattern):
    r = run('stats', '--json', '--only', pattern, STATE, ok=False)
    chosen = {line.split('"')[3].rpartition('.')[0] for line in r.stdout.splitlines() if '"path"' in line}
    try:
        # The command has no numbers of strings and None.
        got = {k for k, v in pytreefs.load_flat(STATE, '/', only=pattern).items() if not isinstance(v, str)}
    except pytreefs.Error as e:
        assert 'matches no leaf' in str(e)
        got = set()
    assert got == chosen



def test_errors_are_those_of_python_too(tmp_path):
    """Of the class that a program would catch for a file, whichever function meets it; with the number and the name."""
    missing = tmp_path / 'nothing' / 'more' / '7'
    calls = [pytreefs.open, pytreefs.load, pytreefs.load_flat, pytreefs.steps, pytreefs.verify, pytreefs.stats,
             lambda p: pytreefs.diff(p, SAMPLE), lambda p: pytreefs.diff(SAMPLE / '1500', p)]
    for call in calls:
        with pytest.raises(FileNotFoundError) as e:
            call(missing)
        assert isinstance(e.value, pytreefs.NotFoundError) and isinstance(e.value, pytreefs.Error)
        assert e.value.errno == errno.ENOENT and e.value.filename == str(missing)
    with pytest.raises(FileNotFoundError, match="has no 'parms'; did you mean 'params'"):
        pytreefs.load(SAMPLE / '1500' / 'state' / 'parms')
    pytreefs.save(tmp_path / '1', {'x': 1})
    with pytest.raises(FileExistsError) as e:
        pytreefs.save(tmp_path / '1', {'x': 1})
    assert isinstance(e.value, pytreefs.ExistsError)
    assert isinstance(pickle.loads(pickle.dumps(e.value)), pytreefs.ExistsError)
    refused = pytreefs._pytreefs.error(errno.EACCES, 'refused', 'f')
    assert isinstance(refused, pytreefs.AccessError) and isinstance(refused, PermissionError) and refused.filename == 'f'
    assert type(pytreefs._pytreefs.error(errno.EIO, 'broken', 'f')) is pytreefs.Error


def test_a_mistyped_key_is_told_the_nearest():
    with pytreefs.open(SAMPLE / '1500') as ck:
        for key, where, rest, near in (
                ('stat', '', 'stat', 'state'), ('state/parms/embed', '/state', 'parms/embed', 'params'), ('params/embed', '', 'params/embed', 'state/params/embed'),
                ('state/params/embed/tabel', '/state', 'params/embed/tabel', 'params/embed/table.npy'), ('state/parms/nothing', '/state', 'parms/nothing', 'params'),
                ('state/embed/table', '/state', 'embed/table', 'params/embed/table.npy'), ('qqqq', '', 'qqqq', None),
                ('state/params/embed/tabel[0:2].npy', '/state', 'params/embed/tabel[0:2].npy', 'params/embed/table[0:2].npy')):
            with pytest.raises(KeyError) as e:
                ck[key]
            assert e.value.args == (key,) and e.value.__notes__ == [f"'{SAMPLE}/1500{where}' has no {rest!r}" + (f'; did you mean {near!r}?' if near else '')]
            assert near is None or f'{where}/{near}'[1:] in ck
            assert key not in ck and ck.get(key) is None and ck.get(key, 5) == 5
    with pytreefs.open(SAMPLE) as ck, pytest.raises(KeyError) as e:
        ck['state/step']
    assert e.value.__notes__ == [f"'{SAMPLE}' has no 'state/step'; did you mean 'latest/state/step.json'?"]


def test_a_directory_without_a_step_is_not_said_to_have_one(tmp_path):
    for path, said in ((tmp_path, 'is a directory of steps: it has none yet'), (tmp_path / 'latest', "has no 'latest': it has no steps yet")):
        with pytest.raises(pytreefs.Error) as e:
            pytreefs.load(path)
        assert e.value.strerror.endswith(said)


def test_json_items_and_files(tmp_path):
    with pytreefs.open(SAMPLE / '1500') as ck:
        assert ck.json('metrics')['accuracy'] == 0.375 and ck['metrics'].json() == ck.json('metrics/metrics')
        assert ck.json('state/step') == 1500 and ck['state/run_name'].json() == ck['state/run_name'].read()
        for key in ('state', 'state/rng', None):
            with pytest.raises(ValueError, match='not JSON'):
                ck.json(key)
        with pytest.raises(KeyError):
            ck.json('nothing')
    shutil.copytree(SAMPLE / '1500', tmp_path / '1')
    (tmp_path / '1/metrics/metrics').write_text('{"loss": ')
    (tmp_path / '1/config/other').write_text('3')
    with pytreefs.open(tmp_path / '1') as ck:
        with pytest.raises(pytreefs.Error, match='is not JSON') as e:
            ck.json('metrics')
        assert e.value.filename == str(tmp_path / '1/metrics/metrics')
        with pytest.raises(ValueError, match='holds 2 files'):
            ck.json('config')
        assert ck['config'].json('other') == 3


def test_only_keeps_the_structure(whole):
    got = pytreefs.load(STATE, only=['history/1', 'params/embed/'])
    assert equal(got, {'history': [..., whole['history'][1], ...], 'params': {'embed': whole['params']['embed']}})
    assert equal(pytreefs.load(STATE, only=lambda path: path == 'step'), {'step': 1500})
    with pytest.raises(pytreefs.Error, match="'nothing' matches no leaf"):
        pytreefs.load(STATE, only=['step', 'nothing'])


def test_a_part_by_its_path(whole):
    assert equal(pytreefs.load(STATE / 'params' / 'embed'), whole['params']['embed'])
    assert equal(pytreefs.load(STATE / 'params' / 'embed' / 'table.npy'), whole['params']['embed']['table'])
    assert equal(pytreefs.load(SAMPLE / 'latest')['state'], whole)
    with pytest.raises(pytreefs.Error, match='latest'):
        pytreefs.load(SAMPLE)


# ---- dtype, frameworks, flat ----

def test_dtype_casts_floating_leaves(whole):
    got = pytreefs.load(STATE, dtype='float16')
    assert got['params']['embed']['table'].dtype == np.float16
    assert np.array_equal(got['params']['embed']['table'], whole['params']['embed']['table'].astype(np.float16))
    assert got['opt_state'][0]['count'].dtype == whole['opt_state'][0]['count'].dtype == np.int32
    assert pytreefs.load(STATE, dtype=ml_dtypes.bfloat16)['opt_state'][0]['mu']['embed']['table'].dtype == ml_dtypes.bfloat16


def test_torch_tensors(whole):
    import torch
    got = pytreefs.load(STATE, framework='torch')
    table = got['params']['embed']['table']
    assert table.dtype == torch.bfloat16 and got['step'] == 1500 and got['ema'] is None
    assert np.array_equal(table.view(torch.int16).numpy(), whole['params']['embed']['table'].view(np.int16))
    flat = pytreefs.load_flat(STATE / 'params', framework='torch')
    assert all(isinstance(t, torch.Tensor) for t in flat.values())
    assert flat['embed.table'].dtype == torch.bfloat16
    assert pytreefs.load(STATE, framework='torch', dtype=torch.float32)['params']['embed']['table'].dtype == torch.float32
    with pytest.raises(ValueError, match='framework'):
        pytreefs.load(STATE, framework='tensorflow')


def test_flat_names(whole):
    with pytest.raises(pytreefs.Error, match=r'is not a tree: load\(\) gives what it says: .*metrics'):
        pytreefs.load_flat(STATE.parent / 'metrics')
    flat = pytreefs.load_flat(STATE, '/')
    assert equal(flat['params/embed/table'], whole['params']['embed']['table'])
    assert flat['step'].shape == () and flat['step'].dtype == np.int64 and flat['run_name'] == whole['run_name']
    assert 'ema' not in flat and flat['history/2'] == whole['history'][2]


def test_flat_names_that_collide_are_an_error(tmp_path):
    pytreefs.save(tmp_path / '1', {'a': {'b': 1}, 'a_b': 2})
    with pytest.raises(pytreefs.Error, match="'a_b'"):
        pytreefs.load_flat(tmp_path / '1', '_')
    assert set(pytreefs.load_flat(tmp_path / '1')) == {'a.b', 'a_b'}


# ---- like, out ----

Pair = collections.namedtuple('Pair', 'first second')


def test_like_gives_its_containers_and_types(tmp_path):
    import jax
    pytreefs.save(tmp_path / '1', {'p': {'first': np.arange(3.0), 'second': [1, 2.5]}, 'n': None, 's': 'text'})
    like = {'p': Pair(jax.ShapeDtypeStruct((3,), np.float32), (0, 0.0)), 'n': None, 's': ''}
    got = pytreefs.load(tmp_path / '1', like=like)
    assert type(got['p']) is Pair and got['p'].second == (1, 2.5) and got['p'].first.dtype == np.float32
    assert got['p'].first.tolist() == [0, 1, 2] and got['n'] is None and got['s'] == 'text'
    like['p'] = Pair(..., like['p'].second)
    assert pytreefs.load(tmp_path / '1', like=like)['p'].first is ...


def test_like_of_what_jax_has_registered(tmp_path):
    import jax
    made = jax.tree_util.Partial(print, np.ones(2), key=np.zeros(3))
    pytreefs.save(tmp_path / '1', {'f': made})
    got = pytreefs.load(tmp_path / '1', like={'f': made})['f']
    assert isinstance(got, jax.tree_util.Partial) and np.array_equal(got.args[0], np.ones(2))
    assert np.array_equal(got.keywords['key'], np.zeros(3))


def test_like_tells_every_difference(whole):
    like = {'step': 0, 'params': {'embed': {'table': np.zeros((2, 2))}, 'more': 1}, 'ema': 'text', 'run_name': None, 'rng': {'a': 1},
            'history': [0.0]}
    with pytest.raises(pytreefs.Error) as e:
        pytreefs.load(STATE, like=like)
    text = str(e.value)
    for part in ('params/embed/table: shape [2, 2] here, [128, 32] in the checkpoint', 'params/more: is not in the checkpoint',
                 'params/layers: is in the checkpoint alone', 'ema: a str here, a None in the checkpoint',
                 'rng: a container here, a leaf', 'history/1: is in the checkpoint alone', 'more differences'):
        assert part in text, text
    assert e.value.filename == str(STATE)


def test_out_is_filled_in_place(whole):
    import torch
    table = whole['params']['embed']['table']
    out = {'params': {'embed': {'table': np.zeros(table.shape, np.float32)}}}
    got = pytreefs.load(STATE, out=out, only='params/embed/')
    assert got is out and np.array_equal(out['params']['embed']['table'], table.astype(np.float32))
    tensor = torch.zeros(table.shape, dtype=torch.bfloat16)
    pytreefs.load(STATE, out={'params': {'embed': {'table': tensor}}}, only='params/embed/')
    assert np.array_equal(tensor.float().numpy(), table.astype(np.float32))
    strided = np.zeros((table.shape[1], table.shape[0] * 2), np.float32).T[::2]
    pytreefs.load(STATE, out={'params': {'embed': {'table': strided}}}, only='params/embed/')
    assert np.array_equal(strided, table.astype(np.float32))
    frozen = np.zeros(table.shape, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(pytreefs.Error, match='writable'):
        pytreefs.load(STATE, out={'params': {'embed': {'table': frozen}}}, only='params/embed/')


# A stored value, what like= asks for, and the value that the error names; None: it is cast.
CASTS = [
    (300, np.int8(0), '300'), (2.7, 1, '2.7'), (300, False, '300'), (np.array([1, 300.5], 'f4'), np.zeros(2, 'i1'), '300.5'),
    (np.array([2**40, 1]), np.zeros(2, 'i4'), '1099511627776'), (np.array([-1.0]), np.zeros(1, 'u1'), '-1.0'), (np.array([np.nan]), np.zeros(1, 'i4'), 'nan'),
    (np.array([0, 2], 'i4'), np.zeros(2, bool), '2'), (np.uint64(2**64 - 1), np.int64(0), str(2**64 - 1)), (np.array([1 + 2j]), np.zeros(1, 'f4'), '(1+2j)'),
    (np.array([7, -8], ml_dtypes.int4), np.zeros(2, 'u1'), '-8'), (np.array(2.5, ml_dtypes.bfloat16), 1, '2.5'), (np.inf, 1, 'inf'),
    (np.array([2.0**63]), np.zeros(1, 'i8'), '9.223372036854776e+18'), (np.array([1.5, 2.5], ml_dtypes.bfloat16), np.zeros(2, ml_dtypes.int4), '1.5'),
    *((np.array([1, x], 'f4'), np.zeros(2, ml_dtypes.float4_e2m1fn), odd) for x, odd in ((np.nan, 'nan'), (-np.inf, '-inf'), (500, '500.0'), (-0.3, None), (6, None))),
    *((np.array([1, x], 'f4'), np.zeros(2, ml_dtypes.float8_e8m0fnu), odd) for x, odd in ((0, '0.0'), (-2, '-2.0'), (3, None))),
    (np.array([1, 7], 'i1'), np.zeros(2, ml_dtypes.float4_e2m1fn), '7'), (np.array([6, -1], ml_dtypes.float4_e2m1fn), np.zeros(2, ml_dtypes.float4_e2m1fn), None),
    (300, np.int16(0), None), (3.0, 1, None), (True, 1, None), (1, True, None), (2**60 + 1, 1.0, None), (np.array([3.0, -7]), np.zeros(2, 'i1'), None),
    (np.array([1e300, 0.1]), np.zeros(2, 'f2'), None), (np.array([0.1], 'f4'), np.zeros(1, ml_dtypes.bfloat16), None), (np.array([1 + 0j]), np.zeros(1, 'f4'), None),
    (np.array([7, -8], ml_dtypes.int4), np.zeros(2, 'i1'), None), (np.array(5), 1, None), (np.zeros((0, 2)), np.zeros((0, 2), 'i1'), None)]


def test_a_cast_makes_no_other_number(tmp_path):
    """Orbax casts 300 to 44 and 2.7 to 2; less precise numbers are what a cast to a floating type is for."""
    pytreefs.save(tmp_path / '1', {f'v{i}': stored for i, (stored, _, _) in enumerate(CASTS)})
    with pytreefs.open(tmp_path / '1/default') as ck:
        for i, (stored, wanted, odd) in enumerate(CASTS):
            fill = wanted.copy() if isinstance(wanted, np.ndarray) else None
            calls = [lambda: pytreefs.load(tmp_path / '1', like={f'v{i}': wanted}, only=f'v{i}')[f'v{i}']]
            if fill is not None:
                calls += [lambda: pytreefs.load(tmp_path / '1', out={f'v{i}': fill}, only=f'v{i}')[f'v{i}'], lambda: ck[f'v{i}'].read(out=fill)]
            for call in calls:
                if odd is None:
                    with np.errstate(all='ignore'), warnings.catch_warnings(action='ignore'):
                        want = np.asarray(stored).astype(np.asarray(wanted).dtype)
                    assert np.array_equal(np.asarray(call()), want) and type(call()) is type(wanted), (stored, call())
                    continue
                with pytest.raises(pytreefs.Error) as e:
                    call()
                here = wanted.dtype.name if hasattr(wanted, 'dtype') else type(wanted).__name__
                assert f'has {odd}, which {here} cannot hold' in e.value.strerror and np.asarray(stored).dtype.name in e.value.strerror, e.value
                assert pathlib.Path(e.value.filename).stem == f'v{i}'


def test_a_leaf_of_another_kind_is_a_difference(tmp_path):
    """Of like=, for each kind of leaf; out= fills arrays alone."""
    (tmp_path / 'flax').mkdir()
    (tmp_path / 'flax/checkpoint_1').write_bytes(flax.serialization.to_bytes({'b': b'ab'}))
    pytreefs.save(tmp_path / '1', {'a': np.ones((2, 3), 'f4'), 'one': np.ones(1), 's': 'text', 'n': None, 'i': 3})
    b = tmp_path / 'flax/checkpoint_1'
    for path, name, wanted, text in ((tmp_path / '1', 'a', 1.0, 'a float here, a float32[2, 3]'), (tmp_path / '1', 'one', 1.0, 'a float here, a float64[1]'),
                                     (tmp_path / '1', 's', 1, 'a int here, a string'), (tmp_path / '1', 'n', 1, 'a int here, a None'),
                                     (tmp_path / '1', 's', b'', 'a bytes here, a string'), (tmp_path / '1', 'a', b'', 'a bytes here, a float32[2, 3]'),
                                     (b, 'b', 1, 'a int here, a bytes'), (b, 'b', '', 'a str here, a bytes')):
        with pytest.raises(pytreefs.Error) as e:
            pytreefs.load(path, like={name: wanted}, only=name)
        assert f'is another tree: {name}: {text} in the checkpoint' in str(e.value)
    for name, wanted in (('a', np.float32), ('a', float), ('i', str), ('s', int), ('n', np.float32)):
        with pytest.raises(pytreefs.Error, match=f'is another tree: {name}: a type here'):
            pytreefs.load(tmp_path / '1', like={name: wanted}, only=name)
    assert pytreefs.load(tmp_path / '1', like={'a': np.ndarray, 'one': ..., 's': '', 'n': None, 'i': ...})['a'].shape == (2, 3)
    for name, wanted in (('i', 0), ('s', '')):
        with pytest.raises(pytreefs.Error, match=f'{name}: a {type(wanted).__name__}, which out= cannot fill'):
            pytreefs.load(tmp_path / '1', out={name: wanted}, only=name)
    assert pytreefs.load(tmp_path / '1', out={'n': None}, only='n') == {'n': None}


def test_like_of_what_is_not_a_tree(tmp_path):
    """JSON items, files of others, and a plain file: alone and in the dict of a step."""
    shutil.copytree(SAMPLE / '1500', tmp_path / '1')
    (tmp_path / '1/metrics/metrics').write_text('{"loss": 0.5, "best": [1, null], "name": "x"}')
    (tmp_path / '1/tok').mkdir()
    (tmp_path / '1/tok/vocab.txt').write_text('a b')
    metrics, tok = {'loss': 0.0, 'best': (0, None), 'name': ''}, {'vocab.txt': b''}
    got = pytreefs.load(tmp_path / '1', like={'state': ..., 'metrics': metrics, 'tok': tok})
    assert got['metrics'] == {'loss': 0.5, 'best': (1, None), 'name': 'x'} and got['tok'] == {'vocab.txt': b'a b'}
    assert pytreefs.load(tmp_path / '1', like={'state': ..., 'metrics': ...}) == {'state': ..., 'metrics': ...}
    for name, wanted, text in (('metrics', {'x': 1}, 'x: is not in the checkpoint; loss: is in the checkpoint alone'),
                               ('metrics', {**metrics, 'loss': 'text'}, 'loss: a str here, a float in the checkpoint'),
                               ('metrics', {**metrics, 'best': [1]}, 'best/1: is in the checkpoint alone'),
                               ('metrics', np.zeros(1), 'a ndarray here, a dict in the checkpoint'),
                               ('metrics', {**metrics, 'loss': 1}, 'has 0.5, which int cannot hold'),
                               ('tok', {'other': b''}, 'other: is not in the checkpoint'), ('tok', {'vocab.txt': ''}, 'vocab.txt: a str here, a bytes in'),
                               ('tok/vocab.txt', {'w': 1}, 'a dict here, a bytes in the checkpoint')):
        with pytest.raises(pytreefs.Error) as e:
            pytreefs.load(tmp_path / '1' / name, like=wanted)
        assert text in str(e.value), e.value
        if '/' not in name:
            with pytest.raises(pytreefs.Error) as e:
                pytreefs.load(tmp_path / '1', like={'state': ..., name: wanted})
            assert name in str(e.value) and text.partition(';')[0] in str(e.value), e.value
    assert pytreefs.load(tmp_path / '1/tok/vocab.txt', like=b'') == b'a b'
    with pytest.raises(pytreefs.Error, match='metrics: is not an array, which out= could fill'):
        pytreefs.load(tmp_path / '1', out={'state': ..., 'metrics': metrics})


def test_integer_keys_of_flax(tmp_path):
    """The state of an nnx.List has them: texts, as Orbax stores them, or what `like` has; 10 is after 9."""
    (tmp_path / 'flax').mkdir()
    tree = {'layers': {i: {'kernel': np.full(2, i, np.float32)} for i in (-1, 10, 2, 1 << 63, 300)}, 'step': 3}
    data = flax.serialization.msgpack_serialize(tree)
    (tmp_path / 'flax/checkpoint_1').write_bytes(data)
    want = flax.serialization.msgpack_restore(data)
    got = pytreefs.load(tmp_path / 'flax/checkpoint_1')
    assert list(got['layers']) == [str(i) for i in sorted(want['layers'])] and got['step'] == want['step']
    assert all(np.array_equal(got['layers'][str(i)]['kernel'], want['layers'][i]['kernel']) for i in want['layers'])
    assert sorted(pytreefs.load(tmp_path / 'flax/checkpoint_1', like=want)['layers']) == sorted(want['layers'])
    (tmp_path / 'flax/checkpoint_1').write_bytes(msgpack.packb({0: 1, '0': 2}))
    with pytest.raises(pytreefs.Error, match="two children have the key '0'"):
        pytreefs.load(tmp_path / 'flax/checkpoint_1')


def test_bytes_of_flax(tmp_path):
    """They are bytes as flax gives them, whatever an option casts; Orbax has none, so they are not saved as an array."""
    (tmp_path / 'flax').mkdir()
    tree = {'b': b'abc', 'e': b'', 'u': np.arange(3, dtype=np.uint8)}
    (tmp_path / 'flax/checkpoint_1').write_bytes(flax.serialization.to_bytes(tree))
    for options in ({}, {'framework': 'torch'}, {'restore_dtype': 'float32'}, {'like': {'b': b'', 'e': b'', 'u': np.zeros(3)}}):
        got = pytreefs.load(tmp_path / 'flax/checkpoint_1', **options)
        assert got['b'] == b'abc' and got['e'] == b'' and list(got['u']) == [0, 1, 2], options
    assert pytreefs.load_flat(tmp_path / 'flax/checkpoint_1')['b'] == b'abc'
    with pytreefs.open(tmp_path / 'flax/checkpoint_1') as ck:
        assert ck['b'].read() == b'abc' and ck['b'][1:].tolist() == [98, 99]
        for x in (tree, {'x': ck}):
            with pytest.raises(pytreefs.Error, match='Orbax stores no bytes'):
                pytreefs.save(tmp_path / '2', x)


# ---- progress, errors, options ----

def test_progress_reaches_the_end():
    seen = []
    pytreefs.load(STATE, progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen) and all(0 <= done <= total for done, total in seen)

    def stop(done, total):
        raise RuntimeError('enough')
    with pytest.raises(RuntimeError, match='enough'):
        pytreefs.load(STATE, progress=stop)


def test_the_pattern_of_a_directory_is_suggested():
    with pytest.raises(pytreefs.Error, match="'params' matches no leaf; 'params/' matches the leaves below"):
        pytreefs.load(STATE, only='params')


def test_errors_are_oserrors_with_a_name(tmp_path):
    with pytest.raises(pytreefs.Error) as e:
        pytreefs.open(tmp_path / 'nothing')
    assert isinstance(e.value, OSError) and e.value.errno == 2 and e.value.filename == str(tmp_path / 'nothing')
    with pytest.raises(pytreefs.Error, match='no_such_option'):
        pytreefs.open(STATE, no_such_option=1)
    with pytest.raises(pytreefs.Error):
        pytreefs.steps(tmp_path / 'nothing')
    with pytest.raises(pytreefs.Error, match='has no') as e:
        pytreefs.load(SAMPLE / '1500' / 'metrics' / 'none')
    assert e.value.filename == str(SAMPLE / '1500' / 'metrics' / 'none')
    with pytest.raises(ValueError, match='steps'):
        pytreefs.steps(STATE)
    assert pytreefs.steps(tmp_path) == []


def test_an_array_beyond_memory_names_its_leaf(tmp_path):
    """As a buffer that was filled with one value: its chunks are not stored. The rest can be loaded, and a part of it."""
    pytreefs.save(tmp_path / '1', {'buffer': {'x': np.zeros((4, 8), 'f4')}, 'n': 1}, ocdbt='off')
    array = tmp_path / '1/default/buffer.x'
    document = json.loads((array / '.zarray').read_text())
    (array / '.zarray').write_text(json.dumps({**document, 'shape': [10**7, 10**6], 'chunks': [1000, 1000], 'fill_value': 0}))
    (array / '0.0').unlink()
    shutil.rmtree(tmp_path / '1/default/.crc32c')
    says = r"'default/buffer/x.npy' needs 37,252.9 GiB of memory, as float32\[10000000, 1000000\]: load\(only="
    leaf = pytreefs.open(tmp_path / '1', missing='zero')['default/buffer/x']
    for read in (lambda: pytreefs.load(tmp_path / '1'), lambda: pytreefs.load_flat(tmp_path / '1'), leaf.read,
                 lambda: np.asarray(leaf), lambda: leaf[:10**7]):
        with pytest.raises(MemoryError, match=says):
            read()
    assert pytreefs.load(tmp_path / '1', only='n') == {'n': 1} and leaf[10**7 - 2:, :2].tolist() == [[0, 0], [0, 0]]
    stats = subprocess.Popen([os.environ['PYTREEFS_PROGRAM'], 'stats', '-o', 'missing=zero', tmp_path / '1'], stderr=subprocess.PIPE, text=True)
    assert "'default/buffer/x.npy' has 10000000000000 elements, 37252 GiB" in stats.stderr.readline()
    stats.kill()
    stats.wait()


def test_damage_names_its_leaf(copy, cases):
    """The leaf whose bytes are broken, and only it."""
    source = copy(cases('matrix-perleaf-zarr2-zstd-v0'))
    chunk = max((p for p in source.rglob('*') if p.is_file() and p.name[0].isdigit()), key=lambda p: p.stat().st_size)
    chunk.write_bytes(chunk.read_bytes()[:-1])
    with pytest.raises(pytreefs.Error) as e:
        pytreefs.load(source)
    assert e.value.errno == 5
    leaf = pathlib.Path(e.value.filename)
    with pytreefs.open(source) as ck:
        for other in ck.leaves():
            if leaf != source / other.name:
                other.read()
            else:
                with pytest.raises(pytreefs.Error):
                    other.read()


@pytest.mark.parametrize('io', ['auto', 'sync'])
def test_damage_of_a_large_chunk_that_is_not_compressed(tmp_path, io):
    """It is read in pieces, and compared with the checksum of all of them; a byte of any piece, and one that is missing."""
    w = np.random.default_rng(16).integers(0, 256, (18 << 20) + 5, np.uint8)
    pytreefs.save(tmp_path / '1', {'w': w}, compression='none', chunk_byte_size='1G')
    assert np.array_equal(pytreefs.load(tmp_path / '1', io=io)['w'], w)
    data = max((p for p in tmp_path.rglob('*') if p.is_file()), key=lambda p: p.stat().st_size)
    stored = data.read_bytes()
    begin = stored.index(w[:100].tobytes())
    for at in (0, 9 << 20, len(w) - 1):
        data.write_bytes(stored[:begin + at] + bytes([stored[begin + at] ^ 1]) + stored[begin + at + 1:])
        with pytest.raises(pytreefs.Error, match='crc32c') as e:
            pytreefs.load(tmp_path / '1', io=io)
        assert e.value.filename.endswith('w.npy')
    data.write_bytes(stored[:begin + (10 << 20)])
    with pytest.raises(pytreefs.Error, match='has 10485760 bytes'):
        pytreefs.load(tmp_path / '1', io=io)


def test_damage_beside_a_large_part_that_is_read(tmp_path):
    """Of more than three quarters of a chunk the rest is read, too, to compare its checksum."""
    w = np.random.default_rng(18).integers(0, 256, 12 << 20, np.uint8)
    pytreefs.save(tmp_path / '1', {'w': w}, compression='none', chunk_byte_size='1G')
    data = max((p for p in tmp_path.rglob('*') if p.is_file()), key=lambda p: p.stat().st_size)
    stored = bytearray(data.read_bytes())
    stored[stored.index(w[:100].tobytes()) + (5 << 20)] ^= 1
    data.write_bytes(stored)
    with pytreefs.open(tmp_path / '1') as ck:
        leaf, = ck.leaves()
        for n in (11 << 20, 12 << 20):
            with pytest.raises(pytreefs.Error, match='crc32c'):
                leaf[:n]


def test_damage_beside_large_values_without_checksums(tmp_path):
    """As those that another program wrote: whether the next value has one is not taken from them."""
    rng = np.random.default_rng(17)
    w = {f'w{i}': rng.integers(0, 256, (9 << 20) + 16 * i, np.uint8) for i in range(4)}
    pytreefs.save(tmp_path / '1', w, compression='none', chunk_byte_size='1G', threads=1)
    data = max((p for p in tmp_path.rglob('*') if p.is_file()), key=lambda p: p.stat().st_size)
    stored = bytearray(data.read_bytes())
    begin = {name: stored.index(a[:100].tobytes()) for name, a in w.items()}
    for name in ('w0', 'w2'):
        end = begin[name] + len(w[name])
        assert stored[end:end + 7] == b'pc23crc'
        stored[end:end + 16] = bytes(16)
    data.write_bytes(stored)
    got = pytreefs.load(tmp_path / '1')
    assert all(np.array_equal(got[name], a) for name, a in w.items())
    for name, is_found in (('w0', False), ('w1', True), ('w2', False), ('w3', True)):
        data.write_bytes(stored)
        with open(data, 'r+b') as f:
            f.seek(begin[name] + (5 << 20))
            f.write(bytes([stored[begin[name] + (5 << 20)] ^ 1]))
        if not is_found:
            assert not np.array_equal(pytreefs.load(tmp_path / '1')[name], w[name])
            continue
        with pytest.raises(pytreefs.Error, match='crc32c') as e:
            pytreefs.load(tmp_path / '1')
        assert e.value.filename.endswith(f'{name}.npy')


def test_options_are_those_of_a_mount(whole):
    with pytreefs.open(SAMPLE, pad_truncate=True, cache='1M') as ck:
        assert ck['1500/state/params/embed/table[0:200].npy'].shape == (200, 32)
    with pytreefs.open(SAMPLE) as ck:
        assert 'state/params/embed/table[0:200].npy' not in ck.latest
    assert equal(pytreefs.load(STATE, io='sync', threads=1), whole)
    with pytreefs.open(SAMPLE, restore_dtype='float64') as ck:
        assert ck['1500/state/params/embed/table'].dtype == np.float64
    table = pytreefs.load(STATE, restore_dtype='float64', only='params/embed/')['params']['embed']['table']
    assert np.array_equal(table, whole['params']['embed']['table'].astype(np.float64)) and table.dtype == np.float64


def test_without_ml_dtypes():
    """bfloat16 as numpy loads our .npy of it."""
    program = '''
import sys
sys.modules['ml_dtypes'] = None
import numpy as np, pytreefs
a = pytreefs.load(sys.argv[1], only='table')['params']['embed']['table']
assert a.dtype == np.dtype('<V2'), a.dtype
with pytreefs.open(sys.argv[1]) as ck:
    leaf = ck['params/embed/table']
    assert leaf.dtype == np.dtype('<V2') and leaf.dtype_name == 'bfloat16' and leaf[3:5, ::-1].tobytes() == a[3:5, ::-1].tobytes()
    assert leaf.read(dtype='float32').dtype == np.float32
'''
    subprocess.run([sys.executable, '-c', program, STATE], check=True)


def test_another_shape_is_padded_or_cut_only_when_asked(tmp_path):
    pytreefs.save(tmp_path / 'a', {'w': np.array([[1, 2], [3, 300]])}, item=None)
    with pytest.raises(pytreefs.Error, match=r'w: shape \[1, 3\] here, \[2, 2\] in the checkpoint'):
        pytreefs.load(tmp_path / 'a', like={'w': np.zeros((1, 3))})
    got = pytreefs.load(tmp_path / 'a', like={'w': np.zeros((1, 3), np.int8)}, strict=False)['w']
    assert got.dtype == np.int8 and got.tolist() == [[1, 2, 0]]
    with pytest.raises(pytreefs.Error, match='has 300, which int8 cannot hold'):
        pytreefs.load(tmp_path / 'a', like={'w': np.zeros((3, 2), np.int8)}, strict=False)
    with pytest.raises(ValueError, match='strict is for'):
        pytreefs.load(tmp_path / 'a', strict=False)


@pytest.mark.parametrize('leaves, chunks, threads, options', [
    (700, 1, 1, {'ocdbt': 'off'}), (2, 700, 1, {'ocdbt': 'off'}), (2, 700, 3, {'ocdbt': 'off'}), (700, 1, 1, {'target_data_file_size': 2000})])
def test_more_files_than_descriptors(tmp_path, leaves, chunks, threads, options):
    """A file for each chunk, or for each value of a database: more of them than a process may have open are written, and read in rounds, by whoever reads."""
    tree = {f'l{i}': np.arange(500 * chunks, dtype=np.float32) + i for i in range(leaves)}
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, limits[1]))
    try:
        pytreefs.save(tmp_path / '1', tree, compression='none', chunk_byte_size=2000, **options)
        assert sum(len(files) for _, _, files in os.walk(tmp_path)) > 700
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            loaded = list(pool.map(pytreefs.load, [tmp_path / '1'] * threads))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    for got in loaded:
        assert all(np.array_equal(got[key], value) for key, value in tree.items())
