# SPDX-License-Identifier: Apache-2.0
"""Secrets for a web server: headers of http_headers=FILE, and logins of netrc. They reach the server of SOURCE, and nothing else."""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from lib import compare, package, servers

SAMPLE = pathlib.Path(__file__).resolve().parent.parent / 'data/sample'
STEP = SAMPLE / '1500'
LEAF = 'state/params/embed/table.npy'
SECRET = 'hunter2-5f1c'
LOGIN = 'Basic ' + base64.b64encode(f'me:{SECRET}'.encode()).decode()
WAYS = {'headers': f'Authorization: Bearer {SECRET}\n# of the model\nX-Api-Key:  k {SECRET} \r\n',
        'netrc': f'machine 127.0.0.1 login me password {SECRET}\n'}


def private(path, text):
    path.write_text(text)
    path.chmod(0o600)
    return path


class Asks:
    """A guard that refuses what has not the secrets; `got` has the headers of what was asked for."""

    def __init__(self, way='headers', secret=SECRET):
        self.way, self.secret, self.got, self.before = way, secret, [], None

    def __call__(self, handler):
        said = handler.headers
        self.got.append((handler.path, said))
        knows = said.get('Authorization') == LOGIN if self.way == 'netrc' else \
            said.get('Authorization') == f'Bearer {self.secret}' and said.get('X-Api-Key') == f'k {self.secret}'
        if not knows:
            handler._head(401, 0)
            return True
        return bool(self.before and self.before(handler))


@pytest.fixture(params=WAYS)
def way(request, tmp_path, monkeypatch):
    """The options for the secret of one way; without HOME, as in a service."""
    file = private(tmp_path / 'secrets', WAYS[request.param])
    monkeypatch.setenv('NETRC', str(file) if request.param == 'netrc' else '/none')
    return request.param, () if request.param == 'netrc' else (f'http_headers={file}',)


def words(options):
    return [word for option in options for word in ('-o', option)]


def python(program, code, *args):
    return subprocess.run([sys.executable, '-c', f'import pytreefs, sys\n{code}', *map(str, args)], env=package.environment(program),
                          capture_output=True, text=True, check=False)


LOADS = '''
options = {'http_headers': sys.argv[2]} if len(sys.argv) > 2 else {}
with pytreefs.open(sys.argv[1], **options) as ck:
    print(ck['state/params/embed/table'][...].tobytes().hex())
    assert pytreefs.load(sys.argv[1], **options).keys() == ck.keys()
assert not pytreefs.diff(sys.argv[1], sys.argv[1], **options)['differences'] and pytreefs.verify(sys.argv[1], **options)['errors'] == 0
from pytreefs._fsspec import FileSystem
assert FileSystem(skip_instance_cache=True, **options).cat_file(f'pytreefs://{sys.argv[1]}/state/step.json')
with pytreefs.mount(sys.argv[1], **options) as path:
    assert open(f'{path}/state/step.json').read()
'''


@pytest.mark.option('http_headers')
def test_every_front_end_has_them(run, mount, program, tmp_path, way):
    """Mount, commands, library and package read what refuses others, and show no part of the secret."""
    kind, options = way
    asks, seen = Asks(kind), []
    with servers.faulty(STEP, guard=asks) as url:
        for command in (['ls', '-l'], ['tree'], ['info', '--json'], ['verify'], ['stats'], ['convert'], ['export', '--format', 'npz'], ['explain', '--spec']):
            out = {'convert': [tmp_path / 'copy'], 'export': [tmp_path / 'out']}.get(command[0], [])
            where = url + {'export': '/state', 'explain': f'/{LEAF}'}.get(command[0], '')
            r = run(*command, '-o', 'trace=all', *words(options), where, *out, text=False)
            seen += [r.stdout, r.stderr]
        assert run('cat', *words(options), f'{url}/{LEAF}', text=False).stdout == (mount(STEP) / LEAF).read_bytes()
        assert run('diff', *words(options), url, STEP).returncode == run('diff', tmp_path / 'copy', STEP).returncode == 0
        m = mount(url, 'trace=all', *options, allow_errors=True)
        assert compare.contents(m.path) == compare.contents(mount(STEP).path)
        seen += [(m / '.pytreefs' / name).read_bytes() for name in os.listdir(m / '.pytreefs') if (m / '.pytreefs' / name).is_file()]
        pids = subprocess.run(['pgrep', '-f', str(m.path)], capture_output=True, text=True, check=False).stdout.split()
        assert pids
        seen += [pathlib.Path(f'/proc/{pid}/cmdline').read_bytes() for pid in pids] + [pathlib.Path('/proc/self/mountinfo').read_bytes()]
        seen += [line.encode() for line in m.log_lines()]
        r = python(program, LOADS, url, *(option.partition('=')[2] for option in options))
        assert r.returncode == 0, r.stderr
        assert bytes.fromhex(r.stdout) in (m / LEAF).read_bytes()
        refused = run('ls', *words(['trace=all']), url, ok=False, env=dict(os.environ, NETRC='/none'))
        assert 'status 401' in refused.stderr and 'http_headers=' in refused.stderr
        seen += [refused.stderr.encode(), r.stderr.encode()]
    hidden = [SECRET, LOGIN, base64.b64encode(f'me:{SECRET}'.encode()).decode()]
    assert any(b'http ' in text for text in seen)
    assert not [text for text in seen for secret in hidden if secret.encode() in text]


@pytest.mark.parametrize('elsewhere', ['port', 'name'])
def test_a_redirect_to_another_server_takes_nothing_along(run, way, elsewhere):
    """It is followed, with the range, but without any header or login. One to the same server has them."""
    kind, options = way
    asks, other = Asks(kind), []
    with servers.faulty(STEP, guard=lambda h: other.append(h.headers)) as there, servers.faulty(STEP, guard=asks) as url:
        if elsewhere == 'name':
            there = there.replace('127.0.0.1', 'localhost')

        def moved(handler):
            if '/d/' in handler.path:
                handler._head(302, 0, Location=there + handler.path)
            elif 'moved' not in handler.path and handler.path.endswith('_METADATA'):
                handler._head(307, 0, Location='/moved' + handler.path)
            else:
                handler.path = handler.path.removeprefix('/moved')
                return False
            return True
        asks.before = moved
        assert run('cat', *words(options), f'{url}/{LEAF}', text=False).stdout == run('cat', STEP / LEAF, text=False).stdout
    assert other and all(h['Range'] for h in other)
    assert not [h for h in other if SECRET in str(h) or h['Authorization'] or h['X-Api-Key']], other
    assert any('moved' in path for path, _ in asks.got)


def test_a_redirect_from_https_to_http(run, tmp_path, way):
    kind, options = way
    asks, other = Asks(kind), []
    cert = servers.certificate(tmp_path)
    with servers.faulty(STEP, guard=lambda h: other.append(h.headers)) as there, servers.faulty(STEP, guard=asks, tls=cert) as url:
        asks.before = lambda h: '/d/' in h.path and (h._head(302, 0, Location=there + h.path) or True)
        r = run('cat', *words(options), f'{url}/{LEAF}', ok=False, env=dict(os.environ, SSL_CERT_FILE=str(cert[0])))
    assert 'a redirect leads from https to http' in r.stderr and not other, r.stderr


def test_redirects_without_an_end(run, way):
    """Five are followed, and no failure of one is taken for one that passes."""
    kind, options = way
    asks = Asks(kind)
    asks.before = lambda h: '/d/' in h.path and (h._head(302, 0, Location=f'{h.path}x') or True)
    with servers.faulty(STEP, guard=asks) as url:
        r = run('cat', *words(options), f'{url}/{LEAF}', ok=False)
    assert 'status 302: too many redirects' in r.stderr
    assert max(path.count('x') for path, _ in asks.got if '/d/' in path) == 5 + min(path.count('x') for path, _ in asks.got if '/d/' in path)


def test_an_index_cannot_name_another_server(run, tmp_path, way):
    kind, options = way
    asks, other = Asks(kind), []
    model = tmp_path / 'model'
    run('export', '--format', 'safetensors', STEP / 'state', tmp_path / 'model.safetensors')
    with servers.faulty(tmp_path, guard=lambda h: other.append(h.headers)) as there, servers.faulty(model, guard=asks) as url:
        for name in (f'{there}/model.safetensors', f'//{there.partition("//")[2]}/model.safetensors', '../model.safetensors'):
            shutil.rmtree(model, ignore_errors=True)
            model.mkdir()
            (model / 'model.safetensors.index.json').write_text(json.dumps({'weight_map': {'params.embed.table': name}}))
            run('cat', *words(options), f'{url}/params/embed/table.npy', ok=False, text=False)
        (tmp_path / 'model.safetensors').rename(model / 'x.safetensors')
        assert run('cat', *words(options), f'{url}/x.safetensors/params/embed/table.npy', text=False).stdout
    assert asks.got and not other


def test_two_servers(run, tmp_path):
    """`diff` has one -o for both."""
    file = private(tmp_path / 'h', WAYS['headers'])
    asks, other = Asks(), []
    with servers.faulty(STEP, guard=lambda h: other.append(h.headers)) as there, servers.faulty(STEP, guard=asks) as url:
        r = run('diff', '-o', f'http_headers={file}', url, there, ok=False)
        assert r.returncode == 2 and 'is for one server' in r.stderr and not other
        assert run('diff', '-o', f'http_headers={file}', url, f'{url}/', ok=False).returncode == 0


def test_the_cache_on_disk_does_not_go_around_the_server(run, tmp_path, way):
    """It gives nothing that one caller has fetched to another one whom the server refuses: each asks the server first."""
    kind, options = way
    asks = Asks(kind)
    cache = f'cache_dir={tmp_path}/cache'
    with servers.faulty(STEP, guard=asks) as url:
        want = run('cat', *words([*options, cache]), f'{url}/{LEAF}', text=False).stdout
        asks.got.clear()
        assert run('cat', *words([*options, cache]), f'{url}/{LEAF}', text=False).stdout == want
        assert not any('/d/' in path and said.get('Range') for path, said in asks.got), 'the cache has it'
        wrong = private(tmp_path / 'wrong', WAYS['headers'].replace(SECRET, 'guess'))
        for other in ([], [f'http_headers={wrong}']):
            r = run('cat', *words([cache, *other]), f'{url}/{LEAF}', ok=False, text=False, env=dict(os.environ, NETRC='/none'))
            assert r.returncode == 1 and not r.stdout and b'status 401' in r.stderr, r.stderr
        # Nor is the secret in what is stored.
        assert not [p for p in (tmp_path / 'cache').rglob('*') if p.is_file() and SECRET.encode() in p.read_bytes()]


@pytest.mark.option('anonymous')
def test_anonymous_uses_no_login(run, tmp_path, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    monkeypatch.delenv('NETRC', raising=False)
    private(tmp_path / '.netrc', WAYS['netrc'])
    asks = Asks('netrc')
    with servers.faulty(STEP, guard=asks) as url:
        assert run('ls', url).stdout
        asks.got.clear()
        refused = run('ls', '-o', 'anonymous', url, ok=False).stderr
        assert 'status 401' in refused and f"'{url}/_METADATA'" in refused, refused
        assert asks.got and not any(said.get('Authorization') for _, said in asks.got)


@pytest.mark.parametrize('by', ['writing', 'renaming'])
def test_a_file_that_changes(mount, tmp_path, by):
    """Tokens expire: the next request has what the file says then, in a mount that can open little else. One that is wrong changes nothing."""
    (tmp_path / 'own').mkdir()
    file = private(tmp_path / 'own/headers', WAYS['headers'])
    asks = Asks()

    def change(text):
        if by == 'writing':
            file.write_text(text)
        else:
            private(tmp_path / 'own/new', text).rename(file)

    with servers.faulty(STEP, guard=asks) as url:
        m = mount(url, f'http_headers={file}', 'cache=0', allow_errors=True)
        os.stat(m / LEAF)
        asks.secret = 'later'
        change(WAYS['headers'].replace(SECRET, 'later'))
        want = (mount(STEP) / LEAF).read_bytes()
        assert compare.read_all(m / LEAF) == want
        change(f'{SECRET}\n')
        assert compare.read_all(m / 'state/params/embed/table[0:2].npy')
        said = '\n'.join(m.log_lines())
        assert f"'{file}', line 1, is not 'Name: value'; the headers stay as they were" in said and SECRET not in said
        file.unlink()
        os.mkfifo(file, 0o600)
        assert compare.read_all(m / 'state/params/embed/table[1:2].npy')


def test_a_relative_name_of_the_file(mount, monkeypatch, tmp_path):
    """Of a mount in the background, which has left the directory."""
    private(tmp_path / 'headers', WAYS['headers'])
    monkeypatch.chdir(tmp_path)
    with servers.faulty(STEP, guard=Asks()) as url:
        assert os.stat(mount(url, 'http_headers=headers') / LEAF)


@pytest.mark.parametrize('text, mode, why', [
    (WAYS['headers'], 0o644, "is open to all users (mode 0644)"), (WAYS['headers'], 0o602, '(mode 0602)'),
    (f'A: b\n{SECRET}\n', 0o600, ', line 2, is not'), (f'{SECRET} {SECRET}: x\n', 0o640, ', line 1, is not'), (f'{SECRET}:\n', 0o600, ', line 1, is not'),
    (f'\n\nA: {SECRET}\x01\n', 0o600, ', line 3, is not'), (f'# x\nrange: {SECRET}\n', 0o600, ', line 2: pytreefs itself sets the header Range'),
    ('# nothing\n', 0o600, 'has no header'), (f'A: {SECRET * 8000}', 0o600, 'has more than 65536 bytes'), (None, 0o600, 'No such file')])
def test_files_that_are_refused(run, program, tmp_path, text, mode, why):
    """Before anything is asked for; the file and the line are named, and nothing of its text."""
    file = tmp_path / 'headers'
    if text is not None:
        file.write_text(text)
        file.chmod(mode)
    asks = Asks()
    (tmp_path / 'mnt').mkdir()
    with servers.faulty(STEP, guard=asks) as url:
        errors = [run('ls', '-o', f'http_headers={file}', url, ok=False).stderr,
                  run('mount', '-o', f'http_headers={file}', url, tmp_path / 'mnt', ok=False).stderr,
                  python(program, 'pytreefs.open(sys.argv[1], http_headers=sys.argv[2])', url, file).stderr]
    for said in errors:
        assert why in said and f"'{file}'" in said and SECRET not in said, said
    assert not asks.got


def test_headers_in_place_of_the_file_are_in_no_message(run, tmp_path):
    for text in ('Authorization: Bearer SECRET', '{"Authorization": "Bearer SECRET"}'):
        for words in (['ls', 'http://127.0.0.1:1/x'], ['mount', 'http://127.0.0.1:1/x', tmp_path]):
            r = run(words[0], '-o', f'http_headers={text}', *words[1:], ok=False)
            assert r.returncode and "option 'http_headers': it is the name of a file of headers" in r.stderr and 'SECRET' not in r.stdout + r.stderr


def test_a_file_inside_of_the_mount_point(run, tmp_path):
    (tmp_path / 'mnt').mkdir()
    file = private(tmp_path / 'mnt/headers', WAYS['headers'])
    with servers.faulty(STEP, guard=Asks()) as url:
        r = run('mount', '-o', f'nonempty,http_headers={file}', url, tmp_path / 'mnt', ok=False)
    assert r.returncode == 1 and 'is inside the mount point' in r.stderr, r.stderr
