# SPDX-License-Identifier: Apache-2.0
"""docs/json.md: every member on the page is printed by its commands, and they print no other."""

import json
import pathlib
import re
import shutil

import numpy as np
import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = TOP / 'tests/data/sample'
SHARED = ('ls', 'tree', 'save', 'export', 'convert')
AS_STORED = ('codecs', 'sharding', 'metrics')      # what Orbax and zarr wrote, member by member


def sections():
    """{command: (members that its section mentions, members of the first column of its table)}

    `ls` and `tree` share a section, and so do others: what each of them prints alone is said in its text.
    """
    out = {}
    for title, text in re.findall(r'^## (.*?)\n(.*?)(?=^## |\Z)', (TOP / 'docs/json.md').read_text(), re.M | re.S):
        words = set(re.findall(r'`([a-z_0-9]+)`', text))
        first = {w for row in re.findall(r'^\| (`.*?) \|', text, re.M) for w in re.findall(r'`(\w+)`', row)}
        for command in re.findall(r'`(\w+)`', title):
            out[command] = words, first
    return out


def members(value):
    """Every name of a member in the document, but for those below what is printed as it is stored."""
    if isinstance(value, dict):
        return set(value) | {m for name, v in value.items() if name not in AS_STORED for m in members(v)}
    return {m for v in value for m in members(v)} if isinstance(value, list) else set()


@pytest.fixture
def where(run, tmp_path, monkeypatch):
    """Copies of the sample, one of them damaged, and what else the commands are given."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(SAMPLE, 'ckpts')
    (tmp_path / 'ckpts/2000.orbax-checkpoint-tmp-1').mkdir()
    (tmp_path / 'files').mkdir()
    np.save('files/w.npy', np.arange(70_000, dtype=np.float32).reshape(70, 1000))
    np.save('files/n.npy', np.float32([1, np.nan]))
    (tmp_path / 'files/s.txt').write_text('one')
    run('save', '-o', 'ocdbt=off,chunk_byte_size=40000', 'files', 'a/1')
    np.save('files/w.npy', np.zeros((3, 2), np.float32))
    np.save('files/n.npy', np.float32([2, 5]))
    run('save', '-o', 'ocdbt=off', 'files', 'b/1')
    np.save('files/n.npy', np.int32([2, 5]))
    (tmp_path / 'files/s.txt').unlink()
    (tmp_path / 'files/s.json').write_text('1')
    run('save', '-o', 'ocdbt=off', 'files', 'c/1')
    shutil.copytree('a/1', 'broken/1')
    chunk = next(p for p in sorted((tmp_path / 'broken/1/default/w').iterdir()) if not p.name.startswith('.'))
    chunk.write_bytes(b'damaged' + chunk.read_bytes()[7:])
    (tmp_path / 'broken/1/default/n/.zarray').write_text('{')
    shutil.copytree('a/1', 'lost/1')
    (tmp_path / 'lost/2').mkdir()
    shutil.copytree('ckpts/1500', 'node/1500')
    node = next((tmp_path / 'node/1500/state/d').iterdir())
    node.write_bytes(node.read_bytes()[:-1] + b'!')
    shutil.copytree('ckpts/1500/state', 'parts')      # as a save leaves it that ended before the databases were merged
    (tmp_path / 'parts/manifest.ocdbt').unlink()
    shutil.rmtree('parts/d')
    (tmp_path / 'rules.json').write_text('{"rules": [{"key": "count", "original_key": "step"}]}')
    return tmp_path


CASES = {
    'ls': [['ckpts'], ['ckpts/latest/state/params/embed'], ['broken/1/default']],
    'tree': [['ckpts/latest'], ['broken/1']],
    'info': [['ckpts'], ['ckpts/latest'], ['ckpts/latest/state'], ['ckpts/latest/state/params/embed/table.npy'], ['a/1/default/w.npy']],
    'stats': [['ckpts/latest'], ['a/1']],
    'verify': [['ckpts'], ['broken/1'], ['node'], ['nothing']],
    'diff': [['ckpts/1000', 'ckpts/1500'], ['a/1', 'b/1'], ['a/1', 'c/1'], ['b/1', 'c/1']],
    'explain': [['ckpts/latest/state/params/embed/table.npy'], ['a/1/default/w@80x1000.npy'], ['ckpts/latest/state/step.json'],
                ['--sharding', '--target', 'ckpts/latest/state/params/embed/table.npy', 'ckpts/latest/state/params/embed/table.npy']],
    'gc': [['--all', '--older-than', '0s', '--dry-run', 'ckpts'], ['--all', '--older-than', '0s', 'ckpts']],
    'save': [['-o', 'compression=auto', 'files', 'new/1']],
    'export': [['a/1/default', 'a.npz']],
    'convert': [['-o', 'compression=auto', 'a/1', 'new/2'], ['a/1', 'new/3'], ['lost', 'found']],
    'merge': [['parts']],
    'report': [['ckpts/latest'], ['ckpts'], ['lost']],
    'transform': [['--check', 'rules.json', 'ckpts/latest/state']],
    'bench': [['--size', '16M', '.']],
}


@pytest.fixture
def printed(run, where):
    """printed(command): the members of what the command prints in all its cases."""
    def do(command):
        out = set()
        for words in CASES[command]:
            r = run(command, '--json', *words, ok=None)
            assert r.stdout, r.stderr
            out |= members(json.loads(r.stdout))
        return out
    return do


@pytest.mark.parametrize('group', [('ls', 'tree'), ('save', 'export', 'convert'), *((c,) for c in CASES if c not in SHARED)], ids='-'.join)
def test_members_are_those_of_the_page(printed, group):
    mentioned, first = sections()[group[0]]
    found = set().union(*map(printed, group))
    assert found <= mentioned and first <= found, (found - mentioned, first - found)


def test_every_command_with_json_is_on_the_page(run):
    commands = re.findall(r'^  (\w+)', run('--help').stdout.partition('commands:')[2], re.M)
    assert set(sections()) == {c for c in commands if '--json' in run(c, '--help').stdout}
    assert set(CASES) == set(sections())
