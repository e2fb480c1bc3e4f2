"""What PyTorch keeps beside the CUDA graphs that it captures."""

from __future__ import annotations

import torch


# _cuda_clearCublasWorkspaces: without it a captured graph computes in memory that cuBLAS shares with all other work on
# the capturing stream, other graphs included. Tried: 2.11.
def forget_workspaces() -> None:
    """Let cuBLAS's memory go: what is captured next takes its own, of the graph's pool."""
    torch._C._cuda_clearCublasWorkspaces()


def executable_of(graph: torch.cuda.CUDAGraph) -> int:
    """The CUgraphExec of a captured graph, which the driver launches. 0 where PyTorch does not tell (before 2.9)."""
    tell = getattr(graph, "raw_cuda_graph_exec", None)
    return 0 if tell is None else int(tell())
