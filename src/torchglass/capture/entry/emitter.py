"""The entry's source: call the graph, rebuild results, replay side effects once, return or go on in a resume function.

    def transformed(inputs, fetched):
        mul, = graph_0(*fetched)
        return mul

Values are rebuilt from what the entry holds: parameters, what the guards fetched, graph outputs, constants. Nothing is
read through an object that the effects change, so the order of rebuilding does not matter; effects come after it.
"""

from __future__ import annotations

import builtins
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from ...records.literals import identifier
from ...records.size_environment import SizeEnvironment
from ...records.sizes import Size, symbols, text
from ...records.sources import Computed, Constant, InstanceDict, Local, Source, StrideOf
from ..errors import CannotResume
from ..graph.builder import GraphBuilder
from ..protocol import Lazy, Machine, Value
from ..values.dicts import DictV
from ..values.made import MadeV, StandIns
from ..values.tensor import TensorV

# Names, texts and lists, with what is read of them or called: no operator to bind weaker than a dot.
_PRIMARY = re.compile(r"(?:[^\W\d]\w*|'[^']*'|\[[^\[\]]*\])(?:\.\w+|\[[^\[\]]*\]|\([^()]*\))*")


# What writes the expression of a value, by kinds of values: the first that fits.
Builders = Sequence[tuple[Any, Callable[["Emitter", Any], str]]]


class Emitter:
    """Collects the body of one entry function."""

    def __init__(self, m: Machine, parameters: tuple[str, ...], builders: Builders) -> None:
        self.m = m
        self.builders = builders
        self.parameters = parameters
        reserved = {"compiled_calls", "fetched", "graph_0", "reconstruct", "torch", "transformed"}
        self.parameter_names = {p: identifier(p) + "_" * (p in reserved or hasattr(builtins, p)) for p in parameters}
        self.body: list[str] = []
        self.namespace: dict[str, Any] = {}
        self.outputs: list[TensorV] = []
        self.used: set[str] = {*self.parameter_names.values(), *reserved}
        self.names: dict[int, str] = {}
        self.preferred: dict[int, str] = {}
        self.kept: list[Any] = []
        self.fetch: list[Source] = []
        self.building: set[int] = set()
        self.filled_cells: set[int] = set()
        self.numbers: list[str] = []  # computed before the graph is called
        self.number_inputs: list[str] = []

    # --- names -----------------------------------------------------------------------------------------------------
    def fresh(self, hint: str) -> str:
        name = identifier(hint)
        number = 0
        while name in self.used or hasattr(builtins, name):
            number += 1
            name = f"{identifier(hint)}_{number}"
        self.used.add(name)
        return name

    def line(self, text: str) -> None:
        self.body.append(text)

    def written_out(self, name: str) -> str:
        """The text of a tuple that was named in case something else holds it, and nothing does; else its name."""
        uses = re.compile(rf"\b{re.escape(name)}\b")
        naming = [line for line in self.body if uses.search(line)]
        if len(naming) != 1 or not naming[0].startswith(f"{name} = ("):
            return name
        self.body.remove(naming[0])
        return naming[0].removeprefix(f"{name} = ")

    def pin(self, real: Any, hint: str = "") -> str:
        """A name of the entry's module for an object that no source reaches."""
        known = self.names.get(id(real))
        if known is not None:
            return known
        twin = self.m.wrapped.get(id(real))
        if twin is not None and (isinstance(twin[1], MadeV) or id(twin[1]) in self.m.state(StandIns).made):
            return self.expr(twin[1])  # it stands for an object made inside
        hint = hint or getattr(real, "__name__", "") or f"a_{type(real).__name__}"
        if getattr(builtins, hint, None) is real:
            return hint
        name = self.fresh(hint)
        self.namespace[name] = real
        self.names[id(real)] = name
        self.kept.append(real)
        return name

    def from_source(self, source: Source) -> str:
        if isinstance(source, Local):
            return self.parameter_names[source.name]
        if isinstance(source, InstanceDict):
            return f"{self.from_source(source.of)}.__dict__"
        if source not in self.fetch:
            self.fetch.append(source)
        return f"fetched[{self.fetch.index(source)}]"

    def size_text(self, size: Size) -> str:
        """A size, of what the entry reads and what the graph gives."""
        sources = self.m.state(SizeEnvironment).sources
        read = {n: self._size_read(sources[n]) if n in sources else self._size_made(n) for n in symbols([size])}
        return re.sub(r"[a-z]\w*", lambda found: read.get(found[0], found[0]), text(size))

    def _size_read(self, source: Source) -> str:
        text = self.place_text(source)
        return f"({text})" if isinstance(source, Computed) and source.function is not len else text

    def _size_made(self, name: str) -> str:
        """A size that data decide, of the tensor that has it."""
        tensor, dim = self.m.state(GraphBuilder).telling(name)
        return f"{self.expr(tensor)}.shape[{dim}]"

    def place_text(self, source: Source) -> str:
        """What stands at a source, or is computed of it."""
        if isinstance(source, Computed):
            text = source.filled([self.place_text(part) for part in source.parts])
            return f"{self.pin(math, 'math')}.{text.removeprefix('math.')}" if text.startswith("math.") else text
        if isinstance(source, Constant):
            return f"({source.text})" if source.text.startswith("-") else source.text
        if isinstance(source, StrideOf):
            return source.after(self.from_source(source.of))
        return self.from_source(source)

    def prefer(self, values: dict[str, Any]) -> None:
        """Name graph outputs after the user's variables that hold them."""
        self.preferred |= {id(value): name for name, value in values.items()}

    # --- expressions -----------------------------------------------------------------------------------------------
    def expr(self, value: Any) -> str:
        """A Python expression for a value; what must keep its identity is built once and named."""
        if isinstance(value, Lazy):
            if value.source is not None:
                return self.from_source(value.source)
            return self.expr(self.m.wrap_result(value.real))
        named = self.names.get(id(value))
        if named is not None:
            return named
        for kind, builder in self.builders:
            if isinstance(value, kind):
                if id(value) in self.building:
                    raise CannotResume("a structure that contains itself")
                self.building.add(id(value))
                try:
                    return builder(self, value)
                finally:
                    self.building.discard(id(value))
        raise CannotResume(f"{value.a()} cannot be rebuilt outside the graph")

    def name_value(self, value: Value, hint: str, text: str) -> str:
        name = self.fresh(hint)
        self.line(f"{name} = {text}")
        return self.named(value, name)

    def named(self, value: Value, name: str) -> str:
        """Note the name of a value, which keeps it."""
        self.names[id(value)] = name
        self.kept.append(value)
        return name

    def existing(self, value: Any) -> str | None:
        """How to reach a value that was there before the call."""
        if value.source is not None:
            return self.from_source(value.source)
        if getattr(value, "real", None) is not None:
            return self.pin(value.real)
        return None

    def owner(self, value: Any) -> str:
        """An expression that a dot or a bracket may follow."""
        text = self.expr(value)
        return text if _PRIMARY.fullmatch(text) else f"({text})"

    def listing(self, values: list[Any]) -> str:
        return ", ".join(self.expr(v) for v in values)

    def tuple_of(self, values: list[Any]) -> str:
        return f"({self.listing(values)},)" if values else "()"

    def mapping(self, value: DictV) -> str:
        return "{" + self.pairs(value) + "}"

    def pairs(self, value: DictV) -> str:
        return ", ".join(f"{self.expr(value.key_value(k))}: {self.expr(v)}" for k, v in value.items.items())
