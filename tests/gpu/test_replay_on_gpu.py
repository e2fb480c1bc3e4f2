"""mode="reduce-overhead": loops as people write them, bit for bit what the same kernels give launched one by one."""

from __future__ import annotations

import copy
import io
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.gpu.compiled import make, needs_gpu
from torch import nn

import torchglass as tg
from torchglass.runtime import replay

pytestmark = needs_gpu

STEPS = 14
Collect = Callable[..., None]
Loop = Callable[[str, Collect], Any]


@pytest.fixture(autouse=True)
def _whatever_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs as small as these stay, however busy the machine is."""
    monkeypatch.setattr(replay, "SLOWER", 1e9)


def net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    layers = [nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)]
    return nn.Sequential(*layers).cuda()


def batch(step: int, rows: int = 16) -> torch.Tensor:
    return make(rows, 32, seed=step)


def graphs_of(compiled: Any) -> list[str]:
    """What became of each side."""
    told = tg.explain(compiled).to_dict()
    entries = [entry for function in _functions(told) for entry in function["entries"]]
    return [text for entry in entries for graph in entry["graphs"] for text in graph["replays"].values()]


def _functions(told: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield told
    for inner in (*told["resumes"], *told["called"]):
        yield from _functions(inner)


def same(loop: Loop, replayed: bool = True) -> None:
    """``loop(mode, collect)`` collects equal tensors in both modes, and its graphs are replayed."""
    found: list[list[torch.Tensor]] = []
    for mode in ("default", "reduce-overhead"):
        tg.reset()
        torch.manual_seed(1)
        collected: list[torch.Tensor] = []
        compiled = loop(mode, _into(collected))
        torch.cuda.synchronize()
        found.append(collected)
        if mode != "default" and replayed:
            for one in compiled if isinstance(compiled, (list, tuple)) else [compiled]:
                sides = graphs_of(one)
                assert sides and all("replayed" in side for side in sides), sides
    assert len(found[0]) == len(found[1]) > 0
    for place, (a, b) in enumerate(zip(*found)):
        assert torch.equal(a, b), f"tensor {place} of {len(found[0])}"


def _into(collected: list[torch.Tensor]) -> Collect:
    return lambda *tensors: collected.extend(t.detach().clone() for t in tensors)


@pytest.mark.parametrize("where", ["after", "before", "between"])
@pytest.mark.parametrize("to_none", [True, False])
def test_training(where: str, to_none: bool) -> None:
    def loop(mode: str, collect: Collect) -> Any:
        model = net()
        step = tg.compile(model, mode=mode)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        for k in range(STEPS):
            if where == "before":
                optimizer.zero_grad(set_to_none=to_none)
            loss = step(batch(k)).square().mean()
            if where == "between":
                optimizer.zero_grad(set_to_none=to_none)
            loss.backward()
            optimizer.step()
            collect(loss, *(p.grad for p in model.parameters()))
            if where == "after":
                optimizer.zero_grad(set_to_none=to_none)
        collect(*model.parameters())
        return step

    same(loop)


@pytest.mark.parametrize("micro", [4])
def test_accumulation(micro: int) -> None:
    def loop(mode: str, collect: Collect) -> Any:
        model = net()
        step = tg.compile(model, mode=mode)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        for k in range(STEPS):
            for m in range(micro):
                (step(batch(10 * k + m)).square().mean() / micro).backward()
            collect(*(p.grad for p in model.parameters()))
            optimizer.step()
            optimizer.zero_grad()
        collect(*model.parameters())
        return step

    same(loop)


def test_outputs_that_are_kept() -> None:
    def loop(mode: str, collect: Collect) -> Any:
        model = net().eval()
        call = tg.compile(model, mode=mode)
        with torch.no_grad():
            kept = [call(batch(k)) for k in range(100)]
            views = [call(batch(k))[3:9, ::2] for k in range(STEPS)]
        collect(*kept, *views)
        return call

    same(loop)


def test_outputs_that_are_saved_and_kept() -> None:
    def loop(mode: str, collect: Collect) -> Any:
        model = net()
        call = tg.compile(lambda x: F.relu(model(x)).tanh(), mode=mode)
        kept = []
        for k in range(40):
            y = call(batch(k))
            kept.append(y)
            if k % 3:
                y.sum().backward()
                collect(*(p.grad for p in model.parameters()))
                model.zero_grad()
        collect(*kept)
        return call

    same(loop, replayed=False)


def test_two_outputs() -> None:
    def loop(mode: str, collect: Collect) -> Any:
        f = tg.compile(lambda x: (x.sin() * 2, x.cos().sum(0)), mode=mode)
        for k in range(STEPS):
            a, b = f(batch(k))
            c, d = f(batch(k + 1))
            collect(a, b, c, d)
        return f

    same(loop)


def test_one_function_of_another() -> None:
    def loop(mode: str, collect: Collect) -> Any:
        f = tg.compile(lambda x, w: F.gelu(x @ w), mode=mode)
        g = tg.compile(lambda x: torch.softmax(x, -1) * x, mode=mode)
        w = make(32, 32, seed=99, grad=True)
        for k in range(STEPS):
            y = g(f(batch(k), w))
            y.square().sum().backward()
            collect(y, w.grad)
            w.grad = None
        return f, g

    same(loop)


def test_a_result_given_back() -> None:
    def loop(mode: str, collect: Collect) -> Any:
        f = tg.compile(lambda x: torch.softmax(x * 1.5, -1) + x, mode=mode)
        x = batch(0)
        for _ in range(STEPS):
            x = f(x)
            collect(x)
        return f

    same(loop)


@pytest.mark.parametrize("order", ["first in, first out", "first in, last out"])
def test_two_forwards_before_their_backwards(order: str) -> None:
    def loop(mode: str, collect: Collect) -> Any:
        model = net()
        step = tg.compile(model, mode=mode)
        for k in range(STEPS):
            losses = [step(batch(2 * k)).square().mean(), step(batch(2 * k + 1)).sin().mean()]
            for loss in losses if order == "first in, first out" else losses[::-1]:
                loss.backward()
            collect(*losses, *(p.grad for p in model.parameters()))
            model.zero_grad()
        return step

    same(loop, replayed=False)


def test_a_backward_that_is_retained() -> None:
    def loop(mode: str, collect: Collect) -> Any:
        model = net()
        step = tg.compile(model, mode=mode)
        for k in range(STEPS):
            loss = step(batch(k)).square().mean()
            loss.backward(retain_graph=True)
            loss.backward()
            collect(loss, *(p.grad for p in model.parameters()))
            model.zero_grad()
        return step

    same(loop)


def test_hooks_and_moving_averages() -> None:
    def loop(mode: str, collect: Collect) -> Any:
        model = net()
        step, average = tg.compile(model, mode=mode), copy.deepcopy(model)
        seen: list[torch.Tensor] = []
        for p in model.parameters():
            p.register_hook(lambda g: g * 0.5)
            p.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
        for k in range(STEPS):
            step(batch(k)).square().mean().backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            with torch.no_grad():
                for a, p in zip(average.parameters(), model.parameters()):
                    a.lerp_(p, 0.1)
            if k % 4 == 3:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, io.BytesIO())
        collect(*seen, *average.parameters())
        return step

    same(loop)


def test_parameters_that_get_other_memory() -> None:
    def loop(mode: str, collect: Collect) -> Any:
        model = net()
        step = tg.compile(model, mode=mode)
        for k in range(3 * STEPS):
            if k % STEPS == STEPS - 1:
                for p in model.parameters():
                    p.data = p.data + 0.01
            loss = step(batch(k)).square().mean()
            loss.backward()
            collect(loss, *(p.grad for p in model.parameters()))
            model.zero_grad()
        return step

    same(loop)


def test_batch_norm_and_buffers() -> None:
    def loop(mode: str, collect: Collect) -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3)).cuda()
        step = tg.compile(model, mode=mode)
        for k in range(STEPS):
            loss = step(make(4, 3, 16, 16, seed=k)).square().mean()
            loss.backward()
            collect(loss, *(p.grad for p in model.parameters()), *model.buffers())
            model.zero_grad()
        return step

    same(loop)


def test_a_cache_that_is_written_to() -> None:
    def loop(mode: str, collect: Collect) -> Any:
        def decode(x: torch.Tensor, cache: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
            cache.index_copy_(0, place, x)
            return (cache @ x.T).sum(1)

        call, cache = tg.compile(decode, mode=mode), torch.zeros(64, 32, device="cuda")
        with torch.no_grad():
            for k in range(STEPS):
                collect(call(batch(k, 1), cache, torch.tensor([k], device="cuda")))
        collect(cache)
        return call

    same(loop)


def test_shapes_that_change() -> None:
    def loop(mode: str, collect: Collect) -> Any:
        model = net().eval()
        call = tg.compile(model, mode=mode, dynamic=True, options={"hot_calls": 0})
        with torch.no_grad():
            for k in range(120):
                collect(call(batch(k, 2 + k * 7 % 11)))
        return call

    same(loop)


def test_random_numbers_of_eager_kernels() -> None:
    def loop(mode: str, collect: Collect) -> Any:
        f = tg.compile(lambda x: x * torch.rand_like(x) + torch.randn(32, device="cuda"), mode=mode)
        for k in range(STEPS):
            collect(f(batch(k)), torch.rand(3, device="cuda"))
        return f

    same(loop)


def test_dropout_in_our_kernels() -> None:
    def loop(mode: str, collect: Collect) -> Any:
        torch.manual_seed(0)
        layers = [nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.3), nn.Linear(64, 32), nn.Dropout(0.5), nn.LayerNorm(32)]
        model = nn.Sequential(*layers).cuda()
        step = tg.compile(model, mode=mode)
        for k in range(3 * STEPS):
            if k == 2 * STEPS:
                torch.manual_seed(7)
            loss = step(batch(k)).square().mean()
            loss.backward()
            collect(loss, torch.rand(3, device="cuda"), *(p.grad for p in model.parameters()))
            model.zero_grad()
        return step

    same(loop)


def test_modes_of_inference_and_autocast() -> None:
    def loop(mode: str, collect: Collect) -> Any:
        model = net().eval()
        call = tg.compile(model, mode=mode)
        for k in range(STEPS):
            with torch.inference_mode():
                y = call(batch(k))
                assert y.is_inference()
            with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
                z = call(batch(k))
            collect(y.clone(), z)
        return call

    same(loop)


def test_other_streams() -> None:
    def loop(mode: str, collect: Collect) -> Any:
        f = tg.compile(lambda x: torch.softmax(x.sin() * 2, -1), mode=mode)
        streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
        for k in range(3 * STEPS):
            stream = streams[k % 3]
            stream.wait_stream(torch.cuda.default_stream())
            with torch.cuda.stream(stream):
                torch.cuda._sleep(1_000_000)
                y = f(batch(k))
            stream.synchronize()
            collect(y)
        return f

    same(loop)


def test_results_that_another_stream_reads() -> None:
    f, other = tg.compile(lambda x: x * 2 + 1, mode="reduce-overhead"), torch.cuda.Stream()
    kept, read = [], []
    for k in range(STEPS):
        y = f(batch(k))
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            torch.cuda._sleep(20_000_000)
            read.append(y + 0)
        kept.append(y)
    torch.cuda.synchronize()
    for k, (y, z) in enumerate(zip(kept, read)):
        assert torch.equal(y, batch(k) * 2 + 1) and torch.equal(z, y), k


def test_results_resized_and_written_to() -> None:
    f = tg.compile(lambda x: x * 2, mode="reduce-overhead")
    kept = []
    for k in range(STEPS):
        y = f(batch(k))
        y.add_(1)
        if k % 2:
            y.resize_(64, 32)
        kept.append(y)
    for k, y in enumerate(kept):
        assert torch.equal(y.view(-1)[:512].view(16, 32), batch(k) * 2 + 1)


def test_memory_is_flat() -> None:
    model = net()
    step = tg.compile(model, mode="reduce-overhead")

    before = 0
    for k in range(1020):
        if k == 20:
            before = torch.cuda.memory_allocated()
        step(batch(k)).square().mean().backward()
        model.zero_grad()
    assert torch.cuda.memory_allocated() <= before
    kept = step(batch(0))
    want = kept.clone()
    del step, model
    tg.reset()
    torch.cuda.empty_cache()
    assert torch.equal(kept, want)


def test_within_a_graph_of_the_program() -> None:
    f = tg.compile(lambda x: torch.softmax(x, -1) * 3, mode="reduce-overhead")
    x = batch(0)
    for _ in range(8):
        f(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = f(x)
    x.copy_(batch(5))
    graph.replay()
    torch.testing.assert_close(y, torch.softmax(batch(5), -1) * 3)


def test_a_capture_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    f = tg.compile(lambda x: torch.softmax(x, -1) * 3, mode="reduce-overhead")

    class Waits:
        def __init__(self, kernels: Any) -> None:
            self.kernels = kernels

        def __call__(self, inputs: list[Any]) -> Any:
            if torch.cuda.is_current_stream_capturing():
                self.kernels(list(inputs))[0].sum().item()
            return self.kernels(inputs)

    made = replay.Replayed.__init__
    monkeypatch.setattr(replay.Replayed, "__init__", lambda self, kernels, *rest: made(self, Waits(kernels), *rest))
    for k in range(STEPS):
        assert torch.equal(f(batch(k)), f(batch(k)))
        torch.testing.assert_close(f(batch(k)), torch.softmax(batch(k), -1) * 3)
    torch.rand(3, device="cuda")
    torch.cuda.synchronize()
    (told,) = graphs_of(f)
    assert "could not be captured" in told


def test_a_graph_that_is_slower_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "SLOWER", 0.0)
    f = tg.compile(lambda x: torch.softmax(x, -1) * 3, mode="reduce-overhead")
    for k in range(STEPS):
        torch.testing.assert_close(f(batch(k)), torch.softmax(batch(k), -1) * 3)
        torch.cuda.synchronize()
    (told,) = graphs_of(f)
    assert told.startswith("no CUDA graph: replaying it takes")


@pytest.mark.parametrize("streams", ["one stream", "a stream each"])
def test_threads_of_one_function(streams: str) -> None:
    model = net().eval()
    f = tg.compile(model, mode="reduce-overhead")
    wrong: list[int] = []
    with torch.no_grad():
        wanted = [[model(batch(1000 * thread + k)) for k in range(60)] for thread in range(4)]
        for k in range(8):
            f(batch(k))

    def work(thread: int) -> None:
        stream = torch.cuda.current_stream() if streams == "one stream" else torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(stream):
            for k in range(60):
                y = f(batch(1000 * thread + k))
                z = y + 0
                if not torch.allclose(z, wanted[thread][k], rtol=1e-4, atol=1e-5):
                    wrong.append(k)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    torch.cuda.synchronize()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_operators_that_wait_are_told_of() -> None:
    f = tg.compile(lambda x: x[x > 0].sin() * 2, mode="reduce-overhead")
    for k in range(6):
        torch.testing.assert_close(f(batch(k)), batch(k)[batch(k) > 0].sin() * 2)
    assert any("no CUDA graph" in told for told in graphs_of(f))


def test_numbers_of_the_cpu() -> None:
    def loop(mode: str, collect: Collect) -> Any:
        f = tg.compile(lambda x, scale: torch.softmax(x * scale, -1) + scale, mode=mode)
        for k in range(STEPS):
            collect(f(batch(k), torch.tensor(0.1 * k)))
        return f

    same(loop)


def test_an_input_that_alternates() -> None:
    def loop(mode: str, collect: Collect) -> Any:
        f = tg.compile(lambda x: torch.softmax(x * 1.5, -1) + x, mode=mode)
        places = [batch(0), batch(1), batch(2)]
        for k in range(60):
            collect(f(places[k // 5 % 3]))
        assert mode == "default" or int(graphs_of(f)[0].split("replayed ")[1].split()[0]) > 20, graphs_of(f)
        return f

    same(loop)
