"""``tg.explain``: a function's record in, a report out, for people (``print``) and programs (``to_dict``).

explanation = tg.explain(model)
print(explanation)                        # text through rich
explanation.to_dict()["entries"][0]["guards"][0]["check"]
tg.explain(model)(x)                      # call the model first, then report; the outcome is in .result
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from ..records.compilation import EntryRecord, Fallback, FunctionRecord, GraphRecord, Recompile, SideRecord
from ..records.kernels import Allocate, FusedGraph, Kernel
from . import show
from .kernel_facts import calls_beside, not_fused, printed_as, replays, resources, steps
from .report_data import SIDES, recomputed_names
from .segment_facts import COLUMNS, segments


@dataclass(repr=False)
class Explanation:
    """What happened to one function so far. It reads the live record: later entries appear when printed
    again.
    """

    record: FunctionRecord
    function: Callable[..., Any] | None = None
    result: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Explanation:
        """Call the compiled function with these arguments, keep what it returns in ``result``, and report."""
        if self.function is None:
            raise TypeError("this explanation was made from a record and has no function to call")
        self.result = self.function(*args, **kwargs)
        return self

    @property
    def entries(self) -> list[EntryRecord]:
        """The entries of the function itself, without its resume functions."""
        return self.record.entries

    def graphs(self) -> list[GraphRecord]:
        """All graphs, those of resume functions included."""
        return [graph for entry in self.all_entries() for graph in entry.graphs]

    def all_entries(self) -> Iterator[EntryRecord]:
        """The entries of the function and of its resume functions."""
        for record in self.record.walk():
            yield from record.entries

    def breaks(self) -> list[Any]:
        """All graph breaks (``reason``, ``origin``, ``hint``)."""
        return [b for entry in self.all_entries() for b in entry.breaks]

    def kernels(self) -> list[Any]:
        """All generated kernels."""
        return [kernel for graph in self.graphs() for kernel in graph.kernels]

    def seconds_by_stage(self) -> dict[str, float]:
        """Seconds of compiling by stage, over all entries, in the order in which stages first ran."""
        total: dict[str, float] = {}
        for entry in self.all_entries():
            for stage, seconds in entry.seconds_by_stage.items():
                total[stage] = total.get(stage, 0.0) + seconds
        return total

    def to_dict(self) -> dict[str, Any]:
        """The report as plain dicts, lists, strings and numbers, ready for JSON."""
        return {**_function(self.record), "seconds_by_stage": self.seconds_by_stage()}

    def to_html(self) -> str:
        """report.html: a page that needs nothing else, for a browser."""
        from .report import report

        return report(self.record)

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=110, color_system=None)
        console.print(self)
        return console.file.getvalue()  # type: ignore[attr-defined]

    __repr__ = __str__  # what a prompt shows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for record in self.record.walk():
            yield from _render(record)
        if stages := self.seconds_by_stage():
            parts = (f"{stage} {show.seconds(amount)}" for stage, amount in stages.items())
            yield Text(f"compiling took {show.seconds(sum(stages.values()))}: {', '.join(parts)}")
        if self.record.folder is not None:
            yield Text(f"files: {self.record.folder}", no_wrap=True, overflow="ignore")


def _render(record: FunctionRecord) -> Iterator[RenderableType]:
    where = show.place(show.written_at(record))
    summary = ", ".join(
        (
            show.count(len(record.entries), "entry"),
            show.count(sum(len(e.graphs) for e in record.entries), "graph"),
            show.count(sum(len(e.breaks) for e in record.entries), "graph break"),
        )
    )
    yield Text.assemble((record.name, "bold"), f" ({where})" if where else "", f": {summary}")
    for entry in record.entries:
        yield from _render_entry(entry)
    if record.recompiles:
        rows = [row for recompile in record.recompiles for row in _recompile_rows(recompile)]
        titles = ("entry", "guard that failed", "before", "now", "and so")
        yield _table("Recompiles", titles if any(row[-1] for row in rows) else titles[:-1], rows)
    for fallback in record.fallbacks:
        yield Text(f"runs eagerly: {fallback.reason} {_at(fallback.origin)}".rstrip(), style="red")
    yield Text("")


def _render_entry(entry: EntryRecord) -> Iterator[RenderableType]:
    yield Text(f"entry {entry.index}", style="bold cyan")
    if entry.guards:
        rows = ((show.guard_line(g), show.reason(g)) for g in entry.guards)
        yield _table(f"Guards ({len(entry.guards)})", ("runs if", "because"), rows)
    if entry.transformed_text:
        yield Syntax(entry.transformed_text.rstrip("\n"), "python", background_color="default", word_wrap=True)
    for graph in entry.graphs:
        yield from _render_graph(graph)
    for graph_break in entry.breaks:
        hint = f"; {graph_break.hint}" if graph_break.hint else ""
        yield Text(f"graph break: {graph_break.reason} {_at(graph_break.origin)}{hint}", style="yellow")
    if said := str(entry.keeping):
        yield Text(said)


def _render_graph(graph: GraphRecord) -> Iterator[RenderableType]:
    counts = [show.count(graph.node_count, "operation"), show.count(len(graph.kernels), "kernel")]
    if graph.saved:
        saved = sum(getattr(t, "bytes", 0) for t in graph.saved)
        counts.append(f"{show.count(len(graph.saved), 'tensor')} ({show.size(saved)}) saved for backward")
    yield Text(f"{graph.name}: {', '.join(counts)}")
    for sizes, alone in graph.specialized:
        yield Text(f"many calls have {sizes}: these run {show.count(len(alone.kernels), 'kernel')} of their own")
    for side, reason in graph.fallbacks.items():
        yield Text(f"{side} runs with ATen, without kernels of its own: {reason}", style="red")
    if kernels := [_kernel_cells(side, kernel) for side in graph.sides for kernel in side.kernels]:
        shown = [title for title in KERNEL_COLUMNS if title not in OF_GPUS or any(row[title] for row in kernels)]
        yield _table("Kernels", tuple(shown), ([row[title] for title in shown] for row in kernels))
    if apart := [row for side in graph.sides for row in _apart_rows(side)]:
        yield _table("Kept apart", ("loops", "in kernels", "rule", "why"), apart)
    if cut := segments(graph):
        titles = COLUMNS if any(one.ready for one in cut) else COLUMNS[:2]
        yield _table("Segments of the backward", titles, (one.cells for one in cut))
    if graph.saved:
        rows = ((s.name, show.size(s.bytes), s.reason, show.place(s.origin)) for s in graph.saved)
        yield _table("Saved for backward", ("tensor", "size", "because", "your line"), rows)
    if again := recomputed_names(graph):
        yield Text(f"computed again in backward: {', '.join(sorted(again))}")
    for record in graph.sides:
        if told := replays(record):
            yield Text(f"{record.name}: {told}")
    for side, fused in graph.fused.items():
        reused = sum(isinstance(step, Allocate) and step.reuse is not None for step in fused.steps)
        yield Text(f"memory of {side}: at most {show.size(fused.peak_bytes)} of temporaries, {reused} in reused memory")


KERNEL_COLUMNS = ("kernel", "moves", "at least", "registers", "spills", "operations", "your lines")
OF_GPUS = frozenset({"at least", "registers", "spills"})
"""Columns that are left out where no kernel has a cell in them."""


def _kernel_cells(side: SideRecord, kernel: Kernel) -> dict[str, str]:
    """By column. ``at least``: the time that the bytes take the GPU's memory."""
    calls = f" (called {kernel.calls} times)" if kernel.calls > 1 else ""
    lines = dict.fromkeys(show.place(origin) for origin in kernel.origins)
    operations = dict.fromkeys(op.removeprefix("aten.") for op in kernel.ops)
    tried = f" ({kernel.tried[0]}, best of {len(kernel.tried)})" if kernel.tried else ""
    taken = resources(side, kernel.name)
    cells = (
        f"{side.name} {kernel.name}{calls}{tried}".strip(),
        show.size(kernel.bytes) if kernel.bytes else "",
        f"{kernel.floor:.1f} us" if kernel.floor else "",
        str(taken.registers) if taken else "",
        show.size(taken.spilled) if taken else "",
        ", ".join(operations),
        ", ".join(filter(None, lines)),
    )
    return dict(zip(KERNEL_COLUMNS, cells, strict=True))


def _apart_rows(side: SideRecord) -> Iterator[tuple[str, str, str, str]]:
    """Loops that did not become one kernel, and the kernels that they are in; then calls, and kernels beside them."""
    fused: FusedGraph | None = side.fused
    if fused is None:
        return
    printed, step = printed_as(side), steps(fused)
    for d in fused.decisions:
        if not d.fused and (d.first not in step or step[d.first] != step.get(d.second)):  # another loop may have led on
            kernels = " + ".join(filter(None, (printed.get(d.first), printed.get(d.second))))
            yield f"{d.first} + {d.second}", f"{side.name} {kernels}" if kernels else "", d.rule, d.why
    for kernel, calls in calls_beside(side).items():
        for name, why in calls.items():
            yield name, f"{side.name} {kernel}", "call", why


def _table(title: str, columns: tuple[str, ...], rows: Any) -> Table:
    table = Table(title=title, title_justify="left", show_lines=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row[: len(columns)]))
    return table


OTHERS = 2
"""Entries shown beside the one that came nearest; ``to_dict`` has all."""


def _recompile_rows(recompile: Recompile) -> Iterator[tuple[str, ...]]:
    """Why the call fitted no entry, the nearest first."""
    for one in (recompile, *recompile.others[:OTHERS]):
        name = "" if one.entry is None else str(one.entry)
        yield (name if one is recompile else f"  nor {name}", *_recompile_cells(one), one.advice)


def _recompile_cells(recompile: Recompile) -> tuple[str, str, str]:
    guard = show.guard_line(recompile.guard) if recompile.guard else "(the call's shape)"
    return guard, show.value(recompile.old), show.value(recompile.new)


def _at(origin: Any) -> str:
    return f"at {show.place(origin)}" if show.place(origin) else ""


def _function(record: FunctionRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "origin": str(record.origin),
        "folder": str(record.folder) if record.folder is not None else None,
        "entries": [_entry(entry) for entry in record.entries],
        "recompiles": [
            {**_recompile(r), "others": [_recompile(other) for other in r.others]} for r in record.recompiles
        ],
        "fallbacks": [_fallback(f) for f in record.fallbacks],
        "resumes": [_function(resume) for resume in record.resumes],
        "called": [_function(called) for called in record.called],
    }


def _recompile(recompile: Recompile) -> dict[str, Any]:
    cells = dict(zip(("guard", "old", "new"), _recompile_cells(recompile)))
    return {**cells, "entry": recompile.entry, "advice": recompile.advice}


def _entry(entry: EntryRecord) -> dict[str, Any]:
    return {
        "index": entry.index,
        "guards": [
            {"check": show.guard_line(g), "kind": g.check, "why": g.why, "origin": str(g.origin)} for g in entry.guards
        ],
        "transformed": entry.transformed_text,
        "graphs": [_graph(graph) for graph in entry.graphs],
        "breaks": [{"reason": b.reason, "origin": str(b.origin), "hint": b.hint} for b in entry.breaks],
        "seconds_by_stage": entry.seconds_by_stage,
        "resume_of": entry.resume_of,
        "kept_in": str(entry.keeping.path) if entry.keeping.path else None,
        "found": entry.keeping.found,
        "not_kept": entry.keeping.why_not,
    }


def _graph(graph: GraphRecord) -> dict[str, Any]:
    texts = graph.files
    return {
        "name": graph.name,
        "operations": graph.node_count,
        **{side: texts.get(f"{side}.py", "") for side in SIDES},
        "kernels": [row for side in graph.sides for row in _kernels(side)],
        "decisions": [
            {"first": d.first, "second": d.second, "fused": d.fused, "rule": d.rule, "why": d.why,
             "bytes_saved": d.bytes_saved}
            for d in graph.decisions
        ],
        "recomputed": sorted(recomputed_names(graph)),
        "memory": {side: {"peak_bytes": fused.peak_bytes} for side, fused in graph.fused.items()},
        "saved": [{"name": s.name, "bytes": s.bytes, "reason": s.reason, "origin": str(s.origin)} for s in graph.saved],
        "seconds_by_stage": graph.seconds_by_stage,
        "fallbacks": graph.fallbacks,
        "segments": [one.to_dict() for one in segments(graph)],
        "replays": {side.name: told for side in graph.sides if (told := replays(side))},
        "specialized": {sizes: _graph(alone) for sizes, alone in graph.specialized},
    }  # fmt: skip


def _kernels(side: SideRecord) -> Iterator[dict[str, Any]]:
    apart = not_fused(side)
    for kernel in side.kernels:
        of_gpus = {"floor": kernel.floor, "registers": None, "spilled": None} if kernel.language == "triton" else {}
        taken = resources(side, kernel.name)
        yield (
            _kernel(side.name, kernel)
            | of_gpus
            | (taken._asdict() if taken else {})
            | {"not_fused": [{"with": other, "why": why} for other, why in apart[kernel.name].items()]}
        )


def _kernel(side: str, kernel: Kernel) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "side": side,
        "language": kernel.language,
        "operations": list(kernel.ops),
        "loops": list(kernel.loops),
        "lines": [str(origin) for origin in kernel.origins],
        "calls": kernel.calls,
        "bytes": kernel.bytes,
        "tried": [str(trial) for trial in kernel.tried],
    }


def _fallback(fallback: Fallback) -> dict[str, str]:
    return {"reason": fallback.reason, "origin": str(fallback.origin), "stage": fallback.stage}
