"""Strings and bytes: formatting, methods, texts of containers."""

# ruff: noqa: SIM905, UP031, UP032
from __future__ import annotations

import string
import textwrap

from ..meanings.dataclasses_programs import Frozen
from ..meanings.enumerations_programs import Color
from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


@whole
def formatting(x):
    n = 3
    value = 2.5
    return f"{n:>5}|{value:.3f}|{n!r}|{x.shape}|{'a' + 'b'}", "%d-%s" % (n, "t"), f"{1} {2}", x + n


@breaking
def bytes_things(x):
    b = b"abc"
    ba = bytearray(b"xyz")
    ba[0] = 65
    ba += b"q"
    return (
        b[0],
        b.hex(),
        bytes(ba),
        len(ba),
        b.decode(),
        x + b[1],
        bytes([1, 2]),
        memoryview(b)[1],
        list(memoryview(b)),
        "é".encode(),
    )


@whole
def strings(x):
    s = "Hello World"
    return (
        s.lower(),
        s.split(),
        s.replace("l", "L"),
        s.find("W"),
        s[::-1],
        "-".join(["a", "b"]),
        s.startswith(("H", "x")),
        s.title(),
        s.center(20, "*"),
        "%s %d %.2f" % ("a", 1, 2.5),
        "{:>5}|{a!r}".format(3, a="z"),
        f"{3.14159:.2f} {s!r:>15} {x.shape} {x.shape[0]=}",
        s.partition(" "),
        s.encode(),
        "a,b".rsplit(",", 1),
        s.count("l"),
        s.isalpha(),
        "abc".translate({97: "z"}),
        str.maketrans("a", "b"),
        s.zfill(15),
        "x".ljust(3) + "|",
        s.casefold(),
        s.removeprefix("He"),
        "a\nb".splitlines(),
        s.format_map({}),
        s * 2,
        "lo" in s,
        ord("a"),
        chr(98),
        s.index("o"),
        x.sum(),
    )


@breaking
def string_template(x):
    return string.Template("$a b").substitute(a=1), textwrap.dedent("  a"), x + 1


@whole
def fstring_dtype(x):
    return f"{x.dtype} {x.device} {x.shape} {list(x.shape)} {x.dim()}"


@whole
def string_of_containers(x):
    return (
        str([1, "a", {"b": 2}]),
        repr((1, 2.5)),
        f"{[1, 2]} { {'a': 1} }",
        str({1}),
        str(None),
        str(slice(1, 2)),
        str(Color.RED),
        repr(Frozen(1)),
        x,
    )


@breaking
def str_methods_user(x):
    class S:
        def __str__(self):
            return "S!"

        def __format__(self, spec):
            return "F" + spec

    return str(S()), f"{S()}", f"{S():>3}", x


@program
def string_building():
    def f(x, d):
        s = ", ".join(f"{k}={v:>{5}.2f}" if isinstance(v, float) else f"{k}={v!r}" for k, v in sorted(d.items()))
        t = "%s|%-4d|%05.1f" % ("a", 3, 2.25)
        return x, s, t, "{:^7}".format(str(tuple(x.shape))), s.split("=")[0].upper().center(5, "*")

    return f, [(rand(2), {"b": 1, "a": 2.5}), (rand(2), {"c": "x"})]
