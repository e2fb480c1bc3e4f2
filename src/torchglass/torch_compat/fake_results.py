"""What operators gave on fake tensors, kept by what their results depend on.

A graph repeats few calls many times. FakeTensorMode keeps results too, but its keys take longer than all of this, and
to it ``x * 2.5`` and ``x * 3.5`` are different calls. Input: a call on fake tensors. Output: a new fake tensor as the
first such call gave it, or None; then ``keep`` enters what the mode itself finds.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch

# FakeTensor: called with metadata it makes a tensor without asking operators. Tried: 2.11, 2.13.
from torch._subclasses.fake_tensor import FakeTensor

from ..aten.sizes import hint_of, hints
from ..aten.writes import NORMALIZE

aten = torch.ops.aten
MOST_KEPT = 20_000  # results: past it all are forgotten
_VALUES_DECIDE = frozenset(
    getattr(torch.Tag, name)
    for name in ("data_dependent_output", "dynamic_output_shape", "nondeterministic_seeded", "inplace_view")
)
# A number of these says, to a tensor that is no whole number, nothing of the result by its value, only by its type.
_OF_ANY_NUMBER = frozenset((aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor))
_BY_VALUE = (
    int, float, complex, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format
)  # fmt: skip


class _Layout(NamedTuple):
    """A result: a new tensor, or where ``base`` numbers an argument, a view of it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device
    base: int | None


_known: dict[Any, _Layout | None] = {}  # None: the mode is to be asked each time


def known(mode: Any, key: Any, args: tuple[Any, ...]) -> torch.Tensor | None:
    """The result of a call with this key, made anew; None where it is not known."""
    layout = _known.get(key) if key is not None else None
    return None if layout is None else _made(mode, layout, args)


def key_of(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """All that the result of a call depends on, or None where that cannot be said."""
    return call_key(mode, func, args, kwargs) if _is_kept(func) else None


def call_key(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], symbols: bool = False) -> Any:
    """An operator, and what its arguments are but for what they hold; None where one is of a kind that is not known.
    ``symbols``: sizes may be symbols, and what they are now counts.
    """
    any_number = func in _OF_ANY_NUMBER
    key: list[Any] = [func, torch.get_default_dtype(), torch.is_inference_mode_enabled()]
    for arg in args:
        if any_number and type(arg) in (int, float):
            key.append(type(arg))
        elif not _enter(mode, key, arg, symbols):
            return None
        elif isinstance(arg, torch.Tensor):
            any_number = any_number and (arg.is_floating_point() or arg.is_complex())
    for name, value in kwargs.items():
        key.append(name)
        if not _enter(mode, key, value, symbols):
            return None
    return tuple(key)


def keep(mode: Any, key: Any, func: Any, args: tuple[Any, ...], result: Any) -> None:
    """Enter what the mode found for a call, if a tensor made from metadata is no different."""
    if key is None or key in _known:
        return
    if len(_known) >= MOST_KEPT:
        _known.clear()
    _known[key] = _layout_of(mode, func, args, result)


@functools.cache
def _is_kept(func: Any) -> bool:
    """Whether an operator gives one tensor, new or a view, as its arguments' metadata say, and does nothing else."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten" or func in NORMALIZE:
        return False
    if not torch._C._dispatch_has_kernel(func.name()):  # what asks for a symbolic size: no operator of the dispatcher
        return False
    returns = func._schema.returns
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
    return (
        not func._schema.is_mutable
        and len(returns) == 1
        and str(returns[0].type) == "Tensor"
        and not _VALUES_DECIDE & set(func.tags)
        and not composite
    )


def _described(mode: Any, tensor: torch.Tensor, symbols: bool = False) -> Any:
    if type(tensor) is not FakeTensor or tensor.fake_mode is not mode or tensor.constant is not None:
        return None
    if tensor.layout is not torch.strided:
        return None
    flags = tensor.is_conj(), tensor.is_neg(), tensor._is_zerotensor(), tensor.is_inference()
    sizes: Any = tensor.shape, tensor.stride(), tensor.storage_offset()
    if tensor._has_symbolic_sizes_strides:
        if not symbols:
            return None
        sizes = tuple(hints(sizes[0])), tuple(hints(sizes[1])), hint_of(sizes[2])
    return tensor.dtype, *sizes, tensor.fake_device, flags


def _enter(mode: Any, key: list[Any], value: Any, symbols: bool) -> bool:
    """Add an argument; False where it is no tensor and has none of the types whose values are compared."""
    if isinstance(value, torch.Tensor):
        key.append(_described(mode, value, symbols))
        return key[-1] is not None
    if type(value) in (list, tuple):
        key.append(len(value))
        return all(_enter(mode, key, item, symbols) for item in value)
    if symbols and isinstance(value, (torch.SymInt, torch.SymFloat)):
        value = value.node.hint
    if type(value) not in _BY_VALUE:
        return False
    key += (type(value), repr(value) if type(value) in (float, complex) else value)
    return True


def _layout_of(mode: Any, func: Any, args: tuple[Any, ...], result: Any) -> _Layout | None:
    if type(result) is not FakeTensor or any(result is arg for arg in args) or _described(mode, result) is None:
        return None
    storage = result.untyped_storage()
    tensors = [n for n, arg in enumerate(args) if isinstance(arg, torch.Tensor)]
    bases = [n for n in tensors if args[n].untyped_storage()._cdata == storage._cdata]
    if bool(bases) != func.is_view or len(bases) > 1:
        return None
    base = bases[0] if bases else None
    sizes = tuple(result.shape), result.stride(), result.storage_offset()
    layout = _Layout(*sizes, result.dtype, result.fake_device, base)
    made = _made(mode, layout, args)
    same = (
        _described(mode, made) == _described(mode, result)
        and made.untyped_storage().nbytes() == storage.nbytes()
        and torch._C._dispatch_key_set(made) == torch._C._dispatch_key_set(result)
    )
    return layout if same else None


def _made(mode: Any, layout: _Layout, args: tuple[Any, ...]) -> torch.Tensor:
    if layout.base is None:
        data = torch.empty_strided(layout.shape, layout.strides, dtype=layout.dtype, device="meta")
    else:
        data = torch.empty((), dtype=layout.dtype, device="meta")
        data.set_(args[layout.base].untyped_storage(), layout.offset, layout.shape, layout.strides)
    return FakeTensor(mode, data, layout.device)
