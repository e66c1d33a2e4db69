# SPDX-License-Identifier: Apache-2.0
"""The checkpoints that tests read: names, and where they lie once they are made.

    names()             every case that is made for an ordinary run
    get('matrix-...')   the Case, made now if it is not there

Making them takes real Orbax and happens once: results are kept in tests/.cache/<hash>/<name>.
"""

import fcntl
import functools
import hashlib
import os
import pathlib

from lib import forks, generate
from lib.case import Case

TESTS = pathlib.Path(__file__).resolve().parent.parent
MODULES = ('gen_matrix', 'gen_trees', 'gen_roots', 'gen_sharded', 'gen_zarr', 'gen_legacy', 'gen_big',
           'gen_views', 'gen_bench', 'gen_tools')
SHARED = ('expect.py', 'case.py', 'generate.py', 'jaxenv.py')


def cache_root():
    return pathlib.Path(os.environ.get('PYTREEFS_CHECKPOINTS') or TESTS / '.cache').absolute()


@functools.cache
def _module_dir(module):
    """The directory of a module's results: it changes when anything that makes them changes."""
    digest = hashlib.sha256()
    text = (TESTS / 'lib' / (module + '.py')).read_text()
    uses = [m + '.py' for m in MODULES + ('bigdata', 'jax_rank') if f'lib.{m} import' in text or f', {m}' in text
            or f'import {m}' in text]
    for name in SHARED + tuple(uses) + (module + '.py',):
        digest.update((TESTS / 'lib' / name).read_bytes())
    peers = [line for line in (TESTS / 'requirements.txt').read_text().splitlines()
             if line.startswith(('orbax', 'tensorstore', 'jax', 'zarr', 'numpy', 'ml_dtypes'))]
    digest.update('\n'.join(peers).encode())
    return cache_root() / f'{module}-{digest.hexdigest()[:16]}'


def _generate(*words):
    """generate.main() in a process of its own: eight devices and 64-bit types must be asked for before JAX is used, whatever the caller has
    asked for."""
    environment = {name: value for name, value in os.environ.items() if name != 'XLA_FLAGS'}
    return forks.run(generate.main, *words, environment=environment, timeout=1800)


def _list(modules):
    """Write the index of these generators, all by one process: they share what takes long to import."""
    rows = [line.partition(' ') for line in _generate('--list', *modules).splitlines()]
    for module in modules:
        path, cases = _module_dir(module) / 'index', [case for name, _, case in rows if name == module]
        if not cases:
            raise RuntimeError(f'lib.{module} has no cases: {rows}')
        path.parent.mkdir(exist_ok=True)
        # As a whole: others look without the lock.
        new = path.with_name('index.new')
        new.write_text(''.join(f'{case}\n' for case in cases))
        new.rename(path)


def _index():
    """{name: (module, heavy)}, read from the generators once per version of them."""
    def missing():
        return [module for module in MODULES if not (_module_dir(module) / 'index').exists()]

    if missing():
        with _lock(cache_root()):
            if modules := missing():
                _list(modules)
    lines = [(line.split(), module) for module in MODULES for line in (_module_dir(module) / 'index').read_text().splitlines()]
    return {words[0]: (module, words[1] == 'heavy') for words, module in lines}


class _lock:
    """One maker at a time per module, over all test processes."""

    def __init__(self, directory):
        directory.mkdir(parents=True, exist_ok=True)
        self.file = open(directory / '.lock', 'w')

    def __enter__(self):
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_):
        self.file.close()


def names(prefix='', heavy=False):
    return [n for n, (_, is_heavy) in _index().items() if is_heavy == heavy and n.startswith(prefix)]


def get(name):
    """One case; the first call of a module makes all of its ordinary cases in one process."""
    module, heavy = _index()[name]
    directory = _module_dir(module)
    with _lock(directory):
        if not (directory / name / 'case.json').exists() and not (directory / name / 'failed').exists():
            wanted = [name] if heavy else [n for n, v in _index().items() if v == (module, False)]
            missing = [n for n in wanted if not (directory / n).exists()]
            _generate(module, directory, *missing)
    failed = directory / name / 'failed'
    if failed.exists():
        raise RuntimeError(f'{name} could not be made:\n{failed.read_text()}')
    return Case.load(directory / name)
