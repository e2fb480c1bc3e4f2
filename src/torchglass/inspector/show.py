"""Records as short texts for people: a guard in, one line out.

    >>> from torchglass.records.sources import Local
    >>> guard_line(Guard(Local("x"), "type", int, "x is added to 1", Origin("/app/a.py", 3, "f")))
    'type(x) is int'
    >>> reason(Guard(Local("x"), "type", int, "x is added to 1", Origin("/app/a.py", 3, "f")))
    'x is added to 1 (a.py:3)'

Nothing here runs a user's ``__repr__``: that may be slow, or print a whole model.
"""

from __future__ import annotations

import inspect
import math
import operator
import os
import types
from collections.abc import Iterator, Sequence
from typing import Any

from ..records.compilation import FunctionRecord, ReprText
from ..records.guards import CHECKS, Guard, Stride, TensorMeta
from ..records.literals import one_line
from ..records.origin import UNKNOWN, Origin
from ..records.partition import SavedTensor
from ..records.segments import BucketGradients
from ..records.sources import STACK, Source

_PLAIN = (int, float, complex, bool, type(None), type(Ellipsis), range)
_SHORT = ("dtype", "device", "Size", "layout", "memory_format", "qscheme")
# Their names are read without running anybody's code.
_NAMED = (
    types.FunctionType | types.BuiltinFunctionType
    | types.WrapperDescriptorType | types.MethodDescriptorType | types.ClassMethodDescriptorType
    | types.GetSetDescriptorType | types.MemberDescriptorType
)  # fmt: skip
_BRACKETS: dict[Any, str] = {tuple: "()", list: "[]", set: "{}", frozenset: "{}", dict: "{}"}


def guard_line(guard: Guard) -> str:
    """The condition as Python, e.g. ``len(layers) == 4``."""
    if guard.check == "printed":  # torch.compile's, which are text
        return str(guard.expected)
    row = CHECKS.get(guard.check)
    source = guard.source.render() if guard.source is not None else ""
    if row is None:
        return f"{guard.check}({source}, {value(guard.expected)})"
    if guard.is_relation():
        return guard.relation(source)
    if guard.check == "constant":  # its template is exact about types and NaN; this is what it means
        return f"{source} == {value(guard.expected)}"
    if guard.check == "global_state":  # a dozen settings, of which all or none matter to a reader
        return "global_state() is unchanged"
    return row.template.format(x=source, e=value(guard.expected))


def reason(guard: Guard) -> str:
    """What in the user's code needed the guard, and where."""
    return " ".join(part for part in (guard.why, f"({place(guard.origin)})" if place(guard.origin) else "") if part)


def place(origin: Origin) -> str:
    """``model.py:12``; '' for an origin that is not known."""
    return "" if origin == UNKNOWN else one_line(f"{os.path.basename(origin.file)}:{origin.line}")


def written_at(function: FunctionRecord) -> Origin:
    """Where a function's own lines stand, below what decorators wrapped around it."""
    try:
        found = inspect.unwrap(function.function) if function.function is not None else None
    except ValueError:  # they wrap one another
        found = None
    code = getattr(found, "__code__", None)
    return function.origin if code is None else Origin(code.co_filename, code.co_firstlineno, code.co_qualname)


def on_the_stack(function: FunctionRecord) -> str:
    """A comment that says what ``stack_0`` of a resume function is, '' for a function that has none."""
    if f"{STACK}0" not in function.source_text.partition("\n")[0]:
        return ""
    return f"# {STACK}0, ...: what the loop or expression that the break interrupted had at hand\n"


def value(thing: Any, limit: int = 80) -> str:
    """A value as short Python-like text. No more of it is looked at than is shown."""
    text = ""
    for piece in _pieces(thing, limit, ()):
        text += piece
        if len(text) > limit:
            return text[: limit - 3] + "..."
    return text


def _pieces(thing: Any, limit: int, inside: tuple[int, ...]) -> Iterator[str]:
    """The text in pieces, each about ``limit`` long at most; ``inside``: the containers that are being gone through."""
    brackets = _BRACKETS.get(type(thing))
    if brackets is None:
        yield _atom(thing, limit)
        return
    yield brackets[0]
    if id(thing) in inside or len(inside) > limit:
        yield "..."
    else:
        inside = (*inside, id(thing))
        for n, item in enumerate(thing):
            if n:
                yield ", "
            yield from _pieces(item, limit, inside)
            if type(thing) is dict:
                yield ": "
                yield from _pieces(thing[item], limit, inside)
        if type(thing) is tuple and len(thing) == 1:
            yield ","
    yield brackets[1]


def _atom(thing: Any, limit: int) -> str:
    if isinstance(thing, ReprText):
        return str(thing)
    if isinstance(thing, Source):
        return thing.render()
    if isinstance(thing, TensorMeta):
        return tensor(thing)
    if isinstance(thing, type):
        return thing.__qualname__ if thing.__module__ == "builtins" else f"{thing.__module__}.{thing.__qualname__}"
    if type(thing) is int and thing.bit_length() > 1000:  # Python refuses to print numbers of thousands of digits
        return f"{'-' if thing < 0 else ''}0x{abs(thing) >> (thing.bit_length() - 400):x}..."
    if type(thing) in (str, bytes):
        return repr(thing[: limit + 1])
    if type(thing) is slice:
        return f"slice({', '.join(value(part, limit) for part in (thing.start, thing.stop, thing.step))})"
    if type(thing) in _PLAIN or (type(thing).__module__ == "torch" and type(thing).__name__ in _SHORT):
        return repr(thing)
    if isinstance(thing, types.ModuleType):  # torch.ops is one, and has whatever it is asked for
        return str(vars(thing).get("__name__", "a module"))
    if isinstance(thing, _NAMED):
        return thing.__qualname__
    return f"<{_atom(type(thing), limit)} object>"


def tensor(meta: TensorMeta) -> str:
    """``float32[4, 128]``, with what is out of the ordinary: strides, device, class, requires_grad."""
    shape = ", ".join("*" if size is None else str(size) for size in meta.shape)
    parts = [f"{str(meta.dtype).removeprefix('torch.')}[{shape}]"]
    if meta.strides and any(map(operator.ne, meta.strides, _row_major(meta.shape))):
        strides = ", ".join(map(_stride, meta.strides))
        parts.append(f"strides ({strides}{',' if len(meta.strides) == 1 else ''})")
    if str(meta.device) != "cpu":
        parts.append(str(meta.device))
    if meta.type.__name__ != "Tensor":
        parts.append(meta.type.__name__)
    if meta.requires_grad:
        parts.append("requires_grad")
    parts += meta.flags
    return " ".join(parts)


def _row_major(shape: Sequence[int | None]) -> Iterator[Stride]:
    """The strides of a dense row-major tensor as a guard has them."""
    for dim in range(len(shape)):
        inside = range(dim + 1, len(shape))
        factor = math.prod(max(size, 1) for size in shape[dim + 1 :] if size is not None)
        changing = tuple(sorted(other for other in inside if shape[other] is None))
        yield (factor, *changing) if changing else factor


def _stride(stride: Stride) -> str:
    """``4``, ``*`` for any, ``16 * shape[1]``."""
    if not isinstance(stride, tuple):
        return "*" if stride is None else str(stride)
    factor, *dims = stride
    return " * ".join([*([str(factor)] if factor != 1 else []), *(f"shape[{dim}]" for dim in dims)])


def describe(saved: SavedTensor) -> str:
    """``float32[4, 128]``."""
    return f"{str(saved.dtype).removeprefix('torch.')}[{', '.join(map(str, saved.shape))}]"


def seconds(amount: float) -> str:
    """``1.2 s``, ``34 ms``."""
    return f"{amount:.1f} s" if amount >= 1 else f"{amount * 1e3:.0f} ms"


def milliseconds(amount: float) -> str:
    """``1.25 ms`` of seconds."""
    return f"{amount * 1e3:.2f} ms"


def count(number: int, noun: str) -> str:
    """``1 graph``, ``2 graphs``, ``3 entries``."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("y") else f"{number} {noun}s"


def size(number: int) -> str:
    """``1.5 MB``; units of 1024."""
    amount, units = float(number), ["bytes", "KB", "MB", "GB"]
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        units.pop(0)
    return f"{amount:.0f} {units[0]}" if units[0] == "bytes" else f"{amount:.1f} {units[0]}"


def gradients(found: BucketGradients) -> str:
    """``bucket 0 of DistributedDataParallel (8.2 KB: weight, bias, scale and 3 more)``."""
    more = f" and {len(found.inputs) - 3} more" if len(found.inputs) > 3 else ""
    whose = "inputs in no bucket" if found.bucket is None else f"bucket {found.bucket} of DistributedDataParallel"
    return f"{whose} ({size(found.bytes)}: {', '.join(found.inputs[:3])}{more})"
