#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes docs/page.png: the report of the sample's latest step in a browser.

usage: tests/picture.py PYTREEFS        (the program that was built; needs chromium)
"""

import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from lib import browser  # noqa: E402

TOP = pathlib.Path(__file__).resolve().parent.parent


def main(program):
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        page = scratch / 'report.html'
        subprocess.run([program, 'report', TOP / 'tests/data/sample/latest/state', page], check=True)
        b = browser.Browser(scratch / 'browser', 1400, 900)
        try:
            b.open(f'file://{page}', "document.querySelectorAll('#rows .row').length")
            # The treemap of all parameters, and the numbers of one of them.
            b.eval("choose(all.find(n => n.path === 'params'))")
            b.eval("reveal(all.find(n => n.path === 'params/embed/table.npy'))")
            # Where this machine has its files is nobody's business.
            b.eval("$('about').textContent = $('about').textContent.replace(/^.*sample/, '/data/ckpts')")
            b.screenshot(TOP / 'docs/page.png')
        finally:
            b.close()


if __name__ == '__main__':
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
