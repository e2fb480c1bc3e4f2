"""Long use does not crash and does not grow; what is compiled and forgotten leaves nothing behind."""

import gc
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import torchglass as tg

from .worker import resident

ROOT = Path(__file__).parents[2]
MEGABYTE = 1 << 20


def soak(calls: int, timeout: int) -> int:
    """Bytes by which a process grew in so many calls."""
    environment = os.environ | {"PYTHONMALLOC": "debug", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.soak.worker", str(calls)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr[-3000:]
    return int(re.search(r"grew (-?\d+)", done.stdout)[1])


def test_a_short_soak():
    assert soak(5_000, timeout=900) < 16 * MEGABYTE


@pytest.mark.slow
def test_a_long_soak():
    assert soak(200_000, timeout=3600) < 16 * MEGABYTE


def closures(count: int) -> None:
    for n in range(count):
        held = torch.full((64,), float(n))

        def f(x, held=held):
            return x + held

        assert tg.compile(f, backend="eager")(torch.ones(64))[0] == n + 1


@pytest.mark.slow
def test_ten_thousand_short_lived_closures(tmp_path):
    with tg.prepare_debug(tmp_path):
        closures(1_000)
        gc.collect()
        before, modules = resident(), len(sys.modules)
        closures(10_000)
        gc.collect()
        grown = resident() - before
    assert len(sys.modules) == modules
    assert grown < 16 * MEGABYTE, f"{grown / 10_000:.0f} bytes for each"


def test_two_threads_compile_and_call_one_function():
    def f(x, n):
        y = x
        for _ in range(n):
            y = y + x
        if y.sum() > 2:
            return y + 1
        return y - 1

    compiled = tg.compile(f, backend="eager")
    barrier, errors = threading.Barrier(2), []

    def work(order):
        try:
            barrier.wait()
            for n in order:
                for x in (torch.ones(3), -torch.ones(3)):
                    torch.testing.assert_close(compiled(x, n), f(x, n))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(order,)) for order in (range(12), range(11, -1, -1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]
    assert len(tg.explain(compiled).entries) == 12
