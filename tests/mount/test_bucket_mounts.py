# SPDX-License-Identifier: Apache-2.0
"""SOURCE on a file system that shows a bucket (rclone, s3fs): what is in the bucket afterwards is a whole step, or nothing."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from lib import buckets, mounts

BUCKET = 'shown'
TREE = {'params': {'w': np.arange(70_000, dtype=np.float32).reshape(700, 100), 'b': np.ones(9, np.float32)}, 'count': 7, 'name': 'run'}
RCLONE = {'TYPE': 's3', 'PROVIDER': 'Other', 'ACCESS_KEY_ID': buckets.KEY_ID, 'SECRET_ACCESS_KEY': buckets.SECRET,
          # moto refuses versionId=null, which it has given before.
          'REGION': buckets.REGION, 'FORCE_PATH_STYLE': 'true', 'NO_CHECK_BUCKET': 'true', 'NO_HEAD': 'true'}
AT_CLOSE = 'durable as far as a file is in the bucket when it is closed'
DURABLE = {'rclone': 'not durable before rclone has uploaded it, which with a cache is some time later', 's3fs': AT_CLOSE, 'gcsfuse': AT_CLOSE}

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason='only root may mount file systems')


def remark(kind):
    return (f'is a mount of {kind}, which does not rename a step as a whole: it is copied there file by file, and is {DURABLE[kind]}; '
            'if it is in S3 or GCS, a step of a SOURCE s3://... or gs://... is durable at once')


class Disk:
    """A bucket that is mounted by another program."""

    def __init__(self, path, bucket, kind):
        self.path, self.bucket, self.kind, self.remark = path, bucket, kind, remark(kind)

    def __truediv__(self, name):
        return self.path / name

    def files(self):
        return sorted(str(p.relative_to(self.path)) for p in self.path.rglob('*') if p.is_file())

    def objects(self):
        """Without those that some programs put for directories."""
        return [k for k in self.bucket.keys() if not k.endswith('/')]

    def wait(self):
        """Until that is in the bucket which the mount shows, and nothing else."""
        mounts.wait_for(lambda: self.objects() == self.files(), 30)

    def uploaded(self, directory):
        """A copy of the bucket itself."""
        self.wait()
        assert not [k for k in self.objects() if 'pytreefs' in k]
        for key in self.objects():
            (directory / key).parent.mkdir(parents=True, exist_ok=True)
            (directory / key).write_bytes(self.bucket.get(key))
        return directory


def rclone(path, tmp, mode, url):
    environment = {**os.environ, **{f'RCLONE_CONFIG_M_{k}': v for k, v in RCLONE.items()}, 'RCLONE_CONFIG_M_ENDPOINT': url,
                   'RCLONE_CONFIG': '/dev/null'}
    return subprocess.Popen(['rclone', 'mount', '--vfs-cache-mode', mode, '--cache-dir', tmp / 'cache', '--vfs-write-back', '100ms',
                             '--streaming-upload-cutoff', '16M', '--log-file', tmp / 'rclone.log', f'm:{BUCKET}', path], env=environment)


def s3fs(path, tmp, url):
    (tmp / 'passwd').write_text(f'{buckets.KEY_ID}:{buckets.SECRET}')
    (tmp / 'passwd').chmod(0o600)
    return subprocess.Popen(['s3fs', BUCKET, path, '-f', '-o', f'url={url},use_path_request_style,endpoint={buckets.REGION}'
                             f',passwd_file={tmp}/passwd,logfile={tmp}/s3fs.log'])


@pytest.fixture(params=['off', 'writes', 'full', 's3fs'])
def disk(request, moto, s3, s3_bucket, tmp_path, spill):
    """An empty bucket, mounted by rclone with each of its ways of caching, or by s3fs, whose signature of a listing the proxy refuses. Nothing is
    left where steps are made first."""
    for key in s3_bucket.keys():
        s3_bucket.delete(key)
    path = tmp_path / 'disk'
    path.mkdir()
    kind = 's3fs' if request.param == 's3fs' else 'rclone'
    process = s3fs(path, tmp_path, f'http://{moto}') if kind == 's3fs' else rclone(path, tmp_path, request.param, s3.url)
    try:
        mounts.wait_for(lambda: os.path.ismount(path) or process.poll() is not None)
        assert process.poll() is None
        yield Disk(path, s3_bucket, kind)
    finally:
        mounts.unmount_with('umount', path)
        process.wait(60)
    assert not list(spill.iterdir())


@pytest.fixture
def files(tmp_path):
    """TREE as `pytreefs save` takes it."""
    d = tmp_path / 'in'
    (d / 'params').mkdir(parents=True)
    for name, value in TREE['params'].items():
        np.save(d / f'params/{name}.npy', value)
    (d / 'count.json').write_text('7')
    (d / 'name.txt').write_text('run')
    return d


def check_restored(root, *steps):
    """By Orbax, from files of the bucket."""
    from lib import restoring
    for step in steps:
        got = restoring.v0_pytree(root, step, None)
        assert (got['count'], got['name']) == (7, 'run') and all(np.array_equal(got['params'][k], v) for k, v in TREE['params'].items())


def test_every_way_of_writing(disk, run, mount, files, tmp_path):
    """A step is whole in the bucket, for Orbax too, and nothing else is there; each way says once what is not promised."""
    for step, form in (('1', 'on'), ('2', 'off')):
        assert run('save', '-o', f'ocdbt={form}', files, disk / step).stderr.count(disk.remark) == 1
        assert run('ls', disk.path).stdout.split()[-1] == f'{step}/'
    local = tmp_path / 'local'
    local.mkdir()
    for step in ('3', '4'):
        assert 'mount of' not in run('save', files, local / step).stderr
    for form in ('on', 'off'):
        assert run('convert', '-o', f'ocdbt={form}', local, disk / form).stderr.count(disk.remark) == 1
    m = mount(disk.path, 'allow_delete', 'shape=root')
    (m / '5.tmp').mkdir()
    shutil.copytree(files, m / '5.tmp/default')
    (m / '5.tmp').rename(m / '5')
    assert np.array_equal(np.load(m / '5/default/params/w.npy'), TREE['params']['w'])
    disk.wait()
    (m / '2').rmdir()
    assert sorted(os.listdir(m.path)) == ['1', '5']
    assert not m.unmount()
    assert sum(disk.remark in line for line in m.log_lines()) == 1
    assert 'is there already' in run('save', files, disk / '1', ok=False).stderr
    assert 'a step in a bucket is not replaced' in run('save', '--force', files, disk / '1', ok=False).stderr
    assert 'is not merged in place' in run('merge', disk / '1/default', ok=False).stderr
    root = disk.uploaded(tmp_path / 'bucket')
    check_restored(root, '1', '5')
    check_restored(root / 'on', '3', '4')
    check_restored(root / 'off', '3', '4')
    for step in ('1', '5', 'on/3', 'on/4', 'off/3', 'off/4'):
        assert 'commit_success.txt' in os.listdir(root / step)
        run('verify', root / step)


def refusing(method):
    """A fault of the proxy, of data files."""
    return lambda h: h.command == method and '/d/' in h.path and (h.refuse(403, 'AccessDenied') or True)


@pytest.mark.parametrize('disk', ['off'], indirect=True)
def test_an_upload_that_fails(disk, s3, run, files):
    """The error of close(2) is that of the save, and says where the reason is; nothing is left."""
    s3.fault = refusing('PUT')
    r = run('save', files, disk / '1', ok=False)
    assert r.returncode == 1 and disk.remark in r.stderr
    assert "cannot write 'default/d/" in r.stderr and 'Input/output error; rclone cannot reach it' in r.stderr
    s3.fault = None
    mounts.wait_for(lambda: not disk.objects() and not disk.files(), 30)
    run('save', files, disk / '1')


@pytest.mark.parametrize('disk', ['off'], indirect=True)
def test_an_object_that_cannot_be_read(disk, s3, run, files):
    run('save', files, disk / '1')
    s3.fault = refusing('GET')
    r = run('cat', disk / '1/default/params/w.npy', ok=False)
    assert r.returncode == 1 and ('Input/output error; rclone cannot reach it, or is uploading it: its log says which, and with --vfs-cache-mode '
                                  'full it can be read meanwhile') in r.stderr


@pytest.mark.parametrize('disk', ['writes'], indirect=True)
def test_a_copy_whose_writer_died(disk, run, files, tmp_path):
    """It is not a step; gc removes it, and so does the next writer of that step."""
    run('save', files, tmp_path / '1')
    (tmp_path / '1/commit_success.txt').unlink()
    for step in ('1', '2'):
        shutil.copytree(tmp_path / '1', disk / step)
        (disk / f'{step}/.pytreefs-draft').write_text('{"pid": 1}\n')
    disk.wait()
    run('save', files, disk / '1')
    assert run('ls', disk.path).stdout.split() == ['1/']
    assert 'kept         2 (part of a step, whose writer may be on another machine' in run('gc', disk.path).stdout
    assert 'removed      2 (' in run('gc', '--all', '--older-than', '0s', disk.path).stdout
    check_restored(disk.uploaded(tmp_path / 'bucket'), '1')


@pytest.mark.parametrize('disk', ['full'], indirect=True)
def test_the_package_warns(disk, build, tmp_path):
    script = ('import sys, warnings, numpy, pytreefs\n'
              'with warnings.catch_warnings(record=True) as said:\n'
              '    pytreefs.save(sys.argv[1] + "/1", {"w": numpy.ones(3)})\n'
              '    pytreefs.save(sys.argv[1] + "/2", pytreefs.open(sys.argv[1] + "/1"))\n'
              'print(*(w.message for w in said), sep="\\n")\n')
    package = {**os.environ, 'PYTHONPATH': str(build / 'tools/python'), 'PYTREEFS_PROGRAM': str(build / 'pytreefs')}
    r = subprocess.run([sys.executable, '-c', script, disk.path], capture_output=True, text=True, env=package)
    assert r.returncode == 0 and r.stdout.count(disk.remark) == 2, r.stdout + r.stderr
    disk.uploaded(tmp_path / 'bucket')


def test_others_are_known_by_their_type(run, mount, files, tmp_path, spill):
    (tmp_path / 'below/run').mkdir(parents=True)
    (tmp_path / 'at').mkdir()
    subprocess.run(['bindfs', '-o', 'subtype=gcsfuse', tmp_path / 'below', tmp_path / 'at'], check=True, capture_output=True)
    try:
        assert run('save', files, tmp_path / 'at/1').stderr.count(remark('gcsfuse')) == 1
        check_restored(tmp_path / 'below', '1')
        # A step without the marker, copied there by another program, has a prefix that new ones may have.
        run('save', files, tmp_path / 'below/run/10')
        (tmp_path / 'below/run/10').rename(tmp_path / 'below/run/step-10')
        (tmp_path / 'below/run/step-10/commit_success.txt').unlink(missing_ok=True)
        m = mount(tmp_path / 'at/run')
        (m / 'step-11.tmp').mkdir()
        assert not m.unmount()
        # An item that is being copied into a step, and a lock file that cannot be removed from a whole step.
        shutil.copytree(tmp_path / 'below/1/default', tmp_path / 'below/1/more')
        for where in ('1/more', '1'):
            (tmp_path / 'below' / where / '.pytreefs-draft').write_text('{"pid": 1}\n')
        (tmp_path / 'below/1/more/commit_success.txt').unlink(missing_ok=True)
        assert run('ls', tmp_path / 'at/1').stdout.split() == ['_CHECKPOINT_METADATA', 'default/']
        assert 'is not committed: .pytreefs-draft in it' in run('ls', tmp_path / 'at/1/more', ok=False).stderr
        subprocess.run(['chattr', '+i', tmp_path / 'below/1/.pytreefs-draft'], check=True)
        try:
            r = run('gc', tmp_path / 'at', ok=False)
            assert r.returncode == 1 and 'Operation not permitted' in r.stderr, r.stderr
        finally:
            subprocess.run(['chattr', '-i', tmp_path / 'below/1/.pytreefs-draft'], check=True)
    finally:
        assert not mounts.unmount_with('umount', tmp_path / 'at')
