"""Use in small: calls with changing inputs, recompiles, exceptions and two threads. Prints the memory that it grew by.

    python -m tests.soak.worker CALLS

Run it with PYTHONMALLOC=debug and -X faulthandler.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import tempfile
import threading
import warnings

import torch

import torchglass as tg

state = {"count": 0, "log": []}


class Trouble(Exception):
    pass


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x, flag):
        self.calls += 1
        y = self.linear(x)
        return torch.relu(y) if flag else y


def arithmetic(x, n, items):
    items.append(n)
    y = x * n + len(items)
    state["count"] += 1
    return y, items


def branching(x, n, items):
    y = x + 1
    if y.sum() > 4:
        y = y * n
    return y - 1, n


def raising(x, n, items):
    try:
        if n == 2:
            raise Trouble(n)
        if n == 3:
            return x @ torch.ones(n + 1, 2)
    except Trouble as error:
        return str(error)
    finally:
        state["log"] = [n]
    if n == 4:
        raise Trouble("out")
    return x + n


def closures(x, n, items):
    def inner(y):
        nonlocal n
        n += 1
        return y * n

    return [inner(x) for _ in range(2)], n


def generating(x, n, items):
    def rows():
        for row in x:
            yield row + n

    return torch.stack(list(rows())), max(items, default=0)


def writing(x, n, items):
    x[0] += n
    view = x.view(-1)
    view.mul_(2)
    return view, x


FUNCTIONS = (arithmetic, branching, raising, closures, generating, writing)


def outcome(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return type(error).__name__, str(error)


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b


def resident() -> int:
    """Bytes of memory that the process has in use."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Loop:
    """Calls of compiled functions beside the same calls of plain ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.compiled = [tg.compile(f, backend="eager") for f in FUNCTIONS]
        self.layer = Layer()
        self.module = tg.compile(self.layer, backend="eager")

    def call(self) -> None:
        r = self.random
        n = r.randrange(6)
        x = torch.full((r.choice((2, 3)), 4), r.choice((-1.0, 0.5, 1.0)))
        items = list(range(r.randrange(3)))
        number = r.randrange(len(FUNCTIONS) + 1)
        if number == len(FUNCTIONS):
            flag = bool(n % 2)
            mine, theirs = self.module(x, flag), self.layer(x, flag)
            assert same(mine.detach(), theirs.detach())
            return
        mine = outcome(self.compiled[number], x.clone(), n, list(items))
        theirs = outcome(FUNCTIONS[number], x.clone(), n, list(items))
        assert same(mine, theirs), (FUNCTIONS[number].__name__, n, x.shape, mine, theirs)

    def short_lived(self) -> None:
        """A closure that is compiled, called and forgotten."""
        factor = self.random.randrange(1000)
        compiled = tg.compile(lambda x: x * factor, backend="eager")
        assert compiled(torch.ones(2))[0] == factor


def run(loops: list[Loop], calls: int, errors: list[BaseException]) -> None:
    shared = loops[0]

    def work(own: Loop) -> None:
        try:
            for n in range(calls // 2):
                # both threads call the functions of the first loop, too
                (own if n % 2 else shared).call()
                if n % 1000 == 0:
                    own.short_lived()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(loop,)) for loop in loops]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    calls = int(sys.argv[1])
    errors: list[BaseException] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, tg.prepare_debug(folder):
        loops = [Loop(1), Loop(2)]
        run(loops, max(calls // 5, 1000), errors)
        gc.collect()
        before = resident()
        run(loops, calls, errors)
        gc.collect()
        after = resident()
    if errors:
        raise errors[0]
    print(f"grew {after - before} bytes from {before}")


if __name__ == "__main__":
    main()
