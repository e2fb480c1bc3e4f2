"""Compiled functions amid streams, CUDA graphs, devices, threads and processes of the program's own."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from tests.gpu.compiled import alike, check, generated, make, needs_gpu

import torchglass as tg

pytestmark = needs_gpu

WAIT = 50_000_000
"""Cycles that a stream is held up for: some 30 ms."""


def norm(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.sin() * 2, -1)


def test_on_a_side_stream() -> None:
    compiled, x = tg.compile(norm, fullgraph=True), make(64, 64)
    compiled(x)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(WAIT)  # a kernel on another stream would be there before this one is over
        late = x + 1
        got = compiled(late)
    stream.synchronize()
    alike(norm(x + 1), got)


def test_backward_of_a_side_stream() -> None:
    compiled, x = tg.compile(norm, fullgraph=True), make(64, 64, grad=True)
    compiled(x).square().sum().backward()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(WAIT)
        late = (x.detach() + 1).requires_grad_()
        compiled(late).square().sum().backward()
    stream.synchronize()
    want = (x.detach() + 1).requires_grad_()
    norm(want).square().sum().backward()
    alike(want.grad, late.grad, 1e-5)


def captured(step: Callable[[], torch.Tensor]) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """A CUDA graph of ``step`` as a program makes one, warmed up on a side stream."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    return graph, result


def test_captured_in_a_cuda_graph() -> None:
    compiled, x = tg.compile(norm, fullgraph=True), make(64, 64)
    graph, result = captured(lambda: compiled(x))
    for seed in (3, 4):
        x.copy_(make(64, 64, seed=seed))
        graph.replay()
        alike(norm(x), result)


def test_a_training_step_captured_in_a_cuda_graph() -> None:
    compiled, x = tg.compile(norm, fullgraph=True), make(64, 64)
    w = make(64, 64, seed=1, grad=True)

    def step() -> torch.Tensor:
        return torch.autograd.grad(compiled(x * w).square().sum(), w)[0]

    graph, result = captured(step)
    x.copy_(make(64, 64, seed=3))
    graph.replay()
    alike(torch.autograd.grad(norm(x * w).square().sum(), w)[0], result, 1e-5)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_second_device() -> None:
    compiled = tg.compile(norm, fullgraph=True)
    for index in (1, 0, 1):
        x = make(64, 64, seed=index).to(f"cuda:{index}").requires_grad_()
        y = compiled(x)
        y.square().sum().backward()
        assert y.device == x.device and torch.cuda.current_device() == 0
        want = x.detach().requires_grad_()
        norm(want).square().sum().backward()
        alike([norm(x), want.grad], [y, x.grad], 1e-5)
    generated(compiled)


def test_called_from_several_threads() -> None:
    compiled = tg.compile(norm)

    def use(seed: int) -> list[torch.Tensor]:
        x = make(16 + seed % 3, 64, seed=seed, grad=True)
        y = compiled(x)
        y.square().sum().backward()
        want = x.detach().requires_grad_()
        norm(want).square().sum().backward()
        return [want.grad, x.grad]

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(use, range(24)))
    for want, got in results:
        alike(want, got, 1e-5)
    generated(compiled)


def test_each_thread_on_a_stream_of_its_own() -> None:
    compiled = tg.compile(norm, fullgraph=True)
    compiled(make(64, 64))

    def use(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.cuda.stream(torch.cuda.Stream()):
            x = make(64, 64, seed=seed)
            return norm(x).cpu(), compiled(x).cpu()

    with ThreadPoolExecutor(4) as pool:
        for want, got in pool.map(use, range(16)):
            alike(want, got)


def test_backward_runs_in_autograds_thread() -> None:
    x, threads = make(64, 64, grad=True), []
    y = x * 2
    y.register_hook(lambda gradient: threads.append(threading.get_ident()))
    check(norm, x, tol=1e-5)
    tg.compile(norm, fullgraph=True)(y).square().sum().backward()
    assert len(threads) == 1 and threads[0] != threading.get_ident()


FORKED = """
import os, torch, torchglass as tg

@tg.compile(fullgraph=True)
def f(x):
    return (x.sin() * 2).sum(0)

{before}
pid = os.fork()
if pid == 0:
    x = torch.ones(8, 4, device="cuda", requires_grad=True)
    y = f(x)
    y.sum().backward()
    good = torch.allclose(y, (x.sin() * 2).sum(0)) and torch.allclose(x.grad, x.cos() * 2)
    good = good and any(kernel.language == "triton" for kernel in tg.explain(f).kernels())
    os._exit(0 if good else 3)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.parametrize("before", ["", "f(torch.ones(8, 4))"], ids=["at once", "after calls on the CPU"])
def test_a_forked_process_that_is_first_to_use_cuda(before: str) -> None:
    program = FORKED.format(before=before)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "0\n", done.stdout + done.stderr


def test_running_statistics_are_written_together() -> None:
    """Those of many layers in one launch for each dtype: values, counters of versions, and numbers of batches."""
    torch.manual_seed(0)
    layers = [torch.nn.BatchNorm1d(8, dtype=torch.bfloat16 if k % 2 else torch.float32) for k in range(6)]
    nets = [torch.nn.ModuleList(copy.deepcopy(layer) for layer in layers).cuda() for _ in "ab"]
    x = make(16, 8)

    def run(net: torch.nn.ModuleList) -> torch.Tensor:
        return sum(layer(x.to(layer.weight.dtype)).float() for layer in net)

    compiled = tg.compile(run, fullgraph=True)
    for _ in range(3):
        alike(run(nets[0]), compiled(nets[1]), tol=2e-2)
    for want, got in zip(nets[0].buffers(), nets[1].buffers()):
        alike(want, got, tol=2e-2)
        assert got._version == want._version


def test_a_backward_that_begins_with_a_product_warns_of_nothing() -> None:
    """cuBLAS finds a context in autograd's thread, whose first kernel our launcher started."""
    program = """
import torch, torchglass as tg, warnings
warnings.simplefilter("error")
x, w = (torch.randn(64, 64, device="cuda", requires_grad=True) for _ in "ab")
tg.compile(lambda x, w: (x @ w).sin().softmax(-1))(x, w).square().sum().backward()
torch.cuda.synchronize()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0 and "context" not in done.stderr, done.stderr


def test_the_choice_of_attention_is_eagers() -> None:
    """PyTorch sets its order of kernels once, which may be while we capture: each in a fresh process."""
    program = """
import torch, torchglass as tg
attention = torch.nn.functional.scaled_dot_product_attention
q = torch.randn(2, 4, 256, 64, dtype=torch.bfloat16, device="cuda", requires_grad=True)
f = attention if {eager} else tg.compile(lambda q, k, v: attention(q, k, v), fullgraph=True)
f(q, q, q).sum().backward()
print(int(torch._fused_sdp_choice(q, q, q)), torch._C._get_sdp_priority_order())
"""
    commands = [[sys.executable, "-c", program.format(eager=eager)] for eager in (True, False)]
    eager, ours = (subprocess.run(c, capture_output=True, text=True, check=True).stdout for c in commands)
    assert eager == ours


def test_indices_on_the_cpu() -> None:
    """Operators take them for what is on a GPU; a loop of one device could not."""
    check(lambda x, i: x[i] * 2, make(16, 8, grad=True), torch.tensor([3, 0, 15]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_small_layers(dtype: torch.dtype) -> None:
    """Products of few numbers are loops, forward and backward."""
    x, w, b = (make(*shape, dtype=dtype, seed=len(shape), grad=True) for shape in ((32, 24), (48, 24), (48,)))
    check(lambda x, w, b: F.gelu(F.linear(x, w, b)).sum(-1), x, w, b, tol=2e-2 if dtype == torch.bfloat16 else 1e-5)


def test_deterministic_algorithms() -> None:
    """Sums at computed places are eager's own calls there, and change with the setting."""

    def summed(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return torch.zeros(10, device=x.device).index_add(0, places, x * 2)

    x, places = make(1 << 16), torch.arange(1 << 16, device="cuda") % 10
    compiled = tg.compile(summed, fullgraph=True)
    compiled(x, places)
    torch.use_deterministic_algorithms(True)
    try:
        want = summed(x, places)
        assert all(torch.equal(want, compiled(x, places)) for _ in range(20))
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(tg.explain(compiled).entries) == 2


def test_results_apart_are_differentiated_one_after_another() -> None:
    """The backward of one is given nothing of what only the other needs, not even to see which GPU it runs on."""
    apart = lambda a, b: (a.sin() * a, b.cos() * b)
    inputs, others = ([make(8, 8, seed=k, grad=True) for k in (0, 1)] for _ in range(2))
    for first in (0, 1):
        results, wanted = tg.compile(apart, fullgraph=True)(*inputs), apart(*others)
        for k in (first, 1 - first):
            results[k].sum().backward()
            wanted[k].sum().backward()
    alike([x.grad for x in others], [x.grad for x in inputs], 1e-6)


def test_patches_that_do_not_overlap() -> None:
    """A vision transformer's first layer is a product, forward and backward."""
    x, w = make(4, 3, 64, 64, dtype=torch.bfloat16), make(32, 3, 16, 16, dtype=torch.bfloat16, seed=1, grad=True)
    b = make(32, dtype=torch.bfloat16, seed=2, grad=True)
    check(lambda x, w, b: F.conv2d(x, w / 16, b, stride=16).flatten(2).transpose(1, 2) * 2, x, w, b, tol=2e-2)


@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last], ids=["first", "last"])
def test_batch_norm_over_many_images(memory: torch.memory_format) -> None:
    """Statistics from parts that are read once, far from zero too."""
    x = (make(16, 32, 48, 48) * 0.1 + 100).to(memory_format=memory).requires_grad_()
    w, b = make(32, seed=1, grad=True), make(32, seed=2, grad=True)
    check(lambda x, w, b: F.relu(F.batch_norm(x, None, None, w, b, training=True)), x, w, b, tol=1e-4)


def test_variance_and_log_softmax_of_long_rows() -> None:
    x = make(64, 50257) * 3
    x[3] = -torch.inf
    check(lambda x: (x.log_softmax(-1), x.bfloat16().log_softmax(-1).exp().sum(-1)), x, tol=1e-2)
    check(lambda x: torch.var_mean(x, -1), make(64, 40000) + 10, tol=1e-4)


def test_max_pool_and_its_places() -> None:
    x = make(4, 16, 57, 57, grad=True)
    check(lambda x: F.max_pool2d(torch.relu(x * 2), 3, 2, 1, return_indices=True)[0] * 3, x)


def test_sums_of_what_was_joined() -> None:
    """Of places that fit 16 bits, of which ptxas loses constants (``triton_worker.without_packed_adds``)."""

    def rows_and_sum(*parts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.cat(parts, 2).transpose(1, 2).contiguous()
        return rows, rows.sum((0, 1))

    check(rows_and_sum, *(make(2, 32, n, seed=n) for n in (784, 196, 49, 16)), tol=1e-4)


OUT_OF_RANGE = """
import torch, torchglass as tg
import torch.nn.functional as F
read = {read}
x, i = torch.randn(100, 64, device="cuda"), torch.arange(1000, device="cuda") % 100
f = tg.compile(read, fullgraph=True)
for _ in range(2):
    torch.testing.assert_close(f(x, i), read(x, i))
assert {{kernel.language for kernel in tg.explain(f).kernels()}} == {{"triton"}}
i[777] = {wrong}
torch.cuda.synchronize()
try:
    f(x, i)
    torch.cuda.synchronize()
except RuntimeError as error:
    print(str(error).splitlines()[0])
"""
READS = {
    "embedding": "lambda x, i: F.embedding(i, x) * 2",
    "gather": "lambda x, i: x.gather(0, i[:, None].expand(-1, 64)) + 1",
    "index_add": "lambda x, i: x.index_add(0, i, torch.ones(1000, 64, device='cuda'))",
    "index": "lambda x, i: x[i, i % 64] + 1",
    "loss": "lambda x, i: F.cross_entropy(x.t()[:1].expand(1000, -1) * 2, i)",
}


@pytest.mark.parametrize("wrong", [100, -101], ids=["one too far", "before the first"])
@pytest.mark.parametrize("name", READS)
def test_an_index_out_of_range_ends_the_use_of_cuda(name: str, wrong: int) -> None:
    """As eager's assertions do."""
    program = OUT_OF_RANGE.format(read=READS[name], wrong=wrong)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert "CUDA error" in done.stdout, done.stdout + done.stderr


def test_pinned_memory_stays_pinned() -> None:
    def staged(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(5, pin_memory=True)
        return out.copy_(x * 2)

    x = make(5)
    got = tg.compile(staged)(x)
    assert got.is_pinned() and torch.equal(got, x.cpu() * 2)


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU], ids=["lstm", "gru"])
def test_what_is_around_a_recurrent_layer(kind: type[torch.nn.RNNBase]) -> None:
    """Its call of cuDNN breaks the graph; what is before it and after it is compiled."""
    torch.manual_seed(0)
    layer, x = kind(8, 16).to("cuda"), make(5, 4, 8)
    compiled = tg.compile(lambda x: layer(x.sin() * 2)[0].tanh() + 1)
    alike(layer(x.sin() * 2)[0].tanh() + 1, compiled(x), 1e-5)
    assert len(tg.explain(compiled).graphs()) == 2
