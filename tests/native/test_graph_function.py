"""GraphFunction: a compiled graph's node in the autograd graph (csrc/graph_function.cpp)."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest
import torch
from torch.autograd import forward_ad

from torchglass._native import GraphFunction, below_autograd


def doubled(backward=lambda saved, tangents: [2 * tangents[0]], **changed):
    """``2 * x`` as a graph that saves x."""
    settings = {"inputs": 1, "saved": (0,), "kept": 1, "gradients": (0,), "differentiable": (0,), "returned": 1}
    return GraphFunction(lambda tensors: (2 * tensors[0],), backward, **{**settings, **changed})


def leaf():
    return torch.arange(4.0).requires_grad_()


def test_forward_and_backward():
    x, seen = leaf(), []

    def backward(saved, tangents):
        seen.append((saved, tangents))
        return [2 * tangents[0]]

    (y,) = doubled(backward)(x)
    assert type(y.grad_fn).__name__ == y.grad_fn.name() == "CompiledGraphBackward"
    assert y.grad_fn.saved_tensors[0].equal(x) and len(y.grad_fn.next_functions) == 1
    (gradient,) = torch.autograd.grad(y, x, torch.ones(4))
    assert gradient.equal(torch.full((4,), 2.0)) and not gradient.requires_grad
    ((saved, tangents),) = seen
    assert saved[0].equal(x) and tangents[0].equal(torch.ones(4))


@pytest.mark.parametrize("tracked", ["no_grad", "no input requires one"])
def test_nothing_is_recorded(tracked):
    x = leaf() if tracked == "no_grad" else torch.ones(4)
    with torch.set_grad_enabled(tracked != "no_grad"):
        (y,) = doubled()(x)
    assert not y.requires_grad and y.grad_fn is None


def test_backward_twice():
    x = leaf()
    (y,) = doubled()(x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert x.grad.equal(torch.full((4,), 4.0))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.sum().backward()
    (y,) = doubled(saved=(), kept=0)(x)  # where nothing is saved eager allows it, too
    y.sum().backward()
    y.sum().backward()


def test_what_spent_results_read_is_freed():
    """Two results: the first reads x, the second y, both read z."""
    seen = []

    def backward(saved, tangents):
        seen.append([value is None for value in saved])
        return [tangents[0], tangents[1], None]

    def make(**changed):
        settings = {"kills": ((0,), (1,)), "uses": ((0,), (1,), (0, 1))}
        places = (3, (0, 1, 2), 3, (0, 1, 2), (0, 1), 2)
        return GraphFunction(lambda t: (t[0] * 1, t[1] * 1), backward, *places, **{**settings, **changed})

    first, second = make()(leaf(), leaf(), leaf())
    first.sum().backward()
    with pytest.raises(RuntimeError, match="a second time"):
        first.sum().backward()
    second.sum().backward()
    assert seen[0] == [False, False, False] and seen[-1] == [True, False, False]
    assert second.grad_fn.saved_tensors == (None, None, None)
    for wrong in ({"kills": None}, {"uses": ((0,),)}, {"kills": ((0,), (2,))}, {"uses": ((0,), (1,), (-1,))}):
        with pytest.raises(ValueError):
            make(**wrong)
    with pytest.raises(TypeError):
        make(uses=((0,), (1,), 0))


@pytest.mark.parametrize("place", ["input", "result"])
def test_a_write_to_what_is_saved_is_noticed(place):
    x = leaf()
    (y,) = doubled(saved=(0,) if place == "input" else (1,))(x)
    with torch.no_grad():
        (x if place == "input" else y).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_watched_values_are_not_handed_over():
    x, counts = leaf(), []
    (y,) = doubled(lambda saved, tangents: counts.append(len(saved)) or tangents, saved=(0, 1), kept=1)(x)
    y.sum().backward()
    assert counts == [1]


def test_results_that_others_hold():
    """A graph may return its input; the input itself gets no history."""
    x, w = torch.ones(4), leaf()
    graph = GraphFunction(lambda tensors: (tensors[0],), lambda saved, tangents: [tangents[0]], 2, (), 0, (1,), (0,), 1)
    (y,) = graph(x, w)
    assert y.requires_grad and not x.requires_grad and y.data_ptr() == x.data_ptr()
    held = torch.ones(4)
    results = (held,)
    graph = GraphFunction(lambda tensors: results, lambda saved, tangents: tangents, 1, (), 0, (0,), (0,), 1)
    assert graph(w)[0].requires_grad


def test_missing_gradients_and_odd_tangents():
    x, seen = torch.arange(4.0).to(torch.complex64).requires_grad_(), []

    def backward(saved, tangents):
        seen.append(tangents[:])
        return [tangents[0]]

    graph = GraphFunction(lambda tensors: (2 * tensors[0], 3 * tensors[0]), backward, 1, (), 0, (0,), (0, 1), 2)
    y, _ = graph(x)
    torch.autograd.grad(y, x, torch.ones(4, dtype=torch.complex64).conj())
    assert seen[0][1] is None and not seen[0][0].is_conj()


@pytest.mark.parametrize(
    "backward, error",
    [
        (lambda saved, tangents: 1 / 0, ZeroDivisionError),
        (lambda saved, tangents: [], RuntimeError),
        (lambda saved, tangents: [3], TypeError),
        (lambda saved, tangents: 3, TypeError),
        (lambda saved, tangents: [torch.ones(5)], RuntimeError),
    ],
)
def test_backwards_that_fail(backward, error):
    (y,) = doubled(backward)(leaf())
    with pytest.raises(error):
        y.sum().backward()


@pytest.mark.parametrize(
    "changed, error",
    [
        ({"inputs": 2}, TypeError),
        ({"saved": (7,)}, IndexError),
        ({"returned": 1, "differentiable": (1,)}, ValueError),
        ({"gradients": (1,)}, ValueError),
        ({"gradients": (-1,)}, ValueError),
        ({"gradients": ("a",)}, TypeError),
        ({"kept": 2}, ValueError),
    ],
)
def test_what_does_not_fit_is_refused(changed, error):
    with pytest.raises(error):
        doubled(**changed)(leaf())


def test_forwards_that_fail():
    for forward, error in ((lambda t: 1 / 0, ZeroDivisionError), (lambda t: 3, TypeError), (lambda t: (3,), TypeError)):
        with pytest.raises(error):
            GraphFunction(forward, None, 1, (), 0, (0,), (0,), 1)(leaf())


def test_hooks_of_saved_tensors():
    x, packed = leaf(), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or 7, lambda n: torch.full((4,), n * 1.0)):
        (y,) = doubled(lambda saved, tangents: [saved[0] * tangents[0]])(x)
    y.sum().backward()
    assert len(packed) == 1 and x.grad.equal(torch.full((4,), 7.0))

    def refuses(tensor):
        raise LookupError("no")

    with pytest.raises(LookupError), torch.autograd.graph.saved_tensors_hooks(refuses, lambda t: t):
        doubled()(x)


def test_hooks_of_results_and_nodes():
    x, order = leaf(), []
    (y,) = doubled()(x)
    y.register_hook(lambda g: order.append("tensor") or g * 3)
    y.grad_fn.register_prehook(lambda g: order.append("before"))
    y.grad_fn.register_hook(lambda given, arrived: order.append("after"))
    y.retain_grad()
    y.sum().backward()
    assert order == ["tensor", "before", "after"]
    assert x.grad.equal(torch.full((4,), 6.0)) and y.grad.equal(torch.full((4,), 3.0))


def test_in_forward_mode_another_function_runs():
    called = []
    graph = doubled(fallback=lambda *inputs: called.append(inputs) or ("other",))
    with forward_ad.dual_level():
        assert graph(leaf()) == ("other",)
    assert torch.func.vmap(lambda t: called.append(graph(t)) or t)(torch.ones(2, 3)) is not None
    assert len(called) == 3 and called[-1] == ("other",)


def test_nothing_leaks():
    class Held:
        pass

    held = Held()
    gone = weakref.ref(held)
    x = leaf()
    graph = doubled(lambda saved, tangents, held=held: [2 * tangents[0]])
    (y,) = graph(x)
    del held, graph
    assert gone() is not None  # the node runs it still
    y.sum().backward()
    (y,) = doubled()(x)
    torch.autograd.grad(y, x, y)  # the first call imports modules
    references = sys.getrefcount(None)
    for _ in range(1000):
        (y,) = doubled()(x)
        torch.autograd.grad(y, x, y)
    assert abs(sys.getrefcount(None) - references) < 500
    del y
    gc.collect()
    assert gone() is None


def test_below_autograd():
    x = leaf()
    assert not below_autograd(lambda tensors: [tensors[0] * 2], [x])[0].requires_grad
    with pytest.raises(TypeError):
        below_autograd(lambda tensors: tensors)


@pytest.mark.filterwarnings("ignore")
def test_under_compiled_autograd():
    from torch._dynamo import compiled_autograd

    x, calls = leaf(), []

    def backward(saved, tangents):
        calls.append(len(saved))
        return [2 * tangents[0]]

    for factor in (1.0, 3.0):
        x.grad = None
        (y,) = doubled(backward)(x)
        with compiled_autograd._enable(lambda gm: gm):
            (y * factor).sum().backward()
        assert x.grad.equal(torch.full((4,), 2.0 * factor))
    assert calls == [1, 1]


class Switch:
    on = None


def in_chain(links, **changed):
    """``x, w -> 2 * x * w``, whose backward is in a chain where Switch.on is something."""
    settings = {"inputs": 2, "saved": (0, 1), "kept": 2, "gradients": (0, 1), "differentiable": (0,), "returned": 1}
    whole = lambda saved, tangents: [2 * saved[1] * tangents[0], 2 * saved[0] * tangents[0]]
    forward = lambda tensors: (2 * tensors[0] * tensors[1],)
    return GraphFunction(forward, whole, chain=(Switch, "on", links), **{**settings, **changed})


def two_nodes(log):
    def links(on, inputs):
        waiting = {}

        def first(saved, tangents):
            log.append(("first", [tuple(x.shape) for x in saved]))
            waiting["x"] = 2 * saved[1] * tangents[0]
            return [2 * saved[0] * tangents[0], None]

        def second(saved, tangents):
            log.append(("second", saved, tangents))
            return [waiting.pop("x")]

        log.append((on, len(inputs)))
        return ((first, (1,)), (second, (0,)))

    return links


def test_a_chain_runs_node_by_node(monkeypatch):
    log, x, w = [], leaf(), leaf()
    graph = in_chain(two_nodes(log))
    graph(x, w)[0].sum().backward()
    assert log == []  # it was not asked
    expected, x.grad, w.grad = (x.grad, w.grad), None, None
    monkeypatch.setattr(Switch, "on", "it")
    w.register_post_accumulate_grad_hook(lambda w: log.append("w is there"))
    (y,) = graph(x, w)
    assert [node.name() for node, _ in y.grad_fn.next_functions] == [
        "torch::autograd::AccumulateGrad",
        y.grad_fn.name(),
    ]
    y.sum().backward()
    assert log == [("it", 2), ("first", [(4,), (4,)]), "w is there", ("second", [], [None])]
    assert x.grad.equal(expected[0]) and w.grad.equal(expected[1])
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_nodes_of_a_chain_that_nobody_needs_do_not_run(monkeypatch):
    log, x, w = [], leaf(), leaf()
    monkeypatch.setattr(Switch, "on", "it")
    (y,) = in_chain(two_nodes(log))(x, w)
    torch.autograd.grad(y.sum(), w)
    assert [event[0] for event in log] == ["it", "first"]


@pytest.mark.parametrize(
    "rows, message",
    [
        ([], "a tuple of rows"),
        ((), "a tuple of rows"),
        (((len,),), r"\(backward, gradients\)"),
        (((len, (7,)),), "no value has index 7"),
    ],
)
def test_a_chain_that_does_not_fit(monkeypatch, rows, message):
    monkeypatch.setattr(Switch, "on", "it")
    with pytest.raises((TypeError, ValueError, RuntimeError), match=message):
        in_chain(lambda on, inputs: rows)(leaf(), leaf())


def test_a_chain_that_fails(monkeypatch):
    def fail(on, inputs):
        raise KeyError("buckets")

    monkeypatch.setattr(Switch, "on", "it")
    with pytest.raises(KeyError, match="buckets"):
        in_chain(fail)(leaf(), leaf())
    with pytest.raises(TypeError, match="chain is"):
        GraphFunction(tuple, None, 1, (), 0, (), (), 1, chain=(1, 2))


def test_a_chain_of_one_or_none(monkeypatch):
    monkeypatch.setattr(Switch, "on", "it")
    for rows in (None, ((lambda saved, tangents: [tangents[0], tangents[0]], (0, 1)),)):
        x, w = leaf(), leaf()
        in_chain(lambda on, inputs, rows=rows: rows)(x, w)[0].sum().backward()
        assert x.grad is not None and w.grad is not None


def test_a_chain_is_freed(monkeypatch):
    class Backward:
        def __call__(self, saved, tangents):
            return [tangents[0], tangents[0]]

    made = []

    def links(on, inputs):
        backward = Backward()
        made.append(weakref.ref(backward))
        return ((backward, (0, 1)),)

    monkeypatch.setattr(Switch, "on", "it")
    graph = in_chain(links)
    (y,) = graph(leaf(), leaf())
    assert made[0]() is not None
    del y
    assert made[0]() is None
