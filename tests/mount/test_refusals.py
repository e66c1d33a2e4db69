# SPDX-License-Identifier: Apache-2.0
"""Refusals of a draft, with errno and reason. The draft is unchanged afterwards, and commits once it is mended."""

import errno
import json
import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest

from lib import writing
from lib.drafts import F4, F8, W, begin, contents, part, refused, said
from lib.pairs import pairs
from lib.writing import npy


def files(**given):
    """A spoiler that writes files, and a mender that takes them away."""
    def spoil(where):
        for name, data in given['files'].items():
            (where / name).parent.mkdir(exist_ok=True)
            (where / name).write_bytes(data)
        for name, values in given.get('xattrs', {}).items():
            (where / name).mkdir(exist_ok=True) if '.' not in name else None
            writing.set_xattrs(where / name, values)

    def mend(where):
        for name in given['files']:
            (where / name).unlink()
        for name in given.get('xattrs', {}):
            if (where / name).is_dir():
                shutil.rmtree(where / name)
    return spoil, mend


SAMPLE = pathlib.Path(__file__).resolve().parents[1] / 'data/sample/1500'
HASHED = 'x' * 200 + '~0123456789abcdef.npy'

# Contents that make a commit fail with ECANCELED, and the message in the log.
MALFORMED = {
    'no-leaf': (files(files={'notes.dat': b'x'}), r'notes\.dat.*not a leaf'),
    'temporary-name': (files(files={'.w.npy.Xy12': W}), r'\.w\.npy\.Xy12.*not a leaf'),
    'empty-array': (files(files={'w.npy': b''}), r'w\.npy'),
    'no-header': (files(files={'w.npy': b'hello, world'}), r'w\.npy'),
    'half-header': (files(files={'w.npy': W[:40]}), r'w\.npy.*header'),
    'too-short': (files(files={'w.npy': W[:-1]}), r'w\.npy.*175 bytes.*176'),
    'too-long': (files(files={'w.npy': W + b'x'}), r'w\.npy.*177 bytes.*176'),
    'long-too-short': (files(files={'w.npy': npy(np.zeros(100_000))[:-8]}), r'w\.npy.*800120 bytes.*800128'),
    'objects': (files(files={'w.npy': W.replace(b'<f4', b'|O8')}), r'w\.npy'),
    'one-byte-void': (files(files={'w.npy': W.replace(b"'<f4'", b"'|V1'").replace(b'(3, 4)', b'(3,16)')}),
                      r"w\.npy.*\|V1"),
    'second-leaf': (files(files={'w.npy': W, 'w.json': b'1'}), r'w\..*second leaf.*w'),
    'leaf-and-directory': (files(files={'w.npy': W, 'w/in.npy': W}), r'w.*second leaf.*w'),
    'no-json': (files(files={'n.json': b'{'}), r'n\.json'),
    'json-object': (files(files={'n.json': b'{"a": 1}'}), r'n\.json'),
    'long-integer': (files(files={'n.json': b'18446744073709551616\n'}), r'n\.json.*18446744073709551616.*range of 64-bit integers'),
    'empty-part': (files(files={'w.npy': W}, xattrs={'w.npy': {'typestr': 'jax.Array', 'write_shape': [3, 0]}}),
                   r'w\.npy.*write_shape is \[3, 0\].*its shape is \[3,4\]'),
    'low-integer': (files(files={'n.json': b'-9223372036854775809'}, xattrs={'n.json': {'dtype': 'int64'}}),
                    r'n\.json.*-9223372036854775809'),
    'large-float': (files(files={'n.json': b'1e400'}), r'n\.json.*1e400.*float64'),
    'large-complex': (files(files={'n.json': b'[0.5, -1e400]'}), r'n\.json.*-1e400'),
    'none-with-bytes': (files(files={'n.null': b'x'}), r'n\.null'),
    'no-utf-8': (files(files={'t.txt': b'\xff\xfe'}), r't\.txt.*UTF-8'),
    'no-key': (files(files={HASHED: W}), r'shortened.*key'),
    'hole-in-list': (files(files={'l/0.npy': W, 'l/2.npy': W}, xattrs={'l': {'kind': 'list'}}), r'l'),
    'words-in-list': (files(files={'l/a.npy': W}, xattrs={'l': {'kind': 'list'}}), r'l'),
    'parts-hole': (files(files=part('p[0:2]@6.npy', np.zeros(2, F4)) | part('p[4:6]@6.npy', np.zeros(2, F4))),
                   r'p.*4 of 6.*\[2\]'),
    'parts-overlap': (files(files=part('p[0:4]@6.npy', np.zeros(4, F4)) | part('p[3:6]@6.npy', np.zeros(3, F4))),
                      r'p\[0:4\].*p\[3:6\].*overlap'),
    'parts-dtypes': (files(files=part('p[0:3]@6.npy', np.zeros(3, F4)) | part('p[3:6]@6.npy', np.zeros(3, F8))),
                     r'p\[3:6\].*float64.*float32'),
    'parts-shape': (files(files=part('p[0:3]@6.npy', np.zeros(4, F4)) | part('p[3:6]@6.npy', np.zeros(3, F4))),
                    r'p\[0:3\].*shape'),
    'parts-of-two': (files(files=part('p[0:3]@6.npy', np.zeros(3, F4)) | part('p[3:7]@7.npy', np.zeros(4, F4))),
                     r'p.*different shapes'),
    'part-and-whole': (files(files=part('p[0:3]@3.npy', np.zeros(3, F4)) | part('p.npy', np.zeros(3, F4))),
                       r'p.*second leaf'),
    'other-dtype': (files(files={'w.npy': W}, xattrs={'w.npy': {'dtype': 'int8'}}), r'w\.npy.*float32.*int8'),
    'safetensors-short': (files(files={'s.safetensors': (9).to_bytes(8, 'little') + b'{"a'}), r's\.safetensors'),
}


@pytest.mark.parametrize('ocdbt,case', pairs(['on', 'off'], list(MALFORMED)))
def test_malformed(mount, root, case, ocdbt):
    """ECANCELED, the leaf named; the draft is as it was, and commits when the fault is gone."""
    (spoil, mend), message = MALFORMED[case]
    m = mount(root, f'ocdbt={ocdbt}', allow_errors=True)
    where = begin(m)
    spoil(where)
    before = contents(where)
    for _ in range(2):
        refused(errno.ECANCELED, lambda: (m / '7.tmp').rename(m / '7'))
        assert re.search(message, said(m)), said(m)
    assert not (root / '7').exists() and contents(where) == before
    mend(where)
    (m / '7.tmp').rename(m / '7')
    assert sorted(p.name for p in (m / '7/default').iterdir() if p.is_file()) == ['_METADATA', 'good.npy']
    assert (m / '7/default/good.npy').read_bytes() == W
    assert not list(root.rglob('.pytreefs*'))


@pytest.mark.parametrize('second', ['%.json', '%[0:3,0:4]@3x4.npy'])
def test_a_tree_is_one_bare_leaf_at_most(mount, root, second):
    """Neither of two goes without a word."""
    m = mount(root, allow_errors=True)
    where = begin(m)
    (where / 'good.npy').rename(where / '%.npy')
    (where / second).write_bytes(b'1' if second == '%.json' else W)
    before = contents(where)
    refused(errno.ECANCELED, lambda: (m / '7.tmp').rename(m / '7'))
    assert re.search(r'%.*second leaf', said(m)), said(m)
    assert contents(where) == before
    (where / second).unlink()
    (m / '7.tmp').rename(m / '7')
    assert (m / '7/default/%.npy').read_bytes() == W


def test_parts_of_a_bare_leaf(mount, root):
    """They are parts of one array as those of other leaves, with a hole or without."""
    m = mount(root, allow_errors=True)
    where = begin(m)
    (where / 'good.npy').unlink()
    (where / '%[0:2,0:4]@6x4.npy').write_bytes(npy(np.ones((2, 4), F4)))
    refused(errno.ECANCELED, lambda: (m / '7.tmp').rename(m / '7'))
    assert re.search(r'%.*8 of 24', said(m)), said(m)
    (where / '%[2:6,0:4]@6x4.npy').write_bytes(npy(np.zeros((4, 4), F4)))
    (m / '7.tmp').rename(m / '7')
    assert np.load(m / '7/default/%.npy').tolist() == [[1] * 4] * 2 + [[0] * 4] * 4


@pytest.mark.parametrize('elements', [12, 100_000], ids=['small', 'staged'])
@pytest.mark.parametrize('more', [-4, 4])
def test_what_was_encoded_is_not_what_is_truncated(mount, root, elements, more):
    """A cast array is encoded at close and its bytes stay: another length of the file is malformed all the same."""
    m = mount(root, 'dtype=float64', allow_errors=True)
    where = begin(m)
    data = npy(np.arange(elements, dtype=np.float32))
    (where / 'w.npy').write_bytes(data)
    os.truncate(where / 'w.npy', len(data) + more)
    refused(errno.ECANCELED, lambda: (m / '7.tmp').rename(m / '7'))
    assert re.search(rf'w\.npy.*{len(data) + more} bytes.*{len(data)}', said(m)), said(m)
    (where / 'w.npy').write_bytes(data)
    (m / '7.tmp').rename(m / '7')
    assert np.array_equal(np.load(m / '7/default/w.npy'), np.arange(elements, dtype=np.float64))


def test_names_of_drafts(mount, root):
    m = mount(root, allow_errors=True)
    refused(errno.EPERM, lambda: (m / '7').mkdir())
    assert "begin with 'mkdir 7.tmp'" in said(m)
    # Not 'mkdir words.tmp', which is refused, too.
    refused(errno.EPERM, lambda: (m / 'words').mkdir())
    assert "a step's name is a number" in said(m) and "'step_7'" in said(m) and 'words.tmp' not in said(m)
    refused(errno.EPERM, lambda: (m / 'file').write_bytes(b''))
    refused(errno.EINVAL, lambda: (m / 'words.tmp').mkdir())
    refused(errno.EINVAL, lambda: (m / 'x7.tmp').mkdir())
    begin(m)
    refused(errno.EEXIST, lambda: (m / '7.tmp').mkdir())
    refused(errno.EBUSY, lambda: (m / '7.orbax-checkpoint-tmp').mkdir())
    for name in ('words', '7x', '8.tmp', 'x8', '8.orbax-checkpoint-tmp', 'latest', '.pytreefs'):
        refused(errno.EPERM, lambda name=name: (m / '7.tmp').rename(m / name))
    (m / '7.tmp').rename(m / '8')       # another step than it was begun for
    begin(m)
    refused(errno.EEXIST, lambda: (m / '7.tmp').rename(m / '8'))
    refused(errno.EROFS, lambda: (m / '7.tmp').rename(m / '8/default/7'))
    assert sorted(os.listdir(m.path)) == ['7.tmp', '8']


MV = {      # what is done before, the target of mv, what mv says of it
    'a leaf is malformed': (lambda m: (m / '7.tmp/default/bad.npy').write_bytes(b'x'), '7', 'Operation canceled'),
    'the draft is empty': (lambda m: shutil.rmtree(m / '7.tmp/default'), '7', 'Operation canceled'),
    'not a name of a step': (lambda m: None, 'words', 'Operation not permitted'),
    'the step is there': (lambda m: None, '8', 'Read-only file system'),        # mv tries 8/7.tmp
    'the step is there, no directory is meant': (lambda m: None, '-T 8', 'File exists|Directory not empty|cannot overwrite'),
    'into another draft': (lambda m: (m / '9.tmp').mkdir(), '9.tmp', 'Operation not permitted'),
}


@pytest.mark.parametrize('why', MV)
def test_what_mv_says_is_true(mount, program, root, why):
    """EINVAL of a rename is "subdirectory of itself" to mv, whatever was meant, and EXDEV makes it copy."""
    spoil, target, wanted = MV[why]
    m = mount(root, allow_errors=True)
    begin(m)
    (m / '7.tmp').rename(m / '8')
    begin(m)
    spoil(m)
    r = subprocess.run(['mv', '7.tmp', *target.split()], cwd=m.path, capture_output=True, text=True,
                       env=dict(os.environ, LC_ALL='C'))
    assert r.returncode == 1 and re.search(wanted, r.stderr) and 'itself' not in r.stderr, r.stderr
    assert (m / '7.tmp').is_dir() and not (m / '7').exists() and not (m / '8/7.tmp').exists()
    # The reason in full.
    r = subprocess.run([program, 'commit', m / '7.tmp', target.split()[-1]], capture_output=True, text=True)
    assert r.returncode == 1 and '7.tmp' in r.stderr, r


def test_a_leaf_that_is_too_large_for_the_legacy_file(mount, root):
    m = mount(root, 'aggregate=*', 'write_budget=1M', allow_errors=True)
    (begin(m) / 'large.npy').write_bytes(npy(np.zeros(1 << 18)))
    refused(errno.EFBIG, lambda: (m / '7.tmp').rename(m / '7'))
    assert 'do not fit half of write_budget' in said(m) and os.listdir(m.path) == ['7.tmp']
    (m / '7.tmp/default/large.npy').unlink()
    (m / '7.tmp').rename(m / '7')


def test_drafts_of_others(mount, root):
    """A draft that a live mount holds, and a temporary directory of another program."""
    m, other = mount(root, allow_errors=True), mount(root, allow_errors=True)
    begin(m)
    refused(errno.EBUSY, lambda: (other / '7.tmp').mkdir())
    assert os.listdir(other.path) == []
    (root / '9.orbax-checkpoint-tmp').mkdir()
    # os.makedirs() takes EEXIST for a directory that is there; the mount shows none.
    refused(errno.EBUSY, lambda: (m / '9.tmp').mkdir())
    with pytest.raises(OSError, match='busy'):
        os.makedirs(m / '9.tmp/default', exist_ok=True)
    (m / '7.tmp').rename(m / '7')
    begin(other)
    refused(errno.EEXIST, lambda: (other / '7.tmp').rename(other / '7'))


def test_names_of_leaves(mount, root):
    m = mount(root, allow_errors=True)
    where = begin(m)
    for name in ('w%zz.npy', 'w%4.npy', 'w%', 'a[0:2].npy', 'w[0:2]@1.npy', 'w@float32.npy', 'w@4x4.npy', 'w[.npy',
                 'p[2:1]@4.npy', 'p[0:5]@4.npy', 'p[0:2:2]@4.npy', 'p[0:2]@4@float32.npy', b'\xff.npy'.decode('utf-8', 'surrogateescape')):
        refused(errno.EINVAL, lambda name=name: (where / name).write_bytes(W))
        refused(errno.EINVAL, lambda name=name: (where / 'good.npy').rename(where / name))
    refused(errno.ENAMETOOLONG, lambda: (where / ('x' * 256)).write_bytes(W))
    for name in ('d%zz', 'd[0]', 'd@x'):
        refused(errno.EINVAL, lambda name=name: (where / name).mkdir())
    for name in ('AUTO', '_CHECKPOINT_METADATA', '_CHECKPOINT_DELETION', 'orbax.checkpoint', 'commit_success.txt',
                 'x.orbax-checkpoint-tmp-1'):
        refused(errno.EINVAL if name != '_CHECKPOINT_METADATA' else errno.EEXIST,
                lambda name=name: (m / '7.tmp' / name).mkdir())
    refused(errno.EPERM, lambda: os.link(where / 'good.npy', where / 'linked.npy'))
    refused(errno.EPERM, lambda: os.mknod(where / 'fifo', 0o10644))
    refused(errno.EPERM, lambda: os.symlink('good.npy', where / 'link.npy'))
    assert contents(where) == {'good.npy': W}


def test_items(mount, root):
    m = mount(root, allow_errors=True)
    draft = begin(m).parent
    for name in ('default.json', 'default.safetensors', 'default.pbtxt'):       # cp -a may say later that it is none
        (draft / name).write_bytes(b'{}')
        refused(errno.ECANCELED, lambda: draft.rename(m / '7'))
        assert re.search(f"'default' and '{name}' are the same item|item '{name}': its 2 bytes", said(m)), said(m)
        (draft / name).unlink()
    for first, others in (('params.pbtxt', ('params', 'params.json', 'params.safetensors')), ('a.json', ('a', 'a.pbtxt')),
                          ('s.safetensors', ('s', 's.json')), ('d/', ('d.json', 'd.pbtxt', 'd.safetensors'))):
        make = (lambda at: at.mkdir()) if first[-1] == '/' else lambda at: at.write_text('{}')
        make(draft / first)
        for other in others:
            if '.' in other:
                if first[-1] != '/':
                    refused(errno.EEXIST, lambda other=other: (draft / other).write_text('{}'))
                (draft / '.temporary').write_text('{}')
                refused(errno.EEXIST, lambda other=other: (draft / '.temporary').rename(draft / other))
                (draft / '.temporary').unlink()
            else:
                refused(errno.EEXIST, lambda other=other: (draft / other).mkdir())
                (draft / 'temporary').mkdir()
                refused(errno.EEXIST, lambda other=other: (draft / 'temporary').rename(draft / other))
                (draft / 'temporary').rmdir()
            assert first.rstrip('/') in said(m)
        if first[-1] == '/':
            (draft / first).rmdir()
        else:
            (draft / first).rename(draft / 'other.pbtxt')        # itself is not in its own way
            (draft / 'other.pbtxt').unlink()
    (draft / 'notes').write_text('x')
    refused(errno.ECANCELED, lambda: draft.rename(m / '7'))
    assert re.search(r"notes.*not an item", said(m))
    (draft / 'notes').unlink()
    (draft / 'config.json').write_text('{"a": 1,\n "b": }')
    refused(errno.ECANCELED, lambda: draft.rename(m / '7'))
    assert re.search(r'config\.json.*line 2', said(m)), said(m)
    (draft / 'config.json').write_text('{"a": 1}')
    refused(errno.EEXIST, lambda: (draft / 'config.pbtxt').write_text('a: 1'))
    (draft / 'empty').mkdir()
    refused(errno.ECANCELED, lambda: draft.rename(m / '7'))
    assert re.search(r'empty.*no leaf', said(m))
    (draft / 'empty').rmdir()
    draft.rename(m / '7')
    assert sorted(os.listdir(m / '7')) == ['_CHECKPOINT_METADATA', 'config', 'default']


@pytest.mark.parametrize('order', [('config', 'config.json'), ('config.json', 'config')])
def test_a_file_beside_the_items_comes_in_any_order(mount, root, tmp_path, order):
    """cp -a makes it before it says by an xattr that it is not the item of that name."""
    shutil.copytree(SAMPLE, tmp_path / 'from/1')
    (tmp_path / 'from/1/config.json').write_text('[1]')
    subprocess.run(['cp', '-a', mount(tmp_path / 'from').path / '1', tmp_path / 'files'], check=True)
    m = mount(root)
    (m / '7.tmp').mkdir()
    subprocess.run(['cp', '-a', *(tmp_path / 'files' / name for name in (*order, 'state')), m / '7.tmp'], check=True)
    (m / '7.tmp').rename(m / '7')
    assert (root / '7/config.json').read_text() == '[1]' and (root / '7/config/metadata').exists()


def test_an_empty_draft(mount, root):
    m = mount(root, allow_errors=True)
    (m / '7.tmp').mkdir()
    refused(errno.ECANCELED, lambda: (m / '7.tmp').rename(m / '7'))
    assert 'empty' in said(m)
    (m / '7.tmp').rmdir()
    assert os.listdir(root) == []


def test_open_files(mount, root):
    """A leaf that is open for writing holds the commit up; one that is only read does not."""
    m = mount(root, allow_errors=True)
    where = begin(m)
    with open(where / 'w.npy', 'wb') as f:
        f.write(W[:100])
        f.flush()
        refused(errno.EBUSY, lambda: (m / '7.tmp').rename(m / '7'))
        assert re.search(r'w\.npy.*open for writing', said(m))
        f.write(W[100:])
    with open(where / 'w.npy', 'rb') as f:
        (m / '7.tmp').rename(m / '7')
    assert (m / '7/default/w.npy').read_bytes() == W


def test_committed_steps_do_not_change(mount, root):
    m = mount(root, allow_errors=True)
    begin(m)
    (m / '7.tmp').rename(m / '7')
    where = begin(m, '8')
    for do in (lambda: (m / '7').rename(m / '9'), lambda: (m / '7').rmdir(), lambda: (m / '7/new').mkdir(),
               lambda: (m / '7/default/w.npy').write_bytes(W), lambda: (m / '7/default/good.npy').write_bytes(W),
               lambda: (m / '7/default/good.npy').unlink(), lambda: os.truncate(m / '7/default/good.npy', 0),
               lambda: (m / '7/default/good.npy').rename(m / '7/default/x.npy'),
               lambda: os.setxattr(m / '7/default', 'user.pytree.kind', b'"list"'),
               lambda: os.chmod(m / '7/default/good.npy', 0o600)):
        refused(errno.EROFS, do)
    refused(errno.EROFS, lambda: os.rename(m / '7/default/good.npy', where / 'x.npy'))
    refused(errno.EXDEV, lambda: os.rename(where / 'good.npy', begin(m, '10') / 'x.npy'))
    assert (m / '7/default/good.npy').read_bytes() == W


def test_xattrs(mount, root):
    m = mount(root, allow_errors=True)
    where = begin(m)

    def setting(path, name, value):
        return lambda: os.setxattr(path, f'user.pytree.{name}', value.encode())
    for path, name, value in ((where, 'kind', 'heap'), (where / 'good.npy', 'kind', 'list'), (where, 'dtype', 'int8'),
                              (where / 'good.npy', 'dtype', 'float99'), (where / 'good.npy', 'key', '7'),
                              (where / 'good.npy', 'write_shape', '[1.0, 1]'), (where / 'good.npy', 'write_shape', '[-1]'),
                              (where, 'write_shape', '[1]'), (where / 'good.npy', 'nonsense', '1'), (where, 'custom_metadata', '{'),
                              (where / 'good.npy', 'custom_metadata', '{}'), (where, 'save.zarr', '4'),
                              (where, 'save.nonsense', '1'), (where / 'good.npy', 'save.ocdbt', 'off')):
        refused(errno.EINVAL, setting(path, name, value))
    refused(errno.EOPNOTSUPP, lambda: os.setxattr(where, 'user.other', b'1'))
    writing.set_xattrs(where, {'kind': 'dict', 'custom_metadata': {'a': 1}})
    (m / '7.tmp').rename(m / '7')
    assert json.loads(os.getxattr(m / '7/default', 'user.pytree.custom_metadata')) == {'a': 1}


@pytest.mark.parametrize('name', ['w.npy', 'n.json', 'w[0:4,0:4]@4x4.npy'])
def test_a_leaf_that_cannot_be_a_directory(mount, root, name):
    """ocdbt=off stores each leaf in a directory that is called by its keys: what is too long for one is named, early."""
    m = mount(root, 'ocdbt=off', allow_errors=True)
    where = begin(m)
    (where / 'good.npy').write_bytes(W)
    long = where / ('c' * 254)
    long.mkdir()
    if name.endswith('.npy'):
        refused(errno.ENAMETOOLONG, lambda: (long / name).write_bytes(npy(np.zeros((4, 4), F4))))
        (long / 'temporary').write_bytes(npy(np.zeros((4, 4), F4)))
        refused(errno.ENAMETOOLONG, lambda: (long / 'temporary').rename(long / name))
    else:
        (long / name).write_bytes(b'12345')
        refused(errno.ENAMETOOLONG, lambda: (m / '7.tmp').rename(m / '7'))
    assert re.search(rf"'c{{254}}\.{name[0]}' .* 256 bytes.* 255.*ocdbt=on", said(m)), said(m)
    shutil.rmtree(long)
    (m / '7.tmp').rename(m / '7')
    other = m / '8.tmp/default'
    (other / ('c' * 254)).mkdir(parents=True)
    os.setxattr(other, 'user.pytree.save.ocdbt', b'"on"')
    (other / ('c' * 254) / 'w.npy').write_bytes(W)
    (m / '8.tmp').rename(m / '8')


@pytest.mark.parametrize('name', ['_METADATA.npy', 'manifest.ocdbt.npy', '%2E.npy', '_METADATA.json'])
def test_a_leaf_that_is_called_as_a_file_of_its_item(mount, root, name):
    m = mount(root, 'ocdbt=off', allow_errors=True)
    where = begin(m)
    (where / 'good.npy').write_bytes(W)
    if name.endswith('.npy'):
        refused(errno.EINVAL, lambda: (where / name).write_bytes(W))
    else:
        (where / name).write_bytes(b'1')
        refused(errno.ECANCELED, lambda: (m / '7.tmp').rename(m / '7'))
        (where / name).unlink()
    assert re.search(r"' cannot be the name of a directory.*ocdbt=on", said(m)), said(m)
    (m / '7.tmp').rename(m / '7')


def test_a_step_file_that_no_reader_would_take(mount, root):
    """The copied text is below the limit, but with its escapes the written one is not."""
    m = mount(root, allow_errors=True)
    (begin(m) / 'good.npy').write_bytes(W)
    copied = json.dumps({'custom_metadata': {'note': 'é' * (3 << 20)}}, ensure_ascii=False)
    (m / '7.tmp/_CHECKPOINT_METADATA').write_bytes(copied.encode())
    refused(errno.ECANCELED, lambda: (m / '7.tmp').rename(m / '7'))
    assert re.search(r"'_CHECKPOINT_METADATA' of '7' would have \d+ bytes, the limit is 8388608", said(m)), said(m)
    assert not (root / '7').exists()
    (m / '7.tmp/_CHECKPOINT_METADATA').write_bytes(b'{}')
    (m / '7.tmp').rename(m / '7')
    assert (m / '7/default/good.npy').read_bytes() == W
