# SPDX-License-Identifier: Apache-2.0
"""libpytreefs.so as it is installed: what is visible, its binary interface, and its examples."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
LIB = TOP / 'tools/lib'
HEADER = LIB / 'pytreefs.h'
STRICT = ['-std=c11', '-Wall', '-Wextra', '-Werror', '-pedantic']


@pytest.fixture(scope='module')
def installed(build, tmp_path_factory):
    """The environment of a program that is built and run with the installed library, and the library."""
    dest = tmp_path_factory.mktemp('installed')
    subprocess.run(['meson', 'install', '-C', build, '--no-rebuild', '--quiet', '--destdir', dest], check=True,
                   capture_output=True)
    pc = next(dest.rglob('pytreefs.pc'))
    library = next(p for p in dest.rglob('libpytreefs.so') if p.parent == pc.parent.parent)
    env = dict(os.environ, PKG_CONFIG_PATH=str(pc.parent), PKG_CONFIG_SYSROOT_DIR=str(dest),
               LD_LIBRARY_PATH=str(library.parent))
    # A program with a library that is built with a sanitizer has it, too: it must be loaded first.
    code = (build / 'pytreefs').read_bytes()
    env['SANITIZER'] = next((f'-fsanitize={kind}' for kind in ('address', 'thread') if f'__{kind[0]}san_init'.encode() in code), '')
    return env, library


def compile_c(env, source, program, *more):
    flags = subprocess.run(['pkg-config', '--cflags', '--libs', 'pytreefs'], env=env, capture_output=True, text=True)
    assert flags.returncode == 0, flags.stderr
    r = subprocess.run(['cc', *more, *env['SANITIZER'].split(), str(source), '-o', str(program), *flags.stdout.split()], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    return program


# ---- the binary interface ----

def without_comments():
    return re.sub(r'/\*.*?\*/', '', HEADER.read_text(encoding='utf-8'), flags=re.S)


def structs():
    """Struct -> its members, as the header has them."""
    found = re.findall(r'^struct (\w+) \{\n(.*?)^\};', without_comments(), flags=re.S | re.M)
    members = r'(?:\(\*(\w+)\)\([^;]*\)|(\w+))(?:\[\d+\])?(?=[,;])'
    return {name: [a or b for a, b in re.findall(members, body)] for name, body in found}


def interface(env, library, tmp_path):
    """Every symbol, every constant, and the size and places of every struct: one a line."""
    r = subprocess.run(['nm', '-D', '--defined-only', library], capture_output=True, text=True, check=True)
    lines = [f'symbol {line.split()[2]}' for line in r.stdout.splitlines() if line.split()[1] != 'A']
    printed = [f'printf("constant {c} %d\\n", (int){c});'
               for enum in re.findall(r'^enum \w+ \{(.*?)\}', without_comments(), flags=re.S | re.M)
               for c in re.findall(r'\bPYTREEFS_\w+', enum)]
    for name, members in structs().items():
        printed.append(f'printf("struct {name} %zu\\n", sizeof(struct {name}));')
        printed += [f'printf("member {name}.{m} %zu\\n", offsetof(struct {name}, {m}));' for m in members]
    source = tmp_path / 'interface.c'
    source.write_text('#include <stdio.h>\n#include <pytreefs.h>\nint main(void)\n{\n' + '\n'.join(printed) +
                      '\nreturn pytreefs_version()[0] == 0;\n}\n')
    r = subprocess.run([compile_c(env, source, tmp_path / 'interface')], env=env, capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    return sorted(lines + r.stdout.splitlines())


def test_the_binary_interface_is_what_was_agreed(installed, tmp_path):
    """tools/lib/pytreefs.abi lists it for 64-bit machines. A line that goes or changes breaks programs: that takes
    another soname. To add lines is fine; what a caller fills in has `reserved` for it."""
    env, library = installed
    agreed = [line for line in (LIB / 'pytreefs.abi').read_text(encoding='utf-8').splitlines() if line[:1] != '#']
    found = interface(env, library, tmp_path)
    gone, new = sorted(set(agreed) - set(found)), sorted(set(found) - set(agreed))
    assert not gone and not new, '\n'.join(['not there:', *gone, 'not in the list:', *new])
    assert len([s for s in agreed if s.startswith('symbol')]) >= 35


def test_nothing_else_is_visible(installed):
    _, library = installed
    r = subprocess.run(['readelf', '-d', library], capture_output=True, text=True, check=True)
    assert 'soname: [libpytreefs.so.0]' in r.stdout
    # A program that cannot mount needs neither of them.
    assert not re.search(r'NEEDED.*(fuse|mpi)', r.stdout), r.stdout
    symbols = subprocess.run(['nm', '-D', '--defined-only', library], capture_output=True, text=True, check=True).stdout
    names = [line.split()[2].split('@')[0] for line in symbols.splitlines()]
    assert [n for n in names if not n.startswith('pytreefs_')] == ['PYTREEFS_0']


def test_the_header_is_strict_c(installed, tmp_path):
    env, _ = installed
    source = tmp_path / 'strict.c'
    source.write_text('#include <pytreefs.h>\nint main(void)\n{\n\treturn pytreefs_version()[0] == 0;\n}\n')
    compile_c(env, source, tmp_path / 'strict', *STRICT)
    if shutil.which('c++'):
        compile_c(env, source, tmp_path / 'strict++', '-x', 'c++', '-std=c++11', '-Wall', '-Wextra', '-Werror')


def test_the_headers_of_the_library_and_of_plugins_go_together(installed, tmp_path):
    """A program that uses the library may be a plugin, too: no name means something else in the other header."""
    env, _ = installed
    for first, second in (('<pytreefs.h>', '"handlers/plugin/leaf_plugin.h"'), ('"handlers/plugin/leaf_plugin.h"', '<pytreefs.h>')):
        source = tmp_path / 'both.c'
        source.write_text(f'#include {first}\n#include {second}\nint main(void)\n{{\n\treturn pytreefs_version()[0] == 0;\n}}\n')
        compile_c(env, source, tmp_path / 'both', *STRICT, f'-I{TOP}')
    struct = r'^struct (\w+)(?: \{|;)'
    plugin = re.findall(struct, (TOP / 'handlers/plugin/leaf_plugin.h').read_text(encoding='utf-8'), flags=re.M)
    library = re.findall(struct, (LIB / 'pytreefs.h').read_text(encoding='utf-8'), flags=re.M)
    assert 'pytreefs_file' in library and 'pytreefs_plugin' in plugin
    assert not set(library) & set(plugin)


# ---- the examples ----

def test_the_example_that_reads(installed, tmp_path):
    env, _ = installed
    program = compile_c(env, LIB / 'examples/leaves.c', tmp_path / 'leaves', *STRICT)
    r = subprocess.run([program, TOP / 'tests/data/sample/1000'], env=env, capture_output=True, text=True)
    assert r.returncode == 0 and r.stderr == '', r.stderr
    assert re.search(r'^state/params/embed/table\.npy +bfloat16\[128,32\]$', r.stdout, flags=re.M)
    assert re.search(r'^state/learning_rate\.json +float64\[\] 0\.0005$', r.stdout, flags=re.M)
    assert r.stdout.endswith('74 arrays and numbers, 208373 bytes\n')
    r = subprocess.run([program, '/none/none'], env=env, capture_output=True, text=True)
    assert r.returncode == 1 and "'/none/none' does not exist" in r.stderr


def test_the_example_that_writes(installed, tmp_path, program):
    env, _ = installed
    example = compile_c(env, LIB / 'examples/copy.c', tmp_path / 'copy', *STRICT)
    root = tmp_path / 'ckpts'
    root.mkdir()
    r = subprocess.run([example, root / '1'], env=env, capture_output=True, text=True)
    assert r.returncode == 0 and r.stdout == f'{root}/1: as it was written\n', r.stderr
    assert sorted(os.listdir(root)) == ['1']
    r = subprocess.run([program, 'verify', root / '1'], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    r = subprocess.run([program, 'cat', root / '1/default/run_name.txt'], capture_output=True, text=True)
    assert r.stdout == 'first'
    r = subprocess.run([example, root / '1'], env=env, capture_output=True, text=True)
    assert r.returncode == 1 and 'is there already' in r.stderr
