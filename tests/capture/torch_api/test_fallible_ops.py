"""Factorizations that fail for some values: what the program catches, and what it does before, is as in eager."""

import contextlib

import pytest
import torch

import torchglass as tg

BACKENDS = ["eager", "aot_eager", "glass"]
GOOD, BAD = torch.eye(3), -0.05 * torch.eye(3)


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


def with_jitter(k, seen):
    noise = torch.randn(3)
    seen.add_(noise)
    for power in range(4):
        try:
            factor = torch.linalg.cholesky(k + 10.0 ** (power - 2) * torch.eye(3))
            break
        except torch.linalg.LinAlgError:
            continue
    return factor, power, noise, torch.rand(1)


def in_a_with_in_a_try(k, seen):
    seen += 1
    try:
        with torch.no_grad():
            return torch.linalg.inv(k - k), True
    except:  # noqa: E722
        return k + torch.rand(3), False


def caught_around_the_call(k, seen):
    try:
        return in_a_finally(k, seen)
    except RuntimeError:
        return seen + torch.rand(3)


def in_a_finally(k, seen):
    noise = torch.rand(3)
    try:
        return k.cholesky() + noise
    finally:
        seen.mul_(2)


def uncaught(k, seen):
    noise = torch.rand(3)
    with contextlib.nullcontext():
        return torch.linalg.cholesky(k) + noise


def outcome(function, k, seen):
    torch.manual_seed(0)
    try:
        result = function(k, seen)
    except Exception as error:
        result = type(error), str(error)
    return repr(result), seen.clone(), torch.rand(1).item()


@pytest.mark.filterwarnings("ignore:torch.cholesky is deprecated")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [with_jitter, in_a_with_in_a_try, caught_around_the_call, uncaught])
def test_failures_are_caught_as_in_eager(function, backend):
    compiled = tg.compile(function, backend=backend)
    ours, eagers = torch.ones(3), torch.ones(3)
    for k in (GOOD, BAD, GOOD, BAD, BAD):
        got, expected = outcome(compiled, k, ours), outcome(function, k, eagers)
        assert got[0] == expected[0] and got[2] == expected[2]
        assert torch.equal(got[1], expected[1])


@pytest.mark.parametrize(("function", "number"), [(uncaught, 0), (in_a_finally, 0), (with_jitter, 1)])
def test_the_graph_ends_only_within_a_try(function, number):
    compiled = tg.compile(function, backend="eager")
    compiled(GOOD, torch.ones(3))
    reasons = [b.reason for b in tg.explain(compiled).breaks()]
    assert len([r for r in reasons if "fails for some values" in r]) == number


@pytest.mark.complains("which ran eagerly instead")  # once: the function catches the error
def test_the_graphs_failure_is_no_context():
    """Of what the function raises and handles itself when Python runs the call again."""

    def f(x, places):
        try:
            return x.index_select(0, places)
        except IndexError as error:
            return type(error.__context__)

    def within(function, *args):
        try:
            raise KeyError
        except KeyError:
            return function(*args)

    x, bad = torch.zeros(3), torch.tensor([7])
    compiled = tg.compile(f, backend="eager")
    assert compiled(x, bad) is f(x, bad) is type(None)
    assert within(compiled, x, bad) is within(f, x, bad) is KeyError
