"""docs/reading-a-compile.md shows the folder's files as they really are."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "reading-a-compile.md"
BLOCK = re.compile(r"```\w*\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """The page's program, run as it says."""
    folder = tmp_path_factory.mktemp("toy")
    (folder / "toy.py").write_text(BLOCK.search(PAGE.read_text())[1])
    subprocess.run([sys.executable, "-m", "torchglass", "run", "toy.py"], cwd=folder, check=True, capture_output=True)
    return folder


def pieces_shown() -> list[tuple[str, str]]:
    """What the page shows of the compiler's files: a file's name, and lines that stand together in it."""
    text = PAGE.read_text()
    _, *blocks = BLOCK.finditer(text)
    assert len(blocks) >= 9
    shown = []
    for block in blocks:
        names = re.findall(r"`([\w/.]+\.(?:py|c|loops|fused))`", text[: block.start()])
        shown += [(names[-1], piece) for piece in re.split(r"^ *\.\.\.\n", block[1], flags=re.MULTILINE)]
    return shown


def not_in_their_file(toy: Path, pieces: list[tuple[str, str]]) -> list[str]:
    top = toy / "glass" / "toy_example"
    files = {name: f"\n{(top / name).read_text()}\n".replace(f"{toy}/", "") for name, _ in pieces}
    return [f"{name}:\n{piece}" for name, piece in pieces if f"\n{piece}" not in files[name]]


def test_python_that_is_shown_is_in_the_file_named_before_it(toy):
    pieces = [(name, piece) for name, piece in pieces_shown() if name.endswith(".py")]
    assert not not_in_their_file(toy, pieces)


@pytest.mark.slow  # it holds a page to what the compiler prints for this machine, to the letter
def test_what_is_shown_is_in_the_file_named_before_it(toy):
    assert not not_in_their_file(toy, pieces_shown())


@pytest.mark.slow
def test_the_debugger_stops_where_the_page_says(toy):
    step = re.search(r"`TORCHGLASS_DIR=glass python -m pdb toy.py` and type `(break .*?)`\s+and", PAGE.read_text())
    typed = f"{step[1]}\ncontinue\nprint(x.shape, lt)\nquit\n"
    ran = subprocess.run([sys.executable, "-m", "pdb", "toy.py"], cwd=toy, input=typed, capture_output=True, text=True,
                         env={**os.environ, "TORCHGLASS_DIR": "glass"})  # fmt: skip
    assert "torch.Size([10]) tensor(False)" in ran.stdout
    assert "-> if lt:" in ran.stdout
