"""Folders read back: a path in, the functions in it out, with what their report.html holds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...runtime import files
from .. import show

REPORT = "report.html"


@dataclass(frozen=True)
class FunctionFolder:
    """The folder of one compiled function."""

    root: Path
    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(self.root).as_posix() if self.path != self.root else self.path.name

    @cached_property
    def data(self) -> dict[str, Any]:
        """What report.html shows; empty where there is none."""
        try:
            text = (self.path / REPORT).read_text(encoding="utf-8")
        except OSError:
            return {}
        found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
        return dict(json.loads(found[1])) if found else {}

    def entries(self) -> list[dict[str, Any]]:
        return [entry for function in self.data.get("functions", ()) for entry in function["entries"]]

    def counts(self) -> dict[str, Any]:
        """Figures of the function, its resume functions included."""
        graphs = self.data.get("graphs", ())
        programs = [program for graph in graphs for program in graph["programs"].values()]
        return {
            "entries": len(self.entries()),
            "guards": sum(len(entry["guards"]) for entry in self.entries()),
            "graphs": len(graphs),
            "operations": sum(len(graph["sides"].get("captured", {"nodes": ()})["nodes"]) for graph in graphs),
            "graph breaks": sum(len(entry["breaks"]) for entry in self.entries()),
            "recompiles": sum(len(function["recompiles"]) for function in self.data.get("functions", ())),
            "kernels": sum(len(program["kernels"]) for program in programs),
            "kernel calls": sum(kernel[5] for program in programs for kernel in program["kernels"]),
            "bytes saved for backward": sum(saved[2] for graph in graphs for saved in graph["saved"]),
            "peak bytes of temporaries": max((program["peak"] for program in programs), default=0),
            "seconds of compiling": round(sum(event[2] for entry in self.entries() for event in entry["events"]), 3),
        }

    def summary(self) -> str:
        if not self.data:
            return f"{self.name}: {self.path}"
        counts = self.counts()
        nouns = (("entries", "entry"), ("graphs", "graph"), ("graph breaks", "graph break"), ("kernels", "kernel"))
        parts = [show.count(counts[key], noun) for key, noun in nouns]
        seconds = show.seconds(counts["seconds of compiling"])
        return f"{self.name}: {', '.join(parts)}, compiled in {seconds}: {self.path / REPORT}"


def functions(root: Path | str) -> list[FunctionFolder]:
    """The functions in a folder of artifacts, or the one whose folder it is."""
    root = Path(root)
    return [FunctionFolder(root, path) for path in sorted(_folders(root))]


def _folders(root: Path) -> Iterator[Path]:
    if (root / "full_code.py").is_file():
        yield root
        return
    yield from (path.parent for path in files.below(root) if path.name == "full_code.py")
