#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run by `meson dist`: every file of the archive has the time of its commit, so that the same commit gives the same bytes."""

import os
import pathlib
import subprocess

root = pathlib.Path(os.environ['MESON_DIST_ROOT'])
when = int(subprocess.run(['git', '-C', os.environ['MESON_SOURCE_ROOT'], 'log', '-1', '--format=%ct'], capture_output=True,
                          text=True, check=True).stdout)
# A directory after what is in it.
for path in [*sorted(root.rglob('*'), reverse=True), root]:
    os.utime(path, (when, when), follow_symlinks=False)
