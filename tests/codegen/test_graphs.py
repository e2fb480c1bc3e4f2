"""Whole graphs, forward and backward, through lower, fuse, codegen and load; fusion, memory plan, texts."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.codegen.harness import Compiled, check

from torchglass.codegen.wrapper import HEADER
from torchglass.records.kernels import Allocate
from torchglass.records.launch import RESERVED
from torchglass.records.loops import View
from torchglass.runtime import toolchain
from torchglass.runtime.load import CtypesKernel, load


def make(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + len(shape)))


def with_gradients(fn: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """``fn`` followed by the gradients of the mean of its square."""

    def both(*args: torch.Tensor) -> Any:
        leaves = [a.detach().requires_grad_() if a.is_floating_point() else a for a in args]
        out = fn(*leaves)
        return (out, *torch.autograd.grad(out.square().mean(), [x for x in leaves if x.requires_grad]))

    both.trains = True  # type: ignore[attr-defined]
    return both


def mlp(x: torch.Tensor, w1: torch.Tensor, b1: torch.Tensor, w2: torch.Tensor, b2: torch.Tensor) -> torch.Tensor:
    return F.linear(F.gelu(F.linear(x, w1, b1)), w2, b2)


def attention(x: torch.Tensor, w: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    q, k, v = (t.view(2, 16, 4, 8).transpose(1, 2) for t in F.linear(x, w).chunk(3, -1))
    scores = q @ k.transpose(-1, -2) * 8**-0.5 + mask
    return (scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 16, 32)


def block(x: torch.Tensor, w: torch.Tensor, g: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x + F.silu(F.linear(x, w)), (32,), g, b)


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


GRAPHS: dict[str, tuple[Callable[..., torch.Tensor], list[torch.Tensor]]] = {
    "mlp": (mlp, [make(6, 32), make(64, 32), make(64), make(16, 64), make(16)]),
    "attention": (attention, [make(2, 16, 32), make(96, 32), make(2, 1, 1, 16)]),
    "block": (block, [make(2, 16, 32), make(32, 32), make(32), make(32)]),
    "rotary": (rotary, [make(2, 4, 16, 8), make(16, 8), make(16, 8)]),
    "norms": (lambda x, w: F.rms_norm(x, (32,), w, 1e-6).tanh(), [make(2, 16, 32), make(32)]),
    "loss": (lambda x, t: F.cross_entropy(x, t), [make(12, 10), torch.arange(12) % 10]),
    "convolution": (lambda x, w: F.relu(F.conv2d(x, w)), [make(2, 3, 8, 8), make(4, 3, 3, 3)]),
    "sdpa": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), [make(2, 4, 16, 8, seed=s) for s in range(3)]),
    "columns of few rows": (
        lambda x, y: x.view(50, 6, 40).mean(1) * (x * y).view(50, 3, 2, 40).amax((1, 2)) + y.view(50, 6, 40).prod(1),
        [make(300, 40), make(300, 40, seed=1)],
    ),
    "bags": (
        lambda table, ids, w: (F.embedding(ids, table) * w).sum(1) + F.embedding(ids, table).amax(1),
        [make(20, 40), torch.arange(60).view(20, 3) % 20, make(40)],
    ),
    "gather": (lambda x, i: x.gather(1, i).exp() * x[:, :20], [make(24, 40), torch.arange(480).view(24, 20) % 40]),
    "columns": (lambda x, y: x.mean(0) * y.sum(0) + (x * y).amax(0), [make(300, 40), make(300, 40, seed=1)]),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_forward_and_backward(name: str, tmp_path: Path) -> None:
    fn, args = GRAPHS[name]
    check(fn, args, tmp_path, tol=1e-5)
    (tmp_path / "b").mkdir()
    check(with_gradients(fn), args, tmp_path / "b", tol=2e-5)


def test_few_rows_are_added_in_registers_and_gathers_go_first(tmp_path: Path) -> None:
    for name, has, lacks in (("bags", "t2_2", "acc1["), ("gather", "got0[i1]", "acc1[")):
        (tmp_path / name).mkdir()
        fn, args = GRAPHS[name]
        kernels = "".join(k.source for k in check(fn, args, tmp_path / name, tol=1e-5).sources.kernels)
        assert has in kernels and lacks not in kernels, name


def test_short_rows_read_under_conditions(tmp_path: Path) -> None:
    def fn(kept: torch.Tensor, g: torch.Tensor, a: torch.Tensor, b: torch.Tensor, x: torch.Tensor) -> Any:
        joined = torch.cat([a, b])
        return joined * g, g * (kept / 0.5) + joined * x

    args = [make(4, 4) > 0, make(4, 4), make(2, 4), make(2, 4, seed=1), make(4, 4, seed=2)]
    check(fn, args, tmp_path, loops_only=True)


def test_user_names_that_a_wrapper_uses_itself(tmp_path: Path) -> None:
    def fn(args: torch.Tensor, torch: torch.Tensor, math: torch.Tensor) -> Any:
        empty = args.exp().sum(0)
        kernel_0 = empty @ torch
        call = kernel_0 * math
        device = call.cumsum(0)
        return empty, device.sin()

    compiled = check(fn, [make(4, 4), make(4, 4, seed=1), make(4)], tmp_path)
    imported = {name.asname or name.name for node in ast.walk(ast.parse(HEADER)) for name in getattr(node, "names", ())}
    assert imported <= RESERVED and not imported & set(compiled.fused.graph.buffers)


def test_reads_at_wide_steps_are_not_shuffled(tmp_path: Path) -> None:
    """GCC made 37,000 instructions of such a loop."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return (x[..., ::2, ::2] + x[..., 1::2, 1::2]).contiguous(memory_format=torch.channels_last)

    compiled = check(fn, [make(2, 16, 64, 64)], tmp_path, loops_only=True)
    assert "OPAQUE(step4096)" in compiled.sources.texts["c"]


def test_counters_become_floats_by_way_of_32_bits(tmp_path: Path) -> None:
    fn = lambda x: x * torch.arange(300, dtype=torch.float32) - torch.arange(4)[:, None]
    compiled = check(fn, [make(4, 300)], tmp_path, loops_only=True)
    assert "(float)(int32_t)t" in compiled.sources.texts["c"]


def test_a_softmax_is_one_kernel(tmp_path: Path) -> None:
    compiled = check(lambda x, m: torch.softmax(x * 0.5 + m, -1), [make(64, 128), make(128)], tmp_path, loops_only=True)
    (kernel,) = compiled.fused.kernels
    assert len(kernel.loops) > 3 and kernel.local >= {"_softmax_max", "_softmax_exp", "_softmax_share"}
    assert all(d.fused for d in compiled.fused.decisions) and sum(d.bytes_saved for d in compiled.fused.decisions) > 0


def test_layernorm_backward_is_one_kernel(tmp_path: Path) -> None:
    aten = torch.ops.aten

    def fn(g: torch.Tensor, x: torch.Tensor, m: torch.Tensor, r: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
        return aten.native_layer_norm_backward(g, x, [32], m, r, w, b, [True, True, True])

    args = [make(64, 32), make(64, 32, seed=1), make(64, 1), make(64, 1).abs() + 0.5, make(32), make(32)]
    compiled = check(fn, args, tmp_path, loops_only=True, tol=1e-4)
    assert len(compiled.fused.kernels) == 1


def test_matmuls_bound_what_can_fuse(tmp_path: Path) -> None:
    compiled = Compiled(lambda x, w: (x * 2) @ w + x, [make(8, 8), make(8, 8)], tmp_path)
    assert len(compiled.fused.kernels) == 2
    assert any(not d.fused and "lies between" in d.why for d in compiled.fused.decisions)


def test_equal_layers_share_kernels(tmp_path: Path) -> None:
    def layers(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        for w in weights:
            x = F.gelu(x @ w)
        return x

    compiled = check(layers, [make(8, 16), *(make(16, 16, seed=s) for s in range(6))], tmp_path, tol=1e-4)
    assert len(compiled.fused.kernels) == 6 and len(compiled.sources.kernels) == 1
    assert compiled.sources.kernels[0].calls == 6


def test_memory_is_reused_and_never_an_output(tmp_path: Path) -> None:
    def layers(x: torch.Tensor, *weights: torch.Tensor) -> Any:
        kept = []
        for w in weights:
            x = F.relu(x @ w)
            kept.append(x.sum(0))
        return (x, *kept)

    compiled = check(layers, [make(64, 16), *(make(16, 16, seed=s) for s in range(6))], tmp_path, tol=1e-4)
    reused = {s.reuse for s in compiled.fused.steps if isinstance(s, Allocate) and s.reuse}
    assert reused and not reused & {o.buffer for o in compiled.graph.outputs if isinstance(o, View)}


def test_outputs_may_repeat_inputs_and_views(tmp_path: Path) -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x * 2
        return x, y, y, y[1:], y.t(), x.t()

    compiled = check(fn, [make(4, 5)], tmp_path)
    x = make(4, 5)
    out = compiled.call([x])
    assert out[0] is x and out[1].data_ptr() == out[2].data_ptr() and out[5].data_ptr() == x.data_ptr()


def test_what_a_call_returns_may_begin_inside_its_storage(tmp_path: Path) -> None:
    """``slice_scatter`` keeps the storage offset of what it copies; views of its result count from there."""

    def shifted(q: torch.Tensor, r: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores = torch.einsum("binh,tnh->bnit", q, r).reshape(2, 4, 18, 9)[:, :, 1:]
        scores = scores.reshape(2, 4, 9, 17)[..., :9]
        scores *= mask
        return scores

    compiled = check(shifted, [make(2, 9, 4, 8), make(18, 4, 8), make(9, 9)], tmp_path, tol=1e-4)
    assert any("slice_scatter" in e for e in compiled.externs)


def test_a_result_that_nobody_reads_is_not_compared(tmp_path: Path) -> None:
    compiled = check(lambda x: torch.topk(x, 3)[0] * 2, [make(5, 9)], tmp_path)
    assert compiled.externs and compiled.sources.wrapper_text.count("= ensure_layout(") == 1


def test_same_results_on_every_call(tmp_path: Path) -> None:
    fn, args = GRAPHS["block"]
    call = Compiled(with_gradients(fn), args, tmp_path).call
    first, second = call(list(args)), call(list(args))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert all(a.data_ptr() != b.data_ptr() for a, b in zip(first, second, strict=True))


def test_an_edited_kernel_runs(tmp_path: Path) -> None:
    Compiled(lambda x: x + 1.5, [make(4)], tmp_path)
    source = tmp_path / "forward_kernels.c"
    source.write_text(source.read_text().replace("1.5f", "2.5f"))
    (out,) = load(tmp_path / "forward_wrapper.py")([torch.zeros(4)])
    assert out.tolist() == [2.5] * 4


def test_the_wrapper_runs_alone(tmp_path: Path) -> None:
    fn, args = GRAPHS["attention"]
    Compiled(fn, args, tmp_path)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(tmp_path / "forward_wrapper.py")]
    result = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "result 0: torch.float32 [2, 16, 32]\n"


def test_kernels_bring_no_openmp_runtime_of_their_own(tmp_path: Path) -> None:
    """They share torch's; other libraries in the process (scikit-learn) may have brought one before."""
    text = "import sys; sys.path[:0] = {path}; import runpy; runpy.run_path({wrapper!r}, run_name='__main__'); "
    text += "print({{line.split()[-1] for line in open('/proc/self/maps') if 'libgomp' in line}})"
    Compiled(lambda x: (x * 2).sum(0), [make(4096, 64)], tmp_path)
    command = text.format(path=sys.path, wrapper=str(tmp_path / "forward_wrapper.py"))
    result = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert len(ast.literal_eval(result.stdout.splitlines()[-1])) == 1


def test_kernels_through_ctypes_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchglass.runtime import load as load_module

    monkeypatch.setattr(load_module, "_native", None)
    compiled = check(lambda x: x * 3, [make(4, 5)], tmp_path)
    assert isinstance(compiled.call.__globals__["kernel_0"], CtypesKernel)


def test_no_compiler_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toolchain.compiler.cache_clear()
    monkeypatch.setenv("CC", "/nowhere/cc")
    try:
        with pytest.raises(toolchain.ToolchainError, match=r"\$CC is '/nowhere/cc'"):
            toolchain.compiler()
        monkeypatch.delenv("CC")
        monkeypatch.setenv("PATH", "/nowhere")
        with pytest.raises(toolchain.ToolchainError, match="gcc and clang"):
            toolchain.compiler()
    finally:
        toolchain.compiler.cache_clear()


def test_broken_c_names_file_and_line(tmp_path: Path) -> None:
    source = tmp_path / "forward_kernels.c"
    source.write_text("void kernel_0_call(void** a) { oops; }\n")
    with pytest.raises(toolchain.ToolchainError, match=r"forward_kernels\.c:1"):
        toolchain.compile_c(source)


@pytest.mark.parametrize("policy, rows, shared", [
    (None, 32, False), (None, 512, True), ("passive", 512, False), ("PASSIVE", 4096, True), ("active", 512, True),
])  # fmt: skip
def test_sleeping_threads_are_woken_for_more(policy, rows, shared, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if policy is not None:  # how OpenMP's threads wait: by spinning when it says nothing
        monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    compiled = Compiled(lambda x: x + 1, [make(rows, 128)], tmp_path)
    assert ("#pragma omp parallel" in compiled.sources.kernels[0].source) == shared
