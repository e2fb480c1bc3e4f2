"""Control flow as operators (``torch.cond`` and its kin), captured whole, forward and backward, on every backend.

The expected values are those of the Python that PyTorch's documentation says each operator is equivalent to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from tests.run_files import run_files
from torch import _higher_order_ops as ops
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

import torchglass as tg

BACKENDS = ("eager", "aot_eager", "glass")
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {}


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(*shape)


def program(*inputs: torch.Tensor) -> Callable[[Any], Any]:
    def enter(function: Any) -> Any:
        PROGRAMS[function.__name__] = function, inputs
        return function

    return enter


def plain_cond(pred, true_fn, false_fn, operands=()):
    return true_fn(*operands) if pred else false_fn(*operands)


def plain_while_loop(cond_fn, body_fn, carried_inputs):
    values = carried_inputs
    while cond_fn(*values):
        values = body_fn(*values)
    return values


def plain_map(f, xs, *args):
    leaves, spec = tree_flatten(xs)
    given = [f(tree_unflatten([leaf[n] for leaf in leaves], spec), *args) for n in range(len(leaves[0]))]
    return tree_map(lambda *parts: torch.stack(parts), *given)


def plain_scan(combine_fn, init, xs, *, dim=0, reverse=False):
    leaves, spec = tree_flatten(xs)
    order = range(leaves[0].shape[dim])
    carry, given = init, []
    for n in reversed(order) if reverse else order:
        carry, out = combine_fn(carry, tree_unflatten([leaf.select(dim, n) for leaf in leaves], spec))
        given.append(out)
    return carry, tree_map(
        lambda *parts: torch.stack(parts, dim if dim <= parts[0].dim() else 0), *(given[::-1] if reverse else given)
    )


PLAIN: dict[tuple[Any, str], Any] = {
    (torch, "cond"): plain_cond,
    (ops, "while_loop"): plain_while_loop,
    (ops, "map"): plain_map,
    (ops, "scan"): plain_scan,
}


class Linear(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.yes, self.no = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.register_buffer("scale", torch.tensor(3.0))

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.yes(x) * self.scale, lambda x: self.no(x).relu(), (x,))


MODEL = Linear()


class Pair(NamedTuple):
    left: Any
    right: Any


@program(torch.linspace(-1, 1, 4))
def cond_of_the_documentation(x):
    def true_fn(x: torch.Tensor):
        return x.cos()

    def false_fn(x: torch.Tensor):
        return x.sin()

    return torch.cond(x.shape[0] > 4, true_fn, false_fn, (x,))


@program(ones(4))
def cond_by_data(x):
    return torch.cond(x.sum() > 2, lambda x: x.cos() + x.sin(), lambda x: x.sin(), (x,))


@program(ones(4), ones(4))
def cond_that_reads_one_of_two(x, y):
    return torch.cond(x.sum() > 2, lambda x, y: x.cos(), lambda x, y: y.sin() * x, (x, y))


@program(ones(3, 4))
def cond_with_parameters(x):
    return MODEL(x)


@program(ones(4))
def cond_over_what_it_closes_over(x):
    z, factor = x.exp(), float(x.shape[0])
    return torch.cond(x.sum() > 2, lambda: z * factor, lambda: x - factor) + z


@program(ones(2, 3))
def cond_with_trees(x):
    def yes(tree):
        left, (right,) = tree["pair"]
        return {"a": left * right, "b": (left.sum(), [right.t().contiguous()])}

    def no(tree):
        left, (right,) = tree["pair"]
        return {"a": left + right, "b": (right.mean(), [left.t().contiguous()])}

    found = torch.cond(x[0, 0] > 0, yes, no, ({"pair": Pair(x.sin(), (x.cos(),))},))
    return found["a"], found["b"]


@program(ones(4))
def cond_in_cond(x):
    def inner(x):
        return torch.cond(x.max() > 2, lambda x: x * 3, lambda x: x.tanh(), (x * 2,))

    return torch.cond(x.sum() > 2, inner, lambda x: x.exp(), (x,)).sum()


@program(ones(4))
def cond_of_other_layouts(x):
    square = x[:, None] * x[None]
    found = torch.cond(x.sum() > 2, lambda s: s.t() * s.t(), lambda s: s + 1, (square,))
    return found.reshape(-1) * 2


@program(ones(4))
def cond_of_integers_and_one_that_hangs_on_nothing(x):
    def yes(x):
        return x.argsort(), torch.ones(4)

    def no(x):
        return x.argsort().flip(0), x * 2

    order, values = torch.cond(x.sum() > 2, yes, no, (x,))
    return values[order] * x


@program(ones(4))
def cond_whose_result_is_written_to(x):
    found = torch.cond(x.sum() > 2, lambda x: x.sin(), lambda x: x + 1, (x * 1,))
    found.mul_(2)
    found[1] = 0
    return found


@program(ones(4))
def cond_without_gradients_within(x):
    def yes(x):
        with torch.no_grad():
            scale = x.exp()
        return x * scale

    return torch.cond(x.sum() > 2, yes, lambda x: x.detach() * x, (x,))


@program(torch.zeros(1), torch.linspace(0, 1, 12).view(3, 4))
def while_loop_of_the_documentation(i, x):
    def cond_fn(iter, x):
        return iter.sum() < 10

    def body_fn(iter, x):
        return iter.abs() + 1, x.sin()

    return ops.while_loop(cond_fn, body_fn, (i, x))


@program(torch.linspace(0, 1, 12).view(3, 4))
def while_loop_counted_by_an_integer(x):
    def cond_fn(int_iter, x):
        return 2 * int_iter < x.shape[0]

    def body_fn(int_iter, x):
        return int_iter + 1, x + int_iter

    return ops.while_loop(cond_fn, body_fn, (0, x))[1]


@program(torch.tensor(3), ones(2, 4))
def while_loop_with_parameters(n, x):
    offset = x.exp()

    def body(state):
        return {"n": state["n"] - 1, "x": MODEL.yes(state["x"]).tanh() + offset * state["n"]}

    return ops.while_loop(lambda state: state["n"] > 0, lambda state: (body(state),), ({"n": n, "x": x},))[0]["x"]


@program(ones(4))
def while_loop_without_a_round(x):
    return ops.while_loop(lambda x: x.sum() > 100, lambda x: (x * 2,), (x,))[0] * 3


@program(torch.linspace(0, 1, 6).view(2, 3), torch.linspace(1, 2, 6).view(2, 3), ones(3))
def map_of_the_documentation(left, right, const):
    def f(xs):
        return xs[0] * xs[1] + const

    return ops.map(f, [left, right])


@program(torch.linspace(0, 1, 24).view(2, 3, 4), ones(4))
def map_in_map(x, y):
    def inner(row, y):
        return {"a": row.cos().add_(1.0) * y, "b": MODEL.no(row)}

    return ops.map(lambda block, y: ops.map(inner, block, y), x, y)


@program(torch.zeros(1), torch.arange(5.0))
def scan_of_the_documentation(i0, xs):
    def add(x: torch.Tensor, y: torch.Tensor):
        next_carry = y = x + y
        return next_carry, y.clone()

    return ops.scan(add, init=i0, xs=xs)


@program(torch.linspace(0, 1, 20).view(5, 4).t(), ones(4))
def scan_of_a_recurrent_cell(x, h):
    def cell(h, x):
        new = (MODEL.yes(h) + x.sum()).tanh()
        return new, {"out": new * h, "sum": new.sum() + x.sum()}

    return ops.scan(cell, h, x, dim=1)


@program(torch.linspace(0, 1, 20).view(5, 4), ones(4))
def scan_in_reverse(x, h):
    def step(carry, row):
        total, count = carry
        return (total * 0.5 + row, count + 1), total * row

    return ops.scan(step, (h, torch.zeros((), dtype=torch.int64)), x, reverse=True)


@program(torch.linspace(0, 1, 12).view(3, 4))
def cond_in_scan_in_no_grad_region(x):
    def step(total, row):
        new = torch.cond(row.sum() > 1, lambda t: t * 2, lambda t: t + 1, (total,))
        return new + row, new * 3

    return ops.scan(step, x[0] * 0, x)


def results(function: Callable[..., Any], inputs: tuple[torch.Tensor, ...], training: bool) -> list[torch.Tensor]:
    """What a program gives, and the gradients of its inputs and of the model; zeros where there are none."""
    MODEL.zero_grad()
    given = [x.clone().requires_grad_(training and x.is_floating_point()) for x in inputs]
    found = [leaf for leaf in tree_leaves(function(*given)) if isinstance(leaf, torch.Tensor)]
    if training:
        ends = [leaf for leaf in found if leaf.requires_grad]
        torch.autograd.backward([(end * torch.arange(1, end.numel() + 1).view(end.shape)).sum() for end in ends])
    leaves = [*given, *MODEL.parameters()] if training else []
    return [leaf.detach() for leaf in found] + [torch.zeros_like(x) if x.grad is None else x.grad for x in leaves]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, first = PROGRAMS[name]
    compiled = tg.compile(function, backend=backend, fullgraph=True)
    for training in (False, True):
        for sign in (1, -1):
            inputs = tuple(x * sign if x.is_floating_point() else x for x in first)
            found = results(compiled, inputs, training)
            with monkeypatch.context() as patch:
                for (home, attribute), plain in PLAIN.items():
                    patch.setattr(home, attribute, plain)
                expected = results(function, inputs, training)
            torch.testing.assert_close(found, expected)
    tg.reset()


def test_the_gradient_of_what_no_branch_read_is_zeros() -> None:
    function, _ = PROGRAMS["cond_that_reads_one_of_two"]
    for backend in BACKENDS:
        x, y = ones(4).requires_grad_(), ones(4).requires_grad_()
        tg.compile(function, backend=backend)(x, y).sum().backward()
        assert y.grad is not None and not y.grad.any(), backend


def test_a_backend_gets_what_torch_compile_would_give() -> None:
    graphs = []

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    function, (x,) = PROGRAMS["cond_by_data"]
    for sign in (1, -1):
        torch.testing.assert_close(tg.compile(function, backend=backend)(sign * x), function(sign * x))
    (node,) = graphs[0].graph.find_nodes(op="call_function", target=torch.ops.higher_order.cond)
    assert [arg.target for arg in node.args[1:3]] == ["cond_true_0", "cond_false_0"]
    assert isinstance(graphs[0].cond_true_0, torch.fx.GraphModule)


def test_files_run_alone(tmp_path: Any) -> None:
    with tg.prepare_debug(str(tmp_path)):
        function, (x,) = PROGRAMS["cond_in_cond"]
        tg.compile(function)(x.clone().requires_grad_()).backward()
    files = [*tmp_path.rglob("captured.py"), *tmp_path.rglob("*ward.py"), *tmp_path.rglob("*_wrapper.py")]
    assert len(files) > 5
    run_files(files)


REFUSED = {
    "an operand": lambda x: torch.cond(x.sum() > 0, lambda x: x, lambda x: x.cos(), (x,)),
    "a write": lambda x: torch.cond(x.sum() > 0, lambda x: x.add_(1).sin(), lambda x: x.cos(), (x,)),
    "other dtypes": lambda x: torch.cond(x.sum() > 0, lambda x: x.int(), lambda x: x.cos(), (x,)),
    "numbers": lambda x: torch.cond(x.sum() > 0, lambda x: (x.sin(), 1.5), lambda x: (x.cos(), 1.5), (x,)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_pytorch_refuses_raises_as_there(name: str) -> None:
    with pytest.raises(Exception) as expected:
        REFUSED[name](ones(3))
    with pytest.raises(Exception) as found:
        tg.compile(REFUSED[name])(ones(3))
    assert type(found.value) is type(expected.value)
