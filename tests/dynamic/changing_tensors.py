"""Programs of one family of operators each, on tensors of changing sizes."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .changing_program import W, X, program


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
