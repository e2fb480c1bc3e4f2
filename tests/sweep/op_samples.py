"""One sample of PyTorch's operator database: eager, compiled, and a judgement.

Input: an ``OpInfo`` and one of its sample inputs. Output: a ``Verdict``. ``compiled`` means ``tg.compile(run,
fullgraph=True)`` around a Python function that calls the operator; where that raises, the same without ``fullgraph``,
which has to be right as well.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from tests.complaints import complaints
from tests.sweep.changing import facts, told

import torchglass as tg
from torchglass.errors import CompileError, GraphBreakError
from torchglass.records.extern_targets import JOIN
from torchglass.records.loops import ExternCall, Loop

WHOLE, BREAKS, REFUSED, WRONG, CRASHED, SKIPPED = "whole", "breaks", "refused", "wrong", "crashed", "skipped"
"""``refused``: captured, but a later stage could not take it and eager ran instead, with the right result."""

UNDEFINED = frozenset(
    [
        "empty",
        "empty_like",
        "empty_strided",
        "empty_permuted",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "resize_as_",
    ]
)
"""Operators whose results are memory as it was: only shapes and dtypes are compared."""
SEEDED = frozenset(["torch.ops.aten._flash_attention_forward", "torch.ops.aten._efficient_attention_forward"])
"""Operators whose results of whole numbers are seeds, which stay memory as it was without dropout."""


@dataclass
class Verdict:
    """``loops`` and ``calls``: how many loops the generated graphs have, and which ATen operators they call. ``more``:
    why there are more than two entries, or sizes became numbers.
    """

    result: str
    why: str = ""
    loops: int = 0
    calls: tuple[str, ...] = ()
    more: str = ""


def as_user_code(op: Any) -> Any:
    """Where the database wraps an operator in a function of its own: that function as if a user had written it.

    Functions of ``torch.testing`` are not captured, since no model calls them.
    """
    if isinstance(op, FunctionType) and op.__module__.startswith("torch.testing"):
        return _copied(op, _user_globals(op.__module__))
    return op


@functools.cache
def _user_globals(module: str) -> dict[str, Any]:
    names = dict(vars(sys.modules[module]))
    names["__name__"] = "database"
    for name, value in list(names.items()):
        if isinstance(value, FunctionType) and value.__module__ == module:
            names[name] = _copied(value, names)
    names["wrapper_set_seed"] = lambda op, *args, **kwargs: op(*args, **kwargs)  # runs are seeded here
    return names


def _copied(function: FunctionType, names: dict[str, Any]) -> FunctionType:
    made = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__module__ = "database"
    return made


def mapped(function: Callable[[Any], Any], value: Any, kinds: tuple[type, ...] = (torch.Tensor,)) -> Any:
    """``value`` with ``function`` applied to every tensor in it, or to what is of other kinds."""
    if isinstance(value, kinds):
        return function(value)
    if type(value) in (list, tuple):
        return type(value)(mapped(function, item, kinds) for item in value)
    if type(value) is dict:
        return {key: mapped(function, item, kinds) for key, item in value.items()}
    if isinstance(value, torch.Generator):
        return value.clone_state()
    return value


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in tensors(item)]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors(item)]
    return []


def fresh(value: torch.Tensor) -> torch.Tensor:
    """A leaf of the same values, layout and history flag; memory of its own, shared within it as in ``value``."""
    if value.layout is not torch.strided or value.is_quantized:
        return copy.deepcopy(value.detach()).requires_grad_(value.requires_grad)
    with torch.no_grad():
        plain = value.detach().resolve_conj().resolve_neg() if value.is_conj() or value.is_neg() else value.detach()
        if plain.storage_offset() == 0 and plain.untyped_storage().nbytes() == plain.numel() * plain.element_size():
            made = torch.empty_strided(plain.shape, plain.stride(), dtype=plain.dtype, device=plain.device)
            made.copy_(plain)
        else:
            whole = plain.untyped_storage().clone()
            made = torch.empty(0, dtype=plain.dtype, device=plain.device)
            made.set_(whole, plain.storage_offset(), plain.shape, plain.stride())
    return made.requires_grad_(value.requires_grad)


@dataclass
class Outcome:
    """What one call leaves: outputs, gradients (or None) by input tensor, the inputs afterwards."""

    outputs: Any
    gradients: list[torch.Tensor | None]
    inputs: list[torch.Tensor]


def outcome(call: Callable[..., Any], arguments: tuple[Any, ...], backward: bool) -> Outcome:
    """Run ``call`` on fresh copies from a seed, and differentiate all that can be."""
    given = mapped(fresh, arguments)
    leaves = [value for value in tensors(given) if value.requires_grad]
    torch.manual_seed(0)
    outputs = call(*given)
    gradients: list[torch.Tensor | None] = []
    ends = [out for out in tensors(outputs) if out.requires_grad]
    if backward and ends and leaves:
        # the loss comes out of the outputs alone, so that both runs differentiate the same thing
        shares = [weights(end) for end in ends]
        gradients = list(torch.autograd.grad(ends, leaves, shares, allow_unused=True))
    return Outcome(outputs, gradients, tensors(given))


def weights(like: torch.Tensor) -> torch.Tensor:
    count = max(like.numel(), 1)
    ramp = torch.linspace(0.5, 1.5, count, dtype=torch.float64)[: like.numel()].reshape(like.shape)
    ramp = ramp.to(like.device, like.dtype)
    return ramp.to_sparse() if like.layout is torch.sparse_coo else ramp


def resized(arguments: Any, more: int) -> Any:
    """Arguments whose tensors have ``more`` rows, where they have as many as the first one; these begin anew."""
    rows = next((t.shape[0] for t in tensors(arguments) if t.dim()), 0)

    def longer(value: torch.Tensor) -> torch.Tensor:
        if not rows or value.layout is not torch.strided or not value.dim() or value.shape[0] != rows:
            return value
        order = sorted(range(value.dim()), key=value.stride, reverse=True)  # it lies as it lay
        places = torch.arange(rows + more, device=value.device) % rows
        turned = value.detach().permute(order).index_select(order.index(0), places)
        return turned.permute([order.index(dim) for dim in range(value.dim())]).requires_grad_(value.requires_grad)

    return mapped(longer, arguments)


def other_sizes(run: Callable[..., Any], arguments: Any, backward: bool) -> Iterator[tuple[Any, Outcome]]:
    """The same call with more rows, as far as eager takes it, and what that gives."""
    for more in (1, 2):
        with contextlib.suppress(Exception):
            longer = resized(arguments, more)
            if [t.shape for t in tensors(longer)] != [t.shape for t in tensors(arguments)]:
                yield longer, outcome(run, longer, backward)


def judge(
    operator: Any, samples: Sequence[Any], backend: str, backward: bool, changing: bool = False, dynamic: Any = None
) -> Verdict:
    """Compare some samples in one graph with eager, with ``changing`` at several sizes. ``operator`` is an OpInfo or a
    callable.
    """
    op = as_user_code(getattr(operator, "op", operator))
    name = getattr(operator, "name", "")

    def run(*calls: tuple[Any, tuple[Any, ...], dict[str, Any]]) -> Any:
        return [op(first, *rest, **kwargs) for first, rest, kwargs in calls]

    arguments = tuple((sample.input, tuple(sample.args), dict(sample.kwargs)) for sample in samples)
    try:
        expected = [(arguments, outcome(run, arguments, backward))]
    except Exception as error:
        return Verdict(SKIPPED, f"eager: {type(error).__name__}: {error}"[:200])
    expected += other_sizes(run, arguments, backward) if changing else expected
    if len(expected) == 1:
        return Verdict(SKIPPED, "eager takes no other size")
    verdict = Verdict(WHOLE)
    tg.reset()
    with warnings.catch_warnings(), complaints() as texts, told() as numbers:
        warnings.simplefilter("ignore")
        try:
            compiled = tg.compile(run, backend=backend, fullgraph=True, dynamic=dynamic)
            found = [outcome(compiled, arguments, backward)]
        except (GraphBreakError, CompileError) as error:
            kind = BREAKS if isinstance(error, GraphBreakError) else REFUSED
            verdict = Verdict(kind, _short(error))
        except Exception as error:
            return Verdict(WRONG, f"raises {_short(error)}")
        try:
            if verdict.result != WHOLE:
                compiled = tg.compile(run, backend=backend, dynamic=dynamic)
                found = [outcome(compiled, arguments, backward)]
            found += [outcome(compiled, later, backward) for later, _ in expected[1:]]
        except Exception as error:
            return Verdict(WRONG, f"raises {_short(error)}" + (f", after {verdict.why}" if verdict.why else ""))
    if texts:
        return Verdict(WRONG, f"ran eagerly unasked: {texts[0][:400]}")
    for when, (given, eager), mine in zip(("first call", "second call", "third call"), expected, found):
        reference = functools.cache(functools.partial(in_double, run, given, backward))
        difference = compare(eager, mine, reference, name)
        if difference:
            return Verdict(WRONG, f"{when}: {difference}")
    verdict.loops, verdict.calls = generated(compiled)
    verdict.more = "; ".join([*numbers, *facts(tg.explain(compiled))["more"]])
    return verdict


def generated(compiled: Any) -> tuple[int, tuple[str, ...]]:
    """How many loops a compiled function's graphs have, and which ATen operators they call."""
    graphs = [graph for entry in tg.explain(compiled).entries for graph in entry.graphs]
    nodes = [node for graph in graphs for fused in graph.fused.values() for node in fused.graph.nodes]
    calls = sorted({node.target for node in nodes if isinstance(node, ExternCall) and node.target != JOIN})
    return sum(isinstance(node, Loop) for node in nodes), tuple(calls)


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:400]


# --- comparing --------------------------------------------------------------------------------------------------------
Reference = Callable[[], Outcome | None]


def compare(expected: Outcome, found: Outcome, reference: Reference, name: str = "") -> str:
    """What differs, or ''. Values may differ from eager's as far as eager's may from float64 (twice that)."""
    shape = _structure(expected.outputs, found.outputs)
    if shape:
        return shape
    parts = (
        ("output", tensors(expected.outputs), tensors(found.outputs), lambda o: tensors(o.outputs)),
        ("gradient", expected.gradients, found.gradients, lambda o: o.gradients),
        ("input afterwards", expected.inputs, found.inputs, lambda o: o.inputs),
    )
    for part, wants, gots, pick in parts:
        if len(wants) != len(gots):
            return f"{len(gots)} {part}s instead of {len(wants)}"
        for index, (want, got) in enumerate(zip(wants, gots)):
            if (want is None) != (got is None):
                return f"{part} {index} is None in one of the two"
            if want is None or got is None:
                continue
            difference = _facts(want, got)
            if not difference and part == "output":
                difference = _layout(want, got, expected.inputs, found.inputs)
            undefined = name in UNDEFINED or (name in SEEDED and not want.is_floating_point())
            if not difference and not undefined:
                difference = _values(want, got, reference, pick, index)
            if difference:
                return f"{part} {index}: {difference}"
    return ""


def _structure(want: Any, got: Any) -> str:
    if isinstance(want, torch.Tensor) or isinstance(got, torch.Tensor):
        return "" if isinstance(got, type(want)) else f"a {type(got).__name__} instead of a {type(want).__name__}"
    if type(want) is not type(got):
        return f"a {type(got).__name__} instead of a {type(want).__name__}"
    if isinstance(want, (list, tuple)):
        if len(want) != len(got):
            return f"{len(got)} results instead of {len(want)}"
        return next(filter(None, map(_structure, want, got)), "")
    if isinstance(want, dict):
        return "" if list(want) == list(got) else "other keys"
    return "" if want == got or want != want else f"{got!r} instead of {want!r}"


def _facts(want: torch.Tensor, got: torch.Tensor) -> str:
    for fact in ("shape", "dtype", "layout", "requires_grad"):
        if getattr(want, fact) != getattr(got, fact):
            return f"{fact} {getattr(got, fact)} instead of {getattr(want, fact)}"
    return ""


def _layout(want: torch.Tensor, got: torch.Tensor, wants: list[torch.Tensor], gots: list[torch.Tensor]) -> str:
    """What differs in where an output's elements lie: strides that matter, and whose memory it is."""
    if want.layout is not torch.strided or want.is_quantized:
        return ""
    if want.numel() and any(a != b for a, b, d in zip(want.stride(), got.stride(), want.shape) if d != 1):
        return f"strides {got.stride()} instead of {want.stride()}"
    mine, theirs = _owner(got, gots), _owner(want, wants)
    if mine != theirs:
        return f"the memory of input {mine} instead of {theirs}"
    if mine is not None and got.storage_offset() != want.storage_offset():
        return f"offset {got.storage_offset()} instead of {want.storage_offset()}"
    return ""


def _owner(output: torch.Tensor, inputs: list[torch.Tensor]) -> int | None:
    """The first input whose memory an output shows, if it shows any."""
    if not output.numel():
        return None
    place = output.untyped_storage().data_ptr()
    strided = [(k, value) for k, value in enumerate(inputs) if value.layout is torch.strided]
    return next((k for k, value in strided if value.numel() and value.untyped_storage().data_ptr() == place), None)


def _values(
    want: torch.Tensor, got: torch.Tensor, reference: Reference, pick: Callable[[Outcome], Any], index: int
) -> str:
    want, got = plain(want), plain(got)
    try:
        torch.testing.assert_close(got, want, equal_nan=True, check_stride=False)
        return ""
    except AssertionError as error:
        complaint = str(error).replace("\n", " ")[:250]
    if not (want.is_floating_point() or want.is_complex()):
        return complaint
    exact = reference()
    if exact is None:
        return complaint
    candidates = pick(exact)
    truth = candidates[index] if index < len(candidates) else None
    if truth is None or plain(truth).shape != want.shape:
        return complaint
    return "" if _no_worse(want, got, plain(truth)) else complaint


def plain(value: torch.Tensor) -> torch.Tensor:
    value = value.detach()
    value = value.to_dense() if value.layout is not torch.strided else value
    return value.resolve_conj().resolve_neg()


def _no_worse(want: torch.Tensor, got: torch.Tensor, truth: torch.Tensor) -> bool:
    """Whether ``got`` is at most twice as far from the truth as ``want`` is, give or take some units of the last
    place.
    """
    unit = torch.finfo(got.dtype).eps
    wide = torch.complex128 if want.is_complex() else torch.float64
    want, got, truth = want.to(wide), got.to(wide), truth.to(wide)
    finite = truth.isfinite() & want.isfinite()
    if not torch.equal(got.isfinite()[finite], want.isfinite()[finite]):
        return False
    odd = ~finite
    alike = (got[odd] == want[odd]) | (got[odd] == truth[odd]) | (got[odd].isnan() & want[odd].isnan())
    if not bool((alike | (got[odd].isnan() & truth[odd].isnan())).all()):
        return False
    ours, theirs = (got - truth).abs()[finite], (want - truth).abs()[finite]
    if not ours.numel():
        return True
    scale = truth.abs()[finite]
    return bool((ours <= 2 * theirs.max() + 2 * unit * scale).all())


def in_double(run: Callable[..., Any], arguments: tuple[Any, ...], backward: bool) -> Outcome | None:
    """The same call with every floating-point input and dtype in double precision; None where the operator refuses."""

    try:
        return outcome(run, mapped(widened, arguments, (torch.Tensor, torch.dtype)), backward)
    except Exception:
        return None


def widened(value: torch.Tensor | torch.dtype) -> torch.Tensor | torch.dtype:
    """A leaf of the same values in double precision, or that dtype; what holds no such numbers as it is."""
    dtype = value if isinstance(value, torch.dtype) else value.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        return value
    wide = torch.complex128 if dtype.is_complex else torch.float64
    if isinstance(value, torch.dtype):
        return wide
    return value.detach().to(wide).requires_grad_(value.requires_grad)
