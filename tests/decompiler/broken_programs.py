"""Programs that break their graph in every place a statement can stand: what compilers make of them is decompiled.

Each entry of ``PROGRAMS`` is a function without arguments that returns ``(function, calls)``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint

PROGRAMS: dict[str, Callable[[], tuple[Callable[..., Any], list[tuple[Any, ...]]]]] = {}


def program(make: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS[make.__name__] = make
    return make


@torch.compiler.disable
def note(*values: Any) -> None:
    """What the programs do in the middle: something no graph can hold."""
    LOG.append(tuple(v if not isinstance(v, torch.Tensor) else round(float(v.sum()), 4) for v in values))


LOG: list[Any] = []
ONES, MINUS = torch.ones(4), -torch.ones(4)


@program
def toy() -> Any:
    def toy_example(a, b):
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    return toy_example, [(ONES, ONES), (ONES, MINUS)]


@program
def dictionary() -> Any:
    def function(inputs):
        x, y = inputs["x"], inputs["y"]
        x = x.cos().cos()
        if x.mean() > 0.5:
            x = x / 1.1
        return x * y

    return function, [({"x": ONES, "y": ONES},), ({"x": ONES * 2, "y": ONES},)]


@program
def print_in_the_middle() -> Any:
    def function(a, *rest, scale=2, **more):
        b = a * scale
        note("b", b)
        c = b + len(rest)
        note("c", c)
        return c, more

    return function, [(ONES, 1, 2)]


@program
def break_inside_expression() -> Any:
    def function(a):
        note(a)
        return [a + 1, a.sum().item() + 2, (a * 3, {"k": a - 1})], a * 2 + float(a.mean().item()) * a

    return function, [(ONES,), (MINUS,)]


@program
def for_loop() -> Any:
    def function(a, n):
        total = torch.zeros(4)
        for i in range(n):
            total = total + a * i
            note(i, total)
            if total.sum() > 3:
                break
        else:
            total = total - 1
        return total

    return function, [(ONES, 2), (ONES, 4)]


@program
def nested_loops() -> Any:
    def function(a, rows):
        out = []
        for row in rows:
            for x in row:
                b = a * x
                note(x, b)
                if b.sum() < 0:
                    continue
                out.append(b)
            out.append(a)
        return out

    return function, [(ONES, [[1, -2], [], [3]])]


@program
def while_loop() -> Any:
    def function(a):
        steps = 0
        while a.sum() < 20:
            a = a * 2
            steps += 1
            note(steps)
        return a, steps

    return function, [(ONES,)]


@program
def with_block() -> Any:
    def function(a):
        b = a + 1
        with torch.no_grad():
            b = b * 2
            note(b)
            b = b + 3
        return b * a

    return function, [(ONES,)]


@contextlib.contextmanager
def noted(name):
    note("enter", name)
    try:
        yield name
    finally:
        note("exit", name)


@program
def own_with_block() -> Any:
    def function(a):
        with noted("outer") as name, noted("inner"):
            b = a * 2
            note(name, b)
            b = b + 1
        return b

    return function, [(ONES,)]


@program
def with_in_loop() -> Any:
    def function(a, n):
        for i in range(n):
            with torch.no_grad():
                a = a + i
                note(i)
                a = a * 2
        return a

    return function, [(ONES, 3)]


@program
def try_block() -> Any:
    def function(a, fail):
        b = a + 1
        try:
            b = b * 2
            note(b)
            if fail:
                raise ValueError("asked for")
            b = b - 1
        except ValueError as error:
            note(str(error))
            b = b * 5
        finally:
            note("done")
        return b

    return function, [(ONES, False), (ONES, True)]


@program
def nested_calls() -> Any:
    def inner(x, k):
        x = x * k
        note("inner", k)
        return x + 1

    def middle(x):
        y = inner(x, 2)
        return y * inner(y, k=3)

    def function(a):
        return middle(a) + middle(a + 1)

    return function, [(ONES,)]


@program
def closures() -> Any:
    factor = 3
    count = 0

    def function(a):
        nonlocal count
        b = a * factor
        count += 1
        note("closure", b)

        def scaled(x):
            return x * b + count

        c = scaled(a)
        note("after", c)
        return c, scaled

    return lambda a: function(a)[0], [(ONES,), (ONES,)]


class Scale(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        torch.nn.init.ones_(self.linear.weight)
        torch.nn.init.zeros_(self.linear.bias)
        self.factor = factor

    def forward(self, x, *, verbose=True):
        x = self.linear(x)
        if verbose:
            note("forward", x.shape[0])
        if x.sum() > self.factor:
            return x * self.factor
        return x


@program
def module() -> Any:
    with torch.no_grad():
        model = torch.nn.Sequential(Scale(2), torch.nn.ReLU(), Scale(3))
    return model.requires_grad_(False), [(torch.ones(1, 4),), (-torch.ones(1, 4),)]


@program
def side_effects() -> Any:
    state: dict[str, Any] = {"seen": []}

    def function(a, box):
        state["seen"].append(a.shape[0])
        box.append(a * 2)
        note("first", len(box))
        box[0] = box[0] + 1
        state["last"] = box[-1]
        note("second", len(state["seen"]))
        return box, dict(state)

    return function, [(ONES, [])]


@program
def comprehensions() -> Any:
    def function(xs, ks=(1, 2)):
        ys = [x * k for x in xs for k in ks if k > 0]
        note(len(ys))
        zs = {n: y + 1 for n, y in enumerate(ys)}
        note(sorted(zs))
        return tuple(zs.values()), sum(y.sum() for y in ys)

    return function, [([ONES, MINUS],)]


@program
def star_arguments() -> Any:
    def collect(*values, **named):
        note(len(values), sorted(named))
        return [*values, *named.values()]

    def function(a, *args, **kwargs):
        items = collect(a, *args, a * 2, **kwargs)
        note("between")
        return [a, *items, *args], {**kwargs, "a": a}

    return function, [(ONES, 1, ONES)]


@program
def formatted_text() -> Any:
    def function(a, name):
        b = a * 2
        note(f"{name:>8} has {b.shape[0]} of {a.sum().item():.2f}")
        return b if a.mean() > 0 else -b

    return function, [(ONES, "x"), (MINUS, "y")]


@program
def shared_by_a_generator() -> Any:
    """The argument is a cell, which nothing reads any more once the generator is in the graph."""

    def function(x):
        return sum(x * n for n in range(3))

    return function, [(ONES,), (MINUS,)]


@program
def checkpointed() -> Any:
    """A graph within the graph, and a variable of the name that graphs give to what they return."""

    def function(x):
        output = torch.utils.checkpoint.checkpoint(lambda v: v.sin() * 2, x, use_reentrant=False)
        return output + x

    return function, [(ONES,), (MINUS,)]
