"""Dictionaries: ordered, defaulting, counting, chained, the user's own."""

# ruff: noqa: RUF015, SIM118
from __future__ import annotations

import collections
import collections.abc
import copy

import torchglass as tg

from ..shared import THING, says
from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


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
def counter(x):
    c = collections.Counter("abracadabra")
    c.update("abc")
    c["z"] += 2
    d = collections.Counter(a=1)
    return c.most_common(2), c["q"], sorted((c + d).items()), sum(c.values()), x + c["a"], c


@whole
def counter_subtract(x):
    c = collections.Counter([1, 1, 2])
    c.subtract([1])
    return list(c.elements()), dict(c), x * 1, c - collections.Counter([2]), c & c, c | c


@whole
def chainmap(x):
    c = collections.ChainMap({"a": 1}, {"b": x})
    return c["a"], c["b"] + 1, len(c)


@whole
def userdict(x):
    class D(collections.UserDict):
        pass

    d = D(a=1)
    d["b"] = x
    return sorted(d), d["b"] + 1


class UD(collections.UserDict):
    pass


@whole
def userdict2(x):
    d = UD(a=1)
    d["b"] = x
    return sorted(d), d["b"] + 1


@whole
def ordered_dict(x):
    d = collections.OrderedDict(a=1, b=x)
    d.move_to_end("a")
    d["c"] = 3
    k, v = d.popitem(last=False)
    return list(d), k, v + 1, d, list(reversed(d))


@whole
def default_dict(x):
    d = collections.defaultdict(list)
    d["a"].append(x)
    d["b"].append(1)
    e = collections.defaultdict(lambda: 5)
    e["q"] += 1
    return d, dict(e), "zz" in d, d.get("zz"), collections.defaultdict(int, {"a": 1})["b"]


@whole
def dict_methods(x):
    d = {"a": 1}
    d.setdefault("b", []).append(x)
    d.update(c=3)
    d |= {"e": 4}
    v = d.pop("a")
    w = d.pop("zz", 9)
    return (
        d,
        v,
        w,
        d.keys() & {"b"},
        list(d.items())[0][0],
        {k: v for k, v in d.items() if k != "b"},
        dict(d) == d,
        d.keys() == {"b", "c", "e"},
        "b" in d.keys(),
        list(reversed(d)),
        d.get("q"),
        dict.fromkeys("ab", 0),
    )


class MyDict(dict):
    def __getattr__(self, n):
        return self[n]

    __setattr__ = dict.__setitem__


@whole
def attr_dict(x):
    d = MyDict(a=1)
    d.b = x
    return d.a, d.b + 1, list(d), d


GD = MyDict(w=3, l=[1])


@whole
def attr_dict_global(x):
    return x + GD.w + GD["l"][0]


@whole
def config_get(x):
    return x * getattr(THING, "v", 1) + vars(THING).get("q", 0)


class Ordered(collections.OrderedDict):
    stored = 0

    def __setitem__(self, key, value):
        self.stored += 1
        super().__setitem__(key, value)


class Defaulting(collections.defaultdict):
    pass


@whole
def derived_from_ordered(x):
    """They store by their own ``__setitem__``, and copies and unions are of their class."""
    made = Ordered([("a", 1)], b=2)
    made.update({"c": 3})
    made.setdefault("d"), made.setdefault("d")
    made |= {"e": 5}
    others = [made | {"z": 1}, {"z": 1} | made, made.copy(), copy.copy(made), copy.deepcopy(made)]
    others.append(Ordered.fromkeys("ab", value=0))
    plain = [{"q": 1} | collections.OrderedDict(a=1), collections.OrderedDict.fromkeys("ab", value=0)]
    return x + 1, made.stored, [(type(o).__name__, o.stored, list(o.items())) for o in others], plain


@whole
def derived_from_defaulting(x):
    made = Defaulting(list, a=[1])
    made["b"].append(2)
    made.noted = 3
    copied = copy.deepcopy(made)
    copied["c"].append(4)
    others = [copied, made.copy(), copy.copy(made), made | {"z": 1}]
    rows = [(type(o).__name__, o.default_factory, dict(o), hasattr(o, "noted")) for o in others]
    plain = {"q": 1} | collections.defaultdict(int)
    return x + 1, rows, says(Defaulting, 3), says(lambda: Defaulting()["a"]), plain["none"], Defaulting(None, a=1)["a"]


@breaking
def derived_from_defaulting_across_a_break(x):
    made = Defaulting(list)
    made["a"].append(x + 1)
    tg.graph_break()
    made["b"].append(2)
    return dict(made), made.default_factory, type(made).__name__


@whole
def order_of_ordered_dictionaries(x):
    one, other = collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1)
    return x + 1, one == other, one != other, one == dict(other), dict(one) == other, Ordered(a=1) == Ordered(a=1)


class Key:
    def __init__(self, a, b):
        self.a, self.b = a, b

    def __hash__(self):
        return hash((self.a, self.b))

    def __eq__(self, other):
        return isinstance(other, Key) and (self.a, self.b) == (other.a, other.b)


@program
def keys_with_their_own_hash():
    table = {Key(1, 2): 10, Key(3, 4): 20}

    def f(x, a, b):
        fresh = {Key(0, 0): 1}
        fresh[Key(0, 0)] = 2
        fresh[Key(a, b)] = 3
        return x * table.get(Key(a, b), 1), len(fresh), Key(1, 2) in table, len({Key(1, 1), Key(1, 1), Key(a, a)})

    return f, [(rand(2), 1, 2), (rand(2), 3, 4), (rand(2), 5, 6)]
