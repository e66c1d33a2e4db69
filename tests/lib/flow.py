# SPDX-License-Identifier: Apache-2.0
"""The two flows of docs/architecture.md, and the source files that speak in a trace."""

import functools
import itertools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CALL = re.compile(r'\btrace\(TRACE_(\w+),\s*((?:"(?:\\.|[^"\\])*"\s*|PRI\w+\s*)+)')
CONVERSION = re.compile(r'%(?:[-+ #0]*[\d.*]*(?:hh|h|ll|l|z|j)?[a-zA-Z])')


def page_flow(call):
    """The files of one system call, in the order of the page; each exists."""
    section = (ROOT / 'docs/architecture.md').read_text().split(f'\n{call} ', 1)[1]
    lines = section.split('```', 1)[0].split('\n')[1:]
    files = [m[1] for line in itertools.takewhile(lambda line: line.startswith(' '), lines)
             if (m := re.match(r'  ([\w/]+\.c)\b', line))]
    missing = [f for f in files if not (ROOT / f).is_file()]
    assert files and not missing, f'{call}: the page names {missing}, which do not exist'
    return files


@functools.cache
def speakers():
    """[(module, regular expression of the line, file)] of each trace call of the program."""
    out = []
    for top in ('core', 'handlers', 'fs'):
        for path in sorted((ROOT / top).rglob('*.c')):
            for module, words in CALL.findall(path.read_text()):
                # "%" PRIu64 is a conversion, too: its letters are in the macro.
                words = re.sub(r'PRI\w+', '"u"', words)
                text = ''.join(w[1:-1] for w in re.findall(r'"(?:\\.|[^"\\])*"', words))
                fixed = [re.escape(part) for part in CONVERSION.split(text)]
                out.append((module.lower(), re.compile('.*'.join(fixed)), path.relative_to(ROOT).as_posix()))
    return out


def files_of(module, text):
    """The files that may have printed this line of a trace."""
    return {file for m, line, file in speakers() if m == module and line.fullmatch(text)}


ENGINE = 'core/io/io_trace.c'       # speaks for the engine that is traced


def check(call, lines, besides=()):
    """The flow of the page is what happened: [(module, text)]. besides: files that may speak and are not of the flow."""
    flow = page_flow(call)
    spoke = list(dict.fromkeys(f for module, text in lines for f in sorted(files_of(module, text)) if f != ENGINE))
    assert set(spoke) - set(besides) <= set(flow), f'{call}: not on the page: {set(spoke) - set(besides) - set(flow)}'
    in_order = [f for f in flow if f in spoke]
    assert [f for f in spoke if f in flow] == in_order, f'{call}: the page has {in_order}, the trace {spoke}'
    return flow
