"""Sizes of PyTorch's, numbers and symbols, as lowering takes them."""

from __future__ import annotations

import ast
from pathlib import Path

import torch

import torchglass
from torchglass.records.size_environment import SizeEnvironment
from torchglass.records.sizes import Expr, bounds, hint, symbols
from torchglass.records.sources import Local
from torchglass.records.symbolic_ints import size_of, sizes_of


def test_symbols_keep_what_is_known_of_them() -> None:
    symbol = SizeEnvironment().symbol(Local("n"), 6)
    size = size_of(symbol * 3 + 1)
    assert isinstance(size, Expr) and symbols([size]) == ["s0"]
    assert hint(size) == 19 and bounds(size) == (4, None)
    assert sizes_of(torch.empty(2, 3).shape) == (2, 3)
    assert sizes_of((symbol, 3)) == (size_of(symbol), 3)


def test_sizes_do_without_sympy() -> None:
    for file in Path(torchglass.__file__).parent.rglob("*.py"):
        imported = [n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, (ast.Import, ast.ImportFrom))]
        assert not any("sympy" in ast.unparse(node) for node in imported), file
