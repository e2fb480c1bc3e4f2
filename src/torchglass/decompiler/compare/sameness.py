"""Whether two code objects, or a text and a code object, are the same program: one question, one answer.

The answer is by meaning: the same operations in the same order on the same values (``meaning.py``).  That two codes
have the same instructions (``instructions.py``) is the quick way to know it, and the only one on Python 3.10.
"""

from __future__ import annotations

from types import CodeType

from ...bytecode.canonical import VERSION
from ...process.warning_filters import ignored
from ..errors import DecompileError
from ..names import LAMBDA, identifier
from .instructions import instruction_difference, outside_difference
from .meaning import meaning_difference


def difference(a: CodeType, b: CodeType, name: bool = True) -> str | None:
    """What distinguishes ``b`` from ``a``; None when they mean the same.  ``name``: whether their names count."""
    why = instruction_difference(a, b, name)
    if why is None or VERSION < (3, 11):
        return why
    return outside_difference(a, b, name) or meaning_difference(a, b, difference)


def source_difference(text: str, code: CodeType, name: str | None = None, by_meaning: bool = True) -> str | None:
    """How the code that ``text`` compiles to differs from ``code``; None when it does not.

    Without ``by_meaning`` only the same instructions count as no difference: that is quick, and to be preferred.
    """
    named = name is None and code.co_name.isidentifier()
    other = compiled(text, code, name)
    why = instruction_difference(code, other, named)
    if why is not None and VERSION >= (3, 12) and "super" in text:
        # a module that mentions super elsewhere gets the plain call instead of LOAD_SUPER_ATTR
        why = instruction_difference(code, compiled(text + "\nsuper", code, name), named)
    return why and difference(code, other, named) if by_meaning else why


def find_code(module: CodeType, name: str) -> CodeType | None:
    """The code object called ``name`` in the compiled output, outermost first."""
    level = [module]
    while level:
        following = []
        for code in level:
            for const in code.co_consts:
                if isinstance(const, CodeType):
                    if const.co_name == name:
                        return const
                    following.append(const)
        level = following
    return None


def compiled(text: str, code: CodeType, name: str | None) -> CodeType:
    """Compile decompiled ``text`` and find the code object that stands for ``code``."""
    try:
        with ignored():
            module = compile(text, code.co_filename, "exec", 0, True)
    except (SyntaxError, ValueError) as error:
        raise DecompileError(f"{code.co_name}: the output does not compile: {error}") from error
    if code.co_name == "<module>":
        return module
    wanted = name or code.co_name
    if wanted == "<lambda>" and f"def {LAMBDA}(" in text:
        wanted = LAMBDA
    found = find_code(module, wanted if wanted == "<lambda>" else identifier(wanted))
    if found is None:
        raise DecompileError(f"{code.co_name}: not found in its own output")
    return found
