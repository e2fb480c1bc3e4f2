"""Edits are never lost, and never run where nobody asked for them: they run in a folder that TORCHGLASS_DIR names."""

from __future__ import annotations

import os
from pathlib import Path

from .processes import Outcome, run

TEXT = """
import torch, torchglass as tg
def f(x):
    return x.sin() * 3 + 1
def main():
    return tg.compile(f)(torch.zeros(4)).tolist()
"""


def edit(path: Path) -> None:
    """Four more than the function returns."""
    text = path.read_text()
    assert "return add" in text
    path.write_text(text.replace("return add", "return add + 4"))


def in_folder(artifacts: Path, cache: Path) -> Outcome:
    return run(TEXT, cache, TORCHGLASS_DIR=str(artifacts))


def wrapper_of(artifacts: Path) -> Path:
    (path,) = artifacts.glob("f/entry_0/transformed.py")
    return path


def test_a_later_process_with_the_same_folder_runs_the_edit(tmp_path) -> None:
    """Whatever is kept elsewhere; and there it is not kept."""
    assert run(TEXT, tmp_path / "cache").compiled
    first = in_folder(tmp_path / "glass", tmp_path / "cache")
    assert first.compiled and first.result == [1.0] * 4
    edit(wrapper_of(tmp_path / "glass"))
    for _ in range(2):
        assert in_folder(tmp_path / "glass", tmp_path / "cache").result == [5.0] * 4
    other = run(TEXT, tmp_path / "cache")
    assert other.found and other.result == [1.0] * 4


def test_an_edit_in_the_folder_that_a_process_left_unasked(tmp_path) -> None:
    """Its files for reading run once that folder is named."""
    environment = {"XDG_CACHE_HOME": str(tmp_path / "user")}
    first = run(TEXT, tmp_path / "cache", **environment)
    assert first.compiled
    (artifacts,) = tmp_path.glob("user/torchglass/runs/*-*")
    edit(wrapper_of(artifacts))
    assert in_folder(artifacts, tmp_path / "cache").result == [5.0] * 4
    assert run(TEXT, tmp_path / "cache", **environment).result == [1.0] * 4


def test_an_edit_of_a_kept_entry_is_set_aside(tmp_path) -> None:
    """A person hears that it does not run, and where it is."""
    assert run(TEXT, tmp_path / "cache").compiled
    (path,) = tmp_path.glob("cache/*/[0-9]*/transformed.py")
    edit(path)
    edited = path.read_text()
    outcome = run(TEXT, tmp_path / "cache")
    assert outcome.compiled and outcome.result == [1.0] * 4
    assert any("an edit of a kept entry does not run" in line and "TORCHGLASS_DIR" in line for line in outcome.warned)
    (aside,) = tmp_path.glob("cache/*/damaged-*/transformed.py")
    assert aside.read_text() == edited
    again = run(TEXT, tmp_path / "cache")
    assert again.found and not again.warned and aside.exists()


def test_what_was_set_aside_is_pruned_like_entries(tmp_path) -> None:
    from torchglass.cache import folder

    assert run(TEXT, tmp_path / "cache").compiled
    (entry,) = tmp_path.glob("cache/*/[0-9]*")
    aside = folder.set_aside(entry)
    assert folder.prune(tmp_path / "cache") == []
    os.utime(aside, (1e9, 1e9))
    assert folder.prune(tmp_path / "cache") == [aside]
