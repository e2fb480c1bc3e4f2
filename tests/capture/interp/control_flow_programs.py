"""Control flow: loops, branches, matching, unpacking, conditional and chained expressions, deletion."""

# ruff: noqa: B006, B018, F821, F841
from __future__ import annotations

from ..tables import rand, table, tables
from ..values.instances_programs import Point

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


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
def deletion(x):
    a, b = x, {"k": 1, "l": 2}
    del b["k"]
    c = [1, 2, 3]
    del c[0]
    y = a + len(b)
    del a
    return y, b, c


@whole
def walrus_loop(x):
    it = iter([1, 2, 3])
    t = 0
    while (v := next(it, None)) is not None:
        t += v
    return x + t


@whole
def star_expr(x):
    a, (b, *c), *d = 1, (2, 3, 4), 5, 6
    return a, b, c, d, x, [*range(3), *"ab"], {**{"a": 1}, "b": 2}, (*[1],), print if False else 1


@whole
def chained_compare(x):
    return 1 < 2 < 3, 1 < x.shape[0] <= 3, not 1 == 2 != 3, x


@whole
def is_none_defaults(x):
    def f(a=None, b=[]):
        b.append(1)
        return len(b), a is None

    return f(), f(), x


@program
def match_statements():
    def f(x, cmd):
        match cmd:
            case {"op": "scale", "by": float() | int() as k, **rest}:
                return x * k, rest
            case ["add", *values] if len(values) > 1:
                return x + sum(values)
            case ("neg" | "minus", _):
                return -x
            case str(name):
                return getattr(x, name)()
            case None:
                return x
            case _:
                return "?"

    return f, [(rand(2), c) for c in ({"op": "scale", "by": 2, "z": 1}, ["add", 1, 2], ("neg", 0), "exp", None, 3.5)]


@program
def del_and_rebind():
    def f(x):
        y = x * 2
        d = {"a": y, "b": 1}
        del y, d["a"]
        try:
            y
        except UnboundLocalError as e:
            d["c"] = "unbound"
        return d

    return f, [(rand(2),)] * 2


@program
def walrus_and_ternaries():
    def f(xs):
        if (n := len(xs)) > 1 and (last := xs[-1]).dim() == 1:
            return [y for x in xs if (y := x * n) is not None], last
        return n

    return f, [([rand(2), rand(2, seed=1)],), ([],)]


@program
def star_unpacking():
    def f(xs):
        first, *mid, last = xs
        (a, b), c = (first, last), [*mid, *xs]
        return a - b, len(c), [*range(2), *"ab"], {**{"a": 1}, "b": first}

    return f, [([rand(2), rand(2, seed=1), rand(2, seed=2)],)] * 2
