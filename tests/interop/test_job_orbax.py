# SPDX-License-Identifier: Apache-2.0
"""Jobs on both sides: what ranks commit restores with real Orbax, in one process and in four; what four
processes of real Orbax have saved is read, merged or not."""

import json
import os
import shutil
import subprocess

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from orbax.checkpoint import v1 as ocp1

from lib import forks, jax_rank, jobs, servers

EXPECTED = jax_rank.expected(np)


def jax_job(size, what, path, *more):
    """Run lib.jax_rank in that many processes."""
    with servers.port_for_grpc() as port:
        forks.together([(jax_rank.main, r, size, port, what, path, *more) for r in range(size)])


def write(job, n, draft='1.tmp', jax_type=True):
    """The tree of jax_rank, in the boxes of its shardings, by n ranks."""
    for r in range(n):
        d = job[r] / draft
        (d / 'default').mkdir(parents=True) if d.exists() else (d.mkdir(), (d / 'default').mkdir())
        for key, spec in jax_rank.SPECS.items():
            a = EXPECTED[key]
            rows = slice(len(a) * r // n, len(a) * (r + 1) // n)
            boxes = {(): [()], ('x',): [(rows,)],
                     ('x', 'y'): [(rows, slice(c * 16, c * 16 + 16)) for c in range(2)]}[spec]
            for b in boxes:
                name = key
                if b:
                    full = list(b) + [slice(0, k) for k in a.shape[len(b):]]
                    name += f'[{",".join(f"{s.start}:{s.stop}" for s in full)}]@{"x".join(map(str, a.shape))}'
                np.save(d / 'default' / f'{name}.npy', a[b])
    (job[0] / draft / 'default' / 'n.json').write_text('7')
    (job[n - 1] / draft / 'default' / 'name.txt').write_text('a text')


def equal(tree):
    assert sorted(tree) == sorted([*EXPECTED, *jax_rank.OTHERS])
    assert {k: tree[k] for k in jax_rank.OTHERS} == jax_rank.OTHERS
    for key, a in EXPECTED.items():
        got = np.asarray(tree[key])
        assert got.dtype == a.dtype and np.array_equal(got, a), key


@pytest.mark.feature('A11', 'A16', 'D2')
@pytest.mark.parametrize('n, options', [(2, ()), (4, ('leaf_type=jax.Array',)), (7, ()), (4, ('zarr=3',)),
                                        (2, ('ocdbt=off', 'leaf_type=jax.Array')),
                                        (4, ('replica_parallel=on', 'leaf_type=jax.Array')),
                                        (4, ('replica_parallel=on', 'leaf_type=jax.Array', 'ocdbt=off')),
                                        (4, ('replica_parallel=on', 'replica_parallel_separate=on', 'leaf_type=jax.Array'))])
def test_what_ranks_commit_restores_in_one_process(job, n, options):
    j = job(n, 'commit_timeout=60', *options)
    write(j, n)
    assert set(j.rename('1.tmp', '1').values()) == {0}
    with ocp.CheckpointManager(j.source) as manager:
        equal(manager.restore(1, args=ocp.args.PyTreeRestore()))
    with ocp.PyTreeCheckpointer() as checkpointer:
        equal(checkpointer.restore(j.source / '1' / 'default'))
    equal(ocp1.load(j.source / '1', checkpointable_name='default'))


@pytest.mark.feature('A11')
def test_what_four_ranks_commit_restores_in_four_processes(job):
    j = job(4, 'commit_timeout=60', 'leaf_type=jax.Array')
    write(j, 4)
    assert set(j.rename('1.tmp', '1').values()) == {0}
    for r in range(4):
        assert not j.unmount(r)
    jax_job(4, 'restore', j.source)


def arrays(item):
    text = json.loads((item / 'array_metadatas' / 'process_0').read_text())
    return {a['array_metadata']['param_name']: a['array_metadata'] for a in text['array_metadatas']}


def same_files(job, theirs):
    """Four ranks of ours make the files that four processes of Orbax make."""
    j = job(4, 'commit_timeout=60', 'leaf_type=jax.Array')
    write(j, 4)
    assert set(j.rename('1.tmp', '1').values()) == {0}
    ours = j.source / '1' / 'default'
    assert sorted(p.name for p in theirs.iterdir()) == sorted(p.name for p in ours.iterdir())
    # The other arrays are held twice, by devices of one process, which then halve them.
    assert arrays(theirs)['big'] == arrays(ours)['big']


@pytest.mark.feature('A16', 'F4')
@pytest.mark.parametrize('zarr3', ['0', '1'])
def test_what_four_processes_of_orbax_saved_is_read_merged_and_unmerged(job, mount, run, tmp_path, zarr3):
    source = tmp_path / 'theirs'
    jax_job(4, 'save', source, zarr3)
    item = source / '1' / 'default'
    if zarr3 == '0':
        same_files(job, item)
    assert len(list(item.glob('ocdbt.process_*'))) == 4
    m = mount(source)

    def look(at):
        for key, a in EXPECTED.items():
            assert np.array_equal(np.load(at / f'{key}.npy'), a), key
        assert (at / 'n.json').read_text().strip() == '7' and (at / 'name.txt').read_text() == 'a text'

    look(m / '1' / 'default')
    assert run('verify', source).returncode == 0
    shutil.copytree(item, tmp_path / 'unmerged')
    (tmp_path / 'unmerged' / 'manifest.ocdbt').unlink()
    shutil.rmtree(tmp_path / 'unmerged' / 'd')
    u = mount(tmp_path / 'unmerged', allow_errors=True)
    assert os.getxattr(u.path, 'user.pytree.state') == b'"unmerged"'
    look(u.path)


@pytest.mark.feature('A11', 'D2')
@pytest.mark.parametrize('n, options', [(2, ()), (4, ('ocdbt=off',)), (3, ('zarr=3',))])
def test_what_ranks_convert_restores_with_orbax(program, mpi, tmp_path, n, options):
    tree = {'params': {f'w{i}': np.random.default_rng(i).standard_normal((64, 32 + i)).astype(np.float32) for i in range(9)},
            'opt': [{'mu': np.arange(5), 'count': 3}, (), {'nu': np.float32(2.5), 'name': 'adam'}], 'step': 7}
    ocp.PyTreeCheckpointer().save(tmp_path / 'in', tree)
    words = [program, 'convert', *(['-o', ','.join(options)] if options else []), str(tmp_path / 'in'), str(tmp_path / 'out')]
    r = subprocess.run(['mpirun', '--enable-recovery', '-n', str(n), *words], env=jobs.environment(),
                       capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
    assert (tmp_path / 'out').exists(), r.stderr
    got, wanted = (ocp.PyTreeCheckpointer().restore(tmp_path / d) for d in ('out', 'in'))
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert type(a) is type(b) and np.asarray(a).dtype == np.asarray(b).dtype and np.array_equal(a, b)
