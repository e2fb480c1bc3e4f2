"""The Python wrapper of a graph: its launch plan as the file that runs, a line or two for each row.

::

    def call(args):
        x, w, b = args
        args.clear()
        addmm = empty((512, 64), (64, 1), torch.float32)
        torch.addmm(b, x, reinterpret(w, (64, 64), (1, 64), 0), out=addmm)
        gelu = empty((512, 64), (64, 1), torch.float32)
        kernel_0(addmm, gelu)  # gelu   model.py:12
        return (gelu,)

On a GPU memory is made where the first input is, so that a graph traced on one device runs on another, and kernels are
started where their tensors are, over so many points as the grid has to have programs for::

    gpu = x.device
    gelu = empty((512, 64), (64, 1), torch.float32, gpu)
    kernel_0(x, gelu, points=32768)  # gelu   model.py:12
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..process.tables import enters
from ..records import own_operators
from ..records.extern_targets import ATTENTION, OPEN_ATTENTION, RESERVE_PHILOX
from ..records.launch import (
    FILES,
    Alias,
    Alloc,
    CheckFailures,
    Copy,
    EnsureLayout,
    Extern,
    Launch,
    LaunchGroup,
    LaunchPlan,
    MoveConstant,
    ReadDevice,
    ReadSize,
    Reinterpret,
    Release,
    Return,
    is_written_out,
    show_tuple,
)
from ..records.literals import overload_text, tensor_text
from ..records.loops import Buffer, Value
from ..torch_compat import OpOverload

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
ENSURE_LAYOUT = "ensure_layout"  # the runtime's function for EnsureLayout

ROWS: dict[type[Any], Callable[[LaunchPlan, Any], list[str]]] = {}
"""What prints a row."""
prints = enters(ROWS)


def text(plan: LaunchPlan) -> str:
    """The whole file."""
    inputs = ", ".join(map(str, plan.inputs)) or "none"
    lines = [HEADER.format(title=f"The {plan.name} graph.", inputs=inputs, file=f"{plan.name}_wrapper.py")]
    lines += _imports(plan)
    lines += [_kernels(plan, language, names) for language, names in plan.kernels.items()]
    lines += [f"{short} = {full}\n" for short, full in plan.operators.items()]
    lines += [f"{name} = Packed({kind!r})\n" for name, kind in plan.packed.items()]
    lines += [f"{name} = torch.Generator()  # who loads this file sets it\n" for name in plan.generators]
    lines += [f"{name} = {_constant(value)}\n" for name, value in plan.constants.items()]
    lines += ["\n\ndef call(args):\n", *(f"    {line}\n" for line in _body(plan))]
    lines += [f"\n\n{size} = 8  # to try the file with" for size in plan.sizes]
    lines += ["\n\nINPUTS = [\n", *(f"    {_spec(plan, one)},\n" for one in plan.inputs), "]\n"]
    lines += ['\nif __name__ == "__main__":\n    demo(call, INPUTS)\n']
    return "".join(lines)


def _imports(plan: LaunchPlan) -> list[str]:
    """Those of functions that few wrappers call."""
    called = [row.function for row in plan.rows if isinstance(row, Extern)]
    loaded = [name for name in (ATTENTION, OPEN_ATTENTION) if name in called]
    lines = [f"from torchglass.runtime.load import {', '.join(loaded)}\n"] if loaded else []
    lines += ["from torchglass.runtime.philox import reserve_philox\n"] if RESERVE_PHILOX in called else []
    lines += ["from torchglass.runtime.packed import Packed\n"] if plan.packed else []
    lines += own_operators.imports(called)
    lines += ["from torchglass.runtime.load import graph_file\n"] if plan.graphs else []
    files = {name: f"{plan.name}_{name}_wrapper.py" for name in plan.graphs}
    made = [f"{name} = graph_file(Path(__file__).with_name({file!r}))\n" for name, file in files.items()]
    return [*lines, "\n", *made] if lines else []


def _kernels(plan: LaunchPlan, language: str, names: tuple[str, ...]) -> str:
    """What takes the kernels from their file. Those of C leave behind which index was out of range."""
    failed = plan.checks and language == "c"
    left = ", ".join((*names, "failed")) if failed else _names(names)
    path = f"Path(__file__).with_name({FILES[language].format(plan.name)!r})"
    return f"{left} = kernels({path}, {list(names)!r}{', failures=True' if failed else ''})\n"


def _constant(value: torch.Tensor) -> str:
    there = "" if value.device.type == "cpu" else f".to({str(value.device)!r})"
    if is_written_out(value):
        return f"{tensor_text(value)}{there}"
    return f"example_constant({tuple(value.shape)}, {value.dtype}){there}  # who loads this file sets the numbers"


def _spec(plan: LaunchPlan, one: Buffer | str) -> str:
    """What an input to try the file with looks like."""
    if isinstance(one, str):
        return "None"
    device = "cuda" if one.device == "cpu" and one.device in plan.devices else one.device
    there = "" if device == "cpu" else f", {device!r}"
    return f"({show_tuple(one.shape)}, {show_tuple(one.strides)}, torch.{one.dtype}{there})"


# -- the function ----------------------------------------------------------------------------------------------------
def _body(plan: LaunchPlan) -> list[str]:
    names = [one if isinstance(one, str) else one.name for one in plan.inputs]
    lines = [f"{_names(names)} = args", "args.clear()"] if names else []
    return [*lines, *_printed(plan, plan.head), *_printed(plan, plan.rows)]


def _printed(plan: LaunchPlan, rows: Iterable[Any]) -> list[str]:
    return [line for row in rows for line in ROWS[type(row)](plan, row)]


@prints(ReadDevice)
def _read_device(plan: LaunchPlan, row: ReadDevice) -> list[str]:
    return [f"{row.name} = {f'{row.source}.device' if row.source else f'device({row.device!r})'}"]


@prints(ReadSize)
def _read_size(plan: LaunchPlan, row: ReadSize) -> list[str]:
    return [f"{row.name} = {row.source}.{'stride()' if row.stride else 'shape'}[{row.dim}]"]


@prints(MoveConstant)
def _move_constant(plan: LaunchPlan, row: MoveConstant) -> list[str]:
    return [f"{row.name} = globals()[{row.name!r}].to({row.device})"]


@prints(Alloc)
def _alloc(plan: LaunchPlan, row: Alloc) -> list[str]:
    buffer = row.buffer
    layout = f"{show_tuple(buffer.shape)}, {show_tuple(buffer.strides)}"
    where = plan.devices.get(buffer.device)
    if where is None and buffer.device != "cpu":
        where = f"device({buffer.device!r})"
    return [f"{buffer.name} = empty({layout}, torch.{buffer.dtype}{'' if where is None else f', {where}'})"]


@prints(Alias)
def _alias(plan: LaunchPlan, row: Alias) -> list[str]:
    ends = "" if row.frees is None else f"; del {row.frees}"
    return [f"{row.name} = {_memory(row.memory)}{ends}  # {row.why}"]


@prints(Release)
def _release(plan: LaunchPlan, row: Release) -> list[str]:
    return [f"del {', '.join(row.names)}"]


@prints(Launch)
def _launch(plan: LaunchPlan, row: Launch) -> list[str]:
    return [_commented(f"{row.kernel}({row.arguments})", row.note)]


@prints(LaunchGroup)
def _launch_group(plan: LaunchPlan, row: LaunchGroup) -> list[str]:
    begin = f"{row.function}(  # {len(row.launches)} kernels in one call"
    return [begin, *(_commented(f"    {one.arguments},", one.note) for one in row.launches), ")"]


@prints(CheckFailures)
def _check_failures(plan: LaunchPlan, row: CheckFailures) -> list[str]:
    return ["if failed[0]:", "    raise index_error(failed)"]


@prints(Extern)
def _extern(plan: LaunchPlan, row: Extern) -> list[str]:
    args = [*map(_argument, row.args), *(f"{name}={_argument(value)}" for name, value in row.kwargs)]
    names = [name or "_" for name in row.results]
    if row.out:
        args.append(f"out={names[0] if len(names) == 1 else show_tuple(row.results)}")
    left = f"{_names(names) if row.unpack else names[0]} = " if any(row.results) and not row.out else ""
    return [_commented(f"{left}{row.function}({', '.join(args)})", row.note)]


@prints(EnsureLayout)
def _ensure_layout(plan: LaunchPlan, row: EnsureLayout) -> list[str]:
    buffer = row.buffer
    layout = f"{show_tuple(buffer.shape)}, {show_tuple(buffer.strides)}, torch.{buffer.dtype}"
    return [f"{buffer.name} = {ENSURE_LAYOUT}({buffer.name}, {layout})"]


@prints(Copy)
def _copy(plan: LaunchPlan, row: Copy) -> list[str]:
    waits = "" if row.waits else ", non_blocking=True"
    return [_commented(f"{row.name}.copy_({_memory(row.source)}{waits})", row.note)]


@prints(Return)
def _return(plan: LaunchPlan, row: Return) -> list[str]:
    results = ", ".join(map(_argument, row.values))
    return [f"return ({results},)" if row.values else "return ()"]


# -- arguments -------------------------------------------------------------------------------------------------------
def _argument(value: Any) -> str:
    for kind, rule in ARGUMENTS.items():
        if isinstance(value, kind):
            return rule(value)
    return repr(value)


def _memory(value: str | Reinterpret) -> str:
    if isinstance(value, str):
        return value
    offset = f"{value.buffer}.storage_offset() + {value.offset}" if value.relative else value.offset
    return f"reinterpret({value.buffer}, {show_tuple(value.shape)}, {show_tuple(value.strides)}, {offset})"


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


ARGUMENTS: dict[type[Any], Callable[[Any], str]] = {
    Value: lambda value: value.name,
    Reinterpret: _memory,
    list: lambda values: f"[{', '.join(map(_argument, values))}]",
    float: _number,
    torch.device: lambda value: f"device({str(value)!r})",
    OpOverload: overload_text,
}
"""What prints an argument of a kind; others are as they are shown."""


# -- pieces ----------------------------------------------------------------------------------------------------------
def _names(names: Iterable[str]) -> str:
    """The left of an assignment that takes a tuple apart."""
    listed = list(names)
    return f"{', '.join(listed)}{',' if len(listed) == 1 else ''}"


def _commented(code: str, note: str) -> str:
    return f"{code}  # {note}" if note else code
