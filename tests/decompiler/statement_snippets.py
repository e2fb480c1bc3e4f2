# ruff: noqa: E501
"""Snippets of statements, and of functions that are awaited or give values one by one."""

from snippet_rows import add

add(
    "for_",
    "def f(n):\n    r = []\n    for i in range(n):\n        if i == 1:\n            continue\n        if i == 4:\n            break\n"
    "        r.append(i)\n    return r, i",
    (3,),
    (9,),
)
add(
    "for_else",
    "def f(a, k):\n    for x in a:\n        if x == k:\n            r = 'found'\n            break\n    else:\n        r = 'none'\n    return r",
    ([1, 2], 2),
    ([1], 5),
    ([], 0),
)
add(
    "for_else_return",
    "def f(a):\n    for x in a:\n        if x > 2:\n            break\n    else:\n        raise ValueError('none')\n    return x * 2",
    ([1, 3],),
    ([1],),
)
add(
    "for_unpack",
    "def f(d):\n    r = []\n    for i, (k, v) in enumerate(sorted(d.items())):\n        r += [i, k, v]\n    for a[0], *b in [(1, 2, 3)]:\n        r.append(b)\n"
    "    return r, a\na = [0]",
    ({"x": 1, "y": 2},),
)
add(
    "for_nested",
    "def f(n):\n    r = []\n    for i in range(n):\n        for j in range(i):\n            if j == 2:\n                break\n"
    "            if (i + j) % 2:\n                continue\n            r.append((i, j))\n        else:\n            r.append(i)\n            continue\n"
    "        r.append('b')\n    return r",
    (5,),
)
add("for_return", "def f(a):\n    for x in a:\n        return x + 1\n    return 'empty'", ([1, 2],), ([],))
add(
    "while_",
    "def f(n):\n    r = 0\n    while n and r < 50:\n        n -= 1\n        r += n\n    return r, n",
    (5,),
    (30,),
    (0,),
)
add(
    "while_else",
    "def f(n):\n    while n > 0:\n        n -= 2\n        if n == 1:\n            break\n    else:\n        return 'done'\n    return 'broken', n",
    (4,),
    (5,),
)
add(
    "while_true",
    "def f(n):\n    while True:\n        n -= 1\n        if n < 0:\n            break\n        if n == 7:\n            return 'seven'\n        if n % 2:\n"
    "            continue\n        n -= 1\n    return n",
    (5,),
    (8,),
)
add(
    "while_nested",
    "def f(n):\n    t = 0\n    while n:\n        m = n\n        while True:\n            if m == 1:\n                break\n            m -= 1\n            t += m\n"
    "        n -= 1\n    return t",
    (4,),
)
add(
    "while_not_in",
    "def f(a):\n    n = 0\n    while n not in a:\n        n += 1\n    while not (n in a and n > 3):\n        n += 1\n    return n",
    ([2, 5],),
)
add(
    "comprehensions",
    "def f(a):\n    return [x * y for x in a for y in range(x) if y if x - y], {x % 2 for x in a}, {x: x ** 2 for x in a if x > 1}, "
    "list(x for x in a if not x % 2)",
    ([1, 2, 3, 4],),
)
add(
    "comprehension_nested",
    "def f(a):\n    return [[y + k for y in x if y] for x in a for k in (1, 2) if x], [x for x in [1, 2]], x\nx = 9",
    ([[1, 0], [], [2]],),
)
add(
    "comprehension_closure",
    "def f(n):\n    return [g() for g in [lambda: n + i for i in range(3)]], sum(i * n for i in range(4)), [n for n in range(2)], n",
    (10,),
)
add(
    "comprehension_conditions",
    "def f(a):\n    return [x if x > 1 else -x for x in a if x or a if 0 <= x < 3], [(x, y) for x, (y, *_) in [(1, (2, 3))]]",
    ([0, 1, 2, 3],),
)
add(
    "generator",
    "def f(n):\n    def g():\n        x = yield 1\n        while x:\n            x = yield x * 2\n        return 'end'\n"
    "    it = g()\n    return next(it), it.send(3), it.send(n), list(it)",
    (4,),
)
add(
    "generator_for",
    "def f(n):\n    def g():\n        for i in range(n):\n            if i % 2:\n                yield i\n            else:\n                yield from (i, i)\n"
    "        return\n    return list(g())",
    (5,),
)
add("generator_empty", "def f():\n    def g():\n        return\n        yield\n    return list(g())")
add(
    "generator_try",
    "def f():\n    log = []\n    def g():\n        try:\n            yield 1\n            yield 2\n        except ValueError as e:\n"
    "            log.append(str(e))\n            yield 3\n        finally:\n            log.append('fin')\n    it = g()\n    next(it)\n"
    "    r = it.throw(ValueError('x'))\n    it.close()\n    return r, log",
)
add(
    "yield_expr",
    "def f():\n    def g():\n        a = [(yield 1), (yield 2)]\n        yield a\n    it = g()\n    return next(it), it.send('a'), it.send('b')",
)
add(
    "async_",
    "import asyncio\ndef f():\n    async def g(x):\n        await asyncio.sleep(0)\n        return x + 1\n    async def h():\n        a = await g(1)\n"
    "        return [await g(a), await g(5) if a else 0]\n    return asyncio.run(h())",
)
add(
    "async_for",
    "import asyncio\ndef f(n):\n    async def g():\n        for i in range(n):\n            yield i\n    async def h():\n        r = []\n        async for i in g():\n"
    "            if i == 1:\n                continue\n            if i == 4:\n                break\n            r.append(i)\n        else:\n            r.append('else')\n"
    "        return r, [x async for x in g() if x], {x: 1 async for x in g()}\n    return asyncio.run(h())",
    (3,),
    (7,),
)
add(
    "async_with",
    "import asyncio\nclass C:\n    def __init__(self, log):\n        self.log = log\n    async def __aenter__(self):\n        self.log.append('in')\n        return 5\n"
    "    async def __aexit__(self, *a):\n        self.log.append(a[0])\n        return True\ndef f(k):\n    log = []\n    async def h():\n        async with C(log) as x, C(log):\n"
    "            if k:\n                raise KeyError(k)\n            return x\n        return 'after'\n    return asyncio.run(h()), log",
    (0,),
    (1,),
)
add(
    "with_",
    "def f(C, k):\n    log = []\n    with C(log, 'a') as x, C(log, 'b'):\n        if k == 1:\n            return 'r', log\n        if k == 2:\n            raise ValueError\n"
    "        log.append(x)\n    log.append('end')\n    return log",
    *[("C", k) for k in range(3)],
)
add(
    "with_loop",
    "def f(C, k):\n    log = []\n    for i in range(4):\n        with C(log, i):\n            if i == k:\n                break\n            if i == 1:\n                continue\n"
    "            log.append('body')\n    return log",
    *[("C", k) for k in range(5)],
)
add(
    "with_target",
    "def f(C, k):\n    log = []\n    d = {}\n    with C(log, 'a') as d['x']:\n        pass\n    with C(log, 'b') as (p, *q) if False else d['y']:\n        pass\n    return log, d".replace(
        " as (p, *q) if False else d['y']", " as d['y']"
    ),
    ("C", 0),
)
add(
    "with_value",
    "def f(C, k):\n    log = []\n    def g(x):\n        with C(log, 'a'):\n            return [x, k][x]\n    return g(0), g(1), log",
    ("C", 3),
)
add(
    "try_except",
    "def f(a, k):\n    try:\n        r = a[k]\n    except (KeyError, TypeError) as e:\n        r = type(e).__name__\n    except IndexError:\n        return 'index'\n"
    "    else:\n        r = ('ok', r)\n    return r",
    ([1], 0),
    ([1], 5),
    ({}, 1),
    (None, 1),
)
add("try_bare", "def f(a):\n    try:\n        return 1 / a\n    except:\n        return 'bad'", (1,), (0,))
add(
    "try_finally",
    "def f(a):\n    log = []\n    def g():\n        try:\n            log.append(1)\n            if a == 1:\n                return log\n            if a == 2:\n                raise KeyError\n"
    "        finally:\n            log.append('f')\n        return 'end'\n    try:\n        return g(), log\n    except KeyError:\n        return 'key', log",
    (0,),
    (1,),
    (2,),
)
add(
    "try_all",
    "def f(a):\n    log = []\n    for k in a:\n        try:\n            log.append(1 / k)\n        except ZeroDivisionError as e:\n            log.append('z')\n            continue\n"
    "        except TypeError:\n            break\n        else:\n            log.append('else')\n        finally:\n            log.append('fin')\n    return log",
    ([1, 0, 2],),
    ([1, "a", 2],),
)
add(
    "try_nested",
    "def f(a):\n    log = []\n    try:\n        try:\n            a[0] / a[1]\n        except IndexError:\n            log.append('i')\n            raise ValueError('v')\n"
    "        finally:\n            log.append('in')\n    except (ValueError, ZeroDivisionError) as e:\n        log.append(repr(e))\n    finally:\n        log.append('out')\n    return log",
    ([1],),
    ([1, 0],),
    ([1, 1],),
)
add(
    "try_return_value",
    "def f(a):\n    def g():\n        x = a\n        try:\n            return x\n        finally:\n            x = 9\n    def h():\n        try:\n            return 1\n        finally:\n            return 2\n"
    "    return g(), h()",
    (4,),
)
add(
    "try_while",
    "def f(a):\n    r = []\n    while True:\n        try:\n            x = a.pop()\n        except IndexError:\n            break\n        if x == 2:\n            continue\n        r.append(x)\n    return r",
    ([1, 2, 3],),
)
add(
    "try_finally_loop",
    "def f(n):\n    log = []\n    for i in range(n):\n        try:\n            if i == 1:\n                continue\n            if i == 3:\n                break\n            log.append(i)\n"
    "        finally:\n            if i:\n                log.append('f')\n    return log",
    (2,),
    (6,),
)
add(
    "except_name",
    "def f():\n    e = 1\n    try:\n        raise ValueError(2)\n    except ValueError as e:\n        pass\n    try:\n        return e\n    except UnboundLocalError:\n        return 'gone'",
)
add(
    "raise_from",
    "def f(k):\n    try:\n        try:\n            {}[1]\n        except KeyError as e:\n            if k:\n                raise ValueError('x') from e\n            raise\n    except Exception as e:\n"
    "        return repr(e), repr(e.__cause__), repr(e.__context__)",
    (0,),
    (1,),
)
add(
    "raise_none",
    "def f():\n    try:\n        try:\n            1 / 0\n        except ZeroDivisionError:\n            raise KeyError('k') from None\n    except KeyError as e:\n        return e.__suppress_context__",
)
add(
    "assert_",
    "def f(a, b):\n    assert a\n    assert a or b, f'no {b}'\n    assert not (a and b), (a, b)\n    return 1",
    (1, 0),
    (1, 1),
    (0, 0),
)
add("assert_in", "def f(a):\n    assert a in (1, 2), 'in'\n    assert a is not None\n    return a", (1,), (3,), (None,))
add(
    "delete",
    "def f(d):\n    x = [1, 2, 3]\n    del x[0], d['k']\n    y = 1\n    del y\n    try:\n        return x, d, y\n    except UnboundLocalError as e:\n        return 'unbound', x, d",
    ({"k": 1, "l": 2},),
)
add(
    "imports",
    "def f():\n    import os.path as p, sys\n    import os.path\n    from collections import OrderedDict as O, deque\n    import xml.dom.minidom as m\n    return p.sep, sys.maxsize > 1, os.sep, O, deque, m.__name__",
)
add("import_global", "def f():\n    global js\n    import json.decoder as js\n    return js.__name__")
add("star_import", "from math import *\ndef f():\n    return floor(2.5)")
add(
    "early_unbound",
    "def f():\n    if False:\n        x = 1\n    try:\n        return x\n    except NameError as e:\n        return type(e).__name__",
)
add(
    "long_elif",
    "def f(a):\n"
    + "".join(f"    {'el' if n else ''}if a == {n}:\n        return {n * n}\n" for n in range(30))
    + "    return -1",
    (0,),
    (17,),
    (99,),
)
add(
    "order",
    "def f():\n    log = []\n    def g(x):\n        log.append(x)\n        return x\n    d = {g(1): g(2), g(3): g(4)}\n    d[g(5)], d[g(6)] = g(7), g(8)\n    g(9) if g(0) else g(10)\n"
    "    [g(11), g(12)][g(0)] \n    return log",
)
add(
    "complex_conditions",
    "def f(a, b, c, d):\n    while (a or b) and not (c and d):\n        if a and not b:\n            a = 0\n        elif b and (c or not d):\n            b = 0\n        else:\n            c = d = 1\n"
    "            break\n    return a, b, c, d",
    *[(w, x, y, z) for w in (0, 1) for x in (0, 1) for y in (0, 1) for z in (0, 1)],
)
add(
    "match_values",
    "def f(x):\n    match x:\n        case 1 | 2:\n            return 'small'\n        case -1:\n            return 'minus'\n        case None:\n            return 'none'\n        case 'a':\n            r = 'a'\n"
    "        case True:\n            r = 'true'\n        case _:\n            r = 'other'\n    return r + '!'",
    (1,),
    (-1,),
    (None,),
    ("a",),
    (True,),
    (7,),
)
add(
    "match_sequences",
    "def f(x):\n    match x:\n        case []:\n            return 'empty'\n        case [a]:\n            return a\n        case [1, b, *rest] if b > 1:\n            return b, rest\n        case [a, *_, z]:\n            return a, z\n"
    "        case (p, q):\n            return 'never'\n    return 'no'",
    ([],),
    ([5],),
    ([1, 2, 3],),
    ([1, 0, 4],),
    ([2, 3],),
    (5,),
)
add(
    "match_mappings",
    "def f(x):\n    match x:\n        case {'k': 1, 'l': [a, b]}:\n            return a + b\n        case {'k': v, **rest}:\n            return v, rest\n        case {}:\n            return 'map'\n        case _:\n            return 'no'",
    ({"k": 1, "l": [2, 3]},),
    ({"k": 2, "z": 3},),
    ({},),
    (3,),
)
add(
    "match_classes",
    "class P:\n    __match_args__ = ('x', 'y')\n    def __init__(self, x, y):\n        self.x, self.y = x, y\ndef f(k):\n    match [P(1, 2), P(0, 5), 'str', 4.0, [P(3, 3)]][k]:\n        case P(0, y=z):\n            return z\n"
    "        case P(x, y) as p if x < y:\n            return x, y, p.x\n        case str(s) | [P(s)]:\n            return s\n        case int() | float():\n            return 'num'",
    *[(k,) for k in range(5)],
)
add(
    "match_capture",
    "def f(x):\n    match x, x:\n        case (0, _):\n            return 'zero'\n        case (n, m) if n > m - 1 and n < 5:\n            return n\n        case other:\n            return other",
    (0,),
    (3,),
    (8,),
)
add(
    "match_guard_first",
    "def f(x):\n    match x:\n        case n if n > 5:\n            return 'big', n\n        case 1:\n            return 'one'\n        case n:\n            return 'rest', n",
    (9,),
    (1,),
    (3,),
)
add(
    "except_star",
    "def f(k):\n    log = []\n    try:\n        if k:\n            raise ExceptionGroup('g', [ValueError(1), KeyError(2), OSError(3)][:k])\n    except* ValueError as e:\n        log.append(len(e.exceptions))\n"
    "    except* (KeyError, OSError):\n        log.append('k')\n    else:\n        log.append('else')\n    finally:\n        log.append('f')\n    return log",
    (0,),
    (1,),
    (3,),
    since=(3, 11),
)
add(
    "except_star_rest",
    "def f():\n    try:\n        try:\n            raise ExceptionGroup('g', [ValueError(1), KeyError(2)])\n        except* ValueError:\n            pass\n    except ExceptionGroup as e:\n        return e.exceptions[0].args",
    since=(3, 11),
)
add(
    "type_parameters",
    "def f():\n    def g[T, *Ts, **P](x: T) -> T:\n        return x\n    class A[T: int]:\n        def m[S: (int, str)](self, a: S) -> T:\n            return a\n    type B[K] = dict[K, int]\n"
    "    return g(3), [str(t) for t in g.__type_params__], A().m(4), [t.__name__ for t in A.__type_params__], B.__name__, str(B.__value__), A.__type_params__[0].__bound__",
    since=(3, 12),
)
