# SPDX-License-Identifier: Apache-2.0
"""A copy is stored as what it was copied from, by whatever program, as far as that brings what says so."""

import json
import os
import pathlib
import shutil

import orbax.checkpoint as ocp
import pytest
import tensorstore as ts

from lib import expect, restoring
from lib.pairs import pairs
from test_copying import CARRIED, recorded, shell
from test_writing import commit

ITERATOR = 'grain._src.python.checkpoint_handlers.CheckpointHandler'


def by_items(step):
    """{item: its directory}; of a step that is one tree, the step itself."""
    return {p.parent.relative_to(step): p.parent for p in step.rglob('_METADATA')}


def stored_as(step):
    """How real Orbax and TensorStore say that a step is stored: handlers, flags, and of each array version, chunks and write_shape."""
    found = json.loads((step / '_CHECKPOINT_METADATA').read_text())
    found = {k: found[k] for k in ('item_handlers', 'custom_metadata')}
    for name, item in by_items(step).items():
        document = json.loads((item / '_METADATA').read_text())
        found[name] = document['use_zarr3'], document['use_ocdbt'], (item / 'manifest.ocdbt').exists(), recorded(item)
        tree = expect.flatten(ocp.PyTreeCheckpointer().restore(item))
        for path in [k for k, v in tree.leaves.items() if not isinstance(v, str)]:
            spec = restoring.array_spec(item.resolve(), '.'.join(path), document['use_ocdbt'], document['use_zarr3'])
            found[name, path] = ts.open(spec, open=True).result().chunk_layout.read_chunk.shape
    return found


def iterator_beside(step):
    """Add an item of a program with a handler of its own."""
    document = json.loads((step / '_CHECKPOINT_METADATA').read_text())
    document['item_handlers']['iterator'] = ITERATOR
    document['custom_metadata'] = {'run': 'first'}
    (step / '_CHECKPOINT_METADATA').write_text(json.dumps(document))
    (step / 'iterator').mkdir()
    (step / 'iterator/process_0-of-1.json').write_text('{"next": 7}')


@pytest.mark.parametrize('how, name', pairs(
    ['convert', 'cp -r MNT/100/. MNT/101.tmp/', CARRIED['cp']],
    ['mesh-ocdbt-zarr2-v0', 'mesh-perleaf-zarr3-v0', 'mesh-perleaf-zarr2-v1', 'mesh-ocdbt-zarr3-v1', 'mesh-chunked', 'partial-saving']))
def test_a_copy_keeps_its_format(mount, run, cases, root, how, name):
    """Arrays, what devices wrote, and the names of handlers stay without an option; an option decides about what it names."""
    shutil.copytree(cases(name).path, root / '100')
    if name.endswith('v1'):
        iterator_beside(root / '100')
    want = stored_as(root / '100')
    step = root / '101'
    if how == 'convert':
        run('convert', root / '100', step)
    else:
        m = mount(root)
        (m / '101.tmp').mkdir()
        r = shell(how, m)
        assert r.returncode == 0 and not r.stderr, r.stderr
        commit(m, '101')
    got = stored_as(step)
    assert {k: (want[k], got.get(k)) for k in want if want[k] != got.get(k)} == {}
    assert run('verify', step).returncode == 0
    run('convert', '-o', 'zarr=2,ocdbt=on', step, root / '102')
    assert all(got[:2] == (False, True) for k, got in stored_as(root / '102').items() if isinstance(k, pathlib.Path))


OURS = 'orbax.checkpoint._src.handlers.pytree_checkpoint_handler.PyTreeCheckpointHandler'


@pytest.mark.parametrize('how, item, handler', [
    ('mkdir MNT/101.tmp/iterator && cp MNT/100/state/rows.npy MNT/101.tmp/iterator', 'iterator', OURS),
    ('cp -r MNT/100/state MNT/101.tmp/iterator', 'iterator', OURS),
    ('mkdir MNT/101.tmp/iterator && cat MNT/100/state/rows.npy | cat >MNT/101.tmp/iterator/w.npy', 'iterator', OURS),
    ('cp -r MNT/100/iterator MNT/101.tmp && rm MNT/101.tmp/iterator/* && cat MNT/100/state/rows.npy | cat >MNT/101.tmp/iterator/w.npy', 'iterator', OURS),
    ('cp -r MNT/100/iterator MNT/101.tmp', 'iterator', ITERATOR),
    ('cp -r MNT/100/state MNT/101.tmp', 'state', 'my.Handler'),
    ('mkdir MNT/101.tmp/state && cp MNT/100/state/rows.npy MNT/101.tmp/state', 'state', 'my.Handler'),
    ('mkdir MNT/101.tmp/state && cat MNT/100/state/_METADATA | cat >MNT/101.tmp/state/_METADATA && '
     'cat MNT/100/state/rows.npy | cat >MNT/101.tmp/state/rows.npy', 'state', 'my.Handler'),
    ('mkdir MNT/101.tmp/state && cat MNT/100/state/rows.npy | cat >MNT/101.tmp/state/w.npy', 'state', OURS)])
def test_an_unknown_handler_is_that_of_a_copied_item_alone(mount, cases, root, how, item, handler):
    """A tree that was made anew below the name of an item, in a copy of the rest of the step, is one of Orbax's."""
    shutil.copytree(cases('mesh-ocdbt-zarr3-v1').path, root / '100')
    iterator_beside(root / '100')
    file = root / '100/_CHECKPOINT_METADATA'
    document = json.loads(file.read_text())
    document['item_handlers']['state'] = 'my.Handler'
    file.write_text(json.dumps(document))
    m = mount(root)
    (m / '101.tmp').mkdir()
    r = shell(f'cp MNT/100/_CHECKPOINT_METADATA MNT/101.tmp && {how}', m)
    assert r.returncode == 0 and not r.stderr, r.stderr
    commit(m, '101')
    assert json.loads((root / '101/_CHECKPOINT_METADATA').read_text())['item_handlers'] == {item: handler}


@pytest.mark.parametrize('how', ['mount', 'files'])
@pytest.mark.parametrize('name', ['mesh-ocdbt-zarr3-v1', 'mesh-perleaf-zarr2-v1'])
def test_a_copy_by_way_of_files_keeps_what_documents_say(mount, run, cases, root, tmp_path, how, name):
    """From one mount into another, and as files on a disk that become a step: chunks are new there, and arrays are numpy's."""
    shutil.copytree(cases(name).path, root / '100')
    iterator_beside(root / '100')
    m = mount(root)
    other = tmp_path / 'other'
    other.mkdir()
    if how == 'mount':
        into = mount(other, 'shape=root')
        shutil.copytree(m / '100', into / '100.tmp')
        os.setxattr(into / '100.tmp/iterator', 'user.pytree.kind', b'opaque')
        commit(into, '100')
    else:
        shutil.copytree(m / '100', tmp_path / 'files')
        run('convert', tmp_path / 'files', other / '100')
    want, got = stored_as(root / '100'), stored_as(other / '100')
    assert {k: v[:3] for k, v in want.items() if isinstance(k, pathlib.Path)} == \
        {k: v[:3] for k, v in got.items() if isinstance(k, pathlib.Path)}
    assert [got[k] for k in ('item_handlers', 'custom_metadata')] == [want[k] for k in ('item_handlers', 'custom_metadata')]
    restore = ocp.PyTreeCheckpointer().restore
    assert not restoring.faults(expect.flatten(restore(root / '100/state')), restore(other / '100/state'))
