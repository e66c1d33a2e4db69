# SPDX-License-Identifier: Apache-2.0
"""The ordinary program has no library for URLs: another one beside it replaces it when an argument has one."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

from lib import compare, mounts, servers

SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data/sample'
STEP = '1500/state/step.json'
MISSING = "without the program 'pytreefs-url', which must be beside this one"


@pytest.fixture
def web(tmp_path):
    with servers.nginx(tmp_path / 'nginx', SAMPLE.parent) as url:
        yield f'{url}/sample'


@pytest.fixture
def alone(program, tmp_path):
    """A copy of the ordinary program, without the other one."""
    (tmp_path / 'alone').mkdir()
    return shutil.copy(program, tmp_path / 'alone/pytreefs')


def output_of(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=240, **more)


def test_only_the_other_program_has_libraries_for_urls(program):
    """A function that uses libcurl, in code that both have, would make each command load it again."""
    needed = {}
    for file in (program, program + '-url'):
        needed[file] = set(re.findall(r'\(NEEDED\).*\[lib(\w+)', output_of('readelf', '--dynamic', '--wide', file).stdout))
    assert needed[program + '-url'] - needed[program] == {'curl', 'crypto', 'expat'}
    assert not needed[program] - needed[program + '-url']


def test_the_process_keeps_its_name(mount, web):
    """For ps, killall and messages it is what was started."""
    m = mount(f'{web}/1500')
    process = pathlib.Path(f'/proc/{m.pid}')
    assert os.readlink(process / 'exe') == m.program + '-url'
    assert (process / 'comm').read_text() == 'pytreefs\n'
    assert (process / 'cmdline').read_bytes().split(b'\0')[0] == m.program.encode()
    local = mount(SAMPLE / '1500')
    assert os.readlink(f'/proc/{local.pid}/exe') == m.program


def test_it_may_be_started_by_a_link_or_a_copy(program, web, tmp_path):
    (tmp_path / 'bin').mkdir()
    (tmp_path / 'bin/link').symlink_to(program)
    for name in ('pytreefs', 'pytreefs-url'):
        shutil.copy(pathlib.Path(program).with_name(name), tmp_path / 'bin')
    for how in (['bin/link'], ['bin/pytreefs'], ['bin/pytreefs-url'], ['bash', '-c', 'exec -a other "$0" "$@"', 'bin/pytreefs']):
        r = output_of(*how, 'cat', f'{web}/{STEP}', cwd=tmp_path)
        assert (r.returncode, r.stdout, r.stderr) == (0, '1500\n', ''), how
    r = output_of('pytreefs', 'cat', f'{web}/{STEP}', env={**os.environ, 'PATH': f'{tmp_path}/bin:{os.environ["PATH"]}'})
    assert r.stdout == '1500\n'


def test_mount_8_mounts_a_url(program, web, tmp_path):
    """As fstab does. Its helper is a link to the program, in a directory that only this command sees."""
    (tmp_path / 'sbin').mkdir()
    (tmp_path / 'm').mkdir()
    (tmp_path / 'sbin/mount.pytreefs').symlink_to(program)
    script = '''
    mount --bind sbin "$(realpath /sbin)" || exit 77
    mount -t pytreefs -o "ro,sandbox=require,log=$PWD/log" "$0/1500" m || exit 1
    cat m/state/step.json && umount m
    '''
    r = mounts.own_mounts(script, web, cwd=tmp_path)
    assert (r.returncode, r.stdout) == (0, '1500\n'), r.stderr


def test_a_path_that_looks_like_a_url_is_a_path(program, alone, tmp_path):
    (tmp_path / 'a:').mkdir()
    (tmp_path / 'a:/b').symlink_to(SAMPLE)
    for which in (program, alone):
        for path in (f'{tmp_path}/a://b', './a://b', 'a://b'):
            r = output_of(which, 'cat', f'{path}/{STEP}', cwd=tmp_path)
            # A scheme has two letters or more.
            assert (r.returncode, r.stdout, r.stderr) == (0, '1500\n', ''), path


def test_options_may_contain_a_url(alone, tmp_path):
    r = output_of(alone, 'cat', '-o', 'endpoint=http://127.0.0.1:1', SAMPLE / STEP)
    assert (r.returncode, r.stdout, r.stderr) == (0, '1500\n', '')


@pytest.mark.parametrize('url', ['http://127.0.0.1:1/c/1500', 'https://127.0.0.1:1/c/1500', 's3://bucket/c/1500', 'gs://bucket/c/1500'])
def test_without_the_other_program_a_url_is_refused(alone, tmp_path, url):
    for words in (['ls', url], ['cat', f'{url}/state/step.json'], ['convert', SAMPLE / '1500', url], ['mount', url, tmp_path / 'm']):
        (tmp_path / 'm').mkdir(exist_ok=True)
        r = output_of(alone, *words)
        wrong_target = words[0] == 'convert' and url.startswith('http')
        assert r.returncode == 1 and (MISSING in r.stderr or wrong_target), (words, r.stderr)
        assert r.stderr.count('\n') == 1 and not os.path.ismount(tmp_path / 'm')


def test_a_mount_that_looks_at_a_url_is_confined(mount, web):
    """Replacing the process comes before its confinement, which forbids to execute anything."""
    m = mount(f'{web}/1500', 'sandbox=require')
    status = pathlib.Path(f'/proc/{m.pid}/status').read_text()
    assert 'NoNewPrivs:\t1' in status and 'Seccomp:\t2' in status
    assert compare.contents(m.path) == compare.contents(mount(SAMPLE / '1500').path)
