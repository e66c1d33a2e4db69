# SPDX-License-Identifier: Apache-2.0
"""The products of the option tables: --help, examples that work when pasted, manual pages, completions."""

import functools
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ['PYTREEFS_BUILD'])


def listed():
    """The commands that --help lists; none before the build, when the `build` fixture stops the run."""
    if not (BUILD / 'pytreefs').exists():
        return []
    out = subprocess.run([BUILD / 'pytreefs', '--help'], capture_output=True, text=True).stdout
    return re.findall(r'^  (\w+)', out.partition('commands:')[2], re.M)


COMMANDS = listed()


def test_there_are_commands(build):
    assert len(COMMANDS) >= 12 and {'mount', 'verify', 'diff', 'stats', 'completion'} <= set(COMMANDS)


@pytest.mark.parametrize('command', COMMANDS)
def test_help_fits_a_screen(run, command):
    for text in (run(command, '--help').stdout, run('help', command).stdout):
        lines = text.splitlines()
        # As a terminal of 80 columns breaks them.
        shown = sum(max(1, -(-len(line) // 80)) for line in lines)
        assert shown <= 24, f'{shown} lines of 80 columns'
        assert max(map(len, lines)) <= 100, max(lines, key=len)
        assert text.startswith(f'usage: pytreefs {command} ') and 'example:\n' in text


@functools.cache
def installed_sample(build):
    """Where the sample is installed, and what is installed there."""
    r = subprocess.run(['meson', 'introspect', '--installed', build], capture_output=True, text=True, check=True)
    found = [(to, source) for source, to in json.loads(r.stdout).items() if to.endswith('/share/pytreefs/sample')]
    assert len(found) == 1, r.stdout
    return found[0]


@pytest.mark.parametrize('command', COMMANDS)
def test_the_example_works_when_pasted(run, build, tmp_path, command):
    """In an empty directory, with nothing of the sources: the sample is the installed one. Only /mnt and /tmp are another place."""
    example = run(command, '--help').stdout.partition('example:')[2].strip()
    lines = [line.strip() for line in example.splitlines()]
    assert f'pytreefs {command}' in lines[-1] and 'tests/' not in example
    to, source = installed_sample(build)
    assert (' ckpts' in lines[-1]) == (lines[0] == f'cp -r {to} ckpts'), example
    mnt, tmp, cwd = tmp_path / 'mnt', tmp_path / 'tmp', tmp_path / 'cwd'
    for d in (mnt, tmp, cwd):
        d.mkdir()
    here = re.sub(r'(?<=\s)/(mnt|tmp)\b', lambda at: str({'mnt': mnt, 'tmp': tmp}[at[1]]), '\n'.join(['set -e', *lines]))
    here = here.replace(f' {to} ', f' {source} ')      # which may be in /tmp
    env = dict(os.environ, PATH=f'{build}:{os.environ["PATH"]}', TMPDIR=str(tmp))
    paste = {'cwd': cwd, 'env': env, 'capture_output': True, 'text': True, 'timeout': 240}
    if command == 'umount':
        run('mount', TOP / 'tests/data/sample', mnt)
    try:
        r = subprocess.run(['bash', '-c', here], **paste)
        assert r.returncode == 0, f'{example}\n{r.stderr}'
        assert not os.path.ismount(mnt), 'it leaves a mount behind'
        assert bool(os.listdir(tmp)) == (' /tmp/' in example)
        assert set(os.listdir(cwd)) <= {'ckpts', 'rules.json'}
    finally:
        if os.path.ismount(mnt):
            subprocess.run(['fusermount3', '-u', mnt], check=True)


def test_help_on_help_is_that_of_the_whole(run):
    for word in ('help', '--help', '-h'):
        assert run('help', word).stdout == run('--help').stdout


def test_help_on_nothing_that_there_is(run):
    r = run('help', 'nosuchcommand', ok=False)
    assert r.returncode == 2 and 'nosuchcommand' in r.stderr
    assert run('help', '--man=nosuch', ok=False).returncode == 2


@pytest.mark.parametrize('typed,meant', [('stat', 'stats'), ('unmount', 'umount'), ('verfiy', 'verify'), ('hepl', 'help'),
                                         ('--versoin', '--version'), ('expotr', 'export'), ('frobnicate', None)])
def test_a_mistyped_command(run, typed, meant):
    r = run(typed, ok=False)
    assert r.returncode == 2 and f"'{typed}' is not a command" in r.stderr and not r.stdout
    assert f"did you mean '{meant}'?" in r.stderr if meant else '`pytreefs --help` lists them' in r.stderr


@pytest.mark.parametrize('command,typed,meant', [
    ('stats', '--jsno', '--json'), ('export', '--formt=npz', '--format'), ('ls', '--hlep', '--help'),
    ('convert', '--dtype=float16', '-o dtype=float16'), ('ls', '--frobnicate', None), ('ls', '-Z', None)])
def test_a_mistyped_option(run, command, typed, meant):
    r = run(command, typed, 'x', 'y', ok=False)
    assert r.returncode == 2 and f"unknown option '{typed}'" in r.stderr
    assert ('did you mean' in r.stderr) == bool(meant) and (not meant or f"did you mean '{meant}'?" in r.stderr)


def test_the_version(run):
    wanted = re.search(r"version: '([^']+)'", (TOP / 'meson.build').read_text())[1]
    for word in ('--version', '-V', 'version'):
        assert run(word).stdout == f'pytreefs {wanted}\n'
    assert '--version' in run('--help').stdout


def names_of_options(run):
    return re.findall(r'^  (\w+)=', run('help', 'options').stdout, re.M)


def test_the_manual_page_has_everything(run, build):
    page = run('help', '--man').stdout.replace('\\-', '-')
    assert page.startswith('.TH PYTREEFS 1')
    for command in COMMANDS:
        assert f'.SS pytreefs {command} ' in page
        for option in re.findall(r'(--\w[\w-]*)', run(command, '--help').stdout):
            assert option in page, (command, option)
    for name in names_of_options(run):
        assert f'\n.B {name}' in page, name
    assert (build / 'pytreefs.1').read_text() == run('help', '--man').stdout
    assert run('help', '--man=mount.pytreefs').stdout.startswith('.TH MOUNT.PYTREEFS 8')


@pytest.mark.parametrize('page', ['views', 'writing', 'filesystems', 'transforms', 'errors'])
def test_pages_are_in_the_program(run, page):
    """`pytreefs help views` is docs/views.md, for who has installed the program only; lines fit a wide terminal or are tables."""
    text = run('help', page).stdout
    assert text == (TOP / f'docs/{page}.md').read_text() and len(text) > 2000
    assert page in run('--help').stdout.partition('Pages')[2]
    assert f'help {page}' in run('help', '--man').stdout


@pytest.mark.parametrize('page', ['pytreefs', 'mount.pytreefs'])
def test_the_manual_tells_of_what_is_in_no_table(run, page):
    text = run('help', f'--man={page}').stdout.replace('\\-', '-').replace('\\&', '')
    for word in ('latest', '.pytreefs/log', '.pytreefs/stats', '.pytreefs/metrics', '.pytreefs/config', '.pytreefs/version', '.pytreefs/stored',
                 'PYTREEFS_OPTIONS', 'ro', 'allow_other', 'default_permissions'):
        assert f'\n.B {word}\n' in text, word
    assert 'as numpy slices' not in text
    statuses = text.partition('.SH EXIT STATUS')[2].partition('.SH')[0]
    assert re.findall(r'^\.B (\d+)$', statuses, re.M) == (['0', '1', '2'] if page == 'pytreefs' else ['0', '1', '32'])
    assert ('\n.B diff\n' in statuses) == (page == 'pytreefs')


def test_the_manual_says_what_a_command_has_found_with_status_1(run):
    """Those that end with it beside an error; mount and umount pass on that another program has failed."""
    statuses = run('help', '--man').stdout.partition('.SH EXIT STATUS')[2].partition('.SH')[0]
    said = re.findall(r'^\.B ([a-z]+)$', statuses, re.M)
    for path in (TOP / 'tools/commands').glob('cmd_*.c'):
        text = path.read_text()
        if path.name != 'cmd_mount.c' and re.search(r'EXIT_FOUND|selection_end', text):
            for command in re.findall(r'^const struct cmd cmd_(\w+) =', text, re.M):
                assert command in said, f'{path.name} returns EXIT_FOUND, and its struct cmd has no .found'


@pytest.mark.skipif(not shutil.which('groff'), reason='no groff is installed')
@pytest.mark.parametrize('page', ['pytreefs.1', 'mount.pytreefs.8'])
def test_the_manual_page_is_without_a_warning(build, page):
    r = subprocess.run(['groff', '-man', '-ww', '-z', build / page], capture_output=True, text=True)
    assert r.returncode == 0 and r.stderr == ''


def test_all_of_it_is_installed(build):
    r = subprocess.run(['meson', 'introspect', '--installed', build], capture_output=True, text=True, check=True)
    to = list(json.loads(r.stdout).values())
    for end in ('bin/pytreefs', 'man/man1/pytreefs.1', 'man/man8/mount.pytreefs.8',
                'bash-completion/completions/pytreefs.bash', 'zsh/site-functions/_pytreefs',
                'fish/vendor_completions.d/pytreefs.fish'):
        assert any(path.endswith(end) for path in to), f'{end} is not in {to}'


# ---- completion ----

def complete(build, *words):
    """Return bash's completions for the last word, split as readline splits."""
    cut = [part for w in words[:-1] for part in re.findall(r'[=:]|[^=:]+', w)]
    cut += re.findall(r'[=:]|[^=:]+', words[-1]) or ['']
    script = f'''
source {build}/pytreefs.bash
complete -p pytreefs >&2 || exit 9
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_pytreefs
printf '%s\\n' "${{COMPREPLY[@]}}"'''
    r = subprocess.run(['bash', '-c', script, 'bash', *cut], capture_output=True, text=True, cwd=TOP, timeout=240)
    assert r.returncode == 0 and r.stderr.strip() == 'complete -F _pytreefs pytreefs', r.stderr
    return [line for line in r.stdout.splitlines() if line]


def test_bash_completes_commands(build):
    assert set(COMMANDS) <= set(complete(build, 'pytreefs', ''))
    assert complete(build, 'pytreefs', 'ver') == ['verify']


@pytest.mark.parametrize('command', COMMANDS)
def test_bash_completes_the_options_of_a_command(run, build, command):
    offered = complete(build, 'pytreefs', command, '-')
    told = re.findall(r'^  (?:-\w, )?\s*(--[\w-]+)', run(command, '--help').stdout, re.M)
    assert told and set(told) <= set(offered), (told, offered)


@pytest.mark.parametrize('words,want', [
    (['verify', '--lev'], ['--level']),
    (['verify', '--level', ''], ['1', '2', '3']),
    (['verify', '--level='], ['1', '2', '3']),
    (['verify', '-l', '2'], ['2']),
    (['completion', ''], ['bash', 'zsh', 'fish']),
    (['export', '--format', ''], ['npy', 'npz', 'safetensors', 'zarr']),
    (['dump', ''], ['manifest', 'btreenode', 'versionnode', 'zarr', 'tree']),
    (['dump', 'tree', 'tests/data/sam'], ['tests/data/sample']),
    (['mount', '-o', 'ocd'], ['ocdbt=']),
    (['mount', '-o', 'ocdbt='], ['on', 'off']),
    (['mount', '-o', 'zarr=3'], ['3']),
    (['mount', '-o', 'zarr=3,ocd'], ['3,ocdbt=']),
    (['mount', '-o', 'zarr=3,ocdbt=of'], ['off']),
    (['ls', 'tests/data/sam'], ['tests/data/sample']),
    (['help', 'v'], ['views', 'verify']),
    (['help', 'p'], ['patterns']),
])
def test_bash_completes_what_is_begun(build, words, want):
    assert complete(build, 'pytreefs', *words) == want


@pytest.mark.parametrize('shell', ['bash', 'zsh', 'fish'])
def test_the_scripts_are_printed_and_parse(run, shell):
    text = run('completion', shell).stdout
    assert all(c in text for c in COMMANDS)
    pages = run('--help').stdout.partition('Pages, by `pytreefs help NAME`: ')[2].strip().rstrip('.').split(', ')
    assert len(pages) >= 4 and ' '.join(['options', 'patterns', *pages]) in text
    if shutil.which(shell):
        r = subprocess.run([shell, '-n'], input=text, capture_output=True, text=True)
        assert r.returncode == 0, r.stderr


def test_an_unknown_shell_is_refused(run):
    assert run('completion', 'tcsh', ok=False).returncode == 2
