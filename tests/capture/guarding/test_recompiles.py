"""Guards hold what was relied on and nothing more: what makes a new entry, what does not, and what the report says."""

import collections
import copy
import inspect
import types

import pytest
import torch
from torch import nn

import torchglass as tg

from ..compared import run, same
from ..tables import entered, program_files

# Applications are long, and what they rely on is of the same kinds.
PROGRAMS = entered("PROGRAMS", [f for f in program_files() if ".applications." not in f.__name__])
# Programs that are called with something else the second time, by what has changed.
CHANGING = {
    "class_attribute_counter": "a counter is a key",
    "data_augmentation": "a branch and two indices read random numbers",
    "default_argument_that_grows": "the list in the default is read",
    "hook_removed": "each hook has a key of its own",
    "list_of_tensors_mutated": "the list in the arguments changed",
    "nonlocal_counter": "the list outside is read",
    "time_is_measured": "a branch reads a time",
}


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n.partition(" of ")[0] not in CHANGING])
def test_calls_of_the_same_kind_are_hits(name):
    torch.manual_seed(0)
    function, arguments = PROGRAMS[name]()
    compiled = tg.compile(function, backend="eager")
    counts = []
    for _ in range(3):
        run(compiled, arguments)
        counts.append(len(list(tg.explain(compiled).all_entries())))
    assert counts[1] == counts[2], [r for record in tg.explain(compiled).record.walk() for r in record.recompiles]


# --- what is another one at each call ---------------------------------------------------------------------------------
def keeps(x, n, seen):
    seen.append(x * n)
    return seen[-1] + 1


def keeps_several(x, n, seen):
    seen += (y for y in (x, n))
    seen.extend([n])
    return x


def keeps_the_last(x, n, seen):
    seen.append(n)
    return x + 1


def keeps_what_items_give(x, n, seen):
    for _ in range(3):
        x = x * 0.9
        seen.append(x.sum().item())
    return x


def keeps_amid_a_comprehension(x, n, seen):
    seen.append([float((x * k).sum()) for k in range(4)])
    return x


def reads_what_it_keeps(x, n, seen):
    seen.append(len(seen[-2:]))
    return x


def draws(x, n, seen):
    generator = torch.Generator().manual_seed(n)
    return x + torch.rand(2, generator=generator) * torch.rand(1, generator=generator)


# By name: the function, the list that it adds to, how many entries all its parts may have after 80 calls.
EACH_TIME_ANOTHER = {
    "a list": (keeps, [], 2),
    "added to a list": (keeps_several, [], 2),
    "a bounded deque": (keeps_the_last, collections.deque(maxlen=3), 2),
    "numbers of tensors": (keeps_what_items_give, [], 6),
    "lists of numbers of tensors": (keeps_amid_a_comprehension, [], 6),
    "a generator": (draws, [], 12),
}


@pytest.mark.parametrize("name", EACH_TIME_ANOTHER)
def test_what_is_only_passed_on(name):
    function, seen, most = EACH_TIME_ANOTHER[name]
    compiled, theirs = tg.compile(function, backend="eager"), copy.copy(seen)
    mine = copy.copy(seen)
    for n in range(80):
        same(compiled(torch.ones(2), n, mine), function(torch.ones(2), n, theirs))
    same(mine, theirs)
    assert len(list(tg.explain(compiled).all_entries())) <= most


def test_the_length_of_a_list_that_is_read():
    compiled = tg.compile(reads_what_it_keeps, backend="eager", fullgraph=True)
    mine, theirs = [], []
    for n in range(4):
        same(compiled(torch.ones(2), n, mine), reads_what_it_keeps(torch.ones(2), n, theirs))
    assert mine == theirs and len(tg.explain(compiled).entries) == 4


# --- one change at a time ---------------------------------------------------------------------------------------------
class World:
    """What a function may read: each test changes one part of it."""

    def __init__(self):
        self.config = {"scale": 2, "other": 3}
        self.items = [1, 2, 3]
        self.module = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0))
        self.space = types.SimpleNamespace(used=1, unused=2)
        self.flag, self.name = True, "a"
        self.tensor = torch.ones(2)


WORLD = World()
FACTOR = OTHER = 2


def helper(x):
    return x * FACTOR


def scaled(x):
    return x * WORLD.config["scale"]


def first_of(x):
    return x * WORLD.items[0]


def attribute(x):
    return x * WORLD.space.used


def branch(x):
    return x + 1 if WORLD.flag else x - 1


def called(x):
    return helper(x)


def through_module(x):
    return WORLD.module(x)


def layer(x):
    return WORLD.module[0](x)


def tensor_of_a_global(x):
    return x * WORLD.tensor


def shape_alone(x):
    return x * WORLD.tensor.shape[0]


def formatted(x):
    return x, f"{WORLD.name}!"


def has(x):
    return x * ("extra" in WORLD.config)


def put(where, key, value):
    return lambda: (where() if callable(where) else where).__setitem__(key, value)


def write(owner, name, value):
    return lambda: setattr(owner(), name, value)


world = lambda: WORLD
space = lambda: WORLD.space
config = lambda: WORLD.config
module = lambda: inspect.getmodule(world)

NOT_READ = {
    "another key": (scaled, put(config, "other", 9)),
    "a new key": (scaled, put(config, "extra", 9)),
    "another attribute": (attribute, write(space, "unused", 9)),
    "a new attribute": (attribute, write(space, "more", 9)),
    "another global": (called, write(module, "OTHER", 9)),
    "another attribute of the world": (branch, write(world, "name", "b")),
    "a module that is not called": (attribute, write(world, "module", nn.Linear(2, 3))),
    "values of a tensor": (tensor_of_a_global, lambda: WORLD.tensor.add_(1)),
    "another tensor of its kind": (tensor_of_a_global, write(world, "tensor", torch.zeros(2))),
    "values of a parameter": (layer, lambda: nn.init.ones_(WORLD.module[0].weight)),
    "another parameter of its kind": (layer, lambda: put_parameter(nn.Parameter(torch.ones(2, 2)))),
    "an equal list": (first_of, write(world, "items", [1, 2, 3])),
    "an equal dictionary": (scaled, write(world, "config", {"scale": 2, "other": 3})),
    "a key that is asked for and still missing": (has, put(config, "more", 1)),
    "a function that is not called": (attribute, write(module, "helper", lambda x: x)),
}

READ = {
    "a key's value": (scaled, put(config, "scale", 5), "['scale']", 2, 5),
    "an item": (first_of, put(lambda: WORLD.items, 0, 7), "[0]", 1, 7),
    "an attribute": (attribute, write(space, "used", 7), "used", 1, 7),
    "a branch": (branch, write(world, "flag", False), "flag", True, False),
    "a global of the callee": (called, write(module, "FACTOR", 7), "FACTOR", 2, 7),
    "a string": (formatted, write(world, "name", "b"), "name", "a", "b"),
    "a mode": (through_module, lambda: WORLD.module.eval(), "training", True, False),
    "a shape": (shape_alone, write(world, "tensor", torch.ones(1)), "tensor", (2,), (1,)),
    "a dtype": (tensor_of_a_global, write(world, "tensor", torch.ones(2).double()), "tensor", "float32", "float64"),
    "a flag of a parameter": (layer, lambda: WORLD.module[0].weight.requires_grad_(False), "weight", True, False),
    "a key that was missing": (has, put(config, "extra", 1), "config", None, None),
    "a layer": (through_module, lambda: WORLD.module.append(nn.ReLU()), "_modules", None, None),
}


def put_parameter(parameter):
    WORLD.module[0].weight = parameter


@pytest.fixture
def fresh(monkeypatch):
    for name in ("FACTOR", "OTHER", "helper"):
        monkeypatch.setitem(globals(), name, globals()[name])
    monkeypatch.setitem(globals(), "WORLD", World())


def compiled_and_changed(function, change):
    compiled = tg.compile(function, backend="eager", fullgraph=True)
    for _ in range(2):
        compiled(torch.ones(2))
    assert len(tg.explain(compiled).entries) == 1
    change()
    same(compiled(torch.ones(2)), function(torch.ones(2)))
    return tg.explain(compiled)


@pytest.mark.parametrize("name", NOT_READ)
def test_what_was_not_read(name, fresh):
    found = compiled_and_changed(*NOT_READ[name])
    assert len(found.entries) == 1, found.record.recompiles


@pytest.mark.parametrize("name", READ)
def test_what_was_read(name, fresh):
    function, change, source, old, new = READ[name]
    found = compiled_and_changed(function, change)
    assert len(found.entries) == 2
    (recompile,) = found.record.recompiles
    assert source in str(recompile.guard.source)
    if old is not None:
        assert str(old) in str(recompile.old) and str(new) in str(recompile.new)
    origin = recompile.guard.origin
    user = helper if source == "FACTOR" else function
    lines = inspect.getsourcelines(user)
    if origin.file == __file__:
        assert lines[1] <= origin.line < lines[1] + len(lines[0])
    else:
        assert name in ("a mode", "a layer", "a flag of a parameter")  # read in PyTorch's own code
    assert f":{origin.line}" in str(found)
