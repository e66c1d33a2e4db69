# SPDX-License-Identifier: Apache-2.0
"""A step that was prepared for a mesh, restored by Orbax on eight devices.

main(SOURCE, PREPARED) compares each device's part with SOURCE, restored in the same way, and that each part was one chunk that TensorStore
read, with its own counters. In a process of its own: the number of devices is chosen once."""

import os


def main(source, prepared):
    os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=8'
    import jax
    import numpy as np
    import orbax.checkpoint as ocp
    import tensorstore as ts

    def reads():
        return sum(m['values'][0]['value'] for m in ts.experimental_collect_matching_metrics('/tensorstore/cache/chunk_cache/reads'))

    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as c:
        before = reads()
        got = c.restore(prepared, args=ocp.args.StandardRestore())
        read = reads() - before
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) if isinstance(x, jax.Array) else x, got)
        want = c.restore(source, args=ocp.args.StandardRestore(like))
    parts = 0
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want)):
        if not isinstance(x, jax.Array):
            assert x == y
            parts += 1      # a number is an array of one chunk
            continue
        assert x.sharding == y.sharding and x.sharding.mesh.shape == {'fsdp': 4, 'tensor': 2}, x.sharding
        assert all(np.array_equal(np.asarray(a.data), np.asarray(b.data)) for a, b in zip(x.addressable_shards, y.addressable_shards))
        parts += len({str(s.index) for s in x.addressable_shards})
    print(f'{parts} parts, {read} reads')
