# SPDX-License-Identifier: Apache-2.0
"""Names that are not listed: a view exists only of a leaf or container whose name is exactly the part before the view."""

import os
import subprocess

import numpy as np
import pytest

# In a directory with the leaves '.d', 'w' and 'x.y', and the containers '.e' and 'x'.
THERE = ['.json', '.html', '.safetensors', '@bfloat16.safetensors', '.d.npy', '.d.json', '.d.bin', '.d.safetensors', '.d@float16.npy',
         '.d[0:2].npy', '.d@2.npy', '.e.json', '.e.html', '.e.safetensors', '.e@float16.safetensors', 'w.safetensors', 'x.json', 'x.safetensors',
         'x.y.json', 'x.y.safetensors', 'x.y[0:1].npy']
ABSENT = [f'{stem}{end}' for stem in ('.nope', '.D', '.w', '.x', '.e.nope', '.d.nope', 'w.nope', 'x.nope', '.', '..', '.json', '.npy', '.pytreefs', '.@')
          for end in ('.json', '.html', '.safetensors', '@bfloat16.safetensors', '.npy', '.bin', '@float16.npy', '[0:1].npy', '@1.npy')] + \
         ['.npy', '.bin', '[0:1].npy', '@float16.npy', '@float16.json', '@1.npy', '@nope.safetensors', '[0:1].safetensors']


@pytest.fixture(scope='module')
def saved(program, tmp_path_factory):
    files = tmp_path_factory.mktemp('files') / 'tree'
    for name in ('D/.d', 'D/w', 'D/x.y', 'D/.e/v', 'D/x/q'):
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(files / f'{name}.npy', np.arange(3, dtype='f4'))
    root = files.with_name('root')
    root.mkdir()
    subprocess.run([program, 'save', files, root / '1'], check=True, timeout=60)
    return root


def test_a_view_is_of_the_leaf_or_container_with_exactly_its_name(saved, mount, run):
    m = mount(saved)
    d = next(p for p in m.path.rglob('D') if p.is_dir())
    assert [n for n in THERE if not os.path.exists(d / n)] == []
    assert [n for n in ABSENT if os.path.exists(d / n)] == []
    for above in {d.parent, d.parent.parent, m.path}:
        assert [f'{above}/{n}' for n in ('.nope.json', '.nope.safetensors', '.nope.html', '.D.json', '.1.json', '.default.json') if
                os.path.exists(above / n)] == []
    # The command sees the same names.
    below = d.relative_to(m.path)
    assert run('cat', saved / below / '.json').stdout == (d / '.json').read_text() == d.with_name('D.json').read_text()
    for name in ('.nope.json', '.nope.safetensors', '.w.html'):
        r = run('cat', saved / below / name, ok=False)
        assert r.returncode and f"has no 'D/{name}'" in r.stderr
