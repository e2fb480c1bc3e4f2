"""The named passes: what each does, that it is recorded, that it can be left out, and that values never change."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from autodiff_helpers import capture, compare, targets, tensor

from torchglass import autodiff
from torchglass.options import PASSES, CompileOptions


def traced(function, *inputs, off: str = "", training: bool = True):
    options = CompileOptions.make(options={"passes": {off: False}} if off else None)
    trace = autodiff.trace_training if training else autodiff.trace_inference
    return trace(capture(function), list(inputs), options)


def changed(partition, name: str) -> int:
    (record,) = [record for record in partition.passes if record.name == name]
    assert record.before - record.after == len(record.changes) or name in ("fold_constants", "narrow_masks")
    return len(record.changes)


def fold(x):
    return x * torch.arange(4, device=x.device).mul(2).add(1)


def noop_views(x):
    return x.t().t() * x.view(4, 4)


def noop_casts(x):
    return (x * 2).to(torch.float64).to(torch.float32).sin()


def equal(x):
    return x.sin() + x.sin() * x.t() + x.t()


def unread(x):
    x.exp().sum()
    return x * 2


def dropout(x):
    return F.dropout(x.sin(), 0.5) @ x


CASES = {
    "fold_constants": fold,
    "drop_noop_views": noop_views,
    "drop_noop_casts": noop_casts,
    "merge_equal": equal,
    "drop_unread": unread,
    "narrow_masks": dropout,
}


def factories(function):
    """The captured graph with the factory calls in it, which symbolic tracing would run."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    positions = graph.call_function(torch.arange, (4,))
    doubled = graph.call_method("add", (graph.call_method("mul", (positions, 2)), 1))
    graph.output((graph.call_function(torch.mul, (x, doubled)),))
    return torch.fx.GraphModule({}, graph) if function is fold else capture(function)


def test_every_pass_has_a_case():
    assert set(CASES) == set(PASSES)


@pytest.mark.parametrize("name", CASES)
def test_pass_changes_the_graph_and_not_the_values(name):
    function = CASES[name]
    gm = factories(function)
    partition = compare(function, tensor(4, 4), gm=gm)
    assert changed(partition, name) > 0
    options = CompileOptions.make(options={"passes": {name: False}})
    without = autodiff.trace_training(gm, [tensor(4, 4)], options)
    assert name not in [record.name for record in without.passes]
    if name != "narrow_masks":
        assert len(without.joint.graph.nodes) > len(partition.joint.graph.nodes)


def test_folded_chain_is_one_constant():
    partition = autodiff.trace_inference(factories(fold), [tensor(4, 4)])
    assert targets(partition.forward) == ["aten.mul.Tensor"]


def test_what_is_returned_is_not_folded():
    graph = torch.fx.Graph()
    graph.placeholder("x")
    graph.output((graph.call_method("add", (graph.call_function(torch.arange, (4,)), 1)),))
    partition = autodiff.trace_inference(torch.fx.GraphModule({}, graph), [tensor(4)])
    assert "aten.add.Tensor" in targets(partition.forward)


def test_narrowing_cast_stays():
    partition = compare(lambda x: (x * 3).to(torch.float32).to(torch.float64), tensor(4, dtype=torch.float64))
    assert targets(partition.forward).count("aten._to_copy.default") == 2


def test_copy_of_a_result_stays():
    """Eager's meaning of ``clone``: the result may be written to before backward."""
    import torchglass as tg

    def function(x, w):
        y = x.sin()
        return y, y.clone() * w

    grads = []
    for call in (function, tg.compile(function, backend="aot_eager", fullgraph=True)):
        x, w = tensor(4), tensor(4, seed=1)
        y, out = call(x, w)
        y.detach().add_(1)
        out.sum().backward()
        grads.append((x.grad, w.grad))
    for want, got in zip(*grads):
        torch.testing.assert_close(got, want)


def test_random_mask_is_kept_in_bytes():
    partition = traced(dropout, tensor(4, 4))
    (mask,) = [saved for saved in partition.saved if saved.dtype is torch.bool]
    assert mask.bytes == 16 and mask.name.endswith("_mask")
    full = traced(dropout, tensor(4, 4), off="narrow_masks")
    assert full.saved_bytes == partition.saved_bytes + 3 * 16


def test_mask_that_backward_does_not_read_is_not_narrowed():
    partition = traced(lambda x: F.dropout(x.detach(), 0.5) + x, tensor(4, 4))
    assert "aten.ne.Scalar" not in targets(partition.forward)
    assert changed(partition, "narrow_masks") == 0


def test_passes_can_be_turned_off_through_compile():
    import torchglass as tg

    x = tensor(4, 4)
    off = {"passes": dict.fromkeys(PASSES, False)}
    for function in (noop_views, noop_casts, equal, unread):
        compiled = tg.compile(function, fullgraph=True, backend="aot_eager", options=off)
        torch.testing.assert_close(compiled(x), function(x))
