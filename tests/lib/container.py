#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns Containerfile and compose.yaml into lines of a script that follows them without a container engine.

container.py instructions CONTAINERFILE          KIND, a tab and the rest, one instruction a line
container.py capabilities COMPOSE                those that are added to none, as setpriv takes them
container.py command COMPOSE CONTAINERFILE       the words of the program that runs, one a line
"""

import json
import re
import sys


def instructions(path):
    with open(path) as f:
        text = ''.join(line for line in f if not line.lstrip().startswith('#'))
    for line in re.sub(r'\\\n\s*', '', text).splitlines():
        if line.strip():
            yield line.split(None, 1)


def one_line(compose, key):
    """The value of a key that stands on one line, as a list of words."""
    found = re.findall(rf'^\s*{key}: \[(.*)\]$', compose, re.M)
    assert len(found) == 1, f'{key}: is there {len(found)} times, on one line'
    return [a or b or c for a, b, c in re.findall(r'''\s*(?:'([^']*)'|"([^"]*)"|([^\s,]+))\s*(?:,|$)''', found[0])]


def main(what, path, *more):
    if what == 'instructions':
        for kind, rest in instructions(path):
            print(kind, rest, sep='\t')
        return
    with open(path) as f:
        compose = f.read()
    if what == 'capabilities':
        assert one_line(compose, 'cap_drop') == ['ALL']
        print(''.join(f',+{name.lower()}' for name in one_line(compose, 'cap_add')))
    elif what == 'command':
        entry = [json.loads(rest) for kind, rest in instructions(more[0]) if kind == 'ENTRYPOINT'][-1]
        print(*entry, *one_line(compose, 'command'), sep='\n')
    else:
        sys.exit(__doc__)


if __name__ == '__main__':
    main(*sys.argv[1:])
