"""Graphs of the same content are compiled once; each keeps its own files, and what differs is told apart."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from torchglass import codegen
from torchglass.compilation import graph_sharing
from torchglass.runtime import toolchain


class Block(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 32), nn.Linear(32, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often kernels are printed, and how often a C compiler is called for a file."""
    gc.collect()
    count: Counter[str] = Counter()

    def counted(owner: Any, name: str, label: str) -> None:
        real = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            count[label] += 1
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    counted(codegen, "run", "printed")
    counted(toolchain, "_build", "built")
    return count


@pytest.mark.parametrize("training", [False, True])
def test_sixteen_equal_blocks_are_one_compile(training: bool, made: Counter[str], tmp_path: Path) -> None:
    torch.manual_seed(0)
    blocks = [Block() for _ in range(16)]
    x = torch.randn(4, 16)
    with tg.prepare_debug(tmp_path), torch.set_grad_enabled(training):
        for side in (blocks, [tg.compile(block) for block in blocks]):
            y = x.clone().requires_grad_(training)
            start = y
            for block in side:
                y = block(y)
            found = [y.detach()]
            if training:
                for p in nn.ModuleList(blocks).parameters():
                    p.grad = None
                y.square().sum().backward()
                found += [start.grad, *(p.grad for p in nn.ModuleList(blocks).parameters())]
            if side is blocks:
                want = found
        torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4)
    sides = 1 + training
    assert made["printed"] == sides and made["built"] <= sides
    files = [list(folder.glob("entry_0/graph_0/*.*")) for folder in tmp_path.glob("Block*")]
    names = [sorted(file.name for file in found if file.suffix != ".so") for found in files]
    assert len(names) == 16 and all(found == names[0] for found in names)


def _gain(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: torch.sin(x * factor) + 1


@pytest.mark.parametrize(
    "first, second",
    [
        ((Block(), torch.ones(2, 16)), (Block(), torch.ones(3, 16))),
        ((Block(), torch.ones(2, 16)), (Block(), torch.ones(2, 16, dtype=torch.float64).float().t().contiguous().t())),
        ((Block(), torch.ones(2, 16)), (Block(), torch.ones(2, 16, requires_grad=True))),
        ((_gain(2.0), torch.ones(2, 16)), (_gain(3.0), torch.ones(2, 16))),
    ],
    ids=["sizes", "strides", "gradients", "numbers"],
)
def test_what_differs_is_compiled_apart(first: Any, second: Any, made: Counter[str]) -> None:
    kept = []
    for function, x in (first, second):
        kept.append(tg.compile(function))
        torch.testing.assert_close(kept[-1](x), function(x))
    assert made["printed"] == 2


def test_tensors_that_a_graph_holds_are_its_own(made: Counter[str]) -> None:
    def holding(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: x + torch.tensor([value, 1.0])

    kept = [tg.compile(holding(value)) for value in (2.0, 3.0)]
    assert [f(torch.zeros(2))[0].item() for f in kept] == [2.0, 3.0]


THREE_BLOCKS = """
import sys, torch, torchglass as tg
from tests.codegen.test_equal_graphs import Block
torch.manual_seed(0)
with tg.prepare_debug(sys.argv[1] + "/glass"), torch.no_grad():
    blocks = [tg.compile(Block()) for _ in range(3)]  # alive together: else they take the same folder in turn
    torch.save([block(torch.ones(4, 16)) for block in blocks], sys.argv[1] + "/results")
"""


def test_an_edit_of_one_is_of_one(tmp_path: Path) -> None:
    def run() -> list[torch.Tensor]:
        root = Path(__file__).parents[2]
        subprocess.run([sys.executable, "-c", THREE_BLOCKS, str(tmp_path)], cwd=root, check=True, capture_output=True)
        return torch.load(tmp_path / "results")

    plain = run()
    wrapper = tmp_path / "glass/Block_2/entry_0/graph_0/forward.py"
    text = wrapper.read_text()
    line = next(line for line in text.splitlines() if line.strip().startswith("return ("))
    result = line.strip().removeprefix("return (").rstrip(",)")
    wrapper.write_text(text.replace(line, f"    return (aten.mul.Tensor({result}, 2),)"))
    edited = run()
    torch.testing.assert_close(edited, [plain[0], 2 * plain[1], plain[2]])


def test_results_go_with_the_last_graph_that_uses_them(made: Counter[str]) -> None:
    before = len(graph_sharing._alive)
    with torch.no_grad():
        kept = [tg.compile(Block(8)) for _ in range(2)]
        for block in kept:
            block(torch.ones(5, 8))
    assert len(graph_sharing._alive) == before + 1
    del kept, block
    gc.collect()
    assert len(graph_sharing._alive) <= before


def test_each_says_where_its_own_index_was_wrong() -> None:
    def looked_up(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return table[index] * 2

    def also() -> Any:
        return tg.compile(lambda table, index: looked_up(table, index))

    kept = [also(), also()]
    table = torch.ones(3, 4)
    for function in kept:
        function(table, torch.tensor([1, 2]))
    with pytest.raises(IndexError):
        kept[0](table, torch.tensor([1, 7]))
    torch.testing.assert_close(kept[1](table, torch.tensor([1, 2])), looked_up(table, torch.tensor([1, 2])))
