"""Every program of the tables gives eager's results, side effects and exceptions; the whole ones in one graph."""

import pytest

import torchglass as tg

from .compared import make_input, outcome, same
from .tables import entered, program_files

FILES = program_files()
WHOLE = entered("WHOLE", FILES)
BREAKING = entered("BREAKING", FILES)


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


@pytest.mark.parametrize("name", WHOLE)
def test_captured_whole(name):
    compiled = tg.compile(WHOLE[name], backend="eager", fullgraph=True)
    expected = outcome(WHOLE[name], make_input())
    for _ in range(2):
        same(outcome(compiled, make_input()), expected)
    assert len(tg.explain(compiled).entries) == 1


@pytest.mark.parametrize("name", BREAKING)
def test_broken_and_right(name):
    compiled = tg.compile(BREAKING[name], backend="eager")
    for sign in (1, -1, 1):
        x = make_input() * sign
        same(outcome(compiled, x), outcome(BREAKING[name], x))


@pytest.mark.parametrize("name", entered("WHOLE", [f for f in FILES if not getattr(f, "ONLY_TENSORS", False)]))
def test_without_tensors(name):
    """What the program does with a number: results, or the exception where it wanted a tensor."""
    compiled = tg.compile(WHOLE[name], backend="eager")
    for _ in range(2):
        same(outcome(compiled, 4), outcome(WHOLE[name], 4))
