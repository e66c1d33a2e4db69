# SPDX-License-Identifier: Apache-2.0
"""Random histories of files in a draft, beside the same on an ordinary file system.

After every step everything reads alike: names, sizes, bytes at any place. What the files hold in the
end decides whether the draft commits; when it does, restored arrays are compared by the caller.
"""

import os
import pathlib
import random

import numpy as np

NAMES = [f'd{i % 3}/w{i}.npy' for i in range(6)]
TYPES = ['<f4', '<f8', '|u1', '<i2', '>i4', '<V2', '<c8']


class Model:
    def __init__(self, draft, ordinary, seed, largest=600_000):
        self.roots = [pathlib.Path(draft), pathlib.Path(ordinary)]
        self.rng = random.Random(seed)
        self.np = np.random.default_rng(seed)
        self.largest = largest
        self.log = []
        for root in self.roots:
            for n in range(3):
                (root / f'd{n}').mkdir(parents=True)

    # ---- what both do ----

    def both(self, what, do):
        """do(root) for each; the same result or the same errno."""
        self.log.append(what)
        out = []
        for root in self.roots:
            try:
                out.append(do(root))
            except OSError as e:
                out.append(('errno', e.errno))
        assert out[0] == out[1], f'{what}: {out[0]!r:.200} in the draft, {out[1]!r:.200} beside it\n' + self.history()
        return out[1]

    def history(self):
        return '\n'.join(self.log[-25:])

    def existing(self):
        return [n for n in self.all_names() if (self.roots[1] / n).exists()]

    def all_names(self):
        return NAMES + ['d0/temporary', 'd1/.w1.npy.Xy12']

    def array(self):
        dtype = np.dtype(self.rng.choice(TYPES))
        n = int(self.rng.choice([0, 1, 50, 1000, 20_000, self.rng.randrange(self.largest) // dtype.itemsize]))
        shape = self.rng.choice([(n,), (max(n // 7, 1), 7), (2, 3, n // 6 + 1)])
        raw = self.np.integers(0, 256, int(np.prod(shape)) * dtype.itemsize, np.uint8)
        order = self.rng.choice('CCCF')
        return np.asarray(raw.view(dtype).reshape(shape), order=order)

    def npy(self):
        import io
        out = io.BytesIO()
        np.lib.format.write_array(out, self.array(), allow_pickle=False)
        return out.getvalue()

    # ---- steps ----

    def write_whole(self):
        name, data = self.rng.choice(self.all_names()), self.npy()
        pieces = self.rng.choice([len(data) + 1, 65536, 4096, 777, 100_001])

        def do(root):
            with open(root / name, 'wb', buffering=0) as f:
                for at in range(0, len(data), pieces):
                    f.write(data[at:at + pieces])
        self.both(f'write {name}: {len(data)} bytes by {pieces}', do)

    def write_without_truncation(self):
        name, data = self.rng.choice(self.all_names()), self.npy()

        def do(root):
            fd = os.open(root / name, os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                os.write(fd, data[:200])
                os.write(fd, data[200:])
            finally:
                os.close(fd)
        self.both(f'write over {name}: {len(data)} bytes', do)

    def out_of_order(self):
        name, data = self.rng.choice(self.all_names()), self.npy()
        step = max(len(data) // self.rng.randrange(1, 9), 1)
        pieces = list(range(0, len(data), step))
        self.rng.shuffle(pieces)

        def do(root):
            with open(root / name, 'wb', buffering=0) as f:
                for at in pieces:
                    os.pwrite(f.fileno(), data[at:at + step], at)
        self.both(f'write {name} out of order: {len(data)} bytes in {len(pieces)}', do)

    def overwrite(self):
        if not self.existing():
            return
        name = self.rng.choice(self.existing())
        size = (self.roots[1] / name).stat().st_size
        at, data = self.rng.randrange(size + 5000), self.np.bytes(self.rng.choice([1, 100, 5000, 70_000]))
        how = self.rng.choice([os.O_WRONLY, os.O_RDWR])

        def do(root):
            fd = os.open(root / name, how)
            try:
                return os.pwrite(fd, data, at)
            finally:
                os.close(fd)
        self.both(f'pwrite {name}: {len(data)} at {at}', do)

    def append(self):
        if not self.existing():
            return
        name, data = self.rng.choice(self.existing()), self.np.bytes(self.rng.choice([1, 3000]))

        def do(root):
            with open(root / name, 'ab', buffering=0) as f:
                f.write(data)
        self.both(f'append to {name}: {len(data)}', do)

    def truncate(self):
        if not self.existing():
            return
        name = self.rng.choice(self.existing())
        size = (self.roots[1] / name).stat().st_size
        to = self.rng.choice([0, 1, 60, 128, size // 2, size, size + 1, size + 40_000])
        self.both(f'truncate {name}: {size} to {to}', lambda root: os.truncate(root / name, to))

    def rename(self):
        if not self.existing():
            return
        name, to = self.rng.choice(self.existing()), self.rng.choice(self.all_names())
        self.both(f'rename {name} to {to}', lambda root: os.rename(root / name, root / to))

    def unlink(self):
        name = self.rng.choice(self.all_names())
        self.both(f'unlink {name}', lambda root: os.unlink(root / name))

    def mapped(self):
        """Assign through a map of an existing file."""
        names = [n for n in self.existing() if (self.roots[1] / n).stat().st_size > 0]
        if not names:
            return
        name = self.rng.choice(names)
        size = (self.roots[1] / name).stat().st_size
        at = self.rng.randrange(size)
        data = self.np.integers(0, 256, min(self.rng.choice([1, 9000]), size - at), np.uint8)

        def do(root):
            m = np.memmap(root / name, np.uint8, 'r+')
            m[at:at + len(data)] = data
            m.flush()
            return m[at:at + len(data)].tobytes()
        self.both(f'map {name}: {len(data)} at {at}', do)

    def half_written(self):
        """Incomplete contents read back as well: before the file is closed, and while it is renamed."""
        name, to, data = self.rng.choice(self.all_names()), self.rng.choice(self.all_names()), self.npy()
        cut = self.rng.randrange(len(data) + 1)

        def do(root):
            out = []
            with open(root / name, 'wb', buffering=0) as f:
                f.write(data[:cut])
                out.append((root / name).read_bytes())
                out.append(os.fstat(f.fileno()).st_size)
                os.rename(root / name, root / to)
                f.write(data[cut:])
                out.append((root / to).stat().st_size)
            return out
        self.both(f'write {name} up to {cut} of {len(data)}, rename it to {to}, write the rest', do)

    def preads(self):
        if not self.existing():
            return
        name = self.rng.choice(self.existing())
        size = (self.roots[1] / name).stat().st_size
        wanted = [(self.rng.choice([1, 80, 4096, 100_000]), self.rng.randrange(size + 2)) for _ in range(8)]

        def do(root):
            fd = os.open(root / name, os.O_RDONLY)
            try:
                return [os.pread(fd, n, at) for n, at in wanted]
            finally:
                os.close(fd)
        self.both(f'pread {name}', do)

    def sync(self):
        if not self.existing():
            return
        name = self.rng.choice(self.existing())

        def do(root):
            fd = os.open(root / name, os.O_WRONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        self.both(f'fsync {name}', do)

    STEPS = ([write_whole] * 5 + [write_without_truncation] + [out_of_order] * 2 + [overwrite] * 4 + [append] * 2 +
             [truncate] * 3 + [rename] * 2 + [unlink, mapped, half_written, half_written, preads, preads, sync])

    def step(self):
        self.rng.choice(self.STEPS)(self)

    def compare(self):
        """Names, sizes and all bytes."""
        def do(root):
            out = {}
            for d in sorted(p for p in root.iterdir() if p.is_dir()):
                for p in sorted(d.iterdir()):
                    data = p.read_bytes()
                    out[f'{d.name}/{p.name}'] = (p.stat().st_size, hash(data), len(data))
            return out
        self.both('compare', do)

    # ---- the end ----

    def mend(self):
        """Files that are not arrays are taken away; what is left are the leaves: {key path: array}."""
        out = {}
        for name in self.existing():
            path = self.roots[1] / name
            try:
                if not name.endswith('.npy') or '/.' in name:
                    raise ValueError
                array = np.load(path)
                if array.dtype.kind not in 'biufcV' or not self.is_whole(path, array):
                    raise ValueError
            except Exception:       # numpy has many ways of saying that
                self.both(f'take away {name}', lambda root, name=name: os.unlink(root / name))
                continue
            directory, _, leaf = name.partition('/')
            out[directory, leaf.removesuffix('.npy')] = native(array)
        return out

    @staticmethod
    def is_whole(path, array):
        """np.load passes over bytes after the array; a commit does not."""
        head = path.read_bytes()[:12]
        data = 10 + int.from_bytes(head[8:10], 'little') if head[6] == 1 else 12 + int.from_bytes(head[8:12], 'little')
        return data + array.nbytes == path.stat().st_size


def native(array):
    import ml_dtypes
    if array.dtype == np.dtype('V2'):
        return array.view(ml_dtypes.bfloat16)
    return array.astype(array.dtype.newbyteorder('='))
