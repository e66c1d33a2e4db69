# SPDX-License-Identifier: Apache-2.0
"""Makes cases: main(MODULE, DIRECTORY, NAME...), or main('--list', MODULE...), as lib/checkpoints.py runs it.

A case that cannot be made leaves a file `failed` with the reason, so that only its own test fails.
"""

import importlib
import logging
import pathlib
import shutil
import traceback
import warnings

from lib import case


def make(directory, name):
    work = directory / (name + '.making')
    final = directory / name
    for old in (work, final):
        if old.exists():
            shutil.rmtree(old)
    work.mkdir(parents=True)
    try:
        made = case.GENERATORS[name][1](work)
        made.save(work)
    except Exception:
        (work / 'failed').write_text(traceback.format_exc())
    work.rename(final)


def main(what, *words):
    warnings.filterwarnings('ignore')
    logging.disable(logging.WARNING)
    if what == '--list':
        for module in words:
            importlib.import_module('lib.' + module)
        for name, (module, _, heavy) in case.GENERATORS.items():
            print(module.removeprefix('lib.'), name, 'heavy' if heavy else 'ordinary')
        return
    directory, *names = words
    importlib.import_module('lib.' + what)
    for name in names:
        make(pathlib.Path(directory), name)
