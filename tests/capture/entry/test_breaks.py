"""Graph breaks inside blocks: results, side effects, exceptions and where they were raised are eager's.

Each program takes a tensor and a log; none may fall back to running eagerly as a whole.
"""

# ruff: noqa: B904, C417
from __future__ import annotations

import contextlib
import functools
import sys
import threading
import traceback
from typing import Any

import pytest
import torch

import torchglass as tg

from ..compared import same

PROGRAMS: list[Any] = []


def program(function):
    PROGRAMS.append(function)
    return function


class Manager:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, error, trace):
        self.log.append(("exit", kind, str(error)))
        return self.swallow


@program
def in_try(x, log):
    try:
        y = x + 1
        if y.sum() > 3:
            y = y * 2
        log.append(y.sum().item())
        y = y - 1
    except ValueError:
        log.append("never")
    return y / 2


@program
def with_sixteen_variables(x, log):
    """3.13 reads and writes the first 16 variables in pairs; with what is on the stack they are no longer the first."""
    a, b, c, d, e, g, h, i, j, k, m, n = range(12)
    result = [a, b, [c, x.sum().item()], [(p, q) for p, q in zip((a, b, c), (d, e, g))]]
    q, p = a + k, b + m
    p, q = q, p
    return result, a, b, c, d, e, g, h, i, j, k, m, n, p - q


@program
def with_many_shared_variables(x, log):
    a, b, c, d, e, g, h, i, j, k, m, n = range(12)
    log.append(x.sum().item())
    p, q = a + k, b - m
    functions = [lambda: (p, q), lambda: (a, b, n), lambda: c - d - e - g - h - i - j]
    log.append(x.max().item())
    p, q = q, p
    return [function() for function in functions]


@program
def waiting_generators_that_end(x, log):
    def numbers(n):
        try:
            yield x + n
            yield x - n
        except ValueError as error:
            yield str(error)
        finally:
            log.append(f"end of {n}")

    closed, thrown_into, left = numbers(1), numbers(2), numbers(3)
    y = next(closed) + next(thrown_into) + next(left)
    log.append(y.sum().item())
    closed.close()
    del left
    return y, thrown_into.throw(ValueError("thrown")), log


@program
def handler_of_a_break(x, log):
    try:
        y = x * 2
        n = int("no number" if y.sum() > 0 else "7")
        y = y + n
    except ValueError as error:
        log.append(str(error))
        y = x * 3
    finally:
        log.append("finally")
    return y + 1


@program
def in_handler(x, log):
    try:
        raise KeyError("k")
    except KeyError as error:
        y = x + x.sum().item()
        log.append(repr(error))
        log.append(sys.exc_info()[0])
    log.append(sys.exc_info()[0])
    return y * 2


@program
def reraise_in_handler(x, log):
    try:
        try:
            {}["k"]
        except KeyError:
            log.append(x.mean().item())
            y = x * 2
            raise
    except KeyError as error:
        log.append(error.args)
        y = x + y.sum().item()
    return y


@program
def context_is_chained(x, log):
    try:
        try:
            {}["k"]
        except KeyError:
            log.append(x.mean().item())
            raise RuntimeError("second")
    except RuntimeError as error:
        log.append(repr(error.__context__))
        log.append(x.sum().item())
    return x * 2


@program
def break_raises_in_handler(x, log):
    try:
        try:
            raise KeyError("k")
        except KeyError:
            y = x * int("no number" if x.sum().item() > 0 else "3")
    except ValueError as error:
        log.append(repr(error.__context__))
        y = x * 5
    return y + 1


@program
def in_finally(x, log):
    try:
        y = x * 2
    finally:
        log.append(x.sum().item())
        y = x * 3
    return y


@program
def exception_through_finally(x, log):
    try:
        try:
            y = x * 2
            raise ValueError(f"sum {y.sum().item()}")
        finally:
            log.append(x.sum().item())
    except ValueError as error:
        log.append(str(error))
    return y


@program
def return_in_try(x, log):
    try:
        if x.sum() > 0:
            return x * 2
        return x * 3
    finally:
        log.append(x.min().item())


@program
def in_no_grad(x, log):
    with torch.no_grad():
        y = x * 2
        log.append(y.sum().item())
        log.append(torch.is_grad_enabled())
        y = y * 3
    log.append(torch.is_grad_enabled())
    return y + x


@program
def branch_in_no_grad(x, log):
    with torch.no_grad():
        y = x * 2
        if y.sum() > 0:
            y = y + 1
    return y * x


@program
def in_autocast(x, log):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x[:, None] @ x[None]
        log.append(y.sum().item() > 0)
        z = y @ y
        log.append(torch.is_autocast_enabled("cpu"))
    log.append(torch.is_autocast_enabled("cpu"))
    return y, z, (x[:, None] @ x[None]).dtype


@program
def in_own_manager(x, log):
    with Manager(log) as manager:
        y = x + 1
        log.append(y.sum().item())
        y = y * 2
        assert manager.log is log
    return y


@program
def own_manager_swallows(x, log):
    y = x
    with Manager(log, swallow=True):
        y = x * 2
        y = y + int("nothing" if y.sum() > 0 else "4")
    return y + 1


@program
def nested_with(x, log):
    with Manager(log) as a, torch.no_grad(), Manager(log, True):
        y = x * 2
        log.append(y.sum().item())
        assert a is not None
        raise ValueError("in the middle")
    return y + 1


@program
def unsupported_manager(x, log):
    lock = threading.RLock()
    y = x + 1
    with lock:
        y = y * 2
        log.append(y.sum().item())
    return y - 1


@program
def label(x, log):
    """Nobody enters it, and Python leaves it."""
    try:
        with torch.profiler.record_function("label"):
            y = x * 2
            log.append(y.sum().item())
            y.no_such_attribute()
    except AttributeError as error:
        log.append(str(error))
    with torch.profiler.record_function("another"):
        return torch.ones(2) @ torch.ones(3) if x.sum() < -1e9 else y


@program
def generator_manager(x, log):
    @contextlib.contextmanager
    def scope(name):
        log.append("in " + name)
        try:
            yield name
        finally:
            log.append("out " + name)

    with scope("a") as name:
        y = x * 2
        log.append(y.sum().item())
        y = y * 2
        log.append(name)
    return y


@program
def generator_manager_sees_the_error(x, log):
    @contextlib.contextmanager
    def scope(name):
        log.append("in " + name)
        try:
            yield name
        except ValueError as error:
            log.append(str(error))
        finally:
            log.append("out " + name)

    with scope("a"):
        y = x * 2
        log.append(y.sum().item())
        raise ValueError("inside")
    return y


@program
def in_for_in_with(x, log):
    y = x
    for i in range(3):
        with Manager(log):
            y = y * (i + 1)
            if y.sum() > 5:
                log.append(i)
                continue
            y = y + 1
    else:
        log.append("else")
    return y


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


INPUTS = [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, -2.0, 0.5]), torch.tensor([4.0, 0.0, 9.0])]


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


def run(function, x):
    log: list[Any] = []
    x = x.clone().requires_grad_()
    try:
        result = function(x, log)
    except Exception as error:
        result = type(error), str(error), repr(error.__context__)
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    assert sys.exc_info() == (None, None, None)
    return result, log


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_break(function):
    compiled = tg.compile(function, backend="eager")
    for x in [*INPUTS, *INPUTS]:
        same(run(compiled, x), run(function, x))
    for record in tg.explain(compiled).record.walk():
        assert not record.fallbacks, record.fallbacks


def set_that_changes_while_iterated(x, log):
    members = {1, 2}
    for member in members:
        log.append(member)
        broken(members.add(member + 10))


def test_a_set_that_changes_while_iterated_around_a_break():
    compiled = tg.compile(set_that_changes_while_iterated, backend="eager")
    for _ in range(2):
        same(run(compiled, INPUTS[0]), run(set_that_changes_while_iterated, INPUTS[0]))


def raises_in_the_middle(x, log):
    y = x * 2
    if x.sum() > 0:
        try:
            y = y + 1
            raise ValueError("positive")
        finally:
            log.append("finally")
    return y


def raises_in_a_call(x, log):
    def check(value):
        if value.shape[0] == 3:
            raise TypeError("three")

    with Manager(log):
        y = x * 2
        check(y)
    return y


def raises_from(x, log):
    try:
        {}["k"]
    except KeyError as error:
        raise RuntimeError("later") from error


def raises_in_an_operation(x, log):
    log.append("before")
    return x @ torch.ones(7)


@pytest.mark.parametrize(
    "function", [raises_in_the_middle, raises_in_a_call, raises_from, raises_in_an_operation], ids=lambda f: f.__name__
)
def test_exceptions_keep_their_lines(function):
    compiled = tg.compile(function, backend="eager")
    for x in [INPUTS[0], INPUTS[0]]:
        seen = []
        for f in (function, compiled):
            log: list[Any] = []
            with pytest.raises(Exception) as caught:
                f(x.clone(), log)
            error = caught.value
            frames = [(t.filename, t.lineno, t.name) for t in traceback.extract_tb(error.__traceback__)]
            own = [f for f in frames if f[0] == __file__ and "test_exceptions" not in f[2]]
            seen.append((type(error), str(error), repr(error.__cause__), repr(error.__context__), own, log))
        assert seen[0] == seen[1]


@pytest.mark.slow
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_break_and_gradients(function):
    """The same with the default backend, and the gradient that arrives at the input."""
    compiled = tg.compile(function)
    for x in INPUTS:
        gradients = []
        for f in (function, compiled):
            leaf = x.clone().requires_grad_()
            for tensor in tensors_in(f(leaf, [])):
                if tensor.requires_grad:
                    tensor.sum().backward(retain_graph=True)
            gradients.append(leaf.grad)
        same(gradients[1], gradients[0])


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for item in value for t in tensors_in(item)] if isinstance(value, (list, tuple)) else []
