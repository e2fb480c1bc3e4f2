"""Branches on tensors of which one side raises: the graph goes on, and the call that would raise runs in Python.

The asserts of these programs are to be Python's own: PYTEST_DONT_REWRITE
"""

import math

import pytest
import torch
from torch import distributions as D
from torch import nn

import torchglass as tg

BACKENDS = ["eager", "aot_eager", "glass"]
GOOD, BAD = torch.tensor([1.0, 4.0]), torch.tensor([1.0, -4.0])
GENERATOR, NORM = torch.Generator(), nn.BatchNorm1d(2)


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


def outcome(function, *args):
    """What a call returns or raises, where it raised, and the random number drawn next."""
    torch.manual_seed(0)
    try:
        result = function(*args)
    except Exception as error:
        trace = error.__traceback__
        while trace.tb_next is not None:
            trace = trace.tb_next
        result = type(error), str(error), trace.tb_frame.f_code.co_name, trace.tb_lineno, error.__context__
    return repr(result), torch.rand(1).item()


def breaks(compiled):
    return [b.reason for entry in tg.explain(compiled).all_entries() for b in entry.breaks]


def asserts(x):
    y = torch.rand(2) + x
    assert (x > 0).all(), "below"
    if torch.isnan(x).any():
        raise ValueError(f"of {len(x)}")
    return y.sqrt()


def picks(x):
    policy = D.Categorical(logits=torch.stack((x, 2 * x)).log())
    action = policy.sample()
    return action, policy.log_prob(action), policy.entropy()


def normal(x):
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        return D.Normal(torch.zeros(2), x).rsample()


def flag_itself(x):
    flag = (x > 0).all()
    if not flag:
        raise LookupError
    return x + 1, flag


def before(x):
    if x.sum() < 0:
        raise LookupError(x.sum())


def nested(x):
    before(x)
    return x * 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [asserts, picks, normal, flag_itself, nested], ids=lambda f: f.__name__)
def test_a_check_that_fails_raises_as_eager_does(function, backend):
    compiled = tg.compile(function, backend=backend, fullgraph=True)
    for x in (GOOD, BAD, GOOD + 1, BAD):
        assert outcome(compiled, x) == outcome(function, x)
    assert len(tg.explain(compiled).entries) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_covariances_are_looked_at_when_the_graph_has_run(backend):
    """PyTorch asks for a factorization only where the matrices are symmetric."""
    given = [
        [[2.0, 0.5], [0.5, 1.0]],
        [[1.0, 2.0], [2.0, 1.0]],
        [[1.0, 0.5], [0.0, 1.0]],
        [[math.nan, 0.0], [0.0, 1.0]],
    ]

    def density(x, covariance):
        return D.MultivariateNormal(x, covariance).log_prob(x + 1)

    compiled = tg.compile(density, backend=backend, fullgraph=True)
    for covariance in map(torch.tensor, [*given, given[0]]):
        mine, theirs = outcome(compiled, GOOD, covariance), outcome(density, GOOD, covariance)
        assert mine == theirs
    assert len(tg.explain(compiled).entries) == 1


def test_a_check_that_fails_has_no_effects_twice():
    class Log:
        def __init__(self):
            self.seen, self.count = [], 0

    def f(x, log):
        log.count += 1
        log.seen.append(log.count)
        assert x.sum() > 0
        log.seen.append("after")
        return x + log.count

    mine, theirs = Log(), Log()
    compiled = tg.compile(f, backend="eager")
    for x in (GOOD, BAD, GOOD, BAD):
        assert outcome(compiled, x, mine) == outcome(f, x, theirs)
        assert (mine.count, mine.seen) == (theirs.count, theirs.seen)


def test_a_check_whose_exception_is_caught():
    def f(x):
        try:
            assert x.sum() > 0, "no"
        except AssertionError as error:
            return x - 1, str(error)
        return x + 1, ""

    compiled = tg.compile(f, backend="eager", fullgraph=True)
    for x in (GOOD, BAD, GOOD):
        assert outcome(compiled, x) == outcome(f, x)


def test_after_a_break():
    def f(x):
        total = x.sum().item()
        assert (x > 0).all(), total
        return x + total

    compiled = tg.compile(f, backend="eager")
    for x in (GOOD, BAD, GOOD):
        assert outcome(compiled, x) == outcome(f, x)
    assert set(breaks(compiled)) == {"`.item()` of a tensor reads its data"}


def writes(x):
    x.add_(1)
    assert (x > 0).all()
    return x * 2


def draws_from_a_generator(x):
    noise = torch.rand(2, generator=GENERATOR)
    assert (x > 0).all()
    return noise.shape


def other_work(x):
    if x.sum() < 0:
        return x - 1
    return x + 1


def normalized(x):
    y = NORM(x.expand(3, 2))
    assert (x > 0).all()
    return y


@pytest.mark.parametrize("function", [writes, draws_from_a_generator, other_work, normalized], ids=lambda f: f.__name__)
def test_what_cannot_run_twice_breaks(function):
    compiled = tg.compile(function, backend="eager")
    for x in (GOOD, BAD - 2, GOOD):
        assert outcome(compiled, x.clone())[0] == outcome(function, x.clone())[0]
    assert "a branch on the value of a tensor" in breaks(compiled)


def test_training_with_distributions_is_one_graph_up_to_backward():
    policy, value = nn.Linear(4, 2), nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*policy.parameters(), *value.parameters()], lr=0.1)

    def step(obs, actions, old, returns):
        dist = D.Categorical(logits=policy(obs))
        advantage = returns - value(obs).squeeze(-1)
        ratio = (dist.log_prob(actions) - old).exp()
        loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean() - dist.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    compiled = tg.compile(step, backend="eager")
    for _ in range(4):
        compiled(torch.rand(6, 4), torch.randint(2, (6,)), torch.rand(6), torch.rand(6))
    assert "a branch on the value of a tensor" not in breaks(compiled)
    assert len(list(tg.explain(compiled).all_entries())) <= 4
