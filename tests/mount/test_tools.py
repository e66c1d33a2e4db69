# SPDX-License-Identifier: Apache-2.0
"""The subcommands that need no mount: what they print, as text and as JSON, and their exit status."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest

from lib import compare, flow, servers

TOP = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = TOP / 'tests/data/sample'
KERNEL = 'state/params/layers/0/mlp/up/kernel.npy'
COMMANDS = ('mount', 'umount', 'ls', 'tree', 'info', 'cat', 'dump', 'explain', 'transform')


def below(source, path):
    """How a tool names something inside a checkpoint: the source and the path in its mount, joined."""
    return str(pathlib.Path(source) / path)


def strings(doc):
    """Every text in a JSON document, keys included."""
    if isinstance(doc, dict):
        for k, v in doc.items():
            yield k
            yield from strings(v)
    elif isinstance(doc, list):
        for v in doc:
            yield from strings(v)
    elif isinstance(doc, str):
        yield doc


def test_latest_is_a_step_for_the_tools_too(run):
    assert run('cat', below(SAMPLE, 'latest/state/step.json')).stdout.strip() == '1500'
    assert run('ls', below(SAMPLE, 'latest/state')).stdout == run('ls', below(SAMPLE, '1500/state')).stdout


def test_help_of_the_whole(run):
    r = run('--help')
    assert all(c in r.stdout for c in COMMANDS)


def test_the_version_is_that_of_the_build_file(run):
    """meson.build has the version; the program, its manual pages and nothing else in the sources repeat it."""
    version = re.search(r"^  version: '(.+)',$", (TOP / 'meson.build').read_text(), re.M)[1]
    assert run('--version').stdout == f'pytreefs {version}\n'
    assert f'"pytreefs {version}"' in run('help', '--man=pytreefs').stdout
    for folder in ('core', 'handlers', 'fs', 'tools'):
        for path in (TOP / folder).rglob('*.[ch]'):
            assert f'"{version}' not in path.read_text(), f'{path}: the version is PYTREEFS_VERSION'


@pytest.mark.parametrize('words', [[], ['nosuchcommand'], ['ls'], ['ls', '--nosuch', '.'], ['cat'], ['info'],
                                   ['tree'], ['explain'], ['dump'], ['umount'], ['ls', SAMPLE, '-o'],
                                   ['explain', '--spec', '--sharding', SAMPLE], ['explain', '--spec', SAMPLE, '0', '4K']])
def test_wrong_usage_is_status_2(run, words):
    r = run(*words, ok=False)
    assert r.returncode == 2 and r.stderr.strip() and not r.stdout.strip(), (r.returncode, r.stdout, r.stderr)


@pytest.mark.parametrize('command', ['ls', 'tree', 'info', 'cat', 'explain'])
def test_something_absent_is_status_1(run, tmp_path, command):
    r = run(command, tmp_path / 'nothing', ok=False)
    assert r.returncode == 1 and 'nothing' in r.stderr


@pytest.mark.parametrize('command', ['ls', 'tree', 'info', 'cat', 'explain'])
def test_an_absent_leaf_is_status_1(run, command):
    r = run(command, below(SAMPLE, '1000/state/params/nosuchleaf.npy'), ok=False)
    assert r.returncode == 1 and 'nosuchleaf' in r.stderr


def test_ls_of_a_root(run):
    out = run('ls', SAMPLE).stdout
    assert '1000' in out and '1500' in out


def test_ls_of_a_root_has_metrics(run, tmp_path):
    rows = json.loads(run('ls', '--json', SAMPLE).stdout)
    assert {r['name']: r['metrics'] for r in rows} == {s: json.loads((SAMPLE / s / 'metrics/metrics').read_text()) for s in ('1000', '1500')}
    line = run('ls', '-l', SAMPLE).stdout.splitlines()[0]
    assert line.endswith(' 1000/  {"loss": 2.5, "accuracy": 0.25}')
    said = json.loads(run('info', '--json', SAMPLE / '1000').stdout)
    assert (rows[0]['total_bytes'], rows[0]['total_stored_bytes']) == (said['logical_bytes'], said['stored_bytes']) and re.match(r' +[\d.]+ KiB +[\d.]+ KiB ', line)
    shutil.copytree(SAMPLE, tmp_path / 'ck')
    (tmp_path / 'ck/1000/metrics/metrics').write_text('{"loss"')
    shutil.rmtree(tmp_path / 'ck/1500/metrics')
    r = run('ls', '--json', tmp_path / 'ck', ok=False)
    assert r.returncode == 1 and "step '1000': 'metrics/metrics': line 1" in r.stderr
    assert not any('metrics' in row for row in json.loads(r.stdout)) and run('ls', tmp_path / 'ck').stderr == ''


def test_ls_below(run):
    out = run('ls', below(SAMPLE, '1000')).stdout
    assert all(item in out for item in ('state', 'config', 'metrics'))
    out = run('ls', below(SAMPLE, '1000/state')).stdout
    assert all(name in out for name in ('params', 'opt_state', 'run_name.txt', 'step.json', 'ema.null'))


@pytest.mark.parametrize('name, why', [
    *((f'table[0:2,0:99]{ext}', 'the box leaves axis 1, which has 32 positions') for ext in ('.npy', '.bin', '.json')),
    ('table[0:2,0:9].safetensors', 'only .npy, .bin and .json of arrays have boxes'),
    ('table@float99.json', "'float99' is not a dtype"), ('none[0:2].json', 'of arrays have boxes')])
def test_what_is_wrong_with_a_view(run, name, why):
    r = run('cat', below(SAMPLE, f'1500/state/params/embed/{name}'), ok=False)
    assert r.returncode == 1 and why in r.stderr


def test_ls_of_a_leaf_shows_type_and_shape(run):
    out = run('ls', '-l', below(SAMPLE, f'1000/{KERNEL}')).stdout
    assert 'bfloat16' in out and '32' in out and '64' in out, out


def test_tree_shows_every_leaf(run, cases):
    case = cases('matrix-ocdbt-zarr2-zstd-v0')
    out = run('tree', case.path).stdout
    for key in case.tree().leaves:
        assert key[-1] in out, key


@pytest.mark.parametrize('command,where', [
    (c, w) for c in ('ls', 'tree', 'info') for w in ('', '1000', '1000/state', f'1000/{KERNEL}')
    if c != 'tree' or not w.endswith('.npy')])
def test_json(run, command, where):
    """--json prints one JSON document, for people's scripts, wherever it points."""
    r = run(command, '--json', below(SAMPLE, where))
    doc = json.loads(r.stdout)
    text = list(strings(doc))
    if where.endswith('.npy'):
        assert 'bfloat16' in text, doc
    else:
        assert text, doc


def test_json_of_tree_has_shapes_and_types(run, cases):
    case = cases('matrix-ocdbt-zarr3-zstd-v0')
    doc = json.loads(run('tree', '--json', case.path).stdout)
    text = json.dumps(doc, separators=(',', ':'))
    assert '[24,16]' in text and 'float32' in text and 'bfloat16' in text


def test_info_of_a_leaf(run):
    out = run('info', below(SAMPLE, f'1000/{KERNEL}')).stdout
    for word in ('bfloat16', '32', '64', 'zstd'):
        assert word in out, out


@pytest.mark.parametrize('name', ['matrix-ocdbt-zarr2-zstd-v0', 'matrix-perleaf-zarr3-none-v1', 'zarr3-perleaf',
                                  'aggregate-by-hand'])
def test_cat_gives_the_bytes_of_the_file(run, mount, cases, name):
    case = cases(name)
    m = mount(case.path)
    (where, tree), = case.trees.items()
    for path, value, key in list(compare.leaf_paths(m / where, tree))[:25]:
        if path.is_dir():
            continue
        rel = os.path.relpath(path, m.path)
        assert run('cat', below(case.path, rel), text=False).stdout == compare.read_all(path), key


def test_cat_of_the_sample(run):
    assert run('cat', below(SAMPLE, '1500/state/run_name.txt')).stdout == 'sample-transformer'
    assert json.loads(run('cat', below(SAMPLE, '1500/state/step.json')).stdout) == 1500
    import io
    raw = run('cat', below(SAMPLE, f'1000/{KERNEL}'), text=False).stdout
    assert np.load(io.BytesIO(raw)).shape == (32, 64)
    assert json.loads(run('cat', below(SAMPLE, '1000/config/metadata')).stdout)['d_model'] == 32


@pytest.mark.parametrize('fn', ['cast(int32)', 'transpose()', 'reshape(-1)', 'slice(0:2)', 'scale(2)', 'concat(0)', 'stack(0)'])
def test_cat_of_a_computed_leaf_ends_well(run, tmp_path, fn):
    """The computed value is freed once: the heap is intact when the item is closed."""
    rule = {'key': 'w', 'original_key': 'params/layers/0/mlp/up/kernel', 'value_fn': fn}
    (tmp_path / 'rules.json').write_text(json.dumps({'rules': [rule], 'target': ['w']}))
    options = f'transforms={tmp_path}/rules.json'
    raw = run('cat', '-o', options, below(SAMPLE, '1000/state/w.npy'), text=False)
    assert raw.stdout[:6] == b'\x93NUMPY' and not raw.stderr
    assert 'w' in run('transform', '--check', tmp_path / 'rules.json', below(SAMPLE, '1000/state')).stdout
    assert '(computed)' in run('explain', '-o', options, below(SAMPLE, '1000/state/w.npy')).stdout


def test_a_slice_that_the_array_has_not_says_why(run, tmp_path):
    """The reason comes from where a view's name is read, and with another code there."""
    rule = {'key': 'w', 'original_key': 'params/layers/0/mlp/up/kernel', 'value_fn': 'slice(0:2,0:2,0:2)'}
    (tmp_path / 'rules.json').write_text(json.dumps({'rules': [rule], 'target': ['w']}))
    r = run('transform', '--check', tmp_path / 'rules.json', below(SAMPLE, '1000/state'), ok=False)
    assert r.returncode == 1 and 'slice(0:2,0:2,0:2): the box has 3 axes, the array has 2' in r.stderr, r.stderr


def test_a_closed_pipe_is_not_a_crash(program):
    r = subprocess.run(f'"{program}" tree "{SAMPLE}" | head -n 1', shell=True, capture_output=True, text=True)
    assert 'core dumped' not in r.stderr and 'sanitizer' not in r.stderr.lower()


@pytest.mark.parametrize('release', ['0.2.7', '0.4.8', '0.12.4'])
def test_tools_read_old_releases(run, release):
    path = SAMPLE.parent / 'old' / release / 'pytree'
    assert 'kernel' in run('tree', path).stdout
    raw = run('cat', below(path, 'params/dense/kernel.npy'), text=False).stdout
    assert raw[:6] == b'\x93NUMPY'


# ---- dump ----

def data_files(item):
    return sorted((item / 'd').iterdir())


def test_dump_manifest(run):
    item = SAMPLE / '1000' / 'state'
    out = run('dump', 'manifest', item / 'manifest.ocdbt').stdout
    assert 'zstd' in out and 'max_inline_value_bytes' in out or 'inline' in out, out


def test_dump_tree_and_zarr(run, cases):
    out = run('dump', 'tree', SAMPLE / '1000' / 'state' / '_METADATA').stdout
    assert 'params' in out and 'kernel' in out
    case = cases('matrix-perleaf-zarr2-zstd-v0')
    out = run('dump', 'zarr', case.path / 'params.embed' / '.zarray').stdout
    assert '40' in out and '12' in out and 'float16' in out or '<f2' in out


def test_dump_of_garbage_is_status_1(run, tmp_path):
    (tmp_path / 'bad').write_bytes(b'no manifest at all')
    for kind in ('manifest', 'tree', 'zarr'):
        r = run('dump', kind, tmp_path / 'bad', ok=False)
        assert r.returncode == 1 and 'bad' in r.stderr, (kind, r.stderr)


def test_dump_of_a_record_that_is_too_large_takes_no_memory(run, tmp_path):
    """A hole takes nothing on disk: what each kind may have is compared before a byte is read."""
    for kind, said in (('manifest', '16777216'), ('versionnode', '16777216'), ('zarr', '16777216'), ('btreenode', '134217728'),
                       ('tree', 'option cache')):
        with open(tmp_path / kind, 'wb') as f:
            f.truncate(1 << 30)
        r = run('dump', '-o', 'cache=256M', kind, tmp_path / kind, ok=False)
        assert r.returncode == 1 and str(1 << 30) in r.stderr and said in r.stderr, r.stderr
    # A larger cache allows more: this one is read, and is not JSON.
    os.truncate(tmp_path / 'tree', 300 << 20)
    assert 'option cache' in run('dump', '-o', 'cache=256M', 'tree', tmp_path / 'tree', ok=False).stderr
    assert 'not JSON' in run('dump', '-o', 'cache=512M', 'tree', tmp_path / 'tree', ok=False).stderr


def test_a_safetensors_header_of_many_tensors_is_charged(run, tmp_path):
    """The memory for a header is many times its size, but at most the option cache and the constant beside it."""
    tensors = ','.join(f'"t{i}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' for i in range(150_000))
    header = f'{{{tensors}}}'.encode()
    (tmp_path / 'm.safetensors').write_bytes(len(header).to_bytes(8, 'little') + header)
    r = run('ls', '-o', 'cache=8M', tmp_path / 'm.safetensors', ok=False)
    assert r.returncode == 1 and 'm.safetensors' in r.stderr and 'option cache' in r.stderr, r.stderr
    assert 't149999.npy' in run('ls', '-o', 'cache=1G', tmp_path / 'm.safetensors').stdout


# ---- explain ----

def test_explain_names_chunks_and_where_they_lie(run, cases):
    case = cases('chunked-perleaf-zarr2-v0')
    out = run('explain', below(case.path, 'two.npy')).stdout
    assert '0.0' in out and 'two' in out


def test_explain_of_ocdbt_names_file_offset_length(run):
    """The range in the output of explain is right: its bytes decode."""
    out = run('explain', below(SAMPLE, '1000/state/params/embed/table.npy')).stdout
    assert 'd/' in out and ':' in out, out


def test_explain_of_a_part(run, cases):
    case = cases('chunked-perleaf-zarr2-v0')
    whole = run('explain', below(case.path, 'two.npy')).stdout
    part = run('explain', below(case.path, 'two.npy'), '200', '16').stdout
    assert len(part.splitlines()) < len(whole.splitlines())


@pytest.mark.feature('A17')
def test_explain_spec_opens_with_tensorstore(run, cases, tmp_path):
    import tensorstore as ts
    for name in ('matrix-ocdbt-zarr2-zstd-v0', 'matrix-perleaf-zarr3-none-v1'):
        case = cases(name)
        (where, tree), = case.trees.items()
        rel = f'{where}/params/dense/kernel.npy'.lstrip('/')
        with servers.nginx(tmp_path / name, case.path) as url:
            for at in (below(case.path, rel), f'{url}/{rel}'):
                spec = json.loads(run('explain', '--spec', at).stdout)
                got = ts.open(spec).result().read().result()
                assert np.array_equal(got, tree.leaves['params', 'dense', 'kernel']), at


@pytest.mark.feature('A17')
def test_explain_spec_escapes_what_a_url_escapes(run, mount, root, tmp_path):
    """TensorStore decodes the URL. Its path up to the SOURCE, of a web server, is as it was given."""
    import tensorstore as ts
    names = ['a%2541b?c', 'x%2Fy', 'a b#c+d&e', '\u00fc"']
    m = mount(root, 'ocdbt=off', 'shape=root')
    (m / '7.tmp/it').mkdir(parents=True)
    for i, name in enumerate(names):
        np.save(m / f'7.tmp/it/{name}.npy', np.arange(3) + i)
    (m / '7.tmp').rename(m / '7')
    os.symlink(root / '7', tmp_path / 's %41')
    with servers.nginx(tmp_path / 'web', tmp_path) as url:
        for i, name in enumerate(names):
            for at in (f'{root}/7/it/{name}.npy', f'{url}/s%20%2541/it/{name}.npy'):
                spec = json.loads(run('explain', '--spec', at).stdout)
                assert np.array_equal(ts.open(spec).result().read().result(), np.arange(3) + i), at


# ---- the flow ----

READ = ['fs', 'leaf', 'zarr', 'kv', 'ocdbt', 'io', 'codec']


def spoken(lines):
    """[(module, text)] of a trace."""
    return [tuple(line.split(' ', 1)[1].split(': ', 1)) for line in lines if line.startswith('trace ')]


def modules_of(lines):
    """The modules of a trace in the order of their first line."""
    return list(dict.fromkeys(line.split()[1].rstrip(':') for line in lines if line.startswith('trace ')))


def test_the_trace_of_a_read_is_the_flow_of_the_design(mount, cases):
    """fs -> leaf -> zarr -> kv -> ocdbt -> io -> codec for a chunk; opening it reads the database's node."""
    m = mount(cases('matrix-ocdbt-zarr2-zstd-v0').path, 'trace=all', 'io=trace:auto')
    before = len(m.log_lines())
    with open(m / 'params/dense/kernel.npy', 'rb') as f:
        opened = m.log_lines()[before:]
        os.pread(f.fileno(), 64, 300)
    read = m.log_lines()[before + len(opened):]
    read = [line for line in read if 'release' not in line]
    files = flow.check('read(2)', spoken(read))
    # Functions that are traced while a file is opened, but not while it is read, are not part of the flow.
    done_before = {f for line in spoken(opened) for f in flow.files_of(*line)} - \
        {f for line in spoken(read) for f in flow.files_of(*line)}
    assert not done_before & set(files), done_before
    assert modules_of(read) == READ, read
    # Before it is looked up, the files on disk are asked who may read them; that is not part of its reading.
    opened = [line for line in opened if not line.startswith('trace io: open ')]
    assert modules_of(opened) == READ[:-1], opened


def test_explain_tells_what_the_trace_then_shows(run, mount, cases):
    """The place of each chunk in the plan is the place that is read."""
    case = cases('many-data-files')
    want = set()
    m = mount(case.path, 'trace=io', 'io=trace:sync')
    for i in range(12):
        plan = run('explain', below(case.path, f'w{i}.npy')).stdout
        want |= set(re.findall(r'value:([^ )]+:\d+:\d+)', plan))
        np.load(m / f'w{i}.npy')
    assert len(want) >= 12, want
    done = '\n'.join(m.log_lines())
    reads = [r.split(':') for r in re.findall(r'read (\S+:\d+:\d+)', done)]
    for place in want:
        file, off, n = place.split(':')
        assert any(f == file and int(o) <= int(off) and int(off) + int(n) <= int(o) + int(k)
                   for f, o, k in reads), (place, done)


def test_bench_measures_every_engine_and_depth(run, tmp_path):
    rows = json.loads(run('bench', '--size', '2M', '--json', tmp_path).stdout)
    assert {r['engine'] for r in rows} >= {'sync'} and {r['depth'] for r in rows} == {1, 4, 16, 64}
    assert all(r['write_mib_per_second'] > 0 and r['read_mib_per_second'] > 0 for r in rows)
    assert not list(tmp_path.iterdir()), 'its files have no names'


def test_bench_of_no_directory_says_so(run):
    r = run('bench', '--size', '2M', '/nonexistent', ok=False)
    assert r.returncode == 1 and '/nonexistent' in r.stderr


def test_through_a_mount_it_is_what_is_stored(run, mount, copy, cases):
    """Users name files of a mount, whose arrays are files; in the stored checkpoint, they are not."""
    root = copy(cases('manager-root'), 'root')
    m = mount(root)
    for words in (['ls', '-l', '10/state'], ['tree', '10'], ['cat', '10/state/w.npy'], ['cat', 'latest/state/w[0:1].npy'],
                  ['stats', '10/state'], ['info', '--json', '10/state/w.npy'], ['explain', '10/state/w.npy'],
                  ['verify', '10'], ['verify', ''], ['verify', 'latest']):
        *command, path = words
        shown, stored = (run(*command, where / path, text=False).stdout for where in (m.path, root))
        assert shown.replace(os.fsencode(m / '.pytreefs/stored'), b'ROOT').replace(os.fsencode(m.path), b'ROOT') == \
            stored.replace(os.fsencode(root), b'ROOT'), words
    assert ' 0 differences' in run('diff', root, m.path).stdout
    assert run('ls', 'state', cwd=m / '10').stdout == run('ls', root / '10/state').stdout
    r = run('cat', m / '10/nothing', ok=False)
    assert r.returncode == 1 and "'nothing'" in r.stderr


@pytest.mark.parametrize('command', ['ls', 'tree', 'info', 'verify', 'stats', 'convert'])
def test_an_empty_path_is_not_a_path(run, tmp_path, command):
    """Not the directory that one happens to stand in."""
    words = ['out'] if command == 'convert' else []
    r = run(command, '', *words, ok=False, cwd=SAMPLE if command != 'convert' else tmp_path)
    assert r.returncode == (2 if command in ('verify', 'stats') else 1) and "'' is not a path" in r.stderr


def test_explain_says_only_the_bytes_that_were_asked_for(run):
    leaf = SAMPLE / '1000/state/params/embed/table.npy'
    r = run('explain', leaf, 99999999, ok=False)
    assert r.returncode == 1 and 'byte 99999999 is not inside the file of' in r.stderr
    r = run('explain', leaf, 99999999, 3, ok=False)
    assert r.returncode == 1 and 'bytes 99999999+3 are not inside the file of' in r.stderr


def test_a_path_that_leaves_the_mount(mount, run):
    """From a working directory inside a mount a path may lead out of it, and into it again."""
    m = mount(SAMPLE)
    here = m / '1500/state/params'
    for path in [os.path.relpath(SAMPLE / '1500/state/step.json', here), '../step.json', '../../../latest/state/step.json',
                 f'../../../../{here.parents[2].name}/1500/state/step.json']:
        assert run('cat', path, cwd=here).stdout.strip() == '1500', path
