"""Run a program plain and compiled, and say where they differ: results, what became of arguments and globals, what was
printed, exceptions (type, arguments, causes, the user's line), and which objects and storages are one and the same.

A program is the text of a function ``f``; it is executed twice in fresh copies of prelude.py's namespace.
"""

from __future__ import annotations

import contextlib
import enum
import io
import itertools
import linecache
import math
import re
import signal
import sys
import traceback
import types
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import torchglass as tg

PRELUDE = Path(__file__).with_name("prelude.py")
_prelude = compile(PRELUDE.read_text(), str(PRELUDE), "exec")
_numbers = itertools.count()
LONGEST = 3.0  # seconds of the processor that plain Python may take for a call
WATCHED = (
    "counter",
    "log",
    "table",
    "shared",
    "weight",
    "queue",
    "counts",
    "groups",
    "order",
    "layer",
    "net",
    "optimizer",
    "batch",
)
LINES = False
PLAIN = (int, float, str, bytes, bool, complex, type(None), type(Ellipsis), torch.dtype, torch.device, range, slice)


def namespace(text: str, filename: str) -> types.ModuleType:
    """The program as a fresh module."""
    module = types.ModuleType("program")
    sys.modules["program"] = module
    exec(_prelude, vars(module))
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        exec(compile(text, filename, "exec"), vars(module))
    return module


def arguments(module: types.ModuleType, call: int) -> list[Any]:
    """What ``f`` is called with: calls 0 and 3 are alike; others change values, lengths, types or aliasing."""
    sign = -1.0 if call % 3 == 2 else 1.0
    x = sign * torch.tensor([1.0, -0.5, 2.0])
    if call == 4:
        x.requires_grad_()
    y = x if call == 2 else torch.tensor([0.5, 1.5, -1.0])
    n = (3, 3, 4, 3, 0)[call]
    flag = (None, 1, "a", None, True)[call]
    items = [n, 2, 1] if call % 2 == 0 else [5, -1]
    pairs = {"a": 1, "b": n}
    box = (module.Box, module.Child, module.Box, module.Box, module.Child)[call](2, x if call == 1 else y)
    if call == 2:
        box.items = items
    return [x, y, n, flag, items, pairs, box]


@dataclass
class Difference(Exception):
    call: int
    plain: Any
    compiled: Any

    def __str__(self) -> str:
        return f"call {self.call}:\n  plain     {self.plain}\n  compiled  {self.compiled}"


# --- what can be seen of a value -------------------------------------------------------------------------------------
@dataclass
class Snapshot:
    """A value as nested tuples, in which each object has the number of its first visit."""

    filename: str
    numbers: dict[int, int] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)

    def __call__(self, value: Any) -> Any:
        if isinstance(value, float):
            return "nan" if math.isnan(value) else value
        if isinstance(value, str):
            return "str", re.sub(r"0x[0-9a-f]+", "0x", value)  # addresses differ from run to run
        if isinstance(value, enum.Enum):
            return "enum", type(value).__name__, value.name
        if isinstance(value, PLAIN) and not isinstance(value, (torch.Size,)):
            return type(value).__name__, value
        known = self.numbers.get(id(value))
        if known is not None:
            return "seen", known
        if type(value) in (tuple, torch.Size) and all(isinstance(v, PLAIN) for v in value):
            return type(value).__name__, tuple(self(v) for v in value)  # which two of them are one means nothing
        number = self.numbers[id(value)] = len(self.numbers)
        self.kept.append(value)
        return number, *self.content(value)

    def content(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, BaseException):
            return self.exception(value)
        if isinstance(value, (list, tuple, deque)):
            return type(value).__name__, [self(v) for v in value], self.attributes(value)
        if isinstance(value, dict):
            return type(value).__name__, [(self(k), self(v)) for k, v in value.items()]
        if isinstance(value, torch.nn.Module):
            state = self(dict(value.state_dict(keep_vars=True)))
            return type(value).__name__, state, value.training, self(value.__dict__.get("seen"))
        if isinstance(value, torch.optim.Optimizer):
            return type(value).__name__, self(value.state_dict())
        if isinstance(value, (set, frozenset)):
            return type(value).__name__, sorted(map(str, map(self, value)))
        if isinstance(value, types.FunctionType):
            cells = [self(c.cell_contents) for c in value.__closure__ or () if _filled(c)]
            return "function", value.__qualname__, self(value.__defaults__), self(value.__kwdefaults__), cells
        if isinstance(value, types.MethodType):
            return "method", self(value.__func__), self(value.__self__)
        if isinstance(value, types.BuiltinFunctionType):
            owner = value.__self__
            return "builtin", value.__name__, None if isinstance(owner, types.ModuleType) else self(owner)
        if isinstance(value, (type, types.ModuleType)):
            return "name", value.__name__
        return type(value).__name__, self.attributes(value)

    def attributes(self, value: Any) -> Any:
        return [(k, self(v)) for k, v in getattr(value, "__dict__", {}).items()]

    def tensor(self, t: torch.Tensor) -> tuple[Any, ...]:
        storage = t.untyped_storage().data_ptr()
        home = self.numbers.setdefault(storage + 1 if storage else id(t), len(self.numbers))
        values = [self(v) for v in t.detach().reshape(-1).tolist()]
        strides = [stride for size, stride in zip(t.shape, t.stride()) if size > 1 and t.numel()]
        where = (tuple(t.shape), strides, ("offset", t.storage_offset()), "storage", home)
        grad = self(t.grad) if t.is_leaf and t.grad is not None else None
        return "tensor", str(t.dtype), where, t.requires_grad, t.is_leaf, values, grad

    def exception(self, error: BaseException) -> tuple[Any, ...]:
        linked = error.__cause__, error.__context__
        return (
            type(error).__name__, self(str(error)), [self(a) for a in error.args],
            lines_of(error, self.filename) if LINES else (), [self(e) for e in linked],
            error.__suppress_context__, self.attributes(error),
        )  # fmt: skip


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def lines_of(error: BaseException, filename: str) -> tuple[int, ...]:
    """The lines of the program on the way of an exception, outermost first."""
    lines, trace = [], error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == filename:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return tuple(lines)


# --- running ---------------------------------------------------------------------------------------------------------
class Endless(BaseException):
    """Plain Python does not come to an end: the program goes through a list that grows on the way."""


@contextlib.contextmanager
def that_ends() -> Iterator[None]:
    """Raise Endless within what takes longer than ``LONGEST``."""

    def stop(*_: Any) -> None:
        raise Endless

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST, 1.0)  # again and again: a `finally` may swallow the first
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def outcome(function: Callable[..., Any], module: types.ModuleType, call: int, filename: str) -> tuple[Any, ...]:
    given = arguments(module, call)
    torch.manual_seed(call)
    printed = io.StringIO()
    see = Snapshot(filename)
    result: Any = None
    with contextlib.redirect_stdout(printed):
        try:
            result = function(*given)
            ended: tuple[Any, ...] = ("returned", see(result))
        except Exception as error:
            ended = ("raised", see(error))
            _forget_frames(error)
    seen = [see(v) for v in given], [(name, see(getattr(module, name))) for name in WATCHED], see(module.Box.scale)
    text = _without_names(printed.getvalue())
    return (
        *ended,
        text,
        *seen,
        sorted(f"{_without_names(repr(key))}: {count}" for key, count in module.closed.items()),
        torch.is_grad_enabled(),
        _gradients(result, given[0], see),
    )


def _forget_frames(error: BaseException | None) -> None:
    """Let go of what the variables of the frames hold that an exception went through."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _without_names(text: str) -> str:
    """A text without addresses and what the nodes of the autograd graph are called: compiled graphs are one node, and
    operators have nodes of their own for a number that is an input of the graph.
    """
    return re.sub(r",\s+grad_fn=<\w+>|0x[0-9a-f]+", ", grad_fn", text)


def _gradients(result: Any, x: torch.Tensor, see: Snapshot) -> Any:
    """What backward from the tensors of a result gives."""
    found = [t for t in _tensors(result) if t.requires_grad and t.dtype.is_floating_point]
    if not found or not x.is_leaf:
        return None
    try:
        sum(t.sum() for t in found).backward()
    except RuntimeError as error:
        return type(error).__name__
    return None if x.grad is None else see(x.grad.tolist())


def _tensors(value: Any, around: tuple[int, ...] = ()) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if id(value) in around:
        return []  # a list that contains itself
    items = list(value.values()) if isinstance(value, dict) else value
    inside = (*around, id(value))
    return [t for v in items for t in _tensors(v, inside)] if isinstance(items, (list, tuple)) else []


def check(text: str, calls: tuple[int, ...] = (0, 1, 2, 3, 4), backend: Any = "eager", **options: Any) -> Any:
    """Compare plain and compiled calls of a program, up to one that does not end; raises Difference. Returns the
    compiled function.
    """
    filename = f"<program {next(_numbers)}>"
    plain, other = namespace(text, filename), namespace(text, filename)
    compiled = tg.compile(other.f, backend=backend, **options)
    try:
        for call in calls:
            sys.modules["program"] = plain
            try:
                with that_ends():
                    expected = outcome(plain.f, plain, call, filename)
            except Endless:
                break
            sys.modules["program"] = other
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                found = outcome(compiled, other, call, filename)
            messages = [str(w.message) for w in warned]
            complaints = [text for text in messages if "torchglass" in text or "guards" in text]
            if complaints:
                raise Difference(call, "no warning", complaints[0])
            parted = difference(expected, found, exact=backend == "eager")
            if parted is not None:
                raise Difference(call, *parted)
    finally:
        linecache.cache.pop(filename, None)
        sys.modules.pop("program", None)
    return compiled


def difference(a: Any, b: Any, exact: bool, path: str = "", largest: float = 1.0) -> tuple[str, str] | None:
    """The first place at which two snapshots part; None when there is none.

    Not ``exact``: floats may differ a little, and where a tensor lies in its storage is not compared. ``largest`` is
    the largest magnitude in the tensor that holds the two: what is left where terms of that size cancel is as inexact
    as they are.
    """
    if not exact and isinstance(a, tuple) and a[:1] == ("offset",):
        return None
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)) and len(a) == len(b):
        if a[1:2] == ("tensor",):
            largest = max([1.0, *(abs(v) for v in a[6] if isinstance(v, float) and math.isfinite(v))])
        for n, (left, right) in enumerate(zip(a, b)):
            found = difference(left, right, exact, f"{path}.{n}", largest)
            if found is not None:
                return found
        return None
    if a == b and type(a) is type(b):
        return None
    if isinstance(a, str) and isinstance(b, str) and _without_names(a) == _without_names(b):
        return None
    close = not exact and isinstance(a, float) and isinstance(b, float)
    if close and math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-6 * largest):
        return None
    return f"{path}: {a}", f"{path}: {b}"
