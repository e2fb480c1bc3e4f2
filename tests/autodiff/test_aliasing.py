"""Writes to inputs, views and identities: what a pure graph cannot say and the runtime must."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F
from autodiff_helpers import capture, compare, compiled, fresh, tensor

import torchglass as tg
from torchglass import autodiff
from torchglass.records.partition import Computed, InputItself, SameAs, ViewOf
from torchglass.runtime.runtime_wrapper import runtime_wrapper


def test_writes_to_intermediates_disappear():
    def function(x):
        y = x * 2
        y.add_(1)
        y[0].mul_(3)
        y[:, 1] = 5.0
        return y.relu_()

    graph = torch.fx.Graph()
    y = graph.call_function(torch.mul, (graph.placeholder("x"), 2))
    graph.call_method("add_", (y, 1))
    graph.call_method("mul_", (graph.call_function(operator.getitem, (y, 0)), 3))
    graph.call_function(operator.setitem, (y, (slice(None), 1), 5.0))
    graph.output((graph.call_method("relu_", (y,)),))
    partition = compare(function, tensor(3, 4), gm=torch.fx.GraphModule({}, graph))
    calls = [node.target for node in partition.joint.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    assert calls and not any(call._schema.is_mutable for call in calls)


def test_input_without_gradient_is_written():
    def function(x, buffer):
        buffer.mul_(0.9).add_(0.1)
        return x * buffer

    partition = compare(function, tensor(4), tensor(4, grad=False, seed=1))
    assert [(m.input, m.tracked) for m in partition.mutations] == [(1, False)]


def test_input_with_gradient_is_written():
    def function(x, y):
        x.mul_(y)
        return x.sin()

    partition = compare(function, tensor(4), tensor(4, seed=1))
    assert partition.mutations[0].tracked


def test_write_without_grad_mode_is_not_tracked():
    graph = torch.fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    y = graph.call_function(torch.mul, (x, 2))
    graph.call_function(torch._C._set_grad_enabled, (False,))
    graph.call_method("add_", (w, 1))
    graph.call_function(torch._C._set_grad_enabled, (True,))
    graph.output((y,))

    def function(x, w):
        y = x * 2
        with torch.no_grad():
            w.add_(1)
        return y

    partition = compare(function, tensor(4), tensor(4, seed=1), leaf=True, gm=torch.fx.GraphModule({}, graph))
    assert not partition.mutations[0].tracked


def test_write_to_a_view_of_an_input():
    def function(x):
        x[1:3].zero_()
        return x + 1

    compare(function, tensor(4, grad=False))
    compare(function, tensor(4))


def test_old_value_of_a_written_input_is_saved_as_a_copy():
    graph = torch.fx.Graph()
    x, b = graph.placeholder("x"), graph.placeholder("b")
    held = graph.call_method("clone", (b,))
    y = graph.call_function(torch.mul, (x, held))
    graph.call_method("add_", (b, 1))
    graph.output((y,))

    def function(x, b):
        y = x * b.clone()
        b.add_(1)
        return y

    compare(function, tensor(4), tensor(4, grad=False, seed=1), gm=torch.fx.GraphModule({}, graph))


def test_inputs_exchange_values():
    def function(x, y):
        old = x.clone()
        x.copy_(y)
        y.copy_(old)
        return x - y

    compare(function, tensor(4, grad=False), tensor(4, grad=False, seed=1))


def test_input_copied_from_another():
    def function(x, y):
        x.copy_(y)
        return y.sin()

    compare(function, tensor(4, grad=False), tensor(4, grad=False, seed=1))


def test_batch_norm_writes_running_statistics():
    def function(x, w, b, mean, variance, count):
        count.add_(1)
        return F.batch_norm(x, mean, variance, w, b, True, 0.1)

    inputs = tensor(4, 3, 2, 2), tensor(3), tensor(3, seed=1), torch.zeros(3), torch.ones(3), torch.tensor(0)
    partition = compare(function, *inputs)
    assert sorted(m.input for m in partition.mutations) == [3, 4, 5]


def test_batch_norm_with_fixed_statistics():
    def function(x, w, b, mean, variance):
        return F.batch_norm(x, mean, variance, w, b, False)

    partition = compare(function, tensor(4, 3, 2, 2), tensor(3), tensor(3, seed=1), torch.zeros(3), torch.ones(3))
    assert partition.mutations == ()


def test_output_is_an_input():
    partition = compare(lambda x, y: (x, y, x * 2), tensor(4), tensor(3, grad=False))
    assert partition.outputs[:2] == (InputItself(0), InputItself(1))


def test_the_same_tensor_twice():
    def function(x):
        y = x.sin()
        return y, y

    partition = compare(function, tensor(4))
    assert partition.outputs == (Computed(0, True), SameAs(0))


def test_equal_results_stay_two_tensors():
    compare(lambda x: (x.sin(), x.sin()), tensor(4))
    compare(lambda x: (x.sin().view(2, 2), x.sin().view(2, 2)), tensor(4))


def test_views_of_inputs():
    partition = compare(lambda x: (x.t(), x[0], x.view(-1), x + 1), tensor(3, 4), exact=False)
    assert all(isinstance(output, ViewOf) for output in partition.outputs[:3])


def test_views_of_results():
    def function(x):
        y = x.exp()
        return y, y[0], y.t()

    compare(function, tensor(3, 4))


def test_views_of_a_result_that_is_not_returned():
    def function(x):
        y = x.exp()
        return y[0], y[1:].t()

    compare(function, tensor(3, 4))


def test_views_of_a_written_input():
    def function(x):
        x.add_(1)
        return x[1], x

    compare(function, tensor(3, 4, grad=False))
    compare(function, tensor(3, 4))


def test_pieces_of_a_split():
    def function(x):
        a, b = (x * 2).split(2, dim=1)
        return a, b

    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.mul, (x, 2))
    parts = graph.call_method("split", (y, 2), {"dim": 1})
    graph.output(tuple(graph.call_function(operator.getitem, (parts, i)) for i in range(2)))
    compare(function, tensor(3, 4), gm=torch.fx.GraphModule({}, graph))


def test_detached_outputs():
    partition = compare(lambda x: (x.detach(), x.sin(), x.sin().detach()), tensor(4))
    assert partition.outputs[0].detached

    def function(x):
        y = x.sin()
        return y, y.detach()

    compare(function, tensor(4))


def test_outputs_that_need_no_gradient():
    partition = compare(lambda x, y: (x.argmax(-1), x * 2, y + 1, x > 0), tensor(3, 4), tensor(3, grad=False))
    assert partition.differentiable == (1,)


def test_plain_values_among_outputs():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.sin, (x,)), None, 3))
    compare(lambda x: (x.sin(), None, 3), tensor(4), gm=torch.fx.GraphModule({}, graph))


def test_copy_into_a_fresh_tensor_is_a_tensor_of_its_own():
    compare(lambda x: (torch.empty(4).copy_(x), x * 1), tensor(4))

    def function(x):
        y = x.sin()
        return y, torch.empty(4).copy_(y)

    compare(function, tensor(4))


PARTED = {
    "of an input": lambda x: torch.unsafe_split(x, 2),
    "with sizes, turned": lambda x: [part.t()[1:] for part in x.unsafe_split_with_sizes([2, 4])],
    "of a result": lambda x: (lambda y: (*torch.unsafe_chunk(y, 3), y, y.t()))(x * 2),
    "beside a copy": lambda x: (torch.unsafe_chunk(x, 2)[0], torch.empty(3, 4).copy_(torch.unsafe_chunk(x, 2)[0])),
    "written": lambda x: (lambda y: [part.mul_(2) for part in torch.unsafe_chunk(y, 2)])(x + 1),
}


@pytest.mark.parametrize("name", PARTED)
@pytest.mark.parametrize("grad", [False, True])
def test_parts_show_the_memory_of_the_whole(name, grad):
    """Not that they are views to autograd: writing to one is allowed, and seen in the whole."""
    x, function = tensor(6, 4, grad=grad), PARTED[name]

    def shown(results):
        start = x.untyped_storage().data_ptr()
        whole = [r.untyped_storage().data_ptr() == start or len(r) == 6 for r in results]
        gradient = torch.autograd.grad(sum(r.sin().sum() for r in results), x)[0] if grad else x
        return [(r, r.stride(), r._is_view(), w) for r, w in zip(results, whole)], gradient

    torch.testing.assert_close(shown(tg.compile(function, fullgraph=True)(x)), shown(function(x)))


def test_written_input_that_overlaps_another_runs_eagerly():
    def function(x, y):
        x.add_(1)
        return y * 2

    gm = capture(function)
    partition = autodiff.trace_inference(gm, [tensor(4, grad=False), tensor(2, grad=False)])
    call = runtime_wrapper(partition, lambda ts: partition.forward(*ts), lambda chosen: None, lambda *ts: (gm(*ts),))
    whole = torch.zeros(4)
    (result,) = call(whole, whole[:2])
    torch.testing.assert_close(result, torch.full((2,), 2.0))
    (result,) = call(torch.zeros(4), torch.zeros(2))
    torch.testing.assert_close(result, torch.zeros(2))


def test_writing_to_a_result_that_shows_a_saved_tensor_is_an_error():
    def function(x, w, b):
        y = F.linear(x, w, b)
        return y, F.gelu(y)

    inputs = tensor(2, 3, 4), tensor(5, 4), tensor(5)
    partition = compare(function, *inputs)
    assert partition.watched == (0,)
    y, z = compiled(partition)(*map(fresh, inputs))
    y.detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_shape_changed_in_place_is_refused():
    with pytest.raises(autodiff.AutodiffError, match="in place"):
        autodiff.trace_training(capture(lambda x: x.t_() * 1), [tensor(3, 4, grad=False)])


def flattened_before(x):
    y = x * 1
    v = y.view(-1)
    y.transpose_(0, 1)
    return v * 2, y


def flattened_and_returned(x):
    y = x * 1
    v = y.view(-1)
    y.swapaxes_(0, 1)
    return v, y, y.view_as(y)


def a_row_before(x):
    y = x * 1
    v = y[0]
    y.t_()
    return v * 2, y


def written_through_the_view(x):
    y = x * 1
    v = y[0]
    y.unsqueeze_(0)
    v.mul_(3)
    return v * 2, y * 1


def written_when_turned(x):
    y = x * 1
    v = y[0]
    y.t_().mul_(2)
    return v * 2, y * 1


def turned_twice(x):
    y = x * 1
    y.t_()
    v = y[0]
    y.t_()
    return v * y[0, 0], y


def requires_grad_later(x):
    y = torch.zeros(3, 3)
    v = y[0]
    y.t_()
    v.add_(x[1])
    return v * 2, y * x


@pytest.mark.parametrize(
    "function",
    [flattened_before, flattened_and_returned, a_row_before, written_through_the_view, written_when_turned,
     turned_twice, requires_grad_later],
)  # fmt: skip
def test_turned_in_place_after_views_were_made(function):
    """Autograd makes the histories of these views anew, from the tensor as it is now."""

    def ran(function):
        x = fresh(tensor(3, 3))
        results = function(x)
        sum((r * torch.arange(r.numel()).view(r.shape)).sum() for r in results).backward()
        return results, x.grad

    torch.testing.assert_close(ran(tg.compile(function, fullgraph=True)), ran(function), check_stride=True)


def test_writing_a_result_in_place_afterwards():
    partition = autodiff.trace_training(capture(lambda x: x * 3), [tensor(4)])
    x = fresh(tensor(4))
    (y,) = compiled(partition)(x)
    y.add_(1).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((4,), 3.0))


def test_sparse_results_are_refused():
    with pytest.raises(autodiff.AutodiffError, match="sparse"):
        autodiff.trace_training(capture(lambda x: x.to_sparse()), [tensor(3, 4)])


@pytest.mark.complains("torchglass could not compile")
def test_sparse_gradients_run_eagerly():
    import torchglass as tg

    ids = torch.tensor([1, 2, 1])
    grads = []
    for call in (F.embedding, tg.compile(lambda ids, w, sparse: F.embedding(ids, w, sparse=sparse))):
        w = tensor(5, 4)
        call(ids, w, sparse=True).sum().backward()
        grads.append(w.grad)
    assert all(grad.is_sparse for grad in grads)
    torch.testing.assert_close(grads[1].to_dense(), grads[0].to_dense())


class Reversed(torch.autograd.Function):
    """The argument, with gradients reversed."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


class Put(torch.autograd.Function):
    """``value`` written to a row of ``rows`` behind autograd's back, which torchdiffeq does."""

    @staticmethod
    def forward(ctx, rows, value, index):
        ctx.index = index
        rows.data[index] = value
        return rows

    @staticmethod
    def backward(ctx, gradient):
        return gradient, gradient[ctx.index], None


def reversed_input(x):
    return Reversed.apply(x), x + 1


def reversed_result(x):
    y = x * 2
    return y, Reversed.apply(y), Reversed.apply(y[0])


def reversed_before_a_break(x):
    y = Reversed.apply(x).t()
    tg.graph_break()
    return y * 2


def of_its_own_memory(x):
    y = x.detach()
    return x * 1, y.mul_(x.sum().sin())


@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
@pytest.mark.parametrize("function", [reversed_input, reversed_result, reversed_before_a_break, of_its_own_memory])
def test_outputs_that_show_others_memory_and_have_gradients_of_their_own(function, backend):
    def outcome(run):
        x = tensor(2, 3)
        y = x * 1.5
        outputs = run(y)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        sum((out.sin() * (n + 1)).sum() for n, out in enumerate(outputs)).backward()
        memory = [value.untyped_storage().data_ptr() for value in (y, *outputs)]
        return x.grad, [memory.index(place) for place in memory], *outputs

    torch.testing.assert_close(outcome(tg.compile(function, backend=backend)), outcome(function))


@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
def test_rows_written_behind_autograds_back(backend):
    def add(rows, x, w, index):
        return Put.apply(rows, torch.tanh((x + rows[:index].sum(0)) @ w), index)

    def outcome(run):
        x, w = tensor(3), tensor(3, 3, seed=1)
        rows = torch.zeros(4, 3)
        for index in range(4):
            rows = run(rows, x, w, index)
        rows.square().sum().backward()
        return rows, x.grad, w.grad

    torch.testing.assert_close(outcome(tg.compile(add, backend=backend)), outcome(add))


@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
@pytest.mark.parametrize("grad", [False, True])
def test_writes_through_data_move_no_version_counter(grad, backend):
    def function(x, y):
        x.data[0] = 2.0
        y.add_(1)
        return x * 3

    x, y = tensor(3, grad=grad), tensor(3, grad=False)
    tg.compile(function, backend=backend)(x, y)
    assert (x[0].item(), x._version, y._version) == (2.0, 0, 1)


SHORT, INT = torch.int16, torch.int32
IN_OTHER_DTYPES = {
    "view first": lambda y: (y.view(SHORT), y),
    "part of it": lambda y: (y.view(SHORT), y[1:], y),
    "base dropped": lambda y: (y.view(SHORT), y.view(INT)),
    "turned": lambda y: (y[0].view(SHORT), y.view(INT), y.t()),
}


@pytest.mark.parametrize("show", IN_OTHER_DTYPES.values(), ids=IN_OTHER_DTYPES)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("make", [lambda x: x + 1, lambda x: (x * 2).argsort(-1)], ids=["floats", "integers"])
def test_views_of_a_result_in_other_dtypes(show, grad, make):
    """Whichever is returned first, and if the result itself is not."""
    x = tensor(2, 4, grad=grad)
    got, wanted = tg.compile(lambda x: show(make(x)), fullgraph=True)(x), show(make(x))
    for one, other in zip(got, wanted):
        assert torch.equal(one, other) and one.dtype is other.dtype and one.requires_grad == other.requires_grad
        assert one.stride() == other.stride() and one.storage_offset() == other.storage_offset()
    assert len({one.untyped_storage().data_ptr() for one in got}) == 1


@pytest.mark.parametrize("requires_grad", [False, True])
def test_what_is_detached_is_no_view(requires_grad):
    def function(x):
        y = x * 2
        return x.detach(), x.view(-1).detach(), y, y.detach(), x.detach().t()

    tg.reset()
    x = tensor(3, 4).requires_grad_(requires_grad)
    for got, want in zip(tg.compile(function)(x), function(x)):
        assert (got._is_view(), got._base is None) == (want._is_view(), want._base is None)
        assert got.requires_grad == want.requires_grad
    tg.compile(function)(x)[0].detach_()
