"""Decoding CPython bytecode. Imports no torch; shared by capture and the decompiler."""

from .decode import PAIRS, ExceptionEntry, Instruction, codes_within, decode, exception_entries, protection
from .exceptions import build_table
from .parameters import parameter_names

__all__ = [
    "PAIRS",
    "ExceptionEntry",
    "Instruction",
    "build_table",
    "codes_within",
    "decode",
    "exception_entries",
    "parameter_names",
    "protection",
]
