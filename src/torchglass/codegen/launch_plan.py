"""The plan of a graph's calls: a fused graph and how its kernels are started in, ``records.launch`` out.

What becomes a line of the wrapper is decided here: which names end together, what is another look at memory and where
it begins, whose layout is asked for, after which kernels an index may have been out of range, what goes from device to
device. ::

    allocate mm                      alloc mm: float32[8, 8] strides [8, 1]
    extern mm = aten.mm.out(x, w)    call torch.mm(x, w) out mm
    free w                           release w, x
    free x                           alloc relu: float32[8, 8] strides [8, 1]
    allocate relu                    launch kernel_0(mm, relu)
    kernel relu ...                  return relu
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from ..records.extern_targets import JOIN
from ..records.kernels import Allocate, Free, FusedGraph, FusedKernel, Step, device_of
from ..records.launch import (
    Alias,
    Alloc,
    CheckFailures,
    Copy,
    EnsureLayout,
    Extern,
    Head,
    Launch,
    LaunchGroup,
    LaunchPlan,
    MoveConstant,
    ReadDevice,
    ReadSize,
    Reinterpret,
    Release,
    Return,
    Row,
)
from ..records.literals import one_line
from ..records.loops import Buffer, Compute, ExternCall, LoopGraph, Value, View, collect_buffers, sizes_of_calls
from ..records.origin import UNKNOWN, Origin
from ..records.sizes import symbol_name, symbols
from ..records.target import Gpu, Targets
from .printed import Printed

PACKED = "packed_"  # targets of products with frozen weights; each call holds one
TO_DEVICE = "torch.ops.aten._to_copy.default"
DIRECT = {
    **{f"torch.ops.aten.{name}.out": f"torch.{name}" for name in ("mm", "addmm", "bmm", "baddbmm")},
    "torch.ops.aten.convolution.default": "torch.convolution",
}
"""Operators to the functions of ``torch`` that are the same and called in less time: a product in half of it."""


def build(fused: FusedGraph, printed: Sequence[Printed], targets: Targets) -> LaunchPlan:
    """The plan. Raises NotImplementedError for a size that no input tells, and a kernel on two devices."""
    return _Builder(fused, printed, targets).plan()


def sub_graphs(graph: LoopGraph) -> dict[str, torch.fx.GraphModule]:
    """The graphs that calls of a graph run, by the names of their functions."""
    return {name: value for name, value in graph.constants.items() if isinstance(value, torch.fx.GraphModule)}


class _Builder:
    def __init__(self, fused: FusedGraph, printed: Sequence[Printed], targets: Targets) -> None:
        self.fused, self.printed = fused, printed
        self.graph, self.buffers = fused.graph, fused.buffers
        self.kernels = {kernel.name: kernel for kernel in fused.kernels}
        self.launches = {name: launch for one in printed for name, launch in one.launches.items()}
        self.groups = {kernel: group for one in printed for group in one.groups for kernel in group.kernels}
        self.rows: list[Row] = []
        self.operators: dict[str, str] = {}
        self.packed: dict[str, str] = {}
        self.generators: dict[str, torch.Generator] = {}
        self.moved: dict[tuple[str, str], str] = {}  # single numbers, by the GPU they were copied to
        self.returned: set[str] = set()  # by calls: such a tensor may begin anywhere in its storage
        self.names = {*self.buffers, *self.graph.inputs, *(n for s in self._calls() for n in s.writes)}
        self.read = _read(fused)
        self.sizes = symbols(size for b in self.buffers.values() for size in (*b.shape, *b.strides))
        self.sizes_of_calls = sizes_of_calls(self.graph)
        self.devices: dict[str, str] = {}
        for device in dict.fromkeys(buffer.device for buffer in self.buffers.values()):
            if _is_gpu(device, targets):
                self.devices[device] = self._fresh("gpu")
        self.tensors = [self.buffers[name] for name in self.graph.inputs if name in self.buffers]

    def plan(self) -> LaunchPlan:
        self._steps()
        self.rows.append(Return(tuple(self._argument(value) for value in self.graph.outputs)))
        constants = {n: value for n, value in self.graph.constants.items() if isinstance(value, torch.Tensor)}
        return LaunchPlan(
            name=self.graph.name,
            inputs=tuple(self.buffers.get(name, name) for name in self.graph.inputs),
            head=(*self._devices(), *self._sizes(), *self._layouts(), *self._moves(constants)),
            rows=tuple(self.rows),
            kernels={one.language: names for one in self.printed if (names := self._functions(one))},
            operators={short: full for full, short in self.operators.items()},
            packed=self.packed,
            graphs=tuple(sub_graphs(self.graph)),
            constants=constants,
            generators=self.generators,
            sizes=tuple(self.sizes),
            devices=self.devices,
        )

    def _calls(self) -> list[FusedKernel | ExternCall]:
        return [step for step in self.fused.steps if isinstance(step, (FusedKernel, ExternCall))]

    def _fresh(self, name: str) -> str:
        """A name that nothing else has."""
        unique, n = name, 0
        while unique in self.names:
            n += 1
            unique = f"{name}_{n}"
        self.names.add(unique)
        return unique

    def _functions(self, printed: Printed) -> tuple[str, ...]:
        """What the wrapper takes from a language's file."""
        alone = {launch.kernel for name, launch in printed.launches.items() if name not in self.groups}
        every = alone | {group.function for group in printed.groups}
        return tuple(sorted(every, key=lambda name: (int(name.rpartition("_")[2]), name)))

    # -- before all rows ---------------------------------------------------------------------------------------------
    def _devices(self) -> list[Head]:
        """Of inputs that something reads: in place of others there may be None."""
        rows: list[Head] = []
        for device, name in self.devices.items():
            source = next((one.name for one in self.tensors if one.device == device and one.name in self.read), None)
            rows.append(ReadDevice(name, "cuda" if device == "cpu" else device, source))
        return rows

    def _sizes(self) -> list[Head]:
        """The sizes left open, read off the inputs' shapes and strides."""
        found: dict[str, ReadSize | None] = {name: None for name in self.graph.inputs if name not in self.buffers}
        for buffer in self.tensors:
            for stride, sizes in ((False, buffer.shape), (True, buffer.strides)):
                for dim, size in enumerate(sizes):
                    if (symbol := symbol_name(size)) is not None:
                        found.setdefault(symbol, ReadSize(symbol, buffer.name, dim, stride))
        missing = [symbol for symbol in self.sizes if symbol not in found and symbol not in self.sizes_of_calls]
        if missing:
            raise NotImplementedError(f"{self.graph.name}: no input tells the size {', '.join(missing)}")
        return [row for symbol in self.sizes if (row := found.get(symbol)) is not None]

    def _layouts(self) -> list[Head]:
        return [EnsureLayout(buffer) for buffer in self.tensors] if self.graph.called else []

    def _moves(self, constants: dict[str, torch.Tensor]) -> list[Head]:
        moved = {n: self.devices.get(self.buffers[n].device) for n, value in constants.items() if not value.is_cuda}
        return [MoveConstant(name, device) for name, device in moved.items() if device is not None]

    # -- the steps ---------------------------------------------------------------------------------------------------
    def _steps(self) -> None:
        ended: list[str] = []
        reused = {step.reuse for step in self.fused.steps if isinstance(step, Allocate)}
        for step in self.fused.steps:
            if isinstance(step, Free):
                if step.buffer not in reused and step.buffer not in self.graph.constants:
                    ended.append(step.buffer)
                continue
            if ended:
                self.rows.append(Release(tuple(ended)))
                ended = []
            _ROWS_OF[type(step)](self, step)

    def _allocate(self, step: Allocate) -> None:
        buffer = self.buffers[step.buffer]
        if step.alias_of is not None and buffer.alias_of is not None:
            memory = Reinterpret(step.alias_of, buffer.shape, buffer.strides, buffer.alias_of[1])
            self.rows.append(Alias(step.buffer, memory, "a part of it"))
        elif step.inplace is not None:
            self.rows.append(Alias(step.buffer, self._same_memory(step.inplace, buffer), "written over it"))
        elif step.reuse is not None:
            memory_of = self._same_memory(step.reuse, buffer)
            self.rows.append(Alias(step.buffer, memory_of, "its memory, reused", frees=step.reuse))
        else:
            self.rows.append(Alloc(buffer))

    def _same_memory(self, name: str, buffer: Buffer) -> str | Reinterpret:
        """A buffer's memory as another buffer lies in it."""
        old = self.buffers[name]
        if (old.shape, old.strides) == (buffer.shape, buffer.strides):
            return name
        return Reinterpret(name, buffer.shape, buffer.strides)

    def _kernel(self, step: FusedKernel) -> None:
        """A launch; the first of a group stands for all of them."""
        group = self.groups.get(step.name)
        if group is not None:
            if group.kernels[0] == step.name:
                launches = tuple(self._launch(self.kernels[name]) for name in group.kernels)
                self.rows.append(LaunchGroup(group.function, launches))
            return
        self.rows.append(self._launch(step))
        on_gpu = device_of(step, self.buffers) in self.devices  # from which no index out of range is reported yet
        if not on_gpu and _may_fail(step):
            self.rows.append(CheckFailures())

    def _launch(self, step: FusedKernel) -> Launch:
        device = device_of(step, self.buffers)
        buffers = tuple(self._on_device(step, name, device) for name in self.launches[step.name].buffers)
        return replace(self.launches[step.name], buffers=buffers, note=_note(step))

    def _on_device(self, step: FusedKernel, name: str, device: str) -> str:
        """A buffer where its kernel runs: a single number of the CPU is copied to the GPU, as operators of PyTorch's
        take it; nothing else goes by itself.
        """
        buffer = self.buffers[name]
        if buffer.device == device:
            return name
        if (name, device) in self.moved:
            return self.moved[name, device]
        if buffer.device != "cpu" or buffer.numel != 1 or name in step.writes:
            raise NotImplementedError(f"{step.name}: {name} is on {buffer.device}, its kernel on {device}")
        there = replace(buffer, name=self._fresh(f"{name}_on_gpu"), device=device, role="temp")
        self.rows += [Alloc(there), Copy(there.name, name)]
        self.moved[name, device] = there.name
        return there.name

    def _extern(self, call: ExternCall) -> None:
        if call.target == JOIN or self._copies(call):
            return
        args = tuple(self._argument(value) for value in call.args)
        kwargs = tuple((name, self._argument(value)) for name, value in call.kwargs)
        function = self._function(call.target)
        self.rows.append(Extern(function, args, kwargs, call.outputs, call.unpack, call.out, _note(call)))
        told = ((symbol, *place) for symbol, place in self.sizes_of_calls.items() if place[0] in call.outputs)
        self.rows += [ReadSize(symbol, source, dim) for symbol, source, dim in told]
        if not call.out:
            for name in call.outputs:
                if name in self.read and self.buffers[name].role == "temp":
                    self.returned.add(name)
                    self.rows.append(EnsureLayout(self.buffers[name]))

    def _copies(self, call: ExternCall) -> bool:
        """Whether it was a copy to another device, which gets the memory that the graph was compiled for."""
        source, name = next(iter(call.args), None), call.outputs[0]
        if call.target != TO_DEVICE or not isinstance(source, View) or name not in self.buffers:
            return False
        buffer = self.buffers[name]
        if buffer.device == self.buffers[source.buffer].device:
            return False
        waits = buffer.device == "cpu" or not dict(call.kwargs).get("non_blocking")
        self.rows += [Alloc(buffer), Copy(name, self._view(source), waits, _note(call))]
        return True

    def _function(self, target: str) -> str:
        """How the wrapper calls it."""
        if target.startswith(PACKED):
            name = f"{target}_{len(self.packed)}"
            self.packed[name] = target.removeprefix(PACKED)
            return name
        target = DIRECT.get(target, target)
        if not target.startswith("torch.ops."):
            return target
        if target not in self.operators:
            _, _, namespace, packet, overload = target.split(".")
            short = packet if overload == "default" else f"{packet}_{overload}"
            self.operators[target] = self._fresh(f"{namespace}_{short}")
        return self.operators[target]

    # -- arguments ---------------------------------------------------------------------------------------------------
    def _argument(self, value: Any) -> Any:
        """An argument as rows hold it."""
        if isinstance(value, View):
            memory = self._view(value)
            return memory if isinstance(memory, Reinterpret) else Value(memory)
        if isinstance(value, (tuple, list)):
            return [self._argument(one) for one in value]
        if isinstance(value, torch.Generator):
            known = next((n for n, g in self.generators.items() if g is value), f"generator_{len(self.generators)}")
            self.generators[known] = value
            return Value(known)
        if isinstance(value, torch.device) and str(value) in self.devices:
            return Value(self.devices[str(value)])
        return value

    def _view(self, view: View) -> str | Reinterpret:
        buffer = self.buffers[view.buffer]
        if view.offset == 0 and view.shape == buffer.shape and _same_strides(view, buffer):
            return view.buffer
        if buffer.role != "temp" or view.buffer in self.returned:
            return Reinterpret(view.buffer, view.shape, view.strides, view.offset, relative=True)
        begins = 0 if buffer.alias_of is None else buffer.alias_of[1]
        return Reinterpret(view.buffer, view.shape, view.strides, begins + view.offset)


_ROWS_OF: dict[type[Step], Callable[[_Builder, Any], None]] = {
    Allocate: _Builder._allocate,
    FusedKernel: _Builder._kernel,
    ExternCall: _Builder._extern,
}
"""What adds the rows of a step."""


def _is_gpu(device: str, targets: Targets) -> bool:
    return device.startswith("cuda") or (device == "cpu" and isinstance(targets.cpu, Gpu))


def _may_fail(kernel: FusedKernel) -> bool:
    """Whether it reads at places that tensors say, which may be out of range, or divides whole numbers."""
    return any(isinstance(op, Compute) and op.op == "bound" for loop in kernel.loops for op in loop.body)


def _read(fused: FusedGraph) -> set[str]:
    """Buffers that a later step or the caller reads, or whose memory another buffer takes."""
    found: dict[str, None] = {}
    collect_buffers(fused.graph.outputs, found)
    for step in fused.steps:
        if isinstance(step, (FusedKernel, ExternCall)):
            found.update(dict.fromkeys(step.reads))
        elif isinstance(step, Allocate):
            found.update((name, None) for name in (step.reuse, step.alias_of, step.inplace) if name is not None)
    return found.keys() & fused.buffers.keys()


def _same_strides(view: View, buffer: Buffer) -> bool:
    return all(a == b or d in (0, 1) for a, b, d in zip(view.strides, buffer.strides, view.shape))


def _note(step: FusedKernel | ExternCall) -> str:
    """What a step computes, and where that stands in the user's code."""
    ops = list(dict.fromkeys(op.rpartition(".")[2] for op in step.ops))
    shown = ", ".join(ops[:6]) + (", ..." if len(ops) > 6 else "")
    origins: list[Origin] = [origin for origin in step.origins if origin is not UNKNOWN]
    where = f"   {origins[0].file.rpartition('/')[2]}:{origins[0].line}" if origins else ""
    return one_line(shown + where)
