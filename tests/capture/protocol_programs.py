"""Programs about Python's own protocols: construction, copying, descriptors and operators, down to the words of errors."""

# ruff: noqa
from __future__ import annotations

import copy

import torch

from .tables import tables

WHOLE, BREAKING, whole, breaking = tables()


def says(function, *args):
    """What calling the function gives, or the words of what it raises."""
    try:
        return function(*args)
    except Exception as error:
        return type(error).__name__, str(error)


@whole
def arguments_of_object_new(x):
    class Plain:
        pass

    class Passing:
        def __new__(cls, *args):
            return super().__new__(cls, *args)

    class Taking:
        def __init__(self, n):
            self.n = n

    class Number(int):
        pass

    return (
        x + 1, says(object.__new__, Plain, 1), says(Passing, 1), says(Plain, 1), says(Number.__new__, Number, 3),
        type(object.__new__(Taking, 1)).__name__, says(object.__new__, Number), type(Passing()).__name__,
    )  # fmt: skip
