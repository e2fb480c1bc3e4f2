"""The only file that touches PyTorch's private modules.

Each private name says what breaks without it and which versions were tried, so that a new PyTorch release is one file
to look at.
"""

from __future__ import annotations

import functools
import logging
import re
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

# --- capture: fake tensors -------------------------------------------------------------------------------------------
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
)

from .collector import Sheltered
from .kernel_dtypes import refusal
from .kernel_layouts import LAYOUTS, elementwise, is_elementwise, laid_out
from .kernel_writes import is_random, written_by

NEEDS_DATA: tuple[type[Exception], ...] = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
    UnsupportedFakeTensorException,
)


def needs_data(error: Exception) -> bool:
    """Whether an operation failed on fake tensors because it reads what they hold. ``torch.tensor([x.sum(), 1.0])``
    reads memory without an operator, which says so by its text alone.
    """
    return isinstance(error, NEEDS_DATA) or "its data is not allocated yet" in str(error)


_where = torch.ops.aten.where.self
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

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    writes: list[torch.Tensor] | None = None  # what operators write to, while somebody wants to know
    only_lists = False  # of them only members of lists, for whose versions fake kernels do not account
    draws = False  # whether one of them has drawn random numbers

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunction():
            if func is _where and args[0].dtype is torch.uint8:  # its meta function refuses what the kernel takes
                args = (args[0].bool(), *args[1:])
            call = _fake_dispatch if self.writes is None else LightFakeMode._watched
            result = call(self, func, types, args, kwargs or {})
            if func in LAYOUTS:
                with self:
                    return laid_out(func, result, args)
            if isinstance(result, torch.Tensor) and 1 in result.shape and is_elementwise(func):
                with self:
                    return elementwise(func, result, args)
            return result

    def _watched(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Call an operator of the program itself: those that its meta function calls are not looked at."""
        written, self.writes = self.writes, None
        try:
            result = _fake_dispatch(self, func, types, args, kwargs)
        finally:
            self.writes = written
        assert written is not None
        written += written_by(func, args, kwargs, self.only_lists)
        self.draws |= is_random(func)
        refused = refusal(func, args, kwargs, result)
        if refused is not None:
            raise refused
        return result


def new_fake_mode() -> FakeTensorMode:
    """One fake tensor mode, for one capture and the stages after it."""
    return LightFakeMode(allow_non_fake_inputs=False)


def fake_of(mode: FakeTensorMode, real: torch.Tensor) -> torch.Tensor:
    """A fake tensor with the metadata of ``real``.

    Plain leaf tensors are built directly (14 µs; ``from_tensor`` takes 125); views that require grad, conjugated and
    sparse tensors go the long way.
    """
    if torch.is_inference_mode_enabled() != real.is_inference():
        with torch.inference_mode(real.is_inference()):
            return _fake_of(mode, real)
    return _fake_of(mode, real)


def _fake_of(mode: FakeTensorMode, real: torch.Tensor) -> torch.Tensor:
    plain = (
        real.layout is torch.strided
        and (real.is_leaf or not real.requires_grad)
        and not real.is_conj()
        and not real.is_neg()
        and not real.is_inference()
        and not real.is_quantized
    )
    if not plain:
        with warnings.catch_warnings():  # it reads `.grad`, of tensors that are no leaves too
            warnings.filterwarnings("ignore", "The .grad attribute of a Tensor")
            return mode.from_tensor(real, static_shapes=True)
    meta = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device="meta")
    fake = FakeTensor(mode, meta, real.device)
    return fake.requires_grad_() if real.requires_grad else fake


def stand_in(fake: torch.Tensor, cls: type) -> torch.Tensor:
    """A tensor without data that looks like ``fake``, of ``cls`` (``torch.Tensor`` or ``Parameter``). No mode hears."""
    with torch._C.DisableTorchFunction():
        made = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device="meta")
        return torch.nn.Parameter(made, requires_grad=False) if cls is torch.nn.Parameter else made


# FAKE_LOG: where fake tensors report an operation that fails on them, with a traceback. While capturing, such a failure
# is the user's error (shapes that do not fit) and comes up again when Python runs the operation. Tried: 2.11, 2.13.
FAKE_LOG = logging.getLogger("torch._subclasses.fake_tensor")


# --- capture: callables that the frame machine tells apart ----------------------------------------------------------
# OpOverload, OpOverloadPacket: the types of torch.ops.aten.add.Tensor and torch.ops.aten.add. Without them calls of
# operators would not be recognised. Tried: 2.11, 2.13. set_grad_mode: what torch.no_grad's Python code calls in the
# end. Without it regions without gradients could not be captured. OPERATION_OWNERS: the modules that tensor
# operations written in C belong to. Without them F.linear would break the graph. The questions: library code asks
# them, and the answer while compiling is known. Without them such code breaks the graph.
OpOverload = torch._ops.OpOverload
OpOverloadPacket = torch._ops.OpOverloadPacket

set_grad_mode: Callable[[bool], None] = torch._C._set_grad_enabled
OPERATION_OWNERS: tuple[Any, ...] = tuple(
    owner
    for owner in (
        torch._C,
        *(getattr(torch._C, n, None) for n in ("_nn", "_linalg", "_fft", "_special", "_sparse", "_nested")),
    )
    if owner is not None
)
tracing_state: Callable[[], Any] = torch._C._get_tracing_state
function_mode_enabled: Callable[[], bool] = torch._C._is_torch_function_mode_enabled
# _len_torch_dispatch_stack: nn.MultiheadAttention's fast path asks whether make_fx is at work; asked of a fake tensor
# mode the answer is wrong. Tried: 2.13. Without it that module breaks the graph in eval.
dispatch_mode_count: Callable[[], int] | None = getattr(torch._C, "_len_torch_dispatch_stack", None)
log_api_usage: Callable[..., None] = torch._C._log_api_usage_once
# Tried: 2.11, 2.13. Switches that a program may turn while it is captured (`sdpa_kernel`, `cudnn.flags`): capture turns
# them back, the graph turns them again. Without them a capture that breaks inside leaves them turned.
BACKEND_SWITCHES: tuple[tuple[Callable[[], Any], Callable[[Any], None]], ...] = tuple(
    (getattr(torch._C, getter), getattr(torch._C, setter))
    for getter, setter in (
        *((f"_get_cudnn_{n}", f"_set_cudnn_{n}") for n in ("enabled", "benchmark", "deterministic", "allow_tf32")),
        *((f"_get_{n}_sdp_enabled", f"_set_sdp_use_{n}") for n in ("flash", "math", "mem_efficient", "cudnn")),
        ("_get_sdp_priority_order", "_set_sdp_priority_order"),
        ("_get_mkldnn_enabled", "_set_mkldnn_enabled"),
    )
    if hasattr(torch._C, getter) and hasattr(torch._C, setter)
)
# Tried: 2.13. Questions about state that programs change between calls, not inside. Without them such a change is not
# noticed.
STATE_QUESTIONS: frozenset[Callable[..., Any]] = frozenset(
    getattr(home, name)
    for home in (torch, torch._C)
    for name in (
        "get_num_threads", "get_num_interop_threads",
        "_get_warnAlways", "_get_float32_matmul_precision", "_get_cublas_allow_tf32", "_get_fp32_precision_getter",
        "_get_cublas_allow_fp16_reduced_precision_reduction", "_get_cublas_allow_bf16_reduced_precision_reduction",
        "_get_mkldnn_deterministic", "_get_mkldnn_allow_tf32", "_get_nnpack_enabled",
        "_get_deterministic_fill_uninitialized_memory",
    )
    if hasattr(home, name)
)  # fmt: skip
# What torch.inference_mode's Python code enters, and the same as two functions, which torch.compile puts into graphs.
# Without them such a block ends the graph. Tried: 2.13.
InferenceMode = torch._C._InferenceMode
enter_inference_mode: Callable[[bool], Any] = torch.autograd.grad_mode._enter_inference_mode
exit_inference_mode: Callable[[Any], None] = torch.autograd.grad_mode._exit_inference_mode
# What `with torch.device(...)` and set_default_device enter, and the functions that it hands the device to. Without
# them tensors made in such a block inside a compiled function would be on the wrong device. function_mode_stack:
# torch.autocast looks at it. DisableTorchFunctionSubclass: what modes enter to call the plain function. Tried: 2.13.
# NO_TORCH_FUNCTION: what stands in a class that is not to be asked.
from torch.utils._device import DeviceContext
from torch.utils._device import _device_constructors as device_constructors

function_mode_stack: Callable[[], list[Any]] = torch.overrides._get_current_function_mode_stack
DisableTorchFunctionSubclass = torch._C.DisableTorchFunctionSubclass
NO_TORCH_FUNCTION = torch._C._disabled_torch_function_impl
# What torch.autocast's Python code calls: behind one of these, operations mean something else.
AUTOCAST_SETTERS: frozenset[Any] = frozenset(
    (torch.set_autocast_enabled, torch.set_autocast_dtype, torch.set_autocast_cache_enabled)
)
# Tried: 2.11, 2.13. Without them a check with a message, or of a tensor's values, would end the graph.
CHECKS: dict[Callable[..., Any], type[Exception]] = {
    torch._check: RuntimeError,
    torch._check_index: IndexError,
    torch._check_value: ValueError,
    torch._check_type: TypeError,
    torch._check_not_implemented: NotImplementedError,
}
TENSOR_CHECKS: tuple[Callable[..., Any], ...] = (torch._check_tensor_all,)
assert_tensor: Callable[..., None] = torch._assert_async
# Without it clip_grad_norm_ and its kin break the graph. Tried: 2.11, 2.13.
group_tensors: Callable[..., Any] | None = getattr(torch._C, "_group_tensors_by_device_and_dtype", None)


# temporarily_clear_interpreter_stack: leave torch.func's transforms for a moment. Without it an input of the graph that
# is first read inside a transformed function would be wrapped by the transform. Tried: 2.13.
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack as outside_transforms

# --- autodiff: tracing below autograd ---------------------------------------------------------------------------------
# Tried: 2.11, 2.13. TorchDispatchMode: a mode that sees every ATen call. Without it autodiff has no graph to write.
# torch._to_functional_tensor, _from_functional_tensor, _enable/_disable_functionalization, _sync, _functionalize_*:
# torch's C++ functionalization, which turns in-place operations into pure ones below autograd. Without it writes and
# views would stay in the graphs. _ExcludeDispatchKeyGuard: leave it inside a kernel of ours.
# torch._C._current_autograd_node, torch._C._autograd._get_sequence_nr: which forward operation a backward operation
# belongs to. Without them backward nodes lose the user's file and line. torch._C._AutoDispatchBelowADInplaceOrView:
# run a compiled graph without autograd's bookkeeping. Without it an operation   takes 1 µs longer, and results that
# are views inside would be views outside, which must not be written to.
# torch._C._autograd._top_saved_tensors_default_hooks: whether the user's saved-tensor hooks are active, which must
# not   see the tensors of a trace. torch._C._set_view_replay_enabled: gradients of writes to views are views again,
# not as_strided. torch.fx._lazy_graph_module: a GraphModule that generates its own code when first asked. We run our
# rendering of the   graph, so that code is rarely needed and costs 30 ms for 700 nodes.
# torch._C._DisableTorchDispatch: read a number out of a real tensor while fake tensors are on.
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    """A dispatch mode that torch does not wrap in ``torch._disable_dynamo``, which would import torch._dynamo."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


below_autograd: Callable[[], Any] = torch._C._AutoDispatchBelowADInplaceOrView
current_autograd_node: Callable[[], Any] = torch._C._current_autograd_node
autograd_sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr
wrap_functional: Callable[[torch.Tensor], torch.Tensor] = torch._to_functional_tensor


@contextmanager
def functionalization() -> Iterator[None]:
    """Functionalize everything inside, tensor factories included; views stay views."""
    torch._enable_functionalization(reapply_views=True)
    try:
        yield
    finally:
        torch._disable_functionalization()


@contextmanager
def without_functionalization() -> Iterator[None]:
    """Inside ``functionalization()``: make plain (fake) tensors for a moment."""
    torch._disable_functionalization()
    try:
        yield
    finally:
        torch._enable_functionalization(reapply_views=True)


@contextmanager
def view_replay() -> Iterator[None]:
    """Autograd undoes writes to views through the views' own functions."""
    before = torch._C._is_view_replay_enabled()
    torch._C._set_view_replay_enabled(True)
    try:
        yield
    finally:
        torch._C._set_view_replay_enabled(before)


# The dictionaries of hooks that ``nn.Module.__call__`` asks: a module's own, and those for all modules.
OWN_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
SHARED_HOOKS = tuple(f"_global{name}" for name in OWN_HOOKS if hasattr(torch.nn.modules.module, f"_global{name}"))


def graph_module(root: dict[str, Any], graph: torch.fx.Graph, name: str) -> torch.fx.GraphModule:
    """A ``torch.fx.GraphModule`` that generates its Python code when it is first needed."""
    return _LazyGraphModule(root, graph, name)


def number_of(tensor: torch.Tensor) -> Any:
    """The number in a real tensor of one element, whatever modes are active."""
    with torch._C._DisableTorchDispatch():  # without it a fake tensor mode refuses real tensors
        return tensor.item()


def unwrap_functional(wrapper: torch.Tensor) -> torch.Tensor:
    """The value a functional tensor stands for now, pending writes included."""
    torch._sync(wrapper)
    return torch._from_functional_tensor(wrapper)


def replace_functional(wrapper: torch.Tensor, value: torch.Tensor) -> None:
    """From now on a functional tensor stands for ``value``, and so do those that share its memory.

    ``_functionalize_replace``, ``_functionalize_commit_update``: without them the result of a pure operation could not
    be given the layout of the tensor that was written to. Tried: 2.11, 2.13.
    """
    torch._functionalize_replace(wrapper, value)
    torch._functionalize_commit_update(wrapper)
    torch._functionalize_sync(wrapper)


def below_functionalization() -> Any:
    """Inside a functionalization kernel: call operators on unwrapped values."""
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize))


def mark_hidden_write(wrapper: torch.Tensor) -> None:
    """The last write to a functional tensor is one that eager hides from autograd: no version counter moves."""
    torch._functionalize_mark_mutation_hidden_from_autograd(wrapper)


def functional_storage_changed(wrapper: torch.Tensor) -> bool:
    """Whether the program gave a tensor other memory in place (``set_``, ``.data = ...``)."""
    return torch._functionalize_was_storage_changed(wrapper)


def functional_written(wrapper: torch.Tensor) -> bool:
    """Whether the memory that a functional tensor shows has been written to."""
    return torch._functionalize_mutation_counter(wrapper) > 0


def functional_writes_all_hidden(wrapper: torch.Tensor) -> bool:
    """Whether every write to a functional tensor happened behind autograd's back (no version counter moved)."""
    return torch._functionalize_are_all_mutations_hidden_from_autograd(wrapper)


def saved_tensor_hooks_active() -> bool:
    """Whether the user (or ``torch.utils.checkpoint``) is told of tensors that autograd saves."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def shielded_saved_tensor_hooks() -> Any:
    """A context in which the user's saved-tensor hooks are not called (they would get tensors of the trace)."""
    if not saved_tensor_hooks_active():
        return nullcontext()
    return torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)


def in_forward_mode() -> bool:
    """Whether we are within ``torch.autograd.forward_ad.dual_level``.

    ``_current_level``: PyTorch has no public question; without it compiled graphs drop the tangents. Tried: 2.11, 2.13.
    """
    return torch.autograd.forward_ad._current_level >= 0


def ambient_autocast() -> tuple[str, ...]:
    """Device types whose autocast is on right now."""
    if not torch.is_autocast_enabled("cpu") and not torch.is_autocast_enabled("cuda"):
        return ()
    return tuple(kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind))


# --- runtime: when nothing may be compiled ---------------------------------------------------------------------------
# peek_interpreter_stack: whether torch.func.grad, vmap, ... are at work. _current_autograd_node: whether a backward
# pass is. _get_tracing_state: whether torch.jit.trace is. Without them a function called from one of these would be
# compiled under it, and its operations hidden from it. Tried: 2.11, 2.13.
def in_function_transform() -> bool:
    """Whether torch.func.grad, vmap, ... are at work on this thread."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def is_watched_by_tracer() -> bool:
    """Whether a function transform, a backward pass or torch.jit.trace is at work on this thread."""
    return (
        in_function_transform()
        or torch._C._current_autograd_node() is not None
        or torch._C._get_tracing_state() is not None
    )


# --- capture: what torch.compile leaves in the process ---------------------------------------------------------------
def untagged(function: Any) -> Any:
    """The function that torch._dynamo wrapped to note modules made in a ``forward``; others are returned as they are.

    Once torch.compile has run in a process, ``nn.Module.__init__`` and ``__setstate__`` are wrapped for good. Without
    this, slicing a ModuleList would break the graph from then on. The note matters to torch.compile's guards alone.
    Tried: 2.13.
    """
    if function.__module__ == "torch._dynamo.mutation_guard" and function.__name__.startswith("patched_"):
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        wrapped = cells.get(function.__name__.removeprefix("patched_"))
        return function if wrapped is None else wrapped.cell_contents
    return uncompiled(function)


def uncompiled(model: Any) -> Any:
    """What torch.compile was given to make ``model``; ``model`` itself if it is of no such making.

    ``_torchdynamo_orig_callable``, ``_orig_mod``: without them a function that torch.compile made would call its
    compiler from within ours. Those that torch.compiler.disable made stay: they carry ``_torchdynamo_disable``.
    ``__marked_compile_region_fn__``: the same for nested_compile_region; without it such a function breaks the graph.
    Tried: 2.13.
    """
    if type(model).__module__ == "torch._dynamo.eval_frame" and isinstance(model, torch.nn.Module):
        return model._orig_mod
    known = getattr(model, "__dict__", None) if isinstance(model, FunctionType) else None
    if known is None or known.get("_torchdynamo_disable"):
        return model
    given = known.get("_torchdynamo_orig_callable", known.get("__marked_compile_region_fn__"))
    return model if given is None else uncompiled(given)


def hide_from_dynamo(code: CodeType) -> None:
    """Frames of ``code``, and of all that they call, are not for torch.compile: they run as they are.

    ``set_code_exec_strategy``: without it a function of ours that is called from one under torch.compile would have
    its compiler and its generated code compiled. Tried: 2.13.
    """
    frames = torch._C._dynamo.eval_frame
    frames.set_code_exec_strategy(code, frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP))


# --- rendering graphs ------------------------------------------------------------------------------------------------
# Modules in which a graph's callables are found by name. Without them captured.py would show functions written in C as
# objects of unknown origin, and would not run alone. Tried: 2.13.
PRIVATE_HOMES: tuple[tuple[str, Any], ...] = (
    ("torch._C._nn", torch._C._nn),
    ("torch._C", torch._C),
    ("torch._C._special", torch._C._special),
    ("torch._C._linalg", torch._C._linalg),
    ("torch._C._fft", torch._C._fft),
    ("torch", torch._C._VariableFunctions),
)


# --- compiling without torch._dynamo --------------------------------------------------------------------------------
# FakeTensorMode reads three settings of torch._dynamo.config, and PyTorch's reference implementations of operators wrap
# themselves with torch._dynamo.disable at their first call. Either loads all of torch._dynamo: 1.2 s of every first
# compile, for settings that have their defaults. While we compile, a stand-in answers these and loads the real package
# for anything else. Without it everything works and starts 1.2 s later. Tried: 2.13.
import importlib
import sys
import threading

_DYNAMO = "torch._dynamo"


class _StandIn(ModuleType):
    """A module with a few known names. Any other name loads the real module in its place and comes from there."""

    def __init__(self, name: str, **known: Any) -> None:
        super().__init__(name)
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Any:
        if name == "__path__" or not name.startswith("__"):
            _remove_stand_in()
            return getattr(importlib.import_module(self.__name__), name)
        raise AttributeError(name)


def _disable_later(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """``torch._dynamo.disable`` by the stand-in: the function itself, until the real package is loaded.

    PyTorch keeps what this returns for good, so it must turn into the real thing by itself.
    """

    def call(*call_args: Any, **call_kwargs: Any) -> Any:
        module = sys.modules.get(_DYNAMO)
        if module is None or isinstance(module, _StandIn):
            return function(*call_args, **call_kwargs)
        real = module.disable(function, *args, **kwargs)
        function.__dynamo_disable = real  # type: ignore[attr-defined]
        return real(*call_args, **call_kwargs)

    return call


_config = _StandIn(
    f"{_DYNAMO}.config",
    fake_tensor_cache_enabled=True,
    fake_tensor_cache_crosscheck_enabled=False,
    _custom_ops_profile=None,
)
_package = _StandIn(_DYNAMO, config=_config, disable=_disable_later)
_STAND_INS = {_DYNAMO: _package, f"{_DYNAMO}.config": _config}


def _remove_stand_in() -> None:
    for name, module in _STAND_INS.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
    if torch.__dict__.get("_dynamo") is _package:
        del torch.__dict__["_dynamo"]


class Modes:
    """Grad mode, autocast and backend switches as they are when made; ``restore`` makes them so again."""

    def __init__(self) -> None:
        self.grad = torch.is_grad_enabled()
        self.inference = torch.is_inference_mode_enabled()
        devices = ["cpu", "cuda"]
        self.autocast = [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices]
        self.cache = torch.is_autocast_cache_enabled()
        self.nesting = _autocast_nesting()
        self.switches = [getter() for getter, _ in BACKEND_SWITCHES]

    def answer(self, question: Callable[..., Any], *args: Any) -> Any:
        """What a question about the state of PyTorch got then; NotImplemented for one that other guards cover, or that
        is about its arguments.
        """
        switches = {getter: before for (getter, _), before in zip(BACKEND_SWITCHES, self.switches)}
        if question in switches:
            return switches[question]
        if question is torch.is_autocast_cache_enabled:
            return self.cache
        if question is torch.get_autocast_dtype:
            dtypes: dict[Any, Any] = {device: dtype for device, _, dtype in self.autocast}
            return dtypes.get(args[0] if args else None, NotImplemented)
        return question(*args) if question in STATE_QUESTIONS else NotImplemented

    def restore(self, error: BaseException | None = None) -> None:
        """``error`` left functions in which a guard of ``torch.inference_mode`` is alive."""
        if error is not None and torch.is_inference_mode_enabled() != self.inference:
            traceback.clear_frames(error.__traceback__)
        set_grad_mode(self.grad)
        for device, enabled, dtype in self.autocast:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(self.cache)
        for _ in range(_autocast_nesting() - self.nesting):
            torch.autocast_decrement_nesting()
        for _ in range(self.nesting - _autocast_nesting()):
            torch.autocast_increment_nesting()
        if self.nesting == 0:
            torch.clear_autocast_cache()
        for (getter, setter), before in zip(BACKEND_SWITCHES, self.switches):
            if getter() != before:
                setter(before)


@contextmanager
def modes_kept() -> Iterator[None]:
    """Leave grad mode, autocast and backend switches as they were found."""
    modes = Modes()
    try:
        yield
    finally:
        modes.restore()


def _autocast_nesting() -> int:
    """How many autocast regions we are in: PyTorch tells only on the way in and out."""
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


class Compiling:
    """A lock for compiling, one thread at a time and reentrant, that keeps torch._dynamo unloaded meanwhile, and
    autograd's anomaly detection off, which would read the data of fake tensors. The cyclic collector leaves alone what
    was there before.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._sheltered = Sheltered()
        self._depth = 0
        self._anomaly = False, True

    def __enter__(self) -> None:
        self.lock.acquire()
        self._depth += 1
        if self._depth > 1:
            return
        self._sheltered.__enter__()
        self._anomaly = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
        torch.set_anomaly_enabled(False)
        if _DYNAMO not in sys.modules:
            sys.modules.update(_STAND_INS)
            torch.__dict__["_dynamo"] = _package

    def __exit__(self, *exception: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            _remove_stand_in()
            torch.set_anomaly_enabled(*self._anomaly)
            self._sheltered.__exit__()
        self.lock.release()


# The function programs (op_db among them) call for batch norm with statistics it may write; without it their calls are
# recorded as one operator that has no derivative of its own. Tried on 2.11 and 2.13.
batch_norm_legit = torch._native_batch_norm_legit


@contextmanager
def without_onednn() -> Iterator[None]:
    """Composite operators choose other kernels than oneDNN's inside.

    ``_set_mkldnn_enabled``: torch.backends.mkldnn.flags sets more, and warns where there is no Intel GPU. Tried: 2.13.
    """
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


# torch.ops.mkldnn: oneDNN's products with packed weights, which inductor's own freezing calls. Without them
# options={"freezing": True} packs nothing. Tried on 2.11 and 2.13.
def packs_weights(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies by packed weights of ``dtype`` on this processor."""
    if not torch.backends.mkldnn.is_available() or not torch.backends.mkldnn.enabled:
        return False
    supported = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}.get(dtype)
    if supported is None:
        return dtype == torch.float32
    return bool(getattr(torch.ops.mkldnn, supported)())


ONEDNN_LINEAR = "torch.ops.mkldnn._linear_pointwise.default"


def has_avx512() -> bool:
    """Whether PyTorch's own kernels run with AVX-512 here."""
    return "AVX512" in torch.backends.cpu.get_cpu_capability()


def multiplies_faster() -> bool:
    """Whether oneDNN multiplies float32 faster here than what PyTorch's products call."""
    return packs_weights(torch.float32) and _mkl_is_slow()


@functools.cache
def _mkl_is_slow() -> bool:
    """Whether the processor has AVX-512 and is not Intel's: MKL does not use it there."""
    if not has_avx512() or not torch.backends.mkl.is_available():
        return False
    try:
        maker = re.search(r"vendor_id\s*: (\w+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        return False
    return maker is not None and maker[1] != "GenuineIntel"


def packed_weight(x: torch.Tensor, weight: torch.Tensor, *geometry: Any) -> torch.Tensor:
    """A weight in oneDNN's layout for products with tensors like ``x``; ``geometry`` as packed_convolution takes it."""
    if not geometry:
        return torch.ops.mkldnn._reorder_linear_weight(weight, x.shape[0])
    stride, padding, dilation, groups = geometry
    return torch.ops.mkldnn._reorder_convolution_weight(weight, padding, stride, dilation, groups, list(x.shape))


def packed_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """``x @ weight.T + bias``, the weight packed."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def packed_convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> torch.Tensor:
    """A convolution, the weight packed."""
    return torch.ops.mkldnn._convolution_pointwise(x, weight, bias, padding, stride, dilation, groups, "none", [], "")
