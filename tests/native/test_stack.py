"""Recursion through native code ends in RecursionError before the C stack does, whatever Python's own limit is."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest
import torch

from torchglass import _native

THROUGH_COMPILED = """
import sys, threading, torch
from torchglass import _native
sys.setrecursionlimit(10**7)
def function(n): ...
compiled = _native.CompiledFunction(function, lambda parameters: parameters[0] and 1 + compiled(parameters[0] - 1))
def work():
    assert compiled(50) == 50
    for _ in range(2):
        try:
            compiled(10**7)
        except RecursionError as error:
            found.append(str(error))
found = []
# Python 3.12 and later count C calls too, to a number of their own, and may refuse before we do.
def says_which(message):
    return 'C stack' in message or sys.version_info >= (3, 12) and 'maximum recursion depth' in message
"""
IN_MAIN = THROUGH_COMPILED + "work()\nassert len(found) == 2 and all(map(says_which, found)), found\n"
IN_THREADS = (
    THROUGH_COMPILED
    + """
for size in (128, 512, 4096):
    threading.stack_size(size * 1024)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
assert len(found) == 6 and 'C stack' in found[0] and all(map(says_which, found)), found
"""
)
WITH_A_RAISED_LIMIT = """
import resource
_, most = resource.getrlimit(resource.RLIMIT_STACK)
resource.setrlimit(resource.RLIMIT_STACK, (256 << 10, most))
""" + THROUGH_COMPILED + """
work()
def depth():
    try:
        return 1 + compiled_once()
    except RecursionError:
        return 0
compiled_once = _native.CompiledFunction(depth, lambda parameters: depth())
shallow = depth()
resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, most))
assert depth() > 2 * shallow > 0
"""  # fmt: skip

WITH_A_GRAPH_BREAK = (
    THROUGH_COMPILED
    + """
import torchglass as tg
def recursive(x, n):
    tg.graph_break()
    return x + 1 if n == 0 else recursive(x, n - 1) * 1
def plain(n):
    return 1 + plain(n - 1) if n else 0
def calling(x):
    tg.graph_break()
    return x + plain(10**7)
recursive = tg.compile(recursive)
for call in (lambda: recursive(torch.ones(4), 10**7), lambda: tg.compile(calling)(torch.ones(4))):
    try:
        call()
    except RecursionError as error:
        assert says_which(str(error)), error
    else:
        raise AssertionError
assert recursive(torch.ones(4), 50).tolist() == [2] * 4
"""
)


def _runs(program: str, *before: str) -> None:
    command = [*before, sys.executable, "-X", "faulthandler", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("program", [IN_MAIN, IN_THREADS, WITH_A_RAISED_LIMIT, WITH_A_GRAPH_BREAK])
def test_calls_of_compiled_functions_end(program: str) -> None:
    _runs(program)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the limit is taken when the program is linked")
@pytest.mark.parametrize("size", ["1024", "65536", "100000"])
def test_the_main_stack_is_as_large_as_ulimit_says(size: str) -> None:
    if 0 <= resource.getrlimit(resource.RLIMIT_STACK)[1] < int(size) * 1024:
        pytest.skip("the system's own limit is lower")
    _runs(IN_MAIN, "sh", "-c", f'ulimit -s {size} && exec "$@"', "sh")


def nested(depth: int) -> tuple[object, ...]:
    value: tuple[object, ...] = ()
    for _ in range(depth):
        value = (value,)
    return value


def test_values_that_nest_too_deep_are_not_the_same() -> None:
    _native.same_constant(nested(100), nested(100))
    with pytest.raises(RecursionError, match="C stack"):
        _native.same_constant(nested(10**6), nested(10**6))
    table = _native.GuardTable((("local", -1, 0),), ((0, "constant", nested(10**6)),), (), None, (0,))
    assert table.check((nested(10**6),)) is None


def test_calls_go_on_after_the_stack_was_used_up() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x

    compiled = _native.CompiledFunction(function, lambda parameters: parameters[0] + 1)
    test_values_that_nest_too_deep_are_not_the_same()
    assert compiled(torch.ones(2)).tolist() == [2, 2]
