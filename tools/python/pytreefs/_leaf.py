# SPDX-License-Identifier: Apache-2.0
"""Leaves of a checkpoint that open() gave."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from . import _pytreefs as lib
from ._context import Context
from ._dtypes import Framework, changed, checked, dtype_of, empty, exact, fillable, may_change, name_of, raw, to_torch
from ._index import has_dots, plan
from ._node import KINDS, PLAIN_LEAVES, Node, is_bytes, number

Key: TypeAlias = str | int

_OPERATORS: dict[Any, Callable[..., Any]] = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul, np.true_divide: operator.truediv, np.power: pow,
    np.floor_divide: operator.floordiv, np.remainder: operator.mod, np.divmod: divmod, np.negative: operator.neg, np.positive: operator.pos,
    np.absolute: abs, np.invert: operator.inv, np.left_shift: operator.lshift, np.right_shift: operator.rshift, np.bitwise_and: operator.and_,
    np.bitwise_or: operator.or_, np.bitwise_xor: operator.xor, np.equal: operator.eq, np.not_equal: operator.ne, np.less: operator.lt,
    np.less_equal: operator.le, np.greater: operator.gt, np.greater_equal: operator.ge}

# Methods of numpy's arrays and of str that a leaf has, too: they read it.
_METHODS = {'string': frozenset(name for name in dir(str) if not name.startswith('_')), 'array': frozenset(('all', 'any', 'argmax', 'argmin', 'clip', 'flatten', 'max', 'mean', 'min', 'ravel', 'reshape', 'round', 'std', 'sum', 'swapaxes',
                      'tobytes', 'transpose', 'var'))}


class Leaf(NDArrayOperatorsMixin):
    """A value of a checkpoint: nothing is read before it is asked for.

    `leaf[0:512, ::2]` is a new array with that part, read from the chunks under it; integers, slices, `...` and
    None as in numpy. `np.asarray(leaf)` and `leaf.read()` are the whole, `leaf.value` is that of a number, a string or None.
    It computes, compares and is formatted as its value, which is read for each use: `leaf + 1`, `ck['step'] == 1500`,
    `range(ck['step'])`, `f"{ck['step']:05d}"`, `jnp.asarray(leaf)`. `is` compares handles: `ck['none'].value is None`.
    """

    __slots__ = ('_context', '_keys', '_name', '_node')

    def __init__(self, context: Context, name: str, keys: tuple[Key, ...], node: Node):
        self._context = context
        self._name = name
        self._keys = keys
        self._node = node

    def close(self) -> None:
        """Free what it holds; only of what open() gave."""
        if not self._keys:
            self._context.close()

    def __enter__(self) -> Leaf:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self) -> Node:
        if self._node.kind == lib.UNKNOWN:
            raise self._context.fail(self._node.error or -errno.EIO, (self._node.text or b'').decode(errors='replace'),
                                     self._name)
        return self._node

    @property
    def kind(self) -> str:
        """'array', 'scalar', 'string', 'none', 'placeholder', 'plugin', 'file', or 'unknown': reading says why."""
        return KINDS[self._node.kind]

    @property
    def name(self) -> str:
        """The name in a mount, from what was opened: 'state/params/w.npy'."""
        return self._name

    @property
    def key(self) -> tuple[Key, ...]:
        """The keys from what was opened; int for positions in lists and tuples."""
        return self._keys

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements on each axis; () for scalars."""
        return self._check().shape or ()

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements."""
        out = 1
        for n in self.shape:
            out *= n
        return out

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type; of ml_dtypes for bfloat16 and others when it is installed, else as numpy loads them: <V2, |V1.

        AttributeError for a leaf that has no elements (a string, None).
        """
        node = self._check()
        if node.dtype is None:
            raise AttributeError    # __getattr__() says the rest
        return dtype_of(node.dtype)

    @property
    def dtype_name(self) -> str | None:
        """The name of the element type, 'bfloat16', whether numpy knows it or not."""
        return self._check().dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, or of the text."""
        return self._check().nbytes

    @property
    def stored_nbytes(self) -> int:
        """Bytes that are stored for it: compressed, and without absent chunks."""
        self._check()
        return self._context.tree(self._name, lib.TREE_STORED)[0].stored

    @property
    def chunks(self) -> tuple[int, ...]:
        """Elements on each axis of what is decoded at once."""
        return self._check().chunks or ()

    @property
    def recorded_type(self) -> str:
        """The type as the checkpoint records it: 'jax.Array', 'int', ...; '' when it does not."""
        return self._check().recorded or ''

    @property
    def context(self) -> Context:
        return self._context

    @property
    def prng_impl(self) -> str | None:
        """Of typed PRNG keys of jax the name of the implementation, for jax.random.wrap_key_data(leaf.read(), impl=...)."""
        return self._context.prng_impl(self._name)

    @property
    def recorded_sharding(self) -> str | None:
        """The sharding that is recorded of an array of jax, as Orbax's JSON."""
        return self._context.attribute(self._name, 'sharding')

    def _own(self) -> Any:
        """The value of a text, and what numpy has of others."""
        return self.read() if self._check().kind == lib.STRING else self._array(None, None)

    def __len__(self) -> int:
        if self._node.kind == lib.STRING:
            return len(self.read())
        if not self.shape:
            raise TypeError(f'{self._name} has no length: its shape is ()')
        return self.shape[0]

    def __repr__(self) -> str:
        return f'<pytreefs.Leaf {self._name!r} {self.summary()}>'

    def summary(self) -> str:
        """Its kind, and type and shape of what has elements."""
        node = self._node
        return f'{self.kind} {node.dtype}{list(node.shape or ())}' if node.dtype else self.kind

    def __getitem__(self, index: Any) -> Any:
        node = self._check()
        if node.kind == lib.STRING:
            return self.read()[index]
        if node.dtype is None:
            raise TypeError(f'{self._name} is a {self.kind}: read() gives it')
        shape = node.shape or ()
        wanted = plan(index, shape)
        is_whole = wanted.read_shape == shape and all(step == 1 for _, step, _, _ in wanted.box)
        if not is_whole and '[' in self._name.rpartition('/')[2]:      # a view that is a box itself; in keys it is escaped
            return self._array(None, None)[index]
        a = empty(wanted.read_shape, node.dtype, self._name)
        if a.size:
            self._context.read([(self._name, None if is_whole else wanted.box, None, raw(a), node.version)])
        flips: Any = (..., *wanted.flips)       # with `...` it is a view, never a scalar
        out = a[flips].reshape(wanted.shape)
        return out if wanted.shape or has_dots(index) else out[()]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError(f'{self._name} is not in memory: an array of it is a copy')
        out = self._array(None, None)
        return out if dtype is None else out.astype(dtype, copy=False)

    def __dlpack__(self, **how: Any) -> Any:
        """The data that was read, for torch.from_dlpack() and others. BufferError for types that neither numpy nor torch, when
        it is loaded, gives to others."""
        a = self._array(None, None)
        try:
            return a.__dlpack__(**how)
        except BufferError:
            pass
        if 'torch' in sys.modules:
            return to_torch(a, self.dtype_name or '').__dlpack__(**how)
        raise BufferError(f"{self._name}: DLPack has no {self.dtype_name} of numpy's; read(framework='torch') makes a tensor of it")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0     # kDLCPU

    def _array(self, dtype: str | None, out: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any]:
        node = self._check()
        if node.dtype is None:
            raise TypeError(f'{self._name} is a {self.kind}: read() gives it')
        name = dtype or node.dtype
        a = empty(node.shape or (), name, self._name) if out is None else out
        if a.size:
            self._context.read([(self._name, None, None if name == node.dtype else name, raw(a), node.version)])
        return a

    def _fill(self, out: Any) -> Any:
        try:
            a, name = fillable(out)
        except ValueError as e:
            raise ValueError(f'{self._name}: out {e}') from None
        if a.shape != (self._node.shape or ()):
            raise ValueError(f'{self._name}: out has shape {a.shape}, the leaf {self._node.shape}')
        stored = self._node.dtype or ''
        if may_change(stored, name) and (odd := changed(self._array(exact(stored), None), name)) is not None:
            raise self._context.fail(-errno.EINVAL, f'has {odd!r}, which {name} cannot hold: it is {stored} in the checkpoint', self._name)
        self._array(name, a)
        return out

    def read(self, dtype: Any = None, out: Any = None, framework: Framework = 'numpy') -> Any:
        """The value: an array, a Python number, a str, bytes, None, `...` (a placeholder), or the bytes of a file.

        dtype: the elements are cast to it. out: an array or a tensor of the same shape that is filled, cast to its type, and
        returned. With one of them a number comes as an array of rank 0. framework 'torch': an array comes as a tensor; 'jax': as an
        array of jax, where the checkpoint records that it was, or on the default device.

        >>> open('ckpts/latest')['state/params/embed/table[0:2].npy'].read(dtype='float32').shape
        (2, 32)
        """
        node = self._check()
        framework = checked(framework)
        as_tensor = framework == 'torch'
        if out is not None:
            if dtype is not None or framework != 'numpy':
                raise ValueError('out says the dtype and what it is: give neither dtype nor framework')
            return self._fill(out)
        if dtype is None and is_bytes(node):
            return self._context.bytes_of(self._name)
        if framework == 'jax' and node.kind == lib.ARRAY:
            return self.load(dtype=dtype, framework=framework)
        if dtype is not None or node.kind == lib.ARRAY:
            a = self._array(None if dtype is None else name_of(dtype), None)
            return to_torch(a, name_of(dtype) if dtype is not None else node.dtype or '') if as_tensor else a
        if node.kind == lib.NONE:
            return None
        if node.kind == lib.PLACEHOLDER:
            return ...
        if node.kind in (lib.SCALAR, lib.STRING):
            node = self._context.tree(self._name, lib.TREE_VALUES)[0]
            if node.version != self._node.version:
                raise self._context.fail(-errno.ESTALE, 'was replaced since it was looked up: look it up again', self._name)
            if node.kind == lib.STRING:
                return (node.text or b'').decode()
            return number(node.text or b'null', node.dtype or 'float64')
        return self._context.bytes_of(self._name)

    def load(self, **how: Any) -> Any:
        """pytreefs.load() of it."""
        from ._load import load
        return load(self, **how)

    @property
    def value(self) -> Any:
        """The value, as read() gives it."""
        return self.read()

    def json(self) -> Any:
        """The parsed value of a JSON file; a number, a string or None is itself. ValueError for an array, and Error when it is not JSON."""
        if self.kind in ('scalar', 'string', 'none'):
            return self.read()
        if self.kind != 'file':
            raise ValueError(f'{self._name} is a {self.kind}, not JSON')
        try:
            return json.loads(self._context.bytes_of(self._name))
        except ValueError as e:
            raise self._context.fail(-errno.EIO, f'is not JSON: {e}', self._name) from None

    # ---- as its value ----

    def place(self) -> str:
        """The path of what it is a handle of."""
        return self._context.place(self._name, self._node.version)

    def __reduce__(self) -> Any:
        return _opened, (self._context.place('', 0), self._context.options, self._keys, self._node.version)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **how: Any) -> Any:
        """Arithmetic and comparisons, with the values of leaves: of numbers and strings as Python's, whose integers have no limit."""
        values = [x.read() if isinstance(x, Leaf) else x for x in inputs]
        if ufunc in _OPERATORS and not how and not any(hasattr(x, '__array__') or hasattr(x, '__len__') and not isinstance(x, str) for x in values):
            return _OPERATORS[ufunc](*values)
        return getattr(ufunc, method)(*values, **how)

    def __mul__(self, other: Any) -> Any:
        return NotImplemented if self._repeats(other) else super().__mul__(other)

    def __rmul__(self, other: Any) -> Any:
        return NotImplemented if self._repeats(other) else super().__rmul__(other)

    def _repeats(self, other: Any) -> bool:
        """A list times a number is that many of it: Python asks for the number's __index__ then."""
        return self._node.kind == lib.SCALAR and isinstance(other, (list, tuple, bytes, bytearray))

    def __hash__(self) -> int:
        return hash(self.read())

    def __bool__(self) -> bool:
        return bool(self.read())

    def __float__(self) -> float:
        return float(self.read())

    def __int__(self) -> int:
        return int(self.read())

    def __complex__(self) -> complex:
        return complex(self.read())

    def __index__(self) -> int:
        return operator.index(self.read())

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.read(), digits)

    def __trunc__(self) -> int:
        return int(math.trunc(self.read()))

    def __floor__(self) -> int:
        return int(math.floor(self.read()))

    def __ceil__(self) -> int:
        return int(math.ceil(self.read()))

    def __iter__(self) -> Iterator[Any]:
        len(self)
        return iter(self._own())

    def __contains__(self, value: object) -> bool:
        return value in self._own()

    def __format__(self, how: str) -> str:
        return format(self.read(), how) if how else str(self)

    def __str__(self) -> str:
        if self._node.kind == lib.ARRAY and not self._node.shape:
            return str(self._array(None, None))
        return str(self.read()) if self._node.kind in (lib.STRING, lib.SCALAR, lib.NONE) else repr(self)

    def __jax_array__(self) -> Any:
        import jax.numpy
        return jax.numpy.asarray(self.read())

    def __getattr__(self, name: str) -> Any:
        if not name.startswith('_') and name in _METHODS.get(self.kind, ()):
            return lambda *args, **how: getattr(self._own(), name)(*args, **how)
        what = 'a leaf' if name.startswith('_') else f'{self.kind} {self._name!r}'
        raise AttributeError(f'{what} has no attribute {name!r}', name=name, obj=self)

    @property
    def T(self) -> np.ndarray[Any, Any]:    # noqa: N802
        """The array that was read, transposed."""
        return self._array(None, None).T

    def astype(self, dtype: Any) -> np.ndarray[Any, Any]:
        """read(dtype)."""
        found: np.ndarray[Any, Any] = self.read(dtype=dtype)
        return found

    def tolist(self) -> Any:
        """The value of a number, a string or None; an array as nested lists of numbers."""
        return self._array(None, None).tolist() if self.kind == 'array' else self.value

    def item(self) -> Any:
        """The only element, as Python's number."""
        return self._array(None, None).item()


PLAIN_LEAVES.add(Leaf)


_registered: list[Any] = []


def register_with_jax() -> None:
    """A node whose only child is its value: jax reads a handle where it takes arrays (device_put, jnp.sum, jit)."""
    tree_util = getattr(sys.modules['jax'], 'tree_util', None)     # None while another thread imports it
    if tree_util is None or _registered:
        return

    def children(leaf: Leaf) -> tuple[tuple[Any], None]:
        return (leaf.read(),), None

    with contextlib.suppress(ValueError):                          # another thread came first
        tree_util.register_pytree_node(Leaf, children, lambda _, values: values[0])
    _registered.append(tree_util)


def _opened(path: str, options: Mapping[str, Any], keys: tuple[Key, ...], version: int) -> Any:
    """A handle that was pickled; Error when it is of another step or item by now. version: 0 where nothing is known of it."""
    from ._checkpoint import open
    found: Any = open(path, **options)
    for key in keys:
        found = found[key]
    if version and found.context.describe(found.name).version != version:
        raise found.context.replaced(found.name)
    return found
