"""Generator and coroutine functions compiled themselves: plain Python runs them, and the report says why."""

import asyncio
import itertools

import pytest
import torch

import torchglass as tg


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


def counting(x, log):
    try:
        got = yield x * 2
        log.append(got)
        while True:
            try:
                got = yield x + got
            except ValueError as error:
                got = len(str(error))
            if got > 9:
                return x.sin()
    finally:
        log.append("closed")


def delegating(x, log):
    result = yield from counting(x, log)
    yield result


def drive(function):
    log, found = [], []
    made = function(torch.ones(2), log)
    found += [next(made), made.send(3), made.throw(ValueError("four"))]
    try:
        found.append(made.send(10))
    except StopIteration as stop:
        found.append(stop.value)
    made.close()
    other = function(torch.ones(2), log)
    next(other)
    other.close()
    with pytest.raises(RuntimeError, match="mine"):
        failing = function(torch.ones(2), log)
        next(failing)
        failing.throw(RuntimeError("mine"))
    found.append(list(itertools.islice(function(torch.ones(2), log), 1)))
    return found, log


@pytest.mark.parametrize("function", [counting, delegating])
def test_generator_functions(function):
    compiled = tg.compile(function)
    for _ in range(2):
        (found, log), (expected, expected_log) = drive(compiled), drive(function)
        torch.testing.assert_close(found, expected)
        assert log == expected_log
    (fallback,) = tg.explain(compiled).record.fallbacks
    assert "a generator function, which runs after the call" in fallback.reason


async def waits(x):
    await asyncio.sleep(0)
    return x * 2


async def gives(x):
    yield x
    await asyncio.sleep(0)
    yield x + 1


def test_coroutine_functions():
    async def main():
        return await tg.compile(waits)(torch.ones(1)), [y async for y in tg.compile(gives)(torch.ones(1))]

    assert asyncio.run(main()) == (2, [1, 2])


@pytest.mark.parametrize(
    ("function", "kind"),
    [(counting, "a generator"), (waits, "a coroutine"), (gives, "an asynchronous generator")],
    ids=["generator", "coroutine", "asynchronous generator"],
)
def test_message(function, kind):
    with pytest.raises(tg.GraphBreakError) as caught:
        tg.compile(function, fullgraph=True)(*[torch.ones(2)] * function.__code__.co_argcount)
    message = str(caught.value)
    assert f"{kind} function, which runs after the call\n  hint: compile the functions it calls" in message
    assert f"{__file__}:{function.__code__.co_firstlineno}" in message


def test_functions_that_a_generator_calls():
    step = tg.compile(lambda x: x * 2, fullgraph=True)

    def doubling(x):
        for _ in range(3):
            x = step(x)
            yield x

    assert [float(y) for y in doubling(torch.tensor(1.0))] == [2, 4, 8]
    assert len(tg.explain(step).entries) == 1
