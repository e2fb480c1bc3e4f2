"""guards.py: guards and fetched sources in, the text of a Python module out.

    def check(x, self):
        if not (type(self) is Net): return None  # the method's own object  (model.py:12)
        fc = self.__dict__['_modules']['fc']
        ...
        return (weight, bias)

One guard per line, with why it is there and the user's line; a source that is used twice has a local of its own.
The native table checks the same guards (guard_build.py); this text is for reading, and is valid Python.
"""

from __future__ import annotations

import keyword
import os
import re
import types
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..records.guards import CHECKS, Guard, TensorMeta
from ..records.origin import UNKNOWN
from ..records.sources import Attr, Cell, Derived, DictKey, Global, InstanceDict, Item, Local, Module, Source

_HEAD = '''"""What one entry relies on. `check` returns the values that the entry reads, or None if a guard fails.

G holds the globals of the function (G['name']) and of modules (G['module']['name']), C its closure cells.
"""
'''

_RESERVED = {"G", "C", "sys", "check", "tensor_matches", "same_constant", "same_keys", "global_state"}
_LITERALS = (int, str, bytes, bool, type(None), types.EllipsisType)


def render(guards: Iterable[Guard], fetch: Iterable[Source], parameters: Sequence[str] = ()) -> str:
    """The text of guards.py. ``parameters`` are the compiled function's; without them, the ones in use."""
    guards, fetch = list(guards), list(fetch)
    text = _Text(_uses(guards, fetch), parameters)
    for guard in guards:
        text.guard(guard)
    text.lines.append(f"    return ({''.join(text.expression(source) + ', ' for source in fetch).rstrip()})")
    return "\n".join([_HEAD, f"def check({', '.join(text.parameters())}):", *text.lines, ""])


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
        uses[source] += 1
    return uses


@dataclass(frozen=True)
class _Written(Source):
    """A source that is already an expression."""

    text: str

    def render(self) -> str:
        return self.text


class _Text:
    """The body of ``check`` while it is written."""

    def __init__(self, uses: Counter[Source], parameters: Sequence[str]) -> None:
        self.uses = uses
        self.lines: list[str] = []
        self.known = list(parameters)
        self.locals: dict[Source, str] = {}
        self.taken = _RESERVED | set(parameters) | {s.name for s in uses if isinstance(s, Local)}

    def parameters(self) -> list[str]:
        used = [source.name for source in self.uses if isinstance(source, Local)]
        return list(dict.fromkeys([*self.known, *used]))

    def guard(self, guard: Guard) -> None:
        """Adds the line of one guard, after the locals that it needs."""
        condition = self.condition(guard)
        place = "" if guard.origin == UNKNOWN else f"{os.path.basename(guard.origin.file)}:{guard.origin.line}"
        note = "  ".join(part for part in (" ".join(guard.why.split()), place and f"({place})") if part)
        self.lines.append(f"    if not ({condition}): return None" + (f"  # {note}" if note else ""))

    def condition(self, guard: Guard) -> str:
        x = self.expression(guard.source) if guard.source is not None else ""
        if guard.check == "constant" and type(guard.expected) in _LITERALS:
            return _literal_condition(x, guard.expected)
        if guard.check == "same":
            e = self.expression(guard.expected)
        elif guard.check == "distinct":
            e = "(" + "".join(self.expression(source) + ", " for source in guard.expected).rstrip() + ")"
        else:
            e = expected_text(guard.expected)
        return CHECKS[guard.check].template.format(x=x, e=e)

    def expression(self, source: Source) -> str:
        """The source's expression; one that is used again becomes a local first."""
        if source in self.locals:
            return self.locals[source]
        text = source.render()
        if isinstance(source, Derived):
            text = replace(source, of=_Written(self.expression(source.of))).render()
        if self.uses[source] < 2 or isinstance(source, Local):
            return text
        name = self.locals[source] = self.name(source)
        self.lines.append(f"    {name} = {text}")
        return name

    def name(self, source: Source) -> str:
        """A short name that nothing else has, after the last part of the source."""
        base = re.sub(r"\W", "_", _stem(source)).strip("_") or "value"
        if base[0].isdigit() or keyword.iskeyword(base):
            base = f"_{base}"
        name, n = base, 1
        while name in self.taken:
            n += 1
            name = f"{base}_{n}"
        self.taken.add(name)
        return name


def _stem(source: Source) -> str:
    if isinstance(source, (Attr, Global, Cell, Local)):
        return source.name
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


def expected_text(value: Any) -> str:
    """An expected value as a Python expression: literals as such, objects by name where they have one."""
    if isinstance(value, TensorMeta):
        return _meta_text(value)
    if isinstance(value, tuple) and type(value) is not tuple:
        return f"{type(value).__name__}({', '.join(map(expected_text, value))})"
    if type(value) in (tuple, list):
        inner = "".join(f"{expected_text(item)}, " for item in value).rstrip()
        return f"({inner})" if type(value) is tuple else f"[{inner}]"
    if type(value) in _LITERALS or type(value) in (float, complex, slice, range):
        return repr(value)
    if type(value).__module__ == "torch":  # dtype, device, layout
        return repr(value) if str(value).startswith("torch.") else f"torch.{value!r}"
    name = getattr(value, "__qualname__", None)
    if isinstance(name, str) and isinstance(getattr(value, "__module__", None), str):
        prefix = "" if value.__module__ == "builtins" else f"{value.__module__}."
        return _identifier(prefix + name)
    if isinstance(value, types.ModuleType):
        return f"sys.modules[{value.__name__!r}]"
    return f"object_{_identifier(type(value).__qualname__)}_{id(value):x}"


def _identifier(name: str) -> str:
    return re.sub(r"[^\w.]", "_", name)


def _meta_text(meta: TensorMeta) -> str:
    parts = [
        expected_text(meta.type),
        str(meta.dtype),
        repr(str(meta.device)),
        str(tuple(meta.shape)),
        f"strides={tuple(meta.strides)}",
        f"requires_grad={meta.requires_grad}",
    ]
    return f"TensorMeta({', '.join(parts + [f'flags={meta.flags}'] if meta.flags else parts)})"
