"""``tg.compile`` end to end on CUDA tensors: results, gradients, layouts and writes are eager's, by Triton."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.gpu.compiled import DEVICE, alike, check, generated, make, needs_gpu, train
from torch import nn

import torchglass as tg

pytestmark = needs_gpu


# -- kernels ---------------------------------------------------------------------------------------------------------
PROGRAMS = {
    "pointwise": (lambda a, b: torch.sin(a) * torch.exp(-b * b) + a / (b.abs() + 1), [(33, 65)] * 2),
    "broadcast": (lambda a, b: (a + b).relu() * b, [(33, 65), (65,)]),
    "softmax": (lambda x: torch.softmax(x, -1), [(64, 100)]),
    "log_softmax": (lambda x: F.log_softmax(x * 2, -1), [(64, 1000)]),
    "layernorm": (lambda x, w, b: F.layer_norm(x, (96,), w, b), [(64, 96), (96,), (96,)]),
    "rmsnorm": (lambda x, w: F.rms_norm(x, (96,), w, 1e-6), [(64, 96), (96,)]),
    "sums": (lambda x: (x.sum(0), x.mean(1), x.amax(), x.square().sum()), [(40, 70)]),
    "columns": (lambda x, w: ((x * w).sum(0), x * w), [(500, 24), (24,)]),
    "product": (lambda a, b: F.gelu(a @ b), [(48, 32), (32, 56)]),
    "transposed": (lambda a, b: a.t() * 2 + b, [(40, 30), (30, 40)]),
    "concatenated": (lambda a, b: torch.cat((a.relu(), b * 3), 1), [(16, 20), (16, 12)]),
    "embedded": (lambda table: F.embedding(torch.arange(12, device=table.device) % 5, table) * 2, [(5, 16)]),
}


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, training: bool) -> None:
    fn, shapes = PROGRAMS[name]
    args = [make(*shape, seed=k, grad=training) for k, shape in enumerate(shapes)]
    check(fn, *args, tol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_floating_dtypes(dtype: torch.dtype) -> None:
    x, w = make(32, 48, dtype=dtype, grad=True), make(48, dtype=dtype, seed=1, grad=True)
    tol = 1e-9 if dtype == torch.float64 else 3e-2
    check(lambda x, w: F.gelu(F.layer_norm(x, (48,), w) * 2), x, w, tol=tol)


def test_integers_and_bools() -> None:
    i = torch.arange(-20, 20, device=DEVICE).view(8, 5)
    check(
        lambda i: (i * 3 // 2, i % 7, i > 3, (i > 3) & (i < 9), i.sum(), i.to(torch.float64) / 3, -i.to(torch.int8)), i
    )
    check(lambda b, i: (torch.where(b, i, -i), b.any(1), b.sum(), ~b), i > 2, i)


def test_special_values() -> None:
    x = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e-40, 3.0], device=DEVICE)
    check(lambda x: (x.exp(), x.sqrt(), x.relu(), x.clamp(-1, 1), x / 0, torch.maximum(x, x.flip(0)), x.sign()), x)


def test_smallest_numbers() -> None:
    """Eager takes none of them for 0, and rounds a sum with a multiple once."""
    x = torch.tensor([1e-45, -1e-45, 3e-41, -6e-39, 1.0, 3e38, -0.0], device=DEVICE)
    check(lambda x: (x.floor(), x.ceil(), x % 1, torch.fmod(x, x.flip(0)), x.rsqrt(), torch.nextafter(x, -x)), x, tol=0)
    check(lambda x: (torch.add(-x, x, alpha=2), torch.rsub(x, x, alpha=3), torch.lerp(x, -x, 0.7)), x, tol=0)
    check(lambda x: (x.half(), x.bfloat16()), torch.tensor([65519.999999999, 1.00390625000001], device=DEVICE).double())


# -- models ----------------------------------------------------------------------------------------------------------
def mlp(width: int = 32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, width)).to(DEVICE)


def test_a_small_network_in_training() -> None:
    x = make(48, 32)
    train(mlp(), lambda call: call(x).square().mean(), tol=1e-4)


class Block(nn.Module):
    """A transformer's block around PyTorch's attention."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.norm, self.norm_2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None, causal: bool) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["whole", "causal", "bool mask", "mask added"])
def test_a_transformer_block(kind: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model, x = Block().to(DEVICE, dtype), make(2, 24, 64, dtype=dtype)
    mask = None
    if "mask" in kind:
        mask = make(2, 1, 24, 24, seed=1) > -1
        mask = mask if kind == "bool mask" else torch.zeros(mask.shape, device=DEVICE).masked_fill(~mask, -30).to(dtype)
    tol = 1e-4 if dtype == torch.float32 else 5e-2
    train(model, lambda call: call(x, mask, kind == "causal").float().square().mean(), tol=tol)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels last"])
def test_a_convolutional_network_in_training(layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    parts = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 1)]
    model = nn.Sequential(*parts).to(DEVICE, memory_format=layout)
    x = make(4, 3, 16, 16).to(memory_format=layout)
    train(model, lambda call: call(x).square().mean(), tol=2e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_with_a_gradient_scaler(dtype: torch.dtype) -> None:
    x, results = make(48, 32), []
    for compiles in (False, True):
        tg.reset()
        model = mlp()
        call = tg.compile(model) if compiles else model
        optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler(DEVICE)
        for _ in range(3):
            with torch.autocast(DEVICE, dtype=dtype):
                out = call(x)
                loss = (out - x).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        assert out.dtype == dtype
        results.append([p.detach() for p in model.parameters()])
    generated(call)
    alike(*results, tol=1e-2)


@pytest.mark.parametrize("size", [(64, 64), (7, 13)], ids=str)
def test_dropout_draws_what_eager_draws(size: tuple[int, int]) -> None:
    check(lambda x: F.dropout(x * 2 + 1, 0.3), make(*size, grad=True), kernels=False)
    check(lambda x: torch.rand_like(x) * 2 + x, make(*size), kernels=False)


# -- devices ---------------------------------------------------------------------------------------------------------
def test_a_scalar_on_the_cpu() -> None:
    two = torch.tensor(2.0)
    check(lambda x, two: (x * two + 1, torch.where(x > 0, x, two), two + 1), make(20, 30), two)
    check(lambda x, two: x * two, make(20, 30, grad=True), torch.tensor(2.0, requires_grad=True))


def test_a_graph_on_two_devices() -> None:
    there, here = make(20, 30), torch.randn(20, 30)
    check(lambda a, b: (a.sin() * 2, b.cos() + 1), there, here)
    check(lambda a, b: (a.sin() * 2 + (b * 3).to(a.device), a.cpu() + b), there, here)


def test_a_gradient_that_crosses_devices() -> None:
    there, here = make(20, 30, grad=True), torch.randn(20, 30, requires_grad=True)
    check(lambda a, b: (a.sin() + (b * b).to(a.device)).square(), there, here)


def test_copies_that_nobody_waits_for() -> None:
    here = torch.randn(1000, 100).pin_memory()

    def there_and_back(x: torch.Tensor) -> torch.Tensor:
        return (x.to(DEVICE, non_blocking=True) * 2).sin()

    check(there_and_back, here)
    compiled = tg.compile(lambda x: (x * 2).to("cpu", non_blocking=True))
    x = make(1000, 100)
    got = compiled(x)
    torch.cuda.synchronize()
    alike((x * 2).cpu(), got)


# -- memory ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_pointers_off_by_one_element(dtype: torch.dtype) -> None:
    flat = (make(1 + 64 * 128) * 10).to(dtype)
    fn = lambda x, y: (x * 2 + y, x - y)
    compiled = tg.compile(fn, fullgraph=True)
    even, odd = flat[:-1].view(64, 128), flat[1:].view(64, 128)
    for x, y in ((even, even), (odd, even), (even, odd), (odd, odd), (even, even)):
        alike(fn(x, y), compiled(x, y))
    generated(compiled)


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (3, 0, 4)], ids=str)
def test_no_elements(shape: tuple[int, ...]) -> None:
    check(lambda x: (x * 2 + 1, x.sum(0), x.sum(), torch.softmax(x, -1)), make(*shape), kernels=False)


def test_writes_to_inputs() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        x[0].mul_(y[0])
        y[:, 1:3] = 7
        return (x * y).sum(1)

    compiled = tg.compile(fn, fullgraph=True)
    for seed in (0, 1):
        sides = [(make(20, 30, seed=seed), make(20, 30, seed=seed + 5)) for _ in "ab"]
        alike(fn(*sides[0]), compiled(*sides[1]), 1e-5)
        alike(sides[0], sides[1])
    generated(compiled)


def test_views_as_outputs() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        return y, y[1:], y.t(), y.view(-1)[3:], x[2:], x.t()

    x = make(20, 30)
    y, below, turned, flat, part, whole = check(fn, x)(x)
    assert {t.untyped_storage().data_ptr() for t in (below, turned, flat)} == {y.untyped_storage().data_ptr()}
    assert {t.untyped_storage().data_ptr() for t in (part, whole)} == {x.untyped_storage().data_ptr()}


def test_strided_inputs() -> None:
    x = make(40, 60)
    check(lambda x: torch.softmax(x * 2, -1), x[::2, ::3])
    check(lambda x, y: x * 2 + y, x[:30, :30].t(), x[10:, :30].expand(30, 30))


def test_sizes_that_change() -> None:
    fn = lambda x: torch.softmax(x * 2, -1).sum(0)
    compiled = tg.compile(fn)
    for rows, columns in ((4, 16), (5, 16), (9, 33), (129, 1025), (1, 1)):
        x = make(rows, columns)
        alike(fn(x), compiled(x), 1e-4)
    generated(compiled)


def test_a_graph_break_between_kernels() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x.sin() * 2
        return y.cos() + 1 if y.sum().item() > 0 else y.exp() - 1

    compiled = tg.compile(fn)
    for x in (make(20, 30).abs(), -make(20, 30).abs()):
        alike(fn(x), compiled(x))
    generated(compiled)


def test_accumulated_gradients() -> None:
    model, batches = mlp(), [make(16, 32, seed=k) for k in range(4)]
    sums = []
    for call in (model, tg.compile(model, fullgraph=True)):
        model.zero_grad(set_to_none=True)
        for batch in batches:
            call(batch).square().mean().backward()
        sums.append([p.grad.clone() for p in model.parameters()])
    alike(*sums, 1e-4)
