#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pastes a tour: the console blocks of a Markdown section, line by line into one shell, and compares what comes out.

    tour.py FILE.md SECTION [DIRECTORY]      in DIRECTORY (default: here); exit 1 and the difference when something differs

Only what a bare Debian has is used, since tests/bare runs it there. A block is ```console; lines after `$ ` (and `> `, which
goes on with a command) are typed, the others are the words that must come out, in this order: `ls` makes columns on a terminal
only. `...` stands for any words.
"""

import pathlib
import re
import subprocess
import sys

MARK = '==pytreefs-tour=='


def section(path, title):
    """The text below the heading, up to the next one of its level or above."""
    lines, level, out, fenced = pathlib.Path(path).read_text().splitlines(), 0, [], False
    for line in lines:
        fenced ^= line.startswith('```')
        at = None if fenced else re.match(r'(#+) (.*)', line)
        if at and level and len(at[1]) <= level:
            break
        if level:
            out.append(line)
        elif at and at[2] == title:
            level = len(at[1])
    return out


def commands(lines):
    """[(command, [line that must come out, ...]), ...]"""
    out, inside = [], False
    for line in lines:
        if line.startswith('```'):
            inside = line == '```console'
        elif inside and line.startswith('$ '):
            out.append((line[2:], []))
        elif inside and line.startswith('> ') and out and not out[-1][1]:
            out[-1] = (out[-1][0] + '\n' + line[2:], [])
        elif inside and out:
            out[-1][1].append(line)
    return out


def pattern_of(lines):
    """Return the expected output as a regular expression over its words, each followed by a blank."""
    return ''.join('(?:.* )?' if word == '...' else re.escape(word) + ' ' for word in ' '.join(lines).split())


def paste(typed, where, env=None, timeout=300):
    """(output, exit status) of each command; all in one shell, as it would be in a terminal."""
    script = ''.join(f'{text}\necho "{MARK} $?"\n' for text, _ in typed)
    r = subprocess.run(['bash'], input=script, cwd=where, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True, timeout=timeout)
    parts = re.split(MARK + r' (\d+)\n', r.stdout)
    return list(zip(parts[0::2], map(int, parts[1::2])))


def faults(path, title, where, env=None):
    """Return the errors of a tour, as text; empty when every line does what the page says."""
    typed = commands(section(path, title))
    if not typed:
        return [f'{path} has no commands below "{title}"']
    got, out = paste(typed, where, env), []
    for (text, wanted), (said, status) in zip(typed, got):
        if status:
            out.append(f'$ {text}\nexit status {status}:\n{said}')
        elif not re.fullmatch(pattern_of(wanted), ''.join(word + ' ' for word in said.split())):
            out.append(f'$ {text}\nwanted:\n' + '\n'.join(wanted) + f'\ngot:\n{said}')
    if len(got) < len(typed):
        out.append(f'the shell ended before: {typed[len(got)][0]}')
    return out


def main():
    path, title = sys.argv[1:3]
    found = faults(path, title, sys.argv[3] if len(sys.argv) > 3 else '.')
    for fault in found:
        print(fault)
    print(f'tour: {len(commands(section(path, title)))} commands, {len(found)} faults')
    return bool(found)


if __name__ == '__main__':
    sys.exit(main())
