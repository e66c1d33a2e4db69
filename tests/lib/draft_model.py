# SPDX-License-Identifier: Apache-2.0
"""Random calls on the files of a draft, and the same calls on ordinary files.

After each step names, sizes and all bytes of both are compared. At the end the files that are not leaves are removed, the draft is
committed, and its arrays are compared. Commits on the way are refused, and must change nothing.
"""

import errno
import json
import os
import pathlib
import random
import shutil
import struct

import numpy as np

from lib import writing

NAMES = [f'default/d{i % 3}/w{i}.npy' for i in range(6)]
# Two parts of an array of 6 rows; a step holds them as one leaf.
PARTS = {f'default/d2/p[{a}:{b},0:700]@6x700.npy': (b - a, 700) for a, b in ((0, 2), (2, 6))}
ALSO = ['default/d0/temporary', 'default/d1/.w1.npy.Xy12']
TENSORS = 'more.safetensors'        # becomes an item of its own
TYPES = ['<f4', '<f8', '|u1', '<i2', '>i4', '<V2', '<c8']
SOURCES = ['a.npy', 'b.npy', 'c.npy']       # leaves of a committed step


def commit_sources(mnt, ordinary, seed):
    """Commit step 1 of the mount, copy its leaves to ordinary files, and return both directories."""
    rng = np.random.default_rng(seed)
    arrays = {'a.npy': rng.standard_normal((300, 170)).astype(np.float32), 'b.npy': rng.integers(0, 99, 50_001).astype(np.int8),
              'c.npy': np.zeros((0, 3))}
    (mnt / '1.tmp/default').mkdir(parents=True)
    ordinary.mkdir(parents=True)
    for name, array in arrays.items():
        np.save(mnt / '1.tmp/default' / name, array)
    (mnt / '1.tmp').rename(mnt / '1')
    for name in arrays:
        shutil.copyfile(mnt / '1/default' / name, ordinary / name)
    return [mnt / '1/default', ordinary]


def run_history(mnt, ordinary, seed, calls):
    """Make a draft, change it in so many steps, commit it, and compare its leaves. ordinary: a directory for the ordinary files."""
    sources = commit_sources(mnt, ordinary / 'sources', seed)
    model = Model(mnt / '7.tmp', ordinary / 'files', sources, seed)
    for _ in range(calls):
        model.step()
        model.compare()
    leaves = model.mend()
    model.compare()
    if not leaves:
        np.save(mnt / '7.tmp/default/d0/last.npy', np.arange(3))
        leaves['default/d0/last.npy'] = np.arange(3)
    (mnt / '7.tmp').rename(mnt / '7')
    for name, want in leaves.items():
        got = np.load(mnt / '7' / name)
        got = got.view(want.dtype) if got.dtype.kind == 'V' else got
        assert (got.shape, got.dtype) == (want.shape, want.dtype), (seed, name, got.dtype, want.dtype)
        assert got.tobytes() == np.ascontiguousarray(want).tobytes(), (seed, name)


class Model:
    def __init__(self, draft, ordinary, sources, seed, largest=600_000):
        self.roots = [pathlib.Path(draft), pathlib.Path(ordinary)]
        self.sources = {root: pathlib.Path(source) for root, source in zip(self.roots, sources)}
        self.rng = random.Random(seed)
        self.np = np.random.default_rng(seed)
        self.largest = largest
        self.log = []
        for root in self.roots:
            for n in range(3):
                (root / f'default/d{n}').mkdir(parents=True)

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
        return sorted(str(p.relative_to(self.roots[1])) for p in self.roots[1].glob('default/*/*'))

    def all_names(self):
        return sorted({*NAMES, *PARTS, *ALSO, *self.existing()})

    def array(self):
        dtype = np.dtype(self.rng.choice(TYPES))
        # Long axes have many divisors. chunk_byte_size= can only split an axis of prime length into single positions: each compare()
        # would then read a file per element.
        n = int(self.rng.choice([0, 1, 50, 1000, 20_160, self.rng.randrange(self.largest) // dtype.itemsize // 840 * 840]))
        shape = self.rng.choice([(n,), (max(n // 7, 1), 7), (2, 3, n // 6)])
        raw = self.np.integers(0, 256, int(np.prod(shape)) * dtype.itemsize, np.uint8)
        order = self.rng.choice('CCCF')
        return np.asarray(raw.view(dtype).reshape(shape), order=order)

    def npy(self):
        return writing.npy(self.array())

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
        self.write_pieces(name, data, max(len(data) // self.rng.randrange(1, 9), 1), is_shuffled=True)

    def write_pieces(self, name, data, step, is_shuffled):
        pieces = list(range(0, len(data), step))
        if is_shuffled:
            self.rng.shuffle(pieces)

        def do(root):
            with open(root / name, 'wb', buffering=0) as f:
                for at in pieces:
                    os.pwrite(f.fileno(), data[at:at + step], at)
        self.both(f'write {name}{" out of order" if is_shuffled else ""}: {len(data)} bytes in {len(pieces)}', do)

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
        """Read a file that is still being written, and rename it before the rest is written."""
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

    def write_part(self):
        """Write a part of the right shape, so that some drafts commit an array in parts."""
        name = self.rng.choice(list(PARTS))
        rows, columns = PARTS[name]
        data = writing.npy(self.np.standard_normal((rows, columns)).astype(self.rng.choice(['<f4', '<f4', '<f8'])))
        self.both(f'write {name}: {len(data)} bytes', lambda root: (root / name).write_bytes(data))

    def write_tensors(self):
        """Write a safetensors file in order or out of order, over the one that may exist."""
        n = self.rng.choice([0, 3, 40_000])
        data = safetensors_of({'a': self.np.standard_normal((2, n)).astype('<f4'), 'b.c': self.np.integers(-9, 9, 5)})
        step = self.rng.choice([len(data), 4096, 30_000])
        self.write_pieces(TENSORS, data, step, is_shuffled=self.rng.random() < 0.3)

    def change_tensors(self):
        def do(root):
            with open(root / TENSORS, 'r+b', buffering=0) as f:
                size = os.fstat(f.fileno()).st_size
                return os.pwrite(f.fileno(), b'changed', size * 3 // 4)
        self.both(f'change {TENSORS}', do)

    def truncate_while_open(self):
        """Truncate a file by another open(), while a writer has it open and then continues at its old offset."""
        name, data = self.rng.choice(self.all_names()), self.npy()
        cut = self.rng.randrange(len(data) + 1)

        def do(root):
            out = []
            with open(root / name, 'wb', buffering=0) as f:
                f.write(data[:cut])
                os.close(os.open(root / name, self.rng_flags | os.O_TRUNC))
                out.append(os.fstat(f.fileno()).st_size)
                f.write(data[cut:])
                out.append((root / name).stat().st_size)
                os.ftruncate(f.fileno(), cut)
                out.append((root / name).read_bytes())
            return out
        self.rng_flags = self.rng.choice([os.O_WRONLY, os.O_RDWR, os.O_RDONLY])
        self.both(f'write {name} up to {cut} of {len(data)}, truncate it by another open, write the rest', do)

    def two_writers(self):
        """Write a file through two descriptors in turn."""
        name, data = self.rng.choice(self.all_names()), self.npy()
        step = self.rng.choice([100, 5000, 65536])

        def do(root):
            fds = [os.open(root / name, os.O_RDWR | os.O_CREAT, 0o666) for _ in range(2)]
            try:
                for i, at in enumerate(range(0, len(data), step)):
                    os.pwrite(fds[i % 2], data[at:at + step], at)
                return [os.pread(fd, 3000, len(data) // 2) for fd in fds]
            finally:
                for fd in fds:
                    os.close(fd)
        self.both(f'write {name} by two, {len(data)} bytes by {step}', do)

    def reader_of_what_goes(self):
        """Remove or replace a file that is open for reading: the descriptor still reads the old contents."""
        if not self.existing():
            return
        name, other = self.rng.choice(self.existing()), self.rng.choice(self.existing())
        how = self.rng.choice(['remove', 'replace'])

        def do(root):
            fd = os.open(root / name, os.O_RDONLY)
            try:
                first = os.pread(fd, 50, 0)
                if how == 'remove':
                    os.unlink(root / name)
                else:
                    os.rename(root / other, root / name)
                return first, os.pread(fd, 1 << 20, 0), os.fstat(fd).st_size
            finally:
                os.close(fd)
        self.both(f'read {name} and {how} it' + (f' by {other}' if how == 'replace' else ''), do)

    def allocate(self):
        """posix_fallocate(), which writes zeros where a file system cannot reserve space."""
        if not self.existing():
            return
        name = self.rng.choice(self.existing())
        size = (self.roots[1] / name).stat().st_size
        at, n = self.rng.randrange(size + 3000), self.rng.choice([1, 5000, 70_000])

        def do(root):
            fd = os.open(root / name, os.O_RDWR)
            try:
                os.posix_fallocate(fd, at, n)
                return os.fstat(fd).st_size
            finally:
                os.close(fd)
        self.both(f'allocate {name}: {n} at {at}', do)

    def copy_range(self):
        """copy_file_range() of a committed leaf: all of it, as cp does, or a part into the middle of a file."""
        source, name = self.rng.choice(SOURCES), self.rng.choice(self.all_names())
        size = (self.sources[self.roots[1]] / source).stat().st_size
        whole = self.rng.random() < 0.6
        at, to = (0, 0) if whole else (self.rng.randrange(size), self.rng.randrange(5000))
        n = size - at if whole else self.rng.randrange(size - at) + 1

        def do(root):
            into = os.open(root / name, os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if whole else 0), 0o666)
            fd = os.open(self.sources[root] / source, os.O_RDONLY)
            try:
                done = 0
                while done < n and (got := os.copy_file_range(fd, into, n - done, at + done, to + done)):
                    done += got
                return done
            finally:
                os.close(fd)
                os.close(into)
        self.both(f'copy {n} of {source} at {at} to {name} at {to}', do)

    def directories(self):
        """Exchange two directories by renames, make and remove one, and make calls that fail: both give the same errors."""
        a, b = self.rng.sample(['default/d0', 'default/d1', 'default/d2'], 2)

        def do(root):
            out = []
            for call in (lambda: os.rename(root / a, root / 'default/other'), lambda: os.rename(root / b, root / a),
                         lambda: os.rename(root / 'default/other', root / b), lambda: os.mkdir(root / a),
                         lambda: os.mkdir(root / 'default/new'), lambda: os.rmdir(root / 'default/new'),
                         lambda: os.rmdir(root / 'default'), lambda: os.rename(root / a, root / a / 'in')):
                try:
                    out.append(call())
                except OSError as e:
                    out.append(e.errno)
            return out
        self.both(f'{a} and {b} change places', do)

    def times(self):
        if not self.existing():
            return
        name, t = self.rng.choice(self.existing()), self.rng.randrange(10 ** 18)

        def do(root):
            os.utime(root / name, ns=(t, t))
            return (root / name).stat().st_mtime_ns
        self.both(f'times of {name}', do)

    def attributes(self):
        """Change how a leaf, or all leaves of a directory, are saved: leaves that are encoded already are encoded again."""
        where = self.rng.choice([*self.existing(), 'default', 'default/d1'])
        name, value = self.rng.choice([('compression', b'none'), ('compression', b'zstd:1'), ('compression', b'blosc:lz4:3:byte'),
                                       ('chunk_byte_size', b'20000'), ('crc32c', b'on')])
        attribute = f'user.pytree.save.{name}'
        self.log.append(f'{attribute}={value} of {where}')
        path = self.roots[0] / where
        os.setxattr(path, attribute, value)
        assert os.getxattr(path, attribute).strip(b'"') == value and attribute in os.listxattr(path)
        if self.rng.random() < 0.3:
            os.removexattr(path, attribute)
            assert attribute not in os.listxattr(path)

    def refused_commit(self):
        """Commits that fail: of a file that is not a leaf or is open for writing, and to names that are taken or not steps."""
        draft = self.roots[0]
        broken = draft / 'default/d0/broken.npy'
        self.log.append('commits that are refused')
        broken.write_bytes(b'\x93NUMPY\x01\x00' + self.np.bytes(self.rng.choice([1, 300])))
        for to, why in (('7', errno.ECANCELED), ('1', errno.EEXIST), ('no step', errno.EPERM)):
            self.fails(lambda to=to: os.rename(draft, draft.with_name(to)), why)
        with open(broken, 'r+b'):
            self.fails(lambda: os.rename(draft, draft.with_name('7')), errno.EBUSY)
        broken.unlink()

    def fails(self, call, why):
        try:
            call()
        except OSError as e:
            assert e.errno == why, f'{e}, not {errno.errorcode[why]}\n' + self.history()
        else:
            raise AssertionError(f'succeeded, not {errno.errorcode[why]}\n' + self.history())

    STEPS = ([write_whole] * 5 + [write_without_truncation] + [out_of_order] * 2 + [overwrite] * 4 + [append] * 2 +
             [truncate] * 3 + [rename] * 2 + [unlink, mapped, half_written, half_written, preads, preads, sync] +
             [write_part] * 2 + [write_tensors, change_tensors, truncate_while_open, two_writers, reader_of_what_goes, allocate] +
             [copy_range] * 2 + [directories, times, attributes, refused_commit])

    def step(self):
        self.rng.choice(self.STEPS)(self)

    def compare(self):
        """Names, sizes and all bytes."""
        def do(root):
            out = {}
            files = [p for d in (root / 'default').iterdir() if d.is_dir() for p in d.iterdir()]
            for p in sorted([*files, *root.glob(TENSORS)]):
                data = p.read_bytes()
                out[str(p.relative_to(root))] = (p.stat().st_size, hash(data), len(data))
            return out
        self.both('compare', do)

    # ---- the end ----

    def mend(self):
        """Remove the files that are not leaves; return the others as {name in the step: array}."""
        out = {}
        for name in self.existing():
            array = self.array_in(self.roots[1] / name)
            if array is not None or '@' in name:
                out[name] = array
            else:
                self.take_away(name)
        for directory in ('default/d0', 'default/d1', 'default/d2'):
            names = [f'{directory}/{pathlib.Path(n).name}' for n in PARTS]
            parts = [out.pop(n, None) for n in names]
            if all(a is not None and a.shape == shape for a, shape in zip(parts, PARTS.values())) and len({a.dtype for a in parts}) == 1:
                out[f'{directory}/p.npy'] = np.concatenate(parts)
            else:
                for name in set(names) & set(self.existing()):
                    self.take_away(name)
        if (self.roots[1] / TENSORS).exists():
            arrays = tensors_in((self.roots[1] / TENSORS).read_bytes())
            if arrays is None:
                self.take_away(TENSORS)
            else:
                out |= {f'more/{key.replace(".", "/")}.npy': array for key, array in arrays.items()}
        return out

    def take_away(self, name):
        self.both(f'take away {name}', lambda root: os.unlink(root / name))

    def array_in(self, path):
        """The array of a leaf of that name; None when the file is not a leaf."""
        try:
            if path.suffix != '.npy' or path.name.startswith('.'):
                return None
            array = np.load(path)
            return native(array) if array.dtype.kind in 'biufcV' and self.is_whole(path, array) else None
        except Exception:       # numpy raises many types
            return None

    @staticmethod
    def is_whole(path, array):
        """np.load ignores bytes after the array; a commit refuses them."""
        head = path.read_bytes()[:12]
        data = 10 + int.from_bytes(head[8:10], 'little') if head[6] == 1 else 12 + int.from_bytes(head[8:12], 'little')
        return data + array.nbytes == path.stat().st_size


def native(array):
    import ml_dtypes
    if array.dtype == np.dtype('V2'):
        return array.view(ml_dtypes.bfloat16)
    return array.astype(array.dtype.newbyteorder('='))


NAMES_OF_TYPES = {'F32': '<f4', 'I64': '<i8'}


def safetensors_of(arrays):
    head, data = {}, b''
    for key, a in arrays.items():
        name, = (n for n, t in NAMES_OF_TYPES.items() if np.dtype(t) == a.dtype)
        head[key] = {'dtype': name, 'shape': a.shape, 'data_offsets': [len(data), len(data) + a.nbytes]}
        data += a.tobytes()
    text = json.dumps(head).encode()
    return struct.pack('<Q', len(text)) + text + data


def tensors_in(data):
    """The arrays of a safetensors file; None when it is not one, or is truncated. No step writes a header that is wrong otherwise."""
    try:
        n, = struct.unpack_from('<Q', data)
        head = json.loads(data[8:8 + n])
        if 8 + n + max(t['data_offsets'][1] for t in head.values()) != len(data):
            return None
        return {key: np.frombuffer(data[8 + n:][slice(*t['data_offsets'])], NAMES_OF_TYPES[t['dtype']]).reshape(t['shape'])
                for key, t in head.items()}
    except (ValueError, struct.error):
        return None
