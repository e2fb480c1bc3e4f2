"""Run a function on many names, each in a forked process of its own: a crash or a time-out costs one row.

for row in forked(check, ["bert", "gpt2"], jobs=2, timeout=120): ...
"""

from __future__ import annotations

import json
import os
import resource
import select
import selectors
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
MEMORY = 12 << 30  # that a child may take beyond what it was born with: CUDA alone reserves several times that


@dataclass
class Child:
    name: str
    pid: int
    pipe: int
    started: float
    errors: Any
    data: bytearray = field(default_factory=bytearray)


def forked(
    check: Callable[[str], Row],
    names: Iterable[str],
    jobs: int = 1,
    timeout: float = 120,
    memory: int | None = MEMORY,
) -> Iterator[Row]:
    """Rows in the order in which they finish. What a child prints goes to its row when it crashes."""
    waiting, running = list(names)[::-1], {}
    selector = selectors.DefaultSelector()
    while waiting or running:
        while waiting and len(running) < jobs:
            child = _start(check, waiting.pop(), memory)
            running[child.pipe] = child
            selector.register(child.pipe, selectors.EVENT_READ)
        for key, _ in selector.select(0.5):
            child = running[key.fd]
            data = os.read(child.pipe, 1 << 16)
            child.data += data
            if not data:
                yield _finished(child, selector, running, "")
        for child in list(running.values()):
            if time.monotonic() - child.started > timeout:
                os.kill(child.pid, signal.SIGKILL)
                yield _finished(child, selector, running, f"time-out after {timeout:.0f} s")


def _start(check: Callable[[str], Row], name: str, memory: int | None) -> Child:
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
    reading, writing = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _in_child(check, name, writing, errors, memory)
    os.close(writing)
    return Child(name, pid, reading, time.monotonic(), errors)


def _in_child(check: Callable[[str], Row], name: str, pipe: int, errors: Any, memory: int | None) -> None:
    import faulthandler

    os.dup2(errors.fileno(), 1)
    os.dup2(errors.fileno(), 2)
    faulthandler.enable(errors)
    if memory is not None:
        most = address_space() + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        row = check(name)
    except BaseException as error:
        row = {"name": name, "result": "crashed", "why": f"{type(error).__name__}: {error}"[:600]}
    with os.fdopen(pipe, "wb") as file:
        file.write(json.dumps(row).encode())
    os._exit(0)


def address_space() -> int:
    """Bytes that this process has reserved."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _finished(child: Child, selector: Any, running: dict[int, Child], why: str) -> Row:
    selector.unregister(child.pipe)
    os.close(child.pipe)
    del running[child.pipe]
    _, status = os.waitpid(child.pid, 0)
    child.errors.seek(0)
    text = child.errors.read().decode(errors="replace")
    child.errors.close()
    seconds = round(time.monotonic() - child.started, 2)
    if child.data and not why:
        return {**json.loads(child.data), "wall": seconds}
    why = why or f"ended with status {os.waitstatus_to_exitcode(status)}: {text[-2000:]}"
    return {"name": child.name, "result": "crashed", "why": why, "wall": seconds}


def speaking(run: Callable[[int], None], silenced: Iterable[int]) -> tuple[int, int]:
    """A child process that runs ``run(pipe)``, with these standard streams silenced; its id and the end to read."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    status = 1
    try:
        os.close(reading)
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in silenced:
            os.dup2(quiet, stream)
        run(writing)
        status = 0
    finally:
        os._exit(status)


def messages(pipe: int, timeout: float) -> Iterator[list[Any]]:
    """Lines of JSON from a child; ends when it does. TimeoutError when it says nothing for too long."""
    rest = b""
    while True:
        if not select.select([pipe], [], [], timeout)[0]:
            raise TimeoutError
        data = os.read(pipe, 1 << 16)
        if not data:
            return
        *complete, rest = (rest + data).split(b"\n")
        yield from map(json.loads, complete)


def tallied(rows: Iterable[Row]) -> Counter[str]:
    """How often each result stands in rows with ``counts``, or as the result of one without."""
    return sum((Counter(row.get("counts", {row.get("result", ""): 1})) for row in rows), Counter[str]())


def saved(rows: list[Row], counts: Counter[str], path: str | None) -> None:
    if path:
        with open(path, "w") as file:
            json.dump({"counts": counts, "rows": rows}, file, indent=1)
