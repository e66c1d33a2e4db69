# SPDX-License-Identifier: Apache-2.0
"""Processes that have JAX and Orbax imported when they begin: forks of one that has done nothing else. Importing them takes two seconds.

What JAX reads when it is first used is the affair of the function that a process runs: devices, types, other processes.
"""

import contextlib
import functools
import multiprocessing
import os
import pathlib
import sys
import tempfile


@functools.cache
def _server():
    os.environ.setdefault('JAX_PLATFORMS', 'cpu')
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    context = multiprocessing.get_context('forkserver')
    context.set_forkserver_preload(['jax', 'orbax.checkpoint.v1'])
    return context


def _begin(function, words, environment, output):
    fd = os.open(output, os.O_WRONLY | os.O_CREAT, 0o600)
    for standard in (1, 2):
        os.dup2(fd, standard)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = filter(None, environment.get('PYTHONPATH', '').split(':'))
    function(*map(str, words))


@contextlib.contextmanager
def begun(calls, environment=None):
    """Processes of the calls (function, word, ...), with words as text; .output of each is the file that it prints to. They are
    killed at the end."""
    environment = dict(os.environ if environment is None else environment)
    with tempfile.TemporaryDirectory() as directory:
        processes = []
        try:
            for n, (function, *words) in enumerate(calls):
                output = pathlib.Path(directory, str(n))
                processes.append(_server().Process(target=_begin, args=(function, words, environment, output)))
                processes[-1].output = output
                processes[-1].start()
            yield processes
        finally:
            for p in processes:
                if p.pid:
                    p.kill()
                    p.join()


def together(calls, environment=None, timeout=600):
    """Return what each of the calls (function, word, ...) prints, all at once, each in a process; words come as text."""
    with begun(calls, environment) as processes:
        for p in processes:
            p.join(timeout)
        if any(p.exitcode is None for p in processes):
            raise RuntimeError(f'a process has not ended after {timeout} seconds')
        said = [p.output.read_text(errors='replace') if p.output.exists() else '' for p in processes]
        if any(p.exitcode for p in processes):
            raise RuntimeError('\n'.join(text[-2000:] for text in said))
    return said


def run(function, *words, environment=None, timeout=600):
    """The same of one call."""
    return together([(function, *words)], environment, timeout)[0]


def script(text, *words):
    """A program as `python -c` would run it: forks.run(forks.script, text, word, ...)."""
    sys.argv = ['-c', *words]
    exec(compile(text, '-c', 'exec'), {'__name__': '__main__'})
