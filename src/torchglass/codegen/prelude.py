"""The part of prelude.h that a C file needs: its kernels in, the definitions that they use and what those use out.

A kernel that multiplies gets none of it, so that the file is about the kernel. Nor does it get headers that declare
nothing it calls: a compiler takes a tenth of its time for reading them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .c_ops import CALLED, LIBM

HEADERS: dict[str, frozenset[str]] = {
    "stdlib.h": frozenset({"free", "aligned_alloc"}),
    "math.h": frozenset(f"{name}{suffix}" for name in (*LIBM, *CALLED, "fmod") for suffix in ("", "f")),
    "omp.h": frozenset({"omp_get_thread_num", "omp_get_num_threads", "omp_get_max_threads"}),
}
"""What C files call, by the header that declares it."""

_CALL = re.compile(r"\b\w+\(")
_BETWEEN = {c: " " for c in range(128) if not (chr(c).isalnum() or chr(c) == "_")}
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_DEFINED = (
    re.compile(r"^#define (\w+)", re.MULTILINE),
    re.compile(r"^typedef .*\b(\w+);", re.MULTILINE),
    re.compile(r"^(?:INLINE|static|int64_t) .*?\b(tg_\w+)(?=[(;\[])", re.MULTILINE),
    re.compile(r"^TURN\((\w+)", re.MULTILINE),
)
_DECLARED = (re.compile(r"\bVECTOR \w+ (\w+)\("), re.compile(r"\bVECTOR_OF\((\w+)\)"))


class _Paragraph(NamedTuple):
    text: str
    defines: frozenset[str]
    uses: frozenset[str]


def words_of(code: str) -> set[str]:
    """The words of C code, those that are called also with a parenthesis: ``exp(`` is a function, ``exp`` a name."""
    return {*code.translate(_BETWEEN).split(), *_CALL.findall(code)}


def prelude_of(words: Iterable[str]) -> str:
    """The headers and the paragraphs of prelude.h that kernels of these words need, in their order."""
    first, paragraphs = _paragraphs()
    wanted = set(words)
    taken: set[int] = set()
    while more := [n for n, p in enumerate(paragraphs) if n not in taken and p.defines & wanted]:
        taken.update(more)
        wanted.update(*(paragraphs[n].uses for n in more))
    headers = [f"#include <{header}>" for header, names in HEADERS.items() if any(f"{n}(" in wanted for n in names)]
    return "\n\n".join(("\n".join((first, *headers)), *(paragraphs[n].text for n in sorted(taken))))


@cache
def _paragraphs() -> tuple[str, tuple[_Paragraph, ...]]:
    """What every file includes, and what blank lines separate below."""
    first, *texts = (Path(__file__).parent / "prelude.h").read_text().rstrip().split("\n\n")
    paragraphs = []
    for text in texts:
        defines = _defined(text)
        paragraphs.append(_Paragraph(text, defines, frozenset(words_of(_COMMENT.sub("", text))) - defines))
    return first, tuple(paragraphs)


def _defined(text: str) -> frozenset[str]:
    """What a paragraph defines, and what is called of the C library that it declares."""
    names = {name for pattern in _DEFINED for name in pattern.findall(text)}
    called = {name for pattern in _DECLARED for name in pattern.findall(text)}
    return frozenset(names | {f"{name}{suffix}(" for name in called for suffix in ("", "f")})  # VECTOR_OF(acos): acosf
