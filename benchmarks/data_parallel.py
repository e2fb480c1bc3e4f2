"""Training under DistributedDataParallel on two processes: does the sum of gradients hide behind the backward?

    python -m benchmarks.data_parallel [--models bert llama convnext] [--seconds 6] [--json FILE] [--simulate]

On CPUs a network is pretended: a comm hook hands out Futures that a timer sets when the bucket's bytes would have gone
through, one bucket after the other, so that communication takes no processor time. Its bandwidth is such that all sums
take ``--share`` of the first side's step without them. Columns, milliseconds of a step:

    alone    without communication (Futures that are done at once)
    step     with communication
    hidden   the share of communication that the step does not show: 1 - (step - alone) / communication
    bound    the least that a step could take: no sum begins before the first bucket is ready, nor ends at once

and what the cut costs of processor time, without communication: over the same with its backward in one node.

With two GPUs the sums are NCCL's, and ``alone`` is the model without DDP.

``--simulate`` asks what is left to wait for on 8 to 1,000 ranks. Measured are when in the backward each bucket is
ready, and when the backward ends. Assumed is that bucket i begins when it is ready and bucket i - 1 is through, and
takes a ring's time, 2 (n - 1) / n of its bytes at ``--bandwidth`` GB/s and 2 log2(n) times ``--latency`` microseconds,
and that nothing slows anything else down.
"""

from __future__ import annotations

import argparse
import functools
import heapq
import json
import math
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from . import common, gpu_models
from .models import WORKLOADS, output_of

RANKS = 2
WARM = 4  # steps until DDP has its buckets, and all is compiled
SIMULATED = (2, 8, 64, 256, 1000)

Step = Callable[[], None]


class Network:
    """One link of a bandwidth, in bytes a second: its thread sets Futures when their bytes are through."""

    def __init__(self) -> None:
        self.bandwidth = math.inf
        self.free = 0.0
        self.waiting: list[tuple[float, int, Any, Any]] = []
        self.changed = threading.Condition()
        self.sent = 0
        self.seen: list[tuple[float, int]] = []  # when each bucket came, and its bytes
        threading.Thread(target=self._run, daemon=True).start()

    def hook(self, state, bucket):  # type: ignore[no-untyped-def]  # DDP reads annotations
        future: torch.futures.Future[Any] = torch.futures.Future()
        buffer, now = bucket.buffer(), time.perf_counter()
        size = buffer.numel() * buffer.element_size()
        self.seen.append((now, size))
        if self.bandwidth == math.inf:
            future.set_result(buffer)
            return future
        with self.changed:
            self.free = max(now, self.free) + size / self.bandwidth
            self.sent += 1
            heapq.heappush(self.waiting, (self.free, self.sent, future, buffer))
            self.changed.notify()
        return future

    def _run(self) -> None:
        while True:
            with self.changed:
                while not self.waiting:
                    self.changed.wait()
                left = self.waiting[0][0] - time.perf_counter()
                if left > 0:
                    self.changed.wait(left)
                    continue
                _, _, future, buffer = heapq.heappop(self.waiting)
            future.set_result(buffer)


# --- the sides --------------------------------------------------------------------------------------------------------
def sides(names: list[str]) -> dict[str, Callable[[torch.nn.Module, dict[str, Any]], Any]]:
    """What makes DDP of a model, by side."""

    def eager(model: torch.nn.Module, settings: dict[str, Any]) -> Any:
        return DistributedDataParallel(model, **settings)

    def ours(model: torch.nn.Module, settings: dict[str, Any]) -> Any:
        import torchglass as tg

        return DistributedDataParallel(tg.compile(model), **settings)

    def inductor(model: torch.nn.Module, settings: dict[str, Any]) -> Any:
        return torch.compile(DistributedDataParallel(model, **settings))

    known = {"eager": eager, "torchglass": ours, "torch.compile": inductor}
    return {name: known[name] for name in names}


@contextmanager
def in_one_node() -> Iterator[None]:
    """Ours with the backward as it is without DDP."""
    from torchglass.runtime import chained_backward

    asked = chained_backward.data_parallel_buckets
    chained_backward.data_parallel_buckets = lambda ddp: None
    try:
        yield
    finally:
        chained_backward.data_parallel_buckets = asked


class Training:
    """A model's steps on one rank, by each side. Models are equal on all of them."""

    def __init__(self, model: str, rank: int, options: argparse.Namespace) -> None:
        self.cuda = torch.cuda.device_count() >= RANKS
        self.model, self.device = model, torch.device("cuda", rank) if self.cuda else torch.device("cpu")
        self.settings = {} if self.cuda else {"bucket_cap_mb": options.bucket_mb}
        self.network, self.options = Network(), options

    def built(self) -> tuple[torch.nn.Module, Callable[[Any], torch.Tensor]]:
        """The model, and the loss of what was made of it."""
        if self.cuda:
            case = gpu_models.ROWS[self.model].build(str(self.device))
            return case.model, lambda call: case.forward(call)[0]
        module, inputs = WORKLOADS[self.model].build(layers=self.options.layers)
        common.loss_of(output_of(module(**inputs))).backward()
        for parameter in module.parameters():  # BERT's pooler: DDP wants a gradient of each
            parameter.requires_grad_(parameter.grad is not None)
        return module, lambda call: common.loss_of(output_of(call(**inputs)))

    def step(self, make: Callable[[torch.nn.Module, dict[str, Any]], Any]) -> tuple[Step, Any]:
        module, loss = self.built()
        ddp = make(module, self.settings)
        if not self.cuda and isinstance(ddp, torch.nn.Module):
            getattr(ddp, "_orig_mod", ddp).register_comm_hook(None, self.network.hook)

        def step() -> None:
            module.zero_grad(set_to_none=True)
            loss(ddp).backward()
            if self.cuda:
                torch.cuda.synchronize()

        return step, ddp


def timed(
    steps: Mapping[str, Step], seconds: float, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Median milliseconds of each, turn by turn, the ranks together; all ranks do as many rounds as the first says."""
    taken: dict[str, list[float]] = {name: [] for name in steps}
    end = time.perf_counter() + seconds
    going, names = torch.ones(1), list(steps)
    while True:
        names = [*names[1:], names[0]]
        for name in names:
            dist.barrier()
            begin = clock()
            steps[name]()
            taken[name].append(clock() - begin)
        going[0] = float(time.perf_counter() < end or len(taken[names[0]]) < 5)
        dist.broadcast(going.to(torch.cuda.current_device()) if torch.cuda.is_available() else going, 0)
        if not going[0]:
            return {name: 1e3 * statistics.median(rows) for name, rows in taken.items()}


# --- what is measured -------------------------------------------------------------------------------------------------
def measured(model: str, rank: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    training = Training(model, rank, options)
    steps = {name: training.step(make)[0] for name, make in sides(options.sides).items()}
    for step in steps.values():
        for _ in range(WARM):
            step()
    if training.cuda:
        return _on_gpus(training, steps, options)
    network = training.network
    alone, cut = timed(steps, options.seconds), None
    if "torchglass" in steps:
        pair = {"in segments": steps["torchglass"], "one node": _in_one_node(training)}
        processor = timed(pair, options.seconds, time.process_time)
        cut = processor["in segments"] / processor["one node"] - 1
    ready = {name: _when_ready(step, network) for name, step in steps.items()}
    bytes_summed = sum(size for _, size in ready[options.sides[0]])
    network.bandwidth = bytes_summed / (options.share * alone[options.sides[0]] / 1e3)
    communication = 1e3 * bytes_summed / network.bandwidth
    together = timed(steps, options.seconds)
    return [
        {
            "model": model, "side": name, "buckets": len(ready[name]) - 1, "alone": alone[name],
            "cost of the cut": cut if name == "torchglass" else None,
            "communication": communication, "step": together[name],
            "bound": alone[name] + _exposed(ready[name], lambda size: 1e3 * size / network.bandwidth),
            "over the larger": together[name] / max(alone[name], communication),
            "hidden": 1 - (together[name] - alone[name]) / communication,
        }
        for name in steps
    ]  # fmt: skip


def _in_one_node(training: Training) -> Step:
    with in_one_node():
        step, _ = training.step(sides(["torchglass"])["torchglass"])
        for _ in range(WARM):
            step()

    def stepped() -> None:
        with in_one_node():
            step()

    return stepped


def _on_gpus(training: Training, steps: dict[str, Step], options: argparse.Namespace) -> list[dict[str, Any]]:
    """With NCCL, and each side's model without DDP beside it."""
    import torchglass as tg

    plain: dict[str, Callable[[Any, Any], Any]] = {
        "eager": lambda model, settings: model,
        "torchglass": lambda model, settings: tg.compile(model),
        "torch.compile": lambda model, settings: torch.compile(model),
    }
    alone = {f"{name} alone": training.step(plain[name])[0] for name in steps}
    for step in alone.values():
        for _ in range(WARM):
            step()
    times = timed({**steps, **alone}, options.seconds)
    return [
        {"model": training.model, "side": name, "alone": times[f"{name} alone"], "step": times[name]} for name in steps
    ]


def simulated(model: str, rank: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Milliseconds that a step waits for sums behind its backward, by number of ranks."""
    training = Training(model, rank, options)
    network, rows = training.network, []
    for name, make in sides(options.sides).items():
        step, _ = training.step(make)
        for _ in range(WARM):
            step()
        ready = _when_ready(step, network)
        rings = {n: functools.partial(_ring, ranks=n, options=options) for n in SIMULATED}
        waits = {n: _exposed(ready, ring) for n, ring in rings.items()}
        whole = sum(rings[1000](size) for _, size in ready[:-1])
        rows.append({"model": model, "side": name, "ready": ready, "exposed": waits, "communication at 1000": whole})
    return rows


def _when_ready(step: Step, network: Network) -> list[tuple[float, int]]:
    """Of each bucket when it is ready, and of the step's end with no bytes: milliseconds since the step began, the
    median of some steps.
    """
    runs = []
    for _ in range(9):
        network.seen.clear()
        dist.barrier()
        begin = time.perf_counter()
        step()
        end = time.perf_counter()
        runs.append([*((1e3 * (at - begin), size) for at, size in network.seen), (1e3 * (end - begin), 0)])
    return [(statistics.median(at for at, _ in column), column[0][1]) for column in zip(*runs)]


def _ring(size: int, ranks: int, options: argparse.Namespace) -> float:
    """Milliseconds of one sum."""
    through = 2 * (ranks - 1) / ranks * size / (options.bandwidth * 1e6)
    return through + 2 * math.log2(ranks) * options.latency / 1e3


def _exposed(ready: list[tuple[float, int]], milliseconds: Callable[[int], float]) -> float:
    """How long the step waits at its end for sums of buckets, one after the other."""
    free = 0.0
    for at, size in ready[:-1]:
        free = max(free, at) + milliseconds(size)
    return max(0.0, free - ready[-1][0])


# --- processes --------------------------------------------------------------------------------------------------------
def run(rank: int, store: str, results: str, options: argparse.Namespace) -> None:
    """One rank. The first writes the rows."""
    torch.set_num_threads(1)
    backend = "gloo"
    if torch.cuda.device_count() >= RANKS:
        backend = "nccl"
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=RANKS)
    measure = simulated if options.simulate else measured
    rows = [row for model in options.models for row in measure(model, rank, options)]
    if rank == 0:
        Path(results).write_text(json.dumps(rows))
    dist.barrier()
    dist.destroy_process_group()


def show(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if "exposed" in row:
            waits = "  ".join(f"{n} ranks {wait:7.1f}" for n, wait in row["exposed"].items())
            print(f"{row['model']:10} {row['side']:14} step {row['ready'][-1][0]:7.1f} ms  waits: {waits}")
        elif "hidden" not in row:
            print(f"{row['model']:10} {row['side']:14} alone {row['alone']:7.2f}  step {row['step']:7.2f}")
        else:
            facts = f"alone {row['alone']:7.1f}  communication {row['communication']:6.1f}  step {row['step']:7.1f}"
            facts += (
                f" ({row['over the larger']:.2f} of the larger; bound {row['bound']:.1f})  hidden {row['hidden']:4.0%}"
            )
            one = f"  the cut costs {row['cost of the cut']:.1%}" if row["cost of the cut"] is not None else ""
            print(f"{row['model']:10} {row['side']:14} {facts}{one}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["bert", "llama", "convnext"])
    parser.add_argument("--sides", nargs="+", default=["eager", "torchglass", "torch.compile"])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--bucket-mb", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--share", type=float, default=0.8, help="communication over computing")
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--bandwidth", type=float, default=0.3, help="GB/s of a simulated rank")
    parser.add_argument("--latency", type=float, default=20.0, help="microseconds of a simulated hop")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        results = f"{folder}/rows.json"
        torch.multiprocessing.spawn(run, (f"{folder}/store", results, options), nprocs=RANKS)
        rows = json.loads(Path(results).read_text())
    show(rows)
    common.write_json(options.json, "data_parallel", rows, simulated=options.simulate)


if __name__ == "__main__":
    main()
