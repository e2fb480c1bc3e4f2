"""``torch.inference_mode`` inside and around compiled functions: the same tensors are inference tensors as in eager."""

import pytest
import torch

import torchglass as tg

from ..tables import tables

NET = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
BUFFER = torch.zeros(4)
WHOLE, BREAKING, whole, breaking = tables()


@whole
def block(x):
    with torch.inference_mode():
        y = x * 2
        z = y + 1
        z[0] = 5
    return y, z, y.is_inference(), x.is_inference(), torch.is_inference_mode_enabled()


@whole
def decorator(x):
    @torch.inference_mode()
    def predict(x):
        return NET(x)

    return predict(x)


@whole
def some_results(x):
    with torch.inference_mode():
        y = NET(x)
    return y.softmax(-1), y, x + 1, NET(x)


@whole
def a_view_of_a_result(x):
    with torch.inference_mode():
        y = x * 2
    return y, y.view(-1), x + 1


@whole
def turned_off_inside(x):
    with torch.inference_mode():
        with torch.inference_mode(False):
            y = NET(x)
        z = x * 3
    return y, z, y.is_inference(), z.is_inference()


@whole
def writes_to_what_was_there(x):
    with torch.inference_mode():
        BUFFER.add_(x.sum(0))
        views = BUFFER[:2], x.view(-1)
    return *views, BUFFER


@whole
def called_with_the_option_off(x):
    with torch.inference_mode(mode=False):
        return NET(x)


@breaking
def break_inside(x):
    with torch.inference_mode():
        y = NET(x)
        tg.graph_break()
        y = y * 2
    z = x * 2
    return y, z, y.is_inference(), torch.is_grad_enabled()


@breaking
def break_under_two_modes(x):
    with torch.no_grad():
        with torch.inference_mode():
            a = NET(x)
            tg.graph_break()
        b = NET(x)
    return a, b, NET(x)


@breaking
def write_outside(x):
    with torch.inference_mode():
        y = NET(x)
    try:
        return y.add_(1)
    except RuntimeError as error:
        return str(error)


@breaking
def saved_for_backward(x):
    with torch.inference_mode():
        y = NET(x)
    return NET[0](x)[:, :2] * y


@breaking
def exception_inside(x):
    with torch.inference_mode():
        y = x.log()
        raise ValueError(str(y.shape))


def outcome(function, x):
    """What a call gives, and the modes behind it."""
    BUFFER.zero_()
    try:
        result = function(x)
    except Exception as error:
        result = type(error), str(error)
    return facts(result), torch.is_inference_mode_enabled(), torch.is_grad_enabled()


def facts(result):
    if isinstance(result, torch.Tensor):
        return result.is_inference(), result.requires_grad, [round(v, 4) for v in result.flatten().tolist()]
    return [facts(part) for part in result] if isinstance(result, (tuple, list)) else result


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
@pytest.mark.parametrize("function", [*WHOLE.values(), *BREAKING.values()], ids=lambda f: f.__name__)
def test_inside(function, backend):
    x = torch.randn(3, 4)
    compiled = tg.compile(function, backend=backend, fullgraph=function.__name__ in WHOLE)
    for _ in range(2):
        assert outcome(compiled, x) == outcome(function, x)
    assert not tg.explain(compiled).record.fallbacks


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_composites_around(backend, mode):
    """Operators that give their argument back, whose memory is read again."""
    operators = [
        lambda x: torch.nn.functional.dropout(x, 0.5, False), torch.atleast_2d, lambda x: x.type_as(x),
        lambda x: torch.einsum("ij->ij", x), lambda x: torch.nn.functional.dropout(x, 0.5, False, inplace=True),
    ]  # fmt: skip

    def function(x):
        results = []
        for operator in operators:
            y = operator(x + 1)
            results.append(y + NET(y)[:, :1] * 2 + NET(y * 2)[:, :1])
        return results

    compiled = tg.compile(function, backend=backend, fullgraph=True)
    with mode():
        x = torch.randn(3, 4)
        assert outcome(compiled, x) == outcome(function, x)
    assert not tg.explain(compiled).record.fallbacks


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
def test_around(backend):
    def function(x):
        BUFFER.add_(1)
        y = x.sin() * 2
        y[0] = 3
        mask = torch.ones(3).nonzero()
        y.view(-1).mul_(2)
        return y, NET(x), x.view(-1), y.is_inference(), mask, BUFFER

    compiled = tg.compile(function, backend=backend, fullgraph=True)
    with torch.inference_mode():
        made_here = torch.randn(3, 4)
        for x in (torch.nn.Parameter(torch.randn(3, 4)), made_here, made_here):
            assert outcome(compiled, x) == outcome(function, x)
    assert len(tg.explain(compiled).entries) == 2
    assert not tg.explain(compiled).entries[0].breaks


@pytest.mark.parametrize("backend", ["eager", "glass"])
def test_numbers_that_change_inside(backend):
    """From its second value on a number is an input of the graph, here an operand of integers."""

    @torch.inference_mode()
    def sample(x, step):
        at = torch.full((1,), step, dtype=torch.long)
        return x + at * step

    compiled, x = tg.compile(sample, backend=backend), torch.ones(3)
    for step in (5, 3, 1, -1):
        torch.testing.assert_close(compiled(x, step), sample(x, step))
    assert len(tg.explain(compiled).entries) == 2
