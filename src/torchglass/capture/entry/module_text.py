"""The entry's module as text: what is fetched, the graph's call and what becomes of its failure, then the body."""

from __future__ import annotations

from typing import Any

import torch

from ... import torch_compat
from ...records.literals import one_line
from ..graph.builder import GraphBuilder
from ..torch_api.deferred_asserts import Checks
from .emitter import Emitter


def entry_source(e: Emitter, input_count: int, has_graph: bool, title: str) -> str:
    """The module text of the entry, from what the emitter collected."""
    names = [e.parameter_names[p] for p in e.parameters]
    graph_call = [*_number_lines(e, names), *_flag_lines(e, True)]
    graph_call += _checked(e, names, _graph_call(e, names, input_count) if has_graph else [])
    lines = [f'"""{one_line(title)}"""', "", "import torch", "", "from torchglass.runtime import reconstruct", "", ""]
    comments = [f"# {name}: {one_line(_describe(real))}" for name, real in sorted(e.namespace.items())]
    if any(line.strip() == "with compiled_calls:" for line in e.body):
        comments.append("# compiled_calls: functions called inside are compiled as functions of their own")
    if comments:
        lines += [*comments, "", ""]
    lines.append(f"def transformed({', '.join([*names, 'fetched'])}):")
    for n, source in enumerate(e.fetch):
        mark = "graph input" if n < input_count else "read by this entry"
        lines.append(f"    # fetched[{n}] = {one_line(source.render())}  ({mark})")
    lines += [f"    {text}" for text in [*graph_call, *e.body]]
    return "\n".join(lines) + "\n"


def _number_lines(e: Emitter, names: list[str]) -> list[str]:
    """Compute with numbers before anything happens. Where that raises, or gives a number of another type than at
    capture, Python runs the call.
    """
    if not e.numbers:
        return []
    error = e.fresh("error")
    again = f"    return reconstruct.plainly({error}, {_call(e, names)})"
    return ["try:", *(f"    {text}" for text in e.numbers), f"except Exception as {error}:", again]


def _flag_lines(e: Emitter, flag: bool) -> list[str]:
    """Make inputs require grad that the program makes so before it uses them, or undo that."""
    return [f"{e.expr(value)}.requires_grad_({flag})" for value in e.m.state(GraphBuilder).flagged]


def _graph_call(e: Emitter, names: list[str], input_count: int) -> list[str]:
    """Run the graph. Where an operation fails on the data it gets, nothing has happened yet: Python runs it all again,
    and raises at the user's line, within the user's blocks. A graph that writes to an input can only be undone where
    that was copied.
    """
    arguments = "*fetched" if input_count == len(e.fetch) else f"*fetched[:{input_count}]" if input_count else ""
    arguments = ", ".join([*([arguments] if arguments else []), *e.number_inputs])
    results = [e.names[id(v)] for v in e.outputs]
    call = f"graph_0({arguments})"
    if results:
        call = f"{', '.join(results)}{',' if len(results) == 1 else ''} = {call}"
    sets_modes, random = _sets_modes(e), _random(e)
    error, modes, drawn = e.fresh("error"), e.fresh("modes"), e.fresh("drawn")
    failure = "reconstruct.Undone" if e.m.state(GraphBuilder).writes_inputs() else "Exception"
    lines = [f"{modes} = reconstruct.Modes()"] if sets_modes else []
    lines += [f"{drawn} = {random}"] if random else []
    lines += ["try:", f"    {call}", f"except {failure} as {error}:"]
    again = [f"    {drawn}.restore()"] if random else []
    again += [f"    {text}" for text in _flag_lines(e, False)]
    again.append(f"    return reconstruct.without_graph({error}, {_call(e, names)})")
    if not sets_modes:
        return [*lines, *again]
    restored = f"    {modes}.restore({error})"
    if failure == "Exception":
        return [*lines, restored, *again]
    return [*lines, restored, *again, f"except Exception as {error}:", restored, "    raise"]


def _checked(e: Emitter, names: list[str], graph_call: list[str]) -> list[str]:
    """Look at what the program checks when the graph has run; where that fails, Python runs the call from the start,
    with the modes and random numbers of then, and raises at the user's line.
    """
    checks = e.m.state(Checks).waiting
    if not checks:
        return graph_call
    fails = " or ".join(f"not {e.expr(c.tensor)}" if c.passing else e.expr(c.tensor) for c in checks)
    changed = [("modes", "reconstruct.Modes()" if _sets_modes(e) else ""), ("random", _random(e))]
    before = [(e.fresh(name), text) for name, text in changed if text]
    return [
        *(f"{name} = {text}" for name, text in before),
        *graph_call,
        f"if {fails}:",
        *(f"    {name}.restore()" for name, _ in before),
        *(f"    {text}" for text in _flag_lines(e, False)),
        f"    return reconstruct.plainly('a check failed', {_call(e, names)})",
    ]


def _sets_modes(e: Emitter) -> bool:
    return any(
        n.op == "call_function" and n.target in torch_compat.MODE_CHANGES for n in e.m.state(GraphBuilder).graph.nodes
    )


def _random(e: Emitter) -> str:
    """What keeps the generators' states that the graph moves on, as text; '' where it draws nothing."""
    if not e.m.state(GraphBuilder).fake_mode.draws:
        return ""
    own = [e.pin(held) for held in e.m.state(GraphBuilder).held.values() if isinstance(held, torch.Generator)]
    return f"reconstruct.Random({', '.join(own)})"


def _call(e: Emitter, names: list[str]) -> str:
    """The user's function and the arguments of the call, as text."""
    return f"{e.pin(e.m.function)}, ({', '.join(names)}{',' if len(names) == 1 else ''})"


def _describe(real: Any) -> str:
    text = getattr(real, "__qualname__", None) or getattr(real, "__name__", None) or type(real).__name__
    module = getattr(real, "__module__", None)
    return f"{module}.{text}" if module else str(text)
