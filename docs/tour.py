"""A tour of torchglass: one small program through every stage. Read it, or run it: ``python docs/tour.py``.

The program is one attention-like step, small enough that every stage's output fits on a screen.
"""

import dis
import tempfile
from pathlib import Path

import torch

import torchglass as tg


def heading(text: str) -> None:
    print(f"\n{'=' * 100}\n{text}\n{'=' * 100}\n")


# --- The program
# -----------------------------------------------------------------------------------------------------
# Scores are scaled and normalized by row; a flag chooses what to return. Nothing here knows of a compiler.


def step(x, scale, centered=False):
    scores = torch.softmax(x * scale, dim=-1)
    if centered:
        scores = scores - scores.mean()
    return scores


# --- Capture
# ---------------------------------------------------------------------------------------------------------
# What Python hands us is bytecode. Capture interprets it with real arguments and fake tensors. Here: the
# flag is False, so the branch is decided while capturing, and a guard on `centered` remembers that.
#
# A backend is called with each captured graph. This one keeps the graph and lets it run as it is.


def capture() -> tuple[torch.fx.GraphModule, list[torch.Tensor]]:
    heading("Capture: bytecode in ...")
    dis.dis(step)
    seen = []

    def keep(gm, inputs):
        seen.append((gm, inputs))
        return gm.forward

    x = torch.randn(4, 8, requires_grad=True)
    compiled = tg.compile(step, backend=keep)
    compiled(x, 0.5)
    heading("... and a graph of PyTorch operations out, with the guards under which it may run")
    gm, inputs = seen[0]
    gm.print_readable()
    for guard in tg.explain(compiled).to_dict()["entries"][0]["guards"]:
        print(f"{guard['check']:60}  # {guard['why']}")
    return gm, inputs


# --- Autodiff
# --------------------------------------------------------------------------------------------------------
# The graph runs once on fake tensors through PyTorch's own autograd. What reaches ATen is the joint graph.
# A minimum cut decides what to keep for backward: here the softmax's result (a reduction is not computed
# twice).


def differentiate(gm, inputs):
    from torchglass import autodiff
    from torchglass.options import CompileOptions
    from torchglass.records.render_graph import render_graph

    partition = autodiff.trace_training(gm, inputs, CompileOptions.make())
    heading("Autodiff: the forward graph")
    print(render_graph(partition.forward, "forward"))
    heading("the backward graph")
    print(render_graph(partition.backward, "backward"))
    heading("and what is kept between them")
    for saved in partition.saved:
        print(f"{saved.name}: {saved.bytes} bytes, because: {saved.reason}")
    return partition


# --- Lower, fuse, generate
# ------------------------------------------------------------------------------------------- Every operator
# with a rule becomes loops over explicit sizes. A softmax is four: the row's maximum, exponentials, their
# sum, a division; the scaling is a fifth. Fusing finds that all five may run row by row and makes one
# kernel, whose intermediate values never reach memory. Then it is printed as C, and the graph as a Python
# wrapper.


def generate(graph: torch.fx.GraphModule):
    from torchglass import codegen, fuse, lower, schedule
    from torchglass.runtime import machine

    targets = machine.targets()
    loops = lower.run(graph, targets)
    heading("Lower: loops")
    print(loops)
    targets = machine.targets()
    fused = fuse.run(loops, targets)
    heading("Fuse: kernels and decisions")
    print(fused)
    scheduled = schedule.run(fused, targets)
    heading("Schedule: rows, passes, threads")
    print(scheduled)
    sources = codegen.run(scheduled, targets)
    heading("Codegen: C")
    print(*sources.texts.values())
    heading("and the wrapper that calls it")
    print(sources.wrapper_text)


# --- Runtime
# ---------------------------------------------------------------------------------------------------------
# All of this is what tg.compile does, once per entry. Each text is left in a folder, and the runtime
# executes those files: a breakpoint in any of them is hit, an edit takes effect.


def run() -> None:
    with tempfile.TemporaryDirectory() as folder, tg.prepare_debug(folder):
        compiled = tg.compile(step)
        x = torch.randn(4, 8, requires_grad=True)
        y = compiled(x, 0.5)
        (y * torch.arange(8)).sum().backward()
        torch.testing.assert_close(y, step(x, 0.5))
        compiled(x, 0.5, centered=True)  # another flag: the guard fails, a second entry
        heading("Runtime: the files of both entries")
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                print(path.relative_to(folder))
        heading("and the report")
        print(tg.explain(compiled))


def main() -> None:
    torch.manual_seed(0)
    partition = differentiate(*capture())
    generate(partition.forward)
    run()


if __name__ == "__main__":
    main()
