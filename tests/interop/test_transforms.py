# SPDX-License-Identifier: Apache-2.0
"""transforms=FILE.json against Orbax's apply_transformations: the same rules, the same trees."""

import itertools
import json
import logging
import os
import re
import subprocess
import warnings

import jax
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from lib import compare, mounts, package

pytreefs = package.imported()

logging.getLogger('absl').setLevel(logging.ERROR)


def state():
    r = np.random.default_rng(5)
    f32 = lambda *shape: r.standard_normal(shape).astype(np.float32)  # noqa: E731
    return {
        'params': {'layer_0': {'w': f32(8, 6), 'b': f32(6)}, 'layer_1': {'w': f32(8, 6), 'b': f32(6)},
                   'emb': {'table': f32(10, 4).astype(ml_dtypes.bfloat16)}},
        'opt': [{'mu': f32(3, 2)}, {'mu': f32(3, 2)}],
        'ids': np.arange(12, dtype=np.int32).reshape(3, 4),
        'half': f32(500).astype(np.float16),        # in a few elements it does not show whether a factor was rounded first
        'z': (f32(4) + 1j * f32(4)).astype(np.complex64),
        'mask': np.array([True, False, True]),
        'step': 7,
        'name': 'a run',
    }


@pytest.fixture(scope='module')
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp('transforms') / 'item'
    ocp.PyTreeCheckpointer().save(path, state())
    return path


def flat(tree):
    """{key: value} with keys joined by '/', as apply_transformations sees it."""
    pairs = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {'/'.join(str(getattr(k, 'key', getattr(k, 'idx', None))) for k in path): v for path, v in pairs}


def shown(mount):
    """{key: value} of a mount."""
    out = {}
    for p in sorted(mount.path.rglob('*')):
        if not p.is_file():
            continue
        key = '/'.join(compare.xattrs(p)['key'])
        if p.suffix == '.npy':
            dtype = np.dtype(compare.xattrs(p)['dtype'])
            a = np.load(p)
            out[key] = a.view(dtype) if a.dtype.kind == 'V' else a
        elif p.suffix == '.json':
            out[key] = json.loads(p.read_text())
        elif p.suffix == '.txt':
            out[key] = p.read_text()
        else:
            out[key] = None
    return out


def same(a, b):
    if isinstance(a, str) or isinstance(b, str) or a is None or b is None:
        return a == b
    a, b = np.asarray(a), np.asarray(b)
    if a.ndim == 0 and b.ndim == 0 and not (a.dtype == b.dtype):
        return a.item() == b.item()         # a number of a tree keeps its value, whatever carried it
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def number(text):
    return int(text) if re.fullmatch(r'-?\d+', text) else float(text)


def written_out(rules):
    """Rules with "for" as the rules that they stand for."""
    for rule in rules:
        names = rule.get('for', {})
        for values in itertools.product(*map(range, names.values())):
            text = json.dumps({k: v for k, v in rule.items() if k != 'for'})
            for name, value in zip(names, values):
                text = text.replace('{%s}' % name, str(value))
            yield json.loads(text)


def orbax_rules(doc, tree):
    """The rules as Orbax's: value functions as Python's."""
    values = flat(tree)
    functions = {
        'cast': lambda v, t: v.astype(np.dtype(t)),
        'transpose': lambda v, *axes: v.transpose(*map(int, axes)),
        'reshape': lambda v, *shape: v.reshape(*map(int, shape)),
        'slice': lambda v, *box: v[tuple(slice(*[int(x) if x else None for x in b.split(':')]) if ':' in b else int(b)
                                         for b in box)],
        'scale': lambda v, x: v * number(x),
        'add': lambda v, x: v + number(x),
        'pad': lambda v, *shape: np.pad(v, [(0, int(n) - m if int(n) >= 0 else 0) for n, m in zip(shape, v.shape, strict=True)]),
        'unstack': lambda v, i, n, axis=0: np.moveaxis(v, int(axis), 0)[:int(n)][int(i)],
    }
    many = {'concat': lambda vs, axis: np.concatenate(vs, int(axis)), 'stack': lambda vs, axis: np.stack(vs, int(axis))}
    rules = {}
    for rule in written_out(doc['rules']):
        steps = []
        for text in [rule['value_fn']] if isinstance(rule.get('value_fn'), str) else rule.get('value_fn', []):
            name, args = re.fullmatch(r'(\w+)\((.*)\)', text).groups()
            steps.append((name, [x.strip() for x in args.split(',')] if args else []))

        def then(v, steps):
            for name, args in steps:
                v = functions[name](v, *args)
            return v
        if isinstance(rule.get('original_key'), list):
            def value(key, _, rule=rule, steps=steps):
                match, (name, args) = re.fullmatch(rule['key'], key), steps[0]
                return then(many[name]([values[match.expand(o)] for o in rule['original_key']], *args), steps[1:])
            rules[rule['key']] = ocp.Transform(multi_value_fn=value)
        elif 'use_fallback' in rule:
            rules[rule['key']] = ocp.Transform(use_fallback=True)
        else:
            function = (lambda v, steps=steps: then(v, steps)) if steps else None
            rules[rule['key']] = ocp.Transform(original_key=rule.get('original_key'), value_fn=function)
    return rules


def transformed(doc, tree, keys):
    """Return the values that Orbax makes for these keys."""
    fallback = {r['key']: r['use_fallback'] for r in doc['rules'] if 'use_fallback' in r}
    new = {}
    for key in keys:
        given = next((v for k, v in fallback.items() if re.fullmatch(k, key)), ...)
        new[key] = given
    nested = {}
    for key, value in new.items():
        at = nested
        *above, last = key.split('/')
        for k in above:
            at = at.setdefault(k, {})
        at[last] = value
    out = ocp.apply_transformations(tree, orbax_rules(doc, tree), nested,
                                    doc.get('default_to_original', True))
    return flat(out)


KEEP = {'default_to_original': True}
RULES = {
    'rename': dict(rules=[{'key': 'weights/(.*)', 'original_key': r'params/\1'}]),
    'rename one': dict(rules=[{'key': 'count', 'original_key': 'step'}]),
    'swap groups': dict(rules=[{'key': r'(\w+)_of_layer_(\d+)', 'original_key': r'params/layer_\2/\1'}]),
    'named group': dict(rules=[{'key': r'block/(?P<n>\d+)/(w|b)', 'original_key': r'params/layer_\g<n>/\2'}]),
    'copies': dict(rules=[{'key': 'a', 'original_key': 'ids'}, {'key': 'b', 'original_key': 'ids'}]),
    'the last of the sorted keys wins': dict(rules=[{'key': 'p/layer_0/(.*)', 'original_key': r'params/layer_1/\1'},
                                                    {'key': 'p/(.*)', 'original_key': r'params/\1'}]),
    'the same in another order': dict(rules=[{'key': 'p/(.*)', 'original_key': r'params/\1'},
                                             {'key': 'p/layer_0/(.*)', 'original_key': r'params/layer_1/\1'}]),
    'a general key that is sorted last': dict(rules=[{'key': 'ids', 'original_key': 'half'}, {'key': 'z', 'original_key': 'ids'},
                                                     {'key': '[a-z]+', 'original_key': 'step'},
                                                     {'key': '(ids|zz)', 'original_key': 'mask'}], target=['ids', 'z', 'name']),
    'a fallback changes nothing that is made': dict(rules=[{'key': 'ids', 'use_fallback': 7}, {'key': 'i.s', 'original_key': 'half'},
                                                           {'key': 'zz', 'use_fallback': 3}], target=['ids', 'zz']),
    'a fallback of two': dict(rules=[{'key': 'zz', 'use_fallback': 3}, {'key': 'z.', 'use_fallback': 3}], target=['zz']),
    'fallback number': dict(rules=[{'key': 'new/rate', 'use_fallback': 0.25}, {'key': 'new/n', 'use_fallback': 3},
                                   {'key': 'step', 'use_fallback': 0}, {'key': 'new/note', 'use_fallback': 'none yet'},
                                   {'key': 'new/on', 'use_fallback': True}]),
    'drop by not carrying over': dict(default_to_original=False,
                                      rules=[{'key': 'params/(.*)', 'original_key': r'params/\1'}]),
    'fallback is the original': dict(default_to_original=False, rules=[{'key': 'ids', 'use_fallback': True}],
                                     target=['ids']),
    'cast': dict(rules=[{'key': 'params/.*', 'value_fn': 'cast(bfloat16)'}, {'key': 'ids', 'value_fn': 'cast(float32)'}]),
    'transpose': dict(rules=[{'key': r'params/(layer_\d)/kernel', 'original_key': r'params/\1/w',
                              'value_fn': 'transpose(1, 0)'}, {'key': 'ids', 'value_fn': 'transpose()'}]),
    'reshape': dict(rules=[{'key': 'ids', 'value_fn': 'reshape(2, -1)'}]),
    'slice': dict(rules=[{'key': 'head', 'original_key': 'ids', 'value_fn': 'slice(0:2, 1:4:2)'},
                         {'key': 'row', 'original_key': 'params/layer_0/w', 'value_fn': 'slice(3)'}]),
    'scale': dict(rules=[{'key': 'params/.*', 'value_fn': 'scale(0.1)'}, {'key': 'ids', 'value_fn': 'scale(3)'},
                         {'key': 'half', 'value_fn': 'scale(1.7)'}, {'key': 'z', 'value_fn': 'scale(-2.5)'},
                         {'key': 'mask', 'value_fn': 'scale(2)'}]),
    'scale by an integer': dict(rules=[{'key': 'params/.*', 'value_fn': 'scale(3)'}]),
    'scale integers by a fraction': dict(rules=[{'key': 'ids', 'value_fn': 'scale(0.5)'}]),
    'add': dict(rules=[{'key': 'params/.*', 'value_fn': 'add(1.0)'}, {'key': 'ids', 'value_fn': 'add(-3)'},
                       {'key': 'half', 'value_fn': 'add(0.1)'}, {'key': 'z', 'value_fn': 'add(-2.5)'},
                       {'key': 'mask', 'value_fn': 'add(2)'}]),
    'add a fraction to integers': dict(rules=[{'key': 'ids', 'value_fn': 'add(0.5)'}, {'key': 'params/.*', 'value_fn': 'add(1)'}]),
    'pad': dict(rules=[{'key': 'ids', 'value_fn': 'pad(5, -1)'}, {'key': 'params/emb/table', 'value_fn': 'pad(16, 4)'}]),
    'one array to keys by index': dict(rules=[
        {'key': 'rows/{i}/w', 'original_key': 'params/layer_0/w', 'value_fn': 'unstack({i}, 8)', 'for': {'i': 8}},
        {'key': 'columns/(layer_.)/{i}', 'original_key': r'params/\1/w', 'value_fn': 'unstack({i}, 6, -1)', 'for': {'i': 6}}]),
    'two indexes': dict(rules=[{'key': 'id/{row}/{column}', 'original_key': 'ids', 'for': {'row': 3, 'column': 4},
                                'value_fn': ['unstack({row}, 3)', 'slice({column}:)', 'reshape(-1)']}]),
    'functions after one another': dict(rules=[
        {'key': 'ids', 'value_fn': ['transpose()', 'slice(1:)', 'reshape(-1)', 'add(2)', 'scale(3)', 'cast(float32)', 'pad(10)']},
        {'key': 'both', 'original_key': ['params/layer_0/w', 'params/layer_1/w'], 'value_fn': ['stack(0)', 'transpose(2, 0, 1)', 'reshape(6, -1)']}]),
    'concat': dict(rules=[{'key': 'all', 'original_key': ['params/layer_0/w', 'params/layer_1/w'],
                           'value_fn': 'concat(1)'}]),
    'stack': dict(rules=[{'key': r'stacked/([wb])', 'original_key': [r'params/layer_0/\1', r'params/layer_1/\1'],
                          'value_fn': 'stack(0)'}, {'key': 'mus', 'original_key': ['opt/0/mu', 'opt/1/mu'],
                                                    'value_fn': 'stack(-1)'}]),
    'target': dict(rules=[{'key': 'x/(.*)', 'original_key': r'params/\1'}],
                   target=['x/layer_0/w', 'x/emb/table', 'ids', 'step']),
    'target with what is not there': dict(rules=[], target=['ids', 'nothing/of/it']),
}


@pytest.mark.feature('B10')
@pytest.mark.parametrize('name', RULES)
def test_the_tree_is_what_orbax_makes_of_it(mount, saved, tmp_path, name):
    doc = RULES[name]
    (tmp_path / 'rules.json').write_text(json.dumps(doc))
    found = shown(mount(saved, f'transforms={tmp_path}/rules.json'))
    assert found
    wanted = transformed(doc, state(), doc.get('target', found))
    assert set(found) == set(wanted)
    wrong = [k for k in wanted if not same(found[k], None if wanted[k] is ... else wanted[k])]
    assert not wrong, [(k, found[k], wanted[k]) for k in wrong[:3]]


@pytest.mark.option('transforms')
def test_what_was_renamed_is_gone_and_the_rest_stays(mount, saved, tmp_path):
    (tmp_path / 'rules.json').write_text(json.dumps(RULES['rename']))
    found = shown(mount(saved, f'transforms={tmp_path}/rules.json'))
    old = flat(state())
    assert set(found) == {k.replace('params/', 'weights/') for k in old}
    plain = mount(saved)
    assert (plain / 'params').is_dir() and not (plain / 'weights').exists()


def test_containers_keep_their_kind(mount, saved, tmp_path):
    rules = [{'key': 'optimizer/(.*)', 'original_key': r'opt/\1'}]
    (tmp_path / 'rules.json').write_text(json.dumps({'rules': rules}))
    m = mount(saved, f'transforms={tmp_path}/rules.json')
    assert compare.xattrs(m / 'optimizer/0')['kind'] == 'dict'
    assert json.loads((m / '.json').read_text())        # the whole is still described


def test_an_npy_file_is_a_fallback(mount, saved, tmp_path):
    given = np.random.default_rng(1).standard_normal((4, 5))
    np.save(tmp_path / 'given.npy', given)
    rules = [{'key': 'head/w', 'use_fallback': 'given.npy'}]
    (tmp_path / 'rules.json').write_text(json.dumps({'rules': rules}))
    m = mount(saved, f'transforms={tmp_path}/rules.json')
    assert np.array_equal(np.load(m / 'head/w.npy'), given)
    assert np.array_equal(np.load(m / 'head/w[1:3].npy'), given[1:3])


def test_views_of_computed_leaves(mount, saved, tmp_path):
    (tmp_path / 'rules.json').write_text(json.dumps(RULES['concat']))
    m = mount(saved, f'transforms={tmp_path}/rules.json')
    p = state()['params']
    both = np.concatenate([p['layer_0']['w'], p['layer_1']['w']], 1)
    assert np.array_equal(np.load(m / 'all[2:5,3].npy'), both[2:5, 3])
    assert (m / 'all.npy').stat().st_size == 128 + both.nbytes
    load = subprocess.run(['cmp', str(m / 'all.npy'), str(m / 'all.npy')])
    assert load.returncode == 0


def test_a_large_transpose_stays_in_memory_limits(mount, tmp_path):
    """Blocks of a transposition that does not fit a piece: 24 MB, in chunks."""
    a = np.arange(3000 * 2000, dtype=np.int32).reshape(30, 2000, 100)
    ocp.PyTreeCheckpointer().save(tmp_path / 'item', {'a': a})
    (tmp_path / 'rules.json').write_text(json.dumps({'rules': [{'key': 'a', 'value_fn': 'transpose(2, 0, 1)'}]}))
    m = mount(tmp_path / 'item', f'transforms={tmp_path}/rules.json')
    assert np.array_equal(np.load(m / 'a.npy'), a.transpose(2, 0, 1))


@pytest.mark.parametrize('doc,word', [
    ({'rules': [{'key': '('}]}, 'regular expression'),
    ({'rules': [{'key': 'a', 'original_key': r'\2'}]}, 'groups'),
    ({'rules': [{'key': 'a', 'original_key': 'b', 'use_fallback': 1}]}, 'use_fallback'),
    ({'rules': [{'key': 'a', 'value_fn': 'explode(1)'}]}, 'explode'),
    ({'rules': [{'key': 'a', 'value_fn': 'cast(float99)'}]}, 'dtype'),
    ({'rules': [{'key': 'a', 'original_key': ['b', 'c']}]}, 'several inputs'),
    ({'rules': [{'key': 'a', 'what': 1}]}, 'what'),
    ({'rules': [{'key': 'a', 'value_fn': ['cast(int8)', 'explode(1)']}]}, 'explode'),
    ({'rules': [{'key': 'a', 'value_fn': []}]}, 'functions'),
    ({'rules': [{'key': 'a', 'value_fn': 'add(x)'}]}, 'number'),
    ({'rules': [{'key': 'a', 'value_fn': 'unstack(3, 3)'}]}, 'INDEX, COUNT, AXIS'),
    ({'rules': [{'key': 'a', 'for': {'i': 3}}]}, "does not have '{i}'"),
    ({'rules': [{'key': 'a{i}', 'for': {'i': 0}}]}, 'counts of 1'),
    ({'rules': [{'key': 'a{i}{k}', 'for': {'i': 1000, 'k': 1000}}]}, 'more than 10000 rules'),
    ({'rules': [{'key': 'a{i}', 'for': {'i': 2}, 'original_key': r'\2'}]}, 'rule 1 (i=0)'),
    ({'rulez': []}, 'rulez'),
    ({'rules': [{'original_key': 'a'}]}, 'key'),
    ([], 'object'),
])
def test_wrong_rules_are_reported_before_mounting(program, saved, tmp_path, doc, word):
    (tmp_path / 'rules.json').write_text(json.dumps(doc))
    with pytest.raises(mounts.MountError, match=re.escape(word)):
        mounts.Mount(program, saved, tmp_path / 'mnt', tmp_path / 'log', [f'transforms={tmp_path}/rules.json'])


@pytest.mark.parametrize('text,where', [('{"rules":[', 'line 1, column 10'), ('x', 'line 1, column 1'), ('', 'line 1'),
                                        ('{"rules": [\n1,, 2]}', 'line 2, column 3'), ('{"rules": [\xff]}', 'line 1')])
def test_a_file_that_is_not_json_is_reported_with_its_place(mount, run, saved, tmp_path, text, where):
    rules = tmp_path / 'rules.json'
    rules.write_bytes(text.encode('latin-1'))
    with pytest.raises(mounts.MountError) as e:
        mount(saved, f'transforms={rules}')
    assert f"'{rules}': {where}" in e.value.text
    assert where in run('transform', '--check', rules, saved, ok=False).stderr


def test_rules_that_cannot_be_turned_around_ask_for_a_target(run, saved, tmp_path):
    (tmp_path / 'rules.json').write_text(json.dumps({'rules': [{'key': 'x.*', 'original_key': 'ids'}]}))
    r = run('transform', '--check', tmp_path / 'rules.json', saved, ok=False)
    assert r.returncode == 1 and 'target' in r.stderr


def test_check_prints_what_goes_where(run, saved, tmp_path):
    doc = dict(RULES['concat'])
    doc['rules'] = doc['rules'] + RULES['rename one']['rules']
    (tmp_path / 'rules.json').write_text(json.dumps(doc))
    lines = run('transform', '--check', tmp_path / 'rules.json', saved).stdout.splitlines()
    assert 'all.npy <- concat(params.layer_0.w, params.layer_1.w; 1)' in lines
    assert 'count.json <- step' in lines and not any(line.startswith('step') for line in lines)
    rows = json.loads(run('transform', '--json', '--check', tmp_path / 'rules.json', saved).stdout)
    assert {'leaf': 'count.json', 'from': 'step'} in rows


def write_rules(tmp_path, **doc):
    (tmp_path / 'rules.json').write_text(json.dumps(doc))
    return tmp_path / 'rules.json'


@pytest.mark.parametrize('rule,what', [
    ({'key': 'zz', 'original_key': ['ids', 'nix'], 'value_fn': 'stack(0)'}, "rule 2 makes 'zz' from 'nix'"),
    ({'key': 'x', 'original_key': 'nix'}, "rule 2 makes 'x' from 'nix'"),
    ({'key': 'x', 'value_fn': 'cast(float32)'}, "rule 2 makes 'x' from 'x'"),
    ({'key': 'ids', 'original_key': 'nix'}, "rule 2 makes 'ids' from 'nix'"),
    ({'key': 'params/(.*)', 'original_key': r'weights/\1'}, "from 'weights/"),
    ({'key': 'z/(.*)', 'original_key': [r'params/layer_1/\1', r'nix/\1'], 'value_fn': 'stack(0)'}, "from 'nix/"),
])
def test_what_a_rule_names_exists_or_is_reported(mount, run, saved, tmp_path, rule, what):
    """Orbax raises for a key that is asked for; no leaf goes without a word."""
    rules = write_rules(tmp_path, rules=[{'key': 'half', 'value_fn': 'cast(float32)'}, rule])
    r = run('transform', '--check', rules, saved, ok=False)
    assert r.returncode == 1 and what in r.stderr and 'does not have' in r.stderr, r.stderr
    with pytest.raises(ValueError, match='not found in origin tree'):
        doc = {'rules': [{'key': rule['key'], 'original_key': 'nix'}]}
        transformed(doc, state(), {'key': ['ids']}.get(rule['key'], [re.sub(r'\(.*', 'layer_0/w', rule['key']) or 'z/w']))
    m = mount(saved.parent, f'transforms={rules}', 'shape=step', allow_errors=True)
    with pytest.raises(OSError):
        os.listdir(m / 'item')
    assert any(what in line for line in m.log_lines())


def test_a_rule_that_matches_nothing_is_listed(run, saved, tmp_path):
    rules = write_rules(tmp_path, rules=[{'key': 'x/(.*)', 'original_key': r'nix/\1'},
                                         {'key': 'y/(.*)', 'original_key': r'opt/\1'}])
    r = run('transform', '--check', rules, saved)
    assert "rule 1 makes no leaf: no key matches 'x/(.*)'" in r.stderr and 'rule 2' not in r.stderr
    assert 'y/0/mu.npy <- opt.0.mu' in r.stdout.splitlines()


def test_check_tells_given_values(mount, run, saved, tmp_path):
    """The mount does not show the stored value under the key of a fallback."""
    rules = write_rules(tmp_path, rules=[{'key': 'step', 'use_fallback': 0}, {'key': 'gone', 'use_fallback': None}])
    lines = run('transform', '--check', rules, saved).stdout.splitlines()
    assert 'step.json <- given' in lines and 'gone.null <- given' in lines and 'name.txt <- name' in lines
    assert shown(mount(saved, f'transforms={rules}'))['step'] == 0
    rules = write_rules(tmp_path, rules=[{'key': 'ids', 'use_fallback': True}], target=['ids'], default_to_original=False)
    assert run('transform', '--check', rules, saved).stdout == 'ids.npy <- ids\n'


def test_check_of_a_step(run, tmp_path):
    """All trees of it, and the reason when one cannot be made."""
    ocp.Checkpointer(ocp.CompositeCheckpointHandler()).save(tmp_path / 'step', ocp.args.Composite(
        state=ocp.args.PyTreeSave({'w': np.ones(3), 'n': 1}), ema=ocp.args.PyTreeSave({'w': np.zeros(3)}),
        extra=ocp.args.JsonSave({'a': 1})))
    rules = write_rules(tmp_path, rules=[{'key': 'v', 'original_key': 'w'}])
    assert set(run('transform', '--check', rules, tmp_path / 'step').stdout.splitlines()) == {
        'state/v.npy <- w', 'state/n.json <- n', 'ema/v.npy <- w'}
    rules = write_rules(tmp_path, rules=[{'key': 'v', 'original_key': 'n'}], item='state', target=['v'])
    rows = json.loads(run('transform', '--json', '--check', rules, tmp_path / 'step').stdout)
    assert {row['leaf'] for row in rows} == {'state/v.json', 'ema/w.npy'}
    rules = write_rules(tmp_path, rules=[{'key': 'v', 'original_key': 'n'}])
    r = run('transform', '--check', rules, tmp_path / 'step', ok=False)
    assert r.returncode == 1 and "'ema'" in r.stderr and "from 'n'" in r.stderr and '"item"' in r.stderr, r.stderr
    r = run('transform', '-o', 'shape=root', '--check', rules, tmp_path, ok=False)
    assert r.returncode == 1 and 'has no tree' in r.stderr and "''" not in r.stderr


def test_leaves_that_no_rule_uses_are_told(run, mount, saved_layers, tmp_path):
    """transform --check lists them, with rules that make nothing; all others count them, and --strict refuses them."""
    rules = [{'key': 'norm/weight', 'original_key': 'params/norm'}, {'key': 'nothing/(.*)', 'original_key': r'absent/\1'},
             {'key': 'layers/{i}/w', 'original_key': 'params/layers/w', 'for': {'i': 3}, 'value_fn': ['unstack({i}, 4)', 'add(1)']},
             {'key': 'layers/{i}/k', 'original_key': 'params/layers_{i}/k', 'for': {'i': 3}}]
    wrong = write_rules(tmp_path, rules=rules + [{'key': 'params/count', 'use_fallback': 0}], default_to_original=False)
    said = run('transform', '--check', wrong, saved_layers).stderr.splitlines()
    assert [line.removeprefix('pytreefs: ') for line in said] == [
        "rule 2 makes no leaf: no key matches 'nothing/(.*)'", "no rule uses 'params/head'",
        "stored leaf 'params/layers/w', of which rules take only 3 of 4 parts", "no rule uses 'params/layers_3/k'"]
    run('export', saved_layers, tmp_path / 'in.safetensors')
    for words in (['export', saved_layers, 'a.safetensors'], ['convert', saved_layers, 'b'], ['save', saved_layers, 'r/1'],
                  ['convert', tmp_path / 'in.safetensors', 'c'], ['convert', saved_layers, 'd.npz']):
        out, options = tmp_path / words[2], ['-o', f'transforms={wrong}']
        r = run(words[0], '--strict', *options, words[1], out, ok=False)
        assert r.returncode == 1 and '3 stored leaves' in r.stderr and "'params/head'" in r.stderr and not out.exists(), r.stderr
        r = run(words[0], *options, words[1], out)
        assert '3 stored leaves' in r.stderr and '1 rule makes' in r.stderr and '--check' in r.stderr and out.exists()
        assert not run(words[0], '--force', '-q', *options, words[1], out).stderr
    assert run('transform', '--strict', '--check', wrong, saved_layers, ok=False).returncode == 1
    step = tmp_path / 'steps/1'
    run('save', saved_layers, step)
    text = "3 stored leaves are left out by the rules, the first is 'params/head'; 1 rule makes no leaf"
    options = f'transforms={wrong}'
    for source, below, name in ((saved_layers, '', '.'), (step, 'default', 'default'), (step.parent, '1/default', '1/default')):
        m = mount(source, options)
        list((m / below).iterdir())
        assert [line.endswith(f"item '{name}': transforms: {text}") for line in m.log_lines() if 'left out' in line] == [True], m.log_lines()
        for at in {below, f'{below}/layers'.strip('/'), '1' if below[:1] == '1' else below}:
            left_out = json.loads(os.getxattr(m / at, 'user.pytree.left_out'))
            assert left_out == {'unused_leaves': 3, 'idle_rules': 1, 'text': text}, at
            assert 'user.pytree.left_out' not in os.listxattr(m / at)
    for path in (saved_layers, step, step / 'default', step / 'default/layers', step.parent / 'latest'):
        for load in (pytreefs.load, pytreefs.load_flat):
            with pytest.warns(UserWarning, match=f'transforms: {re.escape(text)}$') as said:
                load(path, transforms=str(wrong))
            assert len(said) == 1 and said[0].filename == __file__
    rules[2]['for']['i'] = rules[3]['for']['i'] = 4
    right = write_rules(tmp_path, rules=[rules[0], *rules[2:], {'key': 'head', 'original_key': 'params/head'},
                                         {'key': 'count', 'original_key': 'params/count'}], default_to_original=False)
    assert not run('transform', '--strict', '--check', right, saved_layers).stderr
    assert not run('export', '--strict', '-o', f'transforms={right}', saved_layers, tmp_path / 'e.npz').stderr
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert pytreefs.load(step, transforms=str(right)).keys() == {'norm', 'layers', 'head', 'count'}
        pytreefs.load(step)
    m = mount(step, f'transforms={right}')
    assert list((m / 'default').iterdir()) and not any('left out' in line for line in m.log_lines())
    with pytest.raises(OSError, match='No data'):
        os.getxattr(m / 'default', 'user.pytree.left_out')
    # A leaf that keeps its name is not left out.
    kept = write_rules(tmp_path, rules=rules[:1])
    assert not run('convert', '--strict', '-o', f'transforms={kept}', saved_layers, tmp_path / 'f').stderr


@pytest.fixture
def saved_layers(tmp_path):
    params = {'norm': np.ones(2), 'head': np.ones(3), 'count': 3, 'layers': {'w': np.ones((4, 2))}}
    params |= {f'layers_{i}': {'k': np.full(2, i)} for i in range(4)}
    ocp.PyTreeCheckpointer().save(tmp_path / 'layers', {'params': params})
    return tmp_path / 'layers'


@pytest.mark.parametrize('fn', ['concat(0)', 'reshape(7)', 'transpose(0)', 'slice(99)', 'pad(2, 2)', 'unstack(0, 9)'])
def test_check_tells_what_cannot_be_computed(run, saved, tmp_path, fn):
    inputs = ['params/layer_0/w', 'ids'] if fn.startswith('concat') else 'ids'
    (tmp_path / 'rules.json').write_text(json.dumps({'rules': [{'key': 'x', 'original_key': inputs, 'value_fn': fn}]}))
    r = run('transform', '--check', tmp_path / 'rules.json', saved, ok=False)
    assert r.returncode == 1 and fn.split('(')[0] in r.stderr, r.stderr
