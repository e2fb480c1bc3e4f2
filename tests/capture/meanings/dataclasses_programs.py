"""Dataclasses: made inside and outside, their options, copies and comparisons."""

# ruff: noqa: E741
from __future__ import annotations

import dataclasses
from typing import Any

import torch.nn.functional as F

from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


@breaking
def dataclass_inside(x):
    @dataclasses.dataclass
    class Q:
        a: int
        b: float = 2.0

    q = Q(1)
    return x + q.a + q.b


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: int = 3


@dataclasses.dataclass(kw_only=True)
class DC:
    a: int
    l: list = dataclasses.field(default_factory=list)
    t: Any = None
    n: int = dataclasses.field(init=False, default=9)

    def __post_init__(self):
        self.l.append(self.a)


@whole
def dataclass_kw(x):
    d = DC(a=1, t=x)
    e = dataclasses.replace(d, a=5)
    return (
        d,
        e,
        dataclasses.asdict(DC(a=3)),
        [f.name for f in dataclasses.fields(d)],
        d == d,
        dataclasses.is_dataclass(d),
    )


@whole
def dataclass_asdict_tensor(x):
    return dataclasses.asdict(DC(a=3, t=[x])), dataclasses.astuple(DC(a=2))


@whole
def dataclass_frozen(x):
    f = Frozen(1)
    try:
        f.a = 2
    except dataclasses.FrozenInstanceError as e:
        s = str(e)
    return f, s, x + f.b, repr(f), dataclasses.replace(f, b=5)


@dataclasses.dataclass(order=True)
class Ord:
    k: int
    v: Any = dataclasses.field(compare=False, default=None)


@whole
def dataclass_order(x):
    return sorted([Ord(3), Ord(1), Ord(2)]), Ord(1) < Ord(2), max(Ord(1), Ord(5)), x + 1


@whole
def dataclass_made_inside(x):
    @dataclasses.dataclass
    class Config:
        t: object
        n: int = 3
        names: list = dataclasses.field(default_factory=list)

        def run(self):
            return self.t * self.n

    c = Config(x, n=4)
    c.names.append("a")
    d = dataclasses.replace(c, n=5)
    return c.run() + d.run(), c.names, [f.name for f in dataclasses.fields(c)], d.names is c.names


@whole
def dataclass_with_options(x):
    @dataclasses.dataclass(frozen=True, order=True)
    class K:
        a: int
        b: int = 2

    k = K(1)
    try:
        k.a = 3
    except dataclasses.FrozenInstanceError:
        x = x + 1
    return x * k.b, K(1) < K(2), K(1) == K(1), hash(K(1)) == hash(K(1))


@whole
def dataclass_with_tensor_default(x):
    y = x * 2

    @dataclasses.dataclass(eq=False)
    class D:
        a: object = y

    return D().a + 1


@whole
def dataclass_inherits(x):
    @dataclasses.dataclass
    class A:
        a: int = 1

        def __post_init__(self):
            self.c = self.a + 1

    @dataclasses.dataclass
    class B(A):
        b: int = 2

    o = B(b=5)
    return x * (o.a + o.b + o.c), dataclasses.asdict(o)


@whole
def dataclass_with_slots(x):
    @dataclasses.dataclass(slots=True)
    class A:
        a: int = 1
        b: object = None

    return A(2, x).b * A(3).a


@dataclasses.dataclass
class ModelConfig:
    hidden: int = 4
    dropout: float = 0.0
    acts: dict = dataclasses.field(default_factory=lambda: {"relu": F.relu, "gelu": F.gelu})

    @property
    def inner(self):
        return self.hidden * 2

    @classmethod
    def from_dict(cls, d):
        known = {f.name for f in dataclasses.fields(cls)}
        return cls(**{k: v for k, v in d.items() if k in known})


@program
def dataclass_config():
    w = rand(4, 8)

    def f(x, d):
        cfg = ModelConfig.from_dict(d)
        y = cfg.acts[d.get("act", "relu")](x @ w[:, : cfg.inner])
        return F.dropout(y, cfg.dropout, training=False), dataclasses.asdict(dataclasses.replace(cfg, acts={}))

    return f, [(rand(2, 4), {"hidden": 4}), (rand(2, 4), {"hidden": 2, "act": "gelu", "zzz": 1})]
