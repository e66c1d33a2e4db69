# SPDX-License-Identifier: Apache-2.0
"""Patterns that choose leaves, as in `pytreefs help patterns`."""

from __future__ import annotations

import re
from collections.abc import Sequence


def _name(part: str) -> str:
    """A regular expression for one name."""
    out, i = '', 0
    while i < len(part):
        c = part[i]
        i += 1
        if c == '*':
            out += '[^/]*'
        elif c == '?':
            out += '[^/]'
        elif c == '\\' and i < len(part):
            out += re.escape(part[i])
            i += 1
        elif c == '[' and (end := part.find(']', i + 2 if part[i:i + 1] == '!' else i + 1)) > 0:
            inside = part[i:end]
            not_in = inside.startswith('!')
            out += ('[^/' if not_in else '[') + re.sub(r'([][^\\&~|])', r'\\\1', inside[not_in:]) + ']'
            i = end + 1
        else:
            out += re.escape(c)
    return out


class Patterns:
    """Which leaves are chosen; each pattern must choose one."""

    def __init__(self, patterns: Sequence[str]):
        self.patterns = list(patterns)
        self.compiled = [self._compile(p) for p in self.patterns]
        self.used = [False] * len(self.patterns)

    @staticmethod
    def _compile(pattern: str) -> tuple[bool, re.Pattern[str]]:
        has_slash = '/' in pattern
        if not has_slash:
            return False, re.compile(_name(pattern), re.S)
        is_directory = pattern.endswith('/')
        parts = pattern.strip('/').split('/')
        out = ''
        for i, part in enumerate(parts):
            is_last = i == len(parts) - 1
            if part == '**':
                out += '.*' if is_last else '(?:[^/]+/)*'
            else:
                out += _name(part) + ('' if is_last else '/')
        is_plain = not re.search(r'[*?[\\]', parts[-1])
        below = '/.*' if is_directory else '(?:/.*)?' if is_plain or parts[0] == '**' else ''
        return True, re.compile(out + below, re.S)

    def choose(self, path: str, item: str = '') -> list[str]:
        """The patterns that choose a leaf. path: as a mount has it, from the item on, with its extension."""
        stem = path[:path.rfind('.')] if '.' in path.rpartition('/')[2] else path
        chosen: list[str] = []
        for i, (has_slash, compiled) in enumerate(self.compiled):
            names = {path, stem}
            texts = {p.rpartition('/')[2] for p in names} if not has_slash else names | {f'{item}/{p}' for p in names} if item else names
            if any(compiled.fullmatch(t) for t in texts):
                self.used[i] = True
                chosen.append(self.patterns[i])
        return chosen

    def unused(self) -> list[str]:
        return [p for p, used in zip(self.patterns, self.used) if not used]
