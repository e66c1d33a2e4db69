# SPDX-License-Identifier: Apache-2.0
"""Contenders of rows_python.py: the package as it was built, TensorStore and Orbax."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time

from bench.peers import base, driver, _orbax, _spec, _tensorstore, prepared, sync_tree

PACKAGE = pathlib.Path(os.environ['PYTREEFS_BUILD']).resolve() / 'tools' / 'python'
sys.path.insert(0, str(PACKAGE))


def _ours():
    import pytreefs  # noqa: F401


@prepared(_ours)
def load(source, **how):
    import pytreefs
    return None if pytreefs.load(source, **how) else 1 / 0


def _touch(tensors):
    """A byte of each page: load_file gives a map of the file, which costs nothing before it is read."""
    import torch
    return sum(int(t.reshape(-1).view(torch.uint8)[::4096].sum()) for t in tensors)


@prepared(lambda: [_ours(), __import__('torch')])
def torch_load(source, **how):
    import pytreefs
    _touch(pytreefs.load_flat(source, framework='torch', **how).values())


@prepared(lambda: __import__('safetensors.torch'))
def torch_load_file(path, copied=False):
    """copied: into memory of its own, which does not change when the file does."""
    from safetensors.torch import load_file
    tensors = load_file(path).values()
    _touch([t.clone() for t in tensors] if copied else tensors)


def large_constant(target):
    """A step of 10 GiB in memory, and little on disk."""
    import numpy as np
    import pytreefs
    pytreefs.save(target, {f'w{i:02d}': np.broadcast_to(np.float32(i), 1 << 26) for i in range(40)})


LOADING = '''
import signal, sys, pytreefs
signal.signal(signal.SIGINT, signal.default_int_handler)
def progress(done, total):
    if done > total // 4:
        print("loading", flush=True)
try:
    pytreefs.load(sys.argv[1], progress=progress)
except KeyboardInterrupt:
    print("interrupted", flush=True)
'''


def interrupt(source):
    """From SIGINT in the middle of a load to the exception in Python."""
    env = dict(os.environ, PYTHONPATH=str(PACKAGE))
    with subprocess.Popen([sys.executable, '-c', LOADING, source], env=env, stdout=subprocess.PIPE, text=True) as p:
        if p.stdout.readline() != 'loading\n':
            raise RuntimeError('the load ended')
        begin = time.perf_counter()
        p.send_signal(signal.SIGINT)
        while (line := p.stdout.readline()) == 'loading\n':
            pass
        seconds = time.perf_counter() - begin
        if line != 'interrupted\n':
            raise RuntimeError(f'it said {line!r}')
    return seconds


@prepared(_ours)
def describe(source):
    import pytreefs
    with pytreefs.open(source) as ck:
        assert sum(leaf.size >= 0 for leaf in ck.leaves()) == 20000


def _index(r, shape):
    """Some 1/64 of the array."""
    out = []
    for n in shape:
        start = r.randrange(n - n // 8)
        out.append(slice(start, start + n // 8))
    return tuple(out)


def _index30(shape):
    r = random.Random(16)
    return [_index(r, shape) for _ in range(30)]


@prepared(_ours)
def boxes(source):
    import pytreefs
    with pytreefs.open(source) as ck:
        leaf = ck['w']
        for index in _index30(leaf.shape):
            leaf[index]


@prepared(_ours)
def boxes_at_once(source):
    """The shape is read by a call of its own, as a program that does not know it does."""
    import pytreefs
    with pytreefs.open(source) as ck:
        indices = _index30(ck['w'].shape)
        ck.load(only={'w': indices})


@prepared(_tensorstore)
def tensorstore_boxes(source):
    import tensorstore as ts
    context = ts.Context({'cache_pool': {'total_bytes_limit': 256 << 20}})
    t = ts.open(_spec(source, 'w'), open=True, context=context).result()
    for index in _index30(t.shape):
        t[index].read().result()


@prepared(_tensorstore)
def tensorstore_tree(source):
    """Every array of the database, all at once."""
    import tensorstore as ts
    kv = ts.KvStore.open({'driver': 'ocdbt', 'base': base(source)}).result()
    metadata = b'zarr.json' if driver(source) == 'zarr3' else b'.zarray'
    names = sorted({k.decode().rpartition('/')[0] for k in kv.list().result() if k.endswith(metadata)})
    context = ts.Context()
    opened = [ts.open(_spec(source, name), open=True, context=context) for name in names]
    reads = [t.result().read() for t in opened]
    assert [x.result() for x in reads]


def _process(text, *args):
    env = dict(os.environ, PYTHONPATH=str(PACKAGE))
    subprocess.run([sys.executable, '-c', text, *map(str, args)], env=env, check=True)


def process(source):
    _process('import sys, pytreefs\npytreefs.load(sys.argv[1], only="w0")', source)


def process_tensorstore(source):
    _process('import sys, tensorstore as ts\nts.open({"driver": "zarr", "kvstore": {"driver": "ocdbt", "base": "file://" + '
             'sys.argv[1] + "/", "path": "w0/"}}, open=True).result().read().result()', source)


def import_over_numpy():
    """Of ten processes, the least."""
    text = 'import time, numpy\nbegin = time.perf_counter()\nimport pytreefs\nprint(time.perf_counter() - begin)'
    env = dict(os.environ, PYTHONPATH=str(PACKAGE))
    env.pop('PYTHONDONTWRITEBYTECODE', None)
    return min(float(subprocess.run([sys.executable, '-c', text], env=env, check=True, capture_output=True).stdout)
               for _ in range(10))


_HELD, _DEVICE = {}, {}


def _tree():
    if not _HELD:
        from lib import gen_bench
        _HELD.update(gen_bench.rows(gen_bench.weights()))
    return _HELD


@prepared(_ours)
def save(target, **how):
    import pytreefs
    tree = _tree()
    begin = time.perf_counter()
    pytreefs.save(target, tree, **how)
    return time.perf_counter() - begin


@prepared(_orbax)
def orbax_save(target):
    """From jax.Array leaves, which is what it saves; then what it does not do itself: every file synced."""
    import jax
    import orbax.checkpoint as ocp
    if 'jax' not in _DEVICE:
        _DEVICE['jax'] = jax.block_until_ready(jax.tree.map(jax.device_put, _tree()))
    tree = _DEVICE['jax']
    begin = time.perf_counter()
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=True, use_zarr3=False)) as c:
        c.save(target, args=ocp.args.PyTreeSave(tree))
    sync_tree(target)
    return time.perf_counter() - begin
