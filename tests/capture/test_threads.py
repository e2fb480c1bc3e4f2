"""Threads that compile and call the same functions at once, each with its own state."""

import sys
import threading

import pytest
import torch
from torch import nn

import torchglass as tg
from torchglass import torch_compat
from torchglass.torch_compat.fake_tensors import in_kernel_invocation_manager


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    with tg.prepare_debug(tmp_path):
        yield
    sys.setswitchinterval(interval)


def at_once(*works):
    """Run the functions in threads that start together; their exceptions are raised here."""
    errors = []
    start = threading.Barrier(len(works))

    def run(work):
        try:
            start.wait()
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
def test_one_function_is_compiled_once(backend):
    def f(x, y):
        return (x * y).sin().sum() + x.shape[0]

    compiled = tg.compile(f, backend=backend)
    x, y = torch.linspace(0, 1, 5), torch.ones(5)

    def work():
        for _ in range(20):
            torch.testing.assert_close(compiled(x, y), f(x, y))

    at_once(*[work] * 4)
    assert len(tg.explain(compiled).record.entries) == 1


def test_each_thread_its_shapes_and_breaks():
    def f(x):
        y = x + 1
        if y.sum() > 0:
            y = y * 2
        tg.graph_break()
        return y - 1

    compiled = tg.compile(f, dynamic=False)

    def work(n):
        def run():
            for k in range(30):
                x = torch.full((n,), float(k % 3 - 2))
                torch.testing.assert_close(compiled(x), f(x))

        return run

    at_once(*[work(n) for n in (2, 3, 4, 2)])
    assert len(tg.explain(compiled).record.entries) == 3


def test_training_in_threads():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    compiled = tg.compile(model)
    x = torch.randn(3, 4)
    expected = torch.autograd.grad(model(x).sum(), tuple(model.parameters()))

    def train():
        for _ in range(10):
            found = torch.autograd.grad(compiled(x).sum(), tuple(model.parameters()))
            torch.testing.assert_close(found, expected)

    def infer():
        with torch.no_grad():
            for _ in range(10):
                out = compiled(x)
                assert not out.requires_grad
                torch.testing.assert_close(out, model(x))

    at_once(train, infer, train, infer)


def test_modes_of_a_thread_stay_its_own():
    def f(x):
        return x * 2 if torch.is_grad_enabled() else x * 3

    compiled = tg.compile(f, backend="eager")
    x = torch.ones(3)

    def with_grad():
        for _ in range(50):
            assert compiled(x)[0] == 2 and torch.is_grad_enabled()

    def without():
        with torch.no_grad():
            for _ in range(50):
                assert compiled(x)[0] == 3 and not torch.is_grad_enabled()

    at_once(with_grad, without, with_grad, without)


def test_exceptions_and_resets_meanwhile():
    def f(x, n):
        if n < 0:
            raise ValueError(str(n))
        return x + n

    compiled = tg.compile(f, backend="eager", options={"cache_limit": 64})
    x = torch.zeros(2)

    def call():
        for n in range(40):
            assert compiled(x, n % 5)[0] == n % 5
            with pytest.raises(ValueError, match="-1"):
                compiled(x, -1)

    def forget():
        for _ in range(10):
            tg.reset()

    at_once(call, call, forget)


def test_resets_while_functions_are_made():
    def make():
        for _ in range(300):
            tg.compile(lambda x: x + 1, backend="eager")

    def forget():
        for _ in range(60):
            tg.reset()

    at_once(make, make, forget)


def test_resets_while_resume_functions_are_made():
    def f(x, n):
        for k in range(n):
            x = x + k
            tg.graph_break()
            x = x * k
        return x

    compiled = tg.compile(f, backend="eager")

    def call():
        for n in range(1, 8):
            torch.testing.assert_close(compiled(torch.ones(2), n), f(torch.ones(2), n))

    def forget():
        for _ in range(100):
            tg.reset()

    at_once(call, call, forget)


def test_a_fake_tensor_is_where_it_is_while_another_thread_runs_a_meta_function():
    """One thread lowers a graph while another one traces a backward of it anew."""
    mode = torch_compat.new_fake_mode()
    with mode:
        x = torch.ones(3)
    seen = []
    with in_kernel_invocation_manager(mode):
        at_once(lambda: seen.append(x.device.type))
        seen.append(x.device.type)
    assert seen == ["cpu", "meta"]
