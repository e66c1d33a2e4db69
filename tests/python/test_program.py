# SPDX-License-Identifier: Apache-2.0
"""Functions that run the program: mount(), verify(), diff(), stats(), python -m pytreefs; and fsspec."""

import errno
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib

import mesonpy
import numpy as np
import pytest

import pytreefs
from lib import mounts, servers
from pytreefs._mount import _WORDS

TOP = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = TOP / 'tests' / 'data' / 'sample'
BUILD = pathlib.Path(os.environ['PYTREEFS_BUILD'])


def mounts_below(path):
    with open('/proc/self/mountinfo') as f:
        return [line.split()[4] for line in f if line.split()[4].startswith(str(path))]


# ---- links that are not followed ----

def test_a_link_that_is_not_followed_is_said(tmp_path):
    """Of a step with such metadata, and of a copy that is made of links: no function or command takes them for absent."""
    root, links = tmp_path / 'root', tmp_path / 'links'
    pytreefs.save(root / '7', {'w': np.arange(3)}, metadata={'a': 1})
    subprocess.run(['cp', '-rs', root, links], check=True)
    (root / '7/_CHECKPOINT_METADATA').rename(tmp_path / 'gone')
    (root / '7/_CHECKPOINT_METADATA').symlink_to('../../gone')
    said = "_CHECKPOINT_METADATA' leads out of"
    with pytest.raises(OSError, match=said):
        pytreefs.open(root / '7').metadata
    with pytest.warns(UserWarning, match=said):
        assert np.array_equal(pytreefs.load(root / '7')['w'], np.arange(3))
    program = os.environ['PYTREEFS_PROGRAM']
    for words in (['ls', root / '7'], ['tree', root], ['info', root], ['info', root / '7'], ['verify', root], ['convert', root / '7', tmp_path / 'out/7'],
                  ['ls', links / '7'], ['info', links], ['tree', links]):
        r = subprocess.run([program, *words], capture_output=True, text=True, check=False)
        assert said in r.stderr + (r.stdout if words[0] == 'verify' else ''), (words, r.stderr)
    m = mounts.Mount(program, root, tmp_path / 'mnt', tmp_path / 'log')
    try:
        assert any(said in line for line in m.log_lines())
        assert 'user.pytree.leaf_count' in os.listxattr(m / '7')
        with pytest.raises(OSError):
            os.getxattr(m / '7', 'user.pytree.custom_metadata')
    finally:
        m.unmount()


# ---- mount ----

def test_a_mount_for_a_block():
    with pytreefs.mount(SAMPLE) as path:
        assert sorted(os.listdir(path)) == ['1000', '1500']
        a = np.load(f'{path}/latest/state/rng.npy')
    assert not os.path.exists(path) and np.array_equal(a, pytreefs.load(SAMPLE / 'latest/state/rng.npy'))


def test_a_mount_survives_an_exception_and_open_files(tmp_path):
    where = tmp_path / 'mnt with blank'
    with pytest.raises(RuntimeError, match='mine'), pytreefs.mount(SAMPLE, where, restore_dtype='float32') as path:
        f = open(f'{path}/latest/state/params/embed/table.npy', 'rb')
        assert np.load(f).dtype == np.float32
        raise RuntimeError('mine')
    f.close()
    assert not mounts_below(tmp_path) and not where.exists()


def test_words_of_mount_are_options(tmp_path):
    """Those without a value: ro, and others of mount(8) and FUSE."""
    root = tmp_path / 'ck'
    shutil.copytree(SAMPLE, root)
    for options, fails in (({'ro': True}, True), ({'ro': False}, False), ({'ro': True, 'nosuid': True, 'restore_dtype': 'float32'}, True)):
        with pytreefs.mount(root, **options) as path:
            if fails:
                with pytest.raises(OSError, match='Read-only'):
                    os.mkdir(f'{path}/7.tmp')
            else:
                os.mkdir(f'{path}/7.tmp')
                os.rmdir(f'{path}/7.tmp')
            table = np.load(f'{path}/1500/state/params/embed/table.npy')
            assert (table.dtype == np.float32) == ('restore_dtype' in options)


def test_stats_beside_a_damaged_leaf(tmp_path):
    pytreefs.save(tmp_path / '1', {'a': np.arange(1000.0), 'b': np.arange(3000.0)}, ocdbt=False)
    chunk = next(p for p in tmp_path.rglob('default/b/*') if not p.name.startswith('.'))
    chunk.write_bytes(b'x' + chunk.read_bytes()[1:])
    with pytest.warns(UserWarning, match="without what could not be read: .*b.npy': chunk") as w:
        assert [row['path'] for row in pytreefs.stats(tmp_path / '1')] == ['default/a.npy']
    assert len(w) == 1
    with pytest.raises(pytreefs.Error, match='b.npy'):
        pytreefs.stats(tmp_path / '1', only='b')


def test_words_of_mount_are_those_of_the_program():
    """Keyword arguments without a value are what `pytreefs mount` accepts and passes on to FUSE."""
    text = (TOP / 'handlers/options/option_table.c').read_text(encoding='utf-8')
    accepted = re.findall(r'"(\w+)"', re.search(r'\bmount_words\[\] = \{(.*?)\};', text, flags=re.S)[1])
    assert len(accepted) > 10 and _WORDS == set(accepted)


def test_a_mount_whose_daemon_is_dead(tmp_path):
    where = tmp_path / 'mnt'
    where.mkdir()
    with pytreefs.mount(SAMPLE, where) as path:
        pids = [p for p in os.listdir('/proc') if p.isdigit() and is_daemon_of(p, path)]
        assert len(pids) == 1
        os.kill(int(pids[0]), signal.SIGKILL)
        mounts.wait_for(lambda: is_dead(path))
    assert not mounts_below(tmp_path) and where.is_dir() and not os.listdir(where)


def is_dead(path):
    """A mount whose daemon does not answer any more."""
    try:
        os.listdir(path)
    except OSError:
        return True
    return False


def is_daemon_of(pid, path):
    try:
        return path.encode() in pathlib.Path('/proc', pid, 'cmdline').read_bytes().split(b'\0') and \
            os.path.basename(os.readlink(f'/proc/{pid}/exe')).startswith('pytreefs')
    except OSError:
        return False


def test_a_mount_that_cannot_be(tmp_path):
    with pytest.raises(pytreefs.NotFoundError, match="has no 'nothing'") as e:
        with pytreefs.mount(tmp_path / 'nothing'):
            pass
    assert e.value.filename == str(tmp_path / 'nothing')
    with pytest.raises(pytreefs.Error, match='no_such_option'):
        with pytreefs.mount(SAMPLE, no_such_option=1):
            pass


def test_the_missing_package_is_named(monkeypatch):
    from pytreefs import _mount
    monkeypatch.setattr(_mount, '_helper', lambda: None)
    monkeypatch.setattr(_mount.os, 'geteuid', lambda: 1000)
    with pytest.raises(pytreefs.Error, match='package fuse3'):
        with pytreefs.mount(SAMPLE):
            pass


# ---- commands ----

def test_commands_as_objects(tmp_path):
    shutil.copytree(SAMPLE, tmp_path / 'ckpts')
    got = pytreefs.verify(tmp_path / 'ckpts' / '1000')
    assert isinstance(got, dict) and got
    assert pytreefs.diff(SAMPLE / '1000/state', SAMPLE / '1500/state')['differences']
    assert not pytreefs.diff(SAMPLE / '1000/state', SAMPLE / '1000/state', atol=1e-3, rtol=0.5)['differences']
    with pytest.raises(pytreefs.Error, match='is a directory of steps') as e:
        pytreefs.diff(SAMPLE, SAMPLE / '1500')
    assert e.value.errno == errno.EIO
    with pytest.raises(pytreefs.Error, match='not a tolerance') as e:
        pytreefs.diff(SAMPLE, SAMPLE, rtol=-1)
    assert e.value.errno == errno.EINVAL
    (tmp_path / 'ckpts/1500/state/_METADATA').write_text('{')
    with pytest.warns(UserWarning, match='without what could not be read: .*_METADATA'):
        assert pytreefs.diff(SAMPLE, tmp_path / 'ckpts')['unreadable'] == 1
    (tmp_path / 'empty').mkdir()
    with pytest.raises(pytreefs.Error, match='nothing was checked') as e:
        pytreefs.verify(tmp_path / 'empty')
    assert e.value.errno == errno.EIO
    rows = pytreefs.stats(SAMPLE / '1000/state', only='params/')
    with pytest.raises(pytreefs.Error):
        pytreefs.stats(SAMPLE / '1000/state', only='nosuch')
    assert rows and all(row['path'].startswith('params/') for row in rows)
    # In a checkpoint, and where no directory above it is one (/tmp may hold some of other runs).
    with tempfile.TemporaryDirectory(dir='/var/tmp') as elsewhere:
        (pathlib.Path(elsewhere) / 'notes.txt').write_text('not empty, which would be a place for steps')
        for where in (tmp_path / 'ckpts', pathlib.Path(elsewhere)):
            with pytest.raises(pytreefs.NotFoundError, match='nothing') as e:
                pytreefs.stats(where / 'nothing')
            assert e.value.filename == str(where / 'nothing')
            with pytest.raises(pytreefs.NotFoundError, match='nothing'):
                pytreefs.open(where / 'nothing')


def test_python_m_is_the_program():
    r = subprocess.run([sys.executable, '-m', 'pytreefs', 'ls', SAMPLE], capture_output=True, text=True, check=True)
    assert r.stdout.split() == ['1000/', '1500/']
    assert subprocess.run([sys.executable, '-m', 'pytreefs', 'nonsense'], capture_output=True).returncode == 2


# ---- fsspec ----

@pytest.fixture
def fs():
    fsspec = pytest.importorskip('fsspec')
    from pytreefs._fsspec import FileSystem
    fsspec.register_implementation('pytreefs', FileSystem, clobber=True)
    return fsspec.filesystem('pytreefs', skip_instance_cache=True)


def test_fsspec_lists_what_a_mount_shows(fs):
    with pytreefs.mount(SAMPLE) as mnt:
        for where in ('', '/1500', '/1500/state', '/1500/state/params/embed'):
            got = {e['name'].rpartition('/')[2]: e for e in fs.ls(f'pytreefs://{SAMPLE}{where}')}
            assert set(got) == set(os.listdir(mnt + where))
            for name, entry in got.items():
                st = os.stat(f'{mnt}{where}/{name}')
                assert entry['type'] == ('directory' if os.path.isdir(f'{mnt}{where}/{name}') else 'file')
                assert entry['type'] == 'directory' or entry['size'] == st.st_size
        files = sorted(os.path.relpath(os.path.join(d, f), mnt) for d, _, names in os.walk(mnt) for f in names)
        found = fs.find(str(SAMPLE))
        assert sorted(os.path.relpath(f, SAMPLE) for f in found) == files
        for name in files[::5]:
            assert fs.cat_file(f'{SAMPLE}/{name}') == pathlib.Path(mnt, name).read_bytes()
    assert fs.isdir(f'{SAMPLE}/1500') and not fs.exists(f'{SAMPLE}/1500/nope')
    with pytest.raises(FileNotFoundError):
        fs.info(f'{SAMPLE}/1500/nope')


def test_fsspec_takes_a_box_for_a_view_before_a_pattern(fs):
    table = f'{SAMPLE}/1500/state/params/embed/table'
    with fs.open(f'{table}[0:2].npy') as f:
        want = f.read()
    assert fs.cat_file(f'{table}[0:2].npy') == want and fs.cat_file(f'{table}[0:2].npy', 100, 140) == want[100:140]
    assert fs.cat(f'pytreefs://{table}[0:2].npy') == want
    for other in ('table@64x32.npy', 'table@float32.bin', 'table@64x32[60:]@float32.npy'):
        with fs.open(os.path.join(os.path.dirname(table), other)) as f:
            assert fs.cat_file(f.path, 3, 999) == f.read()[3:999]
    assert fs.glob(f'{SAMPLE}/1500/state/params/embed/tabl[e].npy') == [f'{table}.npy']


def test_fsspec_has_the_latest_step(fs, tmp_path):
    """As every path of the package; it is the step that is the latest when the name is used."""
    for step in (9, 10):
        pytreefs.save(tmp_path / str(step), {'x': step})
        assert fs.cat_file(f'{tmp_path}/latest/default/x.json') == b'%d\n' % step
        assert set(map(os.path.basename, fs.ls(f'{tmp_path}/latest', detail=False))) == {'_CHECKPOINT_METADATA', 'default'}
        assert 'latest' not in map(os.path.basename, fs.ls(str(tmp_path), detail=False))


def test_fsspec_files_are_seekable(fs):
    import fsspec
    path = f'{SAMPLE}/1500/state/params/embed/table@float32.npy'
    with fsspec.open(f'pytreefs://{path}') as f:
        a = np.load(f)
        f.seek(-4, io.SEEK_END)
        assert f.read() == a.tobytes()[-4:] and f.read(1) == b''
    assert a.dtype == np.float32
    with pytest.raises(OSError), fsspec.open(f'pytreefs://{path}', 'wb') as f:
        pass


def test_cat_ranges_cut_anything(fs, cases):
    """Random ranges of every file, across headers, elements and rows, in one batch."""
    import random
    r = random.Random(16)
    for name in ('chunked-ocdbt-zarr2-v0', 'dtypes-ocdbt-zarr2'):
        root = cases(name).path
        files = [f for f in fs.find(str(root)) if not f.rpartition('/')[2].startswith('_')]
        whole = dict(zip(files, fs.cat_ranges(files, [None] * len(files), [None] * len(files))))
        paths = [r.choice(files) for _ in range(300)]
        starts = [r.choice([None, 0, r.randrange(len(whole[p]) + 1)]) for p in paths]
        ends = [r.choice([None, r.randrange(len(whole[p]) + 9), -r.randrange(9)]) for p in paths]
        got = fs.cat_ranges(paths, starts, ends)
        for p, a, b, data in zip(paths, starts, ends, got):
            assert data == whole[p][slice(a, b)], (p, a, b)
        with pytreefs.open(root) as ck:
            for f in files:
                if f.endswith('.npy'):
                    a = np.load(io.BytesIO(whole[f]))
                    assert a.tobytes() == np.asarray(ck[f[len(str(root)) + 1:]]).tobytes()
    got = fs.cat_ranges([files[0], str(root / 'nope.npy')], [0, 0], [4, 4])
    assert got[0] == whole[files[0]][:4] and isinstance(got[1], FileNotFoundError)


def test_readers_of_others(fs, tmp_path):
    """safetensors takes the bytes of a view, and text files open as text."""
    import safetensors.numpy
    data = fs.cat_file(f'{SAMPLE}/1500/state/params@float32.safetensors')
    assert safetensors.numpy.load(data)['embed.table'].shape == (128, 32)
    import fsspec
    with fsspec.open(f'pytreefs://{SAMPLE}/1500/state/step.json', 'rt') as f:
        assert f.read() == '1500\n'


def test_pandas_reads_texts_and_documents(fs, tmp_path):
    import pandas
    rows = pandas.DataFrame({'step': range(2000), 'loss': np.linspace(4, 1, 2000)})
    pytreefs.save(tmp_path / '7', {'log': rows.to_csv(index=False), 'lines': rows.to_json(orient='records', lines=True)})
    at = f'pytreefs://{tmp_path}/7/default'
    for got in (pandas.read_csv(f'{at}/log.txt'), pandas.read_csv(f'{at}/log.txt', storage_options={'cache': '1M'}),
                pandas.concat(pandas.read_csv(f'{at}/log.txt', chunksize=300)), pandas.read_json(f'{at}/lines.txt', lines=True)):
        pandas.testing.assert_frame_equal(got, rows)
    metrics = pandas.read_json(f'pytreefs://{SAMPLE}/latest/metrics/metrics', typ='series')
    assert metrics.to_dict() == pytest.approx(json.loads((SAMPLE / '1500/metrics/metrics').read_text()))
    with pytest.raises(FileNotFoundError):
        pandas.read_csv(f'{at}/other.txt')
    with pytest.raises(OSError):
        rows.to_csv(f'{at}/new.txt')


@pytest.mark.parametrize('version', [2, 3])
def test_zarr_reads_stored_arrays(fs, tmp_path, version):
    """Of an item with a directory for each array, by the files that `.pytreefs/stored` shows."""
    import zarr
    tree = {'big': np.arange(300_000, dtype=np.float32).reshape(500, 600), 'small': np.array([1, -2, 3], np.int16), 'x': np.float64(0.5)}
    pytreefs.save(tmp_path / '7', tree, ocdbt='off', zarr=version, chunk_byte_size='100K')
    stored = f'pytreefs://{tmp_path}/.pytreefs/stored/7/default'
    for name in ('big', 'small'):
        a, want = zarr.open(f'{stored}/{name}', mode='r'), tree[name]
        assert (a.metadata.zarr_format, a.shape, a.dtype) == (version, want.shape, want.dtype)
        assert np.array_equal(a[...], want) and np.array_equal(a[1:3], want[1:3])
    assert len(fs.find(f'{stored}/big')) > 5
    assert np.array_equal(zarr.open(f'{stored}/big', mode='r')[7:400:31, 1::97], tree['big'][7:400:31, 1::97])
    with pytest.raises(OSError):
        zarr.open(f'{stored}/small', mode='r+')[0] = 5
    assert pytreefs.load(tmp_path / '7')['small'][0] == 1


@pytest.mark.parametrize('first, printed', [('import json', '(128, 32) True embed.table 0.375\n'),
                                            ('import numpy as np, pandas', '0.75 0.375 [4. 6.]\n'),
                                            ('import numpy as np\nimport pytreefs\n\nrank', '')])
def test_the_examples_of_the_page(tmp_path, monkeypatch, capfd, first, printed):
    """Their lines, pasted beside a copy of the sample, with the protocol found as an entry point or registered."""
    pytest.importorskip('fsspec')
    page = (TOP / 'docs' / 'python.md').read_text()
    code, = [block for block in re.findall(r'```python\n(.*?)```', page, re.S) if block.startswith(first)]
    shutil.copytree(SAMPLE, tmp_path / 'ckpts')
    register = "import fsspec\nfrom pytreefs._fsspec import FileSystem\nfsspec.register_implementation('pytreefs', FileSystem, clobber=True)\n"
    monkeypatch.chdir(tmp_path)
    exec(register + code, {})
    assert capfd.readouterr().out == printed


def test_a_reader_that_seeks_in_small_pieces(fs):
    """A buffer of a few bytes over a file of ours: each seek and read reaches the file."""
    for name in ('params/embed/table@float32.npy', 'params.safetensors', 'run_name.txt'):
        with fs.open(f'{SAMPLE}/1500/state/{name}') as f:
            whole = f.read()
            buffered = io.BufferedReader(f, 8)
            for at in (0, len(whole) // 2, 3, max(len(whole) - 7, 0), len(whole), 1):
                buffered.seek(at)
                assert buffered.read(7) == whole[at:at + 7]


# ---- the wheel ----

def test_a_wheel_has_a_place_for_every_file():
    """Files of a wheel are installed in directories that meson-python knows; it makes no wheel with any other."""
    project = tomllib.loads((TOP / 'pyproject.toml').read_text())
    (tags,) = (o.removeprefix('--tags=').split(',') for o in project['tool']['meson-python']['args']['install'])
    plan = json.loads((BUILD / 'meson-info' / 'intro-install_plan.json').read_text())
    places = [e['destination'] for files in plan.values() for e in files.values() if e.get('tag') in tags]
    assert not [p for p in places if re.search(r'pkgconfig|libpytreefs|pytreefs\.h', p)]
    assert '{datadir}/man/man1/pytreefs.1' in places and '{py_platlib}/pytreefs/_pytreefs.abi3.so' in places
    assert not [p for p in places if p.split('/')[0] not in mesonpy._INSTALLATION_PATH_MAP]


@pytest.mark.serial
def test_a_wheel_is_made(tmp_path):
    """By the compiler's options of a release, with which it sees more; installed elsewhere it loads, and its program finds the
    one for URLs."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(('PYTREEFS_', 'PYTHONPATH'))}
    r = subprocess.run([TOP / 'tools/python/wheel', tmp_path / 'dist'], stderr=subprocess.PIPE, text=True, check=False, env=env, timeout=900)
    assert r.returncode == 0 and 'compiling a release' in r.stderr and '50 % are compiled' in r.stderr, r.stderr
    (wheel,) = (tmp_path / 'dist').glob('pytreefs-*.whl')
    subprocess.run([sys.executable, '-m', 'pip', 'install', '-q', '--no-deps', '--disable-pip-version-check', '--target', tmp_path / 'site', wheel],
                   check=True, env=env, timeout=240)
    # Neither is there a C library, which would need links, nor what would lead to one elsewhere.
    assert not [p for p in (tmp_path / 'site').rglob('*') if re.match(r'libpytreefs|pytreefs\.(pc|h)$', p.name)]
    program = f"import pytreefs; print(pytreefs.__file__, len(pytreefs.load({str(SAMPLE / '1500/state')!r})))"
    r = subprocess.run([sys.executable, '-c', program], check=True, capture_output=True, text=True, env={**env, 'PYTHONPATH': str(tmp_path / 'site')},
                       cwd=tmp_path, timeout=120)
    assert r.stdout.startswith(str(tmp_path / 'site')) and int(r.stdout.split()[1]) > 3, r.stdout
    with servers.nginx(tmp_path / 'server', SAMPLE) as url:
        # The scripts of that name start it; `--target` is not where they look.
        r = subprocess.run([tmp_path / 'site/pytreefs.scripts/pytreefs', 'cat', f'{url}/1500/state/step.json'], capture_output=True, text=True,
                           env=env, timeout=120)
    assert (r.returncode, r.stdout) == (0, '1500\n'), r.stderr
