# SPDX-License-Identifier: Apache-2.0
"""Single leaves, and parts of them, as tensors of torch."""

import http.server
import pathlib
import re
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from torch import nn

import pytreefs
from lib.pairs import LONG

SAMPLE = pathlib.Path(__file__).resolve().parents[1] / 'data' / 'sample'
STATE = SAMPLE / '1500' / 'state'


def test_dlpack_names_what_it_cannot_pass_on(monkeypatch):
    """numpy has no bfloat16 for others. torch has, when it is loaded."""
    with pytreefs.open(STATE) as ck:
        leaf = ck['params/embed/table']
        t = torch.from_dlpack(leaf)
        assert t.dtype == torch.bfloat16 and np.array_equal(t.float().numpy(), leaf.read(dtype='float32'))
        monkeypatch.delitem(sys.modules, 'torch')
        with pytest.raises(BufferError, match="table.npy.*bfloat16.*framework='torch'"):
            leaf.__dlpack__()


@pytest.mark.parametrize('framework', ['torch', 'pt'])
def test_a_leaf_and_a_part_of_it_as_a_tensor(framework):
    """By a view of its name, with read() and load(); into a tensor; and by a name without its extension."""
    with pytreefs.open(STATE) as ck:
        whole = ck['params/embed/table'].read(framework=framework)
        assert whole.dtype == torch.bfloat16 and tuple(whole.shape) == (128, 32)
        for part in (ck['params/embed/table[2:5].npy'].read(framework=framework),
                     pytreefs.load(STATE / 'params/embed/table[2:5].npy', framework=framework)):
            assert torch.equal(part, whole[2:5]) and part.dtype == torch.bfloat16
        cast = ck['params/embed/table'].read(dtype='float16', framework=framework)
        assert torch.equal(cast, whole.half())
        out = torch.empty(128, 32)
        assert ck['params/embed/table'].read(out=out) is out and torch.equal(out, whole.float())
        for wrong, why in ((torch.empty(3), r'out has shape \(3,\)'), ([1], 'out must be a writable array or tensor'),
                           (torch.empty(128, 32, device='meta'), 'out must be on the CPU')):
            with pytest.raises(ValueError, match=why):
                ck['params/embed/table'].read(out=wrong)
        with pytest.raises(ValueError, match="not 'tensorflow'"):
            ck['params/embed/table'].read(framework='tensorflow')
    assert torch.equal(pytreefs.load(STATE / 'params/embed/table', framework=framework), whole)
    assert pytreefs.load(STATE / 'step') == 1500
    with pytest.raises(pytreefs.NotFoundError, match="did you mean 'params/embed/table.npy'"):
        pytreefs.load(STATE / 'params/embed/tabl')


@pytest.mark.filterwarnings('ignore:torch.quantize_per_tensor')
def test_what_cannot_be_saved_is_named(tmp_path):
    for value in (torch.ones(2, device='meta'), torch.ones(2).to_sparse(), torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8)):
        with pytest.raises(pytreefs.Error, match="'default/a/w' cannot be saved") as e:
            pytreefs.save(tmp_path / '1', {'a': {'w': value}})
        assert e.value.filename == str(tmp_path / '1/default/a/w') and not (tmp_path / '1').exists()


def test_a_server_without_ranges_is_the_reason():
    """Of each leaf that is in a larger file; and not only that the input or output failed."""
    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=STATE)

        def log_message(self, *_):
            pass
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            for path in '', '/params/embed/table.npy':
                with pytest.raises(pytreefs.Error, match='the server gives the whole object .status 200. in place of the range'):
                    pytreefs.load(f'http://127.0.0.1:{server.server_port}{path}')
        finally:
            server.shutdown()
            thread.join()


def test_a_flat_dict_becomes_a_tree(tmp_path):
    """The counterpart of load_flat()."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Sequential(torch.nn.Linear(2, 1)))
    pytreefs.save(tmp_path / '1', model.state_dict(), separator='.')
    assert sorted(pytreefs.load(tmp_path / '1')) == ['0', '1'] and list(pytreefs.load(tmp_path / '1')['1']) == ['0']
    back = pytreefs.load_flat(tmp_path / '1', framework='torch')
    model.load_state_dict(back)
    assert back.keys() == model.state_dict().keys()
    for flat, why in (({'a': 1, 'a.b': 2}, "'a.b' is below a name that has a value itself"), ({'a.b': 2, 'a': 1}, "'a' is a name that others are below"),
                      ({'a': {}, 'a.b': 1}, "'a.b' is below")):
        with pytest.raises(pytreefs.Error, match=why):
            pytreefs.save(tmp_path / '2', flat, separator='.')
    assert not (tmp_path / '2').exists()


def test_what_cannot_be_filled_is_refused(tmp_path):
    """Memory that would not get the values, or not as they are: by load(out=) and by read(out=)."""
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    pytreefs.save(tmp_path / '1', {'w': values, 'c': values.astype(np.complex64)})
    cases = [('w', np.zeros((2, 3), '>f4'), 'native byte order'), ('w', torch.zeros(1).expand(2, 3), 'share memory'),
             ('c', torch.zeros(2, 3, dtype=torch.complex64).conj(), 'conjugate'), ('w', torch.zeros(2, 3, dtype=torch.complex64).conj().imag, 'negative'),
             ('w', torch.zeros(2, 3).to_sparse(), 'dense'), ('w', np.ma.zeros((2, 3), np.float32), 'writable array'),
             ('w', np.broadcast_to(np.zeros((), np.float32), (2, 3)), 'writable array')]
    with pytreefs.open(tmp_path / '1') as ck:
        for name, out, why in cases:
            with pytest.raises(ValueError, match=f'out .*{why}'):
                ck[f'default/{name}'].read(out=out)
            with pytest.raises(pytreefs.Error, match=f'what is read into .*{why}'):
                pytreefs.load(tmp_path / '1', out={'w': out, 'c': ...} if name == 'w' else {'w': ..., 'c': out})
        with pytest.raises(ValueError, match='neither dtype nor framework'):
            ck['default/w'].read(out=np.zeros((2, 3)), dtype='float64')
        out = np.zeros((3, 2), np.float32).T
        assert ck['default/w'].read(out=out) is out and np.array_equal(out, values)


def test_what_no_tree_can_hold_is_refused(tmp_path):
    """A container that is in itself; a masked array; objects whose methods fail in their own ways."""
    loop = {}
    loop['x'] = loop

    class Odd:
        shape, dtype = (2,), np.dtype('f4')

        def __array__(self, *_, **__):
            raise ZeroDivisionError('mine')
    for tree, why in ((loop, 'or is in itself'), ({'a': np.ma.masked_array([1.0, 2.0], [0, 1])}, "'default/a' cannot be saved: a masked array"),
                      ({'a': Odd()}, "'default/a' cannot be saved: mine"), ({'a': '\ud800'}, "'default/a' cannot be saved")):
        with pytest.raises(pytreefs.Error, match=why):
            pytreefs.save(tmp_path / '1', tree)
    assert not (tmp_path / '1').exists()


# A process that is spawned takes seconds to import torch; test_leaf_values.py has one.
METHODS = ('fork', 'spawn') if LONG else ('fork',)
WORKERS = '''
import sys
import pytreefs, torch

{recipe}
if __name__ == '__main__':
    leaf = pytreefs.open('ckpts/latest')['state/params/embed/table']
    for method in {methods}:
        loader = torch.utils.data.DataLoader(Rows(leaf), batch_size=16, num_workers=2, multiprocessing_context=method)
        rows = torch.cat(list(loader))
        assert torch.equal(rows, leaf.read(framework='torch').float()), method
'''


def test_workers_of_a_data_loader_read_as_the_page_says(tmp_path):
    page = pathlib.Path(__file__).resolve().parents[2] / 'docs/pytorch.md'
    recipe, = (text for text in re.findall(r'```python\n(.*?)```', page.read_text(), re.DOTALL) if text.startswith('class Rows'))
    (tmp_path / 'workers.py').write_text(WORKERS.format(recipe=recipe, methods=METHODS))
    shutil.copytree(SAMPLE, tmp_path / 'ckpts')
    r = subprocess.run([sys.executable, 'workers.py'], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert r.returncode == 0, r.stderr


def test_modules_are_filled_in_place_as_the_page_says(tmp_path):
    """With buffers, and modules without parameters; a shape that differs is said."""
    page = pathlib.Path(__file__).resolve().parents[2] / 'docs/pytorch.md'
    recipe, = (text for text in re.findall(r'```python\n(.*?)```', page.read_text(), re.DOTALL) if text.startswith('def tree_of'))
    names = {}
    exec(recipe, names)

    def model(width=6):
        made = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Sequential(nn.Dropout(), nn.Linear(6, 4, dtype=torch.bfloat16)), nn.Linear(width, 4))
        made.register_buffer('scratch', torch.ones(1), persistent=False)
        return made

    saved, filled = model(), model()
    saved[1](torch.randn(8, 6))
    pytreefs.save(tmp_path / '1', saved.state_dict(), separator='.')
    pytreefs.load(tmp_path / '1', out=names['tree_of'](filled))
    assert filled[1].num_batches_tracked == 1 and all(torch.equal(t, filled.state_dict()[name]) for name, t in saved.state_dict().items())
    with pytest.raises(pytreefs.Error, match=r'4/weight: shape \[4, 5\] here, \[4, 6\] in the checkpoint'):
        pytreefs.load(tmp_path / '1', out=names['tree_of'](model(5)))
