"""Methods of lists and tuples."""

from __future__ import annotations

import operator
from functools import partial, reduce

import torch

from ...errors import Unsupported
from ...values.constant import NONE, ConstantV
from ...values.containers import ListV, SequenceV
from ...values.instance import InstanceV
from ..proxies import compared, in_order, proxies, run
from ..registry import method

MOST_ITEMS = 1_000_000
LAST = ConstantV(-1)
ZERO = ConstantV(0)
ONE = ConstantV(1)


@method(list)
def append(m, self, value):
    self.grow(m, [value])
    return NONE


@method(list)
def extend(m, self, values):
    grow(m, self, values)
    return NONE


def grow(m, target, values):
    """``target += values``: what a generator gave before it raised is there. Itself it takes as it was before."""
    if isinstance(values, InstanceV) and values.payload is target:
        values = target
    if isinstance(values, SequenceV):
        target.grow(m, values.all(m))
        return
    iterator = m.iterate(values)
    for _ in range(MOST_ITEMS):
        item = iterator.next(m)
        if item is None:
            return
        target.grow(m, [m.forced(item)])
    raise Unsupported(f"an iteration of over {MOST_ITEMS:,} steps")


@method(list)
def insert(m, self, index, value):
    self.all(m)
    m.mutate(self)
    self.items.insert(index.as_index(m), value)
    return NONE


@method(list, name="pop")
def list_pop(m, self, index=LAST):
    if not self.items:
        m.throw_as([].pop)
    if self.real is not None:
        self.all(m)
    m.mutate(self)
    return m.real(self.items.pop, index.as_index(m))


@method(list, name="remove")
def list_remove(m, self, value):
    *before, sought = proxies(m, [*self.all(m), value])
    after = list(before)
    m.real(after.remove, sought)
    m.mutate(self)
    del self.items[next(n for n, (old, new) in enumerate(zip(before, [*after, None])) if old is not new)]
    return NONE


@method(list, name="clear")
def list_clear(m, self):
    m.mutate(self)
    self.items.clear()
    return NONE


@method(list, tuple)
def index(m, self, value, *bounds):
    *items, sought = compared(m, [*self.all(m), value])
    return run(m, self.default_class(items).index, sought, *(bound.as_index(m) for bound in bounds))


@method(list, tuple)
def count(m, self, value):
    *items, sought = compared(m, [*self.all(m), value])
    return run(m, items.count, sought)


@method(torch.Size)
def numel(m, self):
    return reduce(partial(m.binary, operator.mul), self.all(m), ONE)


@method(list)
def reverse(m, self):
    self.all(m)
    m.mutate(self)
    self.items.reverse()
    return NONE


@method(list)
def sort(m, self, **kwargs):
    m.mutate(self)
    self.items = in_order(m, self.all(m), kwargs)
    return NONE


@method(list, name="copy")
def list_copy(m, self):
    return ListV(list(self.all(m)), self.cls)


@method(list, name="__iadd__")
def list_iadd(m, left, right):
    return m.binary(operator.iadd, left, right)


@method(list, name="__init__")
def list_init(m, self, values=None):
    m.mutate(self)
    self.items.clear()
    if values is not None:
        grow(m, self, values)
    return NONE
