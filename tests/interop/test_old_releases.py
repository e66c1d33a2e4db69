# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that older releases of Orbax (and flax) wrote, read to the last bit: tests/data/old."""

import pytest

from lib import compare, old


@pytest.mark.feature('F4')
@pytest.mark.parametrize('release,name', old.names())
def test_release(mount, release, name):
    case = old.get(release, name)
    m = mount(case.path)
    faults = compare.compare_case(m.path, case)
    for where, tree in case.trees.items():
        faults += list(compare.through_pread(m / where, tree, reads=5))
    assert not faults, '\n'.join(faults)


@pytest.mark.parametrize('release', ['0.4.0', '0.4.1', '0.4.2'])
def test_shardings(run, release):
    """0.4.0 and 0.4.1 wrote the names of parameters as they are, and the file beside the first array."""
    item = old.get(release, 'standard').path
    assert 'w[0:20,0:18].npy' in run('explain', '--sharding', item / 'transformer%2Flayer_0/w.npy').stdout
    assert run('explain', '--sharding', item / 'dense/k.npy', ok=False).returncode == 1   # its text is empty


@pytest.mark.parametrize('text', ['[]', '{"a"', '{"cGFyYW1zLmRlbnNlLmtlcm5lbA==": "x"}',
                                  '{"cGFyYW1zLmRlbnNlLmtlcm5lbA==": "{\\"sharding_type\\": \\"PositionalSharding\\"}"}'])
def test_a_sharding_that_cannot_be_read_stops_nothing(run, mount, copy, tmp_path, text):
    case = old.get('0.10.3', 'pytree')
    item = copy(case)
    (item / '_sharding').write_text(text)
    verified = run('verify', item, ok=False).stdout
    assert '0 errors' in verified and 'warning: _sharding: no sharding of' in verified, verified
    assert ("warning: _sharding: '_sharding': line 1" in verified) == ('Positional' not in text), verified
    run('convert', item, tmp_path / 'converted')
    assert '14 the same, 0 differences' in run('diff', item, tmp_path / 'converted').stdout
    assert run('cat', item / 'params/dense/kernel.npy', text=False).stdout


def test_enough_releases_are_there():
    releases = old.releases()
    assert len(releases) >= 6 and releases[0] == '0.2.7' and releases[-1] == '0.12.4', releases
