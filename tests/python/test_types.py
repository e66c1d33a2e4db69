# SPDX-License-Identifier: Apache-2.0
"""Type hints, examples of docstrings, and pages about the package."""

import doctest
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np

import pytreefs
from lib import checkpoints

TOP = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = TOP / 'tests' / 'data' / 'sample'

EXAMPLE = '''
import numpy as np
import numpy.typing as npt
import pytreefs

steps: list[int] = pytreefs.steps('ckpts')
with pytreefs.open('ckpts', cache='1G') as ck:
    latest: pytreefs.Checkpoint = ck.latest
    for leaf in latest.leaves():
        shape: tuple[int, ...] = leaf.shape
        kind: str = leaf.kind
flat: dict[str, object] = pytreefs.load_flat('ckpts/latest')
tree = pytreefs.load('ckpts/latest', only=['a', 'b'], framework='torch', progress=lambda done, total: None)
pytreefs.save('ckpts/1', {'w': np.ones(3)}, compression='none')
with pytreefs.mount('ckpts') as path:
    where: str = path
try:
    pass
except pytreefs.NotFoundError as e:
    missing: FileNotFoundError = e
except pytreefs.Error as e:
    number: int | None = e.errno
with pytreefs.open('ckpts/latest') as step:
    loss: float = step.json('metrics')['loss']
    table = step.get('state/params/w')
'''
# Errors that a type checker must find: a wrong argument each.
WRONG = '''
import pytreefs
pytreefs.steps(3)
pytreefs.load('x', framework='tensorflow')
n: int = pytreefs.steps('x')
pytreefs.mount('x', 3)
'''


def test_strict_types(tmp_path, build):
    """The package, a program that uses it, and one that uses it wrongly."""
    (tmp_path / 'example.py').write_text(EXAMPLE)
    (tmp_path / 'wrong.py').write_text(WRONG)
    (tmp_path / 'mypy.ini').write_text('[mypy]\nstrict = True\n[mypy-ml_dtypes,torch,fsspec]\nfollow_imports = skip\n')
    # Types are looked up as of an installed package: by its py.typed. What mypy finds in numpy and the standard library is kept.
    r = subprocess.run([sys.executable, '-m', 'mypy', '--config-file', tmp_path / 'mypy.ini', '--cache-dir', checkpoints.cache_root() / 'mypy',
                        '-p', 'pytreefs', '-p', 'example', '-p', 'wrong'], cwd=tmp_path, capture_output=True, text=True,
                       env=dict(os.environ, MYPYPATH=f'{tmp_path}:{build}/tools/python'))
    faults = [line for line in r.stdout.splitlines() if ': error:' in line]
    assert {int(line.split(':')[1]) for line in faults if line.startswith('wrong.py')} == {3, 4, 5, 6}, r.stdout + r.stderr
    assert not [line for line in faults if not line.startswith('wrong.py')], r.stdout


def test_every_line_of_the_table_is_there():
    """Everything in docs/python.md exists, with these arguments."""
    import inspect
    page = (TOP / 'docs' / 'python.md').read_text()
    for name, arguments in re.findall(r'^\| `pytreefs\.(\w+)\(([^`]*)\)`', page, re.M):
        signature = inspect.signature(getattr(pytreefs, name))
        for argument in re.findall(r'\b([a-z]+)=', arguments):
            assert argument in signature.parameters, (name, argument)
        if '**options' in arguments:
            assert any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()), name
    for name in pytreefs.__all__:
        assert getattr(pytreefs, name).__doc__, name


def test_examples_of_docstrings(tmp_path, monkeypatch):
    tried = 0
    for name in pytreefs.__all__:
        (tmp_path / name).mkdir()
        shutil.copytree(SAMPLE, tmp_path / name / 'ckpts')
        monkeypatch.chdir(tmp_path / name)
        made = doctest.DocTestFinder(recurse=False).find(getattr(pytreefs, name), name, globs={**vars(pytreefs), 'np': np})
        for test in made:
            tried += len(test.examples)
            result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
            assert not result.failed, name
    assert tried >= 10


def test_the_tour_of_the_readme(tmp_path, monkeypatch, capfd):
    """Its lines, pasted beside a copy of the sample."""
    text = (TOP / 'README.md').read_text().split('## Python, without a mount\n', 1)[1]
    code = re.search(r'```python\n(.*?)```', text, re.S)[1]
    shutil.copytree(SAMPLE, tmp_path / 'ckpts')
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    out = capfd.readouterr().out
    assert out.startswith('(128, 32) bfloat16 [[') and '(32,)' not in out
