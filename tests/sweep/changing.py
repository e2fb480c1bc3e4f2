"""One compiled model at several sizes: like eager at each, and how many entries that took.

    changing(row, model, made, chosen)     a row as ``compared`` gives, with

    entries     the most that one function has after each call: [1, 2, 2, 2]
    compiles    entries of all functions together
    more        of functions with over two entries: which guard failed, and the line and reason that asked for it
    numbers     why sizes became numbers that should have stayed open

Compiled and eager copies of the model go through the same calls, so buffers that count are alike.
"""

from __future__ import annotations

import copy
import logging
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .compared import Row, far_from, first_difference, stepper, tensors
from .inputs import Extent

EXTENTS = (Extent(2, 10, 2), Extent(3, 8, 3), Extent(2, 13, 1), Extent(1, 7, 3))
"""The last with a size of 1, which may need an entry of its own."""
ENOUGH = 2  # entries: one for the first sizes, one for all others
MOST = 8  # lines about entries
DRAWS = 8  # of eager's errors, where one is not enough

Made = Callable[[Extent], Any]
Calls = list[tuple[Any, Any]]


class MendedKernels(TorchDispatchMode):
    """Eager without an error of its own: on the CPU the backward of a batch norm is wrong of one contiguous image whose
    gradient lies channels last with another stride of the batch. Seen on 2.11 and 2.13.
    """

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten.native_batch_norm_backward.default:
            args = (torch.empty_like(args[1]).copy_(args[0]), *args[1:])
        return function(*args, **(kwargs or {}))


def changing(row: Row, model: torch.nn.Module, made: Made, chosen: Namespace) -> Row:
    """``made``: what inputs of an extent are, as ``stepper`` takes them."""
    import torchglass as tg

    training = chosen.training
    sizes = list(_sizes_taken(model, made, training))
    row["entries"] = []
    row["sizes"] = [[list(value.shape) for value in tensors(inputs)] for inputs in sizes]
    expected = _calls(_copied(model), sizes, training)
    tg.reset()
    begin = time.perf_counter()
    copied = _copied(model)
    compiled = tg.compile(copied, backend=chosen.backend, dynamic=chosen.dynamic)
    found: Calls = []
    with told() as row["numbers"]:
        for n, inputs in enumerate(sizes):
            try:
                found.append(_call(copied, compiled, inputs, training))
            except Exception as error:
                return {**row, "result": "wrong", "why": f"call {n}: {type(error).__name__}: {error}"[:600]}
            row["entries"] += [max(len(function.entries) for function in tg.explain(compiled).record.walk())]
    row["seconds"] = round(time.perf_counter() - begin, 2)
    row.update(facts(tg.explain(compiled)))
    difference = _differs(found, expected)
    if difference:  # eager's own may be wrong
        with MendedKernels():
            expected = _calls(_copied(model), sizes, training)
        difference = _differs(found, expected)
    answered = _told_compiling(model, sizes, training) if difference else []
    if answered and not _differs(found, answered):
        return {**row, "note": "computes something else, in eager too, once torch.compiler.is_compiling() says yes"}
    if difference and chosen.backend != "eager" and (exact := _in_float64(model, sizes, training)):
        parts = zip(sizes, exact, found, expected)
        difference = next(filter(None, (_far(model, training, *part) for part in parts)), "")
        row["note"] = "judged by float64"
    return {**row, "result": "wrong", "why": difference} if difference else row


def _sizes_taken(model: torch.nn.Module, made: Made, training: bool) -> Iterator[Any]:
    """The inputs of all sizes that eager takes; where images or sounds must have their usual size, others of that."""
    for extent in EXTENTS:
        for tried in (extent, Extent(extent.batch, extent.length)):
            inputs, scout = made(tried), _copied(model)  # some models remember sizes, and what they refused
            try:
                _call(scout, scout, inputs, training)
            except Exception:
                continue
            yield inputs
            model = scout
            break


def _copied(model: torch.nn.Module) -> torch.nn.Module:
    """A copy also of what a call leaves in a model, which may have a history."""
    made = (value for module in model.modules() for value in vars(module).values() if isinstance(value, torch.Tensor))
    return copy.deepcopy(model, {id(value): value.detach().clone() for value in made if not value.is_leaf})


def _call(model: torch.nn.Module, function: Any, inputs: Any, training: bool, *dtype: torch.dtype) -> tuple[Any, Any]:
    """Outputs and gradients; the gradients are the next call's no more."""
    outputs, gradients = stepper(model, inputs, training)(function, *dtype)
    return outputs, gradients


def _calls(model: torch.nn.Module, sizes: list[Any], training: bool, *dtype: torch.dtype) -> Calls:
    return [_call(model, model, inputs, training, *dtype) for inputs in sizes]


def _differs(found: Calls, expected: Calls) -> str:
    for n, (ours, theirs) in enumerate(zip(found, expected)):
        if difference := first_difference(ours, theirs):
            return f"call {n}: {difference}"
    return ""


def _told_compiling(model: torch.nn.Module, sizes: list[Any], training: bool) -> Calls:
    with mock.patch("torch.compiler.is_compiling", lambda: True):
        try:
            return _calls(_copied(model), sizes, training)
        except Exception:
            return []


def _in_float64(model: torch.nn.Module, sizes: list[Any], training: bool) -> Calls:
    try:
        with MendedKernels():
            return _calls(_copied(model).double(), sizes, training, torch.float64)
    except Exception:
        return []


def _far(model: torch.nn.Module, training: bool, inputs: Any, exact: Any, ours: Any, eager: Any) -> str:
    """``far_from``, eager's error of inputs and parameters that are a bit away counted too where its error alone is not
    enough: of two scores that are nearly equal either may come first.
    """
    if not (difference := far_from(exact, ours, eager)):
        return ""
    others = []
    for seed in range(DRAWS):
        generator, nudged = torch.Generator().manual_seed(seed), _copied(model)
        sizes = [_nudged(inputs, generator)]
        for parameter in nudged.parameters():
            parameter.data = _nudged(parameter.data, generator)
        others += zip(_in_float64(nudged, sizes, training), _calls(nudged, sizes, training))
    return far_from(exact, ours, eager, others) if others else difference


def _nudged(inputs: Any, generator: torch.Generator) -> Any:
    """Numbers of about a last bit more, less, or as they were."""
    if isinstance(inputs, dict):
        return {name: _nudged(value, generator) for name, value in inputs.items()}
    if not isinstance(inputs, torch.Tensor):
        return [_nudged(value, generator) for value in inputs]
    if not inputs.is_floating_point():
        return inputs
    steps = torch.randint(-1, 2, inputs.shape, generator=generator).to(inputs)
    return inputs * (1 + steps * torch.finfo(inputs.dtype).eps)


def facts(explained: Any) -> Row:
    """What the functions' records tell about entries, breaks and what ran eagerly."""
    from torchglass.inspector import show

    functions = list(explained.record.walk())
    more = [
        f"{function.name}: {show.guard_line(missed.guard)}, {show.reason(missed.guard)}: now {show.value(missed.new)}"
        for function in functions
        if len(function.entries) > ENOUGH
        for nearest in function.recompiles[1:]
        if (missed := max((nearest, *nearest.others), key=lambda one: one.entry or 0)).guard is not None
    ]
    reasons = [f"runs eagerly: {one.reason}" for function in functions for one in function.fallbacks]
    breaks = [f"{b.reason} at {show.place(b.origin)}" for b in explained.breaks()]
    facts: Row = {"result": "breaks" if breaks or reasons else "whole", "more": more[:MOST]}
    if breaks or reasons:
        facts["reason"] = "; ".join(dict.fromkeys([*reasons, *breaks]))[:900]
    return {**facts, "compiles": sum(len(function.entries) for function in functions)}


@contextmanager
def told() -> Iterator[list[str]]:
    """Why sizes became numbers, as the log says it."""
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "sizes as they are" in record.msg and (line := record.getMessage()[:400]) not in lines:
                lines.append(line)

    log, handler = logging.getLogger("torchglass"), Handler()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
