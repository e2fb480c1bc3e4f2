"""The part of prelude.h that a C file needs: its kernels in, the definitions that they use and what those use out.

A kernel that multiplies gets the headers and nothing else, so that the file is about the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

_BETWEEN = {c: " " for c in range(128) if not (chr(c).isalnum() or chr(c) == "_")}
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_DEFINED = (
    re.compile(r"^#define (\w+)", re.MULTILINE),
    re.compile(r"^typedef .*\b(\w+);", re.MULTILINE),
    re.compile(r"^(?:INLINE|static|int64_t) .*?\b(tg_\w+)(?=[(;\[])", re.MULTILINE),
    re.compile(r"\bVECTOR \w+ (\w+)\("),
    re.compile(r"^TURN\((\w+)", re.MULTILINE),
    re.compile(r"\bVECTOR_OF\((\w+)\)"),
)


class _Paragraph(NamedTuple):
    text: str
    defines: frozenset[str]
    uses: frozenset[str]


def words_of(code: str) -> set[str]:
    """The words of C code."""
    return set(code.translate(_BETWEEN).split())


def prelude_of(words: Iterable[str]) -> str:
    """The headers and the paragraphs of prelude.h that kernels of these words need, in their order."""
    headers, paragraphs = _paragraphs()
    wanted = set(words)
    taken: set[int] = set()
    while more := [n for n, p in enumerate(paragraphs) if n not in taken and p.defines & wanted]:
        taken.update(more)
        wanted.update(*(paragraphs[n].uses for n in more))
    return "\n\n".join((headers, *(paragraphs[n].text for n in sorted(taken))))


@cache
def _paragraphs() -> tuple[str, tuple[_Paragraph, ...]]:
    """The includes, and what blank lines separate below them."""
    headers, *texts = (Path(__file__).parent / "prelude.h").read_text().rstrip().split("\n\n")
    paragraphs = []
    for text in texts:
        defines = _defined(text)
        paragraphs.append(_Paragraph(text, defines, frozenset(words_of(_COMMENT.sub("", text))) - defines))
    return headers, tuple(paragraphs)


def _defined(text: str) -> frozenset[str]:
    names = {name for pattern in _DEFINED for name in pattern.findall(text)}
    return frozenset(names | {f"{name}f" for name in names})  # VECTOR_OF(acos) is acosf, too
