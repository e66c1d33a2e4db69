# SPDX-License-Identifier: Apache-2.0
"""docs/recipes.md: every command on the page is run, and every file is used as its reader would use it.

Those of Flax and Keras are in tests/interop/test_frameworks.py, those of PyTorch in test_torch.py and test_llama.py, that of MaxText also in
test_maxtext.py.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
import safetensors
import yaml
from prometheus_client.parser import text_string_to_metric_families

from lib import mounts, tour

TOP = pathlib.Path(__file__).resolve().parents[2]
PAGE = TOP / 'docs/recipes.md'
SAMPLE = TOP / 'tests/data/sample'
MAXTEXT = TOP / 'tests/data/maxtext'
BUCKET = 'recipes'


def block(section, kind):
    """The block of that language in the section of the page."""
    found = re.findall(rf'```{kind}\n(.*?)```', '\n'.join(tour.section(PAGE, section)), re.S)
    assert len(found) == 1, (section, kind)
    return found[0]


@pytest.fixture
def where(build, tmp_path):
    """A directory with a copy of the sample; whatever a recipe mounts in it ends with the test."""
    shutil.copytree(SAMPLE, tmp_path / 'ckpts')
    yield tmp_path
    for mnt in (tmp_path / 'mnt', tmp_path / 'weights'):
        subprocess.run(['umount', '-l', mnt], capture_output=True)


@pytest.fixture
def env(build, where):
    programs = where / 'bin'
    programs.mkdir()
    (programs / 'python').symlink_to(sys.executable)
    return dict(os.environ, PATH=f'{programs}:{build}:{os.environ["PATH"]}', XDG_CACHE_HOME=str(where / 'cache'), HOME=str(where))


def typed(text, where, env):
    """A script of the page, which must succeed; what it prints."""
    r = subprocess.run(['bash', '-e'], input=text, cwd=where, env=env, text=True, capture_output=True, timeout=300)
    assert r.returncode == 0, r.stdout + r.stderr
    return r.stdout


def put_in_place(text, **names):
    """The text with names of the page replaced, each of which is there."""
    for name, value in names.items():
        assert name in text, name
        text = text.replace(name, str(value))
    return text


def test_the_sessions(where, env):
    """The lines after `$`, in one shell, with rsync and restic."""
    assert not tour.faults(PAGE, 'Recipes', where, env)
    assert not list((where / 'mnt').iterdir()), 'it ends with its mount unmounted'


def test_what_runs_nowhere_is_known():
    """Blocks that this file and tests/interop/test_frameworks.py do not name would be run by nobody."""
    kinds = re.findall(r'^```(\w+)$', PAGE.read_text(), re.M)
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {'console': 4, 'sh': 5, 'yaml': 2, 'ini': 1, 'fstab': 1, 'python': 3}


# ---- one machine ----

def conf():
    return dict(line.split('=', 1) for line in block('systemd and fstab', 'ini').splitlines())


def test_systemd(program, where):
    """The unit's own commands, with the variables of the file."""
    unit = (TOP / 'debian/pytreefs.pytreefs@.service').read_text()
    assert set(conf()) == set(re.findall(r'\$\{(\w+)\}', unit))
    if subprocess.run([program, 'info', '-o', 'sandbox=require', SAMPLE], capture_output=True).returncode:
        pytest.skip('no whole sandbox here: require refuses')
    (where / 'weights').mkdir()
    values = conf() | {'SOURCE': str(where / 'ckpts'), 'MOUNTPOINT': str(where / 'weights')}
    for when in ('ExecStart', 'ExecStop'):
        words = re.search(rf'^{when}=(.*)$', unit, re.M)[1].replace('/usr/bin/pytreefs', str(program)).split()
        subprocess.run([re.sub(r'\$\{(\w+)\}', lambda m: values[m[1]], word) for word in words], check=True)
        assert (where / 'weights/latest').exists() == (when == 'ExecStart')


def test_fstab(mount):
    source, target, kind, options, *rest = block('systemd and fstab', 'fstab').split()
    assert (source, target, kind, rest) == (conf()['SOURCE'], conf()['MOUNTPOINT'], 'pytreefs', ['0', '0'])
    # As mount(8) passes them on; tests/bare does it with mount(8).
    assert (mount(SAMPLE, *options.split(',')) / 'latest').exists()


# ---- clusters ----

@pytest.fixture
def slurm(where, env):
    """A function that starts the script, with an srun that runs a task of one node here, and this program as evaluate.py."""
    srun = where / 'bin/srun'
    srun.write_text('#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n')
    srun.chmod(0o755)
    script = put_in_place(block('Slurm', 'sh'), **{'/lustre/ckpts': where / 'ckpts', '/tmp/weights-$SLURM_JOB_ID': where / 'weights'})

    def start(program):
        (where / 'evaluate.py').write_text(program)
        return subprocess.Popen(['bash', '-c', script], cwd=where, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                start_new_session=True)
    return start


EVALUATE = 'import sys, numpy as np\nprint(np.load(sys.argv[1] + "/state/rng.npy").dtype, flush=True)\n'


@pytest.mark.parametrize('then,status', [('', 0), ('sys.exit(3)', 3)])
def test_slurm(slurm, where, then, status):
    p = slurm(EVALUATE + then)
    assert p.communicate(timeout=120) == ('uint32\n', '') and p.returncode == status
    assert not (where / 'weights').exists()


def test_slurm_without_a_source(slurm, where):
    shutil.rmtree(where / 'ckpts')
    p = slurm(EVALUATE)
    said = p.communicate(timeout=120)[1]
    assert p.returncode == 1 and ("has no 'ckpts'" in said or 'does not exist' in said), said
    assert not (where / 'weights').exists()


def test_slurm_cancels(slurm, where):
    """All processes of a step get the signal."""
    p = slurm(EVALUATE + 'import time; time.sleep(120)')
    assert p.stdout.readline() == 'uint32\n'
    os.killpg(p.pid, signal.SIGTERM)
    said = p.communicate(timeout=120)[1]
    assert not (where / 'weights').exists(), said


@pytest.mark.parametrize('then,status', [('', 1), ('sys.exit(3)', 3)])
def test_slurm_reports_a_mount_that_is_in_use(slurm, where, then, status):
    p = slurm(EVALUATE + 'import subprocess\nsubprocess.Popen(["sleep", "60"], cwd=sys.argv[1], stdout=-3, stderr=-3)\n' + then)
    try:
        said = p.communicate(timeout=120)[1]
        assert p.returncode == status and f'{where / "weights"} is left behind' in said
        assert os.path.ismount(where / 'weights')
    finally:
        os.killpg(p.pid, signal.SIGKILL)


def test_kubernetes(program, where):
    """The pod is what its readers take; what its containers run is run."""
    pod, = yaml.safe_load_all(block('Kubernetes', 'yaml'))
    sidecar, = pod['spec']['initContainers']
    main, = pod['spec']['containers']
    compose = yaml.safe_load((TOP / 'compose.yaml').read_text())
    assert sidecar['args'][:-2] == compose['services']['pytreefs']['command'][:-2]
    mounted = {v['name'] for c in (sidecar, main) for v in c['volumeMounts']}
    assert mounted == {v['name'] for v in pod['spec']['volumes']}
    # Containers see volumes where they are mounted; here these are directories.
    places = {'/source': str(where / 'ckpts'), '/weights': str(where / 'weights')}
    assert {v['mountPath'] for v in sidecar['volumeMounts']} == set(places) and main['volumeMounts'][0]['mountPath'] == '/weights'

    def words(command):
        return [re.sub(r'^/(source|weights)', lambda m: places[m[0]], word) for word in command]
    (where / 'weights').mkdir()
    daemon = subprocess.Popen([program, *words(sidecar['args'])], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        probe = words(sidecar['startupProbe']['exec']['command'])
        mounts.wait_for(lambda: daemon.poll() is not None or subprocess.run(probe, capture_output=True).returncode == 0)
        assert daemon.poll() is None, daemon.stderr.read()
        said = subprocess.run(words(main['command']), capture_output=True, text=True, check=True).stdout
        assert said.split() == sorted(os.listdir(where / 'weights/1500'))
    finally:
        daemon.terminate()
        daemon.communicate(timeout=120)
    assert daemon.returncode == 0


def test_monitoring(mount, where):
    """The alerts are about metrics that a mount has, with the labels that it gives them, after what they are about has happened."""
    m = mount(where / 'ckpts', allow_errors=True)
    (m / 'latest/state/step.json').read_text()
    with pytest.raises(PermissionError):
        os.mkdir(m / '7')
    (where / 'textfile').mkdir()
    copy = block('Monitoring', 'sh').replace('/mnt/weights', str(m.path)).replace('/var/lib/node_exporter/textfile', str(where / 'textfile'))
    subprocess.run(['sh', '-ec', copy], check=True)
    (file,) = (where / 'textfile').iterdir()
    samples = [s for f in text_string_to_metric_families(file.read_text()) for s in f.samples]
    assert file.suffix == '.prom'
    (group,) = yaml.safe_load(block('Monitoring', 'yaml'))['groups']
    assert len(group['rules']) == 2
    for rule in group['rules']:
        (name,) = re.findall(r'pytreefs_\w+', rule['expr'])
        labels = set(re.search(r'by \((.*?)\)', rule['expr'])[1].split(', ')) - {'instance'}
        wanted = dict(re.findall(r'(\w+)="(\w+)"', rule['expr']))
        assert [s for s in samples if s.name == name and labels <= set(s.labels) and wanted.items() <= s.labels.items() and s.value > 0], rule


# ---- buckets ----

def test_maxtext(where, env, gs_bucket, gs, build):
    """The export of the parameters of a checkpoint that MaxText has written."""
    shutil.copytree(MAXTEXT / '1', where / 'run/1000')
    gs_bucket.upload(where / 'run', 'maxtext/checkpoints')
    typed(put_in_place(block('MaxText', 'sh'), BUCKET=BUCKET, RUN='maxtext'), where, dict(os.environ, PATH=env['PATH']))
    got = read_bfloat16(where / 'weights.safetensors')
    want = ocp.PyTreeCheckpointer().restore(MAXTEXT / '1/items')['params']['params']
    assert len(got) == 12 and all(name.startswith('params.params.') for name in got)
    for name, wanted in (('decoder.layers.mlp.wi_0.kernel', want['decoder']['layers']['mlp']['wi_0']['kernel']),
                         ('token_embedder.embedding', want['token_embedder']['embedding'])):
        assert np.array_equal(got[f'params.params.{name}'], np.asarray(wanted).astype(ml_dtypes.bfloat16).astype(np.float32))


def read_bfloat16(path):
    """name -> array of float32: numpy has no bfloat16."""
    with safetensors.safe_open(path, 'pt') as f:
        return {name: f.get_tensor(name).float().numpy() for name in f.keys()}


def test_buckets(where, env, s3_bucket, s3, program):
    s3_bucket.upload(SAMPLE, 'run7')
    subprocess.run([program, 'export', '-q', where / 'ckpts/1500/state/params', f'{where}/files/'], check=True)
    (where / 'mnt').mkdir()
    script = put_in_place(block('Buckets', 'sh'), **{'BUCKET': BUCKET, '/var/cache/weights': where / 'cache'})
    said = typed(script, where, dict(os.environ, PATH=env['PATH']))
    assert said.startswith('1000/\n1500/\n') and ' 0 errors' in said
    table = (where / 'files/embed/table.npy').read_bytes()
    assert (where / 'mnt/1500/state/params/embed/table.npy').read_bytes() == table
    saved = subprocess.run([program, 'cat', f's3://{BUCKET}/run7/1700/default/embed/table.npy'], capture_output=True, check=True)
    assert saved.stdout == table
    subprocess.run([program, 'umount', where / 'mnt'], check=True)
