"""Which callables are tensor operations, and what calling one does: a graph node, a constant, or a break."""

from __future__ import annotations

import functools
import operator
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
import torch.utils.checkpoint

from ... import torch_compat
from ...aten import masked_writes
from ...marks.markers import DISABLED, IN_GRAPH, REASON
from ...records.literals import literal
from ...records.size_environment import SizeEnvironment
from ...records.size_places import symbols_of
from ...records.sources import Computed, Constant
from ...records.symbolic_ints import SizesUnfit
from ..errors import Fails, NeedsData, Unsupported
from ..graph.arguments import fake_of, has_tensor
from ..graph.builder import GraphBuilder, stack_trace
from ..meanings import diagnostics
from ..meanings.registry import BY_MODULE, Node, of_modules
from ..protocol import Lazy, Machine, Value
from ..torch_api.op_derivatives import Leaves
from ..torch_api.torch_function import answered
from ..values.binding import home_of
from ..values.constant import ConstantV
from ..values.containers import SequenceV, is_size
from ..values.converted_branches import refuse_identity
from ..values.dicts import DictV
from ..values.function_modes import dispatched
from ..values.instance import InstanceV
from ..values.methods import CallableV, TensorMethodV
from ..values.opaque import is_opaque as is_opaque_object
from ..values.sealing import refuse_when_sealed
from ..values.tensor import TensorV, known_value
from . import constant_folding as constant_tensors
from . import fallible_ops as failing
from . import numbers_read, op_derivatives
from . import scalar_operands as numbers
from . import storage_offsets as starts

# Python functions of these modules are one node each: their bodies are PyTorch's business.
of_modules(
    Node, "torch", "torch.nn.functional", "torch.functional", "torch._tensor", "torch._jit_internal", "torch.special",
    "torch.linalg", "torch.fft", "torch._C._nn", "torch._refs", "torch.nn.init", "torch._lowrank",
    "torch._linalg_utils",
)  # fmt: skip
# Python functions below these prefixes are neither captured nor inlined.
REFUSED_PREFIXES = (
    "torch._dynamo", "torch._inductor", "torch._functorch", "torch.func", "torch._higher_order_ops",
    "torch.distributed",
    "torch.jit", "torch.onnx", "torch.export", "torch.autograd.functional", "torch.autograd.gradcheck", "torch.random",
    "torch.serialization", "torch.multiprocessing", "torch.utils.data", "torch.profiler", "torch.autograd.profiler",
    "torch.cuda", "torch.library", "torch._library", "torch.utils.checkpoint", "torch.autograd.function",
    "torch.autograd.graph", "torch.overrides", "torch._prims", "torch.quantization", "torch.ao",
    "torch.testing._comparison",
    "torch.optim._muon",  # its rate is a constant of the graph, and iterations in bfloat16 amplify other rounding
)  # fmt: skip
TRANSFORMING = ("torch._dynamo", "torch._functorch", "torch.func")
# Writes at places that may be a mask, named as nodes name them.
MASKED_WRITES = frozenset((operator.setitem, torch.index_put, "__setitem__", "index_put", "index_put_"))
# Functions of torch that answer from global state or from constants alone; others show it by what they give, and
# operators say it in their schemas, whatever they are called.
QUERY_PREFIXES = (
    "is_",
    "get_",
    "_get_",
    "_is_",
    "are_",
    "result_type",
    "promote_types",
    "can_cast",
    "broadcast_shapes",
)
# Builtins that change it: the state while capturing must be that of the call, before and behind.
SETTER_PREFIXES = ("set_", "_set_")
# Those that are written in Python around a builtin.
IN_PYTHON = frozenset([torch.get_float32_matmul_precision, torch.is_warn_always_enabled])
# Of what changes modes only the count at the end matters here, which the entry sets.
COUNTERS = frozenset([torch.autocast_increment_nesting, torch.autocast_decrement_nesting])
# PyTorch's own functions and operators: a program's operators may have any name.
FORBIDDEN = frozenset(
    [
        "manual_seed",
        "seed",
        "set_rng_state",
        "set_default_dtype",
        "set_default_device",
        "set_num_threads",
        "set_grad_enabled",
        "use_deterministic_algorithms",
        "set_deterministic_debug_mode",
        "set_flush_denormal",
        "set_printoptions",
        "save",
        "load",
        "compile",
        "vmap",
        "set_num_interop_threads",
        "from_numpy",
        "frombuffer",
        "from_dlpack",
        "to_dlpack",
        "_push_on_torch_dispatch_stack",
        "_pop_torch_dispatch_stack",
        "_set_dispatch_mode",
        "_unset_dispatch_mode",
        "_push_on_torch_function_stack",
        "_pop_torch_function_stack",
        "set_default_tensor_type",
        # what they make is float32 to fake tensors
        "quantize_per_tensor",
        "quantize_per_tensor_dynamic",
        "quantize_per_channel",
        "_empty_affine_quantized",
        "_empty_per_channel_affine_quantized",
        "_make_per_tensor_quantized_tensor",
        "_make_per_channel_quantized_tensor",
    ]
)
# Tensor methods whose result is data: the graph ends before them.
DATA_METHODS = frozenset(
    [
        "item",
        "tolist",
        "numpy",
        "__bool__",
        "__int__",
        "__float__",
        "__index__",
        "__array__",
        "data_ptr",
        "backward",
        "register_hook",
        "retain_grad",
        "set_",
        "share_memory_",
        "storage",
        "untyped_storage",
        "__dlpack__",
        "is_set_to",
        "resize_",
        "record_stream",
        "cuda",
        "pin_memory",
        "register_post_accumulate_grad_hook",
        "__reduce_ex__",
        "__deepcopy__",
        "map_",
        "apply_",
        "map2_",
        "__repr__",
        "__str__",
        "__format__",
        "__reduce__",
        "__complex__",
        "__contains__",
        "is_shared",
        "is_pinned",
        "as_subclass",
    ]
)


READING_METHODS = frozenset(["item", "tolist", "__bool__", "__int__", "__float__", "__index__"])


def is_operation(real: Any) -> bool:
    """Whether calling ``real`` is a tensor operation of PyTorch."""
    if isinstance(real, (torch_compat.OpOverload, torch_compat.OpOverloadPacket)):
        return True
    if type(real) is FunctionType:
        if in_graph(real):
            return True
        return BY_MODULE.get(real.__module__) is Node and _is_pytorchs(real)
    if isinstance(real, BuiltinFunctionType):
        module = getattr(real, "__module__", None) or ""
        owner = real.__self__
        return (
            module.startswith("torch")
            or any(owner is known for known in torch_compat.OPERATION_OWNERS)
            or _is_functions_class(owner)
        )
    return False


def _is_pytorchs(function: Any) -> bool:
    """Whether a function and those it wraps are PyTorch's: a wrapper of the user's says it is in PyTorch's module."""
    while type(function) is FunctionType:
        if not _is_below(home_of(function) or "", "torch"):
            return False
        function = function.__dict__.get("__wrapped__")
    return True


def takes_code(real: Any, values: list[Value]) -> bool:
    """Whether a function of PyTorch's in Python gets objects or functions of the user's, and so is interpreted."""
    if is_opaque(real):
        return type(real) is FunctionType and not any(map(has_tensor, values))  # a node needs one
    return any(isinstance(v, (CallableV, InstanceV)) and getattr(v, "payload", None) is None for v in values)


def is_opaque(real: Any) -> bool:
    """Whether there is no code of an operation to interpret, or the user wants it not to be."""
    return type(real) is not FunctionType or in_graph(real)


def in_graph(function: FunctionType) -> bool:
    """Whether ``tg.allow_in_graph`` or ``torch.compiler.allow_in_graph`` named the function."""
    return bool(function.__dict__.get(IN_GRAPH)) or torch_compat.is_allowed_in_graph(function)


def _is_functions_class(owner: Any) -> bool:
    return owner is not None and getattr(owner, "__name__", type(owner).__name__).startswith("_VariableFunctions")


# Functions below REFUSED_PREFIXES that are inlined all the same.
INLINED = frozenset(
    [
        torch.utils.checkpoint.checkpoint_sequential,
        torch.overrides.is_tensor_like,
        torch.autograd.graph.saved_tensors_hooks.__init__,
    ]
)


def disabled(function: FunctionType) -> str | None:
    """Why the graph breaks at a function marked by ``tg.disable`` or ``torch.compiler.disable``."""
    marks = function.__dict__
    if DISABLED in marks or (marks.get("_torchdynamo_disable") and torch_compat.untagged(function) is function):
        reason = marks.get(REASON) or marks.get("_torchdynamo_disable_msg")
        return f"`{function.__qualname__}` is disabled" + (f": {reason}" if reason else "")
    return None


def refused(function: FunctionType) -> tuple[str, str] | None:
    """Reason and hint when a Python function must not be inlined."""
    if function in INLINED or function.__name__ == "__torch_function__":
        return None  # what a mode or a class means is in its code, wherever that stands
    home, named = home_of(function) or "", function.__module__ or ""
    # what PyTorch wraps around a user's function is the user's, but for transforms, which stay entered
    modules, prefixes = ((home, named), REFUSED_PREFIXES) if _is_pytorchs(function) else ((home,), TRANSFORMING)
    for module in modules:
        if any(_is_below(module, prefix) for prefix in prefixes):
            return f"calling `{module}.{function.__qualname__}`", "call it outside the compiled function"
    return None


def _is_below(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def call_function(m: Machine, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call a torch function, an operator, or ``getattr`` on tensors."""
    name = getattr(function, "__name__", str(function))
    if is_forbidden(function):
        raise Unsupported(f"calling `torch.{name}`", "call it outside the compiled function")
    made = numbers.made_of_list(m, function, args, kwargs)
    if made is not None:
        return made
    answer = answered(m, function, args, kwargs)
    if answer is not None:
        return answer
    args, kwargs = _ready(m, args, kwargs)
    answer = dispatched(m, function, args, kwargs) if function not in COUNTERS else None
    if answer is not None:
        return answer
    if function in torch_compat.STATE_SETTERS:
        return _set_state(m, function, args, kwargs)
    tensors = any(map(has_tensor, args)) or any(map(has_tensor, kwargs.values()))
    if not tensors and args and _takes_tensor(function):
        raise Unsupported(f"`{function}` of numbers alone", "give it a tensor")
    if tensors or _namespace(function) is not None or getattr(function, "__module__", "") == "torch.nn.functional":
        return _operate(m, "call_function", function, function, args, kwargs)
    if name.startswith(SETTER_PREFIXES) and function not in torch_compat.SWITCH_SETTERS:
        raise Unsupported(f"calling `{name}`, which changes PyTorch's state", "call it outside the compiled function")
    if name.startswith(QUERY_PREFIXES):
        return _answer(m, function, args, kwargs)
    return _operate(m, "call_function", function, function, args, kwargs)


def is_forbidden(function: Any) -> bool:
    """Whether a function or an operator of PyTorch's changes its state, or makes what graphs cannot hold."""
    return getattr(function, "__name__", "") in FORBIDDEN and _namespace(function) in (None, "aten")


def _namespace(function: Any) -> str | None:
    """Of an operator of ``torch.ops``; None for what is none."""
    if isinstance(function, torch_compat.OpOverload):
        function = function.overloadpacket
    if not isinstance(function, torch_compat.OpOverloadPacket):
        return None
    return function._qualified_op_name.partition("::")[0]


def _takes_tensor(operator: Any) -> bool:
    """Whether an operator of ``torch.ops`` wants a tensor first: of a number it makes one by itself."""
    if isinstance(operator, torch_compat.OpOverloadPacket):
        operator = getattr(operator, operator.overloads()[0])
    if not isinstance(operator, torch_compat.OpOverload):
        return False
    parameters = operator._schema.arguments
    return bool(parameters) and isinstance(parameters[0].type, torch.TensorType)


def _answer(m: Machine, question: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What a question to PyTorch gets, from its arguments alone or from its state."""
    if question in IN_PYTHON:
        return m.inline(m.wrap(question), args, kwargs)
    return _relied_on(m, question, args, kwargs, m.fold(question, args, kwargs))


def _relied_on(m: Machine, question: Any, args: list[Value], kwargs: dict[str, Value], found: Value) -> Value:
    """An answer from PyTorch's state, which is guarded as it was before the program turned any of it."""
    if not isinstance(question, BuiltinFunctionType) or question in torch_compat.STATELESS_QUESTIONS:
        return found
    values = [m.settle(arg).as_constant() for arg in args]
    given = {name: m.settle(arg).as_constant() for name, arg in kwargs.items()}
    texts = [literal(value) for value in values]
    if None in texts or not found.is_constant():
        raise Unsupported(f"`{question.__name__}`, which asks for PyTorch's state", "ask outside the compiled function")
    asked = functools.partial(question, **given) if given else question
    before = m.modes.answer(question, *values) if not given else asked(*values)
    if before is NotImplemented:
        return found
    parts = tuple(Constant(text or "", value) for text, value in zip(texts, values))
    home = "torch" if getattr(torch, question.__name__, None) is question else "torch._C"
    named = [f"{name}={value!r}" for name, value in given.items()]
    text = f"{home}.{question.__name__}({', '.join(['{}' for _ in parts] + named)})"
    m.guard(Computed(asked, text, parts), "constant", before, "PyTorch's state was asked for")
    return m.wrap_result(before) if question in ANOMALY else found


ANOMALY = (torch.is_anomaly_enabled, torch.is_anomaly_check_nan_enabled)  # off while anything is compiled


def call_method(m: Machine, owner: Value, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call a method of a tensor."""
    if name == "__iter__":
        return m.iterate(owner)
    if name in READING_METHODS and isinstance(owner, TensorV):
        real = known_value(m, owner)
        if real is not None:
            return m.wrap_result(m.real(getattr(real, name), *[a.as_constant() for a in args]))
        if not args and not kwargs and numbers_read.may_read(m, owner, name):
            return numbers_read.read(m, owner, name)
    if name in DATA_METHODS and not (name == "numpy" and m.state(GraphBuilder).traces_arrays):
        raise Unsupported(
            f"`.{name}()` of a tensor reads its data"
            if name not in ("backward", "register_hook")
            else f"`.{name}()` of a tensor",
            "move it out of the compiled function",
        )
    answer = answered(m, _method_function(name), [owner, *args], kwargs)
    if answer is not None:
        return answer
    args, kwargs = _ready(m, args, kwargs)
    if name == "new" and is_size(args):  # a node's arguments are plain tuples, which `new` takes for data
        name = "new_empty"
    answer = dispatched(m, _method_function(name), [owner, *args], kwargs)
    if answer is not None:
        return answer
    if name in torch_compat.PLACE_QUESTIONS and isinstance(owner, TensorV):
        refuse_identity(m, [owner])
        answer = starts.answer(m, name, owner)
        if answer is not None:
            return answer
    if name == "requires_grad_" and isinstance(owner, TensorV) and _flag_set(m, owner, [*args, *kwargs.values()]):
        return owner
    return _operate(m, "call_method", name, _method_function(name), [owner, *args], kwargs)


def _flag_set(m: Machine, owner: TensorV, wanted: list[Value]) -> bool:
    """Whether ``owner.requires_grad_(wanted)`` needs no node: the flag is so already, or this is an input that nothing
    has used yet, whose flag the entry sets before the graph runs.
    """
    flag = wanted[0].as_constant() if wanted else True
    if type(flag) is not bool or len(wanted) > 1:
        return False
    if flag is owner.fake.requires_grad:
        return True
    if owner.source is None:
        return False
    if (
        not flag
        or owner.node.users
        or m.state(GraphBuilder).wrote_to(owner.fake)
        or not m.state(GraphBuilder).require_grad(owner)
    ):
        raise Unsupported("`requires_grad` of an input, which is changed after its use", "change it before")
    refuse_when_sealed(m)
    return True


def _method_function(name: str) -> Any:
    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, name)(*args, **kwargs)

    method.__name__ = name
    method.of_tensors = getattr(torch.Tensor, name, None)  # type: ignore[attr-defined]
    return method


def _operate(m: Machine, op: str, target: Any, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Evaluate on fakes; results with tensors become nodes, other results are constants."""
    if target in MASKED_WRITES and _has_no_choice(m, args):
        raise Unsupported("assignment through a mask of values that need a gradient", "torch.where chooses without one")
    if starts.counts_from_start(target):
        starts.rely_on_starts(m, args[:1])
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    if name.endswith("_") and not name.startswith("__"):
        refuse_identity(m, args[:1])
    if starts.asks_strides(target):
        starts.rely_on_strides(m, args[:1])
    if failing.may_fail(target) and failing.is_caught(m):
        raise Unsupported(f"`{name}`, which fails for some values, within a `try`", "move it out of the `try`")
    made = (
        numbers.reflected(m, target, args)
        or numbers.made(m, target, args, kwargs)
        or numbers.spaced(m, target, args, kwargs)
    )
    if made is not None:
        return made
    args, kwargs = numbers.scaled(m, target, args, kwargs)
    args = numbers.operands(m, target, args, kwargs)
    try:
        with diagnostics.watched(m):
            result = m.state(GraphBuilder).evaluate(function, args, kwargs)
    except NeedsData as error:
        replaced = constant_tensors.as_numbers(m, args) or numbers_read.as_places(m, target, args)
        if replaced is not None:
            return _operate(m, op, target, function, replaced, kwargs)
        folded = constant_tensors.result_of(m, function, args, kwargs)
        if folded is not None:
            return folded
        result = _sized_by_data(m, error, function, args, kwargs)
    except Unsupported:
        raise
    except Exception as error:
        if m.state(GraphBuilder).fake_mode.symbolic:  # perhaps in numbers it does not
            raise SizesUnfit(f"`{name}` raises {type(error).__name__} on changing sizes: {error}") from error
        raise Fails(f"the program raises {type(error).__name__}") from None
    op_derivatives.check(m, target, args, kwargs, result)
    asked = target == "requires_grad_" or ("requires_grad" in kwargs and m.truth(kwargs["requires_grad"]))
    if asked and isinstance(result, torch.Tensor) and result.requires_grad and result.is_leaf:
        if m.state(Leaves).break_here:
            raise Unsupported("a tensor made to require grad in the graph that leaves it", "make it before")
        m.state(GraphBuilder).inner_leaves.append(result)
    in_place = (
        isinstance(result, torch.Tensor) or (op == "call_method" and name.endswith("_")) or target is operator.setitem
    )
    if not _holds_tensor(result) and not in_place:
        if result is None and target is not getattr:
            return m.state(GraphBuilder).record(op, target, args, kwargs, result, m.origin(), stack_trace(m))
        if is_opaque_object(result):  # an iterator over fake tensors, say
            raise Unsupported(f"`{name}`, which makes a {type(result).__name__}")
        found = m.wrap_result(result)
        asked = op == "call_function" and target is not getattr and not any(map(has_tensor, (*args, *kwargs.values())))
        return _relied_on(m, target, args, kwargs, found) if asked else found
    return m.state(GraphBuilder).record(op, target, args, kwargs, result, m.origin(), stack_trace(m))


def _sized_by_data(m: Machine, error: NeedsData, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Any:
    """The result of an operation whose size data decide; raises ``error`` where it cannot be in the graph."""
    try:
        with diagnostics.watched(m):
            result = m.state(GraphBuilder).sized_by_data(m.state(SizeEnvironment), function, args, kwargs)
    except Exception:
        raise error from None
    if result is None or not _holds_tensor(result):
        raise error
    return result


def _has_no_choice(m: Machine, args: list[Value]) -> bool:
    """A write through a mask, of values whose gradient has a size that is data."""
    if len(args) < 3 or not isinstance(args[2], TensorV):
        return False  # a number may be an input: to look at it would make it a constant
    written, indices, values = map(fake_of, args[:3])
    if m.state(SizeEnvironment).by_data.keys() & symbols_of([values]):
        return False  # the gradient has as many elements as the values, of which some tensor tells
    return masked_writes.needs_choice(indices, values) and masked_writes.choice(written, indices, values) is None


def _holds_tensor(result: Any) -> bool:
    if isinstance(result, torch.Tensor):
        return True
    if isinstance(result, (tuple, list)):
        return any(_holds_tensor(r) for r in result)
    if isinstance(result, (dict, set)):
        raise Unsupported("a tensor operation that returns a dict or set")
    return False


def _ready(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> tuple[list[Value], dict[str, Value]]:
    """Wrap whatever lies unread in containers, and give generators and builtin subclasses their plain form."""
    return [_ready_one(m, a) for a in args], {k: _ready_one(m, v) for k, v in kwargs.items()}


def _ready_one(m: Machine, value: Value | Lazy) -> Value:
    if isinstance(value, Lazy):
        value = m.forced(value)
    if isinstance(value, InstanceV) and value.payload is not None:
        value = value.payload
    if isinstance(value, SequenceV):
        for n, item in enumerate(value.all(m)):
            ready = _ready_one(m, item)
            if ready is not item:
                copy = type(value)(list(value.items), value.cls)
                copy.items[n] = ready
                value = copy
    elif isinstance(value, DictV):
        value.pairs(m)
    elif isinstance(value, TensorMethodV):
        raise Unsupported("a tensor's method as argument of an operation")
    return value


def _set_state(m: Machine, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Change grad mode or autocast: for the rest of the capture, and by a node for the rest of the graph."""
    result = m.real(function, *[a.as_constant() for a in args], **{k: v.as_constant() for k, v in kwargs.items()})
    if function not in COUNTERS:
        m.state(GraphBuilder).record("call_function", function, args, kwargs, None, m.origin(), stack_trace(m))
    return ConstantV(result)
