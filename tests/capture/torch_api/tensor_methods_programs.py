"""Methods and functions of tensors, by the dozen."""

# ruff: noqa: C416, E741, I001, RUF015, RUF059, SIM300
from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import nn

from ..shared import LIN
from ..tables import tables

WHOLE, BREAKING, whole, breaking = tables()
ONLY_TENSORS = True  # what they do with numbers says nothing


@breaking
def tensor_int_index(x):
    i = torch.tensor(1)
    return (
        x[i],
        x[i, torch.tensor([0, 1])],
        x[torch.tensor([0, 2])],
        x[..., None],
        x[:, [0, 1]],
        x[[True, False, True]],
        x[None, 1:, ::2],
    )


@breaking
def list_by_tensor(x):
    return [1, 2, 3][torch.tensor(1)], x


@whole
def sizes(x):
    s = x.shape
    return (
        s.numel(),
        s[:-1] + (2,),
        torch.Size([1, 2]),
        list(s),
        s == (3, 4),
        x.size(),
        x.size(-1),
        x.view(*s[:-1], 2, 2),
        torch.Size((1,)) + s,
        str(s),
        hash(s) == hash((3, 4)),
        (3, 4) == s,
        s.index(4),
        s.count(3),
        len(s),
        s[-1],
    )


@whole
def dtypes_(x):
    return (
        x.dtype.is_floating_point,
        torch.finfo(x.dtype).min,
        torch.finfo(x.dtype).eps,
        torch.iinfo(torch.int8).max,
        x.to(torch.float64),
        x.half(),
        torch.float16.itemsize,
        x.dtype in (torch.float32,),
        str(x.dtype),
        x.type(torch.int32),
        x.type(),
        x.dtype.to_complex(),
        torch.result_type(x, 1),
    )


@whole
def devices(x):
    return (
        x.device.type,
        x.device == torch.device("cpu"),
        torch.device("cpu", 0).index,
        x.to("cpu"),
        x.is_cuda,
        x.device.type == "cuda",
        torch.cuda.is_available(),
        x.to(x),
        x.to(x.device, torch.float64),
        x.cpu(),
        str(x.device),
        torch.backends.cuda.is_built() if False else 1,
    )


@whole
def einops_like(x):
    return rearr(x, "a (b c) -> b a c", c=2)


@functools.lru_cache(256)
def parse(p):
    l, r = p.split("->")
    return tuple(l.split()), tuple(r.split())


def rearr(x, pat, **k):
    parse(pat)
    return x.reshape(3, 2, 2).permute(1, 0, 2)


@whole
def tree(x):
    from torch.utils._pytree import tree_map, tree_flatten, tree_unflatten

    fl, spec = tree_flatten({"a": x, "b": [x, 1]})
    return tree_map(lambda a: a * 2, {"a": x, "b": (x, [1])}), tree_unflatten(fl, spec), len(fl)


@whole
def masks(x):
    return (
        x.masked_fill(x > 0, 0.0),
        torch.where(x > 0, x, -x),
        (x > 0).sum(),
        x * (x > 0),
        torch.tril(torch.ones(3, 3)).bool(),
    )


@whole
def setitem_mask(x):
    y = x.clone()
    y[y > 0] = 0.0
    y[0, 1:3] = 5
    y[:, 0] += 1
    y[..., -1] = x[:, 0]
    return y


@whole
def interp(x):
    y = x[None, None]
    return (
        F.interpolate(y, scale_factor=2),
        F.interpolate(y, size=(5, 5), mode="bilinear", align_corners=False),
        F.pad(y, (1, 1)),
        F.avg_pool2d(y, 2),
        F.adaptive_avg_pool2d(y, 1),
        F.max_pool2d(y, 2, return_indices=True),
        F.unfold(y, 2),
        F.grid_sample(y, torch.zeros(1, 2, 2, 2), align_corners=False),
        F.pixel_shuffle(torch.ones(1, 4, 2, 2), 2),
        F.affine_grid(torch.eye(2, 3)[None], [1, 1, 2, 2], align_corners=False),
    )


@whole
def embed(x):
    return (
        EMB(torch.tensor([0, 1])),
        F.one_hot(torch.tensor([0, 1]), 4),
        F.embedding_bag(torch.tensor([0, 1]), EMB.weight, torch.tensor([0])),
    )


EMB = nn.Embedding(5, 4)


@whole
def clip(x):
    return torch.clamp(x, -1, 1), x.clip(min=0), nn.utils.clip_grad_norm_(LIN.parameters(), 1.0)


@breaking
def sparse(x):
    return torch.sparse_coo_tensor([[0], [1]], [1.0], (3, 4)).to_dense() + x


@whole
def complex_(x):
    z = torch.complex(x, x)
    return (
        z.abs(),
        torch.view_as_real(z),
        z.real,
        torch.fft.rfft(x),
        torch.fft.fft(x).imag,
        torch.polar(x.abs(), x),
        z.conj() * 2,
        torch.stft(x.reshape(-1), 4, return_complex=True, window=torch.ones(4)),
    )


@whole
def linalg(x):
    return (
        torch.linalg.norm(x),
        torch.linalg.svd(x),
        torch.linalg.inv(x @ x.T + torch.eye(3)),
        torch.det(x[:, :3]),
        torch.linalg.qr(x),
        torch.linalg.eigh(x @ x.T)[0],
        torch.linalg.cholesky(x @ x.T + 3 * torch.eye(3)),
        torch.einsum("ij,kj->ik", x, x),
        torch.trace(x),
        x.norm(),
        x.norm(p=2, dim=-1, keepdim=True),
    )


@whole
def namedtuple_results(x):
    m = x.max(1)
    s = torch.sort(x)
    return (
        m.values,
        m.indices,
        s[0],
        x.topk(2).values,
        torch.return_types.max is not None,
        torch.unique(torch.tensor([1, 1])).shape if False else 0,
        x.min(0),
        torch.var_mean(x),
        x.median(),
        x.mode(0),
        x.kthvalue(1),
    )


@breaking
def tensor_attrs_user(x):
    y = x + 1
    y.tag = 5
    return y.tag, y


@whole
def iter_tensor(x):
    a, b, c = x
    return (
        [r.sum() for r in x],
        a + b,
        len(x),
        list(x)[0],
        [v for v in x[0]],
        sum(x),
        max(1, 2),
        torch.stack(list(reversed(list(x)))),
        zip(x, x) is not None,
    )


@whole
def tensor_bool_const(x):
    return (
        bool(torch.is_tensor(x)),
        torch.is_tensor(3),
        x.is_contiguous(),
        x.T.is_contiguous(),
        x.stride(),
        x.storage_offset(),
        x.numel(),
        x.nelement(),
        x.element_size(),
        x.ndimension(),
        x.is_floating_point(),
        x.is_complex(),
        torch.is_complex(x),
        x.has_names() if False else 0,
        x.t().contiguous().is_contiguous(),
        x.is_signed(),
        x.nbytes,
        x.itemsize,
        x.data_ptr() != 0 if False else 1,
    )


@whole
def methods_many(x):
    return (
        x.mul(2).add_(1).sub(x, alpha=2),
        x.expand(2, -1, -1),
        x.flatten(),
        x.unflatten(1, (2, 2)),
        x.movedim(0, -1),
        x.chunk(2, -1),
        x.split([1, 3], 1),
        x.tensor_split(3),
        x.roll(1, 0),
        x.flip(0),
        x.repeat(2, 1),
        x.repeat_interleave(2, 0),
        x.gather(1, torch.zeros(3, 1, dtype=torch.long)),
        x.scatter(1, torch.zeros(3, 1, dtype=torch.long), 1.0),
        x.index_select(0, torch.tensor([0])),
        x.cumsum(0),
        x.argmax(-1),
        x.logsumexp(1),
        x.softmax(-1),
        x.amax(1),
        x.any(),
        x.all(),
        x.prod(),
        x.std(),
        x.var(unbiased=False),
        x.outer(x) if False else 0,
        x.bmm(x) if False else 0,
        x.addmm(x @ x.T, x),
        x.baddbmm(x, x) if False else 0,
        x.view_as(x),
        x.reshape_as(x),
        x.expand_as(x),
        x.swapaxes(0, 1),
        x.transpose(0, 1),
        x.permute(1, 0),
        x.diag(),
        x.diagonal(),
        x.triu(),
        x.lerp(x, 0.5),
        x.take_along_dim(x.argmax(1, keepdim=True), 1),
        x.unfold(1, 2, 1),
        x.narrow(1, 0, 2),
        x.select(0, 1),
        x.unbind(0),
        x.masked_select(x > 0).shape if False else 0,
        x.index_add(0, torch.tensor([0]), x[:1]),
        x.index_fill(0, torch.tensor([0]), 1.0),
        x.bitwise_not() if False else 0,
        x.isnan(),
        x.isinf(),
        x.eq(x),
        x.equal(x) if False else 0,
        x.allclose(x) if False else 0,
    )


@whole
def tv_ops(x):
    return (
        F.gelu(x, approximate="tanh"),
        F.silu(x),
        F.glu(x),
        F.layer_norm(x, (4,)),
        F.group_norm(x[None].transpose(1, 2), 2),
        F.normalize(x),
        F.cosine_similarity(x, x),
        F.softmax(x, -1),
        F.log_softmax(x, -1),
        F.gumbel_softmax(x).shape,
        F.rms_norm(x, (4,)),
        F.batch_norm(x, torch.zeros(4), torch.ones(4)),
        F.instance_norm(x[None]),
        F.local_response_norm(x[None], 2),
        F.linear(x, LIN.weight),
        F.conv1d(x[None], torch.ones(1, 3, 2)),
        F.multi_head_attention_forward is not None,
        F.pairwise_distance(x, x),
        torch.cdist(x, x),
        F.dropout(x, training=False),
        F.threshold(x, 0.0, 1.0),
        F.embedding(torch.tensor([0]), EMB.weight),
    )
