"""Runs a function eagerly and through autodiff, from equal inputs, and compares everything a user can see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensorMode

from torchglass import autodiff
from torchglass.records.partition import Partition
from torchglass.records.render_graph import load, render, render_graph
from torchglass.runtime.runtime_wrapper import runtime_wrapper


def capture(function: Callable[..., Any]) -> torch.fx.GraphModule:
    """The torch-level graph of a function of tensors."""
    return torch.fx.symbolic_trace(function)


def compiled(partition: Partition) -> Callable[..., Any]:
    """The partition as a callable that runs the rendered text of its graphs."""

    def graph(module: torch.fx.GraphModule) -> Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]:
        forward = load(render(module, "test"))
        return lambda tensors: forward(*tensors)

    return runtime_wrapper(partition, graph(partition.forward), lambda chosen: graph(chosen.backward))


def fresh(value: Any) -> Any:
    """An input of the same layout; inputs that require grad come as results of an operation, so they may be written."""
    if not isinstance(value, torch.Tensor):
        return value
    copy = torch.empty_like(value.detach(), memory_format=torch.preserve_format).copy_(value.detach())
    return copy.requires_grad_(value.requires_grad)


def run(
    call: Callable[..., Any], inputs: Sequence[Any], use: Callable[[list[Any]], list[Any]], leaf: bool
) -> list[Any]:
    """Outputs, gradients and inputs afterwards of one run, with a seed of its own."""
    torch.manual_seed(7)
    leaves = [fresh(value) for value in inputs]
    differentiated = [isinstance(value, torch.Tensor) and value.requires_grad for value in leaves]
    given = [value * 1.0 if needed and not leaf else value for value, needed in zip(leaves, differentiated)]
    outputs = call(*given)
    outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
    used = [out for out in use(outputs) if isinstance(out, torch.Tensor) and out.requires_grad]
    if used:
        weights = [torch.linspace(0.5, 1.5, max(out.numel(), 1), device=out.device) for out in used]
        terms = [out * w[: out.numel()].view(out.shape).to(out.dtype) for out, w in zip(used, weights)]
        sum(term.sum() for term in terms).backward()
    gradients = [value.grad for value, needed in zip(leaves, differentiated) if needed]
    facts = [(out.requires_grad, out.stride()) for out in outputs if isinstance(out, torch.Tensor)]
    return [*outputs, *gradients, *given, _random_state(), *facts, _aliases([*given, *outputs])]


def _random_state() -> torch.Tensor:
    """The state of the CPU's generator, and of the GPU's where there is one."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_available():
        states.append(torch.cuda.get_rng_state())
    return torch.cat(states)


def _aliases(values: list[Any]) -> list[int]:
    """Which values share memory, as the position of the first that does."""
    memory = [v.untyped_storage().data_ptr() if isinstance(v, torch.Tensor) else -1 - i for i, v in enumerate(values)]
    return [memory.index(m) for m in memory]


def compare(
    function: Callable[..., Any],
    *inputs: Any,
    use: Callable[[list[Any]], list[Any]] = lambda outputs: outputs,
    leaf: bool = False,
    exact: bool = True,
    gm: torch.fx.GraphModule | None = None,
) -> Partition:
    """Assert that autodiff's result equals eager's; returns the partition for further looks."""
    gm = gm or capture(function)
    partition = autodiff.trace_training(gm, [fresh(value) for value in inputs])
    mode = FakeTensorMode()
    from_fakes = autodiff.trace_training(gm, [mode.from_tensor(fresh(value)) for value in inputs])
    assert render_graph(from_fakes.joint, "") == render_graph(partition.joint, "")
    expected = run(function, inputs, use, leaf)
    actual = run(compiled(partition), inputs, use, leaf)
    assert len(expected) == len(actual)
    for want, got in zip(expected, actual):
        if isinstance(want, torch.Tensor):
            assert isinstance(got, torch.Tensor), f"expected a tensor, got {got!r}"
            tolerance = {"rtol": 0.0, "atol": 0.0} if exact else {}
            torch.testing.assert_close(got.detach(), want.detach(), equal_nan=True, check_stride=False, **tolerance)
        else:
            assert want == got, (want, got)
    return partition


def tensor(*shape: int, grad: bool = True, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """A random tensor; the same for the same arguments."""
    generator = torch.Generator().manual_seed(seed + sum((i + 3) * n for i, n in enumerate(shape)))
    return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_(grad)


def plain(*shape: int, seed: int = 0) -> torch.Tensor:
    """One without gradients."""
    return tensor(*shape, grad=False, seed=seed)


def saved_names(partition: Partition) -> list[str]:
    return [saved.name for saved in partition.saved]


def targets(module: torch.fx.GraphModule | None) -> list[str]:
    """The operators of a graph, as ``aten.cos.default``."""
    assert module is not None
    return [str(node.target) for node in module.graph.nodes if node.op == "call_function"]
