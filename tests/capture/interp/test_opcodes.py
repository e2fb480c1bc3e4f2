"""Every instruction of CPython 3.11, 3.12 and 3.13 has a handler, or is named with what becomes of it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torchglass.capture.interp import ops  # noqa: F401  (fills the tables)
from torchglass.capture.interp.ops.registry import BREAKS_THE_GRAPH, HANDLERS, NEVER_REACHED, REGISTERED

LIST = (
    "import dis, json; print(json.dumps([n for n, c in dis.opmap.items() if c < 256 "
    "and not n.startswith('INSTRUMENTED_')]))"
)


def python_of(version):
    """A CPython of that version on this machine, None if there is none."""
    if sys.version_info[:2] == version:
        return sys.executable
    name = f"{version[0]}.{version[1]}"
    homes = sorted((Path.home() / ".pyenv/versions").glob(f"{name}.*/bin/python"))
    return str(homes[0]) if homes else shutil.which(f"python{name}")


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13)])
def test_every_instruction_is_known(version):
    python = python_of(version)
    if python is None:
        pytest.skip(f"no CPython {version}")
    names = set(json.loads(subprocess.run([python, "-c", LIST], capture_output=True, check=True, text=True).stdout))
    handled = {name for name, (first, last) in REGISTERED if first <= version < last}
    assert names - handled - set(NEVER_REACHED) - set(BREAKS_THE_GRAPH) == set()
    # a handler registered with its versions is for an instruction that these have
    exact = {n for n, span in REGISTERED if span != ((3, 11), (3, 14)) and span[0] <= version < span[1]}
    assert exact <= names


def test_what_is_named_has_no_handler():
    assert not set(HANDLERS) & (set(NEVER_REACHED) | set(BREAKS_THE_GRAPH))
