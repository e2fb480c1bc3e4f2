"""Triton's compiler in a process of its own (``runtime.triton_worker``), which forks one for each kernel.

    numbers = helper().ask(path, text, ["kernel_0", "kernel_1"], capability=90)
    helper().answers(numbers)       -> [(cubin, function, shared bytes), ...]
    compiled_so_far()               -> 2

This process never imports Triton, which takes a quarter of a second, nor starts a thread. One helper serves all
threads; it is started when it is first needed, or ahead of that (``warm_up``), and ends itself after a while without
work. A forked process has one of its own.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..process import interrupts
from ..process.locks import fork_safe_lock
from .toolchain import NoCompiler, ToolchainError
from .triton_worker import message, send, whole

Compiled = tuple[bytes, str, int]
"""Machine code, the name of its function, and the bytes of shared memory that a program takes."""


class HelperEnded(Exception):
    """The helper is gone, and what it was asked with it."""


class Helper:
    """A running helper."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("triton_worker.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, process_group=0,
        )  # fmt: skip
        self._asking, self._reading = fork_safe_lock(), fork_safe_lock()
        self._numbers = itertools.count()
        self._heard = b""
        self._answers: dict[int, tuple[Compiled | None, str]] = {}

    @property
    def runs(self) -> bool:
        """Whether it is there, and this process's."""
        return self.pid == os.getpid() and self._process.poll() is None

    def ask(self, path: str, text: str, kernels: Sequence[str], capability: int, aligned: bool = True) -> list[int]:
        """Have kernels of a file compiled; the numbers of what will be the answers. Raises HelperEnded."""
        numbers = {next(self._numbers): kernel for kernel in kernels}
        interrupts.waiting(functools.partial(self._send, message((path, text, numbers, aligned, capability))))
        return list(numbers)

    def _send(self, job: bytes) -> None:
        assert self._process.stdin is not None
        with self._asking:
            try:
                send(self._process.stdin.fileno(), job)
            except OSError as error:
                raise HelperEnded from error
            except BaseException:  # the half of a message
                self.stop()
                raise

    def answers(self, numbers: Iterable[int]) -> list[tuple[Compiled | None, str]]:
        """What was made, or why it was not. Raises HelperEnded."""
        return [interrupts.waiting(functools.partial(self._answer, number)) for number in numbers]

    def _answer(self, number: int) -> tuple[Compiled | None, str]:
        with self._reading:  # whoever waits reads what comes for others too
            while number not in self._answers:
                try:
                    self._read()
                except BaseException:  # the half of an answer
                    self.stop()
                    raise
            return self._answers.pop(number)

    def _read(self) -> None:
        assert self._process.stdout is not None
        piece = os.read(self._process.stdout.fileno(), 1 << 20)
        if not piece:
            raise HelperEnded
        messages, self._heard = whole(self._heard + piece)
        self._answers |= {number: (made, why) for number, made, why in messages}

    def stop(self) -> None:
        """End it, and the compilers it has forked."""
        if self.runs:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


_helpers: list[Helper] = []  # the last is in use; those before were another process's, or have ended
_starting = fork_safe_lock()


def helper() -> Helper:
    """The helper of this process, started if need be. Raises ToolchainError."""
    if importlib.util.find_spec("triton") is None:
        raise NoCompiler("no compiler for GPUs: Triton is not installed")
    with _starting:
        if not _helpers or not _helpers[-1].runs:
            _helpers[:] = [one for one in _helpers if one.pid != os.getpid()]
            try:
                _helpers.append(Helper())
            except OSError as error:
                raise ToolchainError(f"Triton's compiler could not be started: {error}") from error
        return _helpers[-1]


def warm_up(capability: int) -> None:
    """Have a helper started, which prepares itself meanwhile. Never raises: what fails will fail where it is needed."""
    with contextlib.suppress(ToolchainError, HelperEnded):
        helper().ask("", "", (), capability)


def compiled(path: str, text: str, kernels: Sequence[str], capability: int, aligned: bool = True) -> list[Compiled]:
    """The kernels of a file, waited for."""
    return Asked(path, text, kernels, capability, aligned).result()


class Asked:
    """Kernels that are being compiled."""

    def __init__(self, path: str, text: str, kernels: Sequence[str], capability: int, aligned: bool = True) -> None:
        self._path, self._kernels = path, kernels
        self._ask = functools.partial(_asked, path, text, kernels, capability, aligned)
        self._helper, self._numbers = self._ask()

    def result(self) -> list[Compiled]:
        """Raises ToolchainError, which says what Triton says."""
        try:
            answers = self._helper.answers(self._numbers)
        except HelperEnded:  # killed: by a system without memory, perhaps
            self._helper, self._numbers = self._ask()
            try:
                answers = self._helper.answers(self._numbers)
            except HelperEnded:
                raise ToolchainError(f"the process that compiles {self._path} was killed") from None
        made = [self._made(kernel, *answer) for kernel, answer in zip(self._kernels, answers)]
        with _starting:
            _counted[0] += len(made)
        return made

    def _made(self, kernel: str, made: Compiled | None, why: str) -> Compiled:
        if made is None:
            raise ToolchainError(f"Triton could not compile {kernel} of {self._path}: {why}")
        return made


_counted = [0]


def compiled_so_far() -> int:
    """How many kernels this process has had compiled, without those whose machine code was found beside a file."""
    return _counted[0]


def _asked(*job: Any) -> tuple[Helper, list[int]]:
    """A helper that was given a job; a second one where the first has just ended itself."""
    one = helper()
    try:
        return one, one.ask(*job)
    except HelperEnded:
        one = helper()
    try:
        return one, one.ask(*job)
    except HelperEnded:
        raise ToolchainError("Triton's compiler ends as soon as it is started") from None
