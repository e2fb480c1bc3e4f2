"""The names that the decompiler makes up."""

from __future__ import annotations

#: what the names of constants that source cannot write begin with; their index in ``co_consts`` follows
STAND_IN = "_constant_"
#: what a lambda is called whose body holds statements
LAMBDA = "_lambda"


def identifier(name: str) -> str:
    """``name`` with everything that no identifier may hold replaced."""
    return "".join(c if c.isalnum() or c == "_" else "_" for c in name)


def same_name(written: str, stored: str) -> bool:
    """Whether a definition called ``written`` is stored under ``stored`` (which may be mangled by a class)."""
    return written == stored or (written.startswith("__") and stored.endswith(written) and stored.startswith("_"))
