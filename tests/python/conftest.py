# SPDX-License-Identifier: Apache-2.0
"""The package as it was built: on sys.path, and for the processes that tests start."""

import importlib
import os
import pathlib
import sys

BUILD = pathlib.Path(os.environ['PYTREEFS_BUILD']).resolve()
PACKAGE = BUILD / 'tools' / 'python'

sys.path.insert(0, str(PACKAGE))
os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, (str(PACKAGE), os.environ.get('PYTHONPATH'))))
os.environ['PYTREEFS_PROGRAM'] = str(BUILD / 'pytreefs')
importlib.invalidate_caches()
