# SPDX-License-Identifier: Apache-2.0
"""A program under strace(1)."""

import os
import subprocess


def run(calls, log, argv, **how):
    """Run argv with these system calls of all its threads written to the file log, one a line; `how` as for subprocess.run.

    LeakSanitizer cannot look for leaks in a process that is traced already, and ends it, so that it is switched off here.
    """
    options = ':'.join(filter(None, (os.environ.get('ASAN_OPTIONS'), 'detect_leaks=0')))
    return subprocess.run(['strace', '-f', '-y', '-qq', '-o', log, '-e', f'trace={calls}', *argv],
                          env=dict(os.environ, ASAN_OPTIONS=options), **how)
