# SPDX-License-Identifier: Apache-2.0
"""A source with a URL: a web server's steps and items, byte for byte those of the disk, and its faults."""

import contextlib
import errno
import io
import json
import os
import pathlib
import re
import shutil
import threading
import time

import numpy as np
import pytest
from safetensors.numpy import save_file

from lib import compare, mounts, rounds, saving, servers

SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data/sample'
LEAF = 'state/params/embed/table.npy'


@pytest.fixture
def web(tmp_path):
    with servers.nginx(tmp_path / 'nginx', SAMPLE.parent) as url:
        yield url


@pytest.fixture
def leaf(run):
    """The leaf as the disk has it."""
    return run('cat', SAMPLE / '1500' / LEAF, text=False).stdout


def test_a_step_is_the_same_as_on_disk(mount, web):
    assert compare.contents(mount(f'{web}/sample/1500').path) == compare.contents(mount(SAMPLE / '1500').path)


def test_commands(run, web, leaf):
    step = f'{web}/sample/1500'
    assert run('cat', f'{step}/{LEAF}', text=False).stdout == leaf
    assert run('cat', f'{step}/state/params/embed/table[0:2,3].npy', text=False).stdout == \
        run('cat', SAMPLE / '1500/state/params/embed/table[0:2,3].npy', text=False).stdout
    for words in (['ls'], ['tree'], ['stats', '--only', 'step']):
        got = run(*words, f'{step}/state').stdout.replace(f'{step}/state', 'X').splitlines()
        want = run(*words, SAMPLE / '1500/state').stdout.replace(str(SAMPLE / '1500/state'), 'X').splitlines()
        # The sum of tree counts blocks of the disk.
        assert got[:-1] == want[:-1] and (got == want or words == ['tree'])
    assert '"dtype": "bfloat16"' in run('info', '--json', f'{step}/{LEAF}').stdout
    assert '0 errors, 0 warnings' in run('verify', step).stdout
    assert '0 errors, 0 warnings' in run('verify', f'{step}/state').stdout
    assert run('diff', step, SAMPLE / '1500').returncode == 0


def test_other_files_are_found_by_name(mount, run, tmp_path):
    """A server of files lists none, so a copy has none. They do not hide views."""
    step = shutil.copytree(SAMPLE / '1500', tmp_path / 'sample/1500')
    names = {'metadata.json': b'{"step": 3}', 'state/LICENSE': b'free'}
    for name, data in names.items():
        (step / name).write_bytes(data)
    (step / 'state.json').write_text('no view')
    with servers.nginx(tmp_path / 'nginx', tmp_path) as url:
        m = mount(f'{url}/sample/1500')
        assert {name: (m.path / name).read_bytes() for name in names} == names
        assert not {'metadata.json', 'state.json'} & set(os.listdir(m.path)) and (m.path / 'state.json').read_text() != 'no view'
        assert run('cat', f'{url}/sample/1500/metadata.json', text=False).stdout == names['metadata.json']
        run('convert', f'{url}/sample/1500', tmp_path / 'copy')
        assert run('diff', f'{url}/sample/1500', step).returncode == 0 and not (tmp_path / 'copy/metadata.json').exists()


@pytest.mark.parametrize('name', ['matrix-ocdbt-zarr2-zstd-v0', 'matrix-perleaf-zarr3-none-v1', 'matrix-ocdbt-zarr3-zstd-v1',
                                  'aggregate-by-hand'])
def test_layouts(mount, cases, tmp_path, name):
    case = cases(name)
    with servers.nginx(tmp_path / 'server', case.path) as url:
        assert not compare.compare_case(mount(url).path, case)


@pytest.mark.parametrize('name', ['matrix-perleaf-zarr2-zstd-v0', 'matrix-perleaf-zarr3-none-v1'])
def test_chunks_in_files_that_cannot_be_listed(run, cases, copy, name):
    """verify, sizes and checksums are as on the disk, with a request for each document and chunk; a chunk that is lost or damaged is found."""
    item = copy(cases(name))
    asked = []
    with servers.faulty(item, lambda path, offset: asked.append(path)) as url:
        for words in (['verify'], ['ls', '-l'], ['info']):
            asked.clear()
            got, want = (re.sub(r'(?m)^(source|engine|sandbox) .*\n|^.* _(CHECKPOINT_)?METADATA\n', '', run(*words, source).stdout)
                         for source in (url, item))
            assert got == want
            assert max(map(asked.count, asked)) <= 2, asked
        first, last = (next(p for p in item.rglob(f'*{leaf}*/**/0*') if p.is_file()) for leaf in ('bias', 'kernel'))
        first.unlink()
        last.write_bytes(last.read_bytes()[:-1])
        r = run('verify', url, ok=False)
        assert r.returncode == 1 and ': 2 errors' in r.stdout and 'every chunk is' in r.stdout, r.stdout
        for chunk in (first, last):
            assert f'{chunk.relative_to(item).as_posix().removeprefix("state/")}\'' in r.stdout, (chunk, r.stdout)


def test_sizes_take_no_shard_index(run, copy, cases):
    """Those of an array in shards are of its objects: that the index of one is damaged hides neither its size nor the sum."""
    item = copy(cases('mesh-perleaf-zarr3-v0'))
    shard = item / 'long/c/0'
    shard.write_bytes(shard.read_bytes()[:-1] + bytes([shard.read_bytes()[-1] ^ 1]))
    ranges = []
    with servers.faulty(item, lambda path, offset: ranges.append((path, offset))) as url:
        assert 'cannot be read' not in run('ls', '-l', url).stdout
        assert ('/long/c/0', 0) in ranges and not any('/c/' in path and offset for path, offset in ranges), ranges
        sizes = re.search(r'(?m)^logical_bytes .*\n', run('info', item).stdout)[0]
        assert sizes in run('info', url).stdout
        assert 'shard index' in run('cat', f'{url}/long.npy', ok=False, text=False).stderr.decode()


def test_a_raw_leaf_that_is_read_again_is_kept(mount, tmp_path):
    """The page cache of this machine does not have a server's files: the mount's keeps a leaf from the second pass on."""
    (tmp_path / 'root').mkdir()
    value = np.random.default_rng(5).standard_normal(6 << 20, np.float32)
    step = saving.saved(mount, tmp_path / 'root', 'compression=none', files={'w.npy': value})
    asked = []
    with servers.faulty(step, lambda path, offset: asked.append(path)) as url:
        m = mount(url, 'cache=16M', 'read_budget=16M')
        passes = []
        # The third makes no request, unless the kernel has reclaimed pages.
        while len(passes) < 3 or passes[-1] and len(passes) < 10:
            asked.clear()
            assert compare.read_all(m / 'w.npy').endswith(value.tobytes())
            passes.append(sum('/d/' in path for path in asked))
    assert passes[0] > 2 and passes[-1] == 0, passes


def test_a_json_item_of_orbax_v1(run, cases, tmp_path):
    """Its handler calls the file data.json. If it were not found, nothing would be in the item, and verify and load() would fail."""
    case = cases('v1-json-item')
    with servers.nginx(tmp_path / 'server', case.path) as url:
        assert run('cat', f'{url}/config/data.json', text=False).stdout == (case.path / 'config/data.json').read_bytes()
        assert '0 errors' in run('verify', url).stdout


def test_a_url_with_escapes(run, tmp_path):
    """A URL is asked for as it was given, names below it are escaped."""
    shutil.copytree(SAMPLE / '1500/state', tmp_path / 'root/a b/state')
    with servers.nginx(tmp_path / 'server', tmp_path / 'root') as url:
        for name in ('step.npy', 'params/embed/table[0:2].npy'):
            assert run('cat', f'{url}/a%20b/state/{name}', text=False).stdout == run('cat', SAMPLE / '1500/state' / name, text=False).stdout
        assert run('ls', f'{url}/a%20b/state').stdout == run('ls', SAMPLE / '1500/state').stdout


def test_it_is_read_only(mount, web):
    m = mount(f'{web}/sample/1500', allow_errors=True)
    with pytest.raises(OSError):
        os.mkdir(m / 'x.tmp')
    with pytest.raises(OSError):
        (m / LEAF).write_bytes(b'')


def test_certificates(run, tmp_path, leaf):
    cert = servers.certificate(tmp_path)
    with servers.nginx(tmp_path / 'tls', SAMPLE.parent, cert) as url:
        where = f'{url}/sample/1500/{LEAF}'
        assert run('cat', where, text=False, env=dict(os.environ, SSL_CERT_FILE=str(cert[0]))).stdout == leaf
        r = run('cat', where, ok=False)
        assert r.returncode == 1 and 'certificate' in r.stderr, r.stderr


def test_a_mount_over_https(mount, tmp_path, monkeypatch, leaf):
    cert = servers.certificate(tmp_path)
    monkeypatch.setenv('SSL_CERT_FILE', str(cert[0]))
    with servers.nginx(tmp_path / 'tls', SAMPLE.parent, cert) as url:
        assert (mount(f'{url}/sample/1500') / LEAF).read_bytes() == leaf


@pytest.mark.parametrize('url, why', [
    ('{}/sample', 'nothing can be listed'),
    ('{}/sample/none', 'nothing can be listed'),
    ('http://user:secret@127.0.0.1/x', 'a password in front of its host is not taken'),
    ('ftp://127.0.0.1/x', 'a source is a path, or a URL of http, https, s3 or gs'),
    ('{}/sample/1500?y', 'the query of a URL is not sent'),
])
def test_refusals(run, web, url, why):
    r = run('ls', url.format(web), ok=False)
    assert r.returncode == 1 and why in r.stderr, r.stderr
    assert 'secret' not in r.stderr


@pytest.mark.option('connections')
def test_connections(run, leaf):
    """Many requests at once for the names of a directory; over two connections the result is the same."""
    made = []
    for options in ((), ('-o', 'connections=2')):
        with servers.faulty(SAMPLE, made=made) as url:
            assert run('cat', *options, f'{url}/1500/{LEAF}', text=False).stdout == leaf
    assert made[0].most_connections > 2 and made[1].most_connections == 2


@pytest.mark.parametrize('root, name, most', [(SAMPLE / '1500/state', 'step.npy', 3), (SAMPLE, f'1500/{LEAF}', 4)])
def test_round_trips_of_a_leaf(run, root, name, most):
    """Requests for: the contents of each part of the path, documents with their bytes; of a long path the rest of what the item has; the node of the
    database; the chunk. Nothing is asked for twice."""
    made = []
    with servers.faulty(root, made=made) as url, rounds.Rounds(made[0]) as trips:
        got = run('cat', f'{url}/{name}', text=False).stdout
    assert got == run('cat', root / name, text=False).stdout
    assert len(trips) <= most, str(trips)
    # Nor about a thing that was read.
    asked = [q.split(' ')[1] for asked in trips.rounds for q in asked if '/d/' not in q]
    assert len(set(asked)) == len(asked), str(trips)


def test_a_link_with_a_query(run, tmp_path):
    """As a hub's page copies it."""
    save_file({'w': np.arange(3.0)}, tmp_path / 'model.safetensors')
    with servers.faulty(tmp_path) as url:
        for command in (['ls'], ['cat'], ['info'], ['stats'], ['verify'], ['convert', '--only', 'w']):
            r = run(*command, f'{url}/model.safetensors?download=true', *([tmp_path / 'out'] if command[0] == 'convert' else []), ok=False)
            assert r.returncode and f"no such name: is '{url}/model.safetensors' meant?" in r.stderr, (command, r.stderr)


def test_requests_for_a_leaf_of_a_model(run, tmp_path):
    """Of safetensors files: the directory is found once, and its index and each header are read once, however deep the name of the leaf is."""
    model = tmp_path / 'root/model'
    model.mkdir(parents=True)
    names = [f'model-{i:05}-of-00003.safetensors' for i in range(1, 4)]
    for i, name in enumerate(names):
        save_file({f's{i}.layer.block.w': np.full(64, i, np.float32)}, model / name)
    weights = {f's{i}.layer.block.w': name for i, name in enumerate(names)}
    (model / 'model.safetensors.index.json').write_text(json.dumps({'metadata': {}, 'weight_map': weights}))
    asked = []
    with servers.faulty(tmp_path / 'root', guard=lambda h: asked.append((h.command, h.path)) and False) as url:
        got = run('cat', f'{url}/model/s1/layer/block/w.npy', text=False).stdout
    assert got == run('cat', model / 's1/layer/block/w.npy', text=False).stdout
    # For each part of the path the names that a directory may be known by; all names of the model's directory, and of the one above.
    assert len(asked) < 90, asked
    assert all(asked.count(('GET', f'/model/{name}')) == 1 for name in (*names, 'model.safetensors.index.json')), asked


@contextlib.contextmanager
def ranges_of_data(step, more_than=0):
    """A server of the step, and the ranges of data files of more bytes that are asked for: once, as what waits for long is asked for again."""
    asked = set()

    def note(h, content, start, end):
        if end - start > more_than:
            asked.add((h.path, start, end))
    with servers.faulty(step, lambda path, offset: note if '/d/' in path else None) as url:
        yield url, asked


def total(ranges):
    return sum(end - start for _, start, end in ranges)


def test_cat_fetches_the_leaf_and_no_other_one(run, tmp_path):
    """A program that reads leaf after leaf from a server finds the next ones fetched; `cat` reads the one that it was given."""
    tree = tmp_path / 'tree'
    tree.mkdir()
    for i in range(8):
        np.save(tree / f'w{i}.npy', np.random.default_rng(i).integers(256, size=1 << 18, dtype=np.uint8))
    run('save', '-o', 'compression=none', tree, tmp_path / 'root/1')
    with ranges_of_data(tmp_path / 'root/1') as (url, fetched):
        assert run('cat', f'{url}/default/w0.npy', text=False).stdout == (tree / 'w0.npy').read_bytes()
    assert 1 << 18 <= total(fetched) < 2 << 18, fetched


def test_chunks_that_lie_within_a_mebibyte_are_one_request(run, tmp_path):
    """Those of every fourth row, 768 KiB apart; every sixth, more than 1 MiB apart, by itself, without the bytes between them."""
    (tmp_path / 'tree').mkdir()
    np.save(tmp_path / 'tree/w.npy', np.random.default_rng(1).integers(256, size=(32, 1 << 18), dtype=np.uint8))
    run('save', '-o', 'compression=zstd:1,chunk_byte_size=256K,shard_axes=0,threads=1', tmp_path / 'tree', tmp_path / 'root/1')
    for view, few in (('[::4]', True), ('[::6]', False)):
        with ranges_of_data(tmp_path / 'root/1', 64 << 10) as (url, asked):
            got = run('cat', f'{url}/default/w{view}.npy', text=False).stdout
        assert got == run('cat', tmp_path / f'root/1/default/w{view}.npy', text=False).stdout
        # The first chunk may be requested before the others.
        assert len(asked) <= 2 if few else len(asked) == 6 and total(asked) < 2 << 20, asked


@pytest.mark.parametrize('view, most, most_bytes', [('[::4]', 20, 10 << 20), ('[:,7]', 20, 10 << 20), ('[::512]', 20, 256 << 10), ('[9:11,5:9]', 4, 5 << 20)])
def test_a_view_of_a_raw_leaf_takes_few_requests(run, tmp_path, view, most, most_bytes):
    """Its runs are short. Those that are near each other are requested together, others by themselves."""
    (tmp_path / 'tree').mkdir()
    np.save(tmp_path / 'tree/w.npy', np.random.default_rng(1).integers(256, size=(2048, 4096), dtype=np.uint8))
    run('save', '-o', 'compression=none', tmp_path / 'tree', tmp_path / 'root/1')
    with ranges_of_data(tmp_path / 'root/1') as (url, asked):
        got = run('cat', f'{url}/default/w{view}.npy', text=False).stdout
    assert got == run('cat', tmp_path / f'root/1/default/w{view}.npy', text=False).stdout
    assert len(asked) <= most and total(asked) <= most_bytes, asked


# ---- faults ----


def reset(h, *_):
    h.reset()
    return True


def busy(h, *_):
    h._head(503, 0, Retry_After='0')
    return True


def whole(h, content, start, end):
    h._head(200, len(content))
    h.wfile.write(content)
    return True


def longer(h, content, start, end):
    h._head(206, end - start + 1, Content_Range=f'bytes {start}-{end - 1}/{len(content)}')
    h.wfile.write(content[start:end] + b'x')
    return True


def other(h, content, start, end):
    h._head(206, end - start, Content_Range=f'bytes 0-{end - start - 1}/{len(content)}')
    h.wfile.write(content[:end - start])
    return True


def truncated(h, content, start, end):
    h.send_response(206)
    h.send_header('Content-Range', f'bytes {start}-{end - 1}/{len(content)}')
    h.send_header('Content-Length', str(end - start))
    h.end_headers()
    h.wfile.write(content[start:end][:(end - start) // 2])
    h.reset()
    return True


class Times:
    """The fault of ranges of data files, the first n times that one is asked for."""

    def __init__(self, fault, n):
        self.fault, self.left, self.lock = fault, n, threading.Lock()

    def __call__(self, path, offset):
        with self.lock:
            if '/d/' not in path or not self.left:
                return None
            self.left -= 1
            return self.fault


@pytest.mark.parametrize('fault', [reset, busy, truncated])
def test_a_fault_that_passes(run, leaf, fault):
    with servers.faulty(SAMPLE, Times(fault, 2)) as url:
        assert run('cat', f'{url}/1500/{LEAF}', text=False).stdout == leaf


@pytest.mark.parametrize('fault, why', [
    (reset, 'after 6 tries'), (busy, 'status 503, after 6 tries'),
    (whole, 'the whole object (status 200) in place of the range'),
    (longer, 'the answer has'), (other, 'in its place'),
])
def test_a_fault_that_stays(run, fault, why):
    with servers.faulty(SAMPLE, Times(fault, 1000)) as url:
        r = run('cat', f'{url}/1500/{LEAF}', ok=False, text=False)
        said = r.stderr.decode()
        assert r.returncode == 1 and why in said and '/d/' in said and ' bytes' in said and 'offset' in said, said


@pytest.mark.parametrize('fault', [busy, whole, other])
def test_verify_of_a_server_that_fails(run, fault):
    """A failure of the server is not damage: what could not be read is unchecked, and the rest is checked."""
    with servers.faulty(SAMPLE, lambda path, offset: fault if '/d/' in path and offset else None) as url:
        r = run('verify', '--json', f'{url}/1500', ok=False)
    found, sound = json.loads(r.stdout), json.loads(run('verify', '--json', SAMPLE / '1500').stdout)
    assert r.returncode == 2 and found['errors'] == found['warnings'] == 0, r.stdout
    assert found['unchecked'] == len(found['findings']) > 0 and {f['severity'] for f in found['findings']} == {'unchecked'}
    assert found['leaves'] == sound['leaves'] and 0 < found['chunks'] < sound['chunks']


def test_an_object_that_is_replaced(mount, tmp_path):
    """Between two reads of a file that is open: an error that names it, and never some of both."""
    shutil.copytree(SAMPLE / '1500', tmp_path / 'step')
    with servers.faulty(tmp_path / 'step') as url:
        m = mount(url, 'cache=0', allow_errors=True)
        os.stat(m / LEAF)
        compare.read_all(m / 'state/params/embed/table[0:1].npy')
        mounts.wait_for_release(m)
        for where, _, names in os.walk(tmp_path / 'step'):
            for name in names:
                if os.path.basename(where) == 'd':
                    file = pathlib.Path(where) / name
                    file.write_bytes(bytes(b ^ 1 for b in file.read_bytes()))
        with pytest.raises(OSError):
            compare.read_all(m / LEAF)
        assert any('was replaced' in line and '/d/' in line for line in m.log_lines()), m.log_lines()


@pytest.mark.parametrize('ocdbt', [True, False], ids=['database', 'directories'])
def test_no_leaf_is_read_of_objects_that_came_later(mount, tmp_path, ocdbt):
    """Files without checksums are replaced by ones of the same size: no leaf has values of the new ones, at any time."""
    import orbax.checkpoint as ocp0             # takes two seconds
    leaves = {f'w{i}': np.arange(4096, dtype=np.float32) + i for i in range(8)}
    handler = ocp0.PyTreeCheckpointHandler(use_compression=False, use_ocdbt=ocdbt)
    with ocp0.Checkpointer(handler) as checkpointer:
        checkpointer.save(tmp_path / 'item', args=ocp0.args.PyTreeSave(leaves | {'name': 'the old one'}))
    made = []

    def read(name):
        try:
            content = compare.read_all(m / name)
        except OSError as e:
            assert e.errno in (errno.ESTALE, errno.EIO), name
        else:
            assert content == b'the old one' if name == 'name.txt' else \
                np.array_equal(np.load(io.BytesIO(content)), leaves[name.removesuffix('.npy')]), name

    with servers.faulty(tmp_path / 'item', made=made) as url:
        m = mount(url, 'cache=0,direct_io=on', allow_errors=True)
        assert np.array_equal(np.load(io.BytesIO(compare.read_all(m / 'w0.npy'))), leaves['w0'])
        for data in (path for path in (tmp_path / 'item').rglob('*') if path.is_file() and path.name != '_METADATA'):
            content = data.read_bytes().replace(b'the old one', b'the new one')
            for value in leaves.values():
                content = content.replace(value.tobytes(), (-value).tobytes())
            data.write_bytes(content)
            # Later than what was opened, whose time has a resolution of one second.
            os.utime(data, (time.time() + 10,) * 2)
        made[0].ahead = 20
        for _ in range(3):
            for name in ('name.txt', *(f'{name}.npy' for name in leaves)):
                read(name)
        assert any('was replaced' in line for line in m.log_lines()), m.log_lines()
        if not ocdbt:
            # An object that was there is not a chunk of the fill value from then on.
            (tmp_path / 'item/w0/0').unlink()
            read('w0.npy')


def test_an_object_that_is_deleted(mount, tmp_path):
    """Between two reads of a file that is open: an error that names it and the range; others are read."""
    shutil.copytree(SAMPLE / '1500', tmp_path / 'step')
    with servers.faulty(tmp_path / 'step') as url:
        m = mount(url, 'cache=0', allow_errors=True)
        compare.read_all(m / 'state/params/embed/table[0:1].npy')
        mounts.wait_for_release(m)
        for data in (tmp_path / 'step').rglob('d/*'):
            data.unlink()
        with pytest.raises(OSError):
            compare.read_all(m / LEAF)
        assert any('/d/' in line and ' bytes' in line and 'offset' in line for line in m.log_lines()), m.log_lines()
        assert compare.read_all(m / 'metrics/metrics') == (SAMPLE / '1500/metrics/metrics').read_bytes()


@pytest.mark.parametrize('fault, why', [('other host', '127.0.0.1'), ('expired', 'expired')])
def test_certificates_that_are_refused(run, tmp_path, fault, why):
    cert = servers.certificate(tmp_path, name='192.0.2.1' if fault == 'other host' else None, is_expired=fault == 'expired')
    with servers.nginx(tmp_path / 'tls', SAMPLE.parent, cert) as url:
        r = run('cat', f'{url}/sample/1500/{LEAF}', ok=False, env=dict(os.environ, SSL_CERT_FILE=str(cert[0])))
    assert r.returncode == 1 and 'certificate' in r.stderr and why in r.stderr, r.stderr


def test_without_ranges_nothing_is_guessed(run):
    """A server that knows no ranges at all gives small files, which are whole, and no part of a larger one."""
    with servers.faulty(SAMPLE, lambda path, offset: whole) as url:
        r = run('cat', f'{url}/1500/{LEAF}', ok=False, text=False)
        assert r.returncode == 1 and b'status 200' in r.stderr, r.stderr
