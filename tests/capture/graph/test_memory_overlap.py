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


WRITES: dict[str, Any] = {
    "index_add": lambda a, b: a.index_add_(0, torch.arange(4), b),
    "index_copy": lambda a, b: a.index_copy_(0, torch.arange(4), b),
    "index_put": lambda a, b: a.index_put_((torch.arange(4),), b),
    "put": lambda a, b: a.put_(torch.arange(16).view(4, 4), b),
    "scatter": lambda a, b: a.scatter_(0, torch.arange(4).expand(4, 4), b),
    "scatter_add": lambda a, b: a.scatter_add_(0, torch.arange(4).expand(4, 4), b),
    "add": lambda a, b: a.add_(b),
    "copy": lambda a, b: a.copy_(b),
    "lerp": lambda a, b: a.lerp_(b, 0.5),
}
OPERANDS: dict[str, Any] = {
    "itself": lambda base: (base[:4], base[:4]),
    "some of itself": lambda base: (base[:4], base[1:5]),
    "itself turned": lambda base: (base[:4], base[:4].t()),
    "what lies beside it": lambda base: (base[:4], base[4:]),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("operands", OPERANDS)
@pytest.mark.parametrize("write", WRITES)
def test_kernels_refuse_operands_that_share_what_they_write(write: str, operands: str, dynamic: bool) -> None:
    def program(base: torch.Tensor) -> torch.Tensor:
        WRITES[write](*OPERANDS[operands](base))
        return base * 1

    compiled: Any = tg.compile(program, dynamic=dynamic)
    base = torch.randn(8, 4)
    try:
        expected = program(base.clone())
    except RuntimeError:
        with pytest.raises(RuntimeError, match="single memory location"):
            compiled(base)
    else:
        torch.testing.assert_close(compiled(base), expected)


@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
def test_parts_of_an_expanded_input_are_written_to(backend: str) -> None:
    """Which share no memory, while a graph would give back all of the input."""
    for function in (lambda x: x[1:].mul_(2), lambda x: x[-1].fill_(3.0), lambda x: x[1].copy_(x[0] * 2)):
        ours, eager = (torch.ones(1, 3).expand(2, 3) for _ in range(2))
        torch.testing.assert_close(tg.compile(function, backend=backend)(ours), function(eager))
        torch.testing.assert_close(ours, eager)
