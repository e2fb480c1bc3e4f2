"""Triton's compiler in its own process, which needs no GPU, and what its machine code is called with."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from pathlib import Path

import pytest
import torch

from torchglass import _native
from torchglass.process import interrupts
from torchglass.runtime import triton_compiler
from torchglass.runtime.toolchain import ToolchainError
from torchglass.runtime.triton_kernels import Compiling
from torchglass.runtime.triton_worker import without_packed_adds

pytest.importorskip("triton")

TEXT = """import triton
import triton.language as tl


@triton.jit
def kernel_0(x_ptr, y_ptr, XBLOCK: tl.constexpr):
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i) * {factor})


CONFIGURATIONS = {{
    "kernel_0": {{"signature": "*fp32:16 *fp32:16", "grid": ["XBLOCK"], "XBLOCK": 128, "num_warps": 4}},
}}
"""


def test_no_two_halves_of_a_word_are_added_at_once() -> None:
    ptx = "mov.b32 %r5, -64160724;\nadd.s16x2 \t%r178, %r142, %r5;\nadd.s32 %r1, %r2, %r3;\n"
    mended = without_packed_adds(ptx)
    assert "16x2" not in mended and mended.count("add.s16 ") == 2 and "mov.b32 %r178, {a, b};" in mended
    assert without_packed_adds(mended) == mended


def compiling(folder: Path, factor: str = "2", kept: bool = True) -> Compiling:
    return Compiling(folder / "forward_kernels.py", TEXT.format(factor=factor), kept, 90)


def test_machine_code_is_kept_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = triton_compiler.compiled_so_far()
    assert isinstance(compiling(tmp_path).result()["kernel_0"], _native.CudaKernel)
    assert triton_compiler.compiled_so_far() == before + 1
    (file,) = tmp_path.glob("*.cubins")
    monkeypatch.setattr(triton_compiler, "helper", lambda: pytest.fail("it was compiled again"))
    assert compiling(tmp_path).result().keys() == {"kernel_0"} and triton_compiler.compiled_so_far() == before + 1
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(pytest.fail.Exception, match="again"):
        compiling(tmp_path)


LARGE = """import triton
import triton.language as tl


@triton.jit
def kernel_0(x_ptr, y_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    i0 = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    i1 = tl.arange(0, RBLOCK)[None, :]
    a = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    for start in tl.range(0, 64, 1, num_stages=4):
        a = a + tl.load(x_ptr + (i0 * 64 + start) * RBLOCK + i1)
    tl.store(y_ptr + i0, tl.sum(a, 1, keep_dims=True))


CONFIGURATIONS = {
    "kernel_0": {"signature": "*fp32:16 *fp32:16", "grid": ["XBLOCK"], "XBLOCK": 4, "RBLOCK": 1024, "num_warps": 4},
}
"""


@pytest.mark.parametrize(
    "room, takes",
    [(1 << 17, (4, 4)), (1 << 12, (4, 4)), (48, (2, 4)), (16, (1, 4)), (8, (1, 2)), (0, (1, 1))],
)
def test_a_kernel_that_is_too_large_is_made_smaller(room: int, takes: tuple[int, int], tmp_path: Path) -> None:
    """It has room for four blocks of 16 kilobytes, for what the warps tell one another, or not even for that."""
    made = Compiling(tmp_path / "forward_kernels.py", LARGE, True, 90, most_shared=room)
    assert made.result().keys() == {"kernel_0"}
    configuration = made._configurations["kernel_0"]
    assert (configuration["XBLOCK"], configuration["num_warps"]) == takes
    assert made._known is not None and made._known["kernel_0"][2] <= room
    assert bool(list(tmp_path.glob("*.cubins"))) == (room == 1 << 17)


def test_errors_say_what_triton_says(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"(?s)could not compile kernel_0 of .*wobble"):
        compiling(tmp_path, "tl.wobble(1)").result()
    assert not list(tmp_path.glob("*.cubins"))
    with pytest.raises(ToolchainError, match="has no table CONFIGURATIONS"):
        Compiling(tmp_path / "forward_kernels.py", "x = 1", False, 90)


def test_a_helper_that_is_killed_is_started_again(tmp_path: Path) -> None:
    asked = compiling(tmp_path, "3", kept=False)
    os.kill(triton_compiler.helper()._process.pid, signal.SIGKILL)
    assert asked.result().keys() == {"kernel_0"}


def test_questions_are_heard_while_answers_wait_to_be_read() -> None:
    text = "raise ValueError('no' * 50_000)"  # each of two answers is more than a pipe holds, and so is the text
    faulthandler.dump_traceback_later(60, exit=True)
    try:
        asked = [
            triton_compiler.Asked(name, text + "#" * size, ["kernel_0"], 90)
            for name, size in (("a.py", 0), ("b.py", 0), ("c.py", 1_000_000))
        ]
        for one in asked:
            with pytest.raises(ToolchainError, match="ValueError: nono"):
                one.result()
    finally:
        faulthandler.cancel_dump_traceback_later()


def test_asking_can_be_interrupted() -> None:
    def limit(number, frame):
        raise TimeoutError("too long")

    helper, before = triton_compiler.helper(), signal.signal(signal.SIGUSR1, limit)
    os.kill(helper._process.pid, signal.SIGSTOP)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        with pytest.raises(TimeoutError, match="too long"):
            interrupts.whole(lambda: helper.ask("a.py", "#" * 1_000_000, ["kernel_0"], 90))
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert not helper.runs and triton_compiler.helper() is not helper


def test_arguments(tmp_path: Path) -> None:
    kernel = compiling(tmp_path).result()["kernel_0"]
    x = torch.zeros(128)
    for args, points, message in (
        ((x, x), 128, "argument 0 is on cpu, not on a GPU"),
        ((x,), 128, "takes 2 tensors, 0 ints"),
        ((1, x), 128, "argument 0 must be a Tensor, not int"),
    ):
        with pytest.raises(TypeError, match=message):
            kernel(*args, points=points)
    with pytest.raises(TypeError, match="takes 2 tensors"):
        kernel(x, x, blocks=3)  # type: ignore[call-arg]
    assert (kernel.__name__, kernel.registers) == ("kernel_0", None)


@pytest.mark.parametrize("signature", ["i32 *fp32", "*fp32 fp32", "*fp32 " * 200])
def test_signatures(signature: str) -> None:
    with pytest.raises(ValueError, match="kernel k: "):
        _native.CudaKernel(b"", "k", "k", signature, (1,), 4, 0)
