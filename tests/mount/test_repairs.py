# SPDX-License-Identifier: Apache-2.0
"""A mount that met damage reads the files again after they are repaired on disk."""

import errno
import json
import os
import shutil

import numpy as np
import pytest

from lib import mounts

RNG = np.random.default_rng(5)
SMALL = RNG.integers(0, 99, (64, 64), dtype=np.int32)
LARGE = RNG.normal(size=2 << 20).astype(np.float32)      # one chunk of 8 MiB is decoded as a stream


def largest(item):
    return max((p for p in item.rglob('*') if p.is_file()), key=lambda p: p.stat().st_size)


def called(name):
    return lambda item: next(item.rglob(name))


def saved(run, where, array, *options):
    (where / 'in').mkdir(parents=True)
    np.save(where / 'in/w.npy', array)
    np.save(where / 'in/x.npy', np.arange(3))
    run('save', *[word for o in options for word in ('-o', o)], where / 'in', where / 'source/1')
    return where / 'source/1/default'


def write_over(file, content):
    with file.open('r+b') as f:
        f.write(content)


def put_in_place(file, content):
    """As rsync and other tools that restore a backup do: another file of that name."""
    new = file.with_name('.restored')
    new.write_bytes(content)
    os.rename(new, file)


def reads_as(leaf, array):
    try:
        return np.array_equal(np.load(leaf), array)
    except (OSError, ValueError):       # of numpy, too: it reads by fread(3), and does not look at errno
        return False


KINDS = {
    'a chunk': (SMALL, largest, ['ocdbt=on']),
    'a chunk without compression': (SMALL, largest, ['compression=none']),
    'a chunk that is a stream': (LARGE, largest, ['chunk_byte_size=64M']),
    'a file of a chunk': (SMALL, called('w/0.0'), ['ocdbt=off']),
    'metadata of an array': (SMALL, called('w/.zarray'), ['ocdbt=off']),
    'the manifest': (SMALL, called('manifest.ocdbt'), []),
    'the tree': (SMALL, called('_METADATA'), []),
}


# An item whose own documents are broken cannot be mounted alone.
WHERE = [(kind, shape) for kind in KINDS for shape in ('root', 'item')
         if shape == 'root' or kind not in ('the manifest', 'the tree')]


@pytest.mark.parametrize('repair', [write_over, put_in_place])
@pytest.mark.parametrize('kind,shape', WHERE)
def test_what_was_repaired_is_read(run, mount, tmp_path, kind, repair, shape):
    array, find, options = KINDS[kind]
    item = saved(run, tmp_path, array, *options)
    file = find(item)
    good = file.read_bytes()
    # Truncated too: neither its begin nor its end is right.
    file.write_bytes(b'damaged!' + good[8:len(good) // 2])
    m = mount(tmp_path / 'source' if shape == 'root' else item, allow_errors=True)
    leaf = m / ('1/default/w.npy' if shape == 'root' else 'w.npy')
    for _ in range(2):
        with pytest.raises((OSError, ValueError)):
            np.load(leaf)
    repair(file, good)

    mounts.wait_for(lambda: reads_as(leaf, array))


# Without its tree an item is read as Orbax reads it: from its arrays.
@pytest.mark.parametrize('kind,shape', [(kind, shape) for kind, shape in WHERE if kind != 'the tree'])
def test_what_was_missing_and_is_put_back_is_read(run, mount, tmp_path, kind, shape):
    """A backup is restored while the mount is there, which has asked for the file in vain."""
    array, find, options = KINDS[kind]
    item = saved(run, tmp_path, array, *options)
    file = find(item)
    file.rename(tmp_path / 'kept')
    m = mount(tmp_path / 'source' if shape == 'root' else item, allow_errors=True)
    leaf = m / ('1/default/w.npy' if shape == 'root' else 'w.npy')
    for _ in range(2):
        with pytest.raises((OSError, ValueError)):
            np.load(leaf)
    (tmp_path / 'kept').rename(file)

    mounts.wait_for(lambda: reads_as(leaf, array))


def test_info_of_an_item_with_a_damaged_leaf_tells_the_rest(run, tmp_path):
    item = saved(run, tmp_path, SMALL, 'ocdbt=off')
    whole = json.loads(run('info', '--json', item).stdout)
    (item / 'w/.zarray').write_text('{"zarr_format": 2')
    r = run('info', '--json', item, ok=False)
    assert r.returncode == 1
    found = json.loads(r.stdout)
    unknown = found.pop('unknown')
    assert unknown and set(whole) == set(found) | set(unknown)
    # Of what can be opened.
    assert (whole.pop('checksums')['leaves'], found.pop('checksums')['leaves']) == (2, 1)
    assert all(whole[name] == value for name, value in found.items())
    assert {'source', 'store', 'leaves', 'kind'} <= set(found)
    assert all("'w" in why for why in unknown.values()), unknown
    r = run('info', item, ok=False)
    assert r.returncode == 1 and 'store            directories' in r.stdout
    assert "w/.zarray" in r.stderr or "'w'" in r.stderr, r.stderr
    # The leaf itself: what can be told of it.
    r = run('info', item / 'w.npy', ok=False)
    assert r.returncode == 1 and 'w' in r.stderr


def test_a_record_that_is_too_large_is_broken(run, mount, tmp_path):
    """EFBIG is for those who write too much; a reader can do nothing about it."""
    item = saved(run, tmp_path, SMALL, 'ocdbt=off')
    document = json.loads((item / 'w/.zarray').read_text())
    (item / 'w/.zarray').write_text(json.dumps(dict(document, shape=[2 ** 40, 2 ** 40])))
    shutil.rmtree(item / '.crc32c')     # as if another program had written it
    shutil.copytree(item.parent, tmp_path / 'source/2')
    with (tmp_path / 'source/2/default/_METADATA').open('r+b') as f:
        f.truncate(1 << 40)
    m = mount(tmp_path / 'source', allow_errors=True)
    for path, look in [('1/default/w.npy', os.stat), ('1/default/w.npy', open), ('2/default', os.listdir),
                       ('1/default.safetensors', os.stat)]:
        with pytest.raises(OSError) as e:
            look(m / path)
        assert e.value.errno == errno.EIO, path
    assert any('2^64' in line for line in m.log_lines())
    assert np.load(m / '1/default/x.npy').tolist() == [0, 1, 2]
