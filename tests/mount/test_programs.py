# SPDX-License-Identifier: Apache-2.0
"""Programs that know nothing of us: tar, rsync, cp, find, du, sha256sum, getfattr work unchanged."""

import filecmp
import hashlib
import os
import subprocess

import pytest

from lib import compare


def sh(command, **env):
    r = subprocess.run(['bash', '-o', 'pipefail', '-c', command], capture_output=True, text=True,
                       env=dict(os.environ, **{k: str(v) for k, v in env.items()}))
    assert r.returncode == 0 and not r.stderr, f'{command}\n{r.stdout}{r.stderr}'
    return r.stdout


@pytest.fixture
def medium(mount, cases):
    return mount(cases('medium-root').path)


def test_tar_gives_the_same_bytes_twice_and_after_a_remount(mount, cases):
    case = cases('medium-root')
    first = mount(case.path)
    sums = {sh('tar -C "$M" -cf - 1 | sha256sum', M=first.path) for _ in range(2)}
    first.unmount()
    again = mount(case.path)
    sums.add(sh('tar -C "$M" -cf - 1 | sha256sum', M=again.path))
    assert len(sums) == 1, sums


def test_tar_round_trip(medium, tmp_path):
    sh('mkdir "$D" && tar -C "$M" -cf - . | tar -C "$D" -xf -', M=medium.path, D=tmp_path / 'out')
    assert same_trees(medium.path, tmp_path / 'out') == []


def test_rsync_transfers_once(medium, tmp_path):
    out = tmp_path / 'out'
    first = sh('rsync -a --stats "$M/" "$D/"', M=medium.path, D=out)
    assert 'Number of created files: ' in first
    second = sh('rsync -a --itemize-changes --stats "$M/" "$D/"', M=medium.path, D=out)
    assert 'Number of regular files transferred: 0' in second, second
    assert not [line for line in second.splitlines() if line[:1] in tuple('<>ch.*')], second
    assert same_trees(medium.path, out) == []


def test_rsync_with_attributes(medium, tmp_path):
    sh('rsync -aX "$M/1/" "$D/"', M=medium.path, D=tmp_path / 'out')
    leaf = 'state/layer3/w.npy'
    assert compare.xattrs(tmp_path / 'out' / leaf) == compare.xattrs(medium / '1' / leaf)
    assert 'user.pytree' not in sh('rsync -aXn --itemize-changes "$M/1/" "$D/"', M=medium.path, D=tmp_path / 'out')


def test_cp_archive(medium, tmp_path):
    sh('cp -a "$M/." "$D"', M=medium.path, D=tmp_path / 'out')
    assert same_trees(medium.path, tmp_path / 'out') == []
    leaf = '2/state/layer0/w.npy'
    assert os.stat(medium / leaf).st_mtime_ns == os.stat(tmp_path / 'out' / leaf).st_mtime_ns
    assert compare.xattr(tmp_path / 'out' / leaf, 'dtype') == 'float32'


def test_copies_of_the_latest_step(medium, tmp_path):
    """`latest` is a link: a slash after it, or -L, copies the step."""
    for n, (command, is_link) in enumerate((('cp -r "$M/latest/" "$D"', False), ('cp -rL "$M/latest" "$D"', False), ('cp -r "$M/latest" "$D"', True))):
        out = tmp_path / str(n)
        sh(command, M=medium.path, D=out)
        assert out.is_symlink() == is_link and (is_link or same_trees(medium / '2', out) == [])


def test_find_and_ls(medium):
    listing = sh('find "$M" -ls', M=medium.path).splitlines()
    names = sh('find "$M"', M=medium.path).splitlines()
    assert len(listing) == len(names) == len(set(names))
    assert not [n for n in names if '.pytreefs' in n or '/latest' in n]
    assert sh('ls -lR "$M"', M=medium.path).count('w.npy') == 32


def test_du_shows_stored_and_logical_sizes(medium, cases):
    case = cases('medium-root')
    apparent = int(sh('du -s --apparent-size -B1 "$M/1"', M=medium.path).split()[0])
    stored = int(sh('du -s -B1 "$M/1"', M=medium.path).split()[0])
    logical = case.notes['logical 1']
    assert logical <= apparent < logical * 1.05
    on_disk = sum(f.stat().st_size for f in (case.path / '1').rglob('*') if f.is_file())
    assert 0.5 * on_disk < stored < 1.1 * on_disk + (1 << 20), (stored, on_disk)
    assert stored < 0.8 * apparent
    assert sh('du -sh "$M"', M=medium.path) and sh('du -sh --apparent-size "$M"', M=medium.path)


def test_getfattr_of_everything(medium):
    out = sh('getfattr -Rd -m user.pytree "$M/1/state/layer0" "$M/1/state" 2>/dev/null | grep -c "^# file"',
             M=medium.path)
    assert int(out) > 10


def test_checksums_and_comparison(medium):
    w = medium / '1/state/layer5/w.npy'
    want = hashlib.sha256(compare.read_all(w)).hexdigest()
    assert sh('sha256sum <"$F"', F=w).split()[0] == want
    assert sh('dd if="$F" bs=4096 status=none | sha256sum', F=w).split()[0] == want
    assert sh('dd if="$F" bs=1M iflag=fullblock status=none | sha256sum', F=w).split()[0] == want
    sh('cmp "$A" "$A"', A=w)


def test_grep_and_head_and_tail(medium):
    assert 'step 1' in sh('grep -r "step 1" "$M/1/state/name.txt"', M=medium.path)
    assert sh('head -c 6 "$F" | tail -c 5', F=medium / '1/state/layer0/w.npy') == 'NUMPY'


def test_python_map_and_zero_copy(medium, tmp_path):
    """mmap by hand, sendfile and copy_file_range out of the mount."""
    import mmap
    src = medium / '1/state/layer1/w.npy'
    want = compare.read_all(src)
    with open(src, 'rb') as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as view:
        assert view[:] == want
        assert view[len(want) - 3:] == want[-3:]
    with open(src, 'rb') as f, open(tmp_path / 'a', 'wb') as g:
        while os.sendfile(g.fileno(), f.fileno(), None, 1 << 20):
            pass
    assert compare.read_all(tmp_path / 'a') == want


def same_trees(a, b):
    """Differences of names and bytes."""
    out = []

    def go(c, where=''):
        out.extend(f'{where}{n}' for n in c.left_only + c.right_only + c.funny_files)
        _, different, errors = filecmp.cmpfiles(c.left, c.right, c.common_files, shallow=False)
        out.extend(f'{where}{n}' for n in different + errors)
        for name, sub in c.subdirs.items():
            go(sub, f'{where}{name}/')

    go(filecmp.dircmp(a, b, ignore=[], hide=[]))
    return out
