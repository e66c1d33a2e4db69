# SPDX-License-Identifier: Apache-2.0
"""docs/errors.md: every message on the page is one of the program's, and those that a sample can provoke are provoked."""

import ast
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = TOP / 'tests/data/sample'
PAGE = (TOP / 'docs/errors.md').read_text()
HOME = '/home/me'           # where the page's examples are
QUOTED = [line for block in re.findall(r'```text\n(.*?)```', PAGE, re.S) for line in block.splitlines()]

# ---- each is in the source ----

LITERAL = re.compile(r'"((?:\\.|[^"\\\n])*)"(?:\s*PRI\w+)?')
STRINGS = re.compile(rf'(?:{LITERAL.pattern}\s*)+')
CONVERSION = re.compile(r'%[-+ #0]*[\d.*]*(?:hh|h|ll|l|z|j)?[a-zA-Z]')
LEAST = 5                   # letters that a part of a format must have of its own to be recognized by


def formats_of_c(text):
    for found in STRINGS.finditer(re.sub(r'/\*.*?\*/', '', text, flags=re.S)):
        # A conversion whose letters are in a macro ends with its string.
        parts = (re.sub(r'%$', '%u', part) for part in LITERAL.findall(found[0]))
        yield ''.join(parts).replace('\\n', '').replace('\\"', '"').replace("\\'", "'")


def formats_of_python(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            yield ''.join(v.value.replace('%', '%%') if isinstance(v, ast.Constant) else '%s' for v in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A text that ends with a blank continues with a value.
            yield node.value.replace('%', '%%') + ('%s' if node.value.endswith(' ') else '')


@functools.cache
def parts_of_formats():
    """Of the parts, between colons, of every text of the sources: the longest word, and a regular expression, which few need."""
    out = set()
    for top in ('core', 'handlers', 'fs', 'tools'):
        for path in [*(TOP / top).rglob('*.c'), *(TOP / top).rglob('*.h')]:
            out |= {part for text in formats_of_c(path.read_text()) for part in re.split(r'[:;] ', text)}
    for path in (TOP / 'tools/python/pytreefs').glob('*.py'):
        out |= {part for text in formats_of_python(path.read_text()) for part in re.split(r'[:;] ', text)}
    known = [part for part in out if len(re.sub(r'[^A-Za-z]', '', CONVERSION.sub('', part))) >= LEAST]
    words = [[word.replace('%%', '%') for word in CONVERSION.split(part)] for part in known]
    return [(max(w, key=len), '.*'.join(map(re.escape, w))) for w in words]


# Parts that are names of files, options and the like, or where a message comes from, or what the system says.
WHERE = re.compile(r"pytreefs( \w+)?|pytreefs\.\w*Error|\w+Error|(leaf |item )?'[^']*'(, '[^']*')*( in '[^']*')?|chunk '[^']*' \(value:[^ ]*\)|[\w./-]+|entry '.*'|PYTREEFS_OPTIONS")
SYSTEM = {os.strerror(n) for n in range(1, 134)}
CURL = re.compile(r"(Failed to connect to|Couldn't connect to) .*|Recv failure")


def is_known(part):
    # A request that was repeated adds its tries to any reason, by a format of their own.
    part = re.sub(r'^\[Errno \d+\] |, after \d+ tries$', '', part)
    return WHERE.fullmatch(part) or part in SYSTEM or CURL.fullmatch(part) or \
        any(word in part and re.fullmatch(pattern, part) for word, pattern in parts_of_formats())


@pytest.mark.parametrize('message', QUOTED)
def test_a_message_is_in_the_source(message):
    parts = re.split(r'[:;] ', message)
    unknown = [part for part in parts if not is_known(part)]
    assert not unknown, f'docs/errors.md quotes {unknown}, which no string of the sources says'
    # It is not made of names alone.
    assert [part for part in parts if not WHERE.fullmatch(re.sub(r'^\[Errno \d+\] ', '', part))]


def test_what_is_not_in_the_source_is_found():
    for message in ("the mount on '/x' was not found", 'it is broken for a reason that nobody knows', 'filters are not wanted here'):
        assert not is_known(message)


# ---- each that can be provoked is ----

FLIP = '''import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(int(sys.argv[2]))
    byte = f.read(1)[0] ^ 0x40
    f.seek(-1, 1)
    f.write(bytes([byte]))'''
HEADER = 'import sys; h = ("{" + ",".join(f"\\"t{i}\\":{{\\"dtype\\":\\"F32\\",\\"shape\\":[0],\\"data_offsets\\":[0,0]}}" for i in range(600_000)) + "}").encode(); sys.stdout.buffer.write(len(h).to_bytes(8, "little") + h)'
STATE = 'ckpts/1500/state'
TABLE = f'{STATE}/params/embed/table'
DATA = f'{STATE}/ocdbt.process_0/d/b54a65eb9b9cc15c258058c009cf5612'
ZARRAY = 'ckpts/1600/state/params.embed.table/.zarray'
PER_LEAF = 'pytreefs convert -q -o ocdbt=off ckpts/1500 ckpts/1600; rm -r ckpts/1600/state/.crc32c'
DRAFT = 'pytreefs mount ckpts mnt; mkdir -p mnt/7.tmp/default'
# It has a mount namespace of its own when it has said something.
HELD = ('pytreefs mount ckpts mnt; coproc unshare -m --propagation unchanged sh -c "echo; exec sleep 99"; read <&${COPROC[0]}; '
        'pytreefs umount mnt 2>said & until grep -q waiting said; do sleep 0.1; done; kill $COPROC_PID; wait $!; cat said >&2')
ENV = 'AWS_SHARED_CREDENTIALS_FILE=$PWD/.aws/credentials AWS_CONFIG_FILE=$PWD/.aws/config AWS_EC2_METADATA_DISABLED=true'
# Commands beside a copy of the sample; their output has these words, and the whole line is on the page.
PROVOKED = [
    ('pytreefs mount /etc mnt', "'/etc' is not a checkpoint"),
    ('mv ckpts/1500/state/manifest.ocdbt .; ln -s $PWD/manifest.ocdbt ckpts/1500/state/; pytreefs ls ckpts/1500/state', 'leads out of'),
    (f'mkdir -p bark/voices; pytreefs export -q {STATE}/params bark/m.safetensors; pytreefs cat {TABLE}.npy >bark/voices/one.npy; pytreefs ls bark',
     'is read as the .safetensors files'),
    (f'pytreefs export -q {STATE}/params m.safetensors; pytreefs mount m.safetensors mnt; mkdir mnt/x; cut -d " " -f 2- mnt/.pytreefs/log >&2',
     'files of tensors are only read'),
    ('pytreefs mount ckpts mnt; cp -r mnt/1500/state copy; pytreefs tree copy', 'it is a copy of files'),
    ('mkdir full; touch full/x; pytreefs mount ckpts full', 'which the mount would hide'),
    ('pytreefs mount ckpts mnt; pytreefs mount ckpts mnt', 'is mounted there'),
    ('mkdir ckpts/mnt; pytreefs mount ckpts ckpts/mnt', 'would show itself'),
    ('pytreefs mount -o chache=1G ckpts mnt', 'pytreefs mount: unknown option'),
    ('pytreefs mount -o cache=lots ckpts mnt', 'does not accept'),
    ('pytreefs mount -o cache ckpts mnt', 'needs a value'),
    ('pytreefs mount -o cache=1 ckpts mnt', 'is a size in bytes'),
    ('pytreefs mount -o spill=/scratch ckpts mnt', 'option spill'),
    ('PYTREEFS_OPTIONS=chache=1 pytreefs ls ckpts', 'PYTREEFS_OPTIONS: unknown option'),
    ('pytreefs mount ckpts mnt; exec 9<mnt/1500/state/step.json; pytreefs umount mnt', 'is in use'),
    (HELD, 'still mounted'),
    (HELD, 'which serves it'),
    (f'{DRAFT}; pytreefs umount mnt', 'ends with the mount'),
    (f'{DRAFT}; echo hi >mnt/7.tmp/default/notes.md; pytreefs commit mnt/7.tmp', 'it is not a leaf'),
    (f'{DRAFT}; head -c 130 mnt/1500/state/params/embed/table.npy >mnt/7.tmp/default/a.npy; pytreefs commit mnt/7.tmp', 'header announces'),
    (f'{DRAFT}; head -c 40 mnt/1500/state/rng.npy >mnt/7.tmp/default/a.npy; pytreefs commit mnt/7.tmp', 'end inside the header'),
    (f'{DRAFT}; echo maybe >mnt/7.tmp/default/b.json; pytreefs commit mnt/7.tmp', 'not JSON'),
    # A shell closes a second descriptor of what it opens, and then the commit waits for the other.
    (f'{DRAFT}; coproc py "f = open(\'mnt/7.tmp/default/c.npy\', \'wb\'); print(flush=True); import signal; signal.pause()"; '
     'read <&${COPROC[0]}; pytreefs commit mnt/7.tmp; kill $COPROC_PID', 'is open for writing'),
    (f'{DRAFT}; pytreefs commit mnt/7.tmp', 'holds no leaf'),
    (f'{DRAFT}; cp mnt/1500/state/rng.npy mnt/7.tmp/default/; pytreefs commit mnt/7.tmp abc', 'is not a name of a step'),
    (f'{DRAFT}; cp mnt/1500/state/rng.npy mnt/7.tmp/default/; pytreefs commit mnt/7.tmp 1500', 'File exists'),
    ('mkdir ckpts/7.tmp; pytreefs commit ckpts/7.tmp', 'is in no mount'),
    (f'{DRAFT}; pytreefs abort ckpts/.7.pytreefs-draft', 'is held by a live mount'),
    (f'rm {DATA}; pytreefs cat {TABLE}.npy', 'is absent'),
    (f'truncate -s 20000 {DATA}; pytreefs cat {TABLE}.npy', 'are referred to'),
    ('pytreefs convert -q -o compression=zstd:3 ckpts/1500 ckpts/1600; read f at < <(pytreefs explain ckpts/1600/state/params/embed/table.npy | '
     'sed -n "s/.*value:\\([^:]*\\):\\([0-9]*\\):.*/\\1 \\2/p"); flip ckpts/1600/state/$f $((at + 500)); '
     'pytreefs cat ckpts/1600/state/params/embed/table.npy', "(value:d/"),
    (f"printf 'version https://git-lfs.github.com/spec/v1\noid sha256:{'ab' * 32}\nsize 99\n' >{STATE}/_METADATA; pytreefs ls {STATE}", 'Git LFS pointer'),
    (f'flip {STATE}/manifest.ocdbt 40; pytreefs cat {TABLE}.npy', 'manifest: crc32c'),
    (f'truncate -s 100 {STATE}/_METADATA; pytreefs cat {TABLE}.npy', 'the document is truncated'),
    (PER_LEAF + '; rm -r ckpts/1600/state/params.embed.table; pytreefs cat ckpts/1600/state/params/embed/table.npy', 'its array is not stored'),
    (f'find {STATE} -name manifest.ocdbt -delete; pytreefs cat {TABLE}.npy', 'no manifest.ocdbt'),
    (f'rm {STATE}/manifest.ocdbt; pytreefs tree {STATE}', 'was never merged'),
    (PER_LEAF + f'; sed -i s/\\"filters\\":null/\\"filters\\":[{{\\"id\\":\\"delta\\"}}]/ {ZARRAY}; '
     'pytreefs cat ckpts/1600/state/params/embed/table.npy', 'filters are not supported'),
    (PER_LEAF + f'; sed -i s/zstd/pcodec/ {ZARRAY}; pytreefs cat ckpts/1600/state/params/embed/table.npy', "codec 'pcodec'"),
    (PER_LEAF + f'; sed -i s/\\"level\\":1/\\"level\\":1,\\"checksum\\":false/ {ZARRAY}; pytreefs cat ckpts/1600/state/params/embed/table.npy',
     "the member 'checksum'"),
    (PER_LEAF + f'; sed -i s/bfloat16/"|S3"/ {ZARRAY}; pytreefs cat ckpts/1600/state/params/embed/table.npy', 'texts of a fixed length'),
    (f'pytreefs cat {STATE}/params/embed/tabel.npy', 'did you mean'),
    (f"pytreefs cat '{TABLE}[0:600].npy'", 'the box leaves axis 0'),
    (f"pytreefs cat '{TABLE}@64x64.npy'", 'this is not a reshape'),
    (f"pytreefs cat '{TABLE}@float31.npy'", 'is not a dtype'),
    (f"pytreefs tree --only 'nope*' {STATE}", 'no leaf matches'),
    ('echo \'{"default_to_original": true, "rules": [{"key": "b", "original_key": "nothere"}]}\' >r.json; '
     f'pytreefs transform --check r.json {STATE}', 'which the checkpoint does not have'),
    (f'pytreefs save {STATE}/params ckpts/1500', "pytreefs: 'ckpts/1500' is there already; --force"),
    (f'pytreefs export -q {STATE}/params out; pytreefs export {STATE}/params out', 'is not written'),
    (f'pytreefs export {STATE}/params out.foo', 'no format ends in'),
    (f'{ENV} AWS_ACCESS_KEY_ID= AWS_SECRET_ACCESS_KEY= pytreefs ls s3://checkpoints/run', 'no credentials'),
    (f'{ENV} AWS_PROFILE=none pytreefs ls s3://checkpoints/run', "the profile 'none'"),
    (f'{ENV} AWS_ACCESS_KEY_ID= AWS_SECRET_ACCESS_KEY=x pytreefs ls s3://checkpoints/run', 'is set, and'),
    (f'{ENV} pytreefs ls -o anonymous,endpoint=http://localhost:1 s3://checkpoints/run', 'Failed to connect'),
    ('echo >headers; chmod 644 headers; pytreefs ls -o http_headers=headers http://localhost:1/run', 'is open to all users'),
    ('umask 077; echo token >headers; pytreefs ls -o http_headers=headers http://localhost:1/run', 'line 1, is not'),
    (f"python3 -c '{HEADER}' >m.safetensors; pytreefs ls -o cache=1M m.safetensors", 'metadata needs'),
    ('echo \'{"default_to_original": true, "rules": [{"key": "a", "original_key": "params/embed/table", "value_fn": "scale(2)"}]}\' '
     f'>r.json; pytreefs cat -o transforms=r.json,spill_limit=1K {STATE}/a.npy', 'spill_limit is'),
    ("py 'pytreefs.load(\"ckpts\")'", 'is a directory of steps'),
    ("py 'pytreefs.load(\"ckpts/1500/state/parms\")'", "has no 'parms'"),
    ("py 'pytreefs.save(\"ckpts/1500\", {\"a\": 1})'", 'is not to be replaced'),
    ("py 'pytreefs.save(\"ckpts/1501\", {\"a\": object()})'", 'cannot be saved'),
    ("py 'np.from_dlpack(pytreefs.open(\"ckpts\")[1500][\"state/params/embed/table\"])'", 'DLPack'),
    ("py 'f = pytreefs.open(\"ckpts\").context.handle.file(\"1500/state/step.json\"); import os; pid = os.fork(); pid and os._exit(os.waitpid(pid, 0)[1] >> 8); "
     "f.readinto(bytearray(4), 0)'", 'before fork()'),
    ("py 'pytreefs.load(\"ckpts/1500/state\", like={\"step\": np.int8(0)}, only=\"/step\")'", 'which int8 cannot hold'),
    ("py 'import shutil; step = pytreefs.open(\"ckpts\")[1500]; shutil.rmtree(\"ckpts/1500\"); list(step)'", 'was removed since it was looked up'),
]


def same(line):
    """A message without what differs from run to run: names and checksums of files, sizes, processes, curl's clock."""
    for pattern, mark in ((r'[0-9a-f]{32}', 'FILE'), (r'\b[0-9a-f]{8}\b', 'CHECKSUM'), (r':\d+:\d+\)', ':AT:N)'), (r'process \d+', 'process N'),
                          (r'after \d+ ms', 'after N ms'), (r'needs \d+ bytes', 'needs N bytes'), (r'after \d tries', 'after N tries')):
        line = re.sub(pattern, mark, line)
    return line


@pytest.fixture
def where(build, tmp_path):
    shutil.copytree(SAMPLE, tmp_path / 'ckpts')
    (tmp_path / 'mnt').mkdir()
    for name, text in (('py', f'#!/bin/sh\nexec {sys.executable} -c "import numpy as np, pytreefs\n$1"\n'),
                       ('flip', f'#!{sys.executable}\n{FLIP}\n')):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    yield tmp_path
    subprocess.run(['umount', '-l', tmp_path / 'mnt'], capture_output=True)


@pytest.mark.parametrize('typed,words', PROVOKED, ids=[words for _, words in PROVOKED])
def test_a_message_is_what_is_printed(where, build, typed, words):
    env = {name: value for name, value in os.environ.items() if not name.startswith('AWS_') and name != 'PYTREEFS_OPTIONS'}
    env |= {'PATH': f'{where}:{build}:{os.environ["PATH"]}', 'PYTHONPATH': str(build / 'tools/python'), 'HOME': str(where)}
    r = subprocess.run(['bash', '-c', typed], cwd=where, env=env, capture_output=True, stdin=subprocess.DEVNULL, timeout=300)
    said = [line.replace(str(where), HOME) for line in r.stderr.decode(errors='replace').splitlines() if words in line]
    assert said, r.stderr
    assert same(said[-1]) in map(same, QUOTED), said[-1]


def test_most_messages_are_provoked():
    assert len(PROVOKED) >= 0.7 * len(QUOTED)
