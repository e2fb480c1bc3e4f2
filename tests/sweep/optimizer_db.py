"""PyTorch's optimizer database through ``tg.compile``: every optimizer, every set of options, against eager.

    python -m tests.sweep.optimizer_db --backend glass [--only SGD ...] [--every N] [--jobs N] [--json FILE]

Each optimizer is a row, judged in a forked process of its own. With each set of options, and each of ``foreach`` and
``fused`` that it takes, a small model is trained for some steps in each of these ways (``WAYS``): ``opt.step`` alone is
compiled; the whole step is, backward and ``zero_grad`` with it; with a closure; with groups of parameters, the rate of
one changed by hand; with each of the database's schedulers outside the step, and inside. Halfway the state is saved and
loaded. Losses, parameters, gradients and all of the optimizer's state must be eager's after each step; the exit status
is 1 where they are not.
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
from tests.sweep.forked import Row, forked, saved, tallied
from tests.sweep.op_samples import REFUSED, SKIPPED, WRONG, Outcome, compare
from torch.testing._internal.common_optimizers import optim_db

import torchglass as tg

STEPS = 5
Compile = Callable[[Any], Any]
RIGHT = "right"


class Training:
    """A model, its data and the optimizer that trains it; the same for the same arguments."""

    def __init__(self, info: Any, options: dict[str, Any], groups: bool, dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        self.sparse, matrices = info.only_supports_sparse_grads, info.name == "Muon"
        self.model: Any = torch.nn.Sequential(
            torch.nn.Embedding(7, 4, sparse=self.sparse),
            *([] if self.sparse else [torch.nn.Linear(4, 5, bias=not matrices), torch.nn.Tanh()]),
        ).to(dtype)
        self.data = [torch.randint(0, 7, (3, 2)) for _ in range(STEPS)]
        parameters: Any = list(self.model.parameters())
        if groups:
            parameters = [{"params": parameters[:1], "lr": 0.02}, {"params": parameters[1:]}][: len(parameters)]
        options = {k: v.to(dtype) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
        self.optimizer = info.optim_cls(parameters, **options)

    def loss(self, x: Any) -> Any:
        """Nearly convex, that rounding is not amplified from step to step. Sparse gradients leave no room for decay."""
        loss = (self.model(x) - 1).square().mean()
        return loss if self.sparse else loss + sum(p.square().sum() for p in self.model.parameters()) / 2

    def facts(self, loss: Any) -> Outcome:
        """What a step left, as a copy."""
        parameters = list(self.model.parameters())
        saved = copy.deepcopy(self.optimizer.state_dict())
        numbers = torch.utils._pytree.tree_map_only(torch.Tensor, lambda _: None, saved)
        state = [v for v in torch.utils._pytree.tree_leaves(saved) if isinstance(v, torch.Tensor)]
        gradients = [p.grad.clone() if p.grad is not None else None for p in parameters]
        loss = loss.detach().clone() if isinstance(loss, torch.Tensor) else loss
        return Outcome([loss, numbers], gradients, [p.detach().clone() for p in parameters] + state)

    def load_own_state(self) -> None:
        self.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))


# --- ways of training; each yields what every step returns -----------------------------------------------------------
def alone(t: Training, compile: Compile, schedules: list[Any]) -> Iterator[Any]:
    step = compile(t.optimizer.step)
    for x in t.data:
        t.optimizer.zero_grad()
        loss = t.loss(x)
        loss.backward()
        step()
        yield loss


def whole(t: Training, compile: Compile, schedules: list[Any]) -> Iterator[Any]:
    @compile
    def step(x: Any) -> Any:
        loss = t.loss(x)
        loss.backward()
        t.optimizer.step()
        t.optimizer.zero_grad()
        return loss.detach()

    for x in t.data:
        yield step(x)


def with_closure(t: Training, compile: Compile, schedules: list[Any]) -> Iterator[Any]:
    @compile
    def step(x: Any) -> Any:
        def closure() -> Any:
            t.optimizer.zero_grad()
            loss = t.loss(x)
            loss.backward()
            return loss

        return t.optimizer.step(closure)

    for x in t.data:
        yield step(x)


def alone_with_closure(t: Training, compile: Compile, schedules: list[Any]) -> Iterator[Any]:
    step = compile(t.optimizer.step)
    for x in t.data:

        def closure(x: Any = x) -> Any:
            t.optimizer.zero_grad(set_to_none=False)
            loss = t.loss(x)
            loss.backward()
            return loss

        yield step(closure)


def groups(t: Training, compile: Compile, schedules: list[Any]) -> Iterator[Any]:
    for loss in whole(t, compile, schedules):
        t.optimizer.param_groups[-1]["lr"] *= 0.5
        yield loss


def scheduled(t: Training, compile: Compile, schedules: list[Any]) -> Iterator[Any]:
    for loss in alone(t, compile, schedules):
        advance(schedules, loss)
        yield loss


def scheduled_inside(t: Training, compile: Compile, schedules: list[Any]) -> Iterator[Any]:
    @compile
    def step(x: Any) -> Any:
        t.optimizer.zero_grad()
        loss = t.loss(x)
        loss.backward()
        t.optimizer.step()
        advance(schedules, loss)
        return loss.detach()

    for x in t.data:
        yield step(x)


def advance(schedules: list[Any], loss: Any) -> None:
    for schedule in schedules:
        if isinstance(schedule, torch.optim.lr_scheduler.ReduceLROnPlateau):
            schedule.step(loss.detach())
        else:
            schedule.step()


WAYS = {w.__name__: w for w in (alone, whole, with_closure, alone_with_closure, groups, scheduled, scheduled_inside)}


# --- judging ---------------------------------------------------------------------------------------------------------
def cases(info: Any) -> Iterator[tuple[str, dict[str, Any], str, Any]]:
    """A name, the optimizer's options, the way and the scheduler."""
    flags = [f for f in info.supported_impls if f != "differentiable"]
    for given in info.optim_inputs_func("cpu"):
        for chosen in [None, *flags]:
            options = {**copy.deepcopy(given.kwargs), **({f: f == chosen for f in flags})}
            if info.step_requires_closure:
                options["max_iter"] = 3  # of a line search: after more, rounding is all that is left
            for way in WAYS:
                if info.step_requires_closure and "closure" not in way:
                    continue
                for number, schedulers in enumerate(info.scheduler_inputs if way.startswith("scheduled") else [()]):
                    yield f"{given.desc or 'default'}, {chosen}, {way} {number}", options, way, schedulers


def train(info: Any, options: Any, way: str, schedulers: Any, compile: Compile, dtype: torch.dtype) -> list[Outcome]:
    t = Training(info, copy.deepcopy(options), way == "groups", dtype)
    schedules = [make(t.optimizer) for make in schedulers]
    made = []
    for number, loss in enumerate(WAYS[way](t, compile, schedules)):
        made.append(t.facts(loss))
        if number == STEPS // 2:
            t.load_own_state()
    return made


def judge(info: Any, options: Any, way: str, schedulers: Any, backend: str) -> tuple[str, str]:
    run = functools.partial(train, info, options, way, schedulers)
    as_it_is = lambda f: f
    dtype = torch.float64 if info.step_requires_closure else torch.float32  # line searches amplify rounding

    @functools.cache
    def exact() -> list[Outcome] | None:
        try:
            return run(as_it_is, torch.float64)
        except Exception:
            return None

    with warnings.catch_warnings(), complaints() as texts:
        warnings.simplefilter("ignore")
        try:
            expected = run(as_it_is, dtype)
        except Exception as error:
            return SKIPPED, f"eager: {type(error).__name__}: {error}"[:200]
        tg.reset()
        try:
            found = run(functools.partial(tg.compile, backend=backend), dtype)
        except Exception as error:
            return WRONG, f"raises {type(error).__name__}: {error}"[:400]
    for number, (want, got) in enumerate(zip(expected, found)):
        reference = lambda number=number: made[number] if (made := exact()) else None
        if difference := compare(want, got, reference):
            return WRONG, f"step {number + 1}: {difference}"
    return (REFUSED, texts[0][:400]) if texts else (RIGHT, "")


def check(name: str, backend: str, every: int) -> Row:
    torch.set_num_threads(1)
    info = next(info for info in optim_db if info.name == name)
    counts: Counter[str] = Counter()
    whys = []
    for case, *rest in list(cases(info))[::every]:
        result, why = judge(info, *rest, backend)
        counts[result] += 1
        if why:
            whys.append(f"{result}, {case}: {why}")
    return {"name": name, "counts": counts, "why": whys}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="glass")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--every", type=int, default=1, help="take each Nth training of an optimizer")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=1800)
    parser.add_argument("--json")
    chosen = parser.parse_args()
    names = chosen.only or [info.name for info in optim_db]
    rows = []
    one = functools.partial(check, backend=chosen.backend, every=chosen.every)
    for row in forked(one, names, chosen.jobs, chosen.timeout):
        rows.append(row)
        print(row["name"], row.get("counts", ""), row["why"][:4], flush=True)
    counts = tallied(rows)
    print(f"{chosen.backend}: {len(rows)} optimizers; trainings: {dict(counts)}")
    saved(rows, counts, chosen.json)
    return 1 if counts[WRONG] or counts["crashed"] else 0


if __name__ == "__main__":
    sys.exit(main())
