"""Functions that get another size at nearly every call, and functions past the cache limit."""

from __future__ import annotations

import torch
from tests.complaints import complains

import torchglass as tg


def entries(compiled) -> int:
    return len(tg.explain(compiled).entries)


def test_a_function_that_grows_is_soon_left_alone_and_keeps_its_entries() -> None:
    def step(x, cache):
        return (x * cache).sum(0), torch.cat([cache, x[None]])

    compiled = tg.compile(step, backend="eager", dynamic=False)
    cache, wanted = torch.ones(1, 4), torch.ones(1, 4)
    with complains("new sizes run eagerly") as said:
        for n in range(30):
            x = torch.full((4,), float(n))
            (got, cache), (want, wanted) = compiled(x, cache), step(x, wanted)
            torch.testing.assert_close(got, want)
    assert len(said) == 1 and "What kept growing: cache" in said[0] and "test_growing.py" in said[0]
    assert entries(compiled) == 8
    hits = compiled.hits
    compiled(torch.ones(4), torch.ones(3, 4))
    assert compiled.hits == hits + 1  # of an entry that is there
    compiled(torch.ones(4, dtype=torch.float64), torch.ones(3, 4))  # no matter of sizes
    assert entries(compiled) == 9
    tg.reset()
    compiled(torch.ones(4), torch.ones(20, 4))
    assert entries(compiled) == 1


def test_a_function_with_a_few_sizes_that_return_is_compiled_for_each() -> None:
    compiled = tg.compile(lambda x: x.sin() + 1, backend="eager", dynamic=False)
    for _ in range(4):
        for n in range(1, 8):
            compiled(torch.ones(n))
    for n in range(8, 11):
        compiled(torch.ones(n))
    assert entries(compiled) == 10


def test_past_the_limit_entries_serve_their_calls() -> None:
    def f(x, name):
        return x + len(name) if name != "w" else x.sum()

    compiled, x = tg.compile(f, backend="eager", options={"cache_limit": 4}), torch.ones(3)
    names = ["v" * n for n in range(1, 8)]
    with complains("4 entries"):
        for name in names:
            assert torch.equal(compiled(x, name), f(x, name))
    hits, misses = compiled.hits, compiled.misses
    for name in names:
        assert torch.equal(compiled(x, name), f(x, name))
    assert (compiled.hits - hits, compiled.misses - misses) == (4, 3) and entries(compiled) == 4
