"""Programs over torch: autograd, modules, custom operators, modes, random numbers, NumPy, ..."""

# ruff: noqa
from __future__ import annotations

import collections, contextlib, copy, functools, math, types, typing
import numpy as np
import torch, torch.nn.functional as F
from torch import nn
import torch.utils.checkpoint as cp
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from .tables import tables

WHOLE, BREAKING, whole, breaking = tables()


class Sq(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k=2):
        ctx.save_for_backward(x)
        ctx.k = k
        return x**k

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.k * x ** (ctx.k - 1), None


class Sq2(torch.autograd.Function):
    @staticmethod
    def forward(x, k):
        return x * k, x + 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.x, ctx.k = inputs
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, g2):
        return g * ctx.k, None


@whole
def af_plain(x):
    return Sq.apply(x, 3) + 1


@whole
def af_default(x):
    return Sq.apply(x).sum()


@whole
def af_setup(x):
    a, b = Sq2.apply(x, 3.0)
    return a, b


sq = Sq.apply


@whole
def af_alias(x):
    return sq(x, 2)


class STE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, g):
        return F.hardtanh(g)


@whole
def af_module(x):
    return nn.Sequential(nn.Identity())(STE.apply(x))


LIN = nn.Linear(4, 4)
LIN.requires_grad_(False)
LING = nn.Linear(4, 4)


@whole
def af_param(x):
    return Sq.apply(LING(x), 2).sum()


@breaking
def af_grad_reverse(x):
    class _G:
        pass

    return GradRev.apply(LING(x), 0.5)


class GradRev(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.neg() * ctx.alpha, None


@whole
def ckpt(x):
    return checkpoint(lambda a: LING(a).relu(), x, use_reentrant=False)


@whole
def ckpt_re(x):
    return checkpoint(lambda a: LING(a).relu(), LING(x), use_reentrant=True)


SEQ = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())


@whole
def ckpt_seq(x):
    return checkpoint_sequential(SEQ, 2, x, use_reentrant=False)


@whole
def ckpt_kw(x):
    return cp.checkpoint(SEQ, x, use_reentrant=False, preserve_rng_state=False)


@whole
def ckpt_dropout(x):
    return checkpoint(lambda a: F.dropout(LING(a)), x, use_reentrant=False)


@whole
def func_grad(x):
    return torch.func.grad(lambda a: (a**2).sum())(x)


@whole
def func_vmap(x):
    return torch.vmap(lambda a: a.sum() * 2)(x)


@whole
def func_vmap2(x):
    return torch.func.vmap(torch.dot)(x, x), torch.func.vmap(lambda a, b: a + b, in_dims=(0, None))(x, x[0])


@whole
def func_jvp(x):
    return torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))


@whole
def func_vjp(x):
    o, f = torch.func.vjp(torch.sin, x)
    return o, f(torch.ones_like(x))


@whole
def func_jac(x):
    return torch.func.jacrev(lambda a: a.sum(0))(x), torch.func.jacfwd(lambda a: a.sum(0))(x)


@whole
def func_hess(x):
    return torch.func.hessian(lambda a: (a**3).sum())(x[0])


@whole
def func_call(x):
    return torch.func.functional_call(LIN, {"weight": torch.ones(4, 4), "bias": x[0]}, (x,))


@whole
def func_grad_vmap(x):
    return torch.func.vmap(torch.func.grad(lambda w, a: (w * a).sum()), (None, 0))(x[0], x)


@whole
def func_grad_value(x):
    return torch.func.grad_and_value(lambda a: a.sin().sum())(x)


@whole
def ag_grad(x):
    y = LING(x).sum()
    return torch.autograd.grad(y, [LING.weight])[0]


@breaking
def ag_grad_input(x):
    with torch.enable_grad():
        a = x.detach().requires_grad_()
        e = (a**2).sum()
        (g,) = torch.autograd.grad(e, a, create_graph=False)
    return g


@whole
def parametrize_(x):
    return PMOD(x)


PMOD = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
OMOD = nn.utils.parametrizations.orthogonal(nn.Linear(4, 4))
SNMOD = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)).eval()
import warnings

warnings.simplefilter("ignore")
OLDWN = nn.utils.weight_norm(nn.Linear(4, 4))
OLDSN = nn.utils.spectral_norm(nn.Linear(4, 4)).eval()
OLDSNT = nn.utils.spectral_norm(nn.Linear(4, 4))


@whole
def orth(x):
    return OMOD(x)


@whole
def specn(x):
    return SNMOD(x)


@whole
def old_wn(x):
    return OLDWN(x)


@whole
def old_sn(x):
    return OLDSN(x)


LSTM = nn.LSTM(4, 5, batch_first=True, num_layers=2, bidirectional=True)
GRU = nn.GRU(4, 5)
RNN = nn.RNN(4, 5)
CELL = nn.LSTMCell(4, 4)
GCELL = nn.GRUCell(4, 4)


@whole
def lstm(x):
    o, (h, c) = LSTM(x[None])
    return o, h, c


@whole
def gru(x):
    return GRU(x[None])


@whole
def rnn(x):
    return RNN(x[None])


@whole
def lstm_cell(x):
    h, c = CELL(x)
    return CELL(x, (h, c))


@whole
def gru_cell(x):
    return GCELL(x)


@whole
def pad_seq(x):
    return nn.utils.rnn.pad_sequence([x[0], x[1, :2]])


TE = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), 2).eval()
TD = nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8, 0.0), 1)
TT = nn.Transformer(4, 2, 1, 1, 8, 0.0)
MHA = nn.MultiheadAttention(4, 2, batch_first=True)


@whole
def encoder(x):
    return TE(x[None])


@whole
def encoder_mask(x):
    return TE(x[None], mask=nn.Transformer.generate_square_subsequent_mask(3), is_causal=True), TE(
        x[None], src_key_padding_mask=torch.zeros(1, 3, dtype=torch.bool)
    )


TETR = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), 2)


@whole
def encoder_train(x):
    return TETR(x[None])


@whole
def decoder(x):
    return TD(x[None], x[None])


@whole
def transformer(x):
    return TT(x[None], x[None])


@whole
def mha(x):
    return MHA(x[None], x[None], x[None])


@whole
def mha_nw(x):
    return MHA(x[None], x[None], x[None], need_weights=False, attn_mask=torch.zeros(3, 3))[0]


MHAE = nn.MultiheadAttention(4, 2, batch_first=True).eval()


@whole
def mha_eval(x):
    with torch.no_grad():
        return MHAE(x[None], x[None], x[None])[0]


@torch.library.custom_op("glasstest::mysin", mutates_args=())
def mysin(x: torch.Tensor, k: float = 1.0) -> torch.Tensor:
    return torch.from_numpy(np.sin(x.detach().numpy() * k))


@mysin.register_fake
def _(x, k=1.0):
    return torch.empty_like(x)


mysin.register_autograd(
    lambda ctx, g: (g * ctx.s.cos(), None), setup_context=lambda ctx, inputs, output: setattr(ctx, "s", inputs[0])
)


@whole
def custom_op(x):
    return mysin(x) + mysin(x, 2.0)


@whole
def custom_op_ops(x):
    return torch.ops.glasstest.mysin(x)


@torch.library.custom_op("glasstest::inc_", mutates_args={"x"})
def inc_(x: torch.Tensor) -> None:
    x += 1


@whole
def custom_op_mut(x):
    y = x.clone()
    inc_(y)
    return y


L = torch.library.Library("glasstest2", "DEF")
L.define("twice(Tensor x) -> Tensor")
L.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
L.impl("twice", lambda x: torch.empty_like(x), "Meta")


@whole
def custom_lib(x):
    return torch.ops.glasstest2.twice(x), torch.ops.glasstest2.twice.default(x)


@torch.library.triton_op("glasstest::tt", mutates_args=()) if False else lambda f: f
def tt(x):
    return x


class LogMode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.add:
            return torch.sub(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


@breaking
def tf_mode(x):
    with LogMode():
        return torch.add(x, 1)


class TFWrap:
    def __init__(self, t):
        self.t = t

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        args = [a.t if isinstance(a, TFWrap) else a for a in args]
        return cls(func(*args, **(kwargs or {})))


class SubT(torch.Tensor):
    pass


@breaking
def subclass_make(x):
    return x.as_subclass(SubT) + 1


@whole
def inference_val(x):
    with torch.inference_mode():
        return x * 2


@whole
def no_grad_deco(x):
    @torch.no_grad()
    def f(a):
        return a * 2

    return f(x), ng(x)


@torch.no_grad()
def ng(a):
    return LING(a)


@torch.inference_mode()
def infm(a):
    return LING(a)


@whole
def inference_deco(x):
    return infm(x)


@whole
def device_ctx(x):
    with torch.device("cpu"):
        return torch.zeros(3) + torch.ones(1), x


@whole
def device_meta(x):
    with torch.device("meta"):
        y = torch.zeros(3)
    return y.device, x


@whole
def default_dtype(x):
    return torch.get_default_dtype(), torch.zeros(1).dtype, x, torch.get_default_device()


@breaking
def set_default(x):
    torch.set_default_dtype(torch.float64)
    y = torch.zeros(2)
    torch.set_default_dtype(torch.float32)
    return y, x


GEN = torch.Generator().manual_seed(3)


@breaking
def gen_obj(x):
    g = torch.Generator().manual_seed(5)
    return torch.randn(3, generator=g), torch.rand(2, generator=g) + x[0, 0]


@breaking
def gen_global(x):
    GEN.manual_seed(3)
    return torch.randn(3, generator=GEN)


@breaking
def manual_seed(x):
    torch.manual_seed(3)
    return x + torch.rand(3, 4)


@whole
def rng_many(x):
    return (
        F.dropout(x, 0.5),
        torch.rand(2),
        torch.randn_like(x),
        torch.randint(0, 5, (3,)),
        torch.randperm(4),
        torch.bernoulli(torch.full((3,), 0.5)),
        x.clone().uniform_(),
        x.clone().normal_(),
        torch.multinomial(torch.ones(4), 2),
        torch.normal(0.0, 1.0, (2,)),
        x.clone().exponential_(),
    )


@breaking
def fork_rng(x):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        y = torch.rand(2)
    return y, torch.rand(2)


@breaking
def rng_state(x):
    s = torch.get_rng_state()
    a = torch.rand(2)
    torch.set_rng_state(s)
    return a, torch.rand(2)


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
def data_attr(x):
    y = x.clone()
    y.data.mul_(2)
    return y, x.data + 1


@breaking
def data_set(x):
    y = x.clone()
    y.data = torch.ones(3, 4)
    return y


@whole
def grad_reads(x):
    return LING.weight.grad is None, x.grad is None, LING(x)


@whole
def nested_in(x):
    d = {"a": [x, {"b": (x + 1,)}]}
    return nest(d)


def nest(d):
    return d["a"][0] + d["a"][1]["b"][0]


@whole
def np_scalars(x):
    return (
        x * np.float32(2),
        x + np.int64(1),
        np.sqrt(4.0),
        float(np.float64(3)) + x,
        np.prod((2, 3)),
        np.arange(3).tolist(),
        int(np.ceil(2.1)),
        np.pi,
    )


NPF = np.float32(2.5)


@whole
def np_global(x):
    return x * NPF, x * float(NPF)


NPA = np.arange(4, dtype=np.float32)


@breaking
def np_array_const(x):
    return x + torch.from_numpy(NPA), torch.tensor(NPA), torch.as_tensor(NPA)


@whole
def np_linspace(x):
    return (
        x[0, :3] + torch.tensor(np.linspace(0, 1, 3)),
        torch.from_numpy(np.eye(2)),
        [float(v) for v in np.linspace(0, 1, 3)],
    )


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
def autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return LING(x)


@whole
def autocast_dis(x):
    with torch.autocast(device_type="cpu", enabled=False):
        y = LING(x.float())
    return y, torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")


@whole
def amp_custom(x):
    return AmpFn.apply(x)


class AmpFn(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, g):
        return g * 2


@whole
def grad_mode(x):
    with torch.set_grad_enabled(False):
        y = LING(x)
    with torch.no_grad():
        z = LING(x)
    with torch.enable_grad():
        w = LING(x)
    return y, z, w, torch.is_grad_enabled()


@whole
def set_grad_fn(x):
    torch.set_grad_enabled(False)
    y = LING(x)
    torch.set_grad_enabled(True)
    return y


@breaking
def requires_grad_attr(x):
    y = LING(x)
    return (
        y.requires_grad,
        x.requires_grad,
        y.is_leaf,
        y.detach().requires_grad,
        (y.grad_fn is None),
        LING.weight.requires_grad,
    )


@whole
def sdp_ctx(x):
    q = x.view(1, 1, 3, 4)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, q, q)


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
def op_calls(x):
    return torch.ops.aten.add.Tensor(x, x), torch.ops.aten.mul(x, 2)


@whole
def buffers(x):
    return BN(x)


BN = nn.BatchNorm1d(4).eval()


@whole
def buf_write(x):
    BW.n += 1
    BW.n -= 1
    return BW(x)


class BufMod(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(1))
        self.register_buffer("none", None)
        self.register_parameter("pn", None)

    def forward(self, x):
        return x + self.n, self.none is None, self.pn is None


BW = BufMod()


@whole
def hooks_mod(x):
    return HM(x)


HM = nn.Linear(4, 4)
HM.register_forward_hook(lambda m, i, o: o * 2)
HM.register_forward_pre_hook(lambda m, a: (a[0] + 1,))
HMK = nn.Linear(4, 4)
HMK.register_forward_hook(lambda m, a, k, o: o * 2, with_kwargs=True)
HMB = nn.Linear(4, 4)
HMB.register_full_backward_hook(lambda m, gi, go: None)


@whole
def hooks_kw(x):
    return HMK(x)


@breaking
def tensor_hook(x):
    y = LING(x)
    y.register_hook(lambda g: g * 2)
    return y


@breaking
def retain(x):
    y = LING(x)
    y.retain_grad()
    return y


@whole
def zero_grad(x):
    LING.zero_grad()
    return LING(x)


@whole
def optimizer_step(x):
    with torch.no_grad():
        for q in OPT.parameters():
            q.add_(0.0)
    return OPT(x)


OPT = nn.Linear(4, 4)


@breaking
def param_inside(x):
    w = nn.Parameter(torch.ones(4))
    return x * w


@breaking
def tensor_ctor(x):
    return (
        torch.tensor([1.0, 2]),
        torch.tensor(3),
        torch.tensor([[1, x.shape[0]]]),
        torch.as_tensor([1]),
        torch.FloatTensor([1]),
        x.new_zeros(2),
        x.new_tensor([1.0]),
        torch.Tensor(2, 2).fill_(1),
        torch.Tensor([1, 2]),
        torch.full((2,), 3.0),
        torch.zeros_like(x),
        torch.arange(3, dtype=torch.float),
        x.new_full((2,), 1),
        x.new_ones(1),
        torch.empty(0),
        torch.scalar_tensor(2.0),
        torch.BoolTensor([True]),
    )


@whole
def tensor_of_tensors(x):
    return torch.tensor([x.sum() * 0 if False else 1.0]), torch.stack([x, x]), torch.cat((x, x), dim=-1)


@whole
def tensor_list_to_tensor(x):
    return torch.tensor([v for v in [1, 2]], device=x.device, dtype=x.dtype)


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


@breaking
def jit_script(x):
    return JS(x)


JS = torch.jit.script(nn.ReLU())


@torch.jit.script
def js_fn(a: torch.Tensor) -> torch.Tensor:
    return a.relu() + 1


@breaking
def jit_fn(x):
    return js_fn(x)


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


@breaking
def dist(x):
    d = torch.distributions.Normal(x, torch.ones_like(x))
    return d.log_prob(x), d.rsample().shape, torch.distributions.kl_divergence(d, torch.distributions.Normal(0.0, 1.0))


@breaking
def dist_cat(x):
    d = torch.distributions.Categorical(logits=x)
    return d.sample().shape, d.entropy(), d.log_prob(torch.tensor([0, 1, 2]))


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
def inplace_param(x):
    with torch.no_grad():
        IPM.weight.copy_(IPM.weight)
        IPM.weight.data.clamp_(-9, 9)
    return IPM(x)


IPM = nn.Linear(4, 4)


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


@breaking
def stack_state(x):
    from torch.func import stack_module_state, functional_call

    params, bufs = stack_module_state([LIN, LIN])
    return torch.vmap(lambda p_, b_, a: functional_call(LIN, (p_, b_), (a,)), in_dims=(0, 0, None))(params, bufs, x)


@whole
def record_function(x):
    with torch.profiler.record_function("a"):
        y = x + 1
    with torch.autograd.profiler.record_function("b"):
        y = y + 1
    return y


@whole
def anomaly(x):
    with torch.autograd.set_detect_anomaly(False):
        return x + 1


@breaking
def compiler_disable(x):
    return torch_disabled(x)


@torch.compiler.disable
def torch_disabled(x):
    return x + 1


@whole
def assertion(x):
    assert x.dim() == 2, f"bad {x.shape}"
    torch._assert(x.shape[0] == 3, "q")
    torch._check(x.shape[0] > 1)
    return x


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


@whole
def lazy_mod(x):
    return LZ(x)


LZ = nn.LazyLinear(4)
LZ(torch.zeros(1, 4))


@whole
def amp_gradscaler(x):
    return torch.amp.autocast_mode.is_autocast_available("cpu"), x


@breaking
def dataloader_like(x):
    return [b * 2 for b in torch.utils.data.default_collate([x, x])]
