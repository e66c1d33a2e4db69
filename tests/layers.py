#!/usr/bin/env python3
"""The rules of the source tree that a compiler does not check; fails the test run on the first breach.

* an include points down the ladder (MAY_INCLUDE), and names its file by the full path from the root
* a library has one door (DOORS)
* file names are unique
* a file has at most 600 lines, a function at most 70, and nothing jumps (`goto`)
* the drawing in core/README.md is the tree (drawing.py)
"""

import pathlib
import re
import sys

import drawing

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Module -> the modules whose headers it may include, besides its own. Longest prefix counts.
MAY_INCLUDE = {
    'core/base': [],
    'core/io': ['core/base'],
    'core/kv': ['core/base', 'core/io'],
    'core/codec': ['core/base'],
    'core/ocdbt': ['core/base', 'core/io', 'core/kv'],
    'core/zarr': ['core/base', 'core/kv', 'core/codec', 'core/io'],
    'core/tree': ['core/base', 'core/kv', 'core/io'],
    'core/step': ['core/base', 'core/io', 'core/kv', 'core/ocdbt', 'core/zarr', 'core/tree'],
    'handlers': ['core/base', 'core/io', 'core/kv', 'core/codec', 'core/zarr', 'core/tree', 'core/step'],
    'fs': ['core/base', 'core/io', 'core/tree', 'core/step', 'handlers'],
    'tools': ['core', 'handlers'],
    'tests': ['core', 'handlers', 'fs', 'tools', 'tests'],
}
# Single includes that the table would refuse: file -> headers.
ALSO = {
    'tools/cmd_mount.c': ['fs/fs_main.h'],      # the mount command's entry point
}

# Library header (regular expression) -> where it may be included: files, or folders ending in '/'.
DOORS = {
    r'liburing\.h': ['core/io/io_ring.c'],
    r'zstd\w*\.h|zdict\.h': ['core/codec/codec_zstd.c', 'core/ocdbt/frame.c', 'tests/bench/'],
    r'(cjson/)?cJSON\w*\.h': ['core/base/json.c'],
    r'msgpack(/.*)?\.h': ['core/tree/tree_msgpack.c', 'core/tree/tree_msgpack_print.c'],
    r'mpi\.h': ['core/step/peers_mpi.c'],
    r'fuse\w*(/.*)?\.h|fuse3/.*': ['fs/'],
    r'(isa-l|isa-l/.*|crc)\.h|isa-l/.*': ['core/base/crc32c.c'],
    r'blosc\w*\.h': ['core/codec/codec_blosc.c'],
    r'bzlib\.h': ['core/codec/'],
    r'zlib\.h': ['core/codec/', 'tools/zip_data.c'],
    r'pcre2(posix)?\.h': ['core/', 'handlers/'],
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
        yield f'{name}: in no module of MAY_INCLUDE'
        return
    allowed = MAY_INCLUDE[module] + [module]
    for quote, header in INCLUDE.findall(text):
        if quote == '<':
            for library, doors in DOORS.items():
                if re.fullmatch(library, header) and module != 'tests' and not any(
                        name == d or (d.endswith('/') and name.startswith(d)) for d in doors):
                    yield f'{name}: <{header}> has its door at {", ".join(doors)}'
        elif header in ALSO.get(name, []):
            continue
        elif not (ROOT / header).is_file():
            yield f'{name}: "{header}" is no path from the root'
        elif not any(header.startswith(a + '/') for a in allowed):
            yield f'{name}: includes "{header}", which is not below {module} on the ladder'


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


def check_sizes(name, text):
    n = text.count('\n')
    if n > MAX_FILE_LINES:
        yield f'{name}: {n} lines, at most {MAX_FILE_LINES}'
    for line, function, length in functions(text):
        if length > MAX_FUNCTION_LINES:
            yield f'{name}:{line}: {function}() has {length} lines, at most {MAX_FUNCTION_LINES}'
    for i, line in enumerate(without_comments(text).split('\n')):
        if re.search(r'\bgoto\b', line):
            yield f'{name}:{i + 1}: goto'


def check_unique(names):
    seen = {}
    for name in names:
        base = name.rsplit('/', 1)[-1]
        if base in seen:
            yield f'{name}: the same file name as {seen[base]}'
        seen[base] = name


def sources():
    for top in sorted({m.split('/')[0] for m in MAY_INCLUDE}):
        for path in sorted((ROOT / top).rglob('*.[ch]')):
            if not any(part.startswith('.') for part in path.relative_to(ROOT).parts):
                yield path.relative_to(ROOT).as_posix()


def main():
    names = list(sources())
    faults = list(check_unique(names))
    for name in names:
        text = (ROOT / name).read_text(encoding='utf-8')
        faults += check_includes(name, text)
        faults += check_sizes(name, text)
    faults += drawing.faults()
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f'layers: {len(names)} files, {len(faults)} faults')
    return 1 if faults or not names else 0


if __name__ == '__main__':
    sys.exit(main())
