"""PyTorch's module database through ``tg.compile``: every ``nn.Module``, every sample, against eager.

    python -m tests.sweep.module_db --backend glass --dtype float32 [--only nn.LSTM ...] [--every N] [--samples N]
        [--jobs N] [--json FILE]

A module runs in training, and in evaluation where that differs; each is a row, judged in a forked process of its own.
Each sample is called twice in a row, with the state that the first call left, in two forms:

- the module is compiled, and the gradients are asked for outside;
- a step is compiled that calls the module, adds up a loss and calls ``backward()``, where every graph ends.

Outputs, gradients of inputs and parameters, and the module's whole state afterwards must be eager's. The exit status is
1 if a sample was wrong or crashed.
"""

from __future__ import annotations

import argparse
import copy
import functools
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from tests.complaints import complaints
from tests.sweep import commands
from tests.sweep.forked import Row
from tests.sweep.op_samples import (
    BREAKS,
    REFUSED,
    SKIPPED,
    WHOLE,
    WRONG,
    Outcome,
    compare,
    fresh,
    mapped,
    tensors,
    weights,
    widened,
)
from torch.testing._internal.common_modules import module_db

import torchglass as tg
from torchglass.errors import CompileError, GraphBreakError

CALLS = 2
Call = Callable[..., Any]


def cases(dtype: torch.dtype, only: list[str] | None = None, every: int = 1) -> dict[str, tuple[Any, bool]]:
    """The database's modules that support ``dtype``, by the name of their row, each with whether it trains."""
    chosen = [info for info in module_db if dtype in info.supported_dtypes("cpu")]
    if only:
        chosen = [info for info in chosen if info.name in only]
    named: dict[str, tuple[Any, bool]] = {}
    for info in chosen[::every]:
        for training in (True, False) if info.train_and_eval_differ else (True,):
            named[f"{info.name} {'train' if training else 'eval'}"] = (info, training)
    return named


def samples_of(info: Any, dtype: torch.dtype, training: bool, most: int | None) -> Iterator[tuple[Any, Any, Any]]:
    """At most ``most`` samples, evenly spread: a module in its first state, positional and named arguments."""
    torch.manual_seed(0)
    made = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
    for sample in made[:: max(1, -(-len(made) // most)) if most else 1]:
        module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
        module.to(dtype).train(training)
        yield module, tuple(sample.forward_input.args), dict(sample.forward_input.kwargs)


def loss_of(out: Any) -> Any:
    """One number to which every element of an output contributes differently."""
    ends = [end for end in tensors(out) if end.requires_grad]
    return sum((end * weights(end)).sum() for end in ends) if ends else None


def step(module: Any, *args: Any, **kwargs: Any) -> Any:
    """What the second form compiles."""
    out = module(*args, **kwargs)
    loss = loss_of(out)
    if loss is not None:
        (loss.real if loss.is_complex() else loss).backward()
    return out


def outcomes(module: Any, call: Call, args: Any, kwargs: Any, inside: bool) -> list[Outcome]:
    """What each of the calls leaves; ``inside`` means that ``call`` is a step, which calls ``backward()`` itself."""
    made = []
    for number in range(CALLS):
        given = mapped(fresh, (args, kwargs))
        for parameter in module.parameters():
            parameter.grad = None
        torch.manual_seed(number)
        out = call(module, *given[0], **given[1]) if inside else call(*given[0], **given[1])
        if not inside:
            loss = loss_of(out)
            if loss is not None:
                (loss.real if loss.is_complex() else loss).backward()
        leaves = [*tensors(given), *module.parameters()]
        state = [value.detach().clone() for value in module.state_dict().values()]
        made.append(Outcome(mapped(torch.Tensor.detach, out), [leaf.grad for leaf in leaves], tensors(given) + state))
    return made


def judge(module: Any, args: Any, kwargs: Any, backend: str, inside: bool) -> tuple[str, str]:
    """The result of one sample in one form, and why."""

    def run(backend: str | None, fullgraph: bool = False) -> list[Outcome]:
        mine = copy.deepcopy(module)
        call: Call = step if inside else mine
        if backend:
            tg.reset()
            call = tg.compile(call, backend=backend, fullgraph=fullgraph)
        return outcomes(mine, call, args, kwargs, inside)

    def exact() -> list[Outcome] | None:
        wide = copy.deepcopy(module).double()
        try:
            return outcomes(wide, step if inside else wide, *mapped(widened, (args, kwargs)), inside)
        except Exception:
            return None

    try:
        expected = run(None)
    except Exception as error:
        return SKIPPED, f"eager: {type(error).__name__}: {error}"[:200]
    result, why = "right" if inside else WHOLE, ""
    with warnings.catch_warnings(), complaints() as texts:
        warnings.simplefilter("ignore")
        try:
            try:
                found = run(backend, fullgraph=not inside)
            except (GraphBreakError, CompileError) as error:
                result, why = (BREAKS if isinstance(error, GraphBreakError) else REFUSED), str(error)[:300]
                found = run(backend)
        except Exception as error:
            return WRONG, f"raises {type(error).__name__}: {error}"[:400]
    if texts:
        return WRONG, f"ran eagerly unasked: {texts[0][:400]}"
    truth = functools.cache(exact)
    for number, (want, got) in enumerate(zip(expected, found)):
        reference = lambda number=number: made[number] if (made := truth()) else None
        if difference := compare(want, got, reference):
            return WRONG, f"call {number + 1}: {difference}"
    return result, why


def check(name: str, chosen: argparse.Namespace) -> Row:
    """One row: all samples of a module in one mode, in both forms."""
    torch.set_num_threads(1)
    dtype = getattr(torch, chosen.dtype)
    info, training = cases(dtype)[name]
    counts: Counter[str] = Counter()
    whys = []
    for number, sample in enumerate(samples_of(info, dtype, training, chosen.samples)):
        for form in ("module", "step"):
            result, why = judge(*sample, chosen.backend, form == "step")
            counts[result] += 1
            if why and len(whys) < 8:
                whys.append(f"{result}, {form} of sample {number}: {why}")
    return {"name": name, "counts": counts, "why": whys}


def main() -> int:
    parser = commands.arguments(__doc__ or "", timeout=1800)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--samples", type=int)
    chosen = parser.parse_args()
    named = cases(getattr(torch, chosen.dtype), chosen.only, chosen.every)
    return commands.swept(functools.partial(check, chosen=chosen), named, chosen, "samples in two forms")


if __name__ == "__main__":
    sys.exit(main())
