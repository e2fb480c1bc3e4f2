"""CPython's own tests, each with the test method itself compiled: what passes plain must pass compiled.

    python -m tests.sweep.cpython [MODULE ...] [--only NAME ...] [--every N] [--jobs N] [--timeout SECONDS]
        [--json FILE]

A test is run plain; if it passes, again with ``tg.compile(method, backend="eager")`` in its class, twice: what the
second run finds is an entry, or it compiles another. ``setUp`` and the like stay plain. Each class of tests runs in a
forked process; where a test kills it or hangs, a new one goes on behind that test.

Prints each test that failed, died or hung compiled, or for which torchglass warned, then the sums; the exit status is 1
if there were any that neither ``EXCUSED`` nor ``KNOWN`` names.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
import json
import os
import resource
import signal
import sys
import time
import traceback
import unittest
import warnings
from collections import Counter
from typing import Any

from tests.complaints import complaints
from tests.sweep.cpython_modules import EXCUSED, KNOWN, MODULES
from tests.sweep.forked import Row, address_space, forked, messages, speaking

WHOLE, BREAKS, EAGER = "whole", "breaks", "eager"  # captured in one piece, in several, not at all
WRONG, CRASHED, COMPLAINED = "wrong", "crashed", "complained"
NOT_TRIED, EXCUSED_ROW, KNOWN_ROW = "not tried", "excused", "known"
BAD = (WRONG, CRASHED, COMPLAINED)

MEMORY = 4 << 30
SLOW = 5.0  # seconds that a test may take plain


# --- one test ---------------------------------------------------------------------------------------------------------
def classes_of(module: str) -> list[tuple[str, type[unittest.TestCase]]]:
    """The classes of tests that a module of CPython's ``test`` package holds; none where it cannot be imported."""
    try:
        found = importlib.import_module(f"test.{module}")
    except (ImportError, unittest.SkipTest):
        return []
    return [(n, v) for n, v in vars(found).items() if isinstance(v, type) and issubclass(v, unittest.TestCase)]


def outcome(test: unittest.TestCase) -> str:
    """What running a test gives: "passed", or the text of its failure. Its class is set up and torn down around it."""
    result = unittest.TestResult()
    unittest.TestSuite([test]).run(result)
    failed = [*result.failures, *result.errors]
    if failed:
        return "\n".join(text for _, text in failed)
    if result.skipped or result.expectedFailures or result.unexpectedSuccesses or not result.testsRun:
        return "skipped"
    return "passed"


def judge(cls: type[unittest.TestCase], name: str) -> Row:
    """One test, plain and compiled."""
    begin = time.perf_counter()
    function = getattr(cls, name)
    if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
        return {"result": NOT_TRIED, "why": "no plain function"}
    plain = outcome(cls(name))
    seconds = time.perf_counter() - begin
    if plain != "passed" or seconds > SLOW:
        return {"result": NOT_TRIED, "why": plain if plain != "passed" else f"{seconds:.0f} s plain"}
    return compiled(cls, name, function)


def compiled(cls: type[unittest.TestCase], name: str, function: Any) -> Row:
    import torchglass as tg

    tg.reset()
    replaced = tg.compile(function, backend="eager")
    own = vars(cls).get(name)
    begin = time.perf_counter()
    setattr(cls, name, replaced)
    try:
        with complaints() as texts:
            ran = [outcome(cls(name)), outcome(cls(name))]
    finally:
        if own is None:
            delattr(cls, name)
        else:
            setattr(cls, name, own)
    record = replaced.function_state.record  # `explain` would write its files first
    records = list(record.walk())
    entries = [len(record.entries), sum(len(r.entries) for r in records)]
    row: Row = {"seconds": round(time.perf_counter() - begin, 2), "entries": entries}
    failed = [f"run {n}: {text}" for n, text in enumerate(ran, 1) if text != "passed"]
    internal = [f.reason for r in records for f in r.fallbacks if f.stage == "compiler"]
    limits = [f.reason for r in records for f in r.fallbacks if f.stage == "cache limit"]
    reasons = [b.reason for r in records for e in r.entries for b in e.breaks]
    reasons += [f.reason for r in records for f in r.fallbacks]
    if failed:
        return {**row, "result": WRONG, "why": failed[0], "breaks": reasons}
    said = internal + [text for text in texts if text not in limits]
    if said:
        return {**row, "result": COMPLAINED, "why": said[0], "breaks": reasons}
    result = BREAKS if reasons and record.entries else EAGER if reasons else WHOLE
    return {**row, "result": result, "why": reasons[0] if reasons else "", "breaks": reasons}


# --- one class of tests, in processes of its own ----------------------------------------------------------------------
def run_child(module: str, class_name: str, names: list[str], pipe: int) -> None:
    import torch
    from test import support

    os.setpgid(0, 0)  # tests may start processes
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + MEMORY,) * 2)
    support.use_resources = ()
    support.verbose = 0
    cls = dict(classes_of(module))[class_name]
    with os.fdopen(pipe, "w") as out:

        def say(*message: Any) -> None:
            out.write(json.dumps(message) + "\n")
            out.flush()

        for name in names:
            say("begin", name)
            try:
                row = judge(cls, name)
            except BaseException:
                row = {"result": CRASHED, "why": traceback.format_exc()}
            say("end", name, row)


def run_class(module: str, class_name: str, names: list[str], timeout: float) -> list[Row]:
    """Judge the tests of a class, in as many processes as it takes."""
    rows: list[Row] = []
    while names:
        run_there = functools.partial(run_child, module, class_name, names)
        child, pipe = speaking(run_there, (0, 1) if os.environ.get("CPYTHON_LOUD") else (0, 1, 2))
        at, why = "", ""
        try:
            for message in messages(pipe, timeout):
                if message[0] == "begin":
                    at = message[1]
                else:
                    rows.append({"name": f"{module}.{class_name}.{message[1]}", **message[2]})
                    names, at = names[1:], ""
        except TimeoutError:
            os.killpg(child, signal.SIGKILL)
            why = f"hangs: nothing after {timeout:g} s"
        os.close(pipe)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if names:
            why = why or f"the process ended with {status}"
            rows.append({"name": f"{module}.{class_name}.{at or names[0]}", "result": CRASHED, "why": why})
            names = names[1:]
    return rows


# --- all of them ------------------------------------------------------------------------------------------------------
def chosen_tests(modules: list[str], only: list[str], every: int) -> dict[str, tuple[str, str, list[str]]]:
    """Names of tests by class: all of the modules, or those of which the name has one of ``only`` in it."""
    loader = unittest.TestLoader()
    found: dict[str, tuple[str, str, list[str]]] = {}
    number = 0
    for module in modules:
        for class_name, cls in classes_of(module):
            names = []
            for name in loader.getTestCaseNames(cls):
                if not only or any(part in f"{module}.{class_name}.{name}" for part in only):
                    number += 1
                    if number % every == 0:
                        names.append(name)
            if names:
                found[f"{module}.{class_name}"] = module, class_name, names
    return found


def excused(row: Row) -> Row:
    """A row that went wrong for a reason that is known and cannot be helped says so."""
    if row["result"] in BAD:
        for result, table in ((EXCUSED_ROW, EXCUSED), (KNOWN_ROW, KNOWN)):
            if row["name"] in table:
                return {**row, "result": result, "reason": table[row["name"]]}
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--json")
    chosen = parser.parse_args()
    import torchglass  # noqa: F401  (once, before there are children)

    warnings.simplefilter("ignore")
    tests = chosen_tests(chosen.modules or list(MODULES), chosen.only, chosen.every)
    rows: list[Row] = []
    judged = forked(lambda key: {"rows": run_class(*tests[key], chosen.timeout)}, tests, chosen.jobs, timeout=7200)
    for answer in judged:
        for row in map(excused, answer.get("rows", [answer])):
            rows.append(row)
            if row["result"] in BAD:
                print(f"{row['result']}: {row['name']}: {row['why'].strip().splitlines()[-1][:300]}", flush=True)
    counts = Counter(row["result"] for row in rows)
    print(f"{len(rows)} tests of {len({k.partition('.')[0] for k in tests})} modules: {dict(sorted(counts.items()))}")
    if chosen.json:
        with open(chosen.json, "w") as file:
            json.dump(rows, file, indent=1)
    return 1 if any(counts[result] for result in BAD) else 0


if __name__ == "__main__":
    sys.exit(main())
