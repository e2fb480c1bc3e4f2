"""What the written files import: checks that guards use, and inputs to run a graph with.

Guards name types and objects; torch.compile itself compares their ids, which mean nothing in another process.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any

import torch


def type_name(value: Any) -> str:
    """``collections.OrderedDict`` for an OrderedDict."""
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def object_name(value: Any) -> str:
    """The name of a module, class, function or code, and where that is; the type's name for anything else."""
    if inspect.ismodule(value):
        return value.__name__
    if inspect.iscode(value):
        return f"{value.co_filename}:{value.co_firstlineno} {value.co_name}"
    name = getattr(value, "__qualname__", None)
    if not isinstance(name, str):
        return f"<{type_name(value)}>"
    module = getattr(value, "__module__", None)
    return f"{module}.{name}" if module else name


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def without_addresses(text: str) -> str:
    """``text`` without the addresses of objects, which differ from run to run."""
    return _ADDRESS.sub("", text)


def printed(value: Any) -> str:
    """The repr of ``value`` without addresses: ``<code object forward, file "m.py", line 3>``."""
    return without_addresses(repr(value))


def is_tensor(
    value: Any,
    kind: Any,
    keys: tuple[str, ...],
    dtype: torch.dtype,
    device: Any,
    requires_grad: bool,
    size: list[Any] | None = None,
    stride: list[Any] | None = None,
) -> bool:
    """Whether ``value`` is a tensor like the one that was compiled for; None in ``size`` or ``stride`` is any number.

    ``keys`` are dispatch keys; the one that names a device is checked.
    """
    if type(value) is not kind or value.dtype is not dtype or value.requires_grad != requires_grad:
        return False
    where = {"cpu": "CPU", "cuda": "CUDA", "meta": "Meta", "mps": "MPS", "xpu": "XPU"}.get(value.device.type)
    if where is not None and where not in keys:
        return False
    if device is not None and value.device.index not in (None, device):
        return False
    return _fits(value.shape, size) and (stride is None or _fits(value.stride(), stride))


def _fits(actual: Any, expected: list[Any] | None) -> bool:
    if expected is None:
        return True
    return len(actual) == len(expected) and all(e is None or a == e for a, e in zip(actual, expected))


def no_aliasing(*tensors: Any) -> bool:
    """Whether no two of ``tensors`` are one object."""
    return len({id(t) for t in tensors}) == len(tensors)


_GLOBAL_STATE: dict[str, Callable[[], Any]] = {
    "grad_mode": torch.is_grad_enabled,
    "deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
    "deterministic_algorithms_warn_only": torch.is_deterministic_algorithms_warn_only_enabled,
    "num_threads": torch.get_num_threads,
    "allow_tf32": lambda: torch.backends.cuda.matmul.allow_tf32,
}


def global_state(**expected: Any) -> bool:
    """Whether torch's settings are as they were; settings that torch.compile stores as numbers are only shown."""
    return all(_GLOBAL_STATE[name]() == value for name, value in expected.items() if name in _GLOBAL_STATE)


def torch_function_modes() -> int:
    """How many torch function modes are active."""
    from torch.overrides import _get_current_function_mode_stack

    return len(_get_current_function_mode_stack())


def saved_tensors_hooks() -> Any:
    """The default hooks for saved tensors, None if there are none."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True)


def default_device() -> Any:
    import torch.utils._device as module

    return module.CURRENT_DEVICE


def dynamo_functions() -> dict[str, Any]:
    """The functions that torch.compile's own guards call, by their names."""
    import torch._dynamo.guards as module

    names = getattr(module, "_get_closure_vars", None)  # torch 2.13; a table before
    return dict(names() if names is not None else getattr(module, "CLOSURE_VARS", {}))


def failing(check: Callable[[Any, Any], bool], L: Any, G: Any) -> list[str]:
    """The operands of ``check``'s ``and`` that do not hold for the arguments ``L`` and globals ``G``."""
    function = ast.parse(textwrap.dedent(inspect.getsource(check))).body[0]
    returned = next(s for s in function.body if isinstance(s, ast.Return))  # type: ignore[attr-defined]
    out = []
    for operand in getattr(returned.value, "values", [returned.value]):
        text = ast.unparse(operand)
        try:
            holds = eval(text, {**check.__globals__, "L": L, "G": G})
        except Exception as error:
            out.append(f"{text}  raises {error!r}")
            continue
        if not holds:
            out.append(text)
    return out


DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
    "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "b8": torch.bool,
    "c64": torch.complex64, "c128": torch.complex128,
}  # fmt: skip
_ANNOTATION = re.compile(r"(\w+)\[([^\]]*)\](?:\[([^\]]*)\])?(\w+)?(?::(\d+))?")


def graph_module(printed: type[torch.nn.Module]) -> torch.nn.Module:
    """The graph of a printed class, with one of each class inside it, which is a graph of its own."""
    module = printed()
    for name, inner in vars(printed).items():
        if isinstance(inner, type) and issubclass(inner, torch.nn.Module):
            graph = graph_module(inner)
            if name.startswith("wrap_body"):  # what is checkpointed must be an fx graph
                graph = torch.fx.symbolic_trace(graph)
            module.__dict__[name] = graph  # a submodule would be hidden by the class of its name
    return module


def example_inputs(module: torch.nn.Module, seed: int = 0) -> list[Any]:
    """Inputs of the shapes that the annotations of ``module.forward`` give; symbols of dynamic shapes become 4."""
    generator = torch.Generator().manual_seed(seed)
    parameters = inspect.signature(module.forward).parameters.values()
    return [_example(str(p.annotation), generator) for p in parameters]


def _example(annotation: str, generator: torch.Generator) -> Any:
    match = _ANNOTATION.search(annotation)
    if match is None or match[1] not in DTYPES:
        return 4 if "Sym" in annotation else torch.tensor(0)
    dtype, shape = DTYPES[match[1]], _numbers(match[2])
    size = shape
    stride = _numbers(match[3]) if match[3] is not None else []
    values = torch.randn(size, generator=generator)
    device = match[4] if match[4] and (match[4] != "cuda" or torch.cuda.is_available()) else "cpu"
    tensor = values.abs().to(dtype) if dtype is torch.bool or not dtype.is_floating_point else values.to(dtype)
    if dtype is torch.bool:
        tensor = values > 0
    if len(stride) == len(size) and all(s > 0 for s in stride):
        tensor = torch.empty_strided(size, stride, dtype=dtype).copy_(tensor)
    return tensor.to(device)


def _numbers(text: str) -> list[int]:
    return [int(part) if part.strip().isdigit() else 4 for part in text.split(",") if part.strip()]
