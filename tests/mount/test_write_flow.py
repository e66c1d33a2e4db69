# SPDX-License-Identifier: Apache-2.0
"""The trace of a write is the flow of the design: which module speaks after which, and what is durable before what."""

import os
import re

import numpy as np
import pytest

from lib import flow, mounts


def words(lines):
    """[(module, text)] of the trace."""
    out = []
    for line in lines:
        found = re.match(r'trace (\w+): (.*)', line)
        if found:
            out.append((found[1], found[2]))
    return out


def phase(trace, first, last=None):
    """From the line that begins a call of the kernel's to the one that begins another."""
    at = next(i for i, (module, text) in enumerate(trace) if module == 'fs' and text.startswith(first))
    end = next((i for i, (module, text) in enumerate(trace) if i > at and module == 'fs' and last and
                text.startswith(last)), len(trace))
    return trace[at:end]


def modules(trace):
    """In the order of their first line."""
    return list(dict.fromkeys(module for module, _ in trace))


def positions(trace, *patterns):
    """Where each pattern is found, each after the one before it."""
    at = -1
    for pattern in patterns:
        at = next((i for i, (module, text) in enumerate(trace) if i > at and module == 'io' and
                   re.fullmatch(pattern, text)), None)
        assert at is not None, f'{pattern} does not follow:\n' + '\n'.join(f'{m}: {t}' for m, t in trace)
    return at


def save(mount, tmp_path, *options):
    source = tmp_path / 'source'
    source.mkdir()
    m = mount(source, 'trace=all', 'io=trace:sync', 'threads=1', *options)
    item = m / '7.tmp' / 'default'
    item.mkdir(parents=True)
    rng = np.random.default_rng(0)
    with open(item / 'w.npy', 'wb', buffering=0) as f:
        np.lib.format.write_array_header_1_0(f, {'descr': '|u1', 'fortran_order': False, 'shape': (9 << 20,)})
        for _ in range(9):
            f.write(rng.bytes(1 << 20))
    (item / 'run.txt').write_text('a string')
    # The workers encode on, and the kernel lets go of files some time after close(2); a rename that came meanwhile would
    # wait for both, and their lines stand among its own.
    mounts.wait_for(lambda: {('fs', "release 'w.npy'"), ('fs', "release 'run.txt'")} <= set(words(m.log_lines())))
    mounts.wait_for(lambda: not m.stats()['background_jobs'])
    os.rename(m / '7.tmp', m / '7')
    return [line for line in words(m.log_lines()) if "'stats'" not in line[1] and "'.pytreefs'" not in line[1]]


def test_modules_follow_each_other_as_the_design_says(mount, tmp_path):
    trace = save(mount, tmp_path)
    begin = phase(trace, "mkdir '7.tmp'", "mkdir 'default'")
    assert modules(begin) == ['fs', 'step', 'io']
    write = phase(trace, "write 'w.npy'", "create 'run.txt'")
    assert modules(write)[:2] == ['fs', 'leaf']
    # Opening the array makes its document; from the first full band on a worker carries on.
    full = next(i for i, (module, text) in enumerate(write) if module == 'zarr' and text.startswith('write 0+'))
    # Which may end after the next file was created, on a busy machine.
    band = phase(trace, "write 'w.npy'", "rename '7.tmp' to '7'")[full:]
    # So that what the new file needs of the disk may stand anywhere in it.
    of_data = [(module, text) for module, text in band if module != 'io' or re.match(r'\w+ d\b', text)]
    flow = [m for m in modules(of_data) if m not in ('fs', 'leaf')]
    assert flow[:5] == ['zarr', 'codec', 'kv', 'ocdbt', 'io'], '\n'.join(f'{module}: {text}' for module, text in band)
    rename = phase(trace, "rename '7.tmp' to '7'")
    assert modules(rename)[:2] == ['fs', 'step'] and set(modules(rename)) >= {'ocdbt', 'io'}


# A commit opens what it has written, as a reader would (verify_commit).
VERIFY = ('core/ocdbt/db.c', 'core/ocdbt/kv_ocdbt.c', 'core/kv/kv.c', 'core/step/item.c', 'core/zarr/zarr.c')


def test_the_files_of_a_write_are_those_of_the_page(mount, tmp_path):
    """By file: "How a write flows" of docs/architecture.md."""
    trace = save(mount, tmp_path, 'compression=zstd')
    write = phase(trace, "write 'w.npy'", "rename '7.tmp' to '7'")
    # The array's document is put when the header is known, before any chunk: one put and one look at it.
    full = next(i for i, (module, text) in enumerate(write) if module == 'zarr' and text.startswith('write 0+'))
    document = [line for line in write[:full] if line[0] in ('kv', 'zarr')]
    assert len(document) == 3, document
    # The next file is looked up and opened meanwhile.
    others = ('fs/dir.c', 'handlers/namespace/node.c', 'handlers/namespace/watch.c')
    flow.check('write(2)', [line for line in write if line not in document], others)
    rename = phase(trace, "rename '7.tmp' to '7'")
    flow.check('rename(2)', rename, others[2:] + VERIFY + ('core/ocdbt/datafile.c',))
    # From names to types, as a read goes from a file to its type.
    spoke = set().union(*(flow.files_of(module, text) for module, text in rename))
    assert {'handlers/plan/draft_tree.c', 'handlers/commit/draft_items.c', 'handlers/leaf/leaf.c'} <= spoke


def test_each_thing_is_durable_before_what_points_to_it(mount, tmp_path):
    rename = phase(save(mount, tmp_path), "rename '7.tmp' to '7'")
    value = r'sync d/[0-9a-f]{32}:.*'
    positions(rename, value, r'sync-dir d: ok', r'sync-dir \.: ok', r'write d/.*', value, r'sync-dir d: ok',
              r'write manifest.ocdbt:.*', r'sync manifest.ocdbt:.*',
              r'write default/_strings.json:.*', r'sync default/_strings.json:.*',
              r'write default/_METADATA:.*', r'sync default/_METADATA:.*', r'sync-dir default: ok',
              r'write default/commit_success.txt:.*', r'sync default/commit_success.txt:.*', r'sync-dir default: ok',
              r'write _CHECKPOINT_METADATA:.*', r'sync _CHECKPOINT_METADATA:.*',
              r'write commit_success.txt:.*', r'sync commit_success.txt:.*', r'sync-dir \.: ok',
              r'rename-new \.7.pytreefs-draft -> 7: ok', r'sync-dir \.: ok', r'unlink .pytreefs-draft: ok')


@pytest.mark.parametrize('zarr', [2, 3])
def test_a_directory_for_each_leaf(mount, tmp_path, zarr):
    trace = save(mount, tmp_path, 'ocdbt=off', f'zarr={zarr}')
    leaf = r'\.pytreefs-leaf-0'
    chunk = rf'{leaf}/(c/)?\d+'
    # Chunks are durable when they have been written, long before the commit.
    positions(phase(trace, "write 'w.npy'"), rf'write {chunk}:.*', rf'sync {chunk}:.*')
    rename = phase(trace, "rename '7.tmp' to '7'")
    positions(rename, rf'sync-dir {leaf}: ok', rf'rename-new {leaf} -> w: ok', r'write default/_METADATA:.*',
              r'sync default/_METADATA:.*', r'sync-dir default: ok', r'rename-new \.7.pytreefs-draft -> 7: ok',
              r'sync-dir \.: ok')
