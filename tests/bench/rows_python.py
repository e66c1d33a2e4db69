# SPDX-License-Identifier: Apache-2.0
"""The Python package against TensorStore and Orbax, each in a process of its own with its imports done. Sources are in the
page cache, but for python_cold and python_torch_cold."""

import contextlib
import shutil
import subprocess

from bench.bench import bench
from bench.worker import Worker

PEAK = (1024 + 256 + 64) << 20  # bytes: the result, read_budget, and 64 MiB


def whole(b, case, peers, ours_function='load', **ours):
    """case: or the path of a checkpoint."""
    source = b.case(case)
    b.warm(source)
    b.contender('pytreefs.load', b.python(f'peers_python:{ours_function}', source, **ours))
    for name, function in peers.items():
        b.contender(name, b.python(function, source))
    return source


@bench
def python_load(b):
    """pytreefs.load of 1 GiB in 64 leaves of one zstd frame (OCDBT) into numpy."""
    whole(b, 'bench-leaves-zstd', {'TensorStore': 'peers_python:tensorstore_tree', 'Orbax restore': 'orbax_restore'})
    b.row('pytreefs.load, whole zstd tree', 'pytreefs.load', 'TensorStore', rate=2.0, peak=PEAK)
    b.row('pytreefs.load, whole zstd tree', 'pytreefs.load', 'Orbax restore', rate=2.5)


@bench
def python_load_raw(b):
    """The same without compression: 1 GiB, one chunk."""
    whole(b, 'bench-one-raw', {'TensorStore': 'peers_python:tensorstore_tree'})
    b.row('pytreefs.load, not compressed', 'pytreefs.load', 'TensorStore', rate=1.5, peak=PEAK)


@bench
def python_load_auto(b):
    """The tree of python_load with compression=auto, against the same in zstd, and against TensorStore on that."""
    zstd = b.case('bench-leaves-zstd')
    auto = b.converted('bench-leaves-zstd', 'compression=auto')
    for source in (auto, zstd):
        b.warm(source)
    b.contender('auto', b.python('peers_python:load', auto))
    b.contender('zstd', b.python('peers_python:load', zstd))
    b.contender('TensorStore', b.python('peers_python:tensorstore_tree', zstd))
    b.row('pytreefs.load, compression=auto', 'auto', 'zstd', rate=1.2)
    b.row('pytreefs.load, compression=auto', 'auto', 'TensorStore', rate=2.5)


@bench
def python_load_zarr3(b):
    """The tree of python_load as zarr v3."""
    whole(b, b.converted('bench-leaves-zstd', 'zarr=3'), {'TensorStore': 'peers_python:tensorstore_tree'})
    b.row('pytreefs.load, whole zarr v3 tree', 'pytreefs.load', 'TensorStore', rate=1.8, peak=PEAK)


def exported(b, source):
    """The same weights as a safetensors file on the same disk."""
    file = b.scratch() / 'all.safetensors'
    subprocess.run([b.program, 'export', '-q', source, file], check=True, stdout=subprocess.DEVNULL)
    return file


@bench
def python_torch(b):
    """The tree of python_load without compression as tensors, against load_file of a safetensors file of the same weights, which maps it; and
    against the same with a copy of each tensor. A byte of each page is read."""
    source = b.converted('bench-leaves-zstd', 'compression=none')
    file = exported(b, source)
    b.warm(source)
    b.warm(file)
    b.contender('pytreefs.load', b.python('peers_python:torch_load', source))
    b.contender('pytreefs.load, mmap=True', b.python('peers_python:torch_load', source, mmap=True))
    b.contender('load_file', b.python('peers_python:torch_load_file', file))
    b.contender('load_file, copied', b.python('peers_python:torch_load_file', file, copied=True))
    b.row('pytreefs.load as tensors, not compressed', 'pytreefs.load', 'load_file', rate=0.5)
    b.row('pytreefs.load as tensors, not compressed', 'pytreefs.load', 'load_file, copied')
    b.row('pytreefs.load(mmap=True) as tensors', 'pytreefs.load, mmap=True', 'load_file', rate=0.9)


@bench
def python_cold(b):
    """The tree of python_load in zstd frames and without compression, read from the disk; and the latter again, from the pages that were read."""
    for kind, source in (('zstd', b.case('bench-leaves-zstd')), ('not compressed', b.converted('bench-leaves-zstd', 'compression=none'))):
        names = [f'{who}, {kind}' for who in ('pytreefs.load', 'TensorStore')]
        for name, function in zip(names, ('load', 'tensorstore_tree')):
            b.contender(name, b.python(f'peers_python:{function}', source), before=lambda source=source: b.evict(source))
        b.row(f'pytreefs.load, {kind}, from the disk', *names, rate=2 if kind == 'zstd' else 1.5)
    for who, function in (('pytreefs.load', 'load'), ('TensorStore', 'tensorstore_tree')):
        run = b.python(f'peers_python:{function}', source)

        def read_by_itself(run=run):
            b.evict(source)
            run()
        b.contender(f'{who}, again', run, before=read_by_itself)
    b.row('pytreefs.load, not compressed, again', 'pytreefs.load, again', 'TensorStore, again', rate=1.5)


@bench
def python_torch_cold(b):
    """The same tree in zstd frames as tensors, and the safetensors file, both of which are read from the disk."""
    source = b.case('bench-leaves-zstd')
    file = exported(b, source)
    b.contender('pytreefs.load', b.python('peers_python:torch_load', source), before=lambda: b.evict(source))
    b.contender('load_file', b.python('peers_python:torch_load_file', file), before=lambda: b.evict(file))
    b.row('pytreefs.load as tensors, zstd, from the disk', 'pytreefs.load', 'load_file', rate=1.0)


@bench
def python_interrupt(b):
    """Ctrl-C after a quarter of a load of 10 GiB: until the exception in Python."""
    source = b.scratch() / '1'
    with contextlib.closing(Worker()) as w:
        w.call('peers_python:large_constant', source)
    b.contender('SIGINT', b.python('peers_python:interrupt', source))
    b.row('Ctrl-C in a load of 10 GiB', 'SIGINT', within=0.2)


@bench
def python_load_chunks(b):
    """One leaf of 1 GiB in zstd frames of 4 MiB."""
    whole(b, 'bench-many-zstd', {'TensorStore': 'peers_python:tensorstore_tree'})
    b.row('pytreefs.load, one leaf of many chunks', 'pytreefs.load', 'TensorStore', rate=2.0, peak=PEAK)


@bench
def python_leaf(b):
    """A leaf of 1 MiB, imports done; and a whole process that imports and reads it."""
    source = b.case('bench-small')
    b.warm(source)
    b.contender('pytreefs', b.python('peers_python:load', source, only='w0'))
    b.contender('TensorStore', b.python('tensorstore_read', source, 'w0'))
    b.contender('python, pytreefs', b.python('peers_python:process', source))
    b.contender('python, TensorStore', b.python('peers_python:process_tensorstore', source))
    b.row('pytreefs.load of a 1 MiB leaf', 'pytreefs', 'TensorStore', rate=1.0)
    b.row('the same, a whole Python process', 'python, pytreefs', 'python, TensorStore', rate=2.5)


@bench
def python_boxes(b):
    """30 boxes at random, leaf[...] of a checkpoint that is open, and in one call, against TensorStore with a cache pool."""
    source = b.case('bench-many-zstd')
    b.warm(source)
    b.contender('leaf[...]', b.python('peers_python:boxes', source))
    b.contender('load(only=)', b.python('peers_python:boxes_at_once', source))
    b.contender('TensorStore', b.python('peers_python:tensorstore_boxes', source))
    b.row('30 random boxes of a leaf of many chunks', 'leaf[...]', 'TensorStore', rate=2.0)
    b.row('30 random boxes of a leaf in one call', 'load(only=)', 'TensorStore', rate=2.0)


@bench
def python_describe(b):
    """Open and describe all of 20,000 leaves; Orbax takes long: three rounds."""
    source = b.case('leaves-20000')
    b.most_rounds = 3
    b.contender('pytreefs', b.python('peers_python:describe', source))
    b.contender('Orbax metadata()', b.python('orbax_metadata', source))
    b.row('open and describe 20,000 leaves', 'pytreefs', 'Orbax metadata()', rate=50)


@bench
def python_import(b):
    """The time of `import pytreefs` beyond that of numpy."""
    b.contender('import', b.python('peers_python:import_over_numpy'))
    b.row('import pytreefs, over numpy', 'import', within=0.02)


@bench
def python_save(b):
    """1 GiB in 64 leaves from numpy, durable, zstd:1 and as without options, against Orbax."""
    target = b.scratch()
    for name, how in (('pytreefs.save', {'compression': 'zstd:1'}), ('default options', {})):
        b.contender(name, b.python('peers_python:save', target / 'ours', **how), after=lambda: shutil.rmtree(target / 'ours'))
    b.contender('Orbax save', b.python('peers_python:orbax_save', target / 'peer'),
                after=lambda: shutil.rmtree(target / 'peer'))
    b.row('pytreefs.save, zstd:1, durable', 'pytreefs.save', 'Orbax save', rate=1.4)
    b.row('pytreefs.save, default options, durable', 'default options', 'Orbax save', rate=2.0)
