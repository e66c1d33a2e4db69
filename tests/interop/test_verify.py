# SPDX-License-Identifier: Apache-2.0
"""`pytreefs verify`: every damage that can be seen is found and placed, and what is whole is left alone."""

import json
import os
import pathlib
import random
import shutil
import subprocess

import pytest

from lib import checkpoints, visible_damage

DATA = pathlib.Path(__file__).resolve().parents[1] / 'data'
TARGETS = ('matrix-ocdbt-zarr2-zstd-v0', 'matrix-ocdbt-zarr3-zstd-v0', 'matrix-perleaf-zarr2-zstd-v0',
           'matrix-perleaf-zarr3-zstd-v0', 'chunked-ocdbt-zarr2-v0', 'chunked-perleaf-zarr3-v0')
# Cases that are damaged on purpose: what verify says of them.
DAMAGED = {'unusual-step': "member 'item_handlers' is not an object or a string",
           'broken-step-among-good-ones': 'string is truncated',
           'unmerged-part-missing': 'its array is not stored',
           'chunk-gone': '1 of 1 chunks are not stored'}
# Cases that are whole and still worth a word.
WARNED = {'unmerged': 'never merged', 'unmerged-two-processes': 'never merged', 'custom-handler': 'MyState'}

# Roots in which no step was committed.
EMPTY = 'empty-root', 'root-of-temporaries'


def verify(program, path, *words):
    r = subprocess.run([program, 'verify', '--json', *words, str(path)], capture_output=True, text=True, timeout=60)
    assert r.returncode in (0, 1) and r.stdout, (r.returncode, r.stderr[-500:])
    doc = json.loads(r.stdout)
    assert r.returncode == (1 if doc['errors'] else 0), r.stderr[-500:]
    return doc


def test_no_false_alarm_on_anything_that_orbax_wrote(program):
    wrong = []
    for name in checkpoints.names():
        if name in EMPTY:
            continue
        doc = verify(program, checkpoints.get(name).path)
        text = '\n'.join(f['text'] for f in doc['findings'])
        if name in DAMAGED:
            ok = doc['errors'] and DAMAGED[name] in text
        elif name in WARNED:
            ok = not doc['errors'] and doc['warnings'] and WARNED[name] in text
        else:
            ok = not doc['findings']
        if not ok:
            wrong.append(f'{name}: {doc["findings"][:2]}')
    assert not wrong, '\n'.join(wrong)


@pytest.mark.parametrize('name', EMPTY)
def test_a_root_in_which_nothing_was_saved_is_not_called_sound(program, name):
    r = subprocess.run([program, 'verify', '--json', str(checkpoints.get(name).path)], capture_output=True, text=True, timeout=60)
    assert r.returncode == 2 and 'nothing was checked' in json.loads(r.stdout)['error'] and json.loads(r.stdout)['findings'] == []


@pytest.mark.parametrize('release', sorted(p.name for p in (DATA / 'old').iterdir()))
def test_no_false_alarm_on_old_releases(program, release):
    assert verify(program, DATA / 'old' / release)['findings'] == []


def test_no_false_alarm_on_the_sample(program):
    doc = verify(program, DATA / 'sample')
    assert doc['findings'] == [] and doc['drafts'] == [] and doc['chunks'] > 10


def names_the_place(finding, damage, source):
    """Its file is the damaged one, or one that is reported for it; its range has the byte that was changed."""
    if os.path.normpath(source / finding['file']) != str(damage.path):
        return False
    if damage.at is None or damage.path.name.startswith('manifest'):
        return True
    return 'offset' in finding and finding['offset'] <= damage.at < finding['offset'] + finding['length']


@pytest.mark.parametrize('part', range(4))
def test_two_hundred_damages_are_found(program, cases, tmp_path, part):
    """Fifty of them: found, with the file, in data files also with the range, and with a leaf for a chunk."""
    schedule = visible_damage.schedule()[part::4]
    faults = []
    for number, how in enumerate(schedule):
        rng = random.Random(1000 * part + number)
        damage = None
        for attempt in range(200):
            copy = tmp_path / f'{number}-{attempt}'
            shutil.copytree(cases(rng.choice(TARGETS)).path, copy)
            damage = how(rng, copy)
            if damage:
                break
            shutil.rmtree(copy)
        assert damage, f'{how.__name__} never did anything'
        doc = verify(program, copy)
        placed = [f for f in doc['findings'] if names_the_place(f, damage, copy)]
        if not doc['findings']:
            faults.append(f'not seen: {damage}')
        elif damage.needs_place and not placed:
            faults.append(f'other place: {damage}: {doc["findings"][0]}')
        elif damage.how in ('frame', 'tail', 'shard index') and not placed[0]['leaf']:
            faults.append(f'no leaf: {damage}: {placed[0]}')
    assert not faults, '\n'.join(faults)
