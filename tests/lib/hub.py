# SPDX-License-Identifier: Apache-2.0
"""The cache of the Hugging Face hub, as huggingface_hub makes it: a snapshot is a tree of links to the files in `blobs`."""

import hashlib
import os
import pathlib
import shutil

REVISION = '0123456789abcdef0123456789abcdef01234567'


def snapshot(source, cache, repository='models--org--name', revision=REVISION):
    """Put a file or a directory into a cache, and return its path in a snapshot."""
    source, top = pathlib.Path(source), pathlib.Path(cache) / repository
    (top / 'blobs').mkdir(parents=True, exist_ok=True)
    (top / 'refs').mkdir(exist_ok=True)
    (top / 'refs/main').write_text(revision)
    for file in [source] if source.is_file() else [p for p in sorted(source.rglob('*')) if p.is_file()]:
        blob = top / 'blobs' / hashlib.sha256(file.read_bytes()).hexdigest()
        shutil.copyfile(file, blob)
        link = top / 'snapshots' / revision / (file.name if file == source else file.relative_to(source))
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    return top / 'snapshots' / revision / (source.name if source.is_file() else '')
