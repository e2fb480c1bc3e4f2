"""Programs of test_shared_folders.py: many processes at one folder, with texts that differ; each says what was wrong.

python -m tests.store.sharing TORCHGLASS_DIR PROCESSES
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys

import torch

import torchglass as tg


def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((x * y).sin() + x.sum(-1, keepdim=True)).relu() * y.cos()


def is_differentiating() -> bool:
    """Whether PyTorch runs backward here: not in a forked child of a process with a GPU that has run one."""
    try:
        torch.ones(1, requires_grad=True).sum().backward()
    except RuntimeError as error:
        assert "fork-based multiprocessing" in str(error), error
        return False
    return True


def right(compiled: object, size: int) -> None:
    """Forward and backward of one shape against eager."""
    torch.manual_seed(size)
    x, y = torch.randn(3, size, requires_grad=is_differentiating()), torch.randn(3, size)
    if not x.requires_grad:
        torch.testing.assert_close(compiled(x, y), function(x, y))  # type: ignore[operator]
        return
    expected = function(x, y)
    (wanted,) = torch.autograd.grad(expected.sum(), x)
    result = compiled(x, y)  # type: ignore[operator]
    (found,) = torch.autograd.grad(result.sum(), x)
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(found, wanted)


def work(size: int, barrier: object = None) -> None:
    """One process: two entries, and the first one again."""
    torch.set_num_threads(1)
    if barrier is not None:
        barrier.wait(120)  # type: ignore[attr-defined]
    compiled = tg.compile(function, fullgraph=True)
    for one in (size, size + 100, size):
        right(compiled, one)
    assert not tg.explain(compiled).record.fallbacks


def all_at_once(count: int, sizes: int, seconds: float = 600) -> list[int | None]:
    """Exit codes of ``count`` forked processes that begin together; of ``sizes`` shapes."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(count)
    processes = [context.Process(target=work, args=(5 + n % sizes, barrier)) for n in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(seconds)
        if process.is_alive():
            process.kill()
    return [process.exitcode for process in processes]


def workers(count: int, at_once: int) -> list[int]:
    """The exit codes of forked children of a process that has compiled the function before them."""
    torch.set_num_threads(1)
    compiled = tg.compile(function, fullgraph=True)
    right(compiled, 4)
    codes: list[int] = []
    running = 0
    for n in range(count):
        if running == at_once:
            codes.append(os.waitstatus_to_exitcode(os.wait()[1]))
            running -= 1
        if os.fork() == 0:
            status = 1
            with contextlib.suppress(BaseException):
                right(compiled, 4)
                right(compiled, 5 + n % 7)
                status = 0
            os._exit(status)
        running += 1
    return codes + [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(running)]


if __name__ == "__main__":
    kind, count, more = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    codes = all_at_once(count, more) if kind == "processes" else workers(count, more)
    wrong = [code for code in codes if code]
    print(f"{len(codes)} {kind}, {len(wrong)} wrong: {wrong[:10]}")
    sys.exit(bool(wrong))
