"""SymPy computes nothing while sizes that change are compiled: no relation, simplification or gcd, in any stage.

What PyTorch itself asks of it when its modules are loaded, and of a first fake tensor, came before.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import sympy
import torch
from benchmarks import common

import torchglass as tg

SYMPY = str(Path(sympy.__file__).parent)


@contextmanager
def calls_counted() -> Iterator[Counter[str]]:
    """Functions of SymPy that ran meanwhile, in any thread."""
    found: Counter[str] = Counter()

    def count(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SYMPY):
            found[frame.f_code.co_name] += 1

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def test_the_count_counts() -> None:
    with calls_counted() as found:
        sympy.simplify(sympy.gcd(sympy.Symbol("n") * 6, 4))
    assert found


@pytest.mark.parametrize("name", ["bert", "llama", "unet"])
@pytest.mark.parametrize("kind", common.KINDS)
def test_sizes_that_change_are_compiled_without(name: str, kind: str) -> None:
    compiled: Any = tg.compile(lambda x: x.sin() * x.shape[0], dynamic=True)
    compiled(torch.randn(6, 4))  # loads what PyTorch's fake tensors need
    model, inputs = common.WORKLOADS[name].build(layers=1)
    model.train(kind == "training")
    with calls_counted() as found:
        compiled = tg.compile(model, dynamic=True)
        common.step(compiled, model, inputs, kind)
    assert len(tg.explain(compiled).entries) == 1
    assert not found
