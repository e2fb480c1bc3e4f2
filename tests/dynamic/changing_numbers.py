"""Programs that compute with the sizes themselves, in Python or in what C++ takes numbers for."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from .changing_program import X, program


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
