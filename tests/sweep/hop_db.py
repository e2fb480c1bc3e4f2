"""PyTorch's databases of higher-order operators, custom operators and autograd functions through ``tg.compile``.

    python -m tests.sweep.hop_db [--backend glass] [--only cond ...] [--dtype float32] [--jobs N] [--json FILE]

Every sample runs forward and, where the operator supports it, backward, and must leave what eager leaves. A row is one
entry of one database, in a forked process of its own. The exit status is 1 if a sample was wrong or crashed.
"""

from __future__ import annotations

import argparse
import functools
import sys
import warnings
from collections import Counter
from typing import Any

import torch
from tests.complaints import complaints
from tests.sweep import commands
from tests.sweep.forked import Row
from tests.sweep.op_samples import BREAKS, REFUSED, SKIPPED, WHOLE, WRONG, Outcome, compare, fresh, mapped, tensors
from torch.testing._internal.autograd_function_db import autograd_function_db
from torch.testing._internal.custom_op_db import custom_op_db
from torch.testing._internal.hop_db import hop_db

import torchglass as tg
from torchglass.errors import CompileError, GraphBreakError

DATABASES = {"hop": hop_db, "custom_op": custom_op_db, "autograd_function": autograd_function_db}


def cases(dtype: torch.dtype, only: list[str] | None = None) -> dict[str, Any]:
    """The entries that run with ``dtype`` on a CPU, by the names of their rows."""
    named = {}
    for database, entries in DATABASES.items():
        for entry in entries:
            name = f"{database} {entry.name} {entry.variant_test_name}".strip()
            if dtype in entry.supported_dtypes("cpu") and (not only or entry.name in only):
                named[name] = entry
    return named


def outcome(call: Any, sample: Any, training: bool) -> Outcome:
    """What one call leaves."""
    inputs, args, kwargs = mapped(fresh, (sample.input, tuple(sample.args), dict(sample.kwargs)))
    torch.manual_seed(0)
    out = call(inputs, *args, **kwargs)
    leaves = tensors((inputs, args, kwargs))
    if training:
        ends = [end for end in tensors(out) if end.requires_grad]
        if ends:
            torch.autograd.backward([(end * end.detach()).sum() for end in ends])
    return Outcome(mapped(torch.Tensor.detach, out), [leaf.grad for leaf in leaves], leaves)


def judge(entry: Any, sample: Any, backend: str, training: bool) -> tuple[str, str]:
    """The result of one sample, and why."""
    try:
        expected = outcome(entry.op, sample, training)
    except Exception as error:
        return SKIPPED, f"eager: {type(error).__name__}: {error}"[:200]

    def run(fullgraph: bool) -> Outcome:
        tg.reset()
        return outcome(tg.compile(entry.op, backend=backend, fullgraph=fullgraph), sample, training)

    result, why = WHOLE, ""
    with warnings.catch_warnings(), complaints() as texts:
        warnings.simplefilter("ignore")
        try:
            try:
                found = run(True)
            except (GraphBreakError, CompileError) as error:
                result, why = (BREAKS if isinstance(error, GraphBreakError) else REFUSED), str(error)[:300]
                found = run(False)
        except Exception as error:
            return WRONG, f"raises {type(error).__name__}: {error}"[:400]
    if texts:
        return WRONG, f"ran eagerly unasked: {texts[0][:400]}"
    difference = compare(expected, found, lambda: None)
    return (WRONG, difference) if difference else (result, why)


def check(name: str, chosen: argparse.Namespace) -> Row:
    """One row: all samples of an entry, without gradients and with them."""
    dtype = getattr(torch, chosen.dtype)
    entry = cases(dtype)[name]
    counts: Counter[str] = Counter()
    whys = []
    for training in (False, True) if entry.supports_autograd else (False,):
        torch.manual_seed(0)
        for sample in entry.sample_inputs("cpu", dtype, requires_grad=training):
            result, why = judge(entry, sample, chosen.backend, training)
            counts[result] += 1
            if why:
                whys.append(f"{result}: {why}")
    return {"name": name, "counts": counts, "why": whys[:8]}


def main() -> int:
    torch.set_num_threads(1)
    chosen = commands.arguments(__doc__ or "", timeout=600).parse_args()
    named = cases(getattr(torch, chosen.dtype), chosen.only)
    return commands.swept(functools.partial(check, chosen=chosen), named, chosen, "samples")


if __name__ == "__main__":
    sys.exit(main())
