"""What a draft refuses, with errno and reason; and that it is as it was afterwards, and commits once mended."""

import errno
import io
import json
import os
import re
import shutil

import numpy as np
import pytest

from lib import writing


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


W = npy(np.arange(12, dtype=np.float32).reshape(3, 4))


@pytest.fixture
def root(tmp_path):
    path = tmp_path / 'root'
    path.mkdir()
    return path


def refused(why, do):
    with pytest.raises(OSError) as e:
        do()
    assert e.value.errno == why, f'{errno.errorcode[e.value.errno]}, want {errno.errorcode[why]}'


def begin(m, name='7', item='default'):
    where = m / f'{name}.tmp' / item
    where.mkdir(parents=True)
    (where / 'good.npy').write_bytes(W)
    return where


def contents(where):
    return {str(p.relative_to(where)): p.read_bytes() for p in sorted(where.rglob('*')) if p.is_file()
            and p.name not in ('_METADATA', '_CHECKPOINT_METADATA')}


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


def part(name, array):
    return {name: npy(array)}


F4, F8 = np.float32, np.float64
HASHED = 'x' * 200 + '~0123456789abcdef.npy'

# What makes a commit refuse with EINVAL, and what the log must say about it.
MALFORMED = {
    'no-leaf': (files(files={'notes.dat': b'x'}), r'notes\.dat.*no leaf'),
    'temporary-name': (files(files={'.w.npy.Xy12': W}), r'\.w\.npy\.Xy12.*no leaf'),
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


@pytest.mark.parametrize('case', MALFORMED)
@pytest.mark.parametrize('ocdbt', ['on', 'off'])
def test_malformed(mount, root, case, ocdbt):
    """EINVAL, the leaf named; the draft is as it was, and commits when the fault is gone."""
    (spoil, mend), message = MALFORMED[case]
    m = mount(root, f'ocdbt={ocdbt}', allow_errors=True)
    where = begin(m)
    spoil(where)
    before = contents(where)
    for _ in range(2):
        refused(errno.EINVAL, lambda: (m / '7.tmp').rename(m / '7'))
        assert re.search(message, said(m)), said(m)
    assert not (root / '7').exists() and contents(where) == before
    mend(where)
    (m / '7.tmp').rename(m / '7')
    assert sorted(p.name for p in (m / '7/default').iterdir() if p.is_file()) == ['_METADATA', 'good.npy']
    assert (m / '7/default/good.npy').read_bytes() == W
    assert not list(root.rglob('.pytreefs*'))


def said(m):
    """The last failure that the log tells of."""
    return [line for line in m.log_lines() if 'cannot' in line or 'failed' in line][-1]


def test_names_of_drafts(mount, root):
    m = mount(root, allow_errors=True)
    refused(errno.EPERM, lambda: (m / '7').mkdir())
    assert "mkdir 7.tmp" in said(m)
    refused(errno.EPERM, lambda: (m / 'file').write_bytes(b''))
    refused(errno.EINVAL, lambda: (m / 'words.tmp').mkdir())
    refused(errno.EINVAL, lambda: (m / 'x7.tmp').mkdir())
    begin(m)
    refused(errno.EEXIST, lambda: (m / '7.tmp').mkdir())
    refused(errno.EBUSY, lambda: (m / '7.orbax-checkpoint-tmp').mkdir())
    for name in ('words', '7x', '8.tmp', 'x8', '8.orbax-checkpoint-tmp', 'latest', '.pytreefs'):
        refused(errno.EINVAL, lambda name=name: (m / '7.tmp').rename(m / name))
    (m / '7.tmp').rename(m / '8')       # another step than it was begun for
    begin(m)
    refused(errno.EEXIST, lambda: (m / '7.tmp').rename(m / '8'))
    refused(errno.EINVAL, lambda: (m / '7.tmp').rename(m / '8/default/7'))
    assert sorted(os.listdir(m.path)) == ['7.tmp', '8']


def test_drafts_of_others(mount, root):
    """A draft that a live mount holds, and a temporary directory of another program."""
    m, other = mount(root, allow_errors=True), mount(root, allow_errors=True)
    begin(m)
    refused(errno.EBUSY, lambda: (other / '7.tmp').mkdir())
    assert os.listdir(other.path) == []
    (root / '9.orbax-checkpoint-tmp').mkdir()
    refused(errno.EEXIST, lambda: (m / '9.tmp').mkdir())
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
    refused(errno.EEXIST, lambda: (draft / 'default.json').write_text('{}'))
    refused(errno.EEXIST, lambda: (draft / 'default.safetensors').write_bytes(b''))
    (draft / 'notes').write_text('x')
    refused(errno.EINVAL, lambda: draft.rename(m / '7'))
    assert re.search(r"notes.*no item", said(m))
    (draft / 'notes').unlink()
    (draft / 'config.json').write_text('{"a": 1,\n "b": }')
    refused(errno.EINVAL, lambda: draft.rename(m / '7'))
    assert re.search(r'config\.json.*line 2', said(m)), said(m)
    (draft / 'config.json').write_text('{"a": 1}')
    (draft / 'config.pbtxt').write_text('a: 1')
    refused(errno.EINVAL, lambda: draft.rename(m / '7'))
    assert 'same item' in said(m)
    (draft / 'config.pbtxt').unlink()
    (draft / 'empty').mkdir()
    refused(errno.EINVAL, lambda: draft.rename(m / '7'))
    assert re.search(r'empty.*no leaf', said(m))
    (draft / 'empty').rmdir()
    draft.rename(m / '7')
    assert sorted(os.listdir(m / '7')) == ['_CHECKPOINT_METADATA', 'config', 'default']


def test_an_empty_draft(mount, root):
    m = mount(root, allow_errors=True)
    (m / '7.tmp').mkdir()
    refused(errno.EINVAL, lambda: (m / '7.tmp').rename(m / '7'))
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
                              (where / 'good.npy', 'nonsense', '1'), (where, 'custom_metadata', '{'),
                              (where / 'good.npy', 'custom_metadata', '{}'), (where, 'save.zarr', '4'),
                              (where, 'save.nonsense', '1'), (where / 'good.npy', 'save.ocdbt', 'off')):
        refused(errno.EINVAL, setting(path, name, value))
    refused(errno.EOPNOTSUPP, lambda: os.setxattr(where, 'user.other', b'1'))
    writing.set_xattrs(where, {'kind': 'dict', 'custom_metadata': {'a': 1}})
    (m / '7.tmp').rename(m / '7')
    assert json.loads(os.getxattr(m / '7/default', 'user.pytree.custom_metadata')) == {'a': 1}


@pytest.mark.parametrize('ocdbt', ['on', 'off'])
@pytest.mark.parametrize('fault', ['rename:eio', 'sync:enospc', 'syncdir:eio', 'mkdir:enospc', 'write:enospc'])
def test_a_failed_commit_may_be_tried_again(mount, root, ocdbt, fault):
    """The disk fails once, sooner or later in a commit; then the draft is changed, and committed."""
    for n in range(1, 12):
        m = mount(root, f'ocdbt={ocdbt}', f'io=fault({fault}:{n}):sync', allow_errors=True)
        where = m / f'{n}.tmp/default'
        failed = 0
        try:
            where.mkdir(parents=True)
        except OSError:
            failed = 1
            where.mkdir(parents=True, exist_ok=True)
        names = ['a.npy', 'b.npy', 'c.npy', 't.txt']
        for name in names:
            try:
                (where / name).write_bytes(npy(np.full(30, ord(name[0]))) if name != 't.txt' else b'text')
            except OSError:
                failed += 1
                (where / name).write_bytes(npy(np.full(30, ord(name[0]))) if name != 't.txt' else b'text')
        try:
            (m / f'{n}.tmp').rename(m / str(n))
        except OSError as e:
            failed += 1
            assert e.errno in (errno.EIO, errno.ENOSPC)
            assert not (root / str(n)).exists()
            assert sorted(contents(where)) == names
            # Leaves change places, one goes, and the text with its file.
            (where / 'a.npy').rename(where / 'x.npy')
            (where / 'b.npy').rename(where / 'a.npy')
            (where / 'x.npy').rename(where / 'b.npy')
            (where / 'c.npy').unlink()
            (where / 't.txt').unlink()
            (m / f'{n}.tmp').rename(m / str(n))
            got = {name: int(np.load(m / f'{n}/default' / name)[0]) for name in ('a.npy', 'b.npy')}
            assert got == {'a.npy': ord('b'), 'b.npy': ord('a')}
            assert sorted(os.listdir(m / f'{n}/default')) == ['_METADATA', 'a.npy', 'b.npy']
            stored = {p.name for p in (root / str(n) / 'default').iterdir()}
            assert stored <= {'_METADATA', 'commit_success.txt', 'a', 'b', 'd', 'manifest.ocdbt'}, stored
        assert failed <= 1
        m.unmount()


@pytest.mark.parametrize('zarr', [2, 3])
@pytest.mark.parametrize('fault', ['rename:eio', 'syncdir:eio', 'rmdir:eio'])
def test_a_failed_commit_of_a_bare_leaf(mount, root, zarr, fault):
    """Its files lie in the item's own directory: they are found again, and may become an ordinary leaf."""
    for n in range(1, 7):
        m = mount(root, 'ocdbt=off', f'zarr={zarr}', f'io=fault({fault}:{n}):sync', allow_errors=True)
        for name, mended in ((f'{n}1', '%.npy'), (f'{n}2', 'w.npy')):
            where = m / f'{name}.tmp/default'
            try:
                where.mkdir(parents=True)
            except OSError:
                where.mkdir(parents=True, exist_ok=True)
            (where / '%.npy').write_bytes(W)
            try:
                (m / f'{name}.tmp').rename(m / name)
            except OSError as e:
                assert e.errno == errno.EIO
                assert (where / '%.npy').read_bytes() == W
                if mended != '%.npy':
                    (where / '%.npy').rename(where / mended)
                (m / f'{name}.tmp').rename(m / name)
                assert sorted(os.listdir(m / name / 'default')) == sorted(['_METADATA', mended])
                assert (m / name / 'default' / mended).read_bytes() == W
        m.unmount()
