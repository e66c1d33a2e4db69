#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A file as a C array: embed.py IN OUT NAME. The build calls it."""

import pathlib
import sys

source, target, name = sys.argv[1:]
data = pathlib.Path(source).read_bytes()
rows = [', '.join(str(b) for b in data[i:i + 24]) for i in range(0, len(data), 24)]
pathlib.Path(target).write_text(
    f'#include <stddef.h>\n\nextern const char {name}[];\nextern const size_t {name}_size;\n\n'
    f'const char {name}[] = {{\n\t' + ',\n\t'.join(rows) + f'\n}};\nconst size_t {name}_size = {len(data)};\n')
