"""PyTorch's operator database through ``tg.compile``: every operator, every sample input, against eager.

    python -m tests.sweep.op_db --backend glass --dtype float32 [--only NAME ...] [--every N] [--samples N] [--jobs N]
        [--together N] [--changing [--dynamic]] [--device cuda] [--target gpu] [--shard K/N] --json FILE

``--every N`` takes each Nth operator, ``--samples N`` at most N of an operator's samples, evenly spread. Forward
always; backward where the operator can be differentiated in that dtype (``--no-backward`` leaves it out). Each operator
runs in a forked process: one that dies or hangs counts as a crash of the sample it was at, and the next sample gets a
new one. With ``--device cuda`` samples are made there, and processes are started anew rather than forked, since CUDA
does not work in a fork of a process that has used it; each judges one operator after the other until it dies.

``--target gpu`` compiles samples on the CPU as for a GPU, and runs the kernels without one (``stand_in.py``);
``--target small-gpu`` for one on which small samples are long rows.

``--changing`` calls each sample with more rows, too, in all its tensors that have as many as the first: a size that is
a symbol from the second call on, or with ``--dynamic`` from the first. Samples that eager takes at no other size are
skipped.

``--together N`` puts N samples into one graph, and judges them one by one only where that graph is not right.

Prints a line for each operator that is not captured whole with right results, then the sums and how many operators
became loops wholly, in part or not at all; the exit status is 1 if a sample was wrong or crashed.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from tests.sweep.forked import forked, messages, speaking
from tests.sweep.op_samples import BREAKS, CRASHED, REFUSED, SKIPPED, WHOLE, WRONG, judge
from tests.sweep.stand_in import GPUS, standing_in

RESULTS = (WHOLE, BREAKS, REFUSED, WRONG, CRASHED, SKIPPED)


class Plan(NamedTuple):
    """What to do with an operator."""

    backend: str
    dtype: str
    backward: bool = True
    samples: int | None = None
    timeout: float = 60.0  # seconds for one sample
    together: int = 1  # samples in one graph, judged one by one only where that graph is not right
    device: str = "cpu"
    target: str = ""  # a GPU that what is on the CPU is compiled for
    changing: bool = False
    dynamic: bool | None = None


@dataclass
class Row:
    """What one operator's samples gave: how many of each result, and some of the reasons."""

    operator: str
    counts: dict[str, int] = field(default_factory=dict)
    why: list[str] = field(default_factory=list)
    seconds: float = 0.0
    loops: int = 0  # made by all samples together
    calls: dict[str, int] = field(default_factory=dict)  # ATen operators that stayed calls
    more: dict[str, int] = field(default_factory=dict)  # why there are more than two entries, and of how many samples

    @property
    def lowered(self) -> str:
        """How the operator was generated: "loops", "partly", "ATen", or "nothing" for views and refusals."""
        return {(0, 0): "nothing", (1, 0): "loops", (0, 1): "ATen"}.get((bool(self.loops), bool(self.calls)), "partly")

    def note(
        self, sample: int, result: str, why: str, loops: int = 0, calls: Sequence[str] = (), more: str = ""
    ) -> None:
        self.loops += loops
        if more:
            self.more[more] = self.more.get(more, 0) + 1
        for call in calls:
            self.calls[call] = self.calls.get(call, 0) + 1
        self.counts[result] = self.counts.get(result, 0) + 1
        line = f"{result} at sample {sample}: {why}"
        if result not in (WHOLE, SKIPPED) and len(self.why) < 8:
            self.why.append(line)

    @property
    def good(self) -> bool:
        return not any(self.counts.get(result) for result in (WRONG, CRASHED))


def operators(dtype: str, only: list[str] | None = None, every: int = 1, device: str = "cpu") -> list[Any]:
    """The database's operators that support ``dtype`` on a device."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    chosen = [op for op in op_db if op.supports_dtype(getattr(torch, dtype), device)]
    if only:
        return [op for op in chosen if op.name in only or op.full_name in only]
    return chosen[::every]


def samples_of(op: Any, plan: Plan) -> Iterator[tuple[int, Any]]:
    """The operator's samples with their numbers."""
    import torch

    dtype = getattr(torch, plan.dtype)
    needs_grad = plan.backward and op.supports_autograd and dtype in op.supported_backward_dtypes(plan.device)
    torch.manual_seed(0)
    made = list(op.sample_inputs(plan.device, dtype, requires_grad=needs_grad))
    step = max(1, -(-len(made) // plan.samples)) if plan.samples else 1
    yield from list(enumerate(made))[::step]


def run_child(op: Any, plan: Plan, after: int, alone: int, pipe: int) -> None:
    """Judge the samples beyond number ``after``, up to number ``alone`` one by one; one line of JSON before and one
    behind each.
    """
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with os.fdopen(pipe, "w") as out, standing_in(plan.target) if plan.target else contextlib.nullcontext():

        def say(*message: Any) -> None:
            out.write(json.dumps(message) + "\n")
            out.flush()

        left = [(number, sample) for number, sample in samples_of(op, plan) if number > after]
        while left:
            size = 1 if left[0][0] <= alone else plan.together
            group, left = left[:size], left[size:]
            if size > 1:
                say("group", group[-1][0])
                verdict = judge(op, [sample for _, sample in group], plan.backend, plan.backward)
                if verdict.result == WHOLE:
                    for number, _ in group:
                        say("end", number, WHOLE, "", verdict.loops if number == group[0][0] else 0, verdict.calls)
                    continue
            for number, sample in group:
                say("begin", number)
                verdict = judge(op, [sample], plan.backend, plan.backward, plan.changing, plan.dynamic)
                say("end", number, verdict.result, verdict.why, verdict.loops, verdict.calls, verdict.more)
                if "CUDA error" in verdict.why:
                    say("poisoned")  # from here on every call in this process would fail with it
                    return
        say("done")


class Forked:
    """Who judges: a forked child for each question."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.child, self.pipe = plan, 0, -1

    def ask(self, op: Any, after: int, alone: int) -> Iterator[list[Any]]:
        """What a child says that judges the samples beyond number ``after``; TimeoutError where it says nothing."""
        run_there = functools.partial(run_child, op, self.plan, after, alone)
        self.child, self.pipe = speaking(run_there, (1,) if os.environ.get("OP_DB_LOUD") else (1, 2))
        yield from messages(self.pipe, self.plan.timeout)

    def end(self, kill: bool = False) -> int:
        """The child's exit status when it has ended, which it does unless it hangs."""
        if not self.child:
            return 0
        if kill:
            os.kill(self.child, signal.SIGKILL)
        _, status = os.waitpid(self.child, 0)
        os.close(self.pipe)
        self.child = 0
        return os.waitstatus_to_exitcode(status)


class Spawned:
    """Who judges: a new process of Python, which answers one question after the other until it dies."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.child: subprocess.Popen[str] | None = None

    def ask(self, op: Any, after: int, alone: int) -> Iterator[list[Any]]:
        if self.child is None or self.child.poll() is not None:
            self.end()
            reading, writing = os.pipe()
            command = [sys.executable, "-m", "tests.sweep.op_db", "--answer", json.dumps([self.plan, writing])]
            quiet = None if os.environ.get("OP_DB_LOUD") else subprocess.DEVNULL
            self.child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, pass_fds=[writing], text=True
            )
            os.close(writing)
            self.pipe = reading
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps([op.full_name, after, alone]) + "\n")
        self.child.stdin.flush()
        for message in messages(self.pipe, self.plan.timeout + STARTING):
            yield message
            if message[0] in ("done", "poisoned"):
                return

    def end(self, kill: bool = False) -> int:
        child, self.child = self.child, None
        if child is None:
            return 0
        if kill:
            child.kill()
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()  # there will be no more questions
        os.close(self.pipe)
        return child.wait()


STARTING = 60.0
"""Seconds that a new process has for importing the database and starting CUDA."""


def answer(plan: Plan, pipe: int) -> None:
    """Answer the questions on the standard input, a line of JSON each, as ``run_child`` does."""
    named = {op.full_name: op for op in operators(plan.dtype, device=plan.device)}
    for line in sys.stdin:
        name, after, alone = json.loads(line)
        run_child(named[name], plan, after, alone, os.dup(pipe))


def run(op: Any, plan: Plan, judges: Forked | Spawned) -> Row:
    """Judge one operator in other processes."""
    row = Row(op.full_name)
    begin, at, alone, finished = time.perf_counter(), -1, -1, False
    while not finished:
        started, ended, last, why, poisoned = at, at, at, "", False
        try:
            for message in judges.ask(op, at, alone):
                if message[0] == "poisoned":
                    poisoned = True
                elif message[0] == "begin":
                    started = message[1]
                elif message[0] == "group":
                    last = message[1]
                elif message[0] == "end":
                    started = ended = message[1]
                    row.note(*message[1:])
                else:
                    finished = True
        except TimeoutError:
            why = f"time-out after {plan.timeout:g} s"
        if finished:
            break
        status = judges.end(kill=bool(why))
        if poisoned:
            at = ended
        elif started == ended < last and alone < last:
            at, alone = ended, last  # it died in a graph of several samples
        else:
            row.note(started, CRASHED, why or f"the process ended with {status}")
            finished = started == ended  # it died outside a sample: the samples themselves cannot be made
            at = started
    row.seconds = round(time.perf_counter() - begin, 2)
    return row


def judged(ops: list[Any], plan: Plan, jobs: int, spawn: bool = False) -> Iterator[Row]:
    """Rows of all operators as they are done, ``jobs`` at a time."""
    if spawn:
        yield from _judged_by_spawned(ops, plan, jobs)
        return
    if jobs == 1:
        yield from (_judged_by_forked(op, plan) for op in ops)
        return
    named = {str(number): op for number, op in enumerate(ops)}
    there = lambda number: asdict(_judged_by_forked(named[number], plan))
    for row in forked(there, named, jobs, timeout=3600.0):
        known = {key: row[key] for key in Row.__dataclass_fields__ if key in row}
        yield Row(**known) if "operator" in row else Row(named[row["name"]].full_name, {CRASHED: 1}, [row["why"]])


def _judged_by_forked(op: Any, plan: Plan) -> Row:
    judges = Forked(plan)
    try:
        return run(op, plan, judges)
    finally:
        judges.end()


def _judged_by_spawned(ops: list[Any], plan: Plan, jobs: int) -> Iterator[Row]:
    """A thread for each process; threads only wait."""
    idle = [Spawned(plan) for _ in range(jobs)]

    def one(op: Any) -> Row:
        judges = idle.pop()
        try:
            return run(op, plan, judges)
        finally:
            idle.append(judges)

    with ThreadPoolExecutor(jobs) as pool:
        try:
            yield from (future.result() for future in as_completed([pool.submit(one, op) for op in ops]))
        finally:
            pool.shutdown(cancel_futures=True)
            for judges in idle:
                judges.end()


def sums(rows: list[Row]) -> dict[str, int]:
    return {result: sum(row.counts.get(result, 0) for row in rows) for result in RESULTS}


def share_whole(rows: list[Row]) -> float:
    """The share of operators whose every sample is captured whole, in percent; those without samples left out."""
    counted = [row for row in rows if any(row.counts.get(r) for r in RESULTS if r != SKIPPED)]
    whole = [row for row in counted if not any(row.counts.get(r) for r in (BREAKS, REFUSED, WRONG, CRASHED))]
    return 100 * len(whole) / max(len(counted), 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="glass")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--samples", type=int)
    parser.add_argument("--no-backward", action="store_true")
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--together", type=int, default=1)
    parser.add_argument("--changing", action="store_true", help="with other numbers of rows, too")
    parser.add_argument("--dynamic", action="store_const", const=True, help="all sizes are symbols")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--target", default="", choices=["", *GPUS])
    parser.add_argument("--spawn", action="store_true", help="start processes anew, as on any device but a CPU")
    parser.add_argument("--shard", default="0/1", help="k/n: every n-th operator from the k-th on")
    parser.add_argument("--json")
    parser.add_argument("--answer", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.answer:
        fields, pipe = json.loads(chosen.answer)
        answer(Plan(*fields), pipe)
        return 0
    backward = not chosen.no_backward
    plan = Plan(
        chosen.backend, chosen.dtype, backward, chosen.samples, chosen.timeout,
        1 if chosen.changing else chosen.together, chosen.device,
        chosen.target, chosen.changing, chosen.dynamic,
    )  # fmt: skip
    first, step = map(int, chosen.shard.split("/"))
    ops = operators(chosen.dtype, chosen.only, chosen.every, chosen.device)[first::step]
    rows = []
    for row in judged(ops, plan, chosen.jobs, spawn=chosen.spawn or chosen.device != "cpu"):
        rows.append(row)
        if row.why or row.more:
            print(row.operator, row.counts, *row.why[:1], *list(row.more.items())[:2], flush=True)
    if plan.changing:
        print("more entries than two, or sizes that became numbers:", sum(bool(row.more) for row in rows), "operators")
    print("generated:", dict(Counter(row.lowered for row in rows)))
    where = "" if plan.device == "cpu" else f" on {plan.device}"
    where += f" for {plan.target}" if plan.target else ""
    counted = f"{len(rows)} operators, {share_whole(rows):.1f} % whole; samples: {sums(rows)}"
    print(f"{plan.backend} {plan.dtype}{where}: {counted}")
    if chosen.json:
        with open(chosen.json, "w") as file:
            json.dump(
                {"plan": plan._asdict(), "sums": sums(rows), "rows": [asdict(row) for row in rows]}, file, indent=1
            )
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
