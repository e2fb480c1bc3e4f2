"""Do something when a module is loaded, or now if it is: a program that never uses torch.compile shall not pay for it.

with when_loaded("torch._dynamo", lambda: collect(folder)):      # the context is entered at the import
    ...
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

from ..runtime.store import OF_TORCH_COMPILE


@contextlib.contextmanager
def when_loaded(module: str, context: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """Enters ``context()`` at once if ``module`` is loaded, else when it has been; leaves it at the end."""
    with contextlib.ExitStack() as stack:
        if module in sys.modules:
            stack.enter_context(context())
            yield
            return
        finder = _Finder(module, lambda: stack.enter_context(context()))
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            finder.stop()


def of_torch_compile(root: Path) -> AbstractContextManager[None]:
    """What torch.compile makes inside is written to ``root/torch_compile``, if a program loads it at all."""

    def collecting() -> AbstractContextManager[Any]:
        from .torch_compile import collect

        return collect(root / OF_TORCH_COMPILE)

    return when_loaded("torch._dynamo", collecting)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module as the others would, and calls ``then`` once it has run."""

    def __init__(self, module: str, then: Callable[[], Any]) -> None:
        self.module = module
        self.then = then

    def stop(self) -> None:
        with contextlib.suppress(ValueError, AttributeError):  # there is no path when Python ends
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.module:
            return None
        self.stop()
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        loader, then = spec.loader, self.then
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            then()

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
