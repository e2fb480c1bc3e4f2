"""Program 4: the same function under each backend, and what each one leaves."""

import pytest
import torch

import torchglass as tg
from torchglass.backends import registry


def f(x, w):
    return torch.relu(x @ w).sum(-1) / 2


def outcome(function):
    torch.manual_seed(0)
    x, w = torch.randn(5, 4), torch.randn(4, 3, requires_grad=True)
    y = function(x, w)
    y.square().sum().backward()
    return y.detach(), w.grad


LEAVES = {
    "eager": {"captured.py"},
    "aot_eager": {"captured.py", "joint.py", "forward.py", "backward.py"},
    "glass": {
        "captured.py", "joint.py", "forward.py", "backward.py", "forward.loops", "forward.fused",
        "forward_kernels.c", "forward_wrapper.py", "backward_kernels.c", "backward_wrapper.py",
    },
}  # fmt: skip


@pytest.mark.parametrize("backend", registry.OWN)
def test_each_backend_is_right_and_leaves_the_files_of_its_stages(backend, folder):
    torch.testing.assert_close(outcome(tg.compile(f, backend=backend)), outcome(f))
    graph = folder / "f" / "entry_0" / "graph_0"
    present = {p.name for p in graph.iterdir()}
    assert LEAVES[backend] <= present
    later = set().union(*(LEAVES[b] for b in LEAVES if LEAVES[b] > LEAVES[backend])) - LEAVES[backend]
    assert not later & present


def test_a_backend_of_torch_compile():
    torch.testing.assert_close(outcome(tg.compile(f, backend="eager_noexcept")), outcome(f))


def test_list_backends_starts_with_ours():
    assert tg.list_backends()[:3] == ["eager", "aot_eager", "glass"]


@pytest.mark.parametrize("wrong", [{"backend": "inducter"}, {"mode": "fast"}, {"options": {"speed": 9}}])
def test_wrong_names_are_errors_when_compile_is_called(wrong):
    with pytest.raises(ValueError, match="Valid: '"):
        tg.compile(f, **wrong)
