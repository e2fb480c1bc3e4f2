"""What the functions mean by which a program talks to the compiler: ours, and torch.compiler's of the same name.

torch.compiler.is_compiling()   →   True, or False where the program raises when it hears that
torch.compiler.disable(f)       →   f, marked: the graph breaks where it is called
"""

from __future__ import annotations

from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch

from ... import torch_compat
from ...marks import markers
from ..errors import Unsupported
from ..meanings.registry import Answer, answers, handles, named
from ..protocol import Machine, Value
from ..values.constant import ConstantV
from ..values.instance import InstanceV
from ..values.known import KnownV

answers(False, getattr(torch.compiler, "is_exporting", None), markers.is_exporting)
answers(None, torch.compiler.cudagraph_mark_step_begin, markers.cudagraph_mark_step_begin)
named("torch._dynamo.decorators", "mark_static")(Answer(None))  # every size is static yet


@dataclass
class ToldCompiled:
    """What programs hear that ask whether they are compiled, and whether this one has asked."""

    answer: bool = True
    asked: bool = False


@named("torch._dynamo.external_utils", "is_compiling")
@handles(torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling, markers.is_compiling)
def is_compiling_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    told = m.state(ToldCompiled)
    told.asked = True
    return ConstantV(told.answer)


@handles(torch.compiler.disable, markers.disable)
def disable_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not args or not isinstance(args[0], KnownV) or type(args[0].real) is not FunctionType:
        raise Unsupported("`disable` of what is made inside", "disable it outside the compiled function")
    made = m.real(
        markers.disable,
        args[0].real,
        *(m.settle(a).as_constant() for a in args[1:]),
        **{name: m.settle(value).as_constant() for name, value in kwargs.items()},
    )
    return KnownV(made)


@handles(torch.compiler.nested_compile_region, markers.nested_compile_region)
def nested_compile_region_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) != 1:
        raise Unsupported("`nested_compile_region` as a decorator", "decorate the function outside")
    return args[0]


def constant_result(m: Machine, function: FunctionType, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """What a function under ``assume_constant_result`` gave now; None where it gets or gives what the trace made."""
    given = [*args, *kwargs.values()]
    if not all(isinstance(value, (ConstantV, KnownV, InstanceV)) for value in given):
        return None
    real = [getattr(value, "real", None) if isinstance(value, InstanceV) else value.as_constant() for value in given]
    if any(r is None and isinstance(value, InstanceV) for r, value in zip(real, given)):
        return None
    result = m.real(function, *real[: len(args)], **dict(zip(kwargs, real[len(args) :])))
    return None if isinstance(result, torch.Tensor) else m.wrap(result)


def substitute_of(real: Any) -> FunctionType | None:
    """The Python function that ``substitute_in_graph`` gave for it, ours or torch.compiler's."""
    found = markers.SUBSTITUTES.get(id(real))
    return found[1] if found is not None else torch_compat.substitute_in_graph_of(real)
