"""The flow chart of a function: its record in, an SVG out. Entries, guards, graphs, breaks, resume functions.

    toy_example ── entry 0: 4 guards ── graph_0 ── break at line 5 ──► resume_at_6 ── entry 0 ...

A function is a column; what a call passes through stands below it from top to bottom, and arrows lead from breaks to
the functions that go on. Boxes carry ``data-go`` attributes, which the report page follows on a click.
"""

from __future__ import annotations

from html import escape

from ..records.compilation import EntryRecord, FunctionRecord
from . import show
from .report_data import continues

_WIDTH, _GAP, _ROW = 230, 80, 46
_COLORS = {
    "function": "#dbe7ff", "guards": "#fff3c9", "graph": "#dff3df", "break": "#ffd9d2", "eager": "#e4e4e4",
}  # fmt: skip


class _Chart:
    def __init__(self) -> None:
        self.parts: list[str] = []
        self.arrows: list[str] = []
        self.bottom: dict[int, int] = {}  # column -> the next free y
        self.graphs = 0

    def box(self, column: int, kind: str, lines: tuple[str, str], go: str) -> tuple[int, int]:
        """A box at the end of its column; returns its left and top."""
        x, y = 20 + column * (_WIDTH + _GAP), self.bottom.get(column, 20)
        self.bottom[column] = y + _ROW + 14
        head, sub = (escape(text if len(text) <= 34 else text[:33] + "…") for text in lines)
        self.parts.append(
            f'<g class="go" data-go="{escape(go, quote=True)}"><title>{escape(": ".join(lines))}</title>'
            f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_ROW}" rx="6" fill="{_COLORS[kind]}" stroke="#555"/>'
            f'<text x="{x + 8}" y="{y + 18}" font-weight="bold">{head}</text>'
            f'<text x="{x + 8}" y="{y + 36}" fill="#555">{sub}</text></g>'
        )
        return x, y

    def down(self, above: tuple[int, int], below: tuple[int, int]) -> None:
        x = above[0] + _WIDTH // 2
        self.arrow(f"M{x} {above[1] + _ROW}L{x} {below[1]}")

    def across(self, source: tuple[int, int], target: tuple[int, int]) -> None:
        x1, y1, x2, y2 = source[0] + _WIDTH, source[1] + _ROW // 2, target[0], target[1] + _ROW // 2
        if x2 <= source[0]:  # back to a function further left: a loop
            x2 += _WIDTH
        self.arrow(f"M{x1} {y1}C{x1 + _GAP // 2} {y1} {x2 - _GAP // 2} {y2} {x2} {y2}")

    def arrow(self, path: str) -> None:
        self.arrows.append(f'<path d="{path}" fill="none" stroke="#777" marker-end="url(#to)"/>')

    def text(self) -> str:
        width = 20 + (max(self.bottom, default=0) + 1) * (_WIDTH + _GAP)
        height = max(self.bottom.values(), default=0) + 20
        return "\n".join((
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            'font-family="sans-serif" font-size="12">',
            '<defs><marker id="to" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            '<path d="M0 0L8 4L0 8z" fill="#777"/></marker></defs>',
            '<rect width="100%" height="100%" fill="white"/>', *self.arrows, *self.parts, "</svg>",
        )) + "\n"  # fmt: skip


def flow(record: FunctionRecord) -> str:
    """The chart as a stand-alone SVG document."""
    chart = _Chart()
    depths = _depths(record)
    heads: dict[int, tuple[int, int]] = {}
    jumps: list[tuple[tuple[int, int], int]] = []
    for number, function in enumerate(record.walk()):
        where = show.place(function.origin)
        summary = f"{show.count(len(function.entries), 'entry')}{f', {where}' if where and not number else ''}"
        head = chart.box(depths[id(function)], "function", (function.name, summary), f"function:{number}")
        heads[id(function)] = head
        for entry in function.entries:
            jumps += _entry(chart, function, entry, depths[id(function)], head, number)
        for fallback in function.fallbacks:
            below = chart.box(depths[id(function)], "eager", ("runs eagerly", fallback.reason), "tab:breaks")
            chart.down(head, below)
        chart.bottom[depths[id(function)]] += 20
    for source, target in jumps:
        chart.across(source, heads[target])
    return chart.text()


def _depths(record: FunctionRecord) -> dict[int, int]:
    """The column of each function: one to the right of the first that goes on in it or calls it."""
    depths = {id(record): 0}
    for function in record.walk():
        depth = depths.setdefault(id(function), 1)
        depths |= {id(called): depth + 1 for called in function.called}
        for entry in function.entries:
            names = continues(function, entry)
            for resume in function.goes_on_in():
                if resume.name in names:
                    depths.setdefault(id(resume), depth + 1)
    return depths


def _entry(
    chart: _Chart, function: FunctionRecord, entry: EntryRecord, column: int, head: tuple[int, int], number: int
) -> list[tuple[tuple[int, int], int]]:
    """The boxes of one entry, from its guards to its breaks; the arrows to draw once all boxes stand."""
    guards = (f"entry {entry.index}", f"if {show.count(len(entry.guards), 'guard')} hold")
    last = chart.box(column, "guards", guards, f"entry:{number}:{entry.index}")
    chart.down(head, last)
    for graph in entry.graphs:
        kernels = f", {show.count(len(graph.kernels), 'kernel')}" if graph.kernels else ""
        text = (graph.name, f"{show.count(graph.node_count, 'node')}{kernels}")
        below = chart.box(column, "graph", text, f"graph:{chart.graphs}")
        chart.graphs += 1
        chart.down(last, below)
        last = below
    for graph_break in entry.breaks:
        title = " at ".join(filter(None, ("break", show.place(graph_break.origin))))
        below = chart.box(column, "break", (title, graph_break.reason), "tab:breaks")
        chart.down(last, below)
        last = below
    targets = {resume.name: resume for resume in function.goes_on_in()}
    arrows = [(last, id(targets[name])) for name in continues(function, entry)]
    if "with compiled_calls:" in entry.transformed_text:
        arrows += [(last, id(called)) for called in function.called]
    return arrows
