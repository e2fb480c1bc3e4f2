"""``tg.save`` and ``tg.load``: a folder that one machine has left, on another one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch

import torchglass as tg

from .processes import Outcome, run, same

HEAD = "import os, torch, torchglass as tg\nF = torch.nn.functional\n"
PROGRAM = (
    HEAD
    + """
def f(x, w):
    return F.softmax(x @ w, -1) * 2
def g(x):
    return x.sin() + 1
def both():
    torch.manual_seed(0)
    w = torch.randn(8, 8, requires_grad=True)
    y = F_COMPILED(torch.randn(4, 8), w)
    y.square().sum().backward()
    return [y, w.grad, G_COMPILED(torch.ones(3))]
F_COMPILED, G_COMPILED = tg.compile(f), tg.compile(g)
def main():
    {before}
    result = both()
    {after}
    return result
"""
)


def saving(folder: Path, what: str = "") -> str:
    return PROGRAM.format(before="pass", after=f"tg.save({str(folder)!r}{what})")


def loading(folder: Path) -> str:
    """The same program: what is compiled stands on the same lines."""
    return PROGRAM.format(before=f"tg.load({str(folder)!r})", after="pass")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A shipped folder, moved to where nobody has made it."""
    place = tmp_path_factory.mktemp("made")
    first = run(saving(place / "saved"), place / "cache")
    assert len(first.compiled) == 2
    shutil.move(place / "saved", place / "moved")
    shutil.rmtree(place / "cache")
    return place / "moved", first.result


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_process_with_an_empty_cache_compiles_nothing(made, tmp_path) -> None:
    folder, expected = made
    before = contents(folder)
    outcome = run(loading(folder), tmp_path / "cache")
    assert len(outcome.found) == 2 and not outcome.compiled and same(outcome.result, expected)
    assert contents(folder) == before and not list(tmp_path.glob("cache/*"))


def test_without_any_cache_of_ones_own(made) -> None:
    folder, expected = made
    outcome = run(loading(folder), None)
    assert len(outcome.found) == 2 and not outcome.compiled and same(outcome.result, expected)


def test_a_folder_that_nobody_may_write(made, tmp_path) -> None:
    folder, expected = made
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    for path in (copy, *copy.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        outcome = run(loading(copy), tmp_path / "cache")
        assert len(outcome.found) == 2 and same(outcome.result, expected)
    finally:
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o755)


def test_only_what_is_named(tmp_path) -> None:
    run(saving(tmp_path / "saved", ", G_COMPILED"), tmp_path / "cache")
    outcome = run(loading(tmp_path / "saved"), None)
    assert len(outcome.found) == len(outcome.compiled) == 1 and "`g`" in outcome.found[0]


def test_a_backward_that_ran_nowhere_is_not_added(tmp_path) -> None:
    text = saving(tmp_path / "saved").replace("y.square().sum().backward()", "pass")
    run(text, tmp_path / "cache")
    before = contents(tmp_path / "saved")
    outcome = run(loading(tmp_path / "saved"), tmp_path / "other")
    plain = run(loading(tmp_path / "saved").replace("tg.compile(f)", "f"), None)
    assert contents(tmp_path / "saved") == before
    assert all(a.allclose(b, atol=1e-5) for a, b in zip(outcome.result, plain.result, strict=True))


# --- other machines ---------------------------------------------------------------------------------------------------
def on_a_machine(sets: frozenset[str] | None = None, compiler: bool = True):
    """A processor that has these instruction sets, or some more than this one."""

    def before() -> None:
        from torchglass.cache import key
        from torchglass.runtime import toolchain
        from torchglass.runtime.instructions import instruction_sets

        key._isa = lambda: instruction_sets() | {"avx9"} if sets is None else sets
        if not compiler:
            toolchain._build = _no_compiler

    return before


def _no_compiler(*arguments):
    from torchglass.runtime.toolchain import ToolchainError

    raise ToolchainError("there is no C compiler")


def test_libraries_run_as_they_are_where_all_their_instructions_are(made, tmp_path) -> None:
    folder, expected = made
    outcome = run(loading(folder), tmp_path / "cache", before=on_a_machine(compiler=False))
    assert len(outcome.found) == 2 and not outcome.compiled and same(outcome.result, expected)


def test_libraries_are_compiled_of_their_sources_elsewhere(made, tmp_path) -> None:
    """And kept: the next process there needs neither the folder nor a compiler."""
    folder, expected = made
    elsewhere = frozenset({"sse2"})
    outcome = run(loading(folder), tmp_path / "cache", before=on_a_machine(elsewhere))
    assert len(outcome.found) == 2 and not outcome.compiled and same(outcome.result, expected)
    again = run(PROGRAM.format(before="pass", after="pass"), tmp_path / "cache", before=on_a_machine(elsewhere, False))
    assert len(again.found) == 2 and not again.compiled and same(again.result, expected)


def test_without_a_compiler_the_log_says_why_they_are_not_used(made, tmp_path) -> None:
    folder, expected = made
    outcome = run(loading(folder), tmp_path / "cache", before=on_a_machine(frozenset({"sse2"}), compiler=False))
    assert any("its libraries are for another processor, and cannot be compiled here" in line for line in outcome.said)
    assert not outcome.found
    assert all(a.allclose(b, atol=1e-5) for a, b in zip(outcome.result, expected, strict=True))


def test_what_makes_other_code_is_said(made, tmp_path) -> None:
    folder, _ = made
    text = loading(folder).replace("tg.load", "torch.get_num_threads = lambda: 7\n    tg.load")
    outcome = run(text, tmp_path / "cache")
    assert len(outcome.compiled) == 2 and not outcome.found
    assert any("threads was 1 and is 7" in line for line in outcome.warned)
    assert any("are not used: threads was 1 and is 7" in line for line in outcome.said)


def test_another_version_of_ours_is_said(made, tmp_path) -> None:
    def before() -> None:
        shipped._package = lambda: "0.2.0 0123"

    from torchglass.cache import shipped

    outcome: Outcome = run(loading(made[0]), tmp_path / "cache", before=before)
    assert len(outcome.compiled) == 2
    assert any("it was saved by torchglass 0.1.0" in line and "0.2.0 0123" in line for line in outcome.warned)


@pytest.mark.parametrize("damage", ["", "[]", '{"cpu": 3}', "no JSON"])
def test_a_key_that_is_damaged(made, tmp_path, damage: str) -> None:
    folder, expected = made
    shutil.copytree(folder, tmp_path / "copy")
    for path in tmp_path.glob("copy/*/machine.json"):
        path.write_text(damage)
    outcome = run(loading(tmp_path / "copy"), tmp_path / "cache")
    assert len(outcome.compiled) == 2 and same(outcome.result, expected)


def test_a_damaged_file_costs_a_compile_and_is_left(made, tmp_path) -> None:
    folder, expected = made
    shutil.copytree(folder, tmp_path / "copy")
    (path,) = tmp_path.glob("copy/f-*/*/graph_0/forward_kernels.so")
    path.write_bytes(b"")
    outcome = run(loading(tmp_path / "copy"), tmp_path / "cache")
    assert len(outcome.compiled) == len(outcome.found) == 1 and same(outcome.result, expected)
    assert path.exists()


# --- errors -----------------------------------------------------------------------------------------------------------
def test_errors_name_the_argument(made, tmp_path) -> None:
    with pytest.raises(TypeError, match="path must be a path"):
        tg.save(3)
    with pytest.raises(TypeError, match="path must be a path"):
        tg.load(None)
    with pytest.raises(TypeError, match=r"compiled must be what tg.compile returned"):
        tg.save(tmp_path / "saved", lambda x: x)
    compiled = tg.compile(lambda x: x + 1)
    compiled(torch.ones(2))
    with pytest.raises(ValueError, match=r"there is nothing to save in path: `.*<lambda>`: nothing is kept here"):
        tg.save(tmp_path / "saved", compiled)
    with pytest.raises(ValueError, match=r"path must be a folder that tg.save has left"):
        tg.load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"with a shipped.json in it"):
        tg.load(tmp_path)
    assert not (tmp_path / "saved").exists()


def test_a_folder_that_others_may_write_is_refused(made, tmp_path) -> None:
    shutil.copytree(made[0], tmp_path / "copy")
    (tmp_path / "copy").chmod(0o777)
    with pytest.raises(ValueError, match=r"only you can write: .* may be written by other users"):
        tg.load(tmp_path / "copy")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(made, tmp_path) -> None:
    shutil.copytree(made[0], tmp_path / "copy")
    os.chown(tmp_path / "copy", 12345, 12345)
    with pytest.raises(ValueError, match="belongs to user 12345"):
        tg.load(tmp_path / "copy")


def test_what_cannot_be_saved_is_said(tmp_path) -> None:
    text = saving(tmp_path / "saved").replace("return x.sin() + 1", "return x.sin() + V.get()")
    text = text.replace("def f(", "import contextvars\nV = contextvars.ContextVar('V', default=1)\ndef f(", 1)
    outcome = run(text, tmp_path / "cache")
    assert any("an entry of `g` is not saved: a guard holds" in line for line in outcome.warned)
    assert list(tmp_path.glob("saved/f-*"))
