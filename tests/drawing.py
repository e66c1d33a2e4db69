#!/usr/bin/env python3
"""The drawing of the source tree in core/README.md, made of the first sentence of each file.

usage: tests/drawing.py [--write]

Without --write it fails, as tests/layers.py does, when the drawing there is not the tree's.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WHERE = ROOT / 'core' / 'README.md'
# Up the ladder.
FOLDERS = ['core/base', 'core/io', 'core/kv', 'core/codec', 'core/ocdbt', 'core/zarr', 'core/tree', 'core/step',
           'handlers', 'handlers/examples', 'fs', 'tools']
BEGIN, END = '<!-- tests/drawing.py -->\n```\n', '```\n<!-- end -->\n'
WIDTH = 120


def sentence(path):
    """What the first comment of a file says it is."""
    head = re.match(r'/\*\n \* \S+ -+ (.*?)(?:\n \*\n|\n \*/)', path.read_text(encoding='utf-8'), re.S)
    assert head, f'{path}: does not begin with "name - what it is"'
    text = re.sub(r'\s+\* ?', ' ', head.group(1)).strip()
    # Up to the first period that ends a sentence.
    return re.split(r'\.(?:\s|$)', text)[0]


def drawing():
    out = []
    for folder in FOLDERS:
        files = {}
        for path in sorted((ROOT / folder).glob('*.[ch]')):
            files.setdefault(path.stem, []).append(path)
        if files:
            out.append(f'{folder}/')
        for stem, paths in sorted(files.items()):
            name = stem + (paths[0].suffix if len(paths) == 1 else '.{h,c}')
            text = sentence(paths[-1])
            line = f'  {name:<24} {text}'
            out.append(line if len(line) <= WIDTH else line[:WIDTH - 4].rsplit(' ', 1)[0] + ' ...')
        if files:
            out.append('')
    return '\n'.join(out)


def faults():
    text = WHERE.read_text(encoding='utf-8')
    if BEGIN + drawing() + END not in text:
        yield 'core/README.md: its drawing is not the tree: run tests/drawing.py --write'


def main():
    if sys.argv[1:] == ['--write']:
        text = WHERE.read_text(encoding='utf-8')
        before, rest = text.split(BEGIN, 1)
        WHERE.write_text(before + BEGIN + drawing() + END + rest.split(END, 1)[1], encoding='utf-8')
        return 0
    found = list(faults())
    print('\n'.join(found), file=sys.stderr)
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
