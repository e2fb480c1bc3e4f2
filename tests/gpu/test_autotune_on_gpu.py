"""mode="max-autotune" on a GPU: kernels are measured in several ways, recorded, and found again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.gpu.compiled import alike, make, needs_gpu

import torchglass as tg

pytestmark = needs_gpu


def test_autotune_measures_and_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    x, w = make(4096, 4096), make(4096)

    def norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x.sin() * 2, (4096,), w).sum(0)

    found = []
    for _ in range(2):  # the second one finds what was measured
        tg.reset()
        compiled = tg.compile(norm, mode="max-autotune", fullgraph=True)
        alike(norm(x, w), compiled(x, w), 1e-4)
        (graph,) = tg.explain(compiled).graphs()
        tried = {kernel.name: [str(one) for one in kernel.tried] for kernel in graph.kernels}
        assert any(len(ways) > 3 for ways in tried.values()), tried
        found.append(tried)
    assert found[0] == found[1]
    assert list(tmp_path.rglob("tuned/*.json"))
