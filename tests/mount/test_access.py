# SPDX-License-Identifier: Apache-2.0
"""Permissions: what SOURCE refuses, a mount with allow_other refuses, at the time of the access."""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

import numpy as np
import pytest

from lib import hub, mounts
from lib.pairs import LONG

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason='only root may become somebody else')

GROUP, ALICE, MEMBER, OTHER = 5000, 4001, 4002, 65534
USERS = {'root': (0, 0, []), 'owner': (ALICE, ALICE, []), 'member': (MEMBER, MEMBER, [GROUP]),
         'of the group': (4003, GROUP, []), 'other': (OTHER, OTHER, [])}
W = np.arange(300, dtype=np.float32).reshape(20, 15)


@pytest.fixture
def tmp_path():
    """A directory that everybody may enter: each run of pytest closes its own to others, at any moment."""
    path = pathlib.Path(tempfile.mkdtemp(prefix='pytreefs-access-'))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def top(tmp_path):
    return tmp_path


def as_user(user, *command, umask=0o022, **kw):
    uid, gid, groups = USERS[user]
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, user=uid, group=gid, extra_groups=groups,
                          umask=umask, cwd='/', **kw)


# Its own interpreter may be where only root gets to.
READ = '''
import json, os, sys
paths, (uid, gid, groups) = json.load(sys.stdin)
os.setgroups(groups)
os.setgid(gid)
os.setuid(uid)
def may(path):
    try:
        if os.path.isdir(path):
            os.listdir(path)
        else:
            open(path, 'rb').read()
    except PermissionError:
        return False
    return True
def attr(path):
    path, name = path.split('?')
    try:
        os.getxattr(path, name)
    except PermissionError:
        return False
    return True
print(json.dumps({p: attr(p) if '?' in p else may(p) for p in paths}))
'''


def may_read(user, paths):
    r = subprocess.run([sys.executable, '-S', '-c', READ], capture_output=True, text=True,
                       input=json.dumps([[str(p) for p in paths], USERS[user]]))
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def save(m, step, items, options=()):
    for item, leaves in items.items():
        (m / f'{step}.tmp' / item).mkdir(parents=True)
        for name, value in options:
            os.setxattr(m / f'{step}.tmp' / item, f'user.pytree.save.{name}', value.encode())
        for name, value in leaves.items():
            np.save(m / f'{step}.tmp' / item / f'{name}.npy', value)
    (m / f'{step}.tmp').rename(m / str(step))


def below(path):
    return [path, *(p for p in path.rglob('*'))]


def change(path, mode_dir=None, mode_file=None, uid=-1, gid=-1):
    for p in below(path):
        os.chown(p, uid, gid)
        mode = mode_dir if p.is_dir() else mode_file
        if mode is not None:
            p.chmod(mode)


@pytest.fixture(scope='module')
def steps(program, tmp_path_factory):
    root = tmp_path_factory.mktemp('root')
    m = mounts.Mount(program, root, tmp_path_factory.mktemp('mnt'), tmp_path_factory.mktemp('log') / 'log')
    two = {'pub': {'w': W}, 'priv': {'w': W, 'b': W[0]}}
    try:
        for step in range(1, 12):
            save(m, step, two if step in (5, 11) else {'default': {'w': W, 'b': W[0]}}, [('ocdbt', 'off')] if step in (7, 8) else ())
    finally:
        assert not m.unmount()
    return root


@pytest.fixture
def source(steps, top):
    """Steps that differ in whom they let in; the one in which everybody may write."""
    root = shutil.copytree(steps, top / 'source')
    root.chmod(0o755)
    change(root / '2', 0o700, 0o600)
    change(root / '3', 0o750, 0o640, gid=GROUP)
    change(root / '4', 0o700, 0o600, uid=ALICE)
    change(root / '5/priv', 0o700, 0o600)
    change(root / '6/default/d', None, 0o600)               # data files alone
    change(root / '7/default/w', 0o700, 0o600, uid=ALICE)   # one leaf's directory
    change(root / '8/default/w', None, 0o640, gid=GROUP)    # one leaf's files
    (root / '9/default/_METADATA').chmod(0o600)
    change(root / '10', 0o705, 0o604, gid=GROUP)            # the group is kept out, others are not
    change(root / '11/priv', 0o750, 0o640, uid=ALICE, gid=GROUP)
    (root / '11').chmod(0o700)
    os.chown(root / '11', ALICE, 0)
    return root


def shown_of(m, root, step):
    """{path in the mount, all files in SOURCE that it tells of}"""
    out, items = {}, [p for p in (root / step).iterdir() if p.is_dir()]
    for item in items:
        files = [f for f in below(item) if f.is_file()]
        where = m / step / item.name
        common = [f for f in files if not {'w', 'b'} & set(f.relative_to(item).parts)]
        for leaf in ('w', 'b'):
            if leaf == 'b' and item.name == 'pub':
                continue
            of = common + [f for f in files if f.relative_to(item).parts[0] == leaf]
            for name in (f'{leaf}.npy', f'{leaf}.bin', f'{leaf}[0:2].npy', f'{leaf}@float64.npy', f'{leaf}.safetensors'):
                out[where / name] = of
        for name in (f'{item.name}.safetensors', f'{item.name}.json', f'{item.name}.html', f'{item.name}@bfloat16.safetensors'):
            out[m / step / name] = files
        out[where / '.safetensors'] = out[where / '.json'] = files
        out[where] = common
        for f in files:
            out[m / '.pytreefs/stored' / f.relative_to(root)] = [f]
    every = [f for f in below(root / step) if f.is_file()]
    for name in (f'{step}.safetensors', f'{step}.json', f'{step}.html', f'{step}/.safetensors', f'{step}/.json'):
        out[m / name] = every
    for name in ('leaf_count', 'logical_bytes', 'stored_bytes'):
        out[f'{m / step}?user.pytree.{name}'] = every
    return out


def test_what_the_source_refuses_the_mount_refuses(mount, source):
    """Leaves, views, the stored form and sums, of steps, items and files with every kind of owner and mode."""
    m = mount(source, 'allow_other', allow_errors=True)
    shown = {path: (step, of) for step in map(str, range(1, 12)) for path, of in shown_of(m, source, step).items()}
    for user in USERS:
        files = may_read(user, {f for _, of in shown.values() for f in of})
        got, refused = may_read(user, shown), 0
        for path, (step, of) in shown.items():
            allowed = all(files[str(f)] for f in of)
            # Where owners differ within one file, fewer may be let in.
            if not allowed or step not in ('7', '11'):
                assert got[str(path)] == allowed, (user, path, [str(f) for f in of if not files[str(f)]])
            refused += not allowed
        assert (refused == 0) == (user == 'root')


def test_allow_other_checks_permissions(mount, cases):
    m = mount(cases('manager-root').path, 'allow_other')
    r = as_user('other', 'cat', m / '10/state/name.txt')
    assert r.stdout == 'step 10', r.stderr
    with open('/proc/self/mountinfo') as f:
        line = next(x for x in f if mounts.unescape(x.split()[4]) == str(m.path))
    assert 'allow_other' in line and 'default_permissions' in line


def test_without_allow_other_it_is_private(mount, cases):
    m = mount(cases('manager-root').path)
    assert as_user('other', 'ls', m.path.parent).returncode == 0
    assert as_user('other', 'ls', m.path).returncode != 0


def test_owners_and_modes_are_those_of_the_step(mount, source):
    m = mount(source, 'allow_other')

    def seen(path):
        st = (m / path).stat()
        return oct(st.st_mode & 0o7777), st.st_uid, st.st_gid
    assert seen('1') == ('0o555', 0, 0) and seen('1/default/w.npy') == ('0o444', 0, 0)
    assert seen('2') == ('0o500', 0, 0) and seen('.pytreefs/stored/2/_CHECKPOINT_METADATA') == ('0o600', 0, 0)
    assert seen('3') == ('0o550', 0, GROUP) and seen('3/default') == ('0o550', 0, GROUP)
    assert seen('3/default/w.npy') == ('0o440', 0, GROUP) and seen('3.safetensors') == ('0o440', 0, GROUP)
    assert seen('4/default/w.npy') == ('0o400', ALICE, 0) and seen('4.json') == ('0o400', ALICE, 0)
    assert seen('5') == ('0o555', 0, 0) and seen('5/pub/w.npy') == ('0o444', 0, 0)
    assert seen('5/priv/w.npy') == seen('5.safetensors') == seen('5/priv.safetensors') == ('0o400', 0, 0)
    assert seen('6/default/w.npy') == ('0o400', 0, 0)
    assert seen('7/default/w.npy') == ('0o400', ALICE, 0) and seen('7/default/b.npy') == ('0o444', 0, 0)
    assert seen('8/default/w.npy') == ('0o440', 0, GROUP) and seen('8/default/b.npy') == ('0o444', 0, 0)


@pytest.mark.parametrize('what', ['.', '1', '1/default', '1/default/d', '1/default/manifest.ocdbt'])
def test_a_change_of_modes_is_effective_soon(mount, source, what):
    """Within a second, both ways, though the kernel has seen the file (no clock: it is waited for)."""
    m = mount(source, 'allow_other', allow_errors=True)
    paths = [m / '1/default/w.npy', m / '1.safetensors', m / '1/default/w[1:3].npy', m / '.pytreefs/stored/1' / what[2:]]
    if what == '.':
        paths[3:] = [m / '5/pub/w.npy', m / '.pytreefs/version']

    def all_are(readable):
        return set(may_read('other', paths).values()) == {readable}
    assert all_are(True)
    mode = (source / what).stat().st_mode & 0o7777
    for _ in range(2 if LONG else 1):
        (source / what).chmod(mode & 0o700)
        mounts.wait_for(lambda: all_are(False))
        (source / what).chmod(mode)
        mounts.wait_for(lambda: all_are(True))


@pytest.fixture
def traps(mount, top):
    """A SOURCE like /tmp, with a step of root's that is private by its top directory alone, and what OTHER links to it."""
    root = top / 'traps'
    root.mkdir()
    m = mount(root)
    save(m, 1, {'default': {'w': W}})
    save(m, 2, {'default': {'w': W}})
    m.unmount()
    root.chmod(0o1777)
    (root / '2').chmod(0o700)
    r = as_user('other', 'sh', '-c', f'''cd {root} && mkdir 3 4 5 && ln -s ../2/default 3/default && ln -s 2 6 && ln -s 2/default 7
        mkdir 4/default && for f in _METADATA manifest.ocdbt d ocdbt.process_0 array_metadatas; do
        ln -s ../../2/default/$f 4/default/; done
        cp -r 1/default 5/ && chmod -R u+w 5 && rm -r 5/default/d && ln -s ../../2/default/d 5/default/d''')
    assert r.returncode == 0, r.stderr
    return root


def test_links_lead_nobody_past_a_directory_that_is_closed(mount, traps):
    """A user who may write in SOURCE makes a step of links to files of another user: the mount, which root runs, does not follow them."""
    m = mount(traps, 'allow_other', allow_errors=True)
    tree = ['', '/_METADATA', '/w.npy', '/w[0:2].npy', '.json', '.safetensors']
    paths = [m / f'{step}/default{name}' for step in '3456' for name in tree]
    paths += [m / f'7{name}' for name in tree]
    paths += [m / f'{step}{name}' for step in '34567' for name in ('.json', '.html', '.safetensors')]
    stored = m / '.pytreefs/stored'
    paths += [stored / f'{step}/default/{name}' for step in '3456' for name in ('_METADATA', 'manifest.ocdbt', 'd', '')]
    paths += [stored / '7/_METADATA', stored / '6/_CHECKPOINT_METADATA']
    r = subprocess.run([sys.executable, '-S', '-c', LEAKS], capture_output=True, text=True,
                       input=json.dumps([[str(p) for p in paths], USERS['other']]))
    assert r.returncode == 0 and json.loads(r.stdout) == [], r.stderr + r.stdout
    assert may_read('other', [m / '1/default/w.npy']) == {str(m / '1/default/w.npy'): True}
    assert any('symbolic link' in line for line in m.log_lines())


def test_others_read_what_the_hub_links_to(mount, top, source):
    """But not by a link that somebody else made, nor a blob that is closed to them. What is wrong names the way out."""
    model = hub.snapshot(source / '1/default', top / 'cache')
    m = mount(model, 'allow_other', allow_errors=True)
    w, stored = m / 'w.npy', m / '.pytreefs/stored/_METADATA'
    assert may_read('other', [w, stored]) == {str(w): True, str(stored): True}
    assert np.array_equal(np.load(w), W)
    (model / '_METADATA').resolve().chmod(0o600)
    mounts.wait_for(lambda: not any(may_read('other', [w, stored]).values()))
    (model / '_METADATA').resolve().chmod(0o644)
    mounts.wait_for(lambda: all(may_read('other', [w, stored]).values()))
    os.chown(model / '_METADATA', OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(OSError):
        stored.read_bytes()
    assert any("'_METADATA' leads out of" in line and 'cp -rL' in line for line in m.log_lines())


def put_tensors(path, tensors, metadata=None):
    """A safetensors file of float32 arrays."""
    head, data = {'__metadata__': metadata} if metadata else {}, b''
    for name, w in tensors.items():
        head[name] = {'dtype': 'F32', 'shape': list(w.shape), 'data_offsets': [len(data), len(data) + w.nbytes]}
        data += w.tobytes()
    text = json.dumps(head).encode()
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(struct.pack('<Q', len(text)) + text + data)
    path.parent.chmod(0o755)
    path.chmod(0o644)


def put_shards(model, metadata=None):
    """Three shards with a tensor each; the index names one in a directory."""
    shards = {'a': 'model-1.safetensors', 'b': 'model-2.safetensors', 'c': 'deep/model-3.safetensors'}
    for name, file in shards.items():
        put_tensors(model / file, {name: W}, metadata if name == 'b' else None)
    (model / 'model.safetensors.index.json').write_text(json.dumps({'weight_map': shards}))
    return {name: model / file for name, file in shards.items()}


def seen_by_other(m, names='abc'):
    """The tensors of which another user reads values, by all names that show them."""
    paths = {n: [m / f'{n}.npy', m / f'{n}.json', m / f'{n}[0:2].npy'] for n in names}
    got = may_read('other', sum(paths.values(), [m / '.safetensors', m / '.json']))
    paths[' all'] = [m / '.safetensors', m / '.json']
    return ''.join(n for n in paths if any(got[str(p)] for p in paths[n]))


def test_each_shard_decides_for_its_tensors(mount, top):
    """Modes, owners and directories, before the mount and after it; a file that is not of the model decides nothing."""
    file = put_shards(top / 'model')
    (top / 'model/notes.txt').write_text('')
    (top / 'model/notes.txt').chmod(0o600)
    file['b'].chmod(0o600)
    m = mount(top / 'model', 'allow_other', allow_errors=True)
    assert seen_by_other(m) == 'ac' and (m / 'b.npy').stat().st_mode & 0o777 == 0o400
    file['c'].parent.chmod(0o700)
    mounts.wait_for(lambda: seen_by_other(m) == 'a')
    file['c'].parent.chmod(0o755)
    os.chown(file['b'], ALICE, ALICE)
    mounts.wait_for(lambda: seen_by_other(m) == 'ac')
    assert (m / 'b.npy').stat().st_uid == ALICE and may_read('owner', [m / 'b.npy']) == {str(m / 'b.npy'): True}
    file['b'].chmod(0o644)
    mounts.wait_for(lambda: seen_by_other(m) == 'abc all')
    file['a'].chmod(0o600)
    mounts.wait_for(lambda: seen_by_other(m) == 'bc')
    file['a'].chmod(0o644)
    (top / 'model/model.safetensors.index.json').chmod(0o600)
    mounts.wait_for(lambda: seen_by_other(m) == '')


def test_what_a_header_says_is_for_those_who_may_read_it(mount, top):
    """Custom metadata belong to the whole model."""
    file = put_shards(top / 'model', {'note': 'secret'})
    m = mount(top / 'model', 'allow_other', allow_errors=True)
    says = [f'{m.path}?user.pytree.custom_metadata', m / 'a.npy']
    assert all(may_read('other', says).values())
    file['b'].chmod(0o600)
    mounts.wait_for(lambda: not any(may_read('other', says).values()))


@pytest.mark.parametrize('form', ['file', 'header'])
def test_a_file_that_was_replaced_is_shown_to_nobody_else(mount, top, form):
    """It is still read, and its name, where modes are looked up, is that of another one."""
    if form == 'file':
        put_tensors(top / 'model/model.safetensors', dict.fromkeys('abc', W))
        replaced, source, says = top / 'model/model.safetensors', top / 'model/model.safetensors', 'a.npy'
    else:
        replaced, source, says = put_shards(top / 'model', {'note': 'secret'})['b'], top / 'model', None
    m = mount(source, 'allow_other', allow_errors=True)
    path = m / says if form == 'file' else f'{m.path}?user.pytree.custom_metadata'
    assert may_read('other', [path])[str(path)]
    put_tensors(top / 'new', {'z': W})
    os.replace(top / 'new', replaced)
    mounts.wait_for(lambda: not may_read('other', [path])[str(path)])


def test_names_in_headers_are_for_those_who_may_read_them(mount, top):
    """Without an index, which names all tensors."""
    put_tensors(top / 'model/model.safetensors', dict.fromkeys('abc', W))
    m = mount(top / 'model', 'allow_other', allow_errors=True)
    assert as_user('other', 'ls', m.path).stdout.split() == ['a.npy', 'b.npy', 'c.npy']
    (top / 'model/model.safetensors').chmod(0o600)
    mounts.wait_for(lambda: as_user('other', 'ls', m.path).stdout == '')


def test_a_computed_leaf_is_for_those_who_may_read_what_it_is_of(mount, source, top):
    (top / 'rules.json').write_text(json.dumps(
        {'rules': [{'key': k, 'original_key': o, 'value_fn': 'add(1.0)'} for k, o in ('xw', 'yb')]}))
    m = mount(source / '7/default', 'allow_other', f'transforms={top}/rules.json', allow_errors=True)
    assert may_read('other', [m / 'x.npy', m / 'y.npy']) == {str(m / 'x.npy'): False, str(m / 'y.npy'): True}


@pytest.mark.parametrize('form', ['directory', 'file', 'shards'])
def test_tensors_behind_links_of_the_hub_are_as_safe(program, mount, top, form):
    """A mount that may follow none is an error; a blob that is closed later is closed in the mount."""
    put_shards(top / 'model') if form == 'shards' else put_tensors(top / 'model/model.safetensors', dict.fromkeys('abc', W))
    rev = hub.snapshot(top / 'model', top / 'cache')
    blobs, source = rev.parent.parent / 'blobs', rev / 'model.safetensors' if form == 'file' else rev
    blob = next(p for p in blobs.iterdir() if p.stat().st_size > W.nbytes)
    (top / 'm').mkdir()
    name, no_id = 'system.posix_acl_access', 0xffffffff
    kept_out = acl((1, 7, no_id), (2, 0, OTHER), (4, 5, no_id), (16, 7, no_id), (32, 5, no_id))
    for closed in (lambda: blobs.chmod(0o700), lambda: os.chown(blob, ALICE, ALICE), lambda: os.setxattr(blobs, name, kept_out)):
        closed()
        r = subprocess.run([program, 'mount', '-o', 'allow_other', source, top / 'm'], capture_output=True, text=True)
        assert r.returncode and 'chmod a+x blobs' in r.stderr and 'cp -rL' in r.stderr
        if name in os.listxattr(blobs):
            os.removexattr(blobs, name)
        blobs.chmod(0o755)
        os.chown(blob, 0, 0)
    m = mount(source, 'allow_other', allow_errors=True)
    assert seen_by_other(m) == 'abc all'
    blobs.chmod(0o700)
    mounts.wait_for(lambda: as_user('other', 'grep', '-lc', '', m / 'a.npy', m / 'a.json', m / '.safetensors', m / '.json').stdout == '')


def test_a_mount_says_which_links_it_will_not_follow(program, top, source):
    """Of a root in the cache of the hub, where a step is opened later."""
    root = hub.snapshot(source, top / 'cache')
    (root.parent.parent / 'blobs').chmod(0o700)
    (top / 'm').mkdir()
    r = subprocess.run([program, 'mount', '-o', 'allow_other', root, top / 'm'], capture_output=True, text=True)
    subprocess.run([program, 'umount', top / 'm'], check=not r.returncode)
    assert len(r.stderr.splitlines()) == 1 and 'chmod a+x blobs' in r.stderr and 'cp -rL' in r.stderr, r.stderr


# The readable ones of `paths` that do not belong to the maker of the links: names in his directories, his copy of `_METADATA`.
LEAKS = '''
import json, os, sys
paths, (uid, gid, groups) = json.load(sys.stdin)
os.setgroups(groups)
os.setgid(gid)
os.setuid(uid)
leaks = []
for path in paths:
    own = '/5' in path and not path.endswith(('.npy', '.safetensors', 'd'))
    try:
        if os.path.isdir(path):
            own |= path.endswith('/4/default') or path.endswith('/4/default/')
            leaks += [path] if os.listdir(path) and not own else []
        else:
            text = open(path, 'rb').read()
            own |= '/4' in path and (path.endswith('.html') or b'float32' not in text)
            leaks += [path] if not own else []
    except OSError:
        pass
print(json.dumps(leaks))
'''


def acl(*entries):
    return struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *e) for e in entries)


@pytest.mark.parametrize('kept_out', ['other', 'member'])
def test_access_lists_let_in_no_more(mount, source, kept_out):
    """Users are kept out by an entry of a list, or by a group that the mode alone would admit."""
    no_id, uid = 0xffffffff, USERS[kept_out][0]
    name = 'system.posix_acl_access'
    try:
        if kept_out == 'other':
            os.setxattr(source / '1', name, acl((1, 7, no_id), (2, 0, uid), (4, 5, no_id), (16, 7, no_id), (32, 5, no_id)))
        else:
            os.chown(source / '1', 0, GROUP)
            os.setxattr(source / '1', name, acl((1, 7, no_id), (2, 7, ALICE), (4, 0, no_id), (16, 7, no_id), (32, 0, no_id)))
    except OSError as e:
        pytest.skip(f'no access lists here: {e}')
    m = mount(source, 'allow_other', allow_errors=True)
    assert not os.access(source / '1', 0) or os.getuid() == 0
    assert not may_read(kept_out, [source / '1/_CHECKPOINT_METADATA'])[str(source / '1/_CHECKPOINT_METADATA')]
    assert set(may_read(kept_out, [m / '1/default/w.npy', m / '1.safetensors', m / '.pytreefs/stored/1']).values()) == {False}


def run(user, m, text, **kw):
    return as_user(user, 'sh', '-c', f'cd {m.path} && {text}', **kw)


@pytest.fixture
def shared(mount, top):
    """A mount of a SOURCE like /tmp, with a step of root's in it; and a leaf to be copied."""
    root = top / 'shared'
    root.mkdir()
    root.chmod(0o1777)
    m = mount(root, 'allow_other', 'allow_delete', allow_errors=True)
    save(m, 1, {'default': {'w': W}})
    np.save(top / 'w.npy', W)
    (top / 'w.npy').chmod(0o644)
    return m, root, top / 'w.npy'


def test_a_draft_is_its_makers(shared):
    """In a SOURCE with the sticky bit: nobody else writes to it, renames or removes it; nor root's step."""
    m, root, w = shared
    assert m.path.stat().st_mode & 0o7777 == 0o1777
    assert run('owner', m, f'mkdir -p 2.tmp/default && cp {w} 2.tmp/default/w.npy').returncode == 0
    assert {(p.stat().st_uid, p.stat().st_gid) for p in below(root / '.2.pytreefs-draft')} == {(ALICE, ALICE)}
    for user in ('other', 'member'):
        for what in (f'cp {w} 2.tmp/default/x.npy', 'echo > 2.tmp/default/w.npy', 'mkdir 2.tmp/more', 'rm -r 2.tmp',
                     'mv 2.tmp 3', 'mv 2.tmp/default 2.tmp/other', 'rmdir 2.tmp', 'rmdir 1', 'rm -r 1', 'mv 1 4',
                     'setfattr -n user.pytree.kind -v list 2.tmp/default', 'truncate -s 0 1/default/w.npy',
                     'chmod 777 2.tmp', 'touch x', 'rm -r .pytreefs/stored/1'):
            assert run(user, m, what).returncode != 0, what
    assert run('other', m, f'cmp 2.tmp/default/w.npy {w}').returncode == 0
    assert run('owner', m, 'mv 2.tmp 2').returncode == 0
    assert {p.stat().st_uid for p in below(root / '2')} == {ALICE} and np.array_equal(np.load(m / '2/default/w.npy'), W)
    assert run('other', m, 'rmdir 2').returncode != 0 and (root / '2/default').exists()
    assert run('owner', m, 'rmdir 2').returncode == 0 and not (root / '2').exists()
    assert sorted(os.listdir(root)) == ['1']


def test_a_draft_that_is_closed_on_the_disk_is_closed_in_the_mount(shared):
    """Its mode may be half a second old, since each write of a file asks for it several times."""
    m, root, w = shared
    assert run('owner', m, f'mkdir -p 2.tmp/default && cp {w} 2.tmp/default/w.npy').returncode == 0
    assert run('other', m, 'cmp 2.tmp/default/w.npy ' + str(w)).returncode == 0
    (root / '.2.pytreefs-draft').chmod(0o700)
    mounts.wait_for(lambda: run('other', m, 'cmp 2.tmp/default/w.npy ' + str(w)).returncode != 0)
    mounts.wait_for(lambda: m.path.joinpath('2.tmp').stat().st_mode & 0o777 == 0o700)
    assert run('owner', m, 'cmp 2.tmp/default/w.npy ' + str(w)).returncode == 0


@pytest.mark.parametrize('option', ['ocdbt=on', 'ocdbt=off', 'aggregate=all', 'zarr=3', 'io=sync', 'atomicity=commit_file'])
def test_all_that_is_written_is_its_owners(mount, top, option):
    """Data files, metadata, markers, in every layout; and it is read and deleted as the owner's own."""
    root = top / 'root'
    root.mkdir()
    os.chown(root, ALICE, GROUP)
    root.chmod(0o2770)
    np.save(top / 'w.npy', W)
    (top / 'w.npy').chmod(0o644)
    m = mount(root, 'allow_other', 'allow_delete', option, allow_errors=True)
    fill = f'mkdir -p 1.tmp/default/in && cp {top}/w.npy 1.tmp/default/in/ && echo 5 > 1.tmp/default/n.json && printf t > 1.tmp/default/t.txt'
    assert run('other', m, 'mkdir 1.tmp').returncode != 0
    r = run('member', m, fill + ' && echo {} > 1.tmp/metrics.json && mv 1.tmp 1', umask=0o027)
    assert r.returncode == 0, r.stderr
    # The setgid bit of SOURCE hands its group on.
    assert {(p.stat().st_uid, p.stat().st_gid) for p in below(root / '1')} == {(MEMBER, GROUP)}
    assert (root / '1').stat().st_mode & 0o7777 == 0o2750
    assert run('of the group', m, 'cmp 1/default/in/w.npy ' + str(top / 'w.npy')).returncode == 0
    # SOURCE is not sticky, and the step's directories are its owner's alone to write to.
    assert run('of the group', m, 'rmdir 1').returncode != 0 and (root / '1/default').exists()
    assert run('member', m, 'rmdir 1').returncode == 0 and os.listdir(root) == []


def test_what_another_user_left_is_not_begun_afresh(mount, shared):
    m, root, w = shared
    assert run('owner', m, f'mkdir -p 2.tmp/default && cp {w} 2.tmp/default/').returncode == 0
    m.unmount()
    again = mount(root, 'allow_other', allow_errors=True)
    assert run('other', again, 'mkdir 2.tmp').returncode != 0
    assert any('left there by user' in line for line in again.log_lines())
    assert run('owner', again, f'mkdir -p 2.tmp/default && cp {w} 2.tmp/default/ && mv 2.tmp 2').returncode == 0


def test_the_log_is_for_those_who_write(mount, source):
    """It names leaves of steps that not everybody may read."""
    m = mount(source, 'allow_other')
    assert may_read('other', [m / '.pytreefs/log', m / '.pytreefs/version']) == {
        str(m / '.pytreefs/log'): False, str(m / '.pytreefs/version'): True}
    source.chmod(0o700)
    mounts.wait_for(lambda: not any(may_read('other', [m / '.pytreefs/version', m / '.pytreefs/stored', m / '1']).values()))


IN_NAMESPACE = '''
set -e
{program} mount -o log={top}/log {root} {mnt}
trap 'umount {mnt} || umount -l {mnt}' EXIT
stat -c %u:%g {mnt}
mkdir -p {mnt}/1.tmp/default
cp {top}/w.npy {mnt}/1.tmp/default/
mv {mnt}/1.tmp {mnt}/1
cat {mnt}/1/default/w.npy > {top}/copy.npy
'''


@pytest.mark.parametrize('ids', [(0, GROUP), (ALICE, GROUP), (ALICE, 0)], ids=['group', 'both', 'owner'])
def test_in_a_user_namespace_that_does_not_know_the_ids(program, top, ids):
    """The kernel refuses every write where it does not know owner or group, and gives no reason."""
    root, mnt = top / 'root', top / 'mnt'
    for d in (root, mnt):
        d.mkdir()
    os.chown(root, *ids)
    root.chmod(0o777)
    np.save(top / 'w.npy', W)
    under = ['unshare', '--user', '--map-root-user', '--mount']
    if subprocess.run([*under, 'true'], capture_output=True).returncode:
        pytest.skip('no user namespaces here')
    script = IN_NAMESPACE.format(program=program, top=top, root=root, mnt=mnt)
    r = subprocess.run([*under, 'sh', '-c', script], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr + (top / 'log').read_text()
    assert r.stdout.split() == ['0:0'] and np.array_equal(np.load(top / 'copy.npy'), W)
    assert (root / '1/default/manifest.ocdbt').exists()
