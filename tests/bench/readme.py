# SPDX-License-Identifier: Apache-2.0
"""The numbers in README.md: a few rows of the table in docs/benchmarks.md, between two marks."""

import re

from bench.table import BEGIN, DOC, END

README = DOC.parent.parent / 'README.md'
# Columns: the heading of each.
PEERS = ['Orbax', 'TensorStore', 'plain files']
# The compared tasks, and for each column the row and the peer in docs/benchmarks.md. A task that the page has no row of yet is left out.
ROWS = [
    ('a whole tree (zstd), `pytreefs.load`',
     ('pytreefs.load, whole zstd tree', 'Orbax restore'), ('pytreefs.load, whole zstd tree', 'TensorStore'), None),
    ('the same, not compressed', None, ('pytreefs.load, not compressed', 'TensorStore'), None),
    ('the same tree, `np.load` of each file of a mount',
     ('whole tree, np.load of each leaf', 'Orbax restore'), ('whole zstd tree, np.load in a loop', 'TensorStore'),
     ('whole tree, np.load of each leaf', 'safetensors')),
    ('8 processes read one tree through one mount',
     None, ('8 processes load one tree', 'TensorStore'), ('8 processes load one tree', 'plain')),
    ('30 random boxes of a leaf in one call of `pytreefs.load`', None, ('30 random boxes of a leaf in one call', 'TensorStore'),
     ('30 random boxes of a safetensors file in one call, warm', 'safetensors 0.9, get_slice')),
    ('a safetensors file as tensors, against `safetensors` 0.9 (`pread`)', None, None,
     ('a safetensors file of 1 GiB as tensors, warm', 'safetensors 0.9, pread')),
    ('the same from the disk', None, None, ('a safetensors file of 1 GiB as tensors, from the disk', 'safetensors 0.9, pread')),
    ('the same, against `runai-model-streamer`', None, None, ('a safetensors file of 1 GiB as tensors, from the disk', 'runai-model-streamer')),
    ('a tree of zarr v3 in directories, against zarr-python with `zarrs`', None, None, ('a tree of zarr v3 without OCDBT, warm', 'zarrs')),
    ('`dd` of a 1 GiB leaf, not compressed', None, None, ('raw chunk, cold, dd bs=1M', 'tmpfs dd')),
    ('reads of 4 KiB at random offsets', None, None, ('raw chunk, random 4 KiB, p50', 'tmpfs')),
    ('`ls -lR` of 20,000 leaves, first time', None, None, ('ls -lR of 20,000 leaves, cold', 'tmpfs')),
    ('names, shapes and types of 20,000 leaves',
     ('names, shapes and types of 20,000 leaves', 'Orbax metadata()'), None, None),
    ('save through a mount, zstd, durable', ('whole tree, zstd:1, durable', 'Orbax save'), None, None),
    ('`pytreefs.save`, zstd, durable', ('pytreefs.save, zstd:1, durable', 'Orbax save'), None, None),
    ('arrays on 8 devices, `pytreefs.orbax`: restore', ('restore on 8 devices, sharded, 2048 MiB, by the handler', 'Orbax'), None, None),
    ('the same: save, durable', ('save on 8 devices, sharded, 2048 MiB, durable, default compression', 'Orbax'), None, None),
    ('save 2,000 leaves of 1 KiB, durable', ('2,000 leaves of 1 KiB, durable', 'Orbax save'), None, None),
    ('`pytreefs verify` against a restore', ('verify, 2 GiB, Orbax restore', 'Orbax restore'), None, None),
    ('a tree on a web server 20 ms away, `pytreefs.load`', None,
     ('from a web server, pytreefs.load', 'TensorStore'), ('from a web server, pytreefs.load', 'curl')),
    ('save 512 MiB to S3', None, None, ('to S3, pytreefs save, not compressed', 'curl')),
]


def measured(text):
    """{(row, peer): how many times as fast as the peer we are} of the table between the marks of a page."""
    out = {}
    for line in text.split(BEGIN)[1].split(END)[0].splitlines():
        cells = [cell.strip() for cell in line.split('|')[1:-1]]
        found = re.match(r'([\d.]+) \[', cells[3]) if len(cells) == 7 else None
        if found and cells[2]:
            ratio = float(found[1])
            # A ratio with an upper limit is ours / peer's.
            out[cells[0], cells[2].rpartition(':')[0]] = 1 / ratio if cells[4].startswith('≤') else ratio
        elif len(cells) == 7 and cells[2].endswith(': not installed'):
            out[cells[0], cells[2].rpartition(':')[0]] = None
    return out


def block(text):
    """The lines of README.md from one mark to the other, with the numbers of that page."""
    ratios = measured(text)
    rows = [['pytreefs is ... times as fast as', *PEERS], ['---', *['---:'] * len(PEERS)]]
    for label, *sources in ROWS:
        if any(source in ratios for source in sources):
            rows.append([label, *('' if source is None or ratios[source] is None else f'{ratios[source]:.2f}' for source in sources)])
    return '\n'.join([BEGIN, *('| ' + ' | '.join(cells) + ' |' for cells in rows), END])


def write():
    """Everything between the two marks of README.md follows docs/benchmarks.md."""
    page, ratios = README.read_text(), measured(DOC.read_text())
    for label, *sources in ROWS:
        if not any(source in ratios for source in sources):
            print(f'README.md has nothing of {label!r}: the page has no row of it')
    before, rest = page.split(BEGIN)
    README.write_text(before + block(DOC.read_text()) + rest.split(END)[1])


if __name__ == '__main__':
    write()
