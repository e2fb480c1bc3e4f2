"""What torch.compile made of a function, as the record that reports read: README, report.html and pictures are ours.

Input: a ``Function`` of layout.py with all that was written for it.  Output: a ``FunctionRecord``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from ...records.breaks import GraphBreak
from ...records.compilation import EntryRecord, Event, FunctionRecord, GraphRecord, NodeRow, Recompile, SideRecord
from ...records.guards import Guard
from ...records.kernels import Kernel
from ...records.origin import UNKNOWN, Origin
from ...records.partition import SavedTensor, TensorRef
from .guards import GuardLine
from .layout import Entry, Function
from .rows import rows_of_text
from .support import DTYPES

SIDES = ("captured", "joint", "forward", "backward")
_BREAK_PLACE = re.compile(r"user code at (.*):(\d+)$", re.M)
_BREAK_REASON = re.compile(r"Graph Break Reason: (.*)")
_HINT = re.compile(r"^\s*Hint: (.*)$", re.M)
_WHY_PLACE = re.compile(r"\((\S+):(\d+) in (\S+)\)$")
_EXPECTED = re.compile(r"expected (.*?)(?:, actual (.*))?$")
_KERNEL = re.compile(r"^(\w+) = async_compile\.(\w+)\(.*?('''|\"\"\")(.*?)\3", re.M | re.S)
_SOURCE_NODES = re.compile(r"# Topologically Sorted Source Nodes: \[([^\]]*)\]")


def function_record(function: Function) -> FunctionRecord:
    """The record of a function, its resume functions included."""
    code = function.code
    record = FunctionRecord(
        name=function.name,
        origin=Origin(code.co_filename, code.co_firstlineno, code.co_name),
        folder=function.folder,
        entries=[_entry(function, entry, index) for index, entry in enumerate(function.entries)],
        recompiles=[r for entry in function.entries for r in _recompiles(entry)],
        resumes=[function_record(resume) for resume in function.resumes],
        source=function.source,
    )
    for resume in record.resumes:
        resume.continued = record
    return record


def _entry(function: Function, entry: Entry, index: int) -> EntryRecord:
    graph = _graph(entry)
    files = {row.origin.file for rows in graph.nodes.values() for row in rows} | {function.code.co_filename}
    return EntryRecord(
        index=index,
        guards=tuple(_guard(line, files) for line in entry.guards or ()),
        transformed_text=entry.text,
        graphs=(graph,) if entry.files else (),
        breaks=tuple(_breaks(entry)),
        events=list(_events(entry)),
        resume_of=function.parent.name if function.parent is not None else None,
    )


def _guard(line: GuardLine, files: set[str]) -> Guard:
    place = _WHY_PLACE.search(line.why)
    origin = UNKNOWN
    if place is not None:
        file = next((f for f in files if f.endswith("/" + place[1])), place[1])
        origin = Origin(file, int(place[2]), place[3])
    return Guard(None, "printed", line.expression or line.printed, line.why[: place.start()] if place else "", origin)


def _breaks(entry: Entry) -> Iterator[GraphBreak]:
    for name, _, text in entry.events:
        if name == "dynamo_graph_break_reason":
            place, reason, hint = _BREAK_PLACE.search(text), _BREAK_REASON.search(text), _HINT.search(text)
            origin = Origin(place[1], int(place[2]), entry.old.co_name) if place else UNKNOWN
            lines = text.strip().splitlines() or [""]
            yield GraphBreak(reason[1] if reason else lines[0], origin, hint[1] if hint else "")


def _recompiles(entry: Entry) -> Iterator[Recompile]:
    for name, _, text in entry.events:
        for line in text.splitlines() if name == "recompile_reasons" else ():
            number, _, reason = line.partition(": ")
            values = _EXPECTED.search(reason)
            old, new = (values[1], values[2]) if values else (None, None)
            index = number.rpartition("/")[2]
            guard = Guard(None, "printed", reason.partition("  # ")[0] or line)
            yield Recompile(guard, old, new, int(index) if index.isdigit() else None)


def _events(entry: Entry) -> Iterator[Event]:
    """Capture, autograd and Inductor one after the other: torch.compile's metrics say how long, not when."""
    for name, details in entry.metrics:
        whole, backend, inductor = (
            float(details.get(f"{part}_compile_time_s") or 0.0) for part in ("entire_frame", "backend", "inductor")
        )
        begin = float(details.get("start_time") or 0.0)
        if name == "bwd_compilation_metrics":
            stages = [("inductor, backward", inductor)]
        else:
            stages = [("capture", whole - backend), ("autograd", backend - inductor), ("inductor", inductor)]
        for stage, amount in stages:
            if amount > 0:
                yield Event(stage, begin, amount)
                begin += amount


# --- graphs ----------------------------------------------------------------------------------------------------------
def _graph(entry: Entry) -> GraphRecord:
    texts = {side: entry.files.get(f"{side}.py", "") for side in SIDES}
    nodes = {side: rows_of_text(text) for side, text in texts.items()}
    lines = {row.name: row.origin for rows in nodes.values() for row in rows}
    kernels = {side: tuple(_kernels(entry.files.get(f"inductor_{side}.py", ""), lines)) for side in SIDES}
    return GraphRecord(
        name="graph_0",
        sides=[SideRecord(side, texts[side], nodes[side], kernels=kernels[side]) for side in SIDES],
        saved=tuple(_saved(nodes)),
        node_count=sum(row.op not in ("placeholder", "output") for row in nodes["captured"]),
    )


def _saved(nodes: dict[str, tuple[NodeRow, ...]]) -> Iterator[SavedTensor]:
    """What backward takes beside gradients and forward knows by the same name."""
    forward = {row.name: row for row in nodes.get("forward", ())}
    backward = nodes.get("backward", ())
    for row in backward:
        made = forward.get(row.name)
        kind, _, rest = row.shape.partition("[")
        dtype = next((d for d in DTYPES.values() if str(d) == f"torch.{kind}"), None)
        if row.op != "placeholder" or made is None or dtype is None:
            continue
        sizes = rest.rstrip("]").split(",") if rest.rstrip("]") else []
        shape = tuple(int(size) if size.strip().isdigit() else 1 for size in sizes)
        reader = next((other.statement for other in backward if row.name in other.inputs), "")
        place = TensorRef("input" if made.op == "placeholder" else "output", 0)
        reason = f"read by {reader[:80]}" if reader else "handed to backward"
        yield SavedTensor(row.name, shape, dtype, math.prod(shape) * dtype.itemsize, reason, place, made.origin)


def _kernels(text: str, lines: dict[str, Origin]) -> Iterator[Kernel]:
    """The kernels of Inductor's output code; their user lines where it says which nodes they stand for."""
    _, _, calling = text.rpartition("async_compile.wait")
    for match in _KERNEL.finditer(text):
        name = match[1]
        before = text[: match.start()].rstrip().splitlines()
        said = _SOURCE_NODES.search("\n".join(_comment_above(before)))
        origins = [lines[node.strip()] for node in said[1].split(",") if node.strip() in lines] if said else []
        ops = tuple(re.sub(r"^(cpp|triton)_(\w+?_)?fused_|_\d+$", "", name).split("_"))
        language = "c" if match[2].startswith("cpp") else "triton"
        calls = max(1, len(re.findall(rf"\b{re.escape(name)}(?:\.run)?\(", calling)))
        known = tuple(dict.fromkeys(o for o in origins if o != UNKNOWN))
        yield Kernel(name, f"inductor {language}", match[4].strip() + "\n", (), (), ops, known, calls)


def _comment_above(lines: list[str]) -> list[str]:
    found: list[str] = []
    while lines and lines[-1].startswith("#"):
        found.append(lines.pop())
    return found
