# SPDX-License-Identifier: Apache-2.0
"""Programs that write a tree of leaves into a draft, each in its own way.

Every function takes the expect.Tree and the directory of the item in a draft that exists; what is
written is the same, how the bytes come is what differs.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile

import numpy as np
import safetensors.numpy

from lib import expect, writing


def command(*words, **how):
    r = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=120, **how)
    assert r.returncode == 0, f'{words}: status {r.returncode}\n{r.stderr[:2000]}'
    return r.stdout


class Ordinary:
    """The tree as files of an ordinary directory; .xattrs: it could keep them."""

    def __init__(self, tree):
        self.tree = tree

    def __enter__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix='ordinary-', dir=os.environ.get('TMPDIR')))
        try:
            writing.save(self.path, self.tree)
            self.xattrs = True
        except OSError:
            shutil.rmtree(self.path)
            self.path.mkdir()
            writing.save(self.path, self.tree, xattrs=False)
            self.xattrs = False
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path)


def np_save(tree, item):
    """np.save, and write(2) for the rest."""
    def put(path, data):
        if path.suffix == '.npy':
            np.save(path, values[path])
        else:
            writing.put_bytes(path, data)
    values = {where: v.data if isinstance(v, expect.Key) else v for where, _, v in writing.files(item, tree)}
    writing.save(item, tree, put)


def open_memmap(tree, item):
    """A mapped .npy file that is assigned to."""
    def put(path, data):
        value = values[path]
        if not isinstance(value, np.ndarray) or value.dtype.kind == 'V' or not value.size:
            return writing.put_bytes(path, data)
        mapped = np.lib.format.open_memmap(path, 'w+', value.dtype, value.shape)
        mapped[...] = value
        mapped.flush()
        del mapped
    values = {where: v for where, _, v in writing.files(item, tree)}
    writing.save(item, tree, put)


def cp_r(tree, item):
    """cp -r, which carries no xattrs: they are set afterwards."""
    with Ordinary(tree) as files:
        command('cp', '-r', f'{files.path}/.', item)
    writing.all_xattrs(item, tree)


def cp_a(tree, item):
    """cp -a: owners, times, xattrs."""
    with Ordinary(tree) as files:
        command('cp', '-a', f'{files.path}/.', item)
        if not files.xattrs:
            writing.all_xattrs(item, tree)


def rsync(tree, item):
    """rsync -a: a temporary name for each file, then a rename; a second run transfers nothing."""
    with Ordinary(tree) as files:
        words = ['rsync', '-aX' if files.xattrs else '-a', f'{files.path}/', f'{item}/']
        command(*words)
        again = command(*words, '--itemize-changes', '--checksum', '--omit-dir-times', '--no-times')
        assert not [line for line in again.splitlines() if line.startswith(('>', 'c'))], again
        if not files.xattrs:
            writing.all_xattrs(item, tree)


def rsync_in_place(tree, item):
    """rsync --inplace: no temporary names."""
    with Ordinary(tree) as files:
        command('rsync', '-a', '--inplace', f'{files.path}/', f'{item}/')
    writing.all_xattrs(item, tree)


def tar(tree, item):
    with Ordinary(tree) as files:
        how = ['--xattrs', '--xattrs-include=user.*'] if files.xattrs else []
        archive = f'{files.path}.tar'
        try:
            command('tar', *how, '-C', files.path, '-cf', archive, '.')
            command('tar', *how, '-C', item, '-xf', archive)
        finally:
            os.unlink(archive)
        if not files.xattrs:
            writing.all_xattrs(item, tree)


def dd(tree, item, block=777):
    """dd with a block size that fits nothing."""
    with Ordinary(tree) as files:
        def put(path, data):
            source = files.path / path.relative_to(item)
            command('dd', f'if={source}', f'of={path}', f'bs={block}', 'status=none')
        writing.save(item, tree, put)


def dd_backwards(tree, item, block=4099):
    """dd with a seek: the last block first."""
    with Ordinary(tree) as files:
        def put(path, data):
            source = files.path / path.relative_to(item)
            path.touch()
            for at in range((len(data) - 1) // block, -1, -1):
                command('dd', f'if={source}', f'of={path}', f'bs={block}', f'seek={at}', f'skip={at}', 'count=1',
                        'conv=notrunc', 'status=none')
        writing.save(item, tree, put)


PROGRAMS = {f.__name__.replace('_', '-'): f
            for f in (np_save, open_memmap, cp_r, cp_a, rsync, rsync_in_place, tar, dd, dd_backwards)}


def tensors(tree):
    """Return the part of a tree of dicts that a safetensors file can hold: {joined name: array}."""
    return {'.'.join(p): v for p, v in tree.leaves.items()}


def safetensors_file(tree, path, metadata=None):
    safetensors.numpy.save_file({k: np.ascontiguousarray(v) for k, v in tensors(tree).items()}, path, metadata)
