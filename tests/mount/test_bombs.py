# SPDX-License-Identifier: Apache-2.0
"""Steps made to take a reader's memory: twelve of a kind at once, and the daemon stays within its budgets.

The peak of anonymous memory is what counts: pages of files are the kernel's to drop.
"""

import contextlib
import errno
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import threading
import time
from concurrent import futures

import numpy as np
import pytest

from lib import bombs, mounts

pytestmark = pytest.mark.timeout(1800)

MIB = 1 << 20
SMALL = 64 * MIB        # the constant beside cache and budgets that the design allows
BUDGETS = {'default': ([], 3 * 256 * MIB),
           '16M': (['cache=16M', 'read_budget=16M', 'write_budget=16M'], 3 * 16 * MIB)}
TOO_MUCH = 2048 * MIB    # the daemon is killed, before it takes the machine's memory
LONGEST = 240           # seconds that nothing may take: a hang, not a measure of speed
LOOKED_AT = 6           # names of a directory that are tried, beside the last
EXPECTED = {errno.EIO, errno.ENOMEM, errno.EFBIG, errno.ENOENT, errno.ENODATA, errno.EOPNOTSUPP}
ARRAY = np.arange(4096, dtype=np.float32).reshape(64, 64)


@pytest.fixture(scope='module')
def healthy(program, tmp_path_factory):
    """healthy(kind): a step with one array that the bomb of that kind can be made of."""
    where = tmp_path_factory.mktemp('healthy')
    (where / 'in').mkdir()
    np.save(where / 'in/w.npy', ARRAY)
    np.save(where / 'in/x.npy', np.arange(3))
    for name in ('on', 'off'):
        subprocess.run([program, 'save', '-o', f'ocdbt={name}', where / 'in', where / f'{name}/1'], check=True,
                       stdin=subprocess.DEVNULL)
    return lambda kind: where / ('off' if kind.startswith(bombs.BY_DIRECTORY) else 'on') / '1'


@contextlib.contextmanager
def peak_of(pid):
    """The largest RssAnon that is seen, in a list."""
    peak, over = [0], threading.Event()

    def watch():
        while not over.is_set() and peak[0] < TOO_MUCH:
            peak[0] = max(peak[0], mounts.memory(pid, 'RssAnon'))
            time.sleep(0.002)
        if peak[0] >= TOO_MUCH:
            os.kill(pid, signal.SIGKILL)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()


def read_all(path):
    with open(path, 'rb', buffering=0) as f:
        while f.read(MIB):
            pass


def entries(path):
    """Names below path, as far as directories list: a few of each directory."""
    found = [path]
    if os.path.isdir(path) and not os.path.islink(path):
        names = os.listdir(path)
        for name in names[:LOOKED_AT] + names[-1:]:
            found += entries(path / name)
    return found


def visit(step, answers, read=True):
    """Look at all that a step has and at its views; the errors that were met."""
    def attempt(what, *words):
        begin = time.monotonic()
        try:
            return what(*words)
        except OSError as e:
            answers.append((e.errno, str(words[0])))
        finally:
            took = time.monotonic() - begin
            if took > LONGEST:
                answers.append((-int(took), str(words[0])))
    for name in attempt(entries, step) or [step]:
        attempt(os.stat, name)
        for attribute in attempt(os.listxattr, name) or []:
            attempt(os.getxattr, name, attribute)
    for path in read and attempt(entries, step) or []:
        if not os.path.isdir(path):
            attempt(read_all, path)
    for ending in ('.safetensors', '.json', '.html'):
        attempt(read_all if read else os.stat, step.with_name(step.name + ending))
        attempt(os.stat, step / f'default{ending}')
        attempt(os.stat, step / f'default/w{ending}')
        attempt(os.stat, step / 'default/w.npy')
    return answers


@pytest.mark.parametrize('budgets,kind', [(b, k) for k in bombs.KINDS for b in BUDGETS if b == '16M' or k not in bombs.LONG])
def test_twelve_at_once(mount, program, healthy, tmp_path, kind, budgets):
    options, allowed = BUDGETS[budgets]
    (tmp_path / 'root').mkdir()
    root = bombs.make_root(tmp_path / 'root', kind, healthy)
    m = mount(root, *options, allow_errors=True)
    steps = [m / str(i) for i in range(1, 13)]
    with peak_of(m.pid) as peak, futures.ThreadPoolExecutor(12) as pool:
        answers = sum(pool.map(visit, steps, [[] for _ in steps]), [])
        # Its neighbours do not make a healthy step wait for long.
        assert np.array_equal(np.load(m / '100/default/w.npy'), ARRAY)
        answers += sum(pool.map(visit, steps, [[] for _ in steps], [False] * 12), [])
    assert not [a for a in answers if a[0] not in EXPECTED], answers
    # The bomb was met, and not a checksum of the healthy step's value.
    assert not [line for line in m.log_lines() if 'value of' in line and 'crc32c' in line]
    if not mounts.is_sanitized(program):
        assert peak[0] <= allowed + SMALL, f'{peak[0] >> 20} MiB'
    print(f'PEAK {kind}: {budgets}: {peak[0] >> 20} MiB')


@pytest.mark.parametrize(('kind', 'name'), [('_METADATA of one key of 200 MiB', 'default'), ('_strings.json of one name', 'default/s.txt'),
                                            ('aggregate file of one key', 'default'), ('.zarray of a long list', 'default/w.npy'),
                                            ('.zarray of one text', 'default/w.npy')])
def test_a_refusal_is_remembered_until_the_file_changes(mount, healthy, tmp_path, kind, name):
    """Also when it was for want of memory: whoever asks again costs nothing."""
    (tmp_path / 'root').mkdir()
    root = bombs.make_root(tmp_path / 'root', kind, healthy, count=1)
    m = mount(root, *BUDGETS['16M'][0], allow_errors=True)

    def refused():
        with pytest.raises(OSError):
            os.stat(m / '1' / name)
        return m.stats()['metadata_refusals']
    before = refused()
    assert before > 0
    assert [refused() for _ in range(5)] == [before] * 5
    if name.endswith('.txt'):
        (root / '1/default/_strings.json').unlink()
        (root / '1/default/_strings.json').write_text('{"s": "short"}')
        assert (m / '1' / name).read_text() == 'short'
    elif name.endswith('.npy'):
        (root / '1/default/w/.zarray').unlink()
        shutil.copy(healthy(kind) / 'default/w/.zarray', root / '1/default/w/.zarray')
    else:
        shutil.rmtree(root / '1/default')
        shutil.copytree(healthy(kind) / 'default', root / '1/default')
    assert np.array_equal(np.load(m / '1/default/w.npy'), ARRAY)


@pytest.mark.parametrize('count', [2, 1 << 40, (1 << 64) - 1])
def test_an_npz_that_counts_too_many_members(run, tmp_path, count):
    """The count is compared with the bytes of the directory before memory for so many is allocated. The last count plus one is 0."""
    data = (pathlib.Path(__file__).resolve().parents[1] / 'data/fuzz/zip/zip64').read_bytes()
    at = data.rindex(b'PK\x06\x06') + 24
    (tmp_path / 'a.npz').write_bytes(data[:at] + struct.pack('<2Q', count, count) + data[at + 16:])
    r = run('convert', tmp_path / 'a.npz', tmp_path / 'ck', ok=False)
    assert r.returncode == 1 and "a.npz': its directory does not lie in the file" in r.stderr, r.stderr
    assert os.listdir(tmp_path) == ['a.npz']
