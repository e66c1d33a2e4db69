"""Commands under mpirun: ranks share the leaves, rank 0 prints, all end with the worst status."""

import json
import os
import pathlib
import shutil
import subprocess
import time

import pytest

from lib import jobs

SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data' / 'sample'


@pytest.fixture
def team(program, tmp_path):
    """team(n, 'verify', path, ...): (output, messages, [status by rank], [lines of the trace by rank])."""
    if why := jobs.missing(program):
        pytest.skip(why)

    def do(n, command, *words):
        script = (f'{program} {command} -o trace=zarr,log={tmp_path}/log$OMPI_COMM_WORLD_RANK "$@"; s=$?; '
                  f'echo $s >{tmp_path}/status$OMPI_COMM_WORLD_RANK; exit 0')
        r = subprocess.run(['mpirun', '--enable-recovery', '-n', str(n), 'sh', '-c', script, 'sh', *map(str, words)],
                           env={**os.environ, **jobs.ENVIRONMENT}, capture_output=True, text=True, timeout=100,
                           stdin=subprocess.DEVNULL)
        log = [tmp_path / f'log{i}' for i in range(n)]
        lines = [p.read_text().splitlines() if p.exists() else [] for p in log]
        for p in log:
            p.unlink(missing_ok=True)
        return r.stdout, r.stderr, [int((tmp_path / f'status{i}').read_text()) for i in range(n)], lines
    return do


@pytest.mark.parametrize('words', [('stats',), ('stats', '--json'), ('verify',), ('verify', '--json')])
def test_two_ranks_say_what_one_process_says_and_share_the_leaves(team, run, words):
    alone = run(words[0], '-o', 'trace=zarr', SAMPLE, *words[1:])
    stdout, _, status, lines = team(2, words[0], SAMPLE, *words[1:])
    assert stdout == alone.stdout
    assert status == [0, 0]
    wanted = [line for line in alone.stderr.splitlines() if "zarr: open '" in line]
    got = [[line for line in of if "zarr: open '" in line] for of in lines]
    assert sorted(sum(got, [])) == sorted(wanted), 'a leaf was looked at by both ranks, or by none'
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
def test_what_any_rank_finds_is_said_once_and_fails_all(team, run, damaged, n):
    alone = run('verify', damaged, '--json', ok=False)
    found = json.loads(alone.stdout)
    assert alone.returncode == 1 and found['errors']
    stdout, _, status, _ = team(n, 'verify', damaged, '--json')
    assert json.loads(stdout) == found
    assert status == [1] * n


def test_a_leaf_that_cannot_be_read_is_said_by_rank_0(team, run, damaged):
    alone = run('stats', damaged, ok=False)
    assert alone.returncode == 1
    stdout, stderr, status, _ = team(2, 'stats', damaged)
    assert stdout == alone.stdout and status == [1, 1]

    def said(text):
        return sorted(line for line in text.splitlines() if line.startswith('pytreefs: '))
    assert said(stderr) == said(alone.stderr)


@pytest.mark.parametrize('words, status', [(['/nowhere'], 1), ([SAMPLE, '--only', 'no such leaf'], 1),
                                           ([SAMPLE, '--level', '7'], 2)])
def test_what_fails_on_all_ranks_ends_all(team, words, status):
    assert team(2, 'verify', *words)[2] == [status, status]


def test_a_command_after_a_commit_is_no_rank(job, program, tmp_path):
    out = tmp_path / 'out'
    j = job(2, 'commit_timeout=60', f'on_commit={program} verify --quiet "$1" >{out} 2>&1; echo $? >{out}.status; :')
    for r in range(2):
        (j[r] / '1.tmp').mkdir()
    (j[0] / '1.tmp' / 'default').mkdir()
    (j[0] / '1.tmp' / 'default' / 'n.json').write_text('7')
    assert set(j.rename('1.tmp', '1').values()) == {0}
    status = pathlib.Path(f'{out}.status')
    end = time.monotonic() + 30
    while not (status.exists() and status.read_text()) and time.monotonic() < end:
        time.sleep(0.02)
    assert status.read_text() == '0\n', out.read_text()


@pytest.mark.parametrize('words', [['export', 'S', 'T/x.npz'], ['convert', 'S', 'T/c'], ['merge', 'S'], ['gc', 'S']],
                         ids=lambda words: words[0])
def test_what_writes_one_result_is_refused_in_a_job(program, tmp_path, words):
    words = [str(SAMPLE / '1000/state') if w == 'S' else w.replace('T/', f'{tmp_path}/') for w in words]
    r = subprocess.run([program, *words], capture_output=True, text=True,
                       env={**os.environ, 'OMPI_COMM_WORLD_SIZE': '2'})
    assert r.returncode == 1 and 'not with 2 ranks' in r.stderr
    assert not list(tmp_path.iterdir())
