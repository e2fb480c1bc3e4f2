"""Programs as people write them: results, output and what they leave behind are those of eager."""

import contextlib
import copy
import io
import random
import warnings

import pytest
import torch

import torchglass as tg

from . import edge_programs, research_programs, user_programs
from .test_programs import same

PROGRAMS = user_programs.PROGRAMS | edge_programs.PROGRAMS | research_programs.PROGRAMS


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


def run(function, arguments):
    """Results (or exceptions) and printed text of each call, in order."""
    results, out = [], io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for args in arguments:
            torch.manual_seed(1)
            random.seed(1)
            try:
                results.append(copied(function(*args)))
            except Exception as error:
                results.append((type(error), str(error), type(error.__cause__)))
    return results, out.getvalue()


def copied(result):
    """Results as they are now: a later call may write to them."""
    with torch.no_grad():
        try:
            return copy.deepcopy(result)
        except Exception:
            return result


@pytest.mark.parametrize("name", PROGRAMS)
def test_like_eager(name):
    torch.manual_seed(0)
    function, arguments = PROGRAMS[name]()
    expected = run(function, arguments)
    torch.manual_seed(0)
    function, arguments = PROGRAMS[name]()
    compiled = tg.compile(function, backend="eager")
    got = run(compiled, arguments)
    for mine, theirs in zip(got[0], expected[0]):
        same(mine, theirs)
    assert got[1] == expected[1]


def test_a_generator_as_argument_with_the_default_backend():
    def f(x, generator):
        return x + torch.randn(3, generator=generator) * torch.rand(3, generator=generator)

    compiled = tg.compile(f, fullgraph=True)
    x = torch.ones(3)
    mine, theirs = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    for _ in range(3):
        torch.testing.assert_close(compiled(x, mine), f(x, theirs))
    assert len(tg.explain(compiled).entries) == 1
