"""Random programs that compute with sizes through ``tg.compile``, at changing sizes, against eager.

    python -m tests.sweep.programs [--backend glass] [--training] [--dynamic] [--from SEED] [--count N] [--calls N]
        [--show SEED] [--jobs N] [--json FILE]

Each seed is a program (``random_programs.py``) in a forked process of its own. All calls go to one compiled function;
outputs, gradients, what became of arguments, and which errors are raised have to be eager's. A line for each program
that differs, or that torchglass complained of (``refused``); then how many programs had how many entries, and what made
sizes numbers. The exit status is 1 if a program differed, died or hung. ``--show`` prints one program and all of its
entries.
"""

from __future__ import annotations

import argparse
import functools
import linecache
import re
import sys
import warnings
from collections import Counter
from typing import Any

import torch
from tests.complaints import complaints
from tests.sweep import commands
from tests.sweep.changing import told
from tests.sweep.forked import Row, forked, saved, tallied
from tests.sweep.op_samples import REFUSED, WHOLE, WRONG, tensors, weights
from tests.sweep.random_programs import Point, Program, program

import torchglass as tg
from torchglass.inspector import show

ENOUGH = 2  # entries: one for the first sizes, one for all others
WRITTEN = "modified by an inplace operation"
NO_PLACE = re.compile(r"index (-?\d+ )?is out of bounds for dimension|index out of range in self|out of DATA bounds")
INTENDED = re.compile("was compiled at more than a third of its calls|ran eagerly from now on")


class Outcome:
    """What one call leaves: an error's class, or outputs and gradients; and the arguments afterwards."""

    def __init__(self, function: Any, given: Program, point: Point, seed: int, training: bool) -> None:
        leaves = [leaf.requires_grad_(training) for leaf in given.arguments(point, seed)]
        arguments = [leaf * 1.0 for leaf in leaves] if training else leaves
        self.error, self.text, self.outputs = "", "", ()
        self.gradients: list[torch.Tensor | None] = []
        try:
            with torch.set_grad_enabled(training):
                self.outputs = function(*arguments, point[2])
            ends = [one for one in tensors(self.outputs) if one.requires_grad]
            if ends:
                shares = [weights(end) for end in ends]
                self.gradients = list(torch.autograd.grad(ends, leaves, shares, allow_unused=True))
        except Exception as error:
            self.error, self.text = type(error).__name__, f"{type(error).__name__}: {error}"[:400]
        self.arguments = arguments


def difference(found: Outcome, expected: Outcome) -> str:
    """What differs, or ''. What calls that fail have written before is not compared, nor who fails where backward needs
    what was written to since, nor what reads at places that are not there and is dropped (docs/limits.md).
    """
    dropped = not found.error and NO_PLACE.search(expected.text)
    if found.error != expected.error and not dropped and not any(WRITTEN in one.text for one in (found, expected)):
        return f"{found.text or 'no error'} instead of {expected.text or 'none'}"
    if found.error or expected.error:
        return ""
    for name in ("outputs", "gradients", "arguments"):
        try:
            _check(getattr(found, name), getattr(expected, name))
        except AssertionError as error:
            return f"{name}: {error}"[:400]
    return ""


def _check(found: Any, expected: Any) -> None:
    assert type(found) is type(expected), f"a {type(found).__name__} instead of a {type(expected).__name__}"
    if isinstance(expected, torch.Tensor):
        assert found.requires_grad == expected.requires_grad, f"requires_grad is {found.requires_grad}"
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6, equal_nan=True, check_stride=False)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), f"{len(found)} instead of {len(expected)}"
        for one, other in zip(found, expected):
            _check(one, other)
    else:
        assert found == expected, f"{found!r} instead of {expected!r}"


def judge(given: Program, chosen: argparse.Namespace) -> tuple[Row, Any]:
    """One program at all of its sizes, and what was compiled."""
    file = f"<program {chosen.backend}>"
    linecache.cache[file] = (len(given.text), None, given.text.splitlines(True), file)
    function = given.compiled(file)
    tg.reset()
    compiled = tg.compile(function, backend=chosen.backend, dynamic=chosen.dynamic)
    row: Row = {"counts": {WHOLE: 1}, "why": []}
    raised = False
    with warnings.catch_warnings(), complaints() as texts, told() as numbers:
        warnings.simplefilter("ignore")
        for call, point in enumerate(given.points):
            expected, found = (Outcome(one, given, point, call, chosen.training) for one in (function, compiled))
            raised = raised or bool(expected.error)
            if differs := difference(found, expected):
                row["why"].append(f"at {point}: {differs}")
    refused = [text for text in texts if not (raised or INTENDED.search(text))]
    if row["why"]:
        row["counts"] = {WRONG: 1}
    elif refused:
        row["counts"], row["why"] = {REFUSED: 1}, refused[:2]
    explained = tg.explain(compiled)
    row["entries"] = max(len(each.entries) for each in explained.record.walk())
    row["numbers"] = [*map(_kind, numbers), *_reasons(explained)] if row["entries"] > ENOUGH else []
    return row, compiled


def _reasons(explained: Any) -> list[str]:
    """What the guards rely on that made more entries than enough."""
    missed = [one.guard for each in explained.record.walk() for one in each.recompiles[ENOUGH - 1 :]]
    return [_kind(show.reason(guard)) for guard in missed if guard is not None]


def _kind(reason: str) -> str:
    """A reason without the names and numbers of one program."""
    return re.sub(r"\d+", "N", re.sub(r" \(<program .*|^.* as they are: ", "", reason))[:120]


def check(name: str, chosen: argparse.Namespace) -> Row:
    """The row of a seed."""
    given = program(int(name), chosen.calls)
    return {"name": name, **judge(given, chosen)[0]}


def warm(chosen: argparse.Namespace) -> None:
    """What all programs need is loaded before any process forks."""
    compiled = tg.compile(lambda x: torch.tanh(x.reshape(-1)[: x.shape[0]]).sum(0) * x.shape[0], backend=chosen.backend)
    for size in (3, 4, 5):
        compiled(torch.randn(size, size, dtype=torch.float64))  # no backward: it starts threads for a GPU


def shown(chosen: argparse.Namespace) -> int:
    """Print one program, how it differs, and all of its entries."""
    given = program(chosen.show, chosen.calls)
    print(given)
    row, compiled = judge(given, chosen)
    print(*row["why"], tg.explain(compiled), sep="\n")
    return 1 if row["why"] else 0


def main() -> int:
    parser = commands.arguments(__doc__ or "", timeout=120)
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--dynamic", action="store_const", const=True, help="all sizes are symbols")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--calls", type=int, default=4)
    parser.add_argument("--show", type=int)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    warm(chosen)
    if chosen.show is not None:
        return shown(chosen)
    names = map(str, range(chosen.first, chosen.first + chosen.count))
    rows = []
    for row in forked(functools.partial(check, chosen=chosen), names, chosen.jobs, chosen.timeout):
        rows.append(row)
        if len(rows) % 100 == 0:
            print(f"{len(rows)} programs", flush=True)
        if row["why"]:
            result = next(iter(row.get("counts", ["crashed"])))
            why = row["why"] if isinstance(row["why"], list) else [row["why"]]
            given = program(int(row["name"]), chosen.calls)
            print(
                f"===== seed {row['name']}: {result}, {row.get('entries')} entries", given, *why, sep="\n", flush=True
            )
    counts = tallied(rows)
    reasons = Counter(reason for row in rows for reason in set(row.get("numbers", ())))
    for reason, count in reasons.most_common(40):
        print(f"{count:5} {reason}")
    print("entries, and of how many programs:", dict(sorted(Counter(row.get("entries", 0) for row in rows).items())))
    print(f"{chosen.backend}: {len(rows)} programs at {chosen.calls} sizes each: {dict(counts)}")
    saved(rows, counts, chosen.json)
    return 1 if counts[WRONG] or counts["crashed"] else 0


if __name__ == "__main__":
    sys.exit(main())
