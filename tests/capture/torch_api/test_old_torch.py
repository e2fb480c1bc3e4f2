"""How tensors were made and chosen before there were dtypes and bool, and numbers as first operands."""

import pytest
import torch

import torchglass as tg

PROGRAMS = {
    "numbers": lambda x: torch.FloatTensor([1, 2.5]) + x[0],
    "nested": lambda x: torch.FloatTensor([[1.0, 2], (3, 4)]).t() @ x,
    "integers": lambda x: torch.LongTensor([[1, 0], [0, x.size(0)]])[0] + 1,
    "truths": lambda x: torch.BoolTensor([True, False]) & (x[0] > 0),
    "sizes": lambda x: torch.FloatTensor(2, 3).fill_(x[0, 0]),
    "a size": lambda x: torch.DoubleTensor(x.shape).zero_() + x,
    "a size of the default": lambda x: torch.Tensor(x.size()).fill_(2) + x,
    "a size of the same kind": lambda x: (x.new(x.shape).zero_() + x, x.new(torch.Size([])).fill_(1)),
    "a size by the class": lambda x: torch.Tensor.new(x, x.shape).fill_(3) * x,
    "nothing": lambda x: torch.cat((torch.FloatTensor(), torch.DoubleTensor([])), 0).sum() + x,
    "where": lambda x: torch.where((x > 0.5).to(torch.uint8), x, 0.0),
    "method where": lambda x: x.where((x > 0.5).byte() * 2, -x),
    "division of a number": lambda x: torch.div(7.5, x.t(), rounding_mode="trunc"),
    "floor division of a number": lambda x: torch.floor_divide(7, x),
}


@pytest.mark.filterwarnings("ignore:where received a uint8")
@pytest.mark.parametrize("backend", ["eager", "glass"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_old(name, backend):
    program, x = PROGRAMS[name], torch.rand(2, 2) + 0.2
    compiled = tg.compile(program, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(x), program(x))
    assert not tg.explain(compiled).breaks()


def test_fractions_are_refused_by_integers():
    def program(x):
        try:
            return x + torch.LongTensor([1.5])
        except TypeError:
            return x - 1

    x = torch.ones(1)
    assert torch.equal(tg.compile(program, backend="eager")(x), program(x))
