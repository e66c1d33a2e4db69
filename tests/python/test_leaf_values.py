# SPDX-License-Identifier: Apache-2.0
"""A leaf is a number, a text and an array where Python expects one; handles load, pickle, and are shown in notebooks."""

import collections.abc
import json
import math
import os
import pathlib
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

import pytreefs
from lib import servers

SAMPLE = str(pathlib.Path(__file__).resolve().parents[1] / 'data' / 'sample')
VALUES = {'n': 1500, 'x': 0.25, 'yes': True, 's': 'text', 'none': None, 'w': np.arange(6, dtype=np.float32).reshape(2, 3), 'layers': [np.ones(1), np.zeros(2)],
          'same': [np.full(2, i) for i in range(11)], 'pair': (1, 'x'), 'seen': [10, 20, 30], 'count': np.array(7, np.int32)}


@pytest.fixture
def values(tmp_path):
    pytreefs.save(tmp_path / '1', VALUES)
    with pytreefs.open(tmp_path / '1' / 'default') as ck:
        yield ck


# Computed with v, a mapping of values or of leaves.
EXPRESSIONS = [
    "v['n'] == 1500", "1500 == v['n']", "v['n'] != 3", "v['n'] > 3", "v['s'] == 'text'", "v['none'] == None", "v['n'] == 'text'", "v['n'] == v['x']",
    "v['n'] + 1", "2 * v['n']", "v['n'] * 10**30", "v['n'] // 7", "divmod(v['n'], 7)", "v['n'] ** 2", "-v['x']", "abs(v['x'])", "~v['n']", "v['x'] / 2",
    "range(v['n'])[-1]", "[1, 2, 3][v['yes']]", "f\"{v['n']:06d} {v['n']} {v['s']:>6} {v['x']:.3f}\"", "round(v['n'], -2)", "round(v['x'])", "round(v['x'], 1)", "math.trunc(v['x'])", "math.floor(v['x'])", "math.ceil(v['n'])", "divmod(2000, v['n'])", "pow(v['n'], 2)", "math.sqrt(v['x'])",
    "int(v['x'])", "complex(v['x'])", "bool(v['n'])",
    "v['s'] + '!'", "hash(v['n'])", "{1500: 'found'}[v['n']]", "v['n'] in (1, 1500)",
    "v['w'] + 1", "1 - v['w']", "v['w'] @ v['w'].T", "v['w'] > 2", "v['w'] + v['x']", "v['w'].T", "v['w'].astype('int16')", "np.sum(v['w'])", "np.add.reduce(v['w'])",
    "[row.tolist() for row in v['w']]", "v['layers'][-1] + 1", "np.asarray(v['w'], np.float64)",
    "v['w'].mean(axis=0)", "v['w'].sum()", "v['w'].reshape(-1)", "np.mean(v['w'])", "np.clip(v['w'], 1, 2)", "v['s'].upper()", "v['s'].split('x')",
    "np.stack(v['same'])", "np.stack(v['same'][::-1])", "[x + 1 for x in v['layers'][1:]][0]", "len(v['layers'])", "[type(x) for x in v['pair'] if x == 1] != []",
    "20 in v['seen']", "1 in v['seen']", "'x' in v['pair']", "v['seen'] == [10, 20, 30]", "v['seen'] == [10, 20]", "sum(reversed(v['seen']))",
    "v['seen'] == (10, 20, 30)", "v['seen'] == {0: 10, 1: 20, 2: 30}", "v['pair'] == [1, 'x']", "v['seen'].index(20)", "v['seen'].count(30)", "np.array_equal(v['seen'], [10, 20, 30])",
    "np.mean(v['same'])", "np.asarray(v['seen'])", "collections.Counter(map(str, v['seen']))['10']", "isinstance(v['seen'], collections.abc.Mapping)",
    "isinstance(v['pair'], collections.abc.Sequence)", "v['seen'][np.int64(1)] + 0", "f\"{v['count']} {v['count']:03d}\"", "str(v['count'])", "'%s' % v['count']",
    "len(v['s'])", "v['s'][1:]", "'ex' in v['s']", "'et' in v['s']", "''.join(reversed(list(v['s'])))", "3.0 in v['w']", "9.0 in v['w']",
]


@pytest.mark.parametrize('text', EXPRESSIONS)
def test_it_computes_as_its_value(values, text):
    want, got = (eval(text, {'np': np, 'math': math, 'collections': collections, 'v': v}) for v in (VALUES, values))
    assert type(got) is type(want) and np.array_equal(got, want) and getattr(got, 'dtype', None) == getattr(want, 'dtype', None), (got, want)


@pytest.mark.parametrize('text', ["v['s'] + 1", "v['none'] + 1", "hash(v['w'])", "bool(v['w'])", "range(v['x'])", "f\"{v['n']:q}\"", "iter(v['n'])", "v['w'].upper", "v['n'].mean", "v['none'].upper", "v['w']._x", "v['seen'][3]", "v['seen'][-4]"])
def test_it_fails_as_its_value(values, text):
    with pytest.raises(Exception) as want:
        eval(text, {'v': VALUES})
    with pytest.raises(want.type):
        eval(text, {'v': values})


def test_values_alone_and_types(values):
    assert values['none'].value is None and values['n'].value == 1500 and values['n'].item() == 1500
    for name in ('s', 'none'):
        assert not hasattr(values[name], 'dtype')
    for container in values, pytreefs.open(values.context.path.rpartition('/')[0]):
        with pytest.raises(TypeError, match='not an array'):
            np.asarray(container)
    with pytest.raises(ValueError):
        np.asarray(values['layers'])
    assert values['seen'].get(1.0) is values['seen'].get(True) is values['seen'].get(3) is None and values['seen'].get(-1) == 30
    assert list(values['layers'].keys()) == [0, 1] == list(dict(values['layers'].items())) and list(values['layers']) == list(values['layers'].values())
    assert json.dumps({'n': values['n'], 's': values['s'], 'w': values['w']}, default=lambda leaf: leaf.tolist()) == \
        '{"n": 1500, "s": "text", "w": [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]}'


def test_attributes_are_looked_up_without_a_read(values, monkeypatch):
    """Libraries ask with hasattr() what an object can do."""
    def read(*_):
        raise AssertionError
    monkeypatch.setattr(pytreefs.Leaf, '_array', read)
    assert hasattr(values['w'], 'mean') and not hasattr(values['w'], 'upper') and not hasattr(values['s'], 'mean') and not hasattr(values['n'], 'sum')


def test_integer_keys_are_those_of_the_texts(tmp_path):
    with pytest.warns(UserWarning, match='integers'):
        pytreefs.save(tmp_path / '1', {'state': {0: np.ones(1), 10: np.zeros(1)}})
    state = pytreefs.open(tmp_path / '1/default/state')
    assert state[10][0] == 0 and state['0'][0] == state[np.int32(0)][0] == 1 and 1 not in state and True not in state


def test_a_counter_is_filled_and_not_counted(tmp_path):
    count = collections.Counter({'b': 1, 'a': 3})
    pytreefs.save(tmp_path / '1', {'x': count})
    assert pytreefs.load(tmp_path / '1', like={'x': collections.Counter(a=0, b=0)})['x'] == count


def test_a_handle_below_a_directory_that_is_called_latest(tmp_path, monkeypatch):
    (tmp_path / 'latest/run').mkdir(parents=True)
    monkeypatch.chdir(tmp_path / 'latest/run')
    pytreefs.save('ckpts/1', {'latest': {'n': [1, 2]}})
    for ck in pytreefs.open('ckpts/1/default'), pytreefs.open('ckpts/latest/default'):
        assert ck.load() == pytreefs.load(ck) == {'latest': {'n': [1, 2]}} and ck['latest/n'].load() == [1, 2]
        assert pickle.loads(pickle.dumps(ck))['latest/n'] == [1, 2]


def test_a_view_below_a_key_with_slashes(tmp_path):
    pytreefs.save(tmp_path / '1', {'a/b': {'w': VALUES['w'], 'c': {'w': VALUES['w']}}}, metrics={'loss': 0.5})
    with pytreefs.open(tmp_path) as ck:
        for key in ('1/default/a/b/w[1]@float64', '1/default/a/b/c/w[1]@float64.npy', '1/default/a%2Fb/w[1]@float64'):
            assert np.array_equal(ck[key], VALUES['w'][1]) and ck[key].dtype == np.float64
        assert '1/default/a/b/w[5]' not in ck and '1/default/a/none/w[0]' not in ck
        with pytest.raises(KeyError) as e:
            ck['1/metrics/loss']
        assert e.value.__notes__ == ['it is not a tree: .json() has what a JSON item says'] and ck['1/metrics'].json() == {'loss': 0.5}


def test_jax_and_pandas_take_leaves(values):
    import jax.numpy as jnp
    import pandas
    assert np.array_equal(jnp.asarray(values['w']), VALUES['w']) and np.array_equal(jnp.ones((2, 3)) + values['w'], VALUES['w'] + 1)
    assert np.array_equal(pandas.DataFrame(values['w']).values, VALUES['w'])


def test_jax_functions_take_leaves(values, tmp_path):
    """Also those that are compiled, and in trees."""
    import jax
    import jax.numpy as jnp
    w = values['w']
    assert jnp.sum(w) == 15 and np.array_equal(jnp.sin(w), jnp.sin(VALUES['w'])) and np.array_equal(jnp.dot(w, jnp.ones(3)), [3, 12])
    assert isinstance(jax.device_put(w), jax.Array) and np.array_equal(jax.jit(lambda x: x + 1)(w), VALUES['w'] + 1) and jnp.add(values['n'], 1) == 1501
    assert np.array_equal(jax.tree.map(lambda x: x * 2, {'a': w})['a'], VALUES['w'] * 2)
    pytreefs.save(tmp_path / '2', {'w': w, 's': values['s']})
    assert np.array_equal(pytreefs.load(tmp_path / '2', like={'w': w, 's': 'x'})['w'], VALUES['w'])


@pytest.mark.parametrize('key, why', [
    ('w[0:3]', 'the box leaves axis 0, which has 2 positions'), ('w[0:1', 'the box has no end'), ('w@flot32', "'flot32' is not a dtype"),
    ('n[0:2]', 'the box has 1 axis, the array has 0'), ('non[0:1]', "did you mean 'none[0:1].npy'?"), ('layers/0[5]', 'the box leaves axis 0, which has 1 position')])
def test_a_wrong_view_says_why(values, tmp_path, key, why):
    for where, base in ((values, ''), (pytreefs.open(tmp_path / '1'), 'default/')):
        with pytest.raises(KeyError) as e:
            where[base + key]
        assert e.value.args == (base + key,) and any(why in note for note in e.value.__notes__), e.value.__notes__


def test_an_option_is_not_a_mapping_and_keeps_one_secret():
    for call in (pytreefs.open, pytreefs.load, pytreefs.steps, lambda p, **o: pytreefs.save(p, {'a': 1}, **o)):
        with pytest.raises(TypeError, match='^http_headers= is the name of a file of headers, not a dict$'):
            call('http://localhost:1/x', http_headers={'Authorization': 'Bearer SECRET'})


def test_handles_load(values, tmp_path):
    assert np.array_equal(values.load()['w'], VALUES['w']) and pytreefs.load(values['n']) == 1500
    assert list(pytreefs.load(values, only='layers/')) == ['layers'] and list(pytreefs.load_flat(values['layers'])) == ['0', '1']
    assert values['layers'].load(dtype='bf16')[0].dtype.name == 'bfloat16' and values['w'].load(dtype='f16').dtype == np.float16
    # A handle is of the step that it was looked up in.
    with pytreefs.open(tmp_path / 'latest') as ck:
        pytreefs.save(tmp_path / '2', {'n': 2})
        assert ck['default']['n'].load() == 1500 == ck['default'].load()['n'] and pytreefs.load(tmp_path / 'latest')['n'] == 2


@pytest.mark.parametrize('text, name', [('bf16', 'bfloat16'), ('F32', 'float32'), ('i32', 'int32'), ('i4', 'int32'), ('f8', 'float64'), ('c16', 'complex128'),
                                        ('f8_e4m3fn', 'float8_e4m3fn'), (np.float16, 'float16'), ('<f4', 'float32'), ('int4', 'int4')])
def test_names_of_types(values, text, name):
    assert values['w'].read(dtype=text).dtype.name == name


@pytest.mark.parametrize('text, why', [('i8', 'int64 for numpy and int8'), ('u8', 'uint64 for numpy and uint8'), ('foo', 'not a dtype'), ('S3', 'not a dtype')])
def test_other_names_of_types(values, text, why):
    for read in (values['w'].read, values.load):
        with pytest.raises(ValueError, match=why):
            read(dtype=text)


def test_views_without_an_extension():
    with pytreefs.open(SAMPLE + '/1500/state') as ck:
        for view in ('[0:4]', '@float32', '[0:4]@f32'):
            assert np.array_equal(ck['params/embed/table' + view], ck['params/embed/table' + view + '.npy'])
        assert 'params/embed/none[0:4]' not in ck and 'params/embed/table@foo' not in ck


def test_a_single_value_is_opened(tmp_path):
    pytreefs.save(tmp_path / '1', VALUES['w'])
    pytreefs.save(tmp_path / '2', VALUES['w'], item=None)
    for path in (tmp_path / '1/default', tmp_path / '2', f'{SAMPLE}/1500/state/params/embed/table.npy', f'{SAMPLE}/1500/state/params/embed/table[0:4]@f32.npy'):
        with pytreefs.open(path) as leaf:
            assert isinstance(leaf, pytreefs.Leaf) and np.array_equal(leaf, pytreefs.load(path)) and np.array_equal(leaf.load(), leaf)
    with pytreefs.open(SAMPLE + '/1500/metrics/metrics') as file:
        assert file.json()['accuracy'] == 0.375
    with pytest.raises(ValueError, match='is closed'):
        leaf.read()


POOL = """
import concurrent.futures, multiprocessing, os, sys
import pytreefs

def first_of(leaf):
    return os.getpid(), leaf[0].sum().item()

if __name__ == '__main__':
    with pytreefs.open(sys.argv[1], cache='64M') as root, concurrent.futures.ProcessPoolExecutor(
            1, multiprocessing.get_context(sys.argv[2])) as pool:
        leaf = root[1500]['state/params/embed/table[0:4]@float32.npy']
        pid, value = pool.submit(first_of, leaf).result()
        assert pid != os.getpid() and value == first_of(leaf)[1]
        assert pool.submit(list, root.latest['state/params']).result() == ['embed', 'layers', 'norm']
"""


@pytest.mark.parametrize('method', ['fork', 'spawn', 'forkserver'])
def test_handles_go_to_other_processes(tmp_path, method):
    (tmp_path / 'pool.py').write_text(POOL)
    r = subprocess.run([sys.executable, tmp_path / 'pool.py', SAMPLE, method], capture_output=True, text=True, timeout=240)
    assert r.returncode == 0, r.stderr


def test_a_pickled_handle_stays_with_its_step(tmp_path):
    pytreefs.save(tmp_path / '1', {'n': 1})
    with pytreefs.open(tmp_path / 'latest') as ck:
        pytreefs.save(tmp_path / '2', {'n': 2})
        assert pickle.loads(pickle.dumps(ck['default']['n'])) == 1
        pytreefs.save(tmp_path / '1', {'n': 3}, overwrite=True)
        with pytest.raises(pytreefs.Error, match='open it again'):
            pickle.dumps(ck)
    # A step that replaces it between the two is not taken for it.
    with pytreefs.open(tmp_path) as root:
        pickled = [pickle.dumps(x) for x in (root[2], root[2]['default'], root[2]['default']['n'])]
        assert [pickle.loads(x).kind for x in pickled] == ['step', 'dict', 'scalar']
        pytreefs.save(tmp_path / '2', {'n': 4}, overwrite=True)
        for x in pickled:
            with pytest.raises(pytreefs.Error, match='open it again'):
                pickle.loads(x)


def test_a_relative_path_is_that_of_where_it_was_opened(tmp_path, monkeypatch):
    """A program that changes its directory later, and a process that gets a handle or is forked, read the same checkpoint."""

    pytreefs.save(tmp_path / 'here/1', {'n': 1, 'w': np.arange(4)})
    monkeypatch.chdir(tmp_path / 'here')
    with pytreefs.open('1') as ck:
        sent = pickle.dumps(ck)
        monkeypatch.chdir('/')
        for each in ck, pickle.loads(sent), pickle.loads(pickle.dumps(ck)):
            assert each['default']['n'] == 1
        with pytest.raises(KeyError) as e:
            ck['default/w[0:9]']
        assert any('axis 0' in note for note in e.value.__notes__), e.value.__notes__
        child = os.fork()
        if not child:
            os._exit(int(ck['default/w'].read().sum()) - 6)
        assert os.waitpid(child, 0)[1] == 0


def test_a_list_times_a_leaf_is_repeated():
    with pytreefs.open(f'{SAMPLE}/1500') as ck:
        step = ck['state/step']
        for some in [0], [1, 2], (0,), b'ab':
            assert some * step == some * 1500 == step * some
        assert (np.arange(3) * step).tolist() == [0, 1500, 3000]


def test_handles_of_a_url_pickle(tmp_path):
    """Also where SOURCE is the step, whose items a server of files cannot list."""

    pytreefs.save(tmp_path / 'root/1', {'n': 1})
    with servers.faulty(tmp_path / 'root/1') as url, pytreefs.open(url) as step, pytreefs.open(f'{url}/default') as item:
        for handle in (step['default']['n'], item['n']):
            assert pickle.loads(pickle.dumps(handle)) == 1
        pickled = [pickle.dumps(x) for x in (step['default'], item)]
        assert [pickle.loads(x)['n'] for x in pickled] == [1, 1]


def test_notebooks_show_the_tree(values, tmp_path):
    shown = values._repr_html_()
    assert shown.startswith('<pre>') and '  w: array float32[2, 3]\n' in shown and '  layers: list\n    0: array float64[1]\n' in shown
    with pytreefs.open(tmp_path) as root:
        assert root._repr_html_().endswith('\n  1</pre>')
    pytreefs.save(tmp_path / '2', {'<b>': 1, **{str(i): i for i in range(2000)}})
    with pytreefs.open(tmp_path / '2') as ck:
        assert ck._repr_html_().count('\n') == 1001 and '<b>' not in ck._repr_html_() and ck._repr_html_().endswith('...</pre>')


def test_notebooks_show_what_can_be_read(values, tmp_path):
    pytreefs.save(tmp_path / '3', {'good': {'w': 1}, 'bad': {'w': 2}}, items=True)
    (tmp_path / '3/bad/manifest.ocdbt').write_bytes(bytes(100))
    with pytreefs.open(tmp_path / '3') as ck:
        assert re.search('  bad: cannot be read: .*not a manifest.*\n  good: dict\n    w: scalar int64', ck._repr_html_()), ck._repr_html_()
        with pytest.raises(pytreefs.Error):
            ck['bad']['w'].value


def test_a_mistyped_argument_is_named(tmp_path):
    for call, near in ((lambda: pytreefs.load(SAMPLE + '/1500', onyl='x'), 'only'), (lambda: pytreefs.load_flat(SAMPLE + '/1500', seperator='x'), 'separator'),
                       (lambda: pytreefs.save(tmp_path / '1', {}, overwrit=True), 'overwrite')):
        with pytest.raises(pytreefs.Error, match=f'did you mean the argument {near}='):
            call()
    assert pytreefs.steps(SAMPLE, cache='64M') == [1000, 1500]
