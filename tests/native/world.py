"""A world of values that guards can reach, for the fuzz test: grown, guarded, changed and changed back at random."""

from __future__ import annotations

import collections
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchglass.records.guards import Guard, TensorMeta
from torchglass.records.sources import (
    Attr,
    Cell,
    DictKey,
    Global,
    InstanceDict,
    Item,
    Local,
    Source,
    TypeOf,
)
from torchglass.runtime.guards import Scope, global_state, reach


class Plain:
    """An object with a dict."""

    shared = 7


class Other(Plain):
    """A class that a Plain may turn into."""


class Slotted:
    """An object without a dict."""

    __slots__ = ("a", "b")


class Default(dict):
    """A dict that makes up missing items."""

    def __missing__(self, key: Any) -> Any:
        self[key] = value = 0
        return value


CONSTANTS = [
    0,
    1,
    True,
    False,
    0.0,
    -0.0,
    1.0,
    math.nan,
    float("nan"),
    2**70,
    None,
    "s",
    "t",
    b"s",
    1j,
    complex(0.0, -0.0),
    (1, 0.0),
    (True, -0.0),
    (1, (math.nan,)),
    frozenset({1, 2}),
    frozenset({True, 2}),
    slice(1, 2),
    range(3),
    ...,
    torch.float32,
    torch.bfloat16,
    torch.device("cpu"),
    torch.Size([1, 2]),
    (1, 2),
    int,
    Plain,
]
NAMES = ["a", "b", "c"]


class World:
    """A function f(a, b, *rest, **more) with globals and a cell, and values for its parameters."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.globals: dict[str, Any] = {name: self.grow(3) for name in NAMES}
        exec("def make(cell):\n    def f(a, b, *rest, **more): return cell\n    return f", self.globals)
        self.function = self.globals.pop("make")(self.grow(2))
        self.globals["steps"] = 0
        self.arguments: list[Any] = [self.grow(3), self.grow(1), (self.grow(1),), {"k": self.grow(1)}]

    @property
    def scope(self) -> Scope:
        names = ("a", "b", "rest", "more")
        cells = {"cell": self.function.__closure__[0]}
        return Scope(dict(zip(names, self.arguments)), self.function.__globals__, cells)

    # ---------------------------------------------------------------- growing

    def grow(self, depth: int) -> Any:
        makers = [self.constant, self.tensor]
        if depth:
            makers += [self.list, self.tuple, self.dict, self.ordered, self.default, self.plain, self.plain]
            makers += [self.slotted, self.module, self.module]
        return self.random.choice(makers)(depth - 1)

    def constant(self, depth: int = 0) -> Any:
        value = self.random.choice(CONSTANTS)
        return float(value) if type(value) is float and self.random.random() < 0.5 else value

    def tensor(self, depth: int = 0) -> torch.Tensor:
        shape = self.random.choice([(), (2,), (1, 3), (3, 2), (0, 2)])
        made = torch.zeros(shape, dtype=self.random.choice([torch.float32, torch.float64, torch.complex64]))
        kind = self.random.randrange(6)
        if kind == 0:
            return torch.nn.Parameter(made, requires_grad=self.random.random() < 0.5)
        if kind == 1:
            return made.T if made.dim() == 2 else made.requires_grad_()
        return made.conj() if kind == 2 else made

    def list(self, depth: int) -> list[Any]:
        return [self.grow(depth) for _ in range(self.random.randrange(4))]

    def tuple(self, depth: int) -> tuple[Any, ...]:
        return tuple(self.list(depth))

    def dict(self, depth: int) -> dict[Any, Any]:
        keys = self.random.sample([*NAMES, 1, (1, 2)], self.random.randrange(4))
        return {key: self.grow(depth) for key in keys}

    def ordered(self, depth: int) -> dict[Any, Any]:
        return collections.OrderedDict(self.dict(depth))

    def default(self, depth: int) -> dict[Any, Any]:
        return Default(self.dict(depth))

    def plain(self, depth: int) -> Plain:
        made = Plain()
        for name in self.random.sample(NAMES, self.random.randrange(4)):
            setattr(made, name, self.grow(depth))
        return made

    def slotted(self, depth: int) -> Slotted:
        made = Slotted()
        made.a = self.grow(depth)
        return made

    def module(self, depth: int) -> torch.nn.Module:
        made = torch.nn.Module()
        for name in NAMES:
            kind = self.random.randrange(4)
            if kind == 0:
                made.register_parameter(name, torch.nn.Parameter(torch.zeros(2)))
            elif kind == 1:
                made.register_buffer(name, torch.zeros(3))
            elif kind == 2 and depth > 0:
                made.add_module(name, self.module(depth - 1))
            else:
                setattr(made, name, self.constant())
        return made

    # ---------------------------------------------------------------- sources

    def sources(self) -> Iterator[Source]:
        """Every source worth guarding, with some that lead nowhere."""
        roots = [Local("a"), Local("b"), Local("rest"), Local("more"), Cell("cell")]
        roots += [Global(name) for name in NAMES if name in self.globals]
        for root in roots:
            yield from self.below(root, 5)

    def below(self, source: Source, depth: int) -> Iterator[Source]:
        yield source
        value = reach(source, self.scope)
        if depth and not isinstance(value, type):
            for child in self.children(source, value):
                try:
                    reach(child, self.scope)
                except Exception:
                    continue
                yield from self.below(child, depth - 1)

    def children(self, source: Source, value: Any) -> Iterator[Source]:
        if self.random.random() < 0.3:
            yield TypeOf(source)
        if isinstance(value, dict):
            for i, key in enumerate(list(value)):
                yield Item(source, key)
                if self.random.random() < 0.3:
                    yield DictKey(source, i)
        elif type(value) in (list, tuple):
            for i in range(len(value)):
                yield Item(source, i if self.random.random() < 0.8 else i - len(value))
        elif isinstance(value, (Plain, torch.nn.Module)):
            yield InstanceDict(source)
            if self.random.random() < 0.3:
                yield from (Attr(source, name) for name in [*NAMES, "shared"])
        elif isinstance(value, Slotted):
            yield Attr(source, "a")

    # ---------------------------------------------------------------- guards

    def guards(self) -> tuple[list[Guard], list[Source]]:
        sources = list(self.sources())
        guards = [guard for source in sources for guard in self.guards_on(source)]
        tensors = [s for s in sources if isinstance(reach(s, self.scope), torch.Tensor)]
        if tensors and self.random.random() < 0.5:
            unique = {id(reach(s, self.scope)): s for s in tensors}
            guards.append(Guard(None, "distinct", tuple(unique.values())))
        if len(sources) > 1 and self.random.random() < 0.5:
            one = self.random.choice(sources)
            guards.append(Guard(one, "same", one))
        guards.append(Guard(None, "global_state", global_state()))
        self.random.shuffle(guards)
        return guards, [s for s in sources if self.random.random() < 0.3]

    def guards_on(self, source: Source) -> Iterator[Guard]:
        value = reach(source, self.scope)
        if self.random.random() < 0.3:
            yield Guard(source, "type", type(value))
        if isinstance(value, torch.Tensor):
            yield Guard(source, "tensor", TensorMeta.of(value))
        elif isinstance(value, dict):
            check = self.random.choice(["length", "dict_keys", "dict_has", "dict_lacks", "type"])
            expected = {"length": len(value), "dict_keys": list(value), "type": type(value)}
            if check in expected:
                yield Guard(source, check, expected[check])
            elif value or check == "dict_lacks":
                yield Guard(source, check, self.random.choice(list(value)) if check == "dict_has" else "zz")
        elif type(value) in (list, tuple):
            yield Guard(source, "length", len(value))
        elif isinstance(value, (Plain, Slotted, torch.nn.Module)):
            check = self.random.choice(["type", "identity", "has_attr", "lacks_attr"])
            expected = {"type": type(value), "identity": value, "lacks_attr": "zz"}
            name = expected.get(check, "__class__")
            yield Guard(source, check, name)
        else:
            yield Guard(source, "constant", value)

    # ---------------------------------------------------------------- changes

    def change(self) -> Callable[[], None]:
        """Changes something; the result changes it back (to the same objects)."""
        self.globals["steps"] += 1
        if self.random.random() < 0.3:
            return lambda: None
        if self.random.random() < 0.2:
            return self.change_argument()
        source = self.random.choice(list(self.sources()))
        value = reach(source, self.scope)
        if isinstance(value, torch.Tensor):
            return self.change_tensor(value)
        if isinstance(value, dict):
            return self.change_dict(value)
        if isinstance(value, list):
            return self.change_list(value)
        if isinstance(value, Slotted):
            return self.change_attribute(value, "a")
        if isinstance(value, (Plain, torch.nn.Module)):
            return self.change_object(value)
        return self.change_argument()

    def new(self, old: Any) -> Any:
        """A value in the place of another: equal, of the same kind, or of any."""
        kind = self.random.randrange(4)
        if kind == 0 and type(old) in (list, dict):
            return type(old)(old)
        if kind == 1 and isinstance(old, torch.Tensor):
            return old.detach().clone()
        if kind == 1 and type(old) is float:
            return float(repr(old))
        return old if kind == 2 else self.grow(1)

    def change_argument(self) -> Callable[[], None]:
        place = self.random.randrange(5)
        if place == 4:
            cell = self.function.__closure__[0]
            old = cell.cell_contents
            cell.cell_contents = self.new(old)
            return lambda: setattr(cell, "cell_contents", old)
        if place == 3:
            return self.change_dict(self.globals, self.random.choice(NAMES))
        old = self.arguments[place]
        self.arguments[place] = (self.new(old[0] if old else None),) if place == 2 else self.new(old)
        return lambda: self.arguments.__setitem__(place, old)

    def change_dict(self, target: dict[Any, Any], key: Any = None) -> Callable[[], None]:
        items = list(target.items())
        if key is None:
            key = self.random.choice([*target, "zz"])
        if key in target and self.random.random() < 0.3:
            del target[key]
        else:
            target[key] = self.new(target.get(key, 1) if type(target) is not Default else 1)

        def back() -> None:
            target.clear()
            target.update(items)

        return back

    def change_list(self, target: list[Any]) -> Callable[[], None]:
        items = list(target)
        kind = self.random.randrange(4)
        if kind == 0 or not target:
            target.append(self.constant())
        elif kind == 1:
            target.pop()
        elif kind == 2:
            target.reverse()
        else:
            place = self.random.randrange(len(target))
            target[place] = self.new(target[place])
        return lambda: target.__setitem__(slice(None), items)

    def change_tensor(self, target: torch.Tensor) -> Callable[[], None]:
        data, requires_grad = target.data, target.requires_grad
        kind = self.random.randrange(5)
        if kind == 3:
            with torch.no_grad():
                target.unsqueeze_(0)
        elif kind == 4 and target.dtype is torch.float32 and not (target.is_leaf and requires_grad):
            target.mul_(torch.ones((), requires_grad=True))
        elif kind == 0 and target.is_leaf and target.dtype is not torch.int64:
            target.requires_grad_(not requires_grad)
        elif kind == 1 and target.is_leaf:
            target.data = torch.zeros(self.random.choice([(2,), (5,), (3, 2)]), dtype=target.dtype)
        else:
            target.data = target.data.clone()

        def back() -> None:
            target.data = data
            if target.is_leaf:
                target.requires_grad_(requires_grad)

        return back

    def change_attribute(self, target: Any, name: str) -> Callable[[], None]:
        old = getattr(target, name)
        setattr(target, name, self.new(old))
        return lambda: setattr(target, name, old)

    def change_object(self, target: Any) -> Callable[[], None]:
        kind = self.random.randrange(3)
        if kind == 0 and type(target) in (Plain, Other):
            old_class = type(target)
            target.__class__ = Other if old_class is Plain else Plain
            return lambda: setattr(target, "__class__", old_class)
        if kind == 1:
            old_dict = target.__dict__
            target.__dict__ = dict(old_dict)
            return lambda: setattr(target, "__dict__", old_dict)
        return self.change_dict(target.__dict__)
