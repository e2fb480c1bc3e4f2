"""Programs for capture, one construct each. ``x`` is a float tensor of shape [3, 4]; results are compared with eager.

Each is captured whole (``fullgraph=True``) unless it is in ``BREAKING``.
"""

# ruff: noqa: C417, UP031
from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import operator
import types
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from .tables import tables

WHOLE, BREAKING, whole, breaking = tables()


# --- control flow -----------------------------------------------------------------------------------------------------
@whole
def loops(x):
    total = x
    for i in range(3):
        if i == 1:
            continue
        total = total + i
    else:
        total = total * 2
    n = 0
    while True:
        n += 1
        if n > 4:
            break
        total = total - n
    return total, n


@whole
def comprehensions(x):
    rows = [row * i for i, row in enumerate(x)]
    table = {i: r.sum() for i, r in enumerate(rows) if i != 1}
    kinds = {type(r).__name__ for r in rows}
    return rows, table, kinds, tuple(r + 1 for r in rows)


@whole
def generators(x):
    def produce(n):
        for i in range(n):
            got = yield x * i
            assert got is None
        return "done"

    def outer():
        result = yield from produce(3)
        yield result

    values = list(outer())
    return sum(values[:-1]), values[-1]


@whole
def exceptions(x):
    log = []
    try:
        {}["missing"]
    except KeyError as error:
        log.append(type(error).__name__)
    else:
        log.append("else")
    finally:
        log.append("finally")
    try:
        try:
            raise ValueError("inner")
        except ValueError as error:
            raise RuntimeError("outer") from error
    except RuntimeError as error:
        log.append(str(error))
        log.append(type(error.__cause__).__name__)

    def helper():
        try:
            return x + 1
        finally:
            log.append("cleanup")

    return helper(), log


@whole
def matching(x):
    def kind(value):
        match value:
            case 0:
                return "zero"
            case int() as n if n > 10:
                return "big"
            case [first, *rest]:
                return f"list of {first} and {len(rest)}"
            case {"key": inner, **others}:
                return f"key {inner} {len(others)}"
            case Point(px=0, py=py):
                return f"on axis {py}"
            case str():
                return "text"
            case _:
                return "other"

    return [kind(v) for v in (0, 11, [1, 2, 3], {"key": 5, "more": 6}, Point(0, 7), "s", 2.5)], x + 1


@whole
def unpacking(x):
    a, *b, c = [1, 2, 3, 4]
    (d, e), f = (x, x + 1), {"k": 1}
    g = [*b, a, *range(2)]
    h = {**f, "l": c}
    i = (*g, 5)
    first, _, third = x
    return d + e, g, h, i, first + third


@whole
def walrus_and_chained(x):
    if (n := x.shape[0]) > 2 and 1 < n <= 3:
        return x * n
    return x


@whole
def conditional_expressions(x):
    flag = None
    y = x if flag is None else x + 1
    z = flag or 3
    return y * z, not flag, flag is not None


@whole
def formatting(x):
    n = 3
    value = 2.5
    return f"{n:>5}|{value:.3f}|{n!r}|{x.shape}|{'a' + 'b'}", "%d-%s" % (n, "t"), f"{1} {2}", x + n


@whole
def deletion(x):
    a, b = x, {"k": 1, "l": 2}
    del b["k"]
    c = [1, 2, 3]
    del c[0]
    y = a + len(b)
    del a
    return y, b, c


# --- functions --------------------------------------------------------------------------------------------------------
def many_parameters(a, /, b, c=3, *rest, d, e=5, **others):
    return a * b + c + sum(rest) + d + e + sum(others.values())


@whole
def calling(x):
    args, kwargs = (2, 4, 6), {"d": 1, "z": 9}
    return many_parameters(x, *args, **kwargs), many_parameters(x, 2, d=7)


@whole
def comprehension_with_a_name_of_a_closure(x):
    v = x + 1
    later = lambda: v
    numbers = [(lambda: v)() for v in range(3)]
    return later() * sum(numbers), v, [v + 1 for v in numbers]


@whole
def closures(x):
    count = 0

    def add(n):
        nonlocal count
        count += n
        return x + count

    adders = [lambda y, i=i: y + i for i in range(3)]
    return add(1) + add(2), count, [f(x) for f in adders]


@whole
def partials_and_lambdas(x):
    f = functools.partial(torch.add, alpha=2)
    g = functools.partial(many_parameters, 1, d=2)
    compose = lambda *fs: lambda v: functools.reduce(lambda acc, h: h(acc), fs, v)
    return f(x, x), g(x), compose(torch.sin, torch.cos)(x)


def decorate(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) * 2

    return wrapper


@decorate
def decorated(x, y=1):
    return x + y


@whole
def decorators(x):
    return decorated(x, y=3)


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@whole
def recursion(x):
    return x * fibonacci(8)


# --- objects ----------------------------------------------------------------------------------------------------------
class Base:
    scale = 2

    def __init__(self, value):
        self.value = value

    @property
    def doubled(self):
        return self.value * 2

    @doubled.setter
    def doubled(self, new):
        self.value = new / 2

    @classmethod
    def make(cls, value):
        return cls(value)

    @staticmethod
    def helper(value):
        return value + 1

    def apply(self, x):
        return x * self.value


class Derived(Base):
    def __init__(self, value, extra):
        super().__init__(value)
        self.extra = extra

    def apply(self, x):
        return super().apply(x) + self.extra

    def __call__(self, x):
        return self.apply(x)

    def __getitem__(self, i):
        return self.value + i

    def __len__(self):
        return 3

    def __contains__(self, item):
        return item == self.value

    def __iter__(self):
        return iter([self.value, self.extra])

    def __add__(self, other):
        return Derived(self.value + other, self.extra)

    __radd__ = __add__

    def __eq__(self, other):
        return isinstance(other, Derived) and other.value == self.value

    def __hash__(self):
        return hash(self.value)

    def __getattr__(self, name):
        if name == "dynamic":
            return 42
        raise AttributeError(name)

    def __enter__(self):
        self.entered = True
        return self

    def __exit__(self, *exc):
        self.entered = False
        return True

    def __repr__(self):
        return f"Derived({self.value})"


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a
        self.b = a + 1


class Point(NamedTuple):
    px: int
    py: Any = 1


@dataclasses.dataclass
class Record:
    name: str
    value: Any = 0
    items: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: Any


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Stack(list):
    def push(self, value):
        self.append(value)
        return self


class Defaults(dict):
    def __missing__(self, key):
        return key * 2


@whole
def classes(x):
    d = Derived(2, 1)
    d.doubled = 8
    e = Derived.make
    total = d(x) + d[1] + len(d) + Base.helper(1) + d.scale + d.doubled
    with d as entered:
        assert entered.entered
        raise ValueError("swallowed")
    a, b = d
    return (
        total,
        d.dynamic,
        a,
        b,
        (4 in d),
        d == Derived(4, 0),
        hasattr(d, "nothing"),
        getattr(d, "extra", 0),
        callable(e),
    )


@whole
def operators_of_classes(x):
    return (Derived(1, 2) + 3).value, (3 + Derived(1, 2)).apply(x), repr(Derived(5, 1)), f"{Derived(6, 1)}"


@whole
def slots_and_records(x):
    s = Slotted(3)
    s.b = s.a * 2
    r = Record("n", x)
    r.items.append(1)
    f = Frozen(1, x)
    p = Point(3)
    q = p._replace(py=7) if False else Point(px=1, py=2)
    try:
        f.a = 2
    except dataclasses.FrozenInstanceError:
        r.items.append("frozen")
    return s.a + s.b, r.value + f.b, r.items, p.px + q.py, dataclasses.replace(r, name="m").name


@whole
def returned_objects(x):
    return Record("made", x + 1), Point(1, x), Derived(1, x), {"c": Color.RED}, Stack([1]).push(x)


@whole
def enums(x):
    table = {Color.RED: 2, Color.BLUE: 3}
    return x * table[Color.RED], Color.BLUE.value, Color["RED"].name, Color(2) is Color.BLUE, [c.name for c in Color]


@whole
def collections_of_python(x):
    od = collections.OrderedDict(a=1)
    od["b"] = x
    od.move_to_end("a")
    dd = collections.defaultdict(list)
    dd["k"].append(x)
    dq = collections.deque([1, 2])
    dq.append(3)
    dq.popleft()
    s = {1, 2} | {3}
    s.add(4)
    frozen = frozenset(s) & {1, 4}
    return list(od), od["b"] + 1, len(dd["k"]), list(dq), sorted(s), len(frozen), isinstance(od, dict)


@whole
def lists_and_dicts(x):
    a = [3, 1, 2]
    a.sort(key=lambda v: -v)
    a.extend([5])
    a.insert(0, 9)
    a += [7]
    b = a[::-1]
    d = dict(zip("abc", a))
    d.setdefault("z", x)
    d.update(q=1, **{"r": 2})
    popped = d.pop("a")
    return a, b, list(d.keys()), list(d.items())[1], popped, d.get("none", 4), a.index(5), max(a), min(b), sum(a), x


@whole
def itertools_and_friends(x):
    a = list(itertools.chain([1], (2, 3)))
    b = list(itertools.islice(itertools.count(5), 3))
    c = list(itertools.product([1, 2], "ab"))
    d = list(zip(a, b, strict=True))
    e = [k for k, g in itertools.groupby([1, 1, 2])]
    f = list(map(lambda v: v * x, a))
    g = list(filter(None, [0, 1, 2]))
    h = any(v > 2 for v in a), all(a)
    i = list(reversed(a))
    j = operator.itemgetter(1)(a), operator.attrgetter("shape")(x)[0]
    k = list(itertools.accumulate(a))
    return a, b, c, d, e, f, g, h, i, j, k, math.sqrt(4.0), divmod(7, 2), round(2.567, 1)


@whole
def contexts(x):
    with torch.no_grad():
        y = x * 2
    with torch.enable_grad(), contextlib.nullcontext():
        z = x * 3

    @torch.no_grad()
    def quiet(v):
        return v + 1, torch.is_grad_enabled()

    @contextlib.contextmanager
    def tracked(log):
        log.append("in")
        try:
            yield len(log)
        finally:
            log.append("out")

    log = []
    with tracked(log) as n:
        z = z + n
    return y, z, quiet(x), log, y.requires_grad, torch.is_grad_enabled()


@whole
def class_checks(x):
    return (
        isinstance(x, torch.Tensor),
        isinstance([], (list, tuple)),
        issubclass(Derived, Base),
        type(x) is torch.Tensor,
        int.__name__,
        callable(len),
        Derived.__mro__[1].__name__,
        x + 0,
    )


@whole
def namespaces(x):
    ns = types.SimpleNamespace(a=1, b=x)
    ns.c = ns.a + 1
    return ns.b + ns.c, vars(ns)["a"]


# --- tensors ----------------------------------------------------------------------------------------------------------
@whole
def shapes(x):
    b, c = x.shape
    y = x.view(-1).reshape(c, b)
    return y.permute(1, 0), x.size(0) * x.size(-1), x.dim(), x.numel(), y.t().shape == x.shape, list(x.shape), x.ndim


@whole
def indexing(x):
    idx = torch.tensor([0, 2])
    y = x[idx]
    z = x[:, 1:3]
    w = x[..., None]
    v = x[0, -1]
    u = x[[0, 1]]
    return y, z, w, v, u, x[None].shape, x[::2]


@whole
def in_place(x):
    y = x.clone()
    y += 1
    y.mul_(2)
    y[0] = 0
    y[:, 1] += 5
    z = torch.zeros(3, 4)
    z.copy_(y)
    return y, z


@whole
def creation(x):
    a = torch.arange(4, dtype=x.dtype)
    b = torch.ones_like(x) * torch.full((3, 1), 2.0)
    c = torch.zeros(x.shape, device=x.device)
    d = torch.eye(3) @ x
    e = x.new_zeros(2)
    f = torch.tensor(3.5) * x
    return x + a + b + c, d, e, f, torch.linspace(0, 1, 5)


@whole
def several_results(x):
    values, indices = x.max(dim=1)
    top = torch.topk(x, 2)
    a, b = torch.chunk(x, 2, dim=1)
    c = x.sort(dim=-1)
    return values, indices, top.values, top[1], a, b, c.indices, torch.split(x, [1, 2])


@whole
def functional(x):
    y = F.gelu(F.layer_norm(x, (4,)))
    z = F.softmax(x, dim=-1) @ F.normalize(x).T
    w = F.pad(x, (1, 1))
    return y, z, w, F.one_hot(torch.tensor([0, 2]), 3), F.mse_loss(x, y), F.dropout(x, 0.5, training=False)


@whole
def dtypes(x):
    y = x.to(torch.float64).half().float()
    return (
        y,
        x.dtype == torch.float32,
        x.to(torch.int64),
        torch.finfo(x.dtype).min,
        x.dtype.is_floating_point,
        x.type_as(y),
    )


@whole
def comparisons(x):
    mask = (x > 0) & (x < 1) | (x == 0.5)
    return torch.where(mask, x, -x), x.masked_fill(mask, 0.0), ~mask, x is x, x is not None


@whole
def python_scalars(x):
    return 2**x, 1 - x, 3 / (x + 10), x // 1, x % 2, -x, abs(x), +x, x**2, round(1.5)


@whole
def einsum_and_cat(x):
    return torch.einsum("ij,kj->ik", x, x), torch.cat([x, x], dim=1), torch.stack([x, x * 2]), torch.matmul(x, x.T)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.table = nn.ModuleDict({"relu": nn.ReLU(), "gelu": nn.GELU()})
        self.tail = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(width))])
        self.register_buffer("offset", torch.ones(width))
        self.calls = 0

    def forward(self, x, kind="gelu"):
        x = self.norm(x)
        for layer in self.layers:
            x = x + self.table[kind](layer(x))
        x = self.tail(x) * self.weights[0] + self.offset
        return x, len(self.layers), [name for name, _ in self.named_children()]


torch.manual_seed(0)
BLOCK = Block(4)


@whole
def modules(x):
    return BLOCK(x), BLOCK(x, kind="relu")[0]


@whole
def module_introspection(x):
    return (
        [n for n, p in BLOCK.named_parameters()][:2],
        sum(p.numel() for p in BLOCK.parameters()),
        BLOCK.training,
        isinstance(BLOCK.norm, nn.LayerNorm),
        BLOCK.layers[1](x),
        x + 1,
    )


# --- what breaks ------------------------------------------------------------------------------------------------------
@breaking
def branch_on_value(x):
    y = x * 2
    if y.sum() > 0:
        y = y + 1
    else:
        y = y - 1
    return y * 3


@breaking
def item_and_print(x):
    total = x.sum().item()
    y = x + total
    return y * 2, total


@breaking
def loop_with_breaks(x):
    out = []
    for i in range(3):
        x = x + i
        if x.mean() > 1e9:
            break
        out.append(x)
    return out


@breaking
def break_in_call(x):
    def helper(v):
        if v.sum() > 0:
            return v + 1
        return v - 1

    y = x * 2
    z = helper(y)
    return z + y


@breaking
def break_inside_expression(x):
    return (x + 1) * float(x.sum()) + len([x]) * (x - 1)


@breaking
def break_in_try(x):
    try:
        y = x + x.sum().item()
    except ValueError:
        y = x
    return y * 2


@breaking
def raises(x):
    y = x + 1
    raise ValueError(f"no {y.shape}")


@breaking
def raises_in_torch(x):
    y = x + 1
    return y @ y


@breaking
def nonzero_and_masks(x):
    return x[x > 0].sum(), (x > 0).nonzero().shape


@whole
def copies(x):
    import copy

    a = {"list": [1, x], "record": Record("n", 3, [4]), "again": None}
    a["again"] = a["list"]
    b = copy.deepcopy({"n": [1, {2, 3}], "r": a["record"], "d": Derived(1, [2])})
    b["n"].append(5)
    c = copy.copy(a["record"])
    c.name = "m"
    number = 1
    number += x
    return b, a["record"].name, c.name, a["again"] is a["list"], number


# --- what once went wrong ---------------------------------------------------------------------------------------------
class CustomError(Exception):
    def __init__(self, first, second):
        super().__init__(first)
        self.second = second


@breaking
def raises_with_own_init(x):
    raise CustomError(1, x.shape)


@whole
def caught_with_own_init(x):
    try:
        raise CustomError(1, x + 1)
    except CustomError as error:
        return error.second, error.args, str(error), repr(KeyError("k"))


@whole
def deques(x):
    d = collections.deque([1, 2, 3])
    d.rotate(1)
    d.appendleft(9)
    d.extendleft([7, 8])
    bounded = collections.deque(maxlen=2)
    for n in range(3):
        bounded.append(n)
    return x, list(d), list(bounded), bounded


@whole
def set_updates(x):
    s = {1, 2, 3}
    s.difference_update({1})
    s.intersection_update({2, 3, 4})
    s.symmetric_difference_update({4})
    s |= {9}
    return x + len(s), s


@whole
def generator_methods(x):
    log = []

    def produce():
        try:
            got = yield 1
            yield got
        except GeneratorExit:
            log.append("exit")
            raise
        except ValueError as error:
            yield str(error)
        finally:
            log.append("finally")

    first, second = produce(), produce()
    values = [next(first), first.send(5), next(second), second.throw(ValueError("thrown"))]
    first.close()
    return x, values, log, list(second)


class Tagging(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.tag = cls.__name__
        return made


class Tagged(metaclass=Tagging):
    def __init__(self, value):
        self.value = value


@whole
def metaclass_call(x):
    made = Tagged(x)
    return made.value + 1, made.tag


@whole
def sizes_added(x):
    return (2,) + x.shape, x.shape + (1,), x.shape[:1] * 2, list[int], [1] * 2


@functools.lru_cache(None)
def doubled(n):
    return n * 2


@whole
def cached_functions(x):
    return x * doubled(x.shape[0]), repr(Record("n", 1))


@whole
def exit_stacks(x):
    log = []
    with contextlib.ExitStack() as stack:
        stack.callback(log.append, 1)
        stack.enter_context(torch.no_grad())
        y = x * 2
    return y, log


@whole
def methods_of_subclasses(x):
    return x, operator.methodcaller("upper")("a"), collections.deque([1], maxlen=3)


@breaking
def list_built_around_breaks(x):
    return [x.sum().item(), *range(2), {"k": x.max().item()}], {1, *[int(x.sum())]}, {**{"a": float(x.sum())}, "b": 1}


@breaking
def nested_loops_with_breaks(x):
    out = []
    for i in range(2):
        for k, v in {"a": 1, "b": 2}.items():
            if x.sum() > v:
                out.append((i, k))
            x = x + v
    else:
        out.append("else")
    return out, x


@breaking
def iterators_across_breaks(x):
    it = iter(x)
    first = next(it)
    second = next(it) if first.sum() > 0 else first
    return first + second, list(it)


@breaking
def requires_grad_inside(x):
    w = x.clone().requires_grad_()
    y = w * 2
    if y.sum() > 0:
        y = y * 3
    return torch.autograd.grad(y.sum(), w)


@breaking
def formatted_tensors(x):
    return "%s" % x, f"{x}", repr(x), str([x])


@breaking
def numpy_arrays(x):
    a = x.numpy()
    return torch.from_numpy(a.copy()) + float((a * 2).sum()), a.tolist()


@whole
def dictionaries_while_iterated(x):
    d = {"a": 1, "b": 2, "c": x}
    d["a"] = d.pop("a")
    seen = []
    for key, value in d.items():
        seen.append((key, value))
        d["c"] = 7
    try:
        for key in d:
            d[key + "z"] = 1
    except RuntimeError as error:
        seen.append(str(error))
    return list(d), seen


@whole
def namespaces_returned(x):
    made = types.SimpleNamespace()
    made.a = x + 1
    return made


@whole
def iterators_that_ended(x):
    items = [1]
    it = iter(items)
    taken = list(it)
    items.append(2)
    seen = []
    try:
        members = {1, 2}
        for value in members:
            members.add(value + 10)
    except RuntimeError as error:
        seen.append(str(error))
    return x, taken, list(it), seen


@breaking
def iterators_of_growing_lists(x):
    items, table = [1, 2], {"a": 1, "b": 2}
    it, pairs, numbered = iter(items), iter(table.items()), enumerate(items)
    firsts = next(it), next(pairs), next(numbered)
    if x.sum() > 0:
        x = x + 1
    items.append(5)
    table["b"] = 9
    return firsts, list(it), list(pairs), list(numbered), x


@whole
def checks(x):
    torch._check(x.dim() == 2, lambda: f"two axes wanted, not {x.dim()}")
    torch._check_tensor_all(x.abs() < 100, lambda: "too large")
    caught = []
    for check in (torch._check, torch._check_index, torch._check_value, torch._check_type):
        try:
            check(x.size(0) > 10, lambda: f"only {x.size(0)} rows")
        except Exception as error:
            caught.append((type(error).__name__, str(error)))
    return x * 2, caught


@whole
def backend_switches(x):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    y = x[None, None]
    with sdpa_kernel(SDPBackend.MATH):
        attended = torch.nn.functional.scaled_dot_product_attention(y, y, y)
    with torch.backends.cudnn.flags(enabled=False):
        attended = attended + x
    return attended, torch.backends.cudnn.enabled


@whole
def asks_whether_it_is_exported(x):
    if torch.onnx.is_in_onnx_export() or torch.jit.is_tracing() or torch.jit.is_scripting():
        return x
    return x + 1


@whole
def tuples_in_order(x):
    """Compared item by item, so far as they differ: what comes behind may be tensors."""
    options = {"scale": x, "add": 2.0, "more": x + 1}
    total = x
    for name, value in sorted(options.items()):
        total = total * value if name == "scale" else total + value
    a, b = (1, x), (2, x)
    found = [a < b, a <= a, a > b, [1, x] < [1, x, 2], (x, 1) < (x, 2), max((1, x), (4, x))[0]]
    try:
        found.append((1, "a", x) < (1, 2, x))
    except TypeError as error:
        found.append(str(error))
    return total, found, sorted([(2, x), (1, x), (3, None)])[0][0]
