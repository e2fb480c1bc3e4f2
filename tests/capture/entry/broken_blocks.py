"""Programs whose graphs break inside ``try`` and ``with``: each takes a tensor and a log."""

# ruff: noqa: B904
from __future__ import annotations

import contextlib
import sys
import threading

import torch

from ..tables import table

PROGRAMS, program = table()


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
