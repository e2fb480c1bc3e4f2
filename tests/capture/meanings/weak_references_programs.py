"""Weak references, proxies and dictionaries."""

from __future__ import annotations

import weakref

from ..shared import THING, Thing
from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()
THING_REF = weakref.ref(THING)
THING_PROXY = weakref.proxy(THING)


@whole
def weak_ref_global(x):
    return x + THING_REF().v


@whole
def weak_ref_made(x):
    t = Thing()
    r = weakref.ref(t)
    return x + r().v, r() is t


@breaking
def weak_proxy(x):
    return x + THING_PROXY.v


WKD = weakref.WeakKeyDictionary()
WKD[THING] = 5
WVD = weakref.WeakValueDictionary()
WVD["a"] = THING


@whole
def weak_key_dict(x):
    return x + WKD[THING], THING in WKD


@whole
def weak_value_dict(x):
    return x + WVD["a"].v


@program
def weak_references():
    class Node:
        def __init__(self, v, parent=None):
            self.v = v
            self.parent = weakref.ref(parent) if parent is not None else None

    def f(x):
        root = Node(x)
        child = Node(x * 2, root)
        return child.parent().v + child.v

    return f, [(rand(2),)] * 2
