#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the golden checkpoints of older releases of Orbax: tests/data/old/<release>/.

usage: make_old.py [--venvs DIR] [--out DIR] [RELEASE ...]

Each release gets an environment of its own (Python 3.11) with the versions that it runs with, and
old_writer.py writes the same small tree there in every way that the release knows. The results are
committed; this script is for making them again, and the record of how they were made.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent

JAX_0_4_13 = ['jax==0.4.13', 'jaxlib==0.4.13', 'tensorstore==0.1.40', 'ml_dtypes==0.2.0', 'numpy==1.26.4',
              'scipy==1.11.4']
JAX_0_4_20 = ['jax==0.4.20', 'jaxlib==0.4.20', 'tensorstore==0.1.45', 'ml_dtypes==0.3.1', 'numpy==1.26.4',
              'scipy==1.11.4']
JAX_0_4_30 = ['jax==0.4.30', 'jaxlib==0.4.30', 'tensorstore==0.1.64', 'ml_dtypes==0.4.1', 'numpy==1.26.4',
              'scipy==1.14.1']
JAX_0_4_38 = ['jax==0.4.38', 'jaxlib==0.4.38', 'tensorstore==0.1.71', 'ml_dtypes==0.5.1', 'numpy==2.2.6']
JAX_0_5_0 = ['jax==0.5.0', 'jaxlib==0.5.0', 'tensorstore==0.1.71', 'ml_dtypes==0.5.1', 'numpy==2.2.6']
JAX_0_7_2 = ['jax==0.7.2', 'jaxlib==0.7.2', 'tensorstore==0.1.76', 'ml_dtypes==0.5.4', 'numpy==2.3.5']
JAX_0_10_2 = ['jax==0.10.2', 'jaxlib==0.10.2', 'tensorstore==0.1.86', 'ml_dtypes==0.6.0', 'numpy==2.4.6']

BOTH = ['pytree', 'per_leaf', 'manager']
ZARR3 = BOTH + ['zarr3', 'zarr3_per_leaf']

# release -> (what to install beside it, the cases of old_writer.py)
RELEASES = {
    '0.2.7': (JAX_0_4_13, ['pytree', 'ocdbt', 'manager']),
    '0.3.5': (JAX_0_4_13, ['pytree', 'ocdbt', 'manager', 'slashes']),
    '0.4.0': (JAX_0_4_20, BOTH + ['slashes', 'standard']),
    '0.4.1': (JAX_0_4_20, BOTH + ['slashes', 'standard']),
    '0.4.2': (JAX_0_4_20, BOTH + ['slashes', 'standard']),
    '0.4.3': (JAX_0_4_30, BOTH),
    '0.4.8': (JAX_0_4_30, BOTH + ['aggregate']),
    '0.5.15': (JAX_0_4_30, BOTH + ['zarr3', 'aggregate', 'subchunks']),
    '0.5.20': (JAX_0_4_30 + ['flax==0.8.5'], BOTH + ['flax']),
    '0.5.23': (JAX_0_4_30, ZARR3),
    '0.6.4': (JAX_0_4_30, ZARR3),
    '0.7.0': (JAX_0_4_38, ZARR3),
    '0.8.0': (JAX_0_5_0, ZARR3),
    '0.9.1': (JAX_0_5_0, ZARR3),
    '0.10.3': (JAX_0_5_0, ZARR3),
    '0.11.9': (JAX_0_5_0, ZARR3),
    '0.11.33': (JAX_0_7_2, ZARR3),
    '0.12.4': (JAX_0_10_2, ZARR3),
}


def environment(venvs, release, pins):
    """The Python of the release's environment, made when it is not there."""
    venv = venvs / release
    python = venv / 'bin' / 'python'
    stamp = venv / 'pins'
    wanted = '\n'.join([f'orbax-checkpoint=={release}'] + pins) + '\n'
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    if venv.exists():
        shutil.rmtree(venv)
    subprocess.run([sys.executable, '-m', 'venv', str(venv)], check=True)
    subprocess.run([python, '-m', 'pip', 'install', '-q', f'orbax-checkpoint=={release}'] + pins, check=True)
    stamp.write_text(wanted)
    return python


def make(venvs, out, release):
    pins, cases = RELEASES[release]
    python = environment(venvs, release, pins)
    with tempfile.TemporaryDirectory() as tmp:
        made = pathlib.Path(tmp) / release
        subprocess.run([python, HERE / 'old_writer.py', release, made] + cases, check=True, cwd=tmp)
        target = out / release
        if target.exists():
            shutil.rmtree(target)
        shutil.copytree(made, target, symlinks=True)
    size = sum(p.stat().st_size for p in target.rglob('*') if p.is_file())
    print(f'{release}: {len(cases)} cases, {size} bytes')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--venvs', type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / 'old-orbax')
    parser.add_argument('--out', type=pathlib.Path, default=HERE.parent / 'data' / 'old')
    parser.add_argument('releases', nargs='*', default=list(RELEASES), metavar='RELEASE')
    args = parser.parse_args()
    if sys.version_info[:2] != (3, 11):
        sys.exit('make_old.py: needs Python 3.11: the oldest jaxlib has no other wheels')
    for release in args.releases:
        make(args.venvs, args.out, release)


if __name__ == '__main__':
    main()
