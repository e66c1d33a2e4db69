"""Files and directories of a draft, as programs use those of any file system."""

import json
import threading

import numpy as np
import pytest
import safetensors.numpy


@pytest.fixture
def root(tmp_path):
    path = tmp_path / 'root'
    path.mkdir()
    return path


def begin(m, name='7', item='default'):
    where = m / f'{name}.tmp' / item
    where.mkdir(parents=True)
    return where


def meanwhile(do):
    """do() again and again in a thread; what is returned ends it, and raises what it raised."""
    stop, failed = threading.Event(), []

    def run():
        try:
            while not stop.is_set():
                do()
        except BaseException as e:
            failed.append(e)

    def end():
        stop.set()
        thread.join()
        if failed:
            raise failed[0]
    thread = threading.Thread(target=run)
    thread.start()
    return end


def test_metadata_while_a_safetensors_file_is_written(mount, root):
    """Whoever looks meanwhile sees none of its tensors, or all."""
    m = mount(root)
    where = begin(m)
    data = safetensors.numpy.save({f'block.{i}.w': np.full(10, i, np.float32) for i in range(300)})
    end = meanwhile(lambda: (where / 'model.safetensors').write_bytes(data))
    try:
        for _ in range(600):
            tree = json.loads((where / '_METADATA').read_text())['tree_metadata']
            assert len(tree) in (1, 300)        # one: an empty dict
    finally:
        end()
    (m / '7.tmp').rename(m / '7')
    assert np.load(m / '7/default/model/block/299/w.npy').tolist() == [299] * 10
