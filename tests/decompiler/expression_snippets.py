# ruff: noqa: E501
"""Snippets of functions, classes and expressions."""

from snippet_rows import add

add("return_none", "def f(a):\n    a + 1", (1,))
add("docstring", 'def f():\n    """Doc."""\n    return f.__doc__')
add("docstring_inner", 'def f():\n    def g():\n        "inner"\n        return 1\n    return g.__doc__, g()')
add(
    "defaults_inner",
    "def f(n):\n    def g(a, b=n, *c, d=n + 1, **e):\n        return a, b, c, d, e\n"
    "    return g(1), g(1, 2, 3, d=4, x=5)",
    (7,),
)
add("keyword_only", "def f(a, *, k, m=3):\n    return a, k, m\nf = (lambda g: lambda a, b: g(a, k=b))(f)", (1, 2))
add("positional_only", "def f(a, b, /, c):\n    return a - b * c", (1, 2, 3))
add("star_args", "def f(*a, **k):\n    return a, sorted(k.items())\n", (1, 2), ())
add(
    "annotations",
    "def f():\n    def g(a: int, *b: str, c: 'x' = 1) -> float:\n        return a\n    return g.__annotations__",
)
add("lambda_", "def f(a):\n    g = lambda x, y=a: x if x > y else -y\n    return g(1), g(9)", (3,))
add("lambda_logic", "def f(a, b):\n    g = lambda x: x and b or a\n    return g(0), g(1)", (3, 4), (0, 0))
add(
    "closure",
    "def f(n):\n    def g():\n        nonlocal n\n        n += 1\n        return n\n    return g(), g(), n",
    (5,),
)
_DEEP = "".join("    " * n + f"    with n({n}, log):\n" for n in range(9))
add(
    "return_through_many",
    "import contextlib\n@contextlib.contextmanager\ndef n(k, log):\n    yield k\n    log.append(k)\n"
    f"def f(a, log):\n{_DEEP}{'    ' * 10}try:\n{'    ' * 11}if a:\n{'    ' * 12}return a\n"
    f"{'    ' * 10}except ValueError as e:\n{'    ' * 11}raise\n{'    ' * 10}finally:\n{'    ' * 11}log.append('f')\n"
    "    return log\n",
    (1, []),
    (0, []),
)
add(
    "closure_deep",
    "def f(n):\n    def g():\n        def h():\n            nonlocal n\n            n *= 2\n            return n\n"
    "        return h\n    return g()(), n",
    (5,),
)
add("unused_nonlocal", "def f(n):\n    def g():\n        nonlocal n\n    g()\n    return len(g.__closure__)", (5,))
add("global_", "x = 1\ndef f():\n    global x\n    x += 1\n    return x")
add("global_delete", "x = 1\ndef f():\n    global x\n    del x\n    return 'x' in globals()")
add(
    "decorators",
    "def f():\n    def d(k):\n        return lambda g: lambda *a: (k, g(*a))\n    @d(1)\n    @d(2)\n"
    "    def g(x):\n        return x\n    return g(5)",
)
add(
    "class_",
    "def f(n):\n    class A:\n        'doc'\n        y = n\n        def m(self, k=2):\n            return self.y * k\n"
    "        @property\n        def p(self):\n            return self.m()\n    return A().p, A.__doc__, A.y",
    (3,),
)
add(
    "class_bases",
    "def f():\n    class M(type):\n        def __new__(m, n, b, d, **k):\n            c = super().__new__(m, n, b, d)\n"
    "            c.k = k\n            return c\n        def __init__(c, n, b, d, **k):\n            super().__init__(n, b, d)\n"
    "    class A(dict, metaclass=M, tag=1):\n        pass\n    class B(A):\n        def __len__(self):\n"
    "            return super().__len__() + 1\n    return A.k, len(B())",
)
add(
    "class_annotations",
    "def f():\n    class A:\n        x: int\n        y: str = 'a'\n    return A.__annotations__, A.y",
)
add(
    "class_closure",
    "def f(n):\n    class A:\n        n = n + 1 if False else 4\n        def m(self):\n            return n\n"
    "    return A.n, A().m()",
    (3,),
)
add(
    "if_elif",
    "def f(a):\n    if a > 5:\n        r = 'big'\n    elif a > 2:\n        r = 'mid'\n    elif a:\n        r = 'low'\n"
    "    else:\n        r = 'zero'\n    return r",
    (9,),
    (3,),
    (1,),
    (0,),
)
add(
    "if_nested",
    "def f(a, b):\n    if a:\n        if b:\n            return 1\n        else:\n            b = 5\n    else:\n"
    "        b = 6\n    return b",
    (0, 0),
    (1, 0),
    (1, 1),
)
add(
    "if_returns",
    "def f(a):\n    if a == 1:\n        return 'x'\n    if a == 2:\n        return\n    return 'z'",
    (1,),
    (2,),
    (3,),
)
add(
    "bool_ops",
    "def f(a, b, c):\n    return (a and b) or c, a and (b or c), not (a or b) and c, not a",
    (0, 0, 0),
    (1, 0, 2),
    (1, 2, 3),
    (0, 5, 6),
)
add(
    "bool_conditions",
    "def f(a, b, c):\n    r = []\n    if a and b or c:\n        r.append(1)\n    if not (a and (b or c)):\n"
    "        r.append(2)\n    if (a or b) and (b or c):\n        r.append(3)\n    if a if b else c:\n        r.append(4)\n    return r",
    *[(x, y, z) for x in (0, 1) for y in (0, 1) for z in (0, 1)],
)
add(
    "ternary",
    "def f(a, b):\n    return (a if a > b else b) + (1 if a else 2 if b else 3), [a if b else 0, b]",
    (1, 2),
    (0, 0),
    (0, 3),
)
add("chained", "def f(a, b, c):\n    return a < b < c, a < b <= c != 5, not a < b < c", (1, 2, 3), (3, 2, 1), (1, 5, 5))
add(
    "chained_if",
    "def f(a, b, c):\n    if a < b < c:\n        return 1\n    while a <= b <= c:\n        a += 1\n"
    "    return a if not a < b < c < 9 else 4",
    (1, 2, 3),
    (2, 2, 2),
    (3, 1, 1),
)
add(
    "chained_calls",
    "def f():\n    log = []\n    def g(x):\n        log.append(x)\n        return x\n"
    "    r = g(1) < g(0) < g(9), g(1) < g(2) < g(3)\n    return r, log",
)
add(
    "walrus",
    "def f(a):\n    if (n := len(a)) > 2:\n        return n\n    return [y for x in a if (y := x * 2) > 2], y",
    ([1],),
    ([1, 2, 3],),
)
add(
    "walrus_while",
    "def f(a):\n    r = []\n    while (x := a.pop()) != 3:\n        r.append(x)\n    return r, x",
    ([3, 4, 5],),
)
add("walrus_args", "def f(a):\n    return max((b := a + 1), b * 2, (c := b) + c), b, c", (3,))
add("swap", "def f(a, b, c):\n    a, b = b, a\n    b, c, a = a, b, c\n    return a, b, c", (1, 2, 3))
add(
    "swap_items",
    "def f(a):\n    i, j = 0, 1\n    a[i], a[j] = a[j], a[i]\n    i, a[i] = 1, 9\n    return a, i",
    ([1, 2],),
)
add(
    "chain_assign",
    "def f(a):\n    x = y = a[0] = [1]\n    (p, q) = r = 1, 2\n    s = t, u = 3, 4\n    return x is y, a, p, q, r, s, t, u",
    ([0],),
)
add(
    "unpack",
    "def f(a):\n    x, (y, *z), w = a\n    *h, t = z\n    [k] = [5]\n    return x, y, z, w, h, t, k",
    ((1, (2, 3, 4), 5),),
)
add("unpack_error", "def f(a):\n    x, y = a\n    return x", ((1, 2),), ((1,),), (3,))
add(
    "augmented",
    "def f(a, d):\n    a += 1\n    a **= 2\n    d['k'] -= a\n    d['l'][0] //= 2\n    a @= 1 if False else M()\n    return a, d\n"
    "class M:\n    def __rmatmul__(self, o):\n        return ('mm', o)\n",
    (2, {"k": 3, "l": [9]}),
)
add(
    "augmented_attr",
    "class O: v = 1\ndef f():\n    o = O()\n    o.v += 2\n    o.v <<= 1\n    x = [1]\n    y = x\n    x += [2]\n"
    "    x[0:1] += [7]\n    return o.v, y, x is y",
)
add(
    "operators",
    "def f(a, b):\n    return a + b - a * b / 7 // 2 % 5 ** 2, a << b, a >> 1, a & b, a | b, a ^ b, ~a, -a, +b, -1 ** 2, (-1) ** 2",
    (5, 3),
)
add(
    "identity",
    "def f(a, b):\n    return a is b, a is not b, a in [b], a not in (b, 1), a is None, not a is None, a in {1, 2}",
    (1, 2),
    (None, None),
)
add(
    "none_tests",
    "def f(a):\n    r = []\n    if a is None:\n        r.append(1)\n    if a is not None:\n        r.append(2)\n"
    "    while a is None:\n        a = 3\n    return r, a",
    (None,),
    (0,),
)
add(
    "is_or",
    "def f(a, b):\n    if a is b or a == 1:\n        pass\n    else:\n        return 'no'\n    return 'yes'",
    (1, 2),
    (3, 4),
    (5, 5),
)
add(
    "slices",
    "def f(a):\n    b = a[:]\n    b[1:3] = [0]\n    del b[::2]\n    return a[1:], a[:-1], a[1:4:2], a[::-1], b, a[-1]",
    ([1, 2, 3, 4, 5],),
)
add(
    "subscript_tuple",
    "class G:\n    def __getitem__(self, k):\n        return k\ndef f():\n    g = G()\n"
    "    return g[1, 2], g[1:2, ::3], g[..., None], g[()], g[1:2]",
)
add(
    "displays",
    "def f(a, b):\n    return [1, 2, 3], (a, *b), [*b, a, *b], {*b, a}, {'k': a, **{'z': b}, 'l': 1}, {**{}, 'a': a}, {}, set(), ()",
    (1, (2, 3)),
)
add(
    "big_displays",
    "def f(a):\n    return [a, "
    + ", ".join(map(str, range(40)))
    + "], {"
    + ", ".join(f"'{n}': a" for n in range(40))
    + "}",
    (1,),
)
add(
    "constants",
    "def f():\n    return 1, -1, 1.5, -0.0, 1e400, -1e400, 2j, 1 - 2j, b'x', 'it\\'s \"q\"\\n', None, ..., (1, (2, -3)), 10 ** 20, True",
)
add(
    "calls",
    "def f(g, a, k):\n    return g(1, *a, 2, *a, x=1, **k), g(*a), g(**k), g(1, y=2), g(*a, z=3), g(**k, q=1)",
    (lambda *a, **k: (a, sorted(k.items())), (5, 6), {"m": 1}),
)
add(
    "call_keywords",
    "def f(g):\n    return g(1, **{'a': 2}), g(**{'b': 1}, c=2), g(a=1, **{'d': 3}, e=4)",
    (lambda *a, **k: (a, sorted(k.items())),),
)
add(
    "methods",
    "def f(s):\n    return s.upper().lower().replace('a', 'b', 1).split(sep='c'), ' '.join(sorted(set(s)))",
    ("abcabc",),
)
add(
    "fstrings",
    "def f(a, w):\n    return f'{a}', f'x{a!r:>{w}}y{{}}', f'{a:0{w}.2f}{w!s}{w!a}', f'{a=}', f'' f'{a}' 'z', f'{a:%}'",
    (1.5, 9),
)
add(
    "fstring_nested",
    "def f(d):\n    return f\"{d['k']} {'q' + str(len(d))} {[x for x in d]}\", '%s and %r' % (d, 1), '%d%%' % 5",
    ({"k": 1},),
)
