"""Bytecode back to Python that means the same.  Imports no torch."""

from .api import decompile, readable
from .errors import DecompileError
from .reentered import reentered

__all__ = ["DecompileError", "decompile", "readable", "reentered"]
