# SPDX-License-Identifier: Apache-2.0
"""save(): what is written restores with Orbax, TensorStore and load(), and is there as a whole or not at all."""

import collections
import contextlib
import errno
import gc
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings

import ml_dtypes
import numpy as np
import pytest

import pytreefs
from lib import expect, loading, mounts
from lib.pairs import LONG

Point = collections.namedtuple('Point', 'x y')


def tree():
    r = np.random.default_rng(16)
    return {
        'params': {'dense': {'kernel': r.normal(size=(300, 130)).astype(np.float32), 'bias': np.zeros(130, np.float16)},
                   'embed': r.normal(size=(64, 32)).astype(ml_dtypes.bfloat16)},
        'layers': [{'w': np.arange(12, dtype=np.int32).reshape(3, 4).T}, {'w': np.arange(7)[::-2]}],
        'small': r.normal(size=(5,)).astype(ml_dtypes.float8_e4m3fn), 'flags': np.array([True, False]),
        'z': np.array([1 + 2j, 3]), 'rank0': np.array(3, np.int16), 'big_endian': np.arange(3, dtype='>i4'),
        'step': 7, 'rate': 1e-3, 'on': True, 'off': False, 'name': 'süß\n', 'nothing': None, 'empty': {}, 'none': [],
        'odd/ke%y': {'': np.ones(2), '.': np.ones(1)}, 'np': np.float32(2.5),
    }


def saved(like):
    """The tree as it comes back."""
    return expect.flatten(like)


def test_a_step_comes_back(tmp_path):
    source = tree()
    pytreefs.save(tmp_path / '7', source, metadata={'by': 'me'})
    assert pytreefs.steps(tmp_path) == [7]
    wanted = saved(source)
    wanted.leaves['big_endian',] = np.arange(3, dtype=np.int32)
    assert not loading.faults(wanted, pytreefs.load(tmp_path / '7'))
    with pytreefs.open(tmp_path / '7') as ck:
        assert list(ck) == ['default'] and ck.metadata == {'by': 'me'}


@pytest.mark.parametrize('options', [{}, {'zarr': 3}, {'ocdbt': False}, {'zarr': 3, 'ocdbt': False}, {'compression': 'none'}], ids=str)
def test_orbax_and_tensorstore_restore_it(tmp_path, options):
    from lib import restoring
    source = tree()
    for key in ('z', 'small', 'flags', 'big_endian', 'odd/ke%y'):
        del source[key]
    pytreefs.save(tmp_path / '7', source, **options)
    wanted = saved(source)
    faults = restoring.by_orbax(tmp_path, 7, wanted)
    faults += list(restoring.by_tensorstore(tmp_path / '7/default', wanted, ocdbt=options.get('ocdbt', True),
                                            zarr3=options.get('zarr') == 3))
    assert not faults, '\n'.join(faults)


def test_items_and_bare_items(tmp_path):
    pytreefs.save(tmp_path / '1', {'a': {'x': 1}, 'b': [np.ones(3)]}, items=True)
    assert pytreefs.load(tmp_path / '1')['a'] == {'x': 1}
    pytreefs.save(tmp_path / '2', {'x': 1}, item='state')
    assert pytreefs.load(tmp_path / '2') == {'state': {'x': 1}}
    pytreefs.save(tmp_path / 'item', {'x': 1, 'w': np.ones(2)}, item=None, metadata={'k': [1]})
    with pytreefs.open(tmp_path / 'item') as ck:
        assert ck.kind == 'dict' and ck['x'].read() == 1
    import orbax.checkpoint as ocp
    assert ocp.PyTreeCheckpointer().restore(tmp_path / 'item')['x'] == 1


def test_rich_types(tmp_path):
    source = {'t': (1, (np.ones(2),)), 'p': Point(1, 'two')}
    pytreefs.save(tmp_path / '1', source, rich_types=True)
    got = pytreefs.load(tmp_path / '1')
    assert got['t'][0] == 1 and type(got['t'][1]) is tuple
    assert type(got['p']).__name__ == 'Point' and tuple(got['p']) == (1, 'two')


def test_jax_and_torch(tmp_path):
    import jax
    import jax.numpy as jnp
    import torch

    source = {'j': jnp.arange(6.0).reshape(2, 3), 'jb': jnp.ones((4,), jnp.bfloat16), 't': torch.arange(5),
              'tb': torch.full((3, 2), 1.5, dtype=torch.bfloat16).t(), 'p': torch.nn.Parameter(torch.ones(2)),
              't8': torch.ones(3).to(torch.float8_e4m3fn), 'part': jax.tree_util.Partial(print, jnp.ones(2))}
    pytreefs.save(tmp_path / '1', source)
    got = pytreefs.load(tmp_path / '1')
    assert np.array_equal(got['j'], np.asarray(source['j'])) and got['jb'].dtype == ml_dtypes.bfloat16
    assert got['t'].tolist() == [0, 1, 2, 3, 4] and got['tb'].shape == (2, 3) and float(got['tb'][0, 0]) == 1.5
    assert got['p'].tolist() == [1, 1] and got['t8'].dtype == ml_dtypes.float8_e4m3fn
    torch_tree = pytreefs.load(tmp_path / '1', framework='torch')
    assert torch.equal(torch_tree['tb'], source['tb']) and torch_tree['t8'].dtype == torch.float8_e4m3fn


def test_typed_prng_keys(tmp_path):
    """Orbax restores them as keys of the same implementation; their integers are what load() gives."""
    import jax
    import orbax.checkpoint as ocp

    tree = {'key': jax.random.key(7), 'many': jax.random.split(jax.random.key(1, impl='rbg'), 3),
            'inner': {'old': jax.random.PRNGKey(3)}}
    pytreefs.save(tmp_path / '1', tree)
    got = pytreefs.load(tmp_path / '1')
    assert np.array_equal(got['key'], jax.random.key_data(tree['key'])) and got['many'].shape == (3, 4)
    with ocp.PyTreeCheckpointer() as c:
        restored = c.restore(tmp_path / '1' / 'default')
    for name in ('key', 'many'):
        assert restored[name].dtype == tree[name].dtype
        assert np.array_equal(jax.random.key_data(restored[name]), jax.random.key_data(tree[name]))
    assert np.array_equal(restored['inner']['old'], tree['inner']['old'])


@pytest.mark.parametrize('bad', [object(), np.array(['a']), np.array([object()]), np.zeros(2, 'M8[s]'), b'bytes', 1 << 70, ...],
                         ids=['object', 'text', 'objects', 'dates', 'bytes', 'large', 'placeholder'])
def test_what_cannot_be_saved_is_named_and_leaves_nothing(tmp_path, bad):
    with pytest.raises(pytreefs.Error, match='a/b') as e:
        pytreefs.save(tmp_path / '1', {'a': {'b': bad}, 'w': np.ones(3)})
    assert e.value.filename.endswith('1/default/a/b')
    assert os.listdir(tmp_path) == []


def test_a_refused_commit_leaves_nothing(tmp_path):
    """Nor is the name held: the next save of it succeeds, in the same process."""
    for _ in range(2):
        with pytest.raises(pytreefs.Error, match="restores no empty tree: '"):
            pytreefs.save(tmp_path / '1', {})
        assert os.listdir(tmp_path) == []
    pytreefs.save(tmp_path / '1', {'x': 2})
    assert pytreefs.load(tmp_path / '1') == {'x': 2}


@pytest.mark.parametrize('name', ['latest', 'root/latest', 'latest/7'])
def test_a_first_step_is_not_called_latest(tmp_path, name):
    """The step that comes beside it would hide it."""
    with pytest.raises(pytreefs.Error, match='is read as the newest step.*number'):
        pytreefs.save(tmp_path / name, {'w': np.zeros(3)})
    assert os.listdir(tmp_path) == []


def test_latest_is_the_newest_step(tmp_path):
    """So it is not a name for a new one."""
    pytreefs.save(tmp_path / '1', {'w': np.ones(3)})
    with pytest.raises(pytreefs.Error, match='is read as the newest step'):
        pytreefs.save(tmp_path / 'latest', {'w': np.zeros(3)})
    assert os.listdir(tmp_path) == ['1'] and pytreefs.load(tmp_path / 'latest')['w'].sum() == 3


def test_an_existing_step_stays_unless_overwrite(tmp_path):
    pytreefs.save(tmp_path / '1', {'x': 1})
    with pytest.raises(pytreefs.Error, match='is there already, and is not to be replaced'):
        pytreefs.save(tmp_path / '1', {'x': 2})
    assert pytreefs.load(tmp_path / '1') == {'x': 1}
    pytreefs.save(tmp_path / '1', {'x': 2}, overwrite=True)
    assert pytreefs.load(tmp_path / '1') == {'x': 2} and os.listdir(tmp_path) == ['1']


def test_progress_can_end_a_save(tmp_path):
    def stop(done, total):
        raise RuntimeError('enough')
    with pytest.raises(RuntimeError, match='enough'):
        pytreefs.save(tmp_path / '1', {f'w{i}': np.random.default_rng(i).normal(size=1 << 19) for i in range(40)}, progress=stop)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize('tree', [{'w': np.arange(1000)}, {'w': np.arange(1 << 20), 'text': 'abc', 'n': np.float32(1), 'none': None}, {'none': None}],
                         ids=['small', 'mixed', 'no bytes'])
def test_progress_reaches_the_end(tmp_path, tree):
    """A fraction can be computed at each call, and the last one is 1."""
    for call in (lambda f: pytreefs.save(tmp_path / '1', tree, progress=f), lambda f: pytreefs.load(tmp_path / '1', progress=f)):
        seen, fractions = [], []

        def progress(done, total):
            seen.append((done, total))
            fractions.append(done / total)
        call(progress)
        total = {t for _, t in seen}
        assert fractions == sorted(fractions) and len(total) <= 1, seen
        assert fractions[-1:] == ([1.0] if 'w' in tree else []), seen


def test_progress_can_end_a_save_before_it_is_committed(tmp_path):
    """When all bytes were taken, and the step does not exist yet."""
    def stop(done, total):
        if done == total:
            raise RuntimeError('enough')
    with pytest.raises(RuntimeError, match='enough'):
        pytreefs.save(tmp_path / '1', {'w': np.arange(1000)}, progress=stop)
    assert os.listdir(tmp_path) == []


def test_a_fault_of_the_disk_is_an_error_and_leaves_nothing(tmp_path):
    """Changes of the disk fail, one after the other: the error has a name, nothing is there, and no descriptor stays open."""
    # Descriptors that earlier tests of this process have left may be closed meanwhile.
    gc.collect()
    descriptors = len(os.listdir('/proc/self/fd'))
    failed = quiet = 0
    n = 1
    while quiet < 3:        # a fault may hurt nobody
        n += 3
        try:
            pytreefs.save(tmp_path / '1', {'w': np.ones(300), 'x': {'y': 'text'}}, io=f'fault(change:enospc:{n}):sync')
        except pytreefs.Error as e:
            failed, quiet = failed + 1, 0
            assert e.errno == errno.ENOSPC and e.filename and "'" in e.strerror
            assert os.listdir(tmp_path) == [] and len(os.listdir('/proc/self/fd')) <= descriptors
        else:
            quiet += 1
            assert pytreefs.load(tmp_path / '1')['x'] == {'y': 'text'}
            shutil.rmtree(tmp_path / '1')
    assert failed > 5


SAVER = '''
import os, signal, sys, time, numpy as np, pytreefs
for line in sys.stdin:
    delay, seed, path = line.rstrip().split(" ", 2)
    tree = {f"w{i}": np.random.default_rng(int(seed)).normal(size=(64, 1024)).astype(np.float32) for i in range(24)}
    begin = time.monotonic()
    pid = os.fork()
    if not pid:
        try:
            pytreefs.save(path, tree, overwrite=int(seed) > 0)
            os._exit(0)
        finally:
            os._exit(1)
    if delay != "never":
        time.sleep(float(delay))
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(status, time.monotonic() - begin, flush=True)
'''


def gc_leaves(root):
    """The names that are left in root after gc. A draft that has no lock yet may be somebody's who is about to lock it, for
    a minute: it is made older here."""
    with contextlib.suppress(FileNotFoundError):
        for path in root.glob('.*-begun-*'):
            for old in (*path.rglob('*'), path):
                os.utime(old, (time.time() - 100,) * 2)
    subprocess.run([os.environ['PYTREEFS_PROGRAM'], 'gc', root], check=True, stdout=subprocess.DEVNULL)
    return os.listdir(root)


# How many of a save.
MOMENTS = 50 if LONG else 12


def test_killed_while_it_saves(tmp_path):
    """SIGKILL at many moments of a save: the step is there as a whole, or not at all, and gc removes the rest."""
    whole, taken = 0, 0.0
    with subprocess.Popen([sys.executable, '-c', SAVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as p:
        for n in range(MOMENTS + 1):
            root = tmp_path / str(n)
            root.mkdir()
            # The first one says how long it takes.
            p.stdin.write(f'{taken * n / MOMENTS if n else "never"} 0 {root / "5"}\n')
            p.stdin.flush()
            status, seconds = p.stdout.readline().split()
            assert int(status) in ((0, -signal.SIGKILL) if n else (0,))
            taken = taken or float(seconds)
            steps = pytreefs.steps(root)
            assert steps in ([], [5]) and (steps or int(status))
            if steps:
                whole += 1
                got = pytreefs.load(root / '5')
                assert len(got) == 24 and all(a.shape == (64, 1024) for a in got.values())
                assert pytreefs.verify(root / '5')['errors'] == 0
            # The kernel may still complete requests of the killed process: make a file, or hold a lock.
            mounts.wait_for(lambda: gc_leaves(root) == ['5'] * len(pytreefs.steps(root)))
        p.stdin.close()
    assert whole


def test_killed_while_it_replaces(tmp_path):
    """SIGKILL at many moments of a save that replaces a step: the step is always there, and is the old one or the new one."""
    seen, taken, now = set(), 0.0, 1
    missing, stop = [], threading.Event()

    def look():
        while not stop.is_set():
            if not (tmp_path / '5').exists():
                missing.append(time.monotonic())
    pytreefs.save(tmp_path / '5', {'w0': np.zeros(3)})
    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        with subprocess.Popen([sys.executable, '-c', SAVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as p:
            for n in range(1, MOMENTS + 2):
                # The first one says how long it takes, and the second one is killed at once.
                p.stdin.write(f'{taken * (n - 2) / (MOMENTS - 1) if taken else "never"} {n} {tmp_path / "5"}\n')
                p.stdin.flush()
                status, seconds = p.stdout.readline().split()
                assert int(status) in ((0, -signal.SIGKILL) if taken else (0,))
                taken = taken or float(seconds)
                got = pytreefs.load(tmp_path / '5')
                is_new = np.array_equal(got['w0'], np.random.default_rng(n).normal(size=(64, 1024)).astype(np.float32))
                now = n if is_new else now
                seen.add(is_new)
                want = np.random.default_rng(now).normal(size=(64, 1024)).astype(np.float32)
                assert len(got) == 24 and all(np.array_equal(a, want) for a in got.values()) and (is_new or int(status))
                mounts.wait_for(lambda: gc_leaves(tmp_path) == ['5'])
            p.stdin.close()
    finally:
        stop.set()
        watcher.join()
    assert seen == {False, True} and not missing


def test_options_of_integrity(tmp_path):
    w = np.arange(5, dtype=np.float64)
    pytreefs.save(tmp_path / '1', {'w': w}, manifest=True, zarr=3, crc32c=True, ocdbt=False)
    assert (tmp_path / '1/default/.sha256sums').read_text() == f'{hashlib.sha256(w.tobytes()).hexdigest()}  w.bin\n'
    assert 'crc32c' in (tmp_path / '1/default/w/zarr.json').read_text().split('index_codecs')[0]
    assert pytreefs.verify(tmp_path / '1')['sha256'] == {'leaves': 1, 'bytes': w.nbytes}


def test_integer_keys_are_said(tmp_path):
    """Once in a save, and not of lists or texts."""
    with pytest.warns(UserWarning, match="^keys of 'default/opt/state' are integers, .*like=") as said:
        pytreefs.save(tmp_path / '1', {'opt': {'state': {0: {1: 2}}, 'then': {3: 4}}})
    assert len(said) == 1 and said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        pytreefs.save(tmp_path / '2', {'opt': [{'0': 1}]})
