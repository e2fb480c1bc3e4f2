"""How the tests of calls compare what a function and the compiled function leave."""

from __future__ import annotations

import torch

BACKENDS = ["aot_eager", "glass"]


def same(want, got, where):
    if isinstance(want, (list, tuple)):
        assert len(want) == len(got), where
        for i, (a, b) in enumerate(zip(want, got)):
            same(a, b, f"{where}[{i}]")
    elif isinstance(want, torch.Tensor):
        assert isinstance(got, torch.Tensor), (where, got)
        assert want.requires_grad == got.requires_grad, where
        rough = "autocast" in where  # eager rounds shared casts' gradients once more, as it adds them
        near = {"rtol": 1e-2, "atol": 4.0} if rough else {"rtol": 2e-5, "atol": 1e-4}
        near = near if want.is_floating_point() or want.is_complex() else {"rtol": 0, "atol": 0}
        torch.testing.assert_close(got.detach(), want.detach(), equal_nan=True, msg=lambda t: f"{where}: {t}", **near)
    else:
        assert want == got, (where, want, got)
