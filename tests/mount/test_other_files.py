# SPDX-License-Identifier: Apache-2.0
"""Files beside the arrays: items that are not trees. Each way of copying a step brings all of them."""

import os
import re
import subprocess

import numpy as np
import pytest

from lib.saving import ARRAY

# Names that Orbax or pytreefs use elsewhere, names of leaves, and any others.
FILES = {
    '.hidden': b'h', '.dir/x': b'x', '_sharding': b'{}', '_strings.json': b'{}', 'plain': b'p' * 300,
    'vocab.txt': b'a\nb\n', 'w.npy': b'no array', 'config.json': b'{"a": [1, 2]}', 'number.json': b'5', 'none.null': b'',
    'sub/manifest.ocdbt': b'm', 'sub/commit_success.txt': b'c', 'sub/_METADATA': b'{}', 'sub/_CHECKPOINT_METADATA': b'{}',
    'sub/ocdbt.process_0/d/x': b'x', 'sub/deep/array_metadatas/process_0': b'{}', 'sub/orbax.checkpoint': b'{}',
    'sub/.pytreefs-draft': b'', 'sub/7.orbax-checkpoint-tmp-1/y': b'y', 'sub/empty': b'', 'sub/tensor.safetensors': b'none',
}


def fill(directory, files):
    for name, data in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)


def contents(directory):
    """All files but the item's own marker."""
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob('*')
            if p.is_file() and p != directory / 'commit_success.txt'}


@pytest.fixture
def root(run, tmp_path):
    """A step with a tree, and an item that is none, with two links in it."""
    (tmp_path / 'in').mkdir()
    np.save(tmp_path / 'in/w.npy', ARRAY)
    (tmp_path / 'root').mkdir()
    run('save', tmp_path / 'in', tmp_path / 'root/1')
    fill(tmp_path / 'root/1/tok', FILES)
    (tmp_path / 'root/1/tok/link').symlink_to('plain')
    (tmp_path / 'root/1/tok/linked').symlink_to('sub/deep')
    (tmp_path / 'root/1/tok/void').mkdir()
    return tmp_path / 'root'


OPAQUE = {**FILES, 'link': FILES['plain'], 'linked/array_metadatas/process_0': b'{}'}


@pytest.mark.feature('E2')
@pytest.mark.parametrize('command', ['cp -r 1 2.tmp', 'cp -r 1/. 2.tmp/', 'cp -rL 1 2.tmp', 'cp -a 1 2.tmp', 'rsync -aX 1/ 2.tmp',
                                     'mkdir 2.tmp && tar --xattrs --xattrs-include=user.* -c -C 1 . | tar --xattrs --xattrs-include=user.* -x -C 2.tmp'])
def test_an_item_that_is_not_a_tree_is_copied_whole(mount, root, command):
    """By every program that carries attributes, and by cp without them, whatever its files are called."""
    m = mount(root)
    assert contents(m / '1/tok') == OPAQUE
    subprocess.run(command if '2.tmp/' not in command else f'mkdir 2.tmp && {command}', shell=True, cwd=m.path, check=True,
                   capture_output=True)
    os.rename(m / '2.tmp', m / '2')
    assert contents(root / '2/tok') == contents(m / '2/tok') == OPAQUE
    assert (root / '2/tok/void').is_dir() or command.startswith('cp -r')
    assert np.array_equal(np.load(m / '2/default/w.npy'), ARRAY)


@pytest.mark.feature('E2')
def test_an_item_that_is_not_a_tree_is_converted_whole(run, root, tmp_path):
    for where, options in (('2', []), ('3', ['-o', 'ocdbt=off,zarr=3'])):
        run('convert', *options, root / '1', root / where)
        assert contents(root / where / 'tok') == OPAQUE
    run('convert', root, tmp_path / 'other')
    assert contents(tmp_path / 'other/1/tok') == OPAQUE
    (root / '1/tok/lost').symlink_to('/nowhere')
    r = run('convert', root / '1', root / '4', ok=False)
    assert r.returncode and 'tok/lost' in r.stderr and not (root / '4').exists(), r.stderr


@pytest.mark.feature('E2')
@pytest.mark.parametrize('name,data', [('config.json', b'{"a": 1}'), ('merges.foo', b'x'), ('sub/config.json', b'[]')])
def test_a_refusal_names_the_mark(mount, root, name, data):
    """An item that some program brings from elsewhere is refused with the command that says what it is."""
    m = mount(root, allow_errors=True)
    fill(m / '2.tmp/tok', {name: data, 'vocab.txt': b'a'})
    with pytest.raises(OSError):
        os.rename(m / '2.tmp', m / '2')
    mark = re.search(r"setfattr -n user.pytree.kind -v opaque '2.tmp/tok'", m.log_lines()[-1])
    assert mark and name.split('/')[-1] in m.log_lines()[-1], m.log_lines()[-1]
    subprocess.run(mark[0], shell=True, cwd=m.path, check=True)
    os.rename(m / '2.tmp', m / '2')
    assert contents(root / '2/tok') == {name: data, 'vocab.txt': b'a'}


@pytest.mark.feature('E2')
@pytest.mark.parametrize('kind', ['opaque', 'dict'])
def test_a_copy_with_more_in_it_asks_what_it_is(mount, root, kind):
    """A file of an item that is not a tree beside one that is not: either is possible, and neither is guessed."""
    m = mount(root, allow_errors=True)
    (m / '2.tmp/tok').mkdir(parents=True)
    subprocess.run(['cp', m / '1/tok/vocab.txt', m / '2.tmp/tok'], check=True)
    (m / '2.tmp/tok/more.txt').write_bytes(b'more')
    with pytest.raises(OSError):
        os.rename(m / '2.tmp', m / '2')
    assert "'vocab.txt'" in m.log_lines()[-1] and "'more.txt'" in m.log_lines()[-1], m.log_lines()[-1]
    os.setxattr(m / '2.tmp/tok', 'user.pytree.kind', kind.encode())
    os.rename(m / '2.tmp', m / '2')
    assert contents(m / '2/tok')['vocab.txt'] == FILES['vocab.txt'] and (root / '2/tok/_METADATA').exists() == (kind == 'dict')
