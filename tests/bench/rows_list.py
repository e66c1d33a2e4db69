# SPDX-License-Identifier: Apache-2.0
"""Names and starting: what a user waits for before any data."""

from bench.bench import bench


def mount_and(b, source, then):
    """Mount, run a command there, both timed."""
    import subprocess
    m = b.mount(source)

    def run():
        m.open()
        subprocess.run([w.format(m=m.path) for w in then], check=True, stdout=subprocess.DEVNULL)
    return m, run


@bench
def list_20000(b):
    """`ls -lR` of 20,000 small leaves in 200 directories; on tmpfs the same files."""
    source = b.case('leaves-20000')
    b.warm(source)
    m, run = mount_and(b, source, ['ls', '-lR', '{m}'])
    again = b.mount(source)
    same = b.tmpfs(m.path)
    words = ['sh', '-c', 'ls -lR "$0" >/dev/null']
    b.contender('tmpfs', [*words, same])
    b.contender('ls', [*words, m.path], before=m.fresh, memory=m.memory)
    b.contender('ls again', [*words, again.path])
    find = ['sh', '-c', 'find "$0" >/dev/null']
    b.contender('tmpfs find', [*find, same])
    b.contender('find again', [*find, again.path])
    b.contender('mount + ls', run, before=m.close, memory=m.memory)
    b.row('ls -lR of 20,000 leaves, cold', 'ls', 'tmpfs', rate=0.6)
    b.row('ls -lR of 20,000 leaves, warm', 'ls again', 'tmpfs', rate=0.9)
    b.row('find of 20,000 leaves, warm', 'find again', 'tmpfs find', rate=0.8)
    b.row('mount + ls -lR of 20,000 leaves', 'mount + ls', within=1.0)


@bench
def metadata_20000(b):
    """Orbax's substitute for a listing. It takes long: one round."""
    source = b.case('leaves-20000')
    m, run = mount_and(b, source, ['ls', '-lR', '{m}'])
    b.most_rounds = 1
    b.contender('mount + ls', run, before=m.close, memory=m.memory)
    b.contender('Orbax metadata()', b.python('orbax_metadata', source))
    b.row('names, shapes and types of 20,000 leaves', 'mount + ls', 'Orbax metadata()')


@bench
def root_200(b):
    """A root of 200 steps."""
    m, run = mount_and(b, b.case('bench-steps-200'), ['ls', '-l', '{m}'])
    b.contender('mount + ls', run, before=m.close, memory=m.memory)
    b.row('mount + ls -l of a root with 200 steps', 'mount + ls', within=0.03)


@bench
def cat_leaf(b):
    """A leaf of 1 MiB by the program alone, start to end; TensorStore without its import."""
    source = b.case('bench-small')
    b.warm(source)
    b.contender('pytreefs cat', [b.program, 'cat', f'{source}/w0.npy'])
    b.contender('TensorStore', b.python('tensorstore_read', source, 'w0'))
    b.row('pytreefs cat of a 1 MiB leaf, whole process', 'pytreefs cat', within=0.01)
    b.row('the same, TensorStore already imported', 'pytreefs cat', 'TensorStore')
