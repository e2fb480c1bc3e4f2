"""The flow chart of a function: its record in, an SVG out. Entries, guards, graphs, breaks, resume functions.

    toy_example
      └ entry 0: 4 guards ── graph_0 ── break at line 5 ─┐
    resume_at_6                     resume_at_7  ◄───────┘
      └ entry 0 ── graph_0            └ entry 0 ── graph_0

A function is a block, its entries are the rows, and arrows lead from breaks to the functions that go on; chart.py says
where all of it stands. Boxes carry ``data-go`` attributes, which the report page follows on a click.
"""

from __future__ import annotations

from html import escape

from ..records.compilation import EntryRecord, FunctionRecord
from . import show
from .chart import ADVANCE, LINE, PAD, Arrow, Block, Box, Chart, Exit, Placed, Point, lay_out, wrapped
from .resumed import continues

_KINDS = {
    "function": ("#dbe7ff", "function"), "guards": ("#fff3c9", "entry: a variant with its guards"),
    "graph": ("#dff3df", "graph"), "break": ("#ffd9d2", "graph break"), "eager": ("#e4e4e4", "runs eagerly"),
}  # fmt: skip
_ARROWS = {"next": "#777", "on": "#777", "back": "#b3541e", "call": "#777"}
_HEAD, _SUB = 'font-weight="bold"', 'fill="#555"'
_NAME, _REASON = 44, 36  # characters of a line


def flow(record: FunctionRecord) -> str:
    """The chart as a stand-alone SVG document."""
    functions = list(record.walk())
    numbers = {id(function): n for n, function in enumerate(functions)}
    graphs = 0
    blocks = []
    for number, function in enumerate(functions):
        rows, exits = [], []
        for n, entry in enumerate(function.entries):
            rows.append(_row(entry, number, graphs))
            graphs += len(entry.graphs)
            exits += [Exit(n, numbers[target], calls) for target, calls in _targets(function, entry)]
        for fallback in function.fallbacks:
            reason = wrapped(fallback.reason, _REASON, 3)
            rows.append([Box(("runs eagerly", *reason), "eager", "tab:breaks", fallback.reason)])
        where = show.place(show.written_at(function))
        entries = show.count(len(function.entries), "entry") if rows else "not reached yet"
        summary = f"{entries}, {where}" if where and not number else entries
        head = Box((_short(function.name), _short(summary)), "function", f"function:{number}", function.name)
        blocks.append(Block(head, rows, exits))
    return _svg(blocks)


def _targets(function: FunctionRecord, entry: EntryRecord) -> list[tuple[int, bool]]:
    """Where an entry leads: the ids of functions, and whether they come back."""
    resumes = {resume.name: id(resume) for resume in function.goes_on_in()}
    targets = [(resumes[name], False) for name in continues(function, entry)]
    if "with compiled_calls:" in entry.transformed_text:
        targets += [(id(called), True) for called in function.called]
    return targets


def _row(entry: EntryRecord, number: int, graphs: int) -> list[Box]:
    """The boxes of one entry, from its guards to its breaks; ``graphs`` were drawn before."""
    guards = show.count(len(entry.guards), "guard")
    row = [Box((f"entry {entry.index}", f"if {guards} hold"), "guards", f"entry:{number}:{entry.index}", guards)]
    for n, graph in enumerate(entry.graphs):
        kernels = f", {show.count(len(graph.kernels), 'kernel')}" if graph.kernels else ""
        lines = (graph.name, f"{show.count(graph.node_count, 'node')}{kernels}")
        row.append(Box(lines, "graph", f"graph:{graphs + n}", ": ".join(lines)))
    for graph_break in entry.breaks:
        title = " at ".join(filter(None, ("break", show.place(graph_break.origin))))
        reason = wrapped(graph_break.reason, _REASON, 3)
        row.append(Box((_short(title), *reason), "break", "tab:breaks", f"{title}: {graph_break.reason}"))
    return row


def _short(text: str) -> str:
    return wrapped(text, _NAME, 1)[0] if len(text.split()) > 1 or len(text) <= _NAME else text[: _NAME - 1] + "…"


# --- drawing ----------------------------------------------------------------------------------------------------------
def _svg(blocks: list[Block]) -> str:
    chart = lay_out(blocks)
    legend, legend_width = _legend(chart)
    width, height = max(chart.width, legend_width), chart.height + 2 * LINE
    markers = [
        f'<marker id="to{color[1:]}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{color}"/></marker>'
        for color in dict.fromkeys(_ARROWS.values())
    ]
    return "\n".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="12">',
        f'<defs>{"".join(markers)}</defs>', '<rect width="100%" height="100%" fill="white"/>',
        *map(_arrow, chart.arrows), *map(_box, chart.places), legend, "</svg>",
    )) + "\n"  # fmt: skip


def _box(place: Placed) -> str:
    box = place.box
    texts = (
        f'<text x="{place.x + PAD:.1f}" y="{place.y + PAD / 2 + LINE * n + 12:.1f}" '
        f"{_SUB if n else _HEAD}>{escape(line)}</text>"
        for n, line in enumerate(box.lines)
    )
    return (
        f'<g class="go" data-go="{escape(box.go, quote=True)}"><title>{escape(box.tip)}</title>'
        f'<rect x="{place.x:.1f}" y="{place.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="6" '
        f'fill="{_KINDS[box.kind][0]}" stroke="#555"/>{"".join(texts)}</g>'
    )


def _arrow(arrow: Arrow) -> str:
    marker = f'marker-end="url(#to{_ARROWS[arrow.kind][1:]})"'
    return f'<path d="{_rounded(arrow.points)}" fill="none" {_stroke(arrow.kind)} {marker}/>'


def _rounded(points: tuple[Point, ...], radius: float = 5) -> str:
    """The polyline with its corners rounded."""
    parts = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for before, corner, after in zip(points, points[1:], points[2:]):
        (x1, y1), (x2, y2) = _towards(corner, before, radius), _towards(corner, after, radius)
        parts.append(f"L{x1:.1f} {y1:.1f}Q{corner[0]:.1f} {corner[1]:.1f} {x2:.1f} {y2:.1f}")
    return "".join((*parts, f"L{points[-1][0]:.1f} {points[-1][1]:.1f}"))


def _towards(corner: Point, other: Point, radius: float) -> Point:
    dx, dy = other[0] - corner[0], other[1] - corner[1]
    length = abs(dx) + abs(dy)
    part = min(radius, length / 2) / length if length else 0
    return corner[0] + dx * part, corner[1] + dy * part


def _legend(chart: Chart) -> tuple[str, float]:
    """What the colors and lines in it mean, below the chart; and where it ends."""
    boxes, arrows = {place.box.kind for place in chart.places}, {arrow.kind for arrow in chart.arrows}
    parts, x, y = [], 20.0, chart.height
    for kind, (color, meaning) in _KINDS.items():
        if kind in boxes:
            parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="14" height="12" rx="3" fill="{color}" stroke="#555"/>')
            parts.append(f'<text x="{x + 20:.1f}" y="{y + 11:.1f}" {_SUB}>{meaning}</text>')
            x += 20 + (len(meaning) + 3) * ADVANCE
    for kind, meaning in (("back", "back, in a loop"), ("call", "calls")):
        if kind in arrows:
            parts.append(f'<path d="M{x:.1f} {y + 7:.1f}h24" {_stroke(kind)}/>')
            parts.append(f'<text x="{x + 30:.1f}" y="{y + 11:.1f}" {_SUB}>{meaning}</text>')
            x += 30 + (len(meaning) + 3) * ADVANCE
    return "".join(parts), x


def _stroke(kind: str) -> str:
    return f'stroke="{_ARROWS[kind]}"' + ' stroke-dasharray="5 3"' * (kind == "call")
