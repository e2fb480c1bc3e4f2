"""Indices out of range end a GPU's kernel; in Triton's interpreter, and in our stand-in for it, they raise."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.codegen.test_triton_text import GPU, fused, printed
from tests.codegen.triton_compile import compiled as compiled_for_gpus
from tests.sweep.stand_in import standing_in

import torchglass as tg
from torchglass import codegen, schedule

ROWS = 10
Fn = Callable[..., Any]
READS: dict[str, Fn] = {
    "embedding": lambda x, i: F.embedding(i, x) * 2,
    "index_select": lambda x, i: x.index_select(0, i) + 1,
    "gather": lambda x, i: x.gather(0, i[:, None].expand(-1, 6)) + 1,
    "index": lambda x, i: x[i] + 1,
    "two indices": lambda x, i: x[i, i % 6] + 1,
    "nll_loss": lambda x, i: F.cross_entropy(x.t()[:1].expand(len(i), -1), i),
    "index_put": lambda x, i: x.index_put((i,), torch.ones(())) * 2,
    "index_add": lambda x, i: x.index_add(0, i, torch.ones(len(i), 6)),
    "scatter": lambda x, i: x.scatter(0, i[:, None], 1.0),
}


@pytest.mark.parametrize("wrong", [ROWS, -ROWS - 1, 2**40], ids=["one too far", "before the first", "far"])
@pytest.mark.parametrize("count", [7, 64], ids=["ragged", "whole"])
@pytest.mark.parametrize("name", READS)
def test_what_is_out_of_range_raises(name: str, count: int, wrong: int) -> None:
    fn, x, i = READS[name], torch.randn(ROWS, 6), torch.arange(count) % ROWS
    tg.reset()
    with standing_in("gpu"), torch.no_grad():
        compiled = tg.compile(fn, fullgraph=True)
        torch.testing.assert_close(compiled(x, i), fn(x, i))
        assert {kernel.language for kernel in tg.explain(compiled).kernels()} == {"triton"}
        i[3] = wrong
        with pytest.raises((IndexError, RuntimeError), match="out of "):
            compiled(x, i)


def test_whole_numbers_divided_by_zero_raise_nothing() -> None:
    """As in eager on a GPU."""
    fn = lambda x, y: x // y
    x, y = torch.arange(8), torch.tensor([1, 2, 3, 0, 5, 6, 7, 8])
    sources = printed(fn, [x, y])
    assert "tg_index" not in sources.texts["triton"] and "// " in sources.texts["triton"]


def test_one_look_for_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each of its columns, nor for points that a mask leaves out."""
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    args = [torch.zeros(30522, 768), torch.zeros(8191, dtype=torch.int64)]
    scheduled = schedule.run(fused(READS["embedding"], args), GPU)
    sources = codegen.run(scheduled, GPU)
    (source,) = (kernel.source for kernel in sources.kernels)
    assert "tg_index(tl.where(ymask, t0, 0), 30522)" in source
    (made,) = compiled_for_gpus(scheduled, sources, tmp_path, aligned=16).values()
    (_, axis) = scheduled.schedules[0].mapping.parallel
    assert 1 <= made.asm["ptx"].count("@wrong trap") <= axis.block and ".v4.b32" in made.asm["ptx"]


INTERPRETED = """
import sys
import torch
from pathlib import Path
from torchglass.runtime.load import load

call = load(Path(sys.argv[1]))
x, i = torch.arange(60.0).view(10, 6), torch.tensor([3, 0, 9, 9, 1, 2, 7])
assert torch.equal(call([x, i])[0], x[i] * 2)
i[3] = 10
try:
    call([x, i])
except Exception as error:
    print(error)
"""


def test_by_tritons_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    sources = printed(READS["embedding"], [torch.zeros(ROWS, 6), torch.zeros(7, dtype=torch.int64)])
    (tmp_path / "forward_kernels.py").write_text(sources.texts["triton"])
    (tmp_path / "forward_wrapper.py").write_text(sources.wrapper_text)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    command = [sys.executable, "-c", INTERPRETED, str(tmp_path / "forward_wrapper.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "index 10 is out of range of 10 elements" in done.stdout, done.stdout + done.stderr
