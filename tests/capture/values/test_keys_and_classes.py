"""Objects as keys, and what stands on classes: relied on by identity and by value, wherever they are reached from."""

import functools
import typing
from collections import OrderedDict

import pytest
import torch
from torch import nn

import torchglass as tg

from ..compared import same


class Key:
    pass


class Counted:
    """A decorator with a state, which stands on a class."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *args):
        self.calls += 1
        return self.function(*args)

    def __get__(self, owner, cls=None):
        return self if owner is None else functools.partial(self, owner)


class Stored:
    """A data descriptor that keeps one value for all."""

    value = 1

    def __get__(self, owner, cls=None):
        return self.value

    def __set__(self, owner, value):
        self.value = value


class Model:
    scale = 2
    sizes = [1, 2]
    stored = Stored()

    @Counted
    def doubled(self, x):
        return x * 2

    def scaled(self, x):
        return x * self.scale


class Heir(Model):
    pass


A, B, C = Key(), Key(), Key()
P, Q, R = torch.ones(2), torch.ones(2), torch.ones(2)
M, N = nn.ReLU(), nn.ReLU()
TABLE = {A: 1, B: 2, P: 3, Q: 4, M: 5, N: 6, (A, 1): 7, (B, 1): 8}
MADE, INHERITED = Model(), Heir()


def pairs(k):
    return [(A, 1), (k, 1)]


# What is looked up, and the objects it is looked up with, one after the other: each may be told from the one before.
LOOKED_UP = {
    "an item": (lambda x, k: x * TABLE[k], (A, B, A)),
    "with a default": (lambda x, k: x * TABLE.get(k, 9), (A, C, B)),
    "a member": (lambda x, k: x + (k in TABLE), (A, C, B)),
    "a tensor": (lambda x, k: x * TABLE[k], (P, Q, P)),
    "a tensor that is missing": (lambda x, k: x * TABLE.get(k, 9), (R, P, Q)),
    "a module": (lambda x, k: k(x) * TABLE[k], (M, N)),
    "in a tuple": (lambda x, k: x * TABLE[k, 1], (A, B)),
    "among all keys": (lambda x, k: x * next(n for n, key in enumerate(TABLE) if key is k), (A, B)),
    "a dictionary made inside": (lambda x, k: x * {A: 1}.get(k, 2), (B, A, C)),
    "a set made inside": (lambda x, k: x * len({A, k}), (B, A)),
    "a set of pairs": (lambda x, k: x * len(set(pairs(k))), (B, A)),
    "keys of tensors": (lambda x, k: x * len(OrderedDict.fromkeys([P, k])), (Q, P)),
}


@pytest.mark.parametrize("name", LOOKED_UP)
def test_objects_as_keys(name):
    function, keys = LOOKED_UP[name]
    tg.reset()
    compiled = tg.compile(function, backend="eager", fullgraph=True)
    for key in (*keys, *keys):
        same(compiled(torch.ones(1), key), function(torch.ones(1), key))
    assert len(tg.explain(compiled).entries) <= len(set(map(id, keys)))


def test_states_of_an_optimizer_are_found_by_parameter():
    """Two optimizers whose parameters look alike, as the state of one that is written by hand is kept."""

    class Momentum(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.1})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    state["sum"] = state.get("sum", 0) * 0.9 + p.grad
                    p.sub_(state["sum"] * group["lr"])

    def run(compiling):
        tg.reset()
        step = tg.compile(Momentum.step, backend="eager") if compiling else Momentum.step
        parameters = [[nn.Parameter(torch.ones(2) * n) for n in range(2)] for _ in range(2)]
        optimizers = [Momentum(p) for p in parameters]
        for round_ in range(3):
            for o, optimizer in enumerate(optimizers):
                for n, p in enumerate(parameters[o]):
                    p.grad = torch.full((2,), 1.0 + round_ + 10 * o + n)
                step(optimizer)
        return [p.detach() for each in parameters for p in each]

    same(run(True), run(False))


# What stands on a class, reached from objects made before and inside, and what changes it.
ON_CLASSES = {
    "through an object made inside": (lambda x: x * Model().scale, lambda: setattr(Model, "scale", Model.scale + 1)),
    "in a method of one": (lambda x: Model().scaled(x), lambda: setattr(Model, "scale", Model.scale + 1)),
    "inherited": (lambda x: x * Heir().scale * INHERITED.scale, lambda: setattr(Model, "scale", Model.scale + 1)),
    "a list": (lambda x: x * len(Model().sizes), lambda: Model.sizes.append(1)),
    "state of a decorator": (lambda x: (MADE.doubled(x), Model.doubled.calls), lambda: None),
    "state of a decorator of a base": (lambda x: (INHERITED.doubled(x), Heir.doubled.calls), lambda: None),
    "written beside": (lambda x: (Model().doubled(x), Model.doubled.calls), lambda: Model.doubled.__init__(torch.neg)),
    "a data descriptor": (lambda x: x * MADE.stored, lambda: setattr(MADE, "stored", MADE.stored + 1)),
    "one that is written": (lambda x: x * count(), lambda: None),
}


def count():
    MADE.stored = MADE.stored + 1
    return Model().stored


@pytest.mark.parametrize("name", ON_CLASSES)
def test_what_stands_on_classes(name, monkeypatch):
    function, change = ON_CLASSES[name]

    def run(call):
        monkeypatch.setattr(Model, "scale", 2)
        monkeypatch.setattr(Model, "sizes", [1, 2])
        Model.__dict__["stored"].value = 1
        Model.__dict__["doubled"].__init__(lambda self, x: x * 2)
        found = []
        for _ in range(4):
            try:
                found.append(call(torch.ones(1)))
            except TypeError as error:
                found.append(str(error))
            change()
        return found

    tg.reset()
    same(run(tg.compile(function, backend="eager")), run(function))


class Record(typing.TypedDict, total=False):
    image: torch.Tensor


def test_an_instance_of_a_typed_dict_is_a_dict():
    compiled = tg.compile(lambda x: Record(image=x), backend="eager", fullgraph=True)
    assert type(compiled(torch.ones(1))) is dict


def test_tensors_as_keys_of_a_dictionary_that_changes_are_never_compared():
    def move_first_to_the_end(places, first):
        places[first] = places.pop(first) + 1

    def empty(places, first):
        places.clear()

    for values in ([1.0, 1.0, 1.0], [[1.0, 2.0], [1.0, 2.0]], [[1.0, 2.0], [1.0, 2.0, 3.0], [1.0]]):
        for function in (move_first_to_the_end, empty):
            keys = [torch.tensor(value) for value in values]
            mine, theirs = ({key: n for n, key in enumerate(keys)} for _ in range(2))
            tg.compile(function, fullgraph=True, backend="eager")(mine, keys[0])
            function(theirs, keys[0])
            assert list(map(id, mine)) == list(map(id, theirs))
            assert list(mine.values()) == list(theirs.values())


class Compiled:
    """Methods that are compiled where they are defined."""

    factor = 2

    def __init__(self, k):
        self.k = k

    @tg.compile(backend="eager")
    def scaled(self, x):
        return x * self.k * self.factor

    @tg.compile(backend="eager")
    def twice(self, x):
        return self.scaled(x) + Compiled.scaled(self, x)

    @tg.compile(backend="eager")
    def powers(self, x, n):
        return x if n == 0 else self.powers(x * self.k, n - 1)

    @tg.compile(backend="eager")
    def __call__(self, x):
        return self.scaled(x) - 1

    @tg.compile(backend="eager")
    def __add__(self, other):
        return self.k + other.k


class CompiledHeir(Compiled):
    @tg.compile(backend="eager")
    def scaled(self, x):
        return super().scaled(x) * 10


def test_methods_compiled_in_their_class_are_inlined(monkeypatch):
    def f(x, one, other):
        return [o.twice(x) for o in (one, other)], one.powers(x, 3), other(x), one + other, other.scaled(x)

    one, other, x = Compiled(3), CompiledHeir(4), torch.ones(2)
    compiled = tg.compile(f, fullgraph=True, backend="eager")
    same(compiled(x, one, other), ([x * 12, x * 88], x * 27, x * 79, 7, x * 80))
    one.k = 5
    monkeypatch.setattr(Compiled, "factor", 1)
    same(compiled(x, one, other)[0], [x * 10, x * 44])
    monkeypatch.setattr(Compiled, "scaled", tg.compile(lambda self, x: x + self.k, backend="eager"))
    same(compiled(x, one, other)[0], [x * 12, x * 55])


def test_methods_of_one_object_are_equal():
    class Listener:
        def heard(self, x):
            return x

    class Deaf(Listener):
        pass

    def f(x, one, other, listeners):
        made = Listener()
        mine = [one.heard, made.heard]
        found = [one.heard == one.heard, one.heard != one.heard, one.heard is one.heard, one.heard == other.heard]
        found += [
            one.heard in mine,
            made.heard in mine,
            other.heard in mine,
            one.heard in listeners,
            mine.index(made.heard),
        ]
        listeners.remove(one.heard)
        return x, found, one.heard == Listener.heard, Deaf().heard == Deaf().heard, len(listeners)

    compiled, x = tg.compile(f, fullgraph=True, backend="eager"), torch.ones(2)
    for _ in range(2):
        one, other = Listener(), Deaf()
        same(compiled(x, one, other, [other.heard, one.heard]), f(x, one, other, [other.heard, one.heard]))
