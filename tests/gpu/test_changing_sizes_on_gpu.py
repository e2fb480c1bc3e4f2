"""Loops over sizes that change, by Triton."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.gpu.compiled import DEVICE, needs_gpu
from tests.lower.test_changing_sizes_loops import CASES, PARTS, at_other_sizes, nothing_is_read

import torchglass as tg

pytestmark = needs_gpu


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("trains", (False, True), ids=("inference", "training"))
def test_loops_at_other_sizes(name: str, trains: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    at_other_sizes(name, trains, DEVICE)


@pytest.mark.parametrize("name", PARTS)
def test_nothing_is_read_of_no_elements(name: str) -> None:
    nothing_is_read(name, DEVICE)


def test_indices_of_32_bits_are_an_assumption_of_the_entry() -> None:
    """Few elements take one entry, more than 2**30 another, whose kernels count in 64 bits."""
    compiled: Any = tg.compile(lambda x: (x + 1).sum(-1, dtype=torch.int64), dynamic=True)
    for rows, entries in ((8, 1), (30, 1), (1 << 19, 2), (9, 2), ((1 << 20) + 1, 2)):
        x = torch.ones(rows, 4099, dtype=torch.int8, device=DEVICE)
        assert torch.equal(compiled(x), torch.full([rows], 8198, device=DEVICE))
        assert len(tg.explain(compiled).entries) == entries
    few, many = tg.explain(compiled).entries
    assert "kernels count elements in 32 bits" in few.guards_text
    assert "kernels count elements in 32 bits" not in many.guards_text
    texts = [entry.graphs[0].files["forward_kernels.py"] for entry in (few, many)]
    assert ["tl.int64)" in text.partition("def kernel_0")[2].split("tl.arange")[0] for text in texts] == [False, True]
