# SPDX-License-Identifier: Apache-2.0
"""The ranks of an MPI job read a step in a bucket."""

import numpy as np
import pytest

from lib.pairs import on_buckets

BUCKET = 'of-a-job'
IN_MEMORY = True  # both for the fixtures
MIB = 1 << 20
LEAVES = {f'leaf{i}': np.random.default_rng(i).standard_normal(2 * MIB // 8) for i in range(4)}


def data_bytes(proxy):
    """The number of bytes of data files that were requested; a range that is asked for twice counts twice."""
    total = 0
    for method, path, ranges in list(proxy.requests):
        if method == 'GET' and '/d/' in path and ranges:
            first, last = ranges.removeprefix('bytes=').split('-')
            total += int(last) - int(first) + 1
    return total


@pytest.mark.parametrize('bucket, ranks', on_buckets(2, 4), indirect=['bucket'])
def test_a_bucket_is_read_once_in_the_whole_job(job, mpi, run, bucket, proxy, tmp_path, ranks):
    """The server sends the data once, however many ranks read all of it; without load_and_broadcast, once for each."""
    files, root = tmp_path / 'in', f'{bucket.scheme}://{BUCKET}/run'
    files.mkdir()
    for name, value in LEAVES.items():
        np.save(files / f'{name}.npy', value)
    run('save', '-o', 'chunk_byte_size=256K,compression=none', files, f'{root}/1')
    stored = sum(v.nbytes for v in LEAVES.values())

    def all_of_it(*options):
        j = job(ranks, *options, source=root)
        proxy.requests.clear()
        look = j.each(lambda r: all((j[r] / f'1/default/{name}.npy').read_bytes()[-v.nbytes:] == v.tobytes() for name, v in LEAVES.items()))
        assert look == dict.fromkeys(range(ranks), True)
        asked = data_bytes(proxy)
        assert sum(j.stats(r)['broadcast_fallbacks'] for r in range(ranks)) == 0, j.text()
        return asked
    assert stored <= all_of_it('load_and_broadcast', 'broadcast_memory_limit=256M') < 1.5 * stored
    assert all_of_it() >= ranks * stored
