"""A wrapper that is loaded is the one whose text is in the file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from torchglass.runtime.load import load

TEXT = "def call(args):\n    return ({},)\n"


@pytest.fixture(autouse=True)
def bytecode_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)


def written(path: Path, result: int) -> None:
    path.write_text(TEXT.format(result))
    os.utime(path, (1_000_000_000, 1_000_000_000))


def test_text_of_the_same_second_and_length_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "forward_wrapper.py"
    for result in (1, 2, 3, 3):
        written(path, result)
        assert load(path)([]) == (result,)


def test_in_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "forward_wrapper.py"
    written(path, 1)
    (tmp_path / "__pycache__").touch()  # a file where the folder would be
    assert load(path)([]) == (1,)


def test_an_error_in_the_text_is_raised(tmp_path: Path) -> None:
    path = tmp_path / "forward_wrapper.py"
    path.write_text("def call(:\n")
    with pytest.raises(SyntaxError, match="forward_wrapper"):
        load(path)
