"""Inductor's output code runs from the folder's file of it, so that breakpoints set there are hit.

Inductor writes a Python module into its cache and loads it. The functions of the loaded module get the name and the
lines of the folder's file: a note is its first line, the rest is the same text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ..when_loaded import when_loaded

NOTE = "# Inductor's output code. torch.compile runs it, and debuggers stop in this file; edits have no effect.\n"
_COPY = "# Inductor's output code, a copy. What runs is {place}: set breakpoints there.\n"


class OutputCode:
    """The modules that Inductor loads and the files written of them; either may come first."""

    def __init__(self) -> None:
        self.files: dict[str, Path] = {}
        self.modules: dict[str, ModuleType] = {}

    def note(self, place: str | None) -> str:
        """The first line of the file for the module that Inductor keeps at ``place``."""
        if place is not None and place.endswith(".py"):
            return NOTE
        return _COPY.format(place=place or "a file of Inductor's cache")

    def written(self, place: str | None, file: Path) -> None:
        """The folder's ``file`` is there."""
        if place is None:
            return
        module = self.modules.pop(place, None)
        if module is None:
            self.files[place] = file
        else:
            run_from(module, file)

    def loaded(self, module: ModuleType) -> None:
        """Inductor has loaded a module."""
        place = str(module.__file__)
        file = self.files.pop(place, None)
        if file is None:
            self.modules[place] = module
        else:
            run_from(module, file)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """While open, Inductor says what it loads; it may never be imported at all."""
        with when_loaded("torch._inductor.codecache", self._listening):
            yield

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        from torch._inductor.codecache import PyCodeCache

        cache: Any = PyCodeCache
        original = cache.__dict__["load_by_key_path"]

        def load_by_key_path(cls: Any, *args: Any, **kwargs: Any) -> ModuleType:
            module: ModuleType = original.__func__(cls, *args, **kwargs)
            self.loaded(module)
            return module

        cache.load_by_key_path = classmethod(load_by_key_path)
        try:
            yield
        finally:
            cache.load_by_key_path = original


def run_from(module: ModuleType, file: Path) -> None:
    """Give a loaded module's functions the name of the ``file`` that holds its text below one line more."""
    classes = [v for v in vars(module).values() if isinstance(v, type) and v.__module__ == module.__name__]
    for holder in (module, *classes):
        for value in list(vars(holder).values()):
            if type(value) is FunctionType and value.__code__.co_filename == module.__file__:
                value.__code__ = _moved(value.__code__, str(file))


def _moved(code: CodeType, file: str) -> CodeType:
    inner = tuple(_moved(c, file) if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_filename=file, co_firstlineno=code.co_firstlineno + 1, co_consts=inner)
