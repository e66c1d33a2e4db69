# SPDX-License-Identifier: Apache-2.0
"""`python -m pytreefs` is the program pytreefs."""

import os
import sys


def main() -> None:
    from ._program import program
    words = [program(), *sys.argv[1:]]
    os.execv(words[0], words)


if __name__ == '__main__':
    main()
