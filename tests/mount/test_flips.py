# SPDX-License-Identifier: Apache-2.0
"""One flipped bit anywhere in the data files of what we write is found: by `verify`, which names file, leaf and
offset, and by reading through a mount."""

import io
import json
import os
import random
import re
import shutil

import numpy as np
import pytest

from lib import strace
from lib.pairs import LONG

ARRAYS = {'small': (3000, 1), 'rows': (40_000, 7), 'noise': (9000, 0), 'tiny': (5, 1)}
LAYOUTS = [(), ('zarr=3',), ('compression=none',), ('zarr=3', 'compression=none')]
DIRECTORIES = [('ocdbt=off', 'compression=none'), ('ocdbt=off',), ('ocdbt=off', 'zarr=3', 'compression=none')]
SHARE = 1 if LONG else 10      # of the flips: the others of the same kinds are for tests/run --all
TABLES = '.crc32c'      # directory of checksums beside the leaves of a directory store


def arrays():
    rng = np.random.default_rng(3)
    out = {name: np.arange(n, dtype=np.int32) // per if per else rng.standard_normal(n).astype(np.float32)
           for name, (n, per) in ARRAYS.items()}
    # A zarr document that is too long for a node: rank 12 and long extents.
    out['many_axes'] = np.arange(2048, dtype=np.float16).reshape((2,) * 11 + (1,))
    return out


@pytest.fixture
def step(run, tmp_path):
    """step(*options): a saved step, the only one of its root."""
    def make(*options):
        files = tmp_path / 'files'
        files.mkdir()
        for name, array in arrays().items():
            np.save(files / f'{name}.npy', array)
        run('save', *(('-o', ','.join(options)) if options else ()), files, tmp_path / 'root/1')
        return tmp_path / 'root/1'
    return make


def flip(path, bit):
    """In a file of its own: it may have a link elsewhere."""
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.unlink()
    path.write_bytes(data)


def values(run, step):
    """File of a database -> [(offset, end of the checksum)] of the values in it, in order."""
    out = {}
    for name in arrays():
        for found in re.findall(r'"value:(.*?):(\d+):(\d+)"', run('explain', '--json', step / f'default/{name}.npy').stdout):
            out.setdefault(found[0], []).append((int(found[1]), int(found[1]) + int(found[2]) + 16))
    return {file: sorted(places) for file, places in out.items()}


def is_padding(places, at):
    """Whether a byte is one of those that align a raw value: no reader looks at them."""
    return any(end <= at < begin < end + 4096 for (_, end), (begin, _) in zip(places, places[1:]))


def flipped_copies(run, step, n, rng):
    """n more steps beside it, each with one bit flipped: step -> (path in the item, bit)."""
    places = values(run, step)
    files = [p.relative_to(step) for p in sorted((step / 'default').rglob('*'))
             if p.is_file() and p.name not in ('_METADATA', 'manifest.ocdbt', 'commit_success.txt')]
    sizes = [(step / p).stat().st_size for p in files]
    flips = {}
    for i in range(2, n + 2):
        copy = step.parent / str(i)
        shutil.copytree(step, copy, copy_function=os.link)
        path = rng.choices(files, sizes)[0]
        bit = rng.randrange(8 * (step / path).stat().st_size)
        while is_padding(places.get(str(path.relative_to('default')), []), bit // 8):
            bit = rng.randrange(8 * (step / path).stat().st_size)
        flip(copy / path, bit)
        flips[str(i)] = (f'{i}/{path}', bit)
    return flips


def findings(run, root):
    r = run('verify', '--json', root, ok=False)
    doc = json.loads(r.stdout)
    found = {}
    for f in doc['findings']:
        found.setdefault(f['file'].split('/')[0], []).append(f)
    return found


def names_place(f, path, bit):
    """The file, and the offset: of the value, whose checksum follows it."""
    if TABLES in path:
        return f['file'] == f'{path.split("/")[0]}/default/{TABLES}' and os.path.basename(path) in f['text']
    return f['file'] == path and f.get('offset') is not None and f['offset'] <= bit // 8 < f['offset'] + f['length'] + 16


@pytest.mark.parametrize('options', LAYOUTS + DIRECTORIES, ids=lambda o: ','.join(o) or 'default')
def test_verify_finds_every_flip(run, step, options):
    n = (1000 if not options else 200) // SHARE
    one = step(*options)
    flips = flipped_copies(run, one, n, random.Random(5))
    found = findings(run, one.parent)
    assert set(found) == set(flips), f'not found: {[flips[s] for s in set(flips) - set(found)][:5]}'
    for s, (path, bit) in flips.items():
        good = [f for f in found[s] if names_place(f, path, bit)]
        assert good, (path, bit, found[s])
        assert any(f['leaf'] for f in good) or 'node' in good[0]['text'] or TABLES in path, good


@pytest.mark.parametrize('options', [*LAYOUTS[:2], ('ocdbt=off',)], ids=lambda o: ','.join(o) or 'default')
def test_reading_finds_every_flip(run, step, mount, options):
    """Each leaf is right or an error: the one that was hit is the error."""
    n = (1000 if not options else 100) // SHARE
    one = step(*options)
    flips = flipped_copies(run, one, n, random.Random(6))
    good = arrays()
    m = mount(one.parent, allow_errors=True)
    missed = []
    for s in flips:
        errors = 0
        for name, array in good.items():
            try:
                assert np.array_equal(np.load(m / s / 'default' / f'{name}.npy'), array), (s, name, flips[s])
            except OSError:
                errors += 1
        if not errors:
            missed.append(flips[s])
    assert not missed
    log = '\n'.join(m.log_lines())
    assert re.search(r'value:(d/[0-9a-f]{32}|rows/0):\d+:\d+', log)


@pytest.mark.parametrize('options', LAYOUTS + DIRECTORIES, ids=lambda o: ','.join(o) or 'default')
def test_it_says_what_is_covered(run, step, options):
    one = step(*options)
    doc = json.loads(run('verify', '--json', one).stdout)
    assert doc['without_checksum'] == {'leaves': 0, 'raw_bytes': 0, 'compressed_bytes': 0}
    assert re.search(r'^5 leaves, .* are covered by checksums; 0 leaves, 0 B cannot be$', run('verify', one).stdout, re.M)


@pytest.mark.parametrize('options,bare', [((), False), (('compression=none',), False), (('ocdbt=off',), False),
                                          (('ocdbt=off', 'compression=none'), False),
                                          (('ocdbt=off', 'compression=none'), True)])
def test_info_and_report_say_what_is_covered(run, step, options, bare):
    """As verify does: nothing of raw chunks without the table."""
    one = step(*options)
    if bare:
        shutil.rmtree(one / 'default' / TABLES)
    verified = json.loads(run('verify', '--json', one).stdout)
    said = json.loads(run('info', '--json', one / 'default').stdout)['checksums']
    without = verified['without_checksum']
    assert said['leaves_without'] == without['leaves'] == (5 if bare else 0)
    assert said['bytes_without'] == without['raw_bytes'] == (verified['stored_bytes'] if bare else 0)
    assert said['leaves'] == 5 - said['leaves_without']
    covered = f"{said['leaves']} leaves, {said['bytes']} bytes are covered; "
    assert re.search(rf"^checksums +{covered}{said['leaves_without']} leaves, .* cannot be$", run('info', one / 'default').stdout, re.M)
    page = run('report', one, one.parent.parent / 'page.html').stdout
    assert f"{said['leaves']} leaves, {said['bytes']} stored bytes are covered by checksums; " in page
    assert f"; {said['leaves_without']} leaves, {said['bytes_without']} bytes cannot be" in page
    leaf = json.loads(run('info', '--json', one / 'default/rows.npy').stdout)['checksums']
    assert leaf['leaves'] + leaf['leaves_without'] == 1 and (leaf['bytes_without'] > 0) == bare


def test_a_leaf_that_cannot_be_opened_is_not_covered(run, step):
    """Nor bare: verify, info and report count it as neither."""
    one = step('ocdbt=off')
    (one / 'default/rows/.zarray').unlink()
    doc = json.loads(run('verify', '--json', one, ok=False).stdout)
    said = json.loads(run('info', '--json', one / 'default', ok=False).stdout)['checksums']
    assert doc['leaves'] == 5 and doc['unopened_leaves'] == said['leaves_unopened'] == 1
    assert said['leaves'] == 4 and said['leaves_without'] == doc['without_checksum']['leaves'] == 0
    words = r'^4 leaves, .* are covered by checksums; 0 leaves, 0 \w+ cannot be; 1 lea(f|ves) cannot be opened$'
    assert re.search(words, run('verify', one, ok=False).stdout, re.M)
    assert re.search(words, run('report', one, one.parent.parent / 'page.html', ok=False).stdout, re.M)
    assert '; 1 leaf cannot be opened' in run('info', one / 'default', ok=False).stdout


def test_a_flip_is_found_before_it_is_copied(run, step, mount, tmp_path):
    """A copy by reference does not give a damaged value a new checksum."""
    one = step('compression=none')
    place = re.search(r'value:(\S+?):(\d+):(\d+)', run('explain', one / 'default/rows.npy').stdout)
    flip(one / 'default' / place[1], 8 * (int(place[2]) + 1000))
    (tmp_path / 'copy').mkdir()
    r = run('convert', one, tmp_path / 'copy/1', ok=False)
    assert r.returncode == 1 and 'rows' in r.stderr and 'crc32c' in r.stderr
    assert not os.path.exists(tmp_path / 'copy/1')


def test_a_table_that_is_not_one(run, step):
    """Its values are errors until it is removed; then they read as those of anybody else."""
    one = step('ocdbt=off', 'compression=none')
    table, = (one / 'default' / TABLES).iterdir()
    good = table.read_bytes()
    for bad in (b'', b'short', good[:-1], good + b'x', os.urandom(300)):
        table.write_bytes(bad)
        r = run('verify', one, ok=False)
        assert r.returncode == 1 and table.name in r.stdout, bad
        r = run('cat', one / 'default/rows.npy', ok=False)
        assert r.returncode and table.name in r.stderr, bad
    table.write_bytes(good)
    run('verify', one)
    table.unlink()
    run('verify', one)
    assert 'rows.npy' in run('ls', one / 'default').stdout
    assert np.array_equal(np.load(io.BytesIO(run('cat', one / 'default/rows.npy', text=False).stdout)), arrays()['rows'])


def test_info_looks_at_some_of_very_many_chunks(run, program, tmp_path):
    """The result is right when all chunks came from one writer; the cost does not grow with the chunks."""
    (tmp_path / 'f').mkdir()
    np.save(tmp_path / 'f/w.npy', np.arange(3000, dtype=np.int32))
    run('save', '-o', 'chunk_byte_size=8,ocdbt=off,compression=none', tmp_path / 'f', tmp_path / 'root/1')
    shutil.rmtree(tmp_path / 'root/1/default' / TABLES)
    r = strace.run('openat,openat2', tmp_path / 'calls', [program, 'info', '--json', tmp_path / 'root/1/default'],
                   capture_output=True, text=True)
    said = json.loads(r.stdout)['checksums']
    assert said['leaves_without'] == 1 and said['bytes_without'] == 12_000
    calls = [c for c in (tmp_path / 'calls').read_text().splitlines() if re.search(r'"w/\d+"', c)]
    assert len(calls) >= 3000, 'the listing looks for the size of each'
    assert 0 < len([c for c in calls if 'O_PATH' not in c]) < 500
