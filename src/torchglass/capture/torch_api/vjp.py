"""``torch.func.vjp``: a node for the outputs, and one for each call of the function that pulls cotangents back.

    out, pull = vjp(f, x)      ->    vjp_outputs = Transformed(f's graph)((x,), {}, ())
    (g,) = pull(c)             ->    pulled = Transformed(f's graph)((x, c), {}, ())

Both run ``f``'s graph, so the second computes the forward anew (equal calls are merged later). That is the same only
where ``f`` draws no random numbers and what it reads has not been written to in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..errors import Unsupported
from ..graph.builder import GraphBuilder
from ..meanings.registry import handles
from ..protocol import Machine, Value
from ..values.containers import TupleV
from ..values.methods import CallableV
from ..values.tensor import TensorV
from .random_ops import Watch
from .transforms import Transformed, interpreted, recorded


class PullV(CallableV):
    """What ``vjp`` returns beside the outputs: a function of their cotangents."""

    cls = type(lambda: None)

    def __init__(self, m: Machine, target: Transformed, operands: list[Value], count: int, has_aux: bool) -> None:
        self.body, self.places = target.body, target.places
        self.operands, self.count, self.has_aux = operands, count, has_aux
        self.versions = self._versions(m)

    def _versions(self, m: Machine) -> list[int]:
        read = [v for operand in (self.operands[0], self.operands[2]) for v in _tensors(m, operand)]
        return [v.fake._version for v in read]

    def call(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if len(args) != 1 or kwargs:
            raise Unsupported("the function of torch.func.vjp with options")
        if self._versions(m) != self.versions:
            raise Unsupported("torch.func.vjp of a tensor that was written to before its cotangents came")
        count, has_aux = self.count, self.has_aux

        def pulled(function: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *both: torch.func.vjp(function, *both[:count], has_aux=has_aux)[1](*both[count:])

        target = Transformed(pulled, self.body, self.places)
        primals, named, outer = self.operands
        operands = [TupleV([*m.listed(primals), m.settle(args[0])]), named, outer]
        try:
            result = m.state(GraphBuilder).evaluate(target, operands, {})
        except Unsupported:
            raise
        except Exception as error:
            raise Unsupported(f"torch.func.vjp, which raises {type(error).__name__}: {error}") from None
        return recorded(m, target, operands, result)


def _tensors(m: Machine, value: Value) -> list[TensorV]:
    if isinstance(value, TensorV):
        return [value]
    parts = getattr(value, "items", None)
    items = parts.values() if isinstance(parts, dict) else parts or ()
    return [t for item in items for t in _tensors(m, m.forced(item))]


@handles(torch.func.vjp)
def vjp_(m, args, kwargs):
    """``vjp(f, *primals, has_aux=False)``."""
    has_aux = bool(kwargs["has_aux"].as_constant()) if "has_aux" in kwargs else False
    watch = Watch()

    def vjp_outputs(function: Callable[..., Any]) -> Callable[..., Any]:
        def outputs(*primals: Any) -> Any:
            found = torch.func.vjp(function, *primals, has_aux=has_aux)
            return (found[0], found[2]) if has_aux else found[0]

        return outputs

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def outputs(*primals: Any) -> Any:
            with watch:
                return vjp_outputs(function)(*primals)

        return outputs

    target, operands, result = interpreted(m, watched, args[0], args[1:], {})
    if watch.draws:
        raise Unsupported("torch.func.vjp of a function that draws random numbers", "draw them before")
    target = Transformed(vjp_outputs, target.body, target.places)
    found = recorded(m, target, operands, result)
    pull = PullV(m, target, operands, len(args) - 1, has_aux)
    if not has_aux:
        return TupleV([found, pull])
    output, aux = m.listed(found)
    return TupleV([output, pull, aux])
