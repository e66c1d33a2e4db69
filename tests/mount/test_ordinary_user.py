# SPDX-License-Identifier: Apache-2.0
"""Users other than root: a mount by fusermount3, and messages about files that may not be read."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from lib import mounts

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason='only root may become somebody else')
NOBODY = 65534
SAMPLE = pathlib.Path(__file__).resolve().parents[1] / 'data/sample'

# A /dev/fuse that everybody may open, as distributions have it, for the commands after it alone.
OPEN_FUSE = '''
d=$(mktemp -d) && mount -t tmpfs none "$d" && mknod "$d/fuse" c 10 229 && chmod 666 "$d/fuse" &&
mount --bind "$d/fuse" /dev/fuse && umount -l "$d" && rmdir "$d" || exit 77
exec setpriv --reuid %d --regid %d --clear-groups sh -euc "$0"
''' % (NOBODY, NOBODY)


@pytest.fixture
def place(program):
    """A directory of theirs: a copy of the sample, the program (its own place may be closed to them), a mount point."""
    path = pathlib.Path(tempfile.mkdtemp(prefix='pytreefs-user-'))
    shutil.copytree(SAMPLE, path / 'ckpts')
    shutil.copy(program, path / 'pytreefs')
    (path / 'm').mkdir()
    for at in [path, *path.rglob('*')]:
        os.chown(at, NOBODY, NOBODY, follow_symlinks=False)
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def test_a_mount_of_theirs(place):
    """It reads, saves, unmounts, and does not speak of what only root may set (read_ahead_kb)."""
    if not shutil.which('fusermount3'):
        pytest.skip('no mount namespace can be made here')
    script = '''
    export PATH=.:$PATH
    pytreefs mount ckpts m
    trap 'pytreefs umount m' EXIT
    cat m/latest/state/step.json
    mkdir m/2000.tmp && cp -r m/1500/state m/2000.tmp/ && mv m/2000.tmp m/2000
    pytreefs diff ckpts/1500/state ckpts/2000/state
    leaf=$(find m/1500/state -name '*.npy' | sort | head -1)
    for again in 1 2; do cmp "$leaf" "m/2000/${leaf#m/1500/}"; done
    stat -c %U m/2000
    echo 'log:' && cat m/.pytreefs/log
    '''
    r = mounts.own_mounts(OPEN_FUSE, script, cwd=place)
    assert r.returncode == 0 and r.stderr == '', r.stdout + r.stderr
    out, log = r.stdout.split('log:\n')
    assert out.startswith('1500\n') and '78 the same, 0 differences' in out and out.endswith('nobody\n'), out
    assert 'read_ahead' not in log and 'cannot' not in log, log
    assert not os.listdir(place / 'm') and (place / 'ckpts/2000').is_dir()


@pytest.mark.parametrize('mode,command,said', [
    (0o711, 'ls', "cannot list 'ckpts'"), (0o600, 'ls', "'ckpts'"), (0o000, 'tree', "'ckpts'"), (0o711, 'verify', "cannot list 'ckpts'"),
    (0o711, 'gc', "cannot list 'ckpts'")])
def test_a_source_that_may_not_be_read_is_named(place, mode, command, said):
    """By the path that was given, and never as '.'."""
    os.chown(place / 'ckpts', 0, 0)
    (place / 'ckpts').chmod(mode)
    r = subprocess.run(['./pytreefs', command, 'ckpts'], cwd=place, user=NOBODY, group=NOBODY, extra_groups=[],
                       capture_output=True, text=True, timeout=240)
    assert r.returncode == (2 if command == 'verify' else 1) and 'Permission denied' in r.stderr and said in r.stderr, r.stderr
    assert "'.'" not in r.stderr, r.stderr


def test_gc_does_not_speak_of_removing_a_step_that_it_may_not_read(place):
    os.chown(place / 'ckpts/1500', 0, 0)
    (place / 'ckpts/1500').chmod(0o700)
    r = subprocess.run(['./pytreefs', 'gc', 'ckpts'], cwd=place, user=NOBODY, group=NOBODY, extra_groups=[],
                       capture_output=True, text=True, timeout=240)
    assert r.returncode == 1 and r.stderr.startswith("pytreefs: '1500': cannot open ") and 'remove' not in r.stderr, r.stderr


def test_an_item_that_may_not_be_read_is_named(place):
    """An item, given as SOURCE, whose directory may be entered and not be listed."""
    item = place / 'ckpts/1500/state'
    for at in (item, item / 'manifest.ocdbt'):
        os.chown(at, 0, 0)
    (item / 'manifest.ocdbt').chmod(0o600)
    item.chmod(0o711)
    r = subprocess.run(['./pytreefs', 'tree', 'ckpts/1500/state'], cwd=place, user=NOBODY, group=NOBODY, extra_groups=[],
                       capture_output=True, text=True, timeout=240)
    assert r.returncode == 1 and 'Permission denied' in r.stderr and "'.'" not in r.stderr.replace("item '.'", ''), r.stderr


@pytest.mark.parametrize('closed,mode,file', [('1000', 0o700, '1000'), ('1000/state/manifest.ocdbt', 0o600, '1000/state/manifest.ocdbt'),
                                              ('1000/state/d', 0o700, None), ('1000/config', 0o711, '1000/config'),
                                              ('1000/_CHECKPOINT_METADATA', 0o600, '1000/_CHECKPOINT_METADATA')])
def test_verify_does_not_call_damaged_what_may_not_be_read(place, closed, mode, file):
    os.chown(place / 'ckpts' / closed, 0, 0)
    (place / 'ckpts' / closed).chmod(mode)

    def verify(*words):
        return subprocess.run(['./pytreefs', 'verify', *words, 'ckpts'], cwd=place, user=NOBODY, group=NOBODY, extra_groups=[],
                              capture_output=True, text=True, timeout=240)
    r = verify('--json')
    doc = json.loads(r.stdout)
    assert r.returncode == 2 and doc['errors'] == doc['warnings'] == 0 and doc['unchecked'] == len(doc['findings']) > 0, r.stdout
    assert all(f['severity'] == 'unchecked' and 'Permission denied' in f['text'] for f in doc['findings']), doc['findings']
    assert file is None or file in {f['file'] for f in doc['findings']}
    r = verify()
    assert r.returncode == 2 and r.stdout.startswith('cannot be checked: 1000') and 'error: ' not in r.stdout
    assert f'{doc["unchecked"]} could not be checked' in r.stdout


def test_damage_beside_what_may_not_be_read_is_an_error(place):
    os.chown(place / 'ckpts/1000', 0, 0)
    (place / 'ckpts/1000').chmod(0o700)
    (place / 'ckpts/1500/state/_METADATA').write_text('{')
    r = subprocess.run(['./pytreefs', 'verify', '--json', 'ckpts'], cwd=place, user=NOBODY, group=NOBODY, extra_groups=[],
                       capture_output=True, text=True, timeout=240)
    doc = json.loads(r.stdout)
    assert r.returncode == 2 and doc['errors'] and doc['unchecked'] == 1, r.stdout


def test_an_item_of_which_nobody_can_say_whether_it_is_one(place):
    """A link to a directory in one that this user may not enter: it may be an item, so the step was not checked as a whole."""
    step = place / 'ckpts/1500'
    (place / 'ckpts/closed').mkdir()
    os.rename(step / 'config', place / 'ckpts/closed/config')
    (step / 'config').symlink_to('../closed/config')

    def verify():
        r = subprocess.run(['./pytreefs', 'verify', '--json', 'ckpts'], cwd=place, user=NOBODY, group=NOBODY, extra_groups=[],
                           capture_output=True, text=True, timeout=240)
        return r.returncode, json.loads(r.stdout)
    os.chown(place / 'ckpts/closed', 0, 0)
    (place / 'ckpts/closed').chmod(0o700)
    status, doc = verify()
    assert status == 2 and doc['errors'] == 0, doc
    assert [(f['severity'], f['file']) for f in doc['findings']] == [('unchecked', '1500/config')], doc['findings']
    (place / 'ckpts/closed').chmod(0o755)
    status, doc = verify()
    assert (status, doc['findings']) == (0, []), doc
