"""PyTorch's operator database through ``tg.compile``: every operator, every sample input, against eager.

    python -m tests.sweep.op_db --backend glass --dtype float32 [--only NAME ...] [--every N] [--samples N] [--jobs N]
        [--together N] --json FILE

``--every N`` takes each Nth operator, ``--samples N`` at most N of an operator's samples, evenly spread. Forward
always; backward where the operator can be differentiated in that dtype (``--no-backward`` leaves it out). Each operator
runs in a forked process: one that dies or hangs counts as a crash of the sample it was at, and the next sample gets a
new one.

``--together N`` puts N samples into one graph, and judges them one by one only where that graph is not right.

Prints a line for each operator that is not captured whole with right results, then the sums and how many operators
became loops wholly, in part or not at all; the exit status is 1 if a sample was wrong or crashed.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from tests.sweep.forked import forked, messages, speaking
from tests.sweep.op_samples import BREAKS, CRASHED, REFUSED, SKIPPED, WHOLE, WRONG, judge

RESULTS = (WHOLE, BREAKS, REFUSED, WRONG, CRASHED, SKIPPED)


class Plan(NamedTuple):
    """What to do with an operator."""

    backend: str
    dtype: str
    backward: bool = True
    samples: int | None = None
    timeout: float = 60.0  # seconds for one sample
    together: int = 1  # samples in one graph, judged one by one only where that graph is not right


@dataclass
class Row:
    """What one operator's samples gave: how many of each result, and some of the reasons."""

    operator: str
    counts: dict[str, int] = field(default_factory=dict)
    why: list[str] = field(default_factory=list)
    seconds: float = 0.0
    loops: int = 0  # made by all samples together
    calls: dict[str, int] = field(default_factory=dict)  # ATen operators that stayed calls

    @property
    def lowered(self) -> str:
        """How the operator was generated: "loops", "partly", "ATen", or "nothing" for views and refusals."""
        return {(0, 0): "nothing", (1, 0): "loops", (0, 1): "ATen"}.get((bool(self.loops), bool(self.calls)), "partly")

    def note(self, sample: int, result: str, why: str, loops: int = 0, calls: Sequence[str] = ()) -> None:
        self.loops += loops
        for call in calls:
            self.calls[call] = self.calls.get(call, 0) + 1
        self.counts[result] = self.counts.get(result, 0) + 1
        line = f"{result} at sample {sample}: {why}"
        if result not in (WHOLE, SKIPPED) and len(self.why) < 8:
            self.why.append(line)

    @property
    def good(self) -> bool:
        return not any(self.counts.get(result) for result in (WRONG, CRASHED))


def operators(dtype: str, only: list[str] | None = None, every: int = 1) -> list[Any]:
    """The database's operators that support ``dtype`` on a CPU."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    chosen = [op for op in op_db if op.supports_dtype(getattr(torch, dtype), "cpu")]
    if only:
        return [op for op in chosen if op.name in only or op.full_name in only]
    return chosen[::every]


def samples_of(op: Any, plan: Plan) -> Iterator[tuple[int, Any]]:
    """The operator's samples with their numbers."""
    import torch

    dtype = getattr(torch, plan.dtype)
    needs_grad = plan.backward and op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    torch.manual_seed(0)
    made = list(op.sample_inputs("cpu", dtype, requires_grad=needs_grad))
    step = max(1, -(-len(made) // plan.samples)) if plan.samples else 1
    yield from list(enumerate(made))[::step]


def run_child(op: Any, plan: Plan, after: int, alone: int, pipe: int) -> None:
    """Judge the samples beyond number ``after``, up to number ``alone`` one by one; one line of JSON before and one
    behind each.
    """
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with os.fdopen(pipe, "w") as out:

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
                verdict = judge(op, [sample], plan.backend, plan.backward)
                say("end", number, verdict.result, verdict.why, verdict.loops, verdict.calls)
        say("done")


def run(op: Any, plan: Plan) -> Row:
    """Judge one operator in child processes."""
    row = Row(op.full_name)
    begin, at, alone, finished = time.perf_counter(), -1, -1, False
    while not finished:
        run_there = functools.partial(run_child, op, plan, at, alone)
        child, pipe = speaking(run_there, (1,) if os.environ.get("OP_DB_LOUD") else (1, 2))
        started, ended, last, why = at, at, at, ""
        try:
            for message in messages(pipe, plan.timeout):
                if message[0] == "begin":
                    started = message[1]
                elif message[0] == "group":
                    last = message[1]
                elif message[0] == "end":
                    started = ended = message[1]
                    row.note(*message[1:])
                else:
                    finished = True
        except TimeoutError:
            os.kill(child, signal.SIGKILL)
            why = f"time-out after {plan.timeout:g} s"
        os.close(pipe)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if not finished and started == ended < last and alone < last:
            at, alone = ended, last  # it died in a graph of several samples
        elif not finished:
            row.note(started, CRASHED, why or f"the process ended with {status}")
            finished = started == ended  # it died outside a sample: the samples themselves cannot be made
            at = started
    row.seconds = round(time.perf_counter() - begin, 2)
    return row


def judged(ops: list[Any], plan: Plan, jobs: int) -> Iterator[Row]:
    """Rows of all operators as they are done, ``jobs`` at a time."""
    if jobs == 1:
        yield from (run(op, plan) for op in ops)
        return
    named = {str(number): op for number, op in enumerate(ops)}
    for row in forked(lambda number: asdict(run(named[number], plan)), named, jobs, timeout=3600.0):
        known = {key: row[key] for key in Row.__dataclass_fields__ if key in row}
        yield Row(**known) if "operator" in row else Row(named[row["name"]].full_name, {CRASHED: 1}, [row["why"]])


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
    parser.add_argument("--json")
    chosen = parser.parse_args()
    plan = Plan(chosen.backend, chosen.dtype, not chosen.no_backward, chosen.samples, chosen.timeout, chosen.together)
    rows = []
    for row in judged(operators(chosen.dtype, chosen.only, chosen.every), plan, chosen.jobs):
        rows.append(row)
        if row.why:
            print(row.operator, row.counts, row.why[0], flush=True)
    print("generated:", dict(Counter(row.lowered for row in rows)))
    print(f"{plan.backend} {plan.dtype}: {len(rows)} operators, {share_whole(rows):.1f} % whole; samples: {sums(rows)}")
    if chosen.json:
        with open(chosen.json, "w") as file:
            json.dump(
                {"plan": plan._asdict(), "sums": sums(rows), "rows": [asdict(row) for row in rows]}, file, indent=1
            )
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
