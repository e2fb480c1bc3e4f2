"""Arguments of functions that capture follows: who gets what, and CPython's own words where they do not fit."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import torchglass as tg
from torchglass.capture.errors import UserError
from torchglass.capture.interp.machine import Machine
from torchglass.capture.meanings.argument_binding import bind_arguments
from torchglass.capture.values.constant import ConstantV

NAMES = "abcde"


@st.composite
def signatures(draw):
    """A parameter list, as source."""
    names, parts = iter(NAMES), []
    defaulted = False

    def parameters(most, in_order):
        nonlocal defaulted
        for name in [next(names) for _ in range(draw(st.integers(0, most)))]:
            has = draw(st.booleans())
            defaulted = defaulted or (in_order and has)
            yield f"{name}='{name} by default'" if has or (in_order and defaulted) else name

    if only := list(parameters(2, True)):
        parts += [*only, "/"]
    parts += parameters(2, True)
    named = list(parameters(1, False))
    star = draw(st.sampled_from(["*rest", "*"] if named else ["*rest", ""]))
    parts += [star, *named, draw(st.sampled_from(["**named", ""]))]
    return ", ".join(filter(None, parts))


def values_of(bound):
    return {name: v.as_constant() if hasattr(v, "as_constant") else v for name, v in bound.items()}


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(signatures(), st.integers(0, 5), st.lists(st.sampled_from(NAMES + "xy"), unique=True, max_size=3))
def test_binds_as_python_does(signature, count, names):
    scope = {}
    exec(f"class Outer:\n  def called({signature}): return locals()", scope)
    called = scope["Outer"].called
    args, kwargs = list(range(count)), {name: name.upper() for name in names}
    try:
        expected = called(*args, **kwargs)
    except TypeError as error:
        expected = str(error)
    symbolic = [ConstantV(a) for a in args], {k: ConstantV(v) for k, v in kwargs.items()}
    defaults = [ConstantV(d) for d in called.__defaults__ or ()]
    named = {k: ConstantV(v) for k, v in (called.__kwdefaults__ or {}).items()}
    try:
        given = values_of(
            bind_arguments(Machine(called), called.__code__, called.__qualname__, *symbolic, defaults, named)
        )
    except UserError as error:
        given = error.value.args[0].as_constant()
    assert given == expected


def wraps_a_parameter(value, scale=2, /, *rest, shift=0, **named):
    return lambda: (value * scale + shift, rest, sorted(named.items()))


class Layer:
    def __call__(self, value, *, scale):
        return value * scale


def renamed(value):
    return value


renamed.__qualname__ = "a.name.of.its.own"
CALLS = {
    "cell": lambda x: wraps_a_parameter(x, 3, 4, shift=1, value=5, scale=6)(),
    "comprehension": lambda x: [wraps_a_parameter(x, n)()[0] for n in (1, 2)],
    "generator": lambda x: sum(x * n for n in range(3)),
    "lambda with default": lambda x: (lambda a, b=x: a + b)(x),
    "no value": lambda x: Layer()(scale=2),
    "too many": lambda x: Layer()(x, 2),
    "no keyword": lambda x: Layer()(x),
    "by position alone": lambda x: (lambda a, b, /: a)(x, a=1, b=2),
    "unexpected": lambda x: renamed(value=x, other=1),
    "renamed": lambda x: renamed(),
    "inner": lambda x: (lambda: None)(x, x),
    "not strings": lambda x: renamed(**{1: x}),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_mean_the_same_compiled(name):
    def called(x):
        try:
            return CALLS[name](x), None
        except TypeError as error:
            return x, (type(error), error.args, error.__cause__)

    x = torch.ones(3)
    expected, given = called(x), tg.compile(called, fullgraph=True, backend="eager")(x)
    assert str(given) == str(expected)
