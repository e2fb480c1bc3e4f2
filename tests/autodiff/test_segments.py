"""A backward graph in segments computes what the whole one does, and no segment reads what an earlier one gave away."""

from __future__ import annotations

import pytest
import torch
from tests.autodiff.autodiff_helpers import capture

from torchglass import autodiff


def layers(x, *weights):
    for weight in weights:
        x = torch.tanh(x @ weight)
    return x


def normed(x, scale, shift, weight):
    return torch.nn.functional.layer_norm(x @ weight, (8,), scale, shift)


def added(x, a, b):
    return torch.sin(x) + a + b


def shared(x, first, second):
    return torch.tanh(torch.tanh(x @ first) @ second) @ first


def viewed(x, a, b):
    return (x.reshape(8, 8) @ a.t() + b.reshape(8, 8)).reshape(64)


def picked(x, w, b):
    return (x @ w).amax(1) + b


def gated(x, gate, up, down):
    """The feed-forward part of a transformer."""
    return (torch.nn.functional.silu(x @ gate) * (x @ up)) @ down


def scaled(x, inner, scale, outer):
    """A root mean square norm between two products."""
    x = x @ inner
    return (x * (x.square().mean(1, True) + 0.1).rsqrt() * scale) @ outer


PROGRAMS = {
    "layers": (layers, (8, 8), (8, 8), (8, 8), (8, 8)),
    "normed": (normed, (8, 8), (8,), (8,), (8, 8)),
    "added": (added, (8, 8), (8, 8), (8, 8)),
    "shared": (shared, (8, 8), (8, 8), (8, 8)),
    "viewed": (viewed, (64,), (8, 8), (64,)),
    "picked": (picked, (8, 8), (8, 8), (8,)),
    "gated": (gated, (8, 8), (8, 8), (8, 8), (8, 8)),
    "scaled": (scaled, (8, 8), (8, 8), (8,), (8, 8)),
}


def traced(name):
    function, *shapes = PROGRAMS[name]
    torch.manual_seed(0)
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    arguments = ", ".join(f"x{i}" for i in range(len(inputs)))
    graph = capture(eval(f"lambda {arguments}: function({arguments})", {"function": function}))
    return autodiff.trace_training(graph, inputs), inputs


def values_of(partition, inputs):
    results = partition.forward(*(x.detach() for x in inputs))
    saved = [(inputs if s.place.kind == "input" else results)[s.place.index].detach() for s in partition.saved]
    return [*saved, *(torch.randn(spec.shape) for spec in partition.tangents)]


def in_segments(cut, given, spoil=False):
    """The gradients of all groups; ``spoil``: each is overwritten as soon as its segment has run."""
    slots, found, handed = dict(enumerate(given)), {}, set()
    for segment in cut.segments:
        if segment is not None:
            slots.update(zip(segment.makes, segment.graph(*(slots[slot] for slot in segment.takes))))
        for slot in set(cut.gradients) & slots.keys() - handed:
            found[slot] = slots[slot].clone()
            handed.add(slot)
            if spoil and slot >= len(given):
                slots[slot].fill_(float("nan"))
    return [found[slot] for slot in cut.gradients]


def groupings(inputs):
    forth = list(range(len(inputs)))
    return [
        tuple((index,) for index in forth),
        tuple((index,) for index in reversed(forth)),
        (tuple(forth[::2]), tuple(forth[1::2])),
        (tuple(forth),),
    ]


@pytest.mark.parametrize("name", PROGRAMS)
def test_segments_give_what_the_whole_gives(name):
    partition, inputs = traced(name)
    given = values_of(partition, inputs)
    expected = [gradient.clone() for gradient in partition.backward(*given)]
    for groups in groupings(inputs):
        cut = autodiff.cut(partition, groups)
        assert len(cut.segments) == len(groups)
        for gradient, wanted in zip(in_segments(cut, given), expected, strict=True):
            torch.testing.assert_close(gradient, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["layers", "normed", "shared"])
def test_a_gradient_may_be_overwritten_while_others_are_computed(name):
    partition, inputs = traced(name)
    given = values_of(partition, inputs)
    expected = [gradient.clone() for gradient in partition.backward(*given)]
    for groups in groupings(inputs)[:2]:
        gradients = in_segments(autodiff.cut(partition, groups), given, spoil=True)
        for gradient, wanted in zip(gradients, expected, strict=True):
            torch.testing.assert_close(gradient, wanted, rtol=0, atol=0)


def test_what_two_groups_get_is_copied_for_the_first():
    partition, _ = traced("added")
    cut = autodiff.cut(partition, ((1,), (2,), (0,)))
    by_input = {gradient.input: slot for gradient, slot in zip(partition.gradients, cut.gradients)}
    assert len(set(by_input.values())) == 3
    assert cut.segments[0].graph.graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default)
    assert cut.segments[1] is None or by_input[2] != by_input[1]


def test_a_segment_does_only_what_its_gradients_need():
    partition, _ = traced("layers")
    cut = autodiff.cut(partition, ((3,), (2,), (1,), (0,)))
    products = [
        len(s.graph.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default)) for s in cut.segments
    ]
    assert products == [1, 2, 2, 1]  # a weight's gradient, and what arrives there from the layer behind
    assert all(segment.saved <= 3 for segment in cut.segments)


def test_gradients_are_ready_from_the_last_layer_on():
    """Those of one call at once, as in eager."""
    partition, _ = traced("layers")
    order = sorted(partition.gradients, key=lambda gradient: (gradient.ready, -gradient.input))
    assert [gradient.input for gradient in order] == [3, 2, 1, 0]


def calls(segment, *names):
    """How often a segment calls each of these operators."""
    targets = [str(node.target) for node in segment.graph.graph.nodes if node.op == "call_function"]
    return [sum(f"aten.{name}." in target for target in targets) for name in names]


def test_what_reads_the_same_tensors_is_computed_at_once():
    """The gate's gradient is needed later than the other two, and made of what these are made of."""
    partition, _ = traced("gated")
    first, second = autodiff.cut(partition, ((3, 2), (1, 0))).segments
    assert calls(first, "silu", "silu_backward") == [1, 1]
    assert calls(second, "silu", "silu_backward", "mul") == [0, 0, 0]


def test_nothing_moves_for_which_a_product_would_have_to():
    partition, _ = traced("gated")
    first, second = autodiff.cut(partition, ((3,), (2, 1, 0))).segments
    assert calls(first, "silu", "silu_backward", "mm") == [1, 0, 1]
    assert calls(second, "silu_backward", "mm") == [1, 5]


def test_cheap_results_are_computed_again_beside_their_operands():
    """The norm of the input is an operand of the outer weight's gradient, and read by its own backward."""
    partition, _ = traced("scaled")
    whole = autodiff.cut(partition, ((3, 2, 1, 0),)).segments[0]
    first, second = autodiff.cut(partition, ((3,), (2, 1, 0))).segments
    assert max(second.takes) < len(partition.saved) + len(partition.tangents)  # nothing is handed on
    assert calls(first, "mul")[0] + calls(second, "mul")[0] > calls(whole, "mul")[0]
