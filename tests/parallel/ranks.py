"""Two processes of a gloo group that run a test's function: ``ranks(function, *args)`` gives what each returns.

They are started once for all tests of a session, import the function by its module and name, and end with the session.
A job that takes longer than its time ends both, and so does one that fails on one rank: the other may wait for it.
Where processes may die, ``DIED`` is the result of one that did.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from typing import Any

COUNT = 2
SECONDS = 120  # on a machine that does much else
DIED = "died"


class Ranks:
    """The processes, started when they are first needed. ``timeout``: the group's."""

    def __init__(self, timeout: float = SECONDS, may_die: bool = False) -> None:
        self.timeout, self.may_die = timeout, may_die
        self.processes: list[Any] = []
        self.pipes: list[Any] = []

    def __call__(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """``function(rank, *args)`` on each rank. Raises AssertionError with the traceback of the one that failed."""
        if not self.processes:
            self._start()
        for pipe in self.pipes:
            pipe.send((function.__module__, function.__qualname__, args))
        results = []
        for rank in range(COUNT):
            try:
                failed, result = self._answer(rank)
            except EOFError:
                failed, result = not self.may_die, DIED
            if failed:
                self.stop()
                raise AssertionError(f"rank {rank}:\n{result}")
            results.append(result)
        return results

    def _answer(self, rank: int) -> Any:
        if not self.pipes[rank].poll(SECONDS):
            self.stop()
            raise AssertionError(f"rank {rank} did not answer within {SECONDS} seconds")
        return self.pipes[rank].recv()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        store = tempfile.mktemp(prefix="torchglass_ranks_")
        for rank in range(COUNT):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, store, self.timeout, theirs), daemon=True)
            process.start()
            theirs.close()
            self.processes.append(process)
            self.pipes.append(ours)
        for rank in range(COUNT):  # what they import takes long, and is no part of a job
            self._answer(rank)

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.join(5)
            if process.is_alive():
                process.kill()
        self.processes, self.pipes = [], []


def _serve(rank: int, store: str, timeout: float, pipe: Any) -> None:
    """A rank's main loop, until the tests' process ends."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    import torch.distributed as dist
    from tests.complaints import complaints

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=COUNT, timeout=timedelta(seconds=timeout)
    )
    pipe.send("ready")
    while True:
        try:
            module, name, args = pipe.recv()
        except EOFError:
            return
        try:
            with complaints() as texts:
                result = getattr(import_module(module), name)(rank, *args)
            pipe.send((bool(texts), "\n".join(texts) if texts else result))
        except BaseException:
            pipe.send((True, traceback.format_exc()))
