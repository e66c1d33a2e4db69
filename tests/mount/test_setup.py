# SPDX-License-Identifier: Apache-2.0
"""From sources to an installed program: what is configured again, what is installed where, what can be pasted from the pages."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from lib import tour
from lib.pairs import LONG

TOP = pathlib.Path(__file__).resolve().parents[2]
OPTIONAL = ('cmocka', 'mpi')

pytestmark = pytest.mark.timeout(1200)


# As little as the function needs: meson takes three seconds for ours, each time.
SMALL = {'meson.build': """project('small')
if dependency('cmocka', method: 'pkg-config', required: false).found()
  custom_target('t_name_view', output: 't', command: 'true')
endif
if find_program('mpicc', required: false).found()
  custom_target('pytreefs-mpi', output: 'm', command: 'true')
endif
""", 'meson_options.txt': "option('poison', type: 'boolean', value: false)\n"}


def configure(sources, build, env, options=''):
    """Return what the function says."""
    script = f'. {TOP}/tools/build.sh && build_configure {sources} {build} {options}'
    r = subprocess.run(['bash', '-c', script], env=env, capture_output=True, text=True, timeout=600)
    assert r.returncode == 0, r.stdout + r.stderr
    return r.stdout


def built_in(build):
    """The names of what ninja would build."""
    return {target['name'] for target in json.loads((build / 'meson-info/intro-targets.json').read_text())}


def without_optional(tmp_path):
    """The environment of a machine that has neither cmocka nor MPI."""
    found = subprocess.run(['pkg-config', '--variable=pc_path', 'pkg-config'], capture_output=True, text=True, check=True)
    some = tmp_path / 'pkgconfig'
    some.mkdir()
    for d in reversed(found.stdout.strip().split(':')):
        for file in pathlib.Path(d).glob('*.pc') if os.path.isdir(d) else ():
            if not any(name in file.name for name in OPTIONAL):
                (some / file.name).unlink(missing_ok=True)
                (some / file.name).symlink_to(file)
    # meson would ask these next.
    programs = tmp_path / 'bin'
    programs.mkdir()
    for d in os.environ['PATH'].split(':'):
        for name in os.listdir(d) if os.path.isdir(d) else ():
            if not re.match('mpi|cmake', name) and not os.path.lexists(programs / name):
                (programs / name).symlink_to(os.path.join(os.path.abspath(d), name))
    return dict(os.environ, PKG_CONFIG_LIBDIR=str(some), PATH=str(programs))


@pytest.mark.parametrize('sources', ['small', 'ours'])
def test_a_build_is_configured_again_when_something_has_changed(tmp_path, sources):
    """quickstart configures build/ before tests/run installs cmocka and MPI, tests/sanitize one with options: all call build_configure."""
    build, quick = tmp_path / 'build', tmp_path / 'quick'
    quick.mkdir()
    # Half of what the function takes is that meson says its version.
    (quick / 'meson').write_text(f'#!/bin/sh\n[ "$*" = --version ] && exec echo 1\nexec {shutil.which("meson")} "$@"\n')
    (quick / 'meson').chmod(0o755)
    bare, env = ({**e, 'PATH': f'{quick}:{e["PATH"]}'} for e in (without_optional(tmp_path), os.environ))
    top = TOP if sources == 'ours' else tmp_path / 'small'
    if sources == 'small':
        top.mkdir()
        for name, text in SMALL.items():
            (top / name).write_text(text)
    optional = {'t_name_view'} | ({'pytreefs-mpi'} if shutil.which('mpicc') else set())
    assert 'setting up' in configure(top, build, bare, '-Dpoison=true')
    assert not {'t_name_view', 'pytreefs-mpi'} & built_in(build)
    for options in ('', '-Dpoison=true'):
        assert configure(top, build, bare, options) == '', 'nothing has changed'
    said = configure(top, build, env)
    assert 'again' in said and 'cmocka 1' in said and 'mpi' in said, said
    assert optional <= built_in(build) and option(build, 'poison') is True
    assert 'options -Dpoison=false' in configure(top, build, env, '-Dpoison=false')
    assert configure(top, build, env) == '' and option(build, 'poison') is False
    # As `meson setup` by hand leaves it, which records nothing.
    (build / 'found-at-setup').unlink()
    assert re.fullmatch(r'configuring \S+ again: it was set up by hand, .*\n', configure(top, build, bare))
    assert not {'t_name_view', 'pytreefs-mpi'} & built_in(build), 'what was removed is not taken from the cache'
    assert configure(top, build, bare) == '' and option(build, 'poison') is False


def option(build, name):
    return next(o['value'] for o in json.loads((build / 'meson-info/intro-buildoptions.json').read_text()) if o['name'] == name)


def test_every_script_configures_by_the_same_function():
    """A script that calls `meson setup` by itself would keep what it found once."""
    found = subprocess.run(['git', 'grep', '-lE', r'^[^#]*meson setup ("|\$|--rec)'], cwd=TOP, capture_output=True, text=True)
    if found.returncode > 1:
        pytest.skip('these sources are not a git checkout')
    assert found.stdout.split() == ['tools/build.sh']


# ---- installed ----

@pytest.mark.serial
def test_uninstall(build, tmp_path):
    """As docs/recipes.md says: it removes each file and link that was installed."""
    subprocess.run(['meson', 'install', '-C', build, '--no-rebuild', '--quiet', '--destdir', tmp_path], check=True, capture_output=True)
    files = {p for p in tmp_path.rglob('*') if p.is_symlink() or p.is_file()}
    assert {'pytreefs', 'pytreefs-url', 'mount.pytreefs', 'pytreefs.1'} <= {p.name for p in files}
    subprocess.run(['ninja', '-C', build, 'uninstall'], check=True, capture_output=True)
    assert not [p for p in files if os.path.lexists(p) and p.suffix != '.pyc']


def test_mount_finds_the_helpers_of_a_default_install(build, tmp_path):
    """mount(8) looks in /sbin, whatever the prefix: a default `meson install` puts the helpers there."""
    subprocess.run(['meson', 'install', '-C', build, '--no-rebuild', '--quiet', '--destdir', tmp_path], check=True,
                   capture_output=True)
    sbin = tmp_path / ('usr/sbin' if os.path.islink('/sbin') else 'sbin')
    for helper in ('mount.pytreefs', 'mount.fuse.pytreefs'):
        to = os.readlink(sbin / helper)
        assert to == '/usr/local/bin/pytreefs' and os.access(tmp_path / to[1:], os.X_OK), (helper, to)


def test_the_sample_is_installed_where_help_says(build, tmp_path):
    """`cp -r SAMPLE ckpts`, the first line of most examples, names a directory of checkpoints that `meson install` made."""
    subprocess.run(['meson', 'install', '-C', build, '--no-rebuild', '--quiet', '--destdir', tmp_path], check=True,
                   capture_output=True)
    program = tmp_path / 'usr/local/bin/pytreefs'
    text = subprocess.run([program, 'ls', '--help'], capture_output=True, text=True, check=True).stdout
    sample = re.search(r'cp -r (\S+) ckpts', text)[1]
    r = subprocess.run([program, 'verify', f'{tmp_path}{sample}'], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    assert subprocess.run(['diff', '-r', f'{tmp_path}{sample}', TOP / 'tests/data/sample'], capture_output=True).returncode == 0


def test_where_helpers_go(tmp_path):
    """--prefix=$HOME/.local must not need root; an option names another place. Nothing optional is needed for it."""
    build, env = tmp_path / 'build', without_optional(tmp_path)
    again = []
    for options, wanted in HELPERS if LONG else HELPERS[::2]:
        r = subprocess.run(['meson', 'setup', *again, build, TOP, *options], env=env, capture_output=True, text=True)
        assert r.returncode == 0, r.stdout
        assert re.search(r'helpers of mount\(8\) *: (\S+)', r.stdout)[1] == wanted, r.stdout
        again = ['--reconfigure']
    assert not {'t_name_view', 'pytreefs-mpi'} & built_in(build)


HELPERS = [
    (['--prefix', '/home/me/.local'], 'sbin'),
    # As the test of a default installation.
    (['--prefix', '/usr'], '/usr/sbin' if os.path.islink('/sbin') else '/sbin'),
    (['-Dmount_helper_dir=/x/y'], '/x/y'),
]


# ---- lines to paste: README, the tour, pages ----

@pytest.fixture
def pasted(build, tmp_path):
    """Where a tour is pasted: a directory with the sources' tests, and a shell that finds program and numpy."""
    (tmp_path / 'tests').symlink_to(TOP / 'tests')
    yield tmp_path, dict(os.environ, PATH=f'{build}:{os.path.dirname(sys.executable)}:{os.environ["PATH"]}')
    for mnt in tmp_path.glob('**/mnt'):
        subprocess.run(['umount', '-l', mnt], capture_output=True)


TOURS = {'README.md': ('Mount', 'mnt'), 'docs/tour.md': ('A tour', 'tour/mnt')}


@pytest.mark.parametrize('pages', [['docs/tour.md'], ['README.md', 'docs/tour.md']], ids=' '.join)
def test_the_tours(pasted, pages):
    """
    Pasted line by line after quickstart, they print what the pages say that they print, one after the other in one directory as well:
    the second is in a directory of its own.
    """
    where, env = pasted
    for page in pages:
        title, mnt = TOURS[page]
        assert not tour.faults(TOP / page, title, where, env)
        assert not list((where / mnt).iterdir()), 'it ends with its mount unmounted'


@pytest.mark.parametrize('page', ['views', 'writing'])
def test_the_examples_of_a_page(pasted, page):
    """docs/views.md and docs/writing.md, which `pytreefs help` prints: every command gives what is written below it."""
    where, env = pasted
    if page == 'views':
        shutil.copytree(TOP / 'tests/data/sample', where / 'ckpts')
    title = (TOP / f'docs/{page}.md').read_text().splitlines()[0].removeprefix('# ')
    assert not tour.faults(TOP / f'docs/{page}.md', title, where, env)
    assert not list((where / 'mnt').iterdir()), 'it ends with its mount unmounted'


def test_a_tour_that_lies_is_found(pasted):
    """A wrong word, a failing command, and a tour that is not there."""
    where, env = pasted
    page = where / 'page.md'
    page.write_text('# T\n```console\n$ echo a b\na\nb\n$ echo a b c\na ... c\n$ echo a\nb\n$ false\n$ cat <<E\n> x\n> E\nx\n```\n# U\n')
    found = tour.faults(page, 'T', where, env)
    assert [fault.splitlines()[0] for fault in found] == ['$ echo a', '$ false']
    assert tour.faults(page, 'U', where, env)


# ---- the container ----

def test_the_container_installs_what_packages_sh_knows():
    """Each package that Containerfile names is one of the build's or ours, and its binaries are those that debian/ makes."""
    text = (TOP / 'Containerfile').read_text().replace('\\\n', ' ')
    known = set(re.findall(r'[\w.+-]+', (TOP / 'tools/packages.sh').read_text()))
    made = set(re.findall(r'^Package: (\S+)', (TOP / 'debian/control').read_text(), re.M))
    named = [word for words in re.findall(r'apt-get install ([^&|\n]*)', text) for word in words.split() if not word.startswith('-')]
    assert named
    for word in named:
        if word.startswith('/'):
            assert re.fullmatch(r'/tmp/(.*)_\*\.deb', word)[1] in made, word
        else:
            assert word in known, f'{word} is not in tools/packages.sh'
    # apt-get build-dep installs the same packages there as quickstart here, besides debhelper.
    depends = re.search(r'^Build-Depends:\n((?: .*\n)+)', (TOP / 'debian/control').read_text(), re.M)[1]
    needed = {word.split()[0] for word in depends.replace(',', '').splitlines()}
    assert needed <= known | {'debhelper-compat'}, needed - known
    # Its stages copy what one before has made, and its entry point is a program of the package.
    stages = re.findall(r'^FROM \S+ AS (\S+)', text, re.M)
    assert set(re.findall(r'--from=(\S+)', text)) <= set(stages)
    assert json.loads(re.search(r'^ENTRYPOINT (.*)$', text, re.M)[1]) == ['pytreefs']
    for script in re.findall(r'^RUN (.*)$', text, re.M):
        subprocess.run(['sh', '-n'], input=script, text=True, check=True)
        for tool in re.findall(r'tools/\w+', script):
            assert os.access(TOP / tool, os.X_OK), tool
