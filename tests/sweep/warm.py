"""A model in two processes, one after the other, that share a folder of kept entries: what the second one compiles.

A row is ``hit`` if that is nothing, ``miss`` with the reasons else, ``wrong`` where outputs, gradients or state are not
those of the first process, bit for bit.
"""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import Any

import torch

from .compared import Row, Step, first_difference


class _Said(logging.Handler):
    """What the log says of entries: ``kept``, ``compiled``, and why some are not kept."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.kept: list[str] = []
        self.compiled: list[str] = []
        self.reasons: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.name == "torchglass.cache":
            self.reasons.append(text[:300])
        elif " was kept in " in text:
            self.kept.append(text[:120])
        elif " is compiled" in text:
            self.compiled.append(text[:200])


def warmed(row: Row, model: torch.nn.Module, step: Step, backend: str) -> Row:
    """``row`` with the result of the second process, which this one is."""
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHGLASS_CACHE"] = os.path.join(folder, "cache")
        results = Path(folder, "results")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                torch.save(_run(model, step, backend, before), results)
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        if status or not results.exists():
            return {**row, "result": "crashed", "why": "in the first process"}
        first = torch.load(results, weights_only=False)
        found = _run(model, step, backend, before)
    row["entries"], row["reasons"] = len(found["kept"]), (first["reasons"] + found["reasons"])[:4]
    for mine, theirs in zip(found["calls"], first["calls"]):
        difference = _unequal(mine, theirs)
        if difference:
            return {**row, "result": "wrong", "why": f"{difference}; {first_difference(mine, theirs)}"}
    if found["compiled"]:
        return {**row, "result": "miss", "why": found["compiled"][:2]}
    return {**row, "result": "hit" if found["kept"] else "eager"}


def _run(model: torch.nn.Module, step: Step, backend: str, before: dict[str, torch.Tensor]) -> dict[str, Any]:
    import torchglass as tg

    said, log = _Said(), logging.getLogger("torchglass")
    log.addHandler(said)
    log.setLevel(logging.INFO)
    logging.getLogger("torchglass.cache").setLevel(logging.DEBUG)
    for k, v in before.items():
        model.state_dict()[k].copy_(v)
    compiled = tg.compile(model, backend=backend)
    calls = []
    for _ in range(2):
        out, gradients = step(compiled)
        calls.append(([t.clone() for t in out], [None if g is None else g.clone() for g in gradients]))
    state = [v.clone() for v in model.state_dict().values()]
    calls.append((state, []))
    log.removeHandler(said)
    return {"calls": calls, "kept": said.kept, "compiled": said.compiled, "reasons": said.reasons}


def _unequal(mine: Any, theirs: Any) -> str:
    for name, ours, others in zip(("outputs", "gradients"), mine, theirs):
        if len(ours) != len(others):
            return f"{len(ours)} {name}, not {len(others)}"
        for n, (a, b) in enumerate(zip(ours, others)):
            if (a is None) != (b is None) or (a is not None and not _same_bits(a, b)):
                return f"{name} {n} differ"
    return ""


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(a, b) or torch.equal(a.nan_to_num(), b.nan_to_num())
