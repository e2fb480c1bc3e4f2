"""Programs as people write them: results, output and what they leave behind are those of eager."""

import pytest
import torch

import torchglass as tg

from .compared import run, same, seed
from .tables import entered, program_files

PROGRAMS = entered("PROGRAMS", program_files())


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


@pytest.mark.parametrize("name", PROGRAMS)
def test_like_eager(name):
    seed(0)
    function, arguments = PROGRAMS[name]()
    expected = run(function, arguments)
    seed(0)
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
