"""NumPy on the arrays of tensors, traced: each of NumPy's functions that is called becomes one call of NumPy itself.

    np.exp(x.numpy()) * 2   ->   x1 = numpy_call("np.exp(x0)", (x,)), x2 = numpy_call("np.multiply(x0, 2)", (x1,))

Under ``TracedArrays`` a tensor's ``.numpy()`` is a ``TracedArray``, which NumPy hands every call to (by its protocols
``__array_ufunc__`` and ``__array_function__``), and ``torch.tensor`` takes it back. Traced is what gives a new array
whose shape and dtype no data decide; these are found by calling the function with zeros. Whoever enters the mode says
what a call becomes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import torch
from torch.autograd.graph import get_gradient_edge
from torch.overrides import TorchFunctionMode

from ..process.warning_filters import ignored
from ..records.tensor_spec import TensorSpec

try:
    import numpy
    from numpy.lib.mixins import NDArrayOperatorsMixin
except ImportError:  # without NumPy no tensor has an array
    NDArrayOperatorsMixin = object  # type: ignore[assignment, misc]

Emit = Callable[[str, tuple[torch.Tensor, ...], TensorSpec], torch.Tensor]
"""Makes a tensor of this specification: what an expression of NumPy's gives for some tensors' arrays."""


class NotTraced(BaseException):
    """What is done with an array cannot be traced. No ``except`` of the program's is to go on from here."""


# Functions of NumPy, besides its ufuncs, that give one new array whose shape and dtype are the same for all data.
FUNCTIONS = frozenset([
    "argmax", "argmin", "argpartition", "argsort", "around", "clip", "concatenate", "cross", "cumprod", "cumsum",
    "diff", "dot", "einsum", "hstack", "inner", "interp", "kron", "lexsort", "max", "mean", "median", "min",
    "nan_to_num", "outer", "partition", "prod", "ptp", "roll", "round", "searchsorted", "sort", "stack", "std", "sum",
    "take", "take_along_axis", "tensordot", "trapezoid", "tril", "triu", "var", "vstack", "where",
])  # fmt: skip
# The same of arrays' methods.
METHODS = frozenset([
    "argmax", "argmin", "argsort", "astype", "clip", "copy", "cumprod", "cumsum", "dot", "max", "mean", "min", "prod",
    "round", "std", "sum", "var",
])  # fmt: skip
# Keywords that choose what is computed; others say where to write and where not.
KEYWORDS = frozenset([
    "axis", "axes", "casting", "ddof", "decimals", "dtype", "kind", "keepdims", "mode", "n", "order", "shift", "stable",
    "subok",
])  # fmt: skip


class TracedArray(NDArrayOperatorsMixin):
    """The array of a tensor."""

    def __init__(self, tensor: torch.Tensor, emit: Emit) -> None:
        self.tensor = tensor
        self.emit = emit

    @property  # type: ignore[misc]  # so that isinstance says what it is in eager
    def __class__(self) -> Any:
        return numpy.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> Any:
        return _dtypes()[self.tensor.dtype]

    @property
    def ndim(self) -> int:
        return self.tensor.dim()

    @property
    def size(self) -> int:
        return self.tensor.numel()

    def __len__(self) -> int:
        return len(self.tensor)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **kwargs: Any) -> Any:
        if method != "__call__" or ufunc.nout != 1 or not _is_numpys(ufunc):
            _refuse(f"`{ufunc.__name__}.{method}` of NumPy")
        result = self._call(ufunc.__name__, inputs, kwargs)
        if not out:
            return result
        (target,) = out
        if not is_traced(target) or (target.shape, target.dtype) != (result.shape, result.dtype):
            _refuse(f"`{ufunc.__name__}` of NumPy into another array")
        with torch.no_grad():
            target.tensor.copy_(result.tensor)
        return target

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        name = function.__name__
        if name not in FUNCTIONS or not _is_numpys(function):
            _refuse(f"`{name}` of NumPy")
        return self._call(name, args, kwargs)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("NumPy code in C")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)  # NumPy and Python look for protocols
        _refuse(f"attribute `{name}` of a NumPy array")

    def __bool__(self) -> NoReturn:
        _refuse("the truth of a NumPy array")

    def __iter__(self) -> Iterator[Any]:
        _refuse("going through a NumPy array")

    def __getitem__(self, key: Any) -> NoReturn:
        _refuse("places of a NumPy array")

    def __repr__(self) -> NoReturn:
        _refuse("the text of a NumPy array")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        _refuse("a copy of a NumPy array")

    __setitem__ = __delitem__ = __contains__ = __float__ = __int__ = __complex__ = __index__ = __getitem__

    def _call(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> TracedArray:
        return self._computed(f"np.{name}", [], args, kwargs)

    def _method(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> TracedArray:
        return self._computed(f"x0.{name}", [self.tensor], args, kwargs)

    def _computed(
        self, name: str, tensors: list[torch.Tensor], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> TracedArray:
        if not kwargs.keys() <= KEYWORDS:
            _refuse(f"`{name}` of NumPy with {', '.join(kwargs)}")
        parts = [*(_said(arg, tensors) for arg in args), *(f"{key}={_said(kwargs[key], tensors)}" for key in kwargs)]
        text = f"{name}({', '.join(parts)})"
        given = tuple(tensors)
        return TracedArray(self.emit(text, given, _result_of(text, given)), self.emit)


def _method(name: str) -> Callable[..., TracedArray]:
    def method(array: TracedArray, *args: Any, **kwargs: Any) -> TracedArray:
        return array._method(name, args, kwargs)

    method.__name__ = name
    return method


TRACED_METHODS = {name: _method(name) for name in sorted(METHODS)}
for _name, _function in TRACED_METHODS.items():
    setattr(TracedArray, _name, _function)


def is_traced(value: Any) -> bool:
    return type(value) is TracedArray


def _is_numpys(named: Any) -> bool:
    """Whether NumPy has it by its name."""
    return getattr(numpy, named.__name__, None) is named


def _refuse(what: str) -> NoReturn:
    raise NotTraced(what)


@functools.cache
def _dtypes() -> dict[torch.dtype, Any]:
    """NumPy's names of dtypes that it has."""
    names = "float16 float32 float64 complex64 complex128 int8 int16 int32 int64 uint8 bool"
    return {getattr(torch, name): numpy.dtype(name) for name in names.split()}


def _said(value: Any, tensors: list[torch.Tensor]) -> str:
    """An argument as a part of an expression; its arrays are named after their places among ``tensors``."""
    kind = type(value)
    if kind is TracedArray:
        for place, known in enumerate(tensors):
            if known is value.tensor:
                return f"x{place}"
        tensors.append(value.tensor)
        return f"x{len(tensors) - 1}"
    if kind in (list, tuple):
        items = ", ".join(_said(item, tensors) for item in value)
        return f"[{items}]" if kind is list else f"({items},)" if value else "()"
    if kind in (int, bool, str, type(None)):
        return repr(value)
    if kind is float and value == value and abs(value) != float("inf"):
        return repr(value)
    if isinstance(value, numpy.dtype) and value in _dtypes().values():
        return f"np.dtype({value.name!r})"
    if kind is type and _is_numpys(value):
        return f"np.{value.__name__}"
    _refuse(f"a {kind.__name__} as argument of a function of NumPy")


def function_of(expression: str, count: int) -> Callable[..., Any]:
    """An expression as a function of ``count`` arrays."""
    return eval(f"lambda {', '.join(f'x{n}' for n in range(count))}: {expression}", {"np": numpy})


def _result_of(expression: str, tensors: tuple[torch.Tensor, ...]) -> TensorSpec:
    """What an expression gives."""
    arrays = [_zeros(tensor) for tensor in tensors]
    with ignored(), numpy.errstate(all="ignore"):
        try:
            result = function_of(expression, len(arrays))(*arrays)
        except Exception as error:
            _refuse(f"`{expression}` of NumPy, which raises {type(error).__name__}")
    if type(result) is not numpy.ndarray or result.dtype not in _dtypes().values():
        _refuse(f"`{expression}`, which gives a {type(result).__name__}")
    if any(numpy.may_share_memory(result, array) for array in arrays):
        _refuse(f"`{expression}`, which gives a view")
    dtype = next(ours for ours, dtype in _dtypes().items() if dtype == result.dtype)
    strides = tuple(step // result.itemsize for step in result.strides)
    return TensorSpec(result.shape, strides, dtype, torch.device("cpu"))


def _zeros(tensor: torch.Tensor) -> Any:
    """An array of zeros that lies as a tensor does."""
    if not tensor.dim():
        _refuse("NumPy on a tensor without dimensions")  # NumPy makes scalars of it, and 1 reads its value for a dtype
    dtype = _dtypes()[tensor.dtype]
    extent = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride())) if tensor.numel() else 0
    strides = [step * dtype.itemsize for step in tensor.stride()]
    return numpy.lib.stride_tricks.as_strided(numpy.zeros(extent, dtype), tuple(tensor.shape), strides)


# --- between tensors and arrays ---------------------------------------------------------------------------------------
class TracedArrays(TorchFunctionMode):
    """Tensors give traced arrays. ``used``: whether one has been made."""

    def __init__(self, emit: Emit) -> None:
        super().__init__()
        self.emit = emit
        self.used = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.numpy:
            return self._array(*args, **kwargs)
        if func is torch.autograd.grad:
            return self._grad(*args, **kwargs)
        if func in TAKES_ARRAYS and args and is_traced(args[0]):
            return _tensor(func is torch.tensor, *args, **kwargs)
        return func(*args, **kwargs)

    def _grad(self, outputs: Any, inputs: Any, grad_outputs: Any = None, **others: Any) -> Any:
        """Backward functions are the program's too. A call with tensors would come back to where the mode is off."""
        ends, leaves = _listed(outputs), _listed(inputs)
        tangents = [None] * len(ends) if grad_outputs is None else _listed(grad_outputs)
        given = [torch.ones_like(end) if one is None else one for end, one in zip(ends, tangents)]
        if any(end.numel() != 1 for end, one in zip(ends, tangents) if one is None):
            _refuse("torch.autograd.grad without gradients of its outputs")
        with self:
            return torch.autograd.grad(*(list(map(get_gradient_edge, t)) for t in (ends, leaves)), given, **others)

    def _array(self, tensor: torch.Tensor, force: bool = False) -> TracedArray:
        if torch.is_grad_enabled() and tensor.requires_grad:
            _refuse("`.numpy()` of a tensor that requires grad")
        if force or tensor.device.type != "cpu" or tensor.dtype not in _dtypes() or tensor.is_conj() or tensor.is_neg():
            _refuse("`.numpy()` of such a tensor")
        self.used = True
        return TracedArray(tensor.detach(), self.emit)


def _listed(tensors: Any) -> list[Any]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


TAKES_ARRAYS = frozenset([torch.tensor, torch.as_tensor])


def _tensor(copies: bool, array: TracedArray, *, dtype: Any = None, device: Any = None, **others: Any) -> torch.Tensor:
    """``torch.tensor`` and ``torch.as_tensor``."""
    if any(others.values()) or (device is not None and torch.device(device).type != "cpu"):
        _refuse("such a tensor of a NumPy array")
    found = array.tensor.to(dtype) if dtype is not None and dtype != array.tensor.dtype else array.tensor
    return found.clone() if copies and found is array.tensor else found
