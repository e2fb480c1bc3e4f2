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


@pytest.mark.slow  # it holds a page to what the compiler prints, to the letter
def test_what_is_shown_is_in_the_file_named_before_it(toy):
    text = PAGE.read_text()
    _, *blocks = BLOCK.finditer(text)
    top = toy / "glass" / "toy_example"
    missing = []
    for block in blocks:
        names = re.findall(r"`([\w/.]+\.(?:py|c|loops|fused))`", text[: block.start()])
        file = f"\n{(top / names[-1]).read_text()}\n".replace(f"{toy}/", "")
        for piece in re.split(r"^ *\.\.\.\n", block[1], flags=re.MULTILINE):
            if f"\n{piece}" not in file:
                missing.append(f"{names[-1]}:\n{piece}")
    assert not missing
    assert len(blocks) >= 9


@pytest.mark.slow
def test_the_debugger_stops_where_the_page_says(toy):
    step = re.search(r"`TORCHGLASS_DIR=glass python -m pdb toy.py` and type `(break .*?)`\s+and", PAGE.read_text())
    typed = f"{step[1]}\ncontinue\nprint(x.shape, lt)\nquit\n"
    ran = subprocess.run([sys.executable, "-m", "pdb", "toy.py"], cwd=toy, input=typed, capture_output=True, text=True,
                         env={**os.environ, "TORCHGLASS_DIR": "glass"})  # fmt: skip
    assert "torch.Size([10]) tensor(False)" in ran.stdout
    assert "-> if lt:" in ran.stdout
