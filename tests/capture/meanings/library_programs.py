"""The standard library: math, regular expressions, JSON, numbers, time, paths, threads."""

# ruff: noqa: SIM300
from __future__ import annotations

import datetime
import decimal
import fractions
import hashlib
import json
import math
import numbers
import os
import pathlib
import pickle
import re
import statistics
import sys
import threading
import time

from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


@whole
def versions_compared(x):
    old = sys.version_info < (3, 8), (3, 8) > sys.version_info, sys.version_info[:2] >= (3, 8)
    return old, (sys.version_info.major, *sys.version_info[3:]), x + 1


@whole
def pickled_keys(x):
    """As linear_operator remembers what its methods gave, by their arguments."""
    results = {}

    def remembered(*args, **kwargs):
        key = args, pickle.dumps(kwargs)
        if key not in results:
            results[key] = x + len(results)
        return results[key]

    parts = remembered(), remembered(1, upper=True), remembered(), remembered(1, upper=False, name="root")
    return parts, len(results), pickle.dumps([None, 1.5, b"a"], protocol=2)


@breaking
def pickled_twice(x):
    part = [len("ab")]
    return pickle.dumps([part, part]), pickle.dumps([part, list(part)]), x + 1


@whole
def math_all(x):
    return (
        math.sqrt(2),
        math.pi * x,
        math.ceil(2.1),
        math.gcd(4, 6),
        math.isclose(1, 1.0),
        math.log2(8),
        math.inf,
        math.prod([1, 2]),
        math.fsum([0.1, 0.2]),
        math.hypot(3, 4),
        math.comb(5, 2),
        math.floor(-1.5),
        math.isqrt(10),
    )


@whole
def re_all(x):
    m = re.match(r"(\w+)\.(\d+)", "layer.12")
    return (
        m.group(1),
        int(m[2]) + x.shape[0],
        re.sub("a", "b", "aaa"),
        re.findall(r"\d", "1a2"),
        bool(re.search("z", "abc")),
        re.compile("a+").fullmatch("aaa") is not None,
        re.split(",", "a,b"),
    )


@breaking
def json_things(x):
    return json.dumps({"a": 1}), json.loads("[1, 2]"), x + 1


@whole
def numbers_(x):
    return (
        isinstance(3, numbers.Number),
        isinstance(2.5, numbers.Real),
        fractions.Fraction(1, 3) + 1,
        decimal.Decimal("1.5") * 2,
        statistics.mean([1, 2, 3]),
        x,
    )


@whole
def os_env(x):
    return os.environ.get("NOPE_X", "d"), os.path.join("a", "b"), "HOME" in os.environ, os.getenv("NOPE_X"), x


@whole
def datetime_(x):
    return datetime.timedelta(seconds=1).total_seconds(), x


@breaking
def uuid_hash(x):
    return hashlib.md5(b"a").hexdigest(), x


@program
def regular_expressions():
    pattern = re.compile(r"layer\.(\d+)\.(weight|bias)")

    def f(params, pick):
        out = {}
        for name, p in params.items():
            m = pattern.fullmatch(name)
            if m and int(m.group(1)) in pick:
                out[re.sub(r"\.", "_", name)] = p * int(m[1])
        return out

    params = {f"layer.{i}.{n}": rand(2, seed=i) for i in range(3) for n in ("weight", "bias")}
    return f, [(params, (1, 2)), (params, (0,))]


@program
def json_and_paths():
    def f(x, text):
        cfg = json.loads(text)
        path = pathlib.PurePosixPath("/a") / cfg["name"]
        return x * cfg["scale"], path.suffix, str(path.with_suffix(".pt")), json.dumps(cfg, sort_keys=True)

    return f, [(rand(2), '{"scale": 2, "name": "m.bin"}'), (rand(2), '{"scale": 0.5, "name": "n.bin"}')]


@program
def threads_inside():
    def f(x):
        out = []
        t = threading.Thread(target=lambda: out.append(x * 2))
        t.start()
        t.join()
        return out[0] + 1

    return f, [(rand(2),)] * 2


@program
def time_is_measured():
    def f(x):
        begin = time.perf_counter()
        y = x.sin()
        took = time.perf_counter() - begin
        return y, took >= 0, isinstance(took, float)

    return f, [(rand(2),)] * 4
