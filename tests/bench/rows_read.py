# SPDX-License-Identifier: Apache-2.0
"""Reading leaves through a mount. Sources are in the page cache: we measure the program, not the disk."""

import contextlib
import subprocess

from bench.bench import bench
from bench.measure import command
from bench.worker import Worker

GIB_LEAF = 'w.npy'


def cold(b, case, *options):
    """A mount of a checkpoint, a case or a path, whose own files are in memory."""
    source = b.case(case)
    b.warm(source)
    return b.mount(source, *options)


def dd(path):
    return ['dd', f'if={path}', 'of=/dev/null', 'bs=1M', 'status=none']


def fresh_contender(b, name, m, run):
    b.contender(name, run, before=m.fresh, memory=m.memory)


@bench
def raw(b):
    """1 GiB, one uncompressed chunk; against the same file on tmpfs. A fresh mount before each run."""
    m = cold(b, 'bench-one-raw')
    direct = cold(b, 'bench-one-raw', 'direct_io')
    same = b.tmpfs(m / GIB_LEAF)
    b.contender('tmpfs dd', dd(same))
    fresh_contender(b, 'dd', m, dd(m / GIB_LEAF))
    fresh_contender(b, 'dd direct_io', direct, dd(direct / GIB_LEAF))
    b.contender('tmpfs mmap', b.peer('sum', same))
    fresh_contender(b, 'mmap', m, b.peer('sum', m / GIB_LEAF))
    b.contender('tmpfs np.load', b.python('load', same))
    fresh_contender(b, 'np.load', m, b.python('load', m / GIB_LEAF))
    b.contender('tmpfs pread', b.peer('pread', same, '131072'))
    fresh_contender(b, 'pread', m, b.peer('pread', m / GIB_LEAF, '131072'))
    b.contender('tmpfs two readers', b.peer('pread', same, '1048576', '2'))
    fresh_contender(b, 'two readers', m, b.peer('pread', m / GIB_LEAF, '1048576', '2'))
    b.row('raw chunk, cold, dd bs=1M', 'dd', 'tmpfs dd', rate=0.28)
    b.row('raw chunk, cold, dd bs=1M, direct_io', 'dd direct_io', 'tmpfs dd', rate=0.5)
    b.row('raw chunk, cold, mmap', 'mmap', 'tmpfs mmap', rate=0.25)
    b.row('raw chunk, cold, np.load', 'np.load', 'tmpfs np.load')
    b.row('raw chunk, cold, pread 128 KiB', 'pread', 'tmpfs pread')
    b.row('raw chunk, cold, two readers', 'two readers', 'tmpfs two readers')


def second(b, path, run):
    """The seconds of a run right after everything below path was read: some machines take idle pages back within seconds."""
    def timed():
        b.warm(path)
        return run() if callable(run) else command(run, b.build)[0]
    return timed


@bench
def again(b):
    """Second reads from one mount, with the options that it has by default, against the same files on tmpfs, which were read once, too: a tree of 64
    leaves, and one leaf of 1 GiB, in zstd and uncompressed."""
    def both(name, m, same, run, **target):
        for who, at in (('tmpfs ' + name, same), (name, m.path)):
            b.contender(who, second(b, at, run(at)), memory=m.memory if at == m.path else None)
        b.row(name, name, 'tmpfs ' + name, **target)

    tree = cold(b, 'bench-leaves-zstd')
    same = b.tmpfs(tree.path)
    both('zstd tree again, np.load in a loop', tree, same, lambda at: b.python('load_tree', at), rate=0.75)
    both('zstd tree again, np.load by 4 threads', tree, same, lambda at: b.python('load_in_threads', at, 4), rate=0.75)
    for kind in ('zstd', 'raw'):
        m = cold(b, f'bench-one-{kind}')
        leaf = b.tmpfs(m / GIB_LEAF).parent
        both(f'{kind} leaf again, dd bs=1M', m, leaf, lambda at: dd(at / GIB_LEAF), rate=0.85)
        both(f'{kind} leaf again, mmap', m, leaf, lambda at: b.peer('sum', at / GIB_LEAF), rate=0.9)
        both(f'{kind} leaf again, random 4 KiB, p50', m, leaf, lambda at: b.peer('random', at / GIB_LEAF, '10000'),
             latency=1.2 if kind == 'zstd' else 2)


@bench
def random_4k(b):
    """10,000 reads of 4 KiB at random places of an uncompressed leaf, the median of each run; fresh mount."""
    m = cold(b, 'bench-one-raw')
    same = b.tmpfs(m / GIB_LEAF)
    b.contender('tmpfs', b.peer('random', same, '10000'))
    fresh_contender(b, 'random', m, b.peer('random', m / GIB_LEAF, '10000'))
    b.row('raw chunk, random 4 KiB, p50', 'random', 'tmpfs', latency=18)


@bench
def random_decoded(b):
    """10,000 reads of 4 KiB at random places of 1 GiB in one zstd frame whose pieces are decoded already, against those of an uncompressed
    leaf. Requests go to the daemon (direct_io)."""
    for name, case in (('raw', 'bench-one-raw'), ('decoded', 'bench-one-zstd')):
        m = cold(b, case, 'direct_io', 'cache=4G')
        b.warm(m.path)
        b.contender(name, b.peer('random', m / GIB_LEAF, '10000'), memory=m.memory)
    b.row('decoded pieces, random 4 KiB, p50', 'decoded', 'raw', latency=1.3)


def decode(b, case, leaf, targets, path, text):
    """A compressed checkpoint against a bare decoder of its frames, TensorStore and others."""
    m = cold(b, case)
    direct = cold(b, case, 'direct_io')
    frames = b.frames(m.source, leaf)
    b.contender('zstd', b.peer('decode', frames), before=lambda: b.warm(frames))
    fresh_contender(b, 'dd', m, path(m))
    fresh_contender(b, 'dd direct_io', direct, path(direct))
    b.row(f'{text}, dd', 'dd', 'zstd', rate=targets[0])
    b.row(f'{text}, dd, direct_io', 'dd direct_io', 'zstd', rate=targets[1])
    return m, direct


def np_load(b, m, direct, text):
    """Into memory, where each page of the kernel's cache is one more that the machine has to find."""
    fresh_contender(b, 'np.load', m, b.python('load', m / GIB_LEAF))
    fresh_contender(b, 'np.load direct_io', direct, b.python('load', direct / GIB_LEAF))
    b.contender('TensorStore', b.python('tensorstore_read', m.source))
    b.row(f'{text}, np.load', 'np.load', 'TensorStore', rate=1.3)
    b.row(f'{text}, np.load, direct_io', 'np.load direct_io', 'TensorStore')


@bench
def one_chunk(b):
    """1 GiB in one zstd frame, as Orbax stores a leaf by default; against one thread that only decodes it."""
    m, direct = decode(b, 'bench-one-zstd', 'w', (0.75, None), lambda m: dd(m / GIB_LEAF), 'one zstd chunk')
    np_load(b, m, direct, 'one zstd chunk')


@bench
def many_chunks(b):
    """1 GiB in zstd frames of 4 MiB."""
    m, direct = decode(b, 'bench-many-zstd', 'w', (1.0, 1.2), lambda m: dd(m / GIB_LEAF), 'many zstd chunks')
    np_load(b, m, direct, 'many zstd chunks')


@bench
def many_leaves(b):
    """1 GiB in 64 leaves of one zstd frame; whole tree against Orbax and safetensors."""
    m, direct = decode(b, 'bench-leaves-zstd', '', (1.0, 1.2), lambda m: ['sh', '-c', f'cat {m.path}/*/w.npy >/dev/null'],
                       'many zstd leaves')
    fresh_contender(b, 'np.load', m, b.python('load_tree', m.path))
    fresh_contender(b, 'np.load direct_io', direct, b.python('load_tree', direct.path))
    b.contender('Orbax restore', b.python('orbax_restore', m.source))
    b.contender('safetensors', b.python('safetensors_load', safetensors_of(b, m)))
    b.row('whole tree, np.load of each leaf', 'np.load', 'Orbax restore', rate=2)
    b.row('whole tree, np.load of each leaf, direct_io', 'np.load direct_io', 'Orbax restore')
    b.row('whole tree, np.load of each leaf', 'np.load', 'safetensors')


@bench
def one_blosc_chunk(b):
    """1 GiB in one blosc chunk, its blocks decoded side by side; against one thread that only decodes it."""
    out = b.scratch()
    subprocess.run([b.program, 'convert', '-o', 'compression=blosc,chunk_byte_size=1G,write_budget=4G', b.case('bench-one-raw'),
                    out / 'blosc'], check=True)
    b.warm(out / 'blosc')
    m = b.mount(out / 'blosc')
    b.contender('blosc', b.python('blosc_decode', b.frames(out / 'blosc')))
    fresh_contender(b, 'dd', m, dd(m / GIB_LEAF))
    b.row('one blosc chunk, dd', 'dd', 'blosc', rate=1.3)


def size_of(path):
    return sum(p.stat().st_size for p in path.rglob('*') if p.is_file())


@bench
def auto_tree(b):
    """480 MiB of bfloat16 weights in 40 leaves, saved with compression=auto and with zstd, read by np.load in a loop. The former takes
    at most 0.90 of the bytes."""
    arrays, out = b.scratch(memory=True), b.scratch()
    with contextlib.closing(Worker()) as w:
        w.call('bfloat16_leaves', arrays)
    mounts = {}
    for how in ('zstd', 'auto'):
        subprocess.run([b.program, 'save', '-o', f'compression={how}', arrays, out / how / '1'], check=True)
        b.warm(out / how)
        mounts[how] = m = b.mount(out / how)
        fresh_contender(b, how, m, b.python('load_tree', m / '1/default'))
    ratio = size_of(out / 'auto') / size_of(out / 'zstd')
    if ratio > 0.9:
        raise RuntimeError(f'compression=auto takes {ratio:.3f} of the bytes of zstd')
    b.row('tree of bfloat16, compression=auto, np.load of each leaf', 'auto', 'zstd', rate=1.3)


def arrays_of(m, first=None):
    """The names of a checkpoint's first arrays, as they are stored."""
    leaves = sorted(m.path.rglob('*.npy'))[:first]
    return ['.'.join(p.relative_to(m.path).with_suffix('').parts) for p in leaves]


def loop_and_peers(b, m, text):
    """Every leaf of a mount by np.load in a loop, against TensorStore and Orbax."""
    fresh_contender(b, 'loop', m, b.python('load_tree', m.path))
    b.contender('TensorStore', b.python('tensorstore_tree', m.source, arrays_of(m)))
    b.contender('Orbax restore', b.python('orbax_restore', m.source))
    b.row(f'{text}, np.load in a loop', 'loop', 'TensorStore', rate=1.25)
    b.row(f'{text}, np.load in a loop', 'loop', 'Orbax restore', rate=1.35)


@bench
def whole_tree(b):
    """The same 64 leaves, into numpy: in a loop, by 4 threads and through safetensors, with the options that a mount
    has by default."""
    m = cold(b, 'bench-leaves-zstd')
    loop_and_peers(b, m, 'whole zstd tree')
    fresh_contender(b, '4 threads', m, b.python('load_in_threads', m.path, 4))
    fresh_contender(b, 'load_file', m, b.python('safetensors_load', m / '.safetensors'))
    b.row('whole zstd tree, np.load by 4 threads', '4 threads', 'TensorStore', rate=1.4)
    for option in ('passthrough=off', 'cache=64M', 'direct_io=on'):
        other = cold(b, 'bench-leaves-zstd', option)
        fresh_contender(b, option, other, b.python('load_tree', other.path))
        b.row(f'the same in a loop, {option}', option, 'TensorStore')
    b.row('whole zstd tree, load_file of D.safetensors', 'load_file', 'TensorStore', rate=1.1)


@bench
def large_leaves(b):
    """1 GiB in 16 leaves of one zstd frame, into numpy, with the options that a mount has by default, and without files in memory."""
    for option in ('passthrough=on', 'passthrough=off'):
        m = cold(b, 'bench-large-leaves-zstd', option)
        fresh_contender(b, f'loop, {option}', m, b.python('load_tree', m.path))
        fresh_contender(b, f'4 threads, {option}', m, b.python('load_in_threads', m.path, 4))
    b.contender('TensorStore', b.python('tensorstore_tree', m.source, arrays_of(m)))
    for how in ('loop', '4 threads'):
        b.row(f'zstd leaves of 64 MiB, np.load, {how}', f'{how}, passthrough=on', 'TensorStore', rate=1)
        b.row(f'the same, of passthrough=off, {how}', f'{how}, passthrough=on', f'{how}, passthrough=off')


@bench
def raw_tree(b):
    """The same tree without compression."""
    m = cold(b, b.converted('bench-leaves-zstd', 'compression=none'))
    fresh_contender(b, 'loop', m, b.python('load_tree', m.path))
    fresh_contender(b, '4 threads', m, b.python('load_in_threads', m.path, 4))
    b.contender('TensorStore', b.python('tensorstore_tree', m.source, arrays_of(m)))
    b.row('whole raw tree, np.load in a loop', 'loop', 'TensorStore', rate=1.5)
    b.row('whole raw tree, np.load by 4 threads', '4 threads', 'TensorStore', rate=2)


@bench
def zarr3_tree(b):
    """The same tree as zarr v3, in zstd frames of the level that Orbax has for it."""
    loop_and_peers(b, cold(b, b.converted('bench-leaves-zstd', 'zarr=3')), 'whole zarr v3 tree')


@bench
def boxes(b):
    """30 random boxes of 256 x 256 of a leaf in zstd frames of 64 MiB, as views by np.load; TensorStore with a cache pool of 256 MiB."""
    m = cold(b, b.converted('bench-one-raw', 'compression=zstd:1,chunk_byte_size=64M'))
    fresh_contender(b, 'np.load', m, b.python('boxes', m / 'w'))
    b.contender('TensorStore', b.python('tensorstore_boxes', m.source))
    b.row('30 random boxes of 256 x 256, chunks of 64 MiB', 'np.load', 'TensorStore', rate=2)


@bench
def eight_processes(b):
    """8 processes load the same 28 leaves (448 MiB) at the same time; against 8 TensorStores, and plain files on
    the disk's file system."""
    first = 28
    m = cold(b, 'bench-leaves-zstd')
    direct = cold(b, 'bench-leaves-zstd', 'direct_io')
    plain = b.scratch()
    with contextlib.closing(Worker()) as w:
        w.call('plain_write', m.path, plain, first)
    fresh_contender(b, 'mount', m, b.python('together', 8, 'load_first', m.path, first))
    fresh_contender(b, 'mount direct_io', direct, b.python('together', 8, 'load_first', direct.path, first))
    b.contender('TensorStore', b.python('together', 8, 'tensorstore_tree', m.source, arrays_of(m, first)))
    b.contender('plain', b.python('together', 8, 'load_first', plain, first), before=lambda: b.warm(plain))
    b.row('8 processes load one tree', 'mount', 'TensorStore', rate=2)
    b.row('8 processes load one tree', 'mount', 'plain', rate=0.9)
    b.row('8 processes load one tree, direct_io', 'mount direct_io', 'TensorStore')
    b.row('8 processes load one tree, direct_io', 'mount direct_io', 'plain')


def safetensors_of(b, m):
    """The same tensors as a safetensors file in memory."""
    target = b.scratch(memory=True) / 'all.safetensors'
    # In another process: ours hands its peak of memory on to every command that it starts.
    with contextlib.closing(Worker()) as w:
        w.call('safetensors_write', m.path, target)
    return target
