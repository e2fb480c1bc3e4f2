"""What changes between two calls is noticed: globals, classes, functions, attributes, contents of containers."""

import copy
import functools
import threading
import types

import pytest
import torch

import torchglass as tg

from ..compared import in_step, make_input, same


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


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
