#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules of the source tree that a compiler does not check; fails the test run on the first breach.

* an include points down the ladder (MAY_INCLUDE), and names its file by the full path from the root
* a library has one door (DOORS)
* names of C files are unique, and those of Python tests, which pytest imports by name; a file has at most 600 lines, Python's too, a function at most 70, and nothing jumps (`goto`)
* words that are retired do not come back (PHRASES, RETIRED), and no comment begins with "What ..." as its subject (RELATIVE_SUBJECT)
* every file of code, unit test and fuzz target is in a meson.build; a test calls a library where it could run a shell
* the ladder has no cycle: a folder may use only those that MAY_INCLUDE lists before it
* a function that a header of a folder declares is defined in that folder: a linker would accept a call upward, unseen by the includes
* each `x.c` or `x.h` that a comment or a README names exists, and the tests that SECURITY.md names
* each link of a page to another page, file or heading leads somewhere, and docs/README.md lists the pages beside it
* each folder of core and handlers has a README
* the files that call a sync operation are those that core/commit/README.md lists
* a wait with a deadline is of the monotonic clock: who steps the clock of the machine neither ends nor prolongs one
* a leaf type is one file and one line: no other file names it
* what a list of the code is for is in it, and where readers, tests and its fuzz target look for it (LISTS)
* a C file is laid out as .clang-format says (its long tables say otherwise themselves)
* a file of code begins with its licence (SPDX); the root's meson.build alone looks for libraries, since tools/build.sh reads it
"""

import functools
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Folder -> the folders whose headers it may include, besides its own; up the ladder. The longest
# prefix counts.
MAY_INCLUDE = {
    'core/base': [],
    'core/sandbox': ['core/base'],
    'core/io': ['core/base'],
    'core/remote/transport': ['core/base'],
    'core/remote/documents': ['core/base', 'core/io', 'core/remote/transport'],
    'core/remote/credentials': ['core/base', 'core/io', 'core/remote/transport', 'core/remote/documents'],
    'core/remote': ['core/base', 'core/io', 'core/remote/transport', 'core/remote/documents', 'core/remote/credentials'],
    'core/kv': ['core/base', 'core/io'],
    'core/codec': ['core/base'],
    'core/ocdbt': ['core/base', 'core/io', 'core/kv'],
    'core/dtype': ['core/base'],
    'core/zarr/meta': ['core/base', 'core/codec', 'core/dtype'],
    'core/zarr': ['core/base', 'core/io', 'core/kv', 'core/codec', 'core/dtype', 'core/zarr/meta'],
    'core/zarr/read_many': ['core/base', 'core/dtype', 'core/zarr/meta', 'core/zarr'],
    'core/zarr/write': ['core/base', 'core/dtype', 'core/zarr/meta', 'core/zarr'],
    'core/tree': ['core/base', 'core/dtype'],
    'core/step': [
        'core/base', 'core/io', 'core/kv', 'core/remote', 'core/ocdbt', 'core/dtype', 'core/zarr/meta', 'core/zarr',
        'core/zarr/write', 'core/tree'],
    'core/commit': ['core/base', 'core/io', 'core/kv', 'core/ocdbt', 'core/step'],
    'core/job': ['core/base', 'core/step', 'core/commit'],
    'handlers/format': [
        'core/base', 'core/io', 'core/dtype', 'core/zarr', 'core/tree', 'core/step'],
    'handlers/leaf': ['core/base', 'core/dtype', 'core/tree', 'core/step', 'handlers/format'],
    'handlers/plugin': ['core/base', 'core/step', 'handlers/format', 'handlers/leaf'],
    'handlers/transform': [
        'core/base', 'core/dtype', 'core/zarr', 'core/tree', 'core/step', 'handlers/format',
        'handlers/plugin'],
    'handlers/subtree': [
        'core/base', 'core/io', 'core/tree', 'core/step', 'handlers/format', 'handlers/leaf'],
    'handlers/options': [
        'core/base', 'core/sandbox', 'core/codec', 'core/step', 'core/job', 'handlers/leaf', 'handlers/plugin',
        'handlers/transform'],
    'handlers/draft': [
        'core/base', 'core/sandbox', 'core/io', 'core/remote', 'core/kv', 'core/dtype', 'core/zarr/meta', 'core/zarr',
        'core/zarr/write', 'core/tree', 'core/step', 'core/commit', 'core/job', 'handlers/format', 'handlers/options'],
    'handlers/plan': [
        'core/base', 'core/dtype', 'core/tree', 'core/step', 'handlers/plugin', 'handlers/leaf',
        'handlers/subtree', 'handlers/draft'],
    'handlers/commit': [
        'core/base', 'core/sandbox', 'core/io', 'core/remote', 'core/tree', 'core/step', 'core/commit', 'handlers/plugin',
        'handlers/leaf', 'handlers/draft', 'handlers/plan'],
    'handlers/job': [
        'core/base', 'core/io', 'core/remote', 'core/kv', 'core/zarr', 'core/zarr/write', 'core/tree', 'core/step',
        'core/commit', 'core/job', 'handlers/options', 'handlers/draft', 'handlers/plan', 'handlers/commit'],
    'handlers/namespace': [
        'core/base', 'core/sandbox', 'core/io', 'core/zarr', 'core/zarr/read_many', 'core/step', 'core/job', 'handlers/format',
        'handlers/plugin', 'handlers/leaf', 'handlers/subtree', 'handlers/options',
        'handlers/draft', 'handlers/plan', 'handlers/commit', 'handlers/job'],
    'fs': ['core/base', 'core/sandbox', 'core/io', 'core/job', 'handlers/options', 'handlers/namespace'],
    'tools/cli': ['core/base', 'core/io', 'core/sandbox', 'core/step', 'handlers/options', 'handlers/namespace'],
    'tools/job': ['core/base', 'core/job', 'tools/cli'],
    'tools/scan': ['core/base', 'core/codec', 'core/dtype', 'core/zarr'],
    'tools/select': [
        'core/base', 'handlers/format', 'handlers/leaf', 'handlers/subtree', 'handlers/namespace',
        'tools/cli', 'tools/job', 'tools/scan'],
    'tools/diff': ['core/base', 'core/io', 'core/step', 'handlers/leaf', 'handlers/namespace', 'tools/scan', 'tools/select'],
    'tools/convert': [
        'core/base', 'core/io', 'core/remote', 'core/dtype', 'core/zarr', 'core/zarr/write', 'core/tree', 'core/step',
        'core/commit', 'handlers/format', 'handlers/plugin', 'handlers/leaf', 'handlers/subtree', 'handlers/draft',
        'handlers/plan', 'handlers/commit', 'handlers/namespace', 'handlers/transform', 'tools/cli', 'tools/job',
        'tools/select'],
    'tools/verify': [
        'core/base', 'core/io', 'core/kv', 'core/ocdbt', 'core/zarr/meta', 'core/zarr', 'core/tree', 'core/step',
        'handlers/leaf', 'tools/scan', 'tools/select'],
    'tools/lib': [
        'core/base', 'core/dtype', 'core/zarr', 'core/zarr/read_many', 'core/zarr/write', 'core/tree', 'core/step', 'core/commit', 'handlers/format', 'handlers/leaf',
        'handlers/subtree', 'handlers/draft', 'handlers/namespace', 'tools/cli', 'tools/convert'],
    'tools/python': ['tools/lib'],
    'tools/commands': [
        'core/base', 'core/sandbox', 'core/io', 'core/remote', 'core/ocdbt', 'core/zarr/meta', 'core/zarr',
        'core/tree', 'core/step', 'core/commit', 'core/job', 'handlers/plugin', 'handlers/leaf', 'handlers/subtree',
        'handlers/draft', 'handlers/plan', 'handlers/namespace', 'fs', 'tools/cli', 'tools/job', 'tools/scan',
        'tools/select', 'tools/diff', 'tools/convert', 'tools/verify'],
    'handlers/plugin/examples': ['handlers/plugin'],
    'tests': ['core', 'handlers', 'fs', 'tools', 'tests'],
}
# Single includes that the table would refuse: file -> headers.
ALSO = {
    'tools/commands/cmd_mount.c': ['fs/fs_main.h'],      # the mount command's entry point
    'tests/unit/io/t_io_example.c': ['io_readme.inc'],   # the build extracts it from core/io/README.md
}

# Library header (regular expression) -> where it may be included: files, or folders ending in '/'.
DOORS = {
    r'liburing\.h': ['core/io/io_ring.c', 'core/io/command_ring.c'],
    r'zstd\w*\.h|zdict\.h': ['core/codec/codec_zstd.c', 'core/codec/codec_zstd.h', 'core/ocdbt/frame.c',
                              'tests/unit/codec/t_codec_zstd_in_place.c', 'tests/bench/'],
    r'(cjson/)?cJSON\w*\.h': ['core/base/json.c'],
    r'msgpack(/.*)?\.h': ['core/tree/tree_msgpack.c', 'core/tree/tree_msgpack_print.c'],
    r'Python\.h': ['tools/python/py_module.h'],
    r'curl(/.*)?\.h|curl/.*': ['core/remote/transport/', 'tests/'],
    r'openssl/.*': ['core/remote/credentials/', 'core/remote/dialects/'],
    r'expat\.h': ['core/remote/documents/s3_xml.c'],
    r'mpi\.h': ['core/job/peers_mpi.c'],
    r'fuse\w*(/.*)?\.h|fuse3/.*': ['fs/'],
    r'(isa-l|isa-l/.*|crc)\.h|isa-l/.*': ['core/base/crc32c.c'],
    r'blosc\w*\.h': ['core/codec/codec_blosc.c'],
    r'bzlib\.h': ['core/codec/'],
    r'zlib\.h': ['core/codec/', 'tools/convert/zip_data.c'],
    r'seccomp\.h': ['core/sandbox/system_calls.c'],
    r'pcre2(posix)?\.h': ['core/', 'handlers/'],
}

# Folders whose language is checked.
PLAIN = ['core', 'handlers', 'fs', 'tools', 'tests']
# In a message for people, a comment, a page or a test's text: (what must not be there, what is said instead).
NEGATION = (re.compile(r'(?<!there )(?<!There )\b([Ii]s|[Aa]re) no (?!longer|more|deeper)'), 'is not a')
PHRASES = [NEGATION, (re.compile(r'\b(is|are) none of\b'), 'is not one of'),
           (re.compile(r'(?<!\w)there is none\b'), 'does not exist'),
           (re.compile(r'\b(is|are) cut off\b'), 'is truncated'),
           (re.compile(r'\bBehind\b|\bbehind (it|them|its|the|a|an|one|another|others|that|which|everything|all)\b'), 'after')]
# In a comment or a page, where a few more words have a plain one.
COMMENT_PHRASES = [NEGATION, PHRASES[-1], (re.compile(r'\bof one thread\b'), 'not thread-safe'), (re.compile(r'Kept true'), 'Invariants'), (re.compile(r'\bnone of ours\b'), 'is not ours'),
                   (re.compile(r'\b(kept|put|left|moved) aside\b'), 'staged, or ignored'),
                   (re.compile(r'\b(told from|told apart)\b'), 'distinguished'),
                   (re.compile(r'\b(lanes?|errands?|ballots?|slurps?|spits?)\b'), 'worker, assignment, vote, read_file, write_file')]
# No comment begins with a relative word as its subject ("What is left over."), and no name does: a sentence has a noun for it. A
# question that ends in '?' may.
RELATIVE_SUBJECT = re.compile(r'/[*/]+ *(?:[\w.]+ - )?(What|Whatever|Who|Whoever|Whose|Whom|That)\b(?!.*\?[ */]*$)', re.I)
RELATIVE_SCRIPT_SUBJECT = re.compile(r'(?:# *|""")(What|Whatever|Who|Whoever|Whose|Whom|That)\b(?!.*\?(?:""")?$)', re.M)
# An identifier, or a part of one between underscores -> the word of the field.
RETIRED = {
    'aside': 'staged', 'ballot': 'vote', 'errand': 'assignment', 'facts': 'info', 'feed': 'entry', 'feeds': 'entries',
    'hear': 'receive', 'heard': 'received', 'joint': 'collective', 'kept': 'retained', 'lane': 'worker',
    'lanes': 'parallel_for', 'let_go': 'drop_behind', 'memo': 'cache', 'newfile': 'atomic_file', 'newstep': 'atomic_step',
    'peel': 'strip', 'press': 'encoder', 'settle': 'flush',
    'settled': 'flushed', 'slurp': 'read_file', 'spit': 'write_file', 'straight': 'scan', 'survey': 'leaf_table',
    'team': 'rank group', 'teams': 'rank groups', 'text_set': 'interner', 'told': 'reported',
}

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)


def module_of(path, modules):
    """The longest module that holds path, or None."""
    found = [m for m in modules if path == m or path.startswith(m + '/')]
    return max(found, key=len) if found else None


def without_comments(text):
    """The same lines with comments, strings and characters blanked out, so that braces count."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return token.sub(lambda m: re.sub(r'[^\n]', ' ', m.group()), text)


def check_includes(name, text):
    module = module_of(name, MAY_INCLUDE)
    if module is None:
        yield f'{name}: no folder of MAY_INCLUDE (tests/layers.py) has it; a new folder stands there with those that it may include'
        return
    allowed = MAY_INCLUDE[module] + [module]
    for quote, header in INCLUDE.findall(text):
        if quote == '<':
            for library, doors in DOORS.items():
                if re.fullmatch(library, header) and module != 'tests' and not any(
                        name == d or (d.endswith('/') and name.startswith(d)) for d in doors):
                    yield f'{name}: <{header}> may be included only in {", ".join(doors)} (DOORS of tests/layers.py)'
        elif header in ALSO.get(name, []):
            continue
        elif not (ROOT / header).is_file():
            yield f'{name}: includes "{header}", which does not exist; the path is that from the root'
        elif module != 'tests' and module_of(header, MAY_INCLUDE) not in allowed:
            yield (f'{name}: includes "{header}", and MAY_INCLUDE (tests/layers.py) lists for {module} only '
                   f'{", ".join(MAY_INCLUDE[module]) or "itself"}')


def functions(text):
    """(line, name, lines) of each function: a '{' at the start of a line up to its '}'."""
    start = None
    lines = without_comments(text).split('\n')
    for i, line in enumerate(lines):
        if line.startswith('{') and i and re.search(r'[)\w]\s*$', lines[i - 1]):
            start = i
        elif line.startswith('}') and start is not None:
            head = ' '.join(lines[max(0, start - 3):start])
            names = re.findall(r'(\w+)\s*\(', head)
            yield start + 1, names[-1] if names else '?', i - start + 1
            start = None


def check_built(names):
    """Every file of code is compiled, every unit test and fuzz target too: one that is not built passes for ever."""
    text = (ROOT / 'tests/unit/meson.build').read_text(encoding='utf-8')
    fuzz = (ROOT / 'tests/fuzz/meson.build').read_text(encoding='utf-8')
    code = ''.join(path.read_text(encoding='utf-8') for top in ('core', 'handlers', 'fs', 'tools')
                   for path in [*sorted((ROOT / top).rglob('meson.build')), ROOT / 'meson.build'])
    for name in names:
        base = name.rsplit('/', 1)[-1]
        if base.startswith('t_') and base.endswith('.c') and f"'{base[2:-2]}'" not in text:
            yield f'{name}: is not in tests/unit/meson.build'
        if base.startswith('fuzz_') and base.endswith('.c') and f"'{base[5:-2]}'" not in fuzz:
            yield f'{name}: is not in tests/fuzz/meson.build'
        if not name.startswith('tests/') and '/examples/' not in name and base.endswith('.c') and not re.search(rf"['/]{re.escape(base)}'", code):
            yield f'{name}: is in no meson.build, so it is not compiled'
        if name.startswith('tests/') and re.search(r'\b(system|popen)\s*\(', without_comments((ROOT / name).read_text())):
            yield f'{name}: runs a shell; tests/unit/lib/tmp_dir.h copies, counts and removes files'


def check_ladder():
    """MAY_INCLUDE goes up the ladder: what a folder may include stands before it."""
    below = set()
    for folder, allowed in MAY_INCLUDE.items():
        if folder != 'tests':
            yield from (f'MAY_INCLUDE: {folder} may include {a}, which is not below it' for a in allowed
                        if a not in below)
        below.add(folder)


# The head of a function: it begins a line, and the layout (.clang-format) puts the '{' of its body at the start of another one.
HEAD = r'^(?!static\b|typedef\b|return\b|#)[A-Za-z_][\w \t*]*?[ *](\w+)\([^;{}]*\)'
DECLARED = re.compile(HEAD + r'[^;{}]*;', re.M)
DEFINED = re.compile(HEAD + r'\s*\n\{', re.M)
# The program declares what a plugin defines.
OF_PLUGINS = {'pytreefs_plugin'}


def check_declarations(texts):
    """texts: file -> text. Where a function is called from below its folder, a callback goes up instead of a declaration going down."""
    defined = {}
    for name, text in texts.items():
        if name.endswith('.c'):
            for function in DEFINED.findall(text):
                defined.setdefault(function, set()).add(name.rpartition('/')[0])
    declared = [(name, function) for name, text in texts.items() if name.endswith('.h') for function in DECLARED.findall(text)]
    for name, function in declared:
        folder, homes = name.rpartition('/')[0], defined.get(function, set())
        if homes and folder not in homes and function not in OF_PLUGINS:
            yield f'{name}: declares {function}(), which {", ".join(sorted(homes))} defines: declare it there, or call it through a pointer'
    if len(declared) < 1000 or len({f for _, f in declared} & set(defined)) < 0.9 * len({f for _, f in declared}):
        yield f'tests/layers.py: found {len(declared)} declarations, and {len(defined)} functions; does the layout hide others?'


def check_length(name, text):
    n = text.count('\n')
    if n > MAX_FILE_LINES:
        yield f'{name}: {n} lines, at most {MAX_FILE_LINES}'


def check_sizes(name, text):
    yield from check_length(name, text)
    for line, function, length in functions(text):
        if length > MAX_FUNCTION_LINES:
            yield f'{name}:{line}: {function}() has {length} lines, at most {MAX_FUNCTION_LINES}'
    for i, line in enumerate(without_comments(text).split('\n')):
        if re.search(r'\bgoto\b', line):
            yield f'{name}:{i + 1}: goto; the cleanup attributes of core/base/mem.h release locals'


TOKEN = re.compile(r'(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<string>"(?:\\.|[^"\\\n])*")|\'(?:\\.|[^\'\\\n])*\'|(?P<name>[A-Za-z_]\w*)', re.S)


def is_negation(name):
    """Whether the name of a test says "is no" for "is not"."""
    return re.search('_(is|are)_no_', name) and not re.search('there_(is|are)_no|no_(longer|more)', name)


@functools.cache
def faults_of_identifier(word):
    faults = [f"the word for '{part}' is {RETIRED[part]}" for part in RETIRED if f'_{part}_' in f'_{word.lower()}_']
    if is_negation(word):
        faults.append('say is_not')
    if re.match('(what|who|whoever|whose|that)_', word):
        faults.append('name the thing that it is about')
    return faults


def check_words(name, text):
    if module_of(name, PLAIN) is None:
        return
    for token in TOKEN.finditer(text):
        faults = [f"'{token['name']}': {why}" for why in faults_of_identifier(token['name'])] if token['name'] else []
        comment = re.sub(r'\s*\n\s*\**\s*', ' ', token['comment'] or '')
        if found := RELATIVE_SUBJECT.match(comment):
            faults.append(f"the comment begins with '{found[1]}': name the thing that it is about")
        words = comment or token['string'] or ''
        faults += [f"'{found[0]}': say {instead}" for phrase, instead in (COMMENT_PHRASES if comment else PHRASES)
                   if words and (found := phrase.search(words))]
        if faults:
            line = text.count('\n', 0, token.start()) + 1
            yield from (f'{name}:{line}: {why}' for why in faults)


SCRIPT_TEXT = re.compile(r'(?P<comment>#[^\n]*)|(?P<string>\'\'\'.*?\'\'\'|""".*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')', re.S)


def check_prose():
    """Pages, and what programs in Python say: tests, the package, tools."""
    for name in pages():
        text = re.sub(r'```.*?```', lambda m: re.sub(r'[^\n]', ' ', m.group()), (ROOT / name).read_text(encoding='utf-8'), flags=re.S)
        for phrase, instead in COMMENT_PHRASES + PHRASES[1:-1]:
            yield from (f"{name}:{text.count(chr(10), 0, found.start()) + 1}: '{found[0]}': say {instead}"
                        for found in phrase.finditer(text))
    for path in sorted([*(ROOT / 'tests').rglob('*.py'), *(ROOT / 'tools').rglob('*.py')]):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding='utf-8')
        yield from check_length(name, text)
        for token in SCRIPT_TEXT.finditer(text) if name != 'tests/layers.py' else ():
            at = f'{name}:{text.count(chr(10), 0, token.start()) + 1}'
            yield from (f"{at}: '{found[0]}': say {instead}" for phrase, instead in PHRASES if (found := phrase.search(token.group())))
            if found := RELATIVE_SCRIPT_SUBJECT.match(token.group()):
                yield f"{at}: the comment begins with '{found[1]}': name the thing that it is about"
        yield from (f"{name}: '{found}': say is_not" for found in re.findall(r'\bdef (test_\w+)', text) if is_negation(found))


def check_unique(names):
    seen = {}
    for name in names:
        base = name.rsplit('/', 1)[-1]
        if base in seen:
            yield f'{name}: the same file name as {seen[base]}'
        seen[base] = name


NAMED = re.compile(r'(?<![\w.*/<>-])((?:[\w-]+/)*\w[\w-]*\.[ch])\b(?![\w(/*])')
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*', re.S)
# Files that a text tells the reader to make; so are those with NAME or FILE in their name.
EXAMPLES = {'mine.c'}


def check_named(name, text, exists):
    """Files that a comment or a page names exist. A name with folders may leave out the first ones."""
    parts = [(0, text)] if name.endswith('.md') else [(m.start(), m.group()) for m in COMMENT.finditer(text)]
    for at, part in parts:
        for m in NAMED.finditer(part):
            if m.group(1) not in exists and m.group(1) not in EXAMPLES and not re.search('NAME|FILE', m.group(1)):
                line = text.count('\n', 0, at + m.start()) + 1
                yield f'{name}:{line}: names {m.group(1)}, which does not exist'


def check_all_named(names):
    exists = set()
    for name in names:
        parts = name.split('/')
        exists.update('/'.join(parts[i:]) for i in range(len(parts)))
    for name in names + list(pages()):
        yield from check_named(name, (ROOT / name).read_text(encoding='utf-8'), exists)


PROMISED = re.compile(r'`((?:tests/)?[\w/]*\btest_\w+\.py|(?:tests/)?\w*fuzz_\w+\.c|tests/[\w/.]+)`')


def check_promises():
    """A test that SECURITY.md names as what shows a promise is there."""
    text = (ROOT / 'SECURITY.md').read_text(encoding='utf-8')
    found = PROMISED.findall(text)
    if len(found) < 20:
        yield f'SECURITY.md: names {len(found)} tests'
    for name in found:
        if not (ROOT / name).exists() and not list((ROOT / 'tests').glob(f'*/{name}')):
            yield f"SECURITY.md: names '{name}', which does not exist"


LINK = re.compile(r'\]\(([^()\s]+)\)')


def anchors(text):
    """The anchors of headings in links: their words, in lower case, joined by hyphens."""
    headings = re.findall(r'^#+ (.*)', re.sub(r'```.*?```', '', text, flags=re.S), re.M)
    return {re.sub(r'[^\w\- ]', '', heading).lower().replace(' ', '-') for heading in headings}


def check_links():
    """The links between pages, and the index of docs/."""
    for name in pages():
        text = re.sub(r'```.*?```|`[^`\n]*`', '', (ROOT / name).read_text(encoding='utf-8'), flags=re.S)
        for target in LINK.findall(text):
            path, _, anchor = target.partition('#')
            at = ((ROOT / name).parent / path).resolve() if path else ROOT / name
            if re.match(r'https?:', target):
                continue
            if not at.exists():
                yield f"{name}: links to '{target}', which does not exist"
            elif anchor and anchor not in anchors(at.read_text(encoding='utf-8')):
                yield f"{name}: links to '{target}', which has no such heading"
    index = LINK.findall((ROOT / 'docs/README.md').read_text(encoding='utf-8'))
    yield from (f'docs/README.md: does not list {path.name}' for path in sorted((ROOT / 'docs').glob('*.md'))
                if path.name not in index and path.name != 'README.md')


def check_readmes():
    for folder in MAY_INCLUDE:
        if folder.startswith(('core/', 'handlers/')) and folder.count('/') == 1:
            if not (ROOT / folder / 'README.md').is_file():
                yield f'{folder}: has no README.md'


SYNC = re.compile(r'\b(?:io_file_sync|io_file_finish|io_sync_parents|io_write_file|IO_SYNC_DIR|IO_SYNC|fsync|fdatasync|syncfs)\s*[(,]')
SYNC_PAGE = 'core/commit/README.md'


def check_syncs(names):
    """"Where we sync" is the truth: core/io implements syncs, and every other caller is on the list."""
    page = (ROOT / SYNC_PAGE).read_text(encoding='utf-8')
    section = page.split('## Where we sync\n', 1)[1].split('\n## ', 1)[0]
    listed = set(re.findall(r'^\| `([^`]+)` \|', section, re.M))
    calling = {name for name in names
               if name.startswith(('core/', 'handlers/', 'tools/')) and not name.startswith('core/io/') and
               SYNC.search(without_comments((ROOT / name).read_text(encoding='utf-8')))}
    yield from (f'{name}: syncs, and "Where we sync" in {SYNC_PAGE} does not list it' for name in sorted(calling - listed))
    yield from (f'{SYNC_PAGE}: lists {name}, which does not sync' for name in sorted(listed - calling))


def check_waits(names):
    """A condition that is waited for until a deadline is made by clock_cond_init(); nothing else is waited for so."""
    for name in set(names) - {'tests/lib/clock.c'}:     # defines that function
        text = without_comments((ROOT / name).read_text(encoding='utf-8'))
        if re.search(r'\b(sem_timedwait|pthread_mutex_timedlock|pthread_rwlock_timed\w+|mtx_timedlock|cnd_timedwait)\s*\(', text):
            yield f'{name}: waits by the clock of the day'
        if re.search(r'\bpthread_cond_timedwait\(', text) and ('clock_cond_init(' not in text or 'CLOCK_REALTIME' in text):
            yield f'{name}: waits for a condition that clock_cond_init() did not make'


LEAF_TABLE = 'handlers/leaf/leaf.c'
# Type -> who may name it besides its own file and the table: a safetensors file has arrays.
NAMES_LEAF_TYPE = {'array': {'handlers/plan/draft_leaf.c'}}


def check_leaf_types(names):
    """A leaf type is one file and one line of the table: nobody else knows one from another."""
    table = re.findall(r'^\ttype\((\w+)\)', (ROOT / LEAF_TABLE).read_text(encoding='utf-8'), re.M)
    if not table:
        yield f'{LEAF_TABLE}: has no table of leaf types'
    for name in names:
        if name.startswith('tests/') or name == LEAF_TABLE:
            continue
        text = without_comments((ROOT / name).read_text(encoding='utf-8'))
        for found in set(re.findall(r'&leaf_(\w+)', text)) & set(table):
            if name not in NAMES_LEAF_TYPE.get(found, ()):
                yield f'{name}: names leaf type {found}; ask its members or flags (handlers/leaf/leaf_type.h)'
    yield from (f'{LEAF_TABLE}: there is no leaf_{t}.c beside it' for t in table
                if not (ROOT / LEAF_TABLE).with_name(f'leaf_{t}.c').is_file())


# A list in the code: its name, its file and a line of it; the folder of what it lists, and how that is defined there; each page
# that has all of its names, perhaps with the place on it, and how they look there.
LISTS = [
    ('CODECS', 'core/codec/codec_impl.h', r'^\tcodec\((\w+)\)', 'core/codec', r'^const struct codec_ops codec_(\w+) = ', {
        'tests/fuzz/fuzz_codec.c': r'\\"(?:id|name)\\":\\"{}\\"',
        'tests/unit/codec/t_codec.c': r'\\"(?:id|name)\\":\\"{}\\"',
        'tests/interop/test_codecs.py': r'"{}"',
        'core/codec/README.md (first sentence)': r'\A[^.]*`{}`',
        'docs/reading.md': r'`{}`',
    }),
    ('COMMANDS', 'tools/cli/cmd.h', r'^\tcommand\((\w+)\)', 'tools/commands', r'^const struct cmd cmd_(\w+) = ', {
        'docs/commands.md': r'(?m)^\|[^|]*`{}`',
    }),
    ('LEAF_TYPES', LEAF_TABLE, r'^\ttype\((\w+)\)', 'handlers/leaf', r'^const struct leaf_type leaf_(\w+) = ', {}),
    ('upload_state', 'core/remote/upload/step_upload.h', r'^\t(UPLOAD_\w+),', 'core/remote/upload', r'^\t(UPLOAD_\w+),',
     {'docs/protocols.md': '`{}`', 'tests/model/bucket.pml': '(?m)^{}:'}),
    ('attempt_round', 'handlers/job/job_driver.h', r'\b(ATTEMPT_\w+_ROUND)', 'handlers/job', r'^\t(ATTEMPT_\w+_ROUND),',
     {'docs/protocols.md': '`{}`', 'tests/model/job.pml': '(?m)^{}:'}),
    ('formats', 'handlers/format/format.c', r'&format_(\w+)\b', 'handlers/format', r'^const struct format_ops format_(\w+) = ', {}),
]


def check_lists():
    """Every definition is in the list of its kind, and every name of a list is in the tests and on the pages that should have it."""
    for table, home, line, folder, definition, where in LISTS:
        found = re.findall(line, (ROOT / home).read_text(encoding='utf-8'), re.M)
        if not found:
            yield f'{home}: has no list {table}'
        for path in sorted((ROOT / folder).glob('*.c')):
            yield from (f"{path.relative_to(ROOT)}: defines '{name}', which is not in the list {table} of {home}, so nothing finds it"
                        for name in re.findall(definition, path.read_text(encoding='utf-8'), re.M) if name not in found)
        for page, look in where.items():
            text = (ROOT / page.split(' ')[0]).read_text(encoding='utf-8')
            yield from (f"{page}: '{name}' is missing, which the list {table} of {home} has" for name in found
                        if not re.search(look.format(name), text))


def check_test_lists():
    """Each line of tests/long.txt names a test, and has a reason; each file of tests/mount has a row in tests/README.md."""
    page = (ROOT / 'tests/README.md').read_text(encoding='utf-8')
    yield from (f"tests/README.md: the table of mount/ has no row of '{path.name}'" for path in sorted((ROOT / 'tests/mount').glob('test_*.py'))
                if f'](mount/{path.name})' not in page)
    for line in re.findall(r'^[^#\n].*', (ROOT / 'tests/long.txt').read_text(encoding='utf-8'), re.M):
        name, _, why = line.partition('  # ')
        file, _, function = re.sub(r'\[.*|\*$', '', name).partition('::')
        if not why or not (path := ROOT / 'tests' / file).exists() or (function and f'def {function}(' not in path.read_text(encoding='utf-8')):
            yield f"tests/long.txt: '{line}' is not the name of a test, two spaces, # and a reason"


LICENCE = 'SPDX-License-Identifier: Apache-2.0'


def check_licences(names):
    scripts = [p for p in ROOT.rglob('*') if p.suffix in ('.py', '.build') and p.is_file()]
    scripts = [p.relative_to(ROOT).as_posix() for p in scripts
               if not any(part.startswith(('.', 'build')) for part in p.relative_to(ROOT).parts)]
    for name in names + sorted(scripts):
        head = (ROOT / name).read_text(encoding='utf-8').split('\n', 2)[:2]
        if not any(LICENCE in line for line in head):
            yield f'{name}: does not begin with "{LICENCE}"'


LOOKS_FOR = re.compile(r'(?<!declare_)\b(dependency|find_library|has_header|check_header)\s*\(\s*([^\s,)]*)')


def check_libraries():
    """build_found() of tools/build.sh sees what the root's meson.build names in quotes, and configures again when it changes."""
    for path in sorted(ROOT.rglob('meson.build')):
        name = path.relative_to(ROOT).as_posix()
        if any(part.startswith(('.', 'build')) for part in path.relative_to(ROOT).parts):
            continue
        code = re.sub(r'#[^\n]*', '', path.read_text(encoding='utf-8'))
        for m in LOOKS_FOR.finditer(code):
            at = f'{name}:{code.count(chr(10), 0, m.start()) + 1}: {m[1]}({m[2]})'
            if name != 'meson.build':
                yield f'{at}: look for libraries in the meson.build of the root, which tools/build.sh reads'
            elif m[1] not in ('dependency', 'find_library') or not re.fullmatch(r"'[^']+'", m[2]):
                yield f"{at}: write dependency('NAME') or find_library('NAME'), which tools/build.sh finds"


def check_format(names):
    """By the clang-format of Debian 12; another version lays out a few lines differently."""
    program = shutil.which('clang-format-14') or shutil.which('clang-format')
    version = subprocess.run([program, '--version'], capture_output=True, text=True).stdout if program else ''
    if ' version 14.' not in version:
        print(f'layers: the layout is not checked: clang-format 14 is wanted, here is {version.strip() or "none"}')
        return
    found = subprocess.run([program, '--dry-run', *names], capture_output=True, text=True, cwd=ROOT).stderr
    first = {}
    for name, line in re.findall(r'^(\S+?):(\d+):\d+: warning: code should be clang-formatted', found, re.M):
        first.setdefault(name, line)
    yield from (f'{name}:{line}: not as .clang-format says, here first; {pathlib.Path(program).name} -i {name}'
                for name, line in first.items())


def pages():
    for path in sorted(ROOT.rglob('*.md')):
        parts = path.relative_to(ROOT).parts
        if not any(part.startswith(('.', 'build')) for part in parts):
            yield path.relative_to(ROOT).as_posix()


def sources():
    for top in sorted({m.split('/')[0] for m in MAY_INCLUDE}):
        for path in sorted((ROOT / top).rglob('*.[ch]')):
            if not any(part.startswith('.') for part in path.relative_to(ROOT).parts):
                yield path.relative_to(ROOT).as_posix()


def main():
    names = list(sources())
    faults = list(check_unique(names + [p.relative_to(ROOT).as_posix() for p in sorted((ROOT / 'tests').rglob('test_*.py'))]))
    for name in names:
        text = (ROOT / name).read_text(encoding='utf-8')
        faults += check_includes(name, text)
        faults += check_sizes(name, text)
        faults += check_words(name, text)
    code = {name: without_comments((ROOT / name).read_text(encoding='utf-8')) for name in names if not name.startswith('tests/')}
    for check in (check_prose, check_ladder, check_promises, check_links, check_readmes, check_lists, check_test_lists, check_libraries):
        faults += check()
    for check in (check_built, check_all_named, check_syncs, check_waits, check_leaf_types, check_licences, check_format):
        faults += check(names)
    faults += check_declarations(code)
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f'layers: {len(names)} files, {len(faults)} faults')
    return 1 if faults or not names else 0


if __name__ == '__main__':
    sys.exit(main())
