"""Tensors: a node of the graph and the fake tensor that knows its metadata."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
import torch.fx

from ...records.sources import Attr, Source
from ..errors import Fails, Unsupported
from ..protocol import Machine, Value, declared
from ..values.binding import bind, guard_lacks_attr, home_of
from ..values.iterators import SequenceIterV
from .constant import ConstantV
from .function_modes import FunctionModes, dispatched
from .methods import TensorMethodV
from .overlays import Overlays
from .sizes import SizeV

# Attributes that read no data and are plain Python values of a fake tensor.
METADATA = frozenset(
    [
        "dtype",
        "device",
        "layout",
        "ndim",
        "requires_grad",
        "is_cuda",
        "is_cpu",
        "is_mps",
        "is_xpu",
        "is_meta",
        "is_sparse",
        "is_sparse_csr",
        "is_quantized",
        "is_nested",
        "itemsize",
        "is_mkldnn",
        "is_leaf",
        "is_vulkan",
        "is_ipu",
        "is_hpu",
        "is_maia",
        "is_mtia",
        "is_xla",
        "names",
        "name",
        "output_nr",
    ]
)
TENSOR_ATTRIBUTES = frozenset(["T", "mT", "H", "mH", "real", "imag", "data"])


class TensorV(Value):
    """A tensor. ``fake`` has its shape, dtype, strides, device; ``real`` is set for inputs. ``replaced``: the program
    wrote to its ``.data``.
    """

    replaced = False

    def __init__(self, node: torch.fx.Node, fake: torch.Tensor, real: Any = None, source: Source | None = None) -> None:
        self.node = node
        self.fake = fake
        self.real = real
        self.source = source

    def __repr__(self) -> str:
        return f"TensorV({self.node.name}, {tuple(self.fake.shape)})"

    def python_type(self) -> type:
        return type(self.real) if self.real is not None else torch.Tensor

    def get_attr(self, m: Machine, name: str) -> Value:
        if m.state(FunctionModes).entered and not callable(getattr(torch.Tensor, name, callable)):
            answer = dispatched(m, getattr, [self, ConstantV(name)], {})
            if answer is not None:
                return answer
        if name in ("shape", "nbytes"):
            self.rely_on(m, name)
            return m.wrap_result(self.fake.shape if name == "shape" else self.fake.numel() * self.fake.itemsize)
        if name in METADATA and hasattr(torch.Tensor, name):
            self.rely_on(m, name)
            return ConstantV(getattr(self.fake, name))
        if name in TENSOR_ATTRIBUTES:
            return m.torch_call(getattr, [self, ConstantV(name)], {})
        if name == "grad":
            return self._grad(m)
        if name == "__class__":
            return m.wrap_result(self.python_type())
        if name == "grad_fn" and not self.fake.requires_grad:
            return ConstantV(None)
        m.class_lookup(self.python_type(), name)  # which the entry relies on
        attribute = getattr(torch.Tensor, name, None)
        if attribute is None and self.real is not None:
            # an attribute that the user (or a library) stuck onto the tensor
            if self.source is None or not hasattr(self.real, name):
                guard_lacks_attr(m, self.real, self.source, name)
                m.throw(AttributeError, f"'{self.python_type().__name__}' object has no attribute '{name}'")
            assert self.source is not None
            return m.wrap(getattr(self.real, name), Attr(self.source, name))
        if attribute is None:
            m.throw(AttributeError, f"'Tensor' object has no attribute '{name}'")
        if type(attribute) is FunctionType and not m.is_stable(home_of(attribute)):
            return bind(m, attribute, self, torch.Tensor, name)
        if callable(attribute):
            return TensorMethodV(self, name)
        raise Unsupported(f"attribute `{name}` of a tensor", "read it outside the compiled function")

    def rely_on(self, m: Machine, name: str) -> None:
        """Rely on it that an operator or attribute is PyTorch's own."""
        found = m.class_lookup(self.python_type(), name)
        function = found.fget if isinstance(found, property) else found
        if type(function) is FunctionType and not m.is_stable(home_of(function)):
            raise Unsupported(f"`{name}` of tensors, which the program replaced")

    def _grad(self, m: Machine) -> Value:
        if self.real is None or self.source is None:
            raise Unsupported("`.grad` of a tensor made inside the graph")
        written = m.state(Overlays).attribute(self.real, "grad")
        if written is not None:
            return written
        return m.wrap(self.real.grad, Attr(self.source, "grad"))

    def call(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        m.throw(TypeError, "'Tensor' object is not callable")

    def truth(self, m: Machine) -> bool:
        known = known_value(m, self)
        if known is not None:
            return bool(m.real(bool, known))
        raise Unsupported(
            "a branch on the value of a tensor",
            "use torch.where, or compute the condition outside the compiled function",
        )

    def iterate(self, m: Machine) -> Value:
        if m.state(FunctionModes).entered:
            raise Unsupported("iterating over a tensor under a TorchFunctionMode", "iterate over `x.unbind()`")
        if self.fake.dim() == 0:
            m.throw(TypeError, "iteration over a 0-d tensor")
        return SequenceIterV(m.listed(m.torch_method(self, "unbind", [ConstantV(0)], {})))

    def as_index(self, m: Machine, user: Callable[[Any], Any] = operator.index) -> Any:
        known = known_value(m, self)
        if known is None:
            raise Unsupported("a tensor as index of a list")
        return m.real(operator.index, known)

    def contains(self, m: Machine, item: Value) -> bool:
        raise Unsupported("`in` on a tensor")

    def length(self, m: Machine) -> int:
        self.rely_on(m, "__len__")
        answer = dispatched(m, len, [self], {})
        if answer is not None:
            return int(answer.as_constant())
        if self.fake.dim() == 0:
            m.throw(TypeError, "len() of a 0-d tensor")
        return int(self.fake.shape[0])

    def changing_length(self, m: Machine) -> Value | None:
        size = self.fake.shape[0] if self.fake.dim() else 0
        if not isinstance(size, torch.SymInt):
            return None
        self.rely_on(m, "__len__")
        return dispatched(m, len, [self], {}) or m.wrap_result(size)

    def get_item(self, m: Machine, key: Value) -> Value:
        self.rely_on(m, "__getitem__")
        if isinstance(key, SizeV) and self.fake.dim():  # which C++ takes for no index
            return m.torch_method(self, "select", [ConstantV(0), key], {})
        return m.torch_call(operator.getitem, [self, key], {})

    def set_item(self, m: Machine, key: Value, value: Value) -> None:
        self.rely_on(m, "__setitem__")
        m.torch_call(operator.setitem, [self, key, value], {})

    def set_attr(self, m: Machine, name: str, value: Value) -> None:
        if name == "requires_grad":
            if not self.fake.is_leaf:  # `requires_grad_(True)` lets that pass
                raise Fails("the program raises RuntimeError")
            m.torch_method(self, "requires_grad_", [value], {})
            return
        if name in ("grad", "data") and self.real is not None and self.source is not None:
            (write_grad if name == "grad" else write_data)(m, self, value)
            return
        raise Unsupported(f"writing attribute `{name}` of a tensor", "do this outside the compiled function")


# --- what files above define ------------------------------------------------------------------------------------------
@declared
def known_value(m: Machine, tensor: TensorV) -> torch.Tensor | None:
    """The real tensor that ``tensor`` is at every call, None when that is not known."""
    raise NotImplementedError


@declared
def write_grad(m: Machine, owner: TensorV, value: Value) -> None:
    """``owner.grad = value``: None, or a tensor that PyTorch takes for one."""
    raise NotImplementedError


@declared
def write_data(m: Machine, owner: TensorV, value: Value) -> None:
    """``owner.data = value``: other memory for the tensor, which nothing may read from here to the end of the graph."""
    raise NotImplementedError
