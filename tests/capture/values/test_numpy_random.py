"""NumPy's random numbers: each call of a compiled function draws anew, and the streams advance as in eager."""

import numpy as np
import pytest
import torch

import torchglass as tg

STATE = {}
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


@case
def global_functions(x):
    return x * np.random.rand(), np.random.randint(0, 9), torch.from_numpy(np.random.normal(size=3))


@case
def permuted(x):
    return x[torch.as_tensor(np.random.permutation(4))]


@case
def shuffled_in_place(x):
    np.random.shuffle(STATE["list"])
    return x, list(STATE["list"])


@case
def chosen_mask(x):
    mask = np.zeros((2, 4), dtype=bool)
    for row in mask:
        row[np.random.choice(np.arange(4), 2, replace=False)] = True
    return x * torch.tensor(mask)


@case
def generator_of_a_global(x):
    return x * STATE["generator"].random(), STATE["state"].rand(2).tolist()


@case
def generator_made_inside(x):
    generator = np.random.default_rng(5)
    return x * generator.integers(0, 9), generator.random()


@case
def seeded_inside(x):
    np.random.seed(3)
    return x * np.random.uniform()


@case
def drawn_in_a_branch(x):
    y = x * 2
    if np.random.rand() > 0.5:
        y = y + np.random.rand()
    return y


@case
def drawn_in_a_call(x):
    def noise():
        return float(np.random.rand())

    return x + noise() + noise()


@case
def with_torchs_numbers(x):
    return x * torch.rand(4) + np.random.rand() + torch.rand(4)


def outcomes(function):
    np.random.seed(0)
    torch.manual_seed(0)
    STATE.update(list=[1, 2, 3, 4], generator=np.random.default_rng(0), state=np.random.RandomState(0))
    found = [function(torch.arange(4.0)) for _ in range(4)]
    return found, np.random.rand(), STATE["generator"].random(), STATE["state"].rand(), torch.rand(1)


@pytest.mark.parametrize("backend", ["eager", "glass"])
@pytest.mark.parametrize("name", CASES)
def test_as_eager(name, backend):
    tg.reset()
    mine, theirs = outcomes(tg.compile(CASES[name], backend=backend)), outcomes(CASES[name])
    torch.testing.assert_close(mine, theirs)
