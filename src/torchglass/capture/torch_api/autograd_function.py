"""``torch.autograd.Function``: a call of ``apply`` is one node of the graph, and later stages trace through it.

    Square.apply(x)   ->   square = Square(x)   # the node's target calls the user's Square.apply

The user's ``forward`` and ``backward`` run as they are wherever the graph runs: PyTorch's autograd keeps their meaning
(saved tensors, needs_input_grad, once_differentiable, double backward). Capture only has to know what else they rely on
and touch, so it *rehearses* them: it interprets both bodies on fake tensors without leaving nodes. What they read gets
its guards; what a replay could not repeat (writes to the outside, tensors that are not arguments) ends the graph.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..errors import Unsupported, UserError
from ..graph.builder import GraphBuilder, RehearsalBuilder, building, stack_trace, tracing_arrays
from ..meanings import class_statement as class_bodies
from ..meanings.registry import handles
from ..polyfills.contexts import FunctionContext
from ..protocol import Machine, NotConstant, Value
from ..values.binding import class_lookup
from ..values.constant import NONE, ConstantV
from ..values.containers import ListV, SequenceV, TupleV
from ..values.function_modes import FunctionModes
from ..values.instance import InstanceV
from ..values.made import MadeV
from ..values.sealing import sealed
from ..values.tensor import TensorV

BASE = torch.autograd.Function
# How PyTorch asks whether the forward takes a context: setup_context is its own and raises.
DEFAULT_SETUP = class_lookup(BASE, "setup_context")


@handles(BASE.apply.__func__)
def apply(m, args, kwargs):
    """``cls.apply(*args)``; ``args[0]`` is the class."""
    cls = args[0].as_constant()
    if isinstance(args[0], MadeV):
        class_bodies.current_cells(m, cls)
    if m.state(FunctionModes).entered:
        raise Unsupported(f"`{cls.__name__}.apply` under a TorchFunctionMode")
    if kwargs:
        raise Unsupported(f"`{cls.__name__}.apply` with keyword arguments", "pass them by position")
    arguments = [_plain(m, cls, a) for a in _with_defaults(m, args[0], args[1:])]
    tensors = [t for a in arguments for t in _tensors(a)]
    rehearsal = _Rehearsal(m, cls, arguments)
    rehearsal.run(rehearsal.forward)
    target = _target(cls, arguments)
    try:
        with tracing_arrays(rehearsal.builder.arrays):
            result = m.state(GraphBuilder).evaluate(target, tensors, {})
    except Unsupported:
        raise
    except Exception as error:
        # real tensors may do where fakes do not, and if not, Python raises it
        raise Unsupported(f"`{cls.__name__}.apply`, which raises {type(error).__name__}: {error}") from None
    _check_result(cls, result)
    if torch.is_grad_enabled() and any(t.fake.requires_grad for t in tensors):
        rehearsal.run(lambda: rehearsal.backward(result))
    if rehearsal.builder.arrays.used:
        target.traces_arrays = True  # type: ignore[attr-defined]
        if isinstance(m.state(GraphBuilder), RehearsalBuilder):
            m.state(GraphBuilder).arrays.used = True  # a function within one that is rehearsed
    return m.state(GraphBuilder).record("call_function", target, tensors, {}, result, m.origin(), stack_trace(m))


def _with_defaults(m: Machine, cls: Value, given: list[Value]) -> list[Value]:
    """What ``forward`` gets: PyTorch fills in its defaults, so that ``setup_context`` sees them, where there is one."""
    real = cls.as_constant()
    code = getattr(real.forward, "__code__", None)
    if code is None or m.class_lookup(real, "setup_context") is DEFAULT_SETUP:
        return given
    defaults = m.get_attr(m.get_attr(cls, "forward"), "__defaults__")
    missing = code.co_argcount - len(given)
    if missing <= 0 or (defaults.is_constant() and defaults.as_constant() is None):
        return given
    filled = m.listed(defaults)
    return [*given, *filled[-missing:]] if missing <= len(filled) else given


def _plain(m: Machine, cls: type, value: Value) -> Value:
    """An argument in the form it has in the graph: a tensor, or what can be handed on as one known object."""
    value = m.forced(value)
    if isinstance(value, TensorV):
        return value
    if isinstance(value, SequenceV) and type(value) in (ListV, TupleV) and value.cls in (list, tuple, torch.Size):
        return type(value)([_plain(m, cls, i) for i in value.all(m)], value.cls)
    if isinstance(value, InstanceV) and value.real is not None and value.source is not None:
        m.guard(value.source, "identity", value.real, f"was handed to {cls.__name__}")
        return value
    try:
        m.settle(value).as_constant()
    except NotConstant:
        raise Unsupported(f"{value.a()} as argument of `{cls.__name__}.apply`") from None
    return value


def _tensors(value: Value) -> list[TensorV]:
    """The tensors of a plain argument, in order. Those in containers get no gradient, as in eager."""
    if isinstance(value, SequenceV):
        return [t for item in value.items for t in _tensors(item)]
    return [value] if isinstance(value, TensorV) else []


def _target(cls: Any, arguments: list[Value]) -> Callable[..., Any]:
    """A function of the tensors among the arguments that calls ``cls.apply`` with all of them."""
    template = [_template(value) for value in arguments]

    def call(*tensors: torch.Tensor) -> Any:
        rest = iter(tensors)
        return cls.apply(*[_filled(part, rest) for part in template])

    call.__name__ = call.__qualname__ = cls.__name__
    call.shown = _shown(cls, template)  # type: ignore[attr-defined]
    return call


def _shown(cls: Any, template: list[Any]) -> str:
    """What captured.py says of the call: the user's class, and what ``apply`` gets besides the tensors."""
    numbers = itertools.count()

    def said(part: Any) -> str:
        if part is _TENSOR:
            return f"tensors[{next(numbers)}]"
        if type(part) in (list, tuple):
            return f"{type(part).__name__}({', '.join(map(said, part))})"
        # an object's own repr may differ from run to run
        return repr(part) if type(part) in (int, float, str, bool, type(None)) else f"<{type(part).__qualname__}>"

    code = getattr(cls.forward, "__code__", None)
    where = f"  ({os.path.basename(code.co_filename)}:{code.co_firstlineno})" if code is not None else ""
    return f"{cls.__name__}.apply({', '.join(map(said, template))}){where}"


_TENSOR = object()


def _template(value: Value) -> Any:
    """A plain argument, with ``_TENSOR`` in the place of each tensor."""
    if isinstance(value, TensorV):
        return _TENSOR
    if isinstance(value, SequenceV) and _tensors(value):
        items = [_template(item) for item in value.items]
        return items if isinstance(value, ListV) else tuple(items)
    return value.real if isinstance(value, InstanceV) else value.as_constant()


def _filled(part: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """A template as one call gets it: lists are new ones."""
    if part is _TENSOR:
        return next(tensors)
    if type(part) is list:
        return [_filled(item, tensors) for item in part]
    return tuple(_filled(item, tensors) for item in part) if type(part) is tuple else part


def _check_result(cls: type, result: Any) -> None:
    parts = result if isinstance(result, tuple) else (result,)
    if not all(isinstance(p, (torch.Tensor, int, float, str, bool, type(None))) for p in parts):
        raise Unsupported(f"`{cls.__name__}.apply`, which returns more than tensors and numbers")


# --- rehearsal --------------------------------------------------------------------------------------------------------
class _Rehearsal:
    """Interprets ``forward``, then ``backward``, for their guards."""

    def __init__(self, m: Machine, cls: Any, arguments: list[Value]) -> None:
        self.m = m
        self.cls = cls
        self.builder = RehearsalBuilder(m.state(GraphBuilder).fake_mode, f"`{cls.__name__}`")
        self.inputs = [self._rehearsed(a) for a in arguments]
        self.needs = [isinstance(a, TensorV) and a.fake.requires_grad for a in arguments]

    def _rehearsed(self, value: Value) -> Value:
        if isinstance(value, TensorV):
            return self.builder.stand_in(value.fake)
        if isinstance(value, SequenceV):
            return type(value)([self._rehearsed(item) for item in value.items], value.cls)
        return value

    def run(self, part: Callable[[], None]) -> None:
        name = f"`{self.cls.__name__}`"
        try:
            with building(self.m, self.builder), sealed(self.m, name), torch.no_grad():
                part()
        except UserError as error:
            raise Unsupported(f"{name}, which raises {error.value.python_type().__name__}") from None

    def forward(self) -> None:
        m = self.m
        self.context = m.call(m.wrap(FunctionContext), [TupleV([ConstantV(n) for n in self.needs])], {})
        owner = m.wrap(self.cls)
        forward = m.get_attr(owner, "forward")
        if m.class_lookup(self.cls, "setup_context") is DEFAULT_SETUP:
            m.call(forward, [self.context, *self.inputs], {})
            return
        output = m.call(forward, self.inputs, {})
        m.call(m.get_attr(owner, "setup_context"), [self.context, TupleV(self.inputs), output], {})

    def backward(self, result: Any) -> None:
        """``result`` is what the forward gave, on fake tensors."""
        gradients: list[Value] = []
        for output in result if isinstance(result, tuple) else (result,):
            if isinstance(output, torch.Tensor):
                with self.builder.fake_mode:
                    gradients.append(self.builder.stand_in(torch.zeros_like(output, requires_grad=False)))
            else:
                gradients.append(NONE)
        backward = self.cls.backward if self.cls.backward is not BASE.backward else self.cls.vjp
        if _is_once(backward):
            backward = backward.__wrapped__  # the wrapper turns gradients off, as they are here
        self.m.call(self.m.wrap(backward), [self.context, *gradients], {})


def _is_once(function: Any) -> bool:
    return getattr(function, "__code__", None) is _ONCE_CODE


_ONCE_CODE = torch.autograd.function.once_differentiable(lambda ctx: None).__code__
