"""Programs in forked processes, one after the other, that share a folder of kept entries: what each of them did.

first = run(TEXT, folder)          # compiles and keeps
again = run(TEXT, folder)          # finds it: again.compiled == []
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import torchglass as tg

tg.compile(lambda x: x + 1, backend="eager")(torch.ones(1))  # every stage is loaded before the fork


@dataclass
class Outcome:
    """``result``: what ``main()`` returned; the log's lines on entries that were found, compiled, and not kept, and its
    warnings.
    """

    result: Any = None
    found: list[str] = field(default_factory=list)
    compiled: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    status: int = 0
    error: str = ""


class _Lines(logging.Handler):
    def __init__(self, outcome: Outcome) -> None:
        super().__init__(logging.DEBUG)
        self.outcome = outcome

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            self.outcome.warned.append(text)
        if record.name == "torchglass.cache":
            self.outcome.said.append(text)
        elif " was kept in " in text:
            self.outcome.found.append(text)
        elif " is compiled" in text:
            self.outcome.compiled.append(text)


def run(
    text: str,
    folder: Path | None,
    before: Any = None,
    module: str = "warm_program",
    file: Path | None = None,
    **environment: str,
) -> Outcome:
    """``main()`` of a program in a child of this process. ``before`` is called there first. The program is in ``file``,
    or in none.
    """
    with tempfile.TemporaryDirectory() as place:
        results = Path(place, "results")
        child = os.fork()
        if child == 0:
            _in_child(text, folder, before, module, file, environment, results)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if not results.exists():
            return Outcome(status=code)
        outcome = torch.load(results, weights_only=False)
    if outcome.error:
        raise AssertionError(outcome.error)
    return outcome


def _in_child(
    text: str,
    folder: Path | None,
    before: Any,
    name: str,
    file: Path | None,
    environment: dict[str, str],
    results: Path,
) -> None:
    try:
        signal.alarm(100)
        torch.set_num_threads(1)
        outcome = Outcome()
        os.environ.update(environment)
        if folder is not None:
            os.environ["TORCHGLASS_CACHE"] = str(folder)
        log = logging.getLogger("torchglass")
        log.addHandler(_Lines(outcome))
        log.setLevel(logging.DEBUG)
        module = sys.modules[name] = ModuleType(name)
        try:
            if file is not None:
                file.write_text(text)
                module.__file__ = str(file)
            exec(compile(text, str(file or f"/nowhere/{name}.py"), "exec"), vars(module))
            if before is not None:
                before()
            outcome.result = module.main()
        except BaseException:
            outcome.error = traceback.format_exc()
        torch.save(outcome, f"{results}.part")
        os.rename(f"{results}.part", results)
    finally:
        os._exit(0)


def twice(text: str, folder: Path, **environment: str) -> tuple[Outcome, Outcome]:
    """The first process and the second one, which has compiled nothing and has the same results, bit for bit."""
    first = run(text, folder, **environment)
    second = run(text, folder, **environment)
    assert first.compiled and not first.found
    assert second.found and not second.compiled, second.said
    assert same(first.result, second.result)
    return first, second


def same(a: Any, b: Any) -> bool:
    """Whether results are equal, tensors bit for bit."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)
