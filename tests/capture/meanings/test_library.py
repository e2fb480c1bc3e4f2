"""The standard library's functions in captured code: plain Python's results, in one graph but where the row says so."""

import sys
import warnings
from collections import OrderedDict, defaultdict
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import torchglass as tg

from ..compared import same
from . import library_calls

PROGRAMS = {name: (function, breaks) for name, function, breaks in library_calls.programs()}

LATER = sys.version_info >= (3, 12)  # than the Python of the table's breaks: a later one may have fewer


def arguments(k):
    """Other numbers at each call, and each time other objects."""
    return torch.arange(6.0).reshape(2, 3) + 1, 3 + k, 0.5 / (k + 1), [3, 1, 2], {"k": 7, "j": torch.ones(2)}


def outcome(function, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*args)
        except Exception as error:
            return type(error), str(error)


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


@pytest.mark.parametrize("name", PROGRAMS)
def test_call(name):
    function, breaks = PROGRAMS[name]
    compiled = tg.compile(function, backend="eager")
    for k in (0, 1, 0, 2):
        expected = outcome(function, *arguments(k))
        same(outcome(compiled, *arguments(k)), expected)
    reasons = [b.reason for b in tg.explain(compiled).breaks()]
    raised = isinstance(expected[0], type)
    broken = bool([r for r in reasons if not raised or "the program raises" not in r])
    assert broken == breaks or (breaks and LATER), reasons


@pytest.mark.parametrize("module", library_calls.MODULES, ids=lambda module: module.__name__)
def test_nothing_is_left_out(module):
    rows = library_calls.ROWS[module.__name__]
    left_out = library_calls.LEFT_OUT.get(module.__name__, ())
    missing = [n for n in library_calls.names_of(module) if n not in left_out and not library_calls.called(n, rows)]
    assert not missing, sorted(missing)


class Meter:
    def __init__(self):
        self.name, self.m, self.value = "loss", 2, 0.5


def test_keywords_named_as_ours_are():
    """Keywords of the program's may have any name, those of parameters of the capture's own functions, too."""

    def f(x, meter):
        d = {"a": 1}
        d.update(other=2, self=3, m=4)
        made = dict(other=[1], self=2, m=3), OrderedDict(self=1, other=2), defaultdict(list, other=3, m=2)  # noqa: C408
        space = SimpleNamespace(self=1, m=2, other=3)
        text = "{name} {m:.2f} {self} {function} {args} {handler}".format(
            self=1, function=2, args=3, handler=4, **meter.__dict__
        )
        return d, made, (space.self, space.m, space.other), text, x.shape

    assert tg.compile(f, fullgraph=True)(torch.ones(2), Meter()) == f(torch.ones(2), Meter())


def test_a_method_of_a_function_made_anew_at_each_read():
    def scale(x):
        return x * 3

    compiled = tg.compile(lambda x: scale.__get__(x)() + scale.__call__(x), fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 6.0))
    assert len(tg.explain(compiled).entries) == 1


def test_what_torch_says_of_itself():
    """``_get_tracing_state`` gives None, which `torch.nn.utils.parametrize.cached` compares with."""
    linear = nn.Linear(3, 3)
    parametrize.register_parametrization(linear, "weight", nn.Tanh())

    def f(x):
        with parametrize.cached():
            y = linear(x) + linear(x)
        return y, torch._C._get_tracing_state(), torch.jit.is_tracing(), torch.jit.is_scripting()

    compiled, x = tg.compile(f, backend="eager", fullgraph=True), torch.ones(2, 3)
    same(compiled(x), f(x))


def recorded(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        y = x * 2
        warnings.warn("odd", RuntimeWarning, stacklevel=1)
    return y, [str(w.message) for w in seen]


def records_in_a_call(x):
    return recorded(x + 1), x * 3


def filtered(x):
    with warnings.catch_warnings(action="ignore"):
        warnings.warn("odd", RuntimeWarning, stacklevel=1)
        return x * 2


@pytest.mark.parametrize("function", [recorded, records_in_a_call, filtered])
def test_warnings_that_the_program_looks_at_are_there(function):
    compiled = tg.compile(function, backend="eager", fullgraph=function is filtered)
    for n in range(3):
        same(compiled(torch.ones(2) + n), function(torch.ones(2) + n))


class OfTheClass(property):
    """A property of the class itself, as transformers' configurations have."""

    def __get__(self, instance, owner=None):
        return self.fget(owner)


class Scaled:
    factor = 3

    @OfTheClass
    def scales(cls):
        return {"a": cls.factor}


class ScaledMore(Scaled):
    factor = 4


def test_properties_with_a_getter_of_their_own():
    compiled = tg.compile(lambda x, c: x * c.scales["a"] + type(c).scales["a"], backend="eager", fullgraph=True)
    for c in (Scaled(), Scaled(), ScaledMore(), Scaled()):
        assert compiled(torch.ones(1), c).item() == 2 * c.factor
    assert len(tg.explain(compiled).record.entries) == 2
