# SPDX-License-Identifier: Apache-2.0
"""Sources of every kind that the program meets, and the leaves that each one has: for interop/test_sources.py.

To add a kind, add a function with @source(LEAVES): it is given an empty directory and the Base, and returns the path of the source. LEAVES is
{name: value} of the arrays and numbers from that path, without extensions, or NOTHING: no command takes it for a model. refused={way: pattern}
names the ways (functions of test_sources.py) that have to refuse it, each with a message that matches; all others have to give these leaves.
over_http=LEAVES: those that a web server, which cannot list, shows of it, with a warning.
to_do='why': it is known that they disagree, and the test fails once they agree.
"""

from lib import jaxenv  # noqa: F401  before jax

import json
import pathlib
import shutil

import flax.training.checkpoints
import numpy as np
import orbax.checkpoint as ocp
import safetensors.numpy
import tensorstore as ts
import zarr

from lib import array_serialization, gda

SOURCES = {}
NOTHING = None
# A different model, which is found in place of the right one by whoever looks at the wrong files.
OTHER = {'other': np.full((2, 2), 99, np.float32)}


def source(leaves, refused=None, to_do=None, over_http=None):
    def add(make):
        assert make.__name__ not in SOURCES
        SOURCES[make.__name__] = (make, leaves, refused or {}, to_do, over_http)
        return make
    return add


def tree(seed=0):
    return {'params': {'dense': {'kernel': np.arange(6, dtype=np.float32).reshape(2, 3) + seed, 'bias': np.arange(3, dtype=np.int32) + seed},
                       'scale': np.full((4,), 0.5 + seed, np.float64)},
            'step': 7 + seed}


def arrays(seed=0):
    return {key: value for key, value in tree(seed).items() if key == 'params'}


def flat(node, prefix=''):
    """{'params/dense/bias': ...} below prefix."""
    if not isinstance(node, dict):
        return {prefix: node}
    return {name: value for key, below in node.items() for name, value in flat(below, f'{prefix}/{key}' if prefix else key).items()}


# Items that are not trees: load() gives their JSON and their files.
NOT_TREES = 'config', 'tokenizer', 'outer'


class Base:
    """Checkpoints of Orbax, made once."""

    def __init__(self, directory):
        self.root, self.perleaf, self.direct = directory / 'root', directory / 'perleaf', directory / 'direct'
        for root, ocdbt in ((self.root, True), (self.perleaf, False)):
            handlers = ocp.DefaultCheckpointHandlerRegistry()
            handler = ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt)
            handlers.add('state', ocp.args.PyTreeSave, handler)
            handlers.add('config', ocp.args.JsonSave, ocp.JsonCheckpointHandler())
            with ocp.CheckpointManager(root, handler_registry=handlers) as manager:
                for step in (1, 2):
                    manager.save(step, args=ocp.args.Composite(state=ocp.args.PyTreeSave(tree(step)), config=ocp.args.JsonSave({'layers': 2})))
                    manager.wait_until_finished()
        ocp.PyTreeCheckpointer().save(self.direct, tree())

    def copy(self, what, to):
        shutil.copytree(what, to, symlinks=True)
        return to


STEP = flat(tree(1), 'state')
ITEM = flat(tree(1))
ROOT = flat({'1': {'state': tree(1)}, '2': {'state': tree(2)}})
ONE_STEP = 'is a directory of steps|is not a step, item, directory or leaf'
NOT_ROOT = dict.fromkeys(('save', 'export_npz', 'export_safetensors', 'export_zarr', 'export_npy', 'load', 'load_flat'), ONE_STEP) | {
    'transform': 'has no tree'}
ROOT_OF_TREES = {way: why for way, why in NOT_ROOT.items() if way != 'transform'}
# There is nothing to verify.
NO_CHECKPOINT = {'verify': 'is not a checkpoint|is not verified'}
# `convert` and `save` make a checkpoint of it, which all others read.
CONVERT_FIRST = dict.fromkeys(('ls', 'tree', 'stats', 'diff', 'report', 'transform', 'verify', 'info', 'export_npz', 'export_safetensors',
                               'export_zarr', 'export_npy', 'mount', 'library', 'load', 'load_flat', 'cat', 'explain'),
                              'is not a checkpoint|Not a directory|is not a directory|has no ')


def per_leaf(directory, leaves, driver='zarr', separator='/'):
    """Arrays in directories of their own, as jax's array serialization writes them."""
    for name, value in leaves.items():
        value = np.asarray(value)
        ts.open({'driver': driver, 'kvstore': {'driver': 'file', 'path': f'{directory}/{name.replace("/", separator)}/'}},
                create=True, dtype=ts.dtype(value.dtype), shape=value.shape).result().write(value).result()
    return directory


# ---- checkpoints of Orbax ----

@source(ROOT, NOT_ROOT)
def root(d, base):
    return base.root


@source(ROOT, NOT_ROOT)
def root_per_leaf(d, base):
    return base.perleaf


@source(STEP)
def step(d, base):
    return base.root / '1'


@source(STEP)
def step_per_leaf(d, base):
    return base.perleaf / '1'


@source(ITEM)
def item(d, base):
    return base.root / '1/state'


@source(ITEM)
def item_per_leaf(d, base):
    return base.perleaf / '1/state'


@source(flat(tree(1)['params']), {'verify': 'is a directory of leaves: name', 'mount': 'is a directory of leaves: name'})
def directory_of_an_item(d, base):
    return base.root / '1/state/params'


@source(flat(tree(2), 'state'))
def latest(d, base):
    return base.root / 'latest'


@source(flat(tree()))
def step_that_is_a_tree(d, base):
    return base.direct


@source(flat({'1': tree(), '2': tree()}), ROOT_OF_TREES)
def root_of_trees(d, base):
    for name in '12':
        base.copy(base.direct, d / 'run' / name)
    return d / 'run'


@source(STEP)
def step_without_its_metadata(d, base):
    """As before Orbax 0.5.11."""
    copy = base.copy(base.root / '1', d / '1')
    (copy / '_CHECKPOINT_METADATA').unlink()
    return copy


@source(STEP)
def item_without_metadata(d, base):
    copy = base.copy(base.root / '1', d / '1')
    (copy / 'state/_METADATA').unlink()
    return copy


@source(STEP)
def item_without_metadata_per_leaf(d, base):
    copy = base.copy(base.perleaf / '1', d / '1')
    (copy / 'state/_METADATA').unlink()
    return copy


@source(STEP)
def item_without_manifest(d, base):
    """The databases of its processes are still there."""
    copy = base.copy(base.root / '1', d / '1')
    (copy / 'state/manifest.ocdbt').unlink()
    return copy


@source(ITEM)
def unmerged_item(d, base):
    copy = base.copy(base.root / '1/state', d / 'state')
    (copy / 'manifest.ocdbt').unlink()
    shutil.rmtree(copy / 'd')
    return copy


@source(STEP)
def step_with_other_items(d, base):
    """Which are not trees: files of other formats stay files there, also a tree further down."""
    copy = base.copy(base.root / '1', d / '1')
    foreign(copy / 'tokenizer')
    shutil.copytree(base.root / '2/state', copy / 'outer/inner')
    return copy


@source(STEP)
def step_with_other_items_per_leaf(d, base):
    copy = base.copy(base.perleaf / '1', d / '1')
    foreign(copy / 'tokenizer')
    return copy


@source(flat({'step_1': {'state': tree(1)}, 'step_2': {'state': tree(2)}}), NOT_ROOT)
def root_with_a_prefix(d, base):
    for n in '12':
        base.copy(base.root / n, d / f'run/step_{n}')
    return d / 'run'


@source(ROOT, NOT_ROOT)
def root_among_others(d, base):
    """Directories of other programs beside the steps, some with a number, and a checkpoint with a name of its own."""
    copy = others(base.copy(base.root, d / 'run'))
    base.copy(base.root / '1', copy / 'best_7')
    return copy


@source(flat({'step_1': {'state': tree(1)}, 'step_2': {'state': tree(2)}}), NOT_ROOT)
def root_with_a_prefix_among_others(d, base):
    for name in ('step_1', 'step_2', 'best_7'):
        base.copy(base.root / name[-1].replace('7', '1'), d / 'run' / name)
    return others(d / 'run')


@source(flat(tree(2), 'state'))
def latest_among_others(d, base):
    return others(base.copy(base.root, d / 'run')) / 'latest'


@source(flat(tree(1), 'state'))
def checkpoint_among_steps(d, base):
    """It is read by its name."""
    copy = base.copy(base.root, d / 'run')
    base.copy(base.root / '1', copy / 'best_7')
    return copy / 'best_7'


def others(root):
    for name in ('tb_logs_20251101', 'wandb', 'run-20251101_101010-abc123', 'version_7', 'profile_3'):
        (root / name).mkdir()
        (root / name / 'events.out').write_text('x')
    (root / '99999').write_text('a file')
    return root


@source(flat({'checkpoint_0.85': arrays(1), 'checkpoint_0.9': arrays(2), 'checkpoint_10': arrays(3)}), ROOT_OF_TREES)
def msgpack_root_of_fractions(d, base):
    for n, number in enumerate((0.85, 0.9, 10)):
        flax.training.checkpoints.save_checkpoint(d, arrays(n + 1), number, keep=5)
    return d


@source(flat({'tree_9': {'state': tree(1)}, 'tree_10': {'state': tree(2)}}), NOT_ROOT)
def root_of_two_digits(d, base):
    base.copy(base.root / '1', d / 'run/tree_9')
    base.copy(base.root / '2', d / 'run/tree_10')
    return d / 'run'


# ---- beside files of other formats ----

def foreign(directory):
    """Everything that other programs write, in one directory."""
    directory.mkdir(exist_ok=True)
    safetensors.numpy.save_file(OTHER, directory / 'model.safetensors')
    np.savez(directory / 'arrays.npz', **OTHER)
    np.save(directory / 'other.npy', OTHER['other'])
    (directory / 'config.json').write_text('{"vocab_size": 32}')
    (directory / 'vocab.txt').write_text('a b c')


def beside(name, leaves, what, refused=None, more=lambda copy: None, over_http=None):
    def make(d, base):
        copy = base.copy(what(base), d / 'copy')
        foreign(copy)
        more(copy)
        return copy
    make.__name__ = name
    source(leaves, refused, over_http=over_http)(make)


def index(copy):
    (copy / 'model.safetensors.index.json').write_text(json.dumps({'metadata': {}, 'weight_map': {'other': 'model.safetensors'}}))


def zgroup(copy):
    (copy / '.zgroup').write_text('{"zarr_format": 2}')


def without_marks(copy):
    (copy / '_CHECKPOINT_METADATA').unlink()


beside('root_beside_files', ROOT, lambda base: base.root, NOT_ROOT, over_http=OTHER)
beside('step_beside_files', STEP, lambda base: base.root / '1')
beside('step_beside_files_per_leaf', STEP, lambda base: base.perleaf / '1')
beside('step_beside_shards', STEP, lambda base: base.root / '1', more=index)
beside('step_beside_a_group', STEP, lambda base: base.root / '1', more=zgroup)
beside('item_beside_files', ITEM, lambda base: base.root / '1/state')
beside('item_beside_files_per_leaf', ITEM, lambda base: base.perleaf / '1/state')
beside('tree_beside_files', flat(tree()), lambda base: base.direct)
beside('unmarked_step_beside_files', STEP, lambda base: base.root / '1', more=without_marks, over_http=OTHER)


# ---- arrays without a checkpoint ----

@source(flat(arrays()))
def levanter_item(d, base):
    """The shallowest array is two directories down."""
    return per_leaf(d / 'model', flat(tree()['params'], 'params'))


@source(flat({'model': arrays(), 'training_state': {'1': 5}}))
def levanter_step(d, base):
    """Trees of arrays, one of which has one at its top, and a file of its own."""
    per_leaf(d / 'step-1000', flat({'model': arrays(), 'training_state': {'1': 5}}))
    (d / 'step-1000/metadata.json').write_text('{"step": 1000}')
    return d / 'step-1000'


@source(flat({'model': arrays()}))
def levanter_model(d, base):
    """The shallowest array is three directories down."""
    per_leaf(d / 'step-1000/model', flat(arrays()))
    return d / 'step-1000'


@source(flat({'step-900': {'model': arrays()}, 'step-1000': {'model': arrays(3), 'step': 1000}}), ROOT_OF_TREES)
def levanter_root(d, base):
    per_leaf(d / 'run/step-900', flat({'model': arrays()}))
    per_leaf(d / 'run/step-1000', flat({'model': arrays(3), 'step': 1000}))
    return d / 'run'


@source(flat({'state': {'count': 5}, 'model': arrays()}))
def levanter_model_among_items(d, base):
    copy = d / '1'
    per_leaf(copy / 'state', {'count': 5})
    per_leaf(copy / 'model', flat(arrays()))
    (copy / '_CHECKPOINT_METADATA').write_text('{"item_handlers": {"model": "x", "state": "y"}}')
    return copy


# ---- other formats ----

FLAT = {'w': np.arange(6, dtype=np.float32).reshape(2, 3), 'b': np.arange(3, dtype=np.int32)}


def grouped(directory, version, leaves):
    top = zarr.open_group(directory, mode='w', zarr_format=version)
    for name, value in leaves.items():
        *above, last = name.split('/')
        at = top
        for part in above:
            at = at.require_group(part)
        at.create_array(last, data=value)
    return directory


@source(FLAT)
def zarr2_group(d, base):
    return grouped(d / 'g.zarr', 2, FLAT)


@source(FLAT)
def zarr3_group(d, base):
    return grouped(d / 'g.zarr', 3, FLAT)


@source(flat(arrays()))
def zarr2_hierarchy(d, base):
    return grouped(d / 'g.zarr', 2, flat(arrays()))


@source(flat(arrays()))
def zarr3_hierarchy(d, base):
    return grouped(d / 'g.zarr', 3, flat(arrays()))


@source(flat(arrays(), 'model'), NO_CHECKPOINT)
def safetensors_file(d, base):
    safetensors.numpy.save_file({name.replace('/', '.'): value for name, value in flat(arrays(), 'model').items()}, d / 'model.safetensors')
    return d / 'model.safetensors'


@source(flat(arrays()), NO_CHECKPOINT)
def safetensors_directory(d, base):
    for n, (name, value) in enumerate(flat(arrays()).items()):
        safetensors.numpy.save_file({name.replace('/', '.'): value}, d / f'model-{n}.safetensors')
    (d / 'config.json').write_text('{}')
    return d


@source(flat(arrays()), NO_CHECKPOINT)
def safetensors_directory_with_other_arrays(d, base):
    """Those have names of their own."""
    np.save(d / 'other.npy', OTHER['other'])
    for name in ('leaves', 'unet'):
        (d / name).mkdir()
    np.save(d / 'leaves/other.npy', OTHER['other'])
    safetensors.numpy.save_file(OTHER, d / 'unet/model.safetensors')
    return safetensors_directory(d, base)


@source(flat(arrays()), over_http=OTHER)
def arrays_beside_safetensors(d, base):
    """Which is a file of that item."""
    safetensors.numpy.save_file(OTHER, d / 'model.safetensors')
    return per_leaf(d, flat(arrays()))


@source(FLAT, CONVERT_FIRST)
def npz(d, base):
    np.savez(d / 'a.npz', **FLAT)
    return d / 'a.npz'


@source(flat(arrays()), CONVERT_FIRST)
def npy_directory(d, base):
    for name, value in flat(arrays()).items():
        (d / 'tree' / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(d / 'tree' / f'{name}.npy', value)
    return d / 'tree'


@source(flat(arrays()))
def msgpack_file(d, base):
    return flax.training.checkpoints.save_checkpoint(d, arrays(), 3, orbax_checkpointer=None)


@source(flat({'checkpoint_9': arrays(9), 'checkpoint_10': arrays(10)}), ROOT_OF_TREES)
def msgpack_root(d, base):
    for n in (9, 10):
        flax.training.checkpoints.save_checkpoint(d, arrays(n), n, keep=5)
    return d


# ---- beside a checkpoint, which makes a step of the directory above ----

def neighbour(d, base, into):
    if not (d / 'model').exists():
        base.copy(base.direct, d / 'model')
    into.mkdir(parents=True, exist_ok=True)
    return into


@source(FLAT, CONVERT_FIRST)
def npz_beside_a_tree(d, base):
    np.savez(neighbour(d, base, d) / 'a.npz', **FLAT)
    return d / 'a.npz'


@source(FLAT, CONVERT_FIRST)
def npz_beside_a_zarr_group(d, base):
    np.savez(d / 'a.npz', **FLAT)
    grouped(d / 'g.zarr', 2, FLAT)
    return d / 'a.npz'


@source(flat(arrays()), CONVERT_FIRST)
def npy_directory_beside_a_tree(d, base):
    neighbour(d, base, d / 'other')
    return npy_directory(d / 'other', base)


@source(flat(arrays()), CONVERT_FIRST)
def npy_directory_beside_a_step_of_old(d, base):
    d = d / '7'
    neighbour(d, base, d / 'other')
    return npy_directory(d / 'other', base)


@source(NOTHING)
def safetensors_shard_missing(d, base):
    """By its name, half of a model."""
    safetensors.numpy.save_file(OTHER, d / 'model-00001-of-00002.safetensors')
    return d


@source(NOTHING)
def safetensors_tensor_missing(d, base):
    """By its index."""
    safetensors.numpy.save_file(OTHER, d / 'model.safetensors')
    (d / 'model.safetensors.index.json').write_text(json.dumps({'weight_map': dict.fromkeys([*OTHER, 'lost'], 'model.safetensors')}))
    return d


@source(NOTHING)
def roots_beside_a_tree(d, base):
    for name in ('runA', 'runB'):
        base.copy(base.root, neighbour(d, base, d / 'runs') / name)
    return d / 'runs'


@source(NOTHING)
def root_and_a_tree(d, base):
    base.copy(base.root, neighbour(d, base, d) / 'run')
    return d


@source(NOTHING)
def directories_of_safetensors_beside_a_tree(d, base):
    for name in '12':
        safetensors.numpy.save_file(OTHER, neighbour(d, base, d / 'ss' / name) / 'model.safetensors')
    return d / 'ss'


# ---- nothing ----

@source(NOTHING)
def empty(d, base):
    return d


@source(NOTHING)
def foreign_directory(d, base):
    (d / 'tb_logs_20251101').mkdir()
    (d / 'tb_logs_20251101/events.out').write_text('x')
    (d / 'README').write_text('x')
    return d


@source(NOTHING)
def temporary_step(d, base):
    base.copy(base.root / '1', d / '1.orbax-checkpoint-tmp')
    return d


@source(NOTHING)
def no_such_directory(d, base):
    return d / 'nothing'


# ---- arrays that are not beside the document that names them ----

# zarr-python has no bfloat16.
SERIALIZED = {name: np.asarray(value) for name, value in array_serialization.arrays().items() if name != 'params/bias'}
OF_HOSTS = {'params': {name: value for name, value in gda.tree()['params'].items() if name != 'b'}, 'step': 3}


@source(SERIALIZED, over_http={'step': SERIALIZED['step']})
def databases_of_jax(d, base):
    """One for each directory of arrays."""
    array_serialization.save(d / 'jax', SERIALIZED)
    return d / 'jax'


@source({name: value for name, value in SERIALIZED.items() if '/' in name})
def databases_of_jax_with_none_at_the_top(d, base):
    array_serialization.save(d / 'jax', {name: value for name, value in SERIALIZED.items() if '/' in name})
    return d / 'jax'


@source(SERIALIZED)
def paths_in_one_database(d, base):
    """As a program that uses TensorStore by itself writes them."""
    for name, value in SERIALIZED.items():
        spec = {'driver': 'zarr3', 'kvstore': {'driver': 'ocdbt', 'base': f'file://{d}/store/', 'path': f'{name}/'}}
        ts.open(spec, create=True, dtype=value.dtype, shape=value.shape).result().write(value).result()
    return d / 'store'


@source({f'7/{name}': value for name, value in SERIALIZED.items()}, ROOT_OF_TREES)
def root_of_databases_of_jax(d, base):
    array_serialization.save(d / 'run/7', SERIALIZED)
    return d / 'run'


@source(flat({'target': OF_HOSTS['params'], 'state': {'step': 3}}, 'optimizer') | {'version': 3})
def file_of_t5x(d, base):
    gda.t5x(d / 'checkpoint_10', lambda: dict(OF_HOSTS))
    return d / 'checkpoint_10'


@source(flat({'checkpoint_1': OF_HOSTS}), ROOT_OF_TREES)
def flax_of_many_hosts(d, base):
    gda.flax_multihost(d / 'run', 1, lambda: dict(OF_HOSTS))
    return d / 'run'


@source(flat(OF_HOSTS), {'mount': 'Not a directory|cannot open'})
def flax_file_of_many_hosts(d, base):
    gda.flax_multihost(d / 'run', 1, lambda: dict(OF_HOSTS))
    gda.flax_multihost(d / 'run', 10, lambda: dict(OF_HOSTS))
    return d / 'run/checkpoint_1'
