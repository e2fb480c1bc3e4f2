"""The programs whose tensors have other sizes from call to call."""

from . import changing_numbers, changing_tensors  # noqa: F401
from .changing_program import PROGRAMS as PROGRAMS
from .changing_program import Program as Program
