"""one_hot stays in the graph, with eager's errors."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import torchglass as tg


def test_one_hot_is_captured_and_raises_as_eager() -> None:
    def fn(classes: torch.Tensor) -> torch.Tensor:
        return F.one_hot(classes, 5).float() * 2

    compiled = tg.compile(fn, fullgraph=True)
    classes = torch.tensor([[1, 2], [0, 4]])
    assert torch.equal(compiled(classes), fn(classes))
    assert tg.explain(compiled).entries
    for wrong, message in ((classes + 3, "smaller than num_classes"), (classes - 1, "non-negative")):
        with pytest.raises(RuntimeError, match=message):
            compiled(wrong)
