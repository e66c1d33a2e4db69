# SPDX-License-Identifier: Apache-2.0
"""docs/examples: what they print, killed and run again."""

import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import pytreefs

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / 'docs/examples/nnx.py'
ENVIRONMENT = dict(os.environ, XLA_FLAGS='--xla_force_host_platform_device_count=8', JAX_PLATFORMS='cpu')


def losses(directory, steps, mesh):
    """{step: loss} of one run of the example to its end."""
    r = subprocess.run([sys.executable, '-W', 'ignore', EXAMPLE, directory, str(steps), mesh], capture_output=True, text=True, timeout=600, env=ENVIRONMENT)
    assert r.returncode == 0, r.stderr[-3000:]
    return {int(step): float(loss) for step, loss in re.findall(r'step (\d+): loss (\S+)', r.stdout)}


def killed(directory, steps, mesh, after, seconds):
    """Kill a run so many seconds after it has printed that step."""
    with subprocess.Popen([sys.executable, '-W', 'ignore', EXAMPLE, directory, str(steps), mesh], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          env=ENVIRONMENT, start_new_session=True) as p:
        for line in p.stdout:
            if line.startswith(f'step {after}:'):
                break
        time.sleep(seconds)
        os.killpg(p.pid, signal.SIGKILL)


@pytest.mark.feature('H2', 'H4')
def test_training_goes_on_after_a_kill_on_another_mesh(run, tmp_path):
    """The losses are those of a run that nobody killed; each step that is there is whole; the weights go to other programs."""
    want = losses(tmp_path / 'whole', 9, '1x1')
    killed(tmp_path / 'ckpts', 1000, '2x4', 5, random.random())
    left = [step.name for step in (tmp_path / 'ckpts').iterdir() if step.name.isdigit()]
    assert left and all(run('verify', tmp_path / 'ckpts' / step).returncode == 0 for step in left)
    begin = max(map(int, left))
    got = losses(tmp_path / 'ckpts', begin + 3, '4x2')
    assert sorted(got) == [begin + 1, begin + 2, begin + 3]
    if begin < 9:
        assert np.isclose(got[begin + 1], want[begin + 1], rtol=1e-3), (got, want)
    run('export', tmp_path / f'ckpts/{begin + 3}/default/0', tmp_path / 'model.safetensors')
    from safetensors.numpy import load_file
    kernel = load_file(tmp_path / 'model.safetensors')['first.kernel.value']
    assert np.array_equal(kernel, pytreefs.load(tmp_path / f'ckpts/{begin + 3}/default/0/first/kernel/value'))
