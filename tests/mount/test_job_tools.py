# SPDX-License-Identifier: Apache-2.0
"""Commands under mpirun: ranks share the leaves, rank 0 prints, all end with the worst status."""

import collections
import json
import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest

from lib import jobs, mounts
from lib.pairs import pairs

SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data' / 'sample'


@pytest.fixture
def rank_group(program, mpi, tmp_path):
    """rank_group(n, 'verify', path, ...): (output, messages, [status by rank], [lines of the trace by rank])."""
    def do(n, command, *words, before=''):
        script = (f'{before}\n{program} {command} -o trace=zarr:kv,log={tmp_path}/log$OMPI_COMM_WORLD_RANK "$@"; s=$?; '
                  f'echo $s >{tmp_path}/status$OMPI_COMM_WORLD_RANK; exit 0')
        r = subprocess.run(['mpirun', '--enable-recovery', '-n', str(n), 'sh', '-c', script, 'sh', *map(str, words)],
                           env=jobs.environment(), capture_output=True, text=True, timeout=240,
                           stdin=subprocess.DEVNULL)
        log = [tmp_path / f'log{i}' for i in range(n)]
        lines = [p.read_text().splitlines() if p.exists() else [] for p in log]
        for p in log:
            p.unlink(missing_ok=True)
        return r.stdout, r.stderr, [int((tmp_path / f'status{i}').read_text()) for i in range(n)], lines
    return do


def chunks_looked_for(lines):
    """The keys of chunks in lines of a trace, in the order in which they were looked for."""
    keys = [re.fullmatch(r".*kv: locate .* '(.*/(?:c/)?[0-9./]+)'", line) for line in lines]
    return [m[1] for m in keys if m]


@pytest.mark.parametrize('words', [('stats',), ('stats', '--json'), ('verify',), ('verify', '--json')])
def test_two_ranks_say_what_one_process_says_and_share_the_leaves(rank_group, run, words):
    alone = run(words[0], '-o', 'trace=kv', SAMPLE, *words[1:])
    stdout, _, status, lines = rank_group(2, words[0], SAMPLE, *words[1:])
    assert stdout == alone.stdout
    assert status == [0, 0]
    wanted = chunks_looked_for(alone.stderr.splitlines())
    got = [chunks_looked_for(of) for of in lines]
    assert sorted(sum(got, [])) == sorted(wanted), 'a chunk was looked at by both ranks, or by none'
    assert all(len(of) > len(wanted) / 3 for of in got)


@pytest.fixture
def damaged(tmp_path):
    """A copy of the sample with a byte of each chunk file of a step changed: findings in leaves of both ranks."""
    path = tmp_path / 'damaged'
    shutil.copytree(SAMPLE, path)
    files = [p for p in (path / '1000').rglob('*') if p.parent.name == 'd' and p.stat().st_size > 2000]
    assert files
    for p in files:
        data = bytearray(p.read_bytes())
        data[len(data) // 3] ^= 0xff
        data[2 * len(data) // 3] ^= 0xff
        p.write_bytes(data)
    return path


@pytest.mark.parametrize('n', [2, 3])
def test_what_any_rank_finds_is_said_once_and_fails_all(rank_group, run, damaged, n):
    alone = run('verify', damaged, '--json', ok=False)
    found = json.loads(alone.stdout)
    assert alone.returncode == 1 and found['errors']
    stdout, _, status, _ = rank_group(n, 'verify', damaged, '--json')
    assert json.loads(stdout) == found
    assert status == [1] * n


def test_a_leaf_that_cannot_be_read_is_said_by_rank_0(rank_group, run, damaged):
    alone = run('stats', damaged, ok=False)
    assert alone.returncode == 2
    stdout, stderr, status, _ = rank_group(2, 'stats', damaged)
    assert stdout == alone.stdout and status == [2, 2]

    def said(text):
        return sorted(line for line in text.splitlines() if line.startswith('pytreefs: '))
    assert said(stderr) == said(alone.stderr)


@pytest.fixture(scope='module')
def one_large(program, mpi, tmp_path_factory):
    """A leaf of 40 MiB in 64 chunks, one of 48 MiB in one chunk, and small ones."""
    top = tmp_path_factory.mktemp('one_large')
    (top / 'in').mkdir()
    rng = np.random.default_rng(3)
    np.save(top / 'in' / 'large.npy', rng.integers(0, 99, (40, 512, 512)).astype(np.float32))
    np.save(top / 'in' / 'chunk.npy', rng.integers(0, 9, (6, 1 << 20)))
    for i in range(5):
        np.save(top / 'in' / f'small{i}.npy', rng.standard_normal(100 + i))
    subprocess.run([program, 'save', '-o', 'rule=**chunk:chunk_byte_size=1G,rule=**large:chunk_byte_size=1M', str(top / 'in'),
                    str(top / 'root' / '1')], check=True)
    return top / 'root' / '1'


@pytest.mark.parametrize('words, n', pairs([('stats', '--json'), ('verify', '--json')], [2, 4]))
def test_a_large_leaf_is_split_among_the_ranks_by_its_chunks(rank_group, run, one_large, words, n):
    alone = run(words[0], '-o', 'trace=kv', one_large, *words[1:])
    stdout, stderr, status, lines = rank_group(n, words[0], one_large, *words[1:])
    assert stdout == alone.stdout, stderr
    assert status == [0] * n
    got = [chunks_looked_for(of) for of in lines]
    assert sorted(sum(got, [])) == sorted(chunks_looked_for(alone.stderr.splitlines()))
    # Tasks of up to six chunks are dealt out.
    assert all(abs(sum(key.startswith('large/') for key in of) - 64 // n) <= 6 for of in got)
    assert sorted(sum(key.startswith('chunk/') for key in of) for of in got) == [0] * (n - 1) + [1]


def test_what_is_wrong_in_parts_of_a_large_leaf_is_said_once(rank_group, run, one_large, tmp_path):
    shutil.copytree(one_large, tmp_path / '1')
    for p in (tmp_path / '1').rglob('*'):
        if p.parent.name == 'd' and p.stat().st_size > 1 << 18:
            data = bytearray(p.read_bytes())
            for at in range(50000, len(data), 1 << 18):
                data[at] ^= 0xff
            p.write_bytes(data)
    alone = json.loads(run('verify', '--json', tmp_path / '1', ok=False).stdout)
    stdout, _, status, _ = rank_group(3, 'verify', '--json', tmp_path / '1')
    found = json.loads(stdout)
    assert alone['errors'] > 10 and status == [1] * 3
    assert sorted(map(str, found.pop('findings'))) == sorted(map(str, alone.pop('findings')))
    assert found == alone
    alone = run('stats', tmp_path / '1', ok=False)
    stdout, stderr, status, _ = rank_group(3, 'stats', tmp_path / '1')
    assert stdout == alone.stdout and status == [2] * 3
    assert all(sum(f'{name}.npy' in line for line in stderr.splitlines()) == 1 for name in ('large', 'chunk')), stderr


@pytest.mark.parametrize('words, status', [(['/nowhere'], 2), ([SAMPLE, '--only', 'no such leaf'], 2),
                                           ([SAMPLE, '--level', '7'], 2)])
def test_what_fails_on_all_ranks_ends_all(rank_group, words, status):
    assert rank_group(2, 'verify', *words)[2] == [status, status]


def test_a_command_after_a_commit_is_not_a_rank(job, program, tmp_path):
    out = tmp_path / 'out'
    j = job(2, 'commit_timeout=60', f'on_commit={program} verify --quiet "$1" >{out} 2>&1; echo $? >{out}.status; :')
    for r in range(2):
        (j[r] / '1.tmp').mkdir()
    (j[0] / '1.tmp' / 'default').mkdir()
    (j[0] / '1.tmp' / 'default' / 'n.json').write_text('7')
    assert set(j.rename('1.tmp', '1').values()) == {0}
    status = pathlib.Path(f'{out}.status')
    mounts.wait_for(lambda: status.exists() and status.read_text())
    assert status.read_text() == '0\n', out.read_text()


@pytest.mark.parametrize('words', [['merge', 'S'], ['gc', 'S']], ids=lambda words: words[0])
def test_what_works_in_one_place_is_refused_in_a_job(program, tmp_path, words):
    words = [str(SAMPLE / '1000/state') if w == 'S' else w for w in words]
    r = subprocess.run([program, *words], capture_output=True, text=True,
                       env={**os.environ, 'OMPI_COMM_WORLD_SIZE': '2'})
    assert r.returncode == 1 and 'not with 2 ranks' in r.stderr
    assert not list(tmp_path.iterdir())


# ---- one result of all ranks ----

RNG = np.random.default_rng(7)
LARGE = {f'w{i:02d}': RNG.integers(0, 2**32, (1024, 1024), dtype=np.uint32) for i in range(12)}


@pytest.fixture(scope='module')
def large(program, mpi, tmp_path_factory):
    """A checkpoint of 12 leaves of 4 MiB that do not compress."""
    top = tmp_path_factory.mktemp('large')
    for name, a in LARGE.items():
        (top / 'in').mkdir(exist_ok=True)
        np.save(top / 'in' / f'{name}.npy', a)
    subprocess.run([program, 'save', str(top / 'in'), str(top / 'root' / '1')], check=True)
    return top / 'root' / '1'


def contents(path):
    """Every file below a path, and the marks on files and directories."""
    if path.is_file():
        return path.read_bytes()
    out = {}
    for p in sorted(path.rglob('*')):
        marks = {a: os.getxattr(p, a) for a in os.listxattr(p)}
        out[str(p.relative_to(path))] = (p.read_bytes() if p.is_file() else None, marks)
    return out


FORMATS = {'npy': (), 'npz': (), 'zarr': (), 'zarr3': ('-o', 'zarr=3'), 'safetensors': (),
           'shards': ('--max-shard-size', '20K')}


@pytest.mark.parametrize('form, n', pairs([*FORMATS], [2, 4, 1]))
def test_an_export_by_ranks_is_that_of_one_process(rank_group, run, tmp_path, form, n):
    words = ['--format', {'zarr3': 'zarr', 'shards': 'safetensors'}.get(form, form), *FORMATS[form]]
    (tmp_path / 'out').mkdir()
    run('export', *words, SAMPLE / '1000' / 'state', tmp_path / 'out' / 'one')
    stdout, stderr, status, _ = rank_group(n, 'export', *words, '--json', SAMPLE / '1000' / 'state', tmp_path / 'out' / 'all')
    assert status == [0] * n, stderr
    assert json.loads(stdout)['leaves'] == 77
    assert contents(tmp_path / 'out' / 'all') == contents(tmp_path / 'out' / 'one')
    assert sorted(os.listdir(tmp_path / 'out')) == ['all', 'one']


@pytest.mark.parametrize('form', ['npy', 'npz', 'safetensors'])
def test_every_leaf_is_exported_by_one_rank_and_each_has_its_share(rank_group, large, tmp_path, form):
    out = tmp_path / ('out' if form == 'npy' else f'out.{form}')
    _, stderr, status, lines = rank_group(4, 'export', '--format', form, large, out)
    assert status == [0] * 4, stderr
    opened = [collections.Counter(line.split("'")[1] for line in of if "zarr: open '" in line) for of in lines]
    # All ranks open a leaf to know its size; who exports it opens it once more.
    own = [sorted(k for k, times in of.items() if times > min(of.values())) for of in opened]
    assert [len(of) for of in own] == [3] * 4, own
    assert sorted(sum(own, [])) == [f'{name}/' for name in LARGE]


def stored(path):
    """Bytes in data files by the database that they are in."""
    return {p.name: sum(f.stat().st_size for f in (p / 'd').iterdir()) for p in path.glob('ocdbt.process_*')}


LAYOUTS = {'database': (), 'directories': ('-o', 'ocdbt=off'), 'zarr3': ('-o', 'zarr=3,compression=none'),
           'directories-zarr3': ('-o', 'ocdbt=off,zarr=3'), 'v0': ('--layout', 'v0')}


@pytest.mark.parametrize('layout, n', pairs([*LAYOUTS], [2, 4, 1]))
def test_a_checkpoint_converted_by_ranks_holds_the_same(rank_group, run, tmp_path, layout, n):
    source = SAMPLE / '1000' / ('state' if layout == 'v0' else '')
    (tmp_path / 'out').mkdir()
    _, stderr, status, _ = rank_group(n, 'convert', *LAYOUTS[layout], source, tmp_path / 'out' / '1')
    assert status == [0] * n, stderr
    assert ' 0 differences' in run('diff', source, tmp_path / 'out' / '1').stdout
    run('verify', tmp_path / 'out' / '1')
    assert os.listdir(tmp_path / 'out') == ['1']
    assert not [p for p in (tmp_path / 'out' / '1').rglob('*') if p.name.startswith('.pytreefs')]
    if layout != 'v0':                          # what is not a tree is stored byte for byte
        got, wanted = (contents(p / 'config') for p in (tmp_path / 'out' / '1', SAMPLE / '1000'))
        assert got.pop('commit_success.txt') and wanted.pop('commit_success.txt')      # it says where it was written
        assert got == wanted and wanted


def test_every_rank_writes_its_share_of_a_checkpoint(rank_group, run, large, tmp_path):
    (tmp_path / 'out').mkdir()
    _, stderr, status, _ = rank_group(4, 'convert', '-o', 'compression=none', large, tmp_path / 'out' / '1')
    assert status == [0] * 4, stderr
    share = stored(tmp_path / 'out' / '1' / 'default')
    assert sorted(share) == [f'ocdbt.process_{r}' for r in range(4)]
    assert all(12 << 20 <= n < (12 << 20) + 65536 for n in share.values()), share
    assert ' 0 differences' in run('diff', large, tmp_path / 'out' / '1').stdout


@pytest.mark.parametrize('layout', ['v0', 'v1'])
def test_a_tree_of_one_bare_leaf_is_converted_by_ranks(rank_group, run, tmp_path, layout):
    np.save(tmp_path / 'bare.npy', np.arange(100.0))
    _, stderr, status, _ = rank_group(3, 'convert', '--layout', layout, tmp_path / 'bare.npy', tmp_path / 'c')
    assert status == [0] * 3, stderr
    assert run('cat', tmp_path / 'c' / ('default' if layout == 'v1' else '') / '%.bin',
               text=False).stdout == np.arange(100.0).tobytes()


def test_a_root_is_converted_step_by_step_and_saved_files_become_a_step(rank_group, run, tmp_path):
    _, stderr, status, _ = rank_group(2, 'convert', SAMPLE, tmp_path / 'root')
    assert status == [0, 0], stderr
    assert ' 0 differences' in run('diff', SAMPLE, tmp_path / 'root').stdout
    run('export', '--format', 'npy', SAMPLE / '1500' / 'state', tmp_path / 'files')
    assert rank_group(3, 'save', tmp_path / 'files', tmp_path / 'root' / '7')[2] == [0] * 3
    assert ' 0 differences' in run('diff', SAMPLE / '1500' / 'state', tmp_path / 'root' / '7' / 'default').stdout
    assert sorted(os.listdir(tmp_path / 'root')) == ['1000', '1500', '7', 'metadata']


def test_force_replaces_and_its_absence_refuses(rank_group, run, tmp_path):
    run('convert', SAMPLE / '1000', tmp_path / 'c')
    _, stderr, status, _ = rank_group(2, 'convert', SAMPLE / '1500', tmp_path / 'c')
    assert status == [1, 1] and stderr.count('is there already') == 1
    _, stderr, status, _ = rank_group(2, 'convert', '--force', SAMPLE / '1500', tmp_path / 'c')
    assert status == [0, 0], stderr
    assert ' 0 differences' in run('diff', SAMPLE / '1500', tmp_path / 'c').stdout
    for words in ([], ['--force']):
        assert rank_group(2, 'export', *words, '--format', 'npy', SAMPLE / '1000' / 'state', tmp_path / 'x')[2] == [0, 0]
    assert sorted(p.name for p in tmp_path.iterdir() if not p.name.startswith('status')) == ['c', 'x']


# Files of at most 6 MiB: MPI's own fit, a rank's share does not.
SMALL_DISK = 'if [ $OMPI_COMM_WORLD_RANK = {rank} ]; then ulimit -f 12000; fi'


@pytest.mark.parametrize('command, rank', pairs(['export x.safetensors', 'export x.npz', 'export -o io=sync x.safetensors', 'convert c'], [0, 2]))
def test_a_rank_that_cannot_write_fails_all_and_nothing_is_left(rank_group, large, tmp_path, command, rank):
    *command, out = command.split()
    (tmp_path / 'out').mkdir()
    _, stderr, status, _ = rank_group(3, *command, large, tmp_path / 'out' / out, before=SMALL_DISK.format(rank=rank))
    assert status == [1] * 3
    said = [line for line in stderr.splitlines() if line.startswith('pytreefs: ')]
    assert len(said) == 1 and 'File too large' in said[0], stderr
    assert os.listdir(tmp_path / 'out') == []


def test_a_rank_that_is_killed_in_a_draft_leaves_nothing(rank_group, large, tmp_path):
    (tmp_path / 'out').mkdir()
    # As soon as there is a draft, which takes seconds to fill.
    killer = (f'[ $OMPI_COMM_WORLD_RANK = 2 ] && (while [ -z "$(ls -A {tmp_path}/out)" ]; do sleep 0.02; done; '
              'pkill -KILL -P $$ pytreefs) &')
    _, stderr, status, _ = rank_group(3, 'convert', '-o', 'compression=zstd:19', large, tmp_path / 'out' / 'c', before=killer)
    assert 'rank 2 does not answer' in stderr, (stderr, status)
    assert status == [1, 1, 137]
    assert os.listdir(tmp_path / 'out') == []


@pytest.mark.parametrize('options, why', [('aggregate=all', 'legacy files cannot be shared'),
                                          ('atomicity=commit_file', 'commit_file')])
def test_what_ranks_cannot_share_is_refused(rank_group, tmp_path, options, why):
    (tmp_path / 'out').mkdir()
    _, stderr, status, _ = rank_group(2, 'convert', '-o', options, SAMPLE / '1000' / 'state', tmp_path / 'out' / '1')
    assert status == [1, 1] and why in stderr
    assert os.listdir(tmp_path / 'out') == []
