"""An edited graph file as a graph again: what a person wrote in captured.py or forward.py is what is compiled.

gm = retraced(module.forward, path, gm)      # the file's function in, a graph with the original's inputs out
gm = with_values(gm, path, original)         # and the value (a fake tensor) of every node, for an ATen graph
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from ..records.origin import Origin
from ..torch_compat import FakeTensor


class EditError(RuntimeError):
    """An edited graph file that cannot be compiled; the message says which and why."""


def retraced(forward: Callable[..., Any], path: Path, original: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph of an edited file's ``forward``. Raises EditError, with the line, for what it cannot trace."""
    tracer = torch.fx.Tracer()
    tracer.record_stack_traces = True
    try:
        graph = tracer.trace(forward)
    except Exception as error:
        raise EditError(f"the edited {path}{_line(error, path)}: {type(error).__name__}: {error}") from error
    ours = [node for node in graph.nodes if node.op == "placeholder"]
    theirs = [node for node in original.graph.nodes if node.op == "placeholder"]
    if len(ours) != len(theirs):
        raise EditError(f"the edited {path} takes {len(ours)} inputs, not {len(theirs)}")
    for mine, known in zip(ours, theirs):
        mine.meta = dict(known.meta)
    for node in graph.nodes:
        lines = re.findall(rf'File "{re.escape(str(path))}", line (\d+)', node.stack_trace or "")
        if lines:
            node.meta["origin"] = Origin(str(path), int(lines[-1]), "forward")
    return torch.fx.GraphModule(tracer.root, graph)


def with_values(gm: torch.fx.GraphModule, path: Path, original: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Gives every node its value, and holds the outputs to the original's dtypes and shapes (EditError)."""
    inputs = [node.meta.get("val") for node in gm.graph.nodes if node.op == "placeholder"]
    mode = next((value.fake_mode for value in inputs if isinstance(value, FakeTensor)), None)
    try:
        with torch.no_grad():
            FakeTensorProp(gm, mode).propagate_dont_convert_inputs(*inputs)
    except Exception as error:
        raise EditError(f"the edited {path}: {type(error).__name__}: {error}") from error
    wanted, found = _outputs(original), _outputs(gm)
    if len(wanted) != len(found):
        raise EditError(f"the edited {path} returns {len(found)} values, not {len(wanted)}")
    for n, (before, now) in enumerate(zip(wanted, found)):
        if before != now:
            raise EditError(f"the edited {path} returns {now} as value {n}, where {before} is needed")
    return gm


def _outputs(gm: torch.fx.GraphModule) -> list[Any]:
    (output,) = (node for node in gm.graph.nodes if node.op == "output")
    values = output.args[0] if isinstance(output.args[0], (tuple, list)) else (output.args[0],)
    return [_facts(value) for value in values]


def _facts(value: Any) -> Any:
    value = value.meta.get("val") if isinstance(value, torch.fx.Node) else value
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, torch.Tensor) else value


def told(error: BaseException) -> str:
    """An error for a message: its class and text; a SyntaxError with its whole path, where it says the last name."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"SyntaxError: {error.filename}, line {error.lineno}: {error.msg}"
    return f"{type(error).__name__}: {error}"


def _line(error: BaseException, path: Path) -> str:
    """``, line 12`` where the error was raised in the file."""
    line = line_in(error, path)
    return f", line {line}" if line else ""


def line_in(error: BaseException, path: Path | str) -> int | None:
    """The last line of a file that a traceback passed through; for a folder, of any file in it."""
    found = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            found = trace.tb_lineno
        trace = trace.tb_next
    return found
