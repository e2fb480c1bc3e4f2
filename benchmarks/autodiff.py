"""Seconds that autodiff takes, and bytes that its backward needs, for three transformers.

Run ``python -m benchmarks.autodiff [layers]``: prints one JSON object per model and attention: seconds to trace and cut
(first time in the process, then again), nodes, tensors and bytes saved beside eager's (parameters left out, each memory
once).

Run ``python -m benchmarks.autodiff --beside [layers]``: BERT in training, each side in its own processes: CPU seconds
of our trace and cut, of which the cut, beside those of torch.compile's ``aot_eager`` for the graph that its frontend
hands it; the least of three.

Run ``python -m benchmarks.autodiff --solvers [layers]``: the least of five times in which ours, scipy, networkx and
igraph (where they are installed) find the flow of BERT's network.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import torch
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, LlamaConfig, LlamaModel

import torchglass as tg
from torchglass import autodiff
from torchglass.autodiff import min_cut
from torchglass.autodiff.max_flow import Flow


def models(layers: int, attention: str) -> dict[str, Callable[[], torch.nn.Module]]:
    common: dict[str, Any] = {"attn_implementation": attention}
    wide = {"hidden_size": 256, "num_hidden_layers": layers, "num_attention_heads": 4, "intermediate_size": 1024}
    bert = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    gpt2 = {"n_embd": 256, "n_layer": layers, "n_head": 4, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return {
        "bert": lambda: BertModel(BertConfig(**common, **wide, **bert)),
        "gpt2": lambda: GPT2Model(GPT2Config(**common, **gpt2, use_cache=False)),
        "llama": lambda: LlamaModel(LlamaConfig(**common, **wide, use_cache=False)),
    }


def captured(model: torch.nn.Module, ids: torch.Tensor) -> tuple[torch.fx.GraphModule, list[torch.Tensor]]:
    """The model's graph at torch level, and its inputs."""
    found: list[tuple[torch.fx.GraphModule, list[torch.Tensor]]] = []

    def backend(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Any:
        found.append((gm, example_inputs))
        return gm.forward

    tg.compile(model, backend=backend, fullgraph=True)(ids)
    return found[0]


def bytes_eager_keeps(model: torch.nn.Module, ids: torch.Tensor) -> int:
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(value: torch.Tensor) -> torch.Tensor:
        kept[value.untyped_storage().data_ptr()] = value.untyped_storage()
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        outputs = model(ids)
    total = sum(storage.nbytes() for pointer, storage in kept.items() if pointer not in parameters)
    del outputs
    return total


def measure(model: torch.nn.Module, ids: torch.Tensor) -> dict[str, Any]:
    gm, inputs = captured(model, ids)
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        partition = autodiff.trace_training(gm, inputs)
        seconds.append(time.perf_counter() - begin)
    begin = time.perf_counter()
    autodiff.trace_inference(gm, inputs)
    inference = time.perf_counter() - begin
    saved = sum(tensor.bytes for tensor in partition.saved if tensor.place.kind == "output")
    return {
        "captured_nodes": len(gm.graph.nodes),
        "joint_nodes": len(partition.joint.graph.nodes),
        "training_first_s": round(seconds[0], 3),
        "training_s": round(min(seconds[1:]), 3),
        "inference_s": round(inference, 3),
        "saved_tensors": len(partition.saved),
        "saved_bytes": saved,
        "eager_bytes": bytes_eager_keeps(model, ids),
    }


def seconds_ours(layers: int) -> dict[str, float]:
    """CPU seconds of the whole stage, and of choosing what to save."""
    torch.manual_seed(0)
    gm, inputs = captured(models(layers, "eager")["bert"]().train(), torch.randint(0, 1000, (4, 128)))
    spent = []

    def timed(problem: min_cut.Problem) -> min_cut.Choice:
        begin = time.process_time()
        choice = choose(problem)
        spent.append(time.process_time() - begin)
        return choice

    choose, min_cut.choose = min_cut.choose, timed
    begin = time.process_time()
    partition = autodiff.trace_training(gm, inputs)
    whole = time.process_time() - begin
    return {"seconds": whole, "of which the cut": spent[0], "joint nodes": len(partition.joint.graph.nodes)}


def seconds_theirs(layers: int) -> dict[str, float]:
    """CPU seconds that torch.compile's ``aot_eager`` takes for the same model, its frontend left out."""
    from torch._dynamo.backends.debugging import aot_eager

    torch.manual_seed(0)
    spent = []

    def backend(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Any:
        begin = time.process_time()
        call = aot_eager(gm, example_inputs)
        spent.append(time.process_time() - begin)
        return call

    torch.compile(models(layers, "eager")["bert"]().train(), backend=backend)(torch.randint(0, 1000, (4, 128)))
    return {"seconds": sum(spent)}


def flow_ours(size: int, edges: dict[tuple[int, int], int]) -> Callable[[], int]:
    def found() -> int:
        flow = Flow(size, edges)
        flow.maximize(0, 1)
        return sum(edges[edge] - flow.left[2 * n] for n, edge in enumerate(edges) if edge[0] == 0)

    return found


def flow_scipy(size: int, edges: dict[tuple[int, int], int]) -> Callable[[], int]:
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_flow

    tails, heads = zip(*edges)
    matrix = csr_matrix((np.array([*edges.values()], dtype=np.int32), (tails, heads)), shape=(size, size))
    return lambda: int(maximum_flow(matrix, 0, 1).flow_value)


def flow_networkx(size: int, edges: dict[tuple[int, int], int]) -> Callable[[], int]:
    import networkx

    graph = networkx.DiGraph()
    graph.add_weighted_edges_from(((a, b, c) for (a, b), c in edges.items()), weight="capacity")
    return lambda: networkx.minimum_cut(graph, 0, 1)[0]


def flow_igraph(size: int, edges: dict[tuple[int, int], int]) -> Callable[[], int]:
    import igraph

    graph = igraph.Graph(size, list(edges), directed=True)
    return lambda: int(graph.mincut(0, 1, [*edges.values()]).value)


def solvers(layers: int) -> None:
    """Print each solver's seconds for the same network, and the flow that it finds."""
    networks: list[min_cut.Network] = []
    solve = min_cut.Network.sink_side

    def noted(network: min_cut.Network) -> Any:
        networks.append(network)
        return solve(network)

    with mock.patch.object(min_cut.Network, "sink_side", noted):
        seconds_ours(layers)
    network = max(networks, key=lambda n: n.size)
    infinite = 2**31 - 1  # scipy's capacities are 32 bit
    finite = sum(c for c in network.edges.values() if c != math.inf)
    scale = min(1.0, infinite / 2 / finite)
    edges = {e: infinite if c == math.inf else max(1, round(c * scale)) for e, c in network.edges.items()}
    for make in (flow_ours, flow_scipy, flow_networkx, flow_igraph):
        name = make.__name__.removeprefix("flow_")
        try:
            flow = make(network.size, edges)
        except ImportError:
            print(json.dumps({"solver": name, "seconds": None, "why": "not installed"}))
            continue
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            value = flow()
            times.append(time.perf_counter() - begin)
        print(
            json.dumps(
                {"solver": name, "nodes": network.size, "edges": len(edges), "seconds": min(times), "flow": value}
            )
        )


SIDES = {"torchglass": seconds_ours, "aot_eager": seconds_theirs}


def beside(layers: int) -> None:
    """Print both sides, interleaved, and their ratio."""
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for _ in range(3):
        for side in SIDES:
            command = [sys.executable, "-W", "ignore", "-m", "benchmarks.autodiff", "--side", side, str(layers)]
            found[side].append(json.loads(subprocess.check_output(command, text=True).splitlines()[-1]))
    least = {side: min(rows, key=lambda row: row["seconds"]) for side, rows in found.items()}
    ratio = least["aot_eager"]["seconds"] / least["torchglass"]["seconds"]
    print(json.dumps({"layers": layers, **least, "ratio": round(ratio, 2)}))


def main() -> None:
    if sys.argv[1:2] == ["--side"]:
        print(json.dumps(SIDES[sys.argv[2]](int(sys.argv[3]))))
        return
    if sys.argv[1:2] == ["--beside"]:
        beside(int(sys.argv[2]) if len(sys.argv) > 2 else 12)
        return
    if sys.argv[1:2] == ["--solvers"]:
        solvers(int(sys.argv[2]) if len(sys.argv) > 2 else 12)
        return
    layers = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    ids = torch.randint(0, 1000, (4, 128))
    for attention in ("eager", "sdpa"):
        for name, make in models(layers, attention).items():
            torch.manual_seed(0)
            result = measure(make().train(), ids)
            result["share_of_eager"] = round(result["saved_bytes"] / result["eager_bytes"], 2)
            print(json.dumps({"model": name, "attention": attention, "layers": layers, **result}), flush=True)


if __name__ == "__main__":
    main()
