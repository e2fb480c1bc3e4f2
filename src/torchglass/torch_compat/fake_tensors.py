"""Fake tensors: metadata without data, made and called without torch._dynamo."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Sequence
from threading import get_ident
from types import FrameType
from typing import Any

import torch

# FakeTensorMode, FakeTensor: tensors with metadata and no data. Without them capture cannot know shapes. Tried: 2.11,
# 2.13. The three exceptions: what a fake operation raises when it would need data; without them such operations would
# look like errors of the user's program instead of breaking the graph. Tried: 2.11, 2.13.
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    in_kernel_invocation_manager,
)

from .. import _native
from ..aten.dtypes import refusal
from ..aten.layouts import LAYOUTS, elementwise, is_elementwise, laid_out
from ..aten.size_checks import SIZE_CHECKS
from ..aten.writes import is_random, written_by
from ..process.warning_filters import ignored
from . import fake_results

NEEDS_DATA: tuple[type[Exception], ...] = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
    UnsupportedFakeTensorException,
)


def needs_data(error: Exception) -> bool:
    """Whether an operation failed on fake tensors because it reads what they hold. ``torch.tensor([x.sum(), 1.0])``
    reads memory without an operator, and ``tolist`` of 2.11 does: their texts alone say so.
    """
    text = str(error)
    return isinstance(error, NEEDS_DATA) or "data is not allocated yet" in text or "unallocated storage" in text


aten = torch.ops.aten
Args = tuple[Any, ...]


def _mask_as_bool(args: Args) -> Args:
    return (args[0].bool(), *args[1:]) if args[0].dtype is torch.uint8 else args


def _as_if_summed(args: Args) -> Args:
    """They divide by the number of elements, in Python; what comes out lies alike for each reduction."""
    return *args[:3], _SUM, *args[4:]


_SUM = 2
_AS_META_TAKES: dict[Any, Callable[[Args], Args]] = {
    aten.where.self: _mask_as_bool,
    aten.mse_loss_backward.default: _as_if_summed,
    aten.smooth_l1_loss_backward.default: _as_if_summed,
    aten.huber_loss_backward.default: _as_if_summed,
}
"""Operators whose meta functions fail on what the kernels take, and arguments that give the same layout."""

_size = torch.ops.aten.size.default  # what C++ calls that takes no symbolic sizes
_device = torch.ops.prim.device.default  # which C++ asks for four times an operation
_META = torch.device("meta")
_IN_CPP = "with symbolic sizes/strides"
_IN_CPP_TEXTS = (  # of tensors, of these within a meta function, and of lists of sizes
    _IN_CPP, "dispatch_on_subclass called with NO overloaded args", "expected to contain only concrete integers",
)  # fmt: skip
_fake_dispatch = getattr(FakeTensorMode.__torch_dispatch__, "__wrapped__", FakeTensorMode.__torch_dispatch__)


class LightFakeMode(FakeTensorMode):
    """FakeTensorMode without ``torch._disable_dynamo`` around each operation, which would import torch._dynamo, whose
    own code no TorchFunctionMode hears of, and whose results lie in memory as the kernels' do. While it is asked for
    writes, it refuses the dtypes that the kernels refuse.

    Entering FakeTensorMode itself replaces PyTorch's CUDA device guard where there is no GPU, which crashes a build for
    CUDA (seen on 2.11) once threads have come and gone.
    """

    @property
    def avoid_device_init(self) -> bool:
        return False

    # While a meta function runs, fake tensors are on `meta`: for its thread. Another one, which lowers a graph of this
    # mode while a backward is traced, sees them where they are. Tried: 2.13.
    @property
    def in_kernel_invocation(self) -> bool:
        return get_ident() in self.in_kernels

    @in_kernel_invocation.setter
    def in_kernel_invocation(self, inside: bool) -> None:
        if inside:
            self.in_kernels.add(get_ident())
        else:
            self.in_kernels.discard(get_ident())

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __init__(self, **kwargs: Any) -> None:
        self.in_kernels: set[int] = set()  # the threads that run a meta function
        super().__init__(**kwargs)

    writes: list[torch.Tensor] | None = None  # what operators write to, while somebody wants to know
    draws = False  # whether one of them has drawn random numbers
    symbolic: Callable[..., Any] | None = None  # answers calls with symbolic sizes, where there are any
    undecided: tuple[type[Exception], ...] = ()  # what is raised where data decide what somebody asks of a size
    estimated: Callable[[Any], bool] | None = None  # whether data decide sizes of arguments
    sized_by_data: Callable[..., Any] | None = None  # answers calls whose sizes data decide, while that is allowed

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _device:
            fake = args[0]
            return _META if fake.fake_mode.in_kernel_invocation else fake.fake_device
        with torch._C.DisableTorchFunction():
            if func in _AS_META_TAKES:
                args = _AS_META_TAKES[func](args)
            kwargs = kwargs or {}
            if func is _size and self.symbolic is not None and args[0]._has_symbolic_sizes_strides:
                raise RuntimeError(f"sizes as numbers of a tensor {_IN_CPP}")
            key = fake_results.key_of(self, func, args, kwargs)
            result = fake_results.known(self, key, args)
            if result is None and key is None and self.symbolic is not None:
                result = self.symbolic(self, func, args, kwargs)
            if result is None and key is None and self.sized_by_data is not None:
                result = self.sized_by_data(self, func, args, kwargs)
            if result is None:
                # what is kept here the mode need not keep; of symbolic sizes it asks for SymPy's expressions
                self.cache_enabled = key is None and self.symbolic is None
                result = self._asked(func, types, args, kwargs)
                fake_results.keep(self, key, func, args, result)
            if self.writes is not None:
                self._watch(func, args, kwargs, result)
            return result

    # C++ that asks for the device of a fake tensor ends the process if an exception of another thread strikes here.
    __torch_dispatch__ = _native.answering(__torch_dispatch__, frozenset([_device]))

    def _asked(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """What the meta function says, laid out as the kernel lays it out. The operators that it calls are not the
        program's: nobody watches them.
        """
        if _makes_of_none(func) and not _has_fake(func):
            raise UnsupportedOperatorException(func)
        writes, self.writes = self.writes, None
        try:
            result = _fake_dispatch(self, func, types, args, kwargs)
            if func in LAYOUTS:
                with self:
                    return laid_out(func, result, args, kwargs)
            if isinstance(result, torch.Tensor) and has_single(result) and is_elementwise(func):
                with self:
                    return elementwise(func, result, args)
            return result
        finally:
            self.writes = writes

    def _watch(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        """Look at an operator of the program itself."""
        assert self.writes is not None
        self.writes += written_by(func, args, kwargs)
        self.draws |= is_random(func)
        if func in SIZE_CHECKS:
            SIZE_CHECKS[func](*args, **kwargs)
        refused = refusal(func, args, kwargs, result)
        if refused is not None and not (self.estimated is not None and self.estimated((args, kwargs))):
            raise refused


@functools.cache
def _makes_of_none(func: Any) -> bool:
    """Whether an operator of the program's takes neither tensors nor a device: without a fake implementation
    FakeTensorMode would give it the device `meta`, and its refusal would be taken for the program's.
    """
    return func.namespace not in ("aten", "prim", "prims") and not any(
        argument.name == "device" or "Tensor" in str(argument.type) for argument in func._schema.arguments
    )


def _has_fake(func: Any) -> bool:
    """Whether torch.library.register_fake has registered one by now, which FakeTensorMode asks first."""
    # simple_registry: without it such operators would run eagerly with the whole function. Tried: 2.11, 2.13.
    return torch._library.simple_registry.singleton.find(func.name()).fake_impl.kernel is not None


ON_SYMBOLS: dict[Any, Callable[..., Any]] = {}
"""Functions whose C++ and Python versions all want sizes as numbers, and what is called where they are not."""


def called_on_symbols(mode: Any, function: Any, args: Any, kwargs: Any) -> Any:
    """A function of PyTorch's on fake tensors. Where its C++ takes no symbolic sizes, as that of ``matmul`` in 2.11, or
    asks for one that data decide, PyTorch's Python versions of composite operators are called.
    """
    if getattr(mode, "symbolic", None) is None:  # PyTorch's own mode has no such answers
        return function(*args, **kwargs)
    function = ON_SYMBOLS.get(getattr(function, "of_tensors", function), function)
    try:
        return function(*args, **kwargs)
    except mode.undecided:
        pass
    except RuntimeError as error:
        if not any(text in str(error) for text in _IN_CPP_TEXTS):
            raise
    # _EnablePythonDispatcher: kernels that are written in Python go first. Tried: 2.11, 2.13.
    with torch._C._EnablePythonDispatcher():
        return function(*args, **kwargs)


def has_single(tensor: torch.Tensor) -> bool:
    """Whether a dimension is known to have one element."""
    if tensor._has_symbolic_sizes_strides:
        return any(type(size) is int and size == 1 for size in tensor.shape)
    return 1 in tensor.shape


def new_fake_mode() -> FakeTensorMode:
    """One fake tensor mode, for one capture and the stages after it."""
    return LightFakeMode(allow_non_fake_inputs=False)


Sizes = Sequence[int | torch.SymInt]


def fake_of(
    mode: FakeTensorMode, real: torch.Tensor, sizes: Sizes | None = None, strides: Sizes | None = None
) -> torch.Tensor:
    """A fake tensor with the metadata of ``real``; of a plain one with other ``sizes`` and ``strides`` if given.

    Plain tensors are built directly (14 µs; ``from_tensor`` takes 125, and of its first call half a second loads
    torch._dynamo); conjugated and sparse tensors go the long way.
    """
    if torch.is_inference_mode_enabled() != real.is_inference():
        with torch.inference_mode(real.is_inference()):
            return _fake_of(mode, real, sizes, strides)
    return _fake_of(mode, real, sizes, strides)


def is_plain(real: torch.Tensor) -> bool:
    """Whether its metadata alone make a fake tensor like it."""
    return real.layout is torch.strided and not real.is_conj() and not real.is_neg() and not real.is_quantized


def _fake_of(mode: FakeTensorMode, real: torch.Tensor, sizes: Sizes | None, strides: Sizes | None) -> torch.Tensor:
    if not is_plain(real):
        with ignored("The .grad attribute of a Tensor"):  # it reads that of tensors that are no leaves too
            return mode.from_tensor(real, static_shapes=True)
    base = real._base
    if base is not None and base.requires_grad and not real.is_leaf:
        return _fake_view(mode, real, base, sizes or real.shape, strides or real.stride())
    if sizes is None or strides is None:
        meta = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device="meta")
    else:
        meta = _meta(sizes, strides, real.dtype)
    return _with_history(FakeTensor(mode, meta, real.device), real)


def _with_history(fake: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """``fake`` as autograd knows ``real``, which is no view."""
    if real.is_leaf or not real.requires_grad:
        return fake.requires_grad_(real.requires_grad)
    # DelayedError: from_tensor marks what is no leaf with it too; nothing differentiates through it. Tried: 2.11, 2.13.
    with torch.enable_grad():
        history = torch._C._functions.DelayedError("torchglass: a fake tensor has no history", 1)
        return history(fake.requires_grad_())


def _fake_view(
    mode: FakeTensorMode, real: torch.Tensor, base: torch.Tensor, sizes: Sizes, strides: Sizes
) -> torch.Tensor:
    """A view that requires grad: of a fake tensor, so that autograd refuses the writes that it refuses on ``real``."""
    memory = FakeTensor(mode, torch.empty((_LARGEST,), dtype=real.dtype, device="meta"), real.device)
    with torch.enable_grad(), mode:
        fake = torch.as_strided(_with_history(memory, base), sizes, strides)
        # what autograd says of writes to views made by several at once, or without grad. Tried: 2.11, 2.13.
        torch._C._autograd._set_creation_meta(fake, torch._C._autograd._get_creation_meta(real))
    return fake


def fake_like(
    mode: FakeTensorMode, like: Any, sizes: Sizes, strides: Sizes, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """A new fake tensor of these sizes and strides, and of ``dtype`` if it is given, else of what has a dtype and a
    device.
    """
    return FakeTensor(mode, _meta(sizes, strides, dtype or like.dtype), like.device)


_LARGEST = 1 << 40
"""How many elements the memory holds of fake tensors whose sizes may be symbolic."""


def has_open_memory(fake: torch.Tensor) -> bool:
    """Whether a fake tensor's memory says nothing of that of the tensor that it stands for."""
    return fake.untyped_storage().nbytes() >= _LARGEST


def _meta(sizes: Sizes, strides: Sizes, dtype: torch.dtype) -> torch.Tensor:
    """A tensor without data. Of symbolic sizes ``empty_strided`` computes the bytes, which takes ten times as long;
    here they are more than any has, so that ``as_strided_`` finds what it looks for.
    """
    return torch.as_strided(torch.empty((_LARGEST,), dtype=dtype, device="meta"), sizes, strides)


def view_of(
    mode: FakeTensorMode, base: torch.Tensor, sizes: Sizes, strides: Sizes, offset: Any, dtype: torch.dtype
) -> torch.Tensor:
    """A fake tensor that shows the memory of another one."""
    with in_kernel_invocation_manager(mode):
        data = base
        if dtype.is_complex != base.dtype.is_complex:
            data = torch.view_as_complex(base) if dtype.is_complex else torch.view_as_real(base)
        data = torch.as_strided(data, sizes, strides, offset)
    return FakeTensor(mode, data if data.dtype is dtype else data.view(dtype), base.device)


def stand_in(fake: torch.Tensor, cls: type) -> torch.Tensor:
    """A tensor without data that looks like ``fake``, of ``cls`` (``torch.Tensor`` or ``Parameter``). No mode hears."""
    with torch._C.DisableTorchFunction():
        made = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device="meta")
        return torch.nn.Parameter(made, requires_grad=False) if cls is torch.nn.Parameter else made


def _is_for_others(record: logging.LogRecord) -> bool:
    """Whether a fake tensor mode of somebody else's reports."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not LightFakeMode._asked.__code__:
        frame = frame.f_back
    return frame is None


# Where fake tensors report an operation that fails on them, with a traceback. Such a failure of ours is the user's
# error (shapes that do not fit), which comes up again when Python runs the operation, or what is tried first. Tried:
# 2.11, 2.13.
logging.getLogger("torch._subclasses.fake_tensor").addFilter(_is_for_others)
