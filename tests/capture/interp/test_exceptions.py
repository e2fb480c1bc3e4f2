"""Exceptions raised while capturing: every call has its own object, with eager's words, attributes and context."""

import gc
import sys
import weakref

import pytest
import torch

import torchglass as tg
from torchglass.capture.values.tensor import METADATA


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


def not_in_list(x):
    try:
        [].index(3)
    except ValueError as e:
        return e, x + 1


def no_attribute(x):
    try:
        (3).foo  # noqa: B018
    except AttributeError as e:
        return e, x + 1


def no_name(x):
    try:
        undefined  # noqa: B018
    except NameError as e:
        return e, x + 1


def no_free_variable(x):
    def inner():
        return y

    try:
        inner()
    except NameError as e:
        return e, x + 1
    y = x


def with_an_attribute(x):
    try:
        int("a")
    except ValueError as e:
        e.note = 3
        return e, x + 1


def no_text(x):
    try:
        b"\xff".decode()
    except ValueError as e:
        return e, x + 1


def in_a_handler(x):
    try:
        try:
            (3).foo  # noqa: B018
        except AttributeError:
            {}["key"]
    except KeyError as e:
        return e, x + 1


def with_a_cause(x):
    try:
        try:
            (3).foo  # noqa: B018
        except AttributeError as e:
            raise ValueError from e
    except ValueError as e:
        return e, x + 1


PROGRAMS = [
    not_in_list,
    no_attribute,
    no_name,
    no_free_variable,
    with_an_attribute,
    no_text,
    in_a_handler,
    with_a_cause,
]


def seen(error):
    """What a program can see of an exception and of those behind it."""
    if error is None:
        return None
    names = [getattr(error, name, None) for name in ("name", "obj", "start", "reason")]
    links = seen(error.__context__), seen(error.__cause__), error.__suppress_context__
    return repr(error), vars(error), names, links


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_each_call_has_its_own_exception(program):
    compiled = tg.compile(program, backend="eager", fullgraph=True)
    first, _ = compiled(torch.ones(1))
    second, _ = compiled(torch.ones(1))
    expected, _ = program(torch.ones(1))
    assert first is not second
    assert seen(first) == seen(second) == seen(expected)


def test_nothing_is_handled_after_an_exception_in_finally():
    """What continues the function where the clean-up raises again does not leave the exception behind."""

    def f(x, n):
        try:
            n[n]
        finally:
            (x, 1) - n

    with pytest.raises(TypeError, match="unsupported operand") as caught:
        tg.compile(f, backend="eager")(torch.ones(1), 3)
    assert sys.exc_info() == (None, None, None)
    assert "not subscriptable" in str(caught.value.__context__)
    assert caught.value.__context__.__context__ is None


@pytest.mark.parametrize("name", sorted(name for name in METADATA if not hasattr(torch.Tensor, name)) or ["nothing"])
def test_attributes_that_tensors_of_this_pytorch_lack(name):
    def f(x):
        return getattr(x, name)

    with pytest.raises(AttributeError, match=f"'Tensor' object has no attribute '{name}'"):
        tg.compile(f, backend="eager", fullgraph=True)(torch.ones(1))


def raised_with_a_cause(x):
    made = Held(x + 1)
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise Held.Error(made.value.shape) from error


def raised_and_written(x):
    error = Held.Error(x.shape)
    error.held = Held(x)
    raise error


class Held:
    """What a weak reference tells when it is gone."""

    class Error(Exception):
        pass

    def __init__(self, value):
        self.value = value


@pytest.mark.parametrize("program", [raised_with_a_cause, raised_and_written])
def test_an_exception_that_leaves_dies_with_its_last_name(program):
    """It lies in none of the frames that its traceback holds: the arguments die without the collector."""
    compiled = tg.compile(program)
    gc.collect()
    gc.disable()
    try:
        for function in (compiled, compiled, program if program is raised_with_a_cause else compiled):
            x = torch.ones(2)
            seen = weakref.ref(x)
            with pytest.raises(Held.Error):
                function(x)
            del x
            assert seen() is None
    finally:
        gc.enable()
