# SPDX-License-Identifier: Apache-2.0
"""Value functions of plugins in transforms=: against Orbax's apply_transformations, and plugins that lie."""

import errno
import json
import logging
import pathlib
import subprocess

import numpy as np
import orbax.checkpoint as ocp
import pytest

from lib import mounts

TOP = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20
logging.getLogger('absl').setLevel(logging.ERROR)


def state():
    r = np.random.default_rng(3)
    return {'a': {'w': r.standard_normal((300, 70)).astype(np.float32), 'b': np.arange(5, dtype=np.float32)},
            'b': {'w': r.standard_normal((300, 70)).astype(np.float32), 'b': np.full(5, 1e8, np.float32)},
            'c': {'w': r.standard_normal((300, 70)).astype(np.float32), 'b': np.full(5, -1e8, np.float32)},
            'n': np.arange(6, dtype=np.int32), 'one': np.float32(2.5)}


@pytest.fixture(scope='module')
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp('values') / 'item'
    ocp.PyTreeCheckpointer().save(path, state())
    return path


@pytest.fixture
def rules(tmp_path):
    """rules({...}, ...): the option."""
    def write(*rules):
        (tmp_path / 'rules.json').write_text(json.dumps({'rules': rules}))
        return f'transforms={tmp_path}/rules.json'
    return write


@pytest.fixture
def mean(build):
    return f'plugin={build}/mean.so'


@pytest.fixture(scope='module')
def liar(tmp_path_factory):
    where = tmp_path_factory.mktemp('liars')

    def build(lie):
        so = where / f'{lie}.so'
        if not so.exists():
            subprocess.run(['cc', '-shared', '-fPIC', f'-I{TOP}', f'-DLIE={lie}', '-o', so,
                            TOP / 'tests/plugins/liar_value.c'], check=True, stderr=subprocess.DEVNULL)
        return f'plugin={so}'
    return build


def test_what_a_plugin_says_of_itself_is_quoted(run, liar):
    listed = json.loads(run('info', '--handlers', '--json', '-o', liar('HONEST')).stdout)
    assert [h for h in listed if h['name'] == 'repeat'] == [
        {'name': 'repeat', 'value_fn': True, 'plugin': 'liar', 'summary': 'said "again"\nand\tagain \\'}]


MEAN = {'key': r'mean/(w|b)', 'original_key': [r'a/\1', r'b/\1', r'c/\1'], 'value_fn': 'mean()'}
REPEAT = {'key': 'again', 'original_key': 'a/w', 'value_fn': 'repeat(3)'}


@pytest.mark.feature('B10')
def test_a_plugins_function_of_several_inputs_is_orbaxs_multi_value_fn(mount, saved, mean, rules):
    m = mount(saved, mean, rules(MEAN))
    tree = state()

    def value(key, flat):
        return np.mean(np.stack([tree[x][key.split('/')[1]] for x in 'abc']), 0)
    theirs = ocp.apply_transformations(tree, {r'mean/(w|b)': ocp.Transform(multi_value_fn=value)},
                                       {'mean': {'w': ..., 'b': ...}})['mean']
    for name in 'wb':
        ours = np.load(m / f'mean/{name}.npy')
        assert ours.dtype == theirs[name].dtype and ours.tobytes() == theirs[name].tobytes(), name
    assert np.array_equal(np.load(m / 'mean/w[7:90:3,2].npy'), theirs['w'][7:90:3, 2])
    assert (m / 'mean/w.npy').stat().st_size == 128 + theirs['w'].nbytes
    assert not (m / 'a').exists() and (m / 'n.npy').exists()            # used up, and carried over


@pytest.mark.feature('B10')
def test_arguments_and_other_shapes(mount, saved, liar, rules):
    m = mount(saved, liar('HONEST'), rules(REPEAT, {'key': 'twice', 'original_key': 'b/b', 'value_fn': 'repeat( 2)'},
                                           {'key': 'one', 'value_fn': 'repeat(2)'}))
    w = state()['a']['w']
    assert np.array_equal(np.load(m / 'again.npy'), np.stack([w] * 3))
    assert np.load(m / 'twice.npy').shape == (2, 5)
    assert np.array_equal(np.load(m / 'one.npy'), np.float32([2.5, 2.5]))


@pytest.mark.feature('B10', 'B2')
def test_what_is_larger_than_memory_passes_in_pieces(mount, liar, rules, tmp_path):
    a = np.arange(4 * MIB, dtype=np.float32)
    ocp.PyTreeCheckpointer().save(tmp_path / 'item', {'a': a})
    m = mount(tmp_path / 'item', liar('HONEST'), rules({'key': 'a', 'value_fn': 'repeat(8)'}), 'cache=16M',
              'read_budget=16M')
    with open(m / 'a.npy', 'rb', buffering=0) as f:
        for at in (0, 50 * MIB, 127 * MIB):
            f.seek(128 + at)
            assert f.read(4096) == a.tobytes()[at % a.nbytes:at % a.nbytes + 4096]
    assert m.stats()['spill_bytes'] in (8 * a.nbytes, 9 * a.nbytes)     # its input is read again, and decoded once
    assert m.memory() <= (16 + 16 + 64) * MIB, m.memory() / MIB


@pytest.mark.feature('B10', 'A14')
def test_info_and_check_tell_of_it(run, saved, mean, rules):
    option = rules(MEAN)
    listed = json.loads(run('info', '--handlers', '--json', '-o', mean).stdout)
    assert listed[0]['name'] == 'mean' and listed[0]['value_fn'] and listed[0]['plugin'] == 'mean'
    assert 'value function' in run('info', '--handlers', '-o', mean).stdout
    path = option.partition('=')[2]
    lines = run('transform', '-o', mean, '--check', path, saved).stdout.splitlines()
    assert 'mean/b.npy <- mean(a.b, b.b, c.b)' in lines
    rules({'key': 'n', 'value_fn': 'mean()'})
    r = run('transform', '-o', mean, '--check', path, saved, ok=False)
    assert r.returncode == 1 and "plugin 'mean': it takes float32 only" in r.stderr
    rules({'key': 'x', 'original_key': ['a/w', 'b/b'], 'value_fn': 'mean()'})
    r = run('transform', '-o', mean, '--check', path, saved, ok=False)
    assert r.returncode == 1 and 'its inputs differ in shape' in r.stderr


def test_the_plugin_comes_before_the_rules(program, saved, mean, rules, tmp_path):
    for options in ([rules(MEAN)], [rules(MEAN), mean]):
        with pytest.raises(mounts.MountError, match=r"'mean\(\)' is not one of cast, .* or of a plugin given before"):
            mounts.Mount(program, saved, tmp_path / 'm', tmp_path / 'log', options)


@pytest.mark.feature('A14')
def test_a_plugin_of_the_time_before_value_functions_loads(run, tmp_path, cases):
    """Its description ends in front of them, and what lies after it is anything."""
    (tmp_path / 'old.c').write_text('''
        #include <stddef.h>
        #include "handlers/plugin/leaf_plugin.h"
        static int decode(const struct pytreefs_host *h, const struct pytreefs_plugin_file *f, uint32_t n)
        { return h->add(h, "", f->p, f->n); }
        static const struct pytreefs_leaf leaf = {
            .size = sizeof(leaf), .name = "old", .typestr = "Old", .extension = ".old", .decode = decode };
        const struct pytreefs_plugin *pytreefs_plugin(void)
        {
            static const struct pytreefs_plugin p = {
                .abi = 1, .size = offsetof(struct pytreefs_plugin, values), .name = "old", .leaf = &leaf,
                .values = (void *)16, .n_values = 5 };
            return &p;
        }''')
    subprocess.run(['cc', '-shared', '-fPIC', f'-I{TOP}', '-o', tmp_path / 'old.so', tmp_path / 'old.c'], check=True)
    listed = json.loads(run('info', '--handlers', '--json', '-o', f'plugin={tmp_path}/old.so').stdout)
    assert [h['name'] for h in listed][0] == 'old' and not any('value_fn' in h for h in listed)


# ---- plugins that lie ----

@pytest.mark.feature('A14')
@pytest.mark.parametrize('lie,word', [
    ('SHORT_VALUE', 'too short'), ('NULL_VALUE', 'by NULL'), ('NO_NAME', 'without a name'), ('BAD_NAME', 'without a name'),
    ('OUR_NAME', "'concat', which is the name of a built-in one"), ('NO_PLAN', 'plan()'), ('NO_RUN', 'run()'),
    ('TOO_MANY_VALUES', '2147483648 value functions'),
])
def test_a_broken_description_is_refused_before_mounting(run, liar, cases, lie, word):
    r = run('ls', '-o', liar(lie), cases('bare-scalar').path, ok=False)
    assert r.returncode == 2 and word in r.stderr, r.stderr


@pytest.mark.feature('B10')
@pytest.mark.parametrize('lie,word,code', [
    ('REFUSES', 'not such an array', errno.EINVAL), ('REFUSES_SILENTLY', 'without a message', errno.EINVAL),
    ('ODD_PLAN', 'returned 7', errno.EINVAL), ('UNKNOWN_DTYPE', "'float99'", errno.EINVAL),
    ('ENDLESS_DTYPE', 'no NUL', errno.EINVAL), ('MANY_AXES', '4294967295 axes', errno.EINVAL),
    ('HUGE_AXES', '2^64', errno.EIO), ('READS_TOO_EARLY', 'read elements', errno.EINVAL),
    ('WRITES_TOO_EARLY', 'wrote elements', errno.EINVAL), ('GIVES_A_FILE', 'added a file', errno.EINVAL),
])
def test_lies_about_the_result_are_errors_of_that_leaf(mount, saved, liar, rules, lie, word, code):
    m = mount(saved, liar(lie), rules(REPEAT), allow_errors=True)
    with pytest.raises(OSError) as e:
        (m / 'again.npy').stat()
    assert e.value.errno == code
    assert any(word in line and 'repeat' in line for line in m.log_lines()), m.log_lines()
    assert np.load(m / 'n.npy').tolist() == list(range(6))


@pytest.mark.feature('B10')
@pytest.mark.parametrize('lie,word', [
    ('WRITES_LESS', 'announced 84000 bytes and wrote 83999'), ('WRITES_NOTHING', 'wrote 0'), ('WRITES_MORE', 'writes more'),
    ('WRITES_MUCH_MORE', 'writes more'), ('WRITES_FROM_NOWHERE', 'from NULL'), ('READS_BEHIND', '[83997, +4)'),
    ('READS_FAR_BEHIND', '[18446744073709551614, +4)'), ('READS_ANOTHER', 'input 1 of 1'),
    ('READS_TO_NOWHERE', 'to NULL'), ('FAILS', 'wrong phase'), ('FAILS_SILENTLY', 'without a message'),
    ('ODD_RESULT', 'returned 7'),
])
def test_lies_about_the_elements_are_errors_of_that_leaf(mount, saved, liar, rules, lie, word):
    m = mount(saved, liar(lie), rules(REPEAT), allow_errors=True)
    assert (m / 'again.npy').stat().st_size == 128 + 84000
    for _ in range(2):
        with pytest.raises(OSError) as e:
            (m / 'again.npy').read_bytes()
        assert e.value.errno == errno.EIO
    assert any(word in line and "plugin 'liar'" in line and 'repeat(3)' in line for line in m.log_lines()), m.log_lines()
    assert m.stats()['spill_bytes'] == 0
    assert np.load(m / 'n.npy').tolist() == list(range(6))


@pytest.mark.feature('B10')
def test_more_than_there_is_room_for(mount, saved, liar, rules):
    m = mount(saved, liar('HUGE'), rules(REPEAT), allow_errors=True)
    with pytest.raises(OSError) as e, open(m / 'again.npy', 'rb', buffering=0) as f:
        f.seek(1 << 20)
        f.read(10)
    assert e.value.errno == errno.ENOSPC
    assert any('spill_limit' in line for line in m.log_lines()), m.log_lines()


def test_a_damaged_input_is_reported_as_damaged(mount, liar, rules, tmp_path):
    """The plugin does not look at what read() returned."""
    ocp.PyTreeCheckpointer(use_ocdbt=False).save(tmp_path / 'item', {'a': np.arange(5000, dtype=np.float32)})
    chunk = tmp_path / 'item/a/0'
    chunk.write_bytes(chunk.read_bytes()[:-20])
    m = mount(tmp_path / 'item', liar('DOES_NOT_MIND'), rules({'key': 'a', 'value_fn': 'repeat(2)'}), allow_errors=True)
    with pytest.raises(OSError) as e:
        (m / 'a.npy').read_bytes()
    assert e.value.errno == errno.EIO
    assert any('chunk' in line and 'zstd' in line for line in m.log_lines()), m.log_lines()
    assert not any('announced' in line for line in m.log_lines())
