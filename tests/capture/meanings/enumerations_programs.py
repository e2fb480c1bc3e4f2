"""Enumerations and flags: members, look-ups, made inside."""

# ruff: noqa: UP042
from __future__ import annotations

import enum

from ..shared import says
from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


class Color(enum.Enum):
    RED = 1
    BLUE = "b"

    @property
    def nice(self):
        return self.name.lower()


class Fl(enum.Flag):
    A = enum.auto()
    B = enum.auto()
    C = A | B


class IE(enum.IntEnum):
    X = 1
    Y = 2


class SE(str, enum.Enum):
    P = "p"


@whole
def enums(x):
    return (
        Color.RED.name,
        Color("b").value,
        Color["RED"] is Color.RED,
        Color.RED.nice,
        [c.name for c in Color],
        x * IE.Y,
        SE.P == "p",
        len(Color),
        Color.RED in Color,
        IE(2),
        SE("p").upper(),
    )


@whole
def flags(x):
    f = Fl.A | Fl.B
    return f == Fl.C, Fl.A in f, bool(f & Fl.A), ~Fl.A, f.value, x + f.value, list(f)


@whole
def enum_dict_keys(x):
    d = {Color.RED: x, Color.BLUE: x + 1}
    return d[Color("b")], {c: c.value for c in Color}


@whole
def enum_members(x):
    return (
        list(Color.__members__),
        Color.RED._value_,
        x + 1,
        isinstance(Color.RED, Color),
        str(Color.RED),
        f"{IE.X} {SE.P}",
        repr(Color.RED),
    )


@whole
def str_enum_dispatch(x):
    match Color.RED:
        case Color.RED:
            r = 1
        case Color.BLUE:
            r = 2
    return x + r


@whole
def enum_made_inside(x):
    class Color(enum.Enum):
        RED = 1
        BLUE = 2

        @property
        def double(self):
            return self.value * 2

    c = Color.BLUE
    if c is Color.BLUE:
        x = x * c.double
    return x, [m.name for m in Color], Color(1) is Color.RED, Color["RED"].value


@whole
def enum_with_auto_and_flags(x):
    class Kind(enum.IntEnum):
        A = enum.auto()
        B = enum.auto()

    class F(enum.Flag):
        R = enum.auto()
        W = enum.auto()

    both = F.R | F.W
    return x * Kind.B, F.R in both, len(list(Kind)), Kind.B + 1


@whole
def enumerations_that_name_their_values(x):
    class Color(enum.Enum):
        def _generate_next_value_(name, start, count, last):
            return name

        RED = enum.auto()
        BLUE = enum.auto()

    made = enum.Enum("Made", "ONE TWO")
    return (
        x + 1,
        [c.value for c in Color],
        made.__module__,
        type("Plain", (), {}).__module__,
        says(delattr, Color, "RED"),
    )


@breaking
def enumerations_that_bind_a_name_twice(x):
    def make():
        class Twice(enum.Enum):
            RED = 1
            RED = 2

    return x + 1, says(make)


class Mode(enum.Flag):
    NONE = 0
    SCALE = 1
    SHIFT = 2
    BOTH = SCALE | SHIFT


@program
def enum_flags():
    def f(x, mode):
        if Mode.SCALE in mode:
            x = x * 2
        if mode & Mode.SHIFT:
            x = x + 1
        return x, mode == Mode.BOTH, str(mode), bool(mode)

    return f, [(rand(2), m) for m in (Mode.NONE, Mode.SCALE, Mode.BOTH, Mode.SCALE | Mode.SHIFT)]
