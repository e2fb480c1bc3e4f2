"""The folder that ``collect`` leaves of torch.compile: complete, runnable, true, and named alike in every run."""

from __future__ import annotations

import inspect
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from torchglass.inspector.torch_compile import Collection, collect

sys.path.insert(0, str(Path(__file__).parents[1] / "decompiler"))
import broken_programs as programs
from test_made_code import same


def run(name: str, folder: Path, backend: str = "eager") -> tuple[Collection, list[Any], list[Any]]:
    torch._dynamo.reset()
    function, calls = programs.PROGRAMS[name]()
    programs.LOG.clear()
    with collect(folder) as collection:
        compiled = torch.compile(function, backend=backend)
        results = [compiled(*call) for call in calls]
    return collection, results, list(programs.LOG)


def plain(name: str) -> tuple[list[Any], list[Any]]:
    function, calls = programs.PROGRAMS[name]()
    programs.LOG.clear()
    return [function(*call) for call in calls], list(programs.LOG)


def files(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_program_runs_and_leaves_python(name: str, tmp_path: Path) -> None:
    collection, results, notes = run(name, tmp_path)
    expected, expected_notes = plain(name)
    assert same(results, expected) and notes == expected_notes
    assert collection.functions or "Graph break" in (tmp_path / "not_compiled.md").read_text()
    for path in tmp_path.rglob("*.py"):
        compile(path.read_text(), str(path), "exec")
    for function in [f for top in collection.functions for f in top.walk()]:
        for entry in function.entries:
            assert entry.guards is not None and (entry.folder / "guards.py").exists()
            assert all(line.expression for line in entry.guards), [g.printed for g in entry.guards if not g.expression]


@pytest.mark.parametrize("name", ["toy", "dictionary", "while_loop", "with_block", "formatted_text", "side_effects"])
def test_guards_hold_for_what_was_compiled(name: str, tmp_path: Path) -> None:
    """Evaluated on the arguments of the first call, every guard of the first entry holds; on others some fail."""
    collection, _, _ = run(name, tmp_path)
    function, calls = programs.PROGRAMS[name]()
    signature = inspect.signature(function)
    free = {c: v.cell_contents for c, v in zip(function.__code__.co_freevars, function.__closure__ or ())}
    L = {**signature.bind(*calls[0]).arguments, **free}
    top = next(f for f in collection.functions if f.code is function.__code__)
    module = runpy.run_path(str(top.entries[0].folder / "guards.py"))
    assert module["reasons"](L, vars(programs)) == []
    assert module["check"](L, vars(programs))
    wrong = {name: torch.ones(7, 3, dtype=torch.float64) for name in L}
    assert module["reasons"](wrong, vars(programs))


@pytest.mark.slow
def test_every_stage_of_training(tmp_path: Path) -> None:
    def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).relu().sum()

    torch._dynamo.reset()
    x, w = torch.randn(3, 4), torch.randn(4, 5, requires_grad=True)
    with collect(tmp_path) as collection:
        torch.compile(step)(x, w).backward()
    graph = collection.functions[0].entries[0].folder / "graph_0"
    assert {p.name for p in graph.iterdir()} == {
        "captured.py", "joint.py", "forward.py", "backward.py", "post_grad_forward.py", "post_grad_backward.py",
        "inductor_forward.py", "inductor_backward.py", "captured.svg", "joint.svg", "forward.svg", "backward.svg",
    }  # fmt: skip
    for path in graph.glob("*.py"):
        if not path.name.startswith("inductor"):
            runpy.run_path(str(path), run_name="__main__")
    grad, w.grad = w.grad, None
    step(x, w).backward()
    torch.testing.assert_close(grad, w.grad)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["toy", "closures"])
def test_names_and_texts_are_the_same_in_every_run(name: str, tmp_path: Path) -> None:
    use = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from pathlib import Path; import torch, test_torch_compile_folder as t; torch.manual_seed(0)\n"
        f"t.run({name!r}, Path(sys.argv[1]), 'aot_eager')\n"
    )
    for n in ("one", "two"):
        subprocess.run([sys.executable, "-c", use, str(tmp_path / n)], check=True, capture_output=True)
    one, two = (
        {file: (tmp_path / n / file).read_text() for file in files(tmp_path / n) if not file.endswith("report.html")}
        for n in ("one", "two")
    )
    assert one == two
    assert not [file for file, text in one.items() if "__compiled_fn" in text and file.endswith(".py")]


def test_names_of_resume_functions(tmp_path: Path) -> None:
    run("toy", tmp_path / "one")
    line = line_of("if b.sum() < 0")
    calling = (tmp_path / "one/toy_example/entry_0/transformed.py").read_text()
    assert "graph_0" in calling and f"return resume_at_{line}([], []" in calling
    assert "toy_example/resume_at_36/entry_0/transformed.py".replace("36", str(line_of("if b.sum() < 0"))) in files(
        tmp_path / "one"
    )


def line_of(text: str) -> int:
    lines = Path(programs.__file__).read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if text in line)


def test_transformed_code_runs_from_its_file(tmp_path: Path) -> None:
    """A tracer sees the lines of transformed.py being executed, so a breakpoint there stops."""
    seen: set[str] = set()

    def tracer(frame: Any, event: str, argument: Any) -> Any:
        seen.add(frame.f_code.co_filename)
        return None

    torch._dynamo.reset()
    function, calls = programs.PROGRAMS["toy"]()
    with collect(tmp_path) as collection:
        compiled = torch.compile(function, backend="eager")
        for call in calls:
            compiled(*call)
        sys.settrace(tracer)
        try:
            compiled(*calls[0])
        finally:
            sys.settrace(None)
    top = collection.functions[0]
    assert top.entries[0].runs_own_file and str(top.entries[0].folder / "transformed.py") in seen


def test_readme_links_what_belongs_together(tmp_path: Path) -> None:
    collection, _, _ = run("toy", tmp_path)
    text = (collection.functions[0].folder / "README.md").read_text()
    assert "Data-dependent branching" in text and "compiled again because" in text
    assert text.count("goes on with [resume_at_") == 4 and text.count("/resume_function.py)") >= 4
    assert "captured.py): the graph that torch.compile captured" in text


@pytest.mark.complains("")
def test_a_folder_that_cannot_be_written_harms_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "toy_example").write_text("a file where the function's folder would be")
    _, results, notes = run("toy", tmp_path)
    expected, expected_notes = plain("toy")
    assert same(results, expected) and notes == expected_notes
    assert "is not complete" in caplog.text or "could not write" in caplog.text


def test_nothing_stays_behind(tmp_path: Path) -> None:
    import logging

    from torch._dynamo.convert_frame import _bytecode_hooks

    log = logging.getLogger("torch.__trace")
    before = list(log.handlers), log.level, log.propagate, len(_bytecode_hooks)
    with pytest.raises(ValueError), collect(tmp_path):
        raise ValueError
    assert (list(log.handlers), log.level, log.propagate, len(_bytecode_hooks)) == before
