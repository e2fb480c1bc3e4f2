"""The native guard table, remembering and not, gives the answers of the guards evaluated in Python."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from world import World

from torchglass.records.guards import Guard
from torchglass.records.sources import Source
from torchglass.runtime.guards import build_table, evaluate, explain_failure, reach

pytestmark = pytest.mark.usefixtures("many_dicts")


def expected_answer(world: World, guards: list[Guard], fetch: list[Source]) -> tuple[Any, ...] | None:
    scope = world.scope
    if not all(evaluate(guard, scope) for guard in guards):
        assert explain_failure(guards, scope) is not None
        return None
    try:
        return tuple(reach(source, scope) for source in fetch)
    except Exception:
        return None


def same(a: tuple[Any, ...] | None, b: tuple[Any, ...] | None) -> bool:
    if a is None or b is None:
        return a is b
    return len(a) == len(b) and all(x is y or is_fresh(x, y) for x, y in zip(a, b))


def is_fresh(x: Any, y: Any) -> bool:
    """Whether both are new views of one thing: of a tensor, as indexing gives, or of a class's dict."""
    if isinstance(x, MappingProxyType) and isinstance(y, MappingProxyType):
        return gc.get_referents(x)[0] is gc.get_referents(y)[0]
    tensors = isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)
    return tensors and x._is_view() and x.data_ptr() == y.data_ptr()


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_native_and_python_agree(seed: int) -> None:
    world = World(seed)
    guards, fetch = world.guards()
    remembering = build_table(guards, fetch, world.function)
    plain = build_table(guards, fetch, world.function)
    plain.remember = False
    for step in range(25):
        for _ in range(2 if step == 0 else world.random.randrange(3)):
            remembering.check(tuple(world.arguments))
        back = world.change()
        for _ in range(world.random.randrange(1, 4)):
            expected = expected_answer(world, guards, fetch)
            arguments = tuple(world.arguments)
            assert same(remembering.check(arguments), expected), f"step {step}, remembering"
            assert same(plain.check(arguments), expected), f"step {step}"
        if world.random.random() < 0.9:
            back()
        del back
    del remembering, plain
    gc.collect(0)
