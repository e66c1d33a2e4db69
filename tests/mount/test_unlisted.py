# SPDX-License-Identifier: Apache-2.0
"""A web server cannot list: what names are not known is said by every command, and nothing is empty without a word."""

import json
import os
import pathlib
import shutil
import sys
import warnings

import numpy as np
import pytest
import zarr

sys.path.insert(0, str(pathlib.Path(os.environ['PYTREEFS_BUILD']) / 'tools/python'))

import pytreefs  # noqa: E402
from lib import compare, servers  # noqa: E402

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
        assert got.keys() == want.keys() and 'rng/jax_random_key' in got
        assert got['rng/jax_random_key']['checkpoint'].tolist() == case.notes['key']
        assert run('cat', f'{url}/rng/jax_random_key/checkpoint.npy', text=False).stdout == \
            run('cat', case.path / 'rng/jax_random_key/checkpoint.npy', text=False).stdout
        assert run('diff', url, case.path).returncode == 0
