"""``mode="max-autotune"`` measures and records; ``options={"threads": n}`` limits."""

import pytest
import torch

import torchglass as tg


def program(x, w):
    return torch.nn.functional.layer_norm(x + x.t(), (256,), w).sum(0)


def arguments():
    torch.manual_seed(0)
    return torch.randn(256, 256), torch.randn(256, requires_grad=True)


def files(compiled):
    (graph,) = tg.explain(compiled).graphs()
    return graph.files


def test_choices_are_measured_and_recorded():
    compiled = tg.compile(program, mode="max-autotune", fullgraph=True)
    x, w = arguments()
    compiled(x, w).sum().backward()
    ours, w.grad = w.grad, None
    program(x, w).sum().backward()
    torch.testing.assert_close(ours, w.grad)
    kernels = tg.explain(compiled).kernels()
    tried = [kernel for kernel in kernels if kernel.tried]
    assert tried
    for kernel in tried:
        assert kernel.tried[0].microseconds <= 1.05 * min(trial.microseconds for trial in kernel.tried)
        assert f"* runs: {kernel.tried[0]}" in kernel.source
    assert "best of" in str(tg.explain(compiled))


def test_the_default_measures_nothing():
    compiled = tg.compile(program)
    compiled(*arguments())
    assert not any(kernel.tried for kernel in tg.explain(compiled).kernels())


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_are_what_was_asked_for(threads):
    def large(x):
        return torch.softmax(x.exp() + 1, -1)

    compiled = tg.compile(large, options={"threads": threads})
    x = torch.randn(512, 1024)
    torch.testing.assert_close(compiled(x), large(x))
    text = files(compiled)["forward_kernels.c"]
    if threads == 1:
        assert "#pragma omp parallel" not in text
    else:
        assert text.count("#pragma omp parallel") == text.count("num_threads(3)") > 0
