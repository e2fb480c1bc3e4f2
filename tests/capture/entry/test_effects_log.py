"""Calls that only leave traces wait until the graph has run: what is shown, and in which order, is eager's."""

import contextlib
import io
import logging
import subprocess
import sys
import warnings

import pytest
import torch

import torchglass as tg

log = logging.getLogger("tests.capture.effects_log")
seen: list = []
total = 0


class Described:
    def __init__(self, size):
        self.size = size

    def __str__(self):
        return f"of {self.size}"


class Talking:
    def __repr__(self):
        print("asked")
        return "talking"


DESCRIBED, TALKING = Described(3), Talking()
WEIGHT = torch.nn.Parameter(torch.ones(2))


# --- no break ---------------------------------------------------------------------------------------------------------
def constants(x):
    print("begin", 1, None, 2.5, sep="|", end="!\n", flush=True)
    print()
    return x * 2


def shapes(x):
    y = x * 2
    print("shape", y.shape, y.dtype, y.device, tuple(x.shape))
    print(f"{x.shape[0]} of {x.numel()}")
    return y + 1


def values(x):
    y = x * 2
    print("input", x)
    print("inner", y, [y, (x, {"k": y})])
    return y + 1


def values_written_later(x):
    y = x * 2
    print(y, x, [y])
    y.add_(1)
    print(y)
    x.mul_(3)
    print(x, y)
    return y


def a_parameter(x):
    print(WEIGHT)
    return x + 1


def without_grad(x):
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        y = WEIGHT * x
        print(y)
    return y


def in_loops_and_calls(x):
    def inner(x, n):
        print("inner", n, x)
        return x + n

    for n in range(3):
        print("round", n)
        x = inner(x, n)
    print("end")
    return x


def of_objects(x):
    print(DESCRIBED, Described(4), seen, {1, 2}, range(3), print, {"a": [1]})
    return x + 1


def among_writes(x):
    global total
    total += 1
    seen[:] = [x.shape[0]]
    print(seen, "first")
    seen.append("second")
    print(seen, DESCRIBED)
    return x + 1


def logs(x):
    y = x * 2
    log.debug("nobody reads this")
    log.info("shape %s", tuple(y.shape))
    print("between")
    log.warning("sum %s, %s", y.sum(), [x])
    logging.getLogger("tests.capture.effects_log.below").error("deep", extra={"key": 1})
    log.log(logging.ERROR, "level")
    y.add_(1)
    return y


def says(text):
    log.warning(text, stacklevel=2)
    warnings.warn(text, RuntimeWarning, stacklevel=2)


def logs_the_caller(x):
    says("one")
    x = x * 2
    says("two")
    return x


def asks_first(x):
    if log.isEnabledFor(logging.DEBUG):
        log.debug("values %s", x)
    return x * 2


def warns(x):
    warnings.warn("odd", stacklevel=1)
    print("after")
    warnings.warn(DeprecationWarning("old"), stacklevel=1)
    warnings.warn_explicit("there", UserWarning, "there.py", 3)
    for _ in range(2):
        warnings.warn("again", RuntimeWarning, stacklevel=1)
    return x * 2


def warns_and_catches(x):
    try:
        warnings.warn("odd", RuntimeWarning, stacklevel=1)
    except RuntimeWarning as error:
        print("caught", str(error))
        x = x + 1
    return x * 2


def to_a_stream(x):
    print("out", file=sys.stdout)
    print("error", file=sys.stderr)
    print("none", file=None)
    return x * 2


WHOLE = [
    constants, shapes, values, values_written_later, a_parameter, without_grad, in_loops_and_calls, of_objects,
    among_writes, logs, logs_the_caller, asks_first, warns, warns_and_catches, to_a_stream,
]  # fmt: skip


# --- with a break, or an error ----------------------------------------------------------------------------------------
def before_a_break(x):
    y = x * 2
    print("before", y)
    log.warning("before")
    tg.graph_break()
    print("behind", y)
    return y + 1


def with_a_history(x):
    y = WEIGHT * x
    print(y)
    return y.detach() + 1


def talks_while_shown(x):
    print("a", TALKING)
    return x + 1


def talks_while_shown_after_a_write(x):
    seen.append(1)
    print("a", TALKING)
    return x + 1


def raises_behind(x):
    y = x * 2
    print("before", y)
    log.warning("before")
    raise ValueError("this")


def fails_behind(x):
    print("before", x)
    y = torch.zeros(3)[x.long() + 5]
    print("never")
    return y


def fails_behind_a_write(x):
    x.add_(1)
    print("before", x)
    y = torch.zeros(3)[x.long() + 5]
    print("never")
    return y


def with_the_exception(x):
    try:
        raise ValueError("this")
    except ValueError:
        log.exception("caught")
    return x + 1


def redirects(x):
    with contextlib.redirect_stdout(sys.stderr):
        print("to stderr", x)
    print("to stdout")
    return x + 1


def redirects_to_a_buffer(x):
    buffer = io.StringIO()
    with contextlib.redirect_stdout(buffer):
        print("hidden")
    print("shown")
    return x + len(buffer.getvalue())


def checks(x):
    print("before")
    if (x > 100).any():
        raise ValueError("large")
    print("behind")
    return x + 1


def filters_inside(x):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("inside", stacklevel=1)
    warnings.warn("outside", stacklevel=1)
    return x + 1


def requires_grad_later(x):
    y = x.detach().clone()
    print(x)
    x.requires_grad_()
    return (x * y).sum().detach()


def in_a_checkpoint(x):
    return torch.utils.checkpoint.checkpoint(shapes, x, use_reentrant=False)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        print("forward")
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def in_an_autograd_function(x):
    return Doubled.apply(x)


class Layer(torch.nn.Module):
    def forward(self, x):
        log.warning("of whom", stacklevel=2)
        return x * 2


LAYER = Layer()


def names_the_caller_of_a_module(x):
    return LAYER(x)


def of_a_growing_list(x):
    seen.append(len(seen))
    print("count", len(seen))
    return x + 1


def with_wrong_options(x):
    try:
        print("a", sep=3)
    except TypeError as error:
        print(error)
    return x + 1


OTHERS = [
    names_the_caller_of_a_module, of_a_growing_list, with_wrong_options,
    before_a_break, with_a_history, talks_while_shown, talks_while_shown_after_a_write, raises_behind, fails_behind,
    fails_behind_a_write, with_the_exception, redirects, redirects_to_a_buffer, checks, filters_inside,
    requires_grad_later, in_a_checkpoint, in_an_autograd_function,
]  # fmt: skip


class Brief(logging.Formatter):
    def formatException(self, ei):
        return repr(ei[1])  # one that is handled inside has no traceback


class Shown(logging.StreamHandler):
    """A handler that writes to where print does."""

    def __init__(self):
        super().__init__(sys.stdout)
        self.setFormatter(Brief("%(name)s %(levelname)s %(funcName)s:%(lineno)d %(message)s"))


def trace_of(function, action="always", level=logging.INFO, captures=False):
    """All that three calls show, in order, and what they return or raise."""
    global total
    seen.clear()
    total = 0
    out, outcome = io.StringIO(), []
    globals().get("__warningregistry__", {}).clear()
    handler = Shown()
    handler.stream = out
    loggers = (log, logging.getLogger("py.warnings"))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), warnings.catch_warnings():
        warnings.simplefilter(action)
        warnings.showwarning = lambda m, c, file, line, *_: print("warns", c.__name__, m, file, line)
        logging.captureWarnings(captures)
        for logger in loggers:
            logger.addHandler(handler)
            logger.propagate = False
        log.setLevel(level)
        try:
            for n in range(3):
                x = torch.arange(2.0) + n
                try:
                    outcome.append((function(x).tolist(), x.tolist()))
                except Exception as error:
                    outcome.append((type(error), str(error), x.tolist()))
                print("returned", seen, total)
        finally:
            logging.captureWarnings(False)
            log.setLevel(logging.NOTSET)
            for logger in loggers:
                logger.removeHandler(handler)
                logger.propagate = True
    return out.getvalue(), outcome


@pytest.mark.parametrize("function", WHOLE)
def test_shown_in_order_without_a_break(function):
    compiled = tg.compile(function, backend="eager", fullgraph=True)
    assert trace_of(compiled) == trace_of(function)


@pytest.mark.parametrize("function", OTHERS)
def test_shown_in_order_around_breaks_and_errors(function):
    compiled = tg.compile(function, backend="eager")
    assert trace_of(compiled) == trace_of(function)


@pytest.mark.parametrize("function", [values_written_later, in_loops_and_calls, logs, before_a_break, fails_behind])
def test_compiled_by_glass(function):
    assert trace_of(tg.compile(function)) == trace_of(function)


@pytest.mark.parametrize("function", [warns, warns_and_catches, logs_the_caller, logs, asks_first])
def test_filters_and_levels_are_relied_on(function):
    compiled = tg.compile(function, backend="eager")
    for action in ("default", "error", "ignore", "once", "module", "default"):
        assert trace_of(compiled, action) == trace_of(function, action), action
    for level in (logging.DEBUG, logging.ERROR, logging.CRITICAL, logging.DEBUG):
        assert trace_of(compiled, level=level) == trace_of(function, level=level), level
    assert trace_of(compiled, captures=True) == trace_of(function, captures=True)


def test_an_error_filter_raises_at_the_users_line():
    compiled = tg.compile(warns, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="odd") as caught:
            compiled(torch.ones(2))
    lines = {entry.lineno + 1 for entry in caught.traceback if entry.path.name == "test_effects_log.py"}
    assert warns.__code__.co_firstlineno + 1 in lines


def test_what_runs_is_what_is_read(tmp_path):
    with tg.prepare_debug(tmp_path):
        tg.compile(shapes, backend="eager")(torch.ones(2))
    (text,) = (path.read_text() for path in tmp_path.rglob("transformed.py"))
    assert "    print('shape', torch.Size((2,)), torch.float32, " in text
    assert text.index("graph_0(") < text.index("print(") < text.index("return add")


def test_training_with_prints_that_fail_late_keeps_the_weights():
    """With ``fullgraph`` inputs that are written to are copied where the graph may fail behind a print."""
    compiled = tg.compile(fails_behind_a_write, backend="eager", fullgraph=True)
    assert trace_of(compiled) == trace_of(fails_behind_a_write)


FIRST = """
import torch, torchglass as tg, warnings

def warns(x):
    warnings.warn("odd", stacklevel=1)
    return x * 2

for _ in range(2):
    tg.compile(warns, backend="eager")(torch.ones(2))
"""


def test_the_first_compile_of_a_process_relies_on_filters_as_they_stay(tmp_path):
    """Libraries that the compiler loads add filters."""
    (tmp_path / "first.py").write_text(FIRST)
    done = subprocess.run([sys.executable, str(tmp_path / "first.py")], capture_output=True, text=True, check=True)
    assert done.stderr.count("UserWarning: odd") == 1 and len(done.stderr.splitlines()) == 2, done.stderr
