"""Every transformers architecture that builds from a tiny random configuration, compiled and compared with eager.

    python -m tests.sweep.architectures --jobs 2 [--only bert gpt2] [--every 10] [--backend eager] [--training]
        [--device cuda] [--changing [--dynamic]] [--warm] --json F

Each runs in a forked process of its own, in which CUDA starts: before the fork nobody may use it. A row says: whole
(one graph), breaks (right, in several graphs), wrong, crashed, or skipped (the tiny model does not build or run in
eager). With ``--changing`` it is called at several sizes (``changing.py``), which are symbols from the second on, or
with ``--dynamic`` from the first. With ``--warm`` it runs in two processes, and a row says what the second one compiles
(``warm.py``).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault(
    "PYTORCH_NVML_BASED_CUDA_CHECK", "1"
)  # to ask for a GPU does not start CUDA, which no fork survives

from .changing import changing
from .compared import Row, compared, stepper
from .forked import MEMORY, forked
from .inputs import USUAL, candidate_inputs
from .report import finish
from .tiny import tiny_configs
from .warm import warmed

MOST_PARAMETERS = 8_000_000


def architectures() -> list[str]:
    from transformers import MODEL_MAPPING

    return sorted({c.model_type for c in MODEL_MAPPING})


def build(config: Any) -> Any:
    """The base model of a configuration with random weights; a large one is refused before its memory is taken."""
    import torch
    from transformers import MODEL_MAPPING

    model_class = MODEL_MAPPING[type(config)]
    if isinstance(model_class, (tuple, list)):
        model_class = model_class[0]
    try:
        with torch.device("meta"):
            count = sum(p.numel() for p in model_class(config).parameters())
    except NotImplementedError:  # some constructors compute with values
        count = 0
    if count > MOST_PARAMETERS:
        raise RuntimeError(f"too large: {count} parameters")
    torch.manual_seed(0)
    model = model_class(config)
    for p in model.parameters():
        if not torch.isfinite(p).all():  # parameters that their constructor leaves uninitialised
            torch.nn.init.normal_(p, std=0.02)
    return model


def check(model_type: str, chosen: argparse.Namespace) -> Row:
    """One row: build, run in eager, compile, compare."""
    import torch

    torch.set_num_threads(1)
    row: Row = {"name": model_type}
    begin = time.perf_counter()
    try:
        configs = list(tiny_configs(model_type))
    except Exception as error:  # the library's own default does not build, or wants files from the network
        _note(row, "configure", error)
        return {**row, "result": "skipped"}
    for config in configs:
        try:
            model = build(config).train(chosen.training).to(chosen.device)
        except Exception as error:
            _note(row, "build", error)
            continue
        for candidate in candidate_inputs(model):
            made = lambda extent, there=candidate: {k: v.to(chosen.device) for k, v in there.made(extent).items()}
            inputs = made(USUAL)
            try:
                step = stepper(model, inputs, chosen.training)
                expected = step(model)
            except Exception as error:
                _note(row, ", ".join(f"{k} {tuple(v.shape)}" for k, v in inputs.items()), error)
                continue
            if not expected[0]:
                continue
            row.pop("why", None)
            row["inputs"] = {k: list(v.shape) for k, v in inputs.items()}
            row["parameters"] = sum(p.numel() for p in model.parameters())
            row["build"] = round(time.perf_counter() - begin, 2)
            if chosen.build:
                return {**row, "result": "built"}
            if chosen.warm:
                return warmed(row, model, step, chosen.backend)
            if chosen.changing:
                return changing(row, model, made, chosen)
            return compared(row, model, step, expected, chosen.backend)
    return {**row, "result": "skipped"}


def _note(row: Row, what: str, error: Exception) -> None:
    """Why it is skipped: each error once."""
    text = f"{type(error).__name__}: {error}"[:300]
    why = row.setdefault("why", [])
    if not any(text in w for w in why):
        why.append(f"{what}: {text}")


def sweep(names: list[str], one: Callable[[str], Row], jobs: int, timeout: float, device: str = "cpu") -> list[Row]:
    """All rows, sorted by name; each is printed as it comes."""
    rows = []
    prepare()
    memory = MEMORY if device == "cpu" else None  # CUDA reserves more address space than there is memory
    for row in forked(one, names, jobs, timeout, memory):
        rows.append(row)
        said = (row.get(key, "") for key in ("entries", "reason", "reasons", "why", "numbers", "more"))
        print(row["name"], row["result"], *said, flush=True)
    return sorted(rows, key=lambda r: r["name"])


def prepare() -> None:
    """Import, before the fork and so once for all, what every child needs."""
    import torch

    import torchglass as tg

    torch.set_num_threads(1)
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="sweep-")
    for name in ("llama", "bert"):
        build(next(tiny_configs(name)))
    tg.compile(torch.nn.Linear(2, 2), backend="eager")(torch.ones(1, 2))
    tg.reset()


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--but", nargs="*", default=())
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--changing", action="store_true", help="at several sizes")
    parser.add_argument("--dynamic", action="store_const", const=True, help="all of which are symbols")
    parser.add_argument("--warm", action="store_true", help="in two processes that share kept entries")
    parser.add_argument("--build", action="store_true", help="only build and run in eager")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json")
    parser.add_argument("--markdown", help="a page about what breaks")
    return parser


def main() -> int:
    chosen = arguments().parse_args()
    names = [n for n in chosen.only or architectures()[:: chosen.every] if n not in chosen.but]
    rows = sweep(names, partial(check, chosen=chosen), chosen.jobs, chosen.timeout, chosen.device)
    return finish(rows, chosen, "architectures")


if __name__ == "__main__":
    sys.exit(main())
