"""When calls are captured as a CUDA graph, and what a graph cannot hold: without a GPU."""

from __future__ import annotations

import pytest
import torch

from torchglass.compilation.replaying import replay_of
from torchglass.records.loops import Buffer, LoopGraph
from torchglass.records.side_call import Replay
from torchglass.runtime import replay
from torchglass.runtime.replay import Replayed, _Shape

ANY = Replay()


def calls_until_due(shape: _Shape, inputs: list[torch.Tensor], moving: dict[int, list[torch.Tensor]]) -> int:
    for call in range(1, 20):
        now = [moving[k][call % len(moving[k])] if k in moving else x for k, x in enumerate(inputs)]
        if shape.is_due(now, ANY):
            return call
    return 0


def test_inputs_that_stay_are_read_where_they_lie() -> None:
    shape = _Shape()
    assert calls_until_due(shape, [torch.ones(3), torch.ones(4)], {}) == replay.LAUNCHED + 1
    assert shape.copied == set()


def test_small_inputs_that_move_are_copied() -> None:
    shape = _Shape()
    moving = {1: [torch.ones(4) for _ in range(3)]}
    assert calls_until_due(shape, [torch.ones(3), torch.ones(4)], moving) == replay.LAUNCHED + 1
    assert shape.copied == {1}


def test_large_inputs_that_move_are_waited_for() -> None:
    shape, large = _Shape(), [torch.ones(replay.SMALL) for _ in range(2)]
    assert calls_until_due(shape, [large[0]], {0: large}) == replay.LAUNCHED + 1 + replay.MOST_WAITS
    assert shape.copied == {0}


def test_too_much_to_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MOST_COPIED", 8)
    shape = _Shape()
    assert not calls_until_due(shape, [torch.ones(4)], {0: [torch.ones(4) for _ in range(2)]})
    assert "lie elsewhere in each call" in shape.reason


def test_what_is_written_to_must_stay() -> None:
    shape, moving = _Shape(), [torch.ones(4) for _ in range(2)]
    for call in range(10):
        assert not shape.is_due([moving[call % 2]], Replay(written=(0,)))
    assert "writes to" in shape.reason


def test_inputs_of_no_gpu_are_launched() -> None:
    seen: list[list[torch.Tensor]] = []

    def kernels(inputs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        seen.append(list(inputs))
        return (inputs[0],)

    call = Replayed(kernels, ANY, ())
    x = torch.ones(3)
    for _ in range(6):
        assert call([x])[0] is x
    assert len(seen) == 6 and call.told().reason == "its inputs are not all on one GPU"


def of(target: object, *args: object, device: str = "cuda") -> str:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(target, (x, *args)))  # type: ignore[arg-type]
    buffer = Buffer("x", "float32", (3,), (1,), "input", device)
    found = replay_of(torch.fx.GraphModule({}, graph), LoopGraph("forward", ("x",), {"x": buffer}, (), ()))
    return "none" if found is None else found.unsafe


def test_what_a_graph_cannot_hold() -> None:
    assert of(torch.ops.aten.sin.default) == ""
    assert of(torch.ops.aten.sin.default, device="cpu") == "none"
    assert of(torch.ops.aten.nonzero.default) == "aten.nonzero.default is tagged dynamic_output_shape"
    assert of(torch.ops.aten._local_scalar_dense.default).endswith("is tagged data_dependent_output")


def test_attention_that_drops_out_stays_as_it_is() -> None:
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention.default
    assert of(efficient, "k", "v", None, True, 0.0) == "" == of(efficient, "k", "v", None, True)
    assert "drops out" in of(efficient, "k", "v", None, True, 0.1)


class Moving:
    """A graph that was captured, and whose inputs at these places lie elsewhere."""

    calls = 0

    def __init__(self, *places: int) -> None:
        self.places = list(places)

    def elsewhere(self, inputs: list[torch.Tensor]) -> list[int]:
        return self.places


def test_what_moves_again_is_copied() -> None:
    shape, inputs = _Shape(), [torch.ones(3), torch.ones(4)]
    assert calls_until_due(shape, inputs, {})
    for captures in range(2):
        shape.graph, shape.captures, shape.missed = Moving(1), captures + 1, 0  # type: ignore[assignment]
        inputs[1] = torch.ones(4)
        assert [shape.is_due(inputs, ANY) for _ in range(2)] == [False, True]
    assert shape.copied == {1}


def test_numbers_of_the_cpu_are_copied() -> None:
    shape = _Shape()
    assert calls_until_due(shape, [torch.ones(3), torch.tensor(1.5)], {})
    assert shape.copied == {1}
