"""Decompile every function of the running interpreter's standard library, recompile, compare.

``python -m benchmarks.decompile`` prints how many of them come back as the same bytecode and lists every one that does
not with its reason; ``--depyf`` runs depyf over the same functions with the same comparison, ``--every N`` takes a
sample, ``--json FILE`` writes the figures.  Works in any supported interpreter with ``src`` on its path; needs no torch
(depyf does).
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import json
import os
import platform
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Set
from types import CodeType
from typing import Any

from torchglass.decompiler import DecompileError, decompile
from torchglass.decompiler.compare.sameness import source_difference

LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "turtledemo", "site-packages", "__pycache__"}
TIME_LIMIT = 5.0


def library_functions() -> list[CodeType]:
    """Every function and method, at any depth, of ``Lib/`` (tests, idlelib, lib2to3 and turtledemo left out)."""
    return functions_below(os.path.dirname(os.__file__), LEFT_OUT)


def package_functions(names: str) -> list[CodeType]:
    """The functions of installed packages, given by name, separated by commas."""
    found: list[CodeType] = []
    for name in names.split(","):
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise SystemExit(f"no package {name!r} here")
        found.extend(functions_below(spec.submodule_search_locations[0], set()))
    return found


def functions_below(root: str, left_out: Set[str]) -> list[CodeType]:
    """The functions of all Python files below ``root``, files in order, but for the folders ``left_out``."""
    found: list[CodeType] = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in left_out)
        for name in sorted(files):
            if not name.endswith(".py"):
                continue
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                text = file.read()
            try:
                module = compile(text, path, "exec", 0, True)
            except (SyntaxError, ValueError):
                continue
            found.extend(_functions(module))
    return found


def _functions(code: CodeType) -> Iterator[CodeType]:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            if const.co_flags & 1 and not const.co_name.startswith("<"):
                yield const
            yield from _functions(const)


class _TimeOut(Exception):
    pass


def _alarm(number: int, frame: Any) -> None:
    raise _TimeOut


def judge(decompiler: Callable[[CodeType], str], code: CodeType) -> tuple[str, str, float]:
    """``(verdict, reason, seconds spent decompiling)`` for one function."""
    start = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, TIME_LIMIT, 1)  # again each second: depyf catches what it can
    try:
        text = decompiler(code)
    except _TimeOut:
        return "time-out", f"more than {TIME_LIMIT} s", TIME_LIMIT
    except DecompileError as error:
        return "refused", str(error).split("): ", 1)[-1], time.process_time() - start
    except Exception as error:  # the other decompiler raises anything
        return "crash", repr(error)[:120], time.process_time() - start
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    seconds = time.process_time() - start
    try:
        why = source_difference(text, code, by_meaning=False)
    except DecompileError as error:
        return "does not compile", str(error), seconds
    if why is None:
        return "equal", "", seconds
    by_meaning = source_difference(text, code)
    if text.startswith("# control flow"):
        compared = "its operations and values are the same" if by_meaning is None else f"not compared: {by_meaning}"
        return "state machine", f"{text.splitlines()[0][2:]} ({compared})", seconds
    if by_meaning is None:
        return "same operations", f"other instructions for the same operations on the same values: {why}", seconds
    said = text.startswith("# not the same bytecode")
    return ("differs, and says so" if said else "differs silently"), why, seconds


def run(name: str, decompiler: Callable[[CodeType], str], codes: list[CodeType], show: bool) -> dict[str, Any]:
    """Judge all of ``codes``; prints and returns the figures."""
    verdicts: collections.Counter[str] = collections.Counter()
    others: list[tuple[str, str, str]] = []
    total, slowest = 0.0, 0.0
    begin = time.process_time()
    for n, code in enumerate(codes):
        verdict, reason, seconds = judge(decompiler, code)
        verdicts[verdict] += 1
        total += seconds
        slowest = max(slowest, seconds)
        if verdict != "equal":
            others.append((verdict, f"{code.co_filename}:{code.co_firstlineno} {code.co_name}", reason))
        if sys.stderr.isatty() and n % 100 == 0:
            print(f"\r{name}: {n} of {len(codes)}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r" + " " * 60 + "\r", end="", file=sys.stderr)
    version = platform.python_version()
    print(f"{name}, CPython {version}: {len(codes)} functions")
    for verdict, count in verdicts.most_common():
        print(f"  {verdict:22} {count:6}  {100 * count / len(codes):6.2f} %")
    whole = time.process_time() - begin
    print(f"  decompiling {total:.1f} s of processor time (slowest {slowest:.2f}), with comparing {whole:.1f} s")
    if show:
        for verdict, place, reason in others:
            print(f"  - {verdict}: {place}: {reason}")
    return {"decompiler": name, "python": version, "functions": len(codes), "verdicts": dict(verdicts),
            "decompile_seconds": total, "slowest_seconds": slowest, "others": others}  # fmt: skip


def depyf_decompiler() -> Callable[[CodeType], str] | None:
    try:
        from depyf.decompiler import Decompiler
    except ImportError as error:
        print(f"depyf is not installed here ({error}); pip install depyf==0.20.0 to compare")
        return None
    return lambda code: Decompiler(code).decompile(overwite_fn_name=code.co_name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="take every Nth function only")
    parser.add_argument("--packages", help="functions of these installed packages (a,b,c) instead of the library's")
    parser.add_argument("--depyf", action="store_true", help="run depyf over the same functions too")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--quiet", action="store_true", help="do not list the functions that differ")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, _alarm)
    codes = package_functions(arguments.packages) if arguments.packages else library_functions()
    codes = codes[:: arguments.every]
    results = [run("torchglass", decompile, codes, not arguments.quiet)]
    if arguments.depyf:
        other = depyf_decompiler()
        if other is not None:
            results.append(run("depyf", other, codes, False))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
