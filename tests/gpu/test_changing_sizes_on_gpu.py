"""Loops over sizes that change, by Triton."""

from __future__ import annotations

import pytest
import torch
from tests.gpu.compiled import DEVICE, needs_gpu
from tests.lower.test_changing_sizes_loops import CASES, at_other_sizes

pytestmark = needs_gpu


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("trains", (False, True), ids=("inference", "training"))
def test_loops_at_other_sizes(name: str, trains: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    at_other_sizes(name, trains, DEVICE)
