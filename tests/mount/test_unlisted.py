# SPDX-License-Identifier: Apache-2.0
"""A web server cannot list: what names are not known is said by every command, and nothing is empty without a word."""

import json
import os
import shutil
import warnings

import numpy as np
import pytest
import zarr

from lib import compare, package, servers

pytreefs = package.imported()
COMMANDS = [['tree'], ['stats'], ['info'], ['verify'], ['diff', None], ['export', 'a.npz'], ['export', 'a.safetensors'], ['convert', '7']]


def words_of(words, url, tmp_path):
    """The arguments of a command for this source; None stands for it once more."""
    return [words[0], url, *[url if w is None else tmp_path / w for w in words[1:]]]


def test_a_random_key_has_names_that_are_known(run, mount, cases, tmp_path):
    case = cases('random-key-items')
    with servers.nginx(tmp_path / 'server', case.path) as url:
        assert compare.contents(mount(url).path) == compare.contents(mount(case.path).path)
        assert run('verify', url).stdout == run('verify', case.path).stdout
        got, want = pytreefs.load(url), pytreefs.load(case.path)
        assert got.keys() == want.keys() and 'rng' in got
        assert got['rng'].tolist() == case.notes['key']
        assert run('cat', f'{url}/rng/jax_random_key/checkpoint.npy', text=False).stdout == \
            run('cat', case.path / 'rng/jax_random_key/checkpoint.npy', text=False).stdout
        assert run('diff', url, case.path).returncode == 0


@pytest.fixture
def step(cases, tmp_path):
    """A step with an item of the name `other`, whose handler is of another program."""
    path = tmp_path / 'step'
    shutil.copytree(cases('random-key-items').path, path)
    (path / 'other').mkdir()
    doc = json.loads((path / '_CHECKPOINT_METADATA').read_text())
    doc['item_handlers']['other'] = 'models.JsonAndMoreHandler'
    (path / '_CHECKPOINT_METADATA').write_text(json.dumps(doc))
    return path


@pytest.mark.parametrize('files', [['vocab.txt'], ['vocab.txt', 'commit_success.txt']])
def test_an_item_of_which_no_name_is_known_is_never_empty(run, mount, step, tmp_path, files):
    for name in files:
        (step / 'other' / name).write_text('a')
    with servers.nginx(tmp_path / 'server', step) as url:
        for words in COMMANDS:
            r = run(*words_of(words, url, tmp_path), ok=False)
            assert r.returncode and 'other' in r.stdout + r.stderr and not os.path.exists(tmp_path / 'a.npz'), (words, r.stdout, r.stderr)
            assert words != ['verify'] or (r.returncode == 2 and ': 0 errors, 0 warnings, 1 could not be checked' in r.stdout), r.stdout
        with pytest.raises(pytreefs.Error, match='other'):
            pytreefs.load(url)
        with pytest.raises(OSError):
            os.listdir(mount(url, allow_errors=True) / 'other')


def test_an_item_of_which_some_names_are_known_is_said_to_be_so(run, mount, step, tmp_path):
    for name in ('metadata', 'vocab.txt'):
        (step / 'other' / name).write_text('{}')
    said = "item 'other' may have more files: its server cannot list"
    with servers.nginx(tmp_path / 'server', step) as url:
        for words in COMMANDS:
            r = run(*words_of(words, url, tmp_path), ok=False)
            assert said in r.stdout + r.stderr and r.returncode == (2 if words == ['verify'] else 0), (words, r.stdout, r.stderr)
        with pytest.warns(UserWarning, match=said):
            pytreefs.load(url)
        m = mount(url, allow_errors=True)
        assert os.listdir(m / 'other') == ['metadata'] and any(said in line for line in m.log_lines())
        # Nor is a document known that is damaged.
        (step / '_CHECKPOINT_METADATA').write_text('{')
        r = run('ls', f'{url}/other', ok=False)
        assert said in r.stderr, (r.stdout, r.stderr)


@pytest.mark.parametrize('version', [2, 3])
@pytest.mark.parametrize('is_consolidated', [False, True])
def test_a_group_whose_names_are_not_known_is_refused(run, tmp_path, version, is_consolidated):
    """Also where its metadata were consolidated before anything was in it."""
    group = zarr.open_group(tmp_path / 'group', mode='w', zarr_format=version)
    if is_consolidated:
        with warnings.catch_warnings(action='ignore'):
            zarr.consolidate_metadata(tmp_path / 'group')
        group = zarr.open_group(tmp_path / 'group', mode='a', use_consolidated=False)
    group['w'] = np.arange(4.)
    with servers.nginx(tmp_path / 'server', tmp_path / 'group') as url:
        for words in [*COMMANDS, ['ls'], ['report', 'page.html']]:
            r = run(*words_of(words, url, tmp_path), ok=False)
            assert r.returncode and 'without consolidated metadata' in r.stdout + r.stderr, (words, r.stdout, r.stderr)
            assert words != ['verify'] or (r.returncode == 2 and '1 could not be checked' in r.stdout), r.stdout
        with pytest.raises(pytreefs.Error, match='without consolidated metadata'):
            pytreefs.load(url)
