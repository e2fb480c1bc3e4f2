"""``with`` blocks: managers of the user's and of the library, what they swallow, what they change."""

from __future__ import annotations

import contextlib
import io

import torch

from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


@whole
def contexts(x):
    with torch.no_grad():
        y = x * 2
    with torch.enable_grad(), contextlib.nullcontext():
        z = x * 3

    @torch.no_grad()
    def quiet(v):
        return v + 1, torch.is_grad_enabled()

    @contextlib.contextmanager
    def tracked(log):
        log.append("in")
        try:
            yield len(log)
        finally:
            log.append("out")

    log = []
    with tracked(log) as n:
        z = z + n
    return y, z, quiet(x), log, y.requires_grad, torch.is_grad_enabled()


@whole
def exit_stacks(x):
    log = []
    with contextlib.ExitStack() as stack:
        stack.callback(log.append, 1)
        stack.enter_context(torch.no_grad())
        y = x * 2
    return y, log


@contextlib.contextmanager
def cm(log, v):
    log.append("in")
    try:
        yield v
    finally:
        log.append("out")


@whole
def contexts_of_contextlib(x):
    log = []
    with cm(log, x) as y:
        z = y + 1
    with contextlib.ExitStack() as st:
        st.enter_context(cm(log, 1))
        st.callback(log.append, "cb")
        z = z + 1
    with contextlib.nullcontext(3) as n:
        z = z + n
    with contextlib.suppress(ValueError):
        raise ValueError("a")
    with cm(log, 1), cm(log, 2) as two:
        z = z + two
    try:
        with cm(log, 1):
            raise KeyError("k")
    except KeyError:
        log.append("caught")
    return z, log


class CD(contextlib.ContextDecorator):
    def __enter__(self):
        LOGL.append(1)
        return self

    def __exit__(self, *a):
        LOGL.append(2)


LOGL = []


@CD()
def cd_fn(x):
    return x + 1


@whole
def context_decorator(x):
    n = len(LOGL)
    r = cd_fn(x)
    m = len(LOGL) - n
    del LOGL[:]
    return r, m


@breaking
def closing_redirect(x):
    class R:
        closed = False

        def close(self):
            self.closed = True

    r = R()
    with contextlib.closing(r):
        pass
    return r.closed, x


class Ctx:
    def __enter__(self):
        self.e = 1
        return self

    def __exit__(self, t, v, tb):
        self.t = t
        return True


@whole
def exit_suppresses(x):
    with Ctx() as c:
        raise ValueError("q")
    return x + 1, c.e, c.t


@program
def exit_stack():
    trace = []

    @contextlib.contextmanager
    def tag(name):
        trace.append(f"+{name}")
        try:
            yield name
        finally:
            trace.append(f"-{name}")

    def f(x, names):
        trace.clear()
        with contextlib.ExitStack() as stack:
            for n in names:
                x = x * len(stack.enter_context(tag(n)))
            stack.callback(trace.append, "callback")
            x = x + 1
        return x, list(trace)

    return f, [(rand(3), ["a", "bb"]), (rand(3), ["ccc"])]


@program
def context_managers_that_change_things():
    state = {"depth": 0}

    class Deeper:
        def __enter__(self):
            state["depth"] += 1
            return state["depth"]

        def __exit__(self, kind, value, tb):
            state["depth"] -= 1
            return kind is ZeroDivisionError

    def f(x, n):
        with Deeper() as a, Deeper() as b:
            x = x * a * b
            x = x / (1 / n) if n else x / (1 // n)
        return x, state["depth"]

    return f, [(rand(2), 2), (rand(2), 0), (rand(2), 3)]


@program
def suppress_and_redirect():
    def f(x):
        with contextlib.suppress(KeyError):
            x = x + {}["a"]
        buf = io.StringIO()
        with contextlib.redirect_stdout(buf):
            print("hidden")
        return x, buf.getvalue()

    return f, [(rand(2),)] * 2
