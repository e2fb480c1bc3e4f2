"""Callables and questions of PyTorch that the frame machine tells apart."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import torch

# OpOverload, OpOverloadPacket: the types of torch.ops.aten.add.Tensor and torch.ops.aten.add. Without them calls of
# operators would not be recognised. Tried: 2.11, 2.13. set_grad_mode: what torch.no_grad's Python code calls in the
# end. Without it regions without gradients could not be captured. OPERATION_OWNERS: the modules that tensor
# operations written in C belong to. Without them F.linear would break the graph. The questions: library code asks
# them, and the answer while compiling is known. Without them such code breaks the graph.
OpOverload = torch._ops.OpOverload
OpOverloadPacket = torch._ops.OpOverloadPacket
# The type of torch.ops.higher_order.cond. Without it nodes with sub-graphs could not be told from others. Tried: 2.13.
HigherOrderOperator = torch._ops.HigherOrderOperator

# Where an operator's way to be differentiated may stand. Without it operators whose kernels autograd looks into would
# have no gradient. Tried: 2.11, 2.13.
_Key = torch._C.DispatchKey
_DIFFERENTIATES = (_Key.Autograd, _Key.AutogradCPU, _Key.AutogradCUDA, _Key.CompositeImplicitAutograd)


def has_derivative(operator: Any) -> bool:
    """Whether an operator has a derivative of its own, or is made of others that have one."""
    return any(operator.has_kernel_for_dispatch_key(key) for key in _DIFFERENTIATES)


def definition_of(name: str) -> Any:
    """What ``torch.library.custom_op`` made of the operator of this name (``ns::op``); None for another operator."""
    # OPDEFS: without it entries that call custom operators could not be kept for later processes. Tried: 2.11, 2.13.
    return torch._library.custom_ops.OPDEFS.get(name)


def python_kernels(name: str) -> tuple[list[str], Any]:
    """The dispatch keys for which ``torch.library`` has registered kernels of an operator (``ns::op``), and the one
    that runs on fake tensors, if there is any.
    """
    # _impls, simple_registry: without them nobody could say whether an operator is still the one that was traced.
    # Tried: 2.11, 2.13.
    namespace, _, short = name.partition("::")
    rows = [key.split("/") for key in torch.library._impls]
    keys = [dispatch for home, operator, dispatch in rows if (home, operator.partition(".")[0]) == (namespace, short)]
    entry = torch._library.simple_registry.singleton.find(name)
    return keys, getattr(entry.fake_impl.kernel, "func", None)


def lacks_derivative(grad_fn: Any) -> bool:
    """Whether this node of autograd's graph stands for an operator without a derivative: backward through it raises."""
    return str(grad_fn.name()) == "torch::autograd::NotImplemented"


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
# them back, the graph turns them again. Without them a capture that breaks inside leaves them turned. Which backends of
# attention there are, torch says.
_FLAGS = (
    "cudnn_enabled", "cudnn_benchmark", "cudnn_deterministic", "cudnn_allow_tf32", "cudnn_depthwise_kernel",
    "mkldnn_enabled", "mkldnn_deterministic", "mkldnn_allow_tf32", "onednn_allow_tf32", "sdp_priority_order",
)  # fmt: skip
_SDP = re.compile(r"_get_(\w+)_sdp_enabled")
BACKEND_SWITCHES: tuple[tuple[Callable[[], Any], Callable[[Any], None]], ...] = tuple(
    (getattr(torch._C, getter), getattr(torch._C, setter))
    for getter, setter in (
        *((f"_get_{n}", f"_set_{n}") for n in _FLAGS),
        *((found[0], f"_set_sdp_use_{found[1]}") for found in map(_SDP.fullmatch, dir(torch._C)) if found),
    )
    if hasattr(torch._C, getter) and hasattr(torch._C, setter)
)
_get_precision, _set_precision = (getattr(torch._C, f"_{n}_fp32_precision_{n}ter", None) for n in ("get", "set"))
if _get_precision is not None and _set_precision is not None:
    BACKEND_SWITCHES += tuple(
        (functools.partial(_get_precision, backend, "all"), functools.partial(_set_precision, backend, "all"))
        for backend in ("generic", "mkldnn", "cuda")
    )
SWITCH_SETTERS = frozenset(getattr(setter, "func", setter) for _, setter in BACKEND_SWITCHES)
# Tried: 2.13. What depends on its arguments or on how PyTorch was built, and what other guards cover. Any other builtin
# of PyTorch's that gives no tensor is taken to answer from state that programs change between calls. Without them a
# call asks for each anew, or breaks the graph.
_OF_NO_STATE = (
    "result_type", "promote_types", "can_cast", "_has_storage", "_log_api_usage_once",
    "_is_autocast_available", "_get_accelerator", "_get_all_dtypes", "_get_cpu_capability", "_get_operation_overload",
    "_get_privateuse1_backend_name", "_get_schema", "has_lapack", "has_mkl", "has_openmp", "has_spectral",
    "_is_xnnpack_enabled", "_is_flash_attention_available",
)  # fmt: skip
_GUARDED_ANYWAY = (
    "is_grad_enabled", "is_inference_mode_enabled", "get_default_dtype", "is_autocast_enabled",
    *(f"{verb}_autocast_{device}_{what}" for verb, what in (("is", "enabled"), ("get", "dtype"))
      for device in ("cpu", "gpu", "ipu", "xla")),
    "_is_any_autocast_enabled", "_get_deterministic_algorithms", "_get_deterministic_algorithms_warn_only",
    "_is_torch_function_all_disabled", "_is_torch_function_enabled", "_is_torch_function_mode_enabled",
    "_len_torch_function_stack", "_get_function_stack_at", "_get_default_device", "_len_torch_dispatch_stack",
    "_get_dispatch_mode", "_get_dispatch_stack_at", "_get_tracing_state", "_is_tracing", "_get_torch_function_state",
    "_are_functorch_transforms_active",
)  # fmt: skip
STATELESS_QUESTIONS: frozenset[Callable[..., Any]] = frozenset(
    getattr(home, name)
    for home in (torch, torch._C, torch._C._nn)
    for name in (*_OF_NO_STATE, *_GUARDED_ANYWAY, "_parse_to")
    if hasattr(home, name)
)
# What torch.inference_mode's Python code enters, and the same as two functions, which torch.compile puts into graphs.
# Without them such a block ends the graph. Tried: 2.13.
InferenceMode = torch._C._InferenceMode
enter_inference_mode: Callable[[bool], Any] = torch.autograd.grad_mode._enter_inference_mode
exit_inference_mode: Callable[[Any], None] = torch.autograd.grad_mode._exit_inference_mode
# Builtins that change global state for the operations that follow: they stay in a graph in their place.
STATE_SETTERS = frozenset(
    [
        set_grad_mode,
        torch.set_autocast_enabled,
        torch.set_autocast_dtype,
        torch.set_autocast_cache_enabled,
        torch.autocast_increment_nesting,
        torch.autocast_decrement_nesting,
        torch.clear_autocast_cache,
    ]
)
# Nodes that change how others run, and that need no graph where there is nothing else in it.
MODE_CHANGES = STATE_SETTERS | {enter_inference_mode, exit_inference_mode}
# What `with torch.device(...)` and set_default_device enter, and the functions that it hands the device to. Without
# them tensors made in such a block inside a compiled function would be on the wrong device. function_mode_stack:
# torch.autocast looks at it. DisableTorchFunctionSubclass: what modes enter to call the plain function. Tried: 2.13.
# NO_TORCH_FUNCTION: what stands in a class that is not to be asked.
from torch.utils._device import DeviceContext
from torch.utils._device import _device_constructors as device_constructors

function_mode_stack: Callable[[], list[Any]] = torch.overrides._get_current_function_mode_stack
DisableTorchFunctionSubclass = torch._C.DisableTorchFunctionSubclass
NO_TORCH_FUNCTION = torch._C._disabled_torch_function_impl
# _is_view: what programs ask of inputs, which a fake tensor, made for the input alone, cannot say. _has_storage:
# gradients under torch.func have none, and no kernel takes them. Tried: 2.11, 2.13.
PLACE_QUESTIONS = {"storage_offset": torch.Tensor.storage_offset, "_is_view": torch.Tensor._is_view}
has_storage: Callable[[torch.Tensor], bool] = torch._C._has_storage
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

# The code of what stands around the `step` of PyTorch's optimizers: it breaks the graph for torch.compile twice, and
# the `step` of every optimizer would. How they read a step count: torch.compile is given the tensor, in single
# precision. Tried: 2.11, 2.13.
_optimizer: Any = sys.modules[torch.optim.Optimizer.__module__]  # torch.optim deletes the name
OPTIMIZER_STEP_WRAPPER: CodeType = _optimizer._use_grad_for_differentiable(lambda: None).__code__
value_for_optimizer: Callable[[Any], Any] = _optimizer._get_value
stack_for_optimizer: Callable[[Any], Any] = _optimizer._stack_if_compiling
# Hooks of every optimizer: without them a step that a GradScaler skips would have called them. Tried: 2.11, 2.13.
global_step_hooks: tuple[dict[int, Any], ...] = (
    _optimizer._global_optimizer_pre_hooks,
    _optimizer._global_optimizer_post_hooks,
)
# GradScaler's branch on what it found: without it a step under a GradScaler breaks the graph. Tried: 2.11, 2.13.
step_of_scaler: Callable[..., Any] = torch.amp.GradScaler._maybe_opt_step


def optimizer_function(name: str) -> Any:
    """A function of an optimizer's file by a name like ``adam._fused_adam``, or None.

    Without the formulas RAdam, ASGD, Adafactor and fused steps break the graph. Tried: 2.11, 2.13.
    """
    file, _, function = name.partition(".")
    return getattr(sys.modules.get(f"torch.optim.{file}"), function, None)


# temporarily_clear_interpreter_stack: leave torch.func's transforms for a moment. Without it an input of the graph that
# is first read inside a transformed function would be wrapped by the transform. Tried: 2.13.
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack as outside_transforms


def without_transforms(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with memory in what torch.func's transforms have wrapped it in. Without it a random draw inside
    ``vjp`` fails. Tried: 2.11, 2.13.
    """
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


# The function programs (op_db among them) call for batch norm with statistics it may write; without it their calls are
# recorded as one operator that has no derivative of its own. Tried on 2.11 and 2.13.
batch_norm_legit = torch._native_batch_norm_legit


# --- what programs told torch.compile -------------------------------------------------------------------------------
def is_allowed_in_graph(function: Any) -> bool:
    """Whether ``torch.compiler.allow_in_graph`` named it, which torch._dynamo keeps by id.

    Without it such functions are interpreted, and break the graph where they read data. Tried: 2.13.
    """
    rules = sys.modules.get("torch._dynamo.trace_rules")
    ids = getattr(getattr(rules, "_allowed_callable_ids", None), "function_ids", None)
    return ids is not None and id(function) in ids


def substitute_in_graph_of(function: Any) -> FunctionType | None:
    """What a user's ``torch.compiler.substitute_in_graph`` gave for it; PyTorch's own substitutes are for its compiler.

    Without it calls of such functions break the graph. Tried: 2.13.
    """
    rules = sys.modules.get("torch._dynamo.trace_rules")
    if rules is None or id(function) not in getattr(rules, "_polyfilled_function_ids", ()):
        return None
    variables = getattr(sys.modules.get("torch._dynamo.variables.functions"), "PolyfilledFunctionVariable", None)
    known = variables._get_polyfill_handlers().get(function) if variables is not None else None
    found = getattr(known, "__torch_dynamo_polyfill__", None)
    return found if type(found) is FunctionType and not found.__module__.startswith("torch.") else None
