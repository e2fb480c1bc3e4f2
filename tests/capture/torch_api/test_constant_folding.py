"""Values of tensors that constants alone make are known while capturing; those of others are not."""

import pytest
import torch

import torchglass as tg

X = torch.arange(6.0).reshape(2, 3)


def known(x):
    mask = torch.ones(3, 3).tril()
    rows = mask.nonzero()
    count = int(mask.sum())
    picked = x[:, torch.tensor([0, 2])]
    return x * count + rows.shape[0], picked, mask[0].tolist(), [4, 5][torch.tensor(1)]


def sizes_that_are_tensors(x):
    count = torch.arange(4).max() + 1
    return x.repeat(count, 1), x.reshape(torch.tensor(3), -1), torch.zeros(count, 2)


def result_is_written_to(x):
    rows = torch.eye(2).nonzero()
    rows.add_(10)
    return rows, x


def written_at_known_places(x):
    mask = torch.full((3, 3), 7.0)
    for start, end in zip(torch.tensor([0, 1]), torch.tensor([1, 2]).cumsum(0)):
        mask[start:end, start] = 0
        mask[start] = 1
    return mask + x.sum()


def depends_on_an_input(x):
    return x.sum().item()


def random_numbers(x):
    return torch.rand(3).sum().item() < 3, torch.randperm(4).tolist(), x


def written_in_place(x):
    t = torch.zeros(3)
    t[1] = 5
    t += 1
    return t.tolist(), x


def written_with_an_input(x):
    t = torch.zeros(2, 3)
    t.copy_(x)
    return t.sum().item()


def written_through_a_view(x):
    t = torch.zeros(3)
    view = t[:2]
    view.fill_(2)
    return t.tolist(), t.sum().item(), x


def written_where_data_say(x):
    t, places = torch.zeros(3), torch.tensor([True, False, True])
    t[places] = torch.tensor([1.0, 2.0])
    t.masked_scatter_(places, torch.tensor([3.0, 4.0]))
    rows = places.nonzero()
    rows[rows > 1] = torch.tensor([5])
    return t, rows, places.nonzero(), t.sum().item()


def under_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        t = torch.full((2, 2), 1.001) @ torch.full((2, 2), 1.001)
        return t.dtype, t[0, 0].item(), x


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


@pytest.mark.parametrize("function", [known, sizes_that_are_tensors, result_is_written_to, written_at_known_places])
def test_known(function):
    compiled = tg.compile(function, backend="eager", fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(X), function(X))


@pytest.mark.parametrize(
    "function",
    [depends_on_an_input, random_numbers, written_in_place, written_with_an_input, written_through_a_view,
     written_where_data_say, under_autocast],
)  # fmt: skip
def test_not_known(function):
    compiled = tg.compile(function, backend="eager")
    for seed in range(3):
        torch.manual_seed(seed)
        expected = function(X + seed)
        torch.manual_seed(seed)
        assert str(compiled(X + seed)) == str(expected)
    assert tg.explain(compiled).entries[0].breaks


def test_random_numbers_are_not_used_up():
    def f(x):
        if torch.rand(2).sum() > 5:
            return x
        return x + torch.rand(1)

    compiled = tg.compile(f, backend="eager")
    torch.manual_seed(0)
    expected = f(X), torch.rand(1)
    torch.manual_seed(0)
    torch.testing.assert_close((compiled(X), torch.rand(1)), expected)


def made_of_tensors(x):
    both = torch.tensor([x.sum(), 2.0]) * 2
    packed = torch.nn.utils.rnn.pack_padded_sequence(x.T, torch.tensor([2, 1]), enforce_sorted=False)
    padded, lengths = torch.nn.utils.rnn.pad_packed_sequence(packed)
    return both + x[0, 1], padded * 2, lengths


def test_memory_that_is_read_without_an_operator_is_data():
    compiled = tg.compile(made_of_tensors, backend="eager")
    for x in (X, X + 1):
        torch.testing.assert_close(compiled(x), made_of_tensors(x))
    assert not any("raises" in b.reason for b in tg.explain(compiled).breaks())


def written(x, place, value):
    y = x + 1
    y[place] = value
    return y


READ_AS_NUMBERS = {
    "row": lambda x: x[torch.tensor(1)] * 2,
    "column": lambda x: x[:, torch.tensor(1)] * 2,
    "element": lambda x: x[0, torch.tensor(1)] * 2,
    "bool": lambda x: x[torch.tensor(True)] * 2,
    "byte": lambda x: x[torch.tensor(1, dtype=torch.uint8)] * 2,
    "computed": lambda x: x[torch.arange(2).max()] * 2,
    "written in place": lambda x: x[torch.tensor(0).add_(1)] * 2,
    "assignment": lambda x: written(x, torch.tensor(1), 5.0),
    "masked assignment": lambda x: written(x, torch.tensor(False), 5.0),
    "upper bound": lambda x: torch.clamp(x * 2, 0, torch.tensor(2.5)),
    "lower bound": lambda x: torch.clamp(x * 2, torch.tensor(1), 5),
}


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", READ_AS_NUMBERS)
def test_operators_read_numbers_from_known_tensors(name, requires_grad):
    function = READ_AS_NUMBERS[name]

    def ran(function):
        x = X.clone().requires_grad_(requires_grad)
        result = function(x)
        if requires_grad:
            result.square().sum().backward()
        return result, x.grad

    torch.testing.assert_close(ran(tg.compile(function, fullgraph=True)), ran(function))
