# SPDX-License-Identifier: Apache-2.0
"""A process that runs Python contenders: imports done before the clock starts, its own peak of memory.

    python -m bench.worker      reads one JSON request a line, answers one JSON line each
"""

import importlib
import json
import os
import pathlib
import subprocess
import sys
import time
import traceback

TESTS = pathlib.Path(__file__).resolve().parent.parent


class Timed:
    """Callable: seconds of one run, measured over there; .peak is its VmHWM in bytes."""

    def __init__(self, worker, request):
        self.worker, self.request, self.peak = worker, request, 0
        worker.ask({'import': request['call']})

    def __call__(self):
        answer = self.worker.ask(self.request)
        self.peak = answer['peak']
        return answer['seconds']


class Worker:
    def __init__(self, python=sys.executable):
        env = dict(os.environ, PYTHONPATH=str(TESTS), PYTHONDONTWRITEBYTECODE='1', JAX_PLATFORMS='cpu',
                   TF_CPP_MIN_LOG_LEVEL='3')
        self.process = subprocess.Popen([python, '-m', 'bench.worker'], cwd=TESTS, env=env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, request):
        self.process.stdin.write(json.dumps(request, default=str) + '\n')
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {'error': 'the worker ended'}
        if 'error' in answer:
            raise RuntimeError(f'{request}: {answer["error"]}')
        return answer

    def call(self, function, *args, **kwargs):
        return self.ask({'call': function, 'args': args, 'kwargs': kwargs})

    def timed(self, function, *args, **kwargs):
        return Timed(self, {'call': function, 'args': args, 'kwargs': kwargs})

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def find(name):
    module, _, function = name.rpartition(':')
    return getattr(importlib.import_module('bench.' + (module or 'peers')), function)


def peak():
    for line in pathlib.Path('/proc/self/status').read_text().splitlines():
        if line.startswith('VmHWM:'):
            return int(line.split()[1]) * 1024
    return 0


def answer(request):
    if 'import' in request:
        prepare = getattr(find(request['import']), 'prepare', None)
        if prepare:
            prepare()
        return {}
    function = find(request['call'])
    pathlib.Path('/proc/self/clear_refs').write_text('5')
    begin = time.perf_counter()
    result = function(*request['args'], **request['kwargs'])
    seconds = time.perf_counter() - begin
    # A function that knows better which part counts says so.
    told = {'seconds': result if isinstance(result, float) else seconds, 'peak': peak()}
    if hasattr(function, 'after'):
        function.after()
    return told


def main():
    out = os.fdopen(os.dup(1), 'w', buffering=1)
    os.dup2(2, 1)               # nothing that a library prints gets between the answers
    for line in sys.stdin:
        try:
            text = json.dumps(answer(json.loads(line)))
        except Exception:
            text = json.dumps({'error': traceback.format_exc()})
        out.write(text + '\n')


if __name__ == '__main__':
    main()
