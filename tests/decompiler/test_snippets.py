"""Every kind of statement, run as written and as decompiled; in the other interpreters of this machine too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import snippets

SOURCE = Path(__file__).parents[2] / "src"
OTHERS = sorted(Path.home().glob(".pyenv/versions/3.1[0-3].*/bin/python"))


@pytest.mark.parametrize("name", [s[0] for s in snippets.SNIPPETS if s[3] <= sys.version_info[:2]])
def test_snippet_behaves_alike(name: str) -> None:
    _, text, calls, _ = next(s for s in snippets.SNIPPETS if s[0] == name)
    again = snippets.decompiled(text)
    assert not again.startswith("#"), again.splitlines()[0]
    for call in calls:
        assert snippets.outcome(again, call) == snippets.outcome(text, call)


@pytest.mark.parametrize("python", OTHERS, ids=lambda p: p.parts[-3])
def test_other_interpreters(python: Path) -> None:
    environment = {"PYTHONPATH": str(SOURCE), "PATH": os.environ["PATH"]}
    run = subprocess.run([python, snippets.__file__], env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr


def test_there_are_enough() -> None:
    assert len(snippets.SNIPPETS) >= 85
