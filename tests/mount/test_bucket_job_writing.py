# SPDX-License-Identifier: Apache-2.0
"""The ranks of an MPI job write one step to a bucket: each uploads its own values, and the primary commits."""

import contextlib
import errno
import os
import pathlib
import re
import shutil
import subprocess
import threading

import numpy as np
import pytest

from lib import collective, dying_upload, jobs, mounts
from lib.buckets import unfinished
from lib.collective import DRAFT, W
from lib.pairs import on, on_buckets, pairs

BUCKET = 'by-a-job'
IN_MEMORY = True  # both for the fixtures
SAMPLE = pathlib.Path(__file__).resolve().parents[1] / 'data/sample'
CLAIM, MARKER = '.pytreefs-draft', 'commit_success.txt'
BIG = np.random.default_rng(1).standard_normal((12 << 17, 2))      # 24 MiB
MINUTE = 60
LARGE = np.random.default_rng(2).standard_normal((2 << 17,))        # 2 MiB, which no manifest holds
LAYOUTS = {'database': (), 'directories': ('ocdbt=off',), 'zarr3': ('zarr=3', 'manifest=on')}


@pytest.fixture
def root(bucket):
    return f'{bucket.scheme}://{BUCKET}/run'


@pytest.fixture
def ranks(job, mpi, proxy, root, spill):
    """ranks(n, option, ...): a job of n ranks that write below `root`."""
    return lambda n, *options, **more: job(n, 'shape=root', *options, source=root, **more)


def stored(bucket, step='1'):
    return {key.removeprefix(f'run/{step}/') for key in bucket.keys() if key.startswith(f'run/{step}/')}


def databases(bucket):
    return sorted({m[1] for key in stored(bucket) if (m := re.search(r'default/(ocdbt\.process_\w+)/', key))})


def assert_whole(run, bucket, proxy, root, spill):
    """The step is one that verify finds nothing about; nothing else is left, in the bucket or here."""
    assert ' 0 errors, 0 warnings' in run('verify', f'{root}/1').stdout
    assert not [key for key in stored(bucket) if '.pytreefs' in key], stored(bucket)
    assert not unfinished(bucket, proxy)
    assert not [p for p in spill.rglob('*') if p.is_file() and p.name != '.lock']


@pytest.mark.parametrize('bucket, n, layout', on_buckets((2, 'database'), (3, 'database'), (2, 'directories'), (3, 'zarr3')), indirect=['bucket'])
def test_what_ranks_write_becomes_one_step(ranks, run, bucket, proxy, root, spill, n, layout):
    j = ranks(n, 'verify_commit', *LAYOUTS[layout])
    collective.fill(j)
    assert stored(bucket) == {CLAIM}
    assert set(j.rename(DRAFT, '1').values()) == {0}, j.text()
    for r in range(n):
        collective.check(j, r)
    assert MARKER in stored(bucket)
    if layout != 'directories':
        assert set(databases(bucket)) >= {f'ocdbt.process_{r}' for r in range(n)}
    assert_whole(run, bucket, proxy, root, spill)


@on('gs')
def test_each_rank_sends_its_own_values_while_they_are_written(ranks, run, bucket, proxy, root, spill):
    """Most of them before the commit, and nothing twice; the merged database refers to them."""
    j = ranks(2, 'compression=none', 'chunk_byte_size=1M', 'threads=1')
    collective.begin(j)
    half = len(BIG) // 2
    for r in range(2):
        collective.save_part(collective.top(j, r), 'big', r * half, (r + 1) * half, BIG)

    def sent():
        return [(path.partition('?')[0], path, about) for method, path, about in list(proxy.requests)
                if method == 'PUT' and ('partNumber' in path or 'upload_id' in path) and '/d/' in path.replace('%2F', '/')]
    mounts.wait_for(lambda: len(sent()) >= 2)
    assert set(j.rename(DRAFT, '1').values()) == {0}, j.text()
    assert len(set(sent())) == len(sent())
    assert databases(bucket) == ['ocdbt.process_0', 'ocdbt.process_1']
    sizes = {r: sum(len(bucket.get(f'run/1/{key}')) for key in stored(bucket) if f'ocdbt.process_{r}/d/' in key) for r in range(2)}
    assert all(BIG.nbytes / 2 <= size < BIG.nbytes * 0.6 for size in sizes.values()), sizes
    assert (j[1] / '1/default/params/big.npy').read_bytes()[-BIG.nbytes:] == BIG.tobytes()
    assert_whole(run, bucket, proxy, root, spill)


@pytest.mark.parametrize('bucket, layout', on_buckets('database', 'directories'), indirect=['bucket'])
def test_parts_that_fit_no_grid_are_put_together(ranks, run, bucket, proxy, root, spill, layout):
    j = ranks(3, *LAYOUTS[layout])
    collective.begin(j)
    for r, (start, stop) in enumerate([(0, 5), (5, 16), (16, 24)]):
        collective.save_part(collective.top(j, r), 'w', start, stop)
    assert set(j.rename(DRAFT, '1').values()) == {0}, j.text()
    assert np.array_equal(np.load(j[0] / '1/default/params/w.npy'), W)
    assert_whole(run, bucket, proxy, root, spill)


@pytest.mark.parametrize('bucket, layout', on_buckets('directories', 'database'), indirect=['bucket'])
def test_files_of_all_ranks_enter_the_step(ranks, run, bucket, proxy, root, spill, layout):
    """Stored as they are; those that were removed after a refusal do not."""
    j = ranks(2, *LAYOUTS[layout])
    collective.fill(j)
    for r, files in collective.FILES.items():
        collective.write_files(j[r] / DRAFT, files)
    proxy.fault = lambda h: h.command in ('PUT', 'POST') and '_CHECKPOINT_METADATA' in h.path and (h.refuse(403, 'AccessDenied') or True)
    assert set(j.rename(DRAFT, '1').values()) == {errno.EACCES}, j.text()
    proxy.fault = None
    removed = [(0, 'README'), (0, '.hf/sub/x'), (1, 'LICENSE'), (1, 'default/more.bin')]
    for r, name in removed:
        (j[r] / DRAFT / name).unlink()
    assert set(j.rename(DRAFT, '1').values()) == {0}, j.text()
    names = {name: data for name, data in collective.ALL_FILES.items() if name not in [name for _, name in removed]}
    assert {name: bucket.get(f'run/1/{name}') for name in names} == names
    assert not {name for _, name in removed} & stored(bucket)
    assert_whole(run, bucket, proxy, root, spill)


@on('s3')
def test_readers_read_on_after_the_commit(ranks):
    j = ranks(2)
    collective.fill(j)
    names = [(r, name) for r in range(2) for name in sorted(os.listdir(collective.top(j, r)))]
    want = {at: (collective.top(j, at[0]) / at[1]).read_bytes() for at in names}
    files = {at: open(collective.top(j, at[0]) / at[1], 'rb', buffering=0) for at in names}
    try:
        assert set(j.rename(DRAFT, '1').values()) == {0}, j.text()
        for at, f in files.items():
            assert f.read() == want[at], at
    finally:
        for f in files.values():
            f.close()


@on('gs')
def test_the_place_belongs_to_one_job(ranks, mount, bucket, root, spill):
    """Another job, or another mount, gets EBUSY at mkdir, and EEXIST when the step is there."""
    j, other = ranks(2), ranks(2)
    collective.fill(j)
    alone = mount(root, 'shape=root', allow_errors=True)
    for path in (other[0], other[1], alone.path):
        with pytest.raises(OSError) as e:
            (path / DRAFT).mkdir()
        assert e.value.errno == errno.EBUSY
    assert set(j.rename(DRAFT, '1').values()) == {0}
    for path in (other[1], alone.path):
        with pytest.raises(FileExistsError):
            (path / DRAFT).mkdir()
    assert MARKER in stored(bucket)


@on('s3')
def test_a_refused_commit_can_be_made_again(ranks, run, bucket, proxy, root, spill):
    """A leaf of one rank that is not whole; then another name of it, so that other ranks get other assignments."""
    j = ranks(3)
    collective.fill(j)
    torn = collective.top(j, 1) / 'torn.npy'
    torn.write_bytes((collective.top(j, 1) / 'rep.npy').read_bytes()[:-1])
    assert set(j.rename(DRAFT, '1').values()) == {errno.ECANCELED}
    torn.unlink()
    (collective.top(j, 0) / 'rep.npy').unlink()
    assert set(j.rename(DRAFT, '1').values()) == {0}, j.text()
    collective.check(j, 2)
    assert_whole(run, bucket, proxy, root, spill)


@pytest.mark.parametrize('bucket, what', on_buckets('ocdbt.process_1', 'ocdbt.process_0', '/manifest.ocdbt', '_CHECKPOINT_METADATA', MARKER), indirect=['bucket'])
def test_an_upload_that_is_refused(ranks, run, bucket, proxy, root, spill, what):
    """All ranks get the error, and nothing of this attempt stays that is not of the next one."""
    j = ranks(2)
    collective.fill(j)
    key = what.replace('/', '%2F') if bucket.scheme == 'gs' else what
    proxy.fault = lambda h: h.command in ('PUT', 'POST') and key in h.path and (h.refuse(403, 'AccessDenied') or True)
    errors = set(j.rename(DRAFT, '1').values())
    assert errors == {errno.EACCES}, (errors, j.text())
    proxy.fault = None
    assert MARKER not in stored(bucket) and CLAIM in stored(bucket)
    assert set(j.rename(DRAFT, '1').values()) == {0}, j.text()
    collective.check(j, 1)
    assert_whole(run, bucket, proxy, root, spill)


@pytest.mark.parametrize('bucket, is_done, calls', on_buckets((True, 2), (True, 1), (False, 2)), indirect=['bucket'])
def test_a_marker_of_which_is_not_known_whether_it_arrived(ranks, clock, run, bucket, proxy, root, spill, is_done, calls):
    """Nobody removes anything, since the step may be committed. A later rename finds out, and commits when it was not."""
    j = ranks(2, 'commit_timeout=20', more=clock.environment)
    collective.fill(j)

    def fault(h):
        if f'1/{MARKER}' not in h.path.replace('%2F', '/'):
            return False
        if h.command in ('PUT', 'POST'):
            if is_done:
                h.forward(*h.path.partition('?')[::2])
            return h.reset()
        return h.refuse(403, 'AccessDenied') or True
    proxy.fault = fault
    result = j.rename(DRAFT, '1')
    assert all(result.values()), (result, j.text())
    proxy.fault = None
    there = stored(bucket)
    assert (MARKER in there) == is_done and {'ocdbt.process_0', 'ocdbt.process_1'} <= set(databases(bucket)), there
    if is_done:
        assert '0 errors, 0 warnings' in run('verify', f'{root}/1').stdout
    if is_done and calls == 2:
        # A change that a rank has made since is not in the step.
        (collective.top(j, 1) / 'late.json').write_text('1')
        assert j.rename(DRAFT, '1') == {0: 0, 1: errno.EEXIST}, j.text()
        shutil.rmtree(j[1] / DRAFT)
    elif calls == 1:
        # A rank that looks for itself finds the step; the other one has its draft until it asks.
        assert j.rename(DRAFT, '1', [0]) == {0: 0}
        assert j.rename(DRAFT, '1', [1]) == {1: 0}
    else:
        if not is_done:
            # The request may arrive yet, and would commit what another attempt has put by then.
            assert set(j.rename(DRAFT, '1').values()) == {errno.EIO} and stored(bucket) == there
            assert 'may arrive for another' in j.text()
            clock.advance(10 * MINUTE)
        assert set(j.rename(DRAFT, '1').values()) == {0}, j.text()
    collective.check(j, 1)
    assert_whole(run, bucket, proxy, root, spill)


@on('s3')
def test_a_file_of_a_failed_attempt_is_there(ranks, bucket, proxy, root):
    """Its answers were lost, and the next attempt puts other bytes in its place."""
    j, tries = ranks(2), []
    collective.fill(j)

    def fault(h):
        if h.command != 'PUT' or 'run/1/default/manifest.ocdbt' not in h.path:
            return False
        if not tries:
            h.forward(*h.path.partition('?')[::2])
        tries.append(h.path)
        return h.reset()
    proxy.fault = fault
    assert set(j.rename(DRAFT, '1').values()) == {errno.EIO}
    proxy.fault = None
    assert set(j.rename(DRAFT, '1').values()) == {0}, j.text()


def fill_large(j):
    """As fill(), and with a value of each rank that is in a data file."""
    collective.fill(j)
    for r in range(j.n):
        np.save(collective.top(j, r) / f'large{r}.npy', LARGE + r)


@pytest.mark.parametrize('bucket, layout, status', on_buckets(*pairs(['database', 'directories'], [403, 503])), indirect=['bucket'])
def test_a_listing_that_fails_after_the_marker(ranks, run, bucket, proxy, root, spill, layout, status):
    """The step is committed, and nobody is told so. It stays whole, and the next rename finds it."""
    j = ranks(2, 'commit_timeout=60', *LAYOUTS[layout])
    fill_large(j)
    seen = []

    def fault(h):
        path = h.path.replace('%2F', '/')
        if h.command in ('PUT', 'POST') and f'1/{MARKER}' in path:
            seen.append(path)
        return bool(seen) and h.command == 'GET' and ('list-type' in path or 'delimiter' in path) and (h.refuse(status, 'Refused') or True)
    proxy.fault = fault
    assert j.rename(DRAFT, '1')[0] and seen
    proxy.fault = None
    assert MARKER in stored(bucket) and '0 errors, 0 warnings' in run('verify', f'{root}/1').stdout
    for r in range(2):
        if (j[r] / DRAFT).exists():
            (j[r] / DRAFT).rename(j[r] / '1')
    assert_whole(run, bucket, proxy, root, spill)
    for r in range(2):
        assert (j[r] / f'1/default/params/large{r}.npy').read_bytes()[-LARGE.nbytes:] == (LARGE + r).tobytes()


@on('gs')
def test_a_place_that_was_taken_away(ranks, run, bucket, proxy, root, tmp_path):
    """By gc, and another writer has committed the step: its objects are neither replaced nor removed."""
    j = ranks(2, 'ocdbt=off')
    fill_large(j)
    bucket.delete(f'run/1/{CLAIM}')
    (tmp_path / 'in').mkdir()
    np.save(tmp_path / 'in/w.npy', LARGE)
    run('save', '-o', 'ocdbt=off', tmp_path / 'in', f'{root}/1')
    before = {key: bucket.get(key) for key in bucket.keys()}
    assert set(j.rename(DRAFT, '1').values()) == {errno.EEXIST}, j.text()
    for r in range(2):
        shutil.rmtree(j[r] / DRAFT)
    assert {key: bucket.get(key) for key in bucket.keys()} == before


@on('s3')
def test_objects_that_could_not_be_removed(ranks, run, bucket, proxy, root, spill):
    """A failed attempt, and DELETE is refused: the next one waits until they can be, or removes them itself."""
    j = ranks(2, 'ocdbt=off')
    fill_large(j)
    deletes = ('DELETE',)

    def fault(h):
        path = h.path.replace('%2F', '/')
        if h.command in deletes or (h.command == 'POST' and 'delete' in path):
            return h.refuse(403, 'AccessDenied') or True
        return h.command in ('PUT', 'POST') and '_CHECKPOINT_METADATA' in path and (h.refuse(403, 'AccessDenied') or True)
    proxy.fault = fault
    assert set(j.rename(DRAFT, '1').values()) == {errno.EACCES}
    (collective.top(j, 1) / 'large1.npy').rename(collective.top(j, 1) / 'other.npy')
    assert all(j.rename(DRAFT, '1').values())
    proxy.fault = None
    assert set(j.rename(DRAFT, '1').values()) == {0}, j.text()
    assert not [key for key in stored(bucket) if 'large1' in key]
    assert_whole(run, bucket, proxy, root, spill)


@pytest.mark.parametrize('bucket, who', on_buckets(0, 1), indirect=['bucket'])
def test_an_item_that_one_rank_has(ranks, run, bucket, proxy, root, spill, who):
    """A file, which is stored as it is; the primary has no directory for it."""
    j = ranks(2)
    collective.fill(j)
    (j[who] / DRAFT / 'metrics.json').write_text('{"loss": 0.5}')
    assert set(j.rename(DRAFT, '1').values()) == {0}, j.text()
    assert [f.read_text() for f in (j[1 - who] / '1/metrics').iterdir()] == ['{"loss": 0.5}']
    assert_whole(run, bucket, proxy, root, spill)


@on('gs')
def test_a_draft_is_removed_and_begun_again(ranks, bucket):
    j = ranks(2)
    for _ in range(5):
        collective.begin(j)
        for r in range(2):
            shutil.rmtree(j[r] / DRAFT)
    collective.begin(j)
    assert stored(bucket) == {CLAIM}


@pytest.fixture
def patient(ranks, clock):
    """patient(n): a job whose ranks wait for each other for a minute of `clock`."""
    return lambda n: ranks(n, f'commit_timeout={MINUTE}', more=clock.environment)


def a_minute_passes(clock, when):
    """For j.rename(): a minute passes each time that when(results) has been so for ten looks. An earlier minute would only be one of several."""
    looks = [0]

    def meanwhile(results):
        looks[0] = looks[0] + 1 if when(results) else 0
        if looks[0] == 10:
            looks[0] = 0
            clock.advance(MINUTE)
    return meanwhile


@on('s3')
def test_a_missing_rank_is_waited_for(patient, clock, run, bucket, proxy, root, spill):
    j = patient(3)
    collective.fill(j)

    def rename(*ranks):
        return set(j.rename(DRAFT, '1', ranks, a_minute_passes(clock, lambda results: all(j.is_asleep(r) for r in ranks if r not in results))).values())
    assert rename(0, 1) == {errno.ETIMEDOUT}
    assert rename(1, 2) == {errno.ETIMEDOUT}
    # One of them may be told that the others did not wait for it.
    if rename(0, 1, 2) == {errno.ETIMEDOUT}:
        collective.commit(j)
    collective.check(j, 2)
    assert_whole(run, bucket, proxy, root, spill)


@on('gs')
def test_a_draft_that_all_ranks_give_up(ranks, bucket, proxy, spill):
    j = ranks(2)
    for end in ('rmtree', 'unmount'):
        collective.fill(j)
        assert stored(bucket) == {CLAIM}
        for r in range(2):
            if end == 'rmtree':
                shutil.rmtree(j[r] / DRAFT)
            else:
                j.unmount(r)
        mounts.wait_for(lambda: not bucket.keys())
        assert not unfinished(bucket, proxy)


@on('s3')
def test_one_rank_gives_up_its_part(ranks, run, bucket, proxy, root, spill):
    """It begins again in the draft of the others."""
    j = ranks(2)
    collective.fill(j)
    shutil.rmtree(j[1] / DRAFT)
    collective.fill(j, [1])
    (collective.top(j, 1) / collective.box('w', 0, 24)).unlink()
    collective.save_part(collective.top(j, 1), 'w', 12, 24)
    assert set(j.rename(DRAFT, '1').values()) == {0}, j.text()
    collective.check(j, 0)
    assert_whole(run, bucket, proxy, root, spill)


class Killer:
    """Kills a rank of a job at the first request to put an object of that key, before or after it is answered."""

    def __init__(self, proxy, key, is_done):
        self.proxy, self.key, self.is_done = proxy, key, is_done
        self.job = self.victim = None
        self.lock, self.was, self.asked = threading.Lock(), False, set()
        proxy.fault, proxy.gate = self.fault, self.gate

    @contextlib.contextmanager
    def gate(self, h):
        self.asked.add(h)
        try:
            yield
        finally:
            self.asked.discard(h)

    def fault(self, h):
        with self.lock:
            if self.was or not (h.command in ('PUT', 'POST') and self.key in h.path.replace('%2F', '/')):
                return False
            self.was = True
        if self.is_done:
            h.forward(*h.path.partition('?')[::2])
        self.job.kill(self.victim)
        mounts.wait_for(lambda: mounts.has_ended(self.job.pids[self.victim]))
        return h.reset()


@pytest.mark.parametrize('bucket, victim, key, is_done', on_buckets(
    (1, 'process_1/', False), (1, 'process_1/manifest', True), (0, 'process_0/manifest', False), (0, 'default/manifest', True),
    (0, MARKER, False), (0, MARKER, True)), indirect=['bucket'])
def test_a_rank_that_is_killed_while_they_commit(patient, clock, run, bucket, proxy, root, spill, victim, key, is_done):
    """The step is there as a whole, or not at all; the others do not get 0 unless it is, and gc removes the rest."""
    j = patient(2)
    collective.fill(j)
    killer = Killer(proxy, f'1/{key}' if key == MARKER else key, is_done)
    killer.job, killer.victim = j, victim
    result = j.rename(DRAFT, '1', meanwhile=a_minute_passes(
        clock, lambda results: mounts.has_ended(j.pids[victim]) and not killer.asked and j.is_asleep(1 - victim)))
    proxy.fault = proxy.gate = None
    assert killer.was, j.text()
    committed = MARKER in stored(bucket)
    assert committed == (key == MARKER and is_done)
    other = result[1 - victim]
    assert other == (0 if committed else errno.ETIMEDOUT), (result, j.text())
    j.end()
    proxy.wait_idle()
    assert (MARKER in stored(bucket)) == committed
    if bucket.keys():
        dying_upload.collect(run, bucket, root, 1)
    if committed:
        # The directory of the killed rank goes with the next program that makes one.
        shutil.rmtree(spill)
        assert_whole(run, bucket, proxy, root, spill)
    else:
        assert bucket.keys() == []


@pytest.fixture
def mpirun(program, mpi, proxy, spill):
    """mpirun('save', word, ...): the command in two ranks; (status of each, messages)."""
    def do(*words):
        script = f'{program} "$@"; echo $? >{spill}/status$OMPI_COMM_WORLD_RANK'
        r = subprocess.run(['mpirun', '--enable-recovery', '-n', '2', 'sh', '-c', script, 'sh', *map(str, words)], env=jobs.environment(),
                           capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)
        status = [spill / f'status{i}' for i in range(2)]
        return {int(p.read_text()) for p in status}, r.stderr
    return do


@pytest.mark.parametrize('bucket, command', on_buckets('save', 'convert -o ocdbt=off', 'convert --layout v0'), indirect=['bucket'])
def test_commands_of_ranks(mpirun, run, bucket, root, tmp_path, command):
    """Both ranks upload leaves; an error of one leaves nothing; a second one is refused."""
    words = command.split()
    source = SAMPLE / '1500/state' if words[-1] == 'v0' else SAMPLE / '1500'
    status, said = mpirun(*words, source, f'{root}/5')
    assert status == {0}, said
    assert run('diff', source, f'{root}/5').stdout.endswith(' 0 differences\n')
    assert '0 errors, 0 warnings' in run('verify', f'{root}/5').stdout
    before = bucket.keys()
    if 'ocdbt=off' not in words:
        assert all(any(f'ocdbt.process_{r}/d/' in key for key in before) for r in range(2))
    status, said = mpirun(*words, source, f'{root}/5')
    assert status == {1} and 'is there already' in said and bucket.keys() == before
    copy = tmp_path / 'copy'
    shutil.copytree(SAMPLE / '1500', copy)
    for file in (copy / 'state').rglob('d/*'):
        file.write_bytes(file.read_bytes()[:-1] + b'!')
    if words[0] == 'save':
        status, said = mpirun('save', '-o', 'compression=none', copy, f'{root}/6')
        assert status == {1} and bucket.keys() == before, said


@on('s3')
def test_objects_of_a_rank_whose_job_has_ended(ranks, run, bucket, root):
    """A rank that sent on when the primary had died and gc had run: only the age says that they are left over."""
    run('convert', SAMPLE / '1500', f'{root}/7')
    for key in ('default/ocdbt.process_1/d/ab12', 'default/ocdbt.process_1/manifest.ocdbt', 'default/w/.pytreefs-part-1-0'):
        bucket.put(f'run/8/{key}', b'x' * 1000)
    bucket.put('run/9/ocdbt.process_0/d/cd34', b'y')             # the tree itself is the step
    bucket.put('run/other/ocdbt.process_0/d/ef56', b'z')
    bucket.put('run/other/notes.txt', b'of somebody')
    bucket.put('run/7/default/ocdbt.process_5/d/ab', b'w')       # in a committed step
    kept = bucket.keys()
    r = run('convert', SAMPLE / '1500', f'{root}/8', ok=False)
    assert r.returncode == 1 and 'pytreefs gc' in r.stderr
    for args in ((), ('--all', '--older-than', '1d')):
        out = run('gc', *args, root).stdout
        assert re.findall(r'^(?:kept|removed) .*', out, re.M) and 'objects of ranks of a job that ended' in out
        assert bucket.keys() == kept, out
    for path in ('/7', '/7/default', '/8/default'):                     # an item in which a live job might write
        run('gc', '--all', '--older-than', '0s', root + path)
        assert bucket.keys() == kept, path
    out = run('gc', '--dry-run', '--all', '--older-than', '0s', root).stdout
    assert re.findall(r'^would remove.*?(\d+)', out, re.M) == ['8', '9'] and bucket.keys() == kept, out
    run('gc', '--all', '--older-than', '0s', root)
    assert bucket.keys() == [key for key in kept if not key.startswith(('run/8/', 'run/9/'))]
    run('convert', SAMPLE / '1500', f'{root}/8')
