# SPDX-License-Identifier: Apache-2.0
"""The program pytreefs, and what its commands print as JSON."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from . import _pytreefs as lib
from ._context import Path, options_text, warn
from ._pytreefs import Error, NotFoundError

if TYPE_CHECKING:
    import subprocess


def _of_package() -> str | None:
    """The program that this package was installed with."""
    import importlib.metadata
    try:
        files = importlib.metadata.files('pytreefs') or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for f in files:
        if f.name == 'pytreefs' and f.parent.name in ('bin', 'scripts'):
            found = os.path.realpath(str(f.locate()))
            return found if os.access(found, os.X_OK) else None
    return None


def program() -> str:
    """The path of the program: PYTREEFS_PROGRAM of the environment, the one of this package, or the one on PATH."""
    import shutil
    beside = os.path.join(os.path.dirname(sys.executable), 'pytreefs')
    found = os.environ.get('PYTREEFS_PROGRAM') or _of_package() or (
        beside if os.access(beside, os.X_OK) else None) or shutil.which('pytreefs')
    if not found:
        raise NotFoundError(errno.ENOENT, 'the program pytreefs is neither beside this Python nor on PATH', 'pytreefs')
    return found


def is_missing(path: str) -> bool:
    """Whether there is nothing of that name, for a command that failed; names like `latest` are not those of files."""
    if '://' in path:
        return False
    try:
        lib.Checkpoint(path, '').close()
    except NotFoundError:
        return True
    except Error:
        pass
    return False


def _environment() -> dict[str, str]:
    """Of a program that does its work alone, also below a rank of an MPI job."""
    return {name: value for name, value in os.environ.items() if not name.startswith(('OMPI_', 'PMIX_'))}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    import subprocess
    return subprocess.run([program(), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, errors='replace', check=False, env=_environment())


def convert(source: str, out: str, words: list[str], options: Mapping[str, Any], wait: Callable[[], object]) -> None:
    """`pytreefs convert`. wait is called some 20 times a second; after an exception of it nothing is written."""
    import subprocess
    import tempfile
    if options:
        words = [*words, '-o', options_text(options)]
    with tempfile.TemporaryFile() as said:
        job = subprocess.Popen([program(), 'convert', '--quiet', *words, '--', source, out], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=said, env=_environment())
        try:
            while job.poll() is None:
                wait()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    job.wait(0.05)
        except BaseException:
            job.terminate()
            job.wait()
            raise
        said.seek(0)
        text = said.read().decode(errors='replace').strip().removeprefix('pytreefs: ')
    if job.returncode:
        raise Error(errno.EINVAL if job.returncode == 2 else errno.EIO,
                    text or f'the command convert ended with status {job.returncode}', out)
    if text:
        warn(text)


def _command(name: str, paths: list[str], words: list[str], options: dict[str, Any]) -> Any:
    """The output of a command with --json. Status 1 with a document: it found something. Status 2 of a command that checks: it failed,
    or could not check a part, and then the document of `diff` or `verify` counts what is unreadable or unchecked."""
    import json
    if options:
        words = [*words, '-o', options_text(options)]
    r = run(name, '--json', '--quiet', *words, '--', *paths)
    try:
        found = json.loads(r.stdout)
        if isinstance(found, list):             # it does not count what it lacks
            failed = r.returncode == 2 and not found
        else:
            failed = 'error' in found or (r.returncode == 2 and not found.get('unreadable', 1))
        if not failed and r.returncode == 2:
            warn(f'{paths[0]}: without what could not be read: {r.stderr.strip()}')
        if not failed:
            return found
    except ValueError:
        pass
    text = r.stderr.strip().removeprefix('pytreefs: ') or f'the command {name} ended with status {r.returncode}'
    # These have the statuses of diff(1), where 2 is not only wrong usage.
    wrong = r.returncode == 2 and (name not in ('diff', 'stats', 'verify') or text.startswith(f'pytreefs {name}: '))
    for path in paths:
        if not wrong and is_missing(path):
            raise NotFoundError(errno.ENOENT, text, path)
    raise Error(errno.EINVAL if wrong else errno.EIO, text, paths[0])


def _words(only: str | None, **given: Any) -> list[str]:
    out = [] if only is None else ['--only', only]
    for name, value in given.items():
        if value is not None and value is not False:
            out += ['--' + name.replace('_', '-'), *([] if value is True else [str(value)])]
    return out


def verify(path: Path, level: int = 3, only: str | None = None, **options: Any) -> dict[str, Any]:
    """The output of `pytreefs verify --json` for a directory of steps, a step or an item: every record, reference,
    statistic and chunk (level 1: metadata; 2: references; 3: chunks).

    >>> verify('ckpts/latest')['errors']
    0
    """
    found: dict[str, Any] = _command('verify', [os.fspath(path)], _words(only, level=level), options)
    return found


def diff(a: Path, b: Path, atol: float = 0, rtol: float = 0, ignore_dtype: bool = False, only: str | None = None, **options: Any) -> dict[str, Any]:
    """The output of `pytreefs diff --json`: how two checkpoints differ in structure, dtypes, shapes and values. A warning names what
    could not be read, which is not compared.

    >>> diff('ckpts/1000/state', 'ckpts/1000/state')['differences']
    []
    """
    found: dict[str, Any] = _command('diff', [os.fspath(a), os.fspath(b)],
                                     _words(only, atol=atol or None, rtol=rtol or None, ignore_dtype=ignore_dtype), options)
    return found


def stats(path: Path, only: str | None = None, **options: Any) -> list[dict[str, Any]]:
    """The output of `pytreefs stats --json`: least, greatest, mean, std, NaN and Inf counts of each leaf. A warning names leaves
    that could not be read, which are not in it; Error if there is no other.

    >>> stats('ckpts/latest/state', only='step')[0]['max']
    1500
    """
    found: list[dict[str, Any]] = _command('stats', [os.fspath(path)], _words(only), options)
    return found
