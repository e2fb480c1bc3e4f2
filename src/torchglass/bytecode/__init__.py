"""Decoding CPython bytecode. Imports no torch; shared by capture and the decompiler."""

from .decode import ExceptionEntry, Instruction, decode, exception_entries

__all__ = ["ExceptionEntry", "Instruction", "decode", "exception_entries"]
