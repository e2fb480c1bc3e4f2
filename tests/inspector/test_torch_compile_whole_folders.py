"""The folders that torch.compile's compiles leave under prepare_debug, held to the promise of tg.compile's own: every
file is there, every Python file compiles, every graph file runs alone, full_code.py gives eager's results.
"""

import gc
import importlib.util
import inspect
import py_compile
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.run_files import run_files

import torchglass as tg
from torchglass.inspector.torch_compile.full_code import identifier

sys.path.insert(0, str(Path(__file__).parents[1] / "decompiler"))
sys.path.insert(0, str(Path(__file__).parent))
import broken_programs
from test_made_code import same
from test_whole_folders import PROGRAMS, broken_links, outcome

TRAINED = ("toy_example", "dictionary", "sine_cosine", "linear", "bert")


def loaded(folder: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("full_code", folder / "full_code.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BROKEN = [*broken_programs.PROGRAMS]


@pytest.fixture(scope="module", params=list(PROGRAMS))
def compiled(request: Any, tmp_path_factory: Any) -> Any:
    """A program after its calls under torch.compile, and the folder of the function it begins with."""
    model, calls = PROGRAMS[request.param]
    torch._dynamo.reset()
    torch.manual_seed(0)
    with tg.prepare_debug(tmp_path_factory.mktemp(request.param) / "glass") as folder:
        made = torch.compile(model, backend="aot_eager")
        for args in calls:
            outcome(made, model, args)
    tops = [path for path in (folder / "torch_compile").iterdir() if path.is_dir()]
    assert len(tops) == 1, tops
    yield request.param, model, calls, tops[0]
    del made  # a closure that torch.compile made of a module lives as long as this


def test_every_file_is_there_and_compiles(compiled: Any) -> None:
    name, _, _, top = compiled
    assert all((top / file).is_file() for file in ("README.md", "full_code.py", "report.html", "flow.svg"))
    assert not broken_links(top)
    wanted = {"captured.py", "captured.svg", "forward.py", "forward.svg"}
    wanted |= {"joint.py", "joint.svg", "backward.py", "backward.svg"} if name in TRAINED else set()
    entries = list(top.rglob("entry_*"))
    assert entries
    for entry in entries:
        assert (entry / "guards.py").is_file() and (entry / "transformed.py").is_file()
        assert wanted <= {path.name for path in (entry / "graph_0").iterdir()}
    for path in top.rglob("*.py"):
        py_compile.compile(str(path), doraise=True)
    assert not [path for path in top.rglob("*") if path.is_file() and not path.stat().st_size]


@pytest.mark.slow
def test_every_graph_file_runs_alone(compiled: Any) -> None:
    files = sorted(path for folder in compiled[-1].rglob("graph_0") for path in folder.glob("*.py"))
    run_files(files)


def test_full_code_gives_eagers_results(compiled: Any) -> None:
    _, model, calls, top = compiled
    module = loaded(top)
    module.program.miss = lambda *_, **__: pytest.fail("no entry fits")  # type: ignore[attr-defined]
    dispatcher = getattr(module, identifier(top.name))
    for args in calls:
        first = (model,) if "self" in inspect.signature(dispatcher).parameters else ()
        ours = with_zeros(lambda *rest, first=first: dispatcher(*first, *rest), model, args)
        torch.testing.assert_close(ours, with_zeros(model, model, args), rtol=2e-4, atol=2e-5)


def with_zeros(call: Any, model: Any, args: Any) -> list[torch.Tensor]:
    """Result and gradients; torch.compile gives parameters that took no part a gradient of zeros, eager none."""
    found = outcome(call, model, args)
    return [found[0], *(t for t in found[1:] if t.any())]


@pytest.mark.slow
def test_full_code_runs_in_another_process(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import torch, torchglass as tg\n"
        "def helper(x):\n    return x * 2\n"
        "def function(x, scale=3):\n    y = helper(x)\n    print('break')\n    return y.sin() * scale\n"
        "if __name__ == '__main__':\n"
        f"    with tg.prepare_debug({str(tmp_path / 'glass')!r}):\n"
        "        torch.compile(function, backend='eager')(torch.ones(4))\n"
    )
    subprocess.run([sys.executable, str(program)], check=True, capture_output=True)
    top = tmp_path / "glass" / "torch_compile" / "function"
    use = (
        f"import sys; sys.path[:0] = [{str(top)!r}, {str(tmp_path)!r}]\n"
        "import torch, full_code, program\n"
        "full_code.program.miss = None\n"
        "torch.testing.assert_close(full_code.function(torch.ones(4)), program.function(torch.ones(4)))\n"
    )
    done = subprocess.run([sys.executable, "-c", use], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "break\nbreak\n"


@pytest.mark.parametrize("name", [*BROKEN[:4], *(pytest.param(name, marks=pytest.mark.slow) for name in BROKEN[4:])])
def test_full_code_of_programs_that_break(name: str, tmp_path: Path) -> None:
    torch._dynamo.reset()
    function, calls = broken_programs.PROGRAMS[name]()
    with tg.prepare_debug(tmp_path):
        made = torch.compile(function, backend="eager")
        for call in calls:
            made(*call)
    tops = [path for path in (tmp_path / "torch_compile").iterdir() if (path / "full_code.py").is_file()]
    modules = {path.name: loaded(path) for path in tops}  # each at least imports
    function_name = getattr(function, "__name__", "inner").strip("<>")
    if function_name not in modules:
        assert (tmp_path / "torch_compile" / "not_compiled.md").is_file()
        return
    broken_programs.LOG.clear()
    function, calls = broken_programs.PROGRAMS[name]()
    expected, notes = [function(*call) for call in calls], list(broken_programs.LOG)
    if function_name != "inner":  # the closure that torch.compile made for a module's call is still there
        del made, function
        gc.collect()
        function, calls = broken_programs.PROGRAMS[name]()  # the closure that full_code.py finds
    else:
        calls = broken_programs.PROGRAMS[name]()[1]
    broken_programs.LOG.clear()
    module = loaded(tmp_path / "torch_compile" / function_name)
    results = [getattr(module, identifier(function_name))(*call) for call in calls]
    assert same(results, expected) and notes == broken_programs.LOG
