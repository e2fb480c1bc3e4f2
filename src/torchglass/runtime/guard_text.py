"""guards.py: guards and fetched sources in, the text of a Python module out.

    def check(x, self):
        if not (type(self) is Net): return None  # the method's own object  (model.py:12)
        fc = self.__dict__['_modules']['fc']
        ...
        return (weight, bias)

One guard per line, with why it is there and the user's line; a source that is used twice has a local of its own.
The native table checks the same guards (guard_build.py); this text is for reading, and runs: what an expression can
name stands there under that name, other objects are ``E[0]``, ``E[1]``, ... Nothing in it changes from run to run.
"""

from __future__ import annotations

import builtins
import keyword
import os
import re
import sys
import types
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..records.guards import CHECKS, Guard, TensorMeta
from ..records.literals import is_name, literal, one_line
from ..records.origin import UNKNOWN
from ..records.sources import (
    Attr,
    Cell,
    Computed,
    Derived,
    DictKey,
    Fixed,
    Global,
    InstanceDict,
    Item,
    Local,
    Module,
    Source,
)
from .global_state import GlobalState

_HEAD = '''"""What one entry relies on. `check` returns the values that the entry reads, or None if a guard fails.

G holds the globals of the function, C its closure cells, E the objects that no expression names. The native guard
table checks the same; breakpoints here are hit when this file or full_code.py is run.
"""

import sys
{imports}
import torch

from torchglass.records.guards import TensorMeta
from torchglass.runtime.guards import GlobalState, class_has, class_kind, class_lacks, global_state, names_are
from torchglass.runtime.guards import same_constant, same_keys, tensor_matches
from torchglass.runtime.debug_objects import names_of

G, C, E = names_of(__file__)
{objects}
'''

_RESERVED = {"G", "C", "E", "sys", "torch", "check", "names_of", "TensorMeta", "GlobalState"} | {
    "tensor_matches", "same_constant", "same_keys", "class_has", "class_kind", "class_lacks", "global_state",
    "names_are",
}  # fmt: skip
_LITERALS = (int, str, bytes, bool, type(None), types.EllipsisType)


@dataclass(frozen=True)
class GuardText:
    """The text of guards.py, and the objects that it calls ``E[0]``, ``E[1]``, ..."""

    text: str
    expected: tuple[Any, ...]


def write(
    guards: Iterable[Guard],
    fetch: Iterable[Source],
    parameters: Sequence[str] = (),
    namespace: Mapping[str, Any] | None = None,
) -> GuardText:
    """guards.py. ``parameters`` are the compiled function's; without them, the ones in use. ``namespace`` are the
    function's globals.
    """
    guards, fetch = list(guards), list(fetch)
    text = _Text(_uses(guards, fetch), parameters, Names(namespace or {}))
    for guard in guards:
        text.guard(guard)
    text.lines.append(f"    return ({''.join(text.expression(source) + ', ' for source in fetch).rstrip()})")
    names = text.names
    imports = "".join(f"import {name}\n" for name in sorted(names.modules - {"sys", "torch"}))
    objects = "".join(f"# E[{n}]: {_described(thing)}\n" for n, thing in enumerate(names.expected))
    head = _HEAD.replace("{imports}", imports).replace("{objects}", objects)
    lines = [head, f"def check({', '.join(text.parameters())}):", *text.lines, ""]
    return GuardText("\n".join(lines), tuple(names.expected))


def _uses(guards: list[Guard], fetch: list[Source]) -> Counter[Source]:
    """How often each source is mentioned, by guards, by fetched values and by sources that start with it."""
    uses: Counter[Source] = Counter()
    pending = list(fetch)
    for guard in guards:
        pending += [guard.source] if guard.source is not None else []
        pending += [guard.expected] if guard.check == "same" else []
        pending += list(guard.expected) if guard.check == "distinct" else []
    while pending:
        source = pending.pop()
        if source not in uses and source.base is not None:
            pending.append(source.base)
        if isinstance(source, Computed):
            pending += source.leaves()
        uses[source] += 1
    return uses


class _Text:
    """The body of ``check`` while it is written."""

    def __init__(self, uses: Counter[Source], parameters: Sequence[str], names: Names) -> None:
        self.uses = uses
        self.names = names
        self.lines: list[str] = []
        self.known = list(parameters)
        # a parameter that has the name of something this text needs gets another one
        self.locals: dict[Source, str] = {Local(name): f"{name}_" for name in _RESERVED}
        self.used: Counter[str] = Counter()  # how many names were made of one word
        taken = [*map(Local, parameters), *(source for source in uses if isinstance(source, Local))]
        self.taken = _RESERVED | {parameter.render() for parameter in taken}

    def parameters(self) -> list[str]:
        used = [source.name for source in self.uses if isinstance(source, Local)]
        return [self.expression(Local(name)) for name in dict.fromkeys([*self.known, *used])]

    def guard(self, guard: Guard) -> None:
        """Adds the line of one guard, after the locals that it needs."""
        condition = self.condition(guard)
        place = "" if guard.origin == UNKNOWN else f"{os.path.basename(guard.origin.file)}:{guard.origin.line}"
        note = one_line("  ".join(part for part in (guard.why, place and f"({place})") if part))
        self.lines.append(f"    if not ({condition}): return None" + (f"  # {note}" if note else ""))

    def condition(self, guard: Guard) -> str:
        x = self.expression(guard.source) if guard.source is not None else ""
        if guard.is_relation():
            return guard.relation(x)
        if isinstance(guard.source, Computed):
            x = f"({x})"  # `a < b is True` would be another question
        if guard.check == "constant" and type(guard.expected) in _LITERALS:
            return _literal_condition(x, guard.expected)
        if guard.check == "same":
            e = self.expression(guard.expected)
        elif guard.check == "distinct":
            e = "(" + "".join(self.expression(source) + ", " for source in guard.expected).rstrip() + ")"
        else:
            e = self.names.text(guard.expected)
        return CHECKS[guard.check].template.format(x=x, e=e)

    def expression(self, source: Source) -> str:
        """The source's expression; one that is used again becomes a local first."""
        if source in self.locals:
            return self.locals[source]
        if isinstance(source, Computed):
            self.names.modules |= {source.text.partition(".")[0]} & {"math", "operator"}
            return source.filled([self.expression(part) for part in source.parts])
        if isinstance(source, Item):
            text = f"{self.expression(source.of)}[{self.names.text(source.key)}]"
        elif isinstance(source, Derived):
            text = source.after(self.expression(source.of))
        else:
            text = self.names.text(source.object) if isinstance(source, Fixed) else source.render()
        if self.uses[source] < 2 or isinstance(source, Local):
            return text
        name = self.locals[source] = self.name(source)
        self.lines.append(f"    {name} = {text}")
        return name

    def name(self, source: Source) -> str:
        """A short name that nothing else has, after the last part of the source."""
        base = re.sub(r"(?a)\W", "_", _stem(source)).strip("_") or "value"
        if base[0].isdigit() or keyword.iskeyword(base):
            base = f"_{base}"
        while True:
            self.used[base] += 1
            name = base if self.used[base] == 1 else f"{base}_{self.used[base]}"
            if name not in self.taken:
                self.taken.add(name)
                return name


def _stem(source: Source) -> str:
    if isinstance(source, (Attr, Global, Cell, Local)):
        return source.name
    if isinstance(source, Fixed):
        return source.render().rpartition(".")[2]
    if isinstance(source, Module):
        return source.name.rpartition(".")[2]
    if isinstance(source, Item):
        key = source.key
        return key if isinstance(key, str) else f"{_stem(source.of)}_{key}" if isinstance(key, int) else "item"
    if isinstance(source, InstanceDict):
        return f"{_stem(source.of)}_dict"
    if isinstance(source, DictKey):
        return f"{_stem(source.of)}_key"
    return f"{_stem(source.of)}_type" if isinstance(source, Derived) else "value"


def _literal_condition(x: str, value: Any) -> str:
    if value is None or value is True or value is False or value is ...:
        return f"{x} is {value!r}" if value is not ... else f"{x} is ..."
    return f"type({x}) is {type(value).__name__} and {x} == {value!r}"


class Names:
    """Expected values as Python expressions. Collects the modules to import and the objects that have no name."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self.namespace = namespace
        self.modules: set[str] = set()
        self.expected: list[Any] = []

    def text(self, value: Any) -> str:
        """Literals as such, objects by name where a name leads to them, else ``E[n]``."""
        if isinstance(value, TensorMeta):
            return self._meta(value)
        if isinstance(value, GlobalState):
            # Whether gradients are recorded is said always, the rest where it is not as usual.
            pairs = zip(value._asdict().items(), GlobalState())
            named = [pair for pair, usual in pairs if pair[0] == "grad_mode" or pair[1] != usual]
            return f"GlobalState({', '.join(f'{name}={self.text(item)}' for name, item in named)})"
        if value is self.namespace:
            return "G"
        if type(value) in (tuple, list):
            inner = "".join(f"{self.text(item)}, " for item in value).rstrip()
            return f"({inner})" if type(value) is tuple else f"[{inner}]"
        if (plain := literal(value)) is not None:
            return plain
        if isinstance(value, torch.Size):
            return repr(value)
        return self._name(value) or self._object(value)

    def _name(self, value: Any) -> str | None:
        if isinstance(value, types.ModuleType):
            known = sys.modules.get(value.__name__) is value
            return f"sys.modules[{value.__name__!r}]" if known and value.__name__ != "__main__" else None
        module, qualified = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        if not isinstance(qualified, str) or not isinstance(module, str):
            return None
        parts = qualified.split(".")
        if module == "builtins":
            return qualified if getattr(builtins, qualified, None) is value else None
        if self.namespace.get("__name__") == module and self.namespace.get(parts[0]) is value:
            return f"G[{parts[0]!r}]"
        if module == "__main__" or not all(map(is_name, [*module.split("."), *parts])):
            return None
        path = module.split(".")
        if _follow(sys.modules.get(path[0]), [*path[1:], *parts]) is not value:
            return None
        if len(parts) > 1 and hasattr(type(value), "__get__") and type(value) not in READ_AS_THEMSELVES:
            return None
        self.modules.add(module)
        return f"{module}.{qualified}"

    def _object(self, value: Any) -> str:
        for n, known in enumerate(self.expected):
            if known is value:
                return f"E[{n}]"
        self.expected.append(value)
        return f"E[{len(self.expected) - 1}]"

    def _meta(self, meta: TensorMeta) -> str:
        parts = [
            self.text(meta.type),
            str(meta.dtype),
            f"torch.device({str(meta.device)!r})",
            str(tuple(meta.shape)),
            f"strides={tuple(meta.strides)}",
            f"requires_grad={meta.requires_grad}",
        ]
        return f"TensorMeta({', '.join(parts + [f'flags={meta.flags}'] if meta.flags else parts)})"


READ_AS_THEMSELVES = (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, property)
"""Descriptors that are what a read of the class gives."""


def _follow(thing: Any, parts: Sequence[str]) -> Any:
    """``thing.a.b`` without running code of the user's: what modules and classes have in their dictionaries."""
    for part in parts:
        try:
            thing = vars(thing).get(part)
        except TypeError:
            return None
    return thing


def _described(value: Any) -> str:
    """A word on an object, without running its ``__repr__`` and without an address."""
    named = isinstance(value, type) or type(value) is types.FunctionType
    name = getattr(value, "__qualname__", None) if named else None
    kind = f"a {type(value).__module__}.{type(value).__qualname__}".replace("a builtins.", "a ")
    return one_line(name or kind)
