# SPDX-License-Identifier: Apache-2.0
"""The parts of a release: one version, the list of libraries, the nightly's commands, the unit of systemd, README's numbers."""

import json
import pathlib
import re
import shlex
import subprocess

from bench import readme

TOP = pathlib.Path(__file__).resolve().parents[2]


def test_the_list_of_libraries_is_what_is_linked(program, run, tmp_path):
    version = run('--version').stdout.split()[1]
    programs = [f for f in (program, program + '-url') if pathlib.Path(f).exists()]
    for name in ('a', 'b'):
        subprocess.run([TOP / 'tools/sbom.py', *programs, version, tmp_path / name], check=True, stdout=subprocess.DEVNULL)
    assert (tmp_path / 'a').read_bytes() == (tmp_path / 'b').read_bytes()
    listed = json.loads((tmp_path / 'a').read_text())
    assert listed['bomFormat'] == 'CycloneDX' and listed['metadata']['component']['version'] == version
    names = {c['name'] for c in listed['components']}
    for file in programs:
        dynamic = subprocess.run(['readelf', '--dynamic', '--wide', file], capture_output=True, text=True, check=True).stdout
        assert set(re.findall(r'\(NEEDED\).*\[(.*)\]', dynamic)) <= names


def test_the_version_is_in_one_place(run):
    version = re.search(r"^  version: '(.*)',$", (TOP / 'meson.build').read_text(), re.M)[1]
    assert run('--version').stdout.split()[1] == version
    found = [path for path in ('debian', 'Containerfile', 'compose.yaml', '.github', 'tools') for at in [TOP / path]
             for file in ([at] if at.is_file() else at.rglob('*'))
             if file.is_file() and file.suffix not in ('.so', '.pyc') and f'pytreefs {version}' in file.read_text(errors='replace')]
    assert not found, found


def test_the_nightly_names_commands_that_are_there():
    said = subprocess.run([TOP / 'tests/nightly', '-n'], capture_output=True, text=True, check=True).stdout
    page = (TOP / 'tests/README.md').read_text()
    lines = re.findall(r'^== (\w+): (.*)$', said, re.M)
    assert len(lines) == 10
    for part, command in lines:
        assert f'| `{part}` |' in page, f'tests/README.md does not say what {part} takes'
        for word in shlex.split(command.replace(';', ' ')):
            if word.startswith('tests/') and '$' not in word:
                assert (TOP / word).exists(), word
    assert (TOP / '.github/workflows/nightly.yml').read_text().count('tests/nightly') == 1
    assert '.ci/run' in (TOP / '.github/workflows/ci.yml').read_text()


def test_the_unit_gives_its_mount_no_namespace():
    """Nobody else would see the mount."""
    unit = (TOP / 'debian/pytreefs.pytreefs@.service').read_text()
    set_up = dict(re.findall(r'^(\w+)=(.*)$', unit, re.M))
    assert not {'ProtectSystem', 'ProtectHome', 'PrivateTmp', 'PrivateDevices', 'ReadOnlyPaths', 'ProtectKernelTunables'} & set(set_up)
    assert 'sandbox=require' in set_up['ExecStart'] and set_up['NoNewPrivileges'] == 'yes'


def test_the_numbers_of_the_readme_are_those_of_the_benchmarks():
    """tests/bench/run writes both; by hand it is `cd tests && python3 -m bench.readme`."""
    page = readme.DOC.read_text()
    assert readme.block(page) in readme.README.read_text()
    # A row that is slower than its peer is below 1, whichever way round its target is written.
    ratios = readme.measured(page)
    assert len(ratios) > 40 and ratios['raw chunk, random 4 KiB, p50', 'tmpfs'] < 1
    changed = re.sub(r'(Orbax save: [^|]*\|) [\d.]+', r'\1 77.01', page)
    assert changed != page and '77.01' in readme.block(changed)
    # A peer that could not be installed leaves its place empty.
    row = next(line for line in page.splitlines() if line.startswith('| pytreefs.load, not compressed |'))
    cells = row.split(' | ')
    cells[2:4] = ['TensorStore: not installed', '[1 s 1 s]']
    assert '| the same, not compressed |  |  |  |' in readme.block(page.replace(row, ' | '.join(cells)))
