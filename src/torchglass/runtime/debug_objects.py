"""What the files of a folder need when a person runs them: a path in, the objects that their free names stand for out.

    G, C, E = names_of(__file__)                     # guards.py: globals, closure cells, expected objects
    program = Program(__file__, "toy.py", "toy_example")      # full_code.py

In the process that compiled, the objects are those in use. In another one the function is found again by importing
its file; objects that existed in that process alone (a closure's cells, an instance) are then missing, and using one
says so.
"""

from __future__ import annotations

import importlib.util
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..records.compilation import EntryRecord, FunctionRecord
from .call_original import call_original
from .guard_sources import plain_function
from .modules import imported_module
from .store import load_python

_live: weakref.WeakValueDictionary[str, FunctionRecord] = weakref.WeakValueDictionary()


def remember(record: FunctionRecord) -> None:
    """The record of a function with a folder: the files there find their objects through it in this process."""
    if record.folder is not None:
        _live[str(record.folder)] = record


def is_latest(record: FunctionRecord) -> bool:
    """Whether its folder tells of this record still: after a reset it tells of another one."""
    return _live.get(str(record.folder)) is record


def moved(record: FunctionRecord, folder: Path) -> None:
    """The record's files, and those of what it continues in and calls, are in this folder from now on."""
    before = record.folder
    if before == folder:
        return
    record.folder = folder
    remember(record)
    for below in record.walk() if before is not None else ():
        if below.folder is not None and below.folder.is_relative_to(before):  # type: ignore[arg-type]
            below.folder = folder / below.folder.relative_to(before)  # type: ignore[arg-type]
            remember(below)


class Missing:
    """Stands for an object that existed only in the process that compiled. Using it says so."""

    def __init__(self, what: str) -> None:
        self.__dict__["_what"] = what

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{self.__dict__['_what']} existed only in the process that compiled; run this file there")

    __call__ = __getitem__ = __setitem__ = __getattr__ = __setattr__ = __iter__ = __len__ = __bool__ = _fail


class _Objects(Sequence[Any]):
    """Expected objects of an entry whose process is gone."""

    def __getitem__(self, index: Any) -> Any:
        return Missing(f"E[{index}]")

    def __len__(self) -> int:
        return 0


def names_of(file: str) -> tuple[Mapping[str, Any], Mapping[str, types.CellType], Sequence[Any]]:
    """Globals, closure cells and expected objects of the entry whose folder ``file`` lies in."""
    folder = Path(file).absolute().parent
    record = _live.get(str(folder.parent))
    if record is None or record.function is None:
        return _Absent("a global"), _Absent("a closure cell"), _Objects()
    entry = _entry(record, folder.name)
    return (*_scope(record.function), entry.expected if entry is not None else _Objects())


class _Absent(Mapping[str, Any]):
    def __init__(self, what: str) -> None:
        self.what = what

    def __getitem__(self, name: str) -> Any:
        return Missing(f"{self.what} {name!r}")

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class Program:
    """The objects behind a full_code.py: of this process if it compiled the function, else imported again.

    ``file`` is full_code.py's own path, ``source`` the user's file, ``qualified`` the function's qualified name there.
    """

    def __init__(self, file: str, source: str, qualified: str) -> None:
        self.folder = Path(file).absolute().parent
        self.source, self.qualified = source, qualified
        self.record = _live.get(str(self.folder))
        self.function = self.record.function if self.record is not None else self._imported()
        self.globals: Mapping[str, Any] = _Absent("a global")
        self.cells: Mapping[str, types.CellType] = _Absent("a closure cell")
        if self.function is not None:
            self.globals, self.cells = _scope(self.function)

    def default(self, name: str) -> Any:
        """The default value of a parameter of the user's function."""
        import inspect

        if self.function is None:
            return Missing(f"the default of {name!r}")
        return inspect.signature(self.function).parameters[name].default

    def object(self, path: str, name: str, importable: str = "") -> Any:
        """What the free name ``name`` of an entry's file stands for. ``importable`` is ``module:qualified.name``."""
        record, entry = self._find(path)
        if record is not None and entry is not None and name in entry.names:
            return entry.names[name]
        if name == "globals_of_function":
            return self.globals
        if name.startswith("globals_of_") and importable:
            return vars(importlib.import_module(importable))
        found = _import(importable)
        return Missing(f"{name} of {path}") if found is None else found

    def expected(self, path: str) -> Sequence[Any]:
        """The objects that the guards of an entry call ``E[0]``, ``E[1]``, ..."""
        _, entry = self._find(path)
        return entry.expected if entry is not None else _Objects()

    def graph(self, path: str) -> Callable[..., Any]:
        """The ``forward`` of a graph's file, loaded at its first call, with the objects that its globals stand for."""
        loaded: list[Callable[..., Any]] = []

        def call(*inputs: Any) -> Any:
            if not loaded:
                module = load_python(self.folder / path)
                vars(module).update(self._graph_objects(path, module))
                loaded.append(module.forward)
            return loaded[0](*inputs)

        return call

    def miss(self, path: str, arguments: tuple[Any, ...]) -> Any:
        """No entry fits these arguments: the user's own code runs, where this process has it."""
        record, _ = self._find(path)
        function = record.function if record is not None else self.function if path == "" else None
        if function is None:
            name = path.strip("/") or self.qualified
            raise NotImplementedError(f"no entry of {name} fits these arguments, and its code is not in this process")
        return call_original(plain_function(function), arguments)

    # --- finding ---------------------------------------------------------------------------------------------------
    def _find(self, path: str) -> tuple[FunctionRecord | None, EntryRecord | None]:
        """The live records of ``resume_at_6/entry_0``, ``entry_0``, ``resume_at_6`` or ``''``."""
        if self.record is None:
            return None, None
        parts = [part for part in path.split("/") if part]
        name = parts.pop() if parts and parts[-1].startswith("entry_") else ""
        folder = self.folder.joinpath(*parts)
        record = next((r for r in self.record.walk() if r.folder == folder), self.record if not parts else None)
        return record, _entry(record, name) if record is not None else None

    def _graph_objects(self, path: str, module: types.ModuleType) -> Mapping[str, Any]:
        entry_path, graph_name, _ = path.rsplit("/", 2)
        _, entry = self._find(entry_path)
        for graph in entry.graphs if entry is not None else ():
            if graph.name == graph_name:
                return graph.objects
        names = getattr(module, "SET_BY_LOADER", ())
        return {name: Missing(f"{name} of {path}") for name in names}

    def _imported(self) -> Callable[..., Any] | None:
        found: Any = imported_module(self.source)
        for part in self.qualified.split("."):
            found = getattr(found, part, None)
        found = getattr(found, "__wrapped__", found)
        return found if type(found) in (types.FunctionType, types.MethodType) else None


def _entry(record: FunctionRecord, name: str) -> EntryRecord | None:
    return next((entry for entry in record.entries if f"entry_{entry.index}" == name), None)


def _scope(function: Callable[..., Any]) -> tuple[Mapping[str, Any], Mapping[str, types.CellType]]:
    plain = plain_function(function)
    return plain.__globals__, dict(zip(plain.__code__.co_freevars, plain.__closure__ or ()))


def _import(path: str) -> Any:
    module_name, _, qualified = path.partition(":")
    try:
        found: Any = importlib.import_module(module_name) if qualified else None
    except ImportError:
        return None
    for part in qualified.split("."):
        found = getattr(found, part, None)
    return found
