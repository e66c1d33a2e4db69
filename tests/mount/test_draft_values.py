# SPDX-License-Identifier: Apache-2.0
"""The values of a draft: after a commit that failed, without a name, read meanwhile, and the space that they take."""

import concurrent.futures
import errno
import json
import os
import re
import threading

import numpy as np
import pytest

from lib.drafts import F4, F8, W, begin, contents, part, refused, said
from lib.pairs import LONG, pairs
from lib.writing import npy


@pytest.mark.parametrize('fault,ocdbt', pairs(['rename:eio', 'sync:enospc', 'syncdir:eio', 'mkdir:enospc', 'write:enospc'], ['on', 'off']))
def test_a_failed_commit_may_be_tried_again(mount, root, ocdbt, fault):
    """The disk fails once, sooner or later in a commit; then the draft is changed, and committed."""
    for n in range(1, 12) if LONG else (1, 2, 3, 5, 8, 11):
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
            assert stored <= {'_METADATA', 'commit_success.txt', 'a', 'b', 'd', 'manifest.ocdbt', '.crc32c'}, stored
        assert failed <= 1
        m.unmount()


@pytest.mark.parametrize('fault,zarr', pairs(['rename:eio', 'syncdir:eio', 'rmdir:eio'], [2, 3]))
def test_a_failed_commit_of_a_bare_leaf(mount, root, zarr, fault):
    """Its files lie in the item's own directory: they are found again, and may become an ordinary leaf."""
    for n in range(1, 7) if LONG else (1, 2, 4, 6):
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


# ---- open files without a name ----

@pytest.mark.parametrize('how,options', pairs(['removed', 'replaced', 'small'], ['ocdbt=on', 'ocdbt=off,zarr=3,chunk_byte_size=1M']))
def test_what_has_no_name_any_more_comes_near_no_step(mount, root, options, how):
    """As with any file: who has it open writes and reads on, and nobody else sees it."""
    m = mount(root, options)
    where = begin(m)
    data = npy(np.random.default_rng(0).integers(0, 1 << 60, 2 << 20))
    first = 64 if how == 'small' else 9 << 20
    fd = os.open(where / 'w.npy', os.O_RDWR | os.O_CREAT)
    assert os.write(fd, data[:first]) == first
    if how == 'replaced':
        (where / 'other.npy').write_bytes(W)
        (where / 'other.npy').rename(where / 'w.npy')
    else:
        (where / 'w.npy').unlink()
    at = first
    if how != 'small':
        at += os.write(fd, data[at:at + (1 << 20)])
    assert os.pread(fd, len(data), 0) == data[:at]
    (m / '7.tmp').rename(m / '7')

    def stored():
        return {p: p.read_bytes() for p in (root / '7').rglob('*') if p.is_file()}
    before = stored()
    while at < len(data):
        at += os.write(fd, data[at:at + (1 << 20)])
    os.close(fd)
    assert sorted(os.listdir(m / '7/default')) == sorted(['_METADATA', 'good.npy'] + ['w.npy'] * (how == 'replaced'))
    assert stored() == before
    if how == 'replaced':
        assert (m / '7/default/w.npy').read_bytes() == W


# ---- readers while it is committed ----

@pytest.mark.parametrize('bare', [False, True], ids=['leaves', 'a bare leaf'])
def test_readers_of_a_draft_meet_no_zeros_while_it_is_committed(mount, root, bare):
    """Each leaf's directory gets its name then, and what is looked for in between is not absent."""
    m = mount(root, 'ocdbt=off', 'chunk_byte_size=256K', 'cache=0', 'io=fault(open:delay=8:always):sync', allow_errors=True)
    where = begin(m)
    want = np.arange(1, (1 << 18) + 1)          # more than stays in memory
    names = ['%.npy'] if bare else [f'w{i}.npy' for i in range(4)]
    if bare:
        (where / 'good.npy').unlink()
    for name in names:
        np.save(where / name, want)
    wrong, done = [], threading.Event()

    def look(name):
        while not done.is_set():
            try:
                got = np.frombuffer((where / name).read_bytes()[128:], want.dtype)
            except OSError:
                continue
            if not np.array_equal(got, want):
                wrong.append((name, np.flatnonzero(got != want)))
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        readers = [pool.submit(look, names[i % len(names)]) for i in range(6)]
        (m / '7.tmp').rename(m / '7')
        done.set()
        for r in readers:
            r.result()
    assert not wrong
    for name in names:
        assert np.array_equal(np.load(m / '7/default' / name), want)


def safetensors(**tensors):
    header, data = {}, b''
    for name, array in tensors.items():
        header[name] = {'dtype': 'F32', 'shape': list(array.shape), 'data_offsets': [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, 'little') + text + data


def late_refusal(m):
    """An item that is refused after those before it were sealed: two leaves are stored as 'a.b'. What mends it."""
    where = begin(m, item='z')
    (where / 'a').mkdir()
    (where / 'a/b.npy').write_bytes(W)
    (where / 'a.b.npy').write_bytes(W)
    return (where / 'a.b.npy').unlink


LARGE = np.arange(512 * 300, dtype=F4).reshape(512, 300)
TENSORS = safetensors(x=LARGE, y=LARGE + 1)
NESTED = safetensors(**{'in.x': LARGE, 'in.y': LARGE + 1})
TEXT = safetensors(x=np.zeros(9, F4))
# Files of an item, options, and the leaves that they become.
NOT_LEAVES = {
    'parts': (part('w[0:200,0:300]@512x300.npy', LARGE[:200]) | part('w[200:512,0:300]@512x300.npy', LARGE[200:]), (),
              {'w.npy': npy(LARGE)}),
    'tensor': ({'s.safetensors': TENSORS}, ('aggregate=**/x',), {'s/x.npy': npy(LARGE), 's/y.npy': npy(LARGE + 1)}),
    'tensors': ({'s.safetensors': TENSORS}, ('aggregate=default/**',),
                {'s/x.npy': npy(LARGE), 's/y.npy': npy(LARGE + 1)}),
    'nested': ({'s.safetensors': NESTED}, ('aggregate=s/in/x',), {'s/in/x.npy': npy(LARGE), 's/in/y.npy': npy(LARGE + 1)}),
    'array': ({'w.npy': npy(LARGE)}, ('aggregate=default/**',), {'w.npy': npy(LARGE)}),
    'cast': ({'w.npy': npy(LARGE.astype(F8))}, ('aggregate=default/**', 'dtype=float32'), {'w.npy': npy(LARGE)}),
    'text': ({'t.txt': TEXT}, (), {'t.txt': TEXT}),
}


@pytest.mark.parametrize('case,ocdbt', pairs(list(NOT_LEAVES), ['on', 'off']))
def test_arrays_that_are_not_leaves_outlive_a_refusal(mount, root, case, ocdbt):
    """Arrays that a commit joins or stores elsewhere are in the draft until the step exists, and then gone."""
    given, options, leaves = NOT_LEAVES[case]
    m = mount(root, f'ocdbt={ocdbt}', 'compression=none', *options, allow_errors=True)
    where = begin(m)
    for name, data in given.items():
        (where / name).write_bytes(data)
    before, mend = contents(where), late_refusal(m)
    for _ in range(2):
        refused(errno.ECANCELED, lambda: (m / '7.tmp').rename(m / '7'))
        assert re.search(r'two leaves are stored under one name: .a\.b', said(m)), said(m)
        assert contents(where) == before
    mend()
    # Of what was written since no more is known to the store than of what was there.
    (where / 'more.npy').write_bytes(W)
    (m / '7.tmp').rename(m / '7')
    assert contents(m / '7/default') == {'good.npy': W, 'more.npy': W} | leaves
    assert not list(root.rglob('.pytreefs*'))
    # The legacy file has what the options choose, by the whole path of a leaf.
    assert (root / '7/default/checkpoint').exists() == any(o.startswith('aggregate=') for o in options)
    if 'aggregate=default/**' in options:
        assert not (root / '7/default/d').exists()


@pytest.mark.parametrize('size,ocdbt', pairs(['small', 'large'], ['on', 'off']))
def test_bytes_that_look_like_arrays(mount, root, size, ocdbt):
    """A directory that is stored byte for byte may hold any file, and keeps it should the commit fail."""
    m, large = mount(root, f'ocdbt={ocdbt}', allow_errors=True), size == 'large'
    begin(m)
    files = {'table.npy': npy(LARGE) if large else W, 'in/model.safetensors': TENSORS if large else TEXT,
             'notes.md': b'hi', 'd/none': b'', 'in/half.npy': npy(LARGE)[:100_000]}
    extra = m / '7.tmp/extra'
    for name, data in files.items():
        (extra / name).parent.mkdir(parents=True, exist_ok=True)
        (extra / name).write_bytes(data)
    os.setxattr(extra, 'user.pytree.kind', b'opaque')
    mend = late_refusal(m)
    for _ in range(2):
        refused(errno.ECANCELED, lambda: (m / '7.tmp').rename(m / '7'))
        assert contents(extra) == files
    mend()
    (m / '7.tmp').rename(m / '7')
    assert contents(root / '7/extra') == files


@pytest.mark.parametrize('ocdbt', ['on', 'off'])
def test_no_values_without_a_leaf(mount, root, ocdbt):
    """Leaves that were written again, removed or cast leave nothing in the step that no leaf refers to."""
    m = mount(root, f'ocdbt={ocdbt}', 'compression=none', 'target_data_file_size=1M')
    where = begin(m)
    for n in range(4):
        (where / 'w.npy').write_bytes(npy(LARGE + n))
        (where / 'gone.npy').write_bytes(npy(LARGE))
        (where / 'gone.npy').unlink()
    (m / '7.tmp').rename(m / '7')
    assert np.array_equal(np.load(m / '7/default/w.npy'), LARGE + 3)
    stored = sum(p.stat().st_size for p in (root / '7').rglob('*') if p.is_file())
    # A data file may begin with what was there before.
    assert stored < LARGE.nbytes + (2 << 20), stored


def test_space_between_values_is_given_back(mount, root):
    """Data files that leaves refer to take the room of what they refer to, and all of that is there."""
    m = mount(root, 'compression=none', 'chunk_byte_size=1M')
    where = begin(m)
    big = {f'{name}.npy': np.random.default_rng(n).integers(0, 1 << 60, 1 << 20) for n, name in enumerate('abc')}
    for n in (3, 2, 1, 0):
        for name, a in big.items():
            np.save(where / name, a + n)
    np.save(where / 'gone.npy', big['a.npy'])
    (where / 'gone.npy').unlink()
    (m / '7.tmp').rename(m / '7')
    taken = sum(p.stat().st_blocks * 512 for p in (root / '7').rglob('*') if p.is_file())
    assert taken < 1.1 * sum(a.nbytes for a in big.values()), taken
    m.unmount()
    m = mount(root)
    for name, a in big.items():
        assert np.array_equal(np.load(m / '7/default' / name), a)
    assert (m / '7/default/good.npy').read_bytes() == W
