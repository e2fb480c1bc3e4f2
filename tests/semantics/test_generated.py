"""Random programs, compiled and plain: no difference. A failure's program goes into corpus/, which always runs."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import torchglass as tg

from . import harness
from .grammar import program
from .harness import check

CORPUS = sorted(Path(__file__).with_name("corpus").glob("*.txt"))
QUICK = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
ROUNDS = int(os.environ.get("TORCHGLASS_PROGRAMS", "5000")) // 250

pytestmark = pytest.mark.complains("IndexError")  # programs catch them: the graph failed, the function did not


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield
    tg.reset()


@pytest.mark.parametrize("backend", ["eager", "glass"])
@pytest.mark.parametrize("path", CORPUS, ids=lambda p: p.stem)
def test_a_program_that_once_failed(path, backend):
    check(path.read_text(), backend=backend)


ENDLESS = """
def f(x, y, n, flag, items, pairs, box):
    for item in items:
        if n == 4:
            items.append(item)
    return x + n
"""


def test_a_call_that_plain_python_does_not_finish_is_not_compared(monkeypatch):
    monkeypatch.setattr(harness, "LONGEST", 0.1)
    assert len(tg.explain(check(ENDLESS)).entries) == 2  # for the first two calls


choices = st.randoms(use_true_random=False)


@seed(1)
@settings(max_examples=70, **QUICK, phases=[Phase.generate, Phase.shrink])
@given(choices)
def test_programs(choices):
    check(program(choices))


@seed(2)
@settings(max_examples=8, **QUICK, phases=[Phase.generate, Phase.shrink])
@given(choices)
def test_programs_with_the_default_backend(choices):
    check(program(choices), calls=(0, 2, 4), backend="glass")


@pytest.mark.slow
@pytest.mark.parametrize("start", range(ROUNDS))
def test_many_programs(start):
    @seed(1000 + start)
    @settings(max_examples=250, **QUICK, phases=[Phase.generate, Phase.shrink])
    @given(choices)
    def run(choices):
        check(program(choices, size=20))

    run()


@pytest.mark.slow
@pytest.mark.parametrize("start", range(ROUNDS // 5))
def test_many_programs_with_the_default_backend(start):
    @seed(2000 + start)
    @settings(max_examples=50, **QUICK, phases=[Phase.generate, Phase.shrink])
    @given(choices)
    def run(choices):
        check(program(choices), calls=(0, 2, 3, 4), backend="glass")

    run()
