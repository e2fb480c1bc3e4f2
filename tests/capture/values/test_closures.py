"""Functions made anew at each call are one entry; what they do differently is another."""

import dataclasses
import enum
import functools

import pytest
import torch

import torchglass as tg


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


X = torch.arange(4.0)


def entries(compiled):
    return {record.name.partition("_at_")[0]: len(record.entries) for record in tg.explain(compiled).record.walk()}


def check(function, *cases, most):
    """Each case gives eager's result, and all of them make at most so many entries per function."""
    compiled = tg.compile(function, backend="eager")
    for make in cases:
        args, again = make(), make()
        torch.testing.assert_close(compiled(*args), function(*again))
    assert max(entries(compiled).values()) <= most, entries(compiled)
    return compiled


def calls(x, fn):
    return fn(x) + 1


def test_lambdas_as_arguments():
    check(calls, *[lambda: (X, lambda t: t * 2)] * 5, most=1)


def test_closures_over_numbers_and_tensors():
    def scaled(k):
        return lambda t: t * k

    check(calls, *[lambda: (X, scaled(2))] * 5, most=1)
    check(calls, lambda: (X, scaled(2)), lambda: (X, scaled(3)), lambda: (X, scaled(2)), most=2)
    check(calls, *[lambda n=n: (X, scaled(torch.full((4,), float(n)))) for n in range(5)], most=1)


def test_partials_and_bound_methods():
    class Box:
        def __init__(self, n):
            self.n = n

        def scale(self, t, k=1):
            return t * self.n * k

    box = Box(3)
    check(calls, *[lambda: (X, box.scale)] * 3, most=1)
    check(calls, *[lambda: (X, functools.partial(box.scale, k=4))] * 3, most=1)
    check(calls, *[lambda: (X, functools.partial(lambda t, k: t + k, k=4))] * 3, most=1)
    check(calls, lambda: (X, Box(1).scale), lambda: (X, Box(2).scale), lambda: (X, Box(1).scale), most=2)


def test_defaults_are_part_of_it():
    def with_default(k):
        def fn(t, n=k, *, m=k):
            return t * n + m

        return fn

    check(calls, *[lambda: (X, with_default(2))] * 3, most=1)
    check(calls, lambda: (X, with_default(2)), lambda: (X, with_default(3)), most=2)

    def without_default():
        fn = with_default(2)
        fn.__defaults__ = ()
        return fn

    compiled = tg.compile(calls, backend="eager")
    compiled(X, with_default(2))
    with pytest.raises(TypeError):
        compiled(X, without_default())


def test_attributes_are_part_of_it():
    def calls_with_attribute(x, fn):
        return fn(x) * getattr(fn, "scale", 1)

    def made(scale=None):
        fn = lambda t: t + 1
        if scale is not None:
            fn.scale = scale
        return fn

    check(calls_with_attribute, made_case(made), made_case(made, 2), made_case(made, 3), made_case(made), most=3)


def made_case(made, *args):
    return lambda: (X, made(*args))


def test_a_disabled_one_is_not_inlined():
    compiled = tg.compile(calls, backend="eager")
    seen = []

    def made(disabled):
        fn = lambda t: (seen.append(tg.is_compiling()), t + 1)[1]
        return tg.disable(fn) if disabled else fn

    for disabled in (False, True, False, True):
        torch.testing.assert_close(compiled(X, made(disabled)), X + 2)


def test_identity_that_matters_is_kept():
    keep = lambda t: t * 2

    def compared(x, fn, other):
        return fn(x) if fn is other else x

    check(compared, lambda: (X, keep, keep), lambda: (X, lambda t: t * 2, lambda t: t * 2), most=2)

    table = {keep: 3}

    def looked_up(x, fn):
        return x * table.get(fn, 1)

    check(looked_up, lambda: (X, keep), lambda: (X, lambda t: t * 2), lambda: (X, keep), most=2)


def test_returned_and_kept_functions_are_the_calls_own():
    kept = []

    def keeps(x, fn):
        kept.append(fn)
        return fn, fn(x)

    compiled = tg.compile(keeps, backend="eager")
    for n in range(3):
        fn = (lambda k: lambda t: t * k)(2)
        returned, _ = compiled(X, fn)
        assert returned is fn and kept[n] is fn


def test_across_breaks():
    def f(x, k):
        act = lambda t: t * k + 1

        def inner(t, s=2, *, u=3):
            return act(t) * s * u

        y = inner(x)
        tg.graph_break()
        p = functools.partial(inner, s=4)
        z = inner(y) + p(y)
        tg.graph_break()
        return act(p(z))

    check(f, *[lambda: (X, 2)] * 4, most=1)
    check(f, *[lambda n=n: (X, n) for n in (2, 3, 2, 3)], most=2)


def test_decorated_functions_across_breaks():
    def logged(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs) + 1

        return wrapper

    def f(x):
        @logged
        def act(t):
            return t * 2

        y = act(x)
        tg.graph_break()
        return act(y)

    check(f, *[lambda: (X,)] * 4, most=1)


def as_property(body):
    return type("Made", (), {"read": property(lambda self: body())})(), lambda made: made.read


def as_class_method(body):
    return type("Made", (), {"read": classmethod(lambda cls: body())}), lambda made: made.read()


def as_unbound_method(body):
    made = type("Made", (), {"read": lambda self: body()})
    return made(), lambda made: type(made).read(made)


def through_super(body):
    class Base:
        read = property(lambda self: body())

        def run(self):
            return body()

    class Made(Base):
        def run(self):
            return super().run() + super().read

    return Made(), lambda made: made.run()


def in_init_and_new(body):
    class Made:
        def __new__(cls):
            made = object.__new__(cls)
            made.first = body()
            return made

        def __init__(self):
            self.second = body()

    return Made, lambda made: (lambda one: one.first + one.second)(made())


def of_a_metaclass(body):
    class Meta(type):
        def __call__(cls):
            return body()

        def __len__(cls):
            return body()

    return Meta("Made", (), {}), lambda made: made() + len(made)


def of_a_descriptor(body):
    class Field:
        def __get__(self, owner, cls):
            return body()

    return type("Made", (), {"read": Field()})(), lambda made: made.read


def of_an_enum(body):
    class Made(enum.Enum):
        ONE = 1
        read = property(lambda self: body())

    return Made.ONE, lambda made: made.read


def of_partial_and_single_dispatch_methods(body):
    class Made:
        def give(self, what):
            return body() + what

        three = functools.partialmethod(give, 3)

        @functools.singledispatchmethod
        def by_type(self, what):
            return body()

    return Made(), lambda made: made.three() + made.by_type(1)


def of_a_dataclass(body):
    @dataclasses.dataclass
    class Made:
        first: int = dataclasses.field(default_factory=lambda: body())

    return Made, lambda made: made().first


@pytest.mark.parametrize("build", [
    as_property, as_class_method, as_unbound_method, through_super, in_init_and_new, of_a_metaclass, of_a_descriptor,
    of_an_enum, of_partial_and_single_dispatch_methods, of_a_dataclass,
], ids=lambda build: build.__name__)  # fmt: skip
def test_what_functions_on_classes_close_over(build):
    """It changes between calls and is written to, and no way leads there but through the function."""

    def outcome(compile_):
        values, log = [1], []

        def body():
            log.append(len(log))
            return values[0]

        made, read = build(body)
        function, results = compile_(lambda x, made: x + read(made)), []
        for value in (1, 2, 3):
            values[0] = value
            results.append(float(function(torch.zeros(1), made)))
        return results, log

    assert outcome(lambda f: tg.compile(f, backend="eager", fullgraph=True)) == outcome(lambda f: f)


def test_variables_of_outer_functions_that_have_no_value_yet():
    def outer():
        def own(x):
            try:
                return x * factor
            except NameError as error:
                return str(error)

        def called(x):
            return own(x), own(x)

        def define(value):
            nonlocal factor
            factor = value

        def delete():
            nonlocal factor
            del factor

        factor = 1
        del factor
        return own, called, define, delete

    own, called, define, delete = outer()
    compiled = [tg.compile(f, backend="eager", fullgraph=True) for f in (own, called)]
    for step in (lambda: None, lambda: define(2), lambda: define(X), delete, lambda: define(2)):
        step()
        for function, plain in zip(compiled, (own, called)):
            assert repr(function(X)) == repr(plain(X))
