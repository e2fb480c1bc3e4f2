"""How the entry makes the inputs of the graph that stand for numbers: see ``values/entry_tensor.py``."""

from __future__ import annotations

from ...records.symbolic_ints import size_of
from ..protocol import Lazy, Value
from ..values.containers import ListV
from ..values.entry_tensor import EntrySizeV, EntryTensorV, ListTensorV, NumberTensorV
from .emitter import Emitter


def written_input(e: Emitter, tensor: EntryTensorV) -> str:
    """The expression that makes it."""
    if isinstance(tensor, NumberTensorV):
        return f"reconstruct.scalar({e.expr(tensor.number)}, {tensor.fake.dtype})"
    if isinstance(tensor, EntrySizeV):
        return f"reconstruct.size_tensor({e.size_text(size_of(tensor.size))})"
    assert isinstance(tensor, ListTensorV)
    call = tensor.made_by
    kwargs = [f"{name}={e.expr(value)}" for name, value in call.kwargs.items()]
    arguments = ", ".join([_written_out(e, call.data), *map(e.expr, call.rest), *kwargs])
    made = e.fresh("data")
    e.numbers.append(f"{made} = torch.{call.function.__name__}({arguments})")
    return made


def _written_out(e: Emitter, data: Value | Lazy) -> str:
    """Lists that were put together for the call, in place: lines of their own would come after the graph."""
    if isinstance(data, ListV):
        return "[" + ", ".join(_written_out(e, part) for part in data.items) + "]"
    return e.expr(data)
