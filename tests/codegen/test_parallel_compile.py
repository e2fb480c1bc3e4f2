"""Kernels files that several compilers share: the same functions, the same numbers, the same errors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import torchglass as tg
from torchglass.runtime import parallel_compile, store, toolchain
from torchglass.runtime.load import kernels

PRELUDE = """
#include <stdint.h>
int64_t tg_failed[4];
static __attribute__((noinline, cold)) void tg_fail(int64_t index) { tg_failed[1] = index; tg_failed[0] = 1; }
"""
KERNEL = """
static void kernel_{n}(const float* restrict x, float* restrict y)
{{
    for (int64_t i = 0; i < 8; ++i) y[i] = x[i] * {n}.5f + 0.1f;
    if (x[0] == {n}.0f) tg_fail({n});
}}
void kernel_{n}_call(void** a) {{ kernel_{n}(a[0], a[1]); }}
"""
GCC = pytest.mark.skipif(not toolchain.splits(), reason="only GCC leaves functions out of a file")


def written(folder: Path, text: str) -> Path:
    folder.mkdir()
    source = folder / "some kernels.c"
    source.write_text(text)
    return source


def test_parts_are_about_equal() -> None:
    text = PRELUDE + "".join(KERNEL.format(n=n) for n in range(100))
    found = parallel_compile.of(text, 2)
    assert [part.count("_call(") for part in found] == [50, 50]
    assert all(part.startswith("extern") for part in found)
    assert (
        parallel_compile.of(text, 1) == []
        and parallel_compile.of(KERNEL.format(n=0), 8) == []
        and parallel_compile.of("", 8) == []
    )
    assert len(parallel_compile.of(text, 8)) == text.count("\n") // parallel_compile.LINES


@GCC
def test_parts_make_one_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_compile, "LINES", 5)
    text = PRELUDE + "".join(KERNEL.format(n=n) for n in range(7))
    names = [f"kernel_{n}" for n in range(7)]
    x = torch.arange(3, 11).float()
    results = []
    for count in (1, 3):
        source = written(tmp_path / str(count), text)
        assert len(parallel_compile.of(text, count)) == (count if count > 1 else 0)
        toolchain.compile_c(source, count)
        assert len(list(source.parent.iterdir())) == 2  # nothing but the library is left
        *functions, failed = kernels(source, names, failures=True)
        for function in functions:
            results.append(y := torch.empty(8))
            function(x, y)
        assert list(failed)[:2] == [1, 3]  # left by kernel_3, whichever part it is in
    assert all(torch.equal(a, b) for a, b in zip(results[:7], results[7:]))


@GCC
def test_a_part_that_fails_is_told_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_compile, "LINES", 5)
    text = PRELUDE + "".join(KERNEL.format(n=n) for n in range(4)) + "static void broken(void) { oops; }\n"
    source = written(tmp_path / "broken", text)
    with pytest.raises(toolchain.ToolchainError, match=r"some kernels\.c:\d+"):
        toolchain.compile_c(source, 2)
    assert [path.name for path in source.parent.iterdir()] == [source.name]


def test_files_that_a_person_edited_are_compiled_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What kernels share there may be anything."""
    monkeypatch.setattr(parallel_compile, "LINES", 1)
    monkeypatch.setattr(parallel_compile, "most", lambda: 2)
    monkeypatch.setattr(store, "_by_root", {})
    seen = []
    compiled = parallel_compile.compiled

    def noted(command: list[str], drivers: list[str], *rest: Path) -> list[str]:
        seen.append(len(drivers))
        return compiled(command, drivers, *rest)

    monkeypatch.setattr(parallel_compile, "compiled", noted)
    # two kernels, of different sizes, that a product keeps apart
    function = lambda x, w: ((x.sin() @ w).cos() * 2 @ w).relu()
    torch.manual_seed(0)
    x, w = torch.randn(5, 4), torch.randn(4, 4)
    for turn in range(2):
        store._by_root.clear()  # as another run of the program
        seen.clear()
        with tg.prepare_debug(tmp_path / "glass"):
            torch.testing.assert_close(tg.compile(function)(x, w), function(x, w), rtol=1e-5, atol=1e-5)
        (source,) = (tmp_path / "glass").rglob("forward_kernels.c")
        assert seen == ([2] if turn == 0 and toolchain.splits() else [0])
        source.write_text(source.read_text() + "static int shared;\n")
