#!/usr/bin/env python3
"""Makes docs/page.png: the page of the sample's latest step in a browser.

usage: tests/picture.py PYTREEFS        (the program that was built; needs chromium)
"""

import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from lib import browser, mounts  # noqa: E402

TOP = pathlib.Path(__file__).resolve().parent.parent


def main(program):
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        m = mounts.Mount(program, TOP / 'tests/data/sample', scratch / 'mnt', scratch / 'log', [])
        try:
            b = browser.Browser(scratch / 'browser', 1200, 720)
            try:
                b.open(f'file://{m.path}/latest/state.html', "document.querySelectorAll('#rows .row').length")
                b.screenshot(TOP / 'docs/page.png')
            finally:
                b.close()
        finally:
            m.unmount()


if __name__ == '__main__':
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
