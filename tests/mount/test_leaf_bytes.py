# SPDX-License-Identifier: Apache-2.0
"""Python bytes: leaves of the legacy msgpack file, .bin files in the mount, both ways."""

import errno
import os
import shutil

import numpy as np
import orbax.checkpoint as ocp
import pytest
from orbax.checkpoint import msgpack_utils

from lib.saving import ARRAY, save, saved
from lib.writing import npy

BYTES = {'text': b'hello', 'none': b'', 'wild': bytes(range(256)) * 5000, 'npy_head': b'\x93NUMPY\x01\x00', 'npy': npy(ARRAY)}


def draft_files(**more):
    return {'w.npy': ARRAY, 's.json': b'3', **{f'n/{name}.bin': value for name, value in BYTES.items()}, **more}


@pytest.mark.feature('A1')
def test_bytes_of_a_flax_file(mount, root):
    tree = {'w': ARRAY, 'n': BYTES}
    (root / 'checkpoint_5').write_bytes(msgpack_utils.msgpack_serialize(tree))
    m = mount(root)
    top = m / 'checkpoint_5'
    assert sorted(p.name for p in (top / 'n').iterdir()) == sorted(f'{name}.bin' for name in BYTES)
    for name, value in BYTES.items():
        assert (top / 'n' / f'{name}.bin').read_bytes() == value
        assert (top / 'n' / f'{name}.bin').stat().st_size == len(value)
        assert np.load(top / 'n' / f'{name}.npy').tobytes() == value
    assert (top / 'n/text[1:3].bin').read_bytes() == b'el'
    assert (top / 'n/text.json').read_text() == '[104, 101, 108, 108, 111]\n'


@pytest.mark.feature('A1', 'B1')
@pytest.mark.option('aggregate')
@pytest.mark.parametrize('what', ['all', 'n/*'])
@pytest.mark.parametrize('ocdbt', ['on', 'off'])
def test_bytes_are_saved_to_the_legacy_file(mount, root, what, ocdbt):
    item = saved(mount, root, f'ocdbt={ocdbt}', f'aggregate={what}', 'verify_commit=on', files=draft_files())
    back = ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt == 'on')).restore(item)
    assert back['n'] == BYTES and np.array_equal(back['w'], ARRAY) and back['s'] == 3
    m = mount(root)
    for name, value in BYTES.items():
        assert (m / '1/default/n' / f'{name}.bin').read_bytes() == value
    assert os.getxattr(m / '1/default/n/wild.bin', 'user.pytree.typestr') == b'"bytes"'


@pytest.mark.feature('B1')
def test_bytes_outside_the_legacy_file_are_refused(mount, root):
    m = mount(root, allow_errors=True)
    with pytest.raises(OSError) as refused:
        save(m, files=draft_files())
    assert refused.value.errno == errno.ECANCELED
    assert any("leaf 'n." in line and 'aggregate= chooses the leaves that go there' in line for line in m.log_lines())
    shutil.rmtree(m / '1.tmp/default/n')
    (m / '1.tmp').rename(m / '1')
    assert np.array_equal(np.load(m / '1/default/w.npy'), ARRAY)


@pytest.mark.feature('B1', 'D4')
def test_a_copy_has_the_same_bytes(mount, root):
    saved(mount, root, 'aggregate=all', files=draft_files())
    m = mount(root, 'aggregate=all')
    shutil.copytree(m / '1', m / '2.tmp')
    (m / '2.tmp').rename(m / '2')
    back = ocp.PyTreeCheckpointer().restore(root / '2' / 'default')
    assert back['n'] == BYTES
