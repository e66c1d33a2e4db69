# SPDX-License-Identifier: Apache-2.0
"""coverage_table.py SUMMARY: gcovr's JSON summary as a table of folders."""

import collections
import json
import sys

COUNTS = 'line_covered', 'line_total', 'branch_covered', 'branch_total'


def row(name, counts):
    lines, all_lines, branches, all_branches = counts
    return (f'{name:22} {lines:7} of {all_lines:6} {100 * lines / max(all_lines, 1):6.1f} %'
            f' {branches:8} of {all_branches:6} {100 * branches / max(all_branches, 1):6.1f} %')


def main(path):
    folders = collections.defaultdict(lambda: [0] * len(COUNTS))
    with open(path) as f:
        files = json.load(f)['files']
    for file in files:
        folder = file['filename'].rpartition('/')[0]
        for name in (folder, folder.partition('/')[0] + ' in all', 'everything'):
            folders[name] = [a + file[count] for a, count in zip(folders[name], COUNTS)]
    print(f'{"folder":22} {"lines":>24} {"branches":>26}')
    for name in sorted(folders, key=lambda name: (name == 'everything', ' in all' in name, name)):
        print(row(name, folders[name]))
    return 0 if files else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
