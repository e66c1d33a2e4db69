# SPDX-License-Identifier: Apache-2.0
"""Listings of a bucket that are older than what is in it: readers see a step later, and neither a writer nor gc takes a committed step for
something else. An object that is asked for by its name is the present one, as all services have it."""

import os
import pathlib

import pytest

from lib import buckets, compare, dying_upload, mounts
from lib.pairs import on, on_buckets

BUCKET = 'lags'
IN_MEMORY = True  # both for the fixtures
SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data/sample'
MARKER, CLAIM = dying_upload.MARKER, dying_upload.CLAIM
OTHER = b'pytreefs draft 1\nid=1\nhost=other\nboot=b\nnames=n\npid=1\nstarted=1\n'
GC = ('gc', '--all', '--older-than', '0s')


@pytest.fixture
def root(bucket, proxy, spill):
    return f'{bucket.scheme}://lags/run'


def contents(bucket):
    return {key: bucket.get(key) for key in bucket.keys()}


@pytest.mark.parametrize('bucket, hidden', on_buckets('run/2000/', f'run/2000/{MARKER}', 'run/2000/state/', '/d/'), indirect=['bucket'])
def test_a_reader_sees_a_step_when_listings_show_it(mount, bucket, proxy, root, hidden):
    """Until then it sees none, or what it reads of it is right, or an error; afterwards all of it."""
    bucket.upload(SAMPLE / '1000', 'run/1000')
    m = mount(root, 'poll=100', allow_errors=True)
    want = compare.contents(m / '1000')
    # All of it comes at once: the mount looks at the root meanwhile.
    proxy.fault = buckets.lagging(lambda name: name.startswith('run/2000/'))
    bucket.upload(SAMPLE / '1000', 'run/2000')
    proxy.fault = lag = buckets.lagging(lambda name: name.startswith('run/2000/') and hidden in name)
    if MARKER in hidden or hidden == 'run/2000/':
        mounts.wait_for(lambda: os.listdir(m.path) and len(lag.shown_without) >= 3)
        assert os.listdir(m.path) == ['1000'] and not (m / '2000').exists()
    else:
        mounts.wait_for(lambda: '2000' in os.listdir(m.path))
        for name in want:
            try:
                got = (m / '2000' / name).read_bytes() if (m / '2000' / name).is_file() else None
            except OSError:
                continue
            assert got is None or got == (m / '1000' / name).read_bytes(), name
        assert lag.shown_without
    proxy.fault = None

    def is_whole():
        try:
            return '2000' in os.listdir(m.path) and compare.contents(m / '2000') == want
        except OSError:
            return False
    mounts.wait_for(is_whole)


@on('gs')
def test_a_save_ends_when_a_listing_shows_the_step(run, bucket, proxy, root):
    """Until then it keeps its claim, so that nobody else begins there."""
    claimed = []
    lag = buckets.lagging(lambda name: name == f'run/5/{MARKER}')

    def fault(h):
        if len(lag.shown_without) >= 3:
            return False
        before = len(lag.shown_without)
        answered = lag(h)
        if len(lag.shown_without) > before:
            claimed.append(f'run/5/{CLAIM}' in bucket.keys())
        return answered
    proxy.fault = fault
    run('convert', SAMPLE / '1500', f'{root}/5')
    assert claimed == [True] * 3
    assert run('ls', root).stdout == '5/\n' and f'run/5/{CLAIM}' not in bucket.keys()


@on('s3')
def test_a_committed_step_is_not_written_again(run, bucket, proxy, root):
    """Although no listing shows anything of it."""
    run('convert', SAMPLE / '1500', f'{root}/5')
    before = contents(bucket)
    proxy.fault = lag = buckets.lagging(lambda name: name.startswith('run/5/') and CLAIM not in name)
    r = run('convert', SAMPLE / '1000', f'{root}/5', ok=False)
    assert r.returncode == 1 and f"'{root}/5' is there already" in r.stderr, r.stderr
    assert lag.shown_without and contents(bucket) == before


@on('gs')
def test_gc_leaves_a_step_whose_marker_is_not_listed(run, bucket, proxy, root):
    """Its writer died after the marker, so it has a claim: only that goes."""
    run('convert', SAMPLE / '1500', f'{root}/5')
    before = contents(bucket)
    bucket.put(f'run/5/{CLAIM}', OTHER)
    proxy.fault = lag = buckets.lagging(lambda name: name == f'run/5/{MARKER}')
    for words in (('--dry-run',), ()):
        said = run(*GC, *words, root).stdout
        assert 'uncommitted' not in said, said
    assert lag.shown_without and contents(bucket) == before


@pytest.mark.parametrize('bucket, is_committed', on_buckets(True, False), indirect=['bucket'])
def test_gc_leaves_what_ranks_sent_when_only_that_is_listed(run, bucket, proxy, root, is_committed):
    """As of a rank whose job is dead: the marker, or the claim, is there and not listed."""
    bucket.upload(SAMPLE / '1500/state/ocdbt.process_0', 'run/5/state/ocdbt.process_0')
    bucket.put(f'run/5/{MARKER if is_committed else CLAIM}', OTHER)
    before = contents(bucket)
    proxy.fault = lag = buckets.lagging(lambda name: 'run/5/' in name and name.endswith((MARKER, CLAIM)))
    assert '0 removed' in run(*GC, root).stdout
    assert lag.shown_without and contents(bucket) == before
