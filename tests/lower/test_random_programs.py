"""Random programs beside eager; see ``random_programs``. The first seeds are those that once differed."""

from __future__ import annotations

import warnings

import pytest
from tests.lower.accuracy import worse
from tests.lower.random_programs import Program, difference


def differing(seeds: range | list[int]) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [(seed, difference(seed)) for seed in seeds]
    return ["\n".join([f"seed {seed}: {text}", *Program(seed).text]) for seed, text in found if text]


def test_programs() -> None:
    found = differing([158, 352, 361, 1149, 1246, 2618, 3668, *range(10)])
    assert not found, "\n\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_many_programs(part: int) -> None:
    found = differing(range(2000 + 300 * part, 2300 + 300 * part))
    assert not found, "\n\n".join(found)


@pytest.mark.slow
def test_reductions_are_as_exact_as_eager() -> None:
    assert not worse(10**6)
