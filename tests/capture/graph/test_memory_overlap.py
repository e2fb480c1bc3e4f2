"""Writes through views that functionalization would lose, and views of memory that is not there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torchglass as tg


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("size", "step"), [(2, 3), (1, 2), (0, 2), (2, 2)])
def test_a_write_through_windows_keeps_what_lies_between(size: int, step: int, dynamic: bool, backend: str) -> None:
    def write(x: torch.Tensor) -> torch.Tensor:
        windows = x.unfold(1, size, step)
        windows[0] = 7
        return x + 1

    compiled: Any = tg.compile(write, dynamic=dynamic, backend=backend)
    for shape in ((4, 6), (3, 9)):
        x = torch.randn(shape)
        ours, eager = x.clone(), x.clone()
        assert torch.equal(compiled(ours), write(eager))
        assert torch.equal(ours, eager)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_view_beyond_the_elements_of_an_input_is_eagers(dynamic: bool) -> None:
    """One that lies in more memory gives what is there, one that does not raises, whichever the entry was made for."""

    def behind(x: torch.Tensor, n: int) -> torch.Tensor:
        return x.as_strided((n,), (1,)) + 1

    for first in (torch.arange(20.0)[:5], torch.arange(5.0)):
        compiled: Any = tg.compile(behind, dynamic=dynamic)
        for x, n in ((first, 3), (first, 4), (torch.arange(20.0)[:5], 9), (torch.arange(5.0), 9), (first, 5)):
            try:
                expected = behind(x, n)
            except RuntimeError:
                with pytest.raises(RuntimeError, match="out of bounds"):
                    compiled(x, n)
            else:
                assert torch.equal(compiled(x, n), expected)
