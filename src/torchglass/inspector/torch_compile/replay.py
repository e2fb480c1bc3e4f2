"""What full_code.py of torch.compile's folders needs when a person runs it: the user's globals and closures, graphs,
and torch.compile's own code where it is still in this process.

    program = Program(__file__, "/app/toy.py", "toy_example", 4)
    program.globals["helper"]                        # of the user's module, imported if it is not yet
    program.graph("entry_0/graph_0/captured.py")     # a callable that loads the file at its first call
"""

from __future__ import annotations

import gc
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any

from ...runtime.modules import imported_module
from ...runtime.store import load_python
from .layout import Function
from .names import GRAPH
from .support import graph_module

_live: dict[str, Function] = {}
_READ, _INNER = re.compile(r" self\.(\w+)"), re.compile(r"^ +class (\w+)\(", re.M)
"""What a graph reads of itself, and what is printed inside it."""


def remember(function: Function) -> None:
    """Folders written by this process find torch.compile's own code and globals."""
    _live[str(function.folder)] = function


class Globals(dict[str, Any]):
    """The user's globals for reading and writing; names that torch.compile adds to them are found in any process."""

    def __init__(self, real: dict[str, Any]) -> None:
        super().__init__()
        self.real = real

    def __getitem__(self, name: str) -> Any:
        if name in self.real:
            return self.real[name]
        if name.startswith("__import_"):
            return importlib.import_module(name.removeprefix("__import_").replace("_dot_", "."))
        if name.startswith("__builtins_dict__"):
            return vars(importlib.import_module("builtins"))
        raise KeyError(f"{name} existed only in the process that compiled; run this file there")

    def __contains__(self, name: object) -> bool:
        return name in self.real

    def __setitem__(self, name: str, value: Any) -> None:
        self.real[name] = value

    def __delitem__(self, name: str) -> None:
        del self.real[name]


class Program:
    """The objects behind a full_code.py. ``source``, ``qualified`` and ``line`` say which function of the user's."""

    def __init__(self, file: str, source: str, qualified: str, line: int) -> None:
        self.folder = Path(file).absolute().parent
        self.live = _live.get(str(self.folder))
        self.source, self.qualified, self.line = source, qualified, line
        self.functions = self._functions()
        if not self.functions:
            imported_module(source)
            self.functions = self._functions()
        entries = self.live.entries if self.live is not None else []
        around = entries[0].globals if entries else {}
        self.globals = Globals(self.functions[0].__globals__ if self.functions else around)

    def _functions(self) -> list[FunctionType]:
        """Functions that are alive and made of the user's code, the newest first, as far as Python knows their age."""
        found = []
        for generation in range(3):
            for thing in reversed(gc.get_objects(generation)):
                if type(thing) is FunctionType and self._is_it(thing.__code__):
                    found.append(thing)
        return found

    def _is_it(self, code: CodeType) -> bool:
        same_place = code.co_firstlineno == self.line and code.co_filename == self.source
        return same_place and getattr(code, "co_qualname", self.qualified) == self.qualified

    def closures(self) -> Iterator[tuple[CellType, ...]]:
        """The cells of each living closure of the user's function, the newest first."""
        for function in self.functions:
            yield function.__closure__ or ()

    def holds(self, check: Callable[..., Any], variables: dict[str, Any]) -> bool:
        """Whether an entry's guards hold over one of the closures: one that they cannot even ask is another function's,
        made by the same decorator.
        """
        try:
            return bool(check(variables, self.globals))
        except (AttributeError, IndexError, KeyError, TypeError):
            return False

    def contents(self, names: Sequence[str], cells: Sequence[CellType]) -> dict[str, Any]:
        """The values of free variables that have one."""
        found = {}
        for name, cell in zip(names, cells):
            try:
                found[name] = cell.cell_contents
            except ValueError:
                continue
        return found

    def default(self, name: str) -> Any:
        """The default value of a parameter of the user's function; ``inspect.Parameter.empty`` if it has none."""
        for function in self.functions:
            parameter = inspect.signature(function, follow_wrapped=False).parameters.get(name)
            if parameter is not None:
                return parameter.default
        return inspect.Parameter.empty

    def graph(self, path: str, entry: str) -> Callable[..., Any]:
        """The graph of a file. One that holds what its text does not, tensors say, is torch.compile's own graph."""
        loaded: list[Callable[..., Any]] = []

        def call(*inputs: Any) -> Any:
            if not loaded:
                file = self.folder / path
                text = file.read_text() if file.is_file() else " self.graph"
                held = {*_READ.findall(text)} - {*_INNER.findall(text)}
                loaded.append(self._compiled(entry) if held else graph_module(load_python(file).GraphModule))
            return loaded[0](*inputs)

        return call

    def _compiled(self, path: str) -> Callable[..., Any]:
        _, entry = self._find(path)
        for name in entry.new.co_names if entry is not None else ():
            if name.startswith(GRAPH) and entry is not None and name in entry.globals:
                compiled: Callable[..., Any] = entry.globals[name]
                return compiled
        raise RuntimeError(f"the graph of {path} holds values that exist only in the process that compiled")

    def over_cells(self, make: Callable[..., Any], count: int) -> Callable[[Sequence[CellType]], Callable[..., Any]]:
        """``make`` binds free variables to values: the same function over given cells."""
        inner = make(*[None] * count)

        def over(cells: Sequence[CellType]) -> Callable[..., Any]:
            order = dict(zip(inspect.signature(make).parameters, cells))
            code = inner.__code__
            made = FunctionType(
                code, inner.__globals__, code.co_name, None, tuple(order[name] for name in code.co_freevars)
            )
            return made

        return over

    def bytecode(self, path: str, closure: bool = False) -> Callable[..., Any]:
        """torch.compile's own code of an entry."""

        def over(cells: Sequence[CellType] | None) -> Callable[..., Any]:
            record, entry = self._find(path)
            if entry is None or record is None:
                return lambda *args, **kwargs: self.miss(path.rpartition("/")[0], cells, *args, **kwargs)
            return FunctionType(entry.new, entry.globals, entry.new.co_name, None, tuple(cells or ()) or None)

        return over if closure else lambda *args, **kwargs: over(None)(*args, **kwargs)

    def miss(self, path: str, cells: Sequence[CellType] | None, /, *args: Any, **kwargs: Any) -> Any:
        """No entry fits these arguments: the user's own code runs, where this process has it."""
        if path == "" and self.functions:
            code: CodeType = self.functions[0].__code__
            if not code.co_freevars or not cells:
                return self.functions[0](*args, **kwargs)
            return FunctionType(code, self.globals.real, code.co_name, None, tuple(cells))(*args, **kwargs)
        missed, _ = self._find(f"{path}/entry_0")
        name = missed.global_name() if missed is not None else ""
        if name in self.globals:
            found = self.globals[name]
            return (found(tuple(cells)) if cells else found)(*args, **kwargs)
        raise NotImplementedError(f"no entry of {path or self.qualified} fits, and its code is not in this process")

    def _find(self, path: str) -> tuple[Function | None, Any]:
        """The function and entry of ``resume_at_6/entry_0``, where this process compiled them."""
        folder, _, entry = path.rpartition("/")
        for function in self.live.walk() if self.live is not None else ():
            here = function.folder.relative_to(self.folder).as_posix()
            if here == (folder or "."):
                return function, function.entries[int(entry.rpartition("_")[2])]
        return None, None
