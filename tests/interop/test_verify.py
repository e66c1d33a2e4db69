# SPDX-License-Identifier: Apache-2.0
"""`pytreefs verify`: every damage that can be seen is found and placed, and what is whole is left alone."""

import json
import os
import pathlib
import random
import re
import shutil
import subprocess

from lib import jaxenv  # noqa: F401  before jax

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from lib import checkpoints, package, visible_damage
from lib.pairs import pairs

pytreefs = package.imported()

DATA = pathlib.Path(__file__).resolve().parents[1] / 'data'
TARGETS = ('matrix-ocdbt-zarr2-zstd-v0', 'matrix-ocdbt-zarr3-zstd-v0', 'matrix-perleaf-zarr2-zstd-v0',
           'matrix-perleaf-zarr3-zstd-v0', 'chunked-ocdbt-zarr2-v0', 'chunked-perleaf-zarr3-v0')
# Cases that are damaged on purpose: what verify says of them.
DAMAGED = {'unusual-step': "member 'item_handlers' is not an object or a string",
           'broken-step-among-good-ones': 'string is truncated',
           'unmerged-part-missing': 'its array is not stored',
           'chunk-gone': '1 of 1 chunks is not stored',
           'shared-parameter-names': "'a.b.c' is the stored name of the leaves ["}
# Cases that are whole and still worth a word.
WARNED = {'unmerged': 'never merged', 'unmerged-two-processes': 'never merged', 'custom-handler': 'MyState',
          **dict.fromkeys(('metadata-missing', 'metadata-missing-zarr3', 'metadata-missing-perleaf', 'strings-per-leaf'), 'Orbax cannot restore it')}

# Roots in which no step was committed.
EMPTY = 'empty-root', 'root-of-temporaries'


def verify(program, path, *words):
    r = subprocess.run([program, 'verify', '--json', *words, str(path)], capture_output=True, text=True, timeout=60)
    assert r.returncode in (0, 1) and r.stdout, (r.returncode, r.stderr[-500:])
    doc = json.loads(r.stdout)
    assert r.returncode == (1 if doc['errors'] or doc['refused'] else 0), r.stderr[-500:]
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
    """0.4.0 to 0.4.2 recorded no sharding of an array on one device, and today's Orbax asks for one."""
    found = [(f['severity'], f'{path.name}/{f["file"]}', f['text'].partition(' is recorded')[0])
             for path in sorted((DATA / 'old' / release).iterdir()) if path.is_dir() for f in verify(program, path)['findings']]
    assert found == [('warning', 'standard/_sharding', 'no sharding of 4 leaves')] * (release in ('0.4.0', '0.4.1', '0.4.2'))


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


def saved(directory, **how):
    """A step with arrays, a text, a key and a JSON item."""
    tree = {'w': jax.numpy.arange(40000, dtype='f4').reshape(200, 200), 'n': {'text': 'blue', 'i': 3, 'np': np.arange(5)}, 'key': jax.random.key(3)}
    with ocp.CheckpointManager(directory, item_handlers={'params': ocp.PyTreeCheckpointHandler(**how), 'meta': ocp.JsonCheckpointHandler()}) as m:
        m.save(1, args=ocp.args.Composite(params=ocp.args.PyTreeSave(tree), meta=ocp.args.JsonSave({'a': 1})))
    return tree


def is_restored(directory, tree):
    with ocp.CheckpointManager(directory, item_handlers={'params': ocp.PyTreeCheckpointHandler(), 'meta': ocp.JsonCheckpointHandler()}) as m:
        try:
            r = m.restore(1, args=ocp.args.Composite(params=ocp.args.PyTreeRestore(), meta=ocp.args.JsonRestore()))
        except Exception:  # whatever Orbax and TensorStore raise
            return False
    p = r['params']
    return p['n']['text'] == 'blue' and p['n']['i'] == 3 and all(map(np.array_equal, (p['w'], p['n']['np'], jax.random.key_data(p['key'])),
                                                                     (tree['w'], tree['n']['np'], jax.random.key_data(tree['key'])))) and \
        r['meta'] == {'a': 1}


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('how', [{'use_ocdbt': True, 'use_zarr3': False}, {'use_ocdbt': False, 'use_zarr3': False},
                                 {'use_ocdbt': True, 'use_zarr3': True}], ids=['ocdbt', 'directories', 'zarr3'])
def test_whatever_orbax_refuses_after_the_loss_of_a_file_is_found(how, program, tmp_path):
    """Each file, each directory, and what is in each directory."""
    tree = saved(tmp_path / 'whole', **how)
    assert is_restored(tmp_path / 'whole', tree) and not verify(program, tmp_path / 'whole')['findings']
    silent, refused = [], set()
    for path in sorted((tmp_path / 'whole/1').rglob('*')):
        for empty in (False, True) if path.is_dir() else (False,):
            path.rename(tmp_path / 'lost')
            if empty:
                path.mkdir()
            if not is_restored(tmp_path / 'whole', tree):
                refused.add(path.name)
                doc = verify(program, tmp_path / 'whole')
                if not doc['errors'] and not doc['refused']:
                    silent.append((path.relative_to(tmp_path / 'whole').as_posix(), empty))
            (tmp_path / 'lost').rename(path)
    assert not silent, silent
    assert refused >= {'_METADATA', '_sharding', '_strings.json', 'metadata', 'params', 'meta'}


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('item, left, has_handlers', [('params', 'd', True), ('params', 'd', False), ('params', 'ocdbt.process_0/d', True),
                                                      ('params', None, True), ('meta', None, True)])
def test_an_item_that_has_lost_what_names_its_values_is_refused(item, left, has_handlers, program, mount, tmp_path):
    """By its handler, or by the names of data files; it is neither an empty item nor one of files."""
    saved(tmp_path / 'root', use_ocdbt=True)
    step = tmp_path / 'root/1'
    shutil.move(step / item, tmp_path / 'whole')
    (step / item).mkdir()
    if left:
        shutil.copytree(tmp_path / 'whole' / left, step / item / left)
    if not has_handlers:
        doc = json.loads((step / '_CHECKPOINT_METADATA').read_text())
        (step / '_CHECKPOINT_METADATA').write_text(json.dumps(doc | {'item_handlers': dict.fromkeys(doc['item_handlers'])}))
    for words in (['tree', step], ['stats', step], ['info', step], ['verify', step], ['diff', step, step],
                  ['export', step, tmp_path / 'a.npz'], ['export', step, tmp_path / 'a.safetensors'], ['convert', step, tmp_path / '7'],
                  ['save', step, tmp_path / 'saved/1']):
        r = subprocess.run([program, *words], capture_output=True, text=True)
        assert r.returncode and item in r.stdout + r.stderr, (words, r.stdout, r.stderr)
    assert not {'a.npz', 'a.safetensors', '7', 'saved'} & set(os.listdir(tmp_path))
    with pytest.raises(pytreefs.Error, match=item):
        pytreefs.load(step)
    m = mount(step, allow_errors=True)
    with pytest.raises(OSError):
        os.listdir(m / item)


def test_a_step_without_a_tree_is_not_exported(program, tmp_path):
    (tmp_path / '1/config').mkdir(parents=True)
    (tmp_path / '1/config/metadata').write_text('{}')
    (tmp_path / '1/_CHECKPOINT_METADATA').write_text('{"item_handlers": {"config": null}}')
    for name in ('a.npz', 'a.safetensors', 'a'):
        r = subprocess.run([program, 'export', tmp_path / '1', tmp_path / name], capture_output=True, text=True)
        assert r.returncode == 1 and 'has no item that is a tree' in r.stderr and not (tmp_path / name).exists(), r.stderr


def changed(step, file, change):
    """Change a JSON document of the item."""
    path = step / 'params' / file
    doc = json.loads(path.read_text())
    change(doc)
    path.write_text(json.dumps(doc))


def recorded(name, value):
    """Changes what _METADATA says of the whole item; None: says no more."""
    return '_METADATA', lambda doc: doc.pop(name, None) if value is None else doc.update({name: value})


def of_type(key, value_type):
    """Changes the type of a leaf."""
    def change(doc):
        (entry,) = (e for e in doc['tree_metadata'].values() if e['key_metadata'][-1]['key'] == key)
        entry['value_metadata']['value_type'] = value_type
    return '_METADATA', change


def of_keys(impl):
    """Changes the implementation of the random key."""
    def change(doc):
        (entry,) = (e['array_metadata'] for e in doc['array_metadatas'] if e['array_metadata']['ext_metadata'])
        entry['ext_metadata'] = {'random_key_impl': impl}
    return 'array_metadatas/process_0', change


def of_sharding(text):
    """Changes the sharding of each leaf that has one."""
    return '_sharding', lambda doc: doc.update(dict.fromkeys(doc, text))


SHARDINGS = ['', 'x', '{}', '{"sharding_type": "GSPMDSharding"}', '{"sharding_type": "SingleDeviceSharding"}',
             '{"sharding_type": "SingleDeviceSharding", "device_str": 5}']
CHANGES = {**{f'{name} {value}': recorded(name, value) for name in ('use_ocdbt', 'use_zarr3') for value in (True, False, None)},
           **{f'{key} {value}': of_type(key, value) for key in ('w', 'np', 'i', 'text') for value in ('NewArray', 'np.ndarray')},
           **{f'sharding {text}': of_sharding(text) for text in SHARDINGS},
           **{impl: of_keys(impl) for impl in ('threefry2x32', 'rbg', 'unsafe_rbg', 'philox2x32', 'unheard_of')}}


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('zarr3, ocdbt', pairs([False, True], [False, True]))
def test_the_verdict_on_what_is_recorded_is_that_of_orbax(ocdbt, zarr3, program, tmp_path):
    """Documents that contradict the stored arrays, or have what Orbax does not know."""
    tree = saved(tmp_path / 'whole', use_ocdbt=ocdbt, use_zarr3=zarr3)
    wrong, n_refused = [], 0
    for name, (file, change) in CHANGES.items():
        copy = tmp_path / 'copy'
        shutil.copytree(tmp_path / 'whole', copy)
        changed(copy / '1', file, change)
        doc = verify(program, copy)
        refused = doc['errors'] > 0 or doc['refused'] > 0
        n_refused += refused
        if is_restored(copy, tree) == refused:
            wrong.append((name, doc['findings']))
        shutil.rmtree(copy)
    assert not wrong and n_refused > 10, wrong


def test_a_count_of_one_is_one(program, tmp_path):
    pytreefs.save(tmp_path / '1', {'w': np.arange(3.)})
    text = subprocess.run([program, 'verify', tmp_path / '1'], capture_output=True, text=True, timeout=60).stdout
    assert text.startswith('1 item with 1 leaf, 1 chunk, ') and '\n1 leaf, ' in text, text
    (tmp_path / '1/default/_METADATA').write_text('{')
    text = subprocess.run([program, 'verify', tmp_path / '1'], capture_output=True, text=True, timeout=60).stdout
    assert ': 1 error, 0 warnings' in text, text
    pytreefs.save(tmp_path / '2', {'w': np.arange(1.), 'v': np.arange(1.)})
    for name, said in (('w[0:2].npy', 'leaves axis 0, which has 1 position'), ('w@1x1.npy', 'the shape has 2 axes, the array has 1:'),
                       ('w[0,0].npy', 'the box has 2 axes, the array has 1')):
        r = subprocess.run([program, 'cat', tmp_path / '2/default' / name], capture_output=True, text=True, timeout=60)
        assert re.search(re.escape(said) + r'(?!\w)', r.stderr), r.stderr


def test_items_that_are_not_looked_at_are_counted(program, tmp_path):
    copy = tmp_path / 'step'
    shutil.copytree(DATA / 'sample/1000', copy)
    known = verify(program, copy)['opaque_items']
    (copy / 'tokenizer').mkdir()
    (copy / 'tokenizer/vocab.txt').write_text('a')
    assert verify(program, copy)['opaque_items'] == known + 1
    text = subprocess.run([program, 'verify', copy], capture_output=True, text=True, timeout=60, check=True).stdout
    assert known == 0 and '\n1 item with 1 entry is not a tree, and was not looked at: only its handler knows' in text
    alone = tmp_path / 'alone'
    alone.mkdir()
    shutil.copytree(copy / 'tokenizer', alone / 'tokenizer')
    (alone / '_CHECKPOINT_METADATA').write_text('{"item_handlers": {"tokenizer": null}, "init_timestamp_nsecs": 1, "commit_timestamp_nsecs": 2}')
    r = subprocess.run([program, 'verify', alone], capture_output=True, text=True, timeout=60)
    assert r.returncode == 2 and 'nothing was checked' in r.stderr


@pytest.mark.parametrize('how', [{'use_ocdbt': True, 'use_zarr3': False}, {'use_ocdbt': False, 'use_zarr3': False},
                                 {'use_ocdbt': True, 'use_zarr3': True}], ids=['ocdbt', 'directories', 'zarr3'])
def test_a_chunk_that_nobody_checked_is_copied_without_a_checksum(how, program, mount, tmp_path, monkeypatch):
    """A zstd frame of Orbax has none: a copy with a new one would say that a damaged frame is right."""
    def has_no_checksum(step):
        said = subprocess.run([program, 'info', '--json', step / 'params'], capture_output=True, text=True)
        return json.loads(said.stdout)['checksums']['bytes_without'] > 100_000  # most of it is this chunk

    monkeypatch.setenv('PATH', f"{os.environ['PYTREEFS_BUILD']}:{os.environ['PATH']}")
    root = tmp_path / 'root'
    saved(root, **how)
    assert has_no_checksum(root / '1')
    told = json.loads(subprocess.run([program, 'explain', '--json', root / '1/params/w.npy'], capture_output=True, text=True, check=True).stdout)
    (place,) = {part['place'] for box in told['boxes'] for part in box['parts']}
    name, at = re.fullmatch(r'value:(.+):(\d+):\d+', place).groups()
    file = root / '1/params' / name
    good = file.read_bytes()
    kind = good[int(at) + 4]  # of the frame's header, which is whole; the first block is of a type that there is not
    block = int(at) + 5 + (not kind & 32) + (bool(kind & 32), 2, 4, 8)[kind >> 6]
    file.write_bytes(good[:block] + b'\xff\xff\xff' + good[block + 3:])
    assert any(f['leaf'] == 'params/w.npy' for f in verify(program, root / '1')['findings'])

    for parent in ('converted', 'other'):
        (tmp_path / parent).mkdir()
    subprocess.run([program, 'convert', root / '1', tmp_path / 'converted/1'], check=True, capture_output=True)
    subprocess.run([program, 'convert', '-o', 'ocdbt=off' if how['use_ocdbt'] else 'ocdbt=on', root / '1', tmp_path / 'other/1'],
                   check=True, capture_output=True)
    pytreefs.save(tmp_path / 'saved/1', pytreefs.open(root / '1'))
    m = mount(root)
    subprocess.run(f'cp -r {m.path}/1 {m.path}/2.tmp && mv {m.path}/2.tmp {m.path}/2', shell=True, check=True)
    m.unmount()
    for copy in (tmp_path / 'converted/1', tmp_path / 'other/1', tmp_path / 'saved/1', root / '2'):
        assert has_no_checksum(copy), copy
        assert any(f['leaf'].endswith('w.npy') and 'cannot decode zstd' in f['text'] for f in verify(program, copy)['findings']), copy


def test_a_tree_that_is_made_of_names_is_never_given_without_a_word(program, mount, tmp_path, monkeypatch):
    """Without _METADATA lists are dicts, and a key with a dot is two: a copy of that is whole, for Orbax and for verify."""
    lost = checkpoints.get('metadata-missing-perleaf').path
    for words in (['ls', lost], ['tree', lost], ['stats', lost], ['diff', lost, lost], ['convert', lost, tmp_path / 'converted'],
                  ['save', lost, tmp_path / 'saved/1'], ['export', lost, tmp_path / 'a.npz']):
        r = subprocess.run([program, *words], capture_output=True, text=True)
        assert r.returncode == 0 and r.stderr.count('has lost its _METADATA') in (1, 2), (words, r.stderr)
    monkeypatch.setenv('PATH', f"{os.environ['PYTREEFS_BUILD']}:{os.environ['PATH']}")
    for take in (pytreefs.load, pytreefs.load_flat, lambda path: list(pytreefs.open(path)),
                 lambda path: pytreefs.save(tmp_path / '7', pytreefs.open(path))):
        with pytest.warns(UserWarning, match='has lost its _METADATA') as said:
            take(lost)
        assert {w.filename for w in said} == {__file__}, [(w.filename, w.lineno) for w in said]
    m = mount(lost)
    os.listdir(m.path)
    assert any('has lost its _METADATA' in line for line in m.log_lines())
