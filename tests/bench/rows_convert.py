# SPDX-License-Identifier: Apache-2.0
"""export and convert of a checkpoint of 2 GiB, against the same done in Python with Orbax and the format's
own library. All to the same disk, durable, with the same compression; sources are in the page cache."""

import os
import shutil

from bench.bench import bench

PEAK = 512 << 20


def gone(path):
    """Remove the output of the last run, and wait until none of it is being written."""
    def do():
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        os.sync()
    return do


@bench
def convert(b):
    """2 GiB: to safetensors and npz, to zarr v3 (stored chunks are taken over; and once encoded anew at the level
    that Orbax has for v3), into other chunks, and from safetensors."""
    b.most_rounds = 3
    source, out = b.scratch() / 'ck', b.scratch()
    b.python('peers_convert:make', source)()
    single = b.scratch() / 'm.safetensors'
    b.python('peers_convert:to_safetensors', source, single)()

    def pair(name, text, ours, function, target, *args, read=source):
        mine, theirs = out / f'ours-{target}', out / f'theirs-{target}'

        def before(path):
            def do():
                gone(path)()
                b.warm(read)
            return do
        b.contender(f'pytreefs {name}', [b.program, *ours, read, mine], before=before(mine), after=gone(mine))
        b.contender(f'Python {name}', b.python(f'peers_convert:{function}', read, theirs, *args),
                    before=before(theirs), after=gone(theirs))
        b.row(text, f'pytreefs {name}', f'Python {name}', rate=1.0, peak=PEAK)

    pair('safetensors', 'export to safetensors, 2 GiB', ['export'], 'to_safetensors', 'm.safetensors')
    pair('npz', 'export to npz, 2 GiB', ['export'], 'to_npz', 'm.npz')
    pair('zarr3', 'convert to zarr v3, 2 GiB', ['convert', '-o', 'zarr=3'], 'to_zarr3', 'zarr3')
    anew = out / 'ours-anew'
    b.contender('pytreefs zarr3 anew', [b.program, 'convert', '-o', 'zarr=3,compression=zstd:3', source, anew],
                before=lambda: (gone(anew)(), b.warm(source)), after=gone(anew))
    b.row('convert to zarr v3, encoded anew, 2 GiB', 'pytreefs zarr3 anew', 'Python zarr3', rate=1.0, peak=PEAK)
    pair('rechunk', 'convert to chunks of 4 MiB, 2 GiB', ['convert', '-o', 'chunk_byte_size=4M'], 'rechunk', 'chunks',
         4 << 20)
    pair('import', 'convert from safetensors, 2 GiB', ['convert'], 'from_safetensors', 'ck', read=single)
