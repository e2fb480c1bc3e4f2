"""What functions written in C do, as Python that the machine interprets in their place: code as users write it."""

from . import builtins, contexts, dicts, distributions, exceptions, functools, heapq, itertools, operator
from .registry import NAMED, POLYFILLS

__all__ = [
    "NAMED", "POLYFILLS", "builtins", "contexts", "dicts", "distributions", "exceptions", "functools", "heapq",
    "itertools", "operator",
]  # fmt: skip
