"""docs/reading-a-compile.md shows the folder's files as they really are."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "reading-a-compile.md"
BLOCK = re.compile(r"```\w*\n(.*?)```", re.DOTALL)


@pytest.mark.slow  # it holds a page to what the compiler prints, to the letter
def test_every_shown_line_is_in_the_file_named_before_it(tmp_path):
    text = PAGE.read_text()
    program, *blocks = BLOCK.finditer(text)
    (tmp_path / "toy.py").write_text(program[1])
    subprocess.run([sys.executable, "-m", "torchglass", "run", "toy.py"], cwd=tmp_path, check=True, capture_output=True)
    top = tmp_path / "glass" / "toy_example"
    missing = []
    for block in blocks:
        names = re.findall(r"`([\w/.]+\.(?:py|c|loops|fused))`", text[: block.start()])
        lines = (top / names[-1]).read_text().splitlines()
        for line in block[1].splitlines():
            if line.strip() and line not in lines:
                missing.append(f"{names[-1]}: {line}")
    assert not missing
    assert len(blocks) >= 9
