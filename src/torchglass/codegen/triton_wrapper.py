"""The Python wrapper of a graph on a GPU: takes memory, launches kernels, calls ATen. It is the file that runs.

::

    def call(args):
        x, w = args
        device = x.device
        with torch.cuda.device_of(x):
            gelu = empty((512, 64), (64, 1), torch.float32)
            kernel_0[(32,)](x, w, gelu, BLOCK=1024, num_warps=4)  # gelu   model.py:12
            return (gelu,)

Everything is made on the device of the first tensor argument, so a graph traced on one device runs on another.
"""

from __future__ import annotations

from typing import Any

import torch

from ..records.kernels import FusedGraph
from ..records.sizes import Size, symbol_name, symbols
from .c import Call
from .triton_ops import CannotPrint
from .wrapper import WrapperPrinter

HEADER = '''"""{title}

Inputs: {inputs}
Runs alone: python {file} makes inputs of the right shapes and prints the shapes of the results.
"""

import functools
import math
import operator
from pathlib import Path

import torch
from torch import inf, nan
from torchglass.runtime.load import demo, ensure_layout, load_module

reinterpret = torch.as_strided


def empty_on(device, sizes, strides, dtype):
    """Uninitialized memory."""
    return torch.empty_strided(sizes, strides, dtype=dtype, device=device)

'''
FOOTER = """

def on_gpu(args):
    return [a.cuda() if isinstance(a, torch.Tensor) else a for a in args]


if __name__ == "__main__":
    demo(lambda args: call(on_gpu(args)), INPUTS)
"""


class TritonWrapper(WrapperPrinter):
    """Prints one graph. ``calls[kernel.name]`` is a launch: ``kernel_0[(grid,)]`` and all its arguments."""

    def __init__(self, fused: FusedGraph, calls: dict[str, Call], kernels_file: str) -> None:
        super().__init__(fused, calls, kernels_file)
        self.checks = False  # no index out of range is reported from a GPU yet
        self.devices = {self.graph.buffers[n].device for n in self.graph.inputs if n in self.graph.buffers} or {"cpu"}

    def text(self) -> str:
        """The whole file."""
        body = self._on_device()
        names = sorted({c.kernel.partition("[")[0] for c in self.calls.values()}, key=lambda n: int(n[7:]))
        inputs = ", ".join(str(self.graph.buffers[n]) if n in self.graph.buffers else n for n in self.graph.inputs)
        file = self.kernels_file.rpartition("_kernels")[0] + "_wrapper.py"
        lines = [HEADER.format(title=f"The {self.graph.name} graph.", inputs=inputs or "none", file=file)]
        lines += self._imports()
        if names:
            lines.append(f"kernels = load_module(Path(__file__).with_name({self.kernels_file!r}))\n")
        lines += [f"{name} = kernels.{name}\n" for name in names]
        lines += [f"{short} = {full}\n" for full, short in self.targets.items()]
        lines += ["\n\ndef call(args):\n", *(f"    {line}\n" for line in body)]
        lines += [f"\n\n{s} = 8  # a size to try the file with" for s in self._open_sizes()]
        lines += ["\n\nINPUTS = [\n", *(f"    {self._spec(n)},\n" for n in self.graph.inputs), "]\n", FOOTER]
        return "".join(lines)

    def _on_device(self) -> list[str]:
        """The body of ``call`` on the device of the first tensor."""
        body = self._body()
        tensors = [n for n in self.graph.inputs if n in self.graph.buffers]
        head = [body.pop(0)] if self.graph.inputs else []
        head.append(f"device = {tensors[0]}.device" if tensors else 'device = torch.device("cuda")')
        head.append("empty = functools.partial(empty_on, device)")
        head += [f"{name} = {self._constant(value)}.to(device)" for name, value in self._tensors()]
        head += self._symbols()
        if not tensors:
            return [*head, *body]
        return [*head, f"with torch.cuda.device_of({tensors[0]}):", *(f"    {line}" for line in body)]

    def _open_sizes(self) -> list[str]:
        return symbols([s for b in self.graph.buffers.values() for s in (*b.shape, *b.strides)])

    def _symbols(self) -> list[str]:
        """Sizes that the graph leaves open, read off the inputs' shapes and strides."""
        buffers, wanted = self.graph.buffers, self._open_sizes()
        found: dict[str, str] = {n: n for n in self.graph.inputs if n not in buffers}
        for name in self.graph.inputs:
            if name in buffers:
                sources: list[tuple[str, tuple[Size, ...]]] = [
                    (f"{name}.shape", buffers[name].shape), (f"{name}.stride()", buffers[name].strides),
                ]  # fmt: skip
                for text, sizes in sources:
                    for k, size in enumerate(sizes):
                        if (symbol := symbol_name(size)) is not None:
                            found.setdefault(symbol, f"{text}[{k}]")
        missing = [s for s in wanted if s not in found]
        if missing:
            raise CannotPrint(f"{self.graph.name}: no input tells the size {', '.join(missing)}")
        return [f"{s} = {found[s]}" for s in wanted if found[s] != s]

    def _argument(self, value: Any) -> str:
        if isinstance(value, torch.device) and value.type in self.devices:
            return "device"
        if isinstance(value, torch.device):
            return f"torch.device({str(value)!r})"
        return super()._argument(value)
