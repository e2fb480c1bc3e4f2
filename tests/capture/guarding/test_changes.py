"""What changes between two calls is noticed: arguments that became one object, globals, classes, functions, modules."""

import copy
import functools
import threading
import types

import pytest
import torch
from torch import nn

import torchglass as tg

from ..compared import make_input, outcome, same


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


def in_step(function, *calls):
    """Call eager and compiled with equal arguments; results and what became of the arguments are equal."""
    compiled = tg.compile(function, backend="eager")
    for make in calls:
        mine, theirs = make(), make()
        same(outcome(compiled, *mine), outcome(function, *theirs))
        same(mine, theirs)


def twice(make):
    value = make()
    return value, value


def test_two_lists_or_one():
    def f(a, b):
        a.append(5)
        return len(b), a is b

    in_step(f, lambda: ([1], [1]), lambda: twice(lambda: [1]), lambda: ([1], [1]))


class OfList(list):
    pass


class OfDict(dict):
    pass


@pytest.mark.parametrize("cls", [OfList, OfDict])
def test_two_objects_of_a_subclass_or_one(cls):
    def f(a, b):
        if isinstance(a, list):
            a.append(5)
        else:
            a["key"] = 5
        return len(b)

    in_step(f, lambda: (cls(), cls()), lambda: twice(cls), lambda: (cls(), cls()))


def test_two_objects_or_one():
    def f(a, b):
        a.weight = 2
        return b.weight

    def made():
        module = nn.Module()
        module.weight = 1
        return module

    compiled = tg.compile(f, backend="eager")
    assert compiled(made(), made()) == 1
    assert compiled(*twice(made)) == 2


def test_two_tensors_or_one():
    def f(a, b):
        a.add_(1)
        return a + b, a is b

    in_step(f, lambda: (make_input(), make_input()), lambda: twice(make_input))


def test_contents_of_folded_containers():
    def f(d, t):
        return str(d), f"{t}", {(1, 2): "hit"}.get(t, "miss"), hash(t) == hash((1, 2)), t == (1, 2)

    in_step(f, *[lambda n=n: ({"a": [n]}, (1, n)) for n in (2, 3, 2)])


def test_bounded_deque_as_argument():
    import collections

    def f(d):
        d.append(5)
        return list(d)

    in_step(f, lambda: (collections.deque([1, 2], 2),), lambda: (collections.deque([1, 2], 5),))


def test_numpy_array_written_between_calls():
    np = pytest.importorskip("numpy")
    array = np.zeros(2)

    def f(x):
        return x * float(array[0]) + len(array)

    compiled = tg.compile(f, backend="eager")
    for value in (1.0, 2.0):
        array[0] = value
        same(compiled(make_input()), f(make_input()))


class Model(nn.Module):
    factor = 2

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    @property
    def offset(self):
        return 1

    def body(self, x):
        return self.linear(x)

    def forward(self, x):
        return self.body(x) * self.factor + self.offset


CHANGES = {
    "class attribute": lambda m: setattr(type(m), "factor", 9),
    "method": lambda m: setattr(type(m), "body", lambda self, x: x * 7),
    "property": lambda m: setattr(type(m), "offset", property(lambda self: 50)),
    "method of the object": lambda m: setattr(m, "body", lambda x: x * 3),
    "parameter": lambda m: setattr(m.linear, "weight", nn.Parameter(torch.ones(4, 4))),
    "data": lambda m: setattr(m.linear.weight, "data", torch.ones(4, 4)),
    "requires_grad": lambda m: m.linear.weight.requires_grad_(False),
    "module": lambda m: setattr(m, "linear", nn.Identity()),
    "hook": lambda m: m.linear.register_forward_hook(lambda *a: a[2] + 1),
    "forward": lambda m: setattr(m.linear, "forward", lambda x: x * 5),
}


class Marked(nn.Parameter):
    pass


def swapped(m):
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        m.double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def in_place(change):
    def changed(m):
        with torch.no_grad():
            change(m.linear.weight)

    return changed


# What happens to a module after its guards were remembered: noticed, whether or not the dictionaries say so.
LATER_CHANGES = CHANGES | {
    "to dtype": lambda m: m.double(),
    "swapped to dtype": swapped,
    "data of another dtype": lambda m: setattr(m.linear.weight, "data", torch.ones(4, 4, dtype=torch.float64)),
    "data of another layout": lambda m: setattr(m.linear.weight, "data", torch.arange(16.0).view(4, 4).t()),
    "set_": in_place(lambda w: w.set_(torch.arange(34.0), 3, (4, 4), (8, 2))),
    "transposed in place": in_place(lambda w: w.t_()),
    "class of a parameter": lambda m: setattr(m.linear.weight, "__class__", Marked),
    "hook without a handle": lambda m: m.linear._forward_hooks.__setitem__(7, lambda *a: a[2] + 1),
    "pre-hook": lambda m: m.linear.register_forward_pre_hook(lambda module, args: (args[0] + 1,)),
    "global hook": None,
    "parameter in the dictionary": lambda m: m.linear._parameters.update(weight=nn.Parameter(torch.ones(4, 4))),
    "parameter removed": lambda m: setattr(m.linear, "bias", None),
    "module in the dictionary": lambda m: m._modules.update(linear=nn.Identity()),
    "dictionary of the object": lambda m: setattr(m.linear, "__dict__", nn.Identity().__dict__ | m.linear.__dict__),
    "requires_grad of the other": lambda m: m.linear.bias.requires_grad_(False),
    "grad mode of all": lambda m: m.requires_grad_(False),
    "in-place values": in_place(lambda w: w.fill_(3)),
}


def doubled(self, x):
    return nn.Linear.forward(self, x) * 2


@pytest.mark.parametrize("name", LATER_CHANGES)
def test_module_changed_after_many_calls(name):
    made = type("Model", (Model,), dict(vars(Model)) | {"__init__": lambda self: Model.__init__(self)})
    plain = made()
    compiled = tg.compile(copy.deepcopy(plain), backend="eager")
    for _ in range(4):
        same(compiled(make_input()), plain(make_input()))
    if name == "global hook":
        handle = nn.modules.module.register_module_forward_hook(lambda module, args, result: result + 1)
    else:
        LATER_CHANGES[name](plain)
        LATER_CHANGES[name](compiled)
    try:
        for _ in range(4):
            dtype = plain.linear.weight.dtype if isinstance(plain.linear, nn.Linear) else torch.float32
            expected, found = outcome(plain, make_input().to(dtype)), outcome(compiled, make_input().to(dtype))
            same(found, expected)
            if isinstance(expected[0], torch.Tensor):
                assert found[0].requires_grad == expected[0].requires_grad
    finally:
        if name == "global hook":
            handle.remove()


@pytest.mark.parametrize("name", CHANGES)
def test_module_changed(name):
    made = type("Model", (Model,), dict(vars(Model)) | {"__init__": lambda self: Model.__init__(self)})
    plain = made()
    compiled = tg.compile(copy.deepcopy(plain), backend="eager")
    same(compiled(make_input()), plain(make_input()))
    CHANGES[name](plain)
    CHANGES[name](compiled)
    same(compiled(make_input()), plain(make_input()))


def callee(x, factor=1, *, offset=1):
    return x * factor + offset


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("__defaults__", (5,)),
        ("__kwdefaults__", {"offset": 9}),
        ("__code__", (lambda x, factor=1, *, offset=1: x - factor).__code__),
    ],
)
def test_function_changed(attribute, value, monkeypatch):
    def f(x):
        return callee(x)

    compiled = tg.compile(f, backend="eager")
    same(compiled(make_input()), f(make_input()))
    monkeypatch.setattr(callee, attribute, value)
    same(compiled(make_input()), f(make_input()))


def test_parameters_named_like_builtins():
    def f(list, dict, iter, fetched, torch):
        list.append(len(list))
        dict["k"] = [*iter]
        return list, dict, fetched + torch

    in_step(f, lambda: ([1], {}, (1, 2), make_input(), make_input()))


def test_partial_of_compiled():
    f = functools.partial(callee, factor=3)
    same(tg.compile(f, backend="eager")(make_input()), f(make_input()))


def test_a_break_inside_leaves_backend_switches_alone():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def attend(x):
        with sdpa_kernel(SDPBackend.MATH):
            y = torch.nn.functional.scaled_dot_product_attention(x, x, x)
            if y.sum() > 1e9:
                return x
        return y

    x = torch.randn(1, 1, 4, 8)
    before = torch.backends.cuda.flash_sdp_enabled()
    torch.testing.assert_close(tg.compile(attend, backend="eager")(x), attend(x))
    assert torch.backends.cuda.flash_sdp_enabled() == before


def test_keywords_of_a_partial_that_are_written_to():
    outside = functools.partial(torch.full, (2,), fill_value=2.0)

    def f(x, partial):
        keywords = partial.keywords
        keywords["fill_value"] += 1
        made = functools.partial(torch.add, x)
        made.keywords["alpha"] = 3
        heir = functools.partial(made, x)
        made.keywords["alpha"] = 4
        tg.graph_break()
        keywords["fill_value"] *= 2
        return partial(), made(x), heir(), made.keywords is made.keywords, heir

    compiled, x = tg.compile(f, backend="eager"), torch.ones(2)
    mine, theirs = copy.deepcopy(outside), copy.deepcopy(outside)
    for _ in range(3):
        got, expected = compiled(x, mine), f(x, theirs)
        same(got[:-1], expected[:-1])
        assert got[-1].keywords == expected[-1].keywords and mine.keywords == theirs.keywords


def test_a_hook_for_all_modules_that_the_function_registers():
    net, seen = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), []

    def f(x):
        before = net(x)
        kept = nn.modules.module.register_module_forward_hook(lambda m, args, result: seen.append(type(m).__name__))
        doubled = nn.modules.module.register_module_forward_pre_hook(lambda m, args: (args[0] * 2,))
        within = net(x)
        kept.remove()
        doubled.remove()
        return before, within, net(x)

    x = torch.randn(2, 3)
    expected, names = f(x), list(seen)
    seen.clear()
    same(tg.compile(f, backend="eager")(x), expected)
    assert seen == names == ["Linear", "ReLU", "Sequential"]


class Bare:
    pass


def plain(x):
    return x


@pytest.mark.parametrize("make", [
    pytest.param(lambda: type("Made", (), {}), id="class"),
    pytest.param(lambda: functools.partial(plain), id="partial"),
    pytest.param(lambda: functools.lru_cache(plain), id="cached function"),
    pytest.param(lambda: types.FunctionType(plain.__code__, {}), id="function"),
    pytest.param(lambda: types.ModuleType("made"), id="module"),
    pytest.param(threading.local, id="thread's own"),
    pytest.param(Bare, id="instance"),
])  # fmt: skip
def test_an_attribute_that_was_missing_is_set(make):
    owner = make()

    def f(x):
        return x + getattr(owner, "late", 0)

    compiled, x = tg.compile(f, backend="eager", fullgraph=True), torch.zeros(1)
    assert compiled(x) == 0
    owner.late = 5
    assert compiled(x) == 5
    owner.late = 6
    assert compiled(x) == 6
    del owner.late
    assert compiled(x) == 0


def test_a_class_attribute_that_an_instance_missed_is_set():
    class Owner:
        pass

    owner = Owner()

    def f(x):
        return x + 1 if hasattr(owner, "late") else x

    compiled, x = tg.compile(f, backend="eager", fullgraph=True), torch.zeros(1)
    assert compiled(x) == 0
    Owner.late = True
    assert compiled(x) == 1
    del Owner.late
    assert compiled(x) == 0


def test_a_function_that_counts_its_calls():
    def f(x):
        if not hasattr(f, "calls"):
            f.calls = 0
        f.calls += 1
        return x + f.calls

    compiled, x = tg.compile(f, backend="eager", fullgraph=True), torch.zeros(1)
    assert [float(compiled(x)) for _ in range(4)] == [1, 2, 3, 4] and f.calls == 4


def test_attributes_of_each_thread():
    class Own(threading.local):
        shared = 3

        def __init__(self, first):
            self.first = first

    def f(x, own):
        own.shared += 1
        return x + own.first * own.shared

    compiled, own, x = tg.compile(f, backend="eager", fullgraph=True), Own(torch.ones(1)), torch.zeros(1)
    results = []
    runs = [threading.Thread(target=lambda: results.append(float(compiled(x, own)))) for _ in range(2)]
    for run in runs:
        run.start()
        run.join()
    assert [float(compiled(x, own)) for _ in range(3)] == [4, 5, 6] and results == [4, 4]


def test_attributes_of_a_partial():
    partial = functools.partial(plain)
    partial.tags = [1]

    def f(x):
        return partial(x) + partial.tags[0], copy.deepcopy(partial), copy.copy(partial)

    compiled, x = tg.compile(f, backend="eager", fullgraph=True), torch.zeros(1)
    for tag in (1, 2):
        partial.tags[0] = tag
        out, deep, shallow = compiled(x)
        assert out == tag and deep.tags == [tag] and deep.tags is not partial.tags and shallow.tags is partial.tags


def two(*_):
    return 2


def base_and_derived():
    class Base:
        kept = 1

        def __init__(self):
            self.made = 1

        def method(self):
            return 1

        @property
        def read(self):
            return 1

        @classmethod
        def of_class(cls):
            return 1

        @staticmethod
        def alone():
            return 1

        def __add__(self, other):
            return 1

        def __eq__(self, other):
            return 1

    class Derived(Base):
        def through_super(self):
            return super().method(), super().read, super().of_class(), super().alone(), super().kept

    return Base, Derived


@pytest.mark.parametrize(("name", "new"), [
    ("method", two), ("read", property(two)), ("of_class", classmethod(two)), ("alone", staticmethod(two)),
    ("kept", 2), ("__init__", lambda self: setattr(self, "made", 2)), ("__add__", two), ("__eq__", two),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
@pytest.mark.parametrize("place", ["base", "derived"])
def test_a_class_is_given_another_attribute(name, new, place):
    base, derived = base_and_derived()
    one = derived()

    def f(x):
        by_instance = one.method(), one.read, one.of_class(), one.alone(), one.kept, one + 1, one == 1, derived().made
        by_class = derived.method(one), derived.of_class(), derived.alone(), derived.kept
        return x, by_instance, by_class, one.through_super()

    compiled, x = tg.compile(f, backend="eager", fullgraph=True), torch.zeros(1)
    assert compiled(x) == f(x)
    setattr(base if place == "base" else derived, name, new)
    assert compiled(x) == f(x)


def test_a_metaclass_is_given_another_call():
    class Meta(type):
        def __call__(cls):
            return 1

    class Made(metaclass=Meta):
        pass

    def f(x):
        return x + Made()

    compiled, x = tg.compile(f, backend="eager", fullgraph=True), torch.zeros(1)
    assert compiled(x) == 1
    Meta.__call__ = two
    assert compiled(x) == 2


def test_defaults_of_functions_that_are_written_to():
    def make():
        def scaled(x, k=1.0, *, j=2.0):
            return x * k + j

        return scaled

    def inside(x, _):
        scaled, results = make(), []
        scaled.__kwdefaults__["j"] = 3.0
        results.append(scaled(x))
        scaled.__defaults__ = (5.0,)
        scaled.__name__ = "renamed"
        results += [scaled(x), scaled.__defaults__, scaled.__kwdefaults__, scaled.__name__, scaled.__dict__]
        scaled.__kwdefaults__ = {"j": 7.0}
        results.append(scaled(x))
        scaled.__code__ = (lambda x, k=1.0, *, j=2.0: x - k - j).__code__
        return results, scaled(x), make().__kwdefaults__, inside.__kwdefaults__

    def outside(x, scaled):
        scaled.__kwdefaults__["j"] += 1.0
        first = scaled(x)
        scaled.__defaults__ = (4.0,)
        return first, scaled(x), scaled.__defaults__

    for f in (inside, outside):
        compiled, mine, theirs, x = tg.compile(f, backend="eager"), make(), make(), torch.ones(2)
        for _ in range(3):
            same(compiled(x, mine), f(x, theirs))
        assert mine.__kwdefaults__ == theirs.__kwdefaults__ and mine.__defaults__ == theirs.__defaults__


@pytest.mark.parametrize(("cls", "values"), [
    (int, (3, 5, 5)), (float, (1.5, -0.0, 0.0)), (str, ("ab", "c")), (bytes, (b"a", b"b")),
    (tuple, ((1, 2), (1, 3), (1, 2, 3))), (list, ([1, 2], [1], [2])),
], ids=lambda value: getattr(value, "__name__", ""))  # fmt: skip
def test_what_an_instance_of_a_builtins_subclass_holds(cls, values):
    derived = type("Derived", (cls,), {})
    owner = Bare()

    def f(x):
        held = owner.held
        return x + 1, held + held, str(held), [held * 2, held[1:]] if hasattr(cls, "__len__") else held / 2

    compiled, x = tg.compile(f, backend="eager", fullgraph=True), torch.zeros(1)
    for value in values:
        owner.held = derived(value)
        assert repr(compiled(x)) == repr(f(x))


def test_a_list_of_a_subclass_grows_between_calls():
    class Shifting(list):
        def append(self, value):
            super().append(value + 100)

        def extend(self, values):
            super().extend(value + 100 for value in values)

        def clear(self):
            raise AssertionError("nobody calls it")

    def f(x, held):
        held.append(3)
        held.insert(0, 7)
        return x + len(held), held[-1], sum(held)

    compiled, x = tg.compile(f, backend="eager", fullgraph=True), torch.zeros(1)
    mine, theirs = Shifting([1]), Shifting([1])
    for value in (4, 5):
        assert compiled(x, mine) == f(x, theirs) and mine == theirs
        list.append(mine, value), list.append(theirs, value)


def test_a_slot_that_was_empty():
    class Slotted:
        __slots__ = ("held",)

    owner = Slotted()

    def f(x):
        return x + 1 if hasattr(owner, "held") else x

    compiled, x = tg.compile(f, backend="eager", fullgraph=True), torch.zeros(1)
    assert compiled(x) == 0
    owner.held = 1
    assert compiled(x) == 1
    del owner.held
    assert compiled(x) == 0


def test_a_namespace_for_each_call():
    def f(x, names):
        names.x, names.n = x, names.n + 1
        del names.d
        return sorted(vars(names)), dict(vars(names)), hasattr(names, "d")

    compiled = tg.compile(f, backend="eager", fullgraph=True)
    for n in range(4):
        x, names = torch.full((1,), n), types.SimpleNamespace(n=n, d=0)
        assert compiled(x, names) == f(x, types.SimpleNamespace(n=n, d=0)) and names.x is x and names.n == n + 1
    assert len(tg.explain(compiled).entries) == 2


@pytest.mark.parametrize("read", [
    lambda proxy: (proxy["k"], dict(proxy)), lambda proxy: proxy.get("q", 1), lambda proxy: sum(proxy.values()),
    lambda proxy: (len(proxy), "q" in proxy, list(proxy)),
])  # fmt: skip
def test_a_read_only_view_of_a_dictionary(read):
    def f(x, proxy):
        return x + 1, read(proxy)

    compiled, x = tg.compile(f, backend="eager", fullgraph=True), torch.zeros(1)
    for content in ({"k": 1}, {"k": 2}, {"k": 2, "q": 5}, {"k": 3, "z": 5}):
        proxy = types.MappingProxyType(content)
        assert compiled(x, proxy) == f(x, proxy)


def test_the_dictionary_of_a_class():
    class Owner:
        kept = 1

    def f(x):
        return x + Owner.__dict__["kept"] + ("late" in vars(Owner))

    compiled, x = tg.compile(f, backend="eager"), torch.zeros(1)
    assert compiled(x) == 1
    Owner.kept = 5
    assert compiled(x) == 5
    Owner.late = True
    assert compiled(x) == 6
