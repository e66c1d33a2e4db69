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
    r = subprocess.run(command, capture_output=True, text=True)
    return r.stdout if r.returncode == 0 else ''


def libraries(programs):
    """The files that the loader maps for them."""
    return sorted({m[1] for program in programs for m in re.finditer(r'(?:=>|^)\s*(/\S+)', output_of('ldd', program), re.M)})


def package_of(file):
    """(name, version) of the Debian package that a file is of; None: of none."""
    # dpkg may know it by the name that it had before /lib became a link to /usr/lib.
    for name in (file, str(pathlib.Path(file).resolve()), file.replace('/usr/lib/', '/lib/', 1)):
        found = output_of('dpkg', '-S', name).split(': ')[0].strip()
        if found:
            return output_of('dpkg-query', '-W', '-f=${Package} ${Version}', found).split(' ', 1)
    return None


def component(file):
    ret = {'type': 'library', 'name': pathlib.Path(file).name,
           'hashes': [{'alg': 'SHA-256', 'content': hashlib.sha256(pathlib.Path(file).read_bytes()).hexdigest()}]}
    package = package_of(file)
    if package:
        name, version = package
        ret.update(version=version, purl=f'pkg:deb/debian/{name}@{version}')
    return ret


def main():
    if len(sys.argv) < 4:
        print(__doc__, file=sys.stderr)
        return 2
    *programs, version, target = sys.argv[1:]
    document = {
        'bomFormat': 'CycloneDX', 'specVersion': '1.5', 'version': 1,
        'metadata': {'component': {'type': 'application', 'name': pathlib.Path(programs[0]).name, 'version': version,
                                   'licenses': [{'license': {'id': 'Apache-2.0'}}]}},
        'components': [component(file) for file in libraries(programs)],
    }
    pathlib.Path(target).write_text(json.dumps(document, indent=2) + '\n')
    print(f'{target}: {len(document["components"])} libraries')
    return 0


if __name__ == '__main__':
    sys.exit(main())
