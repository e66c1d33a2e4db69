# SPDX-License-Identifier: Apache-2.0
"""core/ocdbt against real TensorStore, both ways: what one writes the other reads and goes on writing,
and without compression whole databases are equal to the byte."""

import asyncio
import json
import os
import random
import subprocess
import time

import pytest

ts = pytest.importorskip('tensorstore')

UNIT = os.path.join(os.environ['PYTREEFS_BUILD'], 'tests', 'unit')
UUID = '000102030405060708090a0b0c0d0e0f'
ZSTD = {'id': 'zstd', 'level': 0}


# ---- our side ----

def run(program, *args, data=None):
    if isinstance(data, str):
        data = data.encode()
    return subprocess.run([os.path.join(UNIT, program), *map(str, args)], input=data, capture_output=True)


def tool(*args, data=None):
    """Return the output of ocdbt_tool."""
    done = run('ocdbt_tool', *args, data=data)
    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()[:2000]
    return done.stdout.decode()


def record_tool(*args, data=None):
    done = run('record_tool', *args, data=data)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def refused(*args, data=None):
    """The message of a command that must fail."""
    done = run('ocdbt_tool', *args, data=data)
    assert done.returncode == 2, done.stdout
    return done.stderr.decode()


def to_hex(b):
    return b.hex() or '-'


def from_hex(text):
    return b'' if text == '-' else bytes.fromhex(text)


def rows(data):
    """A dictionary as the lines that build and commit take."""
    return ''.join(f'{to_hex(k)} {to_hex(v)}\n' for k, v in sorted(data.items()))


def values(path, *args):
    """Everything in a database, in the order in which we list it."""
    return {from_hex(k): from_hex(v) for k, v in (line.split(' ') for line in tool('values', path, *args).splitlines())}


def keys(path, *args):
    return [from_hex(line.split(' ')[0]) for line in tool('list', path, *args).splitlines()]


def versions(path):
    """(generation, time, height, keys) of each version, the oldest first."""
    return [tuple(map(int, line.split())) for line in tool('versions', path).splitlines()]


def sound(path, *args):
    """The last line of a check that found nothing wrong."""
    lines = tool('check', path, '--all', *args).splitlines()
    assert not [line for line in lines if line.startswith('error')], lines
    return lines[-1]


# ---- TensorStore's side ----

def spec(path, **more):
    return {'driver': 'ocdbt', 'base': f'file://{path}/', **more}


def config(inline=100, node=8 << 20, compression=None, **more):
    return {'max_inline_value_bytes': inline, 'max_decoded_node_bytes': node, 'compression': compression, **more}


def store(path, **more):
    return ts.KvStore.open(spec(path, **more)).result()


def write(path, data, **more):
    """One commit of all of it; with a config the first one of a new database."""
    kv = store(path, assume_config='config' in more, **more)
    with ts.Transaction(atomic=True) as txn:
        inside = kv.with_transaction(txn)
        for k, v in data.items():
            inside[k] = v


def read(path, **more):
    """Everything that TensorStore finds."""
    kv = store(path, **more)
    found = kv.list().result()
    assert len(found) == len(set(found))
    reads = {k: kv.read(k) for k in found}
    return {k: future.result().value for k, future in reads.items()}


def delete(path, names):
    kv = store(path)
    with ts.Transaction(atomic=True) as txn:
        for k in names:
            del kv.with_transaction(txn)[k]


def data_files(path):
    return sorted(os.listdir(os.path.join(path, 'd'))) if os.path.isdir(os.path.join(path, 'd')) else []


def random_data(rnd, n, longest=200, letters=b'ab/.0%\xff\0'):
    return {bytes(rnd.choice(letters) for _ in range(rnd.randrange(14))): rnd.randbytes(rnd.randrange(longest))
            for _ in range(n)}


SHAPES = [(seed, n, inline, node, compression)
          for seed, (n, inline, node, compression) in enumerate([
              (0, 100, 1000, None), (1, 100, 1000, None), (1, 0, 1000, ZSTD), (2, 0, 1, None), (3, 10, 0, ZSTD),
              (50, 0, 200, None), (50, 100, 1, ZSTD), (300, 10, 500, None), (300, 100, 5000, ZSTD),
              (1000, 1024, 100000, {'id': 'zstd', 'level': 5}), (1000, 0, 1000, {'id': 'zstd', 'level': -7}),
              (2000, 50, 1, None), (3000, 1024, 100000000, ZSTD)])]


# ---- reading what TensorStore wrote ----

@pytest.mark.parametrize('seed,n,inline,node,compression', SHAPES)
def test_what_tensorstore_wrote_is_read(tmp_path, seed, n, inline, node, compression):
    data = random_data(random.Random(seed), n, 3 * inline + 100)
    write(tmp_path, data, config=config(inline, node, compression))
    if not data:
        # A transaction without writes makes no database.
        assert 'manifest.ocdbt' in refused('list', tmp_path)
        return
    assert values(tmp_path) == data
    assert keys(tmp_path) == sorted(data)
    assert f'keys {len(data)} ' in sound(tmp_path)
    if compression is None:
        assert b' other 0\n' in record_tool('exact', tmp_path)


@pytest.mark.parametrize('cache', [0, 1, 1 << 26])
def test_batches_find_what_tensorstore_finds(tmp_path, cache):
    rnd = random.Random(3)
    data = random_data(rnd, 700, 2500)
    write(tmp_path, data, config=config(1024, 3000, ZSTD))
    wanted = [k for k in data for _ in range(2)] + [k + b'x' for k in list(data)[:300]] + [b'', b'\xff\xff']
    rnd.shuffle(wanted)
    got = tool('get', tmp_path, '--cache', cache, data=''.join(to_hex(k) + '\n' for k in wanted)).splitlines()
    assert got == [to_hex(data[k]) if k in data else 'absent' for k in wanted]


def test_ranges_and_prefixes(tmp_path):
    rnd = random.Random(4)
    data = random_data(rnd, 500, 20)
    write(tmp_path, data, config=config(100, 300))
    ordered = sorted(data)
    for _ in range(60):
        low, high = (rnd.choice(ordered)[:rnd.randrange(1, 5)] for _ in range(2))
        want = [k for k in ordered if k >= low and (not high or k < high)]
        assert keys(tmp_path, '--low', to_hex(low), '--high', to_hex(high)) == want
        assert keys(tmp_path, '--prefix', to_hex(low)) == [k for k in ordered if k.startswith(low)]


@pytest.mark.parametrize('length', [0, 99, 100, 101, 1023, 1024, 1025, 1048576, 1048577])
def test_values_around_the_inline_limits(tmp_path, length):
    for limit in (100, 1024, 1048576):
        path = tmp_path / str(limit)
        write(path, {b'k': b'v' * length}, config=config(limit))
        assert values(path) == {b'k': b'v' * length}
        where = tool('list', path).split()[2]
        assert where.startswith('inline:' if length <= limit else 'value:d/')


def test_long_keys(tmp_path):
    data = {b'k' * n: b'%d' % n for n in (0, 1, 1000, 65534, 65535)}
    write(tmp_path, data, config=config())
    assert values(tmp_path) == data


def test_nodes_of_many_zstd_blocks(tmp_path):
    data = {b'key/%07d' % i: b'%d' % (i * 7919) for i in range(60000)}
    write(tmp_path, data, config=config(1024, 100000000, ZSTD))
    assert len(data_files(tmp_path)) == 1
    assert values(tmp_path) == data


def test_a_history_of_writes_and_deletions(tmp_path):
    """Many commits: every version is found by generation and by time, with what it held."""
    rnd = random.Random(5)
    states, now = {}, {}
    kv = store(tmp_path, config=config(20, 200, ZSTD, version_tree_arity_log2=2))
    for _ in range(70):
        changes = random_data(rnd, rnd.randrange(1, 12), 60, b'abc')
        gone = rnd.sample(sorted(now), min(len(now), rnd.randrange(6)))
        with ts.Transaction(atomic=True) as txn:
            inside = kv.with_transaction(txn)
            for k in gone:
                if k not in changes:
                    del inside[k]
            for k, v in changes.items():
                inside[k] = v
        for k in gone:
            now.pop(k)
        now.update(changes)
        states[versions(tmp_path)[-1][0]] = dict(now)
    assert values(tmp_path) == now
    sound(tmp_path)
    listed = versions(tmp_path)
    assert [g for g, *_ in listed] == list(range(1, len(listed) + 1))
    for generation, commit_time, _, n in listed:
        if generation not in states:
            assert n == 0		# the empty one that TensorStore begins with
            continue
        assert n == len(states[generation])
        if generation % 7 == 0:
            assert values(tmp_path, '--generation', generation) == states[generation]
            assert values(tmp_path, '--before', commit_time) == states[generation]
            assert values(tmp_path, '--before', commit_time - 1) == states.get(generation - 1, {})
            assert read(tmp_path, version=generation) == states[generation]
    assert 'no version of generation' in refused('list', tmp_path, '--generation', len(listed) + 1)


def test_a_database_that_was_emptied(tmp_path):
    write(tmp_path, {b'%03d' % i: b'v' for i in range(100)}, config=config(100, 30))
    delete(tmp_path, [b'%03d' % i for i in range(99)])
    assert values(tmp_path) == {b'099': b'v'}	# below nodes with one child each
    sound(tmp_path)
    delete(tmp_path, [b'099'])
    assert values(tmp_path) == {}
    assert len(values(tmp_path, '--generation', 1)) == 100


def test_numbered_manifests(tmp_path):
    kv = store(tmp_path, config=config(manifest_kind='numbered', compression=ZSTD))
    for i in range(140):
        kv[b'k%d' % (i % 10)] = b'%d' % i
    names = [n for n in os.listdir(tmp_path) if n.startswith('manifest.0')]
    assert 100 < len(names) < 140
    assert values(tmp_path) == read(tmp_path)
    assert values(tmp_path)[b'k9'] == b'139'
    sound(tmp_path)
    assert [g for g, *_ in versions(tmp_path)] == list(range(1, 142))
    # The kind is not continued by us, and says so.
    assert 'numbered' in refused('commit', tmp_path, data=rows({b'a': b'b'}))


def test_other_directories_for_data(tmp_path):
    write(tmp_path, {b'a': b'x' * 500, b'b': b'y'}, config=config(100), value_data_prefix='v%/',
          btree_node_data_prefix='n/')
    assert values(tmp_path) == {b'a': b'x' * 500, b'b': b'y'}
    assert 'value:v%25/' in tool('list', tmp_path)
    assert ' warnings 0' in sound(tmp_path)


def test_text_agrees_with_tensorstore_dump(tmp_path):
    write(tmp_path, {b'w/%d' % i: b'v' * (i * 20) for i in range(12)}, config=config(60, 300, uuid=UUID))
    base = ts.KvStore.open(f'file://{tmp_path}/').result()
    manifest = ts.ocdbt.dump(base).result()
    lines = record_tool('text', tmp_path / 'manifest.ocdbt', 0, 0).decode().splitlines()
    assert f"uuid {manifest['config']['uuid']}" in lines
    version = manifest['versions'][-1]
    root = version['root']
    kind, _, name, off, length = root['location'].split(':')
    stats = root['statistics']
    assert lines[-1] == (f'version {version["generation_number"]} height {version["root_height"]} root "" "{name}" '
                         f'{off} {length} keys {stats["num_keys"]} tree_bytes {stats["num_tree_bytes"]} '
                         f'value_bytes {stats["num_indirect_value_bytes"]} time {version["commit_time"]}')
    assert kind == 'btreenode'

    def check(location):
        _, _, name, off, length = location.split(':')
        node = ts.ocdbt.dump(base, location).result()
        lines = record_tool('text', tmp_path / name, off, length).decode().splitlines()
        assert lines[2] == f'height {node["height"]}'
        assert len(lines) == 3 + len(node['entries'])
        for line, entry in zip(lines[3:], node['entries']):
            if node['height']:
                _, _, child, child_off, child_length = entry['location'].split(':')
                stats = entry['statistics']
                assert line == (f'child "{entry["key"].decode()}" cut {len(entry["subtree_common_prefix"])} node "" '
                                f'"{child}" {child_off} {child_length} keys {stats["num_keys"]} tree_bytes '
                                f'{stats["num_tree_bytes"]} value_bytes {stats["num_indirect_value_bytes"]}')
                check(entry['location'])
            elif 'indirect_value' in entry:
                _, _, file, at, n = entry['indirect_value'].split(':')
                assert line == f'entry "{entry["key"].decode()}" file "" "{file}" {at} {n}'
            else:
                assert line == f'entry "{entry["key"].decode()}" inline "{entry["inline_value"].decode()}"'
        # And back to the same bytes.
        with open(tmp_path / name, 'rb') as f:
            f.seek(int(off))
            stored = f.read(int(length))
        assert record_tool('undump', data='\n'.join(lines) + '\n') == stored
    check(root['location'])
    with open(tmp_path / 'manifest.ocdbt', 'rb') as f:
        assert record_tool('undump', data='\n'.join(lines) + '\n') == f.read()


# ---- writing ----

def build(path, data, *args, inline=100, node=8 << 20, compression=None, command='build'):
    path.mkdir(exist_ok=True)
    how = ['--plain'] if compression is None else ['--zstd', compression['level']]
    tool(command, path, '--inline', inline, '--node', node, *how, *args, data=rows(data))


@pytest.mark.parametrize('seed,n,inline,node,compression', SHAPES)
def test_what_we_write_tensorstore_reads_and_continues(tmp_path, seed, n, inline, node, compression):
    rnd = random.Random(seed + 100)
    data = random_data(rnd, n, 3 * inline + 100)
    build(tmp_path, data, inline=inline, node=node, compression=compression)
    assert read(tmp_path) == data
    more = random_data(rnd, 40, 300)
    write(tmp_path, more)
    gone = rnd.sample(sorted({**data, **more}), min(len(data), 20))
    delete(tmp_path, gone)
    want = {k: v for k, v in {**data, **more}.items() if k not in gone}
    assert read(tmp_path) == want
    assert values(tmp_path) == want
    assert values(tmp_path, '--generation', 1) == data
    sound(tmp_path)


@pytest.mark.parametrize('seed,n,inline,node', [
    (seed, n, inline, node) for seed, (n, inline, node) in enumerate(
        [(1, 100, 1000), (3, 0, 1), (40, 0, 1), (40, 10, 100), (200, 0, 120), (200, 100, 300), (500, 10, 1000),
         (500, 0, 3), (1500, 50, 700), (1500, 100, 20000), (3000, 1024, 0), (900, 0, 50)])])
def test_whole_databases_are_equal_to_the_byte(tmp_path, seed, n, inline, node):
    """The same entries in one commit: the same manifest, the same data file."""
    theirs, ours = tmp_path / 'theirs', tmp_path / 'ours'
    data = random_data(random.Random(seed + 200), n)
    write(theirs, data, config=config(inline, node, uuid=UUID))
    name, = data_files(theirs)
    build(ours, data, '--one-writer', '--uuid', UUID, '--name', name, '--time', versions(theirs)[0][1],
          inline=inline, node=node)
    assert (ours / 'manifest.ocdbt').read_bytes() == (theirs / 'manifest.ocdbt').read_bytes()
    assert (ours / 'd' / name).read_bytes() == (theirs / 'd' / name).read_bytes()


def test_a_full_node_is_split_as_tensorstore_splits_it(tmp_path):
    """One entry more than a node may hold, with a limit far above and with none."""
    data = {b'%07d' % i: b'' for i in range(1048577)}
    for limit, sizes in ((10**9, (524289, 524288)), (0, (524288, 524289))):
        theirs, ours = tmp_path / f'theirs{limit}', tmp_path / f'ours{limit}'
        write(theirs, data, config=config(100, limit, uuid=UUID))
        name, = data_files(theirs)
        build(ours, data, '--one-writer', '--uuid', UUID, '--name', name, '--time', versions(theirs)[0][1],
              node=limit)
        assert (ours / 'manifest.ocdbt').read_bytes() == (theirs / 'manifest.ocdbt').read_bytes()
        mine, stored = (ours / 'd' / name).read_bytes(), (theirs / 'd' / name).read_bytes()
        # TensorStore fills large files up to a multiple of 4096.
        assert stored[:len(mine)] == mine and not stored[len(mine):].strip(b'\0')
        version = record_tool('text', ours / 'manifest.ocdbt', 0, 0).decode().splitlines()[-1].split()
        root = record_tool('text', ours / 'd' / name, version[7], version[8]).decode()
        assert tuple(int(line.split(' keys ')[1].split()[0]) for line in root.splitlines()[3:]) == sizes


@pytest.mark.parametrize('arity', [1, 2, 3, 4])
def test_histories_that_we_write(tmp_path, arity):
    """Version trees of ours: read by generation and by time, and continued."""
    states = {}
    rnd = random.Random(arity)
    for generation in range(1, 41):
        data = random_data(rnd, rnd.randrange(1, 5), 150)
        build(tmp_path, data, '--arity', arity, '--time', 10**18 + generation * 10**9, inline=60, node=100,
              command='build' if generation == 1 else 'commit')
        states[generation] = data
    for generation in (1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 31, 32, 33, 39, 40):
        assert read(tmp_path, version=generation) == states[generation]
        stamp = time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(10**9 + generation))
        assert read(tmp_path, version=stamp) == states[generation]
    kv = store(tmp_path)
    for i in range(20):
        kv[b'more%d' % i] = b'%d' % i
    assert len(versions(tmp_path)) == 60
    assert values(tmp_path) == read(tmp_path)
    assert values(tmp_path, '--generation', 17) == states[17]
    sound(tmp_path)


def test_data_files_end_at_their_target_size(tmp_path):
    data = {b'%03d' % i: os.urandom(3000) for i in range(100)}
    build(tmp_path, data, '--target', 20000)
    assert len(data_files(tmp_path)) > 10
    assert read(tmp_path) == data


# ---- merging ----

def parts_of(data, n, rnd):
    parts = [{} for _ in range(n)]
    for k, v in data.items():
        parts[rnd.randrange(n)][k] = v
    return parts


def merge_with_tensorstore(path, names, **more):
    """As Orbax does it."""
    context = ts.Context()

    async def merge():
        parent = await ts.KvStore.open(spec(path, assume_config=True, **more), context=context)
        children = [await ts.KvStore.open(spec(path / name), context=context) for name in names]
        txn = ts.Transaction(atomic=True)
        await asyncio.gather(*(child.experimental_copy_range_to(parent.with_transaction(txn))
                               for child in children))
        await txn.commit_async()
    asyncio.run(merge())


@pytest.mark.feature('A16')
@pytest.mark.parametrize('seed', range(4))
def test_merging_gives_what_tensorstore_gives(tmp_path, seed):
    rnd = random.Random(seed)
    data = random_data(rnd, 300, 3000)
    names = [f'ocdbt.process_{i}' for i in range(3)]
    for name, part in zip(names, parts_of(data, 3, rnd)):
        write(tmp_path / name, part, config=config(1024, 10**8, ZSTD))
    assert values(tmp_path, '--union') == data
    node = rnd.choice([200, 5000, 10**8])
    merge_with_tensorstore(tmp_path, names, config=config(1024, node))
    theirs = tool('list', tmp_path)
    assert values(tmp_path) == data
    sound(tmp_path)
    os.remove(tmp_path / 'manifest.ocdbt')
    printed = tool('merge', tmp_path, '--inline', 1024, '--node', node, '--plain')
    assert printed.startswith(f'3 parts, 0 bare, {len(data)} keys, 0 repeated, ')
    # The same keys, and each value in the same place.
    assert tool('list', tmp_path) == theirs
    assert read(tmp_path) == data
    sound(tmp_path)
    write(tmp_path, {b'new': b'value'})
    assert read(tmp_path) == {**data, b'new': b'value'}
    assert values(tmp_path) == {**data, b'new': b'value'}


def test_a_merge_is_equal_to_the_byte(tmp_path):
    """The data file of a merge by TensorStore holds nodes only; with the same name ours is the same."""
    rnd = random.Random(8)
    data = random_data(rnd, 200, 3000)
    names = ['ocdbt.process_0', 'ocdbt.process_1']
    for name, part in zip(names, parts_of(data, 2, rnd)):
        write(tmp_path / name, part, config=config(1024, 10**8, ZSTD))
    merge_with_tensorstore(tmp_path, names, config=config(1024, 3000, uuid=UUID))
    name, = data_files(tmp_path)
    files = [tmp_path / 'manifest.ocdbt', tmp_path / 'd' / name]
    theirs = [path.read_bytes() for path in files]
    commit_time = versions(tmp_path)[0][1]
    for path in files:
        os.remove(path)
    tool('merge', tmp_path, '--inline', 1024, '--node', 3000, '--plain', '--uuid', UUID, '--name', name,
         '--time', commit_time)
    assert [path.read_bytes() for path in files] == theirs


def test_merged_databases_are_merged_again(tmp_path):
    inner = tmp_path / 'ocdbt.process_0'
    one, two, three = ({b'%s%d' % (p, i): os.urandom(2000 if i % 2 else 20) for i in range(20)} for p in (b'a', b'b', b'c'))
    write(inner / 'ocdbt.process_0', one, config=config(100))
    write(inner / 'ocdbt.process_1', two, config=config(100))
    merge_with_tensorstore(inner, ['ocdbt.process_0', 'ocdbt.process_1'], config=config(100))
    write(tmp_path / 'ocdbt.process_1', three, config=config(100))
    tool('merge', tmp_path)
    assert read(tmp_path) == {**one, **two, **three}
    assert values(tmp_path) == {**one, **two, **three}
    assert 'value:ocdbt.process_0/ocdbt.process_1/d/' in tool('list', tmp_path)


def test_inline_values_move_out_when_the_parent_takes_less(tmp_path):
    data = {b'k%d' % n: b'v' * n for n in (10, 100, 101, 1000)}
    write(tmp_path / 'ocdbt.process_0', data, config=config(1024))
    tool('merge', tmp_path, '--inline', 100)
    assert read(tmp_path) == data
    assert [line.split()[2].split(':')[0] for line in tool('list', tmp_path).splitlines()] == \
        ['inline', 'inline', 'value', 'value']


def test_parts_that_disagree_are_refused(tmp_path):
    write(tmp_path / 'ocdbt.process_0', {b'same': b's', b'long': b'l' * 5000, b'z': b'0'}, config=config(100))
    write(tmp_path / 'ocdbt.process_1', {b'same': b's', b'long': b'l' * 5000}, config=config(100))
    assert tool('merge', tmp_path).startswith('2 parts, 0 bare, 3 keys, 2 repeated')
    assert read(tmp_path) == {b'same': b's', b'long': b'l' * 5000, b'z': b'0'}
    write(tmp_path / 'ocdbt.process_1', {b'long': b'l' * 4999 + b'x'})
    message = refused('merge', tmp_path)
    assert "'long' is in 'ocdbt.process_0/' and in 'ocdbt.process_1/' with different values" in message
    assert "'long' is in 'ocdbt.process_0'" in refused('values', tmp_path, '--union')


# ---- damage ----

def test_damage_is_seen_or_harmless(tmp_path):
    """One byte changed anywhere in manifest or nodes: an error, never other values and never a crash."""
    rnd = random.Random(11)
    data = random_data(rnd, 60, 90, b'abc')
    write(tmp_path, data, config=config(1000, 300, ZSTD))	# all inline: every byte is in some record
    names = ['manifest.ocdbt'] + [f'd/{name}' for name in data_files(tmp_path)]
    for _ in range(150):
        path = tmp_path / rnd.choice(names)
        good = path.read_bytes()
        at = rnd.randrange(len(good))
        bad = bytearray(good)
        bad[at] ^= 1 << rnd.randrange(8)
        path.write_bytes(bad)
        done = run('ocdbt_tool', 'values', tmp_path)
        path.write_bytes(good)
        assert done.returncode == 2, (path, at, done.stdout[:100])
        assert b'AddressSanitizer' not in done.stderr
    assert values(tmp_path) == data


def test_a_missing_data_file_is_an_error(tmp_path):
    write(tmp_path, {b'big': b'v' * 5000, b'small': b's'}, config=config(100), value_data_prefix='v/')
    name, = os.listdir(tmp_path / 'v')
    path = tmp_path / 'v' / name
    path.rename(tmp_path / 'away')
    # TensorStore gives an empty value here.
    assert f"data file 'v/{name}' is absent" in refused('values', tmp_path)
    assert keys(tmp_path) == [b'big', b'small']
    done = run('ocdbt_tool', 'check', tmp_path)
    assert done.returncode == 1 and f"error file:v/{name}: data file 'v/{name}' is absent" in done.stdout.decode()
    (tmp_path / 'away').rename(path)
    os.truncate(path, 4999)
    assert f"data file 'v/{name}' has 4999 bytes, 5000 at offset 0" in refused('values', tmp_path)


# ---- Orbax ----

@pytest.mark.feature('A16')
def test_what_orbax_saves_is_sound_and_our_merge_restores(tmp_path):
    ocp = pytest.importorskip('orbax.checkpoint')
    np = pytest.importorskip('numpy')
    tree = {'w': np.arange(20000, dtype=np.float32).reshape(100, 200), 'b': np.ones(7, np.int8),
            'deep': {'x': np.arange(600, dtype=np.float64), 'n': 5}}
    path = tmp_path / 'ckpt'
    ocp.PyTreeCheckpointer().save(path, tree)
    sound(path)
    before = values(path)
    assert json.loads(before[b'w/.zarray'])['shape'] == [100, 200]
    assert values(path, '--union') == before
    os.remove(path / 'manifest.ocdbt')
    for name in data_files(path):
        os.remove(path / 'd' / name)
    assert tool('merge', path).startswith('1 parts, 0 bare, ')
    assert values(path) == before
    sound(path)
    restored = ocp.PyTreeCheckpointer().restore(path)
    for got, want in ((restored['w'], tree['w']), (restored['b'], tree['b']),
                      (restored['deep']['x'], tree['deep']['x'])):
        assert got.dtype == want.dtype and np.array_equal(got, want)
    assert restored['deep']['n'] == 5
