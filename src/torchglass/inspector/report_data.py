"""What report.html shows, as JSON: a function's record in, plain lists and strings out.

Lines of the user's source are the hub: nodes, loops, kernels, guards, breaks and saved tensors carry the key of their
line (``0:12``, see sources.py), so that the page goes from a line to all of them and back.
"""

from __future__ import annotations

from typing import Any

from ..records.compilation import EntryRecord, FunctionRecord, GraphRecord, NodeRow, SideRecord
from ..records.kernels import FusedGraph, FusedKernel, Kernel
from ..records.launch import FILES
from ..records.loops import ExternCall
from ..records.partition import SavedTensor
from . import draw, show
from .kernel_facts import not_fused, replays, resources
from .resumed import continues, subfolder
from .segment_facts import segments
from .sources import Sources

SIDES = ("captured", "joint", "forward", "backward")
ANY_ENTRY = -1  # of marks that belong to a function rather than to one of its entries


def report_data(record: FunctionRecord) -> dict[str, Any]:
    """The record of a function, its resume functions included, for the page."""
    return _Data(record).all()


class _Data:
    def __init__(self, record: FunctionRecord) -> None:
        self.record = record
        self.sources = Sources()
        self.graphs: list[dict[str, Any]] = []
        self.marks: dict[str, dict[int, dict[str, dict[str, int]]]] = {}
        self.entry = ANY_ENTRY  # whose marks are being made: its number in its function

    def all(self) -> dict[str, Any]:
        self.sources.key(show.written_at(self.record))
        functions = [self._function(function) for function in self.record.walk()]
        return {
            "name": self.record.name,
            "place": show.place(show.written_at(self.record)),
            "functions": functions,
            "graphs": self.graphs,
            "files": self.sources.pieces(),
            "marks": self.marks,
        }

    def mark(self, key: str, fate: str, side: str = "") -> str:
        """Count what became of a line in the entry at hand, by the side of the graph where that means something."""
        if key:
            sides = self.marks.setdefault(key, {}).setdefault(self.entry, {}).setdefault(fate, {})
            sides[side] = sides.get(side, 0) + 1
        return key

    # --- functions and entries -------------------------------------------------------------------------------------
    def _function(self, function: FunctionRecord) -> dict[str, Any]:
        path = subfolder(self.record, function)
        self.entry = ANY_ENTRY
        return {
            "name": function.name,
            "path": path,
            "line": self.sources.key(function.origin),
            "source": function.source_text,
            "entries": [self._entry(function, entry, path) for entry in function.entries],
            "recompiles": [
                [show.guard_line(r.guard) if r.guard else "the call's shape", show.value(r.old), show.value(r.new),
                 self.sources.key(r.guard.origin) if r.guard else "", r.advice]
                for r in function.recompiles
            ],
            "fallbacks": [[f.reason, self.mark(self.sources.key(f.origin), "eager")] for f in function.fallbacks],
        }  # fmt: skip

    def _entry(self, function: FunctionRecord, entry: EntryRecord, path: str) -> dict[str, Any]:
        name = f"{function.name} entry {entry.index}"
        self.entry = entry.index
        graphs = []
        for graph in entry.graphs:
            graphs.append(len(self.graphs))
            shown = self._graph(graph, name, f"{path}entry_{entry.index}/{graph.name}/")
            self.graphs.append(shown | {"index": entry.index, "last": len(function.entries) - 1})
        return {
            "index": entry.index,
            "path": f"{path}entry_{entry.index}/",
            # torch.compile guards what it read on its way through libraries, too: no lines to show beside the user's
            "guards": [
                [show.guard_line(g), g.why, self.sources.key(g.origin, g.check != "printed")] for g in entry.guards
            ],
            "transformed": entry.transformed_text,
            "breaks": [[b.reason, self.mark(self.sources.key(b.origin), "break"), b.hint] for b in entry.breaks],
            "graphs": graphs,
            "goes_to": continues(function, entry),
            "events": [[e.stage, e.begin, e.seconds] for e in entry.timeline],
        }

    # --- graphs ----------------------------------------------------------------------------------------------------
    def _graph(self, graph: GraphRecord, entry: str, path: str) -> dict[str, Any]:
        recomputed = recomputed_names(graph)
        nodes = graph.nodes
        sides = {side: self._side(nodes[side], side, recomputed) for side in SIDES if side in nodes}
        return {
            "name": graph.name,
            "entry": entry,
            "path": path,
            "sides": sides,
            "programs": {side.name: self._program(side) for side in graph.sides if side.fused or side.kernels},
            "saved": [self._saved(s) for s in graph.saved],
            "recomputed": sorted(recomputed),
            "decisions": [[d.first, d.second, d.fused, d.rule, d.why, d.bytes_saved] for d in graph.decisions],
            "segments": [[*one.cells, one.begin, one.ready] for one in segments(graph)],
            "wrappers": {name: text for name, text in graph.files.items() if name.endswith("_wrapper.py")},
        }

    def _saved(self, saved: SavedTensor) -> list[Any]:
        key, is_input = self.sources.key(saved.origin), saved.place.kind == "input"
        if not is_input:
            self.mark(key, "saved")
        return [saved.name, show.describe(saved), saved.bytes, saved.reason, key, is_input]

    def _side(self, rows: tuple[NodeRow, ...], side: str, recomputed: set[str]) -> dict[str, Any]:
        boxes, width, height = draw.place(rows)
        index = {row.name: n for n, row in enumerate(rows)}
        nodes = []
        for row in rows:
            key = self.sources.key(row.origin)
            if row.op not in ("placeholder", "output"):
                if side == "captured":
                    self.mark(key, "graph")
                if side == "backward" and row.name in recomputed:
                    self.mark(key, "recomputed")
            x, y, wide = boxes[row.name]
            inputs = [index[name] for name in row.inputs]
            where = [round(x), round(y), round(wide)]
            nodes.append([row.name, row.op, row.statement, row.shape, inputs, key, row.line, *where])
        return {"nodes": nodes, "width": round(width), "height": round(height)}

    def _program(self, record: SideRecord) -> dict[str, Any]:
        side, kernels = record.name, record.kernels
        fused: FusedGraph | None = record.fused  # Inductor's loops are not recorded, its kernels are
        of_loop = {loop: n for n, kernel in enumerate(kernels) for loop in kernel.loops}
        loops = []
        for step in fused.steps if fused is not None else ():
            if isinstance(step, FusedKernel):
                for loop in step.loops:
                    keys = _unique(map(self.sources.key, loop.origins))
                    loops.append([loop.name, str(loop), keys, of_loop.get(loop.name, -1)])
            elif isinstance(step, ExternCall):
                keys = [self.mark(key, "aten", side) for key in _unique(map(self.sources.key, step.origins))]
                loops.append([step.name, str(step), keys, -1])
        rows, apart = [], not_fused(record)
        for k in kernels:
            keys = [self.mark(key, "kernel", side) for key in _unique(map(self.sources.key, k.origins))]
            file = FILES.get(k.language, "{}_kernels.py").format(side)
            if k.language.startswith("inductor"):
                file = f"inductor_{side}.py"
            facts = [_facts(record, k), [list(row) for row in apart[k.name].items()]]
            rows.append([k.name, k.language, k.source, list(dict.fromkeys(k.ops)), keys, k.calls, file, *facts])
        steps = [str(step) for step in memory_steps(fused)] if fused is not None else []
        peak = fused.peak_bytes if fused is not None else 0
        return {"loops": loops, "kernels": rows, "peak": peak, "steps": steps, "replays": replays(record)}


def _facts(side: SideRecord, kernel: Kernel) -> str:
    """What a kernel moves and takes, as far as that is known."""
    taken = resources(side, kernel.name)
    facts = [f"moves {show.size(kernel.bytes)}"] if kernel.bytes else []
    facts += [f"which takes the GPU's memory at least {kernel.floor:.1f} us"] if kernel.floor else []
    facts += [f"{taken.registers} registers a thread, {show.size(taken.spilled)} of it spilled"] if taken else []
    return ", ".join(facts)


def memory_steps(fused: FusedGraph) -> list[Any]:
    """The steps of the memory plan: what is allocated, in place of what, and freed."""
    return [step for step in fused.steps if not isinstance(step, (FusedKernel, ExternCall))]


def recomputed_names(graph: GraphRecord) -> set[str]:
    """Values that forward computes and backward computes again rather than read them from memory."""
    nodes = graph.nodes
    made = [{r.name for r in nodes.get(side, ()) if r.op not in ("placeholder", "output")} for side in SIDES[2:]]
    return made[0] & made[1]


def _unique(keys: Any) -> list[str]:
    return [key for key in dict.fromkeys(keys) if key]
