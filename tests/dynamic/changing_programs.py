"""Programs whose tensors have other sizes from call to call: each a function of tensors, and how to make these.

The first letters of an input's sizes are those that change: ``"bt16"`` is [b, t, 16].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class Program:
    """``inputs``: a tensor's sizes, as numbers and the letters b and t, and "int" for one of whole numbers below 8."""

    function: Callable[..., Any]
    inputs: tuple[tuple[Any, ...], ...]
    trains: bool = True
    most_entries: int = 2

    def made(self, b: int, t: int, seed: int = 0) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        known = {"b": b, "t": t}
        made = []
        for sizes in self.inputs:
            shape = [known.get(size, size) for size in sizes if size != "int"]
            if "int" in sizes:
                made.append(torch.randint(0, 8, shape, generator=generator))
            else:
                made.append(torch.randn(shape, generator=generator))
        return made


PROGRAMS: dict[str, Program] = {}


def program(*inputs: tuple[Any, ...], trains: bool = True, most_entries: int = 2) -> Callable[[Any], Any]:
    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        assert function.__name__ not in PROGRAMS
        PROGRAMS[function.__name__] = Program(function, inputs, trains, most_entries)
        return function

    return enter


X = ("b", "t", 16)
W = (16, 16)


# --- element by element, broadcasting ---------------------------------------------------------------------------------
@program(X, X)
def pointwise(x, y):
    return torch.tanh(x) * y + x.exp().clamp(max=3)


@program(X, ("t", 16), (16,))
def broadcast(x, y, z):
    return x * y + z


@program(X, ("b", 1, 16))
def broadcast_in_the_middle(x, y):
    return (x - y).relu()


@program(X)
def scaled_by_sizes(x):
    return x / x.shape[1] + x.size(0) * x.numel()


@program(X)
def halves(x):
    return x.to(torch.bfloat16) * 2 + 1


# --- views and copies ---------------------------------------------------------------------------------------------
@program(X)
def flattened(x):
    return x.view(-1, 16).relu().view(x.shape[0], -1)


@program(X)
def turned(x):
    b, t, _ = x.shape
    return x.view(b, t, 4, 4).transpose(1, 2).reshape(b * 4, t, 4) + 1


@program(X)
def permuted_and_back(x):
    return x.permute(2, 0, 1).contiguous().permute(1, 2, 0) * 2


@program(X)
def sliced(x):
    return x[:, 1:] - x[:, :-1]


@program(X)
def last_and_first(x):
    return x[:, -1] + x[:, 0], x[..., ::2]


@program(X)
def stepped(x):
    return x[:, ::2].sum(1)


@program(X)
def joined(x):
    return torch.cat([x, x.flip(1), x[:, :2]], dim=1), torch.stack([x, x])


@program(X)
def in_pieces(x):
    one, two = x.chunk(2, dim=-1)
    three, four, five = x.split([4, 4, 8], dim=-1)
    return one * two.sigmoid(), three + four, five


@program(X)
def in_windows(x):
    b, t, c = x.shape
    windows = F.pad(x, (0, 0, 0, (4 - t % 4) % 4)).view(b, -1, 4, c)
    return windows.softmax(2).view(b, -1, c)[:, :t], windows.transpose(1, 2).reshape(-1, windows.shape[1], c)


@program(X)
def repeated(x):
    return x.repeat(1, 2, 1), x.unsqueeze(1).expand(-1, 3, -1, -1).reshape(-1, 16)


@program(X)
def padded(x):
    return F.pad(x, (1, 2, 0, 0, 0, 0)), F.pad(x, (0, 0, 2, 1))


@program(X)
def views_are_returned(x):
    y = x * 2
    return y, y[0], y.transpose(0, 1), y.view(-1)


@program(X)
def views_of_inputs(x):
    return x.view(-1, 16), x[:, 0], x.transpose(0, 1)


@program(X, trains=False)
def written_in_place(x):
    y = x.clone()
    y[:, 0] = 1
    y.mul_(2)
    y[:, -1, :4] += 3
    return y


@program(X, trains=False)
def written_by_overloads_of_other_names(x):
    """``pow_.Scalar`` and ``pow.Tensor_Scalar``."""
    y = x.abs() + 1
    powers = y.clone().pow_(-0.5), y.clone().pow_(y), y.double().float_power_(0.5), y.double().float_power_(y)
    return *powers, y.clone().floor_divide_(y[..., :1]), y.clone().ldexp_(x.sign())


@program(X)
def written_to_in_steps(x):
    y = x * 3
    y *= 2
    y += torch.ones(x.shape[1], 16)
    z = x.new_empty(*x.shape[:-1], 20)
    z[..., :16].copy_(x)
    z[..., 16:].copy_(x[..., :4])
    return y, z


@program(X)
def rolled_by_a_size(x):
    return x.roll(x.shape[1] // 3, -1) + torch.arange(16.0).roll(x.shape[0], 0)


@program(X, trains=False)
def writes_half_of_its_input(x):
    half = torch.chunk(x, 2, 1)[0]
    half[0] = 7
    half.select(-1, 1).mul_(2)
    return half + 1


@program(X, trains=False)
def writes_its_input(x):
    x.add_(1)
    return x * 2


@program(X)
def rolled(x):
    return x.roll(1, 1) + x.roll(-1, 0)


# --- reductions -----------------------------------------------------------------------------------------------------
@program(X)
def sums(x):
    return x.sum(), x.sum(0), x.sum(1), x.sum((0, 1)), x.sum(-1, keepdim=True)


@program(X)
def means(x):
    return x.mean(), x.mean(0), x.mean(1), x.mean((0, 1)), x.mean(-1)


@program(X, most_entries=7)  # the gradient divides by a float of the size
def spreads(x):
    return x.var(1, unbiased=False), x.std(-1), x.norm(dim=1)


@program(X)
def largest(x):
    return x.amax(1), x.max(), x.min(1).values, x.logsumexp(1)


@program(X, trains=False)
def places(x):
    return x.argmax(1), x.argmin(-1), (x > 0).any(1), (x > 5).all(), (x > 0).sum()


@program(X)
def softmax_of_rows(x):
    return F.softmax(x, 1), F.log_softmax(x, -1), F.softmax(x.transpose(1, 2), -1)


@program(X)
def running_sums(x):
    return x.cumsum(1), x.cumsum(0)


@program(X, (16,), (16,))
def layer_norm(x, w, b):
    return F.layer_norm(x, (16,), w, b)


@program(("b", 8, "t"), (8,), (8,))
def group_norm(x, w, b):
    return F.group_norm(x, 2, w, b)


@program(("b", 8, "t"), (8,), (8,))
def batch_norm(x, w, b):
    return F.batch_norm(x, None, None, w, b, training=True)


@program(X, (16,))
def rms_norm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


@program(X, most_entries=7)
def centered(x):
    return (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1)


# --- products -------------------------------------------------------------------------------------------------------
@program(X, W, (16,))
def linear(x, w, b):
    return F.gelu(F.linear(x, w, b))


@program(X, ("t", 8))
def contracted(x, y):
    return x.transpose(1, 2) @ y


@program(X)
def gram(x):
    return x @ x.transpose(1, 2), torch.einsum("btc,bsc->bts", x, x)


@program(X, W, W, W)
def attention(x, q, k, v):
    b, t, c = x.shape
    heads = [(x @ w).view(b, t, 4, 4).transpose(1, 2) for w in (q, k, v)]
    return F.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(b, t, c)


@program(X, W, W, W)
def causal_attention(x, q, k, v):
    b, t, c = x.shape
    heads = [(x @ w).view(b, t, 4, 4).transpose(1, 2) for w in (q, k, v)]
    return F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).reshape(b, t, c)


@program(X, W)
def masked_attention(x, w):
    t = x.shape[1]
    scores = (x @ w) @ x.transpose(1, 2) / 4
    mask = torch.tril(torch.ones(t, t, dtype=torch.bool))
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ x


@program(X, (48, 16), (16, 16))
def packed_attention(x, w, out):
    y = x.transpose(0, 1)
    none = torch.zeros(16)
    return F.multi_head_attention_forward(y, y, y, 16, 4, w, torch.zeros(48), None, None, False, 0.0, out, none)[0]


@program(X)
def biased_by_position(x):
    t = x.shape[1]
    bias = (x @ x.transpose(1, 2)).view(-1, t, t, 1).permute(0, 3, 1, 2)
    return torch.where(torch.ones(t, t, dtype=torch.bool).tril(), bias, -1e9).contiguous()


@program(X)
def shifted_by_position(x):
    b, t, _ = x.shape
    padded = F.pad(x @ x.transpose(1, 2), (1, 0))
    return padded.view(b, -1, t)[:, 1:].view(b, t, t)


@program(X, W)
def positions(x, w):
    place = torch.arange(x.shape[1], dtype=torch.float32)[:, None] * torch.arange(16) / 100
    return x @ w + place.sin()


@program(X, ("b", "t", "int"))
def relative_bias(x, i):
    t = x.shape[1]
    apart = torch.arange(t)[None] - torch.arange(t)[:, None]
    return x @ x.transpose(1, 2) + apart.clamp(-4, 4)


# --- images ---------------------------------------------------------------------------------------------------------
@program(("b", 3, "t", 8), (8, 3, 3, 3), (8,))
def convolution(x, w, b):
    return F.conv2d(x, w, b, padding=1).relu()


@program(("b", 3, "t", 8), (8, 3, 3, 3), (8, 8, 3, 3))
def two_convolutions(x, w, v):
    y = F.conv2d(x, w, padding=1).relu()
    return F.conv2d(y, v, stride=2, padding=1).mean((2, 3))


@program(("b", 4, "t"), (8, 4, 3))
def convolution_of_lines(x, w):
    return F.conv1d(x, w, padding=1).relu().amax(-1)


@program(("b", 3, 16, "t"))
def pools(x):
    return F.max_pool2d(x, 2), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 1)


@program(X)
def pooled_lines(x):
    return F.adaptive_avg_pool1d(x.transpose(1, 2), 1).flatten(1)


@program(("b", 3, 8, "t"))
def resized(x):
    twice = F.interpolate(x, scale_factor=2, mode="nearest")
    return twice, F.interpolate(x, scale_factor=(0.5, 1.5), mode="bilinear", recompute_scale_factor=True)


@program(("b", 3, "t"), ("b", "t"))
def results_apart(x, y):
    return x.sin(), y.exp() * 2, x * x


@program(("b", 3, 8, "t"))
def resized_to_sizes(x):
    smooth = F.interpolate(x, size=(x.shape[3], 12), mode="bicubic", align_corners=True)
    line = F.interpolate(x.amax(2), size=2 * x.shape[3] + 1, mode="linear")
    return smooth, line, F.interpolate(x, 5, mode="nearest-exact")


@program(("b", 3, "t", "t"), (8, 3, 2, 2))
def patches(x, w):
    y = F.conv2d(x, w, stride=2)
    return y.flatten(2).transpose(1, 2).relu(), y.permute(0, 2, 3, 1) * 2


@program(("b", 4, "t"), (4, 8, 4), (8,))
def transposed_convolution(x, w, b):
    return F.conv_transpose1d(x, w, b, stride=2, padding=1).view(x.shape[0], -1).relu()


@program(("b", 3, "t", 8), (3,), (3,), trains=False)
def batch_norm_of_known_spread(x, mean, bias):
    return F.batch_norm(x, mean, torch.ones(3), bias=bias)


@program(("b", 3, "t", 8), (3,), (3,))
def batch_norm_of_images(x, w, bias):
    return F.batch_norm(x, torch.zeros(3), torch.ones(3), w, bias, training=True)


# --- places in tensors --------------------------------------------------------------------------------------------
@program(("b", "t", "int"), (8, 16))
def embedding(i, w):
    return F.embedding(i, w) * 2


@program(("b", "t", 8), ("b", "t", "int"))
def cross_entropy(x, i):
    return F.cross_entropy(x.view(-1, 8), i.view(-1)), F.cross_entropy(x.transpose(1, 2), i, reduction="none")


@program(X, ("b", "t", "int"))
def gathered(x, i):
    return x.gather(-1, i[..., None])


@program(X, ("b", "int"))
def rows_are_picked(x, i):
    return x[torch.arange(x.shape[0]), i % x.shape[1]]


@program(X)
def places_of_maxima(x):
    rows = torch.arange(x.shape[0])
    return x[rows, x.argmax(1)[:, 0]], x[rows[:, None], x.argmax(1)[:, :3]], x[:, None][rows, :, x.argmax(1)[:, 1]]


@program(X)
def mask_of_rows(x):
    mask = torch.ones(x.shape[:2], dtype=torch.bool)
    rows, columns = torch.arange(x.shape[0]), torch.arange(x.shape[1])
    return x * mask[rows[:, None, None], columns[None, :, None]]


@program(X, (3, "int"))
def columns_are_picked(x, i):
    return x[..., i], x.index_select(2, i)


@program(X, ("t", "int"))
def scattered(x, i):
    return torch.zeros(x.shape[0], 8, 16).index_add(1, i, x)


@program(X, trains=False)
def sorted_and_top(x):
    return x.sort(1).values, x.topk(2, dim=-1).values


@program(X, ("b", "t", "int"), trains=False)
def one_hots(x, i):
    return F.one_hot(i, 8).float() @ torch.ones(8, 3) + x[..., :3]


@program(X)
def chosen(x):
    return torch.where(x > 0, x, x.mean(1, keepdim=True))


# --- Python on sizes ------------------------------------------------------------------------------------------------
@program(X)
def branches(x):
    if x.shape[1] > 2:
        return x * 2
    return x * 3


@program(X)
def arithmetic(x):
    half = x.shape[1] // 2
    return x[:, :half].sum(1) - x[:, half:].sum(1), x.shape[1] % 2, x.shape[0] * 2 - 1


@program(X)
def sizes_are_returned(x):
    return x * 2, x.shape, x.size(1), tuple(x.stride()), len(x), x.numel()


@program(X)
def texts(x):
    return x + 1, f"{x.shape[0]} of {x.shape[1]:03d}"


@program(X)
def new_tensors(x):
    b, t, _ = x.shape
    return x + torch.zeros(b, t, 1) + x.new_ones(t, 1), torch.full((b,), 2.5), torch.eye(t)


@program(X)
def largest_of_sizes(x):
    n = max(x.shape[0], x.shape[1])
    return torch.ones(n) * x.sum(), min(x.shape)


# --- sizes that are computed, and equal ones ------------------------------------------------------------------------
@program(X)
def filled_up_to_windows(x):
    t = x.shape[1]
    x = F.pad(x, (0, 0, 0, (4 - t % 4) % 4))
    b, n, c = x.shape
    windows = x.view(b, n // 4, 4, c).transpose(2, 3).reshape(-1, 4, c).softmax(1)
    return windows.view(b, n // 4, 4, c).reshape(b, n, c)[:, :t]


@program(X)
def rounded_quotients(x):
    n, m = math.ceil(x.shape[1] / 2) * 2, int(x.shape[0] / 2)
    return F.pad(x, (0, 0, 0, n - x.shape[1])).reshape(x.shape[0], n // 2, 32).sum(1), x[:m]


@program(X)
def rounded_fractions(x):
    b, t = x.shape[:2]
    part = x[:, : math.ceil(t * 0.75) - t // 4], x[: round(b / 2) + 1], x[: math.trunc(b / 3) + 1]
    return *part, torch.ones(round(t / 4 + 1)), torch.ones(round(t / 3) + 1), torch.ones(math.floor(1.5 * t / 2))


@program(X)
def arithmetic_of_sizes(x):
    b, t = x.shape[:2]
    quotient, rest = divmod(t, 3)
    powers = torch.ones(b**2, 2), torch.ones(pow(b, 3)), torch.ones(abs(t - 40)), torch.ones(t << 1, (t & -4) + (t & 3))
    return (
        x[:, : quotient + rest],
        *powers,
        torch.ones(sum(x.shape)),
        torch.ones(max(b, t, 3) - min(b, t, 3) + (t >> 2)),
    )


@program(X)
def sizes_that_the_entry_computes(x):
    b, t = x.shape[:2]
    kept = x[:, : math.isqrt(t) + int(t * 0.7)], x[: int(b**0.5) + 1].cumsum(0), torch.ones(1 << (b % 4), t)
    first = int(math.log2(b + 1))
    return *kept, torch.ones(math.gcd(b, 6)) * first, x.new_zeros(first, 2), F.pad(x, (0, 0, 0, round(t * 1.1) - t + 1))


@program(X)
def places_computed_of_sizes(x):
    b, t = x.shape[:2]
    last = x[:, t - 1] + x[b // 2, None, t - 2, 1:].sum() + x[..., t // 2, 0].mean()
    return last, x[b - 1], x.select(1, t // 2), x.narrow(0, b - 1, 1), x.narrow(1, t - 3, 1), x[None, b - 1 :, t - 1]


@program(X, ("b", "t"))
def taken_along_dimensions(x, scores):
    order, largest = scores.detach().argsort(1), x.detach().argmax(1, keepdim=True)
    ranked = scores.take_along_dim(order - scores.shape[1], 1), x.take_along_dim(order[..., None], dim=1)
    return *ranked, torch.take_along_dim(x[:1], largest, 1), x.take_along_dim(torch.tensor([0, 3]))


@program(("t", "b", 16), ("b", "t", 4))
def equal_sizes_of_two(x, y):
    x = x.transpose(0, 1).reshape(-1, 16)
    b, t, _ = y.shape
    x = x.view(b, -1, 16) * y.mean(-1, keepdim=True)
    return x.reshape(b * t, 4, 4).sum(1).view(b, t, 4) + y


@program(X)
def in_rows_of_its_own(x):
    flat = x.reshape(-1, 16)
    rows = flat.view(x.shape[0], -1, 16)
    return rows.flatten(0, 1).view(x.shape[0], flat.shape[0] // x.shape[0], 2, 8).sum((1, 3)) + flat.sum()


@program(X)
def evenly_spaced(x):
    places = torch.linspace(-1, 1, x.shape[1])
    return x * places[:, None] + torch.linspace(2, 0, x.shape[0])[:, None, None]


@program(X)
def counted_from_halves(x):
    places = torch.arange(0.5, x.shape[1], dtype=x.dtype) / x.shape[1]
    return x * (2 * places - 1)[:, None] + torch.arange(1, 2 * x.shape[0], 2)[:, None, None]


@program(X)
def rotated_as_complex(x):
    angles = torch.arange(x.shape[1])[:, None] * torch.linspace(0, 1, 8)
    turned = torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * turned).flatten(2)


@program(X)
def sampled_from_a_grid(x):
    grid = x[..., :2].tanh()[:, None]
    return F.grid_sample(x[:, None], grid, align_corners=False), F.grid_sample(x[:, None], grid, align_corners=True)


@program(X)
def spread_of_all(x):
    return x.var(), x.std(1), torch.var_mean(x, (0, 1), correction=0)[0]


@program(X, ("b", "t"))
def attention_with_masks(x, bias):
    heads = x.view(*x.shape[:2], 4, 4).transpose(1, 2)
    seen = (bias > 0)[:, None, None] | torch.eye(x.shape[1], dtype=torch.bool)
    first = F.scaled_dot_product_attention(heads, heads, heads, attn_mask=bias[:, None, None].detach())
    second = F.scaled_dot_product_attention(first, heads, heads, attn_mask=seen, scale=0.5)
    return F.scaled_dot_product_attention(second, heads, heads, is_causal=True).transpose(1, 2).flatten(2)


@program(X, ("b", "t", 16))
def attention_to_another(x, memory):
    query, key = (one.unflatten(2, (4, 4)).transpose(1, 2) for one in (x, memory[:, 1:]))
    bias = memory.detach()[:1, 1:].mean(-1).expand(x.shape[1], -1)
    return F.scaled_dot_product_attention(query, key, key, attn_mask=bias).transpose(1, 2).reshape_as(x)


@program(X)
def resized_without_aliasing(x):
    size = x.shape[0] + 3, x.shape[1] * 2
    smooth = F.interpolate(x[:, None], size, mode="bicubic", antialias=True)
    return smooth, F.interpolate(x[:, None], size, mode="bilinear", antialias=True)


@program(("b", 4, 4), ("b", 4, "t"))
def solved_by_substitution(a, x):
    return torch.linalg.solve_triangular(a.tril(-1) + torch.eye(4), x, upper=False, unitriangular=True)


@program(X, most_entries=3)  # one more where a row of windows is one window
def windows_of_halved_images(x):
    halved = F.avg_pool2d(x.reshape(*x.shape[:2], 4, 4).permute(0, 2, 1, 3).repeat(1, 1, 1, 3), 2).permute(0, 2, 3, 1)
    b, h, w, _ = halved.shape
    padded = F.pad(halved, (0, 0, 0, (4 - w % 4) % 4, 0, (4 - h % 4) % 4))
    _, high, wide, _ = padded.shape
    windows = padded.view(b, high // 4, 4, wide // 4, 4, 4).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, 4)
    mixed = F.linear(windows @ windows.transpose(1, 2) @ windows, torch.ones(4, 4)).view(-1, 4, 4, 4)
    merged = mixed.view(b, high // 4, wide // 4, 4, 4, 4).permute(0, 1, 3, 2, 4, 5).reshape(b, high, wide, 4)
    return halved + F.linear(merged[:, :h, :w], torch.eye(4))


# --- what C++ takes numbers for ---------------------------------------------------------------------------------------
@program(X)
def filtered_by_frequencies(x):
    long = 2 * x.shape[1]
    smooth = torch.fft.irfft(torch.fft.rfft(x, n=long, dim=1) * 0.5, n=long, dim=1)[:, : x.shape[1]]
    return smooth, torch.fft.fftn(x, dim=(1, 2), norm="ortho").real, torch.fft.ifft(x, dim=1).abs()


@program(X)
def largest_of_neighbours(x):
    steps = x.transpose(1, 2)
    return F.max_pool1d(steps, 3, 2, 1), F.max_pool1d(steps, 2, 1, return_indices=True)[0]


@program(X)
def each_beside_each(x):
    return torch.kron(x[0], x[:2, 0])


@program(X)
def scores_shifted_by_position(x):
    scores = x @ F.pad(x, (0, 0, x.shape[1] // 2, x.shape[1] // 2 - 1)).transpose(1, 2)
    return F.pad(scores, (1, 0)).reshape(len(x), -1)


@program(("b", 4), ("b", 4))
def distributions(x, y):
    which = torch.distributions.Categorical(logits=x)
    return torch.distributions.Normal(x, 1.0).log_prob(y), which.log_prob(y.argmax(1)), which.entropy()


@program(("b", 4), ("b", 3), (2, 4, 3))
def bilinear(x, y, weight):
    return F.bilinear(x, y, weight)


@program(("b", 4), ("t",), (2, 3))
def blocks(x, y, z):
    return torch.block_diag(x, y, z)


@program(("b", 3, 4), (24, 4), (24, 6), (24,), (24,))
def recurrent(x, weight, turned, bias, more):
    state = x.new_zeros(1, x.shape[0], 6)
    parameters = [weight, turned, bias, more]
    return torch.lstm(x, (state, state), parameters, True, 1, 0.0, True, False, True)[0]


# --- sizes that are compared ------------------------------------------------------------------------------------------
@program(X)
def checks_its_shapes(x):
    batch, length, width = x.size()
    scores = torch.bmm(x, x.transpose(1, 2))
    if scores.size() != (batch, length, length) or list(x.shape) != [batch, length, width]:
        raise ValueError(f"scores are of {scores.shape}")
    assert scores.shape[-2:] == (length, length) and x.shape.numel() == x.numel()
    return scores * 2 if (batch, length) in [(1, 1), (batch, length)] else scores
