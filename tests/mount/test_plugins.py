# SPDX-License-Identifier: Apache-2.0
"""Plugins: the npz leaf of Orbax's guide against its Python handler, items, and plugins that lie."""

import errno
import json
import logging
import os
import pathlib
import re
import subprocess

import numpy as np
import orbax.checkpoint as ocp
import pytest

from lib import compare, mounts

TOP = pathlib.Path(__file__).resolve().parents[2]
logging.getLogger('absl').setLevel(logging.ERROR)


class MyState:
    def __init__(self, a, b):
        self.a, self.b = a, b


class MyStateHandler(ocp.type_handlers.TypeHandler):
    """The guide's: an .npz file in a directory of the leaf's name."""

    def typestr(self):
        return 'MyState'

    async def serialize(self, values, infos, args=None):
        for value, info in zip(values, infos):
            info.path.mkdir(exist_ok=True)
            np.savez(info.path / 'my_state.npz', a=value.a, b=value.b)
        return []

    async def deserialize(self, infos, args=None):
        loaded = [np.load(info.path / 'my_state.npz') for info in infos]
        return [MyState(f['a'], f['b']) for f in loaded]

    async def metadata(self, infos):
        return [ocp.metadata.StringMetadata(name=info.name, directory=info.parent_dir) for info in infos]


@pytest.fixture(scope='module', autouse=True)
def registered():
    ocp.type_handlers.register_type_handler(MyState, MyStateHandler(), override=True)


@pytest.fixture
def npz(build):
    return f'plugin={build}/npz.so'


def state():
    return {'n': {'k': MyState(np.arange(4), np.ones((2, 3), np.float32))}, 'my': MyState(np.zeros(1), np.arange(2)),
            'w': np.arange(6.0), 'name': 'x'}


def restored(path):
    return ocp.PyTreeCheckpointer().restore(path)


def equal(a, b):
    return np.array_equal(a.a, b.a) and np.array_equal(a.b, b.b) and a.a.dtype == b.a.dtype


@pytest.mark.feature('A8', 'A14', 'C1')
def test_what_the_guides_handler_wrote_is_a_file(mount, npz, tmp_path):
    ocp.PyTreeCheckpointer().save(tmp_path / 'item', state())
    m = mount(tmp_path / 'item', npz, allow_errors=True)
    assert {p.name for p in m.path.iterdir() if p.name[0] != '_'} == {'my.npz', 'n', 'name.txt', 'w.npy'}
    with np.load(m / 'n/k.npz') as f:
        assert equal(MyState(f['a'], f['b']), state()['n']['k'])
    stored = (tmp_path / 'item/n.k/my_state.npz').read_bytes()
    assert (m / 'n/k.npz').read_bytes() == stored and (m / 'n/k.npz').stat().st_size == len(stored)
    assert compare.xattrs(m / 'n/k.npz')['plugin'] == ['a', 'b']
    assert compare.xattrs(m / 'n/k.npz')['typestr'] == 'MyState'
    with pytest.raises(OSError):
        (m / '.safetensors').read_bytes()       # it is not a tensor, and nothing is left out silently


@pytest.mark.feature('A8', 'A14', 'C1', 'C3', 'E6')
def test_what_is_written_is_restored_by_the_guides_handler(mount, npz, tmp_path):
    (tmp_path / 'root').mkdir()
    m = mount(tmp_path / 'root', npz)
    d = m / '3.tmp/default'
    (d / 'n').mkdir(parents=True)
    np.savez(d / 'n/k.npz', a=state()['n']['k'].a, b=state()['n']['k'].b)
    np.savez(d / 'my.npz', a=state()['my'].a, b=state()['my'].b)
    np.save(d / 'w.npy', state()['w'])
    os.rename(m / '3.tmp', m / '3')
    back = restored(tmp_path / 'root/3/default')
    assert equal(back['n']['k'], state()['n']['k']) and equal(back['my'], state()['my'])
    assert np.array_equal(back['w'], state()['w'])
    with np.load(m / '3/default/n/k.npz') as f:
        assert equal(MyState(f['a'], f['b']), state()['n']['k'])


@pytest.mark.option('plugin')
def test_without_the_plugin_it_is_shown_as_stored(mount, npz, tmp_path):
    ocp.PyTreeCheckpointer().save(tmp_path / 'item', state())
    m = mount(tmp_path / 'item')
    assert (m / 'n/k/my_state.npz').read_bytes() == (tmp_path / 'item/n.k/my_state.npz').read_bytes()
    assert not (m / 'n/k.npz').exists() and (mount(tmp_path / 'item', npz) / 'n/k.npz').exists()


def test_what_is_not_an_archive_is_refused_by_name(mount, npz, tmp_path):
    (tmp_path / 'root').mkdir()
    m = mount(tmp_path / 'root', npz, allow_errors=True)
    (m / '3.tmp/default').mkdir(parents=True)
    (m / '3.tmp/default/bad.npz').write_bytes(b'no archive at all, for sure')
    with pytest.raises(OSError) as e:
        os.rename(m / '3.tmp', m / '3')
    assert e.value.errno == errno.ECANCELED
    assert any('bad' in line and 'zip' in line for line in m.log_lines())


def test_a_damaged_archive_is_eio_and_its_neighbours_read(mount, npz, tmp_path):
    ocp.PyTreeCheckpointer().save(tmp_path / 'item', state())
    path = tmp_path / 'item/n.k/my_state.npz'
    path.write_bytes(path.read_bytes()[:-10])
    m = mount(tmp_path / 'item', npz, allow_errors=True)
    with pytest.raises(OSError) as e:
        (m / 'n/k.npz').read_bytes()
    assert e.value.errno == errno.EIO
    assert np.load(m / 'w.npy').tolist() == state()['w'].tolist()


@pytest.mark.feature('A14', 'E6')
def test_info_lists_handlers_in_order(run, npz):
    def leaves(options):
        return [h['name'] for h in json.loads(run('info', '--handlers', '--json', '-o', options).stdout) if 'item' not in h]

    names = leaves(npz)
    table = re.findall(r'^\ttype\((\w+)\)', (TOP / 'handlers/leaf/leaf.c').read_text(), re.M)
    assert names == ['npz', *table] and {'array', 'scalar', 'string', 'none'} <= set(table)
    assert leaves(f'{npz},handlers=none') == ['npz']


@pytest.mark.option('handlers')
@pytest.mark.feature('E6', 'D8')
def test_without_handlers_only_plugins_count(mount, npz, tmp_path):
    ocp.PyTreeCheckpointer(use_ocdbt=False).save(tmp_path / 'item', state())
    m = mount(tmp_path / 'item', npz, 'handlers=none')
    assert (m / 'w/.zarray').read_bytes() == (tmp_path / 'item/w/.zarray').read_bytes()
    assert (m / 'my.npz').is_file()
    m = mount(tmp_path / 'item', npz)
    assert np.array_equal(np.load(m / 'w.npy'), state()['w']) and (m / 'my.npz').is_file()


def test_leaves_without_files_of_their_own_are_not_listed(mount, npz, tmp_path):
    """In a database no leaf but the plugin's has files: find and ls -lR go through, and a name says why it is not there."""
    ocp.PyTreeCheckpointer(use_ocdbt=True).save(tmp_path / 'item', state())
    m = mount(tmp_path / 'item', npz, 'handlers=none', allow_errors=True)
    r = subprocess.run(f'ls -lR {m.path} && find {m.path} -type f', shell=True, capture_output=True, text=True)
    assert r.returncode == 0 and not r.stderr and '?' not in r.stdout, r
    assert 'my.npz' in r.stdout and 'w' not in os.listdir(m.path)
    with pytest.raises(OSError) as e:
        os.stat(m / 'w')
    assert e.value.errno == errno.EOPNOTSUPP


# ---- plugins that lie ----

@pytest.fixture(scope='module')
def liar(tmp_path_factory):
    where = tmp_path_factory.mktemp('liars')

    def build(lie, *defines):
        so = where / f'{lie}{"".join(defines).translate({34: None, 61: None})}.so'
        if not so.exists():
            subprocess.run(['cc', '-shared', '-fPIC', f'-I{TOP}', f'-DLIE={lie}', *defines, '-o', so,
                            TOP / 'tests/plugins/liar.c'], check=True, stderr=subprocess.DEVNULL)
        return f'plugin={so}'
    return build


@pytest.mark.feature('A14')
@pytest.mark.parametrize('lie,word', [
    ('OLD_ABI', 'version 77'), ('SHORT_PLUGIN', '8 bytes'), ('SHORT_LEAF', 'too short'), ('NO_NAME', 'name'),
    ('BAD_EXTENSION', 'extension'), ('OUR_EXTENSION', 'ours'), ('NO_DECODE', 'decode()'), ('NOTHING_AT_ALL', 'returned NULL'),
    ('SHORT_ITEM', 'too short'), ('ITEM_WITHOUT_DECODE', 'decode()'),
])
def test_a_broken_description_is_refused_before_mounting(run, liar, cases, lie, word):
    r = run('ls', '-o', liar(lie), cases('bare-scalar').path, ok=False)
    assert r.returncode == 2 and word in r.stderr, r.stderr


def liar_item(path):
    """An item with a leaf of the liar's type."""
    ocp.PyTreeCheckpointer().save(path, {'w': np.arange(3.0), 'l': MyState(np.zeros(1), np.zeros(1))})
    meta = path / '_METADATA'
    meta.write_text(meta.read_text().replace('MyState', 'Liar'))
    return path


@pytest.mark.parametrize('lie,word', [
    ('WRONG_SIZE', 'announced'), ('HUGE_SIZE', 'limit'), ('GIVES_NOTHING', 'no file'), ('GIVES_TWICE', 'more than one'),
    ('FAILS', 'wrong phase'), ('FAILS_SILENTLY', 'without a message'), ('ODD_RESULT', '7'), ('TOO_MUCH', 'limit'),
    ('NULL_BYTES', 'without a name'),
])
def test_lies_while_reading_are_errors_of_that_leaf(mount, liar, tmp_path, lie, word):
    m = mount(liar_item(tmp_path / 'item'), liar(lie), allow_errors=True)
    with pytest.raises(OSError) as e:
        (m / 'l.liar').read_bytes()
    assert e.value.errno == errno.EIO
    assert any(word in line and 'liar' in line for line in m.log_lines()), m.log_lines()
    assert np.load(m / 'w.npy').tolist() == [0, 1, 2]


@pytest.mark.parametrize('lie,word', [
    ('ESCAPES', 'name'), ('ABSOLUTE', 'name'), ('ENCODES_NOTHING', 'no file'), ('REFUSES', 'Sunday'),
    ('REFUSES_AT_THE_END', 'second thoughts'), ('TOO_MANY', 'files'), ('SAME_NAME', "'data'"),
    ('FILE_AND_DIRECTORY', "'data"), ('EMPTY_NAME', 'name'), ('NO_FILE_NAME', 'without a name'),
    ('GIVES_AT_THE_END', 'none was asked for'),
])
def test_lies_while_writing_refuse_the_commit(mount, liar, tmp_path, lie, word):
    (tmp_path / 'root').mkdir()
    m = mount(tmp_path / 'root', liar(lie), allow_errors=True)
    (m / '1.tmp/default').mkdir(parents=True)
    (m / '1.tmp/default/l.liar').write_bytes(b'some bytes')
    pathlib.Path('/tmp/escaped').unlink(missing_ok=True)
    with pytest.raises(OSError) as e:
        os.rename(m / '1.tmp', m / '1')
    assert e.value.errno == errno.ECANCELED
    assert any(word in line for line in m.log_lines()), m.log_lines()
    assert not list(tmp_path.rglob('escaped')) and not pathlib.Path('/tmp/escaped').exists()
    assert (m / '1.tmp/default/l.liar').read_bytes() == b'some bytes'


@pytest.mark.option('commit_timeout')
@pytest.mark.feature('D1')
def test_a_commit_that_takes_longer_than_its_limit(mount, liar, tmp_path):
    """The plugin sleeps for longer than a second; without the limit the same commit succeeds."""
    (tmp_path / 'root').mkdir()
    m = mount(tmp_path / 'root', liar('SLEEPS'), 'commit_timeout=1', allow_errors=True)
    (m / '1.tmp/default').mkdir(parents=True)
    (m / '1.tmp/default/l.liar').write_bytes(b'some bytes')
    with pytest.raises(OSError) as e:
        os.rename(m / '1.tmp', m / '1')
    assert e.value.errno == errno.ETIMEDOUT
    assert (m / '1.tmp/default/l.liar').exists() and not (tmp_path / 'root/1').exists()
    m.unmount()
    m = mount(tmp_path / 'root', liar('SLEEPS'), 'commit_timeout=0')
    (m / '1.tmp/default').mkdir(parents=True)
    (m / '1.tmp/default/l.liar').write_bytes(b'some bytes')
    os.rename(m / '1.tmp', m / '1')
    assert (tmp_path / 'root/1').exists()


def test_the_honest_one_reads_and_writes(mount, liar, tmp_path):
    (tmp_path / 'root').mkdir()
    m = mount(tmp_path / 'root', liar('HONEST'))
    (m / '1.tmp/default').mkdir(parents=True)
    (m / '1.tmp/default/l.liar').write_bytes(b'some bytes')
    os.rename(m / '1.tmp', m / '1')
    assert (m / '1/default/l.liar').read_bytes() == b'some bytes'
    assert (tmp_path / 'root/1/default/l/data').read_bytes() == b'some bytes'


@pytest.mark.option('override')
@pytest.mark.feature('A14', 'E6')
def test_a_built_in_type_is_taken_only_with_override(mount, liar, tmp_path):
    ocp.PyTreeCheckpointer(use_ocdbt=False).save(tmp_path / 'item', {'w': np.arange(3.0)})
    taker = liar('HONEST', '-DTYPESTR="np.ndarray"')
    assert (mount(tmp_path / 'item', taker) / 'w.npy').is_file()
    assert (mount(tmp_path / 'item', taker, 'override=on') / 'w.liar').is_file()


# ---- items ----

@pytest.mark.feature('C2', 'E1', 'D8')
def test_an_item_of_a_plugin_both_ways(mount, liar, tmp_path):
    root = tmp_path / 'root'
    (root).mkdir()
    m = mount(root, liar('HONEST'), 'handler=notes:turned')
    (m / '1.tmp/notes/deep').mkdir(parents=True)
    (m / '1.tmp/notes/backwards').write_text('abc')
    (m / '1.tmp/notes/deep/er').write_text('12345')
    os.rename(m / '1.tmp', m / '1')
    assert (root / '1/notes/backwards').read_text() == 'cba'
    assert (root / '1/notes/deep/er').read_text() == '54321'
    assert json.loads((root / '1/_CHECKPOINT_METADATA').read_text())['item_handlers'] == {'notes': 'example.Turned'}
    assert (m / '1/notes/backwards').read_text() == 'abc' and (m / '1/notes/deep/er').read_text() == '12345'
    assert sorted(os.listdir(m / '1/notes')) == ['backwards', 'deep']
    # By probing, without a bound name; and without the plugin as stored.
    assert (mount(root, liar('HONEST')) / '1/notes/backwards').read_text() == 'abc'
    assert (mount(root) / '1/notes/backwards').read_text() == 'cba'


ITEM_LIES = [('ITEM_ESCAPES', 'name'), ('ITEM_SAME_NAME', "'backwards'"), ('ITEM_FILE_AND_DIRECTORY', "'backwards"),
             ('ITEM_FAILS', 'wrong phase'), ('ITEM_TOO_MUCH', 'limit')]


@pytest.mark.feature('C2')
@pytest.mark.parametrize('lie,word', ITEM_LIES)
def test_lies_about_items_while_reading(mount, liar, tmp_path, lie, word):
    root = tmp_path / 'root'
    (root / '1/notes').mkdir(parents=True)
    (root / '1/notes/backwards').write_text('cba')
    (root / '1/_CHECKPOINT_METADATA').write_text('{}')
    m = mount(root, liar(lie), allow_errors=True)
    with pytest.raises(OSError) as e:
        (m / '1/notes/backwards').read_bytes()
    assert e.value.errno == errno.EIO
    assert any(word in line and 'liar' in line for line in m.log_lines()), m.log_lines()


@pytest.mark.feature('C2')
@pytest.mark.parametrize('lie,word', ITEM_LIES)
def test_lies_about_items_while_writing(mount, liar, tmp_path, lie, word):
    (tmp_path / 'root').mkdir()
    m = mount(tmp_path / 'root', liar(lie), 'handler=notes:turned', allow_errors=True)
    (m / '1.tmp/notes').mkdir(parents=True)
    (m / '1.tmp/notes/backwards').write_text('abc')
    with pytest.raises(OSError) as e:
        os.rename(m / '1.tmp', m / '1')
    assert e.value.errno == errno.ECANCELED
    assert any(word in line and 'liar' in line for line in m.log_lines()), m.log_lines()
    assert not list(tmp_path.rglob('escaped')) and (m / '1.tmp/notes/backwards').read_text() == 'abc'


@pytest.mark.option('handler')
@pytest.mark.feature('D8')
def test_a_bound_name_comes_without_probing(mount, liar, tmp_path):
    """Nothing in the item says that it is the plugin's."""
    (tmp_path / 'root').mkdir()
    for step, options, stored in ((1, ['handler=notes:turned'], 'cba'), (2, ['handler=others:turned'], 'abc')):
        m = mount(tmp_path / 'root', liar('HONEST'), *options)
        (m / f'{step}.tmp/notes').mkdir(parents=True)
        (m / f'{step}.tmp/notes/forwards').write_text('abc')
        if step == 2:       # no plugin takes it: its files are stored as they are
            os.setxattr(m / f'{step}.tmp/notes', 'user.pytree.kind', b'"opaque"')
        os.rename(m / f'{step}.tmp', m / str(step))
        assert (m / f'{step}/notes/forwards').read_text() == 'abc'
        assert (tmp_path / f'root/{step}/notes/forwards').read_text() == stored
        m.unmount()


@pytest.mark.option('handler')
@pytest.mark.feature('D8')
def test_an_item_is_bound_to_a_built_in_type(run, mount, liar, tmp_path):
    """Its files do not matter, nor does a plugin that would take it."""
    (tmp_path / 'root').mkdir()
    bound = ['handler=notes:files', 'handler=state:tree']
    m = mount(tmp_path / 'root', liar('HONEST'), *bound)
    for item in ('notes', 'state'):
        (m / '1.tmp' / item).mkdir(parents=True)
        np.save(m / f'1.tmp/{item}/w.npy', np.arange(3))
    os.rename(m / '1.tmp', m / '1')
    stored = tmp_path / 'root/1'
    assert os.listdir(stored / 'notes') == ['w.npy'] and (stored / 'state/_METADATA').exists()
    assert np.array_equal(np.load(m / '1/notes/w.npy'), np.arange(3)) and np.array_equal(np.load(m / '1/state/w.npy'), np.arange(3))
    assert json.loads((m / '.pytreefs/config').read_text())['options']['handler']['value'] == 'state:tree notes:files'
    m.unmount()
    listed = run('tree', '-o', 'handler=state:files', stored).stdout
    assert 'manifest.ocdbt' in listed and '_METADATA' in listed, listed
    r = run('tree', '-o', 'handler=notes:tree', stored, ok=False)
    assert 'no _METADATA and no arrays' in r.stdout + r.stderr, r


def test_the_types_of_items_are_listed(run, liar):
    named = {h['name']: h for h in json.loads(run('info', '--handlers', '--json', '-o', liar('HONEST')).stdout) if 'item' in h}
    assert named.keys() == {'turned', 'tree', 'json', 'proto', 'files'} and named['turned']['plugin'] == 'liar'
    assert not named['tree']['plugin']
    lines = run('info', '--handlers', '-o', liar('HONEST')).stdout
    assert re.search(r'^turned .*plugin liar$', lines, re.M) and re.search('^files    item: anything else', lines, re.M)


def test_a_binding_needs_a_handler_of_that_name(run, npz, cases):
    for name, said in (('nosuch', "no plugin before it has an item type 'nosuch', and it is not tree or files"), ('json', 'NAME.json')):
        r = run('ls', '-o', f'{npz},handler=x:{name}', cases('bare-scalar').path, ok=False)
        assert r.returncode == 2 and said in r.stderr


def test_a_plugin_that_is_not_there(program, tmp_path, cases):
    with pytest.raises(mounts.MountError, match='nowhere'):
        mounts.Mount(program, cases('bare-scalar').path, tmp_path / 'm', tmp_path / 'log', ['plugin=/nowhere.so'])
