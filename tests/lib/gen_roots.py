# SPDX-License-Identifier: Apache-2.0
"""Cases: roots of many steps, step names, and items that are not trees."""

import json
import os
import shutil

from lib import jaxenv  # noqa: F401  before jax

import jax
import numpy as np
import orbax.checkpoint as ocp0
from google.protobuf import timestamp_pb2
from orbax.checkpoint import v1 as ocp1

from lib import expect
from lib.case import Case, case, stored_files
from lib.gen_matrix import save_v0, values

MARKERS = ('commit_success.txt',)


def small(seed=0):
    return {'w': values((4, 3), np.float32, seed), 'step': seed, 'name': f'step {seed}'}


def managed(d, steps, item='state', **options):
    """A root written by CheckpointManager, one tree per step."""
    root = d / 'ckpt'
    with ocp0.CheckpointManager(root.resolve(), options=ocp0.CheckpointManagerOptions(**options)) as m:
        for step in steps:
            m.save(step, args=ocp0.args.Composite(**{item: ocp0.args.PyTreeSave(small(step))}))
            m.wait_until_finished()
    return root


def root_case(root, names, item='state', step_of=int):
    return Case(trees={f'{n}/{item}': expect.flatten(small(step_of(n))) for n in names}, steps=list(names))


@case()
def manager_root(d):
    """The most common root: steps with a tree, metrics, and a JSON item."""
    root = d / 'ckpt'
    made = Case(steps=[])
    options = ocp0.CheckpointManagerOptions(best_fn=lambda m: m['loss'])
    with ocp0.CheckpointManager(root.resolve(), options=options, metadata={'run': 'r7', 'seed': 5}) as m:
        for step in (0, 5, 10, 200):
            m.save(step, metrics={'loss': 1.0 / (step + 1), 'bad': float('nan')}, args=ocp0.args.Composite(
                state=ocp0.args.PyTreeSave(small(step)),
                config=ocp0.args.JsonSave({'layers': [1, 2], 'note': 'caf\u00e9', 'inf': float('inf')})))
            m.wait_until_finished()
            made.steps.append(str(step))
            made.trees[f'{step}/state'] = expect.flatten(small(step))
    for step in made.steps:
        for item, file in (('metrics', 'metrics'), ('config', 'metadata')):
            made.files[f'{step}/{item}/{file}'] = (root / step / item / file).read_bytes()
    made.hidden = ['metadata', '10.orbax-checkpoint-tmp', '0/commit_success.txt', '0/state/_sharding',
                   '0/state/manifest.ocdbt', '0/state/d', '0/state/ocdbt.process_0', '0/state/array_metadatas',
                   '0/state/_strings.json', '0/state/commit_success.txt']
    made.notes['latest'] = '200'
    return made


@case()
def default_item(d):
    """A single unnamed item is called `default`."""
    root = d / 'ckpt'
    with ocp0.CheckpointManager(root.resolve()) as m:
        m.save(3, args=ocp0.args.StandardSave({'w': values((3,), np.float32, 3), 'n': 7}))
        m.wait_until_finished()
    tree = {'w': values((3,), np.float32, 3), 'n': 7}
    return Case(trees={'3/default': expect.flatten(tree)}, steps=['3'])


@case()
def step_prefix(d):
    root = managed(d, (1, 12), step_prefix='ckpt')
    return root_case(root, ('ckpt_1', 'ckpt_12'), step_of=lambda n: int(n[5:]))


@case()
def step_padded(d):
    root = managed(d, (7, 1234567), step_format_fixed_length=6)
    return root_case(root, ('000007', '1234567'))


@case()
def step_prefix_padded(d):
    root = managed(d, (7, 80), step_prefix='run_a', step_format_fixed_length=8)
    return root_case(root, ('run_a_00000007', 'run_a_00000080'), step_of=lambda n: int(n[6:]))


@case()
def step_of_training_checkpointer(d):
    root = d / 'ckpt'
    with ocp1.training.Checkpointer(root.resolve()) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, small(step), metrics={'loss': 0.5 * step})
    made = root_case(root, ('1', '2'))
    for step in (1, 2):
        made.files[f'{step}/metrics/metrics'] = (root / str(step) / 'metrics' / 'metrics').read_bytes()
    return made


@case()
def root_of_direct_checkpoints(d):
    """v0 checkpoints without items, one per step, side by side."""
    for step in (3, 20):
        save_v0(d / 'ckpt' / f'model_{step}', small(step))
    return Case(trees={f'model_{s}': expect.flatten(small(s)) for s in (3, 20)}, steps=['model_3', 'model_20'])


@case()
def root_with_debris(d):
    """Temporary directories of three generations, user metadata, snapshots, files and empty things."""
    root = managed(d, (1, 2))
    for name in ('3.orbax-checkpoint-tmp', '4.orbax-checkpoint-tmp-7',
                 '5.orbax-checkpoint-tmp-1700000000123456'):
        shutil.copytree(root / '2', root / name)
    shutil.copytree(root / '2' / 'state', root / '2' / 'late.orbax-checkpoint-tmp')
    (root / 'metadata').mkdir()
    (root / 'metadata' / '_ROOT_METADATA').write_text('{"internal_metadata": {}, "custom_metadata": {"a": 1}}')
    (root / '_SNAPSHOTS').mkdir()
    shutil.copytree(root / '2', root / '_SNAPSHOTS' / '2')
    (root / 'notes.txt').write_text('not a checkpoint')
    (root / '9').write_text('a plain file is not a step')
    (root / 'events').mkdir()
    made = root_case(root, ('1', '2'))
    made.hidden = ['3.orbax-checkpoint-tmp', '4.orbax-checkpoint-tmp-7', 'metadata', '_SNAPSHOTS',
                   'notes.txt', '3', '2/late.orbax-checkpoint-tmp']
    made.notes['latest'] = '2'
    return made


@case()
def killed_before_the_last_rename(d):
    """A complete-looking temporary step, marker and all, is not a step."""
    root = managed(d, (4,))
    shutil.copytree(root / '4', root / '5.orbax-checkpoint-tmp')
    made = root_case(root, ('4',))
    made.hidden = ['5', '5.orbax-checkpoint-tmp']
    return made


@case()
def symlinked_steps(d):
    """A step may be a symlink to a directory that stays beneath the root."""
    root = managed(d, (1, 2))
    os.symlink('1', root / '7')
    made = root_case(root, ('1', '2'))
    made.steps.append('7')
    made.trees['7/state'] = made.trees['1/state']
    return made


@case()
def json_and_proto_items(d):
    root = d / 'ckpt'
    with ocp0.Checkpointer(ocp0.CompositeCheckpointHandler()) as checkpointer:
        checkpointer.save(root.resolve(), args=ocp0.args.Composite(
            config=ocp0.args.JsonSave({'a': [1, {'b': None}], 'nan': float('nan')}),
            when=ocp0.args.ProtoSave(timestamp_pb2.Timestamp(seconds=5, nanos=7)),
            state=ocp0.args.PyTreeSave(small(1))))
    made = Case(trees={'state': expect.flatten(small(1))})
    made.files = {'config/metadata': (root / 'config' / 'metadata').read_bytes(),
                  'when/proto.pbtxt': (root / 'when' / 'proto.pbtxt').read_bytes()}
    return made


@case()
def v1_json_item(d):
    registry = ocp1.handlers.local_registry()
    registry.add(ocp1.handlers.JsonHandler, checkpointable_name='config')
    context = ocp1.Context()
    context.checkpointables.registry = registry
    with context:
        ocp1.save_checkpointables((d / 'ckpt').resolve(), {'state': small(2), 'config': {'lr': 0.1}})
    files = {f'config/{p.name}': p.read_bytes() for p in (d / 'ckpt' / 'config').iterdir()
             if p.name not in MARKERS}
    return Case(trees={'state': expect.flatten(small(2))}, files=files)


@case()
def array_item(d):
    """ArrayCheckpointHandler: one array, stored as the tree {'checkpoint': array}."""
    a = values((5, 6), np.float32, 1)
    with ocp0.Checkpointer(ocp0.CompositeCheckpointHandler()) as checkpointer:
        checkpointer.save((d / 'ckpt').resolve(), args=ocp0.args.Composite(
            table=ocp0.args.ArraySave(a), state=ocp0.args.PyTreeSave(small(1))))
    return Case(trees={'table': expect.flatten({'checkpoint': a}), 'state': expect.flatten(small(1))})


@case()
def random_key_items(d):
    root = d / 'ckpt'
    with ocp0.Checkpointer(ocp0.CompositeCheckpointHandler()) as checkpointer:
        checkpointer.save(root.resolve(), args=ocp0.args.Composite(
            rng=ocp0.args.JaxRandomKeySave(jax.random.key(5)),
            np_rng=ocp0.args.NumpyRandomKeySave(np.random.RandomState(3).get_state()),
            state=ocp0.args.PyTreeSave(small(1))))
    made = Case(trees={'state': expect.flatten(small(1))})
    made.notes['key'] = [int(x) for x in jax.random.key_data(jax.random.key(5))]
    return made


@case()
def opaque_item(d):
    """An item of a kind that nobody knows: its files as stored."""
    root = managed(d, (1,))
    extra = root / '1' / 'iterator'
    (extra / 'sub' / 'deep').mkdir(parents=True)
    (extra / 'state.bin').write_bytes(bytes(range(256)) * 40)
    (extra / 'sub' / 'deep' / 'x.json').write_text('{"epoch": 3}')
    (extra / 'sub' / 'empty').write_bytes(b'')
    made = root_case(root, ('1',))
    made.files = stored_files(extra, '1/iterator')
    return made


@case()
def step_without_metadata(d):
    """Before 0.5.11 nothing but the items was written."""
    root = managed(d, (1,))
    (root / '1' / '_CHECKPOINT_METADATA').unlink()
    for marker in (root / '1').rglob('commit_success.txt'):
        marker.unlink()
    return root_case(root, ('1',))


@case()
def step_of_two_times(d):
    """0.5.11 to 0.10.x: `_CHECKPOINT_METADATA` holds two times and nothing else."""
    root = managed(d, (1,))
    (root / '1' / '_CHECKPOINT_METADATA').write_text(
        '{"init_timestamp_nsecs": 1700000000000000000, "commit_timestamp_nsecs": 1700000001123456789}')
    made = root_case(root, ('1',))
    made.notes['mtime'] = {'1': 1700000001123456789, '1/state/w.npy': 1700000001123456789}
    return made


@case()
def item_being_deleted(d):
    """0.12.8: `_CHECKPOINT_DELETION` names an item on its way out."""
    ocp1.save_checkpointables((d / 'ckpt').resolve(), {'a': small(1), 'b': small(2)})
    before = json.loads((d / 'ckpt' / '_CHECKPOINT_METADATA').read_text())
    after = dict(before, item_handlers={k: v for k, v in before['item_handlers'].items() if k != 'b'})
    (d / 'ckpt' / '_CHECKPOINT_DELETION').write_text(json.dumps({
        'operation_id': f'{7:032x}', 'checkpointable_name': 'b', 'destination': None,
        'original_metadata': before, 'updated_metadata': after}))
    return Case(trees={'a': expect.flatten(small(1))}, hidden=['b', '_CHECKPOINT_DELETION'])


@case()
def empty_root(d):
    """Nothing was saved yet: an empty directory is a root."""
    (d / 'ckpt').mkdir()
    return Case(steps=[])


@case()
def root_of_temporaries(d):
    root = managed(d, (1,))
    (root / '1').rename(root / '1.orbax-checkpoint-tmp')
    return Case(steps=[], hidden=['1', '1.orbax-checkpoint-tmp'])


@case()
def broken_step_among_good_ones(d):
    """An empty step directory, and one whose tree is damaged, beside a good one."""
    root = managed(d, (1, 2))
    (root / '50').mkdir()
    (root / '2' / 'state' / '_METADATA').write_bytes(b'{"tree_metadata": {"(')
    made = root_case(root, ('1',))
    made.steps = ['1', '2', '50']
    made.notes['broken'] = ['2/state', '50']
    return made


@case(heavy=True)
def thousand_steps(d):
    """A root of 1,000 steps; they are hard links of one, which reading cannot tell."""
    root = managed(d, (0,))
    for step in range(1, 1000):
        shutil.copytree(root / '0', root / str(step), copy_function=os.link)
    made = Case(steps=[str(s) for s in range(1000)], trees={'777/state': expect.flatten(small(0))})
    made.notes['latest'] = '999'
    return made


