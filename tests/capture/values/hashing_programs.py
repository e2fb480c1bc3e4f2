"""Keys whose classes say what is equal."""

from __future__ import annotations

import dataclasses

from ..meanings.dataclasses_programs import Frozen
from ..tables import tables

WHOLE, BREAKING, whole, breaking = tables()


class HE:
    def __init__(self, k):
        self.k = k

    def __hash__(self):
        return hash(self.k)

    def __eq__(self, o):
        return isinstance(o, HE) and o.k == self.k

    def __repr__(self):
        return f"HE({self.k})"


@breaking
def user_hash_dict(x):
    d = {HE(1): x, HE(2): x + 1}
    d[HE(1)] = x * 3
    return d[HE(1)], len(d), HE(2) in d, HE(3) in d, len({HE(1), HE(1), HE(2)})


HED = {HE(1): 5}


@breaking
def user_hash_global(x):
    return x + HED[HE(1)]


@breaking
def user_hash_frozen_dataclass(x):
    d = {Frozen(1, 2): x}
    return d[Frozen(1, 2)] + 1, Frozen(1, 2) == Frozen(1, 2), hash(Frozen(1, 2)) == hash(Frozen(1, 2))


class Key:
    def __init__(self, a):
        self.a = a

    def __hash__(self):
        return hash(self.a)

    def __eq__(self, other):
        return isinstance(other, Key) and self.a == other.a


@dataclasses.dataclass(frozen=True)
class FrozenKey:
    a: int
    b: str


KEYED = {Key(1): 2.0, Key(2): 3.0}


@whole
def own_hash_in_new_dicts(x):
    d = {Key(1): x, Key(2): x + 1}
    d[Key(1)] = x * 2
    del d[Key(2)]
    return d[Key(1)], Key(2) in d, len(d), d.get(Key(9)), (1, Key(1)) in {(1, Key(1)): 3}, [k.a for k in d]


@whole
def own_hash_in_sets(x):
    return x + len({Key(3), Key(3), Key(4)}), Key(3) in {Key(3)}, len({FrozenKey(1, "a"), FrozenKey(1, "a")})


@whole
def own_hash_in_dicts_from_outside(x):
    return x * KEYED[Key(2)], KEYED.get(Key(5), 7), Key(1) in KEYED, len(KEYED)


@whole
def own_hash_returned(x):
    d = {FrozenKey(1, "a"): x}
    return [(k.a, k.b, v) for k, v in d.items()], d[FrozenKey(1, "a")]
