#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: tools/sbom.py PROGRAM... VERSION OUTPUT

What programs are linked with on this machine, as a CycloneDX 1.5 document with the name of the first one: each shared library with
its SHA-256 and, where dpkg knows, the package and version that it comes from. The same programs on the same machine give the same bytes.
"""

import hashlib
import json
import pathlib
import re
import subprocess
import sys


def output_of(*command):
    """Also of a command that has found only a part of what it was asked for."""
    return subprocess.run(command, capture_output=True, text=True).stdout


def libraries(programs):
    """The files that the loader maps for them."""
    return sorted({m[1] for program in programs for m in re.finditer(r'(?:=>|^)\s*(/\S+)', output_of('ldd', program), re.M)})


def names_of(file):
    """dpkg may know it by the name that it had before /lib became a link to /usr/lib."""
    return file, str(pathlib.Path(file).resolve()), file.replace('/usr/lib/', '/lib/', 1)


def packages_of(files):
    """{file: (name, version)} for each one that is of a Debian package."""
    # One question each for all, since dpkg reads the lists of all packages.
    lines = output_of('dpkg', '-S', *{name for f in files for name in names_of(f)}).splitlines()
    owners = {name: owner.split(', ')[0] for owner, name in (line.split(': ', 1) for line in lines if ': ' in line)}
    found = {f: next((owners[n] for n in names_of(f) if n in owners), None) for f in files}
    lines = output_of('dpkg-query', '-W', '-f=${binary:Package} ${Package} ${Version}\n', *filter(None, found.values()))
    known = {words[0]: words[1:] for words in map(str.split, lines.splitlines())}
    return {f: known[owner] for f, owner in found.items() if owner in known}


def component(file, package):
    ret = {'type': 'library', 'name': pathlib.Path(file).name,
           'hashes': [{'alg': 'SHA-256', 'content': hashlib.sha256(pathlib.Path(file).read_bytes()).hexdigest()}]}
    if package:
        name, version = package
        ret.update(version=version, purl=f'pkg:deb/debian/{name}@{version}')
    return ret


def main():
    if len(sys.argv) < 4:
        print(__doc__, file=sys.stderr)
        return 2
    *programs, version, target = sys.argv[1:]
    files = libraries(programs)
    packages = packages_of(files)
    document = {
        'bomFormat': 'CycloneDX', 'specVersion': '1.5', 'version': 1,
        'metadata': {'component': {'type': 'application', 'name': pathlib.Path(programs[0]).name, 'version': version,
                                   'licenses': [{'license': {'id': 'Apache-2.0'}}]}},
        'components': [component(file, packages.get(file)) for file in files],
    }
    pathlib.Path(target).write_text(json.dumps(document, indent=2) + '\n')
    print(f'{target}: {len(document["components"])} libraries')
    return 0


if __name__ == '__main__':
    sys.exit(main())
