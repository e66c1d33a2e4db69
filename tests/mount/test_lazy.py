# SPDX-License-Identifier: Apache-2.0
"""Nothing is read that nobody asked for: big roots and wide trees are cheap to mount and to list."""

import errno
import json
import os
import shutil
import signal
import struct
import subprocess
import time

import google_crc32c
import numpy as np
import pytest
import safetensors

from lib import bigdata, compare

def test_a_thousand_steps_are_mounted_without_reading_one(mount, cases):
    case = cases('thousand-steps')
    m = mount(case.path)
    opened = m.stats()
    assert sorted(os.listdir(m.path)) == sorted(case.steps)
    assert os.readlink(m / 'latest') == case.notes['latest']
    assert total(m.stats(), 'read_bytes') - total(opened, 'read_bytes') < 100_000
    assert total(opened, 'read_bytes') < 1_000_000
    assert not compare.compare(m / '777/state', case.trees['777/state'])


@pytest.mark.parametrize('name', ['leaves-20000', 'leaves-20000-perleaf'])
def test_twenty_thousand_leaves_are_listed(mount, cases, name):
    case = cases(name)
    m = mount(case.path)
    n = 0
    for where, _, files in os.walk(m.path):
        for name in files:
            n += 1
            os.lstat(os.path.join(where, name))
    assert n == case.notes['layers'] * case.notes['leaves'] + 2       # and the two metadata files


def test_names_that_never_change_are_listed_again_without_a_request(mount, cases):
    """Two requests for each directory are left, one to open and one to close it. Programs that want attributes still get
    them with the names, not by a request for each file, and every listing says the same."""
    case = cases('leaves-20000')
    m = mount(case.path)
    directories, leaves = case.notes['layers'], case.notes['layers'] * case.notes['leaves']

    def run(*words):
        before = m.stats()['requests']
        out = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        return out, m.stats()['requests'] - before

    names, first = run('find', m.path)
    assert len(names.splitlines()) == 1 + directories + leaves + 2
    again, requests = run('find', m.path)
    assert again == names and requests < first - directories and requests < 3 * directories
    rows, requests = run('ls', '-lR', m.path)
    assert requests < leaves / 2
    for _ in range(2):
        time.sleep(0.6)                 # the kernel has to ask for the attributes again
        again, requests = run('ls', '-lR', m.path)
        assert again == rows and requests < leaves / 2
    assert run('find', m.path)[0] == names


def test_twenty_thousand_leaves_read_right(mount, cases):
    case = cases('leaves-20000')
    m = mount(case.path)
    for i in range(0, 200, 7):
        for j in range(0, 100, 9):
            a = np.load(m / f'layer{i:03d}' / f'w{j:02d}.npy')
            assert a.tolist() == [i * 100 + j] * 4


@pytest.mark.parametrize('limit, steps', [(1024, 1000), (256, 400)])
def test_many_steps_are_read_with_few_open_files(mount, cases, limit, steps):
    """Walking a long run's root must not use up the descriptors that a daemon is given."""
    case = cases('thousand-steps')
    m = mount(case.path, under=['prlimit', f'--nofile={limit}:{limit}'])
    most = 0
    for step in case.steps[:steps]:
        assert compare.read_all(m / step / 'state/name.txt') == b'step 0'
        compare.read_all(m / step / 'state/w.npy')
        most = max(most, len(m.open_files()))
    assert most < limit


def test_the_process_that_forgets_names_may_die(mount, cases):
    """The next names go to a new one. Until it runs, descriptors may run out: some steps later, and a second or two."""
    case = cases('thousand-steps')
    m = mount(case.path, under=['prlimit', '--nofile=256:256'], allow_errors=True)
    killed = 0
    deadline = time.monotonic()
    for i, step in enumerate(case.steps[:400]):
        while True:
            try:
                compare.read_all(m / step / 'state/w.npy')
                break
            except OSError as e:
                assert e.errno == errno.EMFILE and time.monotonic() < deadline
        for child in helpers_of(m.pid) if i % 100 == 99 else []:
            os.kill(child, signal.SIGKILL)
            killed, deadline = killed + 1, time.monotonic() + 60
    assert killed


@pytest.mark.serial
def test_who_gets_the_number_of_the_dead_helper_sees_names(mount, cases):
    """No name exists for the process that makes the kernel forget; another one of its number is not that process."""
    try:
        last_pid = os.open('/proc/sys/kernel/ns_last_pid', os.O_WRONLY)
    except OSError:
        pytest.skip('the next number of a process cannot be chosen here')
    case = cases('thousand-steps')
    # Where descriptors are few the helper runs from the start.
    m = mount(case.path, under=['prlimit', '--nofile=512:512'])
    deadline = time.monotonic() + 30
    while not (helper := helpers_of(m.pid)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    # The number is free when who started it has ended too.
    for pid in helper[0], pgrep(m.pid, 'pytreefs-broker')[0]:
        os.kill(pid, signal.SIGKILL)
    while os.path.exists(f'/proc/{helper[0]}'):
        if time.monotonic() > deadline:
            pytest.skip('nobody takes up processes that have lost their parent')
        time.sleep(0.01)
    for step in case.steps:
        os.pwrite(last_pid, str(helper[0] - 1).encode(), 0)
        child = os.fork()
        if not child:
            # A name that the kernel has not asked for.
            os._exit(0 if os.getpid() != helper[0] or os.path.exists(m / step) else 1)
        assert os.waitpid(child, 0)[1] == 0, step
        if child == helper[0]:
            break
    else:
        pytest.skip('others took the number each time')
    os.close(last_pid)


def test_descriptors_that_ran_out_come_back(mount, cases):
    """Opens in too many steps fail, but nothing fails permanently: once the files are closed, all works as before."""
    case = cases('thousand-steps')
    m = mount(case.path, under=['prlimit', '--nofile=256:256'], allow_errors=True)
    opened = []
    try:
        for step in case.steps[:300]:
            opened.append(open(m / step / 'state/w.npy', 'rb'))
    except OSError as e:
        assert e.errno == errno.EMFILE
    assert 20 < len(opened) < 300
    for f in opened:
        f.close()
    deadline = time.monotonic() + 60
    for step in case.steps[300:320]:
        while True:
            try:
                assert compare.read_all(m / step / 'state/name.txt') == b'step 0'
                break
            except OSError as e:
                assert e.errno == errno.EMFILE and time.monotonic() < deadline


def helpers_of(pid):
    """Children of the mount's broker, which starts them."""
    broker = pgrep(pid, 'pytreefs-broker')
    return pgrep(broker[0], 'pytreefs-forget') if broker else []


def pgrep(parent, name):
    found = subprocess.run(['pgrep', '-P', str(parent), '-f', name], capture_output=True, text=True)
    return [int(line) for line in found.stdout.split()]


def total(doc, word):
    """The largest counter whose name contains the word, wherever it is in the document."""
    out = []

    def go(node, at):
        for k, v in node.items():
            if isinstance(v, dict):
                go(v, f'{at}{k}.')
            elif isinstance(v, int) and word in at + k:
                out.append(v)

    go(doc, '')
    assert out, f'no counter called {word} in {doc}'
    return max(out)


SIDE = 16384            # of the leaf of 1 GiB


def rows(first, n):
    """Rows of that leaf, made again."""
    return np.frombuffer(bigdata.at(first * SIDE * 4, n * SIDE * 4), np.float32).reshape(n, SIDE)


def read_bytes_of(m, f):
    """Bytes of the source that f() makes the mount read."""
    before = m.stats()['source_read_bytes']
    f()
    return m.stats()['source_read_bytes'] - before


@pytest.mark.parametrize('direct', ['direct_io', 'io=auto'])
def test_raw_chunks_count_as_read(mount, run, tmp_path, direct):
    """Bytes that go from the page cache to the reader without a copy count, too."""
    array = np.arange(1 << 20, dtype=np.int32)
    (tmp_path / 'in').mkdir()
    np.save(tmp_path / 'in/w.npy', array)
    run('save', '-o', 'compression=none', tmp_path / 'in', tmp_path / 'source/1')
    m = mount(tmp_path / 'source', direct)
    n = read_bytes_of(m, (m / '1/default/w.npy').read_bytes)
    # Once, but for what the kernel may have taken away before it was read.
    assert array.nbytes <= n < 1.5 * array.nbytes
    # numpy reads the array past Python's buffer, which has st_blksize bytes and in it the header.
    m.unmount()
    m = mount(tmp_path / 'source', direct)
    path = m / '1/default/w.npy'
    n = read_bytes_of(m, lambda: np.load(path))
    assert array.nbytes <= n <= array.nbytes + array.nbytes / 16 + 4096
    # Other forms of it, each from a mount that has read nothing yet.
    for name, least in (('w[1000:500000].npy', 4 * 499_000), ('w@float64.npy', array.nbytes), ('../default.safetensors', array.nbytes)):
        other = mount(tmp_path / 'source', direct, 'cache=0')
        n = read_bytes_of(other, (other / '1/default' / name).read_bytes)
        assert least <= n < 2 * least + 200000, (name, n)
    n = read_bytes_of(m, (m / '.pytreefs/stored/1/default/manifest.ocdbt').read_bytes)
    assert n >= (tmp_path / 'source/1/default/manifest.ocdbt').stat().st_size


@pytest.mark.parametrize('box,index', [
    ('[4096:5735,8192:9831]', np.s_[4096:5735, 8192:9831]),     # as a square
    ('[5120:5632,100:5343]', np.s_[5120:5632, 100:5343]),       # as a stripe
    ('[5121:5122,0:8000]', np.s_[5121:5122, 0:8000]),           # a row, less than a percent
])
@pytest.mark.feature('B11', 'D4')
def test_a_box_of_one_percent_reads_three_percent_at_most(mount, cases, box, index):
    """Where chunks allow it: stored bytes read, by the counters, of a leaf of 1 GiB."""
    m = mount(cases('one-gib-chunked').path)
    chunks = compare.xattr(m / 'w.npy', 'chunks')
    stored = compare.xattr(m / 'w.npy', 'stored_bytes')
    touched = 1
    for axis, chunk in zip(index, chunks):
        touched *= (axis.stop - 1) // chunk - axis.start // chunk + 1
    assert touched <= 0.03 * (SIDE // chunks[0]) * (SIDE // chunks[1]), f'chunks of {chunks} do not allow it'

    def read():
        got = np.load(m / f'w{box}.npy').view(np.uint32)
        assert np.array_equal(got, rows(index[0].start, len(got)).view(np.uint32)[:, index[1]])

    n = read_bytes_of(m, read)
    assert n <= 0.03 * stored, f'{n} of {stored} bytes'


def test_the_index_of_a_shard_is_read_once(mount, run, tmp_path):
    """Many small reads of a shard of 128 inner chunks: its index stays in the cache."""
    array = np.arange(1 << 16, dtype=np.int32).reshape(256, 256)
    (tmp_path / 'in').mkdir()
    np.save(tmp_path / 'in/w.npy', array)
    run('save', '-o', 'zarr=3,ocdbt=off,compression=none', tmp_path / 'in', tmp_path / 'root/1')
    leaf = tmp_path / 'root/1/default/w'
    shutil.rmtree(leaf.parent / '.crc32c')
    meta = json.loads((leaf / 'zarr.json').read_text())
    little = {'name': 'bytes', 'configuration': {'endian': 'little'}}
    meta['codecs'] = [{'name': 'sharding_indexed', 'configuration': {
        'chunk_shape': [8, 64], 'codecs': [little], 'index_codecs': [little, {'name': 'crc32c'}], 'index_location': 'end'}}]
    (leaf / 'zarr.json').write_text(json.dumps(meta))
    chunks = [array[i:i + 8, j:j + 64].tobytes() for i in range(0, 256, 8) for j in range(0, 256, 64)]
    index = b''.join(struct.pack('<QQ', i * 2048, 2048) for i in range(len(chunks)))
    shard = b''.join(chunks) + index + struct.pack('<I', google_crc32c.value(index))
    (leaf / 'c/0/0').write_bytes(shard)
    m = mount(tmp_path / 'root', 'trace=io', 'io=trace:sync', 'direct_io')
    fd = os.open(m / '1/default/w.npy', os.O_RDONLY)
    for at in range(0, array.nbytes - 256, 4099 & ~3):
        assert os.pread(fd, 256, 128 + at) == array.tobytes()[at:at + 256]
    os.close(fd)
    assert len([line for line in m.log_lines() if f'c/0/0:{len(shard) - len(index) - 4}:' in line]) == 1


@pytest.mark.parametrize('words', [['stats'], ['verify'], ['export', 'one.npz']])
def test_only_opens_what_it_selects(run, cases, tmp_path, words):
    case = cases('matrix-perleaf-zarr2-zstd-v0')
    r = run(words[0], '--only', 'params/dense/kernel', '-o', 'io=trace:sync,trace=io', case.path, *(tmp_path / w for w in words[1:]))
    opened = {line.split()[3] for line in r.stderr.splitlines() if 'trace io: open' in line and '.zarray:' in line}
    assert opened == {'params.dense.kernel/.zarray:'}, r.stderr


def test_a_command_examines_no_file_that_it_does_not_read(run, cases):
    """Only a mount, which serves other users, examines who may read each stored file."""
    r = run('stats', '-o', 'io=trace:sync,trace=io', cases('matrix-ocdbt-zarr2-zstd-v0').path / 'params/dense/kernel.npy')
    data = {what: {line.split()[3].split(':')[0] for line in r.stderr.splitlines() if f'trace io: {what} ' in line and '/d/' in line}
            for what in ('open', 'read')}
    assert data['open'] == data['read'] != set(), r.stderr


def test_a_safetensors_view_costs_what_is_read(mount, cases):
    """1 % of its rows: those chunks, and the rows of chunks that the kernel's read-ahead meets."""
    m = mount(cases('one-gib-chunked').path)
    stored = compare.xattr(m / 'w.npy', 'stored_bytes')

    def read():
        with safetensors.safe_open(m / '.safetensors', 'np') as f:
            assert set(f.keys()) == {'w', 'z'}
            assert f.get_tensor('z').tolist() == [0, 1, 2, 3, 4]
            check_rows(f.get_slice('w'), 9216, 164)

    n = read_bytes_of(m, read)
    assert n <= 0.2 * stored, f'{n} of {stored} bytes'


def check_rows(tensor, first, n):
    assert np.array_equal(tensor[first:first + n].view(np.uint32), rows(first, n).view(np.uint32))


def test_what_a_reader_in_order_has_left_behind_goes(mount, tmp_path):
    """The kernel keeps what it was given; with direct_io a leaf that fits stays decoded."""
    root = tmp_path / 'root'
    root.mkdir()
    a = np.random.default_rng(1).integers(0, 1 << 20, 12 << 20)
    m = mount(root, 'chunk_byte_size=256K')
    (m / '1.tmp/default').mkdir(parents=True)
    np.save(m / '1.tmp/default/w.npy', a)
    (m / '1.tmp').rename(m / '1')
    m.unmount()

    def cached(*options):
        m = mount(root, *options)
        subprocess.run(['dd', f'if={m / "1/default/w.npy"}', 'of=/dev/null', 'bs=256K', 'status=none'], check=True)
        stats = m.stats()
        assert stats['chunks_decoded'] >= 384
        m.unmount()
        return stats['cache_bytes'] / (1 << 20)
    # 96 MiB are read; what is left is what was decoded ahead, and an eighth of the cache.
    assert cached('cache=128M') < 80
    assert cached('cache=256M', 'direct_io') > 96


def test_data_files_stay_open_as_descriptors_last(run, mount, tmp_path):
    """Many steps of many data files each: what may not stay open is opened again."""
    tree = tmp_path / 'tree'
    tree.mkdir()
    leaves = [np.random.default_rng(i).integers(0, 256, 4096, np.uint8) for i in range(80)]
    for i, a in enumerate(leaves):
        np.save(tree / f'w{i:02}.npy', a)
    root = tmp_path / 'root'
    root.mkdir()
    run('save', '-o', 'target_data_file_size=4K', tree, root / '0')
    files = [p for p in (root / '0').rglob('d/*')]
    assert len(files) > 60
    for step in range(1, 25):
        shutil.copytree(root / '0', root / str(step))
    for limit in ('300:300', '300:4096'):
        m = mount(root, under=['prlimit', f'--nofile={limit}'])
        for step in range(25):
            for i in range(0, 80, 3):
                assert compare.read_all(m / f'{step}/default/w{i:02}.npy').endswith(leaves[i].tobytes())
        assert len(os.listdir(m / '24/default')) == 81
        m.unmount()
