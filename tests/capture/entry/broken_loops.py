"""Programs whose graphs break in loops, generators, closures, displays and methods: each takes a tensor and a log."""

# ruff: noqa: C417
from __future__ import annotations

import functools

import torch

import torchglass as tg

from ..tables import table
from .broken_blocks import Manager

PROGRAMS, program = table()


@program
def loop_over_generator(x, log):
    def rows():
        for row in x:
            log.append("row")
            yield row * 2
        log.append("end")

    total = x.sum()
    for row in rows():
        total = total + row
        log.append(row.item())
    return total


@program
def loop_over_generator_expression(x, log):
    total = x.sum()
    for row in (r * 3 for r in x):
        total = total + row
        tg.graph_break() if row > 2 else log.append("small")
    return total


@program
def loop_over_yield_from(x, log):
    def inner(a):
        yield a
        got = yield a * 2
        log.append(got)
        return "done"

    def outer():
        result = yield from inner(x)
        log.append(result)
        yield x - 1

    total = x
    for v in outer():
        log.append(v.sum().item())
        total = total + v
    return total


@program
def loop_over_map_and_zip(x, log):
    total = x.sum()
    for a, (n, b) in zip(map(lambda r: r + 1, x), enumerate(x)):
        log.append(a.item())
        total = total + a * b * n
    for kept in filter(lambda r: r is not None, [x, None, x + 1]):
        log.append(kept.sum().item())
        total = total + kept.sum()
    return total


@program
def loop_over_reversed_and_dict(x, log):
    total = x
    table = {"a": x + 1, "b": x + 2}
    for key, value in table.items():
        log.append((key, value.sum().item()))
        total = total + value
    for value in reversed([x, total]):
        log.append(value.sum().item())
        total = total * value
    return total, table


@program
def closure_across(x, log):
    n = 1

    def add(a):
        nonlocal n
        n += 1
        return a + n

    y = add(x)
    log.append(y.sum().item())
    y = add(y)
    log.append(n)
    return y, n


@program
def closure_that_recurses(x, log):
    def down(a, depth):
        log.append(depth)
        return a if depth == 0 else down(a + depth, depth - 1)

    y = down(x, 2)
    log.append(y.sum().item())
    return down(y, 1)


@program
def nested_functions_break(x, log):
    def inner(a):
        b = a * 2
        log.append(b.sum().item())
        return b + 1

    def middle(a):
        try:
            return inner(a + 1) - 1
        finally:
            log.append("middle")

    return middle(x) * 3


@program
def comprehension_breaks(x, log):
    values = [r.item() + 1 for r in x]
    table = {i: float(r) for i, r in enumerate(x)}
    return x * sum(values), table


@program
def while_with_break_inside(x, log):
    y = x
    steps = 0
    while True:
        try:
            y = y * 1.5 + 1
            steps += 1
            if y.sum() > 20:
                break
        finally:
            log.append(steps)
    return y, steps


@program
def dict_display_across(x, log):
    return {"a": x + 1, "b": x.sum().item(), "c": [x * 2, float(x.min())], **{"d": x.max().item()}}


@program
def f_string_across(x, log):
    log.append(f"{x.sum().item():.2f} and {x.shape} and {x.min()!r:>20}")
    return x + 1


@program
def star_call_across(x, log):
    def add(a, *rest, scale=1, **more):
        log.append((len(rest), sorted(more)))
        return (a + sum(rest)) * scale

    return add(x, *[x.sum().item(), 2], scale=x.max().item(), **{"k": 1})


@program
def chained_comparison(x, log):
    return x * 2 if 0 < x.sum() < 100 else x * 3


@program
def conditions(x, log):
    a = x.sum() > 0 and x.min()
    b = x.sum() > 100 or x.max()
    c = not x.any()
    return a, b, c, x + 1


@program
def match_on_value(x, log):
    match int(x.sum().item()):
        case 0:
            return x
        case n if n > 2:
            y = x * 2
        case _:
            y = x - 1
    return y


@program
def augmented(x, log):
    state = {"n": 0.0, "values": [1, 2]}
    state["n"] += x.sum().item()
    state["values"][0] += x.max().item()
    return x * 2, state


@program
def with_return_inside(x, log):
    for row in x:
        with Manager(log):
            if row.item() > 0:
                return row * 2
    return x


@program
def global_state_kept(x, log):
    with torch.no_grad():
        try:
            y = x * int("nothing" if x.sum() > 0 else "2")
        except ValueError:
            y = x * 2
    log.append(torch.is_grad_enabled())
    return y * x


@program
def partial_across(x, log):
    f = functools.partial(torch.add, x)
    log.append(x.sum().item())
    return f(x * 2)


class Scaled:
    factor = 2

    def scaled(self, x):
        return x * self.factor


class ScaledTwice(Scaled):
    """``super()`` means the first parameter, which no instruction names: it goes on in what continues the method."""

    def scaled(self, x):
        if x.sum() > 3:
            x = x - 1
        return super().scaled(x) + super().scaled(x).sum().item()

    def with_a_shared_cell(self, x):
        factor = lambda: self.factor
        self.factor = 3
        if x.sum() > 3:
            x = x - 1
        return super().scaled(x) * factor()

    def generated(self, x):
        for n in range(2):
            yield super().scaled(x) + n

    def in_handler(self, x):
        try:
            raise ValueError(x.sum().item())
        except ValueError as error:
            tg.graph_break()
            return super().scaled(x), str(error)


@program
def super_after_a_break(x, log):
    held = ScaledTwice()
    for value in held.generated(x):
        log.append(value.sum().item())
    return held.scaled(x), held.with_a_shared_cell(x), held.in_handler(x)


def broken(value):
    tg.graph_break()
    return value


class Coded(Exception):
    def __init__(self, words, code):
        broken(super().__init__)(words)
        self.code = code


class CountsCalls(type):
    def __call__(cls, *args):
        made = broken(super().__call__)(*args)
        made.counted = True
        return made


class Counted(metaclass=CountsCalls):
    def __init__(self, held):
        tg.graph_break()
        self.held = held


@program
def methods_of_c_classes_that_super_finds(x, log):
    try:
        raise Coded("words", x + 1)
    except Coded as error:
        log.append((str(error), error.code))
    made = Counted(x)
    return made.held + 1, made.counted


@program
def methods_of_a_frozenset_that_is_a_constant(x, log):
    held = broken(frozenset([1, 2]))
    log += [held.union([7]), held.intersection([2, 5]), held.difference([2]), held.symmetric_difference([2, 5])]
    log += [held.isdisjoint([5]), held.issubset([1, 2, 3]), held.issuperset([1]), held.copy() is held]
    return x + 1


@program
def sets_iterated_around_breaks(x, log):
    members = {9, 1, 16, 3}
    for member in members:
        log.append(broken(member))
    waiting = iter(members)
    log.append(next(waiting))
    tg.graph_break()
    members.add(x.shape[0])
    log.append(list(members))
    tensors = {x, x + 1}
    for tensor in tensors:
        x = x + broken(tensor).sum()
    return x


class Stack(list):
    def push(self, value):
        self.append(value)
        tg.graph_break()
        return self


@program
def list_of_a_subclass_written_around_a_break(x, log):
    stack = Stack()
    stack.push(x.shape[0]).push(x + 1)
    log.append(stack)
    return len(stack)


@program
def locals_after_a_break(x, log):
    first, second = 1, lambda: first
    log.append((second(), broken(x.shape[0]), sorted(locals())))
    return x + 1, broken(2), locals()["first"]


class Exponent:
    @tg.disable
    def __rpow__(self, base):
        return base * base


@program
def a_negative_constant_beside_the_operator_that_breaks(x, log):
    return x + (-3) ** Exponent(), (-2.5) ** Exponent()
