"""What was read and changes compiles again, once, and says why; what was not read does not."""

import collections
import gc
import logging
import types

import pytest
import torch
from tests.complaints import complains
from torch import nn

import torchglass as tg


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield
    tg.reset()
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(False)


def x():
    return torch.arange(6.0).reshape(2, 3)


# --- one row for each thing a program can read: how it is read, what changes it --------------------------------------
class Point:
    scale = 2

    def __init__(self, a=1, b=2):
        self.a = a
        self.b = b

    def shifted(self):
        return self.a + 1


OTHER = Point(1, 2)


def module(**changes):
    made = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    with torch.no_grad():
        made[0].weight.fill_(0.5)
        made[0].bias.zero_()
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def set_attribute(name, value):
    return lambda held: setattr(held, name, value)


def replace_weight(held):
    held[0].weight = nn.Parameter(torch.ones(3, 3))


def add_hook(held):
    held[0].register_forward_hook(lambda module, inputs, output: output + 1)


def add_submodule(held):
    held.append(nn.Identity())


# name: (makes the held value, function of x and it, change that was read, change that was not)
KINDS = {
    "constant": (lambda: Point(), lambda x, p: x * p.a, set_attribute("a", 5), set_attribute("b", 5)),
    "constant of another type": (lambda: Point(), lambda x, p: (x, str(p.a)), set_attribute("a", 1.0),
                                 set_attribute("b", 1.0)),
    "type": (lambda: Point(), lambda x, p: x if isinstance(p.a, int) else -x, set_attribute("a", "text"),
             set_attribute("b", "text")),
    "None or not": (lambda: Point(None), lambda x, p: x if p.a is None else -x, set_attribute("a", 1),
                    set_attribute("b", None)),
    "missing attribute": (lambda: Point(), lambda x, p: x * getattr(p, "c", 1), set_attribute("c", 3),
                          set_attribute("d", 3)),
    "deleted attribute": (lambda: Point(), lambda x, p: x * 2 if hasattr(p, "a") else x, lambda p: delattr(p, "a"),
                          lambda p: delattr(p, "b")),
    "method of the object": (lambda: Point(), lambda x, p: x * p.shifted(),
                             set_attribute("shifted", lambda: 9), set_attribute("other", lambda: 9)),
    "class": (lambda: Point(), lambda x, p: x * p.scale, set_attribute("__class__", type("P", (Point,), {"scale": 7})),
              set_attribute("b", 7)),
    "object identity": (lambda: Point(OTHER), lambda x, p: x if p.a is OTHER else -x, set_attribute("a", Point()),
                        set_attribute("b", Point())),
    "list length": (lambda: [1, 2], lambda x, v: x * len(v), lambda v: v.append(3), lambda v: v.reverse()),
    "list item": (lambda: [1, 2], lambda x, v: x * v[0], lambda v: v.__setitem__(0, 9), lambda v: v.__setitem__(1, 9)),
    "tuple in a list": (lambda: [(1, 2)], lambda x, v: x * v[0][1], lambda v: v.__setitem__(0, (1, 3)),
                        lambda v: v.__setitem__(0, (5, 2))),
    "dict item": (lambda: {"a": 1, "b": 2}, lambda x, v: x * v["a"], lambda v: v.update(a=4), lambda v: v.update(b=4)),
    "dict key": (lambda: {"a": 1}, lambda x, v: x if "b" in v else -x, lambda v: v.update(b=4),
                 lambda v: v.update(c=4)),
    "dict keys": (lambda: {"a": 1}, lambda x, v: (x, list(v)), lambda v: v.update(b=4), lambda v: v.update(a=4)),
    "dict order": (lambda: {"a": 1, "b": 2}, lambda x, v: (x, list(v)), lambda v: v.update(a=v.pop("a")),
                   lambda v: v.update(b=4)),
    "ordered dict": (lambda: collections.OrderedDict(a=1, b=2), lambda x, v: x * v["a"],
                     lambda v: v.__setitem__("a", 6), lambda v: v.__setitem__("b", 6)),
    "deque": (lambda: collections.deque([1, 2]), lambda x, v: x * len(v), lambda v: v.append(1),
              lambda v: v.__setitem__(1, 5)),
    "shape": (lambda: [x()], lambda _, v: v[0] + 1, lambda v: v.__setitem__(0, torch.ones(4)),
              lambda v: v.__setitem__(0, torch.ones(2, 3))),
    "dtype": (lambda: [x()], lambda _, v: v[0] + 1, lambda v: v.__setitem__(0, x().double()),
              lambda v: v.__setitem__(0, -x())),
    "strides": (lambda: [x()], lambda _, v: v[0] + 1, lambda v: v.__setitem__(0, torch.ones(3, 2).t()),
                lambda v: v[0].add_(1)),
    "requires_grad": (lambda: [x()], lambda _, v: v[0] + 1, lambda v: v[0].requires_grad_(), lambda v: v[0].zero_()),
    "tensor or None": (lambda: [None, 1], lambda x, v: x if v[0] is None else x + v[0],
                       lambda v: v.__setitem__(0, torch.ones(3)), lambda v: v.__setitem__(1, torch.ones(3))),
    "training": (lambda: module(), lambda x, m: m(x) if m.training else -x, lambda m: m.eval(),
                 set_attribute("name", "other")),
    "module in a module": (lambda: module(), lambda x, m: m(x), lambda m: m.__setitem__(1, nn.Tanh()),
                           lambda m: m[0].weight.data.mul_(2)),
    "submodule": (lambda: module(), lambda x, m: m(x), add_submodule, set_attribute("note", 1)),
    "parameter": (lambda: module(), lambda x, m: m(x), lambda m: m[0].weight.requires_grad_(False),
                  replace_weight),
    "data": (lambda: module(), lambda x, m: m(x), lambda m: m.double(), lambda m: m[0].weight.data.zero_()),
    "hook": (lambda: module(), lambda x, m: m(x), add_hook, set_attribute("hooked", True)),
    "forward": (lambda: module(), lambda x, m: m(x), lambda m: setattr(m[0], "forward", lambda x: x * 5),
                lambda m: setattr(m[0], "backwards", lambda x: x * 5)),
}  # fmt: skip


def outcome(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)


def same(a, b):
    if isinstance(a, torch.Tensor):
        torch.testing.assert_close(a, b)
        assert a.requires_grad == b.requires_grad
    elif isinstance(a, tuple):
        assert len(a) == len(b)
        for left, right in zip(a, b):
            same(left, right)
    else:
        assert a == b
        assert type(a) is type(b)


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_of_what_was_read_compiles_again(kind):
    make, function, change, _ = KINDS[kind]
    compiled = tg.compile(function, backend="eager")
    mine, theirs = make(), make()
    same(outcome(compiled, x(), mine), outcome(function, x(), theirs))
    change(mine), change(theirs)
    for _ in range(2):
        same(outcome(compiled, x(), mine), outcome(function, x(), theirs))
    explanation = tg.explain(compiled)
    if not explanation.record.fallbacks:  # what the change made of it may not compile
        assert len(explanation.entries) == 2
        (recompile,) = explanation.record.recompiles
        assert recompile.guard.why


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_of_what_was_not_read_does_not(kind):
    make, function, _, change = KINDS[kind]
    compiled = tg.compile(function, backend="eager")
    mine, theirs = make(), make()
    same(outcome(compiled, x(), mine), outcome(function, x(), theirs))
    change(mine), change(theirs)
    same(outcome(compiled, x(), mine), outcome(function, x(), theirs))
    assert len(tg.explain(compiled).entries) == 1


# --- global state ----------------------------------------------------------------------------------------------------
STATES = {
    "grad mode": torch.no_grad,
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "default dtype": lambda: _Default(torch.float64),
    "deterministic mode": lambda: _Deterministic(),
    "default device": lambda: torch.device("cpu"),
}


class _Default:
    def __init__(self, dtype):
        self.dtype = dtype

    def __enter__(self):
        torch.set_default_dtype(self.dtype)

    def __exit__(self, *error):
        torch.set_default_dtype(torch.float32)


class _Deterministic:
    def __enter__(self):
        torch.use_deterministic_algorithms(True)

    def __exit__(self, *error):
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("name", STATES)
def test_global_state(name):
    weight = torch.randn(3, 3, requires_grad=True)

    def f(x):
        return x @ weight + torch.ones(3), torch.tensor(1.5)

    compiled = tg.compile(f, backend="eager")
    same(compiled(x()), f(x()))
    for _ in range(2):
        with STATES[name]():
            same(outcome(compiled, x()), outcome(f, x()))
        same(compiled(x()), f(x()))
    assert len(tg.explain(compiled).entries) <= 2


# --- namespaces ------------------------------------------------------------------------------------------------------
setting = 2
unread = 2


def test_a_global(monkeypatch):
    def f(x):
        return x * setting

    compiled = tg.compile(f, backend="eager")
    same(compiled(x()), f(x()))
    monkeypatch.setitem(globals(), "unread", 9)
    compiled(x())
    assert len(tg.explain(compiled).entries) == 1
    monkeypatch.setitem(globals(), "setting", 9)
    same(compiled(x()), f(x()))
    assert len(tg.explain(compiled).entries) == 2


def test_a_global_of_a_namespace_that_is_no_imported_module():
    """As with runpy, exec, plugins: a called function's globals are those of its own namespace, wherever that is."""
    namespace = {"__name__": "nowhere_imported", "factor": 2}
    exec("def helper(x):\n    return x * factor\n", namespace)
    helper = namespace["helper"]

    def f(x):
        return helper(x)

    compiled = tg.compile(f, backend="eager")
    same(compiled(x()), x() * 2)
    namespace["factor"] = 5
    same(compiled(x()), x() * 5)


def test_a_users_module_named_like_one_of_the_standard_library(monkeypatch):
    import sys

    mine = types.ModuleType("this")
    mine.__file__ = "/home/user/project/this.py"
    exec("factor = 2\ndef helper(x):\n    return x * factor\n", vars(mine))
    monkeypatch.setitem(sys.modules, "this", mine)

    def f(x):
        return mine.helper(x)

    compiled = tg.compile(f, backend="eager")
    same(compiled(x()), x() * 2)
    mine.factor = 5
    same(compiled(x()), x() * 5)


def test_a_closure_and_a_default():
    factor = 2

    def f(x, by=1):
        return x * factor + by

    compiled = tg.compile(f, backend="eager")
    same(compiled(x()), f(x()))
    factor = 3
    same(compiled(x()), f(x()))
    same(compiled(x(), 4), f(x(), 4))
    assert len(tg.explain(compiled).entries) == 3


# --- what is told ----------------------------------------------------------------------------------------------------
def test_a_recompile_names_the_guard_the_values_and_the_line():
    def f(x, config):
        y = x + 1
        return y * config["factor"]

    compiled = tg.compile(f, backend="eager")
    compiled(x(), {"factor": 2})
    compiled(x(), {"factor": 7})
    explanation = tg.explain(compiled)
    (recompile,) = explanation.record.recompiles
    assert (recompile.old, recompile.new) == (2, 7)
    assert recompile.guard.source.render() == "config['factor']"
    assert recompile.guard.origin.line == f.__code__.co_firstlineno + 2
    text = str(explanation)
    assert "config['factor']" in text


def test_a_recompile_is_logged(caplog):
    def f(x, n):
        return x * n

    compiled = tg.compile(f, backend="eager")
    with caplog.at_level(logging.INFO, "torchglass"):
        compiled(x(), 2)
        compiled(x(), 3)
    (said,) = [r.getMessage() for r in caplog.records if "again" in r.getMessage()]
    assert "n:" in said
    assert "was 2, is 3" in said
    assert f"test_guards.py:{f.__code__.co_firstlineno + 1}" in said


def test_past_the_limit_it_says_once_what_kept_failing():
    def f(x, n, flag):
        return x.roll(n) if flag else x

    compiled = tg.compile(f, backend="eager", dynamic=False, options={"cache_limit": 4})
    with complains("entries") as said:
        for n in range(12):
            same(compiled(x(), n, True), f(x(), n, True))
    (message,) = said
    assert "4 entries" in message
    assert "`n`" in message or " n" in message
    assert "flag" not in message
    assert len(tg.explain(compiled).entries) == 4


def test_entries_are_tried_latest_hit_first():
    def f(x, n):
        return x.roll(n)

    compiled = tg.compile(f, backend="eager", dynamic=False)
    for n in (1, 2, 3, 1):
        compiled(x(), n)
    latest = tg.explain(compiled).entries[0]
    assert len(tg.explain(compiled).entries) == 3
    assert latest is not None


# --- entries die with what they refer to -----------------------------------------------------------------------------
def test_nothing_keeps_a_compiled_closure_alive():
    import weakref

    def make(n):
        held = Point(n)

        def f(x):
            return x * held.a

        return f, held

    f, held = make(2)
    compiled = tg.compile(f, backend="eager")
    compiled(x())
    tg.explain(compiled)  # writes the reports of a folder that was asked for, which wait for a moment otherwise
    gone = [weakref.ref(f), weakref.ref(held), weakref.ref(compiled)]
    del f, held, compiled
    gc.collect()
    assert [r() for r in gone] == [None] * 3


def test_a_mode_around_the_call_sees_the_program_alone():
    class Logs(torch.overrides.TorchFunctionMode):
        def __init__(self):
            self.log = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.log.append(func)
            return func(*args, **(kwargs or {}))

    compiled = tg.compile(lambda x: x.sin() + 1, backend="eager")
    x = torch.randn(3)
    compiled(x)
    with Logs() as mode:
        compiled(x), compiled(x[1:])
    assert [f.__name__ for f in mode.log] == ["sin", "add", "__getitem__", "sin", "add"]
    assert len(tg.explain(compiled).entries) == 1


def test_what_decides_on_a_key_is_guarded():
    class Key:
        def __init__(self, a):
            self.a = a

        def __hash__(self):
            return hash(self.a)

        def __eq__(self, other):
            return self.a == other.a

    table = {Key(1): 2.0, Key(2): 3.0}
    compiled = tg.compile(lambda x, key: x * table[key], backend="eager", fullgraph=True)
    x, key = torch.ones(2), Key(2)
    assert compiled(x, key)[0] == 3 and compiled(x, Key(2))[0] == 3
    assert len(tg.explain(compiled).entries) == 1
    assert compiled(x, Key(1))[0] == 2
    key.a = 1
    assert compiled(x, key)[0] == 2


def test_why_a_call_fits_no_entry_is_told_of_each_nearest_first():
    """Not of the newest alone; of objects their kind, and not what a report is made of."""

    class Switch:
        pass

    on, off = Switch(), Switch()

    def f(x, switch, n):
        return x * n if switch is on else x - n

    compiled = tg.compile(f, backend="eager")
    compiled(x(), on, 2)
    compiled(x().double(), off, 3)
    compiled(x(), on, 5)
    explanation = tg.explain(compiled)
    first, second = explanation.to_dict()["recompiles"]
    assert first["entry"] == 0 and not first["others"]
    assert (second["entry"], second["guard"]) == (0, "n == 2") and [other["entry"] for other in second["others"]] == [1]
    assert "pipeline" not in str(explanation) and "nor 1" in str(explanation)


def test_at_level_info_a_compile_is_one_line(caplog):
    compiled = tg.compile(lambda x, n: x.sin().sum() * n)
    with caplog.at_level(logging.INFO, "torchglass"):
        for n in (2, 3):
            compiled(torch.ones(3, requires_grad=True), n).backward()
    first, second = [r.getMessage() for r in caplog.records]
    assert "is compiled: entry 0, 1 graph" in first and "is compiled again, since n" in second


def test_equal_ranges_of_other_bounds_are_told_apart():
    def f(x, steps):
        return x + steps.stop, str(steps)

    compiled = tg.compile(f, backend="eager")
    for steps in (range(0, 3, 2), range(0, 4, 2), range(0), range(5, 5), range(0, 3, 2)):
        assert [torch.equal(compiled(x(), steps)[0], f(x(), steps)[0]), compiled(x(), steps)[1]] == [True, str(steps)]
