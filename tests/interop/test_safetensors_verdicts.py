# SPDX-License-Identifier: Apache-2.0
"""Headers of safetensors, odd and wrong ones: they are read if the real library reads them, with its names and metadata."""

import json
import struct

import pytest
import safetensors

from lib.pairs import in_one

DATA = struct.pack('<2f', 1, 2)


def file(header, data=b'', length=None):
    text = header.encode() if isinstance(header, str) else header
    return struct.pack('<Q', len(text) if length is None else length) + text + data


def tensor(dtype='F32', shape=(2,), offsets=(0, 8), **more):
    return json.dumps({'dtype': dtype, 'shape': list(shape), 'data_offsets': list(offsets)} | more)


def one(text=None, data=DATA, **how):
    return file('{"a":%s}' % (text or tensor(**how)), data)


def metadata(text, first='', last=''):
    return file(f'{first}{{"__metadata__":{text},"a":{tensor()}}}{last}', DATA)


A = '{"a":%s}' % tensor()
FILES = {
    'nothing': b'', 'three bytes': b'\2\0\0', 'no header': file(''), 'length beyond the end': file('{}', length=100),
    'no tensor': file('{}'), 'no tensor, padded': file('{}      '), 'metadata alone': file('{"__metadata__":{"a":"b"}}'), 'no tensor, data': file('{}', DATA),
    'metadata null': metadata('null'), 'metadata empty': metadata('{}'), 'metadata number': metadata('{"n":1}'), 'metadata object': metadata('{"n":{}}'),
    'metadata list': metadata('[]'), 'metadata text': metadata('"x"'), 'metadata of null': metadata('{"n":null}'), 'metadata': metadata('{"n":"NaN"}'),
    'metadata twice': metadata('{"n":"1"},"__metadata__":{"m":"2"}'), 'metadata null twice': metadata('null,"__metadata__":null'),
    'metadata key twice': metadata('{"n":"1","n":"2"}'),
    'spaces after': metadata('{}', last='   '), 'tab after': metadata('{}', last='\t\n'), 'zeros after': metadata('{}', last='\0\0'), 'text after': metadata('{}', last='x'),
    'comment after': metadata('{}', last='//'), 'space before': metadata('{}', ' '), 'newline before': metadata('{}', '\n'), 'mark before': metadata('{}', '\ufeff'),
    'spaces inside': file('{ "a" : %s }' % tensor(), DATA), 'a list': file('[]'), 'null': file('null'), 'cut': file(A[:-1], DATA),
    'float in shape': one(tensor(shape=(2.0,))), 'power in shape': one('{"dtype":"F32","shape":[2e0],"data_offsets":[0,8]}'),
    'float in offsets': one(tensor(offsets=(0, 8.0))), 'negative': one(tensor(shape=(-2,))), 'negative 0': file('{"a":{"dtype":"F32","shape":[-0],"data_offsets":[0,0]}}'),
    'text in shape': one(tensor(shape=('2',))), 'shape is null': one('{"dtype":"F32","shape":null,"data_offsets":[0,8]}'), 'beyond 64 bits': one(tensor(shape=(10**20,))),
    'shape overflows': one(tensor(shape=(2**32, 2**32))), 'overflows before 0': file('{"a":%s}' % tensor(shape=(2**32, 2**32, 0), offsets=(0, 0))),
    'member twice': one('{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}'), 'other member': one(tensor(x=1)),
    'no dtype': one('{"shape":[2],"data_offsets":[0,8]}'), 'no shape': one('{"dtype":"F32","data_offsets":[0,8]}'), 'tensor is null': file('{"a":null}'),
    'three offsets': one(tensor(offsets=(0, 8, 8))), 'other shape': one(tensor(shape=(3,))), 'lower case': one(tensor('f32')), 'unknown type': one(tensor('X9')),
    'gap': one(tensor(shape=(1,), offsets=(4, 8))), 'more data': one(tensor(shape=(1,), offsets=(0, 4))), 'less data': one(data=DATA[:4]),
    'overlap': file('{"a":%s,"b":%s}' % (tensor(), tensor()), DATA), 'order of names': file('{"b":%s,"a":%s}' % (tensor(shape=(1,), offsets=(4, 8)), tensor(shape=(1,), offsets=(0, 4))), DATA),
    'empty before': file('{"b":%s,"a":%s}' % (tensor(shape=(0,), offsets=(0, 0)), tensor()), DATA), 'empty after': file('{"a":%s,"b":%s}' % (tensor(), tensor(shape=(0, 3), offsets=(8, 8))), DATA),
    'empty inside': file('{"a":%s,"b":%s}' % (tensor(), tensor(shape=(0, 3), offsets=(4, 4))), DATA), 'scalar': one(tensor(shape=(), offsets=(0, 4)), DATA[:4]),
    'not UTF-8': file(b'{"a\xff":%s}' % tensor().encode(), DATA), 'half a surrogate': file('{"a\\ud800":%s}' % tensor(), DATA), 'NUL in the name': file('{"a\\u0000b":%s}' % tensor(), DATA),
    'no name': file('{"":%s}' % tensor(), DATA), 'other truths': one(tensor('BOOL', offsets=(0, 2)), b'\2\1'),
    'complex': one(tensor('C64', (1,))), 'exponents': one(tensor('F8_E8M0', (8,))),
    'four bits': one(tensor('F4', (4,), (0, 2)), DATA[:2]), 'four bits, 3': one(tensor('F4', (3,), (0, 2)), DATA[:2]), 'four bits, 3 of 1 byte': one(tensor('F4', (3,), (0, 1)), DATA[:1]),
    'four bits and others': file('{"b":%s,"a":%s}' % (tensor('F4', (2, 8), (8, 16)), tensor()), DATA + DATA),
    'six bits': one(tensor('F6_E2M3', (4,), (0, 3)), DATA[:3]), 'six bits, 3': one(tensor('F6_E3M2', (3,), (0, 3)), DATA[:3]), 'six bits, 8': one(tensor('F6_E3M2', (8,), (0, 6)), DATA[:6]),
}

# It takes the last of two, takes a list for an object, and has no limit for axes but one for levels.
OTHERS = {
    'a tensor twice': (file('{"a":%s,"a":%s}' % (tensor(), tensor('I32')), DATA), "tensor 'a' occurs twice"),
    'a tensor as a list': (one('["F32",[2],[0,8]]'), 'not an object'),
    '33 axes': (one(tensor('U8', [1] * 33, (0, 1)), DATA[:1]), 'more than 32'),
}


def judged(path):
    """The names and the metadata, or None."""
    try:
        with safetensors.safe_open(path, 'np') as f:
            return sorted(f.keys()), f.metadata() or {}
    except safetensors.SafetensorError:
        return None


@in_one('kind', list(FILES))
def test_files_are_read_that_the_library_reads(run, tmp_path, kind):
    path = tmp_path / 'm.safetensors'
    path.write_bytes(FILES[kind])
    want, r = judged(path), run('ls', path, ok=False)
    assert (r.returncode == 0) == (want is not None), (want, r.stderr)
    if want is None:
        assert 'm.safetensors' in r.stderr
        return
    assert len(json.loads(run('tree', '--json', path, ok=False).stdout)) == len(want[0])


@pytest.mark.parametrize('kind', OTHERS)
def test_other_verdicts(run, tmp_path, kind):
    path = tmp_path / 'm.safetensors'
    data, why = OTHERS[kind]
    path.write_bytes(data)
    assert judged(path) and why in run('ls', path, ok=False).stderr


def test_tensors_beside_one_of_half_bytes(run, tmp_path):
    """It is named, and the others are read; nothing is converted without it."""
    path = tmp_path / 'm.safetensors'
    path.write_bytes(FILES['four bits and others'])
    assert run('cat', path / 'a.npy', text=False).stdout.endswith(DATA)
    for words in (('cat', path / 'b.npy'), ('tree', path), ('stats', path), ('convert', path, tmp_path / '1')):
        r = run(*words, ok=False)
        assert r.returncode and "'b'" in r.stdout + r.stderr and 'F4' in r.stdout + r.stderr, r
    assert not (tmp_path / '1').exists()
    run('convert', '--only', 'a', path, tmp_path / '2')
    assert run('cat', tmp_path / '2' / 'default' / 'a.npy', text=False).stdout.endswith(DATA)


def test_a_draft_says_what_it_does_not_take(mount, root, tmp_path):
    """A file with a tensor of half bytes is written in pieces, is refused by the commit, and another one takes its place."""
    m = mount(root, allow_errors=True)
    (m / '1.tmp').mkdir()
    data = FILES['four bits and others']
    with open(m / '1.tmp/default.safetensors', 'wb', buffering=0) as f:
        for at in range(0, len(data), 40):
            f.write(data[at:at + 40])
    with pytest.raises(OSError):
        (m / '1.tmp').rename(m / '1')
    assert "dtype 'F4'" in (m / '.pytreefs/log').read_text()
    (m / '1.tmp/default.safetensors').write_bytes(one())
    (m / '1.tmp').rename(m / '1')
    assert (m / '1/default/a.npy').read_bytes().endswith(DATA)


def test_no_tensor_is_an_empty_tree(run, tmp_path):
    path = tmp_path / 'm.safetensors'
    path.write_bytes(FILES['metadata alone'])
    assert run('ls', path).stdout == '' and 'holds no leaf' in run('convert', path, tmp_path / '1', ok=False).stderr


def test_other_bytes_than_0_and_1_are_true_as_in_the_library(run, tmp_path):
    """No checkpoint is made of them: TensorStore does not read such bools."""
    path = tmp_path / 'm.safetensors'
    path.write_bytes(FILES['other truths'])
    with safetensors.safe_open(path, 'np') as f:
        want = f.get_tensor('a').tobytes()
    assert run('cat', path / 'a.bin', text=False).stdout == want == b'\2\1'
    r = run('convert', path, tmp_path / '1', ok=False)
    assert r.returncode == 1 and 'a bool is neither 0 nor 1' in r.stderr and not (tmp_path / '1').exists()
    r = run('export', path, tmp_path / 'm.zarr', ok=False)
    assert r.returncode == 1 and 'a bool is neither 0 nor 1' in r.stderr and not (tmp_path / 'm.zarr').exists()
