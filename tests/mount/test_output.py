# SPDX-License-Identifier: Apache-2.0
"""The output of subcommands: none of it is lost without an error, is empty, or controls a terminal."""

import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import termios
import time

import numpy as np
import pytest

SAMPLE = pathlib.Path(__file__).resolve().parents[1] / 'data' / 'sample'
STATE = SAMPLE / '1000' / 'state'


@pytest.mark.parametrize('words', [
    ['report', SAMPLE / '1000'], ['dump', 'tree', STATE / '_METADATA'], ['tree', SAMPLE], ['help', 'options'],
    ['diff', SAMPLE / '1000', SAMPLE / '1500'], ['cat', '--help'], ['--version']], ids=lambda w: w[0])
def test_a_full_disk_is_said(program, words):
    """Also where more is printed than a buffer holds, and where the status is 1 for another reason."""
    with open('/dev/full', 'wb') as full:
        r = subprocess.run([program, *map(str, words)], stdout=full, stderr=subprocess.PIPE, text=True)
    assert r.returncode == (2 if words[0] == 'diff' else 1) and 'cannot write the output' in r.stderr


@pytest.mark.parametrize('command', ['report', 'cat', 'tree'])
def test_a_reader_that_has_seen_enough_is_not_an_error(program, command):
    path = SAMPLE / '1000/state/params/embed/table.npy' if command == 'cat' else SAMPLE / '1000'
    r = subprocess.run(['bash', '-c', '"$0" "$1" "$2" | true; exit ${PIPESTATUS[0]}', program, command, path],
                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert not r.stderr


def test_cat_to_a_closed_pipe_says_nothing(program):
    read, write = os.pipe()
    os.close(read)
    r = subprocess.run([program, 'cat', STATE / 'params/embed/table.npy'], stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert r.returncode == 1 and not r.stderr


@pytest.mark.parametrize('closed', ['<&-', '>&-', '2>&-', '<&- >&- 2>&-'])
def test_a_mount_with_closed_descriptors(program, tmp_path, closed):
    (tmp_path / 'm').mkdir()
    try:
        r = subprocess.run(['bash', '-c', f'"$0" mount "$1" "$2" {closed}', program, SAMPLE, tmp_path / 'm'],
                           timeout=240)
        assert r.returncode == 0 and (tmp_path / 'm/1000/state/step.json').read_text() == '1000\n'
    finally:
        subprocess.run(['umount', '-l', tmp_path / 'm'])


def test_cat_goes_on_after_what_is_not_there(run):
    r = run('cat', STATE / 'step.json', STATE / 'nosuch', STATE / 'run_name.txt', ok=False)
    assert r.returncode == 1 and r.stdout == '1000\nsample-transformer' and r.stderr.count('\n') == 1


def test_a_path_inside_the_checkpoint_one_stands_in(run):
    assert run('cat', 'step.json', cwd=STATE).stdout == '1000\n'
    assert run('ls', 'params/embed', cwd=STATE).stdout == 'table.npy\n'
    r = run('cat', 'nosuch', cwd=STATE, ok=False)
    assert r.returncode == 1 and "'nosuch' does not exist" in r.stderr


def test_a_file_that_is_not_a_checkpoint_is_not_said_to_be_absent(run, tmp_path):
    for name, why in (('model.dat', 'exists, but is not part of a checkpoint'), ('model.pt', 'is not read: files of PyTorch are programs')):
        (tmp_path / name).write_bytes(b'PK' if name.endswith('.dat') else b'\x80\x02}q\x00.')
        for words in (['ls', name], ['cat', name], ['save', name, 'root/1'], ['convert', name, 'out']):
            r = run(*words, ok=False, cwd=tmp_path)
            assert r.returncode == 1 and f"'{name}' {why}" in r.stderr, r.stderr
    assert sorted(os.listdir(tmp_path)) == ['model.dat', 'model.pt']
    # A flax file by a name of one's own, and a file that lies beside one.
    (tmp_path / 'flax_model.msgpack').write_bytes(b'\x81\xa1a\x01')
    (tmp_path / 'weights').write_bytes(b'\x81\xa1a\x01')
    for name in ('weights', 'model.dat'):
        for words in (['tree', name], ['save', name, 'root/1'], ['convert', name, 'out']):
            r = run(*words, ok=False, cwd=tmp_path)
            assert r.returncode == 1 and 'nor named as a file of arrays is (.safetensors, .msgpack)' in r.stderr, r.stderr


def test_what_a_file_begins_with_says_what_it_is(run, tmp_path):
    """Under a name that PyTorch's users give; a link with the right ending is read."""
    head = b'{"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}'
    for name, data, ending in (('weights.ckpt', b'\x81\xa1a\x01', '.msgpack'), ('model.bin', len(head).to_bytes(8, 'little') + head + b'7', '.safetensors')):
        (tmp_path / name).write_bytes(data)
        for words in (['ls', name], ['save', name, 'root/1'], ['convert', name, 'out']):
            r = run(*words, ok=False, cwd=tmp_path)
            assert r.returncode == 1 and f"'{name}' begins as" in r.stderr and f'ends in {ending}' in r.stderr, r.stderr
        (tmp_path / ('right' + ending)).symlink_to(name)
        assert run('ls', 'right' + ending, cwd=tmp_path).stdout.split() == ['a.npy' if ending == '.safetensors' else 'a.json']
    (tmp_path / 'other.pt').write_bytes(b'text')
    r = run('ls', 'other.pt', ok=False, cwd=tmp_path)
    assert r.returncode == 1 and 'does not begin as such' in r.stderr and 'programs' not in r.stderr


def test_the_index_of_a_model_is_called_that(run, tmp_path):
    (tmp_path / 'model.safetensors.index.json').write_text('{"weight_map": {}}')
    (tmp_path / 'mnt').mkdir()
    path = tmp_path / 'model.safetensors.index.json'
    for words in (['ls', path], ['verify', path], ['convert', path, tmp_path / 'out'], ['mount', path, tmp_path / 'mnt']):
        r = run(*words, ok=False)
        assert r.returncode and f"'{path}' is the index of a model: name the directory that it is in" in r.stderr, (words, r.stderr)


def test_a_list_of_types_takes_no_path(run):
    r = run('info', '--handlers', STATE, ok=False)
    assert r.returncode == 2 and '--handlers lists all types, and takes no path' in r.stderr and not r.stdout


@pytest.mark.parametrize('here, path, says', [
    ('.', f'{SAMPLE}/nope', f"'{SAMPLE}' has no 'nope'"), ('1000/state', '../../nope', "'../..' has no 'nope'"),
    ('1000', './nope', "'.' has no 'nope'"), ('1000', '../../nope', "'../..' is not a checkpoint")])
def test_what_is_absent_is_said_of_the_path(run, here, path, says):
    """Not of a file that was looked for to tell the kind of a checkpoint, nor of a directory between."""
    r = run('ls', path, ok=False, cwd=SAMPLE / here)
    assert r.returncode == 1 and says in r.stderr, r.stderr


@pytest.mark.parametrize('words,name', [
    (['cat', STATE], 'state'), (['export', SAMPLE, 'x.npz'], 'sample')])
def test_what_is_refused_has_its_name(run, tmp_path, words, name):
    r = run(*words, ok=False, cwd=tmp_path)
    assert r.returncode == 1 and name in r.stderr and "''" not in r.stderr and "'/'" not in r.stderr


def test_diff_of_a_step_and_a_tree_names_the_tree(run, tmp_path):
    run('convert', '--layout', 'v0', STATE, tmp_path / 'tree')
    r = run('diff', SAMPLE / '1000', tmp_path / 'tree', ok=False)
    assert r.returncode == 1 and '\n.: only in B\n' in r.stdout


@pytest.mark.parametrize('words', [
    ['cat', '-c', '10Z', STATE / 'step.json'], ['cat', '-s', 'x', STATE / 'step.json'], ['tree', '-d', 'x', SAMPLE],
    ['explain', STATE / 'params/embed/table.npy', 'zz'], ['export', '--format', 'pickle', STATE, 'out'],
    ['export', '--cast', 'nix', STATE, 'out'], ['export', '--max-shard-size', 'x', STATE, 'out.safetensors'],
    ['export', '--max-shard-size', '1M', STATE, 'out.npz'], ['convert', '--cast', 'nix', STATE, 'out.npz'],
    ['convert', '--layout', 'v2', STATE, 'out'], ['diff', '-t', 'abc', STATE, STATE]],
    ids=lambda w: ' '.join(map(str, w[:2])))
def test_a_wrong_option_is_status_2(run, tmp_path, words):
    r = run(*words, ok=False, cwd=tmp_path)
    assert r.returncode == 2 and 'usage:' in r.stderr and not r.stdout
    assert not list(tmp_path.iterdir())


def test_info_of_a_directory_of_steps(run, tmp_path):
    for name in ('9', '10', '11'):
        shutil.copytree(STATE.parent, tmp_path / 'ckpts' / name)
    (tmp_path / 'ckpts/12.orbax-checkpoint-tmp-1').mkdir()
    doc = json.loads(run('info', '--json', tmp_path / 'ckpts').stdout)
    assert {k: doc[k] for k in ('source_shape', 'steps', 'first', 'latest', 'unfinished')} == {
        'source_shape': 'root', 'steps': 3, 'first': '9', 'latest': '11', 'unfinished': 1}
    assert re.search(r'^latest +11$', run('info', tmp_path / 'ckpts').stdout, re.M)


def test_no_member_of_info_twice(run):
    def once(pairs):
        assert len({k for k, _ in pairs}) == len(pairs), pairs
        return dict(pairs)
    doc = json.loads(run('info', '--json', STATE / 'params/embed/table.npy').stdout, object_pairs_hook=once)
    assert doc['source_shape'] == 'item' and isinstance(doc['shape'], list)


@pytest.mark.parametrize('words', [['ls'], ['ls', '-l'], ['tree'], ['info'], ['stats'], ['explain'],
                                   ['transform', '--check', 'tests/data/transform_rules.json']], ids=' '.join)
def test_no_control_character_of_a_key_reaches_the_terminal(run, tmp_path, words):
    """ESC, a line's end, and the CSI that is one character of Unicode; --json has them as JSON writes them."""
    key = 'k\x1bc\x07\n\x9bm'
    leaf = tmp_path / 'in' / f'{key}.npy'
    leaf.parent.mkdir()
    np.save(leaf, np.zeros(2))
    run('convert', leaf.parent, tmp_path / 'tree')
    where = tmp_path / 'tree'
    if words in (['info'], ['explain']):
        names = json.loads(run('ls', '--json', where).stdout)
        where = where / next(n['name'] for n in names if n['name'].startswith('k'))
    out = run(*words, where).stdout
    assert 'k?' in out and not {'\x1b', '\x07', '\x9b'} & set(out) and all(line for line in out.splitlines()[:-2])
    r = run('cat', tmp_path / 'tree' / 'no\x1bsuch', ok=False)
    assert '\x1b' not in r.stderr


def test_no_control_character_of_an_item_reaches_the_terminal(run, tmp_path):
    shutil.copytree(SAMPLE / '1000', tmp_path / '1000')
    for item in ('state', 'config'):
        os.rename(tmp_path / '1000' / item, tmp_path / '1000' / f'{item}\x1b\x9b')
    said = run('verify', '-v', tmp_path / '1000', ok=False).stderr
    said += run('export', tmp_path / '1000', tmp_path / 'out.npz').stderr
    assert 'state??\n' in said and "'config??' is not a tree" in said and not {'\x1b', '\x9b'} & set(said)


def test_ls_of_a_mount_whose_daemon_died_says_so(run, program, tmp_path):
    mnt = tmp_path / 'mnt'
    mnt.mkdir()
    p = subprocess.Popen([program, 'mount', '-f', SAMPLE, mnt], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while p.poll() is None and not os.path.ismount(mnt):
            time.sleep(0.01)
        p.kill()
        p.wait()
        for where in (mnt, mnt / '1000'):
            r = run('ls', where, ok=False)
            assert r.returncode == 1 and f"'{where}'" in r.stderr and 'endpoint is not connected' in r.stderr
    finally:
        subprocess.run(['fusermount3', '-u', mnt], check=True)


def test_merge_of_what_is_merged_prints_its_document(run):
    assert json.loads(run('merge', '--json', STATE).stdout) == {'parts': 0, 'keys': 0, 'repeated': 0, 'missing': 0}


def test_merge_of_a_step_asks_for_an_item(run):
    r = run('merge', STATE.parent, ok=False)
    assert r.returncode == 1 and f"'{STATE.parent}' has no per-process databases; an item of a step is wanted" in r.stderr


def test_a_conversion_that_a_signal_stops_says_so(program, tmp_path):
    source = tmp_path / 'in'
    source.mkdir()
    np.save(source / 'w.npy', np.random.default_rng(0).random(4_000_000))
    with subprocess.Popen([program, 'convert', '-o', 'compression=zstd:19,chunk_byte_size=256K', source, tmp_path / 'out'],
                          stderr=subprocess.PIPE, text=True) as p:
        while p.poll() is None and len(os.listdir(tmp_path)) == 1:
            time.sleep(0.0005)
        # It is in the midst of the array then.
        time.sleep(0.05)
        p.terminate()
        err = p.stderr.read()
    assert p.returncode == 1 and err.endswith('interrupted; nothing is left behind\n'), err


# ---- explain ----

def test_explain_as_json(run):
    leaf = STATE / 'params/embed/table.npy'
    doc = json.loads(run('explain', '--json', leaf).stdout)
    (box,), text = doc['boxes'], run('explain', leaf).stdout
    assert doc['bytes'] == doc['header_bytes'] + doc['array_bytes'] == 8320 and box['elements'] == 4096
    (part,) = box['parts']
    assert f"'{part['key']}' ({part['place']})" in text and part['length'] == part['bytes'] == 8192
    assert json.loads(run('explain', '--json', leaf, '0', '4').stdout)['boxes'] == []


@pytest.mark.parametrize('name,boxes', [('step.json', 1), ('run_name.txt', None), ('ema.null', None)])
def test_explain_of_a_text(run, name, boxes):
    """The text is made as a whole; where there is an array in it, its chunk is named."""
    text = run('explain', STATE / name).stdout
    assert 'made when it is opened' in text and ("chunk 'step/0'" in text) == (boxes is not None)
    doc = json.loads(run('explain', '--json', STATE / name).stdout)
    assert doc['made_when_opened'] and len(doc.get('boxes', [])) == (boxes or 0)


# ---- what cannot be read ----

def test_an_item_that_cannot_be_read_has_its_reason_everywhere(run, tmp_path):
    step = tmp_path / '1000'
    shutil.copytree(SAMPLE / '1000', step)
    (step / 'state/_METADATA').write_text('{')
    for words in (['tree'], ['ls', '-l']):
        r = run(*words, step, ok=False)
        assert r.returncode == 1 and re.search(r"state/? .*\(item 'state': .*truncated\)", r.stdout), r.stdout
    for words in (['tree', '--json'], ['ls', '--json']):
        r = run(*words, step, ok=False)
        (state,) = [e for e in json.loads(r.stdout) if e['name'] == 'state']
        assert r.returncode == 1 and 'truncated' in state['error']
    r = run('report', '--json', step, ok=False)
    assert r.returncode == 1 and 'truncated' in r.stderr and 'truncated' in r.stdout


@pytest.mark.parametrize('whole,broken', [('1000', '1500'), ('root', 'other')])
def test_an_item_that_cannot_be_read_is_not_absent(run, tmp_path, whole, broken):
    """diff tells of the rest, and that this item was not compared: not that one side has none."""
    shutil.copytree(SAMPLE, tmp_path / 'root')
    if broken == 'other':
        shutil.copytree(SAMPLE, tmp_path / 'other')
    a, b = (tmp_path / 'root' if name == 'root' else tmp_path / ('root/' * name.isdigit() + name) for name in (whole, broken))
    (tmp_path / ('root' if broken == '1500' else 'other') / '1500/state/_METADATA').write_text('{')
    for pair in ((a, b), (b, a)):
        r = run('diff', *pair, ok=False)
        assert r.returncode == 2 and 'truncated' in r.stderr and 'some could not be read' in r.stdout, r
        assert 'only in' not in r.stdout, r.stdout
        differences = json.loads(run('diff', '--json', *pair, ok=False).stdout)['differences']
        assert not [d for d in differences if d['path'].endswith('state')], differences


@pytest.mark.parametrize('command', ['ls', 'tree'])
def test_stored_bytes_are_those_of_info(run, command):
    entries = json.loads(run(command, '--json', STATE / 'params/embed').stdout)
    told = json.loads(run('info', '--json', STATE / 'params/embed/table.npy').stdout)
    assert entries[0]['stored_bytes'] == told['stored_bytes'] == 6482


# ---- the progress bar ----

def on_terminal(columns, *words):
    """The process of a command that tells its progress to a terminal of that width, and the terminal's other end."""
    main, sub = pty.openpty()
    fcntl.ioctl(sub, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))
    p = subprocess.Popen(words, stderr=sub, stdout=subprocess.DEVNULL)
    os.close(sub)
    return p, main


def test_bytes_are_not_printed_on_a_terminal(program):
    """A number, text and JSON are; as of curl, what is binary goes elsewhere."""
    for name, status, said in (('step.json', 0, b'1000'), ('run_name.txt', 0, b'sample-transformer'), ('step.npy', 1, b"step.npy' is binary"),
                               ('params/embed/table.npy', 1, b'is binary')):
        main, sub = pty.openpty()
        r = subprocess.run([program, 'cat', STATE / name], stdout=sub, stderr=subprocess.PIPE, check=False)
        os.close(sub)
        printed = b''
        with contextlib.suppress(OSError):
            while piece := os.read(main, 4096):
                printed += piece
        os.close(main)
        assert r.returncode == status and said in (r.stderr if status else printed) and b'\0' not in printed, (name, r, printed)


def test_the_bar_fits_the_terminal_and_never_goes_back(run, program, tmp_path):
    """report reads everything twice, which it says from the beginning."""
    source = tmp_path / 'in'
    source.mkdir()
    for i in range(4):
        np.save(source / f'{i}.npy', np.random.default_rng(i).random(1 << 15))
    run('convert', '-o', 'compression=none', source, tmp_path / 'tree')
    words = program, 'report', '-o', 'io=fault(read:rate=800K:always):sync', tmp_path / 'tree'
    for columns, (p, main) in {columns: on_terminal(columns, *words) for columns in (100, 45, 20)}.items():
        seen = b''
        # The end of a terminal that nobody has any more is EIO.
        with contextlib.suppress(OSError):
            while piece := os.read(main, 4096):
                seen += piece
        os.close(main)
        assert p.wait() == 0
        lines = [line.replace('\x1b[K', '') for line in seen.decode().split('\r') if '%' in line]
        parts = [int(re.search(r'(\d+)%', line)[1]) for line in lines]
        assert parts == sorted(parts) and len(parts) > 2 and max(map(len, lines)) < columns, lines
        assert ('[' in lines[0]) == (columns == 100), lines


# ---- why not ----

def test_a_view_that_a_limit_forbids_says_so(run, tmp_path):
    source = tmp_path / 'in'
    source.mkdir()
    np.save(source / 'big.npy', np.zeros(200_000))
    run('convert', source, tmp_path / 'tree')
    r = run('cat', tmp_path / 'tree/big.json', ok=False)
    assert r.returncode == 1 and 'too large for JSON' in r.stderr
    r = run('cat', tmp_path / 'tree/other.json', ok=False)
    assert r.returncode == 1 and "has no 'other.json'" in r.stderr


def test_verify_of_an_item_that_is_not_a_tree_names_what_to_verify(run, tmp_path):
    for where, words in ((SAMPLE / '1000/config', {}), ('.', {'cwd': SAMPLE / '1000/config'})):
        r = run('verify', where, ok=False, **words)
        assert r.returncode == 2 and 'verify the step' in r.stderr
    assert 'is not a checkpoint' in run('verify', SAMPLE.parents[1] / 'lib', ok=False).stderr


def test_help_on_options_in_no_form_that_there_is(run):
    r = run('help', 'options', '--json', ok=False)
    assert r.returncode == 2 and '--markdown' in r.stderr


def test_bench_of_no_directory_says_so_once(run):
    r = run('bench', '/nonexistent', ok=False)
    assert r.returncode == 1 and not r.stdout and r.stderr.count('nonexistent') == 1


@pytest.mark.parametrize('words, near', [
    (['help', 'opt'], '`pytreefs help options`?'), (['mount', '--ro', 'a', 'b'], "'-o ro'?"), (['ls', SAMPLE / 'lastest'], "'latest'?"),
    (['ls', SAMPLE / '1500/stat'], "'state'?"), (['ls', SAMPLE / '1500/params'], "'state/params'?"), (['cat', SAMPLE / 'state/step'], "'latest/state/step.json'?"),
    (['verfy'], "'verify'?")])
def test_what_was_meant_is_named(run, words, near):
    r = run(*words, ok=False)
    assert r.returncode in (1, 2) and re.search('did you mean .*' + re.escape(near), r.stderr), r.stderr


@pytest.mark.parametrize('typed, near', [
    ('parms/embed', 'params'), ('params/embed/tabel', 'params/embed/table.npy'), ('lerning_rate.json', 'learning_rate.json'),
    ('embed/table', 'params/embed/table.npy'), ('qqqqqq', None)])
def test_a_mistyped_name_is_told_the_nearest(run, typed, near):
    r = run('cat', SAMPLE / '1500/state' / typed, ok=False)
    assert r.returncode == 1 and f"1500/state' has no '{typed}'" in r.stderr, r.stderr
    assert (f"; did you mean '{near}'?" in r.stderr) if near else ('did you mean' not in r.stderr), r.stderr
