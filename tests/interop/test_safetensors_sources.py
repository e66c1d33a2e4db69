# SPDX-License-Identifier: Apache-2.0
"""A safetensors file, or a directory of such, as a SOURCE: of a mount, of the package, in the cache of the hub, and by URL; with the
official library as the judge. What commands say of one is in test_safetensors_tools.py."""

import errno
import json
import os
import shutil

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from lib import buckets, gcs, hub, mounts, objects, package, servers

pytreefs = package.imported()

MODEL = {f'model.layers.{i}.w': np.arange(600, dtype=np.float32).reshape(20, 30) + i for i in range(3)} | {
    'model.norm': np.arange(30).astype(ml_dtypes.bfloat16), 'empty': np.zeros((0, 4), np.float32), 'n': np.array(5, np.int32)}
KINDS = ['sharded', 'single', 'single/model.safetensors', 'other.safetensors']


@pytest.fixture
def models(tmp_path):
    """The directory with one model of each kind, as models are published."""
    top, names, index = tmp_path / 'models', sorted(MODEL), {}
    for name in ('sharded', 'single'):
        (top / name).mkdir(parents=True)
        (top / name / 'config.json').write_text('{"vocab_size": 32}')
    for i, part in enumerate([names[:2], names[2:]]):
        shard = f'model-0000{i + 1}-of-00002.safetensors'
        safetensors.numpy.save_file({n: MODEL[n] for n in part}, top / 'sharded' / shard, metadata={'format': 'pt', 'made_by': 'me'})
        index |= dict.fromkeys(part, shard)
    (top / 'sharded/model.safetensors.index.json').write_text(json.dumps({'metadata': {}, 'weight_map': index}))
    for file in ('single/model.safetensors', 'other.safetensors'):
        safetensors.numpy.save_file(MODEL, top / file, metadata={'format': 'pt', 'made_by': 'me'})
    for file in top.rglob('*.safetensors'):
        file.chmod(0o644)
        assert all(np.array_equal(value, MODEL[name]) for name, value in safetensors.numpy.load_file(file).items())
    return top


def is_model(flat):
    return flat.keys() == MODEL.keys() and all(a.dtype == MODEL[name].dtype and np.array_equal(a, MODEL[name]) for name, a in flat.items())


def in_mount(m):
    found = {}
    for path in m.path.rglob('*.npy'):
        dtype = np.dtype(json.loads(os.getxattr(path, 'user.pytree.dtype')))
        found['.'.join(path.relative_to(m.path).with_suffix('').parts)] = np.load(path).view(dtype)
    return found


def is_source(source, mount, run, program):
    """Every way to it gives the model."""
    assert is_model(pytreefs.load_flat(source, separator='.'))
    assert pytreefs.load(source)['model']['layers']['2']['w'][19, 29] == 601
    with pytreefs.open(source) as ck:
        assert ck['model/layers/1/w'][3:5].tolist() == MODEL['model.layers.1.w'][3:5].tolist()
    m = mount(source, allow_errors=True)
    assert is_model(in_mount(m)) and np.load(m / 'model/layers/0/w[1,2:4]@float64.npy').tolist() == [32, 33]
    assert run('ls', source).stdout == run('ls', f'{source}/').stdout == 'empty.npy\nmodel/\nn.npy\n'
    assert run('cat', f'{source}/model/norm.bin', text=False).stdout == MODEL['model.norm'].tobytes()
    assert json.loads(run('info', '--json', source).stdout)['custom_metadata'] == {'made_by': 'me'}
    return m


@pytest.mark.feature('D13', 'F5')
def test_a_file_or_directory(models, mount, run, program):
    for kind in KINDS:
        m = is_source(models / kind, mount, run, program)
        # It is only read, and says so; the stored files are those of SOURCE, and nothing else.
        for change in (lambda m=m: (m / 'new').mkdir(), lambda m=m: (m / 'n.npy').write_bytes(b'x'), lambda m=m: (m / 'n.npy').unlink(),
                       lambda m=m: np.save(m / 'w.npy', np.zeros(2))):
            with pytest.raises(OSError) as e:
                change()
            assert e.value.errno == errno.EROFS
        assert len([line for line in m.log_lines() if 'files of tensors are only read' in line]) == 4
        path = models / kind
        assert sorted(os.listdir(m / '.pytreefs/stored')) == (sorted(os.listdir(path)) if path.is_dir() else [path.name])
        assert run('ls', m.path).stdout == run('ls', path).stdout and run('tree', m / 'model').stdout.splitlines()[1:]
        assert ', 0 differences' in run('diff', m.path, path).stdout


def test_a_mount_below_arrays_of_somebody_else(models, mount, run, tmp_path):
    """Commands look for checkpoints upwards, but not from the stored files of a mount."""
    pytreefs.save(tmp_path / 'other/1', {'w': np.zeros(2)}, ocdbt=False)
    (tmp_path / 'other/1/default').rename(tmp_path / 'arrays')
    m = mount(models / KINDS[0], allow_errors=True)
    assert m.path.is_relative_to(tmp_path)
    assert run('ls', m.path).stdout == 'empty.npy\nmodel/\nn.npy\n'


def test_in_the_cache_of_the_hub(models, mount, run, program, tmp_path):
    top = hub.snapshot(models, tmp_path / 'hub')
    for kind in KINDS:
        is_source(top / kind, mount, run, program)
    assert 'name a snapshot of it' in run('ls', top.parents[1], ok=False).stderr
    # A link elsewhere is a file that the user named. In a directory, it is not followed.
    shutil.copy(models / 'other.safetensors', tmp_path / 'weights')
    (tmp_path / 'a').mkdir()
    (tmp_path / 'a/link.safetensors').symlink_to('../weights')
    is_source(tmp_path / 'a/link.safetensors', mount, run, program)
    with pytest.raises(OSError, match="'link.safetensors' leads out of '.*/a'; `cp -rL`"):
        pytreefs.load(tmp_path / 'a')
    with pytest.raises(mounts.MountError, match='leads out of'):
        mount(tmp_path / 'a')


def test_a_checkpoint_comes_first(models, mount, run, tmp_path):
    """Of mounts as well."""
    run('save', '--quiet', models / 'single', tmp_path / 'ck/1')
    shutil.copytree(tmp_path / 'ck/1', models / 'single', dirs_exist_ok=True)
    m = mount(models / 'single', allow_errors=True)
    assert 'default' in os.listdir(m.path) and any('another model beside it' in line for line in (m.log_lines() or [m.log.read_text()]))
    assert is_model(in_mount(mount(models / 'single/model.safetensors')))


@pytest.fixture
def vendors(models, tmp_path, monkeypatch):
    """{scheme: the URL of the models}, over lib/objects.py and nginx."""
    (tmp_path / 'web').mkdir()
    directories = {'models': models}
    cert = servers.certificate(tmp_path)
    with buckets.Proxy(objects.S3(directories)) as s3, gcs.Proxy(objects.GCS(directories)) as gs, gcs.Vendor(gs) as vendor, \
            servers.nginx(tmp_path / 'nginx', models, cert) as web:
        for name in [n for n in os.environ if n.startswith(('AWS_', 'GOOGLE_', 'CLOUDSDK_', 'GCE_', 'STORAGE_EMULATOR', 'TENSORSTORE_GCS'))]:
            monkeypatch.delenv(name)
        for name, value in (s3.environment(tmp_path) | gcs.environment(gs, vendor, tmp_path)).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv('SSL_CERT_FILE', str(cert[0]))
        (tmp_path / 'ck').mkdir()
        yield {'s3': 's3://models/models', 'gs': 'gs://models/models', 'https': web}


@pytest.mark.feature('D13')
@pytest.mark.filterwarnings('ignore:.*is read as .model.safetensors. alone')
def test_by_url(vendors, models, mount, run, program, tmp_path):
    for url in vendors.values():
        for kind in KINDS:
            is_source(f'{url}/{kind}', mount, run, program)
            assert ', 0 differences' in run('diff', f'{url}/{kind}', models / kind).stdout
        run('convert', '--quiet', f'{url}/sharded', tmp_path / 'ck' / url.partition(':')[0])
        assert ', 0 differences' in run('diff', tmp_path / 'ck' / url.partition(':')[0], models / 'sharded').stdout
        for name in ('none', 'none.safetensors', 'sharded/none', 'sharded/none.npy', 'other.safetensors/none'):
            r = run('ls', f'{url}/{name}', ok=False)
            assert r.returncode == 1 and 'none' in r.stderr, r.stderr
            with pytest.raises(mounts.MountError):
                mount(f'{url}/{name}')
        assert 'is not verified: safetensors has no checksums' in run('verify', f'{url}/sharded', ok=False).stderr


def test_a_web_server_that_cannot_list(vendors, models, mount, run):
    """Without an index, a directory has the usual file, and a line says that this may not be all."""
    web = vendors['https']
    with pytest.warns(UserWarning, match="is read as 'model.safetensors' alone: its server cannot list"):
        pytreefs.load(f'{web}/single')
    (models / 'sharded/model-00002-of-00002.safetensors').rename(models / 'gone')
    r = run('ls', f'{web}/sharded', ok=False)
    assert r.returncode == 1 and 'model-00002-of-00002.safetensors' in r.stderr
    (models / 'sharded/model.safetensors.index.json').write_text(json.dumps({'weight_map': {'n': '../single/model.safetensors'}}))
    assert 'is not inside the checkpoint' in run('ls', f'{web}/sharded', ok=False).stderr


class Redirecting(servers._Handler):
    """As a hub of models does: a file is at another address, which has a signature."""

    def _answer_now(self, with_body):
        if self.path.startswith('/resolve/'):
            return self._head(302, 0, Location=self.path.replace('/resolve/', f'{self.server.url}/') + '?signature=1')
        if not self.path.endswith('?signature=1'):
            return self._head(404, 0)
        self.path = self.path.removesuffix('?signature=1')
        return super()._answer_now(with_body)


def test_only_what_is_read_is_fetched(mount, run, tmp_path, monkeypatch):
    """The header, then ranges, also through redirects; a model of 24 MiB of which one row is read."""
    big = {'big': np.arange(6 << 20, dtype=np.float32).reshape(6 << 10, 1 << 10), 'small': np.arange(8)}
    (tmp_path / 'web/model').mkdir(parents=True)
    safetensors.numpy.save_file(big, tmp_path / 'web/model/model.safetensors')
    monkeypatch.setattr(servers, '_Handler', Redirecting)
    with servers.faulty(tmp_path / 'web') as url:
        m = mount(f'{url}/resolve/model/model.safetensors')
        assert np.array_equal(np.load(m / 'big[77].npy'), big['big'][77]) and np.array_equal(np.load(m / 'small.npy'), big['small'])
        stats = json.loads((m / '.pytreefs/stats').read_text())
        assert 0 < stats['url_bytes'] < 2 << 20 and stats['url_requests'] < 20, stats
        assert np.array_equal(pytreefs.load(f'{url}/resolve/model/model.safetensors')['big'], big['big'])


@pytest.mark.filterwarnings('ignore:.*is read (as|without)')
def test_the_index_decides_what_a_directory_is(vendors, models, run, tmp_path):
    """As for transformers: files that it does not name are other models, on disk and by URL. Without one, no name may occur twice."""
    safetensors.numpy.save_file(MODEL, models / 'sharded/consolidated.safetensors')
    safetensors.numpy.save_file({'lora': np.zeros(3)}, models / 'sharded/adapter.safetensors')
    shutil.copytree(models / 'single', models / 'twice')
    safetensors.numpy.save_file({name: a.astype(np.float16) for name, a in MODEL.items()}, models / 'twice/model.fp16.safetensors')
    for i, top in enumerate([models, *vendors.values()]):
        assert is_model(pytreefs.load_flat(f'{top}/sharded', separator='.'))
        r = run('convert', f'{top}/sharded', tmp_path / str(i))
        # A step as CheckpointManager restores it, from wherever.
        assert is_model(pytreefs.load_flat(tmp_path / str(i) / 'default', separator='.'))
        assert str(top).startswith('http') or "read without 'adapter.safetensors', which 'model.safetensors.index.json' does not name" in r.stderr
        if str(top).startswith('http'):
            continue
        for words in (['ls', f'{top}/twice'], ['convert', f'{top}/twice', tmp_path / 'no'], ['export', f'{top}/twice', tmp_path / 'no.npz']):
            r = run(*words, ok=False)
            assert r.returncode == 1 and "is in 'model.fp16.safetensors' and in 'model.safetensors': read one of these" in r.stderr, r.stderr
        assert is_model(pytreefs.load_flat(f'{top}/twice/model.safetensors', separator='.'))
