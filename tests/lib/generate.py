# SPDX-License-Identifier: Apache-2.0
"""Makes cases: python -m lib.generate MODULE DIRECTORY NAME..., or --list MODULE.

A case that cannot be made leaves a file `failed` with the reason, so that only its own test fails.
"""

import importlib
import logging
import pathlib
import shutil
import sys
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


def main(args):
    warnings.filterwarnings('ignore')
    logging.disable(logging.WARNING)
    if args[0] == '--list':
        importlib.import_module('lib.' + args[1])
        for name, (module, _, heavy) in case.GENERATORS.items():
            if module == 'lib.' + args[1]:
                print(name, 'heavy' if heavy else 'ordinary')
        return
    importlib.import_module('lib.' + args[0])
    for name in args[2:]:
        make(pathlib.Path(args[1]), name)


if __name__ == '__main__':
    main(sys.argv[1:])
