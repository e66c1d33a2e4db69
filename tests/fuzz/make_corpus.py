#!/usr/bin/env python3
"""Seeds of the fuzz targets npy, safetensors and shard, below tests/data/fuzz."""

import json
import pathlib
import struct

TOP = pathlib.Path(__file__).resolve().parent.parent / 'data' / 'fuzz'


def npy(header, version=1):
    text = header.encode() + b' ' * (-(len(header) + 11) % 64) + b'\n'
    size = struct.pack('<H', len(text)) if version == 1 else struct.pack('<I', len(text))
    return b'\x93NUMPY' + bytes([version, 0]) + size + text


def head(descr, shape, fortran=False):
    return f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}"


def safetensors(entries):
    text = json.dumps(entries).encode()
    return struct.pack('<Q', len(text)) + text


def index(entries, form, length):
    n = sum(1 for _ in entries)
    order = '>' if form & 64 else '<'
    body = b''.join(struct.pack(order + '2Q', off, size) for off, size in entries)
    return bytes([form | (n - 1)]) + struct.pack('<H', length) + body


NONE = (1 << 64) - 1
SEEDS = {
    'npy': {
        'float32': npy(head('<f4', '(3, 4)')),
        'big_endian': npy(head('>i8', '(7,)')),
        'fortran': npy(head('<c16', '(2, 3, 5)', True)),
        'scalar': npy(head('|b1', '()')),
        'void': npy(head('|V1', '(0, 9)')),
        'version_2': npy(head('<u2', '(1,)'), 2),
        'version_3': npy(head('<f2', '(1000000,)'), 3),
    },
    'safetensors': {
        'empty': safetensors({}),
        'two': safetensors({'a': {'dtype': 'F32', 'shape': [2, 3], 'data_offsets': [0, 24]},
                            'b': {'dtype': 'BF16', 'shape': [], 'data_offsets': [24, 26]}}),
        'metadata': safetensors({'__metadata__': {'format': 'pt'},
                                 'w': {'dtype': 'U8', 'shape': [0, 5], 'data_offsets': [0, 0]}}),
    },
    'shard': {
        'little': index([(0, 5), (5, 9), (NONE, NONE), (14, 1)], 0, 100),
        'big': index([(0, 5), (NONE, NONE)], 64, 60),
    },
}


def main():
    for target, seeds in SEEDS.items():
        (TOP / target).mkdir(parents=True, exist_ok=True)
        for name, data in seeds.items():
            (TOP / target / name).write_bytes(data)


if __name__ == '__main__':
    main()
