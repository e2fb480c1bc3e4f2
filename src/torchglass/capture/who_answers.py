"""Say what capture does with a call, and in which file: ``python -m torchglass who-answers torch.Tensor.add sorted``.

``--page`` prints docs/meanings.md, which lists all that has a row.
"""

from __future__ import annotations

import argparse
import builtins
import functools
import importlib
import inspect
import operator
import sys
from collections.abc import Iterable, Iterator
from enum import EnumMeta
from pathlib import Path
from types import FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

import torch

from .. import torch_compat
from ..bytecode.objects import is_heap_type
from . import run as capture  # noqa: F401  (enters all rows)
from .meanings import registry
from .meanings.calls import CLASS_METHOD, OBJECT, said_by_program
from .meanings.methods import PURE_CLASSES, PURE_OWNERS
from .meanings.registry import Answer, Fold, Inline, Node, OfObject, Polyfill, Refuse
from .torch_api.operations import DATA_METHODS, FORBIDDEN, REFUSED_PREFIXES, is_forbidden
from .values.arrays import is_scalar_class
from .values.binding import home_of
from .values.known import KnownV

# What classes in C answer by name, as ``methods.call_class_method`` takes it.
CLASS_METHODS = ("__new__", "fromkeys", "__subclasshook__", "__init_subclass__", "from_iterable")
ROOT = Path(__file__).parents[3]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="a dotted name: sorted, list.append, torch.nn.Linear")
    parser.add_argument("--page", action="store_true", help="print docs/meanings.md")


def run(arguments: argparse.Namespace) -> int:
    """0 where each name stands for something that can be called, else 2."""
    if arguments.page == bool(arguments.names):
        print("torchglass who-answers: give a name or --page", file=sys.stderr)
        return 2
    if arguments.page:
        print(page(), end="")
        return 0
    failed = False
    for name in arguments.names:
        try:
            print(f"{name}: {treatment(found(name))}")
        except LookupError as error:
            print(f"torchglass who-answers: {error.args[0]}", file=sys.stderr)
            failed = True
    return 2 if failed else 0


def found(name: str) -> Any:
    """What a dotted name stands for: of builtins, or of a module, which is imported."""
    parts = name.split(".")
    value: Any = builtins
    if not hasattr(builtins, parts[0]):
        value = None
        for count in range(1, len(parts) + 1):
            try:
                value = importlib.import_module(".".join(parts[:count]))
            except (ImportError, ValueError):
                break
            rest = parts[count:]
        if value is None:
            raise LookupError(f"{name!r}: no builtin and no module is called {parts[0]!r}")
        parts = rest
    for part in parts:
        if not hasattr(value, part):
            raise LookupError(f"{name!r}: {getattr(value, '__name__', value)!r} has no attribute {part!r}")
        value = getattr(value, part)
    if not callable(value):
        raise LookupError(f"{name!r} is a {type(value).__name__}, which cannot be called")
    return value


# --- one call ---------------------------------------------------------------------------------------------------------
def treatment(real: Any, lines: bool = True) -> str:
    """What capture does with a call of ``real``; ``lines`` says at which line of which file."""
    said = said_by_program(real)
    row = registry.entered(real) if said is None else None
    meaning = said or row or registry.ruled(real)
    name = getattr(real, "__name__", "")
    if isinstance(meaning, Node):
        if is_forbidden(real):
            return "breaks the graph: it changes PyTorch's state, or makes what graphs cannot hold"
        if name in DATA_METHODS and getattr(torch.Tensor, name, None) is real:
            return _of_method(torch.Tensor, name, lines)
        return "a node of the graph"
    if isinstance(meaning, Inline):
        return f"followed into its Python code{_place(_code_place(real), lines)}"
    if isinstance(meaning, Refuse):
        return f"breaks the graph: {meaning.why}" + (f"; {meaning.hint}" if meaning.hint else "")
    if isinstance(meaning, Polyfill):
        return _of_polyfill(meaning.function, lines)
    if isinstance(meaning, OfObject):
        return _of_object(real, meaning, lines)
    place = _place(_row_place(real), lines)
    if isinstance(meaning, Fold):
        return f"computed while capturing{place}"
    return f"always {meaning.value!r}{place}" if isinstance(meaning, Answer) else f"a handler{place}"


def _of_object(real: Any, meaning: OfObject, lines: bool) -> str:
    if isinstance(real, (MethodDescriptorType, WrapperDescriptorType)):
        return _of_method(real.__objclass__, real.__name__, lines)
    if isinstance(real, type):
        return _of_class(real, lines)
    if meaning is OBJECT:
        call = inspect.getattr_static(type(real), "__call__", None)
        return (
            f"followed into its Python code{_place(_code_place(call), lines)}"
            if type(call) is FunctionType
            else f"breaks the graph: calling the {KnownV(real).describe()}"
        )
    cls: Any = getattr(real, "__self__", None)
    name = getattr(real, "__name__", "")
    if meaning is CLASS_METHOD and name not in CLASS_METHODS:
        return "computed while capturing" if cls in PURE_CLASSES else f"breaks the graph: `{cls.__name__}.{name}()`"
    return f"a handler{_place(_code_place(meaning.call), lines)}"


def _of_class(cls: type, lines: bool) -> str:
    """A class without a row, as ``constructors.construct`` takes it."""
    if issubclass(cls, torch.Tensor):
        return "a node of the graph"
    if isinstance(cls, EnumMeta) or is_scalar_class(cls):
        return "computed while capturing"
    written = [part for part in (getattr(cls, name) for name in ("__new__", "__init__")) if type(part) is FunctionType]
    if written:
        return f"an object of ours, made by its Python code{_place(_code_place(written[0]), lines)}"
    if issubclass(cls, BaseException) or is_heap_type(cls):
        return "an object of ours"
    return f"breaks the graph: making an instance of `{cls.__module__}.{cls.__qualname__}`"


def _of_method(owner: type, name: str, lines: bool) -> str:
    """A method of a C type, as ``methods.call`` takes it."""
    if issubclass(torch.Tensor, owner) and owner is not object:
        return "breaks the graph: it asks for data" if name in DATA_METHODS else "a node of the graph"
    if issubclass(owner, BaseException) and (owner, name) not in registry.METHODS:
        owner = BaseException
    tables: Any = ((registry.METHODS, (owner, name)), (registry.PROTOCOLS, name))
    for table, key in tables:
        if key in table:
            return f"a handler{_place(table.places[key], lines)}"
    return "computed while capturing" if owner in PURE_OWNERS else "computed while capturing where nothing changes"


def _row_place(real: Any) -> str:
    by_identity: Any = registry.BY_IDENTITY
    by_name: Any = registry.BY_NAME
    if isinstance(real, torch_compat.HigherOrderOperator):
        return dict(_places(registry.HIGHER_ORDER))[real.name()]
    return by_identity.places.get(id(real)) or by_name.places.get(
        (home_of(real), getattr(real, "__qualname__", "")), ""
    )


def _code_place(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def _place(place: str, lines: bool) -> str:
    if not lines:
        place = place.rpartition(":")[0]
    return f", {place.removeprefix(f'{ROOT}/')}" if place else ""


# --- the page ---------------------------------------------------------------------------------------------------------
HEAD = """# What capture does with calls

Made by `python -m torchglass who-answers --page > docs/meanings.md` from the registry, `capture/meanings/registry.py`,
with Python {python} and torch {torch}. `python -m torchglass who-answers NAME` says it of one call, with the line.

A call is looked up by the object called, then by its qualified name, then by its class, whose rule looks at the module.
Python functions that are not listed are followed into their code; functions and methods of PyTorch's in C are nodes of
the graph; what is left breaks the graph.
"""


def page() -> str:
    texts = [HEAD.format(python=".".join(map(str, sys.version_info[:2])), torch=torch.__version__.partition("+")[0])]
    entered = {_shown(real): real for real, _ in registry.BY_IDENTITY.values()}
    of_builtins = {
        name: value
        for name, value in vars(builtins).items()
        if callable(value) and name[0] != "_" and type(value).__module__ != "_sitebuiltins"
    }
    of_operator = {f"operator.{name}": getattr(operator, name) for name in operator.__all__}
    of_torch = {name: real for name, real in entered.items() if name.startswith(("torch.", "torchglass."))}
    others = {n: r for n, r in entered.items() if n not in of_builtins and n not in of_operator and n not in of_torch}
    for title, functions in (
        ("Operators", of_operator),
        ("Builtins", {n: v for n, v in of_builtins.items() if not _is_exception(v)}),
        ("Functions of the standard library and NumPy", others),
        ("Functions of PyTorch's and ours", of_torch),
    ):
        texts.append(_table(title, ((name, treatment(real, lines=False)) for name, real in functions.items())))
    texts.append(_table("Functions known by name", ((f"{m}.{n}", _of_row(m, n)) for m, n in registry.BY_NAME)))
    kinds: dict[type, str] = {Fold: "computed while capturing", Node: "a node of the graph"}
    modules = [(f"{name}.*", kinds[kind]) for name, kind in registry.BY_MODULE.items()]
    modules += [(f"{prefix}.*", "breaks the graph, but for what is listed") for prefix in REFUSED_PREFIXES]
    texts.append(_table("Whole modules", modules))
    methods = [(f"{_shown(cls)}.{name}", _of_method(cls, name, False)) for (cls, name), _ in _places(registry.METHODS)]
    texts.append(_table("Methods of types in C", methods))
    derived = ((f"{cls.__name__}.{name}", _of_polyfill(f, False)) for (cls, name), f in registry.OF_DERIVED.items())
    texts.append(_table("Methods of classes derived from types in C", derived))
    protocols = ((name, f"a handler{_place(place, False)}") for name, place in _places(registry.PROTOCOLS))
    texts.append(_table("Protocols: methods that every kind of value answers", protocols))
    of_tensors = ((f"torch.Tensor.{name}", _of_method(torch.Tensor, name, False)) for name in DATA_METHODS)
    texts.append(_table("Methods of tensors that are no node", of_tensors))
    texts.append(_table("Functions of torch that are no node", ((f"torch.{n}", "breaks the graph") for n in FORBIDDEN)))
    called = _places(registry.HIGHER_ORDER)
    operators = ((f"torch.ops.higher_order.{name}", f"a handler{_place(place, False)}") for name, place in called)
    texts.append(_table("Operators around functions", operators))
    classes = ((_shown(cls), f"by its rule{_place(place, False)}") for cls, place in _places(registry.BY_CLASS))
    texts.append(_table("Things of a class, where they have no row", classes))
    return "\n".join(texts)


def _of_polyfill(function: Any, lines: bool) -> str:
    place = _code_place(function)
    kind = "followed into Python of ours" if place.startswith(str(ROOT)) else "followed"
    return f"{kind}{f', `{function.__name__}`' if lines else ''}{_place(place, lines)}"


def _of_row(module: str, name: str) -> str:
    row = registry.BY_NAME[module, name]
    if isinstance(row, Polyfill):
        return _of_polyfill(row.function, False)
    place = _place(dict(_places(registry.BY_NAME))[module, name], False)
    return f"always {row.value!r}{place}" if isinstance(row, Answer) else f"a handler{place}"


def _places(table: Any) -> Iterator[tuple[Any, str]]:
    yield from table.places.items()


def _is_exception(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _shown(real: Any) -> str:
    name = getattr(real, "__qualname__", None) or repr(real)
    owner = getattr(real, "__self__", None) or getattr(real, "__objclass__", None)
    module = getattr(real, "__module__", None) or getattr(owner, "__module__", None) or "builtins"
    if getattr(torch, name.rpartition(".")[2], None) is real:
        return f"torch.{name.rpartition('.')[2]}"
    module = {"_operator": "operator", "posix": "os", "_collections": "collections"}.get(module, module)
    return name if module == "builtins" else f"{module}.{name}"


def _table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    grouped: dict[str, list[str]] = {}
    for name, text in rows:
        grouped.setdefault(text, []).append(f"`{name}`")
    lines = [f"| {text} | {', '.join(sorted(names))} |" for text, names in sorted(grouped.items())]
    return "\n".join([f"## {title}", "", "| what | of |", "|---|---|", *lines, ""])
