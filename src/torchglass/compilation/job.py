"""What the sides of one graph have in common while it is compiled: folder, options, time line, shared results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import torch
import torch.fx

from .. import torch_compat
from ..options import CompileOptions
from ..process import fallbacks
from ..records.origin import UNKNOWN, Origin
from ..records.render_graph import Rendered, render
from ..records.sizes import Size
from ..records.target import Targets
from ..runtime import edit_errors, edits
from ..runtime.graph_calls import GraphCall
from ..runtime.store import Artifact, Folder, Role, load_python
from ..runtime.toolchain import NoCompiler, ToolchainError
from .graph_sharing import Shared, retitled
from .timing import Timeline, compiling

T = TypeVar("T")

_IF_NOT = 'under prepare_debug(dir, runs="{}"): breakpoints here are hit then, edits are always compiled.'
_WHAT_RUNS = {
    "captured": 'Calls run this file with backend="eager" and ' + _IF_NOT.format("captured"),
    "joint": "For reading: forward.py and backward.py are its parts, and what is compiled.",
    "cut": "For reading: its segments are what is compiled, each in a file of its own.",
    "forward": 'Calls run this file with backend="aot_eager" and ' + _IF_NOT.format("forward"),
    "backward": 'Calls run this file with backend="aot_eager" and ' + _IF_NOT.format("forward"),
}
"""What the top of a graph's file says about breakpoints in it."""


class PythonFile(NamedTuple):
    """A graph's file: its ``forward`` function as the file says it, and the graph, which an edit has changed."""

    forward: GraphCall
    text: str
    graph: torch.fx.GraphModule


@dataclass
class Job:
    """``shared`` is what graphs of the same content have in common, ``edited`` the files that a person changed, by the
    name of their side, ``origin`` the line of the first captured node that has one, ``elements`` what ``index_range``
    assumes.
    """

    options: CompileOptions
    folder: Folder
    shared: Shared
    timeline: Timeline
    targets: Targets
    origin: Origin = UNKNOWN
    elements: Size | None = None
    edited: dict[str, list[Artifact]] = field(default_factory=dict)

    @property
    def runs_kernels(self) -> bool:
        return self.folder.store.runs in ("kernels", "lines")

    def rendered(self, gm: torch.fx.GraphModule, name: str, title: str) -> Rendered:
        """The file of a graph, for all graphs of this content."""
        return render(gm, f"{title} of {self.shared.name}.\n\n{_WHAT_RUNS[name.partition('_')[0]]}")

    def own(self, rendered: Rendered) -> Rendered:
        """The text of an equal graph as this function's."""
        return retitled(rendered, self.shared.name, self.folder.function_name)

    def written(self, filename: str, text: str, side: str) -> Artifact:
        """A file that runs, or that what runs is made of."""
        artifact = self.folder.write(filename, text, _role(filename, self.folder.store.runs))
        if artifact.edited:
            self.edited.setdefault(side, []).append(artifact)
        return artifact

    def python_file(self, name: str, rendered: Rendered, gm: torch.fx.GraphModule, compiled: bool) -> PythonFile:
        """The file of a graph, and the graph again, which an edit has changed if it is ``compiled``. An edit that fails
        is not used.
        """
        artifact = self.written(f"{name}.py", rendered.text, name)
        if artifact.edited and compiled:
            try:
                forward = load_python(artifact, after=rendered.objects).forward
                changed = alone(edits.retraced, forward, artifact.path, gm)
                if name != "captured":
                    changed = edits.with_values(changed, artifact.path, gm)
                return PythonFile(forward, artifact.text, changed)
            except Exception as error:
                artifact = artifact.as_generated(error)
        return PythonFile(load_python(artifact, after=rendered.objects).forward, artifact.text, gm)

    def say_aten_runs(self, gm: torch.fx.GraphModule, error: BaseException) -> str:
        """Why PyTorch's operators run a graph, said once for each; of a compiler that is not there, once."""
        why = str(error) if isinstance(error, ToolchainError) else edit_errors.told(error)
        key = str(error) if isinstance(error, NoCompiler) else (self.folder.path, type(error))
        origin = self.origin or first_origin(gm)
        fallbacks.say(f"torchglass runs a graph with ATen: {why}", origin, f"in {self.folder.path}", key)
        return why


def _role(filename: str, runs: str) -> Role:
    """Whether a call comes by this file, itself or what is compiled of it."""
    name = filename.partition(".")[0]
    of_graph = not name.endswith(("_kernels", "_wrapper"))
    used = runs in ("kernels", "lines") or name == "captured" or (of_graph and runs == "forward")
    return "runs" if used else "unused"


def first_origin(gm: torch.fx.GraphModule) -> Origin:
    """The user's line of the first node that has one."""
    return next(filter(None, (node.meta.get("origin", UNKNOWN) for node in gm.graph.nodes)), UNKNOWN)


def alone(trace: Callable[..., T], *args: Any) -> T:
    """``trace(*args)``, which runs a graph, and so what it does to grad mode, autocast and the process."""

    def traced() -> T:
        with torch_compat.modes_kept():
            return trace(*args)

    return compiling.alone(traced)
