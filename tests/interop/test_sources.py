# SPDX-License-Identifier: Apache-2.0
"""Every way to a model gives the same one of a source (lib/sources.py), or refuses it: the commands, a mount, the package, the library, and a
web server."""

import io
import json
import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest
import safetensors.numpy
import zarr

from lib import mounts, package, servers, sources, sources_hub  # noqa: F401
from lib.pairs import LONG

pytreefs = package.imported()
from pytreefs import _fsspec  # noqa: E402

BUCKET = 'of-names'
IN_MEMORY = True  # both for the fixtures


class Refused(Exception):
    pass


class Reader:
    """The ways: each gives {name: value, or None where it does not show values}."""

    def __init__(self, program, source, tmp, url, leaves):
        self.program, self.source, self.tmp, self.address, self.leaves = program, str(source), tmp, url, leaves

    def run(self, *words, **how):
        how = {'text': True} | how
        r = subprocess.run([self.program, *map(str, words)], capture_output=True, timeout=240, stdin=subprocess.DEVNULL, **how)
        if r.returncode:
            r.stderr, r.stdout = (x if how['text'] else x.decode() for x in (r.stderr, r.stdout))
            # Listings as JSON say there which entries cannot be read.
            assert r.stderr.strip() or '"error"' in r.stdout, f'{words}: status {r.returncode} without a message'
            raise Refused(r.stderr or r.stdout)
        return r.stdout

    def names(self, found):
        return {stem(name): None for name in found}

    # ---- commands that show ----

    def ls(self):
        """Of directories, the names of their first ones."""
        return {stem(e['name']) + ('/' if e['type'] == 'directory' else ''): None
                for e in json.loads(self.run('ls', '--json', self.source)) if e['type'] == 'directory' or 'dtype' in e}

    def tree(self):
        return self.names(name for name, entry in entries_of(json.loads(self.run('tree', '--json', self.source))) if 'dtype' in entry)

    def stats(self):
        return self.names(e['path'] for e in json.loads(self.run('stats', '--json', self.source)))

    def diff(self):
        return self.names(line[:-len(': same')] for line in self.run('diff', '-v', self.source, self.source).splitlines() if line.endswith(': same'))

    def report(self):
        page = self.run('report', self.source)
        document = json.loads(re.search(r'<script type="application/json" id="document">(.*?)</script>', page, re.DOTALL)[1])
        if 'steps' in document:
            return sum(step['leaves'] for step in document['steps'])
        return self.names(name for name, entry in entries_of(document['entries']) if 'dtype' in entry)

    def transform(self):
        rules = self.tmp / 'rules.json'
        rules.write_text('{"rules": []}')
        return self.names(e['leaf'] for e in json.loads(self.run('transform', '--json', '--check', rules, self.source)))

    def verify(self):
        """Warnings are of what Orbax would refuse."""
        r = subprocess.run([self.program, 'verify', '--json', self.source], capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)
        if r.returncode > 1 or json.loads(r.stdout)['errors']:
            raise Refused(r.stderr + r.stdout)
        return json.loads(r.stdout)['leaves']

    def info(self):
        return json.loads(self.run('info', '--json', self.source)).get('leaf_count')

    def cat(self):
        return {name: np.load(io.BytesIO(self.run('cat', f'{self.source}/{name}.npy', text=False))) for name in self.leaves}

    def explain(self):
        """Of one leaf."""
        name = self.leaves[-1]
        if json.loads(self.run('explain', '--json', f'{self.source}/{name}.npy'))['array_bytes']:
            return self.names(self.leaves)

    def dump(self):
        """Of an item with `_METADATA`."""
        above, found = [], []
        for line in self.run('dump', 'tree', self.source).splitlines()[2:]:
            indent, key, kind = re.fullmatch(r'( +)("(?:[^"\\\\]|\\\\.)*") (\w+).*', line).groups()
            above[len(indent) // 2 - 1:] = [json.loads(key)]
            found += ['/'.join(above)] if kind == 'leaf' else []
        return self.names(found)

    # ---- commands that write ----

    def merge(self):
        """Of a copy. Only an item with databases of processes has something to merge."""
        try:
            (shutil.copytree if os.path.isdir(self.source) else shutil.copy)(self.source, self.tmp / 'merged')
        except OSError as e:
            raise Refused(f'nothing to copy: {e}') from e
        self.run('merge', self.tmp / 'merged')
        return self.checkpoint(self.tmp / 'merged')

    def checkpoint(self, path):
        return {stem(name): value for name, value in flat_of(path)}

    def convert(self):
        self.run('convert', self.source, self.tmp / 'converted')
        return self.checkpoint(self.tmp / 'converted')

    def save(self):
        self.run('save', self.source, self.tmp / 'saved/7')
        return self.checkpoint(self.tmp / 'saved/7')

    def exported(self, name):
        self.run('export', self.source, self.tmp / name)
        return self.tmp / name

    def export_npz(self):
        with np.load(self.exported('out.npz')) as f:
            return {name.replace('.', '/'): f[name] for name in f.files if name != '__metadata__'}

    def export_safetensors(self):
        return {name.replace('.', '/'): value for name, value in safetensors.numpy.load_file(self.exported('out.safetensors')).items()}

    def export_zarr(self):
        top = zarr.open_group(self.exported('out.zarr'), mode='r')
        return {name: a[...] for name, a in top.members(max_depth=None) if isinstance(a, zarr.Array)}

    def export_npy(self):
        return files_of(self.exported('out'))

    # ---- a mount, the package ----

    def mount(self):
        try:
            m = mounts.Mount(self.program, self.source, self.tmp / 'mnt', self.tmp / 'log')
        except mounts.MountError as e:
            raise Refused(str(e)) from e
        try:
            return files_of(m.path, lambda path: 'user.pytree.dtype' in os.listxattr(path))
        finally:
            m.unmount()

    def library(self):
        with pytreefs.open(self.source) as ck:
            return self.names(leaf.name for leaf in ck.leaves() if leaf.kind in VALUES)

    def load(self):
        found = sources.flat(with_names(pytreefs.load(self.source)))
        return {name: value for name, value in found.items() if name.partition('/')[0] not in sources.NOT_TREES}

    def load_flat(self):
        return pytreefs.load_flat(self.source, separator='/')

    # ---- a web server, which cannot list ----

    def url(self):
        return Reader(self.program, self.address, self.tmp, None, self.leaves).load()

    def url_tree(self):
        return Reader(self.program, self.address, self.tmp, None, self.leaves).tree()


WAYS = [name for name in vars(Reader) if not name.startswith('_') and name not in ('run', 'names', 'checkpoint', 'exported')]
# They refuse what has nothing of the kind, or what they cannot know; all else has to be right.
MAY_REFUSE = {'dump': 'No such file|is neither a file nor|not JSON',
              'merge': 'is a directory of steps|has no per-process databases|no _METADATA and no arrays|Not a directory|exists, but is not part of a checkpoint|nothing to copy',
              'url': 'cannot list|nothing can be listed|is not a checkpoint|is not stored|no manifest.ocdbt',
              'url_tree': 'cannot list|nothing can be listed|is not a checkpoint|is not stored|no manifest.ocdbt'}
EXTENSIONS = '.npy', '.json', '.txt', '.null'


VALUES = 'array', 'scalar'


def entries_of(entries, above=''):
    """(path, entry) of a document of nested entries."""
    for entry in entries:
        name = above + entry['name']
        yield name, entry
        yield from entries_of(entry.get('entries', ()), f'{name}/')


def stem(name):
    return os.path.splitext(name)[0] if name.endswith(EXTENSIONS) else name


def with_names(node):
    if isinstance(node, (list, tuple)):
        node = dict(enumerate(node))
    return {str(key): with_names(value) for key, value in node.items()} if isinstance(node, dict) else node


def files_of(top, is_leaf=lambda path: True):
    found = {}
    for path in sorted(pathlib.Path(top).rglob('*')):
        if path.suffix in EXTENSIONS and path.is_file() and is_leaf(path):
            found[stem(path.relative_to(top).as_posix())] = np.load(path) if path.suffix == '.npy' else json.loads(path.read_text())
    return found


def flat_of(path):
    with pytreefs.open(path) as ck:
        for leaf in ck.leaves():
            if leaf.kind in VALUES:
                yield leaf.name, leaf.read()


@pytest.fixture(scope='module')
def base(tmp_path_factory):
    return sources.Base(tmp_path_factory.mktemp('base') / 'of/all/tests')


@pytest.fixture(scope='module')
def server():
    """server(path, top): its URL where top is all that the server has. A path that is nothing is looked for in each directory above it."""
    made = []
    with servers.faulty('/nothing', made=made) as url:
        def of(path, top):
            made[0].root = str(top)
            return f'{url}/{pathlib.Path(path).relative_to(top)}'
        yield of


def differences(want, got, way):
    if got is None or isinstance(got, int):
        return [] if got is None or got == len(want) else [f'{got} leaves, not {len(want)}']
    if way == 'ls':
        return [f'lacks {name}' for name in want if name not in got and name.partition('/')[0] + '/' not in got] \
            + [f'has {name}' for name in got if not name.endswith('/') and name not in want]
    # An item of its own where the source is one tree.
    if got.keys() != want.keys():       # what is converted becomes the item `default` of its step
        got = {re.sub('(^|/)default/', r'\1', name): value for name, value in got.items()}
    # It names leaves from their item.
    if way == 'transform' and got.keys() != want.keys():
        return [] if {name for name in got if any(f'/{name}'.endswith(f'/{w}') or f'/{w}'.endswith(f'/{name}') for w in want)} == got.keys() \
            and len(got) == len(want) else [f'has {sorted(got)}']
    faults = [f'lacks {name}' for name in want.keys() - got.keys()] + [f'has {name}' for name in got.keys() - want.keys()]
    for name in want.keys() & got.keys():
        if got[name] is not None and not np.array_equal(want[name], got[name]):
            faults.append(f'{name}: {got[name]!r}, not {want[name]!r}')
    return sorted(faults)


@pytest.mark.filterwarnings('ignore:.*(has lost its _METADATA|its server cannot list)')
@pytest.mark.parametrize('name', sources.SOURCES)
def test_every_way_gives_the_same_leaves(request, program, base, server, tmp_path, name):
    make, want, refused, to_do, over_http = sources.SOURCES[name]
    if to_do:
        request.applymarker(pytest.mark.xfail(reason=to_do, strict=True))
    # The directories of tests have numbers, and are not steps.
    (tmp_path / 'of/one/test/source').mkdir(parents=True)
    (tmp_path / 'of/one/test/notes').write_text('x')
    path = make(tmp_path / 'of/one/test/source', base)
    url = server(path, next(top for top in (tmp_path / 'of/one/test', base.root.parent) if pathlib.Path(path).is_relative_to(top)))
    faults = []
    for way in WAYS if LONG or over_http else [way for way in WAYS if way != 'url_tree']:
        (tmp_path / way).mkdir()
        try:
            got = getattr(Reader(program, path, tmp_path / way, url, list(want or ['w'])), way)()
        except (Refused, OSError) as e:
            if want is not sources.NOTHING and not re.search(refused.get(way) or MAY_REFUSE.get(way, '(?!)'), str(e)):
                faults.append(f'{way}: refuses: {e}')
            continue
        if way in refused:
            faults.append(f'{way}: does not refuse')
        faults += [f'{way}: {line}' for line in differences(over_http if over_http and 'url' in way else want or {}, got, way)]
    assert not faults, '\n'.join(faults)


def test_a_directory_is_not_a_step_by_what_lies_beside_it(program, base, tmp_path):
    """The message says what is in it; a name of a step in it leads to the same files with whatever was opened before."""
    runs = tmp_path / 'runs'
    base.copy(base.root, runs / 'run')
    said = "'.*runs' is not a checkpoint, but '.*runs/run' has steps"
    with pytest.raises(OSError, match=said):
        pytreefs.load(runs)
    (runs / 'run/1/commit_success.txt').touch()
    for command in ('ls', 'info', 'verify', 'stats', 'convert'):
        r = subprocess.run([program, command, runs, *[tmp_path / 'out'] * (command == 'convert')], capture_output=True, text=True)
        assert r.returncode and re.search(said, r.stderr), r.stderr
    # The process in the background that finds it out has another working directory.
    (tmp_path / 'mnt').mkdir()
    r = subprocess.run([program, 'mount', 'runs', 'mnt'], capture_output=True, text=True, cwd=tmp_path)
    assert r.returncode and re.search(said, r.stderr), r.stderr
    base.copy(base.direct, tmp_path / 'model')
    safetensors.numpy.save_file(sources.OTHER, tmp_path / 'other.safetensors')
    step = f'{runs}/run/1'
    fresh, later = (_fsspec.FileSystem(skip_instance_cache=True) for _ in range(2))
    later.find(f'{runs}/run')
    assert fresh.find(step) == later.find(step) != []
    r = subprocess.run([program, 'tree', 'other.safetensors'], capture_output=True, text=True, cwd=tmp_path)
    assert 'other' in r.stdout and not r.stderr


@pytest.mark.parametrize('command', ['tree', 'convert'])
def test_what_is_not_read_with_safetensors_files_is_said(program, base, tmp_path, command):
    """Files of arrays are, other files of a model are not arrays."""
    def says(model):
        out = [tmp_path / model / 'out'] if command == 'convert' else []
        r = subprocess.run([program, command, model, *out], capture_output=True, text=True, cwd=tmp_path)
        assert r.returncode == 0
        return r.stderr

    for model, path in (('bark', 'voices/one.npy'), ('llama', 'consolidated.npz'), ('flux', 'vae/model.safetensors'), ('clip', 'text.zarr/w/.zarray')):
        (tmp_path / model / path).parent.mkdir(parents=True)
        if model == 'clip':
            (tmp_path / model / 'text.zarr/.zgroup').write_text('{"zarr_format": 2}')
        safetensors.numpy.save_file(sources.OTHER, tmp_path / model / 'model.safetensors')
        (tmp_path / model / 'tokenizer.json').write_text('{}')
        assert not says(model)
        (tmp_path / model / path).write_bytes(b'x')
        shutil.rmtree(tmp_path / model / 'out', ignore_errors=True)
        assert f"'{model}' is read as the .safetensors files in it, without '{model}/{path}'" in says(model)
    (tmp_path / 'flux/vae/model.safetensors').unlink()
    safetensors.numpy.save_file({'deep': np.ones(2)}, tmp_path / 'flux/vae/model.safetensors')
    shards = {**dict.fromkeys(sources.OTHER, 'model.safetensors'), 'deep': 'vae/model.safetensors'}
    (tmp_path / 'flux/model.safetensors.index.json').write_text(json.dumps({'weight_map': shards}))
    shutil.rmtree(tmp_path / 'flux/out', ignore_errors=True)
    assert not says('flux')
    if command == 'convert':
        return
    mounts.Mount(program, tmp_path / 'bark', tmp_path / 'mnt', tmp_path / 'log').unmount()
    assert "bark' is read as the .safetensors files in it, without" in (tmp_path / 'log').read_text()


def test_the_name_of_a_new_step_is_that_of_the_root(program, base, tmp_path, s3_bucket, s3):
    """A step without a prefix would hide those that have one from everyone: the message has the right name. An empty root takes any."""
    root, step = tmp_path / 'run', str(base.root / '1')
    for name in ('ckpt_0001', 'ckpt_0002'):
        base.copy(base.root / '1', root / name)
    base.copy(base.root / '1', tmp_path / 'new/77')
    right = "'77' would hide the steps of '.*', which have names like 'ckpt_00..': name it 'ckpt_0077'"
    for command in ('save', 'convert'):
        r = subprocess.run([program, command, step, root / '77'], capture_output=True, text=True)
        assert r.returncode == 1 and re.search(right, r.stderr)
    with pytest.raises(OSError, match=right):
        pytreefs.save(root / '77', sources.tree())
    m = mounts.Mount(program, root, tmp_path / 'mnt', tmp_path / 'log')
    try:
        (m.path / '77.tmp/state').mkdir(parents=True)
        np.save(m.path / '77.tmp/state/w.npy', np.arange(3))
        with pytest.raises(PermissionError):
            (m.path / '77.tmp').rename(m.path / '77')
        (m.path / '77.tmp').rename(m.path / 'ckpt_0077')
    finally:
        m.unmount()
    assert re.search(right, (tmp_path / 'log').read_text())
    assert sorted(pytreefs.open(root)) == ['ckpt_0001', 'ckpt_0002', 'ckpt_0077'] and not (root / '77').exists()
    pytreefs.save(tmp_path / 'new/78', sources.tree())
    base.copy(base.root / '1', tmp_path / 'new' / ('9' * 20))
    assert pytreefs.steps(tmp_path / 'new') == [77, 78, 10**20 - 1]
    s3_bucket.upload(root, 'run')
    for command in ('save', 'convert'):
        r = subprocess.run([program, command, '-o', f'endpoint={s3.url}', step, f's3://{BUCKET}/run/77'], capture_output=True, text=True)
        assert r.returncode == 1 and re.search(right, r.stderr)


def test_a_new_step_is_called_as_its_root_calls_them(program, base, tmp_path, s3_bucket, s3):
    """`step-6` beside `step-5`, in whatever way it is written and wherever; an empty root refuses it."""
    root, files = tmp_path / 'run', tmp_path / 'files'
    base.copy(base.root / '1', root / 'step-5')
    files.mkdir()
    np.save(files / 'w.npy', np.arange(3))
    s3_bucket.upload(root, 'called/run')
    m = mounts.Mount(program, root, tmp_path / 'mnt', tmp_path / 'log')
    try:
        with pytest.raises(PermissionError):
            (m.path / 'step-6').mkdir()
        (m.path / 'step-6.tmp/default').mkdir(parents=True)
        shutil.copy(files / 'w.npy', m.path / 'step-6.tmp/default')
        (m.path / 'step-6.tmp').rename(m.path / 'step-6')
    finally:
        m.unmount()
    assert "'mkdir step-6.tmp'" in (tmp_path / 'log').read_text()
    pytreefs.save(root / 'step-7', {'w': np.arange(3)})
    for i, command in enumerate(('save', 'convert')):
        for to in (str(root), f's3://{BUCKET}/called/run'):
            r = subprocess.run([program, command, '-o', f'endpoint={s3.url}', files, f'{to}/step-{8 + i}'], capture_output=True, text=True)
            assert r.returncode == 0, r.stderr
    assert pytreefs.steps(root) == [5, 6, 7, 8, 9]
    assert pytreefs.steps(f's3://{BUCKET}/called/run', endpoint=s3.url) == [5, 8, 9]
    r = subprocess.run([program, 'save', files, tmp_path / 'new/step-1'], capture_output=True, text=True)
    assert r.returncode == 1 and "'step-1' is not a name of a step" in r.stderr
