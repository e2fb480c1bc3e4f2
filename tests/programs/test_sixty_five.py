"""Program 8: sixty-five values of a specialised constant: 64 entries, then eager with one message."""

import torch
from tests.complaints import complains

import torchglass as tg


def shifted(x, name):
    return x + len(name) * 2 if name != "w" else x.sum()


def test_sixty_four_entries_then_eager_with_one_message():
    compiled = tg.compile(shifted, backend="eager")
    x = torch.arange(6.0)
    with complains("entries") as said:
        for n in range(65):
            name = "v" * (n + 1)
            torch.testing.assert_close(compiled(x, name), shifted(x, name))
        assert len(tg.explain(compiled).entries) == 64
        for n in range(80):  # known values and new ones
            name = "v" * (n + 1)
            torch.testing.assert_close(compiled(x, name), shifted(x, name))
    (message,) = said
    assert "`shifted`" in message and "64 entries" in message and "runs eagerly" in message
    assert "What kept changing: name." in message
    assert "test_sixty_five.py" in message
    explanation = tg.explain(compiled)
    assert len(explanation.entries) == 64
    assert len(explanation.record.recompiles) == 63
    (fallback,) = [f for f in explanation.record.fallbacks if f.stage == "cache limit"]
    assert "64 entries" in fallback.reason
    latest = explanation.record.recompiles[-1]
    assert latest.guard.source.render() == "name" and latest.new == "v" * 64


def test_integers_that_are_sizes():
    compiled = tg.compile(lambda x, n: x[:n] * 2, backend="eager", dynamic=False)
    x = torch.arange(100.0)
    with complains("entries") as said:
        for n in range(70):
            torch.testing.assert_close(compiled(x, n), x[:n] * 2)
    assert len(tg.explain(compiled).entries) == 64
    assert len(said) == 1 and "64 entries" in said[0]


def test_reset_begins_anew():
    compiled = tg.compile(shifted, backend="eager", options={"cache_limit": 2})
    x = torch.arange(6.0)
    with complains("2 entries"):
        for name in ("a", "bb", "ccc"):
            compiled(x, name)
    assert len(tg.explain(compiled).entries) == 2
    tg.reset()
    compiled(x, "dddd")
    assert len(tg.explain(compiled).entries) == 1
