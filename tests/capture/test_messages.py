"""What ``fullgraph=True`` says: the function, the user's line, the reason, and a hint where there is one."""

import re

import numpy as np
import pytest
import torch

import torchglass as tg
from torchglass.records.sources import Attr, Cell, Global, InstanceDict, Item, Local

CASES = []


def says(reason, hint=""):
    def register(function):
        CASES.append((function, reason, hint))
        return function

    return register


@says("a branch on the value of a tensor", "use torch.where")
def branch(x):
    return x + 1 if x.sum() > 0 else x


@says("a branch on the value of a tensor", "use torch.where")
def loop(x):
    while x.sum() < 0:
        x = x + 1
    return x


@says("`.item()` of a tensor reads its data", "move it out")
def number(x):
    return x * x.sum().item()


@says("`.tolist()` of a tensor reads its data", "move it out")
def numbers(x):
    return x.tolist()


@says("`ctc_loss` needs the data", "move it out")
def alignment(x):
    scores, labels = torch.zeros(4, 1, 3).log_softmax(-1) + x.sum(), torch.ones(1, 2, dtype=torch.long)
    return torch.nn.functional.ctc_loss(scores, labels, torch.tensor([4]), torch.tensor([2]))


@says("`add` asks whether u0 == u1, which data decide", "move it out")
def choices(x):
    return x[x > 0] + x[x < 0]


@says("formatting a tensor", "print tensors outside")
def text(x):
    return f"{x}"


@says("tg.graph_break()")
def asked_for(x):
    tg.graph_break()
    return x


@says("calling `torch.random.manual_seed`", "outside the compiled function")
def seed(x):
    torch.manual_seed(0)
    return x


@says("`numpy.random.rand`, which draws random numbers", "draw them before the call")
def drawn(x):
    return x * np.random.rand()


@says("`aside` is disabled")
def disabled(x):
    return aside(x)


@tg.disable
def aside(x):
    return x + 1


@says("`eval()`, which looks at or changes what no graph holds", "do this outside")
def evaluated(x):
    return eval("x + 1")


@says("writing attribute `real` of a tensor", "outside the compiled function")
def attribute(x):
    x.real = x + 1
    return x


@says("`requires_grad` of an input, which is changed after its use", "change it before")
def flag(x):
    y = x * 2
    x.requires_grad = True
    return y


ITEMS = [1, 2, 3]
STARTED = iter(ITEMS)


@says("the next item of a list_iterator `STARTED`, made before the call", "pass what it goes through")
def started(x):
    for n in STARTED:
        x = x * n
    return x


@says("a branch on the value of a tensor", "use torch.where")
def largest(x):
    """In a function of ours that stands in for a builtin: the program's line is named."""
    return x * max(x.sum(), x.mean())


KEPT = ExceptionGroup("both", [ValueError("a")])


@says("`except*` on an exception that was not raised in the graph", "a function of its own")
def groups(x):
    try:
        raise KEPT
    except* ValueError:
        x = x + 1
    return x


@pytest.mark.parametrize(("function", "reason", "hint"), CASES, ids=lambda c: getattr(c, "__name__", ""))
def test_message(function, reason, hint):
    tg.reset()
    with pytest.raises(tg.GraphBreakError) as caught:
        tg.compile(function, backend="eager", fullgraph=True)(torch.ones(2))
    message = str(caught.value)
    assert f"the graph of `{function.__name__}` breaks" in message
    line = int(re.search(rf"at {re.escape(__file__)}:(\d+) in {function.__name__}\b", message)[1])
    first = function.__code__.co_firstlineno
    assert first < line <= max(n for _, _, n in function.__code__.co_lines() if n)
    assert reason in message.partition("because of ")[2]
    assert hint in message.partition("hint: ")[2]


def test_pytorchs_line_is_named_where_there_is_none_of_the_programs():
    average = torch.optim.swa_utils.AveragedModel(torch.nn.Linear(2, 2), avg_fn=lambda average, value, count: value)
    with pytest.raises(tg.GraphBreakError, match=r"swa_utils.py:\d+ in update_parameters"):
        tg.compile(average.update_parameters, fullgraph=True)(torch.nn.Linear(2, 2))


def test_no_reason_names_what_the_compiler_has_named():
    """What a resume function is given on the stack has no name in the user's code."""

    def total(x, layers):
        found = 0.0
        for layer in layers:
            found = found + (x * layer).sum().item() + x.sum().item()
        return found

    tg.reset()
    compiled = tg.compile(total, backend="eager")
    compiled(torch.ones(2), [torch.ones(2)] * 3)
    breaks = tg.explain(compiled).breaks()
    assert {b.reason for b in breaks} == {
        "`.item()` of a tensor reads its data",
        "the next round of a loop that a graph break interrupted",
    }
    assert all(b.hint for b in breaks)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (Attr(Local("self"), "weight"), "self.weight"),
        (Local("stack_2"), ""),
        (Attr(Local("stack_2"), "shape"), ""),
        (Attr(Attr(Local("cell_of_x"), "cell_contents"), "grad"), "x.grad"),
        (Cell("x"), "x"),
        (Global("LEVEL"), "LEVEL"),
        (Global("LEVEL", "settings"), "settings.LEVEL"),
        (Item(Item(InstanceDict(Local("self")), "_modules"), "head"), "self.head"),
    ],
)
def test_sources_as_they_are_written(source, text):
    assert source.written() == text
