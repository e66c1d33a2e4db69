# SPDX-License-Identifier: Apache-2.0
"""Every checkpoint that is read from a directory, from S3, GCS and a web server over https: the same to the byte.

The buckets are proxies before directories (lib/objects.py): what is compared is what the program makes of them. tests/mount/test_buckets.py
has moto and the emulator instead, and mounts.
"""

import json
import os
import random
import shutil

import pytest

import pytreefs
from lib import buckets, checkpoints, gcs as gcs_server, objects, old, seen, servers, visible_damage
from lib.pairs import LONG
from pytreefs import _pytreefs as native

OLD = {f'{release}-{name}': (release, name) for release, name in old.names()}
# A bucket without objects has no directory, either.
NOTHING = {'empty-root'}
# Items and steps of which a web server does not show everything, because it cannot list directories (docs/buckets.md).
NEED_LISTING = {
    # Files of items and leaves that are not trees.
    'custom-handler/', 'opaque-item/1',
    # Items that the metadata of their step do not name.
    'step-of-two-times/1', 'unusual-step/',
    # Arrays in directories of their own, and no _METADATA.
    'metadata-missing-perleaf/',
    'zarr2-perleaf/', 'zarr3-perleaf/', 'zarr-python/', 'zarr-nested-directories/', 'sparse/', 'sparse-small/', 'strings-per-leaf/',
    # Steps that are files.
    '0.5.20-flax/checkpoint_3', '0.5.20-flax/checkpoint_12',
    # Databases of processes that were never merged, and manifests with numbers.
    'unmerged/', 'unmerged-part-missing/', 'unmerged-two-processes/', 'numbered-manifests/',
}


def case_of(name):
    return old.get(*OLD[name]) if name in OLD else checkpoints.get(name)


def as_uploaded(directory, copy):
    """The directory, or what a copy of its files to a bucket and back would be: without links and empty directories."""
    if all(files or names for _, names, files in os.walk(directory)) and not any(p.is_symlink() for p in directory.rglob('*')):
        return directory
    for key, path in objects.files(directory).items():
        (copy / key).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy / key)
    return copy


@pytest.fixture(scope='module')
def serve(tmp_path_factory):
    """serve(name, directory): {vendor: URL} of a directory."""
    tmp, directories = tmp_path_factory.mktemp('servers'), {}
    (tmp / 'web').mkdir()
    cert = servers.certificate(tmp)
    with buckets.Proxy(objects.S3(directories)) as s3, gcs_server.Proxy(objects.GCS(directories)) as gs, gcs_server.Vendor(gs) as vendor, \
            servers.nginx(tmp / 'nginx', tmp / 'web', cert) as web, pytest.MonkeyPatch.context() as env:
        for name in [n for n in os.environ if n.startswith(('AWS_', 'GOOGLE_', 'CLOUDSDK_', 'GCE_', 'STORAGE_EMULATOR', 'TENSORSTORE_GCS'))]:
            env.delenv(name)
        for name, value in (s3.environment(tmp) | gcs_server.environment(gs, vendor, tmp)).items():
            env.setenv(name, value)
        env.setenv('SSL_CERT_FILE', str(cert[0]))

        def do(name, directory):
            directories[name] = directory
            (tmp / 'web' / name).symlink_to(directory)
            return {'s3': f's3://models/{name}', 'gs': f'gs://models/{name}', 'https': f'{web}/{name}'}
        yield do


def in_bucket(source, **options):
    with seen.Sight(source, **options) as s:
        s.tree()
        s.directory()
        s.stored()
        return s.found


def on_web(source):
    """As in_bucket(), without sizes that take a listing, and the stored files, which are those with names that the program knows."""
    with seen.Sight(source) as s:
        s.tree(native.TREE_VALUES)
        s.directory()
        found = dict(s.found)
        s.stored()
        return found, {key: value for key, value in s.found.items() if key not in found}


def bucket_faults(directory, urls):
    want = in_bucket(directory)
    for vendor in ('s3', 'gs'):
        # Steps that were copied have no marker.
        for line in seen.differences(want, in_bucket(urls[vendor], atomicity='rename')):
            yield f'{vendor}: {line}'


def web_sources(case, directory):
    """Committed steps that name their items, and items of others."""
    steps = set()
    for document in directory.rglob('_CHECKPOINT_METADATA'):
        step = document.parent.relative_to(directory).as_posix().lstrip('.')
        if 'item_handlers' in document.read_text() and isinstance(json.loads(document.read_text())['item_handlers'], dict) and '-tmp' not in step:
            steps.add(step)
    return sorted(steps | {where for where in case.trees if where not in steps and os.path.dirname(where) not in steps})


def web_faults(directory, url, below, needs_listing=False):
    want, want_stored = on_web(directory / below)
    got, stored = on_web(f'{url}/{below}'.rstrip('/'))
    faults = [f'{below}: {line}' for line in seen.differences(want, got)]
    if needs_listing:
        # Bytes are those of the disk, or there are none.
        assert faults, f'{directory.name}/{below} is among NEED_LISTING'
        faults = []
    for found, disk in ((got, want), (stored, want_stored)):
        faults += [f'{below}: other {fact} of {name!r}' for (name, fact), value in found.items()
                   if fact in ('bytes', 'size') and isinstance(value, (bytes, int)) and value != disk.get((name, fact), value)]
    if 'open' not in {fact for _, fact in got} and not any(isinstance(value, bytes) for value in stored.values()):
        faults.append(f'{below}: no stored file')
    return faults


@pytest.mark.parametrize('name', [*(n for n in checkpoints.names() if n not in NOTHING), *OLD])
def test_checkpoint(serve, tmp_path, name):
    case = case_of(name)
    directory = as_uploaded(case.path, tmp_path / 'uploaded')
    urls = serve(name, directory)
    faults = list(bucket_faults(directory, urls))
    for below in web_sources(case, directory):
        faults += [f'https: {line}' for line in web_faults(directory, urls['https'], below, f'{name}/{below}' in NEED_LISTING)]
    assert not faults, '\n'.join(faults[:40])


# ---- damage ----

DAMAGES = [
    # A checksum, or the decoder.
    ('record', 'matrix-ocdbt-zarr2-zstd-v0'), ('record', 'merged-two-processes'), ('sealed_record', 'matrix-ocdbt-zarr3-zstd-v0'),
    ('frame', 'matrix-ocdbt-zarr2-zstd-v0'), ('frame', 'matrix-perleaf-zarr2-zstd-v0'), ('shard_index', 'mesh-perleaf-zarr3-v0'),
    # Lengths.
    ('cut', 'matrix-ocdbt-zarr3-zstd-v0'), ('cut', 'matrix-perleaf-zarr2-zstd-v0'), ('cut', 'aggregate-by-hand'),
    ('tail', 'matrix-perleaf-zarr2-zstd-v0'),
    # Names.
    ('gone', 'matrix-ocdbt-zarr2-zstd-v0'), ('gone', 'matrix-perleaf-zarr3-zstd-v0'),
    # Documents.
    ('json_byte', 'matrix-ocdbt-zarr2-zstd-v0'), ('json_byte', 'matrix-perleaf-zarr3-zstd-v0'), ('lost_entry', 'matrix-ocdbt-zarr3-zstd-v0'),
    ('other_name', 'matrix-perleaf-zarr2-zstd-v0'), ('other_shape', 'matrix-perleaf-zarr3-zstd-v0'), ('other_type', 'matrix-perleaf-zarr2-zstd-v0'),
]


def damage(case, how, directory):
    """A copy of a case with the first damage that can be noticed without verify; what is found in the case and in the copy."""
    sound = in_bucket(case.path)
    for seed in range(100):
        item = directory / str(seed)
        shutil.copytree(case.path, item)
        found = in_bucket(item) if getattr(visible_damage, how)(random.Random(seed), item) else None
        if found and any(found.get(key) != value for key, value in sound.items() if not key[0].startswith(seen.STORED)):
            return item, sound, found
    raise AssertionError(f'no {how} can be noticed')


def verified(source):
    """Errors of a verification: their leaves and texts, as of any other source."""
    found = pytreefs.verify(source)
    assert found['unchecked'] == 0
    return sorted((f['leaf'] or '', f['text'].replace(str(source), 'SOURCE')) for f in found['findings'] if f['severity'] == 'error')


@pytest.mark.parametrize('name', ['matrix-perleaf-zarr2-zstd-v0', 'chunked-perleaf-zarr3-v0', 'matrix-ocdbt-zarr3-zstd-v0'])
def test_verify_reads_every_chunk(serve, name):
    """Also where chunks in directories cannot be listed."""
    case = case_of(name)
    urls = serve(f'verified-{name}', case.path)
    counts = [{k: found[k] for k in ('errors', 'warnings', 'chunks', 'stored_bytes', 'decoded_bytes', 'without_checksum')}
              for found in map(pytreefs.verify, (case.path, *urls.values()))]
    assert counts[0]['chunks'] and counts == counts[:1] * 4


@pytest.mark.parametrize('how, name', DAMAGES if LONG else {how: (how, name) for how, name in reversed(DAMAGES)}.values())
def test_damage(serve, tmp_path, how, name):
    """The same leaves are errors, with the same errno and text, and the others have the same bytes; verify finds the same errors."""
    item, sound, found = damage(case_of(name), how, tmp_path)
    same = [key for key, value in found.items() if key[1] == 'bytes' and isinstance(value, bytes) and value == sound.get(key)]
    assert same or ('', 'open') in found
    item = as_uploaded(item, tmp_path / 'uploaded')
    urls = serve(f'{how}-{name}', item)
    faults = [*bucket_faults(item, urls), *web_faults(item, urls['https'], '')]
    want = verified(item)
    for vendor, url in urls.items():
        got = verified(url)
        # Directories of no leaf, and databases of processes beside a merged one, take a listing.
        if got != want and not (vendor == 'https' and got and set(got) < set(want)):
            faults.append(f'{vendor}: verify gives {got}, on the disk {want}')
    assert not faults, '\n'.join(faults[:40])
