"""The names that torch.compile makes up for a graph and for resume functions, as the folder's names, and back.

    __compiled_fn_1_dbc7166b_fcd6_4fdc_9ebe_6954f4dd2f61   ->   graph_0
    __resume_at_138_104                                    ->   resume_at_8

Its names differ from run to run; text with them could not be compared, and lines in it would not stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import CodeType

GRAPH = "__compiled_fn"
RESUME = "__resume_at"


def shown_names(code: CodeType, resumes: Mapping[str, str]) -> dict[str, str]:
    """torch.compile's names in ``code`` to those to be shown; ``resumes`` has the folders of resume functions."""
    graphs = [name for name in code.co_names if name.startswith(GRAPH)]
    wanted = {name: f"graph_{n}" for n, name in enumerate(graphs)}
    wanted |= {name: resumes[name] for name in code.co_names if name in resumes}
    taken = set(_names(code))
    shown: dict[str, str] = {}
    for name, new in wanted.items():
        while new in taken:
            new += "_"
        taken.add(new)
        shown[name] = new
    return shown


def _names(code: CodeType) -> Iterator[str]:
    yield from (*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def renamed(code: CodeType, names: Mapping[str, str]) -> CodeType:
    """``code``, and the functions in it, with other global names."""
    return code.replace(
        co_names=tuple(names.get(name, name) for name in code.co_names),
        co_consts=tuple(renamed(c, names) if isinstance(c, CodeType) else c for c in code.co_consts),
    )
