"""Sizes and addresses as Python text, known or symbolic: ``512*i0 + i1``, ``(s0*s1)*i0 + i1 + 3``.

The same text serves inside a kernel (on blocks of integers) and in the wrapper (on Python ints).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import sympy

from ..records.loops import Access, Index, Size
from .triton_ops import CannotPrint

# Integer functions of symbolic shapes, by class name: torch's own classes and sympy's. Sizes are never negative.
FUNCTIONS: dict[str, Callable[..., str]] = {
    "FloorDiv": lambda a, b: f"({a} // {b})",
    "CleanDiv": lambda a, b: f"({a} // {b})",
    "Mod": lambda a, b: f"({a} % {b})",
    "PythonMod": lambda a, b: f"({a} % {b})",
    "ModularIndexing": lambda a, b, c: f"({a} // {b} % {c})",
}


def size_text(size: Size) -> str:
    """An int or sympy expression as Python text; CannotPrint for functions that are not in ``FUNCTIONS``."""
    if isinstance(size, int) or size.is_Integer or size.is_Symbol:
        return str(size)
    parts = [size_text(a) for a in size.args]
    if isinstance(size, sympy.Add):
        return f"({' + '.join(parts)})"
    if isinstance(size, sympy.Mul):
        return f"({' * '.join(parts)})"
    if isinstance(size, sympy.Pow) and size.args[1].is_Integer and size.args[1] > 0:
        return f"({' * '.join([parts[0]] * int(size.args[1]))})"
    function = FUNCTIONS.get(type(size).__name__)
    if function is None:
        raise CannotPrint(f"no text for the size {size}")
    return function(*parts)


def address_text(strides: tuple[Size, ...], offset: Size, indirect: Iterable[tuple[str, Size]] = ()) -> str:
    """``offset + sum(strides[k] * i_k) + sum(stride * value)``."""
    terms = [_term(f"i{k}", s) for k, s in enumerate(strides) if s != 0]
    terms += [_term(v, s) for v, s in indirect if s != 0]
    if offset != 0 or not terms:
        terms.append(size_text(offset))
    return " + ".join(terms).replace("+ -", "- ")


def _term(name: str, stride: Size) -> str:
    return name if stride == 1 else f"{size_text(stride)}*{name}"


def symbols_of(sizes: Iterable[Size]) -> list[str]:
    """The names of the symbols in sizes, sorted."""
    return sorted({str(s) for size in sizes if not isinstance(size, int) for s in size.free_symbols})


def sizes_in(op: object) -> tuple[Size, ...]:
    """Every size an operation of a loop mentions."""
    if isinstance(op, Index):
        return (*op.strides, op.offset)
    access = getattr(op, "access", None)
    if isinstance(access, Access):
        return (*access.strides, access.offset, *(s for _, s in access.indirect))
    return ()
