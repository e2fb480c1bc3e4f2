"""The Python wrapper of a graph: allocates, calls kernels and ATen in order, frees early. It is the file that runs.

::

    def call(args):
        x, w, b = args
        args.clear()
        addmm = empty((512, 64), (64, 1), float32)
        torch.addmm(b, x, reinterpret(w, (64, 64), (1, 64), 0), out=addmm)
        gelu = empty(...)
        kernel_0(addmm, gelu)                                   # aten.gelu   model.py:12
        return (gelu,)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from ..records import own_operators
from ..records.extern_targets import ATTENTION, JOIN
from ..records.kernels import Allocate, Free, FusedGraph, FusedKernel
from ..records.literals import one_line
from ..records.loops import Buffer, ExternCall, LoopGraph, Value, View, collect_buffers
from ..records.origin import UNKNOWN
from ..torch_compat import OpOverload
from .c import Call, Together, has_bounds

PACKED = "packed_"  # targets of products with frozen weights; each call holds one
DIRECT = {
    **{f"torch.ops.aten.{name}.out": f"torch.{name}" for name in ("mm", "addmm", "bmm", "baddbmm")},
    "torch.ops.aten.convolution.default": "torch.convolution",
}
"""Operators to the functions of ``torch`` that are the same and called in less time: a product in half of it."""

MOST_NUMBERS = 1000  # of a constant in a wrapper's text

HEADER = '''"""{title}

Inputs: {inputs}
Runs alone: python {file} makes inputs of the right shapes and prints the shapes of the results.
"""

import math
import operator
from pathlib import Path

import torch
from torch import device, inf, nan
from torchglass.runtime.load import demo, empty, ensure_layout, example_constant, index_error, kernels, reinterpret

'''


class WrapperPrinter:
    """Prints one graph. ``calls[kernel.name]`` says how each fused kernel is called, ``groups`` which with others."""

    def __init__(
        self, fused: FusedGraph, calls: dict[str, Call], kernels_file: str, groups: Sequence[Together] = ()
    ) -> None:
        self.fused, self.calls, self.kernels_file = fused, calls, kernels_file
        self.groups = {name: group for group in groups for name in group.kernels}
        self.graph = fused.graph
        self.targets: dict[str, str] = {}
        self.packed: dict[str, str] = {}
        self.returned: set[str] = set()  # by ATen calls: such a tensor may begin anywhere in its storage
        self.generators: dict[str, torch.Generator] = {}
        self.read = _read(fused)
        self.checks = any(has_bounds(kernel) for kernel in fused.kernels)

    def text(self) -> str:
        body = self._body()
        alone = {call.kernel for name, call in self.calls.items() if name not in self.groups}
        every = alone | {group.function for group in self.groups.values()}
        names = sorted(every, key=lambda name: (int(name.rpartition("_")[2]), name))
        inputs = ", ".join(str(self.graph.buffers[n]) if n in self.graph.buffers else n for n in self.graph.inputs)
        file = self.kernels_file.rpartition("_kernels")[0] + "_wrapper.py"
        lines = [HEADER.format(title=f"The {self.graph.name} graph.", inputs=inputs or "none", file=file)]
        lines += self._imports()
        if names:
            listed = ", ".join(repr(n) for n in names)
            unpack = f"{', '.join(names)}," if len(names) == 1 and not self.checks else ", ".join(names)
            failed = ", failed" if self.checks else ""
            lines.append(f"{unpack}{failed} = kernels(Path(__file__).with_name({self.kernels_file!r}), [{listed}]")
            lines.append(", failures=True)\n" if failed else ")\n")
        lines += [f"{short} = {full}\n" for full, short in self.targets.items()]
        lines += [f"{name} = Packed({kind!r})\n" for name, kind in self.packed.items()]
        lines += [f"{name} = torch.Generator()  # who loads this file sets it\n" for name in self.generators]
        lines += [f"{name} = {self._constant(value)}\n" for name, value in self._tensors()]
        lines += ["\n\ndef call(args):\n", *(f"    {line}\n" for line in body)]
        lines += ["\n\nINPUTS = [\n", *(f"    {self._spec(n)},\n" for n in self.graph.inputs), "]\n"]
        lines += ['\nif __name__ == "__main__":\n    demo(call, INPUTS)\n']
        return "".join(lines)

    def _imports(self) -> list[str]:
        """Those of functions that few wrappers call."""
        attends = any(isinstance(step, ExternCall) and step.target == ATTENTION for step in self.fused.steps)
        lines = ["from torchglass.runtime.load import attention\n"] if attends else []
        lines += ["from torchglass.runtime.packed import Packed\n"] if self.packed else []
        graphs = sub_graphs(self.graph)
        lines += own_operators.imports([step.target for step in self.fused.steps if isinstance(step, ExternCall)])
        lines += ["from torchglass.runtime.load import graph_file\n"] if graphs else []
        files = {name: f"{self.graph.name}_{name}_wrapper.py" for name in graphs}
        made = [f"{name} = graph_file(Path(__file__).with_name({file!r}))\n" for name, file in files.items()]
        return [*lines, "\n", *made] if lines else []

    def _tensors(self) -> list[tuple[str, torch.Tensor]]:
        return [(name, value) for name, value in self.graph.constants.items() if isinstance(value, torch.Tensor)]

    # -- the function ------------------------------------------------------------------------------------------------
    def _body(self) -> list[str]:
        lines = [f"{self._names(self.graph.inputs)} = args", "args.clear()"] if self.graph.inputs else []
        steps = self.fused.steps
        freed: list[str] = []
        reused = {s.reuse for s in steps if isinstance(s, Allocate) and s.reuse}
        for step in steps:
            if isinstance(step, Free):
                if step.buffer not in reused and step.buffer not in self.graph.constants:
                    freed.append(step.buffer)
                continue
            if freed:
                lines.append(f"del {', '.join(freed)}")
                freed = []
            if isinstance(step, Allocate):
                lines.append(self._allocate(step))
            elif isinstance(step, FusedKernel):
                lines += self._kernel(step)
            elif step.target != JOIN:
                lines += self._extern(step)
        results = ", ".join(self._argument(o) for o in self.graph.outputs)
        lines.append(f"return ({results},)" if self.graph.outputs else "return ()")
        return lines

    def _kernel(self, step: FusedKernel) -> list[str]:
        """A call, or a line of one that runs several kernels."""
        call, group = self.calls[step.name], self.groups.get(step.name)
        if group is not None:
            text = f"    {', '.join(call.buffers)},"
            begin = [] if step.horizontal else [f"{group.function}(  # {len(group.kernels)} kernels in one call"]
            return [
                *begin,
                _commented(text, step.ops, step.origins),
                *([")"] if group.kernels[-1] == step.name else []),
            ]
        lines = [_commented(f"{call.kernel}({', '.join(call.buffers)})", step.ops, step.origins)]
        return [*lines, "if failed[0]:", "    raise index_error(failed)"] if self.checks and has_bounds(step) else lines

    def _allocate(self, step: Allocate) -> str:
        buffer = self.graph.buffers[step.buffer]
        if step.alias_of is not None and buffer.alias_of is not None:
            place = f"{_tuple(buffer.shape)}, {_tuple(buffer.strides)}, {buffer.alias_of[1]}"
            return f"{step.buffer} = reinterpret({step.alias_of}, {place})  # a part of it"
        if step.inplace is not None:
            return f"{step.buffer} = {self._same_memory(step.inplace, buffer)}  # written over it"
        if step.reuse is None:
            return f"{step.buffer} = empty({_tuple(buffer.shape)}, {_tuple(buffer.strides)}, torch.{buffer.dtype})"
        return f"{step.buffer} = {self._same_memory(step.reuse, buffer)}; del {step.reuse}  # its memory, reused"

    def _same_memory(self, name: str, buffer: Buffer) -> str:
        """A buffer's memory as another buffer lies in it."""
        old = self.graph.buffers[name]
        if old.shape == buffer.shape and old.strides == buffer.strides:
            return name
        return f"reinterpret({name}, {_tuple(buffer.shape)}, {_tuple(buffer.strides)}, 0)"

    def _extern(self, call: ExternCall) -> list[str]:
        args = [self._argument(a) for a in call.args] + [f"{k}={self._argument(v)}" for k, v in call.kwargs]
        if call.out:
            args.append(f"out={call.outputs[0] if len(call.outputs) == 1 else _tuple(call.outputs)}")
        text = f"{self._target(call.target)}({', '.join(args)})"
        if call.out:
            return [_commented(text, call.ops, call.origins)]
        if not any(call.outputs):
            return [_commented(text, call.ops, call.origins)]
        names = ["_" if o is None else o for o in call.outputs]
        left = f"{', '.join(names)}{',' if len(names) == 1 else ''}" if call.unpack else names[0]
        lines = [_commented(f"{left} = {text}", call.ops, call.origins)]
        for name in call.outputs:
            if name in self.read:
                self.returned.add(name)
                buffer = self.graph.buffers[name]
                layout = f"{_tuple(buffer.shape)}, {_tuple(buffer.strides)}, torch.{buffer.dtype}"
                lines.append(f"{name} = ensure_layout({name}, {layout})")
        return lines

    def _target(self, target: str) -> str:
        if target.startswith(PACKED):
            name = f"{target}_{len(self.packed)}"
            self.packed[name] = target.removeprefix(PACKED)
            return name
        target = DIRECT.get(target, target)
        if not target.startswith("torch.ops."):
            return target
        if target not in self.targets:
            _, _, namespace, packet, overload = target.split(".")
            short = packet if overload == "default" else f"{packet}_{overload}"
            short = f"{namespace}_{short}" if short in self.targets.values() or namespace != "aten" else f"aten_{short}"
            self.targets[target] = short
        return self.targets[target]

    # -- arguments ---------------------------------------------------------------------------------------------------
    def _argument(self, value: Any) -> str:
        if isinstance(value, View):
            return self._view(value)
        if isinstance(value, Value):
            return value.name
        if isinstance(value, (tuple, list)):
            inner = ", ".join(self._argument(v) for v in value)
            return f"[{inner}]"
        if isinstance(value, float) and not math.isfinite(value):
            return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        if isinstance(value, torch.device):
            return f"device({str(value)!r})"
        if isinstance(value, torch.Generator):
            known = next((n for n, g in self.generators.items() if g is value), f"generator_{len(self.generators)}")
            self.generators[known] = value
            return known
        if isinstance(value, OpOverload):
            return f"torch.ops.{value.namespace}.{value._schema.name.partition('::')[2]}.{value._overloadname}"
        return repr(value)

    def _view(self, view: View) -> str:
        buffer = self.graph.buffers[view.buffer]
        if view.offset == 0 and view.shape == buffer.shape and _same_strides(view, buffer):
            return view.buffer
        offset: Any = view.offset
        if buffer.role != "temp" or view.buffer in self.returned:
            offset = f"{view.buffer}.storage_offset() + {offset}"
        elif buffer.alias_of is not None:
            offset = buffer.alias_of[1] + offset
        return f"reinterpret({view.buffer}, {_tuple(view.shape)}, {_tuple(view.strides)}, {offset})"

    def _names(self, names: tuple[str, ...]) -> str:
        return ", ".join(names) + ("," if len(names) == 1 else "")

    @staticmethod
    def _constant(value: torch.Tensor) -> str:
        if is_written_out(value):
            return f"torch.tensor({value.tolist()!r}, dtype={value.dtype})"
        return f"example_constant({tuple(value.shape)}, {value.dtype})  # who loads this file sets the numbers"

    def _spec(self, name: str) -> str:
        buffer = self.graph.buffers.get(name)
        if buffer is None:
            return "None"
        return f"({_tuple(buffer.shape)}, {_tuple(buffer.strides)}, torch.{buffer.dtype})"


def sub_graphs(graph: LoopGraph) -> dict[str, torch.fx.GraphModule]:
    """The graphs that calls of a graph run, by the names of their functions."""
    return {name: value for name, value in graph.constants.items() if isinstance(value, torch.fx.GraphModule)}


def is_written_out(value: torch.Tensor) -> bool:
    """Whether the wrapper holds a constant's numbers; larger ones are handed to it when it is loaded."""
    return value.numel() <= MOST_NUMBERS and value.layout == torch.strided and value.is_contiguous()


def _read(fused: FusedGraph) -> set[str]:
    """Buffers that a later step or the caller reads, or whose memory another buffer takes."""
    found: dict[str, None] = {}
    collect_buffers(fused.graph.outputs, found)
    for step in fused.steps:
        if isinstance(step, (FusedKernel, ExternCall)):
            found.update(dict.fromkeys(step.reads))
        elif isinstance(step, Allocate):
            found.update((name, None) for name in (step.reuse, step.alias_of, step.inplace) if name is not None)
    return found.keys() & fused.graph.buffers.keys()


def _tuple(values: tuple[Any, ...]) -> str:
    return f"({', '.join(str(v) for v in values)}{',' if len(values) == 1 else ''})"


def _same_strides(view: View, buffer: Buffer) -> bool:
    return all(a == b or d in (0, 1) for a, b, d in zip(view.strides, buffer.strides, view.shape))


def _commented(text: str, ops: tuple[str, ...], origins: tuple[Any, ...]) -> str:
    short = list(dict.fromkeys(o.rpartition(".")[2] for o in ops))
    shown = ", ".join(short[:6]) + (", ..." if len(short) > 6 else "")
    lines = [o for o in origins if o is not UNKNOWN]
    where = f"   {lines[0].file.rpartition('/')[2]}:{lines[0].line}" if lines else ""
    return f"{text}  # {one_line(shown + where)}"
