# SPDX-License-Identifier: Apache-2.0
"""Everything around the arrays of a step that was written through a mount: items, metadata, names, deletion."""

import asyncio
import collections
import errno
import json
import os
import signal
import stat
import re
import subprocess
import sys
import time

from lib import jaxenv  # noqa: F401  before jax

import jax
import numpy as np
import orbax.checkpoint as ocp0
import pytest
import safetensors.numpy
from orbax.checkpoint import v1 as ocp1

from lib import expect, mounts, programs, restoring, writing
from lib.gen_matrix import save_v0, values
from lib.pairs import LONG
from test_writing import commit, leaves, write

W = values((20, 30), np.float32, 1)


@pytest.mark.feature('B6')
def test_rich_types(mount, root):
    """B6: tuples are recorded as tuples, and v0 restores them so."""
    m = mount(root, 'rich_types')
    tree = leaves()
    write(m, '7', tree)
    commit(m, '7')
    from orbax.checkpoint._src.metadata import pytree_metadata_options
    handler = ocp0.PyTreeCheckpointHandler(
        pytree_metadata_options=pytree_metadata_options.PyTreeMetadataOptions(support_rich_types=True))
    with ocp0.Checkpointer(handler) as checkpointer:
        meta = checkpointer.metadata(root / '7/default').item_metadata
    assert type(meta['opt'][1]) is tuple and type(meta['opt']) is list and type(meta['nothing']) is tuple
    assert not restoring.by_orbax(root, 7, tree)


@pytest.mark.feature('B6')
def test_array_metadata_is_valid(mount, root):
    """B6: Orbax's own validator of array metadata agrees with what was written."""
    from orbax.checkpoint._src.metadata import array_metadata_store
    m = mount(root, 'leaf_type=jax.Array', 'chunk_byte_size=600')
    write(m, '7', expect.flatten({'w': W, 'in': {'b': W[0]}}))
    commit(m, '7')
    found = asyncio.run(array_metadata_store.Store().read(root / '7/default'))
    found = [a for of_process in found.values() for a in of_process]
    assert {a.param_name: tuple(a.write_shape) for a in found} == {'w': (20, 30), 'in.b': (30,)}
    assert {a.param_name: int(np.prod(a.chunk_shape)) * 4 <= 600 for a in found} == {'w': True, 'in.b': True}


@pytest.mark.feature('B9')
@pytest.mark.feature('D5')
def test_custom_metadata_and_data_files(mount, root):
    """B9, D5: custom metadata of item and step, and the size of data files."""
    m = mount(root, 'target_data_file_size=3000')
    where = m / '7.tmp/default'
    where.mkdir(parents=True)
    for i in range(8):
        np.save(where / f'w{i}.npy', values((400,), np.float64, i))
    writing.set_xattrs(where, {'custom_metadata': {'a': [1, 2.5, None], 'b': {'c': 'text'}}})
    writing.set_xattrs(m / '7.tmp', {'custom_metadata': {'step': 'yes'}})
    commit(m, '7')
    with ocp0.Checkpointer(ocp0.PyTreeCheckpointHandler()) as checkpointer:
        meta = checkpointer.metadata(root / '7/default').item_metadata
    assert meta.custom_metadata == {'a': [1, 2.5, None], 'b': {'c': 'text'}}
    with ocp0.CheckpointManager(root) as manager:
        assert manager.metadata(7).custom_metadata == {'step': 'yes'}
    files = [p for p in (root / '7/default').rglob('*') if p.is_file() and p.parent.name == 'd']
    assert len(files) > 5, 'a data file for each array or so'
    assert not restoring.by_orbax(root, 7, expect.flatten({f'w{i}': values((400,), np.float64, i) for i in range(8)}), ('v0',))


@pytest.mark.feature('F3')
def test_custom_metadata_of_all_steps(mount, root):
    """F3: those that a CheckpointManager was given, under the present and the older name of the file."""
    given = {'run': 'a', 'lr': 0.001, 'nested': {'b': [1, None]}}
    with ocp0.CheckpointManager(root, metadata=given) as manager:
        manager.save(7, args=ocp0.args.StandardSave({'w': W}))
    name = 'user.pytree.custom_metadata'
    m = mount(root, allow_errors=True)
    assert json.loads(os.getxattr(m.path, name)) == given and os.listxattr(m.path) == [name]
    (root / 'metadata/_ROOT_METADATA').rename(root / 'metadata/_kept')
    (root / 'metadata/metadata').write_text(json.dumps({'old': 1}))
    assert json.loads(os.getxattr(m.path, name)) == {'old': 1}
    for text in ('{', '[1]', '{}', '"x"'):
        (root / 'metadata/metadata').write_text(text)
        with pytest.raises(OSError, match='No data available'):
            os.getxattr(m.path, name)
    (root / 'metadata/metadata').unlink()
    assert os.listxattr(m.path) == []


@pytest.mark.feature('D3')
def test_permissions(mount, root):
    """D3: directories get the mode that was asked for, under the umask, as Orbax has it; files 0666."""
    umask = os.umask(0o022)
    os.umask(umask)
    m = mount(root, 'mode=0750')
    write(m, '7', expect.flatten({'w': W}))
    commit(m, '7')
    modes = {(p.is_dir(), oct(stat.S_IMODE(p.stat().st_mode))) for p in [root / '7', *(root / '7').rglob('*')]}
    assert modes == {(True, '0o750'), (False, oct(0o666 & ~umask))}


@pytest.mark.feature('D3')
@pytest.mark.parametrize('atomicity', ['rename', 'commit_file'])
def test_atomicity(mount, root, atomicity):
    """D3: a rename makes the step, or the marker, written last under the final name."""
    m = mount(root, f'atomicity={atomicity}')
    write(m, '7', expect.flatten({'w': W}))
    on_disk = [p.name for p in root.iterdir()]
    assert on_disk == (['7'] if atomicity == 'commit_file' else ['.7.pytreefs-draft'])
    assert not (root / '7/commit_success.txt').exists()
    assert os.listdir(m.path) == ['7.tmp']
    commit(m, '7')
    assert (root / '7/commit_success.txt').exists() and os.listdir(m.path) == ['7']
    assert not restoring.by_orbax(root, 7, expect.flatten({'w': W}), ('v0', 'manager', 'v1'))


@pytest.mark.feature('D10')
def test_deletion(mount, root):
    """D10: rmdir of a step deletes it, or moves it away."""
    for name in ('5', '6', '7'):
        save_v0(root / name / 'default', {'w': W})
    m = mount(root, 'allow_delete')
    (m / '5').rmdir()
    assert sorted(p.name for p in root.iterdir()) == ['6', '7']
    m.unmount()
    m = mount(root, 'allow_delete', 'todelete=trash')
    (m / '6').rmdir()
    assert sorted(os.listdir(m.path)) == ['7']
    assert not restoring.by_orbax(root / 'trash', 6, expect.flatten({'w': W}), ('v0',))
    with ocp0.CheckpointManager(root) as manager:
        assert list(manager.all_steps()) == [7]


@pytest.mark.feature('E3')
@pytest.mark.feature('E4')
@pytest.mark.feature('E5')
@pytest.mark.feature('F3')
def test_items(mount, root):
    """E3, E4, E5, F3: a tree, a JSON item, metrics, and a proto item, as Orbax's handlers store them."""
    from google.protobuf import struct_pb2, text_format
    m = mount(root)
    write(m, '7', expect.flatten({'w': W}), item='state')
    (m / '7.tmp/config.json').write_text(json.dumps({'lr': 0.5, 'name': 'é', 'list': [1, None]}))
    (m / '7.tmp/metrics.json').write_text(json.dumps({'loss': 1.25}))
    message = struct_pb2.Struct()
    message.update({'a': 1.5, 'b': 'text'})
    (m / '7.tmp/proto.pbtxt').write_text(text_format.MessageToString(message))
    commit(m, '7')
    names = ('state', 'config', 'metrics', 'proto')
    with ocp0.CheckpointManager(root, item_names=names) as manager:
        got = manager.restore(7, args=ocp0.args.Composite(
            state=ocp0.args.PyTreeRestore(), config=ocp0.args.JsonRestore(), metrics=ocp0.args.JsonRestore(),
            proto=ocp0.args.ProtoRestore(struct_pb2.Struct)))
        assert manager.metrics(7) == {'loss': 1.25}
        assert set(manager.item_metadata(7).keys()) >= {'state'}
        assert sorted(manager.metadata(7).item_handlers) == sorted(names)
    assert expect.same_bits(got['state']['w'], W)
    assert got['config'] == {'lr': 0.5, 'name': 'é', 'list': [1, None]} and got['metrics'] == {'loss': 1.25}
    assert got['proto'] == message
    assert sorted(os.listdir(m / '7')) == ['_CHECKPOINT_METADATA', 'config', 'metrics', 'proto', 'state']
    assert (m / '7/metrics/metrics').read_text() == json.dumps({'loss': 1.25})


def test_items_have_any_name(run, mount, root, tmp_path):
    """Characters that are escaped in keys are not escaped in names of items: in listings, drafts, and exports."""
    names = ['x.npy', 'm.json', 'a%b', 'a%25b', 'a@b', '%', 'latest']
    trees = {name: {'w': W + i} for i, name in enumerate(names)}
    with ocp0.CheckpointManager(root, item_names=names) as manager:
        manager.save(1, args=ocp0.args.Composite(**{n: ocp0.args.PyTreeSave(t) for n, t in trees.items()}))
        manager.wait_until_finished()
    m = mount(root)
    (m / '2.tmp').mkdir()
    subprocess.run(['cp', '-r', f'{m.path}/1/.', m / '2.tmp'], check=True)
    assert sorted(os.listdir(m / '2.tmp')) == sorted([*names, '_CHECKPOINT_METADATA'])
    commit(m, '2')
    run('convert', root / '1', root / '3')
    for i, out in enumerate(('d', 'n.npz', 's.safetensors', 'z.zarr')):
        run('export', root / '1', tmp_path / out)
        run('save', tmp_path / out, root / str(4 + i))
    with ocp0.CheckpointManager(root, item_names=names) as manager:
        for step in range(1, 8):
            got = manager.restore(step, args=ocp0.args.Composite(**{n: ocp0.args.PyTreeRestore() for n in names}))
            assert all(expect.same_bits(got[n]['w'], trees[n]['w']) for n in names), step


@pytest.mark.feature('E5')
def test_names_of_files_in_items(mount, root):
    """E4, E5: file names by option."""
    m = mount(root, 'json_filename=data.json', 'proto_filename=model.pbtxt')
    (m / '7.tmp').mkdir()
    (m / '7.tmp/config.json').write_text('{"a": 1}')
    (m / '7.tmp/proto.pbtxt').write_text('')
    commit(m, '7')
    assert os.listdir(m / '7/config') == ['data.json'] and os.listdir(m / '7/proto') == ['model.pbtxt']
    handler = ocp0.JsonCheckpointHandler(filename='data.json')
    with ocp0.Checkpointer(handler) as checkpointer:
        assert checkpointer.restore(root / '7/config') == {'a': 1}


@pytest.mark.feature('E2')
def test_items_of_unknown_kinds(mount, root, tmp_path):
    """E2: a directory of another program's goes in and out byte for byte, by xattr or by cp -a of such an item."""
    m = mount(root)
    blob = m / '7.tmp/blob'
    blob.mkdir(parents=True)
    writing.set_xattrs(blob, {'kind': 'opaque'})
    (blob / 'deep/er').mkdir(parents=True)
    (blob / 'void').mkdir()
    (blob / 'deep/er/w.npy').write_bytes(b'no array at all')
    (blob / 'any.name').write_bytes(bytes(range(256)) * 1000)
    (blob / 'a[0]@b%zz').write_bytes(b'x')
    write_state = m / '7.tmp/state'
    write_state.mkdir()
    np.save(write_state / 'w.npy', W)
    commit(m, '7')
    assert (m / '7/blob/a[0]@b%zz').read_bytes() == b'x'
    # cp -a tells last that a directory is opaque: until then its names are those of leaves.
    subprocess.run(['mkdir', '-p', m / '8.tmp/blob'], check=True)
    writing.set_xattrs(m / '8.tmp/blob', {'kind': 'opaque'})
    subprocess.run(['cp', '-a', m / '7/blob', m / '7/state', m / '8.tmp'], check=True)
    commit(m, '8')
    for step in ('7', '8'):
        for where in (root / step / 'blob', m / step / 'blob'):
            assert (where / 'deep/er/w.npy').read_bytes() == b'no array at all'
            assert (where / 'any.name').read_bytes() == bytes(range(256)) * 1000
            assert (where / 'void').is_dir()
        assert not restoring.by_orbax(root, step, expect.flatten({'w': W}), ('v0', 'v1'), 'state')


@pytest.mark.parametrize('name,text', [('a.foo', '3'), ('w.npz', 'PK'), ('w', '1')])
def test_a_typo_is_not_an_item_of_an_unknown_kind(mount, root, name, text):
    """Files that are not leaves are refused, with how to say that they are meant: Orbax restores no such item."""
    m = mount(root, allow_errors=True)
    write(m, '7', expect.flatten({'w': W}))
    commit(m, '7')
    (m / '8.tmp/default').mkdir(parents=True)
    (m / '8.tmp/default' / name).write_text(text)
    with pytest.raises(OSError) as e:
        os.rename(m / '8.tmp', m / '8')
    assert e.value.errno == errno.ECANCELED
    assert any(f"'{name}'" in line and "setfattr -n user.pytree.kind -v opaque '8.tmp/default'" in line
               for line in m.log_lines())
    writing.set_xattrs(m / '8.tmp/default', {'kind': 'opaque'})
    commit(m, '8')
    assert (root / '8/default' / name).read_text() == text


def test_copies_without_xattrs_of_items_of_unknown_kinds(mount, root, tmp_path):
    """cp -r carries no xattr: the files' source is a hint, or their names. Where there is no hint, the refusal names the command."""
    m = mount(root, allow_errors=True)
    write(m, '7', expect.flatten({'w': W}), item='state')
    (m / '7.tmp/blob').mkdir()
    writing.set_xattrs(m / '7.tmp/blob', {'kind': 'opaque'})
    for name, data in (('any.name', bytes(range(256)) * 100), ('other', b'x'), ('empty', b'')):
        (m / '7.tmp/blob' / name).write_bytes(data)
    (m / '7.tmp/metrics.json').write_text('{"loss": 1}')
    commit(m, '7')
    for step, command in (('8', 'cp -r 7 8.tmp'), ('9', 'mkdir 9.tmp && tar -c -C 7 . | tar -x -C 9.tmp'),
                          ('10', 'mkdir 10.tmp && cp -r 7/blob 10.tmp/renamed && cp -r 7/metrics 10.tmp/other')):
        subprocess.run(command, shell=True, cwd=m.path, check=True, capture_output=True)
        if 'tar' in command:
            with pytest.raises(OSError):
                os.rename(m / f'{step}.tmp', m / step)
            mark = re.search(r"setfattr -n user.pytree.kind -v opaque '[^']*'", '\n'.join(m.log_lines()))[0]
            assert mark.endswith("'9.tmp/blob'"), mark
            subprocess.run(mark, shell=True, cwd=m.path, check=True)
        commit(m, step)
        blob, json_item = (m / step / n for n in (('renamed', 'other') if step == '10' else ('blob', 'metrics')))
        assert {p.name: p.read_bytes() for p in blob.iterdir()} == {
            'any.name': bytes(range(256)) * 100, 'other': b'x', 'empty': b''}
        assert (json_item / 'metrics').read_text() == '{"loss": 1}'
    subprocess.run('mkdir 11.tmp && tar -c -C 7 blob | tar -x -C 11.tmp && mv 11.tmp/blob 11.tmp/unheard', shell=True,
                   cwd=m.path, check=True, capture_output=True)
    with pytest.raises(OSError):
        os.rename(m / '11.tmp', m / '11')


@pytest.mark.parametrize('kind', ['json', 'proto'])
def test_a_checkpoint_of_files_alone(mount, program, root, kind):
    """A checkpoint of a handler that is not for trees has no items: its files are beside its metadata, as they are stored."""
    from google.protobuf import timestamp_pb2
    handler, args, name = {
        'json': (ocp0.JsonCheckpointHandler(), ocp0.args.JsonSave({'a': 1}), 'metadata'),
        'proto': (ocp0.ProtoCheckpointHandler('my.pbtxt'), ocp0.args.ProtoSave(timestamp_pb2.Timestamp(seconds=5)), 'my.pbtxt'),
    }[kind]
    with ocp0.Checkpointer(handler) as checkpointer:
        checkpointer.save(root / '7', args=args)
    for source, where in ((root, '7'), (root / '7', '')):
        m = mount(source)
        assert sorted(os.listdir(m / where)) == ['_CHECKPOINT_METADATA', name]
        assert (m / where / name).read_bytes() == (root / '7' / name).read_bytes()
        m.unmount()
    r = subprocess.run([program, 'cat', str(root / '7' / name)], capture_output=True)
    assert r.returncode == 0 and r.stdout == (root / '7' / name).read_bytes(), r.stderr


def test_files_beside_items(mount, root):
    """A step with items shows these and the files beside them. A directory of nothing but files is not a step."""
    m = mount(root, allow_errors=True)
    write(m, '7', expect.flatten({'w': W}), item='state')
    commit(m, '7')
    (root / '7/notes.txt').write_text('x')
    (root / '8').mkdir()
    (root / '8/notes.txt').write_text('x')
    m.unmount()
    m = mount(root, allow_errors=True)
    assert sorted(os.listdir(m / '7')) == ['_CHECKPOINT_METADATA', 'notes.txt', 'state'] and (m / '7/notes.txt').read_text() == 'x'
    with pytest.raises(OSError):
        os.listdir(m / '8')


def test_a_tree_is_put_into_an_item(mount, root):
    """The contents of an item are not a step of items: the refusal says what to do. A step that is a tree may become an item."""
    ocp0.PyTreeCheckpointer().save(root / '7', {'w': W})
    m = mount(root, allow_errors=True)
    write(m, '6', expect.flatten({'w': W}))
    commit(m, '6')
    (m / '8.tmp').mkdir()
    subprocess.run(['cp', '-r', f'{m / "6"}/default/.', str(m / '8.tmp')], check=True)
    with pytest.raises(OSError):
        os.rename(m / '8.tmp', m / '8')
    assert any("_METADATA': it is of a tree" in line and 'into a directory of the draft' in line for line in m.log_lines())
    subprocess.run('mkdir 9.tmp && cp -r 7 9.tmp/default && mv 9.tmp 9', shell=True, cwd=m.path, check=True)
    assert not restoring.by_orbax(root, 9, expect.flatten({'w': W}))


@pytest.mark.feature('F3')
def test_metadata_of_the_step(mount, root):
    """F3: times and handlers as current Orbax writes them."""
    m = mount(root)
    before, began = time.time_ns(), time.monotonic_ns()
    write(m, '7', expect.flatten({'w': W}))
    live = json.loads((m / '7.tmp/_CHECKPOINT_METADATA').read_text())
    commit(m, '7')
    after, ended = time.time_ns(), time.monotonic_ns()
    # The change of the machine's clock meanwhile, if it was set.
    step = abs((after - before) - (ended - began))
    save_v0(root / '8/default', {'w': W})
    with ocp0.CheckpointManager(root) as manager:
        manager.save(9, args=ocp0.args.PyTreeSave({'w': W}))
        manager.wait_until_finished()
    ours, theirs = (json.loads((root / s / '_CHECKPOINT_METADATA').read_text()) for s in ('7', '9'))
    assert list(ours) == list(theirs) and ours['item_handlers'] == theirs['item_handlers'] == live['item_handlers']
    assert before - step <= ours['init_timestamp_nsecs'] <= ours['commit_timestamp_nsecs'] + step
    assert ours['commit_timestamp_nsecs'] <= after + step
    with ocp0.CheckpointManager(root, item_handlers=ocp0.PyTreeCheckpointHandler()) as manager:
        assert manager.latest_step() == 9 and 7 in manager.all_steps()
        meta = manager.item_metadata(7)
        assert meta['w'].shape == (20, 30) and meta['w'].dtype == np.float32


@pytest.mark.feature('F5')
@pytest.mark.parametrize('separator', ['.', '/'])
def test_safetensors_in(mount, root, tmp_path, separator):
    """F5: a safetensors file becomes a tree, its metadata custom metadata; and out again."""
    m = mount(root, f'safetensors_separator={separator}')
    tree = {'a': W, f'b{separator}c': W[0], f'b{separator}d{separator}e': np.asarray(7), 'empty': np.zeros((0, 3), np.float32)}
    safetensors.numpy.save_file(tree, tmp_path / 'model.safetensors', {'origin': 'here', 'n': '1'})
    (m / '7.tmp').mkdir()
    subprocess.run(['cp', tmp_path / 'model.safetensors', m / '7.tmp/default.safetensors'], check=True)
    assert (m / '7.tmp/default.safetensors').read_bytes() == (tmp_path / 'model.safetensors').read_bytes()
    commit(m, '7')
    want = expect.flatten({'a': W, 'b': {'c': W[0], 'd': {'e': np.asarray(7)}}, 'empty': tree['empty']})
    assert not restoring.by_orbax(root, 7, want, ('v0', 'standard', 'manager', 'v1'))
    with ocp0.Checkpointer(ocp0.PyTreeCheckpointHandler()) as checkpointer:
        meta = checkpointer.metadata(root / '7/default').item_metadata
    assert meta.custom_metadata == {'origin': 'here', 'n': '1'}
    got = safetensors.numpy.load_file(m / '7/default.safetensors')
    assert sorted(got) == sorted(tree) and all(expect.same_bits(got[k], tree[k]) for k in tree)


@pytest.mark.feature('F5')
def test_safetensors_in_a_directory(mount, root):
    """save_file straight into the draft, below other leaves."""
    m = mount(root)
    where = write(m, '7', expect.flatten({'n': 5}))
    tree = expect.flatten({'x': {'w': W, 'b': W[0]}})
    safetensors.numpy.save_file({'x.w': W, 'x.b': W[0]}, where / 'sub.safetensors')
    commit(m, '7')
    got = restoring.v0_pytree(root, '7', tree)
    assert got['n'] == 5 and expect.same_bits(got['sub']['x']['w'], W) and expect.same_bits(got['sub']['x']['b'], W[0])


@pytest.mark.feature('F2')
def test_what_a_crash_leaves(mount, root):
    """F2: nothing that Orbax takes for a checkpoint; the same draft begins afresh in the next mount."""
    m = mount(root, allow_errors=True)
    write(m, '7', expect.flatten({'w': W}))
    pid = m.pid
    os.kill(pid, signal.SIGKILL)
    mounts.wait_for(lambda: mounts.has_ended(pid))      # until then it has its lock
    subprocess.run(['umount', '-l', m.path], check=True)
    assert [p.name for p in root.iterdir()] == ['.7.pytreefs-draft']
    with ocp0.CheckpointManager(root, options=ocp0.CheckpointManagerOptions(read_only=True)) as manager:
        assert manager.all_steps() == [] and manager.latest_step() is None
    again = mount(root)
    assert os.listdir(again.path) == []
    write(again, '7', expect.flatten({'v': W}))
    assert os.listdir(again / '7.tmp/default') == ['v.npy', '_METADATA']
    commit(again, '7')
    assert not restoring.by_orbax(root, 7, expect.flatten({'v': W}))


STEPS = 30 if LONG else 12
WATCHER = '''
import sys, os
sys.path.insert(0, {tests!r})
from lib import jaxenv
import numpy as np, orbax.checkpoint as ocp
seen, rounds = set(), 0
done = False
while not done:
    done = os.path.exists({root!r} + '.done')
    with ocp.CheckpointManager({root!r}, options=ocp.CheckpointManagerOptions(read_only=True)) as manager:
        for step in manager.all_steps():
            got = manager.restore(step)
            assert np.array_equal(got['w'], np.full((300, 10), step)) and got['name'] == str(step), step
            seen.add(step)
    rounds += 1
    print(rounds, len(seen), flush=True)
'''


@pytest.mark.feature('F2')
def test_a_step_is_seen_whole_or_not_at_all(mount, root):
    """Drafts are written, committed and deleted in a loop; another process restores each step that it sees."""
    m = mount(root, 'allow_delete', 'write_budget=1M')
    script = WATCHER.format(tests=str(os.path.dirname(os.path.dirname(__file__))), root=str(root))
    watcher = subprocess.Popen([sys.executable, '-c', script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        watcher.stdout.readline()
        for step in range(1, STEPS + 1):
            where = m / f'{step}.tmp/default'
            where.mkdir(parents=True)
            np.save(where / 'w.npy', np.full((300, 10), step))
            (where / 'name.txt').write_text(str(step))
            commit(m, str(step))
        (root.parent / 'root.done').touch()
        out, err = watcher.communicate(timeout=240)
    finally:
        watcher.kill()
        watcher.wait()
    assert watcher.returncode == 0, err[-2000:]
    assert out.splitlines()[-1].split()[1] == str(STEPS)


def test_a_step_counts_composite_items(mount, tmp_path):
    """Random keys are items in an item: what a step sums up, and its .json, are of them too."""
    args = ocp0.args.Composite(state=ocp0.args.PyTreeSave({'a': np.ones(3), 'b': np.zeros(2)}),
                              rng=ocp0.args.JaxRandomKeySave(jax.random.key(5)),
                              numpy=ocp0.args.NumpyRandomKeySave(np.random.RandomState(3).get_state()))
    with ocp0.CheckpointManager(tmp_path / 'root') as manager:
        manager.save(1, args=args)
    # A leaf of a type that nobody knows is counted, though not its bytes.
    path = tmp_path / 'root/1/state/_METADATA'
    doc = json.loads(path.read_text())
    doc['tree_metadata']["('b',)"]['value_metadata']['value_type'] = 'MyType'
    path.write_text(json.dumps(doc))
    m = mount(tmp_path / 'root', allow_errors=True)
    wanted = json.loads((m / '1.json').read_text())
    said = {name: int(os.getxattr(m / '1', f'user.pytree.{name}')) for name in ('leaf_count', 'logical_bytes', 'stored_bytes')}
    parts = sum(int(os.getxattr(m / '1' / item, 'user.pytree.leaf_count')) for item in ('state', 'rng', 'numpy'))
    assert said['leaf_count'] == wanted['leaf_count'] == parts == 8, (said, wanted, parts)
    assert said['logical_bytes'] == wanted['bytes'] and said['stored_bytes'] == wanted['stored_bytes']


State = collections.namedtuple('State', 'nu count mu')
Pair = collections.namedtuple('Pair', 'b a')


def rich(path):
    """Restore with rich types by Orbax, with each namedtuple as (fields, values)."""
    from orbax.checkpoint._src.metadata import pytree_metadata_options
    handler = ocp0.PyTreeCheckpointHandler(
        pytree_metadata_options=pytree_metadata_options.PyTreeMetadataOptions(support_rich_types=True))

    def plain(x):
        if hasattr(x, '_fields'):
            return type(x).__name__, x._fields, [plain(v) for v in x]
        if isinstance(x, dict):
            return {k: plain(v) for k, v in x.items()}
        return type(x)(plain(v) for v in x) if isinstance(x, (list, tuple)) else np.asarray(x).tolist()
    with ocp0.Checkpointer(handler) as checkpointer:
        return plain(checkpointer.restore(path))


@pytest.fixture
def rich_root(root):
    from orbax.checkpoint._src.metadata import pytree_metadata_options
    tree = {'opt': State(np.ones(3), np.int32(5), {'w': np.zeros(2)}), 't': (np.ones(2), Pair(np.ones(1), 'txt')),
            'l': [1, 2], 'n': None}
    handler = ocp0.PyTreeCheckpointHandler(
        pytree_metadata_options=pytree_metadata_options.PyTreeMetadataOptions(support_rich_types=True))
    (root / '1').mkdir()
    with ocp0.Checkpointer(handler) as checkpointer:
        checkpointer.save(root / '1/default', tree)
    return root


@pytest.mark.feature('B6')
@pytest.mark.parametrize('command', [['cp', '-r'], ['cp', '-a'], ['rsync', '-aX', '--exclude=_METADATA']], ids=' '.join)
def test_a_copy_keeps_namedtuples(mount, rich_root, command):
    """Their class, and their fields in their order, by the copied document or by xattrs."""
    m = mount(rich_root)
    (m / '2.tmp').mkdir()
    subprocess.run([*command, m / '1/default', m / '2.tmp'], check=True)
    (m / '2.tmp').rename(m / '2')
    want = rich(rich_root / '1/default')
    assert want['opt'][1] == ('nu', 'count', 'mu')
    assert rich(rich_root / '2/default') == want
    assert json.loads(os.getxattr(m / '2/default/opt', 'user.pytree.namedtuple'))['fields'] == ['nu', 'count', 'mu']
    assert not [line for line in m.log_lines() if 'becomes a dict' in line]


@pytest.mark.feature('B6')
def test_conversions_keep_namedtuples(run, rich_root, tmp_path):
    want = rich(rich_root / '1/default')
    run('convert', rich_root / '1/default', tmp_path / 'item')
    assert rich(tmp_path / 'item') == want
    run('convert', '-o', 'rich_types=off', rich_root / '1/default', tmp_path / 'off')
    assert 'value_metadata_tree' not in (tmp_path / 'off/_METADATA').read_text()
    run('export', '--format', 'npy', rich_root / '1/default', tmp_path / 'files')
    if not os.listxattr(tmp_path / 'files/opt'):
        return                                          # a file system without xattrs
    run('convert', tmp_path / 'files', tmp_path / 'again')
    back = rich(tmp_path / 'again')
    assert back['opt'] == want['opt'] and back['t'][1] == want['t'][1]


@pytest.mark.parametrize('out', ['m.safetensors', 'm.npz', 'm.zarr'])
def test_a_manifest_has_the_types_of_namedtuples(run, rich_root, tmp_path, out):
    """An export to one file and back: the type, and the order of its fields; also of a namedtuple alone."""
    want = rich(rich_root / '1/default')
    run('export', rich_root / '1/default', tmp_path / out)
    run('convert', tmp_path / out, tmp_path / 'again')
    back = rich(tmp_path / 'again')
    assert back['opt'] == want['opt'] and back['t'][1] == want['t'][1]
    run('export', rich_root / '1/default/opt', tmp_path / f'opt-{out}')
    run('convert', tmp_path / f'opt-{out}', tmp_path / 'opt')
    assert rich(tmp_path / 'opt') == want['opt']


def test_what_becomes_of_a_namedtuple_is_said(mount, rich_root):
    """One that cannot be kept, with its path and the reason."""
    m = mount(rich_root, allow_errors=True)
    for step, change, why in ((2, lambda d: (d / 'opt/more.json').write_text('1'), 'not the fields'),
                              (3, lambda d: os.setxattr(d, 'user.pytree.save.rich_types', b'off'), 'rich_types=off')):
        (m / f'{step}.tmp').mkdir()
        subprocess.run(['cp', '-a', m / '1/default', m / f'{step}.tmp'], check=True)
        change(m / f'{step}.tmp/default')
        (m / f'{step}.tmp').rename(m / str(step))
        assert [line for line in m.log_lines() if "namedtuple 'default/opt' becomes a dict" in line and why in line]
    (m / '4.tmp/default/d').mkdir(parents=True)
    for wrong in (b'1', b'{}', b'{"module": "m", "clazz": "c", "fields": []}', b'{"module": 1, "clazz": "c", "fields": ["a"]}'):
        with pytest.raises(OSError) as e:
            os.setxattr(m / '4.tmp/default/d', 'user.pytree.namedtuple', wrong)
        assert e.value.errno == errno.EINVAL


def test_metrics_of_a_manager_are_listed(run, tmp_path):
    options = ocp0.CheckpointManagerOptions(best_fn=lambda m: m['loss'])
    with ocp0.CheckpointManager(tmp_path / 'v0', options=options) as m:
        for step in (1, 2):
            m.save(step, args=ocp0.args.StandardSave({'w': W}), metrics={'loss': 1 / step})
    with ocp1.training.Checkpointer(tmp_path / 'v1') as c:
        c.save(1, {'w': W}, metrics={'loss': 0.5})
        c.save(2, {'w': W})
    for root, want in (('v0', [{'loss': 1.0}, {'loss': 0.5}]), ('v1', [{'loss': 0.5}, None])):
        assert [row.get('metrics') for row in json.loads(run('ls', '--json', tmp_path / root).stdout)] == want
