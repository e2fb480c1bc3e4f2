"""NumPy: its scalars are constants, and arrays that constants make are values that only get read."""

from __future__ import annotations

import operator
from types import BuiltinFunctionType, FunctionType
from typing import Any

from ...operators.traced_arrays import TRACED_METHODS
from ..errors import Unsupported
from ..protocol import Machine, Value
from ..values.binding import home_of
from ..values.iterators import SequenceIterV
from ..values.methods import BuiltinMethodV, MethodV
from .constant import NUMPY_SCALARS
from .sealing import refuse_when_sealed

# Methods of arrays that look at them, and make new ones.
READING_METHODS = frozenset([
    "all", "any", "argmax", "argmin", "argsort", "astype", "clip", "copy", "cumprod", "cumsum", "dot",
    "flatten", "item", "max", "mean", "min", "prod", "ravel", "repeat", "reshape", "round", "std", "sum",
    "swapaxes", "tolist", "transpose", "var", "__len__", "__getitem__", "__contains__", "__repr__",
    "__str__", "__float__", "__int__", "__bool__", "__index__", "__array__"
])  # fmt: skip
READ_ATTRIBUTES = frozenset(["T", "dtype", "itemsize", "nbytes", "ndim", "shape", "size", "real", "imag"])
# Functions of NumPy whose results do not depend on their arguments alone, or that write to them.
IMPURE = frozenset([
    "random", "save", "savez", "savetxt", "load", "loadtxt", "fromfile", "copyto", "put", "place", "putmask",
    "fill_diagonal", "seterr", "seterrcall", "set_printoptions", "errstate", "memmap", "frombuffer",
    "nditer", "empty", "empty_like", "get_printoptions", "shuffle", "test", "info"
])  # fmt: skip


class KnownArrays(dict[int, "ArrayV"]):
    """The value of each array, by the id of the array."""


class ArrayV(Value):
    """A ``numpy.ndarray`` computed from constants while capturing; ``root`` is the array that it is a view of.

    It is as the program left it, since what writes to it does so while capturing. Entry code hands out a copy, and
    views of that copy.
    """

    def __init__(self, array: Any, root: ArrayV | None = None) -> None:
        self.array = array
        self.root = root

    @classmethod
    def of(cls, m: Machine, array: Any) -> ArrayV:
        """The one value for ``array``."""
        arrays = m.state(KnownArrays)
        known = arrays.get(id(array))
        if known is not None:
            return known
        base = array.base
        if base is not None and not is_array(base):
            raise Unsupported("a NumPy array in memory of others")
        known = arrays[id(array)] = cls(array, None if base is None else cls.of(m, base))
        return known

    def offset(self) -> int:
        """Where a view begins in its root, in bytes."""
        assert self.root is not None
        return int(self.array.ctypes.data - self.root.array.ctypes.data)

    def __repr__(self) -> str:
        return f"ArrayV({self.array.dtype}, {self.array.shape})"

    def python_type(self) -> type:
        return type(self.array)

    def as_constant(self) -> Any:
        return self.array

    def get_attr(self, m: Machine, name: str) -> Value:
        if name in READ_ATTRIBUTES:
            return m.wrap_result(m.real(getattr, self.array, name))
        if name in READING_METHODS:
            return BuiltinMethodV(getattr(type(self.array), name), self)
        raise Unsupported(f"attribute `{name}` of a NumPy array")

    def truth(self, m: Machine) -> bool:
        return bool(m.real(bool, self.array))

    def length(self, m: Machine) -> int:
        return int(m.real(len, self.array))

    def iterate(self, m: Machine) -> Value:
        return SequenceIterV([m.wrap_result(item) for item in m.real(list, self.array)])

    def get_item(self, m: Machine, key: Value) -> Value:
        return m.fold(operator.getitem, [self, key], {})

    def set_item(self, m: Machine, key: Value, value: Value) -> None:
        self.refuse_when_sealed(m)
        m.fold(operator.setitem, [self, key, value], {})

    def refuse_when_sealed(self, m: Machine) -> None:
        refuse_when_sealed(m, "a NumPy array")

    def contains(self, m: Machine, item: Value) -> bool:
        return bool(m.truth(m.fold(operator.contains, [self, item], {})))


class TracedArrayV(ArrayV):
    """The array of a tensor, while an autograd.Function is rehearsed: NumPy gives what later stages will trace."""

    def python_type(self) -> type:
        cls: type = self.array.__class__  # which it says it is
        return cls

    def get_attr(self, m: Machine, name: str) -> Value:
        if name in TRACED_ATTRIBUTES:
            return m.wrap_result(getattr(self.array, name))
        if name in TRACED_METHODS:
            return MethodV(m.wrap(TRACED_METHODS[name]), self)
        raise Unsupported(f"attribute `{name}` of a tensor's NumPy array")

    def refuse_when_sealed(self, m: Machine) -> None:
        """What is written to is the tensor."""


TRACED_ATTRIBUTES = frozenset(["dtype", "ndim", "shape", "size"])


def is_array(real: Any) -> bool:
    return type(real).__module__ == "numpy" and type(real).__name__ == "ndarray"


def is_numpy_function(real: Any) -> bool:
    """Whether ``real`` is a function of NumPy that may be called ahead of time with constants."""
    cls = type(real)
    module = home_of(real) or ""
    name = getattr(real, "__name__", "")
    if name in IMPURE or ".random" in module:
        return False
    if str(cls.__module__).partition(".")[0] == "numpy":
        return cls.__name__ in ("ufunc", "_ArrayFunctionDispatcher")
    return isinstance(real, (BuiltinFunctionType, FunctionType)) and module.partition(".")[0] == "numpy"


def numpy_draws(real: Any) -> bool:
    """Whether ``real`` draws from a generator of NumPy's, or sets one."""
    return str(getattr(real, "__module__", "")).startswith("numpy.random") and hasattr(real, "__name__")


def is_scalar_class(cls: type) -> bool:
    return bool(NUMPY_SCALARS) and issubclass(cls, NUMPY_SCALARS)
