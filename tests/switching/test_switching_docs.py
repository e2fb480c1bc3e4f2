"""docs/switching.md: nothing of torch.compile's API is left out, and what it names of ours is there."""

import inspect
import re
from pathlib import Path

import torch

import torchglass as tg

TEXT = (Path(__file__).parents[2] / "docs" / "switching.md").read_text(encoding="utf-8")
TABLE = TEXT[TEXT.index("## torch.compile's API") :]


def test_every_name_of_torch_compiler_has_a_row() -> None:
    assert [name for name in torch.compiler.__all__ if f"`torch.compiler.{name}`" not in TABLE] == []


def test_every_argument_of_torch_compile_has_a_row() -> None:
    arguments = set(inspect.signature(torch.compile).parameters) - {"model"}
    assert sorted(name for name in arguments if f"`{name}`" not in TABLE) == []


def test_names_of_ours_exist() -> None:
    named = set(re.findall(r"`tg\.(\w+)", TEXT))
    assert len(named) > 15 and named <= set(tg.__all__)
