"""Operations on tensors: shapes, indexing, arithmetic, dtypes, comparisons."""

# ruff: noqa: E741
from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import nn

from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


@whole
def shapes(x):
    b, c = x.shape
    y = x.view(-1).reshape(c, b)
    return y.permute(1, 0), x.size(0) * x.size(-1), x.dim(), x.numel(), y.t().shape == x.shape, list(x.shape), x.ndim


@whole
def indexing(x):
    idx = torch.tensor([0, 2])
    y = x[idx]
    z = x[:, 1:3]
    w = x[..., None]
    v = x[0, -1]
    u = x[[0, 1]]
    return y, z, w, v, u, x[None].shape, x[::2]


@whole
def in_place(x):
    y = x.clone()
    y += 1
    y.mul_(2)
    y[0] = 0
    y[:, 1] += 5
    z = torch.zeros(3, 4)
    z.copy_(y)
    return y, z


@whole
def creation(x):
    a = torch.arange(4, dtype=x.dtype)
    b = torch.ones_like(x) * torch.full((3, 1), 2.0)
    c = torch.zeros(x.shape, device=x.device)
    d = torch.eye(3) @ x
    e = x.new_zeros(2)
    f = torch.tensor(3.5) * x
    return x + a + b + c, d, e, f, torch.linspace(0, 1, 5)


@whole
def several_results(x):
    values, indices = x.max(dim=1)
    top = torch.topk(x, 2)
    a, b = torch.chunk(x, 2, dim=1)
    c = x.sort(dim=-1)
    return values, indices, top.values, top[1], a, b, c.indices, torch.split(x, [1, 2])


@whole
def functional(x):
    y = F.gelu(F.layer_norm(x, (4,)))
    z = F.softmax(x, dim=-1) @ F.normalize(x).T
    w = F.pad(x, (1, 1))
    return y, z, w, F.one_hot(torch.tensor([0, 2]), 3), F.mse_loss(x, y), F.dropout(x, 0.5, training=False)


@whole
def dtypes(x):
    y = x.to(torch.float64).half().float()
    return (
        y,
        x.dtype == torch.float32,
        x.to(torch.int64),
        torch.finfo(x.dtype).min,
        x.dtype.is_floating_point,
        x.type_as(y),
    )


@whole
def comparisons(x):
    mask = (x > 0) & (x < 1) | (x == 0.5)
    return torch.where(mask, x, -x), x.masked_fill(mask, 0.0), ~mask, x is x, x is not None


@whole
def python_scalars(x):
    return 2**x, 1 - x, 3 / (x + 10), x // 1, x % 2, -x, abs(x), +x, x**2, round(1.5)


@whole
def einsum_and_cat(x):
    return torch.einsum("ij,kj->ik", x, x), torch.cat([x, x], dim=1), torch.stack([x, x * 2]), torch.matmul(x, x.T)


@whole
def sizes_added(x):
    return (2,) + x.shape, x.shape + (1,), x.shape[:1] * 2, list[int], [1] * 2


@program
def complex_numbers():
    def f(x):
        z = torch.complex(x, x * 2)
        w = torch.fft.fft(z) * (1 + 2j)
        return w.real, w.imag, w.abs(), w.conj().angle(), torch.view_as_real(w), torch.fft.ifft(w)

    return f, [(rand(4),), (rand(4, seed=1),)]


@program
def einops_like():
    @functools.lru_cache
    def parse(pattern):
        left, right = (side.split() for side in pattern.split("->"))
        return [left.index(r) for r in right]

    def rearrange(x, pattern):
        return x.permute(parse(pattern)).contiguous()

    return lambda x: (rearrange(x, "b c h -> h b c"), rearrange(x, "b c h -> b h c")), [(rand(2, 3, 4),)] * 2


@program
def pytree():
    def f(x):
        tree = {"a": [x, x + 1], "b": (x * 2, {"c": x - 1})}
        leaves, spec = torch.utils._pytree.tree_flatten(tree)
        doubled = torch.utils._pytree.tree_map(lambda t: t * 2, tree)
        return leaves, torch.utils._pytree.tree_unflatten([l + 1 for l in leaves], spec), doubled

    return f, [(rand(2),), (rand(2, seed=1),)]


@program
def in_place_on_views():
    def f(x):
        y = x.clone()
        v = y.view(-1)[::2]
        v.mul_(10)
        y[0] += 1
        y[:, 1] = -1
        w = y.t()
        w[0, 0] = 5
        return y, v, w

    return f, [(rand(3, 2),), (rand(3, 2, seed=1),)]


@program
def inputs_written():
    def f(x, table):
        x.add_(1)
        table["n"] = table.get("n", 0) + 1
        table.setdefault("seen", []).append(x.sum())
        x[0] = 0
        return x, table["n"]

    return f, [(rand(3), {}), (rand(3, seed=1), {"n": 5})]


@program
def scalar_tensors_as_numbers():
    def f(x, n):
        k = n.item()
        y = x[: int(n)] if n > 1 else x
        return y * k, range(int(n)), [0] * int(n), float(n) / 2

    return f, [(rand(4), torch.tensor(2)), (rand(4), torch.tensor(3)), (rand(4), torch.tensor(0))]


@program
def out_arguments():
    def f(x, buf):
        torch.add(x, 1, out=buf)
        y = torch.empty_like(x)
        torch.mul(x, 2, out=y)
        return buf, y

    return f, [(rand(2), torch.zeros(2)), (rand(2, seed=1), torch.zeros(2))]


@program
def advanced_indexing():
    def f(x, i, m):
        y = x.clone()
        y[i, :2] = 0
        y[..., -1] += 5
        y[m] = -1
        return (
            y,
            x[:, None, i],
            x[m].shape,
            x[i][:, [0, 2]],
            y.index_select(0, i),
            x.gather(0, i[None, :].expand(1, 3)[:, :3] * 0),
        )

    return f, [(rand(3, 4), torch.tensor([0, 2, 1]), torch.tensor([True, False, True]))] * 2


@program
def dtype_and_device_logic():
    def f(x):
        if x.dtype == torch.float32 and x.device.type == "cpu" and not x.is_cuda:
            x = x.to(torch.float64)
        info = torch.finfo(x.dtype)
        return (
            x.clamp(min=info.min / 2),
            x.element_size(),
            torch.promote_types(x.dtype, torch.int8),
            x.type(torch.int32),
            str(x.dtype),
        )

    return f, [(rand(2),), (rand(2).double(),), (rand(2).half(),)]


@program
def losses_zoo():
    def f(x, t):
        return (
            F.cross_entropy(x, t),
            F.nll_loss(x.log_softmax(-1), t),
            F.binary_cross_entropy_with_logits(x, x.sigmoid()),
            F.smooth_l1_loss(x, x * 2),
            F.kl_div(x.log_softmax(-1), x.softmax(-1), reduction="batchmean"),
            F.cosine_embedding_loss(x, x + 1, torch.ones(len(x))),
            F.triplet_margin_loss(x, x + 1, x - 1),
            nn.CrossEntropyLoss(label_smoothing=0.1)(x, t),
            F.huber_loss(x, x * 3),
            F.gaussian_nll_loss(x, x * 2, x.exp()),
        )

    return f, [(rand(3, 4), torch.tensor([0, 3, 1]))] * 2


@program
def ctc_and_adaptive():
    def f(x):
        lp = x.log_softmax(-1)
        return F.ctc_loss(lp, torch.tensor([[1, 2]]), torch.tensor([4]), torch.tensor([2])), F.adaptive_avg_pool1d(
            x.permute(1, 2, 0), 2
        )

    return f, [(rand(4, 1, 3),)] * 2
