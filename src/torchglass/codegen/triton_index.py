"""Sizes and addresses as Python text, known or symbolic: ``512*i0 + i1``, ``(s0*s1)*i0 + i1 + 3``.

The same text serves inside a kernel (on blocks of integers) and in the wrapper (on Python ints).
"""

from __future__ import annotations

from collections.abc import Iterable

from ..records.loops import Access, Index
from ..records.sizes import Size, text


def address_text(strides: tuple[Size, ...], offset: Size, indirect: Iterable[tuple[str, Size]] = ()) -> str:
    """``offset + sum(strides[k] * i_k) + sum(stride * value)``."""
    terms = [_term(f"i{k}", s) for k, s in enumerate(strides) if s != 0]
    terms += [_term(v, s) for v, s in indirect if s != 0]
    if offset != 0 or not terms:
        terms.append(text(offset))
    return " + ".join(terms).replace("+ -", "- ")


def _term(name: str, stride: Size) -> str:
    return name if stride == 1 else f"{text(stride)}*{name}"


def sizes_in(op: object) -> tuple[Size, ...]:
    """Every size an operation of a loop mentions."""
    if isinstance(op, Index):
        return (*op.strides, op.offset)
    access = getattr(op, "access", None)
    if isinstance(access, Access):
        return (*access.strides, access.offset, *(s for _, s in access.indirect))
    return ()
