"""The compiled function: binding, entries, and looking like the function it stands for."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import itertools
import pickle
import re
import sys
import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch  # noqa: F401  (loads the libraries that the native core needs)

from torchglass import _native
from torchglass.records.guards import Guard
from torchglass.records.sources import Global, InstanceDict, Item, Local
from torchglass.runtime.dispatch import compiled_function
from torchglass.runtime.guards import build_table, parameter_names


def missing(arguments: tuple[Any, ...]) -> Any:
    return ("miss", arguments)


def compiled_by_value(function: Callable[..., Any], name: str) -> _native.CompiledFunction:
    """Compiles by making an entry for each value of one parameter."""

    def miss(arguments: tuple[Any, ...]) -> Any:
        value = arguments[parameter_names(function).index(name)]
        table = build_table([Guard(Local(name), "constant", value)], [], function)
        compiled.add_entry(table, lambda *a: ("entry", value, a))
        return ("miss", arguments)

    compiled = compiled_function(function, miss)
    return compiled


def positional(a, b=2):
    return a, b


def everything(a, /, b, c=3, *rest, d, e=5, **more):
    return a, b, c, d, e, rest, more


def only_keywords(*, a, b=2):
    return a, b


def only_variadic(*args, **kwargs):
    return args, kwargs


def nothing():
    return ()


@pytest.mark.parametrize("function", [positional, everything, only_keywords, only_variadic, nothing])
@pytest.mark.parametrize(
    "args, kwargs",
    [
        ((), {}),
        ((1,), {}),
        ((1, 2), {}),
        ((1, 2, 3, 4, 5), {}),
        ((), {"a": 1}),
        ((1,), {"a": 1}),
        ((1,), {"b": 7}),
        ((1, 2), {"b": 7}),
        ((1, 2), {"d": 4}),
        ((1,), {"d": 4, "b": 2, "z": 26}),
        ((1, 2, 3, 4), {"d": 4, "e": 0, "a": 9}),
        ((), {"b": 3, "d": 1}),
        ((1, 2), {"c": 1, "d": 1}),
    ],
)
def test_binds_as_python_does(function: Callable[..., Any], args: tuple, kwargs: dict) -> None:
    compiled = compiled_function(function, missing)
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        with pytest.raises(TypeError) as theirs:
            function(*args, **kwargs)
        with pytest.raises(TypeError) as ours:
            compiled(*args, **kwargs)
        assert str(ours.value) == str(theirs.value)
        return
    bound.apply_defaults()
    expected = tuple(bound.arguments[name] for name in parameter_names(function))
    assert compiled(*args, **kwargs) == ("miss", expected)


SIGNATURES = [
    ", ".join(filter(None, parts))
    for parts in itertools.product(
        ["", "a, /", "a=1, /", "a=1, b=2, /"], ["", "c=3", "c=3, d=4"], ["*", "*rest"], ["", "k", "k=5", "k, m=6"],
        ["", "**more"],
    )
    if parts[2] != "*" or parts[3]
]  # fmt: skip


def test_every_kind_of_signature_binds_as_python_does() -> None:
    """As many arguments as there are parameters do not bind them all: those after ``*rest`` are given by name."""
    keywords = [dict(names) for n in range(3) for names in itertools.combinations({"c": 7, "k": 8, "m": 9}.items(), n)]
    for signature in SIGNATURES:
        namespace: dict[str, Any] = {}
        exec(f"def function({signature}): return dict(sorted(locals().items()))", namespace)
        function = namespace["function"]
        compiled = compiled_function(function, lambda given, f=function: dict(zip(parameter_names(f), given)))
        for count, given in itertools.product(range(7), keywords):
            arguments = range(10, 10 + count)
            try:
                expected = function(*arguments, **given)
            except TypeError as error:
                with pytest.raises(TypeError, match=re.escape(str(error))):
                    compiled(*arguments, **given)
            else:
                assert compiled(*arguments, **given) == expected, (signature, count, given)


def test_keywords_made_at_run_time_are_found() -> None:
    compiled = compiled_function(everything, missing)
    name = "".join(["c", "_parameter"])[:1]
    assert compiled(1, 2, d=4, **{name: 33})[1][2] == 33


def test_defaults_are_read_at_the_call() -> None:
    def function(a, b=1, *, c=2):
        return None

    compiled = compiled_function(function, missing)
    assert compiled(0) == ("miss", (0, 1, 2))
    compiled.__defaults__ = (10,)
    compiled.__kwdefaults__ = {"c": 20}
    assert compiled(0) == ("miss", (0, 10, 20))
    function.__defaults__ = None
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'b'"):
        compiled(0)


def test_many_parameters() -> None:
    names = [f"p{i}" for i in range(100)]
    scope: dict[str, Any] = {}
    exec(f"def function({', '.join(names)}, *rest): pass", scope)
    compiled = compiled_function(scope["function"], missing)
    assert compiled(*range(103)) == ("miss", (*range(100), (100, 101, 102)))


def test_hits_move_to_the_front() -> None:
    compiled = compiled_by_value(positional, "a")
    for value in (1, 2, 3):
        assert compiled(value)[0] == "miss"
    first = compiled.entries
    assert compiled(1) == ("entry", 1, (1, 2, ()))
    assert [e[0] for e in compiled.entries] == [first[2][0], first[0][0], first[1][0]]
    assert compiled(2, 5) == ("entry", 2, (2, 5, ()))
    assert (compiled.hits, compiled.misses, len(compiled.entries)) == (2, 3, 3)
    compiled.clear()
    assert compiled.entries == () and compiled(1)[0] == "miss"


def test_fetched_values_come_last() -> None:
    compiled = compiled_function(everything, missing)
    table = build_table([], [Local("d"), Global("missing"), Local("rest")], everything)
    compiled.add_entry(table, lambda *a: a)
    assert compiled(1, 2, 3, 4, d=9, z=1) == (1, 2, 3, 9, 5, (4,), {"z": 1}, (9, missing, (4,)))


class Held:
    """What a function's globals hold, and what is passed to it."""


def fetching(entry: Callable[..., Any]) -> _native.CompiledFunction:
    """Compiled with an entry that fetches an attribute of the first argument and the second argument."""

    def f(holder: Any, x: Any) -> None: ...

    fields = InstanceDict(Local("holder"))
    table = build_table([Guard(Local("holder"), "type", Held)], [Item(fields, "value"), Local("x")], f)
    compiled = compiled_function(f, missing)
    compiled.add_entry(table, entry)
    return compiled


def test_the_fetched_tuple_is_used_again_but_keeps_no_argument() -> None:
    holder = Held()
    holder.value = Held()
    seen: list[int] = []
    compiled = fetching(lambda holder, x, fetched: seen.append(id(fetched)) or (fetched[0] is holder.value, fetched[1]))
    for n in range(6):
        x = Held()
        alive = weakref.ref(x)
        first, second = compiled(holder, x)
        assert first and second is x
        del x, second
        assert alive() is None, n
    assert len(set(seen[2:])) == 1
    alive = weakref.ref(holder.value)
    del holder
    assert alive() is None


def test_a_fetched_tuple_that_somebody_keeps_does_not_change() -> None:
    holder = Held()
    holder.value = 1
    kept: list[tuple[Any, ...]] = []
    compiled = fetching(lambda holder, x, fetched: kept.append(fetched))
    for n in range(6):
        compiled(holder, str(n))
    assert kept == [(1, str(n)) for n in range(6)]


def test_fetched_tuples_of_nested_calls_are_their_own() -> None:
    holder = Held()
    holder.value = 1

    def entry(holder: Held, n: int, fetched: tuple[Any, ...]) -> list[Any]:
        inner = compiled(holder, n - 1) if n else []
        return [fetched[1], *inner]

    compiled = fetching(entry)
    for _ in range(4):
        assert compiled(holder, 5) == [5, 4, 3, 2, 1, 0]


def test_fetched_tuples_survive_changes_and_exceptions_in_the_call() -> None:
    holder = Held()
    holder.value = 1

    def entry(holder: Held, x: Any, fetched: tuple[Any, ...]) -> Any:
        if x == "clear":
            compiled.entries[0][0].forget()
        if x == "raise":
            raise ValueError(fetched)
        return fetched

    compiled = fetching(entry)
    for x in ["a", "b", "c", "clear", "d", "raise", "e", "raise", "clear", "f", "g"]:
        if x == "raise":
            with pytest.raises(ValueError) as caught:
                compiled(holder, x)
            assert caught.value.args == ((1, "raise"),)
        else:
            assert compiled(holder, x) == (1, x)


def test_disabled_and_replaced_code_call_the_function() -> None:
    def function(a):
        return a + 1

    compiled = compiled_function(function, missing)
    compiled.disabled = True
    assert compiled(1) == 2
    compiled.disabled = False
    function.__code__ = (lambda a: a + 10).__code__
    assert compiled(1) == 11


def test_exceptions_pass_with_their_traceback() -> None:
    def entry(a, b, fetched):
        raise ValueError("from the entry")

    compiled = compiled_function(positional, missing)
    compiled.add_entry(build_table([], [], positional), entry)
    with pytest.raises(ValueError, match="from the entry") as caught:
        compiled(1)
    assert [frame.name for frame in caught.traceback] == ["test_exceptions_pass_with_their_traceback", "entry"]
    with pytest.raises(KeyError):
        compiled_function(positional, lambda arguments: {}[1])(1)


class Owner:
    """Holds compiled functions in every way a class can."""

    method = compiled_function(lambda self, x: None, missing)
    static = staticmethod(compiled_function(lambda x: None, missing))
    klass = classmethod(compiled_function(lambda cls, x: None, missing))
    prop = property(compiled_function(lambda self: None, missing))
    partial = functools.partialmethod(compiled_function(lambda self, x, y: None, missing), 1)


def test_binds_as_a_descriptor() -> None:
    owner = Owner()
    assert owner.method(1) == ("miss", (owner, 1))
    assert Owner.method(owner, 1) == ("miss", (owner, 1))
    assert owner.static(1) == Owner.static(1) == ("miss", (1,))
    assert owner.klass(1) == ("miss", (Owner, 1))
    assert owner.prop == ("miss", (owner,))
    assert owner.partial(2) == ("miss", (owner, 1, 2))
    assert inspect.ismethod(owner.method) and owner.method.__self__ is owner
    assert owner.method == owner.method


def test_bound_arguments_come_first_and_bind_to_nothing_else() -> None:
    def forward(self, x, *, scale=1):
        return self, x, scale

    module = SimpleNamespace()
    compiled = compiled_function(forward, missing, bound=(module,))
    module.forward = compiled
    assert module.forward(1, scale=2) == ("miss", (module, 1, 2))
    assert compiled.__get__(object(), object) is compiled
    assert str(inspect.signature(compiled)) == "(x, *, scale=1)"
    compiled.disabled = True
    assert compiled(1, scale=3) == (module, 1, 3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'y'"):
        compiled(1, y=3)


def test_deep_copies_of_bound_ones_are_bound_to_the_copy() -> None:
    def rebuild(bound: tuple[Any, ...]) -> _native.CompiledFunction:
        return compiled_function(positional, missing, bound, rebuild)

    module = SimpleNamespace()
    module.forward = compiled_function(positional, missing, (module,), rebuild)
    copied = copy.deepcopy(module)
    assert copied is not module and copied.forward.bound == (copied,)
    assert copied.forward()[1][0] is copied


def function_for_pickle(a, b=2):
    """Its documentation."""
    return a, b


function_for_pickle = compiled_function(function_for_pickle, missing)


def test_looks_like_the_function() -> None:
    compiled = function_for_pickle
    assert (compiled.__name__, compiled.__doc__) == ("function_for_pickle", "Its documentation.")
    assert compiled.__module__ == __name__ and compiled.__wrapped__ is compiled.function
    assert str(inspect.signature(compiled)) == "(a, b=2)"
    assert compiled.__code__ is compiled.function.__code__ and compiled.__defaults__ == (2,)
    assert compiled.__globals__ is globals()
    assert "function_for_pickle" in repr(compiled)
    assert callable(compiled) and inspect.isroutine(compiled)
    assert inspect.getsourcelines(compiled)[1] == inspect.getsourcelines(compiled.function)[1]
    compiled.attribute = 3
    assert compiled.attribute == 3 and compiled.__dict__["attribute"] == 3
    del compiled.attribute
    with pytest.raises(AttributeError):
        _ = compiled.attribute
    assert weakref.ref(compiled)() is compiled and hash(compiled) == hash(compiled)
    assert functools.wraps(compiled)(lambda: None).__name__ == "function_for_pickle"


def test_copies_and_pickles_by_reference() -> None:
    assert pickle.loads(pickle.dumps(function_for_pickle)) is function_for_pickle
    assert copy.copy(function_for_pickle) is function_for_pickle
    assert copy.deepcopy([function_for_pickle])[0] is function_for_pickle


def test_refuses_what_it_cannot_compile() -> None:
    for bad in (len, functools.partial(positional, 1), Owner, 3):
        with pytest.raises(TypeError):
            _native.CompiledFunction(bad, missing)
    with pytest.raises(TypeError, match="miss must be callable"):
        _native.CompiledFunction(positional, 3)
    with pytest.raises(TypeError):
        compiled_function(positional, missing).add_entry(3, missing)


def test_cycles_are_collected() -> None:
    def make() -> weakref.ref:
        def function(a):
            return compiled, a

        def miss(arguments):
            return compiled

        compiled = compiled_function(function, miss)
        compiled.itself = compiled
        compiled.add_entry(build_table([Guard(Local("a"), "identity", compiled)], [], function), lambda *a: compiled)
        assert compiled(compiled) is compiled
        return weakref.ref(compiled)

    alive = make()
    gc.collect()
    assert alive() is None


def test_entries_may_change_while_guards_run() -> None:
    class Trap:
        @property
        def value(self):
            compiled.clear()
            gc.collect()
            return 1

    from torchglass.records.sources import Attr

    def function(x):
        return None

    compiled = compiled_function(function, missing)
    for expected in (2, 1, 3):
        table = build_table([Guard(Attr(Local("x"), "value"), "constant", expected)], [], function)
        compiled.add_entry(table, lambda x, fetched, expected=expected: expected)
    assert compiled(Trap()) == 1
    assert compiled.entries == ()


def test_recursion_and_nesting() -> None:
    def function(n):
        return None

    compiled = compiled_function(function, missing)
    compiled.add_entry(build_table([], [], function), lambda n, fetched: 0 if n == 0 else 1 + compiled(n - 1))
    assert compiled(200) == 200
    with pytest.raises(RecursionError):
        compiled(10**6)


def test_threads() -> None:
    compiled = compiled_by_value(positional, "a")
    errors = []

    def work(seed: int) -> None:
        for i in range(2000):
            value = (i * seed) % 7
            result = compiled(value)
            if result[0] == "entry" and result[1] != value:
                errors.append(result)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and compiled.hits + compiled.misses == 6000


def test_works_under_trace_and_profile() -> None:
    compiled = compiled_by_value(positional, "a")
    events: list[str] = []
    compiled(1)
    sys.setprofile(lambda frame, event, arg: events.append(event))
    try:
        assert compiled(1)[0] == "entry"
    finally:
        sys.setprofile(None)
    assert "call" in events
